//! A server under test: one connection path for measurements, and another for queries.

use std::time::{Duration, Instant};

use client::{Address, Config, Connection, Value, Window};
use proxy::Proxy;

use super::experiments::PREFIX;
use super::results::{Counts, Server};
use crate::failure::Failure;
use crate::host::{self, Process, Usage};
use crate::interrupt::Interrupt;

/// Number of PINGs for the median round trip time.
const PINGS: usize = 11;
/// Additional PINGs are sent for this time, because the median must be exact to a few microseconds.
const PINGING: Duration = Duration::from_millis(50);
/// Number of ignored first PINGs, which meet cold caches and a proxy that is still connecting.
const PINGS_UNCOUNTED: usize = 3;
/// Round trips above this limit aren't corrected: the proxy's own ten microseconds are below the noise.
const OWN_TIME_COUNTS: Duration = Duration::from_millis(1);
/// Time limit for a reply, beyond the round trip.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of unanswered commands while keys are removed.
const CLEANING_WINDOW: usize = 1000;
/// Time limit for a reply after Ctrl-C, beyond the added round trip.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of corrections of the proxy's delay. On a busy machine its own delay varies.
const ADJUSTMENTS: usize = 4;

/// A server under test.
pub struct Target {
    /// Description of the server for reports.
    pub server: Server,
    /// Configuration for a connection without the proxy.
    pub direct: Config,
    /// Configuration for measured connections, through the proxy if there is one.
    pub measured: Config,
    control: Connection,
    process: Option<Process>,
}

/// Keys that a server refused to remove.
struct Refused {
    /// Number of these keys that exist; `None` if the server refuses this query, too.
    left: Option<usize>,
    /// The server's error.
    why: String,
}

impl Target {
    /// Connects to a server. With `rtt`, a proxy is put before it. After Ctrl-C, waiting for the server is limited to a
    /// moment.
    pub fn new(config: &Config, rtt: Option<Duration>, interrupt: &Interrupt) -> Result<Target, Failure> {
        let mut direct = interrupt.impatient(config, PATIENCE + rtt.unwrap_or_default());
        direct.read_timeout = Some(SILENCE_MAX);
        let mut control = Connection::connect(&direct)?;
        let without = median_ping(&direct)?;
        let mut measured = direct.clone();
        if let Some(rtt) = rtt {
            // The proxy passes encrypted bytes through unchanged.
            let mut server = direct.clone();
            (server.tls, server.connector) = (false, None);
            let proxy = Proxy::start(server);
            let proxy = proxy.map_err(|error| Failure::Local(format!("no proxy: {error}")))?;
            measured.address = proxy.address();
            // The proxy's own delay is part of the requested one, if it is significant.
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

    /// Opens a connection for a measurement, after a first PING. Accepting a connection is therefore not measured.
    pub fn connect(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::connect(&self.measured)?;
        connection.command(&["PING"])?;
        Ok(connection)
    }

    /// Returns the resource use of the server's process, if it is known.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.process.map(|process| process.usage())
    }

    /// Sends a command that isn't measured.
    pub fn ask(&mut self, words: &[&str]) -> Result<client::Value, Failure> {
        Ok(self.control.command(words)?)
    }

    /// Returns a number from INFO.
    pub fn number(&mut self, section: &str, field: &str) -> Option<u64> {
        host::field(&host::info(&mut self.control, section)?, field)?.parse().ok()
    }

    /// Returns the number of calls of each command, as counted by the server; empty if it refuses.
    pub fn counts(&mut self) -> Counts {
        let info = host::info(&mut self.control, "commandstats").unwrap_or_default();
        info.lines().filter_map(command_count).collect()
    }

    /// Removes keys.
    ///
    /// # Errors
    /// Returns the server's refusal, or [`Failure::KeysLeft`] if keys remain or may remain.
    pub fn remove(&mut self, keys: &[String]) -> Result<(), Failure> {
        if keys.is_empty() {
            return Ok(());
        }
        match delete(&mut self.control, keys) {
            Ok(None) => Ok(()),
            Ok(Some(Refused { left, why })) => {
                let why = Failure::Server(format!(
                    "the server refuses DEL, which the experiments need to remove their keys: {why}"
                ));
                Err(if left == Some(0) { why } else { Failure::KeysLeft(Box::new(why), self.tell_left(left)) })
            }
            Err(error) => Err(Failure::KeysLeft(Box::new(error.into()), self.tell_left(None))),
        }
    }

    /// Returns a message with the number of remaining keys, if it is known, and a command that removes them.
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

/// Deletes keys, each with its own command, because a server in cluster mode refuses a command with keys of several
/// slots.
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

/// Parses `cmdstat_zadd:calls=3,...` into a name and a number.
fn command_count(line: &str) -> Option<(String, u64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
}

/// Returns the program and its version. Valkey and Penstock also report a Redis version for compatibility.
fn name(control: &mut Connection) -> String {
    let info = host::info(control, "server").unwrap_or_default();
    let known = [("Penstock", "penstock_version"), ("Valkey", "valkey_version"), ("Redis", "redis_version")];
    let found = known.iter().find_map(|(name, field)| Some(format!("{name} {}", host::field(&info, field)?)));
    found.unwrap_or_else(|| "an unknown server".to_owned())
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
