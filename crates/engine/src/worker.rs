//! A worker thread's part of the engine.

mod attendant;
mod counting;
mod gate;
pub(crate) mod pace;
mod settings;
pub(crate) mod tables;
pub mod turn;
pub(crate) mod unit;

use commands::call::{KeyRef, Rules};
use commands::effects::Effects;
use commands::spec::Scope;
use journal::lane::Writer;
use journal::order::Position;
use journal::record::Kind;
use resp::reply::Output;
use resp::request::{Args, Limits};
use store::db::Observed;
use store::hash::KeyHash;
use store::keyspace::{Locked, ShardSet};
use store::random::Random;

use crate::advice::watch::Watch;
use crate::clients::session::Session;
use crate::command_table::Command;
use crate::engine::Engine;
use crate::listening::tracking::Broadcasts;
use crate::listening::watch::DbKey;
use crate::machine::clockwork::Clockwork;
use crate::machine::ticks::Ticks;
use crate::memory::compaction::CompactionProgress;
use crate::memory::eviction::MemoryWatch;
use crate::memory::expiry::ExpirySearch;
use crate::pubsub::monitors::LocalMonitors;
use crate::pubsub::overfilled::Overfilled;
use crate::reasons::MONITORED;
use crate::replication::rounds::RoundBounds;
use crate::scripts::LocalScripts;
use crate::snapshots::WalkProgress;
use crate::statistics::stats::WorkerStats;
use crate::statistics::timings::Meter;

use self::attendant::Lent;
use self::pace::{Company, LANE_BYTES_MAX, Pace};
use self::tables::Tables;
use self::turn::{Invocation, Run};
use self::unit::Unit;

pub use self::attendant::Attendant;
pub(crate) use self::gate::Pass;
pub use crate::clients::step::Ran;
pub(crate) use crate::clients::step::Step;

/// What rooms above this one do for the rooms below them.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// What runs each command, by its place in the table.
    pub runs: &'static [Run],
    /// Runs a command of a script. Its shards are held.
    pub run_nested: fn(&mut Worker, &mut Session, Invocation<'_>, &mut Locked<'_>, &mut Output),
}

/// How far a worker is in what it does a step at a time between batches.
#[derive(Default)]
pub(crate) struct UpkeepProgress {
    /// In looking for expired keys.
    pub expiry: ExpirySearch,
    /// In looking for sparse pages.
    pub compacting: CompactionProgress,
    /// In the walk of a snapshot.
    pub saving: WalkProgress,
}

/// What a worker applies of a primary's stream.
#[derive(Default)]
pub struct Applying {
    /// The session of the stream, the stream's number, and to which change of the primary it belongs.
    pub(crate) stream: Option<((u64, u64), Box<Session>)>,
    /// Which parts of the stream other threads may apply.
    pub round_bounds: RoundBounds,
    /// The session in which it applies lanes, and whether it does so now.
    pub(crate) lane_session: Option<Box<Session>>,
    pub(crate) is_lane: bool,
}

/// See the module's documentation.
pub struct Worker {
    /// Its number, from 0.
    pub id: usize,
    /// What all threads share.
    pub engine: &'static Engine,
    hooks: Hooks,
    /// The time as commands see it: a millisecond old at most when one begins.
    pub clock: Clockwork,
    /// How long one connection may keep the thread from the others.
    pub(crate) pace: Pace,
    /// When it last met other threads at the gate.
    pub(crate) company: Company,
    /// What its commands take and do, counted.
    pub(crate) meter: Meter,
    /// Figures of the configuration that handlers go by.
    pub rules: Rules,
    /// What requests may hold.
    pub limits: Limits,
    /// Randomness.
    pub random: Random,
    /// What happened beside the commands.
    pub observed: Observed,
    /// The version of the configuration that `rules` and `limits` were made from.
    settings_version: u64,
    /// Bytes of the requests that the running connection has sent, as far as they are still in memory.
    pub(crate) arrived_bytes: usize,
    /// When the last command ended.
    pub(crate) ticks: Ticks,
    /// When the last command ended that was counted by its keys, or its window began.
    pub(crate) looked_at: Ticks,
    pub(crate) memory: MemoryWatch,
    pub(crate) effects: Effects,
    /// What the commands of the unit in progress have left behind.
    pub(crate) unit: Unit,
    /// The last unit that what has run for the present connection depends on, while replies wait for that.
    pub(crate) depends: Position,
    /// The last unit that was committed for the present connection; 0 if none was.
    pub(crate) wrote: Position,
    /// This thread's units on their way to the journal's readers.
    pub(crate) lane: Writer,
    /// Keys that changed and have waiters.
    pub(crate) ready: Vec<(usize, DbKey)>,
    /// Those of them that a script held which took too long.
    pub(crate) late: Vec<(usize, DbKey)>,
    pub(crate) shards: Vec<usize>,
    pub(crate) shard_set: ShardSet,
    pub(crate) scripts: LocalScripts,
    /// Changes of keys that clients are told of whatever they have read.
    pub(crate) broadcasts: Broadcasts,
    /// The inboxes without room for what its connections publish.
    pub(crate) overfilled: Overfilled,
    pub(crate) attendant: Lent,
    pub(crate) upkeep: UpkeepProgress,
    pub(crate) tables: Tables,
    /// What it shows of its connections to the advisor.
    pub(crate) advice: Watch,
    /// What it knows of monitors.
    pub(crate) monitors: LocalMonitors,
    /// What it applies of a primary's stream.
    pub applying: Applying,
}

