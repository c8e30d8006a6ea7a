//! Lua's patterns (Lua 5.1 Reference Manual, 5.4.1). A hostile pattern can be stopped and overflows nothing.
//!
//! The module works on bytes alone. Results equal those of Lua 5.1, including its peculiarities: a zero byte ends a
//! pattern, and `%z` matches a zero byte.

/// Most captures of a pattern, as in Lua.
pub const CAPTURES_MAX: usize = 32;
/// Deepest recursion of matching: one level for each open quantifier or capture. Each level is a frame on the thread's
/// stack; patterns written by people stay below ten.
const DEPTH_MAX: usize = 1000;
/// Steps of matching (comparisons of a byte) between two polls.
const STEPS_BETWEEN_POLLS: usize = 256;
/// Number of bytes that a comparison handles in the time of a step.
const BYTES_PER_STEP: usize = 64;

const ESCAPE: u8 = b'%';

/// The reason why matching ended without a result.
#[derive(Debug, PartialEq, Eq)]
pub enum PatternError<E> {
    /// The pattern is invalid; the text is Lua's.
    Text(&'static str),
    /// The poll returned an error.
    Stopped(E),
}

type Matched<E> = Result<Option<usize>, PatternError<E>>;

/// The state of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capture {
    /// The capture begins here and is not closed yet.
    Open(usize),
    /// A position in the subject, counted from 0.
    Position(usize),
    /// A range of the subject.
    Range(usize, usize),
}

/// A subject and a pattern.
pub struct Matcher<'m> {
    subject: &'m [u8],
    pattern: &'m [u8],
    captures: [Capture; CAPTURES_MAX],
    count: usize,
    steps: usize,
}

impl<'m> Matcher<'m> {
    /// Returns a matcher of the pattern (without a leading anchor) in the subject.
    #[must_use]
    pub fn new(subject: &'m [u8], pattern: &'m [u8]) -> Matcher<'m> {
        let end = pattern.iter().position(|&byte| byte == 0).unwrap_or(pattern.len());
        let captures = [Capture::Position(0); CAPTURES_MAX];
        Matcher { subject, pattern: &pattern[..end], captures, count: 0, steps: 0 }
    }

    /// Returns the end of the match that begins at `start` of the subject, or None. Calls `poll` regularly, and stops
    /// if it fails.
    pub fn match_at<E>(&mut self, start: usize, poll: impl FnMut() -> Result<(), E>) -> Matched<E> {
        self.count = 0;
        Matching { subject: self.subject, pattern: self.pattern, matcher: self, depth: 0, poll }.run(start, 0)
    }

    /// Number of captures of the match.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns a capture of the match from `start` to `end`, counted from 0, or an error text. Without captures in the
    /// pattern, the first one is the whole match.
    pub fn capture(&self, index: usize, start: usize, end: usize) -> Result<Capture, &'static str> {
        match self.captures[..self.count].get(index) {
            Some(Capture::Open(_)) => Err("unfinished capture"),
            Some(capture) => Ok(*capture),
            None if index == 0 => Ok(Capture::Range(start, end)),
            None => Err("invalid capture index"),
        }
    }
}

/// The state of one matching attempt.
struct Matching<'r, 'm, P> {
    subject: &'m [u8],
    pattern: &'m [u8],
    matcher: &'r mut Matcher<'m>,
    depth: usize,
    poll: P,
}

impl<E, P: FnMut() -> Result<(), E>> Matching<'_, '_, P> {
    fn step(&mut self, steps: usize) -> Result<(), PatternError<E>> {
        self.matcher.steps += steps;
        if self.matcher.steps < STEPS_BETWEEN_POLLS {
            return Ok(());
        }
        self.matcher.steps = 0;
        (self.poll)().map_err(PatternError::Stopped)
    }

