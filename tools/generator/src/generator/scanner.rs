//! Counts replies without building values. The load generator only needs the end of each reply and its error status.
//!
//! Source of the formats: the "Redis serialization protocol specification" page of Redis's documentation.

use std::fmt;

/// Maximum length of a partial line, in bytes. Errors quote their requests, but not without limit.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of elements of a reply, including nested ones. Larger announcements are invalid.
const ELEMENTS_MAX: u64 = 1 << 40;

/// Counts the replies of one connection, for any fragmentation by the network.
#[derive(Default)]
pub struct Scanner {
    /// Partial line.
    line: Vec<u8>,
    /// Remaining bytes of a bulk string, including its line end.
    skip: u64,
    /// Number of missing values of the current reply; 0 between two replies.
    open: u64,
    /// True if the current reply is a push message, which answers no request.
    push: bool,
}

/// Result of one call.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Number of completed replies.
    pub replies: u64,
    /// Number of error replies among them.
    pub errors: u64,
}

/// The stream isn't valid RESP.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The invalid line, shortened.
    pub line: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid reply: {:?}; does this server speak the Redis protocol?", self.line)
    }
}

impl Scanner {
    /// Counts the replies that end within `bytes`, which continue the bytes of the previous call. `on_error` gets the
    /// text of each top-level error.
    pub fn feed(&mut self, bytes: &[u8], on_error: &mut dyn FnMut(&[u8])) -> Result<Tally, Malformed> {
        let mut tally = Tally::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.skip > 0 {
                let taken = self.skip.min(rest.len() as u64);
                self.skip -= taken;
                rest = &rest[taken as usize..];
                if self.skip == 0 {
                    self.value_ended(&mut tally);
                }
                continue;
            }
            let Some(end) = rest.iter().position(|&b| b == b'\n') else {
                self.keep_line(rest)?;
                break;
            };
            if self.line.is_empty() {
                self.line_ended(&rest[..end], &mut tally, on_error)?;
            } else {
                self.keep_line(&rest[..end])?;
                let line = std::mem::take(&mut self.line);
                self.line_ended(&line, &mut tally, on_error)?;
            }
            rest = &rest[end + 1..];
        }
        Ok(tally)
    }

    fn keep_line(&mut self, part: &[u8]) -> Result<(), Malformed> {
        if self.line.len() + part.len() > LINE_BYTES_MAX {
            return Err(malformed(&self.line));
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Handles a complete line, with its type byte and its carriage return.
    fn line_ended(&mut self, line: &[u8], tally: &mut Tally, on_error: &mut dyn FnMut(&[u8])) -> Result<(), Malformed> {
        let outermost = self.open == 0;
        if outermost {
            self.open = 1;
        }
        let kind = *line.first().ok_or_else(|| malformed(line))?;
        match kind {
            b'+' | b':' | b'_' | b'#' | b',' | b'(' => self.value_ended(tally),
            b'-' => {
                if outermost {
                    tally.errors += 1;
                    on_error(line[1..].trim_ascii_end());
                }
                self.value_ended(tally);
            }
            b'$' | b'=' | b'!' => match length(line)? {
                Some(bytes) => self.skip = bytes + 2,
                None => self.value_ended(tally),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => self.aggregate_began(kind, line, outermost, tally)?,
            _ => return Err(malformed(line)),
        }
        Ok(())
    }

    fn aggregate_began(&mut self, kind: u8, line: &[u8], outermost: bool, tally: &mut Tally) -> Result<(), Malformed> {
        let elements = length(line)?.unwrap_or(0) * if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        if elements > ELEMENTS_MAX || self.open > ELEMENTS_MAX {
            return Err(malformed(line));
        }
        self.push |= outermost && kind == b'>';
        self.open += elements;
        // An attribute precedes its value and doesn't count as one.
        if kind != b'|' {
            self.value_ended(tally);
        }
        Ok(())
    }

    fn value_ended(&mut self, tally: &mut Tally) {
        self.open -= 1;
        if self.open == 0 && !std::mem::take(&mut self.push) {
            tally.replies += 1;
        }
    }
}

/// Parses the number after the type byte. `None` is the -1 of a null.
fn length(line: &[u8]) -> Result<Option<u64>, Malformed> {
    let digits = line[1..].strip_suffix(b"\r").unwrap_or(&line[1..]);
    if digits == b"-1" {
        return Ok(None);
    }
    let digit = |n: u64, b: &u8| b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0'));
    // 18 digits can't overflow, and no server has a string or an array of this length.
    let number = (1..=18).contains(&digits.len()).then(|| digits.iter().try_fold(0, digit)).flatten();
    number.map(Some).ok_or_else(|| malformed(line))
}

fn malformed(line: &[u8]) -> Malformed {
    Malformed { line: String::from_utf8_lossy(&line[..line.len().min(60)]).trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the stream cut at every position, and byte by byte. All results must be equal.
    fn check(stream: &[u8], replies: u64, errors: &[&str]) {
        for cut in 0..=stream.len() {
            scan(&[&stream[..cut], &stream[cut..]], replies, errors);
        }
        scan(&stream.chunks(1).collect::<Vec<_>>(), replies, errors);
    }

    fn scan(parts: &[&[u8]], replies: u64, errors: &[&str]) {
        let mut scanner = Scanner::default();
        let mut texts = Vec::new();
        let mut tally = Tally::default();
        for part in parts {
            let found = scanner.feed(part, &mut |text| texts.push(String::from_utf8_lossy(text).into_owned())).unwrap();
            tally.replies += found.replies;
            tally.errors += found.errors;
        }
        assert_eq!(tally, Tally { replies, errors: errors.len() as u64 }, "{parts:?}");
        assert_eq!(texts, errors);
    }

    #[test]
    fn plain_replies_are_counted_wherever_they_are_cut() {
        check(b"+OK\r\n+PONG\r\n:12\r\n$3\r\nfoo\r\n$0\r\n\r\n$-1\r\n*-1\r\n", 7, &[]);
        check(b"-ERR no\r\n+OK\r\n-WRONGPASS x\r\n", 3, &["ERR no", "WRONGPASS x"]);
        // Line ends and type bytes inside a string have no meaning.
        check(b"$12\r\n+OK\r\n-ERR\r\n!\r\n+OK\r\n", 2, &[]);
    }

    #[test]
    fn nested_replies_count_once() {
        check(b"*0\r\n*2\r\n$1\r\na\r\n*3\r\n:1\r\n*-1\r\n-ERR inner\r\n+OK\r\n", 3, &[]);
        check(b"%1\r\n+a\r\n~2\r\n#t\r\n_\r\n,1.5\r\n(123\r\n=5\r\ntxt:a\r\n!3\r\nERR\r\n", 5, &[]);
    }

    #[test]
    fn pushes_and_attributes_answer_nothing() {
        check(b">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n", 1, &[]);
        check(b"|1\r\n+ttl\r\n:3\r\n+OK\r\n", 1, &[]);
    }

    #[test]
    fn invalid_replies_are_refused() {
        let feed = |bytes: &[u8]| Scanner::default().feed(bytes, &mut |_| {}).unwrap_err().line;
        assert_eq!(feed(b"HTTP/1.1 400 Bad Request\r\n"), "HTTP/1.1 400 Bad Request");
        assert_eq!(feed(b"$x\r\n"), "$x");
        assert_eq!(feed(b"$\r\n"), "$");
        assert_eq!(feed(b"\n"), "");
        assert_eq!(feed(b"*999999999999999999\r\n"), "*999999999999999999");
        assert_eq!(feed(b"*9999999999999999999999\r\n"), "*9999999999999999999999");
        assert!(Scanner::default().feed(&vec![b'x'; LINE_BYTES_MAX + 1], &mut |_| {}).is_err());
    }
}
