//! The load generator, end to end, against Penstock and against Redis itself.

// Clippy knows that a test may unwrap, but not the functions that only tests call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod load;
mod pipelining;
