//! Work around the commands of a client that caches replies (CLIENT TRACKING).
//!
//! Before a command writes its reply, and with its shards held, the client receives pending invalidations from other
//! threads. The client thus learns of every earlier change before it sees the reply. After the command, and still with
//! the shards held, the server remembers the keys that it read, so that their next change is announced.

use commands::spec::{fact, flag};
use resp::reply::Output;

use crate::clients::blocking::Waiter;
use crate::clients::session::{ReplyMode, Session};
use crate::listening::tracking::Tracker;
use crate::listening::tracking::tracking_flag::{BCAST, CACHING, ON, OPTIN, OPTOUT};
use crate::services::invalidations;
use crate::worker::Worker;
use crate::worker::turn::Invocation;
use commands::table::Command;

impl Worker {
    /// Writes a client's pending invalidations from other threads before the next reply begins. The caller holds the
    /// shards of the command.
    #[cold]
    pub(super) fn show_invalidations(&self, session: &mut Session, out: &mut Output) {
        let inbox = &self.engine.inboxes[self.id];
        // In the middle of a transaction or a script, the messages would split the outer reply.
        if session.in_exec || session.closing || !inbox.is_filled() {
            return;
        }
        let until = inbox.pushed();
        let waiting = inbox.pushes_for(session.client.id, session.pushes_seen, until);
        session.pushes_seen = until;
        // A suppressed reply is truncated later; the messages must survive that.
        let output = if session.reply_mode() == ReplyMode::On { out } else { &mut session.pushes };
        waiting.iter().for_each(|waiting| output.extend_push(&waiting.bytes));
    }

    /// Remembers the keys that a command has read, if the client caches replies. Its shards are still held.
    #[cold]
    pub(super) fn remember_reads(&mut self, session: &mut Session, invoked: Invocation<'_>) {
        let Some(tracker) = session.client.tracker() else { return };
        if !remembers(tracker, invoked.command) {
            return;
        }
        let tracker = tracker.clone();
        // Changes by earlier commands of the same unit are announced before this command's keys are remembered, because
        // its reply includes them.
        self.notify(Some(session));
        for key in invoked.keys {
            self.engine.tracking.keys.add(key.hash, invoked.args.get(key.arg as usize), &tracker);
        }
    }

    /// Like [`Worker::remember_reads`], for a served waiter.
    pub(super) fn remember_reads_of(&self, waiter: &Waiter) {
        if !waiter.command.info.has(flag::READONLY) {
            return;
        }
        let Some(client) = self.engine.clients.get(waiter.client) else { return };
        let Some(tracker) = client.tracker().filter(|tracker| remembers(tracker, waiter.command)) else { return };
        let args = waiter.args.args();
        for key in &waiter.keys {
            self.engine.tracking.keys.add(key.hash, args.get(key.arg as usize), tracker);
        }
    }

    /// Ends a batch while some client caches replies: sends the batch's changes to clients in broadcast mode, and
    /// bounds the table of remembered keys.
    #[cold]
    pub(super) fn end_tracked_batch(&mut self, session: &mut Session, out: &mut Output) {
        if self.broadcasts.is_pending() {
            invalidations::broadcast(self, Some(session));
        }
        invalidations::keep_table_small(self, Some(session));
        if !session.pushes.is_empty() && !session.in_exec {
            out.append(&mut session.pushes);
        }
    }

    /// Clears the effect of CLIENT CACHING after a command has run or been refused. The effect lasts for a whole
    /// transaction, and survives other CLIENT commands.
    #[cold]
    pub(super) fn end_caching(&self, session: &Session, command: Option<&Command>) {
        let container = |command: &Command| command.parent.map(|place| &self.engine.table.all()[place]);
        let keeps = |command: &Command| container(command).is_some_and(|c| c.info.is(fact::KEEPS_CACHING));
        if session.multi.is_none()
            && !command.is_some_and(keeps)
            && let Some(tracker) = session.client.tracker()
        {
            tracker.set(CACHING, false);
        }
    }
}

/// Returns whether the keys of this command are remembered for a client. For a script, the keys of its commands are.
fn remembers(tracker: &Tracker, command: &Command) -> bool {
    let flags = tracker.flags();
    let has_chosen = match flags & (OPTIN | OPTOUT) {
        0 => true,
        OPTIN => flags & CACHING != 0,
        _ => flags & CACHING == 0,
    };
    flags & (ON | BCAST) == ON && has_chosen && command.info.has(flag::READONLY) && command.info.script.is_none()
}
