//! The server's life: from its configuration to the last reply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use config::{Apply, ConfigHost, LogLevel, Settings};
use engine::host::{CertificateFigures, Host, Shutdown};
use engine::inbox::{Message, Wake};
use engine::machine::{Machine, Usage};
use engine::migrations::Migration;
use engine::pause::PausePurpose;
use engine::replication::replicas::{ReplicaFigures, ReplicaStage};
use engine::slots::bus::BusRequest;
use engine::slots::jobs::SlotJob;
use engine::snapshots::{Outlet, Piece, Purpose, SnapshotForm};
use engine::state::{Engine, UNSAFE_SHUTDOWN};
use engine::worker::Worker;
use journal::merge::Merge;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use store::db::{Access, Clock};
use store::sync::Alone;

use crate::allocator;
use crate::append_only::AppendOnly;
use crate::bus::mailbox::{BusMail, BusMailbox};
use crate::bus::{self};
use crate::cli_args::LoadedSettings;
use crate::conf_file::{FATAL, system_text};
use crate::control_group;
use crate::daemon;
use crate::event_loop::EventLoop;
use crate::heartbeats::Heartbeats;
use crate::http;
use crate::huge_pages;
use crate::listener::{self, Listener};
use crate::loading::{self, Loader};
use crate::log;
use crate::migrating::Migrators;
use crate::pid_file::PidFile;
use crate::poller::{Epoll, WakeFd};
use crate::primary::{self, ReplicaHandoff};
use crate::process;
use crate::rebind::InUse;
use crate::replica;
use crate::restart::Restart;
use crate::saving;
use crate::shared::{NewListeners, Shared};
use crate::slot_moves;
use crate::spill::Spill;
use crate::supervisor::Supervisor;
use crate::threads;
use crate::time::now_us;
use crate::time_slice;
use crate::title::Title;
use crate::tls::handshakes::Handshakes;

/// The version of Penstock.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time for threads to send their last replies when the server ends.
const FAREWELL: Duration = Duration::from_millis(500);
/// Interval between checks that the replicas have everything when the server ends.
const REPLICAS_LOOK: Duration = Duration::from_millis(1);
/// Time for loading data before clients are served and told of the load. It is shorter than clients' default connection timeout, and enough
/// for the data of most tests and small services.
const LOADS_UNSEEN: Duration = Duration::from_millis(200);

/// A command's request to end the server.
#[derive(Default)]
struct AskedToEnd {
    is_asked: AtomicBool,
    /// True if the server must end without any wait.
    at_once: AtomicBool,
    /// True if a primary of a cluster hands its slots over to a replica.
    fails_over: AtomicBool,
    wait: Mutex<ReplicaWait>,
}

/// The state of an ending server's wait for its replicas. SHUTDOWN ABORT aborts it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum ReplicaWait {
    #[default]
    None,
    Waits,
    Aborted,
}

impl AskedToEnd {
    /// Changes the wait, and returns its previous state.
    fn change_wait(&self, change: impl FnOnce(&mut ReplicaWait)) -> ReplicaWait {
        let mut wait = self.wait.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *wait;
        change(&mut wait);
        before
    }

    /// Clears the request.
    fn forget(&self) {
        self.is_asked.store(false, Ordering::Relaxed);
        self.at_once.store(false, Ordering::Relaxed);
        self.fails_over.store(false, Ordering::Relaxed);
    }
}

/// Acts for the engine on the process and its sockets.
struct ServerHost {
    listening: InUse,
    new_listeners: NewListeners,
    supervisor: Supervisor,
    title: Title,
    /// The request of a command, not of a signal.
    asked_to_end: Arc<AskedToEnd>,
    /// The engine, once it exists.
    engine: Arc<OnceLock<&'static Engine>>,
    append_only: Arc<AppendOnly>,
    handoff: Arc<ReplicaHandoff>,
    handshakes: Arc<Handshakes>,
    migrators: Arc<Migrators>,
    restart: Arc<Restart>,
    bus: Arc<BusMailbox>,
}

