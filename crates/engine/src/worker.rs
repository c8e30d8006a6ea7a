//! A worker thread's part of the engine.

mod client_limit;
mod clock;
mod expiry;
mod windows;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::Handler;
use commands::call::{KeyRef, LazyFree, Rules};
use commands::effects::Effects;
use commands::spec::Scope;
use journal::lane::Writer;
use journal::order::Position;
use resp::reply::Output;
use resp::request::{Args, Input, Limits};
use store::db::{Access, Clock, Observed};
use store::hash::KeyHash;
use store::keyspace::ShardSet;
use store::random::Random;
use store::sync::Inside;
use store::types::hash::HashLimits;
use store::types::list::ListLimits;
use store::types::set::SetLimits;
use store::types::stream::StreamLimits;
use store::types::zset::ZSetLimits;

use crate::client::{Client, client_flag};
use crate::command_table::Command;
use crate::compaction::Progress;
use crate::engine::Engine;
use crate::eviction::{self, MemoryWatch};
use crate::execute::commit::Unit;
use crate::families;
use crate::replies::Share;
use crate::room::Overfilled;
use crate::scripts::LocalScripts;
use crate::session::{ReplyMode, Session};
use crate::stats::WorkerStats;
use crate::ticks::{Ticks, per_microsecond};
use crate::timings::Timings;
use crate::watch::DbKey;

use self::windows::Tables;

/// How long one connection may keep its thread from the others, in microseconds. Another one waits for two such turns,
/// if its request comes when the first has just begun and the next is read before it.
const YIELD_AFTER_US: f64 = 500.0;
/// Bytes of units of one thread that the log has not taken, beyond which commands that write wait: a tenth of a second of
/// writing at full speed.
const LANE_BYTES_MAX: usize = 64 << 20;

/// How long a thread doesn't try to keep others out after it has met one, in microseconds. Where several are busy they
/// wait once in that time for what one runs meanwhile, some ten microseconds.
const MEETING_US: f64 = 10_000.0;
/// What became of a connection's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// All complete requests have run; more input is needed.
    Idle,
    /// The connection has used up its time for now, and has more to run.
    Yielded,
    /// It waits in a blocking command.
    Parked,
    /// CLIENT PAUSE holds it back.
    Paused,
    /// There is no room in an inbox for what it publishes.
    Overfilled,
    /// There is no room in the log for what it writes.
    AwaitsLog,
    /// It is to be closed once its replies are sent.
    Closing,
}

/// Looks after a thread's other connections while a script keeps the thread from them.
pub trait Attendant {
    /// Runs what they send by [`Worker::run_busy`], and sends the replies.
    fn attend(&mut self, worker: &mut Worker);
}

/// Who is lent to a worker for the time of a batch.
#[derive(Default)]
struct Lent(Option<NonNull<dyn Attendant>>);

// SAFETY: a worker goes to its thread before it is lent anybody.
unsafe impl Send for Lent {}

/// How a command ended, for its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The next may run.
    Next,
    /// The next may run, once it has been framed again: the session has changed how.
    Reframe,
    /// The command has parked the connection.
    Park,
    /// The command has to wait, and was not run.
    Pause,
    /// The same, for room in an inbox for what it publishes.
    AwaitRoom,
    /// Nothing more of this connection is run.
    Close,
    /// The same, and the command was not run either: somebody has ended the connection.
    Gone,
}

/// A request with all that can be told before it runs.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    /// None: there is no such command.
    pub command: Option<&'static Command>,
    /// What runs it, if it sees keys only and has exactly one here.
    pub quick: Option<Handler>,
    pub keys_start: u32,
    pub keys_end: u32,
    /// Whether it works on a collection, which the key's entry only points to.
    pub reads_collection: bool,
    /// Whether the command takes so many arguments.
    pub fits: bool,
    /// Whether it is one whose time depends on its arguments alone.
    pub is_brief: bool,
    /// Whether it is fast, sees the session and takes no shards whatever its arguments.
    pub is_keyless: bool,
}

