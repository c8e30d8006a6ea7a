//! The stream to replicas: the last bytes of this server's history, and their source.
//!
//! The source of a primary is its journal: a separate thread turns units into bytes ([`Stream::take`]). The source of a
//! replica is its primary's stream, byte for byte as it was applied ([`Stream::append`]). Offsets thus mean the same on
//! all servers of a history. The source changes behind the closed gate, so no unit is lost or duplicated.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use journal::merge::Merge;
use journal::order::Position;
use journal::record::Kind;
use replication::backlog::{Backlog, Overflow};
use replication::feed::{ASK, Feed, PING};
use resp::num::parse_i64;

use crate::inbox::Wake;
use crate::journal::Journal;

/// The number of bytes that are assembled at once, small enough to stay in the second-level cache until they are sent.
const CHUNK_BYTES: usize = 128 << 10;
/// The greatest number of marks, one for each chunk that a replica has not acknowledged; the backlog of a large write
/// burst has thousands of them. A replica at a dropped mark counts as being at the previous one.
const MARKS_MAX: usize = 1 << 16;

/// The greatest number of chunks that [`Stream::catch_up`] takes, because other threads may commit units all the time.
const CATCH_UP_CHUNKS_MAX: usize = 64;

/// The source of the bytes.
#[derive(Default)]
enum Source {
    /// There is none: nothing was replicated yet, or not for long.
    #[default]
    None,
    /// The units of this server.
    Journal(Merge),
    /// The stream of the primary.
    Primary,
}

/// The offset of the stream after a unit.
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
    /// Ascending. The first mark is at or before the least acknowledged offset.
    marks: VecDeque<UnitMark>,
    /// The memory of the chunk that is assembled.
    chunk: Vec<u8>,
    /// The offset of the last snapshot that began.
    cut: u64,
    /// True while this server's units are not added to the stream.
    is_held: bool,
    /// The offset of the last change. Only messages, pings and questions follow it, so the data are equal at each later
    /// offset.
    data_end: u64,
}

