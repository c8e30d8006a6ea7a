//! TLS handshakes in threads of their own. They take newly accepted connections, perform the handshake, and hand the connections to the
//! workers, which never wait for any of it.
//!
//! The threads poll, and a slow peer delays no other. They have a low priority and take only the time that workers leave. `maxclients`
//! bounds the number of handshakes, because each connection counts from its acceptance on. Each handshake has a time limit.
//!
//! A handshake takes memory for a peer that has not authenticated yet. All handshakes together therefore have at most half of
//! `unauthenticated-input-total`. Further connections are queued as accepted sockets. A slow handshake is ended in favour of queued ones:
//! silent peers delay others only for a moment.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use config::{LogLevel, Settings};
use engine::clients::client::Sum;
use engine::host::CertificateFigures;
use engine::inbox::Wake;
use engine::upkeep::client_limit::keep_unauthenticated_total;
use rustix::net::RecvFlags;
use slab::Slab;

use super::certificate::user_of;
use super::setup::TlsSetup;
use super::stream::{Handshake, SESSION_BYTES, TlsStream};
use crate::connection::Socket;
use crate::listener::Accepted;
use crate::log;
use crate::mailbox::Mailbox;
use crate::poller::{Epoll, Poller, TICK, WakeFd};
use crate::shared::Shared;
use crate::threads;

/// The longest time of a handshake: longer than one takes on the slowest network, with all its messages lost once.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest time of a handshake while others are queued: longer than one takes on a usual network.
const HANDSHAKE_TIME_AWAITED: Duration = Duration::from_secs(1);
/// The longest silence of a peer while others are queued: longer than a round trip on a usual network.
const PEER_TIME_AWAITED: Duration = Duration::from_millis(300);
/// The divisor of `unauthenticated-input-total` that gives the share of handshakes. The rest is for clients that send requests.
const HANDSHAKES_PART: u64 = 2;
/// The most threads: a core signs about a thousand times a second with the slowest usual keys.
const THREADS_MAX: usize = 4;

/// The threads and the TLS configuration.
#[derive(Default)]
pub struct Handshakes {
    setup: Mutex<Option<Arc<TlsSetup>>>,
    certificates: Mutex<[Option<CertificateFigures>; 3]>,
    threads: OnceLock<Vec<HandshakeThread>>,
    shared: OnceLock<Arc<Shared>>,
    /// The thread that gets the next connection.
    next: AtomicUsize,
    /// The worker that gets the next finished connection.
    next_worker: AtomicUsize,
}

/// A handshake thread: its mailbox and its waker.
struct HandshakeThread {
    arrived: Arc<Mailbox<Accepted>>,
    wake: WakeFd,
}

/// A handshake in progress.
struct Pending {
    /// With an encrypting socket.
    accepted: Accepted,
    setup: Arc<TlsSetup>,
    /// Start of the handshake. The time in the queue before doesn't count.
    began: Instant,
    /// Time of the peer's last message.
    heard: Instant,
    /// True if the poller watches for room to write.
    writes: bool,
    /// Bytes of memory counted for it.
    noted: u64,
}

impl Handshakes {
    /// Applies the settings to new connections, if they have a port with TLS.
    ///
    /// # Errors
    /// The mistake. Nothing has changed then.
    pub fn configure(&self, settings: &Settings) -> Result<(), String> {
        if !is_wanted(settings) {
            return Ok(());
        }
        let setup = Arc::new(TlsSetup::read(settings)?);
        *self.certificates.lock().unwrap_or_else(PoisonError::into_inner) = TlsSetup::certificates(settings);
        *self.setup.lock().unwrap_or_else(PoisonError::into_inner) = Some(setup);
        self.begin()
    }

    /// Sets the server that gets the connections. No connection is accepted before.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn serve(&self, shared: &Arc<Shared>, settings: &Settings) -> Result<(), String> {
        let _ = self.shared.set(shared.clone());
        if is_wanted(settings) { self.begin() } else { Ok(()) }
    }

    /// Starts the threads once there is a server to hand connections to.
    fn begin(&self) -> Result<(), String> {
        let Some(shared) = self.shared.get() else { return Ok(()) };
        if self.threads.get().is_some() {
            return Ok(());
        }
        let cores = crate::process::cores();
        let threads = (0..(cores / 2).clamp(1, THREADS_MAX)).map(|id| start(id, shared));
        let threads = threads.collect::<std::io::Result<Vec<_>>>();
        let threads = threads.map_err(|e| format!("can't start a thread for handshakes: {e}"))?;
        let _ = self.threads.set(threads);
        Ok(())
    }

    /// The figures of the certificates in use, for INFO.
    pub fn certificates(&self) -> [Option<CertificateFigures>; 3] {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The TLS configuration of the next connection.
    pub(crate) fn setup(&self) -> Option<Arc<TlsSetup>> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a newly accepted and counted connection.
    pub fn take(&self, accepted: Accepted, shared: &Shared) {
        let Some(threads) = self.threads.get() else { return shared.note_leaving(true) };
        let thread = &threads[self.next.fetch_add(1, Ordering::Relaxed) % threads.len()];
        if thread.arrived.leave(accepted) {
            thread.wake.wake();
        }
    }

    /// Reads the files again if one has changed. Unusable files change nothing.
    fn reload_changed(&self, settings: &Settings) {
        if !self.setup().is_some_and(|setup| setup.is_stale()) {
            return;
        }
        match self.configure(settings) {
            Ok(()) => log::notice("TLS: a changed file was read; new connections use it."),
            Err(why) => log::warning(format!("TLS: a changed file can't be used, the one before stays in use: {why}")),
        }
    }
}

