//! The command line of `penstock load`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, ValueHint};
use client::{Address, Config, Proto, TlsOptions};
use resp::num::parse_bytes;

use crate::exit::{Exit, Failure};
use crate::format::csv::Dialect;
use crate::limits::{CHUNK_COMMANDS, COMMAND_BYTES_MOST};
use crate::plan::{Content, Plan, Source};
use crate::source::Origin;

const ABOUT: &str = "Load many commands into a server: fast, with every error reported, resumable.

Each FILE holds commands, one a line as one would type them in redis-cli, or in the Redis protocol (RESP), or both mixed. \
CSV and JSON lines become commands by a template. Inputs are loaded in the order in which they are named; without any, \
standard input is. Files that begin like gzip or zstd are decompressed. Commands are executed in order, in \
chunks: the next chunk is sent while the replies to the one before arrive.";

const AFTER: &str = "Templates:
  {name}         the column or JSON member of this name; {2} is the second
                 column, {a.b} a member of a member, {tags.0} an element of a
                 JSON array, {.} the whole JSON line
  {name:-text}   with a text for where it is missing, null or empty
  {{ and }}      braces

Examples:
  penstock load commands.txt
      Load commands into the server on this machine.
  seq 1000000 | sed 's/.*/SET key:& &/' | penstock load -h db.example.com -a secret
      Load what another program writes.
  penstock load --csv movies.csv 'ZADD movies {year} {title}'
      A command for each record of a CSV file, whose first line names the columns.
  penstock load --json-lines movies.jsonl.gz 'HSET movie:{id} title {title} year {year:-unknown}'
      A command for each object of a compressed file.
  penstock load --dry-run --csv movies.csv 'ZADD movies {year} {title}'
      Only find out which lines are no commands.
  penstock load --errors failed.txt --resume huge.txt.zst
      Write errors to a file. If the connection breaks or the loader is killed,
      the same command line goes on, and no line is executed twice. Needs a
      server that has PIPELINE, such as Penstock.

Exit status:
  0  everything was executed, and no command failed
  1  some commands failed, lines were no commands, or a transaction has no end; each was reported
  2  the command line is wrong, or its template doesn't fit the input
  3  an input can't be read, or not any further
  4  the server can't be reached, refuses the login, or the connection broke
  5  the report of errors, or the state for --resume, can't be written
  6  --resume is not possible: no PIPELINE on the server, or the inputs were changed
  130  interrupted by Ctrl-C or SIGTERM; what had been sent was answered, unless it took too long";

/// What the user asked for, as clap reads it.
#[derive(Debug, Parser)]
#[command(
    name = "penstock load",
    bin_name = "penstock load",
    version,
    about = "Load many commands: fast, every error reported, resumable",
    long_about = ABOUT,
    after_help = AFTER,
    disable_help_flag = true,
    // The last one counts, as with redis-cli: an alias may hold some.
    args_override_self = true,
    max_term_width = 100,
)]
struct Args {
    /// Commands to load; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<OsString>,
    /// Make commands of the records of a CSV file
    #[arg(long, num_args = 2, value_names = ["FILE", "TEMPLATE"], action = ArgAction::Append, allow_hyphen_values = true, value_hint = ValueHint::FilePath, help_heading = "Input")]
    csv: Vec<OsString>,
    /// Make commands of a file of JSON objects, one a line
    #[arg(long, num_args = 2, value_names = ["FILE", "TEMPLATE"], action = ArgAction::Append, allow_hyphen_values = true, value_hint = ValueHint::FilePath, help_heading = "Input")]
    json_lines: Vec<OsString>,
    /// What separates the fields of CSV files: a character, or \t
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = delimiter, help_heading = "Input")]
    delimiter: u8,
    /// The first line of CSV files is a record; columns are {1}, {2}...
    #[arg(long, help_heading = "Input")]
    no_header: bool,
    /// Largest command, line or record
    #[arg(long, value_name = "BYTES", default_value = "64mb", value_parser = size, help_heading = "Input")]
    max_command: usize,

    /// The server's name or address
    #[arg(short = 'h', long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// The server's port
    #[arg(short, long, value_name = "PORT", default_value_t = 6379, help_heading = "Server")]
    port: u16,
    /// The server's Unix socket; it goes before host and port
    #[arg(short, long, value_name = "PATH", help_heading = "Server")]
    socket: Option<PathBuf>,
    /// The server as a URL, which goes before all of these: redis://user:password@host:port/db, rediss:// with TLS, or
    /// unix:///path
    #[arg(short, long, value_name = "URL", help_heading = "Server")]
    url: Option<String>,
    /// User that logs in
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    user: Option<String>,
    /// The password; without it, the environment variable REDISCLI_AUTH
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD", help_heading = "Server")]
    password: Option<OsString>,
    /// The database
    #[arg(short = 'n', long, value_name = "NUMBER", help_heading = "Server")]
    db: Option<u32>,
    /// Speak RESP3
    #[arg(short = '3', long = "resp3", help_heading = "Server")]
    resp3: bool,
    /// Encrypt the connection
    #[arg(long, help_heading = "Server")]
    tls: bool,
    /// Name to find in the server's certificate, instead of the host's
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    sni: Option<String>,
    /// Authorities' certificates (PEM), instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    cacert: Option<PathBuf>,
    /// Accept any certificate
    #[arg(long, help_heading = "Server")]
    insecure: bool,
    /// Our own certificate (PEM), for servers that ask for one
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    cert: Option<PathBuf>,
    /// The key to it (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    key: Option<PathBuf>,
    /// How long the server may be silent while replies are awaited; 0: for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Server")]
    timeout: u64,

    /// Commands that are sent together; two chunks may be unanswered
    #[arg(long, value_name = "COMMANDS", default_value_t = CHUNK_COMMANDS, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Loading")]
    chunk: u64,
    /// Send every command as and where it stands; otherwise runs of SET, and of HSET, SADD, RPUSH, LPUSH or ZADD on one
    /// key, are sent as one MSET, HSET..., and ZADDs in the order of their scores, where that changes nothing but the
    /// speed
    #[arg(long, help_heading = "Loading")]
    no_merge: bool,
    /// Parse everything, send nothing
    #[arg(long, help_heading = "Loading")]
    dry_run: bool,
    /// Write errors to a file instead of standard error
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    errors: Option<PathBuf>,
    /// Send nothing more after the first error
    #[arg(long, help_heading = "Loading")]
    stop_on_error: bool,
    /// Show no progress and no summary
    #[arg(short, long, help_heading = "Loading")]
    quiet: bool,

    /// Go on after a broken connection, and where a loader that was killed has stopped
    #[arg(long, conflicts_with = "dry_run", help_heading = "Resuming")]
    resume: bool,
    /// Where the state of the load is kept while it lasts; by default a file under ~/.local/state/penstock
    #[arg(long, value_name = "FILE", requires = "resume", help_heading = "Resuming")]
    state: Option<PathBuf>,
    /// Forget an earlier run of this load and begin anew
    #[arg(long, requires = "resume", help_heading = "Resuming")]
    restart: bool,
    /// How long the server remembers the load while no loader is connected
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)), help_heading = "Resuming")]
    ttl: u64,
    /// How long to try for another connection when one breaks
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Resuming")]
    retry: u64,

    /// Print this help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What the user asked for.
