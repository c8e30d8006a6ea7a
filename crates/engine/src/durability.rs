//! Durability: the safe position, and the last unit that each reply depends on. A unit at or before the safe position
//! is on disk, on enough replicas, or both, as the directives demand.
//!
//! Threads that run commands never wait for a disk or a replica. A separate thread takes units from the journal, writes
//! and syncs them, and publishes the position of the last durable unit. Another thread does the same for replicas.
//! While replies wait (`appendfsync always`, `durability-replicas`), the server keeps for each key an upper bound of
//! the last unit that changed it. A reply depends only on the last changes of the keys that its command read, so
//! commands on settled keys are answered at once.

mod last_writes;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use journal::order::Position;
use statistics::ticks::Ticks;
use store::hash::KeyHash;

use self::last_writes::LastWrites;
use crate::slow_path::{AWAITED, EngineFlags, UNSAVED};

/// The state of the log's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WriterState {
    /// The thread polls for units before it sleeps.
    Polling = 0,
    /// The thread sleeps for a short time and wakes by itself.
    Timed = 1,
    /// The thread sleeps until somebody wakes it because there are units.
    Parked = 2,
    /// The thread waits a moment for more units, so that one sync serves all of them.
    GroupCommit = 3,
}

/// The interval between two checks whether the log has begun its next increment.
const CUT_WAIT: Duration = Duration::from_millis(1);
/// The longest time that one disk call may take before commands that write are refused. Shorter stalls pass without an
/// error: a busy disk, a volume that moves to another host. Longer stalls exceed the timeouts of many clients, and the
/// error tells all other clients the reason.
pub const HANG_MAX: Duration = Duration::from_secs(10);
/// The longest time that the log may wait for a write before commands that write wait, too. Together with the time
/// until a thread notices, it is less than the second that `everysec` may lose.
const BEHIND_MAX: Duration = Duration::from_millis(500);

/// Number of times that [`Durability::on_disk_at`] remembers: those of the latest syncs.
const LOG_TIMES_MAX: usize = 256;

/// All units are safe.
const ALL: Position = Position::MAX;

/// The kinds of safety that replies may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DurabilityTarget {
    /// The log is synced (`appendfsync always`).
    Log = 1,
    /// Replicas have the units (`durability-replicas`).
    Replicas = 2,
}

/// The log goes on in its present increment.
const NO_CUT: Position = Position::MAX;

/// The present problems of the disk.
#[derive(Default)]
struct DiskError {
    /// The file that the log is written to.
    file: String,
    /// The error of the last failed call; `None` after a call succeeds.
    failure: Option<String>,
    /// The message of a call that does not return, for as long as it hangs.
    hang: Option<String>,
}

/// A change of the disk's state that [`Durability::look_at_disk`] has noticed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiskChange {
    /// The disk doesn't answer. The text has the file and the time.
    Hangs(String),
    /// The disk answers again.
    Answers,
}

/// Units that replicas will never acknowledge any more: the positions after `behind` up to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GivenUp {
    behind: Position,
    last: Position,
}

impl GivenUp {
    /// Returns whether a reply that depends on units up to `durable_after` would have waited for these units.
    #[must_use]
    pub fn concerns(&self, durable_after: Position) -> bool {
        self.behind < durable_after && durable_after <= self.last
    }
}

