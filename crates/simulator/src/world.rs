//! A history: three processes, their clients, and the faults.
//!
//! The checked promises:
//! - data that `WAIT` has acknowledged for all replicas survives a failover to a replica that has been complete since;
//! - the same holds for writes that were answered while `durability-replicas` includes all replicas;
//! - with `appendfsync always`, answered writes survive a loss of power if the same process starts again as the
//!   primary; with `everysec`, writes answered more than a second before survive it, and writes answered a moment
//!   before survive the end of the process;
//! - FAILOVER loses no answered write, unless it is forced; two processes never both accept writes; and clients that it
//!   pauses get their replies when it has ended;
//! - the count of a token equals the number of effects at any time;
//! - two processes at the same offset of the same history have the same data, at each moment at which this can be
//!   checked, and all processes have the same data in the end;
//! - a reader sees no value that was never written, no half of a transaction, and no older state than before.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use engine::replication::failover::FailoverStage;
use journal::order::Position;
use persistence::fake::FakeDisk;
use replication::id::HistoryId;
use store::random::Random;

use crate::Wrong;
use crate::link::LinkEvent;
use crate::network::Network;
use crate::process::{ProcessPart, SimProcess, Surroundings};
use crate::reader::ReaderClient;
use crate::setup::{ADDRESS, Keeps, Setup};
use crate::writer::{ClientTurn, WriterClient};

/// Number of processes.
const PROCESSES: usize = 3;
/// Numbers of clients that write, and that read.
const WRITERS: usize = 2;
const READERS: usize = 2;
/// Duration of the faults, in microseconds of simulated time.
const TROUBLE_US: u64 = 900_000;
/// Longest time for all processes to converge afterwards, in microseconds of simulated time.
const PEACE_US: u64 = 30_000_000;
/// Longest time that a reply may be on its way to a client, or unread there, in microseconds.
const REFUSED_US: u64 = 50_000;
/// Number of events in the report of a failure.
const EVENTS_TOLD: usize = 60;

/// An actor that takes a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Actor {
    Part(usize, usize),
    Writer(usize),
    Reader(usize),
    Nemesis,
    /// A stopped process starts again.
    Restart(usize),
    /// A replica replaces the primary.
    Failover,
    /// A process is told to follow the current primary.
    Point(usize),
    /// The network between two processes is restored.
    Unblock(usize, usize),
}

/// The place of a process, running or not.
struct Seat {
    process: Option<SimProcess>,
    /// The disk, while the process does not run.
    disk: Option<FakeDisk>,
    setup: Setup,
    starts: u64,
    /// True if the process has all promised data, so that it may become the primary.
    is_complete: bool,
    /// The replication offset at which it becomes complete.
    completes_at: Option<u64>,
    /// The time at which it became complete, in microseconds.
    complete_since_us: u64,
    /// The last unit that it had when it became the primary.
    took_over_at: Position,
}

/// A FAILOVER that was requested from the primary.
#[derive(Clone, Copy)]
struct HandingOver {
    from: usize,
    /// The history that the replica continues.
    history: HistoryId,
    is_forced: bool,
    /// True once the failover has been disturbed.
    is_disturbed: bool,
    /// The replica that has become the primary.
    taker: Option<usize>,
}

/// Counters of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryFigures {
    /// Answered operations.
    pub operations: u64,
    /// Failovers.
    pub failovers: u64,
    /// Failovers by the command FAILOVER.
    pub handed_over: u64,
    /// Starts of a process after the first.
    pub restarts: u64,
    /// Comparisons of two processes' data.
    pub compared: u64,
    /// Reads by readers.
    pub looks: u64,
}

impl HistoryFigures {
    /// Adds the counters of another history.
    pub fn add(&mut self, other: &HistoryFigures) {
        self.operations += other.operations;
        self.failovers += other.failovers;
        self.handed_over += other.handed_over;
        self.restarts += other.restarts;
        self.compared += other.compared;
        self.looks += other.looks;
    }
}

