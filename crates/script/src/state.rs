//! Access of Rust functions to Lua: methods that check the values on Lua's stack.
//!
//! Lua raises an error by jumping back to the frame that catches it (longjmp). The destructors of the frames in between
//! don't run, so a jump over a Rust frame would be unsound. Therefore:
//!
//! - A Rust function called by Lua is a [`Native`]; [`native!`](crate::native) turns it into a C function. A native
//!   raises an error by *returning* [`Raise`], with the error's value on top of the stack. Only the frame below it
//!   jumps, and this frame owns nothing.
//! - No method here jumps: everything that could raise an error is checked before, or called in Lua's protected mode.
//! - Lua also jumps when it runs out of memory. While a native runs, the allocator never refuses memory: methods that
//!   need much memory check the limit first, and the frame below checks it after the native has returned. A native that
//!   creates many small values calls [`LuaState::poll`] in its loop, which checks the limit, too.
//!
//! A script must not be able to keep a native busy forever: loops with a script-controlled length call
//! [`LuaState::poll`].

use std::ffi::{CStr, c_int};

use mlua_sys::lua51 as ffi;

use crate::context::Context;
use crate::host::Verdict;

/// Request to raise an error, with its value on top of the stack.
#[derive(Debug)]
pub struct Raise;

/// A function called by Lua. Its arguments are on the stack, from index 1; it pushes its results and returns their
/// number.
pub type Native = fn(&mut LuaState) -> Result<c_int, Raise>;

/// The type of C functions that Lua calls.
pub type CFunction = ffi::lua_CFunction;

/// Turns a [`Native`] into a [`CFunction`]: `native!(encode)`.
#[macro_export]
macro_rules! native {
    ($native:path) => {{
        unsafe extern "C-unwind" fn entry(lua: *mut $crate::state::RawState) -> ::std::ffi::c_int {
            // SAFETY: Lua calls this function with its state; this frame owns nothing.
            unsafe { $crate::state::enter(lua, $native) }
        }
        entry as $crate::state::CFunction
    }};
}

/// Lua's own state.
pub type RawState = ffi::lua_State;

/// Runs a native for Lua.
///
/// # Safety
///
/// Lua is the caller and passes its state. The caller's frame owns nothing: an error jumps over it.
#[inline]
pub unsafe fn enter(lua: *mut RawState, native: Native) -> c_int {
    // SAFETY: the state is alive, and nothing else uses it until the native has returned.
    let mut state = unsafe { LuaState::from_raw(lua) };
    let context = state.context;
    // SAFETY: there is no reference to the context while Lua calls.
    unsafe { (*context).in_native = true };
    let result = native(&mut state);
    // SAFETY: as above; the native has returned.
    let over = unsafe {
        (*context).in_native = false;
        !(*context).has_room(0)
    };
    match result {
        Ok(results) if !over => results,
        // SAFETY: the error's value is on the stack; neither this frame nor the caller's frame owns anything.
        Err(Raise) => unsafe { ffi::lua_error(lua) },
        // SAFETY: as above.
        Ok(_) => unsafe {
            // A collection may free enough memory; if not, the collector's own error is the right one.
            ffi::lua_gc(lua, ffi::LUA_GCCOLLECT, 0);
            if (*context).has_room(0) {
                return result.unwrap_or(0);
            }
            (*context).in_native = true;
            let Raise = state.error_value(NOT_ENOUGH_MEMORY);
            (*context).in_native = false;
            ffi::lua_error(lua)
        },
    }
}

/// Lua's error text for refused memory.
pub const NOT_ENOUGH_MEMORY: &[u8] = b"not enough memory";

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are Lua's")]
pub enum LuaType {
    /// No value: the index is above the top of the stack.
    None,
    Nil,
    Boolean,
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    Userdata,
    Thread,
}

impl LuaType {
    fn of(kind: c_int) -> LuaType {
        match kind {
            ffi::LUA_TNIL => LuaType::Nil,
            ffi::LUA_TBOOLEAN => LuaType::Boolean,
            ffi::LUA_TLIGHTUSERDATA => LuaType::LightUserdata,
            ffi::LUA_TNUMBER => LuaType::Number,
            ffi::LUA_TSTRING => LuaType::String,
            ffi::LUA_TTABLE => LuaType::Table,
            ffi::LUA_TFUNCTION => LuaType::Function,
            ffi::LUA_TUSERDATA => LuaType::Userdata,
            ffi::LUA_TTHREAD => LuaType::Thread,
            _ => LuaType::None,
        }
    }

