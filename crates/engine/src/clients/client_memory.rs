//! The memory that connections use, and its limit, `maxmemory-clients`. See "Client eviction" in Redis's documentation
//! (<https://redis.io/docs/latest/develop/reference/clients/>).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::listening::name_bytes;
use config::Settings;

/// The lowest limit, in bytes, as in Redis: with less memory no client could run CONFIG SET any more.
const LIMIT_MIN: u64 = 128 << 10;

/// A cached copy of the limit that is cheap to read.
#[derive(Debug, Default)]
pub struct ClientLimit {
    /// The limit in bytes; 0 means no limit.
    pub bytes: AtomicU64,
    /// Time until which a search for connections to close would be in vain, in milliseconds of Unix time.
    pub in_vain_until_ms: AtomicU64,
}

impl ClientLimit {
    /// Takes over `maxmemory-clients` and, for a percentage, `maxmemory`. Returns true if there is a limit.
    pub fn follow(&self, settings: &Settings) -> bool {
        let bytes = match settings.maxmemory_clients.bytes(settings.maxmemory.get()) {
            0 => 0,
            bytes => bytes.max(LIMIT_MIN),
        };
        self.bytes.store(bytes, Ordering::Relaxed);
        self.in_vain_until_ms.store(0, Ordering::Relaxed);
        bytes > 0
    }
}

/// Returns the memory of a connection: its state, its buffers, its watched keys, its subscriptions, its tracked prefixes
/// and its blocking command.
#[must_use]
pub fn memory_bytes(client: &Client) -> u64 {
    let parts = [
        &client.input_bytes,
        &client.input_free_bytes,
        &client.args_bytes,
        &client.output_memory,
        &client.queued_bytes,
        &client.names_bytes,
    ];
    let state = (size_of::<Session>() + size_of::<Client>()) as u64;
    let prefixes = client.tracker().map_or(0, |tracker| tracker.prefixes_bytes());
    parts.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u64>() + state + prefixes + client.waiter_bytes()
}

/// Adds the memory of a watched key or a subscribed channel with this name.
pub fn note_name(client: &Client, name: &[u8]) {
    client.names_bytes.fetch_add(name_bytes(name), Ordering::Relaxed);
}

/// Subtracts the memory of a key or channel with this name.
pub fn forget_name(client: &Client, name: &[u8]) {
    client.names_bytes.fetch_sub(name_bytes(name), Ordering::Relaxed);
}
