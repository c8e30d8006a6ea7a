//! A connection's state, as its own thread has it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use journal::order::Position;
use resp::reply::{Output, Proto};
use resp::request::{Framer, OwnedArgs};
use store::hash::KeyHash;

use crate::access::{Permissions, User};
use crate::clients::blocking::Awaited;
use crate::clients::client::{Client, client_flag};
use crate::clients::trips::Trips;
use crate::command_table::Command;
use crate::inbox::Push;
use crate::listening::tracking::tracking_flag;
use crate::listening::watch::{DbKey, Mark};
use crate::pipelines::Tally;
use crate::reasons::{SessionReason, SessionReasons};
use crate::replication::followed::FollowedStream;
use crate::replication::replicas::{ReplicaIntroduction, Wanted};

/// A command that waits for EXEC.
pub struct Queued {
    /// The command.
    pub command: &'static Command,
    /// Its arguments.
    pub args: OwnedArgs,
    /// Its keys, hashed.
    pub keys: Vec<KeyRef>,
    /// Its place among the commands of the pipeline that the connection counts for; 0 if it counts for none.
    pub position: u64,
}

/// A transaction that has begun.
#[derive(Default)]
pub struct Multi {
    /// The commands so far.
    pub queue: Vec<Queued>,
    /// Bytes of their arguments.
    pub bytes: usize,
    /// Whether one was refused, so that EXEC will refuse all.
    pub aborted: bool,
    /// The database that the commands so far select, if any of them selects one.
    pub database: Option<usize>,
}

/// A key that the session watches.
pub struct WatchedKey {
    /// Its shard.
    pub shard: usize,
    /// Its hash.
    pub hash: KeyHash,
    /// Whether it existed when WATCH was given: then it has changed if it doesn't any more, be it because its time has
    /// come or because its database was emptied.
    pub existed: bool,
}

/// Which replies the client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    /// All of them.
    #[default]
    On,
    /// None.
    Off,
    /// CLIENT REPLY SKIP has just been given: all after the next.
    SkipNext,
    /// This one is skipped.
    Skip,
}

/// What a connection has subscribed to.
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
    /// How many channels and patterns: what SUBSCRIBE's reply counts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether there are none of any kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() + self.shard_channels.len() == 0
    }
}

/// See the module's documentation.
pub struct Session {
    /// What other threads see.
    pub client: Arc<Client>,
    /// The selected database.
    pub database: usize,
    /// The version of the protocol.
    pub proto: Proto,
    /// The transaction that has begun.
    pub multi: Option<Box<Multi>>,
    /// Keys watched for the next transaction.
    pub watched: HashMap<DbKey, WatchedKey>,
    /// Set when one of them changes.
    pub mark: Mark,
    /// What it has subscribed to.
    pub subscriptions: Subscriptions,
    /// Which replies it wants.
    reply_mode: ReplyMode,
    /// Why its commands can't take the shortest way: what follows from other fields here, kept with them.
    reasons: SessionReasons,
    /// The user that it is; none of what the server runs itself, which may do everything.
    user: Option<Arc<User>>,
    /// What that user may do, unless it is everything.
    permissions: Option<Arc<Permissions>>,
    /// Whether its accesses count for eviction (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Whether the connection is to be closed once its replies are sent.
    pub closing: bool,
    /// Pushes that its own commands caused; they follow the command's reply, so that they don't tear it.
    pub pushes: Output,
    /// The number of the latest push from other connections that it has been shown ahead of the others.
    pub pushes_seen: u64,
    /// The thread that had no more room in its inbox for what the latest command published, if one had not.
    pub(crate) overfilled: Option<usize>,
    /// Whether EXEC is running its commands: pushes then wait until its reply is complete.
    pub in_exec: bool,
    /// What it counts for a pipeline that survives it.
    tally: Option<Box<Tally>>,
    /// What it says of itself as a replica.
    pub replica: Option<Box<ReplicaIntroduction>>,
    /// What it asks for as one: it leaves its thread, once its replies are sent, for the one that serves replicas.
    pub departs: Option<Wanted>,
    /// The primary's stream that it applies, if it is no client's.
    pub(crate) followed: Option<Box<FollowedStream>>,
    /// The last unit that it has committed, as far as units were recorded.
    pub wrote: Position,
    /// What its present command waits for, other than keys.
    pub awaited: Option<Awaited>,
    /// What is known of an incomplete request.
    pub framer: Framer,
    /// What tells its round trips from pipelines.
    pub trips: Trips,
}

