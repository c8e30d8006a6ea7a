//! A proxy before a server: everything is passed on unchanged, encrypted to the server if its URL says so, and to clients if it has a
//! certificate. It can make the way longer, each direction half the round trip
//! later, like a long cable, and unlike a slow one: the bandwidth stays. And it can show what passes to a [`Watcher`].
//!
//! This room knows bytes and sockets, and no protocol.

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

/// The pause after a failure to accept a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes on their way in one direction: more than any pipeline here puts on the way.
const UNDER_WAY_BYTES: usize = 64 << 20;
/// A delay up to this is spun away: to be woken up takes a good part of it.
const SPIN_DELAY: Duration = Duration::from_micros(500);
/// So long after the last byte a spinning proxy still expects the next one at once.
const SPIN_AFTER_LAST: Duration = Duration::from_millis(2);

/// Sees what passes on one connection, where the server is: behind the delay of requests, before that of replies.
pub trait Watcher: Send {
    /// Bytes that the client has sent are about to reach the server.
    fn request(&mut self, bytes: &[u8], now: Instant);
    /// Bytes have come from the server.
    fn reply(&mut self, bytes: &[u8], now: Instant);
    /// The connection is closed.
    fn closed(&mut self, now: Instant);
}

/// Watches nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watcher for Unwatched {
    fn request(&mut self, _: &[u8], _: Instant) {}
    fn reply(&mut self, _: &[u8], _: Instant) {}
    fn closed(&mut self, _: Instant) {}
}

/// How connections are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The thread of a connection sleeps until there is something to pass on.
    Asleep,
    /// It looks again and again while something is expected at once: it takes a core's idle time, and adds less.
    Awake,
}

/// Listens until the process ends.
pub struct Proxy {
    address: SocketAddr,
    /// Of one direction, in nanoseconds.
    delay_ns: Arc<AtomicU64>,
}

impl Proxy {
    /// A proxy on any port of the loopback address before the server at `to`, which delays nothing yet.
    ///
    /// # Errors
    /// The system's, if it has no port or no thread.
    pub fn start(to: Config) -> io::Result<Proxy> {
        Proxy::watched(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), None, to, Wait::Awake, |_| Unwatched)
    }

    /// A proxy on this address before the server at `to`, which speaks TLS with clients if `encrypt` is given. `watch` makes the watcher of a connection, which it is told the peer of.
    ///
    /// # Errors
    /// The system's, if the address is taken or there is no thread.
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
                    // There may be too many open files for a moment.
                    thread::sleep(ACCEPT_AGAIN);
                    continue;
                };
                let delay = Duration::from_nanos(delay.load(Ordering::Relaxed));
                let (to, watch, encrypt) = (Arc::clone(&to), Arc::clone(&watch), encrypt.clone());
                // Without a thread it is closed, as it is where the server can't be reached.
                let _ = pass_on(near, encrypt, to, delay, wait, move || watch(peer));
            }
        })?;
        Ok(Proxy { address, delay_ns })
    }

    /// Delays what later connections carry: each direction by half of `rtt`.
    pub fn set_rtt(&self, rtt: Duration) {
        let ns = u64::try_from((rtt / 2).as_nanos()).unwrap_or(u64::MAX);
        self.delay_ns.store(ns, Ordering::Relaxed);
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp { host: self.address.ip().to_string(), port: self.address.port() }
    }
}

/// A connection; reading and writing never wait.
struct Socket(Box<dyn Stream>);

impl Socket {
    /// A client's connection.
    fn near(stream: TcpStream, encrypt: Option<Acceptance>) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        match encrypt {
            Some(encrypt) => encrypt.begin(stream).map(Socket).map_err(io::Error::other),
            None => Ok(Socket(Box::new(stream))),
        }
    }

    /// A connection to the server, encrypted if its configuration says so.
    fn far(to: &Config) -> io::Result<Socket> {
        client::open_stream(to).map(Socket).map_err(io::Error::other)
    }

    /// None where there is nothing to read; 0 at the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        or_none(self.0.read(buffer))
    }

    /// None where there is no room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        or_none(self.0.write(bytes))
    }

    /// Writes what waits inside, encrypted already.
    fn flush(&mut self) -> io::Result<()> {
        if self.0.wants_write() { or_none(self.0.flush().map(|()| 0)).map(drop) } else { Ok(()) }
    }

    fn shutdown(&self, how: Shutdown) {
        // One that is closed already needs no closing.
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
    thread::Builder::new().name("proxy-pass".to_owned()).spawn(move || {
        // To connect may take long, and others connect meanwhile. A server that can't be reached shows itself to the client as a
        // closed connection.
        let (Ok(near), Ok(far)) = (Socket::near(near, encrypt), Socket::far(&to)) else { return };
        let (sockets, watcher) = ([near, far], watch());
        // Delays of microseconds are asked for, and a sleep is else up to 50 of them longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut cable = Cable::new(sockets, delay, wait, watcher);
        if cable.carry().is_err() {
            cable.sockets.iter().for_each(|socket| socket.shutdown(Shutdown::Both));
        }
        cable.watcher.closed(Instant::now());
    })?;
    Ok(())
}

/// What was read in one direction, and when it is to be written; the end of the stream travels as no bytes.
#[derive(Default)]
struct UnderWay {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Of the first chunk.
    written: usize,
    /// True if the watcher has seen the first chunk.
    shown: bool,
    /// The end has been read; has been passed on.
    ended: bool,
    closed: bool,
    /// The other side has no room.
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

/// The sockets' indexes.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// Both directions of a connection, carried by one thread.
struct Cable<W> {
    /// The client's and the server's.
    sockets: [Socket; 2],
    delay: Duration,
    waiting: Wait,
    watcher: W,
    /// By the socket they come from.
    under_way: [UnderWay; 2],
    buffer: Vec<u8>,
    moved: Instant,
}

impl<W: Watcher> Cable<W> {
    fn new(sockets: [Socket; 2], delay: Duration, waiting: Wait, watcher: W) -> Cable<W> {
        let under_way = [UnderWay::default(), UnderWay::default()];
        Cable { sockets, delay, waiting, watcher, under_way, buffer: vec![0; CHUNK_BYTES], moved: Instant::now() }
    }

    /// Until both directions have ended, or one is broken.
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
        direction.chunks.push_back((now + self.delay, self.buffer[..received].to_vec()));
        Ok(true)
    }

    /// Writes what is due.
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

    /// Waits for a byte or for the time when one is due.
    fn wait(&self) -> io::Result<()> {
        let due = self.under_way.iter().filter_map(UnderWay::due).min();
        if self.waiting == Wait::Awake && self.delay <= SPIN_DELAY && self.moved.elapsed() < SPIN_AFTER_LAST {
            match due {
                // A thread that yields its core now may get it back too late. The client and the server wait meanwhile.
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
        // One of which nothing is wanted would still tell that it is closed, again and again.
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

    /// A server that sends back what it gets.
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

    #[test]
    fn a_server_that_is_not_there_closes_the_connection() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let to = Config::tcp("127.0.0.1", gone);
        let proxy = Proxy::start(to).unwrap();
        assert!(matches!(connect(&proxy).read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
