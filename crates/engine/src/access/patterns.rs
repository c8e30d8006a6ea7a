//! Patterns of keys and channels, as rules have them.

use store::glob;

/// The permission to read a key.
pub(crate) const READ: u8 = 1;
/// The permission to change a key.
pub(crate) const WRITE: u8 = 1 << 1;
/// Both.
pub(crate) const ALL: u8 = READ | WRITE;

/// How a pattern is matched. Most patterns are a prefix with a star behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// Anything but an empty name: a lone star.
    Any,
    /// The same bytes.
    Exact,
    /// Names that begin with so many bytes of the pattern.
    Prefix(usize),
    /// The same of up to eight bytes: those, and the bits that they are in.
    Short(u64, u64, usize),
    /// So many bytes as they are, and whatever Redis's glob says of the rest.
    Glob(usize),
    /// The same, where the rest is a star and elements of one byte each, so many, which only a name's end can match.
    Tail(usize, usize),
}

/// Bytes of a prefix that are compared in one go.
const WORD: usize = 8;

/// A prefix of one to eight bytes.
fn short(prefix: &[u8]) -> Shape {
    let mut bytes = [0; WORD];
    bytes[..prefix.len()].copy_from_slice(prefix);
    let mask = u64::MAX >> (u64::BITS as usize - 8 * prefix.len());
    Shape::Short(u64::from_le_bytes(bytes), mask, prefix.len())
}

/// A glob, with what makes matching quick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matcher {
    pattern: Box<[u8]>,
    shape: Shape,
}

impl Matcher {
    pub(super) fn new(pattern: &[u8]) -> Matcher {
        let prefix = glob::literal_prefix(pattern).len();
        let shape = match &pattern[prefix..] {
            [] => Shape::Exact,
            [b'*'] if prefix == 0 => Shape::Any,
            [b'*'] if prefix <= WORD => short(&pattern[..prefix]),
            [b'*'] => Shape::Prefix(prefix),
            [b'*', tail @ ..] if let Some(len) = elements(tail) => Shape::Tail(prefix, len),
            _ => Shape::Glob(prefix),
        };
        Matcher { pattern: pattern.into(), shape }
    }

    /// The pattern as it was given.
    pub(crate) fn text(&self) -> &[u8] {
        &self.pattern
    }

    /// True if the pattern is a lone star.
    pub(super) fn is_any(&self) -> bool {
        self.shape == Shape::Any
    }

    /// What a name has after the pattern's first `len` bytes, if it begins with them.
    #[inline]
    fn after_prefix<'n>(&self, name: &'n [u8], len: usize) -> Option<&'n [u8]> {
        name.strip_prefix(&self.pattern[..len])
    }

    /// True if it matches a name.
    #[inline]
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        match self.shape {
            Shape::Any => !name.is_empty(),
            Shape::Exact => *self.pattern == *name,
            Shape::Short(word, mask, len) => match name.first_chunk::<WORD>() {
                Some(first) => u64::from_le_bytes(*first) & mask == word,
                None => name.get(..len) == self.pattern.get(..len),
            },
            Shape::Prefix(len) => name.get(..len) == self.pattern.get(..len),
            Shape::Glob(len) => match self.after_prefix(name, len) {
                None => false,
                // What is left matches nothing but stars, of which the glob says so only after something else.
                Some([]) if len > 0 => self.pattern[len..].iter().all(|&byte| byte == b'*'),
                Some(rest) => glob::matches(&self.pattern[len..], rest, false),
            },
            Shape::Tail(prefix, len) => {
                let end = self.after_prefix(name, prefix).and_then(|rest| rest.get(rest.len().wrapping_sub(len)..));
                end.is_some_and(|end| glob::matches(&self.pattern[prefix + 1..], end, false))
            }
        }
    }
}

/// How many elements a pattern has that match a byte each; none if it has a star or anything that isn't simple.
fn elements(pattern: &[u8]) -> Option<usize> {
    let (mut rest, mut count) = (pattern, 0);
    while let [first, after @ ..] = rest {
        rest = match first {
            b'*' | b'\\' => return None,
            b'[' => {
                let end = after.iter().position(|&byte| byte == b']')?;
                let class = &after[..end];
                let is_simple =
                    class.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'^' | b'_'));
                if !is_simple || class.last().is_none_or(|&last| last == b'-' || last == b'^') {
                    return None;
                }
                &after[end + 1..]
            }
            _ => after,
        };
        count += 1;
    }
    (count > 0).then_some(count)
}

/// A pattern of keys, and what may be done with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyPattern {
    pub matcher: Matcher,
    /// [`READ`], [`WRITE`] or both.
    pub permission: u8,
}

impl KeyPattern {
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
}
