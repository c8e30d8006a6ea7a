//! Tests of the program and of the workspace from outside. They form one program, since linking one for each file would
//! take longer than running all of them.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

mod architecture;
mod binary;
mod generate;
mod pages;
mod words;
