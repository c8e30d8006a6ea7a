//! Replaces the view of the cluster's slots, and ends the waits and subscriptions of slots that went to other nodes.

use std::sync::Arc;

use cluster::SlotSet;
use cluster::view::ClientPath;
use resp::reply::{Output, Reply};

use super::Engine;
use super::announcing::migrated_slots;
use crate::clients::blocking::Waiter;
use crate::clients::client::{Client, client_flag};
use crate::inbox::{Inbox, Message};
use crate::pubsub::ChannelKind;
use crate::slots::check::{ends_wait, serves_channels, slot_of};
use crate::slots::jobs::{JobState, Operation};
use crate::slots::{Slot, SlotView};

impl Engine {
    /// Makes all threads use another view of the cluster's slots, from one moment on. Waits for the gate, so the caller
    /// must be outside of it. Blocked clients get the redirect if their slot went to another node; subscribers of such
    /// slots' channels are told that their subscription has ended.
    pub fn replace_slots(&self, view: Arc<SlotView>) {
        let _alone = self.keyspace.gate().close();
        if let Some(before) = self.slots.view() {
            self.slot_stats.forget(&lost_slots(&before, &view));
            if self.maintenance.listeners() > 0 {
                self.maintenance.note_migrated(&migrated_slots(&before, &view));
            }
        }
        self.slots.replace(view.clone());
        self.show_claimed(&view);
        self.end_waits_elsewhere(&view);
        let loses = |name: &[u8]| !serves_channels(&view, Slot::of_hash(store::hash::slot_of(name)));
        if self.pubsub.channel_count(ChannelKind::Shard) > 0 && self.pubsub.any_channel(ChannelKind::Shard, loses) {
            self.inboxes.iter().for_each(|inbox| inbox.send(Message::SlotsChanged));
        }
    }

    /// Shows the keys of imports whose slots this node has claimed. The caller has closed the gate, so that clients see the slots and
    /// their keys from the same moment on.
    fn show_claimed(&self, view: &SlotView) {
        for job in self.slots.jobs.under_way_as(Operation::Import) {
            let is_claimed = job.state() == JobState::FailoverGranted
                && job.slots.iter().all(|slot| view.owner(slot) == Some(view.me));
            if is_claimed {
                self.keyspace.stage(job.slots.iter().map(Slot::index), false);
            }
        }
    }

    /// Ends the blocking commands on keys of slots that are not served here. The caller has closed the gate, so that no
    /// other thread is about to serve one of them.
    fn end_waits_elsewhere(&self, view: &SlotView) {
        if self.waiters.is_empty() {
            return;
        }
        for client in self.clients.all() {
            let Some(waiter) = client.waiter() else { continue };
            if let Some(text) = self.wait_ends(view, &client, &waiter) {
                self.refuse_wait(&client, &waiter, &text);
            }
        }
    }

    /// Ends a client's wait with an error, unless another thread answers it.
    pub(super) fn refuse_wait(&self, client: &Client, waiter: &Arc<Waiter>, error: &[u8]) {
        if !waiter.claim() {
            return;
        }
        self.waiters.remove(waiter);
        waiter.refuse(error);
        let mut output = Output::default();
        Reply::new(&mut output, waiter.proto).error(error);
        client.note_answer(waiter);
        self.inboxes.get(waiter.worker).inspect(|inbox: &&Inbox| inbox.unpark(waiter.client, output, 0));
    }

    /// Returns the error with which a wait ends under this view, if it ends.
    fn wait_ends(&self, view: &SlotView, client: &Client, waiter: &Waiter) -> Option<Vec<u8>> {
        // Other waits end by no key.
        waiter.registered.first()?;
        let slots = waiter.keys.iter().map(|key| slot_of(key.hash));
        let redirect = ends_wait(view, slots, reads_replica(client, waiter))?;
        Some(redirect.error(view, self.client_path(client)).text().to_vec())
    }

    /// Returns the properties of a client's connection that decide the shown address of a node.
    pub(crate) fn client_path(&self, client: &Client) -> ClientPath {
        let tls_port = self.settings.tls_port.get();
        let port = client.laddr.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        ClientPath { ipv6: client.addr.starts_with('['), tls: tls_port != 0 && port == Some(tls_port) }
    }
}

/// Returns the slots that another node or nobody has under the new view.
fn lost_slots(before: &SlotView, after: &SlotView) -> SlotSet {
    let is_mine = |view: &SlotView, slot: &Slot| view.owner(*slot) == Some(view.me);
    Slot::all().filter(|slot| is_mine(before, slot) && !is_mine(after, slot)).collect()
}

/// Returns true if a replica may serve a blocked command: it only reads, and its connection is in READONLY mode.
pub(super) fn reads_replica(client: &Client, waiter: &Waiter) -> bool {
    client.has(client_flag::READS_REPLICA) && waiter.command.info.has(commands::spec::flag::READONLY)
}
