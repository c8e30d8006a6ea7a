//! A world: nine nodes, three shards of a primary and two replicas, their clients, an operator, and the faults.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use cluster::testing::{Observed, Rule, cycle};
use cluster::{NodeId, ShardId, Slot, SlotView};
use engine::slots::jobs::JobState;
use persistence::fake::FakeDisk;
use store::random::Random;

use super::bus::{BusNews, TICK_US};
use super::client::{ClientNews, ClientTurn, ClusterClient, WriteEnd};
use super::node::{NodeNews, NodeWorld, SimNode};
use super::operator::Operator;
use super::promises::{Lineage, Promises};
use super::state_file;
use crate::Wrong;
use crate::network::Network;
use crate::setup::{ADDRESS, BUS_PORTS, Keeps, NodeSetup, PORTS, Setup};

/// Numbers of shards and of processes. Two failed primaries of five leave a majority.
const THREE_SHARDS: (usize, usize) = (3, 9);
const FIVE_SHARDS: (usize, usize) = (5, 10);
/// Numbers of clients and of lists.
const CLIENTS: usize = 3;
const KEYS: usize = 9;
/// `cluster-node-timeout`, in microseconds.
pub(super) const TIMEOUT_US: u64 = 1_000_000;
/// The beginning and the end of the faults, in microseconds. Restarted primaries do not serve for two seconds.
const TROUBLE_US: u64 = 2_400_000;
const PEACE_US: u64 = 7_000_000;
/// `cluster-manual-failover-timeout`, and with moves of whole slots, which hold writes for a multiple of it: no longer than faults last.
const HANDOVER_MS: u64 = 5000;
const WHOLE_HANDOVER_MS: u64 = 1000;
/// Longest time in which two nodes may serve one slot, in microseconds. A failover on command may come just before its old primary is cut off.
/// The old primary then sends its next PING up to half a timeout after the last PONG, and suspects the others another timeout later. Each of
/// the two waits for a tick, and for a turn of the process.
const OVERLAP_US: u64 = TIMEOUT_US * 3 / 2 + 2 * (TICK_US + IDLE_US as u64);
/// Longest time for all nodes to agree after the last fault, in microseconds.
const AGREE_US: u64 = 60 * TIMEOUT_US;
/// Longest time between two turns of an idle process, in microseconds, and of a busy one.
const IDLE_US: usize = 40_000;
const BUSY_US: usize = 3_000;
/// Number of turns within [`BUSY_US`] after bytes have arrived.
const BUSY_TURNS: usize = 4;
/// Number of events in the report of a failure.
const EVENTS_TOLD: usize = 120;

/// A rule that does not hold in a world: the world must break a promise then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mutation {
    /// All rules hold.
    #[default]
    None,
    /// A rule of the protocol is left out.
    Rule(Rule),
    /// The source gives a moved slot up before the target takes it. The operator does not see that the slot is still open, and may give it to
    /// another node.
    SourceFirst,
}

impl Mutation {
    /// The mutations that must be found, by their names.
    pub const ALL: [(&'static str, Mutation); 7] = [
        ("stale-headers", Mutation::Rule(Rule::StaleHeaders)),
        ("save-before-send", Mutation::Rule(Rule::SaveBeforeSend)),
        ("epoch-collision", Mutation::Rule(Rule::EpochCollision)),
        ("unclaimed-slots", Mutation::Rule(Rule::UnclaimedSlots)),
        ("finished-imports", Mutation::Rule(Rule::FinishedImports)),
        ("promised-slots", Mutation::Rule(Rule::PromisedSlots)),
        ("source-first", Mutation::SourceFirst),
    ];

    /// The rule of the protocol that does not hold.
    fn rule(self) -> Option<Rule> {
        match self {
            Mutation::Rule(rule) => Some(rule),
            Mutation::None | Mutation::SourceFirst => None,
        }
    }

    pub(super) fn moves_source_first(self) -> bool {
        self == Mutation::SourceFirst
    }

    /// Returns true if the operator leaves an open slot to the target of its move.
    pub(super) fn minds_open_slots(self) -> bool {
        self != Mutation::SourceFirst
    }
}

/// The command with which the operator moves slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotMoves {
    /// SETSLOT and MIGRATE: key by key.
    ByKey,
    /// MIGRATESLOTS: several slots at once.
    Whole,
    /// The one or the other, by the seed. At the end of a move, both parties fail at the same time. There are five shards of two nodes.
    InPairs,
}

