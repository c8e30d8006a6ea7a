//! Tests of the engine from outside, in one program, because linking a program for each file would take longer than all
//! tests.

// Clippy allows `unwrap` in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

mod command_table;
mod directives;
mod docs;
mod rooms;
