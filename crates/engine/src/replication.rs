//! The state of replication: the primary that this server follows, and the progress of the link to it.
//!
//! The server runs the link itself. The link reads the wanted primary here, notes its progress here, and lets a worker
//! apply received commands ([`Replication::applied`]). The stream to this server's own replicas is in [`stream`].
//! [`peer`] and [`serving`] decide the next message to each replica, and [`replicas`] has their progress.

pub mod facts;
pub mod failover;
pub mod followed;
pub mod moving;
pub(crate) mod own_keys;
pub mod peer;
mod refusals;
pub mod replicas;
pub mod rounds;
pub mod serving;
pub mod stream;
pub mod successor;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use journal::order::Position;
use replication::id::{HistoryId, HistoryPoint};
use store::random::Random;

use crate::journal::Journal;
use crate::slow_path::{CUT_OFF, EngineFlags, REPLICA};

use self::failover::{Failover, FailoverStage};
use self::followed::StreamState;
use self::own_keys::OwnKeys;
use self::replicas::{ReplicaStage, Replicas, Wanted};
use self::rounds::Rounds;
use self::stream::{Stream, UnitMark, note_mark};

/// A server that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The progress of the link to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// There is no link; the server will try to open one.
    #[default]
    Down,
    /// The link is being opened.
    Connecting,
    /// The two servers exchange their capabilities.
    Handshake,
    /// The primary's snapshot arrives.
    Receiving,
    /// Changes arrive as they happen.
    Up,
}

impl LinkState {
    /// Returns the name of the state in the reply of ROLE.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Down => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Handshake => "handshake",
            LinkState::Receiving => "sync",
            LinkState::Up => "connected",
        }
    }
}

/// The figures of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// Its progress.
    pub state: LinkState,
    /// The time of the last loss of the link, in seconds of Unix time; 0 if it never was up.
    pub down_since_s: u64,
    /// The time of the last received bytes, in seconds of Unix time.
    pub heard_s: u64,
    /// Bytes of the history that have arrived.
    pub read: u64,
    /// Bytes of the history that have been applied.
    pub applied: u64,
    /// Bytes of the arriving snapshot, if the size is known.
    pub snapshot_bytes: Option<u64>,
    /// Bytes of the arriving snapshot that have arrived.
    pub snapshot_read: u64,
    /// The number of times that the link to the present primary came up, with the primary's data complete.
    pub ups: u64,
    /// The number of full synchronizations.
    pub full: u64,
    /// The number of partial synchronizations.
    pub partial: u64,
    /// Commands of the primary that could not be applied, so the data differ.
    pub failed: u64,
}

/// The history that the data belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Its id.
    pub id: HistoryId,
    /// The previous history, and the first offset at which this one differs from it.
    pub before: Option<(HistoryId, u64)>,
    /// True if the data equal this history up to the applied offset, so that a link can continue there.
    pub is_known: bool,
}

#[derive(Debug)]
struct Followed {
    primary: Option<Primary>,
    link: LinkFigures,
    history: History,
    /// Counts changes of `history` that end the streams of replicas.
    histories: u64,
    /// True if a replica may know the history's id.
    is_announced: bool,
    /// True while a primary's snapshot must not replace the data.
    keeps_data: bool,
    /// True while a primary's snapshot replaces the data, and after the load of one has failed.
    is_incomplete: bool,
    /// The reason that the last link could not be used, until a link succeeds.
    link_error: Option<String>,
    /// The requested failover, until it has ended.
    failover: Option<Failover>,
    /// The database that the primary's stream has selected after the applied part.
    database: usize,
    /// Positions in the stream with the last unit before each, for units that may not be on disk yet.
    unsynced: VecDeque<UnitMark>,
    /// The worker's result for its latest portion.
    applied: Option<Applied>,
}

/// The result of applying a portion of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The bytes that were taken: all, unless the log had no room for more.
    pub taken: usize,
    /// The number of commands that answered an error.
    pub failures: u64,
    /// The first error.
    pub failure: Option<String>,
    /// The reason that nothing more of the stream can be applied; the link ends then.
    pub stopped: Option<String>,
}

