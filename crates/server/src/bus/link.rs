//! A link: a connection to or from another node.

use std::io;
use std::time::{Duration, Instant};

use cluster::LinkId;

use super::queue::{Class, SendQueue};
use super::socket::BusSocket;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes read from a link before other links have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Longest time to establish a connection, with its handshake.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// Memory of a link's input that is kept for its next messages.
const INPUT_KEPT_BYTES: usize = 64 << 10;

/// The progress of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The connection is not established.
    Connecting,
    /// The TLS handshake is in progress.
    Handshake,
    /// Messages may go both ways.
    Open,
}

/// A link.
pub struct BusLink {
    /// Its id in the machine.
    pub id: LinkId,
    /// The address of the other end, and of this one.
    pub ips: [String; 2],
    socket: BusSocket,
    stage: Stage,
    queue: SendQueue,
    /// Received bytes without the end of their message.
    input: Vec<u8>,
    made: Instant,
    /// True if the poller watches for space to write.
    pub watches_write: bool,
    /// The bytes of the queue that the machine was told of.
    pub told_bytes: u64,
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// All available bytes.
    All,
    /// The most that one turn reads. The poller may not announce the rest.
    Some,
    /// All bytes. The connection has ended.
    Ended,
}

impl BusLink {
    /// Creates a link for a connection that this node opens.
    pub fn outbound(id: LinkId, socket: BusSocket) -> BusLink {
        BusLink::new(id, socket, Stage::Connecting)
    }

    /// Creates a link for a connection that this node has accepted.
    pub fn inbound(id: LinkId, socket: BusSocket) -> BusLink {
        BusLink::new(id, socket, Stage::Handshake)
    }

    fn new(id: LinkId, socket: BusSocket, stage: Stage) -> BusLink {
        BusLink {
            id,
            ips: socket.ips(),
            socket,
            stage,
            queue: SendQueue::default(),
            input: Vec::new(),
            made: Instant::now(),
            watches_write: stage == Stage::Connecting,
            told_bytes: 0,
        }
    }

    /// The socket.
    pub fn socket(&self) -> &BusSocket {
        &self.socket
    }

    /// Returns true if messages may go both ways.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Returns the link's memory.
    pub fn memory(&self) -> u64 {
        (size_of::<BusLink>() + self.queue.bytes() + self.input.len()) as u64
    }

    /// Returns true if the connection was not established in time.
    pub fn is_late(&self) -> bool {
        !self.is_open() && self.made.elapsed() > OPENING_MAX
    }

    /// Continues to open the link. Returns true if it has just become open.
    ///
    /// # Errors
    /// There is no connection.
    pub fn open(&mut self) -> io::Result<bool> {
        if self.stage == Stage::Connecting {
            self.socket.check_connected()?;
            self.stage = Stage::Handshake;
        }
        if self.stage == Stage::Open || !self.socket.shake_hands()? {
            return Ok(false);
        }
        (self.stage, self.ips) = (Stage::Open, self.socket.ips());
        Ok(true)
    }

    /// Receives bytes, up to a turn's limit.
    pub fn receive(&mut self, room: &mut Vec<u8>) -> Received {
        room.resize(READ_BYTES, 0);
        let before = self.input.len();
        while self.input.len() - before < TURN_BYTES {
            match self.socket.read(room) {
                Ok(Some(0)) | Err(_) => return Received::Ended,
                Ok(None) => return Received::All,
                Ok(Some(bytes)) => self.input.extend_from_slice(&room[..bytes]),
            }
        }
        Received::Some
    }

    /// Takes the received bytes. [`BusLink::put_back`] returns those without the end of their message.
    pub fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    /// Returns the input behind its first `taken` bytes to the link.
    pub fn put_back(&mut self, mut input: Vec<u8>, taken: usize) {
        input.drain(..taken);
        if input.is_empty() {
            input.shrink_to(INPUT_KEPT_BYTES);
        }
        self.input = input;
    }

    /// Adds a message to the queue. Returns false if a published one was dropped.
    pub fn queue(&mut self, class: Class, message: Vec<u8>, published_max: usize) -> bool {
        self.queue.push(class, message, published_max)
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self) -> io::Result<()> {
        while self.is_open() && !self.queue.part().is_empty() {
            match self.socket.write(self.queue.part())? {
                Some(bytes) => self.queue.note_sent(bytes),
                None => break,
            }
        }
        // Records from before may be all that is left.
        if self.is_open() && self.socket.has_records() {
            self.socket.write(&[])?;
        }
        Ok(())
    }

    /// Bytes that have not left.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Returns true if the link must be told when its socket has room.
    pub fn wants_write(&self) -> bool {
        self.stage == Stage::Connecting || self.socket.has_records() || self.is_open() && self.queue.bytes() > 0
    }
}
