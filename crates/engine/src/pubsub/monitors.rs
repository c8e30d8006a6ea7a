//! The connections with MONITOR, and their filters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::random::Random;

use super::{Audience, Subscriber};
use crate::slow_path::{EngineFlags, MONITORED};

/// The filter of a monitor with options. An empty list matches everything.
#[derive(Clone, Debug, Default)]
pub struct MonitorFilter {
    /// One command in `sample` is shown, chosen at random; 1 shows each.
    pub sample: u32,
    /// Patterns; a key of the command must match one of them.
    pub patterns: Vec<Box<[u8]>>,
    /// Numbers of commands and containers.
    pub commands: Vec<usize>,
    /// The connections to show.
    pub clients: ClientChoice,
    /// True if a line is shown at the start of each batch.
    pub batches: bool,
    /// True if replies are shown.
    pub replies: bool,
}

/// A choice of connections: all conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct ClientChoice {
    /// The connection's number is one of these.
    pub ids: Vec<u64>,
    /// The client's address.
    pub addr: Option<Box<[u8]>>,
    /// The server's address.
    pub laddr: Option<Box<[u8]>>,
    /// The connection's name.
    pub name: Option<Box<[u8]>>,
    /// The user.
    pub user: Option<Box<[u8]>>,
}

/// A monitor with a filter.
#[derive(Clone)]
pub(crate) struct Chooser {
    /// A unique number, also among earlier monitors of the same connection.
    pub serial: u64,
    /// The connection.
    pub subscriber: Subscriber,
    /// The filter.
    pub filter: MonitorFilter,
}

impl Chooser {
    /// Returns its bit in a batch's set of notified monitors. Beyond 64, monitors share bits.
    pub fn bit(&self) -> u64 {
        1 << (self.serial % 64)
    }

    /// Returns an audience of only this monitor.
    pub fn audience(&self) -> Audience {
        let mut audience = Audience::default();
        audience.add(self.subscriber);
        audience
    }
}

/// All connections with MONITOR.
pub struct Monitors {
    shown: Mutex<Shown>,
    count: AtomicUsize,
    /// Number of changes.
    version: AtomicU64,
    slow_path: Arc<EngineFlags>,
}

/// The monitors, and the time of the last line.
#[derive(Default)]
pub(crate) struct Shown {
    /// The connections without a filter.
    pub audience: Audience,
    /// The monitors with a filter. Threads have copies.
    pub choosers: Arc<Vec<Chooser>>,
    /// Number of filters so far.
    serial: u64,
    /// Time of the last line. Threads' clocks differ slightly, and the next line must not be older.
    pub last_us: u64,
}

impl Shown {
    /// Adds a connection with a filter.
    pub fn add(&mut self, subscriber: Subscriber, filter: MonitorFilter) {
        self.serial += 1;
        Arc::make_mut(&mut self.choosers).push(Chooser { serial: self.serial, subscriber, filter });
    }

    /// Removes a connection.
    pub fn remove(&mut self, subscriber: Subscriber) {
        self.audience.remove(subscriber);
        if self.choosers.iter().any(|chooser| chooser.subscriber == subscriber) {
            Arc::make_mut(&mut self.choosers).retain(|chooser| chooser.subscriber != subscriber);
        }
    }

    fn len(&self) -> usize {
        self.audience.len() + self.choosers.len()
    }
}

impl Monitors {
    /// Creates an empty set.
    #[must_use]
    pub fn new(slow_path: Arc<EngineFlags>) -> Monitors {
        Monitors { shown: Mutex::default(), count: AtomicUsize::new(0), version: AtomicU64::new(0), slow_path }
    }

    /// Returns the number of monitors.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns true if there are no monitors.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks the monitors.
    pub(crate) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the set of monitors.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Shown)) {
        let mut shown = self.shown();
        change(&mut shown);
        self.count.store(shown.len(), Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        // Under the lock on `shown`, so that the flag agrees with the latest change.
        self.slow_path.set(MONITORED, shown.len() > 0);
    }
}

/// A thread's copy of the monitors, to read the filters without a lock, and its sampling of commands.
///
/// If all monitors want samples, a thread draws the number of requests until the next sample; those run as if there
/// were no monitor.
pub(crate) struct LocalMonitors {
    version: u64,
    /// True if there are monitors without a filter.
    pub shows_all: bool,
    /// The monitors with a filter.
    pub choosers: Arc<Vec<Chooser>>,
    /// The smallest sample interval of all monitors.
    sample: u32,
    /// Number of requests until the next sample.
    until: u64,
    /// Mask of the engine's slow-path flags for the present commands.
    mask: u64,
}

