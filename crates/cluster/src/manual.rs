//! Manual failovers: a replica takes the place of a working primary.
//!
//! The replica asks the primary to hold back writes, waits until it has all data, and then holds an election at once.

use crate::commands::ClusterReply;
use crate::io::{Action, Level};
use crate::links::LinkId;
use crate::machine::Machine;
use crate::node::NodeKey;
use crate::rules::Rule;
use crate::wire::{Body, Header, Kind, MessageFlags};

/// The form of a manual failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverMode {
    /// With the primary's help.
    Planned,
    /// Without it, with votes.
    Force,
    /// Without votes.
    Takeover,
}

/// The time for which the last PING with the flag of a pause proves that the primary holds back writes, in milliseconds. The primary sends one
/// each tick. After a restart it takes no writes for longer than this time.
const PAUSE_PROOF_MS: u64 = 1000;

/// The part of the timeout of a planned failover that is left to the winner to save and to show its claim: one fifth.
const CLAIM_SHARE: u64 = 5;

/// The longest time in milliseconds for which a primary holds back writes while one of its replicas asks for votes.
const HOLD_MAX_MS: u64 = 500;

/// A manual failover, at either end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handover {
    /// The deadline.
    until_ms: Option<u64>,
    /// At the primary: the replica that takes over.
    replica: Option<NodeKey>,
    /// The offset behind the primary's last write.
    paused_offset: Option<u64>,
    /// At the replica: the link and the time of the primary's last PING or PONG with the flag of a pause.
    seen_paused: Option<(LinkId, u64)>,
    /// At the replica: the election may begin.
    pub(crate) may_start: bool,
}

impl Handover {
    pub(crate) fn is_under_way(&self) -> bool {
        self.until_ms.is_some()
    }
}

impl Machine {
    /// The command CLUSTER FAILOVER.
    pub(crate) fn failover(&mut self, mode: FailoverMode) -> ClusterReply {
        let error = |text: &str| ClusterReply::Error(text.to_owned());
        if self.table.myself().is_primary() {
            return error("You should send CLUSTER FAILOVER to a replica");
        }
        let Some(primary) = self.table.myself().primary() else {
            return error("I'm a replica but my master is unknown to me");
        };
        let is_reachable = !self.table[primary].has_failed() && self.link_to(primary).is_some();
        if mode == FailoverMode::Planned && !is_reachable {
            return error("Master is down or failed, please use CLUSTER FAILOVER FORCE");
        }
        // TAKEOVER is the last resort after a load that has failed.
        let lacks_data = match mode {
            FailoverMode::Planned => false,
            FailoverMode::Force => self.lacks_data(),
            FailoverMode::Takeover => self.facts.loading,
        };
        if lacks_data {
            return error("The data of this replica are incomplete. A failover would lose the data of the shard");
        }
        self.end_handover();
        self.forget_election();
        if mode == FailoverMode::Takeover {
            self.log(Level::Notice, "Taking over the primary (user request).".into());
            self.bump_epoch();
            self.vote_for_myself(self.table.myself().config_epoch);
            self.replace(primary);
            return ClusterReply::Ok;
        }
        let timeout_ms = self.config.manual_failover_timeout_ms;
        // The primary takes writes again after the timeout. It must hear of the winner's claim before, and the claim must be on disk.
        let margin_ms = if mode == FailoverMode::Planned { timeout_ms / CLAIM_SHARE } else { 0 };
        self.handover.until_ms = Some(self.now.ms + timeout_ms - margin_ms);
        self.handover.may_start = mode == FailoverMode::Force;
        self.todo.failover = true;
        let word = if mode == FailoverMode::Force { "Forced" } else { "Manual" };
        self.log(Level::Notice, format!("{word} failover user request accepted."));
        if let Some(link) = self.link_to(primary).filter(|_| mode == FailoverMode::Planned) {
            self.send(link, Body::MfStart, MessageFlags::default());
        }
        ClusterReply::Ok
    }

    /// At a replica: takes the place of the primary, which shuts down, if the primary has chosen this replica. All data is
    /// there, because the request is the end of the stream.
    pub(crate) fn failover_at_shutdown(&mut self, replica: &str) -> ClusterReply {
        if replica != self.table.myself().id.as_str() {
            return ClusterReply::Ok;
        }
        let reply = self.failover(FailoverMode::Force);
        if reply == ClusterReply::Ok {
            self.log(Level::Notice, "Forced failover primary request accepted.".into());
        }
        reply
    }

    /// At the primary: begins the handover that a replica has requested. PINGs tell the replica when writes are held
    /// back.
    pub(crate) fn start_handover(&mut self, _link: LinkId, sender: NodeKey) {
        if self.table[sender].primary() != Some(self.me()) {
            return;
        }
        // The replica would claim the granted slots, too.
        if self.granted.is_some() {
            let text =
                format!("A manual failover by replica {} is refused while slots are handed over", self.name(sender));
            return self.log(Level::Warning, text);
        }
        // Writes stay held back in between: a replica that has asked earlier may win without them.
        self.handover = Handover::default();
        let timeout_ms = self.config.manual_failover_timeout_ms;
        self.handover.until_ms = Some(self.now.ms + timeout_ms);
        self.handover.replica = Some(sender);
        self.actions.push(Action::Pause { until_ms: self.now.ms + 2 * timeout_ms });
        self.log(Level::Notice, format!("Manual failover requested by replica {}.", self.name(sender)));
    }

