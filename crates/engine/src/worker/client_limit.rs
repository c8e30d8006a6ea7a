//! Keeping to `maxmemory-clients`: the connections that take most memory are closed.

use std::sync::atomic::Ordering;

use crate::client::{Client, client_flag};
use crate::client_memory::memory_bytes;
use crate::config::LogLevel;
use crate::families;
use crate::worker::Worker;

/// How long, in milliseconds, nobody looks again for connections to close when there were none: all those that are left
/// say CLIENT NO-EVICT, or are small and many.
const IN_VAIN_MS: u64 = 100;

impl Worker {
    /// Notes what a connection takes now, and closes those that take most if that is too much. Call it whenever one's
    /// buffers may have grown or shrunk; the one itself may be among those that are closed, a moment later.
    #[inline]
    pub fn note_client_memory(&self, client: &Client) {
        if self.engine.client_limit.bytes.load(Ordering::Relaxed) > 0 {
            self.engine.clients.note(client, memory_bytes(client));
            self.evict_clients();
        }
    }

    /// Begins to keep to the limit that has been set.
    pub(crate) fn follow_client_limit(&self) {
        if self.engine.client_limit.follow(&self.engine.settings) {
            // What nobody has noted as long as there was no limit.
            self.engine.clients.all().iter().for_each(|client| self.engine.clients.note(client, memory_bytes(client)));
            self.evict_clients();
        }
    }

    fn evict_clients(&self) {
        let (clients, limit) = (&self.engine.clients, &self.engine.client_limit);
        let bytes = limit.bytes.load(Ordering::Relaxed);
        if clients.noted() < bytes || self.clock.now_ms < limit.in_vain_until_ms.load(Ordering::Relaxed) {
            return;
        }
        let evicted = clients.remove_largest(bytes, |client| !client.has(client_flag::NO_EVICT));
        if evicted.is_empty() {
            limit.in_vain_until_ms.store(self.clock.now_ms + IN_VAIN_MS, Ordering::Relaxed);
        }
        for client in evicted {
            let line = families::client_line(&client, self.clock.now_ms, None);
            self.engine.host.log(LogLevel::Notice, &format!("Evicting client: {line} (maxmemory-clients {bytes})"));
            self.stats().evicted_clients.add(1);
            families::close_client(self.engine, &client);
        }
    }
}
