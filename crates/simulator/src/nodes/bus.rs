//! The bus of a node: the steps of the server's thread, on simulated links.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cluster::commands::ClusterReply;
use cluster::file::NodesFile;
use cluster::testing::{Rule, SeenPrimaries};
use cluster::view::{ClusterState, ViewDeadline};
use cluster::wire::{Frame, Message, frame};
use cluster::{Action, CommandId, Config, Facts, Generation, Input, LinkId, Machine, Moment};
use engine::replication::Primary;
use engine::replication::facts::{FactsGatherer, FactsMoment};
use engine::slots::bus::{Answer, BusRequest};
use engine::state::Engine;
use store::random::Random;

use super::roles::{SimRoles, SimTask};
use super::state_file::SimStateFile;
use crate::network::{Network, Side, WireId};
use crate::setup::{BUS_PORTS, PORTS};

/// The time between two ticks, in microseconds.
pub(super) const TICK_US: u64 = 100_000;
/// Shortest time for which a tick lets the node serve, in milliseconds.
const VIEW_MIN_MS: u64 = 300;
/// Longest time for which messages about gained slots wait for the workers, in microseconds.
const WORKERS_MAX_US: u64 = 300_000;
/// Longest time for which an answer waits until the workers see gained slots, in microseconds.
const ANSWER_MAX_US: u64 = 100_000;
/// Shortest time without a turn of any worker after which the workers count as hanging, in microseconds.
const STALLED_MIN_US: u64 = 1_000_000;
/// Longest duration of a connection's establishment, in microseconds, and the time after which an attempt has failed.
const CONNECT_US: usize = 6_000;
const CONNECT_MAX_US: u64 = 1_000_000;

/// A link.
struct SimBusLink {
    wire: WireId,
    side: Side,
    read: Vec<u8>,
}

/// A connection that is not established.
struct Connecting {
    link: LinkId,
    process: usize,
    due_us: u64,
    given_up_us: u64,
}

/// A fact for the world about the bus.
pub enum BusNews {
    /// A message leaves the node.
    Sent(Message),
    /// A line of the log.
    Logged(String),
    /// The process ends.
    Exits(String),
    /// The machine has broken a promise.
    Broken(String),
}

/// The moment of a step.
pub struct BusMoment {
    /// The simulated time, in microseconds.
    pub now_us: u64,
    /// The process's clock, in microseconds of Unix time.
    pub unix_us: u64,
    /// The time since the last turn of a worker, in microseconds.
    pub silence_us: u64,
    /// `cluster-node-timeout`, in microseconds.
    pub timeout_us: u64,
}

/// The surroundings of a step.
pub struct BusTurn<'t> {
    /// The process.
    pub process: usize,
    /// Its engine.
    pub engine: &'static Engine,
    /// The links of all buses.
    pub network: &'t mut Network,
    /// The processes that run, a bit for each.
    pub running: u64,
    /// The random decisions of the world.
    pub random: &'t mut Random,
    /// The file of the node.
    pub file: &'t mut SimStateFile,
    /// The executor of the node.
    pub roles: &'t mut SimRoles,
    /// The moment.
    pub moment: BusMoment,
    /// The longest duration of a save, in microseconds.
    pub save_us: usize,
    /// The news so far.
    pub news: &'t mut Vec<BusNews>,
}

/// See the module's documentation.
pub struct SimBus {
    machine: Machine,
    began_us: u64,
    links: BTreeMap<LinkId, SimBusLink>,
    connecting: Vec<Connecting>,
    accepted: u64,
    commands: u64,
    waiting: BTreeMap<CommandId, Answer>,
    early_answers: Vec<(u64, CommandId, ClusterReply)>,
    /// Messages that wait until the workers see gained slots, and the time at which they wait no longer.
    held: VecDeque<Action>,
    held_until_us: u64,
    facts: FactsGatherer,
    deadline: ViewDeadline,
    seen: SeenPrimaries,
    next_tick_us: u64,
}

