//! Slots that this shard has imported a moment ago, and a failover of the source's shard that does not know it yet.
//!
//! A source and its target may fail together at the end of a move, or a replica of the source may win an election at that moment. The
//! winner of the source's shard then claims the slot as its predecessor had it, perhaps with a greater epoch than the target's. It has no
//! keys of a slot that has moved key by key, and lacks the last writes to one that has moved as a whole. Epochs alone would give it the slot,
//! and the target would delete the keys.
//!
//! The nodes of the target's shard therefore remember the source for some node timeouts. A primary that loses such a slot to another node of
//! the source's shard takes a new epoch, and keeps the slot. It does so once for each import, so two shards do not raise their epochs
//! against each other for ever. A replica leaves the slot with its primary, so that it takes the slot over with the primary's place.
//!
//! A move back begins at the owner, which forgets the import. Its replicas forget it, too, if the slot moves key by key. They learn nothing of
//! a move of whole slots, whose target claims the slots itself: a claim of the source is therefore a move back. It is none at a primary
//! for a slot that has moved key by key: a source that takes an epoch for another reason at that moment claims the slot again.
//!
//! A winner of the source's shard serves slots that have moved as a whole, and takes writes. Only a primary that has been in touch with the
//! majority all the time keeps such slots: the winner has not served them for long.
//!
//! nodes.conf keeps a primary's imports of slots that have moved key by key. A target that starts again cannot tell a move back, which a
//! successor of its own may have begun, from a claim of a winner that knows of no import. Such a target lets the slot go by the epoch, and
//! opens the import again instead of deleting the keys. The winner's slot is still migrating to this node, so the winner has taken no write to
//! the missing keys, and an operator's tool can end the move again.
//!
//! A winner of the target's own shard has executed the end of an import before the target did. A target that hears of such a winner first
//! forgets the imports from nodes.conf: the winner may have moved the slot back, and the copies of the keys are old.
//!
//! A restart needs no memory of other imports. A slot that has moved as a whole loses the writes of the target's last moment at most, which no
//! replica of the winner's shard could have: the winner has all others. A replica that starts again has no data of its primary's present
//! history, and takes no place before a full copy has come from the primary.

use std::collections::BTreeMap;

use crate::id::{NodeId, ShardId};
use crate::io::{Action, Level};
use crate::machine::{Machine, OpenSlot};
use crate::node::NodeKey;
use crate::rules::Rule;
use crate::slots::{Slot, SlotSet};
use crate::view::ClusterState;

/// Node timeouts for which an import is remembered: all nodes know the new owner by then.
const REMEMBERED_TIMEOUTS: u64 = 2;

/// The kind of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MoveKind {
    /// SETSLOT and MIGRATE. The source redirects commands for missing keys until it knows the end.
    ByKey,
    /// MIGRATESLOTS.
    Whole,
}

/// A slot that this shard has imported.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    kind: MoveKind,
    source: NodeId,
    shard: ShardId,
    /// The time of the end of the import, or of the last failover of this shard.
    since_ms: u64,
    /// On a replica: true once a header of the primary has shown the slot.
    is_shown: bool,
    /// On a replica: the time since which the source's shard claims the slot.
    disputed_ms: Option<u64>,
    /// True if the import comes from nodes.conf.
    is_restored: bool,
}

/// Slots from one source, as nodes.conf keeps their import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SavedImport {
    pub(crate) slots: SlotSet,
    pub(crate) source: NodeId,
    pub(crate) shard: ShardId,
}

impl Machine {
    /// The imports for nodes.conf.
    pub(crate) fn imports_to_save(&self) -> Vec<SavedImport> {
        let me = self.me();
        let mut saved: Vec<SavedImport> = Vec::new();
        for (slot, import) in &self.imported {
            if import.kind != MoveKind::ByKey || self.table.owner(*slot) != Some(me) {
                continue;
            }
            let slots = match saved.iter_mut().find(|of| (of.source, of.shard) == (import.source, import.shard)) {
                Some(of) => &mut of.slots,
                None => {
                    let (slots, source, shard) = (SlotSet::EMPTY, import.source, import.shard);
                    &mut saved.push_mut(SavedImport { slots, source, shard }).slots
                }
            };
            slots.insert(*slot);
        }
        saved
    }

    /// Remembers the imports of nodes.conf, if this node still has the slots.
    pub(crate) fn restore_imports(&mut self, saved: &[SavedImport]) {
        for SavedImport { slots, source, shard } in saved {
            let mut own = slots.clone();
            own.intersect(&self.table.myself().slots);
            for slot in own.iter() {
                let (kind, source, shard) = (MoveKind::ByKey, *source, *shard);
                let import =
                    Import { kind, source, shard, since_ms: 0, is_shown: false, disputed_ms: None, is_restored: true };
                self.imported.insert(slot, import);
            }
        }
    }

