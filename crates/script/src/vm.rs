//! A machine: one Lua state with its libraries, which loads scripts and runs them.
//!
//! A machine belongs to one thread. Scripts share only its globals, which they can't change.

use std::borrow::Cow;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use mlua_sys::lua51 as ffi;
use resp::reply::Reply;
use resp::request::Args;

use crate::api::{self, Version};
use crate::arguments::{Arguments, Uses, push_sequence};
use crate::context::{Context, allocate};
use crate::from_reply::COUNTED;
use crate::host::Host;
use crate::library::{self, Registered};
use crate::state::{LuaState, LuaType, NOT_ENOUGH_MEMORY, Raise, RawState};
use crate::{libs, native, to_reply};

/// The text of the error that ends a script.
pub(crate) const ENDED: &str = "Script killed by user with SCRIPT KILL...";
/// Number of Lua instructions between two checks whether the script may go on: some ten microseconds; a check takes
/// less than a hundredth of that. Bytes of strings count as instructions, too, see third_party/lua.
const INSTRUCTIONS_BETWEEN_LOOKS: c_int = 10_000;
/// Longest text of a script. Lua counts some parts of a text in 32 bits.
pub(crate) const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;
// The longest such part is the pair of brackets of a long string: twice the level's length, plus four (CVE-2025-46819).
const _: () = assert!(TEXT_BYTES_MAX < (c_int::MAX as usize) / 2 - 4);

/// A loaded script. It is valid only in the machine that loaded it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The reference of the function in the registry.
    pub(crate) reference: c_int,
    /// The tables of arguments that the script may access.
    pub(crate) uses: Uses,
}

impl Loaded {
    /// Pops a function and stores it in the registry.
    pub(crate) fn take(state: &mut LuaState, uses: Uses) -> Loaded {
        assert_eq!(state.kind(-1), LuaType::Function);
        // SAFETY: the state is alive, the function is on top; memory is not refused.
        let reference = unsafe { ffi::luaL_ref(state.raw(), ffi::LUA_REGISTRYINDEX) };
        Loaded { reference, uses }
    }
}

/// The reason why a script failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The error reply, which begins with the error code.
    pub text: Vec<u8>,
    /// True if the error comes from a command; then it was counted when the command ran.
    pub is_counted: bool,
}

/// One call of a script.
#[derive(Clone, Copy)]
pub struct Call<'c> {
    /// The script.
    pub script: Loaded,
    /// The name in error texts: the script's digest, or a function's name.
    pub name: &'c str,
    /// The request that contains the keys and the other arguments.
    pub args: Args<'c>,
    /// The index of the first key; the other arguments follow the last key.
    pub first_key: usize,
    /// The number of keys.
    pub keys: usize,
    /// True for a function of a library, which gets its keys and arguments as parameters; a script finds them in
    /// globals.
    pub is_function: bool,
}

/// See the module's documentation.
pub struct Vm {
    lua: *mut RawState,
    /// The context of Lua's allocator; freed after the state.
    context: *mut Context,
    /// None until the machine is complete.
    arguments: Option<Arguments>,
}

/// Index of the function [`locate`] on the machine's stack. The values of [`Arguments`] follow it.
const LOCATE: c_int = 1;

// SAFETY: Lua's state and the context belong to the machine alone and are not tied to a thread; the owner of the
// machine owns both.
unsafe impl Send for Vm {}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: both were made by `new`, and the machine is their only owner.
        unsafe {
            ffi::lua_close(self.lua);
            drop(Box::from_raw(self.context));
        }
    }
}

