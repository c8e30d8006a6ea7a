//! The writer: takes units from the journal, writes them to the last increment and syncs it.
//!
//! A thread calls it again and again ([`Writer::write`], [`Writer::sync_if_due`]). It never waits for anything but the disk. It keeps units
//! that can't be written and tries again. It reports the safe position of the log, and errors of the disk. If replies don't depend on a
//! sync, another thread runs the sync while writes continue ([`Stepped::sync`]).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use journal::merge::Merge;
use journal::order::Position;

use crate::appender::Appender;
use crate::block::Encoder;
use crate::disk::Disk;

/// The time of syncs (`appendfsync`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Before any client gets the reply.
    Always,
    /// Once a second.
    EverySecond,
    /// Left to the system.
    Never,
}

/// Bytes written by one call of [`Writer::write`]. Later units are for the next call, after a sync.
const WRITE_BYTES: usize = 8 << 20;
/// Bytes collected before a write. They must still be in the second-level cache when their checksum is computed and the kernel copies them.
const CHUNK_BYTES: usize = 128 << 10;
/// Unsynced bytes from which a sync comes early.
const UNSETTLED_BYTES_EARLY: usize = 64 << 20;
/// Unsynced bytes from which no unit is taken from the journal until a sync has ended.
const UNSETTLED_BYTES_MAX: usize = 2 * UNSETTLED_BYTES_EARLY;
/// The interval of syncs with [`Policy::EverySecond`].
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// The interval at which unneeded memory is freed: a few syncs.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(3);

/// The result of [`Writer::sync_if_due`].
#[derive(Debug)]
pub struct Stepped<F> {
    /// Units up to this one are as safe as the policy promises.
    pub safe: Position,
    /// Units up to this one are durable.
    pub synced: Position,
    /// True if units have become durable, or are left to the system to sync.
    pub has_synced: bool,
    /// The time until the next call even without new units: some are unsynced, and no sync runs.
    pub again_after: Option<Duration>,
    /// A new sync: the caller has another thread sync this file, and passes the result to [`Writer::end_sync`].
    pub sync: Option<F>,
    /// True if no unit is taken from the journal until the running sync has ended.
    pub has_no_room: bool,
    /// True if all units up to the cut have been taken, and the next ones are for another increment ([`Writer::go_on_in`]).
    pub reached_cut: bool,
}

/// The journal's reader and the file that it is written to.
pub struct Writer<D: Disk> {
    merge: Merge,
    appender: Appender<D::File>,
    encoder: Encoder,
    policy: Policy,
    holds_syncs: bool,
    /// The time to write before the next units, in seconds of Unix time, if times are written.
    time_s: Option<u64>,
    /// Positions of the last unit that was taken from the journal, written, and settled: synced, or left to the system to sync.
    taken: Position,
    written: Position,
    settled: Position,
    /// Position of the last unit that a sync has made durable.
    synced: Position,
    /// The last unit that is durable after the success of the sync in another thread.
    syncing: Position,
    /// Start of the last sync, by the caller's clock.
    sync_began: Duration,
    /// True if the last sync failed. This thread syncs then: no step succeeds before a sync does.
    sync_failed: bool,
    /// Time at which memory was last freed.
    gave_back: Duration,
}

impl<D: Disk> Writer<D> {
    /// Writes the units of `merge` from now on. The units up to `last` are in the files already.
    pub fn new(merge: Merge, last: Position, appender: Appender<D::File>, policy: Policy, now: Duration) -> Writer<D> {
        let mut writer = Writer {
            merge,
            encoder: Encoder::behind(appender.link()),
            appender,
            policy,
            holds_syncs: false,
            time_s: None,
            taken: last,
            written: last,
            settled: last,
            synced: last,
            syncing: last,
            sync_began: now,
            sync_failed: false,
            gave_back: now,
        };
        writer.set_policy(policy);
        writer
    }

