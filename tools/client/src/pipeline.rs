//! Pipelines that are put together first and sent then.

use std::ops::ControlFlow;

use resp::parse::Value;

use crate::command::{Argument, Request};
use crate::connection::Connection;
use crate::error::{Error, Interrupted};
use crate::script::Script;
use crate::window::{Next, Window};

/// Commands to be sent together. One that fails doesn't touch the others: its reply is an error among the replies.
///
/// However many commands there are, they go through a [`Window`], so that the server never has to keep the replies of
/// all of them, and the two sides can't wait for each other.
///
/// A pipeline is not atomic: other clients' commands may run in between.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// All requests without gaps.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// The scripts that are called, each once.
    scripts: Vec<Script>,
    window: Window,
}

impl Pipeline {
    /// An empty pipeline with the default window.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty pipeline with another window.
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
    /// NOSCRIPT can't come in the middle: on each connection the script is loaded before the first pipeline that calls
    /// it is sent, so that nothing runs if it can't be; and every pipeline begins with SCRIPT LOAD of its scripts, in
    /// the same flight, in case they were flushed since.
    pub fn script<K: Argument, A: Argument>(&mut self, script: &Script, keys: &[K], args: &[A]) -> &mut Self {
        if self.scripts.iter().all(|known| known.sha1() != script.sha1()) {
            self.scripts.push(script.clone());
        }
        self.add(&script.call(keys, args))
    }

    /// How many commands it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes all commands out and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.scripts.clear();
    }

    /// Sends all and returns a reply for each, errors among them. The pipeline can be run again.
    ///
    /// # Errors
    /// [`Interrupted`] when the connection breaks.
    pub fn run(&self, connection: &mut Connection) -> Result<Vec<Value>, Interrupted> {
        let mut replies = Vec::with_capacity(self.len());
        self.run_each(connection, |_, reply| replies.push(reply))?;
        Ok(replies)
    }

    /// Sends all and hands each reply with its command's number to `on_reply` as it comes.
    ///
    /// # Errors
    /// [`Interrupted`] when the connection breaks; the replies that came before have been handed on.
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

    /// Each request's bytes.
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

/// What a pipeline sends.
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
    /// Loads those of these scripts that were never loaded through this connection.
    ///
    /// # Errors
    /// As [`Connection::command`].
    fn know_scripts(&mut self, scripts: &[Script]) -> Result<(), Interrupted> {
        let load = |script: &Script| -> Result<(), Error> {
            if !self.scripts().contains(script.sha1()) {
                self.command(&script.load())?;
                self.scripts().insert(script.sha1().to_owned());
            }
            Ok(())
        };
        // Nothing of the pipeline has been sent, whatever became of the loading.
        scripts.iter().try_for_each(load).map_err(|error| Interrupted { error, answered: 0, sent: 0 })
    }
}
