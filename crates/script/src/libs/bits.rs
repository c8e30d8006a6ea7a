//! `bit`: operations on 32 bits, as defined by Lua BitOp (bitop.luajit.org, "Operational semantics").

use std::ffi::c_int;

use crate::state::{CFunction, LuaState, Raise};
use crate::{native, state};

/// Adding this to a double puts its integer part, modulo 2^32, into its lowest bits: 2^52 + 2^51.
const ALIGN_TO_BITS: f64 = 6_755_399_441_055_744.0;
/// Most digits of `tohex`.
const HEX_DIGITS_MAX: usize = 8;

/// Sets the global `bit`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    let functions: [(&str, CFunction); 12] = [
        ("tobit", native!(to_bit)),
        ("tohex", native!(to_hex)),
        ("bnot", native!(not)),
        ("band", native!(and)),
        ("bor", native!(or)),
        ("bxor", native!(xor)),
        ("lshift", native!(left_shift)),
        ("rshift", native!(right_shift)),
        ("arshift", native!(arithmetic_right_shift)),
        ("rol", native!(rotate_left)),
        ("ror", native!(rotate_right)),
        ("bswap", native!(swap_bytes)),
    ];
    state.push_library(&functions)?;
    state.set_global("bit");
    Ok(())
}

fn argument(state: &mut LuaState, n: c_int) -> Result<u32, Raise> {
    Ok((state.check_number(n)? + ALIGN_TO_BITS).to_bits() as u32)
}

fn give(state: &mut LuaState, bits: u32) -> c_int {
    state.push_number(f64::from(bits as i32));
    1
}

fn to_bit(state: &mut LuaState) -> Result<c_int, Raise> {
    let bits = argument(state, 1)?;
    Ok(give(state, bits))
}

fn not(state: &mut LuaState) -> Result<c_int, Raise> {
    let bits = argument(state, 1)?;
    Ok(give(state, !bits))
}

fn swap_bytes(state: &mut LuaState) -> Result<c_int, Raise> {
    let bits = argument(state, 1)?;
    Ok(give(state, bits.swap_bytes()))
}

fn fold(state: &mut LuaState, operation: fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let mut bits = argument(state, 1)?;
    for n in (2..=state.top()).rev() {
        bits = operation(bits, argument(state, n)?);
    }
    Ok(give(state, bits))
}

fn and(state: &mut LuaState) -> Result<c_int, Raise> {
    fold(state, |a, b| a & b)
}

fn or(state: &mut LuaState) -> Result<c_int, Raise> {
    fold(state, |a, b| a | b)
}

fn xor(state: &mut LuaState) -> Result<c_int, Raise> {
    fold(state, |a, b| a ^ b)
}

/// Shifts and rotates by the lowest five bits of the second argument.
fn shift(state: &mut LuaState, operation: fn(u32, u32) -> u32) -> Result<c_int, Raise> {
    let bits = argument(state, 1)?;
    let by = argument(state, 2)? & 31;
    Ok(give(state, operation(bits, by)))
}

fn left_shift(state: &mut LuaState) -> Result<c_int, Raise> {
    shift(state, |bits, by| bits << by)
}

fn right_shift(state: &mut LuaState) -> Result<c_int, Raise> {
    shift(state, |bits, by| bits >> by)
}

fn arithmetic_right_shift(state: &mut LuaState) -> Result<c_int, Raise> {
    shift(state, |bits, by| (bits as i32 >> by) as u32)
}

fn rotate_left(state: &mut LuaState) -> Result<c_int, Raise> {
    shift(state, u32::rotate_left)
}

fn rotate_right(state: &mut LuaState) -> Result<c_int, Raise> {
    shift(state, u32::rotate_right)
}

/// `bit.tohex`: the lowest hexadecimal digits; upper case if their number is negative. The smallest integer has no
/// positive counterpart; it means eight digits, like every other large number (CVE-2024-31449).
fn to_hex(state: &mut LuaState) -> Result<c_int, Raise> {
    let bits = argument(state, 1)?;
    let asked = if state.kind(2) == state::LuaType::None { HEX_DIGITS_MAX as i32 } else { argument(state, 2)? as i32 };
    let digits = (asked.unsigned_abs() as usize).min(HEX_DIGITS_MAX);
    let text = if asked < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    state.push_short(&text.as_bytes()[HEX_DIGITS_MAX - digits..]);
    Ok(1)
}
