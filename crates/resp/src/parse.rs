//! Parsing of replies for clients, RESP2 and RESP3, and encoding of requests.
//!
//! The caller feeds [`Parser`] with all received bytes. The parser keeps the parsed part of an incomplete reply, so the
//! work is linear for pieces of any size. It knows no connection: the caller owns the buffer and drops consumed bytes.
//! Source of the formats: the "Redis serialization protocol specification" page of Redis's documentation.

mod value;

pub use value::{Double, Value};

use crate::num::{parse_i64, write_u64};
use std::fmt;

/// Limits for one reply. They bound memory to about `reply_bytes_max` plus `elements_max` times the size of a
/// [`Value`], whatever a server sends.
#[derive(Clone, Debug)]
pub struct ReplyLimits {
    /// Largest whole reply, in bytes.
    pub reply_bytes_max: usize,
    /// Largest bulk string, bulk error or verbatim string, in bytes.
    pub bulk_bytes_max: usize,
    /// Longest line (simple string, error, number or length) in bytes, without its end.
    pub line_bytes_max: usize,
    /// Largest total number of elements of all arrays, maps and sets of one reply; a pair counts as two.
    pub elements_max: usize,
    /// Largest nesting depth of arrays, maps, sets and attributes.
    pub depth_max: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        Self {
            reply_bytes_max: 1 << 31,
            // Redis's default for the largest string.
            bulk_bytes_max: 512 << 20,
            // Redis has no limit, but even errors that quote their arguments are far shorter.
            line_bytes_max: 1 << 20,
            elements_max: 1 << 26,
            // Redis's deepest built-in reply has five levels; scripts can create deeper ones.
            depth_max: 128,
        }
    }
}

