//! The engine's host: it notes requests to the server's threads, which a process carries out in its steps.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use config::{Apply, ConfigHost, LogLevel, Settings};
use engine::host::{Host, Shutdown};
use engine::machine::Machine;
use engine::migrations::Migration;
use engine::slots::bus::BusRequest;
use engine::snapshots::{Outlet, Piece, Purpose, SnapshotForm};
use engine::state::Engine;
use journal::merge::Merge;

use crate::log::{OpenedFiles, SimLog};
use crate::saving::BegunSnapshot;

/// Requests of the engine to the server's threads.
#[derive(Default)]
pub struct HostState {
    /// Files that the next append-only file begins with.
    pub opened: Option<OpenedFiles>,
    /// The append-only file that is written.
    pub log: Option<SimLog>,
    /// The number of append-only files that the process has begun.
    pub logs: u64,
    /// Snapshots that have begun and that no step has taken.
    pub begun: VecDeque<BegunSnapshot>,
    /// Requests to the bus.
    pub requests: VecDeque<BusRequest>,
    /// Keys to be moved to other servers.
    pub migrations: VecDeque<Box<Migration>>,
    /// True if exports of slots must be carried out.
    pub exports: bool,
    /// Lines of the log.
    pub lines: Vec<String>,
}

/// The requests, which the engine leaves and the process takes.
#[derive(Default)]
pub struct HostMailbox {
    /// The engine, once it exists.
    pub engine: OnceLock<&'static Engine>,
    state: Mutex<HostState>,
}

impl HostMailbox {
    /// Locks the requests.
    pub fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host of a simulated engine.
pub struct SimHost {
    /// The requests, shared with the process.
    pub mailbox: Arc<HostMailbox>,
    /// The id of the history that the process begins.
    pub replication_id: String,
}

impl ConfigHost for SimHost {
    fn apply(&self, _: Apply, _: &Settings) -> Result<(), String> {
        Ok(())
    }
}

impl Host for SimHost {
    fn shut_down(&self, _: Shutdown) {}

    fn machine(&self) -> Machine {
        Machine { replication_id: self.replication_id.clone(), ..Machine::default() }
    }

    fn begin_append_only_file(&self, read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        let mut state = self.mailbox.state();
        let Some(engine) = self.mailbox.engine.get() else { return Ok(()) };
        if let Some(opened) = state.opened.take() {
            let merge = read().ok_or("the journal has a reader already")?;
            state.log = Some(SimLog::begin(engine, opened, merge));
            state.logs += 1;
        }
        Ok(())
    }

    fn migrate(&self, migration: Box<Migration>) -> Result<(), (Box<Migration>, String)> {
        self.mailbox.state().migrations.push_back(migration);
        Ok(())
    }

    fn export_slots(&self) -> Result<(), String> {
        self.mailbox.state().exports = true;
        Ok(())
    }

    fn log(&self, level: LogLevel, message: &str) {
        if matches!(level, LogLevel::Notice | LogLevel::Warning) {
            self.mailbox.state().lines.push(message.to_owned());
        }
    }

    fn cluster(&self, request: BusRequest) -> Result<(), String> {
        self.mailbox.state().requests.push_back(request);
        Ok(())
    }

    fn save(
        &self,
        purpose: Purpose,
        _: SnapshotForm,
        outlet: Arc<Outlet>,
        pieces: Receiver<Piece>,
    ) -> Result<(), String> {
        let mut state = self.mailbox.state();
        if purpose == Purpose::Base && state.log.is_none() {
            return Err("there is no append-only file to be rewritten".into());
        }
        // Before the log reaches the cut, and begins another increment.
        let last = state.log.as_ref().and_then(|log| log.files.manifest().last_increment()).map(|part| part.sequence);
        let log = state.logs;
        state.begun.push_back(BegunSnapshot { purpose, outlet, pieces, log, last: last.unwrap_or_default() });
        Ok(())
    }
}
