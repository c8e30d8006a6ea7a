//! One replica from its primary's view: the next bytes to send, and the offsets that it has acknowledged.
//!
//! Bytes in, bytes out: the server has the connection and passes the time to each call. The server asks [`Peer::next`]
//! for the next bytes, sends as many as the connection takes, and reports the number by [`Peer::note_sent`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use replication::answers::Answers;
use replication::id::HistoryId;
use replication::transfer::MARK_BYTES;
use resp::reply::Output;

use super::replicas::{ReplicaFigures, ReplicaIntroduction, ReplicaStage, Wanted};
use super::stream::Stream;
use crate::snapshots::SnapshotForm;

/// The longest time that a replica above its buffer limit may take nothing.
const STALLED: Duration = Duration::from_secs(10);

/// A snapshot that is sent to replicas while it is made.
pub trait SentSnapshot {
    /// Returns the offset of the snapshot in the history.
    fn cut(&self) -> u64;

    /// Returns the mark that ends it on the wire if its length is not announced.
    fn mark(&self) -> [u8; MARK_BYTES];

    /// Returns the snapshot's format.
    fn form(&self) -> SnapshotForm {
        SnapshotForm::Rdb
    }

    /// Returns the number of bytes so far, and whether the snapshot is complete.
    fn written(&self) -> (u64, bool);

    /// Returns whether it is complete or has failed.
    fn has_ended(&self) -> bool;

    /// Returns whether it has failed.
    fn has_failed(&self) -> bool;
}

/// The progress of a replica.
enum Stage<S> {
    /// The replica waits for a snapshot.
    AwaitsSnapshot,
    /// The replica receives a snapshot; the number of sent bytes is `sent`.
    Receives { snapshot: Arc<S>, sent: u64, form: SnapshotEnd },
    /// The replica has received a snapshot that a mark ends. The stream begins after its acknowledgement, because a
    /// replica searches for the mark at the end of the bytes that it reads.
    AwaitsAnswer,
    /// The replica receives the stream.
    Online,
}

/// The way to announce a snapshot's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnapshotEnd {
    /// By its length, which is announced once it is known.
    Counted { is_announced: bool },
    /// By a mark.
    Marked,
}

/// The next bytes for a replica.
pub enum ToSend<S> {
    /// Nothing for now.
    Nothing,
    /// The bytes of [`Peer::lines`].
    Lines,
    /// Bytes of this snapshot, at least one.
    Snapshot {
        /// The snapshot.
        of: Arc<S>,
        /// The number of its bytes that were sent.
        at: u64,
    },
    /// Bytes of the stream after this offset, if there are any.
    Stream {
        /// The offset.
        from: u64,
    },
}

/// The reason that a link has ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The replica has closed it.
    Closed,
    /// An error of the network or the disk.
    Io(String),
    /// The replica sends invalid bytes.
    Garbled,
    /// The replica was silent for `repl-timeout`.
    Silent,
    /// More bytes are pending than `client-output-buffer-limit` allows, and the replica takes none.
    Behind(u64),
    /// More bytes are pending than the disk has room for.
    TooFarBehind(u64),
    /// The history has changed.
    Renamed,
    /// CLIENT KILL.
    Killed,
    /// Its snapshot has failed.
    NoSnapshot,
    /// The replica has closed the connection before it took its snapshot.
    NotTaken {
        /// The number of snapshots in a row that the replica has not taken.
        times: u32,
        /// The pause before the next one.
        pause: Duration,
    },
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed => f.write_str("it has closed the connection"),
            Ended::Io(error) => f.write_str(error),
            Ended::Garbled => f.write_str("it sends bytes that no replica sends"),
            Ended::Silent => f.write_str("it has said nothing for repl-timeout"),
            Ended::Behind(bytes) => write!(
                f,
                "{bytes} bytes are pending for it and it takes none of them: raise client-output-buffer-limit replica, or find the \
                 cause of its delay"
            ),
            Ended::TooFarBehind(bytes) => write!(
                f,
                "{bytes} bytes are pending for it, more than reply-spill-limit or the disk allows: raise the limit, or find the cause \
                 of its delay"
            ),
            Ended::Renamed => f.write_str("the history has a new ID, which the replica learns when it reconnects"),
            Ended::Killed => f.write_str("it was killed by a client"),
            Ended::NoSnapshot => f.write_str("its snapshot could not be made; see above"),
            Ended::NotTaken { times, pause } => write!(
                f,
                "it has closed the connection without loading the snapshot ({times} in a row). It may not support a type or the format \
                 version of the snapshot: see its own log. It gets the next snapshot after {:.0} s",
                pause.as_secs_f64()
            ),
        }
    }
}

