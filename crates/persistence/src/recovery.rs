//! Reads the append-only file back.
//!
//! Blocks are checked before any of their commands are applied. Files of Redis, and commands that another server has appended to a file of
//! Penstock, have no blocks: their commands are read one after the other, like in Redis. An error at a file's very end is an unfinished
//! write from the end of the server or the machine. No client has been told that it is durable, and it may be cut off. An error before
//! whole data is damage.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use crate::block::{
    Checkpoints, FILLER_LINE_BYTES, FILLER_PAD, HEAD_BYTES, HEAD_START, Head, MARK_START, TIME_START, file_start,
    is_before_line_end, is_checkpoint, is_filler, is_time, read_comment, read_mark,
};

/// The receiver of a file's contents, in order.
pub trait Apply {
    /// Applies adjacent whole commands. A transaction may continue in the next call. `place` maps the commands to offsets in the file.
    ///
    /// # Errors
    /// The number of bytes before a command that can't be applied, and the reason.
    fn commands(&mut self, commands: &[u8], place: &Place) -> Result<(), (usize, String)>;

    /// Applies a record for Penstock only.
    ///
    /// # Errors
    /// The reason why it can't be applied.
    fn own(&mut self, record: &[u8]) -> Result<(), String>;

    /// Reports the number of bytes of the file read so far.
    fn progress(&mut self, _bytes: u64) {}

    /// Reports a block with the right checksum. Its commands come next.
    fn block(&mut self) {}

    /// Reports the time of the following commands, in seconds of Unix time.
    fn time(&mut self, _unix_s: u64) {}
}

/// Maps the commands of one call of [`Apply::commands`] to offsets in the file. The commands form pieces, because the comment lines between
/// them are left out.
#[derive(Clone, Default, Debug)]
pub struct Place {
    /// For each piece, the number of bytes of commands before it, and its offset in the file.
    pieces: Vec<(usize, u64)>,
}

impl Place {
    /// Returns the place of commands in one piece.
    #[must_use]
    pub fn at(offset: u64) -> Place {
        Place { pieces: vec![(0, offset)] }
    }

    /// Returns the offset in the file of the command after `before` bytes of commands.
    #[must_use]
    pub fn offset(&self, before: usize) -> u64 {
        let piece = self.pieces.iter().rev().find(|(start, _)| *start <= before);
        piece.map_or(0, |(start, offset)| offset + (before - start) as u64)
    }
}

/// The extent of a file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Length of its whole beginning in bytes.
    pub whole: u64,
    /// Bytes after it of an unfinished write. Filler doesn't count.
    pub torn: u64,
    /// The checksum of the last whole block or valid checkpoint: the link of the next block.
    pub link: u32,
    /// True if the last block ends at a checkpoint because its rest is torn or missing. An empty block must follow it
    /// ([`crate::block::empty_block`]).
    pub is_cut: bool,
}

impl Extent {
    /// Returns true if nothing is missing at the end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.torn == 0 && !self.is_cut
    }
}

