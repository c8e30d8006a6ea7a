//! `--pipe`: copies requests in wire format from standard input to the server, and counts the replies.

use crate::failure::Failure;
use crate::output::complain;
use crate::session::CliSession;
use client::{Connection, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read};
use std::process::{self, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes per read of standard input, and the maximum of unsent bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Counts of replies.
#[derive(Default)]
struct Replies {
    errors: u64,
    /// The errors that name another node of a cluster.
    redirections: u64,
    count: u64,
    /// Text of the final ECHO, which marks the last reply.
    mark: Vec<u8>,
    /// True if the final reply has arrived.
    ended: bool,
}

/// Sends all of standard input and waits up to `timeout` for the last reply.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>, timeout: Option<Duration>) -> Result<ExitCode, Failure> {
    session.connect()?;
    let mut replies = Replies { mark: mark(), ..Replies::default() };
    feed(session.connection()?, &mut replies)?;
    session.output.print("All data transferred. Waiting for the last reply...\n")?;
    session.output.flush()?;
    let echo = [b"\r\n*2\r\n$4\r\nECHO\r\n$20\r\n", replies.mark.as_slice(), b"\r\n"].concat();
    session.connection()?.send_packed(&echo, 0);
    if wait_for_end(session.connection()?, &mut replies, timeout)? {
        session.output.print("Last reply received from server.\n")?;
    } else {
        let seconds = timeout.unwrap_or_default().as_secs();
        complain!("No replies for {seconds} seconds: exiting.");
        replies.errors += 1;
    }
    if replies.redirections > 0 {
        complain!("{}", redirections_text(replies.redirections));
    }
    session.output.print(format!("errors: {}, replies: {}\n", replies.errors, replies.count))?;
    Ok(if replies.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the remedy for commands that belong to other nodes of a cluster.
fn redirections_text(count: u64) -> String {
    let commands = if count == 1 { "1 command belongs".to_owned() } else { format!("{count} commands belong") };
    format!(
        "{commands} to other nodes of the cluster and did not run there: --pipe sends all commands to one node, even with -c. \
         `penstock load --cluster` sends each command to its node."
    )
}

/// Returns twenty digits that are unlikely to occur in any other reply.
fn mark() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let number = now.as_nanos() ^ u128::from(process::id()) << 40;
    format!("{:020}", number % 10u128.pow(20)).into_bytes()
}

/// Sends standard input and reads replies at the same time.
fn feed(connection: &mut Connection, replies: &mut Replies) -> Result<(), Failure> {
    let mut input = io::stdin().lock();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = match input.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Failure::Other(format!("Error reading from stdin: {error}"))),
        };
        connection.send_packed(&chunk[..length], 0);
        loop {
            take_all(connection, replies)?;
            if connection.try_flush()? {
                break;
            }
            wait(connection, PollFlags::IN | PollFlags::OUT, None)?;
        }
    }
}

/// Reads replies until the final ECHO. Returns false if no reply arrives for `timeout`.
fn wait_for_end(
    connection: &mut Connection,
    replies: &mut Replies,
    timeout: Option<Duration>,
) -> Result<bool, Failure> {
    let mut since = Instant::now();
    loop {
        if take_all(connection, replies)? {
            since = Instant::now();
        }
        if replies.ended {
            return Ok(true);
        }
        let rest = timeout.map(|timeout| timeout.saturating_sub(since.elapsed()));
        if rest == Some(Duration::ZERO) {
            return Ok(false);
        }
        let flags = if connection.try_flush()? { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        wait(connection, flags, rest)?;
    }
}

/// Counts the replies that have arrived. Returns true if there were any.
fn take_all(connection: &mut Connection, replies: &mut Replies) -> Result<bool, Failure> {
    let mut any = false;
    while let Some(reply) = connection.next_push(Duration::ZERO)? {
        replies.add(&reply);
        any = true;
    }
    Ok(any)
}

impl Replies {
    fn add(&mut self, reply: &Value) {
        if let Value::Push(_) = reply {
            return;
        }
        if let Value::Bulk(text) = reply
            && *text == self.mark
        {
            self.ended = true;
            return;
        }
        self.count += 1;
        if let Some(text) = reply.error() {
            self.errors += 1;
            self.redirections += u64::from(text.starts_with(b"MOVED ") || text.starts_with(b"ASK "));
            complain!("{}", String::from_utf8_lossy(text));
        }
    }
}

fn wait(connection: &Connection, flags: PollFlags, timeout: Option<Duration>) -> Result<(), Failure> {
    let mut fds = [PollFd::from_borrowed_fd(connection.fd(), flags)];
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => {
            Err(Failure::Other(format!("penstock cli: can't wait for the server: {}", io::Error::from(error))))
        }
    }
}
