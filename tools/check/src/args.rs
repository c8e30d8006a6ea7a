//! The command line of `penstock check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, ValueHint};

const ABOUT: &str = "Check snapshots and append-only files: what is in them, whether they are whole, and what to do if not.

A FILE is a snapshot (RDB), a file of commands, with or without a snapshot before them, or a manifest, which is checked with all the \
files that it names. A directory stands for all of those in it, and in the directories of append-only files directly below. Files \
of Redis, Valkey and Penstock are read by the server's own readers, to their last byte. Nothing is changed without --fix.";

const AFTER: &str = "Examples:
  penstock check /var/lib/redis
      Check everything that a server has there.
  penstock check dump.rdb
      Check a snapshot.
  penstock check --json backup/appendonlydir/appendonly.aof.manifest
      Check an append-only file for a program.
  penstock check --fix --yes /var/lib/penstock/appendonlydir
      Cut off what was being written when the machine lost its power.

Exit status:
  0  everything is whole, or was mended
  1  a file is damaged, torn, missing or unreadable, or has what Penstock can't read
  2  the command line is wrong, or names nothing to check";

/// What the user asked for.
#[derive(Debug, Parser)]
#[command(
    name = "penstock check",
    bin_name = "penstock check",
    version,
    about = "Check snapshots and append-only files",
    long_about = ABOUT,
    after_help = AFTER,
    max_term_width = 100,
)]
pub struct Args {
    /// Files to check, or directories that have some
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Cut off the torn end of a file of commands, after asking; what is cut off is kept in a file beside it
    #[arg(long)]
    pub fix: bool,
    /// Don't ask
    #[arg(short, long, requires = "fix")]
    pub yes: bool,
    /// Print what was found as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print only what isn't whole, and show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// The command line's definition, for manual pages and completions.
pub fn command() -> clap::Command {
    Args::command()
}

/// Reads the command line, without the program's and the tool's name.
///
/// # Errors
/// clap's: help and version are among them.
pub fn parse(args: Vec<OsString>) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once(OsString::from("penstock check")).chain(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn nothing_is_answered_without_a_question() {
        let is_right = |args: &[&str]| parse(args.iter().map(OsString::from).collect()).is_ok();
        assert!(is_right(&["--fix", "-y", "a", "b"]) && is_right(&["a"]));
        assert!(!is_right(&["--yes", "a"]) && !is_right(&[]));
    }
}
