//! The periodic work of a thread beside its commands: it removes expired keys (`expiry.rs`), evicts keys
//! (`eviction.rs`), clears half-empty pages (`compaction.rs`), and closes connections that take too much memory
//! (`client_limit.rs`).
//!
//! Removed keys may have waiters. `execute`, which calls this module, serves them.

pub mod client_limit;
mod compaction;
mod dropped_slots;
mod eviction;
pub(crate) mod expiry;
