//! The transaction that a session has begun, and the keys that it watches for it.

use std::sync::atomic::Ordering;

use commands::error::Error;
use commands::spec::fact;

use super::client::client_flag;
use super::client_memory::forget_name;
use super::session::Session;
use crate::command_table::Command;
use crate::listening::watch::Watchers;

/// True if this is EXEC: the command that runs a transaction's queue.
#[inline]
pub(crate) fn is_exec(command: &Command) -> bool {
    command.info.is(fact::RUNS_QUEUE)
}

impl Session {
    /// Ends a transaction because EXEC is refused with `error`; the error to answer instead.
    pub(crate) fn abort(&mut self, watchers: &Watchers, error: &Error) -> Error {
        self.set_multi(None);
        self.unwatch(watchers);
        let reason = error.text().strip_prefix(b"ERR ").unwrap_or(error.text());
        Error::quoting([b"EXECABORT Transaction discarded because of: ", reason].concat())
    }

    /// Forgets the keys that the session watches.
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
