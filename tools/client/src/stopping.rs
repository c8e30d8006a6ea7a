//! Pipelines that stop at their first failing command, by Penstock's PIPELINE ABORT.

use resp::parse::Value;

use crate::connection::Connection;
use crate::error::{Error, Interrupted, ServerError};
use crate::pipeline::Pipeline;

/// The failures that stop a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopAt {
    /// Errors that are no redirects.
    Errors,
    /// Redirects to another node of a cluster: MOVED, ASK, TRYAGAIN, CLUSTERDOWN.
    Redirects,
    /// Both.
    Failures,
}

impl StopAt {
    fn words(self) -> &'static [&'static str] {
        match self {
            StopAt::Errors => &["PIPELINE", "ABORT", "ON", "ERRORS"],
            StopAt::Redirects => &["PIPELINE", "ABORT", "ON", "REDIRECTS"],
            StopAt::Failures => &["PIPELINE", "ABORT", "ON"],
        }
    }
}

/// The result of a pipeline that stops at its first failure.
#[derive(Clone, PartialEq, Debug)]
pub struct StopOutcome {
    /// The replies of the executed commands, the failing one included.
    pub replies: Vec<Value>,
    /// The failing command: its index among the commands, and its error. The index is `None` if a script of the
    /// pipeline could not be loaded, so that no command ran.
    pub failure: Option<(Option<usize>, ServerError)>,
    /// Number of commands behind the failing one, which did not run.
    pub skipped: usize,
}

/// The server's account of the pipeline.
struct Account {
    failed: u64,
    error: Option<ServerError>,
}

impl Account {
    /// Reads the reply of PIPELINE SYNC, a map or a flat array.
    fn of(reply: &Value) -> Option<Account> {
        let pairs: Vec<(&Value, &Value)> = match reply {
            Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
            Value::Array(items) => items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
            _ => return None,
        };
        let field = |wanted: &str| {
            let is_it = |name: &Value| matches!(name, Value::Bulk(text) if text == wanted.as_bytes());
            pairs.iter().find(|(name, _)| is_it(name)).map(|(_, value)| *value)
        };
        let Value::Int(failed) = field("failed")? else { return None };
        let error = match field("error")? {
            Value::Bulk(text) => Some(ServerError::new(text.clone())),
            _ => None,
        };
        Some(Account { failed: u64::try_from(*failed).ok()?, error })
    }
}

impl Pipeline {
    /// Runs the pipeline like [`Pipeline::run`], but not beyond its first failing command: the server skips the commands
    /// behind it. Costs one more round trip, because nothing is sent before the server has accepted the mode. Servers
    /// without PIPELINE ABORT refuse it, and nothing runs.
    ///
    /// # Errors
    /// Returns [`Interrupted`] if the server refuses the mode, or if the connection breaks.
    pub fn run_until_failure(&self, connection: &mut Connection, at: StopAt) -> Result<StopOutcome, Interrupted> {
        let refuse = |error| Interrupted { error, answered: 0, sent: 0 };
        connection.know_scripts(self.scripts())?;
        connection.command(at.words()).map_err(refuse)?;
        let mut whole = self.clone();
        whole.add(&["PIPELINE", "SYNC"]).add(&["PIPELINE", "ABORT", "OFF"]);
        let mut replies = whole.run(connection)?;
        let synced = replies.split_off(self.len());
        let account = synced.first().and_then(Account::of).ok_or_else(|| Interrupted {
            error: Error::Unexpected { command: "PIPELINE SYNC", reply: format!("{:?}", synced.first()) },
            answered: self.len() as u64,
            sent: self.len() as u64,
        })?;
        // The server counts the loading of scripts, too.
        let loads = self.scripts().len() as u64;
        let failure = account.error.map(|error| {
            let index = account.failed.checked_sub(loads + 1).and_then(|index| usize::try_from(index).ok());
            (index, error)
        });
        let ran = failure.as_ref().map_or(self.len(), |(index, _)| index.map_or(0, |index| index + 1));
        replies.truncate(ran);
        Ok(StopOutcome { skipped: self.len() - replies.len(), replies, failure })
    }
}
