//! The sweep over pipeline depths: throughput, and the server's memory for unread replies.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Config, Request};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::experiments::PREFIX;
use super::results::DepthCell;
use super::target::{SILENCE_MAX, Target};
use crate::failure::{self, Failure};
use crate::generator::{self, Address, Distribution, Greeting, Load, NodeLoad, Numbers, Scanner, Template};
use crate::interrupt::Interrupt;

/// Duration of the throughput measurement at each depth, in addition to the minimum of round trips.
const MEASURE: Duration = Duration::from_millis(1000);
/// Minimum number of round trips.
const ROUND_TRIPS_MIN: u32 = 4;
/// Receive buffer of the connection that doesn't read, in bytes. It is small, so that the server has to keep the
/// replies instead of the client's kernel.
const RECEIVE_BUFFER_BYTES: usize = 4096;
/// Time limit for the kept replies of a depth to become stable.
const REST_MAX: Duration = Duration::from_secs(5);
/// Interval between queries, and the number of equal answers in a row that count as stable.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
const EQUAL_ANSWERS: u32 = 5;
/// Interval at which a wait for replies checks for an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the key that is read.
fn key() -> String {
    format!("{PREFIX}depth")
}

/// Measures one depth.
pub fn measure(target: &mut Target, depth: u64, value_bytes: u64, interrupt: &Interrupt) -> Result<DepthCell, Failure> {
    let value = "x".repeat(value_bytes as usize);
    target.ask(&["SET", &key(), &value])?;
    let cell = throughput(target, depth, interrupt).and_then(|cell| {
        let reply_bytes = depth * (value_bytes + bulk_overhead(value_bytes));
        queue(target, depth, DepthCell { reply_bytes, ..cell }, interrupt)
    });
    failure::both(cell, target.remove(&[key()]))
}

/// Returns the size of a bulk string's framing: `$`, its length, and two line ends.
fn bulk_overhead(value_bytes: u64) -> u64 {
    value_bytes.to_string().len() as u64 + 5
}

