//! A proxy that makes the way to a server longer: everything is passed on unchanged, each direction half the round trip
//! later. Like a long cable, and unlike a slow one: the bandwidth stays.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use client::Address;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks on their way in one direction: with full chunks 64 MiB, more than any pipeline here puts on the way.
const CHUNKS_MAX: usize = 1024;

/// Listens on a port of the loopback address until the process ends.
pub struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    /// A proxy before the server at `to`, which adds `rtt` to every round trip.
    pub fn start(to: Address, rtt: Duration) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            for near in listener.incoming().flatten() {
                // A server that can't be reached shows itself to the client as a closed connection.
                let _ = pass_on(near, &to, rtt / 2);
            }
        })?;
        Ok(Proxy { address })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp { host: self.address.ip().to_string(), port: self.address.port() }
    }
}

/// Either kind of connection.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(to: &Address) -> io::Result<Socket> {
        match to {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        }
    }

    fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.write_all(bytes),
            Socket::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        // One that is closed already needs no closing.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Unix(stream) => stream.shutdown(how),
        };
    }
}

/// What was read, and when it is to be written.
type Chunk = (Instant, Vec<u8>);

fn pass_on(near: TcpStream, to: &Address, delay: Duration) -> io::Result<()> {
    near.set_nodelay(true)?;
    let (near, far) = (Socket::Tcp(near), Socket::connect(to)?);
    one_way(near.try_clone()?, far.try_clone()?, delay)?;
    one_way(far, near, delay)
}

/// Two threads: one never stops reading, so that the times of arrival are right; the other writes when it is time.
fn one_way(from: Socket, to: Socket, delay: Duration) -> io::Result<()> {
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    thread::Builder::new().name("proxy-in".to_owned()).spawn(move || take_in(from, &sender, delay))?;
    thread::Builder::new().name("proxy-out".to_owned()).spawn(move || give_out(to, &receiver))?;
    Ok(())
}

fn take_in(mut from: Socket, sender: &SyncSender<Chunk>, delay: Duration) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(received @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + delay, buffer[..received].to_vec())).is_err() {
            from.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn give_out(mut to: Socket, receiver: &Receiver<Chunk>) {
    // Delays of microseconds are asked for, and a sleep is else up to 50 of them longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    while let Ok((due, bytes)) = receiver.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The end of the stream travels as late as its bytes.
    to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    fn echo() -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut copy = stream.try_clone().unwrap();
                thread::spawn(move || {
                    let _ = io::copy(&mut stream, &mut copy);
                    let _ = copy.shutdown(Shutdown::Write);
                });
            }
        });
        Address::Tcp { host: "127.0.0.1".to_owned(), port }
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(proxy.address.to_string()).unwrap()
    }

    #[test]
    fn bytes_come_back_unchanged_and_not_before_their_time() {
        let proxy = Proxy::start(echo(), Duration::from_millis(40)).unwrap();
        let mut stream = connect(&proxy);
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        let began = Instant::now();
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writing = thread::spawn(move || {
            writer.write_all(&copy).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
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
        let to = Address::Tcp { host: "127.0.0.1".to_owned(), port: gone };
        let proxy = Proxy::start(to, Duration::ZERO).unwrap();
        assert!(matches!(connect(&proxy).read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
