//! The way of many commands through one connection: written without waiting for replies, yet never so many that either
//! side has to remember too much, and with replies taken while requests are written.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Instant;

use resp::parse::Value;

use crate::command::Request;
use crate::connection::Connection;
use crate::error::{Error, Interrupted};

/// How many commands may be unanswered, and how much of them may wait to be sent.
///
/// Memory on our side is `bytes` plus one request and one reply (and what the caller keeps); on the server's side, the
/// replies of `commands` commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Most commands without a reply. Redis's manual suggests 10,000; much deeper is no faster.
    pub commands: usize,
    /// No request is added while so many bytes wait to be sent. A single request may be longer.
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { commands: 10_000, bytes: 256 << 10 }
    }
}

/// What [`Conversation::next`] has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// One request was appended.
    Request,
    /// Nothing is at hand: send what there is and take its replies; the next call comes after that and may take its
    /// time.
    Pause,
    /// There is nothing more.
    End,
}

/// Where requests come from and replies go to. A pair of closures is one, too.
pub trait Conversation {
    /// Appends the next request's bytes to `out`: exactly one request, or none as the answer says.
    fn next(&mut self, out: &mut Vec<u8>) -> Next;

    /// Takes the reply to the request number `index`, the first being 0. After a `Break` no more requests are asked
    /// for, but the replies of those that were sent still come here.
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
    /// A window of so many commands.
    #[must_use]
    pub fn of(commands: usize) -> Self {
        Self { commands, ..Self::default() }
    }

    /// Sends all requests of a conversation and takes their replies; how many there were.
    ///
    /// # Errors
    /// [`Interrupted`] when the connection breaks; it says how far things went. An error reply is a reply.
    pub fn run(&self, connection: &mut Connection, conversation: &mut impl Conversation) -> Result<u64, Interrupted> {
        connection.check_read_up().map_err(|error| Interrupted { error, answered: 0, sent: 0 })?;
        let mut passage =
            Passage { window: *self, connection, issued: 0, answered: 0, unsent: VecDeque::new(), open: true };
        match passage.run(conversation) {
            Ok(()) => Ok(passage.answered),
            Err(error) => Err(Interrupted { error, answered: passage.answered, sent: passage.sent() }),
        }
    }

    /// Sends all requests of an iterator, however many, and hands each reply with its request's number to `on_reply`.
    ///
    /// # Errors
    /// As [`Self::run`].
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

/// One run through a window. Invariant: `answered <= issued <= answered + window.commands`.
struct Passage<'a> {
    window: Window,
    connection: &'a mut Connection,
    /// Requests that were put into the connection's output.
    issued: u64,
    answered: u64,
    /// Where in the connection's count of sent bytes those requests begin that weren't begun when last looked at.
    unsent: VecDeque<u64>,
    /// Whether more requests may be asked for.
    open: bool,
}

impl Passage<'_> {
    fn run(&mut self, conversation: &mut impl Conversation) -> Result<(), Error> {
        let mut since = Instant::now();
        // While paused, nothing is asked for until all that was sent is answered.
        let mut paused = false;
        loop {
            if !paused && self.has_room() {
                paused = self.fill(conversation);
                // The conversation's own time isn't the server's silence.
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

    /// Whether a good part of the window is free: refilling it command by command would mean as many small writes.
    fn has_room(&mut self) -> bool {
        self.open && self.in_flight() <= self.window.commands as u64 / 2 && self.unsent_bytes() <= self.window.bytes / 2
    }

    fn unsent_bytes(&mut self) -> usize {
        self.connection.output().unsent().len()
    }

    /// Asks for requests until the window is full; whether a pause was asked for.
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

    /// Forgets where requests begin that have been begun.
    fn note_sent(&mut self) {
        let total = self.connection.output().total_sent();
        while self.unsent.front().is_some_and(|&start| start < total) {
            self.unsent.pop_front();
        }
    }

    /// Requests that were sent at least in part.
    fn sent(&mut self) -> u64 {
        self.note_sent();
        self.issued - self.unsent.len() as u64
    }

    /// Hands on all replies that are here; whether there were any.
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
