//! A thread's advisor, and the connections that it watches.
//!
//! Each connection that is watched has a place. Half of the thread's part of `advisor-memory` is for places, and there are fewer while
//! the thread has more trips to look at than `TRIPS_A_SECOND_MAX`, so that the advisor takes little of its time. Connections
//! without a place wait for one that another has had for a second. A connection is watched as a whole or not at all, so that what is found of
//! it is right; findings count what was watched.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use advisor::client::host;
use advisor::{Advisor, Config, Connection, Reply, Trip};
use resp::request::{Args, ArgsBuffer};

use super::ThreadAdvice;
use crate::clients::client::Client;
use crate::clients::trips::Trips;
use crate::config::Settings;

/// Batches of one command that a thread looks at in a second: to look at one takes 0.3 microseconds, and twice as long where caches
/// are short.
const TRIPS_A_SECOND_MAX: u64 = 15_000;
/// For how long a connection is watched at least, in nanoseconds.
const WATCHED_NS: u64 = 1_000_000_000;
/// Connections that are watched at least.
const PLACES_MIN: usize = 4;
/// Bytes that a watched connection takes at most: its client's texts, names of 64 bytes at most, are about as much.
const PLACE_BYTES: usize = Connection::MEMORY_BYTES + 512;

/// What of the configuration matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WatchSettings {
    memory_bytes: usize,
    samples: bool,
}

/// A batch that has run. Times are nanoseconds of Unix time.
pub(crate) struct ShownTrip<'a> {
    /// The batch's only command or one of several; none: the client logs in.
    pub command: Option<Args<'a>>,
    /// Index of the command's first key among its arguments; 0: it has none. None: not known.
    pub key: Option<u8>,
    /// Commands of the batch.
    pub commands: u32,
    /// True if it was sent before the replies to the one before.
    pub overlaps: bool,
    /// When it arrived, and when its commands had run.
    pub arrived_ns: u64,
    /// When its commands had run.
    pub ran_ns: u64,
    /// When the replies to the one before were sent, if they were.
    pub replied_ns: Option<u64>,
    /// The reply, if it is known.
    pub reply: Option<Reply<'a>>,
}

/// A watched connection.
struct WatchedConnection {
    /// Its client's number; 0: the place is free.
    client: u64,
    /// Which of the client's names the advisor knows.
    names_version: u32,
    /// When it got the place.
    since_ns: u64,
    connection: Connection,
}

impl WatchedConnection {
    /// Gives the memory back.
    fn vacate(&mut self) {
        self.connection = Connection::new(0, advisor::client::Client::default());
        self.client = 0;
    }
}

/// See the module's documentation.
pub(crate) struct Watch {
    advisor: Option<Box<Advisor>>,
    figures: WatchSettings,
    shared: ThreadAdvice,
    places: Vec<WatchedConnection>,
    /// Places that there is memory for, and those that may be taken at present.
    places_max: usize,
    /// Places that may be taken at present.
    places_now: usize,
    /// Batches of one command that were shown since the pace was last looked at.
    shown: u64,
    /// When that was.
    paced_ns: u64,
    free: Vec<u32>,
    /// The place that is looked at next when one is wanted and none is free.
    hand: usize,
    /// Stands for the commands of a login that can't be shown.
    login: ArgsBuffer,
}

impl Watch {
    /// A thread that watches nothing yet.
    pub(crate) fn new(shared: ThreadAdvice) -> Watch {
        let mut login = ArgsBuffer::default();
        login.push(b"AUTH");
        Watch {
            advisor: None,
            figures: WatchSettings { memory_bytes: 0, samples: false },
            shared,
            places: Vec::new(),
            places_max: 0,
            places_now: 0,
            shown: 0,
            paced_ns: 0,
            free: Vec::new(),
            hand: 0,
            login,
        }
    }

