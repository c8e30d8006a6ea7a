//! End-to-end tests of the client with Penstock and Redis. The memory test is a separate program.

#[path = "../common/mod.rs"]
mod common;

mod advice;
mod atomic;
mod connection;
mod faults;
mod pubsub;
mod sharing;
mod stopping;
#[cfg(feature = "tls")]
mod tls;
mod window;
