//! A thread's advisor, and its observation of connections.
//!
//! Each observed connection has a slot. Half of the thread's part of `advisor-memory` is for slots. The number of slots
//! shrinks while the thread has more than `TRIPS_A_SECOND_MAX` round trips to look at, so that the advisor takes little
//! time. A connection without a slot can take one that another connection has had for a second. A connection is
//! observed completely or not at all, so that its findings are right; findings count only observed batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use advisor::client::host;
use advisor::machine_load::MachineLoad;
use advisor::{Advisor, Config, Connection, Reply, Trip};
use resp::request::{Args, ArgsBuffer};

use super::ThreadAdvice;
use crate::clients::client::Client;
use crate::clients::round_trips::RoundTrips;
use config::Settings;

/// Number of batches that a thread analyzes per second. One takes 0.3 microseconds, and twice as long with
/// small caches.
const TRIPS_A_SECOND_MAX: u64 = 15_000;
/// Minimum observation time of a connection, in nanoseconds.
const WATCHED_NS: u64 = 1_000_000_000;
/// Minimum number of slots.
const PLACES_MIN: usize = 4;
/// Maximum memory of an observed connection in bytes, including 512 for the client's texts with names of up to 64
/// bytes.
const PLACE_BYTES: usize = Connection::MEMORY_BYTES + 512;

/// The settings of the advisor.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WatchSettings {
    memory_bytes: usize,
    samples: bool,
}

/// A batch that has run. Times are in nanoseconds of Unix time.
pub(crate) struct ShownTrip<'a> {
    /// The only command of the batch, or one of several; `None` means that the client logs in.
    pub command: Option<Args<'a>>,
    /// Index of the command's first key among its arguments; 0 without keys, `None` if unknown.
    pub key: Option<u8>,
    /// Number of commands in the batch.
    pub commands: u32,
    /// True if it was sent before the replies to the previous batch.
    pub overlaps: bool,
    /// Time of arrival.
    pub arrived_ns: u64,
    /// Time at which its commands had run.
    pub ran_ns: u64,
    /// Time at which the replies to the previous batch were sent, if they were.
    pub replied_ns: Option<u64>,
    /// The reply, if it is known.
    pub reply: Option<Reply<'a>>,
    /// Number of the batch's commands that were redirected (MOVED).
    pub redirected: u32,
}

/// An observed connection.
struct WatchedConnection {
    /// The client's number; 0 means that the slot is free.
    client: u64,
    /// The version of the client's names that the advisor has.
    names_version: u32,
    /// Time at which the connection got the slot.
    since_ns: u64,
    connection: Connection,
}

impl WatchedConnection {
    /// Frees the memory.
    fn vacate(&mut self) {
        self.connection = Connection::new(0, advisor::client::Client::default());
        self.client = 0;
    }
}

/// The observation of a thread's connections. See the module's documentation.
pub(crate) struct Watch {
    advisor: Option<Box<Advisor>>,
    figures: WatchSettings,
    shared: ThreadAdvice,
    places: Vec<WatchedConnection>,
    /// Number of slots that fit into memory.
    places_max: usize,
    /// Number of slots that may be in use at present.
    places_now: usize,
    /// Number of batches since the last adjustment.
    shown: u64,
    /// Time of the last adjustment.
    paced_ns: u64,
    free: Vec<u32>,
    /// Index of the next slot to reassign if none is free.
    hand: usize,
    /// Stands for the secret commands of a login.
    login: ArgsBuffer,
    /// Number of resets that the advisor has followed.
    resets: usize,
    load: MachineLoad,
}

impl Watch {
    /// Creates an empty observation.
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
            resets: 0,
            load: MachineLoad::new(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }

