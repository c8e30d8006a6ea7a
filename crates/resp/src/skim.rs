//! Replies that needn't be kept: counts them and reports errors, in constant memory.
//!
//! A mass insertion yields a million `+OK` and a few errors. [`Skimmer`] creates no values, copies only the texts of
//! errors, and stores neither long strings nor large arrays. It knows no connection: the caller feeds it with all
//! received bytes. Source of the formats: the "Redis serialization protocol specification" page.

use crate::num::parse_i64;
use crate::parse::ReplyError;

/// Largest nesting depth of arrays, maps and sets.
const DEPTH_MAX: usize = 128;
/// Longest line (simple string, error, number or length) in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest line that [`short_reply`] looks for, in bytes.
const SHORT_LINE_BYTES_MAX: usize = 128;
/// Most digits of a length that [`short_reply`] reads.
const SHORT_DIGITS_MAX: usize = 9;
/// Largest part of an error's text that is kept, in bytes.
const ERROR_BYTES_KEPT: usize = 4096;

/// An error among the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkimmedError<'a> {
    /// Index of the reply that is or contains the error, counted from the first reply.
    pub reply: u64,
    /// If the reply is an array: index of the element that is or contains the error.
    pub element: Option<u64>,
    /// The text, without the leading `-`; only its beginning if it is long.
    pub text: &'a [u8],
}

/// Parses replies from a stream that arrives in pieces. Must not be used after an error.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Number of complete replies.
    replies: u64,
    /// The incomplete aggregates, the innermost last.
    open: Vec<OpenFrame>,
    state: SkimState,
    /// The needed part of an incomplete line, beginning with its type byte.
    line: Vec<u8>,
    /// Number of bytes of that line that have arrived.
    line_bytes: usize,
    /// The kept part of a bulk error's text.
    error: Vec<u8>,
}

#[derive(Debug, Default)]
enum SkimState {
    #[default]
    Line,
    /// Within a string; `left` counts the remaining bytes, including the line end.
    Bulk { left: u64, is_error: bool },
}

/// An incomplete aggregate.
#[derive(Debug)]
struct OpenFrame {
    kind: FrameKind,
    elements: u64,
    missing: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    /// Counts as one value when it is complete.
    Value,
    /// A message that isn't a reply.
    Push,
    /// Information about the value that follows.
    Attribute,
}

impl Skimmer {
    /// Creates a skimmer at the start of a stream.
    #[must_use]
    pub fn new() -> Skimmer {
        Skimmer::default()
    }

