//! Replaying the journal: units that were recorded, by this server or another, applied in their order.
//!
//! A unit's commands run as a client's do, but nothing expires by the clock meanwhile: what has expired is recorded
//! where it was removed. Nothing that was recorded answers an error when it is replayed in order, so an error tells that
//! the journal and the data don't belong together.

mod beside;
mod lanes;
mod sharing;
mod snapshot;
mod stream;

pub use self::beside::DataBeside;
pub use self::stream::runs_by_itself;

use std::sync::Arc;

use journal::merge::Unit;
use journal::record::{Entry, Kind};
use resp::reply::Output;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::execute::lanes::{KEPT_BYTES, NO_CLIENT};
use crate::worker::Worker;

/// What empties the keyspace.
const EMPTY: &[u8] = b"*1\r\n$8\r\nFLUSHALL\r\n*2\r\n$8\r\nFUNCTION\r\n$5\r\nFLUSH\r\n";

/// Why a unit could not be applied.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The command.
    pub command: Vec<u8>,
    /// What it answered.
    pub error: Vec<u8>,
}

/// Applies units to the keyspace of a worker that serves no clients meanwhile.
pub struct Replay<'w> {
    worker: &'w mut Worker,
    session: Session,
}

impl<'w> Replay<'w> {
    /// Begins to replay at this time, in microseconds of Unix time.
    pub fn begin(worker: &'w mut Worker, now_us: u64) -> Replay<'w> {
        worker.clock.replays = true;
        worker.begin_turn(now_us);
        // Not among the clients: it is no connection, and no thread serves it.
        let client = Client::new(NO_CLIENT, worker.id, String::new(), String::new(), -1, worker.clock.now_ms, 0);
        Replay { worker, session: Session::new(Arc::new(client), true) }
    }

    /// Empties the keyspace, before other data take the place of what there is.
    ///
    /// # Errors
    /// Why it can't be emptied.
    pub fn empty(&mut self) -> Result<(), String> {
        self.commands(EMPTY).map_err(|(_, why)| why)
    }

    /// Applies whole commands that follow each other. A transaction may end with the commands of a later call.
    ///
    /// # Errors
    /// Bytes before what could not be applied, or some of them, and why it could not.
    pub fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        let mut at = 0;
        let mut out = Output::default();
        while at < commands.len() {
            let (before, failures) = (at, self.worker.stats().errors.get());
            (at, _) = self.worker.run(&mut self.session, commands.into(), at, &mut out);
            if self.worker.stats().errors.get() != failures || at == before {
                return Err((before, first_error(&out).unwrap_or_else(|| "a command that can't be run".into())));
            }
            out.clear(KEPT_BYTES);
        }
        Ok(())
    }

    /// Applies a record that only Penstock understands, an array of bulk strings.
    ///
    /// # Errors
    /// Why it can't be applied.
    pub fn own(&mut self, record: &[u8]) -> Result<(), String> {
        let entry = Entry { database: 0, kind: Kind::Own, command: record };
        self.apply_entry(entry).map_err(|mismatch| String::from_utf8_lossy(&mismatch.error).into_owned())
    }

    /// Applies a unit.
    pub fn apply(&mut self, unit: &Unit<'_>) -> Result<(), Mismatch> {
        unit.entries().try_for_each(|entry| self.apply_entry(entry))
    }

    fn apply_entry(&mut self, entry: Entry<'_>) -> Result<(), Mismatch> {
        let mismatch = |error: &[u8]| Mismatch { command: entry.command.to_vec(), error: error.to_vec() };
        if entry.kind == Kind::Message {
            return Ok(());
        }
        if entry.kind == Kind::Own {
            let applied = self.worker.engine.pipelines.replay_record(entry.command, self.worker.clock.now_ms);
            return if applied { Ok(()) } else { Err(mismatch(b"ERR no record of a pipeline token")) };
        }
        if entry.database >= self.worker.engine.keyspace.databases() {
            return Err(mismatch(b"ERR there are too few databases: raise the setting databases"));
        }
        self.session.select(entry.database);
        let mut out = Output::default();
        self.worker.run(&mut self.session, entry.command.into(), 0, &mut out);
        let first = out.slices().find(|slice| !slice.is_empty());
        match first {
            Some([b'-', error @ ..]) => Err(mismatch(error)),
            _ => Ok(()),
        }
    }
}

/// The first error among replies.
fn first_error(replies: &Output) -> Option<String> {
    let text = replies.slices().collect::<Vec<_>>().concat();
    let mut lines = text.split(|&byte| byte == b'\n').map(|line| String::from_utf8_lossy(line).trim_end().to_string());
    lines.find_map(|line| line.strip_prefix('-').map(str::to_string))
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        self.worker.close(&mut self.session);
        self.worker.clock.replays = false;
    }
}
