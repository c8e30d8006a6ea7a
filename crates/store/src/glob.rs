//! Redis's glob-style patterns, as in KEYS, SCAN, PSUBSCRIBE, CONFIG GET and access rules.
//!
//! `*` stands for any bytes, `?` for one byte, `[abc]`, `[a-z]` and `[^a]` for one byte of a set, and a backslash
//! removes the special meaning of the next byte. Source: the documentation page of KEYS; cases that it leaves open
//! (reversed ranges, unterminated classes) follow Redis 7.2's behaviour.
//!
//! This module works on bytes: it knows no characters beyond ASCII's letters, and no keys.

/// Returns true if the whole text matches the pattern; with `nocase`, ASCII letters match in either case.
///
/// Every part of a pattern except `*` matches exactly one byte, so only the latest `*` ever needs to be extended. The
/// time is bounded by the product of both lengths, also for patterns like `a*a*a*a*b`; no memory is allocated.
///
/// An empty text matches only an empty pattern, not even `*`, as in Redis. Redis's commands that list keys treat a lone
/// `*` as "no pattern" before they match.
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let mut pattern = pattern;
    let mut text = text;
    // The pattern after the latest `*`, and the text that is left for it.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            if rest.is_empty() {
                return true;
            }
            pattern = rest;
            retry = Some((rest, text));
            continue;
        }
        let Some((byte, text_rest)) = text.split_first() else {
            // Extending a `*` would leave even less text for the rest of the pattern.
            return pattern.is_empty();
        };
        if let Some(pattern_rest) = match_one(pattern, *byte, nocase) {
            pattern = pattern_rest;
            text = text_rest;
            continue;
        }
        let Some((after_star, [_, stretched @ ..])) = retry else { return false };
        pattern = after_star;
        text = stretched;
        retry = Some((after_star, stretched));
    }
}

/// Returns true if the pattern has no special bytes, so that only an identical text matches.
pub fn is_literal(pattern: &[u8]) -> bool {
    literal_prefix(pattern).len() == pattern.len()
}

/// Returns the bytes before the first special byte: every matching text begins with them, if case matters.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..end.unwrap_or(pattern.len())]
}

/// Matches one byte with the first part of a pattern that does not begin with `*`. Returns the rest of the pattern if
/// it matched.
fn match_one(pattern: &[u8], byte: u8, nocase: bool) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', class @ ..] => match_class(class, byte, nocase),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => same(*literal, byte, nocase).then_some(rest),
    }
}

/// Returns the set of bytes that the pattern's first part matches, one bit each, and the rest of the pattern. Returns
/// None if that part is a `*` or matches no byte, and for an empty pattern.
pub fn first_set(pattern: &[u8]) -> Option<([u64; 4], &[u8])> {
    if pattern.first() == Some(&b'*') {
        return None;
    }
    let (mut set, mut rest) = ([0; 4], None);
    for byte in 0..=u8::MAX {
        if let Some(after) = match_one(pattern, byte, false) {
            set[usize::from(byte >> 6)] |= 1 << (byte & 63);
            rest = Some(after);
        }
    }
    Some((set, rest?))
}

/// Matches one byte with a class, given the text after its `[`. Returns the rest of the pattern if it matched.
///
/// A class ends at its first `]` that is neither escaped nor the end of a range, or else at the end of the pattern.
fn match_class(class: &[u8], byte: u8, nocase: bool) -> Option<&[u8]> {
    let (negated, mut class) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    let rest = loop {
        class = match class {
            [] => break class,
            [b']', rest @ ..] => break rest,
            // Redis compares an escaped byte exactly, even with `nocase`.
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            [start, b'-', end, rest @ ..] => {
                found |= in_range(*start, *end, byte, nocase);
                rest
            }
            [literal, rest @ ..] => {
                found |= same(*literal, byte, nocase);
                rest
            }
        };
    };
    (found != negated).then_some(rest)
}

/// Returns true if a byte is in a range; the ends may be in either order.
///
/// The ends are sorted before their case is ignored, as in Redis, so `[Z-a]` is empty without case.
fn in_range(start: u8, end: u8, byte: u8, nocase: bool) -> bool {
    let (low, high) = if start as i8 <= end as i8 { (start, end) } else { (end, start) };
    let rank = if nocase { rank_without_case } else { rank };
    (rank(low)..=rank(high)).contains(&rank(byte))
}

/// Returns a byte's rank in ranges. Redis compares C's `char`, which is signed on x86-64: bytes from 128 on come before
/// the others.
fn rank(byte: u8) -> i16 {
    i16::from(byte as i8)
}

/// Returns a byte's rank if case is ignored. Redis compares the results of the GNU C library's `tolower` for a signed
/// `char`, which are unsigned except for byte 255, which equals EOF.
fn rank_without_case(byte: u8) -> i16 {
    if byte == u8::MAX { -1 } else { i16::from(byte.to_ascii_lowercase()) }
}

