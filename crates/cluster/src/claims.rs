//! Claims: a node's role, its slots, and the epoch that decides between two claims to one slot. This module makes the own claims and takes
//! over the claims in the headers of other nodes.

use std::sync::Arc;

use crate::id::NodeId;
use crate::io::{Action, Level};
use crate::machine::{Machine, OpenSlot};
use crate::node::{Health, Node, NodeKey};
use crate::rules::Rule;
use crate::slots::{Slot, SlotSet};
use crate::view::ClusterState;
use crate::wire::Header;

/// The shortest time for which a replica expects the claim of slots that its stream has promised to its primary. A target claims slots within
/// two seconds, and needs some time to save the claim.
const PROMISE_MIN_MS: u64 = 5000;

/// The claims that a header shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claims {
    /// The epoch of the slots.
    pub(crate) config_epoch: u64,
    /// The slots.
    pub(crate) slots: Arc<SlotSet>,
    /// The primary, for a replica.
    pub(crate) primary: Option<NodeId>,
}

impl Machine {
    /// This node's claims; a replica shows its primary's.
    pub(crate) fn current_claims(&self) -> Claims {
        let primary = self.table.myself().primary();
        let source = primary.unwrap_or(self.me());
        Claims {
            config_epoch: self.table[source].config_epoch,
            slots: self.known_claims(source),
            primary: primary.map(|primary| self.table[primary].id),
        }
    }

    /// The slots of a node without those that a replica's stream has promised to its primary at the end of a move of whole slots. The primary
    /// claims them in a moment, or never: it may have failed before its claim was on disk, and its source keeps the slots then. Slots that
    /// have moved key by key are at the primary in either case.
    pub(crate) fn known_claims(&self, key: NodeKey) -> Arc<SlotSet> {
        let mut slots = Arc::clone(&self.table[key].slots);
        if slots.intersects(&self.table.promised) {
            Arc::make_mut(&mut slots).subtract(&self.promised_as_whole());
        }
        slots
    }

    pub(crate) fn promised_as_whole(&self) -> SlotSet {
        if !self.rules.hold(Rule::PromisedSlots) {
            return SlotSet::EMPTY;
        }
        let mut promised = self.table.promised.clone();
        self.finished.keys().for_each(|slot| _ = promised.remove(*slot));
        promised
    }

    /// The claims that others may see: those on disk, without slots that are lost.
    pub(crate) fn shown_claims(&self) -> Claims {
        let mut claims = self.current_claims();
        if claims.primary.is_some() || !self.rules.hold(Rule::SaveBeforeSend) {
            return claims;
        }
        match self.saves.durable() {
            None => Claims { config_epoch: 0, slots: Arc::default(), primary: None },
            Some(durable) if durable.primary.is_some() => durable.clone(),
            Some(durable) => {
                if !durable.slots.is_superset(&claims.slots) {
                    Arc::make_mut(&mut claims.slots).intersect(&durable.slots);
                }
                Claims { config_epoch: durable.config_epoch, ..claims }
            }
        }
    }

    /// This node's own slots that others may see.
    pub(crate) fn shown_slots(&self) -> SlotSet {
        let claims = self.shown_claims();
        if claims.primary.is_none() { (*claims.slots).clone() } else { SlotSet::EMPTY }
    }

    /// True if others may see everything that this node claims.
    pub(crate) fn shows_all_claims(&self) -> bool {
        self.shown_claims() == self.current_claims()
    }