struct World {
    now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Actor)>>,
    queued: u64,
    random: Random,
    network: Network,
    seats: Vec<Seat>,
    writers: Vec<WriterClient>,
    readers: Vec<ReaderClient>,
    primary: Option<usize>,
    handing_over: Option<HandingOver>,
    /// Until this time, refusals by a primary that was briefly a replica may still arrive.
    refuses_until_us: u64,
    line: u64,
    losses: u64,
    /// Until this time, no process is stopped, and none replaces the primary.
    quiet_until_us: u64,
    is_peaceful: bool,
    /// Number of replicas that must have a write before its reply is sent.
    durability_replicas: u64,
    /// True if an operator's command has left no process with all promised data.
    is_over: bool,
    /// Digests of the data at places of histories.
    digests: HashMap<(HistoryId, u64), (usize, String)>,
    last_place: Vec<Option<(HistoryId, u64)>>,
    events: VecDeque<String>,
    figures: HistoryFigures,
}

/// Runs a history.
///
/// # Errors
/// The broken promise, and the last events.
pub fn run_history(seed: u64) -> Result<HistoryFigures, Wrong> {
    let mut world = World::new(seed)?;
    let ended = world.run();
    let figures = world.figures;
    let told = |why: Wrong| {
        let events: Vec<&str> = world.events.iter().map(String::as_str).collect();
        let stories: Vec<String> = world.writers.iter().map(WriterClient::story).collect();
        format!(
            "seed {seed}, at {} us: {why}\n  SIMULATE_SEED={seed} replays it. Last events:\n    {}\n    {}",
            world.now_us,
            events.join("\n    "),
            stories.join("\n    ")
        )
    };
    ended.map_err(told)?;
    world.tidy_up();
    Ok(figures)
}

impl World {
    fn new(seed: u64) -> Result<World, Wrong> {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let network = Network::new(random.next());
        let durability_replicas = if random.below(4) == 0 { PROCESSES as u64 - 1 } else { 0 };
        let mut world = World {
            now_us: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            random,
            network,
            seats: Vec::new(),
            writers: Vec::new(),
            readers: Vec::new(),
            primary: Some(0),
            handing_over: None,
            refuses_until_us: 0,
            line: 1,
            losses: 0,
            quiet_until_us: 0,
            is_peaceful: false,
            durability_replicas,
            is_over: false,
            digests: HashMap::new(),
            last_place: vec![None; PROCESSES],
            events: VecDeque::new(),
            figures: HistoryFigures::default(),
        };
        for number in 0..PROCESSES {
            let keeps = [Keeps::Nothing, Keeps::EverySecond, Keeps::Always, Keeps::Always][world.random.below(4)];
            let (workers, sync_odds) =
                (1 + usize::from(world.random.below(16) == 0), [2, 3, 12][world.random.below(3)]);
            let setup = Setup {
                keeps,
                sends_early: world.random.below(3) > 0,
                durability_replicas,
                workers,
                sync_odds,
                node: None,
            };
            let disk = Some(FakeDisk::new(world.random.next()));
            let is_complete = number == 0;
            world.seats.push(Seat {
                process: None,
                disk,
                setup,
                starts: 0,
                is_complete,
                completes_at: None,
                complete_since_us: 0,
                took_over_at: 0,
            });
            world.start(number)?;
            for (part, kind) in ProcessPart::ALL.into_iter().enumerate() {
                if kind == ProcessPart::SecondWorker && setup.workers < 2 {
                    continue;
                }
                world.later(1000, Actor::Part(number, part));
            }
        }
        for number in 1..PROCESSES {
            world.later(20_000, Actor::Point(number));
        }
        for number in 0..WRITERS {
            let seed = world.random.next();
            world.writers.push(WriterClient::new(number, seed));
            world.later(5000, Actor::Writer(number));
        }
        for number in 0..READERS {
            let seed = world.random.next();
            world.readers.push(ReaderClient::new(seed, WRITERS));
            world.later(5000, Actor::Reader(number));
        }
        world.later(100_000, Actor::Nemesis);
        Ok(world)
    }

    fn tell(&mut self, text: String) {
        if self.events.len() >= EVENTS_TOLD {
            self.events.pop_front();
        }
        self.events.push_back(format!("{:>9} us  {text}", self.now_us));
    }

    /// Schedules an actor's step within this many microseconds.
    fn later(&mut self, within_us: u64, actor: Actor) {
        let at_us = self.now_us + 1 + self.random.below(within_us as usize) as u64;
        self.queued += 1;
        self.queue.push(Reverse((at_us, self.queued, actor)));
    }

