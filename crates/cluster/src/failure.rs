//! Failure detection. A node that doesn't answer is suspected by this node alone (PFAIL). It has failed (FAIL) once a majority of the
//! primaries suspects it.

use crate::io::Level;
use crate::machine::Machine;
use crate::node::{Health, NodeKey};
use crate::rules::Rule;
use crate::wire::{Body, MessageFlags};

/// Node timeouts for which a report is valid, and after which a failed primary that answers again counts as well.
const TIMEOUTS: u64 = 2;

impl Machine {
    /// Takes or withdraws a voting primary's report about a node.
    pub(crate) fn take_report(&mut self, reporter: NodeKey, key: NodeKey, is_unwell: bool) {
        let now_ms = self.now.ms;
        let reports = &mut self.table[key].reports;
        match is_unwell {
            true if reports.insert(reporter, now_ms).is_none() => self.log_report(reporter, key, "as not reachable"),
            true => {}
            false if reports.remove(&reporter).is_some() => self.log_report(reporter, key, "is back online"),
            false => {}
        }
        if is_unwell {
            self.fail_if_agreed(key);
        }
    }

    fn log_report(&mut self, reporter: NodeKey, key: NodeKey, words: &str) {
        let text = format!("Node {} reported node {} {words}.", self.name(reporter), self.name(key));
        self.log(Level::Notice, text);
    }

    /// The number of valid reports about a node.
    pub(crate) fn count_reports(&mut self, key: NodeKey) -> usize {
        let before_ms = self.now.ms.saturating_sub(TIMEOUTS * self.config.node_timeout_ms);
        self.table.expire_reports(key, before_ms);
        self.table[key].reports.len()
    }

    /// Suspects a node. If this node alone is the majority, the node has failed at once.
    pub(crate) fn suspect(&mut self, key: NodeKey) {
        if self.table[key].health != Health::Well {
            return;
        }
        self.table[key].health = Health::Suspected;
        self.todo.state = true;
        self.log(Level::Notice, format!("NODE {} possibly failing.", self.name(key)));
        self.fail_if_agreed(key);
    }

    /// Marks a suspected node as failed if a majority of the primaries reports it, and tells all nodes.
    fn fail_if_agreed(&mut self, key: NodeKey) {
        if self.table[key].health != Health::Suspected {
            return;
        }
        let reports = self.count_reports(key) + usize::from(self.table.myself().is_voting());
        let needed = if self.rules.hold(Rule::FailureQuorum) { self.table.quorum() } else { 1 };
        if reports < needed {
            return;
        }
        self.log(Level::Notice, format!("Marking node {} as failing (quorum reached).", self.name(key)));
        self.fail(key);
        let id = self.table[key].id;
        self.broadcast(&Body::Fail(id), MessageFlags::default());
    }

    /// Marks a node as failed.
    pub(crate) fn fail(&mut self, key: NodeKey) {
        self.table[key].health = Health::Failed { since_ms: self.now.ms };
        self.changed();
    }

    /// Takes over a node's claim with an epoch. A newer epoch ends a failure: the node has won it with the votes of a majority since. This
    /// node still suspects the other one until it answers. Otherwise replicas would ask for votes against a primary that has just been
    /// elected.
    pub(crate) fn take_epoch(&mut self, key: NodeKey, epoch: u64) {
        let is_newer = epoch > self.table[key].config_epoch;
        self.table[key].config_epoch = epoch;
        if is_newer && self.table[key].has_failed() && self.rules.hold(Rule::FailureEpoch) {
            let text = format!("Clear FAIL state for node {}: it has epoch {epoch} since.", self.name(key));
            self.log(Level::Notice, text);
            self.table[key].reports.clear();
            self.table[key].health = Health::Suspected;
            self.changed();
        }
    }

    /// Returns true if news of a failure is older than the node's last election: its sender, at this epoch, doesn't know the winner.
    pub(crate) fn is_old_failure(&self, key: NodeKey, sender_epoch: u64) -> bool {
        sender_epoch < self.table[key].config_epoch && self.rules.hold(Rule::FailureEpoch)
    }

    /// Marks a node as failed because another node, at an epoch, says so.
    pub(crate) fn learn_failure(&mut self, sender: NodeKey, sender_epoch: u64, failed: &crate::id::NodeId) {
        let Some(key) = self.table.find(failed) else { return };
        if key == self.me() || self.table[key].has_failed() || self.is_old_failure(key, sender_epoch) {
            return;
        }
        let text = format!("FAIL message received from {} about {}", self.name(sender), self.name(key));
        self.log(Level::Notice, text);
        self.fail(key);
    }

    /// Notes that a node answers again.
    pub(crate) fn recover(&mut self, key: NodeKey) {
        let node = &self.table[key];
        let wait_ms = TIMEOUTS * self.config.node_timeout_ms;
        let is_over = match node.health {
            Health::Well => return,
            Health::Suspected => true,
            Health::Failed { since_ms } => !node.is_voting() || self.now.ms > since_ms + wait_ms,
        };
        if !is_over {
            return;
        }
        if node.has_failed() {
            self.log(Level::Notice, format!("Clear FAIL state for node {}: it is reachable again.", self.name(key)));
        }
        self.table[key].health = Health::Well;
        self.changed();
    }
}
