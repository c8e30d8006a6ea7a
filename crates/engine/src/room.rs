//! The inboxes that a thread has overfilled with what its connections publish, and which of its commands have to wait.
//!
//! A command that publishes is never held up in its midst: it may have any lock. The one that overfills an inbox runs to
//! its end, and its connection runs nothing more until there is room again. Others that would publish to the same inbox
//! wait before they begin, as far as that can be told: PUBLISH names its channel, and so does a transaction that has
//! queued one; a script, or a change that is notified of, is found out by what it does. A connection that doesn't publish
//! never waits.
//!
//! The thread whose inbox it is makes room by itself, whatever its own publishers wait for: so two threads may well have
//! filled each other's.

use std::cell::Cell;

use resp::request::Args;

use crate::command_table::Command;
use crate::families;
use crate::pubsub::Kind;
use crate::session::Session;
use crate::worker::Worker;

/// Inboxes by their threads. It belongs to one thread; cells, since whatever publishes only has the worker shared.
pub(crate) struct Overfilled {
    inboxes: Box<[Cell<bool>]>,
    count: Cell<usize>,
}

impl Overfilled {
    /// None, of so many threads' inboxes.
    pub(crate) fn new(threads: usize) -> Overfilled {
        Overfilled { inboxes: (0..threads).map(|_| Cell::new(false)).collect(), count: Cell::new(0) }
    }

    /// Whether there is any: the only question in most cases.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.get() > 0
    }

    /// Whether this thread's inbox is one.
    pub(crate) fn has(&self, inbox: usize) -> bool {
        self.inboxes.get(inbox).is_some_and(Cell::get)
    }

    fn set(&self, inbox: usize, is_overfilled: bool) {
        let Some(cell) = self.inboxes.get(inbox) else { return };
        match (cell.replace(is_overfilled), is_overfilled) {
            (false, true) => self.count.set(self.count.get() + 1),
            (true, false) => self.count.set(self.count.get() - 1),
            _ => {}
        }
    }
}

/// The kind of channel that a command publishes on.
fn publishes_on(command: &Command) -> Option<Kind> {
    match &*command.name {
        "publish" => Some(Kind::Channel),
        "spublish" => Some(Kind::Shard),
        _ => None,
    }
}

impl Worker {
    /// Notes that an inbox is overfilled, and by which session's command, if it was one's.
    pub(crate) fn note_overfilled(&self, inbox: usize, session: Option<&mut Session>) {
        self.overfilled.set(inbox, true);
        if let Some(session) = session {
            session.overfilled = Some(inbox);
        }
    }

    /// Has those go on that wait for room in a thread's inbox. They are the caller's to run.
    pub fn note_room(&mut self, inbox: usize) {
        self.overfilled.set(inbox, false);
    }

    /// Whether a command has to wait for room in an inbox before it runs.
    #[cold]
    pub(crate) fn must_wait_for_room(&self, session: &Session, command: &Command, args: &Args<'_>) -> bool {
        // A monitor only looks on; and a script that takes too long is to be ended, whoever can do so.
        if session.monitoring || self.scripts.busy_turn {
            return false;
        }
        if session.overfilled.is_some_and(|inbox| self.overfilled.has(inbox)) {
            return true;
        }
        match &session.multi {
            None => self.publishes_beyond_room(command, args),
            Some(multi) if families::is_exec(command) => {
                multi.queue.iter().any(|queued| self.publishes_beyond_room(queued.command, &queued.args.args()))
            }
            Some(_) => false,
        }
    }

    fn publishes_beyond_room(&self, command: &Command, args: &Args<'_>) -> bool {
        let Some(kind) = publishes_on(command).filter(|_| command.info.accepts(args.len())) else { return false };
        self.engine.pubsub.reaches(kind, args.get(1), |inbox| self.overfilled.has(inbox))
    }
}
