//! `-I`: connections that are opened and do nothing, to see what they cost a server, or whether it takes so many.

use std::io::{self, Write};

use client::Config;

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::generator::{self, Load};
use crate::load::load;

/// Opens the connections and keeps them, until the server closes or refuses one, or Ctrl-C ends the process. No other
/// connection is opened, so the server counts as many as were asked for.
pub fn run(args: &BenchArgs, config: &Config) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "Creating {} idle connections and waiting forever (Ctrl+C when done)", args.clients)?;
    out.flush()?;
    // There is nothing to do for a second thread, and a refusal is an error whatever is to be done about others.
    let load = Load { threads: 1, stop_on_error: true, ..load(args, config)? };
    let all_are_open = &mut || writeln!(out, "clients: {}", args.clients).and_then(|()| out.flush());
    Err(generator::idle(&load, all_are_open).into())
}
