//! What publish and subscribe do for a session: what it publishes, what it has subscribed to, and its end.

use std::collections::HashSet;

use resp::reply::Proto;

use crate::clients::client_memory::forget_name;
use crate::clients::session::{ReplyMode, Session, Subscriptions};
use crate::pubsub::{ChannelKind, Origin, Subscriber};
use crate::worker::Worker;
use crate::worker::turn::Turn;

/// The names of this kind that a session has subscribed to.
pub(crate) fn names(subscriptions: &mut Subscriptions, kind: ChannelKind) -> &mut HashSet<Box<[u8]>> {
    match kind {
        ChannelKind::Channel => &mut subscriptions.channels,
        ChannelKind::Pattern => &mut subscriptions.patterns,
        ChannelKind::Shard => &mut subscriptions.shard_channels,
    }
}

/// A session among the subscribers.
pub(crate) fn subscriber(session: &Session) -> Subscriber {
    Subscriber { client: session.client.id, worker: session.client.worker, proto: session.proto }
}

/// Publishes for a session's command, or for none's; returns how many get the message.
pub(crate) fn publish_from(
    worker: &Worker,
    mut session: Option<&mut Session>,
    kind: ChannelKind,
    channel: &[u8],
    payload: &[u8],
) -> usize {
    let listening = session.as_deref_mut().filter(|s| !s.subscriptions.is_empty());
    let own = listening.map(|s| (s.client.id, &mut s.pushes));
    let mut origin = Origin { worker: worker.id, own, may_be_dropped: false, overfilled: None };
    let receivers = worker.engine.pubsub.publish(&worker.engine.inboxes, kind, channel, payload, &mut origin);
    if let Some(inbox) = origin.overfilled {
        note_overfilled(worker, inbox, session);
    }
    receivers
}

/// Ends all subscriptions of a session without a word.
pub(crate) fn leave_all(worker: &mut Worker, session: &mut Session) {
    let subscriber = subscriber(session);
    for kind in [ChannelKind::Channel, ChannelKind::Pattern, ChannelKind::Shard] {
        for name in names(&mut session.subscriptions, kind).drain() {
            forget_name(&session.client, &name);
            worker.engine.pubsub.unsubscribe(kind, &name, subscriber);
        }
    }
    session.publish_subscriptions();
}

/// Shows the messages that wait in the thread's inbox for the connection now, before its state changes in a way in
/// which they would be out of place.
pub(crate) fn catch_up(turn: &mut Turn<'_, '_>) {
    let session = &mut *turn.session;
    let inbox = &turn.worker.engine.inboxes[turn.worker.id];
    let until = inbox.pushed();
    let waiting = inbox.pushes_for(session.client.id, session.pushes_seen, until);
    session.pushes_seen = until;
    if session.in_exec && session.proto == Proto::Resp2 {
        // Only the transaction itself can have subscribed, and nothing can have been published while it ran.
        return;
    }
    let aside = session.in_exec || session.reply_mode() != ReplyMode::On;
    let output = if aside { &mut session.pushes } else { turn.reply.output() };
    waiting.iter().for_each(|waiting| output.extend_push(&waiting.bytes));
}

/// Notes that an inbox is overfilled, and by which session's command, if it was one's.
pub(crate) fn note_overfilled(worker: &Worker, inbox: usize, session: Option<&mut Session>) {
    worker.overfilled.set(inbox, true);
    if let Some(session) = session {
        session.overfilled = Some(inbox);
    }
}
