//! `--stat`: prints the server's statistics, a line per interval.

use super::{ask_patiently, no_error, pause};
use crate::failure::Failure;
use crate::session::CliSession;
use std::time::Duration;

/// Default interval between lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of lines between headings.
const LINES_PER_HEADING: u64 = 20;

const HEADING: &str = "\
------- data ------ --------------------- load -------------------- - child -
keys       mem      clients blocked requests            connections          
";

/// Prints statistics forever, or the number of lines given by `-r`.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>) -> Result<(), Failure> {
    session.connect()?;
    let interval = session.options.interval.unwrap_or(INTERVAL);
    let lines_max = session.options.repeat.and_then(|count| u64::try_from(count).ok());
    let mut requests_before = None;
    for line in 0.. {
        if lines_max == Some(line) {
            break;
        }
        let reply = no_error(ask_patiently(session, &["INFO"])?, "ERROR")?;
        let info = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
        if line % LINES_PER_HEADING == 0 {
            session.output.print(HEADING)?;
        }
        let requests = field(&info, "total_commands_processed").unwrap_or(0);
        session.output.print(row(&info, requests, requests_before.unwrap_or(requests)))?;
        requests_before = Some(requests);
        pause(session, interval)?;
    }
    Ok(())
}

/// Returns a number from INFO.
fn field(info: &str, name: &str) -> Option<i64> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value?.trim().parse().ok()
}

fn row(info: &str, requests: i64, requests_before: i64) -> String {
    let figure = |name| field(info, name).unwrap_or(0);
    let load = format!("{requests} (+{})", requests - requests_before);
    format!(
        "{:<11}{:<9}{:<8}{:<8}{load:<20}{:<12}{}\n",
        keys(info),
        human_bytes(figure("used_memory")),
        figure("connected_clients"),
        figure("blocked_clients"),
        figure("total_connections_received"),
        children(info),
    )
}

/// Returns the number of keys in all databases.
fn keys(info: &str) -> i64 {
    let databases = info.lines().filter(|line| line.starts_with("db"));
    let counts = databases.filter_map(|line| line.split_once(":keys=")?.1.split(',').next()?.parse::<i64>().ok());
    counts.sum()
}

/// Returns the names of background tasks.
fn children(info: &str) -> String {
    let doing = [("rdb_bgsave_in_progress", "SAVE"), ("aof_rewrite_in_progress", "AOF"), ("loading", "LOAD")];
    let names: Vec<&str> =
        doing.iter().filter(|(name, _)| field(info, name) == Some(1)).map(|(_, text)| *text).collect();
    names.join("+")
}

/// Formats a number of bytes with a unit.
fn human_bytes(bytes: i64) -> String {
    let bytes = bytes as f64;
    let units = [(1u64 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match units.iter().find(|(size, _)| bytes >= *size as f64) {
        Some((size, unit)) => format!("{:.2}{unit}", bytes / *size as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_figures() {
        let info = "# Clients\r\nconnected_clients:3\r\nblocked_clients:1\r\nused_memory:1048576\r\n\
                    total_connections_received:7\r\nrdb_bgsave_in_progress:1\r\n# Keyspace\r\ndb0:keys=5,expires=0\r\ndb11:keys=6,x=1\r\n";
        let expected = "11         1.00M    3       1       100 (+10)           7           SAVE\n";
        assert_eq!(row(info, 100, 90), expected);
    }

    #[test]
    fn units_of_bytes() {
        assert_eq!([0, 1023, 1024, 1536 << 20, 3 << 40].map(human_bytes), ["0B", "1023B", "1.00K", "1.50G", "3.00T"]);
    }
}
