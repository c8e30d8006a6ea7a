//! What all threads share.

mod following;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use commands::error::Error;
use commands::spec::{Scope, flag};
use journal::order::Position;
use replication::id::HistoryId;
use resp::reply::{Output, Reply};
use resp::request::Args;
use store::keyspace::Keyspace;

pub(crate) use self::following::UNBLOCKED;
use crate::access::Users;
use crate::advice::Advice;
use crate::clients::blocking::{Waiter, Waiters};
use crate::clients::client::Clients;
use crate::clients::client_memory::ClientLimit;
use crate::clients::session::{Queued, Session};
use crate::clients::transaction::is_exec;
use crate::command_table::{Command, Table};
use crate::config::{AppendFsync, SavePoint, Settings};
use crate::durability::{Durability, Safety};
use crate::host::Host;
use crate::inbox::{Inbox, Message, Wake};
use crate::journal::Journal;
use crate::listening::events;
use crate::listening::listeners::Listeners;
use crate::listening::tracking::Tracking;
use crate::listening::watch::Watchers;
use crate::machine::Machine;
use crate::machine::ticks::per_microsecond;
use crate::memory::compaction::{Compaction, Thresholds};
use crate::migrations::Migrations;
use crate::pause::{Pause, PausePurpose};
use crate::pipelines::Pipelines;
use crate::pubsub::PubSub;
use crate::pubsub::monitors::Monitors;
use crate::reasons::{
    EngineReasons, HOLDS, IMPORTS, KEEPS_KEYS, LOADING, MIGRATES, NOTIFIES, PAUSED, REFUSES_WRITES, RELOADING, REPLICA,
    UNSNAPPED,
};
use crate::replication::Replication;
use crate::replication::failover::FailoverStage;
use crate::replication::replicas::Acknowledgement;
use crate::replies::ReplyFigures;
use crate::scripts::busy::Busy;
use crate::scripts::cache::Scripts;
use crate::scripts::library::Libraries;
use crate::scripts::rights;
use crate::snapshots::{Purpose, Snapshots};
use crate::statistics::hot_keys::{HotKeys, ServerFigures};
use crate::statistics::latency_monitor::{LatencyMonitor, Sample};
use crate::statistics::rates::Rates;
use crate::statistics::slow_log::SlowLog;
use crate::statistics::stats::{MemoryMarks, Totals, WorkerStats};

/// Seconds after a snapshot that failed until the next one is tried: Redis's figure.
const RETRY_AFTER_S: u64 = 5;
/// Rewrites of the append-only file that fail in a row, after which none is begun by itself: as in Redis, where they come ever more
/// rarely after so many.
const FAILURES_MAX: u64 = 3;

/// Why WAITAOF doesn't wait for this server's own disk.
const NO_FILE: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// Why a command is in a log of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogKind {
    /// It took long.
    Slow,
    /// Its request had many bytes.
    LargeRequest,
    /// Its reply had many bytes.
    LargeReply,
}

impl LogKind {
    /// All.
    pub const ALL: [LogKind; 3] = [LogKind::Slow, LogKind::LargeRequest, LogKind::LargeReply];