impl Default for LocalMonitors {
    fn default() -> LocalMonitors {
        LocalMonitors { version: 0, shows_all: false, choosers: Arc::default(), sample: 1, until: 0, mask: u64::MAX }
    }
}

impl LocalMonitors {
    /// Returns the mask of the engine's slow-path flags: without the monitor flag while commands are skipped.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Takes over changes of the monitors.
    #[inline]
    pub fn follow(&mut self, monitors: &Monitors) {
        let version = monitors.version.load(Ordering::Acquire);
        if version != self.version {
            self.learn(monitors);
        }
    }

    #[cold]
    fn learn(&mut self, monitors: &Monitors) {
        let shown = monitors.shown();
        self.version = monitors.version.load(Ordering::Acquire);
        self.shows_all = !shown.audience.is_empty();
        self.choosers = Arc::clone(&shown.choosers);
        let smallest = self.choosers.iter().map(|chooser| chooser.filter.sample).min();
        let sample = if self.shows_all { 1 } else { smallest.unwrap_or(1).max(1) };
        if sample != self.sample {
            (self.sample, self.until) = (sample, 0);
        }
    }

    /// Returns true if a monitor wants batch lines and sees the present commands.
    pub fn wants_batches(&self) -> bool {
        self.mask & MONITORED != 0 && self.choosers.iter().any(|chooser| chooser.filter.batches)
    }

    /// Returns the number of requests to run next, `max` at most: either all of them are sampled or all are skipped.
    pub fn window(&mut self, max: usize) -> usize {
        let passes_over = self.sample > 1 && self.until > 0;
        self.mask = if passes_over { !MONITORED } else { u64::MAX };
        match self.sample {
            0 | 1 => max,
            _ if passes_over => usize::try_from(self.until).map_or(max, |until| until.min(max)),
            _ => 1,
        }
    }

    /// Notes that this many requests have run.
    pub fn passed(&mut self, requests: u32, random: &mut Random) {
        if self.until > 0 {
            self.until = self.until.saturating_sub(requests.into());
        } else if requests > 0 && self.sample > 1 {
            // Uniform from 0 to twice the mean, so that one in `sample` is shown on average, and never in step with a
            // client's loop.
            self.until = random.next() % (2 * u64::from(self.sample) - 1);
        }
    }

    /// Returns true if a sampled command is also a sample for this monitor.
    pub fn draws(&self, chooser: &Chooser, random: &mut Random) -> bool {
        let sample = u64::from(chooser.filter.sample);
        sample == u64::from(self.sample) || (random.next() >> 32) * sample < u64::from(self.sample) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::reply::Proto;

    fn monitors(samples: &[u32]) -> LocalMonitors {
        let monitors = Monitors::new(Arc::default());
        for (client, sample) in samples.iter().enumerate() {
            let subscriber = Subscriber { client: client as u64, worker: 0, proto: Proto::Resp2 };
            monitors
                .change(|shown| shown.add(subscriber, MonitorFilter { sample: *sample, ..MonitorFilter::default() }));
        }
        let mut local = LocalMonitors::default();
        local.follow(&monitors);
        local
    }

    /// Returns the number of requests out of a million, in windows of 64 at most, that each monitor is shown, and the
    /// number of windows.
    fn shown(samples: &[u32]) -> (Vec<u32>, u32) {
        let (mut local, mut random) = (monitors(samples), Random::new(7));
        let (mut counts, mut windows, mut run) = (vec![0; samples.len()], 0, 0);
        while run < 1_000_000 {
            let window = local.window(64);
            if local.mask() & MONITORED != 0 {
                for _ in 0..window {
                    for (count, chooser) in counts.iter_mut().zip(local.choosers.iter()) {
                        *count += u32::from(local.draws(chooser, &mut random));
                    }
                }
            }
            local.passed(window as u32, &mut random);
            (windows, run) = (windows + 1, run + window);
        }
        (counts, windows)
    }

    #[test]
    fn sample_rates_are_independent() {
        let near = |count: u32, expected: u32| assert!(count.abs_diff(expected) * 10 < expected, "{count} {expected}");
        let (counts, windows) = shown(&[1000]);
        near(counts[0], 1000);
        assert!(windows < 1_000_000 / 64 + 2 * 1100, "{windows}");
        let (counts, _) = shown(&[100, 1000, 100]);
        assert_eq!(counts[0], counts[2]);
        near(counts[0], 10_000);
        near(counts[1], 1000);
        let (counts, windows) = shown(&[1, 500]);
        assert_eq!((counts[0], windows), (1_000_000, 1_000_000 / 64));
        near(counts[1], 2000);
    }
}
