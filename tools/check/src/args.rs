//! The command line of `penstock check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, ValueHint};

const ABOUT: &str = "Check snapshots and append-only files: list their contents, find damage, and tell how to repair it.

A FILE is a snapshot (RDB), a file of commands (which may begin with a snapshot), or a manifest. A manifest is checked with all the \
files that it names. A directory stands for all files of these kinds in it and in append-only directories directly below it. Files \
of Redis, Valkey and Penstock are read to their last byte, with the server's own code. Nothing is changed without --fix.";

const AFTER: &str = "Examples:
  penstock check /var/lib/redis
      Check all files of a server.
  penstock check dump.rdb
      Check a snapshot.
  penstock check --json backup/appendonlydir/appendonly.aof.manifest
      Check an append-only file and print JSON for a program.
  penstock check --fix --yes /var/lib/penstock/appendonlydir
      Cut off a write that a power failure interrupted.
  penstock check --diff yesterday.rdb dump.rdb
      List the keys that were added, removed or changed.

Exit status:
  0  every file is whole or was repaired; with --diff, both snapshots have the same keys
  1  a file is damaged, torn, missing or unreadable, or has data that Penstock can't read;
     with --diff, the snapshots differ
  2  the command line is wrong or names no file to check; with --diff, a file is no whole snapshot";

/// Command line arguments, as parsed by clap.
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
    /// Files to check, or directories that contain them
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Cut off the torn end of a file of commands, after asking; the removed bytes are kept in a file beside it
    #[arg(long)]
    pub fix: bool,
    /// Cut without asking
    #[arg(short, long, requires = "fix")]
    pub yes: bool,
    /// Compare two snapshots, the older one first: list the added, removed and changed keys
    #[arg(long, conflicts_with_all = ["fix", "quiet"])]
    pub diff: bool,
    /// Print the results as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print only the files that aren't whole, and show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Returns the definition of the command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Args::command()
}

/// Parses the command line. `args` excludes the names of the program and the tool.
///
/// # Errors
/// Returns clap's error. Requests for help and the version are errors, too.
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
        assert!(is_right(&["--diff", "a", "b"]) && !is_right(&["--diff", "--fix", "a", "b"]));
    }
}
