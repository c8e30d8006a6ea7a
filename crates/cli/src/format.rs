//! Replies as text, in redis-cli's four forms.
//!
//! Source of the forms: observation of redis-cli 7.0.15, which `crates/tests/tests/cli.rs` compares with.

mod json;

use crate::quote::push_quoted;
use resp::num::{write_i64, write_u64};
use resp::parse::Value;

/// A form that replies are printed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people: types are told apart, strings are quoted, elements are numbered.
    Standard,
    /// For pipes: nothing but the bytes.
    Raw,
    /// One line of comma-separated values.
    Csv,
    /// One line of JSON.
    Json {
        /// Strings are quoted as in [`Form::Standard`] inside the JSON string, so that the output is ASCII.
        quoted: bool,
    },
}

/// How replies are printed.
#[derive(Clone, Debug)]
pub struct Style {
    /// The form of a whole reply.
    pub form: Form,
    /// Between the elements of a reply in [`Form::Raw`].
    pub element_delimiter: Vec<u8>,
    /// After each reply in [`Form::Raw`].
    pub reply_delimiter: Vec<u8>,
}

impl Style {
    /// Appends a reply as it is printed, its line end included.
    ///
    /// `text` says that the reply is a report for people, such as INFO's, which is printed as it is in every form: it
    /// ends its last line itself.
    pub fn push_reply(&self, reply: &Value, text: bool, out: &mut Vec<u8>) {
        match self.form {
            _ if text => self.push_raw(reply, out),
            Form::Standard => push_standard(reply, b"", out),
            Form::Raw => {
                self.push_raw(reply, out);
                out.extend_from_slice(&self.reply_delimiter);
            }
            Form::Csv => {
                push_csv(reply, out);
                out.push(b'\n');
            }
            Form::Json { quoted } => {
                json::push_json(reply, quoted, out);
                out.push(b'\n');
            }
        }
    }

    /// Appends a message that answers no request: keys that a tracking client must forget have a form of their own.
    pub fn push_message(&self, message: &Value, out: &mut Vec<u8>) {
        match invalidated_keys(message) {
            Some(keys) if self.form == Form::Standard => push_invalidated(keys, out),
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

/// Appends a reply for people. `indent` stands before every line but the first.
fn push_standard(reply: &Value, indent: &[u8], out: &mut Vec<u8>) {
    match reply {
        Value::Array(elements) => return push_numbered(elements, b')', b"(empty array)", indent, out),
        Value::Set(elements) => return push_numbered(elements, b'~', b"(empty set)", indent, out),
        Value::Push(elements) => return push_numbered(elements, b')', b"(empty push)", indent, out),
        Value::Map(pairs) => return push_pairs(pairs, indent, out),
        Value::Attribute { value, .. } => return push_standard(value, indent, out),
        Value::Error(text) | Value::BulkError(text) => push_all(&[b"(error) ", text], out),
        Value::Simple(text) | Value::Verbatim { text, .. } => out.extend_from_slice(text),
        Value::Bulk(text) => push_quoted(text, out),
        Value::Int(value) => {
            out.extend_from_slice(b"(integer) ");
            write_i64(out, *value);
        }
        Value::BigNumber(digits) => push_all(&[b"(integer) ", digits], out),
        Value::Double(double) => push_all(&[b"(double) ", double.text()], out),
        Value::Bool(value) => out.extend_from_slice(bool_text(*value)),
        Value::NullBulk | Value::NullArray | Value::Null => out.extend_from_slice(b"(nil)"),
    }
    out.push(b'\n');
}

fn push_all(parts: &[&[u8]], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends elements, each behind its number; what is inside an element is indented by the number's width.
fn push_numbered(elements: &[Value], mark: u8, empty: &[u8], indent: &[u8], out: &mut Vec<u8>) {
    if elements.is_empty() {
        return push_all(&[empty, b"\n"], out);
    }
    let (width, inner) = indentation(elements.len(), indent);
    for (index, element) in elements.iter().enumerate() {
        push_number(index, width, mark, indent, out);
        push_standard(element, &inner, out);
    }
}

fn push_pairs(pairs: &[(Value, Value)], indent: &[u8], out: &mut Vec<u8>) {
    if pairs.is_empty() {
        return out.extend_from_slice(b"(empty hash)\n");
    }
    let (width, inner) = indentation(pairs.len(), indent);
    for (index, (key, value)) in pairs.iter().enumerate() {
        push_number(index, width, b'#', indent, out);
        push_standard(key, &inner, out);
        out.pop();
        out.extend_from_slice(b" => ");
        if has_several_lines(value) {
            push_all(&[b"\n", &inner], out);
        }
        push_standard(value, &inner, out);
    }
}

/// Whether there is more than one element, or pair, on the way down.
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

/// The width of the numbers up to `count`, and the indentation of what stands behind them.
fn indentation(count: usize, indent: &[u8]) -> (usize, Vec<u8>) {
    let width = count.ilog10() as usize + 1;
    let mut inner = indent.to_vec();
    inner.resize(indent.len() + width + 2, b' ');
    (width, inner)
}

fn push_number(index: usize, width: usize, mark: u8, indent: &[u8], out: &mut Vec<u8>) {
    if index > 0 {
        out.extend_from_slice(indent);
    }
    let number = index + 1;
    out.resize(out.len() + width - (number.ilog10() as usize + 1), b' ');
    write_u64(out, number as u64);
    out.extend_from_slice(&[mark, b' ']);
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

/// The keys of a message that a tracking client must forget them, if it is one with a list of keys.
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
