//! `penstock --generate man|completions DIR`: manual pages and shell completions, from the definitions that the command
//! lines are read by.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use clap_complete::Shell;

const USAGE: &str = "usage: penstock --generate man DIR\n       penstock --generate completions DIR";

/// The shells that completions are made for.
const SHELLS: [Shell; 4] = [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish];

/// Runs `penstock --generate ARGS...`.
pub fn run(args: &[OsString]) -> ExitCode {
    let result = match args {
        [what, directory] if what == "man" => generate(directory, man),
        [what, directory] if what == "completions" => generate(directory, completions),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn generate(directory: &OsStr, write: fn(&Path) -> io::Result<()>) -> Result<(), String> {
    let directory = Path::new(directory);
    let written = fs::create_dir_all(directory).and_then(|()| write(directory));
    written.map_err(|error| format!("penstock: can't write to {}: {error}", directory.display()))
}

/// The tools' command lines, each under the name of its subcommand.
fn tools() -> [(&'static str, Command); 3] {
    [("bench", bench::command()), ("cli", cli::command()), ("load", load::command())]
}

/// One page for the server, which tells of the tools, and one for each tool.
fn man(directory: &Path) -> io::Result<()> {
    let page = |name: &str, command: Command| {
        let mut text = Vec::new();
        // A page's name may not contain a blank: penstock-load(1) is about `penstock load`.
        clap_mangen::Man::new(command.name(name.to_owned()).version(env!("CARGO_PKG_VERSION"))).render(&mut text)?;
        fs::write(directory.join(format!("{name}.1")), text)
    };
    page("penstock", whole())?;
    tools().into_iter().try_for_each(|(name, command)| page(&format!("penstock-{name}"), command))
}

/// One file a shell, for the server and all tools together.
fn completions(directory: &Path) -> io::Result<()> {
    SHELLS
        .into_iter()
        .try_for_each(|shell| clap_complete::generate_to(shell, &mut whole(), "penstock", directory).map(drop))
}

/// The whole program's command line: the server's options and the tools as subcommands.
fn whole() -> Command {
    let tools = tools().map(|(name, command)| command.name(name).bin_name(format!("penstock {name}")));
    let server = Command::new("server")
        .about("Run the server; the word may be left out")
        .disable_help_flag(true)
        .args(server_arguments());
    Command::new("penstock")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An in-memory data server that speaks the Redis protocol, built for pipelines, and its tools")
        .disable_help_subcommand(true)
        .disable_help_flag(true)
        .args(server_arguments())
        .arg(
            Arg::new("generate")
                .long("generate")
                .num_args(2)
                .value_names(["man|completions", "DIR"])
                .help("Write manual pages or shell completions into a directory"),
        )
        .subcommands(tools.into_iter().chain([server]))
}

/// Every directive of the configuration is an option.
fn server_arguments() -> Vec<Arg> {
    let file = Arg::new("file")
        .value_name("FILE")
        .help("A configuration file in redis.conf's grammar; - reads standard input");
    let help = Arg::new("help").short('h').long("help").num_args(0).help("Print a short help");
    let directives = server::cli_args::directives().filter(|directive| directive.name != "help");
    let options = directives.map(|directive| {
        let arg = Arg::new(directive.name).long(directive.name).value_name("VALUE").num_args(1..).help(directive.docs);
        // What a flag takes is worth completing.
        if directive.is_flag { arg.value_parser([PossibleValue::new("yes"), PossibleValue::new("no")]) } else { arg }
    });
    [file, help].into_iter().chain(options).collect()
}
