//! What a connection counts for its pipeline token, if it has one: see `pipelines`.

use journal::record::Record;

use super::session::Session;
use super::step::Step;
use crate::command_table::Command;
use crate::pipelines::{Hold, Pipelines, Tally};

impl Session {
    /// True if the next command may run: not if another connection has taken the token over.
    #[inline]
    pub(crate) fn begin_counted(&mut self, command: Option<&Command>) -> bool {
        if self.has_lost_token() {
            return false;
        }
        let client = self.client.id;
        match self.tally_mut() {
            Some(tally) if tally.pipeline().hold_of(client) == Hold::Has => tally.begin(command.map(|c| c.id)),
            _ => drop(self.set_tally(None)),
        }
        true
    }

    /// Records how far the pipeline has got, the running command included if it `counts`: it is counted when its shards
    /// are free again, but before its thread leaves the gate.
    pub(crate) fn record_count(&mut self, counts: bool, record: &mut Record) {
        if let Some(tally) = self.tally() {
            tally.record(counts, self.database, record);
        }
    }

    /// True if the pipeline has got further than the journal knows.
    pub(crate) fn has_unrecorded_count(&self) -> bool {
        self.tally().is_some_and(|tally| tally.pipeline().is_unrecorded())
    }

    /// Counts the command that has been running, if it counts and has not been counted yet.
    #[inline]
    pub(crate) fn count(&mut self, step: Step) {
        let (in_transaction, database) = (self.multi.is_some(), self.database);
        let Some(tally) = self.tally_mut() else { return };
        match step {
            // It has not run.
            Step::Park | Step::Pause | Step::AwaitRoom | Step::Gone => tally.begin_not(),
            Step::Next | Step::Reframe | Step::Close => tally.end(in_transaction, database),
        }
    }

    /// The command that is running is none of the pipeline's.
    pub(crate) fn count_not(&mut self) {
        if let Some(tally) = self.tally_mut() {
            tally.begin_not();
        }
    }

    /// The command that is running has answered an error, be it because of another command that it has run itself.
    #[cold]
    pub(crate) fn count_failure(&mut self, command: Option<&Command>, error: &[u8]) {
        if let Some(tally) = self.tally_mut() {
            tally.fail(command.map(|c| c.id), error);
        }
    }

    /// The place of the command that is running among those of the pipeline; 0 if it is none of them.
    pub(crate) fn position(&self) -> u64 {
        self.tally().map_or(0, Tally::position)
    }

    /// Within EXEC: what runs now is the command that was queued at this position.
    pub(crate) fn count_within(&mut self, command: &Command, position: u64) {
        if let Some(tally) = self.tally_mut() {
            tally.begin_queued(command.id, position);
        }
    }

    /// True if another connection has taken the token over that this one counted for.
    #[inline]
    pub(crate) fn has_lost_token(&self) -> bool {
        self.tally().is_some_and(|tally| match tally.pipeline().hold_of(self.client.id) {
            Hold::Has => false,
            // Another connection may have taken it over, and be done with it already.
            Hold::Ended => self.client.summons.is_killed(),
            Hold::Lost => true,
        })
    }

    /// Gives the token up: the session ends, or begins anew.
    pub(crate) fn leave_pipeline(&mut self, pipelines: &Pipelines, now_ms: u64) {
        if let Some(tally) = self.set_tally(None) {
            pipelines.let_go(tally.pipeline(), self.client.id, now_ms);
        }
    }
}
