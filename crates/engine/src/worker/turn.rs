//! One call of a command that works on the session or the server: what its handler sees.

use commands::call::KeyRef;
use commands::error::Outcome;
use commands::{Error, Handler};
use resp::num;
use resp::reply::Reply;
use resp::request::Args;
use store::db::Db;
use store::keyspace::{Key, Locked};

use crate::clients::session::Session;
use crate::command_table::Command;
use crate::engine::Engine;
use crate::worker::Worker;

/// A handler of a command that works on sessions or the server.
pub type SessionHandler = fn(&mut Turn<'_, '_>) -> Outcome;

/// What runs a command.
#[derive(Clone, Copy)]
pub enum Run {
    /// A handler that sees keys only.
    Keys(Handler),
    /// A handler that sees the session and the server.
    Session(SessionHandler),
}

/// A command as it is to be run.
#[derive(Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub command: &'static Command,
    /// The name is the first.
    pub args: &'a Args<'a>,
    /// In the order of their arguments, already hashed.
    pub keys: &'a [KeyRef],
}

/// One call.
pub struct Turn<'t, 'k> {
    /// The thread's state.
    pub worker: &'t mut Worker,
    /// The connection's state.
    pub session: &'t mut Session,
    /// The command as the table has it.
    pub command: &'static Command,
    /// The arguments; the name is the first.
    pub args: &'t Args<'t>,
    /// The keys in the order of their arguments, already hashed.
    pub keys: &'t [KeyRef],
    /// The shards that the command's scope holds.
    pub locked: &'t mut Locked<'k>,
    /// Where the reply goes.
    pub reply: Reply<'t>,
}

impl<'t, 'k> Turn<'t, 'k> {
    /// What all threads share.
    #[must_use]
    pub fn engine(&self) -> &'static Engine {
        self.worker.engine
    }

    /// The time as commands see it, in milliseconds of Unix time.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.worker.clock.now_ms
    }

    /// The view of the selected database through the shards that are held.
    pub fn db(&mut self) -> Db<'_, 'k> {
        Db::new(self.locked, self.session.database, &self.worker.clock, &mut self.worker.observed)
    }

    /// The argument at `index`, the name being at 0.
    #[must_use]
    pub fn arg(&self, index: usize) -> &'t [u8] {
        self.args.get(index)
    }

    /// How many arguments there are, the name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there is nothing but the name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.args.len() <= 1
    }

    /// Whether the argument at `index` is this word, in whatever case.
    #[must_use]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The argument at `index` as an integer.
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        num::parse_i64(self.arg(index)).ok_or(Error::NOT_INTEGER)
    }

    /// The keys that the command's entry names.
    pub fn each_key(&self) -> impl ExactSizeIterator<Item = Key<'t>> + Clone + use<'t> {
        let args = self.args;
        self.keys.iter().map(move |k| Key { bytes: args.get(k.arg as usize), hash: k.hash })
    }
}