impl Session {
    /// The state of a new connection.
    #[must_use]
    pub fn new(client: Arc<Client>, authenticated: bool) -> Session {
        let mark = client.mark.clone();
        let mut reasons = SessionReasons::default();
        reasons.set(SessionReason::Unauthenticated, !authenticated);
        reasons.set(SessionReason::Reserved, client.has(client_flag::ON_RESERVE));
        Session {
            client,
            database: 0,
            proto: Proto::Resp2,
            multi: None,
            watched: HashMap::new(),
            mark,
            subscriptions: Subscriptions::default(),
            reply_mode: ReplyMode::On,
            reasons,
            user: None,
            permissions: None,
            no_touch: false,
            closing: false,
            pushes: Output::default(),
            pushes_seen: 0,
            overfilled: None,
            in_exec: false,
            tally: None,
            replica: None,
            departs: None,
            followed: None,
            wrote: 0,
            awaited: None,
            framer: Framer::default(),
            trips: Trips::default(),
        }
    }

    /// Whether it may be sent pushes.
    #[inline]
    #[must_use]
    pub fn gets_pushes(&self) -> bool {
        self.is_monitoring() || !self.subscriptions.is_empty() || self.caches()
    }

    /// Whether a push that has arrived is still to be shown. In RESP2 it would be taken for a reply, unless the client has
    /// asked to be sent something: another thread may not have known yet that it has stopped that.
    #[must_use]
    pub fn awaits(&self, push: &Push) -> bool {
        let is_in_place =
            self.proto == Proto::Resp3 || self.is_monitoring() || !self.subscriptions.is_empty() || push.may_be_dropped;
        is_in_place && push.number > self.pushes_seen && push.except != self.client.id
    }

    /// Whether it is no client's, but applies a primary's stream.
    pub(crate) fn applies_stream(&self) -> bool {
        self.followed.is_some()
    }

    /// Selects a database.
    pub fn select(&mut self, database: usize) {
        self.database = database;
        // Rules may tell databases apart.
        self.reasons.set(SessionReason::Replan, self.permissions.is_some());
        self.client.db.store(database as u32, Ordering::Relaxed);
    }

    /// The database that the next command will run in, be it at once or when EXEC runs what is queued.
    pub(crate) fn database_ahead(&self) -> usize {
        self.multi.as_ref().and_then(|multi| multi.database).unwrap_or(self.database)
    }

