//! A worker thread's part of the engine, and the way of a batch through it.
//!
//! Requests are framed, planned and prefetched a window at a time, so that what was prefetched is still in the cache
//! when it is used, then run in order. A window ends early where a command changes how the rest is to be read.

mod client_limit;
mod clock;
mod expiry;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::Handler;
use commands::call::{KeyRef, LazyFree, Rules};
use commands::effects::Effects;
use commands::spec::Scope;
use resp::reply::{Output, Reply};
use resp::request::{Args, Batch, Limits, Stop};
use store::db::{Access, Clock, Observed};
use store::hash::hash;
use store::keyspace::ShardSet;
use store::random::Random;
use store::sync::Inside;
use store::types::hash::HashLimits;
use store::types::list::ListLimits;
use store::types::set::SetLimits;
use store::types::stream::StreamLimits;
use store::types::zset::ZSetLimits;

use crate::client::{Client, client_flag};
use crate::command_table::{Command, KeysAt, table};
use crate::compaction::Progress;
use crate::engine::Engine;
use crate::eviction::{self, MemoryWatch};
use crate::families;
use crate::lookahead::{group_end, keys_of, look_ahead};
use crate::replies::{Share, UNAUTHENTICATED_BYTES_MAX};
use crate::scripts::LocalScripts;
use crate::session::{ReplyMode, Session};
use crate::stats::WorkerStats;
use crate::ticks::{Ticks, per_microsecond};
use crate::timings::Timings;
use crate::watch::DbKey;

/// Commands that are framed and run together, and, as far as they have a key each, prefetched: see `crate::lookahead`.
const WINDOW: usize = 64;
/// Keys whose room is kept from batch to batch.
const KEPT_KEYS_MAX: usize = 64 * 1024;
/// How long one connection may keep its thread from the others, in microseconds. Another one waits for two such turns,
/// if its request comes when the first has just begun and the next is read before it.
const YIELD_AFTER_US: f64 = 500.0;

/// How long a thread doesn't try to keep others out after it has met one, in microseconds. Where several are busy they
/// wait once in that time for what one runs meanwhile, some ten microseconds.
const MEETING_US: f64 = 10_000.0;
/// Keys of commands from which on it is worth it to keep others out: as much as the locks of so many.
const KEYS_WORTH_IT: usize = 8;
/// Bytes of requests that are run while others are kept out, at most: some hundred members to be added to something,
/// which takes less than a millisecond.
const BRIEF_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(WINDOW <= u64::BITS as usize, "a window's commands have a bit each in `crate::lookahead`");

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
    /// When the last command ended.
    pub(crate) ticks: Ticks,
    /// Whether a histogram of durations is kept for each command.
    pub(crate) tracks_latency: bool,
    /// What the last commands took, as far as the counters are yet to get it.
    pub(crate) timings: Timings,
    pub(crate) memory: MemoryWatch,
    pub(crate) effects: Effects,
    /// Keys that changed and that somebody waits for.
    pub(crate) ready: Vec<(usize, DbKey)>,
    /// Those of them that a script held which took too long.
    pub(crate) late: Vec<(usize, DbKey)>,
    pub(crate) shards: Vec<usize>,
    pub(crate) shard_set: ShardSet,
    /// How often threads had found the gate closed when this one last met another, and when that was.
    met: (usize, Ticks),
    pub(crate) scripts: LocalScripts,
    attendant: Lent,
    /// Which of its shards of which database it looks for expired keys in next.
    reclaim_at: usize,
    /// How many shards in a row had nothing left to be removed.
    reclaim_quiet: usize,
    /// How far it is in looking for sparse pages.
    pub(crate) compacting: Progress,
    batch: Batch,
    planned: Vec<Planned>,
    keys: Vec<KeyRef>,
}

