//! The form of an increment: commands in blocks with checksums, of which other servers see the commands only.
//!
//! ```text
//! file:    #penstock 1\r\n block block ... with times between some of them
//! time:    #TS:<seconds of Unix time>\r\n                        what follows was written then or later
//! block:   #block <bytes, 12 digits> <settled, 15 digits> <1 if it has comments in it, else 0> <CRC-32, 8 hex digits>\r\n
//!          commands and comments, so many bytes
//! comment: #own+<hex digits>\r\n ... #own.<hex digits>\r\n        what only Penstock understands, in pieces
//! ```
//!
//! Times are Redis's own annotations (`aof-timestamp-enabled`), by which `redis-check-aof --truncate-to-timestamp` cuts a file. They
//! stand between blocks, so that a file that is cut there is whole.
//!
//! Behind the last block there may be filler, lines of `#`. What is written next takes its place; others may write behind it. No block ends
//! just before a line's end: an empty line, which is no command, would be left.
//!
//! Redis and Valkey skip lines that begin with `#` between commands, and read at most 127 characters of one at a time. A unit
//! of several commands is framed as MULTI ... EXEC, and lies within one block: a block that is torn at the file's end is
//! left out as a whole, so a change and the count of its pipeline token stay together. What `#own` carries belongs to the
//! unit that it stands before. `settled` is how much of the file was durable when the block was written: what is damaged before
//! that is damage, what is damaged behind it may never have been written. The checksum covers the line before it, too.

use journal::record::{Entry, Kind};
use resp::num::write_u64;

/// How a file begins that Penstock begins.
pub const FILE_START: &[u8] = b"#penstock 1\r\n";
/// Bytes of a block's first line.
pub const HEAD_BYTES: usize = 48;
/// Bytes of it that the checksum covers.
const COVERED_BYTES: usize = HEAD_BYTES - "01234567\r\n".len();
/// How a block's first line begins.
pub const HEAD_START: &[u8] = b"#block ";
/// Bytes of a block from which on the next unit begins another: what is found damaged is told to that, and what is checked
/// at once has to be in memory.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of a line of filler, which ends where a multiple of them does in the file.
pub(crate) const FILLER_LINE_BYTES: u64 = 64;
/// What keeps a block from ending before the last byte of such a line.
pub(crate) const FILLER_PAD: &[u8] = b"#\n";
/// How the comment begins that tells the time.
pub(crate) const TIME_START: &[u8] = b"#TS:";
/// How comments begin that carry what only Penstock understands: one that goes on, and the last.
const OWN_MORE: &[u8] = b"#own+";
const OWN_LAST: &[u8] = b"#own.";
/// Bytes of a record in one comment: two digits each, so that a line stays below the 127 characters that others read.
const OWN_BYTES: usize = 56;

/// What the first line of a block says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Bytes of the block behind the line.
    pub len: u64,
    /// Bytes of the file that were durable when the block was written.
    pub settled: u64,
    /// Whether there are comments among the commands.
    pub has_comments: bool,
    checksum: u32,
}

impl Head {
    /// Reads a block's first line.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Head> {
        let text = std::str::from_utf8(line.get(..HEAD_BYTES)?.strip_suffix(b"\r\n")?).ok()?;
        let mut words = text.split(' ');
        if words.next()?.as_bytes() != HEAD_START.trim_ascii() {
            return None;
        }
        let mut number = |digits: usize| -> Option<u64> {
            let word = words.next()?;
            (word.len() == digits && word.bytes().all(|byte| byte.is_ascii_digit())).then(|| word.parse().ok())?
        };
        let (len, settled, flag) = (number(12)?, number(15)?, number(1)?);
        let checksum = u32::from_str_radix(words.next()?, 16).ok()?;
        (flag <= 1).then_some(Head { len, settled, has_comments: flag == 1, checksum })
    }

    /// Whether the block that `line` and `bytes` are is as it was written.
    #[must_use]
    pub fn is_whole(&self, line: &[u8], bytes: &[u8]) -> bool {
        line.get(..COVERED_BYTES).is_some_and(|covered| checksum(covered, bytes) == self.checksum)
    }

    /// Writes the first line of a block.
    fn write(len: usize, settled: u64, has_comments: bool, line: &mut [u8], bytes: &[u8]) {
        let start = format!("#block {len:012} {settled:015} {} ", u8::from(has_comments));
        let checksum = checksum(start.as_bytes(), bytes);
        let text = format!("{start}{checksum:08x}\r\n");
        // A file of a petabyte would take more digits than there are.
        for (to, from) in line.iter_mut().zip(text.bytes()) {
            *to = from;
        }
    }
}

