//! A proxy before a server. It passes all bytes on unchanged. The connection to the server is encrypted if the server's
//! URL asks for TLS, and connections to clients are encrypted if the proxy has a certificate.
//!
//! The proxy can delay each direction by half of a round trip. The delay models a long cable: it doesn't reduce the
//! bandwidth. The kernel accepts connections without a delay, so the first bytes of a client arrive a round trip later
//! instead. A [`Watcher`] sees the traffic.
//!
//! This crate handles bytes and sockets, and knows no protocol.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Acceptance, Address, Config, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

/// Pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);
/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum number of bytes in flight in one direction. Benchmark pipelines stay below this limit.
const UNDER_WAY_BYTES: usize = 64 << 20;
/// Delays up to this limit are spent spinning, because a wakeup takes a large part of this time.
const SPIN_DELAY: Duration = Duration::from_micros(500);
/// A spinning proxy stops spinning this long after the last byte.
const SPIN_AFTER_LAST: Duration = Duration::from_millis(2);

/// Sees the traffic of one connection at the server's end: requests after their delay, replies before it.
pub trait Watcher: Send {
    /// Called before bytes of the client are written to the server.
    fn request(&mut self, bytes: &[u8], now: Instant);
    /// Called after bytes of the server were read.
    fn reply(&mut self, bytes: &[u8], now: Instant);
    /// Called when the round trip between the proxy and the client was measured, without work of the client. It includes
    /// the proxy's delay.
    fn network(&mut self, round_trip: Duration);
    /// Called when the connection is closed.
    fn closed(&mut self, now: Instant);
}

/// A watcher that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watcher for Unwatched {
    fn request(&mut self, _: &[u8], _: Instant) {}
    fn reply(&mut self, _: &[u8], _: Instant) {}
    fn network(&mut self, _: Duration) {}
    fn closed(&mut self, _: Instant) {}
}

/// Method of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The connection's thread sleeps until bytes arrive.
    Asleep,
    /// The connection's thread spins while it expects bytes soon. Spinning uses a core's idle time and adds less
    /// latency.
    Awake,
}

/// A proxy. It listens until the process ends.
pub struct Proxy {
    address: SocketAddr,
    /// Delay of one direction, in nanoseconds.
    delay_ns: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy without delay before the server at `to`, on any free port of the loopback address.
    ///
    /// # Errors
    /// Returns the system's error if no port or no thread is available.
    pub fn start(to: Config) -> io::Result<Proxy> {
        Proxy::watched(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), None, to, Wait::Awake, |_| Unwatched)
    }

    /// Starts a proxy on the address `on` before the server at `to`. Clients connect with TLS if `encrypt` is given.
    /// `watch` creates the watcher of each connection, and gets the client's address.
    ///
    /// # Errors
    /// Returns the system's error if the address is in use or no thread is available.
    pub fn watched<W: Watcher + 'static>(
        on: SocketAddr,
        encrypt: Option<Acceptance>,
        to: Config,
        wait: Wait,
        watch: impl Fn(SocketAddr) -> W + Send + Sync + 'static,
    ) -> io::Result<Proxy> {
        let listener = TcpListener::bind(on)?;
        let address = listener.local_addr()?;
        let delay_ns = Arc::new(AtomicU64::new(0));
        let delay = Arc::clone(&delay_ns);
        let (to, watch) = (Arc::new(to), Arc::new(watch));
        thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            loop {
                let Ok((near, peer)) = listener.accept() else {
                    // A typical reason is the limit of open files, which may last only for a moment.
                    thread::sleep(ACCEPT_AGAIN);
                    continue;
                };
                let delay = Duration::from_nanos(delay.load(Ordering::Relaxed));
                let (to, watch, encrypt) = (Arc::clone(&to), Arc::clone(&watch), encrypt.clone());
                // On failure both sockets are dropped, which closes the client's connection.
                let _ = pass_on(near, encrypt, to, delay, wait, move || watch(peer));
            }
        })?;
        Ok(Proxy { address, delay_ns })
    }

    /// Sets the round trip time of later connections. Each direction is delayed by half of `rtt`.
    pub fn set_rtt(&self, rtt: Duration) {
        let ns = u64::try_from((rtt / 2).as_nanos()).unwrap_or(u64::MAX);
        self.delay_ns.store(ns, Ordering::Relaxed);
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp { host: self.address.ip().to_string(), port: self.address.port() }
    }
}

/// A nonblocking connection.
struct Socket(Box<dyn Stream>);

