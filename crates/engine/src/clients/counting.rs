//! Counts a connection's commands for its pipeline, if it has a token or stops at failures: see `pipelines`.

use std::sync::Arc;

use journal::record::Record;
use resp::skim::Skimmer;

use super::progress::Progress;
use super::session::Session;
use crate::listening::watch::Watchers;
use crate::pipelines::nodes::{ForwardState, KEPT_LONGER_S};
use crate::pipelines::{FAILURES_MAX, Failure, Ownership, Pipelines, Tally};
use crate::slots::forward::{Counted, Counter};
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

    /// Returns true if the pipeline has progressed beyond its last record in the journal. Only the connection that has the
    /// token may record it: another one could record a count between the record and the count of the present command.
    pub(crate) fn has_unrecorded_count(&self) -> bool {
        self.tally().is_some_and(|tally| {
            tally.pipeline().ownership_of(self.client.id) == Ownership::Held && tally.pipeline().is_unrecorded()
        })
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

    /// Returns true if the next command must wait for forwarded ones: it changes the token, or the session has one, so that
    /// one command runs at a time.
    #[inline]
    pub(crate) fn awaits_forwarded(&self, is_of_pipeline: impl FnOnce() -> bool) -> bool {
        let has_token = || self.tally().is_some_and(|tally| tally.pipeline().has_token());
        self.forwarding.is_waiting() && (has_token() || is_of_pipeline())
    }

    /// Returns the token of other nodes for the commands that they run for this session, and the positions of the command that is
    /// forwarded now.
    pub(crate) fn defer_count(&mut self) -> Option<(Arc<Counter>, Counted)> {
        let counter = self.counter()?;
        let (position, commands) = self.tally_mut()?.defer()?;
        Some((counter, Counted { position, commands }))
    }

    /// Returns the token of other nodes for the commands that they run for this session.
    #[must_use]
    pub fn counter(&self) -> Option<Arc<Counter>> {
        let pipeline = self.tally()?.pipeline();
        let ForwardState { generation, name } = pipeline.forward().filter(|forward| !forward.name.is_empty())?;
        let ttl_s = pipeline.ttl_ms().div_ceil(1000).saturating_add(KEPT_LONGER_S);
        Some(Arc::new(Counter { name, generation, ttl_s }))
    }

    /// Counts commands that another node has answered. Does nothing if another connection has taken the token over. Returns true if one
    /// has failed.
    pub(crate) fn count_answered(&mut self, pipelines: &Pipelines, counted: Counted, reply: &[u8]) -> bool {
        let Some(tally) = self.tally() else { return false };
        let (failed, failures) = failures_in(counted, reply);
        pipelines.count_answered(tally.pipeline(), self.client.id, counted.commands, failures, failed);
        failed > 0
    }

    /// Excludes a redirected command, or its whole transaction, from the count, if this node counts for another node of the
    /// cluster, which sends the command on.
    #[cold]
    pub(crate) fn count_redirected(&mut self) {
        let in_transaction = self.multi.is_some();
        if let Some(tally) = self.tally_mut().filter(|tally| tally.pipeline().is_of_owner()) {
            tally.redirect(in_transaction);
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
    #[must_use]
    pub fn has_lost_token(&self) -> bool {
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

/// Returns the number of errors in the reply to a command, or to EXEC, and the first ones with their positions.
fn failures_in(counted: Counted, reply: &[u8]) -> (u64, Vec<Failure>) {
    let (mut failed, mut failures) = (0, Vec::new());
    let last = counted.position + counted.commands.saturating_sub(1);
    // The reply is complete and has been parsed once.
    let _ = Skimmer::new().feed(reply, |error| {
        let position = match error.element {
            // MULTI precedes the first queued command.
            Some(element) if counted.commands > 1 => counted.position + 1 + element,
            // An error within the reply of one command is no failure of the command.
            Some(_) => return,
            None => last,
        };
        failed += 1;
        if failures.len() < FAILURES_MAX {
            failures.push(Failure::new(position, error.text));
        }
    });
    (failed, failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_forwarded_commands_have_the_positions_of_the_pipeline() {
        let found = |position, commands, reply: &str| {
            let (failed, failures) = failures_in(Counted { position, commands }, reply.as_bytes());
            let texts = failures.iter().map(|it| format!("{} {}", it.position, String::from_utf8_lossy(&it.error)));
            (failed, texts.collect::<Vec<_>>().join(", "))
        };
        assert_eq!(found(5, 1, "+OK\r\n"), (0, String::new()));
        assert_eq!(found(5, 1, "-ERR no\r\n"), (1, "5 ERR no".into()));
        assert_eq!(found(5, 1, "*2\r\n:1\r\n-ERR no\r\n"), (0, String::new()));
        let replies = "*3\r\n-ERR a\r\n*1\r\n:1\r\n-ERR b\r\n";
        assert_eq!(found(5, 5, replies), (2, "6 ERR a, 8 ERR b".into()));
        assert_eq!(found(5, 5, "-EXECABORT no\r\n"), (1, "9 EXECABORT no".into()));
        let many = format!("*40\r\n{}", "-ERR\r\n".repeat(40));
        assert_eq!(found(1, 42, &many).0, 40);
    }
}
