//! A place where a caller waits for the replies to its batch.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use resp::parse::Value;

use super::losses::Caller;
use crate::error::Interrupted;

/// Outcome of a batch.
pub(super) type BatchOutcome = Result<Vec<Value>, Interrupted>;

/// A place for one outcome, and for the one thread that waits for it.
#[derive(Debug)]
pub(super) struct Slot {
    /// The caller that handed over the batch.
    caller: Caller,
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    outcome: Option<BatchOutcome>,
    done: bool,
    /// True if the waiter was appointed as leader; see [`super::shared`].
    lead: bool,
    waiter: Option<Thread>,
}

/// Reason for the end of a wait.
pub(super) enum Call {
    /// The outcome has arrived.
    Done(BatchOutcome),
    /// The caller must lead until the outcome arrives.
    Lead,
}

impl Slot {
    /// Returns a slot for a batch of this thread.
    pub(super) fn new() -> Self {
        Self { caller: Caller::this(), state: Mutex::default() }
    }

    /// Returns the caller that handed over the batch.
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the outcome and wakes the waiter.
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

    /// Returns true if the outcome has arrived.
    pub(super) fn is_done(&self) -> bool {
        self.lock().done
    }

    /// Registers this thread as the waiter.
    pub(super) fn announce(&self) {
        self.lock().waiter = Some(thread::current());
    }

    /// Appoints the waiter as leader. Returns false if no caller waits or the outcome has arrived.
    pub(super) fn appoint(&self) -> bool {
        let mut state = self.lock();
        let Some(waiter) = state.waiter.clone().filter(|_| !state.done) else { return false };
        state.lead = true;
        drop(state);
        waiter.unpark();
        true
    }

    /// Waits. [`Self::announce`] must be called before.
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

    /// Returns the outcome, if it has arrived.
    pub(super) fn take(&self) -> Option<BatchOutcome> {
        self.lock().outcome.take()
    }
}
