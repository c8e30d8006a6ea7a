//! Which round trips this process wastes: the advisor on the process's own connections.
//!
//! A stream stands between a connection and the one that was opened for it, and shows the advisor the bytes that pass. The connections
//! of one [`Advice`] share a lock, which a reply takes for about a microsecond.
//!
//! The advisor looks from the server's side: time is lost between a reply and the next request. Here it is lost between a request and its
//! reply. So the times that the advisor is shown are those of the middle of the network: half a round trip later for a request,
//! and earlier for a reply. The shortest time from a request to its reply is taken for the round trip; what others take longer is the server's.

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

/// Finds the round trips that the process makes and wouldn't have to, on all connections whose [`Config`] it watches. Clones share what
/// they find.
///
/// It takes at most 16 MB for what it has found, keeps no arguments but a few keys, and one to two microseconds of each round trip.
#[derive(Clone)]
pub struct Advice(Arc<AdviceInner>);

/// The advisor, and the connections that it watches.
struct AdviceInner {
    advisor: Mutex<Advisor>,
    /// How many connections there were, and those that may be open.
    connections: AtomicU64,
    open: Mutex<Vec<Weak<Mutex<Tapped>>>>,
    began: Instant,
}

/// What a thread that panicked was adding may be missing; all else is good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AdviceInner {
    /// Has the advisor tell what the open connections are in the midst of, and gives it.
    fn settled(&self) -> MutexGuard<'_, Advisor> {
        let open: Vec<_> = lock(&self.open).iter().filter_map(Weak::upgrade).collect();
        for tapped in open {
            // A connection is locked before the advisor, as where bytes pass.
            let mut tapped = lock(&tapped);
            lock(&self.advisor).end_unit(&mut tapped.connection, self.now_ns());
        }
        lock(&self.advisor)
    }

    /// Takes a new connection for one that is open, and forgets those that have ended.
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
    /// Nothing is watched yet.
    #[must_use]
    pub fn new() -> Advice {
        Advice::default()
    }

    /// The same settings, whose connections are watched.
    #[must_use]
    pub fn watch(&self, config: &Config) -> Config {
        let mut watched = config.clone();
        watched.connector = Some(Arc::new(Watching { advice: self.clone(), opened_by: config.connector.clone() }));
        watched
    }

    /// The report as text, the greatest loss of time first, each with what to write instead. The code of other
    /// languages is in [`Advice::json`]; there is none in Rust.
    #[must_use]
    pub fn report(&self) -> String {
        report::text(&self.0.settled().findings(), &Style::default())
    }

    /// The same as JSON, in the form of `penstock advise --json`.
    #[must_use]
    pub fn json(&self) -> String {
        report::json(&self.0.settled().findings())
    }

    /// How much time was lost so far, for a test that allows only so much.
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

/// Opens streams that are watched.
struct Watching {
    advice: Advice,
    /// What would open them otherwise.
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

/// A stream that shows the advisor what passes.
struct Watched {
    stream: Box<dyn Stream>,
    advice: Arc<AdviceInner>,
    /// A report looks at it, too.
    tapped: Arc<Mutex<Tapped>>,
    /// When a batch's first bytes were sent, until the first byte of its replies comes. What is sent behind them tells nothing of the round trip: a
    /// reply that comes next may be one to what was sent before.
    sent_ns: Option<u64>,
    /// The shortest time from a request to its reply.
    round_trip_ns: Option<u64>,
}

impl Watched {
    /// Half of the round trip, as far as it is known.
    fn way_ns(&self) -> u64 {
        self.round_trip_ns.unwrap_or_default() / 2
    }

    /// Learns the round trip from the first bytes that come after a request.
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
        // Before they are sent: a thread that is interrupted in between would see the reply first.
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
