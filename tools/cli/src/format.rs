//! Formats replies as text, in redis-cli's four formats.
//!
//! Source: observed output of redis-cli 7.0.15. `crates/tests/tests/tools/cli.rs` compares with it.

mod json;

use crate::quote::push_quoted;
use resp::num::{write_i64, write_u64};
use resp::parse::Value;

/// An output format for replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFormat {
    /// For people: types are distinguished, strings are quoted, and elements are numbered.
    Standard,
    /// For pipes: the bytes alone.
    Raw,
    /// One line of comma-separated values.
    Csv,
    /// One line of JSON.
    Json {
        /// Strings are quoted as in [`ReplyFormat::Standard`] inside the JSON string. The output is ASCII.
        quoted: bool,
    },
}

/// Options for printing replies.
#[derive(Clone, Debug)]
pub struct Style {
    /// Format of a whole reply.
    pub form: ReplyFormat,
    /// True if colours distinguish types in [`ReplyFormat::Standard`], and words in help and hints.
    pub colours: bool,
    /// Delimiter between the elements of a reply in [`ReplyFormat::Raw`].
    pub element_delimiter: Vec<u8>,
    /// Delimiter after each reply in [`ReplyFormat::Raw`].
    pub reply_delimiter: Vec<u8>,
}

impl Style {
    /// Returns the style for a program that reads the output: without types and colours, as in a pipe.
    #[must_use]
    pub fn for_programs(&self) -> Style {
        let form = if self.form == ReplyFormat::Standard { ReplyFormat::Raw } else { self.form };
        Style { form, colours: false, ..self.clone() }
    }

    /// Appends a reply, including its line end.
    ///
    /// `text` marks a report for people, for example INFO's. It is printed verbatim in every format, and contains its
    /// own line ends.
    pub fn push_reply(&self, reply: &Value, text: bool, out: &mut Vec<u8>) {
        match self.form {
            _ if text => self.push_raw(reply, out),
            ReplyFormat::Standard => Page { colours: self.colours, out }.push(reply, b""),
            ReplyFormat::Raw => {
                self.push_raw(reply, out);
                out.extend_from_slice(&self.reply_delimiter);
            }
            ReplyFormat::Csv => {
                push_csv(reply, out);
                out.push(b'\n');
            }
            ReplyFormat::Json { quoted } => {
                json::push_json(reply, quoted, out);
                out.push(b'\n');
            }
        }
    }

    /// Appends a message that answers no request. Invalidation messages have a format of their own.
    pub fn push_message(&self, message: &Value, out: &mut Vec<u8>) {
        match invalidated_keys(message) {
            Some(keys) if self.form == ReplyFormat::Standard => push_invalidated(keys, out),
            _ => self.push_reply(message, false, out),
        }
    }

    fn push_raw(&self, reply: &Value, out: &mut Vec<u8>) {
        match reply {
            Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => out.extend_from_slice(text),
            Value::BigNumber(digits) => out.extend_from_slice(digits),
            Value::Error(text) | Value::BulkError(text) => {
                out.extend_from_slice(text);
                out.push(b'\n');
            }
            Value::Int(value) => write_i64(out, *value),
            Value::Double(double) => out.extend_from_slice(double.text()),
            Value::Bool(value) => out.extend_from_slice(bool_text(*value)),
            Value::NullBulk | Value::NullArray | Value::Null => {}
            Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.push_element_delimiter(index, out);
                    self.push_raw(element, out);
                }
            }
            Value::Map(pairs) => {
                for (index, (key, value)) in pairs.iter().enumerate() {
                    self.push_element_delimiter(index, out);
                    self.push_raw(key, out);
                    out.push(b' ');
                    self.push_raw(value, out);
                }
            }
            Value::Attribute { value, .. } => self.push_raw(value, out),
        }
    }

    fn push_element_delimiter(&self, index: usize, out: &mut Vec<u8>) {
        if index > 0 {
            out.extend_from_slice(&self.element_delimiter);
        }
    }
}

fn bool_text(value: bool) -> &'static [u8] {
    if value { b"(true)" } else { b"(false)" }
}

fn push_all(parts: &[&[u8]], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Terminal colours (ECMA-48, SGR) by type of reply. They are legible on light and dark backgrounds.
mod colour {
    pub const RESET: &[u8] = b"\x1b[0m";
    pub const ERROR: &[u8] = b"\x1b[31m";
    pub const STRING: &[u8] = b"\x1b[32m";
    pub const STATUS: &[u8] = b"\x1b[1m";
    pub const NUMBER: &[u8] = b"\x1b[36m";
    pub const NOTHING: &[u8] = b"\x1b[35m";
    /// Text that the program adds: element numbers.
    pub const MARK: &[u8] = b"\x1b[90m";
}

/// Formats replies for people, one below the other.
struct Page<'o> {
    colours: bool,
    out: &'o mut Vec<u8>,
}

