//! A server that begins to follow another one, or ends it: whatever else changes with that.

use resp::reply::{Output, Reply};

use super::Engine;
use crate::replication::Primary;

/// The reply of a blocking command that ends because its server becomes a replica: Redis's text.
pub(crate) const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl Engine {
    /// Follows a primary, or none from here on. False if it is so already. The caller is alone behind the gate.
    /// `now_ms` is Unix time.
    pub fn follow(&self, primary: Option<Primary>, now_ms: u64) -> bool {
        let stale = self.settings.replica_serve_stale_data.get();
        if !self.replication.follow(&self.journal, primary.clone(), stale) {
            return false;
        }
        self.follow_durability();
        self.settings.note_replicaof(primary.as_ref().map(|primary| (&*primary.host, primary.port)));
        if primary.is_some() {
            // Before the waits end: what they answer is in no history.
            self.pipelines.take_back_all(now_ms);
            self.end_waits();
        }
        true
    }

    /// Ends all blocking commands with an error, and their connections with them: what they wait for is another server's to give from now
    /// on. The caller is alone behind the gate, so that no other thread is about to serve one.
    fn end_waits(&self) {
        if self.waiters.is_empty() {
            return;
        }
        for client in self.clients.all() {
            let Some(waiter) = client.waiter().filter(|waiter| waiter.claim()) else { continue };
            self.waiters.remove(&waiter);
            waiter.end_connection();
            // Its own thread counts the command.
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
