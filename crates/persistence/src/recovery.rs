//! Reading the append-only file back.
//!
//! Blocks are checked before anything of them is applied. A file of Redis's, or what another server has added to one of
//! Penstock's, has none: its commands are read one after the other, as Redis reads them. What is wrong at a file's very end
//! was being written when the server or the machine ended: no client has been told that it is durable. It may be cut off. What is
//! wrong before something that is whole is damage.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use crate::block::{
    FILE_START, FILLER_LINE_BYTES, HEAD_BYTES, HEAD_START, Head, TIME_START, is_filler, is_time, read_comment,
};

/// What the contents of a file are given to, in order.
pub trait Apply {
    /// Applies whole commands, one behind the other. A transaction may continue with the next call.
    ///
    /// # Errors
    /// Why they can't be applied, and how many bytes before those that can't have been.
    fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)>;

    /// Applies a record that only Penstock understands.
    ///
    /// # Errors
    /// Why it can't be applied.
    fn own(&mut self, record: &[u8]) -> Result<(), String>;

    /// Tells how many bytes of the file have been read so far.
    fn progress(&mut self, _bytes: u64) {}

    /// Tells that a block's checksum is right. Its commands come next.
    fn block(&mut self) {}

    /// Tells what time the file notes for the commands that follow, in seconds of Unix time.
    fn time(&mut self, _unix_s: u64) {}
}

/// What a file had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes of the file up to which it is whole.
    pub whole: u64,
    /// Bytes behind them that are the beginning of something. Filler is not.
    pub torn: u64,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Damage {
    /// The system's reason.
    Io(io::Error),
    /// Bytes that are not what was written, or that no server writes.
    Bytes {
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Io(error) => error.fmt(f),
            Damage::Bytes { offset, why } => write!(f, "at byte {offset}: {why}"),
        }
    }
}

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;
/// Longest line between commands: a comment, or a length.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of commands that are applied at once, beside blocks.
const RUN_BYTES: usize = 256 * 1024;

/// A file that is being read: a window of it in memory.
struct Window<'r> {
    reader: &'r mut dyn Read,
    buffer: Vec<u8>,
    /// Where the first byte of `buffer` is in the file.
    offset: u64,
    /// What of `buffer` has been taken.
    at: usize,
    is_at_end: bool,
}