    /// Lua's name of the type, as in its error texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LuaType::None => "no value",
            LuaType::Nil => "nil",
            LuaType::Boolean => "boolean",
            LuaType::LightUserdata | LuaType::Userdata => "userdata",
            LuaType::Number => "number",
            LuaType::String => "string",
            LuaType::Table => "table",
            LuaType::Function => "function",
            LuaType::Thread => "thread",
        }
    }
}

/// Number of slots that a native may push without asking: Lua's guarantee. For more, see [`LuaState::ensure`].
pub const FREE_SLOTS: c_int = ffi::LUA_MINSTACK;

/// The stack of a native. Index 1 is its first argument; -1 is the top.
pub struct LuaState {
    raw: *mut RawState,
    /// The context that belongs to the state's allocator.
    context: *mut Context,
}

impl LuaState {
    /// Wraps Lua's own state.
    ///
    /// # Safety
    ///
    /// The state is alive, belongs to a [`crate::Vm`], and is used only through this wrapper while the wrapper exists.
    /// No error of Lua jumps out of its use: either the context says that a native runs, or no call can fail.
    #[must_use]
    pub unsafe fn from_raw(raw: *mut RawState) -> LuaState {
        // SAFETY: the state is alive, and so is the context of its machine.
        LuaState { raw, context: unsafe { Context::of(raw) } }
    }

    /// Lua's own state, for functions that have no method here.
    #[must_use]
    pub fn raw(&self) -> *mut RawState {
        self.raw
    }

    #[inline]
    pub(crate) fn context(&mut self) -> &mut Context {
        // SAFETY: the machine is alive, and the state is borrowed mutably as long as the context.
        unsafe { &mut *self.context }
    }

    /// Converts an index to one counted from the bottom of the stack.
    #[inline]
    fn absolute(&self, index: c_int) -> c_int {
        if index > 0 {
            return index;
        }
        let at = self.top() + index + 1;
        assert!(index < 0 && at > 0, "a native looked below its stack");
        at
    }

    /// Like `absolute`; panics if there is no value at the index.
    #[inline]
    fn existing(&self, index: c_int) -> c_int {
        let top = self.top();
        let at = if index > 0 { index } else { top + index + 1 };
        assert!(index != 0 && at > 0 && at <= top, "a native looked beyond its stack");
        at
    }

    #[inline]
    fn table(&self, index: c_int) -> c_int {
        let at = self.existing(index);
        assert_eq!(self.kind(at), LuaType::Table, "a native took something else for a table");
        at
    }

    /// Ensures a slot for one more value. A native that pushes more than [`FREE_SLOTS`] values calls
    /// [`LuaState::ensure`] first.
    #[inline]
    fn one_more(&self) {
        // SAFETY: the state is alive; memory is not refused.
        assert!(unsafe { ffi::lua_checkstack(self.raw, 1) } != 0, "a native pushed without asking for room");
    }

    // --- The stack.

    /// The number of values, which is the index of the topmost one.
    #[inline]
    #[must_use]
    pub fn top(&self) -> c_int {
        // SAFETY: the state is alive.
        unsafe { ffi::lua_gettop(self.raw) }
    }

    /// Removes values from the top, or adds nils.
    pub fn set_top(&mut self, top: c_int) {
        assert!(top >= 0 && top <= self.top() + FREE_SLOTS, "a native moved its stack's top out of it");
        // SAFETY: the state is alive, the slots exist.
        unsafe {
            ffi::lua_checkstack(self.raw, FREE_SLOTS);
            ffi::lua_settop(self.raw, top);
        }
    }

    /// Removes `count` values.
    pub fn pop(&mut self, count: c_int) {
        let top = self.top();
        assert!(count >= 0 && count <= top, "a native took more from its stack than there is");
        // SAFETY: the state is alive, the values exist.
        unsafe { ffi::lua_settop(self.raw, top - count) };
    }

    /// Ensures slots for `count` values. Needed before pushing more than [`FREE_SLOTS`] values, and in recursion.
    pub fn ensure(&mut self, count: c_int) -> Result<(), Raise> {
        // SAFETY: the state is alive; memory is not refused.
        if unsafe { ffi::lua_checkstack(self.raw, count) } != 0 { Ok(()) } else { Err(self.error("stack overflow")) }
    }

