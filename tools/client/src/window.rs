//! Sends many commands through one connection without waiting for each reply. The number of unanswered commands is
//! limited, which bounds the memory of both sides, and replies are read while requests are written.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Instant;

use resp::parse::Value;

use crate::command::Request;
use crate::connection::Connection;
use crate::error::{Error, Interrupted};

/// Limits on unanswered commands and on unsent bytes.
///
/// The client's memory is `bytes` plus one request and one reply (and the replies that the caller keeps). The server's
/// memory is the replies of `commands` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Maximum number of commands without a reply. Redis's manual suggests 10,000; deeper pipelines are hardly faster.
    pub commands: usize,
    /// Maximum number of unsent bytes before a request is added. A single request may be longer.
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { commands: 10_000, bytes: 256 << 10 }
    }
}

/// Result of [`Conversation::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// One request was appended.
    Request,
    /// No request is available now. The window sends the pending ones and takes their replies before the next call,
    /// which may block.
    Pause,
    /// There are no more requests.
    End,
}

/// A source of requests and sink of replies. A pair of closures implements it.
pub trait Conversation {
    /// Appends the bytes of exactly one request to `out` if it returns `Request`, and no bytes otherwise.
    fn next(&mut self, out: &mut Vec<u8>) -> Next;

    /// Takes the reply to request number `index`, counted from 0. After a `Break` no more requests are taken, but the
    /// replies to sent requests still arrive here.
    fn reply(&mut self, index: u64, reply: Value) -> ControlFlow<()>;
}

impl<N, R> Conversation for (N, R)
where
    N: FnMut(&mut Vec<u8>) -> Next,
    R: FnMut(u64, Value) -> ControlFlow<()>,
{
    fn next(&mut self, out: &mut Vec<u8>) -> Next {
        (self.0)(out)
    }

    fn reply(&mut self, index: u64, reply: Value) -> ControlFlow<()> {
        (self.1)(index, reply)
    }
}

impl Window {
    /// Returns a window of this number of commands.
    #[must_use]
    pub fn of(commands: usize) -> Self {
        Self { commands, ..Self::default() }
    }

    /// Sends all requests of a conversation and takes their replies. Returns their number.
    ///
    /// # Errors
    /// Returns [`Interrupted`], with the progress, if the connection breaks. Error replies are replies.
    pub fn run(&self, connection: &mut Connection, conversation: &mut impl Conversation) -> Result<u64, Interrupted> {
        connection.check_read_up().map_err(|error| Interrupted { error, answered: 0, sent: 0 })?;
        let mut passage =
            WindowRun { window: *self, connection, issued: 0, answered: 0, unsent: VecDeque::new(), open: true };
        match passage.run(conversation) {
            Ok(()) => Ok(passage.answered),
            Err(error) => Err(Interrupted { error, answered: passage.answered, sent: passage.sent() }),
        }
    }

    /// Sends all requests of an iterator, and passes each reply with its request's number to `on_reply`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::run`].
    pub fn run_each<R: Request>(
        &self,
        connection: &mut Connection,
        requests: impl IntoIterator<Item = R>,
        mut on_reply: impl FnMut(u64, Value),
    ) -> Result<u64, Interrupted> {
        let mut requests = requests.into_iter();
        let next = |out: &mut Vec<u8>| match requests.next() {
            Some(request) => {
                request.pack(out);
                Next::Request
            }
            None => Next::End,
        };
        let reply = |index, reply| {
            on_reply(index, reply);
            ControlFlow::Continue(())
        };
        self.run(connection, &mut (next, reply))
    }
}

/// A run through a window. Invariant: `answered <= issued <= answered + window.commands`.
struct WindowRun<'a> {
    window: Window,
    connection: &'a mut Connection,
    /// Number of requests that were put into the connection's output.
    issued: u64,
    answered: u64,
    /// Start positions of the requests that aren't sent, in the connection's count of sent bytes.
    unsent: VecDeque<u64>,
    /// True while more requests may be taken.
    open: bool,
}

impl WindowRun<'_> {
    fn run(&mut self, conversation: &mut impl Conversation) -> Result<(), Error> {
        let mut since = Instant::now();
        // While paused, no request is taken until all sent ones are answered.
        let mut paused = false;
        loop {
            if !paused && self.has_room() {
                paused = self.fill(conversation);
                // Time spent in the conversation doesn't count as silence of the server.
                since = Instant::now();
            }
            self.connection.try_write();
            self.note_sent();
            if self.take_replies(conversation)? {
                since = Instant::now();
                continue;
            }
            if !paused && self.has_room() {
                continue;
            }
            if self.in_flight() > 0 {
                self.connection.step(&mut since, None)?;
            } else if paused {
                paused = false;
            } else if !self.open {
                return Ok(());
            }
        }
    }

    fn in_flight(&self) -> u64 {
        self.issued - self.answered
    }

    /// Returns true if at least half of the window is free. Refilling it command by command would cause many small
    /// writes.
    fn has_room(&mut self) -> bool {
        self.open && self.in_flight() <= self.window.commands as u64 / 2 && self.unsent_bytes() <= self.window.bytes / 2
    }

    fn unsent_bytes(&mut self) -> usize {
        self.connection.output().unsent().len()
    }

    /// Takes requests until the window is full. Returns true if the conversation asked for a pause.
    fn fill(&mut self, conversation: &mut impl Conversation) -> bool {
        self.connection.output().compact();
        while self.in_flight() < self.window.commands.max(1) as u64 && self.unsent_bytes() < self.window.bytes.max(1) {
            let output = self.connection.output();
            let start = output.total_end();
            match conversation.next(&mut output.bytes) {
                Next::Request => {}
                Next::Pause => return true,
                Next::End => {
                    self.open = false;
                    return false;
                }
            }
            self.issued += 1;
            self.unsent.push_back(start);
            self.connection.owe(1);
        }
        false
    }

    /// Removes the start positions of requests that were sent at least in part.
    fn note_sent(&mut self) {
        let total = self.connection.output().total_sent();
        while self.unsent.front().is_some_and(|&start| start < total) {
            self.unsent.pop_front();
        }
    }

    /// Returns the number of requests that were sent at least in part.
    fn sent(&mut self) -> u64 {
        self.note_sent();
        self.issued - self.unsent.len() as u64
    }

    /// Passes on all replies that have arrived. Returns true if there were any.
    fn take_replies(&mut self, conversation: &mut impl Conversation) -> Result<bool, Error> {
        let before = self.answered;
        while self.in_flight() > 0
            && let Some(reply) = self.connection.buffered_reply()?
        {
            let index = self.answered;
            self.answered += 1;
            if conversation.reply(index, reply).is_break() {
                self.open = false;
            }
        }
        Ok(self.answered > before)
    }
}