/// See the module's documentation.
pub struct Replication {
    /// The stream to replicas.
    pub stream: Stream,
    /// The replicas.
    pub replicas: Replicas,
    /// The parts of the primary's stream that several threads apply.
    pub rounds: Rounds,
    /// Keys that clients have written on this replica.
    pub(crate) own_keys: OwnKeys,
    state: Mutex<Followed>,
    /// Counts changes of the primary. The count changes under the lock and behind the closed gate.
    version: AtomicU64,
    changed: Condvar,
    slow_path: Arc<EngineFlags>,
    /// True if the replicas must be asked for their offsets.
    asks: AtomicBool,
    /// The source of new history ids.
    names: Mutex<Random>,
}

impl Replication {
    /// The state of a server that follows no primary. Its own history has this id.
    #[must_use]
    pub fn new(id: HistoryId, threads: usize, slow_path: Arc<EngineFlags>) -> Replication {
        let state = Followed {
            primary: None,
            link: LinkFigures::default(),
            history: History { id, before: None, is_known: false },
            histories: 0,
            is_announced: true,
            keeps_data: false,
            is_incomplete: false,
            link_error: None,
            failover: None,
            database: 0,
            unsynced: VecDeque::new(),
            applied: None,
        };
        let (stream, replicas) = (Stream::default(), Replicas::new(threads, slow_path.clone()));
        // The first id is as random as the server could make it.
        let seed = id.as_str().bytes().fold(0u64, |seed, digit| seed.rotate_left(7) ^ u64::from(digit));
        let names = Mutex::new(Random::new(seed));
        Replication {
            stream,
            replicas,
            rounds: Rounds::new(threads),
            own_keys: OwnKeys::default(),
            state: Mutex::new(state),
            version: 0.into(),
            changed: Condvar::new(),
            slow_path,
            asks: false.into(),
            names,
        }
    }

