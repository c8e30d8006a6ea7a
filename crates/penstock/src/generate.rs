//! `penstock --generate man|completions DIR`: manual pages and shell completions, generated from the command line
//! definitions.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;

use crate::tools::{SERVER, TOOLS};

const USAGE: &str = "usage: penstock --generate man DIR\n       penstock --generate completions DIR";

/// Shells with completions.
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

/// Writes one page for the whole program and one for each subcommand, recursively.
fn man(directory: &Path) -> io::Result<()> {
    write_pages(directory, "penstock", &whole(&[file()]))
}

/// Writes the pages of a command and of its subcommands. `words` is the way to call the command.
fn write_pages(directory: &Path, words: &str, command: &Command) -> io::Result<()> {
    // A page's name can't contain a blank: penstock-load(1) describes `penstock load`.
    let name = words.replace(' ', "-");
    fs::write(directory.join(format!("{name}.1")), page(&name, words, command)?)?;
    let mut subcommands = command.get_subcommands();
    subcommands.try_for_each(|command| write_pages(directory, &format!("{words} {}", command.get_name()), command))
}

fn page(name: &str, words: &str, command: &Command) -> io::Result<String> {
    // Every page shows the version, but not every subcommand has a flag for it. All of them define their own help.
    let takes_no_flag = command.is_disable_version_flag_set();
    let command = command.clone().name(name.to_owned()).bin_name(words.to_owned());
    let command = command.disable_help_flag(true).disable_version_flag(takes_no_flag);
    let command = command.version(env!("CARGO_PKG_VERSION"));
    let usage = usage(&command);
    let command = command.override_usage(usage);
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(with_sections(&String::from_utf8_lossy(&text)))
}

/// A short form of the usage, without all options, which have their own section.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage:").trim().to_owned()
}

/// Splits the end of a command's help, which would become one paragraph, into sections: one per paragraph, named by the
/// words before its first colon. Indented lines (examples, tables) stay unchanged.
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

/// Writes one file per shell for the server and all tools.
fn completions(directory: &Path) -> io::Result<()> {
    SHELLS.into_iter().try_for_each(|shell| {
        // In zsh, a file as the first argument would shift the tools to the second one.
        let mut command = with_hints(whole(&server_options()));
        let path = clap_complete::generate_to(shell, &mut command, "penstock", directory)?;
        let script = fs::read_to_string(&path)?;
        match shell {
            Shell::Bash => fs::write(path, options_behind_a_dash_in_bash(&script)),
            Shell::Elvish => fs::write(path, options_behind_a_dash_in_elvish(&script)),
            Shell::Zsh => fs::write(path, files_beside_tools_in_zsh(&script)),
            // Fish does that by itself.
            _ => Ok(()),
        }
    })
}

/// The whole program's command line: these arguments of the server, and the tools as subcommands.
fn whole(arguments: &[Arg]) -> Command {
    let tools = TOOLS.iter().map(|tool| (tool.command)().name(tool.name).bin_name(format!("penstock {}", tool.name)));
    let help = Arg::new("help").short('h').long("help").action(ArgAction::SetTrue).help("Print a short help");
    let server = Command::new(SERVER)
        .about("Run the server; this word is optional")
        .override_usage(format!("penstock {SERVER} {SERVER_USAGE}"))
        .disable_help_flag(true)
        .args([file(), help.clone()])
        .args(server_options());
    Command::new("penstock")
        .version(env!("CARGO_PKG_VERSION"))
        .about("An in-memory data server that speaks the Redis protocol, built for pipelines, and its tools")
        .long_about(ABOUT)
        .override_usage(format!("penstock {SERVER_USAGE}\n{USAGE_OF_TOOLS}"))
        .disable_help_subcommand(true)
        .disable_help_flag(true)
        .arg(help)
        .args(arguments)
        .arg(
            Arg::new("generate")
                .long("generate")
                .num_args(2)
                .value_names(["man|completions", "DIR"])
                .value_hint(ValueHint::DirPath)
                .help("Write manual pages or shell completions into a directory"),
        )
        .subcommands(tools.chain([server]))
}

const SERVER_USAGE: &str = "[FILE|-] [--DIRECTIVE VALUE...]... [-]";

const USAGE_OF_TOOLS: &str = "\
penstock advise|bench|check|cli|load [ARGUMENT]...
penstock help [TOOL]
penstock --generate man|completions DIR";

const ABOUT: &str = "An in-memory data server that speaks the Redis protocol, built for pipelines, and its tools.

Without the name of a tool the server runs: penstock-server(1) has all its directives.";

fn file() -> Arg {
    Arg::new("file")
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .help("A configuration file in redis.conf's grammar; - reads standard input")
}

/// One option for each directive of the configuration.
fn server_options() -> Vec<Arg> {
    let directives = server::cli_args::directives().filter(|directive| directive.name != "help");
    let options = directives.map(|directive| {
        let arg = Arg::new(directive.name).long(directive.name).value_name("VALUE").num_args(1..);
        let arg = arg.help(without_links(directive.docs)).value_hint(hint(directive.name));
        match directive.words {
            [] => arg,
            // A small set of values is completed, and the page shows it as the value's name.
            [_, _] => arg
                .value_parser(directive.words.to_vec())
                .value_name(directive.words.join("|"))
                .hide_possible_values(true),
            words => arg.value_parser(words.to_vec()),
        }
    });
    options.collect()
}