impl Socket {
    /// Wraps a client's connection.
    fn near(stream: TcpStream, encrypt: Option<Acceptance>) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        match encrypt {
            Some(encrypt) => encrypt.begin(stream).map(Socket).map_err(io::Error::other),
            None => Ok(Socket(Box::new(stream))),
        }
    }

    /// Opens a connection to the server, encrypted if its configuration says so.
    fn far(to: &Config) -> io::Result<Socket> {
        client::open_stream(to).map(Socket).map_err(io::Error::other)
    }

    /// Returns `None` if there is nothing to read, and 0 at the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        or_none(self.0.read(buffer))
    }

    /// Returns `None` if the socket buffer is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        or_none(self.0.write(bytes))
    }

    /// Writes data that is already encrypted and buffered.
    fn flush(&mut self) -> io::Result<()> {
        if self.0.wants_write() { or_none(self.0.flush().map(|()| 0)).map(drop) } else { Ok(()) }
    }

    fn shutdown(&self, how: Shutdown) {
        // The socket may be closed already, which is no failure.
        let _ = rustix::net::shutdown(self.0.fd(), how);
    }
}

fn or_none(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

fn pass_on<W: Watcher + 'static>(
    near: TcpStream,
    encrypt: Option<Acceptance>,
    to: Arc<Config>,
    delay: Duration,
    wait: Wait,
    watch: impl FnOnce() -> W + Send + 'static,
) -> io::Result<()> {
    let accepted = Instant::now();
    thread::Builder::new().name("proxy-pass".to_owned()).spawn(move || {
        // Each connection has its own thread, because connecting may take long. If the server is unreachable, the
        // client's connection is closed.
        let (Ok(near), Ok(far)) = (Socket::near(near, encrypt), Socket::far(&to)) else { return };
        let (sockets, watcher) = ([near, far], watch());
        // The default timer slack makes a sleep up to 50 µs longer; requested delays are microseconds, too.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut cable = Cable::new(sockets, accepted, delay, wait, watcher);
        if cable.carry().is_err() {
            cable.sockets.iter().for_each(|socket| socket.shutdown(Shutdown::Both));
        }
        cable.watcher.closed(Instant::now());
    })?;
    Ok(())
}

/// Data in flight in one direction, with the time when each chunk is due. An empty chunk marks the end of the stream.
#[derive(Default)]
struct UnderWay {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Bytes written of the first chunk.
    written: usize,
    /// True if the watcher has seen the first chunk.
    shown: bool,
    /// `ended`: the end was read. `closed`: the end was passed on.
    ended: bool,
    closed: bool,
    /// True if the other side's socket buffer is full.
    stuck: bool,
}

impl UnderWay {
    fn reads(&self) -> bool {
        !self.ended && self.bytes < UNDER_WAY_BYTES
    }

    fn due(&self) -> Option<Instant> {
        self.chunks.front().filter(|_| !self.stuck).map(|(due, _)| *due)
    }
}

/// Indexes of the sockets.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Both directions of a connection, served by one thread.
struct Cable<W> {
    /// The client's socket and the server's.
    sockets: [Socket; 2],
    delay: Duration,
    waiting: Wait,
    watcher: W,
    /// Earliest arrival of the client's bytes: after the three packets of connecting.
    connected: Instant,
    /// Data in flight, indexed by its source socket.
    under_way: [UnderWay; 2],
    buffer: Vec<u8>,
    moved: Instant,
    /// Number of chunks from the client so far, up to the next measurement of the network, and the number of chunks at
    /// which it is due.
    taken_in: u32,
    measured_at: u32,
}

/// Largest number of the client's chunks between two measurements of the network. The first ones follow each other after
/// 1, 2, 4, ...
const MEASURED_EVERY: u32 = 1024;

impl<W: Watcher> Cable<W> {
    fn new(sockets: [Socket; 2], accepted: Instant, delay: Duration, waiting: Wait, watcher: W) -> Cable<W> {
        let under_way = [UnderWay::default(), UnderWay::default()];
        let (buffer, moved) = (vec![0; CHUNK_BYTES], Instant::now());
        let connected = accepted + delay * 3;
        Cable { sockets, delay, waiting, watcher, connected, under_way, buffer, moved, taken_in: 0, measured_at: 1 }
    }

    /// Runs until both directions have ended or one is broken.
    fn carry(&mut self) -> io::Result<()> {
        while !self.under_way.iter().all(|direction| direction.closed) {
            let mut moved = false;
            for from in [CLIENT, SERVER] {
                moved |= self.take_in(from)?;
                moved |= self.give_out(from)?;
                self.sockets[from].flush()?;
            }
            if moved {
                self.moved = Instant::now();
            } else {
                self.wait()?;
            }
        }
        Ok(())
    }

