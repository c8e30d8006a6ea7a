//! Epochs with votes for the ends of moves.
//!
//! The target of a move needs an epoch above that of the source. A target of Redis or Valkey takes the next epoch without asking anybody. An
//! election may use the same epoch, and then two nodes claim a slot in one epoch. A target in a minority does not even hear of such an
//! election.
//!
//! A target of Penstock asks the primaries for their votes for its epoch, like a candidate. A primary votes once in an epoch, so nobody else
//! has an epoch with the votes of a majority. A target in a minority gets no majority. A voter refuses if it has voted for a replica of the
//! target shortly before: the target's epoch would be the greater one, and would take the slots back from the winner.
//!
//! A flag in each header tells that a node votes in this way ([`MessageFlags::EPOCH_VOTES`]). Where most of the primaries do not, because
//! they are nodes of Redis or Valkey, the target takes an epoch without votes, as they do.

use std::collections::BTreeSet;

use crate::commands::{ClusterCommand, SetSlot};
use crate::id::NodeId;
use crate::io::{CommandId, Level};
use crate::machine::{Machine, OpenSlot};
use crate::node::NodeKey;
use crate::rules::Rule;
use crate::saves::Waiting;
use crate::wire::{Body, Header, MessageFlags};

/// The time for the first votes, in milliseconds. The target asks for votes for another epoch afterwards, and waits twice as long each time. Two
/// targets that ask at the same time may get no majority, so a random time of the same length is added.
const ANSWER_MS: u64 = 50;
const ANSWER_MAX_MS: u64 = 800;

/// The time in milliseconds for which CLUSTER SETSLOT waits for votes. It takes an epoch without votes at the next tick, so that operators can
/// also repair a cluster without a majority.
const DELAY_MAX_MS: u64 = 100;

/// The time in milliseconds after a request for votes for which a command of an operator asks for none.
const ASKED_LATELY_MS: u64 = 2000;

/// The greatest distance between the epoch that a source knows and the epoch of its target's claim: a target asks for a few epochs at most
/// while its source holds writes.
pub(crate) const DISTANCE_MAX: u64 = 8;

/// An epoch for which this node has asked for votes.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    epoch: u64,
    asked_ms: u64,
    /// The time for votes.
    answer_ms: u64,
    voters: BTreeSet<NodeId>,
}

/// The state of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserved {
    /// A majority has voted for the epoch.
    Granted,
    /// Votes are under way.
    Asked,
    /// Too few primaries vote for epochs of this kind, or this node cannot save its own vote.
    Impossible,
}

impl Machine {
    /// Returns the state of the reservation, and asks for votes if there is none or if it has expired.
    pub(crate) fn reserve_epoch(&mut self) -> Reserved {
        if !self.has_epoch_votes() || self.saves.have_failed() {
            return Reserved::Impossible;
        }
        if self.is_reserved() {
            return Reserved::Granted;
        }
        let greatest = self.table.greatest_epoch();
        let is_fresh = |of: &Reservation| of.epoch > greatest && self.now.ms < of.asked_ms + of.answer_ms;
        if !self.reservation.as_ref().is_some_and(is_fresh) {
            self.ask_for_epoch();
        }
        Reserved::Asked
    }

    fn ask_for_epoch(&mut self) {
        let before_ms = self.reservation.as_ref().filter(|_| self.has_asked_lately()).map(|of| of.answer_ms);
        let base_ms = before_ms.map_or(ANSWER_MS, |before_ms| 2 * before_ms).min(ANSWER_MAX_MS);
        let answer_ms = base_ms + self.random.below(base_ms);
        self.current_epoch += 1;
        let epoch = self.current_epoch;
        self.vote_for_myself(epoch);
        self.reservation = Some(Reservation { epoch, asked_ms: self.now.ms, answer_ms, voters: BTreeSet::new() });
        self.after_save(Waiting::AskForEpoch { epoch });
    }

    /// True if a majority of the primaries votes for epochs.
    pub(crate) fn has_epoch_votes(&self) -> bool {
        let votes =
            |key: &NodeKey| self.table[*key].is_voting() && (*key == self.me() || self.table[*key].votes_for_epochs);
        self.table.keys().filter(votes).count() >= self.table.quorum() && self.rules.hold(Rule::ReservedEpochs)
    }

    /// True if a majority has voted for an epoch of this node that is still the greatest.
    fn is_reserved(&self) -> bool {
        let (quorum, greatest) = (self.table.quorum(), self.table.greatest_epoch());
        self.reservation.as_ref().is_some_and(|of| of.voters.len() >= quorum && of.epoch > greatest)
    }

