//! Reads from connections and runs their requests.
//!
//! A client that doesn't pipeline sends one command at a time. The accesses to its bucket and its entry are two memory latencies, one after
//! the other. On a busy server many such clients have sent a command by the time of the read. The thread therefore reads from several
//! connections before it runs the first command, and prefetches the keys of all of them, like within a batch.

use super::EventLoop;
use crate::connection::{self, Connection, Read};
use crate::forward::LINKS;
use crate::pending_input::PendingInput;
use crate::poller::Ready;
use engine::clients::progress::Progress;

/// Bytes read from a socket at once, into the thread's own buffer. Together with the tables of a batch the buffer must stay in the
/// second-level cache.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Size of an incomplete request from which the next bytes are read to its end, instead of copying it to the thread's buffer.
const READ_IN_PLACE_BYTES: usize = 16 * 1024;
/// Bytes read at once behind a long request. The next request is often long, too, and its bytes read here must be copied to a buffer of its
/// size.
const READ_BEHIND_LONG_BYTES: usize = 4 * 1024;
/// Bytes after which a connection with long requests yields to the others. Up to this limit the thread keeps reading while there is more: a
/// reply and a look for events each cost as much as some 10 KB.
const LONG_TURN_BYTES: usize = 512 * 1024;
/// Connections read before the first one's commands run. The prefetched data must stay in the caches until then.
pub(super) const GATHERED_MAX: usize = 16;
/// The most bytes of a connection that others may be read behind. A larger pipeline prefetches its own data.
const GATHERED_BYTES_MAX: usize = 512;
/// Size of the thread's buffer in bytes.
pub(super) const BUFFER_BYTES: usize = READ_BYTES + (GATHERED_MAX - 1) * GATHERED_BYTES_MAX;

/// The result of one read.
pub(super) struct Received {
    read: Read,
    /// Number of unrun bytes in the thread's buffer. None if the bytes are in the connection's own input.
    buffered: Option<usize>,
    /// True if the bytes continue a long request.
    of_long: bool,
}

impl EventLoop {
    /// Reads from each ready connection once, and runs the requests.
    pub(super) fn read_and_run(&mut self) {
        let mut next = 0;
        while next < self.ready.len() {
            let last = self.gather(&mut next);
            if self.arrived.len() > 1 {
                self.worker.prefetch_entries(self.arrived.iter().filter_map(|arrived| arrived.prefetched));
            }
            self.run_arrived();
            if let Some((key, received)) = last {
                self.read_on(key, received);
            }
        }
    }

    /// Reads from the ready connections, from `next` on, until one has sent more than a few commands, or has a backlog. The connections
    /// after that one are read once it has run. Returns that connection with its input.
    fn gather(&mut self, next: &mut usize) -> Option<(usize, Received)> {
        let mut end = 0;
        while let Some(&Ready { token, read, write }) = self.ready.get(*next) {
            if token >= LINKS {
                *next += 1;
                continue;
            }
            let key = token as usize;
            // The replies of the earlier connections decide if this one may run.
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
            // A backlog ends a turn after half a block of replies. More requests would only take memory.
            let room = if waits { READ_BYTES.min(self.share().block()) } else { READ_BYTES };
            let Some(received) = self.receive(key, room, end) else { continue };
            let Some(connection) = self.connections.get(key) else { continue };
            let part = received.buffered.map(|bytes| end..end + bytes);
            let is_little = received.buffered.is_some_and(|bytes| bytes <= GATHERED_BYTES_MAX) && !waits;
            let is_alone = self.arrived.is_empty() && *next == self.ready.len();
            let prefetched = part.clone().filter(|_| is_little && !is_alone);
            let prefetched =
                prefetched.and_then(|part| self.worker.prefetch_key(&connection.session, &self.buffer[part]));
            self.arrived.push_back(PendingInput { key, client: connection.session.client.id, part, prefetched });
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

    /// Keeps reading from a connection with long requests, and runs them, while there is more.
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
            self.arrived.push_back(PendingInput { key, client, part, prefetched: None });
            self.run_arrived();
            received = more;
        }
    }

    /// Returns true if a ready connection is to be read.
    fn may_read(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if !connection.wants_read {
            // An event on an unwatched connection means that it is broken.
            self.close(key);
            return false;
        }
        if connection.progress == Progress::Ready {
            self.may_run(key);
        }
        let Some(connection) = self.connections.get_mut(key) else { return false };
        match connection.progress {
            Progress::Closing | Progress::Gone => self.drain(key),
            Progress::AwaitsReader
            | Progress::AwaitsRoom
            | Progress::AwaitsDisk
            | Progress::AwaitsNodes
            | Progress::AwaitsLog => {
                let write = connection.wants_write;
                self.watch(key, false, write);
            }
            // The connection has enough to run. The rest stays in the kernel, including the news of the end.
            Progress::Yielded => self.note_pending(key),
            Progress::Ready | Progress::Reframe | Progress::Parked | Progress::Paused => return true,
        }
        false
    }

    /// Reads at most `room` bytes, or the missing bytes of a long request. Short input that may run at once goes into the thread's buffer
    /// from `start` on. Returns `None` if there is nothing to run, or the connection is gone.
    fn receive(&mut self, key: usize, room: usize, start: usize) -> Option<Received> {
        let connection = self.connections.get_mut(key)?;
        let have = connection.input.len();
        let of_long = connection.is_amid_long();
        let in_buffer = connection.progress == Progress::Ready && have < READ_IN_PLACE_BYTES && !of_long;
        let result = if in_buffer {
            // Into the thread's buffer, behind the incomplete request from the last read.
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
                // The peer has broken the connection: no client is left to answer.
                self.close(key);
                return None;
            }
        };
        connection.note_read(read.bytes, self.worker.clock.now_ms, stats);
        connection.session.batches.note_arrival(self.worker.clock.arrival(), connection.progress == Progress::Ready);
        if connection.is_amid_large() {
            // No request can run before the argument is complete.
            connection.note_input(&self.worker);
            self.limit_input(key);
            return None;
        }
        Some(Received { read, buffered: in_buffer.then_some(have + read.bytes), of_long })
    }

    /// Runs the input of each connection, unless it is held or the connection is gone.
    fn run_arrived(&mut self) {
        while let Some(first) = self.arrived.front() {
            if self.progress_of(first) == Some(Progress::Ready) {
                // Before the entry is taken from the queue: a script that begins here may take too long, and the busy-script handler
                // answers the queued input then.
                self.deliver_messages();
            }
            let Some(arrived) = self.arrived.pop_front() else { return };
            // Read again, since a message may have closed the connection.
            let (key, progress) = (arrived.key, self.progress_of(&arrived));
            match (progress, arrived.part) {
                (None, _) => {}
                (Some(Progress::Ready), part) => self.run_input(key, part),
                (Some(_), part) => {
                    if let (Some(connection), Some(part)) = (self.connections.get_mut(key), part) {
                        connection.keep_input(&self.buffer[part]);
                    }
                    self.check_input_limit(key);
                }
            }
        }
    }

    /// Returns the connection's hold. Returns `None` if the connection is gone: an earlier command may have closed it, and another may have
    /// its key now.
    fn progress_of(&self, arrived: &PendingInput) -> Option<Progress> {
        self.connections
            .get(arrived.key)
            .filter(|connection| arrived.is_of(connection))
            .map(|connection| connection.progress)
    }
}
