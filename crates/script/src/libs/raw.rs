//! Functions that Lua calls without a wrapper: those that scripts call in inner loops, and those that must let Lua's
//! own errors pass.
//!
//! They are `unsafe` because they jump, or are jumped over. The invariant: **no frame here owns anything**, and Lua
//! passes a valid state. The allocator may refuse memory to them as to Lua itself; Lua's jump is harmless here.

use std::ffi::c_int;

use mlua_sys::lua51 as ffi;

use crate::context::Context;
use crate::libs::seal;
use crate::state::{LuaState, RawState};

/// Replaces a guard at a positive index by the table behind it.
///
/// # Safety
/// See the module's documentation.
unsafe fn see_through(lua: *mut RawState, index: c_int) {
    // SAFETY: the index belongs to an argument. Nearly all tables have no metatable, and return here.
    unsafe {
        if ffi::lua_getmetatable(lua, index) != 0 {
            ffi::lua_settop(lua, -2);
            seal::see_through(&mut LuaState::from_raw(lua), index);
        }
    }
}

/// `next(table, key)`
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn next(lua: *mut RawState) -> c_int {
    // SAFETY: see the module's documentation, here and below.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_settop(lua, 2);
        see_through(lua, 1);
        if ffi::lua_next(lua, 1) != 0 {
            return 2;
        }
        ffi::lua_pushnil(lua);
        1
    }
}

/// `pairs(table)`; `next` is its upvalue.
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn pairs(lua: *mut RawState) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(lua, 1);
        ffi::lua_pushnil(lua);
        3
    }
}

/// `table.foreach(table, function)`
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn foreach(lua: *mut RawState) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checktype(lua, 1, ffi::LUA_TTABLE);
        ffi::luaL_checktype(lua, 2, ffi::LUA_TFUNCTION);
        see_through(lua, 1);
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, 1) != 0 {
            ffi::lua_pushvalue(lua, 2);
            ffi::lua_pushvalue(lua, -3);
            ffi::lua_pushvalue(lua, -3);
            ffi::lua_call(lua, 2, 1);
            if ffi::lua_type(lua, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_settop(lua, -3);
        }
        0
    }
}

/// Returns the field of a table, with metamethods: `(table, key)`.
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn index(lua: *mut RawState) -> c_int {
    // SAFETY: as above; Lua calls it with two arguments.
    unsafe {
        ffi::lua_gettable_(lua, 1);
        1
    }
}

/// Returns whether the first argument is less than the second, with metamethods.
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn less(lua: *mut RawState) -> c_int {
    // SAFETY: as above; Lua calls it with two arguments.
    unsafe {
        let less = ffi::lua_lessthan(lua, 1, 2);
        ffi::lua_pushboolean(lua, less);
        1
    }
}

/// The error handler of `xpcall`; the script's own handler is its upvalue. The script's handler is not called once the
/// script has to end: no hook could end a handler that loops there.
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn handle(lua: *mut RawState) -> c_int {
    // SAFETY: as above; Lua calls it with one argument.
    unsafe {
        if (*Context::of(lua)).ending {
            return 1;
        }
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
        ffi::lua_insert(lua, 1);
        ffi::lua_call(lua, 1, 1);
        1
    }
}

/// `coroutine.resume`; Lua's own function is its upvalue. Once the script has to end, its error is not returned to the
/// caller but raised again.
///
/// # Safety
/// See the module's documentation.
pub unsafe extern "C-unwind" fn resume(lua: *mut RawState) -> c_int {
    // SAFETY: as above. No reference to the context outlives its statement.
    unsafe {
        if ffi::lua_type(lua, 1) != ffi::LUA_TTHREAD {
            ffi::luaL_argerror(lua, 1, c"coroutine expected".as_ptr());
        }
        ffi::lua_pushvalue(lua, ffi::lua_upvalueindex(1));
        ffi::lua_insert(lua, 1);
        let arguments = ffi::lua_gettop(lua) - 1;
        ffi::lua_call(lua, arguments, ffi::LUA_MULTRET);
        let context = Context::of(lua);
        if (*context).ending {
            (*context).in_native = true;
            LuaState::from_raw(lua).end();
            (*context).in_native = false;
            ffi::lua_error(lua);
        }
        ffi::lua_gettop(lua)
    }
}
