//! Lua's basic functions, without those that reach out of the sandbox, and with replacements for those that could break
//! it.

use std::ffi::{CString, c_int};

use mlua_sys::lua51 as ffi;

use crate::libs::support::{check_long_or, ensure_for};
use crate::libs::{raw, seal};
use crate::native;
use crate::state::{CFunction, LuaState, LuaType, Raise};
use crate::vm;

/// Functions removed from the globals. `newproxy` creates values with finalizers, which run at times when no script may
/// run; `setfenv` and `getfenv` reach the environments of other functions; the others reach files, standard output or
/// packages.
const REMOVED: [&str; 9] =
    ["dofile", "loadfile", "print", "newproxy", "getfenv", "setfenv", "module", "require", "package"];

/// Changes the globals and the table `coroutine`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    for name in REMOVED {
        state.push_nil();
        state.set_global(name);
    }
    let functions: [(&str, CFunction); 11] = [
        ("next", raw::next),
        ("rawget", native!(rawget)),
        ("rawset", native!(rawset)),
        ("getmetatable", native!(getmetatable)),
        ("setmetatable", native!(setmetatable)),
        ("unpack", native!(unpack)),
        ("load", native!(load)),
        ("loadstring", native!(loadstring)),
        ("collectgarbage", native!(collectgarbage)),
        ("pcall", native!(pcall)),
        ("xpcall", native!(xpcall)),
    ];
    for (name, entry) in functions {
        state.push_native(entry);
        state.set_global(name);
    }
    state.push_native(raw::next);
    state.push_closure(raw::pairs, 1);
    state.set_global("pairs");
    open_coroutine(state);
    open_os(state)
}

/// Scripts get only `clock` of the library `os`.
fn open_os(state: &mut LuaState) -> Result<(), Raise> {
    state.push_native(ffi::luaopen_os);
    state.call(0, 1)?;
    state.raw_get_named(-1, "clock");
    state.push_table(0, 1)?;
    state.insert(-2);
    state.raw_set_named(-2, "clock");
    state.set_global("os");
    state.pop(1);
    Ok(())
}

fn open_coroutine(state: &mut LuaState) {
    state.push_globals();
    state.raw_get_named(-1, "coroutine");
    state.raw_get_named(-1, "resume");
    state.push_closure(raw::resume, 1);
    state.raw_set_named(-2, "resume");
    state.pop(2);
}

fn check_any(state: &mut LuaState, n: c_int) -> Result<(), Raise> {
    match state.kind(n) {
        LuaType::None => Err(state.argument_error(n, "value expected")),
        _ => Ok(()),
    }
}

fn rawget(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    check_any(state, 2)?;
    state.set_top(2);
    seal::see_through(state, 1);
    state.raw_get(1);
    Ok(1)
}

fn rawset(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    check_any(state, 2)?;
    check_any(state, 3)?;
    state.set_top(3);
    refuse_guard(state, 1)?;
    state.raw_set(1)?;
    Ok(1)
}

/// Raises an error if the table is a guard, which all scripts share.
pub fn refuse_guard(state: &mut LuaState, index: c_int) -> Result<(), Raise> {
    if seal::is_guard(state, index) { Err(state.error_value(seal::READ_ONLY.as_bytes())) } else { Ok(()) }
}

/// Pushes the field `__metatable` of a value's metatable, if it is set.
fn push_protection(state: &mut LuaState, index: c_int) -> bool {
    if !state.push_metatable(index) {
        return false;
    }
    state.raw_get_named(-1, "__metatable");
    state.remove(-2);
    let is_there = state.kind(-1) != LuaType::Nil;
    if !is_there {
        state.pop(1);
    }
    is_there
}

fn getmetatable(state: &mut LuaState) -> Result<c_int, Raise> {
    check_any(state, 1)?;
    state.set_top(1);
    seal::see_through(state, 1);
    if push_protection(state, 1) {
        return Ok(1);
    }
    if !state.push_metatable(1) {
        state.push_nil();
    } else if seal::push_guard_of(state, -1) {
        state.remove(-2);
    }
    Ok(1)
}

fn setmetatable(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Table)?;
    if !matches!(state.kind(2), LuaType::Nil | LuaType::Table) {
        return Err(state.argument_error(2, "nil or table expected"));
    }
    state.set_top(2);
    refuse_guard(state, 1)?;
    if push_protection(state, 1) {
        return Err(state.error("cannot change a protected metatable"));
    }
    seal::see_through(state, 2);
    state.set_metatable(1);
    Ok(1)
}

/// `unpack`. The number of values is computed without overflow (CVE-2025-46817).
fn unpack(state: &mut LuaState) -> Result<c_int, Raise> {
    const TOO_MANY: &str = "too many results to unpack";
    state.check_kind(1, LuaType::Table)?;
    let first = check_long_or(state, 2, 1)? as c_int;
    let len = state.raw_len(1) as i64;
    let last = check_long_or(state, 3, len)? as c_int;
    if first > last {
        return Ok(0);
    }
    let count = i64::from(last) - i64::from(first) + 1;
    let Some(count) = c_int::try_from(count).ok().filter(|&count| state.fits(count)) else {
        return Err(state.error(TOO_MANY));
    };
    for item in first..=last {
        state.raw_get_at(1, item);
    }
    Ok(count)
}

