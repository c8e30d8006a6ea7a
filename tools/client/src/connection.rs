//! One connection: requests out, replies in, in order; push messages set aside.
//!
//! The stream never blocks; all waiting is one poll(2) in [`Connection::wait`], for both directions at once. So a wait
//! to write reads meanwhile, and a server that stops reading until its replies are taken can't cause a deadlock.

use std::collections::{HashSet, VecDeque};
use std::io::{ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::parse::{Parser, Value};

use crate::buffer::{ReadBuffer, WriteBuffer};
use crate::command::Request;
use crate::config::Config;
use crate::error::{Error, Fate, Lost, ServerError};
use crate::handshake;
use crate::stream::{self, Ready, Stream};
use crate::unshareable;

/// [`Connection::flush`] reads replies ahead up to so many bytes. A caller that sends more before reading anything
/// should use a [`crate::Pipeline`], which hands replies on as they come.
const READ_AHEAD_BYTES_MAX: usize = 64 << 20;

/// A connection to a server.
///
/// After an error that [`Error::is_connection_lost`] tells of, every further call fails, too.
pub struct Connection {
    stream: Box<dyn Stream>,
    input: ReadBuffer,
    output: WriteBuffer,
    parser: Parser,
    /// Requests that were sent, or are queued, and have replies that weren't taken yet.
    owed: u64,
    /// Replies that came while a push was waited for; never more than `owed`.
    replies: VecDeque<Value>,
    pushes: VecDeque<Value>,
    pushes_max: usize,
    pushes_dropped: u64,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// Hashes of the scripts that were loaded through this connection.
    scripts: HashSet<String>,
    /// The last MULTI of a [`crate::Transaction`] was accepted.
    has_accepted_multi: bool,
    /// There while a caller wants to know whether the connection is left as it was.
    watch: Option<Watch>,
    /// Writing has failed. What the server said before it closed, its reason perhaps, can still be read.
    write_ended: Option<Lost>,
    ended: Option<Lost>,
}

/// What is known about requests that another part of the program sends.
#[derive(Debug)]
struct Watch {
    /// Where in the count of sent bytes those begin that weren't looked at.
    seen: u64,
    /// One of them changes the connection, so that it isn't as new any more.
    altered: bool,
}

impl Connection {
    /// Connects, authenticates, names the connection and selects the database.
    ///
    /// # Errors
    /// [`Error::Connect`]; [`Error::Server`] when the server refuses; [`Error::Config`] for a setting that can't be
    /// met.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let mut connection = Self::open(config)?;
        // Whatever the caller wanted with it has not been sent.
        handshake::greet(&mut connection, config).map_err(|error| error.with_fate(Fate::NotRun))?;
        Ok(connection)
    }

    /// Connects and says nothing.
    ///
    /// # Errors
    /// [`Error::Connect`] or [`Error::Config`].
    pub fn open(config: &Config) -> Result<Self, Error> {
        Ok(Self::over(stream::open_stream(config)?, config))
    }

    /// A connection over a stream that is open already. Of `config`, limits and timeouts count.
    #[must_use]
    pub fn over(stream: Box<dyn Stream>, config: &Config) -> Self {
        Self {
            stream,
            input: ReadBuffer::new(),
            output: WriteBuffer::default(),
            parser: Parser::new(config.limits.clone()),
            owed: 0,
            replies: VecDeque::new(),
            pushes: VecDeque::new(),
            pushes_max: config.pushes_max,
            pushes_dropped: 0,
            read_timeout: config.read_timeout,
            write_timeout: config.write_timeout,
            scripts: HashSet::new(),
            has_accepted_multi: false,
            watch: None,
            write_ended: None,
            ended: None,
        }
    }

    /// The stream, for a caller that speaks the protocol without this type from here on, and what was already read.
    /// Replies that are owed and requests that are queued are the caller's affair.
    #[must_use]
    pub fn into_stream(self) -> (Box<dyn Stream>, Vec<u8>) {
        (self.stream, self.input.unread().to_vec())
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// [`Error::Server`] for an error reply; [`Error::Lost`] with what is known about the command; [`Error::Unread`] if
    /// replies of commands that were sent before are still to be read.
    pub fn command(&mut self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        ServerError::check(self.exchange(request)?)
    }

    /// The same, but an error reply is a reply.
    ///
    /// # Errors
    /// As [`Self::command`], but for [`Error::Server`].
    pub fn exchange(&mut self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        self.check_read_up()?;
        let start = self.output.total_end();
        self.send(request);
        let reply = self.read_reply();
        reply.map_err(|error| {
            let sent = self.output.total_sent() > start;
            error.with_fate(if sent { Fate::MayHaveRun } else { Fate::NotRun })
        })
    }

    /// Queues a request; [`Self::flush`] or the next reading sends it. One reply is owed for it. How much is queued is
    /// the caller's affair; a [`crate::Pipeline`] has its bounds.
    pub fn send(&mut self, request: &(impl Request + ?Sized)) {
        self.owed += 1;
        self.append(request);
    }

    /// Queues a request that isn't answered by exactly one reply: SUBSCRIBE, MONITOR, or any under CLIENT REPLY OFF.
    /// What comes of it is read with [`Self::next_push`].
    pub fn send_unanswered(&mut self, request: &(impl Request + ?Sized)) {
        if let Some(watch) = &mut self.watch {
            watch.altered = true;
        }
        self.append(request);
    }

    fn append(&mut self, request: &(impl Request + ?Sized)) {
        self.output.compact();
        request.pack(&mut self.output.bytes);
    }

    /// Queues bytes that are `requests` whole requests already.
    pub fn send_packed(&mut self, bytes: &[u8], requests: u64) {
        self.owed += requests;
        self.output.compact();
        self.output.bytes.extend_from_slice(bytes);
    }

    /// Sends all that is queued. What the server answers meanwhile is kept, up to 64 MiB.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.check()?;
        self.try_write();
        let mut since = Instant::now();
        while self.has_unsent() {
            self.step(&mut since, None)?;
        }
        match self.write_ended.clone() {
            Some(cause) => Err(self.end(cause)),
            None => Ok(()),
        }
    }

    /// The next reply, waiting for it; sends first what is queued. Push messages are set aside.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn read_reply(&mut self) -> Result<Value, Error> {
        self.check()?;
        self.try_write();
        let mut since = Instant::now();
        loop {
            if let Some(reply) = self.buffered_reply()? {
                return Ok(reply);
            }
            self.step(&mut since, None)?;
        }
    }

    /// The next reply if it comes within `timeout`; a `None` leaves the connection as it is. Sends first what is
    /// queued.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn poll_reply(&mut self, timeout: Duration) -> Result<Option<Value>, Error> {
        self.poll_for(timeout, Self::buffered_reply)
    }

    /// The next message that answers no request: a push (RESP3), or whatever comes while no reply is owed (RESP2's
    /// published messages, MONITOR's lines). `None` if none comes within `timeout`. Sends first what is queued.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn next_push(&mut self, timeout: Duration) -> Result<Option<Value>, Error> {
        self.poll_for(timeout, Self::buffered_push)
    }

    /// How many push messages were dropped because no caller asked for them.
    #[must_use]
    pub fn pushes_dropped(&self) -> u64 {
        self.pushes_dropped
    }

    /// Sends as much as goes without waiting; true when all is sent.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn try_flush(&mut self) -> Result<bool, Error> {
        self.check()?;
        self.try_write();
        match self.write_ended.clone() {
            Some(cause) => Err(self.end(cause)),
            None => Ok(!self.has_unsent()),
        }
    }

    /// The next reply if it is here already; nothing waits, nothing is sent.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn try_reply(&mut self) -> Result<Option<Value>, Error> {
        self.check()?;
        if let Some(reply) = self.buffered_reply()? {
            return Ok(Some(reply));
        }
        if !self.try_read()? {
            return Ok(None);
        }
        self.buffered_reply()
    }

    /// The descriptor, for a caller that waits on many connections at once. What was read from it already is found by
    /// [`Self::try_reply`], not by polling.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    /// Replies that are owed and not taken.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Changes how long no byte may arrive while a reply is awaited; `None`: for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    // --- what is here ---

    /// The next reply among the bytes that have arrived.
    pub(crate) fn buffered_reply(&mut self) -> Result<Option<Value>, Error> {
        if let Some(reply) = self.replies.pop_front() {
            self.owed = self.owed.saturating_sub(1);
            return Ok(Some(reply));
        }
        while let Some(value) = self.parse()? {
            if let Value::Push(_) = value {
                self.set_aside(value);
                continue;
            }
            self.owed = self.owed.saturating_sub(1);
            return Ok(Some(value));
        }
        Ok(None)
    }

    fn buffered_push(&mut self) -> Result<Option<Value>, Error> {
        if let Some(push) = self.pushes.pop_front() {
            return Ok(Some(push));
        }
        while let Some(value) = self.parse()? {
            let owed = self.owed > self.replies.len() as u64;
            if owed && !matches!(value, Value::Push(_)) {
                self.replies.push_back(value);
                continue;
            }
            return Ok(Some(value));
        }
        Ok(None)
    }

    fn set_aside(&mut self, push: Value) {
        if self.pushes.len() >= self.pushes_max {
            self.pushes.pop_front();
            self.pushes_dropped += 1;
        }
        if self.pushes_max > 0 {
            self.pushes.push_back(push);
        }
    }

    fn parse(&mut self) -> Result<Option<Value>, Error> {
        let unread = self.input.unread();
        if unread.is_empty() {
            return Ok(None);
        }
        match self.parser.advance(unread) {
            Ok(progress) => {
                self.input.consume(progress.consumed);
                Ok(progress.value)
            }
            Err(error) => Err(self.end(Lost::Protocol(error))),
        }
    }

    // --- moving bytes ---

    /// Whether bytes wait to be sent and can be.
    pub(crate) fn has_unsent(&self) -> bool {
        self.write_ended.is_none() && (!self.output.is_empty() || self.stream.wants_write())
    }

    /// Hashes of the scripts that were loaded through this connection.
    pub(crate) fn scripts(&mut self) -> &mut HashSet<String> {
        &mut self.scripts
    }

    /// Begins to look whether what is sent changes the connection.
    pub(crate) fn watch_state(&mut self) {
        self.watch = Some(Watch { seen: self.output.total_end(), altered: false });
    }

    /// Ends that; whether the connection was, or may have been, changed. So it was if another one is in its place.
    pub(crate) fn was_altered(&mut self) -> bool {
        self.look();
        self.watch.take().is_none_or(|watch| watch.altered)
    }

    /// Puts on our side of the connection everything as `config` would have it for a new one.
    pub(crate) fn restore(&mut self, config: &Config) {
        self.read_timeout = config.read_timeout;
        self.pushes.clear();
        self.pushes_dropped = 0;
    }

    /// Looks at the requests that came since the last look, of which nothing was sent yet.
    fn look(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let end = self.output.total_end();
        let unsent = self.output.unsent();
        let seen = unsent.len().saturating_sub((end - watch.seen) as usize);
        watch.altered |= unshareable::any_alters(&unsent[seen..]);
        watch.seen = end;
    }

    /// Whether the last MULTI of a [`crate::Transaction`] was accepted.
    pub(crate) fn has_accepted_multi(&self) -> bool {
        self.has_accepted_multi
    }

    pub(crate) fn set_accepted_multi(&mut self, accepted: bool) {
        self.has_accepted_multi = accepted;
    }

    /// Counts requests that were written into [`Self::output`].
    pub(crate) fn owe(&mut self, requests: u64) {
        self.owed += requests;
    }

    /// The push messages that were set aside.
    pub(crate) fn take_pushes(&mut self) -> VecDeque<Value> {
        std::mem::take(&mut self.pushes)
    }

    /// Whether the connection is fit for a new command: open, nothing on its way, nothing but push messages to be read.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let ended = self.ended.is_some() || self.write_ended.is_some();
        let nothing_on_the_way = !ended && self.owed == 0 && !self.has_unsent();
        nothing_on_the_way
            && loop {
                match self.buffered_reply() {
                    Ok(None) => {}
                    Ok(Some(_)) | Err(_) => break false,
                }
                match self.try_read() {
                    Ok(true) => {}
                    Ok(false) => break true,
                    Err(_) => break false,
                }
            }
    }

    pub(crate) fn output(&mut self) -> &mut WriteBuffer {
        &mut self.output
    }

    /// Sends as much as goes without waiting.
    pub(crate) fn try_write(&mut self) {
        self.look();
        while self.has_unsent() {
            let written = match self.output.is_empty() {
                true => self.stream.flush().map(|()| None),
                false => self.stream.write(self.output.unsent()).map(Some),
            };
            match written {
                Ok(None) => {}
                Ok(Some(0)) => self.write_ended = Some(Lost::Closed),
                Ok(Some(n)) => self.output.mark_sent(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.write_ended = Some(Lost::Io(Arc::new(error))),
            }
        }
    }

    /// Reads once; whether anything came.
    pub(crate) fn try_read(&mut self) -> Result<bool, Error> {
        match self.input.read_from(self.stream.as_mut()) {
            Ok(0) => Err(self.end(Lost::Closed)),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(self.end(Lost::Io(Arc::new(error)))),
        }
    }

    /// Waits until bytes can be moved and moves them, or until the bell rings; whether it did. `since` is when bytes
    /// last moved.
    ///
    /// # Errors
    /// [`Error::Lost`], by a timeout, too.
    pub(crate) fn step(&mut self, since: &mut Instant, bell: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let limit = if self.has_unsent() { self.write_timeout } else { self.read_timeout };
        let rest = limit.map(|limit| limit.saturating_sub(since.elapsed()));
        let ready = self.wait(rest, bell)?;
        if self.move_bytes(ready)? {
            *since = Instant::now();
        } else if let Some(limit) = limit
            && !ready.bell
            && since.elapsed() >= limit
        {
            let cause = if self.has_unsent() { Lost::Stuck(limit) } else { Lost::Silent(limit) };
            return Err(self.end(cause));
        }
        Ok(ready.bell)
    }

    fn wait(&mut self, timeout: Option<Duration>, bell: Option<BorrowedFd<'_>>) -> Result<Ready, Error> {
        let reads = self.may_read();
        if reads && self.stream.has_buffered() {
            return Ok(Ready { read: true, ..Ready::default() });
        }
        let ready = stream::wait(self.stream.fd(), reads, self.has_unsent(), bell, timeout);
        ready.map_err(|error| self.end(Lost::Io(Arc::new(error))))
    }

    /// Whether what arrives is read now: not while too much has been read ahead of what is to be sent.
    fn may_read(&self) -> bool {
        !self.has_unsent() || self.input.unread().len() < READ_AHEAD_BYTES_MAX
    }

    /// Does what `ready` says can be done; whether any byte was moved.
    fn move_bytes(&mut self, ready: Ready) -> Result<bool, Error> {
        let mut moved = false;
        if ready.read && self.may_read() {
            moved |= self.try_read()?;
        }
        if ready.write {
            let before = self.output.total_sent();
            self.try_write();
            moved |= self.output.total_sent() > before;
        }
        Ok(moved)
    }

    fn poll_for(
        &mut self,
        timeout: Duration,
        mut take: impl FnMut(&mut Self) -> Result<Option<Value>, Error>,
    ) -> Result<Option<Value>, Error> {
        self.check()?;
        self.try_write();
        let start = Instant::now();
        loop {
            if let Some(value) = take(self)? {
                return Ok(Some(value));
            }
            let rest = timeout.saturating_sub(start.elapsed());
            let ready = self.wait(Some(rest), None)?;
            if !self.move_bytes(ready)? && rest.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Fails if the connection has ended before, or if replies to earlier requests would be taken for later ones'.
    pub(crate) fn check_read_up(&self) -> Result<(), Error> {
        self.check()?;
        if self.owed > 0 { Err(Error::Unread(self.owed)) } else { Ok(()) }
    }

    /// Whether the connection was lost.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Fails if the connection has ended before.
    fn check(&self) -> Result<(), Error> {
        match &self.ended {
            Some(cause) => Err(Error::Lost { cause: cause.clone(), fate: Fate::NotRun }),
            None => Ok(()),
        }
    }

    /// Notes why the connection ended. If writing failed first, that was the reason; a closed stream is just its
    /// sequel.
    fn end(&mut self, cause: Lost) -> Error {
        let cause = self.ended.get_or_insert_with(|| self.write_ended.clone().unwrap_or(cause)).clone();
        Error::Lost { cause, fate: Fate::MayHaveRun }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("owed", &self.owed).field("ended", &self.ended).finish_non_exhaustive()
    }
}
