//! A world of machines: connections with delays and cuts, disks that lose unsynced saves, and clients that write.
//!
//! One seed determines everything. Safety is checked with each message, and agreement once the faults are over: see `checks`.

mod checks;
mod faults;
mod net;

use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;

use crate::commands::{ClusterCommand, ClusterReply};
use crate::config::{Announce, Config};
use crate::file::NodesFile;
use crate::id::NodeId;
use crate::io::{Action, CommandId, Facts, Generation, Input, Moment};
use crate::machine::Machine;
use crate::rules::Rule;
use crate::slots::{SLOTS, Slot, SlotSet};
use crate::testing::OnDisk;
use crate::view::{Ports, SlotView};
use crate::wire::{Message, MessageFlags};

pub(super) use checks::Checks;
use net::{Event, Net};

/// The node timeout of the world.
pub(super) const TIMEOUT_MS: u64 = 2000;

/// The duration of a save on a slow disk.
const SLOW_SAVE_MS: u64 = 5000;

/// The Unix time at which the world begins.
const UNIX_START_MS: u64 = 1_700_000_000_000;

/// The generator of a world's randomness.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ number >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// An acknowledged write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    slot: Slot,
    at_ms: u64,
    node: usize,
    /// The node's replicas at the time of the write, a flag for each host.
    replicas: [bool; 16],
}

/// A host: its disk, its data, and a machine while it runs.
pub(super) struct Host {
    pub(super) machine: Option<Machine>,
    config: Config,
    /// The text of nodes.conf that survives a crash.
    pub(super) disk: Option<String>,
    /// The node's own epoch, slots, vote and greatest epoch, as the disk has them.
    on_disk: OnDisk,
    /// The writes that the data consists of. Primaries append, replicas copy.
    pub(super) log: Rc<Vec<u32>>,
    /// The log of the last tick, which replicas copy.
    sent_log: Rc<Vec<u32>>,
    pub(super) follows: Option<NodeId>,
    /// When a replica last copied its primary's data.
    heard_ms: Option<u64>,
    pub(super) view: Option<Arc<SlotView>>,
    paused_until_ms: u64,
    /// The number of times that a pause was ended.
    pub(super) resumed: u64,
    /// The number of starts. Results of saves from an earlier life are ignored.
    life: u64,
    /// True if saves take very long.
    pub(super) slow_disk: bool,
    /// True if the next election belongs to a planned failover.
    planned: bool,
    /// True if the host, as a replica, copies nothing.
    pub(super) lags: bool,
    /// True if the host, as a replica, gets no changes of slots from its primary's stream, as one without a link to it.
    pub(super) misses_stream: bool,
    /// True if a snapshot replaces the host's data.
    pub(super) loads: bool,
    /// True if the process is stopped.
    pub(super) stopped: bool,
    /// True if the workers hang. The bus has ticks, and says nothing.
    pub(super) hangs: bool,
    pub(super) replies: BTreeMap<u64, ClusterReply>,
    /// The slots whose keys the host has deleted.
    pub(super) dropped: SlotSet,
}

/// The world.
pub(super) struct World {
    pub(super) now_ms: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) net: Net,
    pub(super) dice: Dice,
    pub(super) checks: Checks,
    pub(super) shards: usize,
    pub(super) writes: Vec<Write>,
    pub(super) node_ticks: u64,
    /// The hosts that have won elections, in order.
    pub(super) winners: Vec<usize>,
    without: Option<Rule>,
    /// True if headers tell that nodes vote for epochs.
    has_epoch_votes: bool,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64, Event)>>,
    sequence: u64,
    commands: u64,
    writing: bool,
    is_traced: bool,
}