impl Window<'_> {
    fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Reads on until so many bytes are there, or the file ends.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while self.buffer.len() - self.at < wanted && !self.is_at_end {
            if self.at > READ_BYTES {
                self.buffer.drain(..self.at);
                self.offset += self.at as u64;
                self.at = 0;
            }
            // No more than what comes, whatever a length claims.
            let before = self.buffer.len();
            self.buffer.resize(before + READ_BYTES, 0);
            let read = loop {
                match self.reader.read(&mut self.buffer[before..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
            self.is_at_end = read? == 0;
        }
        Ok(())
    }

    /// Reads what is left, and tells where the file ends.
    fn skip_all(&mut self) -> io::Result<u64> {
        while !self.is_at_end {
            self.at = self.buffer.len();
            self.fill(1)?;
        }
        Ok(self.offset + self.buffer.len() as u64)
    }
}

/// What comes next in a file.
enum Item {
    /// A command of so many bytes.
    Command(usize),
    /// A comment of so many bytes.
    Comment(usize),
    /// The file ends within it.
    Torn,
    /// Something that is neither.
    Bad(&'static str),
}

/// Applies a file's commands.
///
/// # Errors
/// If it is damaged before its end, or can't be read or applied.
pub fn read_file(reader: &mut dyn Read, apply: &mut dyn Apply) -> Result<Extent, Damage> {
    let window = Window { reader, buffer: Vec::new(), offset: 0, at: 0, is_at_end: false };
    let mut file = Reading { window, own: Vec::new(), has_blocks: false, transaction: None, filler: None };
    loop {
        file.window.fill(HEAD_BYTES).map_err(Damage::Io)?;
        if file.window.rest().is_empty() {
            break;
        }
        let filler = file.filler_line().map_err(Damage::Io)?;
        let stopped = match Head::parse(file.window.rest()) {
            _ if filler => Stopped::Whole,
            Some(head) => file.read_block(head, apply)?,
            None => file.read_run(apply)?,
        };
        apply.progress(file.window.position());
        if let Stopped::AtEnd = stopped {
            break;
        }
    }
    let mut whole = file.window.position();
    if let Some(start) = file.transaction {
        whole = start;
        apply.commands(DISCARD).map_err(|(_, why)| bytes(start, why))?;
    }
    let torn = file.window.skip_all().map_err(Damage::Io)? - whole;
    match file.filler {
        Some(start) if torn == 0 => Ok(Extent { whole: start, torn }),
        _ => Ok(Extent { whole, torn }),
    }
}

/// What ends a transaction whose EXEC is missing.
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";

/// A file that is being read.
struct Reading<'r> {
    window: Window<'r>,
    /// Pieces so far of what only Penstock understands.
    own: Vec<u8>,
    /// Whether Penstock has written some of the file.
    has_blocks: bool,
    /// Where a transaction begins that has not ended. It goes with what is torn.
    transaction: Option<u64>,
    /// Where the filler begins behind which nothing has come yet.
    filler: Option<u64>,
}

/// How a part of a file ended.
enum Stopped {
    /// More may come.
    Whole,
    /// The file ends in the midst of something.
    AtEnd,
}

fn bytes(offset: u64, why: impl Into<String>) -> Damage {
    Damage::Bytes { offset, why: why.into() }
}

impl Reading<'_> {
    /// Takes the line of filler that comes next. False if there is none.
    fn filler_line(&mut self) -> io::Result<bool> {
        if self.has_blocks && matches!(self.window.rest(), [b'#', b'#' | b'\n', ..]) {
            let line_bytes = FILLER_LINE_BYTES as usize;
            self.window.fill(line_bytes)?;
            let rest = self.window.rest();
            let end = rest.iter().take(line_bytes).position(|&byte| byte == b'\n');
            if let Some(line) = end.map(|end| &rest[..=end]).filter(|line| is_filler(line)) {
                let (start, len) = (self.window.position(), line.len());
                self.filler.get_or_insert(start);
                self.window.at += len;
                return Ok(true);
            }
        }
        self.filler = None;
        Ok(false)
    }

    /// Checks and applies the block whose first line comes next.
    fn read_block(&mut self, head: Head, apply: &mut dyn Apply) -> Result<Stopped, Damage> {
        self.has_blocks = true;
        let Ok(len) = usize::try_from(head.len) else { return self.stop_or_refuse("a block of an impossible length") };
        self.window.fill(HEAD_BYTES + len).map_err(Damage::Io)?;
        let start = self.window.position() + HEAD_BYTES as u64;
        let (line, rest) = self.window.rest().split_at(HEAD_BYTES);
        let Some(block) = rest.get(..len) else {
            return self.stop_or_refuse("a block that is longer than the file");
        };
        if !head.is_whole(line, block) {
            return self.stop_or_refuse("a block whose checksum is wrong");
        }
        apply.block();
        if head.has_comments {
            apply_mixed(block, start, &mut self.own, apply)?;
        } else {
            let applied = apply.commands(block);
            applied.map_err(|(before, why)| bytes(start + before as u64, why))?;
        }
        self.window.at += HEAD_BYTES + len;
        Ok(Stopped::Whole)
    }

    /// Applies commands that no checksum covers, as far as the next comment, or skips that.
    fn read_run(&mut self, apply: &mut dyn Apply) -> Result<Stopped, Damage> {
        let mut run = 0;
        let stopped = loop {
            if run >= RUN_BYTES {
                break Stopped::Whole;
            }
            let is_at_end = self.window.is_at_end;
            let rest = &self.window.rest()[run..];
            match next_item(rest) {
                Item::Command(len) => {
                    self.note_transaction(run, len);
                    run += len;
                }
                Item::Comment(_) if run > 0 => break Stopped::Whole,
                // The first line of a block may be damaged; its commands must not pass for ones that nothing covers.
                Item::Comment(len) if self.has_blocks && !is_time(&rest[..len]) => {
                    return self.stop_or_refuse("neither a block nor a known comment");
                }
                Item::Comment(len) => {
                    self.has_blocks |= rest.starts_with(FILE_START);
                    if let Some(unix_s) = timestamp(&rest[..len]) {
                        apply.time(unix_s);
                    }
                    self.window.at += len;
                    return Ok(Stopped::Whole);
                }
                Item::Torn if !is_at_end => {
                    let wanted = self.window.rest().len() + 1;
                    self.window.fill(wanted).map_err(Damage::Io)?;
                }
                Item::Torn => break Stopped::AtEnd,
                Item::Bad(why) if run == 0 => return self.stop_or_refuse(why),
                // Again, when what precedes it has been applied.
                Item::Bad(_) => break Stopped::Whole,
            }
        };
        let applied = apply.commands(&self.window.rest()[..run]);
        applied.map_err(|(before, why)| bytes(self.window.position() + before as u64, why))?;
        self.window.at += run;
        // What another whole block follows was not torn.
        if let (Stopped::AtEnd, true) = (&stopped, self.has_blocks) {
            return self.stop_or_refuse("a command that has no end");
        }
        Ok(stopped)
    }

    /// Notes whether the command of `len` bytes at `run` begins or ends a transaction.
    fn note_transaction(&mut self, run: usize, len: usize) {
        let start = self.window.position() + run as u64;
        let command = &self.window.rest()[run..run + len];
        let is = |name: &[u8]| command.eq_ignore_ascii_case(name);
        match self.transaction {
            None if is(b"*1\r\n$5\r\nMULTI\r\n") => self.transaction = Some(start),
            Some(_) if is(b"*1\r\n$4\r\nEXEC\r\n") || is(DISCARD) => self.transaction = None,
            _ => {}
        }
    }

    /// Decides about bytes that are not what they should be. Before what a later block takes for durable they are damage, and
    /// so they are in a file that Penstock has not written: what another server was writing last is the beginning of a
    /// command. Else they were being written when the machine ended.
    fn stop_or_refuse(&mut self, why: &'static str) -> Result<Stopped, Damage> {
        let offset = self.window.position();
        if !self.has_blocks || settled_behind(&mut self.window, offset)? {
            return Err(bytes(offset, why));
        }
        Ok(Stopped::AtEnd)
    }
}

