//! The arguments of `penstock bench`.

use std::ffi::OsString;

use clap::{ArgAction, Args, Parser, Subcommand};
use client::{Address, Config, Proto, TlsOptions};

use crate::failure::Failure;
use crate::generator::Distribution;
use crate::pipelining::PipeliningArgs;

/// Measure the speed of a server with redis-benchmark's flags.
///
/// Without a command it runs redis-benchmark's tests (or those named by -t). With a command it measures this command.
/// In a command, __rand_int__ is replaced by a random number of 12 digits below the value of -r, and __data__ by a
/// value of -d bytes.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "penstock bench",
    version,
    disable_help_flag = true,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "EXPERIMENT",
    // The last one counts, as in redis-benchmark: a shell alias may already contain flags.
    args_override_self = true,
    after_help = EXAMPLES
)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub experiment: Option<ExperimentCommand>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Number of parallel connections.
    #[arg(short = 'c', value_name = "CLIENTS", default_value_t = 50, value_parser = positive)]
    pub clients: u64,
    /// Total number of requests.
    #[arg(short = 'n', value_name = "REQUESTS", default_value_t = 100_000, value_parser = positive)]
    pub requests: u64,
    /// Size of a value in SET, GET and other tests, in bytes.
    #[arg(short = 'd', value_name = "SIZE", default_value_t = 3)]
    pub data_bytes: usize,
    /// 1: keep connections open; 0: open a new connection for every request.
    #[arg(short = 'k', value_name = "BOOLEAN", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub keep_alive: u8,
    /// Use random keys, members and scores below this number; by default all requests use the same ones.
    #[arg(short = 'r', value_name = "KEYSPACE", value_parser = positive)]
    pub keyspace: Option<u64>,
    /// Frequencies of the random numbers of -r: uniform, zipf (with the exponent 0.99), or zipf:EXPONENT, with 0 as the
    /// most frequent number.
    #[arg(long, value_name = "NAME", default_value = "uniform", requires = "keyspace", value_parser = distribution)]
    pub distribution: Distribution,
    /// Number of requests of one connection in flight (pipeline depth).
    #[arg(short = 'P', value_name = "DEPTH", default_value_t = 1, value_parser = positive)]
    pub depth: u64,
    /// Tests to run, as a list like ping,set,get; ignored if a command is given.
    #[arg(short = 't', value_name = "TESTS")]
    pub tests: Option<String>,
    /// Mix SETs and GETs in this ratio, for example 1:10, in the order of a round: first the SETs, then the GETs.
    #[arg(long, value_name = "SETS:GETS", conflicts_with_all = ["tests", "command"], value_parser = ratio)]
    pub ratio: Option<Ratio>,
    /// Send to all primaries of a cluster. In a command, {tag} is replaced by a hash tag of a slot of the node.
    #[arg(long)]
    pub cluster: bool,
    /// Show only requests per second and the median latency.
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Repeat the tests forever.
    #[arg(short = 'l')]
    pub forever: bool,
    /// Count error replies and show the last one every second and at the end, instead of stopping at the first.
    #[arg(short = 'e')]
    pub show_errors: bool,
    /// Open the connections without sending anything, and wait until Ctrl-C or until the server closes or refuses one.
    #[arg(short = 'I')]
    pub idle: bool,
    /// Read the command's last argument from standard input.
    #[arg(short = 'x')]
    pub last_from_stdin: bool,
    /// Print redis-benchmark's whole report for each test instead of a line.
    #[arg(long, conflicts_with_all = ["csv", "json", "quiet"])]
    pub full: bool,
    /// Print comma-separated values with redis-benchmark's columns.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Write the distribution of the latencies to a file, in the text format of HdrHistogram; needs a single test.
    #[arg(long, value_name = "FILE", conflicts_with = "forever", value_hint = clap::ValueHint::FilePath)]
    pub hdr: Option<std::path::PathBuf>,
    /// Number of generator threads; they share the connections.
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = threads)]
    pub threads: u64,
    /// Number of decimal places of latencies in milliseconds.
    #[arg(long, value_name = "PLACES", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub precision: u8,
    /// Requests per second, on a fixed schedule that doesn't depend on replies; latencies count from the scheduled
    /// time, so that a stalled server can't hide them.
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true, value_parser = rate)]
    pub rate: Option<f64>,
    /// Seed of the random numbers; the same seed gives the same keys for any number of connections and threads.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Show this help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// A command to measure instead of the tests.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each test, and a verdict.
    Table,
    /// redis-benchmark's whole report.
    Full,
    /// redis-benchmark's short lines.
    Quiet,
    /// Comma-separated values.
    Csv,
    /// One document.
    Json,
}

impl BenchArgs {
    /// Returns the form of the report.
    #[must_use]
    pub fn form(&self) -> Form {
        match (self.json, self.csv, self.quiet, self.full) {
            (true, ..) => Form::Json,
            (_, true, ..) => Form::Csv,
            (_, _, true, _) => Form::Quiet,
            (.., true) => Form::Full,
            _ => Form::Table,
        }
    }
}

/// The numbers of SETs and GETs in a round of `--ratio`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    pub sets: u64,
    pub gets: u64,
}

/// The subcommand for the experiments on pipelining.
pub const PIPELINING: &str = "pipelining";

