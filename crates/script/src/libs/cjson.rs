//! `cjson`: values to and from JSON, as Redis's lua-cjson 2.1.0 does it, its options included.
//!
//! The options of the library itself last as long as the script that sets them; those of a copy made by `cjson.new`, as
//! long as the copy. (In Redis, options that one script sets are in force for all that follow.)

mod decode;
mod encode;
mod number;

use std::ffi::c_int;

use crate::libs::per_script::{self, PerScript};
use crate::libs::support::check_long;
use crate::native;
use crate::state::{CFunction, LuaState, LuaType, Raise};

/// What the functions of one library, or of one copy, go by.
#[derive(Clone, Copy)]
struct JsonSettings {
    /// Sequences with too many holes become objects rather than errors.
    sparse_convert: bool,
    /// A sequence has too many holes if it is so many times longer than it has elements, unless 0,
    sparse_ratio: c_int,
    /// and longer than this.
    sparse_safe: c_int,
    /// How deep tables may be nested.
    encode_depth_max: c_int,
    /// How deep arrays and objects may be nested.
    decode_depth_max: c_int,
    /// Significant digits of numbers.
    precision: c_int,
    /// Taken and given back, and without effect: a buffer is always kept.
    keep_buffer: bool,
    encode_invalid: Invalid,
    /// Numbers that JSON does not have are read: hexadecimal, infinite, with zeros before.
    decode_invalid: bool,
}

/// What becomes of numbers that JSON does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for JsonSettings {
    fn default() -> JsonSettings {
        JsonSettings {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            precision: PRECISION_MAX,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
        }
    }
}

/// The most significant digits of a number that an option can ask for.
const PRECISION_MAX: c_int = 14;

/// Sets the global `cjson`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    push_library(state, PerScript::new(JsonSettings::default()))?;
    state.set_global("cjson");
    Ok(())
}

fn push_library(state: &mut LuaState, options: PerScript<JsonSettings>) -> Result<(), Raise> {
    let functions: [(&str, CFunction); 10] = [
        ("encode", native!(encode::encode)),
        ("decode", native!(decode::decode)),
        ("encode_sparse_array", native!(encode_sparse_array)),
        ("encode_max_depth", native!(encode_max_depth)),
        ("decode_max_depth", native!(decode_max_depth)),
        ("encode_number_precision", native!(encode_number_precision)),
        ("encode_keep_buffer", native!(encode_keep_buffer)),
        ("encode_invalid_numbers", native!(encode_invalid_numbers)),
        ("decode_invalid_numbers", native!(decode_invalid_numbers)),
        ("new", native!(new)),
    ];
    state.push_table(0, functions.len() + 3)?;
    let library = state.top();
    per_script::push(state, options);
    for (name, entry) in functions {
        state.push_copy(library + 1);
        state.push_closure(entry, 1);
        state.raw_set_named(library, name);
    }
    state.pop(1);
    state.push_light_userdata(0);
    state.raw_set_named(-2, "null");
    for (name, text) in [("_NAME", "cjson"), ("_VERSION", "2.1.0")] {
        state.push_short(text.as_bytes());
        state.raw_set_named(-2, name);
    }
    Ok(())
}

fn new(state: &mut LuaState) -> Result<c_int, Raise> {
    push_library(state, PerScript::lasting(JsonSettings::default()))?;
    Ok(1)
}

/// The options of the library that the running function belongs to.
fn options(state: &mut LuaState) -> &mut JsonSettings {
    // SAFETY: every function here is made with them as its upvalue, by `push_library`.
    unsafe { per_script::upvalue(state) }
}

/// At most so many arguments; those that miss are nil.
fn take_arguments(state: &mut LuaState, count: c_int) -> Result<(), Raise> {
    if state.top() > count {
        return Err(state.argument_error(count + 1, "found too many arguments"));
    }
    state.set_top(count);
    Ok(())
}

