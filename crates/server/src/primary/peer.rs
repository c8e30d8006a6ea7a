//! One replica: its connection, what it has been sent, and how far it says it is.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::clients::client::{Client, client_flag};
use engine::replication::replicas::{ReplicaFigures, ReplicaIntroduction, ReplicaStage, Wanted};
use engine::replication::stream::Stream;
use replication::answers::Answers;
use replication::id::HistoryId;
use resp::reply::Output;
use rustix::io::Errno;

use super::continue_line;
use super::desk::Arrival;
use super::spool::Spool;
use crate::connection::{self, Socket};

/// Bytes that are sent to one replica before the others have their turn.
const SENT_AT_ONCE: usize = 1 << 20;
/// Bytes of a snapshot that are read from its file at once.
const READ_BYTES: usize = 256 << 10;

/// How far it is.
enum Stage {
    /// It waits for a snapshot.
    AwaitsSnapshot,
    /// It is sent one, of which it has had so many bytes.
    Receives { spool: Arc<Spool>, sent: u64, form: Form },
    /// It has been sent one that a mark ends. The stream comes once the replica has said that it has it: it would look for the mark at the
    /// end of what it reads.
    AwaitsAnswer,
    /// It is sent the stream.
    Online,
}

/// How a snapshot's end is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// By its length, which is told once it is known.
    Counted { is_told: bool },
    /// By a mark.
    Marked,
}

/// Why a link has ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The replica has closed it.
    Closed,
    /// The network's or the disk's error.
    Io(String),
    /// It sends what no replica does.
    Garbled,
    /// It has said nothing for `repl-timeout`.
    Silent,
    /// More waits for it than `client-output-buffer-limit` allows, and it takes nothing.
    Behind(u64),
    /// More waits for it than there is disk for.
    TooFarBehind(u64),
    /// The history is another one.
    Renamed,
    /// CLIENT KILL.
    Killed,
    /// Its snapshot has failed.
    NoSnapshot,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed => f.write_str("it has closed the connection"),
            Ended::Io(error) => f.write_str(error),
            Ended::Garbled => f.write_str("it sends what no replica does"),
            Ended::Silent => f.write_str("it has said nothing for repl-timeout"),
            Ended::Behind(bytes) => write!(
                f,
                "{bytes} bytes wait for it and it takes none of them: raise client-output-buffer-limit replica, or see what holds it up"
            ),
            Ended::TooFarBehind(bytes) => write!(
                f,
                "{bytes} bytes wait for it, which is more than reply-spill-limit, or than the disk takes: raise the limit, or see what \
                 holds it up"
            ),
            Ended::Renamed => f.write_str("the history has another name now, which it learns when it asks again"),
            Ended::Killed => f.write_str("it was killed by a client"),
            Ended::NoSnapshot => f.write_str("its snapshot could not be made; see above"),
        }
    }
}

/// See the module's documentation.
pub struct Peer {
    socket: Socket,
    pub(super) client: Arc<Client>,
    pub(super) token: u64,
    introduction: ReplicaIntroduction,
    /// Whether it expects lines before a snapshot or the stream.
    expects_lines: bool,
    stage: Stage,
    /// Lines and marks that come before anything else.
    lines: Output,
    /// The offset of the stream up to which it has been sent.
    sent: u64,
    acknowledged: u64,
    synced: u64,
    heard: Instant,
    heard_ms: u64,
    /// When its socket last took something, or there was nothing for it.
    moved: Instant,
    answers: Answers,
    is_full: bool,
    watches_write: bool,
}

