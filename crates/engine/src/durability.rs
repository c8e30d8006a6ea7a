//! How far units are safe, and which replies depend on more of them.
//!
//! Threads that run commands never wait for a disk or a replica. A thread of its own takes units from the journal, writes and syncs them,
//! and says up to which position the log is safe; another one says the same of replicas. Where replies must wait for that (`appendfsync
//! always`, `durability-replicas`), the position of the last unit that changed a key is known, or of one that changed a key beside it: what a
//! command has read depends on no more than that, so that settled keys are answered at once.

mod stamps;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use journal::order::Position;
use store::hash::KeyHash;

use self::stamps::Stamps;
use crate::reasons::{AWAITED, EngineReasons, UNSAVED};

/// What the log's thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LogThread {
    /// It looks for units before it sleeps.
    Looks = 0,
    /// It looks again soon by itself.
    Dozes = 1,
    /// It sleeps until it is told that there are units.
    Sleeps = 2,
    /// It waits for more units, for a moment, so that one sync is for all of them.
    Gathers = 3,
}

/// How long is waited before it is looked again whether the log goes on behind a cut.
const CUT_WAIT: Duration = Duration::from_millis(1);
/// How long the disk may take for one call before commands that write are refused. Stalls of a few seconds pass without an error: a
/// busy disk, a volume that moves to another host. Beyond this many clients have given up, and the rest learn why they wait.
pub const HANG_MAX: Duration = Duration::from_secs(10);
/// How long the log may wait for a write before commands that write wait, too: with the time until a thread notices, less than the
/// second that `everysec` may lose.
const BEHIND_MAX: Duration = Duration::from_millis(500);

/// All units are safe.
const ALL: Position = Position::MAX;

/// What replies may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Safety {
    /// The log is synced (`appendfsync always`).
    Log = 1,
    /// Replicas have it (`durability-replicas`).
    Replicas = 2,
}

/// The log goes on in its present increment.
const NO_CUT: Position = Position::MAX;

/// What is wrong with the disk.
#[derive(Default)]
struct Trouble {
    /// The file that is written to.
    file: String,
    /// The error of the last call that failed, until one succeeds.
    failure: Option<String>,
    /// That a call doesn't return, while it doesn't.
    hang: Option<String>,
}

/// What [`Durability::look_at_disk`] has seen for the first time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskChange {
    /// The disk doesn't answer: which file, and for how long.
    Hangs(String),
    /// It does again.
    Answers,
}

/// Units of which no replica will tell any more that it has them: those behind one position, up to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GivenUp {
    behind: Position,
    last: Position,
}

impl GivenUp {
    /// Whether a reply that depends on units up to this one would have waited for these.
    #[must_use]
    pub fn concerns(&self, depends: Position) -> bool {
        self.behind < depends && depends <= self.last
    }
}

/// See the module's documentation.
pub struct Durability {
    /// Units up to this one are as safe as the configuration promises: the least of what follows.
    safe: AtomicU64,
    /// The same for the log; all are, if there is none.
    safe_in_log: AtomicU64,
    /// The same for replicas; all are, if none are asked for.
    safe_on_replicas: AtomicU64,
    /// Units that replicas may lack, as they stood when this server became a replica itself, and how often it has.
    given_up: Mutex<GivenUp>,
    given_up_count: AtomicU64,
    /// Held where `safe` is made of the two.
    summing: Mutex<()>,
    /// Which of the two replies wait for.
    awaited: AtomicU8,
    /// Units up to this one are on disk.
    synced: AtomicU64,
    /// The last units that changed keys while replies wait.
    stamps: Stamps,
    /// For each thread, whether it wants to be woken when more is safe.
    waits: Box<[AtomicBool]>,
    log: AtomicU8,
    /// The unit that is waited for by a thread that gathers.
    wanted: AtomicU64,
    thread: Mutex<Option<Thread>>,
    /// Why units can't be made safe, while they can't.
    trouble: Mutex<Trouble>,
    /// Since when the log has waited for a call of the disk, in milliseconds since `created` and one more; 0 if it doesn't.
    waits_since: AtomicU64,
    /// Whether that has been too long, as far as was looked at.
    is_hanging: AtomicBool,
    /// Whether it has been longer than commands that write may run ahead of the log.
    is_behind: AtomicBool,
    created: Instant,
    /// Bytes of the log's file, and of those the ones that have yet to be synced.
    file_bytes: AtomicU64,
    unsynced_bytes: AtomicU64,
    /// Whether a sync runs beside the thread that writes.
    is_syncing: AtomicBool,
    /// How often that thread has had to wait for such a sync, since much was not synced.
    delays: AtomicU64,
    /// Whether a snapshot is written that the log is to begin with.
    is_rewriting: AtomicBool,
    /// Whether the files have all data.
    is_whole: AtomicBool,
    /// The last unit of the increment that is written to, if another one is to begin behind it.
    cut: AtomicU64,
    reasons: Arc<EngineReasons>,
}

