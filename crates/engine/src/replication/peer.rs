//! One replica, as its primary knows it: what it is to be sent next, and how far it says it is.
//!
//! Bytes in, bytes out: the connection is the server's affair, and the time is told with each call. It asks [`Peer::next`] what comes next,
//! sends what the connection takes of it, and tells that by [`Peer::note_sent`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use replication::answers::Answers;
use replication::id::HistoryId;
use replication::transfer::MARK_BYTES;
use resp::reply::Output;

use super::replicas::{ReplicaFigures, ReplicaIntroduction, ReplicaStage, Wanted};
use super::stream::Stream;

/// How long a replica for which too much waits may take nothing.
const STALLED: Duration = Duration::from_secs(10);

/// A snapshot that replicas are sent while it is made.
pub trait SentSnapshot {
    /// The offset of the history that it is of.
    fn cut(&self) -> u64;

    /// What ends it on the wire, where its length isn't told before.
    fn mark(&self) -> [u8; MARK_BYTES];

    /// Bytes that there are so far, and whether that is all.
    fn written(&self) -> (u64, bool);

    /// Whether it is whole, or has failed.
    fn has_ended(&self) -> bool;

    /// Whether it has failed.
    fn has_failed(&self) -> bool;
}

/// How far the replica is.
enum Stage<S> {
    /// It waits for a snapshot.
    AwaitsSnapshot,
    /// It is sent one, of which it has had so many bytes.
    Receives { snapshot: Arc<S>, sent: u64, form: SnapshotEnd },
    /// It has been sent one that a mark ends. The stream comes once the replica has said that it has it: it would look for the mark at the
    /// end of what it reads.
    AwaitsAnswer,
    /// It is sent the stream.
    Online,
}

/// How a snapshot's end is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnapshotEnd {
    /// By its length, which is told once it is known.
    Counted { is_told: bool },
    /// By a mark.
    Marked,
}

/// What a replica is sent next.
pub enum ToSend<S> {
    /// Nothing for now.
    Nothing,
    /// What [`Peer::lines`] has.
    Lines,
    /// Bytes of this snapshot, from this one on. There are some.
    Snapshot {
        /// The snapshot.
        of: Arc<S>,
        /// Its bytes that the replica has had.
        at: u64,
    },
    /// Bytes of the stream behind this offset, if there are any.
    Stream {
        /// The offset.
        from: u64,
    },
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
    /// It has closed the connection before it had taken the snapshot that it was sent.
    NotTaken {
        /// Snapshots in a row.
        times: u32,
        /// How long it waits for the next one.
        pause: Duration,
    },
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
            Ended::NotTaken { times, pause } => write!(
                f,
                "it has closed the connection without loading the snapshot it was sent ({times} in a row). It may not know a type, or the \
                 version of the format, that the data need: see its own log. It gets no other one for {:.0} s",
                pause.as_secs_f64()
            ),
        }
    }
}

/// See the module's documentation. Times are since any fixed moment, by a clock that never goes back.
pub struct Peer<S> {
    /// Its connection.
    pub client: u64,
    introduction: ReplicaIntroduction,
    /// The address that it connects from.
    seen_address: String,
    /// Whether it expects lines before a snapshot or the stream.
    expects_lines: bool,
    stage: Stage<S>,
    /// Lines and marks that come before anything else.
    lines: Output,
    /// The offset of the stream up to which it has been sent.
    sent: u64,
    acknowledged: u64,
    synced: u64,
    heard: Duration,
    heard_ms: u64,
    /// When its connection last took something, or there was nothing for it.
    moved: Duration,
    answers: Answers,
    /// Whether it was sent bytes of a snapshot and has acknowledged nothing since.
    has_yet_to_load: bool,
    /// It is sent no snapshot until then.
    held_back_until: Option<Duration>,
}

impl<S: SentSnapshot> Peer<S> {
    /// A replica that has just asked for the stream, from this address. It waits for a snapshot unless it goes on where it is.
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

    /// The address at which clients find it.
    fn address(&self) -> &str {
        self.introduction.address.as_deref().unwrap_or(&self.seen_address)
    }

