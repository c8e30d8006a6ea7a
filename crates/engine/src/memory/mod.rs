//! The limits of memory: which keys are evicted first (`eviction.rs`), how far a thread is in looking for expired ones
//! (`expiry.rs`), and when half-empty pages are cleared (`compaction.rs`). What follows from them is done by `upkeep`.

pub mod compaction;
pub(crate) mod eviction;
pub(crate) mod expiry;
