//! Send queue of one connection: a short chain of segments.
//!
//! Replies are written as plain bytes at the end of the chain. Large values are shared by reference until they are
//! sent. If the peer doesn't read, the queue can be folded ([`Output::fold`]): each run of one identical short reply
//! becomes a segment of constant size. Clients that read their replies pay nothing for that.
//!
//! A queue can be moved to another place as a whole. Its contents are read with `slices` and `advance`, for a socket or
//! a file. This module knows neither.

use std::collections::VecDeque;
use std::sync::Arc;

/// Minimum size of a shared value, in bytes, that is queued by reference. Copying a shorter one is cheaper than a
/// separate segment and another slice in the vectored write.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;
/// Minimum size, in bytes, for queueing by reference if several connections get the same bytes. A slow connection then
/// keeps no copy of its own, and fast ones share one copy.
pub const PUSH_SHARED_BYTES_MIN: usize = 1024;

/// Largest number of sent bytes that stay in front of unsent ones. Beyond it, they are removed once they are as many as
/// the unsent bytes.
const SENT_BYTES_MAX: usize = 64 * 1024;
/// Largest reply, in bytes, that is searched for runs. Longer replies seldom repeat.
const RUN_REPLY_BYTES_MAX: usize = 64;
/// Size of a run's block of repeated replies, in bytes. A vectored write of 64 slices then sends many replies at once.
const RUN_BLOCK_BYTES: usize = 4096;
/// Smallest run that is folded, in bytes; its savings must justify its block.
const RUN_BYTES_MIN: usize = 2 * RUN_BLOCK_BYTES;
/// Bytes that are counted for a segment in addition to its contents.
const SEGMENT_BYTES: usize = size_of::<Segment>();

/// A run of one short reply.
#[derive(Debug)]
pub struct RepeatedReply {
    /// The reply, repeated as often as it fits into [`RUN_BLOCK_BYTES`].
    block: Box<[u8]>,
    /// Length of the reply in bytes.
    unit: usize,
    /// Length of the run in bytes.
    bytes: usize,
}

impl RepeatedReply {
    fn new(reply: &[u8], bytes: usize) -> RepeatedReply {
        let block = reply.repeat(RUN_BLOCK_BYTES / reply.len());
        RepeatedReply { block: block.into(), unit: reply.len(), bytes }
    }

    fn reply(&self) -> &[u8] {
        &self.block[..self.unit]
    }

    /// The longest slice that begins at `at`.
    fn slice(&self, at: usize) -> &[u8] {
        let slice = &self.block[at % self.unit..];
        &slice[..slice.len().min(self.bytes - at)]
    }
}

/// A part of the queue.
#[derive(Debug)]
pub enum Segment {
    /// Bytes of written replies.
    Bytes(Vec<u8>),
    /// A large value, by reference.
    Shared(Arc<Vec<u8>>),
    /// A run of one short reply.
    RepeatedReply(RepeatedReply),
}

impl Segment {
    /// Number of bytes to send.
    fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Shared(bytes) => bytes.len(),
            Segment::RepeatedReply(run) => run.bytes,
        }
    }

    /// Number of bytes of memory. A shared value counts in full, since this queue may be its last owner.
    fn memory(&self) -> usize {
        let held = match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Shared(bytes) => bytes.len(),
            Segment::RepeatedReply(run) => run.block.len(),
        };
        held + SEGMENT_BYTES
    }

    /// Number of bytes of memory of a shared value, otherwise 0.
    fn shared_memory(&self) -> usize {
        if matches!(self, Segment::Shared(_)) { self.memory() } else { 0 }
    }

    /// The longest slice that begins at `at`.
    fn slice(&self, at: usize) -> &[u8] {
        match self {
            Segment::Bytes(bytes) => &bytes[at..],
            Segment::Shared(bytes) => &bytes[at..],
            Segment::RepeatedReply(run) => run.slice(at),
        }
    }
}

/// Send queue of one connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Complete segments; the first is sent first.
    sealed: VecDeque<Segment>,
    sealed_bytes: usize,
    sealed_memory: usize,
    /// The part of `sealed_memory` that shared values take.
    shared_memory: usize,
    /// Buffer for new replies.
    pub(crate) tail: Vec<u8>,
    /// Number of bytes of the first segment (the tail, if no segment is sealed) that were sent.
    sent: usize,
    /// Number of bytes of the tail that were searched for runs.
    searched: usize,
}

/// A position in an output, for cutting it back or filling in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    segments: usize,
    offset: usize,
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Output {
        Output { tail: bytes, ..Output::default() }
    }
}

