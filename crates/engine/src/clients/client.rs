//! The part of a connection's state that all threads share: its line in CLIENT LIST, and its address inside the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use resp::reply::Proto;

use crate::clients::blocking::Waiter;
use crate::clients::pending_signals::PendingSignals;
use crate::listening::tracking::Tracker;
use crate::listening::tracking::tracking_flag;
use crate::listening::watch::Mark;
use access::DEFAULT;

/// Time since a command for which a client counts as active, in milliseconds.
const JUST_NOW_MS: u64 = 50;

/// Names that a client gives itself.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub lib_ver: String,
}

/// Flags of a connection that other threads read.
pub mod client_flag {
    /// The connection runs MONITOR.
    pub const MONITOR: u32 = 1;
    /// The connection has begun a transaction.
    pub const MULTI: u32 = 2;
    /// The connection waits in a blocking command.
    pub const BLOCKED: u32 = 4;
    /// The connection has subscriptions.
    pub const PUBSUB: u32 = 8;
    /// The connection closes once its replies are sent.
    pub const CLOSING: u32 = 16;
    /// The connection came through a Unix socket.
    pub const UNIX_SOCKET: u32 = 32;
    /// CLIENT NO-EVICT.
    pub const NO_EVICT: u32 = 64;
    /// CLIENT NO-TOUCH.
    pub const NO_TOUCH: u32 = 128;
    /// A watched key has changed.
    pub const DIRTY: u32 = 256;
    /// CLIENT REPLY OFF.
    pub const REPLY_OFF: u32 = 512;
    /// READONLY.
    pub const READS_REPLICA: u32 = 262_144;
    /// The connection was accepted beyond `maxclients`, and has not given an administration command yet.
    pub const ON_RESERVE: u32 = 1024;
    /// The connection is a replica of this server.
    pub const REPLICA: u32 = 32768;
    /// The connection is the link to the primary.
    pub const PRIMARY: u32 = 131_072;
    /// CLIENT IMPORT-SOURCE: the client imports another server's data.
    pub const IMPORT_SOURCE: u32 = 65536;
    /// CLIENT CAPA redirect: the client follows redirections to another server.
    pub const CAN_REDIRECT: u32 = 16384;
    /// CLIENT MAINT_NOTIFICATIONS: the client hears of maintenance.
    pub const HEARS_MAINTENANCE: u32 = 1 << 20;
    /// The client has connected during a move of clients or after it: to the new primary before its promotion, or to the
    /// old one.
    pub const CAME_BY_MOVE: u32 = 1 << 21;
    /// CLIENT TRACKING, only for display: see [`super::Client::tracking_flags`].
    pub const TRACKING: u32 = 2048;
    /// CLIENT TRACKING with a broken redirection.
    pub const TRACKING_BROKEN: u32 = 4096;
    /// CLIENT TRACKING with BCAST.
    pub const TRACKING_BCAST: u32 = 8192;
}

