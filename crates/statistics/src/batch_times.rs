//! The times of batches: how long each waited for a turn, ran, and waited for the disk, replicas and its client.
//!
//! Each thread records its own batches, by class of depth. A part that took no time leaves no record of its own: the
//! number of batches tells how many those are.

use crate::histogram::{Distribution, Histogram};
use crate::stats::Counter;
use crate::ticks::to_microseconds;

/// A part of a batch's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Part {
    /// The batch waits for the thread: for commands of other connections, for a pause, for room in an inbox.
    #[default]
    Turn = 0,
    /// Its commands run.
    Execution = 1,
    /// Its replies, or its next commands, wait for the append-only file.
    Disk = 2,
    /// Its replies wait for acknowledgements of replicas.
    Replicas = 3,
    /// Its replies, or its next commands, wait until the client reads earlier replies.
    Client = 4,
}

/// Number of parts.
pub const PARTS: usize = 5;

impl Part {
    /// All parts, in order.
    pub const ALL: [Part; PARTS] = [Part::Turn, Part::Execution, Part::Disk, Part::Replicas, Part::Client];

    /// Returns the name in replies and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Turn => "turn",
            Part::Execution => "execution",
            Part::Disk => "disk",
            Part::Replicas => "replicas",
            Part::Client => "client",
        }
    }
}

/// The name of the sum of all parts.
pub const TOTAL: &str = "total";

/// The time of each part of one batch, in ticks.
pub type PartTicks = [u64; PARTS];

/// The least depth of each class, and the class's name.
const CLASSES: [(u32, &str); DEPTH_CLASSES] = [(1, "1"), (2, "2-15"), (16, "16-127"), (128, "128+")];

/// Number of classes of depth.
pub const DEPTH_CLASSES: usize = 4;

/// Returns the index of the class of batches with this many commands.
#[inline]
fn class_of(depth: u32) -> usize {
    usize::from(depth >= 2) + usize::from(depth >= 16) + usize::from(depth >= 128)
}

/// Durations, and their sum.
#[derive(Default, Debug)]
struct Durations {
    histogram: Histogram,
    ticks: Counter,
}

impl Durations {
    #[inline]
    fn record(&self, ticks: u64) {
        self.histogram.record(&[ticks]);
        self.ticks.add(ticks);
    }

    fn reset(&self) {
        self.histogram.reset();
        self.ticks.reset();
    }
}

/// The batches of one class of depth.
#[derive(Default, Debug)]
struct ClassTimes {
    total: Durations,
    parts: [Durations; PARTS],
}

impl ClassTimes {
    fn all(&self) -> impl Iterator<Item = &Durations> {
        std::iter::once(&self.total).chain(&self.parts)
    }
}

/// The batches of one thread.
#[derive(Default, Debug)]
pub struct BatchHistograms([ClassTimes; CLASSES.len()]);

impl BatchHistograms {
    /// Records a batch. Only the owning thread calls this.
    #[inline]
    pub fn record(&self, depth: u32, parts: &PartTicks) {
        let Some(class) = self.0.get(class_of(depth)) else { return };
        class.total.record(parts.iter().sum());
        for (durations, &ticks) in class.parts.iter().zip(parts) {
            if ticks > 0 {
                durations.record(ticks);
            }
        }
    }

    /// Removes all records.
    pub fn reset(&self) {
        self.0.iter().flat_map(ClassTimes::all).for_each(Durations::reset);
    }
}

/// The durations of one part, or of whole batches.
pub struct Summary {
    /// The part's name, or [`TOTAL`].
    pub name: &'static str,
    /// Sum of the durations, in microseconds.
    pub sum_us: f64,
    /// The durations, in ticks. Batches without this part count as zero.
    pub durations: Distribution,
}

/// The batches of one class of depth, of several threads.
pub struct ClassSummary {
    /// The class's name, for example `2-15`.
    pub depth: &'static str,
    /// Number of batches.
    pub batches: u64,
    /// The whole time first, then the parts in order.
    pub parts: Vec<Summary>,
}

/// The batches of one class of depth without their distributions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassSums {
    /// The class's name, for example `2-15`.
    pub depth: &'static str,
    /// Number of batches.
    pub batches: u64,
    /// Sum of each part in microseconds.
    pub parts_us: [f64; PARTS],
}

