//! What belongs to one machine beside Lua's own state: its memory, the script's host, whether the script has to end.
//!
//! Lua hands the allocator a pointer that the owner chose, and returns it on request (`lua_getallocf`). That is how a
//! function that Lua calls finds its [`Context`].

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use mlua_sys::lua51 as ffi;

use resp::reply::{Output, Proto};
use resp::request::ArgsBuffer;

use crate::host::{Host, Verdict};
use crate::library::Registered;

/// Polls of a library function between two looks at the clock: some ten microseconds of work.
const POLLS_BETWEEN_LOOKS: u32 = 1000;
/// Bytes that a library function handles in the time between two polls, about.
const BYTES_PER_POLL: usize = 64;

/// What Lua's blocks are aligned to: the largest of a number and a pointer, in bytes.
const ALIGN_BYTES: usize = 8;

/// See the module's documentation.
pub(crate) struct Context {
    /// Bytes that Lua has allocated.
    pub used_bytes: usize,
    /// Bytes that it may allocate.
    pub limit_bytes: usize,
    /// Whether a function of ours runs, rather than Lua's code. Memory is not refused then, since Lua would jump over
    /// its frames; it is looked at when the function asks for much, and when it ends.
    pub in_native: bool,
    /// Whether Lua has been refused memory since a script began.
    pub refused: bool,
    /// Set once the script has to end: nothing it does catches that.
    pub ending: bool,
    /// Which run of a script this is: what libraries remember is forgotten when it changes.
    pub run: u64,
    /// Where the registry has the table of globals, once scripts see only its guard.
    pub globals: Option<c_int>,
    polls_left: u32,
    /// While a script runs: its host.
    pub host: Option<NonNull<dyn Host>>,
    /// Memory for library functions that build a string.
    pub scratch: Vec<u8>,
    /// While a library is loaded: the functions that it has registered so far.
    pub registering: Option<Vec<Registered>>,
    /// In which form the script wants replies.
    pub proto: Proto,
    /// A command's arguments.
    pub args: ArgsBuffer,
    /// A command's reply.
    pub output: Output,
}

impl Context {
    pub(crate) fn new(limit_bytes: usize) -> Context {
        Context {
            used_bytes: 0,
            limit_bytes,
            in_native: false,
            refused: false,
            ending: false,
            run: 0,
            globals: None,
            polls_left: POLLS_BETWEEN_LOOKS,
            host: None,
            scratch: Vec::new(),
            registering: None,
            proto: Proto::Resp2,
            args: ArgsBuffer::default(),
            output: Output::default(),
        }
    }

    /// Makes everything ready for a script of this host's.
    pub(crate) fn begin(&mut self, host: NonNull<dyn Host>) {
        self.host = Some(host);
        self.ending = false;
        self.run += 1;
        self.proto = Proto::Resp2;
    }

    /// The context of a machine.
    ///
    /// # Safety
    ///
    /// `lua` is a state of a [`crate::Vm`], which outlives the pointer's use, and nothing else uses the context
    /// meanwhile.
    pub(crate) unsafe fn of(lua: *mut ffi::lua_State) -> *mut Context {
        let mut context = std::ptr::null_mut();
        // SAFETY: the state is alive.
        unsafe { ffi::lua_getallocf(lua, &raw mut context) };
        context.cast()
    }

    /// Whether so many bytes more are within the limit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes.saturating_add(bytes) <= self.limit_bytes
    }

    /// Counts a poll, and looks whether the script may go on every so often.
    #[inline]
    pub(crate) fn poll(&mut self) -> Verdict {
        self.count(1)
    }

    /// The same for a function that has handled so many bytes at once.
    #[inline]
    pub(crate) fn poll_for(&mut self, bytes: usize) -> Verdict {
        self.count(u32::try_from(bytes / BYTES_PER_POLL).unwrap_or(u32::MAX))
    }

    #[inline]
    fn count(&mut self, polls: u32) -> Verdict {
        if self.polls_left >= polls && !self.ending {
            self.polls_left -= polls;
            return Verdict::Go;
        }
        self.polls_left = POLLS_BETWEEN_LOOKS;
        self.look()
    }

    /// The script's host, while a script runs.
    pub(crate) fn host(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: it is set only while a script runs, and its caller has lent the host for that time; the context is
        // borrowed mutably as long as the host is used.
        self.host.map(|mut host| unsafe { host.as_mut() })
    }

    /// Looks whether the script may go on.
    #[cold]
    pub(crate) fn look(&mut self) -> Verdict {
        if !self.ending {
            self.ending = self.host().is_some_and(|host| host.poll() == Verdict::End);
        }
        if self.ending { Verdict::End } else { Verdict::Go }
    }
}

/// Lua's allocator: counts, and refuses what is beyond the limit unless a function of ours runs.
///
/// # Safety
///
/// Lua calls it, with the pointer to a [`Context`] that the machine was made with.
pub(crate) unsafe extern "C" fn allocate(
    context: *mut c_void,
    block: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
) -> *mut c_void {
    // SAFETY: the machine was made with this pointer, and the context outlives it.
    let context = unsafe { &mut *context.cast::<Context>() };
    let layout = |bytes| Layout::from_size_align(bytes, ALIGN_BYTES).ok();
    let old = if block.is_null() { None } else { layout(old_bytes) };
    let used = context.used_bytes - old.map_or(0, |old| old.size());
    if new_bytes == 0 {
        context.used_bytes = used;
        if let Some(old) = old {
            // SAFETY: Lua gives a block back that came from here with this size.
            unsafe { dealloc(block.cast(), old) };
        }
        return std::ptr::null_mut();
    }
    let now_used = used.saturating_add(new_bytes);
    let refused = now_used > context.limit_bytes && now_used > context.used_bytes && !context.in_native;
    let Some(new) = layout(new_bytes).filter(|_| !refused) else {
        context.refused = true;
        return std::ptr::null_mut();
    };
    let moved = match old {
        // SAFETY: as above; the new size is not zero and fits a layout.
        Some(old) => unsafe { realloc(block.cast(), old, new_bytes) },
        // SAFETY: the size is not zero.
        None => unsafe { alloc(new) },
    };
    if moved.is_null() {
        // As everywhere in the server. An error that Lua raised within a function of ours couldn't be caught.
        handle_alloc_error(new);
    }
    context.used_bytes = now_used;
    moved.cast()
}
