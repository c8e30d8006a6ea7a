//! Lua scripts: the virtual machine, its sandbox, and the conversion of values between scripts and commands.
//!
//! The crate knows Lua and the protocol, but no commands, keys or connections: a script reaches these through a
//! [`Host`], which the engine implements.
//!
//! The crate uses `unsafe` because Lua is written in C. It is confined to
//!
//! - `state.rs`: functions called by Lua access its values through the checked methods there;
//! - `context.rs`, which holds the data that the machine's allocator points to;
//! - `vm.rs`, which owns the machine;
//! - `arguments.rs`, which keeps the machine's tables of arguments;
//! - `libs/raw.rs` and `libs/per_script.rs`. The other libraries borrow the bytes of strings that they keep on the
//!   stack.
//!
//! Miri can't run C, so this crate is tested without Miri, and fuzzed. Lua raises errors by jumping over stack frames.
//! Rust's frames must not be skipped; `state.rs` describes how they are protected.

pub mod api;
mod arguments;
mod context;
mod from_reply;
pub mod host;
pub mod library;
pub mod libs;
pub mod sha1;
pub mod state;
mod to_reply;
pub mod vm;

pub use host::{Access, Host, LogLevel, Verdict};
pub use state::{LuaState, LuaType, NOT_ENOUGH_MEMORY, Raise};
pub use vm::{Call, Failure, Loaded, Vm};
