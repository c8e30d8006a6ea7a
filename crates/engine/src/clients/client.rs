//! What every thread may know of a connection: its line in CLIENT LIST, and how to reach it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use resp::reply::Proto;

use crate::access::DEFAULT;
use crate::clients::blocking::Waiter;
use crate::clients::summons::Summons;
use crate::listening::tracking::Tracker;
use crate::listening::tracking::tracking_flag;
use crate::listening::watch::Mark;

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

/// Flags of a connection that other threads look at.
pub mod client_flag {
    /// It shows what MONITOR shows.
    pub const MONITOR: u32 = 1;
    /// It has begun a transaction.
    pub const MULTI: u32 = 2;
    /// It waits in a blocking command.
    pub const BLOCKED: u32 = 4;
    /// It has subscribed to something.
    pub const PUBSUB: u32 = 8;
    /// It is closed once its replies are sent.
    pub const CLOSING: u32 = 16;
    /// It came through a Unix socket.
    pub const UNIX_SOCKET: u32 = 32;
    /// CLIENT NO-EVICT.
    pub const NO_EVICT: u32 = 64;
    /// CLIENT NO-TOUCH.
    pub const NO_TOUCH: u32 = 128;
    /// A key it watches has changed.
    pub const DIRTY: u32 = 256;
    /// CLIENT REPLY OFF.
    pub const REPLY_OFF: u32 = 512;
    /// It was accepted beyond `maxclients`, and has yet to give a command of administration.
    pub const ON_RESERVE: u32 = 1024;
    /// It is a replica of this server.
    pub const REPLICA: u32 = 32768;
    /// CLIENT IMPORT-SOURCE: it copies another server's data here.
    pub const IMPORT_SOURCE: u32 = 65536;
    /// CLIENT CAPA redirect: it follows a server that takes another one's place.
    pub const CAN_REDIRECT: u32 = 16384;
    /// CLIENT TRACKING, shown only: see [`super::Client::tracking_flags`].
    pub const TRACKING: u32 = 2048;
    /// The same with a redirection that is broken.
    pub const TRACKING_BROKEN: u32 = 4096;
    /// The same with BCAST.
    pub const TRACKING_BCAST: u32 = 8192;
}

/// One connection, as all threads see it. The owner writes, with plain stores; others read figures that may be a
/// moment old.
pub struct Client {
    /// Its number; never given twice.
    pub id: u64,
    /// The thread that owns it.
    pub worker: usize,
    /// The peer's address, as CLIENT LIST prints it.
    pub addr: String,
    /// The server's address.
    pub laddr: String,
    /// The descriptor's number.
    pub fd: i32,
    /// When it connected, in milliseconds of Unix time.
    pub created_ms: u64,
    /// When it last sent something.
    pub active_ms: AtomicU64,
    /// The selected database.
    pub db: AtomicU32,
    /// The last command's place in the table; `u32::MAX` before the first.
    pub last_command: AtomicU32,
    /// See [`client_flag`].
    pub flags: AtomicU32,
    /// 2 or 3.
    pub resp: AtomicU8,
    /// Channels, patterns and shard channels subscribed to.
    pub subscriptions: [AtomicU32; 3],
    /// Commands queued by MULTI; -1 outside of a transaction.
    pub queued: AtomicI64,
    /// Bytes the queue takes.
    pub queued_bytes: AtomicU64,
    /// Keys watched.
    pub watched: AtomicU32,
    /// Bytes that these keys and what it has subscribed to take, about.
    pub names_bytes: AtomicU64,
    /// Bytes of requests that wait to be complete.
    pub input_bytes: AtomicU64,
    /// Bytes of the input buffer that are unused.
    pub input_free_bytes: AtomicU64,
    /// Bytes that it takes to remember the arguments of a request that is incomplete.
    pub args_bytes: AtomicU64,
    /// Bytes of memory that replies take which wait to be sent.
    pub output_memory: AtomicU64,
    /// Bytes of disk that they take.
    pub spill_bytes: AtomicU64,
    /// Segments of replies that wait.
    pub output_segments: AtomicU64,
    /// Bytes received and sent so far.
    pub net_bytes: [AtomicU64; 2],
    /// Batches that it has sent, and their commands.
    batches: AtomicU64,
    commands: AtomicU64,
    /// Set when a key that it watches changes; cleared when the watched keys are forgotten.
    pub mark: Mark,
    /// Whether it is to be closed, and what else its thread is to look at.
    pub summons: Summons,
    /// What each sum of [`Clients`] has of it; [`NOT_LISTED`] once it is in no list any more.
    noted: [AtomicU64; SUMS],
    names: Mutex<Names>,
    /// Counts changes of its names and of its user.
    names_version: AtomicU32,
    /// The user it has authenticated as.
    user: Mutex<Option<String>>,
    /// See [`Blocked`].
    blocked: Mutex<Blocked>,
    /// What it has chosen of CLIENT TRACKING, if it has ever cached.
    tracker: OnceLock<Arc<Tracker>>,
}

