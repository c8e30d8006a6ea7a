//! The last short replies of a connection. They reveal arguments that repeat a reply.

use crate::hash;

/// Number of replies that are remembered.
const ENTRIES: usize = 8;
/// Longest reply that is remembered, in bytes.
const PAYLOAD_BYTES_MAX: usize = 128;
/// Number of elements of an array that are remembered.
const ELEMENTS_MAX: usize = 4;
/// A shorter reply equals an argument by chance too often: alone it proves nothing.
const TELLING_BYTES: usize = 3;

/// The evidence for the origin of an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The argument repeats no reply.
    #[default]
    None,
    /// The argument repeats a reply that is short enough to be equal by chance.
    Weak,
    /// The argument repeats a long enough reply.
    Strong,
}

/// The origin of an argument.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The strength of the evidence.
    pub evidence: Evidence,
    /// The distance to the trip with the reply; 1 is the previous trip.
    pub distance: u32,
    /// The hash of the repeated value.
    pub payload: u64,
    /// True if the argument is the number that follows the reply's.
    pub is_next: bool,
}

/// A short reply that is remembered.
#[derive(Clone, Copy, Debug, Default)]
struct RecentReply {
    payload: u64,
    /// The number of the trip that had this reply.
    trip: u32,
    is_telling: bool,
    /// True if the server sent the number before this one.
    is_next: bool,
}

/// The last short replies.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    replies: [RecentReply; ENTRIES],
    next: u8,
    /// A bit for each remembered payload, by its hash, so that most arguments need no comparison.
    filter: u64,
}

/// A summary of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Equal for equal replies; 0 if the reply is unknown.
    pub hash: u64,
    /// True if the reply is null, 0 or has no elements.
    pub is_empty: bool,
    /// True if the reply carries little information: empty, a status, fewer than three bytes, or an array of nulls and of numbers with fewer
    /// than three digits.
    pub is_trivial: bool,
    /// True if the reply is a status or an error.
    pub is_status: bool,
    /// True if the reply is a text that looks like JSON.
    pub is_document: bool,
}

#[inline]
fn bit(payload: u64) -> u64 {
    1 << (payload >> 58)
}

