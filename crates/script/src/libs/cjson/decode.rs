//! Conversion of JSON text to values.

use std::ffi::c_int;

use super::{JsonSettings, number, options};
use crate::libs::support::NESTING_MAX;
use crate::state::{LuaState, Raise};

/// Stack slots of a level of nesting: a table, a key and a value for an object; a table and a value for an array.
const OBJECT_SLOTS: c_int = 3;
const ARRAY_SLOTS: c_int = 2;

/// `cjson.decode(text)`
pub fn decode(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() != 1 {
        return Err(state.argument_error(1, "expected 1 argument"));
    }
    state.check_bytes(1)?;
    // SAFETY: the argument stays in its place.
    let text = unsafe { state.argument(1) };
    state.poll_for(text.len())?;
    if matches!(text, [0, _, ..] | [_, 0, ..]) {
        return Err(state.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { text, at: 0, options: *options(state), depth: 0, unescaped: state.take_scratch() };
    let decoded = decoder.document(state);
    state.return_scratch(decoder.unescaped);
    decoded.map(|()| 1)
}

/// The tokens of a text, with their names in error texts.
#[derive(Clone, Copy, PartialEq)]
enum Token<'t> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// A string without escapes.
    Plain(&'t [u8]),
    /// A string with escapes. The result is in [`Decoder::unescaped`].
    Escaped,
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token<'_> {
    fn name(self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Plain(_) | Token::Escaped => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// A text that is being decoded.
struct Decoder<'t> {
    text: &'t [u8],
    at: usize,
    options: JsonSettings,
    depth: c_int,
    unescaped: Vec<u8>,
}

impl<'t> Decoder<'t> {
    fn document(&mut self, state: &mut LuaState) -> Result<(), Raise> {
        let token = self.next();
        self.value(state, token)?;
        match self.next() {
            (Token::End, _) => Ok(()),
            other => Err(unexpected(state, "the end", other)),
        }
    }

    fn value(&mut self, state: &mut LuaState, (token, at): (Token<'t>, usize)) -> Result<(), Raise> {
        match token {
            Token::Plain(text) => state.push_bytes(text)?,
            Token::Escaped => state.push_bytes(&self.unescaped)?,
            Token::Number(number) => state.push_number(number),
            Token::Boolean(value) => state.push_boolean(value),
            Token::Null => state.push_light_userdata(0),
            Token::ObjectBegin => self.object(state)?,
            Token::ArrayBegin => self.array(state)?,
            _ => return Err(unexpected(state, "value", (token, at))),
        }
        Ok(())
    }

    fn descend(&mut self, state: &mut LuaState, slots: c_int) -> Result<(), Raise> {
        self.depth += 1;
        let fits = self.depth <= self.options.decode_depth_max.min(NESTING_MAX) && state.ensure(slots).is_ok();
        if fits {
            return state.push_table(0, 0);
        }
        let (depth, at) = (self.depth, self.at);
        Err(state.error(format!("Found too many nested data structures ({depth}) at character {at}")))
    }

    fn object(&mut self, state: &mut LuaState) -> Result<(), Raise> {
        self.descend(state, OBJECT_SLOTS)?;
        let mut token = self.next();
        if token.0 == Token::ObjectEnd {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            state.poll()?;
            match token.0 {
                Token::Plain(_) | Token::Escaped => self.value(state, token)?,
                _ => return Err(unexpected(state, "object key string", token)),
            }
            token = self.next();
            if token.0 != Token::Colon {
                return Err(unexpected(state, "colon", token));
            }
            token = self.next();
            self.value(state, token)?;
            state.raw_set(-3)?;
            token = self.next();
            match token.0 {
                Token::ObjectEnd => break,
                Token::Comma => token = self.next(),
                _ => return Err(unexpected(state, "comma or object end", token)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self, state: &mut LuaState) -> Result<(), Raise> {
        self.descend(state, ARRAY_SLOTS)?;
        let mut token = self.next();
        if token.0 == Token::ArrayEnd {
            self.depth -= 1;
            return Ok(());
        }
        for item in 1.. {
            state.poll()?;
            self.value(state, token)?;
            state.raw_set_at(-2, item);
            token = self.next();
            match token.0 {
                Token::ArrayEnd => break,
                Token::Comma => token = self.next(),
                _ => return Err(unexpected(state, "comma or array end", token)),
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Returns the byte at a position; 0 beyond the end, as in the original parser, which reads C strings.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Returns the next token, and the position of the token or of the error.
    fn next(&mut self) -> (Token<'t>, usize) {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let start = self.at;
        let (token, len) = match self.byte(start) {
            b'{' => (Token::ObjectBegin, 1),
            b'}' => (Token::ObjectEnd, 1),
            b'[' => (Token::ArrayBegin, 1),
            b']' => (Token::ArrayEnd, 1),
            b',' => (Token::Comma, 1),
            b':' => (Token::Colon, 1),
            0 => (Token::End, 0),
            b'"' => {
                let token = self.string();
                return (token, if matches!(token, Token::Error(_)) { self.at } else { start });
            }
            b'-' | b'0'..=b'9' => self.number("invalid number"),
            b't' if self.text[start..].starts_with(b"true") => (Token::Boolean(true), 4),
            b'f' if self.text[start..].starts_with(b"false") => (Token::Boolean(false), 5),
            b'n' if self.text[start..].starts_with(b"null") => (Token::Null, 4),
            b'+' | b'i' | b'I' | b'n' | b'N' if is_invalid_number(&self.text[start..]) => self.number("invalid token"),
            _ => (Token::Error("invalid token"), 0),
        };
        self.at += len;
        (token, start)
    }

    fn number(&self, refusal: &'static str) -> (Token<'t>, usize) {
        let text = &self.text[self.at..];
        if !self.options.decode_invalid && is_invalid_number(text) {
            return (Token::Error(refusal), 0);
        }
        match number::read(text) {
            Some((number, len)) => (Token::Number(number), len),
            None => (Token::Error("invalid number"), 0),
        }
    }

    /// Reads a string that begins with the next quote. On an error, the position is that of the error.
    fn string(&mut self) -> Token<'t> {
        self.at += 1;
        let start = self.at;
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0);
        let plain = &self.text[start..];
        let len = plain.iter().position(special).unwrap_or(plain.len());
        self.at += len;
        if self.byte(self.at) == b'"' {
            self.at += 1;
            return Token::Plain(&plain[..len]);
        }
        self.unescaped.clear();
        self.unescaped.extend_from_slice(&plain[..len]);
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return Token::Error("unexpected end of string"),
                b'\\' => {
                    if let Err(text) = self.escape() {
                        return Token::Error(text);
                    }
                }
                byte => {
                    self.unescaped.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::Escaped
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        let byte = match self.byte(self.at + 1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 12,
            b'r' => b'\r',
            b'u' => {
                let (character, len) = self.unicode().ok_or("invalid unicode escape code")?;
                self.unescaped.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        self.unescaped.push(byte);
        self.at += 2;
        Ok(())
    }

    /// Returns the character of `\uXXXX`, or of a pair of surrogates, and its length in the text.
    fn unicode(&self) -> Option<(char, usize)> {
        const LEN: usize = 6;
        let first = self.unit(self.at)?;
        if !(0xd800..0xe000).contains(&first) {
            return Some((char::from_u32(first)?, LEN));
        }
        let second = self.unit(self.at + LEN)?;
        if first >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
            return None;
        }
        let code = 0x10000 + ((first & 0x3ff) << 10 | (second & 0x3ff));
        Some((char::from_u32(code)?, 2 * LEN))
    }

    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..)?.strip_prefix(b"\\u")?.get(..4)?;
        digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
    }
}

/// Returns true for a number that JSON does not allow although C accepts it.
fn is_invalid_number(text: &[u8]) -> bool {
    let text = match text {
        [b'+', ..] => return true,
        [b'-', rest @ ..] | rest => rest,
    };
    match text {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [..=b'9', ..] | [] => false,
        _ => {
            let start = text.get(..3).unwrap_or_default();
            start.eq_ignore_ascii_case(b"inf") || start.eq_ignore_ascii_case(b"nan")
        }
    }
}

#[cold]
fn unexpected(state: &mut LuaState, expected: &str, (token, at): (Token<'_>, usize)) -> Raise {
    state.error(format!("Expected {expected} but found {} at character {}", token.name(), at + 1))
}