    /// The slots among these whose import a restart has brought back, and which a node of their source's shard takes.
    pub(crate) fn restored_imports(&self, claimer: NodeKey, taken: &SlotSet) -> SlotSet {
        let shard = self.table[claimer].shard;
        let may_keep = self.table.myself().is_primary() && self.rules.hold(Rule::FinishedImports);
        let is_lost = |(slot, import): &(&Slot, &Import)| {
            may_keep && import.is_restored && import.shard == shard && taken.contains(**slot)
        };
        self.imported.iter().filter(is_lost).map(|(slot, _)| *slot).collect()
    }

    /// Opens imports again whose slots a node of the source's shard has taken. The keys stay here.
    pub(crate) fn reopen_imports(&mut self, claimer: NodeKey, slots: &SlotSet) {
        if slots.is_empty() {
            return;
        }
        let text = format!(
            "Importing slots {slots} again: node {} has them, and does not know that they have moved. The keys are here. \
             CLUSTER SETSLOT NODE or redis-cli --cluster fix ends the move",
            self.name(claimer)
        );
        self.log(Level::Warning, text);
        slots.iter().for_each(|slot| _ = self.open.insert(slot, OpenSlot::Importing(claimer)));
        self.changed();
        // A snapshot for a replica that is cut from now on shows the imports.
        self.show_view();
        self.tell_replicas(slots);
        let again_ms = self.now.ms + self.config.node_timeout_ms;
        self.reopened.extend(slots.iter().map(|slot| (slot, again_ms)));
    }

    /// Has the replicas hear of the imports in nodes.conf. This node may have opened one again, and have failed before it told them.
    pub(crate) fn tell_of_loaded_imports(&mut self) {
        let imports = self.open.iter().filter(|(_, open)| matches!(open, OpenSlot::Importing(_)));
        self.reopened = imports.map(|(slot, _)| (*slot, 0)).collect();
    }

    /// Tells the replicas of imports once more. A header of this primary that it sent before it lost the slots may have come after the first
    /// message: to the replica it was the end of the import.
    pub(crate) fn tell_replicas_again(&mut self) {
        let now_ms = self.now.ms;
        if self.state != ClusterState::Ok {
            // After a restart, the replicas connect first.
            let again_ms = now_ms + self.config.node_timeout_ms;
            self.reopened.values_mut().for_each(|at_ms| *at_ms = again_ms);
        }
        let due: SlotSet = self.reopened.iter().filter(|(_, at_ms)| **at_ms <= now_ms).map(|(slot, _)| *slot).collect();
        if !due.is_empty() {
            self.reopened.retain(|slot, _| !due.contains(*slot));
            self.tell_replicas(&due);
        }
    }

    /// Tells the replicas of the imports among these slots. A replica that takes this node's place would delete the keys otherwise.
    fn tell_replicas(&mut self, slots: &SlotSet) {
        let mut imports: BTreeMap<NodeId, SlotSet> = BTreeMap::new();
        for slot in slots.iter().filter(|_| self.table.myself().is_primary()) {
            if let Some(OpenSlot::Importing(source)) = self.open.get(&slot) {
                imports.entry(self.table[*source].id).or_default().insert(slot);
            }
        }
        let actions =
            imports.into_iter().map(|(source, slots)| Action::TellReplicas { slots: Box::new(slots), source });
        self.actions.extend(actions);
    }

    /// Remembers the end of an import.
    pub(crate) fn note_import(&mut self, slot: Slot, source: NodeKey, kind: MoveKind) {
        let (me, node) = (self.me(), &self.table[source]);
        if !self.table.same_shard(source, me) && self.rules.hold(Rule::FinishedImports) {
            let (source, shard, since_ms) = (node.id, node.shard, self.now.ms);
            let import =
                Import { kind, source, shard, since_ms, is_shown: false, disputed_ms: None, is_restored: false };
            self.imported.insert(slot, import);
        }
    }

    /// Forgets imports of slots that move on, or that this shard gives up.
    pub(crate) fn forget_imports(&mut self, slots: &SlotSet) {
        self.imported.retain(|slot, _| !slots.contains(*slot));
    }

    /// Forgets the imports that a restart has brought back, because a node of this shard has won this node's place meanwhile. It was a replica, and
    /// has executed the end of the imports before this node. A later claim of the source's shard is a move back, which the winner has ended.
    pub(crate) fn leave_imports_to_successor(&mut self) {
        if self.rules.hold(Rule::FinishedImports) && self.table.myself().is_primary() {
            self.imported.retain(|_, import| !import.is_restored);
        }
    }

    /// Remembers the imports for longer, because this node has just taken its primary's place.
    pub(crate) fn renew_imports(&mut self) {
        let since_ms = self.now.ms;
        for import in self.imported.values_mut() {
            (import.since_ms, import.disputed_ms) = (since_ms, None);
        }
    }

