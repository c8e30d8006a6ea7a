//! The form of an increment: commands in blocks with checksums. Other servers see only the commands.
//!
//! ```text
//! file:    #penstock 2\r\n block block ... with times and marks between some of them
//! time:    #TS:<seconds of Unix time>\r\n                        what follows was written then or later
//! mark:    #ahead <end of the filler, 15 digits> <CRC-32, 8 hex digits>\r\n
//! block:   #block <bytes, 12 digits> <settled, 15 digits> <1 if it has comments in it, else 0> <link, 8 hex digits>
//!          <CRC-32, 8 hex digits>\r\n                             all in one line
//!          commands and comments, so many bytes
//! comment: #own+<hex digits>\r\n ... #own.<hex digits>\r\n        records for Penstock only, in pieces
//!          #=<running CRC-32, 8 hex digits>\n                    a checkpoint between two units of a block
//! ```
//!
//! Times are Redis's own annotations (`aof-timestamp-enabled`). `redis-check-aof --truncate-to-timestamp` cuts a file at them. They stand
//! between blocks, so a file that is cut there consists of whole blocks.
//!
//! # Links
//!
//! A block's link is the checksum of the previous block, and 0 in the first block. The links reveal a block that a crash has lost as a
//! whole, even if a later block is intact. The running checksum of a checkpoint begins with the link and covers the block's bytes before
//! the checkpoint. A block's checksum covers its first line and the running checksum at its end. In a torn block, the units before the last
//! valid checkpoint are therefore known to be whole. A start cuts the block there, and the next block's link is the checkpoint's checksum.
//!
//! # Filler
//!
//! Filler, which consists of lines of `#`, may follow the last block. The next block overwrites filler, while other servers append after
//! it. No block ends just before the end of a filler line, because the rest would be an empty line, which is no command.
//!
//! A sector that a crash has lost reads as filler again. A command in the next sector must not be mistaken for a command that another
//! server has appended. A mark therefore precedes each filler and names its end:
//!
//! - A mark is written at the file's end, never over filler. A crash loses it only together with the filler after it.
//! - No block crosses the end of the filler. A block that doesn't fit begins at that end.
//! - A command between filler and that end is the rest of a torn block. Other servers append at that end, or right after a block if a start
//!   or a stop has cut the filler off.
//!
//! # Version 1
//!
//! Files that begin with `#penstock 1` have blocks without a link, no checkpoints and no marks. They are read, and continued with blocks
//! of this version.
//!
//! # Other servers
//!
//! Redis and Valkey skip lines that begin with `#` between commands, and read at most 127 characters of one at a time. A unit of several
//! commands is framed as MULTI ... EXEC, and lies between two checkpoints, so a change and the count of its pipeline token stay together. A
//! record in `#own` lines belongs to the next unit. `settled` is the durable length of the file when the block was written: an error before
//! that length is damage, and bytes after it may never have been written.

use journal::record::{Entry, Kind};
use resp::num::write_u64;

