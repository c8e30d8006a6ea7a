//! Reports of `penstock bench`: redis-benchmark's formats, so that existing parsers work, and JSON.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::generator::RunOutcome;
use crate::host::Usage;

const NS_PER_MS: f64 = 1e6;
/// Step number at which the cumulative table changes from steps of 0.1 ms to steps of 1 ms.
const FINE_STEPS: u64 = 20;
const FINE_STEP_NS: u64 = 100_000;
const COARSE_STEP_NS: u64 = 1_000_000;

/// A test's settings and results.
pub struct Report<'a> {
    /// Name of the test.
    pub title: &'a str,
    /// Results of the run.
    pub outcome: &'a RunOutcome,
    /// Settings of the run.
    pub setup: &'a Setup,
    /// Resource use of the server's process, if it is known.
    pub server: Option<Usage>,
}

/// Settings shared by all tests of a run.
pub struct Setup {
    /// Number of connections.
    pub clients: u64,
    /// Number of generator threads.
    pub threads: u64,
    /// Number of primaries, for a cluster.
    pub masters: Option<usize>,
    /// Number of requests in flight on a connection.
    pub depth: u64,
    /// Size of a value in bytes.
    pub data_bytes: usize,
    /// True if connections are kept open.
    pub keep_alive: bool,
    /// Requested number of requests per second.
    pub rate: Option<f64>,
    /// Exponent of Zipf's law for the random numbers; `None` if all are equally frequent.
    pub zipf_exponent: Option<f64>,
    /// `save` and `appendonly` of the server's configuration, if it answers CONFIG.
    pub persistence: Option<[String; 2]>,
    /// Number of decimal places of latencies.
    pub precision: usize,
}

/// A test's results as JSON.
#[derive(Serialize)]
pub struct Figures {
    test: String,
    requests: u64,
    seconds: f64,
    requests_per_second: f64,
    errors: u64,
    latency_ms: Latencies,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ServerFigures>,
}

#[derive(Serialize)]
struct Latencies {
    avg: f64,
    min: f64,
    p50: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    max: f64,
}

#[derive(Serialize)]
struct ServerFigures {
    cpu_ns_per_request: f64,
    resident_bytes: u64,
}

