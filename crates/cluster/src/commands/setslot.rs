//! CLUSTER SETSLOT.

use super::{ClusterReply, SetSlot, error, unknown};
use crate::imported::MoveKind;
use crate::io::Level;
use crate::machine::{Machine, OpenSlot};
use crate::node::NodeKey;
use crate::slots::Slot;

const NOT_PRIMARY: &str = "Please use SETSLOT only with masters.";
const TARGET_NOT_PRIMARY: &str = "Target node is not a master";

impl Machine {
    pub(super) fn set_slot(
        &mut self,
        slot: Slot,
        change: &SetSlot,
        has_keys: bool,
        from_primary: bool,
    ) -> ClusterReply {
        if !self.table.myself().is_primary() && !from_primary {
            return error(NOT_PRIMARY);
        }
        let target = match self.target_of(slot, change, has_keys, from_primary) {
            Ok(target) => target,
            Err(reply) => return reply,
        };
        self.redirected.remove(&slot);
        let my_primary = self.table.myself().primary().unwrap_or(self.me());
        if *change != SetSlot::Stable && target != Some(my_primary) {
            self.imported.remove(&slot);
        }
        match (change, target) {
            (SetSlot::Migrating(_), Some(to)) => {
                self.log(Level::Notice, format!("Migrating slot {slot} to node {}", self.name(to)));
                self.open.insert(slot, OpenSlot::Migrating(to));
            }
            (SetSlot::Importing(_), Some(from)) => {
                self.log(Level::Notice, format!("Importing slot {slot} from node {}", self.name(from)));
                self.open.insert(slot, OpenSlot::Importing(from));
            }
            (SetSlot::Node(_), Some(to)) => self.assign_to(slot, to, has_keys),
            (SetSlot::Stable, _) | (_, None) => _ = self.open.remove(&slot),
        }
        self.changed();
        ClusterReply::Ok
    }

    /// Returns the reply that SETSLOT would have, without a change.
    pub(super) fn check_set_slot(&self, slot: Slot, change: &SetSlot, has_keys: bool) -> ClusterReply {
        if !self.table.myself().is_primary() {
            return error(NOT_PRIMARY);
        }
        self.target_of(slot, change, has_keys, false).map_or_else(|reply| reply, |_| ClusterReply::Ok)
    }

    /// Checks a change, and returns the node that it names. This node's primary has checked its changes itself, and its node may have become a
    /// replica since.
    fn target_of(
        &self,
        slot: Slot,
        change: &SetSlot,
        has_keys: bool,
        from_primary: bool,
    ) -> Result<Option<NodeKey>, ClusterReply> {
        let is_mine = self.table.owner(slot) == Some(self.me());
        let target = match change {
            SetSlot::Stable => return Ok(None),
            SetSlot::Migrating(_) if self.table.myself().is_primary() && !is_mine => {
                return Err(ClusterReply::Error(format!("I'm not the owner of hash slot {slot}")));
            }
            SetSlot::Importing(_) if is_mine => {
                return Err(ClusterReply::Error(format!("I'm already the owner of hash slot {slot}")));
            }
            SetSlot::Migrating(node) | SetSlot::Importing(node) if from_primary => {
                self.named(node).filter(|key| *key != self.me()).ok_or_else(|| unknown(node))?
            }
            SetSlot::Migrating(node) => self.lasting_primary(node)?,
            SetSlot::Importing(node) => self.other_primary(node)?,
            SetSlot::Node(node) => self.primary_named(node, unknown(node))?,
        };
        if matches!(change, SetSlot::Node(_)) && has_keys && is_mine && target != self.me() {
            return Err(ClusterReply::Error(format!(
                "Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
            )));
        }
        Ok(Some(target))
    }

    /// The primary of a name.
    fn primary_named(&self, node: &str, unknown: ClusterReply) -> Result<NodeKey, ClusterReply> {
        let key = self.named(node).ok_or(unknown)?;
        match self.table[key].is_primary() {
            true => Ok(key),
            false => Err(error(TARGET_NOT_PRIMARY)),
        }
    }

    /// The target of a migrating slot. A node that a failover has replaced may not know it yet. The keys would be lost there: they are not at its
    /// successor, whose replica it becomes.
    fn lasting_primary(&self, node: &str) -> Result<NodeKey, ClusterReply> {
        let key = self.other_primary(node)?;
        let target = &self.table[key];
        let is_replaced = target.is_replaced && target.slot_count == 0;
        if is_replaced { Err(error(TARGET_NOT_PRIMARY)) } else { Ok(key) }
    }

    /// The other end of an open slot.
    fn other_primary(&self, node: &str) -> Result<NodeKey, ClusterReply> {
        let unknown = ClusterReply::Error(format!("I don't know about node {node}"));
        match self.named(node) == Some(self.me()) {
            true => Err(error("Target node is myself")),
            false => self.primary_named(node, unknown),
        }
    }

    fn assign_to(&mut self, slot: Slot, to: NodeKey, has_keys: bool) {
        let me = self.me();
        self.log(Level::Notice, format!("Assigning slot {slot} to node {}", self.name(to)));
        if !has_keys && matches!(self.open.get(&slot), Some(OpenSlot::Migrating(_))) {
            self.open.remove(&slot);
        }
        let my_primary = self.table.myself().primary().unwrap_or(me);
        let was_mine = self.table.owner(slot) == Some(my_primary);
        self.table.bind(slot, to);
        if to != me && to == my_primary {
            self.promise(slot);
        }
        if was_mine && self.table[my_primary].slot_count == 0 {
            self.lose_last_slot(to);
        }
        self.end_import(slot, to);
    }

    /// Handles the loss of this shard's last slot: its nodes become replicas of the new owner, if the directives allow
    /// it.
    fn lose_last_slot(&mut self, to: NodeKey) {
        if self.config.allow_replica_migration {
            let text = format!("Lost my last slot. Reconfiguring myself as a replica of {}", self.name(to));
            self.log(Level::Notice, text);
            self.follow(to, true, true);
        } else if self.table.myself().is_primary() {
            let text = format!("My last slot was migrated to node {}. I am now an empty primary.", self.name(to));
            self.log(Level::Notice, text);
        }
    }

    /// Ends the import of a slot. The target takes a new epoch, so that its claim wins everywhere. A replica of the target keeps the marker until
    /// the target claims the slot: the target may fail before. The replica has the keys then, and claims the slot when it takes the target's place.
    fn end_import(&mut self, slot: Slot, to: NodeKey) {
        let is_mine = to == self.me() || self.table.myself().primary() == Some(to);
        let Some(OpenSlot::Importing(source)) = self.open.get(&slot).copied().filter(|_| is_mine) else { return };
        self.note_import(slot, source, MoveKind::ByKey);
        if to == self.me() {
            self.open.remove(&slot);
            if self.must_bump(self.table.myself().config_epoch) {
                self.take_reserved_epoch();
            }
            self.todo.broadcast = true;
        } else {
            self.expect_bump(to);
            self.finished.insert(slot, (self.current_epoch, self.now.ms));
        }
    }
}
