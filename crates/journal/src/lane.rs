//! A lane: the units of one worker thread on their way to the readers, in the order in which the thread committed them.
//!
//! One thread writes and up to two read, each at its own pace, without a lock for each unit. A lane is a chain of segments. A unit is
//! whole within one segment, and becomes visible to the readers by one store of the segment's length:
//!
//! ```text
//! segment:  | frame | frame | ... | room |         ready: words that hold whole frames
//! frame:    | position, u64 | bytes of the record, u64 | the record, padded to 8 bytes |
//! ```
//!
//! Bytes are kept in atomic words, so that sharing them needs no unsafe code; the words are written and read with plain
//! moves. Two segments take turns while the readers keep up. A segment that no reader has yet to read goes back to the writer; some
//! more of them are kept when readers come less often, and given back one by one when one finds nothing. [`Writer::waiting_bytes`] tells
//! what the slower reader has not taken yet; the worker asks for it where it admits a batch, since a unit that holds shards must not wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::order::Position;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Words before a frame's record.
const HEAD_WORDS: usize = 2;
/// Words of an ordinary segment: 256 KB, some 4,000 small units. A larger unit gets a segment of its own size.
const SEGMENT_WORDS: usize = 32 * 1024;
/// Words that the reader copies at once: few enough to be in the first-level cache still when it hands them out.
const COPIED_WORDS: usize = 2 * 1024;
/// Empty segments that are kept, at most: what a thread writes in the hundredth of a second for which the log's thread dozes. New ones
/// cost page faults.
const SPARES_MAX: usize = 16;
/// Readers of a lane, at most: one for each [`Audience`].
const READERS: usize = 2;
/// The bit of [`Segment::ready`] that tells that there is a next segment and this one gets nothing more.
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

/// What the units are read for. There is one reader for each at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// The append-only file.
    File = 0,
    /// Replicas.
    Replicas = 1,
}

/// How far a reader is.
#[derive(Default)]
struct Seat {
    is_taken: AtomicBool,
    /// Bytes of frames that it has taken.
    taken: AtomicUsize,
}

struct Shared {
    /// Bytes of frames that have been appended.
    appended: AtomicUsize,
    seats: [Seat; READERS],
    /// Empty segments that no reader has a use for any more.
    spares: Mutex<Vec<Segment>>,
    /// The segment that is written to.
    current: Mutex<Arc<Segment>>,
}

