//! A look at a running server through MONITOR, which ends by itself.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use advisor::Advisor;
use advisor::client::Client;
use advisor::monitor::{LogCounts, MonitorReader};
use client::{Config, Connection, Proto, Stream, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::run::say;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// How often a wait looks whether it is to end.
const INTERVAL: Duration = Duration::from_millis(100);

/// When a look ends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// After so much time.
    pub time: Duration,
    /// After so many commands.
    pub commands: u64,
}

/// Looks at a server, until a limit is reached or `is_over` is set.
///
/// # Errors
/// A line for the user: the server can't be reached, or it refuses.
pub fn look(server: &Config, limits: Limits, advisor: &mut Advisor, is_over: &AtomicBool) -> Result<LogCounts, String> {
    let mut config = server.clone();
    config.proto = Proto::Resp2;
    config.fallback_name = Some(b"penstock-advise".to_vec());
    let connect = || Connection::connect(&config).map_err(|error| error.to_string());
    let (mut control, mut monitor) = (connect()?, connect()?);
    let mut reader = MonitorReader::new();
    introduce(&mut control, &mut reader);
    say(&format!(
        "looking at {} through MONITOR for {:?}, or {} commands. MONITOR makes a busy server slower meanwhile; Ctrl-C ends the look",
        config.address, limits.time, limits.commands
    ));
    begin(&mut monitor).map_err(|error| error.to_string())?;
    let (mut stream, rest) = monitor.into_stream();
    reader.feed(&rest, advisor);
    let ended = follow(&mut *stream, limits, is_over, &mut reader, advisor);
    // Before anything else: from now on it costs the server nothing.
    drop(stream);
    match ended {
        Ok(true) => {}
        Ok(false) => say("the server has ended MONITOR: perhaps its output was read too slowly"),
        Err(error) => say(&format!("the connection broke: {error}")),
    }
    // Those that have come meanwhile have names, too.
    introduce(&mut control, &mut reader);
    reader.end(advisor);
    Ok(reader.counts())
}

/// Has the server show commands: with batches and replies, if it is Penstock; any other has no such options.
fn begin(monitor: &mut Connection) -> Result<(), client::Error> {
    match monitor.command(&["MONITOR", "BATCHES", "REPLIES"]) {
        Err(client::Error::Server(_)) => {}
        Ok(Value::Error(_)) => {}
        other => return other.map(drop),
    }
    monitor.command(&["MONITOR"]).map(drop)
}

/// Reads what MONITOR prints. False if the server ended it.
fn follow(
    stream: &mut dyn Stream,
    limits: Limits,
    is_over: &AtomicBool,
    reader: &mut MonitorReader,
    advisor: &mut Advisor,
) -> io::Result<bool> {
    let until = Instant::now() + limits.time;
    let mut buffer = vec![0; READ_BYTES];
    while !is_over.load(Ordering::Relaxed) && reader.counts().commands < limits.commands {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(len) => reader.feed(buffer.get(..len).unwrap_or_default(), advisor),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(stream, left.min(INTERVAL))?,
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until there is something to read, but no longer than `time`.
fn wait(stream: &dyn Stream, time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).ok();
    match poll(&mut [PollFd::from_borrowed_fd(stream.fd(), PollFlags::IN)], time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Tells the reader what CLIENT LIST says of the clients. A server that refuses that leaves them nameless.
fn introduce(control: &mut Connection, reader: &mut MonitorReader) {
    let list = match control.command(&["CLIENT", "LIST"]) {
        Ok(Value::Bulk(text)) => text,
        Ok(Value::Verbatim { text, .. }) => text,
        _ => return,
    };
    for line in String::from_utf8_lossy(&list).lines() {
        if let Some((source, client)) = introduced(line) {
            reader.introduce(source.as_bytes(), client);
        }
    }
}

/// A line of CLIENT LIST: the address with its port, and what is known of the client.
fn introduced(line: &str) -> Option<(&str, Client)> {
    let field = |name: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default()
    };
    let library = format!("{} {}", field("lib-name"), field("lib-ver"));
    let client = Client {
        name: field("name").to_owned(),
        library: library.trim().to_owned(),
        user: field("user").to_owned(),
        address: String::new(),
    };
    let source = field("addr");
    (!source.is_empty()).then_some((source, client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_client_list_introduces_a_client() {
        let line =
            "id=3 addr=127.0.0.1:60866 laddr=127.0.0.1:6379 name=importer user=app lib-name=redis-py lib-ver=5.0";
        let (source, client) = introduced(line).unwrap();
        assert_eq!((source, client.to_string().as_str()), ("127.0.0.1:60866", "importer (redis-py 5.0, user app)"));
        assert!(introduced("").is_none());
        assert_eq!(introduced("addr=[::1]:5 name=").unwrap().1, Client::default());
    }
}