impl Vm {
    /// Returns a machine with this memory limit for all its scripts together; None if the limit is too small for the
    /// libraries.
    #[must_use]
    pub fn new(memory_bytes_max: usize, version: Version) -> Option<Vm> {
        let context = Box::into_raw(Box::new(Context::new(memory_bytes_max)));
        // SAFETY: the context outlives the state.
        let lua = unsafe { ffi::lua_newstate(allocate, context.cast()) };
        if lua.is_null() {
            // SAFETY: the context was created above, and there is no other pointer to it.
            drop(unsafe { Box::from_raw(context) });
            return None;
        }
        let mut vm = Vm { lua, context, arguments: None };
        let opened = vm.natively(|state, _| {
            open_standard(state)?;
            api::open(state, version)?;
            library::open(state, version)?;
            libs::open(state)
        });
        opened.ok()?;
        // SAFETY: the state is alive; memory is not refused while the context says so.
        unsafe { (*vm.context).in_native = true };
        // SAFETY: as above; nothing else uses the state.
        let mut state = unsafe { LuaState::from_raw(vm.lua) };
        state.push_native(native!(locate));
        vm.arguments = Some(Arguments::new(&mut state).ok()?);
        vm.context().in_native = false;
        // SAFETY: the state is alive.
        unsafe { ffi::lua_sethook(vm.lua, Some(on_count), ffi::LUA_MASKCOUNT, INSTRUCTIONS_BETWEEN_LOOKS) };
        Some(vm)
    }

    /// Runs a closure during which Lua never jumps. Restores the height of the stack.
    #[inline]
    fn natively<T>(&mut self, run: impl FnOnce(&mut LuaState, Option<&mut Arguments>) -> T) -> T {
        // SAFETY: the context is alive; memory is not refused until the end.
        unsafe { (*self.context).in_native = true };
        // SAFETY: the state is alive and nothing else uses it; values below the top are not removed.
        unsafe {
            let mut state = LuaState::from_raw(self.lua);
            let top = state.top();
            let result = run(&mut state, self.arguments.as_mut());
            ffi::lua_settop(self.lua, top);
            (*self.context).in_native = false;
            result
        }
    }

    /// Changes the memory limit.
    pub fn limit_memory(&mut self, bytes_max: usize) {
        self.context().limit_bytes = bytes_max;
    }

    /// Bytes of memory that Lua uses.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        // SAFETY: the context is alive.
        unsafe { (*self.context).used_bytes }
    }

    /// Collects unreachable values at once if more than half of the limit is in use. Lua itself begins a collection
    /// when memory use has doubled since the last one, which may be above the limit.
    pub fn relieve(&mut self) {
        if self.is_half_full() {
            self.collect();
        }
    }

    /// Returns true if more than half of the limit is in use, including garbage.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        // SAFETY: the context is alive.
        let context = unsafe { &*self.context };
        context.used_bytes > context.limit_bytes / 2
    }

    /// Frees the memory of unreachable values.
    pub fn collect(&mut self) {
        self.natively(|state, _| state.collect());
    }

    /// Loads a script's text. `name` is its name in error texts ("@user_script"); a failure has Lua's own text. The
    /// host may end the loading.
    pub fn load(&mut self, text: &[u8], name: &CStr, host: &mut dyn Host) -> Result<Loaded, Vec<u8>> {
        self.begin(host);
        let loaded = self.natively(|state, _| {
            let loaded = load(state, text, name).map(|()| Loaded::take(state, Uses::of_text(text)));
            loaded.map_err(|Raise| state.bytes(-1).unwrap_or_default().to_vec())
        });
        self.context().host = None;
        loaded
    }

    /// Loads a library's text, and returns the functions that it registers. An error is the reply without its error
    /// code.
    pub fn load_library(&mut self, text: &[u8], host: &mut dyn Host) -> Result<Vec<Registered>, Vec<u8>> {
        self.begin(host);
        self.context().registering = Some(Vec::new());
        let result = self.natively(|state, _| {
            if load(state, text, c"@user_function").is_err() {
                return Err([b"Error compiling function: ", state.bytes(-1).unwrap_or_default()].concat());
            }
            library::adopt(state);
            library::set_loading(state, true);
            let called = state.call_handled(0, 0, LOCATE);
            library::set_loading(state, false);
            called.map_err(|Raise| [b"Error registering functions: ", &*error_text(state)].concat())
        });
        self.context().host = None;
        let registered = self.context().registering.take().unwrap_or_default();
        self.end();
        if let Err(error) = result {
            registered.iter().for_each(|function| self.unload(function.loaded));
            return Err(error);
        }
        if registered.is_empty() { Err(b"No functions registered".to_vec()) } else { Ok(registered) }
    }

    /// Prepares a run. The caller takes the host back out of the context before it returns.
    fn begin(&mut self, host: &mut dyn Host) {
        // SAFETY: only the lifetime changes; the pointer is removed from the context before the host is used otherwise.
        let lent = unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(NonNull::from(host)) };
        if self.context().ending {
            // The last script was ended by a hook after every instruction.
            // SAFETY: the state is alive.
            unsafe { ffi::lua_sethook(self.lua, Some(on_count), ffi::LUA_MASKCOUNT, INSTRUCTIONS_BETWEEN_LOOKS) };
        }
        self.context().begin(lent);
    }

    /// Forgets a script.
    pub fn unload(&mut self, script: Loaded) {
        // SAFETY: the state is alive; the reference came from `load`.
        unsafe { ffi::luaL_unref(self.lua, ffi::LUA_REGISTRYINDEX, script.reference) };
    }

    /// Runs a script, and writes the value that it returns. A script that the host ends fails.
    pub fn run(&mut self, call: Call<'_>, host: &mut dyn Host, reply: &mut Reply<'_>) -> Result<(), Failure> {
        self.begin(&mut *host);
        let result = self.natively(|state, arguments| {
            let called = arguments.map_or(Ok(()), |arguments| call_with(state, &call, arguments));
            state.context().host = None;
            called.map(|()| to_reply::write(state, reply, host)).map_err(|Raise| failure(state, call.name))
        });
        self.end();
        result
    }

    /// Collects garbage after a run that was refused memory, so that the next run finds room.
    fn end(&mut self) {
        if std::mem::take(&mut self.context().refused) {
            self.collect();
        }
    }

    fn context(&mut self) -> &mut Context {
        // SAFETY: the context is alive, and no native that uses it runs.
        unsafe { &mut *self.context }
    }
}

