//! State of a library's functions that lasts as long as the running script: no script sees the state of another.
//!
//! The module is `unsafe` because the state is in untyped memory of Lua. The invariant: **a function that asks for a
//! `T` was created with a [`PerScript`] of `T` as its first upvalue.**

use mlua_sys::lua51 as ffi;

use crate::state::LuaState;

/// A value, and the run in which it was last used.
#[derive(Clone, Copy)]
pub struct PerScript<T> {
    value: T,
    initial: T,
    /// None if the value outlives scripts.
    run: Option<u64>,
}

impl<T: Copy> PerScript<T> {
    /// Returns a value that is reset for every script.
    pub fn new(value: T) -> PerScript<T> {
        PerScript { value, initial: value, run: Some(0) }
    }

    /// Returns a value that keeps its changes.
    pub fn lasting(value: T) -> PerScript<T> {
        PerScript { value, initial: value, run: None }
    }

    fn of_run(&mut self, run: u64) -> &mut T {
        if self.run.is_some_and(|last| last != run) {
            self.run = Some(run);
            self.value = self.initial;
        }
        &mut self.value
    }
}

/// Pushes a userdata with the value: the upvalue of functions to be created.
pub fn push<T: Copy>(state: &mut LuaState, value: PerScript<T>) {
    const { assert!(align_of::<PerScript<T>>() <= 8, "Lua aligns its userdata to eight bytes") };
    // SAFETY: the state is alive and a native runs; the memory has the size and alignment of the value, which needs no
    // drop.
    unsafe {
        let memory = ffi::lua_newuserdata(state.raw(), size_of::<PerScript<T>>());
        memory.cast::<PerScript<T>>().write(value);
    }
}

/// Returns the value of the running function.
///
/// # Safety
///
/// The function's first upvalue was made by [`push`] for the same type.
pub unsafe fn upvalue<T: Copy>(state: &mut LuaState) -> &mut T {
    let run = state.context().run;
    // SAFETY: the state is alive, the caller guarantees the upvalue's type; the upvalue lives as long as the function
    // runs, and there is no other reference to it while the state is borrowed.
    unsafe {
        let memory = ffi::lua_touserdata(state.raw(), ffi::lua_upvalueindex(1));
        (*memory.cast::<PerScript<T>>()).of_run(run)
    }
}
