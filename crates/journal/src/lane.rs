//! A lane: a queue of one worker thread's units for the readers, in the order in which the thread committed them.
//!
//! One thread writes and up to three read, each at its own pace, without a lock per unit. A lane is a chain of segments.
//! A unit never spans segments, and becomes visible to the readers by one store of the segment's length:
//!
//! ```text
//! segment:  | frame | frame | ... | free |         ready: words that hold whole frames
//! frame:    | position, u64 | bytes of the record, u64 | the record, padded to 8 bytes |
//! ```
//!
//! The bytes are in atomic words, so that sharing them needs no unsafe code; the words are written and read with plain
//! moves. Two segments alternate while the readers keep up. Segments that all readers have read are reused. Some spare
//! segments are kept for bursts, and freed one by one when a reader finds nothing. [`Writer::waiting_bytes`] returns
//! the backlog of the slower reader; the worker checks it when it admits a batch, because a unit that holds shards must
//! not wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::order::Position;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Words before a frame's record.
const HEAD_WORDS: usize = 2;
/// Words of an ordinary segment: 256 KB, about 4,000 small units. A larger unit gets a segment of its own size.
const SEGMENT_WORDS: usize = 32 * 1024;
/// Words that the reader copies at once: few enough to be still in the first-level cache when it returns them.
const COPIED_WORDS: usize = 2 * 1024;
/// Maximum number of spare segments: as many as a thread fills in the hundredth of a second for which the log's thread
/// sleeps. New segments cost page faults.
const SPARES_MAX: usize = 16;
/// Maximum number of readers: one per [`Audience`].
const READERS: usize = 3;
/// The bit of [`Segment::ready`] that marks a segment as complete, with a next segment.
const CLOSED: usize = 1 << (usize::BITS - 1);

struct Segment {
    words: Box<[AtomicU64]>,
    ready: AtomicUsize,
    /// Set before the segment is closed.
    next: Mutex<Option<Arc<Segment>>>,
}

impl Segment {
    fn new(words: usize) -> Segment {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Segment { words, ready: AtomicUsize::new(0), next: Mutex::new(None) }
    }
}

/// The purpose of a reader. Each has at most one reader at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// The append-only file.
    File = 0,
    /// Replicas.
    Replicas = 1,
    /// The node that takes over slots of this one.
    Slots = 2,
}

/// Progress of a reader.
#[derive(Default)]
struct Seat {
    is_taken: AtomicBool,
    /// Bytes of frames that the reader has taken.
    taken: AtomicUsize,
}

struct Shared {
    /// Bytes of frames that have been appended.
    appended: AtomicUsize,
    seats: [Seat; READERS],
    /// Empty segments that no reader needs any more, and their number.
    spares: Mutex<Vec<Segment>>,
    spare_count: AtomicUsize,
    /// The segment that is being written.
    current: Mutex<Arc<Segment>>,
}

impl Shared {
    /// Returns the bytes that the slower reader has not taken yet.
    #[inline]
    fn waiting_bytes(&self) -> usize {
        let appended = self.appended.load(Ordering::Relaxed);
        let waiting = |seat: &Seat| match seat.is_taken.load(Ordering::Relaxed) {
            // Negative on another thread, if the reader takes bytes between the two loads.
            true => {
                usize::try_from(appended.wrapping_sub(seat.taken.load(Ordering::Relaxed)).cast_signed()).unwrap_or(0)
            }
            false => 0,
        };
        self.seats.iter().map(waiting).max().unwrap_or(0)
    }

    /// Drops a reference to a closed segment. The last one to do so saves the segment for reuse.
    fn leave(&self, segment: Arc<Segment>) {
        let Some(segment) = Arc::into_inner(segment).filter(|segment| segment.words.len() == SEGMENT_WORDS) else {
            return;
        };
        *lock(&segment.next) = None;
        let mut spares = lock(&self.spares);
        if spares.len() < SPARES_MAX {
            spares.push(segment);
        }
        self.spare_count.store(spares.len(), Ordering::Relaxed);
    }

