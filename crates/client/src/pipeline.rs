//! Pipelines that are put together first and sent then.

use std::ops::ControlFlow;

use resp::parse::Value;

use crate::command::Request;
use crate::connection::Connection;
use crate::error::Interrupted;
use crate::window::{Next, Window};

/// Commands to be sent together. One that fails doesn't touch the others: its reply is an error among the replies.
///
/// However many commands there are, they go through a [`Window`], so that the server never has to keep the replies of all
/// of them, and the two sides can't wait for each other.
///
/// A pipeline is not atomic: other clients' commands may run in between.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    /// All requests without gaps.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
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
        let mut start = 0;
        let mut ends = self.ends.iter();
        let next = |out: &mut Vec<u8>| match ends.next() {
            Some(&end) => {
                out.extend_from_slice(&self.bytes[start..end]);
                start = end;
                Next::Request
            }
            None => Next::End,
        };
        let reply = |index, reply| {
            on_reply(index, reply);
            ControlFlow::Continue(())
        };
        self.window.run(connection, &mut (next, reply))
    }
}
