//! The append-only file: acknowledged changes survive a crash.
//!
//! The files are Redis's multi-part append-only file: a manifest ([`manifest`]) that names a base and increments of commands in the Redis
//! protocol. Increments written by Penstock have checksums in comment lines, which Redis and Valkey skip ([`block`]). [`writer`] takes
//! units from the journal, writes them in the order of their positions and syncs them by the policy. It keeps unwritten units until a write
//! succeeds. [`recovery`] reads the files back, and distinguishes a torn end from damage in the middle.
//!
//! All modules use the disk through a narrow trait ([`disk`]). A test's disk can fail, fill up, and lose unsynced data at any call. This
//! crate knows no keys and no clients.
#![forbid(unsafe_code)]

pub mod appender;
pub mod block;
pub mod disk;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod files;
pub mod manifest;
pub mod recovery;
pub mod saving;
mod tail;
pub mod writer;
