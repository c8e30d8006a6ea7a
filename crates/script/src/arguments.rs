//! The arguments of scripts: the tables `KEYS` and `ARGV`, which are globals.
//!
//! Both tables are reused from call to call, since nearly all scripts only read them; a call replaces the strings of
//! the previous one. Nothing else survives: a table to which a script has added other elements or a metatable is
//! replaced by a new one.
//!
//! If a script's text shows that it can't reach a table, the strings of the previous call stay in it, unseen: see
//! [`Uses::of_text`].

use std::ffi::c_int;

use memchr::memmem;
use mlua_sys::lua51 as ffi;

use crate::state::{LuaState, Raise};

/// Most strings in a table that is kept.
const KEPT_COUNT_MAX: usize = 1024;
/// Most bytes of these strings, which stay in memory until the next call.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The names of the globals.
const NAMES: [&str; 2] = ["KEYS", "ARGV"];

/// The tables that a script may access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Uses([bool; 2]);

impl Uses {
    /// Returns the tables that a script with this text may access.
    ///
    /// A script can reach a global in three ways: by its name, which appears literally in the text, since names can't
    /// be escaped; through the table of globals, `_G`; or by code that `load` or `loadstring` compile from strings,
    /// which may be escaped. There is no other way: scripts don't have `getfenv` and similar functions.
    pub fn of_text(text: &[u8]) -> Uses {
        let has = |word: &str| memmem::find(text, word.as_bytes()).is_some();
        let any = has("_G") || has("load");
        Uses(NAMES.map(|name| any || has(name)))
    }

    /// No table.
    pub const NONE: Uses = Uses([false; 2]);
}

/// A kept table: its index on the machine's stack, and its number of strings.
#[derive(Clone, Copy, Debug)]
struct Table {
    at: c_int,
    len: usize,
    /// True if the table takes too much memory and will be replaced.
    is_large: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Arguments {
    tables: [Table; 2],
    /// The indexes of the names on the machine's stack.
    names: [c_int; 2],
    /// True if the tables are globals now.
    are_set: bool,
}

impl Arguments {
    /// Pushes the tables and names onto the machine's stack, where they stay.
    pub fn new(state: &mut LuaState) -> Result<Arguments, Raise> {
        let mut kept = |push: &mut dyn FnMut(&mut LuaState) -> Result<(), Raise>| push(state).map(|()| state.top());
        let mut table = || kept(&mut |state| state.push_table(0, 0));
        let tables = [table()?, table()?].map(|at| Table { at, len: 0, is_large: false });
        let mut name = |name: &str| {
            kept(&mut |state| {
                state.push_short(name.as_bytes());
                Ok(())
            })
        };
        let names = [name(NAMES[0])?, name(NAMES[1])?];
        Ok(Arguments { tables, names, are_set: false })
    }

    /// Stores a call's strings in the globals that the script uses: first `keys` keys, then the other arguments.
    pub fn set<'a>(
        &mut self,
        state: &mut LuaState,
        uses: Uses,
        keys: usize,
        mut args: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<(), Raise> {
        if uses == Uses::NONE {
            return Ok(());
        }
        let rest = args.len().saturating_sub(keys);
        for (i, count) in [keys, rest].into_iter().enumerate() {
            if uses.0[i] {
                self.fill(state, i, args.by_ref().take(count))?;
            } else {
                args.by_ref().take(count).for_each(drop);
            }
        }
        if !self.are_set {
            (0..NAMES.len()).for_each(|i| self.set_global(state, i, true));
            self.are_set = true;
        }
        Ok(())
    }

    /// Removes the globals: functions of libraries have none.
    pub fn unset(&mut self, state: &mut LuaState) {
        if std::mem::take(&mut self.are_set) {
            (0..NAMES.len()).for_each(|i| self.set_global(state, i, false));
        }
    }

    fn set_global(&self, state: &mut LuaState, i: usize, to_table: bool) {
        state.push_globals();
        // SAFETY: the state is alive, there are slots for three values, the name and the table are at their indexes,
        // and the globals are below the top; memory is not refused.
        unsafe {
            ffi::lua_pushvalue(state.raw(), self.names[i]);
            if to_table {
                ffi::lua_pushvalue(state.raw(), self.tables[i].at);
            } else {
                ffi::lua_pushnil(state.raw());
            }
            ffi::lua_rawset(state.raw(), -3);
            ffi::lua_settop(state.raw(), -2);
        }
    }