/// A malformed reply, or one beyond the limits. The connection is unusable afterwards, because the start of the next
/// reply is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// A reply begins with this byte, which isn't a type of RESP2 or RESP3.
    UnknownType(u8),
    /// A string or aggregate of unknown length (`$?`, `*?`); RESP3 describes them, but no Redis server sends them.
    Streamed,
    /// A line or string doesn't end in `\r\n`.
    LineEnd,
    /// A length is not a number, or is negative without being a null.
    Length,
    /// The data after a type byte doesn't match the type.
    Content(u8),
    /// A limit of [`ReplyLimits`] is exceeded; the name of its field.
    Limit(&'static str),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(byte) => write!(f, "no reply begins with '{}'", byte.escape_ascii()),
            Self::Streamed => f.write_str("strings and aggregates of unknown length are not supported"),
            Self::LineEnd => f.write_str("a line does not end in CR LF"),
            Self::Length => f.write_str("a length is not a number, or negative"),
            Self::Content(byte) => write!(f, "malformed reply of type '{}'", byte.escape_ascii()),
            Self::Limit(name) => write!(f, "the reply exceeds {name}"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// Parses the first reply of a buffer at once. Returns the reply and its length in bytes, or `None` if it is
/// incomplete.
///
/// For a stream, [`Parser`] avoids starting again with every piece.
pub fn parse(buf: &[u8], limits: &ReplyLimits) -> Result<Option<(Value, usize)>, ReplyError> {
    let progress = Parser::new(limits.clone()).advance(buf)?;
    Ok(progress.value.map(|value| (value, progress.consumed)))
}

/// Appends a request: an array of bulk strings, beginning with the command's name.
pub fn encode_request(args: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    write_length(b'*', args.len(), out);
    for arg in args {
        let arg = arg.as_ref();
        write_length(b'$', arg.len(), out);
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_length(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    write_u64(out, length as u64);
    out.extend_from_slice(b"\r\n");
}

/// Result of one call of [`Parser::advance`].
#[derive(Debug)]
pub struct Advanced {
    /// Number of consumed bytes at the buffer's start; the next call must not contain them.
    pub consumed: usize,
    /// The reply that ends there, if one does.
    pub value: Option<Value>,
}

/// Parses replies from a stream that arrives in pieces.
///
/// Must not be used after an error, since the start of the next reply is unknown.
#[derive(Debug)]
pub struct Parser {
    limits: ReplyLimits,
    /// The incomplete aggregates, the innermost last.
    open: Vec<PartialAggregate>,
    /// Number of consumed bytes of the current reply.
    bytes: usize,
    /// Number of elements that the current reply's aggregates have announced.
    elements: usize,
    /// Number of bytes at the buffer's start that were searched for a line end without success.
    line_searched: usize,
}

/// An incomplete aggregate.
#[derive(Debug)]
struct PartialAggregate {
    kind: Aggregate,
    missing: usize,
    elements: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Aggregate {
    Array,
    Set,
    Push,
    Map,
    /// Its last element is the value that it describes.
    Attribute,
}

/// The smallest unit of the protocol: a value without parts, or the header of an aggregate.
enum Item {
    Value(Value),
    Head(Aggregate, usize),
}

impl Parser {
    /// Creates a parser at the start of a stream.
    pub fn new(limits: ReplyLimits) -> Self {
        Self { limits, open: Vec::new(), bytes: 0, elements: 0, line_searched: 0 }
    }

    /// Parses until a reply is complete or the buffer has no complete item left.
    pub fn advance(&mut self, buf: &[u8]) -> Result<Advanced, ReplyError> {
        let mut consumed = 0;
        while let Some((item, length)) = self.read_item(&buf[consumed..])? {
            consumed += length;
            self.bytes += length;
            self.line_searched = 0;
            let value = match item {
                Item::Head(kind, missing) if missing > 0 => {
                    self.begin(kind, missing)?;
                    continue;
                }
                Item::Head(kind, _) => PartialAggregate { kind, missing: 0, elements: Vec::new() }.finish(),
                Item::Value(value) => value,
            };
            if let Some(value) = self.complete(value) {
                self.bytes = 0;
                self.elements = 0;
                return Ok(Advanced { consumed, value: Some(value) });
            }
        }
        Ok(Advanced { consumed, value: None })
    }

    fn begin(&mut self, kind: Aggregate, missing: usize) -> Result<(), ReplyError> {
        /// Further elements are allocated as they arrive; an announced length alone is no reason to allocate.
        const ELEMENTS_AT_FIRST: usize = 64;
        if self.open.len() >= self.limits.depth_max {
            return Err(ReplyError::Limit("depth_max"));
        }
        self.elements = self.elements.saturating_add(missing);
        if self.elements > self.limits.elements_max {
            return Err(ReplyError::Limit("elements_max"));
        }
        self.open.push(PartialAggregate {
            kind,
            missing,
            elements: Vec::with_capacity(missing.min(ELEMENTS_AT_FIRST)),
        });
        Ok(())
    }

    /// Adds a value to the innermost aggregate; returns the whole reply once it is complete.
    fn complete(&mut self, mut value: Value) -> Option<Value> {
        while let Some(mut open) = self.open.pop() {
            open.elements.push(value);
            open.missing -= 1;
            if open.missing > 0 {
                self.open.push(open);
                return None;
            }
            value = open.finish();
        }
        Some(value)
    }

    /// Parses the first item of the buffer. Returns it with its length in bytes, or `None` if it is incomplete.
    fn read_item(&mut self, buf: &[u8]) -> Result<Option<(Item, usize)>, ReplyError> {
        let Some((&kind, _)) = buf.split_first() else { return Ok(None) };
        if !b"+-:,(#_$!=*~>%|".contains(&kind) {
            return Err(if b";.".contains(&kind) { ReplyError::Streamed } else { ReplyError::UnknownType(kind) });
        }
        let Some(line) = self.read_line(buf)? else { return Ok(None) };
        let head_bytes = 1 + line.len() + 2;
        let (item, length) = match kind {
            b'$' | b'!' | b'=' => match self.read_bulk(kind, line, &buf[head_bytes..])? {
                Some((value, bulk_bytes)) => (Item::Value(value), head_bytes + bulk_bytes),
                None => return Ok(None),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => (read_head(kind, line)?, head_bytes),
            _ => (Item::Value(read_line_value(kind, line)?), head_bytes),
        };
        self.check_size(length)?;
        Ok(Some((item, length)))
    }

    /// Returns the text between the type byte and the end of the line.
    fn read_line<'a>(&mut self, buf: &'a [u8]) -> Result<Option<&'a [u8]>, ReplyError> {
        let rest = &buf[1..];
        let found = rest[self.line_searched..].iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let end = self.line_searched + found.unwrap_or(rest.len() - self.line_searched);
        if end > self.limits.line_bytes_max {
            return Err(ReplyError::Limit("line_bytes_max"));
        }
        self.line_searched = end;
        match &rest[end..] {
            [] | [b'\r'] => Ok(None),
            [b'\r', b'\n', ..] => Ok(Some(&rest[..end])),
            _ => Err(ReplyError::LineEnd),
        }
    }

    /// Parses a string after its header; returns it with its length including the line end.
    fn read_bulk(&self, kind: u8, head: &[u8], rest: &[u8]) -> Result<Option<(Value, usize)>, ReplyError> {
        if kind == b'$' && head == b"-1" {
            return Ok(Some((Value::NullBulk, 0)));
        }
        let length = read_length(head)?;
        if length > self.limits.bulk_bytes_max {
            return Err(ReplyError::Limit("bulk_bytes_max"));
        }
        // Checked early, so that an overlong string isn't collected; header and line end are counted when it is
        // complete.
        self.check_size(length)?;
        let Some((text, end)) = rest.split_at_checked(length) else { return Ok(None) };
        match end {
            [b'\r', b'\n', ..] => Ok(Some((bulk_value(kind, text)?, length + 2))),
            [] | [b'\r'] => Ok(None),
            _ => Err(ReplyError::LineEnd),
        }
    }

    /// Fails if the reply would become too long with this many additional bytes.
    fn check_size(&self, more: usize) -> Result<(), ReplyError> {
        let total = self.bytes.saturating_add(more);
        if total > self.limits.reply_bytes_max { Err(ReplyError::Limit("reply_bytes_max")) } else { Ok(()) }
    }
}

impl PartialAggregate {
    /// Creates the value of a complete aggregate.
    fn finish(self) -> Value {
        let mut elements = self.elements;
        match self.kind {
            Aggregate::Array => Value::Array(elements),
            Aggregate::Set => Value::Set(elements),
            Aggregate::Push => Value::Push(elements),
            Aggregate::Map => Value::Map(into_pairs(elements)),
            Aggregate::Attribute => {
                let value = elements.pop().unwrap_or(Value::Null);
                Value::Attribute { attributes: into_pairs(elements), value: Box::new(value) }
            }
        }
    }
}

fn into_pairs(elements: Vec<Value>) -> Vec<(Value, Value)> {
    let mut pairs = Vec::with_capacity(elements.len() / 2);
    let mut elements = elements.into_iter();
    while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// Parses the length in a header.
fn read_length(head: &[u8]) -> Result<usize, ReplyError> {
    if head == b"?" {
        return Err(ReplyError::Streamed);
    }
    parse_i64(head).and_then(|length| usize::try_from(length).ok()).ok_or(ReplyError::Length)
}

/// Parses an aggregate's kind and number of elements, or the null array of RESP2.
fn read_head(kind: u8, line: &[u8]) -> Result<Item, ReplyError> {
    if kind == b'*' && line == b"-1" {
        return Ok(Item::Value(Value::NullArray));
    }
    let length = read_length(line)?;
    let twice = length.checked_mul(2).ok_or(ReplyError::Length)?;
    Ok(match kind {
        b'~' => Item::Head(Aggregate::Set, length),
        b'>' => Item::Head(Aggregate::Push, length),
        b'%' => Item::Head(Aggregate::Map, twice),
        b'|' => Item::Head(Aggregate::Attribute, twice.saturating_add(1)),
        _ => Item::Head(Aggregate::Array, length),
    })
}

/// Parses a value that fits in one line.
fn read_line_value(kind: u8, line: &[u8]) -> Result<Value, ReplyError> {
    let value = match kind {
        b'+' => Some(Value::Simple(line.to_vec())),
        b'-' => Some(Value::Error(line.to_vec())),
        b':' => parse_i64(line.strip_prefix(b"+").unwrap_or(line)).map(Value::Int),
        b',' => Double::parse(line).map(Value::Double),
        b'(' => is_big_number(line).then(|| Value::BigNumber(line.to_vec())),
        b'#' if line == b"t" => Some(Value::Bool(true)),
        b'#' if line == b"f" => Some(Value::Bool(false)),
        b'_' if line.is_empty() => Some(Value::Null),
        _ => None,
    };
    value.ok_or(ReplyError::Content(kind))
}

fn is_big_number(line: &[u8]) -> bool {
    let (_, digits) = crate::num::split_sign(line);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// Creates the value of a type with an announced length.
fn bulk_value(kind: u8, text: &[u8]) -> Result<Value, ReplyError> {
    match (kind, text) {
        (b'$', _) => Ok(Value::Bulk(text.to_vec())),
        (b'!', _) => Ok(Value::BulkError(text.to_vec())),
        (_, [a, b, c, b':', text @ ..]) => Ok(Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }),
        _ => Err(ReplyError::Content(kind)),
    }
}

#[cfg(test)]
mod tests;