    /// Returns an id that no history has.
    fn fresh_name(&self) -> HistoryId {
        let mut random = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = [random.next(), random.next(), random.next()].map(u64::to_le_bytes);
        HistoryId::new(std::array::from_fn(|index| numbers[index / 8][index % 8]))
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a primary, or stops following. Without a primary, this server's history continues under another id.
    /// Returns false if nothing changes. All threads see the change in their next command. The caller is alone behind
    /// the gate.
    pub fn follow(&self, journal: &Journal, primary: Option<Primary>, stale_is_served: bool) -> bool {
        let mut state = self.lock();
        if state.primary == primary {
            return false;
        }
        self.slow_path.set(REPLICA, primary.is_some());
        self.slow_path.set(CUT_OFF, primary.is_some() && !stale_is_served);
        let was_active = self.stream.is_active();
        match (&primary, &state.primary) {
            (None, _) => {
                let next = state.link.applied + 1;
                let is_known = state.history.is_known && was_active;
                let before = is_known.then_some((state.history.id, next));
                (state.history, state.is_announced) = (History { id: self.fresh_name(), before, is_known: true }, true);
                if was_active {
                    self.stream.begin(journal);
                }
            }
            // The history that this server has sent to its replicas becomes its present history.
            (Some(_), None) => {
                let is_failover = state.failover.is_some();
                if let Some(FailoverStage::Follows { acknowledged }) = state.failover.as_ref().map(|f| f.stage) {
                    // The replica that takes this server's place has all units, including messages.
                    self.stream.take_back_questions(acknowledged);
                }
                self.stream.follow(journal);
                state.history.is_known = was_active;
                if !is_failover {
                    self.stream.rewind_idle();
                }
                let end = self.stream.end();
                (state.link.read, state.link.applied) = (end, end);
                // Nothing has changed since the start, and no other server knows the id that the history got then, so
                // the old id is restored.
                if !state.is_announced
                    && let Some((id, _)) = state.history.before.filter(|(_, next)| *next == end + 1)
                {
                    (state.history, state.is_announced) = (History { id, before: None, ..state.history }, true);
                }
            }
            (Some(_), Some(_)) => {
                if state.history.is_known && was_active {
                    self.stream.rewind_idle();
                    let end = self.stream.end();
                    (state.link.read, state.link.applied) = (end, end);
                }
            }
        }
        if primary.is_none() {
            self.own_keys.clear();
            state.is_incomplete = false;
        }
        state.histories += 1;
        (state.primary, state.link_error) = (primary, None);
        self.version.fetch_add(1, Ordering::Release);
        (state.link.state, state.link.snapshot_bytes, state.link.ups) = (LinkState::Down, None, 0);
        self.changed.notify_all();
        drop(state);
        self.stream.wake();
        true
    }

    /// Notes that the data equal a history up to a point, because a file with them was loaded at the start. A server
    /// that will follow a primary (`follows`) can continue there. A server without a primary continues that history
    /// under another id, because it may have had more of the history than the file has. The caller is alone behind the
    /// gate, and no command has run yet.
    pub fn resume(&self, journal: &Journal, point: HistoryPoint, follows: bool) {
        let HistoryPoint { id, offset, database } = point;
        let mut state = self.lock();
        self.stream.resume(offset);
        if follows {
            state.history = History { id, before: None, is_known: true };
            state.database = database;
        } else {
            state.history = History { id: self.fresh_name(), before: Some((id, offset + 1)), is_known: true };
            state.is_announced = false;
            self.stream.begin(journal);
        }
        (state.link.read, state.link.applied) = (offset, offset);
        state.histories += 1;
    }

    /// Returns the point in the history that equals the present data, if there is one. The caller is alone behind the
    /// gate.
    pub(crate) fn point(&self) -> Option<HistoryPoint> {
        let state = self.lock();
        let is_known = state.history.is_known && self.stream.is_active();
        let id = state.history.id;
        match &state.primary {
            _ if !is_known => None,
            Some(_) => Some(HistoryPoint { id, offset: state.link.applied, database: state.database }),
            None => self.stream.cut_for_file().map(|offset| HistoryPoint { id, offset, database: 0 }),
        }
    }

    /// Returns the history's id for a replica, and notes that a replica knows it.
    pub(crate) fn tell_name(&self) -> HistoryId {
        let mut state = self.lock();
        state.is_announced = true;
        state.history.id
    }

    /// Gives the history another id, without a predecessor. The caller is alone behind the gate.
    pub(crate) fn rename_history(&self) {
        let mut state = self.lock();
        let (id, is_known) = (self.fresh_name(), state.history.is_known);
        state.history = History { id, before: None, is_known };
        state.histories += 1;
    }

    /// Begins a stream, which is a new history, for replicas if there is none. The caller is alone behind the gate.
    pub(crate) fn begin_stream(&self, journal: &Journal) {
        let mut state = self.lock();
        if state.primary.is_none() && !self.stream.is_active() {
            state.history = History { id: self.fresh_name(), before: None, is_known: true };
            self.stream.begin(journal);
        }
    }

    /// Ends the stream, because no replica is expected back. Later writes belong to no history. The caller is alone
    /// behind the gate.
    pub fn end_stream(&self, journal: &Journal) {
        let mut state = self.lock();
        if state.primary.is_none() {
            state.history = History { id: self.fresh_name(), before: None, is_known: true };
            self.stream.end_stream(journal);
        }
    }

    /// Refuses reads while the link is down, or serves the present data (`replica-serve-stale-data`).
    pub fn serve_stale(&self, served: bool) {
        let state = self.lock();
        let is_down = state.primary.is_some() && state.link.state != LinkState::Up;
        self.slow_path.set(CUT_OFF, is_down && !served);
    }

    /// Returns the number of changes of the primary. The number doesn't change while a thread is inside the gate.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Counts applied bytes of the primary's stream, and passes them on to this server's replicas. Returns false
    /// without effect if the stream belongs to an earlier `version`.
    pub(crate) fn advance(&self, version: u64, bytes: &[u8], after: StreamState) -> bool {
        let mut state = self.lock();
        if self.version() != version {
            return false;
        }
        state.link.applied += bytes.len() as u64;
        let (position, database) = after;
        state.database = database;
        let mark = UnitMark { position, offset: state.link.applied };
        note_mark(&mut state.unsynced, mark);
        self.stream.append(bytes);
        true
    }

    /// Counts a question of the primary, which is part of its stream. See `advance`.
    pub fn pass_question(&self, version: u64, question: &[u8], position: Position) -> bool {
        let database = self.stream_database();
        self.advance(version, question, (position, database))
    }

    /// Returns the database that the primary's stream has selected after the applied part.
    #[must_use]
    pub fn stream_database(&self) -> usize {
        self.lock().database
    }

    /// Returns the end of the part of the primary's stream that is on disk, given the synced position. Returns
    /// `None` if it is unknown.
    pub fn synced_offset(&self, synced: Position) -> Option<u64> {
        let mut state = self.lock();
        let unsynced = &mut state.unsynced;
        while unsynced.get(1).is_some_and(|mark| mark.position <= synced) {
            unsynced.pop_front();
        }
        unsynced.front().filter(|mark| mark.position <= synced).map(|mark| mark.offset)
    }

    /// Returns the primary, and the number of its changes.
    #[must_use]
    pub fn primary(&self) -> (Option<Primary>, u64) {
        let state = self.lock();
        (state.primary.clone(), self.version())
    }

    /// Waits until the primary differs from the one at `version`, for `timeout` at most. Returns whether it does.
    pub fn wait_for_change(&self, version: u64, timeout: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |_| self.version() == version);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.version() != version
    }

