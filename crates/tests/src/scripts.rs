//! Helpers of the tests of scripts.

use std::io;
use std::thread;
use std::time::Duration;

use crate::bytes::{Command, encode};
use crate::conn::Conn;
use crate::reply::Reply;
use crate::server::Server;

/// A script that ends at once if its argument is `end`, and otherwise never.
pub const ENDLESS: &str = "if ARGV[1] == 'end' then return 'done' end while true do redis.call('GET', KEYS[1]) end";

/// An EVAL of a script.
#[must_use]
pub fn eval(script: &str, keys: &[&str], args: &[&str]) -> Command {
    let keys_count = keys.len().to_string();
    let words = ["EVAL", script, &keys_count].into_iter().chain(keys.iter().copied()).chain(args.iter().copied());
    words.map(|word| word.as_bytes().to_vec()).collect()
}

/// A reply's text.
#[must_use]
pub fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text()).into_owned()
}

/// Waits until a command is refused because a script or function is busy.
///
/// # Errors
///
/// The connection's error, or that the command isn't refused within ten seconds.
pub fn wait_until_busy(conn: &mut Conn, command: &str) -> io::Result<()> {
    for _ in 0..1000 {
        if text(&conn.cmd(command)?).starts_with("BUSY ") {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("nothing is ever busy"))
}

/// Starts an endless script, and waits until it runs. The server must be idle otherwise: an idle server takes hardly
/// any CPU time, an endless script a whole core.
///
/// # Errors
///
/// The connection's error.
pub fn start_endless(server: &Server, conn: &mut Conn, key: &str) -> io::Result<()> {
    let before = server.cpu_ticks();
    conn.send(&encode(&eval(ENDLESS, &[key], &["go on"])))?;
    server.wait_until("the script runs", |server| server.cpu_ticks() >= before + 3);
    Ok(())
}

/// Ends a busy script or function by `SCRIPT KILL` or `FUNCTION KILL`.
///
/// # Errors
///
/// The connection's error; or that nothing is busy after ten seconds, or that it can't be ended.
pub fn kill(conn: &mut Conn, command: &str) -> io::Result<()> {
    for _ in 0..1000 {
        match text(&conn.cmd(command)?).as_str() {
            "OK" => return Ok(()),
            reply if reply.starts_with("NOTBUSY") => thread::sleep(Duration::from_millis(10)),
            reply => return Err(io::Error::other(reply)),
        }
    }
    Err(io::Error::other("nothing is ever busy"))
}