    /// True if there is an advisor.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.advisor.is_some()
    }

    /// Takes the configuration over, as one of so many threads. `seed` is used for a new advisor. What was found stays.
    pub(crate) fn follow(&mut self, settings: &Settings, threads: usize, seed: u64) {
        if !settings.advisor.get() {
            self.stop();
            return;
        }
        let memory_bytes = settings.advisor_memory.get_usize() / threads.max(1);
        let figures = WatchSettings { memory_bytes, samples: settings.advisor_samples.get() };
        if self.is_on() && figures == self.figures {
            return;
        }
        self.stop();
        let config = Config { memory_bytes: memory_bytes / 2, samples: figures.samples, seed };
        self.advisor = Some(Box::new(Advisor::with_findings(config, Arc::clone(&self.shared.findings))));
        self.figures = figures;
        self.places_max = (memory_bytes / 2 / PLACE_BYTES).max(PLACES_MIN);
        self.places_now = self.places_max;
    }

    fn stop(&mut self) {
        self.advisor = None;
        (self.places, self.free, self.hand) = (Vec::new(), Vec::new(), 0);
        self.note_watched();
    }

    /// Shows a batch to the advisor, if its connection is watched or can be.
    pub(crate) fn show(&mut self, trips: &mut Trips, client: &Client, shown: &ShownTrip<'_>) {
        let is_watched = self.places.get(trips.place as usize).is_some_and(|place| place.client == client.id);
        if !is_watched && !self.find_place(trips, client, shown) {
            return;
        }
        let (Some(advisor), Some(place)) = (&mut self.advisor, self.places.get_mut(trips.place as usize)) else {
            return;
        };
        let names_version = client.names_version();
        if place.names_version != names_version {
            place.names_version = names_version;
            place.connection.set_client(described(client));
        }
        if let Some(replied_ns) = shown.replied_ns {
            place.connection.set_replied(replied_ns);
        }
        let trip = Trip {
            command: shown.command.unwrap_or(self.login.args()),
            key: shown.key,
            depth: shown.commands,
            overlaps: shown.overlaps,
            arrived_ns: shown.arrived_ns,
            replied_ns: shown.ran_ns,
            reply: shown.reply,
        };
        advisor.trip(&mut place.connection, &trip);
        self.shown += u64::from(shown.commands == 1);
    }

    /// Finds a place for a connection that has none. False if all others are to be watched for longer.
    #[cold]
    fn find_place(&mut self, trips: &mut Trips, client: &Client, shown: &ShownTrip<'_>) -> bool {
        // A pipeline has nothing to show but that there was one.
        let has_just_come = client.batches() <= 1;
        if shown.commands > 1 && !has_just_come {
            return false;
        }
        let since_ns = shown.arrived_ns;
        let Some(index) = self.free_place(since_ns) else { return false };
        let connection = if has_just_come {
            Connection::opened(client.id, described(client), since_ns)
        } else {
            Connection::new(client.id, described(client))
        };
        let place =
            WatchedConnection { client: client.id, names_version: client.names_version(), since_ns, connection };
        match self.places.get_mut(index) {
            Some(free) => *free = place,
            None => self.places.push(place),
        }
        trips.place = index as u32;
        self.note_watched();
        true
    }

    fn taken(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The index of a place that is free, new, or has been another's for long enough.
    fn free_place(&mut self, now_ns: u64) -> Option<usize> {
        if self.taken() < self.places_now {
            return Some(self.free.pop().map_or(self.places.len(), |free| free as usize));
        }
        self.hand = if self.hand + 1 < self.places.len() { self.hand + 1 } else { 0 };
        let (advisor, place) = (self.advisor.as_mut()?, self.places.get_mut(self.hand)?);
        if place.client == 0 || now_ns.saturating_sub(place.since_ns) < WATCHED_NS {
            return None;
        }
        advisor.end_unit(&mut place.connection, now_ns);
        Some(self.hand)
    }

    fn note_watched(&self) {
        self.shared.watched.store(self.taken(), Ordering::Relaxed);
    }

    /// Has as many places as the advisor has time for.
    pub(crate) fn keep_pace(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.paced_ns, now_ns));
        let shown = std::mem::take(&mut self.shown);
        if passed_ns == 0 || !self.is_on() {
            return;
        }
        let rate = u128::from(shown) * 1_000_000_000 / u128::from(passed_ns);
        let rate_max = u128::from(TRIPS_A_SECOND_MAX);
        if rate > rate_max {
            let fitting = (self.taken() as u128 * rate_max / rate) as usize;
            self.places_now = fitting.max(PLACES_MIN);
            self.give_up_places(now_ns);
        } else if rate * 2 < rate_max {
            self.places_now = (self.places_now * 2).min(self.places_max);
        }
    }

    /// Gives up places that may not be taken any more.
    fn give_up_places(&mut self, now_ns: u64) {
        let Some(advisor) = &mut self.advisor else { return };
        let mut taken = self.places.len() - self.free.len();
        for (index, place) in self.places.iter_mut().enumerate().filter(|(_, place)| place.client != 0) {
            if taken <= self.places_now {
                break;
            }
            advisor.end_unit(&mut place.connection, now_ns);
            place.vacate();
            self.free.push(index as u32);
            taken -= 1;
        }
        self.note_watched();
    }

    /// Tells what silent connections were in the midst of.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        let Some(advisor) = &mut self.advisor else { return };
        for place in self.places.iter_mut().filter(|place| place.client != 0) {
            advisor.settle(&mut place.connection, now_ns);
        }
    }

    /// Tells what a connection was in the midst of.
    pub(crate) fn end_unit(&mut self, trips: &Trips, client: &Client, now_ns: u64) {
        if let Some((advisor, place)) = self.watched(trips, client) {
            advisor.end_unit(&mut place.connection, now_ns);
        }
    }

    /// Replies to so many commands, so many bytes, went to disk, as the client didn't read them.
    pub(crate) fn spilled(&mut self, trips: &Trips, client: &Client, commands: u64, bytes: u64, now_ns: u64) {
        if let Some((advisor, place)) = self.watched(trips, client) {
            advisor.spilled(&mut place.connection, commands, bytes, now_ns);
        }
    }

    /// The connection is closed.
    pub(crate) fn closed(&mut self, trips: &Trips, client: &Client, now_ns: u64) {
        let Some((advisor, place)) = self.watched(trips, client) else { return };
        if place.names_version != client.names_version() {
            place.connection.set_client(described(client));
        }
        advisor.closed(&mut place.connection, now_ns);
        place.vacate();
        self.free.push(trips.place);
        self.note_watched();
    }

    fn watched(&mut self, trips: &Trips, client: &Client) -> Option<(&mut Advisor, &mut WatchedConnection)> {
        let place = self.places.get_mut(trips.place as usize).filter(|place| place.client == client.id)?;
        Some((self.advisor.as_mut()?, place))
    }
}

