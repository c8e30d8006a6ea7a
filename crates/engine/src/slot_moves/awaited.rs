//! The result of another thread's work.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

/// Error: the other thread has ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// A result that may not be there yet.
pub struct Awaited<T> {
    from: Receiver<T>,
    here: Option<Result<T, Gone>>,
}

impl<T> Awaited<T> {
    pub fn new(from: Receiver<T>) -> Awaited<T> {
        Awaited { from, here: None }
    }

    /// Returns true once the result is there.
    pub fn is_here(&mut self) -> bool {
        if self.here.is_none() {
            self.here = match self.from.try_recv() {
                Ok(result) => Some(Ok(result)),
                Err(TryRecvError::Disconnected) => Some(Err(Gone)),
                Err(TryRecvError::Empty) => None,
            };
        }
        self.here.is_some()
    }

    /// Takes the result, if it is there.
    pub fn take(&mut self) -> Option<Result<T, Gone>> {
        self.is_here();
        self.here.take()
    }

    /// Waits for the result, at most for this time.
    pub fn block(&mut self, longest: Duration) {
        if !self.is_here() {
            self.here = match self.from.recv_timeout(longest) {
                Ok(result) => Some(Ok(result)),
                Err(RecvTimeoutError::Disconnected) => Some(Err(Gone)),
                Err(RecvTimeoutError::Timeout) => None,
            };
        }
    }
}