    /// Takes a spare segment.
    fn take_spare(&self) -> Option<Segment> {
        let mut spares = lock(&self.spares);
        let spare = spares.pop();
        self.spare_count.store(spares.len(), Ordering::Relaxed);
        spare
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks are consistent even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The worker's end of a lane.
pub struct Writer {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    /// Used words of the segment.
    at: usize,
}

/// Lets readers join a lane.
pub struct Lane {
    shared: Arc<Shared>,
}

/// A reader's end of a lane. Dropping it stops the reading.
pub struct Reader {
    shared: Arc<Shared>,
    audience: Audience,
    segment: Arc<Segment>,
    /// Words of the segment that have been read.
    at: usize,
    /// The copied data: whole frames up to `filled`; those before `head` have been returned.
    read: Vec<u8>,
    filled: usize,
    head: usize,
}

/// Returns an empty lane.
#[must_use]
pub fn lane() -> (Writer, Lane) {
    // Zero capacity: a journal without readers takes no memory.
    let segment = Arc::new(Segment::new(0));
    let shared = Arc::new(Shared {
        appended: AtomicUsize::new(0),
        seats: Default::default(),
        spares: Mutex::default(),
        spare_count: AtomicUsize::new(0),
        current: Mutex::new(segment.clone()),
    });
    (Writer { shared: shared.clone(), segment, at: 0 }, Lane { shared })
}

impl Lane {
    /// Returns a reader of all units appended after the call, or None if this audience already has a reader. No units
    /// may be appended during the call.
    #[must_use]
    pub fn join(&self, audience: Audience) -> Option<Reader> {
        let seat = &self.shared.seats[audience as usize];
        if seat.is_taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        seat.taken.store(self.shared.appended.load(Ordering::Relaxed), Ordering::Relaxed);
        let segment = lock(&self.shared.current).clone();
        let at = segment.ready.load(Ordering::Acquire) & !CLOSED;
        Some(Reader { shared: self.shared.clone(), audience, segment, at, read: Vec::new(), filled: 0, head: 0 })
    }

    /// Returns the memory of the units that the slower reader has not taken yet, and of spare segments, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.shared.waiting_bytes() + self.shared.spare_count.load(Ordering::Relaxed) * SEGMENT_WORDS * WORD
    }
}

impl Writer {
    /// Appends a unit, which the readers see at once. The positions in a lane ascend.
    #[inline]
    pub fn append(&mut self, position: Position, record: &[u8]) {
        self.append_words(position, None, record);
    }

    /// Appends a unit of one command, without a record buffer. `head` comes from
    /// [`entry_head`](crate::record::entry_head).
    #[inline]
    pub fn append_command(&mut self, position: Position, head: u64, command: &[u8]) {
        self.append_words(position, Some(head), command);
    }

    #[inline(always)]
    fn append_words(&mut self, position: Position, first: Option<u64>, rest: &[u8]) {
        let head_words = HEAD_WORDS + usize::from(first.is_some());
        let words = head_words + rest.len().div_ceil(WORD);
        if self.segment.words.len() - self.at < words {
            self.begin_segment(words);
        }
        let frame = &self.segment.words[self.at..self.at + words];
        let record_bytes = (head_words - HEAD_WORDS) * WORD + rest.len();
        let head = [position, record_bytes as u64, first.unwrap_or(0)];
        for (word, value) in frame.iter().zip(&head[..head_words]) {
            word.store(*value, Ordering::Relaxed);
        }
        let (whole, tail) = rest.as_chunks::<WORD>();
        for (word, bytes) in frame[head_words..].iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            let last = match rest.last_chunk() {
                Some(last) => u64::from_le_bytes(*last) >> (u64::BITS as usize - 8 * tail.len()),
                None => padded(tail),
            };
            frame[words - 1].store(last, Ordering::Relaxed);
        }
        self.at += words;
        let appended = &self.shared.appended;
        appended.store(appended.load(Ordering::Relaxed).wrapping_add(words * WORD), Ordering::Relaxed);
        // After the words, because readers read only up to here.
        self.segment.ready.store(self.at, Ordering::Release);
    }

    #[cold]
    fn begin_segment(&mut self, words: usize) {
        let spare = if words <= SEGMENT_WORDS { self.shared.take_spare() } else { None };
        let next = spare.unwrap_or_else(|| Segment::new(words.max(SEGMENT_WORDS)));
        next.ready.store(0, Ordering::Relaxed);
        let next = Arc::new(next);
        *lock(&self.shared.current) = next.clone();
        let full = std::mem::replace(&mut self.segment, next.clone());
        *lock(&full.next) = Some(next);
        full.ready.store(self.at | CLOSED, Ordering::Release);
        self.at = 0;
        // Frees the full segment if no reader needs it any more.
        self.shared.leave(full);
    }