/// Returns a chunk's name, which ends at a zero byte like C's strings.
fn chunk_name(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}

fn loadstring(state: &mut LuaState) -> Result<c_int, Raise> {
    let text = state.check_bytes(1)?.to_vec();
    let name = match state.kind(2) {
        LuaType::None | LuaType::Nil => chunk_name(&text),
        _ => chunk_name(state.check_bytes(2)?),
    };
    load_text(state, &text, &name)
}

/// `load`. Collects all pieces before parsing: the parser must never run a script's code, because that code could make
/// the collector free strings of the parser (CVE-2025-49844).
fn load(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_kind(1, LuaType::Function)?;
    let name = match state.kind(2) {
        LuaType::None | LuaType::Nil => c"=(load)".to_owned(),
        _ => chunk_name(state.check_bytes(2)?),
    };
    let mut text = Vec::new();
    loop {
        state.poll()?;
        state.push_copy(1);
        if let Err(raise) = state.call(0, 1) {
            return if state.is_ending() { Err(raise) } else { Ok(nil_and_error(state)) };
        }
        match state.kind(-1) {
            LuaType::String | LuaType::Number => {
                // SAFETY: the piece is used before it is popped.
                let piece = unsafe { state.argument(-1) };
                text.extend_from_slice(piece);
                let is_last = piece.is_empty();
                state.pop(1);
                state.room_for(text.len())?;
                if is_last {
                    break;
                }
            }
            LuaType::Nil => break,
            _ => {
                let Raise = state.error("reader function must return a string");
                return Ok(nil_and_error(state));
            }
        }
    }
    load_text(state, &text, &name)
}

fn load_text(state: &mut LuaState, text: &[u8], name: &CString) -> Result<c_int, Raise> {
    // A comment leaves no string behind that Lua would count, so the bytes are counted here.
    state.poll_for(text.len())?;
    match vm::load(state, text, name) {
        Ok(()) => Ok(1),
        Err(raise) if state.is_ending() => Err(raise),
        Err(Raise) => Ok(nil_and_error(state)),
    }
}

/// Inserts nil before the error on top of the stack.
fn nil_and_error(state: &mut LuaState) -> c_int {
    state.push_nil();
    state.insert(-2);
    2
}

/// `collectgarbage`. All scripts share the collector: they can't change its pace or stop it.
fn collectgarbage(state: &mut LuaState) -> Result<c_int, Raise> {
    /// Lua's defaults for pause and step multiplier, in percent.
    const PACE_PERCENT: f64 = 200.0;
    let what = match state.kind(1) {
        LuaType::None | LuaType::Nil => b"collect".to_vec(),
        _ => state.check_bytes(1)?.to_vec(),
    };
    let amount = check_long_or(state, 2, 0)? as c_int;
    if what == b"collect" {
        let bytes = state.context().used_bytes;
        state.poll_for(bytes)?;
    }
    let gc = |what, amount| {
        // SAFETY: the state is alive and a native runs; no finalizer of a script runs, since scripts can't create any.
        unsafe { ffi::lua_gc(state.raw(), what, amount) }
    };
    match &what[..] {
        b"collect" => {
            gc(ffi::LUA_GCCOLLECT, 0);
            state.push_number(0.0);
        }
        b"count" => {
            let kib = f64::from(gc(ffi::LUA_GCCOUNT, 0)) + f64::from(gc(ffi::LUA_GCCOUNTB, 0)) / 1024.0;
            state.push_number(kib);
        }
        b"step" => {
            let ended = gc(ffi::LUA_GCSTEP, amount.clamp(0, 1 << 20)) != 0;
            state.push_boolean(ended);
        }
        b"stop" | b"restart" => state.push_number(0.0),
        b"setpause" | b"setstepmul" => state.push_number(PACE_PERCENT),
        _ => {
            let text = format!("invalid option '{}'", String::from_utf8_lossy(&what));
            return Err(state.argument_error(1, text));
        }
    }
    Ok(1)
}

/// `pcall`. As in Redis, a command's error is returned as text, not as a table.
fn pcall(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() == 0 {
        // In Redis, `pcall` without arguments calls the first of its future results.
        state.push_boolean(true);
    }
    let result = state.call(state.top() - 1, ffi::LUA_MULTRET);
    if result.is_err() && state.kind(-1) == LuaType::Table {
        state.raw_get_named(-1, "err");
        // As in Redis, a field that isn't text is returned, too.
        if matches!(state.kind(-1), LuaType::String | LuaType::Number) {
            state.remove(-2);
        }
    }
    caught(state, result)
}

/// Returns the results of `pcall` and `xpcall`: true and the results, or false and the error's value. Only these are on
/// the stack.
fn caught(state: &mut LuaState, result: Result<(), Raise>) -> Result<c_int, Raise> {
    if state.is_ending() {
        return Err(result.err().unwrap_or_else(|| state.end()));
    }
    ensure_for(state, 1, "too many results")?;
    state.push_boolean(result.is_ok());
    state.insert(1);
    Ok(state.top())
}

fn xpcall(state: &mut LuaState) -> Result<c_int, Raise> {
    check_any(state, 2)?;
    state.set_top(2);
    state.push_closure(raw::handle, 1);
    state.insert(1);
    let result = state.call_handled(0, ffi::LUA_MULTRET, 1);
    state.remove(1);
    caught(state, result)
}
