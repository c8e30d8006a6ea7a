//! The primary that this server follows, if it does, and how far it is: what REPLICAOF asks for, and what the link's thread tells.
//!
//! The link itself is the server's affair. It takes from here what is wanted, and notes here what it has; it has a worker apply what has
//! arrived ([`Replication::applied`]). What this server sends its own replicas is in [`stream`], what each of them is sent next in
//! [`peer`] and [`serving`], and how far they are in [`replicas`].

pub mod failover;
pub mod followed;
pub mod peer;
mod refusals;
pub mod replicas;
pub mod rounds;
pub mod serving;
pub mod stream;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use journal::order::Position;
use replication::id::{HistoryId, HistoryPoint};
use store::random::Random;

use crate::journal::Journal;
use crate::reasons::{CUT_OFF, EngineReasons, REPLICA};

use self::failover::{Failover, FailoverStage};
use self::followed::StreamState;
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

/// How far the link to the primary is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// There is none, and one will be tried.
    #[default]
    Down,
    /// It is being opened.
    Connecting,
    /// The two introduce themselves.
    Handshake,
    /// The primary's snapshot arrives.
    Receiving,
    /// Changes arrive as they happen.
    Up,
}

impl LinkState {
    /// As ROLE says it.
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

/// What is known of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// How far it is.
    pub state: LinkState,
    /// Since when it has not been up, in seconds of Unix time; 0 if it never was.
    pub down_since_s: u64,
    /// When something last came through it, likewise.
    pub heard_s: u64,
    /// Bytes of the history that have arrived.
    pub read: u64,
    /// Bytes of the history that have been applied.
    pub applied: u64,
    /// Bytes of the snapshot that arrives, if that is known, and how many have arrived.
    pub snapshot_bytes: Option<u64>,
    /// See `snapshot_bytes`.
    pub snapshot_read: u64,
    /// Snapshots that were loaded, and times that the link went on where it was.
    pub full: u64,
    /// See `full`.
    pub partial: u64,
    /// Commands of the primary's that could not be applied: data differ.
    pub failed: u64,
}

/// Which history the data are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Its name.
    pub id: HistoryId,
    /// The one that it goes on from, and the first offset that is not that one's any more.
    pub before: Option<(HistoryId, u64)>,
    /// True if the data are what this history has up to the applied offset, so that a link can go on from there.
    pub is_known: bool,
}

#[derive(Debug)]
struct Followed {
    primary: Option<Primary>,
    link: LinkFigures,
    history: History,
    /// Counts changes of `history` after which replicas can't go on in the stream that they are sent.
    histories: u64,
    /// True if a replica may know the history's name.
    is_told: bool,
    /// Why the last link could not be used, until one can.
    link_error: Option<String>,
    /// The failover that was asked for, until it has ended.
    failover: Option<Failover>,
    /// The database that the primary's stream has selected behind what has been applied of it.
    database: usize,
    /// Places in the stream with the last unit before each, as far as that has yet to be on disk.
    unsynced: VecDeque<UnitMark>,
    /// What a worker has applied of the portion that it was given last.
    applied: Option<Applied>,
}

/// What has become of a portion of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes of it that were taken: all, unless the log had no room for more.
    pub taken: usize,
    /// Commands that answered an error, and the first error.
    pub failures: u64,
    /// See `failures`.
    pub failure: Option<String>,
}

/// See the module's documentation.
pub struct Replication {
    /// What replicas are sent.
    pub stream: Stream,
    /// The replicas.
    pub replicas: Replicas,
    /// What several threads apply of the primary's stream.
    pub rounds: Rounds,
    state: Mutex<Followed>,
    /// Counts changes of the primary. Changed under the lock and behind the closed gate.
    version: AtomicU64,
    changed: Condvar,
    reasons: Arc<EngineReasons>,
    /// Whether the replicas are to be asked how far they are.
    asks: AtomicBool,
    /// What names of histories are made of.
    names: Mutex<Random>,
}

impl Replication {
    /// Nothing is followed; this server's own history has this name.
    #[must_use]
    pub fn new(id: HistoryId, threads: usize, reasons: Arc<EngineReasons>) -> Replication {
        let state = Followed {
            primary: None,
            link: LinkFigures::default(),
            history: History { id, before: None, is_known: false },
            histories: 0,
            is_told: true,
            link_error: None,
            failover: None,
            database: 0,
            unsynced: VecDeque::new(),
            applied: None,
        };
        let (stream, replicas) = (Stream::default(), Replicas::new(threads, reasons.clone()));
        // The first name is as random as the server could make it.
        let seed = id.as_str().bytes().fold(0u64, |seed, digit| seed.rotate_left(7) ^ u64::from(digit));
        let names = Mutex::new(Random::new(seed));
        Replication {
            stream,
            replicas,
            rounds: Rounds::new(threads),
            state: Mutex::new(state),
            version: 0.into(),
            changed: Condvar::new(),
            reasons,
            asks: false.into(),
            names,
        }
    }

