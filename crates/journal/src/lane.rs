//! A lane: the units of one worker thread on their way to the reader, in the order in which the thread committed them.
//!
//! One thread writes and one reads, without a lock for each unit. A lane is a chain of segments. A unit is whole within
//! one segment, and becomes visible to the reader by one store of the segment's length:
//!
//! ```text
//! segment:  | frame | frame | ... | room |         ready: words that hold whole frames
//! frame:    | position, u64 | bytes of the record, u64 | the record, padded to 8 bytes |
//! ```
//!
//! Bytes are kept in atomic words, so that sharing them needs no unsafe code; the words are written and read with plain
//! moves. Two segments take turns while the reader keeps up. When it comes less often, it leaves some more behind for the writer, and
//! gives them back one by one when it finds nothing. [`Writer::waiting_bytes`] tells what the reader has not
//! taken yet; the worker asks for it where it admits a batch, since a unit that holds shards must not wait.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
/// The bit of [`Segment::ready`] that tells that there is a next segment and this one gets nothing more.
const CLOSED: usize = 1 << (usize::BITS - 1);

struct Segment {
    words: Box<[AtomicU64]>,
    ready: AtomicUsize,
    /// Set before the segment is closed, taken by the reader.
    next: Mutex<Option<Arc<Segment>>>,
}

impl Segment {
    fn new(words: usize) -> Arc<Segment> {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Segment { words, ready: AtomicUsize::new(0), next: Mutex::new(None) })
    }
}

#[derive(Default)]
struct Shared {
    /// Bytes of frames that have been appended, and those that the reader has taken.
    appended: AtomicUsize,
    taken: AtomicUsize,
    /// Empty segments that the reader has no more use for.
    spares: Mutex<Vec<Arc<Segment>>>,
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

/// The reader's end of a lane.
pub struct Reader {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    /// Words of the segment that have been read.
    at: usize,
    /// What was read and not handed out: whole frames from `head` on.
    read: Vec<u8>,
    head: usize,
}

/// An empty lane.
#[must_use]
pub fn lane() -> (Writer, Reader) {
    // Without room: a journal that nothing reads takes no memory.
    let (shared, segment) = (Arc::<Shared>::default(), Segment::new(0));
    let writer = Writer { shared: shared.clone(), segment: segment.clone(), at: 0 };
    (writer, Reader { shared, segment, at: 0, read: Vec::new(), head: 0 })
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
        *lock(&self.segment.next) = Some(next.clone());
        self.segment.ready.store(self.at | CLOSED, Ordering::Release);
        (self.segment, self.at) = (next, 0);
    }

    /// Bytes that the reader has not taken yet.
    #[inline]
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.appended.load(Ordering::Relaxed).wrapping_sub(self.shared.taken.load(Ordering::Relaxed))
    }
}

impl Reader {
    /// The position of the first unit that has not been taken.
    pub fn head(&mut self) -> Option<Position> {
        if self.head == self.read.len() {
            self.fill();
        }
        self.read.get(self.head..self.head + WORD).map(number)
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
        self.read.clear();
        self.head = 0;
        loop {
            let ready = self.segment.ready.load(Ordering::Acquire);
            let end = self.copied_to(ready & !CLOSED);
            let words = &self.segment.words[self.at..end];
            self.read.resize(words.len() * WORD, 0);
            let (copies, _) = self.read.as_chunks_mut::<WORD>();
            for (copy, word) in copies.iter_mut().zip(words) {
                *copy = word.load(Ordering::Relaxed).to_le_bytes();
            }
            self.at = end;
            let taken = self.shared.taken.load(Ordering::Relaxed).wrapping_add(self.read.len());
            if !self.read.is_empty() || ready & CLOSED == 0 {
                if self.read.is_empty() {
                    self.give_back();
                }
                return self.shared.taken.store(taken, Ordering::Relaxed);
            }
            let Some(next) = lock(&self.segment.next).take() else { return };
            let used = std::mem::replace(&mut self.segment, next);
            self.at = 0;
            if used.words.len() == SEGMENT_WORDS {
                let mut spares = lock(&self.shared.spares);
                if spares.len() < SPARES_MAX {
                    spares.push(used);
                }
            }
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
    fn give_back(&mut self) {
        let mut spares = lock(&self.shared.spares);
        let surplus = if spares.len() > 1 { spares.pop() } else { None };
        // The lock before the memory: the writer may wait for it.
        drop(spares);
        drop(surplus);
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

    #[test]
    fn units_come_out_as_they_went_in() {
        let (mut writer, mut reader) = lane();
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
        let (mut writer, mut reader) = lane();
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
        let (mut writer, mut reader) = lane();
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
        let (mut writer, mut reader) = lane();
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
}
