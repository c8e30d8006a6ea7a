//! Transactions: MULTI, commands, EXEC, all in one flight.

use resp::parse::Value;

use crate::command::{Argument, Command, Request};
use crate::connection::Connection;
use crate::error::{Error, Fate, ServerError};
use crate::pipeline::Pipeline;

/// Commands that run without another client's in between, all or (where one can't even be queued) none.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// MULTI and the commands; EXEC is added when it is sent.
    pipeline: Pipeline,
}

impl Default for Transaction {
    fn default() -> Self {
        Self::new()
    }
}

impl Transaction {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        let mut pipeline = Pipeline::new();
        pipeline.add(&["MULTI"]);
        Self { pipeline }
    }

    /// Adds a command.
    pub fn add(&mut self, request: &(impl Request + ?Sized)) -> &mut Self {
        self.pipeline.add(request);
        self
    }

    /// How many commands it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pipeline.len() - 1
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs it. The replies are those of the commands, errors among them; `None` says that a watched key had changed and
    /// nothing was done.
    ///
    /// # Errors
    /// [`Error::Server`] when a command could not be queued, so that none ran; [`Error::Lost`].
    pub fn run(&self, connection: &mut Connection) -> Result<Option<Vec<Value>>, Error> {
        let (mut refused, mut last) = (None, None);
        self.whole().run_each(connection, |_, reply| {
            note(&mut refused, &reply);
            last = Some(reply);
        })?;
        outcome(refused, last)
    }

    /// The commands' bytes, without MULTI.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &[u8]> {
        self.pipeline.requests().skip(1)
    }

    /// All of it, EXEC included.
    pub(crate) fn whole(&self) -> Pipeline {
        let mut pipeline = self.pipeline.clone();
        pipeline.add(&["EXEC"]);
        pipeline
    }
}

/// What all replies of a transaction, from MULTI's to EXEC's, amount to.
pub(crate) fn outcome_of(replies: Vec<Value>) -> Result<Option<Vec<Value>>, Error> {
    let mut refused = None;
    replies.iter().for_each(|reply| note(&mut refused, reply));
    outcome(refused, replies.into_iter().next_back())
}

/// Keeps the first error: why EXEC is going to refuse, which itself says only that something was wrong.
fn note(refused: &mut Option<ServerError>, reply: &Value) {
    if refused.is_none() {
        *refused = reply.error().map(ServerError::new);
    }
}

fn outcome(refused: Option<ServerError>, last: Option<Value>) -> Result<Option<Vec<Value>>, Error> {
    if let Some(error) = refused {
        return Err(Error::Server(error));
    }
    match last.map(Value::without_attribute) {
        Some(Value::Array(replies)) => Ok(Some(replies)),
        Some(reply) if reply.is_null() => Ok(None),
        other => Err(Error::Unexpected { command: "EXEC", reply: format!("{other:?}") }),
    }
}

impl Connection {
    /// Changes what stands at `keys` by what stands there, without holding up others: watches the keys, lets `attempt`
    /// read what it needs and put a transaction together, and runs it; if somebody else changed a key meanwhile, begins
    /// anew. The replies of the transaction, or `None` if `attempt` decided that nothing is to be done.
    ///
    /// # Errors
    /// [`Error::Contended`] after `attempts_max` attempts; otherwise as [`Transaction::run`]. An error of `attempt` ends
    /// it; no key stays watched.
    pub fn optimistic<K: Argument>(
        &mut self,
        keys: &[K],
        attempts_max: u32,
        mut attempt: impl FnMut(&mut Connection) -> Result<Option<Transaction>, Error>,
    ) -> Result<Option<Vec<Value>>, Error> {
        for _ in 0..attempts_max {
            self.command(&Command::new("WATCH").args(keys))?;
            match attempt(self) {
                Ok(Some(transaction)) => {
                    let done = transaction.run(self).inspect_err(|error| self.unwatch_after(error))?;
                    if done.is_some() {
                        return Ok(done);
                    }
                }
                Ok(None) => return self.command(&["UNWATCH"]).map(|_| None),
                Err(error) => {
                    self.unwatch_after(&error);
                    return Err(error);
                }
            }
        }
        Err(Error::Contended { attempts: attempts_max })
    }

    /// Whatever comes of it, the error that led here is the one to report.
    fn unwatch_after(&mut self, error: &Error) {
        if error.fate() != Fate::MayHaveRun {
            let _ = self.command(&["UNWATCH"]);
        }
    }
}
