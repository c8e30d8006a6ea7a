//! `penstock check`: whether snapshots and append-only files are whole, and what is in them.
//!
//! `files` makes a list of what the arguments name: snapshots, files of commands, manifests with their parts (`manifest`). `file`
//! reads each by the server's own readers, `format` for snapshots (`snapshot`) and `persistence` for commands (`commands`). The
//! result is a `finding`: shown for people (`text`) or programs (as JSON), and mended where a torn end is all that is wrong
//! (`fix`). Memory is that of the largest key or block, whatever the file.
//!
//! This room knows no server: neither whether one runs on the files, beyond what the system tells of the processes that have them
//! open, nor how.

#![forbid(unsafe_code)]

pub mod args;
mod commands;
mod file;
mod files;
mod finding;
mod fix;
mod input;
mod manifest;
mod run;
mod shown;
mod snapshot;
mod text;

pub use args::command;
pub use run::run;
