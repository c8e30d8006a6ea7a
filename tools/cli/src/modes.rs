//! Modes other than commands: scans of keys, latency measurements, statistics, and bulk input.

pub mod batches;
pub mod eval;
pub mod intrinsic;
pub mod keys;
pub mod latency;
pub mod pipe;
pub mod replica;
pub mod scan;
pub mod spectrum;
pub mod stat;

use crate::failure::Failure;
use crate::session::CliSession;
use client::Value;
use std::time::Duration;

/// Interval between attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Moves the cursor to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[0K";

/// Sends a request and returns the reply. An error reply ends the mode.
///
/// # Errors
/// Returns [`Failure`], also for an error reply.
fn ask(session: &mut CliSession<'_>, request: &[impl AsRef<[u8]>], what: &str) -> Result<Value, Failure> {
    let reply = session.exchange(request)?;
    no_error(reply, what)
}

/// Returns the reply, or a failure if it is an error.
fn no_error(reply: Value, what: &str) -> Result<Value, Failure> {
    match reply.error() {
        Some(text) => Err(Failure::Other(format!("{what}: {}", String::from_utf8_lossy(text)))),
        None => Ok(reply),
    }
}

/// Sends a request until it is answered. If the connection breaks, this prints a message and reconnects every second.
///
/// # Errors
/// Returns [`Failure`] if reconnecting wouldn't help.
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

/// Flushes the output and sleeps. Ctrl-C ends the mode if it is watched.
///
/// # Errors
/// Returns errors of standard output, and [`Failure::Interrupted`].
fn pause(session: &mut CliSession<'_>, time: Duration) -> Result<(), Failure> {
    session.output.flush()?;
    if session.interrupt.sleep(time) { Err(Failure::Interrupted) } else { Ok(()) }
}