    /// Returns true if there is an advisor.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.advisor.is_some()
    }

    /// Takes over the settings, as one of `threads` threads. `seed` is for a new advisor. Existing findings stay.
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

    /// Returns true if a connection with a complete batch has a slot, or gets one. `arrived_ns` is the time of the batch's arrival, and
    /// `trips` has its number of commands.
    #[inline]
    pub(crate) fn watches(&mut self, trips: &mut RoundTrips, client: &Client, arrived_ns: u64) -> bool {
        let is_watched = self.places.get(trips.place as usize).is_some_and(|place| place.client == client.id);
        is_watched || self.find_place(trips, client, arrived_ns)
    }

    /// Shows a batch of a connection that has a slot to the advisor.
    pub(crate) fn show(&mut self, trips: &mut RoundTrips, client: &Client, shown: &ShownTrip<'_>) {
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
        if let Some(network_us) = trips.network_us.take() {
            place.connection.set_round_trip(u64::from(network_us) * 1000);
        }
        let trip = Trip {
            command: shown.command.unwrap_or(self.login.args()),
            key: shown.key,
            depth: shown.commands,
            overlaps: shown.overlaps,
            arrived_ns: shown.arrived_ns,
            replied_ns: shown.ran_ns,
            reply: shown.reply,
            redirected: shown.redirected,
        };
        advisor.trip(&mut place.connection, &trip);
        self.shown += 1;
    }

    /// Finds a slot for a connection. Returns false if all slots are within their minimum observation time.
    #[cold]
    fn find_place(&mut self, trips: &mut RoundTrips, client: &Client, since_ns: u64) -> bool {
        // A pipeline is interesting only as the first batch of a connection.
        let has_just_come = client.batches() <= 1;
        if trips.commands > 1 && !has_just_come {
            return false;
        }
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

    /// Returns the index of a slot that is free, new, or past its minimum observation time.
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

    /// Adjusts the number of slots to the advisor's share of time.
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

    /// Releases slots beyond the present number.
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

    /// Forgets the words of keys if ADVISE RESET asked for it.
    pub(crate) fn follow_resets(&mut self) {
        let resets = self.shared.resets.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.resets, resets) != resets
            && let Some(advisor) = &mut self.advisor
        {
            advisor.forget_keys();
        }
    }

    /// Looks at the machine's load if that is due: short gaps prove nothing while threads wait for a core.
    #[inline]
    pub(crate) fn look_at_load(&mut self, now_ns: u64, read: impl FnOnce() -> Option<String>) {
        if let Some(advisor) = &mut self.advisor
            && self.load.look(now_ns, read) == Some(true)
        {
            advisor.note_busy(now_ns);
        }
    }

    /// Ends the units of work of silent connections.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        self.follow_resets();
        let Some(advisor) = &mut self.advisor else { return };
        for place in self.places.iter_mut().filter(|place| place.client != 0) {
            advisor.settle(&mut place.connection, now_ns);
        }
    }

    /// Ends the unit of work of a connection.
    pub(crate) fn end_unit(&mut self, trips: &RoundTrips, client: &Client, now_ns: u64) {
        if let Some((advisor, place)) = self.watched(trips, client) {
            advisor.end_unit(&mut place.connection, now_ns);
        }
    }

    /// Reports that replies to `commands` commands, with `bytes` bytes, went to disk because the client didn't read
    /// them.
    pub(crate) fn spilled(&mut self, trips: &RoundTrips, client: &Client, commands: u64, bytes: u64, now_ns: u64) {
        if let Some((advisor, place)) = self.watched(trips, client) {
            advisor.spilled(&mut place.connection, commands, bytes, now_ns);
        }
    }

    /// Reports that the connection is closed.
    pub(crate) fn closed(&mut self, trips: &RoundTrips, client: &Client, now_ns: u64) {
        let Some((advisor, place)) = self.watched(trips, client) else { return };
        if place.names_version != client.names_version() {
            place.connection.set_client(described(client));
        }
        if let Some(network_us) = trips.network_us {
            place.connection.set_round_trip(u64::from(network_us) * 1000);
        }
        advisor.closed(&mut place.connection, now_ns);
        place.vacate();
        self.free.push(trips.place);
        self.note_watched();
    }

    fn watched(&mut self, trips: &RoundTrips, client: &Client) -> Option<(&mut Advisor, &mut WatchedConnection)> {
        let place = self.places.get_mut(trips.place as usize).filter(|place| place.client == client.id)?;
        Some((self.advisor.as_mut()?, place))
    }
}

