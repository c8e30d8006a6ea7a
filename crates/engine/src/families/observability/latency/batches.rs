//! LATENCY BATCHES: the times of batches by class of depth, with their parts.

use commands::error::{Error, Outcome};
use statistics::batch_times::{BatchHistograms, ClassSummary, Summary, summaries};
use statistics::histogram::Distribution;
use statistics::ticks::{per_microsecond, to_microseconds};

use crate::state::Engine;
use crate::worker::turn::Turn;

/// The percentiles in replies and in INFO.
pub(crate) const PERCENTILES: [(&str, f64); 3] = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)];
/// Number of steps, each twice as large as the one before; the first is a microsecond, the last more than an hour.
const STEPS: u32 = 33;

/// Returns the batches of all threads.
pub(crate) fn of_all(engine: &Engine) -> Vec<ClassSummary> {
    let all: Vec<&BatchHistograms> = engine.stats.iter().map(|stats| &stats.batch_times).collect();
    summaries(&all)
}

pub(super) fn batches(turn: &mut Turn<'_, '_>) -> Outcome {
    match turn.len() {
        2 => {}
        3 if turn.arg(2).eq_ignore_ascii_case(b"reset") => {
            turn.engine().stats.iter().for_each(|stats| stats.batch_times.reset());
            turn.reply.ok();
            return Ok(());
        }
        _ => return Err(Error::SYNTAX),
    }
    let classes = of_all(turn.engine());
    turn.reply.map(classes.len());
    for class in classes {
        turn.reply.bulk(class.depth);
        turn.reply.map(1 + class.parts.len());
        turn.reply.bulk("batches");
        turn.reply.int(class.batches as i64);
        class.parts.iter().for_each(|part| write_part(turn, part));
    }
    Ok(())
}

fn write_part(turn: &mut Turn<'_, '_>, part: &Summary) {
    turn.reply.bulk(part.name);
    turn.reply.map(PERCENTILES.len() + 2);
    turn.reply.bulk("usec");
    turn.reply.int(part.sum_us.round() as i64);
    for (name, percent) in PERCENTILES {
        turn.reply.bulk(name);
        turn.reply.double(rounded(to_microseconds(part.durations.percentile(percent))));
    }
    turn.reply.bulk("histogram_usec");
    let steps = steps(&part.durations);
    turn.reply.map(steps.len());
    for (us, count) in steps {
        turn.reply.int(us as i64);
        turn.reply.int(count as i64);
    }
}

/// Rounds to nanoseconds.
fn rounded(us: f64) -> f64 {
    (us * 1000.0).round() / 1000.0
}

/// Returns the steps at which a cumulative distribution grows: powers of two in microseconds, and the number of batches
/// up to that duration.
fn steps(distribution: &Distribution) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for us in (0..STEPS).map(|doubling| 1_u64 << doubling) {
        let count = distribution.count_up_to((us as f64 * per_microsecond()) as u64);
        if count > steps.last().map_or(0, |&(_, count)| count) {
            steps.push((us, count));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    fn ticks(us: f64) -> u64 {
        (us * per_microsecond()) as u64
    }

    #[test]
    fn parts_are_shown_by_depth_and_reset() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[("LATENCY BATCHES", "*0"), ("LATENCY BATCHES all", "-ERR syntax error")]);
        let times = &bench.worker.engine.stats[0].batch_times;
        times.record(20, &[ticks(3.0), ticks(100.0), 0, 0, 0]);
        times.record(20, &[0, ticks(100.0), ticks(3000.0), 0, 0]);
        let reply = bench.line(&mut session, "LATENCY BATCHES");
        let (_, parts) = reply.split_once("|$6|16-127|*14|$7|batches|:2|$5|total|").unwrap();
        assert!(parts.contains("|$14|histogram_usec|*4|:128|:1|:4096|:2|$4|turn|"), "{parts}");
        assert!(parts.contains("|$4|disk|*10|$4|usec|:3000|$3|p50|$1|0|$3|p99|"), "{parts}");
        let all_zero = "|$8|replicas|*10|$4|usec|:0|$3|p50|$1|0|$3|p99|$1|0|$5|p99.9|$1|0|$14|histogram_usec|*2|:1|:2|";
        assert!(parts.contains(all_zero), "{parts}");
        let info = bench.line(&mut session, "INFO batches");
        assert!(info.contains("|batches_16-127:count=2|"), "{info}");
        assert!(info.contains("|batches_usec_16-127_disk:p50=0.000,p99=3"), "{info}");
        bench.check(&mut session, &[("LATENCY BATCHES reset", "+OK")]);
        let left = bench.line(&mut session, "LATENCY BATCHES");
        assert!(left.starts_with("*2|$1|1|*14|$7|batches|:1|"), "only the reset: {left}");
    }
}
