//! Replies held because the changes behind them are not durable yet.
//!
//! They follow the connection's sendable replies ([`crate::reply_queue`]). Each chunk holds the replies of one run of the connection's
//! requests, and a position in the journal. The chunk may be sent when all units up to that position are durable.

use std::collections::VecDeque;

use journal::order::Position;
use resp::parse::ReplyError;
use resp::reply::Output;
use resp::skim::Skimmer;

use crate::splice::Splice;

/// Bytes of held replies above which the connection's next requests are held, too. They are the replies of a few batches, and one sync
/// releases all of them.
const BYTES_MAX: usize = 256 * 1024;
/// Chunks of held replies above which the next requests are held. Each chunk has memory of its own.
const CHUNKS_MAX: usize = 1024;
/// Replies of other nodes of the cluster that may be missing. Above that number, the next requests are held, too.
const MISSING_MAX: usize = 1024;

/// Returns an error for each of these replies.
///
/// # Errors
/// If a reply can't be parsed.
pub fn errors_instead(replies: &Output, error: &[u8]) -> Result<Output, ReplyError> {
    let mut skimmer = Skimmer::new();
    for slice in replies.slices() {
        skimmer.feed(slice, |_| ())?;
    }
    let mut errors = Output::default();
    (0..skimmer.replies()).for_each(|_| errors.extend(error));
    Ok(errors)
}

/// The replies of one run of a connection's requests.
struct Chunk {
    until: Position,
    replies: Output,
    /// Time of the replies, in milliseconds of a monotonic clock.
    since_ms: u64,
    /// The replies of other nodes, if any.
    splice: Option<Box<Splice>>,
}

impl Chunk {
    fn bytes(&self) -> usize {
        self.replies.len() + self.splice.as_ref().map_or(0, |splice| splice.bytes())
    }

    fn is_complete(&self) -> bool {
        self.splice.as_ref().is_none_or(|splice| splice.missing() == 0)
    }
}

/// The held replies of a connection: at least one chunk.
#[derive(Default)]
pub struct DeferredReplies {
    chunks: VecDeque<Chunk>,
    /// Bytes of all chunks but the last, which may still grow.
    ended_bytes: usize,
    /// Number of chunks that have been released.
    released: u64,
    /// Replies of other nodes that have not arrived.
    missing: usize,
}

impl DeferredReplies {
    /// Adds new replies, which are held at least as long as the ones before them. Returns the position that releases them.
    pub fn push(
        &mut self,
        durable_after: Position,
        replies: &mut Output,
        splice: Option<Box<Splice>>,
        now_ms: u64,
    ) -> Position {
        let until = self.chunks.back().map_or(durable_after, |last| durable_after.max(last.until));
        self.ended_bytes += self.last_bytes();
        self.missing += splice.as_ref().map_or(0, |splice| splice.missing());
        let mut chunk = Chunk { until, replies: Output::default(), since_ms: now_ms, splice };
        chunk.replies.append(replies);
        self.chunks.push_back(chunk);
        until
    }

    /// Replaces each reply that timed out with an error. `is_over` gets the position and the time of the reply. Errors are sent once no
    /// held reply precedes them. Returns true if there were any. After a reply that can't be parsed, or replies of other nodes among them,
    /// the caller closes the connection.
    pub fn give_up(&mut self, is_over: impl Fn(Position, u64) -> bool, error: &[u8]) -> Result<bool, ReplyError> {
        let mut has_any = false;
        for chunk in &mut self.chunks {
            if is_over(chunk.until, chunk.since_ms) {
                if chunk.splice.is_some() {
                    return Err(ReplyError::Limit("forwarded"));
                }
                (chunk.replies, chunk.until) = (errors_instead(&chunk.replies, error)?, 0);
                has_any = true;
            }
        }
        let all_but_last = self.chunks.len().saturating_sub(1);
        self.ended_bytes = self.chunks.iter().take(all_but_last).map(Chunk::bytes).sum();
        Ok(has_any)
    }

    /// Returns the position that releases the last replies.
    #[must_use]
    pub fn until(&self) -> Option<Position> {
        self.chunks.back().map(|chunk| chunk.until)
    }

    /// Returns the last chunk's output, for replies that need no later position.
    pub fn last(&mut self) -> Option<&mut Output> {
        self.chunks.back_mut().map(|chunk| &mut chunk.replies)
    }

    fn last_bytes(&self) -> usize {
        self.chunks.back().map_or(0, Chunk::bytes)
    }

    /// Returns true if the next requests of the connection should be held, too.
    #[must_use]
    pub fn is_much(&self) -> bool {
        self.bytes() > BYTES_MAX || self.chunks.len() > CHUNKS_MAX || self.missing > MISSING_MAX
    }