/// One connection, as all threads see it. The owner writes with plain stores; other threads may read slightly stale
/// figures.
pub struct Client {
    /// The connection's number, never reused.
    pub id: u64,
    /// The worker that owns the connection.
    pub worker: usize,
    /// The peer's address, as CLIENT LIST prints it.
    pub addr: String,
    /// The server's address.
    pub laddr: String,
    /// The file descriptor.
    pub fd: i32,
    /// Time of the connect, in milliseconds of Unix time.
    pub created_ms: u64,
    /// Time of the last input, in milliseconds of Unix time.
    pub active_ms: AtomicU64,
    /// The selected database.
    pub db: AtomicU32,
    /// The last command's index in the table; `u32::MAX` before the first.
    pub last_command: AtomicU32,
    /// Flags of [`client_flag`].
    pub flags: AtomicU32,
    /// Protocol version: 2 or 3.
    pub resp: AtomicU8,
    /// Numbers of subscribed channels, patterns and shard channels.
    pub subscriptions: [AtomicU32; 3],
    /// Number of commands queued by MULTI; -1 outside of a transaction.
    pub queued: AtomicI64,
    /// Size of the queued commands, in bytes.
    pub queued_bytes: AtomicU64,
    /// Number of watched keys.
    pub watched: AtomicU32,
    /// Approximate memory of the watched keys and the subscriptions, in bytes.
    pub names_bytes: AtomicU64,
    /// Size of incomplete requests, in bytes.
    pub input_bytes: AtomicU64,
    /// Unused bytes of the input buffer.
    pub input_free_bytes: AtomicU64,
    /// Memory for the parsed arguments of an incomplete request, in bytes.
    pub args_bytes: AtomicU64,
    /// Memory of unsent replies, in bytes.
    pub output_memory: AtomicU64,
    /// Disk space of unsent replies, in bytes.
    pub spill_bytes: AtomicU64,
    /// Number of segments of unsent replies.
    pub output_segments: AtomicU64,
    /// Bytes received and sent so far.
    pub net_bytes: [AtomicU64; 2],
    /// Numbers of received batches and their commands.
    batches: AtomicU64,
    commands: AtomicU64,
    /// Set when a watched key changes; cleared by UNWATCH and its equivalents.
    pub mark: Mark,
    /// Requests from other threads, for example to close the connection.
    pub pending_signals: PendingSignals,
    /// The connection's share of each sum of [`Clients`]; [`NOT_LISTED`] once it is removed from the list.
    noted: [AtomicU64; SUMS],
    names: Mutex<Names>,
    /// Number of changes of the names and of the user.
    names_version: AtomicU32,
    /// The authenticated user.
    user: Mutex<Option<String>>,
    /// The reason that holds its commands back.
    blocked: Mutex<Blocked>,
    /// The state of CLIENT TRACKING, once the client has used it.
    tracker: OnceLock<Arc<Tracker>>,
}

