//! Reading from connections, and running what they have sent.
//!
//! A client that doesn't pipeline sends one command at a time. Its bucket and its entry are two waits for memory, one
//! after the other. But while a server is busy, many such clients have sent something by the time it looks. So it reads
//! from several before it runs the first one's command, and prefetches the keys of all of them meanwhile, as it does
//! within a batch.

use super::EventLoop;
use crate::arrived::Arrived;
use crate::connection::{self, Connection, Hold, Read};
use crate::doorway::LISTENERS;
use crate::poller::Ready;

/// Bytes that are read from a socket at once, into the thread's own buffer: with the tables of a batch it has to stay
/// in the second-level cache.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Bytes of an incomplete request from which on more is read to its end, instead of copying it in front of the
/// thread's buffer.
const READ_IN_PLACE_BYTES: usize = 16 * 1024;
/// Bytes that are read at once behind a long request: as likely as not the next is long, too, and what has been read of
/// it has to be copied to a buffer of its size.
const READ_BEHIND_LONG_BYTES: usize = 4 * 1024;
/// Bytes from which on a connection that sends long requests has to wait until the others have had their turn. Until
/// then more is read as long as there is more: every reply and every look for events by itself costs as much as some 10
/// KB.
const LONG_TURN_BYTES: usize = 512 * 1024;
/// From how many connections is read before the first one's commands are run: what reading brings into the caches has
/// to stay there until then.
pub(super) const GATHERED_MAX: usize = 16;
/// The most bytes that a connection may have sent for others to be read from before they are run: a pipeline asks for
/// its memory by itself.
const GATHERED_BYTES_MAX: usize = 512;
/// Bytes of the thread's buffer.
pub(super) const BUFFER_BYTES: usize = READ_BYTES + (GATHERED_MAX - 1) * GATHERED_BYTES_MAX;

/// What one read has brought.
pub(super) struct Received {
    read: Read,
    /// How many bytes are to be run in the thread's buffer; else it is with the connection.
    buffered: Option<usize>,
    /// Whether it is part of a long request that had begun before.
    of_long: bool,
}

impl EventLoop {
    /// Reads what has arrived, once from each connection, and runs it.
    pub(super) fn read_and_run(&mut self) {
        let mut next = 0;
        while next < self.ready.len() {
            let last = self.gather(&mut next);
            if self.arrived.len() > 1 {
                self.worker.foresee_entries(self.arrived.iter().filter_map(|arrived| arrived.foreseen));
            }
            self.run_arrived();
            if let Some((key, received)) = last {
                self.read_on(key, received);
            }
        }
    }

    /// Reads from the connections that have sent something, from the `next` on, until one has sent more than a few
    /// commands, or its replies wait: those after it are read from once it has run. Returns it with what was read.
    fn gather(&mut self, next: &mut usize) -> Option<(usize, Received)> {
        let mut end = 0;
        while let Some(&Ready { token, read, write }) = self.ready.get(*next) {
            if token >= LISTENERS {
                *next += 1;
                continue;
            }
            let key = token as usize;
            // Whether it may run depends on how much the replies of those before it take.
            let waits = self.connections.get(key).is_some_and(|connection| connection.backlog.is_some());
            if waits && !self.arrived.is_empty() {
                return None;
            }
            *next += 1;
            if write && let Some(connection) = self.connections.get_mut(key) {
                connection.socket_is_full = false;
                self.queue_write(key);
            }
            if !read || !self.may_read(key) {
                continue;
            }
            // Replies that wait end a turn after half a block: more requests would only wait in memory.
            let room = if waits { READ_BYTES.min(self.share().block()) } else { READ_BYTES };
            let Some(received) = self.receive(key, room, end) else { continue };
            let Some(connection) = self.connections.get(key) else { continue };
            let part = received.buffered.map(|bytes| end..end + bytes);
            let is_little = received.buffered.is_some_and(|bytes| bytes <= GATHERED_BYTES_MAX) && !waits;
            let is_alone = self.arrived.is_empty() && *next == self.ready.len();
            let foreseen = part.clone().filter(|_| is_little && !is_alone);
            let foreseen = foreseen.and_then(|part| self.worker.foresee(&connection.session, &self.buffer[part]));
            self.arrived.push_back(Arrived { key, client: connection.session.client.id, part, foreseen });
            if !is_little {
                return Some((key, received));
            }
            if self.arrived.len() == GATHERED_MAX {
                return None;
            }
            end += received.buffered.unwrap_or(0);
        }
        None
    }

