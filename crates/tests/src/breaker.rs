//! A proxy that breaks each connection after a random number of bytes in either direction.

use crate::rng::Rng;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A running proxy; it runs until the process ends.
pub struct Breaker {
    port: u16,
    broken: Arc<AtomicU64>,
}

impl Breaker {
    /// Starts a proxy in front of the server at `port`. Each connection breaks after at most `bytes_max` bytes to the
    /// server, or a quarter as many back.
    pub fn start(port: u16, bytes_max: usize, seed: u64) -> Breaker {
        let mut rng = Rng::new(seed);
        Breaker::start_with(port, move || [bytes_max, bytes_max / 4].map(|most| 1 + rng.below(most)))
    }

    /// Starts a proxy with explicit budgets: `budgets` returns, for each connection, the bytes to the server and back
    /// after which it breaks.
    pub fn start_with(port: u16, mut budgets: impl FnMut() -> [usize; 2] + Send + 'static) -> Breaker {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let own_port = listener.local_addr().unwrap().port();
        let broken = Arc::new(AtomicU64::new(0));
        let count = broken.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let [there, back] = budgets();
                for (from, to, budget) in [(&client, &server, there), (&server, &client, back)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let count = count.clone();
                    thread::spawn(move || {
                        if pass(from, to, budget) {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            }
        });
        Breaker { port: own_port, broken }
    }

    /// The proxy's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Number of broken connections.
    pub fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }
}

/// Forwards bytes until one side ends or the budget is used up, then ends both directions. Returns true if the budget
/// was used up.
fn pass(mut from: TcpStream, mut to: TcpStream, mut budget: usize) -> bool {
    let mut buffer = [0; 4096];
    while budget > 0 {
        let room = buffer.len().min(budget);
        match from.read(&mut buffer[..room]) {
            Ok(count @ 1..) if to.write_all(&buffer[..count]).is_ok() => budget -= count,
            _ => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    budget == 0
}