/// What holds a connection's commands back. Its own thread changes it, but for the answer of another.
#[derive(Default)]
pub enum Blocked {
    /// Nothing.
    #[default]
    Not,
    /// CLIENT PAUSE.
    Paused,
    /// It waits in a blocking command, until this moment in microseconds of Unix time, if its time is limited and its
    /// thread has noted so.
    Waits(Arc<Waiter>, Option<u64>),
    /// That command has been answered; its thread is yet to send the reply.
    Answered(Arc<Waiter>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// A connection that has just been accepted.
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
            summons: Summons::default(),
            noted: Default::default(),
            names: Mutex::default(),
            names_version: AtomicU32::new(0),
            user: Mutex::new(None),
            blocked: Mutex::default(),
            tracker: OnceLock::new(),
        }
    }

    /// What it has chosen of CLIENT TRACKING, if it has ever cached.
    #[must_use]
    pub fn tracker(&self) -> Option<&Arc<Tracker>> {
        self.tracker.get()
    }

    /// The same for one that begins to cache.
    pub fn make_tracker(&self) -> &Arc<Tracker> {
        let tracker = self.tracker.get_or_init(|| Arc::new(Tracker::new(self.id, self.worker)));
        tracker.set(tracking_flag::RESP3, self.proto() == Proto::Resp3);
        tracker
    }

    /// Its flags of CLIENT TRACKING.
    #[must_use]
    pub fn tracking_flags(&self) -> u32 {
        self.tracker().map_or(0, |tracker| tracker.flags())
    }

    /// The names it gave itself.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    /// Changes its names.
    pub fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names());
        self.names_version.fetch_add(1, Ordering::Relaxed);
    }

    /// The user it has authenticated as.
    pub fn user(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.user)
    }

    /// Notes as which user it has authenticated; as none, if it is the default user again.
    pub fn set_user(&self, user: Option<&str>) {
        *self.user() = user.map(str::to_owned);
        self.names_version.fetch_add(1, Ordering::Relaxed);
    }

    /// The name of the user that it is.
    #[must_use]
    pub fn user_name(&self) -> String {
        self.user().clone().unwrap_or_else(|| DEFAULT.to_string())
    }

    /// Changes whenever its names or its user do.
    #[inline]
    pub(crate) fn names_version(&self) -> u32 {
        self.names_version.load(Ordering::Relaxed)
    }

    /// Counts a batch of so many commands, from the thread that owns the connection.
    #[inline]
    pub(crate) fn count_batch(&self, commands: u32) {
        // One writer: a plain load and store do.
        self.batches.store(self.batches() + 1, Ordering::Relaxed);
        self.commands.store(self.commands() + u64::from(commands), Ordering::Relaxed);
    }

    /// Batches that it has sent.
    #[inline]
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Commands that it has sent.
    #[inline]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Has it wait for something, or for nothing any more. What it has waited for is returned.
    pub fn block(&self, blocked: Blocked) -> Blocked {
        let mut now = lock(&self.blocked);
        self.set(client_flag::BLOCKED, matches!(blocked, Blocked::Paused | Blocked::Waits(..)));
        std::mem::replace(&mut now, blocked)
    }

    /// Ends its pause, if it has one.
    pub(crate) fn end_pause(&self) {
        let is_paused = matches!(*lock(&self.blocked), Blocked::Paused);
        if is_paused {
            self.block(Blocked::Not);
        }
    }

    /// Ends its wait in a blocking command, if it has one.
    pub(crate) fn end_wait(&self) -> Option<Arc<Waiter>> {
        match self.block(Blocked::Not) {
            Blocked::Waits(waiter, _) | Blocked::Answered(waiter) => Some(waiter),
            Blocked::Not | Blocked::Paused => None,
        }
    }

    /// Notes that the command it waits in has been answered, by another thread than its own.
    pub(crate) fn note_answer(&self, waiter: &Arc<Waiter>) {
        let mut now = lock(&self.blocked);
        if matches!(&*now, Blocked::Waits(waits, _) if Arc::ptr_eq(waits, waiter)) {
            self.set(client_flag::BLOCKED, false);
            *now = Blocked::Answered(waiter.clone());
        }
    }

    /// The blocking command it waits in.
    #[must_use]
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        match &*lock(&self.blocked) {
            Blocked::Waits(waiter, _) => Some(waiter.clone()),
            _ => None,
        }
    }

    /// When the blocking command it waits in runs out of time.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        match &*lock(&self.blocked) {
            Blocked::Waits(_, deadline_us) => *deadline_us,
            _ => None,
        }
    }

    /// Notes when it does.
    pub fn set_deadline(&self, at_us: u64) {
        if let Blocked::Waits(_, deadline_us) = &mut *lock(&self.blocked) {
            *deadline_us = Some(at_us);
        }
    }

    /// Notes how many bytes of memory, segments and bytes of disk its waiting replies take.
    pub fn note_replies(&self, memory: u64, segments: u64, disk: u64) {
        self.output_memory.store(memory, Ordering::Relaxed);
        self.output_segments.store(segments, Ordering::Relaxed);
        self.spill_bytes.store(disk, Ordering::Relaxed);
    }

    /// What a sum has of it.
    fn noted(&self, sum: Sum) -> u64 {
        self.noted[sum as usize].load(Ordering::Relaxed)
    }

    /// Whether a sum has anything of it.
    #[inline]
    #[must_use]
    pub fn is_noted(&self, sum: Sum) -> bool {
        !matches!(self.noted(sum), 0 | NOT_LISTED)
    }

    /// Whether it has this flag.
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

    /// Whether it came from this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.has(client_flag::UNIX_SOCKET) || self.addr.starts_with("127.") || self.addr.starts_with("[::1]:")
    }

    /// The version of the protocol it speaks.
    #[must_use]
    pub fn proto(&self) -> Proto {
        if self.resp.load(Ordering::Relaxed) == 3 { Proto::Resp3 } else { Proto::Resp2 }
    }
}