/// Calls the script or function with its keys and arguments. Leaves its result or its error on top of the stack.
fn call_with(state: &mut LuaState, call: &Call<'_>, arguments: &mut Arguments) -> Result<(), Raise> {
    let Loaded { reference, uses } = call.script;
    let mut args = call.args.from(call.first_key);
    if !call.is_function {
        arguments.set(state, uses, call.keys, args)?;
        push_registered(state, reference);
        let called = state.call_handled(0, 1, LOCATE);
        arguments.forget_large(state);
        return called;
    }
    arguments.unset(state);
    push_registered(state, reference);
    // New tables instead of the kept ones: a function may keep its parameters.
    push_sequence(state, args.by_ref().take(call.keys))?;
    push_sequence(state, args)?;
    state.call_handled(2, 1, LOCATE)
}

/// Pushes a value from the registry.
fn push_registered(state: &mut LuaState, reference: c_int) {
    // SAFETY: the state is alive; there is a slot, since callers have few values on the stack.
    unsafe { ffi::lua_rawgeti_(state.raw(), ffi::LUA_REGISTRYINDEX, reference) };
}

/// Returns the text of the error on top of the stack.
fn error_text(state: &mut LuaState) -> Vec<u8> {
    if state.kind(-1) != LuaType::Table {
        return state.display(-1);
    }
    state.raw_get_named(-1, "err");
    let text = state.display(-1);
    state.pop(1);
    text
}

/// The handler of uncaught errors: turns the error into a table, and adds the position to it.
fn locate(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.kind(1) != LuaType::Table {
        let text = [b"ERR ", &*state.display(1)].concat();
        state.push_table(0, 3)?;
        state.push_bytes(&text)?;
        state.raw_set_named(-2, "err");
        state.replace(1);
    }
    state.set_top(1);
    if let Some((source, line)) = state.running_at() {
        state.push_bytes(&source)?;
        state.raw_set_named(1, "source");
        state.push_number(f64::from(line));
        state.raw_set_named(1, "line");
    }
    Ok(1)
}

