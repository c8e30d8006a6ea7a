//! The values that a key can hold, each starting as one packed block and converting when it outgrows it.

pub mod block;
pub mod bptree;
pub mod hash;
pub mod intset;
pub mod list;
pub mod packed;
pub mod set;
pub mod stream;
pub mod suggestions;
pub mod thin;
pub mod timed_hash;
pub mod zset;