/// The first line of a file that Penstock begins.
pub const FILE_START: &[u8] = b"#penstock 2\r\n";
/// The first line of a file of version 1.
const FILE_START_1: &[u8] = b"#penstock 1\r\n";
/// Bytes of a block's first line.
pub const HEAD_BYTES: usize = 57;
/// Bytes of a block's first line in version 1.
const HEAD_BYTES_1: usize = 48;
/// Bytes at the end of a block's first line that its checksum does not cover.
const UNCOVERED_BYTES: usize = "01234567\r\n".len();
/// The beginning of a block's first line.
pub const HEAD_START: &[u8] = b"#block ";
/// The beginning of a mark, which names the end of the filler behind it.
pub(crate) const MARK_START: &[u8] = b"#ahead ";
/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = "#ahead 012345678901234 01234567\r\n".len();
/// The beginning of a checkpoint.
const CHECKPOINT_START: &[u8] = b"#=";
/// Bytes of a checkpoint.
const CHECKPOINT_BYTES: usize = "#=01234567\n".len();
/// Bytes of units behind which the next unit of the block has a checkpoint before it: a tear loses no more units than these before it, and
/// the file is 4 % longer.
const CHECKPOINT_EVERY: usize = 256;
/// Size of a block in bytes from which the next unit begins another. A block is the unit of damage reports, and is checked in memory as a
/// whole.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of a line of filler. Its end in the file is a multiple of them.
pub(crate) const FILLER_LINE_BYTES: u64 = 64;
/// Padding that keeps a block from ending before the last byte of such a line.
pub(crate) const FILLER_PAD: &[u8] = b"#\n";
/// The beginning of a comment with the time.
pub(crate) const TIME_START: &[u8] = b"#TS:";
/// The beginnings of comments with pieces of a record for Penstock only: one that continues, and the last.
const OWN_MORE: &[u8] = b"#own+";
const OWN_LAST: &[u8] = b"#own.";
/// Bytes of a record in one comment: with two digits each, a line stays below the 127 characters that other servers read.
const OWN_BYTES: usize = 56;

/// The fields of a block's first line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Bytes of the line.
    pub line_bytes: usize,
    /// Bytes of the block after the line.
    pub len: u64,
    /// Bytes of the file that were durable when the block was written.
    pub settled: u64,
    /// True if there are comments among the commands.
    pub has_comments: bool,
    /// The checksum of the block before. None in version 1.
    pub link: Option<u32>,
    /// The checksum of the line and the block.
    pub checksum: u32,
}

impl Head {
    /// Reads the line that `bytes` begin with, if it is a block's first line.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Head> {
        if !bytes.starts_with(HEAD_START) {
            return None;
        }
        [HEAD_BYTES_1, HEAD_BYTES].into_iter().find_map(|len| Head::parse_line(bytes.get(..len)?))
    }

    fn parse_line(line: &[u8]) -> Option<Head> {
        let text = std::str::from_utf8(line.strip_suffix(b"\r\n")?).ok()?;
        let mut words = text.split(' ').skip(1);
        let mut number = |digits: usize| -> Option<u64> {
            let word = words.next()?;
            (word.len() == digits && word.bytes().all(|byte| byte.is_ascii_digit())).then(|| word.parse().ok())?
        };
        let (len, settled, flag) = (number(12)?, number(15)?, number(1)?);
        let (first, second) = (hex(words.next()?)?, words.next());
        let (link, checksum) = match second {
            None => (None, first),
            Some(second) => (Some(first), hex(second)?),
        };
        let is_head = flag <= 1 && words.next().is_none() && link.is_some() == (line.len() == HEAD_BYTES);
        is_head.then_some(Head { line_bytes: line.len(), len, settled, has_comments: flag == 1, link, checksum })
    }

    /// Returns true if the block of `line` and `bytes` has the right checksum.
    #[must_use]
    pub fn is_whole(&self, line: &[u8], bytes: &[u8]) -> bool {
        let Some(covered) = line.get(..self.line_bytes - UNCOVERED_BYTES) else { return false };
        let checksum = match self.link {
            None => checksum(&[covered, bytes]),
            Some(link) => head_checksum(covered, running(link, bytes).finalize()),
        };
        checksum == self.checksum
    }

    /// Writes a block's first line. `running` is the running checksum at the block's end. Returns the block's checksum.
    fn write(line: &mut [u8], len: usize, settled: u64, has_comments: bool, link: u32, running: u32) -> u32 {
        let start = format!("#block {len:012} {settled:015} {} {link:08x} ", u8::from(has_comments));
        let checksum = head_checksum(start.as_bytes(), running);
        let text = format!("{start}{checksum:08x}\r\n");
        // Larger numbers than the digits allow would need a file of a petabyte.
        for (to, from) in line.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        checksum
    }
}

