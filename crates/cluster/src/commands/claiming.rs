//! The end of a move of whole slots: the target claims them, and its replicas learn of the claim from its stream.

use super::{ClusterReply, error};
use crate::io::Level;
use crate::machine::Machine;
use crate::slots::SlotSet;

impl Machine {
    /// Binds slots of the source to this primary, with an epoch above the source's. The claim is on disk before any message or
    /// view shows it, like each change of this node's slots.
    pub(super) fn claim_slots(&mut self, slots: &SlotSet, source: &str) -> ClusterReply {
        if !self.table.myself().is_primary() {
            return error("A failover occurred during slot import");
        }
        let owner = self.named(source);
        // The caller asks again if it has missed the answer.
        if self.table.myself().slots.is_superset(slots) {
            return ClusterReply::Ok;
        }
        if owner.is_none() || slots.iter().any(|slot| self.table.owner(slot) != owner) {
            return error("Slots are no longer owned by source node");
        }
        self.log(Level::Notice, format!("Taking slots {slots} from node {source}, which has handed them over"));
        let me = self.me();
        for slot in slots.iter() {
            self.open.remove(&slot);
            self.table.bind(slot, me);
        }
        let source_epoch = owner.map_or(0, |owner| self.table.epoch(owner));
        self.bump_epoch();
        if self.table.myself().config_epoch <= source_epoch {
            self.take_new_epoch();
        }
        self.changed();
        self.todo.broadcast = true;
        ClusterReply::Ok
    }

    /// Takes an epoch above the one that the target of a move may have taken for its claim. The target's claim, or the one of its replica that
    /// wins an election, has no effect from then on: each of them has heard of this epoch before it claims, or claims with a smaller one.
    pub(super) fn keep_slots(&mut self, slots: &SlotSet) -> ClusterReply {
        let me = self.table.myself();
        if !me.is_primary() || !me.slots.is_superset(slots) {
            return error("Slots are no longer owned by myself");
        }
        // The target may have saved a claim in the next epoch, and have ended before it told anybody.
        self.current_epoch += 1;
        self.take_new_epoch();
        ClusterReply::Ok
    }

    /// Binds slots as the stream of this replica's primary says. A replica that takes its primary's place then has the primary's
    /// slots, even if the primary ended before it told the other nodes.
    pub(super) fn note_owner(&mut self, slots: &SlotSet, owner: Option<&str>) -> ClusterReply {
        let Some(primary) = self.table.myself().primary() else { return ClusterReply::Ok };
        let named = match owner {
            Some(name) => self.named(name),
            None => Some(primary),
        };
        let Some(owner) = named else { return ClusterReply::Ok };
        if owner == primary {
            self.expect_bump(primary);
        }
        for slot in slots.iter() {
            self.table.bind(slot, owner);
            match owner == primary {
                true => _ = self.table.promised.insert(slot),
                false => _ = self.table.promised.remove(slot),
            }
        }
        self.changed();
        ClusterReply::Ok
    }
}
