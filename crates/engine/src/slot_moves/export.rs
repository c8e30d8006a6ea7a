//! An export: the source's side of a move of slots.
//!
//! The machine connects to the target and sends ESTABLISH. The snapshot of the slots and a reader of the journal begin at the same
//! moment, behind the closed gate. The machine sends the snapshot, then the changes of the slots since that moment. Changes that the
//! target has not taken wait in memory, and on disk beyond some megabytes. After the target's REQUEST-PAUSE, and once the target has
//! nearly caught up, writes to the slots are held ([`approach`]). The target gets the last changes, PAUSED and, if it asks for them, the
//! slots (FAILOVER-GRANTED). The export ends when the bus shows the target's claim. The node then deletes the keys, as for any lost slot.
//!
//! Only this machine ends the hold. A target that has not claimed the slots in time may still do so later, or its replica. This node
//! therefore takes a greater epoch before it lets writes go on ([`keeping`]): the late claim does not count.

mod approach;
mod granting;
mod keeping;
mod outgoing;
mod talk;
mod walk;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use cluster::SlotView;
use config::{ClientClass, LogLevel};
use journal::merge::Merge;
use journal::order::Position;

use self::approach::Approach;
use self::granting::Granting;
use self::keeping::Keeping;
use self::outgoing::Outgoing;
use self::talk::Talk;
pub use self::walk::SlotWalk;
use super::{MoveWait, TargetLink, in_ms};
use crate::inbox::Message;
use crate::pause::PausePurpose;
use crate::replay::{SlotFeed, TargetMessage, TargetMessages};
use crate::slots::jobs::{JobState, Operation, SlotJob};
use crate::snapshots::{BegunSlots, CannotBegin, Outcome, Outlet, Piece, SlotsHandover, WantedSlots};
use crate::state::Engine;

/// Wait while nothing is expected from the journal.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Wait for units of the journal and for the snapshot, which do not wake the caller.
const DOZE: Duration = Duration::from_millis(1);
/// Units of the journal that may be left when the end of the changes is set.
const FEW_UNITS: u64 = 512;
/// Interval of signs of life to the target.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of changes that are assembled at once.
const CHUNK_BYTES: usize = 128 << 10;
/// Units of the journal that are looked at for a chunk: most may concern other slots.
const UNITS_AT_ONCE: u64 = 4096;
/// Chunks of changes, and pieces of the snapshot, that are taken before bytes are sent.
const TAKEN_AT_ONCE: usize = 64;
/// Writes to the socket before units are taken again.
const WRITES_AT_ONCE: usize = 64;
/// Bytes of the snapshot in memory, and the number of unsent ones for which the walk stops at most. Further bytes come from commands that
/// change keys before they were saved; these go to disk.
const SNAPSHOT_BYTES_MAX: u64 = 16 << 20;
/// Unsent bytes of the snapshot for which this thread stops its walk. The link stays busy meanwhile.
const WALKED_AHEAD_BYTES: u64 = 1 << 20;
/// Steps of the walk before bytes are sent.
const WALK_STEPS_AT_ONCE: usize = 16;
/// Bytes of changes that memory holds under any limits.
const MEMORY_MIN: u64 = 1 << 20;
/// Bytes of changes that memory holds at most if the disk takes others. Some megabytes keep the link busy.
const MEMORY_MAX: u64 = 8 << 20;
/// The hold of writes, in multiples of `cluster-manual-failover-timeout`: Valkey's figure.
const HOLD_FACTOR: u32 = 2;

/// The shortest hold behind the grant. A target of Penstock claims the slots within 1.5 s of its request, or never; the rest is for the
/// network.
const CLAIM_TIME_MIN: Duration = Duration::from_secs(3);

const LOST: &str =
    "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more information.";