    /// A name that no history has.
    fn fresh_name(&self) -> HistoryId {
        let mut random = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = [random.next(), random.next(), random.next()].map(u64::to_le_bytes);
        HistoryId::new(std::array::from_fn(|index| numbers[index / 8][index % 8]))
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        // What is behind the lock is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a primary, or none from here on. Without one, this server's history goes on under another name. False if it is so
    /// already. All threads see the change in what they run next. The caller is alone behind the gate.
    pub fn follow(&self, journal: &Journal, primary: Option<Primary>, stale_is_served: bool) -> bool {
        let mut state = self.lock();
        if state.primary == primary {
            return false;
        }
        self.reasons.set(REPLICA, primary.is_some());
        self.reasons.set(CUT_OFF, primary.is_some() && !stale_is_served);
        let was_active = self.stream.is_active();
        match (&primary, &state.primary) {
            (None, _) => {
                let next = state.link.applied + 1;
                let is_known = state.history.is_known && was_active;
                let before = is_known.then_some((state.history.id, next));
                (state.history, state.is_told) = (History { id: self.fresh_name(), before, is_known: true }, true);
                if was_active {
                    self.stream.begin(journal);
                }
            }
            // What this server has sent its replicas is the history that it has now.
            (Some(_), None) => {
                self.stream.follow(journal);
                state.history.is_known = was_active;
                // A replica that takes this server's place in a failover that was asked for has all of the stream.
                if state.failover.is_none() {
                    self.stream.take_back_idle();
                }
                let end = self.stream.end();
                (state.link.read, state.link.applied) = (end, end);
                // Nothing has changed since the start, and no other server knows the name that the history has had since then.
                if !state.is_told
                    && let Some((id, _)) = state.history.before.filter(|(_, next)| *next == end + 1)
                {
                    (state.history, state.is_told) = (History { id, before: None, ..state.history }, true);
                }
            }
            (Some(_), Some(_)) => {
                if state.history.is_known && was_active {
                    self.stream.take_back_idle();
                    let end = self.stream.end();
                    (state.link.read, state.link.applied) = (end, end);
                }
            }
        }
        state.histories += 1;
        (state.primary, state.link_error) = (primary, None);
        self.version.fetch_add(1, Ordering::Release);
        (state.link.state, state.link.snapshot_bytes) = (LinkState::Down, None);
        self.changed.notify_all();
        drop(state);
        self.stream.wake();
        true
    }

    /// The data are what a history has up to a point: a file of it was loaded at the start. A server that is to follow a primary
    /// (`follows`) can go on there with it. One that follows none goes on from that history under another name, since it may have had more of
    /// it that the file lacks. The caller is alone behind the gate, and no command has run yet.
    pub fn resume(&self, journal: &Journal, point: HistoryPoint, follows: bool) {
        let HistoryPoint { id, offset, database } = point;
        let mut state = self.lock();
        self.stream.resume(offset);
        if follows {
            state.history = History { id, before: None, is_known: true };
            state.database = database;
        } else {
            state.history = History { id: self.fresh_name(), before: Some((id, offset + 1)), is_known: true };
            state.is_told = false;
            self.stream.begin(journal);
        }
        (state.link.read, state.link.applied) = (offset, offset);
        state.histories += 1;
    }

    /// What the data are at this moment, if a history has them. The caller is alone behind the gate.
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

    /// The history's name, which a replica is told.
    pub(crate) fn tell_name(&self) -> HistoryId {
        let mut state = self.lock();
        state.is_told = true;
        state.history.id
    }

    /// Gives the history another name, which goes on from none. The caller is alone behind the gate.
    pub(crate) fn rename_history(&self) {
        let mut state = self.lock();
        let (id, is_known) = (self.fresh_name(), state.history.is_known);
        state.history = History { id, before: None, is_known };
        state.histories += 1;
    }

    /// Has there be a stream that replicas can be sent, if there is none. It is a new history. The caller is alone behind the gate.
    pub(crate) fn begin_stream(&self, journal: &Journal) {
        let mut state = self.lock();
        if state.primary.is_none() && !self.stream.is_active() {
            state.history = History { id: self.fresh_name(), before: None, is_known: true };
            self.stream.begin(journal);
        }
    }

    /// Ends the stream, since no replica is expected back. What is written from here on is in no history. The caller is alone behind the
    /// gate.
    pub fn end_stream(&self, journal: &Journal) {
        let mut state = self.lock();
        if state.primary.is_none() {
            state.history = History { id: self.fresh_name(), before: None, is_known: true };
            self.stream.end_stream(journal);
        }
    }

    /// Refuses reads while the link is down, or serves what there is (`replica-serve-stale-data`).
    pub fn serve_stale(&self, served: bool) {
        let state = self.lock();
        let is_down = state.primary.is_some() && state.link.state != LinkState::Up;
        self.reasons.set(CUT_OFF, is_down && !served);
    }

    /// How often the primary has changed. It doesn't change while a thread is inside the gate.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Counts bytes of the primary's stream that have been applied, and has this server's replicas be sent them, unless the stream is that
    /// of an earlier `version`. False if it is.
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

    /// Counts a question of the primary's, which is a part of its stream as commands are. See `advance`.
    pub fn pass_question(&self, version: u64, question: &[u8], position: Position) -> bool {
        let database = self.stream_database();
        self.advance(version, question, (position, database))
    }

    /// The database that the primary's stream has selected behind what has been applied of it.
    #[must_use]
    pub fn stream_database(&self) -> usize {
        self.lock().database
    }

    /// Bytes of the primary's stream whose units are on disk, now that this one is: none, if that isn't known.
    pub fn synced_offset(&self, synced: Position) -> Option<u64> {
        let mut state = self.lock();
        let unsynced = &mut state.unsynced;
        while unsynced.get(1).is_some_and(|mark| mark.position <= synced) {
            unsynced.pop_front();
        }
        unsynced.front().filter(|mark| mark.position <= synced).map(|mark| mark.offset)
    }

    /// The primary that is followed, and how often that has changed.
    #[must_use]
    pub fn primary(&self) -> (Option<Primary>, u64) {
        let state = self.lock();
        (state.primary.clone(), self.version())
    }

    /// Waits until another primary is to be followed than at `version`, or none, but no longer than this. True if it is so.
    pub fn wait_for_change(&self, version: u64, timeout: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |_| self.version() == version);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.version() != version
    }