impl Peer {
    pub(super) fn new(arrival: Arrival, token: u64) -> Peer {
        let Arrival { socket, client, introduction, wanted } = arrival;
        client.set(client_flag::REPLICA, true);
        let now = Instant::now();
        Peer {
            socket,
            client,
            token,
            introduction,
            expects_lines: wanted != Wanted::AllUnannounced,
            stage: Stage::AwaitsSnapshot,
            lines: Output::default(),
            sent: 0,
            acknowledged: 0,
            synced: 0,
            heard: now,
            heard_ms: 0,
            moved: now,
            answers: Answers::default(),
            is_full: false,
            watches_write: false,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The address at which clients find it.
    fn address(&self) -> &str {
        let seen = self.client.addr.rsplit_once(':').map_or(&*self.client.addr, |(address, _)| address);
        self.introduction.address.as_deref().unwrap_or(seen)
    }

    /// What it is called in the log.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.address(), self.introduction.port)
    }

    /// Where clients find it.
    pub(super) fn place(&self) -> (String, u16) {
        (self.address().to_owned(), self.introduction.port)
    }

    pub(super) fn is_at(&self, host: &str, port: u16) -> bool {
        self.address().eq_ignore_ascii_case(host) && self.introduction.port == port
    }

    pub(super) fn is_online(&self) -> bool {
        matches!(self.stage, Stage::Online)
    }

    pub(super) fn awaits_snapshot(&self) -> bool {
        matches!(self.stage, Stage::AwaitsSnapshot)
    }

    pub(super) fn receives(&self, spool: &Spool) -> bool {
        matches!(&self.stage, Stage::Receives { spool: own, .. } if std::ptr::eq(&**own, spool))
    }

    /// The least offset from which on the stream is to be kept for it.
    pub(super) fn needs_from(&self) -> Option<u64> {
        (!self.awaits_snapshot()).then_some(self.sent)
    }

    /// The least offset that it has acknowledged in any way.
    pub(super) fn acknowledged(&self) -> u64 {
        if self.synced == 0 { self.acknowledged } else { self.synced.min(self.acknowledged) }
    }

    /// Has the stream go on behind this offset.
    pub(super) fn go_on(&mut self, history: HistoryId, offset: u64) {
        self.lines.extend(&continue_line(history, self.introduction.follows_names));
        (self.sent, self.acknowledged) = (offset, offset);
        self.begin_stream();
    }

    fn begin_stream(&mut self) {
        self.stage = Stage::Online;
        (self.heard, self.moved) = (Instant::now(), Instant::now());
    }

    /// Begins to send a snapshot: as it is made, if the replica can tell its end by a mark and `sends_early`.
    pub(super) fn begin_snapshot(&mut self, history: HistoryId, spool: Arc<Spool>, sends_early: bool) {
        if self.expects_lines {
            self.lines.extend(format!("+FULLRESYNC {history} {}\r\n", spool.cut).as_bytes());
        }
        let form = if sends_early && self.introduction.takes_marked {
            self.lines.extend(b"$EOF:");
            self.lines.extend(&spool.mark);
            self.lines.extend(b"\r\n");
            Form::Marked
        } else {
            Form::Counted { is_told: false }
        };
        self.sent = spool.cut;
        self.moved = Instant::now();
        self.stage = Stage::Receives { spool, sent: 0, form };
    }

    /// Hears what it says.
    pub(super) fn read(&mut self, now_ms: u64, stream_end: u64) -> Result<(), Ended> {
        let mut buffer = [0; 4096];
        loop {
            let bytes = match connection::read(&mut self.socket, &mut buffer) {
                Ok(Some(0)) => return Err(Ended::Closed),
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Ended::Io(error.to_string())),
            };
            (self.heard, self.heard_ms) = (Instant::now(), now_ms);
            self.client.active_ms.store(now_ms, Ordering::Relaxed);
            self.client.net_bytes[0].fetch_add(bytes as u64, Ordering::Relaxed);
            let answer = self.answers.take(buffer.get(..bytes).unwrap_or_default()).map_err(|_| Ended::Garbled)?;
            let known = |offset: u64| (offset <= stream_end).then_some(offset);
            if let Some(applied) = answer.applied.and_then(known) {
                self.acknowledged = self.acknowledged.max(applied);
                if matches!(self.stage, Stage::AwaitsAnswer) {
                    self.begin_stream();
                }
            }
            self.synced = answer.synced.and_then(known).unwrap_or(0).max(self.synced);
        }
    }

    /// Notes that its socket has room again.
    pub(super) fn may_write(&mut self) {
        self.is_full = false;
    }

    /// Whether it is to be watched for room to write, if that has changed.
    pub(super) fn changed_watch(&mut self) -> Option<bool> {
        let changed = self.watches_write != self.is_full;
        self.watches_write = self.is_full;
        changed.then_some(self.is_full)
    }

    /// Sends what its socket takes.
    pub(super) fn send(&mut self, stream: &Stream) -> Result<(), Ended> {
        let mut sent = 0;
        while !self.is_full && sent < SENT_AT_ONCE {
            let bytes = if self.lines.is_empty() { self.send_next(stream)? } else { self.send_lines()? };
            match bytes {
                Some(bytes) => sent += bytes,
                None => break,
            }
        }
        if sent > 0 || (!self.is_full && !self.lacks(stream.end())) {
            self.moved = Instant::now();
        }
        Ok(())
    }

    /// Whether there is something that it has not been sent.
    fn lacks(&self, end: u64) -> bool {
        match self.stage {
            Stage::Receives { .. } => true,
            Stage::Online => self.sent < end,
            Stage::AwaitsSnapshot | Stage::AwaitsAnswer => false,
        }
    }

    fn send_lines(&mut self) -> Result<Option<usize>, Ended> {
        let mut lines = std::mem::take(&mut self.lines);
        let sent = match &mut self.socket {
            Socket::Tls(tls) => tls.write(&lines),
            socket => rustix::net::send(&*socket, lines.slices().next().unwrap_or_default(), FLAGS),
        };
        let sent = self.sent_of(sent)?;
        lines.advance(sent.unwrap_or(0));
        self.lines = lines;
        Ok(sent)
    }

    /// Sends what comes behind the lines: of the snapshot, or of the stream.
    fn send_next(&mut self, stream: &Stream) -> Result<Option<usize>, Ended> {
        match &self.stage {
            Stage::AwaitsSnapshot | Stage::AwaitsAnswer => Ok(None),
            Stage::Receives { .. } => self.send_snapshot(),
            Stage::Online => self.send_stream(stream),
        }
    }