/// See the module's documentation. Times count from any fixed moment of a monotonic clock.
pub struct Peer<S> {
    /// Its connection.
    pub client: u64,
    introduction: ReplicaIntroduction,
    /// The address that it connects from.
    seen_address: String,
    /// True if it expects lines before a snapshot or the stream.
    expects_lines: bool,
    stage: Stage<S>,
    /// Lines and marks that precede everything else.
    lines: Output,
    /// The end of the sent bytes, as an offset of the stream.
    sent: u64,
    acknowledged: u64,
    synced: u64,
    heard: Duration,
    heard_ms: u64,
    /// The last time that its connection took bytes, or had none to take.
    moved: Duration,
    answers: Answers,
    /// True if it was sent bytes of a snapshot and has acknowledged nothing since.
    has_yet_to_load: bool,
    /// The time before which it receives no snapshot.
    held_back_until: Option<Duration>,
}

impl<S: SentSnapshot> Peer<S> {
    /// Creates the state of a replica that has just asked for the stream, from this address. The replica waits for a
    /// snapshot unless the stream continues at its offset.
    #[must_use]
    pub fn new(
        client: u64,
        seen_address: String,
        introduction: ReplicaIntroduction,
        wanted: Wanted,
        now: Duration,
    ) -> Peer<S> {
        Peer {
            client,
            introduction,
            seen_address,
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
            has_yet_to_load: false,
            held_back_until: None,
        }
    }

    /// Returns the address at which clients find it.
    fn address(&self) -> &str {
        self.introduction.address.as_deref().unwrap_or(&self.seen_address)
    }

