//! Shared helpers of this crate's tests: both servers, and a proxy that cuts connections.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use client::{Config, Connection, Value};
use tests::server::Server;

/// Longer than any operation that isn't stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `check` against both servers, started with the directives `args`.
pub fn on_both(args: &[&str], check: impl Fn(&Server)) {
    check(&Server::penstock(args));
    check(&Server::oracle(args));
}

/// Like `on_both`, for tests of scripts, which Penstock may lack.
pub fn on_those_with_scripts(check: impl Fn(&Server)) {
    check(&Server::oracle(&[]));
    let penstock = Server::penstock(&[]);
    if connect(&penstock).command(&["SCRIPT", "EXISTS", "none"]).is_ok() {
        check(&penstock);
    }
}

pub fn config(server: &Server) -> Config {
    Config::tcp("127.0.0.1", server.port())
}

pub fn connect(server: &Server) -> Connection {
    Connection::connect(&config(server)).unwrap()
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

pub fn ok() -> Value {
    Value::Simple(b"OK".into())
}

/// Number of bytes that a connection carries in each direction before it is cut.
#[derive(Clone, Copy, Debug)]
pub struct Fuse {
    pub there: u64,
    pub back: u64,
}

pub const NO_FUSE: Fuse = Fuse { there: u64::MAX, back: u64::MAX };

/// A proxy in front of a server. It cuts each connection according to `fuse`, called with the connection's number (from
/// 0).
pub struct Proxy {
    port: u16,
    connections: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(target: u16, fuse: impl Fn(u64) -> Fuse + Send + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, closed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let proxy = Proxy { port, connections: connections.clone(), closed: closed.clone() };
        thread::spawn(move || {
            for client in listener.incoming() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                let fuse = fuse(connections.fetch_add(1, Ordering::SeqCst));
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                relay(client.unwrap(), server, fuse);
            }
        });
        proxy
    }

    pub fn config(&self) -> Config {
        Config::tcp("127.0.0.1", self.port)
    }

    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Relays bytes between a client and a server until `fuse` cuts both connections.
pub fn relay(client: TcpStream, server: TcpStream, fuse: Fuse) {
    let pump = |mut from: TcpStream, mut to: TcpStream, mut left: u64| {
        thread::spawn(move || {
            let mut chunk = [0; 1 << 14];
            while left > 0 {
                let n = match from.read(&mut chunk) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => n.min(usize::try_from(left).unwrap_or(n)),
                };
                if to.write_all(&chunk[..n]).is_err() {
                    break;
                }
                left -= n as u64;
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    pump(client.try_clone().unwrap(), server.try_clone().unwrap(), fuse.there);
    pump(server, client, fuse.back);
}
