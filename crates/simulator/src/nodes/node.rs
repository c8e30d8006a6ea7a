//! A node of a cluster: a process with an engine, its bus, the executor of the bus's decisions, and nodes.conf.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::commands::ClusterCommand;
use cluster::file::NodesFile;
use cluster::testing::Rule;
use cluster::{SlotView, view::ClusterState};
use engine::slots::bus::{Answer, BusRequest};
use persistence::fake::FakeDisk;
use store::random::Random;

use super::bus::{BusMoment, BusNews, BusTurn, SimBus};
use super::migrator::SimMigrator;
use super::roles::{RoleEvent, SimRoles};
use super::state_file::{self, SimStateFile};
use crate::Wrong;
use crate::network::{Network, WireId};
use crate::process::{ProcessPart, SimProcess, Surroundings};
use crate::setup::Setup;

/// The parts of a node that take steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodePart {
    Bus,
    Roles,
    File,
    Migrator,
    Process(ProcessPart),
}

/// Most steps that a start takes to end the imports in the append-only file.
const START_STEPS_MAX: usize = 1000;

const PARTS: [NodePart; 10] = [
    NodePart::Bus,
    NodePart::Process(ProcessPart::Worker),
    NodePart::Process(ProcessPart::Link),
    NodePart::Process(ProcessPart::Log),
    NodePart::Process(ProcessPart::Replicas),
    NodePart::Process(ProcessPart::Saving),
    NodePart::Process(ProcessPart::Moves),
    NodePart::Roles,
    NodePart::File,
    NodePart::Migrator,
];

/// The networks and the random decisions of the world.
pub struct NodeWorld<'w> {
    /// Links of clients, of replication, and of MIGRATE.
    pub network: &'w mut Network,
    /// Links of the buses.
    pub bus_network: &'w mut Network,
    /// The random decisions.
    pub random: &'w mut Random,
    /// The processes that run, a bit for each.
    pub running: u64,
    /// The simulated time, in microseconds.
    pub now_us: u64,
    /// A rule of the protocol that does not hold.
    pub without: Option<Rule>,
}

/// A fact for the world about a node.
pub enum NodeNews {
    /// A fact about the bus.
    Bus(BusNews),
    /// The workers serve by another view.
    Viewed(Arc<SlotView>),
    /// A line of the engine's log.
    Logged(String),
    /// Other or older data have replaced the node's data.
    Rewound,
}

/// Faults of a node that end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeFaults {
    /// The process is stopped.
    pub is_stopped: bool,
    /// The workers hang. The bus goes on.
    pub hangs: bool,
    /// No write to the disk ends.
    pub disk_hangs: bool,
    /// Some calls of the disk fail.
    pub disk_fails: bool,
}

/// See the module's documentation.
pub struct SimNode {
    /// The process.
    pub process: SimProcess,
    /// Its bus.
    pub bus: SimBus,
    /// Its faults.
    pub faults: NodeFaults,
    roles: SimRoles,
    file: SimStateFile,
    migrator: SimMigrator,
    requests: VecDeque<BusRequest>,
    /// The offset behind the last write before a pause that the bus has not heard of.
    paused: Option<u64>,
    opened: Vec<WireId>,
    worked_us: u64,
    timeout_us: u64,
    /// The map of the slots that the workers use.
    pub view: Option<Arc<SlotView>>,
}

