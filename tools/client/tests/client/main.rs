//! The client, end to end, against Penstock and against Redis itself. What it takes of memory is the other program's.

#[path = "../common/mod.rs"]
mod common;

mod advice;
mod atomic;
mod connection;
mod faults;
mod pubsub;
mod sharing;
#[cfg(feature = "tls")]
mod tls;
mod window;
