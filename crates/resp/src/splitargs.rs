//! Splits a line into arguments by the quoting rules of inline commands, redis.conf and redis-cli.
//!
//! Blanks separate arguments. Double quotes support the escapes `\n \r \t \b \a \xHH`, and a backslash before any other
//! byte yields that byte; single quotes support only `\'`. A quoted part may begin inside an argument (`a"b c"` is one
//! argument, `ab c`), but a blank or the line's end must follow its closing quote. A NUL byte ends the line, because
//! Redis reads the line as a C string and clients can observe that. This module knows nothing of commands or
//! directives.
//!
//! Source: the "Protocol specification" page (inline commands), the head of the sample redis.conf, and observation.

/// A quote is not closed, or a byte other than a blank follows a closing quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl std::fmt::Display for UnbalancedQuotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unbalanced quotes")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// Returns the arguments of `line`, unquoted; none if it is blank.
///
/// The result never holds more bytes than `line`, so its size is bounded by the line length that the caller accepts.
///
/// # Errors
/// [`UnbalancedQuotes`] if a quote isn't closed, or closes in the middle of an argument.
pub fn split_args(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut args = Vec::new();
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        let (arg, after) = take_arg(rest)?;
        args.push(arg);
        rest = skip_blanks(after);
    }
    Ok(args)
}

/// True for the bytes that C's `isspace` accepts; Rust's `is_ascii_whitespace` omits the vertical tab.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'\x0b'
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|&byte| !is_blank(byte)).unwrap_or(bytes.len());
    bytes.get(start..).unwrap_or_default()
}

/// Parses one argument at the start of `rest`, which isn't blank, and returns it with the remaining bytes.
fn take_arg(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), UnbalancedQuotes> {
    let mut arg = Vec::new();
    loop {
        match rest {
            // Fewer bytes end an argument than separate two: a form feed or vertical tab within an argument belongs to
            // it.
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok((arg, rest)),
            [b'"', tail @ ..] => {
                let after = closed(double_quoted(tail, &mut arg)?)?;
                return Ok((arg, after));
            }
            [b'\'', tail @ ..] => {
                let after = closed(single_quoted(tail, &mut arg)?)?;
                return Ok((arg, after));
            }
            [byte, tail @ ..] => {
                arg.push(*byte);
                rest = tail;
            }
        }
    }
}

/// Checks that only a blank or the end follows a closing quote. `after` begins directly after the quote.
fn closed(after: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match after.first() {
        Some(&byte) if !is_blank(byte) => Err(UnbalancedQuotes),
        _ => Ok(after),
    }
}

/// Appends the contents of `"..."` to `arg`, beginning after the opening quote; returns the bytes after the closing
/// one.
fn double_quoted<'a>(mut rest: &'a [u8], arg: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_digit(*high) << 4 | hex_digit(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        arg.push(byte);
        rest = tail;
    }
}

/// Appends the contents of `'...'` to `arg`, beginning after the opening quote; returns the bytes after the closing
/// one.
fn single_quoted<'a>(mut rest: &'a [u8], arg: &mut Vec<u8>) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        arg.push(byte);
        rest = tail;
    }
}

/// The byte that the escape `\c` yields within double quotes.
fn unescape(c: u8) -> u8 {
    match c {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of an ASCII hexadecimal digit; 0 for any other byte.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &[u8], expected: &[&[u8]]) {
        let found = split_args(line);
        let found = found.as_ref().map(|args| args.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(found, Ok(expected.to_vec()), "{}", line.escape_ascii());
    }

    fn check_unbalanced(line: &[u8]) {
        assert_eq!(split_args(line), Err(UnbalancedQuotes), "{}", line.escape_ascii());
    }

    #[test]
    fn blanks_separate() {
        check(b"", &[]);
        check(b" \t\r\n\x0b\x0c", &[]);
        check(b"PING", &[b"PING"]);
        check(b"  SET key\tvalue \r\n", &[b"SET", b"key", b"value"]);
        check(b"a\x0bb c\x0c", &[b"a\x0bb", b"c\x0c"]);
        check(b"\xff\xfe x", &[b"\xff\xfe", b"x"]);
    }

    #[test]
    fn double_quotes_support_escapes() {
        check(br#"set k "a b""#, &[b"set", b"k", b"a b"]);
        check(br#""\n\r\t\b\a""#, &[b"\n\r\t\x08\x07"]);
        check(br#""\x00\xfF\x4""#, &[b"\x00\xffx4"]);
        check(br#""\xZZ""#, &[b"xZZ"]);
        check(br#""\"\\\q'""#, &[br#""\q'"#]);
        check(br#""" x"#, &[b"", b"x"]);
    }

    #[test]
    fn single_quotes_escape_only_themselves() {
        check(br"'a\n\'b'", &[br"a\n'b"]);
        check(br#"'"' ''"#, &[b"\"", b""]);
    }

    #[test]
    fn a_quote_may_open_inside_an_argument() {
        check(br#"a"b c" d"#, &[b"ab c", b"d"]);
        check(br"x'y z'", &[b"xy z"]);
        check(b"\"a\"\x0bb", &[b"a", b"b"]);
    }

    #[test]
    fn quotes_must_balance() {
        for line in
            [&b"\""[..], b"'", b"\"a", b"'a", b"a\"b", br#""a\""#, br"'a\'", br#""a\"#, b"\"a\"b", b"'a'b", b"\"a\"'b'"]
        {
            check_unbalanced(line);
        }
    }

    #[test]
    fn nul_ends_the_line() {
        check(b"PING\0GET \"", &[b"PING"]);
        check(b"\0", &[]);
        check_unbalanced(b"\"a\0b\"");
    }
}
