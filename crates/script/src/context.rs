//! The data of one machine outside Lua's own state: its memory count, the script's host, and whether the script has to
//! end.
//!
//! Lua passes the allocator a pointer chosen by the owner, and returns this pointer on request (`lua_getallocf`). A
//! function called by Lua finds its [`Context`] this way.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use mlua_sys::lua51 as ffi;

use resp::reply::{Output, Proto};
use resp::request::ArgsBuffer;

use crate::host::{Host, Verdict};
use crate::library::Registered;

/// Polls of a library function between two checks of the host: some ten microseconds of work.
const POLLS_BETWEEN_LOOKS: u32 = 1000;
/// Approximate number of bytes that a library function processes between two polls.
const BYTES_PER_POLL: usize = 64;

/// Alignment of Lua's blocks: the largest of a number and a pointer, in bytes.
const ALIGN_BYTES: usize = 8;

/// See the module's documentation.
pub(crate) struct Context {
    /// Bytes allocated by Lua.
    pub used_bytes: usize,
    /// Limit of the allocated bytes.
    pub limit_bytes: usize,
    /// True while a native runs, rather than Lua code. The allocator then refuses nothing, because Lua's error would
    /// jump over the native's frames; the limit is checked before large allocations and when the native ends.
    pub in_native: bool,
    /// True if Lua was refused memory since the script began.
    pub refused: bool,
    /// Set once the script has to end; no `pcall` catches that.
    pub ending: bool,
    /// Number of the current run. Libraries forget their state when it changes.
    pub run: u64,
    /// Registry reference of the table of globals, once scripts see only its guard.
    pub globals: Option<c_int>,
    polls_left: u32,
    /// The host of the running script.
    pub host: Option<NonNull<dyn Host>>,
    /// A reusable buffer for library functions that build a string.
    pub scratch: Vec<u8>,
    /// While a library is loaded: the functions that it has registered so far.
    pub registering: Option<Vec<Registered>>,
    /// The protocol version in which the script wants replies.
    pub proto: Proto,
    /// Buffer for a command's arguments.
    pub args: ArgsBuffer,
    /// Buffer for a command's reply.
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

    /// Prepares the context for a script of this host.
    pub(crate) fn begin(&mut self, host: NonNull<dyn Host>) {
        self.host = Some(host);
        self.ending = false;
        self.run += 1;
        self.proto = Proto::Resp2;
    }

    /// Returns the context of a machine.
    ///
    /// # Safety
    ///
    /// `lua` is a state of a [`crate::Vm`] that outlives the use of the pointer, and nothing else uses the context
    /// meanwhile.
    pub(crate) unsafe fn of(lua: *mut ffi::lua_State) -> *mut Context {
        let mut context = std::ptr::null_mut();
        // SAFETY: the state is alive.
        unsafe { ffi::lua_getallocf(lua, &raw mut context) };
        context.cast()
    }

    /// Returns true if `bytes` more bytes are within the limit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes.saturating_add(bytes) <= self.limit_bytes
    }

    /// Counts a poll, and regularly asks the host whether the script may go on.
    #[inline]
    pub(crate) fn poll(&mut self) -> Verdict {
        self.count(1)
    }

    /// Like [`Context::poll`], for a function that has processed `bytes` bytes at once.
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

    /// Returns the host while a script runs.
    pub(crate) fn host(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: the pointer is set only while a script runs, and the caller of the run has lent the host for that
        // time; the context is borrowed mutably as long as the host is used.
        self.host.map(|mut host| unsafe { host.as_mut() })
    }

    /// Asks the host whether the script may go on.
    #[cold]
    pub(crate) fn look(&mut self) -> Verdict {
        if !self.ending {
            self.ending = self.host().is_some_and(|host| host.poll() == Verdict::End);
        }
        if self.ending { Verdict::End } else { Verdict::Go }
    }
}

/// Lua's allocator: counts bytes, and refuses memory beyond the limit unless a native runs.
///
/// # Safety
///
/// Lua is the caller, and passes the pointer to the [`Context`] with which the machine was created.
pub(crate) unsafe extern "C" fn allocate(
    context: *mut c_void,
    block: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
) -> *mut c_void {
    // SAFETY: the machine was created with this pointer, and the context outlives it.
    let context = unsafe { &mut *context.cast::<Context>() };
    let layout = |bytes| Layout::from_size_align(bytes, ALIGN_BYTES).ok();
    let old = if block.is_null() { None } else { layout(old_bytes) };
    let used = context.used_bytes - old.map_or(0, |old| old.size());
    if new_bytes == 0 {
        context.used_bytes = used;
        if let Some(old) = old {
            // SAFETY: the block was allocated here with this size.
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
        // The whole server aborts without memory. Within a native, Lua's error couldn't be caught.
        handle_alloc_error(new);
    }
    context.used_bytes = now_used;
    moved.cast()
}
