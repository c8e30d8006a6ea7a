//! `-I`: opens idle connections, to measure their cost or to test the server's limit.

use std::io::{self, Write};

use client::Config;

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::generator::{self, Load};
use crate::load::load;

/// Opens the connections and keeps them until the server closes or refuses one, or Ctrl-C ends the process. No other
/// connection is opened, so that the server counts exactly the requested number.
pub fn run(args: &BenchArgs, config: &Config) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "Creating {} idle connections and waiting forever (Ctrl+C when done)", args.clients)?;
    out.flush()?;
    // A second thread would have no work. A refusal always ends the run, even with `-e`.
    let load = Load { threads: 1, stop_on_error: true, ..load(args, config)? };
    let all_are_open = &mut || writeln!(out, "clients: {}", args.clients).and_then(|()| out.flush());
    Err(generator::idle(&load, all_are_open).into())
}
