//! Declares the flags. The parser, the help, the man page and the completions use this one declaration.

use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use std::ffi::OsString;

/// Ids of the arguments, for [`crate::options`].
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
    pub const BATCHES: &str = "batches";
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
    pub const RDB: &str = "rdb";
    pub const REPLICA: &str = "replica";
    pub const PATTERN: &str = "pattern";
    pub const QUOTED_PATTERN: &str = "quoted-pattern";
    pub const INTRINSIC_LATENCY: &str = "intrinsic-latency";
    pub const EVAL: &str = "eval";
    pub const CLUSTER: &str = "cluster";
    pub const CLUSTER_REPLICAS: &str = "cluster-replicas";
    pub const CLUSTER_YES: &str = "cluster-yes";
    pub const CLUSTER_FROM: &str = "cluster-from";
    pub const CLUSTER_TO: &str = "cluster-to";
    pub const CLUSTER_SLOTS: &str = "cluster-slots";
    pub const CLUSTER_TIMEOUT: &str = "cluster-timeout";
    pub const CLUSTER_PIPELINE: &str = "cluster-pipeline";
    pub const CLUSTER_THRESHOLD: &str = "cluster-threshold";
    pub const CLUSTER_WEIGHT: &str = "cluster-weight";
    pub const CLUSTER_USE_EMPTY_MASTERS: &str = "cluster-use-empty-masters";
    pub const CLUSTER_SIMULATE: &str = "cluster-simulate";
    pub const CLUSTER_REPLACE: &str = "cluster-replace";
    pub const CLUSTER_COPY: &str = "cluster-copy";
    pub const CLUSTER_SLAVE: &str = "cluster-slave";
    pub const CLUSTER_MASTER_ID: &str = "cluster-master-id";
    pub const CLUSTER_SEARCH_MULTIPLE_OWNERS: &str = "cluster-search-multiple-owners";
    pub const CLUSTER_FIX_WITH_UNREACHABLE_MASTERS: &str = "cluster-fix-with-unreachable-masters";
    pub const CLUSTER_ONLY_MASTERS: &str = "cluster-only-masters";
    pub const CLUSTER_ONLY_REPLICAS: &str = "cluster-only-replicas";
    pub const CLUSTER_FROM_USER: &str = "cluster-from-user";
    pub const CLUSTER_FROM_PASS: &str = "cluster-from-pass";
    pub const CLUSTER_FROM_ASKPASS: &str = "cluster-from-askpass";
    pub const VERBOSE: &str = "verbose";
    pub const NO_AUTH_WARNING: &str = "no-auth-warning";
    pub const HELP: &str = "help";
    pub const VERSION: &str = "version";
    pub const COMMAND: &str = "command";
}

/// Flags of redis-cli that this tool refuses, with the reasons.
pub const REFUSED: &[(&str, &str)] = &[
    ("--cacertdir", "use --cacert with a file"),
    ("--tls-ciphers", "ciphers can't be chosen"),
    ("--tls-ciphersuites", "ciphers can't be chosen"),
    ("--lru-test", "use `penstock bench` for load tests"),
    ("--functions-rdb", "use --rdb, which writes data and functions"),
    ("--ldb", "there is no Lua debugger"),
    ("--ldb-sync-mode", "there is no Lua debugger"),
];

/// Values of `--color`.
pub const COLOR_CHOICES: [&str; 3] = ["auto", "always", "never"];

const FORMS: [&str; 5] = [id::RAW, id::NO_RAW, id::CSV, id::JSON, id::QUOTED_JSON];

const ABOUT: &str = "Sends commands to a Redis, Valkey or Penstock server and prints the replies.\n\n\
    Flags, output and behaviour are redis-cli's. Without a command, the tool reads commands from standard input; on a \
    terminal, with line editing, history, completion (Tab) and hints.";

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
  penstock cli -c SET greeting hello         a command for a cluster
  penstock cli --cluster check 10.0.0.1:7000 the state of a cluster

Environment:
  REDISCLI_AUTH      the password, which `ps` doesn't show there
  REDISCLI_HISTFILE  the file of past lines (~/.rediscli_history); /dev/null keeps none
  REDISCLI_RCFILE    the file of preferences (~/.redisclirc)
  NO_COLOR           if set, nothing is coloured unless --color always says so; nor is it where TERM is dumb

Exit status: 0 after a reply, an error reply too; 1 without one (no connection, wrong flags), and with -e after an error
reply; 130 after Ctrl-C.";

/// Returns the declaration of all flags.
pub fn command() -> Command {
    Command::new("cli")
        .bin_name("penstock cli")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A client with the flags and output of redis-cli")
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .args(connection_args())
        .args(command_args())
        .args(output_args())
        .args(mode_args())
        .args(cluster_args())
        .args(other_args())
}

