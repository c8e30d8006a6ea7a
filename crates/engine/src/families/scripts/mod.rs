//! Commands that store and run scripts.

pub mod functions;
pub mod scripting;
