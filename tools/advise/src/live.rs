//! Watches a running server through MONITOR for a limited time.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use advisor::Advisor;
use advisor::client::Client;
use advisor::monitor::{LogCounts, MonitorReader};
use client::{Config, Connection, Proto, Stream, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::run::say;

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;
/// Interval at which a wait checks the limits.
const INTERVAL: Duration = Duration::from_millis(100);

/// Limits of a watch. It ends at the first one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum duration.
    pub time: Duration,
    /// Maximum number of commands.
    pub commands: u64,
}

/// Watches a server until a limit is reached or `is_over` is set.
///
/// # Errors
/// Returns a message for the user if the server is unreachable or refuses a command.
pub fn look(server: &Config, limits: Limits, advisor: &mut Advisor, is_over: &AtomicBool) -> Result<LogCounts, String> {
    let mut config = server.clone();
    config.proto = Proto::Resp2;
    config.fallback_name = Some(b"penstock-advise".to_vec());
    let connect = || Connection::connect(&config).map_err(|error| error.to_string());
    let (mut control, mut monitor) = (connect()?, connect()?);
    let mut reader = MonitorReader::new();
    introduce(&mut control, &mut reader);
    say(&format!(
        "watching {} through MONITOR for {:?} or {} commands. MONITOR slows down a busy server; Ctrl-C stops it",
        config.address, limits.time, limits.commands
    ));
    begin(&mut monitor).map_err(|error| error.to_string())?;
    let (mut stream, rest) = monitor.into_stream();
    reader.feed(&rest, advisor);
    let ended = follow(&mut *stream, limits, is_over, &mut reader, advisor);
    // Closed first, because an open MONITOR connection costs the server time.
    drop(stream);
    match ended {
        Ok(true) => {}
        Ok(false) => say("the server has closed the MONITOR connection; its output may have been read too slowly"),
        Err(error) => say(&format!("the connection broke: {error}")),
    }
    // Names the clients that have connected in the meantime, and shows which connections are still open.
    introduce(&mut control, &mut reader);
    reader.end(advisor);
    Ok(reader.counts())
}

/// Starts MONITOR. Penstock's batches and replies are requested first; other servers don't have these options.
fn begin(monitor: &mut Connection) -> Result<(), client::Error> {
    match monitor.command(&["MONITOR", "BATCHES", "REPLIES"]) {
        Err(client::Error::Server(_)) => {}
        Ok(Value::Error(_)) => {}
        other => return other.map(drop),
    }
    monitor.command(&["MONITOR"]).map(drop)
}

/// Reads the output of MONITOR. Returns false if the server ended it.
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

/// Waits for input for at most `time`.
fn wait(stream: &dyn Stream, time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).ok();
    match poll(&mut [PollFd::from_borrowed_fd(stream.fd(), PollFlags::IN)], time.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Passes the clients of CLIENT LIST to the reader. If the server refuses the command, the clients have no names, and new connections
/// can't be told from old ones.
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
    reader.note_list();
}

/// Parses a line of CLIENT LIST into the address with its port, and the client's description.
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
        in_cluster: false,
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
