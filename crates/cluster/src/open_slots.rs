//! The states of open slots in a snapshot for a replica, in Valkey's form: `5<ID,7>ID,`. `<` stands for an import from the node of this name,
//! and `>` for a migration to it. A replica needs them because a failover must not end a migration.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::commands::{ClusterReply, SetSlot};
use crate::dialect::Dialect;
use crate::id::NodeId;
use crate::io::Level;
use crate::machine::{Machine, OpenSlot};
use crate::node::NodeKey;
use crate::slots::{Slot, SlotSet};
use crate::view::{Open, SlotView};

/// An open slot in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marker {
    slot: Slot,
    is_import: bool,
    peer: NodeId,
}

impl SlotView {
    /// Returns the states of the open slots, for a snapshot; `None` if no slot is open. `under_way`: changes in their order that the replicas
    /// have and this view does not show.
    pub fn slot_states(&self, under_way: &[(Slot, SetSlot)]) -> Option<String> {
        let mut states = BTreeMap::new();
        for (slot, open) in self.open_slots() {
            let (sign, peer) = match open {
                Open::Importing { from } => ('<', from),
                Open::Migrating { to } => ('>', to),
            };
            if let Some(node) = self.node(*peer) {
                states.insert(*slot, (sign, node.id.to_string()));
            }
        }
        for (slot, change) in under_way {
            match change {
                SetSlot::Migrating(to) => _ = states.insert(*slot, ('>', to.clone())),
                SetSlot::Importing(from) => _ = states.insert(*slot, ('<', from.clone())),
                SetSlot::Stable => _ = states.remove(slot),
                // The new owner's claim closes the slot everywhere.
                SetSlot::Node(_) => {}
            }
        }
        let mut text = String::new();
        for (slot, (sign, peer)) in states {
            let _ = write!(text, "{slot}{sign}{peer},");
        }
        Some(text).filter(|text| !text.is_empty())
    }
}

/// Reads the states of open slots. An empty text stands for none. Returns None if the text is malformed.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<Marker>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let entries = text.strip_suffix(b",")?.split(|&byte| byte == b',');
    entries.map(parse_marker).collect()
}

fn parse_marker(entry: &[u8]) -> Option<Marker> {
    let at = entry.iter().position(|&byte| byte == b'<' || byte == b'>')?;
    let (number, rest) = entry.split_at(at);
    let slot = Slot::new(str::from_utf8(number).ok()?.parse().ok()?)?;
    Some(Marker { slot, is_import: rest.first() == Some(&b'<'), peer: NodeId::new(rest.get(1..)?)? })
}

impl Machine {
    /// Returns true if replicas apply changes of slots from this node's stream. Replicas of Valkey do, replicas of Redis do not. A replica begins to
    /// follow this node before its headers say so, and sends nothing at all for a moment after a restart of this node: it needs the changes, too.
    pub fn replicas_take_slots(&self) -> bool {
        let refuses = |key: NodeKey| {
            let node = &self.table[key];
            node.dialect != Dialect::Valkey && node.data_received_ms.is_some()
        };
        !self.table.replicas(self.me()).any(refuses)
    }

    /// Redirects open slots whose other end has become a replica in its shard to its primary. Clients would be redirected to the replica, which
    /// sends them back. A slot that migrates within this node's shard goes nowhere.
    pub(crate) fn follow_peers_of_open_slots(&mut self) {
        let (table, me) = (&self.table, self.table.me());
        let successor = |(slot, open): (&Slot, &OpenSlot)| {
            let primary = table[open.peer()].primary()?;
            let is_shard = table[primary].is_primary() && table.same_shard(open.peer(), primary);
            is_shard.then_some((*slot, *open, primary))
        };
        let replaced: Vec<(Slot, OpenSlot, NodeKey)> = self.open.iter().filter_map(successor).collect();
        for (slot, open, primary) in replaced {
            self.redirected.insert(slot);
            match open {
                _ if self.table.same_shard(primary, me) => _ = self.open.remove(&slot),
                OpenSlot::Migrating(_) => _ = self.open.insert(slot, OpenSlot::Migrating(primary)),
                OpenSlot::Importing(_) => _ = self.open.insert(slot, OpenSlot::Importing(primary)),
            }
            self.changed();
        }
    }