/// The reason that holds a connection's commands back. The owning worker changes it, except when another thread
/// answers.
#[derive(Default)]
pub enum Blocked {
    /// Commands may run.
    #[default]
    Not,
    /// CLIENT PAUSE.
    Paused,
    /// The connection waits in a blocking command. The second field is the deadline in microseconds of Unix time, if
    /// there is one and the worker has set it.
    Waits(Arc<Waiter>, Option<u64>),
    /// The blocking command is answered; the worker has not sent the reply yet.
    Answered(Arc<Waiter>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave this data inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Creates the state of a connection that has just been accepted.
    #[must_use]
    pub fn new(id: u64, worker: usize, addr: String, laddr: String, fd: i32, now_ms: u64, flags: u32) -> Client {
        Client {
            id,
            worker,
            addr,
            laddr,
            fd,
            created_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            db: AtomicU32::new(0),
            last_command: AtomicU32::new(u32::MAX),
            flags: AtomicU32::new(flags),
            resp: AtomicU8::new(2),
            subscriptions: Default::default(),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicU64::new(0),
            watched: AtomicU32::new(0),
            names_bytes: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            input_free_bytes: AtomicU64::new(0),
            args_bytes: AtomicU64::new(0),
            output_memory: AtomicU64::new(0),
            spill_bytes: AtomicU64::new(0),
            output_segments: AtomicU64::new(0),
            net_bytes: Default::default(),
            batches: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            mark: Mark::default(),
            pending_signals: PendingSignals::default(),
            noted: Default::default(),
            names: Mutex::default(),
            names_version: AtomicU32::new(0),
            user: Mutex::new(None),
            blocked: Mutex::default(),
            tracker: OnceLock::new(),
        }
    }

    /// Returns true if the client hears of maintenance and has sent a command just now.
    #[must_use]
    pub fn is_moving_late(&self, now_ms: u64) -> bool {
        self.has(client_flag::HEARS_MAINTENANCE)
            && self.waiter().is_none()
            && now_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed)) < JUST_NOW_MS
    }

    /// Returns the state of CLIENT TRACKING, if the client has ever used it.
    #[must_use]
    pub fn tracker(&self) -> Option<&Arc<Tracker>> {
        self.tracker.get()
    }

    /// Returns the state of CLIENT TRACKING, and creates it if needed.
    pub fn make_tracker(&self) -> &Arc<Tracker> {
        let tracker = self.tracker.get_or_init(|| Arc::new(Tracker::new(self.id, self.worker)));
        tracker.set(tracking_flag::RESP3, self.proto() == Proto::Resp3);
        tracker
    }

    /// Returns the flags of CLIENT TRACKING.
    #[must_use]
    pub fn tracking_flags(&self) -> u32 {
        self.tracker().map_or(0, |tracker| tracker.flags())
    }

    /// Returns the names that the client gave itself.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Changes the names.
    pub fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names());
        self.names_version.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the authenticated user.
    pub fn user(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.user)
    }

    /// Sets the authenticated user; `None` means the default user.
    pub fn set_user(&self, user: Option<&str>) {
        *self.user() = user.map(str::to_owned);
        self.names_version.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the user's name.
    #[must_use]
    pub fn user_name(&self) -> String {
        self.user().clone().unwrap_or_else(|| DEFAULT.to_string())
    }

    /// Returns true if this is the user's name.
    #[must_use]
    pub fn is_user(&self, name: &str) -> bool {
        self.user().as_deref().unwrap_or(DEFAULT) == name
    }

    /// Returns a version that grows with each change of the names or the user.
    #[inline]
    pub(crate) fn names_version(&self) -> u32 {
        self.names_version.load(Ordering::Relaxed)
    }

    /// Counts a batch of `commands` commands. Only the owning worker calls this.
    #[inline]
    pub(crate) fn count_batch(&self, commands: u32) {
        // There is one writer, so a plain load and store suffice.
        self.batches.store(self.batches() + 1, Ordering::Relaxed);
        self.commands.store(self.commands() + u64::from(commands), Ordering::Relaxed);
    }

    /// Returns the number of received batches.
    #[inline]
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Returns the number of received commands.
    #[inline]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Sets the reason that holds its commands back, and returns the previous one.
    pub fn block(&self, blocked: Blocked) -> Blocked {
        let mut now = lock(&self.blocked);
        self.set(client_flag::BLOCKED, matches!(blocked, Blocked::Paused | Blocked::Waits(..)));
        std::mem::replace(&mut now, blocked)
    }

    /// Returns the memory of the command that it waits in, in bytes; 0 if it does not wait.
    pub(crate) fn waiter_bytes(&self) -> u64 {
        match &*lock(&self.blocked) {
            Blocked::Waits(waiter, _) | Blocked::Answered(waiter) => waiter.memory_bytes(),
            Blocked::Not | Blocked::Paused => 0,
        }
    }

    /// Ends the pause, if there is one.
    pub(crate) fn end_pause(&self) {
        let is_paused = matches!(*lock(&self.blocked), Blocked::Paused);
        if is_paused {
            self.block(Blocked::Not);
        }
    }

    /// Ends the wait in a blocking command, if there is one.
    pub(crate) fn end_wait(&self) -> Option<Arc<Waiter>> {
        match self.block(Blocked::Not) {
            Blocked::Waits(waiter, _) | Blocked::Answered(waiter) => Some(waiter),
            Blocked::Not | Blocked::Paused => None,
        }
    }

    /// Reports that another thread has answered the blocking command.
    pub(crate) fn note_answer(&self, waiter: &Arc<Waiter>) {
        let mut now = lock(&self.blocked);
        if matches!(&*now, Blocked::Waits(waits, _) if Arc::ptr_eq(waits, waiter)) {
            self.set(client_flag::BLOCKED, false);
            *now = Blocked::Answered(waiter.clone());
        }
    }

    /// Returns the waiter of the blocking command.
    #[must_use]
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        match &*lock(&self.blocked) {
            Blocked::Waits(waiter, _) => Some(waiter.clone()),
            _ => None,
        }
    }

    /// Returns the deadline of the blocking command.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        match &*lock(&self.blocked) {
            Blocked::Waits(_, deadline_us) => *deadline_us,
            _ => None,
        }
    }

    /// Sets the deadline of the blocking command.
    pub fn set_deadline(&self, at_us: u64) {
        if let Blocked::Waits(_, deadline_us) = &mut *lock(&self.blocked) {
            *deadline_us = Some(at_us);
        }
    }

    /// Sets the memory, the number of segments and the disk space of unsent replies.
    pub fn note_replies(&self, memory: u64, segments: u64, disk: u64) {
        self.output_memory.store(memory, Ordering::Relaxed);
        self.output_segments.store(segments, Ordering::Relaxed);
        self.spill_bytes.store(disk, Ordering::Relaxed);
    }

    /// Returns the connection's share of a sum.
    fn noted(&self, sum: Sum) -> u64 {
        self.noted[sum as usize].load(Ordering::Relaxed)
    }

    /// Returns true if the connection has a share of this sum.
    #[inline]
    #[must_use]
    pub fn is_noted(&self, sum: Sum) -> bool {
        !matches!(self.noted(sum), 0 | NOT_LISTED)
    }

    /// Returns true if the connection has this flag.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// Returns true if the client runs on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.has(client_flag::UNIX_SOCKET) || self.addr.starts_with("127.") || self.addr.starts_with("[::1]:")
    }

    /// Returns the protocol version.
    #[must_use]
    pub fn proto(&self) -> Proto {
        if self.resp.load(Ordering::Relaxed) == 3 { Proto::Resp3 } else { Proto::Resp2 }
    }
}