    /// Takes over the role and the slots that a header claims for its sender. A stale header changes nothing, and a stale primary is
    /// told of the newer claims.
    ///
    /// `is_present`: the sender has sent the header after all of its claims that are known here.
    pub(crate) fn take_role_and_slots(&mut self, sender: NodeKey, header: &Header, is_present: bool) {
        let named = header.primary.and_then(|primary| self.table.find(&primary));
        let is_present = is_present && self.rules.hold(Rule::PresentClaims);
        if is_present && header.primary.is_none() {
            self.forget_epoch(sender, header.config_epoch);
        }
        if self.is_stale(sender, named, header, is_present) {
            if header.primary.is_none() {
                self.correct(sender, header);
            }
            self.remind(sender, header);
            return;
        }
        self.table[sender].note_claims();
        if header.primary.is_some() || header.slots.is_empty() {
            self.table[sender].is_replaced = false;
        }
        let was_replica = !self.table[sender].is_primary();
        match header.primary {
            None => self.take_primary(sender, header.config_epoch),
            Some(_) => self.take_replica(sender, named, header),
        }
        if header.primary.is_some() {
            return;
        }
        self.close_imports_of_primary(sender, &header.slots);
        // A slot can be marked as unclaimed while its owner keeps it. A new claim clears the mark, although the sets are equal.
        let reclaims = self.table.unclaimed.intersects(&header.slots);
        if was_replica || reclaims || self.table[sender].slots != header.slots {
            self.take_slots(sender, header.config_epoch, &header.slots);
            self.correct(sender, header);
        }
        if was_replica {
            self.follow_winner_of_targets(sender, header.config_epoch, &header.slots);
        }
        self.resolve_collision(sender, header);
    }

    /// Returns true if a header is stale: this node knows a greater epoch than the header's.
    ///
    /// The known epoch depends on the sender's claim:
    /// - A primary with slots: the greater of its own last epoch and its shard's, because it may have become a replica since. If the header is
    ///   the present one (`is_present`), the sender is no replica, and its own epoch alone counts.
    /// - A primary without slots claims nothing, and may have been reset. Its header is never stale.
    /// - A replica of a primary in its own shard: the greater of both nodes' epochs. The epoch of a replica that was a primary without slots,
    ///   after a reset, has no meaning.
    /// - A replica of a primary in another shard: that primary's epoch. The replica was moved, so its own old epoch has no meaning.
    /// - A replica of an unknown primary: nothing is known, and its header is never stale.
    ///
    /// The shard's epoch alone would make headers stale for ever. A primary may keep a slot while a replica wins the others, and a node that has
    /// missed the election of this primary takes it for a replica with the winner's epoch. A crash also makes a node forget that it
    /// has become a replica, if it could not save that.
    fn is_stale(&self, sender: NodeKey, named: Option<NodeKey>, header: &Header, is_present: bool) -> bool {
        let epoch = |key: NodeKey| self.table[key].config_epoch;
        let known = match (header.primary, named) {
            (None, _) if header.slots.is_empty() => 0,
            (None, _) if is_present => epoch(sender),
            (None, _) => epoch(sender).max(self.table.epoch(sender)),
            (Some(_), None) => 0,
            (Some(_), Some(primary)) if self.table[primary].is_primary() && self.table[sender].slot_count == 0 => {
                epoch(primary)
            }
            (Some(_), Some(primary)) if self.table.same_shard(sender, primary) => epoch(sender).max(epoch(primary)),
            (Some(_), Some(primary)) => epoch(primary),
        };
        known > header.config_epoch && self.rules.hold(Rule::StaleHeaders)
    }

    /// Gives up a greater epoch of a node without slots: the node has forgotten it, or it was the epoch of its primary. A primary with slots is
    /// told of its own epoch instead ([`Machine::remind`]), because the slots are bound with it.
    fn forget_epoch(&mut self, sender: NodeKey, epoch: u64) {
        let node = &mut self.table[sender];
        if node.slot_count == 0 && node.config_epoch > epoch {
            node.config_epoch = epoch;
            self.changed();
        }
    }

    fn take_primary(&mut self, sender: NodeKey, epoch: u64) {
        if !self.table[sender].is_primary() {
            self.log(Level::Notice, format!("Node {} is now a primary.", self.name(sender)));
            self.table.promote(sender);
            self.changed();
        }
        if epoch > self.table[sender].config_epoch {
            self.take_epoch(sender, epoch);
            if self.table[sender].health == Health::Suspected {
                self.recover(sender);
            }
            self.changed();
            self.restart_overtaken_election(epoch, "a claim");
        }
    }