/// Returns the present sums over threads of every class, from the least depth on.
#[must_use]
pub fn sums(all: &[&BatchHistograms]) -> [ClassSums; DEPTH_CLASSES] {
    std::array::from_fn(|class| {
        let threads: Vec<&ClassTimes> = all.iter().filter_map(|histograms| histograms.0.get(class)).collect();
        let batches = Distribution::of(threads.iter().map(|times| &times.total.histogram)).count();
        let ticks = |part: usize| -> u64 {
            threads.iter().filter_map(|times| times.parts.get(part)).map(|part| part.ticks.get()).sum()
        };
        let parts_us = std::array::from_fn(|part| to_microseconds(ticks(part)));
        ClassSums { depth: CLASSES[class].1, batches, parts_us }
    })
}

/// Sums the durations of several threads.
fn summary<'d>(name: &'static str, durations: impl Iterator<Item = &'d Durations> + Clone) -> Summary {
    let sum_us = to_microseconds(durations.clone().map(|durations| durations.ticks.get()).sum());
    Summary { name, sum_us, durations: Distribution::of(durations.map(|durations| &durations.histogram)) }
}

/// Returns the present sums over threads, for each class that has batches.
#[must_use]
pub fn summaries(all: &[&BatchHistograms]) -> Vec<ClassSummary> {
    let classes = CLASSES.iter().enumerate().filter_map(|(class, &(_, depth))| {
        let threads = all.iter().filter_map(|histograms| histograms.0.get(class));
        let total = summary(TOTAL, threads.clone().map(|times| &times.total));
        let batches = total.durations.count();
        if batches == 0 {
            return None;
        }
        let mut parts = Vec::with_capacity(1 + PARTS);
        parts.push(total);
        for part in Part::ALL {
            let recorded = summary(part.name(), threads.clone().filter_map(|times| times.parts.get(part as usize)));
            let zeros = batches.saturating_sub(recorded.durations.count());
            parts.push(Summary { durations: recorded.durations.with_zeros(zeros), ..recorded });
        }
        Some(ClassSummary { depth, batches, parts })
    });
    classes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_at_their_least_depth() {
        for (class, (least, _)) in CLASSES.iter().enumerate() {
            assert_eq!((class_of(*least), class_of(least - 1)), (class, class.saturating_sub(1)));
        }
        assert_eq!(class_of(u32::MAX), CLASSES.len() - 1);
    }

    #[test]
    fn threads_are_summed_and_absent_parts_are_zero() {
        let [a, b] = <[BatchHistograms; 2]>::default();
        assert!(summaries(&[&a, &b]).is_empty());
        (0..9).for_each(|_| a.record(1, &[5, 100, 0, 0, 0]));
        b.record(1, &[5, 100, 1_000_000, 0, 0]);
        b.record(200, &[0, 0, 0, 0, 7]);
        let all = summaries(&[&a, &b]);
        assert_eq!(all.iter().map(|class| (class.depth, class.batches)).collect::<Vec<_>>(), [("1", 10), ("128+", 1)]);
        let part = |name: &str| all[0].parts.iter().find(|part| part.name == name).unwrap();
        let at = |name: &str, percent: f64| part(name).durations.percentile(percent);
        assert_eq!((at("disk", 50.0), at("disk", 90.0), at("replicas", 100.0)), (0, 0, 0));
        assert!((1_000_000..1_070_000).contains(&at("disk", 99.0)), "{}", at("disk", 99.0));
        assert!((105..112).contains(&at(TOTAL, 50.0)), "{}", at(TOTAL, 50.0));
        assert!(all[0].parts.iter().all(|part| part.durations.count() == 10));
        let sums: f64 = all[0].parts[1..].iter().map(|part| part.sum_us).sum();
        assert!((sums - part(TOTAL).sum_us).abs() < 1e-6, "the parts sum to the whole");
        let short = super::sums(&[&a, &b]);
        assert_eq!(
            short.map(|class| (class.depth, class.batches)),
            [("1", 10), ("2-15", 0), ("16-127", 0), ("128+", 1)]
        );
        assert_eq!(short[0].parts_us.map(|us| us > 0.0), [true, true, true, false, false]);
        assert!((short[0].parts_us.iter().sum::<f64>() - sums).abs() < 1e-6);
        a.reset();
        assert_eq!(summaries(&[&a, &b])[0].batches, 1);
    }
}