/// Returns the error reply for the error on top of the stack.
fn failure(state: &mut LuaState, name: &str) -> Failure {
    if state.kind(-1) != LuaType::Table {
        let text = state.bytes(-1).unwrap_or(b"execution failure");
        let text = [b"ERR Error running script ", name.as_bytes(), b", ", text].concat();
        return Failure { text, is_counted: false };
    }
    let mut field = |key: &str| {
        state.raw_get_named(-1, key);
        let text = match state.kind(-1) {
            LuaType::Nil => None,
            _ => Some(state.display(-1)),
        };
        state.pop(1);
        text
    };
    let is_counted = field(COUNTED).is_some();
    let mut text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(line)) = (field("source"), field("line")) {
        text.extend([b" script: ", name.as_bytes(), b", on ", &*source, b":", &*line, b"."].concat());
    }
    Failure { text, is_counted }
}

/// Opens Lua's own libraries, except those that scripts must not have.
fn open_standard(state: &mut LuaState) -> Result<(), Raise> {
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

/// A text that the parser gets piece by piece, so that loading can be stopped.
struct Text<'t> {
    rest: &'t [u8],
    is_cut: bool,
}

/// Bytes that the parser gets at once; compiling them takes little memory and time.
const PIECE_BYTES: usize = 4096;
/// Cost of compiling a byte relative to the cost of reading it.
const COMPILE_TIMES: usize = 8;

/// Returns the next piece for the parser; none at the end, or when the memory or the script's time is used up.
unsafe extern "C-unwind" fn read(lua: *mut RawState, text: *mut c_void, size: *mut usize) -> *const std::ffi::c_char {
    // SAFETY: `load` passes both pointers to `lua_load`; nothing else uses the text or the context meanwhile.
    unsafe {
        let text = &mut *text.cast::<Text<'_>>();
        let context = &mut *Context::of(lua);
        let (piece, rest) = text.rest.split_at(text.rest.len().min(PIECE_BYTES));
        let goes_on = context.has_room(0) && context.poll_for(COMPILE_TIMES * piece.len()) == crate::host::Verdict::Go;
        text.is_cut |= !piece.is_empty() && !goes_on;
        if text.is_cut {
            *size = 0;
            return std::ptr::null();
        }
        text.rest = rest;
        *size = piece.len();
        piece.as_ptr().cast()
    }
}

/// Loads a text and pushes its function. Bytecode is refused: Lua 5.1 does not verify it.
pub(crate) fn load(state: &mut LuaState, text: &[u8], name: &CStr) -> Result<(), Raise> {
    // A space in front turns the bytecode mark into an unknown symbol of a text, with the same error as in Redis.
    let is_binary = text.first() == Some(&ffi::LUA_SIGNATURE[0]);
    let text = if is_binary { Cow::Owned([b" ", text].concat()) } else { Cow::Borrowed(text) };
    if text.len() > TEXT_BYTES_MAX {
        return Err(state.error_value(b"chunk has too many bytes"));
    }
    state.ensure(3)?;
    let mut text = Text { rest: &text, is_cut: false };
    // The collector is stopped as a second protection of the parser's strings, beside the patch in third_party/lua
    // (CVE-2025-49844).
    let before = state.context().used_bytes;
    // SAFETY: the state is alive; loading runs in Lua's protected mode, and the reader raises nothing.
    let status = unsafe {
        ffi::lua_gc(state.raw(), ffi::LUA_GCSTOP, 0);
        ffi::lua_load(state.raw(), read, (&raw mut text).cast(), name.as_ptr())
    };
    let made = state.context().used_bytes.saturating_sub(before);
    // Restarts the collector and makes up for the allocations meanwhile. Otherwise a machine that only compiles would
    // never collect the scripts that it has forgotten.
    state.collect_for(made);
    if text.is_cut {
        // The function or the error of a truncated text is discarded.
        state.pop(1);
        state.collect();
        return Err(if state.is_ending() { state.end() } else { state.error_value(NOT_ENOUGH_MEMORY) });
    }
    if status == ffi::LUA_OK { Ok(()) } else { Err(Raise) }
}

/// The hook that Lua calls after a number of instructions.
unsafe extern "C-unwind" fn on_count(lua: *mut RawState, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua is the caller, so there is no reference to the context; this frame owns nothing.
    unsafe {
        let context = Context::of(lua);
        if (*context).look() == crate::host::Verdict::End {
            // If the script catches the error, its next instruction raises it again.
            ffi::lua_sethook(lua, Some(on_count), ffi::LUA_MASKCOUNT, 1);
            (*context).in_native = true;
            LuaState::from_raw(lua).end();
            (*context).in_native = false;
            ffi::lua_error(lua);
        }
    }
}

