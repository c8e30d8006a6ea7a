//! Subscriptions, and the delivery of published messages.
//!
//! Subscribers of a channel are grouped by thread and protocol version, so that publishing costs one message per
//! thread, and the bytes are built once per version. A message goes into the threads' inboxes while the channel's lock
//! is held: all subscribers of a channel on other connections receive its messages in the same order. A connection's
//! message to itself bypasses the inbox and follows the reply of the publishing command.
//!
//! This module knows no sessions. Publishing only enqueues: it is allowed under shard locks, and takes none.

pub(crate) mod full_inboxes;
pub(crate) mod monitors;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use resp::reply::{Output, Proto, Reply};
use store::{glob, hash::hash};

use crate::inbox::Inbox;

/// Number of parts of the channels, each with its own lock: many more than threads, so that contention is rare.
const CELLS: usize = 64;

/// Kinds of subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelKind {
    /// SUBSCRIBE: a channel.
    Channel,
    /// PSUBSCRIBE: all channels that match a pattern.
    Pattern,
    /// SSUBSCRIBE: a shard channel.
    Shard,
}

/// A connection that receives messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscriber {
    /// The connection.
    pub client: u64,
    /// The worker that owns the connection.
    pub worker: usize,
    /// The protocol version.
    pub proto: Proto,
}

/// The origin of a message.
pub struct Origin<'o> {
    /// The publishing thread.
    pub worker: usize,
    /// The publishing connection with its pushes, if it may be among the receivers.
    pub own: Option<(u64, &'o mut Output)>,
    /// True if the message may be dropped for a receiver that lags behind, rather than closing the receiver.
    pub may_be_dropped: bool,
    /// Set to a receiving thread if its inbox has no more room for this publisher.
    pub overfilled: Option<usize>,
}

/// Bytes for several connections, encoded for each protocol version.
pub struct Encoded<F> {
    build: F,
    forms: [Option<Arc<Vec<u8>>>; 2],
}

impl<F: Fn(&mut Reply<'_>)> Encoded<F> {
    /// Creates bytes that `build` writes when they are first needed.
    pub fn new(build: F) -> Encoded<F> {
        Encoded { build, forms: [None, None] }
    }

    fn form(&mut self, proto: Proto) -> &Arc<Vec<u8>> {
        let build = &self.build;
        self.forms[usize::from(proto == Proto::Resp3)].get_or_insert_with(|| {
            let mut output = Output::default();
            build(&mut Reply::new(&mut output, proto));
            Arc::new(output.slices().collect::<Vec<_>>().concat())
        })
    }
}

/// Connections of one thread with the same protocol version.
struct SubscriberGroup {
    worker: usize,
    proto: Proto,
    /// Ascending. Messages in transit share it; it is copied on write.
    clients: Arc<Vec<u64>>,
}

/// The connections that receive the same messages.
#[derive(Default)]
pub struct Audience {
    groups: Vec<SubscriberGroup>,
}

impl Audience {
    /// Adds a connection, if it is missing.
    pub fn add(&mut self, subscriber: Subscriber) {
        let Subscriber { client, worker, proto } = subscriber;
        match self.groups.iter_mut().find(|g| g.worker == worker && g.proto == proto) {
            None => self.groups.push(SubscriberGroup { worker, proto, clients: Arc::new(vec![client]) }),
            Some(group) => {
                if let Err(place) = group.clients.binary_search(&client) {
                    Arc::make_mut(&mut group.clients).insert(place, client);
                }
            }
        }
    }

    /// Removes a connection.
    pub fn remove(&mut self, subscriber: Subscriber) {
        let Some(at) = self.groups.iter().position(|g| g.worker == subscriber.worker && g.proto == subscriber.proto)
        else {
            return;
        };
        let clients = &mut self.groups[at].clients;
        if let Ok(place) = clients.binary_search(&subscriber.client) {
            Arc::make_mut(clients).remove(place);
        }
        if clients.is_empty() {
            self.groups.swap_remove(at);
        }
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.iter().map(|g| g.clients.len()).sum()
    }

    /// Returns true if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns true if a connection belongs to one of these threads.
    #[must_use]
    pub fn is_with(&self, workers: impl Fn(usize) -> bool) -> bool {
        self.groups.iter().any(|group| workers(group.worker))
    }

