//! Converts a line in redis-cli's syntax to a request.

use resp::num::write_u64;
use resp::splitargs::split_args;

use super::check_args;
use crate::block::{Head, Reason};

/// Positions of the arguments of a line without quotes. The allocation is reused for the next line.
#[derive(Debug, Default)]
pub struct Splitter {
    words: Vec<(usize, usize)>,
}

impl Splitter {
    /// Appends the request of a line. The line isn't blank.
    ///
    /// # Errors
    /// Returns an error if quotes don't match, or the line has more than `args_max` arguments.
    pub fn encode(&mut self, line: &[u8], args_max: u64, out: &mut Vec<u8>) -> Result<Head, Reason> {
        // Without quotes there are no escapes either, and words can be copied unchanged.
        if memchr::memchr3(b'"', b'\'', 0, line).is_none() {
            self.split_plain(line);
            check_args(self.words.len() as u64, args_max)?;
            let words = self.words.iter().map(|(start, end)| &line[*start..*end]);
            return Ok(encode(words, out));
        }
        let words = split_args(line).map_err(|_| "a quote is not closed, or closes within a word")?;
        if words.is_empty() {
            return Err("the line begins with a NUL byte".into());
        }
        check_args(words.len() as u64, args_max)?;
        Ok(encode(words.iter().map(Vec::as_slice), out))
    }

    /// Splits a line without quotes like [`split_args`], which has more separators than line ends.
    fn split_plain(&mut self, line: &[u8]) {
        self.words.clear();
        let mut at = 0;
        loop {
            let blanks = line[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
            let start = at + blanks;
            if start == line.len() {
                return;
            }
            let word = line[start..].iter().position(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
            at = word.map_or(line.len(), |length| start + length);
            self.words.push((start, at));
        }
    }
}

fn encode<'w>(words: impl ExactSizeIterator<Item = &'w [u8]>, out: &mut Vec<u8>) -> Head {
    let start = out.len();
    let mut head = Head::default();
    out.push(b'*');
    write_u64(out, words.len() as u64);
    out.extend_from_slice(b"\r\n");
    for (index, word) in words.enumerate() {
        out.push(b'$');
        write_u64(out, word.len() as u64);
        out.extend_from_slice(b"\r\n");
        let range = out.len() - start..out.len() - start + word.len();
        match index {
            0 => head.name = range,
            1 => head.argument = range,
            _ => {}
        }
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The fast path and `split_args` agree on every line.
        #[test]
        fn words_are_those_of_split_args(line in proptest::collection::vec(
            prop_oneof![
                4 => proptest::sample::select(b" \t\x0b\x0c\r\"'\\xn0\0".to_vec()), 2 => proptest::num::u8::ANY,
            ], 1..40)) {
            let expected = split_args(&line);
            let mut out = Vec::new();
            let head = Splitter::default().encode(&line, u64::MAX, &mut out);
            match (expected, head) {
                (Ok(words), Ok(head)) => {
                    let args = crate::shown::arguments(&out);
                    prop_assert_eq!(&args, &words);
                    if let Some(first) = words.first() {
                        prop_assert_eq!(&out[head.name], &first[..]);
                    }
                }
                (Ok(words), Err(_)) => prop_assert!(words.is_empty()),
                (Err(_), head) => prop_assert!(head.is_err()),
            }
        }
    }
}