/// Returns a block without commands. It closes a block that was cut at a checkpoint, so that other servers may append.
#[must_use]
pub fn empty_block(settled: u64, link: u32) -> Vec<u8> {
    let mut line = vec![0; HEAD_BYTES];
    Head::write(&mut line, 0, settled, false, link, running(link, b"").finalize());
    line
}

/// A number of eight hexadecimal digits.
fn hex(word: &str) -> Option<u32> {
    (word.len() == 8).then(|| u32::from_str_radix(word, 16).ok())?
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

fn head_checksum(covered: &[u8], running: u32) -> u32 {
    checksum(&[covered, &running.to_le_bytes()])
}

/// The running checksum of a block's bytes.
fn running(link: u32, bytes: &[u8]) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new_with_initial(link);
    hasher.update(bytes);
    hasher
}

/// Verifies a block from checkpoint to checkpoint.
pub(crate) struct Checkpoints {
    running: crc32fast::Hasher,
}

impl Checkpoints {
    /// Starts at the beginning of a block with this link.
    pub(crate) fn new(link: u32) -> Checkpoints {
        Checkpoints { running: running(link, b"") }
    }

    /// Processes the bytes since the last checkpoint, and the next checkpoint's line. Returns the checkpoint's checksum if it is right.
    pub(crate) fn take(&mut self, bytes: &[u8], line: &[u8]) -> Option<u32> {
        self.running.update(bytes);
        let checksum = self.running.clone().finalize();
        self.running.update(line);
        (line == checkpoint(checksum)).then_some(checksum)
    }
}

fn checkpoint(running: u32) -> [u8; CHECKPOINT_BYTES] {
    let mut line = [b'\n'; CHECKPOINT_BYTES];
    let text = format!("#={running:08x}");
    line.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    line
}

/// Returns true if a comment is a checkpoint.
pub(crate) fn is_checkpoint(line: &[u8]) -> bool {
    line.len() == CHECKPOINT_BYTES && line.starts_with(CHECKPOINT_START)
}

/// Returns whether a file begins with Penstock's first line, and whether the line is of this version.
pub(crate) fn file_start(bytes: &[u8]) -> (bool, bool) {
    let is_current = bytes.starts_with(FILE_START);
    (is_current || bytes.starts_with(FILE_START_1), is_current)
}

/// A mark before filler that ends at `end`.
pub(crate) fn mark(end: u64) -> Vec<u8> {
    let start = format!("#ahead {end:015} ");
    let checksum = checksum(&[start.as_bytes()]);
    format!("{start}{checksum:08x}\r\n").into_bytes()
}

/// The end of the filler that a mark names. None if the line is no mark, or a damaged one.
pub(crate) fn read_mark(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(MARK_START)?.get(..15)?;
    let end = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (line == mark(end)).then_some(end)
}

/// Returns filler from one position of a file to another.
pub(crate) fn filler(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(|at| if is_before_line_end(at) { b'\n' } else { b'#' }).collect()
}

/// Returns true if filler can't begin here: its first byte would be the end of a line.
pub(crate) fn is_before_line_end(at: u64) -> bool {
    at % FILLER_LINE_BYTES == FILLER_LINE_BYTES - 1
}

/// The end of the line of filler at this position.
pub(crate) fn filler_end(at: u64) -> u64 {
    at.next_multiple_of(FILLER_LINE_BYTES)
}

/// Returns true for a comment that is a line of filler.
pub(crate) fn is_filler(line: &[u8]) -> bool {
    line.strip_suffix(b"\n").is_some_and(|line| !line.is_empty() && line.iter().all(|&byte| byte == b'#'))
}

/// Turns units into blocks, at the end of a buffer.
#[derive(Default)]
pub struct Encoder {
    /// The database selected by the commands so far.
    database: Option<usize>,
    /// Start of the open block in the buffer, and its running checksum.
    open: Option<(usize, Running)>,
    has_comments: bool,
    /// Bytes of the file that are durable.
    pub settled: u64,
    /// The last time written to the file.
    told_s: u64,
    /// The checksum of the last block, which is the link of the next block.
    link: u32,
}

