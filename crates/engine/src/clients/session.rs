//! The part of a connection's state that only its own worker sees.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use journal::order::Position;
use resp::reply::{Output, Proto};
use resp::request::{Framer, OwnedArgs};
use store::hash::KeyHash;

use crate::clients::batch_times::UnansweredBatches;
use crate::clients::blocking::Awaited;
use crate::clients::client::{Client, client_flag};
use crate::clients::forwarding::Forwarding;
use crate::clients::round_trips::RoundTrips;
use crate::inbox::Push;
use crate::listening::tracking::tracking_flag;
use crate::listening::watch::{DbKey, Mark};
use crate::pipelines::Tally;
use crate::replication::followed::FollowedStream;
use crate::replication::replicas::{ReplicaIntroduction, Wanted};
use crate::slots::jobs::SlotJob;
use crate::slow_path::{SessionFlag, SessionFlags};
use access::{Permissions, User};
use commands::table::Command;

/// A command that waits for EXEC.
pub struct Queued {
    /// The command.
    pub command: &'static Command,
    /// Its arguments.
    pub args: OwnedArgs,
    /// Its keys, hashed.
    pub keys: Vec<KeyRef>,
    /// The command's position in the connection's pipeline; 0 without one.
    pub position: u64,
}

/// A transaction that has begun.
#[derive(Default)]
pub struct Multi {
    /// The queued commands.
    pub queue: Vec<Queued>,
    /// Total size of the arguments, in bytes.
    pub bytes: usize,
    /// True if a command was refused; EXEC then refuses the transaction.
    pub aborted: bool,
    /// The database that the queued commands select, if any of them selects one.
    pub database: Option<usize>,
}

/// A key that the session watches.
pub struct WatchedKey {
    /// Its shard.
    pub shard: usize,
    /// Its hash.
    pub hash: KeyHash,
    /// True if the key existed at WATCH. The key then counts as changed once it is missing, even if it expired or its
    /// database was emptied.
    pub existed: bool,
}

/// The replies that the client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    /// All of them.
    #[default]
    On,
    /// No replies.
    Off,
    /// CLIENT REPLY SKIP has just been given: all replies except the next.
    SkipNext,
    /// The current reply is skipped.
    Skip,
}

/// The subscriptions of a connection.
#[derive(Default)]
pub struct Subscriptions {
    /// Channels.
    pub channels: HashSet<Box<[u8]>>,
    /// Patterns.
    pub patterns: HashSet<Box<[u8]>>,
    /// Shard channels.
    pub shard_channels: HashSet<Box<[u8]>>,
}

impl Subscriptions {
    /// Returns the number of channels and patterns, as in SUBSCRIBE's reply.
    #[must_use]
    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns true if there are no subscriptions of any kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() + self.shard_channels.len() == 0
    }
}

/// See the module's documentation.
pub struct Session {
    /// The state that all threads see.
    pub client: Arc<Client>,
    /// The selected database.
    pub database: usize,
    /// The protocol version.
    pub proto: Proto,
    /// The open transaction.
    pub multi: Option<Box<Multi>>,
    /// Keys watched for the next transaction.
    pub watched: HashMap<DbKey, WatchedKey>,
    /// Set when a watched key changes.
    pub mark: Mark,
    /// The subscriptions.
    pub subscriptions: Subscriptions,
    /// The replies that the client wants.
    reply_mode: ReplyMode,
    /// The reasons that keep its commands off the fast path. They follow from other fields and are set along with them.
    slow_path: SessionFlags,
    /// The user; absent for the server's own sessions, which may do everything.
    user: Option<Arc<User>>,
    /// The permissions of the user, unless they are unrestricted.
    permissions: Option<Arc<Permissions>>,
    /// True if its accesses don't count for eviction (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// True if the connection closes once its replies are sent.
    pub closing: bool,
    /// Pushes caused by its own commands; they follow the command's reply, so that they don't split it.
    pub pushes: Output,
    /// Number of the latest push from other connections that it received ahead of order.
    pub pushes_seen: u64,
    /// The worker with the full inbox, if the latest command could not publish to it.
    pub(crate) overfilled: Option<usize>,
    /// True while EXEC runs its commands; pushes wait until its reply is complete.
    pub in_exec: bool,
    /// True if the present transaction or script has given the cluster's bus a command: see [`crate::slots::Slots::hold_bus`].
    pub(crate) holds_bus: bool,
    /// The count for the pipeline, which outlives the connection.
    tally: Option<Box<Tally>>,
    /// The replica's description of itself.
    pub replica: Option<Box<ReplicaIntroduction>>,
    /// The replication stream that it requests. Once its replies are sent, the connection moves to the thread that
    /// serves replicas.
    pub departs: Option<Wanted>,
    /// The import that the connection belongs to from now on. Once its replies are sent, the connection moves to the thread of the
    /// import.
    pub imports: Option<Arc<SlotJob>>,
    /// True if an import on this connection is to report its progress to the source.
    pub(crate) reports_import: bool,
    /// The primary's stream, for a session that applies it.
    pub(crate) followed: Option<Box<FollowedStream>>,
    /// Position of the last recorded unit that it committed.
    pub wrote: Position,
    /// The event that its present command waits for, other than keys.
    pub awaited: Option<Awaited>,
    /// The parse state of an incomplete request.
    pub framer: Framer,
    /// The state that tells round trips from pipelines.
    pub round_trips: RoundTrips,
    /// The times of its batches that are not answered yet.
    pub batches: UnansweredBatches,
    /// True if its present command is ASKING.
    has_asked: bool,
    /// Its commands at other nodes of the cluster.
    pub forwarding: Forwarding,
}