    /// Returns true if there are slots for `count` values, and ensures them.
    pub fn fits(&mut self, count: c_int) -> bool {
        // SAFETY: the state is alive; memory is not refused.
        unsafe { ffi::lua_checkstack(self.raw, count) != 0 }
    }

    /// Removes all values.
    #[inline]
    pub(crate) fn clear(&mut self) {
        // SAFETY: the state is alive.
        unsafe { ffi::lua_settop(self.raw, 0) };
    }

    /// Pushes a copy of a value.
    pub fn push_copy(&mut self, index: c_int) {
        let at = self.existing(index);
        self.one_more();
        // SAFETY: the state is alive, the value exists, there is room.
        unsafe { ffi::lua_pushvalue(self.raw, at) };
    }

    /// Removes the value at an index; the values above move down.
    pub fn remove(&mut self, index: c_int) {
        let at = self.existing(index);
        // SAFETY: the state is alive, the value exists.
        unsafe { ffi::lua_remove(self.raw, at) };
    }

    /// Moves the topmost value to an index; the values above move up.
    pub fn insert(&mut self, index: c_int) {
        let at = self.existing(index);
        // SAFETY: the state is alive, the value exists.
        unsafe { ffi::lua_insert(self.raw, at) };
    }

    /// Replaces the value at an index by the topmost value, which it pops.
    pub fn replace(&mut self, index: c_int) {
        let at = self.existing(index);
        // SAFETY: the state is alive, the value exists.
        unsafe { ffi::lua_replace(self.raw, at) };
    }

    // --- Reading values.

    /// The type of a value.
    #[inline]
    #[must_use]
    pub fn kind(&self, index: c_int) -> LuaType {
        let at = self.absolute(index);
        // SAFETY: the state is alive; above the top, Lua returns the type "none".
        LuaType::of(unsafe { ffi::lua_type(self.raw, at) })
    }

    /// Returns whether the value counts as true.
    #[must_use]
    pub fn boolean(&self, index: c_int) -> bool {
        let at = self.absolute(index);
        // SAFETY: the state is alive.
        unsafe { ffi::lua_toboolean(self.raw, at) != 0 }
    }

    /// Returns the value of a number, or of a string that contains a number.
    #[must_use]
    pub fn number(&self, index: c_int) -> Option<f64> {
        let at = self.absolute(index);
        // SAFETY: the state is alive. Lua returns zero for values that aren't numbers, too.
        unsafe {
            let number = ffi::lua_tonumber(self.raw, at);
            (number != 0.0 || ffi::lua_isnumber(self.raw, at) != 0).then_some(number)
        }
    }

    /// Returns the bytes of a string, but not of a number. They are valid as long as the string is on the stack; the
    /// borrow prevents changes of the stack. For other uses see [`LuaState::argument`].
    #[must_use]
    pub fn bytes(&self, index: c_int) -> Option<&[u8]> {
        let at = self.absolute(index);
        if self.kind(at) != LuaType::String {
            return None;
        }
        // SAFETY: the string stays on the stack while the state is borrowed.
        Some(unsafe { self.argument(at) })
    }