fn checksum(covered: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(covered);
    hasher.update(bytes);
    hasher.finalize()
}

/// Filler from one place of a file to another.
pub(crate) fn filler(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|at| if is_before_line_end(at) { b'\n' } else { b'#' }).collect()
}

/// Whether filler can't begin here: it would begin with the end of a line.
pub(crate) fn is_before_line_end(at: u64) -> bool {
    at % FILLER_LINE_BYTES == FILLER_LINE_BYTES - 1
}

/// Where a line of filler ends, from so many bytes on.
pub(crate) fn filler_end(at: u64) -> u64 {
    at.next_multiple_of(FILLER_LINE_BYTES)
}

/// Whether a comment is a line of filler.
pub(crate) fn is_filler(line: &[u8]) -> bool {
    line.strip_suffix(b"\n").is_some_and(|line| !line.is_empty() && line.iter().all(|&byte| byte == b'#'))
}

/// Turns units into blocks, at the end of a buffer.
#[derive(Default)]
pub struct Encoder {
    /// The database that the commands so far have selected.
    database: Option<usize>,
    /// Where the open block begins in the buffer.
    open: Option<usize>,
    has_comments: bool,
    /// Bytes of the file that are durable.
    pub settled: u64,
    /// The time that the file has told last.
    told_s: u64,
}

impl Encoder {
    /// Begins a new file: nothing is selected there.
    pub fn begin_file(&mut self) {
        *self = Encoder::default();
    }

    /// Tells the time, in seconds of Unix time, unless the file has told it or a later one: a clock may be set back. Ends the
    /// block that is open.
    pub fn time(&mut self, now_s: u64, out: &mut Vec<u8>) {
        if now_s <= self.told_s {
            return;
        }
        self.told_s = now_s;
        self.end_block(out);
        out.extend_from_slice(TIME_START);
        write_u64(out, now_s);
        out.extend_from_slice(b"\r\n");
    }

    /// Adds a unit behind what `out` has. Call [`Encoder::end_block`] before `out` is written.
    pub fn unit<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>> + Clone, out: &mut Vec<u8>) {
        let entries = entries.filter(|entry| entry.kind != Kind::Message);
        if entries.clone().next().is_none() {
            return;
        }
        let start = *self.open.get_or_insert_with(|| {
            out.extend_from_slice(&[0; HEAD_BYTES]);
            out.len() - HEAD_BYTES
        });
        for own in entries.clone().filter(|entry| entry.kind == Kind::Own) {
            self.has_comments = true;
            comment(own.command, out);
        }
        let mut commands = entries.filter(|entry| entry.kind == Kind::Command);
        if let Some(first) = commands.next() {
            let second = commands.next();
            if let Some(second) = second {
                // Selected before, so that it holds for what comes later, too.
                self.select(first.database, out);
                out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
                out.extend_from_slice(first.command);
                for entry in std::iter::once(second).chain(commands) {
                    self.select(entry.database, out);
                    out.extend_from_slice(entry.command);
                }
                out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
            } else {
                self.select(first.database, out);
                out.extend_from_slice(first.command);
            }
        }
        if out.len() - start >= BLOCK_BYTES {
            self.end_block(out);
        }
    }

    fn select(&mut self, database: usize, out: &mut Vec<u8>) {
        if self.database == Some(database) {
            return;
        }
        self.database = Some(database);
        let mut digits = Vec::new();
        write_u64(&mut digits, database as u64);
        out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n$");
        write_u64(out, digits.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&digits);
        out.extend_from_slice(b"\r\n");
    }

    /// Ends the block that is open, if one is.
    pub fn end_block(&mut self, out: &mut [u8]) {
        let Some(start) = self.open.take() else { return };
        let (_, block) = out.split_at_mut(start);
        let (line, bytes) = block.split_at_mut(HEAD_BYTES);
        Head::write(bytes.len(), self.settled, std::mem::take(&mut self.has_comments), line, bytes);
    }
}