    /// Updates the link's figures, unless they belong to an earlier `version`. Returns false in that case.
    pub fn note_link(&self, version: u64, stale_is_served: bool, note: impl FnOnce(&mut LinkFigures)) -> bool {
        let mut state = self.lock();
        if self.version() != version {
            return false;
        }
        note(&mut state.link);
        let is_down = state.link.state != LinkState::Up;
        drop(state);
        self.slow_path.set(CUT_OFF, is_down && !stale_is_served);
        true
    }

    /// Notes the reason that the primary's replies or data can't be used, or that they can. No effect if the server
    /// follows another primary than at `version`.
    pub fn note_link_error(&self, version: u64, error: Option<String>) {
        let mut state = self.lock();
        if self.version() == version {
            state.link_error = error;
        }
    }

    /// Returns the reason that the last link ended, if the primary's replies or data could not be used.
    #[must_use]
    pub fn link_error(&self) -> Option<String> {
        self.lock().link_error.clone()
    }

    /// Returns the figures of the link.
    #[must_use]
    pub fn link(&self) -> LinkFigures {
        self.lock().link
    }

    /// Returns the history that the data belong to.
    #[must_use]
    pub fn history(&self) -> History {
        self.lock().history
    }

    /// Notes the history that the data belong to. Replicas of this server must resynchronize.
    pub fn set_history(&self, history: History) {
        let mut state = self.lock();
        state.history = history;
        state.histories += 1;
        state.unsynced.clear();
        drop(state);
        self.stream.wake();
    }

    /// Returns the offset at which a replica with a part of some history can continue.
    #[must_use]
    pub fn can_go_on(&self, wanted: Wanted) -> Option<u64> {
        let Wanted::Behind(id, offset) = wanted else { return None };
        let history = self.history();
        let is_this = history.id == id;
        let is_before = history.before.is_some_and(|(before, next)| before == id && offset < next);
        let is_kept = || self.stream.with_backlog(|backlog| backlog.reaches_back_to(offset));
        (history.is_known && (is_this || is_before) && is_kept() == Some(true)).then_some(offset)
    }

    /// Returns the history that this server has a part of, and the offset of the first missing byte.
    #[must_use]
    pub fn known_part(&self) -> Option<(HistoryId, u64)> {
        let state = self.lock();
        state.history.is_known.then_some((state.history.id, state.link.applied + 1))
    }

    /// Notes that the primary continues at this server's offset, perhaps under another id.
    pub fn go_on(&self, renamed: Option<HistoryId>) {
        let (link, history) = (self.link(), self.history());
        if !self.stream.is_active() {
            self.stream.restart(link.applied);
        }
        if let Some(id) = renamed.filter(|id| *id != history.id) {
            self.set_history(History { id, before: Some((history.id, link.applied + 1)), is_known: true });
        }
    }

    /// Notes that the data belong to no history, because a primary's snapshot replaces them. Returns false without effect while the data
    /// are kept: see [`Replication::keep_data`].
    #[must_use]
    pub fn lose_history(&self) -> bool {
        let mut state = self.lock();
        if state.keeps_data {
            return false;
        }
        (state.history.is_known, state.is_incomplete) = (false, true);
        state.histories += 1;
        state.unsynced.clear();
        drop(state);
        self.stream.wake();
        true
    }

    /// Keeps the data from being replaced by a primary's snapshot, or allows it again. A replica that has asked for votes may take its
    /// primary's place at any moment, and must have its data then, even if the primary returns meanwhile. Returns true if the data belong to
    /// a history: otherwise a snapshot has begun to replace them.
    pub fn keep_data(&self, keeps: bool) -> bool {
        let mut state = self.lock();
        state.keeps_data = keeps;
        state.history.is_known
    }

    /// Returns true while a primary's snapshot replaces the data, and after the load of one has failed. A server without a primary has the
    /// data that it has.
    #[must_use]
    pub fn lacks_data(&self) -> bool {
        self.lock().is_incomplete
    }