    /// Notes what is new of the link, unless it belongs to an earlier `version`. True if it doesn't.
    pub fn note_link(&self, version: u64, stale_is_served: bool, note: impl FnOnce(&mut LinkFigures)) -> bool {
        let mut state = self.lock();
        if self.version() != version {
            return false;
        }
        note(&mut state.link);
        let is_down = state.link.state != LinkState::Up;
        drop(state);
        self.reasons.set(CUT_OFF, is_down && !stale_is_served);
        true
    }

    /// Notes why what the primary says or sends can't be used, or that it can. Without effect if another primary is followed than at
    /// `version`.
    pub fn note_link_error(&self, version: u64, error: Option<String>) {
        let mut state = self.lock();
        if self.version() == version {
            state.link_error = error;
        }
    }

    /// Why what the primary says or sends can't be used, if the last link has ended for that.
    #[must_use]
    pub fn link_error(&self) -> Option<String> {
        self.lock().link_error.clone()
    }

    /// What is known of the link.
    #[must_use]
    pub fn link(&self) -> LinkFigures {
        self.lock().link
    }

    /// The history that the data are from.
    #[must_use]
    pub fn history(&self) -> History {
        self.lock().history
    }

    /// Notes the history that the data are from. Replicas of this server ask anew where they can go on.
    pub fn set_history(&self, history: History) {
        let mut state = self.lock();
        state.history = history;
        state.histories += 1;
        state.unsynced.clear();
        drop(state);
        self.stream.wake();
    }

    /// Where a replica can go on that has everything up to some offset of some history.
    #[must_use]
    pub fn can_go_on(&self, wanted: Wanted) -> Option<u64> {
        let Wanted::Behind(id, offset) = wanted else { return None };
        let history = self.history();
        let is_this = history.id == id;
        let is_before = history.before.is_some_and(|(before, next)| before == id && offset < next);
        let is_kept = || self.stream.with_backlog(|backlog| backlog.reaches_back_to(offset));
        (history.is_known && (is_this || is_before) && is_kept() == Some(true)).then_some(offset)
    }

