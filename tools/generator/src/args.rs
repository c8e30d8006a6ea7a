//! The arguments of `penstock bench`.

use std::ffi::OsString;

use clap::{ArgAction, Args, Parser, Subcommand};
use client::{Address, Config, Proto, TlsOptions};

use crate::failure::Failure;
use crate::pipelining::PipeliningArgs;

/// Measures how fast a server answers, as redis-benchmark does.
///
/// Without a command it runs redis-benchmark's tests (or those that -t names); with one, that command. In a command,
/// __rand_int__ stands for a random number of 12 digits below what -r says, and __data__ for the data of -d bytes.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "penstock bench",
    version,
    disable_help_flag = true,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "EXPERIMENT",
    // The last one counts, as with redis-benchmark: an alias may hold some.
    args_override_self = true,
    after_help = EXAMPLES
)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub experiment: Option<ExperimentCommand>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Parallel connections.
    #[arg(short = 'c', value_name = "CLIENTS", default_value_t = 50, value_parser = positive)]
    pub clients: u64,
    /// Requests in all.
    #[arg(short = 'n', value_name = "REQUESTS", default_value_t = 100_000, value_parser = positive)]
    pub requests: u64,
    /// Bytes of a value in SET, GET and the like.
    #[arg(short = 'd', value_name = "SIZE", default_value_t = 3)]
    pub data_bytes: usize,
    /// 1: connections are kept; 0: a new one for every request.
    #[arg(short = 'k', value_name = "BOOLEAN", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub keep_alive: u8,
    /// Random keys, members and scores below this number; without it all requests use the same.
    #[arg(short = 'r', value_name = "KEYSPACE", value_parser = positive)]
    pub keyspace: Option<u64>,
    /// Requests of one connection that wait for replies at a time.
    #[arg(short = 'P', value_name = "DEPTH", default_value_t = 1, value_parser = positive)]
    pub depth: u64,
    /// Tests to run, as a list such as ping,set,get; ignored where a command is given.
    #[arg(short = 't', value_name = "TESTS")]
    pub tests: Option<String>,
    /// Only requests a second and the median.
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Run the tests for ever.
    #[arg(short = 'l')]
    pub forever: bool,
    /// Error replies are counted and shown (one a second, and one at the end) instead of ending the run.
    #[arg(short = 'e')]
    pub show_errors: bool,
    /// Opens the connections, sends nothing and waits, until Ctrl-C or until the server closes or refuses one.
    #[arg(short = 'I')]
    pub idle: bool,
    /// The command's last argument is read from standard input.
    #[arg(short = 'x')]
    pub last_from_stdin: bool,
    /// Comma-separated values, redis-benchmark's columns.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// One JSON document, for programs.
    #[arg(long)]
    pub json: bool,
    /// Threads of the generator; they share the connections.
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = threads)]
    pub threads: u64,
    /// Decimal places of latencies, in milliseconds.
    #[arg(long, value_name = "PLACES", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub precision: u8,
    /// Requests a second, by the clock and not by the replies; latencies count from when a request was due, so that a
    /// server that stalls can't hide it.
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true, value_parser = rate)]
    pub rate: Option<f64>,
    /// Where random numbers begin; the same seed gives the same keys, however many connections and threads there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Show this help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// A command to measure instead of the tests.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// The word that asks for the experiments on pipelining.
pub const PIPELINING: &str = "pipelining";

/// The experiments beside plain load.
#[derive(Subcommand, Clone, Debug)]
pub enum ExperimentCommand {
    #[command(name = PIPELINING)]
    Pipelining(PipeliningArgs),
}

/// Where the server is, and the user to log in as.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// The server's host.
    #[arg(short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// The server's port.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 6379)]
    pub port: u16,
    /// The server's Unix socket, instead of host and port.
    #[arg(short = 's', value_name = "SOCKET", conflicts_with = "url")]
    pub socket: Option<std::path::PathBuf>,
    /// The server's URL: redis://user:password@host:port/db, rediss:// with TLS, or unix:///path.
    #[arg(short = 'u', value_name = "URL")]
    pub url: Option<String>,
    /// Password.
    #[arg(short = 'a', value_name = "PASSWORD")]
    pub password: Option<String>,
    /// User name; needs -a.
    #[arg(long, value_name = "USER", requires = "password")]
    pub user: Option<String>,
    /// Database.
    #[arg(long, value_name = "NUMBER")]
    pub dbnum: Option<u32>,
    /// RESP3.
    #[arg(short = '3')]
    pub resp3: bool,
    /// Encrypt the connections.
    #[arg(long)]
    pub tls: bool,
    /// Name to find in the server's certificate, instead of the host's.
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Authorities' certificates (PEM), instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<std::path::PathBuf>,
    /// Accept any certificate.
    #[arg(long)]
    pub insecure: bool,
    /// Our own certificate (PEM), for servers that ask for one.
    #[arg(long, value_name = "FILE")]
    pub cert: Option<std::path::PathBuf>,
    /// The key to it (PEM).
    #[arg(long, value_name = "FILE")]
    pub key: Option<std::path::PathBuf>,
}

/// Threads of the generator at most, as in redis-benchmark.
const THREADS_MAX: u64 = 500;
/// Requests a second at least and at most: one in 17 minutes, and one per nanosecond, the unit of the schedule.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1e9;

const EXAMPLES: &str = "\
Examples:
  penstock bench -q                                      all tests, one line each
  penstock bench -t set,get -n 1000000 -r 1000000 -P 16  a million keys, pipelines of 16
  penstock bench -r 10000 LPUSH mylist __rand_int__      a command of one's own
  penstock bench --rate 20000 -n 200000 GET key          latency at 20,000 requests a second
  penstock bench --json -t get | jq '.tests[0].requests_per_second'

Exit status: 0 all went well; 1 the server can't be reached, refused or broke off; 2 wrong arguments; 130 Ctrl-C.";

impl ServerArgs {
    /// The server that the arguments name.
    pub fn config(&self) -> Result<Config, Failure> {
        let mut config = match (&self.url, &self.socket) {
            (Some(url), _) => Config::parse(url)?,
            (None, Some(path)) => Config::unix(path),
            (None, None) => Config::tcp(&self.host, self.port),
        };
        config.tls |= self.tls;
        if config.tls && matches!(config.address, Address::Unix(_)) {
            return Err(Failure::Usage("a Unix socket is not encrypted: leave --tls away".to_owned()));
        }
        config.tls_options = TlsOptions {
            ca_file: self.cacert.clone(),
            cert_file: self.cert.clone(),
            key_file: self.key.clone(),
            server_name: self.sni.clone(),
            insecure: self.insecure,
        };
        if let Some(password) = &self.password {
            config.password = Some(password.clone().into_bytes());
            config.user = self.user.clone().map(String::into_bytes);
        }
        config.db = self.dbnum.unwrap_or(config.db);
        if self.resp3 {
            config.proto = Proto::Resp3;
        }
        Ok(config)
    }
}

fn threads(text: &str) -> Result<u64, String> {
    let number = positive(text).ok().filter(|number| *number <= THREADS_MAX);
    number.ok_or_else(|| format!("it must be a whole number from 1 to {THREADS_MAX}"))
}

/// A number above zero.
pub fn positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|&number: &u64| number > 0).ok_or_else(|| "it must be a whole number above 0".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (RATE_MIN..=RATE_MAX).contains(number));
    number.ok_or_else(|| format!("it must be a number from {RATE_MIN} to {RATE_MAX}"))
}
