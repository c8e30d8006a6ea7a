//! The stream that replicas are sent: the last bytes of this server's history, and where they come from.
//!
//! Of a server that follows none, they are the journal's units, which a thread of its own turns into bytes ([`Stream::take`]). Of one that
//! follows a primary, they are that one's very bytes, as they were applied ([`Stream::append`]), so that offsets mean the same on all
//! servers of a history. The source changes behind the closed gate: no unit is left out, and none is in the stream twice.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use journal::merge::Merge;
use journal::order::Position;
use journal::record::Kind;
use replication::backlog::{Backlog, Shelf};
use replication::feed::{ASK, Feed, PING};
use resp::num::parse_i64;

use crate::inbox::Wake;
use crate::journal::Journal;

/// Bytes that are put together at once: few enough to be in the second-level cache still when they are sent.
const CHUNK_BYTES: usize = 128 << 10;
/// Places in the stream that are remembered with their units: one for each chunk that a replica has yet to acknowledge, of which the
/// backlog of a large write burst has thousands. Without one, a replica counts as being at the one before it.
const MARKS_MAX: usize = 1 << 16;

/// Where the bytes come from.
#[derive(Default)]
enum Source {
    /// There are none: nothing was ever replicated, or not for long.
    #[default]
    None,
    /// The units of this server.
    Journal(Merge),
    /// The stream of the primary that is followed.
    Primary,
}

/// A place in the stream behind a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitMark {
    pub(super) position: Position,
    pub(super) offset: u64,
}

#[derive(Default)]
struct Streaming {
    source: Source,
    backlog: Option<Backlog>,
    feed: Feed,
    /// The last unit that was taken.
    taken: Position,
    /// Ascending; the first is at or before what all replicas have acknowledged.
    marks: VecDeque<UnitMark>,
    /// Memory of the chunk that is put together.
    chunk: Vec<u8>,
    /// Where the snapshot begins that was begun last.
    cut: u64,
    /// True while nothing is added to what the stream is of this server's.
    is_held: bool,
    /// Behind it come no changes, but messages, signs of life and questions: the data are the same at each offset from here on.
    data_end: u64,
}

