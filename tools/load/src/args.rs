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

const ABOUT: &str = "Load many commands into a server: fast, resumable, with a report of every error.

Each FILE contains commands: one per line in redis-cli's syntax, or in the Redis protocol (RESP), or both mixed. \
A template converts the records of CSV, JSON lines and JSON arrays to commands. Inputs are loaded in the order of the command line; without any, \
standard input is loaded. Files compressed with gzip or zstd are decompressed. Commands are executed in order, in \
chunks: the next chunk is sent while the replies to the previous one arrive.";

const AFTER: &str = "Templates:
  {name}         the column or JSON member of this name; {2} is the second
                 column, {a.b} a member of a member, {tags.0} an element of a
                 JSON array, {.} the whole JSON line
  {name:-text}   the same, or this text if it is missing, null or empty
  {{ and }}      braces
  Further templates may follow the first one: each makes a command of every record.

Examples:
  penstock load commands.txt
      Load commands into the server on this machine.
  seq 1000000 | sed 's/.*/SET key:& &/' | penstock load -h db.example.com -a secret
      Load the output of another program.
  penstock load --csv movies.csv 'ZADD movies {year} {title}'
      Load a command for each record of a CSV file with a header line.
  penstock load --json-lines movies.jsonl.gz 'HSET movie:{id} title {title} year {year:-unknown}'
      Load a command for each object of a compressed file.
  penstock load --json movies.json 'HSET movie:{id} title {title}' 'ZADD years {year} {id}'
      Load two commands for each element of a JSON array.
  penstock load --dry-run --csv movies.csv 'ZADD movies {year} {title}'
      Find the invalid lines without sending anything.
  penstock load --errors failed.txt --resume huge.txt.zst
      Write errors to a file. If the connection breaks or the loader is killed,
      the same command line continues, and no line is executed twice. Needs a
      server with the command PIPELINE: Penstock.
  penstock load --cluster -h node1 --resume huge.txt
      Load into the nodes of a cluster. Any server will do: while the load
      lasts, each slot has a key that says how far it is.

Exit status:
  0  everything was executed, and no command failed
  1  some commands failed, lines were invalid, or a transaction has no end; each was reported
  2  the command line is wrong, or its template doesn't fit the input
  3  an input can't be read, or only up to some place
  4  the server can't be reached, refuses the login, or the connection broke
  5  the report of errors, or the state for --resume, can't be written
  6  --resume is not possible: the server has no PIPELINE, or the inputs were changed
  130  interrupted by Ctrl-C or SIGTERM, after the replies to all sent commands unless they took too long";