/// Writes what only Penstock understands, as comments.
fn comment(record: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pieces = record.chunks(OWN_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        out.extend_from_slice(if pieces.peek().is_some() { OWN_MORE } else { OWN_LAST });
        out.extend(piece.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether a line tells the time.
pub(crate) fn is_time(line: &[u8]) -> bool {
    let digits = line.strip_prefix(TIME_START).and_then(|line| line.strip_suffix(b"\r\n"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// A piece of a comment that carries what only Penstock understands: its bytes are added to `record`. True if it was the
/// last; none if the line is another comment, or a damaged one.
pub(crate) fn read_comment(line: &[u8], record: &mut Vec<u8>) -> Option<bool> {
    let line = line.strip_suffix(b"\r\n")?;
    let (digits, is_last) = match (line.strip_prefix(OWN_MORE), line.strip_prefix(OWN_LAST)) {
        (Some(digits), _) => (digits, false),
        (_, Some(digits)) => (digits, true),
        _ => return None,
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    for [high, low] in pairs {
        record.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(is_last)
}

#[cfg(test)]
mod tests {
    use journal::record::{Record, entries};

    use super::*;

    #[test]
    fn a_block_is_commands_for_others_and_has_its_checksum() {
        let mut record = Record::default();
        let mut encoder = Encoder { settled: 77, ..Encoder::default() };
        let mut out = Vec::new();
        record.push(0, Kind::Command, [&b"SET"[..], b"k", b"v"].into_iter());
        encoder.unit(entries(record.bytes()), &mut out);
        record.push(3, Kind::Command, [&b"DEL"[..], b"k"].into_iter());
        record.push(0, Kind::Own, [&b"PIPELINE"[..], &[0xab; 100]].into_iter());
        record.push(0, Kind::Message, [&b"PUBLISH"[..], b"channel", b"message"].into_iter());
        encoder.unit(entries(record.bytes()), &mut out);
        encoder.end_block(&mut out);
        let (line, bytes) = out.split_at(HEAD_BYTES);
        let head = Head::parse(line).unwrap();
        assert_eq!((head.len as usize, head.settled, head.has_comments), (bytes.len(), 77, true));
        assert!(head.is_whole(line, bytes) && !head.is_whole(line, &bytes[1..]));
        let text: Vec<&[u8]> = out[HEAD_BYTES..].split_inclusive(|&byte| byte == b'\n').collect();
        assert!(text.iter().all(|line| line.len() < 127));
        let set = "*3 $3 SET $1 k $1 v";
        let expected = format!("*2 $6 SELECT $1 0 {set} *1 $5 MULTI {set} *2 $6 SELECT $1 3 *2 $3 DEL $1 k *1 $4 EXEC");
        let commands: Vec<_> = text.iter().filter(|line| line[0] != b'#').map(|line| line.trim_ascii()).collect();
        assert_eq!(String::from_utf8(commands.join(&b' ')).unwrap(), expected);
        let mut own = Vec::new();
        let ends: Vec<_> = text.iter().filter_map(|line| read_comment(line, &mut own)).collect();
        assert_eq!(ends, [false, false, true]);
        assert_eq!(own, entries(record.bytes()).nth(2).unwrap().command);
    }

    #[test]
    fn a_second_is_told_once_and_between_blocks() {
        let (mut encoder, mut out) = (Encoder::default(), Vec::new());
        let mut record = Record::default();
        record.push(0, Kind::Command, [&b"SET"[..], b"k", b"v"].into_iter());
        for now_s in [100, 100, 99, 101] {
            encoder.time(now_s, &mut out);
            encoder.unit(entries(record.bytes()), &mut out);
        }
        encoder.end_block(&mut out);
        let mut parts = Vec::new();
        while !out.is_empty() {
            let len = match Head::parse(&out) {
                Some(head) => HEAD_BYTES + head.len as usize,
                None => 1 + out.iter().position(|&byte| byte == b'\n').unwrap(),
            };
            let part: Vec<u8> = out.drain(..len).collect();
            parts.push(if is_time(&part) { String::from_utf8(part).unwrap() } else { len.to_string() });
        }
        let (select, set) = (23, 27);
        let block = |sets: usize, selects: usize| (HEAD_BYTES + selects * select + sets * set).to_string();
        assert_eq!(parts, ["#TS:100\r\n".into(), block(3, 1), "#TS:101\r\n".into(), block(1, 0)]);
        assert!(!is_time(b"#TS:\r\n") && !is_time(b"#TS:1x\r\n") && !is_time(b"#TS:1\n"));
    }

    #[test]
    fn a_damaged_first_line_is_seen() {
        let mut line = [0; HEAD_BYTES];
        Head::write(3, 99, false, &mut line, b"abc");
        assert!(Head::parse(&line).unwrap().is_whole(&line, b"abc"));
        for at in 0..HEAD_BYTES {
            let mut damaged = line;
            damaged[at] ^= 0x10;
            assert!(Head::parse(&damaged).is_none_or(|head| !head.is_whole(&damaged, b"abc")), "{at}");
        }
    }
}