/// What there is of the stream, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogFigures {
    /// Whether there is a backlog.
    pub is_active: bool,
    /// The offset before its first byte.
    pub start: u64,
    /// Bytes that it has.
    pub bytes: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Stream {
    state: Mutex<Streaming>,
    /// Bytes of the history so far.
    end: AtomicU64,
    /// Bytes of it that are in memory.
    memory_bytes: AtomicU64,
    /// Whether it is made of this server's units.
    is_own: AtomicBool,
    /// Whether the thread that takes units sleeps until it is told that there are some.
    sleeps: AtomicBool,
    wake: OnceLock<Box<dyn Wake>>,
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, Streaming> {
        // What is behind the lock is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the history so far.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Bytes of it up to the end of this server's last unit, without signs of life and questions behind that.
    #[must_use]
    pub fn units_end(&self) -> u64 {
        let last = self.lock().marks.back().map(|mark| mark.offset);
        last.unwrap_or_else(|| self.end())
    }

    /// Bytes of it that are in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    fn note_memory(&self, backlog: &Backlog) {
        self.memory_bytes.store(backlog.memory_bytes(), Ordering::Relaxed);
    }

    /// What there is of it.
    #[must_use]
    pub fn figures(&self) -> BacklogFigures {
        self.lock().backlog.as_ref().map_or_else(BacklogFigures::default, |backlog| BacklogFigures {
            is_active: true,
            start: backlog.start(),
            bytes: backlog.bytes(),
        })
    }

    /// Names what wakes the thread that serves replicas. Done once.
    pub fn set_wake(&self, wake: Box<dyn Wake>) {
        // A second one would be of a second thread, which there isn't.
        let _ = self.wake.set(wake);
    }

    /// Wakes that thread.
    pub fn wake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    /// Notes whether that thread sleeps until it is woken. Whether there are units has to be looked at again after it is noted that it
    /// does.
    pub fn note_sleep(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Wakes it if it sleeps, and the stream is made of this server's units. Called when units have been committed, behind a fence.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.sleeps.load(Ordering::SeqCst) && self.is_own.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Whether there is a stream that replicas can go on in.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.lock().backlog.is_some()
    }

    /// Has the stream be this server's units from now on, behind what it has. Without effect if it is. The caller is alone behind the
    /// gate.
    pub(crate) fn begin(&self, journal: &Journal) {
        let mut state = self.lock();
        if matches!(state.source, Source::Journal(_)) {
            return;
        }
        // There can be no other reader for replicas: it would be this source.
        let Some(merge) = journal.read_alone(journal::lane::Audience::Replicas) else { return };
        let end = self.end();
        state.backlog.get_or_insert_with(|| Backlog::begin(end));
        state.data_end = end;
        state.feed.forget_database();
        state.taken = journal.position();
        state.marks = VecDeque::from([UnitMark { position: state.taken, offset: end }]);
        state.source = Source::Journal(merge);
        self.is_own.store(true, Ordering::Relaxed);
    }

    /// Has the stream be a primary's bytes from now on, which continue behind what this server's units have made so far. The caller is
    /// alone behind the gate.
    pub(crate) fn follow(&self, journal: &Journal) {
        let mut state = self.lock();
        self.take_all(&mut state);
        if let Source::Journal(merge) = std::mem::replace(&mut state.source, Source::Primary) {
            journal.end_alone(merge);
        }
        self.is_own.store(false, Ordering::Relaxed);
        state.marks.clear();
    }

    /// Takes back messages, signs of life and questions behind the last change: another primary of this history may not have them. Sentinel
    /// publishes every two seconds, also to a primary that it has just replaced.
    pub(crate) fn take_back_idle(&self) {
        let mut state = self.lock();
        let data_end = state.data_end;
        if state.backlog.as_mut().is_some_and(|backlog| backlog.take_back(data_end)) {
            self.end.store(data_end, Ordering::Release);
        }
    }

    /// Begins anew behind this offset of a primary's history: its snapshot has taken the place of all data.
    pub fn restart(&self, offset: u64) {
        let mut state = self.lock();
        (state.backlog, state.data_end) = (Some(Backlog::begin(offset)), offset);
        self.end.store(offset, Ordering::Release);
    }

    /// Begins anew behind this offset of a history, which the data are of: they were loaded from a file of it. The source stays. The caller is
    /// alone behind the gate.
    pub(crate) fn resume(&self, offset: u64) {
        let mut state = self.lock();
        self.take_all(&mut state);
        (state.backlog, state.data_end) = (Some(Backlog::begin(offset)), offset);
        state.feed.forget_database();
        state.marks = VecDeque::from([UnitMark { position: state.taken, offset }]);
        self.end.store(offset, Ordering::Release);
    }

    /// Ends the stream: no replica is there, nor expected back. The caller is alone behind the gate.
    pub fn end_stream(&self, journal: &Journal) {
        let mut state = self.lock();
        if let Source::Journal(merge) = std::mem::take(&mut state.source) {
            journal.end_alone(merge);
        }
        self.is_own.store(false, Ordering::Relaxed);
        state.backlog = None;
        self.memory_bytes.store(0, Ordering::Relaxed);
        state.marks.clear();
    }

    /// Adds bytes of the primary's stream that have been applied.
    pub fn append(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if let Some(backlog) = &mut state.backlog {
            backlog.append(bytes);
            let end = backlog.end();
            if !is_idle(bytes) {
                state.data_end = end;
            }
            self.end.store(end, Ordering::Release);
        }
        drop(state);
        self.ring();
    }

    /// Whether there are units that have not been taken.
    pub fn has_units(&self) -> bool {
        match &mut self.lock().source {
            Source::Journal(merge) => merge.has_unit(),
            Source::None | Source::Primary => false,
        }
    }

    /// Turns units that there are into bytes of the stream, some at a time. Says whether there were any.
    pub fn take(&self) -> bool {
        self.take_some(&mut self.lock())
    }

    fn take_some(&self, state: &mut Streaming) -> bool {
        let Streaming {
            source: Source::Journal(merge),
            backlog: Some(backlog),
            is_held: false,
            feed,
            taken,
            marks,
            chunk,
            data_end,
            ..
        } = state
        else {
            return false;
        };
        while chunk.len() < CHUNK_BYTES
            && let Some(unit) = merge.next_unit()
        {
            *taken = unit.position;
            feed.unit(unit.entries(), chunk);
            if unit.entries().any(|entry| entry.kind != Kind::Message) {
                *data_end = backlog.end() + chunk.len() as u64;
            }
        }
        if chunk.is_empty() {
            return false;
        }
        backlog.append(chunk);
        self.note_memory(backlog);
        chunk.clear();
        chunk.shrink_to(2 * CHUNK_BYTES);
        note_mark(marks, UnitMark { position: *taken, offset: backlog.end() });
        self.end.store(backlog.end(), Ordering::Release);
        true
    }

    /// Has nothing be added to what there is of this server's units by now but a question, if `asks`. The caller is alone behind the gate.
    pub(crate) fn hold(&self, asks: bool) {
        let mut state = self.lock();
        self.take_all(&mut state);
        if asks {
            // Behind all units, so that an answer to it tells of all.
            self.add_to(&mut state, ASK);
        }
        state.is_held = true;
    }

    /// Goes on with this server's units.
    pub(crate) fn release(&self) {
        self.lock().is_held = false;
    }

    /// Whether nothing is added.
    pub(crate) fn is_held(&self) -> bool {
        self.lock().is_held
    }

    fn take_all(&self, state: &mut Streaming) {
        while self.take_some(state) {}
    }

    /// Notes that a snapshot begins. What follows begins by selecting its database: it is read by a replica that has a snapshot of this
    /// moment, and nothing of what is before. The caller is alone behind the gate.
    pub(crate) fn note_cut(&self) {
        let mut state = self.lock();
        self.take_all(&mut state);
        state.feed.forget_database();
        state.cut = self.end();
        // A replica that has the snapshot has nothing of what is before.
        state.data_end = state.cut;
    }

    /// The offset of the data at this moment, if the stream is made of this server's units. What follows begins by selecting its database:
    /// it is read by a server that has a file of this moment. The caller is alone behind the gate.
    pub(crate) fn cut_for_file(&self) -> Option<u64> {
        let mut state = self.lock();
        if !matches!(state.source, Source::Journal(_)) {
            return None;
        }
        self.take_all(&mut state);
        state.feed.forget_database();
        Some(self.end())
    }

    /// The offset at which the snapshot began that was begun last.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.lock().cut
    }

    /// Adds a sign of life, unless the stream is a primary's, which has its own.
    pub fn ping(&self) {
        self.add(PING);
    }

    /// Asks the replicas how far they are, which they answer at once.
    pub fn ask(&self) {
        self.add(ASK);
    }

    fn add(&self, bytes: &[u8]) {
        self.add_to(&mut self.lock(), bytes);
    }

    fn add_to(&self, state: &mut Streaming, bytes: &[u8]) {
        if let Streaming { source: Source::Journal(_), backlog: Some(backlog), is_held: false, .. } = state {
            backlog.append(bytes);
            self.end.store(backlog.end(), Ordering::Release);
        }
    }

    /// Whether the stream is made of this server's units. It doesn't change while a thread is inside the gate.
    #[inline]
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Calls `look` with the backlog, if there is one.
    pub fn with_backlog<T>(&self, look: impl FnOnce(&Backlog) -> T) -> Option<T> {
        self.lock().backlog.as_ref().map(look)
    }

    /// Gives up what is beyond `size` bytes and not needed by a replica. `needed` is the least offset that one is at.
    pub fn trim(&self, size: u64, needed: u64) {
        if let Some(backlog) = &mut self.lock().backlog {
            backlog.trim(size, needed);
            self.note_memory(backlog);
        }
    }

    /// Puts on a shelf what memory has no room for. See [`Backlog::spill`].
    ///
    /// # Errors
    /// If there can't be one, or it takes no more.
    pub fn spill(&self, memory_max: u64, make: impl FnOnce() -> io::Result<Box<dyn Shelf>>) -> io::Result<()> {
        let mut state = self.lock();
        let Some(backlog) = &mut state.backlog else { return Ok(()) };
        let spilled = backlog.spill(memory_max, make);
        self.note_memory(backlog);
        spilled
    }

    /// The last unit that is known to be in the first `offset` bytes. `acknowledged` is the least offset that is asked for from now on.
    pub fn position_at(&self, offset: u64, acknowledged: u64) -> Position {
        let mut state = self.lock();
        let marks = &mut state.marks;
        while marks.get(1).is_some_and(|mark| mark.offset <= acknowledged) {
            marks.pop_front();
        }
        let after = marks.partition_point(|mark| mark.offset <= offset);
        after.checked_sub(1).and_then(|index| marks.get(index)).map_or(0, |mark| mark.position)
    }
}