impl ServerHost {
    fn engine(&self) -> Result<&'static Engine, String> {
        self.engine.get().copied().ok_or_else(|| "the server has just begun to start".into())
    }

    /// Turns the append-only file on or off. It begins with a snapshot, which is made at once.
    fn switch_append_only(&self, settings: &Settings) -> Result<(), String> {
        let engine = self.engine()?;
        if engine.is_loading() {
            return Err("The data are being loaded: try again when that is done".into());
        }
        if !settings.appendonly.get() {
            self.append_only.turn_off();
            // Clients that wait for this disk (WAITAOF) are answered now.
            engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
            return Ok(());
        }
        if self.append_only.is_ending() {
            return self.append_only.turn_on_when_closed(engine);
        }
        let turned_on = self.append_only.turn_on(engine);
        turned_on.map_err(|why| refuse(&why, "Unable to turn on AOF. Check server logs."))?;
        engine.snapshots.want(Purpose::Base);
        Ok(())
    }

    /// Replaces the listening sockets by those of the present settings. The reason for a failure goes to the log. Clients only get
    /// `refusal`.
    fn listen(&self, settings: &Settings, refusal: &str) -> Result<(), String> {
        self.encrypt(settings)?;
        let listeners = self.listening.replace(settings).map_err(|why| refuse(&why, refusal))?;
        // The first thread takes them within a tick. Until then the kernel queues new connections.
        self.new_listeners.leave(listeners);
        Ok(())
    }
}

impl ServerHost {
    /// Applies the TLS settings to new connections.
    fn encrypt(&self, settings: &Settings) -> Result<(), String> {
        let configured = self.handshakes.configure(settings);
        configured.map_err(|why| refuse(&why, "Unable to update TLS configuration. Check server logs."))
    }
}

/// Logs the reason for refusing a setting, and returns the text for the client.
fn refuse(why: &str, refusal: &str) -> String {
    log::warning(why);
    refusal.into()
}

impl ConfigHost for ServerHost {
    fn apply(&self, what: Apply, settings: &Settings) -> Result<(), String> {
        match what {
            Apply::Port => {
                self.listen(settings, "Unable to listen on this port. Check server logs.")?;
                // A node of a cluster announces the new port.
                self.bus.leave(BusMail::Configured);
                Ok(())
            }
            Apply::Bind => self.listen(settings, "Failed to bind to specified addresses."),
            Apply::Tls => self.encrypt(settings),
            Apply::MaxClients => {
                let Err((room, why)) = find_room(settings) else { return Ok(()) };
                let refusal = "The operating system is not able to handle the specified number of clients, try with";
                Err(refuse(&why, &format!("{refusal} {room}")))
            }
            Apply::LogLevel => {
                log::follow(settings);
                Ok(())
            }
            Apply::AppendOnly => self.switch_append_only(settings),
            Apply::Cluster => {
                self.bus.leave(BusMail::Configured);
                Ok(())
            }
            Apply::Title => {
                self.title.show(settings);
                Ok(())
            }
            Apply::Directory => std::env::set_current_dir(&*settings.dir.get()).map_err(|e| e.to_string()),
            Apply::MemoryLimit => {
                let (limit, used) = (settings.maxmemory.get(), self.used_memory());
                if 0 < limit && limit < used {
                    log::warning(format!(
                        "WARNING: the new maxmemory value set via CONFIG SET ({limit}) is smaller than the current memory \
                         usage ({used}). This will result in key eviction and/or the inability to accept new write commands \
                         depending on the maxmemory-policy."
                    ));
                }
                control_group::warn_of_limit(settings);
                Ok(())
            }
        }
    }
}

impl Host for ServerHost {
    fn shut_down(&self, shutdown: Shutdown) {
        self.asked_to_end.at_once.store(shutdown.at_once, Ordering::Relaxed);
        self.asked_to_end.fails_over.store(shutdown.fails_over, Ordering::Relaxed);
        self.asked_to_end.is_asked.store(true, Ordering::Relaxed);
        // The same path as SIGTERM: the main thread waits for it.
        let _ = signal_hook::low_level::raise(SIGTERM);
    }