    /// The history that this server has a part of, and the offset of the first byte that it lacks.
    #[must_use]
    pub fn known_part(&self) -> Option<(HistoryId, u64)> {
        let state = self.lock();
        state.history.is_known.then_some((state.history.id, state.link.applied + 1))
    }

    /// The primary goes on where this server is, perhaps under another name.
    pub fn go_on(&self, renamed: Option<HistoryId>) {
        let (link, history) = (self.link(), self.history());
        if !self.stream.is_active() {
            self.stream.restart(link.applied);
        }
        if let Some(id) = renamed.filter(|id| *id != history.id) {
            self.set_history(History { id, before: Some((history.id, link.applied + 1)), is_known: true });
        }
    }

    /// The data are no history's from here on: a primary's snapshot takes their place.
    pub fn lose_history(&self) {
        let known = self.history();
        self.set_history(History { is_known: false, ..known });
    }

    /// The data are what a history has up to a point: a snapshot of it has been loaded. Without effect if another primary is followed than
    /// at `version`, or none: then the data stay no history's.
    pub fn begin_history(&self, version: u64, point: HistoryPoint) {
        let HistoryPoint { id, offset, database } = point;
        let mut state = self.lock();
        if self.version() != version {
            return;
        }
        self.stream.restart(offset);
        state.database = database;
        state.history = History { id, before: None, is_known: true };
        state.histories += 1;
        state.unsynced.clear();
        let link = &mut state.link;
        (link.read, link.applied, link.full) = (offset, offset, link.full + 1);
        drop(state);
        self.stream.wake();
    }

    /// Has the replicas be asked how far they are: a client waits for that.
    pub(crate) fn request_answers(&self) {
        self.asks.store(true, Ordering::SeqCst);
        self.stream.wake();
    }

    /// Whether they are to be asked. From now on, they are not.
    pub fn take_request(&self) -> bool {
        self.asks.swap(false, Ordering::SeqCst)
    }

    /// Ends what this server's units add to the stream with a question, which replicas answer at once. The caller is alone behind the gate.
    pub(crate) fn stop_stream(&self) {
        self.stream.hold(!self.replicas.all().is_empty());
        self.stream.wake();
    }

    /// Whether the stream has been stopped, since the server ends.
    #[must_use]
    pub fn has_stopped_stream(&self) -> bool {
        self.stream.is_held()
    }

    /// The server doesn't end: the stream goes on.
    pub fn resume_stream(&self) {
        self.stream.release();
    }

    /// Bytes in memory of the part of the stream that is kept in any case (`size`: `repl-backlog-size`).
    #[must_use]
    pub fn backlog_memory(&self, size: u64) -> u64 {
        self.stream.memory_bytes().min(size)
    }

    /// True unless a replica lacks some of this server's units. An answer to the question behind them may not count that itself.
    #[must_use]
    pub fn replicas_have_all(&self) -> bool {
        let end = self.stream.units_end();
        self.replicas.all().iter().all(|replica| replica.stage != ReplicaStage::Online || replica.offset >= end)
    }

    /// The failover that was asked for, if it has not ended.
    #[must_use]
    pub fn failover(&self) -> Option<Failover> {
        self.lock().failover.clone()
    }

    /// Whether there is one.
    pub(crate) fn is_failing_over(&self) -> bool {
        self.lock().failover.is_some()
    }

    /// Begins a failover.
    pub(crate) fn begin_failover(&self, failover: Failover) {
        self.lock().failover = Some(failover);
        self.stream.wake();
    }

    /// Notes that this server follows the replica that takes its place.
    pub fn note_failover_follows(&self) {
        if let Some(failover) = &mut self.lock().failover {
            failover.stage = FailoverStage::Follows;
        }
    }

    /// Ends it. What it was, if there was one.
    pub(crate) fn take_failover(&self) -> Option<Failover> {
        self.lock().failover.take()
    }

    /// The same, unless another primary is followed than at `version`: then it is another failover, if any.
    pub(crate) fn take_failover_of(&self, version: u64) -> Option<Failover> {
        let mut state = self.lock();
        if self.version() == version { state.failover.take() } else { None }
    }

    /// How often the history has changed, so that replicas can't go on in the stream that they are sent.
    #[must_use]
    pub fn histories(&self) -> u64 {
        self.lock().histories
    }

    /// Bytes of the history that this server has.
    #[must_use]
    pub fn offset(&self) -> u64 {
        let state = self.lock();
        if state.primary.is_some() { state.link.applied } else { self.stream.end().max(state.link.applied) }
    }

