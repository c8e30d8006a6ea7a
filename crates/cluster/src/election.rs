//! Elections: a replica takes its failed primary's place with the votes of a majority of the primaries.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::id::NodeId;
use crate::io::{Action, Level};
use crate::machine::{Machine, OpenSlot};
use crate::node::{Health, NodeKey};
use crate::rules::Rule;
use crate::saves::Waiting;
use crate::slots::{Slot, SlotSet};
use crate::wire::{Body, Header, MessageFlags, NodeFlags};

/// The unit of delays before an election: the node timeout divided by the first constant, at most the second one in milliseconds.
const DELAY_PART: u64 = 30;
const DELAY_MAX_MS: u64 = 500;

/// The additional delay of a replica without any data.
const EMPTY_DELAY_MS: u64 = 500;

/// The shortest time for which votes of an election count. It is two node timeouts otherwise.
const ELECTION_MIN_MS: u64 = 2000;

/// The least time between two identical log lines about an obstacle.
const LOG_PERIOD_MS: u64 = 1000;
const LOG_PERIOD_OLD_DATA_MS: u64 = 10_000;

/// The reason why a needed failover has not happened yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// `cluster-replica-no-failover` is on.
    Forbidden,
    /// The failed primary has no slots.
    NoSlots,
    /// This replica has never been in sync with its primary, so it may have the data of another shard.
    NoData,
    /// The data are being loaded, or a load of the primary's snapshot has failed.
    Incomplete,
    /// The data is too old.
    OldData {
        /// The age of the data.
        age_ms: u64,
        /// The greatest age for an election.
        age_ms_max: u64,
    },
    /// nodes.conf can't be written. After a crash, this node could ask for votes in the same epoch again.
    NoSave,
    /// The election's epoch isn't on disk yet, so this node can't ask for votes.
    SlowSave,
    /// The election begins later.
    Delay,
    /// Too few votes have come so far.
    Votes {
        /// The votes.
        votes: usize,
        /// The majority.
        needed: usize,
    },
    /// Too few votes have come in time. Another election follows.
    Expired {
        /// The votes.
        votes: usize,
        /// The majority.
        needed: usize,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Forbidden => write!(to, "cluster-replica-no-failover is on"),
            Obstacle::NoSlots => write!(to, "the failed primary has no slots"),
            Obstacle::NoData => write!(to, "this replica has never been in step with its primary"),
            Obstacle::Incomplete => write!(to, "the data of this replica are incomplete"),
            Obstacle::OldData { age_ms, age_ms_max } => write!(
                to,
                "disconnected from the primary for {age_ms} ms, and cluster-replica-validity-factor allows {age_ms_max} ms"
            ),
            Obstacle::NoSave => write!(to, "nodes.conf can't be written"),
            Obstacle::SlowSave => write!(to, "waiting for the disk of nodes.conf"),
            Obstacle::Delay => write!(to, "waiting the delay before the election"),
            Obstacle::Votes { votes, needed } => {
                write!(to, "waiting for votes, but majority still not reached: {votes} of {needed}")
            }
            Obstacle::Expired { votes, needed } => {
                write!(to, "Failover attempt expired with {votes} of {needed} votes")
            }
        }
    }
}

/// An election of this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Election {
    /// The time at which it begins or began.
    at_ms: Option<u64>,
    /// The epoch, once votes were asked for.
    epoch: Option<u64>,
    /// The primaries that have voted for this node.
    voters: BTreeSet<NodeId>,
    /// The number of better replicas in the shard when the delay was chosen: see [`Machine::rank`].
    rank: u64,
    /// The number of failed shards with an earlier turn when the delay was chosen: see [`Machine::failed_rank`].
    failed_rank: u64,
    /// The present obstacle, and the time of its last log line.
    obstacle: Option<(Obstacle, u64)>,
}

impl Election {
    /// True if votes were asked for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.epoch.is_some()
    }
}

