//! Access to the parts of replies. Maps of RESP3 are arrays of names and values in RESP2.

use resp::parse::Value;

pub(super) fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(elements) | Value::Set(elements) => Some(elements),
        _ => None,
    }
}

pub(super) fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(value.bytes()?).ok()
}

/// Returns the value with this name.
pub(super) fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == Some(name)).map(|(_, value)| value),
        Value::Array(elements) => {
            elements.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
        }
        _ => None,
    }
}
