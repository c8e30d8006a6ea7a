//! Replies to bytes: the one writer that knows RESP2 from RESP3.
//!
//! Handlers write through a [`Reply`] into the connection's [`Output`], a short chain of segments: plain bytes that
//! are copied, and large values that are shared by reference until the socket has taken them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::num;

/// From this length on, in bytes, a shared value is queued by reference; copying a shorter one is cheaper than a
/// segment of its own and another element in the vectored write.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Bytes that have been sent and may stay in front of those that wait; beyond, they are removed as soon as they are as
/// many as those.
const SENT_BYTES_MAX: usize = 64 * 1024;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Proto {
    /// What every connection begins with.
    #[default]
    Resp2,
    /// After HELLO 3.
    Resp3,
}

/// A piece of the queue to a socket.
#[derive(Debug)]
pub enum Segment {
    /// Bytes that were written.
    Bytes(Vec<u8>),
    /// A large value, by reference.
    Shared(Arc<Vec<u8>>),
}

impl Segment {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Segment::Bytes(bytes) => bytes,
            Segment::Shared(bytes) => bytes,
        }
    }
}

/// What waits to be sent to one connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Complete segments, the first to be sent first.
    sealed: VecDeque<Segment>,
    sealed_bytes: usize,
    /// Where replies are written.
    tail: Vec<u8>,
    /// Bytes of the first segment (the tail, if none is sealed) that have been sent.
    sent: usize,
}

/// A place in an output to which it can be cut back or at which a header is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    segments: usize,
    offset: usize,
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

    /// Bytes of memory that the queue itself takes; shared values are counted by whoever stores them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let sealed = self.sealed.iter().map(|s| if let Segment::Bytes(b) = s { b.capacity() } else { 0 });
        self.tail.capacity() + sealed.sum::<usize>()
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

    /// Appends a shared value.
    pub fn extend_shared(&mut self, bytes: Arc<Vec<u8>>) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.extend(&bytes);
        }
        self.seal();
        self.sealed_bytes += bytes.len();
        self.sealed.push_back(Segment::Shared(bytes));
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.sealed_bytes += self.tail.len();
            self.sealed.push_back(Segment::Bytes(std::mem::take(&mut self.tail)));
        }
    }

    /// Appends everything that waits in another output, which is left empty.
    pub fn append(&mut self, other: &mut Output) {
        debug_assert_eq!(other.sent, 0);
        if other.sealed.is_empty() {
            self.tail.append(&mut other.tail);
            return;
        }
        self.seal();
        self.sealed_bytes += std::mem::take(&mut other.sealed_bytes);
        self.sealed.append(&mut other.sealed);
        self.seal();
        self.tail.append(&mut other.tail);
    }

    /// The present end.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { segments: self.sealed.len(), offset: self.tail.len() }
    }

    /// Takes back what was written since `mark`. Nothing may have been sent in between.
    pub fn truncate(&mut self, mark: Mark) {
        while self.sealed.len() > mark.segments {
            let Some(last) = self.sealed.pop_back() else { return };
            self.sealed_bytes -= last.bytes().len();
            if let (Segment::Bytes(bytes), true) = (last, self.sealed.len() == mark.segments) {
                self.tail = bytes;
            } else {
                self.tail.clear();
            }
        }
        self.tail.truncate(mark.offset);
    }

    /// The bytes since `mark`, as far as they are not shared segments: enough to look at how a reply begins.
    #[must_use]
    pub fn since(&self, mark: Mark) -> &[u8] {
        let bytes = match self.sealed.get(mark.segments) {
            Some(segment) => segment.bytes(),
            None => &self.tail,
        };
        bytes.get(mark.offset..).unwrap_or(b"")
    }

    /// All bytes that wait, in one piece.
    pub fn joined(&mut self) -> &[u8] {
        if !self.sealed.is_empty() {
            let all = self.slices().collect::<Vec<_>>().concat();
            *self = Output { tail: all, ..Output::default() };
        }
        &self.tail[self.sent..]
    }

    /// Forgets everything that waits, but keeps up to `keep_bytes` of memory.
    pub fn clear(&mut self, keep_bytes: usize) {
        if !self.sealed.is_empty() || self.tail.capacity() > keep_bytes {
            *self = Output::default();
        }
        self.tail.clear();
        self.sent = 0;
    }

    /// Puts bytes in at `mark`, before what was written since.
    fn insert(&mut self, mark: Mark, bytes: &[u8]) {
        match self.sealed.get_mut(mark.segments) {
            Some(Segment::Bytes(sealed)) => {
                sealed.splice(mark.offset..mark.offset, bytes.iter().copied());
                self.sealed_bytes += bytes.len();
            }
            // A mark at the very end of what was sealed later: the bytes get a segment of their own.
            Some(Segment::Shared(_)) => {
                self.sealed.insert(mark.segments, Segment::Bytes(bytes.to_vec()));
                self.sealed_bytes += bytes.len();
            }
            None => drop(self.tail.splice(mark.offset..mark.offset, bytes.iter().copied())),
        }
    }

    /// The slices that wait, for a vectored write.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.sealed.iter().map(Segment::bytes).chain(std::iter::once(&*self.tail));
        let mut skip = self.sent;
        all.map(move |bytes| bytes.get(std::mem::take(&mut skip)..).unwrap_or(b"")).filter(|b| !b.is_empty())
    }

    /// Notes that the first `count` bytes have been sent.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        while let Some(first) = self.sealed.front() {
            let len = first.bytes().len();
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.sealed_bytes -= len;
            self.sealed.pop_front();
        }
        if self.sent == self.tail.len() {
            self.sent = 0;
            self.tail.clear();
        } else if self.sent >= SENT_BYTES_MAX && self.sent >= self.tail.len() / 2 {
            // A peer that always reads a little less than is written would make it grow for ever.
            self.tail.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Gives memory back beyond `keep_bytes` once nothing waits.
    pub fn shrink(&mut self, keep_bytes: usize) {
        if self.is_empty() && self.tail.capacity() > keep_bytes {
            self.tail = Vec::new();
        }
    }
}