    /// Returns true while a primary's snapshot must not replace the data.
    #[must_use]
    pub fn keeps_data(&self) -> bool {
        self.lock().keeps_data
    }

    /// Notes that the data equal a history up to a point, because its snapshot has been loaded. No effect if the server
    /// follows another primary than at `version`, or none: the data belong to no history then.
    pub fn begin_history(&self, version: u64, point: HistoryPoint) {
        let HistoryPoint { id, offset, database } = point;
        let mut state = self.lock();
        if self.version() != version {
            return;
        }
        self.stream.restart(offset);
        self.own_keys.clear();
        state.database = database;
        (state.history, state.is_incomplete) = (History { id, before: None, is_known: true }, false);
        state.histories += 1;
        state.unsynced.clear();
        let link = &mut state.link;
        (link.read, link.applied, link.full) = (offset, offset, link.full + 1);
        drop(state);
        self.stream.wake();
    }

    /// Requests the replicas' offsets, because a client waits for them.
    pub fn request_answers(&self) {
        self.asks.store(true, Ordering::SeqCst);
        self.stream.wake();
    }

    /// Returns whether the replicas must be asked, and clears the request.
    pub fn take_request(&self) -> bool {
        self.asks.swap(false, Ordering::SeqCst)
    }

    /// Ends this server's additions to the stream with a question, which replicas answer at once. The caller is alone
    /// behind the gate.
    pub(crate) fn stop_stream(&self) {
        self.stream.hold(!self.replicas.all().is_empty());
        self.stream.wake();
    }

    /// Returns whether the stream has been stopped for the end of the server.
    #[must_use]
    pub fn has_stopped_stream(&self) -> bool {
        self.stream.is_held()
    }

    /// Continues the stream after a cancelled shutdown.
    pub fn resume_stream(&self) {
        self.stream.release();
    }

    /// Returns the bytes in memory of the part of the stream that is always kept. `size` is `repl-backlog-size`.
    #[must_use]
    pub fn backlog_memory(&self, size: u64) -> u64 {
        self.stream.memory_bytes().min(size)
    }

    /// Returns whether all online replicas have this server's units. Their answers need not cover the question after
    /// the units.
    #[must_use]
    pub fn replicas_have_all(&self) -> bool {
        let end = self.stream.units_end();
        self.replicas.all().iter().all(|replica| replica.stage != ReplicaStage::Online || replica.offset >= end)
    }

    /// Returns the requested failover, if it has not ended.
    #[must_use]
    pub fn failover(&self) -> Option<Failover> {
        self.lock().failover.clone()
    }

    /// Returns whether there is a failover.
    pub(crate) fn is_failing_over(&self) -> bool {
        self.lock().failover.is_some()
    }

    /// Begins a failover.
    pub(crate) fn begin_failover(&self, failover: Failover) {
        self.lock().failover = Some(failover);
        self.stream.wake();
    }

    /// Changes the failover, if there is one.
    fn change_failover(&self, change: impl FnOnce(&mut Failover)) {
        if let Some(failover) = &mut self.lock().failover {
            change(failover);
        }
    }

    /// Notes that this server follows the replica that takes its place and has acknowledged this offset.
    pub fn note_failover_follows(&self, acknowledged: u64) {
        self.change_failover(|failover| failover.stage = FailoverStage::Follows { acknowledged });
    }

    /// Ends the failover, and returns it if there was one.
    pub(crate) fn take_failover(&self) -> Option<Failover> {
        self.lock().failover.take()
    }

    /// Like `take_failover`, unless the server follows another primary than at `version`: any failover is a different
    /// one then.
    pub(crate) fn take_failover_of(&self, version: u64) -> Option<Failover> {
        let mut state = self.lock();
        if self.version() == version { state.failover.take() } else { None }
    }

    /// Returns the number of changes of the history that end the streams of replicas.
    #[must_use]
    pub fn histories(&self) -> u64 {
        self.lock().histories
    }

    /// Returns the offset of this server's history.
    #[must_use]
    pub fn offset(&self) -> u64 {
        let state = self.lock();
        if state.primary.is_some() { state.link.applied } else { self.stream.end().max(state.link.applied) }
    }

    /// Notes a worker's result.
    pub fn note_applied(&self, applied: Applied) {
        self.lock().applied = Some(applied);
        self.changed.notify_all();
    }