    /// Changes the version of the protocol.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.client.resp.store(if proto == Proto::Resp3 { 3 } else { 2 }, Ordering::Relaxed);
        if let Some(tracker) = self.client.tracker() {
            tracker.set(tracking_flag::RESP3, proto == Proto::Resp3);
        }
    }

    /// Whether only commands about subscriptions are allowed.
    #[must_use]
    pub fn is_subscriber(&self) -> bool {
        self.proto == Proto::Resp2 && !self.subscriptions.is_empty()
    }

    /// Whether nothing about the session needs a look before a command runs: the case worth being quick about.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.reasons.are_only(SessionReason::Restricted as u32)
    }

    /// The same, but for what it counts for a pipeline.
    #[inline]
    #[must_use]
    pub fn is_plain_but_counted(&self) -> bool {
        self.reasons.are_only(SessionReason::Counts as u32 | SessionReason::Restricted as u32)
    }

    /// Whether the client may give commands, though there is a password.
    #[inline]
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        !self.reasons.has(SessionReason::Unauthenticated)
    }

    /// Notes whether it may.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.reasons.set(SessionReason::Unauthenticated, !is_authenticated);
    }

    /// Whether it was accepted beyond `maxclients`, for commands of administration alone.
    #[must_use]
    pub fn is_on_reserve(&self) -> bool {
        self.reasons.has(SessionReason::Reserved)
    }

    /// Notes that it is one connection among others.
    pub fn leave_reserve(&mut self) {
        self.reasons.set(SessionReason::Reserved, false);
        self.client.set(client_flag::ON_RESERVE, false);
    }

    /// Whether what it sends is to be looked at as it is planned: it has yet to authenticate, its user isn't allowed
    /// everything, or that has just changed.
    #[inline]
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        use SessionReason::{Replan, Restricted, Unauthenticated};
        self.reasons.any_of(Unauthenticated as u32 | Restricted as u32 | Replan as u32)
    }

    /// Whether the commands that follow must be planned again, after one that has changed what may run. RESET takes the
    /// authentication away.
    #[inline]
    #[must_use]
    pub fn must_replan(&self) -> bool {
        self.reasons.any_of(SessionReason::Unauthenticated as u32 | SessionReason::Replan as u32)
    }

    /// Whether its user, or what that may do, has changed since the commands were planned.
    #[must_use]
    pub(crate) fn has_changed(&self) -> bool {
        self.reasons.has(SessionReason::Replan)
    }

    /// The commands that follow are planned by what holds now.
    pub(crate) fn begin_plan(&mut self) {
        self.reasons.set(SessionReason::Replan, false);
    }

    /// The user that it is; none of what the server runs itself.
    #[must_use]
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// What its user may do, unless it is everything.
    #[inline]
    #[must_use]
    pub(crate) fn permissions(&self) -> Option<&Arc<Permissions>> {
        self.permissions.as_ref()
    }

    /// Has it be a user. Whether it has authenticated is another question.
    pub(crate) fn become_user(&mut self, user: Arc<User>) {
        self.user = Some(user);
        self.follow_user();
    }

    /// Takes over what its user may do now.
    pub(crate) fn follow_user(&mut self) {
        let permissions = self.user.as_ref().map(|user| user.permissions());
        self.permissions = permissions.filter(|permissions| !permissions.is_unrestricted());
        self.reasons.set(SessionReason::Restricted, self.permissions.is_some());
        self.reasons.set(SessionReason::Replan, true);
    }

    /// The same, if another thread has told that it has changed.
    pub(crate) fn follow_summons(&mut self) {
        if self.client.summons.any() && self.client.summons.take_user_changed() {
            self.follow_user();
        }
    }

    /// Whether it shows what MONITOR shows.
    #[inline]
    #[must_use]
    pub fn is_monitoring(&self) -> bool {
        self.reasons.has(SessionReason::Monitors)
    }

    /// Notes whether it does.
    pub fn set_monitoring(&mut self, monitors: bool) {
        self.reasons.set(SessionReason::Monitors, monitors);
    }

    /// Whether the client caches what it reads.
    #[inline]
    #[must_use]
    pub fn caches(&self) -> bool {
        self.reasons.has(SessionReason::Caches)
    }

    /// Notes whether it does.
    pub fn set_caches(&mut self, caches: bool) {
        self.reasons.set(SessionReason::Caches, caches);
    }

    /// Which replies the client wants.
    #[inline]
    #[must_use]
    pub fn reply_mode(&self) -> ReplyMode {
        self.reply_mode
    }

    /// Notes which it wants.
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        self.reply_mode = mode;
        self.reasons.set(SessionReason::Silenced, mode != ReplyMode::On);
    }

    /// What it counts for a pipeline that survives it.
    #[inline]
    #[must_use]
    pub fn tally(&self) -> Option<&Tally> {
        self.tally.as_deref()
    }

    /// The same, to count on.
    #[inline]
    pub(crate) fn tally_mut(&mut self) -> Option<&mut Tally> {
        self.tally.as_deref_mut()
    }

    /// Begins or ends counting for a pipeline. What it has counted for before is returned.
    pub fn set_tally(&mut self, tally: Option<Box<Tally>>) -> Option<Box<Tally>> {
        self.reasons.set(SessionReason::Counts, tally.is_some());
        std::mem::replace(&mut self.tally, tally)
    }

    /// Begins or ends a transaction.
    pub fn set_multi(&mut self, multi: Option<Box<Multi>>) {
        self.client.set(client_flag::MULTI, multi.is_some());
        let (queued, bytes) = multi.as_ref().map_or((-1, 0), |m| (m.queue.len() as i64, m.bytes));
        self.client.queued.store(queued, Ordering::Relaxed);
        self.client.queued_bytes.store(bytes as u64, Ordering::Relaxed);
        self.reasons.set(SessionReason::Queues, multi.is_some());
        self.multi = multi;
    }

    /// Notes the numbers of subscriptions where other threads see them. Call it after every change of them.
    pub fn publish_subscriptions(&mut self) {
        let s = &self.subscriptions;
        let counts = [s.channels.len(), s.patterns.len(), s.shard_channels.len()];
        for (shown, count) in self.client.subscriptions.iter().zip(counts) {
            shown.store(count as u32, Ordering::Relaxed);
        }
        self.client.set(client_flag::PUBSUB, !s.is_empty());
        self.reasons.set(SessionReason::Subscribed, !self.subscriptions.is_empty());
    }
}
