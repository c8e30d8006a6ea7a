//! The flags: one declaration, from which the parser, the help, the man page and the completions come.

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use std::ffi::OsString;

/// Ids of the arguments, which [`crate::options`] asks for.
pub mod id {
    #![allow(missing_docs, reason = "each is the flag that has it")]
    pub const HOST: &str = "host";
    pub const PORT: &str = "port";
    pub const SOCKET: &str = "socket";
    pub const PASSWORD: &str = "password";
    pub const PASS: &str = "pass";
    pub const USER: &str = "user";
    pub const ASKPASS: &str = "askpass";
    pub const URI: &str = "uri";
    pub const REPEAT: &str = "repeat";
    pub const INTERVAL: &str = "interval";
    pub const TLS: &str = "tls";
    pub const SNI: &str = "sni";
    pub const CACERT: &str = "cacert";
    pub const INSECURE: &str = "insecure";
    pub const CERT: &str = "cert";
    pub const KEY: &str = "key";
    pub const DB: &str = "db";
    pub const CLUSTER_MODE: &str = "cluster-mode";
    pub const RESP2: &str = "resp2";
    pub const RESP3: &str = "resp3";
    pub const STDIN_LAST: &str = "stdin-last";
    pub const STDIN_TAG: &str = "stdin-tag";
    pub const ELEMENT_DELIMITER: &str = "element-delimiter";
    pub const REPLY_DELIMITER: &str = "reply-delimiter";
    pub const EXIT_ERROR: &str = "exit-error";
    pub const RAW: &str = "raw";
    pub const NO_RAW: &str = "no-raw";
    pub const QUOTED_INPUT: &str = "quoted-input";
    pub const CSV: &str = "csv";
    pub const JSON: &str = "json";
    pub const QUOTED_JSON: &str = "quoted-json";
    pub const SHOW_PUSHES: &str = "show-pushes";
    pub const COLOR: &str = "color";
    pub const STAT: &str = "stat";
    pub const LATENCY: &str = "latency";
    pub const LATENCY_HISTORY: &str = "latency-history";
    pub const LATENCY_DIST: &str = "latency-dist";
    pub const PIPE: &str = "pipe";
    pub const PIPE_TIMEOUT: &str = "pipe-timeout";
    pub const BIGKEYS: &str = "bigkeys";
    pub const MEMKEYS: &str = "memkeys";
    pub const MEMKEYS_SAMPLES: &str = "memkeys-samples";
    pub const HOTKEYS: &str = "hotkeys";
    pub const SCAN: &str = "scan";
    pub const PATTERN: &str = "pattern";
    pub const QUOTED_PATTERN: &str = "quoted-pattern";
    pub const INTRINSIC_LATENCY: &str = "intrinsic-latency";
    pub const EVAL: &str = "eval";
    pub const VERBOSE: &str = "verbose";
    pub const NO_AUTH_WARNING: &str = "no-auth-warning";
    pub const HELP: &str = "help";
    pub const VERSION: &str = "version";
    pub const COMMAND: &str = "command";
}

/// Flags of redis-cli that are refused, and why.
pub const REFUSED: &[(&str, &str)] = &[
    ("--cluster", "clusters are not managed"),
    ("--cacertdir", "--cacert names a file"),
    ("--tls-ciphers", "the ciphers are not to be chosen"),
    ("--tls-ciphersuites", "the ciphers are not to be chosen"),
    ("--lru-test", "`penstock bench` is the tool for loads"),
    ("--replica", "the replication stream is not read"),
    ("--slave", "the replication stream is not read"),
    ("--rdb", "the replication stream is not read"),
    ("--functions-rdb", "the replication stream is not read"),
    ("--ldb", "there is no Lua debugger"),
    ("--ldb-sync-mode", "there is no Lua debugger"),
];

/// What `--color` takes.
pub const COLOR_CHOICES: [&str; 3] = ["auto", "always", "never"];

const FORMS: [&str; 5] = [id::RAW, id::NO_RAW, id::CSV, id::JSON, id::QUOTED_JSON];

const ABOUT: &str = "Sends commands to a Redis, Valkey or Penstock server and prints the replies.\n\n\
    The flags, the output and the habits are redis-cli's. Without a command, lines are read from standard input; on a \
    terminal they can be edited, with history, completion (Tab) and hints.";