#[cfg(test)]
mod tests {
    use resp::reply::{Output, Proto};

    use super::*;
    use crate::host::{Access, LogLevel, Verdict};

    /// A host that ends a script after `patience` checks, and echoes the arguments of commands.
    struct Echo {
        patience: u32,
    }

    impl Host for Echo {
        fn call(&mut self, args: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict {
            match args.get(0) {
                b"echo" => reply.extend(args.get(1)),
                b"end" => return Verdict::End,
                _ => Reply::new(reply, proto).error("ERR no such thing"),
            }
            Verdict::Go
        }

        fn poll(&mut self) -> Verdict {
            self.patience = self.patience.saturating_sub(1);
            if self.patience == 0 { Verdict::End } else { Verdict::Go }
        }

        fn log(&mut self, _: LogLevel, _: &[u8]) {}

        fn access(&mut self, _: Args<'_>) -> Access {
            Access::Allowed
        }

        fn replicate(&mut self, _: bool, _: bool) {}

        fn error_returned(&mut self, _: &[u8], _: bool) {}
    }

    const VERSION: Version = Version { text: "7.2.4", number: 0x0007_0204 };

    /// The reply of a script, with `|` for each line end.
    fn run_with(text: &str, args: &[&str], keys: usize) -> String {
        let mut vm = Vm::new(4 * 1024 * 1024, VERSION).unwrap();
        let script = match vm.load(text.as_bytes(), c"@user_script", &mut Echo { patience: 1000 }) {
            Ok(script) => script,
            Err(error) => return format!("not loaded: {}", String::from_utf8_lossy(&error)),
        };
        let args = resp::request::OwnedArgs::new(args.iter().map(|arg| arg.as_bytes()));
        let call = Call { script, name: "SHA", args: args.args(), first_key: 0, keys, is_function: false };
        let mut output = Output::default();
        let result = vm.run(call, &mut Echo { patience: 100 }, &mut Reply::new(&mut output, Proto::Resp3));
        match result {
            Ok(()) => String::from_utf8_lossy(output.joined()).replace("\r\n", "|"),
            Err(failure) => format!("failed: {}", String::from_utf8_lossy(&failure.text)),
        }
    }

    fn run(text: &str) -> String {
        run_with(text, &[], 0)
    }

    #[test]
    fn a_script_runs() {
        assert_eq!(run("return 'a' .. 1"), "$2|a1|");
        assert_eq!(run("x ="), "not loaded: user_script:1: unexpected symbol near '<eof>'");
        assert_eq!(run("\n error('no')"), "failed: ERR user_script:2: no script: SHA, on @user_script:2.");
        assert_eq!(run("\x1bLua"), "not loaded: user_script:1: unexpected symbol near 'char(27)'");
        assert_eq!(run_with("return {#KEYS, KEYS[1], ARGV[1], ARGV[2]}", &["a", "b", "c"], 1), "*4|:1|$1|a|$1|b|$1|c|");
    }

