//! The command line of `penstock advise`.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use advisor::advice::Language;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, CommandFactory, Parser, ValueEnum, ValueHint};

const ABOUT: &str = "Find the round trips that clients waste on any Redis or Valkey server, and show the code that avoids them.

SOURCE is the URL of a server, which is watched through MONITOR for ten seconds, or a list of files: MONITOR output, or files that --record \
wrote. Without SOURCE, or for -, standard input is read. MONITOR shows no replies: findings that depend on them are marked, and have a \
lower confidence. With --proxy, clients connect to this program instead of the server, and it sees the replies, too.";

const AFTER: &str = "Examples:
  penstock advise demo
      Run an import with 98,894 needless commands on a server of its own, show the finding, and run the rewritten import.
  penstock advise redis://localhost
      Watch for ten seconds, or until Ctrl-C. MONITOR slows down a busy server.
  penstock advise --proxy 7000 redis://localhost
      Watch the traffic through port 7000, until Ctrl-C.
  penstock advise --proxy 7000 --rtt 5ms redis://localhost
      Also simulate a network with a round trip time of 5 ms.
  penstock advise --code python monitor.log
      Analyse a MONITOR log, and show replacement code in Python.
  penstock advise --fail-over 10ms test-run.log
      Fail if a test run wasted more than ten milliseconds.

Exit status:
  0  the report was printed
  1  more time was lost than --fail-over allows
  2  the command line is wrong
  3  an input can't be read, or a server can't be reached
  4  the report can't be written";

/// Command line arguments, as parsed by clap.
#[derive(Debug, Parser)]
#[command(
    name = "penstock advise",
    bin_name = "penstock advise",
    version,
    about = "Find wasted round trips and the code that avoids them",
    long_about = ABOUT,
    after_help = AFTER,
    disable_help_flag = true,
    args_override_self = true,
    max_term_width = 100,
)]
pub struct Args {
    /// URL of a server, MONITOR logs, or recordings; - is standard input; demo shows an example
    #[arg(value_name = "SOURCE", value_hint = ValueHint::FilePath)]
    pub sources: Vec<OsString>,
    /// Run as a proxy before the server, on this port; only this machine can connect unless HOST is given
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listener)]
    pub proxy: Option<SocketAddr>,
    /// Certificate (PEM) for TLS between clients and the proxy
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["proxy", "tls_key_file"])]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of --tls-cert-file (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Add this delay to each round trip through the proxy: a number with us, ms or s
    #[arg(long, value_name = "TIME", value_parser = time, requires = "proxy")]
    pub rtt: Option<Duration>,
    /// Record the proxy's traffic to this file: commands, keys and the beginnings of values
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "proxy")]
    pub record: Option<OsString>,
    /// Read a file that --record wrote, like SOURCE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub replay: Option<OsString>,
    /// Watch a server for this time; the default is 10s, and for a proxy until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub look_for: Option<Duration>,
    /// Stop watching through MONITOR after this number of commands
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    pub commands: u64,
    /// Show replacement code in this language; by default code is shown if the client's library is known
    #[arg(long, value_name = "LANGUAGE", value_parser = language())]
    pub code: Option<Language>,
    /// Number of findings to show, costliest first; 0 shows all
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub count: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// CA certificates (PEM) for a rediss:// server, instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cacert: Option<PathBuf>,
    /// Client certificate (PEM) for a rediss:// server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key")]
    pub cert: Option<PathBuf>,
    /// Key of --cert (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert")]
    pub key: Option<PathBuf>,
    /// Host name to expect in the server's certificate
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Accept any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Also write an HTML page with charts and the code in all languages
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<OsString>,
    /// Number of movies that the demonstration imports
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub movies: u64,
    /// Keep no sample keys
    #[arg(long)]
    pub no_samples: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Exit with status 1 if more time than this was lost: a number with us, ms or s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub fail_over: Option<Duration>,
    /// Memory limit for findings, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub memory: u32,
    /// Print this help
    #[arg(long, short = 'h', action = ArgAction::Help)]
    help: Option<bool>,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Returns the definition of the command line, for help, manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Args::command()
}

/// Parses the short name of a language.
fn language() -> impl TypedValueParser<Value = Language> {
    let value = |language: Language| PossibleValue::new(language.option()).help(language.library());
    PossibleValuesParser::new(Language::ALL.map(value))
        .try_map(|option| Language::of_option(&option).ok_or("an unknown language"))
}

/// Parses a time, for example `10ms`.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "expected a number with us, ms or s".to_owned())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("the unit is us, ms or s".to_owned()),
    }
}

/// Parses a port, or an address and a port.
fn listener(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port.parse().map_err(|_| "expected a port, or an address and a port".to_owned())?;
    let host = match host.trim_matches(['[', ']']) {
        "" | "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        host => host.parse().map_err(|_| "the host is not an IP address".to_owned())?,
    };
    Ok(SocketAddr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn listeners_are_of_this_machine_unless_told_otherwise() {
        let check = |text: &str, expected: &str| assert_eq!(listener(text).unwrap().to_string(), expected, "{text}");
        check("7000", "127.0.0.1:7000");
        check("localhost:7000", "127.0.0.1:7000");
        check("*:7000", "0.0.0.0:7000");
        check("[::1]:7000", "[::1]:7000");
        assert!(listener("x").is_err() && listener("host:1").is_err() && listener("70000").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(time("3s"), Ok(Duration::from_secs(3)));
        assert!(time("10").is_err() && time("ms").is_err() && time("1h").is_err());
    }
}
