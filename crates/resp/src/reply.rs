//! Encoding of replies: the only writer that distinguishes RESP2 and RESP3.
//!
//! Handlers write through a [`Reply`] into the connection's [`Output`].

use std::sync::Arc;

use crate::num;
pub use crate::output::{Mark, Output, SHARED_BYTES_MIN, Segment};

/// Protocol version of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Proto {
    /// The initial version of every connection.
    #[default]
    Resp2,
    /// After HELLO 3.
    Resp3,
}

/// Writes one connection's replies in its protocol version.
pub struct Reply<'o> {
    output: &'o mut Output,
    proto: Proto,
    errors: u32,
}

/// Longest bulk string that [`short_bulk`] writes, in bytes.
const SHORT_BULK_BYTES_MAX: usize = 32;

/// Appends a bulk string of 10 to 32 bytes, the most common size. Overlapping copies of constant lengths replace a copy
/// of variable length, which would be a more expensive call. It writes in place, since building the bytes elsewhere and
/// copying them here stalls on store forwarding. Returns false for other lengths.
#[inline]
fn short_bulk(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    const HEADER: usize = b"$12\r\n".len();
    const BLOCK: usize = HEADER + SHORT_BULK_BYTES_MAX + b"\r\n".len();
    #[inline]
    fn put<const N: usize>(block: &mut [u8], bytes: &[u8]) -> Option<()> {
        *block.first_chunk_mut::<N>()? = *bytes.first_chunk()?;
        *block.get_mut(..bytes.len())?.last_chunk_mut::<N>()? = *bytes.last_chunk()?;
        Some(())
    }
    let len = bytes.len();
    if !(10..=SHORT_BULK_BYTES_MAX).contains(&len) {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(&[0; BLOCK]);
    let Some(block) = out.last_chunk_mut::<BLOCK>() else { return false };
    let (tens, ones) = (len as u8 / 10, len as u8 % 10);
    block[..HEADER].copy_from_slice(&[b'$', b'0' + tens, b'0' + ones, b'\r', b'\n']);
    let put = if len <= 16 { put::<8>(&mut block[HEADER..], bytes) } else { put::<16>(&mut block[HEADER..], bytes) };
    debug_assert!(put.is_some());
    block[HEADER + len..HEADER + len + 2].copy_from_slice(b"\r\n");
    out.truncate(start + HEADER + len + 2);
    true
}

/// Appends a bulk string of up to nine bytes, usually as one word: no copy has a variable length. Returns false for
/// longer ones.
#[inline]
fn tiny_bulk(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    const HEADER: usize = b"$9\r\n".len();
    const WORD: usize = size_of::<u64>();
    const BLOCK: usize = HEADER + WORD + b"9\r\n".len();
    let len = bytes.len();
    let word = match (len, bytes.first_chunk::<WORD>(), bytes.first_chunk(), bytes.last_chunk()) {
        (10.., ..) => return false,
        (_, Some(word), ..) => u64::from_le_bytes(*word),
        // Both halves overlap or meet.
        (_, None, Some(first), Some(last)) => {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            u64::from(first) | u64::from(last) << (8 * (len - 4))
        }
        (0, ..) => 0,
        (1.., ..) => {
            let at = |index: usize| u64::from(bytes[index]) << (8 * index);
            at(0) | at(len / 2) | at(len - 1)
        }
    };
    let start = out.len();
    out.extend_from_slice(&[0; BLOCK]);
    let Some(block) = out.last_chunk_mut::<BLOCK>() else { return false };
    block[..HEADER].copy_from_slice(&[b'$', b'0' + len as u8, b'\r', b'\n']);
    block[HEADER..HEADER + WORD].copy_from_slice(&word.to_le_bytes());
    if let Some(ninth) = bytes.get(WORD) {
        block[HEADER + WORD] = *ninth;
    }
    block[HEADER + len..HEADER + len + 2].copy_from_slice(b"\r\n");
    out.truncate(start + HEADER + len + 2);
    true
}

impl<'o> Reply<'o> {
    /// Creates a writer at the end of an output.
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

    /// Changes the protocol version for later replies (HELLO, RESET).
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// True if the connection uses RESP3.
    #[inline]
    #[must_use]
    pub fn is_resp3(&self) -> bool {
        self.proto == Proto::Resp3
    }

    /// Number of error replies written so far.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.errors
    }

    /// The output, for data that is already encoded.
    pub fn output(&mut self) -> &mut Output {
        self.output
    }

    #[inline(always)]
    fn line(&mut self, kind: u8, number: i64) {
        let out = &mut self.output.tail;
        // Nearly all numbers are lengths and counts of one or two digits.
        match number {
            0..10 => out.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
            10..100 => {
                let (tens, ones) = (number as u8 / 10, number as u8 % 10);
                out.extend_from_slice(&[kind, b'0' + tens, b'0' + ones, b'\r', b'\n']);
            }
            _ => self.long_line(kind, number),
        }
    }

    #[inline(never)]
    fn long_line(&mut self, kind: u8, number: i64) {
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

    /// A simple string ("OK"). Must not contain CR or LF.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.text_line(b'+', text.as_bytes());
    }

    /// A simple string of any bytes. Line ends within it become spaces, so that it can't be parsed as several replies.
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

    /// The reply to PING.
    #[inline]
    pub fn pong(&mut self) {
        self.output.tail.extend_from_slice(b"+PONG\r\n");
    }

    /// An error; `text` begins with its code ("ERR", "WRONGTYPE") and has no "-". As in Redis, line ends within it
    /// become spaces, so that it can't be parsed as several replies.
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
        if short_bulk(&mut self.output.tail, bytes) {
            return;
        }
        self.any_bulk(bytes);
    }

    fn any_bulk(&mut self, bytes: &[u8]) {
        if tiny_bulk(&mut self.output.tail, bytes) {
            return;
        }
        self.output.tail.reserve(bytes.len() + 24);
        self.line(b'$', bytes.len() as i64);
        self.output.tail.extend_from_slice(bytes);
        self.output.tail.extend_from_slice(b"\r\n");
    }

    /// A bulk string that may be queued by reference.
    pub fn bulk_shared(&mut self, bytes: &Arc<Vec<u8>>) {
        if bytes.len() < SHARED_BYTES_MIN {
            return self.bulk(bytes.as_slice());
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

    /// Null in place of a bulk string or a single value.
    #[inline]
    pub fn null(&mut self) {
        self.output.tail.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Null in place of an array.
    #[inline]
    pub fn null_array(&mut self) {
        self.output.tail.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// A bulk string, or null.
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

    /// The header of a push message, which doesn't reply to a command. An array in RESP2.
    pub fn push(&mut self, len: usize) {
        self.line(if self.is_resp3() { b'>' } else { b'*' }, len as i64);
    }

    /// The header of an attribute with `len` pairs of replies; the reply that it describes follows. RESP3 only.
    pub fn attribute(&mut self, len: usize) {
        debug_assert!(self.is_resp3());
        self.line(b'|', len as i64);
    }

    /// Begins an array, map or set of unknown length; `fill_array`, `fill_map` or `fill_set` writes its header later.
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

    /// A floating point number of less than 2^63 in magnitude, with up to 17 digits after the point, as Redis prints
    /// long doubles; a bulk string in RESP2.
    pub fn long_double(&mut self, value: f64) {
        let text = num::FixedText::human(value);
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
    fn every_kind_is_encoded_in_both_versions() {
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
    fn numbers_and_bulk_strings_of_every_length() {
        let mut text = String::new();
        for len in 0..1100 {
            let bulk = format!("${len}\r\n{text}\r\n");
            check(|r| r.bulk(&text), &bulk, &bulk);
            let int = format!(":{len}\r\n:-{len}\r\n", len = len + 1);
            check(|r| (r.int(len + 1), r.int(-len - 1)).0, &int, &int);
            text.push(char::from(b'a' + (len % 26) as u8));
        }
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
}
