//! What clients that cache (CLIENT TRACKING) are told: which keys have changed, and that all have.
//!
//! A message is a push, `invalidate` with an array of keys, or null for all of them. A connection in RESP2 can get the
//! messages of another one, if it has subscribed to something: as messages on a channel of their own. What a connection
//! is told because of its own command follows that command's reply; what it is told because of others goes through its
//! thread's inbox, in the order of the units, and is shown ahead of the replies that may depend on them
//! (`execute::caching`).

use resp::reply::{Proto, Reply};
use store::hash::KeyHash;

use crate::clients::client::client_flag;
use crate::clients::session::Session;
use crate::listening::tracking::Tracker;
use crate::listening::tracking::tracking_flag::{BCAST, BROKEN, NOLOOP, ON, RESP3};
use crate::pubsub::{Audience, Encoded, Origin, Subscriber};
use crate::reasons::{BROADCAST, TRACKED};
use crate::services::publishing::note_overfilled;
use crate::worker::Worker;

/// The channel on which a connection in RESP2 is told of another's keys.
const CHANNEL: &str = "__redis__:invalidate";
/// Bytes of keys, and keys, that are told of together, before the batch's end if it changes more.
const BROADCAST_MAX: usize = 64 * 1024;
/// Keys that go at once for want of room, at most: what one thread does for it between two batches.
const EVICTED_AT_ONCE: usize = 1000;

/// Tells clients that a key has changed. The caller holds its shard. `session` is the one that gave the command, if it is
/// this thread's.
pub(crate) fn invalidate(worker: &mut Worker, session: Option<&mut Session>, key: &[u8]) {
    let engine = worker.engine;
    let reasons = engine.reasons.get();
    if reasons & BROADCAST != 0 {
        worker.broadcasts.follow(&engine.tracking);
        worker.broadcasts.note(key, session.as_deref().map_or(0, |session| session.client.id));
    }
    let hash = KeyHash::of(key);
    if reasons & TRACKED != 0 && engine.tracking.keys.may_have(hash) {
        let trackers = engine.tracking.keys.take(hash, key);
        let source = session.as_deref().map_or(0, |session| session.client.id);
        let listening = trackers.iter().filter(|tracker| !tracker.has(NOLOOP) || tracker.client != source);
        tell_of_key(worker, session, listening.map(|tracker| &**tracker), key);
    }
}

/// Tells those of these clients that they have an outdated value of a key.
fn tell_of_key<'t>(
    worker: &Worker,
    session: Option<&mut Session>,
    trackers: impl Iterator<Item = &'t Tracker>,
    key: &[u8],
) {
    let listening = trackers.filter(|tracker| tracker.has(ON) && !tracker.has(BCAST));
    tell(worker, session, listening, |reply| {
        reply.array(1);
        reply.bulk(key);
    });
}

/// Tells all clients that all keys are gone, or may be.
pub(crate) fn invalidate_all(worker: &mut Worker, session: Option<&mut Session>) {
    let tracking = &worker.engine.tracking;
    if !worker.engine.reasons.has(TRACKED) {
        return;
    }
    tracking.keys.clear();
    let trackers = tracking.trackers();
    tell(worker, session, trackers.iter().map(|tracker| &**tracker), |reply| reply.null());
}

/// Tells of what has changed of the keys whose beginnings clients have named, once they are many.
#[inline]
pub(crate) fn broadcast_if_many(worker: &mut Worker, session: Option<&mut Session>) {
    if worker.broadcasts.is_pending() && (session.is_none() || worker.broadcasts.size() > BROADCAST_MAX) {
        broadcast(worker, session);
    }
}

/// Tells of what has changed since of the keys whose beginnings clients have named.
#[cold]
pub(crate) fn broadcast(worker: &mut Worker, mut session: Option<&mut Session>) {
    let (pending, prefixes) = worker.broadcasts.take();
    for audience in prefixes.iter() {
        let of_prefix = || pending.iter().filter(|(key, _)| key.starts_with(&audience.prefix));
        let mut send = |trackers: &mut dyn Iterator<Item = &Tracker>, keys: &[&[u8]]| {
            if !keys.is_empty() {
                tell(worker, session.as_deref_mut(), trackers, |reply| {
                    reply.array(keys.len());
                    keys.iter().for_each(|key| reply.bulk(key));
                });
            }
        };
        let listening = audience.trackers.iter().map(|tracker| &**tracker).filter(|tracker| tracker.has(BCAST));
        let all: Vec<&[u8]> = of_prefix().map(|(key, _)| &**key).collect();
        send(&mut listening.clone().filter(|tracker| !tracker.has(NOLOOP)), &all);
        for tracker in listening.filter(|tracker| tracker.has(NOLOOP)) {
            let of_others = of_prefix().filter(|(_, source)| **source != tracker.client);
            let keys: Vec<&[u8]> = of_others.map(|(key, _)| &**key).collect();
            send(&mut std::iter::once(tracker), &keys);
        }
    }
}

