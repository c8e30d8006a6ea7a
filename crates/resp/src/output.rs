//! What waits to be sent to one connection: a short chain of segments.
//!
//! Replies are written as plain bytes at the end of the chain; large values are shared by reference until the socket
//! has taken them. A queue that its peer doesn't empty is folded ([`Output::fold`]): runs of one identical short reply
//! become a segment each that takes the same space for a million of them as for a thousand. That costs nothing for
//! clients that read their replies.
//!
//! A queue can be taken as a whole and written somewhere else; it reads itself out (`slices`, `advance`) to a socket
//! and to a file alike. This module knows neither.

use std::collections::VecDeque;
use std::sync::Arc;

/// From this length on, in bytes, a shared value is queued by reference; copying a shorter one is cheaper than a
/// segment of its own and another element in the vectored write.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;
/// The same for what goes to several connections: a slow one then keeps no copy of its own, and many that read cost one
/// copy together.
pub const PUSH_SHARED_BYTES_MIN: usize = 1024;

/// Bytes that have been sent and may stay in front of those that wait; beyond, they are removed as soon as they are as
/// many as those.
const SENT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the longest reply of which a run is looked for. Longer ones seldom come in runs.
const RUN_REPLY_BYTES_MAX: usize = 64;
/// Bytes of repeated replies that a run keeps, so that a vectored write of 64 slices sends many at once.
const RUN_BLOCK_BYTES: usize = 4096;
/// Bytes from which on replies are folded into a run: what it saves must be worth its block.
const RUN_BYTES_MIN: usize = 2 * RUN_BLOCK_BYTES;
/// Bytes that are counted for a segment beside what it holds.
const SEGMENT_BYTES: usize = size_of::<Segment>();

/// One short reply, many times.
#[derive(Debug)]
pub struct RepeatedReply {
    /// The reply as often as it fits into [`RUN_BLOCK_BYTES`].
    block: Box<[u8]>,
    /// Bytes of the reply.
    unit: usize,
    /// Bytes of all of them.
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

    /// The bytes from `at` on that are one slice.
    fn slice(&self, at: usize) -> &[u8] {
        let slice = &self.block[at % self.unit..];
        &slice[..slice.len().min(self.bytes - at)]
    }
}

/// A piece of the queue to a socket.
#[derive(Debug)]
pub enum Segment {
    /// Bytes that were written.
    Bytes(Vec<u8>),
    /// A large value, by reference.
    Shared(Arc<Vec<u8>>),
    /// One short reply, many times.
    RepeatedReply(RepeatedReply),
}

impl Segment {
    /// Bytes to be sent.
    fn len(&self) -> usize {
        match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Shared(bytes) => bytes.len(),
            Segment::RepeatedReply(run) => run.bytes,
        }
    }

    /// Bytes of memory; a shared value counts in full, since it may live on for this queue alone.
    fn memory(&self) -> usize {
        let held = match self {
            Segment::Bytes(bytes) => bytes.len(),
            Segment::Shared(bytes) => bytes.len(),
            Segment::RepeatedReply(run) => run.block.len(),
        };
        held + SEGMENT_BYTES
    }

    /// The bytes from `at` on that are one slice.
    fn slice(&self, at: usize) -> &[u8] {
        match self {
            Segment::Bytes(bytes) => &bytes[at..],
            Segment::Shared(bytes) => &bytes[at..],
            Segment::RepeatedReply(run) => run.slice(at),
        }
    }
}

/// What waits to be sent to one connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Complete segments, the first to be sent first.
    sealed: VecDeque<Segment>,
    sealed_bytes: usize,
    sealed_memory: usize,
    /// Where replies are written.
    pub(crate) tail: Vec<u8>,
    /// Bytes of the first segment (the tail, if none is sealed) that have been sent.
    sent: usize,
    /// Bytes of the tail in which runs have been looked for.
    searched: usize,
}

