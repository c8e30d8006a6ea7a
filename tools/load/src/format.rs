//! Input formats: each turns what was read of an input into commands of a block.

pub mod commands;
pub mod csv;
pub mod json;
mod quoted;
mod shape;

use crate::block::Block;
use crate::exit::{Exit, Failure};
use crate::input::Input;

/// A reader of one format. It keeps what it knows of an unfinished command between calls.
pub trait Format: Send {
    /// Takes what is whole of the input's unread bytes until the block is full; at the input's end, everything.
    ///
    /// An unfinished command stays unread, unless it is longer than it may be: then it is rejected and skipped.
    ///
    /// # Errors
    /// The input can't be read any further: what follows is not to be trusted.
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken>;
}

/// Why an input can't be read any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The line on which the trouble begins, if it is on one.
    pub line: Option<u64>,
    /// What is wrong.
    pub reason: String,
    /// [`Exit::Input`], or [`Exit::Usage`] where the template is at fault.
    pub exit: Exit,
}

impl Broken {
    /// Bytes of the input that are not what they should be.
    pub fn at(line: u64, reason: impl Into<String>) -> Broken {
        Broken { line: Some(line), reason: reason.into(), exit: Exit::Input }
    }

    /// The failure of a load, for an input of this name.
    pub fn into_failure(self, name: &str) -> Failure {
        let place = self.line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"));
        Failure::new(self.exit, format!("{place}: {}", self.reason))
    }
}

/// Fills a block with what comes next of an input: what one read gave, if that is anything, or, if it is to be `full`,
/// as much as it takes. A block that gains from more takes what is there already, too. False at the input's end.
///
/// # Errors
/// As [`Format::take`], and where the input can't be read; what was whole before is in the block.
pub fn fill(format: &mut dyn Format, input: &mut Input, block: &mut Block, full: bool) -> Result<bool, Broken> {
    loop {
        format.take(input, block)?;
        if block.is_full() || !(full || block.is_empty() || block.gains_from_more() && input.has_more()) {
            return Ok(true);
        }
        if input.has_ended() {
            return Ok(!block.is_empty());
        }
        if let Err(error) = input.read_more() {
            let mut reason = format!("can't be read: {error}");
            // Another time it may be read, and with it more of the run that it was cut off from.
            let held_back = if full { block.drop_run() } else { 0 };
            if held_back > 0 {
                let what = if held_back == 1 { "the command".to_owned() } else { format!("the {held_back} commands") };
                reason += &format!("; {what} before it may belong together with what follows: not sent");
            }
            return Err(Broken { line: Some(input.line()), reason, exit: Exit::Input });
        }
    }
}

/// Finds the ends of lines; remembers how far it has looked, so that a long line costs its length and no more.
#[derive(Debug, Default)]
pub struct LineFinder {
    searched: usize,
    /// A line that was too long is being skipped.
    skipping: bool,
}

/// A line that was found: its bytes without the line end, and how many it takes with it.
pub struct Line<'i> {
    /// Without `\n` or `\r\n`.
    pub text: &'i [u8],
    /// With it.
    pub bytes: usize,
}

/// What [`LineFinder::next`] found.
pub enum Found<'i> {
    /// A line; the caller takes it from the input.
    Line(Line<'i>),
    /// A line that is longer than it may be: its beginning. The caller rejects it, and calls `skip`.
    TooLong(&'i [u8]),
    /// A line that is too long has ended; the next one may be of another kind.
    Skipped,
    /// Nothing whole.
    Nothing,
}

impl LineFinder {
    /// The next line of the input; at the input's end, the rest of it.
    pub fn next<'i>(&mut self, input: &'i mut Input, bytes_max: usize) -> Found<'i> {
        if self.skipping {
            return if self.skip_on(input) { Found::Skipped } else { Found::Nothing };
        }
        let unread = input.unread();
        let found = memchr::memchr(b'\n', &unread[self.searched..]).map(|at| self.searched + at);
        let length = found.unwrap_or(unread.len());
        if length > bytes_max {
            return Found::TooLong(&unread[..bytes_max]);
        }
        if found.is_none() && !(input.has_ended() && length > 0) {
            self.searched = length;
            return Found::Nothing;
        }
        self.searched = 0;
        let text = &unread[..length];
        Found::Line(Line {
            text: text.strip_suffix(b"\r").unwrap_or(text),
            bytes: length + usize::from(found.is_some()),
        })
    }

    /// Skips the rest of a line that is too long.
    pub fn skip(&mut self, input: &mut Input) {
        self.skipping = true;
        self.searched = 0;
        self.skip_on(input);
    }

    /// True once the line that is skipped has ended.
    fn skip_on(&mut self, input: &mut Input) -> bool {
        let end = memchr::memchr(b'\n', input.unread());
        match end {
            Some(end) => input.take(end + 1, 1),
            None => input.take(input.unread().len(), 0),
        }
        self.skipping = end.is_none();
        !self.skipping
    }
}

/// Whether a command has so many arguments at most, or else why it is rejected.
fn check_args(args: u64, args_max: u64) -> Result<(), String> {
    if args > args_max {
        return Err(format!("the command has {args} arguments, and the server takes no more than {args_max}"));
    }
    Ok(())
}

/// The text for a line, record or command beyond the limit.
fn too_long(what: &str, bytes_max: usize) -> String {
    format!("the {what} is longer than {bytes_max} bytes; --max-command raises the limit")
}

#[cfg(test)]
pub mod testing {
    //! Runs a reader over text that arrives in pieces.

    use super::*;

    /// Gives its bytes in pieces of one size, as a slow pipe would.
    pub struct Pieces {
        /// What is left.
        pub rest: std::collections::VecDeque<u8>,
        /// Bytes of a piece.
        pub size: usize,
    }

    impl std::io::Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.size.min(buffer.len());
            std::io::Read::read(&mut self.rest, &mut buffer[..size])
        }
    }

    /// What a reader made of `text`: `LINE: COMMAND` and `LINE! REASON` in order, and how it ended.
    pub fn read(format: &mut dyn Format, text: &[u8], size: usize) -> Vec<String> {
        let mut input = Input::new(Box::new(Pieces { rest: text.to_vec().into(), size }));
        let mut out = Vec::new();
        let mut block = Block::default();
        loop {
            block.clear();
            let filled = fill(format, &mut input, &mut block, false);
            block.end_run();
            out.extend(shown(&block));
            match filled {
                Ok(true) => {}
                Ok(false) => return out,
                Err(broken) => {
                    out.push(format!("{}!! {}", broken.line.unwrap_or(0), broken.reason));
                    return out;
                }
            }
        }
    }

    fn shown(block: &Block) -> Vec<String> {
        let mut out = Vec::new();
        let mut rejected = block.rejected().iter().peekable();
        for index in 0..=block.len() {
            while let Some(bad) = rejected.next_if(|bad| bad.before == index) {
                out.push(format!("{}! {}", bad.line, bad.reason));
            }
            if index < block.len() {
                out.push(format!("{}: {}", block.line(index), crate::shown::command(&block.command_at(index))));
            }
        }
        out
    }

    /// Checks what a reader makes of `text`, however it is cut.
    pub fn check(format: impl Fn() -> Box<dyn Format>, text: &str, expected: &[&str]) {
        for size in [1, 2, 3, 7, 64, 1 << 20] {
            let found = read(&mut *format(), text.as_bytes(), size);
            assert_eq!(found, expected, "in pieces of {size}: {text:?}");
        }
    }
}