/// What the advisor is told of a client.
fn described(client: &Client) -> advisor::client::Client {
    let names = client.names().clone();
    let library = format!("{} {}", names.lib_name, names.lib_ver);
    advisor::client::Client {
        name: names.name,
        library: library.trim().to_owned(),
        user: client.user().clone().unwrap_or_default(),
        address: host(&client.addr).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use resp::request::OwnedArgs;

    use super::*;
    use crate::advice::Advice;
    use crate::config::Loader;

    const SECOND_NS: u64 = 1_000_000_000;
    const START_NS: u64 = 1_700_000_000 * SECOND_NS;

    /// A thread's watch and its connections.
    struct Thread {
        watch: Watch,
        advice: Advice,
        connections: Vec<(Trips, Client)>,
        now_ns: u64,
    }

    impl Thread {
        fn new(memory: &str, connections: u64) -> Thread {
            let settings = Settings::new();
            Loader::new(&settings).directive(&[b"advisor-memory".to_vec(), memory.into()]).unwrap();
            let advice = Advice::new(1);
            let mut watch = Watch::new(advice.of(0));
            watch.follow(&settings, 1, 1);
            watch.keep_pace(START_NS);
            let client = |id| Client::new(id, 0, "127.0.0.1:1".into(), String::new(), 0, 0, 0);
            let connections = (1..=connections).map(|id| (Trips::default(), client(id))).collect();
            Thread { watch, advice, connections, now_ns: START_NS }
        }

        /// One connection sends a GET, and waits for the reply. So much time passes.
        fn get(&mut self, index: usize, key: u64, passes_ns: u64) {
            self.now_ns += passes_ns;
            let (trips, client) = &mut self.connections[index];
            client.count_batch(1);
            let args = OwnedArgs::new([b"GET".as_slice(), format!("key:{key}").as_bytes()].into_iter());
            let shown = ShownTrip {
                command: Some(args.args()),
                key: Some(1),
                commands: 1,
                overlaps: false,
                arrived_ns: self.now_ns,
                ran_ns: self.now_ns + 1000,
                replied_ns: None,
                reply: None,
            };
            self.watch.show(trips, client, &shown);
        }

        /// All connections do so in turn, `rounds` times, in so much time.
        fn all(&mut self, rounds: u64, takes_ns: u64) {
            let each_ns = takes_ns / (rounds * self.connections.len() as u64);
            for round in 0..rounds {
                (0..self.connections.len()).for_each(|index| self.get(index, round, each_ns));
            }
            self.watch.keep_pace(self.now_ns);
        }

        fn watched(&self) -> usize {
            self.advice.figures().watched
        }

        /// Trips that the findings count.
        fn made(&mut self) -> u64 {
            self.watch.settle(self.now_ns + 10 * SECOND_NS);
            self.advice.merged().groups().iter().map(|group| group.total.made()).sum()
        }
    }

    #[test]
    fn connections_have_turns_where_memory_is_short() {
        let mut thread = Thread::new("1mb", 500);
        thread.all(10, SECOND_NS / 2);
        let watched = thread.watched();
        assert!((20..200).contains(&watched) && watched == thread.watch.places_max, "{watched}");
        let before = thread.made();
        assert_eq!(before, 10 * watched as u64);
        // Each of the places has been had for a second.
        thread.all(10, 2 * SECOND_NS);
        assert_eq!(thread.watched(), watched);
        let taken = |thread: &Thread| thread.watch.places.iter().map(|place| place.client).collect::<Vec<_>>();
        let first: Vec<u64> = (1..=watched as u64).collect();
        assert!(taken(&thread).iter().filter(|client| first.contains(client)).count() < watched / 2);
        assert!(thread.made() > before);
    }

    #[test]
    fn fewer_are_watched_where_time_is_short() {
        let mut thread = Thread::new("16mb", 50);
        thread.all(200, SECOND_NS);
        assert_eq!((thread.watched(), thread.made()), (50, 50 * 200));
        thread.all(4000, SECOND_NS);
        assert_eq!(thread.watched(), PLACES_MIN);
        thread.all(4000, SECOND_NS);
        assert_eq!(thread.watched(), PLACES_MIN);
        (0..5).for_each(|_| thread.all(200, SECOND_NS));
        assert_eq!(thread.watched(), 50);
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_is_closed() {
        let mut thread = Thread::new("16mb", 10);
        thread.all(5, SECOND_NS / 100);
        for (trips, client) in &thread.connections[..4] {
            thread.watch.closed(trips, client, thread.now_ns);
            // Once more does no harm.
            thread.watch.closed(trips, client, thread.now_ns);
        }
        assert_eq!(thread.watched(), 6);
        thread.all(5, SECOND_NS / 100);
        assert_eq!((thread.watched(), thread.watch.places.len()), (10, 10));
    }
}