impl Shared {
    /// Gives up a closed segment. The last one that does so leaves it to be written again.
    fn leave(&self, segment: Arc<Segment>) {
        let Some(segment) = Arc::into_inner(segment).filter(|segment| segment.words.len() == SEGMENT_WORDS) else {
            return;
        };
        *lock(&segment.next) = None;
        let mut spares = lock(&self.spares);
        if spares.len() < SPARES_MAX {
            spares.push(segment);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The worker's end of a lane.
pub struct Writer {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    /// Words of the segment that are used.
    at: usize,
}

/// Where readers join a lane.
pub struct Lane {
    shared: Arc<Shared>,
}

/// A reader's end of a lane. Its end ends the reading.
pub struct Reader {
    shared: Arc<Shared>,
    audience: Audience,
    segment: Arc<Segment>,
    /// Words of the segment that have been read.
    at: usize,
    /// What was read: whole frames up to `filled`, of which those before `head` have been handed out.
    read: Vec<u8>,
    filled: usize,
    head: usize,
}

/// An empty lane.
#[must_use]
pub fn lane() -> (Writer, Lane) {
    // Without room: a journal that nothing reads takes no memory.
    let segment = Arc::new(Segment::new(0));
    let shared = Arc::new(Shared {
        appended: AtomicUsize::new(0),
        seats: Default::default(),
        spares: Mutex::default(),
        current: Mutex::new(segment.clone()),
    });
    (Writer { shared: shared.clone(), segment, at: 0 }, Lane { shared })
}

impl Lane {
    /// A reader of what is appended from now on. None if there is one for this audience. Nothing is appended meanwhile.
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
}

impl Writer {
    /// Appends a unit, which the reader sees at once. Positions of a lane ascend.
    #[inline]
    pub fn append(&mut self, position: Position, record: &[u8]) {
        self.append_words(position, None, record);
    }

    /// The same for a unit of one command, whose record has no need to be put together first. `head` is
    /// [`entry_head`](crate::record::entry_head)'s.
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
        // After the words: the reader looks at them only up to here.
        self.segment.ready.store(self.at, Ordering::Release);
    }

    #[cold]
    fn begin_segment(&mut self, words: usize) {
        let spare = if words <= SEGMENT_WORDS { lock(&self.shared.spares).pop() } else { None };
        let next = spare.unwrap_or_else(|| Segment::new(words.max(SEGMENT_WORDS)));
        next.ready.store(0, Ordering::Relaxed);
        let next = Arc::new(next);
        *lock(&self.shared.current) = next.clone();
        let full = std::mem::replace(&mut self.segment, next.clone());
        *lock(&full.next) = Some(next);
        full.ready.store(self.at | CLOSED, Ordering::Release);
        self.at = 0;
        // The readers may have left it already.
        self.shared.leave(full);
    }

    /// Bytes that the slower reader has not taken yet.
    #[inline]
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let appended = self.shared.appended.load(Ordering::Relaxed);
        let waiting = |seat: &Seat| match seat.is_taken.load(Ordering::Relaxed) {
            true => appended.wrapping_sub(seat.taken.load(Ordering::Relaxed)),
            false => 0,
        };
        self.shared.seats.iter().map(waiting).max().unwrap_or(0)
    }
}

impl Reader {
    /// The position of the first unit that has not been taken.
    pub fn head(&mut self) -> Option<Position> {
        if self.head == self.filled {
            self.fill();
        }
        self.read[..self.filled].get(self.head..self.head + WORD).map(number)
    }

    /// Takes the first unit's record. Empty if there is no unit.
    pub fn take(&mut self) -> &[u8] {
        if self.head().is_none() {
            return &[];
        }
        let start = self.head + HEAD_WORDS * WORD;
        let len = number(&self.read[self.head + WORD..start]) as usize;
        self.head = start + len.next_multiple_of(WORD);
        &self.read[start..start + len]
    }

    /// Copies some of what the segment has, and goes on to the next one behind its end.
    fn fill(&mut self) {
        (self.head, self.filled) = (0, 0);
        loop {
            let ready = self.segment.ready.load(Ordering::Acquire);
            let end = self.copied_to(ready & !CLOSED);
            let words = &self.segment.words[self.at..end];
            self.filled = words.len() * WORD;
            // It never shrinks: to make it longer writes zeros first.
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

    /// Where to end copying whole frames, of those that there are up to `ready`.
    fn copied_to(&self, ready: usize) -> usize {
        let words = &self.segment.words;
        let mut end = self.at;
        while end < ready && end - self.at < COPIED_WORDS {
            let record_bytes = words[end + 1].load(Ordering::Relaxed) as usize;
            end += HEAD_WORDS + record_bytes.div_ceil(WORD);
        }
        end
    }

    /// Gives a segment back that is kept beside those that take turns, if there is one.
    fn give_back(&self) {
        let mut spares = lock(&self.shared.spares);
        let surplus = if spares.len() > 1 { spares.pop() } else { None };
        // The lock before the memory: the writer may wait for it.
        drop(spares);
        drop(surplus);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.seats[self.audience as usize].is_taken.store(false, Ordering::Relaxed);
    }
}

/// Less than a word's bytes as a word.
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

    /// A lane with a reader.
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
    fn units_that_fill_many_segments_and_ones_larger_than_a_segment() {
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
    fn segments_are_kept_after_a_burst_and_given_back_when_nothing_comes() {
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
    fn a_reader_beside_a_writer_loses_nothing() {
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
    fn two_readers_go_at_their_own_pace_and_segments_are_written_again() {
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
        assert_eq!(spares(&lane), 0, "the slow one has yet to read them");
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
    fn two_readers_beside_a_writer_lose_nothing() {
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