impl Page<'_> {
    /// Appends the output of `write` in a colour.
    fn paint(&mut self, colour: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        if !self.colours {
            return write(self.out);
        }
        self.out.extend_from_slice(colour);
        write(self.out);
        self.out.extend_from_slice(colour::RESET);
    }

    /// Appends a reply. `indent` precedes every line except the first.
    fn push(&mut self, reply: &Value, indent: &[u8]) {
        match reply {
            Value::Array(elements) => return self.push_numbered(elements, b')', b"(empty array)", indent),
            Value::Set(elements) => return self.push_numbered(elements, b'~', b"(empty set)", indent),
            Value::Push(elements) => return self.push_numbered(elements, b')', b"(empty push)", indent),
            Value::Map(pairs) => return self.push_pairs(pairs, indent),
            Value::Attribute { value, .. } => return self.push(value, indent),
            single => self.push_single(single),
        }
        self.out.push(b'\n');
    }

    fn push_single(&mut self, reply: &Value) {
        match reply {
            Value::Error(text) | Value::BulkError(text) => {
                self.paint(colour::ERROR, |out| push_all(&[b"(error) ", text], out));
            }
            Value::Simple(text) => self.paint(colour::STATUS, |out| out.extend_from_slice(text)),
            Value::Verbatim { text, .. } => self.out.extend_from_slice(text),
            Value::Bulk(text) => self.paint(colour::STRING, |out| push_quoted(text, out)),
            Value::Int(value) => self.paint(colour::NUMBER, |out| {
                out.extend_from_slice(b"(integer) ");
                write_i64(out, *value);
            }),
            Value::BigNumber(digits) => self.paint(colour::NUMBER, |out| push_all(&[b"(integer) ", digits], out)),
            Value::Double(double) => self.paint(colour::NUMBER, |out| push_all(&[b"(double) ", double.text()], out)),
            Value::Bool(value) => self.paint(colour::NUMBER, |out| out.extend_from_slice(bool_text(*value))),
            _ => self.paint(colour::NOTHING, |out| out.extend_from_slice(b"(nil)")),
        }
    }

    fn push_empty(&mut self, text: &[u8]) {
        self.paint(colour::NOTHING, |out| out.extend_from_slice(text));
        self.out.push(b'\n');
    }

    /// Appends numbered elements. The contents of an element are indented by the width of its number.
    fn push_numbered(&mut self, elements: &[Value], mark: u8, empty: &[u8], indent: &[u8]) {
        if elements.is_empty() {
            return self.push_empty(empty);
        }
        let (width, inner) = indentation(elements.len(), indent);
        for (index, element) in elements.iter().enumerate() {
            self.push_number(index, width, mark, indent);
            self.push(element, &inner);
        }
    }

    fn push_pairs(&mut self, pairs: &[(Value, Value)], indent: &[u8]) {
        if pairs.is_empty() {
            return self.push_empty(b"(empty hash)");
        }
        let (width, inner) = indentation(pairs.len(), indent);
        for (index, (key, value)) in pairs.iter().enumerate() {
            self.push_number(index, width, b'#', indent);
            self.push(key, &inner);
            self.out.pop();
            self.out.extend_from_slice(b" => ");
            if has_several_lines(value) {
                push_all(&[b"\n", &inner], self.out);
            }
            self.push(value, &inner);
        }
    }

    fn push_number(&mut self, index: usize, width: usize, mark: u8, indent: &[u8]) {
        if index > 0 {
            self.out.extend_from_slice(indent);
        }
        let number = index + 1;
        self.out.resize(self.out.len() + width - (number.ilog10() as usize + 1), b' ');
        self.paint(colour::MARK, |out| {
            write_u64(out, number as u64);
            out.push(mark);
        });
        self.out.push(b' ');
    }
}

/// Returns true if the value, or any value inside it, has more than one element or pair.
fn has_several_lines(value: &Value) -> bool {
    match value {
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => match elements.as_slice() {
            [element] => has_several_lines(element),
            elements => !elements.is_empty(),
        },
        Value::Map(pairs) => match pairs.as_slice() {
            [(_, value)] => has_several_lines(value),
            pairs => !pairs.is_empty(),
        },
        Value::Attribute { value, .. } => has_several_lines(value),
        _ => false,
    }
}

/// Returns the width of the numbers up to `count`, and the indentation of the elements.
fn indentation(count: usize, indent: &[u8]) -> (usize, Vec<u8>) {
    let width = count.ilog10() as usize + 1;
    let mut inner = indent.to_vec();
    inner.resize(indent.len() + width + 2, b' ');
    (width, inner)
}

fn push_csv(reply: &Value, out: &mut Vec<u8>) {
    match reply {
        Value::Error(text) | Value::BulkError(text) => {
            out.extend_from_slice(b"ERROR,");
            push_quoted(text, out);
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => push_quoted(text, out),
        Value::BigNumber(digits) => out.extend_from_slice(digits),
        Value::Int(value) => write_i64(out, *value),
        Value::Double(double) => out.extend_from_slice(double.text()),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::NullBulk | Value::NullArray | Value::Null => out.extend_from_slice(b"NULL"),
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => push_csv_all(elements.iter(), out),
        Value::Map(pairs) => push_csv_all(pairs.iter().flat_map(|(key, value)| [key, value]), out),
        Value::Attribute { value, .. } => push_csv(value, out),
    }
}

fn push_csv_all<'a>(values: impl Iterator<Item = &'a Value>, out: &mut Vec<u8>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_csv(value, out);
    }
}

/// Returns the keys of an invalidation message, if it has a list of keys.
fn invalidated_keys(message: &Value) -> Option<&[Value]> {
    match message {
        Value::Push(elements) => match elements.as_slice() {
            [kind, Value::Array(keys)] if kind.bytes() == Some(b"invalidate") => Some(keys),
            _ => None,
        },
        _ => None,
    }
}

fn push_invalidated(keys: &[Value], out: &mut Vec<u8>) {
    out.extend_from_slice(b"-> invalidate: ");
    for (index, key) in keys.iter().enumerate() {
        let separator: &[u8] = if index > 0 { b", " } else { b"" };
        push_all(&[separator, b"'", key.bytes().unwrap_or_default(), b"'"], out);
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests;
