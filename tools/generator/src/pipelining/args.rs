//! The arguments of `penstock bench pipelining`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::positive;

/// Shows what pipelining, multi-key commands and scripts save, by the experiments of the Redis manual and of three
/// articles, with tables like theirs.
///
/// Without a URL a Penstock is started for it and ended afterwards. On a server of yours only keys that begin with
/// penstock-bench: are written, and removed again.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PipeliningArgs {
    /// The server: redis://user:password@host:port/db or unix:///path.
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// A second server, measured in alternation with the first, both shown with their ratio.
    #[arg(long, value_name = "URL")]
    pub against: Option<String>,
    /// Makes every round trip longer by so much (250ms, 44us, 1.5s): a proxy delays each direction by half of it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub rtt: Option<Duration>,
    /// Experiments to run, as a list of pings, keys, sets, movies, incr, depths; by default all but depths.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<Topic>,
    /// Sweeps these depths of a pipeline: throughput, and the server's memory for replies that wait.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    pub depths: Vec<u64>,
    /// Bytes of the values that the sweep reads.
    #[arg(short = 'd', long = "value-bytes", value_name = "BYTES", default_value_t = 1000, value_parser = positive)]
    pub value_bytes: u64,
    /// Multiplies the number of commands of every experiment.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub scale: f64,
    /// Most seconds for one row of a table; a row that takes longer is cut off and its time estimated, marked with ~
    /// [default: 60, or 5 with --rtt].
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub limit: Option<u64>,
    /// Measures every row so many times, the servers taking turns, and shows the run with the median time and the spread
    /// [default: 3, but only once what takes longer than 2 seconds].
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    pub rounds: Option<u64>,
    /// Also writes one self-contained page with charts and tables.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// One JSON document instead of tables, for programs.
    #[arg(long)]
    pub json: bool,
    /// Show this help.
    // The tool itself has none of clap's own, since its -h is the host.
    #[arg(short = 'h', long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What can be asked for with `--only`.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// PINGs without and with a pipeline.
    Pings,
    /// SET and GET against MSET and MGET.
    Keys,
    /// SETs without and with a pipeline.
    Sets,
    /// An autocompletion index, with fewer and fewer round trips.
    Movies,
    /// INCR four times, step by step.
    Incr,
    /// Depths of a pipeline.
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
/// Commands of a pipeline of the sweep at most: all of them are kept in memory until they are sent.
const DEPTH_MAX: u64 = 1_000_000;
/// Bytes of a pipeline's values at most: the server may have to keep the replies.
const REPLY_BYTES_MAX: u64 = 1 << 30;
/// How often a row is measured unless the user says so: often enough to see how far the rounds differ.
const ROUNDS: u64 = 3;
/// A row that took so long is measured once: what disturbs it now and then is a small part of it.
const ROUND_LONG: Duration = Duration::from_secs(2);
const LIMIT_S: u64 = 60;
const LIMIT_WITH_RTT_S: u64 = 5;

impl PipeliningArgs {
    /// Whether a topic is to be measured.
    #[must_use]
    pub fn wants(&self, topic: Topic) -> bool {
        match topic {
            Topic::Depths => !self.depths.is_empty() || self.only.contains(&topic),
            _ => self.only.is_empty() || self.only.contains(&topic),
        }
    }

    /// Depths to sweep.
    #[must_use]
    pub fn depths(&self) -> Vec<u64> {
        if self.depths.is_empty() { DEPTHS_DEFAULT.to_vec() } else { self.depths.clone() }
    }

    /// Finds out whether the sweep's pipelines have a size that two programs can keep in memory.
    ///
    /// # Errors
    /// In words for the user.
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

    /// Whether a row is measured once more that was measured `done` times, the longest for so long.
    #[must_use]
    pub fn wants_round(&self, done: u64, longest: Duration) -> bool {
        match self.rounds {
            Some(rounds) => done < rounds,
            None => done < ROUNDS && (done == 0 || longest < ROUND_LONG),
        }
    }

    /// How long a row may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let usual = if self.rtt.is_some() { LIMIT_WITH_RTT_S } else { LIMIT_S };
        Duration::from_secs(self.limit.unwrap_or(usual))
    }

    /// Whether the experiments are as large as the documents'.
    #[must_use]
    pub fn is_full_size(&self) -> bool {
        self.scale == 1.0
    }

    /// A number of commands by the scale, never none.
    #[must_use]
    pub fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(1)
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.000_001..=1000.0).contains(number));
    number.ok_or_else(|| "it must be a number from 0.000001 to 1000".to_owned())
}

/// A number with its unit: s, ms, us (or µs).
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0)];
    let found = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let seconds = found.and_then(|(number, seconds)| Some(number.trim().parse::<f64>().ok()? * seconds));
    let valid = seconds.filter(|seconds| (0.0..=60.0).contains(seconds));
    valid.map(Duration::from_secs_f64).ok_or_else(|| "write a time up to 60s, such as 250ms, 44us or 1.5s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_measured_once_unless_rounds_are_asked_for() {
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