/// Flags that the planning has checked already.
const PLANNED: u32 = SessionFlag::Restricted as u32 | SessionFlag::Clustered as u32 | SessionFlag::ReadsReplica as u32;

impl Session {
    /// Creates the state of a new connection.
    #[must_use]
    pub fn new(client: Arc<Client>, authenticated: bool) -> Session {
        let mark = client.mark.clone();
        let mut slow_path = SessionFlags::default();
        slow_path.set(SessionFlag::Unauthenticated, !authenticated);
        slow_path.set(SessionFlag::Reserved, client.has(client_flag::ON_RESERVE));
        slow_path.set(SessionFlag::Clustered, store::hash::hashes_by_slot());
        Session {
            client,
            database: 0,
            proto: Proto::Resp2,
            multi: None,
            watched: HashMap::new(),
            mark,
            subscriptions: Subscriptions::default(),
            reply_mode: ReplyMode::On,
            slow_path,
            user: None,
            permissions: None,
            no_touch: false,
            closing: false,
            pushes: Output::default(),
            pushes_seen: 0,
            overfilled: None,
            in_exec: false,
            holds_bus: false,
            tally: None,
            replica: None,
            departs: None,
            imports: None,
            reports_import: false,
            followed: None,
            wrote: 0,
            awaited: None,
            framer: Framer::default(),
            round_trips: RoundTrips::default(),
            batches: UnansweredBatches::default(),
            has_asked: false,
            forwarding: Forwarding::default(),
        }
    }

    /// Returns true if the client may receive pushes.
    #[inline]
    #[must_use]
    pub fn gets_pushes(&self) -> bool {
        self.is_monitoring() || !self.subscriptions.is_empty() || self.caches()
    }

    /// Returns true if a received push should still be sent. A RESP2 client would mistake a push for a reply unless it
    /// has subscribed, and the sending thread may not know yet that the client has unsubscribed.
    #[must_use]
    pub fn awaits(&self, push: &Push) -> bool {
        let is_in_place =
            self.proto == Proto::Resp3 || self.is_monitoring() || !self.subscriptions.is_empty() || push.may_be_dropped;
        is_in_place && push.number > self.pushes_seen && push.except != self.client.id
    }

    /// Returns true if the session applies a primary's stream.
    pub(crate) fn applies_stream(&self) -> bool {
        self.followed.is_some()
    }

    /// Selects a database.
    pub fn select(&mut self, database: usize) {
        self.database = database;
        // Access rules can differ between databases.
        self.slow_path.set(SessionFlag::Replan, self.permissions.is_some());
        self.client.db.store(database as u32, Ordering::Relaxed);
    }

    /// Returns the database of the next command, whether it runs now or in EXEC.
    pub(crate) fn database_ahead(&self) -> usize {
        self.multi.as_ref().and_then(|multi| multi.database).unwrap_or(self.database)
    }

