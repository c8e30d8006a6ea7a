//! Formats replies as JSON, like `redis-cli --json`. An error becomes `error:"..."`. JSON parsers reject this, so a
//! script can't mistake an error for data.

use crate::quote::quoted;
use resp::num::write_i64;
use resp::parse::Value;

/// Appends a reply as JSON. With `ascii`, strings are first quoted as on a terminal, so that no byte is lost.
pub(super) fn push_json(reply: &Value, ascii: bool, out: &mut Vec<u8>) {
    match reply {
        Value::Error(text) | Value::BulkError(text) => {
            out.extend_from_slice(b"error:");
            push_string(text, ascii, out);
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => push_string(text, ascii, out),
        Value::BigNumber(digits) => out.extend_from_slice(digits),
        Value::Int(value) => write_i64(out, *value),
        Value::Double(double) => out.extend_from_slice(double.text()),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::NullBulk | Value::NullArray | Value::Null => out.extend_from_slice(b"null"),
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => push_array(elements, ascii, out),
        Value::Map(pairs) => push_object(pairs, ascii, out),
        Value::Attribute { value, .. } => push_json(value, ascii, out),
    }
}

fn push_array(elements: &[Value], ascii: bool, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_json(element, ascii, out);
    }
    out.push(b']');
}

fn push_object(pairs: &[(Value, Value)], ascii: bool, out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_key(key, ascii, out);
        out.push(b':');
        push_json(value, ascii, out);
    }
    out.push(b'}');
}

/// Appends the key of an object. JSON needs a string, so any other value is formatted as JSON and put into a string.
fn push_key(key: &Value, ascii: bool, out: &mut Vec<u8>) {
    if key.bytes().is_some() || key.error().is_some() {
        return push_json(key, ascii, out);
    }
    let mut text = Vec::new();
    push_json(key, ascii, &mut text);
    push_escaped(&text, out);
}

fn push_string(text: &[u8], ascii: bool, out: &mut Vec<u8>) {
    if !ascii {
        return push_escaped(text, out);
    }
    let quoted = quoted(text);
    let inside = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    push_escaped(inside, out);
}

/// Appends a JSON string. Invalid UTF-8 passes unchanged, so that no byte is lost.
fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..b' ' => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
