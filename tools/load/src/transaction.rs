//! An open transaction: its MULTI is answered, and later commands are queued and not executed until EXEC or DISCARD.

use crate::block::Block;

/// An open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Number of its MULTI among the load's commands.
    pub command: u64,
    /// Number of its MULTI among the requests.
    pub request: u64,
    /// Number of its commands that the server refused to queue, each with an error reply.
    pub refused: u64,
    input: usize,
    line: u64,
}

/// A transaction that will never end and isn't executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unended {
    /// Input of its MULTI.
    pub input: usize,
    /// Line of its MULTI.
    pub line: u64,
    /// Number of queued commands.
    pub queued: u64,
}

impl Open {
    /// Converts it to an unended transaction. No commands from number `end` on will come.
    pub fn given_up(self, end: u64) -> Unended {
        let queued = end.saturating_sub(self.command + 1 + self.refused);
        Unended { input: self.input, line: self.line, queued }
    }
}

/// Returns the transaction that is open after a range of a block's commands. `open` is the one before the range.
pub fn follow(open: Option<Open>, block: &Block, from: usize, to: usize) -> Option<Open> {
    block.transactions(from, to).fold(open, |open, (index, begins)| {
        let this = || Open {
            command: block.first + index as u64,
            request: block.first_request + block.requests_of(index) as u64,
            refused: 0,
            input: block.input,
            line: block.line(index),
        };
        // A MULTI within a transaction is an error without effect.
        begins.then(|| open.unwrap_or_else(this))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{commands::Commands, fill, testing::Pieces};
    use crate::input::Input;

    /// Checks the open transaction at the end of a text, given as a line and a number of commands.
    fn check(text: &str, expected: Option<(u64, u64)>) {
        let mut input = Input::new(Box::new(Pieces { rest: text.as_bytes().to_vec().into(), size: 7 }));
        let (mut format, mut open, mut first) = (Commands::new(1000), None, 0);
        loop {
            let mut block = Block::default();
            block.first = first;
            let more = fill(&mut format, &mut input, &mut block, false).unwrap();
            open = follow(open, &block, 0, block.len());
            first = block.end();
            if !more {
                break;
            }
        }
        let unended = open.map(|open| open.given_up(first));
        assert_eq!(unended.map(|unended| (unended.line, unended.queued)), expected, "{text:?}");
    }

    #[test]
    fn open_transactions_are_known_after_every_text() {
        check("", None);
        check("MULTI\n", Some((1, 0)));
        check("SET a 1\nMULTI\nSET a 2\n\"\nSET b 1\n", Some((2, 2)));
        check("MULTI\nSET a 1\nEXEC\nSET b 1\n", None);
        check("MULTI\nDISCARD\nMULTI\nMULTI\n", Some((3, 1)));
        check("EXEC\nSET b 1\n", None);
    }
}
