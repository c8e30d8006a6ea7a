//! Options from the command line and the environment.

use crate::flags::{self, id};
use crate::format::{ReplyFormat, Style};
use crate::manager::{self, ClusterOptions, ClusterWords};
use crate::quote::unquote;
use clap::ArgMatches;
use client::{Address, Proto, TlsOptions, Url};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Default address of the server.
const HOST: &str = "127.0.0.1";

const PORT: u16 = 6379;

/// Default time that `--pipe` waits for the last reply, in seconds.
const PIPE_TIMEOUT_SECONDS: u64 = 30;

/// The mode of operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Runs the command of the command line, or the lines of standard input if there is none.
    Commands,
    /// Runs a script from a file. The command line holds keys and arguments.
    Eval(PathBuf),
    /// Sends requests in wire format from standard input.
    Pipe {
        /// Time to wait for the last reply; `None` waits forever.
        timeout: Option<Duration>,
    },
    /// Shows the server's statistics.
    Stat,
    /// Shows the times of batches.
    Batches,
    /// Shows the duration of PING as one updated line.
    Latency,
    /// Shows the duration of PING, a line per interval.
    LatencyHistory,
    /// Shows the duration of PING as a spectrum.
    LatencyDist,
    /// Measures the machine's scheduling delays.
    IntrinsicLatency(Duration),
    /// Finds the keys with the most elements.
    BigKeys,
    /// Finds the keys that use the most memory, by MEMORY USAGE with this number of samples if given.
    MemKeys(Option<u64>),
    /// Finds the most used keys.
    HotKeys,
    /// Lists all keys.
    Scan,
    /// Writes a snapshot of the server into a file.
    Rdb(PathBuf),
    /// Prints the commands that the server sends to its replicas.
    Replica,
    /// Manages a cluster.
    Cluster(Box<ClusterOptions>),
}

/// All options.
#[derive(Clone, Debug)]
pub struct CliOptions {
    /// Address of the server.
    pub address: Address,
    /// TLS options, if the connection is encrypted.
    pub tls: Option<TlsOptions>,
    /// User name for the login.
    pub user: Option<Vec<u8>>,
    /// Password for the login, if it is known already.
    pub password: Option<Vec<u8>>,
    /// True if the password was on the command line, where all users of the machine can see it.
    pub password_is_exposed: bool,
    /// True if the program asks for the password.
    pub ask_password: bool,
    /// Client name for CLIENT LIST.
    pub client_name: Option<Vec<u8>>,
    /// Limit for establishing a connection, if given.
    pub connect_timeout: Option<Duration>,
    /// Limit for a reply; `None` waits forever.
    pub read_timeout: Option<Duration>,
    /// Initial database.
    pub db: u32,
    /// Requested protocol version: 3, or 2 to skip the request.
    pub resp: u8,
    /// True if a server without RESP3 is acceptable.
    pub resp3_is_optional: bool,
    /// Number of runs, if given; negative runs forever.
    pub repeat: Option<i64>,
    /// Pause between runs, if given.
    pub interval: Option<Duration>,
    /// True if the last argument comes from standard input.
    pub stdin_last: bool,
    /// Argument that is replaced by standard input.
    pub stdin_tag: Option<Vec<u8>>,
    /// True if arguments are quoted.
    pub quoted_input: bool,
    /// Options for printing replies.
    pub style: Style,
    /// True if the format comes from a flag, false if it depends on the kind of standard output.
    pub form_is_given: bool,
    /// True if error replies go to standard error and set the exit status.
    pub exit_error: bool,
    /// True if the client follows redirections of a cluster.
    pub follow_redirections: bool,
    /// True if push messages are printed.
    pub show_pushes: bool,
    /// Pattern for keys.
    pub pattern: Option<Vec<u8>>,
    /// The mode of operation.
    pub mode: Mode,
    /// The command and its arguments, or a script's keys and arguments.
    pub command: Vec<Vec<u8>>,
}

impl CliOptions {
    /// Returns true if commands are lines of standard input.
    pub fn reads_lines(&self) -> bool {
        self.mode == Mode::Commands && self.command.is_empty()
    }
}

/// A result of parsing other than options.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// A text that the user requested.
    Answer(String),
    /// The command line is invalid: a message for standard error.
    Wrong(String),
}

