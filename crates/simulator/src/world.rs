//! A history: three processes, their clients, and what goes wrong.
//!
//! Promises that are checked:
//! - what `WAIT` has acknowledged for all replicas outlives a failover to one that has been a whole replica since;
//! - so does all that was answered with `durability-replicas` of all replicas;
//! - what was answered with `appendfsync always` outlives the loss of power, where the same process starts again as the primary;
//! - the count of a token is that of the effects, whatever happens;
//! - two processes at the same offset of the same history have the same data, at each moment at which it can be told, and all in the end;
//! - a reader sees nothing that was never written, no half of a transaction, and nothing older than before.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use persistence::fake::FakeDisk;
use replication::id::HistoryId;
use store::random::Random;

use crate::Wrong;
use crate::link::LinkEvent;
use crate::network::Network;
use crate::process::{Keeps, ProcessPart, Setup, SimProcess, Surroundings};
use crate::reader::ReaderClient;
use crate::writer::{ClientTurn, WriterClient};

/// Processes of a history.
const PROCESSES: usize = 3;
/// Clients that write, and that read.
const WRITERS: usize = 2;
const READERS: usize = 2;
/// How long things go wrong, in microseconds of the simulation.
const TROUBLE_US: u64 = 900_000;
/// How long everything may take to come together again, likewise.
const PEACE_US: u64 = 30_000_000;
/// Events that a failure tells.
const EVENTS_TOLD: usize = 60;

/// What takes the next step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Actor {
    Part(usize, usize),
    Writer(usize),
    Reader(usize),
    Nemesis,
    /// A process that has stopped starts again.
    Restart(usize),
    /// A replica takes the place of the primary.
    Failover,
    /// A process is told which primary to follow.
    Point(usize),
    /// Two processes reach each other again.
    Unblock(usize, usize),
}

/// A place where a process may be.
struct Seat {
    process: Option<SimProcess>,
    /// The disk, while the process doesn't run.
    disk: Option<FakeDisk>,
    setup: Setup,
    starts: u64,
    /// Whether it has all that was promised, so that it may be the primary.
    is_complete: bool,
    /// The offset from which on it is.
    completes_at: Option<u64>,
}

/// What a history has had in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryFigures {
    /// Operations that were answered.
    pub operations: u64,
    /// Failovers.
    pub failovers: u64,
    /// Starts of a process after the first.
    pub restarts: u64,
    /// Places at which two processes were held against each other.
    pub compared: u64,
    /// Looks of readers.
    pub looks: u64,
}

