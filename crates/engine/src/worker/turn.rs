//! One call of a command that works on the session or the server, from its handler's view.

use commands::call::KeyRef;
use commands::error::Outcome;
use commands::{Error, Handler};
use resp::num;
use resp::reply::Reply;
use resp::request::Args;
use store::db::Db;
use store::keyspace::{Key, Locked};

use crate::clients::session::Session;
use crate::state::Engine;
use crate::worker::Worker;
use commands::table::Command;

/// A handler of a command that works on sessions or the server.
pub type SessionHandler = fn(&mut Turn<'_, '_>) -> Outcome;

/// The handler of a command.
#[derive(Clone, Copy)]
pub enum Run {
    /// A handler that sees keys only.
    Keys(Handler),
    /// A handler that sees the session and the server.
    Session(SessionHandler),
}

/// A command that is ready to run.
#[derive(Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub command: &'static Command,
    /// The arguments; the name is the first.
    pub args: &'a Args<'a>,
    /// The hashed keys, in the order of their arguments.
    pub keys: &'a [KeyRef],
}

/// One call.
pub struct Turn<'t, 'k> {
    /// The thread's state.
    pub worker: &'t mut Worker,
    /// The connection's state.
    pub session: &'t mut Session,
    /// The command's entry in the table.
    pub command: &'static Command,
    /// The arguments; the name is the first.
    pub args: &'t Args<'t>,
    /// The hashed keys, in the order of their arguments.
    pub keys: &'t [KeyRef],
    /// The shards that the command's scope holds.
    pub locked: &'t mut Locked<'k>,
    /// The destination of the reply.
    pub reply: Reply<'t>,
}

impl<'t, 'k> Turn<'t, 'k> {
    /// Returns the state that all threads share.
    #[must_use]
    pub fn engine(&self) -> &'static Engine {
        self.worker.engine
    }

    /// Returns the time that commands see, in milliseconds of Unix time.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.worker.clock.now_ms
    }

    /// Returns the view of the selected database through the held shards.
    pub fn db(&mut self) -> Db<'_, 'k> {
        Db::new(self.locked, self.session.database, &self.worker.clock, &mut self.worker.observed)
    }

    /// Returns the argument at `index`; the name has index 0.
    #[must_use]
    pub fn arg(&self, index: usize) -> &'t [u8] {
        self.args.get(index)
    }

    /// Returns the number of arguments, including the name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Returns whether there are no arguments after the name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.args.len() <= 1
    }

    /// Returns whether the argument at `index` is this word, ignoring case.
    #[must_use]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Returns the argument at `index` as an integer.
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        num::parse_i64(self.arg(index)).ok_or(Error::NOT_INTEGER)
    }

    /// Returns the keys that the command's entry names.
    pub fn each_key(&self) -> impl ExactSizeIterator<Item = Key<'t>> + Clone + use<'t> {
        let args = self.args;
        self.keys.iter().map(move |k| Key { bytes: args.get(k.arg as usize), hash: k.hash })
    }
}
