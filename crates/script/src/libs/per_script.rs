//! What functions of a library remember, for as long as the script that runs: no script sees what another left.
//!
//! `unsafe`, since it is memory of Lua's without a type. The invariant: **a function that asks for a `T` was made with
//! a [`PerScript`] of `T` as its first upvalue.**

use mlua_sys::lua51 as ffi;

use crate::state::LuaState;

/// A value together with the run that it was last used in.
#[derive(Clone, Copy)]
pub struct PerScript<T> {
    value: T,
    initial: T,
    /// None, if the value outlives scripts.
    run: Option<u64>,
}

impl<T: Copy> PerScript<T> {
    /// A value that every script finds as it was at first.
    pub fn new(value: T) -> PerScript<T> {
        PerScript { value, initial: value, run: Some(0) }
    }

    /// A value that stays as it was left.
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

/// Pushes a userdata that holds the value: the upvalue of functions to be made.
pub fn push<T: Copy>(state: &mut LuaState, value: PerScript<T>) {
    const { assert!(align_of::<PerScript<T>>() <= 8, "Lua aligns its userdata to eight bytes") };
    // SAFETY: the state is alive, a native runs, the memory is as large and aligned as the value, which needs no drop.
    unsafe {
        let memory = ffi::lua_newuserdata(state.raw(), size_of::<PerScript<T>>());
        memory.cast::<PerScript<T>>().write(value);
    }
}

/// The value of the running function.
///
/// # Safety
///
/// The function's first upvalue was made by [`push`] for the same type.
pub unsafe fn upvalue<T: Copy>(state: &mut LuaState) -> &mut T {
    let run = state.context().run;
    // SAFETY: the state is alive, the upvalue is what the caller says; it lives as long as the function runs, and
    // there is no other reference to it while the state is borrowed.
    unsafe {
        let memory = ffi::lua_touserdata(state.raw(), ffi::lua_upvalueindex(1));
        (*memory.cast::<PerScript<T>>()).of_run(run)
    }
}