impl SimNode {
    /// Starts a node on a disk that may have its data and its nodes.conf.
    ///
    /// # Errors
    /// The disk's contents can't be read.
    pub fn start(
        (number, incarnation): (usize, u64),
        setup: Setup,
        disk: FakeDisk,
        world: &mut NodeWorld<'_>,
        news: &mut Vec<NodeNews>,
    ) -> Result<SimNode, Wrong> {
        let text = state_file::read(&disk).unwrap_or_default();
        let nodes = NodesFile::parse(&text).map_err(|error| format!("nodes.conf is damaged: {error}: {text}"))?;
        let mut around = Surroundings { network: world.network, random: world.random, now_us: world.now_us };
        let process = SimProcess::start(number, incarnation, setup, disk.clone(), &mut around)?;
        let config = process.engine().settings.cluster_config();
        let timeout_us = config.node_timeout_ms * 1000;
        let bus = SimBus::start(config, nodes.as_ref(), world.without, world.now_us, world.random);
        let mut node = SimNode {
            process,
            bus,
            faults: NodeFaults::default(),
            roles: SimRoles::default(),
            file: SimStateFile::open(disk, setup.node.is_some_and(|node| node.goes_on)),
            migrator: SimMigrator::default(),
            requests: VecDeque::new(),
            paused: None,
            opened: Vec::new(),
            worked_us: world.now_us,
            timeout_us,
            view: None,
        };
        node.with_bus(world, news, SimBus::begin);
        while !node.roles.are_done() {
            node.step_roles(world, news);
        }
        node.end_followed(world)?;
        node.with_bus(world, news, SimBus::note_loaded);
        Ok(node)
    }

    /// Ends the imports that the append-only file contains, before the node serves.
    fn end_followed(&mut self, world: &mut NodeWorld<'_>) -> Result<(), Wrong> {
        if self.process.engine().slots.view().is_none_or(|view| !view.is_primary()) {
            return Ok(());
        }
        self.process.end_followed("Process restarted");
        for _ in 0..START_STEPS_MAX {
            if self.process.has_ended_followed() {
                return Ok(());
            }
            let mut around = Surroundings { network: world.network, random: world.random, now_us: world.now_us };
            for part in [ProcessPart::Moves, ProcessPart::Worker, ProcessPart::Log] {
                self.process.step(part, &mut around)?;
            }
        }
        Err("L3: the imports in the append-only file do not end".into())
    }

    /// Returns the disk after a kill or a loss of power.
    #[must_use]
    pub fn be_killed(self, with_power: bool, seed: u64) -> FakeDisk {
        self.file.be_killed(seed);
        self.process.be_killed(with_power, seed)
    }

    /// Notes a link of another bus.
    pub fn accept_bus(&mut self, wire: WireId) {
        self.opened.push(wire);
    }

    /// The content of nodes.conf that is certainly on the disk, or that the node may show without it.
    #[must_use]
    pub fn on_disk(&self) -> &cluster::testing::OnDisk {
        self.file.on_disk()
    }

