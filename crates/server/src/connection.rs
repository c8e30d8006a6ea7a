//! One connection: its socket, the input that has not run, and the unsent replies.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use config::QUERY_BYTES_MAX;
use engine::clients::progress::Progress;
use engine::clients::session::Session;
use engine::worker::Worker;
use journal::order::Position;
use resp::reply::Output;
use resp::request::{BUFFER_BYTES_MAX, Blocks, Input, Missing};
use rustix::io::Errno;
use statistics::stats::WorkerStats;

use crate::backlog::Backlog;
use crate::deferred_replies::DeferredReplies;
use crate::large_args::LargeArgs;
use crate::log;
use crate::reply_queue::ReplyQueue;
use crate::shared::Shared;
use crate::splice::Splice;
use crate::tls::stream::TlsStream;

/// Slices in one vectored write. The others follow in the next.
const SLICES_AT_ONCE: usize = 128;
/// Bytes sent to a connection in one turn. Other connections must not starve while a fast peer takes everything.
const SEND_BYTES_MAX: usize = 1024 * 1024;
/// A request of at least this many bytes gets a buffer of its announced size. The buffer is filled exactly, and no bytes are moved during
/// growth.
const OWN_BUFFER_BYTES_MIN: usize = 32 * 1024;
/// Bytes of capacity that a nearly empty input buffer keeps.
const INPUT_KEPT_BYTES: usize = 16 * 1024;
/// Bytes that have run and may remain before the rest. Together with the longest request they stay far below the range of the framer's
/// offsets.
const INPUT_RUN_BYTES_MAX: usize = 256 * 1024 * 1024;
// A connection with more unrun input is closed. No request is longer than the framer can handle.
const _: () = assert!(QUERY_BYTES_MAX as usize + INPUT_RUN_BYTES_MAX < BUFFER_BYTES_MAX);
/// Bytes of capacity that an empty output buffer keeps.
const OUTPUT_KEPT_BYTES: usize = 16 * 1024;
/// Bytes of the output buffer that a thread's connections share in turn: a part of the second-level cache.
const SPARE_OUTPUT_BYTES: usize = 512 * 1024;

/// A client's socket.
pub enum Socket {
    /// Through TCP.
    Tcp(TcpStream),
    /// Through a Unix socket.
    Unix(UnixStream),
    /// Through TCP, encrypted.
    Tls(Box<TlsStream>),
}

impl Socket {
    /// Returns true if the socket has input that no poller announces.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self, Socket::Tls(stream) if stream.is_pending())
    }

    /// Returns true once per readiness change, and sets the loop's note of it.
    #[inline]
    pub fn begins_to_be_pending(&mut self) -> bool {
        let Socket::Tls(stream) = self else { return false };
        stream.is_pending() && !std::mem::replace(&mut stream.is_noted, true)
    }

    /// Clears the loop's note and returns its previous value.
    pub fn ends_to_be_pending(&mut self) -> bool {
        let Socket::Tls(stream) = self else { return false };
        std::mem::take(&mut stream.is_noted)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tls(stream) => stream.as_fd(),
        }
    }
}

/// One client's connection.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// The engine's state of the client.
    pub session: Session,
    /// Bytes that have arrived and not run. Usually empty.
    pub input: Vec<u8>,
    /// Bytes at the beginning of `input` that have run already. 0 while requests run on arrival.
    pub input_run: usize,
    /// The large arguments of the first request in `input`.
    pub large_args: Option<Box<LargeArgs>>,
    /// Replies ready to be sent.
    pub replies: ReplyQueue,
    /// Replies held until their changes are durable, and all replies behind them.
    pub deferred: Option<Box<DeferredReplies>>,
    /// The figures of replies that have been unsent for longer than a turn.
    pub backlog: Option<Box<Backlog>>,
    /// The reason why no requests run.
    pub progress: Progress,
    /// True while the poller watches for input. False after the peer's end of input, and while there is no room for further replies.
    pub wants_read: bool,
    /// True while the poller watches for room to write.
    pub wants_write: bool,
    /// True while the socket takes no more, until the poller reports room.
    pub socket_is_full: bool,
    /// True while the connection is in the list to be written at the end of the turn.
    pub in_write_list: bool,
    /// True while only this thread knows the connection, because its last reply is being sent.
    has_left: bool,
}