const UNEXPECTED: &str = "Unexpected state machine transition";
const SILENT: &str = "Timed out after too long with no interaction";
const NOT_MINE: &str = "Slots are no longer owned by myself";
const NOT_PAUSED: &str = "Unpaused before failover completed";
const NOT_APPLIED: &str = "Timed out before streaming completed";
const NOT_CLAIMED: &str = "Unpaused before migration completed (migration may have succeeded with lost writes)";
const NOT_BEGUN: &str = "Failed to start snapshot";
const NOT_SAVED: &str = "Failed to perform snapshot";
const FAILS_OVER: &str = "A failover occurred during slot export";

/// The snapshot that is being made.
struct SlotSnapshot {
    outlet: Arc<Outlet>,
    pieces: Receiver<Piece>,
    /// The walk of the slots, until its end; `None` if the workers walk them.
    walk: Option<SlotWalk>,
    /// Bytes that were taken and not reported as done.
    undone: usize,
    /// True if all pieces have come.
    has_all: bool,
}

/// The hold of writes.
struct Hold {
    began: Duration,
    /// The last unit that the target must have, and the time at which it became known. None as long as the hold may end without the
    /// handover.
    end: Option<(Position, Duration)>,
    /// True once the target has been sent all changes up to the end, or they are on their way.
    is_told: bool,
}

impl Hold {
    /// Returns the parts of a hold that led to a grant, as text.
    fn parts(&self, granted: Option<Duration>, now: Duration) -> Option<String> {
        let ((_, ended), granted) = (self.end?, granted?);
        Some(format!(
            " ({:.3} until few changes were left, {:.3} until the target had all, {:.3} until it had claimed the slots)",
            in_ms(ended.saturating_sub(self.began)),
            in_ms(granted.saturating_sub(ended)),
            in_ms(now.saturating_sub(granted))
        ))
    }
}

/// See the module's documentation.
pub struct Export {
    engine: &'static Engine,
    job: Arc<SlotJob>,
    talk: Talk,
    /// False before the connection, and after its end once the slots are granted.
    is_linked: bool,
    /// Bytes of the target that have been read and not used.
    input: Vec<u8>,
    /// Bytes of a request that have not been sent.
    request: Vec<u8>,
    messages: TargetMessages,
    wanted: Option<Arc<SlotsHandover>>,
    snapshot: Option<SlotSnapshot>,
    changes: Option<Merge>,
    /// Each stream selects its own databases.
    snapshot_feed: SlotFeed,
    change_feed: SlotFeed,
    snapshot_bytes: Outgoing,
    change_bytes: Outgoing,
    approach: Approach,
    hold: Option<Hold>,
    /// Holds that ended without the handover.
    brakes: u64,
    /// Sent bytes that the figures of INFO include.
    noted: u64,
    granting: Option<Granting>,
    granted: Option<Duration>,
    keeping: Option<Keeping>,
    chunk: Vec<u8>,
    /// The time of the present step.
    now: Duration,
    heard: Duration,
    told: Duration,
    looked: Duration,
    /// The result, while the snapshot ends.
    ended: Option<Result<(), String>>,
    is_over: bool,
}

impl Export {
    /// Begins an export.
    #[must_use]
    pub fn begin(engine: &'static Engine, job: Arc<SlotJob>, link: &dyn TargetLink) -> Export {
        let now = link.now();
        engine.host.log(LogLevel::Notice, &format!("The export {} of the slots {} begins", job.name, job.ranges));
        let (snapshot_feed, change_feed) = (SlotFeed::new(job.slots.clone()), SlotFeed::new(job.slots.clone()));
        Export {
            engine,
            job,
            talk: Talk::default(),
            is_linked: false,
            input: Vec::new(),
            request: Vec::new(),
            messages: TargetMessages::default(),
            wanted: None,
            snapshot: None,
            changes: None,
            snapshot_feed,
            change_feed,
            snapshot_bytes: Outgoing::new("slots"),
            change_bytes: Outgoing::new("slot-changes"),
            approach: Approach::new(now),
            hold: None,
            brakes: 0,
            noted: 0,
            granting: None,
            granted: None,
            keeping: None,
            chunk: Vec::new(),
            now,
            heard: now,
            told: now,
            looked: now,
            ended: None,
            is_over: false,
        }
    }

