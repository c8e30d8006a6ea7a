//! Counts a connection's commands for its pipeline, if it has a token or stops at failures: see `pipelines`.

use journal::record::Record;

use super::progress::Progress;
use super::session::Session;
use crate::listening::watch::Watchers;
use crate::pipelines::{Ownership, Pipelines, Tally};
use commands::table::Command;

impl Session {
    /// Returns true if the next command may run: false if another connection has taken the token over.
    #[inline]
    pub(crate) fn begin_counted(&mut self, command: Option<&Command>) -> bool {
        if self.has_lost_token() {
            return false;
        }
        let client = self.client.id;
        if self.tally().is_some_and(|tally| tally.pipeline().ownership_of(client) != Ownership::Held) {
            self.forget_token();
        }
        let Some(tally) = self.tally_mut() else { return true };
        tally.begin(command.map(|c| c.id));
        // Another thread may have answered a blocked command with an error.
        let skips = tally.pipeline().is_stopped();
        self.set_skips(skips);
        true
    }

    /// Ends the count for a token that was removed. Without the token, the connection continues to stop at failures.
    #[cold]
    fn forget_token(&mut self) {
        let tally = self.tally().and_then(|tally| tally.without_token(self.client.id));
        self.set_tally(tally.map(Box::new));
    }

    /// Ends the rule that stops the pipeline at failures.
    pub(crate) fn abort_off(&mut self) {
        let Some(tally) = self.tally() else { return };
        tally.pipeline().abort_off();
        if !tally.pipeline().has_token() {
            self.set_tally(None);
        }
    }

    /// Records the progress of the pipeline, including the running command if it `counts`. That command is counted
    /// after it releases its shards, but before its thread leaves the gate.
    pub(crate) fn record_count(&mut self, counts: bool, record: &mut Record) {
        if let Some(tally) = self.tally() {
            tally.record(counts, self.database, record);
        }
    }

    /// Returns true if the pipeline has progressed beyond its last record in the journal.
    pub(crate) fn has_unrecorded_count(&self) -> bool {
        self.tally().is_some_and(|tally| tally.pipeline().is_unrecorded())
    }

    /// Counts the running command, unless it is counted already or must not be. A failure that stops the pipeline
    /// discards the open transaction, because its EXEC will be skipped.
    #[inline]
    pub(crate) fn count(&mut self, progress: Progress, watchers: &Watchers) {
        let in_transaction = self.multi.is_some();
        let Some(tally) = self.tally_mut() else { return };
        match progress {
            Progress::Ready | Progress::Reframe | Progress::Closing => {
                let is_discarded = in_transaction && tally.stops();
                if is_discarded {
                    self.discard(watchers);
                }
                let database = self.database;
                if let Some(tally) = self.tally_mut() {
                    tally.end(in_transaction && !is_discarded, database);
                }
            }
            // The command did not run, or a later reply counts it.
            _ => tally.begin_not(),
        }
    }

    /// Excludes the running command from the pipeline's count.
    pub(crate) fn count_not(&mut self) {
        if let Some(tally) = self.tally_mut() {
            tally.begin_not();
        }
    }

    /// Marks the running command as failed, even if the error came from a command that it ran.
    #[cold]
    pub(crate) fn count_failure(&mut self, command: Option<&Command>, error: &[u8]) {
        if let Some(tally) = self.tally_mut() {
            tally.fail(command.map(|c| c.id), error);
        }
    }

    /// Returns the position of the running command in the pipeline; 0 if it is outside of the pipeline.
    pub(crate) fn position(&self) -> u64 {
        self.tally().map_or(0, Tally::position)
    }

    /// Within EXEC: starts the command that was queued at this position.
    pub(crate) fn count_within(&mut self, command: &Command, position: u64) {
        if let Some(tally) = self.tally_mut() {
            tally.begin_queued(command.id, position);
        }
    }

    /// Returns true if another connection has taken over the token of this connection.
    #[inline]
    pub(crate) fn has_lost_token(&self) -> bool {
        self.tally().is_some_and(|tally| match tally.pipeline().ownership_of(self.client.id) {
            Ownership::Held => false,
            // Another connection may have taken the token over and ended it already.
            Ownership::Ended => self.client.pending_signals.is_killed(),
            Ownership::Lost => true,
        })
    }

    /// Releases the token because the session ends or resets.
    pub(crate) fn leave_pipeline(&mut self, pipelines: &Pipelines, now_ms: u64) {
        if let Some(tally) = self.set_tally(None) {
            pipelines.let_go(tally.pipeline(), self.client.id, now_ms);
        }
    }
}