/// Share of a connection that was removed from the list; later updates are ignored.
const NOT_LISTED: u64 = u64::MAX;

/// Memory sums over all connections, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// Total memory of the connections, while `maxmemory-clients` sets a limit.
    Memory,
    /// Incomplete requests of connections that have not authenticated.
    Unauthenticated,
    /// Memory of connections that aren't listed yet because their TLS handshakes are in progress.
    Handshakes,
}

/// Number of sums.
const SUMS: usize = Sum::Handshakes as usize + 1;

/// All connections, by number.
#[derive(Default)]
pub struct Clients {
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicU64,
    /// Sums over the listed connections. The values are signed because updates by two threads for the same connection
    /// can arrive in reverse order.
    noted: [AtomicI64; SUMS],
}

impl Clients {
    /// Returns a number for a new connection.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a connection.
    pub fn add(&self, client: Arc<Client>) {
        // The connection may have been listed before.
        client.noted.iter().for_each(|noted| noted.store(0, Ordering::Relaxed));
        lock(&self.all).insert(client.id, client);
    }

    /// Removes a connection.
    pub fn remove(&self, id: u64) {
        let removed = lock(&self.all).remove(&id);
        removed.inspect(|client| self.forget(client));
    }

    /// Sets a connection's share of a sum.
    pub fn note(&self, sum: Sum, client: &Client, bytes: u64) {
        let listed = |noted| (noted != NOT_LISTED).then_some(bytes);
        let noted = &client.noted[sum as usize];
        if let Ok(before) = noted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, listed) {
            self.noted[sum as usize].fetch_add(bytes.wrapping_sub(before) as i64, Ordering::Relaxed);
        }
    }

    /// Changes the share of an unlisted connection from `before` to `bytes`.
    pub fn note_unlisted(&self, sum: Sum, before: u64, bytes: u64) {
        self.noted[sum as usize].fetch_add(bytes.wrapping_sub(before) as i64, Ordering::Relaxed);
    }

    /// Returns a sum over all connections.
    #[must_use]
    pub fn noted(&self, sum: Sum) -> u64 {
        self.noted[sum as usize].load(Ordering::Relaxed).max(0) as u64
    }

    fn forget(&self, client: &Client) {
        for (noted, sum) in client.noted.iter().zip(&self.noted) {
            let before = noted.swap(NOT_LISTED, Ordering::Relaxed);
            if before != NOT_LISTED {
                sum.fetch_sub(before as i64, Ordering::Relaxed);
            }
        }
    }

    /// Removes the connections with the largest shares, among those for which `may_go` is true, until the rest is below
    /// `limit`. The caller closes them.
    #[must_use]
    pub fn remove_largest(&self, sum: Sum, limit: u64, may_go: impl Fn(&Client) -> bool) -> Vec<Arc<Client>> {
        let mut all = lock(&self.all);
        let mut largest: Vec<(u64, u64)> = all.values().filter(|c| may_go(c)).map(|c| (c.noted(sum), c.id)).collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let mut removed = Vec::new();
        for (_, id) in largest {
            if self.noted(sum) < limit {
                break;
            }
            removed.extend(all.remove(&id).inspect(|client| self.forget(client)));
        }
        removed
    }

    /// Returns the connection with this number.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        lock(&self.all).get(&id).cloned()
    }

    /// Returns all connections, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.all).values().cloned().collect()
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.all).len()
    }

    /// Returns true if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