    fn send_snapshot(&mut self) -> Result<Option<usize>, Ended> {
        let Stage::Receives { spool, sent, form } = &mut self.stage else { return Ok(None) };
        if spool.has_failed() {
            return Err(Ended::NoSnapshot);
        }
        let (len, is_whole) = spool.len();
        if let Form::Counted { is_told } = form
            && !*is_told
        {
            if is_whole {
                *is_told = true;
                self.lines.extend(format!("${len}\r\n").as_bytes());
            }
            return Ok(is_whole.then_some(0));
        }
        if *sent == len {
            if !is_whole {
                return Ok(None);
            }
            if *form == Form::Marked {
                let mark = spool.mark;
                self.lines.extend(&mark);
                self.stage = Stage::AwaitsAnswer;
            } else {
                self.begin_stream();
            }
            return Ok(Some(0));
        }
        let mut buffer = vec![0; READ_BYTES];
        let read = spool.read(&mut buffer, *sent).map_err(|error| Ended::Io(error.to_string()))?;
        if read == 0 {
            return Err(Ended::Io("the snapshot's file is shorter than what was written".into()));
        }
        buffer.truncate(read);
        let bytes = write(&mut self.socket, buffer);
        let bytes = self.sent_of(bytes)?;
        if let Stage::Receives { sent, .. } = &mut self.stage {
            *sent += bytes.unwrap_or(0) as u64;
        }
        Ok(bytes)
    }

    fn send_stream(&mut self, stream: &Stream) -> Result<Option<usize>, Ended> {
        let (from, socket, mut scratch) = (self.sent, &mut self.socket, Vec::new());
        let sent = stream.with_backlog(|backlog| match backlog.piece(from, &mut scratch)? {
            None => Err(io::Error::other("what it lacks is not kept any more")),
            Some([]) => Ok(None),
            Some(piece) => Ok(Some(match socket {
                Socket::Tls(_) => write(socket, piece.to_vec()),
                socket => rustix::net::send(&*socket, piece, FLAGS),
            })),
        });
        let sent = sent.transpose().map_err(|error| Ended::Io(error.to_string()))?.flatten();
        let Some(sent) = sent else { return Ok(None) };
        let sent = self.sent_of(sent)?;
        self.sent += sent.unwrap_or(0) as u64;
        Ok(sent)
    }

    /// What of a write was sent; none if the socket takes no more now.
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

    /// Tells it that this server lives, while it waits for a snapshot.
    pub(super) fn sign_of_life(&mut self, every: Duration) {
        let waits = match &self.stage {
            Stage::AwaitsSnapshot => true,
            Stage::Receives { form, .. } => *form == Form::Counted { is_told: false },
            Stage::AwaitsAnswer | Stage::Online => false,
        };
        if waits && self.expects_lines && self.lines.is_empty() && self.moved.elapsed() >= every {
            self.lines.extend(b"\n");
            self.moved = Instant::now();
        }
    }

    /// Why its link is to be ended, if it is: it says nothing, or more waits for it than may and it takes nothing of it. One that takes
    /// what it is sent, however far it is behind, is left to catch up.
    pub(super) fn is_over(&self, timeout: Duration, hard_bytes: u64, end: u64) -> Option<Ended> {
        let waiting = end.saturating_sub(self.sent);
        let is_stalled = self.moved.elapsed() >= timeout.min(STALLED);
        match &self.stage {
            Stage::AwaitsSnapshot => None,
            _ if hard_bytes > 0 && waiting > hard_bytes && is_stalled => Some(Ended::Behind(waiting)),
            Stage::Receives { spool, .. } => {
                (self.moved.elapsed() >= timeout && spool.has_ended()).then_some(Ended::Silent)
            }
            Stage::AwaitsAnswer | Stage::Online => (self.heard.elapsed() >= timeout).then_some(Ended::Silent),
        }
    }

    /// Whether it is sent the stream, and has said within this time how far it is.
    pub(super) fn is_good(&self, lag: Duration) -> bool {
        matches!(self.stage, Stage::Online) && self.heard.elapsed() <= lag
    }

    pub(super) fn figures(&self, stream: &Stream, least: u64) -> ReplicaFigures {
        let stage = match self.stage {
            Stage::AwaitsSnapshot => ReplicaStage::AwaitsSnapshot,
            Stage::Receives { .. } | Stage::AwaitsAnswer => ReplicaStage::Receives,
            Stage::Online => ReplicaStage::Online,
        };
        ReplicaFigures {
            client: self.client.id,
            address: self.address().to_owned(),
            port: self.introduction.port,
            stage,
            offset: self.acknowledged,
            synced: self.synced,
            position: stream.position_at(self.acknowledged, least),
            synced_position: stream.position_at(self.synced, least),
            heard_ms: self.heard_ms,
        }
    }
}

/// How long a replica for which too much waits may take nothing.
const STALLED: Duration = Duration::from_secs(10);
const FLAGS: rustix::net::SendFlags = rustix::net::SendFlags::NOSIGNAL;

fn write(socket: &mut Socket, bytes: Vec<u8>) -> rustix::io::Result<usize> {
    match socket {
        Socket::Tls(tls) => tls.write(&Output::from(bytes)),
        socket => rustix::net::send(&*socket, &bytes, FLAGS),
    }
}