impl Machine {
    /// The reason for a failover of this replica that hasn't happened; `None` if there is no need for one.
    pub fn failover_obstacle(&self) -> Option<Obstacle> {
        self.election.obstacle.map(|(obstacle, _)| obstacle)
    }

    /// Returns true while the data of this node must not be replaced: it is a primary, or may become one with the votes that it has asked
    /// for. The facts of the last tick don't show data that have gone since.
    pub fn keeps_data(&self) -> bool {
        let age_ms = self.election.at_ms.map(|at_ms| self.now.ms.saturating_sub(at_ms));
        let may_win =
            self.election.epoch.is_some() && age_ms.is_some_and(|age_ms| age_ms <= self.election_timeout_ms());
        may_win || self.table.myself().is_primary()
    }

    /// The time for which votes of an election count.
    pub(crate) fn election_timeout_ms(&self) -> u64 {
        (2 * self.config.node_timeout_ms).max(ELECTION_MIN_MS)
    }

    pub(crate) fn forget_election(&mut self) {
        self.election = Election::default();
    }

    /// Restarts this node's election if another node has its epoch or a later one, or asks for it.
    pub(crate) fn restart_overtaken_election(&mut self, other: u64, message: &str) {
        let Some(epoch) = self.election.epoch.filter(|epoch| other >= *epoch) else { return };
        let text = format!(
            "Failover election in progress for epoch {epoch}, but received {message} with an equal or higher epoch {other}. \
             Resetting the election since we cannot win an election in the past."
        );
        self.log(Level::Warning, text);
        self.forget_election();
        self.todo.failover = true;
    }

    /// Goes on with a manual failover and with an election, if this node is a replica.
    pub(crate) fn step_failover(&mut self) {
        self.step_handover();
        let Some(primary) = self.table.myself().primary() else { return };
        let is_manual = self.handover.may_start;
        if !self.table[primary].has_failed() && !is_manual {
            self.election.obstacle = None;
            // An election of an outage that has ended says nothing about the next one.
            self.election.at_ms = None;
            self.election.epoch = None;
            return;
        }
        if let Some(obstacle) = self.forbidden(primary, is_manual) {
            return self.note_obstacle(obstacle);
        }
        let timeout_ms = self.election_timeout_ms();
        let age_ms = self.election.at_ms.map(|at_ms| self.now.ms.saturating_sub(at_ms));
        if age_ms.is_none_or(|age_ms| age_ms > 2 * timeout_ms) {
            self.schedule_election(primary, is_manual);
        }
        self.adjust_delay(primary, is_manual);
        self.elect(primary, timeout_ms, is_manual);
    }

    fn forbidden(&self, primary: NodeKey, is_manual: bool) -> Option<Obstacle> {
        if self.saves.have_failed() {
            return Some(Obstacle::NoSave);
        }
        if self.lacks_data() {
            return Some(Obstacle::Incomplete);
        }
        if is_manual {
            return None;
        }
        if self.config.replica_no_failover {
            return Some(Obstacle::Forbidden);
        }
        if self.table[primary].slot_count == 0 {
            return Some(Obstacle::NoSlots);
        }
        let timeout_ms = self.config.node_timeout_ms;
        let Some(age_ms) = self.facts.data_age_ms else {
            return self.rules.hold(Rule::OwnData).then_some(Obstacle::NoData);
        };
        let factor = self.config.replica_validity_factor;
        let age_ms_max = self.config.replica_ping_period_ms + timeout_ms * (factor + 1);
        (factor != 0 && age_ms > age_ms_max).then_some(Obstacle::OldData { age_ms, age_ms_max })
    }

    /// Returns true if this replica would lose data of the shard by taking over, even if an operator forces it.
    pub(crate) fn lacks_data(&self) -> bool {
        (self.facts.loading || self.facts.incomplete) && self.rules.hold(Rule::OwnData)
    }

