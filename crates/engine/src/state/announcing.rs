//! Announcements of moved slots to clients that hear of maintenance.

use std::collections::BTreeMap;

use cluster::SlotSet;
use cluster::view::{ClientPath, NodeIndex};

use super::Engine;
use crate::maintenance::{Announcement, SlotsMigrated};
use crate::slots::{Slot, SlotView};

impl Engine {
    /// Announces that slots of this node are about to go to another one, and that writes to them wait meanwhile. `now_ms` is Unix time.
    pub fn announce_migrating(&self, slots: &SlotSet, now_ms: u64) {
        if self.maintenance.listeners() > 0 {
            let announcement = Announcement::SlotsMigrating(Box::new(slots.clone()));
            self.maintenance.announce(&self.inboxes, &announcement, now_ms);
        }
    }

    /// Announces the slots that have gone to other nodes since the last call. A key-by-key move of many slots makes one announcement of
    /// all that change between two calls, not one for each slot. `now_ms` is Unix time.
    pub fn announce_migrated(&self, now_ms: u64) {
        let gone = self.maintenance.take_migrated();
        if gone.is_empty() {
            return;
        }
        let Some(view) = self.slots.view() else { return };
        let migrated = self.migrated(&view, &gone);
        if !migrated.is_empty() {
            self.maintenance.announce(&self.inboxes, &Announcement::SlotsMigrated(migrated), now_ms);
        }
    }

    /// Returns the slots with their present owners. Without a known address of this node or of an owner, clients can't use the
    /// announcement, and learn the owner from a redirect.
    fn migrated(&self, view: &SlotView, gone: &SlotSet) -> Vec<SlotsMigrated> {
        let Some(source) = self.address(view, view.me) else { return Vec::new() };
        let mut by_owner = BTreeMap::<NodeIndex, SlotSet>::new();
        for slot in gone.iter() {
            if let Some(owner) = view.owner(slot).filter(|owner| *owner != view.me) {
                by_owner.entry(owner).or_default().insert(slot);
            }
        }
        let with_address = |(owner, slots)| {
            let target = self.address(view, owner)?;
            Some(SlotsMigrated { source: source.clone(), target, slots })
        };
        by_owner.into_iter().filter_map(with_address).collect()
    }

    /// Returns a node's address for clients that hear of maintenance: they use TLS if replication does.
    fn address(&self, view: &SlotView, node: NodeIndex) -> Option<String> {
        let path = ClientPath { ipv6: false, tls: self.settings.tls_replication.get() };
        let endpoint = view.endpoint(node, path);
        let is_known = !matches!(endpoint.host, "" | "?") && endpoint.port != 0;
        is_known.then(|| match endpoint.host.contains(':') {
            true => format!("[{}]:{}", endpoint.host, endpoint.port),
            false => format!("{}:{}", endpoint.host, endpoint.port),
        })
    }
}

/// Returns this node's slots that went to another shard. Those that went to a replica of this node did so in a failover.
pub(super) fn migrated_slots(before: &SlotView, after: &SlotView) -> SlotSet {
    let Some(shard) = before.node(before.me).map(|me| me.shard) else { return SlotSet::EMPTY };
    let is_elsewhere = |slot: &Slot| {
        let owner = after.owner(*slot).and_then(|owner| after.node(owner));
        owner.is_some_and(|owner| owner.shard != shard)
    };
    Slot::all().filter(|slot| before.owner(*slot) == Some(before.me) && is_elsewhere(slot)).collect()
}
