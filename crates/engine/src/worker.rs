//! The worker: the state of one thread that serves clients.
//!
//! A worker owns everything that needs no synchronisation: clock, counters, scratch tables, the effects of the present
//! unit, its lane of the journal. All shared state is in the [`Engine`]. `crate::execute` implements the run of a batch
//! on a worker.

mod busy_script_handler;
mod counting;
mod gate;
pub(crate) mod pace;
pub(crate) mod requirements;
mod settings;
pub(crate) mod tables;
pub mod turn;
pub(crate) mod unit;

use std::cell::Cell;
use std::sync::Arc;

use commands::call::{KeyRef, Rules};
use commands::effects::Effects;
use commands::spec::Scope;
use journal::lane::Writer;
use journal::order::Position;
use journal::record::Kind;
use resp::reply::Output;
use resp::request::{Args, Limits};
use store::db::SideEffects;
use store::hash::KeyHash;
use store::keyspace::{Locked, ShardSet};
use store::random::Random;

use crate::advice::watch::Watch;
use crate::clients::session::Session;
use crate::clients::slot_changes::SlotChange;
use crate::listening::tracking::Broadcasts;
use crate::listening::watch::DbKey;
use crate::machine::clockwork::Clockwork;
use crate::memory::compaction::CompactionProgress;
use crate::memory::eviction::MemoryWatch;
use crate::memory::expiry::ExpirySearch;
use crate::pubsub::full_inboxes::FullInboxes;
use crate::pubsub::monitors::LocalMonitors;
use crate::replication::moving;
use crate::replication::rounds::RoundBounds;
use crate::scripts::LocalScripts;
use crate::slots::SeenSlots;
use crate::slots::bus::LateAnswer;
use crate::slots::forward::Forwarded;
use crate::slots::jobs::SlotJob;
use crate::slow_path::MONITORED;
use crate::snapshots::WalkProgress;
use crate::state::Engine;
use commands::table::Command;
use statistics::stats::WorkerStats;
use statistics::ticks::Ticks;
use statistics::timings::Meter;

use self::busy_script_handler::LentHandler;
use self::pace::{ExclusiveBackoff, LANE_BYTES_MAX, Pace};
use self::tables::Tables;
use self::turn::{Invocation, Run};
use self::unit::Unit;

pub use self::busy_script_handler::BusyScriptHandler;
pub(crate) use self::gate::GateGuard;

/// Callbacks from this module to modules above it.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// The handler of each command, by the command's index in the table.
    pub runs: &'static [Run],
    /// Runs a command of a script. Its shards are held.
    pub run_nested: fn(&mut Worker, &mut Session, Invocation<'_>, &mut Locked<'_>, &mut Output),
}

/// A worker's progress in the work that it does step by step between batches.
#[derive(Default)]
pub(crate) struct UpkeepProgress {
    /// The search for expired keys.
    pub expiry: ExpirySearch,
    /// The search for sparse pages.
    pub compacting: CompactionProgress,
    /// The walk of a snapshot.
    pub saving: WalkProgress,
}

/// A worker's state for applying a primary's stream.
#[derive(Default)]
pub struct Applying {
    /// The session of the stream, with the numbers of the stream and of the change of primary that began it.
    pub(crate) stream: Option<((u64, u64), Box<Session>)>,
    /// The limits of the stream's parts that other threads may apply.
    pub round_bounds: RoundBounds,
    /// The session that applies lanes of other threads' rounds; `is_lane` is true while it does.
    pub(crate) lane_session: Option<Box<Session>>,
    pub(crate) is_lane: bool,
    /// The sessions of imports of slots that this thread applies.
    pub(crate) imports: Vec<ImportSession>,
}

/// The session of an import of slots.
pub(crate) struct ImportSession {
    pub(crate) job: Arc<SlotJob>,
    pub(crate) session: Box<Session>,
    /// The number of the next part of the source's stream.
    pub(crate) next: u64,
}

