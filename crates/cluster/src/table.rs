//! The known nodes, the owners of slots, and the nodes that were forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::id::{NodeId, ShardId};
use crate::node::{Health, Node, NodeKey, PeerRole};
use crate::slots::{SLOTS, Slot, SlotSet};

/// The owner of a slot that nobody has.
const NOBODY: u16 = u16::MAX;

/// The greatest number of nodes in a table. Gossip about further nodes is ignored.
pub(crate) const NODES_MAX: usize = 16_384;

/// The known nodes, and the owners of slots.
#[derive(Clone, Debug)]
pub struct Table {
    /// Indexed by key. The next new node takes the place of a removed one.
    nodes: Vec<Node>,
    free: Vec<NodeKey>,
    by_id: BTreeMap<NodeId, NodeKey>,
    owners: Box<[u16]>,
    /// Slots without a claim: bound to an owner that left them out of its last header.
    pub(crate) unclaimed: SlotSet,
    /// Slots that this replica's primary has taken by command, before its headers claim them.
    pub(crate) promised: SlotSet,
    me: NodeKey,
    /// Forgotten nodes, and the time until which gossip doesn't bring them back.
    forgotten: BTreeMap<NodeId, u64>,
}

impl Index<NodeKey> for Table {
    type Output = Node;

    fn index(&self, key: NodeKey) -> &Node {
        &self.nodes[key.index()]
    }
}

impl IndexMut<NodeKey> for Table {
    fn index_mut(&mut self, key: NodeKey) -> &mut Node {
        &mut self.nodes[key.index()]
    }
}

impl Table {
    /// A table that knows this node alone.
    pub(crate) fn new(me: Node) -> Table {
        let id = me.id;
        Table {
            nodes: vec![me],
            free: Vec::new(),
            by_id: BTreeMap::from([(id, NodeKey(0))]),
            owners: vec![NOBODY; SLOTS].into_boxed_slice(),
            unclaimed: SlotSet::EMPTY,
            promised: SlotSet::EMPTY,
            me: NodeKey(0),
            forgotten: BTreeMap::new(),
        }
    }

    /// This node's place.
    pub fn me(&self) -> NodeKey {
        self.me
    }

    /// This node.
    pub fn myself(&self) -> &Node {
        &self[self.me]
    }

    pub(crate) fn myself_mut(&mut self) -> &mut Node {
        let me = self.me;
        &mut self[me]
    }

    /// The number of known nodes, this one included.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The nodes in the order of their names.
    pub fn keys(&self) -> impl Iterator<Item = NodeKey> {
        self.by_id.values().copied()
    }

    /// The nodes but for this one.
    pub(crate) fn others(&self) -> Vec<NodeKey> {
        self.keys().filter(|key| *key != self.me).collect()
    }

    /// The place at a number, if a node stands there: for random choices.
    pub(crate) fn nth(&self, number: u64) -> Option<NodeKey> {
        let key = NodeKey((number % self.nodes.len() as u64) as u16);
        (self.by_id.get(&self[key].id) == Some(&key)).then_some(key)
    }

    /// The node of a name.
    pub fn find(&self, id: &NodeId) -> Option<NodeKey> {
        self.by_id.get(id).copied()
    }

    /// The node of a name. A new one has no address, which gossip brings; `None` if the table is full.
    pub(crate) fn known(&mut self, id: NodeId) -> Option<NodeKey> {
        if let Some(key) = self.find(&id) {
            return Some(key);
        }
        let shard = ShardId::new(id.bytes())?;
        // Gossip brings the address of a node that has failed.
        let failed = Health::Failed { since_ms: 0 };
        self.add(Node { no_address: true, health: failed, ..Node::new(id, shard, 0) })
    }

    /// Adds a node; `None` if its name is known or the table is full.
    pub(crate) fn add(&mut self, node: Node) -> Option<NodeKey> {
        if self.by_id.contains_key(&node.id) || self.count() >= NODES_MAX {
            return None;
        }
        let id = node.id;
        let key = match self.free.pop() {
            Some(key) => key,
            None => NodeKey(u16::try_from(self.nodes.len()).ok()?),
        };
        match self.nodes.get_mut(key.index()) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.by_id.insert(id, key);
        Some(key)
    }

