//! A server under experiment: the way that is measured, and another to ask it questions.

use std::time::{Duration, Instant};

use client::{Address, Config, Connection, Value, Window};
use proxy::Proxy;

use super::experiments::PREFIX;
use super::results::{Counts, Server};
use crate::failure::Failure;
use crate::host::{self, Process, Usage};
use crate::interrupt::Interrupt;

/// PINGs whose median is the round trip's time.
const PINGS: usize = 11;
/// As many more as come within so much time, since a few microseconds are to be told apart.
const PINGING: Duration = Duration::from_millis(50);
/// The first ones find caches cold, and a proxy that has still to connect.
const PINGS_UNCOUNTED: usize = 3;
/// In a longer round trip, the proxy's own some ten microseconds are no more than the noise of a measurement.
const OWN_TIME_COUNTS: Duration = Duration::from_millis(1);
/// Longest time that a reply may take beyond the round trip.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Commands whose replies may be under way when keys are removed.
const CLEANING_WINDOW: usize = 1000;
/// Longest time that a reply may take beyond the added round trip after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the proxy's delay is set anew by what it turned out to add: on a busy machine that changes from one time
/// to the next.
const ADJUSTMENTS: usize = 4;

/// A server.
pub struct Target {
    /// What the reports say of it.
    pub server: Server,
    /// How to reach it without the proxy.
    pub direct: Config,
    /// How it is measured: through the proxy, if there is one.
    pub measured: Config,
    control: Connection,
    process: Option<Process>,
}

/// Keys that a server didn't remove.
struct Refused {
    /// How many of them it has; `None` where it doesn't tell that either.
    left: Option<usize>,
    /// What it answered.
    why: String,
}

impl Target {
    /// Connects to a server and, with `rtt`, puts a proxy before it. After Ctrl-C it is not waited
    /// for any longer than for a moment.
    pub fn new(config: &Config, rtt: Option<Duration>, interrupt: &Interrupt) -> Result<Target, Failure> {
        let mut direct = interrupt.impatient(config, PATIENCE + rtt.unwrap_or_default());
        direct.read_timeout = Some(SILENCE_MAX);
        let mut control = Connection::connect(&direct)?;
        let without = median_ping(&direct)?;
        let mut measured = direct.clone();
        if let Some(rtt) = rtt {
            // What is encrypted passes as it is.
            let mut server = direct.clone();
            (server.tls, server.connector) = (false, None);
            let proxy = Proxy::start(server);
            let proxy = proxy.map_err(|error| Failure::Local(format!("no proxy: {error}")))?;
            measured.address = proxy.address();
            // What the proxy takes itself is part of what is asked of it, where it makes a difference.
            let mut asked = rtt;
            proxy.set_rtt(asked);
            for _ in 0..ADJUSTMENTS {
                if rtt > OWN_TIME_COUNTS {
                    break;
                }
                let added = median_ping(&measured)?.saturating_sub(without);
                asked = (asked + rtt).saturating_sub(added);
                proxy.set_rtt(asked);
            }
        }
        let process = Process::of(&mut control);
        let rtt_ms = median_ping(&measured)?.as_secs_f64() * 1e3;
        let direct_rtt_ms = without.as_secs_f64() * 1e3;
        let (name, address) = (name(&mut control), direct.address.to_string());
        let server = Server { name, address, rtt_ms, direct_rtt_ms, is_local: process.is_some() };
        Ok(Target { server, direct, measured, control, process })
    }

    /// A new connection of the kind that is measured, on which the server has already answered: accepting a connection
    /// isn't part of the benchmark.
    pub fn connect(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::connect(&self.measured)?;
        connection.command(&["PING"])?;
        Ok(connection)
    }

