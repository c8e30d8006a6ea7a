//! Moves of whole slots to and from this node: the jobs under way, and the log of ended ones.
//!
//! The source sends a snapshot of the slots and all later changes. The target stores them in staged slots and claims the slots at the
//! end. A thread of the server drives each import, and one thread drives all exports, one after another. Other threads only ask for
//! the failure of a job ([`SlotJob::ask_for_failure`]). A replica of a target, and a primary that loads its append-only file, follow
//! imports without a thread: they learn the beginning and the end from the stream or the file. A replica of a source knows nothing of
//! exports.
//!
//! Source of the semantics: the replies of a running Valkey 9.1.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::slots::SlotRange;
use cluster::{Slot, SlotSet};

use crate::slow_path::{EngineFlags, MOVES_SLOTS};

/// The length of the names of jobs and nodes.
pub const NAME_BYTES: usize = 40;

/// The direction of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// This node is the target.
    Import,
    /// This node is the source.
    Export,
}

impl Operation {
    /// Returns the name in GETSLOTMIGRATIONS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Import => "IMPORT",
            Operation::Export => "EXPORT",
        }
    }
}

/// The state of a job. The names of states that both directions have are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Export: earlier exports are under way, or the connection to the target is being opened.
    Connecting,
    /// Export: the target checks the password.
    ReadingAuthResponse,
    /// Export: the target decides on the request.
    ReadingEstablishResponse,
    /// Export: another snapshot is being made.
    WaitingToSnapshot,
    /// Export: the snapshot is being made and sent.
    Snapshotting,
    /// Export: changes are sent.
    Replicating,
    /// Export: the target waits for the end of the changes, and too many of them have not been sent.
    WaitingToPause,
    /// Export: writes to the slots are held, and the target applies the last changes.
    FailoverPaused,
    /// The source has not sent its first sign of life.
    WaitingForAck,
    /// The source sends the snapshot.
    ReceivingSnapshot,
    /// The source sends changes, and then holds writes.
    WaitingForPaused,
    /// All changes are applied, and the source is asked for the slots.
    FailoverRequested,
    /// The source has granted the slots.
    FailoverGranted,
    /// The job has failed, and the staged keys are being deleted.
    CleaningUp,
    /// Replica of a target: its primary imports the slots.
    OccurringOnPrimary,
    /// The job has failed.
    Failed,
    /// Export: an operator has cancelled the job.
    Cancelled,
    /// The target has the slots.
    Success,
}

impl JobState {
    /// Returns the name in GETSLOTMIGRATIONS.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JobState::Connecting => "connecting",
            JobState::ReadingAuthResponse => "reading-auth-response",
            JobState::ReadingEstablishResponse => "reading-establish-response",
            JobState::WaitingToSnapshot => "waiting-to-snapshot",
            JobState::Snapshotting => "snapshotting",
            JobState::Replicating => "replicating",
            JobState::WaitingToPause => "waiting-to-pause",
            JobState::FailoverPaused => "failover-paused",
            JobState::WaitingForAck => "waiting-for-ack",
            JobState::ReceivingSnapshot => "receiving-snapshot",
            JobState::WaitingForPaused => "waiting-for-paused",
            JobState::FailoverRequested => "failover-requested",
            JobState::FailoverGranted => "failover-granted",
            JobState::CleaningUp => "cleaning-up",
            JobState::OccurringOnPrimary => "occurring-on-primary",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Success => "success",
        }
    }

    /// Returns true if the job has ended, and nothing of it is left to do.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, JobState::Failed | JobState::Cancelled | JobState::Success)
    }
}

/// Ranges of slots as an operator gave them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotRanges(pub Vec<SlotRange>);

impl SlotRanges {
    /// Returns the slots.
    #[must_use]
    pub fn set(&self) -> SlotSet {
        self.0.iter().flat_map(|range| range.slots()).collect()
    }
}

impl fmt::Display for SlotRanges {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, SlotRange { first, last }) in self.0.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(to, "{space}{first}-{last}")?;
        }
        Ok(())
    }
}

/// The nodes of a job. A job without a thread has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobNodes {
    /// The name of the target.
    pub target: String,
    /// The name of the source.
    pub source: String,
}

