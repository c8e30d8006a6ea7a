//! The values that a key can hold. Each collection starts as one packed block and is converted when it outgrows it.

pub mod block;
pub mod bptree;
pub mod hash;
pub mod intset;
pub mod list;
pub mod packed;
pub mod packed_record;
pub mod set;
pub mod stream;
pub mod suggestions;
pub mod timed_hash;
pub mod zset;
