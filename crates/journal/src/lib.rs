//! The journal: every change of the keyspace as a record with a position in one order.
//!
//! A *unit* is a change that others see all at once: a command, a transaction, a script, a served waiter, a step of
//! expiry or eviction. Its *record* is the list of commands that reproduce it ([`record`]). A unit takes its *position*
//! from one counter while it still holds the shards that it changed ([`order`]), so that the order of positions extends
//! the order in which each shard changed. Each worker thread appends its units to its own lane ([`lane`]), and a reader
//! merges the lanes back into the order of positions ([`merge`]).
//!
//! This crate knows no keys, no clients and no files. Readers of the journal (an append-only file, a replica, a test)
//! are above it.
#![forbid(unsafe_code)]

pub mod lane;
pub mod merge;
pub mod order;
pub mod record;
