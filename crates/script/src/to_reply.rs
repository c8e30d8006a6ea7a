//! Conversion of a script's result to a reply.
//!
//! Source: Redis's page "Redis Lua API reference", section "Data type conversion".

use std::ffi::c_int;

use resp::reply::Reply;

use crate::from_reply::COUNTED;
use crate::host::Host;
use crate::state::{LuaState, LuaType};

/// Slots of Lua's stack that writing a value needs, including those of one more level of nesting.
const SLOTS: c_int = 4;
/// The error in place of a value nested deeper than Lua's stack allows: 7991 levels. (Redis allows 7995, because it
/// keeps less on the stack.)
const TOO_DEEP: &str = "ERR reached lua stack limit";

/// A collection whose elements are being written. The levels are on the heap, since the thread's stack is too small for
/// as many levels as Lua's stack allows.
enum Level {
    /// The table is on the stack.
    Sequence { written: c_int, len: c_int },
    /// The table and the current key are on the stack, and also the key's value if it has not been written yet.
    Map { value_waits: bool },
    /// The table and the current key are on the stack.
    Set,
}

/// Pops the value on top of the stack and writes it as a reply.
pub(crate) fn write(state: &mut LuaState, reply: &mut Reply<'_>, host: &mut dyn Host) {
    // Most results are simple values and need no extra slots.
    let top = state.top();
    match state.kind(top) {
        LuaType::String => reply.bulk(state.bytes(top).unwrap_or_default()),
        LuaType::Number => reply.int(integer(state.number(top).unwrap_or(0.0))),
        _ => return write_nested(state, reply, host),
    }
    state.pop(1);
}

fn write_nested(state: &mut LuaState, reply: &mut Reply<'_>, host: &mut dyn Host) {
    let mut levels = Vec::new();
    // The highest place of a value with enough free slots above it. Values at the same or a lower place need no further check.
    let mut fitting = 0;
    loop {
        let top = state.top();
        if top > fitting && !state.fits(SLOTS) {
            reply.error(TOO_DEEP);
            state.pop(1);
        } else {
            fitting = fitting.max(top);
            levels.extend(write_value(state, top, reply, host));
        }
        while levels.last_mut().is_some_and(|level| !push_next(state, level)) {
            levels.pop();
        }
        if levels.is_empty() {
            return;
        }
    }
}

/// Pushes a level's next element. After the last one, pops everything of the level and returns false.
fn push_next(state: &mut LuaState, level: &mut Level) -> bool {
    match level {
        Level::Sequence { written, len } if *written < *len => {
            *written += 1;
            state.raw_get_at(-1, *written);
            return true;
        }
        Level::Sequence { .. } => {}
        Level::Map { value_waits } => {
            if std::mem::take(value_waits) {
                return true;
            }
            // SAFETY: the key is nil or the last visited one, and nothing is added to the table meanwhile.
            if unsafe { state.next(-2) } {
                *value_waits = true;
                state.push_copy(-2);
                return true;
            }
        }
        Level::Set => {
            // SAFETY: as above.
            if unsafe { state.next(-2) } {
                state.pop(1);
                state.push_copy(-1);
                return true;
            }
        }
    }
    state.pop(1);
    false
}

/// Pops the value at the top of the stack, `top`, and writes it. For a non-empty collection it writes only the length, and returns
/// the level with the elements.
fn write_value(state: &mut LuaState, top: c_int, reply: &mut Reply<'_>, host: &mut dyn Host) -> Option<Level> {
    match state.kind(top) {
        LuaType::String => reply.bulk(state.bytes(top).unwrap_or_default()),
        LuaType::Number => reply.int(integer(state.number(top).unwrap_or(0.0))),
        // In RESP2, Lua's false is null.
        LuaType::Boolean => write_boolean(state.boolean(top), reply, state.speaks_resp3()),
        LuaType::Table => return write_table(state, reply, host),
        _ => reply.null(),
    }
    state.pop(1);
    None
}

