//! Exports: the source's side of moves of slots. One thread carries them out, one after another.
//!
//! The thread connects to the target and sends ESTABLISH. The snapshot of the slots and a reader of the journal begin at the same
//! moment, behind the closed gate. The thread sends the snapshot, then the changes of the slots since that moment. Changes that the
//! target has not taken wait in memory, and on disk beyond some megabytes. After the target's REQUEST-PAUSE, and once the target has
//! nearly caught up, writes to the slots are held ([`approach`]). The target gets the last changes, PAUSED and, if it asks for them, the
//! slots (FAILOVER-GRANTED). The export ends when the bus shows the target's claim. The node then deletes the keys, as for any lost slot.
//!
//! Only this thread ends the hold. A grant is therefore never followed by a write that the target lacks, unless the target claims the
//! slots later than [`Export::claim_time`].

mod approach;
mod link;
mod outgoing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use cluster::SlotView;
use config::{ClientClass, LogLevel};
use engine::inbox::Message;
use engine::pause::PausePurpose;
use engine::replay::{SlotFeed, TargetMessage, TargetMessages};
use engine::slots::jobs::{JobState, Operation, SlotJob};
use engine::snapshots::{BegunSlots, CannotBegin, Outcome, Outlet, Piece, SlotsHandover, WantedSlots};
use engine::state::Engine;
use journal::merge::Merge;
use journal::order::Position;

use self::approach::Approach;
use self::link::TargetLink;
use self::outgoing::Outgoing;
use super::in_ms;
use crate::log;
use crate::threads;
use crate::time::now_us;

/// Wait while nothing is expected from the journal.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Wait for units of the journal and for the snapshot, which do not wake the thread.
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

/// Starts the thread.
///
/// # Errors
/// The reason why it can't start.
pub fn start(engine: &'static Engine) -> Result<(), String> {
    let run = move || {
        while let Some(job) = engine.slots.jobs.next_export() {
            Export::new(engine, job).run();
        }
    };
    threads::spawn(&threads::SLOT_EXPORT, run).map(drop).map_err(threads::cannot_start)
}

/// The snapshot that is being made.
struct SlotSnapshot {
    outlet: Arc<Outlet>,
    pieces: Receiver<Piece>,
    /// Bytes that were taken and not reported as done.
    undone: usize,
    /// True if all pieces have come.
    has_all: bool,
}

/// The hold of writes.
struct Hold {
    began: Instant,
    /// The last unit that the target must have, and the time at which it became known. None as long as the hold may end without the
    /// handover.
    end: Option<(Position, Instant)>,
    /// True once the target has been sent all changes up to the end, or they are on their way.
    is_told: bool,
}

impl Hold {
    /// Returns the parts of a hold that led to a grant, as text.
    fn parts(&self, granted: Option<Instant>, now: Instant) -> Option<String> {
        let ((_, ended), granted) = (self.end?, granted?);
        Some(format!(
            " ({:.3} until few changes were left, {:.3} until the target had all, {:.3} until it had claimed the slots)",
            in_ms(ended.saturating_duration_since(self.began)),
            in_ms(granted.saturating_duration_since(ended)),
            in_ms(now.saturating_duration_since(granted))
        ))
    }
}

/// An export that is carried out.
struct Export {
    engine: &'static Engine,
    job: Arc<SlotJob>,
    /// None before the connection, and after its end once the slots are granted.
    link: Option<TargetLink>,
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
    granted: Option<Instant>,
    chunk: Vec<u8>,
    heard: Instant,
    told: Instant,
    looked: Instant,
}

impl Export {
    fn new(engine: &'static Engine, job: Arc<SlotJob>) -> Export {
        let now = Instant::now();
        let (snapshot_feed, change_feed) = (SlotFeed::new(job.slots.clone()), SlotFeed::new(job.slots.clone()));
        Export {
            engine,
            job,
            link: None,
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
            granted: None,
            chunk: Vec::new(),
            heard: now,
            told: now,
            looked: now,
        }
    }

