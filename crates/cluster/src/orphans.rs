//! Replica migration: a spare replica moves to a primary that has lost all of its own.

use crate::io::Level;
use crate::machine::Machine;
use crate::node::{Health, NodeKey};
use crate::view::ClusterState;

/// The time for which a primary must have been without replicas. After a failover, its own replicas may still be on
/// their way to it.
const ORPHANED_MS: u64 = 5000;

impl Machine {
    /// Moves this replica to an orphaned primary, if it is this replica's turn.
    pub(crate) fn consider_orphans(&mut self) {
        let Some(mine) = self.table.myself().primary() else { return };
        if !self.config.allow_replica_migration {
            return;
        }
        let orphan = self.note_orphans();
        let Some(orphan) = orphan.filter(|_| self.state == ClusterState::Ok) else { return };
        let left = self.table.working_replicas(mine);
        let most = self.table.keys().map(|key| self.replicas_of_primary(key)).max().unwrap_or_default();
        if left <= self.config.migration_barrier || left < most || most < 2 || !self.is_first_to_move(most) {
            return;
        }
        self.log(Level::Notice, format!("Migrating to orphaned primary {}", self.name(orphan)));
        self.follow(orphan, true, true);
    }

    fn replicas_of_primary(&self, key: NodeKey) -> usize {
        if self.table[key].is_primary() { self.table.working_replicas(key) } else { 0 }
    }

    /// Updates the orphaned primaries, and returns one that has been orphaned for long enough.
    fn note_orphans(&mut self) -> Option<NodeKey> {
        let now_ms = self.now.ms;
        let mut found = None;
        for key in self.table.others() {
            let is_orphan = self.is_orphan(key);
            let node = &mut self.table[key];
            node.orphaned_since_ms = is_orphan.then(|| node.orphaned_since_ms.unwrap_or(now_ms));
            let is_ripe = node.orphaned_since_ms.is_some_and(|since_ms| now_ms > since_ms + ORPHANED_MS);
            found = found.or(is_ripe.then_some(key));
        }
        found
    }

    fn is_orphan(&self, key: NodeKey) -> bool {
        let node = &self.table[key];
        node.is_voting() && !node.has_failed() && node.migrate_to && self.table.working_replicas(key) == 0
    }

    /// Returns true if this node is the replica to move: the one with the smallest name among the working replicas of
    /// the primaries with the most replicas.
    fn is_first_to_move(&self, most: usize) -> bool {
        let richest = self.table.keys().filter(|key| self.replicas_of_primary(*key) == most);
        let candidates = richest.flat_map(|key| self.table.replicas(key));
        let working = candidates.filter(|key| self.table[*key].health == Health::Well);
        working.map(|key| self.table[key].id).min() == Some(self.table.myself().id)
    }
}
