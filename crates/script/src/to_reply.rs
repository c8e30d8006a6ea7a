//! Lua values as replies: what a script returns.
//!
//! Source: Redis's page "Redis Lua API reference", section "Data type conversion".

use std::ffi::c_int;

use resp::reply::Reply;

use crate::from_reply::COUNTED;
use crate::host::Host;
use crate::state::{LuaState, LuaType};

/// Slots of Lua's stack that are needed to write a value, with those that a level of nesting takes.
const SLOTS: c_int = 4;
/// What a reply says where it would be nested deeper than Lua's stack allows: 7991 levels. (In Redis, 7995: less is
/// kept on its stack.)
const TOO_DEEP: &str = "ERR reached lua stack limit";

/// A collection whose elements are being written. Nesting takes no room on the thread's stack, which is not large
/// enough for as many levels as Lua's.
enum Level {
    /// Its table is on the stack.
    Sequence { written: c_int, len: c_int },
    /// Its table and the key that was visited last are on the stack, and the key's value, if that is yet to be written.
    Map { value_waits: bool },
    /// Its table and the key that was visited last are on the stack.
    Set,
}

/// Writes the value on top of the stack as a reply, and takes it from there.
pub(crate) fn write(state: &mut LuaState, reply: &mut Reply<'_>, host: &mut dyn Host) {
    // What most scripts return needs no room.
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
    loop {
        if !state.fits(SLOTS) {
            reply.error(TOO_DEEP);
            state.pop(1);
        } else {
            levels.extend(write_value(state, reply, host));
        }
        while levels.last_mut().is_some_and(|level| !push_next(state, level)) {
            levels.pop();
        }
        if levels.is_empty() {
            return;
        }
    }
}

/// Pushes a level's next element. After the last, takes all that is the level's from the stack, and says no.
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
            // SAFETY: the key is nil or the last that was visited, and nothing is added to the table meanwhile.
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

/// Writes the value on top of the stack, and takes it from there; of a collection, only how much is in it, if it is not
/// empty or means something else.
fn write_value(state: &mut LuaState, reply: &mut Reply<'_>, host: &mut dyn Host) -> Option<Level> {
    match state.kind(-1) {
        LuaType::String => reply.bulk(state.bytes(-1).unwrap_or_default()),
        LuaType::Number => reply.int(integer(state.number(-1).unwrap_or(0.0))),
        // In RESP2, Lua's false is nothing, since nothing is false in Lua.
        LuaType::Boolean => write_boolean(state.boolean(-1), reply, state.speaks_resp3()),
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

/// A number as C converts it on the machines that Redis runs on: cut towards zero, and the smallest integer where it is
/// none.
pub(crate) fn integer(number: f64) -> i64 {
    /// 2 to the power of 63.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Pushes a field of the table on top. Says whether it is of this type; if not, nothing is pushed.
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
            // What it stands in is of no more use.
            state.remove(-2);
            state.push_nil();
            return Some(level);
        }
    }
    let len = len_to_first_hole(state);
    reply.array(len as usize);
    Some(Level::Sequence { written: 0, len })
}

/// Begins a collection of RESP3's that the table on top means, if it does; its own table is on top of that then.
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

/// How many elements there are before the first that is nil, which need not be where Lua finds the border.
fn len_to_first_hole(state: &mut LuaState) -> c_int {
    let mut len = 0;
    loop {
        state.raw_get_at(-1, len + 1);
        let is_end = state.kind(-1) == LuaType::Nil;
        state.pop(1);
        if is_end {
            return len;
        }
        len += 1;
    }
}

/// Writes a table that means something else than a collection, if it does. The table stays on the stack.
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
    // The protocol has exactly three bytes for it.
    format.retain(|c| c.is_ascii_graphic());
    reply.verbatim(&format!("{format:<3.3}"), state.bytes(-1).unwrap_or_default());
    state.pop(1);
    true
}

/// How many pairs the table on top has.
fn pairs(state: &mut LuaState) -> usize {
    let mut count = 0;
    state.push_nil();
    // SAFETY: the key is nil or the last that was visited, and nothing is added to the table meanwhile.
    while unsafe { state.next(-2) } {
        count += 1;
        state.pop(1);
    }
    count
}
