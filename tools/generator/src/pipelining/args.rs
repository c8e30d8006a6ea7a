//! The arguments of `penstock bench pipelining`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::positive;

/// Shows the savings of pipelining, multi-key commands and scripts, with the experiments of the Redis manual and of
/// three articles, and tables like theirs.
///
/// Without a URL it starts a Penstock server and stops it afterwards. On your server it writes only keys that begin
/// with penstock-bench: and removes them at the end.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PipeliningArgs {
    /// URL of the server: redis://user:password@host:port/db or unix:///path.
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// URL of a second server; the two are measured in alternation and compared.
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
    /// Add this delay to every round trip (250ms, 44us, 1.5s), with a proxy that delays each direction by half of it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub rtt: Option<Duration>,
    /// Experiments to run, as a list of pings, keys, sets, movies, incr, depths; by default all except depths.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<Topic>,
    /// Measure pipelines of these depths: throughput, and the server's memory for unread replies.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    pub depths: Vec<u64>,
    /// Size of the values that --depths reads, in bytes.
    #[arg(short = 'd', long = "value-bytes", value_name = "BYTES", default_value_t = 1000, value_parser = positive)]
    pub value_bytes: u64,
    /// Multiply the number of commands of every experiment by this factor.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub scale: f64,
    /// Time limit for one row of a table in seconds; a longer row is cut off and its time estimated, marked with ~
    /// [default: 60, or 5 with --rtt].
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub limit: Option<u64>,
    /// Number of measurements of every row, with the servers in turn; the table shows the one with the median time, and
    /// the spread [default: 3, or 1 for rows of more than 2 seconds].
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    pub rounds: Option<u64>,
    /// Also write a self-contained HTML page with charts and tables.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Show this help.
    // `bench` itself has no help flag of clap's, because its -h is the host.
    #[arg(short = 'h', long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Experiments for `--only`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// PING without and with a pipeline.
    Pings,
    /// SET and GET compared with MSET and MGET.
    Keys,
    /// SET without and with a pipeline.
    Sets,
    /// An autocompletion index, with fewer round trips in each step.
    Movies,
    /// INCR four times, one by one and in a pipeline.
    Incr,
    /// Pipelines of several depths.
    Depths,
}

const EXAMPLES: &str = "\
Examples:
  penstock bench pipelining                                      a Penstock of its own
  penstock bench pipelining redis://localhost:6379 --html report.html
  penstock bench pipelining --rtt 250ms                          as over a very slow link
  penstock bench pipelining --against redis://localhost:6379     both servers and their ratio
  penstock bench pipelining --only depths --depths 1,10,100,1000,10000

Exit status: as of penstock bench; 1, too, where keys could not be removed.";

const DEPTHS_DEFAULT: [u64; 5] = [1, 10, 100, 1000, 10_000];
/// Maximum depth of a pipeline in the sweep: all its commands are in memory before they are sent.
const DEPTH_MAX: u64 = 1_000_000;
/// Maximum size of a pipeline's values in bytes: the server may have to keep the replies.
const REPLY_BYTES_MAX: u64 = 1 << 30;
/// Default number of measurements of a row: enough to show the spread.
const ROUNDS: u64 = 3;
/// Rows of at least this duration are measured once, because occasional disturbances are a small part of it.
const ROUND_LONG: Duration = Duration::from_secs(2);
const LIMIT_S: u64 = 60;
const LIMIT_WITH_RTT_S: u64 = 5;

impl PipeliningArgs {
    /// Returns true if a topic is selected.
    #[must_use]
    pub fn wants(&self, topic: Topic) -> bool {
        match topic {
            Topic::Depths => !self.depths.is_empty() || self.only.contains(&topic),
            _ => self.only.is_empty() || self.only.contains(&topic),
        }
    }

    /// Returns the depths of the sweep.
    #[must_use]
    pub fn depths(&self) -> Vec<u64> {
        if self.depths.is_empty() { DEPTHS_DEFAULT.to_vec() } else { self.depths.clone() }
    }

    /// Checks that the sweep's pipelines fit into the memory of client and server.
    ///
    /// # Errors
    /// Returns a message for the user.
    pub fn check_depths(&self) -> Result<(), String> {
        let replies_max = |depth: &u64| depth.checked_mul(self.value_bytes).filter(|bytes| *bytes <= REPLY_BYTES_MAX);
        match self.depths().iter().find(|depth| **depth > DEPTH_MAX || replies_max(depth).is_none()) {
            Some(depth) => Err(format!(
                "a pipeline of {depth} GETs of {} bytes is too large: the deepest is {DEPTH_MAX}, and the values of one \
                 may have {REPLY_BYTES_MAX} bytes together",
                self.value_bytes
            )),
            None => Ok(()),
        }
    }

    /// Returns true if a row needs another measurement after `done` ones, with the given longest time.
    #[must_use]
    pub fn wants_round(&self, done: u64, longest: Duration) -> bool {
        match self.rounds {
            Some(rounds) => done < rounds,
            None => done < ROUNDS && (done == 0 || longest < ROUND_LONG),
        }
    }

    /// Returns the time limit for a row.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let usual = if self.rtt.is_some() { LIMIT_WITH_RTT_S } else { LIMIT_S };
        Duration::from_secs(self.limit.unwrap_or(usual))
    }

    /// Returns true if the experiments have the size of the documents'.
    #[must_use]
    pub fn is_full_size(&self) -> bool {
        self.scale == 1.0
    }

    /// Scales a number of commands; the result is at least 1.
    #[must_use]
    pub fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(1)
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.000_001..=1000.0).contains(number));
    number.ok_or_else(|| "expected a number from 0.000001 to 1000".to_owned())
}

/// Parses a number with a unit: s, ms, us (or µs).
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let seconds = found.and_then(|(number, seconds)| Some(number.trim().parse::<f64>().ok()? * seconds));
    let valid = seconds.filter(|seconds| (0.0..=60.0).contains(seconds));
    valid
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a time up to 60s, for example 250ms, 44us or 1.5s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_measured_once_by_default() {
        use clap::Parser;
        let parse = |words: &[&str]| {
            let words = [&["penstock bench", "pipelining"][..], words].concat();
            match crate::args::BenchArgs::try_parse_from(words).unwrap().experiment {
                Some(crate::args::ExperimentCommand::Pipelining(args)) => args,
                None => panic!("no experiment"),
            }
        };
        let rounds = |args: &PipeliningArgs, took| (0..).take_while(|done| args.wants_round(*done, took)).count();
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(5));
        let (usual, five) = (parse(&[]), parse(&["--rounds", "5"]));
        assert_eq!((rounds(&usual, short), rounds(&usual, long)), (3, 1));
        assert_eq!((rounds(&five, short), rounds(&five, long)), (5, 5));
    }

    #[test]
    fn times_have_a_unit() {
        let check = |text, us| assert_eq!(duration(text), Ok(Duration::from_micros(us)), "{text}");
        check("250ms", 250_000);
        check("44us", 44);
        check("44µs", 44);
        check("1.5s", 1_500_000);
        check("0ms", 0);
        for wrong in ["250", "ms", "-1ms", "61s", "infs", "nans", "1h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