fn throughput(target: &Target, depth: u64, interrupt: &Interrupt) -> Result<DepthCell, Failure> {
    let address = Address::resolve(&target.measured.address)
        .map_err(|error| Failure::Server(format!("can't find {}: {error}", target.measured.address)))?;
    let load = Load {
        nodes: vec![NodeLoad { address, encryption: None, name: None, slots: Vec::new() }],
        greeting: Greeting::of(&target.measured),
        mix: Template::new(&["GET", &key()], b"", false).into(),
        // The run ends after a fixed time.
        requests: u64::MAX / 2,
        clients: 1,
        threads: 1,
        depth,
        rate: None,
        keep_alive: true,
        numbers: Numbers::new(0, Distribution::Uniform),
        seed: 0,
        stop_on_error: true,
    };
    let round_trips = Duration::from_secs_f64(target.server.rtt_ms / 1e3) * ROUND_TRIPS_MIN;
    let (stop, enough) = (AtomicBool::new(false), MEASURE.max(round_trips));
    let before = target.usage();
    let outcome = generator::run(&load, &stop, &mut |progress| {
        if progress.elapsed >= enough || interrupt.is_pressed() {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    let used = target.usage().zip(before).and_then(|(now, before)| now.since(&before).known_cpu_ns());
    let answered = outcome.latencies.len().max(1) as f64;
    Ok(DepthCell {
        per_second: answered / outcome.took.as_secs_f64(),
        server_ns_per_command: used.map(|ns| ns as f64 / answered),
        ..DepthCell::default()
    })
}

/// Sends a whole pipeline without reading, queries the memory that the server uses for it, and then reads the replies.
fn queue(target: &mut Target, depth: u64, mut cell: DepthCell, interrupt: &Interrupt) -> Result<DepthCell, Failure> {
    let mut reader = DelayedReader::connect(&target.direct, interrupt.clone())?;
    let id = reader.client_id()?;
    let memory_before = target.number("memory", "used_memory");
    let mut requests = Vec::new();
    (0..depth).for_each(|_| ["GET", &key()].pack(&mut requests));
    let mut writer = reader.socket.try_clone()?;
    let writing = thread::spawn(move || writer.write_all(&requests));
    cell.queued_bytes = at_rest(target, &id);
    let memory_after = target.number("memory", "used_memory");
    cell.memory_growth_bytes = memory_before.zip(memory_after).map(|(before, after)| after.saturating_sub(before));
    if !writing.is_finished() {
        cell.remark = Some("the server stopped reading before it had all commands".to_owned());
    }
    reader.replies(depth)?;
    match writing.join() {
        Ok(written) => written.map_err(|error| Failure::Server(error.to_string()))?,
        Err(_) => return Err(Failure::Local("the writing thread failed".to_owned())),
    }
    Ok(cell)
}

/// Returns the size of the replies that the server keeps for a client, once it is stable.
fn at_rest(target: &mut Target, id: &str) -> Option<u64> {
    let began = Instant::now();
    let (mut last, mut equal) = (None, 0);
    while equal < EQUAL_ANSWERS && began.elapsed() < REST_MAX {
        thread::sleep(ASK_INTERVAL);
        let now = kept(target, id);
        equal = if now == last { equal + 1 } else { 0 };
        last = now;
    }
    last.map(|(kept, _)| kept)
}

/// Returns the sizes of kept replies and of unexecuted requests, from a client's line in CLIENT LIST.
fn kept(target: &mut Target, id: &str) -> Option<(u64, u64)> {
    let reply = target.ask(&["CLIENT", "LIST"]).ok()?;
    let text = String::from_utf8_lossy(reply.bytes()?).into_owned();
    let line = text.lines().find(|line| line.starts_with(&format!("id={id} ")))?;
    let number = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok());
    Some((number("omem=")?, number("qbuf=")?))
}

/// A blocking socket.
enum BlockingSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl BlockingSocket {
    fn try_clone(&self) -> Result<Box<dyn Write + Send>, Failure> {
        Ok(match self {
            BlockingSocket::Tcp(stream) => Box::new(stream.try_clone()?),
            BlockingSocket::Unix(stream) => Box::new(stream.try_clone()?),
        })
    }

    /// Sets the time limit of a read.
    fn set_read_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        match self {
            BlockingSocket::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            BlockingSocket::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            BlockingSocket::Tcp(stream) => stream.read(buffer),
            BlockingSocket::Unix(stream) => stream.read(buffer),
        }
    }
}

/// A connection that reads only when asked to.
struct DelayedReader {
    socket: BlockingSocket,
    scanner: Scanner,
    interrupt: Interrupt,
}

impl DelayedReader {
    fn connect(config: &Config, interrupt: Interrupt) -> Result<DelayedReader, Failure> {
        let address = Address::resolve(&config.address)?;
        let socket = open(&address).map_err(|error| Failure::Server(format!("can't connect to {address}: {error}")))?;
        socket.set_read_timeout(LOOK_INTERVAL)?;
        let mut reader = DelayedReader { socket, scanner: Scanner::default(), interrupt };
        let greeting = Greeting::of(config);
        reader.socket.try_clone()?.write_all(&greeting.bytes)?;
        reader.replies(greeting.replies)?;
        Ok(reader)
    }

    /// Returns this connection's id in CLIENT LIST.
    fn client_id(&mut self) -> Result<String, Failure> {
        self.socket.try_clone()?.write_all(b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.receive(&mut byte)?;
            line.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        text.strip_prefix(':').map(str::to_owned).ok_or(Failure::Server(format!("CLIENT ID was answered with {text}")))
    }

    /// Waits for bytes, until Ctrl-C or the time limit for a silent server.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let began = Instant::now();
        while !self.interrupt.is_pressed() {
            match self.socket.read(buffer) {
                Ok(0) => return Err(generator::RunFailure::Closed.into()),
                Ok(received) => return Ok(received),
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(Failure::Server(error.to_string()));
                }
                Err(_) if began.elapsed() >= SILENCE_MAX => {
                    return Err(Failure::Server(format!("no reply within {SILENCE_MAX:?}")));
                }
                Err(_) => {}
            }
        }
        Err(Failure::Interrupted)
    }

    fn replies(&mut self, count: u64) -> Result<(), Failure> {
        let mut buffer = vec![0; 64 << 10];
        let (mut counted, mut refused) = (0, None);
        while counted < count {
            let received = self.receive(&mut buffer)?;
            let tally = self.scanner.feed(&buffer[..received], &mut |text| {
                refused.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
            });
            counted += tally.map_err(|malformed| Failure::Server(malformed.to_string()))?.replies;
        }
        refused.map_or(Ok(()), |text| Err(Failure::Server(format!("Error from server: {text}"))))
    }
}

/// Connects with a small receive buffer, which must be set before connecting.
fn open(address: &Address) -> std::io::Result<BlockingSocket> {
    let (family, cloexec) = match address {
        Address::Tcp(address) if address.is_ipv4() => (AddressFamily::INET, SocketFlags::CLOEXEC),
        Address::Tcp(_) => (AddressFamily::INET6, SocketFlags::CLOEXEC),
        Address::Unix(_) => (AddressFamily::UNIX, SocketFlags::CLOEXEC),
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, cloexec, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    match address {
        Address::Tcp(to) => {
            rustix::net::connect(&socket, to)?;
            Ok(BlockingSocket::Tcp(socket.into()))
        }
        Address::Unix(path) => {
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(BlockingSocket::Unix(socket.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_waits_for_replies_after_ctrl_c() {
        // The kernel accepts the connection, and no program answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config::tcp("127.0.0.1", silent.local_addr().unwrap().port());
        let mut reader = DelayedReader::connect(&config, Interrupt::pressed()).unwrap();
        assert!(matches!(reader.replies(1), Err(Failure::Interrupted)));
    }
}
