//! `--latency` and `--latency-history`: measure the duration of PING.

use super::{ask_patiently, pause};
use crate::failure::Failure;
use crate::format::ReplyFormat;
use crate::session::CliSession;
use std::time::{Duration, Instant};

/// Interval between two PINGs.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Default duration of a line of the history.
const HISTORY_INTERVAL: Duration = Duration::from_secs(15);

/// Default duration of sampling if the output is no terminal.
const PIPE_INTERVAL: Duration = Duration::from_secs(1);

/// Moves the cursor to the start of the line and clears it.
const CLEAR_LINE: &str = "\x1b[0G\x1b[2K";

/// Samples of an interval.
#[derive(Default)]
struct Samples {
    min: Duration,
    max: Duration,
    total: Duration,
    count: u32,
}

impl Samples {
    fn add(&mut self, time: Duration) {
        self.min = if self.count == 0 { time } else { self.min.min(time) };
        self.max = self.max.max(time);
        self.total += time;
        self.count += 1;
    }

    /// Formats the samples in milliseconds.
    fn text(&self, form: ReplyFormat) -> String {
        let (min, max, count) = (self.min.as_millis(), self.max.as_millis(), self.count);
        let average = self.total.as_secs_f64() * 1000.0 / f64::from(count.max(1));
        match form {
            ReplyFormat::Standard => format!("min: {min}, max: {max}, avg: {average:.2} ({count} samples)"),
            ReplyFormat::Csv => format!("{min},{max},{average:.2},{count}\n"),
            ReplyFormat::Raw => format!("{min} {max} {average:.2} {count}\n"),
            ReplyFormat::Json { .. } => {
                format!("{{\"min\": {min}, \"max\": {max}, \"avg\": {average:.2}, \"count\": {count}}}\n")
            }
        }
    }
}

/// Shows latencies: forever on a terminal. In a pipe it prints one line after an interval, or with `history` a line
/// after each interval.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>, history: bool) -> Result<(), Failure> {
    session.connect()?;
    let form = session.options.style.form;
    let interval = session.options.interval.unwrap_or(if history { HISTORY_INTERVAL } else { PIPE_INTERVAL });
    let mut samples = Samples::default();
    let mut start = Instant::now();
    loop {
        samples.add(ping(session)?);
        let is_over = start.elapsed() > interval;
        if form == ReplyFormat::Standard {
            session.output.print(format!("{CLEAR_LINE}{}", samples.text(form)))?;
        } else if is_over {
            session.output.print(samples.text(form))?;
        }
        if is_over && form != ReplyFormat::Standard && !history {
            return Ok(());
        }
        if is_over && history {
            if form == ReplyFormat::Standard {
                session.output.print(format!(" -- {:.2} seconds range\n", start.elapsed().as_secs_f64()))?;
            }
            samples = Samples::default();
            start = Instant::now();
        }
        pause(session, SAMPLE_INTERVAL)?;
    }
}

/// Measures the duration of a PING. If the server is gone, the time until it is back is included.
///
/// # Errors
/// Returns [`Failure`].
pub fn ping(session: &mut CliSession<'_>) -> Result<Duration, Failure> {
    let start = Instant::now();
    ask_patiently(session, &["PING"])?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_up() {
        let mut samples = Samples::default();
        [1500, 500, 4000].iter().for_each(|micros| samples.add(Duration::from_micros(*micros)));
        assert_eq!(samples.text(ReplyFormat::Standard), "min: 0, max: 4, avg: 2.00 (3 samples)");
        assert_eq!(samples.text(ReplyFormat::Csv), "0,4,2.00,3\n");
        assert_eq!(samples.text(ReplyFormat::Raw), "0 4 2.00 3\n");
        let json = samples.text(ReplyFormat::Json { quoted: false });
        assert_eq!(json, "{\"min\": 0, \"max\": 4, \"avg\": 2.00, \"count\": 3}\n");
    }
}