    /// Notes that a node is a replica. Its primary may be unknown, or may have won an election that this node has missed.
    fn take_replica(&mut self, sender: NodeKey, primary: Option<NodeKey>, header: &Header) {
        let Some(primary) = primary else {
            return self.take_replica_of_unknown(sender);
        };
        if self.table[sender].primary() == Some(primary) {
            return;
        }
        let same_shard = self.table.same_shard(sender, primary);
        if self.table[sender].is_primary() {
            let is_news = !self.table[primary].is_primary() || header.config_epoch > self.table[primary].config_epoch;
            if same_shard && primary != self.me() && is_news {
                self.table.promote(primary);
                self.take_epoch(primary, header.config_epoch);
                // Slots of a replica would not count for the majority until the primary's own header arrives.
                self.take_slots(primary, header.config_epoch, &header.slots);
            } else if !same_shard {
                self.unbind_all(sender);
            }
        }
        if self.table.closes_cycle(sender, primary) {
            return;
        }
        let text = format!("Node {} is now a replica of node {}", self.name(sender), self.name(primary));
        self.log(Level::Notice, text);
        self.table.demote(sender, Some(primary));
        if self.table[primary].is_primary() {
            // The primary has claimed its slots in this epoch. A slot that it does not know was given up, and anybody may claim it: a
            // replica's epoch would outlive the claim.
            self.unbind_all(sender);
        }
        self.changed();
        self.follow_primary_of_primary();
    }

    fn take_replica_of_unknown(&mut self, sender: NodeKey) {
        if self.table[sender].is_primary() {
            self.unbind_all(sender);
            self.table.demote(sender, None);
            self.changed();
        }
    }

    pub(crate) fn unbind_all(&mut self, key: NodeKey) {
        self.table.unbind_all(key);
    }

    /// Makes this node, as a replica of a replica, follow the primary of both.
    fn follow_primary_of_primary(&mut self) {
        let above = self.table.myself().primary().and_then(|primary| self.table[primary].primary());
        if let Some(above) = above.filter(|above| *above != self.me()) {
            let (above_name, primary) = (self.table[above].id, self.table.myself().primary());
            let below = primary.map(|primary| self.table[primary].id.to_string()).unwrap_or_default();
            let text = format!("I'm a sub-replica! Reconfiguring myself as a replica of {above_name} from {below}");
            self.log(Level::Notice, text);
            // Within the shard a move of a slot goes on. A replica without the marker would delete the keys of an import when it wins.
            let full = !self.table.same_shard(above, self.me());
            self.follow(above, full, full);
        }
    }

    /// Tells a node with an old claim to a slot the slot's present owner.
    fn correct(&mut self, sender: NodeKey, header: &Header) {
        let mut disputed = (*header.slots).clone();
        disputed.subtract(&self.table[sender].slots);
        disputed.subtract(&self.promised_as_whole());
        let owner = disputed.iter().find_map(|slot| {
            let owner = self.table.owner(slot).filter(|_| !self.table.is_unclaimed(slot))?;
            (self.table[owner].config_epoch > header.config_epoch).then_some(owner)
        });
        if let Some(owner) = owner.filter(|_| self.rules.hold(Rule::UpdateOldClaims)) {
            self.send_update(sender, owner);
        }
    }

    /// Tells a primary of its own claims if it shows older ones. With `cluster-config-save-behavior best-effort`, a node shows claims that it
    /// could not save, and a crash makes it forget them. Without the reminder all its headers would be stale.
    fn remind(&mut self, sender: NodeKey, header: &Header) {
        let node = &self.table[sender];
        let has_more = node.is_voting() && node.config_epoch > header.config_epoch;
        if has_more && self.rules.hold(Rule::OwnClaims) {
            self.send_update(sender, sender);
        }
    }

