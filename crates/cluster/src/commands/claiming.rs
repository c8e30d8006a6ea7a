//! The end of a move of whole slots: the source grants them, the target claims them, and its replicas learn of the claim from its stream.
//!
//! The epoch of the claim must be above the source's, and no other claim to the slots may have it. The source therefore grants the slots once
//! the target has shown that it knows the source's epoch, and takes no epoch until the claim comes or the source keeps the slots.

use super::{ClusterReply, error};
use crate::imported::MoveKind;
use crate::io::Level;
use crate::machine::Machine;
use crate::reservation::{DISTANCE_MAX, Reserved};
use crate::slots::{Slot, SlotSet};
use crate::wire::Kind;

impl Machine {
    /// Grants slots to the target of a move. The target asks for votes of nobody, and takes the next epoch that it knows.
    pub(super) fn grant_slots(&mut self, slots: &SlotSet, target: &str) -> ClusterReply {
        let me = self.table.myself();
        if !me.is_primary() || !me.slots.is_superset(slots) {
            return error("Slots are no longer owned by myself");
        }
        if self.handover.is_under_way() {
            return error("A failover occurred during slot export");
        }
        let epoch = me.config_epoch;
        let Some(target) = self.named(target).filter(|key| *key != self.me() && self.table[*key].is_primary()) else {
            return error("The target is no primary");
        };
        let node = &self.table[target];
        if node.known_epoch < epoch || node.config_epoch == epoch || !self.shows_all_claims() {
            if let Some(link) = self.link_to(target) {
                self.ping(link, Kind::Ping);
            }
            return ClusterReply::Later;
        }
        self.forget_imports(slots);
        self.granted = Some((target, Box::new(slots.clone())));
        ClusterReply::Ok
    }

    /// Forgets the granted slots.
    pub(super) fn end_grant(&mut self) -> ClusterReply {
        self.granted = None;
        ClusterReply::Ok
    }

    /// Asks for an epoch before the replicas hear of the claim. A claim that fails afterwards would leave them with slots of the source.
    pub(super) fn prepare_claim(&mut self) -> ClusterReply {
        if !self.table.myself().is_primary() {
            return error("A failover occurred during slot import");
        }
        match self.reserve_epoch() {
            Reserved::Asked => ClusterReply::Later,
            Reserved::Granted | Reserved::Impossible => ClusterReply::Ok,
        }
    }

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
        let Some(owner) = owner.filter(|owner| slots.iter().all(|slot| self.table.owner(slot) == Some(*owner))) else {
            return error("Slots are no longer owned by source node");
        };
        // Slots of this node may be claimed with the next epoch at this moment.
        if self.granted.is_some() {
            return ClusterReply::Later;
        }
        self.log(Level::Notice, format!("Taking slots {slots} from node {source}, which has handed them over"));
        let me = self.me();
        for slot in slots.iter() {
            self.open.remove(&slot);
            self.table.bind(slot, me);
            self.note_import(slot, owner, MoveKind::Whole);
        }
        self.take_reserved_epoch();
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
        self.granted = None;
        // The target may have saved a claim in one of the next epochs, and have ended before it told anybody.
        self.current_epoch += DISTANCE_MAX;
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
            self.expect_new_epoch(primary);
        }
        if owner != primary {
            self.forget_imports(slots);
        }
        for slot in slots.iter() {
            if let Some(source) = self.table.owner(slot).filter(|_| owner == primary) {
                self.note_import(slot, source, MoveKind::Whole);
            }
            self.table.bind(slot, owner);
            match owner == primary {
                true => self.promise(slot),
                false => _ = self.table.promised.remove(slot),
            }
        }
        self.changed();
        ClusterReply::Ok
    }

    /// Notes on a replica that its primary claims a slot in a moment.
    pub(super) fn promise(&mut self, slot: Slot) {
        self.table.promised.insert(slot);
        self.promised_ms = self.now.ms;
    }
}