/// Applies commands and comments that have been checked.
fn apply_mixed(block: &[u8], start: u64, own: &mut Vec<u8>, apply: &mut dyn Apply) -> Result<(), Damage> {
    let mut at = 0;
    while at < block.len() {
        let run = at;
        let comment = loop {
            match next_item(&block[at..]) {
                Item::Command(len) => at += len,
                Item::Comment(len) => break Some(len),
                Item::Torn if at == block.len() => break None,
                Item::Torn => return Err(bytes(start + at as u64, "a block that ends within a command")),
                Item::Bad(why) => return Err(bytes(start + at as u64, why)),
            }
        };
        let applied = apply.commands(&block[run..at]);
        applied.map_err(|(before, why)| bytes(start + (run + before) as u64, why))?;
        if let Some(len) = comment {
            if read_comment(&block[at..at + len], own) == Some(true) {
                let applied = apply.own(&std::mem::take(own));
                applied.map_err(|why| bytes(start + at as u64, why))?;
            }
            at += len;
        }
    }
    Ok(())
}

/// The time that a comment tells, in seconds of Unix time.
fn timestamp(comment: &[u8]) -> Option<u64> {
    let digits = comment.strip_prefix(TIME_START)?.trim_ascii_end();
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Takes the whole command that `bytes` begins with: where its arguments are goes to `args`, in place of what they have, and its
/// length is returned. None if there is none.
pub fn take_command(bytes: &[u8], args: &mut Vec<Range<usize>>) -> Option<usize> {
    args.clear();
    let (count, mut at) = number(bytes, b'*')?.ok()?;
    for _ in 0..count {
        let (len, head) = number(bytes.get(at..)?, b'$')?.ok()?;
        let start = at + head;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        at = end.checked_add(2).filter(|&at| at <= bytes.len())?;
        args.push(start..end);
    }
    Some(at)
}

/// What comes next.
fn next_item(bytes: &[u8]) -> Item {
    match bytes.first() {
        None => Item::Torn,
        Some(b'#') => match line(bytes) {
            Some(Ok(len)) => Item::Comment(len),
            Some(Err(why)) => Item::Bad(why),
            None => Item::Torn,
        },
        Some(b'*') => command(bytes).unwrap_or(Item::Torn),
        Some(_) => Item::Bad("neither a command nor a comment"),
    }
}

/// Bytes of the line that comes next, its end included. None if it has no end.
fn line(bytes: &[u8]) -> Option<Result<usize, &'static str>> {
    match bytes.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') {
        Some(end) => Some(Ok(end + 1)),
        None if bytes.len() >= LINE_BYTES_MAX => Some(Err("a line that is too long")),
        None => None,
    }
}