    /// Takes a step.
    pub fn step(&mut self, link: &mut dyn TargetLink) -> MoveWait {
        self.now = link.now();
        if self.is_over {
            return MoveWait::Over;
        }
        if self.ended.is_none() {
            let stepped = if self.talk.is_over() { self.follow(link) } else { self.talk(link) };
            match stepped {
                Ok(Some(wait)) => return wait,
                Ok(None) => self.begin_end(Ok(()), link),
                Err(why) => self.begin_end(Err(why), link),
            }
        }
        match self.drain_snapshot(link) {
            true => self.end(link),
            false => MoveWait::Time(DOZE),
        }
    }

    /// Waits for the result of another thread, at most for this time.
    pub fn block(&mut self, longest: Duration) {
        if let Some(keeping) = &mut self.keeping {
            keeping.block(longest);
        } else if let Some(granting) = &mut self.granting {
            granting.block(longest);
        }
    }

    /// Ends the hold and the connection. The target learns a failure from the end of the connection.
    fn begin_end(&mut self, ended: Result<(), String>, link: &mut dyn TargetLink) {
        self.let_go();
        self.end_grant();
        link.close();
        self.is_linked = false;
        self.break_snapshot();
        self.ended = Some(ended);
    }

    fn end(&mut self, link: &dyn TargetLink) -> MoveWait {
        if let Some(changes) = self.changes.take() {
            self.engine.journal.end(&self.engine.keyspace, changes);
        }
        let (jobs, job) = (&self.engine.slots.jobs, &self.job);
        job.note_remaining(0);
        jobs.bytes.export_memory.store(0, Ordering::Relaxed);
        match self.ended.take() {
            None | Some(Ok(())) => {
                self.log(LogLevel::Notice, &format!("The export {} is complete: the target has the slots", job.name));
                jobs.end(job, JobState::Success, "", link.unix_s());
            }
            Some(Err(why)) => {
                let (state, slots) = (job.failed_state(), &job.ranges);
                let text = format!("The export {} of the slots {slots} has {}: {why}", job.name, state.name());
                self.log(LogLevel::Warning, &text);
                jobs.end(job, state, &why, link.unix_s());
            }
        }
        self.is_over = true;
        MoveWait::Over
    }

    fn log(&self, level: LogLevel, text: &str) {
        self.engine.host.log(level, text);
    }

    /// Ends the hold of writes.
    fn let_go(&mut self) {
        let parts = self.hold.as_ref().and_then(|hold| hold.parts(self.granted, self.now)).unwrap_or_default();
        if let Some(held) = self.release() {
            let (name, brakes) = (&self.job.name, self.brakes);
            let text = format!(
                "Writes to the slots of {name} were held for {:.3} ms{parts}, after {brakes} shorter holds",
                in_ms(held)
            );
            self.log(LogLevel::Notice, &text);
        }
    }

    /// Lets held writes go on. Returns the time for which they were held.
    fn release(&mut self) -> Option<Duration> {
        let hold = self.hold.take()?;
        self.engine.let_slots_go(&self.job.slots);
        let held = self.now.saturating_sub(hold.began);
        self.job.note_hold(held);
        Some(held)
    }

    fn enter(&self, state: JobState, link: &dyn TargetLink) {
        self.log(LogLevel::Verbose, &format!("The export {} enters the state {}", self.job.name, state.name()));
        self.job.enter(state, link.unix_s());
    }

    fn want_snapshot(&mut self, link: &dyn TargetLink) {
        let handover = Arc::<SlotsHandover>::default();
        self.wanted = Some(handover.clone());
        self.enter(JobState::WaitingToSnapshot, link);
        self.engine.snapshots.want_slots(WantedSlots::new(self.job.slots.clone(), handover));
        if let Some(inbox) = self.engine.inboxes.first() {
            inbox.send(Message::Look);
        }
    }

