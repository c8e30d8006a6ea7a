//! Replies that may not be sent yet: the disk doesn't have everything that they tell of.
//!
//! They stand behind the connection's replies that may be sent ([`crate::reply_queue`]). A chunk is what one run of the connection's requests has answered, with the position in the journal up to which
//! the log must be safe before it leaves.

use std::collections::VecDeque;

use journal::order::Position;
use resp::reply::Output;

/// Bytes of replies of one connection that wait so before its next requests are run: what a few batches answer. A sync ends
/// the wait of all.
const BYTES_MAX: usize = 256 * 1024;
/// The same of chunks: each takes some memory of its own.
const CHUNKS_MAX: usize = 1024;

/// See the module's documentation. There is at least one chunk.
#[derive(Default)]
pub struct Unsettled {
    chunks: VecDeque<(Position, Output)>,
    /// Bytes of all chunks but the last, which may still grow.
    ended_bytes: usize,
}

impl Unsettled {
    /// Adds what was answered; it waits no shorter than what is before it. Says how long that is.
    pub fn push(&mut self, depends: Position, replies: &mut Output) -> Position {
        let until = self.chunks.back().map_or(depends, |(last, _)| depends.max(*last));
        self.ended_bytes += self.last_bytes();
        let mut chunk = Output::default();
        chunk.append(replies);
        self.chunks.push_back((until, chunk));
        until
    }

    /// Where more is written that is to be sent behind all this.
    pub fn last(&mut self) -> Option<&mut Output> {
        self.chunks.back_mut().map(|(_, chunk)| chunk)
    }

    fn last_bytes(&self) -> usize {
        self.chunks.back().map_or(0, |(_, chunk)| chunk.len())
    }

    /// Whether so much waits that the connection's next requests had better wait, too.
    #[must_use]
    pub fn is_much(&self) -> bool {
        self.ended_bytes + self.last_bytes() > BYTES_MAX || self.chunks.len() > CHUNKS_MAX
    }

    /// Moves what waits no longer, now that the log is safe up to here, behind what `output` has. True if that is all.
    pub fn release(&mut self, safe: Position, output: &mut Output) -> bool {
        while let Some((until, chunk)) = self.chunks.front_mut()
            && *until <= safe
        {
            let bytes = chunk.len();
            output.append(chunk);
            self.chunks.pop_front();
            // The last one was not counted.
            self.ended_bytes = if self.chunks.len() > 1 { self.ended_bytes - bytes } else { 0 };
        }
        self.chunks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(output: &Output) -> Vec<u8> {
        output.slices().collect::<Vec<_>>().concat()
    }

    #[test]
    fn nothing_overtakes_what_waits() {
        let mut unsettled = Unsettled::default();
        let mut output = Output::from(b"0".to_vec());
        assert_eq!(unsettled.push(7, &mut Output::from(b"1".to_vec())), 7);
        assert_eq!(unsettled.push(3, &mut Output::from(b"2".to_vec())), 7);
        unsettled.last().unwrap().extend(b"3");
        assert_eq!(unsettled.push(9, &mut Output::from(b"4".to_vec())), 9);
        assert!(!unsettled.release(6, &mut output));
        assert_eq!(bytes(&output), b"0");
        assert!(!unsettled.release(7, &mut output));
        assert_eq!(bytes(&output), b"0123");
        assert!(unsettled.release(9, &mut output));
        assert_eq!(bytes(&output), b"01234");
    }

    #[test]
    fn what_waits_is_limited_by_its_bytes_and_its_chunks() {
        let mut unsettled = Unsettled::default();
        let mut output = Output::default();
        for position in 1..=4 {
            unsettled.push(position, &mut Output::from(vec![b'x'; BYTES_MAX / 3]));
            assert_eq!(unsettled.is_much(), position == 4);
        }
        unsettled.release(1, &mut output);
        assert!(!unsettled.is_much());
        unsettled.last().unwrap().extend(&vec![b'x'; BYTES_MAX]);
        assert!(unsettled.is_much());
        assert!(unsettled.release(4, &mut output) && !unsettled.is_much());
        for position in 1..=CHUNKS_MAX as u64 + 1 {
            assert!(!unsettled.is_much());
            unsettled.push(position, &mut Output::from(vec![b'x']));
        }
        assert!(unsettled.is_much());
    }
}