impl Report<'_> {
    /// Returns the number of replies.
    fn count(&self) -> u64 {
        self.outcome.latencies.len()
    }

    /// Returns the number of requests per second.
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.outcome.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn latencies(&self) -> Latencies {
        let histogram = &self.outcome.latencies;
        let at = |quantile| ms(histogram.value_at_quantile(quantile));
        Latencies {
            avg: histogram.mean() / NS_PER_MS,
            min: ms(histogram.min()),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            max: ms(histogram.max()),
        }
    }

    /// Returns the percentiles of the table in milliseconds, and the maximum.
    pub fn quantiles(&self) -> [f64; 4] {
        let Latencies { p50, p99, p99_9, max, .. } = self.latencies();
        [p50, p99, p99_9, max]
    }

    /// Returns the CPU time of the server per request, if it is known.
    pub fn server_ns_per_request(&self) -> Option<f64> {
        let cpu_ns = self.server.as_ref().and_then(Usage::known_cpu_ns)?;
        Some(cpu_ns as f64 / self.count().max(1) as f64)
    }

    /// Returns the results for JSON.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let resident_bytes = self.server.map_or(0, |usage| usage.resident_bytes);
        Figures {
            test: self.title.to_owned(),
            requests: self.count(),
            seconds: self.outcome.took.as_secs_f64(),
            requests_per_second: self.per_second(),
            errors: self.outcome.errors,
            latency_ms: self.latencies(),
            server: self.server_ns_per_request().map(|ns| ServerFigures { cpu_ns_per_request: ns, resident_bytes }),
        }
    }

    /// Writes the format of `-q`.
    pub fn write_quiet(&self, out: &mut dyn Write) -> io::Result<()> {
        let (places, p50) = (self.setup.precision, self.latencies().p50);
        writeln!(out, "{}: {:.2} requests per second, p50={p50:.places$} msec", self.title, self.per_second())
    }

    /// Writes the header of `--csv`.
    pub fn write_csv_header(out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms""#
        )
    }

    /// Writes the format of `--csv`.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let Latencies { avg, min, p50, p95, p99, max, .. } = self.latencies();
        write!(out, "\"{}\",\"{:.2}\"", self.title.replace('"', "\"\""), self.per_second())?;
        for latency in [avg, min, p50, p95, p99, max] {
            write!(out, ",\"{latency:.places$}\"", places = self.setup.precision)?;
        }
        writeln!(out)
    }

    /// Writes the full format.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "====== {} ======", self.title)?;
        self.write_setup(out)?;
        writeln!(out, "\nLatency by percentile distribution:")?;
        self.write_percentiles(out)?;
        writeln!(out, "\nCumulative distribution of latencies:")?;
        self.write_cumulative(out)?;
        self.write_summary(out)?;
        writeln!(out)
    }

    fn write_setup(&self, out: &mut dyn Write) -> io::Result<()> {
        let setup = self.setup;
        writeln!(out, "  {} requests completed in {:.2} seconds", self.count(), seconds(self.outcome.took))?;
        writeln!(out, "  {} parallel clients", setup.clients)?;
        writeln!(out, "  {} bytes payload", setup.data_bytes)?;
        writeln!(out, "  keep alive: {}", u8::from(setup.keep_alive))?;
        if setup.depth > 1 {
            writeln!(out, "  pipeline depth: {}", setup.depth)?;
        }
        if let Some(rate) = setup.rate {
            writeln!(out, "  rate: {rate} requests per second, latency from the time a request was due")?;
        }
        if let Some(exponent) = setup.zipf_exponent {
            writeln!(out, "  distribution of keys: Zipf's law with exponent {exponent}")?;
        }
        if let Some(masters) = setup.masters {
            writeln!(out, "  cluster mode: yes ({masters} masters)")?;
        }
        if let Some([save, appendonly]) = &setup.persistence {
            writeln!(out, "  host configuration \"save\": {save}")?;
            writeln!(out, "  host configuration \"appendonly\": {appendonly}")?;
        }
        match setup.threads {
            1 => writeln!(out, "  multi-thread: no"),
            threads => writeln!(out, "  multi-thread: yes\n  threads: {threads}"),
        }
    }

    fn write_percentiles(&self, out: &mut dyn Write) -> io::Result<()> {
        let histogram = &self.outcome.latencies;
        for step in histogram.iter_quantiles(1) {
            let count = histogram.count_between(0, step.value_iterated_to());
            self.write_share(out, step.quantile_iterated_to() * 100.0, step.value_iterated_to(), count)?;
        }
        Ok(())
    }

    fn write_cumulative(&self, out: &mut dyn Write) -> io::Result<()> {
        let histogram = &self.outcome.latencies;
        let mut told = None;
        for up_to in boundaries(histogram.max()) {
            let count = histogram.count_between(0, up_to);
            if told != Some(count) {
                told = Some(count);
                self.write_share(out, count as f64 * 100.0 / self.count().max(1) as f64, up_to, count)?;
            }
        }
        Ok(())
    }

    fn write_share(&self, out: &mut dyn Write, percent: f64, up_to_ns: u64, count: u64) -> io::Result<()> {
        let (places, latency) = (self.setup.precision, ms(up_to_ns));
        writeln!(out, "{percent:.3}% <= {latency:.places$} milliseconds (cumulative count {count})")
    }

    fn write_summary(&self, out: &mut dyn Write) -> io::Result<()> {
        let Latencies { avg, min, p50, p95, p99, max, .. } = self.latencies();
        writeln!(out, "\nSummary:\n  throughput summary: {:.2} requests per second", self.per_second())?;
        writeln!(out, "  latency summary (msec):")?;
        writeln!(out, "   {:>10}{:>10}{:>10}{:>10}{:>10}{:>10}", "avg", "min", "p50", "p95", "p99", "max")?;
        write!(out, "   ")?;
        for latency in [avg, min, p50, p95, p99, max] {
            write!(out, "{latency:>10.places$}", places = self.setup.precision)?;
        }
        writeln!(out)?;
        if self.outcome.errors > 0 {
            writeln!(out, "  error replies: {}", self.outcome.errors)?;
        }
        if let (Some(usage), Some(ns)) = (self.server, self.server_ns_per_request()) {
            let mib = usage.resident_bytes as f64 / f64::from(1 << 20);
            writeln!(out, "  server process: {ns:.0} ns of CPU time per request, {mib:.1} MiB of memory")?;
        }
        Ok(())
    }
}

/// Steps of the percentiles' file in each halving of the distance to 100 %: HdrHistogram's default.
const STEPS_PER_HALF: u32 = 5;

