//! Fast framing of short requests, the common case: one load and one comparison per line.
//!
//! Pipelines consist of runs of one command with equal first bytes. Framing reuses the result for the first request of
//! a run.

use super::{Arg, Batch, Request};

/// Largest argument of a short request in bytes, and the largest number of arguments. Requests with more arguments are
/// framed here only if they repeat the previous request's head.
pub(super) const SHORT_BYTES_MAX: i64 = 99;
pub(super) const SHORT_ARGS_MAX: i64 = 9;

/// Smallest and largest head that is kept, in bytes. Four words, which may overlap, cover it. The largest head has room
/// for a name of up to 20 bytes and an argument count below a hundred.
const BYTES_MIN: usize = 8;
const BYTES_MAX: usize = 32;

/// Head of a request: an array of bulk strings up to the end of the first one, which gives the number of arguments and
/// the command's name. Another request that begins with the same bytes has the same number of arguments and the same
/// name.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// Its first word and its last, and for a longer head also the second word and the word before the last.
    words: [u64; 4],
    /// Length in bytes; 0 means no head.
    len: usize,
    /// The name, relative to the request's first byte.
    name: Arg,
    /// Number of arguments, including the name.
    count: u32,
}

impl Head {
    pub(super) const NONE: Head = Head { words: [0; 4], len: 0, name: Arg { start: 0, len: 0 }, count: 0 };

    /// Creates the head of the framed array at `start` from its first argument and its number of arguments.
    #[inline]
    pub(super) fn of(buffer: &[u8], start: usize, name: Arg, count: u32) -> Head {
        let name = name.before(start);
        // A name in a separate block is too long as well.
        let len = name.start as usize + name.len as usize + b"\r\n".len();
        let kept = buffer.get(start..).and_then(|bytes| Head::words(bytes, len));
        kept.map_or(Head::NONE, |words| Head { words, len, name, count })
    }

