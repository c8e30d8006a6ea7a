//! What the program does beside commands: it looks at keys, latencies and figures, or feeds the server.

pub mod eval;
pub mod intrinsic;
pub mod keys;
pub mod latency;
pub mod pipe;
pub mod scan;
pub mod spectrum;
pub mod stat;

use crate::failure::Failure;
use crate::session::CliSession;
use client::Value;
use std::time::Duration;

/// Between two tries to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Goes to the start of a terminal's line and clears what stands there.
const CLEAR_LINE: &str = "\r\x1b[0K";

/// Sends a request whose error reply ends the mode: the reply.
///
/// # Errors
/// [`Failure`], an error reply included.
fn ask(session: &mut CliSession<'_>, request: &[impl AsRef<[u8]>], what: &str) -> Result<Value, Failure> {
    let reply = session.exchange(request)?;
    no_error(reply, what)
}

/// The reply, unless it is an error.
fn no_error(reply: Value, what: &str) -> Result<Value, Failure> {
    match reply.error() {
        Some(text) => Err(Failure::Other(format!("{what}: {}", String::from_utf8_lossy(text)))),
        None => Ok(reply),
    }
}

/// Sends a request until it is answered: when the connection breaks, that is said, and a new one is tried every second.
///
/// # Errors
/// [`Failure`], where another connection wouldn't help.
fn ask_patiently(session: &mut CliSession<'_>, request: &[impl AsRef<[u8]>]) -> Result<Value, Failure> {
    let mut tries = 0;
    loop {
        match session.exchange(request) {
            Err(failure) if failure.is_broken_connection() => {}
            answered => {
                if tries > 0 {
                    session.output.print(CLEAR_LINE)?;
                }
                return answered;
            }
        }
        let mut is_connected = false;
        while !is_connected {
            tries += 1;
            session.output.print(format!("{CLEAR_LINE}Reconnecting... {tries}\r"))?;
            session.output.flush()?;
            is_connected = session.try_connect()?;
            pause(session, RECONNECT_INTERVAL)?;
        }
    }
}

/// Waits, and lets the reader have what was printed meanwhile. Ctrl-C ends the mode where it is noted.
///
/// # Errors
/// Standard output's; [`Failure::Interrupted`].
fn pause(session: &mut CliSession<'_>, time: Duration) -> Result<(), Failure> {
    session.output.flush()?;
    if session.interrupt.sleep(time) { Err(Failure::Interrupted) } else { Ok(()) }
}
