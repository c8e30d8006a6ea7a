//! One connection: its socket, what has arrived and not been run, and what waits to be sent.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use engine::clients::session::Session;
use engine::config::QUERY_BYTES_MAX;
use engine::statistics::stats::WorkerStats;
use engine::worker::{Ran, Worker};
use journal::order::Position;
use resp::reply::Output;
use resp::request::{BUFFER_BYTES_MAX, Blocks, Input, Missing};
use rustix::io::Errno;

use crate::apart::Apart;
use crate::backlog::Backlog;
use crate::event_loop::Shared;
use crate::log;
use crate::reply_queue::ReplyQueue;
use crate::tls::stream::TlsStream;
use crate::unsettled::Unsettled;

/// Slices given to one vectored write; the rest goes with the next.
const SLICES_AT_ONCE: usize = 64;
/// Bytes sent to a connection in one turn: others wait while a peer takes as fast as it is given.
const SEND_BYTES_MAX: usize = 1024 * 1024;
/// Bytes from which on the buffer of a request is made as large as that says to be, so that nothing is moved when it
/// grows, and none of it is free.
const OWN_BUFFER_BYTES_MIN: usize = 32 * 1024;
/// Bytes of an input buffer that a connection keeps though there is little in it.
const INPUT_KEPT_BYTES: usize = 16 * 1024;
/// Bytes that have been run and may stay before the rest: with those of the longest request they stay far below what
/// the framer's offsets reach.
const INPUT_RUN_BYTES_MAX: usize = 256 * 1024 * 1024;
// A connection with more requests that wait is closed, so that none is longer than what can be framed.
const _: () = assert!(QUERY_BYTES_MAX as usize + INPUT_RUN_BYTES_MAX < BUFFER_BYTES_MAX);
/// Bytes of an output buffer that a connection keeps when it has sent everything.
const OUTPUT_KEPT_BYTES: usize = 16 * 1024;
/// Bytes of the output buffer that goes from one connection of a thread to the next: a part of the second-level cache.
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
    /// Whether there is something to be read that no poller announces.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        matches!(self, Socket::Tls(stream) if stream.is_pending())
    }

    /// Whether that is so, and the loop is yet to note it; it does now.
    #[inline]
    pub fn begins_to_be_pending(&mut self) -> bool {
        let Socket::Tls(stream) = self else { return false };
        stream.is_pending() && !std::mem::replace(&mut stream.is_noted, true)
    }

    /// Whether the loop has noted it; from now on, it has not.
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

/// Why a connection's requests are not being run at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// They are.
    None,
    /// It waits in a blocking command.
    Parked,
    /// CLIENT PAUSE.
    Paused,
    /// There is no room in an inbox for what it publishes.
    Overfilled,
    /// Much of what it was answered waits for the disk.
    Unsettled,
    /// The log has no room for what it writes.
    AwaitsLog,
    /// It has used up its turn, and is in the queue for the next.
    Yielded,
    /// There is no room for more replies: it does not read those that wait.
    Full,
    /// It is closed once everything is sent.
    Closing,
}

/// See the module's documentation.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// What the engine knows of it.
    pub session: Session,
    /// Bytes that have arrived and not been run: nothing, most of the time.
    pub input: Vec<u8>,
    /// Bytes at the beginning of `input` that have been run nevertheless. None while requests are run as they arrive.
    pub input_run: usize,
    /// The large arguments of the request that `input` begins with.
    pub apart: Option<Box<Apart>>,
    /// Replies that wait to be sent.
    pub replies: ReplyQueue,
    /// Replies that may not be sent yet, before the disk has what they tell of; and those behind them.
    pub unsettled: Option<Box<Unsettled>>,
    /// What is known of replies that have waited for longer than a turn.
    pub backlog: Option<Box<Backlog>>,
    /// Why nothing is run.
    pub hold: Hold,
    /// Whether the poller watches for something to read: not once the peer has said its last, nor while there is no
    /// room for replies to what it says.
    pub wants_read: bool,
    /// Whether the poller watches for room to write.
    pub wants_write: bool,
    /// Whether the socket takes no more until the poller says so.
    pub socket_is_full: bool,
    /// Whether it is in the list of those to be written to at the end of the turn.
    pub in_write_list: bool,
    /// Whether nothing but this thread knows it any more, since its last reply is being sent.
    has_left: bool,
}

/// What one read has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// How much. 0 is the end.
    pub bytes: usize,
    /// Whether it is all that there was room for: then there may be more.
    pub filled_room: bool,
}

/// How a write went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything is sent.
    All,
    /// The socket takes no more at the moment, or has been given enough for one turn.
    Some,
    /// Everything that is in memory is sent; the rest has to be read from a file first.
    Front,
    /// The connection is broken.
    Broken,
}

impl Connection {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(socket: Socket, session: Session) -> Connection {
        Connection {
            socket,
            session,
            input: Vec::new(),
            input_run: 0,
            apart: None,
            replies: ReplyQueue::default(),
            unsettled: None,
            backlog: None,
            hold: Hold::None,
            wants_read: true,
            wants_write: false,
            socket_is_full: false,
            in_write_list: false,
            has_left: false,
        }
    }