    /// Returns the bytes of a string, or of a number, which becomes a string in its place. For any other value, returns
    /// no bytes.
    ///
    /// # Safety
    ///
    /// The value stays on the stack, or in a table that does, as long as the bytes are used. An argument satisfies this
    /// if the native leaves it in its place.
    #[inline]
    #[must_use]
    pub unsafe fn argument<'a>(&self, index: c_int) -> &'a [u8] {
        let at = self.existing(index);
        let mut len = 0;
        // SAFETY: the state is alive; the caller keeps the value in its place.
        unsafe {
            let bytes = ffi::lua_tolstring(self.raw, at, &raw mut len);
            if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), len) }
        }
    }

    /// Returns the length of a string, or of a table's sequence, without metamethods.
    #[must_use]
    pub fn raw_len(&self, index: c_int) -> usize {
        let at = self.existing(index);
        // SAFETY: the state is alive, the value exists.
        unsafe { ffi::lua_objlen(self.raw, at) }
    }

    /// Returns whether two values are equal, without metamethods.
    #[must_use]
    pub fn raw_equal(&self, a: c_int, b: c_int) -> bool {
        let (a, b) = (self.existing(a), self.existing(b));
        // SAFETY: the state is alive, the values exist.
        unsafe { ffi::lua_rawequal(self.raw, a, b) != 0 }
    }

    /// Returns the address of a table, function, thread or userdata, which identifies the value.
    #[must_use]
    pub fn identity(&self, index: c_int) -> usize {
        let at = self.absolute(index);
        // SAFETY: the state is alive.
        unsafe { ffi::lua_topointer(self.raw, at) as usize }
    }

    // --- Arguments. Errors have Lua's texts.

    /// Returns the argument's bytes; a number becomes a string.
    pub fn check_bytes(&mut self, n: c_int) -> Result<&[u8], Raise> {
        match self.kind(n) {
            // SAFETY: the argument stays on the stack while the state is borrowed.
            LuaType::String | LuaType::Number => Ok(unsafe { self.argument(n) }),
            _ => Err(self.type_error(n, "string")),
        }
    }

    /// Returns the argument as a number; a string may contain the number.
    pub fn check_number(&mut self, n: c_int) -> Result<f64, Raise> {
        self.number(n).ok_or_else(|| self.type_error(n, "number"))
    }

    /// Returns the argument as an integer, converted as in Lua's library: truncated towards zero, wrapped if out of
    /// range.
    pub fn check_int(&mut self, n: c_int) -> Result<i64, Raise> {
        self.check_number(n).map(|number| number as i64)
    }

    /// Like [`LuaState::check_int`], with a default for nil or a missing argument.
    pub fn check_int_or(&mut self, n: c_int, otherwise: i64) -> Result<i64, Raise> {
        match self.kind(n) {
            LuaType::None | LuaType::Nil => Ok(otherwise),
            _ => self.check_int(n),
        }
    }

    /// Checks the argument's type.
    pub fn check_kind(&mut self, n: c_int, kind: LuaType) -> Result<(), Raise> {
        if self.kind(n) == kind { Ok(()) } else { Err(self.type_error(n, kind.name())) }
    }

    // --- Pushing values.

    /// Pushes nil.
    pub fn push_nil(&mut self) {
        self.one_more();
        // SAFETY: the state is alive, there is room.
        unsafe { ffi::lua_pushnil(self.raw) };
    }

    /// Pushes a boolean.
    pub fn push_boolean(&mut self, value: bool) {
        self.one_more();
        // SAFETY: the state is alive, there is room.
        unsafe { ffi::lua_pushboolean(self.raw, c_int::from(value)) };
    }

    /// Pushes a number.
    pub fn push_number(&mut self, value: f64) {
        self.one_more();
        // SAFETY: the state is alive, there is room.
        unsafe { ffi::lua_pushnumber(self.raw, value) };
    }

    /// Pushes a number onto a native's cleared stack, without checking for a slot.
    #[inline]
    pub(crate) fn push_number_freely(&mut self, value: f64) {
        // SAFETY: the state is alive; Lua guarantees every native some slots, and the stack is empty.
        unsafe { ffi::lua_pushnumber(self.raw, value) };
    }

    /// Pushes a string onto a native's cleared stack, without checking for a slot.
    #[inline]
    pub(crate) fn push_bytes_freely(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        self.room_for(bytes.len())?;
        // SAFETY: as above; memory is not refused.
        unsafe { ffi::lua_pushlstring_(self.raw, bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }

    /// Pushes an opaque pointer. Scripts can do nothing with it but compare.
    pub fn push_light_userdata(&mut self, value: usize) {
        self.one_more();
        // SAFETY: the state is alive, there is room; the pointer is never followed.
        unsafe { ffi::lua_pushlightuserdata(self.raw, value as *mut _) };
    }

    /// Pushes a string.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        self.room_for(bytes.len())?;
        self.push_short(bytes);
        Ok(())
    }

    /// Pushes a short string, for example a name, without checking the memory limit.
    pub fn push_short(&mut self, bytes: &[u8]) {
        self.one_more();
        // SAFETY: the state is alive, there is room on the stack, and memory is not refused.
        unsafe { ffi::lua_pushlstring_(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Pushes a function.
    pub fn push_native(&mut self, entry: CFunction) {
        self.one_more();
        // SAFETY: the state is alive, there is room, memory is not refused.
        unsafe { ffi::lua_pushcclosure(self.raw, entry, 0) };
    }

    /// Pushes a function with upvalues, which it pops from the stack.
    pub fn push_closure(&mut self, entry: CFunction, upvalues: c_int) {
        assert!((0..=255).contains(&upvalues) && upvalues <= self.top());
        self.one_more();
        // SAFETY: the state is alive, the values exist, memory is not refused.
        unsafe { ffi::lua_pushcclosure(self.raw, entry, upvalues) };
    }

    /// Pushes a copy of the running function's upvalue, counted from 1; if there is none, pushes nil or nothing.
    pub fn push_upvalue(&mut self, n: c_int) {
        assert!((1..=255).contains(&n));
        self.one_more();
        // SAFETY: the state is alive; Lua returns nil for an upvalue that doesn't exist.
        unsafe { ffi::lua_pushvalue(self.raw, ffi::lua_upvalueindex(n)) };
    }

    /// Pops a value and stores it in the running function's upvalue, counted from 1. The upvalue must exist.
    pub fn set_upvalue(&mut self, n: c_int) {
        assert!((1..=255).contains(&n) && self.top() > 0);
        // SAFETY: the state is alive, the value exists, and so does the upvalue.
        unsafe { ffi::lua_replace(self.raw, ffi::lua_upvalueindex(n)) };
    }

    /// Pushes a new table with preallocated room for `sequence` elements and `others` other fields.
    pub fn push_table(&mut self, sequence: usize, others: usize) -> Result<(), Raise> {
        /// Bytes of an element of a sequence, and of another field.
        const BYTES: [usize; 2] = [16, 40];
        self.room_for(sequence.saturating_mul(BYTES[0]).saturating_add(others.saturating_mul(BYTES[1])))?;
        self.one_more();
        let count = |n: usize| n.min(c_int::MAX as usize / 2) as c_int;
        // SAFETY: the state is alive, there is room, memory is not refused.
        unsafe { ffi::lua_createtable(self.raw, count(sequence), count(others)) };
        Ok(())
    }

    /// Raises Lua's error unless `bytes` more bytes are within the limit.
    #[inline]
    pub fn room_for(&mut self, bytes: usize) -> Result<(), Raise> {
        if self.context().has_room(bytes) { Ok(()) } else { self.make_room_for(bytes) }
    }

    /// Frees all unreachable values.
    pub(crate) fn collect(&mut self) {
        // SAFETY: the state is alive; no finalizer of a script runs, since scripts can't create any.
        unsafe { ffi::lua_gc(self.raw, ffi::LUA_GCCOLLECT, 0) };
    }

    /// Runs the part of a collection that the allocation of `bytes` bytes would have caused.
    pub(crate) fn collect_for(&mut self, bytes: usize) {
        let kilobytes = c_int::try_from(bytes / 1024 + 1).unwrap_or(c_int::MAX);
        // SAFETY: as in `collect`.
        unsafe { ffi::lua_gc(self.raw, ffi::LUA_GCSTEP, kilobytes) };
    }

    #[cold]
    fn make_room_for(&mut self, bytes: usize) -> Result<(), Raise> {
        self.collect();
        if self.context().has_room(bytes) { Ok(()) } else { Err(self.error_value(NOT_ENOUGH_MEMORY)) }
    }

    // --- Tables, without metamethods.

    /// Replaces the key on top of the stack by its value in a table.
    pub fn raw_get(&mut self, table: c_int) {
        let at = self.table(table);
        // SAFETY: the state is alive, the table exists, the key is on top.
        unsafe { ffi::lua_rawget_(self.raw, at) };
    }

    /// Pushes the value of an integer key.
    pub fn raw_get_at(&mut self, table: c_int, key: c_int) {
        let at = self.table(table);
        self.one_more();
        // SAFETY: the state is alive, the table exists, there is room.
        unsafe { ffi::lua_rawgeti_(self.raw, at, key) };
    }

    /// Returns the number of elements of a table before the first nil. Lua's own border may be another one.
    pub fn len_to_first_nil(&mut self, table: c_int) -> c_int {
        let at = self.table(table);
        self.one_more();
        let (top, mut len) = (self.top(), 0);
        loop {
            // SAFETY: the state is alive, the table exists, and there is room for the element, which is popped again.
            let kind = unsafe {
                ffi::lua_rawgeti_(self.raw, at, len + 1);
                let kind = ffi::lua_type(self.raw, top + 1);
                ffi::lua_settop(self.raw, top);
                kind
            };
            if LuaType::of(kind) == LuaType::Nil {
                return len;
            }
            len += 1;
        }
    }

    /// Pushes the value of a string key.
    pub fn raw_get_named(&mut self, table: c_int, key: &str) {
        let at = self.table(table);
        self.push_short(key.as_bytes());
        self.raw_get(at);
    }

    /// Sets a field; pops the value and, below it, the key. Nil and NaN are refused as keys.
    pub fn raw_set(&mut self, table: c_int) -> Result<(), Raise> {
        let at = self.table(table);
        match self.kind(-2) {
            LuaType::Nil => return Err(self.error_value(b"table index is nil")),
            LuaType::Number if self.number(-2).is_some_and(f64::is_nan) => {
                return Err(self.error_value(b"table index is NaN"));
            }
            _ => {}
        }
        // SAFETY: the state is alive, the table exists, Lua accepts the key; memory is not refused.
        unsafe { ffi::lua_rawset(self.raw, at) };
        Ok(())
    }

    /// Sets the value of an integer key; pops the value.
    pub fn raw_set_at(&mut self, table: c_int, key: c_int) {
        let at = self.table(table);
        assert!(self.top() > at, "a native set a value that it did not push");
        // SAFETY: the state is alive, the table and the value exist, memory is not refused.
        unsafe { ffi::lua_rawseti_(self.raw, at, key) };
    }

    /// Sets the value of a string key; pops the value.
    pub fn raw_set_named(&mut self, table: c_int, key: &str) {
        let at = self.table(table);
        assert!(self.top() > at, "a native set a value that it did not push");
        self.push_short(key.as_bytes());
        self.insert(-2);
        // SAFETY: the state is alive, the table, the key and the value exist, memory is not refused.
        unsafe { ffi::lua_rawset(self.raw, at) };
    }

    /// Pops a key and pushes the table's next key and its value; after the last key, pushes nothing. Nil stands before
    /// the first key.
    ///
    /// # Safety
    ///
    /// The key is nil or a key of the table, and no key has been added to the table since that key was visited.
    pub unsafe fn next(&mut self, table: c_int) -> bool {
        let at = self.table(table);
        self.one_more();
        // SAFETY: the state is alive, the table exists; the caller guarantees a valid key, so Lua raises no error.
        unsafe { ffi::lua_next(self.raw, at) != 0 }
    }

    /// Returns true if the table contains only a sequence. A false result may be wrong.
    #[must_use]
    pub fn is_plain_sequence(&mut self, table: c_int) -> bool {
        let at = self.table(table);
        match self.raw_len(at) {
            0 => self.push_nil(),
            len => self.push_number(len as f64),
        }
        // SAFETY: the key is nil or the sequence's last key, which exists.
        let is_more = unsafe { self.next(at) };
        if is_more {
            self.pop(2);
        }
        !is_more
    }

    /// Pushes the value's metatable, or nothing if it has none.
    pub fn push_metatable(&mut self, index: c_int) -> bool {
        let at = self.existing(index);
        self.one_more();
        // SAFETY: the state is alive, the value exists, there is room.
        unsafe { ffi::lua_getmetatable(self.raw, at) != 0 }
    }

    /// Pops a table or nil and makes it the metatable of a value.
    pub fn set_metatable(&mut self, index: c_int) {
        let at = self.existing(index);
        assert!(matches!(self.kind(-1), LuaType::Nil | LuaType::Table));
        // SAFETY: the state is alive, the value and the metatable exist.
        unsafe { ffi::lua_setmetatable(self.raw, at) };
    }

    /// Pushes the table of globals; if a guard protects it, the table behind the guard.
    pub fn push_globals(&mut self) {
        self.one_more();
        let behind = self.context().globals;
        // SAFETY: the state is alive, there is a slot, and the reference comes from the registry.
        unsafe {
            match behind {
                Some(reference) => ffi::lua_rawgeti_(self.raw, ffi::LUA_REGISTRYINDEX, reference),
                None => ffi::lua_pushvalue(self.raw, ffi::LUA_GLOBALSINDEX),
            }
        }
    }

    /// Pops a table and makes it the table of globals for all chunks loaded from now on.
    pub(crate) fn guard_globals(&mut self) {
        assert_eq!(self.kind(-1), LuaType::Table);
        self.push_globals();
        // SAFETY: the state is alive, both tables exist, memory is not refused.
        let behind = unsafe { ffi::luaL_ref(self.raw, ffi::LUA_REGISTRYINDEX) };
        self.context().globals = Some(behind);
        // SAFETY: as above.
        unsafe { ffi::lua_replace(self.raw, ffi::LUA_GLOBALSINDEX) };
    }

    /// Pushes the registry, which only natives can see.
    pub fn push_registry(&mut self) {
        self.one_more();
        // SAFETY: the state is alive, there is room.
        unsafe { ffi::lua_pushvalue(self.raw, ffi::LUA_REGISTRYINDEX) };
    }

    /// Sets a global without metamethods; pops the value.
    pub fn set_global(&mut self, name: &str) {
        self.push_globals();
        self.insert(-2);
        self.raw_set_named(-2, name);
        self.pop(1);
    }

    /// Pushes a new table of functions.
    pub fn push_library(&mut self, functions: &[(&str, CFunction)]) -> Result<(), Raise> {
        self.push_table(0, functions.len())?;
        for (name, entry) in functions {
            self.push_native(*entry);
            self.raw_set_named(-2, name);
        }
        Ok(())
    }

    /// Returns true if the script has chosen replies in RESP3 (`redis.setresp`).
    #[must_use]
    pub(crate) fn speaks_resp3(&mut self) -> bool {
        self.context().proto == resp::reply::Proto::Resp3
    }

    // --- Calls and errors.

    /// Calls a function with the arguments on top of the stack; the function is below them. Leaves `results` results.
    /// An error comes back as [`Raise`]; a native that doesn't pass it on calls [`LuaState::is_ending`] first.
    pub fn call(&mut self, arguments: c_int, results: c_int) -> Result<(), Raise> {
        self.call_handled(arguments, results, 0)
    }

    /// Like [`LuaState::call`], with the index of an error handler, or 0. Lua calls the handler at the place of the
    /// error; its result becomes the error's value.
    pub fn call_handled(&mut self, arguments: c_int, results: c_int, handler: c_int) -> Result<(), Raise> {
        let top = self.top();
        assert!(arguments >= 0 && arguments < top && results >= -1 && (0..top).contains(&handler));
        // The first result takes the slot of the function.
        if results > 1 {
            self.ensure(results)?;
        }
        self.context().in_native = false;
        // SAFETY: the state is alive, the functions and the arguments exist, and errors are caught here.
        let status = unsafe { ffi::lua_pcall(self.raw, arguments, results, handler) };
        self.context().in_native = true;
        if status == ffi::LUA_OK { Ok(()) } else { Err(Raise) }
    }

    /// Counts one iteration of a loop with a script-controlled length. Raises an error if the script has to end.
    #[inline]
    pub fn poll(&mut self) -> Result<(), Raise> {
        let context = self.context();
        if !context.has_room(0) {
            self.room_for(0)?;
        }
        match self.context().poll() {
            Verdict::Go => Ok(()),
            Verdict::End => Err(self.end()),
        }
    }

    /// Like [`LuaState::poll`], for a native that processes `bytes` bytes of a script's data at once without creating a
    /// value and without polling. (Lua itself counts the bytes of the strings that it creates.)
    #[inline]
    pub fn poll_for(&mut self, bytes: usize) -> Result<(), Raise> {
        match self.context().poll_for(bytes) {
            Verdict::Go => Ok(()),
            Verdict::End => Err(self.end()),
        }
    }

    /// Returns true if the script has to end. `pcall` and similar functions then pass every error on.
    #[must_use]
    pub fn is_ending(&mut self) -> bool {
        self.context().ending
    }

    /// Returns the error that ends the script.
    pub(crate) fn end(&mut self) -> Raise {
        self.error_value(crate::vm::ENDED.as_bytes())
    }

    /// Raises an error with a text. Lua prefixes the position in the script: "user_script:1: ".
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) -> Raise {
        let text = text.as_ref();
        self.room_for_error();
        // SAFETY: the state is alive; memory is not refused; there are slots for three values.
        unsafe {
            ffi::luaL_where(self.raw, 1);
            ffi::lua_pushlstring_(self.raw, text.as_ptr().cast(), text.len());
            ffi::lua_concat(self.raw, 2);
        }
        Raise
    }

    /// Ensures slots for an error's value. If necessary it removes other values, which are not used any more.
    fn room_for_error(&mut self) {
        const SLOTS: c_int = 3;
        if !self.fits(SLOTS) {
            self.pop(SLOTS);
        }
    }

    /// Raises an error with exactly this string as its value.
    #[cold]
    pub fn error_value(&mut self, text: &[u8]) -> Raise {
        self.room_for_error();
        self.push_short(text);
        Raise
    }

    /// Raises Lua's error for an argument: "bad argument #1 to 'encode' (...)".
    #[cold]
    pub fn argument_error(&mut self, n: c_int, what: impl AsRef<[u8]>) -> Raise {
        let what = what.as_ref();
        // SAFETY: a structure of numbers and pointers, which Lua fills in.
        let mut info: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        // SAFETY: the state is alive and a function runs in it; the names from Lua stay valid meanwhile.
        let (name, is_method) = unsafe {
            if ffi::lua_getstack(self.raw, 0, &raw mut info) == 0 {
                return self.error([format!("bad argument #{n} (").as_bytes(), what, b")"].concat());
            }
            ffi::lua_getinfo(self.raw, c"n".as_ptr(), &raw mut info);
            let text = |text: *const std::ffi::c_char| if text.is_null() { c"?" } else { CStr::from_ptr(text) };
            (text(info.name).to_string_lossy().into_owned(), text(info.namewhat) == c"method")
        };
        let start = match n - c_int::from(is_method) {
            0 if is_method => format!("calling '{name}' on bad self ("),
            n => format!("bad argument #{n} to '{name}' ("),
        };
        self.error([start.as_bytes(), what, b")"].concat())
    }

    /// Raises Lua's error for an argument of the wrong type.
    #[cold]
    pub fn type_error(&mut self, n: c_int, expected: &str) -> Raise {
        let got = self.kind(n).name();
        self.argument_error(n, format!("{expected} expected, got {got}"))
    }

    /// Formats a value like `tostring`, without metamethods.
    #[must_use]
    pub fn display(&mut self, index: c_int) -> Vec<u8> {
        match self.kind(index) {
            LuaType::None | LuaType::Nil => b"nil".to_vec(),
            LuaType::Boolean => self.boolean(index).to_string().into_bytes(),
            LuaType::String => self.bytes(index).unwrap_or_default().to_vec(),
            LuaType::Number => {
                self.push_copy(index);
                // SAFETY: the value stays on the stack until its bytes are copied.
                let text = unsafe { self.argument(-1) }.to_vec();
                self.pop(1);
                text
            }
            kind => format!("{}: {:#x}", kind.name(), self.identity(index)).into_bytes(),
        }
    }

    /// For an error handler: returns the chunk and the line that raised the error, or that called the native that
    /// raised it.
    #[must_use]
    pub(crate) fn running_at(&mut self) -> Option<(Vec<u8>, c_int)> {
        // SAFETY: a structure of numbers and pointers, which Lua fills in.
        let mut info: ffi::lua_Debug = unsafe { std::mem::zeroed() };
        let mut found = None;
        for level in [1, 2] {
            // SAFETY: the state is alive and a function runs in it; the names from Lua stay valid meanwhile.
            let is_native = unsafe {
                if ffi::lua_getstack(self.raw, level, &raw mut info) == 0 {
                    break;
                }
                ffi::lua_getinfo(self.raw, c"Sl".as_ptr(), &raw mut info);
                found = Some((CStr::from_ptr(info.source).to_bytes().to_vec(), info.currentline));
                CStr::from_ptr(info.what) == c"C"
            };
            if !is_native {
                break;
            }
        }
        found
    }

    /// Takes the scratch buffer, for a native that builds a string. Give it back with [`LuaState::return_scratch`].
    #[must_use]
    pub fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.context().scratch)
    }

    /// Keeps the buffer for the next native.
    pub fn return_scratch(&mut self, mut scratch: Vec<u8>) {
        /// Largest buffer that is kept; the memory of a larger one is freed.
        const KEPT_BYTES_MAX: usize = 64 * 1024;
        scratch.clear();
        scratch.shrink_to(KEPT_BYTES_MAX);
        self.context().scratch = scratch;
    }
}