    /// Forgets imports that all nodes know. While the primary of a replica does not answer, other nodes may not have heard of them. A node that
    /// has started again hears of the present owners once it finds a majority.
    pub(crate) fn expire_imports(&mut self) {
        let waits = self.table.myself().primary().is_some_and(|primary| self.is_unwell(primary));
        let time_ms = REMEMBERED_TIMEOUTS * self.config.node_timeout_ms;
        if self.state != ClusterState::Ok {
            let restored = self.imported.values_mut().filter(|import| import.is_restored);
            restored.for_each(|import| import.since_ms = self.now.ms);
        }
        let by_key = |imports: &Imports| imports.values().filter(|import| import.kind == MoveKind::ByKey).count();
        let count = by_key(&self.imported);
        self.imported.retain(|_, import| match import.disputed_ms {
            Some(disputed_ms) => self.now.ms <= disputed_ms + time_ms,
            None => waits || self.now.ms <= import.since_ms + time_ms,
        });
        self.saves.dirty |= by_key(&self.imported) < count && self.table.myself().is_primary();
    }

    /// On a replica: compares the imports with the slots that the primary claims. The primary needs a moment to claim a slot, and has given up
    /// a slot that it claims no more.
    pub(crate) fn compare_imports(&mut self, claimed: &SlotSet) {
        let (now_ms, timeout_ms) = (self.now.ms, self.config.node_timeout_ms);
        self.imported.retain(|slot, import| {
            let is_claimed = claimed.contains(*slot);
            let is_pending = !import.is_shown && now_ms <= import.since_ms + timeout_ms;
            import.is_shown |= is_claimed;
            is_claimed || is_pending
        });
    }

    /// The slots of this shard among these that a claim must not take, because the claimer does not know of their import.
    pub(crate) fn kept_imports(&self, claimer: NodeKey, taken: &SlotSet) -> SlotSet {
        let keeper = self.table.myself().primary().unwrap_or(self.me());
        let is_kept = |(slot, import): &(&Slot, &Import)| {
            taken.contains(**slot)
                && !import.is_restored
                && self.table.owner(**slot) == Some(keeper)
                && !self.table.unclaimed.contains(**slot)
                && self.is_unaware(claimer, import)
        };
        self.imported.iter().filter(is_kept).map(|(slot, _)| *slot).collect()
    }

    /// Returns true if a claim of a node is no move back, and if this node may take a greater epoch.
    fn is_unaware(&self, claimer: NodeKey, import: &Import) -> bool {
        let (claimer, is_primary) = (&self.table[claimer], self.table.myself().is_primary());
        let has_replaced = claimer.id != import.source;
        let may_keep = match import.kind {
            MoveKind::ByKey => has_replaced || is_primary,
            MoveKind::Whole => has_replaced && is_primary && !self.was_cut_off_since(import.since_ms),
        };
        claimer.shard == import.shard && may_keep
    }

    /// Keeps slots that a node of their source's shard claims.
    pub(crate) fn keep_imports(&mut self, claimer: NodeKey, epoch: u64, kept: &SlotSet) {
        if kept.is_empty() {
            return;
        }
        self.current_epoch = self.current_epoch.max(epoch);
        match self.table.myself().is_primary() {
            // The target of another move may be claiming slots with the next epoch. The claim comes again with the next header.
            true if self.granted.is_some() => {}
            true => {
                let name = self.name(claimer);
                let text =
                    format!("Keeping slots {kept}: node {name} claims them, and does not know that they have moved");
                self.log(Level::Warning, text);
                self.forget_imports(kept);
                self.take_new_epoch();
            }
            false => self.dispute_imports(kept),
        }
    }

    /// Notes on a replica that the source's shard claims slots of the primary. Voters refuse a request with these slots, so an election under way
    /// begins anew without them.
    fn dispute_imports(&mut self, kept: &SlotSet) {
        let now_ms = self.now.ms;
        let undisputed =
            self.imported.iter_mut().filter(|(slot, import)| kept.contains(**slot) && import.disputed_ms.is_none());
        let count = undisputed.map(|(_, import)| import.disputed_ms = Some(now_ms)).count();
        if count > 0 && self.election.is_under_way() {
            self.forget_election();
            self.todo.failover = true;
        }
    }

    /// Slots that voters bind to a winner of the source's shard. A request for votes leaves them out.
    pub(crate) fn disputed_imports(&self) -> impl Iterator<Item = Slot> {
        self.imported.iter().filter(|(_, import)| import.disputed_ms.is_some()).map(|(slot, _)| *slot)
    }
}

/// Imports by their slots.
pub(crate) type Imports = BTreeMap<Slot, Import>;