    fn run(&mut self) -> Result<(), Wrong> {
        while let Some(Reverse((at_us, _, actor))) = self.queue.pop() {
            self.now_us = at_us;
            if !self.is_peaceful && at_us > TROUBLE_US && at_us > self.quiet_until_us && self.primary.is_some() {
                self.make_peace()?;
            }
            self.act(actor)?;
            self.follow_handing_over()?;
            self.accept();
            if self.is_over {
                return Ok(());
            }
            if self.is_peaceful && self.writers.iter().all(WriterClient::is_done) && self.are_equal()? {
                return Ok(());
            }
            if at_us > TROUBLE_US + PEACE_US {
                return Err(self.story_of_no_end());
            }
        }
        Ok(())
    }

    fn story_of_no_end(&self) -> Wrong {
        let state = |seat: &Seat| {
            let Some(process) = &seat.process else { return "stopped".to_owned() };
            let replication = &process.engine().replication;
            let (history, link) = (replication.history(), replication.link());
            format!("{} {:?} {:?} {}", replication.offset(), history, link.state, process.story())
        };
        let states: Vec<String> = self.seats.iter().map(state).collect();
        let done: Vec<bool> = self.writers.iter().map(WriterClient::is_done).collect();
        format!("the processes do not converge: writers done: {done:?}, processes: {}", states.join(" | "))
    }

    fn act(&mut self, actor: Actor) -> Result<(), Wrong> {
        match actor {
            Actor::Part(number, part) => self.step_part(number, part)?,
            Actor::Writer(number) => self.step_writer(number)?,
            Actor::Reader(number) => self.step_reader(number)?,
            Actor::Nemesis => self.make_trouble()?,
            Actor::Restart(number) => self.restart(number)?,
            Actor::Failover => self.fail_over(),
            Actor::Point(number) => self.point(number),
            Actor::Unblock(a, b) => {
                self.network.block(a, b, false);
                self.tell(format!("the network between processes {a} and {b} is restored"));
            }
        }
        Ok(())
    }

    fn step_part(&mut self, number: usize, part: usize) -> Result<(), Wrong> {
        let stalls = !self.is_peaceful && self.random.below(300) == 0;
        self.later(if stalls { 60_000 } else { 1500 }, Actor::Part(number, part));
        let World { seats, network, random, now_us, .. } = self;
        let Some(process) = &mut seats[number].process else { return Ok(()) };
        let part = ProcessPart::ALL[part];
        let mut around = Surroundings { network, random, now_us: *now_us };
        let event = process.step(part, &mut around).map_err(|why| format!("process {number}: {why}"))?;
        self.note_event(number, event);
        if part == ProcessPart::Replicas || event != LinkEvent::None {
            self.compare(number)?;
        }
        Ok(())
    }

    /// Updates which processes have all promised data.
    fn note_event(&mut self, number: usize, event: LinkEvent) {
        match event {
            LinkEvent::None => {}
            LinkEvent::LoadingBegins => {
                self.seats[number].is_complete = false;
                self.seats[number].completes_at = None;
                self.tell(format!("process {number} begins to load a snapshot"));
            }
            LinkEvent::LoadingEnds => self.tell(format!("process {number} ends loading")),
            LinkEvent::Up => self.tell(format!("process {number} has its link up")),
            LinkEvent::Applied => {}
        }
        // The end of loading may also be the beginning of the stream.
        let is_up = self.seats[number].process.as_ref().is_some_and(SimProcess::is_up);
        if matches!(event, LinkEvent::Up | LinkEvent::LoadingEnds) && is_up {
            self.seats[number].completes_at = self.end_of_upstream(number);
        }
        let Seat { process, is_complete, completes_at, complete_since_us, .. } = &mut self.seats[number];
        if let (Some(process), Some(at)) = (process, *completes_at)
            && process.engine().replication.link().applied >= at
        {
            (*is_complete, *completes_at, *complete_since_us) = (true, None, self.now_us);
        }
    }

    /// Returns the replication offset of a process's primary, if the primary has all promised data.
    fn end_of_upstream(&self, number: usize) -> Option<u64> {
        let primary = self.seats[number].process.as_ref()?.engine().replication.primary().0?;
        let seat = &self.seats[usize::from(primary.port)];
        let process = seat.process.as_ref().filter(|_| seat.is_complete)?;
        Some(process.engine().replication.offset())
    }

