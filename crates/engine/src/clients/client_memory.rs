//! What connections take of memory, and the limit of it, `maxmemory-clients`.
//! See "Client eviction" in Redis's documentation (<https://redis.io/docs/latest/develop/reference/clients/>).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::config::Settings;

/// The lowest limit, in bytes, as in Redis: with less no client could say CONFIG SET any more.
const LIMIT_MIN: u64 = 128 << 10;

/// What a key that is watched or a channel that is subscribed to takes beside its name, about: the connection keeps it
/// in a table, and so does the table that names its watchers or subscribers.
const NAME_BYTES: usize = 96;

/// What the limit is, kept where it is cheap to ask for.
#[derive(Debug, Default)]
pub struct ClientLimit {
    /// In bytes; 0 is none.
    pub bytes: AtomicU64,
    /// Until when, in milliseconds of Unix time, it is in vain to look for connections to close.
    pub in_vain_until_ms: AtomicU64,
}

impl ClientLimit {
    /// Follows `maxmemory-clients` and, where that is a percentage, `maxmemory`. Says whether there is a limit.
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

/// Bytes of memory that a connection takes: its state, its buffers, and what it watches and has subscribed to.
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
    let state = size_of::<Session>() + size_of::<Client>();
    parts.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u64>() + state as u64
}

/// Notes that a connection watches a key or has subscribed to a channel of this name.
pub fn note_name(client: &Client, name: &[u8]) {
    client.names_bytes.fetch_add(name_bytes(name), Ordering::Relaxed);
}

/// Notes that it doesn't any more.
pub fn forget_name(client: &Client, name: &[u8]) {
    client.names_bytes.fetch_sub(name_bytes(name), Ordering::Relaxed);
}

fn name_bytes(name: &[u8]) -> u64 {
    // Both tables have a copy of it.
    (2 * name.len() + NAME_BYTES) as u64
}
