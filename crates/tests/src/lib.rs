//! Tests that know the server only from outside: a process, its sockets, its bytes.
//!
//! The library is the harness that the integration tests under `tests/` share: it starts servers (Penstock, and
//! Debian's `redis-server` as the oracle of what Redis answers), talks raw bytes to them, generates random commands
//! from templates, compares replies, and shrinks what differs. It knows nothing of Penstock's own crates: a defect in
//! their idea of the protocol must not hide itself.
//!
//! Environment:
//! - `PENSTOCK_BIN`: the server to test. Default: the workspace's own binary, built when needed.
//! - `PENSTOCK_ORACLE`: the Redis to compare with. Default: `redis-server` from `PATH`.
//! - `PENSTOCK_CONF_FILES`: configuration files of Redis and Valkey that Penstock must start with, with colons between them,
//!   beside those that Debian's packages install.
//! - `PENSTOCK_SEED=N`: the differential test replays this one seed.
//! - `PENSTOCK_DIFF_ROUNDS=N`: how many seeds the differential test tries per family.
//! - `PENSTOCK_ACCESS_PAIRS=N`: how many pairs of a user and a command the test of access rules compares.
//! - `PENSTOCK_RESUME_ROUNDS=N`: how many connections each client of the test of lost connections loses.

#![forbid(unsafe_code)]
// A harness fails by panicking: that is how a test fails.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

pub mod breaker;
pub mod bytes;
pub mod certificates;
pub mod conn;
pub mod dataset;
pub mod diff;
pub mod directory;
pub mod families;
pub mod hanging_disk;
pub mod known_differences;
pub mod linear;
pub mod loader;
pub mod normalise;
pub mod reply;
pub mod rng;
pub mod scripts;
pub mod server;
pub mod shrink;
pub mod stream;
pub mod template;
pub mod terminal;
pub mod tls_conn;
pub mod transcript;
pub mod vocabulary;
