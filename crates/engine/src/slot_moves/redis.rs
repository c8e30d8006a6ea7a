//! A source that is Redis 8.4 or later, for an import.
//!
//! Redis's target connects to the source and asks for the slots. One connection, the main channel, carries the changes, and another one the
//! snapshot before them. The source holds writes once the target has applied nearly all changes. It grants nothing: the target claims the
//! slots after the last change.
//!
//! [`RedisSource`] speaks this protocol with the source, and gives an import the same keys and changes in Valkey's dialect. Changes that come during
//! the snapshot wait in memory, and on disk beyond some megabytes. The import's messages become acknowledgments for the source.

mod handshake;
mod hold;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::view::NodeView;
use config::LogLevel;
use replication::backlog::{Backlog, Overflow};
use resp::parse::encode_request;

use self::handshake::Handshake;
use self::hold::{Acks, Directives};
use self::stream::{Changes, Snapshot};
use super::{MoveClock, SourceLink};
use crate::replay::{TargetMessage, TargetMessages};
use crate::slots::jobs::SlotJob;
use crate::state::Engine;

/// Interval of acknowledgments while changes are applied: Redis's figure.
const ACK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of changes that memory holds. Some megabytes keep the connection busy.
const MEMORY_MAX: u64 = 8 << 20;
/// Reads of the main channel in a row.
const READS_AT_ONCE: usize = 16;
/// Bytes of changes that are given to the import at once.
const GIVEN_AT_ONCE: usize = 256 << 10;
/// The import's first message: it accepts the request of a source that has connected itself.
const ACCEPTED: &[u8] = b"+OK\r\n";

const NO_TIME: &str =
    "The source may not hold writes any more. Check cluster-slot-migration-write-pause-timeout at the source.";

/// A connection to the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// The one of the changes.
    Main,
    /// The one of the snapshot.
    Snapshot,
}

/// The surroundings of a [`RedisSource`]: the connections to the source, the disk, and the clocks. No call waits.
pub trait RedisLink: MoveClock {
    /// Begins to connect to a node.
    ///
    /// # Errors
    /// The address or the configuration is unusable.
    fn open(&mut self, channel: Channel, node: &NodeView) -> Result<(), String>;

    /// Continues to connect. Returns true once the connection stands.
    ///
    /// # Errors
    /// There is no connection.
    fn connect(&mut self, channel: Channel) -> io::Result<bool>;

    /// Appends the available bytes. Returns false if there are none.
    ///
    /// # Errors
    /// The connection is broken or closed.
    fn read(&mut self, channel: Channel, into: &mut Vec<u8>) -> io::Result<bool>;

    /// Writes as many bytes as the connection takes, and returns their number.
    ///
    /// # Errors
    /// The connection is broken.
    fn write(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<usize>;

    /// Closes a connection.
    fn close(&mut self, channel: Channel);

    /// Creates a file for changes that have not been applied. One import from Redis at a time uses it.
    ///
    /// # Errors
    /// The file can't be created.
    fn make_overflow(&self) -> io::Result<Box<dyn Overflow>>;
}

/// The node that has the slots, and this one.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// The source.
    pub source: NodeView,
    /// The name of this node.
    pub me: String,
}

/// See the module's documentation.
pub struct RedisSource<L> {
    engine: &'static Engine,
    job: Arc<SlotJob>,
    nodes: Nodes,
    link: L,
    handshake: Handshake,
    directives: Directives,
    /// Bytes of a request on each channel that have not been sent.
    requests: [Vec<u8>; 2],
    /// Bytes of replies on each channel that have not been used; behind the replies, bytes of the snapshot.
    replies: [Vec<u8>; 2],
    snapshot: Snapshot,
    /// True once all of the snapshot has been given.
    has_snapshot: bool,
    /// Bytes of the main channel that have not been given.
    backlog: Backlog,
    /// The offset of the first byte of the backlog that is not in `input`.
    taken: u64,
    scratch: Vec<u8>,
    /// The beginning of the changes that have not been given.
    input: Vec<u8>,
    changes: Changes,
    /// The end of the main channel before the source held writes.
    lost: Option<String>,
    /// Messages of the source in Valkey's dialect that have not been given.
    messages: Vec<u8>,
    /// All bytes that the import has been given.
    given: u64,
    /// The value of `given` at the first change.
    base: u64,
    /// Bytes of changes that the import has been given.
    known: u64,
    /// Bytes of changes that are applied.
    applied: u64,
    /// True once the snapshot is applied.
    applies_changes: bool,
    /// True once all changes that came meanwhile are applied, too.
    keeps_up: bool,
    /// True once the source holds writes, and all changes have been given.
    has_all: bool,
    acks: Acks,
    acked: Option<Duration>,
    /// The import's messages.
    from_import: Vec<u8>,
    import_messages: TargetMessages,
    /// Memory that the figures of INFO include.
    noted: u64,
    has_failed: bool,
}