fn write_boolean(value: bool, reply: &mut Reply<'_>, script_speaks_resp3: bool) {
    match value {
        _ if script_speaks_resp3 => reply.boolean(value),
        true => reply.int(1),
        false => reply.null(),
    }
}

/// Converts a number as C does on Redis's platforms: truncated towards zero; the smallest integer for NaN and for
/// values out of range.
pub(crate) fn integer(number: f64) -> i64 {
    /// 2 to the power of 63.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Pushes a field of the table on top if it has this type. Returns false, and pushes nothing, otherwise.
fn field(state: &mut LuaState, name: &str, kind: LuaType) -> bool {
    state.raw_get_named(-1, name);
    let found = state.kind(-1) == kind;
    if !found {
        state.pop(1);
    }
    found
}

fn write_table(state: &mut LuaState, reply: &mut Reply<'_>, host: &mut dyn Host) -> Option<Level> {
    if !state.is_plain_sequence(-1) {
        if write_meant(state, reply, host) {
            state.pop(1);
            return None;
        }
        if let Some(level) = open_meant(state, reply) {
            // The table around this one is not needed any more.
            state.remove(-2);
            state.push_nil();
            return Some(level);
        }
    }
    let len = state.len_to_first_nil(-1);
    reply.array(len as usize);
    Some(Level::Sequence { written: 0, len })
}

/// Opens the RESP3 collection that the table on top stands for, if it does, and pushes the collection's own table.
fn open_meant(state: &mut LuaState, reply: &mut Reply<'_>) -> Option<Level> {
    if field(state, "map", LuaType::Table) {
        reply.map(pairs(state));
        return Some(Level::Map { value_waits: false });
    }
    if field(state, "set", LuaType::Table) {
        reply.set(pairs(state));
        return Some(Level::Set);
    }
    None
}

/// Writes a table that stands for a value other than a collection, and returns true if it does. The table stays on the
/// stack.
fn write_meant(state: &mut LuaState, reply: &mut Reply<'_>, host: &mut dyn Host) -> bool {
    if field(state, "err", LuaType::String) {
        let text = state.bytes(-1).unwrap_or_default().to_vec();
        state.pop(1);
        let is_new = !field(state, COUNTED, LuaType::Boolean);
        if !is_new {
            state.pop(1);
        }
        host.error_returned(&text, is_new);
        reply.error(&text);
        return true;
    }
    if field(state, "ok", LuaType::String) {
        reply.status(state.bytes(-1).unwrap_or_default());
        state.pop(1);
        return true;
    }
    if field(state, "double", LuaType::Number) {
        reply.double(state.number(-1).unwrap_or(0.0));
        state.pop(1);
        return true;
    }
    if field(state, "big_number", LuaType::String) {
        let clean = |&b: &u8| if matches!(b, b'\r' | b'\n') { ' ' } else { char::from(b) };
        let digits: String = state.bytes(-1).unwrap_or_default().iter().map(clean).collect();
        reply.big_number(&digits);
        state.pop(1);
        return true;
    }
    if field(state, "verbatim_string", LuaType::Table) {
        let written = write_verbatim(state, reply);
        state.pop(1);
        return written;
    }
    false
}

fn write_verbatim(state: &mut LuaState, reply: &mut Reply<'_>) -> bool {
    if !field(state, "format", LuaType::String) {
        return false;
    }
    let mut format = String::from_utf8_lossy(state.bytes(-1).unwrap_or_default()).into_owned();
    state.pop(1);
    if !field(state, "string", LuaType::String) {
        return false;
    }
    // The format has exactly three bytes in the protocol.
    format.retain(|c| c.is_ascii_graphic());
    reply.verbatim(&format!("{format:<3.3}"), state.bytes(-1).unwrap_or_default());
    state.pop(1);
    true
}

/// Returns the number of pairs in the table on top.
fn pairs(state: &mut LuaState) -> usize {
    let mut count = 0;
    state.push_nil();
    // SAFETY: the key is nil or the last visited one, and nothing is added to the table meanwhile.
    while unsafe { state.next(-2) } {
        count += 1;
        state.pop(1);
    }
    count
}