impl Worker {
    /// The worker with this number.
    #[must_use]
    pub fn new(id: usize, engine: &'static Engine, seed: u64) -> Worker {
        let clock = Clock { now_ms: 0, uptime_s: 0, access: Access::Noted, frequency: None, keeps_due: false };
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
            ticks: Ticks::now(),
            tracks_latency: false,
            timings: Timings::default(),
            memory: MemoryWatch::default(),
            effects: Effects::default(),
            ready: Vec::new(),
            late: Vec::new(),
            shards: Vec::new(),
            shard_set: ShardSet::default(),
            met: (0, Ticks::now()),
            scripts: LocalScripts::default(),
            attendant: Lent::default(),
            reclaim_at: 0,
            reclaim_quiet: 0,
            compacting: Progress::default(),
            batch: Batch::default(),
            planned: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// This thread's counters.
    #[inline]
    #[must_use]
    pub fn stats(&self) -> &'static WorkerStats {
        self.stats
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
        };
    }

    /// As [`Worker::run`], with somebody who looks after other connections if a script takes too long.
    pub fn run_attended(
        &mut self,
        attendant: &mut dyn Attendant,
        session: &mut Session,
        buffer: &[u8],
        from: usize,
        out: &mut Output,
    ) -> (usize, Ran) {
        // SAFETY: only the lifetime changes. The pointer is taken back before this returns, and until then the
        // attendant is used through it alone.
        let lent = unsafe {
            std::mem::transmute::<NonNull<dyn Attendant + '_>, NonNull<dyn Attendant>>(NonNull::from(attendant))
        };
        self.attendant = Lent(Some(lent));
        let ran = self.run(session, buffer, from, out);
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
        // For others it goes on.
        self.set_clock(Ticks::now());
        // SAFETY: see `run_attended`.
        unsafe { attendant.as_mut() }.attend(self);
        (self.clock, self.clock_set) = clock;
        (self.scripts.running, self.scripts.busy_turn) = (running, busy_turn);
        self.scripts.may_start_over = may_start_over;
        self.attendant = Lent(Some(attendant));
    }

    /// Runs what may run in the midst of a script, and answers BUSY to the rest.
    pub fn run_busy(&mut self, session: &mut Session, buffer: &[u8], from: usize, out: &mut Output) -> (usize, Ran) {
        debug_assert!(self.scripts.busy_turn);
        self.run_with_tables(session, buffer, from, out)
    }

    /// Runs the complete requests of `buffer[from..]` and returns where the first byte that was not run is.
    pub fn run(&mut self, session: &mut Session, buffer: &[u8], from: usize, out: &mut Output) -> (usize, Ran) {
        if session.client.has(client_flag::BLOCKED) {
            // CLIENT PAUSE held it back.
            session.client.set(client_flag::BLOCKED, false);
        }
        let ran = self.run_with_tables(session, buffer, from, out);
        self.note_observed();
        ran
    }

    fn run_with_tables(&mut self, session: &mut Session, buffer: &[u8], from: usize, out: &mut Output) -> (usize, Ran) {
        // The batch's tables are taken out for the time, so that they can be borrowed beside the rest.
        let mut batch = std::mem::take(&mut self.batch);
        let mut planned = std::mem::take(&mut self.planned);
        let mut keys = std::mem::take(&mut self.keys);
        // In the midst of a script, this thread is inside already.
        let mut inside = if self.scripts.busy_turn { None } else { self.pass() };
        let ran = self.run_windows(session, buffer, from, out, &mut batch, &mut planned, &mut keys, &mut inside);
        // Before the gate is left: who runs alone behind it finds all counted.
        self.count_timings();
        drop(inside);
        // What a request of millions of arguments has taken isn't kept for the next one, which may never come.
        batch.shrink();
        keys.clear();
        keys.shrink_to(KEPT_KEYS_MAX);
        self.shards.clear();
        self.shards.shrink_to(KEPT_KEYS_MAX);
        (self.batch, self.planned, self.keys) = (batch, planned, keys);
        ran
    }

    #[expect(clippy::too_many_arguments, reason = "the tables are the worker's own, borrowed apart")]
    fn run_windows(
        &mut self,
        session: &mut Session,
        buffer: &[u8],
        from: usize,
        out: &mut Output,
        batch: &mut Batch,
        planned: &mut Vec<Planned>,
        keys: &mut Vec<KeyRef>,
        inside: &mut Pass,
    ) -> (usize, Ran) {
        let began = Ticks::now();
        let turn_ticks = self.turn_ticks;
        let mut at = from;
        let written = out.len();
        let in_script = self.scripts.busy_turn;
        loop {
            // What comes now may take long: others need not wait for it.
            inside.iter_mut().for_each(Inside::let_in);
            batch.clear();
            if session.client.killed.load(Ordering::Relaxed) {
                return (at, Ran::Closing);
            }
            // Authentication changes the limits of what follows, so what comes before it is framed one by one.
            let unauthenticated = self.engine.must_authenticate(session);
            let window = if unauthenticated { 1 } else { WINDOW };
            let replies_end =
                written + if unauthenticated { UNAUTHENTICATED_BYTES_MAX } else { self.reply_bytes_max() };
            let limits = Limits { unauthenticated, ..self.limits };
            let (end, stop) = session.framer.frame(buffer, at, &limits, window, batch);
            plan(batch, buffer, planned, keys);
            // Before the prefetch, because what is evicted must not be waited for.
            if inside.is_some() {
                self.mind_memory(planned.len(), inside);
            }
            let mut ahead = 0;
            self.stats().batches.add(u64::from(!planned.is_empty()));
            self.ticks = Ticks::now();
            // After all that may have taken long: the gate, eviction, a request of millions of arguments.
            self.follow_clock(self.ticks);
            let last_end = batch.requests().last().map(|r| r.end as usize);
            let mut reframe = false;
            let mut is_plain = self.may_be_quick(session);
            for (index, (request, plan)) in batch.requests().iter().zip(planned.iter()).enumerate() {
                if index == ahead
                    && let Some(inside) = inside
                {
                    let group = ahead..group_end(planned, keys, ahead);
                    ahead = group.end;
                    let bytes = batch.requests()[group.clone()].last().map_or(0, |last| last.end as usize - at);
                    self.choose_company(inside, &planned[group.clone()], keys, bytes);
                    let hints = self.engine.keyspace.hints(session.database, inside);
                    look_ahead(&hints, batch, buffer, planned, keys, group);
                }
                let args = &batch.args(request, buffer);
                let keys = &keys[plan.keys_start as usize..plan.keys_end as usize];
                if inside.is_none() && !in_script {
                    *inside = self.pass();
                    self.follow_clock(Ticks::now());
                }
                let step = if let Some(run) = plan.quick
                    && is_plain
                    && inside.is_some()
                {
                    self.step_quickly(session, plan, run, args, keys, out, inside)
                } else if plan.is_keyless && is_plain && inside.is_some() {
                    let step = self.step_keyless(session, plan, args, out, inside);
                    is_plain = self.may_be_quick(session);
                    step
                } else if inside.is_some() {
                    let step = self.step(session, plan, args, keys, out, inside);
                    is_plain = self.may_be_quick(session);
                    step
                } else {
                    self.step_outside(session, plan.command, args, out)
                };
                let step = if self.effects.took_much { self.mind_memory_next(step) } else { step };
                if step != Step::Pause {
                    at = request.end as usize;
                }
                if step != Step::Next {
                    // What is known of an incomplete request begins after the window's last, not here.
                    session.framer.forget();
                }
                match step {
                    // A window of slow commands may take much longer than a turn, and its replies much memory.
                    Step::Next
                        if (self.ticks.since(began) > turn_ticks || out.len() > replies_end)
                            && Some(at) != last_end =>
                    {
                        session.framer.forget();
                        return (at, Ran::Yielded);
                    }
                    Step::Next => {}
                    Step::Reframe => {
                        reframe = true;
                        break;
                    }
                    Step::Park => return (at, Ran::Parked),
                    Step::Pause => {
                        // Redis counts those that CLIENT PAUSE holds back among the blocked.
                        session.client.set(client_flag::BLOCKED, true);
                        return (at, Ran::Paused);
                    }
                    Step::Close | Step::Gone => return (at, Ran::Closing),
                }
            }
            // Where framing stopped no longer holds once the limits have changed.
            let all_ran = !reframe && last_end.is_none_or(|end| end == at);
            if all_ran {
                at = end;
            }
            match stop {
                _ if !all_ran => {}
                Stop::Full => {}
                Stop::Incomplete => return (at, Ran::Idle),
                Stop::Error(error) => {
                    if session.reply_mode == ReplyMode::On {
                        Reply::new(out, session.proto).error(error.text());
                    }
                    self.stats().count_error(b"ERR");
                    session.closing = true;
                    return (at, Ran::Closing);
                }
            }
            if Ticks::now().since(began) > turn_ticks || out.len() > replies_end {
                return (at, Ran::Yielded);
            }
        }
    }

    /// Has the limit of the memory looked at before the next command, not after the window.
    #[cold]
    fn mind_memory_next(&mut self, step: Step) -> Step {
        self.effects.took_much = false;
        self.memory.look_again();
        if step == Step::Next { Step::Reframe } else { step }
    }

    /// Keeps other threads out while some of a window's commands run, if there are enough of them to be worth it, all
    /// are brief, and no other thread seems to have anything to do: then no lock is taken. `bytes`: of the requests.
    #[inline]
    fn choose_company(&mut self, inside: &mut Inside<'_>, group: &[Planned], keys: &[KeyRef], bytes: usize) {
        inside.let_in();
        if keys_of(group, keys).len() < KEYS_WORTH_IT
            || bytes > BRIEF_BYTES_MAX
            || self.ticks.since(self.met.1) < self.meeting_ticks
            || !group.iter().all(|plan| plan.is_brief)
        {
            return;
        }
        let waits = self.engine.keyspace.gate().waits();
        // The one that waited may have been this thread: another one keeps others out as well.
        if waits != self.met.0 || !inside.keep_out() {
            self.met = (waits, self.ticks);
        }
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

    /// Forgets the blocking command that a connection waits in which is being closed.
    pub fn unpark(&mut self, session: &mut Session) {
        let Some(waiter) = session.parked.take() else { return };
        session.client.set(client_flag::BLOCKED, false);
        *session.client.parked() = None;
        if waiter.abandon() {
            self.engine.waiters.remove(&waiter);
        }
    }

    /// Answers a blocking command whose time has run out. False if it has been answered, or is just being, or can't be
    /// as long as a script takes too long.
    pub fn time_out(&mut self, session: &mut Session, out: &mut Output) -> bool {
        let Some(waiter) = session.parked.clone() else { return false };
        {
            // Its end counts for its pipeline, which nobody may take over at this moment.
            let inside = self.pass();
            if inside.is_none() || !waiter.claim() {
                return false;
            }
            waiter.count(None);
        }
        self.engine.waiters.remove(&waiter);
        self.resume(session, &mut waiter.timeout_reply(), out);
        true
    }

    /// Ends a connection's wait with the reply that it waited for.
    pub fn resume(&mut self, session: &mut Session, reply: &mut Output, out: &mut Output) {
        if let Some(waiter) = session.parked.take() {
            // The time that it waited is not the command's.
            self.account(session, waiter.command, &waiter.args.args(), Ticks::now());
        }
        *session.client.parked() = None;
        session.client.set(client_flag::BLOCKED, false);
        match session.reply_mode {
            ReplyMode::On => out.append(reply),
            ReplyMode::Skip => session.reply_mode = ReplyMode::On,
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

/// What a request's name and its number of arguments tell.
struct Found {
    keys: KeysAt,
    /// But for the keys.
    plan: Planned,
    /// Whether that is all, so that it holds for others with the same name and as many arguments.
    is_all: bool,
}

impl Found {
    const NOTHING: Found = Found {
        keys: KeysAt::None,
        plan: Planned {
            command: None,
            quick: None,
            keys_start: 0,
            keys_end: 0,
            reads_collection: false,
            fits: false,
            is_brief: false,
            is_keyless: false,
        },
        is_all: false,
    };

    fn of(args: Args<'_>) -> Found {
        let table = table();
        let named = table.find(args.get(0));
        let command = named.and_then(|command| table.resolve(command, args));
        // A command with the wrong number of arguments has no keys: it will not run.
        let fitting = command.filter(|command| command.accepts(args.len()));
        let keys = fitting.map_or(KeysAt::None, |command| command.keys);
        let plan = Planned {
            command,
            quick: fitting.filter(|_| matches!(keys, KeysAt::Only(_))).and_then(|command| command.quick),
            reads_collection: command.is_some_and(|c| c.reads_collection),
            fits: fitting.is_some(),
            is_brief: fitting.is_some_and(|c| c.is_brief),
            is_keyless: fitting.is_some_and(|c| c.is_keyless),
            ..Found::NOTHING.plan
        };
        Found { keys, plan, is_all: named.is_some_and(|command| command.subcommands.is_empty()) }
    }
}

/// Looks every request's command up, and hashes its keys.
// On its own for the registers' sake, as framing is.
#[inline(never)]
fn plan(batch: &Batch, buffer: &[u8], planned: &mut Vec<Planned>, keys: &mut Vec<KeyRef>) {
    planned.clear();
    keys.clear();
    // Pipelines are made of runs of one command.
    let mut found = Found::NOTHING;
    for request in batch.requests() {
        let args = batch.args(request, buffer);
        if !(request.repeats && found.is_all) {
            found = Found::of(args);
        }
        let keys_start = keys.len() as u32;
        match (found.keys, found.plan.command) {
            (KeysAt::Only(at), _) => keys.push(KeyRef { arg: at as u32, hash: hash(args.get(at)) }),
            (KeysAt::Declared, Some(command)) => hash_keys(command, args, keys),
            _ => {}
        }
        planned.push(Planned { keys_start, keys_end: keys.len() as u32, ..found.plan });
    }
}

/// Hashes the keys that a command's arguments hold.
#[inline]
pub(crate) fn hash_keys(command: &Command, args: Args<'_>, keys: &mut Vec<KeyRef>) {
    command.info.visit_keys(args, |i| keys.push(KeyRef { arg: i as u32, hash: hash(args.get(i)) }));
}

/// Whether a command runs alone, behind the gate.
pub(crate) fn is_whole(command: &Command, args: Args<'_>) -> bool {
    matches!(command.info.scope_for(args), Scope::Whole | Scope::Script)
}

/// A thread's pass through the gate, given up while it is alone.
pub(crate) type Pass = Option<Inside<'static>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loader, Settings};
    use crate::testing::{Bench, request};
    use resp::request::Framer;

    #[test]
    fn a_slow_command_in_the_midst_of_a_window_ends_the_turn() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        let mut session = bench.open();
        let slow = request(&["debug", "sleep", "0.005"]);
        let input = [&*slow, &slow, b"PING\r\nPI"].concat();
        let mut out = Output::default();
        let (at, ran) = bench.worker.run(&mut session, &input, 0, &mut out);
        assert_eq!((at, ran), (slow.len(), Ran::Yielded));
        let (at, ran) = bench.worker.run(&mut session, &input, at, &mut out);
        assert_eq!((at, ran), (2 * slow.len(), Ran::Yielded));
        let (at, ran) = bench.worker.run(&mut session, &input, at, &mut out);
        assert_eq!((at, ran), (input.len() - 2, Ran::Idle));
        assert_eq!(out.slices().collect::<Vec<_>>().concat(), b"+OK\r\n+OK\r\n+PONG\r\n");
    }

    #[test]
    fn commands_with_many_keys_find_them_all() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for counts in [&[1_usize, 2, 16, 17, 3][..], &[63, 64, 65], &[300, 1, 1, 70], &[10; 100]] {
            let (mut input, mut expected) = (Vec::new(), Vec::new());
            for (round, &count) in counts.iter().enumerate() {
                let pairs = (0..count).flat_map(|i| [format!("key:{round}:{i}"), format!("{i}")]);
                let mset: Vec<_> = std::iter::once("MSET".to_owned()).chain(pairs).collect();
                let keys = (0..count).map(|i| format!("key:{round}:{i}")).chain(["none".to_owned()]);
                let mget: Vec<_> = std::iter::once("MGET".to_owned()).chain(keys).collect();
                for words in [mset, mget] {
                    input.extend(request(&words.iter().map(String::as_str).collect::<Vec<_>>()));
                }
                expected.extend(format!("+OK\r\n*{}\r\n", count + 1).into_bytes());
                (0..count).for_each(|i| expected.extend(format!("${}\r\n{i}\r\n", i.to_string().len()).into_bytes()));
                expected.extend(b"$-1\r\n");
            }
            let (mut out, mut at) = (Output::default(), 0);
            while at < input.len() {
                at = bench.worker.run(&mut session, &input, at, &mut out).0;
            }
            assert_eq!(out.slices().collect::<Vec<_>>().concat(), expected, "{counts:?}");
        }
    }

    #[test]
    fn requests_that_begin_alike_run_as_if_each_were_alone() {
        let lines = [
            "set a 1",
            "set b 2",
            "object encoding a",
            "object refcount a",
            "object encoding none",
            "object nonsense a",
            "client getname",
            "client no-evict",
            "client id x",
            "get a b",
            "get c d",
            "get a",
            "get b",
            "nonsense a",
            "nonsense b",
            "zadd z 1 a 2 b",
            "zadd y 1 a 2 b",
            "zunionstore u 2 z y weights 1 2",
            "zunionstore v 1 z weights 3 aggregate sum",
            "zinter 2 z y weights 1 2",
            "zinter 1 z weights 3 withscores",
            "eval return{KEYS[1],ARGV[1]} 1 a b",
            "eval return{KEYS[1],ARGV[1]} 0 a b",
            "eval return{KEYS[1],ARGV[1]} 2 a b",
            "mset a 1 b 2",
            "mset a 3 b 4",
            "mget a b",
            "mget b a",
            "set a b xx nx",
            "set a b get xx",
            "hset h a 1",
            "hset h b 2",
            "hset a b 2",
            "config get maxmemory",
            "config get hz",
        ];
        let requests = lines.map(|line| request(&line.split(' ').collect::<Vec<_>>()));
        let mut alone = Bench::default();
        let mut session = alone.open();
        let expected = requests.iter().flat_map(|bytes| alone.run(&mut session, bytes).0).collect::<Vec<_>>();
        let mut together = Bench::default();
        together.never_yield();
        let mut session = together.open();
        let (replies, _) = together.run(&mut session, &requests.concat());
        assert_eq!(String::from_utf8_lossy(&replies), String::from_utf8_lossy(&expected));
    }

    /// Whether a thread keeps others out that runs these commands.
    fn keeps_out(bench: &mut Bench, lines: &str) -> bool {
        let (mut batch, mut planned, mut keys) = (Batch::default(), Vec::new(), Vec::new());
        let input = format!("{}\r\n", lines.lines().collect::<Vec<_>>().join("\r\n")).into_bytes();
        let (end, _) = Framer::default().frame(&input, 0, &bench.worker.limits, WINDOW, &mut batch);
        assert_eq!(end, input.len());
        plan(&batch, &input, &mut planned, &mut keys);
        let mut inside = bench.worker.pass();
        let inside = inside.as_mut().unwrap();
        bench.worker.ticks = Ticks::now();
        bench.worker.choose_company(inside, &planned, &keys, input.len());
        inside.keeps_out()
    }

    #[test]
    fn others_are_kept_out_for_what_is_brief_and_many() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        bench.worker.meeting_ticks = 0;
        let mset = format!("mset{}", " k v".repeat(8));
        for brief in [&*"get k\n".repeat(8), &"set k v\nincr n\nzadd z 1 a\nhset h f v\n".repeat(2), &mset] {
            assert!(keeps_out(&mut bench, brief), "{brief}");
        }
        // Too few, too much, and one in the midst that may take its time.
        let long = format!("{}set k {}", "get k\n".repeat(8), "v".repeat(BRIEF_BYTES_MAX));
        assert!(!keeps_out(&mut bench, &"get k\n".repeat(7)) && !keeps_out(&mut bench, &long));
        for slow in [
            "lpop l 5",
            "spop s 5",
            "setrange s 500000000 x",
            "bzpopmin z 0",
            "smembers s",
            "keys *",
            "flushall",
            "eval return 0",
            "get",
            "multi",
            "exec",
            "nonsense",
            "sort l",
            "lcs a b",
        ] {
            assert!(!keeps_out(&mut bench, &format!("{}{slow}", "get k\n".repeat(8))), "{slow}");
        }
        // Nobody is there to be kept out.
        assert!(!keeps_out(&mut Bench::default(), &"get k\n".repeat(8)));
    }

    #[test]
    fn others_are_let_in_for_a_while_when_they_come() {
        let mut bench = Bench::with_threads(Settings::new(), 2);
        let brief = "get k\n".repeat(8);
        let gate = bench.worker.engine.keyspace.gate();
        // One that has just begun gives the others time to show.
        bench.worker.meeting_ticks = u64::MAX;
        assert!(!keeps_out(&mut bench, &brief));
        bench.worker.meeting_ticks = 0;
        assert!(keeps_out(&mut bench, &brief));
        let inside = gate.enter(1);
        assert!(!keeps_out(&mut bench, &brief));
        drop(inside);
        assert!(keeps_out(&mut bench, &brief));
        // One that came and waited, and went, is noticed once.
        let mut first = gate.enter(0);
        assert!(first.keep_out() && gate.enter_unless(1, || true).is_none());
        drop(first);
        let before = bench.worker.met.1;
        assert!(!keeps_out(&mut bench, &brief));
        assert!(bench.worker.met.1 > before && keeps_out(&mut bench, &brief));
    }

    #[test]
    fn one_who_wants_no_replies_gets_none_to_what_is_no_request() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        assert_eq!(bench.run(&mut session, b"CLIENT REPLY OFF\r\n*x\r\n"), (Vec::new(), Ran::Closing));
    }
}
