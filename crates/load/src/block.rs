//! A block: some hundred kilobytes of requests, ready to be sent, and what the error report needs to know of each.
//!
//! Blocks are the unit of memory: readers fill them, the window sends parts of them and keeps them until the last of
//! their commands is answered. They know no socket and no input format.

use crate::limits::{BLOCK_BYTES, BLOCK_COMMANDS, BLOCK_REJECTED, BUFFER_BYTES_KEPT, SHOWN_BYTES};
use crate::verdict::{Verdict, judge};

/// Where a command ends in its block, and on which line of its input it began.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: u32,
    line: u64,
}

/// A line or record that is no command to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// So many of the block's commands stand before it.
    pub before: usize,
    /// The line of the input on which it begins, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// Its beginning.
    pub text: Vec<u8>,
}

/// Commands in the form that a server reads, in the order of the input.
#[derive(Debug, Default)]
pub struct Block {
    /// Which of the load's inputs they come from.
    pub input: usize,
    /// The number of the first command, from 0, over all inputs. Rejected lines have no number.
    pub first: u64,
    /// Bytes that were read of all inputs when the block was complete, as they are stored: compressed ones count less.
    pub input_bytes: u64,
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    rejected: Vec<Rejected>,
    /// The commands that select a database: their index, and the database.
    selects: Vec<(usize, u32)>,
    /// The commands that begin (true) or end a transaction, by index.
    transactions: Vec<(usize, bool)>,
}

impl Block {
    /// Makes it ready to be filled again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_BYTES_KEPT);
        self.marks.clear();
        self.rejected.clear();
        self.selects.clear();
        self.transactions.clear();
    }

    /// Whether it has taken as much as a block should.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES || self.marks.len() >= BLOCK_COMMANDS || self.rejected.len() >= BLOCK_REJECTED
    }

    /// Whether there is nothing in it, neither a command nor a rejected line.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.rejected.is_empty()
    }

    /// How many commands it holds.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// The number of the command after its last one.
    pub fn end(&self) -> u64 {
        self.first + self.marks.len() as u64
    }

    /// Bytes of memory that it takes, roughly.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<Mark>()
    }

    /// Takes a command that `write` appends in the wire format, or rejects the line with `write`'s reason.
    ///
    /// `write` returns the ranges of the command's name and first argument within what it wrote.
    pub fn command<'t>(
        &mut self,
        line: u64,
        text: impl Fn() -> &'t [u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<Head, String>,
    ) {
        let start = self.bytes.len();
        let rejected = match write(&mut self.bytes) {
            Ok(head) => {
                let request = &self.bytes[start..];
                match judge(&request[head.name], &request[head.argument]) {
                    Verdict::Plain => None,
                    Verdict::Select(database) => {
                        self.selects.push((self.marks.len(), database));
                        None
                    }
                    verdict @ (Verdict::Begins | Verdict::Ends) => {
                        self.transactions.push((self.marks.len(), verdict == Verdict::Begins));
                        None
                    }
                    Verdict::Refused(reason) => Some(reason.to_owned()),
                }
            }
            Err(reason) => Some(reason),
        };
        match rejected {
            None => self.marks.push(Mark { end: self.bytes.len() as u32, line }),
            Some(reason) => {
                self.bytes.truncate(start);
                self.reject(line, reason, text());
            }
        }
    }

    /// Notes that a line is no command.
    pub fn reject(&mut self, line: u64, reason: impl Into<String>, text: &[u8]) {
        let text = text[..text.len().min(SHOWN_BYTES + 1)].to_vec();
        self.rejected.push(Rejected { before: self.marks.len(), line, reason: reason.into(), text });
    }

    /// The lines that are no commands, in order.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The requests of the commands with these indices, end excluded.
    pub fn requests(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.offset(from)..self.offset(to)]
    }

    /// The line of the input on which a command began.
    pub fn line(&self, index: usize) -> u64 {
        self.marks.get(index).map_or(0, |mark| mark.line)
    }

    /// The database that the last SELECT among the first `count` commands asks for.
    pub fn selected(&self, count: usize) -> Option<u32> {
        self.selects.iter().rfind(|(index, _)| *index < count).map(|(_, database)| *database)
    }

    /// The commands with these indices, end excluded, that begin (true) or end a transaction.
    pub fn transactions(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, bool)> {
        self.transactions.iter().copied().filter(move |(index, _)| (from..to).contains(index))
    }

    /// Forgets that the command at `index` selects a database or begins a transaction: the server refused it. A
    /// transaction's end ends it even if it is refused.
    pub fn forget_effect(&mut self, index: usize) {
        self.selects.retain(|(at, _)| *at != index);
        self.transactions.retain(|(at, begins)| *at != index || !begins);
    }

    /// How many commands begin within the first `bytes` bytes.
    pub fn begun_by(&self, bytes: usize) -> usize {
        let ended_before = self.marks.partition_point(|mark| (mark.end as usize) < bytes);
        if bytes == 0 { 0 } else { (ended_before + 1).min(self.marks.len()) }
    }

    fn offset(&self, index: usize) -> usize {
        let before = index.checked_sub(1).and_then(|last| self.marks.get(last));
        before.map_or(0, |mark| mark.end as usize)
    }
}

/// Where a request's name and first argument are, relative to its start. A missing argument is an empty range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The command's name.
    pub name: std::ops::Range<usize>,
    /// The argument after it.
    pub argument: std::ops::Range<usize>,
}