/// See the module's documentation.
pub struct Durability {
    /// The least of the two positions below: units up to here are as safe as the configuration promises.
    safe: AtomicU64,
    /// Units up to here are safe in the log; [`ALL`] without a log.
    safe_in_log: AtomicU64,
    /// Enough replicas have the units up to here; [`ALL`] if no replicas are required.
    safe_on_replicas: AtomicU64,
    /// The units that replicas might lack when this server last became a replica, and the number of times that it
    /// became one.
    given_up: Mutex<GivenUp>,
    given_up_count: AtomicU64,
    /// Held while `safe` is computed from the two parts.
    summing: Mutex<()>,
    /// Times at which the log became safe up to a position, while replies wait for replicas as well; the latest last.
    log_times: Mutex<VecDeque<(Position, Ticks)>>,
    /// The bits of the [`DurabilityTarget`]s that replies wait for.
    awaited: AtomicU8,
    /// Units up to this one are on disk.
    synced: AtomicU64,
    /// The last units that changed keys while replies wait.
    last_writes: LastWrites,
    /// For each thread: true if it wants to be woken when more is safe.
    waits: Box<[AtomicBool]>,
    log: AtomicU8,
    /// The position that the thread waits for in [`WriterState::GroupCommit`].
    wanted: AtomicU64,
    thread: Mutex<Option<Thread>>,
    /// The reason that units can't be made safe at present.
    disk_error: Mutex<DiskError>,
    /// The start of the disk call that the log waits in, in milliseconds since `created`, plus one; 0 outside of calls.
    waits_since: AtomicU64,
    /// True if that call has taken longer than [`HANG_MAX`] at the last check.
    is_hanging: AtomicBool,
    /// True if that call has taken longer than [`BEHIND_MAX`] at the last check.
    is_behind: AtomicBool,
    created: Instant,
    /// The bytes of the log's file, and the number of them that are not yet synced.
    file_bytes: AtomicU64,
    unsynced_bytes: AtomicU64,
    /// The memory of the unsynced bytes, including unused capacity.
    file_memory: AtomicU64,
    /// True while a sync runs beside the thread that writes.
    is_syncing: AtomicBool,
    /// The number of times that the writing thread had to wait for a sync because too many bytes were unsynced.
    delays: AtomicU64,
    /// True while a snapshot is written as the log's next base.
    is_rewriting: AtomicBool,
    /// True if the log's files hold all data.
    is_whole: AtomicBool,
    /// The last unit of the current increment, if another increment is to begin after it.
    cut: AtomicU64,
    slow_path: Arc<EngineFlags>,
}

impl Durability {
    /// The state without a log, for this number of shards and threads: everything is safe.
    #[must_use]
    pub fn new(shards: usize, threads: usize, slow_path: Arc<EngineFlags>) -> Durability {
        Durability {
            safe: AtomicU64::new(ALL),
            safe_in_log: AtomicU64::new(ALL),
            safe_on_replicas: AtomicU64::new(ALL),
            given_up: Mutex::default(),
            given_up_count: AtomicU64::new(0),
            summing: Mutex::default(),
            log_times: Mutex::default(),
            awaited: AtomicU8::new(0),
            synced: AtomicU64::new(0),
            last_writes: LastWrites::new(shards),
            waits: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            log: AtomicU8::new(WriterState::Polling as u8),
            wanted: AtomicU64::new(0),
            thread: Mutex::default(),
            disk_error: Mutex::default(),
            waits_since: AtomicU64::new(0),
            is_hanging: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            created: Instant::now(),
            file_bytes: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            file_memory: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
            delays: AtomicU64::new(0),
            is_rewriting: AtomicBool::new(false),
            is_whole: AtomicBool::new(true),
            cut: AtomicU64::new(NO_CUT),
            slow_path,
        }
    }

    /// Returns the safe position: replies that depend on no later unit may be sent.
    #[inline]
    #[must_use]
    pub fn safe(&self) -> Position {
        self.safe.load(Ordering::Acquire)
    }

    /// Notes that the log, or enough replicas, have all units up to a position. Calls `wake` for each thread with
    /// replies that wait for the new safe position.
    pub fn note_safe(&self, target: DurabilityTarget, position: Position, wake: impl Fn(usize)) {
        let part = match target {
            DurabilityTarget::Log => &self.safe_in_log,
            DurabilityTarget::Replicas => &self.safe_on_replicas,
        };
        let summing = self.summing.lock().unwrap_or_else(PoisonError::into_inner);
        part.store(position, Ordering::SeqCst);
        let least = self.safe_in_log.load(Ordering::SeqCst).min(self.safe_on_replicas.load(Ordering::SeqCst));
        // This store precedes the check of the flags, because a thread sets its flag first and reads `safe` afterwards.
        let before = self.safe.swap(least, Ordering::SeqCst);
        drop(summing);
        if target == DurabilityTarget::Log && self.is_awaited(DurabilityTarget::Replicas) {
            self.note_log_time(position);
        }
        if before == least {
            return;
        }
        for (thread, waits) in self.waits.iter().enumerate() {
            if waits.swap(false, Ordering::SeqCst) {
                wake(thread);
            }
        }
    }

    fn note_log_time(&self, position: Position) {
        let mut times = self.log_times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() == LOG_TIMES_MAX {
            times.pop_front();
        }
        times.push_back((position, Ticks::now()));
    }

    /// Returns the time at which the log became safe up to a position, if replies wait for replicas as well: 0 if it was
    /// long ago, or if replies do not wait for the log.
    #[must_use]
    pub fn on_disk_at(&self, position: Position) -> Option<Ticks> {
        if !self.is_awaited(DurabilityTarget::Replicas) {
            return None;
        }
        let times = self.log_times.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = times.iter().find(|(safe, _)| *safe >= position && self.is_awaited(DurabilityTarget::Log));
        Some(reached.map_or_else(Ticks::default, |&(_, time)| time))
    }

