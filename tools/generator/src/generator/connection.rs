//! A connection of the generator: its unsent requests, and its unanswered requests with their times.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use super::scanner::Scanner;
use super::socket::Socket;
use super::template::Batch;

/// Consecutive requests. They are answered in this order.
#[derive(Clone, Copy, Debug)]
pub enum Flight {
    /// Requests sent together at this time since the start.
    Together { sent: Duration, count: u64 },
    /// Requests due at the schedule's times; `first` is the number of the first one in the schedule.
    Scheduled { first: u64, count: u64 },
}

/// Phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The kernel is connecting.
    Connecting,
    /// The greeting (AUTH, SELECT...) was queued; this many of its replies are pending.
    Greeting(u64),
    /// Requests may be sent.
    Ready,
}

/// A connection with its queues.
pub struct Connection {
    /// Index of the node.
    pub node: usize,
    /// The socket. With `-k 0` it is replaced for every request.
    pub socket: Socket,
    /// Phase of the connection.
    pub phase: Phase,
    /// Counts the replies.
    pub scanner: Scanner,
    /// Unanswered requests, oldest first.
    pub flights: VecDeque<Flight>,
    /// Number of unanswered requests.
    pub unanswered: u64,
    /// True if the poller also watches for writability.
    pub watched_for_writing: bool,
    /// True if the connection has taken any requests.
    pub used: bool,
    /// True if the connection is in the queue for scheduled requests.
    pub in_line: bool,
    /// Numbers of requests that were claimed and aren't rendered yet.
    to_render: VecDeque<Range<u64>>,
    /// Rendered bytes that didn't fit into the socket.
    unsent: Vec<u8>,
    unsent_from: usize,
    /// True if the socket has buffered encrypted bytes.
    keeps: bool,
}

impl Connection {
    /// Returns a connection in phase `Connecting`.
    #[must_use]
    pub fn new(node: usize, socket: Socket) -> Connection {
        Connection {
            node,
            socket,
            phase: Phase::Connecting,
            scanner: Scanner::default(),
            flights: VecDeque::new(),
            unanswered: 0,
            watched_for_writing: true,
            used: false,
            in_line: false,
            to_render: VecDeque::new(),
            unsent: Vec::new(),
            unsent_from: 0,
            keeps: false,
        }
    }

    /// Takes a flight of requests. `first` is the number of the first one in the run. `flush` sends them.
    pub fn take_on(&mut self, flight: Flight, first: u64) {
        let (Flight::Together { count, .. } | Flight::Scheduled { count, .. }) = flight;
        self.used = true;
        self.flights.push_back(flight);
        self.unanswered += count;
        self.to_render.push_back(first..first + count);
    }

    /// Queues bytes that don't belong to the run, for example the greeting.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Sends as many bytes as the socket takes.
    pub fn flush(&mut self, batch: &mut Batch) -> io::Result<()> {
        self.hand_over(batch)?;
        self.keeps = self.socket.send_kept()?;
        Ok(())
    }

    fn hand_over(&mut self, batch: &mut Batch) -> io::Result<()> {
        loop {
            if self.unsent_from < self.unsent.len() {
                let sent = self.socket.send(&self.unsent[self.unsent_from..])?;
                self.unsent_from += sent;
                if self.unsent_from < self.unsent.len() {
                    return Ok(());
                }
                self.unsent.clear();
                self.unsent_from = 0;
            }
            let Some(next) = self.to_render.front_mut() else { return Ok(()) };
            let (first, requests) = (next.start, (next.end - next.start).min(batch.capacity() as u64));
            next.start += requests;
            if next.is_empty() {
                self.to_render.pop_front();
            }
            let bytes = batch.render(first, requests as usize);
            let sent = self.socket.send(bytes)?;
            self.unsent.extend_from_slice(&bytes[sent..]);
        }
    }

    /// Returns true if some bytes can only be sent after the socket becomes writable.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.keeps || !self.to_render.is_empty() || self.unsent_from < self.unsent.len()
    }

    /// Removes up to `count` requests of the oldest flight from the unanswered ones, and returns them.
    pub fn answered(&mut self, count: u64) -> Option<Flight> {
        let oldest = self.flights.front_mut()?;
        let done = match oldest {
            Flight::Together { sent, count: left } => {
                let taken = count.min(*left);
                *left -= taken;
                self.unanswered -= taken;
                (Flight::Together { sent: *sent, count: taken }, *left)
            }
            Flight::Scheduled { first, count: left } => {
                let taken = count.min(*left);
                let flight = Flight::Scheduled { first: *first, count: taken };
                *first += taken;
                *left -= taken;
                self.unanswered -= taken;
                (flight, *left)
            }
        };
        if done.1 == 0 {
            self.flights.pop_front();
        }
        Some(done.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::distribution::{Distribution, Numbers};
    use super::super::template::Template;
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::Read;

    fn pair() -> (Connection, std::os::unix::net::UnixStream) {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        (Connection::new(0, Socket::Plain(a)), b.into())
    }

    #[test]
    fn bytes_beyond_the_socket_buffer_are_sent_later() {
        let (mut connection, mut peer) = pair();
        let template = Template::new(&["ECHO", "__data__"], &[b'x'; 1000], false);
        let mut batch = Batch::new(&template.into(), 10_000, Numbers::new(1, Distribution::Uniform), 1);
        let request = batch.render(0, 1).len();
        connection.take_on(Flight::Together { sent: Duration::ZERO, count: 5000 }, 0);
        connection.flush(&mut batch).unwrap();
        assert!(connection.is_stuck());
        let mut received = 0;
        let mut buffer = vec![0; 1 << 16];
        while received < 5000 * request {
            received += peer.read(&mut buffer).unwrap();
            connection.flush(&mut batch).unwrap();
        }
        assert!(!connection.is_stuck());
        assert_eq!(received, 5000 * request);
    }

    #[test]
    fn replies_answer_the_oldest_first() {
        let (mut connection, _peer) = pair();
        connection.take_on(Flight::Scheduled { first: 10, count: 3 }, 10);
        connection.take_on(Flight::Together { sent: Duration::ZERO, count: 2 }, 13);
        assert!(matches!(connection.answered(2), Some(Flight::Scheduled { first: 10, count: 2 })));
        assert!(matches!(connection.answered(5), Some(Flight::Scheduled { first: 12, count: 1 })));
        assert!(matches!(connection.answered(5), Some(Flight::Together { count: 2, .. })));
        assert!(connection.answered(1).is_none() && connection.unanswered == 0);
    }
}