/// An error in a file.
#[derive(Debug)]
pub enum Damage {
    /// The system's error.
    Io(io::Error),
    /// Bytes that differ from the written ones, or that no server writes.
    Bytes {
        /// Their position.
        offset: u64,
        /// The error.
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
/// Bytes of commands applied at once, outside of blocks.
const RUN_BYTES: usize = 256 * 1024;

/// A window of a file that is being read.
struct Window<'r> {
    reader: &'r mut dyn Read,
    buffer: Vec<u8>,
    /// Position of the first byte of `buffer` in the file.
    offset: u64,
    /// Bytes of `buffer` that have been taken.
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

    /// Reads until at least `wanted` bytes are available, or the file ends.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while self.buffer.len() - self.at < wanted && !self.is_at_end {
            if self.at > READ_BYTES {
                self.buffer.drain(..self.at);
                self.offset += self.at as u64;
                self.at = 0;
            }
            // Grows with the bytes read, not with the length that a file claims.
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

    /// Reads the rest. Returns the length of the file.
    fn skip_all(&mut self) -> io::Result<u64> {
        while !self.is_at_end {
            self.at = self.buffer.len();
            self.fill(1)?;
        }
        Ok(self.offset + self.buffer.len() as u64)
    }
}

/// The next item of a file.
enum Item {
    /// A command of this many bytes.
    Command(usize),
    /// A comment of this many bytes.
    Comment(usize),
    /// The file ends within it.
    Torn,
    /// Neither a command nor a comment.
    Bad(&'static str),
}

/// Applies a file's commands.
///
/// # Errors
/// If it is damaged before its end, or can't be read or applied.
pub fn read_file(reader: &mut dyn Read, apply: &mut dyn Apply) -> Result<Extent, Damage> {
    let window = Window { reader, buffer: Vec::new(), offset: 0, at: 0, is_at_end: false };
    let mut file = Reading {
        window,
        run: Run::default(),
        has_blocks: false,
        has_links: false,
        link: 0,
        cut_at: None,
        transaction: None,
        filler: None,
        filler_end: 0,
    };
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
    let mut whole = file.whole_end();
    if let Some(start) = file.transaction {
        whole = start;
        apply.commands(DISCARD, &Place::at(start)).map_err(|(_, why)| bytes(start, why))?;
    }
    let is_at_end = file.window.rest().is_empty();
    let end = file.window.skip_all().map_err(Damage::Io)?;
    let is_cut = file.cut_at == Some(whole);
    // Filler at the end of a file is no tear, unless it replaces the rest of a torn block.
    let is_filler = is_at_end && file.filler == Some(whole) && !is_cut;
    let torn = if is_filler { 0 } else { end - whole };
    Ok(Extent { whole, torn, link: file.link, is_cut })
}

/// The command that ends a transaction without EXEC.
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";

/// A file that is being read.
struct Reading<'r> {
    window: Window<'r>,
    run: Run,
    /// True if Penstock has written some of the file, and true if blocks have links.
    has_blocks: bool,
    has_links: bool,
    /// The checksum of the last block or checkpoint.
    link: u32,
    /// The checkpoint at which the last block was cut, if nothing follows it.
    cut_at: Option<u64>,
    /// Position of an unfinished transaction. It is cut off together with a torn end.
    transaction: Option<u64>,
    /// Position of filler that nothing has followed yet.
    filler: Option<u64>,
    /// The end of the filler according to the last mark.
    filler_end: u64,
}

/// The end of a part of a file.
enum Stopped {
    /// More may follow.
    Whole,
    /// The file ends within an item.
    AtEnd,
}

fn bytes(offset: u64, why: impl Into<String>) -> Damage {
    Damage::Bytes { offset, why: why.into() }
}

impl Reading<'_> {
    /// Returns the end of the whole part, if the next part is not whole.
    fn whole_end(&self) -> u64 {
        self.cut_at.or(self.filler).unwrap_or_else(|| self.window.position())
    }

    /// Takes the next line of filler. Returns false if there is none.
    fn filler_line(&mut self) -> io::Result<bool> {
        if !self.has_blocks || !matches!(self.window.rest(), [b'#', b'#' | b'\n', ..]) {
            return Ok(false);
        }
        let line_bytes = FILLER_LINE_BYTES as usize;
        self.window.fill(line_bytes)?;
        let rest = self.window.rest();
        let end = rest.iter().take(line_bytes).position(|&byte| byte == b'\n');
        let Some(line) = end.map(|end| &rest[..=end]).filter(|line| is_filler(line)) else { return Ok(false) };
        let (start, len) = (self.window.position(), line.len());
        let is_pad = line == FILLER_PAD && is_before_line_end(start);
        if !is_pad {
            self.filler.get_or_insert(start);
        }
        self.window.at += len;
        Ok(true)
    }

    /// Checks and applies the block that begins with this first line.
    fn read_block(&mut self, head: Head, apply: &mut dyn Apply) -> Result<Stopped, Damage> {
        self.has_blocks = true;
        if head.link.is_none() && self.has_links {
            return self.stop_or_refuse("a block of an older version");
        }
        if head.link.is_some_and(|link| link != self.link) {
            return self.stop_or_refuse("a block whose predecessor is missing");
        }
        let Ok(len) = usize::try_from(head.len) else { return self.stop_or_refuse("a block of an impossible length") };
        self.window.fill(head.line_bytes.saturating_add(len)).map_err(Damage::Io)?;
        let start = self.window.position() + head.line_bytes as u64;
        let (line, rest) = self.window.rest().split_at(head.line_bytes);
        let block = rest.get(..len);
        if !block.is_some_and(|block| head.is_whole(line, block)) {
            let why = match block {
                None => "a block that is longer than the file",
                Some(_) => "a block whose checksum is wrong",
            };
            return self.read_cut_block(head, why, apply);
        }
        let block = block.unwrap_or_default();
        apply.block();
        if head.has_comments {
            self.run.apply_mixed(block, start, apply)?;
        } else {
            let place = Place::at(start);
            apply.commands(block, &place).map_err(|(before, why)| bytes(place.offset(before), why))?;
        }
        self.note_link(head.checksum);
        self.has_links = head.link.is_some();
        self.window.at += head.line_bytes + len;
        Ok(Stopped::Whole)
    }