    /// Removes a node: its slots are nobody's, its reports are withdrawn, and its replicas have an unknown primary.
    pub(crate) fn remove(&mut self, key: NodeKey) {
        self.unbind_all(key);
        self.by_id.remove(&self.nodes[key.index()].id);
        for node in &mut self.nodes {
            node.reports.remove(&key);
            if node.role == PeerRole::Replica(Some(key)) {
                node.role = PeerRole::Replica(None);
            }
        }
        self[key].reports.clear();
        self.free.push(key);
    }

    /// Gives a node another name. The new one must be unknown.
    pub(crate) fn rename(&mut self, key: NodeKey, id: NodeId) {
        self.by_id.remove(&self.nodes[key.index()].id);
        self[key].id = id;
        self.by_id.insert(id, key);
    }

    /// The owner of a slot.
    pub fn owner(&self, slot: Slot) -> Option<NodeKey> {
        let owner = self.owners[slot.index()];
        (owner != NOBODY).then_some(NodeKey(owner))
    }

    /// Binds a slot to a node, and unbinds it from its owner.
    pub(crate) fn bind(&mut self, slot: Slot, key: NodeKey) {
        self.unbind(slot);
        if self[key].slot_count == 0 && self.has_replicas() {
            self[key].migrate_to = true;
        }
        self.owners[slot.index()] = key.0;
        let node = &mut self[key];
        node.slot_count += usize::from(Arc::make_mut(&mut node.slots).insert(slot));
    }

    /// Takes a slot from its owner.
    pub(crate) fn unbind(&mut self, slot: Slot) {
        if let Some(owner) = self.owner(slot) {
            let node = &mut self[owner];
            node.slot_count -= usize::from(Arc::make_mut(&mut node.slots).remove(slot));
        }
        self.owners[slot.index()] = NOBODY;
        self.unclaimed.remove(slot);
        self.promised.remove(slot);
    }

    /// Binds slots to a node, and unbinds them from their owners.
    pub(crate) fn bind_all(&mut self, slots: &SlotSet, key: NodeKey) {
        if slots.is_empty() {
            return;
        }
        let (mut losers, mut last) = (BTreeSet::new(), NOBODY);
        for slot in slots.iter() {
            let loser = std::mem::replace(&mut self.owners[slot.index()], key.0);
            // Neighbours mostly have the same owner.
            if loser != last {
                last = loser;
                losers.insert(loser);
            }
        }
        losers.remove(&NOBODY);
        for loser in losers {
            let node = &mut self[NodeKey(loser)];
            Arc::make_mut(&mut node.slots).subtract(slots);
            node.slot_count = node.slots.len();
        }
        self.unclaimed.subtract(slots);
        self.promised.subtract(slots);
        if self[key].slot_count == 0 && self.has_replicas() {
            self[key].migrate_to = true;
        }
        let node = &mut self[key];
        Arc::make_mut(&mut node.slots).add(slots);
        node.slot_count = node.slots.len();
    }

    /// Takes all slots from a node.
    pub(crate) fn unbind_all(&mut self, key: NodeKey) {
        let slots = std::mem::take(&mut self[key].slots);
        self[key].slot_count = 0;
        slots.iter().for_each(|slot| self.owners[slot.index()] = NOBODY);
        self.unclaimed.subtract(&slots);
        self.promised.subtract(&slots);
    }

    /// Marks the slots among these that other nodes have as unclaimed.
    pub(crate) fn restore_unclaimed(&mut self, slots: &SlotSet) {
        let is_of_other = |slot: &Slot| self.owner(*slot).is_some_and(|owner| owner != self.me);
        self.unclaimed = slots.iter().filter(is_of_other).collect();
    }

    /// Returns true if any node may claim the slot.
    pub(crate) fn is_unclaimed(&self, slot: Slot) -> bool {
        self.owner(slot).is_none() || self.unclaimed.contains(slot)
    }