    /// Sends a message to the connections. Returns the number of receivers.
    pub fn send<F: Fn(&mut Reply<'_>)>(
        &self,
        inboxes: &[Inbox],
        origin: &mut Origin<'_>,
        bytes: &mut Encoded<F>,
    ) -> usize {
        for group in &self.groups {
            let to_self = group.worker == origin.worker;
            let form = bytes.form(group.proto);
            let mut except = 0;
            if let Some((client, pushes)) = &mut origin.own
                && to_self
                && group.clients.binary_search(client).is_ok()
            {
                pushes.extend_push(form);
                except = *client;
            }
            if (except == 0 || group.clients.len() > 1)
                && let Some(inbox) = inboxes.get(group.worker)
            {
                let from = (origin.worker, to_self);
                if inbox.push(&group.clients, except, form, from, origin.may_be_dropped) {
                    origin.overfilled = Some(group.worker);
                }
            }
        }
        self.len()
    }
}

type Audiences = HashMap<Box<[u8]>, Audience>;

fn enter(audiences: &mut Audiences, name: &[u8], subscriber: Subscriber) -> bool {
    match audiences.get_mut(name) {
        Some(audience) => {
            audience.add(subscriber);
            false
        }
        None => {
            audiences.entry(name.into()).or_default().add(subscriber);
            true
        }
    }
}

fn strike(audiences: &mut Audiences, name: &[u8], subscriber: Subscriber) -> bool {
    let Some(audience) = audiences.get_mut(name) else { return false };
    audience.remove(subscriber);
    audience.is_empty() && audiences.remove(name).is_some()
}

/// Channels with their subscribers.
struct Channels {
    cells: Box<[Mutex<Audiences>]>,
    count: AtomicUsize,
}

impl Channels {
    fn new() -> Channels {
        Channels { cells: (0..CELLS).map(|_| Mutex::default()).collect(), count: AtomicUsize::new(0) }
    }

