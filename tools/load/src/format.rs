//! Input formats: each converts input bytes to commands of a block.

pub mod commands;
pub mod csv;
pub mod json;
pub mod json_array;
mod quoted;
mod shape;

use crate::block::Block;
use crate::exit::{Exit, Failure};
use crate::input::Input;

/// A reader of one format. It keeps the state of an incomplete command between calls.
pub trait Format: Send {
    /// Takes complete commands from the input's unread bytes until the block is full. At the end of the input it takes
    /// everything.
    ///
    /// An incomplete command stays unread. If it exceeds the maximum length, it is rejected and skipped.
    ///
    /// # Errors
    /// Returns an error if the input can't be read any further, because the following bytes can't be trusted.
    fn take(&mut self, input: &mut Input, block: &mut Block) -> Result<(), Broken>;
}

/// Reason why an input can't be read any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Line of the error, if known.
    pub line: Option<u64>,
    /// Description of the error.
    pub reason: String,
    /// [`Exit::Input`], or [`Exit::Usage`] for an error of the template.
    pub exit: Exit,
}

impl Broken {
    /// Creates an error for invalid bytes of the input.
    pub fn at(line: u64, reason: impl Into<String>) -> Broken {
        Broken { line: Some(line), reason: reason.into(), exit: Exit::Input }
    }

    /// Converts the error to a failure of the load, with the input's name.
    pub fn into_failure(self, name: &str) -> Failure {
        let place = self.line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"));
        Failure::new(self.exit, format!("{place}: {}", self.reason))
    }
}

/// Fills a block with the next bytes of an input: the result of one read if there is any, or, with `full`, as many as
/// the block takes. A block that benefits from more commands also takes input that is available without waiting.
/// Returns false at the end of the input.
///
/// # Errors
/// Returns the errors of [`Format::take`] and of reading. Complete commands before the error are in the block.
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
            // A later run may be able to read on, and the open run would then be longer.
            let held_back = if full { block.drop_run() } else { 0 };
            if held_back > 0 {
                let what = if held_back == 1 { "the command".to_owned() } else { format!("the {held_back} commands") };
                reason += &format!("; {what} before it may have to be merged with later input: not sent");
            }
            return Err(Broken { line: Some(input.line()), reason, exit: Exit::Input });
        }
    }
}

/// Finds the ends of lines. It remembers the searched position, so that a long line is searched only once.
#[derive(Debug, Default)]
pub struct LineFinder {
    searched: usize,
    /// True while a line that is too long is being skipped.
    skipping: bool,
}

/// A line: its text, and its length including the line end.
pub struct Line<'i> {
    /// Without `\n` or `\r\n`.
    pub text: &'i [u8],
    /// Including the line end.
    pub bytes: usize,
}

/// Result of [`LineFinder::next`].
pub enum Found<'i> {
    /// A line. The caller takes it from the input.
    Line(Line<'i>),
    /// The beginning of a line that is too long. The caller rejects it and calls `skip`.
    TooLong(&'i [u8]),
    /// The end of a line that is too long. The next line may have another format.
    Skipped,
    /// No complete line.
    Nothing,
}

impl LineFinder {
    /// Returns the next line of the input; at its end, the rest.
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

    /// Returns true if the end of the skipped line was found.
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

/// Returns an error for a command with more than `args_max` arguments.
fn check_args(args: u64, args_max: u64) -> Result<(), String> {
    if args > args_max {
        return Err(format!("the command has {args} arguments, and the server takes no more than {args_max}"));
    }
    Ok(())
}

/// Returns the message for a line, record or command beyond the limit.
fn too_long(what: &str, bytes_max: usize) -> String {
    format!("the {what} is longer than {bytes_max} bytes; --max-command raises the limit")
}

#[cfg(test)]
pub mod testing {
    //! Runs a reader over text that arrives in pieces.

    use super::*;

    /// Returns its bytes in pieces of one size, like a slow pipe.
    pub struct Pieces {
        /// The remaining bytes.
        pub rest: std::collections::VecDeque<u8>,
        /// Size of a piece.
        pub size: usize,
    }

    impl std::io::Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.size.min(buffer.len());
            std::io::Read::read(&mut self.rest, &mut buffer[..size])
        }
    }

    /// Returns the reader's results for `text`: `LINE: COMMAND` and `LINE! REASON` in order, and the final error.
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

    /// Checks a reader's results for `text`, for several sizes of pieces.
    pub fn check(format: impl Fn() -> Box<dyn Format>, text: &str, expected: &[&str]) {
        for size in [1, 2, 3, 7, 64, 1 << 20] {
            let found = read(&mut *format(), text.as_bytes(), size);
            assert_eq!(found, expected, "in pieces of {size}: {text:?}");
        }
    }
}
