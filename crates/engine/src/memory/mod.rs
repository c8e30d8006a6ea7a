//! Memory limits: the order of eviction (`eviction.rs`), the progress of the search for expired keys (`expiry.rs`), and
//! the schedule of compaction (`compaction.rs`). `upkeep` does the work.

pub mod compaction;
pub(crate) mod eviction;
pub(crate) mod expiry;
