//! The counters of waiters' commands and of observed side effects.

use super::Worker;
use crate::clients::blocking::Waiter;
use crate::state::UNBLOCKED;

impl Worker {
    /// Counts a waiter's command that has ended with an error.
    pub(crate) fn count_failed(&mut self, waiter: &Waiter, error: &[u8]) {
        waiter.count(Some(error));
        self.count_error_of(waiter, error);
    }

    /// Counts the error of a waiter that another thread than a worker has ended. Its pipeline has counted the command
    /// already.
    pub(crate) fn count_refused(&mut self, waiter: &Waiter, error: &[u8]) {
        self.count_error_of(waiter, error);
    }

    /// Counts a waiter's command that has ended because this server became a replica. Its pipeline has counted it
    /// already.
    pub(crate) fn count_ended_by_following(&mut self, waiter: &Waiter) {
        self.count_error_of(waiter, UNBLOCKED.as_bytes());
    }

    fn count_error_of(&mut self, waiter: &Waiter, error: &[u8]) {
        self.count_as_run(waiter);
        let stats = self.stats();
        stats.count_error(error);
        stats.commands[waiter.command.id].failed.add(1);
    }

    /// Counts a waiter's command that has succeeded or timed out. The caller is inside the gate.
    pub(crate) fn count_ended(&mut self, waiter: &Waiter) {
        self.count_as_run(waiter);
        waiter.count(None);
    }

    /// Counts a waiter's command as run, before the client learns its result. The time of the wait is not the
    /// command's.
    fn count_as_run(&mut self, waiter: &Waiter) {
        self.meter.note(waiter.command.id, 0);
        self.meter.count();
    }

    /// Adds the observed side effects to the counters.
    pub(crate) fn note_observed(&mut self) {
        let stats = self.stats();
        stats.hits.add(std::mem::take(&mut self.observed.hits));
        stats.misses.add(std::mem::take(&mut self.observed.misses));
        stats.expired.add(std::mem::take(&mut self.observed.expired));
        stats.expired_fields.add(std::mem::take(&mut self.observed.expired_fields));
        stats.dirty.add(std::mem::take(&mut self.effects.dirty));
    }
}

#[cfg(test)]
#[path = "counting_tests.rs"]
mod tests;
