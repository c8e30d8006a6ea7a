//! The limits `maxmemory-clients` and `unauthenticated-input-total`: the connections that take the most memory are
//! closed.

use std::sync::atomic::Ordering;

use crate::clients::client::{Client, Sum, client_flag};
use crate::clients::client_memory::memory_bytes;
use crate::clients::line::line;
use crate::clients::session::Session;
use crate::services::closing::close_client;
use crate::state::Engine;
use crate::worker::Worker;
use config::LogLevel;

/// The pause, in milliseconds, after a vain search for connections to close: the remaining ones have CLIENT NO-EVICT,
/// or are small and many.
const IN_VAIN_MS: u64 = 100;

/// The divisor of `unauthenticated-input-total` for the part that is freed when the limit is reached.
const UNAUTHENTICATED_PART_CLOSED: u64 = 4;

/// Returns the bytes of memory that a connection's incomplete requests take.
fn input_bytes(client: &Client) -> u64 {
    let parts = [&client.input_bytes, &client.input_free_bytes, &client.args_bytes];
    parts.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
}

/// Closes the largest unauthenticated clients if their incomplete requests, together with the handshakes under way,
/// exceed `unauthenticated-input-total`.
pub fn keep_unauthenticated_total(engine: &Engine) {
    let limit = engine.settings.unauthenticated_input_total.get();
    let handshakes = engine.clients.noted(Sum::Handshakes);
    if engine.clients.noted(Sum::Unauthenticated) + handshakes <= limit {
        return;
    }
    // The search frees more than necessary, so that attackers can't make it run often.
    let kept = (limit - limit / UNAUTHENTICATED_PART_CLOSED).saturating_sub(handshakes);
    let may_go = |client: &Client| client.is_noted(Sum::Unauthenticated);
    for client in engine.clients.remove_largest(Sum::Unauthenticated, kept, may_go) {
        let (id, addr, bytes) = (client.id, &client.addr, input_bytes(&client));
        let text = format!(
            "Closing client that has not authenticated, since incomplete requests of all such clients take too much memory: \
             id={id} addr={addr} input={bytes} (unauthenticated-input-total {limit})"
        );
        engine.host.log(LogLevel::Warning, &text);
        close_client(engine, &client);
    }
}

impl Worker {
    /// Notes a connection's memory, and closes the largest ones if the sum exceeds the limit. Call it whenever a
    /// connection's buffers may have changed; the connection itself may be closed a moment later.
    #[inline]
    pub fn note_client_memory(&self, client: &Client) {
        if self.engine.client_limit.bytes.load(Ordering::Relaxed) > 0 {
            self.engine.clients.note(Sum::Memory, client, memory_bytes(client));
            self.evict_clients();
        }
    }

    /// Notes the memory of an unauthenticated connection's requests, and closes the largest such connections if the sum
    /// is too large: one connection may take little, but a client can open many. Call it whenever the memory may have
    /// changed.
    #[inline]
    pub fn note_unauthenticated(&self, session: &Session) {
        if !session.is_authenticated() || session.client.is_noted(Sum::Unauthenticated) {
            self.note_unauthenticated_bytes(session);
        }
    }

    #[cold]
    fn note_unauthenticated_bytes(&self, session: &Session) {
        let (engine, client) = (self.engine, &*session.client);
        let bytes = if engine.must_authenticate(session) { input_bytes(client) } else { 0 };
        engine.clients.note(Sum::Unauthenticated, client, bytes);
        keep_unauthenticated_total(engine);
    }

    /// Applies a changed limit.
    pub(crate) fn follow_client_limit(&self) {
        if self.engine.client_limit.follow(&self.engine.settings) {
            // Memory was not noted without a limit.
            let clients = &self.engine.clients;
            clients.all().iter().for_each(|client| clients.note(Sum::Memory, client, memory_bytes(client)));
            self.evict_clients();
        }
    }

    fn evict_clients(&self) {
        let (clients, limit) = (&self.engine.clients, &self.engine.client_limit);
        let bytes = limit.bytes.load(Ordering::Relaxed);
        if clients.noted(Sum::Memory) < bytes || self.clock.now_ms < limit.in_vain_until_ms.load(Ordering::Relaxed) {
            return;
        }
        let evicted = clients.remove_largest(Sum::Memory, bytes, |client| !client.has(client_flag::NO_EVICT));
        if evicted.is_empty() {
            limit.in_vain_until_ms.store(self.clock.now_ms + IN_VAIN_MS, Ordering::Relaxed);
        }
        for client in evicted {
            let line = line(self.engine.table, &client, self.clock.now_ms, None);
            self.engine.host.log(LogLevel::Notice, &format!("Evicting client: {line} (maxmemory-clients {bytes})"));
            self.stats().evicted_clients.add(1);
            close_client(self.engine, &client);
        }
    }
}
