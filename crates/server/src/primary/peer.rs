//! A replica's connection: sends the data chosen by `engine::replication::peer`, and passes received data on to it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::clients::client::{Client, client_flag};
use engine::replication::peer::{Ended, Peer, ToSend};
use engine::replication::replicas::Wanted;
use engine::replication::serving::Served;
use engine::replication::stream::Stream;
use resp::reply::Output;
use rustix::io::Errno;

use super::handoff::Arrival;
use super::spool::SnapshotSpool;
use crate::connection::{self, Socket};

/// Bytes sent to one replica before the others have their turn.
const SENT_AT_ONCE: usize = 1 << 20;
/// Bytes of a snapshot read from its file at once.
const READ_BYTES: usize = 256 << 10;

/// A replica of this server.
pub(super) type ServedReplica = Served<SnapshotSpool, PeerLink>;

/// The socket of a replica and its state.
pub struct PeerLink {
    socket: Socket,
    pub(super) client: Arc<Client>,
    pub(super) token: u64,
    is_full: bool,
    watches_write: bool,
}

/// Takes a connection over. Returns its wanted position, too.
pub(super) fn serve(arrival: Arrival, token: u64, now: Duration) -> (ServedReplica, Wanted) {
    let Arrival { socket, client, introduction, wanted } = arrival;
    client.set(client_flag::REPLICA, true);
    let seen = client.addr.rsplit_once(':').map_or(&*client.addr, |(address, _)| address).to_owned();
    let peer = Peer::new(client.id, seen, introduction, wanted, now);
    let link = PeerLink { socket, client, token, is_full: false, watches_write: false };
    (Served { peer, link }, wanted)
}

impl PeerLink {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads the replica's messages.
    pub(super) fn read(
        &mut self,
        peer: &mut Peer<SnapshotSpool>,
        now: Duration,
        now_ms: u64,
        stream_end: u64,
    ) -> Result<(), Ended> {
        let mut buffer = [0; 4096];
        loop {
            let bytes = match connection::read(&mut self.socket, &mut buffer) {
                Ok(Some(0)) => return Err(Ended::Closed),
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Ended::Io(error.to_string())),
            };
            self.client.active_ms.store(now_ms, Ordering::Relaxed);
            self.client.net_bytes[0].fetch_add(bytes as u64, Ordering::Relaxed);
            peer.hear(buffer.get(..bytes).unwrap_or_default(), now, now_ms, stream_end)?;
        }
    }

    /// Notes that its socket has room again.
    pub(super) fn may_write(&mut self) {
        self.is_full = false;
    }

    /// Returns the new state if the watch for room to write has changed.
    pub(super) fn changed_watch(&mut self) -> Option<bool> {
        let changed = self.watches_write != self.is_full;
        self.watches_write = self.is_full;
        changed.then_some(self.is_full)
    }

    /// Sends the replica as much as the socket takes.
    pub(super) fn send(&mut self, peer: &mut Peer<SnapshotSpool>, stream: &Stream, now: Duration) -> Result<(), Ended> {
        let mut sent = 0;
        while !self.is_full && sent < SENT_AT_ONCE {
            match self.send_next(peer, stream, now)? {
                Some(bytes) => sent += bytes,
                None => break,
            }
        }
        peer.note_turn(sent > 0, self.is_full, stream.end(), now);
        Ok(())
    }

    fn send_next(
        &mut self,
        peer: &mut Peer<SnapshotSpool>,
        stream: &Stream,
        now: Duration,
    ) -> Result<Option<usize>, Ended> {
        let sent = match peer.next(now)? {
            ToSend::Nothing => return Ok(None),
            ToSend::Lines => send_output(&mut self.socket, peer.lines()),
            ToSend::Snapshot { of, at } => write(&mut self.socket, read_snapshot(&of, at)?),
            ToSend::Stream { from } => match send_stream(&mut self.socket, stream, from)? {
                Some(sent) => sent,
                None => return Ok(None),
            },
        };
        let sent = self.sent_of(sent)?;
        peer.note_sent(sent.unwrap_or(0));
        Ok(sent)
    }

    /// Returns the number of bytes sent, or `None` if the socket takes no more now.
    fn sent_of(&mut self, sent: rustix::io::Result<usize>) -> Result<Option<usize>, Ended> {
        match sent {
            Ok(bytes) => {
                self.client.net_bytes[1].fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(Some(bytes))
            }
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => {
                self.is_full = true;
                Ok(None)
            }
            Err(error) => Err(Ended::Io(error.to_string())),
        }
    }
}

const FLAGS: rustix::net::SendFlags = rustix::net::SendFlags::NOSIGNAL;

fn read_snapshot(spool: &SnapshotSpool, at: u64) -> Result<Vec<u8>, Ended> {
    let mut buffer = vec![0; READ_BYTES];
    let read = spool.read(&mut buffer, at).map_err(|error| Ended::Io(error.to_string()))?;
    if read == 0 {
        return Err(Ended::Io("the snapshot's file is shorter than its written length".into()));
    }
    buffer.truncate(read);
    Ok(buffer)
}

/// Sends bytes of the stream. Returns `None` if there are none.
fn send_stream(socket: &mut Socket, stream: &Stream, from: u64) -> Result<Option<rustix::io::Result<usize>>, Ended> {
    let mut scratch = Vec::new();
    let sent = stream.with_backlog(|backlog| match backlog.piece(from, &mut scratch)? {
        None => Err(io::Error::other("the part of the stream that it lacks is not kept any more")),
        Some([]) => Ok(None),
        Some(piece) => Ok(Some(match socket {
            Socket::Tls(_) => write(socket, piece.to_vec()),
            socket => rustix::net::send(&*socket, piece, FLAGS),
        })),
    });
    Ok(sent.transpose().map_err(|error| Ended::Io(error.to_string()))?.flatten())
}

fn send_output(socket: &mut Socket, lines: &Output) -> rustix::io::Result<usize> {
    match socket {
        Socket::Tls(tls) => tls.write(lines),
        socket => rustix::net::send(&*socket, lines.slices().next().unwrap_or_default(), FLAGS),
    }
}

fn write(socket: &mut Socket, bytes: Vec<u8>) -> rustix::io::Result<usize> {
    match socket {
        Socket::Tls(tls) => tls.write(&Output::from(bytes)),
        socket => rustix::net::send(&*socket, &bytes, FLAGS),
    }
}
