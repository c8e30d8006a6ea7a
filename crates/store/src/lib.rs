//! The keyspace and its values: tables, prefetch, expiry, locks and the gate.
//!
//! This room knows no client and no wire format. Time and randomness are arguments; nothing here reads a clock.

pub mod glob;
pub mod hash;
pub mod prefetch;
pub mod table;
pub mod types;