#[derive(Debug)]
pub struct LoadOptions {
    /// The inputs.
    pub plan: Plan,
    /// The server.
    pub config: Config,
    /// Commands of a chunk.
    pub chunk: u64,
    /// Send runs of commands as one.
    pub merge: bool,
    /// Only parse.
    pub dry_run: bool,
    /// Where errors are written to; none: standard error.
    pub errors: Option<PathBuf>,
    /// End at the first error.
    pub stop_on_error: bool,
    /// Show nothing but errors.
    pub quiet: bool,
    /// How long the server may be silent.
    pub silence_max: Option<Duration>,
    /// `--resume` and what belongs to it.
    pub resume: Option<ResumeOptions>,
}

/// What `--resume` is told.
#[derive(Debug)]
pub struct ResumeOptions {
    /// Where the state is kept, if the user says so.
    pub state: Option<PathBuf>,
    /// Whether an earlier run is forgotten.
    pub restart: bool,
    /// How long the server keeps the token, in seconds.
    pub ttl_s: u64,
    /// How long to try for another connection when one breaks.
    pub retry: Duration,
}

/// The command line's definition, for manual pages and completions.
pub fn command() -> clap::Command {
    Args::command()
}

/// Reads the command line, without the program's and the tool's name.
///
/// # Errors
/// clap's: help and version are among them.
pub fn parse(args: Vec<OsString>) -> Result<Result<LoadOptions, Failure>, clap::Error> {
    let argv = std::iter::once(OsString::from("penstock load")).chain(args);
    let matches = command().try_get_matches_from(argv)?;
    let args = Args::from_arg_matches(&matches)?;
    Ok(options(args, &matches))
}

fn options(args: Args, matches: &ArgMatches) -> Result<LoadOptions, Failure> {
    let resume = args.resume.then(|| ResumeOptions {
        state: args.state.clone(),
        restart: args.restart,
        ttl_s: args.ttl,
        retry: Duration::from_secs(args.retry),
    });
    let silence_max = (args.timeout > 0).then(|| Duration::from_secs(args.timeout));
    Ok(LoadOptions {
        config: config(&args, silence_max)?,
        plan: plan(&args, matches),
        chunk: args.chunk,
        merge: !args.no_merge,
        dry_run: args.dry_run,
        errors: args.errors,
        stop_on_error: args.stop_on_error,
        quiet: args.quiet,
        silence_max,
        resume,
    })
}

