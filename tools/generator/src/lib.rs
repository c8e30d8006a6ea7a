//! `penstock bench`: a load generator with redis-benchmark's flags, and experiments that show the savings of
//! pipelining.
//!
//! This crate uses `client` and has no access to a server's internals. It works with every server that speaks RESP.

#![forbid(unsafe_code)]

mod args;
mod embedded;
mod failure;
mod generator;
mod host;
mod idle;
mod interrupt;
mod load;
mod output_file;
mod pipelining;
mod progress;
mod report;
mod table;
mod tests_table;
mod title;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

pub use embedded::{END_WITH, Embedded, end_with_parent};
pub use failure::Failure;
pub use interrupt::Interrupt;

use args::{BenchArgs, ExperimentCommand};

/// Name in messages.
const NAME: &str = "penstock bench";

/// Largest number of typing errors in a word that is taken for a misspelt one.
const EDITS_MAX: usize = 2;

/// Runs the tool. `args` are the arguments after its name.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let argv = std::iter::once(OsString::from(NAME)).chain(args);
    let result = match BenchArgs::try_parse_from(argv) {
        Ok(args) => Interrupt::watch().map_err(Failure::from).and_then(|interrupt| match &args.experiment {
            None => refuse_misspelt(&args).and_then(|()| load::run(&args, &interrupt)),
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

/// Refuses a command that is rather a misspelt experiment: the server would only call it unknown.
fn refuse_misspelt(args: &BenchArgs) -> Result<(), Failure> {
    let Some(word) = args.command.first().and_then(|word| word.to_str()) else { return Ok(()) };
    match BenchArgs::command().get_subcommands().map(clap::Command::get_name).find(|name| is_similar(word, name)) {
        Some(meant) => Err(Failure::Usage(format!("'{word}' is no experiment; did you mean '{NAME} {meant}'?"))),
        None => Ok(()),
    }
}

/// Returns true if a word is probably a misspelt form of a tool's word.
#[must_use]
pub fn is_similar(word: &str, known: &str) -> bool {
    word != known && strsim::osa_distance(&word.to_lowercase(), known) <= EDITS_MAX
}

/// Prints one line on standard error, over a progress line if there is one.
fn complain(failure: &Failure) {
    let mut stderr = std::io::stderr();
    let erase = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    // There is no other channel for an error of this write.
    let _ = writeln!(stderr, "{erase}{NAME}: {failure}");
}

/// Returns the definition of the arguments, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    BenchArgs::command()
}

/// Prints help and the version. Returns any other error of clap's as one line.
fn told_by_clap(error: &clap::Error) -> Result<(), Failure> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(error.print()?);
    }
    Err(Failure::Usage(usage_error(error, NAME)))
}

/// Returns clap's error about the arguments of `tool` as one line, with the similar option for a misspelt one.
#[must_use]
pub fn usage_error(error: &clap::Error, tool: &str) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = lines.join(" ");
    let message = line.strip_prefix("error: ").unwrap_or(&line);
    format!("{message}{} (see {tool} --help)", suggestion(error))
}

/// Returns the end of the message for a misspelt option: the similar one that clap found.
fn suggestion(error: &clap::Error) -> String {
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(option)) => format!("; did you mean '{option}'?"),
        _ => String::new(),
    }
}