impl Recent {
    #[inline]
    fn push(&mut self, payload: &[u8], trip: u32, seed: u64) {
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return;
        }
        let is_telling = payload.len() >= TELLING_BYTES;
        self.add(RecentReply { payload: hash::bytes(seed, payload), trip, is_telling, is_next: false });
    }

    #[inline]
    fn add(&mut self, reply: RecentReply) {
        self.replies[usize::from(self.next) % ENTRIES] = reply;
        self.next = self.next.wrapping_add(1);
        if usize::from(self.next).is_multiple_of(ENTRIES) {
            self.filter = self.replies.iter().fold(0, |filter, reply| filter | bit(reply.payload));
        }
        self.filter |= bit(reply.payload);
    }

    /// Remembers a number and the next one.
    fn push_number(&mut self, digits: &[u8], trip: u32, seed: u64) {
        self.push(digits, trip, seed);
        if let Some(number) = resp::num::parse_i64(digits) {
            let mut text = resp::num::IntText::new();
            if let Some(next) = number.checked_add(1) {
                let digits = text.i64(next);
                let is_telling = digits.len() >= TELLING_BYTES;
                self.add(RecentReply { payload: hash::bytes(seed, digits), trip, is_telling, is_next: true });
            }
        }
    }

    /// Returns the origin of an argument with this hash.
    #[inline]
    pub fn origin(&self, argument: u64, trip: u32) -> Origin {
        if self.filter & bit(argument) == 0 {
            return Origin::default();
        }
        let found = self.replies.iter().filter(|reply| reply.payload == argument && reply.trip != 0);
        // The most recent match wins.
        let Some(reply) = found.min_by_key(|reply| trip.wrapping_sub(reply.trip)) else { return Origin::default() };
        let evidence = if reply.is_telling { Evidence::Strong } else { Evidence::Weak };
        Origin { evidence, distance: trip.wrapping_sub(reply.trip), payload: argument, is_next: reply.is_next }
    }

    /// Remembers a reply and returns its summary.
    #[inline]
    pub fn learn(&mut self, reply: &[u8], len: u64, trip: u32, seed: u64) -> Answer {
        let hash = hash::argument(seed ^ len, reply) | 1;
        let answer = |is_empty, is_trivial| Answer { hash, is_empty, is_trivial, ..Answer::default() };
        let Some((&kind, rest)) = reply.split_first() else { return Answer::default() };
        match kind {
            b'+' => Answer { is_status: true, ..answer(false, true) },
            b':' => {
                let digits = line(rest);
                self.push_number(digits, trip, seed);
                answer(digits == b"0", digits.len() < TELLING_BYTES)
            }
            b'$' | b'=' => match bulk(rest) {
                Some(Bulk::Text(text)) => {
                    self.push_text(text, trip, seed);
                    let is_document = is_document(text);
                    Answer { is_document, ..answer(text.is_empty(), text.len() < TELLING_BYTES) }
                }
                Some(Bulk::Null) => answer(true, true),
                None => Answer {
                    is_document: is_document(rest.get(line(rest).len() + 2..).unwrap_or_default()),
                    ..answer(false, false)
                },
            },
            b'_' => answer(true, true),
            b',' | b'(' => {
                let digits = line(rest);
                self.push_number(digits, trip, seed);
                answer(false, digits.len() < TELLING_BYTES)
            }
            b'#' => answer(rest.first() == Some(&b'f'), true),
            b'*' | b'~' | b'%' | b'>' => {
                let count = line(rest);
                let is_empty = count == b"0" || count == b"-1";
                let elements = rest.get(count.len() + 2..).unwrap_or_default();
                self.push_elements(elements, trip, seed);
                answer(is_empty, is_empty || are_trivial(elements))
            }
            _ => Answer { is_status: true, ..answer(false, true) },
        }
    }

    #[inline]
    fn push_text(&mut self, text: &[u8], trip: u32, seed: u64) {
        if text.len() <= 19 && text.first().is_some_and(|&byte| byte.is_ascii_digit() || byte == b'-') {
            self.push_number(text, trip, seed);
        } else {
            self.push(text, trip, seed);
        }
    }

    /// Remembers the first elements of an array.
    fn push_elements(&mut self, mut elements: &[u8], trip: u32, seed: u64) {
        for _ in 0..ELEMENTS_MAX {
            let Some((&kind, rest)) = elements.split_first() else { return };
            let used = match kind {
                b'$' => match bulk(rest) {
                    Some(Bulk::Text(text)) => {
                        self.push(text, trip, seed);
                        line(rest).len() + 2 + text.len() + 2
                    }
                    Some(Bulk::Null) => line(rest).len() + 2,
                    None => return,
                },
                b':' | b',' => {
                    self.push(line(rest), trip, seed);
                    line(rest).len() + 2
                }
                _ => return,
            };
            elements = rest.get(used..).unwrap_or_default();
        }
    }
}

/// True if all elements of an array are null, or numbers that are equal by chance. The array must be complete.
#[inline]
fn are_trivial(mut elements: &[u8]) -> bool {
    while let Some((&kind, rest)) = elements.split_first() {
        let (text, used) = match (kind, bulk(rest)) {
            (b'_', _) => (b"".as_slice(), 2),
            (b':', _) => (line(rest), line(rest).len() + 2),
            (b'$', Some(Bulk::Null)) => (b"".as_slice(), line(rest).len() + 2),
            (b'$', Some(Bulk::Text(text))) => (text, line(rest).len() + 2 + text.len() + 2),
            _ => return false,
        };
        if text.len() >= TELLING_BYTES || !text.iter().all(u8::is_ascii_digit) || used > rest.len() {
            return false;
        }
        elements = rest.get(used..).unwrap_or_default();
    }
    true
}

/// True if a text begins like an object or an array of JSON.
#[inline]
pub fn is_document(text: &[u8]) -> bool {
    matches!(text, [b'{', b'"' | b' ' | b'\n', ..] | [b'[', b'{' | b'"' | b' ' | b'\n', ..])
}

