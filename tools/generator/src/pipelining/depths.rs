//! How deep a pipeline should be: throughput by depth, and what unread replies cost the server.

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
use crate::generator::{self, Address, Greeting, Load, Scanner, Template};
use crate::interrupt::Interrupt;

/// How long throughput is measured at each depth, beside the round trips that fit in.
const MEASURE: Duration = Duration::from_millis(1000);
/// Round trips that are waited for at least.
const ROUND_TRIPS_MIN: u32 = 4;
/// The receive buffer of the connection that doesn't read, in bytes: small, so that the server has to keep the replies
/// and not our kernel.
const RECEIVE_BUFFER_BYTES: usize = 4096;
/// How long a depth's replies may take to come to rest.
const REST_MAX: Duration = Duration::from_secs(5);
/// How often the server is asked, and how often in a row the answer must be the same.
const ASK_INTERVAL: Duration = Duration::from_millis(20);
const EQUAL_ANSWERS: u32 = 5;
/// How often a wait for replies checks whether it was interrupted.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The key that is read.
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

/// Bytes around a bulk string: `$`, its length, and two line ends.
fn bulk_overhead(value_bytes: u64) -> u64 {
    value_bytes.to_string().len() as u64 + 5
}

fn throughput(target: &Target, depth: u64, interrupt: &Interrupt) -> Result<DepthCell, Failure> {
    let address = Address::resolve(&target.measured.address);
    let load = Load {
        address: address
            .map_err(|error| Failure::Server(format!("can't find {}: {error}", target.measured.address)))?,
        encryption: None,
        greeting: Greeting::of(&target.measured),
        template: Template::new(&["GET", &key()], b"", false),
        // It ends by the clock.
        requests: u64::MAX / 2,
        clients: 1,
        threads: 1,
        depth,
        rate: None,
        keep_alive: true,
        numbers: 0,
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

/// Sends a whole pipeline without reading, asks the server what it keeps, and reads then.
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

/// The bytes of replies that the server keeps for a client, when they have ceased to change.
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

/// Bytes of replies kept and of requests not yet run, of CLIENT LIST's line of a client.
fn kept(target: &mut Target, id: &str) -> Option<(u64, u64)> {
    let reply = target.ask(&["CLIENT", "LIST"]).ok()?;
    let text = String::from_utf8_lossy(reply.bytes()?).into_owned();
    let line = text.lines().find(|line| line.starts_with(&format!("id={id} ")))?;
    let number = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok());
    Some((number("omem=")?, number("qbuf=")?))
}

/// A socket that its thread waits for.
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

    /// Has reading return after so much time without a byte.
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

/// A connection that reads when it is told to, not before.
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

    /// What CLIENT LIST calls this connection.
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

    /// Waits for bytes, until Ctrl-C or for as long as a server may be silent.
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

/// Connects with a small receive buffer, which has to be set before.
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
        // It accepts, by the kernel, and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config::tcp("127.0.0.1", silent.local_addr().unwrap().port());
        let mut reader = DelayedReader::connect(&config, Interrupt::pressed()).unwrap();
        assert!(matches!(reader.replies(1), Err(Failure::Interrupted)));
    }
}
