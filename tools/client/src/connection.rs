//! One connection: requests are sent in order, replies are read in order, and push messages are kept apart.
//!
//! The stream never blocks. All waiting is one poll(2) in [`Connection::wait`], for both directions at once. A wait for
//! writing therefore also reads, and a server that stops reading until its replies are taken can't cause a deadlock.

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

/// Maximum number of bytes that [`Connection::flush`] reads ahead. A caller that sends more before reading should use a
/// [`crate::Pipeline`], which passes replies on as they arrive.
const READ_AHEAD_BYTES_MAX: usize = 64 << 20;

/// A connection to a server.
///
/// After an error with [`Error::is_connection_lost`], every further call fails, too.
pub struct Connection {
    stream: Box<dyn Stream>,
    input: ReadBuffer,
    output: WriteBuffer,
    parser: Parser,
    /// Number of requests, sent or queued, with replies that weren't taken yet.
    owed: u64,
    /// Replies that arrived while a push was awaited; never more than `owed`.
    replies: VecDeque<Value>,
    pushes: VecDeque<Value>,
    pushes_max: usize,
    pushes_dropped: u64,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// Hashes of the scripts that were loaded through this connection.
    scripts: HashSet<String>,
    /// True if the last MULTI of a [`crate::Transaction`] was accepted.
    has_accepted_multi: bool,
    /// Present while a caller checks for changes of the connection's state.
    watch: Option<Watch>,
    /// Set if writing failed. The server's last message, possibly the reason, can still be read.
    write_ended: Option<Lost>,
    ended: Option<Lost>,
}

/// Detects changes of the connection's state by requests from other code.
#[derive(Debug)]
struct Watch {
    /// Start of the unexamined requests in the count of sent bytes.
    seen: u64,
    /// True if a request changed the connection's state.
    altered: bool,
}

