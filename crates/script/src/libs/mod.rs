//! The libraries of scripts, and the restrictions of Lua's own libraries.
//!
//! Each library is a file with a function `open`, called in [`open`] here. The functions run once for every machine,
//! with all its memory free; afterwards all globals are made read-only, see [`seal`].
//!
//! Functions that catch errors (`pcall`, `xpcall`, `coroutine.resume`) raise them again if [`LuaState::is_ending`]: a
//! script that was killed, or that starts over, must not catch the error. Functions with a script-controlled number of
//! iterations call [`LuaState::poll`]. No library gives scripts a userdata with a metatable of their own (`newproxy`):
//! its finalizer could run at any allocation.

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

/// Fills the globals of a new machine. Lua's safe standard libraries are already open: base, string, table, math,
/// coroutine (opened by base).
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