impl Worker {
    /// The worker with this number. One beyond the number of threads serves no clients: it loads data.
    pub(crate) fn with_hooks(id: usize, engine: &'static Engine, seed: u64, hooks: Hooks) -> Worker {
        Worker {
            id,
            engine,
            hooks,
            clock: Clockwork::new(engine.started_ms),
            meter: Meter::new(engine.stats.get(id).unwrap_or(&engine.loading_stats)),
            pace: Pace::default(),
            company: Company::new(engine.inboxes.len() == 1),
            rules: Rules::default(),
            limits: Limits::default(),
            random: Random::new(seed),
            observed: Observed::default(),
            settings_version: 0,
            arrived_bytes: 0,
            ticks: Ticks::now(),
            looked_at: Ticks::now(),
            memory: MemoryWatch::default(),
            effects: Effects::default(),
            unit: Unit::default(),
            depends: 0,
            wrote: 0,
            lane: engine.journal.writer(id),
            ready: Vec::new(),
            late: Vec::new(),
            shards: Vec::new(),
            shard_set: ShardSet::default(),
            scripts: LocalScripts::default(),
            broadcasts: Broadcasts::default(),
            overfilled: Overfilled::new(engine.inboxes.len()),
            attendant: Lent::default(),
            upkeep: UpkeepProgress::default(),
            tables: Tables::default(),
            advice: Watch::new(engine.advice.of(id)),
            monitors: LocalMonitors::default(),
            applying: Applying::default(),
        }
    }

    /// The engine's reasons that hold for the commands that run now.
    #[inline]
    pub(crate) fn reasons(&self) -> u64 {
        self.engine.reasons.get() & self.monitors.mask()
    }

    /// True if a monitor may be shown what runs now.
    #[inline]
    pub(crate) fn is_monitored(&self) -> bool {
        self.reasons() & MONITORED != 0
    }

    /// What runs a command.
    #[inline]
    pub(crate) fn run_of(&self, command: &Command) -> &'static Run {
        &self.hooks.runs[command.id]
    }

    /// Runs a command of a script. Its shards are held.
    pub(crate) fn run_nested(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) {
        (self.hooks.run_nested)(self, session, invoked, locked, out);
    }

    /// This thread's counters.
    #[inline]
    #[must_use]
    pub fn stats(&self) -> &'static WorkerStats {
        self.meter.stats()
    }

    /// Bytes that the running connection has sent, as far as they are still in memory.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes as u64
    }

    /// Has turns end after so many bytes of replies, if that is less than usual.
    pub fn end_turns_after(&mut self, bytes: usize) {
        self.pace.turn_bytes_max = bytes;
    }

    /// Bytes of replies after which a connection's turn ends.
    #[must_use]
    pub fn reply_bytes_max(&self) -> usize {
        self.pace.reply_bytes_max()
    }

    /// Sets the clock to the time at which a turn begins, in microseconds of Unix time. True if the configuration has
    /// changed since the last one.
    pub(crate) fn begin_turn_at(&mut self, now_us: u64) -> bool {
        let has_changed = self.follow_settings();
        self.clock.begin_turn(now_us);
        self.clock.keeps_due = self.engine.always_keeps_due_keys();
        has_changed
    }

    /// Applies a record that only Penstock understands, which a primary has sent, and records it. False if it is none.
    pub(crate) fn apply_own(&mut self, record: &[u8]) -> bool {
        let applied = self.engine.pipelines.replay_record(record, self.clock.now_ms);
        if applied && self.effects.recording {
            self.unit.record.push_written(0, Kind::Own, record);
        }
        applied
    }

    /// Whether the log has room for what connections of this thread write.
    #[must_use]
    pub fn log_has_room(&self) -> bool {
        let is_in_time = self.lane.waiting_bytes() <= LANE_BYTES_MAX / 2 && !self.engine.durability.is_behind();
        let lane_has_room = !self.effects.recording || is_in_time;
        lane_has_room && !self.engine.snapshots.is_overfull()
    }

    /// Whether connections that have waited for room in the log go on: there is some, or what they write is refused.
    #[must_use]
    pub fn ends_wait_for_log(&self) -> bool {
        self.log_has_room() || self.engine.refuses_writes()
    }

    /// The last unit that what has run since the last call depends on, if replies wait for that; 0 if none.
    pub fn take_depends(&mut self) -> Position {
        std::mem::take(&mut self.depends)
    }

    /// Ends the turn: counts it, and what it took.
    pub fn end_turn(&self) {
        if self.lane.waiting_bytes() > 0 {
            self.engine.durability.ring(|| self.engine.journal.position());
            // Behind the fence of the call above.
            self.engine.replication.stream.ring();
        }
        self.stats().turns.add(1);
        self.stats().turn_ticks.add(self.clock.turn_ticks());
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