    /// Takes over the slots of a node from an UPDATE, which any third node may send.
    pub(crate) fn take_update(&mut self, epoch: u64, node: &NodeId, slots: &SlotSet) {
        let Some(key) = self.table.find(node) else { return };
        if key == self.me() {
            return self.take_claims_back(epoch, slots);
        }
        let known = self.table[key].config_epoch.max(self.table.epoch(key));
        if known == epoch {
            self.complete_moves(key, slots);
        }
        if known >= epoch {
            return;
        }
        let was_replica = !self.table[key].is_primary();
        self.table.promote(key);
        self.take_epoch(key, epoch);
        self.changed();
        self.take_slots(key, epoch, slots);
        if was_replica {
            self.follow_winner_of_targets(key, epoch, slots);
        }
    }

    /// Gives the target of a move the slots that it has according to its replicas. The replicas execute the end of a move first, and the target,
    /// whose epoch need not change, may fail before it does. A failover of this shard would take the slots from it.
    fn complete_moves(&mut self, target: NodeKey, slots: &SlotSet) {
        let has_moved = |slot: &Slot| self.open.get(slot) == Some(&OpenSlot::Migrating(target));
        let mut claimed: SlotSet = slots.iter().filter(has_moved).collect();
        if !claimed.is_empty() && self.table.myself().is_primary() {
            claimed.add(&self.table[target].slots);
            self.take_slots(target, self.table[target].config_epoch, &claimed);
        }
    }

    /// Takes back claims of this node that others know and nodes.conf lacks. Nobody else has this epoch. Slots with a greater epoch have gone
    /// to other nodes since.
    fn take_claims_back(&mut self, epoch: u64, slots: &SlotSet) {
        let me = self.me();
        if epoch <= self.table.myself().config_epoch.max(self.table.epoch(me)) {
            return;
        }
        self.log(Level::Warning, format!("Taking back the claims of epoch {epoch}, which nodes.conf lacks"));
        if !self.table.myself().is_primary() {
            self.table.promote(me);
            self.actions.push(Action::Lead);
            self.end_handover();
            self.forget_election();
        }
        self.table.myself_mut().config_epoch = epoch;
        self.current_epoch = self.current_epoch.max(epoch);
        let taken = self.winnable(me, epoch, slots);
        self.open.retain(|slot, _| !taken.contains(*slot));
        self.table.bind_all(&taken, me);
        self.changed();
        self.todo.broadcast = true;
    }

    /// Takes a new epoch if another primary has this node's epoch and a greater name. The other node keeps its epoch.
    fn resolve_collision(&mut self, sender: NodeKey, header: &Header) {
        let me = self.table.myself();
        let collides = me.is_primary() && self.table[sender].is_primary() && header.config_epoch == me.config_epoch;
        // The target of a move may have claimed slots with the next epoch, so this node takes none before it knows.
        let may_take_epoch = self.granted.is_none();
        if collides && may_take_epoch && me.id < self.table[sender].id && self.rules.hold(Rule::EpochCollision) {
            if self.is_replaced_by(sender, header) {
                return self.yield_slots(sender, header);
            }
            self.take_new_epoch();
            let text = format!("configEpoch collision with node {}", self.name(sender));
            self.log(Level::Notice, text);
        }
    }

    /// Returns true if another node of this shard has probably won the epoch that this node has taken without votes, and told nobody of
    /// before it failed. A greater epoch would take the slots and the writes of the last seconds from the winner. Only the node with the
    /// smaller name resolves a collision, so two nodes never yield to each other.
    fn is_replaced_by(&self, sender: NodeKey, header: &Header) -> bool {
        let me = self.table.myself();
        let has_votes = self.last_vote_epoch == me.config_epoch;
        let is_rival = self.table.same_shard(sender, self.me()) && me.slots.intersects(&header.slots);
        // Two epochs without votes: a node that serves is the better one.
        let serves_alone = self.state == ClusterState::Ok && header.is_down;
        is_rival && !has_votes && !serves_alone && self.rules.hold(Rule::VotesWin)
    }

