//! Replay of the journal: applies recorded units of this server or another one, in order.
//!
//! A unit's commands run like a client's, except that nothing expires by the clock: the journal records each expiry
//! itself. No command that this server recorded answers an error when it is replayed in order. Files of other servers
//! have commands that do; the caller decides about each ([`Replay::commands_or`]).

mod beside;
mod exporting;
mod failures;
mod importing;
mod lanes;
mod sharing;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;

pub use self::beside::DataBeside;
pub use self::exporting::{SlotFeed, TargetMessage, TargetMessages};
pub use self::failures::FailedCommand;
pub use self::importing::{ImportSplitter, ImportStep, SourceMessage};
pub use self::stream::runs_by_itself;

use std::sync::Arc;

use journal::merge::Unit;
use journal::record::{Entry, Kind};
use resp::reply::Output;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::execute::lanes::{KEPT_BYTES, NO_CLIENT};
use crate::worker::Worker;

/// Commands that empty the keyspace.
const EMPTY: &[u8] = b"*1\r\n$8\r\nFLUSHALL\r\n*2\r\n$8\r\nFUNCTION\r\n$5\r\nFLUSH\r\n";

/// The reason that a unit could not be applied.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The command.
    pub command: Vec<u8>,
    /// Its error reply.
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
        worker.set_replays(true);
        worker.begin_turn(now_us);
        // The limit binds clients, but not data that a server has already accepted.
        worker.limits.bulk_bytes_max = i64::MAX;
        // This client is not listed: it is no connection, and no thread serves it.
        let client = Client::new(NO_CLIENT, worker.id, String::new(), String::new(), -1, worker.clock.now_ms, 0);
        Replay { worker, session: Session::new(Arc::new(client), true) }
    }

    /// Empties the keyspace, before other data replace the present ones.
    ///
    /// # Errors
    /// The reason that it can't be emptied.
    pub fn empty(&mut self) -> Result<(), String> {
        self.commands(EMPTY).map_err(|(_, why)| why)
    }

    /// Applies consecutive whole commands. A transaction may end in a later call.
    ///
    /// # Errors
    /// The number of bytes before the first command that answered an error, and the error.
    pub fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        self.commands_or(commands, &mut |failed| Err(failed.error))
    }

    /// Applies commands like [`Self::commands`], but passes each command that answered an error to `decide`. The replay
    /// ends if `decide` returns an error, or if a command doesn't exist.
    ///
    /// # Errors
    /// The number of bytes before the command that ended the replay, and the reason.
    pub fn commands_or(
        &mut self,
        commands: &[u8],
        decide: &mut dyn FnMut(FailedCommand) -> Result<(), String>,
    ) -> Result<(), (usize, String)> {
        let mut at = 0;
        let mut out = Output::default();
        while at < commands.len() {
            let (before, errors) = (at, self.worker.stats().errors.get());
            (at, _) = self.worker.run(&mut self.session, commands.into(), at, &mut out);
            // The counter includes errors that a script has caught, and these are no replies.
            let has_failed = self.worker.stats().errors.get() != errors;
            let failed = if has_failed { failures::failures(commands, before, &out) } else { Vec::new() };
            for failed in failed {
                let place = failed.before;
                let decided = if failed.is_known { decide(failed) } else { Err(failed.error) };
                decided.map_err(|why| (place, why))?;
            }
            if at == before {
                return Err((before, "a command that can't be run".into()));
            }
            out.clear(KEPT_BYTES);
        }
        Ok(())
    }

    /// Applies a record of Penstock's own kind, an array of bulk strings.
    ///
    /// # Errors
    /// The reason that it can't be applied.
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
        if !entry.kind.is_for_file() {
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

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        self.worker.close(&mut self.session);
        self.worker.set_replays(false);
        self.worker.follow_limits();
    }
}