impl World {
    /// A world of so many hosts, which know only themselves.
    pub(super) fn new(hosts: usize, seed: u64, without: Option<Rule>) -> World {
        let mut world = World {
            now_ms: 1000,
            hosts: Vec::new(),
            net: Net::default(),
            dice: Dice(seed),
            checks: Checks::default(),
            shards: 0,
            writes: Vec::new(),
            node_ticks: 0,
            winners: Vec::new(),
            without,
            has_epoch_votes: true,
            events: BinaryHeap::new(),
            sequence: 0,
            commands: 0,
            writing: false,
            is_traced: std::env::var_os("WORLD_LOG").is_some(),
        };
        world.net.late_percent = 1;
        for host in 0..hosts {
            world.add_host(host);
        }
        world
    }

    fn add_host(&mut self, at: usize) {
        let bus_port = 10_000 + at as u16;
        let announce = Announce {
            ip: "10.0.0.1".into(),
            ports: Ports { plain: at as u16 + 1, tls: 0 },
            bus_port,
            ..Announce::default()
        };
        let config = Config { node_timeout_ms: TIMEOUT_MS, announce, replica_validity_factor: 0, ..Config::default() };
        self.hosts.push(Host {
            machine: None,
            config,
            disk: None,
            on_disk: OnDisk::default(),
            log: Rc::new(vec![0]),
            sent_log: Rc::new(vec![0]),
            follows: None,
            heard_ms: None,
            view: None,
            paused_until_ms: 0,
            resumed: 0,
            life: 0,
            slow_disk: false,
            planned: false,
            lags: false,
            loads: false,
            stopped: false,
            misses_stream: false,
            hangs: false,
            replies: BTreeMap::new(),
            dropped: SlotSet::EMPTY,
        });
        self.start(at);
        // Ticks of hosts don't fall together.
        let first = self.now_ms + 1 + self.dice.below(100);
        self.schedule(first, Event::Tick(at));
    }

    /// Starts a host from its disk.
    pub(super) fn start(&mut self, at: usize) {
        let mut dice = self.dice.clone();
        self.dice.next();
        let host = &mut self.hosts[at];
        let config = host.config.clone();
        let file = host.disk.as_deref().and_then(|text| NodesFile::parse(text).unwrap());
        let mut machine = match &file {
            Some(file) => Machine::load(config, file, || dice.next()),
            None => Machine::new(config, || dice.next()),
        };
        machine.rules.without = self.without;
        host.life += 1;
        host.follows = None;
        host.heard_ms = None;
        host.view = None;
        host.paused_until_ms = 0;
        host.machine = Some(machine);
    }

    /// Kills a host. Saves under way are lost, and its connections with it.
    pub(super) fn kill(&mut self, at: usize) {
        self.hosts[at].machine = None;
        self.hosts[at].view = None;
        for (other, link) in self.net.drop_host(at) {
            let due = self.now_ms + 1;
            self.schedule(due, Event::Lost { at: other, link });
        }
    }

    /// Prints a line if `WORLD_LOG` is set: to find out why a seed fails.
    pub(super) fn trace(&self, text: impl Fn() -> String) {
        if self.is_traced {
            eprintln!("{:>8} {}", self.now_ms, text());
        }
    }

    pub(super) fn schedule(&mut self, due_ms: u64, event: Event) {
        self.sequence += 1;
        self.events.push(std::cmp::Reverse((due_ms, self.sequence, event)));
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { ms: self.now_ms, unix_ms: UNIX_START_MS + self.now_ms }
    }

    /// Gives an input to a host, and takes its actions.
    pub(super) fn input(&mut self, at: usize, input: Input<'_>) {
        let (now, random) = (self.moment(), self.dice.next());
        if self.hosts[at].stopped {
            return;
        }
        let Some(machine) = &mut self.hosts[at].machine else { return };
        let actions = machine.handle(now, random, input);
        for action in actions {
            self.act(at, action);
        }
    }

    /// Gives a command to a host.
    pub(super) fn begin_command(&mut self, at: usize, command: ClusterCommand) -> u64 {
        self.commands += 1;
        let id = self.commands;
        self.input(at, Input::Command(CommandId(id), command));
        id
    }