/// A place in an output to which it can be cut back or at which a header is filled in.
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
    /// Bytes that wait.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.sealed_bytes + self.tail.len() - self.sent
    }

    /// Whether nothing waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that what waits takes. Shared values count in full, though the keyspace may hold them as well.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sealed_memory + self.tail.len()
    }

    /// The part of [`memory`](Output::memory) that shared values take. Looks at all segments.
    #[must_use]
    pub fn shared_memory(&self) -> usize {
        let shared = self.sealed.iter().filter(|segment| matches!(segment, Segment::Shared(_)));
        shared.map(Segment::memory).sum()
    }

    /// Segments that wait, the tail included if it isn't empty.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.sealed.len() + usize::from(!self.tail.is_empty())
    }

    /// Appends bytes that are already in the protocol's form.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Takes a block of so many bytes for what is written next, instead of growing step by step.
    pub fn reserve_block(&mut self, bytes: usize) {
        self.tail.reserve_exact(bytes.saturating_sub(self.tail.len()));
    }

    /// Gives back the memory that nothing has been written to yet.
    pub fn give_unused_back(&mut self) {
        self.tail.shrink_to_fit();
    }

    /// Ends the block that is written to, of so many bytes, if half of it is used.
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

    /// Appends bytes that other connections are sent as well.
    pub fn extend_push(&mut self, bytes: &Arc<Vec<u8>>) {
        if bytes.len() < PUSH_SHARED_BYTES_MIN {
            return self.extend(bytes);
        }
        self.seal();
        self.push(Segment::Shared(bytes.clone()));
    }

    /// Bytes of memory that one more push of so many bytes takes in a connection's output, the shared bytes apart.
    #[must_use]
    pub fn push_cost(bytes: usize) -> usize {
        if bytes < PUSH_SHARED_BYTES_MIN { bytes } else { SEGMENT_BYTES }
    }

    fn push(&mut self, segment: Segment) {
        self.sealed_bytes += segment.len();
        self.sealed_memory += segment.memory();
        self.sealed.push_back(segment);
    }

    /// Takes the first segment away, or the last.
    fn pop(&mut self, first: bool) -> Option<Segment> {
        let segment = if first { self.sealed.pop_front() } else { self.sealed.pop_back() }?;
        self.sealed_bytes -= segment.len();
        self.sealed_memory -= segment.memory();
        Some(segment)
    }

    fn seal(&mut self) {
        self.searched = 0;
        if !self.tail.is_empty() {
            let bytes = std::mem::take(&mut self.tail);
            self.push(Segment::Bytes(bytes));
        }
    }

    /// Appends everything that waits in another output, which is left empty.
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

    /// Has the first segment begin with what has not been sent of it.
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
                // The rest of the reply that was sent in part, then all others.
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
            self.sealed_bytes += segment.len();
            self.sealed_memory += segment.memory();
            self.sealed.push_front(segment);
        }
    }

    /// The present end.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { segments: self.sealed.len(), offset: self.tail.len() }
    }

    /// Takes back what was written since `mark`. Nothing may have been sent or folded in between.
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

    /// The bytes since `mark`, as far as they are not shared segments: enough to look at how a reply begins.
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

    /// How many bytes there are since `mark`.
    #[must_use]
    pub fn len_since(&self, mark: Mark) -> usize {
        let sealed = self.sealed.iter().skip(mark.segments).map(Segment::len).sum::<usize>();
        (sealed + self.tail.len()).saturating_sub(mark.offset)
    }

    /// All bytes that wait, in one piece.
    pub fn joined(&mut self) -> &[u8] {
        if !self.sealed.is_empty() {
            let all = self.slices().collect::<Vec<_>>().concat();
            *self = Output::from(all);
        }
        &self.tail[self.sent..]
    }

    /// Forgets everything that waits, but keeps up to `keep_bytes` of memory.
    pub fn clear(&mut self, keep_bytes: usize) {
        if !self.sealed.is_empty() || self.tail.capacity() > keep_bytes {
            *self = Output::default();
        }
        self.tail.clear();
        (self.sent, self.searched) = (0, 0);
    }

    /// Puts bytes in at `mark`, before what was written since.
    pub(crate) fn insert(&mut self, mark: Mark, bytes: &[u8]) {
        match self.sealed.get_mut(mark.segments) {
            Some(Segment::Bytes(sealed)) => {
                sealed.splice(mark.offset..mark.offset, bytes.iter().copied());
                self.sealed_bytes += bytes.len();
                self.sealed_memory += bytes.len();
            }
            // A mark at the very end of what was sealed later: the bytes get a segment of their own.
            Some(Segment::Shared(_) | Segment::RepeatedReply(_)) => {
                let segment = Segment::Bytes(bytes.to_vec());
                self.sealed_bytes += segment.len();
                self.sealed_memory += segment.memory();
                self.sealed.insert(mark.segments, segment);
            }
            None => drop(self.tail.splice(mark.offset..mark.offset, bytes.iter().copied())),
        }
    }

    /// The slices that wait, for a vectored write.
    #[must_use]
    pub fn slices(&self) -> Slices<'_> {
        Slices { output: self, segment: 0, at: self.sent }
    }

    /// Notes that the first `count` bytes have been sent.
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
            // A peer that always reads a little less than is written would make it grow for ever.
            self.tail.drain(..self.sent);
            self.searched = self.searched.saturating_sub(self.sent);
            self.sent = 0;
        }
    }

    /// Writes to the memory of `spare` from now on, if nothing waits and that is more than there is.
    pub fn take_spare(&mut self, spare: &mut Vec<u8>) {
        debug_assert!(spare.is_empty(), "spare memory holds nothing");
        if self.tail.is_empty() && self.sealed.is_empty() && self.tail.capacity() < spare.capacity() {
            std::mem::swap(&mut self.tail, spare);
        }
    }

    /// Once nothing waits, puts memory beyond `keep_bytes` into `spare`, if it is more than that has, and gives back
    /// what then is more than `keep_bytes` or `spare_bytes`.
    pub fn give_spare(&mut self, keep_bytes: usize, spare: &mut Vec<u8>, spare_bytes: usize) {
        if self.is_empty() && self.tail.capacity() > keep_bytes {
            if (spare.capacity() + 1..=spare_bytes).contains(&self.tail.capacity()) {
                self.tail.clear();
                std::mem::swap(&mut self.tail, spare);
            }
            self.shrink(keep_bytes);
        }
    }

    /// Gives memory back beyond `keep_bytes` once nothing waits.
    pub fn shrink(&mut self, keep_bytes: usize) {
        if self.is_empty() && self.tail.capacity() > keep_bytes {
            self.tail = Vec::new();
        }
    }

    /// Puts runs of one identical short reply together, in what has been written since the last call. Worth its time
    /// only for a queue that isn't being emptied.
    pub fn fold(&mut self) {
        let sent = if self.sealed.is_empty() { self.sent } else { 0 };
        let mut at = self.searched.max(sent);
        if let (0, Some(Segment::RepeatedReply(run))) = (at, self.sealed.back_mut()) {
            // More of the last run.
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
            // All that came before the run may have been sent.
            self.advance(0);
        }
        self.searched = at;
    }

    /// Takes runs away from the front, the first of them perhaps sent in part: they take next to no memory, wherever
    /// the rest goes.
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

