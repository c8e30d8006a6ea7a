//! The writer: takes units from the journal, writes them to the last increment and syncs it.
//!
//! It is called again and again by a thread of its own ([`Writer::step`]), and never waits for anything but the disk. What it
//! can't write it keeps and tries again; it tells how far the log is safe, and what is wrong with the disk.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use journal::merge::Merge;
use journal::order::Position;

use crate::appender::Appender;
use crate::block::Encoder;
use crate::disk::Disk;

/// When what was written is synced (`appendfsync`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Before any client is told of it.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system does it.
    Never,
}

/// Bytes that are written at once: what comes meanwhile is for the next write.
const WRITE_BYTES: usize = 8 << 20;
/// Bytes that are kept because they aren't synced, beyond which a sync comes early.
const UNSETTLED_BYTES_MAX: usize = 64 << 20;
/// How often what was written is synced once a second.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What a step has done.
#[derive(Debug)]
pub struct Stepped {
    /// Units up to this one are as safe as the policy promises.
    pub safe: Position,
    /// Whether there was anything to be written or synced.
    pub was_busy: bool,
    /// When it is to be called again though there is nothing new: something is still to be synced.
    pub again_after: Option<Duration>,
    /// Whether all units up to the cut have been taken, and what follows is for another increment ([`Writer::go_on_in`]).
    pub reached_cut: bool,
}

/// See the module's documentation.
pub struct Writer<D: Disk> {
    merge: Merge,
    appender: Appender<D::File>,
    encoder: Encoder,
    policy: Policy,
    /// Positions of the last unit that was taken from the journal, written, and synced.
    taken: Position,
    written: Position,
    synced: Position,
    /// When the file was synced last, by the caller's clock.
    synced_at: Duration,
}

impl<D: Disk> Writer<D> {
    /// Writes what `merge` has from now on; the units up to `last` are in the files already.
    pub fn new(merge: Merge, last: Position, appender: Appender<D::File>, policy: Policy, now: Duration) -> Writer<D> {
        Writer {
            merge,
            appender,
            encoder: Encoder::default(),
            policy,
            taken: last,
            written: last,
            synced: last,
            synced_at: now,
        }
    }

    /// Changes the policy.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// How long the file is with all that is to be written.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.appender.len()
    }

    /// Whether the file is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.appender.is_empty()
    }

    /// Bytes that are not durable.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.appender.unsettled()
    }

    /// Takes the units that there are up to `cut`, writes them, and syncs them if it is time. `cut` is set behind the closed
    /// gate, to the last unit of then; the greatest position stands for none. `now` is a clock that is never set.
    ///
    /// # Errors
    /// The disk's. Nothing is lost: the next step tries again.
    pub fn step(&mut self, now: Duration, cut: &AtomicU64) -> io::Result<Stepped> {
        let before = self.synced;
        self.take(cut);
        let was_busy = self.appender.unwritten() > 0;
        self.appender.write()?;
        self.written = self.taken;
        let is_due = match self.policy {
            Policy::Always => self.written != self.synced,
            Policy::EverySecond => {
                let is_time = now.saturating_sub(self.synced_at) >= SYNC_EVERY;
                self.written != self.synced && (is_time || self.appender.unsettled() > UNSETTLED_BYTES_MAX)
            }
            Policy::Never => {
                self.appender.settle();
                self.synced = self.written;
                false
            }
        };
        if is_due {
            self.sync(now)?;
        }
        let safe = if self.policy == Policy::Always { self.synced } else { self.written };
        let again_after =
            (self.written != self.synced).then(|| SYNC_EVERY.saturating_sub(now.saturating_sub(self.synced_at)));
        let reached_cut = self.taken == cut.load(Ordering::Acquire);
        Ok(Stepped { safe, was_busy: was_busy || self.synced != before, again_after, reached_cut })
    }

    /// Writes what comes next to another increment. All that was taken has been synced.
    pub fn go_on_in(&mut self, appender: Appender<D::File>) {
        debug_assert_eq!(self.taken, self.synced, "nothing may be left in the increment that ends");
        self.appender = appender;
        self.encoder.begin_file();
    }

    /// Makes all that has been taken durable, whatever the policy.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&mut self, now: Duration) -> io::Result<()> {
        self.appender.write()?;
        self.written = self.taken;
        self.appender.sync()?;
        self.synced = self.written;
        self.synced_at = now;
        Ok(())
    }

    fn take(&mut self, cut: &AtomicU64) {
        self.encoder.settled = self.appender.settled();
        while self.appender.unwritten() < WRITE_BYTES {
            let Some(unit) = self.merge.next_unit_up_to(|| cut.load(Ordering::Acquire)) else { break };
            self.taken = unit.position;
            self.encoder.unit(unit.entries(), self.appender.tail());
        }
        self.encoder.end_block(self.appender.tail());
    }

    /// Gives the journal's end and the file back. What has been taken is written.
    #[must_use]
    pub fn into_parts(self) -> (Merge, Appender<D::File>) {
        (self.merge, self.appender)
    }
}