    /// Asks the primaries for votes. This node's own vote is on disk. The request tells replicas of the epoch, so that none of them asks for votes
    /// for the same one.
    pub(crate) fn send_epoch_requests(&mut self, epoch: u64) {
        let (id, is_voting) = (self.table.myself().id, self.table.myself().is_voting());
        let Some(reservation) = self.reservation.as_mut().filter(|of| of.epoch == epoch) else { return };
        if is_voting {
            reservation.voters.insert(id);
        }
        for key in self.table.others() {
            let node = &self.table[key];
            if let Some(link) = self.link_to(key).filter(|_| node.votes_for_epochs) {
                self.send_at_epoch(link, Body::AuthRequest, MessageFlags::default(), epoch);
            }
        }
    }

    /// Counts a vote for an epoch of this node.
    pub(crate) fn count_epoch_vote(&mut self, sender: NodeKey, header: &Header) {
        let (id, is_voting) = (self.table[sender].id, self.table[sender].is_voting());
        if let Some(reservation) = self.reservation.as_mut().filter(|of| of.epoch == header.current_epoch && is_voting)
        {
            reservation.voters.insert(id);
        }
    }

    /// Returns the reason to refuse a primary a vote for its epoch.
    pub(crate) fn epoch_refusal(&self, sender: NodeKey, header: &Header) -> Option<String> {
        if !header.message_flags.has(MessageFlags::EPOCH_VOTES) || !self.rules.hold(Rule::ReservedEpochs) {
            return Some("it is a primary node".into());
        }
        let until_ms = self.table[sender].replaced_by_vote_ms.map(|voted_ms| voted_ms + self.election_timeout_ms());
        until_ms.is_some_and(|until_ms| self.now.ms <= until_ms).then(|| "I have voted for its replica".into())
    }

    /// Takes the reserved epoch, or else the next one without votes.
    pub(crate) fn take_reserved_epoch(&mut self) {
        let is_reserved = self.is_reserved();
        match self.reservation.take().filter(|_| is_reserved) {
            Some(Reservation { epoch, .. }) => {
                self.table.myself_mut().config_epoch = epoch;
                self.log(Level::Notice, format!("New configEpoch set to {epoch}"));
                self.changed();
                self.todo.broadcast = true;
            }
            None => self.take_new_epoch(),
        }
    }

    /// Returns true if a command has to wait for votes. It ends an import, and this node needs a greater epoch. A source that was replaced by a
    /// failover may not know that the slot migrates, and takes writes to it until it hears of the end. The command does not wait then.
    pub(crate) fn awaits_epoch(&mut self, command: &ClusterCommand) -> bool {
        let (slot, node) = match command {
            ClusterCommand::CheckSetSlot { slot, change: SetSlot::Node(node), .. } => (slot, node),
            // The check has waited for votes, and the replicas have executed the command.
            ClusterCommand::SetSlot { .. } if self.has_asked_lately() => return false,
            ClusterCommand::SetSlot { slot, change: SetSlot::Node(node), from_primary: false, .. } => (slot, node),
            _ => return false,
        };
        let ends_import = self.named(node) == Some(self.me())
            && self.table.myself().is_primary()
            && matches!(self.open.get(slot), Some(OpenSlot::Importing(_)))
            && !self.redirected.contains(slot)
            && self.must_bump(self.table.myself().config_epoch);
        ends_import && self.reserve_epoch() == Reserved::Asked
    }

    fn has_asked_lately(&self) -> bool {
        self.reservation.as_ref().is_some_and(|of| self.now.ms < of.asked_ms + ASKED_LATELY_MS)
    }

    /// Executes a command once this node has an epoch for it.
    pub(crate) fn delay(&mut self, id: CommandId, command: ClusterCommand) {
        let until_ms = self.now.ms + DELAY_MAX_MS.min(self.config.node_timeout_ms / 2);
        self.delayed.push((id, command, until_ms));
    }

    /// Executes the delayed commands if the votes have come, or will not come.
    pub(crate) fn run_delayed(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let is_asked = self.table.myself().is_primary() && self.reserve_epoch() == Reserved::Asked;
        for (id, command, until_ms) in std::mem::take(&mut self.delayed) {
            match is_asked && self.now.ms < until_ms {
                true => self.delayed.push((id, command, until_ms)),
                false => self.execute(id, command),
            }
        }
    }
}