    fn take_in(&mut self, from: usize) -> io::Result<bool> {
        let direction = &mut self.under_way[from];
        if !direction.reads() {
            return Ok(false);
        }
        let Some(received) = self.sockets[from].read(&mut self.buffer)? else { return Ok(false) };
        direction.ended = received == 0;
        direction.bytes += received;
        let now = Instant::now();
        if from == SERVER && received > 0 {
            self.watcher.reply(&self.buffer[..received], now);
        }
        let due = if from == CLIENT { self.connected.max(now + self.delay) } else { now + self.delay };
        direction.chunks.push_back((due, self.buffer[..received].to_vec()));
        if from == CLIENT && received > 0 {
            self.measure();
        }
        Ok(true)
    }

    /// Measures the network at times.
    fn measure(&mut self) {
        self.taken_in += 1;
        if self.taken_in < self.measured_at {
            return;
        }
        (self.taken_in, self.measured_at) = (0, (self.measured_at * 2).min(MEASURED_EVERY));
        if let Some(us) = tcp_info::min_round_trip_us(self.sockets[CLIENT].0.fd()) {
            self.watcher.network(self.delay * 2 + Duration::from_micros(us.into()));
        }
    }

    /// Writes the chunks that are due.
    fn give_out(&mut self, from: usize) -> io::Result<bool> {
        let (direction, to) = (&mut self.under_way[from], &mut self.sockets[1 - from]);
        direction.stuck = false;
        let mut wrote = false;
        while let Some((due, bytes)) = direction.chunks.front() {
            if *due > Instant::now() {
                break;
            }
            if bytes.is_empty() {
                to.flush()?;
                to.shutdown(Shutdown::Write);
                direction.closed = true;
            } else {
                if from == CLIENT && !std::mem::replace(&mut direction.shown, true) {
                    self.watcher.request(bytes, Instant::now());
                }
                let Some(written) = to.write(&bytes[direction.written..])? else {
                    direction.stuck = true;
                    break;
                };
                direction.written += written;
                direction.bytes -= written;
                wrote = true;
                if direction.written < bytes.len() {
                    continue;
                }
            }
            (direction.written, direction.shown) = (0, false);
            direction.chunks.pop_front();
        }
        Ok(wrote)
    }

    /// Waits for input, for room in a socket buffer, or for the next due chunk.
    fn wait(&self) -> io::Result<()> {
        let due = self.under_way.iter().filter_map(UnderWay::due).min();
        if self.waiting == Wait::Awake && self.delay <= SPIN_DELAY && self.moved.elapsed() < SPIN_AFTER_LAST {
            match due {
                // A yielded core may come back too late, while client and server wait.
                Some(_) => std::hint::spin_loop(),
                None => thread::yield_now(),
            }
            return Ok(());
        }
        let timeout = due.and_then(|due| Timespec::try_from(due.saturating_duration_since(Instant::now())).ok());
        let interest = |socket: usize| {
            let reads = if self.under_way[socket].reads() { PollFlags::IN } else { PollFlags::empty() };
            let is_full = self.under_way[1 - socket].stuck || self.sockets[socket].0.wants_write();
            let writes = if is_full { PollFlags::OUT } else { PollFlags::empty() };
            reads | writes
        };
        // A closed socket without requested events would still report its hang-up in every poll.
        let mut fds: Vec<PollFd<'_>> = (0..2)
            .filter(|socket| !interest(*socket).is_empty())
            .map(|socket| PollFd::from_borrowed_fd(self.sockets[socket].0.fd(), interest(socket)))
            .collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Starts a server that echoes its input.
    ///
    fn echo() -> Config {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut copy = stream.try_clone().unwrap();
                thread::spawn(move || {
                    let _ = io::copy(&mut stream, &mut copy);
                    let _ = copy.shutdown(std::net::Shutdown::Write);
                });
            }
        });
        Config::tcp("127.0.0.1", port)
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(proxy.address.to_string()).unwrap()
    }

    #[test]
    fn bytes_come_back_unchanged_and_not_before_their_time() {
        let proxy = Proxy::start(echo()).unwrap();
        proxy.set_rtt(Duration::from_millis(40));
        let mut stream = connect(&proxy);
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        let began = Instant::now();
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&copy).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        writing.join().unwrap();
        assert!(received == sent);
        assert!(began.elapsed() >= Duration::from_millis(40));
    }

    /// Connecting takes a round trip, and the first exchange another one.
    #[test]
    fn the_first_bytes_wait_for_the_connection() {
        let proxy = Proxy::start(echo()).unwrap();
        proxy.set_rtt(Duration::from_millis(40));
        let began = Instant::now();
        let mut stream = connect(&proxy);
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(80));
    }

    #[test]
    fn a_server_that_is_not_there_closes_the_connection() {
        // No program listens on the first port, and no outgoing connection gets it.
        let proxy = Proxy::start(Config::tcp("127.0.0.1", 1)).unwrap();
        assert!(matches!(connect(&proxy).read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