/// The result of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Number of bytes. 0 is the end of input.
    pub bytes: usize,
    /// True if the bytes fill all the room: there may be more.
    pub filled_room: bool,
}

/// The result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything is sent.
    All,
    /// The socket takes no more at the moment, or has taken enough for one turn.
    Some,
    /// Everything in memory is sent. The rest must be read from a file first.
    Front,
    /// The connection is broken.
    Broken,
}

impl Connection {
    /// Returns a newly accepted connection.
    #[must_use]
    pub fn new(socket: Socket, session: Session) -> Connection {
        Connection {
            socket,
            session,
            input: Vec::new(),
            input_run: 0,
            large_args: None,
            replies: ReplyQueue::default(),
            deferred: None,
            backlog: None,
            progress: Progress::Ready,
            wants_read: true,
            wants_write: false,
            socket_is_full: false,
            in_write_list: false,
            has_left: false,
        }
    }

    /// Returns the output for new replies, behind all present ones.
    pub fn replies_end(&mut self) -> &mut Output {
        match &mut self.deferred {
            Some(deferred) => deferred.last().unwrap_or(&mut self.replies.output),
            None => &mut self.replies.output,
        }
    }

    /// Takes the replies of its requests, which depend on the log up to `durable_after`. The log is safe up to `safe`. If the replies are
    /// held, returns the position that releases them. `now_ms` is of a clock that is never set.
    pub fn take_replies(
        &mut self,
        replies: &mut Output,
        durable_after: Position,
        safe: Position,
        now_ms: u64,
    ) -> Option<Position> {
        if replies.is_empty() {
            return None;
        }
        if self.deferred.is_none() && durable_after <= safe {
            self.replies.output.append(replies);
            return None;
        }
        Some(self.deferred.get_or_insert_default().push(durable_after, replies, None, now_ms))
    }

    /// Like [`Connection::take_replies`], with places for the replies of other nodes. Returns the number of the chunk that they belong to,
    /// and the position that releases it.
    pub fn take_spliced(
        &mut self,
        replies: &mut Output,
        splice: Splice,
        durable_after: Position,
        now_ms: u64,
    ) -> (u64, Position) {
        let deferred = self.deferred.get_or_insert_default();
        let until = deferred.push(durable_after, replies, Some(Box::new(splice)), now_ms);
        (deferred.last_number(), until)
    }

    /// Releases the replies that depend on the log up to `safe`.
    pub fn release_replies(&mut self, safe: Position) {
        if let Some(deferred) = &mut self.deferred
            && deferred.release(safe, &mut self.replies.output)
        {
            self.deferred = None;
        }
    }