    /// Leaves the slots that another node claims in the same epoch to that node.
    fn yield_slots(&mut self, winner: NodeKey, header: &Header) {
        let text = format!("Node {} has taken this node's place in the same configEpoch", self.name(winner));
        self.log(Level::Warning, text);
        let mut disputed = (*self.table.myself().slots).clone();
        disputed.intersect(&header.slots);
        self.table.unclaimed.add(&disputed);
        self.take_slots(winner, header.config_epoch, &header.slots);
    }

    /// Notes that this node has an epoch by votes or by an operator's decision. The node itself counts as a voter, so that nodes.conf tells
    /// such an epoch from one without votes after a restart.
    pub(crate) fn vote_for_myself(&mut self, epoch: u64) {
        self.last_vote_epoch = self.last_vote_epoch.max(epoch);
    }

    /// Takes the next epoch, without votes.
    pub(crate) fn take_new_epoch(&mut self) {
        self.current_epoch += 1;
        let epoch = self.current_epoch;
        self.table.myself_mut().config_epoch = epoch;
        self.log(Level::Notice, format!("New configEpoch set to {epoch}"));
        self.changed();
        self.todo.broadcast = true;
    }

    /// Takes an epoch above that of an election, if this primary has taken the election's epoch without votes and has not shown it yet. The
    /// winner and this primary would both claim slots in it.
    pub(crate) fn leave_epoch_to(&mut self, election: u64) {
        let me = self.table.myself();
        let is_shown = self.saves.durable().is_none_or(|durable| durable.config_epoch == me.config_epoch);
        let has_votes = self.last_vote_epoch == me.config_epoch;
        let is_rival = me.is_primary() && me.config_epoch <= election;
        if is_shown || has_votes || !is_rival || !self.rules.hold(Rule::SaveBeforeSend) {
            return;
        }
        self.current_epoch = self.current_epoch.max(election);
        self.take_new_epoch();
        self.saves.hide_save_under_way();
    }

    /// Takes the next epoch unless this node's is the greatest. Returns true if it has taken one.
    pub(crate) fn bump_epoch(&mut self) -> bool {
        let bumps = self.must_bump(self.table.myself().config_epoch);
        if bumps {
            self.take_new_epoch();
        }
        bumps
    }

    /// Returns true if a node with this epoch must take a new one so that its claims win everywhere.
    pub(crate) fn must_bump(&self, epoch: u64) -> bool {
        epoch == 0 || epoch != self.table.greatest_epoch().max(self.current_epoch)
    }

    /// Binds the claimed slots to their claimer, except slots that their owner still claims with at least the same epoch.
    pub(crate) fn take_slots(&mut self, claimer: NodeKey, epoch: u64, claimed: &SlotSet) {
        let me = self.me();
        let my_primary = self.table.myself().primary().unwrap_or(me);
        let (had_slots, had_own) = (self.table[my_primary].slot_count > 0, Arc::clone(&self.table.myself().slots));
        self.note_unclaimed(claimer, claimed);
        let mut taken = self.winnable(claimer, epoch, claimed);
        taken.subtract(&self.outdated_claims(claimer, epoch, &taken));
        let kept = self.kept_imports(claimer, &taken);
        taken.subtract(&kept);
        self.keep_imports(claimer, epoch, &kept);
        let reopened = self.restored_imports(claimer, &taken);
        let superseded = self.superseded_imports(claimer, &taken);
        let takes_mine = taken.intersects(&self.table[my_primary].slots);
        match self.table.same_shard(claimer, me) {
            true if takes_mine => self.leave_imports_to_successor(),
            true => {}
            false => self.forget_imports(&taken),
        }
        for slot in taken.iter() {
            self.redirect_marker(slot, claimer);
        }
        self.granted.take_if(|(_, slots)| slots.intersects(&taken));
        self.note_replaced(claimer, &taken);
        self.table.bind_all(&taken, claimer);
        if !taken.is_empty() {
            self.changed();
        }
        self.unbind_predecessors(claimer);
        self.follow_failovers_of_targets(claimer, epoch, claimed);
        self.reopen_imports(claimer, &reopened);
        let lost_all = had_slots && takes_mine && self.table[my_primary].slot_count == 0;
        let both_empty = self.is_empty_shard_of(claimer, epoch, claimed);
        if (lost_all || both_empty) && reopened.is_empty() && self.follows_winner(claimer) {
            return;
        }
        let mut had = (*had_own).clone();
        had.subtract(&reopened);
        had.add(&superseded);
        self.drop_lost(&had);
    }