impl Durability {
    /// Everything is safe: there is no log. For so many shards and threads.
    #[must_use]
    pub fn new(shards: usize, threads: usize, reasons: Arc<EngineReasons>) -> Durability {
        Durability {
            safe: AtomicU64::new(ALL),
            safe_in_log: AtomicU64::new(ALL),
            safe_on_replicas: AtomicU64::new(ALL),
            given_up: Mutex::default(),
            given_up_count: AtomicU64::new(0),
            summing: Mutex::default(),
            awaited: AtomicU8::new(0),
            synced: AtomicU64::new(0),
            stamps: Stamps::new(shards),
            waits: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            log: AtomicU8::new(LogThread::Looks as u8),
            wanted: AtomicU64::new(0),
            thread: Mutex::default(),
            trouble: Mutex::default(),
            waits_since: AtomicU64::new(0),
            is_hanging: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            created: Instant::now(),
            file_bytes: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
            delays: AtomicU64::new(0),
            is_rewriting: AtomicBool::new(false),
            is_whole: AtomicBool::new(true),
            cut: AtomicU64::new(NO_CUT),
            reasons,
        }
    }

    /// Up to where everything is safe.
    #[inline]
    #[must_use]
    pub fn safe(&self) -> Position {
        self.safe.load(Ordering::Acquire)
    }

    /// Notes up to where the log, or the replicas, have everything, and calls `wake` for each thread that waits for more.
    pub fn note_safe(&self, safety: Safety, position: Position, wake: impl Fn(usize)) {
        let part = match safety {
            Safety::Log => &self.safe_in_log,
            Safety::Replicas => &self.safe_on_replicas,
        };
        let summing = self.summing.lock().unwrap_or_else(PoisonError::into_inner);
        part.store(position, Ordering::SeqCst);
        let least = self.safe_in_log.load(Ordering::SeqCst).min(self.safe_on_replicas.load(Ordering::SeqCst));
        // Before the flags are looked at: a thread sets its flag, and looks at this afterwards.
        let before = self.safe.swap(least, Ordering::SeqCst);
        drop(summing);
        if before == least {
            return;
        }
        for (thread, waits) in self.waits.iter().enumerate() {
            if waits.swap(false, Ordering::SeqCst) {
                wake(thread);
            }
        }
    }

    /// Up to where everything is on disk.
    #[must_use]
    pub fn synced(&self) -> Position {
        self.synced.load(Ordering::Acquire)
    }

    /// Notes that everything is on disk up to here. True if that is more than before.
    pub fn note_synced(&self, position: Position) -> bool {
        self.synced.swap(position, Ordering::AcqRel) != position
    }

    /// Has a thread be woken when more is safe. False if everything up to `position` is already.
    #[must_use]
    pub fn wait_for(&self, thread: usize, position: Position) -> bool {
        if let Some(waits) = self.waits.get(thread) {
            waits.store(true, Ordering::SeqCst);
        }
        self.safe.load(Ordering::SeqCst) < position
    }

