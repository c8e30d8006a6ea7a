//! Where a caller waits for the replies to its batch.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use resp::parse::Value;

use super::losses::Caller;
use crate::error::Interrupted;

/// What became of a batch.
pub(super) type BatchOutcome = Result<Vec<Value>, Interrupted>;

/// A place for one outcome, and the one thread that waits for it.
#[derive(Debug)]
pub(super) struct Slot {
    /// The caller that handed the batch over.
    caller: Caller,
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    outcome: Option<BatchOutcome>,
    done: bool,
    /// Its waiter is to lead, see [`super::shared`].
    lead: bool,
    waiter: Option<Thread>,
}

/// Why a wait is over.
pub(super) enum Call {
    /// The outcome is there.
    Done(BatchOutcome),
    /// The caller is to lead until it is.
    Lead,
}

impl Slot {
    /// For a batch of this thread.
    pub(super) fn new() -> Self {
        Self { caller: Caller::this(), state: Mutex::default() }
    }

    /// The caller that handed the batch over.
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the outcome in and wakes the waiter.
    pub(super) fn finish(&self, outcome: BatchOutcome) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        state.done = true;
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
    }

    /// Whether the outcome has come.
    pub(super) fn is_done(&self) -> bool {
        self.lock().done
    }

    /// Notes that this thread is going to wait.
    pub(super) fn announce(&self) {
        self.lock().waiter = Some(thread::current());
    }

    /// Makes the waiter lead; false if no caller waits here or the wait is over.
    pub(super) fn appoint(&self) -> bool {
        let mut state = self.lock();
        let Some(waiter) = state.waiter.clone().filter(|_| !state.done) else { return false };
        state.lead = true;
        drop(state);
        waiter.unpark();
        true
    }

    /// Waits, after [`Self::announce`].
    pub(super) fn wait(&self) -> Call {
        loop {
            let mut state = self.lock();
            if state.lead {
                state.lead = false;
                state.waiter = None;
                return Call::Lead;
            }
            if let Some(outcome) = state.outcome.take() {
                return Call::Done(outcome);
            }
            drop(state);
            thread::park();
        }
    }

    /// The outcome, if it has come.
    pub(super) fn take(&self) -> Option<BatchOutcome> {
        self.lock().outcome.take()
    }
}