    /// Takes the slots that this primary imports and that nobody claims. This node, or its former primary, has missed the end of the import, and
    /// without it nobody would serve the slots.
    ///
    /// The headers of a source also lack slots that a replica of it has won. This node therefore waits for a node timeout, and until it has
    /// heard from all nodes of the source's shard that have not failed. The winner's claim has come by then. It does not wait for the timeout once
    /// another node claims the slot with an old epoch ([`Machine::outdated_claims`]).
    pub(crate) fn take_abandoned_imports(&mut self) {
        let is_nobodys = |(slot, open): &(&Slot, &OpenSlot)| {
            let OpenSlot::Importing(source) = **open else { return false };
            let owner = self.table.owner(**slot);
            self.table.is_unclaimed(**slot) && owner.is_none_or(|owner| owner == source)
        };
        let open = self.open.iter().filter(|_| self.table.myself().is_primary());
        let abandoned: Vec<(Slot, NodeKey)> =
            open.filter(is_nobodys).map(|(slot, open)| (*slot, open.peer())).collect();
        let now_ms = self.now.ms;
        let since = |slot: Slot| self.abandoned.get(&slot).copied().unwrap_or(now_ms);
        self.abandoned = abandoned.iter().map(|(slot, _)| (*slot, since(*slot))).collect();
        self.contested.retain(|slot| self.abandoned.contains_key(slot));
        for (slot, source) in abandoned {
            if self.is_abandoned(slot, source) {
                self.log(Level::Notice, format!("Taking slot {slot}, which its source has given up."));
                self.open.remove(&slot);
                self.table.bind(slot, self.me());
                self.bump_epoch();
                self.changed();
            }
        }
    }

    /// Returns the slots among these that this primary imports, that their source has given up, and that another node claims with an epoch from
    /// before. The claimer had them earlier, was down meanwhile, and has old copies of the keys. This primary has the present ones.
    pub(crate) fn outdated_claims(&mut self, claimer: NodeKey, epoch: u64, taken: &SlotSet) -> SlotSet {
        if !self.table.myself().is_primary() || self.table.same_shard(claimer, self.me()) {
            return SlotSet::EMPTY;
        }
        let is_outdated = |slot: &Slot| {
            let Some(OpenSlot::Importing(source)) = self.open.get(slot).copied() else { return false };
            let is_nobodys =
                self.table.owner(*slot).is_none_or(|owner| owner == source && self.table.is_unclaimed(*slot));
            is_nobodys && epoch < self.table[source].config_epoch
        };
        let outdated: SlotSet = taken.iter().filter(is_outdated).collect();
        self.contested.extend(outdated.iter());
        outdated
    }

    fn is_abandoned(&self, slot: Slot, source: NodeKey) -> bool {
        let Some(since_ms) = self.abandoned.get(&slot) else { return false };
        let has_told = |key: NodeKey| {
            let node = &self.table[key];
            node.has_failed() || node.data_received_ms > Some(*since_ms)
        };
        let mut shard = self.table.keys().filter(|key| *key != self.me() && self.table.same_shard(*key, source));
        let is_due = self.now.ms >= since_ms + self.config.node_timeout_ms || self.contested.contains(&slot);
        is_due && shard.all(has_told)
    }

    /// Takes over the open slots of the primary, which its snapshot has brought. They replace the slots that were open here.
    pub(crate) fn take_slot_states(&mut self, text: &[u8]) -> ClusterReply {
        let Some(markers) = parse(text) else {
            self.log(Level::Warning, "The primary's snapshot has malformed states of slots".into());
            return ClusterReply::Ok;
        };
        if self.table.myself().is_primary() {
            return ClusterReply::Ok;
        }
        self.break_promises();
        self.finished.clear();
        self.imported.clear();
        let mut open = BTreeMap::new();
        for Marker { slot, is_import, peer } in markers {
            // Gossip brings the address of an unknown node.
            if let Some(peer) = self.table.known(peer) {
                open.insert(slot, if is_import { OpenSlot::Importing(peer) } else { OpenSlot::Migrating(peer) });
            }
        }
        if open != self.open {
            self.open = open;
            self.changed();
        }
        ClusterReply::Ok
    }

    /// Forgets the whole slots that the stream has promised to the primary, because a snapshot replaces the data. A primary that has started again
    /// without its claim does not have these slots, and its snapshot has none of their keys. Other claims come with its next header.
    fn break_promises(&mut self) {
        let promised = self.promised_as_whole();
        self.table.promised.subtract(&promised);
        self.table.unclaimed.add(&promised);
    }
}
