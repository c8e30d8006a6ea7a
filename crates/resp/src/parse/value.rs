//! The values of replies and their encoding.

use super::write_length;
use crate::num::write_i64;
use std::fmt;

/// A reply or a part of one. The different nulls stay distinct, so encoding a value yields the parsed bytes, except for
/// a plus sign before an integer.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// `+OK`
    Simple(Vec<u8>),
    /// `-ERR text`, without the minus.
    Error(Vec<u8>),
    /// `!`: an error that may contain any bytes (RESP3).
    BulkError(Vec<u8>),
    /// `:1`
    Int(i64),
    /// `$`: a string of any bytes.
    Bulk(Vec<u8>),
    /// `$-1`: null string (RESP2).
    NullBulk,
    /// `*-1`: null array (RESP2).
    NullArray,
    /// `_`: null (RESP3).
    Null,
    /// `*`
    Array(Vec<Value>),
    /// `~` (RESP3)
    Set(Vec<Value>),
    /// `%`, in the order of arrival (RESP3).
    Map(Vec<(Value, Value)>),
    /// `>`: a message that isn't a reply to a request (RESP3).
    Push(Vec<Value>),
    /// `,` (RESP3)
    Double(Double),
    /// `#t` and `#f` (RESP3)
    Bool(bool),
    /// `=`: a text and its format (`txt`) (RESP3).
    Verbatim {
        /// Three letters that name the format.
        format: [u8; 3],
        /// The text, without format and colon.
        text: Vec<u8>,
    },
    /// `(`: an integer of any size, in decimal (RESP3).
    BigNumber(Vec<u8>),
    /// `|`: additional information about a value (RESP3). [`Value::without_attribute`] drops it.
    Attribute {
        /// The information.
        attributes: Vec<(Value, Value)>,
        /// The value itself.
        value: Box<Value>,
    },
}

/// A double as it arrived. Doubles are equal if their texts are, so that tests can compare the sent text.
#[derive(Clone)]
pub struct Double {
    value: f64,
    text: Vec<u8>,
}

impl Double {
    /// Parses decimal text, `inf`, `-inf` or `nan`.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(text).ok()?.parse().ok()?;
        Some(Self { value, text: text.to_vec() })
    }

    /// The number.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The text that the server sent.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

impl PartialEq for Double {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Double {}

impl Value {
    /// The text of an error of either kind.
    pub fn error(&self) -> Option<&[u8]> {
        match self.plain() {
            Self::Error(text) | Self::BulkError(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a string of any kind, but not of an error.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self.plain() {
            Self::Simple(text) | Self::Bulk(text) | Self::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }

    /// True for each of the three nulls.
    pub fn is_null(&self) -> bool {
        matches!(self.plain(), Self::Null | Self::NullBulk | Self::NullArray)
    }

    /// Returns the value without its attribute.
    pub fn without_attribute(self) -> Self {
        match self {
            Self::Attribute { value, .. } => value.without_attribute(),
            other => other,
        }
    }

    /// Returns the value without its attribute, by reference.
    fn plain(&self) -> &Self {
        match self {
            Self::Attribute { value, .. } => value.plain(),
            other => other,
        }
    }

    /// Appends the encoded value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => write_line(b'+', text, out),
            Self::Error(text) => write_line(b'-', text, out),
            Self::BulkError(text) => write_bulk(b'!', &[text], out),
            Self::Int(value) => {
                out.push(b':');
                write_i64(out, *value);
                out.extend_from_slice(b"\r\n");
            }
            Self::Bulk(text) => write_bulk(b'$', &[text], out),
            Self::NullBulk => write_line(b'$', b"-1", out),
            Self::NullArray => write_line(b'*', b"-1", out),
            Self::Null => write_line(b'_', b"", out),
            Self::Array(elements) => write_elements(b'*', elements, out),
            Self::Set(elements) => write_elements(b'~', elements, out),
            Self::Push(elements) => write_elements(b'>', elements, out),
            Self::Map(pairs) => write_pairs(b'%', pairs, out),
            Self::Double(double) => write_line(b',', &double.text, out),
            Self::Bool(value) => write_line(b'#', if *value { b"t" } else { b"f" }, out),
            Self::Verbatim { format, text } => write_bulk(b'=', &[format, b":", text], out),
            Self::BigNumber(digits) => write_line(b'(', digits, out),
            Self::Attribute { attributes, value } => {
                write_pairs(b'|', attributes, out);
                value.encode(out);
            }
        }
    }
}

fn write_line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn write_bulk(kind: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    write_length(kind, parts.iter().map(|part| part.len()).sum(), out);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn write_elements(kind: u8, elements: &[Value], out: &mut Vec<u8>) {
    write_length(kind, elements.len(), out);
    elements.iter().for_each(|element| element.encode(out));
}

fn write_pairs(kind: u8, pairs: &[(Value, Value)], out: &mut Vec<u8>) {
    write_length(kind, pairs.len(), out);
    for (key, value) in pairs {
        key.encode(out);
        value.encode(out);
    }
}

/// Shows strings as text instead of lists of numbers in failing tests.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{}", text.escape_ascii()),
            Self::Error(text) => write!(f, "-{}", text.escape_ascii()),
            Self::BulkError(text) => write!(f, "!{}", text.escape_ascii()),
            Self::Int(value) => write!(f, ":{value}"),
            Self::Bulk(text) => write!(f, "\"{}\"", text.escape_ascii()),
            Self::NullBulk => f.write_str("null bulk"),
            Self::NullArray => f.write_str("null array"),
            Self::Null => f.write_str("null"),
            Self::Array(elements) => f.debug_list().entries(elements).finish(),
            Self::Set(elements) => f.debug_set().entries(elements).finish(),
            Self::Push(elements) => f.write_str("> ").and_then(|()| f.debug_list().entries(elements).finish()),
            Self::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(key, value)| (key, value))).finish(),
            Self::Double(double) => double.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Verbatim { format, text } => write!(f, "={}:{}", format.escape_ascii(), text.escape_ascii()),
            Self::BigNumber(digits) => write!(f, "({}", digits.escape_ascii()),
            Self::Attribute { attributes, value } => {
                f.write_str("| ")?;
                f.debug_map().entries(attributes.iter().map(|(key, value)| (key, value))).finish()?;
                write!(f, " {value:?}")
            }
        }
    }
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ",{}", self.text.escape_ascii())
    }
}
