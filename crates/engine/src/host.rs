//! The interface through which the engine calls the server.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use journal::merge::Merge;

use crate::machine::{Machine, Usage};
use crate::migrations::Migration;
use crate::slots::bus::BusRequest;
use crate::slots::jobs::SlotJob;
use crate::snapshots::{Outlet, Piece, Purpose, SnapshotForm};
use config::{ConfigHost, LogLevel};

/// Figures of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFigures {
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The expiry, in seconds of Unix time.
    pub ends_s: u64,
}

/// The form of a shutdown that a command requests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shutdown {
    /// Doesn't wait for replicas to receive everything.
    pub at_once: bool,
    /// Hands a primary's slots over to a replica.
    pub fails_over: bool,
}

/// Functions of the server for the engine.
pub trait Host: ConfigHost + Send + Sync {
    /// Ends the server, as SIGTERM does.
    fn shut_down(&self, shutdown: Shutdown);

    /// Aborts a shutdown that waits for replicas. Returns false if there is none.
    fn abort_shut_down(&self) -> bool {
        false
    }

    /// Begins to write the append-only file if it is on and not being written; `read` returns the journal's reading
    /// end. All
    /// shards are held.
    ///
    /// # Errors
    /// The reason why it can't begin.
    fn begin_append_only_file(&self, _read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        Ok(())
    }

    /// Returns true if the append-only file was turned off and its last units are still being written.
    fn closes_append_only_file(&self) -> bool {
        false
    }

    /// Ends the append-only file, empties the keyspace, and loads the file again. Returns at once: all commands are
    /// paused, and the
    /// pause ends after the load. A failed load ends the process, as at the start.
    ///
    /// # Errors
    /// The reason why it can't begin.
    fn reload_append_only_file(&self) -> Result<(), String> {
        Err("there is no append-only file here".into())
    }

    /// Returns the supervisor of the process, for INFO.
    fn supervisor(&self) -> &'static str {
        "no"
    }

    /// Returns the constant facts about process and machine. Called once.
    fn machine(&self) -> Machine {
        Machine::default()
    }

    /// Returns the processor time of the process so far.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Returns the certificates for clients, for other servers, and of the first authority.
    fn certificates(&self) -> [Option<CertificateFigures>; 3] {
        Default::default()
    }

    /// Returns the allocated memory of the process in bytes. Cheap enough for a call per batch.
    fn used_memory(&self) -> u64 {
        0
    }

    /// Returns the memory allocator's statistics as text, if it has any.
    fn allocator_statistics(&self) -> Option<String> {
        None
    }

    /// Ends the process at once, or as [`Host::shut_down`] does, and starts it again with the same arguments after
    /// `after_ms`.
    ///
    /// # Errors
    /// The reason why it can't restart.
    fn restart(&self, _gracefully: bool, _after_ms: u64) -> Result<(), String> {
        Err("the server can't start itself anew here".into())
    }

    /// Returns the resident memory of the process in bytes. Called once a second, and by INFO.
    fn resident_memory(&self) -> u64 {
        0
    }

    /// Returns true if a block of memory is in a page that the allocator wants to empty.
    fn is_sparse(&self, _block: *const u8) -> bool {
        false
    }

    /// Begins to write a snapshot; `pieces` yields its bytes in this form. At the end, after success or failure, the
    /// server calls
    /// [`crate::snapshots::Snapshots::note_ended`].
    ///
    /// # Errors
    /// The reason why it can't begin.
    fn save(
        &self,
        _purpose: Purpose,
        _form: SnapshotForm,
        _outlet: Arc<Outlet>,
        _pieces: Receiver<Piece>,
    ) -> Result<(), String> {
        Err("snapshots can't be written here".into())
    }

    /// Begins to send keys to another server. At the end, after success or failure, the server puts the migration into
    /// `Engine::migrations` and notifies its thread ([`crate::inbox::Message::Migrated`]).
    ///
    /// # Errors
    /// The migration, and the reason why it can't begin.
    fn migrate(&self, migration: Box<Migration>) -> Result<(), (Box<Migration>, String)> {
        Err((migration, "keys can't be migrated here".into()))
    }

    /// Begins to carry out the exports of `Engine::slots.jobs`, in a thread that ends after the last.
    ///
    /// # Errors
    /// The reason why it can't begin.
    fn export_slots(&self) -> Result<(), String> {
        Err("slots can't be moved here".into())
    }

    /// Begins an import from Redis, in a thread of its own.
    ///
    /// # Errors
    /// The reason why it can't begin.
    fn import_slots(&self, _job: Arc<SlotJob>) -> Result<(), String> {
        Err("slots can't be moved here".into())
    }

    /// Passes a command to the cluster's bus.
    ///
    /// # Errors
    /// The error for the client.
    fn cluster(&self, _request: BusRequest) -> Result<(), String> {
        Err("ERR The cluster bus does not run here".into())
    }

    /// Passes a published message to the subscribers of the cluster's other nodes.
    fn publish(&self, _channel: &[u8], _message: &[u8], _sharded: bool) {}

    /// Returns the bytes on their way to other nodes of the cluster or from them.
    fn cluster_memory(&self) -> u64 {
        0
    }

    /// Writes a line to the server's log, if `loglevel` includes its level.
    fn log(&self, _level: LogLevel, _message: &str) {}
}