    /// Changes the policy.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.appender.set_fills(policy == Policy::Always);
    }

    /// With [`Policy::EverySecond`], delays syncs until there are many unsynced bytes, or ends that (`no-appendfsync-on-rewrite`).
    pub fn hold_syncs(&mut self, hold: bool) {
        self.holds_syncs = hold;
    }

    /// Writes the time to the file before the next units, in seconds of Unix time (`aof-timestamp-enabled`). `None` ends that.
    pub fn set_time(&mut self, now_s: Option<u64>) {
        self.time_s = now_s;
    }

    /// Length of the file including unwritten bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.appender.len()
    }

    /// Returns true if the file is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.appender.is_empty()
    }

    /// Bytes that are not durable.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.appender.unsettled()
    }

    /// Memory of the bytes that are not durable, including unused capacity.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.appender.memory()
    }

    /// Takes units up to `cut` and writes them. `cut` is set while the gate is closed, to the last unit at that time. The greatest position
    /// means no cut. `note_memory` gets [`Writer::memory`] after each part. Returns true if there was anything to write.
    ///
    /// # Errors
    /// The disk's error. Nothing is lost: the next call tries again.
    pub fn write(&mut self, cut: &AtomicU64, note_memory: impl Fn(usize)) -> io::Result<bool> {
        let mut written = 0;
        loop {
            self.take(cut);
            note_memory(self.memory());
            let chunk = self.appender.unwritten();
            self.appender.write()?;
            self.written = self.taken;
            written += chunk;
            if chunk < CHUNK_BYTES || written >= WRITE_BYTES {
                return Ok(written > 0);
            }
        }
    }

    /// Syncs the written units if due, or has the caller do it. `now` is of a clock that is never set.
    ///
    /// # Errors
    /// The disk's error. Nothing is lost: [`Writer::write`] must be called again.
    pub fn sync_if_due(&mut self, now: Duration, cut: &AtomicU64) -> io::Result<Stepped<D::File>> {
        let before = (self.settled, self.synced);
        let is_at_cut = self.taken == cut.load(Ordering::Acquire);
        let sync = if self.appender.is_syncing() { None } else { self.follow_policy(now, is_at_cut)? };
        let is_syncing = self.appender.is_syncing();
        if now.saturating_sub(self.gave_back) >= GIVE_BACK_EVERY {
            self.gave_back = now;
            self.appender.give_back();
        }
        let again_after = (!self.is_settled() && !is_syncing).then(|| SYNC_EVERY.saturating_sub(self.since_sync(now)));
        Ok(Stepped {
            safe: if self.policy == Policy::Always { self.synced } else { self.written },
            synced: self.synced,
            has_synced: (self.settled, self.synced) != before,
            again_after,
            sync,
            has_no_room: is_syncing && !self.has_room(),
            reached_cut: is_at_cut && !is_syncing,
        })
    }

    /// Returns true if the policy requires nothing more for the written units. Units that an earlier policy left to the system must still
    /// be synced under a policy that syncs.
    fn is_settled(&self) -> bool {
        self.written == if self.policy == Policy::Never { self.settled } else { self.synced }
    }

    /// Applies the policy to the written units. Returns the file if another thread must sync it.
    fn follow_policy(&mut self, now: Duration, is_at_cut: bool) -> io::Result<Option<D::File>> {
        if self.is_settled() {
            return Ok(None);
        }
        match self.policy {
            _ if self.sync_failed => self.sync(now)?,
            Policy::Always => self.sync(now)?,
            Policy::Never => {
                self.appender.settle();
                self.settled = self.written;
            }
            // At a cut, the caller syncs.
            Policy::EverySecond => {
                let is_time = !self.holds_syncs && self.since_sync(now) >= SYNC_EVERY;
                let is_much = self.appender.unsettled() > UNSETTLED_BYTES_EARLY;
                return Ok(((is_time || is_much) && !is_at_cut).then(|| self.begin_sync(now)));
            }
        }
        Ok(None)
    }

    /// Notes that a sync has made the units up to this one durable.
    fn note_synced(&mut self, last: Position) {
        self.synced = last;
        self.settled = self.settled.max(last);
    }

    fn since_sync(&self, now: Duration) -> Duration {
        now.saturating_sub(self.sync_began)
    }

    fn begin_sync(&mut self, now: Duration) -> D::File {
        self.syncing = self.written;
        self.sync_began = now;
        self.appender.begin_sync()
    }

    /// Notes the result of a sync in another thread.
    ///
    /// # Errors
    /// The sync's error. Nothing is lost: [`Writer::write`] writes the units again that aren't durable.
    pub fn end_sync(&mut self, result: io::Result<()>) -> io::Result<()> {
        self.sync_failed = result.is_err();
        self.appender.end_sync(result)?;
        self.note_synced(self.syncing);
        Ok(())
    }

    /// Makes all taken units durable, and cuts the file after them. The increment is whole then, and another one may follow. No sync may
    /// run in another thread.
    ///
    /// # Errors
    /// The disk's error. The next call tries again.
    pub fn finish_increment(&mut self, now: Duration) -> io::Result<()> {
        self.sync(now)?;
        self.appender.trim()
    }

    /// Writes the next units to another increment. The previous one is finished.
    pub fn go_on_in(&mut self, appender: Appender<D::File>) {
        debug_assert_eq!(self.taken, self.synced, "nothing may be left in the increment that ends");
        self.appender = appender;
        self.appender.set_fills(self.policy == Policy::Always);
        self.encoder.begin_file();
    }

    /// Makes all taken units durable under any policy. No sync may run in another thread.
    ///
    /// # Errors
    /// The disk's error.
    pub fn sync(&mut self, now: Duration) -> io::Result<()> {
        self.appender.write()?;
        self.written = self.taken;
        let result = self.appender.sync();
        self.sync_failed = result.is_err();
        result?;
        self.note_synced(self.written);
        self.sync_began = now;
        Ok(())
    }

    /// Returns true if units are taken from the journal during a sync.
    fn has_room(&self) -> bool {
        self.appender.unsettled() < UNSETTLED_BYTES_MAX
    }

    fn take(&mut self, cut: &AtomicU64) {
        self.encoder.settled = self.appender.settled();
        while self.appender.unwritten() < CHUNK_BYTES && (self.has_room() || !self.appender.is_syncing()) {
            let Some(unit) = self.merge.next_unit_up_to(|| cut.load(Ordering::Acquire)) else { break };
            self.taken = unit.position;
            if let Some(now_s) = self.time_s {
                self.encoder.time(now_s, self.appender.tail());
            }
            self.encoder.unit(unit.entries(), self.appender.tail());
        }
        self.encoder.end_block(self.appender.tail());
    }

    /// Gives up the unwritten units. Returns the last unit in the file. No sync may run in another thread.
    ///
    /// # Errors
    /// The disk's error. A part of the unwritten units may then be in the file.
    pub fn give_up(&mut self) -> io::Result<Position> {
        Ok(if self.appender.give_up()? { self.written } else { self.settled })
    }

    /// Takes all units of the journal. Returns the reader at its end, and the file with its unwritten bytes. No sync may run in another
    /// thread.
    #[must_use]
    pub fn end(mut self) -> (Merge, Appender<D::File>) {
        while let Some(unit) = self.merge.next_unit() {
            self.encoder.unit(unit.entries(), self.appender.tail());
        }
        self.encoder.end_block(self.appender.tail());
        (self.merge, self.appender)
    }
}
