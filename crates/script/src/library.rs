//! Libraries of functions: a text that registers functions when it is loaded (FUNCTION LOAD).
//!
//! The globals of a library's text and of its functions are an empty table with a metatable. Functions read through it
//! the globals of all scripts. A library that is being loaded reads through it a `redis` with functions for
//! registration only, as in Redis.
//!
//! Source: Redis's page "Redis functions". The error texts are Redis's.

use std::ffi::c_int;

use mlua_sys::lua51 as ffi;

use crate::api::{self, Version};
use crate::arguments::Uses;
use crate::native;
use crate::state::{LuaState, LuaType, Raise};
use crate::vm::Loaded;

/// A function registered by a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The name.
    pub name: Vec<u8>,
    /// The description.
    pub description: Option<Vec<u8>>,
    /// The names of its flags.
    pub flags: Vec<Vec<u8>>,
    /// The loaded function in the machine.
    pub loaded: Loaded,
}

impl Registered {
    /// Returns a function of this name that is not loaded in any machine.
    #[doc(hidden)]
    #[must_use]
    pub fn named(name: &str) -> Registered {
        let loaded = Loaded { reference: ffi::LUA_NOREF, uses: Uses::NONE };
        Registered { name: name.into(), description: None, flags: Vec::new(), loaded }
    }
}

/// Returns true if the bytes are a valid name of a library or function.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The error for an invalid name.
pub const BAD_NAME: &str =
    "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// Registry keys: the globals of libraries, the table that functions read through them, and the table that a library
/// reads while it is loaded.
const GLOBALS: &str = "library globals";
const CALLED: &str = "seen by functions";
pub(crate) const LOADING: &str = "seen by a library";

/// Creates the globals of libraries. Called once, before the globals are sealed.
pub(crate) fn open(state: &mut LuaState, version: Version) -> Result<(), Raise> {
    state.push_registry();
    state.push_library(&[("register_function", native!(register_function)), ("log", native!(api::log))])?;
    api::set_log_levels(state);
    api::set_version(state, version);
    push_refusing(state)?;
    state.set_metatable(-2);
    state.push_table(0, 2)?;
    for name in ["redis", "server"] {
        state.push_copy(-2);
        state.raw_set_named(-2, name);
    }
    state.remove(-2);
    push_refusing(state)?;
    state.set_metatable(-2);
    state.raw_set_named(-2, LOADING);
    state.push_globals();
    state.raw_set_named(-2, CALLED);
    state.push_table(0, 0)?;
    push_refusing(state)?;
    state.set_metatable(-2);
    state.raw_set_named(-2, GLOBALS);
    state.pop(1);
    set_loading(state, false);
    Ok(())
}

/// Pushes a metatable that refuses reads of missing fields, and all writes.
fn push_refusing(state: &mut LuaState) -> Result<(), Raise> {
    state.push_table(0, 2)?;
    state.push_native(native!(crate::libs::seal::unknown_global));
    state.raw_set_named(-2, "__index");
    state.push_native(native!(crate::libs::seal::refuse_write));
    state.raw_set_named(-2, "__newindex");
    Ok(())
}

/// Gives the globals of libraries to the function on top of the stack.
pub(crate) fn adopt(state: &mut LuaState) {
    assert_eq!(state.kind(-1), LuaType::Function);
    state.push_registry();
    state.raw_get_named(-1, GLOBALS);
    state.remove(-2);
    // SAFETY: the state is alive; the function is below the table, which is popped.
    unsafe { ffi::lua_setfenv(state.raw(), -2) };
}

/// Chooses the table that is read through the globals of libraries.
pub(crate) fn set_loading(state: &mut LuaState, loading: bool) {
    state.push_registry();
    state.raw_get_named(-1, GLOBALS);
    if state.push_metatable(-1) {
        state.raw_get_named(-3, if loading { LOADING } else { CALLED });
        state.raw_set_named(-2, "__index");
        state.pop(1);
    }
    state.pop(2);
}

fn register_function(state: &mut LuaState) -> Result<c_int, Raise> {
    match register(state) {
        Ok(()) => Ok(0),
        Err(text) => Err(api::raise(state, format!("ERR {text}").as_bytes())),
    }
}

