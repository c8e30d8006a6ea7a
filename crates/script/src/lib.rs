//! Lua scripts: the virtual machine, its sandbox, and what passes between scripts and commands.
//!
//! This crate knows Lua and the protocol. It doesn't know commands, keys and connections: a script reaches them
//! through a [`Host`], which the engine implements.
//!
//! `unsafe` because Lua is C. It is confined to
//!
//! - `state.rs`: functions that Lua calls see its values through the checked methods there;
//! - `context.rs`, which the machine's allocator leads to;
//! - `vm.rs`, which owns the machine;
//! - `arguments.rs`, which keeps tables for it;
//! - `libs/raw.rs` and `libs/per_script.rs`. The other libraries borrow the bytes of strings that they keep on the stack.
//!
//! Miri can't run C: this crate is tested as it is, and fuzzed. Lua raises errors by jumping over frames, which Rust's
//! frames don't survive; `state.rs` says how they are kept out of the way.

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
pub use state::{LuaState, LuaType, Raise};
pub use vm::{Call, Failure, Loaded, Vm};