/// What is noted of a connection that has been taken out of the list: nothing can be noted of it any more.
const NOT_LISTED: u64 = u64::MAX;

/// Bytes of memory that are summed over all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// All that a connection takes, while `maxmemory-clients` sets a limit.
    Memory,
    /// What the requests of one that has yet to authenticate take while they wait to be complete.
    Unauthenticated,
    /// What connections take that aren't listed yet, since their handshakes for encryption are under way.
    Handshakes,
}

/// How many sums there are.
const SUMS: usize = Sum::Handshakes as usize + 1;

/// All connections, by number.
#[derive(Default)]
pub struct Clients {
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_id: AtomicU64,
    /// The sums of what is noted of those that are listed. Signed: what two threads note of the same connection may
    /// arrive here in the other order.
    noted: [AtomicI64; SUMS],
}

impl Clients {
    /// A number for a new connection.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a connection.
    pub fn add(&self, client: Arc<Client>) {
        // It may have been listed before.
        client.noted.iter().for_each(|noted| noted.store(0, Ordering::Relaxed));
        lock(&self.all).insert(client.id, client);
    }

    /// Removes a connection.
    pub fn remove(&self, id: u64) {
        let removed = lock(&self.all).remove(&id);
        removed.inspect(|client| self.forget(client));
    }

    /// Notes how many bytes of memory a connection takes.
    pub fn note(&self, sum: Sum, client: &Client, bytes: u64) {
        let listed = |noted| (noted != NOT_LISTED).then_some(bytes);
        let noted = &client.noted[sum as usize];
        if let Ok(before) = noted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, listed) {
            self.noted[sum as usize].fetch_add(bytes.wrapping_sub(before) as i64, Ordering::Relaxed);
        }
    }

    /// Notes that a connection which isn't listed takes so many bytes of memory, where it took `before`.
    pub fn note_unlisted(&self, sum: Sum, before: u64, bytes: u64) {
        self.noted[sum as usize].fetch_add(bytes.wrapping_sub(before) as i64, Ordering::Relaxed);
    }

    /// The bytes of memory that have been noted, of all of them together.
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

    /// Takes out of the list those of which most is noted, of those that `may_go`, until less than `limit` is noted of
    /// the others. The caller closes them.
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

    /// One connection.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        lock(&self.all).get(&id).cloned()
    }

    /// All connections, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Client>> {
        lock(&self.all).values().cloned().collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.all).len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
