//! Replies as a client parses them.

use resp::num::parse_i64;

/// A reply in RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimReply {
    /// A status line.
    Line(String),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// A bulk string, or null.
    Text(Option<String>),
    /// An array.
    Several(Vec<SimReply>),
}

impl SimReply {
    /// Returns the items of an array; no items for other replies.
    #[must_use]
    pub fn items(&self) -> &[SimReply] {
        if let SimReply::Several(items) = self { items } else { &[] }
    }

    /// Returns the text, if there is one.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            SimReply::Line(text) | SimReply::Error(text) | SimReply::Text(Some(text)) => text,
            _ => "",
        }
    }

    /// Returns the number, or the number in the text; 0 if there is none.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            SimReply::Number(number) => *number,
            other => parse_i64(other.text().as_bytes()).unwrap_or_default(),
        }
    }
}

/// Parses the first reply. Returns the reply and its length, or None if it is incomplete.
#[must_use]
pub fn parse_reply(bytes: &[u8]) -> Option<(SimReply, usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\n')? + 1;
    let line = bytes.get(1..end.saturating_sub(2))?;
    let text = || String::from_utf8_lossy(line).into_owned();
    let number = parse_i64(line).unwrap_or_default();
    match bytes.first()? {
        b'+' => Some((SimReply::Line(text()), end)),
        b'-' => Some((SimReply::Error(text()), end)),
        b':' => Some((SimReply::Number(number), end)),
        b'$' => {
            let Ok(len) = usize::try_from(number) else { return Some((SimReply::Text(None), end)) };
            let body = bytes.get(end..end + len)?;
            bytes.get(end + len + 1)?;
            Some((SimReply::Text(Some(String::from_utf8_lossy(body).into_owned())), end + len + 2))
        }
        _ => {
            let (mut items, mut at) = (Vec::new(), end);
            for _ in 0..number {
                let (item, len) = parse_reply(bytes.get(at..)?)?;
                items.push(item);
                at += len;
            }
            Some((SimReply::Several(items), at))
        }
    }
}