    fn note_obstacle(&mut self, obstacle: Obstacle) {
        let period_ms =
            if matches!(obstacle, Obstacle::OldData { .. }) { LOG_PERIOD_OLD_DATA_MS } else { LOG_PERIOD_MS };
        let same = |(last, _): &(Obstacle, u64)| std::mem::discriminant(last) == std::mem::discriminant(&obstacle);
        let logged_ms = self.election.obstacle.filter(same).map(|(_, logged_ms)| logged_ms);
        let is_due = logged_ms.is_none_or(|logged_ms| self.now.ms >= logged_ms + period_ms);
        if is_due {
            self.log(Level::Notice, format!("Currently unable to failover: {obstacle}"));
        }
        let logged_ms = if is_due { self.now.ms } else { logged_ms.unwrap_or_default() };
        self.election.obstacle = Some((obstacle, logged_ms));
    }

    /// The unit of delays.
    fn delay_ms(&self) -> u64 {
        (self.config.node_timeout_ms / DELAY_PART).min(DELAY_MAX_MS)
    }

    fn schedule_election(&mut self, primary: NodeKey, is_manual: bool) {
        let unit_ms = self.delay_ms();
        let (rank, failed_rank) = (self.rank(primary), self.failed_rank(primary));
        let random_ms = self.random.below(unit_ms.max(1));
        let empty_ms = if self.facts.offset == 0 { EMPTY_DELAY_MS } else { 0 };
        let is_obvious = !is_manual && self.is_obvious(primary);
        if is_obvious {
            let text = "This is the best ranked replica and can initiate the election immediately.";
            self.log(Level::Notice, text.into());
        }
        let delay_ms = match is_manual || is_obvious {
            true => 0,
            false => unit_ms + random_ms + rank * 2 * unit_ms + failed_rank * unit_ms + empty_ms,
        };
        let at_ms = Some(self.now.ms + delay_ms);
        let obstacle = self.election.obstacle;
        self.election = Election { at_ms, rank, failed_rank, obstacle, ..Election::default() };
        if !is_manual {
            let offset = self.facts.offset;
            let text = format!(
                "Start of election delayed for {delay_ms} milliseconds (rank #{rank}, primary rank #{failed_rank}, \
                 offset {offset})."
            );
            self.log(Level::Notice, text);
            self.pong_shard();
        }
    }

    /// Sends a PONG with this node's offset to the nodes of its shard.
    fn pong_shard(&mut self) {
        let me = self.me();
        for key in self.table.others() {
            if self.table.same_shard(key, me)
                && let Some(link) = self.link_to(key)
            {
                self.ping(link, crate::wire::Kind::Pong);
            }
        }
    }

    /// The replicas of the shard that have more data, or the same data and a smaller name.
    fn rank(&self, primary: NodeKey) -> u64 {
        if !self.rules.hold(Rule::OffsetRank) {
            return 0;
        }
        let me = self.table.myself();
        let mine = (self.facts.offset, std::cmp::Reverse(me.id));
        let is_better = |key: &NodeKey| {
            let node = &self.table[*key];
            *key != self.me()
                && !node.announced.has(NodeFlags::NO_FAILOVER)
                && (node.offset, std::cmp::Reverse(node.id)) > mine
        };
        self.table.replicas(primary).filter(is_better).count() as u64
    }

    /// The failed primaries with slots and replicas in shards with smaller names: their elections go first, so that elections
    /// of several shards don't take each other's epochs.
    fn failed_rank(&self, primary: NodeKey) -> u64 {
        let shard = self.table.myself().shard;
        let validity_ms = self.config.node_timeout_ms * self.config.replica_validity_factor;
        let is_first = |key: &NodeKey| {
            let node = &self.table[*key];
            let is_recent = match node.health {
                Health::Failed { since_ms } => validity_ms == 0 || self.now.ms <= since_ms + validity_ms,
                Health::Well | Health::Suspected => false,
            };
            *key != primary
                && is_recent
                && node.is_voting()
                && node.shard < shard
                && self.table.replicas(*key).next().is_some()
        };
        self.table.keys().filter(is_first).count() as u64
    }