impl<L: RedisLink> RedisSource<L> {
    /// Begins with the handshake. The job must report its progress.
    #[must_use]
    pub fn begin(engine: &'static Engine, job: Arc<SlotJob>, nodes: Nodes, link: L) -> RedisSource<L> {
        let bulk_bytes_max = engine.settings.proto_max_bulk_len.get();
        RedisSource {
            engine,
            job,
            nodes,
            link,
            handshake: Handshake::default(),
            directives: Directives::default(),
            requests: [Vec::new(), Vec::new()],
            replies: [Vec::new(), Vec::new()],
            snapshot: Snapshot::new(bulk_bytes_max),
            has_snapshot: false,
            backlog: Backlog::begin(0),
            taken: 0,
            scratch: Vec::new(),
            input: Vec::new(),
            changes: Changes::new(bulk_bytes_max),
            lost: None,
            messages: Vec::new(),
            given: 0,
            base: 0,
            known: 0,
            applied: 0,
            applies_changes: false,
            keeps_up: false,
            has_all: false,
            acks: Acks::default(),
            acked: None,
            from_import: Vec::new(),
            import_messages: TargetMessages::default(),
            noted: 0,
            has_failed: false,
        }
    }

    /// Returns the connections.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// Takes the bytes that wait on the main channel, and acknowledges changes if that is due. Call it often, also while the import does
    /// not read: a source fails the move if too many changes wait. Returns true if bytes have come.
    pub fn pump(&mut self) -> bool {
        if self.has_failed || !self.handshake.is_over() || self.has_all {
            return false;
        }
        let has_read = self.take_changes().unwrap_or_else(|why| {
            self.fail(why);
            false
        });
        self.acknowledge();
        self.note_memory();
        has_read
    }

    /// Reads the main channel into the backlog.
    fn take_changes(&mut self) -> Result<bool, String> {
        let mut has_read = false;
        for _ in 0..READS_AT_ONCE {
            if self.lost.is_some() {
                break;
            }
            self.scratch.clear();
            match self.link.read(Channel::Main, &mut self.scratch) {
                Ok(false) => break,
                Ok(true) => has_read = true,
                // The changes may be complete.
                Err(why) => self.lost = Some(format!("Main channel - {why}")),
            }
            self.backlog.append(&self.scratch);
        }
        let link = &self.link;
        self.backlog
            .spill(MEMORY_MAX, || link.make_overflow())
            .map_err(|why| format!("Failed to store changes: {why}"))?;
        Ok(has_read)
    }

    /// Gives the import bytes of the snapshot, then changes. Returns true if the source has shown life.
    fn give(&mut self, into: &mut Vec<u8>) -> Result<bool, String> {
        if !self.handshake.is_over() {
            return self.shake_hands();
        }
        let mut is_alive = self.pump();
        let before = into.len();
        into.append(&mut self.messages);
        match () {
            () if self.has_all => {}
            () if self.has_snapshot => {
                if self.known == 0 {
                    // All bytes before the first change.
                    self.base = self.given + (into.len() - before) as u64;
                }
                self.give_changes(into)?;
            }
            () => is_alive |= self.give_snapshot(into)?,
        }
        self.given += (into.len() - before) as u64;
        Ok(is_alive || into.len() > before)
    }

    fn give_snapshot(&mut self, into: &mut Vec<u8>) -> Result<bool, String> {
        let input = &mut self.replies[Channel::Snapshot as usize];
        let is_alive = self.link.read(Channel::Snapshot, input);
        if self.snapshot.take(input, into)? {
            self.has_snapshot = true;
            into.extend_from_slice(&message("SNAPSHOT-EOF"));
            self.link.close(Channel::Snapshot);
            self.replies = [Vec::new(), Vec::new()];
            if self.snapshot.has_functions {
                self.log("The functions of the source are not copied: load them here, too");
            }
            return Ok(true);
        }
        is_alive.map_err(|why| format!("RDB channel - {why}"))
    }