/// The inputs in the order of the command line.
fn plan(args: &Args, matches: &ArgMatches) -> Plan {
    let dialect = Dialect { delimiter: args.delimiter, has_header: !args.no_header };
    let mut sources = Vec::new();
    let positions = |name: &str| matches.indices_of(name).map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    for (at, file) in positions("files").into_iter().zip(&args.files) {
        sources.push((at, Source { origin: origin(file), content: Content::Commands }));
    }
    let with_template = |values: &[OsString], name: &str, content: &dyn Fn(Vec<u8>) -> Content| {
        let pairs = positions(name).into_iter().step_by(2).zip(values.chunks_exact(2));
        let source =
            |pair: &[OsString]| Source { origin: origin(&pair[0]), content: content(pair[1].as_bytes().to_vec()) };
        pairs.map(|(at, pair)| (at, source(pair))).collect::<Vec<_>>()
    };
    sources.extend(with_template(&args.csv, "csv", &|template| Content::Csv(template, dialect)));
    sources.extend(with_template(&args.json_lines, "json_lines", &Content::JsonLines));
    sources.sort_by_key(|(at, _)| *at);
    let mut sources: Vec<_> = sources.into_iter().map(|(_, source)| source).collect();
    if sources.is_empty() {
        sources.push(Source { origin: Origin::Stdin, content: Content::Commands });
    }
    Plan { sources, command_bytes_max: args.max_command }
}

fn origin(file: &OsString) -> Origin {
    if file == "-" { Origin::Stdin } else { Origin::File(PathBuf::from(file)) }
}

fn config(args: &Args, silence_max: Option<Duration>) -> Result<Config, Failure> {
    let mut config = match (&args.url, &args.socket) {
        (Some(url), _) => Config::parse(url).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?,
        (None, Some(path)) => Config::unix(path),
        (None, None) => Config::tcp(&args.host, args.port),
    };
    config.tls |= args.tls;
    if config.tls && matches!(config.address, Address::Unix(_)) {
        return Err(Failure::new(Exit::Usage, "a Unix socket is not encrypted: leave --tls away"));
    }
    config.tls_options = TlsOptions {
        ca_file: args.cacert.clone(),
        cert_file: args.cert.clone(),
        key_file: args.key.clone(),
        server_name: args.sni.clone(),
        insecure: args.insecure,
    };
    let from_environment = || std::env::var_os("REDISCLI_AUTH").filter(|password| !password.is_empty());
    if let Some(password) = args.password.clone().or_else(|| config.password.is_none().then(from_environment)?) {
        config.password = Some(password.into_vec());
    }
    if let Some(user) = &args.user {
        config.user = Some(user.clone().into_bytes());
    }
    config.db = args.db.unwrap_or(config.db);
    if args.resp3 {
        config.proto = Proto::Resp3;
    }
    config.fallback_name = Some(b"penstock-load".to_vec());
    config.read_timeout = silence_max;
    config.write_timeout = silence_max;
    Ok(config)
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("one character of ASCII, or \\t".to_owned()),
    }
}

/// A size as redis.conf writes it.
fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).ok_or("a number of bytes, such as 100mb")?;
    let allowed = usize::try_from(bytes).ok().filter(|bytes| (1..=COMMAND_BYTES_MOST).contains(bytes));
    allowed.ok_or_else(|| format!("between 1 and {COMMAND_BYTES_MOST} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> LoadOptions {
        parse(args.iter().map(OsString::from).collect()).unwrap().unwrap()
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn inputs_keep_their_order() {
        let options =
            parsed(&["a", "--csv", "b", "SET {x} 1", "c", "--json-lines", "-", "-{y}", "--csv", "d", "T {z}"]);
        let dialect = Dialect { delimiter: b',', has_header: true };
        let names: Vec<_> = options.plan.names();
        assert_eq!(names, ["a", "b", "c", "stdin", "d"]);
        assert_eq!(options.plan.sources[1].content, Content::Csv(b"SET {x} 1".to_vec(), dialect));
        assert_eq!(options.plan.sources[3].content, Content::JsonLines(b"-{y}".to_vec()));
        assert_eq!(parsed(&[]).plan.names(), ["stdin"]);
    }

    #[test]
    fn the_server_is_named_as_in_redis_cli() {
        let config = parsed(&["-h", "example", "-p", "7000", "-a", "x", "-n", "3", "--user", "u"]).config;
        assert_eq!(config.address.to_string(), "example:7000");
        assert_eq!((config.password, config.user, config.db), (Some(b"x".to_vec()), Some(b"u".to_vec()), 3));
        let config = parsed(&["-u", "redis://u:y@example:7001/4"]).config;
        assert_eq!(
            (config.address.to_string(), config.password, config.db),
            ("example:7001".into(), Some(b"y".to_vec()), 4)
        );
        assert_eq!(parsed(&["-s", "/tmp/x"]).config.address.to_string(), "/tmp/x");
    }

    #[test]
    fn sizes_are_those_of_the_configuration() {
        assert_eq!(size("100"), Ok(100));
        assert_eq!((size("2k"), size("2KB"), size("1gb")), (Ok(2000), Ok(2048), Ok(1 << 30)));
        assert!(size("").is_err() && size("x").is_err() && size("3gb").is_err() && size("0").is_err());
    }
}