/// See the module's documentation.
pub struct Worker {
    /// Its number, from 0.
    pub id: usize,
    /// What all threads share.
    pub engine: &'static Engine,
    /// The time as commands see it: a millisecond old at most when one begins (see `follow_clock`).
    pub clock: Clock,
    /// The same for a session whose accesses leave no trace; made when one runs a command.
    pub(crate) untouching_clock: Clock,
    /// True while this thread replays the journal.
    pub(crate) replays: bool,
    /// Microseconds of Unix time when the turn began.
    pub now_us: u64,
    turn_began: Ticks,
    /// When `clock` was set.
    clock_set: Ticks,
    /// How old `clock` may become before somebody's commands begin to run.
    pub(crate) stale_ticks: u64,
    /// How long one connection may keep the thread from the others.
    pub(crate) turn_ticks: u64,
    meeting_ticks: u64,
    stats: &'static WorkerStats,
    /// Figures of the configuration that handlers go by.
    pub rules: Rules,
    /// What requests may hold.
    pub limits: Limits,
    /// Randomness.
    pub random: Random,
    /// What happened beside the commands.
    pub observed: Observed,
    /// Bytes of replies after which a connection's turn ends, so that they are sent or put elsewhere.
    reply_bytes_max: usize,
    /// The same for the connection that is to run, if less.
    turn_bytes_max: usize,
    /// The version of the configuration that `rules` and `limits` were made from.
    settings_version: u64,
    /// Bytes of the requests that the connection whose commands run has sent, as far as they are still in memory.
    arrived_bytes: usize,
    /// When the last command ended.
    pub(crate) ticks: Ticks,
    /// Whether a histogram of durations is kept for each command.
    pub(crate) tracks_latency: bool,
    /// What the last commands took, as far as the counters are yet to get it.
    pub(crate) timings: Timings,
    pub(crate) memory: MemoryWatch,
    pub(crate) effects: Effects,
    /// What the commands of the unit in progress have left behind.
    pub(crate) unit: Unit,
    /// The last unit that what has run for the present connection depends on, while replies wait for that.
    pub(crate) depends: Position,
    /// This thread's units on their way to the journal's reader.
    pub(crate) lane: Writer,
    /// Keys that changed and that somebody waits for.
    pub(crate) ready: Vec<(usize, DbKey)>,
    /// Those of them that a script held which took too long.
    pub(crate) late: Vec<(usize, DbKey)>,
    pub(crate) shards: Vec<usize>,
    pub(crate) shard_set: ShardSet,
    /// How often threads had found the gate closed when this one last met another, and when that was.
    met: (usize, Ticks),
    pub(crate) scripts: LocalScripts,
    /// The inboxes without room for what its connections publish.
    pub(crate) overfilled: Overfilled,
    attendant: Lent,
    /// Which of its shards of which database it looks for expired keys in next.
    reclaim_at: usize,
    /// How many shards in a row had nothing left to be removed.
    reclaim_quiet: usize,
    /// How far it is in looking for sparse pages.
    pub(crate) compacting: Progress,
    tables: Tables,
}

impl Worker {
    /// The worker with this number.
    #[must_use]
    pub fn new(id: usize, engine: &'static Engine, seed: u64) -> Worker {
        let clock =
            Clock { now_ms: 0, due_ms: 0, uptime_s: 0, access: Access::Noted, frequency: None, keeps_due: false };
        Worker {
            id,
            engine,
            clock,
            untouching_clock: clock,
            stats: &engine.stats[id],
            stale_ticks: (clock::STALE_US * per_microsecond()) as u64,
            turn_ticks: (YIELD_AFTER_US * per_microsecond()) as u64,
            meeting_ticks: if engine.keyspace.gate().is_for_one() {
                u64::MAX
            } else {
                (MEETING_US * per_microsecond()) as u64
            },
            replays: false,
            now_us: 0,
            turn_began: Ticks::now(),
            clock_set: Ticks::now(),
            rules: Rules::default(),
            limits: Limits::default(),
            random: Random::new(seed),
            observed: Observed::default(),
            reply_bytes_max: 0,
            turn_bytes_max: usize::MAX,
            settings_version: 0,
            arrived_bytes: 0,
            ticks: Ticks::now(),
            tracks_latency: false,
            timings: Timings::default(),
            memory: MemoryWatch::default(),
            effects: Effects::default(),
            unit: Unit::default(),
            depends: 0,
            lane: engine.journal.writer(id),
            ready: Vec::new(),
            late: Vec::new(),
            shards: Vec::new(),
            shard_set: ShardSet::default(),
            met: (0, Ticks::now()),
            scripts: LocalScripts::default(),
            overfilled: Overfilled::new(engine.inboxes.len()),
            attendant: Lent::default(),
            reclaim_at: 0,
            reclaim_quiet: 0,
            compacting: Progress::default(),
            tables: Tables::default(),
        }
    }