/// Whether all of these whole commands of a stream change nothing: messages, signs of life and questions.
fn is_idle(mut bytes: &[u8]) -> bool {
    while let Some(rest) =
        bytes.strip_prefix(PING).or_else(|| bytes.strip_prefix(ASK)).or_else(|| behind_message(bytes))
    {
        bytes = rest;
    }
    bytes.is_empty()
}

/// What comes behind a message at the beginning of these bytes, if there is one.
fn behind_message(bytes: &[u8]) -> Option<&[u8]> {
    let (name, rest) = split_bulk(bytes.strip_prefix(b"*3\r\n")?)?;
    let is_message = name.eq_ignore_ascii_case(b"PUBLISH") || name.eq_ignore_ascii_case(b"SPUBLISH");
    let (_, rest) = if is_message { split_bulk(rest)? } else { return None };
    split_bulk(rest).map(|(_, rest)| rest)
}

/// A bulk string and what comes behind it.
fn split_bulk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bytes = bytes.strip_prefix(b"$")?;
    let digits = bytes.iter().position(|&byte| byte == b'\r')?;
    let len = usize::try_from(parse_i64(&bytes[..digits])?).ok()?;
    let (text, rest) = bytes.get(digits + 2..)?.split_at_checked(len)?;
    Some((text, rest.strip_prefix(b"\r\n")?))
}