    /// Runs a command, and returns once it is answered, at most a second later.
    pub(super) fn command(&mut self, at: usize, command: ClusterCommand) -> Option<ClusterReply> {
        let id = self.begin_command(at, command);
        for _ in 0..20 {
            if let Some(reply) = self.hosts[at].replies.remove(&id) {
                return Some(reply);
            }
            self.run_ms(50);
        }
        None
    }

    /// Runs a command, and asks again for a moment while the answer is [`ClusterReply::Later`].
    pub(super) fn repeat_command(&mut self, at: usize, command: &ClusterCommand) -> Option<ClusterReply> {
        let mut reply = self.command(at, command.clone());
        for _ in 0..10 {
            if reply != Some(ClusterReply::Later) {
                break;
            }
            self.run_ms(10);
            reply = self.command(at, command.clone());
        }
        reply
    }

    /// Has all nodes take the others for nodes of Valkey, which vote for no epochs.
    pub(super) fn end_epoch_votes(&mut self) {
        self.has_epoch_votes = false;
        self.run_ms(2 * TIMEOUT_MS);
    }

    /// Runs the world for a time.
    pub(super) fn run_ms(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some(std::cmp::Reverse((due_ms, _, _))) = self.events.peek() {
            if *due_ms > end {
                break;
            }
            let Some(std::cmp::Reverse((due_ms, _, event))) = self.events.pop() else { break };
            self.now_ms = self.now_ms.max(due_ms);
            self.take(event);
        }
        self.now_ms = end;
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Tick(at) => self.tick(at),
            Event::Saved { at, life, generation, text } => {
                if self.hosts[at].life == life && self.hosts[at].machine.is_some() {
                    self.write_disk(at, text);
                    self.input(at, Input::Saved(Generation(generation)));
                }
            }
            Event::Connected { connection } => self.connected(connection),
            Event::Deliver { connection, from } => self.deliver(connection, from),
            Event::Lost { at, link } => self.input(at, Input::Lost(link)),
        }
    }

    fn tick(&mut self, at: usize) {
        self.schedule(self.now_ms + 100, Event::Tick(at));
        if self.hosts[at].machine.is_none() || self.hosts[at].stopped {
            return;
        }
        self.node_ticks += 1;
        self.copy_log(at);
        self.hosts[at].sent_log = Rc::clone(&self.hosts[at].log);
        self.write_as_client(at);
        let facts = self.facts(at);
        self.input(at, Input::Facts(facts));
        self.input(at, Input::Tick);
        self.check_host(at);
    }

    fn facts(&self, at: usize) -> Facts {
        let host = &self.hosts[at];
        Facts {
            offset: if host.follows.is_some() && host.heard_ms.is_none() { 0 } else { host.log.len() as u64 },
            loading: false,
            data_age_ms: host.heard_ms.map(|heard_ms| self.now_ms - heard_ms),
            incomplete: host.loads,
            stalled: host.hangs,
        }
    }

    pub(super) fn host_of(&self, id: NodeId) -> Option<usize> {
        let is_it = |host: &Host| host.machine.as_ref().is_some_and(|machine| machine.table().myself().id == id);
        self.hosts.iter().position(is_it)
    }

    /// A replica copies the data that its primary had at its last tick.
    fn copy_log(&mut self, at: usize) {
        let Some(primary) = self.hosts[at].follows.and_then(|id| self.host_of(id)) else { return };
        if self.hosts[at].lags {
            return;
        }
        if !self.hosts[primary].stopped && self.net.is_open(primary, at) && self.net.is_open(at, primary) {
            self.hosts[at].log = Rc::clone(&self.hosts[primary].sent_log);
            self.hosts[at].heard_ms = Some(self.now_ms);
        }
    }

    pub(super) fn write_with_clients(&mut self, writing: bool) {
        self.writing = writing;
    }

    /// A client writes to a random slot that a host serves.
    fn write_as_client(&mut self, at: usize) {
        let slot = Slot::new(self.dice.below(SLOTS as u64)).unwrap();
        let host = &mut self.hosts[at];
        let serves = host.view.as_ref().is_some_and(|view| view.served().contains(slot));
        if !self.writing || !serves || host.paused_until_ms > self.now_ms || host.follows.is_some() {
            return;
        }
        Rc::make_mut(&mut host.log).push(self.writes.len() as u32 + 1);
        let id = host.machine.as_ref().map(|machine| machine.table().myself().id);
        let mut replicas = [false; 16];
        for (host, is_replica) in self.hosts.iter().zip(&mut replicas) {
            *is_replica = host.follows.is_some() && host.follows == id;
        }
        self.writes.push(Write { slot, at_ms: self.now_ms, node: at, replicas });
    }

    /// Copies the writes of a slot from one host to another, as MIGRATE does with its keys.
    pub(super) fn copy_slot(&mut self, slot: Slot, from: usize, to: usize) {
        let has = |number: &u32| *number > 0 && self.writes[*number as usize - 1].slot == slot;
        let numbers: Vec<u32> = self.hosts[from].log.iter().copied().filter(has).collect();
        Rc::make_mut(&mut self.hosts[to].log).extend(numbers);
    }

    pub(super) fn write_disk(&mut self, at: usize, text: String) {
        let host = &mut self.hosts[at];
        host.on_disk = OnDisk::of(&text).unwrap();
        host.disk = Some(text);
    }

    fn act(&mut self, at: usize, action: Action) {
        match action {
            Action::Connect { link, port, .. } => self.connect(at, link, port),
            Action::Close(link) => self.close(at, link),
            Action::Send { link, mut message } => {
                if let Message::Full(header, _) = &mut message {
                    header.message_flags.0 &= if self.has_epoch_votes { !0 } else { !MessageFlags::EPOCH_VOTES.0 };
                }
                self.check_message(at, &message);
                self.send(at, link, &message);
            }
            Action::Save { generation, text } => {
                let delay_ms = if self.hosts[at].slow_disk { SLOW_SAVE_MS } else { 1 + self.dice.below(20) };
                let life = self.hosts[at].life;
                let due = self.now_ms + delay_ms;
                self.schedule(due, Event::Saved { at, life, generation: generation.0, text });
            }
            Action::Follow { node, .. } => {
                // A replica that still shows slots as its own refuses writes to them, instead of redirecting them.
                let shown = self.hosts[at].view.as_ref().map(|view| view.mine.to_string()).unwrap_or_default();
                assert_eq!(shown, "", "slots that node {at} shows as its own when it begins to follow another node");
                if self.hosts[at].follows.replace(node) != Some(node) {
                    self.hosts[at].heard_ms = None;
                }
            }
            Action::Lead => self.hosts[at].follows = None,
            Action::Empty => self.hosts[at].log = Rc::new(vec![0]),
            Action::Pause { until_ms } => {
                self.hosts[at].paused_until_ms = until_ms;
                let offset = self.hosts[at].log.len() as u64;
                self.input(at, Input::Paused { offset });
            }
            Action::Resume => {
                self.hosts[at].paused_until_ms = 0;
                self.hosts[at].resumed += 1;
            }
            Action::View(view) => self.hosts[at].view = Some(view),
            Action::Answer(CommandId(id), reply) => _ = self.hosts[at].replies.insert(id, reply),
            Action::Log(level, text) => {
                self.trace(|| format!("{at} {level:?} {text}"));
                self.hosts[at].planned |= text.contains("manual failover can start");
                if text.contains("election won") {
                    self.excuse_replaced(at);
                    self.check_winner(at);
                    self.winners.push(at);
                }
            }
            Action::DropSlots(slots) => {
                let shows = self.hosts[at].view.as_ref().is_some_and(|view| view.mine.intersects(&slots));
                assert!(!shows, "node {at} deletes the keys of slots that it still shows as its own: {slots}");
                self.hosts[at].dropped.add(&slots);
            }
            Action::TellReplicas { slots, source } => self.tell_replicas(at, &slots, source),
            Action::Deliver { .. } => {}
            Action::Exit(text) => panic!("host {at} exits: {text}"),
        }
    }
}