    /// Notes the primaries of a claimer's shard that lose their last slots to it: a failover has replaced them. Keys that such a node still takes are
    /// lost with its place.
    fn note_replaced(&mut self, claimer: NodeKey, taken: &SlotSet) {
        let loses_all = |key: &NodeKey| {
            let node = &self.table[*key];
            *key != claimer
                && node.is_voting()
                && self.table.same_shard(*key, claimer)
                && taken.is_superset(&node.slots)
        };
        let replaced: Vec<NodeKey> = self.table.keys().filter(loses_all).collect();
        replaced.into_iter().for_each(|key| self.table[key].is_replaced = true);
    }

    /// Slots that this primary imports, and that another primary of its shard takes. This node has won its place without that primary's last
    /// slots, and has copies of the keys that had moved until then. The other primary has gone on with the move.
    fn superseded_imports(&self, claimer: NodeKey, taken: &SlotSet) -> SlotSet {
        let me = self.me();
        if !self.table.myself().is_primary() || !self.table.same_shard(claimer, me) {
            return SlotSet::EMPTY;
        }
        let imports = self.open.iter().filter(|(_, open)| matches!(open, OpenSlot::Importing(_)));
        imports.map(|(slot, _)| *slot).filter(|slot| taken.contains(*slot)).collect()
    }

    /// Unbinds all slots of a primary's predecessors: nodes of its shard that are now its replicas, or that failed after they had given up
    /// their slots.
    fn unbind_predecessors(&mut self, primary: NodeKey) {
        let is_predecessor = |key: &NodeKey| {
            let node = &self.table[*key];
            let is_other = *key != primary && node.slot_count > 0 && self.table.same_shard(*key, primary);
            let is_replica = node.primary() == Some(primary);
            is_other && (is_replica || node.has_failed() && self.table.unclaimed.is_superset(&node.slots))
        };
        let owners: Vec<NodeKey> = self.table.keys().filter(is_predecessor).collect();
        for key in owners {
            self.unbind_all(key);
            self.changed();
        }
    }

    /// Marks slots as unclaimed that are bound to a node and missing in its last header.
    fn note_unclaimed(&mut self, claimer: NodeKey, claimed: &SlotSet) {
        if !self.rules.hold(Rule::UnclaimedSlots) {
            return;
        }
        let mut given_up = (*self.table[claimer].slots).clone();
        self.table.unclaimed.subtract(&given_up);
        given_up.subtract(claimed);
        if self.table.myself().primary() == Some(claimer) {
            given_up.subtract(&self.table.promised);
            // The primary needs a moment for the end of an import. Longer without a claim, it has not executed the end.
            let timeout_ms = self.config.node_timeout_ms;
            self.finished.retain(|_, (_, finished_ms)| self.now.ms <= *finished_ms + timeout_ms);
            self.finished.keys().for_each(|slot| _ = given_up.remove(*slot));
        }
        self.table.unclaimed.add(&given_up);
    }

    /// Forgets slots that the primary was to claim long ago. It has started again since, and its claim was not on disk.
    fn expire_promises(&mut self) {
        let longest_ms = (2 * self.config.node_timeout_ms).max(PROMISE_MIN_MS);
        if self.now.ms > self.promised_ms + longest_ms && self.rules.hold(Rule::PromisedSlots) {
            self.table.promised = SlotSet::EMPTY;
        }
    }