pub(super) fn note_mark(marks: &mut VecDeque<UnitMark>, mark: UnitMark) {
    // The place of the one before is as good for what is at or behind this one.
    if marks.len() >= MARKS_MAX {
        marks.pop_back();
    }
    marks.push_back(mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_is_known() {
        let message = b"*3\r\n$7\r\npublish\r\n$1\r\nc\r\n$2\r\n\r\n\r\n";
        let change = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        assert!(is_idle(&[PING, message, ASK, message].concat()) && is_idle(b""));
        assert!(!is_idle(&[&message[..], change].concat()) && !is_idle(&message[..message.len() - 1]));
    }

    #[test]
    fn what_a_replica_has_is_told_in_units() {
        let stream = Stream::default();
        let marks = [(7, 0), (9, 100), (20, 150), (21, 400)].map(|(position, offset)| UnitMark { position, offset });
        stream.lock().marks = VecDeque::from(marks);
        let at = |offset| stream.position_at(offset, 0);
        assert_eq!([at(0), at(99), at(100), at(399), at(1000)], [7, 7, 9, 20, 21]);
        assert_eq!(stream.position_at(400, 160), 21);
        let kept = stream.lock().marks.len();
        assert_eq!((kept, stream.position_at(120, 120)), (2, 0));
    }

    #[test]
    fn too_many_marks_lose_none_that_is_needed_for_the_end() {
        let mut marks = VecDeque::new();
        for place in 0..MARKS_MAX as u64 + 10 {
            note_mark(&mut marks, UnitMark { position: place, offset: place });
        }
        assert_eq!((marks.len(), marks.front().unwrap().position), (MARKS_MAX, 0));
        assert_eq!(marks.back().unwrap().position, MARKS_MAX as u64 + 9);
    }
}
