//! A transaction on its way: its MULTI is answered, and what follows is queued and not executed, until EXEC or DISCARD.

use crate::block::Block;

/// A transaction that nothing has ended so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The number of its MULTI among the load's commands.
    pub command: u64,
    /// And among the requests.
    pub request: u64,
    /// The commands in it that the server refused to queue, each with an error of its own.
    pub refused: u64,
    input: usize,
    line: u64,
}

/// A transaction that nothing will end any more, so that it isn't executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unended {
    /// The input of its MULTI.
    pub input: usize,
    /// The line of its MULTI.
    pub line: u64,
    /// How many commands were queued.
    pub queued: u64,
}

impl Open {
    /// Of the load's commands, those before the number `end` are all that there are.
    pub fn given_up(self, end: u64) -> Unended {
        let queued = end.saturating_sub(self.command + 1 + self.refused);
        Unended { input: self.input, line: self.line, queued }
    }
}

/// What is open behind a block's commands with these indices, `to` excluded, if `open` is before them.
pub fn follow(open: Option<Open>, block: &Block, from: usize, to: usize) -> Option<Open> {
    block.transactions(from, to).fold(open, |open, (index, begins)| {
        let this = || Open {
            command: block.first + index as u64,
            request: block.first_request + block.requests_of(index) as u64,
            refused: 0,
            input: block.input,
            line: block.line(index),
        };
        // A MULTI within a transaction is an error and begins nothing.
        begins.then(|| open.unwrap_or_else(this))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{commands::Commands, fill, testing::Pieces};
    use crate::input::Input;

    /// What is open at the end of a text, as a line and a number of commands.
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
    fn what_is_open_is_known_behind_every_text() {
        check("", None);
        check("MULTI\n", Some((1, 0)));
        check("SET a 1\nMULTI\nSET a 2\n\"\nSET b 1\n", Some((2, 2)));
        check("MULTI\nSET a 1\nEXEC\nSET b 1\n", None);
        check("MULTI\nDISCARD\nMULTI\nMULTI\n", Some((3, 1)));
        check("EXEC\nSET b 1\n", None);
    }
}