    /// Compares the data of a process with the data of others at the same place.
    fn compare(&mut self, number: usize) -> Result<(), Wrong> {
        let Some(process) = &mut self.seats[number].process else { return Ok(()) };
        let Some(place) = process.place().filter(|place| self.last_place[number] != Some(*place)) else {
            return Ok(());
        };
        // A digest is the most expensive operation, so only half of the new places are recorded.
        if !self.is_peaceful && !self.digests.contains_key(&place) && self.random.below(2) == 0 {
            return Ok(());
        }
        let digest = process.digest(self.now_us);
        self.last_place[number] = Some(place);
        match self.digests.get(&place) {
            None => _ = self.digests.insert(place, (number, digest)),
            Some((other, known)) if *known != digest => {
                return Err(format!(
                    "processes {other} and {number} have different data at offset {} of {}",
                    place.1, place.0
                ));
            }
            Some((other, _)) => self.figures.compared += u64::from(*other != number),
        }
        Ok(())
    }

    fn turn(&mut self) -> (ClientTurn<'_>, &mut Vec<WriterClient>, &mut Vec<ReaderClient>) {
        let runs = self.primary.filter(|&primary| self.seats[primary].process.is_some());
        let turn = ClientTurn {
            network: &mut self.network,
            now_us: self.now_us,
            primary: runs,
            line: self.line,
            losses: self.losses,
            hands_over: self.handing_over.is_some() || self.now_us < self.refuses_until_us,
            finishes: self.is_peaceful,
            promises_all: self.durability_replicas > 0,
        };
        (turn, &mut self.writers, &mut self.readers)
    }

    /// Tells processes about new links. Links to a stopped process are closed.
    fn accept(&mut self) {
        for (process, wire) in self.network.take_opened() {
            match &mut self.seats[process].process {
                Some(process) => process.accept(wire, self.now_us),
                None => self.network.cut(wire),
            }
        }
    }

    fn step_writer(&mut self, number: usize) -> Result<(), Wrong> {
        let (mut turn, writers, _) = self.turn();
        let before = writers[number].answered();
        writers[number].step(&mut turn)?;
        let after = writers[number].answered();
        let was_promised = writers[number].take_promise();
        self.figures.operations += after.saturating_sub(before) as u64;
        self.later(3000, Actor::Writer(number));
        self.break_promises(number, was_promised);
        Ok(())
    }

    /// Sometimes stops the primary, or lets another process replace it, just after a client got a promise: a promise is
    /// most likely to be broken then.
    fn break_promises(&mut self, writer: usize, was_promised: bool) {
        let was_answered = self.writers[writer].take_answer();
        if self.is_peaceful || self.now_us < self.quiet_until_us {
            return;
        }
        if was_promised && self.random.below(6) == 0 {
            self.tell(format!("writer {writer} has got a promise"));
            match self.random.below(3) {
                0 => self.stop_primary(),
                1 => self.hand_over(),
                _ if self.primary.is_some_and(|primary| self.seats[primary].process.is_some())
                    && self.successor().is_some() =>
                {
                    self.fail_over();
                }
                _ => {}
            }
        } else if was_answered && self.has_unsynced() && self.random.below(40) == 0 {
            self.tell(format!("writer {writer} has got a reply while the primary has unsynced data"));
            self.stop_primary();
        }
    }

    /// Returns true if the primary has units that are not synced to its file.
    fn has_unsynced(&self) -> bool {
        let process = self.primary.and_then(|primary| self.seats[primary].process.as_ref());
        process.is_some_and(|process| {
            let engine = process.engine();
            process.setup.keeps == Keeps::Always && engine.durability.synced() < engine.journal.position()
        })
    }

    fn step_reader(&mut self, number: usize) -> Result<(), Wrong> {
        let runs = |(number, seat): (usize, &Seat)| {
            seat.process.as_ref().map(|process| (number, process.incarnation << 32 | process.rewinds))
        };
        let runs: Vec<(usize, u64)> = self.seats.iter().enumerate().filter_map(runs).collect();
        let (mut turn, writers, readers) = self.turn();
        let ever: Vec<&BTreeSet<String>> = writers.iter().map(|writer| &writer.ever).collect();
        let before = readers[number].looks;
        readers[number].step(&mut turn, &runs, &ever)?;
        let looks = readers[number].looks - before;
        self.figures.looks += looks;
        self.later(6000, Actor::Reader(number));
        Ok(())
    }