/// An actor that takes a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Actor {
    Turn(usize),
    Client(usize),
    Operator,
    Nemesis,
    /// A process is killed while it executes an operator's command, or right after.
    Strike(usize),
    /// A party of a move is killed for long.
    Fall(usize),
    Restart(usize),
    Mend(usize),
    Unblock,
    Look,
}

/// The place of a process, running or not.
pub(super) struct Seat {
    pub(super) node: Option<SimNode>,
    disk: Option<FakeDisk>,
    setup: Setup,
    starts: u64,
    /// The time of the next turn, and the number of turns that follow soon.
    next_turn_us: u64,
    busy_turns: usize,
    /// For each list, the time since which the process serves its slot.
    pub(super) serves_since: Vec<Option<u64>>,
    /// The last time at which other data replaced the process's data.
    rewound_us: u64,
    /// The time at which the replica last left its primary for an orphaned one.
    left_us: u64,
    /// True if an operator has forced the process to take over, and the request may still count.
    is_forced: bool,
    /// The moves of whole slots under way, and their states.
    pub(super) moves: Vec<(String, JobState)>,
}

impl Seat {
    pub(super) fn is_well(&self) -> bool {
        let faults = self.node.as_ref().map(|node| node.faults);
        faults.is_some_and(|faults| !faults.is_stopped && !faults.hangs && !faults.disk_hangs)
    }
}

/// Counters of histories.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodesFigures {
    /// Acknowledged writes.
    pub writes: u64,
    /// Writes that WAIT has confirmed.
    pub confirmed: u64,
    /// Acknowledged writes that a fault excuses.
    pub lost: u64,
    /// Elections won.
    pub elections: u64,
    /// Starts of a process after the first.
    pub restarts: u64,
    /// Lists that another node has taken over.
    pub taken: u64,
    /// Simulated milliseconds.
    pub ms: u64,
}

impl NodesFigures {
    /// Adds the counters of another history.
    pub fn add(&mut self, other: &NodesFigures) {
        self.writes += other.writes;
        self.confirmed += other.confirmed;
        self.lost += other.lost;
        self.elections += other.elections;
        self.restarts += other.restarts;
        self.taken += other.taken;
        self.ms += other.ms;
    }
}

/// See the module's documentation.
pub(super) struct NodesWorld {
    pub(super) now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Actor)>>,
    queued: u64,
    pub(super) random: Random,
    pub(super) network: Network,
    pub(super) bus_network: Network,
    pub(super) seats: Vec<Seat>,
    pub(super) clients: Vec<ClusterClient>,
    pub(super) operator: Operator,
    pub(super) promises: Promises,
    observed: Observed,
    pub(super) keys: Vec<String>,
    /// The shard that served each list last, and the greatest epoch of a process that has served it.
    shards: Vec<Option<ShardId>>,
    epochs: Vec<u64>,
    pub(super) mutation: Mutation,
    pub(super) is_peaceful: bool,
    /// True if the operator moves whole slots by one command (MIGRATESLOTS); else it moves them key by key.
    pub(super) moves_whole: bool,
    /// True if both parties of a move are struck.
    pub(super) strikes_pairs: bool,
    /// Number of shards at the beginning.
    shards_made: usize,
    /// True if epochs of primaries have collided.
    pub(super) collides: bool,
    /// The operator begins no job before this time.
    pub(super) next_job_us: u64,
    /// The time since which all nodes agree.
    pub(super) agrees_since_us: Option<u64>,
    wrong: Option<Wrong>,
    events: VecDeque<String>,
    tells_all: bool,
    pub(super) figures: NodesFigures,
}

