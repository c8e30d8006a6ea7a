//! The applied offset of a primary's stream, which is updated before the applying thread leaves the gate.
//!
//! A task that runs alone behind the gate, for example the start of a snapshot or the end of following, thus finds data
//! that match the offset exactly. The bytes of a transaction count after all of it has run.

use journal::order::Position;

use super::Replication;
use super::rounds::RoundSearch;

/// The state after applied bytes of a primary's stream: the latest unit, and the database that the stream has selected.
pub(crate) type StreamState = (Position, usize);

/// A primary's stream, from the view of the session that applies it.
#[derive(Debug, Default)]
pub struct FollowedStream {
    /// The change of the primary that the stream belongs to.
    version: u64,
    /// The beginning of an unfinished transaction.
    held: Vec<u8>,
    /// A command that is applied alone because it may leave the gate; `None` after it was counted.
    single: Option<Vec<u8>>,
    is_single: bool,
    /// Decides when to search the stream for rounds.
    pub(crate) search: RoundSearch,
}

impl FollowedStream {
    /// Begins a stream for this change of the primary.
    pub(crate) fn begin(&mut self, version: u64) {
        if self.version != version {
            *self = FollowedStream { version, ..FollowedStream::default() };
        }
    }

    /// Begins to apply commands that don't leave the gate, or a single command that may.
    pub(crate) fn begin_run(&mut self, single: Option<&[u8]>) {
        self.is_single = single.is_some();
        self.single = single.map(<[u8]>::to_vec);
    }

    /// Returns whether the server follows another primary now, or none, so that the rest of the stream is dropped. The
    /// caller is inside the gate, or alone behind it.
    pub(crate) fn is_over(&self, replication: &Replication) -> bool {
        replication.version() != self.version
    }

    /// Notes that these commands have been applied, or queued. `is_within` is true inside an unfinished transaction.
    /// The caller is inside the gate.
    pub(crate) fn note_run(&mut self, replication: &Replication, after: StreamState, commands: &[u8], is_within: bool) {
        if self.is_single {
            if !commands.is_empty() {
                self.note_single(replication, after, is_within);
            }
        } else {
            self.note(replication, after, commands, is_within);
        }
    }

    /// Notes that the single command has been applied. The caller is alone behind the gate, or inside it.
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
