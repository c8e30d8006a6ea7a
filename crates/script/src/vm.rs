//! A machine: one Lua state with its libraries, which loads scripts and runs them.
//!
//! It belongs to one thread. Scripts share its globals, which they can't change, and nothing else.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use mlua_sys::lua51 as ffi;

use crate::context::{Context, allocate};
use crate::host::Host;
use crate::libs;
use crate::state::{Raise, RawState, State};

/// The text of the error by which a script that has to end ends.
pub(crate) const ENDED: &str = "Script killed by user with SCRIPT KILL.";
/// Instructions of Lua's between two looks whether a script may go on: some hundred microseconds.
const INSTRUCTIONS_BETWEEN_LOOKS: c_int = 100_000;
/// Bytes of a script's text. Lua counts some things of it in 32 bits.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A script that a machine has loaded. It means nothing to another machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded(c_int);

/// Why a script could not be loaded or failed: the error's value as text.
pub type Failure = Vec<u8>;

/// See the module's documentation.
pub struct Vm {
    lua: *mut RawState,
    /// What Lua's allocator leads to; freed after the state.
    context: *mut Context,
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: both were made by `new` and belong to nobody else.
        unsafe {
            ffi::lua_close(self.lua);
            drop(Box::from_raw(self.context));
        }
    }
}

impl Vm {
    /// A machine whose scripts may use so many bytes of memory together. None, if they don't suffice to begin with.
    #[must_use]
    pub fn new(memory_bytes_max: usize) -> Option<Vm> {
        let context = Box::into_raw(Box::new(Context::new(memory_bytes_max)));
        // SAFETY: the context outlives the state.
        let lua = unsafe { ffi::lua_newstate(allocate, context.cast()) };
        if lua.is_null() {
            // SAFETY: it was made above, and nobody knows it.
            drop(unsafe { Box::from_raw(context) });
            return None;
        }
        let mut vm = Vm { lua, context };
        vm.natively(|state| {
            open_standard(state)?;
            libs::open(state)
        })
        .ok()?;
        Some(vm)
    }

    /// Does something that no error of Lua's jumps out of.
    fn natively<T>(&mut self, run: impl FnOnce(&mut State) -> Result<T, Raise>) -> Result<T, Failure> {
        // SAFETY: the context is alive; memory is not refused until the end.
        unsafe { (*self.context).in_native = true };
        // SAFETY: the state is alive and used through this alone.
        let mut state = unsafe { State::from_raw(self.lua) };
        let result = run(&mut state).map_err(|Raise| state.bytes(-1).unwrap_or_default().to_vec());
        state.set_top(0);
        // SAFETY: as above.
        unsafe { (*self.context).in_native = false };
        result
    }

    /// Bytes of memory that Lua uses.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        // SAFETY: the context is alive.
        unsafe { (*self.context).used_bytes }
    }

    /// Loads a script's text. `name` is what errors call it ("@user_script").
    pub fn load(&mut self, text: &[u8], name: &CStr) -> Result<Loaded, Failure> {
        self.natively(|state| {
            load(state, text, name)?;
            // SAFETY: the state is alive, the function is on top; memory is not refused.
            Ok(Loaded(unsafe { ffi::luaL_ref(state.raw(), ffi::LUA_REGISTRYINDEX) }))
        })
    }

    /// Forgets a script.
    pub fn unload(&mut self, script: Loaded) {
        // SAFETY: the state is alive; the reference came from `load`.
        unsafe { ffi::luaL_unref(self.lua, ffi::LUA_REGISTRYINDEX, script.0) };
    }

    /// Runs a script with a host, and leaves what it returns to `then`.
    pub fn run<T>(
        &mut self,
        script: Loaded,
        host: &mut dyn Host,
        then: impl FnOnce(&mut State) -> T,
    ) -> Result<T, Failure> {
        // SAFETY: the lifetime is cut off for as long as this function runs; the host is not used beside meanwhile.
        let host = unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(NonNull::from(host)) };
        // SAFETY: the context is alive, and so is the state.
        unsafe {
            (*self.context).host = Some(host);
            (*self.context).ending = false;
            ffi::lua_sethook(self.lua, Some(on_count), ffi::LUA_MASKCOUNT, INSTRUCTIONS_BETWEEN_LOOKS);
        }
        let result = self.natively(|state| {
            // SAFETY: the state is alive.
            unsafe { ffi::lua_rawgeti_(state.raw(), ffi::LUA_REGISTRYINDEX, script.0) };
            state.call(0, 1)?;
            Ok(then(state))
        });
        // SAFETY: the context is alive.
        unsafe { (*self.context).host = None };
        result
    }
}

