//! To be written.
pub mod config;