impl SimBus {
    /// Starts the bus of a process that may have run before.
    pub fn start(
        config: Config,
        file: Option<&NodesFile>,
        without: Option<Rule>,
        now_us: u64,
        random: &mut Random,
    ) -> SimBus {
        let mut machine = match file {
            Some(file) => Machine::load(config, file, || random.next()),
            None => Machine::new(config, || random.next()),
        };
        machine.leave_out(without);
        SimBus {
            machine,
            began_us: now_us,
            links: BTreeMap::new(),
            connecting: Vec::new(),
            accepted: 0,
            commands: 0,
            waiting: BTreeMap::new(),
            early_answers: Vec::new(),
            held: VecDeque::new(),
            held_until_us: 0,
            facts: FactsGatherer::default(),
            deadline: ViewDeadline::default(),
            seen: SeenPrimaries::default(),
            next_tick_us: now_us + random.below(TICK_US as usize) as u64,
        }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The next time at which the bus has something to do without a message.
    #[must_use]
    pub fn due_us(&self) -> u64 {
        let connecting = self.connecting.iter().map(|one| one.due_us).min().unwrap_or(u64::MAX);
        self.next_tick_us.min(connecting)
    }

    /// Gives the machine its first input: data are being loaded. The view counts at once.
    pub fn begin(&mut self, turn: &mut BusTurn<'_>) {
        self.input(turn, Input::Facts(Facts { loading: true, ..Facts::default() }));
    }

    /// Tells the machine that the data are loaded.
    pub fn note_loaded(&mut self, turn: &mut BusTurn<'_>) {
        let facts = self.facts(turn);
        self.input(turn, Input::Facts(facts));
        self.input(turn, Input::Loaded(Box::new(slots_with_keys(turn.engine))));
    }

    /// Notes a link that another process has opened.
    pub fn accept(&mut self, turn: &mut BusTurn<'_>, wire: WireId) {
        self.accepted += 1;
        let link = LinkId::Inbound(self.accepted);
        self.links.insert(link, SimBusLink { wire, side: 1, read: Vec::new() });
        self.input(turn, Input::Accepted { link, peer_ip: crate::setup::ADDRESS, local_ip: crate::setup::ADDRESS });
    }

    /// Tells the machine that a save has ended.
    pub fn note_saved(&mut self, turn: &mut BusTurn<'_>, generation: Generation, saved: std::io::Result<()>) {
        match saved {
            Ok(()) => self.input(turn, Input::Saved(generation)),
            Err(error) => self.input(turn, Input::SaveFailed { generation, error: error.to_string() }),
        }
    }

    /// Tells the machine that writes are held back behind this offset.
    pub fn note_paused(&mut self, turn: &mut BusTurn<'_>, offset: u64) {
        self.input(turn, Input::Paused { offset });
    }

    /// Returns true if messages wait for the workers.
    #[must_use]
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns true while the bus waits for the workers, and does nothing else.
    pub fn is_held(&mut self, turn: &mut BusTurn<'_>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        if !turn.roles.are_done() && turn.moment.now_us < self.held_until_us {
            return true;
        }
        let held = std::mem::take(&mut self.held);
        held.into_iter().for_each(|action| self.act(turn, action));
        false
    }