/// The changing part of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobProgress {
    /// The state.
    pub state: JobState,
    /// The explanation of the state, for people.
    pub message: String,
    /// The time of the last change of the state, in seconds of Unix time.
    pub updated_s: u64,
    /// The time of the last sign of life of the other node, in seconds of Unix time.
    pub acked_s: u64,
    /// Export: bytes of changes that have not been sent.
    pub remaining_bytes: u64,
    /// The longest time for which writes to the slots were held, in milliseconds. Import: the part of the target, from the last change
    /// until it serves the slots.
    pub hold_ms: u64,
    /// The reason of a failure that another thread has asked for.
    asked_failure: Option<String>,
    /// True if an operator has asked for the end.
    is_cancelled: bool,
    /// True once this node claims the slots of an import, or has claimed them.
    claims: bool,
    /// True for an import if this node has followed another primary since its beginning.
    is_orphaned: bool,
    /// True if the stream of a new primary, or its snapshot, has ended the job before its thread noticed the new role.
    is_ended_by_primary: bool,
}

/// A job.
#[derive(Debug)]
pub struct SlotJob {
    /// The name: 40 hexadecimal digits.
    pub name: String,
    /// The direction.
    pub operation: Operation,
    /// The slots in the operator's order.
    pub ranges: SlotRanges,
    /// The slots.
    pub slots: SlotSet,
    /// The nodes; `None` on a replica, and for a job from the append-only file.
    pub nodes: Option<JobNodes>,
    /// The source's name in the stream of a replica's primary.
    pub source: Option<String>,
    /// The worker that applies the source's commands.
    pub worker: usize,
    /// Import: true if the source wants to know the number of applied bytes.
    pub reports_progress: bool,
    /// The beginning, in seconds of Unix time.
    pub created_s: u64,
    progress: Mutex<JobProgress>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics with the value half changed, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The facts of a new job.
#[derive(Debug)]
pub struct NewJob {
    /// See [`SlotJob::name`].
    pub name: String,
    /// See [`SlotJob::operation`].
    pub operation: Operation,
    /// See [`SlotJob::ranges`].
    pub ranges: SlotRanges,
    /// See [`SlotJob::nodes`].
    pub nodes: Option<JobNodes>,
    /// See [`SlotJob::source`].
    pub source: Option<String>,
    /// See [`SlotJob::worker`].
    pub worker: usize,
    /// See [`SlotJob::reports_progress`].
    pub reports_progress: bool,
    /// The present time, in seconds of Unix time.
    pub now_s: u64,
}

impl SlotJob {
    /// Returns a job at its beginning.
    #[must_use]
    pub fn new(new: NewJob) -> SlotJob {
        let state = match new.operation {
            Operation::Export => JobState::Connecting,
            Operation::Import if new.nodes.is_some() => JobState::WaitingForAck,
            Operation::Import => JobState::OccurringOnPrimary,
        };
        let progress = JobProgress {
            state,
            message: String::new(),
            updated_s: new.now_s,
            acked_s: new.now_s,
            remaining_bytes: 0,
            hold_ms: 0,
            asked_failure: None,
            is_cancelled: false,
            claims: false,
            is_orphaned: false,
            is_ended_by_primary: false,
        };
        SlotJob {
            slots: new.ranges.set(),
            name: new.name,
            operation: new.operation,
            ranges: new.ranges,
            nodes: new.nodes,
            source: new.source,
            worker: new.worker,
            reports_progress: new.reports_progress,
            created_s: new.now_s,
            progress: Mutex::new(progress),
        }
    }