    /// Sends a part of the slots. Returns `None` once the target has claimed them.
    fn follow(&mut self, link: &mut dyn TargetLink) -> Result<Option<MoveWait>, String> {
        let mut has_worked = self.read(link)?;
        has_worked |= self.walk_slots();
        has_worked |= self.take_snapshot(link)?;
        has_worked |= self.take_changes(link)?;
        has_worked |= self.send(link)?;
        self.now = link.now();
        if self.advance(link)? {
            return Ok(None);
        }
        self.check(link)?;
        Ok(Some(if has_worked { MoveWait::Nothing } else { self.wait() }))
    }

    fn wait(&self) -> MoveWait {
        let timeout = if self.changes.is_some() || self.wanted.is_some() { DOZE } else { LOOK_EVERY };
        let bytes = if self.has_sent_snapshot() { &self.change_bytes } else { &self.snapshot_bytes };
        match self.is_linked {
            true if bytes.unsent() > 0 => MoveWait::Room(timeout),
            true => MoveWait::Bytes(timeout),
            false => MoveWait::Time(timeout),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.engine.settings.repl_timeout_s.get().unsigned_abs())
    }

    /// The time for which writes are held before the grant.
    fn hold_time(&self) -> Duration {
        let timeout_ms = self.engine.settings.cluster_manual_failover_timeout_ms.get().unsigned_abs();
        Duration::from_millis(timeout_ms) * HOLD_FACTOR
    }

    /// Reads and obeys the target's messages.
    fn read(&mut self, link: &mut dyn TargetLink) -> Result<bool, String> {
        match self.read_messages(link) {
            // The target may have claimed the slots: the hold goes on.
            Err(_) if self.granted.is_some() => {
                self.lose_link(link);
                Ok(false)
            }
            read => read,
        }
    }

    fn lose_link(&mut self, link: &mut dyn TargetLink) {
        link.close();
        self.is_linked = false;
    }

    fn read_messages(&mut self, link: &mut dyn TargetLink) -> Result<bool, String> {
        if !self.is_linked {
            return Ok(false);
        }
        let has_read = link.read(&mut self.input).map_err(|_| LOST)?;
        while let Some((message, end)) = self.messages.next(&self.input)? {
            self.input.drain(..end);
            self.heard = self.now;
            self.obey(message, link)?;
        }
        Ok(has_read)
    }

    fn obey(&mut self, message: TargetMessage, link: &mut dyn TargetLink) -> Result<(), String> {
        match (message, self.job.state()) {
            (TargetMessage::Ack, _) => self.job.note_ack(link.unix_s()),
            (TargetMessage::Other, _) => {}
            (TargetMessage::Applied(bytes), _) => {
                let written = self.written();
                self.approach.note_applied(bytes, written, self.now)?;
            }
            (TargetMessage::RequestPause, JobState::Snapshotting | JobState::Replicating)
                if self.has_sent_snapshot() =>
            {
                self.enter(JobState::WaitingToPause, link);
            }
            (TargetMessage::RequestFailover, JobState::FailoverPaused) if self.granting.is_none() => {
                self.begin_grant(link)?;
            }
            _ => return Err(UNEXPECTED.into()),
        }
        Ok(())
    }

    /// Walks some slots of the snapshot, unless enough of it waits for the link.
    fn walk_slots(&mut self) -> bool {
        let Some(SlotSnapshot { walk: walk @ Some(_), .. }) = &mut self.snapshot else { return false };
        let is_due = self.snapshot_bytes.unsent() < WALKED_AHEAD_BYTES;
        let has_walked =
            is_due && (0..WALK_STEPS_AT_ONCE).take_while(|_| walk.as_mut().is_some_and(SlotWalk::step)).count() > 0;
        if walk.as_ref().is_some_and(SlotWalk::is_done) {
            *walk = None;
        }
        has_walked
    }