impl Output {
    /// Number of unsent bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.sealed_bytes + self.tail.len() - self.sent
    }

    /// True if everything was sent.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory of the unsent data. Shared values count in full, although the keyspace may hold them as well.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sealed_memory + self.tail.len()
    }

    /// The part of [`memory`](Output::memory) that shared values take.
    #[must_use]
    pub fn shared_memory(&self) -> usize {
        self.shared_memory
    }

    /// Number of unsent segments, including the tail if it isn't empty.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.sealed.len() + usize::from(!self.tail.is_empty())
    }

    /// Appends bytes that are already encoded.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Allocates a block of this size for the next writes, instead of growing step by step.
    pub fn reserve_block(&mut self, bytes: usize) {
        self.tail.reserve_exact(bytes.saturating_sub(self.tail.len()));
    }

    /// Frees the unused capacity of the tail.
    pub fn give_unused_back(&mut self) {
        self.tail.shrink_to_fit();
    }

    /// Seals a block of this size if at least half of it is used.
    pub fn end_block(&mut self, bytes: usize) {
        if self.tail.len() >= bytes / 2 {
            self.seal();
        }
    }

    /// Appends a shared value.
    pub fn extend_shared(&mut self, bytes: Arc<Vec<u8>>) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.extend(&bytes);
        }
        self.seal();
        self.push(Segment::Shared(bytes));
    }

    /// Appends bytes that other connections get, too.
    pub fn extend_push(&mut self, bytes: &Arc<Vec<u8>>) {
        if bytes.len() < PUSH_SHARED_BYTES_MIN {
            return self.extend(bytes);
        }
        self.seal();
        self.push(Segment::Shared(bytes.clone()));
    }

    /// Bytes of memory that one more push of this size takes in a connection's output, excluding shared bytes.
    #[must_use]
    pub fn push_cost(bytes: usize) -> usize {
        if bytes < PUSH_SHARED_BYTES_MIN { bytes } else { SEGMENT_BYTES }
    }

    fn push(&mut self, segment: Segment) {
        self.count(&segment);
        self.sealed.push_back(segment);
    }

    /// Adds a new segment to the sums.
    fn count(&mut self, segment: &Segment) {
        self.sealed_bytes += segment.len();
        self.sealed_memory += segment.memory();
        self.shared_memory += segment.shared_memory();
    }

    /// Removes the first or the last segment.
    fn pop(&mut self, first: bool) -> Option<Segment> {
        let segment = if first { self.sealed.pop_front() } else { self.sealed.pop_back() }?;
        self.sealed_bytes -= segment.len();
        self.sealed_memory -= segment.memory();
        self.shared_memory -= segment.shared_memory();
        Some(segment)
    }

    fn seal(&mut self) {
        self.searched = 0;
        if !self.tail.is_empty() {
            let bytes = std::mem::take(&mut self.tail);
            self.push(Segment::Bytes(bytes));
        }
    }

    /// Appends all unsent data of another output, which becomes empty.
    pub fn append(&mut self, other: &mut Output) {
        other.drop_sent();
        if other.sealed.is_empty() && other.tail.len() < SHARED_BYTES_MIN {
            self.tail.append(&mut other.tail);
        } else {
            self.seal();
            while let Some(segment) = other.pop(true) {
                self.push(segment);
            }
            self.tail = std::mem::take(&mut other.tail);
        }
        other.searched = 0;
    }

    /// Removes the sent part of the first segment.
    fn drop_sent(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        if sent == 0 {
            return;
        }
        let Some(first) = self.pop(true) else {
            self.searched = self.searched.saturating_sub(sent);
            return drop(self.tail.drain(..sent));
        };
        let mut rest = Output::default();
        match first {
            Segment::Bytes(bytes) => rest.push(Segment::Bytes(bytes[sent..].to_vec())),
            Segment::Shared(bytes) => rest.push(Segment::Bytes(bytes[sent..].to_vec())),
            Segment::RepeatedReply(mut run) => {
                // The rest of the partially sent reply, then all other replies.
                let begun = (run.unit - sent % run.unit) % run.unit;
                rest.push(Segment::Bytes(run.slice(sent)[..begun].to_vec()));
                run.bytes -= sent + begun;
                rest.push(Segment::RepeatedReply(run));
            }
        }
        while let Some(segment) = rest.pop(false) {
            self.push_front(segment);
        }
    }

    fn push_front(&mut self, segment: Segment) {
        if segment.len() > 0 {
            self.count(&segment);
            self.sealed.push_front(segment);
        }
    }

    /// The current end.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { segments: self.sealed.len(), offset: self.tail.len() }
    }

    /// Removes everything written since `mark`. Nothing may have been sent or folded in between.
    pub fn truncate(&mut self, mark: Mark) {
        while self.sealed.len() > mark.segments {
            match self.pop(false) {
                Some(Segment::Bytes(bytes)) if self.sealed.len() == mark.segments => self.tail = bytes,
                _ => self.tail.clear(),
            }
        }
        self.tail.truncate(mark.offset);
        self.searched = self.searched.min(self.tail.len());
    }

    /// The bytes since `mark`, up to the first shared segment: enough to examine the beginning of a reply.
    #[must_use]
    pub fn since(&self, mark: Mark) -> &[u8] {
        let bytes = match self.sealed.get(mark.segments) {
            Some(Segment::Bytes(bytes)) => bytes.as_slice(),
            Some(Segment::Shared(bytes)) => bytes,
            Some(Segment::RepeatedReply(run)) => &run.block,
            None => &self.tail,
        };
        bytes.get(mark.offset..).unwrap_or(b"")
    }

    /// Number of bytes since `mark`.
    #[must_use]
    pub fn len_since(&self, mark: Mark) -> usize {
        let sealed = self.sealed.iter().skip(mark.segments).map(Segment::len).sum::<usize>();
        (sealed + self.tail.len()).saturating_sub(mark.offset)
    }

    /// Joins all unsent bytes into one slice.
    pub fn joined(&mut self) -> &[u8] {
        if !self.sealed.is_empty() {
            let all = self.slices().collect::<Vec<_>>().concat();
            *self = Output::from(all);
        }
        &self.tail[self.sent..]
    }

    /// Drops all unsent data, but keeps up to `keep_bytes` of memory.
    pub fn clear(&mut self, keep_bytes: usize) {
        if !self.sealed.is_empty() || self.tail.capacity() > keep_bytes {
            *self = Output::default();
        }
        self.tail.clear();
        (self.sent, self.searched) = (0, 0);
    }

    /// Inserts bytes at `mark`, before later writes.
    pub(crate) fn insert(&mut self, mark: Mark, bytes: &[u8]) {
        match self.sealed.get_mut(mark.segments) {
            Some(Segment::Bytes(sealed)) => {
                sealed.splice(mark.offset..mark.offset, bytes.iter().copied());
                self.sealed_bytes += bytes.len();
                self.sealed_memory += bytes.len();
            }
            // The mark is at the very end of data that was sealed later, so the bytes get their own segment.
            Some(Segment::Shared(_) | Segment::RepeatedReply(_)) => {
                let segment = Segment::Bytes(bytes.to_vec());
                self.count(&segment);
                self.sealed.insert(mark.segments, segment);
            }
            None => drop(self.tail.splice(mark.offset..mark.offset, bytes.iter().copied())),
        }
    }

    /// The unsent slices, for a vectored write.
    #[must_use]
    pub fn slices(&self) -> Slices<'_> {
        Slices { output: self, segment: 0, at: self.sent }
    }

    /// Records that the first `count` bytes were sent.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        while let Some(first) = self.sealed.front() {
            let len = first.len();
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.pop(true);
        }
        if self.sent == self.tail.len() {
            self.sent = 0;
            self.searched = 0;
            self.tail.clear();
        } else if self.sent >= SENT_BYTES_MAX && self.sent >= self.tail.len() / 2 {
            // Without this, a peer that always reads a little less than is written would make the buffer grow forever.
            self.tail.drain(..self.sent);
            self.searched = self.searched.saturating_sub(self.sent);
            self.sent = 0;
        }
    }

    /// Takes over the memory of `spare` for writing, if the queue is empty and `spare` is larger.
    pub fn take_spare(&mut self, spare: &mut Vec<u8>) {
        debug_assert!(spare.is_empty(), "spare memory holds nothing");
        if self.tail.is_empty() && self.sealed.is_empty() && self.tail.capacity() < spare.capacity() {
            std::mem::swap(&mut self.tail, spare);
        }
    }

    /// If the queue is empty, moves its memory beyond `keep_bytes` into `spare`, provided that it is larger than
    /// `spare` and at most `spare_bytes`. Frees the memory otherwise.
    pub fn give_spare(&mut self, keep_bytes: usize, spare: &mut Vec<u8>, spare_bytes: usize) {
        if self.is_empty() && self.tail.capacity() > keep_bytes {
            if (spare.capacity() + 1..=spare_bytes).contains(&self.tail.capacity()) {
                self.tail.clear();
                std::mem::swap(&mut self.tail, spare);
            }
            self.shrink(keep_bytes);
        }
    }

    /// Frees memory beyond `keep_bytes` if the queue is empty.
    pub fn shrink(&mut self, keep_bytes: usize) {
        if self.is_empty() && self.tail.capacity() > keep_bytes {
            self.tail = Vec::new();
        }
    }

    /// Folds runs of one identical short reply in the data written since the last call. Only worthwhile for a queue
    /// that isn't being emptied.
    pub fn fold(&mut self) {
        let sent = if self.sealed.is_empty() { self.sent } else { 0 };
        let mut at = self.searched.max(sent);
        if let (0, Some(Segment::RepeatedReply(run))) = (at, self.sealed.back_mut()) {
            // The last run continues.
            at = repeats(&self.tail, run.reply()) * run.unit;
            run.bytes += at;
            self.sealed_bytes += at;
            self.tail.drain(..at);
            at = 0;
        }
        while let Some((reply, bytes)) = find_run(&self.tail, &mut at) {
            let rest = self.tail.split_off(at + bytes);
            let run = RepeatedReply::new(&self.tail[at..at + reply], bytes);
            self.tail.truncate(at);
            self.seal();
            self.push(Segment::RepeatedReply(run));
            self.tail = rest;
            at = 0;
            // Everything before the run may have been sent.
            self.advance(0);
        }
        self.searched = at;
    }

    /// Removes runs from the front and returns them; the first may be partially sent. Runs need so little memory that
    /// they can stay there when the rest is spooled.
    #[must_use]
    pub fn take_runs(&mut self) -> Output {
        let mut runs = Output::default();
        while let Some(Segment::RepeatedReply(_)) = self.sealed.front()
            && let Some(run) = self.pop(true)
        {
            runs.push(run);
            runs.sent += std::mem::take(&mut self.sent);
        }
        runs
    }
}

