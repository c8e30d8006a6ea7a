//! The program: the server and its tools in one binary.

#![forbid(unsafe_code)]

mod generate;
mod tools;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use server::allocator::{Counting, Mimalloc};
use server::cli_args::Exit;
use server::run::Place;
use server::{daemon, huge_pages};

use tools::Tool;

#[global_allocator]
static ALLOCATOR: Counting<Mimalloc> = Counting::new(Mimalloc);

fn main() -> ExitCode {
    let mut argv: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some(first) = argv.first().cloned() else { return serve(&argv) };
    if let Some(tool) = tools::find(&first) {
        return run(tool, argv.split_off(1));
    }
    match first.to_str() {
        Some("--generate") => generate::run(&argv[1..]),
        Some(generator::END_WITH) => serve_embedded(&argv[1..]),
        Some(daemon::CHILD) => end(daemon::enter().and_then(|()| run_server(&argv[1..], Place::Background))),
        Some(tools::HELP) if !Path::new(&first).exists() => help(argv.get(1).map(OsString::as_os_str)),
        _ => match tools::misspelt(&first) {
            Some(text) => end(Err(text)),
            None => serve(&argv),
        },
    }
}

fn run(tool: &Tool, argv: Vec<OsString>) -> ExitCode {
    huge_pages::leave_to_the_allocator();
    (tool.run)(argv)
}

/// `penstock help [TOOL]`.
fn help(topic: Option<&OsStr>) -> ExitCode {
    match topic {
        None => serve(&["--help".into()]),
        Some(server) if server == tools::SERVER => serve(&["--help".into()]),
        Some(topic) => match tools::find(topic) {
            Some(tool) => run(tool, vec!["--help".into()]),
            None => end(Err(tools::unknown(topic))),
        },
    }
}

/// Runs a server that ends when its parent process ends.
fn serve_embedded(argv: &[OsString]) -> ExitCode {
    let Some((parent, argv)) = argv.split_first() else {
        return end(Err(format!("{} needs the parent's process id", generator::END_WITH)));
    };
    match generator::end_with_parent(parent) {
        Ok(()) => serve(argv),
        refused => end(refused),
    }
}

fn serve(argv: &[OsString]) -> ExitCode {
    end(run_server(argv, Place::Foreground))
}

fn run_server(argv: &[OsString], place: Place) -> Result<(), String> {
    huge_pages::reserve();
    match server::cli_args::load(argv, &mut std::io::stdin()) {
        Ok(loaded) if place == Place::Foreground && daemon::is_wanted(&loaded.settings) => {
            daemon::start(argv, &loaded.stdin)
        }
        Ok(loaded) => server::run::run(loaded, place),
        Err(Exit::Help(text)) => answer(&format!("{text}{}", tools::help())),
        Err(Exit::Answer(text)) => answer(&text),
        Err(Exit::Fatal(text)) => Err(text),
    }
}

/// Converts a result to the exit status; prints the error, if there is one.
fn end(ran: Result<(), String>) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // If writing the error fails as well, nothing can be done.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints help or the version. A reader that closes the pipe early, for example `head`, is not an error.
fn answer(text: &str) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("can't write to standard output: {error}")),
        _ => Ok(()),
    }
}