    /// Returns true if the election needs no delay: this replica has data, no other one is better, and all replicas see the failure.
    fn is_obvious(&self, primary: NodeKey) -> bool {
        let sees_failure = |key: NodeKey| key == self.me() || self.table[key].announced.has(NodeFlags::PRIMARY_FAILED);
        let is_best = self.rank(primary) == 0 && self.failed_rank(primary) == 0 && self.facts.offset != 0;
        is_best && self.table.replicas(primary).all(sees_failure)
    }

    /// Lengthens the delay if better replicas have appeared since it was chosen. Ends it once this replica is the best
    /// one and all others see the failure, too.
    fn adjust_delay(&mut self, primary: NodeKey, is_manual: bool) {
        if self.election.epoch.is_some() || is_manual {
            return;
        }
        let unit_ms = self.delay_ms();
        let (rank, failed_rank) = (self.rank(primary), self.failed_rank(primary));
        let added = |new: u64, old: u64| new.saturating_sub(old);
        let added_ms =
            added(rank, self.election.rank) * 2 * unit_ms + added(failed_rank, self.election.failed_rank) * unit_ms;
        self.election.at_ms = self.election.at_ms.map(|at_ms| at_ms + added_ms);
        self.election.rank = self.election.rank.max(rank);
        self.election.failed_rank = self.election.failed_rank.max(failed_rank);
        if added_ms > 0 {
            self.log(
                Level::Notice,
                format!("Replica rank updated to #{rank}, added {added_ms} milliseconds of delay."),
            );
        }
        if self.election.at_ms.is_some_and(|at_ms| self.now.ms < at_ms) && self.is_obvious(primary) {
            self.election.at_ms = Some(self.now.ms);
            let text = "Myself become the best ranked replica, initiate the election immediately.";
            self.log(Level::Notice, text.into());
        }
    }

    /// Asks for votes when the time has come, and takes the primary's place once a majority has voted.
    fn elect(&mut self, primary: NodeKey, timeout_ms: u64, is_manual: bool) {
        let Some(at_ms) = self.election.at_ms else { return };
        if self.now.ms < at_ms {
            return self.note_obstacle(Obstacle::Delay);
        }
        let (votes, quorum) = (self.election.voters.len(), self.table.quorum());
        let needed = if self.rules.hold(Rule::VoteQuorum) { quorum } else { 1 };
        if self.saves.awaits(|waiting| matches!(waiting, Waiting::AskForVotes { .. })) {
            return self.note_obstacle(Obstacle::SlowSave);
        }
        if self.now.ms - at_ms > timeout_ms {
            return self.note_obstacle(Obstacle::Expired { votes, needed });
        }
        match self.election.epoch {
            None => self.ask_for_votes(is_manual),
            Some(epoch) if votes >= needed => self.win(primary, epoch),
            Some(_) => self.note_obstacle(Obstacle::Votes { votes, needed }),
        }
    }

    /// Begins an election. The request for votes is sent once its epoch is on disk, because this node must not ask twice in an epoch, even
    /// after a crash.
    fn ask_for_votes(&mut self, _is_manual: bool) {
        // The primary may have heard of a greater epoch before it took the next one, and have failed before it told anybody. A winner with the
        // same epoch and the same slots would have to share them with it.
        self.current_epoch += 1 + u64::from(self.has_unseen_bump());
        let epoch = self.current_epoch;
        self.election.epoch = Some(epoch);
        self.log(Level::Notice, format!("Starting a failover election for epoch {epoch}."));
        self.after_save(Waiting::AskForVotes { epoch });
    }