/// The running checksum of the open block.
struct Running {
    hasher: crc32fast::Hasher,
    /// Start of the uncovered bytes in the buffer.
    covered: usize,
}

impl Running {
    fn cover(&mut self, out: &[u8]) -> u32 {
        self.hasher.update(&out[self.covered..]);
        self.covered = out.len();
        self.hasher.clone().finalize()
    }
}

impl Encoder {
    /// Continues a file. Its last block has the checksum `link`.
    #[must_use]
    pub fn behind(link: u32) -> Encoder {
        Encoder { link, ..Encoder::default() }
    }

    /// Begins a new file, with no database selected.
    pub fn begin_file(&mut self) {
        *self = Encoder::default();
    }

    /// Writes the time, in seconds of Unix time, unless the file has this time or a later one: a clock may be set back. Ends the open
    /// block.
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

    /// Appends a unit to `out`. Call [`Encoder::end_block`] before `out` is written.
    pub fn unit<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>> + Clone, out: &mut Vec<u8>) {
        let entries = entries.filter(|entry| entry.kind.is_for_file());
        if entries.clone().next().is_none() {
            return;
        }
        self.open_block(out);
        for own in entries.clone().filter(|entry| entry.kind == Kind::Own) {
            self.has_comments = true;
            comment(own.command, out);
        }
        let mut commands = entries.filter(|entry| entry.kind.is_command());
        if let Some(first) = commands.next() {
            let second = commands.next();
            if let Some(second) = second {
                // Selected before the transaction, and valid for later commands, too.
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
        if self.open.as_ref().is_some_and(|(start, _)| out.len() - start >= BLOCK_BYTES) {
            self.end_block(out);
        }
    }

    /// Begins a block if none is open, and a checkpoint if the last one is far behind.
    fn open_block(&mut self, out: &mut Vec<u8>) {
        let Some((_, running)) = &mut self.open else {
            let start = out.len();
            out.extend_from_slice(&[0; HEAD_BYTES]);
            let hasher = crc32fast::Hasher::new_with_initial(self.link);
            self.open = Some((start, Running { hasher, covered: out.len() }));
            return;
        };
        if out.len() - running.covered >= CHECKPOINT_EVERY {
            let line = checkpoint(running.cover(out));
            out.extend_from_slice(&line);
            running.cover(out);
            self.has_comments = true;
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

    /// Ends the open block, if there is one.
    pub fn end_block(&mut self, out: &mut [u8]) {
        let Some((start, mut running)) = self.open.take() else { return };
        let checksum = running.cover(out);
        let (line, bytes) = out[start..].split_at_mut(HEAD_BYTES);
        let has_comments = std::mem::take(&mut self.has_comments);
        self.link = Head::write(line, bytes.len(), self.settled, has_comments, self.link, checksum);
    }
}

/// Writes a record for Penstock only, as comments.
fn comment(record: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pieces = record.chunks(OWN_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        out.extend_from_slice(if pieces.peek().is_some() { OWN_MORE } else { OWN_LAST });
        out.extend(piece.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns true for a line with the time.
pub(crate) fn is_time(line: &[u8]) -> bool {
    let digits = line.strip_prefix(TIME_START).and_then(|line| line.strip_suffix(b"\r\n"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Reads a comment with a piece of a record for Penstock only, and appends its bytes to `record`. Returns true for the last piece, and
/// `None` for any other comment or a damaged one.
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
        Head::write(&mut line, 3, 99, false, 0xabcd, running(0xabcd, b"abc").finalize());
        assert!(Head::parse(&line).unwrap().is_whole(&line, b"abc"));
        for at in 0..HEAD_BYTES {
            let mut damaged = line;
            damaged[at] ^= 0x10;
            assert!(Head::parse(&damaged).is_none_or(|head| !head.is_whole(&damaged, b"abc")), "{at}");
        }
    }
}
