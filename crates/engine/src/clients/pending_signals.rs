//! Signals from other threads to a connection's worker, in one word. The worker reads it before each window, with one
//! load.

use std::sync::atomic::{AtomicU8, Ordering};

/// See the module's documentation.
#[derive(Default, Debug)]
pub struct PendingSignals(AtomicU8);

impl PendingSignals {
    /// The connection must be closed.
    const KILLED: u8 = 1;
    /// The permissions of its user have changed.
    const USER_CHANGED: u8 = 1 << 1;

    /// Returns true if there are signals.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Requests that the connection be closed.
    pub fn kill(&self) {
        self.0.fetch_or(PendingSignals::KILLED, Ordering::SeqCst);
    }

    /// Returns true once the connection must be closed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.load(Ordering::SeqCst) & PendingSignals::KILLED != 0
    }

    /// Reports that the permissions of the connection's user have changed.
    pub(crate) fn change_user(&self) {
        self.0.fetch_or(PendingSignals::USER_CHANGED, Ordering::SeqCst);
    }

    /// Returns true if the permissions have changed since the last call.
    pub(crate) fn take_user_changed(&self) -> bool {
        self.0.fetch_and(!PendingSignals::USER_CHANGED, Ordering::SeqCst) & PendingSignals::USER_CHANGED != 0
    }
}
