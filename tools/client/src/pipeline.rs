//! Pipelines that are assembled before they are sent.

use std::ops::ControlFlow;

use resp::parse::Value;

use crate::command::{Argument, Request};
use crate::connection::Connection;
use crate::error::{Error, Interrupted};
use crate::script::Script;
use crate::window::{Next, Window};

/// Commands that are sent together. A failed command doesn't affect the others: its reply is an error among the
/// replies.
///
/// All commands go through a [`Window`], whatever their number. The server therefore never holds the replies of all of
/// them, and the two sides can't deadlock.
///
/// A pipeline is not atomic: other clients' commands may run in between.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// All requests without gaps.
    bytes: Vec<u8>,
    /// End of each request.
    ends: Vec<usize>,
    /// The called scripts, without duplicates.
    scripts: Vec<Script>,
    window: Window,
}

impl Pipeline {
    /// Returns an empty pipeline with the default window.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty pipeline with another window.
    #[must_use]
    pub fn with_window(window: Window) -> Self {
        Self { window, ..Self::default() }
    }

    /// Adds a command.
    pub fn add(&mut self, request: &(impl Request + ?Sized)) -> &mut Self {
        request.pack(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds a call of a script by its hash.
    ///
    /// NOSCRIPT can't occur in the middle. On each connection, a script is loaded before the first pipeline that calls
    /// it, and nothing runs if loading fails. In addition, every pipeline begins with SCRIPT LOAD of its scripts in the
    /// same flight, in case of an intermediate SCRIPT FLUSH.
    pub fn script<K: Argument, A: Argument>(&mut self, script: &Script, keys: &[K], args: &[A]) -> &mut Self {
        if self.scripts.iter().all(|known| known.sha1() != script.sha1()) {
            self.scripts.push(script.clone());
        }
        self.add(&script.call(keys, args))
    }

    /// Returns the number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the pipeline has no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all commands and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.scripts.clear();
    }

    /// Sends all commands and returns their replies, including error replies. The pipeline can be run again.
    ///
    /// # Errors
    /// Returns [`Interrupted`] if the connection breaks.
    pub fn run(&self, connection: &mut Connection) -> Result<Vec<Value>, Interrupted> {
        let mut replies = Vec::with_capacity(self.len());
        self.run_each(connection, |_, reply| replies.push(reply))?;
        Ok(replies)
    }

    /// Sends all commands, and passes each reply with its command's number to `on_reply` as it arrives.
    ///
    /// # Errors
    /// Returns [`Interrupted`] if the connection breaks. Earlier replies were passed on.
    pub fn run_each(
        &self,
        connection: &mut Connection,
        mut on_reply: impl FnMut(u64, Value),
    ) -> Result<u64, Interrupted> {
        connection.know_scripts(&self.scripts)?;
        let loads = self.scripts.len() as u64;
        let mut requests = self.scripts.iter().map(Part::Load).chain(self.requests().map(Part::Request));
        let next = |out: &mut Vec<u8>| match requests.next() {
            Some(part) => {
                part.pack(out);
                Next::Request
            }
            None => Next::End,
        };
        let reply = |index: u64, reply| {
            if let Some(index) = index.checked_sub(loads) {
                on_reply(index, reply);
            }
            ControlFlow::Continue(())
        };
        let ran = self.window.run(connection, &mut (next, reply));
        ran.map(|count| count - loads).map_err(|interrupted| interrupted.without_first(loads))
    }

    /// Returns the bytes of each request.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            &self.bytes[start..self.ends[i]]
        })
    }

    pub(crate) fn scripts(&self) -> &[Script] {
        &self.scripts
    }

    pub(crate) fn window(&self) -> Window {
        self.window
    }
}

/// A part of a pipeline.
enum Part<'a> {
    Load(&'a Script),
    Request(&'a [u8]),
}

impl Part<'_> {
    fn pack(&self, out: &mut Vec<u8>) {
        match self {
            Self::Load(script) => script.load().pack(out),
            Self::Request(bytes) => out.extend_from_slice(bytes),
        }
    }
}

impl Connection {
    /// Loads those scripts that were never loaded through this connection.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::command`].
    pub(crate) fn know_scripts(&mut self, scripts: &[Script]) -> Result<(), Interrupted> {
        let load = |script: &Script| -> Result<(), Error> {
            if !self.scripts().contains(script.sha1()) {
                self.command(&script.load())?;
                self.scripts().insert(script.sha1().to_owned());
            }
            Ok(())
        };
        // No command of the pipeline was sent.
        scripts.iter().try_for_each(load).map_err(|error| Interrupted { error, answered: 0, sent: 0 })
    }
}