    /// Sets the protocol version.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.client.resp.store(if proto == Proto::Resp3 { 3 } else { 2 }, Ordering::Relaxed);
        if let Some(tracker) = self.client.tracker() {
            tracker.set(tracking_flag::RESP3, proto == Proto::Resp3);
        }
    }

    /// Returns true if only subscription commands are allowed.
    #[must_use]
    pub fn is_subscriber(&self) -> bool {
        self.proto == Proto::Resp2 && !self.subscriptions.is_empty()
    }

    /// Returns true if no session state needs a check before a command runs: the fast path.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.slow_path.are_only(PLANNED)
    }

    /// Returns true if no session state needs a check other than the pipeline count.
    #[inline]
    #[must_use]
    pub fn is_plain_but_counted(&self) -> bool {
        self.slow_path.are_only(SessionFlag::Counts as u32 | PLANNED)
    }

    /// Returns true if the client may run commands although there is a password.
    #[inline]
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        !self.slow_path.has(SessionFlag::Unauthenticated)
    }

    /// Sets the result of [`Session::is_authenticated`].
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.slow_path.set(SessionFlag::Unauthenticated, !is_authenticated);
    }

    /// Returns true if the connection was accepted beyond `maxclients`, only for administration commands.
    #[must_use]
    pub fn is_on_reserve(&self) -> bool {
        self.slow_path.has(SessionFlag::Reserved)
    }

    /// Makes it an ordinary connection.
    pub fn leave_reserve(&mut self) {
        self.slow_path.set(SessionFlag::Reserved, false);
        self.client.set(client_flag::ON_RESERVE, false);
    }

    /// Returns true if its commands must be checked during planning: it has not authenticated, its user is restricted,
    /// the server is a node of a cluster, or one of these has just changed.
    #[inline]
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        use SessionFlag::{Clustered, Replan, Restricted, Unauthenticated};
        self.slow_path.any_of(Unauthenticated as u32 | Restricted as u32 | Replan as u32 | Clustered as u32)
    }

    /// Returns true if the following commands must be planned again, after a command that changed the permissions.
    /// RESET ends the authentication.
    #[inline]
    #[must_use]
    pub fn must_replan(&self) -> bool {
        self.slow_path.any_of(SessionFlag::Unauthenticated as u32 | SessionFlag::Replan as u32)
    }

    /// Returns true if its user or the user's permissions have changed since the commands were planned.
    #[must_use]
    pub(crate) fn has_changed(&self) -> bool {
        self.slow_path.has(SessionFlag::Replan)
    }

    /// Makes the planning of its further commands start again.
    pub(crate) fn replan(&mut self) {
        self.slow_path.set(SessionFlag::Replan, true);
    }

    /// Returns true if the server is a node of a cluster.
    #[inline]
    #[must_use]
    pub fn is_clustered(&self) -> bool {
        self.slow_path.has(SessionFlag::Clustered)
    }

    /// Returns true in READONLY mode.
    #[inline]
    #[must_use]
    pub fn reads_replica(&self) -> bool {
        self.slow_path.has(SessionFlag::ReadsReplica)
    }

    /// Enters or leaves READONLY mode.
    pub fn set_reads_replica(&mut self, reads: bool) {
        self.slow_path.set(SessionFlag::ReadsReplica, reads);
        self.client.set(client_flag::READS_REPLICA, reads);
        self.replan();
    }

    /// Returns true if ASKING applies to the next command, or to the transaction.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.slow_path.has(SessionFlag::Asking)
    }

    /// Sets or clears the effect of ASKING.
    pub fn set_asking(&mut self, is_asking: bool) {
        self.has_asked = is_asking;
        self.slow_path.set(SessionFlag::Asking, is_asking);
    }

    /// Called at the beginning of a command. Returns whether ASKING applies to it.
    pub(crate) fn begin_asking(&mut self) -> bool {
        self.has_asked = false;
        self.is_asking()
    }

    /// Called at the end of a command that ASKING applied to. The effect ends, unless the command was another ASKING or
    /// began a transaction.
    pub(crate) fn end_asking(&mut self) {
        if !self.has_asked && self.multi.is_none() {
            self.set_asking(false);
        }
    }

    /// Returns true if the next commands must run after commands that other nodes run.
    pub(crate) fn awaits_node(&self) -> bool {
        self.slow_path.has(SessionFlag::AwaitsNode)
    }

    /// Sets the result of [`Session::awaits_node`].
    pub(crate) fn set_awaits_node(&mut self, awaits: bool) {
        self.slow_path.set(SessionFlag::AwaitsNode, awaits);
    }

    /// Notes that all replies of other nodes have arrived.
    pub fn end_forwarding(&mut self) {
        self.forwarding.end();
        self.set_awaits_node(false);
    }

    /// Starts a plan under the present permissions.
    pub(crate) fn begin_plan(&mut self) {
        self.slow_path.set(SessionFlag::Replan, false);
    }

    /// Returns the user; `None` for the server's own sessions.
    #[must_use]
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Returns the permissions of the user, unless they are unrestricted.
    #[inline]
    #[must_use]
    pub(crate) fn permissions(&self) -> Option<&Arc<Permissions>> {
        self.permissions.as_ref()
    }

    /// Sets the user, without authenticating it.
    pub(crate) fn become_user(&mut self, user: Arc<User>) {
        self.user = Some(user);
        self.follow_user();
    }

    /// Takes over the present permissions of the user.
    pub(crate) fn follow_user(&mut self) {
        let permissions = self.user.as_ref().map(|user| user.permissions());
        self.permissions = permissions.filter(|permissions| !permissions.is_unrestricted());
        self.slow_path.set(SessionFlag::Restricted, self.permissions.is_some());
        self.slow_path.set(SessionFlag::Replan, true);
    }

    /// Takes over the permissions if another thread has signalled a change.
    pub(crate) fn handle_signals(&mut self) {
        if self.client.pending_signals.any() && self.client.pending_signals.take_user_changed() {
            self.follow_user();
        }
    }

    /// Returns true if the client runs MONITOR.
    #[inline]
    #[must_use]
    pub fn is_monitoring(&self) -> bool {
        self.slow_path.has(SessionFlag::Monitors)
    }

    /// Sets the result of [`Session::is_monitoring`].
    pub fn set_monitoring(&mut self, monitors: bool) {
        self.slow_path.set(SessionFlag::Monitors, monitors);
    }

    /// Returns true if the client caches the values that it reads.
    #[inline]
    #[must_use]
    pub fn caches(&self) -> bool {
        self.slow_path.has(SessionFlag::Caches)
    }

    /// Sets the result of [`Session::caches`].
    pub fn set_caches(&mut self, caches: bool) {
        self.slow_path.set(SessionFlag::Caches, caches);
    }

    /// Returns the replies that the client wants.
    #[inline]
    #[must_use]
    pub fn reply_mode(&self) -> ReplyMode {
        self.reply_mode
    }

    /// Sets the replies that the client wants.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        self.reply_mode = mode;
        self.slow_path.set(SessionFlag::Silenced, mode != ReplyMode::On);
    }

    /// Returns the count for its pipeline.
    #[inline]
    #[must_use]
    pub fn tally(&self) -> Option<&Tally> {
        self.tally.as_deref()
    }

    /// Returns the count for its pipeline, to change it.
    #[inline]
    pub(crate) fn tally_mut(&mut self) -> Option<&mut Tally> {
        self.tally.as_deref_mut()
    }

    /// Begins or ends counting for a pipeline, and returns the previous count.
    pub fn set_tally(&mut self, tally: Option<Box<Tally>>) -> Option<Box<Tally>> {
        self.slow_path.set(SessionFlag::Counts, tally.is_some());
        self.slow_path.set(SessionFlag::Skips, false);
        std::mem::replace(&mut self.tally, tally)
    }

    /// Returns true if a failure has stopped the pipeline, so that commands are skipped.
    #[inline]
    pub(crate) fn skips(&self) -> bool {
        self.slow_path.has(SessionFlag::Skips)
    }

    /// Sets the result of [`Session::skips`].
    #[inline]
    pub(crate) fn set_skips(&mut self, skips: bool) {
        self.slow_path.set(SessionFlag::Skips, skips);
    }

    /// Begins or ends a transaction.
    pub fn set_multi(&mut self, multi: Option<Box<Multi>>) {
        self.client.set(client_flag::MULTI, multi.is_some());
        let (queued, bytes) = multi.as_ref().map_or((-1, 0), |m| (m.queue.len() as i64, m.bytes));
        self.client.queued.store(queued, Ordering::Relaxed);
        self.client.queued_bytes.store(bytes as u64, Ordering::Relaxed);
        self.slow_path.set(SessionFlag::Queues, multi.is_some());
        self.multi = multi;
    }

    /// Publishes the numbers of subscriptions to other threads. Must follow every change of them.
    pub fn publish_subscriptions(&mut self) {
        let s = &self.subscriptions;
        let counts = [s.channels.len(), s.patterns.len(), s.shard_channels.len()];
        for (shown, count) in self.client.subscriptions.iter().zip(counts) {
            shown.store(count as u32, Ordering::Relaxed);
        }
        self.client.set(client_flag::PUBSUB, !s.is_empty());
        self.slow_path.set(SessionFlag::Subscribed, !self.subscriptions.is_empty());
    }
}
