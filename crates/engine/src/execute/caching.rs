//! What is done around the commands of a client that caches what it reads (CLIENT TRACKING).
//!
//! Before a command writes its reply, and with its shards held, the client is shown what other threads have for it: whatever
//! its reply tells, the client has been told before of the keys that had changed until then. After it, and still with the
//! shards held, the keys that it has read are remembered, so that the next change of one is told of.

use commands::spec::{fact, flag};
use resp::reply::Output;

use crate::clients::blocking::Waiter;
use crate::clients::session::{ReplyMode, Session};
use crate::command_table::Command;
use crate::listening::tracking::Tracker;
use crate::listening::tracking::tracking_flag::{BCAST, CACHING, ON, OPTIN, OPTOUT};
use crate::services::invalidations;
use crate::worker::Worker;
use crate::worker::turn::Invocation;

impl Worker {
    /// Shows a client what other threads have for it, before the next reply is begun. The shards of the command that
    /// writes the reply are held.
    #[cold]
    pub(super) fn show_invalidations(&self, session: &mut Session, out: &mut Output) {
        let inbox = &self.engine.inboxes[self.id];
        // In the midst of a transaction or a script, there is another reply that they would tear.
        if session.in_exec || session.closing || !inbox.is_filled() {
            return;
        }
        let until = inbox.pushed();
        let waiting = inbox.pushes_for(session.client.id, session.pushes_seen, until);
        session.pushes_seen = until;
        // A reply that the client doesn't want is taken back, and they are not.
        let output = if session.reply_mode() == ReplyMode::On { out } else { &mut session.pushes };
        waiting.iter().for_each(|waiting| output.extend_push(&waiting.bytes));
    }

    /// Remembers the keys that a command has read, if the client caches what it reads. Its shards are still held.
    #[cold]
    pub(super) fn remember_reads(&mut self, session: &mut Session, invoked: Invocation<'_>) {
        let Some(tracker) = session.client.tracker() else { return };
        if !remembers(tracker, invoked.command) {
            return;
        }
        let tracker = tracker.clone();
        // What an earlier command of the same unit has changed is outdated before this one has read it, not afterwards.
        self.tell(Some(session));
        for key in invoked.keys {
            self.engine.tracking.keys.add(key.hash, invoked.args.get(key.arg as usize), &tracker);
        }
    }

    /// The same for a command that has waited, which has just been run for its client.
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

    /// Ends a batch while some client caches: tells of what it has changed of the keys that clients are told of by their
    /// beginnings, and keeps the table of remembered keys within its bound.
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

    /// Forgets what CLIENT CACHING has said of the command that has run, or been refused. It holds for a whole transaction,
    /// and beyond other commands of CLIENT.
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

/// True if what this command reads is remembered for a client. Of a script, its commands' keys are.
fn remembers(tracker: &Tracker, command: &Command) -> bool {
    let flags = tracker.flags();
    let has_chosen = match flags & (OPTIN | OPTOUT) {
        0 => true,
        OPTIN => flags & CACHING != 0,
        _ => flags & CACHING == 0,
    };
    flags & (ON | BCAST) == ON && has_chosen && command.info.has(flag::READONLY) && command.info.script.is_none()
}