impl Connection {
    /// Connects, authenticates, sets the name and selects the database.
    ///
    /// # Errors
    /// Returns [`Error::Connect`]; [`Error::Server`] if the server refuses; [`Error::Config`] for an invalid setting.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let mut connection = Self::open(config)?;
        // No command of the caller's was sent.
        handshake::greet(&mut connection, config).map_err(|error| error.with_fate(Fate::NotRun))?;
        Ok(connection)
    }

    /// Connects without sending anything.
    ///
    /// # Errors
    /// Returns [`Error::Connect`] or [`Error::Config`].
    pub fn open(config: &Config) -> Result<Self, Error> {
        Ok(Self::over(stream::open_stream(config)?, config))
    }

    /// Returns a connection over an open stream. Only limits and timeouts of `config` apply.
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

    /// Returns the stream and the bytes already read, for a caller that continues without this type. Pending replies
    /// and queued requests are the caller's responsibility.
    #[must_use]
    pub fn into_stream(self) -> (Box<dyn Stream>, Vec<u8>) {
        (self.stream, self.input.unread().to_vec())
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// Returns [`Error::Server`] for an error reply; [`Error::Lost`] with the command's fate; [`Error::Unread`] if
    /// replies to earlier commands are still unread.
    pub fn command(&mut self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        ServerError::check(self.exchange(request)?)
    }

    /// Sends a command and returns its reply, even if it is an error reply.
    ///
    /// # Errors
    /// Returns the errors of [`Self::command`] except [`Error::Server`].
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

    /// Queues a request with one expected reply. [`Self::flush`] or the next read sends it. The queue has no limit; a
    /// [`crate::Pipeline`] has one.
    pub fn send(&mut self, request: &(impl Request + ?Sized)) {
        self.owed += 1;
        self.append(request);
    }

    /// Queues a request without exactly one reply: SUBSCRIBE, MONITOR, or any request under CLIENT REPLY OFF. Read its
    /// output with [`Self::next_push`].
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

    /// Queues `requests` serialized requests.
    pub fn send_packed(&mut self, bytes: &[u8], requests: u64) {
        self.owed += requests;
        self.output.compact();
        self.output.bytes.extend_from_slice(bytes);
    }

    /// Sends all queued requests. Replies that arrive in the meantime are kept, up to 64 MiB.
    ///
    /// # Errors
    /// Returns [`Error::Lost`].
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

    /// Sends queued requests and waits for the next reply. Push messages are kept.
    ///
    /// # Errors
    /// Returns [`Error::Lost`].
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

    /// Sends queued requests and waits up to `timeout` for the next reply. After `None` the connection is usable as
    /// before.
    ///
    /// # Errors
    /// Returns [`Error::Lost`].
    pub fn poll_reply(&mut self, timeout: Duration) -> Result<Option<Value>, Error> {
        self.poll_for(timeout, Self::buffered_reply)
    }

    /// Sends queued requests and waits up to `timeout` for a message that answers no request: a push (RESP3), or any
    /// value while no reply is expected (published messages of RESP2, lines of MONITOR).
    ///
    /// # Errors
    /// Returns [`Error::Lost`].
    pub fn next_push(&mut self, timeout: Duration) -> Result<Option<Value>, Error> {
        self.poll_for(timeout, Self::buffered_push)
    }

    /// Returns the number of push messages that were dropped because no caller took them.
    #[must_use]
    pub fn pushes_dropped(&self) -> u64 {
        self.pushes_dropped
    }

    /// Sends as many bytes as possible without waiting. Returns true if all are sent.
    ///
    /// # Errors
    /// Returns [`Error::Lost`].
    pub fn try_flush(&mut self) -> Result<bool, Error> {
        self.check()?;
        self.try_write();
        match self.write_ended.clone() {
            Some(cause) => Err(self.end(cause)),
            None => Ok(!self.has_unsent()),
        }
    }

    /// Returns the next reply if it has arrived, without waiting or sending.
    ///
    /// # Errors
    /// Returns [`Error::Lost`].
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

    /// Returns the descriptor, for a caller that polls many connections. Polling doesn't report bytes that are already
    /// buffered; call [`Self::try_reply`] first.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    /// Returns the number of replies that weren't taken yet.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Sets the maximum time without a received byte while a reply is pending; `None` is unlimited.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    // --- buffered replies ---

    /// Returns the next reply in the receive buffer.
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

    /// Returns true if unsent bytes exist and writing hasn't failed.
    pub(crate) fn has_unsent(&self) -> bool {
        self.write_ended.is_none() && (!self.output.is_empty() || self.stream.wants_write())
    }

    /// Returns the hashes of the scripts that were loaded through this connection.
    pub(crate) fn scripts(&mut self) -> &mut HashSet<String> {
        &mut self.scripts
    }

    /// Starts the detection of state changes.
    pub(crate) fn watch_state(&mut self) {
        self.watch = Some(Watch { seen: self.output.total_end(), altered: false });
    }

    /// Ends the detection. Returns true if the state may have changed, or if the connection was replaced by another
    /// one.
    pub(crate) fn was_altered(&mut self) -> bool {
        self.look();
        self.watch.take().is_none_or(|watch| watch.altered)
    }

    /// Resets the client's side of the connection to the values of `config`.
    pub(crate) fn restore(&mut self, config: &Config) {
        self.read_timeout = config.read_timeout;
        self.pushes.clear();
        self.pushes_dropped = 0;
    }

    /// Examines the unsent requests that were queued since the last call.
    fn look(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let end = self.output.total_end();
        let unsent = self.output.unsent();
        let seen = unsent.len().saturating_sub((end - watch.seen) as usize);
        watch.altered |= unshareable::any_alters(&unsent[seen..]);
        watch.seen = end;
    }

    /// Returns true if the last MULTI of a [`crate::Transaction`] was accepted.
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

    /// Returns the kept push messages.
    pub(crate) fn take_pushes(&mut self) -> VecDeque<Value> {
        std::mem::take(&mut self.pushes)
    }

    /// Returns true if the connection can take a new command: it is open, no request is pending, and there is nothing
    /// to read except push messages.
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

    /// Sends as many bytes as possible without waiting.
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

    /// Reads once. Returns true if bytes arrived.
    pub(crate) fn try_read(&mut self) -> Result<bool, Error> {
        match self.input.read_from(self.stream.as_mut()) {
            Ok(0) => Err(self.end(Lost::Closed)),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(self.end(Lost::Io(Arc::new(error)))),
        }
    }

    /// Waits until bytes can be transferred, and transfers them, or until the bell rings. Returns true if the bell
    /// rang. `since` is the time of the last transfer.
    ///
    /// # Errors
    /// Returns [`Error::Lost`], also for a timeout.
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

    /// Returns false while too many bytes were read ahead of unsent requests.
    fn may_read(&self) -> bool {
        !self.has_unsent() || self.input.unread().len() < READ_AHEAD_BYTES_MAX
    }

    /// Reads and writes according to `ready`. Returns true if any byte was transferred.
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

    /// Returns an error if the connection has ended, or if earlier requests have unread replies, which would be
    /// mistaken for later ones.
    pub(crate) fn check_read_up(&self) -> Result<(), Error> {
        self.check()?;
        if self.owed > 0 { Err(Error::Unread(self.owed)) } else { Ok(()) }
    }

    /// Returns true if the connection is lost.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns an error if the connection has ended.
    fn check(&self) -> Result<(), Error> {
        match &self.ended {
            Some(cause) => Err(Error::Lost { cause: cause.clone(), fate: Fate::NotRun }),
            None => Ok(()),
        }
    }

    /// Notes the reason for the end of the connection. An earlier write error takes precedence, because a closed stream
    /// is only its consequence.
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
