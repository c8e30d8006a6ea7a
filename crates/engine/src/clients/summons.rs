//! What other threads tell a connection's own to look at, in one word: looked at before each window, in one load.

use std::sync::atomic::{AtomicU8, Ordering};

/// See the module's documentation.
#[derive(Default, Debug)]
pub struct Summons(AtomicU8);

impl Summons {
    /// The connection is to be closed.
    const KILLED: u8 = 1;
    /// What its user may do has changed.
    const USER_CHANGED: u8 = 1 << 1;

    /// True if there is anything to be looked at.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Tells that the connection is to be closed.
    pub fn kill(&self) {
        self.0.fetch_or(Summons::KILLED, Ordering::SeqCst);
    }

    /// True once the connection is to be closed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.0.load(Ordering::SeqCst) & Summons::KILLED != 0
    }

    /// Tells that what the connection's user may do has changed.
    pub(crate) fn change_user(&self) {
        self.0.fetch_or(Summons::USER_CHANGED, Ordering::SeqCst);
    }

    /// True if it has changed since the last call.
    pub(crate) fn take_user_changed(&self) -> bool {
        self.0.fetch_and(!Summons::USER_CHANGED, Ordering::SeqCst) & Summons::USER_CHANGED != 0
    }
}