    /// Has replies wait until what they depend on is safe in this way, or no longer. `last` is the latest unit: those before have left no
    /// stamps.
    pub(crate) fn have_replies_wait(&self, safety: Safety, wait: bool, last: Position) {
        self.stamps.begin(last);
        let bit = safety as u8;
        let before = match wait {
            true => self.awaited.fetch_or(bit, Ordering::SeqCst),
            false => self.awaited.fetch_and(!bit, Ordering::SeqCst),
        };
        let now = if wait { before | bit } else { before & !bit };
        self.reasons.set(AWAITED, now != 0);
    }

    /// Whether replies wait for this.
    #[must_use]
    pub fn is_awaited(&self, safety: Safety) -> bool {
        self.awaited.load(Ordering::SeqCst) & safety as u8 != 0
    }

    /// Whether it is the replicas that lack units up to this one, and not the log.
    #[must_use]
    pub fn lacks_replicas(&self, position: Position) -> bool {
        self.is_awaited(Safety::Replicas) && self.safe_on_replicas.load(Ordering::SeqCst) < position
    }

    /// Notes that no replica will tell any more what it has, since this server becomes one itself. `last` is the latest unit.
    pub(crate) fn give_up_on_replicas(&self, last: Position) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        *given_up = GivenUp { behind: self.safe_on_replicas.load(Ordering::SeqCst), last };
        self.given_up_count.fetch_add(1, Ordering::SeqCst);
    }

    /// The units that were given up since a thread has `seen` so many times, if any were. It has to answer errors in place of what depends
    /// on them.
    #[inline]
    pub fn take_given_up(&self, seen: &mut u64) -> Option<GivenUp> {
        let count = self.given_up_count.load(Ordering::SeqCst);
        let times = count - std::mem::replace(seen, count);
        if times == 0 {
            return None;
        }
        let given_up = *self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        // Of several times the last one is known: what waits since before that was given up, too.
        Some(if times == 1 { given_up } else { GivenUp { behind: 0, ..given_up } })
    }

    /// The last unit that may have changed a key of this shard. The caller has the shard.
    #[inline]
    #[must_use]
    pub(crate) fn last_change(&self, shard: usize, hash: KeyHash) -> Position {
        self.stamps.last(shard, hash)
    }

    /// Notes that a unit has changed a key of this shard. The caller has the shard.
    #[inline]
    pub(crate) fn note_change(&self, shard: usize, hash: KeyHash, position: Position) {
        self.stamps.set(shard, hash, position);
    }

    /// Notes that a unit has changed a shard. The caller has the shard.
    pub(crate) fn note_change_of_shard(&self, shard: usize, position: Position) {
        self.stamps.set_shard(shard, position);
    }

    /// Notes that a unit may have changed any shard.
    pub(crate) fn note_change_of_all(&self, position: Position) {
        self.stamps.set_all(position);
    }

    /// A log begins, which this thread writes. `awaited` says whether replies wait for the disk, by the configuration of the moment;
    /// `last` is the latest unit.
    pub fn begin_log(&self, thread: Thread, awaited: impl FnOnce() -> bool, last: Position) {
        let mut known = self.lock_thread();
        *known = Some(thread);
        // Under the lock: a change of the configuration comes before, and is seen here, or sees that there is a log.
        self.have_replies_wait(Safety::Log, awaited(), last);
    }

    /// There is no log any more. Nothing waits for it: it has what there was, up to `last`. `wake` wakes a thread that has waited.
    pub fn end_log(&self, last: Position, wake: impl Fn(usize)) {
        *self.lock_thread() = None;
        self.have_replies_wait(Safety::Log, false, last);
        self.end_cut();
        self.note_wait(None);
        self.set_trouble(None);
        self.note_file(0, 0, false);
        self.note_safe(Safety::Log, ALL, wake);
    }

    fn lock_thread(&self) -> MutexGuard<'_, Option<Thread>> {
        // What is behind the lock is always whole.
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the log's files have all data: those of a log that was turned on have them once they have a base.
    pub fn note_whole(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Ordering::Relaxed);
    }

    /// Whether the log's files have all data.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Notes what the log's thread does next. Whether there are units has to be looked at again after it is noted that it
    /// sleeps.
    pub fn note_log_thread(&self, does: LogThread) {
        self.log.store(does as u8, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Notes that the log's thread waits until there is this unit. Whether there is has to be looked at again after this.
    pub fn note_gathering(&self, wanted: Position) {
        self.wanted.store(wanted, Ordering::Relaxed);
        self.note_log_thread(LogThread::Gathers);
    }

    /// Wakes the log's thread, if it sleeps, or waits for what there is now. Called when units have been committed; `last` is the
    /// latest one.
    #[inline]
    pub fn ring(&self, last: impl FnOnce() -> Position) {
        // The units are to be seen by a thread that this one doesn't see asleep yet.
        fence(Ordering::SeqCst);
        let does = self.log.load(Ordering::SeqCst);
        let wakes = does == LogThread::Sleeps as u8
            || (does == LogThread::Gathers as u8 && last() >= self.wanted.load(Ordering::Relaxed));
        if wakes {
            self.wake_log_thread();
        }
    }

    #[cold]
    fn wake_log_thread(&self) {
        self.log.store(LogThread::Looks as u8, Ordering::SeqCst);
        if let Some(thread) = &*self.lock_thread() {
            thread.unpark();
        }
    }

    /// Notes how many bytes the log's file has, how many of them have yet to be synced, and whether a sync runs beside the thread
    /// that writes.
    pub fn note_file(&self, bytes: u64, unsynced: u64, is_syncing: bool) {
        self.file_bytes.store(bytes, Ordering::Relaxed);
        self.unsynced_bytes.store(unsynced, Ordering::Relaxed);
        self.is_syncing.store(is_syncing, Ordering::Relaxed);
    }

    /// Notes that the thread that writes has to wait for a sync.
    pub fn note_delay(&self) {
        self.delays.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a sync runs beside the thread that writes, and how often that has had to wait for one.
    #[must_use]
    pub fn syncs(&self) -> (bool, u64) {
        (self.is_syncing.load(Ordering::Relaxed), self.delays.load(Ordering::Relaxed))
    }

    /// Notes that a snapshot is written that the log is to begin with, or no longer. With `no-appendfsync-on-rewrite`, the log is
    /// not synced every second meanwhile.
    pub fn note_rewrite(&self, is_running: bool) {
        self.is_rewriting.store(is_running, Ordering::Relaxed);
    }

    /// Whether a snapshot is written that the log is to begin with.
    #[must_use]
    pub fn is_rewriting(&self) -> bool {
        self.is_rewriting.load(Ordering::Relaxed)
    }

    /// Bytes of the log's file, and of those the ones that have yet to be synced.
    #[must_use]
    pub fn file_bytes(&self) -> (u64, u64) {
        (self.file_bytes.load(Ordering::Relaxed), self.unsynced_bytes.load(Ordering::Relaxed))
    }

    /// Has the log's thread look at the configuration, if there is one. `awaited` says whether replies wait for the disk from
    /// now on; `last` is the latest unit.
    pub(crate) fn settings_changed(&self, awaited: bool, last: Position) {
        let thread = self.lock_thread();
        if thread.is_none() {
            return;
        }
        if self.is_awaited(Safety::Log) != awaited {
            self.have_replies_wait(Safety::Log, awaited, last);
        }
        drop(thread);
        self.wake_log_thread();
    }

    /// Has the log go on in another increment behind its latest unit, which is `last`. The caller is alone behind the gate.
    pub fn cut_at(&self, last: Position) {
        self.cut.store(last, Ordering::Release);
        self.wake_log_thread();
    }

    /// The last unit of the present increment; the greatest position if none is known.
    #[must_use]
    pub fn cut(&self) -> &AtomicU64 {
        &self.cut
    }

    /// The log goes on in another increment, or the present one if that could not be begun.
    pub fn end_cut(&self) {
        self.cut.store(NO_CUT, Ordering::Release);
    }

    /// Whether the log has yet to go on in another increment.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire) != NO_CUT
    }

    /// Waits until the log goes on behind the cut that was made last. For threads that run no commands.
    pub fn wait_for_cut(&self) {
        while self.is_cut() {
            std::thread::sleep(CUT_WAIT);
        }
    }

    fn lock_trouble(&self) -> MutexGuard<'_, Trouble> {
        // What is behind the lock is always whole.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which file is written to.
    pub fn note_file_name(&self, file: String) {
        self.lock_trouble().file = file;
    }

    /// Notes why units can't be made safe, or that they can again. Commands that write are refused meanwhile.
    pub fn set_trouble(&self, failure: Option<String>) {
        let mut trouble = self.lock_trouble();
        trouble.failure = failure;
        self.refuse_if_in(&trouble);
    }

    /// Notes since when the log has waited for a call of the disk, or that it doesn't.
    pub fn note_wait(&self, since: Option<Instant>) {
        let since_ms = |since: Instant| since.saturating_duration_since(self.created).as_millis() as u64 + 1;
        self.waits_since.store(since.map_or(0, since_ms), Ordering::Release);
    }

    /// Has commands that write be refused if the log has waited for the disk for longer than [`HANG_MAX`], and be taken again if
    /// it doesn't wait any more. Threads that run commands call it several times a second: the log's own thread can't tell while it
    /// waits. Says what is new.
    pub fn look_at_disk(&self, now: Instant) -> Option<DiskChange> {
        let was_late = self.is_hanging.load(Ordering::Acquire) || self.is_behind();
        if self.waits_since.load(Ordering::Acquire) == 0 && !was_late {
            return None;
        }
        let mut trouble = self.lock_trouble();
        // Read behind the lock: it may have returned, and another thread may have noted that.
        let since_ms = self.waits_since.load(Ordering::Acquire);
        let now_ms = now.saturating_duration_since(self.created).as_millis() as u64 + 1;
        let waited = Duration::from_millis(if since_ms == 0 { 0 } else { now_ms.saturating_sub(since_ms) });
        let hangs = waited >= HANG_MAX;
        self.is_behind.store(waited >= BEHIND_MAX, Ordering::Relaxed);
        trouble.hang =
            hangs.then(|| format!("{}: the disk has not answered for {} seconds", trouble.file, waited.as_secs()));
        self.refuse_if_in(&trouble);
        if self.is_hanging.swap(hangs, Ordering::AcqRel) == hangs {
            return None;
        }
        Some(trouble.hang.clone().map_or(DiskChange::Answers, DiskChange::Hangs))
    }

    /// Whether commands that write wait until the log has been written, so that a process that is killed loses no more than a second of
    /// what it has answered. As far as was looked at.
    #[inline]
    #[must_use]
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    fn refuse_if_in(&self, trouble: &Trouble) {
        self.reasons.set(UNSAVED, trouble.failure.is_some() || trouble.hang.is_some());
    }

    /// Why units can't be made safe.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.lock_trouble();
        trouble.hang.clone().or_else(|| trouble.failure.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_while_the_disk_hangs_or_fails() {
        let reasons = Arc::<EngineReasons>::default();
        let durability = Durability::new(1, 1, reasons.clone());
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let refused = || reasons.has(UNSAVED);
        durability.note_file_name("a.aof".into());
        assert_eq!(durability.look_at_disk(began), None);
        durability.note_wait(Some(began));
        assert_eq!(durability.look_at_disk(began + BEHIND_MAX / 2), None);
        assert!(!durability.is_behind());
        assert_eq!(durability.look_at_disk(began + HANG_MAX - second), None);
        assert!(durability.is_behind() && !refused());
        let text = |seconds: u64| format!("a.aof: the disk has not answered for {seconds} seconds");
        assert_eq!(durability.look_at_disk(began + HANG_MAX), Some(DiskChange::Hangs(text(10))));
        assert_eq!(durability.look_at_disk(began + HANG_MAX + second), None);
        assert_eq!((durability.trouble(), refused()), (Some(text(11)), true));
        // It returns with an error.
        durability.note_wait(None);
        durability.set_trouble(Some("I/O error".into()));
        assert_eq!(durability.look_at_disk(began + 2 * HANG_MAX), Some(DiskChange::Answers));
        assert!(!durability.is_behind());
        assert_eq!((durability.trouble().as_deref(), refused()), (Some("I/O error"), true));
        durability.set_trouble(None);
        assert_eq!((durability.trouble(), refused()), (None, false));
    }
}