/// Describes a client to the advisor.
fn described(client: &Client) -> advisor::client::Client {
    let names = client.names().clone();
    let library = format!("{} {}", names.lib_name, names.lib_ver);
    advisor::client::Client {
        name: names.name,
        library: library.trim().to_owned(),
        user: client.user().clone().unwrap_or_default(),
        address: host(&client.addr).to_owned(),
        in_cluster: store::hash::hashes_by_slot(),
    }
}

#[cfg(test)]
mod tests {
    use resp::request::OwnedArgs;

    use super::*;
    use crate::advice::Advice;
    use config::Loader;

    const SECOND_NS: u64 = 1_000_000_000;
    const START_NS: u64 = 1_700_000_000 * SECOND_NS;

    /// An observation with its connections.
    struct Thread {
        watch: Watch,
        advice: Advice,
        connections: Vec<(RoundTrips, Client)>,
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
            let connections = (1..=connections).map(|id| (RoundTrips::default(), client(id))).collect();
            Thread { watch, advice, connections, now_ns: START_NS }
        }

        /// Lets time pass; then one connection sends a GET and waits for the reply.
        fn get(&mut self, index: usize, key: u64, passes_ns: u64) {
            self.batch(index, key, passes_ns, 1);
        }

        /// Lets time pass; then one connection sends a batch that begins with a GET.
        fn batch(&mut self, index: usize, key: u64, passes_ns: u64, commands: u32) {
            self.now_ns += passes_ns;
            let (trips, client) = &mut self.connections[index];
            client.count_batch(commands);
            trips.commands = commands;
            if !self.watch.watches(trips, client, self.now_ns) {
                return;
            }
            let args = OwnedArgs::new([b"GET".as_slice(), format!("key:{key}").as_bytes()].into_iter());
            let shown = ShownTrip {
                command: Some(args.args()),
                key: Some(1),
                commands,
                overlaps: false,
                arrived_ns: self.now_ns,
                ran_ns: self.now_ns + 1000,
                replied_ns: None,
                reply: None,
                redirected: 0,
            };
            self.watch.show(trips, client, &shown);
        }

        /// Runs `rounds` round trips on each connection in turn, spread over this time.
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

        /// Returns the number of round trips in the findings.
        fn made(&mut self) -> u64 {
            self.watch.settle(self.now_ns + 10 * SECOND_NS);
            self.advice.merged().groups().iter().map(|group| group.total.made()).sum()
        }
    }

    #[test]
    fn connections_take_turns_when_memory_is_short() {
        let mut thread = Thread::new("1mb", 500);
        thread.all(10, SECOND_NS / 2);
        let watched = thread.watched();
        assert!((20..200).contains(&watched) && watched == thread.watch.places_max, "{watched}");
        let before = thread.made();
        assert_eq!(before, 10 * watched as u64);
        // Each slot has been in use for a second.
        thread.all(10, 2 * SECOND_NS);
        assert_eq!(thread.watched(), watched);
        let taken = |thread: &Thread| thread.watch.places.iter().map(|place| place.client).collect::<Vec<_>>();
        let first: Vec<u64> = (1..=watched as u64).collect();
        assert!(taken(&thread).iter().filter(|client| first.contains(client)).count() < watched / 2);
        assert!(thread.made() > before);
    }

    #[test]
    fn fewer_connections_are_observed_when_time_is_short() {
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
    fn pipelines_take_time_like_single_commands() {
        let mut thread = Thread::new("16mb", 50);
        thread.all(1, SECOND_NS / 10);
        assert_eq!(thread.watched(), 50);
        for round in 0..4000 {
            (0..50).for_each(|index| thread.batch(index, round, SECOND_NS / 200_000, 128));
        }
        thread.watch.keep_pace(thread.now_ns);
        assert_eq!(thread.watched(), PLACES_MIN);
    }

    #[test]
    fn a_slot_is_free_again_when_its_connection_is_closed() {
        let mut thread = Thread::new("16mb", 10);
        thread.all(5, SECOND_NS / 100);
        for (trips, client) in &thread.connections[..4] {
            thread.watch.closed(trips, client, thread.now_ns);
            // A second call does no harm.
            thread.watch.closed(trips, client, thread.now_ns);
        }
        assert_eq!(thread.watched(), 6);
        thread.all(5, SECOND_NS / 100);
        assert_eq!((thread.watched(), thread.watch.places.len()), (10, 10));
    }
}