/// Writes one connection's replies in the version of the protocol it speaks.
pub struct Reply<'o> {
    output: &'o mut Output,
    proto: Proto,
    errors: u32,
}

impl<'o> Reply<'o> {
    /// A writer at the end of an output.
    #[inline]
    pub fn new(output: &'o mut Output, proto: Proto) -> Reply<'o> {
        Reply { output, proto, errors: 0 }
    }

    /// The version of the protocol.
    #[inline]
    #[must_use]
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// What follows is written in this version of the protocol (HELLO, RESET).
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// Whether the connection speaks RESP3.
    #[inline]
    #[must_use]
    pub fn is_resp3(&self) -> bool {
        self.proto == Proto::Resp3
    }

    /// Error replies written so far.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.errors
    }

    /// The output, for what is in the protocol's form already.
    pub fn output(&mut self) -> &mut Output {
        self.output
    }

    #[inline]
    fn line(&mut self, kind: u8, number: i64) {
        let out = &mut self.output.tail;
        out.push(kind);
        num::write_i64(out, number);
        out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn text_line(&mut self, kind: u8, text: &[u8]) {
        let out = &mut self.output.tail;
        out.push(kind);
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    }

    /// A simple string, such as "OK". Must not contain CR or LF.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.text_line(b'+', text.as_bytes());
    }

    /// A simple string of any bytes. Line ends within it become spaces, lest the rest be taken for other replies.
    pub fn status(&mut self, text: impl AsRef<[u8]>) {
        self.clean_line(b'+', text.as_ref());
    }

    fn clean_line(&mut self, kind: u8, text: &[u8]) {
        let clean = |&b: &u8| if matches!(b, b'\r' | b'\n') { b' ' } else { b };
        let out = &mut self.output.tail;
        out.push(kind);
        out.extend(text.iter().map(clean));
        out.extend_from_slice(b"\r\n");
    }

    /// "+OK".
    #[inline]
    pub fn ok(&mut self) {
        self.output.tail.extend_from_slice(b"+OK\r\n");
    }

