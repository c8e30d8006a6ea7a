//! `penstock advise` finds the round trips that clients waste on any Redis or Valkey server, and suggests replacement
//! code.
//!
//! Its sources are MONITOR logs and recordings (`run`), a server through MONITOR (`live`), and the traffic of a proxy
//! (`tapped`), which can be recorded (`recording`). A demonstration (`demo`) runs a wasteful import on a server of its own. The crate [`advisor`] analyses the traffic.

#![forbid(unsafe_code)]

mod args;
mod demo;
mod live;
mod recording;
mod run;
mod tapped;

pub use args::command;
pub use run::run;
