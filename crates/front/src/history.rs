//! The recent history of the server's figures, for the console's charts.
//!
//! Three series cover ten minutes, three hours and a day. Each has a fixed number of points, so the memory is bounded:
//! about 1.3 megabytes. The module knows no clock; the caller passes the time.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use crate::json;

/// The interval of the points in seconds, and the number of points, of each series.
const SERIES: [(u64, usize); 3] = [(1, 600), (10, 1080), (60, 1440)];
/// Number of commands in a point: the ones that took the most time.
const COMMANDS_MAX: usize = 8;
/// The percentiles of the commands' durations in a point.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];
/// A sample that arrives this much early still ends an interval, because timers vary.
const TOLERANCE: Duration = Duration::from_millis(300);

/// Meaning of a figure's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A growing number, until a reset of the statistics. A point shows the growth per second.
    Counter,
    /// A present amount.
    Gauge,
}

/// A figure of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Name in the history.
    pub name: &'static str,
    /// Meaning of the value.
    pub kind: FigureKind,
    /// Present value.
    pub value: f64,
}

/// The counters of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandFigures {
    /// Name of the command.
    pub name: &'static str,
    /// Number of executions.
    pub calls: u64,
    /// Total duration in microseconds.
    pub total_us: f64,
}

/// The server's figures at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// All samples of a server have the same figures in the same order.
    pub figures: Vec<Figure>,
    /// The commands that ran so far.
    pub commands: Vec<CommandFigures>,
    /// Histogram of the commands' durations: upper bounds in microseconds, ascending, with the number of commands.
    pub durations: Vec<(f64, u64)>,
}

/// Figures of an interval.
#[derive(Debug)]
struct Point {
    /// End of the interval, in seconds of Unix time.
    at_s: u64,
    values: Box<[f32]>,
    /// Percentiles in microseconds; not a number if no command ran.
    percentiles: [f32; PERCENTILES.len()],
    commands: Box<[CommandRate]>,
}

#[derive(Debug)]
struct CommandRate {
    name: &'static str,
    calls_per_s: f32,
    us_per_s: f32,
}

/// Points at one interval.
#[derive(Debug)]
struct Series {
    interval: Duration,
    points_max: usize,
    /// The sample at the end of the last point, with its time.
    before: Option<(Duration, Rc<Sample>)>,
    points: VecDeque<Point>,
}

impl Series {
    fn add(&mut self, now: Duration, at_s: u64, sample: &Rc<Sample>) {
        if let Some((then, before)) = &self.before {
            let elapsed = now.saturating_sub(*then);
            if elapsed + TOLERANCE < self.interval {
                return;
            }
            if self.points.len() == self.points_max {
                self.points.pop_front();
            }
            self.points.push_back(Point::between(before, sample, at_s, elapsed.as_secs_f64().max(1e-3)));
        }
        self.before = Some((now, sample.clone()));
    }

    fn span_s(&self) -> u64 {
        self.interval.as_secs() * self.points_max as u64
    }
}

impl Point {
    fn between(before: &Sample, now: &Sample, at_s: u64, elapsed_s: f64) -> Point {
        let values = now.figures.iter().enumerate().map(|(index, figure)| match figure.kind {
            FigureKind::Gauge => figure.value as f32,
            FigureKind::Counter => {
                let earlier = before.figures.get(index).map_or(0.0, |figure| figure.value);
                (growth(earlier, figure.value) / elapsed_s) as f32
            }
        });
        let (values, durations) = (values.collect(), durations_between(before, now));
        let percentiles = PERCENTILES.map(|percent| percentile(&durations, percent).map_or(f32::NAN, |us| us as f32));
        Point { at_s, values, percentiles, commands: rates(before, now, elapsed_s) }
    }
}