    /// Takes pieces of the snapshot.
    fn take_snapshot(&mut self, link: &dyn TargetLink) -> Result<bool, String> {
        let Some(snapshot) = &mut self.snapshot else { return Ok(false) };
        let mut has_taken = false;
        for _ in 0..TAKEN_AT_ONCE {
            match snapshot.pieces.try_recv() {
                Ok(Piece::Bytes(bytes)) => {
                    has_taken = true;
                    snapshot.undone += bytes.len();
                    self.snapshot_feed.snapshot(&bytes, &mut self.chunk);
                    let kept = self.snapshot_bytes.append(link, &self.chunk, SNAPSHOT_BYTES_MAX);
                    self.chunk.clear();
                    kept.map_err(|error| format!("The snapshot can't be kept on disk: {error}"))?;
                }
                Ok(Piece::Whole) => snapshot.has_all = true,
                Ok(Piece::Cancelled | Piece::Part { .. } | Piece::RecordEnd(_)) | Err(TryRecvError::Disconnected) => {
                    snapshot.has_all = true;
                    return Err(NOT_SAVED.into());
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        // The walk stops while too many bytes are not reported.
        let open = usize::try_from(self.snapshot_bytes.unsent().min(SNAPSHOT_BYTES_MAX)).unwrap_or(usize::MAX);
        let done = snapshot.undone.saturating_sub(open);
        snapshot.undone -= done;
        snapshot.outlet.note_done(done);
        self.engine.snapshots.note_pending(snapshot.outlet.pending());
        if snapshot.has_all && self.engine.snapshots.delay_left(self.delay_us()).is_zero() {
            self.close_snapshot(Outcome::Saved { bytes: 0 }, link.unix_s());
            self.snapshot_bytes.push(&syncslots("SNAPSHOT-EOF"));
        }
        Ok(has_taken)
    }

    fn delay_us(&self) -> u64 {
        self.engine.settings.rdb_key_save_delay_us.get().max(0).unsigned_abs()
    }

    /// Lets the next snapshot begin.
    fn close_snapshot(&mut self, outcome: Outcome, unix_s: u64) {
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.outlet.note_done(snapshot.undone);
            self.engine.snapshots.note_pending(0);
            self.engine.snapshots.note_ended(outcome, unix_s);
            self.engine.follow_snapshots();
        }
    }

    /// Withdraws the request for a snapshot, or has the snapshot end without success.
    fn break_snapshot(&mut self) {
        if let Some(wanted) = self.wanted.take() {
            self.engine.snapshots.forget_slots();
            if let Some(begun) = wanted.withdraw() {
                self.take_begun(begun);
            }
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.outlet.note_broken();
            snapshot.walk = None;
        }
    }

    /// Drops the pieces of a broken snapshot. Returns true after the last one.
    fn drain_snapshot(&mut self, link: &dyn TargetLink) -> bool {
        let Some(snapshot) = &mut self.snapshot else { return true };
        while !snapshot.has_all {
            match snapshot.pieces.try_recv() {
                Ok(Piece::Bytes(bytes) | Piece::Part { bytes, .. }) => {
                    snapshot.outlet.note_done(bytes.len());
                    self.engine.snapshots.note_pending(snapshot.outlet.pending());
                }
                Ok(Piece::RecordEnd(_)) => {}
                Err(TryRecvError::Empty) => return false,
                Ok(Piece::Whole | Piece::Cancelled) | Err(TryRecvError::Disconnected) => snapshot.has_all = true,
            }
        }
        self.close_snapshot(Outcome::Cancelled, link.unix_s());
        true
    }

    fn take_begun(&mut self, begun: BegunSlots) {
        let BegunSlots { outlet, pieces, walk, changes } = begun;
        self.wanted = None;
        let walk = walk.map(|claim| SlotWalk::begin(self.engine, claim, &self.job.slots));
        self.snapshot = Some(SlotSnapshot { outlet, pieces, walk, undone: 0, has_all: false });
        self.changes = Some(changes);
    }

    /// Returns true once the target has been sent the whole snapshot.
    fn has_sent_snapshot(&self) -> bool {
        self.wanted.is_none() && self.snapshot.is_none() && self.snapshot_bytes.unsent() == 0
    }

    /// Takes units of the journal.
    fn take_changes(&mut self, link: &dyn TargetLink) -> Result<bool, String> {
        let Some(changes) = &mut self.changes else { return Ok(false) };
        let before = changes.position();
        let end = self.hold.as_ref().and_then(|hold| hold.end).map_or(Position::MAX, |(end, _)| end);
        let bounds = Bounds::of(self.engine);
        for _ in 0..TAKEN_AT_ONCE {
            let from = changes.position();
            while self.chunk.len() < CHUNK_BYTES
                && changes.position() - from < UNITS_AT_ONCE
                && let Some(unit) = changes.next_unit()
            {
                match unit.position <= end {
                    // The target has all changes, and nothing can be done about later ones. The lanes must be emptied.
                    _ if self.granted.is_some() => {}
                    true => self.change_feed.unit(unit.entries(), &mut self.chunk)?,
                    false => self.change_feed.late_unit(unit.entries())?,
                }
            }
            if changes.position() == from || self.granted.is_some() {
                break;
            }
            let kept = self.change_bytes.append(link, &self.chunk, bounds.memory);
            self.chunk.clear();
            kept.map_err(|error| format!("Changes that the target has not taken can't be kept on disk: {error}"))?;
        }
        let position = changes.position();
        if self.granted.is_none() {
            bounds.check(self.change_bytes.unsent())?;
        }
        if let Some(hold) = &mut self.hold
            && !hold.is_told
            && hold.end.is_some_and(|(end, _)| position >= end)
        {
            hold.is_told = true;
            self.tell("PAUSED");
        }
        Ok(position != before)
    }

    /// Appends a message to the stream.
    fn tell(&mut self, message: &str) {
        self.told = self.now;
        self.bytes().push(&syncslots(message));
    }

    /// Returns the part of the stream that is sent now.
    fn bytes(&mut self) -> &mut Outgoing {
        if self.has_sent_snapshot() { &mut self.change_bytes } else { &mut self.snapshot_bytes }
    }

    /// Sends as much as the socket takes.
    fn send(&mut self, link: &mut dyn TargetLink) -> Result<bool, String> {
        let mut has_sent = false;
        for _ in 0..WRITES_AT_ONCE {
            let is_snapshot = !self.has_sent_snapshot();
            if !self.is_linked {
                return Ok(false);
            }
            let bytes = if is_snapshot { &mut self.snapshot_bytes } else { &mut self.change_bytes };
            match link.flush().and_then(|()| bytes.send(link)) {
                Ok(false) => break,
                Ok(true) => (has_sent, self.told) = (true, self.now),
                Err(_) if self.granted.is_some() => {
                    self.lose_link(link);
                    return Ok(false);
                }
                Err(_) => return Err(LOST.into()),
            }
        }
        self.job.note_remaining(self.change_bytes.unsent());
        self.note_bytes();
        Ok(has_sent)
    }

    /// Notes the figures of INFO.
    fn note_bytes(&mut self) {
        let (figures, written) = (&self.engine.slots.jobs.bytes, self.written());
        figures.exported.fetch_add(written - std::mem::replace(&mut self.noted, written), Ordering::Relaxed);
        let memory = self.snapshot_bytes.memory_bytes() + self.change_bytes.memory_bytes();
        figures.export_memory.store(memory, Ordering::Relaxed);
    }

    /// Takes the next step that no message asks for. Returns true if the target has claimed the slots.
    fn advance(&mut self, link: &dyn TargetLink) -> Result<bool, String> {
        match self.job.state() {
            JobState::WaitingToSnapshot => {
                let begun = self.wanted.as_ref().map_or(Err(CannotBegin), |wanted| wanted.take());
                let begun = begun.map_err(|CannotBegin| NOT_BEGUN)?;
                if let Some(begun) = begun {
                    self.take_begun(begun);
                    self.enter(JobState::Snapshotting, link);
                }
            }
            JobState::Snapshotting if self.has_sent_snapshot() => self.enter(JobState::Replicating, link),
            JobState::WaitingToPause => self.pause(link),
            JobState::FailoverPaused if self.hold_is_over() => return Err(NOT_APPLIED.into()),
            JobState::FailoverPaused => self.step_grant(link)?,
            JobState::FailoverGranted => return self.await_claim(),
            _ => {}
        }
        Ok(false)
    }

    /// The number of bytes of the stream that the link has taken.
    fn written(&self) -> u64 {
        self.snapshot_bytes.sent() + self.change_bytes.sent()
    }

    /// Holds writes to the slots once the target has nearly caught up, or for a moment so that it catches up.
    fn pause(&mut self, link: &dyn TargetLink) {
        let now = self.now;
        let prevents_pause = self.engine.slots.jobs.prevents_pause.load(Ordering::Relaxed);
        // The units that have not been taken: those of other slots count, too.
        let (position, taken) = (self.engine.journal.position(), self.changes.as_ref().map(Merge::position));
        let is_behind = taken.is_some_and(|taken| position.saturating_sub(taken) > FEW_UNITS);
        let max = u64::try_from(self.engine.settings.slot_migration_max_failover_repl_bytes.get()).ok();
        let unsent = self.change_bytes.unsent();
        let in_kernel = if self.is_linked { link.bytes_on_way() } else { 0 };
        let remaining = self.approach.remaining(self.written(), in_kernel, unsent);
        match self.hold.as_ref().map(|hold| hold.began) {
            _ if prevents_pause => _ = self.release(),
            None => {
                if max.is_none() || self.approach.may_begin(remaining, now) {
                    // Until the end is known, all changes are sent, also removals that the target will do by itself.
                    _ = self.engine.hold_slots(&self.job.slots);
                    self.hold = Some(Hold { began: now, end: None, is_told: false });
                }
            }
            Some(_) if max.is_none_or(|max| unsent <= max && !is_behind && self.approach.is_ready(remaining)) => {
                if let Some(hold) = &mut self.hold {
                    hold.end = Some((position, now));
                }
                self.engine.announce_migrating(&self.job.slots, link.unix_us() / 1000);
                self.enter(JobState::FailoverPaused, link);
            }
            Some(began) => {
                if self.approach.must_release(began, now) {
                    self.release();
                    self.brakes += 1;
                    self.approach.note_release(remaining, now);
                }
            }
        }
    }

    fn hold_is_over(&self) -> bool {
        self.hold.as_ref().is_none_or(|hold| self.now.saturating_sub(hold.began) > self.hold_time())
    }

    /// Checks that the export goes on, and sends a sign of life if one is due.
    fn check(&mut self, link: &dyn TargetLink) -> Result<(), String> {
        if self.now.saturating_sub(self.looked) >= LOOK_EVERY {
            self.looked = self.now;
            self.end_cancelled(link);
            if self.granted.is_none() {
                self.check_owner(link)?;
            }
        }
        if self.granted.is_some() {
            return Ok(());
        }
        if let Some(why) = self.job.asked_failure() {
            return Err(why);
        }
        if self.now.saturating_sub(self.heard) > self.timeout() {
            return Err(SILENT.into());
        }
        let is_due = self.talk.is_over() && self.hold.is_none() && self.now.saturating_sub(self.told) >= ACK_EVERY;
        if is_due && self.bytes().unsent() == 0 {
            self.tell("ACK");
        }
        Ok(())
    }

    /// Ends the exports that an operator has cancelled while they waited for this one.
    fn end_cancelled(&self, link: &dyn TargetLink) {
        let jobs = &self.engine.slots.jobs;
        for job in jobs.under_way_as(Operation::Export) {
            if job.name != self.job.name
                && let Some(why) = job.asked_failure()
            {
                jobs.end(&job, job.failed_state(), &why, link.unix_s());
            }
        }
    }

    /// Checks that this node still has all slots.
    fn check_owner(&self, link: &dyn TargetLink) -> Result<(), String> {
        let view = self.engine.slots.view().ok_or(NOT_MINE)?;
        if self.engine.pause.holds_for(PausePurpose::ManualFailover, link.unix_us() / 1000) {
            return Err(FAILS_OVER.into());
        }
        match view.is_primary() && self.owner_is(&view, None) {
            true => Ok(()),
            false => Err(NOT_MINE.into()),
        }
    }

    /// Returns true once the target has all slots.
    fn is_claimed(&self) -> bool {
        let target = self.job.nodes.as_ref().map(|nodes| nodes.target.as_str());
        target.is_some() && self.engine.slots.view().is_some_and(|view| self.owner_is(&view, target))
    }

    /// Returns true if all slots belong to the node of this name, or to this node.
    fn owner_is(&self, view: &SlotView, name: Option<&str>) -> bool {
        let node = match name {
            None => Some(view.me),
            Some(name) => {
                let mut slots = self.job.slots.iter();
                let owner = slots.next().and_then(|slot| view.owner(slot));
                owner.filter(|owner| view.node(*owner).is_some_and(|node| node.id.as_str() == name))
            }
        };
        node.is_some() && self.job.slots.iter().all(|slot| view.owner(slot) == node)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // A panic of the thread must not hold writes, or the bus, for ever.
        self.let_go();
        self.end_grant();
    }
}

/// The numbers of bytes of changes that wait for the link at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bounds {
    /// In memory. Others are on disk.
    memory: u64,
    all: u64,
}

impl Bounds {
    fn of(engine: &Engine) -> Bounds {
        let limit = engine.settings.client_output_buffer_limit.get(ClientClass::Replica);
        Bounds::new(limit.soft_bytes, engine.settings.reply_spill_limit.get())
    }

