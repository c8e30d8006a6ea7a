//! The connections that show what MONITOR shows, and what each of them has chosen to be shown.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::random::Random;

use super::{Audience, Subscriber};
use crate::reasons::{EngineReasons, MONITORED};

/// What a monitor with options is shown. An empty list leaves nothing out.
#[derive(Clone, Debug, Default)]
pub struct MonitorFilter {
    /// One command of so many, chosen at random; 1: each.
    pub sample: u32,
    /// A key of the command must match one of these patterns.
    pub patterns: Vec<Box<[u8]>>,
    /// Numbers of commands and of containers.
    pub commands: Vec<usize>,
    /// The connections that give them.
    pub clients: ClientChoice,
    /// True if a line is shown where a batch begins.
    pub batches: bool,
    /// True if replies are shown.
    pub replies: bool,
}

/// Which connections: those for which all of this holds.
#[derive(Clone, Debug, Default)]
pub struct ClientChoice {
    /// One of these numbers.
    pub ids: Vec<u64>,
    /// The client's address.
    pub addr: Option<Box<[u8]>>,
    /// The server's.
    pub laddr: Option<Box<[u8]>>,
    /// The connection's name.
    pub name: Option<Box<[u8]>>,
    /// The user.
    pub user: Option<Box<[u8]>>,
}

/// A monitor with options.
#[derive(Clone)]
pub(crate) struct Chooser {
    /// Tells it from others, earlier ones of the same connection included.
    pub serial: u64,
    /// The connection.
    pub subscriber: Subscriber,
    /// What it is shown.
    pub filter: MonitorFilter,
}

impl Chooser {
    /// Its bit among those of a batch that has been announced. More than 64 monitors share bits.
    pub fn bit(&self) -> u64 {
        1 << (self.serial % 64)
    }

    /// The audience that it is alone.
    pub fn audience(&self) -> Audience {
        let mut audience = Audience::default();
        audience.add(self.subscriber);
        audience
    }
}

/// The connections that show commands.
pub struct Monitors {
    shown: Mutex<Shown>,
    count: AtomicUsize,
    /// Changes with each that joins or leaves.
    version: AtomicU64,
    reasons: Arc<EngineReasons>,
}

/// What lines are shown to, and when the last was.
#[derive(Default)]
pub(crate) struct Shown {
    /// The connections that are shown all.
    pub audience: Audience,
    /// Those that have chosen. Threads have copies.
    pub choosers: Arc<Vec<Chooser>>,
    /// How many have chosen so far.
    serial: u64,
    /// The time of the last line: threads' clocks differ a little, and the next line must not be older.
    pub last_us: u64,
}

impl Shown {
    /// Adds a connection that has chosen what it is shown.
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
    /// None.
    #[must_use]
    pub fn new(reasons: Arc<EngineReasons>) -> Monitors {
        Monitors { shown: Mutex::default(), count: AtomicUsize::new(0), version: AtomicU64::new(0), reasons }
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks them.
    pub(crate) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds connections or removes some.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Shown)) {
        let mut shown = self.shown();
        change(&mut shown);
        self.count.store(shown.len(), Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        // While `shown` is locked, so that the reason is that of the last change.
        self.reasons.set(MONITORED, shown.len() > 0);
    }
}

/// What a thread knows of the monitors, so that it looks at their choices without a lock, and which of its commands it looks at.
///
/// Where all monitors want samples, a thread draws how many requests it runs before it looks at one: those in between run as if there
/// were no monitor.
pub(crate) struct LocalMonitors {
    version: u64,
    /// True if there are some that are shown all.
    pub shows_all: bool,
    /// Those that have chosen.
    pub choosers: Arc<Vec<Chooser>>,
    /// The smallest sample of all monitors.
    sample: u32,
    /// Requests that run before one that is looked at.
    until: u64,
    /// The engine's reasons that hold for the commands that run now.
    mask: u64,
}

impl Default for LocalMonitors {
    fn default() -> LocalMonitors {
        LocalMonitors { version: 0, shows_all: false, choosers: Arc::default(), sample: 1, until: 0, mask: u64::MAX }
    }
}

impl LocalMonitors {
    /// The reasons that hold for the commands that run now: monitors are none while commands are passed over.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Learns which monitors there are now.
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

    /// True if some monitor wants to know where batches begin, and is shown what runs now.
    pub fn wants_batches(&self) -> bool {
        self.mask & MONITORED != 0 && self.choosers.iter().any(|chooser| chooser.filter.batches)
    }

    /// How many requests, `max` at most, are to run next: either all of them are looked at or none is.
    pub fn window(&mut self, max: usize) -> usize {
        let passes_over = self.sample > 1 && self.until > 0;
        self.mask = if passes_over { !MONITORED } else { u64::MAX };
        match self.sample {
            0 | 1 => max,
            _ if passes_over => usize::try_from(self.until).map_or(max, |until| until.min(max)),
            _ => 1,
        }
    }

    /// So many of them have run.
    pub fn passed(&mut self, requests: u32, random: &mut Random) {
        if self.until > 0 {
            self.until = self.until.saturating_sub(requests.into());
        } else if requests > 0 && self.sample > 1 {
            // Between one of two and one of nothing, so that it is one of `sample` on average, and a client's loop is never in step.
            self.until = random.next() % (2 * u64::from(self.sample) - 1);
        }
    }

    /// True if a command that is looked at is among the samples of this monitor.
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

    /// How many of a million requests, in windows of 64 at most, each monitor is shown; how many windows there were.
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
    fn samples_are_of_their_size_whatever_others_want() {
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
