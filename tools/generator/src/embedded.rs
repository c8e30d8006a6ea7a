//! A Penstock of our own: this very program, started as a server on a free port and ended with us.
//!
//! Both sides of that stand here: [`Embedded`] starts and ends the server, [`end_with_parent`] is what the server's
//! process does first, so that it doesn't stay behind where we can't end it ourselves.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client::{Config, Connection};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// The program's first argument where it is to be a server that ends with its parent; the parent's process id follows,
/// and then the server's command line.
pub const END_WITH: &str = "--end-with";

/// How long the server may take until it answers.
const START_MAX: Duration = Duration::from_secs(10);
/// How often it is started anew where another program took the port that was free a moment before.
const START_TRIES: usize = 3;
/// How often it is asked whether it is there.
const ASK_INTERVAL: Duration = Duration::from_millis(10);

/// The server's process; it is killed when this is dropped, and by the kernel where this thread ends without that: the
/// process's first thread is to start it. Ctrl-C doesn't reach it: it has a process group of its own, so that we can
/// come to an end in good order.
pub struct Embedded {
    child: Child,
    port: u16,
}

impl Embedded {
    /// Starts a server that keeps everything in memory and nothing on disk.
    pub fn start(interrupt: &Interrupt) -> Result<Embedded, Failure> {
        let mut trouble = String::new();
        for _ in 0..START_TRIES {
            let mut embedded = Embedded::spawn().map_err(|error| cannot_start(&error.to_string()))?;
            match embedded.wait_until_ready(interrupt) {
                Ok(()) => return Ok(embedded),
                Err(_) if interrupt.is_pressed() => return Err(Failure::Interrupted),
                Err(text) => trouble = text,
            }
        }
        Err(cannot_start(&trouble))
    }

    fn spawn() -> io::Result<Embedded> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let child = Command::new(std::env::current_exe()?)
            .args([END_WITH, &std::process::id().to_string()])
            .args(["server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Embedded { child, port })
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> Result<(), String> {
        let config = interrupt.impatient(&self.config(), ASK_INTERVAL);
        let began = Instant::now();
        while began.elapsed() < START_MAX && !interrupt.is_pressed() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            let asked = Connection::connect(&config).and_then(|mut connection| connection.command(&["PING"]));
            if asked.is_ok() {
                return Ok(());
            }
            thread::sleep(ASK_INTERVAL);
        }
        Err(format!("it does not answer within {} seconds", START_MAX.as_secs()))
    }

    /// How to reach it.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::tcp(Ipv4Addr::LOCALHOST.to_string(), self.port)
    }
}

/// Has the kernel kill this process when its parent ends, however that comes about. `parent` is the parent's process id
/// as [`END_WITH`] was given it.
///
/// # Errors
/// In words for the user: the parent is another process by now, and so has ended already.
pub fn end_with_parent(parent: &OsStr) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("{END_WITH}: the kernel doesn't watch the parent: {error}"))?;
    // Only now: a parent that ended before the kernel watched it sends no signal, but another process is the parent
    // then.
    let is = getppid().map(Pid::as_raw_pid);
    let expected = parent.to_str().and_then(|text| text.parse().ok());
    if is.is_none() || is != expected {
        return Err(format!(
            "{END_WITH}: process {} is not the parent of this one (any more)",
            parent.to_string_lossy()
        ));
    }
    Ok(())
}

fn cannot_start(why: &str) -> Failure {
    Failure::Local(format!("a server of our own does not start: {why}; name one by its URL instead"))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
