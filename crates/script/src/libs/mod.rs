//! The libraries that scripts have, and what of Lua's own they don't.
//!
//! Each is a file here with a function `open`, which is a line of [`open`]. They run once for every machine, with all of
//! memory; then the globals are what scripts see.
//!
//! What catches errors (`pcall`, `xpcall`, `coroutine.resume`) raises them again if [`State::is_ending`]: a script that has
//! been killed, or that starts over, catches nothing any more. What loops as long as a script likes calls
//! [`State::poll`]. No library gives scripts a userdata with a metatable of their own (`newproxy`): its finalizer would
//! run wherever memory is asked for.

use crate::state::{Raise, State};

/// Fills the globals of a new machine. Lua's standard libraries that are safe as they are have been opened before:
/// base, string, table, math, coroutine (base opens it).
pub fn open(_state: &mut State) -> Result<(), Raise> {
    Ok(())
}
