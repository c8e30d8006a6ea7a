//! Formats findings as text: a summary line for each file, with its contents below.

use std::fmt::Write;

use crate::finding::{Commands, Database, Finding, Kind, Largest, Names, PrefixSize, Prefixes, Snapshot, Verdict};
use crate::shown::{count, date, grouped};

/// Maximum number of names shown for a file. `--json` shows all.
const NAMES_SHOWN_MAX: usize = 10;

/// Maximum number of the largest keys and prefixes shown for a file.
const LARGEST_SHOWN_MAX: usize = 5;

/// Shorter reading times aren't shown.
const SECONDS_SHOWN_MIN: f64 = 1.0;

/// Types of values, with the noun for one value.
const TYPES: &[(&str, &str)] = &[
    ("string", "string"),
    ("list", "list"),
    ("set", "set"),
    ("zset", "sorted set"),
    ("hash", "hash"),
    ("stream", "stream"),
];

/// Formats a finding as lines, each with a newline.
pub fn lines(finding: &Finding) -> String {
    let mut text = format!("{}: {}\n", finding.file, summary(finding));
    if let Some(flaw) = &finding.flaw {
        line(&mut text, &format!("problem: {}", flaw.what));
        line(&mut text, &format!("remedy: {}", flaw.advice));
    }
    if let Some(snapshot) = &finding.snapshot {
        snapshot_lines(&mut text, snapshot);
    }
    if let Some(commands) = &finding.commands {
        commands_lines(&mut text, commands);
    }
    finding.notes.iter().for_each(|note| line(&mut text, note));
    text
}

fn line(text: &mut String, content: &str) {
    let _ = writeln!(text, "  {content}");
}

/// Formats a summary: `whole, a snapshot, 1,234 bytes, read in 2.1 s`
fn summary(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Whole => "whole",
        Verdict::Torn => "TORN at its end",
        Verdict::Broken => "BROKEN",
        Verdict::Unsupported => "NOT SUPPORTED",
    };
    let what = match (&finding.snapshot, &finding.commands) {
        (Some(_), Some(commands)) if commands.count > 0 || commands.blocks > 0 => "a snapshot and commands",
        _ => finding.kind.text(),
    };
    if finding.kind == Kind::Manifest && finding.verdict == Verdict::Whole {
        return format!("{verdict}, {what}; it names {}", count(finding.parts.len() as u64, "file"));
    }
    let mut text = format!("{verdict}, {what}, {}", count(finding.bytes, "byte"));
    if finding.seconds >= SECONDS_SHOWN_MIN {
        let _ = write!(text, ", read in {:.1} s", finding.seconds);
    }
    text
}

fn snapshot_lines(text: &mut String, snapshot: &Snapshot) {
    if snapshot.format.is_empty() {
        return;
    }
    line(text, &origin(snapshot));
    for (number, database) in &snapshot.databases {
        line(text, &format!("database {number}: {}", database_text(database)));
    }
    if !snapshot.functions.0.is_empty() {
        let names: Vec<&str> = snapshot.functions.0.keys().map(String::as_str).collect();
        line(text, &format!("libraries of functions: {}", shortened(&names, names.len())));
    }
    if snapshot.scripts > 0 {
        line(text, &format!("{}, of SCRIPT LOAD", count(snapshot.scripts, "script")));
    }
    if snapshot.tokens > 0 {
        line(text, &format!("{} of Penstock", count(snapshot.tokens, "pipeline token")));
    }
    if snapshot.empty_keys > 0 {
        line(text, &format!("{} without elements; servers skip them", count(snapshot.empty_keys, "key")));
    }
    if !snapshot.largest_keys.is_empty() {
        line(text, &format!("largest keys, in bytes of the file: {}", largest_keys(&snapshot.largest_keys)));
    }
    if !snapshot.prefixes.0.is_empty() {
        line(text, &format!("largest prefixes: {}", largest_prefixes(&snapshot.prefixes)));
    }
}

/// Formats the largest keys: `user:7 2,000, queue (database 3) 1,500`
fn largest_keys(keys: &[Largest]) -> String {
    let one = |key: &Largest| {
        let database = if key.database == 0 { String::new() } else { format!(" (database {})", key.database) };
        format!("{}{database} {}", key.key, grouped(key.bytes))
    };
    keys.iter().take(LARGEST_SHOWN_MAX).map(one).collect::<Vec<_>>().join(", ")
}

