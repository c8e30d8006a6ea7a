//! How far a primary's stream has been applied, told before the thread that applies it leaves the gate.
//!
//! So whatever runs alone behind the gate, the beginning of a snapshot or the end of following, finds data that are exactly those of the
//! offset. Bytes of a transaction count when all of it has run.

use journal::order::Position;

use super::Replication;
use super::rounds::RoundSearch;

/// What is so behind bytes of a primary's stream that have been applied: the latest unit, and the database that the stream has selected.
pub(crate) type StreamState = (Position, usize);

/// A primary's stream, as the session that applies it knows it.
#[derive(Debug, Default)]
pub struct FollowedStream {
    /// Which change of the primary it belongs to.
    version: u64,
    /// The beginning of a transaction that has yet to end.
    held: Vec<u8>,
    /// The command that is being applied by itself, since it may leave the gate: until it has been told of.
    single: Option<Vec<u8>>,
    is_single: bool,
    /// When to look for what other threads can apply of it.
    pub(crate) search: RoundSearch,
}

impl FollowedStream {
    /// A stream that begins with this change of the primary.
    pub(crate) fn begin(&mut self, version: u64) {
        if self.version != version {
            *self = FollowedStream { version, ..FollowedStream::default() };
        }
    }

    /// Begins to apply commands that don't leave the gate, or one that may.
    pub(crate) fn begin_run(&mut self, single: Option<&[u8]>) {
        self.is_single = single.is_some();
        self.single = single.map(<[u8]>::to_vec);
    }

    /// Whether another primary is to be followed, or none. Nothing more of the stream is applied then. The caller is inside the gate, or
    /// alone behind it.
    pub(crate) fn is_over(&self, replication: &Replication) -> bool {
        replication.version() != self.version
    }

    /// Tells that these commands have been applied, or queued (`is_within`: a transaction has begun and not ended). The caller is inside
    /// the gate.
    pub(crate) fn note_run(&mut self, replication: &Replication, after: StreamState, commands: &[u8], is_within: bool) {
        if self.is_single {
            if !commands.is_empty() {
                self.note_single(replication, after, is_within);
            }
        } else {
            self.note(replication, after, commands, is_within);
        }
    }

    /// Tells that the command has been applied that is applied by itself. The caller is alone behind the gate, or inside it.
    pub(crate) fn note_single(&mut self, replication: &Replication, after: StreamState, is_within: bool) {
        if let Some(command) = self.single.take() {
            self.note(replication, after, &command, is_within);
        }
    }

    fn note(&mut self, replication: &Replication, after: StreamState, commands: &[u8], is_within: bool) {
        if is_within || !self.held.is_empty() {
            self.held.extend_from_slice(commands);
            if !is_within {
                let held = std::mem::take(&mut self.held);
                replication.advance(self.version, &held, after);
            }
        } else {
            replication.advance(self.version, commands, after);
        }
    }
}
