//! Serves a thread's other connections while a script takes too long, and lets a client end the script. The thread sends the replies of
//! commands that ran before the script, reads and answers requests, and accepts connections.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use engine::clients::client::client_flag;
use engine::clients::progress::Progress;
use engine::worker::{BusyScriptHandler, Worker};
use resp::reply::Output;

use crate::acceptor::Acceptor;
use crate::connection::{Connection, Read, Sent, Socket};
use crate::connections::Others;
use crate::listener::Accepted;
use crate::pending_input::PendingInput;
use crate::poller::{Epoll, Poller, Ready};
use crate::shared::Shared;

/// Bytes read from a connection at once.
const READ_BYTES: usize = 16 * 1024;

/// The busy-script handler of one batch.
pub struct BusyTurn<'t> {
    /// The connections besides the one that runs the script.
    pub others: Others<'t>,
    /// Tells which connections are ready.
    pub poller: &'t mut Epoll,
    /// Accepts new connections.
    pub acceptor: &'t mut Acceptor,
    /// Connections accepted since the script began. They join the others once it has ended.
    pub accepted_during_script: &'t mut Vec<Connection>,
    /// Input read from other connections before the script began, in the order of arrival. It may contain the command that ends the script.
    pub arrived: &'t mut VecDeque<PendingInput>,
    /// The thread's buffer that holds this input.
    pub buffer: &'t [u8],
    /// Connections that have used up their turn and keep further requests.
    pub yielded: &'t VecDeque<usize>,
    /// Connections held by CLIENT PAUSE.
    pub paused: &'t mut Vec<usize>,
    /// Connections with replies of commands that ran before the script in the same turn, or during the script. The connections left here
    /// are written or closed after the script.
    pub to_write: &'t mut Vec<usize>,
    /// State shared by the threads.
    pub shared: &'t Shared,
}

impl BusyScriptHandler for BusyTurn<'_> {
    fn serve_others(&mut self, worker: &mut Worker) {
        self.shared.heartbeats.beat(worker.id);
        let mut ready = Vec::new();
        if self.poller.wait(Some(Duration::ZERO), &mut ready).is_err() {
            return;
        }
        self.acceptor.accept(&ready, worker, self.shared);
        for accepted in self.shared.take_accepted(worker.id) {
            self.accepted_during_script.push(open(accepted, worker, self.shared));
        }
        for connection in &mut *self.accepted_during_script {
            serve(connection, worker, self.shared);
        }
        for Ready { token, write, .. } in &ready {
            if *write {
                self.go_on_writing(*token as usize, worker);
            }
        }
        self.send_replies(worker);
        // This input precedes everything that is still unread.
        for arrived in std::mem::take(self.arrived) {
            if !self.take_up(&arrived, worker) {
                self.arrived.push_back(arrived);
            }
        }
        for &key in self.yielded {
            self.answer_kept(key, worker);
        }
        for Ready { token, read, .. } in ready {
            if read {
                self.serve(token as usize, worker);
            }
        }
    }
}

impl BusyTurn<'_> {
    /// Answers the input read from a connection. Returns false if some of it is left for later.
    fn take_up(&mut self, arrived: &PendingInput, worker: &mut Worker) -> bool {
        let Some(connection) = self.others.get_mut(arrived.key).filter(|c| arrived.is_of(c)) else { return true };
        if !may_be_served(connection) {
            return false;
        }
        if let Some(part) = &arrived.part {
            connection.keep_input(&self.buffer[part.clone()]);
        }
        answer(connection, worker, self.shared);
        self.note_state(arrived.key);
        true
    }

    fn serve(&mut self, key: usize, worker: &mut Worker) {
        let Some(connection) = self.others.get_mut(key) else { return };
        serve(connection, worker, self.shared);
        self.note_state(key);
    }

    /// Answers the remaining requests of a connection that had used up its turn before the script began. No event announces them.
    fn answer_kept(&mut self, key: usize, worker: &mut Worker) {
        let Some(connection) = self.others.get_mut(key) else { return };
        if connection.progress == Progress::Yielded && connection.input_left() > 0 && may_be_served(connection) {
            answer(connection, worker, self.shared);
            self.note_state(key);
        }
    }

    /// Sends the replies of the turn's commands that ran before the script. Otherwise they would leave only at the end of the turn.
    fn send_replies(&mut self, worker: &mut Worker) {
        for at in 0..self.to_write.len() {
            let key = self.to_write[at];
            let Some(connection) = self.others.get_mut(key) else { continue };
            if !connection.replies.is_empty() && !connection.socket_is_full {
                send(connection, worker, self.shared);
                self.note_state(key);
            }
        }
    }

    /// Sends more of a connection's replies once its socket has room.
    fn go_on_writing(&mut self, key: usize, worker: &mut Worker) {
        let Some(connection) = self.others.get_mut(key) else { return };
        connection.socket_is_full = false;
        send(connection, worker, self.shared);
        self.note_state(key);
    }

    /// Lists a connection with replies, a close or a pause for after the script, and watches its socket for room while it is full.
    fn note_state(&mut self, key: usize) {
        let Some(connection) = self.others.get_mut(key) else { return };
        if connection.wants_write != connection.socket_is_full {
            let (read, write) = (connection.wants_read, connection.socket_is_full);
            // After a failure the replies are sent at the end of the script.
            if self.poller.watch(connection.socket.as_fd(), key as u64, read, write).is_ok() {
                connection.wants_write = write;
            }
        }
        if connection.progress == Progress::Paused && !self.paused.contains(&key) {
            self.paused.push(key);
        }
        let is_left =
            !connection.replies.is_empty() || connection.backlog.is_some() || connection.progress == Progress::Closing;
        if is_left && !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }
}

