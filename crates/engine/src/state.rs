//! The state that all threads share.

mod announcing;
mod ending;
mod failing_over;
mod following;
mod holding;
mod replacing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster::commands::ClusterCommand;
use commands::error::Error;
use commands::spec::{Scope, flag};
use journal::order::Position;
use replication::id::HistoryId;
use resp::reply::{Output, Reply};
use resp::request::Args;
use store::keyspace::{Keyspace, Layout};

pub(crate) use self::ending::SHUTDOWN_FAILED;
pub use self::ending::UNSAFE_SHUTDOWN;
pub(crate) use self::following::UNBLOCKED;
use crate::advice::Advice;
use crate::clients::blocking::{Waiter, Waiters};
use crate::clients::client::Clients;
use crate::clients::client_memory::ClientLimit;
use crate::clients::session::{Queued, Session};
use crate::clients::transaction::is_exec;
use crate::durability::{Durability, DurabilityTarget};
use crate::host::Host;
use crate::inbox::{Inbox, Wake};
use crate::journal::Journal;
use crate::listening::events;
use crate::listening::listeners::Listeners;
use crate::listening::tracking::Tracking;
use crate::listening::watch::Watchers;
use crate::machine::Machine;
use crate::maintenance::Maintenance;
use crate::memory::compaction::{Compaction, Thresholds};
use crate::migrations::Migrations;
use crate::pause::{Pause, PausePurpose};
use crate::pipelines::Pipelines;
use crate::pubsub::PubSub;
use crate::pubsub::monitors::Monitors;
use crate::replication::Replication;
use crate::replication::replicas::Acknowledgement;
use crate::replies::ReplyFigures;
use crate::scripts::busy::Busy;
use crate::scripts::cache::Scripts;
use crate::scripts::library::Libraries;
use crate::scripts::rights;
use crate::slots::Slots;
use crate::slots::bus::{Answer, BusRequest};
use crate::slots::stats::SlotStats;
use crate::slow_path::{
    EngineFlags, HOLDS, IMPORTS, KEEPS_KEYS, LOADING, MIGRATES, NOTIFIES, PAUSED, REFUSES_WRITES, RELOADING, REPLICA,
    UNSNAPPED, has_listeners,
};
use crate::snapshots::{Purpose, Snapshots};
use access::Users;
use commands::table::{Command, Table};
use config::{AppendFsync, ClusterForward, CrossSlot, QUERY_BYTES_MAX, SavePoint, Settings};
use statistics::hot_keys::{HotKeys, ServerFigures};
use statistics::latency_monitor::{LatencyMonitor, Sample};
use statistics::rates::Rates;
use statistics::slow_log::{BatchLog, SlowLog};
use statistics::stats::{MemoryMarks, Totals, WorkerStats};
use statistics::ticks::per_microsecond;

/// The greatest length of a string in bytes, for any configuration.
pub(crate) const STRING_BYTES_MAX: u64 = QUERY_BYTES_MAX;

/// Seconds between a failed snapshot and the next try: Redis's figure.
const RETRY_AFTER_S: u64 = 5;
/// The number of consecutive failed rewrites of the append-only file after which no more begin automatically. Redis
/// delays its rewrites ever longer after this number.
const FAILURES_MAX: u64 = 3;

/// The error of WAITAOF for a local disk without an append-only file.
const NO_FILE: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// The reason that a command is in a log of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogKind {
    /// The command took long.
    Slow,
    /// Its request had many bytes.
    LargeRequest,
    /// Its reply had many bytes.
    LargeReply,
}

/// A command is noted as the longest of its batch from this part of the threshold for slow batches. Fewer than this number
/// of such commands make a batch slow.
const LONG_IN_BATCH: u64 = 8;

impl LogKind {
    /// All kinds.
    pub const ALL: [LogKind; 3] = [LogKind::Slow, LogKind::LargeRequest, LogKind::LargeReply];

    /// Returns the kind with this name, ignoring case.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<LogKind> {
        let names = ["slow", "large-request", "large-reply"];
        names
            .iter()
            .zip(LogKind::ALL)
            .find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes()))
            .map(|(_, kind)| kind)
    }

    /// Returns the greatest number of entries of this kind's log.
    #[must_use]
    pub fn len_max(self, settings: &Settings) -> usize {
        let setting = match self {
            LogKind::Slow => &settings.slowlog_max_len,
            LogKind::LargeRequest => &settings.commandlog_large_request_max_len,
            LogKind::LargeReply => &settings.commandlog_large_reply_max_len,
        };
        setting.get_usize()
    }
}