    #[inline]
    fn words(bytes: &[u8], len: usize) -> Option<[u64; 4]> {
        if !(BYTES_MIN..=BYTES_MAX).contains(&len) {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (first, last) = (word(0)?, word(len - 8)?);
        let (second, third) = if len > 16 { (word(8)?, word(len - 16)?) } else { (0, 0) };
        Some([first, last, second, third])
    }

    /// True if the bytes at `at` begin with this head. The first and last words are compared first, since they cover
    /// most heads.
    #[inline]
    pub(super) fn is_at(&self, buffer: &[u8], at: usize) -> bool {
        let Some(bytes) = buffer.get(at..at + self.len) else { return false };
        let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else { return false };
        let ends = [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
        ends == self.words[..2] && (self.len <= 16 || Head::words(bytes, self.len) == Some(self.words))
    }

    /// The name of the request at `at`, which begins with this head.
    #[inline]
    fn name_at(&self, at: usize) -> Arg {
        Arg { start: at as u32 + self.name.start, ..self.name }
    }
}

/// Frames requests of up to nine arguments of up to 99 bytes, and longer requests that repeat the last head, until the
/// batch holds `requests_max`. Returns the position of the first byte that was not framed. `head` is the head of the
/// last request. Must not be called if the limits are lower than these sizes.
#[inline]
pub(super) fn short_requests(
    buffer: &[u8],
    mut at: usize,
    requests_max: usize,
    head: &mut Head,
    batch: &mut Batch,
) -> usize {
    let Batch { args, requests, .. } = batch;
    while requests.len() < requests_max {
        let first = args.len();
        let repeats = head.is_at(buffer, at);
        let framed = if repeats {
            args.push(head.name_at(at));
            short_bulks(buffer, at + head.len, head.count - 1, args)
        } else {
            short_count(buffer, at).and_then(|count| short_bulks(buffer, at + b"*1\r\n".len(), count, args))
        };
        let Some(next) = framed else {
            args.truncate(first);
            break;
        };
        let count = (args.len() - first) as u32;
        if !repeats {
            *head = Head::of(buffer, at, args[first], count);
        }
        requests.push(Request { first: first as u32, count, end: next as u32, repeats });
        at = next;
    }
    at
}

/// Returns the number of bulk strings of the array at `at`, if it is between one and nine.
#[inline]
fn short_count(buffer: &[u8], at: usize) -> Option<u32> {
    let line = u32::from_le_bytes(*buffer.get(at..)?.first_chunk()?);
    let digit = (line >> 8) as u8;
    let is_count = line & 0xFFFF_00FF == u32::from_le_bytes(*b"*\0\r\n") && (b'1'..=b'9').contains(&digit);
    is_count.then(|| u32::from(digit - b'0'))
}

/// Frames `count` arguments of up to 99 bytes and returns their end; none if one is longer, incomplete or not a bulk
/// string.
#[inline]
fn short_bulks(buffer: &[u8], mut at: usize, count: u32, args: &mut Vec<Arg>) -> Option<usize> {
    for _ in 0..count {
        let (arg, next) = short_bulk(buffer, at)?;
        args.push(arg);
        at = next;
    }
    Some(at)
}

/// Frames one complete argument of up to 99 bytes.
#[inline]
pub(super) fn short_bulk(buffer: &[u8], at: usize) -> Option<(Arg, usize)> {
    const ONE_DIGIT: u64 = u64::from_le_bytes(*b"$\0\r\n\0\0\0\0");
    const TWO_DIGITS: u64 = u64::from_le_bytes(*b"$\0\0\r\n\0\0\0");
    // One load fetches the whole line into a register.
    let line = u64::from_le_bytes(*buffer.get(at..)?.first_chunk()?);
    let digit = |i: u32| ((line >> (8 * i)) as u8).wrapping_sub(b'0');
    let (first, second) = (digit(1), digit(2));
    let (len, start) = if line & 0xFFFF_00FF == ONE_DIGIT && first <= 9 {
        (usize::from(first), at + b"$1\r\n".len())
    } else if line & 0xFF_FF00_00FF == TWO_DIGITS && (1..=9).contains(&first) && second <= 9 {
        (usize::from(first) * 10 + usize::from(second), at + b"$12\r\n".len())
    } else {
        return None;
    };
    let next = start + len + b"\r\n".len();
    (next <= buffer.len()).then_some((Arg { start: start as u32, len: len as u32 }, next))
}

/// Guesses the first key of the request at the beginning of the input: its second argument, if it is complete. The
/// request must have at most nine arguments, and the first two at most 99 bytes. The guess is only a hint for
/// prefetching: the input may be invalid, or the request may have no keys.
#[inline]
#[must_use]
pub fn likely_key(input: &[u8]) -> Option<&[u8]> {
    let count = short_count(input, 0)?;
    let (_, after_name) = short_bulk(input, b"*1\r\n".len())?;
    let (key, _) = if count > 1 { short_bulk(input, after_name)? } else { return None };
    input.get(key.start as usize..(key.start + key.len) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Framer, Limits};
    use proptest::prelude::*;

    /// Creates the head of a single request.
    fn head(request: &str) -> Head {
        let name_start = request.find("\r\n$").unwrap() + 3;
        let (len, rest) = request[name_start..].split_once("\r\n").unwrap();
        let start = request.len() - rest.len();
        let count = request[1..].split_once("\r\n").unwrap().0.parse().unwrap();
        Head::of(request.as_bytes(), 0, Arg { start: start as u32, len: len.parse().unwrap() }, count)
    }

    #[test]
    fn a_head_matches_only_if_all_its_bytes_match() {
        for request in [
            "*1\r\n$0\r\n\r\n",
            "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
            "*2\r\n$6\r\nEXISTS\r\n$1\r\nk\r\n",
            "*2\r\n$7\r\nEXISTSS\r\n$1\r\nk\r\n",
            "*12\r\n$20\r\nZREVRANGEBYSCOREABCD\r\n",
        ] {
            let head = head(request);
            let len = head.len;
            assert_eq!(len, request.find("$1\r\nk").unwrap_or(request.len()), "{request:?}");
            let shifted = format!("xyz{}", &request[..len]).into_bytes();
            assert!(head.is_at(&shifted, 3) && !head.is_at(&shifted, 2) && !head.is_at(&shifted, 4));
            assert!(
                !head.is_at(&shifted[..len + 2], 3) && !head.is_at(&shifted, len + 3) && !head.is_at(&shifted, len + 4)
            );
            for i in 0..len {
                let mut other = request.as_bytes().to_vec();
                other[i] ^= 1;
                assert!(!head.is_at(&other, 0), "{request:?} {i}");
            }
            let name = head.name_at(100);
            let own = &request[name.start as usize - 100..][..name.len as usize];
            assert!(request[..len].ends_with(&format!("${}\r\n{own}\r\n", own.len())), "{request:?}");
        }
    }

    #[test]
    fn overlong_heads_never_match() {
        let long = "*12\r\n$21\r\nZREVRANGEBYSCOREABCDE\r\n";
        let head = head(long);
        assert!(head.len == 0 && !head.is_at(long.as_bytes(), 0));
        assert!(!Head::NONE.is_at(b"", 0) && !Head::NONE.is_at(&[0; 64], 0));
    }

    /// Encodes a request as clients do.
    fn encoded(words: &[String]) -> String {
        let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), bulks.collect::<String>())
    }

