//! Patterns of keys and channels, as rules have them.

use store::glob;

/// The permission to read a key.
pub(crate) const READ: u8 = 1;
/// The permission to change a key.
pub(crate) const WRITE: u8 = 1 << 1;
/// Both.
pub(crate) const ALL: u8 = READ | WRITE;

/// Bytes of a pattern's head that are compared in one go.
const WORD: usize = 8;
/// Elements of a glob that are compiled to sets, at most: 2 KB. And the bytes that they are read from.
const SETS_MAX: usize = 64;
const SETS_BYTES_MAX: usize = 512;

/// How long a name is at least, and how its first bytes are, as far as a word holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    word: u64,
    /// The bits of a name's first word that are compared.
    mask: u64,
    len_min: usize,
}

impl Head {
    /// For names that begin with `prefix` and have `more` bytes behind it.
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

/// A name's first eight bytes, or all it has and zeros.
#[inline(always)]
fn first_word(name: &[u8]) -> u64 {
    match name.first_chunk::<WORD>() {
        Some(first) => u64::from_le_bytes(*first),
        None => short_word(name),
    }
}

/// The same of a shorter name, by two loads that may overlap.
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

/// Bytes, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ByteSet([u64; 4]);

impl ByteSet {
    #[inline]
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }
}

/// What is looked at behind the head.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rest {
    /// Nothing: a star is all that the pattern has there.
    Open,
    /// The name is the pattern.
    Exact,
    /// The name begins with so many bytes of the pattern, more than the head has.
    Prefix(usize),
    /// Behind so many bytes of the pattern, the name has one byte of each set and nothing else.
    Sets(usize, Box<[ByteSet]>),
    /// The same, with any bytes before those.
    Tail(usize, Box<[ByteSet]>),
    /// Behind so many bytes of the pattern, whatever Redis's glob says.
    Glob(usize),
}

/// A glob, compiled. Most patterns are a prefix with a star behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matcher {
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
            // An empty name matches nothing but an empty pattern, not even a star.
            _ => usize::from(len == 0 && !pattern.is_empty()),
        };
        Matcher { head: Head::new(prefix, more), rest, pattern: pattern.into() }
    }

    /// The pattern as it was given.
    pub(crate) fn text(&self) -> &[u8] {
        &self.pattern
    }

    /// True if the pattern is a lone star.
    pub(super) fn is_any(&self) -> bool {
        *self.pattern == *b"*"
    }

    /// True if it matches a name.
    #[inline(always)]
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        self.head.fits(name)
            && match &self.rest {
                Rest::Open => true,
                Rest::Tail(..=WORD, sets) => end_with(name, sets),
                _ => self.rest_matches(name),
            }
    }

    /// The same, of a name that the head fits.
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

    /// True if a name that the head fits begins with so many bytes of the pattern.
    #[inline]
    fn has_prefix(&self, name: &[u8], len: usize) -> bool {
        len <= WORD || name.get(WORD..len) == self.pattern.get(WORD..len)
    }

    fn glob_matches(&self, name: &[u8], len: usize) -> bool {
        match name.get(len..).unwrap_or_default() {
            // What is left matches nothing but stars, of which the glob says so only after something else.
            [] => self.pattern[len..].iter().all(|&byte| byte == b'*'),
            rest => glob::matches(&self.pattern[len..], rest, false),
        }
    }
}

/// True if a name's last bytes are one of each set.
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

/// The elements of a pattern that match a byte each; none if it has a star, an element that matches none, or too many.
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

/// A pattern of keys, and what may be done with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyPattern {
    pub matcher: Matcher,
    /// [`READ`], [`WRITE`] or both.
    pub permission: u8,
}

impl KeyPattern {
    /// True if it permits all that is needed.
    #[inline]
    pub(super) fn allows(&self, need: u8) -> bool {
        self.permission & need == need
    }

    /// The pattern as a rule.
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
    fn shapes_match_as_the_glob_does() {
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

    /// All texts of up to `len` bytes of an alphabet.
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
    fn all_short_patterns_match_as_the_glob_does_behind_heads_of_any_length() {
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
    fn heads_compare_as_many_bytes_as_there_are() {
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
    fn long_globs_are_left_as_they_are() {
        for (tail, is_left) in [("?".repeat(64), false), ("?".repeat(65), true), ("[".repeat(513), true)] {
            let matcher = Matcher::new(format!("k*{tail}").as_bytes());
            assert_eq!(matches!(matcher.rest, Rest::Glob(1)), is_left, "{tail}");
            let name = format!("k{}", "[".repeat(64));
            assert_eq!(matcher.matches(name.as_bytes()), tail.len() != 65, "{tail}");
        }
    }
}
