//! Transactions: MULTI, commands and EXEC, all in one flight.
//!
//! In one flight, the commands are sent before the reply to MULTI arrives. If the server refuses MULTI (the user lacks
//! the permission, or a proxy doesn't know it), it executes the commands one by one. redis-py and go-redis accept this
//! risk, and report MULTI's error, which hides that the commands ran. Waiting for MULTI's reply each time would cost a
//! round trip, and would block all callers of a shared connection. This client therefore waits for it once on each
//! connection, before anything else is sent, as with scripts. If the permission is revoked later,
//! [`Error::NoTransaction`] reports the result.

use resp::parse::Value;

use crate::command::{Argument, Command, Packed, Request};
use crate::connection::Connection;
use crate::error::{Error, Fate, ServerError};
use crate::pipeline::Pipeline;
use crate::window::Window;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// Commands that run without other clients' commands in between. All run, or none if one of them can't be queued.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The commands. MULTI and EXEC are added when it is sent.
    pipeline: Pipeline,
}

impl Transaction {
    /// Returns an empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command.
    pub fn add(&mut self, request: &(impl Request + ?Sized)) -> &mut Self {
        self.pipeline.add(request);
        self
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pipeline.len()
    }

    /// Returns true if the transaction has no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs the transaction and returns the replies of its commands, including error replies. Returns `None` if a
    /// watched key had changed and nothing was done.
    ///
    /// A connection's first transaction needs one more round trip: it is sent after MULTI has been accepted.
    ///
    /// # Errors
    /// Returns [`Error::Server`] if a command could not be queued or MULTI was refused, and no command ran;
    /// [`Error::NoTransaction`] if MULTI was refused on a connection that had accepted it before; [`Error::Lost`].
    pub fn run(&self, connection: &mut Connection) -> Result<Option<Vec<Value>>, Error> {
        let mut replies = Replies::default();
        let first = !connection.has_accepted_multi();
        if first {
            let begun = connection.exchange(&["MULTI"]).map_err(|error| error.with_fate(Fate::NotRun))?;
            replies.take(ServerError::check(begun)?);
        }
        let requests = self.whole().skip(usize::from(first)).map(Packed);
        Window::default().run_each(connection, requests, |_, reply| replies.take(reply))?;
        connection.set_accepted_multi(replies.multi_refused.is_none());
        replies.outcome()
    }

    /// Returns the commands' bytes, without MULTI and EXEC.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &[u8]> {
        self.pipeline.requests()
    }

    /// Returns all requests, including MULTI and EXEC.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(MULTI).chain(self.requests()).chain(std::iter::once(EXEC))
    }
}

/// Returns the result of a transaction from all its replies, from MULTI's to EXEC's.
pub(crate) fn outcome_of(all: Vec<Value>) -> Result<Option<Vec<Value>>, Error> {
    let mut replies = Replies::default();
    all.into_iter().for_each(|reply| replies.take(reply));
    replies.outcome()
}

/// The replies of a transaction so far.
#[derive(Default)]
struct Replies {
    /// True if MULTI's reply has arrived.
    begun: bool,
    multi_refused: Option<ServerError>,
    /// All replies after MULTI's, including EXEC's, if MULTI was refused.
    unqueued: Vec<Value>,
    /// The first error. It is the reason for EXEC's refusal, which only says that an error occurred.
    error: Option<ServerError>,
    /// The last reply; at the end it is EXEC's.
    last: Option<Value>,
    /// A reply other than QUEUED between MULTI and EXEC: a command ran although MULTI was accepted.
    ran_alone: Option<Value>,
}

impl Replies {
    fn take(&mut self, reply: Value) {
        let error = reply.error().map(ServerError::new);
        if !self.begun {
            self.begun = true;
            self.multi_refused = error;
            return;
        }
        if self.multi_refused.is_some() {
            self.unqueued.push(reply);
            return;
        }
        if self.error.is_none() {
            self.error = error;
        }
        let before = self.last.replace(reply.without_attribute());
        if self.ran_alone.is_none() {
            self.ran_alone = before.filter(|reply| reply.error().is_none() && !is_queued(reply));
        }
    }

    fn outcome(self) -> Result<Option<Vec<Value>>, Error> {
        if let Some(refused) = self.multi_refused {
            return Err(refusal(refused, self.unqueued));
        }
        if let Some(reply) = self.ran_alone {
            return Err(Error::Unexpected { command: "a command behind MULTI", reply: format!("{reply:?}") });
        }
        if let Some(error) = self.error {
            return Err(Error::Server(error));
        }
        match self.last {
            Some(Value::Array(replies)) => Ok(Some(replies)),
            Some(reply) if reply.is_null() => Ok(None),
            other => Err(Error::Unexpected { command: "EXEC", reply: format!("{other:?}") }),
        }
    }
}

fn is_queued(reply: &Value) -> bool {
    matches!(reply, Value::Simple(text) if text.as_slice() == b"QUEUED")
}