    fn start(&mut self, number: usize) -> Result<(), Wrong> {
        let seat = &mut self.seats[number];
        let Some(disk) = seat.disk.take() else { return Ok(()) };
        seat.starts += 1;
        let (setup, incarnation) = (seat.setup, seat.starts);
        let mut around = Surroundings { network: &mut self.network, random: &mut self.random, now_us: self.now_us };
        let started = SimProcess::start(number, incarnation, setup, disk, &mut around);
        seat.process = Some(started.map_err(|why| format!("process {number} does not start: {why}"))?);
        self.last_place[number] = None;
        Ok(())
    }

    fn stop(&mut self, number: usize, with_power: bool) {
        let seed = self.random.next();
        let seat = &mut self.seats[number];
        let Some(process) = seat.process.take() else { return };
        seat.disk = Some(process.be_killed(with_power, seed));
        seat.completes_at = None;
        if self.handing_over.take_if(|handing| handing.from == number && handing.taker.is_none()).is_some() {
            // Otherwise a request could arrive after another process has become the primary, or after this one has
            // started again.
            self.network.sever_all_of(number);
        }
        self.network.cut_all_of(number);
        self.tell(format!("process {number} is killed{}", if with_power { ", and the power is lost" } else { "" }));
    }

    fn restart(&mut self, number: usize) -> Result<(), Wrong> {
        if self.seats[number].process.is_some() {
            return Ok(());
        }
        self.start(number)?;
        self.figures.restarts += 1;
        let is_primary = self.primary == Some(number);
        self.tell(format!("process {number} starts again{}", if is_primary { " as the primary" } else { "" }));
        if !is_primary {
            self.seats[number].is_complete = false;
            self.later(30_000, Actor::Point(number));
        }
        Ok(())
    }

    /// Tells a process to follow the primary.
    fn point(&mut self, number: usize) {
        let Some(primary) = self.primary.filter(|&primary| primary != number) else { return };
        let reply = self.follow(number, primary);
        if reply.starts_with("-LOADING") || reply.starts_with("-ERR REPLICAOF not allowed") {
            self.later(30_000, Actor::Point(number));
        }
    }

    fn follow(&mut self, number: usize, primary: usize) -> String {
        let now_us = self.now_us;
        let Some(process) = &mut self.seats[number].process else { return String::new() };
        let reply = process.admin(&["REPLICAOF", ADDRESS, &primary.to_string()], now_us);
        self.tell(format!("process {number} is told to follow {primary}: {reply}"));
        reply
    }

    /// Returns a replica that has all promised data. It may have less other data than another replica.
    fn successor(&mut self) -> Option<usize> {
        let others = (0..PROCESSES).filter(|&number| self.primary != Some(number));
        let able = others.filter(|&number| self.seats[number].is_complete && self.seats[number].process.is_some());
        let able: Vec<usize> = able.collect();
        able.get(self.random.below(able.len().max(1))).copied()
    }

    /// Promotes a replica, as an operator does.
    fn fail_over(&mut self) {
        match self.handing_over {
            Some(HandingOver { taker: None, .. }) => return,
            // The replica that had replaced the primary has stopped before the old primary learned about it.
            Some(HandingOver { from, .. }) => {
                let now_us = self.now_us;
                self.handing_over = None;
                if let Some(process) = &mut self.seats[from].process {
                    process.admin(&["FAILOVER", "ABORT"], now_us);
                }
            }
            None => {}
        }
        let Some(successor) = self.successor() else {
            // The last complete replica has just begun to load another process's data: nothing is promised any more.
            self.is_over = true;
            return;
        };
        let before = self.primary.replace(successor);
        // The old primary's branch of the history must not return; the branch ends when the process follows the new
        // primary.
        if let Some(before) = before {
            (self.seats[before].is_complete, self.seats[before].completes_at) = (false, None);
        }
        self.line += 1;
        self.figures.failovers += 1;
        let now_us = self.now_us;
        if let Some(process) = &mut self.seats[successor].process {
            process.admin(&["REPLICAOF", "NO", "ONE"], now_us);
        }
        self.note_taken_over(successor);
        self.tell(format!("process {successor} replaces primary {before:?}"));
        for number in (0..PROCESSES).filter(|&number| number != successor) {
            // The old primary may accept writes for a while, which are lost then.
            let is_late = before == Some(number) && self.random.below(2) == 0;
            if is_late {
                self.later(60_000, Actor::Point(number));
            } else {
                self.point(number);
            }
        }
    }

    fn note_taken_over(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        let process = seat.process.as_ref();
        seat.took_over_at = process.map_or(0, |process| process.engine().journal.position());
    }