    /// Returns the claimed slots that the claimer gets: those without an owner, unclaimed ones, and those of an owner with a smaller epoch.
    ///
    /// A slot that moves from this shard to the claimer also goes there for the same epoch. The claimer has taken the epoch without votes at the
    /// end of the move, and has the keys. Meanwhile a replica of the source may have won the same epoch. A source that has granted slots
    /// gives them up in the same way.
    fn winnable(&self, claimer: NodeKey, epoch: u64, claimed: &SlotSet) -> SlotSet {
        let mut others = claimed.clone();
        others.subtract(&self.table[claimer].slots);
        let wins = |slot: &Slot| {
            let owner = self.table.owner(*slot).filter(|_| !self.table.is_unclaimed(*slot));
            // The source of an import has no keys of the slot any more, and may not know it.
            let finished = self.finished.get(slot).map_or(0, |(known_epoch, _)| *known_epoch);
            let is_granted = |(target, slots): &(NodeKey, Box<SlotSet>)| *target == claimer && slots.contains(*slot);
            let has_moved = self.open.get(slot) == Some(&OpenSlot::Migrating(claimer))
                || self.granted.as_ref().is_some_and(is_granted);
            let by_epoch = |owner: NodeKey| {
                let known = self.table[owner].config_epoch.max(finished);
                let completes = has_moved && known == epoch && self.table.same_shard(owner, self.me());
                known < epoch || completes || !self.rules.hold(Rule::GreaterEpochWins)
            };
            owner.is_none_or(by_epoch)
        };
        others.iter().filter(wins).collect()
    }

    /// Updates the marker of an open slot that gets a new owner. A failover of the source leaves the slot importing, from the new primary.
    /// In all other cases the operator has ended the migration, and the marker is removed.
    fn redirect_marker(&mut self, slot: Slot, claimer: NodeKey) {
        let me = self.me();
        match self.open.get(&slot) {
            Some(OpenSlot::Migrating(_)) if !self.table.same_shard(claimer, me) => _ = self.open.remove(&slot),
            Some(OpenSlot::Importing(from)) if *from != claimer => match self.table.same_shard(claimer, *from) {
                true => {
                    self.open.insert(slot, OpenSlot::Importing(claimer));
                    self.redirected.insert(slot);
                }
                false => _ = self.open.remove(&slot),
            },
            _ => {}
        }
    }

    /// Removes the markers and the promises of this replica for slots that its primary has imported.
    fn close_imports_of_primary(&mut self, primary: NodeKey, claimed: &SlotSet) {
        if self.table.myself().primary() == Some(primary) {
            self.close_imports(claimed);
            self.table.promised.subtract(claimed);
            self.expire_promises();
            self.finished.retain(|slot, _| !claimed.contains(*slot));
            self.compare_imports(claimed);
        }
    }

    /// Removes the markers of imports of slots that their target has now.
    pub(crate) fn close_imports(&mut self, imported: &SlotSet) {
        let before = self.open.len();
        self.open.retain(|slot, open| !matches!(open, OpenSlot::Importing(_)) || !imported.contains(*slot));
        if self.open.len() < before {
            self.changed();
        }
    }

    /// Redirects migrating slots from a target that a failover has replaced to its successor, which has taken all slots of the target.
    ///
    /// A target that has kept a slot is a primary beside the winner, and has the keys that have moved so far.
    fn follow_failovers_of_targets(&mut self, claimer: NodeKey, epoch: u64, claimed: &SlotSet) {
        let is_replaced = |node: &Node| !node.is_primary() || node.config_epoch < epoch && node.slot_count == 0;
        self.redirect_migrations(claimer, claimed, is_replaced);
    }