fn flag(id: &'static str) -> Arg {
    Arg::new(id).action(ArgAction::SetTrue)
}

/// An option that takes any bytes as its value, including a leading hyphen.
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
        option(id::PASS, "password").long("pass").help("Alias of -a").overrides_with(id::PASSWORD),
        option(id::USER, "name").long("user").help("User name for the login [default: the default user]"),
        flag(id::ASKPASS).long("askpass").help("Ask for the password without showing it"),
        option(id::URI, "uri").short('u').help("redis://user:password@host:port/db, or unix:///path/to/socket"),
        option(id::DB, "db").short('n').help("Number of the database [default: 0]"),
        flag(id::TLS).long("tls").help("Encrypt the connection"),
        option(id::SNI, "name").long("sni").help("Host name to expect in the server's certificate"),
        file(id::CACERT, "cacert").help("CA certificates (PEM) [default: the system's]"),
        flag(id::INSECURE).long("insecure").help("Accept any certificate"),
        file(id::CERT, "cert").help("Client certificate (PEM)"),
        file(id::KEY, "key").help("Key of the client certificate (PEM)"),
        flag(id::CLUSTER_MODE).short('c').help("Follow a cluster's redirections (MOVED, ASK)"),
        flag(id::RESP2).short('2').help("Speak RESP2"),
        flag(id::RESP3).short('3').help("Speak RESP3"),
    ];
    args.map(|arg| arg.help_heading("Connection")).into()
}

fn command_args() -> Vec<Arg> {
    let args = [
        option(id::REPEAT, "count").short('r').help("Run the command this number of times; -1: forever"),
        option(id::INTERVAL, "seconds").short('i').help(
            "Wait between runs of -r, lines of --stat, rounds of --scan, and each 100 rounds of --bigkeys and similar modes",
        ),
        flag(id::STDIN_LAST).short('x').help("Read the last argument from standard input"),
        option(id::STDIN_TAG, "tag").short('X').help("Replace the argument equal to this tag by standard input"),
        flag(id::QUOTED_INPUT).long("quoted-input").help("Interpret quotes and escapes in the arguments"),
        option(id::EVAL, "file")
            .long("eval")
            .value_hint(ValueHint::FilePath)
            .help("Run the script in this file; give its keys and arguments, separated by a comma as a word of its own"),
    ];
    args.map(|arg| arg.help_heading("Command")).into()
}

fn output_args() -> Vec<Arg> {
    let form = |id: &'static str| flag(id).overrides_with_all(FORMS.iter().filter(move |other| **other != id));
    let args = [
        form(id::RAW).long("raw").help("Print replies unformatted (the default if the output is no terminal)"),
        form(id::NO_RAW).long("no-raw").help("Print replies for people (the default on a terminal)"),
        form(id::CSV).long("csv").help("Print replies as CSV"),
        form(id::JSON).long("json").help("Print replies as JSON; implies -3 unless -2 is given"),
        form(id::QUOTED_JSON)
            .long("quoted-json")
            .help("Like --json, with strings escaped to ASCII so that no byte is lost"),
        option(id::ELEMENT_DELIMITER, "text").short('d').help("Delimiter between elements with --raw [default: \\n]"),
        option(id::REPLY_DELIMITER, "text").short('D').help("Delimiter between replies with --raw [default: \\n]"),
        flag(id::EXIT_ERROR).short('e').help("Print error replies to standard error, and exit with status 1"),
        option(id::SHOW_PUSHES, "yes|no")
            .long("show-pushes")
            .help("Print RESP3 push messages [default: yes on a terminal]"),
        Arg::new(id::COLOR)
            .long("color")
            .value_name("when")
            .value_parser(COLOR_CHOICES)
            .hide_possible_values(true)
            .help("Colour replies by type: always, never, or auto (on a terminal) [default: auto]"),
    ];
    args.map(|arg| arg.help_heading("Output")).into()
}

