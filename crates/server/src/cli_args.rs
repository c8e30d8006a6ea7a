//! The server's command line: `penstock [server] [FILE|-] [--directive value...]... [-]`.
//!
//! Every directive of redis.conf is an option. Its values follow, up to the next argument that begins with `--`. The first value may also
//! begin with `--`, as in Redis 7. The first directive after a file needs no `--`. Options override standard input, and standard input
//! overrides the file.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use config::{Loader, Settings, TABLE, ValueKind};

use crate::conf_file::{ConfErrors, FATAL, include, load_file, load_text};

/// An option of the command line: a directive of redis.conf, for manual pages and completions.
#[derive(Clone, Copy, Debug)]
pub struct DirectiveOption {
    /// Without the leading `--`.
    pub name: &'static str,
    /// Its purpose.
    pub docs: &'static str,
    /// Its default, in the syntax of CONFIG SET.
    pub default: &'static str,
    /// Its accepted values, if they are a few words.
    pub words: &'static [&'static str],
}

/// All options, sorted by name.
pub fn directives() -> impl Iterator<Item = DirectiveOption> {
    TABLE.directives.iter().filter(|directive| !directive.hidden).map(|directive| DirectiveOption {
        name: directive.name,
        docs: directive.docs,
        default: directive.default,
        words: match directive.kind {
            ValueKind::Bool => &["yes", "no"],
            ValueKind::Choice(words) => words,
            _ => &[],
        },
    })
}

/// The settings of a server, loaded from the command line.
#[derive(Debug)]
pub struct LoadedSettings {
    /// Defaults, file, standard input and options, in this order.
    pub settings: Settings,
    /// The file's absolute path. CONFIG REWRITE writes to it.
    pub config_file: Option<PathBuf>,
    /// The bytes read from standard input.
    pub stdin: Vec<u8>,
    /// Lines for the log about directives without effect.
    pub notes: Vec<String>,
}

