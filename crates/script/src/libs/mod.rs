//! The libraries that scripts have, and what of Lua's own they don't.
//!
//! Each is a file here with a function `open`, which is a line of [`open`]. They run once for every machine, with all
//! of memory; then everything that is global is made read-only, see [`seal`].
//!
//! What catches errors (`pcall`, `xpcall`, `coroutine.resume`) raises them again if [`LuaState::is_ending`]: a script that
//! has been killed, or that starts over, catches nothing any more. What loops as long as a script likes calls
//! [`LuaState::poll`]. No library gives scripts a userdata with a metatable of their own (`newproxy`): its finalizer would
//! run wherever memory is asked for.

mod base;
mod bits;
mod cjson;
mod cmsgpack;
pub mod pattern;
mod per_script;
mod random;
mod raw;
pub mod seal;
mod strings;
mod structs;
mod support;
mod tables;
#[cfg(test)]
mod tests;

use crate::state::{LuaState, Raise};

/// Fills the globals of a new machine. Lua's standard libraries that are safe as they are have been opened before:
/// base, string, table, math, coroutine (base opens it).
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    base::open(state)?;
    strings::open(state)?;
    tables::open(state)?;
    random::open(state)?;
    bits::open(state)?;
    structs::open(state)?;
    cjson::open(state)?;
    cmsgpack::open(state)?;
    seal::seal(state)
}