    #[test]
    fn a_script_does_not_see_the_arguments_of_the_previous_one() {
        let mut vm = Vm::new(4 * 1024 * 1024, VERSION).unwrap();
        let mut run = |text: &str, args: &[&str], keys: usize| {
            let script = vm.load(text.as_bytes(), c"@user_script", &mut Echo { patience: 1000 }).unwrap();
            let args = resp::request::OwnedArgs::new(args.iter().map(|arg| arg.as_bytes()));
            let call = Call { script, name: "SHA", args: args.args(), first_key: 0, keys, is_function: false };
            let mut output = Output::default();
            vm.run(call, &mut Echo { patience: 100 }, &mut Reply::new(&mut output, Proto::Resp3)).unwrap();
            String::from_utf8_lossy(output.joined()).replace("\r\n", "|")
        };
        let look = "local t = {} for _, all in ipairs({KEYS, ARGV}) do t[#t + 1] = tostring(getmetatable(all)) \
                    for k, v in pairs(all) do t[#t + 1] = k .. '=' .. v end end return table.concat(t, ' ')";
        let clean = "$27|nil 1=a nil 1=b 2=c 3=d 4=e|";
        assert_eq!(run(look, &["a", "b", "c", "d", "e"], 1), clean);
        let large = "x".repeat(100_000);
        for (dirty, args) in [
            ("return 1", vec!["q"; 50]),
            ("return KEYS[1]", vec!["q"; 50]),
            ("KEYS[5] = 'x' ARGV.x = 'y' return 1", vec!["p", "q", "r"]),
            ("setmetatable(KEYS, {__index = function() return 'x' end}) return KEYS[9]", vec!["p", "q", "r"]),
            ("KEYS[1] = nil ARGV[2] = nil table.remove(ARGV) return 1", vec!["p", "q", "r"]),
            ("for i = 1, 100 do ARGV[i] = 'x' end return 1", vec!["p", "q", "r"]),
            ("ARGV[1.5] = 1 ARGV[-1] = 1 ARGV[0] = 1 ARGV[true] = 1 return #ARGV", vec!["p"; 2000]),
            ("return #KEYS[1]", vec![&large, &large]),
            ("return _G['KE' .. 'YS'][1]", vec!["p", "q"]),
        ] {
            run(dirty, &args, 1);
            assert_eq!(run(look, &["a", "b", "c", "d", "e"], 1), clean, "{dirty}");
            assert_eq!(run(look, &[], 0), "$7|nil nil|", "{dirty}");
        }
        assert_eq!(run("return loadstring('return KE\\89S[1]')()", &["a"], 1), "$1|a|");
    }

    #[test]
    fn replies_become_values_and_values_replies() {
        let check = |reply: &str, value: &str| {
            let text = format!("redis.setresp(3) return redis.call('echo', {reply:?})");
            assert_eq!(run(&text.replace('|', "\\r\\n")), value, "{reply}");
        };
        for same in [
            "+OK|",
            ":-12|",
            "$3|a b|",
            "*2|:1|*1|$0||",
            "_|",
            "#t|",
            "#f|",
            ",1.5|",
            "(123456789012345678901|",
            "=6|txt:hi|",
            "%1|$1|a|:1|",
            "~1|$1|a|",
            "*0|",
            "%0|",
        ] {
            check(same, same);
        }
        check("$-1|", "#f|");
        check("*-1|", "#f|");
        let attribute = r"redis.setresp(3) return redis.call('echo', '|1\r\n+a\r\n+b\r\n:5\r\n')";
        assert_eq!(run(attribute), ":5|");
        check("-ERR x|", "failed: ERR x script: SHA, on @user_script:1.");
        assert_eq!(run("return redis.pcall('echo', '-ERR x\\r\\n')"), "-ERR x|");
        assert_eq!(run("return {3.9, true, false, nil, 5}"), "*3|:3|:1|_|");
        let endless = run("local t = {} t[1] = t return {t, 7}");
        assert_eq!(endless, format!("*2|{}-ERR reached lua stack limit|:7|", "*1|".repeat(7990)));
        let endless = run("local t = {} t.map = {a = t} return t");
        assert!(endless.matches("%1|$1|a|").count() > 1000 && endless.ends_with("-ERR reached lua stack limit|"));
        assert_eq!(run("return {err = 'a\\r\\n+b'}"), "-a  +b|");
        assert_eq!(run("return redis.status_reply('a\\r\\n+b')"), "+a  +b|");
    }

    #[test]
    fn an_endless_script_is_ended_even_if_it_catches_errors() {
        let ended = format!("failed: ERR {ENDED} script: SHA, on @user_script:1.");
        assert_eq!(run("while true do end"), ended);
        assert_eq!(run("while true do pcall(function() while true do end end) end"), ended);
        assert_eq!(run("redis.call('end')"), ended);
    }