    /// Goes on with a connection whose requests are long: reads, and runs what has come, as long as there is more.
    fn read_on(&mut self, key: usize, mut received: Received) {
        debug_assert!(self.arrived.is_empty(), "the buffer is used from its beginning");
        let mut bytes = received.read.bytes;
        let is_long = |received: &Received, connection: &Connection| {
            received.read.filled_room && (received.of_long || connection.is_amid_long())
        };
        while bytes < LONG_TURN_BYTES
            && self.connections.get(key).is_some_and(|connection| is_long(&received, connection))
            && self.may_read(key)
        {
            let Some(more) = self.receive(key, READ_BEHIND_LONG_BYTES, 0) else { return };
            bytes += more.read.bytes;
            let Some(connection) = self.connections.get(key) else { return };
            let (client, part) = (connection.session.client.id, more.buffered.map(|bytes| 0..bytes));
            self.arrived.push_back(Arrived { key, client, part, foreseen: None });
            self.run_arrived();
            received = more;
        }
    }

    /// Whether a connection that has something to read is to be read from.
    fn may_read(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !connection.wants_read {
            // What is announced all the same is that the connection is broken.
            self.close(key);
            return false;
        }
        if connection.hold == Hold::None {
            self.may_run(key);
        }
        let Some(connection) = self.connections.get_mut(key) else { return false };
        match connection.hold {
            Hold::Closing => self.drain(key),
            Hold::Full | Hold::Overfilled | Hold::Unsettled | Hold::AwaitsLog => {
                let write = connection.wants_write;
                self.watch(key, false, write);
            }
            // It has enough to run. The rest waits in the kernel, and so does the news that it was the last.
            Hold::Yielded => self.note_pending(key),
            Hold::None | Hold::Parked | Hold::Paused => return true,
        }
        false
    }

    /// Reads at most `room` bytes, or as much as a long request still lacks; into the thread's buffer from `start` on,
    /// if it may be run at once and is short. None if there is nothing to run, or the connection is gone.
    fn receive(&mut self, key: usize, room: usize, start: usize) -> Option<Received> {
        let connection = self.connections.get_mut(key)?;
        let have = connection.input.len();
        let of_long = connection.is_amid_long();
        let in_buffer = connection.hold == Hold::None && have < READ_IN_PLACE_BYTES && !of_long;
        let result = if in_buffer {
            // Into the thread's buffer, after the beginning of the request that was left last time.
            let buffer = &mut self.buffer[start..start + READ_BYTES];
            buffer[..have].copy_from_slice(&connection.input);
            let into = &mut buffer[have..(have + room).min(READ_BYTES)];
            let read = connection::read(&mut connection.socket, into);
            read.map(|read| read.map(|bytes| Read { bytes, filled_room: bytes == into.len() }))
        } else {
            connection.read_to_keep(READ_BYTES)
        };
        if connection.socket.begins_to_be_pending() {
            self.pending.push(key);
        }
        let stats = self.worker.stats();
        stats.reads.add(1);
        let read = match result {
            Ok(None) => return None,
            Ok(Some(read)) if read.bytes > 0 => read,
            Ok(Some(_)) => {
                self.input_ended(key);
                return None;
            }
            Err(_) => {
                // The peer has broken the connection: there is no client left to answer.
                self.close(key);
                return None;
            }
        };
        connection.note_read(read.bytes, self.worker.clock.now_ms, stats);
        if connection.is_amid_large() {
            // Nothing can be run until the argument is complete.
            connection.note_input(&self.worker);
            self.limit_input(key);
            return None;
        }
        Some(Received { read, buffered: in_buffer.then_some(have + read.bytes), of_long })
    }

    /// Runs what has been read from each connection, unless it has to wait, or the connection is gone.
    fn run_arrived(&mut self) {
        while let Some(first) = self.arrived.front() {
            if self.hold_of(first) == Some(Hold::None) {
                // Before it is taken from the others: a script that begins now may take too long, and then all of them
                // are answered.
                self.deliver_messages();
            }
            let Some(arrived) = self.arrived.pop_front() else { return };
            // Asked again, since a message may have closed it.
            let (key, hold) = (arrived.key, self.hold_of(&arrived));
            match (hold, arrived.part) {
                (None, _) => {}
                (Some(Hold::None), Some(part)) => self.run_buffer(key, part),
                (Some(Hold::None), None) => self.run_input(key),
                (Some(_), part) => {
                    if let (Some(connection), Some(part)) = (self.connections.get_mut(key), part) {
                        connection.keep_input(&self.buffer[part]);
                    }
                    self.check_input_limit(key);
                }
            }
        }
    }

    /// What keeps a connection from running what it has sent; none if it is gone: what was run since may have had it
    /// closed, and another may have its number now.
    fn hold_of(&self, arrived: &Arrived) -> Option<Hold> {
        self.connections
            .get(arrived.key)
            .filter(|connection| arrived.is_of(connection))
            .map(|connection| connection.hold)
    }
}