/// The shared state. There is one, and it lives as long as the process.
pub struct Engine {
    /// All commands.
    pub table: &'static Table,
    /// All keys.
    pub keyspace: Keyspace,
    /// All users.
    pub users: Users,
    /// All connections.
    pub clients: Clients,
    /// The memory limit of all connections together.
    pub client_limit: ClientLimit,
    /// The flags that keep commands off the fast path.
    pub slow_path: Arc<EngineFlags>,
    /// Each thread's inbox.
    pub inboxes: Vec<Inbox>,
    /// Each thread's counters.
    pub stats: Vec<WorkerStats>,
    /// The counters of the worker that loads data. INFO ignores them.
    pub(crate) loading_stats: WorkerStats,
    /// The source of units' positions, and the way of units to readers.
    pub journal: Journal,
    /// The positions of the last safe units, in the log and on replicas.
    pub durability: Durability,
    /// The links to the primary and to replicas.
    pub replication: Replication,
    /// The snapshot that is being made.
    pub snapshots: Snapshots,
    /// Keys that move to other servers.
    pub migrations: Migrations,
    /// A filter of the keys that may be watched or waited for.
    pub listeners: Arc<Listeners>,
    /// The sessions that watch keys.
    pub watchers: Watchers,
    /// The connections that wait for keys.
    pub waiters: Waiters,
    /// The clients that cache replies, and the keys that are tracked for them.
    pub tracking: Tracking,
    /// The threads that run scripts for too long.
    pub busy: Busy,
    /// All cached scripts.
    pub scripts: Scripts,
    /// All libraries of functions.
    pub libraries: Libraries,
    /// All subscriptions.
    pub pubsub: PubSub,
    /// The counts of pipelines that survive their connections.
    pub pipelines: Pipelines,
    /// Figures of unread replies.
    pub replies: ReplyFigures,
    /// The connections in MONITOR mode.
    pub monitors: Monitors,
    /// The published classes of keyspace events; 0 is none.
    pub notify_classes: AtomicU64,
    /// True if expired keys are searched for (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// True during DEBUG SLEEP. A cluster's node is silent then, as if its process hung.
    pub sleeps: AtomicBool,
    /// True if RESTORE accepts payloads with a wrong checksum (DEBUG SET-SKIP-CHECKSUM-VALIDATION).
    pub(crate) skips_checksums: AtomicBool,
    /// The time until which the end of the server waits for replicas, in milliseconds of Unix time; 0 if the server is not
    /// about to end.
    shutdown_due_ms: AtomicU64,
    /// The state of CLIENT PAUSE.
    pub pause: Pause,
    /// The announcements of maintenance.
    pub maintenance: Maintenance,
    /// The time of the last warning about a client that sent HTTP, in milliseconds of Unix time.
    pub(crate) http_warned_ms: AtomicU64,
    /// The number of ticks from which a command is slow; `u64::MAX` if none is.
    slow_ticks: AtomicU64,
    /// The number of ticks from which the latency monitor records an event; `u64::MAX` if it is off.
    latency_ticks: AtomicU64,
    /// Commands that took long, had large requests, and large replies: see [`LogKind`].
    command_logs: [SlowLog; 3],
    /// The number of ticks from which a batch is slow; `u64::MAX` if none is.
    slow_batch_ticks: AtomicU64,
    /// The number of ticks from which a command is recorded anywhere: the least threshold.
    notable_ticks: AtomicU64,
    /// The slow batches.
    pub batch_log: BatchLog,
    /// The keys with the most time and traffic, while HOTKEYS counts.
    pub hot_keys: HotKeys,
    /// Slow events for LATENCY.
    pub latency: LatencyMonitor,
    /// The slots of the cluster.
    pub slots: Slots,
    /// Statistics for each slot.
    pub slot_stats: SlotStats,
    /// Round trips that clients waste.
    pub advice: Advice,
    /// The configuration.
    pub settings: Settings,
    /// The file of the configuration, which CONFIG REWRITE writes.
    pub config_file: Option<PathBuf>,
    /// Counts changes of the configuration, so that threads notice them.
    settings_version: AtomicU64,
    /// The server around the engine.
    pub host: Box<dyn Host>,
    /// The facts about the machine, as the host gave them.
    pub machine: Machine,
    /// The present rates of events.
    pub rates: Rates,
    /// Marks of the memory in use.
    pub memory: MemoryMarks,
    /// The search for sparse pages.
    pub compaction: Compaction,
    /// The start time of the server, in milliseconds of Unix time.
    pub started_ms: u64,
}