/// The figures of the stream for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogFigures {
    /// True if there is a backlog.
    pub is_active: bool,
    /// The offset before its first byte.
    pub start: u64,
    /// Its length in bytes.
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
    /// True if the source is this server's units.
    is_own: AtomicBool,
    /// True while the thread that takes units sleeps until it is woken.
    sleeps: AtomicBool,
    wake: OnceLock<Box<dyn Wake>>,
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, Streaming> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the length of the history in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Returns the offset after this server's last unit, without later pings and questions.
    #[must_use]
    pub fn units_end(&self) -> u64 {
        let last = self.lock().marks.back().map(|mark| mark.offset);
        last.unwrap_or_else(|| self.end())
    }

    /// Returns the bytes of the history that are in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    fn note_memory(&self, backlog: &Backlog) {
        self.memory_bytes.store(backlog.memory_bytes(), Ordering::Relaxed);
    }

    /// Returns the figures for INFO.
    #[must_use]
    pub fn figures(&self) -> BacklogFigures {
        self.lock().backlog.as_ref().map_or_else(BacklogFigures::default, |backlog| BacklogFigures {
            is_active: true,
            start: backlog.start(),
            bytes: backlog.bytes(),
        })
    }

    /// Sets the waker of the thread that serves replicas. Called once.
    pub fn set_wake(&self, wake: Box<dyn Wake>) {
        // Only one thread serves replicas, so no second waker is ever set.
        let _ = self.wake.set(wake);
    }

    /// Wakes the thread that serves replicas.
    pub fn wake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    /// Notes whether that thread sleeps until it is woken. The thread must check again for units after noting that it
    /// sleeps.
    pub fn note_sleep(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Wakes that thread if it sleeps and the source is this server's units. Called after a commit and a fence.
    #[inline]
    pub(crate) fn ring(&self) {
        if self.sleeps.load(Ordering::SeqCst) && self.is_own.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Returns whether there is a stream that replicas can continue in.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.lock().backlog.is_some()
    }

    /// Makes this server's units the source, after the present end. No effect if they are already. The caller is alone
    /// behind the gate.
    pub(crate) fn begin(&self, journal: &Journal) {
        let mut state = self.lock();
        if matches!(state.source, Source::Journal(_)) {
            return;
        }
        // There is no other reader for replicas, because it would be this source.
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

    /// Makes a primary's bytes the source, after the bytes of this server's units so far. The caller is alone behind
    /// the gate.
    pub(crate) fn follow(&self, journal: &Journal) {
        let mut state = self.lock();
        self.take_all(&mut state);
        if let Source::Journal(merge) = std::mem::replace(&mut state.source, Source::Primary) {
            journal.end_alone(merge);
        }
        self.is_own.store(false, Ordering::Relaxed);
        state.marks.clear();
    }

    /// Rewinds over trailing messages, pings and questions after the last change, because another primary of this
    /// history may lack them. Sentinel publishes every two seconds, even to a primary that it has just replaced.
    pub(crate) fn rewind_idle(&self) {
        let mut state = self.lock();
        let data_end = state.data_end;
        if state.backlog.as_mut().is_some_and(|backlog| backlog.take_back(data_end)) {
            self.end.store(data_end, Ordering::Release);
        }
    }

    /// Rewinds over trailing pings and questions that the replica that takes this server's place has not acknowledged,
    /// because it may lack them. The end stays at or behind its acknowledged offset: an earlier offset may precede the
    /// snapshot that the replica loaded, and its backlog would not reach back to it.
    pub(crate) fn take_back_questions(&self, acknowledged: u64) {
        let mut state = self.lock();
        let Some(end) = state.marks.back().map(|mark| mark.offset.max(acknowledged)) else { return };
        if state.backlog.as_mut().is_some_and(|backlog| backlog.take_back(end)) {
            self.end.store(end, Ordering::Release);
        }
    }

    /// Restarts after this offset of a primary's history, because its snapshot has replaced all data.
    pub fn restart(&self, offset: u64) {
        let mut state = self.lock();
        (state.backlog, state.data_end) = (Some(Backlog::begin(offset)), offset);
        self.end.store(offset, Ordering::Release);
    }

    /// Restarts after this offset of a history, because its data were loaded from a file. The source stays. The caller
    /// is alone behind the gate.
    pub(crate) fn resume(&self, offset: u64) {
        let mut state = self.lock();
        self.take_all(&mut state);
        (state.backlog, state.data_end) = (Some(Backlog::begin(offset)), offset);
        state.feed.forget_database();
        state.marks = VecDeque::from([UnitMark { position: state.taken, offset }]);
        self.end.store(offset, Ordering::Release);
    }

    /// Ends the stream: there is no replica, and none is expected back. The caller is alone behind the gate.
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

    /// Adds applied bytes of the primary's stream.
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

    /// Returns whether there are units that have not been taken.
    pub fn has_units(&self) -> bool {
        match &mut self.lock().source {
            Source::Journal(merge) => merge.has_unit(),
            Source::None | Source::Primary => false,
        }
    }

    /// Turns some pending units into bytes of the stream. Returns whether there were any.
    pub fn take(&self) -> bool {
        self.take_some(&mut self.lock())
    }

    /// Turns the units that are committed so far into bytes of the stream, up to a limit. Returns whether there were any.
    pub(crate) fn catch_up(&self) -> bool {
        let mut state = self.lock();
        (0..CATCH_UP_CHUNKS_MAX).take_while(|_| self.take_some(&mut state)).count() > 0
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
        let before = *taken;
        while chunk.len() < CHUNK_BYTES
            && let Some(unit) = merge.next_unit()
        {
            *taken = unit.position;
            feed.unit(unit.entries(), chunk);
            if unit.entries().any(|entry| entry.kind != Kind::Message && entry.kind.is_for_replicas()) {
                *data_end = backlog.end() + chunk.len() as u64;
            }
        }
        if chunk.is_empty() {
            if *taken > before {
                // The units concern the append-only file only, so up-to-date replicas count as having them.
                note_mark(marks, UnitMark { position: *taken, offset: backlog.end() });
            }
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

    /// Stops adding this server's later units to the stream. With `asks`, a question follows the last unit. The caller
    /// is alone behind the gate.
    pub(crate) fn hold(&self, asks: bool) {
        let mut state = self.lock();
        self.take_all(&mut state);
        if asks {
            // The question follows all units, so its answer covers them.
            self.add_to(&mut state, ASK);
        }
        state.is_held = true;
    }

    /// Adds the last command of a stopped stream, and a question that follows it. Returns the offset behind the command.
    pub(crate) fn add_last(&self, command: &[u8]) -> u64 {
        let mut state = self.lock();
        let is_held = std::mem::take(&mut state.is_held);
        self.add_to(&mut state, command);
        let end = self.end();
        self.add_to(&mut state, ASK);
        state.is_held = is_held;
        end
    }

    /// Adds a command that changes no data, behind all units so far, and a question. Returns the offset behind the
    /// command, or `u64::MAX` if the stream takes none now.
    pub(crate) fn add_request(&self, command: &[u8]) -> u64 {
        let mut state = self.lock();
        self.take_all(&mut state);
        let before = self.end();
        self.add_to(&mut state, command);
        let end = self.end();
        self.add_to(&mut state, ASK);
        if end > before { end } else { u64::MAX }
    }

    /// Continues with this server's units.
    pub(crate) fn release(&self) {
        self.lock().is_held = false;
    }

    /// Returns whether the stream is stopped.
    pub(crate) fn is_held(&self) -> bool {
        self.lock().is_held
    }

    fn take_all(&self, state: &mut Streaming) {
        while self.take_some(state) {}
    }

    /// Notes the start of a snapshot. The later stream begins with a SELECT, because a replica with this snapshot reads
    /// nothing before it. The caller is alone behind the gate.
    pub(crate) fn note_cut(&self) {
        let mut state = self.lock();
        self.take_all(&mut state);
        state.feed.forget_database();
        state.cut = self.end();
        // A replica with the snapshot has no earlier bytes.
        state.data_end = state.cut;
    }

    /// Returns the present offset of the data, if the source is this server's units. The later stream begins with a
    /// SELECT, because a server with a file of this moment may read it. The caller is alone behind the gate.
    pub(crate) fn cut_for_file(&self) -> Option<u64> {
        let mut state = self.lock();
        if !matches!(state.source, Source::Journal(_)) {
            return None;
        }
        self.take_all(&mut state);
        state.feed.forget_database();
        Some(self.end())
    }

    /// Returns the offset of the last snapshot that began.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.lock().cut
    }

    /// Adds a ping, unless the source is a primary's stream, which has its own.
    pub fn ping(&self) {
        self.add(PING);
    }

    /// Asks the replicas for their offsets, which they answer at once.
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

    /// Returns whether the source is this server's units. The source doesn't change while a thread is inside the gate.
    #[inline]
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Calls `look` with the backlog, if there is one.
    pub fn with_backlog<T>(&self, look: impl FnOnce(&Backlog) -> T) -> Option<T> {
        self.lock().backlog.as_ref().map(look)
    }

    /// Drops bytes beyond `size` that no replica needs. `needed` is the least offset of a replica.
    pub fn trim(&self, size: u64, needed: u64) {
        if let Some(backlog) = &mut self.lock().backlog {
            backlog.trim(size, needed);
            self.note_memory(backlog);
        }
    }

    /// Moves bytes beyond `memory_max` to disk. See [`Backlog::spill`].
    ///
    /// # Errors
    /// The overflow file can't be made, or takes no more.
    pub fn spill(&self, memory_max: u64, make: impl FnOnce() -> io::Result<Box<dyn Overflow>>) -> io::Result<()> {
        let mut state = self.lock();
        let Some(backlog) = &mut state.backlog else { return Ok(()) };
        let spilled = backlog.spill(memory_max, make);
        self.note_memory(backlog);
        spilled
    }

    /// Returns the last unit that is known to be within the first `offset` bytes. `acknowledged` is the least offset of
    /// all later calls.
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

/// Returns whether these whole commands change nothing: messages, pings and questions.
fn is_idle(mut bytes: &[u8]) -> bool {
    while let Some(rest) =
        bytes.strip_prefix(PING).or_else(|| bytes.strip_prefix(ASK)).or_else(|| behind_message(bytes))
    {
        bytes = rest;
    }
    bytes.is_empty()
}

/// Returns the bytes after a message at the start of these bytes, if there is one.
fn behind_message(bytes: &[u8]) -> Option<&[u8]> {
    let (name, rest) = split_bulk(bytes.strip_prefix(b"*3\r\n")?)?;
    let is_message = name.eq_ignore_ascii_case(b"PUBLISH") || name.eq_ignore_ascii_case(b"SPUBLISH");
    let (_, rest) = if is_message { split_bulk(rest)? } else { return None };
    split_bulk(rest).map(|(_, rest)| rest)
}

/// Returns a bulk string and the bytes after it.
fn split_bulk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bytes = bytes.strip_prefix(b"$")?;
    let digits = bytes.iter().position(|&byte| byte == b'\r')?;
    let len = usize::try_from(parse_i64(&bytes[..digits])?).ok()?;
    let (text, rest) = bytes.get(digits + 2..)?.split_at_checked(len)?;
    Some((text, rest.strip_prefix(b"\r\n")?))
}

pub(super) fn note_mark(marks: &mut VecDeque<UnitMark>, mark: UnitMark) {
    // The previous mark's offset is a valid lower bound for positions at or after this one.
    if marks.len() >= MARKS_MAX {
        marks.pop_back();
    }
    marks.push_back(mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_without_changes_are_recognized() {
        let message = b"*3\r\n$7\r\npublish\r\n$1\r\nc\r\n$2\r\n\r\n\r\n";
        let change = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        assert!(is_idle(&[PING, message, ASK, message].concat()) && is_idle(b""));
        assert!(!is_idle(&[&message[..], change].concat()) && !is_idle(&message[..message.len() - 1]));
    }

    #[test]
    fn an_offset_is_converted_to_the_last_unit_within_it() {
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
    fn too_many_marks_keep_the_first_and_the_last() {
        let mut marks = VecDeque::new();
        for place in 0..MARKS_MAX as u64 + 10 {
            note_mark(&mut marks, UnitMark { position: place, offset: place });
        }
        assert_eq!((marks.len(), marks.front().unwrap().position), (MARKS_MAX, 0));
        assert_eq!(marks.back().unwrap().position, MARKS_MAX as u64 + 9);
    }
}
