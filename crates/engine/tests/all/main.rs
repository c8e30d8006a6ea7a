//! What is checked of the engine from outside: one program, since linking one for each file would take longer than all of them run.

// Clippy knows that a test may unwrap, but not the functions that only tests call.
#![allow(clippy::unwrap_used)]

mod directives;
mod docs;
mod rooms;