/// Growth of a counter. A smaller value than before means that the counter restarted from zero.
fn growth(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

fn rates(before: &Sample, now: &Sample, elapsed_s: f64) -> Box<[CommandRate]> {
    let earlier: HashMap<&str, &CommandFigures> =
        before.commands.iter().map(|figures| (figures.name, figures)).collect();
    let rate = |figures: &CommandFigures| {
        let (calls, total_us) = earlier.get(figures.name).map_or((0, 0.0), |found| (found.calls, found.total_us));
        CommandRate {
            name: figures.name,
            calls_per_s: (growth(calls as f64, figures.calls as f64) / elapsed_s) as f32,
            us_per_s: (growth(total_us, figures.total_us) / elapsed_s) as f32,
        }
    };
    let mut rates: Vec<_> = now.commands.iter().map(rate).filter(|rate| rate.calls_per_s > 0.0).collect();
    rates.sort_by(|a, b| b.us_per_s.partial_cmp(&a.us_per_s).unwrap_or(Ordering::Equal));
    rates.truncate(COMMANDS_MAX);
    rates.into()
}

/// The histogram of the commands between two samples.
fn durations_between(before: &Sample, now: &Sample) -> Vec<(f64, u64)> {
    let mut earlier = before.durations.iter().peekable();
    let grown = now.durations.iter().map(|&(bound, count)| {
        while earlier.next_if(|&&(other, _)| other < bound).is_some() {}
        let counted = earlier.peek().filter(|&&&(other, _)| other == bound).map_or(0, |&&(_, count)| count);
        (bound, if count < counted { count } else { count - counted })
    });
    grown.filter(|&(_, count)| count > 0).collect()
}

/// The duration that `percent` percent of the commands don't exceed.
fn percentile(durations: &[(f64, u64)], percent: f64) -> Option<f64> {
    let total: u64 = durations.iter().map(|&(_, count)| count).sum();
    let rank = (percent / 100.0 * total as f64).ceil() as u64;
    let mut seen = 0;
    durations.iter().find_map(|&(bound, count)| {
        seen += count;
        (seen >= rank).then_some(bound)
    })
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct History {
    series: [Series; SERIES.len()],
    /// Names of the figures, from the last sample.
    names: Vec<&'static str>,
}

impl Default for History {
    fn default() -> History {
        let series = SERIES.map(|(seconds, points_max)| Series {
            interval: Duration::from_secs(seconds),
            points_max,
            before: None,
            points: VecDeque::new(),
        });
        History { series, names: Vec::new() }
    }
}

impl History {
    /// Adds a sample. `now` is the time of a monotonic clock, `at_s` the Unix time in seconds.
    pub(crate) fn add(&mut self, now: Duration, at_s: u64, sample: Sample) {
        self.names = sample.figures.iter().map(|figure| figure.name).collect();
        let sample = Rc::new(sample);
        self.series.iter_mut().for_each(|series| series.add(now, at_s, &sample));
    }

    /// Writes the points after the Unix time `since_s`, from the finest series that covers `span_s` seconds, as JSON.
    pub(crate) fn write(&self, span_s: u64, since_s: u64, out: &mut Vec<u8>) {
        let Some(series) = self.series.iter().find(|series| series.span_s() >= span_s).or(self.series.last()) else {
            return;
        };
        let names: Vec<String> = self.names.iter().map(|name| format!("\"{name}\"")).collect();
        let (step_s, names) = (series.interval.as_secs(), names.join(","));
        let percentiles = PERCENTILES.map(|percent| percent.to_string()).join(",");
        // Writing to memory can't fail.
        let _ = write!(out, "{{\"step\":{step_s},\"names\":[{names}],\"percentiles\":[{percentiles}],\"points\":[");
        let from = series.points.back().map_or(0, |last| last.at_s.saturating_sub(span_s)).max(since_s);
        let points = series.points.iter().filter(|point| point.at_s > from);
        for (index, point) in points.enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_point(point, out);
        }
        out.extend_from_slice(b"]}");
    }
}

fn write_point(point: &Point, out: &mut Vec<u8>) {
    let _ = write!(out, "[{},[", point.at_s);
    numbers(&point.values, out);
    out.extend_from_slice(b"],[");
    numbers(&point.percentiles, out);
    out.extend_from_slice(b"],[");
    for (index, command) in point.commands.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",[" } else { b"[" });
        json::text(command.name, out);
        out.push(b',');
        numbers(&[command.calls_per_s, command.us_per_s], out);
        out.push(b']');
    }
    out.extend_from_slice(b"]]");
}

