//! One connection of the generator: what is still to be sent, what is still to be answered, and since when.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

use super::scanner::Scanner;
use super::socket::Socket;
use super::template::Batch;

/// Requests that were due one after another and are answered in this order.
#[derive(Clone, Copy, Debug)]
pub enum Flight {
    /// Sent together at this time since the start.
    Together { sent: Duration, count: u64 },
    /// Due at the schedule's times, the first being this number of it.
    Scheduled { first: u64, count: u64 },
}

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The kernel is still connecting.
    Connecting,
    /// The greeting (AUTH, SELECT...) is on its way; this many of its replies are to come.
    Greeting(u64),
    /// Requests may be sent.
    Ready,
}

/// A connection and its queues.
pub struct Connection {
    /// The socket; replaced where every request has a connection of its own.
    pub socket: Socket,
    /// Where it stands.
    pub phase: Phase,
    /// Counts its replies.
    pub scanner: Scanner,
    /// Requests without a reply, oldest first.
    pub flights: VecDeque<Flight>,
    /// How many they are.
    pub unanswered: u64,
    /// The poller watches it for writing, too.
    pub watched_for_writing: bool,
    /// It has taken on requests.
    pub used: bool,
    /// It stands in the line of those that may take on a request that is due.
    pub in_line: bool,
    /// The numbers of requests that have been claimed and are not rendered yet.
    to_render: VecDeque<Range<u64>>,
    /// Rendered bytes that the socket had no room for.
    unsent: Vec<u8>,
    unsent_from: usize,
    /// The socket has taken bytes that it could not send yet.
    keeps: bool,
}

impl Connection {
    /// A connection that the kernel has begun to connect.
    #[must_use]
    pub fn new(socket: Socket) -> Connection {
        Connection {
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

    /// Takes on a flight of requests, of which `first` is the first one's number in the run; `flush` sends them.
    pub fn take_on(&mut self, flight: Flight, first: u64) {
        let (Flight::Together { count, .. } | Flight::Scheduled { count, .. }) = flight;
        self.used = true;
        self.flights.push_back(flight);
        self.unanswered += count;
        self.to_render.push_back(first..first + count);
    }

    /// Queues bytes that are no request of the run, such as the greeting.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Sends as much as the socket takes.
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

    /// Whether the socket has to become writable before everything is sent.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.keeps || !self.to_render.is_empty() || self.unsent_from < self.unsent.len()
    }

    /// Takes `count` of the oldest flight's requests, or what there is of it, out of the unanswered ones.
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
    use super::super::template::Template;
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::Read;

    fn pair() -> (Connection, std::os::unix::net::UnixStream) {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        (Connection::new(Socket::Plain(a)), b.into())
    }

    #[test]
    fn what_the_socket_has_no_room_for_is_sent_later() {
        let (mut connection, mut peer) = pair();
        let template = Template::new(&["ECHO", "__data__"], &[b'x'; 1000], false);
        let mut batch = Batch::new(&template, 10_000, 1, 1);
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