/// Returns the distribution of latencies in the text format of HdrHistogram, in milliseconds. Its plotters and
/// memtier_benchmark's tools read it.
#[must_use]
pub fn percentiles(histogram: &Histogram<u64>) -> String {
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let total = histogram.len();
    for step in histogram.iter_quantiles(STEPS_PER_HALF) {
        let (value, quantile) = (step.value_iterated_to(), step.quantile_iterated_to());
        let count = histogram.count_between(0, value);
        let inverse = if quantile < 1.0 { format!("{:.2}", 1.0 / (1.0 - quantile)) } else { "inf".to_owned() };
        text += &format!("{:12.3} {quantile:2.12} {count:10} {inverse:>14}\n", ms(value));
    }
    let (mean, deviation) = (histogram.mean() / NS_PER_MS, histogram.stdev() / NS_PER_MS);
    let max = ms(histogram.max());
    text += &format!("#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]\n");
    text += &format!("#[Max     = {max:12.3}, Total count    = {total:12}]\n");
    let buckets = usize::from(histogram.buckets());
    // Each bucket but the first shares half of its counters with the one before.
    let sub_buckets = 2 * histogram.distinct_values() / (buckets + 1);
    text + &format!("#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]\n")
}

/// Formats 12345 as 12,345.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn ms(ns: u64) -> f64 {
    ns as f64 / NS_PER_MS
}

fn seconds(took: Duration) -> f64 {
    took.as_secs_f64()
}

/// Returns steps of 0.1 ms up to 2 ms, then of 1 ms, until `max` is covered.
fn boundaries(max_ns: u64) -> impl Iterator<Item = u64> {
    let boundary = |step: u64| match step {
        0..=FINE_STEPS => step * FINE_STEP_NS,
        _ => FINE_STEPS * FINE_STEP_NS + (step - FINE_STEPS) * COARSE_STEP_NS,
    };
    let last = (1..).map(boundary).take_while(move |&up_to| up_to < max_ns).count() as u64 + 1;
    (1..=last).map(boundary)
}

#[cfg(test)]
pub mod testing {
    //! Results for tests of reports.

    use super::*;
    use crate::generator::latencies;

    /// Returns the results of a thousand requests of up to ten milliseconds.
    pub fn outcome() -> RunOutcome {
        let mut latencies = latencies();
        for tenth in 1..=1000 {
            latencies.record(tenth * 10_000).unwrap();
        }
        RunOutcome { took: Duration::from_millis(500), latencies, errors: 0, interrupted: false }
    }

    /// Returns the default settings.
    pub fn setup() -> Setup {
        let persistence = Some(["".to_owned(), "no".to_owned()]);
        let (clients, threads, depth) = (50, 1, 1);
        Setup {
            clients,
            threads,
            masters: None,
            depth,
            data_bytes: 3,
            keep_alive: true,
            rate: None,
            zipf_exponent: None,
            persistence,
            precision: 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{outcome, setup};
    use super::*;

    fn written(title: &str, form: fn(&Report<'_>, &mut dyn Write) -> io::Result<()>) -> String {
        let (outcome, setup) = (outcome(), setup());
        let mut out = Vec::new();
        form(&Report { title, outcome: &outcome, setup: &setup, server: None }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn short_forms_are_redis_benchmarks() {
        assert_eq!(
            written("GET", |report, out| report.write_quiet(out)),
            "GET: 2000.00 requests per second, p50=5.001 msec\n"
        );
        let csv = written("set k a \"b", |report, out| report.write_csv(out));
        assert!(csv.starts_with("\"set k a \"\"b\",\"2000.00\",\"5.00") && csv.ends_with(",\"10.002\"\n"), "{csv}");
        assert_eq!(csv.matches("\",\"").count(), 7);
    }

    #[test]
    fn the_whole_form_has_all_parts_and_counts_that_end_at_the_total() {
        let text = written("GET", |report, out| report.write_text(out));
        assert!(text.contains("  1000 requests completed in 0.50 seconds\n  50 parallel clients\n"), "{text}");
        assert!(text.contains("10.000% <= 1.000 milliseconds (cumulative count 100)\n"), "{text}");
        assert!(text.contains("100.000% <= 10.000 milliseconds (cumulative count 1000)\n"), "{text}");
        assert_eq!(text.matches("(cumulative count 1000)").count(), 3, "{text}");
        assert!(text.contains("throughput summary: 2000.00 requests per second"), "{text}");
        assert!(!text.contains("server process"));
    }

    #[test]
    fn percentiles_are_hdr_histograms_text() {
        let text = percentiles(&outcome().latencies);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        assert!(lines.iter().any(|line| line[..] == ["5.001", "0.500000000000", "500", "2.00"]), "{text}");
        assert!(text.contains(" 1.000000000000       1000            inf\n"), "{text}");
        assert!(text.contains(", Total count    =         1000]\n"), "{text}");
        // Three digits need 2,048 counters.
        assert!(text.ends_with(", SubBuckets     =         2048]\n"), "{text}");
    }

    #[test]
    fn boundaries_cover_the_maximum() {
        assert_eq!(boundaries(50_000).collect::<Vec<_>>(), [100_000]);
        assert_eq!(boundaries(2_000_001).last(), Some(3_000_000));
        assert_eq!(boundaries(2_000_001).count(), 21);
    }
}