    fn give_changes(&mut self, into: &mut Vec<u8>) -> Result<(), String> {
        let before = into.len();
        while into.len() - before < GIVEN_AT_ONCE && !self.has_all {
            let piece = self.backlog.piece(self.taken, &mut self.scratch);
            let piece = piece.map_err(|why| format!("Failed to read stored changes: {why}"))?.unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            self.taken += piece.len() as u64;
            self.input.extend_from_slice(piece);
            self.backlog.trim(0, self.taken);
            self.has_all = self.changes.take(&mut self.input, into)?;
        }
        self.known += (into.len() - before) as u64;
        match &self.lost {
            _ if self.has_all => into.extend_from_slice(&message("PAUSED")),
            Some(why) if into.len() == before && self.taken == self.backlog.end() => return Err(why.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Obeys the import's messages.
    fn obey(&mut self) -> Result<(), String> {
        if self.from_import.starts_with(ACCEPTED) {
            self.from_import.drain(..ACCEPTED.len());
        }
        while let Some((message, end)) = self.import_messages.next(&self.from_import)? {
            self.from_import.drain(..end);
            match message {
                // Redis does not use this state, but notes that the connection lives.
                TargetMessage::Ack if self.handshake.is_over() && !self.applies_changes => {
                    self.send_ack("accumulate-buffer")
                }
                TargetMessage::Applied(bytes) => self.applied = bytes.saturating_sub(self.base).min(self.known),
                TargetMessage::RequestPause => self.applies_changes = true,
                TargetMessage::RequestFailover => self.grant()?,
                TargetMessage::Ack | TargetMessage::Other => {}
            }
        }
        self.acknowledge();
        Ok(())
    }

    /// Grants the slots in the source's place, while it holds writes.
    fn grant(&mut self) -> Result<(), String> {
        match self.acks.have_time_left(self.known, &self.directives, self.link.now()) {
            true => self.messages.extend_from_slice(&message("FAILOVER-GRANTED")),
            false => return Err(NO_TIME.to_owned()),
        }
        Ok(())
    }

    /// Tells the source how many bytes of changes are applied, if that is due. It may begin to hold writes then.
    fn acknowledge(&mut self) {
        let now = self.link.now();
        if !self.applies_changes || self.has_all || self.has_failed {
            return;
        }
        let keeps_up = self.applied == self.known && self.taken == self.backlog.end() && self.input.is_empty();
        let is_due = self.acked.is_none_or(|acked| now.saturating_sub(acked) >= ACK_EVERY);
        if is_due || keeps_up && !self.keeps_up {
            self.keeps_up |= keeps_up;
            self.acked = Some(now);
            self.acks.note(self.applied, self.known, &self.directives, now);
            self.send_ack(if self.keeps_up { "wait-stream-eof" } else { "streaming-buffer" });
        }
    }

    fn send_ack(&mut self, state: &str) {
        let words = ["CLUSTER", "SYNCSLOTS", "ACK", state, &self.applied.to_string()];
        encode_request(&words, &mut self.requests[Channel::Main as usize]);
        // A broken connection shows when it is read.
        _ = self.send(Channel::Main);
    }

    /// Sends as much of the requests as the connection takes.
    fn send(&mut self, channel: Channel) -> io::Result<()> {
        let request = &mut self.requests[channel as usize];
        while !request.is_empty() {
            match self.link.write(channel, request)? {
                0 => break,
                sent => _ = request.drain(..sent),
            }
        }
        Ok(())
    }

    /// Ends the connections. The import learns the reason from its job.
    fn fail(&mut self, why: String) {
        self.has_failed = true;
        self.job.ask_for_failure(&why);
        self.close();
    }

    fn note_memory(&mut self) {
        let buffers = [&self.input, &self.scratch, &self.replies[0], &self.replies[1]];
        let memory = buffers.iter().map(|buffer| buffer.capacity() as u64).sum::<u64>() + self.backlog.memory_bytes();
        self.set_noted(memory);
    }

    fn set_noted(&mut self, memory: u64) {
        let before = std::mem::replace(&mut self.noted, memory);
        self.engine.slots.jobs.bytes.import_memory.fetch_add(memory.wrapping_sub(before), Ordering::Relaxed);
    }

    fn log(&self, text: &str) {
        self.engine.host.log(LogLevel::Notice, &format!("The import {}: {text}", self.job.name));
    }
}

impl<L: RedisLink> MoveClock for RedisSource<L> {
    fn now(&self) -> Duration {
        self.link.now()
    }

    fn unix_us(&self) -> u64 {
        self.link.unix_us()
    }
}

/// A failure is no error here: the job has its reason.
impl<L: RedisLink> SourceLink for RedisSource<L> {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        if self.has_failed {
            return Ok(false);
        }
        Ok(self.give(into).unwrap_or_else(|why| {
            self.fail(why);
            false
        }))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.from_import.extend_from_slice(bytes);
        if !self.has_failed
            && let Err(why) = self.obey()
        {
            self.fail(why);
        }
        Ok(bytes.len())
    }

    fn close(&mut self) {
        self.link.close(Channel::Main);
        self.link.close(Channel::Snapshot);
        self.backlog = Backlog::begin(0);
        self.taken = 0;
        self.set_noted(0);
    }
}

/// Returns a message between nodes.
fn message(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(&["CLUSTER", "SYNCSLOTS", word], &mut bytes);
    bytes
}