    /// Lets a replica replace the primary by FAILOVER.
    fn hand_over(&mut self) {
        let Some(from) = self.primary.filter(|_| self.handing_over.is_none()) else { return };
        let to = (from + 1 + self.random.below(PROCESSES - 1)) % PROCESSES;
        let (to, timeout_ms) = (to.to_string(), (1 + self.random.below(200)).to_string());
        let forms: [&[&str]; 4] = [
            &["FAILOVER"],
            &["FAILOVER", "TIMEOUT", &timeout_ms],
            &["FAILOVER", "TO", ADDRESS, &to, "TIMEOUT", &timeout_ms],
            &["FAILOVER", "TO", ADDRESS, &to, "FORCE", "TIMEOUT", &timeout_ms],
        ];
        let words = forms[self.random.below(forms.len())];
        let now_us = self.now_us;
        let Some(process) = &mut self.seats[from].process else { return };
        let reply = process.admin(words, now_us);
        if reply == "+OK" {
            let history = process.engine().replication.history().id;
            let is_forced = words.contains(&"FORCE");
            self.handing_over = Some(HandingOver { from, history, is_forced, is_disturbed: false, taker: None });
        }
        self.tell(format!("process {from} is told to hand over: {}: {reply}", words.join(" ")));
    }

    /// Aborts a failover. If the replica had already become the primary, there would be two.
    fn abort_handing_over(&mut self) {
        let now_us = self.now_us;
        let Some(HandingOver { from, .. }) = self.handing_over else { return };
        let Some(process) = &mut self.seats[from].process else { return };
        let failover = process.engine().replication.failover();
        if failover.is_some_and(|failover| failover.stage == FailoverStage::AwaitsReplica) {
            let reply = process.admin(&["FAILOVER", "ABORT"], now_us);
            self.tell(format!("process {from} is told to abort the failover: {reply}"));
        }
    }

    /// Checks whether the replica has become the primary, or the failover was aborted.
    fn follow_handing_over(&mut self) -> Result<(), Wrong> {
        let Some(HandingOver { from, history, is_forced, taker, .. }) = self.handing_over else { return Ok(()) };
        self.refuses_until_us = self.now_us + REFUSED_US;
        let follows_none = |seat: &Seat| {
            let replication = &seat.process.as_ref()?.engine().replication;
            let before = replication.history().before.map(|(before, _)| before);
            replication.primary().0.is_none().then_some(before)
        };
        let has_taken = |seat: &Seat| follows_none(seat).is_some_and(|before| before == Some(history));
        let old = self.seats[from].process.as_ref().map(|process| process.engine());
        let has_ended = old.is_none_or(|engine| engine.replication.failover().is_none());
        let is_primary = follows_none(&self.seats[from]).is_some();
        let Some(taker) = taker else {
            let taker = (0..PROCESSES).find(|&number| number != from && has_taken(&self.seats[number]));
            match taker {
                Some(taker) => self.note_handed_over(taker),
                None if has_ended => {
                    self.tell(format!("process {from} does not hand over"));
                    self.handing_over = None;
                }
                None => self.disturb_handing_over(),
            }
            return Ok(());
        };
        if is_primary && !is_forced && has_taken(&self.seats[taker]) {
            return Err(format!("processes {from} and {taker} both take writes"));
        }
        if has_ended {
            self.handing_over = None;
            self.later(30_000, Actor::Point(from));
        }
        Ok(())
    }

    /// Disturbs a failover while the replica's answer is on its way, when the old primary can't know which process is
    /// the primary: sometimes restarts the replica, sometimes cuts all links.
    fn disturb_handing_over(&mut self) {
        let Some(handing) = &mut self.handing_over else { return };
        let Some(process) = &self.seats[handing.from].process else { return };
        let replication = &process.engine().replication;
        let (followed, failover) = (replication.primary().0, replication.failover());
        let is_asked = failover.is_some_and(|failover| matches!(failover.stage, FailoverStage::Follows { .. }));
        // The history may have got its id after the failover was requested.
        handing.history = replication.history().id;
        if !is_asked || std::mem::replace(&mut handing.is_disturbed, true) || self.is_peaceful {
            return;
        }
        let (from, taker) = (handing.from, followed.map(|primary| usize::from(primary.port)));
        match (self.random.below(4), taker) {
            (0, Some(taker)) => {
                self.stop(taker, false);
                self.seats[taker].is_complete = false;
                self.later(10_000, Actor::Restart(taker));
            }
            (1, _) => {
                self.network.cut_all_of(from);
                self.tell(format!("all links of process {from} are cut"));
            }
            _ => {}
        }
    }