/// Reason for not starting a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// Help: print this and a list of the program's other commands, and exit with success.
    Help(&'static str),
    /// Version: print this and exit with success.
    Answer(String),
    /// Error: print this to standard error and exit with a failure.
    Fatal(String),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Help(text) => f.write_str(text),
            Exit::Answer(text) | Exit::Fatal(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Exit {}

impl From<ConfErrors> for Exit {
    fn from(errors: ConfErrors) -> Self {
        Exit::Fatal(errors.to_string())
    }
}

const VERSION: &str = concat!("Penstock server v=", env!("CARGO_PKG_VERSION"));

const HELP: &str = "\
Usage: penstock [server] [/path/to/redis.conf] [options] [-]
       penstock [server] - (read the configuration from standard input)
       penstock -v, -V or --version
       penstock -h, --help or help [TOOL]

Every directive of redis.conf is an option.

Examples:
       penstock (run the server with the default configuration)
       echo 'maxmemory 128mb' | penstock -
       penstock /etc/redis/redis.conf
       penstock --port 7777 --threads 2
       penstock --bind 127.0.0.1 ::1 --save \"\"
       penstock /etc/redis/redis.conf --loglevel verbose -";

/// Loads settings from the command line `argv`, without the program's name, and from the files named there. Reads `stdin` to its end if `-`
/// is given.
///
/// # Errors
/// [`Exit`], with a text that names the file and line or the option at fault.
pub fn load(argv: &[OsString], stdin: &mut dyn Read) -> Result<LoadedSettings, Exit> {
    let line = CommandLine::parse(argv)?;
    let settings = Settings::new();
    let mut loader = Loader::new(&settings).with_commands(engine::registry::build).with_users(access::check_line);
    let mut errors = ConfErrors::default();
    let config_file = line.file.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    if let Some(path) = &config_file {
        load_file(&mut loader, path, &mut errors);
    }
    let mut text = Vec::new();
    if line.stdin {
        stdin.read_to_end(&mut text).map_err(|error| Exit::Fatal(format!("Can't read standard input: {error}")))?;
        load_text(&mut loader, "standard input", &text, &mut errors);
    }
    errors.into_result()?;
    for option in &line.options {
        option.load(&mut loader)?;
    }
    let notes = loader.notes();
    Ok(LoadedSettings { settings, config_file, stdin: text, notes })
}

/// The parsed command line.
#[derive(Default)]
struct CommandLine<'a> {
    file: Option<&'a OsStr>,
    stdin: bool,
    options: Vec<CommandOption>,
}

/// A directive's name and values.
struct CommandOption {
    argv: Vec<Vec<u8>>,
    /// The dashes before its name.
    dashes: &'static str,
}

impl<'a> CommandLine<'a> {
    fn parse(argv: &'a [OsString]) -> Result<CommandLine<'a>, Exit> {
        let mut line = CommandLine::default();
        let mut rest = match argv {
            [server, rest @ ..] if server == "server" => rest,
            rest => rest,
        };
        if let [first, tail @ ..] = rest
            && line.take_first(first)?
        {
            rest = tail;
        }
        if let [head @ .., last] = rest
            && last == "-"
        {
            line.stdin = true;
            rest = head;
        }
        line.take_options(rest)?;
        Ok(line)
    }

    /// Takes the first argument if it isn't an option: a file, or `-`.
    fn take_first(&mut self, first: &'a OsStr) -> Result<bool, Exit> {
        match first.as_bytes() {
            b"-v" | b"-V" | b"--version" => return Err(Exit::Answer(VERSION.to_owned())),
            b"-h" | b"--help" => return Err(Exit::Help(HELP)),
            b"-" => self.stdin = true,
            option if option.starts_with(b"-") => return Ok(false),
            _ => self.file = Some(first),
        }
        Ok(true)
    }

    fn take_options(&mut self, mut rest: &'a [OsString]) -> Result<(), Exit> {
        let words = rest.iter().take_while(|word| !word.as_bytes().starts_with(b"-")).count();
        if self.file.is_some() && words > 0 {
            // The values of a first directive without dashes may begin with one dash, like negative numbers.
            let end = rest.iter().take_while(|word| !word.as_bytes().starts_with(b"--")).count();
            let argv = rest[..end].iter().map(|word| word.as_bytes().to_vec()).collect();
            self.options.push(CommandOption { argv, dashes: "" });
            rest = &rest[end..];
        }
        while let [option, tail @ ..] = rest {
            let Some(text) = option.as_bytes().strip_prefix(b"--") else {
                return Err(fatal(option, "an option begins with --, and its values follow it"));
            };
            let mut argv = resp::splitargs::split_args(text).map_err(|_| fatal(option, "unbalanced quotes"))?;
            // "--port 7777" in one argument is complete. Otherwise the next argument is a value in any form.
            let first = usize::from(argv.len() == 1 && takes_next(&argv, tail));
            let further = tail.iter().skip(first).take_while(|value| !value.as_bytes().starts_with(b"--")).count();
            let (values, after) = tail.split_at(first + further);
            argv.extend(values.iter().map(|value| value.as_bytes().to_vec()));
            if let [save] = argv.as_slice()
                && save.eq_ignore_ascii_case(b"save")
            {
                // A shell turns `--save $NOTHING` into a bare option: no save points.
                argv.push(Vec::new());
            }
            self.options.push(CommandOption { argv, dashes: "--" });
            rest = after;
        }
        Ok(())
    }
}

/// Returns true if the argument after an option's bare name is its value. Only `--save` may stand alone before another option.
fn takes_next(argv: &[Vec<u8>], tail: &[OsString]) -> bool {
    let save = argv.first().is_some_and(|name| name.eq_ignore_ascii_case(b"save"));
    tail.first().is_some_and(|value| !(save && value.as_bytes().starts_with(b"--")))
}

impl CommandOption {
    fn load(&self, loader: &mut Loader) -> Result<(), Exit> {
        let [name, ..] = self.argv.as_slice() else {
            return Err(fatal(OsStr::new("--"), "the name of a directive is missing"));
        };
        match name.to_ascii_lowercase().as_slice() {
            b"help" => Err(Exit::Help(HELP)),
            b"version" => Err(Exit::Answer(VERSION.to_owned())),
            b"include" if self.argv.len() == 2 => {
                let mut errors = ConfErrors::default();
                include(loader, &self.argv[1], 1, &mut errors);
                Ok(errors.into_result()?)
            }
            _ => loader.directive(&self.argv).map_err(|reason| self.wrong(&reason)),
        }
    }

    fn wrong(&self, reason: &str) -> Exit {
        let words: Vec<_> = self.argv.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let (dashes, name) = (self.dashes, words.first().map_or("", |name| name));
        let words = words.join(" ");
        Exit::Fatal(format!(
            "{FATAL}Reading the command line, at option {dashes}{name}\n>>> '{dashes}{words}'\n{reason}"
        ))
    }
}

fn fatal(argument: &OsStr, reason: &str) -> Exit {
    let argument = argument.to_string_lossy();
    Exit::Fatal(format!("{FATAL}Reading the command line, at '{argument}'\n{reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::get;

    /// Loads the command line and standard input. Returns the values of the settings in `names`, which are separated by blanks.
    fn shown(argv: &[&str], stdin: &str, names: &str) -> Result<String, Exit> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let loaded = load(&argv, &mut stdin.as_bytes())?;
        let values = names.split(' ').flat_map(|name| get(&loaded.settings, &[name.as_bytes()]));
        Ok(values.map(|(_, value)| value).collect::<Vec<_>>().join(";"))
    }

    fn check(argv: &[&str], names: &str, values: &str) {
        assert_eq!(shown(argv, "hz 77\nport 77\n", names), Ok(values.into()), "{argv:?}");
    }

    fn check_fatal(argv: &[&str], option: &str, reason: &str) {
        match shown(argv, "hz x", "hz") {
            Err(Exit::Fatal(text)) => {
                assert!(text.starts_with(FATAL) && text.contains(option) && text.ends_with(reason), "{argv:?}: {text}");
            }
            other => panic!("{argv:?}: {other:?}"),
        }
    }

    fn bad_directive(name: &str) -> String {
        format!("Bad directive: there is no '{name}'; correct its name, or remove it")
    }

    #[test]
    fn options_are_directives() {
        check(&[], "port hz", "6379;10");
        check(&["server"], "port", "6379");
        check(&["--port", "0", "--HZ", "20"], "port hz", "0;20");
        check(&["server", "--port", "1", "--port", "2"], "port", "2");
        check(&["--port 7000", "--hz", "20"], "port hz", "7000;20");
        check(&["--bind", "127.0.0.1", "::1", "--port", "0"], "bind port", "127.0.0.1 ::1;0");
        check(&["--bind", "127.0.0.1 ::1"], "bind", "127.0.0.1 ::1");
        check(&["--appendonly", "no", "--threads", "3"], "appendonly io-threads", "no;3");
        check(&["--slowlog-log-slower-than", "-1"], "slowlog-log-slower-than", "-1");
        check(&["--requirepass", "--x y"], "requirepass", "--x y");
        check(&["--requirepass", "a \"b"], "requirepass", "a \"b");
        check(&["--logfile", ""], "logfile", "");
    }

    #[test]
    fn save_may_stand_alone() {
        check(&["--save", "", "--port", "1"], "save port", ";1");
        check(&["--save", "--port", "1"], "save port", ";1");
        check(&["--port", "1", "--save"], "save port", ";1");
        check(&["--save", "60", "1", "--save", "5 6"], "save", "60 1 5 6");
    }

    #[test]
    fn standard_input_is_read_where_a_dash_asks() {
        check(&["-"], "hz port", "77;77");
        check(&["server", "-", "--port", "1"], "hz port", "77;1");
        check(&["--port", "1", "-"], "hz port", "77;1");
        check(&["--port", "1"], "hz port", "10;1");
    }

    #[test]
    fn options_count_more_than_input_and_that_more_than_the_file() {
        let path = std::env::temp_dir().join(format!("penstock-cli-{}.conf", std::process::id()));
        std::fs::write(&path, "hz 66\nport 66\ntimeout 66\n").unwrap();
        let file = path.to_str().unwrap();
        check(&[file, "--port", "1", "-"], "timeout hz port", "66;77;1");
        let loaded = load(&[OsString::from(file)], &mut std::io::empty()).unwrap();
        assert_eq!(loaded.config_file.as_deref(), Some(path.as_path()));
        check(&[file, "loglevel", "verbose"], "loglevel hz", "verbose;66");
        check(
            &["server", file, "slowlog-log-slower-than", "-1", "--port", "2", "-"],
            "slowlog-log-slower-than port",
            "-1;2",
        );
        check(&[file, "hz", "5", "--hz", "7"], "hz", "7");
        let rest =
            "wrong number of arguments: 'hz' takes 1, not 3; remove the rest, or put quotes around a value with blanks";
        check_fatal(&[file, "hz", "5", "port", "7"], "option hz\n>>> 'hz 5 port 7'\n", rest);
        check_fatal(&[file, "nosuch"], "option nosuch\n>>> 'nosuch'\n", &bad_directive("nosuch"));
        check_fatal(&[file, "-p", "7"], "at '-p'\n", "an option begins with --, and its values follow it");
        std::fs::remove_file(&path).unwrap();
        let error = shown(&[file], "", "hz").unwrap_err().to_string();
        assert_eq!(error, format!("Fatal error, can't open config file '{file}': No such file or directory"));
    }

    #[test]
    fn files_are_included_between_the_options_before_and_those_after() {
        let path = std::env::temp_dir().join(format!("penstock-cli-include-{}.conf", std::process::id()));
        std::fs::write(&path, "hz 66\ntimeout 66\n").unwrap();
        check(&["--hz", "1", "--include", path.to_str().unwrap(), "--timeout", "1"], "hz timeout", "66;1");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn help_and_version_start_nothing() {
        for argv in [&["-h"][..], &["--help"], &["server", "--help"], &["--port", "1", "--help"]] {
            assert_eq!(shown(argv, "", "hz"), Err(Exit::Help(HELP)), "{argv:?}");
        }
        for argv in [&["-v"][..], &["-V"], &["server", "--version"]] {
            assert_eq!(shown(argv, "", "hz"), Err(Exit::Answer(VERSION.into())), "{argv:?}");
        }
    }

    #[test]
    fn errors_name_the_option() {
        check_fatal(&["--port", "x"], "option --port\n>>> '--port x'\n", "argument couldn't be parsed into an integer");
        let missing = "wrong number of arguments: 'port' takes 1, not 0; add the missing ones, \"\" for an empty one";
        check_fatal(&["--hz", "5", "--port"], "option --port\n", missing);
        check_fatal(&["--foo", "x"], "option --foo\n", &bad_directive("foo"));
        check_fatal(&["--port=0"], "option --port=0\n", "Bad directive: there is no 'port=0'; did you mean 'port 0'?");
        check_fatal(
            &["--loadmodule", "/x.so"],
            "--loadmodule",
            "is not supported by this version of Penstock; remove this directive to do without",
        );
        check_fatal(&["-p", "1"], "at '-p'\n", "an option begins with --, and its values follow it");
        check_fatal(&["--include"], "option --include", &missing.replace("port", "include"));
        let rest = "wrong number of arguments: 'include' takes 1, not 2; remove the rest, or put quotes around a value with blanks";
        check_fatal(&["--include", "x", "y"], "option --include", rest);
        let missing = "can't open config file '/nonexistent/x': No such file or directory";
        assert!(shown(&["--include", "/nonexistent/x"], "", "hz").unwrap_err().to_string().ends_with(missing));
        check_fatal(&["--port \"1"], "at '--port \"1'", "unbalanced quotes");
        check_fatal(&["--"], "at '--'", "the name of a directive is missing");
        check_fatal(&["-"], "at line 1 of standard input", "argument couldn't be parsed into an integer");
    }
}