    /// Runs a step: takes messages, and ticks.
    pub fn step(&mut self, turn: &mut BusTurn<'_>) {
        self.connect_due(turn);
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            if self.held.is_empty() {
                self.read(turn, link);
            }
        }
        if turn.moment.now_us >= self.next_tick_us && self.held.is_empty() {
            self.next_tick_us = turn.moment.now_us + TICK_US;
            self.tick(turn);
        }
    }

    /// Gives the machine a command.
    pub fn command(&mut self, turn: &mut BusTurn<'_>, request: BusRequest) {
        self.commands += 1;
        let id = CommandId(self.commands);
        self.waiting.insert(id, request.answer);
        if request.command.concerns_data() {
            let facts = self.facts(turn);
            self.input(turn, Input::Facts(facts));
        }
        self.input(turn, Input::Command(id, request.command));
    }

    fn tick(&mut self, turn: &mut BusTurn<'_>) {
        let facts = self.facts(turn);
        self.input(turn, Input::Facts(facts));
        self.input(turn, Input::Tick);
        if self.machine.state() == ClusterState::Ok && !facts.stalled {
            let span_ms = (turn.moment.timeout_us / 2000).max(VIEW_MIN_MS);
            self.deadline.extend(turn.moment.unix_us / 1000 + span_ms);
        }
        self.note_replicas(turn);
        let now_us = turn.moment.now_us;
        let late = self.early_answers.extract_if(.., |(given_us, ..)| now_us - *given_us > ANSWER_MAX_US);
        for (_, id, reply) in late.collect::<Vec<_>>() {
            self.answer(turn, id, reply);
        }
    }

    /// The state of the node outside of its bus, as the server gathers it.
    fn facts(&mut self, turn: &BusTurn<'_>) -> Facts {
        let moment = FactsMoment {
            carried_out: turn.roles.carried_out(),
            now: Duration::from_micros(turn.moment.now_us),
            unix_s: turn.moment.unix_us / 1_000_000,
            loading: turn.engine.is_loading(),
            stalled: turn.moment.silence_us > (turn.moment.timeout_us / 2).max(STALLED_MIN_US),
        };
        self.facts.gather(&turn.engine.replication, &moment)
    }

    fn note_replicas(&self, turn: &BusTurn<'_>) {
        let take_slots = &turn.engine.slots.replicas_take_slots;
        take_slots.store(self.machine.replicas_take_slots(), std::sync::atomic::Ordering::Relaxed);
    }

    fn connect_due(&mut self, turn: &mut BusTurn<'_>) {
        let now_us = turn.moment.now_us;
        for mut one in std::mem::take(&mut self.connecting) {
            if one.due_us > now_us {
                self.connecting.push(one);
                continue;
            }
            let runs = turn.running >> one.process & 1 == 1;
            match turn.network.open([Some(turn.process), Some(one.process)]).filter(|_| runs) {
                Some(wire) => {
                    self.links.insert(one.link, SimBusLink { wire, side: 0, read: Vec::new() });
                    self.input(turn, Input::Linked { link: one.link, local_ip: crate::setup::ADDRESS });
                }
                None if runs && now_us < one.given_up_us => {
                    one.due_us = now_us + CONNECT_MAX_US / 4;
                    self.connecting.push(one);
                }
                None => self.input(turn, Input::Lost(one.link)),
            }
        }
    }

    fn read(&mut self, turn: &mut BusTurn<'_>, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (bytes, has_ended) = turn.network.receive(link.wire, link.side, turn.moment.now_us);
        link.read.extend_from_slice(&bytes);
        let input = std::mem::take(&mut link.read);
        let (mut taken, mut is_broken) = (0, false);
        // Otherwise the bus waits for the workers, and the rest is read later.
        while self.held.is_empty() {
            match frame(&input[taken..], self.machine.config().message_bytes_max) {
                Frame::Whole(len) => {
                    self.input(turn, Input::Received { link: id, bytes: &input[taken..taken + len] });
                    taken += len;
                }
                Frame::Needs(_) => break,
                Frame::Broken => {
                    is_broken = true;
                    break;
                }
            }
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        link.read = input[taken..].to_vec();
        if has_ended || is_broken {
            turn.network.close(link.wire, link.side);
            self.links.remove(&id);
            self.input(turn, Input::Lost(id));
        }
    }

    /// Gives the machine an input, and carries out its actions, as the server does. Answers are last. Messages about gained slots wait for
    /// the workers.
    fn input(&mut self, turn: &mut BusTurn<'_>, input: Input<'_>) {
        let awaited_view = self.machine.awaits_view();
        let unix_ms = turn.moment.unix_us / 1000;
        let now = Moment { ms: (turn.moment.now_us - self.began_us) / 1000 + 1, unix_ms };
        let mut actions = self.machine.handle(now, turn.random.next(), input);
        if self.facts.keep_data(&turn.engine.replication, self.machine.keeps_data()) {
            let facts = self.facts(turn);
            actions.extend(self.machine.handle(now, turn.random.next(), Input::Facts(facts)));
        }
        turn.news.extend(self.seen.check(&self.machine).map(BusNews::Broken));
        let answers: Vec<Action> = actions.extract_if(.., |action| matches!(action, Action::Answer(..))).collect();
        let has_gained = awaited_view && !self.machine.awaits_view();
        let is_message = |action: &mut Action| has_gained && matches!(action, Action::Send { .. });
        let messages: Vec<Action> = actions.extract_if(.., is_message).collect();
        actions.into_iter().for_each(|action| self.act(turn, action));
        if !messages.is_empty() {
            self.held.extend(messages);
            self.held_until_us = turn.moment.now_us + WORKERS_MAX_US;
        }
        let awaits_view = self.machine.awaits_view();
        if !awaits_view {
            for (_, id, reply) in std::mem::take(&mut self.early_answers) {
                self.answer(turn, id, reply);
            }
        }
        for action in answers {
            let Action::Answer(id, reply) = action else { continue };
            match awaits_view {
                true => self.early_answers.push((turn.moment.now_us, id, reply)),
                false => self.answer(turn, id, reply),
            }
        }
    }

    fn answer(&mut self, turn: &mut BusTurn<'_>, id: CommandId, reply: ClusterReply) {
        match self.waiting.remove(&id) {
            Some(Answer::Client { client, worker, wait }) => {
                turn.roles.push(SimTask::Answer { client, worker, wait, reply: Box::new(reply) });
            }
            Some(Answer::Machine(machine)) => _ = machine.try_send(reply),
            Some(Answer::Thread(_) | Answer::Nobody) | None => {}
        }
    }

    fn act(&mut self, turn: &mut BusTurn<'_>, action: Action) {
        let now_us = turn.moment.now_us;
        match action {
            Action::Connect { link, port, .. } => {
                let process = usize::from(port.saturating_sub(PORTS + BUS_PORTS));
                let due_us = now_us + 100 + turn.random.below(CONNECT_US) as u64;
                self.connecting.push(Connecting { link, process, due_us, given_up_us: now_us + CONNECT_MAX_US });
            }
            Action::Close(id) => {
                self.connecting.retain(|one| one.link != id);
                if let Some(link) = self.links.remove(&id) {
                    turn.network.close(link.wire, link.side);
                }
            }
            Action::Send { link, message } => {
                if let Some(link) = self.links.get(&link) {
                    turn.network.send(link.wire, link.side, &message.to_bytes(), now_us);
                    turn.news.push(BusNews::Sent(message));
                }
            }
            Action::Save { generation, text } => {
                let due_us = now_us + 500 + turn.random.below(turn.save_us) as u64;
                turn.file.begin(generation, text, due_us);
            }
            Action::Follow { ip, port, full, .. } => {
                self.facts.note_follows(full);
                // A link opens its wire by the number of the process.
                turn.roles.push(SimTask::Follow(Primary { host: ip, port: port.saturating_sub(PORTS) }));
            }
            Action::Lead => {
                self.facts.note_leads();
                turn.roles.push(SimTask::Lead);
            }
            Action::Empty => turn.roles.push(SimTask::Empty),
            Action::Pause { until_ms } => {
                turn.roles.push(SimTask::Pause { until_us: self.began_us + (until_ms - 1) * 1000 });
            }
            Action::Resume => turn.roles.push(SimTask::Resume),
            Action::View(view) => {
                self.deadline.follow(&view);
                turn.roles.push(SimTask::View(view));
            }
            Action::DropSlots(slots) => turn.roles.push(SimTask::DropSlots(slots)),
            Action::TellReplicas { slots, source } => turn.roles.push(SimTask::TellReplicas(slots, source)),
            Action::Deliver { .. } | Action::Answer(..) => {}
            Action::Log(_, text) => turn.news.push(BusNews::Logged(text)),
            Action::Exit(why) => turn.news.push(BusNews::Exits(why)),
        }
    }
}

/// The slots that a process has keys of.
fn slots_with_keys(engine: &Engine) -> cluster::SlotSet {
    let (keyspace, mut slots) = (&engine.keyspace, cluster::SlotSet::EMPTY);
    for database in 0..keyspace.databases() {
        let mut at = 0;
        while let Some(slot) = keyspace.next_occupied_by(database, at, 1) {
            cluster::Slot::new(slot as u64).into_iter().for_each(|slot| _ = slots.insert(slot));
            at = slot + 1;
        }
    }
    slots
}
