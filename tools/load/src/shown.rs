//! Formats commands and lines for error reports: in redis-cli's quoting, on one line, and not too long.

use crate::limits::SHOWN_BYTES;

/// Returns a request's arguments. This program has written or checked the request.
pub fn arguments(request: &[u8]) -> Vec<&[u8]> {
    let mut args = Vec::new();
    let mut rest = after_line(request);
    while let Some(length) = rest.strip_prefix(b"$").and_then(leading_number) {
        let content = after_line(rest);
        let Some((arg, after)) = content.split_at_checked(length) else { break };
        args.push(arg);
        rest = after.get(2..).unwrap_or_default();
    }
    args
}

fn after_line(bytes: &[u8]) -> &[u8] {
    memchr::memchr(b'\n', bytes).map_or(b"", |end| &bytes[end + 1..])
}

fn leading_number(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}

/// Formats a request in redis-cli's syntax.
pub fn command(request: &[u8]) -> String {
    let mut shown = String::new();
    for arg in arguments(request) {
        if !shown.is_empty() {
            shown.push(' ');
        }
        let room = SHOWN_BYTES.saturating_sub(shown.len());
        if room == 0 {
            shown.push('…');
            break;
        }
        shown.push_str(&argument(arg, room));
    }
    shown
}

/// Formats one argument in redis-cli's syntax, at most `room` bytes of it.
fn argument(arg: &[u8], room: usize) -> String {
    let plain = !arg.is_empty() && arg.iter().all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(byte));
    let (start, more) = (&arg[..arg.len().min(room)], arg.len().saturating_sub(room));
    // Text in other scripts is shown unchanged; control characters and invalid UTF-8 are escaped.
    let inside = match std::str::from_utf8(start) {
        _ if plain => String::from_utf8_lossy(start).into_owned(),
        Ok(text) if !text.chars().any(char::is_control) => text.replace('\\', "\\\\").replace('"', "\\\""),
        _ => start.escape_ascii().to_string().replace("\\'", "'"),
    };
    let shortened = if more > 0 { format!("… ({more} more bytes)") } else { String::new() };
    if plain { inside + &shortened } else { format!("\"{inside}\"{shortened}") }
}

/// Formats a line of an input. Control characters are escaped.
pub fn line(text: &[u8]) -> String {
    let start = &text[..text.len().min(SHOWN_BYTES)];
    let shown: String = String::from_utf8_lossy(start)
        .chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect();
    if text.len() > start.len() { shown + "…" } else { shown }
}

/// Formats an error's text on one line.
pub fn error(text: &[u8]) -> String {
    line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&[u8]], expected: &str) {
        let mut request = Vec::new();
        resp::parse::encode_request(args, &mut request);
        assert_eq!(arguments(&request), args);
        assert_eq!(command(&request), expected);
    }

    #[test]
    fn a_command_is_shown_in_redis_cli_syntax() {
        check(&[b"SET", b"k", b"v"], "SET k v");
        check(&[b"SET", b"", b"a b"], "SET \"\" \"a b\"");
        check(&[b"SET", b"a\"b", "Amélie".as_bytes()], "SET \"a\\\"b\" \"Amélie\"");
        check(&[b"SET", b"a\r\nb\0", b"\xff'"], "SET \"a\\r\\nb\\x00\" \"\\xff'\"");
    }

    #[test]
    fn long_commands_are_shortened() {
        let long = vec![b'x'; 5_000];
        let mut request = Vec::new();
        resp::parse::encode_request(&[&b"SET"[..], b"k", &long], &mut request);
        let shown = command(&request);
        assert!(shown.starts_with("SET k xxx") && shown.ends_with("x… (4006 more bytes)"), "{shown}");
        let mut request = Vec::new();
        resp::parse::encode_request(&[&b"a"[..]; 5_000], &mut request);
        assert!(command(&request).ends_with("a …") && command(&request).len() < SHOWN_BYTES + 10);
        assert_eq!(line(b"a\tb\x1b"), "a\\tb\\u{1b}");
        assert_eq!(line(&long).len(), SHOWN_BYTES + "…".len());
    }
}