/// Kind of value that a directive takes.
fn hint(directive: &str) -> ValueHint {
    match directive {
        "dir" | "reply-spill-dir" => ValueHint::DirPath,
        "unixsocket" | "include" | "loadmodule" => ValueHint::FilePath,
        // Names ending in "filename" are relative to `dir`.
        name if name.ends_with("file") => ValueHint::FilePath,
        _ => ValueHint::Other,
    }
}

/// Removes rustdoc's links from a text: ``[`a::b_c`]`` is replaced by its last words.
fn without_links(docs: &str) -> String {
    let mut text = String::new();
    let mut rest = docs;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((path, after)) = link.split_once("`]") else { break };
        text += before;
        text += &path.rsplit("::").next().unwrap_or(path).replace('_', " ");
        rest = after;
    }
    (text + rest).replace('`', "").trim().to_owned()
}

/// Lets shells offer files only for arguments that are declared as files.
fn with_hints(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_values = arg.get_action().takes_values();
        let is_unknown = takes_values && arg.get_value_hint() == ValueHint::Unknown;
        if is_unknown { arg.value_hint(ValueHint::Other) } else { arg }
    });
    command.mut_subcommands(with_hints)
}

/// Changes the script for bash to offer options only after a dash; the server's two hundred options would hide the
/// tools. If no other word matches, bash offers files.
fn options_behind_a_dash_in_bash(script: &str) -> String {
    const ALL: &str = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    const WORDS: &str = "COMPREPLY=( $(compgen -W \"$(_penstock_words ${opts})\" -- \"${cur}\") )";
    const FUNCTION: &str = "\
# Those of its arguments that are no options.
_penstock_words() {
    local word
    for word in \"$@\"; do [[ ${word} == -* ]] || printf '%s\\n' \"${word}\"; done
}

";
    let lines = script.lines().map(|line| match line.split_once(" || ${COMP_CWORD} -eq ") {
        // The condition for offering everything.
        Some((condition, _)) => format!("{condition} ]] ; then\n"),
        None => format!("{line}\n"),
    });
    let script: String = lines.collect();
    // The words for all other cases come after the values of options.
    let parts = script.split("            esac\n").map(|part| match part.trim_start().strip_prefix(ALL) {
        Some(rest) => format!("            {WORDS}{rest}"),
        None => part.to_owned(),
    });
    FUNCTION.to_owned() + &parts.collect::<Vec<_>>().join("            esac\n")
}

/// Changes the script for zsh to accept a configuration file as the first word, too. Zsh offers options only after a
/// dash by itself.
fn files_beside_tools_in_zsh(script: &str) -> String {
    const TOOLS: &str = "\":: :_penstock_commands\"";
    const FIRST: &str = "\":: :_penstock_first\"";
    const FUNCTION: &str = "_penstock_first() {
    _penstock_commands
    _files
}

";
    let script = script.replacen(TOOLS, FIRST, 1);
    script.replacen("_penstock() {", &format!("{FUNCTION}_penstock() {{"), 1)
}

/// Changes the script for elvish to offer options only after a dash. Elvish filters candidates by the typed text, and
/// would show all of them for an empty one.
fn options_behind_a_dash_in_elvish(script: &str) -> String {
    const FUNCTION: &str = "    fn opt {|text desc|
        if (str:has-prefix $words[-1] '-') { cand $text $desc }
    }
";
    let line = |line: &str| match line.trim_start() {
        "var command = 'penstock'" => format!("{FUNCTION}{line}\n"),
        start if start.starts_with("cand -") => format!("{}\n", line.replacen("cand", "opt", 1)),
        _ => format!("{line}\n"),
    };
    script.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_has_no_links() {
        let check = |docs: &str, expected: &str| assert_eq!(without_links(docs), expected);
        check(" Bits of [`super::keyspace_events`].", "Bits of keyspace events.");
        check("`*` and [`Settings::a_b`] or [`c`]", "* and a b or c");
        check("a list [of things", "a list [of things");
        check("open [`link", "open [link");
        for option in server::cli_args::directives() {
            assert!(!without_links(option.docs).contains(['`', '[', ']']), "{}", option.name);
        }
    }

    #[test]
    fn the_end_of_a_help_text_becomes_sections() {
        let page = ".SH OPTIONS\nx\n.SH EXTRA\nSome examples:\n  one    two\n  three\n\nExit status: 0 well;\n1 not.\n.SH VERSION\nv1\n";
        let expected = ".SH OPTIONS\nx\n.SH \"SOME EXAMPLES\"\n.nf\n  one    two\n  three\n.fi\n.SH \"EXIT STATUS\"\n0 well;\n1 not.\n\
                        .SH VERSION\nv1\n";
        assert_eq!(with_sections(page), expected);
        assert_eq!(with_sections(".SH NAME\nx\n"), ".SH NAME\nx\n");
    }
}