    /// Returns true if there are unsent replies.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty() || self.deferred.is_some()
    }

    /// Removes the connection from its subscriptions and the list of clients; only its thread keeps it. The call comes before the peer can
    /// notice the close, by the reply to QUIT or by the end of the connection. Reactions to the close find no trace of the connection.
    pub fn leave(&mut self, worker: &mut Worker, shared: &Shared) {
        if !std::mem::replace(&mut self.has_left, true) {
            worker.close(&mut self.session);
            shared.note_leaving(true);
        }
    }

    /// Runs requests by `run`, which gets the session, the input and the start in it: the `received` ones, or else those that the
    /// connection has kept. Keeps the unrun rest. The replies go behind the present ones, or into `held_replies` if they may depend on the
    /// log. Returns true if a request has run, and the progress.
    pub fn run_requests(
        &mut self,
        received: Option<&[u8]>,
        held_replies: Option<&mut Output>,
        run: impl FnOnce(&mut Session, Input<'_>, usize, &mut Output) -> (usize, Progress),
    ) -> (bool, Progress) {
        let (bytes, from) = received.map_or((&self.input[..], self.input_run), |bytes| (bytes, 0));
        let input = Input { bytes, blocks: Connection::blocks(self.large_args.as_deref()) };
        let output = held_replies.unwrap_or(&mut self.replies.output);
        let (at, progress) = run(&mut self.session, input, from, output);
        match received {
            Some(bytes) => self.keep_rest(bytes, at, progress),
            None => self.forget_run(at, progress),
        }
        (at > from, progress)
    }

    /// Sends as many replies as the socket takes. A closing connection leaves the list of clients first, and comes back if its peer has
    /// still replies to read. Returns the state of the output and the number of bytes sent.
    pub fn send_replies(&mut self, spare: &mut Vec<u8>, worker: &mut Worker, shared: &Shared) -> (Sent, usize) {
        let is_closing = self.progress == Progress::Closing;
        if is_closing {
            self.leave(worker, shared);
        }
        // Like in Redis, a reply counts as activity: before the reply to a blocking command a client may be silent for long. The time is
        // noted before the reply is sent, because the client may then ask another thread for it.
        let active_ms = self.session.client.active_ms.load(Ordering::Relaxed);
        self.session.client.active_ms.store(worker.clock.now_ms, Ordering::Relaxed);
        let (sent, bytes, calls) = self.send(spare);
        self.note_sent(bytes, calls, worker.stats());
        if bytes == 0 {
            self.session.client.active_ms.store(active_ms, Ordering::Relaxed);
        }
        self.socket_is_full = sent == Sent::Some;
        if is_closing && matches!(sent, Sent::Some | Sent::Front) {
            self.come_back(worker, shared);
        }
        (sent, bytes)
    }

    /// Puts the connection back into the list of clients, because its peer has still replies to read.
    pub fn come_back(&mut self, worker: &Worker, shared: &Shared) {
        if std::mem::take(&mut self.has_left) {
            worker.come_back(&self.session);
            shared.note_leaving(false);
        }
    }

    /// Bytes that have arrived and not been run.
    #[must_use]
    pub fn input_left(&self) -> usize {
        self.input.len() - self.input_run + self.large_args.as_ref().map_or(0, |large_args| large_args.arrived_bytes())
    }

    /// Bytes of memory reserved for further input.
    #[must_use]
    pub fn input_free(&self) -> usize {
        self.input.capacity() - self.input.len()
            + self.large_args.as_ref().map_or(0, |large_args| large_args.free_bytes())
    }

    /// Counts received bytes, and marks the client active.
    pub fn note_read(&mut self, bytes: usize, now_ms: u64, stats: &WorkerStats) {
        self.session.round_trips.note_arrival();
        stats.net_in.add(bytes as u64);
        let client = &self.session.client;
        client.active_ms.store(now_ms, Ordering::Relaxed);
        client.net_bytes[0].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes sent, and the system calls for them.
    pub fn note_sent(&self, bytes: usize, calls: usize, stats: &WorkerStats) {
        stats.net_out.add(bytes as u64);
        stats.writes.add(calls as u64);
        self.session.client.net_bytes[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Publishes the size of incomplete requests, for CLIENT LIST and the memory limits. Those limits may close the connection a moment
    /// later.
    pub fn note_input(&self, worker: &Worker) {
        let client = &self.session.client;
        let (left, free) = (self.input_left() as u64, self.input_free() as u64);
        client.input_bytes.store(left, Ordering::Relaxed);
        client.input_free_bytes.store(free, Ordering::Relaxed);
        client.args_bytes.store(self.session.framer.memory_bytes() as u64, Ordering::Relaxed);
        if left + free > 0 {
            worker.stats().recent_input.note(worker.clock.now_ms / 1000, left + free);
        }
        worker.note_unauthenticated(&self.session);
    }

    /// Returns the bytes of the pending requests if they exceed `limit`.
    #[must_use]
    pub fn input_over(&self, limit: u64) -> Option<usize> {
        // Commands queued by a transaction count, too.
        let queued = self.session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let framed = self.session.framer.memory_bytes();
        let bytes = self.input_left().saturating_add(queued).saturating_add(framed);
        (bytes as u64 > limit).then_some(bytes)
    }

    /// Logs that the connection is closed because of the size of its requests.
    pub fn log_input_over(&self, bytes: usize, limit: u64) {
        let client = &self.session.client;
        log::warning(format!(
            "Closing client that reached max query buffer length: id={} addr={} qbuf={bytes} (client-query-buffer-limit {limit})",
            client.id, client.addr,
        ));
    }

    /// The complete ones of the first request's large arguments.
    pub fn blocks(large_args: Option<&LargeArgs>) -> &Blocks {
        large_args.map_or(Blocks::NONE, |large_args| &large_args.blocks)
    }

    /// Returns true while a large argument is arriving.
    #[must_use]
    pub fn is_amid_large(&self) -> bool {
        self.large_args.as_ref().is_some_and(|large_args| large_args.is_filling())
    }

    /// Keeps input that can't run now.
    pub fn keep_input(&mut self, read: &[u8]) {
        self.input.clear();
        self.input.extend_from_slice(read);
    }

    /// Returns the missing bytes of a long request without large arguments, as far as its header tells.
    fn wanted(&self) -> Option<usize> {
        let total = self.session.framer.wanted().filter(|&total| total >= OWN_BUFFER_BYTES_MIN)?;
        // Otherwise the request need not be the last one in the input.
        let is_framed = self.progress == Progress::Ready && self.input_run == 0;
        total.checked_sub(self.input.len()).filter(|&missing| missing > 0 && is_framed)
    }

    /// Returns true if the next read continues a long request or argument with a buffer of its size.
    #[must_use]
    pub fn is_amid_long(&self) -> bool {
        self.is_amid_large() || self.wanted().is_some()
    }

    /// Keeps the rest of the read input after `run` bytes have run.
    pub fn keep_rest(&mut self, read: &[u8], run: usize, progress: Progress) {
        self.forget_large_args(run);
        let rest = &read[run..];
        let (rest, begun) = rest.split_at(self.whole_bytes(progress).unwrap_or(rest.len()));
        self.keep_input(rest);
        self.begin_large_arg(progress, begun);
    }

    /// Drops the first bytes of the input, which have run.
    pub fn forget_run(&mut self, run: usize, progress: Progress) {
        self.forget_large_args(run);
        self.drop_input(run, progress == Progress::Ready);
        if let Some(whole) = self.whole_bytes(progress) {
            let begun = self.input.split_off(whole);
            self.begin_large_arg(progress, &begun);
        }
    }

    /// Returns the incomplete large argument at the end of the input. It is received into a buffer of its own from now on.
    fn missing(&self, progress: Progress) -> Option<Missing> {
        // Otherwise the rest of the input need not begin at the framer's position.
        let is_framed = progress == Progress::Ready && !self.is_amid_large();
        self.session.framer.missing().filter(|_| is_framed)
    }

    /// Returns the number of unrun bytes before the incomplete large argument.
    fn whole_bytes(&self, progress: Progress) -> Option<usize> {
        self.missing(progress).map(|missing| missing.at)
    }

    fn begin_large_arg(&mut self, progress: Progress, begun: &[u8]) {
        if let Some(missing) = self.missing(progress) {
            self.large_args.get_or_insert_default().begin(missing, begun);
        }
    }

    /// Drops the large arguments of the first request if that has run.
    fn forget_large_args(&mut self, run: usize) {
        if run > 0 {
            self.large_args = None;
        }
    }

    /// Reads once into the kept input: the rest of an arriving large argument, or else at least `bytes` if available.
    pub fn read_to_keep(&mut self, bytes: usize) -> io::Result<Option<Read>> {
        if let Some(large_args) = self.large_args.as_mut().filter(|large_args| large_args.is_filling()) {
            let read = large_args.read(&mut self.socket)?;
            return Ok(read.map(|bytes| Read { bytes, filled_room: !large_args.is_filling() }));
        }
        match self.wanted() {
            Some(missing) => self.input.reserve_exact(missing),
            None => self.input.reserve(self.input.len().max(bytes)),
        }
        let read = read_more(&mut self.socket, &mut self.input)?;
        Ok(read.map(|bytes| Read { bytes, filled_room: self.input.len() == self.input.capacity() }))
    }

    /// Drops the bytes that have run, and frees excess memory. Before a long rest they stay for now unless `all` is set: moving the rest
    /// after every small request would take longer than the requests.
    fn drop_input(&mut self, run: usize, all: bool) {
        if !all && run < self.input.len() / 2 && run < INPUT_RUN_BYTES_MAX {
            self.input_run = run;
            return;
        }
        self.input_run = 0;
        self.input.drain(..run);
        if self.input.capacity() > INPUT_KEPT_BYTES && self.input.len() < self.input.capacity() / 4 {
            self.input.shrink_to_fit();
        }
    }

    /// Sends the output with as few system calls as the socket allows. Returns the state, the bytes and the calls. `spare` gets the emptied
    /// buffer, for the next connection.
    pub fn send(&mut self, spare: &mut Vec<u8>) -> (Sent, usize, usize) {
        let (mut bytes, mut calls) = (0, 0);
        loop {
            let output = self.replies.front();
            if output.is_empty() {
                break;
            }
            if bytes >= SEND_BYTES_MAX {
                return (Sent::Some, bytes, calls);
            }
            calls += 1;
            match write(&mut self.socket, output) {
                Ok(0) => return (Sent::Broken, bytes, calls),
                Ok(sent) => {
                    bytes += sent;
                    output.advance(sent);
                    if let Some(backlog) = &mut self.backlog {
                        backlog.stall.note_move();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return (Sent::Some, bytes, calls),
                Err(_) => return (Sent::Broken, bytes, calls),
            }
        }
        if !self.replies.is_empty() {
            return (Sent::Front, bytes, calls);
        }
        self.replies.output.give_spare(OUTPUT_KEPT_BYTES, spare, SPARE_OUTPUT_BYTES);
        (Sent::All, bytes, calls)
    }
}

/// Writes as much as the socket takes, and returns the number of bytes.
pub fn write(socket: &mut Socket, output: &Output) -> rustix::io::Result<usize> {
    if let Socket::Tls(stream) = socket {
        return stream.write(output);
    }
    let mut slices = output.slices();
    match (slices.next(), slices.next()) {
        // Most replies are one slice, and a plain send is cheaper here and in the kernel.
        (Some(slice), None) => rustix::net::send(&*socket, slice, rustix::net::SendFlags::NOSIGNAL),
        _ => write_slices(socket, output),
    }
}

#[inline(never)]
fn write_slices(socket: &Socket, output: &Output) -> rustix::io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES_AT_ONCE];
    let mut count = 0;
    for (slot, slice) in slices.iter_mut().zip(output.slices()) {
        *slot = IoSlice::new(slice);
        count += 1;
    }
    rustix::io::writev(socket, &slices[..count])
}

/// Reads into a slice. Returns 0 at the end of input, and `None` if there is no input yet.
pub fn read(socket: &mut Socket, into: &mut [u8]) -> io::Result<Option<usize>> {
    if let Socket::Tls(stream) = socket {
        return stream.read(into);
    }
    loop {
        match rustix::net::recv(&*socket, &mut *into, rustix::net::RecvFlags::empty()) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads to the end of a vector, within its spare capacity.
pub fn read_more(socket: &mut Socket, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    if let Socket::Tls(stream) = socket {
        return stream.read_more(into);
    }
    loop {
        let spare = rustix::buffer::spare_capacity(into);
        match rustix::net::recv(&*socket, spare, rustix::net::RecvFlags::empty()) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_that_was_run_goes_before_long_and_its_memory_with_it() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let client = engine::clients::client::Client::new(1, 0, String::new(), String::new(), 0, 0, 0);
        let session = Session::new(std::sync::Arc::new(client), true);
        let mut connection = Connection::new(Socket::Unix(socket), session);
        let check = |connection: &Connection, left: &[u8], run: usize| {
            assert_eq!((&connection.input[connection.input_run..], connection.input_run), (left, run));
            assert_eq!(connection.input_left(), left.len());
        };
        connection.input = b"0123456789".to_vec();
        connection.drop_input(3, false);
        check(&connection, b"3456789", 3);
        connection.drop_input(4, true);
        check(&connection, b"456789", 0);
        connection.input = vec![b'x'; 1 << 20];
        connection.drop_input((1 << 20) - 1, false);
        check(&connection, b"x", 0);
        assert!(connection.input.capacity() <= INPUT_KEPT_BYTES);
    }
}