const EXAMPLES: &str = "\
Examples:
  penstock cli SET greeting hello            one command
  penstock cli                               commands typed one by one; `help` and Tab help
  penstock cli -r 5 -i 1 INCR clicks         five times, one second apart
  printf 'SET a 1\\nGET a\\n' | penstock cli   commands from a file or pipe
  cat photo.jpg | penstock cli -x SET photo  the last argument from standard input
  penstock cli --scan --pattern 'user:*'     keys, one per line
  penstock cli --json HGETALL user:1         for programs
  penstock cli --eval script.lua k1 k2 , a1  a script with keys and arguments
  penstock cli --bigkeys                     what takes the room
  penstock cli --latency                     how long a PING takes

Environment:
  REDISCLI_AUTH      the password, which `ps` doesn't show there
  REDISCLI_HISTFILE  the file of past lines (~/.rediscli_history); /dev/null keeps none
  REDISCLI_RCFILE    the file of preferences (~/.redisclirc)
  NO_COLOR           if set, nothing is coloured unless --color always says so; nor is it where TERM is dumb

Exit status: 0 after a reply, an error reply too; 1 without one (no connection, wrong flags), and with -e after an error
reply; 130 after Ctrl-C.";

/// The declaration of all flags.
pub fn command() -> Command {
    Command::new("cli")
        .bin_name("penstock cli")
        .version(env!("CARGO_PKG_VERSION"))
        .about("redis-cli's flags, habits and output, for any Redis server")
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .args(connection_args())
        .args(command_args())
        .args(output_args())
        .args(mode_args())
        .args(other_args())
}

fn flag(id: &'static str) -> Arg {
    Arg::new(id).action(ArgAction::SetTrue)
}

/// An option with a value of any bytes, even one that begins with a hyphen.
fn option(id: &'static str, value_name: &'static str) -> Arg {
    Arg::new(id).value_name(value_name).value_parser(value_parser!(OsString)).allow_hyphen_values(true)
}

fn file(id: &'static str, long: &'static str) -> Arg {
    option(id, "file").long(long).value_hint(ValueHint::FilePath)
}

fn connection_args() -> Vec<Arg> {
    let args = [
        option(id::HOST, "host").short('h').help("Server's name or address [default: 127.0.0.1]"),
        option(id::PORT, "port").short('p').help("Server's port [default: 6379]"),
        option(id::SOCKET, "path")
            .short('s')
            .value_hint(ValueHint::FilePath)
            .help("Server's Unix socket, instead of host and port"),
        option(id::PASSWORD, "password").short('a').help("Password; REDISCLI_AUTH in the environment is safer"),
        option(id::PASS, "password").long("pass").help("The same as -a").overrides_with(id::PASSWORD),
        option(id::USER, "name").long("user").help("User that logs in with the password [default: the default user]"),
        flag(id::ASKPASS).long("askpass").help("Ask for the password, unseen"),
        option(id::URI, "uri").short('u').help("redis://user:password@host:port/db, or unix:///path/to/socket"),
        option(id::DB, "db").short('n').help("Number of the database [default: 0]"),
        flag(id::TLS).long("tls").help("Encrypt the connection"),
        option(id::SNI, "name").long("sni").help("Name to find in the server's certificate, instead of the host's"),
        file(id::CACERT, "cacert").help("Authorities' certificates (PEM) [default: the system's]"),
        flag(id::INSECURE).long("insecure").help("Accept any certificate"),
        file(id::CERT, "cert").help("Our own certificate (PEM), for servers that ask for one"),
        file(id::KEY, "key").help("The key to it (PEM)"),
        flag(id::CLUSTER_MODE).short('c').help("Follow a cluster's redirections (MOVED, ASK)"),
        flag(id::RESP2).short('2').help("Speak RESP2"),
        flag(id::RESP3).short('3').help("Speak RESP3"),
    ];
    args.map(|arg| arg.help_heading("Connection")).into()
}

fn command_args() -> Vec<Arg> {
    let args = [
        option(id::REPEAT, "count").short('r').help("Run the command so many times; -1: for ever"),
        option(id::INTERVAL, "seconds").short('i').help(
            "Wait between the runs of -r, between lines of --stat, between 100 rounds of --scan, --bigkeys and the like",
        ),
        flag(id::STDIN_LAST).short('x').help("Read the last argument from standard input"),
        option(id::STDIN_TAG, "tag").short('X').help("Read the argument that equals the tag from standard input"),
        flag(id::QUOTED_INPUT).long("quoted-input").help("Understand quotes and escapes in the arguments"),
        option(id::EVAL, "file")
            .long("eval")
            .value_hint(ValueHint::FilePath)
            .help("Run the file's script; keys stand before a comma of its own, arguments behind it"),
    ];
    args.map(|arg| arg.help_heading("Command")).into()
}

