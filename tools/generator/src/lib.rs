//! `penstock bench`: a load generator with redis-benchmark's flags, and experiments that show what pipelining saves.
//!
//! This room knows `client` and nothing of any server's inside; it works against every server that speaks RESP.

#![forbid(unsafe_code)]

mod args;
mod embedded;
mod failure;
mod generator;
mod host;
mod idle;
mod interrupt;
mod load;
mod pipelining;
mod progress;
mod report;
mod tests_table;
mod title;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

pub use embedded::{END_WITH, end_with_parent};

use args::{BenchArgs, ExperimentCommand};
use failure::Failure;
use interrupt::Interrupt;

/// The name in messages.
const NAME: &str = "penstock bench";

/// Runs the tool with the arguments that follow its name.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let argv = std::iter::once(OsString::from(NAME)).chain(args);
    let result = match BenchArgs::try_parse_from(argv) {
        Ok(args) => Interrupt::watch().map_err(Failure::from).and_then(|interrupt| match &args.experiment {
            None => load::run(&args, &interrupt),
            Some(ExperimentCommand::Pipelining(args)) => pipelining::run(args, &interrupt),
        }),
        Err(error) => told_by_clap(&error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                complain(&failure);
            }
            failure.exit_code()
        }
    }
}

/// One line on standard error, in the place of a line of progress that may stand there.
fn complain(failure: &Failure) {
    let mut stderr = std::io::stderr();
    let erase = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    // Nothing is left to do where even this can't be written.
    let _ = writeln!(stderr, "{erase}{NAME}: {failure}");
}

/// The arguments, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    BenchArgs::command()
}

/// Help and version are answers; everything else is a mistake, told in one line.
fn told_by_clap(error: &clap::Error) -> Result<(), Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(error.print()?);
    }
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let what = lines.join(" ");
    Err(Failure::Usage(format!("{} (see {NAME} --help)", what.strip_prefix("error: ").unwrap_or(&what))))
}
