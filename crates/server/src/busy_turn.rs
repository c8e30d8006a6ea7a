//! What a thread does for its other connections while a script takes too long, so that a client can end the script. It
//! sends the replies of commands that ran before the script, reads requests, answers them, and accepts connections.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use engine::clients::client::client_flag;
use engine::worker::{Attendant, Ran, Worker};
use resp::reply::Output;

use crate::arrived::Arrived;
use crate::connection::{Connection, Hold, Read, Sent, Socket};
use crate::connections::Others;
use crate::doorway::Doorway;
use crate::event_loop::Shared;
use crate::listener::Accepted;
use crate::poller::{Epoll, Poller, Ready};

/// Bytes that are read from a connection at once.
const READ_BYTES: usize = 16 * 1024;

/// One batch's attendant.
pub struct BusyTurn<'t> {
    /// The connections besides the one that runs the script.
    pub others: Others<'t>,
    /// Tells which connections have sent something.
    pub poller: &'t mut Epoll,
    /// Where new connections come in.
    pub doorway: &'t mut Doorway,
    /// Those that have come in since the script began; they are among the others once it has ended.
    pub guests: &'t mut Vec<Connection>,
    /// What had been read from others before the script began, in the order in which it came: it may well be what ends
    /// it.
    pub arrived: &'t mut VecDeque<Arrived>,
    /// The thread's buffer, which that is in.
    pub buffer: &'t [u8],
    /// Connections that have used up their turn, with requests that they have kept.
    pub yielded: &'t VecDeque<usize>,
    /// Connections that CLIENT PAUSE holds back.
    pub paused: &'t mut Vec<usize>,
    /// Connections with replies of commands that ran before the script, in the same turn, or during it. Those that are
    /// left are written, or closed, when the script has ended.
    pub to_write: &'t mut Vec<usize>,
    /// What the threads share.
    pub shared: &'t Shared,
}