    /// None of these scripts runs many Lua instructions: the time is spent elsewhere.
    #[test]
    fn the_host_is_asked_during_every_slow_operation() {
        let ended = format!("failed: ERR {ENDED} script: SHA, on @user_script:1.");
        for slow in [
            "local s = string.rep('x', 1e5)",
            "local s = text:upper()",
            "local s = text:lower()",
            "local s = text:reverse()",
            "local s = text:sub(2)",
            "local s = text .. i",
            "local s = ('%s'):format(text .. 'x')",
            "local s = redis.sha1hex(text)",
            "local s = text:find('b')",
            "local s = table.concat(list)",
            "table.remove(list, 1)",
            "pcall(cjson.decode, blank)",
            "pcall(struct.unpack, 's', text)",
            "local f = loadstring(comment)",
            "redis.acl_check_cmd('get', text)",
            "redis.log(redis.LOG_DEBUG, text)",
            "collectgarbage()",
            "pcall(redis.call, 'echo', list_reply)",
        ] {
            let text = format!(
                "local text, blank, comment, list = string.rep('a', 1e5), string.rep(' ', 1e5), '--' .. string.rep('a', 1e5), {{}} \
                 for i = 1, 20000 do list[i] = 'x' end \
                 local list_reply = '*3000\\r\\n' .. string.rep(':1\\r\\n', 3000) \
                 for i = 1, 1500 do {slow} end return 'never looked at'"
            );
            assert_eq!(run(&text), ended, "{slow}");
        }
    }

    #[test]
    fn memory_has_a_limit() {
        let refused = "failed: ERR Error running script SHA, not enough memory";
        assert_eq!(run("local s = 'x' while true do s = s .. s end"), refused);
        assert_eq!(run("local t = {} for i = 1, 1e7 do t[i] = {} end"), refused);
    }

    #[test]
    fn garbage_of_a_script_that_was_refused_memory_is_collected() {
        let mut vm = Vm::new(4 * 1024 * 1024, VERSION).unwrap();
        let mut run = |text: &str| {
            let script = vm.load(text.as_bytes(), c"@user_script", &mut Echo { patience: 1000 }).unwrap();
            let args = resp::request::OwnedArgs::new(std::iter::empty());
            let call = Call { script, name: "SHA", args: args.args(), first_key: 0, keys: 0, is_function: false };
            let result =
                vm.run(call, &mut Echo { patience: 1000 }, &mut Reply::new(&mut Output::default(), Proto::Resp2));
            let used = vm.used_bytes();
            (result.is_ok(), used)
        };
        let (_, before) = run("return 1");
        let (is_ok, after) = run("local t = {} for i = 1, 1e7 do t[i] = {i} end");
        assert!(!is_ok && after < before + 500_000, "{before} bytes became {after}");
    }

    /// Lua keeps the jumps to one target in a list; without the patch, adding a jump walks the list.
    #[test]
    fn long_conditions_take_no_longer_to_compile_than_others() {
        const COUNT: usize = 20_000;
        let mut vm = Vm::new(64 * 1024 * 1024, VERSION).unwrap();
        let mut time = |head: &str, part: &str, tail: &str| {
            let text = [head, &part.repeat(COUNT), tail].concat();
            let mut once = || {
                let began = std::time::Instant::now();
                let loaded = vm.load(text.as_bytes(), c"@user_script", &mut Echo { patience: 1000 }).unwrap();
                let took = began.elapsed();
                vm.unload(loaded);
                took
            };
            (0..3).map(|_| once()).min().unwrap()
        };
        let usual = time("local a ", "a = a + 1 if a then a = 1 end ", "return 1");
        for (head, part, tail) in [
            ("local a return ", "a or ", "1"),
            ("local a return ", "a and ", "1"),
            ("local a return ", "(a and 1) or ", "1"),
            ("local a if a then ", "elseif a then ", "end return 1"),
            ("local a while a do ", "if a then break end ", "end return 1"),
        ] {
            let took = time(head, part, tail);
            assert!(took < usual * 10, "{part}: {took:?}, where others took {usual:?}");
        }
        let says = |a: &str, b: &str| {
            run(&format!("local a, b = {a}, {b} return {}'none'", "a and b or b and a or ".repeat(3)))
        };
        assert_eq!([says("1", "2"), says("false", "2"), says("1", "nil")], [":2|", "$4|none|", "$4|none|"]);
    }