/// Forgets some keys if more are remembered than the configuration allows, and tells those that have read them; while no
/// client caches, all are too many. Says whether there are more that have to go.
pub(crate) fn keep_table_small(worker: &mut Worker, mut session: Option<&mut Session>) -> bool {
    let engine = worker.engine;
    let keys = &engine.tracking.keys;
    let max = match engine.settings.tracking_table_max_keys.get_usize() {
        _ if !engine.reasons.has(TRACKED) => 0,
        0 => usize::MAX,
        max => max,
    };
    for _ in 0..EVICTED_AT_ONCE {
        if keys.len() <= max {
            return false;
        }
        let random = [worker.random.next() as usize, worker.random.next() as usize];
        // None: another thread has just taken the last one of a bucket.
        let Some((key, trackers)) = keys.take_any(random) else { continue };
        // As it doesn't change, a client is told of its own, too; and one that has begun to cache a moment ago.
        tell_of_key(worker, session.as_deref_mut(), trackers.iter().map(|tracker| &**tracker), &key);
    }
    true
}

/// Sends something to the connections that get these clients' messages. `write` writes which keys.
fn tell<'t>(
    worker: &Worker,
    mut session: Option<&mut Session>,
    trackers: impl Iterator<Item = &'t Tracker>,
    write: impl Fn(&mut Reply<'_>),
) {
    let mut audience = Audience::default();
    for tracker in trackers {
        match receiver(worker, tracker) {
            Receiver::Connection(subscriber) => audience.add(subscriber),
            Receiver::None => {}
            Receiver::Gone(redirect) => tell_of_broken_way(worker, session.as_deref_mut(), tracker, redirect),
        }
    }
    send(worker, session, &audience, |reply| {
        if reply.is_resp3() {
            reply.push(2);
            reply.bulk("invalidate");
        } else {
            reply.push(3);
            reply.bulk("message");
            reply.bulk(CHANNEL);
        }
        write(reply);
    });
}

/// Which connection gets a client's messages.
enum Receiver {
    Connection(Subscriber),
    /// None that could be sent any.
    None,
    /// One that is gone, with this number.
    Gone(u64),
}

fn receiver(worker: &Worker, tracker: &Tracker) -> Receiver {
    let redirect = tracker.redirect();
    if redirect == 0 {
        return if tracker.has(RESP3) { Receiver::Connection(subscriber(tracker)) } else { Receiver::None };
    }
    let Some(client) = worker.engine.clients.get(redirect) else { return Receiver::Gone(redirect) };
    let proto = client.proto();
    if proto == Proto::Resp3 || client.has(client_flag::PUBSUB) {
        Receiver::Connection(Subscriber { client: client.id, worker: client.worker, proto })
    } else {
        Receiver::None
    }
}

/// A client that speaks RESP3 and gets its messages itself.
fn subscriber(tracker: &Tracker) -> Subscriber {
    Subscriber { client: tracker.client, worker: tracker.worker, proto: Proto::Resp3 }
}

/// Tells a client that the connection that should get its messages is gone, and notes that.
fn tell_of_broken_way(worker: &Worker, session: Option<&mut Session>, tracker: &Tracker, redirect: u64) {
    tracker.set(BROKEN, true);
    if tracker.has(RESP3) {
        let mut audience = Audience::default();
        audience.add(subscriber(tracker));
        send(worker, session, &audience, |reply| {
            reply.push(2);
            reply.bulk("tracking-redir-broken");
            reply.int(i64::try_from(redirect).unwrap_or(i64::MAX));
        });
    }
}

fn send(worker: &Worker, mut session: Option<&mut Session>, audience: &Audience, write: impl Fn(&mut Reply<'_>)) {
    if audience.is_empty() {
        return;
    }
    // A connection that is being closed has been sent its last reply.
    let own = session.as_deref_mut().filter(|session| !session.closing);
    let own = own.map(|session| (session.client.id, &mut session.pushes));
    let mut origin = Origin { worker: worker.id, own, may_be_dropped: false, overfilled: None };
    audience.send(&worker.engine.inboxes, &mut origin, &mut Encoded::new(write));
    if let Some(inbox) = origin.overfilled {
        note_overfilled(worker, inbox, session);
    }
}
