//! Listeners of keys: the filter for keys with listeners (`listeners.rs`), watched keys (`watch.rs`), keys that clients
//! cache (`tracking.rs`, `tracked_keys.rs`), and published events (`events.rs`). Sessions that wait for keys are in
//! `clients::blocking`.

pub(crate) mod events;
pub mod listeners;
pub mod tracked_keys;
pub mod tracking;
pub mod watch;

/// Approximate overhead of a watched key, a subscribed channel, a tracked prefix or a key that ends a wait: one table
/// entry in the connection, and one in the table of all connections.
const NAME_BYTES: usize = 96;

/// Returns the memory of such a name in bytes. Both tables have a copy of it.
pub(crate) fn name_bytes(name: &[u8]) -> u64 {
    (2 * name.len() + NAME_BYTES) as u64
}