    fn abort_shut_down(&self) -> bool {
        let mut is_aborted = false;
        self.asked_to_end.change_wait(|wait| {
            // The main thread begins its wait only some moments after a command has asked for the end. A restart can't be aborted.
            let is_asked = self.asked_to_end.is_asked.load(Ordering::Relaxed) && self.restart.after_ms.get().is_none();
            is_aborted = *wait == ReplicaWait::Waits || *wait == ReplicaWait::None && is_asked;
            if is_aborted {
                *wait = ReplicaWait::Aborted;
            }
        });
        is_aborted
    }

    fn closes_append_only_file(&self) -> bool {
        self.append_only.is_ending()
    }

    fn save(
        &self,
        purpose: Purpose,
        form: SnapshotForm,
        outlet: Arc<Outlet>,
        pieces: Receiver<Piece>,
    ) -> Result<(), String> {
        let engine = self.engine()?;
        let files = match self.append_only.files() {
            None if purpose == Purpose::Base => Some(saving::BaseFiles::Closed(self.append_only.closed_files(engine)?)),
            files => files.map(saving::BaseFiles::Written),
        };
        saving::start(engine, (purpose, form), files, &self.handoff, outlet, pieces)
    }

    fn begin_append_only_file(&self, read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        self.append_only.begin(self.engine()?, read)
    }

    fn reload_append_only_file(&self) -> Result<(), String> {
        let engine = self.engine()?;
        if !engine.settings.appendonly.get() && !AppendOnly::has_files(&engine.settings) {
            return Err("There is no append-only file to be loaded: appendonly is off".into());
        }
        loading::reload(engine, self.append_only.clone())
    }

    fn supervisor(&self) -> &'static str {
        self.supervisor.name()
    }

    fn machine(&self) -> Machine {
        process::machine()
    }

    fn usage(&self) -> Usage {
        process::usage(&threads::WORKER.numbered(0))
    }

    fn allocator_statistics(&self) -> Option<String> {
        Some(allocator::statistics())
    }

    fn restart(&self, gracefully: bool, after_ms: u64) -> Result<(), String> {
        if gracefully {
            let _ = self.restart.after_ms.set(after_ms);
            self.shut_down(Shutdown::default());
            return Ok(());
        }
        Err(self.restart.start_anew(after_ms))
    }

    fn certificates(&self) -> [Option<CertificateFigures>; 3] {
        self.handshakes.certificates()
    }

    fn used_memory(&self) -> u64 {
        allocator::allocated_bytes()
    }

    fn resident_memory(&self) -> u64 {
        process::resident_bytes()
    }

    fn is_sparse(&self, block: *const u8) -> bool {
        allocator::is_sparse(block)
    }

    fn migrate(&self, migration: Box<Migration>) -> Result<(), (Box<Migration>, String)> {
        match self.engine() {
            Ok(engine) => self.migrators.send(engine, migration),
            Err(why) => Err((migration, why)),
        }
    }

    fn export_slots(&self) -> Result<(), String> {
        slot_moves::start_exports(self.engine()?)
    }

    fn import_slots(&self, job: Arc<SlotJob>) -> Result<(), String> {
        slot_moves::start_import_from_redis(self.engine()?, job)
    }

    fn cluster(&self, request: BusRequest) -> Result<(), String> {
        self.bus.leave(BusMail::Command(request));
        Ok(())
    }

    fn publish(&self, channel: &[u8], message: &[u8], sharded: bool) {
        self.bus.publish(channel, message, sharded);
    }

    fn cluster_memory(&self) -> u64 {
        self.bus.memory()
    }

    fn log(&self, level: LogLevel, message: &str) {
        log::write(level, message);
    }
}

/// Sets up huge pages without delays for commands, as far as the system allows.
fn arrange_huge_pages(settings: &Settings) {
    process::permit_huge_pages();
    if !settings.disable_thp.get() {
        huge_pages::huge_at_once();
    } else if !huge_pages::prepare_ahead() {
        process::disable_huge_pages();
    }
}

/// Begins the log. Without a log a failing server looks healthy, so a failure ends the start.
fn begin_log(settings: &Settings) -> Result<(), String> {
    log::follow(settings);
    log::begin_syslog(settings);
    let name = settings.logfile.get();
    if name.is_empty() {
        return Ok(());
    }
    // Absolute, because `dir` may change later.
    log::set_file(settings.in_dir(&name)).map_err(|e| format!("{FATAL}Can't open the log file: {}", system_text(&e)))
}