/// See the module's documentation.
pub struct Worker {
    /// The worker's number, from 0.
    pub id: usize,
    /// The state that all threads share.
    pub engine: &'static Engine,
    hooks: Hooks,
    /// The time that commands see: at most a millisecond old at the start of a command.
    pub clock: Clockwork,
    /// The limits of one connection's turn.
    pub(crate) pace: Pace,
    /// The state that decides when excluding other threads is worth another attempt.
    pub(crate) exclusive_backoff: ExclusiveBackoff,
    /// The counters of its commands.
    pub(crate) meter: Meter,
    /// The configuration that handlers use.
    pub rules: Rules,
    /// The limits of requests.
    pub limits: Limits,
    /// The source of randomness.
    pub random: Random,
    /// The side effects of lookups, for example the removal of an expired key. They come in addition to the commands'
    /// own changes.
    pub observed: SideEffects,
    /// The version of the configuration that `rules` and `limits` were made from.
    settings_version: u64,
    /// The bytes of the running connection's requests that are still in memory.
    pub(crate) arrived_bytes: usize,
    /// The end of the last command.
    pub(crate) ticks: Ticks,
    /// The longest command of the present run, with its ticks, among those that are long enough to be noted.
    pub(crate) longest: Cell<Option<(usize, u64)>>,
    /// The end of the last command that was measured by `look_at_last`, or the start of the window.
    pub(crate) looked_at: Ticks,
    pub(crate) memory: MemoryWatch,
    pub(crate) effects: Effects,
    /// The effects of the present unit's commands.
    pub(crate) unit: Unit,
    /// The blocked client that is being served; 0 if none is. Its invalidations follow its reply, as they follow the
    /// replies to its own commands.
    pub(crate) served_client: u64,
    /// The keys of the served client's invalidations.
    pub(crate) served_invalidations: Vec<Box<[u8]>>,
    /// The last unit that must be durable before the present connection's replies are sent; 0 if replies don't wait for
    /// durability.
    pub(crate) durable_after: Position,
    /// The last unit that was committed for the present connection; 0 if none was.
    pub(crate) wrote: Position,
    /// This thread's units on their way to the journal's readers.
    pub(crate) lane: Writer,
    /// Keys that changed and have waiters.
    pub(crate) ready: Vec<(usize, DbKey)>,
    /// Keys from `ready` that a busy script held.
    pub(crate) late: Vec<(usize, DbKey)>,
    pub(crate) shards: Vec<usize>,
    pub(crate) shard_set: ShardSet,
    pub(crate) scripts: LocalScripts,
    /// Changed keys for tracking clients in broadcast mode.
    pub(crate) broadcasts: Broadcasts,
    /// The inboxes without room for published messages.
    pub(crate) full_inboxes: FullInboxes,
    pub(crate) busy_script_handler: LentHandler,
    pub(crate) upkeep: UpkeepProgress,
    pub(crate) tables: Tables,
    /// Its reports to the advisor.
    pub(crate) advice: Watch,
    /// Its view of monitors.
    pub(crate) monitors: LocalMonitors,
    /// The bus's answers that a busy script has delayed.
    pub(crate) late_answers: Vec<LateAnswer>,
    /// Its clients' changes of slots that are on their way to the replicas.
    pub(crate) slot_changes: Vec<SlotChange>,
    /// Its state for applying a primary's stream.
    pub applying: Applying,
    /// The view of the cluster's slots that it has seen most recently.
    pub(crate) slots: SeenSlots,
    /// The commands of the present run that other nodes must run.
    pub(crate) forwarded: Forwarded,
}

impl Worker {
    /// Returns the worker with this number. The number after the last thread's belongs to a worker that loads data and
    /// serves no clients.
    pub(crate) fn with_hooks(id: usize, engine: &'static Engine, seed: u64, hooks: Hooks) -> Worker {
        Worker {
            id,
            engine,
            hooks,
            clock: Clockwork::new(engine.started_ms),
            meter: Meter::new(engine.stats.get(id).unwrap_or(&engine.loading_stats)),
            pace: Pace::default(),
            exclusive_backoff: ExclusiveBackoff::new(engine.inboxes.len() == 1),
            rules: Rules::default(),
            limits: Limits::default(),
            random: Random::new(seed),
            observed: SideEffects::default(),
            settings_version: 0,
            arrived_bytes: 0,
            ticks: Ticks::now(),
            longest: Cell::new(None),
            looked_at: Ticks::now(),
            memory: MemoryWatch::default(),
            effects: Effects::default(),
            unit: Unit::default(),
            served_client: 0,
            served_invalidations: Vec::new(),
            durable_after: 0,
            wrote: 0,
            lane: engine.journal.writer(id),
            ready: Vec::new(),
            late: Vec::new(),
            shards: Vec::new(),
            shard_set: ShardSet::default(),
            scripts: LocalScripts::default(),
            broadcasts: Broadcasts::default(),
            full_inboxes: FullInboxes::new(engine.inboxes.len()),
            busy_script_handler: LentHandler::default(),
            upkeep: UpkeepProgress::default(),
            tables: Tables::default(),
            advice: Watch::new(engine.advice.of(id)),
            monitors: LocalMonitors::default(),
            late_answers: Vec::new(),
            slot_changes: Vec::new(),
            applying: Applying::default(),
            slots: SeenSlots::default(),
            forwarded: Forwarded::default(),
        }
    }