    /// Returns the bounds for a soft limit of replicas' output, and for a limit of bytes on disk.
    fn new(soft_bytes: u64, disk_bytes: u64) -> Bounds {
        let soft_bytes = soft_bytes.max(MEMORY_MIN);
        let memory = if disk_bytes == 0 { soft_bytes } else { soft_bytes.min(MEMORY_MAX) };
        Bounds { memory, all: soft_bytes.saturating_add(disk_bytes) }
    }

    /// Fails if more bytes wait.
    fn check(self, unsent: u64) -> Result<(), String> {
        match unsent > self.all {
            true => {
                Err("The target takes changes too slowly: see client-output-buffer-limit and reply-spill-limit".into())
            }
            false => Ok(()),
        }
    }
}

/// Returns a message as a request.
fn syncslots(message: &str) -> Vec<u8> {
    format!("*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n${}\r\n{message}\r\n", message.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_tells_its_parts_once_the_slots_are_granted() {
        let began = Duration::from_secs(9);
        let at = |ms| began + Duration::from_millis(ms);
        let hold = |end| Hold { began, end, is_told: true };
        let parts = hold(Some((7, at(2)))).parts(Some(at(5)), at(9)).unwrap();
        let expected =
            "2.000 until few changes were left, 3.000 until the target had all, 4.000 until it had claimed the slots";
        assert_eq!(parts, format!(" ({expected})"));
        assert_eq!((hold(None).parts(Some(at(5)), at(9)), hold(Some((7, at(2)))).parts(None, at(9))), (None, None));
    }

    #[test]
    fn changes_go_to_disk_before_they_take_much_memory() {
        assert_eq!(Bounds::new(64 << 20, 1 << 30), Bounds { memory: 8 << 20, all: (64 << 20) + (1 << 30) });
        assert_eq!(Bounds::new(2 << 20, 1 << 30).memory, 2 << 20);
        assert_eq!(Bounds::new(0, 1 << 30).memory, MEMORY_MIN);
        // No disk: memory holds all that may wait.
        assert_eq!(Bounds::new(64 << 20, 0), Bounds { memory: 64 << 20, all: 64 << 20 });
        assert!(
            Bounds::new(64 << 20, 0).check(64 << 20).is_ok() && Bounds::new(64 << 20, 0).check((64 << 20) + 1).is_err()
        );
    }
}