    fn has_replicas(&self) -> bool {
        self.keys().any(|key| self[key].primary().is_some())
    }

    /// The replicas of a node.
    pub fn replicas(&self, primary: NodeKey) -> impl Iterator<Item = NodeKey> {
        self.keys().filter(move |key| self[*key].role == PeerRole::Replica(Some(primary)))
    }

    /// The replicas of a node that are neither suspected nor failed.
    pub(crate) fn working_replicas(&self, primary: NodeKey) -> usize {
        self.replicas(primary).filter(|key| self[*key].health == Health::Well).count()
    }

    /// The number of primaries with slots: the size of the cluster.
    pub fn size(&self) -> usize {
        self.keys().filter(|key| self[*key].is_voting()).count()
    }

    /// The majority of the primaries with slots.
    pub fn quorum(&self) -> usize {
        self.size() / 2 + 1
    }

    /// True if two nodes are of one shard.
    pub(crate) fn same_shard(&self, one: NodeKey, other: NodeKey) -> bool {
        self[one].shard == self[other].shard
    }

    /// The epoch of a node's slots. A replica shares its primary's epoch.
    pub fn epoch(&self, key: NodeKey) -> u64 {
        let node = &self[key];
        self[node.primary().unwrap_or(key)].config_epoch
    }

    /// The greatest epoch of any node.
    pub(crate) fn greatest_epoch(&self) -> u64 {
        self.keys().map(|key| self[key].config_epoch).max().unwrap_or_default()
    }

    /// Returns true if making one node a replica of the other would close a cycle of primaries.
    pub(crate) fn closes_cycle(&self, replica: NodeKey, primary: NodeKey) -> bool {
        replica == primary || self[primary].primary() == Some(replica)
    }

    /// Makes a node a primary.
    pub(crate) fn promote(&mut self, key: NodeKey) {
        let is_me = key == self.me;
        let node = &mut self[key];
        node.migrate_to |= node.primary().is_some() && !is_me;
        node.role = PeerRole::Primary;
        node.note_claims();
    }

    /// Makes a node a replica. The shard of the primary becomes its own.
    pub(crate) fn demote(&mut self, key: NodeKey, primary: Option<NodeKey>) {
        let shard = primary.map(|primary| self[primary].shard);
        let node = &mut self[key];
        node.role = PeerRole::Replica(primary);
        node.migrate_to = false;
        node.note_claims();
        node.shard = shard.unwrap_or(node.shard);
        if let Some(primary) = primary {
            self[primary].migrate_to |= primary != self.me;
        }
    }

    /// Sets the shard of a node, and of its replicas.
    pub(crate) fn set_shard(&mut self, key: NodeKey, shard: crate::id::ShardId) -> bool {
        let replicas: Vec<NodeKey> = self.replicas(key).collect();
        let mut changes = false;
        for key in replicas.into_iter().chain([key]) {
            changes |= self[key].shard != shard;
            self[key].shard = shard;
        }
        changes
    }

    /// Keeps gossip from bringing a node back until a time.
    pub(crate) fn forget(&mut self, id: NodeId, until_ms: u64) {
        self.forgotten.insert(id, until_ms);
    }

    /// True if a node was forgotten, and gossip may not bring it back.
    pub(crate) fn is_forgotten(&self, id: &NodeId, now_ms: u64) -> bool {
        self.forgotten.get(id).is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// The forgotten nodes, and the time until which they stay so.
    pub(crate) fn forgotten(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.forgotten.iter().map(|(id, until_ms)| (*id, *until_ms))
    }

    /// Drops the entries of forgotten nodes that have expired.
    pub(crate) fn forget_forgotten(&mut self, now_ms: u64) {
        self.forgotten.retain(|_, until_ms| *until_ms > now_ms);
    }

    /// Withdraws reports that were made before a time.
    pub(crate) fn expire_reports(&mut self, key: NodeKey, before_ms: u64) {
        self[key].reports.retain(|_, at_ms| *at_ms >= before_ms);
    }
}
