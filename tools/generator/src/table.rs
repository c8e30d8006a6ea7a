//! The default report: a line for each test, and a verdict on the limit. With all tests it fits into 80 columns and 24
//! lines.

use std::io::{self, Write};
use std::time::Duration;

use crate::report::{Report, Setup, grouped};

/// Width of the column of titles. A line has 80 columns.
const TITLE_WIDTH: usize = 20;
/// Share of the time from which the generator's threads count as the limit.
const SATURATED: f64 = 0.9;
/// Share of a core below which a process counts as idle.
const IDLE: f64 = 0.5;
/// Share of the requested rate from which it counts as reached.
const REACHED: f64 = 0.99;

/// Sums over all tests of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Duration of the tests.
    pub took: Duration,
    /// CPU time of this process.
    pub generator: Duration,
    /// CPU time of the server's process, if it is known.
    pub server: Option<Duration>,
    /// Number of replies.
    pub replies: u64,
}

/// Writes the settings and the titles of the columns: two lines, so that all tests and the verdict fit into 24 lines.
pub fn write_head(out: &mut dyn Write, setup: &Setup, requests: u64) -> io::Result<()> {
    let plural = |number: u64, noun: &str| format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" });
    write!(out, "{}, {}", plural(setup.clients, "connection"), plural(setup.threads, "thread"))?;
    if setup.depth > 1 {
        write!(out, ", depth {}", setup.depth)?;
    }
    if !setup.keep_alive {
        write!(out, ", a new connection for each pipeline")?;
    }
    if let Some(rate) = setup.rate {
        write!(out, ", {rate} requests a second")?;
    }
    if let Some(exponent) = setup.zipf_exponent {
        write!(out, ", keys by Zipf's law ({exponent})")?;
    }
    let (bytes, requests) = (plural(setup.data_bytes as u64, "byte"), plural(requests, "request"));
    writeln!(out, ", values of {bytes}, {requests} a test")?;
    let (rate, titles) = ("requests/s", ["p50 ms", "p99 ms", "p99.9 ms", "max ms"]);
    write!(out, "{:TITLE_WIDTH$}{rate:>14}", "test")?;
    titles.iter().try_for_each(|title| write!(out, "{title:>9}"))?;
    writeln!(out, "{:>10}", "CPU/req")
}

/// Writes the line of a test.
pub fn write_row(out: &mut dyn Write, report: &Report<'_>) -> io::Result<()> {
    let places = report.setup.precision;
    write!(out, "{:TITLE_WIDTH$}{:>14}", cut(report.title), grouped(report.per_second() as u64))?;
    report.quantiles().iter().try_for_each(|ms| write!(out, "{ms:>9.places$}"))?;
    match report.server_ns_per_request() {
        Some(ns) if ns >= 10_000.0 => write!(out, "{:>10}", format!("{:.1} µs", ns / 1e3))?,
        Some(ns) => write!(out, "{:>10}", format!("{ns:.0} ns"))?,
        None => write!(out, "{:>10}", "-")?,
    }
    match report.outcome.errors {
        0 => writeln!(out),
        errors => writeln!(out, "  {} errors", grouped(errors)),
    }
}

/// Returns a title that fits into its column.
fn cut(title: &str) -> String {
    if title.chars().count() < TITLE_WIDTH {
        return title.to_owned();
    }
    title.chars().take(TITLE_WIDTH - 2).collect::<String>().trim_end().chars().chain(['…']).collect()
}

/// Returns a sentence on the limit of the run, for a line of 80 columns.
#[must_use]
pub fn verdict(totals: &Totals, setup: &Setup) -> String {
    let took = totals.took.as_secs_f64().max(f64::MIN_POSITIVE);
    let generator = totals.generator.as_secs_f64() / took;
    let busy = (generator / setup.threads as f64).min(1.0);
    if busy >= SATURATED {
        let percent = busy * 100.0;
        return format!("this generator was the limit, {percent:.0} % busy. Use more --threads.");
    }
    if let Some(rate) = setup.rate {
        let reached = totals.replies as f64 / took;
        return match reached >= rate * REACHED {
            true => "the server kept up with the rate.".to_owned(),
            false => format!("the server fell behind the rate: {} requests a second.", grouped(reached as u64)),
        };
    }
    let hint = if setup.depth == 1 { "; try -P 16." } else { "." };
    match totals.server.map(|server| server.as_secs_f64() / took) {
        Some(server) if server.max(generator) < IDLE => {
            format!("waiting was the limit: server {server:.2} cores, generator {generator:.2}{hint}")
        }
        Some(server) => format!("the server used {server:.2} cores, this generator {generator:.2}{hint}"),
        None => format!("this generator was {:.0} % busy, so it was not the limit{hint}", busy * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(totals: Totals, change: fn(&mut Setup), expected: &str) {
        let mut setup = Setup { depth: 16, ..crate::report::testing::setup() };
        change(&mut setup);
        assert_eq!(verdict(&totals, &setup), expected);
    }

    #[test]
    fn the_limit_is_named() {
        let totals = |generator_ms, server_ms: Option<u64>| Totals {
            took: Duration::from_secs(1),
            generator: Duration::from_millis(generator_ms),
            server: server_ms.map(Duration::from_millis),
            replies: 1000,
        };
        let limit = "this generator was the limit, 95 % busy. Use more --threads.";
        check(totals(950, Some(100)), |_| {}, limit);
        check(totals(950, None), |setup| setup.rate = Some(5000.0), limit);
        let not_the_limit = "this generator was 24 % busy, so it was not the limit.";
        check(totals(950, None), |setup| setup.threads = 4, not_the_limit);
        check(totals(450, Some(970)), |_| {}, "the server used 0.97 cores, this generator 0.45.");
        let hint = "the server used 0.97 cores, this generator 0.45; try -P 16.";
        check(totals(450, Some(970)), |setup| setup.depth = 1, hint);
        let waits = "waiting was the limit: server 0.20 cores, generator 0.30; try -P 16.";
        check(totals(300, Some(200)), |setup| setup.depth = 1, waits);
        check(totals(100, None), |setup| setup.rate = Some(1005.0), "the server kept up with the rate.");
        let behind = "the server fell behind the rate: 1,000 requests a second.";
        check(totals(100, None), |setup| setup.rate = Some(2000.0), behind);
    }

    #[test]
    fn titles_fit_into_their_column() {
        assert_eq!(cut("LRANGE_100"), "LRANGE_100");
        assert_eq!(cut(&"é".repeat(30)), format!("{}…", "é".repeat(18)));
    }

    #[test]
    fn lines_have_80_columns() {
        let (outcome, setup) = (crate::report::testing::outcome(), crate::report::testing::setup());
        let report =
            Report { title: "LRANGE_100 (first 100 elements)", outcome: &outcome, setup: &setup, server: None };
        let mut out = Vec::new();
        write_head(&mut out, &setup, 1).unwrap();
        write_row(&mut out, &report).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "50 connections, 1 thread, values of 3 bytes, 1 request a test");
        assert!(lines[1..].iter().all(|line| line.chars().count() == 80), "{text}");
        assert!(lines[2].starts_with("LRANGE_100 (first…  ") && lines[2].contains(" 2,000 "), "{text}");
    }
}
