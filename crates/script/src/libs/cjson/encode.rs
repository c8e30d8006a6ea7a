//! Conversion of values to JSON text.

use std::ffi::c_int;

use super::{Invalid, JsonSettings, number, options};
use crate::libs::seal;
use crate::libs::support::{NESTING_MAX, for_each_pair, to_int_directly};
use crate::state::{LuaState, LuaType, Raise};

/// Stack slots of a level of nesting.
const SLOTS: c_int = 3;

/// `cjson.encode(value)`
pub fn encode(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() != 1 {
        return Err(state.argument_error(1, "expected 1 argument"));
    }
    let mut encoder = Encoder { options: *options(state), out: state.take_scratch() };
    let encoded = encoder.value(state, 0).and_then(|()| state.push_bytes(&encoder.out));
    state.return_scratch(encoder.out);
    encoded.map(|()| 1)
}

/// Returns an upper bound for the length of a string on the stack between quotes. The bytes are counted only for long strings, since an
/// escape takes six bytes (CVE-2022-24834).
fn quoted_len(state: &LuaState, index: c_int) -> usize {
    /// A string up to this length takes little memory in any case.
    const SHORT_BYTES: usize = 4096;
    const ESCAPE_BYTES: usize = 6;
    let len = state.raw_len(index);
    if len <= SHORT_BYTES {
        return ESCAPE_BYTES * len;
    }
    let escaped = state.bytes(index).unwrap_or_default().iter().filter(|&&byte| ESCAPED[usize::from(byte)]).count();
    len + (ESCAPE_BYTES - 1) * escaped
}

/// The text that is being built. The methods read the value on top of the stack.
struct Encoder {
    options: JsonSettings,
    out: Vec<u8>,
}

impl Encoder {
    fn value(&mut self, state: &mut LuaState, depth: c_int) -> Result<(), Raise> {
        let kind = state.kind(-1);
        if kind == LuaType::String {
            return self.string(state, -1);
        }
        state.room_for(self.out.len())?;
        match kind {
            LuaType::Number => return self.number(state, -1),
            LuaType::Boolean if state.boolean(-1) => self.out.extend_from_slice(b"true"),
            LuaType::Boolean => self.out.extend_from_slice(b"false"),
            LuaType::Table => return self.table(state, depth + 1),
            LuaType::Nil => self.out.extend_from_slice(b"null"),
            LuaType::LightUserdata if state.identity(-1) == 0 => self.out.extend_from_slice(b"null"),
            _ => return Err(refuse(state, -1, "type not supported")),
        }
        Ok(())
    }

    fn table(&mut self, state: &mut LuaState, depth: c_int) -> Result<(), Raise> {
        let fits = depth <= self.options.encode_depth_max.min(NESTING_MAX) && state.ensure(SLOTS).is_ok();
        if !fits {
            return Err(state.error(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        seal::see_through(state, -1);
        match self.sequence_length(state)? {
            len @ 1.. => self.array(state, depth, len),
            _ => self.object(state, depth),
        }
    }

    /// Returns the largest index, or -1 for a table that becomes an object.
    fn sequence_length(&self, state: &mut LuaState) -> Result<c_int, Raise> {
        let (mut longest, mut count) = (0, 0);
        let only_indexes = for_each_pair(state, |state| {
            let index = if state.kind(-2) == LuaType::Number { state.number(-2).unwrap_or_default() } else { 0.0 };
            let is_index = index >= 1.0 && index.floor() == index;
            if is_index {
                count += 1;
                longest = if index > f64::from(longest) { to_int_directly(index) } else { longest };
            }
            Ok(is_index)
        })?;
        if !only_indexes {
            return Ok(-1);
        }
        let ratio = i64::from(self.options.sparse_ratio);
        let sparse = ratio > 0 && i64::from(longest) > count * ratio && longest > self.options.sparse_safe;
        match (sparse, self.options.sparse_convert) {
            (false, _) => Ok(longest),
            (true, true) => Ok(-1),
            (true, false) => Err(refuse(state, -1, "excessively sparse array")),
        }
    }

    fn array(&mut self, state: &mut LuaState, depth: c_int, len: c_int) -> Result<(), Raise> {
        self.out.push(b'[');
        for item in 1..=len {
            state.poll()?;
            if item > 1 {
                self.out.push(b',');
            }
            state.raw_get_at(-1, item);
            self.value(state, depth)?;
            state.pop(1);
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, state: &mut LuaState, depth: c_int) -> Result<(), Raise> {
        self.out.push(b'{');
        let mut first = true;
        for_each_pair(state, |state| {
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            self.key(state)?;
            self.out.push(b':');
            self.value(state, depth)?;
            Ok(true)
        })?;
        self.out.push(b'}');
        Ok(())
    }

    fn key(&mut self, state: &mut LuaState) -> Result<(), Raise> {
        match state.kind(-2) {
            LuaType::String => self.string(state, -2)?,
            LuaType::Number => {
                self.out.push(b'"');
                self.number(state, -2)?;
                self.out.push(b'"');
            }
            _ => return Err(refuse(state, -2, "table key must be a number or string")),
        }
        Ok(())
    }

    fn number(&mut self, state: &mut LuaState, index: c_int) -> Result<(), Raise> {
        let number = state.number(index).unwrap_or_default();
        match self.options.encode_invalid {
            _ if number.is_finite() => {}
            Invalid::Refused => return Err(refuse(state, index, "must not be NaN or Inf")),
            Invalid::Null => {
                self.out.extend_from_slice(b"null");
                return Ok(());
            }
            Invalid::Written if number.is_nan() => {
                self.out.extend_from_slice(b"nan");
                return Ok(());
            }
            Invalid::Written => {}
        }
        number::write(&mut self.out, number, self.options.precision as usize);
        Ok(())
    }

    fn string(&mut self, state: &mut LuaState, index: c_int) -> Result<(), Raise> {
        state.room_for(self.out.len() + quoted_len(state, index))?;
        self.quote(state.bytes(index).unwrap_or_default());
        Ok(())
    }

    /// Appends a quoted string; runs of bytes without escapes are copied at once.
    fn quote(&mut self, text: &[u8]) {
        self.out.push(b'"');
        let mut copied = 0;
        for (at, &byte) in text.iter().enumerate() {
            if !ESCAPED[usize::from(byte)] {
                continue;
            }
            self.out.extend_from_slice(&text[copied..at]);
            self.escape(byte);
            copied = at + 1;
        }
        self.out.extend_from_slice(&text[copied..]);
        self.out.push(b'"');
    }

    #[cold]
    fn escape(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let letter = match byte {
            b'"' | b'\\' | b'/' => byte,
            8 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            12 => b'f',
            b'\r' => b'r',
            _ => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                self.out.extend_from_slice(b"\\u00");
                self.out.extend_from_slice(&digits);
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', letter]);
    }
}

/// Bytes that must be escaped in JSON strings.
const ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte < 32 {
        escaped[byte] = true;
        byte += 1;
    }
    escaped[b'"' as usize] = true;
    escaped[b'\\' as usize] = true;
    escaped[b'/' as usize] = true;
    escaped[127] = true;
    escaped
};

#[cold]
fn refuse(state: &mut LuaState, index: c_int, why: &str) -> Raise {
    let kind = state.kind(index).name();
    state.error(format!("Cannot serialise {kind}: {why}"))
}
