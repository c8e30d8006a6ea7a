//! Replies as JSON, in the format of Upstash's REST API.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use resp::parse::Value;

/// Encoding of strings in replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strings {
    /// Text; invalid UTF-8 is replaced by U+FFFD.
    Text,
    /// Base64, except for errors and the status OK.
    Base64,
}

/// Appends the reply of one command: `{"result":...}` or `{"error":"..."}`.
pub fn reply(value: &Value, strings: Strings, out: &mut Vec<u8>) {
    match value {
        Value::Error(text) | Value::BulkError(text) => error(text, out),
        Value::Simple(text) if text == b"OK" => out.extend_from_slice(br#"{"result":"OK"}"#),
        value => {
            out.extend_from_slice(br#"{"result":"#);
            result(value, strings, out);
            out.push(b'}');
        }
    }
}

/// Appends `{"error":"..."}`.
pub fn error(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"error":"#);
    string(text, Strings::Text, out);
    out.push(b'}');
}

/// Appends the replies of several commands.
pub fn replies(values: &[Value], strings: Strings, out: &mut Vec<u8>) {
    list(values.iter(), out, |value, out| reply(value, strings, out));
}

/// Appends a text.
pub fn text(text: &str, out: &mut Vec<u8>) {
    string(text.as_bytes(), Strings::Text, out);
}

fn list<T>(items: impl Iterator<Item = T>, out: &mut Vec<u8>, mut write: impl FnMut(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

fn result(value: &Value, strings: Strings, out: &mut Vec<u8>) {
    match value {
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } | Value::BigNumber(text) => {
            string(text, strings, out);
        }
        // JSON has no other form for an error within a reply, for example from an EXEC in a script's table.
        Value::Error(text) | Value::BulkError(text) => error(text, out),
        Value::Int(number) => resp::num::write_i64(out, *number),
        Value::Double(double) => string(double.text(), strings, out),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::NullBulk | Value::NullArray | Value::Null => out.extend_from_slice(b"null"),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            list(values.iter(), out, |value, out| result(value, strings, out));
        }
        Value::Map(pairs) => {
            let flat = pairs.iter().flat_map(|(key, value)| [key, value]);
            list(flat, out, |value, out| result(value, strings, out));
        }
        Value::Attribute { value, .. } => result(value, strings, out),
    }
}

fn string(text: &[u8], strings: Strings, out: &mut Vec<u8>) {
    match strings {
        Strings::Base64 => {
            out.push(b'"');
            out.extend_from_slice(BASE64_STANDARD.encode(text).as_bytes());
            out.push(b'"');
        }
        // Writing to memory can't fail.
        Strings::Text => drop(serde_json::to_writer(out, &String::from_utf8_lossy(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &Value, text: &str, base64: &str) {
        for (strings, expected) in [(Strings::Text, text), (Strings::Base64, base64)] {
            let mut out = Vec::new();
            reply(value, strings, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn replies_have_the_format_of_upstash() {
        let bulk = |text: &[u8]| Value::Bulk(text.to_vec());
        check(&Value::Simple(b"OK".to_vec()), r#"{"result":"OK"}"#, r#"{"result":"OK"}"#);
        // A value "OK" is not a status.
        check(&bulk(b"OK"), r#"{"result":"OK"}"#, r#"{"result":"T0s="}"#);
        check(&Value::Simple(b"PONG".to_vec()), r#"{"result":"PONG"}"#, r#"{"result":"UE9ORw=="}"#);
        check(&Value::NullBulk, r#"{"result":null}"#, r#"{"result":null}"#);
        check(&Value::Int(-3), r#"{"result":-3}"#, r#"{"result":-3}"#);
        check(&bulk(b"\xff\"\n"), "{\"result\":\"\u{fffd}\\\"\\n\"}", r#"{"result":"/yIK"}"#);
        check(&Value::Error(b"ERR no".to_vec()), r#"{"error":"ERR no"}"#, r#"{"error":"ERR no"}"#);
        let nested = Value::Array(vec![bulk(b"a"), Value::Array(vec![Value::Int(1), Value::NullBulk]), bulk(b"")]);
        check(&nested, r#"{"result":["a",[1,null],""]}"#, r#"{"result":["YQ==",[1,null],""]}"#);
    }

    #[test]
    fn a_pipeline_is_an_array() {
        let mut out = Vec::new();
        replies(&[Value::Int(1), Value::Error(b"ERR x".to_vec())], Strings::Text, &mut out);
        assert_eq!(out, br#"[{"result":1},{"error":"ERR x"}]"#);
    }
}