/// Formats the largest prefixes: `user: 20,000 in 10 keys, session: 1,500 in 1 key and 7 more`
fn largest_prefixes(prefixes: &Prefixes) -> String {
    let all = prefixes.largest();
    let one = |(prefix, size): &(&str, PrefixSize)| {
        format!("{prefix} {} in {}", grouped(size.bytes), count(size.keys, "key"))
    };
    let shown: Vec<String> = all.iter().take(LARGEST_SHOWN_MAX).map(one).collect();
    shortened(&shown, all.len())
}

/// Formats the origin: `written by Redis 7.0.15 at 2026-11-25 15:00:39 UTC, format REDIS0010, checksum right`
fn origin(snapshot: &Snapshot) -> String {
    let mut text = String::from("written");
    if let Some(server) = &snapshot.server {
        let _ = write!(text, " by {server}");
    }
    if let Some(created_s) = snapshot.created_s {
        let _ = write!(text, " at {}", date(created_s));
    }
    let _ = write!(text, " in format {}", snapshot.format);
    text += match snapshot.checksum_is_right {
        Some(true) => ", checksum right",
        Some(false) => ", checksum wrong",
        None => "",
    };
    text
}

/// Formats a database: `10 keys (5 strings, 1 list), 1 expires, 0 of them have expired`
fn database_text(database: &Database) -> String {
    let types = TYPES.iter().filter_map(|(kind, name)| database.types.get(kind).map(|&number| plural(number, name)));
    let types: Vec<String> = types.collect();
    let mut text = format!("{} ({})", count(database.keys, "key"), types.join(", "));
    match database.expiring {
        0 => {}
        1 => text += ", 1 expires",
        several => text += &format!(", {} expire", grouped(several)),
    }
    if database.expired > 0 {
        text += &format!(", {} expired already", grouped(database.expired));
    }
    text
}

fn plural(number: u64, name: &str) -> String {
    if name == "hash" && number != 1 { format!("{} hashes", grouped(number)) } else { count(number, name) }
}

fn commands_lines(text: &mut String, commands: &Commands) {
    let mut head = count(commands.count, "command");
    if commands.transactions > 0 {
        head += &format!(", {}", count(commands.transactions, "transaction"));
    }
    if commands.blocks > 0 {
        head += &format!(", in {} of Penstock with checksums", count(commands.blocks, "block"));
    } else if commands.by_penstock {
        head += ", written by Penstock";
    }
    if commands.records > 0 {
        head += &format!(", {} of pipeline tokens", count(commands.records, "record"));
    }
    line(text, &head);
    if !commands.names.0.is_empty() {
        line(text, &by_count(&commands.names));
    }
    if commands.databases.iter().any(|&number| number != 0) {
        let numbers: Vec<String> = commands.databases.iter().map(u64::to_string).collect();
        line(text, &format!("databases: {}", shortened(&numbers, numbers.len())));
    }
    if let Some((first, last)) = commands.noted_s {
        line(text, &format!("written from {} to {}", date(first), date(last)));
    }
}

/// Formats counts by name, the largest first: `SET 3, SELECT 1`
fn by_count(names: &Names) -> String {
    let mut pairs: Vec<(&String, &u64)> = names.0.iter().collect();
    pairs.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
    let shown: Vec<String> =
        pairs.iter().take(NAMES_SHOWN_MAX).map(|(name, count)| format!("{name} {}", grouped(**count))).collect();
    shortened(&shown, pairs.len())
}

/// Formats the first names, and the number of the others.
fn shortened(shown: &[impl AsRef<str>], all: usize) -> String {
    let first: Vec<&str> = shown.iter().take(NAMES_SHOWN_MAX).map(AsRef::as_ref).collect();
    let mut text = first.join(", ");
    if all > first.len() {
        text += &format!(" and {} more", grouped((all - first.len()) as u64));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_database_is_a_line() {
        let types = BTreeMap::from([("hash", 2), ("string", 1), ("zset", 1)]);
        let mut database = Database { keys: 4, expiring: 1, expired: 0, types };
        assert_eq!(database_text(&database), "4 keys (1 string, 1 sorted set, 2 hashes), 1 expires");
        (database.expiring, database.expired) = (3, 2);
        assert_eq!(database_text(&database), "4 keys (1 string, 1 sorted set, 2 hashes), 3 expire, 2 expired already");
    }

    #[test]
    fn frequent_names_come_first_and_the_rest_is_counted() {
        let mut names = Names::default();
        for name in ["DEL", "SET", "SET"] {
            names.count(name);
        }
        assert_eq!(by_count(&names), "SET 2, DEL 1");
        (0..20).for_each(|number| names.count(&format!("X{number:02}")));
        assert!(by_count(&names).ends_with("X07 1 and 12 more"), "{}", by_count(&names));
    }
}
