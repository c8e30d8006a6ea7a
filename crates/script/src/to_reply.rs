//! Lua values as replies: what a script returns.
//!
//! Source: Redis's page "Redis Lua API reference", section "Data type conversion".

use std::ffi::c_int;

use resp::reply::Reply;

use crate::from_reply::COUNTED;
use crate::host::Host;
use crate::state::{Kind, State};

/// Slots of the stack that a level of nesting takes.
const LEVEL_SLOTS: c_int = 6;
/// How deep a reply may be nested. Lua's stack would allow some more.
const DEPTH_MAX: usize = 1000;
/// What a reply says where it would be nested deeper.
const TOO_DEEP: &str = "ERR reached lua stack limit";

/// Writes the value on top of the stack as a reply, and takes it from there.
pub(crate) fn write(state: &mut State, reply: &mut Reply<'_>, host: &mut dyn Host) {
    // What most scripts return needs no room.
    let top = state.top();
    match state.kind(top) {
        Kind::String => reply.bulk(state.bytes(top).unwrap_or_default()),
        Kind::Number => reply.int(integer(state.number(top).unwrap_or(0.0))),
        _ => return write_at(state, reply, host, 0),
    }
    state.pop(1);
}

fn write_at(state: &mut State, reply: &mut Reply<'_>, host: &mut dyn Host, depth: usize) {
    let top = state.top();
    if depth > DEPTH_MAX || state.ensure(LEVEL_SLOTS).is_err() {
        reply.error(TOO_DEEP);
        return state.set_top(top - 1);
    }
    match state.kind(-1) {
        Kind::String => reply.bulk(state.bytes(-1).unwrap_or_default()),
        Kind::Number => reply.int(integer(state.number(-1).unwrap_or(0.0))),
        // In RESP2, Lua's false is nothing, since nothing is false in Lua.
        Kind::Boolean => write_boolean(state.boolean(-1), reply, state.speaks_resp3()),
        Kind::Table => return write_table(state, reply, host, depth),
        _ => reply.null(),
    }
    state.pop(1);
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
fn field(state: &mut State, name: &str, kind: Kind) -> bool {
    state.raw_get_named(-1, name);
    let found = state.kind(-1) == kind;
    if !found {
        state.pop(1);
    }
    found
}

fn write_table(state: &mut State, reply: &mut Reply<'_>, host: &mut dyn Host, depth: usize) {
    if !state.is_plain_sequence(-1) && write_meant(state, reply, host, depth) {
        state.pop(1);
        return;
    }
    let len = len_to_first_hole(state);
    reply.array(len as usize);
    for i in 1..=len {
        state.raw_get_at(-1, i);
        write_at(state, reply, host, depth + 1);
    }
    state.pop(1);
}

/// How many elements there are before the first that is nil, which need not be where Lua finds the border.
fn len_to_first_hole(state: &mut State) -> c_int {
    let mut len = 0;
    loop {
        state.raw_get_at(-1, len + 1);
        let is_end = state.kind(-1) == Kind::Nil;
        state.pop(1);
        if is_end {
            return len;
        }
        len += 1;
    }
}

/// Writes a table that means something else than a sequence, if it does. The table stays on the stack.
fn write_meant(state: &mut State, reply: &mut Reply<'_>, host: &mut dyn Host, depth: usize) -> bool {
    if field(state, "err", Kind::String) {
        let text = state.bytes(-1).unwrap_or_default().to_vec();
        state.pop(1);
        let is_new = !field(state, COUNTED, Kind::Boolean);
        if !is_new {
            state.pop(1);
        }
        host.error_returned(&text, is_new);
        reply.error(&text);
        return true;
    }
    if field(state, "ok", Kind::String) {
        reply.status(state.bytes(-1).unwrap_or_default());
        state.pop(1);
        return true;
    }
    if field(state, "double", Kind::Number) {
        reply.double(state.number(-1).unwrap_or(0.0));
        state.pop(1);
        return true;
    }
    if field(state, "map", Kind::Table) {
        write_map(state, reply, host, depth);
        state.pop(1);
        return true;
    }
    if field(state, "set", Kind::Table) {
        write_set(state, reply, host, depth);
        state.pop(1);
        return true;
    }
    if field(state, "big_number", Kind::String) {
        let clean = |&b: &u8| if matches!(b, b'\r' | b'\n') { ' ' } else { char::from(b) };
        let digits: String = state.bytes(-1).unwrap_or_default().iter().map(clean).collect();
        reply.big_number(&digits);
        state.pop(1);
        return true;
    }
    if field(state, "verbatim_string", Kind::Table) {
        let written = write_verbatim(state, reply);
        state.pop(1);
        return written;
    }
    false
}

fn write_verbatim(state: &mut State, reply: &mut Reply<'_>) -> bool {
    if !field(state, "format", Kind::String) {
        return false;
    }
    let mut format = String::from_utf8_lossy(state.bytes(-1).unwrap_or_default()).into_owned();
    state.pop(1);
    if !field(state, "string", Kind::String) {
        return false;
    }
    // The protocol has exactly three bytes for it.
    format.retain(|c| c.is_ascii_graphic());
    reply.verbatim(&format!("{format:<3.3}"), state.bytes(-1).unwrap_or_default());
    state.pop(1);
    true
}

/// Calls `visit` for every pair of the table on top, with the key and the value on the stack; it takes the value.
fn each_pair(state: &mut State, mut visit: impl FnMut(&mut State)) {
    state.push_nil();
    // SAFETY: the key is nil or the last that was visited, and nothing is added to the table meanwhile.
    while unsafe { state.next(-2) } {
        visit(state);
    }
}

fn pairs(state: &mut State) -> usize {
    let mut count = 0;
    each_pair(state, |state| {
        count += 1;
        state.pop(1);
    });
    count
}

fn write_map(state: &mut State, reply: &mut Reply<'_>, host: &mut dyn Host, depth: usize) {
    reply.map(pairs(state));
    each_pair(state, |state| {
        state.push_copy(-2);
        write_at(state, reply, host, depth + 1);
        write_at(state, reply, host, depth + 1);
    });
}

fn write_set(state: &mut State, reply: &mut Reply<'_>, host: &mut dyn Host, depth: usize) {
    reply.set(pairs(state));
    each_pair(state, |state| {
        state.pop(1);
        state.push_copy(-1);
        write_at(state, reply, host, depth + 1);
    });
}