impl Attendant for BusyTurn<'_> {
    fn attend(&mut self, worker: &mut Worker) {
        let mut ready = Vec::new();
        if self.poller.wait(Some(Duration::ZERO), &mut ready).is_err() {
            return;
        }
        self.doorway.accept(&ready, worker, self.shared);
        for accepted in self.shared.take_accepted(worker.id) {
            self.guests.push(open(accepted, worker, self.shared));
        }
        for guest in &mut *self.guests {
            serve(guest, worker, self.shared);
        }
        for Ready { token, write, .. } in &ready {
            if *write {
                self.go_on_writing(*token as usize, worker);
            }
        }
        self.send_replies(worker);
        // Before they are read from again.
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
    /// Has what was read from a connection answered. Says whether nothing of it is left to be run later.
    fn take_up(&mut self, arrived: &Arrived, worker: &mut Worker) -> bool {
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

    /// Has the rest of a connection's requests answered that has used up its turn before the script began: no event
    /// announces them.
    fn answer_kept(&mut self, key: usize, worker: &mut Worker) {
        let Some(connection) = self.others.get_mut(key) else { return };
        if connection.hold == Hold::Yielded && connection.input_left() > 0 && may_be_served(connection) {
            answer(connection, worker, self.shared);
            self.note_state(key);
        }
    }

    /// Sends the replies of the turn's commands that ran before the script: they would leave at the turn's end only.
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

    /// Sends more of what a connection's socket did not take, now that there is room.
    fn go_on_writing(&mut self, key: usize, worker: &mut Worker) {
        let Some(connection) = self.others.get_mut(key) else { return };
        connection.socket_is_full = false;
        send(connection, worker, self.shared);
        self.note_state(key);
    }

    /// Has a connection that has replies, is to be closed or has to wait looked at when the script has ended, and its
    /// socket watched for room while it is full.
    fn note_state(&mut self, key: usize) {
        let Some(connection) = self.others.get_mut(key) else { return };
        if connection.wants_write != connection.socket_is_full {
            let (read, write) = (connection.wants_read, connection.socket_is_full);
            // After a failure, the end of the script is waited for.
            if self.poller.watch(connection.socket.as_fd(), key as u64, read, write).is_ok() {
                connection.wants_write = write;
            }
        }
        if connection.hold == Hold::Paused && !self.paused.contains(&key) {
            self.paused.push(key);
        }
        let is_left =
            !connection.replies.is_empty() || connection.backlog.is_some() || connection.hold == Hold::Closing;
        if is_left && !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }
}

/// The state of a connection that has just been accepted.
pub fn open(accepted: Accepted, worker: &mut Worker, shared: &Shared) -> Connection {
    use std::os::fd::AsRawFd;
    let fd = accepted.socket.as_fd().as_raw_fd();
    // Not of HTTP requests, which come through a socket pair from wherever the port is reached.
    let is_unix = accepted.is_local && matches!(accepted.socket, Socket::Unix(_));
    let mut flags = if is_unix { client_flag::UNIX_SOCKET } else { 0 };
    if accepted.is_on_reserve {
        flags |= client_flag::ON_RESERVE;
    }
    let authenticated = shared.engine.users.is_default_open();
    let mut session = worker.open(accepted.addr, accepted.laddr, fd, flags, authenticated);
    if let Some(user) = accepted.user {
        // A certificate that names no user leaves the connection as it is: the client may still authenticate otherwise.
        worker.log_in(&mut session, user.as_bytes());
    }
    Connection::new(accepted.socket, session)
}

/// Reads once from a connection, has it answered, and sends the answer. Whatever goes wrong with it is seen again when
/// the script has ended.
fn serve(connection: &mut Connection, worker: &mut Worker, shared: &Shared) {
    while may_be_served(connection) {
        worker.stats().reads.add(1);
        let Ok(Some(Read { bytes: bytes @ 1.., .. })) = connection.read_to_keep(READ_BYTES) else { return };
        connection.note_read(bytes, worker.clock.now_ms, worker.stats());
        answer(connection, worker, shared);
        // What is left with the socket is announced by no poller.
        if !connection.socket.is_pending() {
            return;
        }
    }
}

/// One that doesn't read its replies gets no more of them.
fn may_be_served(connection: &Connection) -> bool {
    matches!(connection.hold, Hold::None | Hold::Yielded) && !connection.socket_is_full
}

/// Has what a connection has kept of its input answered, and sends the answer.
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
    if connection.session.client.summons.is_killed() {
        give_up(connection);
    }
}

/// Sends what a connection's socket takes of its replies.
fn send(connection: &mut Connection, worker: &mut Worker, shared: &Shared) {
    let (sent, _) = connection.send_replies(&mut Vec::new(), worker, shared);
    if sent == Sent::Broken {
        connection.hold = Hold::Closing;
    }
}

/// Has a connection closed, of which nothing is of use any more: its peer knows at once. What is left of it goes when
/// the script has ended, and takes no memory until then.
fn give_up(connection: &mut Connection) {
    // Nothing else can be done if the peer has gone already.
    let _ = rustix::net::shutdown(&connection.socket, rustix::net::Shutdown::Both);
    connection.hold = Hold::Closing;
    connection.input = Vec::new();
    connection.input_run = 0;
    connection.apart = None;
    connection.session.framer.forget();
}

fn run(connection: &mut Connection, worker: &mut Worker) {
    let mut replies = Output::default();
    let (_, ran) = connection.run_kept(Some(&mut replies), |session, input, mut at, replies| {
        loop {
            let ran;
            (at, ran) = worker.run_busy(session, input, at, replies);
            // It takes no time that others could use.
            if ran != Ran::Yielded {
                return (at, ran);
            }
        }
    });
    connection.replies_end().append(&mut replies);
    match ran {
        Ran::Closing => connection.hold = Hold::Closing,
        Ran::Paused => connection.hold = Hold::Paused,
        Ran::Idle | Ran::Parked | Ran::Yielded | Ran::Overfilled | Ran::AwaitsLog => {}
    }
}
