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

/// One page for the whole program, and one for each of its subcommands and of theirs.
fn man(directory: &Path) -> io::Result<()> {
    write_pages(directory, "penstock", &whole())
}

/// The page of a command that is called by these words, and those of its subcommands.
fn write_pages(directory: &Path, words: &str, command: &Command) -> io::Result<()> {
    // A page's name may not contain a blank: penstock-load(1) is about `penstock load`.
    let name = words.replace(' ', "-");
    fs::write(directory.join(format!("{name}.1")), page(&name, words, command)?)?;
    let mut subcommands = command.get_subcommands();
    subcommands.try_for_each(|command| write_pages(directory, &format!("{words} {}", command.get_name()), command))
}

fn page(name: &str, words: &str, command: &Command) -> io::Result<String> {
    // Every page tells the version, but not every subcommand takes a flag for it. All define their help themselves.
    let takes_no_flag = command.is_disable_version_flag_set();
    let command = command.clone().name(name.to_owned()).bin_name(words.to_owned());
    let command = command.disable_help_flag(true).disable_version_flag(takes_no_flag);
    let command = command.version(env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(with_sections(&String::from_utf8_lossy(&text)))
}

/// What a command's help ends with, of which the page would otherwise make one running text: a section for each
/// paragraph, by the words before its first colon, in which indented lines (examples, tables) stay as they are.
fn with_sections(page: &str) -> String {
    let Some((before, rest)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let end = rest.find("\n.SH ").map_or(rest.len(), |at| at + 1);
    let (extra, after) = rest.split_at(end);
    let sections: String = extra.split("\n\n").map(section).collect();
    format!("{before}{sections}{after}")
}

fn section(paragraph: &str) -> String {
    let (heading, text) = paragraph.split_once(':').unwrap_or(("Notes", paragraph));
    let mut section = format!(".SH \"{}\"\n", heading.trim().to_uppercase());
    let mut is_filled = true;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let fills = !line.starts_with("  ");
        if fills != is_filled {
            section += if fills { ".fi\n" } else { ".nf\n" };
            is_filled = fills;
        }
        section += if fills { line.trim_start() } else { line };
        section.push('\n');
    }
    if !is_filled {
        section += ".fi\n";
    }
    section
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_help_text_becomes_sections() {
        let page = ".SH OPTIONS\nx\n.SH EXTRA\nSome examples:\n  one    two\n  three\n\nExit status: 0 well;\n1 not.\n.SH VERSION\nv1\n";
        let expected = ".SH OPTIONS\nx\n.SH \"SOME EXAMPLES\"\n.nf\n  one    two\n  three\n.fi\n.SH \"EXIT STATUS\"\n0 well;\n1 not.\n\
                        .SH VERSION\nv1\n";
        assert_eq!(with_sections(page), expected);
        assert_eq!(with_sections(".SH NAME\nx\n"), ".SH NAME\nx\n");
    }
}