/// Inputs other than the command line.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// True if standard output is a terminal.
    pub stdout_is_terminal: bool,
    /// `REDISCLI_AUTH`.
    pub auth: Option<OsString>,
    /// True if colours are on by default.
    pub shows_colours: bool,
}

/// Parses the command line, without the words `penstock cli`.
///
/// # Errors
/// Returns [`Exit`] if the command line asks for a text or is invalid.
pub fn read(args: &[OsString], surroundings: &Surroundings) -> Result<CliOptions, Exit> {
    let flags = flags::command();
    let takes_value =
        |word: &OsStr| flags.get_arguments().any(|arg| is_spelled(arg, word) && arg.get_action().takes_values());
    let (args, words) = manager::split(args, takes_value);
    check_flags(&args)?;
    let parsed = flags::command().no_binary_name(true).try_get_matches_from(args);
    let matches = parsed.map_err(|error| wrong(&first_lines(&error)))?;
    if matches.get_flag(id::HELP) {
        return Err(help());
    }
    if matches.get_flag(id::VERSION) {
        return Err(Exit::Answer(format!("penstock cli {}", env!("CARGO_PKG_VERSION"))));
    }
    FlagReader { matches: &matches, surroundings, words: &words }.options()
}

/// Returns clap's message on one line, without its usage text.
fn first_lines(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

fn help() -> Exit {
    Exit::Answer(flags::command().render_long_help().to_string().trim_end().to_owned())
}

/// Checks the words before the command by redis-cli's rules: each is a spelled-out flag or the value of one. clap would
/// accept more, for example `-n2` or `--pattern=x`, and would split `-csv`.
fn check_flags(args: &[OsString]) -> Result<(), Exit> {
    let flags = flags::command();
    let mut args = args.iter();
    while let Some(word) = args.next().filter(|word| word.as_bytes().first() == Some(&b'-')) {
        let flag = flags.get_arguments().find(|arg| is_spelled(arg, word));
        let has_all = flag.is_some_and(|arg| !arg.get_action().takes_values() || args.next().is_some());
        match word.to_string_lossy().as_ref() {
            _ if has_all => {}
            // A -h without a host asks for help.
            "-h" => return Err(help()),
            word => return Err(wrong_flag(word)),
        }
    }
    Ok(())
}

fn is_spelled(arg: &clap::Arg, word: &OsStr) -> bool {
    let word = word.as_bytes();
    let is_long = arg.get_long().is_some_and(|long| word.strip_prefix(b"--") == Some(long.as_bytes()));
    is_long || arg.get_short().is_some_and(|short| word == format!("-{short}").as_bytes())
}

fn wrong_flag(flag: &str) -> Exit {
    match flags::REFUSED.iter().find(|(refused, _)| *refused == flag) {
        Some((_, reason)) => wrong(&format!("'{flag}' is not supported: {reason}; use redis-cli")),
        None => Exit::Wrong(format!("Unrecognized option or bad number of args for: '{flag}'")),
    }
}

fn wrong(text: &str) -> Exit {
    Exit::Wrong(format!("penstock cli: {text}"))
}

struct FlagReader<'a> {
    matches: &'a ArgMatches,
    surroundings: &'a Surroundings,
    words: &'a ClusterWords,
}