/// Determines the destinations of the log and the terminal's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the terminal.
    Foreground,
    /// In the background ([`crate::daemon`]).
    Background,
}

/// Checks that the configuration is valid for a node of a cluster.
fn check_cluster(settings: &Settings) -> Result<(), String> {
    if !settings.replicaof.is_empty() {
        return Err("replicaof directive not allowed in cluster mode".into());
    }
    match settings.cluster_bus_port() {
        Some(_) => Ok(()),
        None => Err("The port is too high for cluster mode: the port of the cluster's bus is 10000 above it. Set port to 55535 \
                     at most, or cluster-port"
            .into()),
    }
}

/// Runs the server until a signal or SHUTDOWN ends it. The error is for the terminal, and names the setting to change.
pub fn run(loaded: LoadedSettings, place: Place) -> Result<(), String> {
    begin_log(&loaded.settings)?;
    let has_file = !loaded.settings.logfile.is_empty();
    let outcome = serve(loaded, place);
    if let Err(why) = &outcome
        && (has_file || place == Place::Background)
    {
        // The log must have the reason, and in the background there is no terminal.
        log::warning(why);
    }
    outcome
}

fn serve(loaded: LoadedSettings, place: Place) -> Result<(), String> {
    let LoadedSettings { settings, config_file, notes, .. } = loaded;
    notes.iter().for_each(log::notice);
    // Before the first command is looked up.
    let renamed = settings.renamed_commands();
    if !renamed.is_empty() {
        engine::registry::rename(&renamed)?;
    }
    // Before the first key is hashed.
    store::hash::set_seed(process::random_seed());
    if settings.cluster_enabled.get() {
        check_cluster(&settings)?;
        store::hash::hash_by_slot();
    }
    // Before threads are started: they inherit blocked and handled signals.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("can't handle signals: {e}"))?;
    // Like in Redis, the server outlives its terminal. The flag isn't read.
    let hung_up = signal_hook::flag::register(SIGHUP, Arc::default());
    hung_up.map_err(|e| format!("can't handle signals: {e}"))?;
    // An alarm set by the parent process doesn't end it, either.
    let alarmed = signal_hook::flag::register(SIGALRM, Arc::default());
    alarmed.map_err(|e| format!("can't handle signals: {e}"))?;
    // A write beyond the size limit of files (ulimit -f) is an error, not the end of the process.
    let too_large = signal_hook::flag::register(SIGXFSZ, Arc::default());
    too_large.map_err(|e| format!("can't handle signals: {e}"))?;
    arrange_huge_pages(&settings);
    // Before the title overwrites the arguments.
    let restart = Arc::new(Restart::of_this_process());
    let title = Title::prepare(&settings, config_file.as_deref());
    title.show(&settings);
    let handshakes = Arc::<Handshakes>::default();
    handshakes.configure(&settings).map_err(|why| format!("Failed to configure TLS: {why}"))?;
    let listeners = listener::open_all(&settings)?;
    let http_listeners = http::open(&settings)?;
    let new_bus = settings.cluster_enabled.get().then(|| bus::open(&settings)).transpose()?;
    limit_clients(&settings)?;
    control_group::warn_of_limit(&settings);

    let threads = threads(&settings);
    let wakes = (0..threads).map(|_| WakeFd::new()).collect::<Result<Vec<_>, _>>().map_err(cannot_poll)?;
    let new_listeners = NewListeners::default();
    let listening = InUse::of(&listeners);
    let supervisor = Supervisor::of(&settings);
    let asked_to_end = Arc::<AskedToEnd>::default();
    let (later_engine, append_only) = (Arc::<OnceLock<_>>::default(), Arc::<AppendOnly>::default());
    let handoff = Arc::<ReplicaHandoff>::default();
    let (mailbox, heartbeats) = (Arc::<BusMailbox>::default(), Arc::new(Heartbeats::new(threads)));
    let host = ServerHost {
        listening,
        new_listeners: new_listeners.clone(),
        supervisor: supervisor.clone(),
        title,
        asked_to_end: asked_to_end.clone(),
        engine: later_engine.clone(),
        append_only: append_only.clone(),
        handoff: handoff.clone(),
        handshakes: handshakes.clone(),
        migrators: Arc::default(),
        restart: restart.clone(),
        bus: mailbox.clone(),
    };
    let shared_wakes = wakes.iter().map(|w| w.try_clone().map(|w| Box::new(w) as Box<dyn Wake>));
    let shared_wakes = shared_wakes.collect::<Result<Vec<_>, _>>().map_err(cannot_poll)?;
    let engine =
        Engine::start(engine::registry::table(), settings, config_file, shared_wakes, Box::new(host), now_us() / 1000);
    engine.keyspace.reaper().prepare_with(process::stand_back);
    let _ = later_engine.set(engine);
    handoff.begin(engine);
    primary::start(engine, handoff.clone())?;
    engine::services::users::begin(engine).map_err(|why| format!("{FATAL}{why}"))?;

    // Before the data are loaded: they continue the history of the primary that the cluster names.
    if let Some(new_bus) = new_bus {
        engine.settings.note_replicaof(new_bus.primary());
        bus::start(engine, new_bus, mailbox.clone(), handshakes.clone(), heartbeats.clone())?;
    }
    let stopping = Arc::new(AtomicBool::new(false));
    let spill = Spill::start(engine).map_err(threads::cannot_start)?;
    let shared = Arc::new(Shared::new(
        engine,
        stopping.clone(),
        new_listeners,
        spill,
        handoff.clone(),
        handshakes.clone(),
        heartbeats,
    ));
    handshakes.serve(&shared, &engine.settings)?;
    announce(threads, &listeners);
    let workers = (0..threads).map(|id| Worker::new(id, engine, process::random_seed()));
    let loader = Loader::start(engine, append_only.clone())?;
    // Clients that connect meanwhile are delayed by that time, and don't notice the load.
    let mut loaded = loader.wait(LOADS_UNSEEN);
    if let Some(Err(why)) = loaded {
        return Err(why);
    }
    let mut listeners = Some(listeners);
    let mut handles = Vec::new();
    for (id, (wake, worker)) in wakes.into_iter().zip(workers).enumerate() {
        let (shared, listeners) = (shared.clone(), listeners.take().unwrap_or_default());
        let serve = move || {
            time_slice::shorten();
            match Epoll::new(wake).and_then(|poller| EventLoop::new(shared, worker, poller, listeners)) {
                Ok(event_loop) => event_loop.run(),
                Err(error) => {
                    log::warning(cannot_poll(error));
                    let _ = signal_hook::low_level::raise(SIGTERM);
                }
            }
        };
        let thread = threads::spawn_numbered(&threads::WORKER, id, serve);
        handles.push(thread.map_err(|e| format!("can't start a thread: {e}; choose fewer with --threads"))?);
    }
    http::start(http_listeners, shared)?;
    // Before clients are told to connect. The file means that a server runs, which may still be loading its data.
    let pid_file = PidFile::write(&engine.settings);
    if place == Place::Background {
        daemon::serves();
    }
    loaded = loaded.or_else(|| loader.wait_unless(|| is_to_end(&mut signals)));
    let Some(loaded) = loaded else { return Ok(()) };
    loaded?;
    replica::start(engine, append_only.clone())?;
    if engine.slots.are_on() {
        if engine.slots.view().is_some_and(|view| view.is_primary()) {
            slot_moves::end_followed(engine, "Process restarted");
        }
        mailbox.note_loaded(bus::slots_with_keys(engine));
    }
    log::notice("Ready to accept connections");
    supervisor.ready();

    while let Some(signal) = signals.forever().next() {
        let is_asked = asked_to_end.is_asked.load(Ordering::Relaxed);
        match signal {
            _ if is_asked => {}
            SIGINT => log::notice("Received SIGINT scheduling shutdown..."),
            _ => log::notice("Received SIGTERM scheduling shutdown..."),
        }
        log::notice("User requested shutdown...");
        // A restart can't be aborted.
        let may_abort = restart.after_ms.get().is_none();
        // Data are already saved, if requested by the command. A command that saves nothing doesn't wait for all shards, which a busy
        // script may hold.
        let fails_over = match is_asked {
            true => asked_to_end.fails_over.load(Ordering::Relaxed),
            false => has_word(engine, signal, "failover") || has_word(engine, signal, "move"),
        };
        if !is_asked && has_word(engine, signal, "move") && !engine.slots.are_on() {
            move_to_replica(engine, &mut signals);
        }
        let lets_write = asked_to_end.at_once.load(Ordering::Relaxed) && !fails_over;
        if is_asked && !engine.replication.has_stopped_stream() && !lets_write {
            end_writes_unsaved(engine);
        }
        if (is_asked || may_end(engine, signal) && save_at_end(engine, signal))
            && has_awaited_replicas(engine, &asked_to_end, may_abort, &mut signals)
        {
            if fails_over && engine.slots.are_on() {
                hand_slots_over(engine);
            }
            break;
        }
    }
    supervisor.stopping();
    stopping.store(true, Ordering::Release);
    engine.inboxes.iter().for_each(engine::inbox::Inbox::wake);
    let deadline = Instant::now() + FAREWELL;
    while handles.iter().any(|h| !h.is_finished()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    // A thread that is busy with a command of many seconds is not awaited.
    append_only.end(engine);
    give_up_snapshot(engine);
    log::notice("Penstock is now ready to exit, bye bye...");
    if let Some(&after_ms) = restart.after_ms.get() {
        drop(pid_file);
        return Err(restart.start_anew(after_ms));
    }
    Ok(())
}

/// Waits until the replicas have all data of this server, but no longer than `shutdown-timeout`, and not beyond another signal. Commands
/// that write are held meanwhile. Returns false if the end is aborted: the server continues then.
fn has_awaited_replicas(engine: &Engine, asked_to_end: &AskedToEnd, may_abort: bool, signals: &mut Signals) -> bool {
    let timeout = Duration::from_secs(engine.settings.shutdown_timeout_s.get().unsigned_abs());
    let deadline = Instant::now() + timeout;
    let is_due = || Instant::now() >= deadline;
    let have_all = || !engine.replication.stream.is_own() || engine.replication.replicas_have_all();
    engine.begin_shutdown(now_us() / 1000);
    if may_abort {
        asked_to_end.change_wait(|wait| {
            if *wait == ReplicaWait::None {
                *wait = ReplicaWait::Waits;
            }
        });
    }
    let mut is_aborted = false;
    while !is_aborted && !have_all() && !asked_to_end.at_once.load(Ordering::Relaxed) {
        if is_due() || signals.pending().next().is_some() {
            let why = if is_due() { "after shutdown-timeout" } else { "at another signal" };
            log::warning(format!("Replicas lack some of the data {why}: the server ends all the same."));
            break;
        }
        std::thread::sleep(REPLICAS_LOOK);
        is_aborted = asked_to_end.change_wait(|_| ()) == ReplicaWait::Aborted;
    }
    let end_wait = |wait: &mut ReplicaWait| {
        if *wait == ReplicaWait::Aborted {
            // Forgotten together with the wait: a second SHUTDOWN ABORT would abort the next shutdown otherwise.
            asked_to_end.forget();
        }
        *wait = ReplicaWait::None;
    };
    if asked_to_end.change_wait(end_wait) != ReplicaWait::Aborted {
        log_replicas(engine);
        return true;
    }
    log::notice("Shutdown manually aborted.");
    engine.abort_shutdown();
    let _alone = engine.keyspace.gate().close();
    engine.replication.resume_stream();
    engine.pause.end(PausePurpose::Shutdown);
    false
}

/// Has a replica take this primary's place before the server ends. Clients that hear of maintenance move to it without an error. Another
/// signal, or `shutdown-timeout`, ends the wait: the server then ends as a primary.
fn move_to_replica(engine: &Engine, signals: &mut Signals) {
    let replication = &engine.replication;
    let is_online = |replica: &ReplicaFigures| replica.stage == ReplicaStage::Online;
    if replication.primary().0.is_some()
        || replication.failover().is_some()
        || !replication.replicas.all().iter().any(is_online)
    {
        return;
    }
    let now_ms = now_us() / 1000;
    let timeout_ms = engine.settings.shutdown_timeout_s.get().unsigned_abs().saturating_mul(1000);
    engine.begin_failover(None, Some(now_ms.saturating_add(timeout_ms)), false, now_ms);
    while replication.failover().is_some() && signals.pending().next().is_none() {
        std::thread::sleep(REPLICAS_LOOK);
    }
    if replication.primary().0.is_none() || replication.failover().is_some() {
        return log::warning("No replica has taken this server's place in time: it ends as a primary.");
    }
    let deadline = Instant::now() + FAREWELL;
    while engine.maintenance.listeners() > 0 && Instant::now() < deadline {
        std::thread::sleep(REPLICAS_LOOK);
    }
}

/// Has a replica with all data take the place of this primary of a cluster, and waits until the replica knows it. Commands that write are
/// held, so no acknowledged write is lost.
fn hand_slots_over(engine: &Engine) {
    let replication = &engine.replication;
    if replication.primary().0.is_some() {
        return;
    }
    let successor = match replication.name_successor() {
        Ok(successor) => successor,
        Err(why) => return log::notice(why),
    };
    log::notice(format!("Perform auto failover to replica {} on shutdown.", successor.node));
    let deadline = Instant::now() + FAREWELL;
    while !replication.has_been_told(&successor) && Instant::now() < deadline {
        std::thread::sleep(REPLICAS_LOOK);
    }
}

/// Logs the number of replicas that have all data, and the others' progress, in Redis's words.
fn log_replicas(engine: &Engine) {
    let (replicas, end) = (engine.replication.replicas.all(), engine.replication.stream.units_end());
    if !engine.replication.stream.is_own() || replicas.is_empty() {
        return;
    }
    let lag = |replica: &ReplicaFigures| end.saturating_sub(replica.offset);
    let behind = replicas.iter().filter(|replica| replica.stage != ReplicaStage::Online || lag(replica) > 0);
    let mut in_sync = replicas.len();
    for replica in behind {
        in_sync -= 1;
        let heard_s = (now_us() / 1000).saturating_sub(replica.heard_ms) / 1000;
        log::notice(format!(
            "Lagging replica {}:{} reported offset {} behind master, lag={heard_s}.",
            replica.address,
            replica.port,
            lag(replica)
        ));
    }
    log::notice(format!("{in_sync} of {} replicas are in sync when shutting down.", replicas.len()));
}

/// Returns false if a signal must not end the server: the append-only file lacks its first base, or slots would lose their server.
fn may_end(engine: &Engine, signal: i32) -> bool {
    let refusals = [
        (engine.lacks_first_base(), "Writing initial AOF, can't exit."),
        (has_word(engine, signal, "safe") && engine.slots.are_mine(), UNSAFE_SHUTDOWN),
    ];
    let refusal = refusals.into_iter().find(|(is_refused, _)| *is_refused);
    match refusal.filter(|_| !has_word(engine, signal, "force")) {
        Some((_, why)) => {
            log::warning(why);
            false
        }
        None => true,
    }
}

/// Returns true if the configured words for a signal contain this one.
fn has_word(engine: &Engine, signal: i32, word: &str) -> bool {
    words_of(engine, signal).split(' ').any(|given| given == word)
}

/// Returns the configured words for a signal.
fn words_of(engine: &Engine, signal: i32) -> Arc<str> {
    let settings = &engine.settings;
    if signal == SIGINT { settings.shutdown_on_sigint.get() } else { settings.shutdown_on_sigterm.get() }
}

/// Returns true if a signal ends the server during the load. Nothing is saved then: there are no new data, and the loaded data are
/// incomplete.
fn is_to_end(signals: &mut Signals) -> bool {
    let is_to_end = signals.pending().next().is_some();
    if is_to_end {
        log::notice("User requested shutdown while the data were loaded: nothing is saved, bye bye...");
    }
    is_to_end
}

/// Saves a snapshot before a signal ends the server, if so configured, and ends writes. Returns false if the save has failed and the server
/// therefore continues.
fn save_at_end(engine: &'static Engine, signal: i32) -> bool {
    let settings = &engine.settings;
    let has = |word: &str| has_word(engine, signal, word);
    let saves = has("save") || (!has("nosave") && !settings.save.is_empty());
    if saves {
        let saved = end_writes(engine, &engine.keyspace.gate().close(), true);
        if saved.is_ok() {
            return true;
        }
        if !has("force") {
            log::warning("Error trying to save the DB, can't exit.");
            return false;
        }
    }
    end_writes_unsaved(engine);
    true
}

/// Ends writes without a snapshot, and lets replicas receive everything that is answered.
fn end_writes_unsaved(engine: &'static Engine) {
    let deadline = Instant::now() + FAREWELL;
    // A longer script isn't awaited.
    if let Some(alone) = engine.keyspace.gate().close_unless(|| Instant::now() > deadline) {
        // Without a save nothing can fail.
        let _ = end_writes(engine, &alone, false);
    }
}

fn end_writes(engine: &'static Engine, alone: &Alone<'_>, saves: bool) -> Result<(), commands::error::Error> {
    let clock = clock_of(engine);
    engine::services::saving::save_last(engine, &mut engine.keyspace.all(alone), &clock, saves)
}

/// The clock for the main thread's access to the data.
fn clock_of(engine: &Engine) -> Clock {
    let now_ms = now_us() / 1000;
    let uptime_s = (now_ms.saturating_sub(engine.started_ms) / 1000) as u32;
    Clock { now_ms, due_ms: now_ms, uptime_s, access: Access::None, frequency: None, keeps_due: true }
}

/// Cancels a running snapshot, and removes its file.
fn give_up_snapshot(engine: &'static Engine) {
    if engine.snapshots.are_idle() {
        return;
    }
    let deadline = Instant::now() + FAREWELL;
    if let Some(alone) = engine.keyspace.gate().close_unless(|| Instant::now() > deadline) {
        engine::services::saving::cancel(engine, &mut engine.keyspace.all(&alone));
    }
    // A snapshot that has been walked is finished, unless the disk takes too long.
    engine.snapshots.wait_for_end_until(deadline);
}

fn cannot_poll(error: std::io::Error) -> String {
    format!("can't poll for connections: {error}")
}

/// Returns the number of worker threads: `threads`, or the number of cores.
fn threads(settings: &Settings) -> usize {
    usize::try_from(settings.threads.get()).ok().filter(|&t| t > 0).unwrap_or_else(process::cores)
}

/// Ensures descriptors for `maxclients` clients.
///
/// # Errors
/// The possible number of clients, and the remedy.
fn find_room(settings: &Settings) -> Result<(), (u64, String)> {
    let (wanted, threads) = (settings.maxclients.get().max(0) as u64, threads(settings));
    let room = process::room_for_clients(wanted, threads);
    if room >= wanted {
        return Ok(());
    }
    let needed = wanted.saturating_add(process::descriptors_reserved(threads));
    let why = format!(
        "You requested maxclients of {wanted}, but the limit on open files leaves room for {room}; \
         raise it with 'ulimit -n {needed}' to serve more clients at a time."
    );
    Err((room, why))
}

/// Lowers maxclients to the number that the limit on descriptors allows, like Redis.
///
/// # Errors
/// The limit allows no client at all.
fn limit_clients(settings: &Settings) -> Result<(), String> {
    match find_room(settings) {
        Ok(()) => Ok(()),
        Err((0, _)) => {
            let needed = process::descriptors_reserved(threads(settings)) + 1;
            Err(format!(
                "The limit on open files leaves room for no client: raise it with 'ulimit -n {needed}' at least"
            ))
        }
        Err((room, why)) => {
            log::warning(why);
            settings.limit_maxclients(room as i64);
            Ok(())
        }
    }
}

fn announce(threads: usize, listeners: &[Listener]) {
    let plural = if threads == 1 { "" } else { "s" };
    log::notice(format!("Penstock {VERSION}, pid {}, {threads} thread{plural}", std::process::id()));
    for listener in listeners {
        log::notice(format!("Listening on {listener}"));
    }
}