    /// Matches the pattern from `p` at `s`, one level deeper.
    fn deeper(&mut self, s: usize, p: usize) -> Matched<E> {
        if self.depth == DEPTH_MAX {
            return Err(PatternError::Text("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.run(s, p);
        self.depth -= 1;
        matched
    }

    /// Returns the byte of the pattern at `p`; 0 beyond its end.
    fn at(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    fn run(&mut self, mut s: usize, mut p: usize) -> Matched<E> {
        loop {
            self.step(1)?;
            match (self.at(p), self.at(p + 1)) {
                _ if p >= self.pattern.len() => return Ok(Some(s)),
                (b'(', b')') => return self.open_capture(Capture::Position(s), s, p + 2),
                (b'(', _) => return self.open_capture(Capture::Open(s), s, p + 1),
                (b')', _) => return self.close_capture(s, p + 1),
                (b'$', _) if p + 1 == self.pattern.len() => return Ok((s == self.subject.len()).then_some(s)),
                (ESCAPE, b'b') => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (ESCAPE, b'f') => match self.frontier(s, p + 2)? {
                    Some(after) => p = after,
                    None => return Ok(None),
                },
                (ESCAPE, digit @ b'0'..=b'9') => match self.back_reference(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    match self.at(end) {
                        b'?' => {
                            if self.single(s, p, end)
                                && let Some(matched) = self.deeper(s + 1, end + 1)?
                            {
                                return Ok(Some(matched));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.expand_most(s, p, end),
                        b'+' if self.single(s, p, end) => return self.expand_most(s + 1, p, end),
                        b'+' => return Ok(None),
                        b'-' => return self.expand_least(s, p, end),
                        _ if self.single(s, p, end) => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Returns the end of the class (or single byte) that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, PatternError<E>> {
        match self.pattern[p] {
            ESCAPE if p + 1 >= self.pattern.len() => Err(PatternError::Text("malformed pattern (ends with '%')")),
            ESCAPE => Ok(p + 2),
            b'[' => self.set_end(p + 1),
            _ => Ok(p + 1),
        }
    }

    /// Returns the end of the set with contents from `p` on. The first byte belongs to the set even if it is "]".
    fn set_end(&self, mut p: usize) -> Result<usize, PatternError<E>> {
        const MISSING: &str = "malformed pattern (missing ']')";
        if self.at(p) == b'^' {
            p += 1;
        }
        loop {
            let byte = *self.pattern.get(p).ok_or(PatternError::Text(MISSING))?;
            p += if byte == ESCAPE && p + 1 < self.pattern.len() { 2 } else { 1 };
            if self.at(p) == b']' {
                return Ok(p + 1);
            }
        }
    }

    /// Returns true if the byte at `s` belongs to the class from `p` to `end`.
    #[inline]
    fn single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.pattern[p + 1]),
            b'[' => self.is_of_set(byte, p, end - 1),
            literal => literal == byte,
        }
    }

    /// Returns true if the byte belongs to the set between the brackets at `p` and `close`.
    fn is_of_set(&self, byte: u8, mut p: usize, close: usize) -> bool {
        let negated = self.pattern[p + 1] == b'^';
        p += 1 + usize::from(negated);
        while p < close {
            let found = match self.pattern[p] {
                ESCAPE => {
                    p += 1;
                    is_of_class(byte, self.pattern[p])
                }
                low if self.pattern[p + 1] == b'-' && p + 2 < close => {
                    p += 2;
                    (low..=self.pattern[p]).contains(&byte)
                }
                literal => literal == byte,
            };
            if found {
                return !negated;
            }
            p += 1;
        }
        negated
    }

    fn expand_most(&mut self, s: usize, p: usize, end: usize) -> Matched<E> {
        let mut count = 0;
        while self.single(s + count, p, end) {
            count += 1;
            self.step(1)?;
        }
        loop {
            if let Some(matched) = self.deeper(s + count, end + 1)? {
                return Ok(Some(matched));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn expand_least(&mut self, mut s: usize, p: usize, end: usize) -> Matched<E> {
        loop {
            if let Some(matched) = self.deeper(s, end + 1)? {
                return Ok(Some(matched));
            }
            if !self.single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open_capture(&mut self, capture: Capture, s: usize, p: usize) -> Matched<E> {
        if self.matcher.count == CAPTURES_MAX {
            return Err(PatternError::Text("too many captures"));
        }
        self.matcher.captures[self.matcher.count] = capture;
        self.matcher.count += 1;
        let matched = self.deeper(s, p)?;
        if matched.is_none() {
            self.matcher.count -= 1;
        }
        Ok(matched)
    }

    fn close_capture(&mut self, s: usize, p: usize) -> Matched<E> {
        let open =
            self.matcher.captures[..self.matcher.count].iter().rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some((index, Capture::Open(start))) = open.map(|index| (index, self.matcher.captures[index])) else {
            return Err(PatternError::Text("invalid pattern capture"));
        };
        self.matcher.captures[index] = Capture::Range(start, s);
        let matched = self.deeper(s, p)?;
        if matched.is_none() {
            self.matcher.captures[index] = Capture::Open(start);
        }
        Ok(matched)
    }

    /// `%bxy`: matches from an x to the balancing y.
    fn balanced(&mut self, s: usize, p: usize) -> Matched<E> {
        let Some(&[open, close]) = self.pattern.get(p..p + 2) else {
            return Err(PatternError::Text("unbalanced pattern"));
        };
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1usize;
        for end in s + 1..self.subject.len() {
            self.step(1)?;
            let byte = self.subject[end];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(end + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: matches where the set begins; returns the position behind it in the pattern. Both ends of the subject
    /// count as a zero byte.
    fn frontier(&self, s: usize, p: usize) -> Matched<E> {
        if self.at(p) != b'[' {
            return Err(PatternError::Text("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p)?;
        let before = if s == 0 { 0 } else { self.subject[s - 1] };
        let here = self.subject.get(s).copied().unwrap_or(0);
        let begins = !self.is_of_set(before, p, end - 1) && self.is_of_set(here, p, end - 1);
        Ok(begins.then_some(end))
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Matched<E> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let (start, end) = match self.matcher.captures[..self.matcher.count].get(index) {
            None | Some(Capture::Open(_)) => return Err(PatternError::Text("invalid capture index")),
            Some(Capture::Position(_)) => return Ok(None),
            Some(Capture::Range(start, end)) => (*start, *end),
        };
        self.step((end - start) / BYTES_PER_STEP)?;
        let captured = &self.subject[start..end];
        Ok(self.subject[s..].starts_with(captured).then_some(s + captured.len()))
    }
}

/// Returns true if the byte belongs to the class of a letter; an upper case letter negates the class. Any other pattern
/// byte matches itself.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(subject: &str, pattern: &str) -> Result<Option<(usize, usize)>, PatternError<()>> {
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes());
        for start in 0..=subject.len() {
            if let Some(end) = matcher.match_at(start, || Ok(()))? {
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }

    #[test]
    fn patterns_match() {
        for (subject, pattern, range) in [
            ("hello", "l+", Some((2, 4))),
            ("hello", "l-o", Some((2, 5))),
            ("hello", "x?h", Some((0, 1))),
            ("hello", "o$", Some((4, 5))),
            ("a$b", "a$b", Some((0, 3))),
            ("f(a(b)c)d", "%b()", Some((1, 8))),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some((0, 3))),
            ("abab", "(ab)%1", Some((0, 4))),
            ("x-]y", "[]%-]+", Some((1, 3))),
            ("abc", "[^a-b]", Some((2, 3))),
            ("a-z", "[a-]+", Some((0, 2))),
            ("abc", "()b()", Some((1, 2))),
            ("ab\0c", "%z", Some((2, 3))),
            ("ab", "a\0%", Some((0, 1))),
            ("abc", "d", None),
        ] {
            assert_eq!(find(subject, pattern), Ok(range), "{subject:?} {pattern:?}");
        }
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for (pattern, text) in [
            ("[a", "malformed pattern (missing ']')"),
            ("[]", "malformed pattern (missing ']')"),
            ("[a%", "malformed pattern (missing ']')"),
            ("%", "malformed pattern (ends with '%')"),
            ("%b", "unbalanced pattern"),
            ("%bx", "unbalanced pattern"),
            ("%fa", "missing '[' after '%f' in pattern"),
            ("%1", "invalid capture index"),
            ("(%1)", "invalid capture index"),
            (")", "invalid pattern capture"),
        ] {
            assert_eq!(find("aaa", pattern), Err(PatternError::Text(text)), "{pattern:?}");
        }
        assert_eq!(find("a", &"()".repeat(33)), Err(PatternError::Text("too many captures")));
        assert_eq!(find(&"a".repeat(2000), &"a?".repeat(2000)), Err(PatternError::Text("pattern too complex")));
    }

    #[test]
    fn matching_can_be_stopped() {
        let subject = "a".repeat(40);
        let pattern = "a*".repeat(20) + "b";
        let mut polls = 0;
        let poll = || {
            polls += 1;
            if polls < 1000 { Ok(()) } else { Err("enough") }
        };
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes());
        assert_eq!(matcher.match_at(0, poll), Err(PatternError::Stopped("enough")));
        let deep = "(".repeat(1 << 20);
        let mut matcher = Matcher::new(deep.as_bytes(), b"%b()");
        assert_eq!(matcher.match_at(0, || Err(())), Err(PatternError::Stopped(())));
        let twice = "a".repeat(1 << 16);
        let mut matcher = Matcher::new(twice.as_bytes(), b"(.*)%1b");
        assert_eq!(matcher.match_at(0, || Err(())), Err(PatternError::Stopped(())));
    }
}
