//! The command line of `penstock advise`.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use advisor::advice::Language;
use clap::{ArgAction, CommandFactory, Parser, ValueEnum, ValueHint};

const ABOUT: &str = "Find the round trips that clients waste, and what to write instead, on any Redis or Valkey server.

SOURCE is the URL of a server, which is looked at through MONITOR for ten seconds, or files: what MONITOR printed, or what --record \
wrote; without any, or for -, standard input is read. MONITOR shows no replies: what depends on them is reported as such, with a \
lower confidence. With --proxy, clients connect to this program instead of the server, and replies are seen, too.";

const AFTER: &str = "Examples:
  penstock advise redis://localhost
      Look for ten seconds, or until Ctrl-C. MONITOR makes a busy server slower while it runs.
  penstock advise --proxy 7000 redis://localhost
      Look at what passes through port 7000, until Ctrl-C.
  penstock advise --proxy 7000 --rtt 5ms redis://localhost
      The same, as over a network on which a round trip takes 5 ms.
  penstock advise --code python monitor.log
      With the code to write instead in Python.
  penstock advise --fail-over 10ms test-run.log
      Fail if a test run wasted more than ten milliseconds.

Exit status:
  0  the report was printed
  1  more time was lost than --fail-over allows
  2  the command line is wrong
  3  an input can't be read, or a server can't be reached
  4  the report can't be written";

/// What the user asked for, as clap reads it.
#[derive(Debug, Parser)]
#[command(
    name = "penstock advise",
    bin_name = "penstock advise",
    version,
    about = "Find wasted round trips, and what to write instead",
    long_about = ABOUT,
    after_help = AFTER,
    disable_help_flag = true,
    args_override_self = true,
    max_term_width = 100,
)]
pub struct Args {
    /// A server's URL, logs of MONITOR, or recordings; - is standard input
    #[arg(value_name = "SOURCE", value_hint = ValueHint::FilePath)]
    pub sources: Vec<OsString>,
    /// Be a proxy on this port, of this machine alone unless a host is named, before the server
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listener)]
    pub proxy: Option<SocketAddr>,
    /// Have clients of the proxy speak TLS, and show them this certificate (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["proxy", "tls_key_file"])]
    pub tls_cert_file: Option<PathBuf>,
    /// Key to --tls-cert-file (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Make each round trip through the proxy longer by so much: a number with us, ms or s
    #[arg(long, value_name = "TIME", value_parser = time, requires = "proxy")]
    pub rtt: Option<Duration>,
    /// Write what passes through the proxy to this file: commands, keys and the beginnings of values
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "proxy")]
    pub record: Option<OsString>,
    /// Read a file that --record wrote, as SOURCE does
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub replay: Option<OsString>,
    /// Look at a server for so long; 10s, and through the proxy until Ctrl-C, unless told otherwise
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub look_for: Option<Duration>,
    /// End a look through MONITOR after so many commands
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    pub commands: u64,
    /// Show the code to write instead; without it, it is shown where the client's library is known
    #[arg(long, value_name = "LANGUAGE")]
    pub code: Option<Code>,
    /// Findings to show, those that cost the most time first; 0: all
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub count: usize,
    /// Print JSON instead
    #[arg(long)]
    pub json: bool,
    /// Authorities' certificates (PEM) for a rediss:// server, instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub cacert: Option<PathBuf>,
    /// Certificate (PEM) to show to a rediss:// server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key")]
    pub cert: Option<PathBuf>,
    /// Key to --cert (PEM)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert")]
    pub key: Option<PathBuf>,
    /// Name to find in the server's certificate, instead of the host's
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Accept any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Write a page of HTML, too, with charts and the code in all languages
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<OsString>,
    /// Keep no keys as samples
    #[arg(long)]
    pub no_samples: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// End with status 1 if more time was lost: a number with us, ms or s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub fail_over: Option<Duration>,
    /// Memory for what is found, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub memory: u32,
    /// Print this help
    #[arg(long, short = 'h', action = ArgAction::Help)]
    help: Option<bool>,
}

/// A language of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Code {
    /// redis-rb
    Ruby,
    /// redis-py
    Python,
    /// ioredis
    Javascript,
    /// go-redis
    Go,
    /// Jedis
    Java,
}

impl Code {
    /// The advisor's name for it.
    pub fn language(self) -> Language {
        match self {
            Code::Ruby => Language::Ruby,
            Code::Python => Language::Python,
            Code::Javascript => Language::JavaScript,
            Code::Go => Language::Go,
            Code::Java => Language::Java,
        }
    }
}

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The definition of the command line, for help, manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Args::command()
}

/// A time as `10ms`.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "a number with us, ms or s is needed".to_owned())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("the unit is us, ms or s".to_owned()),
    }
}

/// A port, or an address and a port.
fn listener(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port.parse().map_err(|_| "a port, or an address and a port, is needed".to_owned())?;
    let host = match host.trim_matches(['[', ']']) {
        "" | "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        host => host.parse().map_err(|_| "the host is no IP address".to_owned())?,
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
