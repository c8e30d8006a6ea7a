//! A snapshot on the wire.
//!
//! ```text
//! $<bytes>\r\n<snapshot>                        its length is known: the primary has it in a file
//! $EOF:<40 bytes>\r\n<snapshot><40 bytes>       it is being made: a mark ends it, which the snapshot doesn't have
//! ```

use std::io::{self, Read};

use memchr::memmem;
use resp::num::parse_i64;

/// Bytes of the mark that ends a snapshot of unknown length.
pub const MARK_BYTES: usize = 40;
/// Bytes read from the socket at once.
const READ_BYTES: usize = 256 << 10;
/// The longest snapshot that a primary may announce: an exbibyte. Sums don't overflow below it.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 60;

/// The end of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// After this many bytes.
    After(u64),
    /// At this mark.
    At([u8; MARK_BYTES]),
}

impl End {
    /// Parses the line before a snapshot, given without its end. Returns `None` for any other line.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<End> {
        let text = line.strip_prefix(b"$")?;
        match text.strip_prefix(b"EOF:") {
            Some(mark) => mark.try_into().ok().map(End::At),
            None => {
                let len = parse_i64(text).and_then(|len| u64::try_from(len).ok())?;
                (len <= SNAPSHOT_BYTES_MAX).then_some(End::After(len))
            }
        }
    }

    /// The snapshot's length, if known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            End::After(len) => Some(*len),
            End::At(_) => None,
        }
    }
}

/// Reads a snapshot to its end, and no byte beyond.
pub struct Transfer<R> {
    input: R,
    end: End,
    /// Bytes read from the input. Those before `at` have been returned.
    buffer: Vec<u8>,
    at: usize,
    /// No mark begins before this place in the buffer.
    unmarked: usize,
    has_ended: bool,
}

impl<R: Read> Transfer<R> {
    /// The snapshot after the line that gave its `end`. `read` are bytes after that line that were read already.
    pub fn new(input: R, end: End, read: &[u8]) -> Transfer<R> {
        Transfer { input, end, buffer: read.to_vec(), at: 0, unmarked: 0, has_ended: false }
    }

    /// True once the snapshot has been read to its end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The snapshot's length, if known.
    #[must_use]
    pub fn snapshot_bytes(&self) -> Option<u64> {
        self.end.bytes()
    }

    /// Skips the rest of the snapshot after its reader has stopped.
    ///
    /// # Errors
    /// The input's error, and [`io::ErrorKind::UnexpectedEof`].
    pub fn skip_to_end(&mut self) -> io::Result<u64> {
        io::copy(self, &mut io::sink())
    }

    /// Bytes read after the snapshot: the beginning of the stream.
    #[must_use]
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.drain(..self.at);
        self.buffer
    }

    /// Reads more from the input.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.at);
        self.unmarked = self.unmarked.saturating_sub(self.at);
        self.at = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + READ_BYTES, 0);
        let room = self.buffer.get_mut(len..).unwrap_or_default();
        let read = self.input.read(room);
        self.buffer.truncate(len + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the primary closed the connection within its snapshot",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes in the buffer that certainly belong to the snapshot, or `None` if it has ended.
    fn known(&mut self) -> Option<usize> {
        let has = self.buffer.len() - self.at;
        match self.end {
            End::After(0) => None,
            End::After(left) => Some(has.min(usize::try_from(left).unwrap_or(usize::MAX))),
            End::At(mark) => {
                let from = self.unmarked.max(self.at);
                let place = memmem::find(self.buffer.get(from..).unwrap_or_default(), &mark).map(|place| from + place);
                if let Some(place) = place {
                    self.unmarked = place;
                    return (place > self.at).then_some(place - self.at);
                }
                // The mark may begin in the last bytes.
                self.unmarked = self.buffer.len().saturating_sub(MARK_BYTES - 1).max(from);
                Some(self.unmarked - self.at)
            }
        }
    }

    /// Ends the snapshot and skips its mark, if it has one.
    fn end(&mut self) {
        if !self.has_ended && matches!(self.end, End::At(_)) {
            self.at += MARK_BYTES;
        }
        self.has_ended = true;
    }
}

impl<R: Read> Read for Transfer<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.has_ended || out.is_empty() {
            return Ok(0);
        }
        loop {
            match self.known() {
                None => {
                    self.end();
                    return Ok(0);
                }
                Some(0) => self.fill()?,
                Some(known) => {
                    let len = known.min(out.len());
                    let bytes = self.buffer.get(self.at..self.at + len).unwrap_or_default();
                    if let Some(room) = out.get_mut(..len) {
                        room.copy_from_slice(bytes);
                    }
                    self.at += len;
                    if let End::After(left) = &mut self.end {
                        *left -= len as u64;
                    }
                    return Ok(len);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns its bytes in pieces of this size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let (piece, rest) = self.0.split_at(self.0.len().min(self.1).min(out.len()));
            out[..piece.len()].copy_from_slice(piece);
            self.0 = rest;
            Ok(piece.len())
        }
    }

    const MARK: &[u8; 40] = b"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmX";

    /// Reads a snapshot that arrives in pieces, with a buffer of this size. Returns the snapshot and the bytes after it.
    fn transferred(line: &[u8], sent: &[u8], piece: usize, buffer: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let end = End::parse(line).unwrap();
        let (first, later) = sent.split_at(sent.len().min(piece / 2));
        let mut transfer = Transfer::new(Pieces(later, piece), end, first);
        let mut snapshot = Vec::new();
        let mut room = vec![0; buffer];
        loop {
            match transfer.read(&mut room)? {
                0 => break,
                len => snapshot.extend_from_slice(&room[..len]),
            }
        }
        assert!(transfer.has_ended());
        let unread = transfer.input.0;
        Ok((snapshot, [&transfer.into_rest(), unread].concat()))
    }

    #[test]
    fn a_snapshot_ends_where_it_ends_however_it_arrives() {
        // Near misses of the mark, again and again.
        let snapshot: Vec<u8> = MARK[..39].iter().cycle().take(300).copied().chain(*b"REDIS").collect();
        let stream = b"*1\r\n$4\r\nPING\r\n";
        let known = [&snapshot[..], stream].concat();
        let marked = [&snapshot[..], MARK, stream].concat();
        for piece in (1..60).chain([400]) {
            for buffer in [1, 7, 64, 1000] {
                let expected = (snapshot.clone(), stream.to_vec());
                assert_eq!(transferred(b"$305", &known, piece, buffer).unwrap(), expected, "{piece} {buffer}");
                let line = [b"$EOF:", &MARK[..]].concat();
                assert_eq!(transferred(&line, &marked, piece, buffer).unwrap(), expected, "{piece} {buffer}");
            }
        }
        assert_eq!(transferred(b"$0", stream, 3, 3).unwrap(), (Vec::new(), stream.to_vec()));
    }

    #[test]
    fn a_snapshot_that_is_cut_off_is_an_error() {
        let line = [b"$EOF:", &MARK[..]].concat();
        let cut = [b"snapshot", &MARK[..39]].concat();
        assert_eq!(transferred(&line, &cut, 5, 9).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(transferred(b"$9", b"snapshot", 5, 9).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn lines_that_announce_no_snapshot_are_refused() {
        for line in ["", "$", "$x", "$-1", "$EOF:short", "+OK", "$99999999999999999999", "$1152921504606846977"] {
            assert_eq!(End::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(End::parse(b"$12").and_then(|end| end.bytes()), Some(12));
    }
}