fn register(state: &mut LuaState) -> Result<(), &'static str> {
    let function = match state.top() {
        1 if state.kind(1) == LuaType::Table => by_names(state)?,
        1 => {
            return Err("calling redis.register_function with a single argument is only applicable to Lua table \
                        (representing named arguments).");
        }
        2 => by_place(state)?,
        _ => return Err("wrong number of arguments to redis.register_function"),
    };
    let Some(registering) = &mut state.context().registering else {
        return Err("redis.register_function can only be called on FUNCTION LOAD command");
    };
    if registering.iter().any(|known| known.name == function.name) {
        return Err("Function already exists in the library");
    }
    registering.push(function);
    Ok(())
}

/// Returns a name given as a string or number.
fn text_at(state: &LuaState, index: c_int) -> Option<Vec<u8>> {
    match state.kind(index) {
        // SAFETY: the value stays on the stack until its bytes are copied.
        LuaType::String | LuaType::Number => Some(unsafe { state.argument(index) }.to_vec()),
        _ => None,
    }
}

fn named(
    name: Vec<u8>,
    description: Option<Vec<u8>>,
    flags: Vec<Vec<u8>>,
    loaded: Loaded,
) -> Result<Registered, &'static str> {
    if is_name(&name) { Ok(Registered { name, description, flags, loaded }) } else { Err(BAD_NAME) }
}

fn by_place(state: &mut LuaState) -> Result<Registered, &'static str> {
    let name = text_at(state, 1).ok_or("first argument to redis.register_function must be a string")?;
    if state.kind(2) != LuaType::Function {
        return Err("second argument to redis.register_function must be a function");
    }
    named(name, None, Vec::new(), Loaded::take(state, Uses::NONE))
}

fn by_names(state: &mut LuaState) -> Result<Registered, &'static str> {
    let (mut name, mut description, mut flags, mut callback) = (None, None, Vec::new(), None);
    state.push_nil();
    // SAFETY: the key is nil or comes from the previous call, and the table is not changed.
    while unsafe { state.next(1) } {
        if state.kind(-2) == LuaType::Number {
            return Err("unknown argument given to redis.register_function");
        }
        let Some(key) = state.bytes(-2).map(<[u8]>::to_vec) else {
            return Err("named argument key given to redis.register_function is not a string");
        };
        match key.as_slice() {
            b"function_name" => {
                let given = text_at(state, -1);
                name = Some(given.ok_or("function_name argument given to redis.register_function must be a string")?);
            }
            b"description" => {
                let given = text_at(state, -1);
                description =
                    Some(given.ok_or("description argument given to redis.register_function must be a string")?);
            }
            b"callback" if state.kind(-1) == LuaType::Function => {
                state.push_copy(-1);
                callback = Some(Loaded::take(state, Uses::NONE));
            }
            b"callback" => return Err("callback argument given to redis.register_function must be a function"),
            b"flags" if state.kind(-1) == LuaType::Table => flags = flags_of(state)?,
            b"flags" => {
                return Err("flags argument to redis.register_function must be a table representing function flags");
            }
            _ => return Err("unknown argument given to redis.register_function"),
        }
        state.pop(1);
    }
    let name = name.ok_or("redis.register_function must get a function name argument")?;
    let callback = callback.ok_or("redis.register_function must get a callback argument")?;
    named(name, description, flags, callback)
}

/// The valid flags of a library's function.
pub const FLAGS: &[&str] = &["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// Returns the flags in the table on top of the stack.
fn flags_of(state: &mut LuaState) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut flags = Vec::new();
    for i in 1.. {
        state.raw_get_at(-1, i);
        let flag = state.bytes(-1).map(<[u8]>::to_vec);
        let is_end = state.kind(-1) == LuaType::Nil;
        state.pop(1);
        if is_end {
            break;
        }
        let flag = flag.filter(|flag| FLAGS.iter().any(|known| known.as_bytes() == flag.as_slice()));
        flags.push(flag.ok_or("unknown flag given")?);
    }
    Ok(flags)
}
