//! Invalidations for clients that cache (CLIENT TRACKING): keys that have changed, or all keys.
//!
//! A message is a push, `invalidate` with an array of keys, or null for all of them. A subscribed RESP2 connection can
//! receive the messages of another one on a channel for this purpose. Messages caused by a connection's own command
//! follow that command's reply. Messages caused by others go through its worker's inbox, in the order of the units, and
//! precede the replies that may depend on them (`execute::caching`).

use resp::reply::{Proto, Reply};
use store::hash::KeyHash;

use crate::clients::client::client_flag;
use crate::clients::session::Session;
use crate::listening::tracking::Tracker;
use crate::listening::tracking::tracking_flag::{BCAST, BROKEN, NOLOOP, ON, RESP3};
use crate::pubsub::{Audience, Encoded, Origin, Subscriber};
use crate::services::publishing::note_overfilled;
use crate::slow_path::{BROADCAST, TRACKED};
use crate::worker::Worker;

/// The channel that carries another connection's invalidations to a RESP2 connection.
const CHANNEL: &str = "__redis__:invalidate";
/// Size of pending keys that triggers a broadcast before the batch's end: the sum of their bytes and their number.
const BROADCAST_MAX: usize = 64 * 1024;
/// Maximum number of keys that one thread evicts from the table between two batches.
const EVICTED_AT_ONCE: usize = 1000;

/// Tells clients about a changed key. The caller holds its shard. `session` is the session of the command, if it is
/// this thread's.
pub(crate) fn invalidate(worker: &mut Worker, session: Option<&mut Session>, key: &[u8]) {
    let engine = worker.engine;
    let slow_path = engine.slow_path.get();
    if slow_path & BROADCAST != 0 {
        worker.broadcasts.follow(&engine.tracking);
        worker.broadcasts.note(key, session.as_deref().map_or(worker.served_client, |session| session.client.id));
    }
    let hash = KeyHash::of(key);
    if slow_path & TRACKED != 0 && engine.tracking.keys.may_have(hash) {
        let trackers = engine.tracking.keys.take(hash, key);
        let source = session.as_deref().map_or(worker.served_client, |session| session.client.id);
        let listening = trackers.iter().filter(|tracker| !tracker.has(NOLOOP) || tracker.client != source);
        let is_served = |tracker: &Tracker| {
            session.is_none()
                && tracker.client == source
                && tracker.redirect() == 0
                && tracker.has(ON)
                && tracker.has(RESP3)
                && !tracker.has(BCAST)
        };
        let (served, others): (Vec<_>, Vec<_>) = listening.map(|tracker| &**tracker).partition(|&one| is_served(one));
        if !served.is_empty() {
            worker.served_invalidations.push(key.into());
        }
        tell_of_key(worker, session, others.into_iter(), key);
    }
}

/// Sends the key's invalidation to the given clients that still track it.
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

/// Appends to the reply of a served blocked client the invalidations of its own cached keys.
pub(crate) fn write_served(worker: &mut Worker, reply: &mut Reply<'_>) {
    for key in worker.served_invalidations.drain(..) {
        reply.push(2);
        reply.bulk("invalidate");
        reply.array(1);
        reply.bulk(&*key);
    }
}

/// Tells all clients that all keys have changed.
pub(crate) fn invalidate_all(worker: &mut Worker, session: Option<&mut Session>) {
    let tracking = &worker.engine.tracking;
    if !worker.engine.slow_path.has(TRACKED) {
        return;
    }
    tracking.keys.clear();
    let trackers = tracking.trackers();
    tell(worker, session, trackers.iter().map(|tracker| &**tracker), |reply| reply.null());
}

/// Sends the changes for clients with prefixes (BCAST), once there are many.
#[inline]
pub(crate) fn broadcast_if_many(worker: &mut Worker, session: Option<&mut Session>) {
    if worker.broadcasts.is_pending() && (session.is_none() || worker.broadcasts.size() > BROADCAST_MAX) {
        broadcast(worker, session);
    }
}

/// Sends the pending changes for clients with prefixes (BCAST).
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

/// Evicts some keys if the table has more than the configuration allows, and tells their readers; without any caching
/// client the limit is zero. Returns true if more keys have to go.
pub(crate) fn keep_table_small(worker: &mut Worker, mut session: Option<&mut Session>) -> bool {
    let engine = worker.engine;
    let keys = &engine.tracking.keys;
    let max = match engine.settings.tracking_table_max_keys.get_usize() {
        _ if !engine.slow_path.has(TRACKED) => 0,
        0 => usize::MAX,
        max => max,
    };
    for _ in 0..EVICTED_AT_ONCE {
        if keys.len() <= max {
            return false;
        }
        let random = [worker.random.next() as usize, worker.random.next() as usize];
        // `None`: another thread has just taken the last key of a bucket.
        let Some((key, trackers)) = keys.take_any(random) else { continue };
        // The key has not changed, so its own client needs the message, too, and so does a client that has just begun
        // to cache.
        tell_of_key(worker, session.as_deref_mut(), trackers.iter().map(|tracker| &**tracker), &key);
    }
    true
}

/// Sends a message to the connections that receive these clients' invalidations. `write` writes the keys.
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

/// The connection that receives a client's messages.
enum Receiver {
    Connection(Subscriber),
    /// No connection can receive them.
    None,
    /// The connection with this number is gone.
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

/// Returns the subscriber for a RESP3 client that receives its own messages.
fn subscriber(tracker: &Tracker) -> Subscriber {
    Subscriber { client: tracker.client, worker: tracker.worker, proto: Proto::Resp3 }
}

/// Tells a client that its redirection is broken because the receiver is gone, and marks it.
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
    // A closing connection has been sent its last reply.
    let own = session.as_deref_mut().filter(|session| !session.closing);
    let own = own.map(|session| (session.client.id, &mut session.pushes));
    let mut origin = Origin { worker: worker.id, own, may_be_dropped: false, overfilled: None };
    audience.send(&worker.engine.inboxes, &mut origin, &mut Encoded::new(write));
    if let Some(inbox) = origin.overfilled {
        note_overfilled(worker, inbox, session);
    }
}
