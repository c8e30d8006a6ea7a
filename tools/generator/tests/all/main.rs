//! The load generator, end to end, with Penstock and Redis.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod load;
mod pipelining;
