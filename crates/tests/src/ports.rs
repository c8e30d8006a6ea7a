//! Ports for the servers of tests.
//!
//! A port from the kernel's range of ephemeral ports can be taken by any outgoing connection between the choice and the
//! server's start. The ports here lie below that range. A file with the last number makes them differ between all test
//! processes that run at once.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// Ports of servers. All are greater than the number of slots (16384), so no port equals a number of a slot in the
/// texts that tests compare. A node of a cluster also listens on its port plus 10,000, which lies below 32768, the first
/// ephemeral port of Linux.
const PORTS: RangeInclusive<u16> = 16_400..=22_399;

/// Distance from a server's port to its default bus port.
const BUS_OFFSET: u16 = 10_000;

/// Returns a port that no other test uses, and whose bus port is free, too.
///
/// # Errors
/// Fails if the file of the last number cannot be used, or if all ports are taken.
pub fn free_port() -> io::Result<u16> {
    let mut file = LastPort::open()?;
    for _ in PORTS {
        let port = file.next()?;
        if is_free(port) && is_free(port + BUS_OFFSET) {
            return Ok(port);
        }
    }
    Err(io::Error::other(format!("all ports from {} to {} are in use", PORTS.start(), PORTS.end())))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Waits until connections to `port` are refused, after its listener in this process was closed.
///
/// A program that another test starts holds copies of all file descriptors from its fork to its exec, and a copy of the
/// listener still accepts connections.
///
/// # Errors
/// Fails if the port still accepts connections after ten seconds.
pub fn wait_until_refused(port: u16) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        if Instant::now() > end {
            return Err(io::Error::other(format!("port {port} still accepts connections")));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The file with the port that was given last. It is locked while this value lives.
struct LastPort(File);

impl LastPort {
    fn open() -> io::Result<Self> {
        let user = rustix::process::getuid().as_raw();
        let path = env::temp_dir().join(format!("penstock-tests-ports-{user}"));
        let file = fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.lock()?;
        Ok(Self(file))
    }

    /// Returns the port after the last one, and stores it.
    fn next(&mut self) -> io::Result<u16> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let last = text.trim().parse().ok().filter(|port| PORTS.contains(port));
        // The process id spreads the first ports of machines that lose their temporary files.
        let last = last.unwrap_or_else(|| PORTS.start() + (process::id() % 5_000) as u16);
        let port = if last == *PORTS.end() { *PORTS.start() } else { last + 1 };
        self.0.rewind()?;
        self.0.set_len(0)?;
        writeln!(self.0, "{port}")?;
        Ok(port)
    }
}