    /// Returns its name for the log.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}:{}", self.address(), self.introduction.port)
    }

    /// Returns the address and the port at which clients find it.
    pub(super) fn place(&self) -> (String, u16) {
        (self.address().to_owned(), self.introduction.port)
    }

    /// Returns true if it has announced a port for clients. Tools, for example `redis-cli --rdb`, announce none.
    pub(super) fn is_server(&self) -> bool {
        self.introduction.port != 0
    }

    pub(super) fn is_at(&self, host: &str, port: u16) -> bool {
        self.address().eq_ignore_ascii_case(host) && self.introduction.port == port
    }

    pub(super) fn is_online(&self) -> bool {
        matches!(self.stage, Stage::Online)
    }

    /// Returns whether it understands the request to hold commands: only Penstock does.
    pub(super) fn holds_commands(&self) -> bool {
        self.introduction.reads_all_forms
    }

    /// Returns whether it waits for a snapshot.
    #[must_use]
    pub fn awaits_snapshot(&self) -> bool {
        matches!(self.stage, Stage::AwaitsSnapshot)
    }

    /// Holds back snapshots until a time, if one is given.
    pub(super) fn hold_back(&mut self, until: Option<Duration>) {
        self.held_back_until = until;
    }

    /// Returns whether it waits for a snapshot and may receive one.
    pub(super) fn may_receive(&self, now: Duration) -> bool {
        self.awaits_snapshot() && self.held_back_until.is_none_or(|until| until <= now)
    }

    /// Returns the form of snapshots that it reads.
    pub(super) fn form(&self) -> SnapshotForm {
        self.introduction.form()
    }

    /// Returns whether it was sent a snapshot, and has not acknowledged it.
    pub(super) fn has_yet_to_load(&self) -> bool {
        self.has_yet_to_load
    }

    /// Returns whether it receives this snapshot at present.
    #[must_use]
    pub fn receives(&self, snapshot: &Arc<S>) -> bool {
        matches!(&self.stage, Stage::Receives { snapshot: own, .. } if Arc::ptr_eq(own, snapshot))
    }

    /// Returns the least offset from which it needs the stream.
    pub(super) fn needs_from(&self) -> Option<u64> {
        (!self.awaits_snapshot()).then_some(self.sent)
    }

    /// Returns the least offset that it has acknowledged in any way.
    pub(super) fn acknowledged(&self) -> u64 {
        if self.synced == 0 { self.acknowledged } else { self.synced.min(self.acknowledged) }
    }

    /// Continues the stream after this offset.
    pub(super) fn go_on(&mut self, history: HistoryId, offset: u64, now: Duration) {
        self.lines.extend(&continue_line(history, self.introduction.follows_names));
        (self.sent, self.acknowledged) = (offset, offset);
        self.begin_stream(now);
    }

    fn begin_stream(&mut self, now: Duration) {
        self.stage = Stage::Online;
        (self.heard, self.moved) = (now, now);
    }

    /// Begins to send a snapshot. With `sends_early`, and if the replica accepts an end mark, bytes are sent while the
    /// snapshot is made.
    pub(super) fn begin_snapshot(&mut self, history: HistoryId, snapshot: Arc<S>, sends_early: bool, now: Duration) {
        if self.expects_lines {
            self.lines.extend(format!("+FULLRESYNC {history} {}\r\n", snapshot.cut()).as_bytes());
        }
        let form = if sends_early && self.introduction.takes_marked {
            self.lines.extend(b"$EOF:");
            self.lines.extend(&snapshot.mark());
            self.lines.extend(b"\r\n");
            SnapshotEnd::Marked
        } else {
            SnapshotEnd::Counted { is_announced: false }
        };
        self.sent = snapshot.cut();
        self.moved = now;
        self.stage = Stage::Receives { snapshot, sent: 0, form };
    }

    /// Processes bytes from the replica. `now_ms` is Unix time in milliseconds; `stream_end` is the length of the
    /// history in bytes.
    ///
    /// # Errors
    /// The reason that the link ends.
    pub fn hear(&mut self, bytes: &[u8], now: Duration, now_ms: u64, stream_end: u64) -> Result<(), Ended> {
        (self.heard, self.heard_ms) = (now, now_ms);
        let answer = self.answers.take(bytes).map_err(|_| Ended::Garbled)?;
        let known = |offset: u64| (offset <= stream_end).then_some(offset);
        if let Some(applied) = answer.applied.and_then(known) {
            self.acknowledged = self.acknowledged.max(applied);
            self.has_yet_to_load = false;
            if matches!(self.stage, Stage::AwaitsAnswer) {
                self.begin_stream(now);
            }
        }
        self.synced = answer.synced.and_then(known).unwrap_or(0).max(self.synced);
        Ok(())
    }

    /// Returns the next bytes to send.
    ///
    /// # Errors
    /// The failure of its snapshot.
    pub fn next(&mut self, now: Duration) -> Result<ToSend<S>, Ended> {
        if !self.lines.is_empty() {
            return Ok(ToSend::Lines);
        }
        match &self.stage {
            Stage::AwaitsSnapshot | Stage::AwaitsAnswer => Ok(ToSend::Nothing),
            Stage::Receives { .. } => self.next_of_snapshot(now),
            Stage::Online => Ok(ToSend::Stream { from: self.sent }),
        }
    }

    fn next_of_snapshot(&mut self, now: Duration) -> Result<ToSend<S>, Ended> {
        let Stage::Receives { snapshot, sent, form } = &mut self.stage else { return Ok(ToSend::Nothing) };
        if snapshot.has_failed() {
            return Err(Ended::NoSnapshot);
        }
        let (len, is_whole) = snapshot.written();
        if let SnapshotEnd::Counted { is_announced } = form
            && !*is_announced
        {
            if !is_whole {
                return Ok(ToSend::Nothing);
            }
            *is_announced = true;
            self.lines.extend(format!("${len}\r\n").as_bytes());
            return Ok(ToSend::Lines);
        }
        if *sent < len {
            return Ok(ToSend::Snapshot { of: snapshot.clone(), at: *sent });
        }
        if !is_whole {
            return Ok(ToSend::Nothing);
        }
        if *form == SnapshotEnd::Marked {
            let mark = snapshot.mark();
            self.lines.extend(&mark);
            self.stage = Stage::AwaitsAnswer;
            self.heard = now;
            Ok(ToSend::Lines)
        } else {
            self.begin_stream(now);
            Ok(ToSend::Stream { from: self.sent })
        }
    }

    /// Returns the lines to send before anything else.
    #[must_use]
    pub fn lines(&self) -> &Output {
        &self.lines
    }

    /// Notes that its connection has taken this number of the bytes that [`Peer::next`] returned.
    pub fn note_sent(&mut self, bytes: usize) {
        if !self.lines.is_empty() {
            return self.lines.advance(bytes);
        }
        match &mut self.stage {
            Stage::Receives { sent, .. } => {
                *sent += bytes as u64;
                self.has_yet_to_load = true;
            }
            Stage::Online => self.sent += bytes as u64,
            Stage::AwaitsSnapshot | Stage::AwaitsAnswer => {}
        }
    }

    /// Notes the end of its turn: whether its connection has taken bytes, and whether it is full.
    pub fn note_turn(&mut self, has_taken: bool, is_full: bool, stream_end: u64, now: Duration) {
        if has_taken || (!is_full && !self.lacks(stream_end)) {
            self.moved = now;
        }
    }

    /// Returns whether there are bytes that it has not been sent.
    fn lacks(&self, end: u64) -> bool {
        match self.stage {
            Stage::Receives { .. } => true,
            Stage::Online => self.sent < end,
            Stage::AwaitsSnapshot | Stage::AwaitsAnswer => false,
        }
    }

    /// Sends a newline as a keepalive while it waits for a snapshot.
    pub(super) fn sign_of_life(&mut self, every: Duration, now: Duration) {
        let waits = match &self.stage {
            Stage::AwaitsSnapshot => true,
            Stage::Receives { form, .. } => *form == SnapshotEnd::Counted { is_announced: false },
            Stage::AwaitsAnswer | Stage::Online => false,
        };
        if waits && self.expects_lines && self.lines.is_empty() && now.saturating_sub(self.moved) >= every {
            self.lines.extend(b"\n");
            self.moved = now;
        }
    }

    /// Returns the reason to end its link, if there is one: silence, or too many pending bytes while it takes none. A
    /// replica that takes bytes may catch up from any distance.
    pub(super) fn is_over(&self, timeout: Duration, hard_bytes: u64, end: u64, now: Duration) -> Option<Ended> {
        let waiting = end.saturating_sub(self.sent);
        let [still, silent] = [self.moved, self.heard].map(|since| now.saturating_sub(since));
        let is_stalled = still >= timeout.min(STALLED);
        match &self.stage {
            Stage::AwaitsSnapshot => None,
            _ if hard_bytes > 0 && waiting > hard_bytes && is_stalled => Some(Ended::Behind(waiting)),
            Stage::Receives { snapshot, .. } => (still >= timeout && snapshot.has_ended()).then_some(Ended::Silent),
            Stage::AwaitsAnswer | Stage::Online => (silent >= timeout).then_some(Ended::Silent),
        }
    }

    /// Returns whether it has received its snapshot, if any, and was heard within this time. The end of the snapshot
    /// counts as an answer, as in Redis.
    pub(super) fn is_good(&self, lag: Duration, now: Duration) -> bool {
        matches!(self.stage, Stage::AwaitsAnswer | Stage::Online) && now.saturating_sub(self.heard) <= lag
    }

    pub(super) fn figures(&self, stream: &Stream, least: u64) -> ReplicaFigures {
        let stage = match self.stage {
            Stage::AwaitsSnapshot => ReplicaStage::AwaitsSnapshot,
            Stage::Receives { .. } => ReplicaStage::Receives,
            Stage::AwaitsAnswer | Stage::Online => ReplicaStage::Online,
        };
        ReplicaFigures {
            client: self.client,
            address: self.address().to_owned(),
            port: self.introduction.port,
            stage,
            offset: self.acknowledged,
            synced: self.synced,
            position: stream.position_at(self.acknowledged, least),
            synced_position: stream.position_at(self.synced, least),
            heard_ms: self.heard_ms,
            node: self.introduction.node,
            takes_over: self.introduction.takes_over(),
        }
    }
}

/// Returns the line that begins a stream.
fn continue_line(history: HistoryId, follows_names: bool) -> Vec<u8> {
    if follows_names { format!("+CONTINUE {history}\r\n").into_bytes() } else { b"+CONTINUE\r\n".to_vec() }
}