    /// At the primary: the writes are held back.
    pub(crate) fn paused(&mut self, offset: u64) {
        let Some(replica) = self.handover.replica else { return };
        self.handover.paused_offset = Some(offset);
        self.facts.offset = offset;
        if let Some(link) = self.link_to(replica) {
            self.ping(link, Kind::Ping);
        }
    }

    /// At the primary: headers say that the writes are held back.
    pub(crate) fn is_paused(&self) -> bool {
        self.handover.replica.is_some() && self.handover.paused_offset.is_some()
    }

    /// At the primary: the node that takes over is sent a PING each tick.
    pub(crate) fn hands_over_to(&self, key: NodeKey) -> bool {
        self.handover.replica == Some(key) && self.is_paused()
    }

    /// At the replica: takes the offset behind the primary's last write from a PING or a PONG. One without the flag of a pause tells that the
    /// primary takes writes again: it has started again, or has ended the pause. Messages on different links may overtake each other.
    pub(crate) fn take_paused_offset(&mut self, link: LinkId, sender: NodeKey, header: &Header) {
        if self.table.myself().primary() != Some(sender) || !self.handover.is_under_way() {
            return;
        }
        if !header.message_flags.has(MessageFlags::PAUSED) {
            if self.handover.seen_paused.is_some_and(|(seen, _)| seen == link) && self.rules.hold(Rule::PauseProof) {
                self.give_handover_up();
            }
            return;
        }
        self.handover.seen_paused = Some((link, self.now.ms));
        if self.handover.paused_offset.is_none() {
            self.handover.paused_offset = Some(header.offset);
            self.todo.failover = true;
            let text = format!("Received replication offset for paused primary manual failover: {}", header.offset);
            self.log(Level::Notice, text);
        }
    }

    /// At the replica: gives a planned failover up, because the primary may take writes that this replica would not have.
    fn give_handover_up(&mut self) {
        self.log(Level::Warning, "Manual failover given up: the primary does not hold back writes any more.".into());
        self.end_handover();
        self.forget_election();
    }

    /// Ends a manual failover after its deadline. A process that was stopped may count a vote before its next tick.
    fn end_late_handover(&mut self) {
        if self.handover.until_ms.is_some_and(|until_ms| self.now.ms > until_ms) {
            self.log(Level::Warning, "Manual failover timed out.".into());
            self.end_handover();
            self.forget_election();
        }
        let is_proved = |(_, seen_ms): (LinkId, u64)| self.now.ms <= seen_ms + PAUSE_PROOF_MS;
        if !self.handover.seen_paused.is_none_or(is_proved) && self.rules.hold(Rule::PauseProof) {
            self.give_handover_up();
        }
    }

    /// At the replica: lets the election begin once all data is there.
    pub(crate) fn step_handover(&mut self) {
        self.end_late_handover();
        let is_waiting = self.handover.is_under_way() && self.handover.replica.is_none() && !self.handover.may_start;
        let Some(offset) = self.handover.paused_offset.filter(|_| is_waiting) else { return };
        // A primary that has started again may have a smaller offset, in another history. A replica that has not heard from it since, or has
        // another offset, lacks its data. Offsets of replicas with data begin at 1.
        let is_in_step = self.facts.data_age_ms.is_some() && self.facts.offset == offset.max(1);
        if is_in_step || !self.rules.hold(Rule::PausedOffset) {
            self.handover.may_start = true;
            self.forget_election();
            let text = "All primary replication stream processed, manual failover can start.";
            self.log(Level::Notice, text.into());
        }
    }

    /// Continues manual failovers, elections and moves to orphaned primaries.
    pub(crate) fn tick_failover(&mut self) {
        self.todo.failover = true;
        self.consider_orphans();
    }

    /// Holds writes back for a moment if a replica of this primary asks for votes without its help. If the replica wins, it lacks the writes
    /// from now on.
    pub(crate) fn hold_writes_for(&mut self, candidate: NodeKey) {
        let is_rival = self.table.myself().is_primary() && self.table[candidate].primary() == Some(self.me());
        if is_rival && self.handover.replica.is_none() {
            self.holds_writes = true;
            let hold_ms = HOLD_MAX_MS.min(self.config.node_timeout_ms / 2);
            self.actions.push(Action::Pause { until_ms: self.now.ms + hold_ms });
        }
    }

    /// Ends a manual failover, successful or not.
    pub(crate) fn end_handover(&mut self) {
        if std::mem::take(&mut self.holds_writes) || self.handover.replica.is_some() {
            self.actions.push(Action::Resume);
        }
        self.handover = Handover::default();
    }
}