    /// Number of complete replies.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Reads the received bytes and passes all completed errors to `on_error`.
    ///
    /// # Errors
    /// The bytes are not valid replies.
    pub fn feed(&mut self, mut bytes: &[u8], mut on_error: impl FnMut(SkimmedError<'_>)) -> Result<(), ReplyError> {
        while !bytes.is_empty() {
            let taken = match self.state {
                SkimState::Line => self.take_line(bytes, &mut on_error)?,
                SkimState::Bulk { left, is_error } => self.take_bulk(bytes, left, is_error, &mut on_error),
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Reads the received bytes up to the end of one reply, or all of them, and returns the number of consumed bytes.
    ///
    /// # Errors
    /// The bytes are not valid replies.
    pub fn feed_one(&mut self, bytes: &[u8]) -> Result<usize, ReplyError> {
        if self.is_between_replies()
            && let Some(length) = short_reply(bytes)
        {
            self.replies += 1;
            return Ok(length);
        }
        let (before, mut at) = (self.replies, 0);
        while at < bytes.len() && self.replies == before {
            let rest = &bytes[at..];
            at += match self.state {
                SkimState::Line => self.take_line(rest, &mut |_| ())?,
                SkimState::Bulk { left, is_error } => self.take_bulk(rest, left, is_error, &mut |_| ()),
            };
        }
        Ok(at)
    }

    /// Returns true if the next byte begins a reply, or a push or an attribute before one.
    #[inline]
    fn is_between_replies(&self) -> bool {
        matches!(self.state, SkimState::Line) && self.line_bytes == 0 && self.open.is_empty()
    }

    /// Reads a line, or the part of it that has arrived.
    fn take_line(&mut self, bytes: &[u8], on_error: &mut impl FnMut(SkimmedError<'_>)) -> Result<usize, ReplyError> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let here = end.map_or(bytes.len(), |end| end + 1);
        self.line_bytes += here;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err(ReplyError::Limit("line_bytes_max"));
        }
        if end.is_some() && self.line_bytes == here {
            self.understand(bytes[..here].strip_suffix(b"\r\n").ok_or(ReplyError::LineEnd)?, on_error)?;
        } else {
            let room = ERROR_BYTES_KEPT - self.line.len().min(ERROR_BYTES_KEPT);
            self.line.extend_from_slice(&bytes[..here.min(room)]);
            if end.is_none() {
                return Ok(here);
            }
            let line = std::mem::take(&mut self.line);
            let whole = self.line_bytes == line.len();
            let text = if whole { line.strip_suffix(b"\r\n").ok_or(ReplyError::LineEnd)? } else { &line };
            self.understand(text, on_error)?;
        }
        self.line_bytes = 0;
        Ok(here)
    }

    #[inline]
    fn understand(&mut self, line: &[u8], on_error: &mut impl FnMut(SkimmedError<'_>)) -> Result<(), ReplyError> {
        let Some((&kind, rest)) = line.split_first() else { return Err(ReplyError::LineEnd) };
        match kind {
            b'+' | b':' | b',' | b'#' | b'_' | b'(' => self.complete(),
            b'-' => {
                self.show(&rest[..rest.len().min(ERROR_BYTES_KEPT)], on_error);
                self.complete();
            }
            b'$' | b'*' if rest == b"-1" => self.complete(),
            b'$' | b'=' | b'!' => {
                self.state = SkimState::Bulk { left: length(rest)?.saturating_add(2), is_error: kind == b'!' };
            }
            b'*' | b'~' => self.begin(FrameKind::Value, length(rest)?)?,
            b'>' => self.begin(FrameKind::Push, length(rest)?)?,
            b'%' => self.begin(FrameKind::Value, length(rest)?.saturating_mul(2))?,
            b'|' => self.begin(FrameKind::Attribute, length(rest)?.saturating_mul(2))?,
            b';' | b'.' => return Err(ReplyError::Streamed),
            _ => return Err(ReplyError::UnknownType(kind)),
        }
        Ok(())
    }

    fn take_bulk(
        &mut self,
        bytes: &[u8],
        left: u64,
        is_error: bool,
        on_error: &mut impl FnMut(SkimmedError<'_>),
    ) -> usize {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if is_error {
            let room = ERROR_BYTES_KEPT - self.error.len();
            self.error.extend_from_slice(&bytes[..here.min(room)]);
        }
        let left = left - here as u64;
        self.state = SkimState::Bulk { left, is_error };
        if left == 0 {
            self.state = SkimState::Line;
            if is_error {
                let error = std::mem::take(&mut self.error);
                self.show(error.strip_suffix(b"\r\n").unwrap_or(&error), on_error);
            }
            self.complete();
        }
        here
    }

    fn begin(&mut self, kind: FrameKind, elements: u64) -> Result<(), ReplyError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(ReplyError::Limit("depth_max"));
        }
        self.open.push(OpenFrame { kind, elements, missing: elements });
        self.close_complete();
        Ok(())
    }

    /// Counts a complete value in its aggregate, or as a reply.
    #[inline]
    fn complete(&mut self) {
        match self.open.last_mut() {
            None => self.replies += 1,
            Some(open) => {
                open.missing -= 1;
                self.close_complete();
            }
        }
    }

    /// Closes the aggregates that are complete.
    fn close_complete(&mut self) {
        while let Some(OpenFrame { kind, missing: 0, .. }) = self.open.last() {
            let kind = *kind;
            self.open.pop();
            match (kind, self.open.last_mut()) {
                // A push or an attribute isn't a value: the surrounding aggregate still waits for one.
                (FrameKind::Push | FrameKind::Attribute, _) => return,
                (FrameKind::Value, None) => self.replies += 1,
                (FrameKind::Value, Some(outer)) => outer.missing -= 1,
            }
        }
    }

    fn show(&self, text: &[u8], on_error: &mut impl FnMut(SkimmedError<'_>)) {
        if self.open.iter().all(|open| open.kind == FrameKind::Value) {
            let element = self.open.first().map(|outer| outer.elements - outer.missing);
            on_error(SkimmedError { reply: self.replies, element, text });
        }
    }
}

/// Returns the length of the reply at the beginning of `bytes`, if it is a whole one of the most frequent kinds: a string, or a short line.
/// The caller reads all others in general.
#[inline]
fn short_reply(bytes: &[u8]) -> Option<usize> {
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        b'$' => {
            let (mut length, mut digits) = (0, 0);
            while let Some(digit @ b'0'..=b'9') = rest.get(digits)
                && digits < SHORT_DIGITS_MAX
            {
                (length, digits) = (10 * length + usize::from(digit - b'0'), digits + 1);
            }
            let is_header = digits > 0 && rest.get(digits..digits + 2)? == b"\r\n";
            let end = 1 + digits + 2 + length + 2;
            (is_header && (digits == 1 || rest[0] != b'0') && end <= bytes.len()).then_some(end)
        }
        b'+' | b':' | b'-' | b'_' | b'#' | b',' => {
            let end = rest.iter().take(SHORT_LINE_BYTES_MAX).position(|byte| *byte == b'\n')?;
            (end > 0 && rest[end - 1] == b'\r').then_some(end + 2)
        }
        _ => None,
    }
}

/// Parses the length in a header.
fn length(text: &[u8]) -> Result<u64, ReplyError> {
    if text == b"?" {
        return Err(ReplyError::Streamed);
    }
    parse_i64(text).and_then(|length| u64::try_from(length).ok()).ok_or(ReplyError::Length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{ReplyLimits, Value, parse};
    use proptest::prelude::*;

    /// An error's reply, element and text.
    type Shown = (u64, Option<u64>, String);

    /// Skims bytes that arrive in pieces of one size.
    fn skim(bytes: &[u8], size: usize) -> Result<(u64, Vec<Shown>), ReplyError> {
        let mut skimmer = Skimmer::new();
        let mut errors = Vec::new();
        for piece in bytes.chunks(size) {
            skimmer.feed(piece, |error| {
                errors.push((error.reply, error.element, String::from_utf8_lossy(error.text).into_owned()));
            })?;
        }
        Ok((skimmer.replies(), errors))
    }

    fn check(bytes: &str, replies: u64, expected: &[(u64, Option<u64>, &str)]) {
        for size in 1..=bytes.len() {
            let (count, errors) = skim(bytes.as_bytes(), size).unwrap();
            let errors: Vec<_> =
                errors.iter().map(|(reply, element, text)| (*reply, *element, text.as_str())).collect();
            assert_eq!((count, &errors[..]), (replies, expected), "{bytes:?} in pieces of {size}");
        }
    }

    #[test]
    fn feed_one_stops_after_each_reply() {
        let bytes = b"+OK\r\n>1\r\n+push\r\n*2\r\n$1\r\na\r\n:5\r\n$-1\r\n$4\r\nab";
        let (mut skimmer, mut rest, mut taken) = (Skimmer::new(), &bytes[..], Vec::new());
        while !rest.is_empty() {
            let one = skimmer.feed_one(rest).unwrap();
            taken.push((one, skimmer.replies()));
            rest = &rest[one..];
        }
        // A push belongs to the reply that comes after it.
        assert_eq!(taken, [(5, 1), (26, 2), (5, 3), (6, 3)]);
    }

    #[test]
    fn short_replies_are_read_at_once() {
        let whole = |bytes: &str| short_reply(bytes.as_bytes());
        for reply in
            ["+OK\r\n", ":-12\r\n", "-ERR x\r\n", "_\r\n", "$0\r\n\r\n", "$3\r\na\nb\r\n", "$10\r\n0123456789\r\n"]
        {
            assert_eq!(whole(reply), Some(reply.len()), "{reply:?}");
            assert_eq!(whole(&format!("{reply}+OK\r\n")), Some(reply.len()), "{reply:?}");
            (0..reply.len()).for_each(|end| assert_eq!(whole(&reply[..end]), None, "{reply:?} {end}"));
        }
        for other in [
            "$-1\r\n",
            "*0\r\n",
            ">0\r\n",
            "+OK\n",
            "\n",
            "+\n",
            "$\r\n",
            "$01\r\na\r\n",
            "$9999999999\r\n",
            "$1x\r\na\r\n",
        ] {
            assert_eq!(whole(other), None, "{other:?}");
        }
        assert_eq!(whole(&format!("+{}\r\n", "x".repeat(SHORT_LINE_BYTES_MAX))), None);
    }

    /// Skims bytes that arrive in two parts, one reply at a time. Returns the number of replies and the end of each step.
    fn skim_ones(bytes: &[u8], at: usize) -> Result<(u64, Vec<usize>), ReplyError> {
        let (mut skimmer, mut ends) = (Skimmer::new(), Vec::new());
        for (mut part, end) in [(&bytes[..at], at), (&bytes[at..], bytes.len())] {
            while !part.is_empty() {
                part = &part[skimmer.feed_one(part)?..];
                ends.push(end - part.len());
            }
        }
        Ok((skimmer.replies(), ends))
    }

    #[test]
    fn replies_are_counted_and_errors_reported() {
        check("+OK\r\n:1\r\n-ERR no\r\n$3\r\na\nb\r\n$-1\r\n*-1\r\n_\r\n", 7, &[(2, None, "ERR no")]);
        check("!5\r\nERR x\r\n$0\r\n\r\n", 2, &[(0, None, "ERR x")]);
        check("*0\r\n+OK\r\n%0\r\n", 3, &[]);
        check(
            "*3\r\n+OK\r\n-ERR a\r\n*2\r\n:1\r\n-ERR b\r\n+OK\r\n",
            2,
            &[(0, Some(1), "ERR a"), (0, Some(2), "ERR b")],
        );
        check("%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n,1.5\r\n#t\r\n=5\r\ntxt:x\r\n(12\r\n", 5, &[]);
    }

    #[test]
    fn pushes_and_attributes_are_not_counted() {
        check(">2\r\n+invalidate\r\n*1\r\n-ERR inside\r\n+OK\r\n>0\r\n", 1, &[]);
        check("|1\r\n+ttl\r\n:1\r\n-ERR x\r\n|0\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n", 2, &[(0, None, "ERR x")]);
    }

    #[test]
    fn long_errors_are_truncated_and_invalid_bytes_refused() {
        let long = format!("-ERR {}\r\n+OK\r\n", "x".repeat(3 * ERROR_BYTES_KEPT));
        for size in [1000, 7777, long.len()] {
            let (count, errors) = skim(long.as_bytes(), size).unwrap();
            assert_eq!(count, 2);
            assert!((ERROR_BYTES_KEPT - 10..=ERROR_BYTES_KEPT).contains(&errors[0].2.len()), "{}", errors[0].2.len());
        }
        assert_eq!(skim(b"?\r\n", 9), Err(ReplyError::UnknownType(b'?')));
        assert_eq!(skim(b"+OK\n", 2), Err(ReplyError::LineEnd));
        assert_eq!(skim(b"$x\r\n", 9), Err(ReplyError::Length));
        assert_eq!(skim(&b"*1\r\n".repeat(DEPTH_MAX + 1), 9), Err(ReplyError::Limit("depth_max")));
        assert_eq!(skim(&vec![b'+'; LINE_BYTES_MAX + 1], 999), Err(ReplyError::Limit("line_bytes_max")));
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = proptest::collection::vec(proptest::sample::select(b"ab-+*\r\n$0".to_vec()), 0..6);
        let line = || proptest::collection::vec(proptest::sample::select(b"ab-*$+".to_vec()), 1..6);
        let leaf = prop_oneof![
            line().prop_map(Value::Simple),
            line().prop_map(Value::Error),
            any::<i64>().prop_map(Value::Int),
            text.clone().prop_map(Value::Bulk),
            text.prop_map(Value::BulkError),
            Just(Value::NullBulk),
            Just(Value::Null),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            let some = proptest::collection::vec(inner.clone(), 0..4);
            let pairs = proptest::collection::vec((inner.clone(), inner.clone()), 0..3);
            prop_oneof![
                some.clone().prop_map(Value::Array),
                some.clone().prop_map(Value::Set),
                pairs.clone().prop_map(Value::Map),
                (pairs, inner).prop_map(|(attributes, value)| Value::Attribute { attributes, value: Box::new(value) }),
            ]
        })
    }

    /// Number of errors that a value contains outside attributes.
    fn errors_in(value: &Value) -> usize {
        match value {
            Value::Error(_) | Value::BulkError(_) => 1,
            Value::Array(all) | Value::Set(all) => all.iter().map(errors_in).sum(),
            Value::Map(pairs) => pairs.iter().map(|(key, value)| errors_in(key) + errors_in(value)).sum(),
            Value::Attribute { value, .. } => errors_in(value),
            _ => 0,
        }
    }

    proptest! {
        /// Compares the skimmer with the parser, for pieces of any size.
        #[test]
        fn it_agrees_with_the_parser(values in proptest::collection::vec(value(), 0..8), size in 1usize..40) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| value.encode(&mut bytes));
            let (mut rest, mut parsed) = (&bytes[..], 0);
            while let Ok(Some((_, length))) = parse(rest, &ReplyLimits::default()) {
                (rest, parsed) = (&rest[length..], parsed + 1);
            }
            let (count, errors) = skim(&bytes, size).unwrap();
            prop_assert_eq!(count, parsed);
            prop_assert_eq!(errors.len(), values.iter().map(errors_in).sum::<usize>());
        }

        /// Reading one reply at a time finds the end of each, wherever the stream is cut.
        #[test]
        fn replies_one_by_one_agree_with_the_parser(values in proptest::collection::vec(value(), 1..8), cut in 0.0..1.0) {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            for value in &values {
                value.encode(&mut bytes);
                expected.push(bytes.len());
            }
            let at = (cut * bytes.len() as f64) as usize;
            let (count, ends) = skim_ones(&bytes, at).unwrap();
            prop_assert_eq!(count, values.len() as u64);
            prop_assert!(ends.iter().all(|end| *end == at || expected.contains(end)));
            prop_assert!(expected.iter().all(|end| ends.contains(end)));
        }
    }
}
