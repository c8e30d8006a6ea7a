//! The advisor on the process's own connections: finds the round trips that this process wastes.
//!
//! A wrapper around each stream shows the advisor the bytes in both directions. The connections of one [`Advice`] share
//! a lock. A reply holds it for about a microsecond.
//!
//! The advisor takes the server's point of view, and counts the time between a reply and the next request. Timestamps
//! here are the client's, so they are shifted to the middle of the network: a request by half a round trip later, a
//! reply by half a round trip earlier. The shortest time from a request to its reply counts as the round trip; any
//! excess is the server's time.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use advisor::client::Client;
use advisor::report::{self, Style};
use advisor::tap::{Tap, Tapped};
use advisor::{Advisor, Config as AdvisorConfig};

use crate::config::Config;
use crate::error::Error;
use crate::stream::{Connector, Stream, open_stream};

/// Finds avoidable round trips of the process, on all connections with a watched [`Config`]. Clones share their
/// findings.
///
/// Findings take at most 16 MB and contain a few keys, but no other arguments. Each round trip takes one to two
/// microseconds longer.
#[derive(Clone)]
pub struct Advice(Arc<AdviceInner>);

/// The advisor, and the watched connections.
struct AdviceInner {
    advisor: Mutex<Advisor>,
    /// `connections` counts all connections so far; `open` holds those that may still be open.
    connections: AtomicU64,
    open: Mutex<Vec<Weak<Mutex<Tapped>>>>,
    began: Instant,
}

/// If a thread panicked while it held the lock, only its own addition may be incomplete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AdviceInner {
    /// Flushes the pending state of open connections into the advisor, and returns it.
    fn settled(&self) -> MutexGuard<'_, Advisor> {
        let open: Vec<_> = lock(&self.open).iter().filter_map(Weak::upgrade).collect();
        for tapped in open {
            // Lock order: a connection is locked before the advisor, as in the read and write paths.
            let mut tapped = lock(&tapped);
            lock(&self.advisor).end_unit(&mut tapped.connection, self.now_ns());
        }
        lock(&self.advisor)
    }

    /// Adds an open connection, and removes those that have ended.
    fn open(&self, tapped: &Arc<Mutex<Tapped>>) {
        let mut open = lock(&self.open);
        open.retain(|tapped| tapped.strong_count() > 0);
        open.push(Arc::downgrade(tapped));
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl Default for Advice {
    fn default() -> Advice {
        let advisor = Mutex::new(Advisor::new(AdvisorConfig::default()));
        Advice(Arc::new(AdviceInner {
            advisor,
            connections: AtomicU64::new(0),
            open: Mutex::default(),
            began: Instant::now(),
        }))
    }
}

impl Advice {
    /// Returns an advisor that watches nothing yet.
    #[must_use]
    pub fn new() -> Advice {
        Advice::default()
    }

    /// Returns a copy of the configuration. Connections made with it are watched.
    #[must_use]
    pub fn watch(&self, config: &Config) -> Config {
        let mut watched = config.clone();
        watched.connector = Some(Arc::new(Watching { advice: self.clone(), opened_by: config.connector.clone() }));
        watched
    }

    /// Returns the report as text, the greatest loss of time first, each finding with replacement code.
    /// [`Advice::json`] has the code in all supported languages; Rust isn't among them.
    #[must_use]
    pub fn report(&self) -> String {
        report::text(&self.0.settled().findings(), &Style::default())
    }

    /// Returns the report as JSON, in the format of `penstock advise --json`.
    #[must_use]
    pub fn json(&self) -> String {
        report::json(&self.0.settled().findings())
    }

    /// Returns the time lost so far. A test can compare it with a limit.
    #[must_use]
    pub fn time_lost(&self) -> Duration {
        let advisor = self.0.settled();
        let lost_ns = advisor.findings().groups().iter().map(|group| group.total.lost_ns()).sum();
        Duration::from_nanos(lost_ns)
    }
}

impl fmt::Debug for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advice").finish_non_exhaustive()
    }
}

/// A connector for watched streams.
struct Watching {
    advice: Advice,
    /// The original connector, if any.
    opened_by: Option<Arc<dyn Connector>>,
}

impl Connector for Watching {
    fn connect(&self, config: &Config) -> Result<Box<dyn Stream>, Error> {
        let plain = Config { connector: self.opened_by.clone(), ..config.clone() };
        let stream = open_stream(&plain)?;
        let advice = Arc::clone(&self.advice.0);
        let id = advice.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Client { address: "this process".to_owned(), ..Client::default() };
        let tapped = Arc::new(Mutex::new(Tapped::opened(id, client, advice.now_ns(), Tap::at_client())));
        advice.open(&tapped);
        Ok(Box::new(Watched { stream, advice, tapped, sent_ns: None, round_trip_ns: None }))
    }
}

/// A stream that shows its traffic to the advisor.
struct Watched {
    stream: Box<dyn Stream>,
    advice: Arc<AdviceInner>,
    /// Shared with reports.
    tapped: Arc<Mutex<Tapped>>,
    /// Time of sending a batch's first bytes, until the first byte of its replies arrives. Later requests are not
    /// timed, because the next reply may belong to an earlier request.
    sent_ns: Option<u64>,
    /// The shortest time from a request to its reply.
    round_trip_ns: Option<u64>,
}

impl Watched {
    /// Returns half of the round trip, or zero if it is unknown.
    fn way_ns(&self) -> u64 {
        self.round_trip_ns.unwrap_or_default() / 2
    }

    /// Updates the round trip when the first bytes arrive after a request.
    fn learn(&mut self, now_ns: u64) {
        let Some(sent_ns) = self.sent_ns.take() else { return };
        let took_ns = now_ns.saturating_sub(sent_ns);
        if self.round_trip_ns.is_none_or(|known_ns| took_ns < known_ns) {
            self.round_trip_ns = Some(took_ns);
            lock(&self.tapped).connection.set_round_trip(took_ns);
        }
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.stream.read(buffer)?;
        let now_ns = self.advice.now_ns();
        self.learn(now_ns);
        let at_ns = now_ns.saturating_sub(self.way_ns());
        let bytes = buffer.get(..len).unwrap_or_default();
        lock(&self.tapped).reply(bytes, at_ns, |connection, trip| lock(&self.advice.advisor).trip(connection, trip));
        Ok(len)
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The clock is read before the write. Otherwise a thread that is preempted in between would see the reply
        // first.
        let now_ns = self.advice.now_ns();
        let len = self.stream.write(bytes)?;
        let way_ns = self.way_ns();
        let mut tapped = lock(&self.tapped);
        if tapped.is_idle() {
            self.sent_ns = Some(now_ns);
        }
        tapped.request(bytes.get(..len).unwrap_or_default(), now_ns + way_ns);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Stream for Watched {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    fn wants_write(&self) -> bool {
        self.stream.wants_write()
    }

    fn has_buffered(&self) -> bool {
        self.stream.has_buffered()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let (now_ns, mut tapped) = (self.advice.now_ns(), lock(&self.tapped));
        lock(&self.advice.advisor).closed(&mut tapped.connection, now_ns);
    }
}