    /// Where what is to be sent next is written, behind all replies so far.
    pub fn replies_end(&mut self) -> &mut Output {
        match &mut self.unsettled {
            Some(unsettled) => unsettled.last().unwrap_or(&mut self.replies.output),
            None => &mut self.replies.output,
        }
    }

    /// Takes what its requests were answered, which depends on the log up to `depends`. The log is safe up to `safe`: if the
    /// replies have to wait for more of it, says for how much. `now_ms` is by a clock that is never set.
    pub fn take_replies(
        &mut self,
        replies: &mut Output,
        depends: Position,
        safe: Position,
        now_ms: u64,
    ) -> Option<Position> {
        if replies.is_empty() {
            return None;
        }
        if self.unsettled.is_none() && depends <= safe {
            self.replies.output.append(replies);
            return None;
        }
        Some(self.unsettled.get_or_insert_default().push(depends, replies, now_ms))
    }

    /// Has the replies be sent that wait no longer, now that the log is safe up to here.
    pub fn release_replies(&mut self, safe: Position) {
        if let Some(unsettled) = &mut self.unsettled
            && unsettled.release(safe, &mut self.replies.output)
        {
            self.unsettled = None;
        }
    }

    /// Whether there are replies that it has not been sent.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty() || self.unsettled.is_some()
    }

    /// Takes it out of all that knows it, but its thread: its subscriptions, the list of clients. Called before its peer
    /// can know that it is closed, by the reply to QUIT or by the end of the connection: whatever does something because
    /// of that finds nothing left of it.
    pub fn leave(&mut self, worker: &mut Worker, shared: &Shared) {
        if !std::mem::replace(&mut self.has_left, true) {
            worker.close(&mut self.session);
            shared.note_leaving(true);
        }
    }

    /// Runs the requests that have been kept, by `run`, which is told the session, the input, and where to begin in it. The replies go
    /// behind those that wait, or into `apart` if they may have to wait for the log. Says whether a request has been run.
    pub fn run_kept(
        &mut self,
        apart: Option<&mut Output>,
        run: impl FnOnce(&mut Session, Input<'_>, usize, &mut Output) -> (usize, Ran),
    ) -> (bool, Ran) {
        let input = Input { bytes: &self.input, blocks: Connection::blocks(self.apart.as_deref()) };
        let output = apart.unwrap_or(&mut self.replies.output);
        let before = self.input_run;
        let (at, ran) = run(&mut self.session, input, before, output);
        self.forget_run(at, ran);
        (at > before, ran)
    }

    /// Sends what the socket takes of the replies. One that is closed leaves the list of clients first, and comes back if its peer
    /// has yet to read some. Says what of them was sent, and how many bytes.
    pub fn send_replies(&mut self, spare: &mut Vec<u8>, worker: &mut Worker, shared: &Shared) -> (Sent, usize) {
        let is_closing = self.hold == Hold::Closing;
        if is_closing {
            self.leave(worker, shared);
        }
        // As in Redis: the reply to a blocking command may be the first sign of life for long. It is noted before the reply
        // leaves, since another thread may be asked for it as soon as the client has read that.
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

    /// Puts it back into the list of clients, since its peer is yet to read its last replies.
    pub fn come_back(&mut self, worker: &Worker, shared: &Shared) {
        if std::mem::take(&mut self.has_left) {
            worker.come_back(&self.session);
            shared.note_leaving(false);
        }
    }

    /// Bytes that have arrived and not been run.
    #[must_use]
    pub fn input_left(&self) -> usize {
        self.input.len() - self.input_run + self.apart.as_ref().map_or(0, |apart| apart.arrived_bytes())
    }

    /// Bytes of memory that are set aside for what is to arrive.
    #[must_use]
    pub fn input_free(&self) -> usize {
        self.input.capacity() - self.input.len() + self.apart.as_ref().map_or(0, |apart| apart.free_bytes())
    }

    /// Counts what was read from it, and has it be active now.
    pub fn note_read(&mut self, bytes: usize, now_ms: u64, stats: &WorkerStats) {
        self.session.trips.note_arrival();
        stats.net_in.add(bytes as u64);
        let client = &self.session.client;
        client.active_ms.store(now_ms, Ordering::Relaxed);
        client.net_bytes[0].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts what was sent to it, in so many system calls.
    pub fn note_sent(&self, bytes: usize, calls: usize, stats: &WorkerStats) {
        stats.net_out.add(bytes as u64);
        stats.writes.add(calls as u64);
        self.session.client.net_bytes[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes what its requests take that wait to be complete, for CLIENT LIST and the limits of memory. It may be among
    /// those that are closed for that, a moment later.
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

    /// What its requests take that wait, in bytes, if that is more than `limit` allows.
    #[must_use]
    pub fn input_over(&self, limit: u64) -> Option<usize> {
        // What a transaction has queued waits as well.
        let queued = self.session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let framed = self.session.framer.memory_bytes();
        let bytes = self.input_left().saturating_add(queued).saturating_add(framed);
        (bytes as u64 > limit).then_some(bytes)
    }

    /// Says in the log that requests of so many bytes are why it is closed.
    pub fn log_input_over(&self, bytes: usize, limit: u64) {
        let client = &self.session.client;
        log::warning(format!(
            "Closing client that reached max query buffer length: id={} addr={} qbuf={bytes} (client-query-buffer-limit {limit})",
            client.id, client.addr,
        ));
    }

    /// The large arguments of the request that its input begins with, as far as they are complete.
    pub fn blocks(apart: Option<&Apart>) -> &Blocks {
        apart.map_or(Blocks::NONE, |apart| &apart.blocks)
    }

    /// Whether a large argument is arriving.
    #[must_use]
    pub fn is_amid_large(&self) -> bool {
        self.apart.as_ref().is_some_and(|apart| apart.is_filling())
    }

    /// Keeps what has been read and can't be run now.
    pub fn keep_input(&mut self, read: &[u8]) {
        self.input.clear();
        self.input.extend_from_slice(read);
    }

    /// Bytes that are missing of a long request that has no large argument, as far as it says so.
    fn wanted(&self) -> Option<usize> {
        let total = self.session.framer.wanted().filter(|&total| total >= OWN_BUFFER_BYTES_MIN)?;
        // Else it isn't what the input ends in.
        let is_framed = self.hold == Hold::None && self.input_run == 0;
        total.checked_sub(self.input.len()).filter(|&missing| missing > 0 && is_framed)
    }

    /// Whether what is read next is the rest of a long request, or of a part of it, for which there is room.
    #[must_use]
    pub fn is_amid_long(&self) -> bool {
        self.is_amid_large() || self.wanted().is_some()
    }

    /// Keeps what is left of what has been read, when `run` bytes of it have run.
    pub fn keep_rest(&mut self, read: &[u8], run: usize, ran: Ran) {
        self.forget_apart(run);
        let rest = &read[run..];
        let (rest, begun) = rest.split_at(self.whole_bytes(ran).unwrap_or(rest.len()));
        self.keep_input(rest);
        self.begin_apart(ran, begun);
    }

    /// Forgets the first bytes of the input, which have run.
    pub fn forget_run(&mut self, run: usize, ran: Ran) {
        self.forget_apart(run);
        self.drop_input(run, ran == Ran::Idle);
        if let Some(whole) = self.whole_bytes(ran) {
            let begun = self.input.split_off(whole);
            self.begin_apart(ran, &begun);
        }
    }

    /// The large argument that is to be received apart from now on: the one that what is left of the input ends in.
    fn missing(&self, ran: Ran) -> Option<Missing> {
        // Else what is left need not begin where framing has stopped.
        let is_framed = ran == Ran::Idle && !self.is_amid_large();
        self.session.framer.missing().filter(|_| is_framed)
    }

    /// Bytes of what is left that stand before such an argument.
    fn whole_bytes(&self, ran: Ran) -> Option<usize> {
        self.missing(ran).map(|missing| missing.at)
    }

    fn begin_apart(&mut self, ran: Ran, begun: &[u8]) {
        if let Some(missing) = self.missing(ran) {
            self.apart.get_or_insert_default().begin(missing, begun);
        }
    }

    /// Forgets the large arguments of the first request, if that has run.
    fn forget_apart(&mut self, run: usize) {
        if run > 0 {
            self.apart = None;
        }
    }

    /// Reads once into what it keeps: the large argument that is arriving, or as much as there is, `bytes` at least.
    pub fn read_to_keep(&mut self, bytes: usize) -> io::Result<Option<Read>> {
        if let Some(apart) = self.apart.as_mut().filter(|apart| apart.is_filling()) {
            let read = apart.read(&mut self.socket)?;
            return Ok(read.map(|bytes| Read { bytes, filled_room: !apart.is_filling() }));
        }
        match self.wanted() {
            Some(missing) => self.input.reserve_exact(missing),
            None => self.input.reserve(self.input.len().max(bytes)),
        }
        let read = read_more(&mut self.socket, &mut self.input)?;
        Ok(read.map(|bytes| Read { bytes, filled_room: self.input.len() == self.input.capacity() }))
    }

    /// Forgets what has been run, and gives memory back where there is much to give. With much behind it, it stays for
    /// now unless `all` has to go: moving the rest after every small part would take longer than running it.
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

    /// Sends what waits, with as few system calls as the socket allows. Returns the bytes and calls it took. `spare` gets
    /// the memory of what has been sent, for the next connection.
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

fn write(socket: &mut Socket, output: &Output) -> rustix::io::Result<usize> {
    if let Socket::Tls(stream) = socket {
        return stream.write(output);
    }
    let mut slices = output.slices();
    match (slices.next(), slices.next()) {
        // Most replies are of one slice, and that form is cheaper here as in the kernel.
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

/// Reads into a slice. 0 is the end; an error that only means "later" is none.
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
