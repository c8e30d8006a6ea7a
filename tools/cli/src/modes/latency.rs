//! `--latency` and `--latency-history`: how long a PING takes.

use super::{ask_patiently, pause};
use crate::failure::Failure;
use crate::format::ReplyFormat;
use crate::session::CliSession;
use std::time::{Duration, Instant};

/// Between two PINGs.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// How long a line of the history lasts.
const HISTORY_INTERVAL: Duration = Duration::from_secs(15);

/// How long samples are taken where no terminal shows them.
const PIPE_INTERVAL: Duration = Duration::from_secs(1);

/// Goes to the start of a terminal's line and clears it.
const CLEAR_LINE: &str = "\x1b[0G\x1b[2K";

/// What the samples of an interval have shown.
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

    /// The samples in milliseconds, as the form wants them.
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

/// Shows latencies: on a terminal for ever; elsewhere a line after one interval, or with `history` a line after each.
///
/// # Errors
/// [`Failure`].
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

/// How long a PING takes; with the time until the server is back, if it is gone.
///
/// # Errors
/// [`Failure`].
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
