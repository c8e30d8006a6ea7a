//! The results of snapshots, for INFO, LASTSAVE and the schedule of the next one.

use super::{Purpose, Running};

/// The result of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The file has been written and has its name.
    Saved {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The file could not be written.
    Failed,
    /// The snapshot was cancelled.
    Cancelled,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct SnapshotFigures {
    /// The time of the last saved file, in seconds of Unix time; the server's start at first.
    pub saved_s: u64,
    /// The end of the last attempt at a file, in seconds of Unix time.
    pub tried_s: u64,
    /// The number of changes before the start of the last saved file.
    pub saved_dirty: u64,
    /// True if the last attempt at a file has failed.
    pub has_failed: bool,
    /// The number of consecutive failures.
    pub failures: u64,
    /// The duration of the last attempt, in seconds.
    pub file_s: Option<u64>,
    /// The number of saved files.
    pub saves: u64,
    /// True if the last attempt at a base has failed.
    pub base_has_failed: bool,
    /// The number of consecutive failures.
    pub base_failures: u64,
    /// The duration of the last base, in seconds.
    pub base_s: Option<u64>,
    /// The number of bases that were begun.
    pub rewrites: u64,
    /// The end of the last attempt at a base, in seconds of Unix time.
    pub base_tried_s: u64,
    /// The bytes of the whole append-only file at the installation of the last base.
    pub base_bytes: u64,
    /// The number of keys that the last loading found.
    pub loaded_keys: u64,
    /// The number of expired keys among those that the last loading found.
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
            Purpose::Replicas | Purpose::Slots => {}
        }
    }

    pub(super) fn note_ended(&mut self, running: &Running, outcome: Outcome, now_s: u64) {
        let seconds = Some(running.began.elapsed().as_secs());
        let has_failed = outcome == Outcome::Failed;
        match running.purpose {
            Purpose::File => {
                self.tried_s = now_s;
                // As in Redis, a failed SAVE does not stop writes.
                if outcome != Outcome::Cancelled && !(running.is_awaited && has_failed) {
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
            Purpose::Replicas | Purpose::Slots => {}
        }
    }
}
