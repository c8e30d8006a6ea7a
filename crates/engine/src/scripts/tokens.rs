//! The tokens of a script's text, for the checks before its first run.

/// A token of a text. Comments are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'t> {
    /// A name, a keyword or a number.
    Name(&'t [u8]),
    /// The raw text between a string's quotes or long brackets.
    Text(&'t [u8]),
    /// One other character. The operators `==`, `~=`, `<=`, `>=` and `..` are their first character with the bit
    /// [`PAIR`].
    Sign(u8),
}

/// The tokens of a text. A text that is no valid Lua has some, too.
pub(super) struct Tokens<'t>(&'t [u8]);

impl<'t> Tokens<'t> {
    /// Returns the tokens of a script or library without its shebang.
    pub fn of(text: &'t [u8]) -> Tokens<'t> {
        let line = text.iter().position(|&byte| byte == b'\n').filter(|_| text.starts_with(b"#!"));
        Tokens(&text[line.unwrap_or(0)..])
    }

    /// Takes this number of bytes.
    fn take(&mut self, count: usize) -> &'t [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes the bytes before `end`, and skips `end`.
    fn take_to(&mut self, end: &[u8]) -> &'t [u8] {
        let at = self.0.windows(end.len()).position(|bytes| bytes == end).unwrap_or(self.0.len());
        let taken = self.take(at);
        self.take(end.len());
        taken
    }

    /// Takes the text in long brackets, if they open here.
    fn long(&mut self) -> Option<&'t [u8]> {
        let inside = self.0.strip_prefix(b"[")?;
        let level = inside.iter().take_while(|&&byte| byte == b'=').count();
        if inside.get(level) != Some(&b'[') {
            return None;
        }
        self.take(level + 2);
        let end = [b"]", &*vec![b'='; level], b"]"].concat();
        Some(self.take_to(&end))
    }

    fn quoted(&mut self, quote: u8) -> &'t [u8] {
        self.take(1);
        let mut is_escaped = false;
        let ends = |&byte: &u8| {
            let ends = byte == quote && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        };
        let end = self.0.iter().position(ends).unwrap_or(self.0.len());
        let text = self.take(end);
        self.take(1);
        text
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            self.0 = self.0.trim_ascii_start();
            if !self.0.starts_with(b"--") {
                return;
            }
            self.take(2);
            if self.long().is_none() {
                self.take_to(b"\n");
            }
        }
    }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        self.skip_blanks_and_comments();
        let &first = self.0.first()?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if is_of_name(first) {
            let length = self.0.iter().take_while(|&&byte| is_of_name(byte)).count();
            return Some(Token::Name(self.take(length)));
        }
        if matches!(first, b'\'' | b'"') {
            return Some(Token::Text(self.quoted(first)));
        }
        if let Some(text) = self.long() {
            return Some(Token::Text(text));
        }
        let second = self.0.get(1).copied();
        let is_pair = matches!((first, second), (b'=' | b'~' | b'<' | b'>', Some(b'=')) | (b'.', Some(b'.')));
        self.take(if is_pair { 2 } else { 1 });
        Some(Token::Sign(if is_pair { first | PAIR } else { first }))
    }
}

/// The bit that marks a sign of two characters.
pub(super) const PAIR: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::Token::{Name, Sign, Text};
    use super::*;

    #[test]
    fn a_text_is_cut_into_tokens() {
        let check = |text: &str, expected: &[Token<'_>]| {
            assert_eq!(Tokens::of(text.as_bytes()).collect::<Vec<_>>(), expected, "{text}");
        };
        check("#!lua x='y'\na -- b\n=1", &[Name(b"a"), Sign(b'='), Name(b"1")]);
        check("a==[[b]]..'c\\'d'", &[Name(b"a"), Sign(b'=' | PAIR), Text(b"b"), Sign(b'.' | PAIR), Text(b"c\\'d")]);
        check("--[==[ x ]] ]==] t[\"k\\\\\"]", &[Name(b"t"), Sign(b'['), Text(b"k\\\\"), Sign(b']')]);
        check("--", &[]);
        check("'open", &[Text(b"open")]);
        check("[=[open]]", &[Text(b"open]]")]);
        check("[=", &[Sign(b'['), Sign(b'=')]);
        check("#!lua", &[Sign(b'#'), Sign(b'!'), Name(b"lua")]);
    }
}
