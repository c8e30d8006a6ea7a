//! What several libraries need: numbers as Lua 5.1's libraries convert them, and traversal of tables.
//!
//! What C leaves undefined about conversions has the result here that scripts have always seen from Redis on its
//! machines.

use std::ffi::c_int;

use crate::libs::raw;
use crate::state::{LuaState, LuaType, Raise};

/// How deep tables, arrays and objects may be nested where the nesting is that of functions here, whatever options say:
/// each level takes up to a kilobyte of the thread's stack.
pub const NESTING_MAX: c_int = 1000;
/// 2^63, the first double beyond what 64 signed bits hold.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// A double as C's `long`: cut towards zero; the least integer for whatever is out of range.
#[must_use]
pub fn to_long(number: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&number) { number as i64 } else { i64::MIN }
}

/// A double as C's `unsigned long`, negative ones by way of the signed type.
#[must_use]
pub fn to_unsigned_long(number: f64) -> u64 {
    if number >= TWO_TO_63 { (to_long(number - TWO_TO_63) as u64) ^ (1 << 63) } else { to_long(number) as u64 }
}

/// A double as C's `int`, directly rather than through `long`.
#[must_use]
pub fn to_int_directly(number: f64) -> c_int {
    let fits = (-2_147_483_649.0 < number) && (number < 2_147_483_648.0);
    if fits { number as c_int } else { c_int::MIN }
}

/// An integer argument, as `luaL_checkinteger` reads it.
pub fn check_long(state: &mut LuaState, n: c_int) -> Result<i64, Raise> {
    state.check_number(n).map(to_long)
}

/// An integer argument, as `luaL_checkint` reads it: the lowest 32 bits.
pub fn check_int(state: &mut LuaState, n: c_int) -> Result<c_int, Raise> {
    check_long(state, n).map(|long| long as c_int)
}

/// The same with what is meant if it is missing or nil.
pub fn check_long_or(state: &mut LuaState, n: c_int, otherwise: i64) -> Result<i64, Raise> {
    match state.kind(n) {
        LuaType::None | LuaType::Nil => Ok(otherwise),
        _ => check_long(state, n),
    }
}

/// Makes sure that so many values fit onto the stack, or raises Lua's error with a reason.
pub fn ensure_for(state: &mut LuaState, count: c_int, why: &str) -> Result<(), Raise> {
    state.ensure(count).map_err(|Raise| {
        state.pop(1);
        state.error(format!("stack overflow ({why})"))
    })
}

/// Calls `visit` for each pair of the table on top of the stack, with the key at -2 and the value at -1, until it says
/// false; says whether it never did. It must leave the key in place, and not change the table.
pub fn for_each_pair(
    state: &mut LuaState,
    mut visit: impl FnMut(&mut LuaState) -> Result<bool, Raise>,
) -> Result<bool, Raise> {
    state.push_nil();
    // SAFETY: the key is nil or what the call before left, and the table is not changed.
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

/// Replaces the key on top of the stack by its value in a table, by metamethods where it has none itself.
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
    fn what_is_out_of_range_becomes_the_least_integer() {
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