    /// Returns the position of the last unit on disk.
    #[must_use]
    pub fn synced(&self) -> Position {
        self.synced.load(Ordering::Acquire)
    }

    /// Notes that everything is on disk up to `position`. Returns true if this is news.
    pub fn note_synced(&self, position: Position) -> bool {
        self.synced.swap(position, Ordering::AcqRel) != position
    }

    /// Requests a wake-up of a thread when more is safe. Returns false if everything up to `position` is safe already.
    #[must_use]
    pub fn wait_for(&self, thread: usize, position: Position) -> bool {
        if let Some(waits) = self.waits.get(thread) {
            waits.store(true, Ordering::SeqCst);
        }
        self.safe.load(Ordering::SeqCst) < position
    }

    /// Makes replies wait for this kind of safety, or ends the wait. `last` is the latest unit: earlier units have left
    /// no stamps.
    pub(crate) fn have_replies_wait(&self, target: DurabilityTarget, wait: bool, last: Position) {
        self.last_writes.begin(last);
        let bit = target as u8;
        let before = match wait {
            true => self.awaited.fetch_or(bit, Ordering::SeqCst),
            false => self.awaited.fetch_and(!bit, Ordering::SeqCst),
        };
        let now = if wait { before | bit } else { before & !bit };
        self.slow_path.set(AWAITED, now != 0);
    }

    /// Returns whether replies wait for this kind of safety.
    #[must_use]
    pub fn is_awaited(&self, target: DurabilityTarget) -> bool {
        self.awaited.load(Ordering::SeqCst) & target as u8 != 0
    }

    /// Returns whether replicas, rather than the log, still lack units up to `position`.
    #[must_use]
    pub fn lacks_replicas(&self, position: Position) -> bool {
        self.is_awaited(DurabilityTarget::Replicas) && self.safe_on_replicas.load(Ordering::SeqCst) < position
    }

    /// Notes that no replica will acknowledge anything any more, because this server becomes a replica itself. `last`
    /// is the latest unit.
    pub(crate) fn give_up_on_replicas(&self, last: Position) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        *given_up = GivenUp { behind: self.safe_on_replicas.load(Ordering::SeqCst), last };
        self.given_up_count.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the units that were given up since the thread last called this, if there are any. `seen` is the thread's
    /// count of such events. The thread has to answer errors in place of replies that depend on these units.
    #[inline]
    pub fn take_given_up(&self, seen: &mut u64) -> Option<GivenUp> {
        let count = self.given_up_count.load(Ordering::SeqCst);
        let times = count - std::mem::replace(seen, count);
        if times == 0 {
            return None;
        }
        let given_up = *self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the last event's units are known. Replies that have waited since an earlier event were given up, too.
        Some(if times == 1 { given_up } else { GivenUp { behind: 0, ..given_up } })
    }

    /// Returns the last unit that may have changed a key of this shard. The caller holds the shard.
    #[inline]
    #[must_use]
    pub(crate) fn last_change(&self, shard: usize, hash: KeyHash) -> Position {
        self.last_writes.last(shard, hash)
    }

    /// Notes that a unit has changed a key of this shard. The caller holds the shard.
    #[inline]
    pub(crate) fn note_change(&self, shard: usize, hash: KeyHash, position: Position) {
        self.last_writes.set(shard, hash, position);
    }

    /// Notes that a unit has changed a shard. The caller holds the shard.
    pub(crate) fn note_change_of_shard(&self, shard: usize, position: Position) {
        self.last_writes.set_shard(shard, position);
    }

    /// Notes that a unit may have changed any shard.
    pub(crate) fn note_change_of_all(&self, position: Position) {
        self.last_writes.set_all(position);
    }

    /// Begins a log, which `thread` writes. `awaited` returns whether replies wait for the disk by the present
    /// configuration; `last` is the latest unit.
    pub fn begin_log(&self, thread: Thread, awaited: impl FnOnce() -> bool, last: Position) {
        let mut known = self.lock_thread();
        *known = Some(thread);
        // The lock orders this against [`Durability::settings_changed`]: either `awaited` reads the new configuration
        // here, or the change sees the log.
        self.have_replies_wait(DurabilityTarget::Log, awaited(), last);
    }

