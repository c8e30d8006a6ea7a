//! Transactions: MULTI, commands, EXEC, all in one flight.
//!
//! In one flight the commands are on their way before MULTI is answered, and where it is refused (the user lacks the
//! right, or a proxy doesn't know it) a server runs them all the same, one by one. Other clients live with that:
//! redis-py and go-redis report MULTI's error, which doesn't say that the commands have run. Waiting for MULTI's reply
//! each time would cost a round trip, and on a shared connection hold up all callers. So the reply is awaited once for
//! each connection, before anything else is sent, as with scripts; and if the right to MULTI is lost later,
//! [`Error::NoTransaction`] says what came of it.

use resp::parse::Value;

use crate::command::{Argument, Command, Packed, Request};
use crate::connection::Connection;
use crate::error::{Error, Fate, ServerError};
use crate::pipeline::Pipeline;
use crate::window::Window;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// Commands that run without another client's in between, all or (where one can't even be queued) none.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The commands; MULTI and EXEC are added when it is sent.
    pipeline: Pipeline,
}

impl Transaction {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command.
    pub fn add(&mut self, request: &(impl Request + ?Sized)) -> &mut Self {
        self.pipeline.add(request);
        self
    }

    /// How many commands it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pipeline.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs it. The replies are those of the commands, errors among them; `None` says that a watched key had changed
    /// and nothing was done.
    ///
    /// A connection's first transaction takes a round trip more: it is sent after MULTI has been accepted.
    ///
    /// # Errors
    /// [`Error::Server`] when a command could not be queued, or MULTI was refused, so that none ran;
    /// [`Error::NoTransaction`] when MULTI was refused on a connection that had accepted it before; [`Error::Lost`].
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

    /// The commands' bytes, without MULTI and EXEC.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &[u8]> {
        self.pipeline.requests()
    }

    /// All of it, MULTI and EXEC included.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(MULTI).chain(self.requests()).chain(std::iter::once(EXEC))
    }
}

/// What all replies of a transaction, from MULTI's to EXEC's, amount to.
pub(crate) fn outcome_of(all: Vec<Value>) -> Result<Option<Vec<Value>>, Error> {
    let mut replies = Replies::default();
    all.into_iter().for_each(|reply| replies.take(reply));
    replies.outcome()
}

/// What has come back of a transaction.
#[derive(Default)]
struct Replies {
    /// MULTI's has come.
    begun: bool,
    multi_refused: Option<ServerError>,
    /// All behind MULTI's, EXEC's among them, if that was refused.
    unqueued: Vec<Value>,
    /// The first error: why EXEC is going to refuse, which itself says only that something was wrong.
    error: Option<ServerError>,
    /// The last reply; EXEC's in the end.
    last: Option<Value>,
    /// A reply before the last one that says that a command ran although MULTI was accepted.
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

/// What it means that MULTI was refused and this came behind it.
fn refusal(refused: ServerError, mut behind: Vec<Value>) -> Error {
    // A server that is loading, say, answers everything with the same.
    let all_refused = behind.iter().all(|reply| reply.error() == Some(refused.text()));
    // EXEC's.
    behind.pop();
    match all_refused || behind.is_empty() {
        true => Error::Server(refused),
        false => Error::NoTransaction { refused, replies: behind },
    }
}

/// What came of one attempt to change watched keys.
pub(crate) enum Attempt {
    /// The replies of the transaction, or nothing was to be done.
    Done(Option<Vec<Value>>),
    /// Others changed the keys meanwhile; nothing was done.
    Interfered,
}

impl Connection {
    /// Changes what stands at `keys` by what stands there, without holding up others: watches the keys, lets `attempt`
    /// read what it needs and put a transaction together, and runs it; if another client changed a key meanwhile, begins
    /// anew. The replies of the transaction, or `None` if `attempt` decided that nothing is to be done.
    ///
    /// # Errors
    /// [`Error::Contended`] after `attempts_max` attempts; otherwise as [`Transaction::run`]. An error of `attempt`
    /// ends it; no key stays watched.
    ///
    /// [`Error::fate`] speaks of the transaction: [`Fate::NotRun`] if the connection was lost before anything of it was
    /// sent, be it at a command of `attempt`'s own. Those may have run, as they may in attempts that begin anew: they
    /// should only read.
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

    /// One attempt of [`Self::optimistic`]. No key is watched after it, whatever came of it.
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
            // What it says of another connection stays as it is.
            Err(error) => {
                self.unwatch();
                Err(error)
            }
        }
    }

    /// Whatever comes of it, the error that led here is the one to report. A connection that has ended watches nothing.
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
    fn what_replies_amount_to() {
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
        // A script that failed may have written before.
        check(&[no_multi, error("ERR script"), without.clone()], "Err(NoTransaction");
        // The server answers nothing else for the time being.
        check(&vec![error("LOADING"); 3], "Err(Server(-LOADING");
        // Someone between says yes to everything.
        check(&[ok.clone(), one, without], "Err(Unexpected");
        check(&[ok], "Err(Unexpected");
        check(&[], "Err(Unexpected");
    }
}