    /// Notes on a replica that its primary takes the next epoch without votes, unless it has the greatest. Headers will show the epoch, or the
    /// primary fails before. All nodes hear of the epoch from its replicas, and nobody else takes it.
    pub(crate) fn expect_bump(&mut self, primary: NodeKey) {
        if self.must_bump(self.table[primary].config_epoch) {
            self.expect_new_epoch(primary);
        }
    }

    /// Notes on a replica that its primary takes the next epoch without votes.
    pub(crate) fn expect_new_epoch(&mut self, primary: NodeKey) {
        let shown = self.table[primary].config_epoch;
        // Nobody else wins an epoch with votes, and all nodes have heard of it.
        if self.rules.hold(Rule::UnseenEpoch) && !self.has_epoch_votes() {
            self.current_epoch += 1;
            self.unseen_bump = Some((primary, shown));
        }
    }

    /// Returns true if this node's primary has taken an epoch without votes that none of its headers has shown.
    fn has_unseen_bump(&self) -> bool {
        let shown = self.table.myself().primary().map(|primary| (primary, self.table[primary].config_epoch));
        self.unseen_bump.is_some() && self.unseen_bump == shown
    }

    /// Sends the requests for votes. They name the election's epoch, even if this node knows a greater one by now: votes of
    /// another epoch would elect it in an epoch that somebody else may win.
    pub(crate) fn send_vote_requests(&mut self, epoch: u64) {
        let Some(primary) = self.table.myself().primary() else { return };
        if self.election.epoch != Some(epoch) {
            return;
        }
        let forces = self.handover.may_start || self.is_obvious(primary);
        let flags = MessageFlags::default().with(MessageFlags::FORCE_VOTE, forces);
        let finished: Vec<Slot> = self.finished.keys().copied().chain(self.disputed_imports()).collect();
        for link in self.links_to_all() {
            let mut header = self.header(flags);
            header.current_epoch = epoch;
            Arc::make_mut(&mut header.slots).add(&self.table[primary].slots);
            // The voters know another owner of these slots, perhaps with a greater epoch than the primary's. The winner's epoch is greater.
            finished.iter().for_each(|slot| _ = Arc::make_mut(&mut header.slots).remove(*slot));
            self.send_as(link, header, Body::AuthRequest);
        }
    }

    /// Counts a vote.
    pub(crate) fn count_vote(&mut self, sender: NodeKey, header: &Header) {
        self.count_epoch_vote(sender, header);
        let is_mine = match self.rules.hold(Rule::VoteEpoch) {
            true => self.election.epoch == Some(header.current_epoch),
            false => self.election.epoch.is_some(),
        };
        if is_mine && self.table[sender].is_voting() {
            self.election.voters.insert(self.table[sender].id);
            self.todo.failover = true;
        }
    }

    /// Takes the primary's place in an epoch that this node has won.
    fn win(&mut self, primary: NodeKey, epoch: u64) {
        self.log(Level::Notice, "Failover election won: I'm the new primary.".into());
        self.table.myself_mut().config_epoch = epoch;
        self.vote_for_myself(epoch);
        self.replace(primary);
    }

    /// Takes the primary's place with its slots, except slots that the primary had given up.
    pub(crate) fn replace(&mut self, primary: NodeKey) {
        let me = self.me();
        let mut slots = (*self.table[primary].slots).clone();
        slots.subtract(&self.table.unclaimed);
        self.table.promote(me);
        self.table.myself_mut().migrate_to = true;
        self.table.bind_all(&slots, me);
        self.close_imports(&slots);
        self.finished.clear();
        self.renew_imports();
        self.table[primary].is_replaced = true;
        self.unbind_all(primary);
        self.actions.push(Action::Lead);
        self.drop_foreign();
        self.end_handover();
        self.forget_election();
        self.changed();
        self.todo.broadcast = true;
    }