    /// Returns a copy of the changing part.
    #[must_use]
    pub fn progress(&self) -> JobProgress {
        lock(&self.progress).clone()
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> JobState {
        lock(&self.progress).state
    }

    /// Enters a state.
    pub fn enter(&self, state: JobState, now_s: u64) {
        let mut progress = lock(&self.progress);
        (progress.state, progress.updated_s) = (state, now_s);
    }

    /// Notes a sign of life of the other node.
    pub fn note_ack(&self, now_s: u64) {
        lock(&self.progress).acked_s = now_s;
    }

    /// Asks the thread of the job to end it without success. The first request counts. A claim goes on.
    pub fn ask_for_failure(&self, message: &str) {
        let mut progress = lock(&self.progress);
        if !progress.state.has_ended() && !progress.claims && progress.asked_failure.is_none() {
            progress.asked_failure = Some(message.to_owned());
        }
    }

    /// Asks for the end of a job, in the name of an operator. Returns false if the job has ended or failed, or if its target may have
    /// the slots already.
    pub fn cancel(&self, message: &str) -> bool {
        let mut progress = lock(&self.progress);
        let is_late = matches!(progress.state, JobState::FailoverGranted | JobState::CleaningUp) || progress.claims;
        let may_end = !progress.state.has_ended() && !is_late;
        if may_end && progress.asked_failure.is_none() {
            (progress.asked_failure, progress.is_cancelled) = (Some(message.to_owned()), true);
        }
        may_end
    }

    /// Grants the slots of an export to the target.
    ///
    /// # Errors
    /// The reason of a failure that another thread has asked for.
    pub fn grant(&self, now_s: u64) -> Result<(), String> {
        let mut progress = lock(&self.progress);
        match &progress.asked_failure {
            Some(why) => Err(why.clone()),
            None => {
                (progress.state, progress.updated_s) = (JobState::FailoverGranted, now_s);
                Ok(())
            }
        }
    }

    /// Notes that this node claims the slots of an import now. Other threads can't ask for a failure any more.
    ///
    /// # Errors
    /// The reason of a failure that another thread has asked for.
    pub fn claim(&self) -> Result<(), String> {
        let mut progress = lock(&self.progress);
        progress.claims = progress.asked_failure.is_none();
        progress.asked_failure.clone().map_or(Ok(()), Err)
    }

    /// Sets the number of bytes of changes that have not been sent.
    pub fn note_remaining(&self, bytes: u64) {
        lock(&self.progress).remaining_bytes = bytes;
    }

    /// Notes that writes to the slots were held.
    pub fn note_hold(&self, time: Duration) {
        let mut progress = lock(&self.progress);
        progress.hold_ms = progress.hold_ms.max(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }

    /// Returns the state of a job that ends without success.
    #[must_use]
    pub fn failed_state(&self) -> JobState {
        if lock(&self.progress).is_cancelled { JobState::Cancelled } else { JobState::Failed }
    }

    /// Returns the reason of a failure that another thread has asked for.
    #[must_use]
    pub fn asked_failure(&self) -> Option<String> {
        lock(&self.progress).asked_failure.clone()
    }

    /// Notes that this node follows another primary than at the beginning of an import.
    pub fn orphan(&self) {
        lock(&self.progress).is_orphaned = true;
    }

    /// Returns true if this node has followed another primary since the beginning of an import.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        lock(&self.progress).is_orphaned
    }

    fn note_primary(&self) {
        lock(&self.progress).is_ended_by_primary = self.nodes.is_some();
    }

    /// Returns true if a new primary has ended the job before its thread noticed the new role.
    #[must_use]
    pub fn is_ended_by_primary(&self) -> bool {
        lock(&self.progress).is_ended_by_primary
    }

    /// Returns true if the job is under way and nobody has asked for its failure.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let progress = lock(&self.progress);
        !progress.state.has_ended() && progress.state != JobState::CleaningUp && progress.asked_failure.is_none()
    }
}

/// The result of an attempt to apply a part of a source's commands.
#[derive(Debug)]
pub enum ImportAnswer {
    /// All commands were applied.
    Applied,
    /// No command was applied: they must wait, or the part before them must be applied first.
    Later,
    /// A command failed, or the job can't go on.
    Failed(String),
}

/// Work of a worker for an import.
#[derive(Debug)]
pub enum ImportTask {
    /// Apply whole commands of the source.
    Apply {
        /// The job.
        job: Arc<SlotJob>,
        /// The number of this part of the source's stream, from 0. A part is applied only after the one before it.
        number: u64,
        /// The commands.
        commands: Vec<u8>,
        /// Receives the result.
        answer: SyncSender<ImportAnswer>,
    },
    /// Give a command to replicas and the append-only file, without running it.
    Record {
        /// The command.
        words: Vec<Vec<u8>>,
        /// Receives true once it is recorded; false if it can't be recorded now.
        answer: SyncSender<bool>,
    },
    /// Forget the session of a job.
    Forget(Arc<SlotJob>),
}

/// Bytes of moves of slots, for INFO.
#[derive(Default)]
pub struct MoveBytes {
    /// Memory of the stream of the export that is under way.
    pub export_memory: AtomicU64,
    /// Memory of the streams of all imports that are under way.
    pub import_memory: AtomicU64,
    /// Bytes that were sent to targets since the start.
    pub exported: AtomicU64,
    /// Bytes that were received from sources since the start.
    pub imported: AtomicU64,
}

/// All jobs.
pub struct SlotJobs {
    /// The jobs, from the newest to the oldest.
    jobs: Mutex<VecDeque<Arc<SlotJob>>>,
    /// Work for each worker.
    tasks: Box<[Mutex<VecDeque<ImportTask>>]>,
    /// The greatest number of jobs in the log.
    log_max: AtomicUsize,
    /// True while a thread drives exports. Changed under the lock of the jobs.
    is_exporting: AtomicBool,
    /// DEBUG: exports do not hold writes.
    pub prevents_pause: AtomicBool,
    /// DEBUG: imports do not claim slots that were granted.
    pub prevents_failover: AtomicBool,
    /// The bytes of all jobs.
    pub bytes: MoveBytes,
    slow_path: Arc<EngineFlags>,
}

impl SlotJobs {
    /// Returns an empty log. [`MOVES_SLOTS`] is set while there are jobs under way.
    #[must_use]
    pub(crate) fn new(workers: usize, slow_path: Arc<EngineFlags>) -> SlotJobs {
        let tasks = (0..workers).map(|_| Mutex::default()).collect();
        SlotJobs {
            jobs: Mutex::default(),
            tasks,
            log_max: AtomicUsize::new(0),
            is_exporting: AtomicBool::new(false),
            prevents_pause: AtomicBool::new(false),
            prevents_failover: AtomicBool::new(false),
            bytes: MoveBytes::default(),
            slow_path,
        }
    }