    /// Ends the log, which has everything up to `last`. `wake` wakes a thread that waited for it.
    pub fn end_log(&self, last: Position, wake: impl Fn(usize)) {
        *self.lock_thread() = None;
        self.have_replies_wait(DurabilityTarget::Log, false, last);
        self.end_cut();
        self.note_wait(None);
        self.set_disk_error(None);
        self.note_file(0, 0, false);
        self.note_file_memory(0);
        self.note_safe(DurabilityTarget::Log, ALL, wake);
    }

    /// Returns true if there is a log.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.lock_thread().is_some()
    }

    fn lock_thread(&self) -> MutexGuard<'_, Option<Thread>> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether the log's files hold all data. A log that was turned on at run time does after its base is
    /// written.
    pub fn note_whole(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Ordering::Relaxed);
    }

    /// Returns whether the log's files hold all data.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Notes the log thread's next state. After noting [`WriterState::Parked`], the thread must check again for units
    /// before it sleeps.
    pub fn note_writer_state(&self, does: WriterState) {
        self.log.store(does as u8, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Notes that the log's thread waits for the unit `wanted`. The thread must check for it again after this call.
    pub fn note_gathering(&self, wanted: Position) {
        self.wanted.store(wanted, Ordering::Relaxed);
        self.note_writer_state(WriterState::GroupCommit);
    }

    /// Wakes the log's thread if it sleeps, or waits for units that exist now. Call it after a commit; `last` returns
    /// the latest position.
    #[inline]
    pub fn ring(&self, last: impl FnOnce() -> Position) {
        // The fence pairs with the one in `note_writer_state`: the thread sees the units, or this thread sees that it
        // sleeps.
        fence(Ordering::SeqCst);
        let does = self.log.load(Ordering::SeqCst);
        let wakes = does == WriterState::Parked as u8
            || (does == WriterState::GroupCommit as u8 && last() >= self.wanted.load(Ordering::Relaxed));
        if wakes {
            self.wake_log_thread();
        }
    }

    #[cold]
    fn wake_log_thread(&self) {
        self.log.store(WriterState::Polling as u8, Ordering::SeqCst);
        if let Some(thread) = &*self.lock_thread() {
            thread.unpark();
        }
    }

    /// Notes the bytes of the log's file, the number of them that are not yet synced, and whether a sync runs beside
    /// the thread that writes.
    pub fn note_file(&self, bytes: u64, unsynced: u64, is_syncing: bool) {
        self.file_bytes.store(bytes, Ordering::Relaxed);
        self.unsynced_bytes.store(unsynced, Ordering::Relaxed);
        self.is_syncing.store(is_syncing, Ordering::Relaxed);
    }

    /// Notes the memory of the log's bytes that are not yet synced, including unused capacity.
    pub fn note_file_memory(&self, bytes: usize) {
        self.file_memory.store(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the memory of the log's bytes that are not yet synced, including unused capacity.
    #[must_use]
    pub fn file_memory(&self) -> u64 {
        self.file_memory.load(Ordering::Relaxed)
    }

    /// Notes that the writing thread has to wait for a sync.
    pub fn note_delay(&self) {
        self.delays.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a sync runs beside the writing thread, and the number of times that the thread had to wait for
    /// one.
    #[must_use]
    pub fn syncs(&self) -> (bool, u64) {
        (self.is_syncing.load(Ordering::Relaxed), self.delays.load(Ordering::Relaxed))
    }

    /// Notes whether a snapshot is being written as the log's next base. With `no-appendfsync-on-rewrite`, the log is
    /// not synced every second meanwhile.
    pub fn note_rewrite(&self, is_running: bool) {
        self.is_rewriting.store(is_running, Ordering::Relaxed);
    }

    /// Returns whether a snapshot is being written as the log's next base.
    #[must_use]
    pub fn is_rewriting(&self) -> bool {
        self.is_rewriting.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the log's file, and the number of them that are not yet synced.
    #[must_use]
    pub fn file_bytes(&self) -> (u64, u64) {
        (self.file_bytes.load(Ordering::Relaxed), self.unsynced_bytes.load(Ordering::Relaxed))
    }

    /// Makes the log's thread, if there is one, read the configuration. `awaited` is true if replies wait for the disk
    /// from now on; `last` is the latest unit.
    pub(crate) fn settings_changed(&self, awaited: bool, last: Position) {
        let thread = self.lock_thread();
        if thread.is_none() {
            return;
        }
        if self.is_awaited(DurabilityTarget::Log) != awaited {
            self.have_replies_wait(DurabilityTarget::Log, awaited, last);
        }
        drop(thread);
        self.wake_log_thread();
    }

    /// Makes the log begin another increment after its latest unit, `last`. The caller is alone behind the gate.
    pub fn cut_at(&self, last: Position) {
        self.cut.store(last, Ordering::Release);
        self.wake_log_thread();
    }

    /// Returns the last unit of the present increment, or the greatest position if the increment has no end yet.
    #[must_use]
    pub fn cut(&self) -> &AtomicU64 {
        &self.cut
    }

    /// Notes that the log has begun its next increment, or stays in the present one because of an error.
    pub fn end_cut(&self) {
        self.cut.store(NO_CUT, Ordering::Release);
    }

    /// Returns whether the log still has to begin its next increment.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire) != NO_CUT
    }

    /// Blocks until the log has passed the latest cut. For threads that run no commands.
    pub fn wait_for_cut(&self) {
        while self.is_cut() {
            std::thread::sleep(CUT_WAIT);
        }
    }

    fn lock_disk_error(&self) -> MutexGuard<'_, DiskError> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.disk_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the name of the file that is written to.
    pub fn note_file_name(&self, file: String) {
        self.lock_disk_error().file = file;
    }

    /// Notes the reason that units can't be made safe, or `None` when they can again. Commands that write are refused
    /// meanwhile.
    pub fn set_disk_error(&self, failure: Option<String>) {
        let mut disk_error = self.lock_disk_error();
        disk_error.failure = failure;
        self.refuse_if_in(&disk_error);
    }

    /// Notes the start of a disk call that the log waits in, or `None` after it.
    pub fn note_wait(&self, since: Option<Instant>) {
        let since_ms = |since: Instant| since.saturating_duration_since(self.created).as_millis() as u64 + 1;
        self.waits_since.store(since.map_or(0, since_ms), Ordering::Release);
    }

    /// Makes commands that write be refused while the log has waited for the disk for longer than [`HANG_MAX`]. Returns
    /// a change of the disk's state. Threads that run commands call this several times a second, because the log's own
    /// thread is blocked in the call.
    pub fn look_at_disk(&self, now: Instant) -> Option<DiskChange> {
        let was_late = self.is_hanging.load(Ordering::Acquire) || self.is_behind();
        if self.waits_since.load(Ordering::Acquire) == 0 && !was_late {
            return None;
        }
        let mut disk_error = self.lock_disk_error();
        // Read again under the lock: the call may have returned, and another thread may have noted it.
        let since_ms = self.waits_since.load(Ordering::Acquire);
        let now_ms = now.saturating_duration_since(self.created).as_millis() as u64 + 1;
        let waited = Duration::from_millis(if since_ms == 0 { 0 } else { now_ms.saturating_sub(since_ms) });
        let hangs = waited >= HANG_MAX;
        self.is_behind.store(waited >= BEHIND_MAX, Ordering::Relaxed);
        disk_error.hang =
            hangs.then(|| format!("{}: the disk has not answered for {} seconds", disk_error.file, waited.as_secs()));
        self.refuse_if_in(&disk_error);
        if self.is_hanging.swap(hangs, Ordering::AcqRel) == hangs {
            return None;
        }
        Some(disk_error.hang.clone().map_or(DiskChange::Answers, DiskChange::Hangs))
    }

    /// Returns whether commands that write wait for the log at the last check. The wait bounds the loss of a killed
    /// process to one second of answered commands.
    #[inline]
    #[must_use]
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    fn refuse_if_in(&self, disk_error: &DiskError) {
        self.slow_path.set(UNSAVED, disk_error.failure.is_some() || disk_error.hang.is_some());
    }

    /// Returns the reason that units can't be made safe.
    #[must_use]
    pub fn disk_error(&self) -> Option<String> {
        let disk_error = self.lock_disk_error();
        disk_error.hang.clone().or_else(|| disk_error.failure.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_while_the_disk_hangs_or_fails() {
        let slow_path = Arc::<EngineFlags>::default();
        let durability = Durability::new(1, 1, slow_path.clone());
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let refused = || slow_path.has(UNSAVED);
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
        assert_eq!((durability.disk_error(), refused()), (Some(text(11)), true));
        // The call returns with an error.
        durability.note_wait(None);
        durability.set_disk_error(Some("I/O error".into()));
        assert_eq!(durability.look_at_disk(began + 2 * HANG_MAX), Some(DiskChange::Answers));
        assert!(!durability.is_behind());
        assert_eq!((durability.disk_error().as_deref(), refused()), (Some("I/O error"), true));
        durability.set_disk_error(None);
        assert_eq!((durability.disk_error(), refused()), (None, false));
    }
}