/// The command that comes next. None if its end is not there.
fn command(bytes: &[u8]) -> Option<Item> {
    let (count, mut at) = match number(bytes, b'*')? {
        Ok(number) => number,
        Err(why) => return Some(Item::Bad(why)),
    };
    if count == 0 {
        return Some(Item::Bad("a command without a name"));
    }
    for _ in 0..count {
        let (len, head) = match number(bytes.get(at..)?, b'$')? {
            Ok(number) => number,
            Err(why) => return Some(Item::Bad(why)),
        };
        let end = at.checked_add(head)?.checked_add(usize::try_from(len).ok()?)?;
        match bytes.get(end..end.checked_add(2)?) {
            Some(b"\r\n") => at = end + 2,
            Some(_) => return Some(Item::Bad("an argument that is longer than its length says")),
            None => return None,
        }
    }
    Some(Item::Command(at))
}

/// The length that comes next, and bytes of its line. None if its end is not there.
fn number(bytes: &[u8], sign: u8) -> Option<Result<(u64, usize), &'static str>> {
    const WRONG: &str = "a length that is no number";
    if *bytes.first()? != sign {
        return Some(Err("a length without its sign"));
    }
    let mut number = 0u64;
    for (at, &byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' if at < 12 => number = number * 10 + u64::from(byte - b'0'),
            b'\r' if at > 1 => {
                return match bytes.get(at + 1)? {
                    b'\n' => Some(Ok((number, at + 2))),
                    _ => Some(Err(WRONG)),
                };
            }
            _ => return Some(Err(WRONG)),
        }
    }
    None
}

/// Whether a whole block follows somewhere behind the next byte that takes what is at `offset` for durable.
fn settled_behind(window: &mut Window<'_>, offset: u64) -> Result<bool, Damage> {
    // Relative to the window's position, which stays.
    let mut at = 1;
    loop {
        let rest = window.rest();
        let from = at.min(rest.len());
        let Some(distance) = rest[from..].windows(HEAD_START.len()).position(|bytes| bytes == HEAD_START) else {
            if window.is_at_end {
                return Ok(false);
            }
            at = rest.len().saturating_sub(HEAD_START.len() - 1).max(from);
            let wanted = rest.len() + 1;
            window.fill(wanted).map_err(Damage::Io)?;
            continue;
        };
        at = from + distance;
        window.fill(at + HEAD_BYTES).map_err(Damage::Io)?;
        let head = Head::parse(window.rest().get(at..).unwrap_or_default());
        if let Some((head, len)) = head.and_then(|head| Some((head, usize::try_from(head.len).ok()?)))
            && head.settled > offset
        {
            let end = at.saturating_add(HEAD_BYTES).saturating_add(len);
            window.fill(end).map_err(Damage::Io)?;
            let (line, rest) = window.rest()[at..].split_at(HEAD_BYTES);
            if rest.get(..len).is_some_and(|block| head.is_whole(line, block)) {
                return Ok(true);
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_taken_apart() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n";
        let mut args = Vec::new();
        let len = take_command(bytes, &mut args).unwrap();
        let words: Vec<&[u8]> = args.iter().map(|range| &bytes[range.clone()]).collect();
        assert_eq!((&words[..], &bytes[len..len + 4]), (&[&b"SET"[..], b"", b"a\r\nb"][..], &b"*1\r\n"[..]));
        for cut in 0..len {
            assert_eq!(take_command(&bytes[..cut], &mut args), None, "{cut}");
        }
        for bad in [&b"PING\r\n"[..], b"*1\r\n:4\r\nPING\r\n", b"*1\r\n$x\r\n", b"*1\r\n$99999999999\r\n"] {
            assert_eq!(take_command(bad, &mut args), None);
        }
    }

    /// What is told of a file beside its commands.
    #[derive(Default)]
    struct Told {
        times: Vec<u64>,
        blocks: usize,
    }

    impl Apply for Told {
        fn commands(&mut self, _commands: &[u8]) -> Result<(), (usize, String)> {
            Ok(())
        }

        fn own(&mut self, _record: &[u8]) -> Result<(), String> {
            Ok(())
        }

        fn block(&mut self) {
            self.blocks += 1;
        }

        fn time(&mut self, unix_s: u64) {
            self.times.push(unix_s);
        }
    }

    #[test]
    fn times_are_told() {
        let bytes = b"#TS:1700000000\r\n*1\r\n$4\r\nPING\r\n#TS:x\r\n# other\r\n#TS:1700000009\r\n*1\r\n$4\r\nPING\r\n";
        let mut told = Told::default();
        let extent = read_file(&mut &bytes[..], &mut told).unwrap();
        assert_eq!((extent.torn, told.times, told.blocks), (0, vec![1_700_000_000, 1_700_000_009], 0));
    }
}