/// Returns true if the peer has sent data that have not been received.
fn has_input(socket: &Socket) -> bool {
    let peeked = rustix::net::recv(socket.as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    peeked.is_ok_and(|(count, _)| count > 0)
}

/// Returns true if a port needs certificates. The HTTP port's own thread performs its handshakes. The threads here only watch its
/// certificates' files for changes.
fn is_wanted(settings: &Settings) -> bool {
    let bus = settings.cluster_enabled.get() && settings.tls_cluster.get();
    bus || settings.tls_port.get() != 0 || (settings.http_port.get() != 0 && settings.http_tls.get())
}

fn start(id: usize, shared: &Arc<Shared>) -> std::io::Result<HandshakeThread> {
    let wake = WakeFd::new()?;
    let thread = HandshakeThread { arrived: Arc::default(), wake: wake.try_clone()? };
    let (arrived, shared) = (thread.arrived.clone(), shared.clone());
    let reloads = id == 0;
    let run = move || {
        crate::process::give_way();
        match Epoll::new(wake) {
            Ok(poller) => {
                let (waiting, pending, looked_at_files) = (VecDeque::new(), Slab::new(), Instant::now());
                Greeter { shared, arrived, poller, waiting, pending, reloads, looked_at_files }.run();
            }
            Err(error) => log::warning(format!("TLS connections can't be accepted: epoll failed: {error}")),
        }
    };
    threads::spawn_numbered(&threads::HANDSHAKES, id, run)?;
    Ok(thread)
}

/// One of the threads.
struct Greeter {
    shared: Arc<Shared>,
    arrived: Arc<Mailbox<Accepted>>,
    poller: Epoll,
    /// The queued connections, the oldest first, with the start of their wait.
    waiting: VecDeque<(Accepted, Instant)>,
    pending: Slab<Pending>,
    /// True for the thread that reloads changed files.
    reloads: bool,
    looked_at_files: Instant,
}

impl Greeter {
    fn run(mut self) {
        let mut ready = Vec::new();
        while !self.shared.is_stopping() {
            if let Err(error) = self.poller.wait(None, &mut ready) {
                log::warning(format!("epoll failed: {error}"));
                std::thread::sleep(TICK);
            }
            self.poller.take_wake();
            let arrived = self.arrived.take().into_iter().map(|accepted| (accepted, Instant::now()));
            self.waiting.extend(arrived);
            for event in &ready {
                self.go_on(event.token as usize);
            }
            if self.poller.take_tick() {
                self.give_up_slow();
                self.look_at_files();
            }
            // After finished handshakes have made room.
            self.begin_waiting();
        }
    }

    /// Begins queued handshakes while there is room.
    fn begin_waiting(&mut self) {
        while !self.waiting.is_empty() && (self.has_room() || self.give_up_oldest()) {
            if let Some((accepted, _)) = self.waiting.pop_front() {
                self.begin(accepted);
            }
        }
    }

    /// The most bytes of all handshakes.
    fn bytes_max(&self) -> u64 {
        self.shared.settings().unauthenticated_input_total.get() / HANDSHAKES_PART
    }

    fn has_room(&self) -> bool {
        let taken = self.shared.engine.clients.noted(Sum::Handshakes);
        self.pending.is_empty() || taken + SESSION_BYTES as u64 <= self.bytes_max()
    }

    /// Ends the handshake with the longest silence, if that is too long, or else the oldest, if it is slow. Returns false if there is none.
    fn give_up_oldest(&mut self) -> bool {
        let silent = self.pending.iter().min_by_key(|(_, pending)| pending.heard);
        let silent = silent.filter(|(_, pending)| pending.heard.elapsed() > PEER_TIME_AWAITED);
        let oldest = || self.pending.iter().min_by_key(|(_, pending)| pending.began);
        let late = silent.or_else(|| oldest().filter(|(_, pending)| pending.began.elapsed() > HANDSHAKE_TIME_AWAITED));
        let Some((key, pending)) = late else { return false };
        if has_input(&pending.accepted.socket) {
            // The delay is this thread's own: the peer's data have not been read yet.
            self.go_on(key);
            return self.has_room();
        }
        self.end(key, "the handshake took long, and others wait for its memory (unauthenticated-input-total)");
        true
    }

    fn begin(&mut self, accepted: Accepted) {
        let addr = accepted.addr.clone();
        let (Some(setup), Socket::Tcp(tcp)) = (self.shared.handshakes.setup(), accepted.socket) else {
            return self.leave(&addr, "TLS is not configured");
        };
        let stream = match TlsStream::accept(tcp, setup.config.clone()) {
            Ok(stream) => stream,
            Err(error) => return self.leave(&addr, &error.to_string()),
        };
        let accepted = Accepted { socket: Socket::Tls(Box::new(stream)), ..accepted };
        let began = Instant::now();
        let key = self.pending.insert(Pending { accepted, setup, began, heard: began, writes: false, noted: 0 });
        match self.poller.add(self.pending[key].accepted.socket.as_fd(), key as u64) {
            Ok(()) => self.go_on(key),
            Err(error) => self.end(key, &error.to_string()),
        }
    }

    fn go_on(&mut self, key: usize) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        let Socket::Tls(stream) = &mut pending.accepted.socket else { return };
        pending.heard = Instant::now();
        let writes = match stream.shake_hands() {
            Ok(Handshake::Done) => return self.hand_over(key),
            Ok(Handshake::Reads) => false,
            Ok(Handshake::Writes) => true,
            Err(error) => return self.end(key, &error.to_string()),
        };
        let bytes = stream.handshake_bytes() as u64;
        let before = std::mem::replace(&mut pending.noted, bytes);
        self.shared.engine.clients.note_unlisted(Sum::Handshakes, before, bytes);
        if writes != pending.writes {
            pending.writes = writes;
            let watched = self.poller.watch(stream.as_fd(), key as u64, !writes, writes);
            if let Err(error) = watched {
                return self.end(key, &error.to_string());
            }
        }
        if bytes > before {
            self.keep_totals();
        }
    }

    /// Ends the largest handshakes until all together are within their share. Has unauthenticated clients closed if they take too much
    /// together.
    fn keep_totals(&mut self) {
        while self.pending.len() > 1 && self.shared.engine.clients.noted(Sum::Handshakes) > self.bytes_max() {
            let Some((key, _)) = self.pending.iter().max_by_key(|(_, pending)| pending.noted) else { break };
            self.end(key, "handshakes take too much memory (unauthenticated-input-total)");
        }
        keep_unauthenticated_total(self.shared.engine);
    }

    /// Removes a handshake.
    fn remove(&mut self, key: usize) -> Pending {
        let pending = self.pending.remove(key);
        self.poller.remove(pending.accepted.socket.as_fd());
        self.shared.engine.clients.note_unlisted(Sum::Handshakes, pending.noted, 0);
        pending
    }

    /// Hands a connection to a worker after its handshake.
    fn hand_over(&mut self, key: usize) {
        let Pending { mut accepted, setup, .. } = self.remove(key);
        if let Socket::Tls(stream) = &accepted.socket {
            accepted.user = stream.certificate().and_then(|certificate| user_of(certificate, setup.user));
        }
        let next = self.shared.handshakes.next_worker.fetch_add(1, Ordering::Relaxed);
        self.shared.hand_to(accepted, None, next % self.shared.threads());
    }

    fn end(&mut self, key: usize, why: &str) {
        let pending = self.remove(key);
        self.leave(&pending.accepted.addr, why);
    }

    /// Logs a failed connection and counts it out.
    fn leave(&self, addr: &str, why: &str) {
        self.shared.note_leaving(true);
        let text = format!("Error accepting a client connection: {why} (addr={addr})");
        log::write(LogLevel::Verbose, &text);
    }

    /// Ends handshakes that have taken too long.
    fn give_up_slow(&mut self) {
        let is_late = |pending: &Pending| pending.began.elapsed() > HANDSHAKE_TIME_MAX;
        let late: Vec<usize> = self.pending.iter().filter(|(_, p)| is_late(p)).map(|(key, _)| key).collect();
        late.into_iter().for_each(|key| self.end(key, "the handshake took too long"));
        while let Some((accepted, _)) = self.waiting.pop_front_if(|(_, since)| since.elapsed() > HANDSHAKE_TIME_MAX) {
            self.leave(&accepted.addr, "other handshakes took too long (unauthenticated-input-total)");
        }
    }

    fn look_at_files(&mut self) {
        let settings = self.shared.settings();
        let interval = settings.tls_auto_reload_interval_s.get().unsigned_abs();
        if self.reloads && interval > 0 && self.looked_at_files.elapsed().as_secs() >= interval {
            self.looked_at_files = Instant::now();
            self.shared.handshakes.reload_changed(settings);
        }
    }
}