    /// Returns the number of held bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ended_bytes + self.last_bytes()
    }

    /// Returns the number of replies of other nodes that have not arrived.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// Returns the number of the last chunk, for [`DeferredReplies::splice`].
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.released + self.chunks.len().saturating_sub(1) as u64
    }

    /// Returns the splice of the chunk with this number.
    pub fn splice(&mut self, number: u64) -> Option<&mut Splice> {
        let index = number.checked_sub(self.released)?;
        self.chunks.get_mut(index as usize)?.splice.as_deref_mut()
    }

    /// Takes other nodes' replies to commands of the chunk with this number, which `fill` puts into their places.
    pub fn fill(&mut self, number: u64, fill: impl FnOnce(&mut Splice)) {
        let is_last = number == self.last_number();
        let Some(splice) = self.splice(number) else { return };
        let (missing, bytes) = (splice.missing(), splice.bytes());
        fill(splice);
        let (arrived, more) = (missing - splice.missing(), splice.bytes() - bytes);
        self.missing -= arrived;
        self.ended_bytes += if is_last { 0 } else { more };
    }

    /// Replaces all replies of other nodes in the chunk with this number by one.
    pub fn replace(&mut self, number: u64, reply: &Output) {
        let is_last = number == self.last_number();
        let Some(splice) = self.splice(number) else { return };
        let before = splice.bytes();
        splice.replace(reply);
        let after = splice.bytes();
        if !is_last {
            self.ended_bytes = (self.ended_bytes + after).saturating_sub(before);
        }
    }

    /// Holds the chunk with this number, and the ones behind it, until this position is safe.
    pub fn hold(&mut self, number: u64, until: Position) {
        let before = number.saturating_sub(self.released) as usize;
        for chunk in self.chunks.iter_mut().skip(before) {
            chunk.until = chunk.until.max(until);
        }
    }

    /// Takes the number of the chunk whose commands wait for a position that is safe now.
    pub fn take_held(&mut self, safe: Position) -> Option<u64> {
        let splices = self.chunks.iter_mut().zip(self.released..).filter(|(chunk, _)| chunk.until <= safe);
        let mut held = splices.filter_map(|(chunk, number)| chunk.splice.as_mut()?.set_held(false).then_some(number));
        held.next()
    }

    /// Moves the complete chunks that need no position above `safe` to the end of `output`. Returns true if none are left.
    pub fn release(&mut self, safe: Position, output: &mut Output) -> bool {
        while let Some(chunk) = self.chunks.front_mut()
            && chunk.until <= safe
            && chunk.is_complete()
        {
            let bytes = chunk.bytes();
            match &mut chunk.splice {
                Some(splice) => splice.assemble(&chunk.replies, output),
                None => output.append(&mut chunk.replies),
            }
            self.chunks.pop_front();
            self.released += 1;
            // The last chunk was not counted.
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
    fn replies_are_released_in_order() {
        let mut deferred = DeferredReplies::default();
        let mut output = Output::from(b"0".to_vec());
        assert_eq!(deferred.push(7, &mut Output::from(b"1".to_vec()), None, 0), 7);
        assert_eq!(deferred.push(3, &mut Output::from(b"2".to_vec()), None, 0), 7);
        deferred.last().unwrap().extend(b"3");
        assert_eq!(deferred.push(9, &mut Output::from(b"4".to_vec()), None, 0), 9);
        assert!(!deferred.release(6, &mut output));
        assert_eq!(bytes(&output), b"0");
        assert!(!deferred.release(7, &mut output));
        assert_eq!(bytes(&output), b"0123");
        assert!(deferred.release(9, &mut output));
        assert_eq!(bytes(&output), b"01234");
    }

    #[test]
    fn a_chunk_and_those_behind_it_are_held_for_a_later_position() {
        let mut deferred = DeferredReplies::default();
        let mut output = Output::default();
        for position in 1..=3 {
            deferred.push(position, &mut Output::from(vec![b'0' + position as u8]), None, 0);
        }
        assert!(!deferred.release(1, &mut output));
        // The second chunk, of which the first one has gone.
        deferred.hold(1, 8);
        assert!(!deferred.release(7, &mut output));
        assert_eq!((bytes(&output), deferred.until()), (b"1".to_vec(), Some(8)));
        assert!(deferred.release(8, &mut output));
        assert_eq!(bytes(&output), b"123");
    }

    #[test]
    fn held_replies_are_limited_by_bytes_and_chunks() {
        let mut deferred = DeferredReplies::default();
        let mut output = Output::default();
        for position in 1..=4 {
            deferred.push(position, &mut Output::from(vec![b'x'; BYTES_MAX / 3]), None, 0);
            assert_eq!(deferred.is_much(), position == 4);
        }
        deferred.release(1, &mut output);
        assert!(!deferred.is_much());
        deferred.last().unwrap().extend(&vec![b'x'; BYTES_MAX]);
        assert!(deferred.is_much());
        assert!(deferred.release(4, &mut output) && !deferred.is_much());
        for position in 1..=CHUNKS_MAX as u64 + 1 {
            assert!(!deferred.is_much());
            deferred.push(position, &mut Output::from(vec![b'x']), None, 0);
        }
        assert!(deferred.is_much());
    }

    #[test]
    fn replies_that_time_out_become_errors() {
        let mut deferred = DeferredReplies::default();
        let mut output = Output::default();
        deferred.push(3, &mut Output::from(b"+OK\r\n$1\r\nx\r\n".to_vec()), None, 10);
        deferred.push(4, &mut Output::from(b"*1\r\n:1\r\n".to_vec()), None, 20);
        deferred.push(5, &mut Output::from(b":2\r\n".to_vec()), None, 30);
        let since = |since_ms: u64| move |until: Position, began_ms: u64| until > 0 && began_ms <= since_ms;
        assert!(!deferred.give_up(since(9), b"-E\r\n").unwrap());
        assert!(deferred.give_up(since(20), b"-E\r\n").unwrap());
        assert!(!deferred.release(2, &mut output));
        assert_eq!(bytes(&output), b"-E\r\n-E\r\n-E\r\n");
        assert!(deferred.release(5, &mut output));
        assert_eq!(bytes(&output), b"-E\r\n-E\r\n-E\r\n:2\r\n");
        deferred.push(6, &mut Output::from(b"?\r\n".to_vec()), None, 40);
        assert!(deferred.give_up(since(40), b"-E\r\n").is_err());
    }
}