fn same(a: u8, b: u8, nocase: bool) -> bool {
    a == b || (nocase && a.eq_ignore_ascii_case(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern, texts that match it, and texts that do not.
    type Row<'a> = (&'a [u8], &'a [&'a [u8]], &'a [&'a [u8]]);

    fn check(nocase: bool, rows: &[Row]) {
        for (pattern, yes, no) in rows {
            let shown = pattern.escape_ascii();
            for text in *yes {
                assert!(matches(pattern, text, nocase), "{shown} should match {}", text.escape_ascii());
            }
            for text in *no {
                assert!(!matches(pattern, text, nocase), "{shown} should not match {}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn a_part_of_one_byte_is_a_set_of_bytes() {
        for (pattern, bytes, rest) in [
            (&b"[a-c]*"[..], &b"abc"[..], &b"*"[..]),
            (b"ab", b"a", b"b"),
            (b"\\*?", b"*", b"?"),
            (b"\\", b"\\", b""),
            (b"[\\]x]y", b"]x", b"y"),
            (b"[z-x", b"xyz", b""),
            (b"[\xfe-\x01]", b"\0\x01\xfe\xff", b""),
        ] {
            let (set, after) = first_set(pattern).unwrap();
            let found: Vec<u8> = (0..=255).filter(|&b: &u8| set[usize::from(b >> 6)] >> (b & 63) & 1 != 0).collect();
            assert_eq!((&*found, after), (bytes, rest), "{}", pattern.escape_ascii());
        }
        let count = |pattern| first_set(pattern).map(|(set, _)| set.map(u64::count_ones).iter().sum::<u32>());
        assert_eq!([b"?" as &[u8], b"[^a]", b"[]", b"", b"*a"].map(count), [Some(256), Some(255), None, None, None]);
    }

    #[test]
    fn patterns_match_as_in_redis() {
        check(
            false,
            &[
                (b"", &[b""], &[b"a"]),
                (b"*", &[b"a", b"abc", b"\0"], &[b""]),
                (b"a*", &[b"a", b"ab", b"a*"], &[b"", b"b", b"ba"]),
                (b"a**", &[b"a", b"abc"], &[b"b"]),
                (b"*a", &[b"a", b"ba", b"aa"], &[b"ab", b""]),
                (b"*a*b*", &[b"ab", b"xaxbx", b"aab"], &[b"ba", b"a", b"b"]),
                (b"?", &[b"a", b"?", b"\xff"], &[b"", b"ab"]),
                (b"h?llo", &[b"hello", b"hallo"], &[b"hllo", b"heello"]),
                (b"*?", &[b"a", b"ab"], &[b""]),
                (b"h[ae]llo", &[b"hello", b"hallo"], &[b"hillo"]),
                (b"h[^e]llo", &[b"hallo", b"h^llo"], &[b"hello"]),
                (b"[a-c]", &[b"a", b"b", b"c"], &[b"d", b"-", b"B"]),
                (b"[c-a]", &[b"a", b"b", b"c"], &[b"d"]),
                (b"[]", &[], &[b"]", b"[]", b"a"]),
                (b"[^]", &[b"]", b"a"], &[b"[^]", b""]),
                (b"[]a]", &[], &[b"a", b"]", b"]a]"]),
                (b"[ab", &[b"a", b"b"], &[b"c", b"[ab", b"ab"]),
                (b"[", &[], &[b"[", b"a"]),
                (b"[^", &[b"a", b"^"], &[b"ab"]),
                (b"[a-", &[b"a", b"-"], &[b"b"]),
                (b"[a-]", &[b"a", b"_", b"]"], &[b"-", b"b"]),
                (b"[\\]]", &[b"]"], &[b"\\", b"a"]),
                (b"[\\", &[b"\\"], &[b"["]),
                (b"[\\a-c]", &[b"a", b"-", b"c"], &[b"b"]),
                (b"[-a]", &[b"-", b"a"], &[b"b"]),
                (b"[\x80-a]", &[b"\x80", b"\xff", b"A", b"a"], &[b"b"]),
                (b"\\*", &[b"*"], &[b"a", b"\\*"]),
                (b"\\", &[b"\\"], &[b"a"]),
                (b"a\\", &[b"a\\"], &[b"a"]),
                (b"\\a", &[b"a"], &[b"\\a"]),
            ],
        );
    }

    #[test]
    fn case_is_ignored_on_request() {
        check(
            true,
            &[
                (b"MaX*", &[b"maxmemory", b"MAX"], &[b"min"]),
                (b"\\A", &[b"a", b"A"], &[b"b"]),
                (b"[AB]", &[b"a", b"b", b"A"], &[b"c"]),
                (b"[\\A]", &[b"A"], &[b"a"]),
                (b"[A-c]", &[b"a", b"B", b"C"], &[b"d", b"_"]),
                (b"[Z-a]", &[], &[b"z", b"a", b"_"]),
                (b"[\x80-a]", &[], &[b"\x80", b"\x81", b"a"]),
                (b"[\x80-\x90]", &[b"\x80", b"\x90"], &[b"\x91", b"a"]),
                (b"[\xff-a]", &[b"\xff", b"A", b"0"], &[b"\x80", b"b"]),
            ],
        );
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"a*".repeat(5_000);
        let text = b"a".repeat(10_000);
        assert!(matches(&pattern, &text, false));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text, false));
    }

    #[test]
    fn literal_patterns_are_recognised() {
        for (pattern, prefix) in
            [("", ""), ("key", "key"), ("ke*", "ke"), ("?", ""), ("a[b", "a"), ("a\\*", "a"), ("]^-", "]^-")]
        {
            assert_eq!(literal_prefix(pattern.as_bytes()), prefix.as_bytes());
            assert_eq!(is_literal(pattern.as_bytes()), pattern == prefix);
        }
    }
}