/// Command line arguments, as parsed by clap.
#[derive(Debug, Parser)]
#[command(
    name = "penstock load",
    bin_name = "penstock load",
    version,
    about = "Load many commands, continue after a break, report each error",
    long_about = ABOUT,
    after_help = AFTER,
    disable_help_flag = true,
    // The last one counts, as in redis-cli: a shell alias may already contain flags.
    args_override_self = true,
    max_term_width = 100,
)]
struct Args {
    /// Commands to load; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<OsString>,
    /// Convert the records of a CSV file to commands
    #[arg(long, num_args = 2, value_names = ["FILE", "TEMPLATE"], action = ArgAction::Append, allow_hyphen_values = true, value_hint = ValueHint::FilePath, help_heading = "Input")]
    csv: Vec<OsString>,
    /// Convert JSON objects, one per line, to commands
    #[arg(long, num_args = 2, value_names = ["FILE", "TEMPLATE"], action = ArgAction::Append, allow_hyphen_values = true, value_hint = ValueHint::FilePath, help_heading = "Input")]
    json_lines: Vec<OsString>,
    /// Convert the elements of a JSON array to commands
    #[arg(long, num_args = 2, value_names = ["FILE", "TEMPLATE"], action = ArgAction::Append, allow_hyphen_values = true, value_hint = ValueHint::FilePath, help_heading = "Input")]
    json: Vec<OsString>,
    /// Field separator of CSV files: a character, or \t
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = delimiter, help_heading = "Input")]
    delimiter: u8,
    /// CSV files have no header line; columns are {1}, {2}...
    #[arg(long, help_heading = "Input")]
    no_header: bool,
    /// Maximum size of a command, line or record
    #[arg(long, value_name = "BYTES", default_value = "64mb", value_parser = size, help_heading = "Input")]
    max_command: usize,

    /// Name or address of the server
    #[arg(short = 'h', long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// Port of the server
    #[arg(short, long, value_name = "PORT", default_value_t = 6379, help_heading = "Server")]
    port: u16,
    /// Unix socket of the server; takes precedence over host and port
    #[arg(short, long, value_name = "PATH", help_heading = "Server")]
    socket: Option<PathBuf>,
    /// URL of the server: redis://user:password@host:port/db, rediss:// for TLS, or unix:///path; takes precedence over
    /// host, port and socket
    #[arg(short, long, value_name = "URL", help_heading = "Server")]
    url: Option<String>,
    /// User name for the login
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    user: Option<String>,
    /// Password for the login; the default is the environment variable REDISCLI_AUTH
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD", help_heading = "Server")]
    password: Option<OsString>,
    /// Number of the database
    #[arg(short = 'n', long, value_name = "NUMBER", help_heading = "Server")]
    db: Option<u32>,
    /// Use RESP3
    #[arg(short = '3', long = "resp3", help_heading = "Server")]
    resp3: bool,
    /// Encrypt the connection
    #[arg(long, help_heading = "Server")]
    tls: bool,
    /// Host name to expect in the server's certificate
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    sni: Option<String>,
    /// CA certificates (PEM), instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    cacert: Option<PathBuf>,
    /// Accept any certificate
    #[arg(long, help_heading = "Server")]
    insecure: bool,
    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    cert: Option<PathBuf>,
    /// Key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    key: Option<PathBuf>,
    /// Load into a cluster: each command goes to the node with its key's slot
    #[arg(long, help_heading = "Server")]
    cluster: bool,
    /// Maximum time without a reply from the server; 0: unlimited
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Server")]
    timeout: u64,

    /// Number of commands that are sent together; at most two chunks are unanswered
    #[arg(long, value_name = "COMMANDS", default_value_t = CHUNK_COMMANDS, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Loading")]
    chunk: u64,
    /// Send every command unchanged and in the input's order; by default runs of SET, and of HSET, SADD, RPUSH, LPUSH
    /// or ZADD on one key, are sent as one MSET, HSET..., and ZADDs in the order of their scores, with the same effect
    /// on the data
    #[arg(long, help_heading = "Loading")]
    no_merge: bool,
    /// Parse all inputs without sending anything
    #[arg(long, help_heading = "Loading")]
    dry_run: bool,
    /// Write errors to a file instead of standard error
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    errors: Option<PathBuf>,
    /// Stop sending after the first error
    #[arg(long, help_heading = "Loading")]
    stop_on_error: bool,
    /// Show no progress and no summary
    #[arg(short, long, help_heading = "Loading")]
    quiet: bool,

    /// Continue after a broken connection, or after an earlier loader that was killed
    #[arg(long, conflicts_with = "dry_run", help_heading = "Resuming")]
    resume: bool,
    /// File for the state of the load; by default a file under ~/.local/state/penstock
    #[arg(long, value_name = "FILE", requires = "resume", help_heading = "Resuming")]
    state: Option<PathBuf>,
    /// Ignore an earlier run of this load and start again
    #[arg(long, requires = "resume", help_heading = "Resuming")]
    restart: bool,
    /// Time that the server keeps the state of the load while no loader is connected
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)), help_heading = "Resuming")]
    ttl: u64,
    /// Time limit for reconnecting after a broken connection
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Resuming")]
    retry: u64,

    /// Print this help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Options of a load.
#[derive(Debug)]
pub struct LoadOptions {
    /// The inputs.
    pub plan: Plan,
    /// Configuration of the server.
    pub config: Config,
    /// Number of commands in a chunk.
    pub chunk: u64,
    /// True if runs of commands are merged.
    pub merge: bool,
    /// True if the server is a node of a cluster.
    pub cluster: bool,
    /// True if the inputs are only parsed.
    pub dry_run: bool,
    /// File for errors; `None` is standard error.
    pub errors: Option<PathBuf>,
    /// True if the load ends at the first error.
    pub stop_on_error: bool,
    /// True if only errors are shown.
    pub quiet: bool,
    /// Maximum time without a reply.
    pub silence_max: Option<Duration>,
    /// Options of `--resume`.
    pub resume: Option<ResumeOptions>,
}