    /// What it is called in the log.
    #[must_use]
    pub fn name(&self) -> String {
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

    /// Whether it waits for a snapshot.
    #[must_use]
    pub fn awaits_snapshot(&self) -> bool {
        matches!(self.stage, Stage::AwaitsSnapshot)
    }

    /// Has it be sent no snapshot until then.
    pub(super) fn hold_back(&mut self, until: Option<Duration>) {
        self.held_back_until = until;
    }

    /// Whether it waits for a snapshot and may be sent one.
    pub(super) fn may_receive(&self, now: Duration) -> bool {
        self.awaits_snapshot() && self.held_back_until.is_none_or(|until| until <= now)
    }

    /// Whether it was sent a snapshot, and has not said that it has it.
    pub(super) fn has_yet_to_load(&self) -> bool {
        self.has_yet_to_load
    }

    /// Whether it is being sent this snapshot.
    #[must_use]
    pub fn receives(&self, snapshot: &Arc<S>) -> bool {
        matches!(&self.stage, Stage::Receives { snapshot: own, .. } if Arc::ptr_eq(own, snapshot))
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
    pub(super) fn go_on(&mut self, history: HistoryId, offset: u64, now: Duration) {
        self.lines.extend(&continue_line(history, self.introduction.follows_names));
        (self.sent, self.acknowledged) = (offset, offset);
        self.begin_stream(now);
    }

    fn begin_stream(&mut self, now: Duration) {
        self.stage = Stage::Online;
        (self.heard, self.moved) = (now, now);
    }

    /// Begins to send a snapshot: as it is made, if the replica can tell its end by a mark and `sends_early`.
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
            SnapshotEnd::Counted { is_told: false }
        };
        self.sent = snapshot.cut();
        self.moved = now;
        self.stage = Stage::Receives { snapshot, sent: 0, form };
    }

    /// Hears what it says. `now_ms` is Unix time in milliseconds; `stream_end` is how many bytes the history has.
    ///
    /// # Errors
    /// Why the link ends.
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

    /// What it is sent next.
    ///
    /// # Errors
    /// If its snapshot has failed.
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
        if let SnapshotEnd::Counted { is_told } = form
            && !*is_told
        {
            if !is_whole {
                return Ok(ToSend::Nothing);
            }
            *is_told = true;
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
            Ok(ToSend::Lines)
        } else {
            self.begin_stream(now);
            Ok(ToSend::Stream { from: self.sent })
        }
    }

    /// What is to be sent before anything else.
    #[must_use]
    pub fn lines(&self) -> &Output {
        &self.lines
    }

    /// Notes that its connection has taken so many bytes of what [`Peer::next`] has said.
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

    /// Notes the end of its turn: whether its connection has taken anything, and whether it takes no more for now.
    pub fn note_turn(&mut self, has_taken: bool, is_full: bool, stream_end: u64, now: Duration) {
        if has_taken || (!is_full && !self.lacks(stream_end)) {
            self.moved = now;
        }
    }

    /// Whether there is something that it has not been sent.
    fn lacks(&self, end: u64) -> bool {
        match self.stage {
            Stage::Receives { .. } => true,
            Stage::Online => self.sent < end,
            Stage::AwaitsSnapshot | Stage::AwaitsAnswer => false,
        }
    }

    /// Tells it that this server lives, while it waits for a snapshot.
    pub(super) fn sign_of_life(&mut self, every: Duration, now: Duration) {
        let waits = match &self.stage {
            Stage::AwaitsSnapshot => true,
            Stage::Receives { form, .. } => *form == SnapshotEnd::Counted { is_told: false },
            Stage::AwaitsAnswer | Stage::Online => false,
        };
        if waits && self.expects_lines && self.lines.is_empty() && now.saturating_sub(self.moved) >= every {
            self.lines.extend(b"\n");
            self.moved = now;
        }
    }

    /// Why its link is to be ended, if it is: it says nothing, or more waits for it than may and it takes nothing of it. One that takes
    /// what it is sent, however far it is behind, is left to catch up.
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

    /// Whether it is sent the stream, and has said within this time how far it is.
    pub(super) fn is_good(&self, lag: Duration, now: Duration) -> bool {
        matches!(self.stage, Stage::Online) && now.saturating_sub(self.heard) <= lag
    }

    pub(super) fn figures(&self, stream: &Stream, least: u64) -> ReplicaFigures {
        let stage = match self.stage {
            Stage::AwaitsSnapshot => ReplicaStage::AwaitsSnapshot,
            Stage::Receives { .. } | Stage::AwaitsAnswer => ReplicaStage::Receives,
            Stage::Online => ReplicaStage::Online,
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
        }
    }
}

/// The line that a stream begins with.
fn continue_line(history: HistoryId, follows_names: bool) -> Vec<u8> {
    if follows_names { format!("+CONTINUE {history}\r\n").into_bytes() } else { b"+CONTINUE\r\n".to_vec() }
}
