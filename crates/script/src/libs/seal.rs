//! Tables that scripts can read but not change: the globals, the libraries, the metatables of basic types.
//!
//! Lua 5.1 has no read-only tables. Scripts see a **guard** in a table's place: an empty table with a metatable that
//! reads from the table behind it and refuses writes. A script never gets the table behind, nor the guard's metatable:
//! functions that would reveal them (`next`, `rawget`, `getmetatable`) or write past them (`rawset`, `setmetatable`,
//! `table.insert`) are replaced by ones that know guards.

use std::ffi::c_int;

use crate::state::{LuaState, LuaType, Raise};
use crate::{library, native};

/// Keys in a guard's metatable: the table behind the guard, and the mark of guards.
const BEHIND: c_int = 1;
const MARK: c_int = 2;

/// The address of this variable is the mark: no script can create this value. It is also the registry's key of the
/// table of all guards.
static MARK_PLACE: u8 = 0;

/// Redis's text.
pub const READ_ONLY: &str = "Attempt to modify a readonly table";

fn mark() -> usize {
    (&raw const MARK_PLACE).addr()
}

/// Puts guards in place of the globals and of every table in them, of the metatables, and of the tables that libraries
/// see while they are loaded. Called once, after all libraries are open.
pub fn seal(state: &mut LuaState) -> Result<(), Raise> {
    state.push_registry();
    state.push_light_userdata(mark());
    state.push_table(0, 32)?;
    state.raw_set(-3)?;
    state.pop(1);
    set_global_metatable(state)?;
    state.push_globals();
    guard(state)?;
    state.guard_globals();
    state.push_short(b"");
    if state.push_metatable(-1) {
        guard(state)?;
        state.pop(1);
    }
    state.pop(1);
    state.push_registry();
    state.raw_get_named(-1, library::LOADING);
    guard(state)?;
    state.raw_set_named(-2, library::LOADING);
    state.pop(1);
    Ok(())
}

/// Makes reads of unknown globals errors.
fn set_global_metatable(state: &mut LuaState) -> Result<(), Raise> {
    state.push_globals();
    state.push_table(0, 1)?;
    state.push_native(native!(unknown_global));
    state.raw_set_named(-2, "__index");
    state.set_metatable(-2);
    state.pop(1);
    Ok(())
}

pub(crate) fn unknown_global(state: &mut LuaState) -> Result<c_int, Raise> {
    let name = match state.kind(2) {
        // SAFETY: the key stays in its place.
        LuaType::String | LuaType::Number => unsafe { state.argument(2) },
        _ => return Err(state.error("Second argument to luaProtectedTableError must be a string or number")),
    };
    let text = [b"Script attempted to access nonexistent global variable '", name, b"'"].concat();
    Err(state.error(text))
}

pub(crate) fn refuse_write(state: &mut LuaState) -> Result<c_int, Raise> {
    Err(state.error(READ_ONLY))
}

/// Replaces the table on top of the stack, all tables within it and its metatable by guards.
fn guard(state: &mut LuaState) -> Result<(), Raise> {
    if push_guard_of(state, -1) {
        state.remove(-2);
        return Ok(());
    }
    state.ensure(12)?;
    let table = state.top();
    state.push_table(0, 0)?;
    state.push_table(2, 2)?;
    state.push_copy(table);
    state.raw_set_at(-2, BEHIND);
    state.push_light_userdata(mark());
    state.raw_set_at(-2, MARK);
    state.push_copy(table);
    state.raw_set_named(-2, "__index");
    state.push_native(native!(refuse_write));
    state.raw_set_named(-2, "__newindex");
    state.set_metatable(-2);
    remember(state, table)?;
    guard_values(state, table)?;
    if state.push_metatable(table) {
        guard(state)?;
        state.pop(1);
    }
    state.remove(table);
    Ok(())
}

/// Records the guard on top of the stack for a table.
fn remember(state: &mut LuaState, table: c_int) -> Result<(), Raise> {
    push_guards(state);
    state.push_copy(table);
    state.push_copy(-3);
    state.raw_set(-3)?;
    state.pop(1);
    Ok(())
}

/// Replaces the tables among a table's values by guards.
fn guard_values(state: &mut LuaState, table: c_int) -> Result<(), Raise> {
    state.push_nil();
    // SAFETY: the key is nil or comes from the previous call; only existing fields are assigned.
    while unsafe { state.next(table) } {
        if state.kind(-1) == LuaType::Table {
            guard(state)?;
            state.push_copy(-2);
            state.insert(-2);
            state.raw_set(table)?;
        } else {
            state.pop(1);
        }
    }
    Ok(())
}

fn push_guards(state: &mut LuaState) {
    state.push_registry();
    state.push_light_userdata(mark());
    state.raw_get(-2);
    state.remove(-2);
}

/// Pushes the guard of a table, if it has one.
pub fn push_guard_of(state: &mut LuaState, index: c_int) -> bool {
    state.push_copy(index);
    push_guards(state);
    state.insert(-2);
    state.raw_get(-2);
    state.remove(-2);
    let has_guard = state.kind(-1) == LuaType::Table;
    if !has_guard {
        state.pop(1);
    }
    has_guard
}

/// Returns true if the value is a guard, and pushes the table behind it.
pub fn push_behind(state: &mut LuaState, index: c_int) -> bool {
    if state.kind(index) != LuaType::Table || !state.push_metatable(index) {
        return false;
    }
    state.raw_get_at(-1, MARK);
    let is_guard = state.kind(-1) == LuaType::LightUserdata && state.identity(-1) == mark();
    state.pop(1);
    if is_guard {
        state.raw_get_at(-1, BEHIND);
        state.remove(-2);
    } else {
        state.pop(1);
    }
    is_guard
}

/// Returns true if the value is a guard.
pub fn is_guard(state: &mut LuaState, index: c_int) -> bool {
    let is_guard = push_behind(state, index);
    if is_guard {
        state.pop(1);
    }
    is_guard
}

/// Replaces a guard on the stack by the table behind it, for reading.
pub fn see_through(state: &mut LuaState, index: c_int) {
    let at = if index < 0 { state.top() + index + 1 } else { index };
    if push_behind(state, at) {
        state.replace(at);
    }
}