fn output_args() -> Vec<Arg> {
    let form = |id: &'static str| flag(id).overrides_with_all(FORMS.iter().filter(move |other| **other != id));
    let args = [
        form(id::RAW).long("raw").help("Print replies as they are (the default unless a terminal reads them)"),
        form(id::NO_RAW).long("no-raw").help("Print replies for people (the default on a terminal)"),
        form(id::CSV).long("csv").help("Print replies as CSV"),
        form(id::JSON).long("json").help("Print replies as JSON, of RESP3 unless -2 is given"),
        form(id::QUOTED_JSON).long("quoted-json").help("As --json, with strings in ASCII that keep every byte"),
        option(id::ELEMENT_DELIMITER, "text").short('d').help("Between a reply's elements with --raw [default: \\n]"),
        option(id::REPLY_DELIMITER, "text").short('D').help("Between replies with --raw [default: \\n]"),
        flag(id::EXIT_ERROR).short('e').help("Print error replies to standard error, and exit with status 1"),
        option(id::SHOW_PUSHES, "yes|no")
            .long("show-pushes")
            .help("Print RESP3's push messages [default: yes on a terminal]"),
        Arg::new(id::COLOR)
            .long("color")
            .value_name("when")
            .value_parser(COLOR_CHOICES)
            .hide_possible_values(true)
            .help("Colour replies by their type: always, never, or auto, which is on a terminal [default: auto]"),
    ];
    args.map(|arg| arg.help_heading("Output")).into()
}

fn mode_args() -> Vec<Arg> {
    let args = [
        flag(id::STAT).long("stat").help("Show the server's figures, line by line"),
        flag(id::LATENCY).long("latency").help("Show how long a PING takes; for one second if no terminal reads it"),
        flag(id::LATENCY_HISTORY).long("latency-history").help("The same, a new line every 15 seconds (-i)"),
        flag(id::LATENCY_DIST).long("latency-dist").help("The same as a spectrum of colours, every second (-i)"),
        option(id::INTRINSIC_LATENCY, "seconds")
            .long("intrinsic-latency")
            .help("Show how long this machine leaves a busy process waiting; no server is needed"),
        flag(id::BIGKEYS).long("bigkeys").help("Find the keys with the most elements"),
        flag(id::MEMKEYS).long("memkeys").help("Find the keys that take the most memory"),
        option(id::MEMKEYS_SAMPLES, "count").long("memkeys-samples").help("The same, with so many elements sampled"),
        flag(id::HOTKEYS).long("hotkeys").help("Find the keys most in use; needs an LFU maxmemory-policy"),
        flag(id::SCAN).long("scan").help("List the keys"),
        option(id::PATTERN, "pattern").long("pattern").help("Only keys that match [default: *]"),
        option(id::QUOTED_PATTERN, "pattern")
            .long("quoted-pattern")
            .overrides_with(id::PATTERN)
            .help("The same, with quotes and escapes"),
        flag(id::PIPE).long("pipe").help("Send requests in wire format from standard input, and count the replies"),
        option(id::PIPE_TIMEOUT, "seconds")
            .long("pipe-timeout")
            .help("Give up when no reply comes for so long after the last request; 0: never [default: 30]"),
    ];
    args.map(|arg| arg.help_heading("Modes")).into()
}

fn other_args() -> Vec<Arg> {
    vec![
        flag(id::VERBOSE).long("verbose").help("Accepted for scripts that pass it; changes nothing"),
        flag(id::NO_AUTH_WARNING).long("no-auth-warning").help("Don't warn of a password on the command line"),
        flag(id::HELP).long("help").help("Print this help, as -h without a host does"),
        flag(id::VERSION).short('v').long("version").help("Print the version"),
        Arg::new(id::COMMAND)
            .value_name("command")
            .value_parser(value_parser!(OsString))
            .num_args(0..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .help("The command and its arguments"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_help_text() {
        for arg in command().get_arguments() {
            assert!(arg.get_help().is_some(), "{}", arg.get_id());
        }
    }
}