    /// Records that a replica has replaced the primary. The replica has all the primary's data, unless the failover was
    /// forced.
    fn note_handed_over(&mut self, taker: usize) {
        let Some(handing) = &mut self.handing_over else { return };
        handing.taker = Some(taker);
        let HandingOver { from, is_forced, .. } = *handing;
        self.figures.handed_over += 1;
        self.primary = Some(taker);
        self.tell(format!("process {taker} has replaced process {from}"));
        self.note_taken_over(taker);
        if is_forced {
            self.line += 1;
            // A forced failover may lose data that was promised before the replica had everything.
            self.is_over |= !self.seats[taker].is_complete;
            (self.seats[from].is_complete, self.seats[from].completes_at) = (false, None);
        } else if !self.seats[taker].is_complete {
            let seat = &mut self.seats[taker];
            (seat.is_complete, seat.completes_at, seat.complete_since_us) = (true, None, self.now_us);
        }
        for number in (0..PROCESSES).filter(|&number| number != taker && number != from) {
            self.later(60_000, Actor::Point(number));
        }
    }

    /// Causes a fault.
    fn make_trouble(&mut self) -> Result<(), Wrong> {
        if self.is_peaceful {
            return Ok(());
        }
        self.later(80_000, Actor::Nemesis);
        match self.random.below(16) {
            12 => self.spoil_disk(),
            15 => self.abort_handing_over(),
            0..=2 => {
                if let Some(wire) = self.network.any() {
                    self.network.cut(wire);
                    self.tell(format!("link {wire} is cut"));
                }
            }
            3 | 4 => {
                let (a, b) = (self.random.below(PROCESSES), self.random.below(PROCESSES));
                if a != b {
                    self.network.block(a, b, true);
                    self.tell(format!("the network between processes {a} and {b} is blocked"));
                    self.later(120_000, Actor::Unblock(a, b));
                }
            }
            5 => self.shift_clock(),
            6 => {
                let number = self.random.below(PROCESSES);
                let now_us = self.now_us;
                if let Some(process) = &mut self.seats[number].process
                    && process.setup.keeps != Keeps::Nothing
                {
                    let reply = process.admin(&["BGREWRITEAOF"], now_us);
                    self.tell(format!("process {number} rewrites its append-only file: {reply}"));
                }
            }
            _ if self.now_us < self.quiet_until_us => {}
            13 | 14 => self.hand_over(),
            7 => self.chain(),
            8 | 9 => self.stop_replica(),
            10 => self.stop_primary(),
            _ => {
                if self.successor().is_some() {
                    self.fail_over();
                }
            }
        }
        Ok(())
    }

    /// Makes a disk fail for a while. It recovers by itself.
    fn spoil_disk(&mut self) {
        let (number, after, count) = (self.random.below(PROCESSES), self.random.below(20), self.random.below(30));
        if let Some(process) = &self.seats[number].process {
            process.spoil_disk(after as u64, 1 + count as u64);
            self.tell(format!("the disk of process {number} fails {} times, {after} calls from now", count + 1));
        }
    }

    fn shift_clock(&mut self) {
        let number = self.random.below(PROCESSES);
        let shift_us = self.random.below(4_000_000) as i64 - 1_000_000;
        if let Some(process) = &mut self.seats[number].process {
            process.clock_skew_us += shift_us;
            self.tell(format!("the clock of process {number} jumps by {shift_us} us"));
        }
    }

    /// Lets a replica follow another replica.
    fn chain(&mut self) {
        let replicas: Vec<usize> = (0..PROCESSES).filter(|&number| self.primary != Some(number)).collect();
        if let [a, b] = replicas[..]
            && self.primary.is_some()
            && self.handing_over.is_none()
        {
            let (follower, followed) = if self.random.below(2) == 0 { (a, b) } else { (b, a) };
            // Otherwise the follower would lose promised data.
            if !self.seats[followed].is_complete {
                return;
            }
            self.point(followed);
            self.follow(follower, followed);
            self.later(200_000, Actor::Point(follower));
        }
    }