    /// What its process has used so far, where it is known.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.process.map(|process| process.usage())
    }

    /// Asks a question that is not measured.
    pub fn ask(&mut self, words: &[&str]) -> Result<client::Value, Failure> {
        Ok(self.control.command(words)?)
    }

    /// A number of INFO's.
    pub fn number(&mut self, section: &str, field: &str) -> Option<u64> {
        host::field(&host::info(&mut self.control, section)?, field)?.parse().ok()
    }

    /// How often each command has run, as the server counts; empty where it doesn't tell.
    pub fn counts(&mut self) -> Counts {
        let info = host::info(&mut self.control, "commandstats").unwrap_or_default();
        info.lines().filter_map(command_count).collect()
    }

    /// Removes keys.
    ///
    /// # Errors
    /// The server refuses that; [`Failure::KeysLeft`] where some are left or may be.
    pub fn remove(&mut self, keys: &[String]) -> Result<(), Failure> {
        if keys.is_empty() {
            return Ok(());
        }
        match delete(&mut self.control, keys) {
            Ok(None) => Ok(()),
            Ok(Some(Refused { left, why })) => {
                let why = Failure::Server(format!(
                    "the server refuses DEL, by which the experiments remove their keys again: {why}"
                ));
                Err(if left == Some(0) { why } else { Failure::KeysLeft(Box::new(why), self.tell_left(left)) })
            }
            Err(error) => Err(Failure::KeysLeft(Box::new(error.into()), self.tell_left(None))),
        }
    }

    /// How many keys are left, if that is known, and how to remove them.
    fn tell_left(&self, count: Option<usize>) -> String {
        let what = match count {
            Some(1) => format!("1 key that begins with {PREFIX} is left"),
            Some(count) => format!("{count} keys that begin with {PREFIX} are left"),
            None => format!("keys that begin with {PREFIX} may be left"),
        };
        let cli = match &self.direct.address {
            Address::Tcp { host, port } => format!("penstock cli -h {host} -p {port} -n {}", self.direct.db),
            Address::Unix(path) => format!("penstock cli -s {} -n {}", path.display(), self.direct.db),
        };
        format!(
            "{what} on {}; to remove them, as a user who may: {cli} --scan --pattern '{PREFIX}*' | sed 's/^/DEL /' | {cli}",
            self.direct.address
        )
    }
}

/// Deletes keys, each by a command of its own: a server in cluster mode takes no others together than those of one
/// slot.
fn delete(connection: &mut Connection, keys: &[String]) -> Result<Option<Refused>, client::Error> {
    let window = Window::of(CLEANING_WINDOW);
    let (mut refused, mut why) = (Vec::new(), None);
    window.run_each(connection, keys.iter().map(|key| ["DEL", key]), |index, reply| {
        if let Some(text) = reply.error() {
            refused.extend(keys.get(index as usize));
            why.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
        }
    })?;
    let Some(why) = why else { return Ok(None) };
    let mut left = Some(0);
    window.run_each(connection, refused.iter().map(|key| ["EXISTS", key]), |_, reply| {
        left = left.filter(|_| reply.error().is_none()).map(|left| left + usize::from(reply == Value::Int(1)));
    })?;
    Ok(Some(Refused { left, why }))
}

/// `cmdstat_zadd:calls=3,...` as a name and a number.
fn command_count(line: &str) -> Option<(String, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
}

/// Program and version. Valkey and Penstock also give a version of Redis, for clients that look for it.
fn name(control: &mut Connection) -> String {
    let info = host::info(control, "server").unwrap_or_default();
    let known = [("Penstock", "penstock_version"), ("Valkey", "valkey_version"), ("Redis", "redis_version")];
    let found = known.iter().find_map(|(name, field)| Some(format!("{name} {}", host::field(&info, field)?)));
    found.unwrap_or_else(|| "a server that does not say what it is".to_owned())
}

fn median_ping(config: &Config) -> Result<Duration, Failure> {
    let mut connection = Connection::connect(config)?;
    for _ in 0..PINGS_UNCOUNTED {
        connection.command(&["PING"])?;
    }
    let (mut times, start) = (Vec::new(), Instant::now());
    while times.len() < PINGS || start.elapsed() < PINGING {
        let began = Instant::now();
        connection.command(&["PING"])?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_from_its_line() {
        let line = "cmdstat_config|get:calls=12,usec=3,usec_per_call=0.25,rejected_calls=0,failed_calls=0";
        assert_eq!(command_count(line), Some(("config|get".to_owned(), 12)));
        assert_eq!(command_count("# Commandstats"), None);
    }
}
