//! The keyspace and its values: tables, prefetch, expiry, locks and the gate.
//!
//! This crate knows no client and no wire format. Time and randomness are arguments; nothing here reads a clock.

pub mod byte_order;
pub mod compact;
pub mod crc64;
pub mod db;
pub mod entry;
pub mod expiry;
pub mod frequency;
pub mod glob;
pub mod hash;
pub mod int;
pub mod keyspace;
pub mod popcount;
pub mod prefetch;
pub mod random;
pub mod reaper;
pub mod shared_bytes;
pub mod simd;
pub mod six_bits;
pub mod snapshot;
pub mod sync;
pub mod table;
pub mod types;
pub mod unaligned_box;
pub mod value;