    /// Notes what a worker has applied.
    pub fn note_applied(&self, applied: Applied) {
        self.lock().applied = Some(applied);
        self.changed.notify_all();
    }

    /// Waits until a worker has applied the portion that it was given. None if it hasn't after this time.
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
    fn a_server_that_follows_none_any_more_goes_on_from_the_history_it_had() {
        let reasons = Arc::<EngineReasons>::default();
        let replication = Replication::new(id(1), 1, reasons.clone());
        let journal = Journal::new(1, reasons.clone());
        let primary = Primary { host: "10.0.0.1".into(), port: 6379 };
        assert!(replication.follow(&journal, Some(primary.clone()), true));
        assert!(!replication.follow(&journal, Some(primary.clone()), true));
        assert!(reasons.has(REPLICA) && !reasons.has(CUT_OFF));
        let version = replication.primary().1;
        replication.stream.restart(50);
        replication.set_history(History { id: id(2), before: None, is_known: true });
        assert!(replication.note_link(version, true, |link| (link.state, link.applied) = (LinkState::Up, 100)));
        assert!(replication.follow(&journal, None, true));
        assert!(!reasons.has(REPLICA));
        let History { id: fresh, before, is_known } = replication.history();
        assert_eq!((before, is_known, replication.primary().0), (Some((id(2), 101)), true, None));
        assert!(fresh != id(1) && fresh != id(2));
        // What the old link notes is too late.
        assert!(!replication.note_link(version, true, |link| link.applied = 200));
        assert_eq!(replication.link().applied, 100);
    }

    /// Another primary is followed by then, or none: what is loaded is of no use, and of no history that is known here.
    #[test]
    fn a_snapshot_of_a_primary_that_is_followed_no_more_begins_no_history() {
        let replication = Replication::new(id(1), 1, Arc::default());
        let journal = Journal::new(1, Arc::default());
        let primary = |port| Some(Primary { host: "10.0.0.1".into(), port });
        replication.follow(&journal, primary(1), true);
        let version = replication.primary().1;
        replication.lose_history();
        replication.follow(&journal, primary(2), true);
        replication.begin_history(version, HistoryPoint { id: id(2), offset: 70, database: 3 });
        assert_eq!((replication.known_part(), replication.stream_database(), replication.offset()), (None, 0, 0));
        let version = replication.primary().1;
        replication.begin_history(version, HistoryPoint { id: id(2), offset: 70, database: 3 });
        assert_eq!((replication.known_part(), replication.stream_database()), (Some((id(2), 71)), 3));
    }

    /// The name that its history has since the start is known to none but this server, until a replica is told it.
    #[test]
    fn a_server_that_goes_on_from_a_file_is_known_by_the_files_history_while_nothing_has_changed() {
        for (is_told, known) in [(false, Some((id(7), 51))), (true, None)] {
            let replication = Replication::new(id(1), 1, Arc::default());
            let journal = Journal::new(1, Arc::default());
            replication.resume(&journal, HistoryPoint { id: id(7), offset: 50, database: 1 }, false);
            let fresh = replication.history().id;
            assert_eq!(replication.can_go_on(Wanted::Behind(id(7), 50)), Some(50));
            assert_eq!([49, 51].map(|offset| replication.can_go_on(Wanted::Behind(id(7), offset))), [None, None]);
            if is_told {
                replication.tell_name();
            }
            // A sign of life is no change.
            replication.stream.ping();
            replication.follow(&journal, Some(Primary { host: "10.0.0.1".into(), port: 1 }), true);
            assert_eq!(replication.known_part(), known.or(Some((fresh, 51))));
        }
    }

    #[test]
    fn reads_are_refused_while_cut_off_if_that_is_asked_for() {
        let reasons = Arc::<EngineReasons>::default();
        let replication = Replication::new(id(1), 1, reasons.clone());
        let journal = Journal::new(1, reasons.clone());
        replication.follow(&journal, Some(Primary { host: "a".into(), port: 1 }), false);
        assert!(reasons.has(CUT_OFF));
        let version = replication.primary().1;
        replication.note_link(version, false, |link| link.state = LinkState::Up);
        assert!(!reasons.has(CUT_OFF));
        replication.note_link(version, false, |link| link.state = LinkState::Down);
        assert!(reasons.has(CUT_OFF));
        replication.serve_stale(true);
        assert!(!reasons.has(CUT_OFF));
    }
}