impl HistoryFigures {
    /// Adds those of another history.
    pub fn add(&mut self, other: &HistoryFigures) {
        self.operations += other.operations;
        self.failovers += other.failovers;
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
    line: u64,
    /// No process is stopped, and none takes another's place, until then.
    quiet_until_us: u64,
    is_peaceful: bool,
    /// Replicas that have what a reply tells of before it is sent.
    durability_replicas: u64,
    /// Whether no process is left that has what was promised, by the operator's doing.
    is_over: bool,
    /// The data at places of histories.
    digests: HashMap<(HistoryId, u64), (usize, String)>,
    last_place: Vec<Option<(HistoryId, u64)>>,
    events: VecDeque<String>,
    figures: HistoryFigures,
}

/// Runs a history.
///
/// # Errors
/// What is wrong, with what has happened last.
pub fn run_history(seed: u64) -> Result<HistoryFigures, Wrong> {
    let mut world = World::new(seed)?;
    let ended = world.run();
    let figures = world.figures;
    let told = |why: Wrong| {
        let events: Vec<&str> = world.events.iter().map(String::as_str).collect();
        let stories: Vec<String> = world.writers.iter().map(WriterClient::story).collect();
        format!(
            "seed {seed}, at {} us: {why}\n  SIMULATE_SEED={seed} replays it. What has happened last:\n    {}\n    {}",
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
            line: 1,
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
            let setup = Setup { keeps, sends_early: world.random.below(3) > 0, durability_replicas };
            let disk = Some(FakeDisk::new(world.random.next()));
            let is_complete = number == 0;
            world.seats.push(Seat { process: None, disk, setup, starts: 0, is_complete, completes_at: None });
            world.start(number)?;
            for part in 0..ProcessPart::ALL.len() {
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

    /// Has an actor take a step within so many microseconds.
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
        format!("it does not come together: writers done: {done:?}, processes: {}", states.join(" | "))
    }

    fn act(&mut self, actor: Actor) -> Result<(), Wrong> {
        match actor {
            Actor::Part(number, part) => self.step_part(number, part)?,
            Actor::Writer(number) => self.step_writer(number)?,
            Actor::Reader(number) => self.step_reader(number)?,
            Actor::Nemesis => self.make_trouble()?,
            Actor::Restart(number) => self.restart(number)?,
            Actor::Failover => self.fail_over()?,
            Actor::Point(number) => self.point(number),
            Actor::Unblock(a, b) => {
                self.network.block(a, b, false);
                self.tell(format!("processes {a} and {b} reach each other again"));
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

    /// Keeps account of which processes have all that was promised.
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
        // The end of a loading may be the beginning of the stream.
        let is_up = self.seats[number].process.as_ref().is_some_and(SimProcess::is_up);
        if matches!(event, LinkEvent::Up | LinkEvent::LoadingEnds) && is_up {
            self.seats[number].completes_at = self.end_of_upstream(number);
        }
        let Seat { process, is_complete, completes_at, .. } = &mut self.seats[number];
        if let (Some(process), Some(at)) = (process, *completes_at)
            && process.engine().replication.link().applied >= at
        {
            (*is_complete, *completes_at) = (true, None);
        }
    }

    /// Bytes of the history that the primary of a process has, if it has all that was promised.
    fn end_of_upstream(&self, number: usize) -> Option<u64> {
        let primary = self.seats[number].process.as_ref()?.engine().replication.primary().0?;
        let seat = &self.seats[usize::from(primary.port)];
        let process = seat.process.as_ref().filter(|_| seat.is_complete)?;
        Some(process.engine().replication.offset())
    }

    /// Holds the data of a process against what others had at the same place.
    fn compare(&mut self, number: usize) -> Result<(), Wrong> {
        let Some(process) = &mut self.seats[number].process else { return Ok(()) };
        let Some(place) = process.place().filter(|place| self.last_place[number] != Some(*place)) else {
            return Ok(());
        };
        // A digest costs more than all else: of what no other has been at, half are taken.
        if !self.is_peaceful && !self.digests.contains_key(&place) && self.random.below(2) == 0 {
            return Ok(());
        }
        let digest = process.digest(self.now_us);
        self.last_place[number] = Some(place);
        match self.digests.get(&place) {
            None => _ = self.digests.insert(place, (number, digest)),
            Some((other, known)) if *known != digest => {
                return Err(format!(
                    "processes {other} and {number} have other data at offset {} of {}",
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
            finishes: self.is_peaceful,
            promises_all: self.durability_replicas > 0,
        };
        (turn, &mut self.writers, &mut self.readers)
    }

    /// Has processes learn of the links that lead to them. One that doesn't run takes none.
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
        // The moment at which a promise is most easily broken.
        if was_promised && !self.is_peaceful && self.now_us >= self.quiet_until_us && self.random.below(6) == 0 {
            self.tell(format!("writer {number} has been promised something"));
            if self.random.below(2) == 0 {
                self.stop_primary();
            } else if self.primary.is_some_and(|primary| self.seats[primary].process.is_some())
                && self.successor().is_some()
            {
                self.fail_over()?;
            }
        }
        Ok(())
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

    fn stop(&mut self, number: usize) {
        let with_power = self.random.below(2) == 0;
        let seed = self.random.next();
        let seat = &mut self.seats[number];
        let Some(process) = seat.process.take() else { return };
        seat.disk = Some(process.be_killed(with_power, seed));
        seat.completes_at = None;
        self.network.cut_all_of(number);
        self.tell(format!("process {number} is killed{}", if with_power { ", with the power" } else { "" }));
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
        if self.follow(number, primary).starts_with("-LOADING") {
            self.later(30_000, Actor::Point(number));
        }
    }

    fn follow(&mut self, number: usize, primary: usize) -> String {
        let now_us = self.now_us;
        let Some(process) = &mut self.seats[number].process else { return String::new() };
        let reply = process.admin(&["REPLICAOF", &format!("p{primary}"), &primary.to_string()], now_us);
        self.tell(format!("process {number} is to follow {primary}: {reply}"));
        reply
    }

    /// The replica that has the most, of those that have all that was promised.
    fn successor(&self) -> Option<usize> {
        let offset =
            |number: &usize| self.seats[*number].process.as_ref().map(|process| process.engine().replication.offset());
        let others = (0..PROCESSES).filter(|&number| self.primary != Some(number));
        let able = others.filter(|&number| self.seats[number].is_complete && self.seats[number].process.is_some());
        able.max_by_key(offset)
    }

    fn fail_over(&mut self) -> Result<(), Wrong> {
        let Some(successor) = self.successor() else {
            // The last whole one has begun to load the data of another one just before: nothing is promised any more.
            self.is_over = true;
            return Ok(());
        };
        let before = self.primary.replace(successor);
        // Its own branch of the history must not come back, which ends when it has followed the new one.
        if let Some(before) = before {
            (self.seats[before].is_complete, self.seats[before].completes_at) = (false, None);
        }
        self.line += 1;
        self.figures.failovers += 1;
        let now_us = self.now_us;
        if let Some(process) = &mut self.seats[successor].process {
            process.admin(&["REPLICAOF", "NO", "ONE"], now_us);
        }
        self.tell(format!("process {successor} takes the place of {before:?}"));
        for number in (0..PROCESSES).filter(|&number| number != successor) {
            // The old primary may take writes for a while that are lost then.
            let is_late = before == Some(number) && self.random.below(2) == 0;
            if is_late {
                self.later(60_000, Actor::Point(number));
            } else {
                self.point(number);
            }
        }
        Ok(())
    }

    /// Something goes wrong.
    fn make_trouble(&mut self) -> Result<(), Wrong> {
        if self.is_peaceful {
            return Ok(());
        }
        self.later(80_000, Actor::Nemesis);
        match self.random.below(13) {
            12 => self.spoil_disk(),
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
                    self.tell(format!("processes {a} and {b} don't reach each other"));
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
                    self.tell(format!("process {number} writes its file anew: {reply}"));
                }
            }
            _ if self.now_us < self.quiet_until_us => {}
            7 => self.chain(),
            8 | 9 => self.stop_replica(),
            10 => self.stop_primary(),
            _ => {
                if self.successor().is_some() {
                    self.fail_over()?;
                }
            }
        }
        Ok(())
    }

    /// Has a disk fail for a while. It recovers by itself.
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

    /// Has a replica follow another one.
    fn chain(&mut self) {
        let replicas: Vec<usize> = (0..PROCESSES).filter(|&number| self.primary != Some(number)).collect();
        if let [a, b] = replicas[..]
            && self.primary.is_some()
        {
            let (follower, followed) = if self.random.below(2) == 0 { (a, b) } else { (b, a) };
            // Else the follower would give up what was promised.
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
        self.stop(number);
        self.seats[number].is_complete = false;
        self.later(50_000, Actor::Restart(number));
    }

    fn stop_primary(&mut self) {
        let Some(primary) = self.primary.filter(|&primary| self.seats[primary].process.is_some()) else { return };
        let keeps_all = self.seats[primary].setup.keeps == Keeps::Always;
        let has_successor = self.successor().is_some();
        let fails_over = has_successor && (!keeps_all || self.random.below(2) == 0);
        if !fails_over && !self.is_file_whole(primary) {
            return;
        }
        self.stop(primary);
        self.quiet_until_us = self.now_us + 120_000;
        if fails_over {
            self.seats[primary].is_complete = false;
            self.later(40_000, Actor::Failover);
            self.queued += 1;
            self.queue.push(Reverse((self.now_us + 60_000, self.queued, Actor::Restart(primary))));
        } else {
            self.later(60_000, Actor::Restart(primary));
        }
    }

    /// Whether the append-only file of a process has all data: after a snapshot of another primary's it has none for a while.
    fn is_file_whole(&self, number: usize) -> bool {
        let seat = &self.seats[number];
        let is_whole = |process: &SimProcess| process.engine().durability.is_whole();
        seat.setup.keeps == Keeps::Always && seat.process.as_ref().is_some_and(is_whole)
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

    /// Whether all processes are at the same place. They have the same data then.
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

    /// Gives the data's memory back: an engine stays for as long as the program runs.
    fn tidy_up(&mut self) {
        let now_us = self.now_us;
        for seat in &mut self.seats {
            if let Some(process) = &mut seat.process {
                process.admin(&["REPLICAOF", "NO", "ONE"], now_us);
                process.admin(&["FLUSHALL"], now_us);
            }
        }
    }
}
