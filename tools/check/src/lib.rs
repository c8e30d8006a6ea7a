//! `penstock check` lists the contents of snapshots and append-only files, and tells if they are whole.
//!
//! `files` expands the arguments to a list of snapshots, files of commands, and manifests with their parts
//! (`manifest`). `file` reads each file with the server's own readers: `format` for snapshots (`snapshot`) and
//! `persistence` for commands (`commands`). The result is a `finding`. The tool prints it as text (`text`) or JSON, and
//! can cut off a torn end (`fix`). The largest key or block determines the memory use; the file size has no influence.
//! Only the `difference` of two snapshots needs memory for each key (`digest`).
//!
//! This crate has no access to a server. It only finds out which processes have a file open, as far as the system shows
//! it.

#![forbid(unsafe_code)]

pub mod args;
mod commands;
mod difference;
mod digest;
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