/// Experiments in addition to plain load.
#[derive(Subcommand, Clone, Debug)]
pub enum ExperimentCommand {
    #[command(name = PIPELINING)]
    Pipelining(PipeliningArgs),
}

/// Address of the server, and the login.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Host of the server.
    #[arg(short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Port of the server.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 6379)]
    pub port: u16,
    /// Unix socket of the server, instead of host and port.
    #[arg(short = 's', value_name = "SOCKET", conflicts_with = "url")]
    pub socket: Option<std::path::PathBuf>,
    /// URL of the server: redis://user:password@host:port/db, rediss:// for TLS, or unix:///path.
    #[arg(short = 'u', value_name = "URL")]
    pub url: Option<String>,
    /// Password.
    #[arg(short = 'a', value_name = "PASSWORD")]
    pub password: Option<String>,
    /// User name; needs -a.
    #[arg(long, value_name = "USER", requires = "password")]
    pub user: Option<String>,
    /// Number of the database.
    #[arg(long, value_name = "NUMBER")]
    pub dbnum: Option<u32>,
    /// Use RESP3.
    #[arg(short = '3')]
    pub resp3: bool,
    /// Encrypt the connections.
    #[arg(long)]
    pub tls: bool,
    /// Host name to expect in the server's certificate.
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// CA certificates (PEM), instead of the system's.
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<std::path::PathBuf>,
    /// Accept any certificate.
    #[arg(long)]
    pub insecure: bool,
    /// Client certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub cert: Option<std::path::PathBuf>,
    /// Key of the client certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub key: Option<std::path::PathBuf>,
}

/// Maximum number of generator threads, as in redis-benchmark.
const THREADS_MAX: u64 = 500;
/// Limits of `--rate` in requests per second: one in 17 minutes, and one per nanosecond, which is the schedule's unit.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1e9;

/// Exponent of `--distribution zipf`: YCSB's.
const ZIPF_EXPONENT: f64 = 0.99;
/// Largest number on either side of `--ratio`.
const RATIO_MAX: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  penstock bench -q                                      all tests, one line each
  penstock bench -t set,get -n 1000000 -r 1000000 -P 16  a million keys, pipelines of 16
  penstock bench --ratio 1:10 -r 1000000 --distribution zipf -d 100 --hdr latencies.hgrm
                                                         a SET for ten GETs, some keys more frequent than others
  penstock bench -r 10000 LPUSH mylist __rand_int__      a command of your own
  penstock bench --rate 20000 -n 200000 GET key          latency at 20,000 requests a second
  penstock bench --cluster -t set,get -n 1000000         a cluster; one node's address is enough
  penstock bench --json -t get | jq '.tests[0].requests_per_second'

Exit status: 0 all went well; 1 the server can't be reached, refused or broke off; 2 wrong arguments; 130 Ctrl-C.";

impl ServerArgs {
    /// Returns the configuration of the server.
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
    number.ok_or_else(|| format!("expected a whole number from 1 to {THREADS_MAX}"))
}

/// Parses a positive number.
pub fn positive(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|&number: &u64| number > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (RATE_MIN..=RATE_MAX).contains(number));
    number.ok_or_else(|| format!("expected a number from {RATE_MIN} to {RATE_MAX}"))
}

fn ratio(text: &str) -> Result<Ratio, String> {
    let number = |text: &str| text.parse().ok().filter(|number| *number <= RATIO_MAX);
    let ratio = text.split_once(':').and_then(|(sets, gets)| Some(Ratio { sets: number(sets)?, gets: number(gets)? }));
    let ratio = ratio.filter(|ratio| ratio.sets + ratio.gets > 0);
    ratio.ok_or_else(|| format!("expected two whole numbers up to {RATIO_MAX}, for example 1:10, at least one above 0"))
}

fn distribution(text: &str) -> Result<Distribution, String> {
    let exponent = match text.split_once(':') {
        None if text == "uniform" => return Ok(Distribution::Uniform),
        None if text == "zipf" => Some(ZIPF_EXPONENT),
        Some(("zipf", exponent)) => exponent.parse().ok().filter(|exponent| *exponent > 0.0 && *exponent < 1.0),
        _ => None,
    };
    let zipf = exponent.map(|exponent| Distribution::Zipf { exponent });
    zipf.ok_or_else(|| "expected uniform, zipf, or zipf:EXPONENT with an exponent between 0 and 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_distributions_are_parsed() {
        assert_eq!(ratio("1:10"), Ok(Ratio { sets: 1, gets: 10 }));
        assert_eq!(ratio("0:1"), Ok(Ratio { sets: 0, gets: 1 }));
        assert!(["", "1", "0:0", "1:x", "-1:2", "1:2:3", "1:1000001"].iter().all(|text| ratio(text).is_err()));
        assert_eq!(distribution("uniform"), Ok(Distribution::Uniform));
        assert_eq!(distribution("zipf"), Ok(Distribution::Zipf { exponent: ZIPF_EXPONENT }));
        assert_eq!(distribution("zipf:0.5"), Ok(Distribution::Zipf { exponent: 0.5 }));
        assert!(["", "zipf:", "zipf:1", "zipf:0", "zipf:nan", "gauss"].iter().all(|text| distribution(text).is_err()));
    }
}
