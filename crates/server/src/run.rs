//! The server's life: from its configuration to the last reply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use engine::config::{Apply, ConfigHost, LogLevel, Settings};
use engine::engine::Engine;
use engine::host::{CertificateFigures, Host};
use engine::inbox::{Message, Wake};
use engine::machine::{Machine, Usage};
use engine::migrations::Migration;
use engine::pause::PausePurpose;
use engine::snapshots::{Outlet, Piece, Purpose, SnapshotForm};
use engine::worker::Worker;
use journal::merge::Merge;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use store::db::{Access, Clock};
use store::sync::Alone;

use crate::allocator;
use crate::append_only::AppendOnly;
use crate::cli_args::LoadedSettings;
use crate::conf_file::{FATAL, system_text};
use crate::daemon;
use crate::event_loop::{EventLoop, NewListeners, Shared, now_us};
use crate::heap;
use crate::http;
use crate::listener::{self, Listener};
use crate::loading::{self, Loader};
use crate::log;
use crate::migrating::Migrators;
use crate::pid_file::PidFile;
use crate::poller::{Epoll, WakeFd};
use crate::primary::{self, Desk};
use crate::process;
use crate::rebind::InUse;
use crate::replica;
use crate::restart::Restart;
use crate::saving;
use crate::spill::Spill;
use crate::supervisor::Supervisor;
use crate::title::Title;
use crate::tls::handshakes::Handshakes;

/// The version of Penstock.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long threads get to send their last replies when the server ends.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long a server that ends waits before it looks again whether its replicas have everything.
const REPLICAS_LOOK: Duration = Duration::from_millis(1);
/// How long data may be loaded before clients are served, which are told of it from then on: shorter than clients wait for a connection
/// by default, and longer than it takes to load what most tests and small services have.
const LOADS_UNSEEN: Duration = Duration::from_millis(200);

/// Whether a command has asked for the server's end.
#[derive(Default)]
struct AskedToEnd {
    is_asked: AtomicBool,
    /// True if the server waits for nothing then.
    at_once: AtomicBool,
    wait: Mutex<ReplicaWait>,
}

/// Whether a server that ends waits for its replicas, which can be aborted (SHUTDOWN ABORT).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum ReplicaWait {
    #[default]
    None,
    Waits,
    Aborted,
}

impl AskedToEnd {
    /// Changes the wait, and says what it was.
    fn change_wait(&self, change: impl FnOnce(&mut ReplicaWait)) -> ReplicaWait {
        let mut wait = self.wait.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *wait;
        change(&mut wait);
        before
    }

    /// Forgets what was asked for.
    fn forget(&self) {
        self.is_asked.store(false, Ordering::Relaxed);
        self.at_once.store(false, Ordering::Relaxed);
    }
}

/// Acts for the engine on the process and its sockets.
struct ServerHost {
    listening: InUse,
    new_listeners: NewListeners,
    supervisor: Supervisor,
    title: Title,
    /// What a command has asked for, and no signal.
    asked_to_end: Arc<AskedToEnd>,
    /// The engine, as soon as it is there.
    engine: Arc<OnceLock<&'static Engine>>,
    append_only: Arc<AppendOnly>,
    desk: Arc<Desk>,
    handshakes: Arc<Handshakes>,
    migrators: Arc<Migrators>,
    restart: Arc<Restart>,
}