fn mode_args() -> Vec<Arg> {
    let args = [
        flag(id::STAT).long("stat").help("Show the server's statistics, a line every second (-i)"),
        flag(id::BATCHES)
            .long("batches")
            .help("Show the times of Penstock's batches by depth, a table every second (-i); -r 1 shows one"),
        flag(id::LATENCY)
            .long("latency")
            .help("Measure the duration of PING continuously; for one second if the output is no terminal"),
        flag(id::LATENCY_HISTORY).long("latency-history").help("Like --latency, with a new line every 15 seconds (-i)"),
        flag(id::LATENCY_DIST).long("latency-dist").help("Like --latency, as a spectrum of colours every second (-i)"),
        option(id::INTRINSIC_LATENCY, "seconds")
            .long("intrinsic-latency")
            .help("Measure the scheduling delays of this machine; needs no server"),
        flag(id::BIGKEYS).long("bigkeys").help("Find the keys with the most elements"),
        flag(id::MEMKEYS).long("memkeys").help("Find the keys that use the most memory"),
        option(id::MEMKEYS_SAMPLES, "count")
            .long("memkeys-samples")
            .help("Like --memkeys, with this number of sampled elements"),
        flag(id::HOTKEYS).long("hotkeys").help("Find the most used keys; needs an LFU maxmemory-policy"),
        flag(id::SCAN).long("scan").help("List the keys"),
        option(id::PATTERN, "pattern").long("pattern").help("Scan only keys that match [default: *]"),
        option(id::QUOTED_PATTERN, "pattern")
            .long("quoted-pattern")
            .overrides_with(id::PATTERN)
            .help("Like --pattern, with quotes and escapes"),
        option(id::RDB, "file").long("rdb").help("Write a snapshot of the server into a file; - is standard output"),
        flag(id::REPLICA)
            .long("replica")
            .visible_alias("slave")
            .help("Print the commands that the server sends to its replicas, one per line"),
        flag(id::PIPE).long("pipe").help("Send requests in wire format from standard input and count the replies"),
        option(id::PIPE_TIMEOUT, "seconds")
            .long("pipe-timeout")
            .help("Seconds to wait for the last reply of --pipe; 0: forever [default: 30]"),
    ];
    args.map(|arg| arg.help_heading("Modes")).into()
}

fn cluster_args() -> Vec<Arg> {
    let flag = |id: &'static str, help: &'static str| flag(id).long(id).help(help);
    let option = |id: &'static str, name: &'static str, help: &'static str| option(id, name).long(id).help(help);
    let args = [
        option(id::CLUSTER, "command", "Manage a cluster; arguments follow, and `--cluster help` lists the commands"),
        flag(id::CLUSTER_YES, "Answer questions with yes, except those of fix"),
        option(id::CLUSTER_REPLICAS, "count", "create: number of replicas of each primary [default: 0]"),
        option(id::CLUSTER_FROM, "ids", "reshard: source nodes, or all; import: host:port of the source"),
        option(id::CLUSTER_TO, "id", "reshard: target node"),
        option(id::CLUSTER_SLOTS, "count", "reshard: number of slots to move"),
        option(id::CLUSTER_TIMEOUT, "ms", "Milliseconds for a MIGRATE [default: 60000]"),
        option(id::CLUSTER_PIPELINE, "count", "Number of keys in a MIGRATE [default: 10]"),
        flag(id::CLUSTER_REPLACE, "reshard, rebalance, import: replace keys of the target"),
        option(id::CLUSTER_THRESHOLD, "percent", "rebalance: accepted difference [default: 2]"),
        option(id::CLUSTER_WEIGHT, "id=weight ...", "rebalance: weights of nodes [default: 1]"),
        flag(id::CLUSTER_USE_EMPTY_MASTERS, "rebalance: give slots to primaries without slots, too"),
        flag(id::CLUSTER_SIMULATE, "rebalance: move nothing"),
        flag(id::CLUSTER_SLAVE, "add-node: add a replica"),
        option(id::CLUSTER_MASTER_ID, "id", "add-node: primary of the replica [default: the one with fewest]"),
        flag(id::CLUSTER_SEARCH_MULTIPLE_OWNERS, "check, fix: look for slots with several owners, too"),
        flag(id::CLUSTER_FIX_WITH_UNREACHABLE_MASTERS, "fix: give slots of unreachable primaries away"),
        flag(id::CLUSTER_ONLY_MASTERS, "call: skip replicas"),
        flag(id::CLUSTER_ONLY_REPLICAS, "call: skip primaries"),
        flag(id::CLUSTER_COPY, "import: keep the source's keys"),
        option(id::CLUSTER_FROM_USER, "name", "import: user name at the source"),
        option(id::CLUSTER_FROM_PASS, "password", "import: password at the source"),
        flag(id::CLUSTER_FROM_ASKPASS, "import: ask for the password at the source"),
    ];
    args.map(|arg| arg.help_heading("Cluster")).into()
}

fn other_args() -> Vec<Arg> {
    vec![
        flag(id::VERBOSE).long("verbose").help("Print more: the balance of each node with --cluster rebalance"),
        flag(id::NO_AUTH_WARNING).long("no-auth-warning").help("Don't warn about a password on the command line"),
        flag(id::HELP).long("help").help("Print this help, like -h without a host"),
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