/// JSON has no form for a value that is not a number.
fn numbers(values: &[f32], out: &mut Vec<u8>) {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let _ = if value.is_finite() { write!(out, "{value}") } else { write!(out, "null") };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(commands: f64, memory: f64, durations: &[(f64, u64)]) -> Sample {
        let figure = |name, kind, value| Figure { name, kind, value };
        let figures =
            vec![figure("commands", FigureKind::Counter, commands), figure("memory", FigureKind::Gauge, memory)];
        let get = CommandFigures { name: "get", calls: commands as u64, total_us: commands * 2.0 };
        Sample { figures, commands: vec![get], durations: durations.to_vec() }
    }

    fn written(history: &History, span_s: u64, since_s: u64) -> String {
        let mut out = Vec::new();
        history.write(span_s, since_s, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn counters_become_rates_and_gauges_stay() {
        let mut history = History::default();
        history.add(Duration::from_secs(1), 101, sample(10.0, 5.0, &[(1.0, 10)]));
        history.add(Duration::from_millis(3000), 103, sample(30.0, 7.0, &[(1.0, 20), (9.0, 10)]));
        let head = r#"{"step":1,"names":["commands","memory"],"percentiles":[50,99,99.9],"points":["#;
        assert_eq!(written(&history, 60, 0), format!(r#"{head}[103,[10,7],[1,9,9],[["get",10,20]]]]}}"#));
        assert_eq!(written(&history, 60, 103), format!("{head}]}}"));
        // A reset of the statistics is no negative rate, and an interval without commands has no percentiles.
        history.add(Duration::from_secs(4), 104, sample(4.0, 7.0, &[]));
        assert_eq!(written(&history, 60, 103), format!(r#"{head}[104,[4,7],[null,null,null],[["get",4,8]]]]}}"#));
    }

    #[test]
    fn the_span_selects_the_interval() {
        let mut history = History::default();
        for second in 0..=200_u64 {
            history.add(Duration::from_secs(second), 1000 + second, sample(second as f64 * 5.0, 1.0, &[]));
        }
        let points = |text: &str| text.matches("[[\"get\",5,10]]").count();
        assert_eq!(points(&written(&history, 60, 0)), 60);
        assert_eq!(points(&written(&history, 600, 0)), 200);
        assert_eq!(points(&written(&history, 10_800, 0)), 20);
        assert_eq!(points(&written(&history, 86_400, 0)), 3);
        assert!(written(&history, u64::MAX, 0).starts_with(r#"{"step":60,"#));
    }

    #[test]
    fn the_number_of_points_is_bounded() {
        let mut history = History::default();
        for second in 0..100_000_u64 {
            history.add(Duration::from_secs(second), second, sample(0.0, 1.0, &[]));
        }
        for (series, (_, points_max)) in history.series.iter().zip(SERIES) {
            assert_eq!(series.points.len(), points_max);
        }
    }

    #[test]
    fn percentiles_are_of_the_interval() {
        let before = sample(0.0, 0.0, &[(1.0, 100), (2.0, 5), (4.0, 1)]);
        let now = sample(0.0, 0.0, &[(1.0, 100), (2.0, 55), (3.0, 50), (4.0, 1)]);
        let durations = durations_between(&before, &now);
        assert_eq!(durations, [(2.0, 50), (3.0, 50)]);
        assert_eq!([0.0, 50.0, 50.1, 100.0].map(|p| percentile(&durations, p)), [2.0, 2.0, 3.0, 3.0].map(Some));
        assert_eq!(percentile(&[], 50.0), None);
    }
}