    fn with<T>(&self, name: &[u8], run: impl FnOnce(&mut Audiences) -> T) -> T {
        let cell = &self.cells[hash(name) as usize % CELLS];
        run(&mut cell.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn names(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        if self.count.load(Ordering::Acquire) == 0 {
            return found;
        }
        for cell in &self.cells {
            let cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
            found.extend(cell.keys().filter(|name| wanted(name)).cloned());
        }
        found
    }
}

/// See the module's documentation.
pub struct PubSub {
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<Audiences>,
    pattern_count: AtomicUsize,
}

impl Default for PubSub {
    fn default() -> PubSub {
        PubSub {
            channels: Channels::new(),
            shard_channels: Channels::new(),
            patterns: RwLock::default(),
            pattern_count: AtomicUsize::new(0),
        }
    }
}

impl PubSub {
    fn channels(&self, kind: ChannelKind) -> &Channels {
        if kind == ChannelKind::Shard { &self.shard_channels } else { &self.channels }
    }

    /// Subscribes a connection; it receives every message published after this call.
    pub fn subscribe(&self, kind: ChannelKind, name: &[u8], subscriber: Subscriber) {
        if kind == ChannelKind::Pattern {
            let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
            enter(&mut patterns, name, subscriber);
            self.pattern_count.store(patterns.len(), Ordering::Release);
        } else {
            let channels = self.channels(kind);
            let is_new = channels.with(name, |audiences| enter(audiences, name, subscriber));
            channels.count.fetch_add(usize::from(is_new), Ordering::Release);
        }
    }

    /// Ends a subscription. No message is enqueued for it after this call, but earlier ones are still delivered.
    pub fn unsubscribe(&self, kind: ChannelKind, name: &[u8], subscriber: Subscriber) {
        if kind == ChannelKind::Pattern {
            let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
            strike(&mut patterns, name, subscriber);
            self.pattern_count.store(patterns.len(), Ordering::Release);
        } else {
            let channels = self.channels(kind);
            let is_gone = channels.with(name, |audiences| strike(audiences, name, subscriber));
            channels.count.fetch_sub(usize::from(is_gone), Ordering::Release);
        }
    }

    /// Replaces a subscriber by one with another protocol version, without lost or duplicate messages.
    pub fn replace(&self, kind: ChannelKind, name: &[u8], before: Subscriber, after: Subscriber) {
        let replace = |audiences: &mut Audiences| {
            if let Some(audience) = audiences.get_mut(name) {
                audience.remove(before);
                audience.add(after);
            }
        };
        if kind == ChannelKind::Pattern {
            replace(&mut self.patterns.write().unwrap_or_else(PoisonError::into_inner));
        } else {
            self.channels(kind).with(name, replace);
        }
    }

    /// Returns the clients among these with subscriptions for which `wanted` is true.
    pub(crate) fn subscribed(
        &self,
        clients: &HashSet<u64>,
        wanted: impl Fn(ChannelKind, &[u8]) -> bool,
    ) -> HashSet<u64> {
        let mut found = HashSet::new();
        let mut look = |kind, audiences: &Audiences| {
            for (_, audience) in audiences.iter().filter(|(name, _)| wanted(kind, name)) {
                let all = audience.groups.iter().flat_map(|group| group.clients.iter());
                found.extend(all.filter(|client| clients.contains(client)));
            }
        };
        for (kind, channels) in [(ChannelKind::Channel, &self.channels), (ChannelKind::Shard, &self.shard_channels)] {
            for cell in &channels.cells {
                look(kind, &cell.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
        look(ChannelKind::Pattern, &self.patterns.read().unwrap_or_else(PoisonError::into_inner));
        found
    }

    /// Returns true if there are no subscriptions to channels or patterns.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.channels.count.load(Ordering::Acquire) == 0 && self.pattern_count() == 0
    }

    /// Publishes a message on a channel or shard channel. Returns the number of receivers; a connection counts once for
    /// each matching subscription.
    pub fn publish(
        &self,
        inboxes: &[Inbox],
        kind: ChannelKind,
        channel: &[u8],
        payload: &[u8],
        origin: &mut Origin<'_>,
    ) -> usize {
        let word = if kind == ChannelKind::Shard { "smessage" } else { "message" };
        let mut message = Encoded::new(|reply: &mut Reply<'_>| {
            reply.push(3);
            reply.bulk(word);
            reply.bulk(channel);
            reply.bulk(payload);
        });
        let channels = self.channels(kind);
        let direct = channels.with(channel, |audiences| {
            audiences.get(channel).map_or(0, |audience| audience.send(inboxes, origin, &mut message))
        });
        if kind == ChannelKind::Shard || self.pattern_count() == 0 {
            return direct;
        }
        direct + self.publish_to_patterns(inboxes, channel, payload, origin)
    }

    fn publish_to_patterns(&self, inboxes: &[Inbox], channel: &[u8], payload: &[u8], origin: &mut Origin<'_>) -> usize {
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        let matching = patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel, false));
        let counts = matching.map(|(pattern, audience)| {
            let mut message = Encoded::new(|reply: &mut Reply<'_>| {
                reply.push(4);
                reply.bulk("pmessage");
                reply.bulk(pattern);
                reply.bulk(channel);
                reply.bulk(payload);
            });
            audience.send(inboxes, origin, &mut message)
        });
        counts.sum()
    }

    /// Returns true if a message on a channel or shard channel reaches any of these threads.
    #[must_use]
    pub fn reaches(&self, kind: ChannelKind, channel: &[u8], workers: impl Fn(usize) -> bool) -> bool {
        let is_with = |audiences: &mut Audiences| audiences.get(channel).is_some_and(|a| a.is_with(&workers));
        if self.channels(kind).with(channel, is_with) {
            return true;
        }
        if kind == ChannelKind::Shard || self.pattern_count() == 0 {
            return false;
        }
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        patterns.iter().any(|(pattern, a)| a.is_with(&workers) && glob::matches(pattern, channel, false))
    }

    /// Returns the channels or shard channels with subscribers, optionally only those that match a pattern.
    #[must_use]
    pub fn active(&self, kind: ChannelKind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        self.channels(kind).names(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name, false)))
    }

    /// Returns true if `wanted` accepts a channel, or a shard channel, that has subscribers.
    pub(crate) fn any_channel(&self, kind: ChannelKind, wanted: impl Fn(&[u8]) -> bool) -> bool {
        !self.channels(kind).names(wanted).is_empty()
    }

    /// Returns the number of subscribers of one channel or shard channel.
    #[must_use]
    pub fn subscribers(&self, kind: ChannelKind, channel: &[u8]) -> usize {
        self.channels(kind).with(channel, |audiences| audiences.get(channel).map_or(0, Audience::len))
    }

    /// Returns the number of channels with subscribers.
    #[must_use]
    pub fn channel_count(&self, kind: ChannelKind) -> usize {
        self.channels(kind).count.load(Ordering::Relaxed)
    }

    /// Returns the number of patterns with subscribers.
    #[inline]
    #[must_use]
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Ordering::Acquire)
    }
}
