//! Runs a proxy before a server. The proxy passes all traffic on, and shows round trips with their replies to the
//! advisor.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::client::{Acceptance, Config};
use advisor::client::Client;
use advisor::machine_load::MachineLoad;
use advisor::tap::{Tap, Tapped};
use advisor::{Advisor, Connection, Trip};
use proxy::{Proxy, Wait, Watcher};

use crate::recording::Recorder;
use crate::run::say;

/// Interval at which the end is checked.
const INTERVAL: Duration = Duration::from_millis(20);

/// Options of the proxy.
pub struct Asked {
    /// The server.
    pub server: Config,
    /// Address to listen on.
    pub on: SocketAddr,
    /// The certificate for TLS with clients.
    pub encrypt: Option<Acceptance>,
    /// Additional delay of each round trip.
    pub rtt: Duration,
    /// Duration; `None` runs until the process is interrupted.
    pub time: Option<Duration>,
    /// File for the recording.
    pub record: Option<File>,
}

/// Counts of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Number of connections.
    pub connections: u64,
    /// Number of complete batches.
    pub batches: u64,
}

/// State shared by the connections' threads.
struct Shared {
    advisor: Mutex<Advisor>,
    recorder: Mutex<Option<Recorder<BufWriter<File>>>>,
    /// Open connections.
    open: Mutex<Vec<Arc<Mutex<Tapped>>>>,
    connections: AtomicU64,
    batches: AtomicU64,
    /// The load of the machine, on which clients may run.
    load: Mutex<MachineLoad>,
    /// Additional delay of each round trip.
    rtt: Duration,
    /// A moment as an `Instant`, and in nanoseconds of Unix time.
    began: Instant,
    began_ns: u64,
}

/// State of one connection's thread.
struct Watched {
    shared: Arc<Shared>,
    tapped: Arc<Mutex<Tapped>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forwards connections until the time is over or `is_over` is set. Returns the advisor and the counts.
///
/// # Errors
/// Returns a message for the user if the address is in use or the recording can't be written.
pub fn look(asked: Asked, advisor: Advisor, is_over: &AtomicBool) -> Result<(Advisor, Passed), String> {
    let config = asked.server;
    let shared =
        Arc::new(Shared::new(advisor, asked.record, asked.rtt).map_err(|error| format!("can't record: {error}"))?);
    let watch = {
        let shared = Arc::clone(&shared);
        move |peer| Shared::connected(&shared, peer)
    };
    let proxy = Proxy::watched(asked.on, asked.encrypt, config.clone(), Wait::Asleep, watch);
    let proxy = proxy.map_err(|error| format!("can't listen on {}: {error}", asked.on))?;
    proxy.set_rtt(asked.rtt);
    say(&format!("forwarding {} to {}; Ctrl-C stops it and prints the report", proxy.address(), config.address));
    let began = Instant::now();
    while !is_over.load(Ordering::Relaxed) && asked.time.is_none_or(|time| began.elapsed() < time) {
        sleep(INTERVAL);
    }
    shared.end()
}

impl Shared {
    fn new(advisor: Advisor, record: Option<File>, rtt: Duration) -> io::Result<Shared> {
        let recorder = record.map(|file| Recorder::new(BufWriter::new(file))).transpose()?;
        Ok(Shared {
            advisor: Mutex::new(advisor),
            recorder: Mutex::new(recorder),
            open: Mutex::default(),
            connections: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            load: Mutex::new(MachineLoad::new(thread::available_parallelism().map_or(1, usize::from))),
            rtt,
            began: Instant::now(),
            began_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
        })
    }

    /// Converts a moment to nanoseconds of Unix time.
    fn ns(&self, at: Instant) -> u64 {
        self.began_ns + at.saturating_duration_since(self.began).as_nanos() as u64
    }

    fn connected(shared: &Arc<Shared>, peer: SocketAddr) -> Watched {
        let id = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Client { address: peer.ip().to_string(), ..Client::default() };
        // The last packet of connecting arrives one and a half round trips after the first.
        let now_ns = shared.ns(Instant::now() + shared.rtt * 3 / 2);
        shared.record(|recorder| recorder.opened(id, &client, now_ns));
        let tapped = Arc::new(Mutex::new(Tapped::opened(id, client, now_ns, Tap::new())));
        lock(&shared.open).push(Arc::clone(&tapped));
        Watched { shared: Arc::clone(shared), tapped }
    }

    /// Adds to the recording. The first write error ends the recording.
    fn record(&self, record: impl FnOnce(&mut Recorder<BufWriter<File>>) -> io::Result<()>) {
        let mut recorder = lock(&self.recorder);
        if let Some(Err(error)) = recorder.as_mut().map(record) {
            *recorder = None;
            say(&format!("recording stopped: {error}"));
        }
    }

    fn trip(&self, tapped: &mut Connection, id: u64, trip: &Trip<'_>) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.look_at_load();
        self.record(|recorder| recorder.trip(id, trip));
        lock(&self.advisor).trip(tapped, trip);
    }

    /// Tells the advisor if threads wait for a core.
    fn look_at_load(&self) {
        let now_ns = self.ns(Instant::now());
        let read = || fs::read_to_string("/proc/loadavg").ok();
        if lock(&self.load).look(now_ns, read) == Some(true) {
            self.record(|recorder| recorder.busy(now_ns));
            lock(&self.advisor).note_busy(now_ns);
        }
    }

    fn close(&self, tapped: &mut Tapped, now: Instant) {
        let now_ns = self.ns(now);
        self.record(|recorder| recorder.closed(tapped.id, now_ns));
        lock(&self.advisor).closed(&mut tapped.connection, now_ns);
    }

    /// Closes all open connections for the advisor. Their threads end with the process.
    fn end(&self) -> Result<(Advisor, Passed), String> {
        let now = Instant::now();
        for tapped in std::mem::take(&mut *lock(&self.open)) {
            self.close(&mut lock(&tapped), now);
        }
        if let Some(recorder) = lock(&self.recorder).take() {
            recorder.finish().map_err(|error| format!("can't write the recording: {error}"))?;
        }
        let advisor = std::mem::replace(&mut *lock(&self.advisor), Advisor::new(advisor::Config::default()));
        let passed = Passed {
            connections: self.connections.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
        };
        Ok((advisor, passed))
    }
}

impl Watcher for Watched {
    fn request(&mut self, bytes: &[u8], now: Instant) {
        let now_ns = self.shared.ns(now);
        let mut tapped = lock(&self.tapped);
        if tapped.request(bytes, now_ns) {
            self.shared.record(|recorder| recorder.renamed(tapped.id, &tapped.client));
        }
    }

    fn reply(&mut self, bytes: &[u8], now: Instant) {
        let now_ns = self.shared.ns(now);
        let mut tapped = lock(&self.tapped);
        let id = tapped.id;
        tapped.reply(bytes, now_ns, |connection, trip| self.shared.trip(connection, id, trip));
    }

    fn network(&mut self, round_trip: Duration) {
        let mut tapped = lock(&self.tapped);
        let measured_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        tapped.connection.set_round_trip(measured_ns);
        self.shared.record(|recorder| recorder.measured(tapped.id, measured_ns));
    }

    fn closed(&mut self, now: Instant) {
        let mut open = lock(&self.shared.open);
        let before = open.len();
        open.retain(|tapped| !Arc::ptr_eq(tapped, &self.tapped));
        let was_open = open.len() < before;
        drop(open);
        if was_open {
            self.shared.close(&mut lock(&self.tapped), now);
        }
    }
}