/// Runs a history.
///
/// # Errors
/// The broken promise, and the last events.
pub fn run_history(seed: u64, moves: SlotMoves, mutation: Mutation) -> Result<NodesFigures, Wrong> {
    let mut world = NodesWorld::new(seed, moves, mutation)?;
    let ended = world.run();
    let mut figures = world.figures;
    figures.ms = world.now_us / 1000;
    figures.lost = world.promises.writes.iter().filter(|write| write.is_excused).count() as u64;
    let events: Vec<&str> = world.events.iter().map(String::as_str).collect();
    let told = |why: Wrong| format!("seed {seed}, at {} us: {why}\n    {}", world.now_us, events.join("\n    "));
    ended.map_err(told)?;
    Ok(figures)
}

fn slot_of(key: &str) -> Slot {
    cluster::key_slot(key.as_bytes())
}

impl NodesWorld {
    fn new(seed: u64, moves: SlotMoves, mutation: Mutation) -> Result<NodesWorld, Wrong> {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xc105);
        let (network, mut bus_network) = (Network::new(random.next()), Network::new(random.next()));
        bus_network.be_late([0, 100, 20][random.below(3)]);
        let strikes_pairs = moves == SlotMoves::InPairs;
        let (shards_made, processes) = if strikes_pairs { FIVE_SHARDS } else { THREE_SHARDS };
        let keys: Vec<String> = (0..KEYS).map(|key| format!("list:{key}")).collect();
        let mut world = NodesWorld {
            now_us: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            random,
            network,
            bus_network,
            seats: Vec::new(),
            clients: Vec::new(),
            operator: Operator::default(),
            promises: Promises::new(processes, KEYS, 2 * TIMEOUT_US),
            observed: Observed::default(),
            keys,
            shards: vec![None; KEYS],
            epochs: vec![0; KEYS],
            mutation,
            is_peaceful: false,
            moves_whole: moves == SlotMoves::Whole || strikes_pairs && seed % 2 == 1,
            strikes_pairs,
            shards_made,
            collides: false,
            next_job_us: 0,
            agrees_since_us: None,
            wrong: None,
            events: VecDeque::new(),
            tells_all: std::env::var_os("SIMULATE_LOG").is_some(),
            figures: NodesFigures::default(),
        };
        world.add_nodes(processes)?;
        for number in 0..CLIENTS {
            let seed = world.random.next();
            world.clients.push(ClusterClient::new(seed, processes, KEYS));
            world.later(5000, Actor::Client(number));
        }
        world.later(5000, Actor::Operator);
        world.queue.push(Reverse((TROUBLE_US, 0, Actor::Nemesis)));
        world.later(100_000, Actor::Look);
        Ok(world)
    }

    /// Makes the disks of a cluster that has formed, and starts all processes.
    fn add_nodes(&mut self, processes: usize) -> Result<(), Wrong> {
        let random = &mut self.random;
        let ids: Vec<NodeId> = (0..processes).map(|_| NodeId::random(|| random.next())).collect();
        let shards: Vec<ShardId> = (0..self.shards_made).map(|_| ShardId::random(|| random.next())).collect();
        // Some clusters begin with colliding epochs.
        let collides = random.below(4) == 0;
        self.collides = collides;
        let setup = Setup {
            keeps: Keeps::Always,
            sends_early: random.below(2) == 0,
            durability_replicas: 0,
            workers: 1,
            sync_odds: 2,
            node: Some(NodeSetup {
                timeout_ms: TIMEOUT_US / 1000,
                goes_on: random.below(2) == 0,
                handover_ms: if self.moves_whole { WHOLE_HANDOVER_MS } else { HANDOVER_MS },
            }),
        };
        for me in 0..processes {
            let disk = FakeDisk::new(self.random.next());
            let text = nodes_text(me, &ids, &shards, collides);
            state_file::write(&disk, text.as_bytes()).map_err(|error| error.to_string())?;
            self.seats.push(Seat {
                node: None,
                disk: Some(disk),
                setup,
                starts: 0,
                next_turn_us: u64::MAX,
                busy_turns: 0,
                serves_since: vec![None; KEYS],
                rewound_us: 0,
                left_us: 0,
                is_forced: false,
                moves: Vec::new(),
            });
        }
        (0..processes).try_for_each(|number| self.start(number))
    }

    pub(super) fn any_process(&mut self) -> usize {
        self.random.below(self.seats.len())
    }

    pub(super) fn tell(&mut self, text: String) {
        let line = format!("{:>9} us  {text}", self.now_us);
        if self.tells_all {
            eprintln!("{line}");
        }
        if self.events.len() >= EVENTS_TOLD {
            self.events.pop_front();
        }
        self.events.push_back(line);
    }

    /// Notes a broken promise. The first one ends the history.
    pub(super) fn break_promise(&mut self, why: Wrong) {
        self.wrong.get_or_insert(why);
    }

    pub(super) fn push(&mut self, at_us: u64, actor: Actor) {
        self.queued += 1;
        self.queue.push(Reverse((at_us, self.queued, actor)));
    }

    /// Schedules an actor's step within this many microseconds.
    pub(super) fn later(&mut self, within_us: usize, actor: Actor) {
        let at_us = self.now_us + 1 + self.random.below(within_us) as u64;
        self.push(at_us, actor);
    }

    /// Schedules a turn of a process, unless an earlier one is scheduled.
    fn schedule_turn(&mut self, number: usize, at_us: u64) {
        if at_us < self.seats[number].next_turn_us {
            self.seats[number].next_turn_us = at_us;
            self.push(at_us, Actor::Turn(number));
        }
    }

    /// Schedules a turn of all processes, because blocked bytes may arrive.
    pub(super) fn wake_all(&mut self) {
        (0..self.seats.len()).for_each(|number| self.schedule_turn(number, self.now_us + 1));
    }

    fn run(&mut self) -> Result<(), Wrong> {
        while let Some(Reverse((at_us, _, actor))) = self.queue.pop() {
            self.now_us = self.now_us.max(at_us);
            if !self.is_peaceful && self.now_us > PEACE_US {
                self.make_peace()?;
            }
            self.act(actor)?;
            self.accept();
            self.note_arrivals();
            if let Some(why) = self.wrong.take() {
                return Err(why);
            }
            if self.is_over()? {
                return Ok(());
            }
            if self.now_us > PEACE_US + AGREE_US {
                return Err(format!("L1: the nodes do not agree: {}", self.disagreements().join("; ")));
            }
        }
        Ok(())
    }

    fn act(&mut self, actor: Actor) -> Result<(), Wrong> {
        match actor {
            Actor::Turn(number) => self.turn(number)?,
            Actor::Client(number) => self.step_client(number),
            Actor::Operator => self.step_operator(),
            Actor::Nemesis => self.make_trouble(),
            Actor::Strike(number) => self.strike(number),
            Actor::Fall(number) => self.fall(number),
            Actor::Restart(number) => self.restart(number)?,
            Actor::Mend(number) => self.mend(number),
            Actor::Unblock => self.unblock(),
            Actor::Look => self.look(),
        }
        Ok(())
    }

    /// Runs a turn of a process, and schedules the next one.
    fn turn(&mut self, number: usize) -> Result<(), Wrong> {
        if self.seats[number].next_turn_us != self.now_us {
            return Ok(());
        }
        self.seats[number].next_turn_us = u64::MAX;
        let mut news = Vec::new();
        let running = self.running();
        let NodesWorld { seats, network, bus_network, random, now_us, mutation, .. } = self;
        let seat = &mut seats[number];
        let Some(node) = &mut seat.node else { return Ok(()) };
        let mut world = NodeWorld { network, bus_network, random, running, now_us: *now_us, without: mutation.rule() };
        node.step(&mut world, &mut news).map_err(|why| format!("process {number}: {why}"))?;
        let due_us = node.due_us();
        seat.busy_turns = seat.busy_turns.saturating_sub(1);
        let most_us = if seat.busy_turns > 0 { BUSY_US } else { IDLE_US };
        let next_us = self.now_us + 100 + self.random.below(most_us) as u64;
        self.schedule_turn(number, next_us.min(due_us.max(self.now_us + 100)));
        self.take_news(number, news)?;
        self.note_moves(number);
        Ok(())
    }

    /// Notes the states of moves of whole slots. A process may be struck in any state.
    fn note_moves(&mut self, number: usize) {
        let Some(node) = &self.seats[number].node else { return };
        let under_way = node.process.engine().slots.jobs.under_way();
        let moves: Vec<_> = under_way.iter().map(|job| (job.name.clone(), job.state())).collect();
        if moves == self.seats[number].moves {
            return;
        }
        let states: Vec<_> = moves.iter().map(|(name, state)| format!("{} {}", &name[..4], state.name())).collect();
        self.tell(format!("{number}: moves under way: {}", states.join(", ")));
        self.seats[number].moves = moves;
        self.strike_at_move(number);
    }

    fn running(&self) -> u64 {
        self.seats.iter().enumerate().filter(|(_, seat)| seat.node.is_some()).map(|(at, _)| 1 << at).sum()
    }

    fn take_news(&mut self, number: usize, news: Vec<NodeNews>) -> Result<(), Wrong> {
        for one in news {
            match one {
                NodeNews::Bus(BusNews::Sent(message)) => {
                    let Some(node) = &self.seats[number].node else { continue };
                    let shard = node.bus.machine().table().myself().shard;
                    let found = self.observed.check(node.on_disk(), shard, &message);
                    found.into_iter().for_each(|why| self.break_promise(format!("process {number}: {why}")));
                }
                NodeNews::Bus(BusNews::Logged(text)) => {
                    self.note_logged(number, &text);
                    self.tell(format!("{number}: {text}"));
                }
                NodeNews::Bus(BusNews::Exits(why)) => {
                    self.tell(format!("process {number} exits: {why}"));
                    self.kill(number, false);
                    self.later(1_000_000, Actor::Restart(number));
                }
                NodeNews::Bus(BusNews::Broken(why)) => self.break_promise(format!("process {number}: {why}")),
                NodeNews::Logged(text) => self.tell(format!("{number}: {text}")),
                NodeNews::Viewed(view) => self.note_view(number, &view),
                NodeNews::Rewound => {
                    self.seats[number].rewound_us = self.now_us;
                    self.tell(format!("process {number} loads other data"));
                }
            }
        }
        Ok(())
    }

    /// Notes an event that the machine's log shows.
    fn note_logged(&mut self, number: usize, text: &str) {
        if self.strikes_pairs && text.starts_with("New configEpoch") {
            self.strike_pair(number);
        }
        if text.contains("failover user request accepted") || text.contains("Manual failover timed out") {
            self.seats[number].is_forced = text.starts_with("Forced");
        }
        if text.starts_with("Migrating to orphaned primary") {
            self.seats[number].left_us = self.now_us;
        }
        if text.contains("election won") {
            self.check_winner(number);
            // The request may be seconds old. Writes that the replica lacks are lost, as in Valkey.
            if std::mem::take(&mut self.seats[number].is_forced) {
                self.excuse_all();
            }
        }
    }

    /// Checks that a majority has voted in the winner's epoch (S1).
    fn check_winner(&mut self, number: usize) {
        self.figures.elections += 1;
        let Some(node) = &self.seats[number].node else { return };
        // A winner may take another epoch at once. Its own vote is that of the election.
        let (me, epoch) = (node.bus.machine().table().myself(), node.bus.machine().last_vote_epoch());
        self.observed.note_winner(epoch, me.id, me.shard);
        let voters = self.observed.voters(epoch);
        if voters < self.shards_made / 2 + 1 {
            self.break_promise(format!("S1: process {number} wins epoch {epoch} with {voters} votes"));
        }
    }

    /// Checks the lists whose slots a process begins to serve, and that no process is its own primary (S6).
    fn note_view(&mut self, number: usize, view: &Arc<SlotView>) {
        let cycle = self.seats[number].node.as_ref().and_then(|node| cycle(node.bus.machine()));
        cycle.into_iter().for_each(|text| self.break_promise(format!("S6: process {number}: {text}")));
        for key in 0..KEYS {
            let owns = view.is_primary() && view.owner(slot_of(&self.keys[key])) == Some(view.me);
            let since = self.seats[number].serves_since[key];
            if owns && since.is_none() {
                self.seats[number].serves_since[key] = Some(self.now_us);
                self.note_taken(number, key, view.open(slot_of(&self.keys[key])).is_some());
            } else if !owns {
                self.seats[number].serves_since[key] = None;
            }
        }
    }

    /// Notes that a process serves a list. While its slot is open, the list may be at the other end of the move, and is not checked.
    fn note_taken(&mut self, number: usize, key: usize, is_open: bool) {
        let Some(node) = &self.seats[number].node else { return };
        let me = node.bus.machine().table().myself();
        let (epoch, shard) = (me.config_epoch, Some(me.shard));
        // A primary that starts again, and does not know its successor yet.
        if epoch < self.epochs[key] || self.is_succeeded(number, key, epoch) {
            return;
        }
        self.epochs[key] = epoch;
        self.figures.taken += 1;
        if !is_open {
            self.check_taken(number, key);
        }
        if std::mem::replace(&mut self.shards[key], shard) != shard {
            self.promises.note_moved(key, self.now_us);
        }
    }

    /// Returns true if another process has heard of a greater epoch of a list's slot than this one of a process that serves it. The claim is on
    /// disk then, but the workers of the claimer may hang, or the claimer has failed.
    fn is_succeeded(&self, number: usize, key: usize, epoch: u64) -> bool {
        let slot = slot_of(&self.keys[key]);
        self.machines().filter(|(at, _)| *at != number).any(|(_, machine)| {
            let table = machine.table();
            let owner = table.owner(slot).filter(|owner| *owner != table.me());
            owner.is_some_and(|owner| table[owner].config_epoch > epoch)
        })
    }

    fn check_taken(&mut self, number: usize, key: usize) {
        let (lineage, members, found) = (self.lineage(number), self.members(number), self.list(number, key));
        match self.promises.check_list(key, &found, lineage, members) {
            Ok(0) => {}
            Ok(lost) => self.tell(format!("process {number} takes list {key} without {lost} acknowledged writes")),
            Err(why) => self.break_promise(why),
        }
    }

    /// The list of a key in a process.
    pub(super) fn list(&mut self, number: usize, key: usize) -> Vec<String> {
        let (now_us, name) = (self.now_us, &self.keys[key]);
        self.seats[number].node.as_mut().map(|node| node.process.list(name, now_us)).unwrap_or_default()
    }

    /// The data of a process, by its start and the number of times that other data replaced them.
    pub(super) fn lineage(&self, number: usize) -> Lineage {
        let node = self.seats[number].node.as_ref();
        (number, node.map_or(0, |node| node.process.incarnation << 32 | node.process.rewinds))
    }

    /// The processes of a process's shard, a bit for each.
    pub(super) fn members(&self, number: usize) -> u64 {
        let shard = |at: usize| self.seats[at].node.as_ref().map(|node| node.bus.machine().table().myself().shard);
        let own = shard(number);
        (0..self.seats.len()).filter(|at| own.is_some() && shard(*at) == own).map(|at| 1 << at).sum::<u64>()
            | 1 << number
    }

    /// True if a process replicates another one at present. Its bus may not know the shard of a new primary yet, or may have decided to follow
    /// another one.
    fn replicates(&self, at: usize, process: usize) -> bool {
        let node = self.seats[at].node.as_ref();
        let primary = node.and_then(|node| node.process.engine().replication.primary().0);
        primary.is_some_and(|primary| usize::from(primary.port) == process)
    }

    /// The process that owns a slot in its own view.
    pub(super) fn owner(&self, slot: usize) -> Option<usize> {
        let slot = Slot::new(slot as u64)?;
        let owns = |seat: &Seat| {
            let view = seat.node.as_ref().and_then(|node| node.view.as_ref());
            view.is_some_and(|view| view.is_primary() && view.owner(slot) == Some(view.me))
        };
        self.seats.iter().position(owns)
    }

    fn accept(&mut self) {
        for (number, wire) in self.network.take_opened() {
            match &mut self.seats[number].node {
                Some(node) => node.process.accept(wire, self.now_us),
                None => self.network.cut(wire),
            }
        }
        for (number, wire) in self.bus_network.take_opened() {
            match &mut self.seats[number].node {
                Some(node) => node.accept_bus(wire),
                None => self.bus_network.cut(wire),
            }
        }
    }

    fn note_arrivals(&mut self) {
        let mut arrivals = self.network.take_arrivals();
        arrivals.extend(self.bus_network.take_arrivals());
        for (at_us, number) in arrivals {
            self.seats[number].busy_turns = BUSY_TURNS;
            self.schedule_turn(number, at_us.max(self.now_us + 1));
        }
    }

    fn start(&mut self, number: usize) -> Result<(), Wrong> {
        let Some(disk) = self.seats[number].disk.take() else { return Ok(()) };
        self.seats[number].starts += 1;
        let (setup, incarnation) = (self.seats[number].setup, self.seats[number].starts);
        let (mut news, running) = (Vec::new(), self.running());
        let NodesWorld { network, bus_network, random, now_us, mutation, .. } = self;
        let mut world = NodeWorld { network, bus_network, random, running, now_us: *now_us, without: mutation.rule() };
        let started = SimNode::start((number, incarnation), setup, disk, &mut world, &mut news);
        let node = started.map_err(|why| format!("process {number} does not start: {why}"))?;
        self.seats[number].node = Some(node);
        self.schedule_turn(number, self.now_us + 1);
        self.take_news(number, news)
    }

    /// Has a process take the next epoch without votes.
    pub(super) fn bump_epoch(&mut self, number: usize) {
        let (mut news, running) = (Vec::new(), self.running());
        let NodesWorld { seats, network, bus_network, random, now_us, mutation, .. } = self;
        let mut world = NodeWorld { network, bus_network, random, running, now_us: *now_us, without: mutation.rule() };
        if let Some(node) = &mut seats[number].node {
            node.bump_epoch(&mut world, &mut news);
        }
        if let Err(why) = self.take_news(number, news) {
            self.break_promise(why);
        }
    }

    pub(super) fn kill(&mut self, number: usize, with_power: bool) {
        let seed = self.random.next();
        let seat = &mut self.seats[number];
        let Some(node) = seat.node.take() else { return };
        seat.disk = Some(node.be_killed(with_power, seed));
        (seat.serves_since, seat.is_forced, seat.moves) = (vec![None; KEYS], false, Vec::new());
        self.network.cut_all_of(number);
        self.bus_network.cut_all_of(number);
        self.promises.note_fault(number, self.now_us, true);
        let how = if with_power { ", and the power is lost" } else { "" };
        self.tell(format!("process {number} is killed{how}"));
    }

    pub(super) fn restart(&mut self, number: usize) -> Result<(), Wrong> {
        if self.seats[number].node.is_none() {
            self.figures.restarts += 1;
            self.tell(format!("process {number} starts again"));
            self.start(number)?;
            self.end_faults();
        }
        Ok(())
    }

    /// Returns true once clients begin no new pipelines. Until then they are idle between two pipelines only, and a replica may lack the last
    /// write.
    pub(super) fn clients_finish(&self) -> bool {
        self.is_peaceful && self.now_us > PEACE_US + 2 * TIMEOUT_US
    }

    fn step_client(&mut self, number: usize) {
        self.later(6_000, Actor::Client(number));
        let mut news = Vec::new();
        let finishes = self.clients_finish();
        let NodesWorld { clients, promises, network, now_us, keys, seats, .. } = self;
        let mut turn = ClientTurn {
            network,
            now_us: *now_us,
            processes: seats.len(),
            keys,
            finishes,
            write: &mut |process, key| promises.begin(number, process, key),
            news: &mut news,
        };
        clients[number].step(&mut turn);
        news.into_iter().for_each(|one| self.take_client_news(number, one));
    }

    fn take_client_news(&mut self, number: usize, news: ClientNews) {
        match news {
            ClientNews::Wrong(why) => self.break_promise(format!("client {number}: {why}")),
            ClientNews::Ended { write, end, wire } => {
                self.promises.writes[write].end = Some(end);
                if end == WriteEnd::Acknowledged {
                    self.note_acknowledged(write, wire);
                }
            }
            ClientNews::Confirmed { writes, replicas, sent_us } => self.note_confirmed(&writes, replicas, sent_us),
        }
    }

    fn note_acknowledged(&mut self, write: usize, wire: u64) {
        self.figures.writes += 1;
        let process = self.promises.writes[write].process;
        let members = self.members(process);
        let of = &mut self.promises.writes[write];
        (of.acknowledged_us, of.members) = (self.now_us, members);
        let key = of.key;
        let Some(node) = &self.seats[process].node else { return };
        let (Some(began_us), Some(since_us)) = (node.process.began_us(wire), self.seats[process].serves_since[key])
        else {
            return;
        };
        for other in (0..self.seats.len()).filter(|other| *other != process) {
            let seat = &self.seats[other];
            let serves = seat.is_well() && seat.node.as_ref().is_some_and(SimNode::serves);
            let both_us = seat.serves_since[key].filter(|_| serves).map(|other_us| other_us.max(since_us));
            if both_us.is_some_and(|both_us| began_us > both_us + OVERLAP_US) {
                return self
                    .break_promise(format!("S2: processes {process} and {other} both take writes of list {key}"));
            }
        }
    }

    /// Notes the processes that have confirmed writes. At least as many replicas as WAIT has counted have them, unless a fault or other
    /// data came between.
    fn note_confirmed(&mut self, writes: &[usize], replicas: usize, sent_us: u64) {
        self.figures.confirmed += writes.len() as u64;
        for &write in writes {
            let Some(of) = self.promises.writes.get(write).cloned() else { continue };
            let element = write.to_string();
            let is_member = |at: &usize| of.members >> at & 1 == 1 || self.replicates(*at, of.process);
            let members: Vec<usize> = (0..self.seats.len()).filter(is_member).collect();
            let has = |world: &mut NodesWorld, at: &usize| world.list(*at, of.key).contains(&element);
            let holders: Vec<usize> = members.iter().copied().filter(|at| has(self, at)).collect();
            let others = holders.iter().filter(|at| **at != of.process).count();
            let is_quiet = !self.promises.were_hit(u64::MAX, sent_us, self.now_us)
                // A replica that leaves its primary acknowledges writes until its engine carries the decision out.
                && self.seats.iter().all(|seat| seat.rewound_us < sent_us && seat.left_us + 2 * (IDLE_US as u64) < sent_us)
                && self.seats[of.process].serves_since[of.key].is_some_and(|since_us| since_us < sent_us);
            // A list without the write in its own process has moved to another node.
            if is_quiet && holders.contains(&of.process) && others < replicas {
                let text =
                    format!("S4: WAIT counts {replicas} replicas with write {write}, but {holders:?} have it: {of:?}");
                return self.break_promise(text);
            }
            self.promises.writes[write].holders = holders.into_iter().map(|at| self.lineage(at)).collect();
        }
    }
}

/// The nodes.conf of a node of a cluster that has formed.
fn nodes_text(me: usize, ids: &[NodeId], shards: &[ShardId], collides: bool) -> String {
    let mut text = String::new();
    for (node, id) in ids.iter().enumerate() {
        let (shard, port) = (node % shards.len(), PORTS + node as u16);
        let myself = if node == me { "myself," } else { "" };
        let epoch = if collides { 1 } else { shard + 1 };
        let (role, slots) = match node < shards.len() {
            true => {
                let [from, to] = [shard, shard + 1].map(|at| store::hash::SLOTS * at / shards.len());
                ("master -".to_owned(), format!(" {from}-{}", to - 1))
            }
            false => (format!("slave {}", ids[shard]), String::new()),
        };
        let bus_port = port + BUS_PORTS;
        let shard_id = shards[shard];
        let _ = writeln!(
            text,
            "{id} {ADDRESS}:{port}@{bus_port},,tls-port=0,shard-id={shard_id} {myself}{role} 0 0 {epoch} connected{slots}"
        );
    }
    let _ = writeln!(text, "vars currentEpoch {} lastVoteEpoch 0", if collides { 1 } else { shards.len() });
    text
}