/// Counts how often `bytes` begins with consecutive copies of `reply`.
fn repeats(bytes: &[u8], reply: &[u8]) -> usize {
    bytes.chunks_exact(reply.len()).take_while(|chunk| *chunk == reply).count()
}

/// Finds the next run that is long enough, from `at` on, and returns the lengths of its reply and of the run. `at`
/// moves to the run's beginning, or to the beginning of an incomplete run that later data may extend.
fn find_run(bytes: &[u8], at: &mut usize) -> Option<(usize, usize)> {
    while *at < bytes.len() {
        let rest = &bytes[*at..];
        let step = match short_reply(rest) {
            Some(reply) => {
                let run = repeats(rest, &rest[..reply]) * reply;
                if run >= RUN_BYTES_MIN {
                    return Some((reply, run));
                }
                // The run extends to the end of the data, which may cut off a last reply.
                if rest.len() - run < reply && rest[run..] == rest[..rest.len() - run] {
                    return None;
                }
                run
            }
            None => bulk(rest).or_else(|| line_end(rest)).unwrap_or(rest.len()).min(rest.len()),
        };
        *at += step;
    }
    None
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&b| b == b'\n').map(|at| at + 1)
}

/// Length of the bulk string at the beginning of `bytes`; it may extend beyond them.
fn bulk(bytes: &[u8]) -> Option<usize> {
    let line = line_end(&bytes[..bytes.len().min(RUN_REPLY_BYTES_MAX)])?;
    let digits = std::str::from_utf8(bytes.strip_prefix(b"$")?.get(..line.checked_sub(3)?)?).ok()?;
    line.checked_add(digits.parse::<usize>().ok()?)?.checked_add(2)
}

