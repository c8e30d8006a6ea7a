//! Stored data: snapshots in Redis's format (RDB), and their elements.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`rdb`] | snapshots: written in steps, read as a sequence of events |
//! | [`payload`] | single values as returned by DUMP, function libraries |
//! | [`crc64`] | the checksum of snapshots and payloads |
//! | [`lzf`] | the compression of strings within them |
//! | [`items`] | common code for the following blocks |
//! | [`listpack`], [`ziplist`], [`zipmap`], [`intset`] | Redis's blocks for small collections |
//!
//! This crate knows no files and no clocks: it appends to buffers and reads from readers, and time is an argument.
//! Input may be damaged or hostile: everything is checked before it is used, errors name the element and its offset,
//! and memory is allocated only in proportion to the received bytes.

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

/// Size limits of compact encodings for collections that are read.
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