/// Lua's own libraries, as far as scripts have them.
fn open_standard(state: &mut State) -> Result<(), Raise> {
    let libraries: [(&CStr, ffi::lua_CFunction); 4] = [
        (c"", ffi::luaopen_base),
        (c"table", ffi::luaopen_table),
        (c"string", ffi::luaopen_string),
        (c"math", ffi::luaopen_math),
    ];
    for (name, open) in libraries {
        state.push_native(open);
        state.push_short(name.to_bytes());
        state.call(1, 0)?;
    }
    Ok(())
}

/// Loads a text as a function, which it pushes. Bytecode is refused: Lua 5.1 believes whatever it says.
pub(crate) fn load(state: &mut State, text: &[u8], name: &CStr) -> Result<(), Raise> {
    if text.first() == Some(&ffi::LUA_SIGNATURE[0]) {
        return Err(state.error_value(b"attempt to load a binary chunk"));
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(state.error_value(b"chunk has too many bytes"));
    }
    struct Text<'t>(&'t [u8]);
    unsafe extern "C-unwind" fn read(_: *mut RawState, text: *mut c_void, size: *mut usize) -> *const std::ffi::c_char {
        // SAFETY: `lua_load` is given both below.
        unsafe {
            let text = &mut *text.cast::<Text<'_>>();
            let all = std::mem::take(&mut text.0);
            *size = all.len();
            all.as_ptr().cast()
        }
    }
    state.ensure(3)?;
    let mut text = Text(text);
    // The parser of 5.1 holds strings, the chunk's name among them, that the collector doesn't see (CVE-2025-49844): it
    // rests meanwhile.
    // SAFETY: the state is alive; loading runs in Lua's protected mode, and the reader raises nothing.
    let status = unsafe {
        ffi::lua_gc(state.raw(), ffi::LUA_GCSTOP, 0);
        let status = ffi::lua_load(state.raw(), read, (&raw mut text).cast(), name.as_ptr());
        ffi::lua_gc(state.raw(), ffi::LUA_GCRESTART, 0);
        status
    };
    if status == ffi::LUA_OK { Ok(()) } else { Err(Raise) }
}

/// Called every so many instructions.
unsafe extern "C-unwind" fn on_count(lua: *mut RawState, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls, so that nobody holds a reference to the context; this frame owns nothing.
    unsafe {
        let context = Context::of(lua);
        if (*context).look() == crate::host::Verdict::End {
            // Whatever it catches, it ends at its next instruction.
            ffi::lua_sethook(lua, Some(on_count), ffi::LUA_MASKCOUNT, 1);
            (*context).in_native = true;
            State::from_raw(lua).end();
            (*context).in_native = false;
            ffi::lua_error(lua);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Verdict;

    /// A host that lets a script be looked at so often.
    struct Patience(u32);

    impl Host for Patience {
        fn poll(&mut self) -> Verdict {
            self.0 = self.0.saturating_sub(1);
            if self.0 == 0 { Verdict::End } else { Verdict::Go }
        }
    }

    fn run(text: &str) -> String {
        let mut vm = Vm::new(4 * 1024 * 1024).unwrap();
        let result = vm.load(text.as_bytes(), c"@user_script").and_then(|script| {
            vm.run(script, &mut Patience(100), |state| {
                state.bytes(-1).map_or(format!("{:?}", state.kind(-1)), |b| String::from_utf8_lossy(b).into_owned())
            })
        });
        result.unwrap_or_else(|failure| format!("failed: {}", String::from_utf8_lossy(&failure)))
    }

    #[test]
    fn a_script_runs() {
        assert_eq!(run("return 'a' .. 1"), "a1");
        assert_eq!(run("return {}"), "Table");
        assert_eq!(run("x ="), "failed: user_script:1: unexpected symbol near '<eof>'");
        assert_eq!(run("\n error('no')"), "failed: user_script:2: no");
        assert_eq!(run("\x1bLua"), "failed: attempt to load a binary chunk");
    }

    #[test]
    fn a_script_that_does_not_end_is_ended_whatever_it_catches() {
        let ended = format!("failed: {ENDED}");
        assert_eq!(run("while true do end"), ended);
        assert_eq!(run("while true do pcall(function() while true do end end) end"), ended);
    }

    #[test]
    fn memory_has_a_limit() {
        assert_eq!(run("local s = 'x' while true do s = s .. s end"), "failed: not enough memory");
        assert_eq!(run("local t = {} for i = 1, 1e7 do t[i] = {} end"), "failed: not enough memory");
    }
}