    /// The kind with this name, in whatever case.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<LogKind> {
        let names = ["slow", "large-request", "large-reply"];
        names
            .iter()
            .zip(LogKind::ALL)
            .find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes()))
            .map(|(_, kind)| kind)
    }

    /// How many entries its log keeps.
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
    /// How much memory they may take.
    pub client_limit: ClientLimit,
    /// Why commands can't take the shortest way.
    pub reasons: Arc<EngineReasons>,
    /// Each thread's inbox.
    pub inboxes: Vec<Inbox>,
    /// Each thread's counters.
    pub stats: Vec<WorkerStats>,
    /// Those of the worker that loads data, which count for nothing.
    pub(crate) loading_stats: WorkerStats,
    /// Where units of change get their positions, and their way to a reader.
    pub journal: Journal,
    /// How far the log of the journal is safe.
    pub durability: Durability,
    /// The primary that is followed.
    pub replication: Replication,
    /// Which snapshot is being made.
    pub snapshots: Snapshots,
    /// Keys that are on their way to other servers.
    pub migrations: Migrations,
    /// Which keys may be watched or waited for.
    pub listeners: Arc<Listeners>,
    /// The sessions that watch keys.
    pub watchers: Watchers,
    /// The connections that wait for keys.
    pub waiters: Waiters,
    /// The clients that cache what they read, and the keys that are remembered for them.
    pub tracking: Tracking,
    /// Which threads run scripts that take too long.
    pub busy: Busy,
    /// Which scripts there are.
    pub scripts: Scripts,
    /// Which libraries of functions there are.
    pub libraries: Libraries,
    /// What connections have subscribed to.
    pub pubsub: PubSub,
    /// What is counted for pipelines that survive their connections.
    pub pipelines: Pipelines,
    /// Replies that wait to be read.
    pub replies: ReplyFigures,
    /// Connections that show what MONITOR shows.
    pub monitors: Monitors,
    /// Which keyspace events are published; 0 is none.
    pub notify_classes: AtomicU64,
    /// Whether expired keys are looked for (DEBUG SET-ACTIVE-EXPIRE).
    pub active_expire: AtomicBool,
    /// What CLIENT PAUSE holds back.
    pub pause: Pause,
    /// When the log last said that a client had sent HTTP, in milliseconds of Unix time.
    pub(crate) http_warned_ms: AtomicU64,
    /// From how many ticks on a command is slow; `u64::MAX` if none is.
    slow_ticks: AtomicU64,
    /// From how many ticks on the latency monitor records something; `u64::MAX` if it is off.
    latency_ticks: AtomicU64,
    /// Commands that took long, had large requests, and large replies: see [`LogKind`].
    command_logs: [SlowLog; 3],
    /// Which keys take most of the time and of the traffic, while that is counted.
    pub hot_keys: HotKeys,
    /// Moments that were slow.
    pub latency: LatencyMonitor,
    /// Round trips that clients waste.
    pub advice: Advice,
    /// The configuration.
    pub settings: Settings,
    /// The file it came from, which CONFIG REWRITE writes.
    pub config_file: Option<PathBuf>,
    /// Counts changes of the configuration, so that threads notice them.
    settings_version: AtomicU64,
    /// The server around the engine.
    pub host: Box<dyn Host>,
    /// What it said of the machine.
    pub machine: Machine,
    /// How fast things happen now.
    pub rates: Rates,
    /// What is remembered of the memory in use.
    pub memory: MemoryMarks,
    /// The search for sparse pages.
    pub compaction: Compaction,
    /// When the server started, in milliseconds of Unix time.
    pub started_ms: u64,
}

impl Engine {
    /// The engine of a process, with these commands and a thread for each of `wakes`.
    pub fn start(
        table: &'static Table,
        settings: Settings,
        config_file: Option<PathBuf>,
        wakes: Vec<Box<dyn Wake>>,
        host: Box<dyn Host>,
        now_ms: u64,
    ) -> &'static Engine {
        let threads = wakes.len();
        let keyspace = Keyspace::new(settings.databases.get_usize(), threads);
        let shards = keyspace.shard_count();
        let machine = host.machine();
        let history = HistoryId::parse(machine.replication_id.as_bytes()).unwrap_or(HistoryId::NONE);
        let reasons = Arc::<EngineReasons>::default();
        let listeners = Arc::new(Listeners::new(reasons.clone()));
        let engine: &'static Engine = Box::leak(Box::new(Engine {
            table,
            keyspace,
            users: Users::new(table),
            clients: Clients::default(),
            client_limit: ClientLimit::default(),
            inboxes: wakes.into_iter().map(|wake| Inbox::new(wake, threads)).collect(),
            stats: (0..threads).map(|_| WorkerStats::new(table.all().len())).collect(),
            loading_stats: WorkerStats::new(table.all().len()),
            journal: Journal::new(threads, reasons.clone()),
            durability: Durability::new(shards, threads, reasons.clone()),
            replication: Replication::new(history, threads, reasons.clone()),
            snapshots: Snapshots::default(),
            migrations: Migrations::new(threads, reasons.clone()),
            watchers: Watchers::new(shards, listeners.clone()),
            waiters: Waiters::new(shards, listeners.clone()),
            tracking: Tracking::new(reasons.clone()),
            listeners,
            busy: Busy::new(threads + 1),
            scripts: Scripts::new(table),
            libraries: Libraries::default(),
            pubsub: PubSub::default(),
            pipelines: Pipelines::default(),
            replies: ReplyFigures::default(),
            monitors: Monitors::new(reasons.clone()),
            notify_classes: AtomicU64::new(0),
            active_expire: AtomicBool::new(true),
            pause: Pause::new(reasons.clone()),
            reasons,
            http_warned_ms: AtomicU64::new(0),
            slow_ticks: AtomicU64::new(u64::MAX),
            latency_ticks: AtomicU64::new(u64::MAX),
            command_logs: Default::default(),
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

