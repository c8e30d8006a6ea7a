//! The texts of LATENCY for people.

use std::fmt::Write as _;

use statistics::latency_monitor::Series;

/// Columns of a graph, one for each sample.
const COLUMNS: usize = 80;
/// Rows of a graph.
const ROWS: usize = 4;

/// Draws the latest samples of an event as columns, each above its age.
pub(super) fn graph(event: &str, series: &Series, now_s: u64) -> String {
    let samples: Vec<_> = series.samples.iter().skip(series.samples.len().saturating_sub(COLUMNS)).collect();
    let high = samples.iter().map(|s| s.took_ms).max().unwrap_or(0);
    let low = samples.iter().map(|s| s.took_ms).min().unwrap_or(0);
    let mut text = format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", series.max_ms);
    text.push_str(&"-".repeat(COLUMNS));
    text.push('\n');
    for row in (1..=ROWS).rev() {
        let cell =
            |took_ms: u64| if took_ms as u128 * ROWS as u128 > high as u128 * (row - 1) as u128 { '#' } else { ' ' };
        let line: String = samples.iter().map(|s| cell(s.took_ms)).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let ages: Vec<Vec<char>> = samples.iter().map(|s| age(now_s.saturating_sub(s.time_s)).chars().collect()).collect();
    for row in 0..ages.iter().map(Vec::len).max().unwrap_or(0) {
        let line: String = ages.iter().map(|age| age.get(row).copied().unwrap_or(' ')).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Formats a duration in its greatest unit, for example "15s" or "3h".
fn age(seconds: u64) -> String {
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm'), (1, 's')];
    let unit = units.iter().find(|(size, _)| seconds >= *size).unwrap_or(&(1, 's'));
    format!("{}{}", seconds / unit.0, unit.1)
}

/// Returns a report on all events.
pub(super) fn report(threshold_ms: i64, all: &[(&'static str, Series)]) -> String {
    if threshold_ms == 0 && all.is_empty() {
        return "The latency monitor is off. To switch it on, say from how many milliseconds on a moment is slow: \
                CONFIG SET latency-monitor-threshold <milliseconds>.\n"
            .into();
    }
    if all.is_empty() {
        return format!("Nothing has taken {threshold_ms} ms or longer since the last LATENCY RESET.\n");
    }
    let mut text = String::from("These moments were slow:\n\n");
    for (i, (event, series)) in all.iter().enumerate() {
        let _ = writeln!(text, "{}. {event}: {}", i + 1, summary(series));
    }
    text.push_str("\nWhat helps:\n\n");
    if all.iter().any(|(event, _)| event.ends_with("command")) {
        text.push_str(
            "- SLOWLOG GET shows the commands that took longest, if slowlog-log-slower-than is low enough.\n",
        );
        text.push_str("- Commands that walk whole collections (KEYS, SMEMBERS, LRANGE 0 -1, SORT) take longer the more they hold; the SCAN family walks in small steps.\n");
    }
    if all.iter().any(|(event, _)| event.ends_with("cycle")) {
        text.push_str("- Many keys that expire at one moment, or large ones, are better spread over time.\n");
    }
    if all.iter().any(|(event, _)| event.starts_with("reply-")) {
        text.push_str(
            "- Replies that clients don't read wait on disk: INFO replies says how many, CLIENT LIST whose (spill). A \
             client that reads while it writes needs no disk; a faster one behind reply-spill-dir helps those that \
             don't.\n",
        );
    }
    text.push_str("- A machine that swaps, or has fewer cores than --threads says, slows everything down.\n");
    text
}

fn summary(series: &Series) -> String {
    let count = series.samples.len() as u64;
    let mean = |sum: u64| sum / count.max(1);
    let average = mean(series.samples.iter().map(|s| s.took_ms).sum());
    let deviation = mean(series.samples.iter().map(|s| s.took_ms.abs_diff(average)).sum());
    let first = series.samples.front().map_or(0, |s| s.time_s);
    let last = series.samples.back().map_or(0, |s| s.time_s);
    let period = (last - first) as f64 / count.saturating_sub(1).max(1) as f64;
    format!(
        "{count} slow moments (average {average} ms, mean deviation {deviation} ms, period {period:.2} s); \
         the slowest ever {} ms.",
        series.max_ms
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::latency_monitor::Sample;

    fn series(samples: &[(u64, u64)]) -> Series {
        let samples = samples.iter().map(|&(time_s, took_ms)| Sample { time_s, took_ms });
        Series { samples: samples.collect(), max_ms: 90 }
    }

    #[test]
    fn a_graph_has_a_column_a_sample() {
        let drawn = graph("command", &series(&[(0, 10), (40, 20), (95, 40)]), 100);
        let expected = format!(
            "command - high 40 ms, low 10 ms (all time high 90 ms)\n{}\n  #\n  #\n ##\n###\n115\nmms\n",
            "-".repeat(80)
        );
        assert_eq!(drawn, expected);
        assert!(graph("x", &Series::default(), 0).starts_with("x - high 0 ms"));
    }

    #[test]
    fn a_report_lists_all_events() {
        assert!(report(0, &[]).contains("is off"));
        assert!(report(5, &[]).contains("5 ms"));
        let text = report(5, &[("command", series(&[(10, 10), (20, 20)]))]);
        assert!(
            text.contains("1. command: 2 slow moments (average 15 ms, mean deviation 5 ms, period 10.00 s)"),
            "{text}"
        );
        assert!(text.contains("SLOWLOG") && !text.contains("expire") && !text.contains("reply-spill-dir"), "{text}");
        assert!(report(5, &[("reply-spill-write", series(&[(10, 10)]))]).contains("reply-spill-dir"));
    }
}