    /// Returns the bytes that the slower reader has not taken yet.
    #[inline]
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.waiting_bytes()
    }
}

impl Reader {
    /// Returns the position of the first unit that has not been taken.
    pub fn head(&mut self) -> Option<Position> {
        if self.head == self.filled {
            self.fill();
        }
        self.read[..self.filled].get(self.head..self.head + WORD).map(number)
    }

    /// Takes the first unit and returns its record, which is empty if there is no unit.
    pub fn take(&mut self) -> &[u8] {
        if self.head().is_none() {
            return &[];
        }
        let start = self.head + HEAD_WORDS * WORD;
        let len = number(&self.read[self.head + WORD..start]) as usize;
        self.head = start + len.next_multiple_of(WORD);
        &self.read[start..start + len]
    }

    /// Copies some of the segment's frames, and continues with the next segment after the last frame.
    fn fill(&mut self) {
        (self.head, self.filled) = (0, 0);
        loop {
            let ready = self.segment.ready.load(Ordering::Acquire);
            let end = self.copied_to(ready & !CLOSED);
            let words = &self.segment.words[self.at..end];
            self.filled = words.len() * WORD;
            // The buffer never shrinks, because growing it again would first fill it with zeros.
            if self.read.len() < self.filled {
                self.read.resize(self.filled, 0);
            }
            let (copies, _) = self.read.as_chunks_mut::<WORD>();
            for (copy, word) in copies.iter_mut().zip(words) {
                *copy = word.load(Ordering::Relaxed).to_le_bytes();
            }
            self.at = end;
            let seat = &self.shared.seats[self.audience as usize];
            let taken = seat.taken.load(Ordering::Relaxed).wrapping_add(self.filled);
            if self.filled != 0 || ready & CLOSED == 0 {
                if self.filled == 0 {
                    self.give_back();
                }
                return seat.taken.store(taken, Ordering::Relaxed);
            }
            let Some(next) = lock(&self.segment.next).clone() else { return };
            let used = std::mem::replace(&mut self.segment, next);
            self.at = 0;
            self.shared.leave(used);
        }
    }

    /// Returns the end of the whole frames to copy, at most `ready`.
    fn copied_to(&self, ready: usize) -> usize {
        let words = &self.segment.words;
        let mut end = self.at;
        while end < ready && end - self.at < COPIED_WORDS {
            let record_bytes = words[end + 1].load(Ordering::Relaxed) as usize;
            end += HEAD_WORDS + record_bytes.div_ceil(WORD);
        }
        end
    }

    /// Frees one spare segment, unless it is the last.
    fn give_back(&self) {
        // The lock is released before the memory is freed, because the writer may wait for it.
        if self.shared.spare_count.load(Ordering::Relaxed) > 1 {
            drop(self.shared.take_spare());
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.seats[self.audience as usize].is_taken.store(false, Ordering::Relaxed);
    }
}

/// Returns less than a word's bytes as a word.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a lane with a reader.
    fn read_lane() -> (Writer, Reader) {
        let (writer, lane) = lane();
        let reader = lane.join(Audience::File).unwrap();
        (writer, reader)
    }

