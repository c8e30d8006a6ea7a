//! Replies that needn't be kept: counts them and shows the errors among them, in constant memory.
//!
//! A mass insertion gets a million `+OK` and a few errors. [`Skimmer`] builds no value, copies nothing but an error's
//! text, and holds neither a long string nor a large array, whatever comes. It knows no connection: the caller feeds it
//! with whatever has arrived. Source of the formats: the "Redis serialization protocol specification" page.

use crate::num::parse_i64;
use crate::parse::ReplyError;

/// How deep arrays, maps and sets may nest.
const DEPTH_MAX: usize = 128;
/// Longest line, in bytes: simple string, error, number or length.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of an error's text that are kept.
const ERROR_BYTES_KEPT: usize = 4096;

/// An error among the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkimmedError<'a> {
    /// Which reply it is or is part of: the first one ever fed is 0.
    pub reply: u64,
    /// Where the reply is an array: the index of the element that is or holds the error.
    pub element: Option<u64>,
    /// The text, without the leading `-`; its beginning if it is long.
    pub text: &'a [u8],
}

/// Reads replies from a stream that arrives in pieces. After an error it must not be used again.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Replies that were complete.
    replies: u64,
    /// The aggregates that have begun and lack elements, the innermost last.
    open: Vec<OpenFrame>,
    state: SkimState,
    /// A line that arrived in part, its type byte first; only as much of it as is needed.
    line: Vec<u8>,
    /// Bytes of that line that have arrived.
    line_bytes: usize,
    /// A bulk error's text, as much as is kept.
    error: Vec<u8>,
}

#[derive(Debug, Default)]
enum SkimState {
    #[default]
    Line,
    /// Within a string, its line end included: so many bytes are left.
    Bulk { left: u64, is_error: bool },
}

/// An aggregate that lacks elements.
#[derive(Debug)]
struct OpenFrame {
    kind: FrameKind,
    elements: u64,
    missing: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameKind {
    /// It counts as one value when it is complete.
    Value,
    /// A message that answers nothing.
    Push,
    /// Something said about the value that follows.
    Attribute,
}

impl Skimmer {
    /// At the start of a stream.
    #[must_use]
    pub fn new() -> Skimmer {
        Skimmer::default()
    }

    /// How many replies were complete.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Takes what has arrived; shows `on_error` the errors that ended in it.
    ///
    /// # Errors
    /// The bytes are no replies.
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

    /// Takes what has arrived up to the end of one reply, or all of it, and returns how many bytes that were.
    ///
    /// # Errors
    /// The bytes are no replies.
    pub fn feed_one(&mut self, bytes: &[u8]) -> Result<usize, ReplyError> {
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

    /// Takes a line or the part of it that is there.
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

    /// Counts a value where it belongs.
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

    /// Ends the aggregates that lack nothing any more.
    fn close_complete(&mut self) {
        while let Some(OpenFrame { kind, missing: 0, .. }) = self.open.last() {
            let kind = *kind;
            self.open.pop();
            match (kind, self.open.last_mut()) {
                // Neither a push nor an attribute is a value: what it came before is still awaited.
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

/// The length that a head announces.
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

    /// What is skimmed off `bytes` that arrive in pieces of one size.
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
    fn one_reply_is_taken_after_the_other() {
        let bytes = b"+OK\r\n>1\r\n+push\r\n*2\r\n$1\r\na\r\n:5\r\n$-1\r\n$4\r\nab";
        let (mut skimmer, mut rest, mut taken) = (Skimmer::new(), &bytes[..], Vec::new());
        while !rest.is_empty() {
            let one = skimmer.feed_one(rest).unwrap();
            taken.push((one, skimmer.replies()));
            rest = &rest[one..];
        }
        // A push belongs to the reply before which it came.
        assert_eq!(taken, [(5, 1), (26, 2), (5, 3), (6, 3)]);
    }

    #[test]
    fn replies_are_counted_and_errors_shown() {
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
    fn what_answers_nothing_is_not_counted() {
        check(">2\r\n+invalidate\r\n*1\r\n-ERR inside\r\n+OK\r\n>0\r\n", 1, &[]);
        check("|1\r\n+ttl\r\n:1\r\n-ERR x\r\n|0\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n", 2, &[(0, None, "ERR x")]);
    }

    #[test]
    fn long_errors_are_cut_and_broken_bytes_refused() {
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

    /// How many errors a value holds outside of attributes.
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
        /// The skimmer counts what the parser reads, however the stream is cut.
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
    }
}
