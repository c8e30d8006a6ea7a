//! Publish and subscribe for a session: its messages, its subscriptions, and its end.

use std::collections::HashSet;

use resp::reply::{Output, Proto, Reply};

use crate::clients::client_memory::forget_name;
use crate::clients::session::{ReplyMode, Session, Subscriptions};
use crate::pubsub::{ChannelKind, Origin, Subscriber};
use crate::slots::Slot;
use crate::slots::check::serves_channels;
use crate::worker::Worker;
use crate::worker::turn::Turn;

/// Returns the session's subscriptions of this kind.
pub(crate) fn names(subscriptions: &mut Subscriptions, kind: ChannelKind) -> &mut HashSet<Box<[u8]>> {
    match kind {
        ChannelKind::Channel => &mut subscriptions.channels,
        ChannelKind::Pattern => &mut subscriptions.patterns,
        ChannelKind::Shard => &mut subscriptions.shard_channels,
    }
}

/// Describes a session as a subscriber.
pub(crate) fn subscriber(session: &Session) -> Subscriber {
    Subscriber { client: session.client.id, worker: session.client.worker, proto: session.proto }
}

/// Publishes a message for a session's command, or without a session; returns the number of receivers.
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

/// Ends all subscriptions of a session silently.
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

impl Worker {
    /// Ends a session's subscriptions to shard channels of slots that went to another node. Returns the messages for the
    /// client.
    pub fn leave_lost_channels(&mut self, session: &mut Session) -> Vec<Vec<u8>> {
        let Some(view) = self.engine.slots.view() else { return Vec::new() };
        let is_lost = |name: &[u8]| !serves_channels(&view, Slot::of_hash(store::hash::slot_of(name)));
        let channels = &session.subscriptions.shard_channels;
        let mut lost: Vec<Box<[u8]>> = channels.iter().filter(|name| is_lost(name)).cloned().collect();
        lost.sort_unstable();
        let who = subscriber(session);
        let mut leave = |name: &[u8]| {
            self.engine.pubsub.unsubscribe(ChannelKind::Shard, name, who);
            session.subscriptions.shard_channels.remove(name);
            forget_name(&session.client, name);
            sunsubscribe_message(name, session.subscriptions.shard_channels.len(), session.proto)
        };
        let pushes = lost.iter().map(|name| leave(name)).collect();
        session.publish_subscriptions();
        pushes
    }
}

/// Returns the message about the end of a subscription to a shard channel. `left` is the number of remaining ones.
fn sunsubscribe_message(name: &[u8], left: usize, proto: Proto) -> Vec<u8> {
    let mut output = Output::default();
    let mut reply = Reply::new(&mut output, proto);
    reply.push(3);
    reply.bulk("sunsubscribe");
    reply.bulk(name);
    reply.count(left);
    output.slices().collect::<Vec<_>>().concat()
}

/// Delivers the messages in the thread's inbox for the connection now, before a change of its state would put them out
/// of order.
pub(crate) fn catch_up(turn: &mut Turn<'_, '_>) {
    let session = &mut *turn.session;
    let inbox = &turn.worker.engine.inboxes[turn.worker.id];
    let until = inbox.pushed();
    let waiting = inbox.pushes_for(session.client.id, session.pushes_seen, until);
    session.pushes_seen = until;
    if session.in_exec && session.proto == Proto::Resp2 {
        // Only the transaction itself can have subscribed, and no message can have been published while it ran.
        return;
    }
    let aside = session.in_exec || session.reply_mode() != ReplyMode::On;
    let output = if aside { &mut session.pushes } else { turn.reply.output() };
    waiting.iter().for_each(|waiting| output.extend_push(&waiting.bytes));
}

/// Notes that an inbox is full, and the session of the command that filled it, if any.
pub(crate) fn note_overfilled(worker: &Worker, inbox: usize, session: Option<&mut Session>) {
    worker.full_inboxes.set(inbox, true);
    if let Some(session) = session {
        session.overfilled = Some(inbox);
    }
}
