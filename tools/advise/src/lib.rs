//! `penstock advise`: which round trips clients waste on any Redis or Valkey server, and what to write instead.
//!
//! It looks at logs of MONITOR and recordings (`run`), at a server through MONITOR (`live`), or at what passes through a proxy
//! (`tapped`), which can be recorded (`recording`). What is found, and how, is the advisor's ([`advisor`]).

#![forbid(unsafe_code)]

mod args;
mod live;
mod recording;
mod run;
mod tapped;

pub use args::command;
pub use run::run;
