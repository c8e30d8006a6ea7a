//! To be written.

pub mod cli_args;
pub mod conf_file;