impl Engine {
    /// Starts the engine of a process, with these commands and a thread for each of `wakes`.
    pub fn start(
        table: &'static Table,
        settings: Settings,
        config_file: Option<PathBuf>,
        wakes: Vec<Box<dyn Wake>>,
        host: Box<dyn Host>,
        now_ms: u64,
    ) -> &'static Engine {
        let threads = wakes.len();
        let layout = Layout::of_hashes();
        let (keyspace_is_by_slot, databases) = match layout {
            Layout::Threads => (false, &settings.databases),
            Layout::Slots => (true, &settings.cluster_databases),
        };
        let keyspace = Keyspace::with_layout(databases.get_usize(), threads, layout);
        let shards = keyspace.shard_count();
        let machine = host.machine();
        let history = HistoryId::parse(machine.replication_id.as_bytes()).unwrap_or(HistoryId::NONE);
        let slow_path = Arc::<EngineFlags>::default();
        let listeners = Arc::new(Listeners::new(slow_path.clone()));
        let engine: &'static Engine = Box::leak(Box::new(Engine {
            table,
            keyspace,
            users: Users::new(table),
            clients: Clients::default(),
            client_limit: ClientLimit::default(),
            inboxes: wakes.into_iter().map(|wake| Inbox::new(wake, threads)).collect(),
            stats: (0..threads).map(|_| WorkerStats::new(table.all().len())).collect(),
            loading_stats: WorkerStats::new(table.all().len()),
            journal: Journal::new(threads, slow_path.clone()),
            durability: Durability::new(shards, threads, slow_path.clone()),
            replication: Replication::new(history, threads, slow_path.clone()),
            snapshots: Snapshots::default(),
            migrations: Migrations::new(threads, slow_path.clone()),
            watchers: Watchers::new(shards, listeners.clone()),
            waiters: Waiters::new(shards, listeners.clone()),
            tracking: Tracking::new(slow_path.clone()),
            listeners,
            busy: Busy::new(threads + 1),
            scripts: Scripts::new(table),
            libraries: Libraries::default(),
            slots: Slots::new(keyspace_is_by_slot, threads, slow_path.clone()),
            slot_stats: SlotStats::new(threads),
            pubsub: PubSub::default(),
            pipelines: Pipelines::default(),
            replies: ReplyFigures::default(),
            monitors: Monitors::new(slow_path.clone()),
            notify_classes: AtomicU64::new(0),
            active_expire: AtomicBool::new(true),
            sleeps: AtomicBool::new(false),
            skips_checksums: AtomicBool::new(false),
            shutdown_due_ms: AtomicU64::new(0),
            pause: Pause::new(slow_path.clone()),
            maintenance: Maintenance::new(slow_path.clone()),
            slow_path,
            http_warned_ms: AtomicU64::new(0),
            slow_ticks: AtomicU64::new(u64::MAX),
            latency_ticks: AtomicU64::new(u64::MAX),
            command_logs: Default::default(),
            slow_batch_ticks: AtomicU64::new(u64::MAX),
            notable_ticks: AtomicU64::new(u64::MAX),
            batch_log: BatchLog::default(),
            hot_keys: HotKeys::default(),
            latency: LatencyMonitor::default(),
            advice: Advice::new(threads),
            settings,
            config_file,
            settings_version: AtomicU64::new(1),
            host,
            machine,
            rates: Rates::default(),
            memory: MemoryMarks::default(),
            compaction: Compaction::default(),
            started_ms: now_ms,
        }));
        engine.settings_changed();
        engine.follow_durability();
        engine.snapshots.change_figures(|figures| figures.saved_s = now_ms / 1000);
        engine
    }

    /// Applies the configuration to everything derived from it. Call it after every change.
    pub fn settings_changed(&self) {
        self.follow_thresholds();
        self.notify(self.settings.notify_keyspace_events.get() as u32);
        self.keyspace.reaper().free_expired_lazily(self.settings.lazyfree_lazy_expire.get());
        let awaited = self.settings.appendfsync.get() == AppendFsync::Always;
        self.durability.settings_changed(awaited, self.journal.position());
        self.follow_snapshots();
        self.slow_path.set(IMPORTS, self.settings.import_mode.get());
        self.replication.serve_stale(self.settings.replica_serve_stale_data.get());
        self.replication.replicas.want_good(self.settings.good_replicas_wanted());
        self.users.require_password(&self.settings.requirepass.get());
        self.settings_version.fetch_add(1, Ordering::Release);
    }

    /// Sets the classes of keyspace events that are published.
    pub fn notify(&self, classes: u32) {
        self.notify_classes.store(u64::from(classes), Ordering::Relaxed);
        self.slow_path.set(NOTIFIES, classes != 0);
    }

    /// Returns true if changes of keys have listeners or are published.
    #[must_use]
    pub(crate) fn tells_of_keys(&self) -> bool {
        let slow_path = self.slow_path.get();
        has_listeners(slow_path) || slow_path & NOTIFIES != 0
    }

    /// Returns true if commands are counted by their keys, for HOTKEYS or for the statistics of slots.
    #[must_use]
    pub(crate) fn counts_by_key(&self) -> bool {
        self.hot_keys.ratio() != 0 || self.counts_slots()
    }

    /// Returns true if commands are counted for their slots.
    #[must_use]
    pub(crate) fn counts_slots(&self) -> bool {
        self.slots.are_on() && self.settings.cluster_slot_stats_enabled.get()
    }

    /// Returns true if this node of a cluster runs commands with keys in several of its slots.
    #[must_use]
    pub(crate) fn crosses_slots(&self) -> bool {
        self.settings.cluster_cross_slot.get() == CrossSlot::Local
    }

    /// Returns true if this node of a cluster has other nodes run the commands that it doesn't run.
    #[must_use]
    pub fn forwards(&self) -> bool {
        self.slots.are_on() && self.settings.cluster_forward.get() != ClusterForward::No
    }

    /// Returns a number that changes whenever the configuration does.
    #[inline]
    #[must_use]
    pub fn settings_version(&self) -> u64 {
        self.settings_version.load(Ordering::Acquire)
    }

    /// Returns the bytes in use that count against `maxmemory`. Buffers for slow replicas and the disk don't count, as
    /// in Redis: each evicted key would add to them.
    #[must_use]
    pub fn limited_memory(&self) -> u64 {
        self.host.used_memory().saturating_sub(self.waiting_memory())
    }

    /// Returns the memory of the bytes that wait for replicas beyond `repl-backlog-size`, of those that wait for the disk, and of the
    /// journal's lanes, from which the readers for both take them. Unused capacity of these buffers is included, because keys would
    /// be evicted for it otherwise.
    #[must_use]
    pub fn waiting_memory(&self) -> u64 {
        let stream_bytes = self.replication.stream.memory_bytes();
        let stream_bytes = stream_bytes.saturating_sub(self.settings.repl_backlog_size.get());
        stream_bytes + self.durability.file_memory() + self.journal.memory() as u64
    }

    /// Does the periodic work: samples rates and peaks, removes expired pipeline tokens, begins due snapshots. Call it
    /// several times a second. `now_ms` is Unix time; `steady_ms` is the time of a monotonic clock.
    pub fn sample(&self, now_ms: u64, steady_ms: u64) {
        self.rates.sample(steady_ms, || Totals::of(&self.stats));
        self.memory.note(self.host.used_memory(), now_ms / 1000);
        self.pipelines.remove_expired(now_ms);
        self.check_snapshots(now_ms);
        if self.hot_keys.ratio() != 0 {
            self.hot_keys.look(now_ms, || self.figures(now_ms));
        }
        if self.settings.activedefrag.get() {
            let memory = || [self.host.resident_memory(), self.host.used_memory()];
            self.compaction.look(now_ms, self.inboxes.len(), &self.thresholds(), memory);
        }
    }

    /// Returns the server's figures from which HOTKEYS computes differences.
    #[must_use]
    pub fn figures(&self, now_ms: u64) -> ServerFigures {
        let (cpu, totals) = (self.host.usage().cpu, Totals::of(&self.stats));
        ServerFigures {
            at_ms: now_ms,
            user_us: cpu.user_us,
            system_us: cpu.system_us,
            net_bytes: totals.net_in + totals.net_out,
        }
    }

    fn thresholds(&self) -> Thresholds {
        let settings = &self.settings;
        Thresholds {
            ignore_bytes: settings.active_defrag_ignore_bytes.get(),
            percent: [&settings.active_defrag_threshold_lower, &settings.active_defrag_threshold_upper]
                .map(|setting| setting.get().unsigned_abs()),
            cycle: [&settings.active_defrag_cycle_min, &settings.active_defrag_cycle_max]
                .map(|setting| setting.get().unsigned_abs()),
        }
    }

    /// Sets the counters that INFO shows back to zero.
    pub fn reset_statistics(&self) {
        self.stats.iter().for_each(WorkerStats::reset);
        self.replies.reset();
        self.rates.reset();
        self.compaction.reset();
        self.keyspace.reaper().reset_freed();
        self.scripts.reset_evicted();
        self.users.denials.reset_counts();
        self.slot_stats.reset();
        if self.slots.are_on() {
            let command = ClusterCommand::ResetStatistics;
            // Without a bus there is nothing to reset.
            let _ = self.host.cluster(BusRequest { command, answer: Answer::Nobody });
        }
    }

    /// Returns the effects that commands list for published notifications: the classes of changes, and the bits of
    /// events of the keyspace. Watchers and waiters may add to them.
    #[inline]
    #[must_use]
    pub fn published(&self) -> (u32, u8) {
        let classes = self.notify_classes.load(Ordering::Relaxed) as u32;
        if classes == 0 { (0, 0) } else { events::published(classes) }
    }

    /// Returns whether a session has to authenticate first. A session need not while the default user needs no
    /// password.
    #[inline]
    #[must_use]
    pub fn must_authenticate(&self, session: &Session) -> bool {
        !session.is_authenticated() && !self.users.is_default_open()
    }

    /// Returns the number of ticks from which a command is slow.
    #[inline]
    #[must_use]
    pub fn slow_ticks(&self) -> u64 {
        self.slow_ticks.load(Ordering::Relaxed)
    }

    /// Returns one of the logs of commands.
    #[must_use]
    pub fn command_log(&self, kind: LogKind) -> &SlowLog {
        &self.command_logs[kind as usize]
    }

    /// Returns the number of ticks from which the latency monitor records an event.
    #[inline]
    #[must_use]
    pub fn latency_ticks(&self) -> u64 {
        self.latency_ticks.load(Ordering::Relaxed)
    }

    /// Records an event other than a command for the latency monitor, if it took long. `time_s` is Unix time.
    pub fn note_latency(&self, event: &'static str, took: Duration, time_s: u64) {
        let threshold_ms = self.settings.latency_monitor_threshold_ms.get();
        let took_ms = took.as_millis() as u64;
        if threshold_ms > 0 && took_ms >= threshold_ms as u64 {
            self.latency.add(event, Sample { time_s, took_ms });
        }
    }

    /// Returns the number of ticks from which a command is recorded anywhere.
    #[inline]
    #[must_use]
    pub fn notable_ticks(&self) -> u64 {
        self.notable_ticks.load(Ordering::Relaxed)
    }

    /// Returns the number of ticks from which a batch is slow.
    #[inline]
    #[must_use]
    pub(crate) fn slow_batch_ticks(&self) -> u64 {
        self.slow_batch_ticks.load(Ordering::Relaxed)
    }

    /// Applies the configured thresholds of the slow logs and of the latency monitor.
    fn follow_thresholds(&self) {
        let ticks = |microseconds: f64| (microseconds * per_microsecond()) as u64;
        let threshold = |us: i64| if us < 0 { u64::MAX } else { ticks(us as f64) };
        let slow_ticks = threshold(self.settings.slowlog_log_slower_than_us.get());
        let slow_batch_ticks = threshold(self.settings.batchlog_log_slower_than_us.get());
        let latency_ms = self.settings.latency_monitor_threshold_ms.get();
        let latency_ticks = if latency_ms <= 0 { u64::MAX } else { ticks(latency_ms as f64 * 1000.0) };
        let long_in_batch = if slow_batch_ticks == u64::MAX { u64::MAX } else { slow_batch_ticks / LONG_IN_BATCH };
        self.slow_ticks.store(slow_ticks, Ordering::Relaxed);
        self.slow_batch_ticks.store(slow_batch_ticks, Ordering::Relaxed);
        self.latency_ticks.store(latency_ticks, Ordering::Relaxed);
        self.notable_ticks.store(slow_ticks.min(latency_ticks).min(long_in_batch), Ordering::Relaxed);
        self.batch_log.trim(self.settings.batchlog_max_len.get_usize());
        for kind in LogKind::ALL {
            self.command_log(kind).trim(kind.len_max(&self.settings));
        }
        if !self.settings.latency_tracking.get() {
            self.stats.iter().flat_map(|s| &s.commands).for_each(|c| c.histogram.reset());
        }
    }

    /// Returns whether any command may have to wait because of CLIENT PAUSE or a migration. The flag may lag behind the
    /// end of a pause.
    #[inline]
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.slow_path.has(PAUSED | MIGRATES)
    }

    /// Returns whether expired keys stay in place, invisible: commands are paused, or another server decides which keys
    /// expire.
    #[must_use]
    pub(crate) fn keeps_due_keys(&self, now_ms: u64) -> bool {
        self.always_keeps_due_keys() || self.is_paused(now_ms)
    }

    /// Like [`Engine::keeps_due_keys`], without pauses.
    #[must_use]
    pub(crate) fn always_keeps_due_keys(&self) -> bool {
        self.slow_path.has(REPLICA | IMPORTS)
    }

    /// Returns whether this server is a replica.
    #[must_use]
    pub fn is_replica(&self) -> bool {
        self.slow_path.has(REPLICA)
    }

    /// Returns whether clients' commands that write are refused because this server is a read-only replica.
    #[must_use]
    pub(crate) fn is_read_only(&self) -> bool {
        self.slow_path.has(REPLICA) && self.settings.replica_read_only.get()
    }

    /// Returns whether the set of keys is frozen: no key expires, is evicted or moved.
    #[inline]
    #[must_use]
    pub(crate) fn keeps_keys(&self) -> bool {
        self.slow_path.has(KEEPS_KEYS)
    }

    /// Begins to load data: commands are refused until [`Engine::end_loading`]. `now_s` is Unix time in seconds.
    pub fn begin_loading(&self, now_s: u64) {
        self.snapshots.loading.begin(now_s);
        self.slow_path.set(LOADING, true);
    }

    /// Ends the loading of data.
    pub fn end_loading(&self) {
        self.slow_path.set(LOADING, false);
    }

    /// Begins to read data that will replace the present data. Clients are served from the present data until
    /// [`Engine::begin_reloading`]. `now_s` is Unix time in seconds.
    pub fn begin_loading_beside(&self, now_s: u64) {
        self.snapshots.loading.begin(now_s);
        self.snapshots.loading.set_beside(true);
    }

    /// Notes that the new data have been read, or can't be.
    pub fn end_loading_beside(&self) {
        self.snapshots.loading.set_beside(false);
    }

    /// Begins to reload or exchange the data: all commands wait until [`Engine::end_reloading`]. `now_ms` is Unix time.
    pub fn begin_reloading(&self, now_ms: u64) {
        self.slow_path.set(RELOADING, true);
        self.pause.begin(PausePurpose::Reload, true, now_ms, u64::MAX);
    }

    /// Ends a reload that is complete or could not begin.
    pub fn end_reloading(&self) {
        self.slow_path.set(RELOADING, false);
        self.pause.end(PausePurpose::Reload);
    }

    /// Returns the reply of a blocking command that timed out.
    pub(crate) fn timeout_reply(&self, waiter: &Waiter) -> Output {
        let Some(awaited) = waiter.acknowledgement() else { return waiter.timeout_reply() };
        let mut output = Output::default();
        self.write_acknowledged(awaited, &mut Reply::new(&mut output, waiter.proto));
        output
    }

    /// Answers how many replicas, and whether the own disk, have the awaited units (WAIT, WAITAOF).
    pub(crate) fn write_acknowledged(&self, awaited: &Acknowledgement, reply: &mut Reply<'_>) {
        let replicas = &self.replication.replicas;
        let has_file = self.settings.appendonly.get();
        match awaited.on_disk {
            None => reply.int(replicas.having(awaited.position, false) as i64),
            Some(true) if !has_file => reply.error(NO_FILE),
            Some(_) => {
                reply.array(2);
                reply.int(i64::from(has_file && self.durability.synced() >= awaited.position));
                reply.int(replicas.having(awaited.position, true) as i64);
            }
        }
    }

    /// Returns the offset in the primary's history up to which this server's append-only file is on disk, if there is a
    /// file.
    #[must_use]
    pub fn synced_offset(&self) -> Option<u64> {
        let has_file = self.settings.appendonly.get() && self.durability.is_whole();
        has_file.then(|| self.replication.synced_offset(self.durability.synced())).flatten()
    }

    /// Returns whether WAIT or WAITAOF has its requested acknowledgements.
    pub(crate) fn has_acknowledged(&self, awaited: &Acknowledgement) -> bool {
        if awaited.on_disk == Some(true) && !self.settings.appendonly.get() {
            // The file was turned off, so there is nothing to wait for.
            return true;
        }
        let has_disk = awaited.on_disk != Some(true) || self.durability.synced() >= awaited.position;
        has_disk && self.replication.replicas.having(awaited.position, awaited.on_disk.is_some()) >= awaited.replicas
    }

    /// Returns true if all online replicas have a unit, and this server's disk, if the configuration makes replies wait for the disk.
    #[must_use]
    pub fn is_safe(&self, position: Position) -> bool {
        let waits_for_disk = self.settings.appendonly.get() && self.settings.appendfsync.get() == AppendFsync::Always;
        let has_disk = !waits_for_disk || self.durability.synced() >= position;
        has_disk && self.replication.replicas.having(position, false) >= self.replication.replicas.online()
    }

    /// Makes replies wait for replicas if the configuration requires it, or ends the wait. The caller is alone behind
    /// the gate, if any thread runs commands, because units are recorded from then on.
    pub fn follow_durability(&self) {
        let awaited = self.settings.durability_replicas.get() > 0 && !self.is_replica();
        if awaited == self.durability.is_awaited(DurabilityTarget::Replicas) {
            return;
        }
        let last = self.journal.position();
        if awaited {
            self.replication.begin_stream(&self.journal);
            // This precedes the wait of replies: units after `last` are safe when replicas have acknowledged them.
            self.durability.note_safe(DurabilityTarget::Replicas, last, |_| {});
        }
        if !awaited && self.is_replica() {
            self.durability.give_up_on_replicas(last);
        }
        self.durability.have_replies_wait(DurabilityTarget::Replicas, awaited, last);
        if !awaited {
            self.durability.note_safe(DurabilityTarget::Replicas, Position::MAX, |thread| self.inboxes[thread].wake());
        }
        self.replication.stream.wake();
    }

    /// Returns whether data are being loaded, so that the keyspace is incomplete.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.slow_path.has(LOADING | RELOADING)
    }

    /// Returns whether any command may have to wait, or be refused.
    #[inline]
    #[must_use]
    pub(crate) fn needs_care(&self) -> bool {
        self.slow_path.has(HOLDS)
    }

    /// Returns whether commands that write are refused because changes or snapshots can't be written to disk.
    #[must_use]
    pub fn refuses_writes(&self) -> bool {
        self.slow_path.has(REFUSES_WRITES)
    }

    /// Returns the error of commands that write while changes can't be written to disk.
    #[must_use]
    pub(crate) fn unsaved(&self) -> Error {
        match self.durability.disk_error() {
            Some(trouble) => Error::new(format!("MISCONF Errors writing to the AOF file: {trouble}")),
            None => Error::new(
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
                 may modify the data set are disabled, because this instance is configured to report errors during writes if \
                 RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about \
                 the RDB error.",
            ),
        }
    }

    /// Refuses commands that write while the last snapshot failed, if `stop-writes-on-bgsave-error` is set.
    pub fn follow_snapshots(&self) {
        let settings = &self.settings;
        let refuses = settings.stop_writes_on_bgsave_error.get()
            && !settings.save.is_empty()
            && self.snapshots.figures().has_failed;
        self.slow_path.set(UNSNAPPED, refuses);
    }

    /// Requests a snapshot if one is due: by the save points, or because the append-only file has grown.
    fn check_snapshots(&self, now_ms: u64) {
        if self.snapshots.purpose().is_some() || self.snapshots.wanted().is_some() || self.is_loading() {
            return;
        }
        let (figures, now_s) = (self.snapshots.figures(), now_ms / 1000);
        let changes = Totals::of(&self.stats).dirty.saturating_sub(figures.saved_dirty);
        let since = now_s.saturating_sub(figures.saved_s);
        let is_due = |point: SavePoint| changes >= point.changes as u64 && since > point.seconds as u64;
        let may_try = !figures.has_failed || now_s.saturating_sub(figures.tried_s) > RETRY_AFTER_S;
        if may_try && changes > 0 && self.settings.save_points().into_iter().any(is_due) {
            return self.snapshots.want(Purpose::File);
        }
        let percent = self.settings.auto_aof_rewrite_percentage.get() as u64;
        let (bytes, _) = self.durability.file_bytes();
        let is_large = bytes >= self.settings.auto_aof_rewrite_min_size.get();
        let has_grown = bytes.saturating_sub(figures.base_bytes) * 100 >= figures.base_bytes.max(1) * percent;
        // The files are useless without a base.
        let lacks_base = !self.durability.is_whole() && now_s.saturating_sub(figures.base_tried_s) > RETRY_AFTER_S;
        let is_grown = percent > 0 && is_large && has_grown && figures.base_failures < FAILURES_MAX;
        if self.settings.appendonly.get() && (lacks_base || is_grown) {
            self.snapshots.want(Purpose::Base);
        }
    }

    /// Returns whether CLIENT PAUSE holds commands. Keys stay unchanged meanwhile.
    #[must_use]
    pub fn is_paused(&self, now_ms: u64) -> bool {
        self.pause.holds(now_ms)
    }

    /// Returns whether this command has to wait. CLIENT PAUSE holds all commands, even CLIENT UNPAUSE, or those that
    /// may change keys or publish. A migration holds commands that would change a migrating key. Monitors never wait.
    #[must_use]
    pub fn holds_up(&self, session: &Session, command: &Command, args: &Args<'_>, now_ms: u64) -> bool {
        // Commands within a transaction are queued. EXEC waits for all of them.
        let is_migrated = || match &session.multi {
            Some(multi) => is_exec(command) && self.queue_changes_migrating(session.database, &multi.queue),
            None => self.slow_path.has(MIGRATES) && self.changes_migrating(session.database, command, *args),
        };
        !session.is_monitoring()
            && (self.is_paused(now_ms) && self.pauses(session, command, args, now_ms) || is_migrated())
    }

    /// Returns true while a replica is to take this server's place, and must receive all records.
    pub(crate) fn fails_over(&self, now_ms: u64) -> bool {
        self.pause.is_for(PausePurpose::ManualFailover, now_ms) || self.replication.is_failing_over()
    }

    /// Returns a command's flags, or the flags that its script declares.
    pub(crate) fn flags_of(&self, command: &Command, args: &Args<'_>) -> u32 {
        rights::flags(&self.scripts, &self.libraries, command, args)
    }

    /// Returns whether a command may change a migrating key of a database. Scripts that write, and commands on whole
    /// databases, may change any key.
    #[cold]
    pub(crate) fn changes_migrating(&self, database: usize, command: &Command, args: Args<'_>) -> bool {
        let changes = flag::WRITE | flag::MAY_REPLICATE;
        if command.info.script.is_some() {
            let says = rights::may_write(&self.scripts, &self.libraries, command, &args);
            return says.unwrap_or(command.info.has(changes));
        }
        if matches!(command.info.scope_for(args), Scope::Whole) {
            return command.info.has(flag::WRITE);
        }
        let mut any = false;
        if command.info.has(changes) {
            command.info.visit_keys(args, |key| any |= self.migrations.holds(database, args.get(key)));
        }
        any
    }

    /// Like [`Engine::changes_migrating`], for the commands of a transaction.
    pub(crate) fn queue_changes_migrating(&self, database: usize, queue: &[Queued]) -> bool {
        self.slow_path.has(MIGRATES)
            && queue.iter().any(|queued| self.changes_migrating(database, queued.command, queued.args.args()))
    }

    /// Returns whether a pause concerns a command.
    fn pauses(&self, session: &Session, command: &Command, args: &Args<'_>, now_ms: u64) -> bool {
        let writes = |c: &Command| c.info.has(flag::WRITE | flag::MAY_REPLICATE);
        let queued = || session.multi.as_ref().is_some_and(|m| m.queue.iter().any(|q| writes(q.command)));
        // The script's own flags take precedence over those of its command.
        let runs =
            || rights::may_write(&self.scripts, &self.libraries, command, args).unwrap_or_else(|| writes(command));
        // A token's count is a unit of the stream, too. Without this, a failover would never find a replica that has
        // everything.
        let has_token = || session.tally().is_some_and(|tally| tally.pipeline().has_token());
        let counts = || has_token() && !command.info.has(flag::ADMIN) && self.fails_over(now_ms);
        self.pause.holds_all(now_ms) || runs() || (is_exec(command) && queued()) || counts()
    }
}