/// How often `bytes` begins with `reply`, again and again.
fn repeats(bytes: &[u8], reply: &[u8]) -> usize {
    bytes.chunks_exact(reply.len()).take_while(|chunk| *chunk == reply).count()
}

/// The next run that is long enough, from `at` on: the bytes of its reply and of all of it. `at` moves to its
/// beginning, or to where a run may begin that what is still to come makes long enough.
fn find_run(bytes: &[u8], at: &mut usize) -> Option<(usize, usize)> {
    while *at < bytes.len() {
        let rest = &bytes[*at..];
        let step = match short_reply(rest) {
            Some(reply) => {
                let run = repeats(rest, &rest[..reply]) * reply;
                if run >= RUN_BYTES_MIN {
                    return Some((reply, run));
                }
                // The run's end is the end of what there is, but for a reply that is cut off.
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

/// Bytes of the bulk string that `bytes` begin with, which may end behind them.
fn bulk(bytes: &[u8]) -> Option<usize> {
    let line = line_end(&bytes[..bytes.len().min(RUN_REPLY_BYTES_MAX)])?;
    let digits = std::str::from_utf8(bytes.strip_prefix(b"$")?.get(..line.checked_sub(3)?)?).ok()?;
    line.checked_add(digits.parse::<usize>().ok()?)?.checked_add(2)
}

/// Bytes of the reply that `bytes` begin with, if it is of a kind that comes in runs, and short. Where they begin in
/// the midst of a reply the answer may be about anything: bytes that repeat can be folded whatever they mean.
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
    /// The segment that comes next; the tail is behind the last.
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
