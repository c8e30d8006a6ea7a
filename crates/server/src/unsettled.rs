//! Replies that may not be sent yet: the disk doesn't have everything that they tell of.
//!
//! They stand behind the connection's replies that may be sent ([`crate::reply_queue`]). A chunk is what one run of the connection's requests has answered, with the position in the journal up to which
//! the log must be safe before it leaves.

use std::collections::VecDeque;

use journal::order::Position;
use resp::parse::ReplyError;
use resp::reply::Output;
use resp::skim::Skimmer;

/// Bytes of replies of one connection that wait so before its next requests are run: what a few batches answer. A sync ends
/// the wait of all.
const BYTES_MAX: usize = 256 * 1024;
/// The same of chunks: each takes some memory of its own.
const CHUNKS_MAX: usize = 1024;

/// An error for each of these replies.
///
/// # Errors
/// If one can't be read.
pub fn errors_instead(replies: &Output, error: &[u8]) -> Result<Output, ReplyError> {
    let mut skimmer = Skimmer::new();
    for slice in replies.slices() {
        skimmer.feed(slice, |_| ())?;
    }
    let mut errors = Output::default();
    (0..skimmer.replies()).for_each(|_| errors.extend(error));
    Ok(errors)
}

/// What one run of a connection's requests has answered.
struct Chunk {
    until: Position,
    replies: Output,
    /// When it was answered, in milliseconds of a clock that is never set.
    since_ms: u64,
}

/// See the module's documentation. There is at least one chunk.
#[derive(Default)]
pub struct Unsettled {
    chunks: VecDeque<Chunk>,
    /// Bytes of all chunks but the last, which may still grow.
    ended_bytes: usize,
}

impl Unsettled {
    /// Adds what was answered now; it waits no shorter than what is before it. Says how long that is.
    pub fn push(&mut self, depends: Position, replies: &mut Output, now_ms: u64) -> Position {
        let until = self.chunks.back().map_or(depends, |last| depends.max(last.until));
        self.ended_bytes += self.last_bytes();
        let mut chunk = Chunk { until, replies: Output::default(), since_ms: now_ms };
        chunk.replies.append(replies);
        self.chunks.push_back(chunk);
        until
    }

    /// Puts an error in the place of each reply that waits in vain, by the position and the moment that it waits for and since. They are
    /// sent as soon as nothing is before them that waits. Says whether there was any; none is left if one could not be read.
    pub fn give_up(&mut self, is_over: impl Fn(Position, u64) -> bool, error: &[u8]) -> Result<bool, ReplyError> {
        let mut has_any = false;
        for chunk in &mut self.chunks {
            if is_over(chunk.until, chunk.since_ms) {
                (chunk.replies, chunk.until) = (errors_instead(&chunk.replies, error)?, 0);
                has_any = true;
            }
        }
        let all_but_last = self.chunks.len().saturating_sub(1);
        self.ended_bytes = self.chunks.iter().take(all_but_last).map(|chunk| chunk.replies.len()).sum();
        Ok(has_any)
    }

    /// Where more is written that is to be sent behind all this.
    pub fn last(&mut self) -> Option<&mut Output> {
        self.chunks.back_mut().map(|chunk| &mut chunk.replies)
    }

    fn last_bytes(&self) -> usize {
        self.chunks.back().map_or(0, |chunk| chunk.replies.len())
    }

    /// Whether so much waits that the connection's next requests had better wait, too.
    #[must_use]
    pub fn is_much(&self) -> bool {
        self.ended_bytes + self.last_bytes() > BYTES_MAX || self.chunks.len() > CHUNKS_MAX
    }

    /// Moves what waits no longer, now that the log is safe up to here, behind what `output` has. True if that is all.
    pub fn release(&mut self, safe: Position, output: &mut Output) -> bool {
        while let Some(chunk) = self.chunks.front_mut()
            && chunk.until <= safe
        {
            let bytes = chunk.replies.len();
            output.append(&mut chunk.replies);
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
        assert_eq!(unsettled.push(7, &mut Output::from(b"1".to_vec()), 0), 7);
        assert_eq!(unsettled.push(3, &mut Output::from(b"2".to_vec()), 0), 7);
        unsettled.last().unwrap().extend(b"3");
        assert_eq!(unsettled.push(9, &mut Output::from(b"4".to_vec()), 0), 9);
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
            unsettled.push(position, &mut Output::from(vec![b'x'; BYTES_MAX / 3]), 0);
            assert_eq!(unsettled.is_much(), position == 4);
        }
        unsettled.release(1, &mut output);
        assert!(!unsettled.is_much());
        unsettled.last().unwrap().extend(&vec![b'x'; BYTES_MAX]);
        assert!(unsettled.is_much());
        assert!(unsettled.release(4, &mut output) && !unsettled.is_much());
        for position in 1..=CHUNKS_MAX as u64 + 1 {
            assert!(!unsettled.is_much());
            unsettled.push(position, &mut Output::from(vec![b'x']), 0);
        }
        assert!(unsettled.is_much());
    }

    #[test]
    fn what_waits_too_long_is_an_error_for_each_reply() {
        let mut unsettled = Unsettled::default();
        let mut output = Output::default();
        unsettled.push(3, &mut Output::from(b"+OK\r\n$1\r\nx\r\n".to_vec()), 10);
        unsettled.push(4, &mut Output::from(b"*1\r\n:1\r\n".to_vec()), 20);
        unsettled.push(5, &mut Output::from(b":2\r\n".to_vec()), 30);
        let since = |since_ms: u64| move |until: Position, began_ms: u64| until > 0 && began_ms <= since_ms;
        assert!(!unsettled.give_up(since(9), b"-E\r\n").unwrap());
        assert!(unsettled.give_up(since(20), b"-E\r\n").unwrap());
        assert!(!unsettled.release(2, &mut output));
        assert_eq!(bytes(&output), b"-E\r\n-E\r\n-E\r\n");
        assert!(unsettled.release(5, &mut output));
        assert_eq!(bytes(&output), b"-E\r\n-E\r\n-E\r\n:2\r\n");
        unsettled.push(6, &mut Output::from(b"?\r\n".to_vec()), 40);
        assert!(unsettled.give_up(since(40), b"-E\r\n").is_err());
    }
}
