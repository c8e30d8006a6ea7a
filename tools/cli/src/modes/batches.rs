//! `--batches`: prints the times of batches by depth, a table per interval.

use super::{ask_patiently, no_error, pause};
use crate::failure::Failure;
use crate::session::CliSession;
use client::Value;
use std::io::IsTerminal;
use std::time::Duration;

/// Default interval between tables.
const INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor to the upper left corner and clears the screen.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";
/// The percentiles of the table, in percent.
const PERCENTS: [f64; 3] = [50.0, 99.0, 99.9];
/// The parts of a batch's time.
const PARTS: [&str; 5] = ["turn", "execution", "disk", "replicas", "client"];
const HEADING: &str = concat!(
    "                  ------ microseconds, at most ------ ----------- mean microseconds of each part -----------\n",
    "depth     batches         p50         p99       p99.9        turn   execution        disk    replicas      client\n",
);

/// The batches of one class of depth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClassTimes {
    depth: String,
    batches: i64,
    /// Sum of each part, in microseconds.
    sums: [i64; PARTS.len()],
    /// Number of batches up to each bound in microseconds, ascending.
    cumulative: Vec<(i64, i64)>,
}

/// Prints tables forever, or the number given by `-r`. The first is about all batches so far, each other one about those
/// since the one before.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>) -> Result<(), Failure> {
    session.connect()?;
    let interval = session.options.interval.unwrap_or(INTERVAL);
    let tables_max = session.options.repeat.and_then(|count| u64::try_from(count).ok());
    let clear = if std::io::stdout().is_terminal() && tables_max != Some(1) { CLEAR_SCREEN } else { "" };
    let mut before: Vec<ClassTimes> = Vec::new();
    for table in 0.. {
        if tables_max == Some(table) {
            break;
        }
        if table > 0 {
            pause(session, interval)?;
        }
        let reply = no_error(ask_patiently(session, &["LATENCY", "BATCHES"])?, "ERROR")?;
        let now = classes(&reply);
        let since = now.iter().map(|class| match before.iter().find(|earlier| earlier.depth == class.depth) {
            Some(earlier) => class.since(earlier),
            None => class.clone(),
        });
        let rows: String = since.filter(|class| class.batches > 0).map(|class| class.row()).collect();
        session.output.print(format!("{clear}{HEADING}{rows}"))?;
        session.output.flush()?;
        before = now;
    }
    Ok(())
}

impl ClassTimes {
    /// Returns the batches after an earlier state. All are later if the statistics were reset in between.
    fn since(&self, earlier: &ClassTimes) -> ClassTimes {
        if earlier.batches > self.batches {
            return self.clone();
        }
        let up_to =
            |bound: i64| earlier.cumulative.iter().take_while(|(at, _)| *at <= bound).last().map_or(0, |&(_, n)| n);
        let mut sums = self.sums;
        sums.iter_mut().zip(earlier.sums).for_each(|(sum, before)| *sum = sum.saturating_sub(before));
        ClassTimes {
            depth: self.depth.clone(),
            batches: self.batches - earlier.batches,
            sums,
            cumulative: self.cumulative.iter().map(|&(bound, count)| (bound, count - up_to(bound))).collect(),
        }
    }

    /// Returns the bound that `percent` percent of the batches don't exceed.
    fn percentile(&self, percent: f64) -> i64 {
        let rank = (percent / 100.0 * self.batches as f64).ceil() as i64;
        let reached = self.cumulative.iter().find(|(_, count)| *count >= rank);
        reached.or(self.cumulative.last()).map_or(0, |&(bound, _)| bound)
    }

    fn row(&self) -> String {
        let percentiles = PERCENTS.map(|percent| format!("{:>12}", self.percentile(percent))).concat();
        let means = self.sums.map(|sum| format!("{:>12.1}", sum as f64 / self.batches.max(1) as f64)).concat();
        format!("{:<8}{:>9}{percentiles}{means}\n", self.depth, self.batches)
    }
}

/// Returns the fields of a map, in the form of either protocol version.
fn fields(map: &Value) -> Vec<(String, &Value)> {
    let text = |value: &Value| String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned();
    match map {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), value)).collect(),
        Value::Array(items) => items.chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1])).collect(),
        _ => Vec::new(),
    }
}

/// Returns a map of numbers.
fn numbers(map: &Value) -> Vec<(i64, i64)> {
    match map {
        Value::Map(pairs) => pairs.iter().map(|(bound, count)| (int(bound), int(count))).collect(),
        Value::Array(items) => items.chunks_exact(2).map(|pair| (int(&pair[0]), int(&pair[1]))).collect(),
        _ => Vec::new(),
    }
}

fn int(value: &Value) -> i64 {
    if let Value::Int(value) = value { *value } else { 0 }
}

/// Reads the reply to LATENCY BATCHES.
fn classes(reply: &Value) -> Vec<ClassTimes> {
    let class = |(depth, figures): (String, &Value)| {
        let mut times = ClassTimes { depth, ..ClassTimes::default() };
        for (name, value) in fields(figures) {
            let of_part =
                |wanted: &str| fields(value).into_iter().find(|(field, _)| field == wanted).map(|(_, value)| value);
            if name == "batches" {
                times.batches = int(value);
            } else if name == "total" {
                times.cumulative = of_part("histogram_usec").map(numbers).unwrap_or_default();
            } else if let Some(part) = PARTS.iter().position(|part| *part == name) {
                times.sums[part] = of_part("usec").map_or(0, int);
            }
        }
        times
    };
    fields(reply).into_iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn part(us: i64, steps: &[i64]) -> Value {
        let steps = Value::Array(steps.iter().map(|&step| Value::Int(step)).collect());
        Value::Array(vec![bulk("usec"), Value::Int(us), bulk("p50"), bulk("1.5"), bulk("histogram_usec"), steps])
    }

    fn reply(batches: i64, steps: &[i64], execution_us: i64) -> Value {
        let total = part(execution_us, steps);
        let execution = part(execution_us, steps);
        let figures = [bulk("batches"), Value::Int(batches), bulk("total"), total, bulk("execution"), execution];
        Value::Array(vec![bulk("2-15"), Value::Array(figures.to_vec())])
    }

    #[test]
    fn a_row_of_times() {
        let all = classes(&reply(100, &[16, 50, 32, 99, 1024, 100], 2050));
        let row = "2-15          100          16          32        1024         0.0        20.5         0.0         0.0         0.0\n";
        assert_eq!(all[0].row(), row);
        assert!(classes(&Value::Array(Vec::new())).is_empty());
    }

    #[test]
    fn later_tables_are_about_the_batches_since() {
        let before = &classes(&reply(100, &[16, 50, 32, 100], 2000))[0];
        let now = &classes(&reply(110, &[16, 50, 32, 100, 64, 109, 128, 110], 3000))[0];
        let since = now.since(before);
        assert_eq!((since.batches, since.sums[1], since.percentile(50.0), since.percentile(99.0)), (10, 1000, 64, 128));
        assert_eq!(before.since(now), *before, "after a reset");
    }
}
