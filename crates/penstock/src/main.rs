//! The one binary: a server, and the tools beside it.

mod generate;

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use server::allocator::{Counting, Mimalloc};
use server::cli_args::Exit;
use server::heap;

#[global_allocator]
static ALLOCATOR: Counting<Mimalloc> = Counting::new(Mimalloc);

/// A tool's entry: its arguments without the program's and its own name.
type Tool = fn(Vec<OsString>) -> ExitCode;

/// The tools, each by the first argument that asks for it. Anything else is the server's command line.
const TOOLS: &[(&str, Tool)] = &[("bench", bench::run), ("cli", cli::run), ("load", load::run)];

fn main() -> ExitCode {
    let mut argv: Vec<OsString> = std::env::args_os().skip(1).collect();
    let asked = argv.first().and_then(|first| TOOLS.iter().find(|(name, _)| first == name));
    match asked {
        Some((_, run)) => {
            heap::leave_to_the_allocator();
            run(argv.split_off(1))
        }
        None if argv.first().is_some_and(|first| first == "--generate") => generate::run(&argv[1..]),
        None if argv.first().is_some_and(|first| first == bench::END_WITH) => serve_embedded(&argv[1..]),
        None => serve(&argv),
    }
}

/// A server for whoever has just started it, and no longer there than that.
fn serve_embedded(argv: &[OsString]) -> ExitCode {
    let Some((parent, argv)) = argv.split_first() else {
        return end(Err(format!("{} needs the parent's process id", bench::END_WITH)));
    };
    match bench::end_with_parent(parent) {
        Ok(()) => serve(argv),
        refused => end(refused),
    }
}

fn serve(argv: &[OsString]) -> ExitCode {
    heap::reserve();
    let ran = match server::cli_args::load(argv, &mut std::io::stdin()) {
        Ok(loaded) => server::run::run(loaded.settings, loaded.config_file),
        Err(Exit::Answer(text)) => answer(&text),
        Err(Exit::Fatal(text)) => Err(text),
    };
    end(ran)
}

/// What the process leaves behind: a status, and a line where something went wrong.
fn end(ran: Result<(), String>) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // Nothing is left to do where even this can't be written.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help or the version. A reader who has seen enough of it, such as `head`, is no failure.
fn answer(text: &str) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("can't write to standard output: {error}")),
        _ => Ok(()),
    }
}