    /// Makes what follows from the configuration true. Call it after every change.
    pub fn settings_changed(&self) {
        self.follow_thresholds();
        self.notify(self.settings.notify_keyspace_events.get() as u32);
        self.keyspace.reaper().free_expired_lazily(self.settings.lazyfree_lazy_expire.get());
        let awaited = self.settings.appendfsync.get() == AppendFsync::Always;
        self.durability.settings_changed(awaited, self.journal.position());
        self.follow_snapshots();
        self.reasons.set(IMPORTS, self.settings.import_mode.get());
        self.replication.serve_stale(self.settings.replica_serve_stale_data.get());
        self.replication.replicas.want_good(self.settings.good_replicas_wanted());
        self.users.require_password(&self.settings.requirepass.get());
        self.settings_version.fetch_add(1, Ordering::Release);
    }

    /// Has keyspace events of these classes be published.
    pub fn notify(&self, classes: u32) {
        self.notify_classes.store(u64::from(classes), Ordering::Relaxed);
        self.reasons.set(NOTIFIES, classes != 0);
    }

    /// Changes whenever the configuration does.
    #[inline]
    #[must_use]
    pub fn settings_version(&self) -> u64 {
        self.settings_version.load(Ordering::Acquire)
    }

    /// Bytes in use that `maxmemory` is the limit of: what waits for slow replicas or the disk makes no key go, as in Redis, since each
    /// key that went would add to it.
    #[must_use]
    pub fn limited_memory(&self) -> u64 {
        self.host.used_memory().saturating_sub(self.waiting_memory())
    }

    /// Bytes that wait for replicas beyond `repl-backlog-size`, and for the disk.
    #[must_use]
    pub fn waiting_memory(&self) -> u64 {
        let stream_bytes = self.replication.stream.memory_bytes();
        let (_, unsynced_bytes) = self.durability.file_bytes();
        stream_bytes.saturating_sub(self.settings.repl_backlog_size.get()) + unsynced_bytes
    }

    /// Does what the clock asks for: samples what is shown as a rate or a peak, forgets pipeline tokens that have
    /// expired. Call it several times a second, with the present time as Unix has it and by a clock that is never set.
    pub fn sample(&self, now_ms: u64, steady_ms: u64) {
        self.rates.sample(steady_ms, || Totals::of(&self.stats));
        self.memory.note(self.host.used_memory(), now_ms / 1000);
        self.pipelines.remove_expired(now_ms);
        self.mind_snapshots(now_ms);
        if self.hot_keys.ratio() != 0 {
            self.hot_keys.look(now_ms, || self.figures(now_ms));
        }
        if self.settings.activedefrag.get() {
            let memory = || [self.host.resident_memory(), self.host.used_memory()];
            self.compaction.look(now_ms, self.inboxes.len(), &self.thresholds(), memory);
        }
    }