    /// This thread's counters.
    #[inline]
    #[must_use]
    pub fn stats(&self) -> &'static WorkerStats {
        self.stats
    }

    /// Bytes that the connection whose commands run has sent, as far as they are still in memory.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes as u64
    }

    /// Has turns end after so many bytes of replies, if that is less than usual.
    pub fn end_turns_after(&mut self, bytes: usize) {
        self.turn_bytes_max = bytes;
    }

    /// Bytes of replies after which a connection's turn ends.
    #[must_use]
    pub fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max.min(self.turn_bytes_max)
    }

    /// Begins a turn at this time, in microseconds of Unix time. Should it last, what it runs later has a later time.
    pub fn begin_turn(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.turn_began = Ticks::now();
        self.follow_settings();
        self.set_clock(self.turn_began);
    }

    /// Whether the log has room for what connections of this thread write.
    #[must_use]
    pub fn log_has_room(&self) -> bool {
        !self.effects.recording || self.lane.waiting_bytes() <= LANE_BYTES_MAX / 2
    }

    /// The last unit that what has run since the last call depends on, if replies wait for that; 0 if none.
    pub fn take_depends(&mut self) -> Position {
        std::mem::take(&mut self.depends)
    }

    /// Ends the turn: counts it, and what it took.
    pub fn end_turn(&self) {
        if self.lane.waiting_bytes() > 0 {
            self.engine.durability.ring();
        }
        self.stats.turns.add(1);
        self.stats.turn_ticks.add(Ticks::now().since(self.turn_began));
    }

    /// Makes `rules` and `limits` anew if the configuration has changed.
    fn follow_settings(&mut self) {
        let version = self.engine.settings_version();
        if version == self.settings_version {
            return;
        }
        self.settings_version = version;
        self.follow_client_limit();
        let settings = &self.engine.settings;
        self.tracks_latency = settings.latency_tracking.get();
        let alone = Share::new(settings.reply_memory_limit.get(), settings.reply_memory_total.get(), 1);
        self.reply_bytes_max = alone.turn() as usize;
        self.clock.frequency = eviction::frequency(settings);
        self.limits.bulk_bytes_max = i64::try_from(settings.proto_max_bulk_len.get()).unwrap_or(i64::MAX);
        self.rules = Rules {
            string_bytes_max: settings.proto_max_bulk_len.get_usize(),
            list: ListLimits::new(settings.list_max_listpack_size.get()),
            set: SetLimits {
                intset_entries: settings.set_max_intset_entries.get_usize(),
                listpack_entries: settings.set_max_listpack_entries.get_usize(),
                listpack_value: settings.set_max_listpack_value.get_usize(),
            },
            hash: HashLimits {
                listpack_entries: settings.hash_max_listpack_entries.get_usize(),
                listpack_value: settings.hash_max_listpack_value.get_usize(),
            },
            zset: ZSetLimits {
                entries_max: settings.zset_max_listpack_entries.get_usize(),
                member_bytes_max: settings.zset_max_listpack_value.get_usize(),
            },
            stream: StreamLimits::new(
                settings.stream_node_max_bytes.get_usize(),
                settings.stream_node_max_entries.get_usize(),
            ),
            stream_block_entries: settings.stream_node_max_entries.get_usize(),
            lazy_free: LazyFree {
                user_del: settings.lazyfree_lazy_user_del.get(),
                user_flush: settings.lazyfree_lazy_user_flush.get(),
                server_del: settings.lazyfree_lazy_server_del.get(),
            },
            shares_integers: !eviction::goes_by_use(settings),
        };
    }

    /// As [`Worker::run`], with somebody who looks after other connections if a script takes too long.
    pub fn run_attended(
        &mut self,
        attendant: &mut dyn Attendant,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Ran) {
        // SAFETY: only the lifetime changes. The pointer is taken back before this returns, and until then the
        // attendant is used through it alone.
        let lent = unsafe {
            std::mem::transmute::<NonNull<dyn Attendant + '_>, NonNull<dyn Attendant>>(NonNull::from(attendant))
        };
        self.attendant = Lent(Some(lent));
        let ran = self.run(session, input, from, out);
        self.attendant = Lent(None);
        ran
    }

    /// Lets other connections be looked after, in the midst of a script.
    pub(crate) fn attend(&mut self) {
        // Taken out, so that it is not used twice.
        let Some(mut attendant) = self.attendant.0.take() else { return };
        let (running, busy_turn) = (self.scripts.running, self.scripts.busy_turn);
        (self.scripts.running, self.scripts.busy_turn) = (false, true);
        // For the script, time stands still.
        let clock = (self.clock, self.clock_set);
        let may_start_over = std::mem::take(&mut self.scripts.may_start_over);
        // What they run is no part of the script's unit.
        let unit = std::mem::take(&mut self.unit);
        // For others it goes on.
        self.set_clock(Ticks::now());
        // SAFETY: see `run_attended`.
        unsafe { attendant.as_mut() }.attend(self);
        (self.clock, self.clock_set) = clock;
        (self.scripts.running, self.scripts.busy_turn) = (running, busy_turn);
        self.scripts.may_start_over = may_start_over;
        self.unit = unit;
        self.attendant = Lent(Some(attendant));
    }

    /// Runs what may run in the midst of a script, and answers BUSY to the rest.
    pub fn run_busy(&mut self, session: &mut Session, input: Input<'_>, from: usize, out: &mut Output) -> (usize, Ran) {
        debug_assert!(self.scripts.busy_turn);
        self.run_with_tables(session, input, from, out)
    }

    /// Runs the complete requests of `input.bytes[from..]` and returns where the first byte that was not run is.
    pub fn run(&mut self, session: &mut Session, input: Input<'_>, from: usize, out: &mut Output) -> (usize, Ran) {
        if session.client.has(client_flag::BLOCKED) {
            // CLIENT PAUSE held it back.
            session.client.end_pause();
        }
        let ran = self.run_with_tables(session, input, from, out);
        self.note_observed();
        ran
    }

    /// The state of a connection that has just been accepted by this thread.
    pub fn open(&mut self, addr: String, laddr: String, fd: i32, flags: u32, authenticated: bool) -> Session {
        let id = self.engine.clients.next_id();
        let client = Arc::new(Client::new(id, self.id, addr, laddr, fd, self.clock.now_ms, flags));
        self.engine.clients.add(client.clone());
        self.stats().connections.add(1);
        Session::new(client, authenticated)
    }

    /// Takes a connection that is being closed out of everything that knows it.
    pub fn close(&mut self, session: &mut Session) {
        self.unpark(session);
        families::leave(self, session);
        self.engine.clients.remove(session.client.id);
    }

    /// Lists a connection again that is closed once its peer has read its replies.
    pub fn come_back(&self, session: &Session) {
        if !session.client.killed.load(Ordering::SeqCst) {
            self.engine.clients.add(session.client.clone());
        }
    }

    /// Forgets the blocking command that a connection waits in which is being closed.
    pub fn unpark(&mut self, session: &mut Session) {
        let Some(waiter) = session.client.end_wait() else { return };
        if waiter.abandon() {
            self.engine.waiters.remove(&waiter);
        }
    }

    /// Answers a blocking command whose time has run out. False if it has been answered, or is just being, or can't be
    /// as long as a script takes too long.
    pub fn time_out(&mut self, session: &mut Session, out: &mut Output) -> bool {
        let Some(waiter) = session.client.waiter() else { return false };
        {
            // Its end counts for its pipeline, which nobody may take over at this moment.
            let inside = self.pass();
            if inside.is_none() || !waiter.claim() {
                return false;
            }
            self.count_ended(&waiter);
        }
        self.engine.waiters.remove(&waiter);
        self.resume(session, &mut waiter.timeout_reply(), out);
        true
    }

    /// Ends a connection's wait with the reply that it waited for.
    pub fn resume(&mut self, session: &mut Session, reply: &mut Output, out: &mut Output) {
        if let Some(waiter) = session.client.end_wait() {
            // It was counted when its wait was ended.
            self.note_if_slow(session, waiter.command, &waiter.args.args(), 0);
        }
        match session.reply_mode() {
            ReplyMode::On => out.append(reply),
            ReplyMode::Skip => session.set_reply_mode(ReplyMode::On),
            ReplyMode::Off | ReplyMode::SkipNext => {}
        }
    }

    /// Adds what was observed since to the counters.
    pub(crate) fn note_observed(&mut self) {
        let stats = self.stats();
        stats.hits.add(std::mem::take(&mut self.observed.hits));
        stats.misses.add(std::mem::take(&mut self.observed.misses));
        stats.expired.add(std::mem::take(&mut self.observed.expired));
        stats.dirty.add(std::mem::take(&mut self.effects.dirty));
    }
}

/// Hashes the keys that a command's arguments hold.
#[inline]
pub(crate) fn hash_keys(command: &Command, args: Args<'_>, keys: &mut Vec<KeyRef>) {
    command.info.visit_keys(args, |i| keys.push(KeyRef { arg: i as u32, hash: KeyHash::of(args.get(i)) }));
}

/// Whether a command runs alone, behind the gate.
pub(crate) fn is_whole(command: &Command, args: Args<'_>) -> bool {
    matches!(command.info.scope_for(args), Scope::Whole | Scope::Script)
}

/// A thread's pass through the gate, given up while it is alone.
pub(crate) type Pass = Option<Inside<'static>>;
