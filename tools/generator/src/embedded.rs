//! A private Penstock server: this program, started as a server on a free port and ended together with the benchmark.
//!
//! This module contains both sides: [`Embedded`] starts and stops the server, and [`end_with_parent`] runs first in the
//! server's process, so that the server doesn't survive a killed benchmark.

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

/// First argument of a server that ends with its parent. The parent's process id and the server's command line follow.
pub const END_WITH: &str = "--end-with";

/// Time limit for the server's first answer.
const START_MAX: Duration = Duration::from_secs(10);
/// Number of attempts to start, in case another program takes the free port in between.
const START_TRIES: usize = 3;
/// Interval between connection attempts during the start.
const ASK_INTERVAL: Duration = Duration::from_millis(10);

/// The server's process. Dropping this value kills it, and the kernel kills it when the thread that started it ends.
/// The process's first thread must therefore start it. The server has a process group of its own, so that Ctrl-C
/// doesn't reach it and the benchmark can shut down in order.
pub struct Embedded {
    child: Child,
    port: u16,
}

impl Embedded {
    /// Starts a server that keeps everything in memory and writes nothing to disk.
    ///
    /// # Errors
    /// Fails if the program can't be started, or does not answer in time.
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

    /// Returns the configuration for connections.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::tcp(Ipv4Addr::LOCALHOST.to_string(), self.port)
    }
}

/// Makes the kernel kill this process when its parent ends in any way. `parent` is the parent's process id from the
/// argument after [`END_WITH`].
///
/// # Errors
/// Returns a message for the user if the parent has already ended, and this process has another parent.
pub fn end_with_parent(parent: &OsStr) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("{END_WITH}: can't watch the parent process: {error}"))?;
    // The check must come after the request to the kernel: a parent that ended earlier sends no signal, but this
    // process has another parent then.
    let is = getppid().map(Pid::as_raw_pid);
    let expected = parent.to_str().and_then(|text| text.parse().ok());
    if is.is_none() || is != expected {
        return Err(format!("{END_WITH}: process {} is not the parent of this process", parent.to_string_lossy()));
    }
    Ok(())
}

fn cannot_start(why: &str) -> Failure {
    Failure::Local(format!("a server of our own does not start: {why}; name one by its URL instead"))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
