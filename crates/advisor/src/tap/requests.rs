//! Parses requests from a stream that arrives in pieces, in bounded memory: it keeps the beginnings of the first
//! arguments.

use resp::request::{Args, ArgsBuffer};

/// Number of arguments that are kept.
const ARGS_MAX: usize = 16;
/// Bytes kept of an argument.
const ARG_BYTES_MAX: usize = 256;
/// Longest line: a length, or an inline command.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Largest number of arguments, and largest length of an argument.
const LENGTH_MAX: u64 = 1 << 40;

/// The bytes are not requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRequest;

/// The next item in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expects {
    /// A request's first line.
    #[default]
    Start,
    /// The length of an argument; `args` arguments are left.
    Length { args: u64 },
    /// The rest of an argument and its line end, `left` bytes in all; `args` arguments follow it.
    Bytes { left: u64, args: u64 },
}

/// Reads requests.
#[derive(Debug, Default)]
pub struct Requests {
    state: Expects,
    /// The beginning of a line that has not arrived in full.
    line: Vec<u8>,
    /// The current argument.
    argument: Vec<u8>,
    args: ArgsBuffer,
}

impl Requests {
    /// Takes the next bytes. Calls `seen` with each request that ends in them.
    ///
    /// # Errors
    /// The bytes are not requests. The parser must not be used again.
    pub fn feed(&mut self, mut bytes: &[u8], seen: &mut impl FnMut(&Args<'_>)) -> Result<(), NoRequest> {
        while !bytes.is_empty() {
            let taken = match self.state {
                Expects::Bytes { left, args } => self.take_argument(bytes, left, args, seen),
                Expects::Start | Expects::Length { .. } => self.take_line(bytes, seen)?,
            };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    fn take_argument(&mut self, bytes: &[u8], left: u64, args: u64, seen: &mut impl FnMut(&Args<'_>)) -> usize {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        // The last two bytes are the line end.
        let own = usize::try_from(left.saturating_sub(2)).unwrap_or(usize::MAX).min(here);
        let room = ARG_BYTES_MAX - self.argument.len();
        self.argument.extend_from_slice(bytes.get(..own.min(room)).unwrap_or_default());
        self.state = Expects::Bytes { left: left - here as u64, args };
        if here as u64 == left {
            if self.args.args().len() < ARGS_MAX {
                self.args.push(&self.argument);
            }
            self.argument.clear();
            self.begin_argument(args, seen);
        }
        here
    }

    /// Begins the next of `args` arguments, or ends the request.
    fn begin_argument(&mut self, args: u64, seen: &mut impl FnMut(&Args<'_>)) {
        if args > 0 {
            self.state = Expects::Length { args };
            return;
        }
        self.state = Expects::Start;
        if self.args.args().len() > 0 {
            seen(&self.args.args());
        }
        self.args.clear();
    }

    fn take_line(&mut self, bytes: &[u8], seen: &mut impl FnMut(&Args<'_>)) -> Result<usize, NoRequest> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let here = end.map_or(bytes.len(), |end| end + 1);
        if self.line.len() + here > LINE_BYTES_MAX {
            return Err(NoRequest);
        }
        self.line.extend_from_slice(bytes.get(..here).unwrap_or_default());
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            self.understand(text.strip_suffix(b"\r").unwrap_or(text), seen)?;
            self.line = line;
            self.line.clear();
        }
        Ok(here)
    }

    fn understand(&mut self, line: &[u8], seen: &mut impl FnMut(&Args<'_>)) -> Result<(), NoRequest> {
        match (self.state, line.split_first()) {
            // A count of 0 or below is no request, and has no reply.
            (Expects::Start, Some((b'*', count))) => {
                let count = resp::num::parse_i64(count).ok_or(NoRequest)?;
                let args = u64::try_from(count).unwrap_or(0);
                self.begin_argument(Some(args).filter(|args| *args < LENGTH_MAX).ok_or(NoRequest)?, seen);
            }
            (Expects::Start, _) => {
                let words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
                for word in words.take(ARGS_MAX) {
                    self.args.push(word.get(..ARG_BYTES_MAX).unwrap_or(word));
                }
                self.begin_argument(0, seen);
            }
            (Expects::Length { args }, Some((b'$', length))) => {
                let length = resp::num::parse_i64(length).and_then(|length| u64::try_from(length).ok());
                let length = length.filter(|length| *length < LENGTH_MAX).ok_or(NoRequest)?;
                self.state = Expects::Bytes { left: length + 2, args: args - 1 };
            }
            _ => return Err(NoRequest),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests in some bytes, as words joined by a bar; None if the bytes are not requests.
    fn requests(bytes: &[u8], piece: usize) -> Option<Vec<String>> {
        let (mut requests, mut seen) = (Requests::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut see = |args: &Args<'_>| {
                seen.push(args.from(0).map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join("|"));
            };
            requests.feed(piece, &mut see).ok()?;
        }
        Some(seen)
    }

    fn check(bytes: &[u8], expected: Option<&[&str]>) {
        for piece in 1..=bytes.len().min(50) {
            let expected = expected.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(requests(bytes, piece), expected, "{} {piece}", bytes.escape_ascii());
        }
    }

    #[test]
    fn requests_are_read_from_pieces_of_any_size() {
        check(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n", Some(&["GET|a", "PING"]));
        check(b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n", Some(&["GET|a\\r\\nb"]));
        check(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", Some(&["GET|"]));
        check(b"PING\r\n\r\nset  a b\n*0\r\n*-1\r\nPING\r\n", Some(&["PING", "set|a|b", "PING"]));
        check(b"*2\r\n$3\r\nGET\r\n$1\r\n", Some(&[]));
    }

    #[test]
    fn invalid_requests_are_refused() {
        check(b"*x\r\n", None);
        check(b"*1\r\n:5\r\n", None);
        check(b"*1\r\n$-1\r\n", None);
        check(b"*99999999999999\r\n", None);
        assert_eq!(requests(&vec![b'x'; LINE_BYTES_MAX + 1], 1000), None);
    }

    #[test]
    fn of_long_requests_the_beginnings_are_kept() {
        let value = "x".repeat(1 << 20);
        let many = format!("*{}\r\n{}", 100, format!("${}\r\n{value}\r\n", value.len()).repeat(100));
        let mut requests = Requests::default();
        let mut seen = Vec::new();
        for piece in many.as_bytes().chunks(65_536) {
            requests.feed(piece, &mut |args| seen.push((args.len(), args.get(15).len()))).unwrap();
        }
        assert_eq!(seen, [(ARGS_MAX, ARG_BYTES_MAX)]);
    }
}