    fn stop_replica(&mut self) {
        let number = self.random.below(PROCESSES);
        let is_safe = self.primary.is_some_and(|primary| self.seats[primary].process.is_some());
        if self.primary == Some(number) || !is_safe || self.seats[number].process.is_none() {
            return;
        }
        let with_power = self.random.below(2) == 0;
        self.stop(number, with_power);
        self.seats[number].is_complete = false;
        self.later(50_000, Actor::Restart(number));
    }

    fn stop_primary(&mut self) {
        let Some(primary) = self.primary.filter(|&primary| self.seats[primary].process.is_some()) else { return };
        let with_power = self.random.below(2) == 0;
        let kept_until_us = self.kept_until_us(primary, with_power);
        let fails_over = self.successor().is_some() && (kept_until_us.is_none() || self.random.below(2) == 0);
        if !fails_over && kept_until_us.is_none() {
            return;
        }
        self.stop(primary, with_power);
        self.quiet_until_us = self.now_us + 120_000;
        if fails_over {
            self.seats[primary].is_complete = false;
            self.later(40_000, Actor::Failover);
            self.queued += 1;
            self.queue.push(Reverse((self.now_us + 60_000, self.queued, Actor::Restart(primary))));
            return;
        }
        if self.seats[primary].setup.keeps == Keeps::EverySecond {
            self.lose_all_since(kept_until_us.unwrap_or_default());
        }
        self.later(60_000, Actor::Restart(primary));
    }

    /// Records that the primary restarts from a file with everything answered before `until_us`, and possibly without
    /// later writes.
    fn lose_all_since(&mut self, until_us: u64) {
        self.tell(format!("writes answered before {until_us} us are kept"));
        let line = self.line;
        self.writers.iter_mut().for_each(|writer| writer.lose_all_since(until_us, line));
        (self.line, self.losses) = (self.line + 1, self.losses + 1);
        // The other processes may have more or other data than the restarted one, until they follow it again.
        for (number, seat) in self.seats.iter_mut().enumerate() {
            (seat.is_complete, seat.completes_at) = (self.primary == Some(number), None);
        }
    }

    /// Returns the time before which all answered writes are in the primary's append-only file, if the primary can
    /// restart from it. For a while after a snapshot from another primary, the file is incomplete.
    fn kept_until_us(&self, number: usize, with_power: bool) -> Option<u64> {
        let seat = &self.seats[number];
        let process = seat.process.as_ref()?;
        let durability = &process.engine().durability;
        if !durability.is_whole() {
            return None;
        }
        match seat.setup.keeps {
            Keeps::Nothing => None,
            // Data that it received as a replica may have been acknowledged before it was synced.
            Keeps::Always => (durability.synced() >= seat.took_over_at).then_some(self.now_us),
            Keeps::EverySecond => {
                let until_us = process.kept_until_us(self.now_us, with_power)?;
                (seat.complete_since_us < until_us).then_some(until_us)
            }
        }
    }

    fn make_peace(&mut self) -> Result<(), Wrong> {
        self.is_peaceful = true;
        self.tell("peace".into());
        for a in 0..PROCESSES {
            (0..a).for_each(|b| self.network.block(a, b, false));
        }
        for number in 0..PROCESSES {
            self.restart(number)?;
        }
        (0..PROCESSES).for_each(|number| self.point(number));
        Ok(())
    }

    /// Returns true if all processes are at the same place, and so have the same data.
    fn are_equal(&mut self) -> Result<bool, Wrong> {
        let Some(primary) = self.primary else { return Ok(false) };
        let place = |seat: &Seat| seat.process.as_ref().and_then(SimProcess::place);
        let places: Vec<_> = self.seats.iter().map(place).collect();
        let are_up = self
            .seats
            .iter()
            .enumerate()
            .all(|(number, seat)| number == primary || seat.process.as_ref().is_some_and(SimProcess::is_up));
        if !are_up || places.iter().any(|place| place.is_none() || *place != places[0]) {
            return Ok(false);
        }
        for number in 0..PROCESSES {
            self.last_place[number] = None;
            self.compare(number)?;
        }
        Ok(true)
    }

    /// Frees the data: an engine is never freed while the program runs.
    fn tidy_up(&mut self) {
        let now_us = self.now_us;
        for seat in &mut self.seats {
            if let Some(process) = &mut seat.process {
                process.admin(&["FAILOVER", "ABORT"], now_us);
                process.admin(&["REPLICAOF", "NO", "ONE"], now_us);
                process.admin(&["FLUSHALL"], now_us);
            }
        }
    }
}
