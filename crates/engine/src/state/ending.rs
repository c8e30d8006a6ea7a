//! The end of the server: the time that is left for replicas, and the clients that wait for the end.

use std::sync::atomic::Ordering;

use super::Engine;
use crate::clients::blocking::Awaited;
use crate::snapshots::Purpose;

/// The log line of a safe shutdown that is refused.
pub const UNSAFE_SHUTDOWN: &str =
    "Can't exit: a primary that shuts down leaves its slots without a server (SHUTDOWN SAFE)";

/// The error of a SHUTDOWN that has failed, or was aborted.
pub(crate) const SHUTDOWN_FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

impl Engine {
    /// Notes that the server is about to end, which may take `shutdown-timeout`. Returns false if it was about to end
    /// already.
    pub fn begin_shutdown(&self, now_ms: u64) -> bool {
        let due_ms = now_ms + self.settings.shutdown_timeout_s.get().unsigned_abs() * 1000;
        self.shutdown_due_ms.compare_exchange(0, due_ms, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns true if the server is about to end.
    #[must_use]
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutdown_due_ms.load(Ordering::Acquire) != 0
    }

    /// Returns the remaining time of a server that is about to end, in milliseconds.
    #[must_use]
    pub(crate) fn shutdown_left_ms(&self, now_ms: u64) -> Option<u64> {
        let due_ms = self.shutdown_due_ms.load(Ordering::Acquire);
        (due_ms != 0).then(|| due_ms.saturating_sub(now_ms))
    }

    /// Notes that the server continues. Clients that wait for its end get an error.
    pub fn abort_shutdown(&self) {
        self.shutdown_due_ms.store(0, Ordering::Release);
        for client in self.clients.all() {
            if let Some(waiter) = client.waiter()
                && waiter.awaited == Some(Awaited::Shutdown)
            {
                self.refuse_wait(&client, &waiter, SHUTDOWN_FAILED.as_bytes());
            }
        }
    }

    /// Returns true if the append-only file was turned on and its first base is still to be written. The files on disk
    /// lack data until then.
    #[must_use]
    pub fn lacks_first_base(&self) -> bool {
        let is_coming = self.snapshots.purpose() == Some(Purpose::Base) || self.snapshots.is_wanted_for(Purpose::Base);
        self.settings.appendonly.get() && !self.durability.is_whole() && is_coming
    }
}