    fn runs() -> impl Strategy<Value = Vec<(Vec<String>, usize, bool)>> {
        let name = prop_oneof!["[A-C]{1,3}", "[AB]{19,22}"];
        let arg = prop_oneof![4 => "[a-z\r\n*$]{0,12}", 1 => "[a-z]{98,101}"];
        let words = (name, prop::collection::vec(arg, 0..12)).prop_map(|(name, args)| [vec![name], args].concat());
        prop::collection::vec((words, 1..4_usize, prop::bool::weighted(0.1)), 1..12)
    }

    proptest! {
        #[test]
        fn repeated_requests_are_framed_like_single_ones(runs in runs(), cut in 0..200_usize) {
            let (mut stream, mut sent, mut repeat) = (String::new(), Vec::new(), Vec::new());
            for (words, times, is_inline) in runs {
                for nth in 0..times {
                    let words = if is_inline { vec![words[0].clone()] } else { words.clone() };
                    stream += &if is_inline { format!("{}\r\n", words[0]) } else { encoded(&words) };
                    let head_bytes = format!("*{}\r\n${}\r\n{}\r\n", words.len(), words[0].len(), words[0]).len();
                    repeat.push(nth > 0 && !is_inline && head_bytes <= BYTES_MAX);
                    sent.push(words);
                }
            }
            let cut = stream.len().saturating_sub(cut);
            let mut batch = Batch::default();
            let sent_bytes = &stream.as_bytes()[..cut];
            let (at, _) = Framer::default().frame(sent_bytes.into(), 0, &Limits::default(), 64, &mut batch);
            let mut end = 0;
            for (i, request) in batch.requests().iter().enumerate() {
                let args = batch.args(request, stream.as_bytes().into());
                let words: Vec<_> = args.from(0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
                prop_assert_eq!(&words, &sent[i]);
                let same = i > 0 && sent[i].len() == sent[i - 1].len() && sent[i][0] == sent[i - 1][0];
                prop_assert!(!request.repeats || same);
                prop_assert!(!repeat[i] || request.repeats);
                end = request.end as usize;
            }
            prop_assert!(end == at && (at == cut || batch.requests().len() < sent.len()));
        }

        #[test]
        fn the_likely_key_is_the_second_argument(
            words in proptest::collection::vec("[a-z]{2,120}", 1..12),
            then in "[*$0-9a-z\r\n]{0,20}",
            cut in 0..40_usize,
        ) {
            let whole = encoded(&words);
            let is_short = words.len() <= 9 && words.iter().take(2).all(|word| word.len() <= 99);
            let key = words.get(1).filter(|_| is_short).map(String::as_bytes);
            let input = format!("{whole}{then}");
            prop_assert_eq!(likely_key(input.as_bytes()), key);
            // For an incomplete request, the key or none.
            let part = likely_key(&whole.as_bytes()[..whole.len().saturating_sub(cut)]);
            prop_assert!(part.is_none() || part == key);
        }

        #[test]
        fn the_likely_key_of_arbitrary_input_is_within_it(input in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(likely_key(&input).is_none_or(|key| key.len() < input.len()));
        }
    }
}