    #[test]
    fn units_come_out_as_they_went_in() {
        let (mut writer, mut reader) = read_lane();
        assert_eq!((reader.head(), reader.take().len()), (None, 0));
        let units: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; usize::from(i)]).collect();
        for (position, unit) in units.iter().enumerate() {
            if let Some((head, rest)) = unit.split_first_chunk() {
                writer.append_command(position as u64 + 1, u64::from_le_bytes(*head), rest);
            } else {
                writer.append(position as u64 + 1, unit);
            }
        }
        for (position, unit) in units.iter().enumerate() {
            assert_eq!(reader.head(), Some(position as u64 + 1));
            assert_eq!(reader.take(), unit);
        }
        assert_eq!(reader.head(), None);
        assert_eq!(writer.waiting_bytes(), 0);
    }

    #[test]
    fn units_may_fill_many_segments_and_exceed_a_segment() {
        let (mut writer, mut reader) = read_lane();
        let sizes = [100_000, 3_000_000, 1, 200_000, 300_000, 7];
        for round in 0..4u64 {
            for (index, size) in sizes.iter().enumerate() {
                writer.append(round * 10 + index as u64, &vec![index as u8; *size]);
            }
            assert!(writer.waiting_bytes() > 3_600_000);
            for (index, size) in sizes.iter().enumerate() {
                assert_eq!(reader.head(), Some(round * 10 + index as u64));
                assert_eq!(reader.take(), vec![index as u8; *size]);
            }
            assert_eq!(reader.head(), None);
            assert_eq!(writer.waiting_bytes(), 0);
        }
    }

    #[test]
    fn segments_are_kept_after_a_burst_and_freed_when_idle() {
        let (mut writer, mut reader) = read_lane();
        let spares = |reader: &Reader| lock(&reader.shared.spares).len();
        for position in 0..20 {
            writer.append(position, &vec![1; SEGMENT_WORDS * WORD / 2]);
        }
        while reader.head().is_some() {
            reader.take();
        }
        assert!((SPARES_MAX - 1..=SPARES_MAX).contains(&spares(&reader)), "{}", spares(&reader));
        for _ in 0..SPARES_MAX {
            assert_eq!(reader.head(), None);
        }
        assert_eq!(spares(&reader), 1);
    }

    #[test]
    fn memory_includes_spare_segments() {
        let (mut writer, lane) = lane();
        let mut reader = lane.join(Audience::File).unwrap();
        for position in 0..8 {
            writer.append(position, &vec![1; SEGMENT_WORDS * WORD / 2]);
        }
        assert!(lane.memory() >= 4 * SEGMENT_WORDS * WORD);
        while reader.head().is_some() {
            reader.take();
        }
        assert_eq!(writer.waiting_bytes(), 0);
        assert_eq!(lane.memory(), lock(&lane.shared.spares).len() * SEGMENT_WORDS * WORD);
        assert!(lane.memory() >= 4 * SEGMENT_WORDS * WORD);
    }

    #[test]
    fn a_concurrent_reader_loses_nothing() {
        const UNITS: u64 = if cfg!(miri) { 300 } else { 200_000 };
        let (mut writer, mut reader) = read_lane();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 1..=UNITS {
                    writer.append(i, &i.to_le_bytes().repeat(1 + (i % 9) as usize));
                }
            });
            let mut next = 1;
            while next <= UNITS {
                match reader.head() {
                    None => std::thread::yield_now(),
                    Some(position) => {
                        assert_eq!(position, next);
                        assert_eq!(reader.take(), next.to_le_bytes().repeat(1 + (next % 9) as usize));
                        next += 1;
                    }
                }
            }
        });
    }

    #[test]
    fn two_readers_go_at_their_own_pace_and_segments_are_reused() {
        let (mut writer, lane) = lane();
        writer.append(1, b"before");
        let mut fast = lane.join(Audience::File).unwrap();
        assert!(lane.join(Audience::File).is_none());
        let unit = vec![7; SEGMENT_WORDS * WORD / 3];
        writer.append(2, &unit);
        let mut slow = lane.join(Audience::Replicas).unwrap();
        for position in 3..=20 {
            writer.append(position, &unit);
            assert_eq!((fast.head(), fast.take().len()), (Some(position - 1), unit.len()));
        }
        assert!(writer.waiting_bytes() > 17 * unit.len());
        let spares = |lane: &Lane| lock(&lane.shared.spares).len();
        assert_eq!(spares(&lane), 0, "the slow reader still needs them");
        for position in 3..=20 {
            assert_eq!((slow.head(), slow.take()), (Some(position), &unit[..]));
        }
        assert!(spares(&lane) > 5, "{}", spares(&lane));
        assert_eq!((fast.head(), slow.head()), (Some(20), None));
        drop(fast);
        assert_eq!(writer.waiting_bytes(), 0);
        let mut fast = lane.join(Audience::File).unwrap();
        writer.append(21, &unit);
        assert_eq!((fast.head(), slow.head()), (Some(21), Some(21)));
    }

    #[test]
    fn two_concurrent_readers_lose_nothing() {
        const UNITS: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let (mut writer, lane) = lane();
        let readers = [Audience::File, Audience::Replicas].map(|audience| lane.join(audience).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 1..=UNITS {
                    writer.append(i, &i.to_le_bytes().repeat(1 + (i % 9) as usize));
                }
            });
            for mut reader in readers {
                scope.spawn(move || {
                    let mut next = 1;
                    while next <= UNITS {
                        match reader.head() {
                            None => std::thread::yield_now(),
                            Some(position) => {
                                assert_eq!(position, next);
                                assert_eq!(reader.take(), next.to_le_bytes().repeat(1 + (next % 9) as usize));
                                next += 1;
                            }
                        }
                    }
                });
            }
        });
    }
}