/// Returns the state of a newly accepted connection.
pub fn open(accepted: Accepted, worker: &mut Worker, shared: &Shared) -> Connection {
    use std::os::fd::AsRawFd;
    let fd = accepted.socket.as_fd().as_raw_fd();
    // HTTP requests are excluded: they reach their thread through a socket pair, whatever the client's address.
    let is_unix = accepted.is_local && matches!(accepted.socket, Socket::Unix(_));
    let mut flags = if is_unix { client_flag::UNIX_SOCKET } else { 0 };
    if accepted.is_on_reserve {
        flags |= client_flag::ON_RESERVE;
    }
    let authenticated = shared.engine.users.is_default_open();
    let mut session = worker.open(accepted.addr, accepted.laddr, fd, flags, authenticated);
    if let Some(user) = accepted.user {
        // A certificate without a known user changes nothing: the client may still authenticate in another way.
        worker.log_in(&mut session, user.as_bytes());
    }
    Connection::new(accepted.socket, session)
}

/// Reads from a connection, answers its requests and sends the replies. Errors show again after the script.
fn serve(connection: &mut Connection, worker: &mut Worker, shared: &Shared) {
    while may_be_served(connection) {
        worker.stats().reads.add(1);
        let Ok(Some(Read { bytes: bytes @ 1.., .. })) = connection.read_to_keep(READ_BYTES) else { return };
        connection.note_read(bytes, worker.clock.now_ms, worker.stats());
        answer(connection, worker, shared);
        // No poller announces input that is left in the TLS layer.
        if !connection.socket.is_pending() {
            return;
        }
    }
}

/// Returns false for a connection that is held, or doesn't read its replies.
fn may_be_served(connection: &Connection) -> bool {
    matches!(connection.progress, Progress::Ready | Progress::Yielded) && !connection.socket_is_full
}

/// Runs the input that a connection has kept, and sends the replies.
fn answer(connection: &mut Connection, worker: &mut Worker, shared: &Shared) {
    run(connection, worker);
    send(connection, worker, shared);
    let limit = shared.settings().client_query_buffer_limit.get();
    if let Some(bytes) = connection.input_over(limit) {
        connection.log_input_over(bytes, limit);
        worker.stats().input_limit_closes.add(1);
        give_up(connection);
    }
    connection.note_input(worker);
    if connection.session.client.pending_signals.is_killed() {
        give_up(connection);
    }
}

/// Sends as many of a connection's replies as its socket takes.
fn send(connection: &mut Connection, worker: &mut Worker, shared: &Shared) {
    let (sent, _) = connection.send_replies(&mut Vec::new(), worker, shared);
    if sent == Sent::Broken {
        connection.progress = Progress::Closing;
    }
}

/// Shuts down a connection at once and frees its input. The rest is freed after the script.
fn give_up(connection: &mut Connection) {
    // The shutdown fails only if the peer is already gone.
    let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
    connection.progress = Progress::Closing;
    connection.input = Vec::new();
    connection.input_run = 0;
    connection.large_args = None;
    connection.session.framer.forget();
}

fn run(connection: &mut Connection, worker: &mut Worker) {
    let mut replies = Output::default();
    let (_, progress) = connection.run_requests(None, Some(&mut replies), |session, input, mut at, replies| {
        loop {
            let progress;
            (at, progress) = worker.run_busy(session, input, at, replies);
            // A connection that yields runs on: no other connection could use the time.
            if progress != Progress::Yielded {
                return (at, progress);
            }
        }
    });
    connection.replies_end().append(&mut replies);
    if matches!(progress, Progress::Closing | Progress::Paused) {
        connection.progress = progress;
    }
}