    /// Replaces all strings of a table.
    fn fill<'a>(
        &mut self,
        state: &mut LuaState,
        i: usize,
        strings: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<(), Raise> {
        let table = &mut self.tables[i];
        let (count, bytes) = put(state, table.at, strings)?;
        for gone in count + 1..=table.len {
            // SAFETY: the state is alive, there is a slot, the table is at its index; memory is not refused.
            unsafe {
                ffi::lua_pushnil(state.raw());
                ffi::lua_rawseti_(state.raw(), table.at, gone as c_int);
            }
        }
        table.len = count;
        table.is_large = count > KEPT_COUNT_MAX || bytes > KEPT_BYTES_MAX;
        if !is_plain(state, table.at, count) {
            let at = table.at;
            self.replace(state, i, |state| copy(state, at, count))?;
        }
        Ok(())
    }

    /// Replaces the tables if the last call left much data in them.
    #[inline]
    pub fn forget_large(&mut self, state: &mut LuaState) {
        for i in 0..NAMES.len() {
            if self.tables[i].is_large {
                self.tables[i] = Table { len: 0, is_large: false, ..self.tables[i] };
                if self.replace(state, i, |state| state.push_table(0, 0)).is_err() {
                    // No memory is left even for an empty table; the next call replaces the data.
                    state.pop(1);
                }
            }
        }
    }

    /// Replaces a table by the one that `push` pushes.
    #[cold]
    fn replace(
        &mut self,
        state: &mut LuaState,
        i: usize,
        push: impl FnOnce(&mut LuaState) -> Result<(), Raise>,
    ) -> Result<(), Raise> {
        push(state)?;
        state.replace(self.tables[i].at);
        if self.are_set {
            self.set_global(state, i, true);
        }
        Ok(())
    }
}

/// Stores strings in a table, from index 1. Returns their number and their total bytes.
fn put<'a>(
    state: &mut LuaState,
    table: c_int,
    strings: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(usize, usize), Raise> {
    /// Bytes that Lua adds to a string, including its slot in the table.
    const OVERHEAD_BYTES: usize = 48;
    let count = strings.len();
    let mut all_bytes = 0;
    for (i, bytes) in strings.enumerate() {
        state.room_for(bytes.len() + OVERHEAD_BYTES)?;
        all_bytes += bytes.len();
        // SAFETY: the state is alive, there is a slot on the stack, the table is at the caller's index; memory is not
        // refused.
        unsafe {
            ffi::lua_pushlstring_(state.raw(), bytes.as_ptr().cast(), bytes.len());
            ffi::lua_rawseti_(state.raw(), table, i as c_int + 1);
        }
    }
    Ok((count, all_bytes))
}

/// Pushes a new table of strings.
pub(crate) fn push_sequence<'a>(
    state: &mut LuaState,
    strings: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(), Raise> {
    state.push_table(strings.len(), 0)?;
    let table = state.top();
    put(state, table, strings).map(drop)
}

/// Returns true if the table has exactly `count` elements, from index 1, and no metatable.
fn is_plain(state: &mut LuaState, table: c_int, count: usize) -> bool {
    // SAFETY: the state is alive, there are slots for three values, the table is at the caller's index; the key is nil
    // or a key of the table, so Lua raises no error.
    unsafe {
        let raw = state.raw();
        if count == 0 {
            ffi::lua_pushnil(raw);
        } else {
            ffi::lua_pushnumber(raw, count as f64);
        }
        if ffi::lua_next(raw, table) != 0 {
            ffi::lua_settop(raw, -3);
            return false;
        }
        if ffi::lua_getmetatable(raw, table) != 0 {
            ffi::lua_settop(raw, -2);
            return false;
        }
        true
    }
}

/// Pushes a new table with the first elements of another one.
#[cold]
fn copy(state: &mut LuaState, table: c_int, count: usize) -> Result<(), Raise> {
    state.push_table(count, 0)?;
    for i in 1..=count as c_int {
        state.raw_get_at(table, i);
        state.raw_set_at(-2, i);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_shows_which_tables_its_script_may_access() {
        let check = |text: &str, keys: bool, argv: bool| {
            assert_eq!(Uses::of_text(text.as_bytes()), Uses([keys, argv]), "{text}");
        };
        check("return 1", false, false);
        check("return redis.call('GET', KEYS[1])", true, false);
        check("return #ARGV", false, true);
        check("return _G['KE' .. 'YS']", true, true);
        check("return loadstring('return KE\\89S')()", true, true);
    }
}