    /// Deletes the keys in slots of other nodes, except slots that this node imports.
    fn drop_foreign(&mut self) {
        let mut foreign = SlotSet::FULL;
        foreign.subtract(&self.table.myself().slots);
        let imports = self.open.iter().filter(|(_, open)| matches!(open, OpenSlot::Importing(_)));
        imports.for_each(|(slot, _)| _ = foreign.remove(*slot));
        self.actions.push(Action::DropSlots(Box::new(foreign)));
    }

    /// Decides on a request for a vote. The vote is sent once it is on disk.
    pub(crate) fn consider_vote(&mut self, sender: NodeKey, header: &Header) {
        let epoch = header.current_epoch;
        self.leave_epoch_to(epoch);
        self.hold_writes_for(sender);
        if self.table[sender].is_primary() {
            // The target of a move may get the votes that this node has asked for. Nobody tells a candidate of a refusal.
            self.restart_overtaken_election(epoch, "a request for votes");
        }
        if !self.table.myself().is_voting() {
            return;
        }
        if let Some(reason) = self.refusal(sender, header) {
            let name = self.name(sender);
            let text = match self.table[sender].is_primary() {
                true => format!("Vote for an epoch denied to {name} for epoch {epoch}: {reason}"),
                false => format!("Failover auth denied to {name} for epoch {epoch}: {reason}"),
            };
            return self.log(Level::Warning, text);
        }
        self.last_vote_epoch = epoch;
        let subject = match self.table[sender].primary() {
            Some(primary) => {
                self.table[primary].replaced_by_vote_ms = Some(self.now.ms);
                "Failover auth"
            }
            None => "Vote for an epoch",
        };
        self.log(Level::Notice, format!("{subject} granted to {} for epoch {epoch}", self.name(sender)));
        let candidate = self.table[sender].id;
        self.after_save(Waiting::Vote { candidate, epoch });
    }

    fn refusal(&mut self, sender: NodeKey, header: &Header) -> Option<String> {
        let epoch = header.current_epoch;
        if !self.is_safe_to_join() || self.saves.have_failed() {
            return Some("I have just started, or can't save my vote".into());
        }
        if epoch < self.current_epoch {
            return Some(format!("reqEpoch ({epoch}) < curEpoch({})", self.current_epoch));
        }
        if self.last_vote_epoch >= epoch && self.rules.hold(Rule::OneVote) {
            return Some(format!("already voted for epoch {}", self.last_vote_epoch));
        }
        if self.table[sender].is_primary() {
            return self.epoch_refusal(sender, header);
        }
        let Some(primary) = self.table[sender].primary() else {
            return Some("I don't know its primary".into());
        };
        if !self.table[primary].has_failed() && !header.message_flags.has(MessageFlags::FORCE_VOTE) {
            return Some("its primary is up".into());
        }
        self.disputed_slot(sender, header)
    }

    /// Returns a requested slot whose present owner has a greater epoch than the request, and tells the candidate about that owner.
    fn disputed_slot(&mut self, sender: NodeKey, header: &Header) -> Option<String> {
        if !self.rules.hold(Rule::RequestedSlots) {
            return None;
        }
        let (slot, owner) = header.slots.iter().find_map(|slot| {
            let owner = self.table.owner(slot).filter(|_| !self.table.is_unclaimed(slot))?;
            (self.table[owner].config_epoch > header.config_epoch).then_some((slot, owner))
        })?;
        self.send_update(sender, owner);
        Some(format!(
            "slot {slot} epoch ({}) > reqConfigEpoch ({})",
            self.table[owner].config_epoch, header.config_epoch
        ))
    }

    /// Sends a vote with the election's epoch, even if this node has learned of a greater one meanwhile.
    pub(crate) fn send_vote(&mut self, candidate: NodeId, epoch: u64) {
        let link = self.table.find(&candidate).and_then(|key| self.link_to(key));
        if let Some(link) = link {
            self.send_at_epoch(link, Body::AuthAck, MessageFlags::default(), epoch);
        }
    }
}
