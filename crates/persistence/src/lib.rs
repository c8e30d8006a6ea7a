//! The append-only file: what was acknowledged is there after a crash.
//!
//! The files are Redis's multi-part append-only file: a manifest ([`manifest`]) that names a base and increments of commands
//! in the Redis protocol. Increments that Penstock writes have checksums in comment lines, which Redis and Valkey skip
//! ([`block`]). [`writer`] takes units from the journal, writes them in the order of their positions and syncs them as the
//! policy says; it never gives up what it could not write. [`recovery`] reads the files back, and tells a torn end from
//! damage in the middle.
//!
//! All of it sees the disk through a narrow trait ([`disk`]), so that tests can have it fail, fill up and lose at any call
//! what was not synced. This room knows no keys and no clients.
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
pub mod writer;
