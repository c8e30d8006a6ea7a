//! What connections take of memory, and the limit of it, `maxmemory-clients`.
//! See "Client eviction" in Redis's documentation (<https://redis.io/docs/latest/develop/reference/clients/>).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::Client;
use crate::config::Settings;
use crate::session::Session;

/// The lowest limit, in bytes, as in Redis: with less nobody could say CONFIG SET any more.
const LIMIT_MIN: u64 = 128 << 10;

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

/// Bytes of memory that a connection takes: its state and its buffers.
#[must_use]
pub fn memory_bytes(client: &Client) -> u64 {
    let buffers = [
        &client.input_bytes,
        &client.input_free_bytes,
        &client.args_bytes,
        &client.output_memory,
        &client.queued_bytes,
    ];
    let state = size_of::<Session>() + size_of::<Client>();
    buffers.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u64>() + state as u64
}
