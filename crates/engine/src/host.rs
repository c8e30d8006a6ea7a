//! What the server does for the engine, beside calling it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use journal::merge::Merge;

use crate::config::{ConfigHost, LogLevel};
use crate::machine::{Machine, Usage};
use crate::migrations::Migration;
use crate::snapshots::{Outlet, Piece, Purpose, SnapshotForm};

/// What is told of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFigures {
    /// Its number, in hexadecimal digits.
    pub serial: String,
    /// When it ends, in seconds of Unix time.
    pub ends_s: u64,
}

/// See the module's documentation.
pub trait Host: ConfigHost + Send + Sync {
    /// Ends the server as SIGTERM does. Replicas are waited for to have everything, unless it ends at once.
    fn shut_down(&self, at_once: bool);

    /// Ends the wait for replicas of a server that is about to end, so that it goes on. False if there is none.
    fn abort_shut_down(&self) -> bool {
        false
    }

    /// Begins to write the append-only file if it has been turned on and isn't written yet: `read` gives the journal's reading end. All
    /// shards are held.
    ///
    /// # Errors
    /// Why it can't be begun.
    fn begin_append_only_file(&self, _read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        Ok(())
    }

    /// Ends the append-only file, empties the keyspace, and loads the file again. Returns at once: all commands are paused, and the
    /// pause ends with it. If the file can't be loaded, the process ends, as at a start.
    ///
    /// # Errors
    /// Why it can't be begun.
    fn reload_append_only_file(&self) -> Result<(), String> {
        Err("there is no append-only file here".into())
    }

    /// What supervises the process, as INFO says it.
    fn supervisor(&self) -> &'static str {
        "no"
    }

    /// What doesn't change while the server runs. Asked once.
    fn machine(&self) -> Machine {
        Machine::default()
    }

    /// Processor time that the process has had so far.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// The certificates that the server shows its clients, that it shows other servers, and of the first authority.
    fn certificates(&self) -> [Option<CertificateFigures>; 3] {
        Default::default()
    }

    /// Bytes of memory that the process has asked for and not given back. Cheap enough to be asked once per batch.
    fn used_memory(&self) -> u64 {
        0
    }

    /// The memory allocator's own figures, as text for people, if it has any.
    fn allocator_statistics(&self) -> Option<String> {
        None
    }

    /// Ends the process at once, or as [`Host::shut_down`] does, and starts it anew with the same arguments after so many milliseconds.
    ///
    /// # Errors
    /// Why it can't be.
    fn restart(&self, _gracefully: bool, _after_ms: u64) -> Result<(), String> {
        Err("the server can't start itself anew here".into())
    }

    /// Bytes of memory that the process holds. Asked once a second, and by INFO.
    fn resident_memory(&self) -> u64 {
        0
    }

    /// Whether a block of memory lies in a page of the allocator that had better be emptied.
    fn is_sparse(&self, _block: *const u8) -> bool {
        false
    }

    /// Begins to write a snapshot: `pieces` gives its bytes, of this form. When the file is complete, or has failed, the server calls
    /// [`crate::snapshots::Snapshots::note_ended`].
    ///
    /// # Errors
    /// Why it can't be begun.
    fn save(
        &self,
        _purpose: Purpose,
        _form: SnapshotForm,
        _outlet: Arc<Outlet>,
        _pieces: Receiver<Piece>,
    ) -> Result<(), String> {
        Err("snapshots can't be written here".into())
    }

    /// Begins to send keys to another server. When that has ended, well or not, the server leaves the migration in
    /// `Engine::migrations` and tells its thread ([`crate::inbox::Message::Migrated`]).
    ///
    /// # Errors
    /// The migration, and why it can't be begun.
    fn migrate(&self, migration: Box<Migration>) -> Result<(), (Box<Migration>, String)> {
        Err((migration, "keys can't be migrated here".into()))
    }

    /// Writes a line into the server's log, unless `loglevel` leaves its level out.
    fn log(&self, _level: LogLevel, _message: &str) {}
}