/// Returns the error for a refused MULTI followed by these replies.
fn refusal(refused: ServerError, mut behind: Vec<Value>) -> Error {
    // A loading server, for example, answers every command with this error.
    let all_refused = behind.iter().all(|reply| reply.error() == Some(refused.text()));
    // Removes EXEC's reply.
    behind.pop();
    match all_refused || behind.is_empty() {
        true => Error::Server(refused),
        false => Error::NoTransaction { refused, replies: behind },
    }
}

/// Outcome of an attempt to change watched keys.
pub(crate) enum Attempt {
    /// The replies of the transaction, or `None` if the caller made no change.
    Done(Option<Vec<Value>>),
    /// Other clients changed the keys. Nothing was done.
    Interfered,
}

impl Connection {
    /// Updates the values of `keys` based on their current values, with optimistic locking: watches the keys, calls
    /// `attempt`, which reads values and returns a transaction, and runs it. If another client has changed a key, it
    /// starts again. Returns the replies of the transaction, or `None` if `attempt` returned no transaction.
    ///
    /// # Errors
    /// Returns [`Error::Contended`] after `attempts_max` attempts, and the errors of [`Transaction::run`]. An error of
    /// `attempt` ends the loop, and no key stays watched.
    ///
    /// [`Error::fate`] refers to the transaction: it is [`Fate::NotRun`] if the connection was lost before any byte of
    /// the transaction was sent, even during a command of `attempt`. Commands of `attempt` may have run, also in
    /// attempts that are repeated. They should therefore only read.
    pub fn optimistic<K: Argument>(
        &mut self,
        keys: &[K],
        attempts_max: u32,
        mut attempt: impl FnMut(&mut Connection) -> Result<Option<Transaction>, Error>,
    ) -> Result<Option<Vec<Value>>, Error> {
        for _ in 0..attempts_max {
            if let Attempt::Done(replies) = self.attempt(keys, &mut attempt)? {
                return Ok(replies);
            }
        }
        Err(Error::Contended { attempts: attempts_max })
    }

    /// Makes one attempt of [`Self::optimistic`]. No key is watched afterwards, whatever its outcome.
    pub(crate) fn attempt<K: Argument>(
        &mut self,
        keys: &[K],
        attempt: impl FnOnce(&mut Connection) -> Result<Option<Transaction>, Error>,
    ) -> Result<Attempt, Error> {
        let not_run = |error: Error| error.with_fate(Fate::NotRun);
        self.command(&Command::new("WATCH").args(keys)).map_err(not_run)?;
        match attempt(self) {
            Ok(Some(transaction)) => {
                let done = transaction.run(self).inspect_err(|_| self.unwatch())?;
                Ok(done.map_or(Attempt::Interfered, |replies| Attempt::Done(Some(replies))))
            }
            Ok(None) => self.command(&["UNWATCH"]).map(|_| Attempt::Done(None)).map_err(not_run),
            Err(error) if self.has_ended() => Err(not_run(error)),
            // An error about another connection is returned unchanged.
            Err(error) => {
                self.unwatch();
                Err(error)
            }
        }
    }

    /// The result is ignored, because the earlier error is reported. A connection that has ended watches nothing.
    fn unwatch(&mut self) {
        let _ = self.command(&["UNWATCH"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(text: &str) -> Value {
        Value::Simple(text.into())
    }

    fn error(text: &str) -> Value {
        Value::Error(text.into())
    }

    fn check(replies: &[Value], expected: &str) {
        let outcome = format!("{:?}", outcome_of(replies.to_vec()));
        assert!(outcome.starts_with(expected), "{outcome} of {replies:?}");
    }

    #[test]
    fn replies_determine_the_outcome() {
        let (ok, queued, one) = (simple("OK"), simple("QUEUED"), Value::Int(1));
        let no_multi = error("NOPERM no multi");
        let without = error("ERR EXEC without MULTI");
        check(&[ok.clone(), queued.clone(), Value::Array(vec![one.clone()])], "Ok(Some([");
        check(&[ok.clone(), Value::Array(vec![])], "Ok(Some([]))");
        check(&[ok.clone(), queued.clone(), Value::NullArray], "Ok(None)");
        let rejected = [ok.clone(), error("ERR syntax"), queued.clone(), error("EXECABORT")];
        check(&rejected, "Err(Server(-ERR syntax))");
        check(&[no_multi.clone(), without.clone()], "Err(Server(-NOPERM");
        check(&[no_multi.clone(), one.clone(), without.clone()], "Err(NoTransaction { refused: -NOPERM");
        // A script that failed may have written before its error.
        check(&[no_multi, error("ERR script"), without.clone()], "Err(NoTransaction");
        // For the time being the server answers everything with this error.
        check(&vec![error("LOADING"); 3], "Err(Server(-LOADING");
        // A proxy answers OK to everything.
        check(&[ok.clone(), one, without], "Err(Unexpected");
        check(&[ok], "Err(Unexpected");
        check(&[], "Err(Unexpected");
    }
}
