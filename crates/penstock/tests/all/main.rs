//! What is checked of the program and of the workspace from outside: one program, since linking one for each file would take longer
//! than all of them run.

// Clippy knows that a test may unwrap, but not the functions that only tests call.
#![allow(clippy::unwrap_used)]

mod architecture;
mod binary;
mod generate;
mod pages;
mod words;