/// Returns the bytes up to the end of the line.
#[inline]
fn line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().take(32).position(|&byte| byte == b'\r');
    bytes.get(..end.unwrap_or(bytes.len().min(32))).unwrap_or_default()
}

/// A bulk string.
enum Bulk<'a> {
    Null,
    Text(&'a [u8]),
}

/// Parses a bulk string behind its type. Returns None if it is incomplete.
#[inline]
fn bulk(bytes: &[u8]) -> Option<Bulk<'_>> {
    let head = line(bytes);
    let len = resp::num::parse_i64(head)?;
    let Ok(len) = usize::try_from(len) else { return Some(Bulk::Null) };
    let start = head.len() + 2;
    bytes.get(start..start.checked_add(len)?).map(Bulk::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 3;

    fn check(reply: &[u8], argument: &[u8], expected: Evidence) {
        let mut recent = Recent::default();
        recent.learn(reply, reply.len() as u64, 1, SEED);
        let origin = recent.origin(hash::argument(SEED, argument), 2);
        assert_eq!(origin.evidence, expected, "{} {}", reply.escape_ascii(), argument.escape_ascii());
        if expected != Evidence::None {
            assert_eq!(origin.distance, 1);
        }
    }

    #[test]
    fn an_argument_that_repeats_a_reply_is_seen() {
        check(b"$5\r\nalice\r\n", b"alice", Evidence::Strong);
        check(b"$5\r\nalice\r\n", b"bob", Evidence::None);
        check(b"$1\r\n5\r\n", b"5", Evidence::Weak);
        check(b"$1\r\n5\r\n", b"6", Evidence::Weak);
        check(b"$3\r\n199\r\n", b"200", Evidence::Strong);
        check(b":1234\r\n", b"1235", Evidence::Strong);
        check(b",1.25\r\n", b"1.25", Evidence::Strong);
        check(b"*2\r\n$5\r\nalice\r\n$3\r\nbob\r\n", b"bob", Evidence::Strong);
        check(b"*3\r\n$-1\r\n:12345\r\n$3\r\nbob\r\n", b"bob", Evidence::Strong);
        check(b"+OK\r\n", b"OK", Evidence::None);
        check(b"$-1\r\n", b"-1", Evidence::None);
        check(b"-ERR no\r\n", b"ERR no", Evidence::None);
    }

    #[test]
    fn truncated_replies_are_not_remembered() {
        let whole = b"*2\r\n$5\r\nalice\r\n$3\r\nbob\r\n";
        for len in 0..whole.len() {
            Recent::default().learn(&whole[..len], whole.len() as u64, 1, SEED);
        }
        check(b"$5\r\nali", b"ali", Evidence::None);
        check(b"$99999999999999999999\r\nali", b"ali", Evidence::None);
    }

    #[test]
    fn a_summary_distinguishes_empty_from_trivial_replies() {
        let check = |reply: &[u8], is_empty, is_trivial| {
            let answer = Recent::default().learn(reply, reply.len() as u64, 1, SEED);
            assert_eq!((answer.is_empty, answer.is_trivial), (is_empty, is_trivial), "{}", reply.escape_ascii());
            assert_ne!(answer.hash, 0);
        };
        check(b"$-1\r\n", true, true);
        check(b"_\r\n", true, true);
        check(b"*0\r\n", true, true);
        check(b":0\r\n", true, true);
        check(b"$0\r\n\r\n", true, true);
        check(b"$3\r\nabc\r\n", false, false);
        check(b"*1\r\n$1\r\na\r\n", false, false);
        check(b"*3\r\n$2\r\n80\r\n:2\r\n$-1\r\n", false, true);
        check(b"*2\r\n_\r\n$-1\r\n", false, true);
        check(b"*2\r\n$2\r\n80\r\n$3\r\n800\r\n", false, false);
        check(b"*2\r\n$2\r\n80\r\n*0\r\n", false, false);
        check(b"*2\r\n$2\r\n80\r\n$1\r\n8", false, false);
        check(b":7\r\n", false, true);
    }
}