    fn run(mut self) {
        log::notice(format!("The export {} of the slots {} begins", self.job.name, self.job.ranges));
        let ended = self.establish().and_then(|()| self.follow());
        self.let_go();
        // The target learns a failure from the end of the connection.
        self.link = None;
        self.end_snapshot();
        if let Some(changes) = self.changes.take() {
            self.engine.journal.end(&self.engine.keyspace, changes);
        }
        let (jobs, job) = (&self.engine.slots.jobs, &self.job);
        job.note_remaining(0);
        self.engine.slots.jobs.bytes.export_memory.store(0, Ordering::Relaxed);
        match ended {
            Ok(()) => {
                log::notice(format!("The export {} is complete: the target has the slots", job.name));
                jobs.end(job, JobState::Success, "", now_s());
            }
            Err(why) => {
                let (state, slots) = (job.failed_state(), &job.ranges);
                log::warning(format!("The export {} of the slots {slots} has {}: {why}", job.name, state.name()));
                jobs.end(job, state, &why, now_s());
            }
        }
    }

    /// Ends the hold of writes.
    fn let_go(&mut self) {
        let parts = self.hold.as_ref().and_then(|hold| hold.parts(self.granted, Instant::now())).unwrap_or_default();
        if let Some(held) = self.release() {
            let (name, brakes) = (&self.job.name, self.brakes);
            log::notice(format!(
                "Writes to the slots of {name} were held for {:.3} ms{parts}, after {brakes} shorter holds",
                in_ms(held)
            ));
        }
    }

    /// Lets held writes go on. Returns the time for which they were held.
    fn release(&mut self) -> Option<Duration> {
        let hold = self.hold.take()?;
        self.engine.let_slots_go(&self.job.slots);
        let held = hold.began.elapsed();
        self.job.note_hold(held);
        Some(held)
    }

    fn enter(&self, state: JobState) {
        log::write(LogLevel::Verbose, &format!("The export {} enters the state {}", self.job.name, state.name()));
        self.job.enter(state, now_s());
    }

    /// Connects to the target, logs in, and asks it to import the slots.
    fn establish(&mut self) -> Result<(), String> {
        self.check()?;
        let cannot = |why: String| format!("Unable to connect to target node: {why}");
        let mut link = self.connect().map_err(cannot)?;
        while !link.wait_for_connection(LOOK_EVERY) {
            self.check()?;
        }
        while !link.connect().map_err(|error| cannot(error.to_string()))? {
            link.wait(false, LOOK_EVERY);
            self.check()?;
        }
        self.log_in(&mut link)?;
        self.request(&mut link)?;
        self.link = Some(link);
        self.want_snapshot();
        self.tell("ACK");
        Ok(())
    }

    /// Begins to connect to the target.
    fn connect(&self) -> Result<TargetLink, String> {
        let view = self.engine.slots.view().ok_or(NOT_MINE)?;
        let target = self.job.nodes.as_ref().map(|nodes| nodes.target.as_str());
        let node = view.nodes.iter().find(|node| Some(node.id.as_str()) == target);
        TargetLink::open(node.ok_or("target node not found")?, &self.engine.settings)
    }

    fn log_in(&mut self, link: &mut TargetLink) -> Result<(), String> {
        let settings = &self.engine.settings;
        let (user, password) = (settings.masteruser.get(), settings.masterauth.get());
        if password.is_empty() {
            return Ok(());
        }
        self.enter(JobState::ReadingAuthResponse);
        let words = if user.is_empty() { vec!["AUTH", &password] } else { vec!["AUTH", &user, &password] };
        let answer = self.ask(link, &words).and_then(accepted);
        answer.map_err(|why| format!("Failed to AUTH to target node: {why}"))
    }

