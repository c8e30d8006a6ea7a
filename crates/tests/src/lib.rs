//! Tests that know the server only from outside: its process, its sockets, its bytes.
//!
//! The library is the harness of the integration tests under `tests/`: it starts servers (Penstock, and Debian's
//! `redis-server` as the oracle), sends raw bytes, generates random commands from templates, compares replies, and
//! shrinks streams with differences. This crate uses no other crate of Penstock. A misunderstanding of the protocol
//! there would otherwise hide itself here.
//!
//! Environment:
//! - `PENSTOCK_BIN`: the server to test. Default: the workspace's own binary, built when needed.
//! - `PENSTOCK_ORACLE`: the Redis to compare with. Default: `redis-server` from `PATH`.
//! - `PENSTOCK_CONF_FILES`: configuration files of Redis and Valkey, separated by colons, with which Penstock must
//!   start, in addition to the files that Debian's packages install.
//! - `PENSTOCK_SEED=N`: the differential test runs only this seed.
//! - `PENSTOCK_DIFF_ROUNDS=N`: number of seeds per family in the differential test.
//! - `PENSTOCK_ACCESS_PAIRS=N`: number of pairs of a user and a command in the test of access rules.
//! - `PENSTOCK_RESUME_ROUNDS=N`: number of connections that each client loses in the test of lost connections.

#![forbid(unsafe_code)]
// The harness fails tests by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

pub mod breaker;
pub mod bus_proxy;
pub mod bytes;
pub mod certificates;
pub mod cluster_load;
pub mod conn;
pub mod dataset;
pub mod diff;
pub mod directory;
pub mod families;
pub mod hanging_disk;
pub mod known_differences;
pub mod linear;
pub mod loader;
pub mod nodes;
pub mod normalise;
pub mod ports;
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
