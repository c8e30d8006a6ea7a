//! redis-cli's quoting: bytes as quoted text, and back.

/// Appends `bytes` between double quotes, as printable ASCII. This is the inverse of [`unquote`].
pub fn push_quoted(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => {
                out.extend_from_slice(b"\\x");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.push(b'"');
}

/// Returns the output of [`push_quoted`].
pub fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    push_quoted(bytes, &mut out);
    out
}

/// Parses `text` as one argument by the rules of a command line. Returns `None` if its quotes don't balance or it isn't
/// exactly one argument. An empty text is an empty argument.
pub fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut args = resp::splitargs::split_args(text).ok()?;
    if args.len() == 1 { args.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_undone_by_unquoting() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unquote(&quoted(&all)), Some(all));
        assert_eq!(quoted(b"a\"\\\x00\xff\x7f\x07\x08\n\r\t "), br#""a\"\\\x00\xff\x7f\a\b\n\r\t ""#);
    }

    #[test]
    fn only_one_argument_is_taken() {
        assert_eq!(unquote(b"plain"), Some(b"plain".to_vec()));
        assert_eq!(unquote(b""), Some(Vec::new()));
        assert_eq!(unquote(b"'a b'"), Some(b"a b".to_vec()));
        assert_eq!(unquote(b"\"abc"), None);
        assert_eq!(unquote(b"a b"), None);
        assert_eq!(unquote(b" "), None);
    }
}
