//! Bytes at rest: snapshots in Redis's format (RDB), and what they are made of.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`rdb`] | snapshots: written in steps, read as a sequence of events |
//! | [`payload`] | single values as DUMP answers them, libraries of functions |
//! | [`crc64`] | the checksum of snapshots and payloads |
//! | [`lzf`] | the compression of strings within them |
//! | [`items`] | what the blocks have in common that follow |
//! | [`listpack`], [`ziplist`], [`zipmap`], [`intset`] | the blocks that Redis keeps small collections in |
//!
//! This room knows no files and no clocks: bytes are appended to buffers and come from readers, and time is an argument. What it
//! reads may be damaged or hostile: everything is checked before it is used, refusals name the thing and its offset, and nothing
//! is allocated that the bytes which have arrived don't justify.

#![forbid(unsafe_code)]

pub mod crc64;
pub mod intset;
pub mod items;
pub mod listpack;
pub mod lzf;
pub mod payload;
pub mod rdb;
pub mod ziplist;
pub mod zipmap;

use store::types::hash::HashLimits;
use store::types::list::ListLimits;
use store::types::set::SetLimits;
use store::types::zset::ZSetLimits;

/// Up to which size a collection that is read is kept in its small form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// For lists.
    pub list: ListLimits,
    /// For sets.
    pub set: SetLimits,
    /// For hashes.
    pub hash: HashLimits,
    /// For sorted sets.
    pub zset: ZSetLimits,
}
