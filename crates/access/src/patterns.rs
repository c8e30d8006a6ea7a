//! Patterns of keys and channels in rules.

use store::glob;

/// The permission to read a key.
pub const READ: u8 = 1;
/// The permission to change a key.
pub const WRITE: u8 = 1 << 1;
/// Both permissions.
pub const ALL: u8 = READ | WRITE;

/// Bytes at the beginning of a pattern that are compared in one step.
const WORD: usize = 8;
/// Maximum number of glob elements that are compiled to sets, 2 kB together, and of the pattern bytes that they come
/// from.
const SETS_MAX: usize = 64;
const SETS_BYTES_MAX: usize = 512;

/// The minimum length of a name, and its first bytes, as many as a word holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    word: u64,
    /// Mask of the compared bits of the name's first word.
    mask: u64,
    len_min: usize,
}

impl Head {
    /// Creates the head for names that begin with `prefix` and have at least `more` bytes after it.
    fn new(prefix: &[u8], more: usize) -> Head {
        let word = first_word(prefix);
        let mask = if prefix.len() < WORD { !(u64::MAX << (8 * prefix.len())) } else { u64::MAX };
        Head { word, mask, len_min: prefix.len() + more }
    }

    #[inline(always)]
    fn fits(self, name: &[u8]) -> bool {
        name.len() >= self.len_min && first_word(name) & self.mask == self.word
    }
}

/// Returns a name's first eight bytes, padded with zeros.
#[inline(always)]
fn first_word(name: &[u8]) -> u64 {
    match name.first_chunk::<WORD>() {
        Some(first) => u64::from_le_bytes(*first),
        None => short_word(name),
    }
}

/// Returns the first word of a shorter name, from two loads that may overlap.
fn short_word(name: &[u8]) -> u64 {
    let behind = |part: u64, bytes: usize| part << (8 * (name.len() - bytes));
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first)) | behind(u32::from_le_bytes(*last).into(), 4);
    }
    match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from(u16::from_le_bytes(*first)) | behind(u16::from_le_bytes(*last).into(), 2)
        }
        _ => name.first().map_or(0, |&byte| byte.into()),
    }
}

/// A set of bytes, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ByteSet([u64; 4]);

impl ByteSet {
    #[inline]
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }
}

/// The check of the name after the head.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rest {
    /// No check: the pattern ends with a star.
    Open,
    /// The name equals the pattern.
    Exact,
    /// The name begins with this many bytes of the pattern, more than the head has.
    Prefix(usize),
    /// After this many bytes of the pattern, the name has one byte from each set and ends.
    Sets(usize, Box<[ByteSet]>),
    /// After this many bytes of the pattern, the name has any bytes and then one byte from each set.
    Tail(usize, Box<[ByteSet]>),
    /// After this many bytes of the pattern, the name matches the rest by Redis's glob.
    Glob(usize),
}

/// A compiled glob. Most patterns are a prefix and a star.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matcher {
    head: Head,
    rest: Rest,
    pattern: Box<[u8]>,
}

impl Matcher {
    pub(super) fn new(pattern: &[u8]) -> Matcher {
        let prefix = glob::literal_prefix(pattern);
        let len = prefix.len();
        let rest = match &pattern[len..] {
            [] => Rest::Exact,
            [b'*'] if len <= WORD => Rest::Open,
            [b'*'] => Rest::Prefix(len),
            [b'*', tail @ ..] => sets(tail).map_or(Rest::Glob(len), |sets| Rest::Tail(len, sets)),
            tail => sets(tail).map_or(Rest::Glob(len), |sets| Rest::Sets(len, sets)),
        };
        let more = match &rest {
            Rest::Sets(_, sets) | Rest::Tail(_, sets) => sets.len(),
            // An empty name matches only an empty pattern, not even a star.
            _ => usize::from(len == 0 && !pattern.is_empty()),
        };
        Matcher { head: Head::new(prefix, more), rest, pattern: pattern.into() }
    }

    /// Returns the pattern's text.
    pub fn text(&self) -> &[u8] {
        &self.pattern
    }

    /// Returns true if the pattern is a lone star.
    pub(super) fn is_any(&self) -> bool {
        *self.pattern == *b"*"
    }

    /// Returns true if it matches a name.
    #[inline(always)]
    pub fn matches(&self, name: &[u8]) -> bool {
        self.head.fits(name)
            && match &self.rest {
                Rest::Open => true,
                Rest::Tail(..=WORD, sets) => end_with(name, sets),
                _ => self.rest_matches(name),
            }
    }

    /// Matches a name that fits the head.
    #[inline(never)]
    fn rest_matches(&self, name: &[u8]) -> bool {
        match &self.rest {
            Rest::Open => true,
            Rest::Exact => *self.pattern == *name,
            Rest::Prefix(len) => self.has_prefix(name, *len),
            Rest::Tail(len, sets) => self.has_prefix(name, *len) && end_with(name, sets),
            Rest::Sets(len, sets) => {
                name.len() == len + sets.len() && self.has_prefix(name, *len) && end_with(name, sets)
            }
            Rest::Glob(len) => self.has_prefix(name, *len) && self.glob_matches(name, *len),
        }
    }

    /// Returns true if a name that fits the head begins with `len` bytes of the pattern.
    #[inline]
    fn has_prefix(&self, name: &[u8], len: usize) -> bool {
        len <= WORD || name.get(WORD..len) == self.pattern.get(WORD..len)
    }