    /// Redirects migrating slots from a target that does not answer to a node of its shard that was a replica until now.
    ///
    /// The target may have taken a slot in its last moment. Its successor does not know of that slot, and does not claim it.
    fn follow_winner_of_targets(&mut self, winner: NodeKey, epoch: u64, claimed: &SlotSet) {
        self.redirect_migrations(winner, claimed, |node| node.config_epoch < epoch && node.health != Health::Well);
    }

    fn redirect_migrations(&mut self, claimer: NodeKey, claimed: &SlotSet, is_replaced: impl Fn(&Node) -> bool) {
        let is_replaced = |target: NodeKey| {
            target != claimer && self.table.same_shard(target, claimer) && is_replaced(&self.table[target])
        };
        let replaced: Vec<Slot> = self
            .open
            .iter()
            .filter(|(slot, open)| {
                matches!(open, OpenSlot::Migrating(to) if is_replaced(*to)) && !claimed.contains(**slot)
            })
            .map(|(slot, _)| *slot)
            .collect();
        for slot in replaced {
            self.open.insert(slot, OpenSlot::Migrating(claimer));
            self.changed();
        }
    }

    /// True if a node of this shard has a greater epoch, and neither it nor this node has slots.
    fn is_empty_shard_of(&self, claimer: NodeKey, epoch: u64, claimed: &SlotSet) -> bool {
        let me = self.me();
        let is_mine = self.table.myself().primary() == Some(claimer);
        let is_empty = claimed.is_empty() && self.table[me].slot_count == 0;
        !is_mine && is_empty && self.table.epoch(me) < epoch && self.table.same_shard(claimer, me)
    }

    /// Follows the node that took the last slot of this node, or of its primary. Returns false if this node stays as it is.
    fn follows_winner(&mut self, winner: NodeKey) -> bool {
        let same_shard = self.table.same_shard(winner, self.me());
        if !same_shard && !self.config.allow_replica_migration {
            if self.table.myself().is_primary() {
                let text =
                    format!("My last slot was migrated to node {}. I am now an empty primary.", self.name(winner));
                self.log(Level::Notice, text);
            }
            return false;
        }
        let text = format!("Configuration change detected. Reconfiguring myself as a replica of {}", self.name(winner));
        self.log(Level::Notice, text);
        self.follow(winner, !same_shard, !same_shard);
        true
    }

    /// Deletes the keys of slots that this primary has lost.
    fn drop_lost(&mut self, had: &SlotSet) {
        let mut lost = had.clone();
        lost.subtract(&self.table.myself().slots);
        if self.table.myself().is_primary() && !lost.is_empty() {
            self.log(Level::Notice, format!("Deleting keys in dirty slot {lost}, which other nodes have taken"));
            // Clients must be redirected before the keys disappear.
            self.show_view();
            self.actions.push(Action::DropSlots(Box::new(lost)));
        }
    }

    /// Makes this node a replica.
    pub(crate) fn follow(&mut self, primary: NodeKey, closes_slots: bool, full: bool) {
        let me = self.me();
        if self.table.closes_cycle(me, primary) {
            self.table.promote(primary);
        }
        self.unbind_all(me);
        self.finished.clear();
        self.granted = None;
        if closes_slots {
            self.open.clear();
            self.imported.clear();
        }
        self.table.demote(me, Some(primary));
        // The workers learn first that the slots are gone, so that they redirect writes. A replica that still showed slots as its own would
        // answer READONLY.
        self.evaluate_state();
        self.show_view();
        self.follow_at_address(primary, full);
        self.end_handover();
        self.forget_election();
        self.changed();
        self.todo.broadcast = true;
    }

    /// Has the server replicate the primary at its present address.
    pub(crate) fn follow_at_address(&mut self, primary: NodeKey, full: bool) {
        let node = &self.table[primary];
        let ports = node.endpoints.ports;
        let port = if self.config.tls_bus && ports.tls != 0 { ports.tls } else { ports.plain };
        let (node, ip) = (node.id, node.endpoints.ip.clone());
        self.actions.push(Action::Follow { node, ip, port, full });
    }
}
