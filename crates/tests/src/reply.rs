//! Replies as bytes and as trees, in RESP2 and RESP3. The tree keeps every byte: encoding a parsed reply gives the same
//! bytes.

use std::fmt;

/// One reply. `tag` is the byte that begins it on the wire.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A reply of one line: `+ - : , # ( _`, and the RESP2 nulls `$-1` and `*-1`.
    Line(u8, Vec<u8>),
    /// A reply with a length in bytes: `$ = !`.
    Blob(u8, Vec<u8>),
    /// A reply with a length in elements: `* ~ > % |`. A map's keys and values alternate.
    Many(u8, Vec<Reply>),
}

/// Deepest nesting: far deeper than any command's reply, and far from a stack overflow.
const DEPTH_MAX: usize = 64;

impl Reply {
    /// Parses the first reply in `bytes`, and returns it with its length; `None` while it is incomplete; an error if
    /// the bytes are no reply.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
        parse_at(bytes, 0, DEPTH_MAX)
    }

    /// The reply's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Line(tag, text) => {
                out.push(*tag);
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Blob(tag, data) => {
                out.push(*tag);
                out.extend_from_slice(format!("{}\r\n", data.len()).as_bytes());
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Many(tag, items) => {
                out.push(*tag);
                out.extend_from_slice(format!("{}\r\n", items.len() / per_element(*tag)).as_bytes());
                items.iter().for_each(|item| item.encode_into(out));
            }
        }
    }

    /// The first byte of the reply.
    pub fn tag(&self) -> u8 {
        match self {
            Reply::Line(tag, _) | Reply::Blob(tag, _) | Reply::Many(tag, _) => *tag,
        }
    }

    /// True for `-` and `!`.
    pub fn is_error(&self) -> bool {
        matches!(self.tag(), b'-' | b'!')
    }

    /// True for the null of either protocol.
    pub fn is_null(&self) -> bool {
        matches!(self, Reply::Line(b'_', _) | Reply::Line(b'$' | b'*', _))
    }

    /// The text of a line or the data of a blob; empty for an aggregate.
    pub fn text(&self) -> &[u8] {
        match self {
            Reply::Line(_, text) | Reply::Blob(_, text) => text,
            Reply::Many(..) => b"",
        }
    }

    /// The elements of an aggregate; none for anything else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Many(_, items) => items,
            _ => &[],
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Line(b':', text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The reply's bytes, escaped like in `redis-cli`.
    pub fn escaped(&self) -> String {
        crate::bytes::escape(&self.encode())
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.escaped())
    }
}

/// Elements per counted unit: a map and an attribute count pairs.
fn per_element(tag: u8) -> usize {
    if matches!(tag, b'%' | b'|') { 2 } else { 1 }
}

fn parse_at(bytes: &[u8], at: usize, depth: usize) -> Result<Option<(Reply, usize)>, String> {
    let Some(&tag) = bytes.get(at) else { return Ok(None) };
    if !b"+-:,#(_$=!*~>%|".contains(&tag) || depth == 0 {
        return Err(format!("not a reply: \"{}\"", crate::bytes::escape(&bytes[at..])));
    }
    let Some(end) = bytes[at..].windows(2).position(|w| w == b"\r\n").map(|i| at + i) else { return Ok(None) };
    let line = &bytes[at + 1..end];
    let next = end + 2;
    match tag {
        b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|' if line != b"-1" => {
            let text = std::str::from_utf8(line).unwrap_or("");
            let len: usize = text.parse().map_err(|_| format!("not a length: \"{}\"", crate::bytes::escape(line)))?;
            if matches!(tag, b'$' | b'=' | b'!') {
                return parse_blob(bytes, tag, next, len);
            }
            parse_many(bytes, tag, next, len * per_element(tag), depth)
        }
        _ => Ok(Some((Reply::Line(tag, line.to_vec()), next))),
    }
}

fn parse_blob(bytes: &[u8], tag: u8, start: usize, len: usize) -> Result<Option<(Reply, usize)>, String> {
    let Some(data) = bytes.get(start..start + len + 2) else { return Ok(None) };
    if &data[len..] != b"\r\n" {
        return Err(format!("no line end after a blob of {len} bytes: \"{}\"", crate::bytes::escape(data)));
    }
    Ok(Some((Reply::Blob(tag, data[..len].to_vec()), start + len + 2)))
}

fn parse_many(bytes: &[u8], tag: u8, start: usize, n: usize, depth: usize) -> Result<Option<(Reply, usize)>, String> {
    let mut items = Vec::new();
    let mut at = start;
    for _ in 0..n {
        let Some((item, next)) = parse_at(bytes, at, depth - 1)? else { return Ok(None) };
        items.push(item);
        at = next;
    }
    Ok(Some((Reply::Many(tag, items), at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wire: &[u8]) {
        for cut in 0..wire.len() {
            assert!(matches!(Reply::parse(&wire[..cut]), Ok(None)), "complete at {cut}");
        }
        let (reply, len) = Reply::parse(wire).unwrap().unwrap();
        assert_eq!(len, wire.len());
        assert_eq!(reply.encode(), wire);
    }

    #[test]
    fn a_parsed_reply_encodes_to_the_same_bytes() {
        check(b"+OK\r\n");
        check(b"$-1\r\n");
        check(b"*-1\r\n");
        check(b"$0\r\n\r\n");
        check(b"$4\r\n\r\n\r\n\r\n");
        check(b"*2\r\n:1\r\n*0\r\n");
        check(b"%1\r\n+a\r\n~2\r\n,1.5\r\n_\r\n");
        check(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n=5\r\ntxt:x\r\n");
    }

    #[test]
    fn invalid_replies_are_errors() {
        for wire in [&b"x"[..], b"$x\r\n", b"$1\r\nabc\r\n"] {
            assert!(Reply::parse(wire).is_err(), "{wire:?}");
        }
    }
}