    /// Applies a torn block up to its last valid checkpoint. The file goes on if the next block follows right there, with the checkpoint's
    /// checksum as its link.
    fn read_cut_block(&mut self, head: Head, why: &'static str, apply: &mut dyn Apply) -> Result<Stopped, Damage> {
        let start = self.window.position() + head.line_bytes as u64;
        let rest = &self.window.rest()[head.line_bytes..];
        let rest = &rest[..rest.len().min(usize::try_from(head.len).unwrap_or(usize::MAX))];
        let checked = head.link.and_then(|link| checked_part(rest, link));
        let Some((len, link)) = checked else { return self.stop_or_refuse(why) };
        let next = Head::parse(&self.window.rest()[head.line_bytes + len..]);
        let is_continued = next.is_some_and(|next| next.link == Some(link));
        // Bytes after the checkpoint that were durable are damaged, not torn.
        let cut_at = start + len as u64;
        if !is_continued && settled_behind(&mut self.window, cut_at)? {
            return Err(bytes(self.window.position(), why));
        }
        apply.block();
        let part = &self.window.rest()[head.line_bytes..head.line_bytes + len];
        self.run.apply_mixed(part, start, apply)?;
        self.note_link(link);
        self.has_links = true;
        self.window.at += head.line_bytes + len;
        self.cut_at = Some(cut_at);
        Ok(if is_continued { Stopped::Whole } else { Stopped::AtEnd })
    }

    /// Notes the checksum of a block that has been applied.
    fn note_link(&mut self, link: u32) {
        (self.link, self.filler, self.cut_at) = (link, None, None);
    }

    /// Applies commands without a checksum up to the next comment, or skips that comment.
    fn read_run(&mut self, apply: &mut dyn Apply) -> Result<Stopped, Damage> {
        let mut run = 0;
        let stopped = loop {
            if run >= RUN_BYTES {
                break Stopped::Whole;
            }
            let is_at_end = self.window.is_at_end;
            let rest = &self.window.rest()[run..];
            match next_item(rest) {
                // Other servers append after the filler, so this is the rest of a torn block.
                Item::Command(_) if self.filler.is_some() && self.window.position() < self.filler_end => {
                    return self.stop_or_refuse("commands of which the checksum is missing");
                }
                Item::Command(len) => {
                    self.note_transaction(run, len);
                    run += len;
                }
                Item::Comment(_) if run > 0 => break Stopped::Whole,
                Item::Comment(len) if rest.starts_with(MARK_START) => return self.read_mark(len),
                // The first line of a block may be damaged. The block's commands must not be taken for commands without a checksum.
                Item::Comment(len) if self.has_blocks && !is_time(&rest[..len]) => {
                    return self.stop_or_refuse("neither a block nor a known comment");
                }
                Item::Comment(len) => {
                    let (is_ours, has_links) = file_start(rest);
                    (self.has_blocks, self.has_links) = (self.has_blocks | is_ours, self.has_links | has_links);
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
                // The error is met again after the commands before it have been applied.
                Item::Bad(_) => break Stopped::Whole,
            }
        };
        if run > 0 {
            let place = Place::at(self.window.position());
            let applied = apply.commands(&self.window.rest()[..run], &place);
            applied.map_err(|(before, why)| bytes(place.offset(before), why))?;
            self.filler = None;
        }
        self.window.at += run;
        // A command followed by another whole block was not torn.
        if let (Stopped::AtEnd, true) = (&stopped, self.has_blocks) {
            return self.stop_or_refuse("a command that has no end");
        }
        Ok(stopped)
    }

    /// Reads the next item, a mark of `len` bytes. A mark within filler is invalid, because none is ever written there.
    fn read_mark(&mut self, len: usize) -> Result<Stopped, Damage> {
        let end = read_mark(&self.window.rest()[..len]);
        let Some(end) = end.filter(|_| self.filler.is_none() || self.window.position() >= self.filler_end) else {
            return self.stop_or_refuse("a mark that is damaged or out of place");
        };
        (self.has_blocks, self.filler, self.filler_end) = (true, None, end);
        self.window.at += len;
        Ok(Stopped::Whole)
    }

    /// Notes a command that begins or ends a transaction: `len` bytes at `run`.
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

    /// Decides about wrong bytes. They are damage if a later block was written after they were durable. They are also damage in a file
    /// without blocks: the last write of another server leaves the beginning of a command. Otherwise they are an unfinished write.
    fn stop_or_refuse(&mut self, why: &'static str) -> Result<Stopped, Damage> {
        let offset = self.window.position();
        // Filler may replace a lost block that was durable, so the check starts before the filler.
        let end = self.whole_end();
        if !self.has_blocks || settled_behind(&mut self.window, end)? {
            return Err(bytes(offset, why));
        }
        Ok(Stopped::AtEnd)
    }
}

/// Returns the length of a block up to its last valid checkpoint, and the checkpoint's checksum. None if no checkpoint is valid.
fn checked_part(block: &[u8], link: u32) -> Option<(usize, u32)> {
    let mut checkpoints = Checkpoints::new(link);
    let (mut at, mut before, mut checked) = (0, 0, None);
    loop {
        match next_item(&block[at..]) {
            Item::Command(len) => at += len,
            Item::Comment(len) => {
                let end = at + len;
                if is_checkpoint(&block[at..end]) {
                    let Some(checksum) = checkpoints.take(&block[before..at], &block[at..end]) else { return checked };
                    (before, checked) = (end, Some((end, checksum)));
                }
                at = end;
            }
            Item::Torn | Item::Bad(_) => return checked,
        }
    }
}

/// A run of commands without the comments between them. They are applied together.
#[derive(Default)]
struct Run {
    commands: Vec<u8>,
    place: Place,
    /// The pieces so far of a record that only Penstock understands.
    own: Vec<u8>,
}

impl Run {
    /// Applies commands and comments that have been checked.
    fn apply_mixed(&mut self, block: &[u8], start: u64, apply: &mut dyn Apply) -> Result<(), Damage> {
        let (mut at, mut piece) = (0, 0);
        while at < block.len() {
            let offset = start + at as u64;
            match next_item(&block[at..]) {
                Item::Command(len) => at += len,
                Item::Torn => return Err(bytes(offset, "a block that ends within a command")),
                Item::Bad(why) => return Err(bytes(offset, why)),
                Item::Comment(len) => {
                    self.add(&block[piece..at], start + piece as u64);
                    (at, piece) = (at + len, at + len);
                    let line = &block[at - len..at];
                    if !is_checkpoint(line) {
                        self.apply(apply)?;
                        self.apply_own(line, offset, apply)?;
                    }
                }
            }
        }
        self.add(&block[piece..], start + piece as u64);
        self.apply(apply)
    }