    /// An error; `text` begins with its code ("ERR", "WRONGTYPE") and has no "-". Line ends within it become spaces,
    /// as in Redis, lest the rest be taken for other replies.
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.errors += 1;
        self.clean_line(b'-', text.as_ref());
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        self.line(b':', value);
    }

    /// A count of things in memory, as an integer.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.line(b':', value as i64);
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.output.tail.reserve(bytes.len() + 24);
        self.line(b'$', bytes.len() as i64);
        self.output.tail.extend_from_slice(bytes);
        self.output.tail.extend_from_slice(b"\r\n");
    }

    /// A bulk string that may be queued by reference.
    pub fn bulk_shared(&mut self, bytes: &Arc<Vec<u8>>) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.bulk(&**bytes);
        }
        self.line(b'$', bytes.len() as i64);
        self.output.extend_shared(bytes.clone());
        self.output.tail.extend_from_slice(b"\r\n");
    }

    /// A bulk string that is an integer's decimal form.
    #[inline]
    pub fn bulk_int(&mut self, value: i64) {
        let mut text = num::IntText::new();
        self.bulk(text.i64(value));
    }

    /// Nothing, where a bulk string or a single value would be.
    #[inline]
    pub fn null(&mut self) {
        self.output.tail.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Nothing, where an array would be.
    #[inline]
    pub fn null_array(&mut self) {
        self.output.tail.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// A bulk string, or nothing.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// The header of an array; `len` replies follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.line(b'*', len as i64);
    }

    /// The header of a map; `len` pairs of replies follow. An array of twice the length in RESP2.
    #[inline]
    pub fn map(&mut self, len: usize) {
        if self.is_resp3() { self.line(b'%', len as i64) } else { self.line(b'*', len as i64 * 2) }
    }

    /// The header of a set. An array in RESP2.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.line(if self.is_resp3() { b'~' } else { b'*' }, len as i64);
    }

    /// The header of a push, which is no reply to a command. An array in RESP2.
    pub fn push(&mut self, len: usize) {
        self.line(if self.is_resp3() { b'>' } else { b'*' }, len as i64);
    }

    /// The header of an attribute, which a reply follows; `len` pairs of replies come in between. RESP3 only.
    pub fn attribute(&mut self, len: usize) {
        debug_assert!(self.is_resp3());
        self.line(b'|', len as i64);
    }

    /// Begins an array, map or set whose length isn't known yet; `fill_array` and its like write its header.
    #[must_use]
    pub fn deferred(&mut self) -> Mark {
        self.output.mark()
    }

    /// Writes an array's header at `mark`.
    pub fn fill_array(&mut self, mark: Mark, len: usize) {
        self.fill(mark, b'*', len);
    }

    /// Writes a map's header at `mark`, for `len` pairs.
    pub fn fill_map(&mut self, mark: Mark, len: usize) {
        if self.is_resp3() { self.fill(mark, b'%', len) } else { self.fill(mark, b'*', len * 2) }
    }

    /// Writes a set's header at `mark`.
    pub fn fill_set(&mut self, mark: Mark, len: usize) {
        self.fill(mark, if self.is_resp3() { b'~' } else { b'*' }, len);
    }

    fn fill(&mut self, mark: Mark, kind: u8, len: usize) {
        let mut header = vec![kind];
        num::write_i64(&mut header, len as i64);
        header.extend_from_slice(b"\r\n");
        self.output.insert(mark, &header);
    }

    /// A floating point number; a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = num::FloatText::new(value);
        if self.is_resp3() { self.text_line(b',', text.as_bytes()) } else { self.bulk(text.as_bytes()) }
    }

    /// A boolean; 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        if self.is_resp3() {
            self.text_line(b'#', if value { b"t" } else { b"f" });
        } else {
            self.int(i64::from(value));
        }
    }

    /// Text for people, with its format ("txt", "mkd"); a bulk string in RESP2.
    pub fn verbatim(&mut self, format: &str, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        if !self.is_resp3() {
            return self.bulk(text);
        }
        self.line(b'=', text.len() as i64 + 4);
        let out = &mut self.output.tail;
        out.extend_from_slice(format.as_bytes());
        out.push(b':');
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    }

    /// An integer of any size, in decimal; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        if self.is_resp3() { self.text_line(b'(', digits.as_bytes()) } else { self.bulk(digits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
        for (proto, expected) in [(Proto::Resp2, resp2), (Proto::Resp3, resp3)] {
            let mut output = Output::default();
            write(&mut Reply::new(&mut output, proto));
            let got: Vec<u8> = output.slices().collect::<Vec<_>>().concat();
            assert_eq!(String::from_utf8_lossy(&got), expected, "{proto:?}");
        }
    }

    #[test]
    #[expect(clippy::redundant_closure_for_method_calls, reason = "a method is not general enough in its lifetime")]
    fn every_kind_has_its_form_in_both_versions() {
        check(|r| r.ok(), "+OK\r\n", "+OK\r\n");
        check(|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(|r| r.int(-5), ":-5\r\n", ":-5\r\n");
        check(|r| r.bulk(""), "$0\r\n\r\n", "$0\r\n\r\n");
        check(|r| r.null(), "$-1\r\n", "_\r\n");
        check(|r| r.null_array(), "*-1\r\n", "_\r\n");
        check(|r| r.map(2), "*4\r\n", "%2\r\n");
        check(|r| r.set(2), "*2\r\n", "~2\r\n");
        check(|r| r.push(2), "*2\r\n", ">2\r\n");
        check(|r| r.double(0.5), "$3\r\n0.5\r\n", ",0.5\r\n");
        check(|r| r.boolean(true), ":1\r\n", "#t\r\n");
        check(|r| r.verbatim("txt", "hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
        check(|r| r.big_number("12345678901234567890"), "$20\r\n12345678901234567890\r\n", "(12345678901234567890\r\n");
    }

    #[test]
    fn a_header_can_be_filled_in_later_even_across_segments() {
        let large = Arc::new(vec![b'x'; SHARED_BYTES_MIN]);
        let text = String::from_utf8(large.to_vec()).unwrap();
        check(
            |r| {
                r.int(1);
                let mark = r.deferred();
                r.bulk_shared(&large);
                r.int(2);
                r.fill_array(mark, 2);
            },
            &format!(":1\r\n*2\r\n${}\r\n{text}\r\n:2\r\n", SHARED_BYTES_MIN),
            &format!(":1\r\n*2\r\n${}\r\n{text}\r\n:2\r\n", SHARED_BYTES_MIN),
        );
    }

    #[test]
    fn what_was_sent_is_gone_and_what_was_cut_back_too() {
        let large = Arc::new(vec![b'x'; SHARED_BYTES_MIN]);
        let mut output = Output::default();
        output.extend(b"abc");
        let mark = output.mark();
        output.extend(b"def");
        output.extend_shared(large.clone());
        output.extend(b"ghi");
        assert_eq!(output.len(), 9 + large.len());
        output.truncate(mark);
        assert_eq!(output.slices().collect::<Vec<_>>(), [b"abc"]);
        output.extend_shared(large.clone());
        output.extend(b"z");
        for left in (0..output.len()).rev() {
            output.advance(1);
            assert_eq!(output.len(), left);
            assert_eq!(output.slices().map(<[u8]>::len).sum::<usize>(), left);
        }
        assert_eq!(Arc::strong_count(&large), 1);
    }

    #[test]
    fn a_queue_that_is_never_empty_does_not_grow() {
        let mut output = Output::default();
        let mut expected = 0u32;
        for i in 0..20_000u32 {
            // As much is sent as is written, but 400 bytes always wait.
            output.extend(&[i; 25].map(u32::to_ne_bytes).concat());
            if i >= 4 {
                let waiting = output.slices().next().unwrap();
                assert_eq!(waiting.first_chunk(), Some(&expected.to_ne_bytes()));
                output.advance(100);
                expected += 1;
            }
        }
        assert_eq!(output.len(), 400);
        assert!(output.memory_bytes() < 4 * SENT_BYTES_MAX, "{}", output.memory_bytes());
    }
}
