//! What a thread does beside its commands, so that limits are kept: it removes expired keys (`expiry.rs`), evicts keys
//! (`eviction.rs`), clears half-empty pages (`compaction.rs`), and closes connections that take too much memory
//! (`client_limit.rs`).
//!
//! Keys that are removed may have waiters. Those are served by `execute`, which calls this room.

pub mod client_limit;
mod compaction;
mod eviction;
pub(crate) mod expiry;