    fn add(&mut self, commands: &[u8], offset: u64) {
        if !commands.is_empty() {
            self.place.pieces.push((self.commands.len(), offset));
            self.commands.extend_from_slice(commands);
        }
    }

    fn apply(&mut self, apply: &mut dyn Apply) -> Result<(), Damage> {
        if self.commands.is_empty() {
            return Ok(());
        }
        let place = &self.place;
        let applied = apply.commands(&self.commands, place);
        applied.map_err(|(before, why)| bytes(place.offset(before), why))?;
        self.commands.clear();
        self.place.pieces.clear();
        Ok(())
    }

    /// Applies a record that only Penstock understands, if this comment is its last piece.
    fn apply_own(&mut self, line: &[u8], offset: u64, apply: &mut dyn Apply) -> Result<(), Damage> {
        if read_comment(line, &mut self.own) == Some(true) {
            let record = std::mem::take(&mut self.own);
            apply.own(&record).map_err(|why| bytes(offset, why))?;
        }
        Ok(())
    }
}

/// Returns the time in a comment, in seconds of Unix time.
fn timestamp(comment: &[u8]) -> Option<u64> {
    let digits = comment.strip_prefix(TIME_START)?.trim_ascii_end();
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Takes the whole command at the beginning of `bytes`. Replaces the contents of `args` by the positions of its arguments, and returns its
/// length. Returns `None` if there is no whole command.
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

/// Returns the next item.
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

/// Returns the length of the next line with its end, or `None` if the end is missing.
fn line(bytes: &[u8]) -> Option<Result<usize, &'static str>> {
    match bytes.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') {
        Some(end) => Some(Ok(end + 1)),
        None if bytes.len() >= LINE_BYTES_MAX => Some(Err("a line that is too long")),
        None => None,
    }
}

/// Returns the next command, or `None` if its end is missing.
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

/// Returns the next length, and the bytes of its line, or `None` if the end of the line is missing.
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

/// Returns true if a later whole block says that the bytes at `offset` were durable.
fn settled_behind(window: &mut Window<'_>, offset: u64) -> Result<bool, Damage> {
    // Relative to the window's position, which stays.
    let mut at = 0;
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
            let end = at.saturating_add(head.line_bytes).saturating_add(len);
            window.fill(end).map_err(Damage::Io)?;
            let (line, rest) = window.rest()[at..].split_at(head.line_bytes);
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

    /// The reports on a file besides its commands.
    #[derive(Default)]
    struct Told {
        times: Vec<u64>,
        blocks: usize,
    }

    impl Apply for Told {
        fn commands(&mut self, _commands: &[u8], _place: &Place) -> Result<(), (usize, String)> {
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