impl ServerHost {
    fn engine(&self) -> Result<&'static Engine, String> {
        self.engine.get().copied().ok_or_else(|| "the server has just begun to start".into())
    }

    /// Has the append-only file begin, or end. It begins with a snapshot, which is made at once.
    fn switch_append_only(&self, settings: &Settings) -> Result<(), String> {
        let engine = self.engine()?;
        if engine.is_loading() {
            return Err("The data are being loaded: try again when that is done".into());
        }
        if !settings.appendonly.get() {
            self.append_only.turn_off();
            // What waits for this disk waits for nothing any more (WAITAOF).
            engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
            return Ok(());
        }
        let turned_on = self.append_only.turn_on(engine);
        turned_on.map_err(|why| refuse(&why, "Unable to turn on AOF. Check server logs."))?;
        engine.snapshots.want(Purpose::Base);
        Ok(())
    }

    /// Listens on what the settings ask for instead. What is known of a failure goes to the log: `refusal` is all that
    /// clients are told.
    fn listen(&self, settings: &Settings, refusal: &str) -> Result<(), String> {
        self.encrypt(settings)?;
        let listeners = self.listening.replace(settings).map_err(|why| refuse(&why, refusal))?;
        // The first thread looks within a tick; until then new connections wait in the kernel's queue.
        self.new_listeners.leave(listeners);
        Ok(())
    }
}

impl ServerHost {
    /// Has new connections be encrypted as the settings ask for, from now on.
    fn encrypt(&self, settings: &Settings) -> Result<(), String> {
        let configured = self.handshakes.configure(settings);
        configured.map_err(|why| refuse(&why, "Unable to update TLS configuration. Check server logs."))
    }
}

/// Logs why a setting is refused, and gives what the client is told.
fn refuse(why: &str, refusal: &str) -> String {
    log::warning(why);
    refusal.into()
}

impl ConfigHost for ServerHost {
    fn apply(&self, what: Apply, settings: &Settings) -> Result<(), String> {
        match what {
            Apply::Port => self.listen(settings, "Unable to listen on this port. Check server logs."),
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
                Ok(())
            }
        }
    }
}

impl Host for ServerHost {
    fn shut_down(&self, at_once: bool) {
        self.asked_to_end.at_once.store(at_once, Ordering::Relaxed);
        self.asked_to_end.is_asked.store(true, Ordering::Relaxed);
        // The way that SIGTERM goes: the main thread waits for it.
        let _ = signal_hook::low_level::raise(SIGTERM);
    }

    fn abort_shut_down(&self) -> bool {
        let abort = |wait: &mut ReplicaWait| {
            if *wait == ReplicaWait::Waits {
                *wait = ReplicaWait::Aborted;
            }
        };
        self.asked_to_end.change_wait(abort) == ReplicaWait::Waits
    }

    fn save(
        &self,
        purpose: Purpose,
        form: SnapshotForm,
        outlet: Arc<Outlet>,
        pieces: Receiver<Piece>,
    ) -> Result<(), String> {
        saving::start(self.engine()?, (purpose, form), self.append_only.files(), &self.desk, outlet, pieces)
    }

    fn begin_append_only_file(&self, read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        self.append_only.begin(self.engine()?, read)
    }

    fn reload_append_only_file(&self) -> Result<(), String> {
        loading::reload(self.engine()?, self.append_only.clone())
    }

    fn supervisor(&self) -> &'static str {
        self.supervisor.name()
    }

    fn machine(&self) -> Machine {
        process::machine()
    }

    fn usage(&self) -> Usage {
        process::usage(&worker_name(0))
    }

    fn allocator_statistics(&self) -> Option<String> {
        Some(allocator::statistics())
    }

    fn restart(&self, gracefully: bool, after_ms: u64) -> Result<(), String> {
        if gracefully {
            let _ = self.restart.after_ms.set(after_ms);
            self.shut_down(false);
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

    fn log(&self, level: LogLevel, message: &str) {
        log::write(level, message);
    }
}

/// The name of a worker's thread.
fn worker_name(id: usize) -> String {
    format!("worker-{id}")
}

/// Sets up huge pages so that commands don't wait for them, as far as the system allows.
fn arrange_huge_pages(settings: &Settings) {
    process::permit_huge_pages();
    if !settings.disable_thp.get() {
        heap::huge_at_once();
    } else if !heap::prepare_ahead() {
        process::disable_huge_pages();
    }
}

/// Begins the log. Without a log, a failing server looks like a healthy one, so a failure ends the start.
fn begin_log(settings: &Settings) -> Result<(), String> {
    log::follow(settings);
    log::begin_syslog(settings);
    let name = settings.logfile.get();
    if name.is_empty() {
        return Ok(());
    }
    // Absolute, since `dir` may change while it runs.
    log::set_file(settings.in_dir(&name)).map_err(|e| format!("{FATAL}Can't open the log file: {}", system_text(&e)))
}

/// Where the server runs, as its log and its terminal go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where it was started.
    Foreground,
    /// In the background ([`crate::daemon`]).
    Background,
}