    /// Sets the greatest length of the log. Jobs under way are never removed from it.
    pub fn keep(&self, max: usize) {
        self.log_max.store(max, Ordering::Relaxed);
        self.settle(&mut lock(&self.jobs));
    }

    /// Drops the oldest ended jobs, and sets the flag.
    fn settle(&self, jobs: &mut VecDeque<Arc<SlotJob>>) {
        let max = self.log_max.load(Ordering::Relaxed);
        while jobs.len() > max
            && let Some(at) = jobs.iter().rposition(|job| job.state().has_ended())
        {
            jobs.remove(at);
        }
        self.slow_path.set(MOVES_SLOTS, jobs.iter().any(|job| !job.state().has_ended()));
    }

    /// Adds a job if `check` admits it. No other job begins or ends meanwhile.
    ///
    /// # Errors
    /// The refusal.
    pub fn begin<E>(
        &self,
        job: Arc<SlotJob>,
        check: impl FnOnce(&VecDeque<Arc<SlotJob>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut jobs = lock(&self.jobs);
        check(&jobs)?;
        jobs.push_front(job);
        self.settle(&mut jobs);
        Ok(())
    }

    /// Adds exports if `check` admits them. No other job begins or ends meanwhile. Returns true if the caller must have a thread drive
    /// the exports: see [`SlotJobs::next_export`].
    ///
    /// # Errors
    /// The refusal.
    pub fn begin_exports<E>(
        &self,
        exports: Vec<Arc<SlotJob>>,
        check: impl FnOnce(&VecDeque<Arc<SlotJob>>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut jobs = lock(&self.jobs);
        check(&jobs)?;
        exports.into_iter().for_each(|job| jobs.push_front(job));
        self.settle(&mut jobs);
        Ok(!self.is_exporting.swap(true, Ordering::Relaxed))
    }

    /// Returns the oldest export that has not ended. If there is none, the calling thread drives no exports any more.
    #[must_use]
    pub fn next_export(&self) -> Option<Arc<SlotJob>> {
        let jobs = lock(&self.jobs);
        let is_next = |job: &&Arc<SlotJob>| job.operation == Operation::Export && !job.state().has_ended();
        let next = jobs.iter().rev().find(is_next).cloned();
        self.is_exporting.store(next.is_some(), Ordering::Relaxed);
        next
    }

    /// Calls `look` with all jobs, from the newest to the oldest. No job begins or ends meanwhile.
    pub fn with_all<T>(&self, look: impl FnOnce(&VecDeque<Arc<SlotJob>>) -> T) -> T {
        look(&lock(&self.jobs))
    }

    /// Returns the jobs that have not ended.
    #[must_use]
    pub fn under_way(&self) -> Vec<Arc<SlotJob>> {
        self.with_all(|jobs| jobs.iter().filter(|job| !job.state().has_ended()).cloned().collect())
    }

    /// Returns the jobs of a direction that have not ended.
    #[must_use]
    pub fn under_way_as(&self, operation: Operation) -> Vec<Arc<SlotJob>> {
        let mut jobs = self.under_way();
        jobs.retain(|job| job.operation == operation);
        jobs
    }

    /// Returns the job of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<SlotJob>> {
        self.with_all(|jobs| jobs.iter().find(|job| job.name == name).cloned())
    }

    /// Returns true if a job that has not ended imports one of these slots.
    #[must_use]
    pub fn import_any(&self, slots: &SlotSet) -> bool {
        self.under_way_as(Operation::Import).iter().any(|job| job.slots.intersects(slots))
    }

    /// Returns the job that this node only follows and that its primary ends. A job whose thread has not noticed the new role yet only
    /// learns the end.
    #[must_use]
    pub(crate) fn ended_by_primary(&self, name: &str) -> Option<Arc<SlotJob>> {
        let job =
            self.with_all(|jobs| jobs.iter().find(|job| job.name == name).inspect(|job| job.note_primary()).cloned());
        job.filter(|job| job.nodes.is_none())
    }

    /// Returns the jobs that this node only follows, and ends all others: the data of a primary replace the present ones.
    #[must_use]
    pub fn replaced_by_primary(&self) -> Vec<Arc<SlotJob>> {
        let under_way = |jobs: &VecDeque<Arc<SlotJob>>| {
            let found = jobs.iter().filter(|job| job.operation == Operation::Import && !job.state().has_ended());
            found.inspect(|job| job.note_primary()).cloned().collect::<Vec<_>>()
        };
        let mut jobs = self.with_all(under_way);
        jobs.retain(|job| job.nodes.is_none());
        jobs
    }

    /// Returns the slots of imports under way that this node claims. All of their keys are here.
    #[must_use]
    pub fn claimed(&self) -> SlotSet {
        let mut slots = SlotSet::EMPTY;
        for job in self.under_way_as(Operation::Import) {
            let progress = lock(&job.progress);
            if progress.claims && progress.state != JobState::CleaningUp {
                slots.add(&job.slots);
            }
        }
        slots
    }

    /// Notes that this node follows another primary now.
    pub(crate) fn orphan_imports(&self) {
        self.under_way_as(Operation::Import).iter().for_each(|job| job.orphan());
    }

    /// Returns true if an import is under way that began under another primary. The present one need not know the import: its data may
    /// come from a snapshot of that time, which has no staged keys.
    #[must_use]
    pub fn have_orphans(&self) -> bool {
        self.under_way_as(Operation::Import).iter().any(|job| job.is_orphaned())
    }

    /// Removes the slots that jobs under way import from a set, and calls `rest` with the others. No job begins or ends meanwhile.
    pub fn without_imported<T>(&self, mut slots: SlotSet, rest: impl FnOnce(SlotSet) -> T) -> T {
        self.with_all(|jobs| {
            let imports = jobs.iter().filter(|job| job.operation == Operation::Import && !job.state().has_ended());
            imports.for_each(|job| slots.subtract(&job.slots));
            rest(slots)
        })
    }

    /// Ends a job in the log.
    pub fn end(&self, job: &SlotJob, state: JobState, message: &str, now_s: u64) {
        {
            let mut progress = lock(&job.progress);
            (progress.state, progress.updated_s, progress.message) = (state, now_s, message.to_owned());
        }
        self.settle(&mut lock(&self.jobs));
    }

    /// Sets the message of a job that goes on.
    pub fn explain(&self, job: &SlotJob, message: &str) {
        lock(&job.progress).message = message.to_owned();
    }

    /// Asks the threads of all jobs for a failure.
    pub fn fail_all(&self, message: &str) {
        let driven = |job: &&Arc<SlotJob>| job.nodes.is_some();
        self.under_way().iter().filter(driven).for_each(|job| job.ask_for_failure(message));
    }

    /// Asks the threads of all imports for a failure.
    pub fn fail_imports(&self, message: &str) {
        let driven = |job: &&Arc<SlotJob>| job.nodes.is_some();
        self.under_way_as(Operation::Import).iter().filter(driven).for_each(|job| job.ask_for_failure(message));
    }

    /// Leaves work for a worker. The caller sends it `Message::SlotImports`.
    pub fn leave(&self, worker: usize, task: ImportTask) {
        if let Some(tasks) = self.tasks.get(worker) {
            lock(tasks).push_back(task);
        }
    }

    /// Takes the next work of a worker.
    pub(crate) fn take(&self, worker: usize) -> Option<ImportTask> {
        self.tasks.get(worker).and_then(|tasks| lock(tasks).pop_front())
    }
}

/// Parses a slot's number.
#[must_use]
pub(crate) fn slot_of_text(text: &[u8]) -> Option<Slot> {
    resp::num::parse_i64(text).and_then(|number| u64::try_from(number).ok()).and_then(Slot::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &[(u64, u64)]) -> SlotRanges {
        let range = |&(first, last): &(u64, u64)| SlotRange::new(Slot::new(first)?, Slot::new(last)?);
        SlotRanges(of.iter().filter_map(range).collect())
    }

    fn new_job(operation: Operation, name: &str, first: u64) -> Arc<SlotJob> {
        Arc::new(SlotJob::new(NewJob {
            name: name.to_owned(),
            operation,
            ranges: ranges(&[(first, first + 1)]),
            nodes: Some(JobNodes { target: "t".into(), source: "s".into() }),
            source: None,
            worker: 0,
            reports_progress: false,
            now_s: 5,
        }))
    }

    fn job(name: &str, first: u64) -> Arc<SlotJob> {
        new_job(Operation::Import, name, first)
    }

    fn export(name: &str, first: u64) -> Arc<SlotJob> {
        new_job(Operation::Export, name, first)
    }

    /// A full synchronization of a replica ends an import whose keys its snapshot lacks, or has the keys.
    #[test]
    fn an_import_fails_or_is_claimed() {
        let jobs = SlotJobs::new(1, Arc::default());
        let (claimed, failed) = (job("claimed", 5), job("failed", 9));
        for job in [&claimed, &failed] {
            jobs.begin(job.clone(), |_| Ok::<(), ()>(())).unwrap();
        }
        assert!(jobs.claimed().is_empty());
        assert_eq!(claimed.claim(), Ok(()));
        jobs.fail_imports("full");
        assert_eq!((claimed.asked_failure(), failed.claim()), (None, Err("full".into())));
        assert_eq!(jobs.claimed(), claimed.slots);
        claimed.enter(JobState::CleaningUp, 6);
        assert!(jobs.claimed().is_empty());
    }

    /// A new primary need not know the import.
    #[test]
    fn an_import_is_orphaned_until_its_end() {
        let jobs = SlotJobs::new(1, Arc::default());
        let (before, after) = (job("before", 5), job("after", 9));
        jobs.begin(before.clone(), |_| Ok::<(), ()>(())).unwrap();
        assert!(!jobs.have_orphans());
        jobs.orphan_imports();
        jobs.begin(after.clone(), |_| Ok::<(), ()>(())).unwrap();
        assert!(jobs.have_orphans() && before.is_orphaned() && !after.is_orphaned());
        jobs.end(&before, JobState::Failed, "", 6);
        assert!(!jobs.have_orphans());
    }

    #[test]
    fn ranges_are_shown_with_both_ends() {
        assert_eq!(ranges(&[(3, 3), (0, 1)]).to_string(), "3-3 0-1");
    }

    #[test]
    fn the_log_drops_the_oldest_ended_jobs_first() {
        let flags = Arc::<EngineFlags>::default();
        let jobs = SlotJobs::new(1, flags.clone());
        jobs.keep(2);
        let all: Vec<_> = (0..4).map(|at| job(&at.to_string(), at * 2)).collect();
        for job in &all {
            jobs.begin(job.clone(), |_| Ok::<(), ()>(())).unwrap();
        }
        assert_eq!(jobs.under_way().len(), 4);
        assert!(flags.has(MOVES_SLOTS));
        jobs.end(&all[2], JobState::Success, "", 6);
        jobs.end(&all[1], JobState::Failed, "why", 7);
        let names = jobs.with_all(|jobs| jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>());
        assert_eq!(names, ["3", "0"]);
        jobs.end(&all[0], JobState::Failed, "", 7);
        jobs.end(&all[3], JobState::Failed, "", 7);
        assert!(!flags.has(MOVES_SLOTS) && jobs.find("3").is_some() && jobs.find("2").is_none());
    }

    #[test]
    fn only_the_first_request_for_a_failure_counts() {
        let job = job("a", 0);
        assert!(job.goes_on());
        job.ask_for_failure("first");
        job.ask_for_failure("late");
        assert_eq!((job.asked_failure().as_deref(), job.goes_on()), (Some("first"), false));
    }

    #[test]
    fn one_thread_drives_exports_from_the_oldest_to_the_newest() {
        let jobs = SlotJobs::new(1, Arc::default());
        let admit = |_: &VecDeque<Arc<SlotJob>>| Ok::<(), ()>(());
        let all = [export("a", 0), export("b", 2), export("c", 4)];
        assert_eq!(jobs.begin_exports(all[..2].to_vec(), admit), Ok(true));
        assert_eq!(jobs.begin_exports(all[2..].to_vec(), admit), Ok(false));
        for job in &all {
            assert_eq!(jobs.next_export().map(|next| next.name.clone()), Some(job.name.clone()));
            jobs.end(job, JobState::Success, "", 6);
        }
        assert!(jobs.next_export().is_none());
        assert_eq!(jobs.begin_exports(vec![export("d", 0)], admit), Ok(true));
        assert_eq!(jobs.without_imported(ranges(&[(0, 1)]).set(), |rest| rest.to_string()), "0-1");
    }

    #[test]
    fn an_export_is_cancelled_or_granted() {
        let (early, late) = (export("a", 0), export("b", 2));
        assert!(early.cancel("") && early.grant(6).is_err());
        assert_eq!((early.failed_state(), early.state()), (JobState::Cancelled, JobState::Connecting));
        assert!(late.grant(6).is_ok() && !late.cancel(""));
        assert_eq!((late.failed_state(), late.state()), (JobState::Failed, JobState::FailoverGranted));
    }

    #[test]
    fn an_import_is_cancelled_until_it_fails_or_is_claimed() {
        let (early, claimed, failed) = (job("a", 0), job("b", 2), job("c", 4));
        assert!(early.cancel("why") && early.claim() == Err("why".into()));
        assert_eq!(early.failed_state(), JobState::Cancelled);
        assert!(claimed.claim().is_ok() && !claimed.cancel("why"));
        failed.enter(JobState::CleaningUp, 6);
        assert!(!failed.cancel("why") && failed.failed_state() == JobState::Failed);
    }

    #[test]
    fn slots_of_imports_under_way_are_left_out() {
        let jobs = SlotJobs::new(1, Arc::default());
        let job = job("a", 3);
        jobs.begin(job.clone(), |_| Ok::<(), ()>(())).unwrap();
        let all = ranges(&[(2, 5)]).set();
        assert_eq!(jobs.without_imported(all.clone(), |rest| rest.to_string()), "2 5");
        assert!(jobs.import_any(&all));
        jobs.end(&job, JobState::Failed, "", 6);
        assert_eq!(jobs.without_imported(all, |rest| rest.to_string()), "2-5");
    }
}