impl FlagReader<'_> {
    fn options(&self) -> Result<CliOptions, Exit> {
        self.check_conflicts()?;
        let mut uri = self.value(id::URI).map(parse_uri).transpose()?.unwrap_or_default();
        let mut options = CliOptions {
            address: self.address(&mut uri)?,
            tls: (uri.tls || self.flag(id::TLS)).then(|| self.tls_options()),
            user: self.last(id::USER, self.bytes(id::USER), uri.user.take()),
            password: None,
            password_is_exposed: false,
            ask_password: self.flag(id::ASKPASS),
            client_name: uri.client_name.take(),
            connect_timeout: uri.connect_timeout,
            read_timeout: uri.read_timeout.flatten(),
            db: self.last(id::DB, self.number(id::DB)?, uri.db).unwrap_or(0),
            resp: 2,
            resp3_is_optional: false,
            repeat: self.number(id::REPEAT)?,
            interval: self.seconds(id::INTERVAL)?,
            stdin_last: self.flag(id::STDIN_LAST),
            stdin_tag: self.bytes(id::STDIN_TAG),
            quoted_input: self.flag(id::QUOTED_INPUT),
            style: self.style(),
            form_is_given: self.given_form().is_some(),
            exit_error: self.flag(id::EXIT_ERROR),
            follow_redirections: self.flag(id::CLUSTER_MODE),
            show_pushes: self.show_pushes()?,
            pattern: self.pattern()?,
            mode: self.mode()?,
            command: self.command(),
        };
        self.set_protocol(&mut options, uri.proto);
        self.set_password(&mut options, uri.password);
        Ok(options)
    }

    fn check_conflicts(&self) -> Result<(), Exit> {
        if self.flag(id::RESP2) && self.flag(id::RESP3) {
            return Err(Exit::Wrong("Options -2 and -3 are mutually exclusive.".to_owned()));
        }
        if self.words.repeats_weights {
            let text = "WARNING: you cannot use --cluster-weight more than once.\nYou can set more weights by adding them \
                        as a space-separated list, ie:\n--cluster-weight n1=w n2=w";
            return Err(Exit::Wrong(text.to_owned()));
        }
        if self.flag(id::STDIN_LAST) && self.matches.contains_id(id::STDIN_TAG) {
            return Err(Exit::Wrong("Options -x and -X are mutually exclusive.".to_owned()));
        }
        Ok(())
    }

    fn flag(&self, id: &str) -> bool {
        self.matches.get_flag(id)
    }

    fn value(&self, id: &str) -> Option<&OsStr> {
        self.matches.get_one::<OsString>(id).map(OsString::as_os_str)
    }

    fn bytes(&self, id: &str) -> Option<Vec<u8>> {
        self.value(id).map(|value| value.as_bytes().to_vec())
    }

    fn command(&self) -> Vec<Vec<u8>> {
        let words = self.matches.get_many::<OsString>(id::COMMAND).unwrap_or_default();
        words.map(|word| word.as_bytes().to_vec()).collect()
    }

    fn number<T: std::str::FromStr>(&self, id: &str) -> Result<Option<T>, Exit> {
        let Some(value) = self.value(id) else { return Ok(None) };
        let number = value.to_str().and_then(|text| text.parse().ok());
        number.map(Some).ok_or_else(|| self.no_number(id, value))
    }

    fn no_number(&self, id: &str, value: &OsStr) -> Exit {
        let flags = flags::command();
        let arg = flags.get_arguments().find(|arg| arg.get_id() == id);
        let flag = arg.map(|arg| match (arg.get_short(), arg.get_long()) {
            (Some(short), _) => format!("-{short}"),
            (_, long) => format!("--{}", long.unwrap_or_default()),
        });
        wrong(&format!("'{}' is not a valid number for {}", value.to_string_lossy(), flag.unwrap_or_default()))
    }

    fn seconds(&self, id: &str) -> Result<Option<Duration>, Exit> {
        let Some(seconds) = self.number::<f64>(id)? else { return Ok(None) };
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Some).map_err(|_| self.no_number(id, self.value(id).unwrap_or_default()))
    }

    /// Returns the format of the last format flag.
    fn given_form(&self) -> Option<ReplyFormat> {
        let forms = [
            (id::RAW, ReplyFormat::Raw),
            (id::NO_RAW, ReplyFormat::Standard),
            (id::CSV, ReplyFormat::Csv),
            (id::JSON, ReplyFormat::Json { quoted: false }),
            (id::QUOTED_JSON, ReplyFormat::Json { quoted: true }),
        ];
        forms.into_iter().find(|(id, _)| self.flag(id)).map(|(_, form)| form)
    }

    /// Returns true if colours are requested, or are on by default.
    fn colours(&self) -> bool {
        match self.matches.get_one::<String>(id::COLOR).map(String::as_str) {
            None | Some("auto") => self.surroundings.shows_colours,
            Some(choice) => choice == "always",
        }
    }

    fn style(&self) -> Style {
        let default = if self.surroundings.stdout_is_terminal { ReplyFormat::Standard } else { ReplyFormat::Raw };
        Style {
            colours: self.colours(),
            form: self.given_form().unwrap_or(default),
            element_delimiter: self.bytes(id::ELEMENT_DELIMITER).unwrap_or_else(|| b"\n".to_vec()),
            reply_delimiter: self.bytes(id::REPLY_DELIMITER).unwrap_or_else(|| b"\n".to_vec()),
        }
    }

    fn show_pushes(&self) -> Result<bool, Exit> {
        match self.value(id::SHOW_PUSHES).map(OsStr::as_bytes) {
            None => Ok(self.surroundings.stdout_is_terminal),
            Some([b'y' | b'Y', ..]) => Ok(true),
            Some([b'n' | b'N', ..]) => Ok(false),
            Some(other) => {
                let text = String::from_utf8_lossy(other);
                Err(Exit::Wrong(format!("Unknown --show-pushes value '{text}' (valid: '[y]es', '[n]o')")))
            }
        }
    }

    fn pattern(&self) -> Result<Option<Vec<u8>>, Exit> {
        match self.bytes(id::QUOTED_PATTERN) {
            None => Ok(self.bytes(id::PATTERN)),
            Some(quoted) => unquote(&quoted)
                .filter(|_| !quoted.is_empty())
                .map(Some)
                .ok_or_else(|| Exit::Wrong("Invalid quoted string specified for --quoted-pattern.".to_owned())),
        }
    }

    fn cluster(&self, subcommand: &OsStr) -> Result<ClusterOptions, Exit> {
        let text = |id| self.value(id).map(|value| value.to_string_lossy().into_owned());
        Ok(ClusterOptions {
            subcommand: subcommand.as_bytes().to_vec(),
            args: self.words.args.clone(),
            replicas: self.number(id::CLUSTER_REPLICAS)?.unwrap_or(0),
            yes: self.flag(id::CLUSTER_YES),
            from: text(id::CLUSTER_FROM),
            to: text(id::CLUSTER_TO),
            slots: self.number(id::CLUSTER_SLOTS)?.unwrap_or(0),
            timeout_ms: self.number(id::CLUSTER_TIMEOUT)?.unwrap_or(manager::MIGRATE_TIMEOUT_MS),
            pipeline: self.number(id::CLUSTER_PIPELINE)?.unwrap_or(manager::MIGRATE_KEYS).max(1),
            threshold: self.number(id::CLUSTER_THRESHOLD)?.unwrap_or(manager::THRESHOLD_PERCENT),
            weights: self.words.weights.clone(),
            uses_empty_masters: self.flag(id::CLUSTER_USE_EMPTY_MASTERS),
            simulates: self.flag(id::CLUSTER_SIMULATE),
            replaces: self.flag(id::CLUSTER_REPLACE),
            copies: self.flag(id::CLUSTER_COPY),
            is_slave: self.flag(id::CLUSTER_SLAVE),
            master_id: text(id::CLUSTER_MASTER_ID),
            searches_owners: self.flag(id::CLUSTER_SEARCH_MULTIPLE_OWNERS),
            fixes_unreachable: self.flag(id::CLUSTER_FIX_WITH_UNREACHABLE_MASTERS),
            only_masters: self.flag(id::CLUSTER_ONLY_MASTERS),
            only_replicas: self.flag(id::CLUSTER_ONLY_REPLICAS),
            from_user: self.bytes(id::CLUSTER_FROM_USER),
            from_password: self.bytes(id::CLUSTER_FROM_PASS),
            asks_from_password: self.flag(id::CLUSTER_FROM_ASKPASS),
            is_verbose: self.flag(id::VERBOSE),
        })
    }

    fn mode(&self) -> Result<Mode, Exit> {
        // Numbers of modes that aren't asked for must be valid, too.
        let cluster = self.cluster(self.value(id::CLUSTER).unwrap_or_default())?;
        let samples = self.number(id::MEMKEYS_SAMPLES)?;
        let pipe_seconds = self.number(id::PIPE_TIMEOUT)?.unwrap_or(PIPE_TIMEOUT_SECONDS);
        let intrinsic_latency = self.seconds(id::INTRINSIC_LATENCY)?;
        if self.value(id::CLUSTER).is_some() {
            return Ok(Mode::Cluster(Box::new(cluster)));
        }
        let plain = [
            (id::LATENCY, Mode::Latency),
            (id::LATENCY_HISTORY, Mode::LatencyHistory),
            (id::LATENCY_DIST, Mode::LatencyDist),
            (id::BIGKEYS, Mode::BigKeys),
            (id::MEMKEYS, Mode::MemKeys(None)),
            (id::HOTKEYS, Mode::HotKeys),
            (id::STAT, Mode::Stat),
            (id::BATCHES, Mode::Batches),
            (id::SCAN, Mode::Scan),
            (id::REPLICA, Mode::Replica),
        ];
        if let Some(samples) = samples {
            return Ok(Mode::MemKeys(Some(samples)));
        }
        if self.flag(id::PIPE) {
            return Ok(Mode::Pipe { timeout: Some(Duration::from_secs(pipe_seconds)).filter(|wait| !wait.is_zero()) });
        }
        if let Some((_, mode)) = plain.into_iter().find(|(id, _)| self.flag(id)) {
            return Ok(mode);
        }
        if let Some(path) = self.value(id::RDB) {
            return Ok(Mode::Rdb(path.into()));
        }
        if let Some(time) = intrinsic_latency {
            return Ok(Mode::IntrinsicLatency(time));
        }
        Ok(self.value(id::EVAL).map_or(Mode::Commands, |file| Mode::Eval(file.into())))
    }

    /// Returns the address of the server.
    fn address(&self, uri: &mut Url) -> Result<Address, Exit> {
        let socket = self.value(id::SOCKET).map(PathBuf::from);
        if let Some(path) = self.last(id::SOCKET, socket, uri.socket.take()) {
            return Ok(Address::Unix(path));
        }
        let host = self.value(id::HOST).map(|host| host.to_string_lossy().into_owned());
        let host = self.last(id::HOST, host, uri.host.take()).unwrap_or_else(|| HOST.to_owned());
        let port = self.last(id::PORT, self.number(id::PORT)?, uri.port).unwrap_or(PORT);
        Ok(Address::Tcp { host, port })
    }

    /// Returns the value of a flag or of the URI: the last one on the command line counts.
    fn last<T>(&self, id: &str, flag: Option<T>, uri: Option<T>) -> Option<T> {
        let flag_is_last = self.matches.index_of(id) > self.matches.index_of(id::URI);
        if flag_is_last { flag.or(uri) } else { uri.or(flag) }
    }

    fn tls_options(&self) -> TlsOptions {
        let file = |id| self.value(id).map(PathBuf::from);
        TlsOptions {
            ca_file: file(id::CACERT),
            cert_file: file(id::CERT),
            key_file: file(id::KEY),
            server_name: self.value(id::SNI).map(|name| name.to_string_lossy().into_owned()),
            insecure: self.flag(id::INSECURE),
        }
    }

    fn set_protocol(&self, options: &mut CliOptions, uri: Option<Proto>) {
        let (id, flag) = match (self.flag(id::RESP2), self.flag(id::RESP3)) {
            (true, _) => (id::RESP2, Some(Proto::Resp2)),
            (_, true) => (id::RESP3, Some(Proto::Resp3)),
            _ => (id::RESP3, None),
        };
        let given = self.last(id, flag, uri);
        let wants_types = matches!(options.style.form, ReplyFormat::Json { .. });
        if given == Some(Proto::Resp3) || (wants_types && given.is_none()) {
            options.resp = 3;
            options.resp3_is_optional = given.is_none();
        }
    }

    fn set_password(&self, options: &mut CliOptions, uri: Option<Vec<u8>>) {
        let id = if self.matches.contains_id(id::PASS) { id::PASS } else { id::PASSWORD };
        let given = self.last(id, self.bytes(id), uri);
        options.password_is_exposed = given.is_some() && !self.flag(id::NO_AUTH_WARNING);
        if !options.ask_password {
            let auth = || self.surroundings.auth.clone().map(OsString::into_vec).filter(|auth| !auth.is_empty());
            options.password = given.or_else(auth);
        }
    }
}

fn parse_uri(uri: &OsStr) -> Result<Url, Exit> {
    const SCHEMES: [&str; 3] = ["redis", "valkey", "unix"];
    let Some(text) = uri.to_str() else { return Err(wrong("the URI is not UTF-8; write other bytes as %xx")) };
    if !SCHEMES.iter().any(|scheme| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))) {
        return Err(Exit::Wrong("Invalid URI scheme".to_owned()));
    }
    Url::parse(text).map_err(|error| wrong(&error.to_string()))
}

#[cfg(test)]
mod tests;
