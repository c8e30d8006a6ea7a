//! What tests of scripts share.

use std::io;
use std::thread;
use std::time::Duration;

use crate::bytes::{Command, encode};
use crate::conn::Conn;
use crate::reply::Reply;
use crate::server::Server;

/// A script that ends at once if it is told so, and else never.
pub const ENDLESS: &str = "if ARGV[1] == 'end' then return 'done' end while true do redis.call('GET', KEYS[1]) end";

/// EVAL of a script.
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

/// Waits until a command is refused because of a script or function that takes too long.
///
/// # Errors
///
/// What the connection says, or that the command isn't refused within ten seconds.
pub fn wait_until_busy(conn: &mut Conn, command: &str) -> io::Result<()> {
    for _ in 0..1000 {
        if text(&conn.cmd(command)?).starts_with("BUSY ") {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other("nothing is ever busy"))
}

/// Starts a script that doesn't end, and waits until it runs. The server has nothing else to do meanwhile: an idle one
/// takes hardly any CPU time, such a script all that it gets.
///
/// # Errors
///
/// What the connection says.
pub fn start_endless(server: &Server, conn: &mut Conn, key: &str) -> io::Result<()> {
    let before = server.cpu_ticks();
    conn.send(&encode(&eval(ENDLESS, &[key], &["go on"])))?;
    server.wait_until("the script runs", |server| server.cpu_ticks() >= before + 3);
    Ok(())
}

/// Ends a script or function that takes too long, once it does, by `SCRIPT KILL` or `FUNCTION KILL`.
///
/// # Errors
///
/// What the connection says, or that nothing is busy after ten seconds, or is and can't be ended.
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