    #[test]
    fn a_text_is_compiled_within_limits() {
        let mut vm = Vm::new(4 * 1024 * 1024, VERSION).unwrap();
        let mut load = |text: &str, patience: u32| {
            let loaded = vm.load(text.as_bytes(), c"@user_script", &mut Echo { patience });
            let used = vm.used_bytes();
            assert!(used < 1024 * 1024, "{used} bytes are used");
            loaded.map(|loaded| vm.unload(loaded)).map_err(|error| String::from_utf8_lossy(&error).into_owned())
        };
        let large = format!("local a {}", "a = {} ".repeat(1_000_000));
        assert_eq!(load(&large, 1_000_000), Err("not enough memory".into()));
        // A comment takes no memory, but the host is asked all the same.
        let comment = format!("--{}", "x".repeat(10_000_000));
        assert_eq!(load(&comment, 1_000_000), Ok(()));
        assert_eq!(load(&comment, 3), Err(ENDED.into()));
        assert_eq!(load("return 1", 1_000_000), Ok(()));
        // The first half alone would be a valid script.
        assert_eq!(load(&format!("return 1 {}", " ".repeat(10_000_000)), 3), Err(ENDED.into()));
        let ended = format!("failed: ERR {ENDED} script: SHA, on @user_script:1.");
        assert_eq!(run("local s = '--' .. string.rep('x', 1e6) while true do pcall(loadstring, s) end"), ended);
    }

    /// The order of `pairs` depends on the hashes of strings: these are the orders of redis-server 7.0 and 8.
    #[test]
    fn keys_are_in_the_order_of_redis() {
        let order = |len: usize| {
            let text = "local t, order = {}, {} \
                        for i = 1, 20 do t[i .. string.rep('k', ARGV[1] - #tostring(i))] = i end \
                        for _, i in pairs(t) do order[#order + 1] = i end return table.concat(order, ' ')";
            run_with(text, &[&len.to_string()], 0).split('|').nth(1).unwrap().to_owned()
        };
        assert_eq!(order(20), "9 7 8 20 15 14 13 12 19 18 10 11 5 6 3 4 1 2 16 17");
        assert_eq!(order(32), "14 13 16 10 2 3 19 1 6 7 4 5 20 18 8 9 17 11 12 15");
        assert_eq!(order(64), "4 3 6 5 2 1 8 7 12 9 10 20 15 16 17 18 19 14 13 11");
        assert_eq!(order(128), "15 14 17 16 18 19 9 8 7 6 5 4 3 10 11 12 13 20 2 1");
    }

    /// Strings with equal hashes are in one list, so looking up twenty thousand of them would take seconds.
    #[test]
    fn similar_strings_take_no_longer_than_others() {
        let mut vm = Vm::new(64 * 1024 * 1024, VERSION).unwrap();
        let mut time = |text: &str| {
            let text = format!("local t = {{}} for i = 1, 20000 do t[i] = {text} end return #t");
            let script = vm.load(text.as_bytes(), c"@user_script", &mut Echo { patience: 1000 }).unwrap();
            let mut once = || {
                let args = resp::request::OwnedArgs::new(["EVAL"].iter().map(|arg| arg.as_bytes()));
                let call = Call { script, name: "SHA", args: args.args(), first_key: 1, keys: 0, is_function: false };
                let mut output = Output::default();
                let began = std::time::Instant::now();
                vm.run(call, &mut Echo { patience: 1000 }, &mut Reply::new(&mut output, Proto::Resp3)).unwrap();
                began.elapsed()
            };
            (0..3).map(|_| once()).min().unwrap()
        };
        let different = time("string.rep(string.format('%07d', i), 43)");
        for similar in [
            "string.rep('x', 300) .. i",
            "i .. string.rep('x', 300)",
            "string.rep('x', 157) .. i .. string.rep('y', 143)",
            "string.rep('x', 60) .. i .. string.rep('x', 50)",
            "string.rep(string.char(i % 2, i % 3, i % 5, i % 7, i % 11, i % 13, 0, 0), 40)",
        ] {
            let took = time(similar);
            assert!(took < different * 10, "{similar}: {took:?}, where others took {different:?}");
        }
    }
}
