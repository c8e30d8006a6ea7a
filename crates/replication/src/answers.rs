//! A replica's messages to its primary during the stream: its offsets.
//!
//! ```text
//! REPLCONF ACK <offset> [FACK <offset>]     has applied, has on disk
//! ```
//!
//! Empty lines are signs of life while it loads a snapshot. All other messages are ignored, like in Redis.

use resp::num::parse_i64;
use resp::request::{Batch, Framer, Input, Limits};

use crate::handshake::request;

/// Requests framed together.
const WINDOW: usize = 64;
/// The longest incomplete request of a replica. Valid ones are shorter.
const BYTES_MAX: usize = 64 << 10;

/// A replica's offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of the history that it has applied.
    pub applied: Option<u64>,
    /// Bytes of the history that its own append-only file has on disk.
    pub synced: Option<u64>,
}

/// Returns the acknowledgement of a replica with this applied offset, and this durable offset if known.
#[must_use]
pub fn acknowledgement(applied: u64, synced: Option<u64>) -> Vec<u8> {
    let (applied, synced) = (applied.to_string(), synced.map(|synced| synced.to_string()));
    let mut words: Vec<&[u8]> = vec![b"REPLCONF", b"ACK", applied.as_bytes()];
    if let Some(synced) = &synced {
        words.extend([b"FACK", synced.as_bytes()]);
    }
    request(&words)
}

/// The error for data that are no request, or an endless one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Garbled;

/// Parses a replica's messages.
#[derive(Debug, Default)]
pub struct Answers {
    read: Vec<u8>,
}

impl Answers {
    /// Takes received bytes. Returns the last offsets among them.
    ///
    /// # Errors
    /// If they are no requests. The link is useless then.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Answer, Garbled> {
        self.read.extend_from_slice(bytes);
        let mut answer = Answer::default();
        let mut at = 0;
        loop {
            let input = Input::from(&self.read[..]);
            let (mut framer, mut batch) = (Framer::default(), Batch::default());
            let (_, stop) = framer.frame(input, at, &Limits::default(), WINDOW, &mut batch);
            for request in batch.requests() {
                let args = batch.args(request, input);
                at = request.end as usize;
                if !args.get(0).eq_ignore_ascii_case(b"replconf") {
                    continue;
                }
                let number = |index: usize| parse_i64(args.get(index)).and_then(|number| u64::try_from(number).ok());
                for index in (1..args.len()).step_by(2) {
                    let name = args.get(index);
                    if name.eq_ignore_ascii_case(b"ack") {
                        answer.applied = number(index + 1).or(answer.applied);
                    } else if name.eq_ignore_ascii_case(b"fack") {
                        answer.synced = number(index + 1).or(answer.synced);
                    }
                }
            }
            match stop {
                resp::request::Stop::Full => {}
                resp::request::Stop::Incomplete => break,
                resp::request::Stop::Error(_) => return Err(Garbled),
            }
        }
        self.read.drain(..at);
        if self.read.len() > BYTES_MAX { Err(Garbled) } else { Ok(answer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_counts_however_it_arrives() {
        let first = request(&[b"REPLCONF", b"ACK", b"17"]);
        let second = request(&[b"replconf", b"ack", b"18", b"fack", b"12"]);
        let bytes = [&b"\n\n"[..], &first, b"\n", &second, &request(&[b"PING"])].concat();
        for piece in 1..bytes.len() {
            let (mut answers, mut last) = (Answers::default(), Answer::default());
            for piece in bytes.chunks(piece) {
                let answer = answers.take(piece).unwrap();
                last = Answer { applied: answer.applied.or(last.applied), synced: answer.synced.or(last.synced) };
            }
            assert_eq!(last, Answer { applied: Some(18), synced: Some(12) }, "{piece}");
        }
    }

    #[test]
    fn invalid_messages_end_the_link() {
        assert_eq!(Answers::default().take(b"*x\r\n"), Err(Garbled));
        let mut answers = Answers::default();
        assert!(answers.take(b"*1\r\n$100000\r\n").is_ok());
        assert_eq!(answers.take(&[b'x'; BYTES_MAX]), Err(Garbled));
        let ack = |offset: &[u8]| Answers::default().take(&request(&[b"REPLCONF", b"ACK", offset]));
        assert_eq!((ack(b"-1"), ack(b"x")), (Ok(Answer::default()), Ok(Answer::default())));
    }
}