    fn glob_matches(&self, name: &[u8], len: usize) -> bool {
        match name.get(len..).unwrap_or_default() {
            // An empty rest matches only stars; the glob implements this rule only for non-empty names.
            [] => self.pattern[len..].iter().all(|&byte| byte == b'*'),
            rest => glob::matches(&self.pattern[len..], rest, false),
        }
    }
}

/// Returns true if a name ends with one byte from each set.
#[inline]
fn end_with(name: &[u8], sets: &[ByteSet]) -> bool {
    let mut name = name;
    for set in sets.iter().rev() {
        match name {
            [before @ .., last] if set.has(*last) => name = before,
            _ => return false,
        }
    }
    true
}

/// Returns the sets of a pattern, if each element matches one byte. Returns `None` if the pattern has a star, an
/// element that matches no byte, or too many elements.
fn sets(pattern: &[u8]) -> Option<Box<[ByteSet]>> {
    let (mut rest, mut sets) = (pattern, Vec::new());
    while !rest.is_empty() {
        if sets.len() == SETS_MAX || rest.len() > SETS_BYTES_MAX {
            return None;
        }
        let (set, after) = glob::first_set(rest)?;
        sets.push(ByteSet(set));
        rest = after;
    }
    Some(sets.into())
}

/// A pattern of keys, with its permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPattern {
    pub matcher: Matcher,
    /// [`READ`], [`WRITE`] or both.
    pub permission: u8,
}

impl KeyPattern {
    /// Returns true if it grants all permissions in `need`.
    #[inline]
    pub(super) fn allows(&self, need: u8) -> bool {
        self.permission & need == need
    }

    /// Returns the pattern as a rule.
    pub(super) fn rule(&self) -> Vec<u8> {
        let prefix: &[u8] = match self.permission {
            READ => b"%R~",
            WRITE => b"%W~",
            _ => b"~",
        };
        [prefix, self.matcher.text()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_patterns_match_like_the_glob() {
        let names: [&[u8]; 14] = [
            b"",
            b"a",
            b"ab",
            b"abc",
            b"b",
            b"*",
            b"a*",
            b"\\",
            b"ab*",
            b"ab012345",
            b"ab0123456",
            b"a0123456",
            b"ab01234",
            b"ba012345",
        ];
        for pattern in [
            &b""[..],
            b"*",
            b"a",
            b"a*",
            b"ab*",
            b"a**",
            b"?",
            b"a?",
            b"[a-b]",
            b"*b",
            b"a\\*",
            b"**",
            b"\\",
            b"ab01*",
            b"ab012345*",
            b"ab0123456*",
            b"ab01234*",
            b"ab*[0-9]",
            b"a*[^0-9]",
            b"*[0-9]",
            b"*[a-]",
            b"a*?",
            b"a*b*",
            b"ab**",
            b"a*0?[3-5]*",
            b"ab*\\6",
            b"*??",
            b"a[b-c]*[0-9][0-9]",
            b"ab[0]*",
        ] {
            for name in names {
                let expected = glob::matches(pattern, name, false);
                assert_eq!(Matcher::new(pattern).matches(name), expected, "{pattern:?} {name:?}");
            }
        }
    }

    /// Returns all texts of up to `len` bytes of an alphabet.
    fn texts(alphabet: &[u8], len: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..len {
            let longest = all[from..].to_vec();
            from = all.len();
            all.extend(longest.iter().flat_map(|text| alphabet.iter().map(|&byte| [text, &[byte][..]].concat())));
        }
        all
    }

    #[test]
    fn all_short_patterns_match_like_the_glob_after_heads_of_any_length() {
        for (prefix, len) in [("", 4), ("0123456", 3), ("01234567", 3), ("012345678", 3)] {
            let names: Vec<_> = texts(b"ab]", 3)
                .iter()
                .flat_map(|end| [[prefix.as_bytes(), end].concat(), [b"0", &**end].concat(), end.clone()])
                .collect();
            for end in texts(b"ab*?[]^-\\", len) {
                let pattern = [prefix.as_bytes(), &end].concat();
                let matcher = Matcher::new(&pattern);
                for name in &names {
                    let expected = glob::matches(&pattern, name, false);
                    let shown = (pattern.escape_ascii(), name.escape_ascii());
                    assert_eq!(matcher.matches(name), expected, "{} {}", shown.0, shown.1);
                }
            }
        }
    }

    #[test]
    fn heads_compare_all_their_bytes() {
        let text = b"\0bc\0efgh\0j";
        for len in 0..=text.len() {
            let mut word = [0; WORD];
            word[..len.min(WORD)].copy_from_slice(&text[..len.min(WORD)]);
            assert_eq!(first_word(&text[..len]), u64::from_le_bytes(word), "{len}");
            let matcher = Matcher::new(&[&text[..len], b"*"].concat());
            for name in 0..=text.len() {
                assert_eq!(matcher.matches(&text[..name]), name >= len.max(1), "{len} {name}");
            }
        }
    }

    #[test]
    fn long_globs_are_not_compiled() {
        for (tail, is_left) in [("?".repeat(64), false), ("?".repeat(65), true), ("[".repeat(513), true)] {
            let matcher = Matcher::new(format!("k*{tail}").as_bytes());
            assert_eq!(matches!(matcher.rest, Rest::Glob(1)), is_left, "{tail}");
            let name = format!("k{}", "[".repeat(64));
            assert_eq!(matcher.matches(name.as_bytes()), tail.len() != 65, "{tail}");
        }
    }
}