/// Options of `--resume`.
#[derive(Debug)]
pub struct ResumeOptions {
    /// File for the state, if given.
    pub state: Option<PathBuf>,
    /// True if an earlier run is ignored.
    pub restart: bool,
    /// Time that the server keeps the token, in seconds.
    pub ttl_s: u64,
    /// Time limit for reconnecting.
    pub retry: Duration,
}

/// Returns the definition of the command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Args::command()
}

/// Parses the command line. `args` excludes the names of the program and the tool.
///
/// # Errors
/// Returns clap's error. Requests for help and the version are errors, too.
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
        cluster: args.cluster,
        dry_run: args.dry_run,
        errors: args.errors,
        stop_on_error: args.stop_on_error,
        quiet: args.quiet,
        silence_max,
        resume,
    })
}

/// An input, with the place of its last word on the command line.
struct Placed {
    at: usize,
    source: Source,
}

/// Returns the inputs in the order of the command line.
fn plan(args: &Args, matches: &ArgMatches) -> Plan {
    let dialect = Dialect { delimiter: args.delimiter, has_header: !args.no_header };
    let positions = |name: &str| matches.indices_of(name).map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let with_template = |values: &[OsString], name: &str, content: &dyn Fn(Vec<Vec<u8>>) -> Content| {
        let pairs = positions(name).into_iter().skip(1).step_by(2).zip(values.chunks_exact(2));
        let source = |pair: &[OsString]| Source {
            origin: origin(&pair[0]),
            content: content(vec![pair[1].as_bytes().to_vec()]),
        };
        pairs.map(|(at, pair)| Placed { at, source: source(pair) }).collect::<Vec<_>>()
    };
    let mut placed = with_template(&args.csv, "csv", &|templates| Content::Csv(templates, dialect));
    placed.extend(with_template(&args.json_lines, "json_lines", &Content::JsonLines));
    placed.extend(with_template(&args.json, "json", &Content::JsonArray));
    // Files come after the templates that they might be.
    for (at, file) in positions("files").into_iter().zip(&args.files) {
        let before = placed.iter_mut().find(|placed| placed.at + 1 == at && placed.source.content != Content::Commands);
        match before.filter(|_| is_template(file)) {
            Some(before) => {
                before.source.add_template(file.as_bytes().to_vec());
                before.at = at;
            }
            None => placed.push(Placed { at, source: Source { origin: origin(file), content: Content::Commands } }),
        }
    }
    placed.sort_by_key(|placed| placed.at);
    let mut sources: Vec<_> = placed.into_iter().map(|placed| placed.source).collect();
    if sources.is_empty() {
        sources.push(Source { origin: Origin::Stdin, content: Content::Commands });
    }
    Plan { sources, command_bytes_max: args.max_command }
}

/// Returns true for a word that is a template if it follows one: it has a field and a blank.
fn is_template(word: &OsString) -> bool {
    let has = |byte: u8| word.as_bytes().contains(&byte);
    has(b'{') && has(b' ')
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
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}

/// Parses a size in the notation of redis.conf.
fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).ok_or("expected a number of bytes, for example 100mb")?;
    let allowed = usize::try_from(bytes).ok().filter(|bytes| (1..=COMMAND_BYTES_MOST).contains(bytes));
    allowed.ok_or_else(|| format!("expected 1 to {COMMAND_BYTES_MOST} bytes"))
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
        assert_eq!(options.plan.sources[1].content, Content::Csv(vec![b"SET {x} 1".to_vec()], dialect));
        assert_eq!(options.plan.sources[3].content, Content::JsonLines(vec![b"-{y}".to_vec()]));
        assert_eq!(parsed(&[]).plan.names(), ["stdin"]);
    }

    #[test]
    fn templates_may_follow_a_template() {
        let plan =
            parsed(&["--json", "a", "SET {x} 1", "DEL {y}", "INCR {z}", "b", "GET {x}", "--csv", "c", "T {z}"]).plan;
        assert_eq!(plan.names(), ["a", "b", "GET {x}", "c"]);
        let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(plan.sources[0].content, Content::JsonArray(texts(&["SET {x} 1", "DEL {y}", "INCR {z}"])));
        assert_eq!(plan.sources[1].content, Content::Commands);
        let plan = parsed(&["--csv", "c", "T {z}", "U {z}", "--json-lines", "d", "V {z}", "{file}"]).plan;
        assert_eq!(plan.names(), ["c", "d", "{file}"]);
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
