//! How snapshots have ended, for INFO, LASTSAVE and the decision when to make the next one.

use super::{Purpose, Running};

/// How a snapshot has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its file has its name.
    Saved {
        /// Bytes of the file.
        bytes: u64,
    },
    /// It could not be written.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct SnapshotFigures {
    /// When the last file was saved, in seconds of Unix time; the server's start at first.
    pub saved_s: u64,
    /// When the last attempt at a file has ended, in seconds of Unix time.
    pub tried_s: u64,
    /// Changes so far when the last file was begun that was saved.
    pub saved_dirty: u64,
    /// Whether the last attempt at a file has failed.
    pub has_failed: bool,
    /// How many in a row.
    pub failures: u64,
    /// How long it took, in seconds.
    pub file_s: Option<u64>,
    /// Files that have been saved.
    pub saves: u64,
    /// The last attempt at a base has failed.
    pub base_has_failed: bool,
    /// How many in a row.
    pub base_failures: u64,
    /// How long the last base took, in seconds.
    pub base_s: Option<u64>,
    /// Bases that were begun.
    pub rewrites: u64,
    /// When the last attempt at a base has ended, in seconds of Unix time.
    pub base_tried_s: u64,
    /// Bytes of the base, and of all that there was of the append-only file when it was installed.
    pub base_bytes: u64,
    /// Keys that the last loading found, and those that had expired.
    pub loaded_keys: u64,
    /// See above.
    pub loaded_expired: u64,
}

impl SnapshotFigures {
    pub(super) fn note_begun(&mut self, purpose: Purpose) {
        self.rewrites += u64::from(purpose == Purpose::Base);
    }

    /// Notes that a snapshot could not be begun, at this time in seconds of Unix time.
    pub(crate) fn note_not_begun(&mut self, purpose: Purpose, now_s: u64) {
        match purpose {
            Purpose::File => {
                (self.tried_s, self.has_failed) = (now_s, true);
                self.failures += 1;
            }
            Purpose::Base => {
                (self.base_tried_s, self.base_has_failed) = (now_s, true);
                self.base_failures += 1;
            }
            Purpose::Replicas => {}
        }
    }

    pub(super) fn note_ended(&mut self, running: &Running, outcome: Outcome, now_s: u64) {
        let seconds = Some(running.began.elapsed().as_secs());
        let has_failed = outcome == Outcome::Failed;
        match running.purpose {
            Purpose::File => {
                self.tried_s = now_s;
                if outcome != Outcome::Cancelled {
                    (self.file_s, self.has_failed) = (seconds, has_failed);
                    self.failures = if has_failed { self.failures + 1 } else { 0 };
                }
                if let Outcome::Saved { .. } = outcome {
                    (self.saved_s, self.saved_dirty) = (now_s, running.dirty_at_cut);
                    self.saves += 1;
                }
            }
            Purpose::Base => {
                self.base_tried_s = now_s;
                (self.base_s, self.base_has_failed) = (seconds, outcome != Outcome::Cancelled && has_failed);
                self.base_failures = if has_failed { self.base_failures + 1 } else { 0 };
                if let Outcome::Saved { bytes } = outcome {
                    self.base_bytes = bytes;
                }
            }
            Purpose::Replicas => {}
        }
    }
}
