//! The start and the end of following a primary, with everything else that changes then.

use std::sync::Arc;

use replication::id::HistoryId;
use resp::reply::{Output, Reply};

use super::Engine;
use super::replacing::reads_replica;
use crate::clients::blocking::Waiter;
use crate::clients::client::client_flag;
use crate::durability::DurabilityTarget;
use crate::replication::Primary;

/// The reply of a blocking command that ends because its server becomes a replica: Redis's text.
pub(crate) const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl Engine {
    /// Returns the offset of this server's history with all changes that clients have replies to. Tools compare it with a replica's offset
    /// to learn whether the replica has a write. [`Replication::offset`](crate::replication::Replication::offset) lacks the last units until
    /// the thread for replicas takes them.
    pub(crate) fn replicated_offset(&self) -> u64 {
        let took = self.replication.stream.catch_up();
        // That thread asks the replicas behind the units that it takes itself.
        if took && self.durability.is_awaited(DurabilityTarget::Replicas) {
            self.replication.request_answers();
        }
        self.replication.offset()
    }

    /// Follows a primary, or ends it. Returns false if nothing changes. The caller is alone behind the gate. `now_ms`
    /// is Unix time.
    pub fn follow(&self, primary: Option<Primary>, now_ms: u64) -> bool {
        let stale = self.settings.replica_serve_stale_data.get();
        // Read first: the link to the new primary may end the failover at once.
        let is_moved_from = primary.is_some() && self.replication.is_failing_over();
        if !self.replication.follow(&self.journal, primary.clone(), stale) {
            return false;
        }
        self.maintenance.release();
        self.maintenance.note_moved(primary.clone().filter(|_| is_moved_from), now_ms);
        self.follow_durability();
        self.settings.note_replicaof(primary.as_ref().map(|primary| (&*primary.host, primary.port)));
        if primary.is_some() {
            self.slots.jobs.orphan_imports();
            // This precedes the end of the waits, because their replies belong to no history.
            self.pipelines.take_back_all(now_ms);
            self.end_waits(is_moved_from);
        }
        true
    }

    /// Returns the history and the offset from which this replica asks its primary to continue. Returns `None` if it must ask for all data:
    /// it has no history, or it has keys of an import that the new primary may not know, and thus never ends.
    #[must_use]
    pub fn continues_from(&self) -> Option<(HistoryId, u64)> {
        if self.slots.jobs.have_orphans() { None } else { self.replication.known_part() }
    }

    /// Ends blocking commands with an error and closes their connections, because only the new primary can serve them. A replica of a
    /// cluster still serves readers in READONLY mode. After a move, clients that were told of it get the reply of a wait
    /// that is over. The caller is alone behind the gate, so no other thread is serving a waiter.
    fn end_waits(&self, is_moved: bool) {
        if self.waiters.is_empty() {
            return;
        }
        for client in self.clients.all() {
            let goes_on = |waiter: &Waiter| {
                // The bus answers a command whatever becomes of the role, and CLUSTER REPLICATE changes it.
                waiter.awaits_bus() || self.slots.are_on() && waiter.awaited.is_none() && reads_replica(&client, waiter)
            };
            let may_end = |waiter: &Arc<Waiter>| !goes_on(waiter) && waiter.claim();
            let Some(waiter) = client.waiter().filter(may_end) else { continue };
            self.waiters.remove(&waiter);
            if is_moved && client.has(client_flag::HEARS_MAINTENANCE) {
                // The client was told to move. It tries again there, as after any wait without a result.
                waiter.count(None);
                client.note_answer(&waiter);
                if let Some(inbox) = self.inboxes.get(waiter.worker) {
                    inbox.unpark(waiter.client, self.timeout_reply(&waiter), 0);
                }
                continue;
            }
            waiter.end_connection();
            // The waiter's own thread counts the command.
            waiter.count(Some(UNBLOCKED.as_bytes()));
            let mut output = Output::default();
            Reply::new(&mut output, waiter.proto).error(UNBLOCKED);
            client.note_answer(&waiter);
            if let Some(inbox) = self.inboxes.get(waiter.worker) {
                inbox.unpark(waiter.client, output, 0);
            }
        }
    }
}