    /// Asks the target to import the slots.
    fn request(&mut self, link: &mut TargetLink) -> Result<(), String> {
        self.enter(JobState::ReadingEstablishResponse);
        // A target other than Penstock answers an error.
        if self.ask(link, &["CLUSTER", "SYNCSLOTS", "REPORT-PROGRESS"])?.starts_with('+') {
            self.approach.expect_reports();
        }
        let job = self.job.clone();
        let source = job.nodes.as_ref().map(|nodes| nodes.source.as_str()).unwrap_or_default();
        let ends = job.ranges.0.iter().flat_map(|range| [range.first, range.last]);
        let slots: Vec<_> = ends.map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "SYNCSLOTS", "ESTABLISH", "SOURCE", source, "NAME", &job.name, "SLOTSRANGE"];
        words.extend(slots.iter().map(String::as_str));
        let answer = self.ask(link, &words).and_then(accepted);
        answer.map_err(|why| format!("Received error during handshake to target: {why}"))
    }

    /// Sends a request, and waits for the answer.
    fn ask(&mut self, link: &mut TargetLink, words: &[&str]) -> Result<String, String> {
        link.send(words, self.timeout()).map_err(|error| error.to_string())?;
        loop {
            if let Some(line) = link.take_line() {
                self.heard = Instant::now();
                return Ok(line);
            }
            if !link.read().map_err(|error| error.to_string())? {
                link.wait(false, LOOK_EVERY);
            }
            self.check()?;
        }
    }

    fn want_snapshot(&mut self) {
        let handover = Arc::<SlotsHandover>::default();
        self.wanted = Some(handover.clone());
        self.enter(JobState::WaitingToSnapshot);
        self.engine.snapshots.want_slots(WantedSlots::new(self.job.slots.clone(), handover));
        if let Some(inbox) = self.engine.inboxes.first() {
            inbox.send(Message::Look);
        }
    }

    /// Sends the slots until the target has claimed them.
    fn follow(&mut self) -> Result<(), String> {
        loop {
            let mut has_worked = self.read()?;
            has_worked |= self.take_snapshot()?;
            has_worked |= self.take_changes()?;
            has_worked |= self.send()?;
            if self.advance()? {
                return Ok(());
            }
            self.check()?;
            if !has_worked {
                self.wait();
            }
        }
    }

    fn wait(&self) {
        let timeout = if self.changes.is_some() || self.wanted.is_some() { DOZE } else { LOOK_EVERY };
        let bytes = if self.has_sent_snapshot() { &self.change_bytes } else { &self.snapshot_bytes };
        match &self.link {
            Some(link) => _ = link.wait(bytes.unsent() > 0, timeout),
            None => std::thread::sleep(timeout),
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

    /// The time after the grant in which the target must claim the slots.
    fn claim_time(&self) -> Duration {
        self.hold_time().max(CLAIM_TIME_MIN)
    }

    /// Reads and obeys the target's messages.
    fn read(&mut self) -> Result<bool, String> {
        match self.read_messages() {
            // The target may have claimed the slots: the hold goes on.
            Err(_) if self.granted.is_some() => {
                self.link = None;
                Ok(false)
            }
            read => read,
        }
    }

    fn read_messages(&mut self) -> Result<bool, String> {
        let Some(link) = &mut self.link else { return Ok(false) };
        let has_read = link.read().map_err(|_| LOST)?;
        while let Some(link) = &mut self.link
            && let Some((message, end)) = self.messages.next(&link.input)?
        {
            link.input.drain(..end);
            self.heard = Instant::now();
            self.obey(message)?;
        }
        Ok(has_read)
    }

    fn obey(&mut self, message: TargetMessage) -> Result<(), String> {
        match (message, self.job.state()) {
            (TargetMessage::Ack, _) => self.job.note_ack(now_s()),
            (TargetMessage::Other, _) => {}
            (TargetMessage::Applied(bytes), _) => {
                let written = self.written();
                self.approach.note_applied(bytes, written, Instant::now())?;
            }
            (TargetMessage::RequestPause, JobState::Snapshotting | JobState::Replicating)
                if self.has_sent_snapshot() =>
            {
                self.enter(JobState::WaitingToPause);
            }
            (TargetMessage::RequestFailover, JobState::FailoverPaused) => self.grant()?,
            _ => return Err(UNEXPECTED.into()),
        }
        Ok(())
    }

    /// Takes pieces of the snapshot.
    fn take_snapshot(&mut self) -> Result<bool, String> {
        let Some(snapshot) = &mut self.snapshot else { return Ok(false) };
        let mut has_taken = false;
        for _ in 0..TAKEN_AT_ONCE {
            match snapshot.pieces.try_recv() {
                Ok(Piece::Bytes(bytes)) => {
                    has_taken = true;
                    snapshot.undone += bytes.len();
                    self.snapshot_feed.snapshot(&bytes, &mut self.chunk);
                    let kept = self.snapshot_bytes.append(self.engine, &self.chunk, SNAPSHOT_BYTES_MAX);
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
            self.close_snapshot(Outcome::Saved { bytes: 0 });
            self.snapshot_bytes.push(&syncslots("SNAPSHOT-EOF"));
        }
        Ok(has_taken)
    }

    fn delay_us(&self) -> u64 {
        self.engine.settings.rdb_key_save_delay_us.get().max(0).unsigned_abs()
    }

    /// Lets the next snapshot begin.
    fn close_snapshot(&mut self, outcome: Outcome) {
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.outlet.note_done(snapshot.undone);
            self.engine.snapshots.note_pending(0);
            self.engine.snapshots.note_ended(outcome, now_s());
            self.engine.follow_snapshots();
        }
    }

    /// Withdraws the request for a snapshot, or ends the snapshot without success.
    fn end_snapshot(&mut self) {
        if let Some(wanted) = self.wanted.take() {
            self.engine.snapshots.forget_slots();
            if let Some(begun) = wanted.withdraw() {
                self.begin(begun);
            }
        }
        let Some(snapshot) = &mut self.snapshot else { return };
        snapshot.outlet.note_broken();
        while !snapshot.has_all {
            match snapshot.pieces.recv() {
                Ok(Piece::Bytes(bytes) | Piece::Part { bytes, .. }) => {
                    snapshot.outlet.note_done(bytes.len());
                    self.engine.snapshots.note_pending(snapshot.outlet.pending());
                }
                Ok(Piece::RecordEnd(_)) => {}
                Ok(Piece::Whole | Piece::Cancelled) | Err(_) => snapshot.has_all = true,
            }
        }
        self.close_snapshot(Outcome::Cancelled);
    }

    fn begin(&mut self, begun: BegunSlots) {
        let BegunSlots { outlet, pieces, changes } = begun;
        self.wanted = None;
        self.snapshot = Some(SlotSnapshot { outlet, pieces, undone: 0, has_all: false });
        self.changes = Some(changes);
    }

    /// Returns true once the target has been sent the whole snapshot.
    fn has_sent_snapshot(&self) -> bool {
        self.wanted.is_none() && self.snapshot.is_none() && self.snapshot_bytes.unsent() == 0
    }

    /// Takes units of the journal.
    fn take_changes(&mut self) -> Result<bool, String> {
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
            let kept = self.change_bytes.append(self.engine, &self.chunk, bounds.memory);
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
        self.told = Instant::now();
        self.bytes().push(&syncslots(message));
    }

    /// Returns the part of the stream that is sent now.
    fn bytes(&mut self) -> &mut Outgoing {
        if self.has_sent_snapshot() { &mut self.change_bytes } else { &mut self.snapshot_bytes }
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) -> Result<bool, String> {
        let mut has_sent = false;
        for _ in 0..WRITES_AT_ONCE {
            let is_snapshot = !self.has_sent_snapshot();
            let Some(link) = &mut self.link else { return Ok(false) };
            let bytes = if is_snapshot { &mut self.snapshot_bytes } else { &mut self.change_bytes };
            match link.flush().and_then(|()| bytes.send(link)) {
                Ok(false) => break,
                Ok(true) => (has_sent, self.told) = (true, Instant::now()),
                Err(_) if self.granted.is_some() => {
                    self.link = None;
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
    fn advance(&mut self) -> Result<bool, String> {
        match self.job.state() {
            JobState::WaitingToSnapshot => {
                let begun = self.wanted.as_ref().map_or(Err(CannotBegin), |wanted| wanted.take());
                let begun = begun.map_err(|CannotBegin| NOT_BEGUN)?;
                if let Some(begun) = begun {
                    self.begin(begun);
                    self.enter(JobState::Snapshotting);
                }
            }
            JobState::Snapshotting if self.has_sent_snapshot() => self.enter(JobState::Replicating),
            JobState::WaitingToPause => self.pause(Instant::now()),
            JobState::FailoverPaused if self.hold_is_over() => return Err(NOT_APPLIED.into()),
            JobState::FailoverGranted => {
                if self.is_claimed() {
                    return Ok(true);
                }
                if self.granted.is_none_or(|granted| granted.elapsed() > self.claim_time()) {
                    log::warning(format!(
                        "The target of the export {} was granted the slots and has not claimed them. If it does so later, \
                         writes of clients from now on are lost",
                        self.job.name
                    ));
                    return Err(NOT_CLAIMED.into());
                }
            }
            _ => {}
        }
        Ok(false)
    }

    /// The number of bytes of the stream that the link has taken.
    fn written(&self) -> u64 {
        self.snapshot_bytes.sent() + self.change_bytes.sent()
    }

    /// Holds writes to the slots once the target has nearly caught up, or for a moment so that it catches up.
    fn pause(&mut self, now: Instant) {
        let prevents_pause = self.engine.slots.jobs.prevents_pause.load(Ordering::Relaxed);
        // The units that have not been taken: those of other slots count, too.
        let (position, taken) = (self.engine.journal.position(), self.changes.as_ref().map(Merge::position));
        let is_behind = taken.is_some_and(|taken| position.saturating_sub(taken) > FEW_UNITS);
        let max = u64::try_from(self.engine.settings.slot_migration_max_failover_repl_bytes.get()).ok();
        let unsent = self.change_bytes.unsent();
        let in_kernel = self.link.as_ref().map_or(0, TargetLink::bytes_on_way);
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
                self.engine.announce_migrating(&self.job.slots, now_us() / 1000);
                self.enter(JobState::FailoverPaused);
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
        self.hold.as_ref().is_none_or(|hold| hold.began.elapsed() > self.hold_time())
    }

    /// Grants the slots to the target.
    fn grant(&mut self) -> Result<(), String> {
        if self.hold_is_over() {
            return Err(NOT_PAUSED.into());
        }
        if !self.hold.as_ref().is_some_and(|hold| hold.is_told) {
            return Err(UNEXPECTED.into());
        }
        self.take_changes()?;
        self.check_owner()?;
        self.job.grant(now_s())?;
        self.granted = Some(Instant::now());
        self.tell("FAILOVER-GRANTED");
        Ok(())
    }

    /// Checks that the export goes on, and sends a sign of life if one is due.
    fn check(&mut self) -> Result<(), String> {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.end_cancelled();
            if self.granted.is_none() {
                self.check_owner()?;
            }
        }
        if self.granted.is_some() {
            return Ok(());
        }
        if let Some(why) = self.job.asked_failure() {
            return Err(why);
        }
        if self.heard.elapsed() > self.timeout() {
            return Err(SILENT.into());
        }
        let is_due = self.link.is_some() && self.hold.is_none() && self.told.elapsed() >= ACK_EVERY;
        if is_due && self.bytes().unsent() == 0 {
            self.tell("ACK");
        }
        Ok(())
    }

    /// Ends the exports that an operator has cancelled while they waited for this one.
    fn end_cancelled(&self) {
        let jobs = &self.engine.slots.jobs;
        for job in jobs.under_way_as(Operation::Export) {
            if job.name != self.job.name
                && let Some(why) = job.asked_failure()
            {
                jobs.end(&job, job.failed_state(), &why, now_s());
            }
        }
    }

    /// Checks that this node still has all slots.
    fn check_owner(&self) -> Result<(), String> {
        let view = self.engine.slots.view().ok_or(NOT_MINE)?;
        if self.engine.pause.holds_for(PausePurpose::ManualFailover, now_us() / 1000) {
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
        // A panic of the thread must not hold writes for ever.
        self.let_go();
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

/// Returns an answer that is no error.
fn accepted(line: String) -> Result<(), String> {
    if line.starts_with('-') { Err(line) } else { Ok(()) }
}

/// Returns a message as a request.
fn syncslots(message: &str) -> Vec<u8> {
    format!("*3\r\n$7\r\nCLUSTER\r\n$9\r\nSYNCSLOTS\r\n${}\r\n{message}\r\n", message.len()).into_bytes()
}

fn now_s() -> u64 {
    now_us() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_tells_its_parts_once_the_slots_are_granted() {
        let began = Instant::now();
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
