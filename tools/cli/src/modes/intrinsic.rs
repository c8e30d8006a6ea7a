//! `--intrinsic-latency`: measures the delays that the machine causes in a busy process.

use crate::failure::Failure;
use crate::session::CliSession;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of work between two clock reads. They take far less than a microsecond.
const STEPS: u64 = 10;

/// Keeps the processor busy for `time`, or until Ctrl-C, and prints the longest gaps.
///
/// # Errors
/// Returns errors of standard output.
pub fn run(session: &mut CliSession<'_>, time: Duration) -> Result<(), Failure> {
    // Ctrl-C ends only the measurement, and the report follows. Without a handler, Ctrl-C ends both.
    let _ = session.interrupt.watch();
    let start = Instant::now();
    let (mut runs, mut max, mut last) = (0u64, Duration::ZERO, start);
    loop {
        work();
        let now = Instant::now();
        let gap = now - last;
        last = now;
        runs += 1;
        if gap > max && gap.as_micros() > max.as_micros() {
            session.output.print(format!("Max latency so far: {} microseconds.\n", gap.as_micros()))?;
            session.output.flush()?;
            // The time of printing isn't a gap.
            last = Instant::now();
        }
        max = max.max(gap);
        if now - start >= time || session.interrupt.take() {
            break;
        }
    }
    let average = start.elapsed().as_secs_f64() / runs as f64;
    session.output.print(format!(
        "\n{runs} total runs (avg latency: {:.4} microseconds / {:.2} nanoseconds per run).\n\
         Worst run took {:.0}x longer than the average latency.\n",
        average * 1e6,
        average * 1e9,
        max.as_secs_f64() / average,
    ))?;
    Ok(())
}

/// Does a little work that the compiler can't remove.
fn work() {
    let mut state = 0u64;
    for step in 0..STEPS {
        state = black_box(state.rotate_left(5) ^ step);
    }
}