    /// Figures of the server that HOTKEYS shows the growth of.
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
    }

    /// What a command lists beside what watchers and waiters of its keys ask for: the classes of changes and the bits
    /// of events of the keyspace that notifications publish.
    #[inline]
    #[must_use]
    pub fn published(&self) -> (u32, u8) {
        let classes = self.notify_classes.load(Ordering::Relaxed) as u32;
        if classes == 0 { (0, 0) } else { events::published(classes) }
    }

    /// Whether a session has to authenticate before it may do anything else: not if the default user needs no password any more.
    #[inline]
    #[must_use]
    pub fn must_authenticate(&self, session: &Session) -> bool {
        !session.is_authenticated() && !self.users.is_default_open()
    }

    /// From how many ticks on a command is slow.
    #[inline]
    #[must_use]
    pub fn slow_ticks(&self) -> u64 {
        self.slow_ticks.load(Ordering::Relaxed)
    }

    /// One of the logs of commands.
    #[must_use]
    pub fn command_log(&self, kind: LogKind) -> &SlowLog {
        &self.command_logs[kind as usize]
    }

    /// From how many ticks on the latency monitor records something.
    #[inline]
    #[must_use]
    pub fn latency_ticks(&self) -> u64 {
        self.latency_ticks.load(Ordering::Relaxed)
    }

    /// Records something for the latency monitor that is no command, if it took long. `time_s` is Unix time.
    pub fn note_latency(&self, event: &'static str, took: Duration, time_s: u64) {
        let threshold_ms = self.settings.latency_monitor_threshold_ms.get();
        let took_ms = took.as_millis() as u64;
        if threshold_ms > 0 && took_ms >= threshold_ms as u64 {
            self.latency.add(event, Sample { time_s, took_ms });
        }
    }

    /// From how many ticks on a command is recorded anywhere.
    #[inline]
    #[must_use]
    pub fn notable_ticks(&self) -> u64 {
        self.slow_ticks().min(self.latency_ticks())
    }

    /// Makes the thresholds of the slow log and of the latency monitor those of the configuration.
    fn follow_thresholds(&self) {
        let ticks = |microseconds: f64| (microseconds * per_microsecond()) as u64;
        let slow_us = self.settings.slowlog_log_slower_than_us.get();
        let latency_ms = self.settings.latency_monitor_threshold_ms.get();
        self.slow_ticks.store(if slow_us < 0 { u64::MAX } else { ticks(slow_us as f64) }, Ordering::Relaxed);
        let latency_ticks = if latency_ms <= 0 { u64::MAX } else { ticks(latency_ms as f64 * 1000.0) };
        self.latency_ticks.store(latency_ticks, Ordering::Relaxed);
        for kind in LogKind::ALL {
            self.command_log(kind).trim(kind.len_max(&self.settings));
        }
        if !self.settings.latency_tracking.get() {
            self.stats.iter().flat_map(|s| &s.commands).for_each(|c| c.histogram.reset());
        }
    }

    /// Whether any command may have to wait because of CLIENT PAUSE, or has had to until a moment ago.
    #[inline]
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.reasons.has(PAUSED | MIGRATES)
    }

    /// Whether expired keys are to stay where they are, unseen: commands are held back, or another server says what expires.
    #[must_use]
    pub(crate) fn keeps_due_keys(&self, now_ms: u64) -> bool {
        self.always_keeps_due_keys() || self.is_paused(now_ms)
    }

    /// The same, pauses apart.
    #[must_use]
    pub(crate) fn always_keeps_due_keys(&self) -> bool {
        self.reasons.has(REPLICA | IMPORTS)
    }

    /// Whether the data follow a primary's.
    #[must_use]
    pub(crate) fn is_replica(&self) -> bool {
        self.reasons.has(REPLICA)
    }

    /// Whether commands of clients are refused if they write, since the data are another server's.
    #[must_use]
    pub(crate) fn is_read_only(&self) -> bool {
        self.reasons.has(REPLICA) && self.settings.replica_read_only.get()
    }

    /// Whether keys stay as they are: nothing expires, is evicted or moved.
    #[inline]
    #[must_use]
    pub(crate) fn keeps_keys(&self) -> bool {
        self.reasons.has(KEEPS_KEYS)
    }

    /// Begins to load data: commands are refused until [`Engine::end_loading`]. `now_s` is Unix time in seconds.
    pub fn begin_loading(&self, now_s: u64) {
        self.snapshots.loading.begin(now_s);
        self.reasons.set(LOADING, true);
    }

    /// All data have been loaded.
    pub fn end_loading(&self) {
        self.reasons.set(LOADING, false);
    }

    /// Begins to read data that are to take the place of those that there are, which clients are served until
    /// [`Engine::begin_reloading`]. `now_s` is Unix time in seconds.
    pub fn begin_loading_beside(&self, now_s: u64) {
        self.snapshots.loading.begin(now_s);
        self.snapshots.loading.set_beside(true);
    }

    /// The data have been read, or can't be.
    pub fn end_loading_beside(&self) {
        self.snapshots.loading.set_beside(false);
    }

    /// Begins to load data again, or to exchange them: all commands wait until [`Engine::end_reloading`]. `now_ms` is Unix time.
    pub fn begin_reloading(&self, now_ms: u64) {
        self.reasons.set(RELOADING, true);
        self.pause.begin(PausePurpose::Reload, true, now_ms, u64::MAX);
    }

    /// All data have been loaded again, or it could not be begun.
    pub fn end_reloading(&self) {
        self.reasons.set(RELOADING, false);
        self.pause.end(PausePurpose::Reload);
    }

    /// Gives a failover up: this server goes on as the primary that it was. False if there is none. The caller is alone behind the gate.
    pub fn abort_failover(&self) -> bool {
        let Some(failover) = self.replication.take_failover() else { return false };
        if failover.stage == FailoverStage::Follows {
            // It has taken no token back that it could give again.
            self.follow(None, 0);
        }
        self.end_pause_of_failover();
        true
    }

    /// The replica has taken this server's place, as the link to the primary of `version` shows.
    pub fn end_failover(&self, version: u64) {
        if self.replication.take_failover_of(version).is_some() {
            self.end_pause_of_failover();
        }
    }

    fn end_pause_of_failover(&self) {
        self.pause.end(PausePurpose::Failover);
        self.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
    }

    /// What a blocking command answers when its time has run out.
    pub(crate) fn timeout_reply(&self, waiter: &Waiter) -> Output {
        let Some(awaited) = waiter.acknowledgement() else { return waiter.timeout_reply() };
        let mut output = Output::default();
        self.write_acknowledged(awaited, &mut Reply::new(&mut output, waiter.proto));
        output
    }

    /// Answers how many have what was waited for (WAIT, WAITAOF).
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

    /// Bytes of the primary's history whose changes this server's append-only file has on disk, if there is one.
    #[must_use]
    pub fn synced_offset(&self) -> Option<u64> {
        let has_file = self.settings.appendonly.get() && self.durability.is_whole();
        has_file.then(|| self.replication.synced_offset(self.durability.synced())).flatten()
    }

    /// Whether as many have what was waited for as was asked.
    pub(crate) fn has_acknowledged(&self, awaited: &Acknowledgement) -> bool {
        if awaited.on_disk == Some(true) && !self.settings.appendonly.get() {
            // There is nothing to wait for any more.
            return true;
        }
        let has_disk = awaited.on_disk != Some(true) || self.durability.synced() >= awaited.position;
        has_disk && self.replication.replicas.having(awaited.position, awaited.on_disk.is_some()) >= awaited.replicas
    }

    /// Has replies wait for as many replicas as the configuration asks for, or for none. The caller is alone behind the gate, if any thread
    /// runs commands: units are recorded from then on.
    pub fn follow_durability(&self) {
        let awaited = self.settings.durability_replicas.get() > 0 && !self.is_replica();
        if awaited == self.durability.is_awaited(Safety::Replicas) {
            return;
        }
        let last = self.journal.position();
        if awaited {
            self.replication.begin_stream(&self.journal);
            // Before replies wait: what comes is safe when replicas have said so.
            self.durability.note_safe(Safety::Replicas, last, |_| {});
        }
        if !awaited && self.is_replica() {
            self.durability.give_up_on_replicas(last);
        }
        self.durability.have_replies_wait(Safety::Replicas, awaited, last);
        if !awaited {
            self.durability.note_safe(Safety::Replicas, Position::MAX, |thread| self.inboxes[thread].wake());
        }
        self.replication.stream.wake();
    }

    /// Whether data are being loaded: the keyspace has only some of them.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.reasons.has(LOADING | RELOADING)
    }

    /// Whether any command may have to wait, or be refused.
    #[inline]
    #[must_use]
    pub(crate) fn needs_care(&self) -> bool {
        self.reasons.has(HOLDS)
    }

    /// Whether commands that write are refused because changes or snapshots can't be written to disk.
    #[must_use]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.reasons.has(REFUSES_WRITES)
    }

    /// What a command that writes is answered while changes can't be written to disk.
    #[must_use]
    pub(crate) fn unsaved(&self) -> Error {
        match self.durability.trouble() {
            Some(trouble) => Error::new(format!("MISCONF Errors writing to the AOF file: {trouble}")),
            None => Error::new(
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
                 may modify the data set are disabled, because this instance is configured to report errors during writes if \
                 RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about \
                 the RDB error.",
            ),
        }
    }

    /// Refuses commands that write while snapshots are due and can't be written, if the configuration has it so.
    pub fn follow_snapshots(&self) {
        let settings = &self.settings;
        let refuses = settings.stop_writes_on_bgsave_error.get()
            && !settings.save.is_empty()
            && self.snapshots.figures().has_failed;
        self.reasons.set(UNSNAPPED, refuses);
    }

    /// Has a snapshot be made if one is due: by the save points, or because the append-only file has grown.
    fn mind_snapshots(&self, now_ms: u64) {
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
        // Without a base, the files are of no use yet.
        let lacks_base = !self.durability.is_whole() && now_s.saturating_sub(figures.base_tried_s) > RETRY_AFTER_S;
        let is_grown = percent > 0 && is_large && has_grown && figures.base_failures < FAILURES_MAX;
        if self.settings.appendonly.get() && (lacks_base || is_grown) {
            self.snapshots.want(Purpose::Base);
        }
    }

    /// Whether commands wait because of CLIENT PAUSE. Keys are to stay as they are meanwhile.
    #[must_use]
    pub fn is_paused(&self, now_ms: u64) -> bool {
        self.pause.holds(now_ms)
    }

    /// Whether this command has to wait: because of CLIENT PAUSE, all of them, even CLIENT UNPAUSE, or those that may change keys or
    /// publish; or because it would change a key that is being migrated. Monitors are never held up.
    #[must_use]
    pub fn holds_up(&self, session: &Session, command: &Command, args: &Args<'_>, now_ms: u64) -> bool {
        // Within a transaction, commands are queued, and EXEC waits for all of them.
        let is_migrated = || match &session.multi {
            Some(multi) => is_exec(command) && self.queue_changes_migrating(session.database, &multi.queue),
            None => self.reasons.has(MIGRATES) && self.changes_migrating(session.database, command, *args),
        };
        !session.is_monitoring()
            && (self.is_paused(now_ms) && self.pauses(session, command, args, now_ms) || is_migrated())
    }

    /// Whether a command may change a key of a database that is on its way to another server. A script that writes may change any, and so
    /// may what concerns whole databases.
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

    /// The same for the commands of a transaction.
    pub(crate) fn queue_changes_migrating(&self, database: usize, queue: &[Queued]) -> bool {
        self.reasons.has(MIGRATES)
            && queue.iter().any(|queued| self.changes_migrating(database, queued.command, queued.args.args()))
    }

    /// Whether a pause concerns a command.
    fn pauses(&self, session: &Session, command: &Command, args: &Args<'_>, now_ms: u64) -> bool {
        let writes = |c: &Command| c.info.has(flag::WRITE | flag::MAY_REPLICATE);
        let queued = || session.multi.as_ref().is_some_and(|m| m.queue.iter().any(|q| writes(q.command)));
        // What a script says of itself counts, not what its command may do.
        let runs =
            || rights::may_write(&self.scripts, &self.libraries, command, args).unwrap_or_else(|| writes(command));
        // What is counted for a token is a unit of the stream, too: a failover would never find a replica that has everything.
        let counts =
            || session.tally().is_some() && !command.info.has(flag::ADMIN) && self.replication.is_failing_over();
        self.pause.holds_all(now_ms) || runs() || (is_exec(command) && queued()) || counts()
    }
}