/// Sets an option if its argument is there, and pushes what it is now.
fn integer_option(
    state: &mut LuaState,
    n: c_int,
    least: c_int,
    most: c_int,
    option: fn(&mut JsonSettings) -> &mut c_int,
) -> Result<(), Raise> {
    if state.kind(n) != LuaType::Nil {
        let value = check_long(state, n)? as c_int;
        if !(least..=most).contains(&value) {
            return Err(state.argument_error(1, format!("expected integer between {least} and {most}")));
        }
        *option(options(state)) = value;
    }
    let value = *option(options(state));
    state.push_number(f64::from(value));
    Ok(())
}

/// Which of the names an argument is; a boolean is the second or first of them.
fn named_option(state: &mut LuaState, n: c_int, names: &[&str]) -> Result<Option<usize>, Raise> {
    match state.kind(n) {
        LuaType::Nil => return Ok(None),
        LuaType::Boolean => return Ok(Some(usize::from(state.boolean(n)))),
        _ => {}
    }
    let given = state.check_bytes(n)?.to_vec();
    match names.iter().position(|name| name.as_bytes() == given) {
        Some(at) => Ok(Some(at)),
        None => {
            let text = format!("invalid option '{}'", String::from_utf8_lossy(&given));
            Err(state.argument_error(n, text))
        }
    }
}

fn boolean_option(state: &mut LuaState, n: c_int, option: fn(&mut JsonSettings) -> &mut bool) -> Result<(), Raise> {
    if let Some(at) = named_option(state, n, &["off", "on"])? {
        *option(options(state)) = at == 1;
    }
    let value = *option(options(state));
    state.push_boolean(value);
    Ok(())
}

fn encode_sparse_array(state: &mut LuaState) -> Result<c_int, Raise> {
    take_arguments(state, 3)?;
    boolean_option(state, 1, |options| &mut options.sparse_convert)?;
    integer_option(state, 2, 0, c_int::MAX, |options| &mut options.sparse_ratio)?;
    integer_option(state, 3, 0, c_int::MAX, |options| &mut options.sparse_safe)?;
    Ok(3)
}

fn encode_max_depth(state: &mut LuaState) -> Result<c_int, Raise> {
    take_arguments(state, 1)?;
    integer_option(state, 1, 1, c_int::MAX, |options| &mut options.encode_depth_max)?;
    Ok(1)
}

fn decode_max_depth(state: &mut LuaState) -> Result<c_int, Raise> {
    take_arguments(state, 1)?;
    integer_option(state, 1, 1, c_int::MAX, |options| &mut options.decode_depth_max)?;
    Ok(1)
}

fn encode_number_precision(state: &mut LuaState) -> Result<c_int, Raise> {
    take_arguments(state, 1)?;
    integer_option(state, 1, 1, PRECISION_MAX, |options| &mut options.precision)?;
    Ok(1)
}

fn encode_keep_buffer(state: &mut LuaState) -> Result<c_int, Raise> {
    take_arguments(state, 1)?;
    boolean_option(state, 1, |options| &mut options.keep_buffer)?;
    Ok(1)
}

fn encode_invalid_numbers(state: &mut LuaState) -> Result<c_int, Raise> {
    const CHOICES: [Invalid; 3] = [Invalid::Refused, Invalid::Written, Invalid::Null];
    take_arguments(state, 1)?;
    if let Some(at) = named_option(state, 1, &["off", "on", "null"])? {
        options(state).encode_invalid = CHOICES[at];
    }
    match options(state).encode_invalid {
        Invalid::Refused => state.push_boolean(false),
        Invalid::Written => state.push_boolean(true),
        Invalid::Null => state.push_short(b"null"),
    }
    Ok(1)
}

fn decode_invalid_numbers(state: &mut LuaState) -> Result<c_int, Raise> {
    take_arguments(state, 1)?;
    boolean_option(state, 1, |options| &mut options.decode_invalid)?;
    Ok(1)
}
