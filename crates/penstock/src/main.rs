//! The one binary.

use std::ffi::OsString;
use std::process::ExitCode;

use server::allocator::Counting;
use server::cli_args::Exit;

#[global_allocator]
// Small allocations in steps of eight bytes: what an entry of the keyspace takes is what it is given.
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting::new(mimalloc::MiMalloc);

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().skip(1).collect();
    let ran = match server::cli_args::load(&argv, &mut std::io::stdin()) {
        Ok(loaded) => server::run::run(loaded.settings, loaded.config_file),
        Err(Exit::Answer(text)) => {
            println!("{text}");
            Ok(())
        }
        Err(Exit::Fatal(text)) => Err(text),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
