//! The session's open transaction, and its watched keys.

use std::sync::atomic::Ordering;

use commands::error::Error;
use commands::spec::fact;

use super::client::client_flag;
use super::client_memory::forget_name;
use super::session::Session;
use crate::listening::watch::Watchers;
use commands::table::Command;

/// Returns true for EXEC, the command that runs a transaction's queue.
#[inline]
pub(crate) fn is_exec(command: &Command) -> bool {
    command.info.is(fact::RUNS_QUEUE)
}

impl Session {
    /// Ends a transaction because EXEC is refused with `error`, and returns the error for the reply.
    pub(crate) fn abort(&mut self, watchers: &Watchers, error: &Error) -> Error {
        self.set_multi(None);
        self.unwatch(watchers);
        let reason = error.text().strip_prefix(b"ERR ").unwrap_or(error.text());
        Error::quoting([b"EXECABORT Transaction discarded because of: ", reason].concat())
    }

    /// Ends a transaction that will not run.
    #[cold]
    pub(crate) fn discard(&mut self, watchers: &Watchers) {
        self.set_multi(None);
        self.unwatch(watchers);
    }

    /// Unwatches all keys of the session.
    pub(crate) fn unwatch(&mut self, watchers: &Watchers) {
        for (key, watched) in self.watched.drain() {
            forget_name(&self.client, &key.1);
            watchers.remove(watched.shard, &key, &self.mark);
        }
        self.mark.store(false, Ordering::Relaxed);
        self.client.watched.store(0, Ordering::Relaxed);
        self.client.set(client_flag::DIRTY, false);
    }
}