/// Length of the reply at the beginning of `bytes`, if it is short and of a kind that forms runs. If they begin in the
/// middle of a reply, the result may be arbitrary: folding repeated bytes is correct whatever they mean.
fn short_reply(bytes: &[u8]) -> Option<usize> {
    let line = line_end(&bytes[..bytes.len().min(RUN_REPLY_BYTES_MAX)])?;
    match bytes[0] {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' => Some(line),
        b'$' if bytes[1] == b'-' => Some(line),
        b'$' => bulk(bytes).filter(|&reply| reply <= RUN_REPLY_BYTES_MAX.min(bytes.len())),
        _ => None,
    }
}

/// See [`Output::slices`].
pub struct Slices<'o> {
    output: &'o Output,
    /// Index of the next segment; the tail comes after the last.
    segment: usize,
    at: usize,
}

impl<'o> Iterator for Slices<'o> {
    type Item = &'o [u8];

    #[inline]
    fn next(&mut self) -> Option<&'o [u8]> {
        while let Some(segment) = self.output.sealed.get(self.segment) {
            if self.at < segment.len() {
                let slice = segment.slice(self.at);
                self.at += slice.len();
                return Some(slice);
            }
            self.at -= segment.len();
            self.segment += 1;
        }
        let slice = &self.output.tail[self.at.min(self.output.tail.len())..];
        self.at += slice.len();
        (!slice.is_empty()).then_some(slice)
    }
}

#[cfg(test)]
mod tests;
