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
use crate::session::Session;
use client::Value;
use std::thread;
use std::time::Duration;

/// Sends a request whose error reply ends the mode: the reply.
///
/// # Errors
/// [`Failure`], an error reply included.
fn ask(session: &mut Session<'_>, request: &[impl AsRef<[u8]>], what: &str) -> Result<Value, Failure> {
    let reply = session.exchange(request)?;
    match reply.error() {
        Some(text) => Err(Failure::Other(format!("{what}: {}", String::from_utf8_lossy(text)))),
        None => Ok(reply),
    }
}

/// Waits, and lets the reader have what was printed meanwhile. Ctrl-C ends the mode where it is noted.
///
/// # Errors
/// Standard output's; [`Failure::Interrupted`].
fn pause(session: &mut Session<'_>, time: Duration) -> Result<(), Failure> {
    session.output.flush()?;
    thread::sleep(time);
    if session.interrupt.take() { Err(Failure::Interrupted) } else { Ok(()) }
}
