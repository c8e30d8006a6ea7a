//! The writer: takes units from the journal, writes them to the last increment and syncs it.
//!
//! It is called again and again by a thread of its own ([`Writer::write`], [`Writer::sync_if_due`]), and never waits for anything but the disk. What it
//! can't write it keeps and tries again; it tells how far the log is safe, and what is wrong with the disk. Where replies
//! don't wait for a sync, another thread runs it, so that writes go on meanwhile ([`Stepped::sync`]).

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

/// Bytes that are written by one call of [`Writer::write`]: what comes meanwhile is for the next one, after a sync.
const WRITE_BYTES: usize = 8 << 20;
/// Bytes that are put together and then written: few enough to be in the second-level cache still when their checksum is counted and
/// the kernel copies them.
const CHUNK_BYTES: usize = 128 << 10;
/// Bytes that are kept because they aren't synced, beyond which a sync comes early.
const UNSETTLED_BYTES_EARLY: usize = 64 << 20;
/// The same, beyond which nothing is taken from the journal until a sync has ended.
const UNSETTLED_BYTES_MAX: usize = 2 * UNSETTLED_BYTES_EARLY;
/// How often what was written is synced once a second.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often memory is given back that hasn't been needed: some syncs apart.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(3);

/// What [`Writer::sync_if_due`] has done.
#[derive(Debug)]
pub struct Stepped<F> {
    /// Units up to this one are as safe as the policy promises.
    pub safe: Position,
    /// Units up to this one are durable.
    pub synced: Position,
    /// Whether anything has become durable, or is left to the system to sync.
    pub has_synced: bool,
    /// When it is to be called again though there is nothing new: something is still to be synced, and no sync runs.
    pub again_after: Option<Duration>,
    /// A sync that begins: the caller has another thread sync this file, and passes the result to [`Writer::end_sync`].
    pub sync: Option<F>,
    /// Whether nothing is taken from the journal until the sync that runs has ended.
    pub has_no_room: bool,
    /// Whether all units up to the cut have been taken, and what follows is for another increment ([`Writer::go_on_in`]).
    pub reached_cut: bool,
}

/// See the module's documentation.
pub struct Writer<D: Disk> {
    merge: Merge,
    appender: Appender<D::File>,
    encoder: Encoder,
    policy: Policy,
    holds_syncs: bool,
    /// The time that is told before what comes next, in seconds of Unix time, if times are told.
    time_s: Option<u64>,
    /// Positions of the last unit that was taken from the journal, written, and settled: synced, or left to the system to sync.
    taken: Position,
    written: Position,
    settled: Position,
    /// Position of the last unit that a sync has made durable.
    synced: Position,
    /// The last unit that is durable once the sync has succeeded that another thread runs.
    syncing: Position,
    /// When the last sync began, by the caller's clock.
    sync_began: Duration,
    /// Whether the last sync failed. Then this thread syncs, so that no step succeeds until a sync has.
    sync_failed: bool,
    /// When memory was given back last.
    gave_back: Duration,
}

impl<D: Disk> Writer<D> {
    /// Writes what `merge` has from now on; the units up to `last` are in the files already.
    pub fn new(merge: Merge, last: Position, appender: Appender<D::File>, policy: Policy, now: Duration) -> Writer<D> {
        let mut writer = Writer {
            merge,
            appender,
            encoder: Encoder::default(),
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

    /// With [`Policy::EverySecond`], has syncs wait until much is to be synced, or no longer (`no-appendfsync-on-rewrite`).
    pub fn hold_syncs(&mut self, hold: bool) {
        self.holds_syncs = hold;
    }

    /// Tells the time in the file, in seconds of Unix time, before what comes next (`aof-timestamp-enabled`). None ends that.
    pub fn set_time(&mut self, now_s: Option<u64>) {
        self.time_s = now_s;
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

    /// Takes the units that there are up to `cut` and writes them. `cut` is set behind the closed gate, to the last unit of then;
    /// the greatest position stands for none. Says whether there was anything to be written.
    ///
    /// # Errors
    /// The disk's. Nothing is lost: the next call tries again.
    pub fn write(&mut self, cut: &AtomicU64) -> io::Result<bool> {
        let mut written = 0;
        loop {
            self.take(cut);
            let chunk = self.appender.unwritten();
            self.appender.write()?;
            self.written = self.taken;
            written += chunk;
            if chunk < CHUNK_BYTES || written >= WRITE_BYTES {
                return Ok(written > 0);
            }
        }
    }

    /// Syncs what [`Writer::write`] has written, if it is time, or has the caller do it. `now` is a clock that is never set.
    ///
    /// # Errors
    /// The disk's. Nothing is lost: [`Writer::write`] is to be called again.
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

    /// Whether the policy asks for nothing more of what has been written. What a policy of before has left to the system is still to be
    /// synced by one that syncs.
    fn is_settled(&self) -> bool {
        self.written == if self.policy == Policy::Never { self.settled } else { self.synced }
    }

    /// Does what the policy says of what has been written. Returns the file if another thread is to sync it.
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

    /// Notes the result of a sync that another thread has run.
    ///
    /// # Errors
    /// The sync's. Nothing is lost: [`Writer::write`] writes again what isn't durable.
    pub fn end_sync(&mut self, result: io::Result<()>) -> io::Result<()> {
        self.sync_failed = result.is_err();
        self.appender.end_sync(result)?;
        self.note_synced(self.syncing);
        Ok(())
    }

    /// Makes all that has been taken durable, and the file end with it: the increment is whole, and another one may follow. No sync may run
    /// in another thread.
    ///
    /// # Errors
    /// The disk's. The next call tries again.
    pub fn finish_increment(&mut self, now: Duration) -> io::Result<()> {
        self.sync(now)?;
        self.appender.trim()
    }

    /// Writes what comes next to another increment. The one before is finished.
    pub fn go_on_in(&mut self, appender: Appender<D::File>) {
        debug_assert_eq!(self.taken, self.synced, "nothing may be left in the increment that ends");
        self.appender = appender;
        self.appender.set_fills(self.policy == Policy::Always);
        self.encoder.begin_file();
    }

    /// Makes all that has been taken durable, whatever the policy. No sync may run in another thread.
    ///
    /// # Errors
    /// The disk's.
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

    /// Whether units are taken from the journal though a sync runs.
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

    /// Takes all that the journal has, and gives its end back, and the file, to which the rest is to be written yet. No sync may run in
    /// another thread.
    #[must_use]
    pub fn end(mut self) -> (Merge, Appender<D::File>) {
        while let Some(unit) = self.merge.next_unit() {
            self.encoder.unit(unit.entries(), self.appender.tail());
        }
        self.encoder.end_block(self.appender.tail());
        (self.merge, self.appender)
    }
}