    /// Returns true if the workers serve the slots of their view.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.is_up() && view.is_primary())
            && self.bus.machine().state() == ClusterState::Ok
    }

    /// Returns true if the engine has carried out all decisions of the bus.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.roles.are_done()
    }

    /// Has the node take the next epoch without votes.
    pub fn bump_epoch(&mut self, world: &mut NodeWorld<'_>, news: &mut Vec<NodeNews>) {
        let request = BusRequest { command: ClusterCommand::BumpEpoch, answer: Answer::Nobody };
        self.with_bus(world, news, |bus, turn| bus.command(turn, request));
    }

    /// Returns true if the node is a primary, as its machine decides.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.bus.machine().table().myself().is_primary()
    }

    /// The next time at which the node has something to do without a message.
    #[must_use]
    pub fn due_us(&self) -> u64 {
        self.bus.due_us().min(self.file.due_us().unwrap_or(u64::MAX))
    }

    /// Runs a step of most parts, in a random order.
    ///
    /// # Errors
    /// A broken promise.
    pub fn step(&mut self, world: &mut NodeWorld<'_>, news: &mut Vec<NodeNews>) -> Result<(), Wrong> {
        if self.faults.is_stopped {
            return Ok(());
        }
        let first = world.random.below(PARTS.len());
        let skipped = world.random.below(PARTS.len() * 3);
        for at in 0..PARTS.len() {
            if at != skipped {
                self.step_part(PARTS[(first + at) % PARTS.len()], world, news)?;
            }
        }
        Ok(())
    }

    fn step_part(&mut self, part: NodePart, world: &mut NodeWorld<'_>, news: &mut Vec<NodeNews>) -> Result<(), Wrong> {
        let NodeFaults { hangs, disk_hangs, .. } = self.faults;
        match part {
            NodePart::Bus => self.step_bus(world, news),
            NodePart::Roles if !hangs => self.step_roles(world, news),
            NodePart::File if !disk_hangs && !self.bus.has_held() => {
                if let Some((generation, saved)) = self.file.step(world.now_us) {
                    self.with_bus(world, news, |bus, turn| bus.note_saved(turn, generation, saved));
                }
            }
            NodePart::Migrator => {
                self.migrator.add(self.process.take_migrations());
                if !self.migrator.is_idle() {
                    let times = (world.now_us, self.process.unix_us(world.now_us));
                    self.migrator.step(self.process.number, self.process.engine(), world.network, times);
                }
            }
            NodePart::Process(ProcessPart::Log) if disk_hangs => {}
            NodePart::Process(ProcessPart::Worker) if hangs => {}
            NodePart::Process(part) => {
                if part == ProcessPart::Worker {
                    self.worked_us = world.now_us;
                }
                let rewinds = self.process.rewinds;
                let mut around = Surroundings { network: world.network, random: world.random, now_us: world.now_us };
                self.process.step(part, &mut around)?;
                news.extend(self.process.take_lines().into_iter().map(NodeNews::Logged));
                if self.process.rewinds != rewinds {
                    news.push(NodeNews::Rewound);
                }
            }
            NodePart::Roles | NodePart::File => {}
        }
        Ok(())
    }

    fn step_bus(&mut self, world: &mut NodeWorld<'_>, news: &mut Vec<NodeNews>) {
        self.requests.append(&mut self.process.take_requests());
        let (mut requests, mut opened) = (std::mem::take(&mut self.requests), std::mem::take(&mut self.opened));
        let mut paused = self.paused.take();
        self.with_bus(world, news, |bus, turn| {
            while !bus.is_held(turn)
                && let Some(wire) = opened.pop()
            {
                bus.accept(turn, wire);
            }
            while !bus.is_held(turn)
                && let Some(request) = requests.pop_front()
            {
                bus.command(turn, request);
            }
            if !bus.is_held(turn)
                && let Some(offset) = paused.take()
            {
                bus.note_paused(turn, offset);
            }
            if !bus.is_held(turn) {
                bus.step(turn);
            }
        });
        self.paused = paused;
        (self.requests, self.opened) = (requests, opened);
    }

    fn step_roles(&mut self, world: &mut NodeWorld<'_>, news: &mut Vec<NodeNews>) {
        match self.roles.step(&mut self.process, world.now_us) {
            Some(RoleEvent::Viewed(view)) => {
                self.view = Some(view.clone());
                news.push(NodeNews::Viewed(view));
            }
            Some(RoleEvent::Paused(offset)) => self.paused = Some(offset),
            None => {}
        }
    }

    /// Calls the bus with its surroundings.
    fn with_bus(
        &mut self,
        world: &mut NodeWorld<'_>,
        news: &mut Vec<NodeNews>,
        call: impl FnOnce(&mut SimBus, &mut BusTurn<'_>),
    ) {
        let mut heard = Vec::new();
        let moment = BusMoment {
            now_us: world.now_us,
            unix_us: self.process.unix_us(world.now_us),
            silence_us: world.now_us - self.worked_us,
            timeout_us: self.timeout_us,
        };
        let mut turn = BusTurn {
            process: self.process.number,
            engine: self.process.engine(),
            network: world.bus_network,
            running: world.running,
            random: world.random,
            file: &mut self.file,
            roles: &mut self.roles,
            moment,
            save_us: 20_000,
            news: &mut heard,
        };
        call(&mut self.bus, &mut turn);
        news.extend(heard.into_iter().map(NodeNews::Bus));
    }
}