    /// Waits until a worker has applied its portion. Returns `None` after the timeout.
    pub fn applied(&self, timeout: Duration) -> Option<Applied> {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.applied.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.applied.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> HistoryId {
        HistoryId::new([byte; 20])
    }

    #[test]
    fn a_promoted_server_continues_its_history() {
        let slow_path = Arc::<EngineFlags>::default();
        let replication = Replication::new(id(1), 1, slow_path.clone());
        let journal = Journal::new(1, slow_path.clone());
        let primary = Primary { host: "10.0.0.1".into(), port: 6379 };
        assert!(replication.follow(&journal, Some(primary.clone()), true));
        assert!(!replication.follow(&journal, Some(primary.clone()), true));
        assert!(slow_path.has(REPLICA) && !slow_path.has(CUT_OFF));
        let version = replication.primary().1;
        replication.stream.restart(50);
        replication.set_history(History { id: id(2), before: None, is_known: true });
        assert!(replication.note_link(version, true, |link| (link.state, link.applied) = (LinkState::Up, 100)));
        assert!(replication.follow(&journal, None, true));
        assert!(!slow_path.has(REPLICA));
        let History { id: fresh, before, is_known } = replication.history();
        assert_eq!((before, is_known, replication.primary().0), (Some((id(2), 101)), true, None));
        assert!(fresh != id(1) && fresh != id(2));
        // Notes of the old link come too late.
        assert!(!replication.note_link(version, true, |link| link.applied = 200));
        assert_eq!(replication.link().applied, 100);
    }

    /// The server follows another primary, or none, when the snapshot is loaded. The loaded data are useless then, and
    /// of no known history.
    #[test]
    fn a_snapshot_of_a_former_primary_begins_no_history() {
        let replication = Replication::new(id(1), 1, Arc::default());
        let journal = Journal::new(1, Arc::default());
        let primary = |port| Some(Primary { host: "10.0.0.1".into(), port });
        replication.follow(&journal, primary(1), true);
        let version = replication.primary().1;
        assert!(replication.lose_history());
        replication.follow(&journal, primary(2), true);
        replication.begin_history(version, HistoryPoint { id: id(2), offset: 70, database: 3 });
        assert_eq!((replication.known_part(), replication.stream_database(), replication.offset()), (None, 0, 0));
        let version = replication.primary().1;
        replication.begin_history(version, HistoryPoint { id: id(2), offset: 70, database: 3 });
        assert_eq!((replication.known_part(), replication.stream_database()), (Some((id(2), 71)), 3));
    }

    /// Only this server knows the id that its history got at the start, until a replica learns it.
    #[test]
    fn an_unchanged_server_keeps_the_history_of_its_file() {
        for (is_announced, known) in [(false, Some((id(7), 51))), (true, None)] {
            let replication = Replication::new(id(1), 1, Arc::default());
            let journal = Journal::new(1, Arc::default());
            replication.resume(&journal, HistoryPoint { id: id(7), offset: 50, database: 1 }, false);
            let fresh = replication.history().id;
            assert_eq!(replication.can_go_on(Wanted::Behind(id(7), 50)), Some(50));
            assert_eq!([49, 51].map(|offset| replication.can_go_on(Wanted::Behind(id(7), offset))), [None, None]);
            if is_announced {
                replication.tell_name();
            }
            // A ping is no change.
            replication.stream.ping();
            replication.follow(&journal, Some(Primary { host: "10.0.0.1".into(), port: 1 }), true);
            assert_eq!(replication.known_part(), known.or(Some((fresh, 51))));
        }
    }

    #[test]
    fn reads_are_refused_while_cut_off_if_configured() {
        let slow_path = Arc::<EngineFlags>::default();
        let replication = Replication::new(id(1), 1, slow_path.clone());
        let journal = Journal::new(1, slow_path.clone());
        replication.follow(&journal, Some(Primary { host: "a".into(), port: 1 }), false);
        assert!(slow_path.has(CUT_OFF));
        let version = replication.primary().1;
        replication.note_link(version, false, |link| link.state = LinkState::Up);
        assert!(!slow_path.has(CUT_OFF));
        replication.note_link(version, false, |link| link.state = LinkState::Down);
        assert!(slow_path.has(CUT_OFF));
        replication.serve_stale(true);
        assert!(!slow_path.has(CUT_OFF));
    }
}