    /// Returns the engine's flags that hold for the present commands.
    #[inline]
    pub(crate) fn slow_path(&self) -> u64 {
        self.engine.slow_path.get() & self.monitors.mask()
    }

    /// Returns whether a monitor may see the present commands.
    #[inline]
    pub(crate) fn is_monitored(&self) -> bool {
        self.slow_path() & MONITORED != 0
    }

    /// Returns the handler of a command.
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

    /// Returns this thread's counters.
    #[inline]
    #[must_use]
    pub fn stats(&self) -> &'static WorkerStats {
        self.meter.stats()
    }

    /// Returns the bytes that the running connection has sent and that are still in memory.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes as u64
    }

    /// Makes turns end after this number of reply bytes, if that is less than usual.
    pub fn end_turns_after(&mut self, bytes: usize) {
        self.pace.turn_bytes_max = bytes;
    }

    /// Returns the number of reply bytes after which a connection's turn ends.
    #[must_use]
    pub fn reply_bytes_max(&self) -> usize {
        self.pace.reply_bytes_max()
    }

    /// Sets the clock to the start of a turn, in microseconds of Unix time. Returns whether the configuration has
    /// changed since the last turn.
    pub(crate) fn begin_turn_at(&mut self, now_us: u64) -> bool {
        let has_changed = self.follow_settings();
        self.clock.begin_turn(now_us);
        self.clock.keeps_due = self.engine.always_keeps_due_keys();
        has_changed
    }

    /// Applies and records a record of Penstock's own kind from a primary. Returns false if the record is invalid.
    pub(crate) fn apply_own(&mut self, record: &[u8]) -> bool {
        if let Some(for_ms) = moving::hold_time(record) {
            // The hold concerns connections, not data: no file gets it.
            self.engine.maintenance.hold(self.clock.now_ms, for_ms);
            return true;
        }
        let applied = self.engine.pipelines.replay_record(record, self.clock.now_ms);
        if applied && self.effects.recording {
            self.unit.record.push_written(0, Kind::Own, record);
        }
        applied
    }

    /// Returns the limits of the requests that are framed now. `proto-max-bulk-len` binds clients, but not commands
    /// that a primary or a file has accepted.
    #[inline]
    pub(crate) fn framing_limits(&self) -> &Limits {
        if self.clock.replays { &Limits::UNLIMITED } else { &self.limits }
    }

    /// Returns whether the log has room for this thread's writes.
    #[must_use]
    pub fn log_has_room(&self) -> bool {
        let is_in_time = self.lane.waiting_bytes() <= LANE_BYTES_MAX / 2 && !self.engine.durability.is_behind();
        let lane_has_room = !self.effects.recording || is_in_time;
        lane_has_room && !self.engine.snapshots.is_overfull()
    }

    /// Returns whether connections that have waited for room in the log go on: there is room, or their writes will be
    /// refused.
    #[must_use]
    pub fn ends_wait_for_log(&self) -> bool {
        self.log_has_room() || self.engine.refuses_writes()
    }

    /// Returns the last unit that must be durable before the replies since the last call are sent; 0 if replies don't
    /// wait for durability.
    pub fn take_durable_after(&mut self) -> Position {
        std::mem::take(&mut self.durable_after)
    }

    /// Ends the turn, and counts it with its time.
    pub fn end_turn(&mut self) {
        if self.lane.waiting_bytes() > 0 {
            self.engine.durability.ring(|| self.engine.journal.position());
            // The call above contains the fence that this one needs.
            self.engine.replication.stream.ring();
        }
        self.stats().turns.add(1);
        let ticks = self.clock.end_turn();
        self.stats().turn_ticks.add(ticks);
    }
}

/// Hashes the keys among a command's arguments.
#[inline]
pub(crate) fn hash_keys(command: &Command, args: Args<'_>, keys: &mut Vec<KeyRef>) {
    command.info.visit_keys(args, |i| keys.push(KeyRef { arg: i as u32, hash: KeyHash::of(args.get(i)) }));
}

/// Returns whether a command runs alone, behind the gate.
pub(crate) fn is_whole(command: &Command, args: Args<'_>) -> bool {
    matches!(command.info.scope_for(args), Scope::Whole | Scope::Script)
}
