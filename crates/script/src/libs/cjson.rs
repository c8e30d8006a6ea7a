//! `cjson`: converts values to and from JSON, like Redis's lua-cjson 2.1.0 including its options.
//!
//! The options of the library itself last until the end of the script that sets them; the options of a copy made by
//! `cjson.new` last as long as the copy. (In Redis, one script's options apply to all later scripts.)

mod decode;
mod encode;
mod number;

use std::ffi::c_int;

use crate::libs::per_script::{self, PerScript};
use crate::libs::support::check_long;
use crate::native;
use crate::state::{CFunction, LuaState, LuaType, Raise};

/// The settings of a library or of one copy.
#[derive(Clone, Copy)]
struct JsonSettings {
    /// Sequences with too many holes become objects instead of errors.
    sparse_convert: bool,
    /// A sequence has too many holes if its length is more than this many times its number of elements (0: never),
    sparse_ratio: c_int,
    /// and if it is longer than this.
    sparse_safe: c_int,
    /// Deepest nesting of tables.
    encode_depth_max: c_int,
    /// Deepest nesting of arrays and objects.
    decode_depth_max: c_int,
    /// Significant digits of numbers.
    precision: c_int,
    /// Can be set and read, but has no effect: a buffer is always kept.
    keep_buffer: bool,
    encode_invalid: Invalid,
    /// Accepts numbers that JSON does not allow: hexadecimal, infinite, with leading zeros.
    decode_invalid: bool,
}

/// The treatment of numbers that JSON does not allow.
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

/// Most significant digits that an option can choose.
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

/// Returns the options of the running function's library.
fn options(state: &mut LuaState) -> &mut JsonSettings {
    // SAFETY: `push_library` creates every function here with the options as its upvalue.
    unsafe { per_script::upvalue(state) }
}

/// Checks for at most `count` arguments; missing ones become nil.
fn take_arguments(state: &mut LuaState, count: c_int) -> Result<(), Raise> {
    if state.top() > count {
        return Err(state.argument_error(count + 1, "found too many arguments"));
    }
    state.set_top(count);
    Ok(())
}

/// Sets an option if its argument is present, and pushes the current value.
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

/// Returns the index of the argument among the names; true means the second name and false the first.
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