/// Runs the server until a signal or SHUTDOWN ends it. The error is for the terminal, and says what to change.
pub fn run(loaded: LoadedSettings, place: Place) -> Result<(), String> {
    let LoadedSettings { settings, config_file, notes, .. } = loaded;
    begin_log(&settings)?;
    notes.iter().for_each(log::notice);
    // Before the first command is looked up.
    let renamed = settings.renamed_commands();
    if !renamed.is_empty() {
        engine::registry::rename(&renamed)?;
    }
    // Before the first key is hashed.
    store::hash::set_seed(process::random_seed());
    // Before threads are started, which inherit what is blocked or handled.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("can't handle signals: {e}"))?;
    // The server outlives the terminal that it was started from, as Redis does; the flag isn't read.
    let hung_up = signal_hook::flag::register(SIGHUP, Arc::default());
    hung_up.map_err(|e| format!("can't handle signals: {e}"))?;
    // Nor does an alarm end it that its parent process has set.
    let alarmed = signal_hook::flag::register(SIGALRM, Arc::default());
    alarmed.map_err(|e| format!("can't handle signals: {e}"))?;
    // A file that may not grow any more (ulimit -f) is an error of the write, not the end of the process.
    let too_large = signal_hook::flag::register(SIGXFSZ, Arc::default());
    too_large.map_err(|e| format!("can't handle signals: {e}"))?;
    arrange_huge_pages(&settings);
    // Before the title takes the place of the arguments.
    let restart = Arc::new(Restart::of_this_process());
    let title = Title::prepare(&settings, config_file.as_deref());
    title.show(&settings);
    let handshakes = Arc::<Handshakes>::default();
    handshakes.configure(&settings).map_err(|why| format!("Failed to configure TLS: {why}"))?;
    let listeners = listener::open_all(&settings)?;
    let http_listeners = http::open(&settings)?;
    limit_clients(&settings);

    let threads = threads(&settings);
    let wakes = (0..threads).map(|_| WakeFd::new()).collect::<Result<Vec<_>, _>>().map_err(cannot_poll)?;
    let new_listeners = NewListeners::default();
    let listening = InUse::of(&listeners);
    let supervisor = Supervisor::of(&settings);
    let asked_to_end = Arc::<AskedToEnd>::default();
    let (later_engine, append_only) = (Arc::<OnceLock<_>>::default(), Arc::<AppendOnly>::default());
    let desk = Arc::<Desk>::default();
    let host = ServerHost {
        listening,
        new_listeners: new_listeners.clone(),
        supervisor: supervisor.clone(),
        title,
        asked_to_end: asked_to_end.clone(),
        engine: later_engine.clone(),
        append_only: append_only.clone(),
        desk: desk.clone(),
        handshakes: handshakes.clone(),
        migrators: Arc::default(),
        restart: restart.clone(),
    };
    let shared_wakes = wakes.iter().map(|w| w.try_clone().map(|w| Box::new(w) as Box<dyn Wake>));
    let shared_wakes = shared_wakes.collect::<Result<Vec<_>, _>>().map_err(cannot_poll)?;
    let engine =
        Engine::start(engine::registry::table(), settings, config_file, shared_wakes, Box::new(host), now_us() / 1000);
    engine.keyspace.reaper().prepare_with(process::stand_back);
    let _ = later_engine.set(engine);
    desk.begin(engine);
    primary::start(engine, desk.clone())?;
    engine::services::access::begin(engine).map_err(|why| format!("{FATAL}{why}"))?;

    let stopping = Arc::new(AtomicBool::new(false));
    let spill = Spill::start(engine).map_err(|e| format!("can't start a thread: {e}"))?;
    let shared =
        Arc::new(Shared::new(engine, stopping.clone(), new_listeners, spill, desk.clone(), handshakes.clone()));
    handshakes.serve(&shared, &engine.settings)?;
    announce(threads, &listeners);
    let workers = (0..threads).map(|id| Worker::new(id, engine, process::random_seed()));
    let loader = Loader::start(engine, append_only.clone())?;
    // Clients that connect meanwhile wait as long, and see nothing of it.
    let mut loaded = loader.wait(LOADS_UNSEEN);
    if let Some(Err(why)) = loaded {
        return Err(why);
    }
    let mut listeners = Some(listeners);
    let mut handles = Vec::new();
    for (id, (wake, worker)) in wakes.into_iter().zip(workers).enumerate() {
        let (shared, listeners) = (shared.clone(), listeners.take().unwrap_or_default());
        let serve = move || match Epoll::new(wake).and_then(|poller| EventLoop::new(shared, worker, poller, listeners))
        {
            Ok(event_loop) => event_loop.run(),
            Err(error) => {
                log::warning(cannot_poll(error));
                let _ = signal_hook::low_level::raise(SIGTERM);
            }
        };
        let thread = std::thread::Builder::new().name(worker_name(id)).spawn(serve);
        handles.push(thread.map_err(|e| format!("can't start a thread: {e}; choose fewer with --threads"))?);
    }
    http::start(http_listeners, shared)?;
    // Before it is said that clients are served. Where the file is, a server runs, which may be loading its data.
    let pid_file = PidFile::write(&engine.settings);
    if place == Place::Background {
        daemon::serves();
    }
    loaded = loaded.or_else(|| loader.wait_unless(|| is_to_end(&mut signals)));
    let Some(loaded) = loaded else { return Ok(()) };
    if let (Err(why), Place::Background) = (&loaded, place) {
        // There is no terminal that it could be said at.
        log::warning(why);
    }
    loaded?;
    replica::start(engine, append_only.clone())?;
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
        // What begins anew can't be aborted.
        let may_abort = restart.after_ms.get().is_none();
        // A command has saved what was to be saved. One that saves nothing doesn't wait for all shards, which a busy script may hold.
        if is_asked && !engine.replication.has_stopped_stream() && !asked_to_end.at_once.load(Ordering::Relaxed) {
            end_writes_unsaved(engine);
        }
        if (is_asked || save_at_end(engine, signal))
            && has_awaited_replicas(engine, &asked_to_end, may_abort, &mut signals)
        {
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
    // A thread that is still busy (a command of many seconds) is not waited for.
    append_only.end();
    give_up_snapshot(engine);
    log::notice("Penstock is now ready to exit, bye bye...");
    if let Some(&after_ms) = restart.after_ms.get() {
        drop(pid_file);
        return Err(restart.start_anew(after_ms));
    }
    Ok(())
}

/// Waits until the replicas have all that this server has, but no longer than `shutdown-timeout`, and not beyond another signal. Commands that
/// write wait meanwhile. False if the end is aborted: then the server goes on.
fn has_awaited_replicas(engine: &Engine, asked_to_end: &AskedToEnd, may_abort: bool, signals: &mut Signals) -> bool {
    let timeout = Duration::from_secs(engine.settings.shutdown_timeout_s.get().unsigned_abs());
    let deadline = Instant::now() + timeout;
    let is_due = || Instant::now() >= deadline;
    let have_all = || !engine.replication.stream.is_own() || engine.replication.replicas_have_all();
    if may_abort {
        asked_to_end.change_wait(|wait| *wait = ReplicaWait::Waits);
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
    if asked_to_end.change_wait(|wait| *wait = ReplicaWait::None) != ReplicaWait::Aborted {
        return true;
    }
    log::notice("Shutdown manually aborted.");
    asked_to_end.forget();
    let _alone = engine.keyspace.gate().close();
    engine.replication.resume_stream();
    engine.pause.end(PausePurpose::Shutdown);
    false
}

/// Whether a signal ends the server while it loads its data. Nothing is saved then: there is nothing new, and what has been loaded so
/// far isn't all.
fn is_to_end(signals: &mut Signals) -> bool {
    let is_to_end = signals.pending().next().is_some();
    if is_to_end {
        log::notice("User requested shutdown while the data were loaded: nothing is saved, bye bye...");
    }
    is_to_end
}

/// Saves a snapshot before a signal ends the server, where the configuration has it so, and ends writes. False, if that has failed and the
/// server goes on for that.
fn save_at_end(engine: &'static Engine, signal: i32) -> bool {
    let settings = &engine.settings;
    let words = if signal == SIGINT { settings.shutdown_on_sigint.get() } else { settings.shutdown_on_sigterm.get() };
    let has = |word: &str| words.split(' ').any(|given| given == word);
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

/// Ends writes without a snapshot, so that replicas can have all that is answered.
fn end_writes_unsaved(engine: &'static Engine) {
    let deadline = Instant::now() + FAREWELL;
    // A script that takes longer isn't waited for.
    if let Some(alone) = engine.keyspace.gate().close_unless(|| Instant::now() > deadline) {
        // Nothing is saved that could fail.
        let _ = end_writes(engine, &alone, false);
    }
}

fn end_writes(engine: &'static Engine, alone: &Alone<'_>, saves: bool) -> Result<(), commands::error::Error> {
    let clock = clock_of(engine);
    engine::services::saving::save_last(engine, &mut engine.keyspace.all(alone), &clock, saves)
}

/// The time, for what the main thread does with the data.
fn clock_of(engine: &Engine) -> Clock {
    let now_ms = now_us() / 1000;
    let uptime_s = (now_ms.saturating_sub(engine.started_ms) / 1000) as u32;
    Clock { now_ms, due_ms: now_ms, uptime_s, access: Access::None, frequency: None, keeps_due: true }
}

/// Gives up a snapshot that is still being made, so that nothing of it is left.
fn give_up_snapshot(engine: &'static Engine) {
    if engine.snapshots.are_idle() {
        return;
    }
    let deadline = Instant::now() + FAREWELL;
    if let Some(alone) = engine.keyspace.gate().close_unless(|| Instant::now() > deadline) {
        engine::services::saving::cancel(engine, &mut engine.keyspace.all(&alone));
    }
    // One that has been walked is finished, unless the disk takes too long for that.
    engine.snapshots.wait_for_end_until(deadline);
}

fn cannot_poll(error: std::io::Error) -> String {
    format!("can't poll for connections: {error}")
}

/// How many worker threads there are: `threads`, or as many as cores.
fn threads(settings: &Settings) -> usize {
    usize::try_from(settings.threads.get()).ok().filter(|&t| t > 0).unwrap_or_else(process::cores)
}

/// Sees to it that there are descriptors for as many clients as `maxclients` says.
///
/// # Errors
/// For how many there are, and what to do about it.
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

/// Lowers maxclients to what the limit on descriptors leaves room for, as Redis does.
fn limit_clients(settings: &Settings) {
    if let Err((room, why)) = find_room(settings) {
        log::warning(why);
        settings.limit_maxclients(room as i64);
    }
}

fn announce(threads: usize, listeners: &[Listener]) {
    log::notice(format!("Penstock {VERSION}, pid {}, {threads} threads", std::process::id()));
    for listener in listeners {
        log::notice(format!("Listening on {listener}"));
    }
}
