//! Helpers of several libraries: conversion of numbers as in Lua 5.1's libraries, and traversal of tables.
//!
//! For conversions that C leaves undefined, the result is the one that Redis gives on its platforms.

use std::ffi::c_int;

use crate::libs::raw;
use crate::state::{LuaState, LuaType, Raise};

/// Deepest nesting of tables, arrays and objects in recursive functions, whatever the options: each level takes up to a
/// kilobyte of the thread's stack.
pub const NESTING_MAX: c_int = 1000;
/// 2^63, the first double above the range of a signed 64-bit integer.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Converts a double to C's `long`: truncated towards zero; the smallest integer for values out of range.
#[must_use]
pub fn to_long(number: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&number) { number as i64 } else { i64::MIN }
}

/// Converts a double to C's `unsigned long`; negative values are converted to the signed type first.
#[must_use]
pub fn to_unsigned_long(number: f64) -> u64 {
    if number >= TWO_TO_63 { (to_long(number - TWO_TO_63) as u64) ^ (1 << 63) } else { to_long(number) as u64 }
}

/// Converts a double to C's `int`, directly and not through `long`.
#[must_use]
pub fn to_int_directly(number: f64) -> c_int {
    let fits = (-2_147_483_649.0 < number) && (number < 2_147_483_648.0);
    if fits { number as c_int } else { c_int::MIN }
}

/// Returns an integer argument, converted like `luaL_checkinteger`.
pub fn check_long(state: &mut LuaState, n: c_int) -> Result<i64, Raise> {
    state.check_number(n).map(to_long)
}

/// Returns an integer argument, converted like `luaL_checkint`: the lowest 32 bits.
pub fn check_int(state: &mut LuaState, n: c_int) -> Result<c_int, Raise> {
    check_long(state, n).map(|long| long as c_int)
}

/// Like [`check_long`], with a default for nil or a missing argument.
pub fn check_long_or(state: &mut LuaState, n: c_int, otherwise: i64) -> Result<i64, Raise> {
    match state.kind(n) {
        LuaType::None | LuaType::Nil => Ok(otherwise),
        _ => check_long(state, n),
    }
}

/// Ensures slots for `count` values, or raises Lua's error with a reason.
pub fn ensure_for(state: &mut LuaState, count: c_int, why: &str) -> Result<(), Raise> {
    state.ensure(count).map_err(|Raise| {
        state.pop(1);
        state.error(format!("stack overflow ({why})"))
    })
}

/// Calls `visit` for each pair of the table on top of the stack, with the key at -2 and the value at -1, until it
/// returns false. Returns true if it never did. `visit` must leave the key in place, and must not change the table.
pub fn for_each_pair(
    state: &mut LuaState,
    mut visit: impl FnMut(&mut LuaState) -> Result<bool, Raise>,
) -> Result<bool, Raise> {
    state.push_nil();
    // SAFETY: the key is nil or comes from the previous call, and the table is not changed.
    while unsafe { state.next(-2) } {
        state.poll()?;
        if !visit(state)? {
            state.pop(2);
            return Ok(false);
        }
        state.pop(1);
    }
    Ok(true)
}

/// Replaces the key on top of the stack by its value in a table, with metamethods.
pub fn get_with_metamethods(state: &mut LuaState, table: c_int) -> Result<(), Raise> {
    if !state.push_metatable(table) {
        state.raw_get(table);
        return Ok(());
    }
    state.pop(1);
    state.push_native(raw::index);
    state.insert(-2);
    state.push_copy(table);
    state.insert(-2);
    state.call(2, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_become_the_smallest_integer() {
        assert_eq!(to_long(-1.9), -1);
        assert_eq!([to_long(1e19), to_long(f64::NAN), to_long(-1e300)], [i64::MIN; 3]);
        assert_eq!(to_int_directly(2_147_483_647.5), c_int::MAX);
        assert_eq!([to_int_directly(2_147_483_648.0), to_int_directly(f64::NAN)], [c_int::MIN; 2]);
        assert_eq!(to_unsigned_long(-1.0), u64::MAX);
        assert_eq!(to_unsigned_long(TWO_TO_63), 1 << 63);
        assert_eq!(to_unsigned_long(1e300), 0);
        assert_eq!(to_unsigned_long(f64::NAN), 1 << 63);
    }
}
