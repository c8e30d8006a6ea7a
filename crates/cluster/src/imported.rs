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

use std::collections::BTreeMap;

use crate::id::{NodeId, ShardId};
use crate::io::Level;
use crate::machine::Machine;
use crate::node::NodeKey;
use crate::rules::Rule;
use crate::slots::{Slot, SlotSet};

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
}

impl Machine {
    /// Remembers the end of an import.
    pub(crate) fn note_import(&mut self, slot: Slot, source: NodeKey, kind: MoveKind) {
        let (me, node) = (self.me(), &self.table[source]);
        if !self.table.same_shard(source, me) && self.rules.hold(Rule::FinishedImports) {
            let (source, shard, since_ms) = (node.id, node.shard, self.now.ms);
            let import = Import { kind, source, shard, since_ms, is_shown: false, disputed_ms: None };
            self.imported.insert(slot, import);
        }
    }

    /// Forgets imports of slots that move on, or that this shard gives up.
    pub(crate) fn forget_imports(&mut self, slots: &SlotSet) {
        self.imported.retain(|slot, _| !slots.contains(*slot));
    }

    /// Remembers the imports for longer, because this node has just taken its primary's place.
    pub(crate) fn renew_imports(&mut self) {
        let since_ms = self.now.ms;
        for import in self.imported.values_mut() {
            (import.since_ms, import.disputed_ms) = (since_ms, None);
        }
    }

    /// Forgets imports that all nodes know. While the primary of a replica does not answer, other nodes may not have heard of them.
    pub(crate) fn expire_imports(&mut self) {
        let waits = self.table.myself().primary().is_some_and(|primary| self.is_unwell(primary));
        let time_ms = REMEMBERED_TIMEOUTS * self.config.node_timeout_ms;
        self.imported.retain(|_, import| match import.disputed_ms {
            Some(disputed_ms) => self.now.ms <= disputed_ms + time_ms,
            None => waits || self.now.ms <= import.since_ms + time_ms,
        });
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
