//! Conversion of commands' replies to Lua values.
//!
//! Source: Redis's page "Redis Lua API reference", section "Data type conversion".

use std::ffi::c_int;

use resp::num;

use crate::state::{LuaState, Raise};

/// Pushes a complete reply. The stack of the native is empty, so there is a slot for a value.
pub(crate) fn push_whole_reply(state: &mut LuaState, bytes: &[u8]) -> Result<(), Raise> {
    match bytes {
        // Fast path for the two most frequent types.
        [b':', rest @ ..] => state.push_number_freely(integer(split_line(rest).0) as f64),
        [b'$', rest @ ..] => {
            let (line, rest) = split_line(rest);
            match length(line) {
                Some(len) => state.push_bytes_freely(&rest[..len])?,
                None => state.push_boolean(false),
            }
        }
        _ => {
            push_reply(state, bytes)?;
        }
    }
    Ok(())
}

/// Pushes the first reply in `bytes`, and returns the rest. The bytes come from a command and are complete.
pub(crate) fn push_reply<'b>(state: &mut LuaState, bytes: &'b [u8]) -> Result<&'b [u8], Raise> {
    let Some((&kind, rest)) = bytes.split_first() else {
        state.push_nil();
        return Ok(bytes);
    };
    let (line, rest) = split_line(rest);
    match kind {
        b'+' => push_named(state, "ok", line)?,
        b'-' => push_error(state, line)?,
        b':' => state.push_number(integer(line) as f64),
        b'$' => match length(line) {
            // A null bulk string becomes false.
            None => state.push_boolean(false),
            Some(len) => {
                state.push_bytes(&rest[..len])?;
                return Ok(&rest[len + 2..]);
            }
        },
        b'*' => match length(line) {
            None => state.push_boolean(false),
            Some(len) => return push_array(state, rest, len),
        },
        b'%' => return push_pairs(state, "map", rest, length(line).unwrap_or(0)),
        b'~' => return push_set(state, rest, length(line).unwrap_or(0)),
        b'_' => state.push_nil(),
        b'#' => state.push_boolean(line == b"t"),
        b',' => {
            state.push_table(0, 1)?;
            state.push_number(num::parse_f64(line).unwrap_or(f64::NAN));
            state.raw_set_named(-2, "double");
        }
        b'(' => push_named(state, "big_number", line)?,
        b'=' => {
            let len = length(line).unwrap_or(0);
            push_verbatim(state, &rest[..len])?;
            return Ok(&rest[len + 2..]);
        }
        b'|' => {
            // An attribute precedes its reply.
            let rest = push_pairs(state, "map", rest, length(line).unwrap_or(0))?;
            state.pop(1);
            return push_reply(state, rest);
        }
        _ => state.push_nil(),
    }
    Ok(rest)
}

/// Splits off a line without its line end.
fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&b| b == b'\r').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 2..).unwrap_or(&[]))
}

/// Parses a number that the server has written.
fn integer(line: &[u8]) -> i64 {
    num::parse_i64(line).unwrap_or(0)
}

/// Parses a length; None for -1.
fn length(line: &[u8]) -> Option<usize> {
    usize::try_from(integer(line)).ok()
}

fn push_named(state: &mut LuaState, name: &str, text: &[u8]) -> Result<(), Raise> {
    state.push_table(0, 1)?;
    state.push_bytes(text)?;
    state.raw_set_named(-2, name);
    Ok(())
}

/// Pushes a command's error. The server counted the error when the command ran.
pub(crate) fn push_error(state: &mut LuaState, text: &[u8]) -> Result<(), Raise> {
    push_named(state, "err", text)?;
    state.push_boolean(true);
    state.raw_set_named(-2, COUNTED);
    Ok(())
}

/// The field that marks an error as counted.
pub(crate) const COUNTED: &str = "ignore_error_stats_update";

/// Slots that every level of nesting needs: the collection, a key, and a value.
const LEVEL_SLOTS: c_int = 4;

fn push_array<'b>(state: &mut LuaState, mut rest: &'b [u8], len: usize) -> Result<&'b [u8], Raise> {
    state.ensure(LEVEL_SLOTS)?;
    state.push_table(len, 0)?;
    for i in 1..=len {
        state.poll()?;
        rest = push_reply(state, rest)?;
        state.raw_set_at(-2, i as c_int);
    }
    Ok(rest)
}

fn push_pairs<'b>(state: &mut LuaState, name: &str, mut rest: &'b [u8], len: usize) -> Result<&'b [u8], Raise> {
    state.ensure(2 * LEVEL_SLOTS)?;
    state.push_table(0, 1)?;
    state.push_table(0, len)?;
    for _ in 0..len {
        state.poll()?;
        rest = push_reply(state, rest)?;
        rest = push_reply(state, rest)?;
        state.raw_set(-3)?;
    }
    state.raw_set_named(-2, name);
    Ok(rest)
}

fn push_set<'b>(state: &mut LuaState, mut rest: &'b [u8], len: usize) -> Result<&'b [u8], Raise> {
    state.ensure(2 * LEVEL_SLOTS)?;
    state.push_table(0, 1)?;
    state.push_table(0, len)?;
    for _ in 0..len {
        state.poll()?;
        rest = push_reply(state, rest)?;
        state.push_boolean(true);
        state.raw_set(-3)?;
    }
    state.raw_set_named(-2, "set");
    Ok(rest)
}

/// Pushes a verbatim string with its format: `txt:...`.
fn push_verbatim(state: &mut LuaState, bytes: &[u8]) -> Result<(), Raise> {
    let (format, text) = bytes.split_at_checked(3).unwrap_or((bytes, b""));
    state.push_table(0, 2)?;
    state.push_bytes(format)?;
    state.raw_set_named(-2, "format");
    state.push_bytes(text.get(1..).unwrap_or(b""))?;
    state.raw_set_named(-2, "string");
    // As with every type of RESP3, a table with one field wraps the value.
    state.push_table(0, 1)?;
    state.insert(-2);
    state.raw_set_named(-2, "verbatim_string");
    Ok(())
}
