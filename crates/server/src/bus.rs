//! The cluster bus: the thread that connects this node to the others.
//!
//! The machine in the crate `cluster` decides everything. This thread gives it ticks, messages and commands, and carries out its actions:
//! it connects and sends by itself, and leaves the disk to another thread ([`saver`]) and the engine to a third one ([`executor`]). Neither a
//! slow disk nor a long script delays a PING. The bus is silent only while all workers stand still ([`facts`]), so that the other nodes
//! notice.

mod executor;
mod facts;
mod link;
pub mod mailbox;
mod queue;
pub mod saver;
pub mod socket;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cluster::view::{ClusterState, ViewDeadline};
use cluster::wire::{Frame, Kind, Message, frame};
use cluster::{Action, CommandId, Facts, Generation, Input, Level, LinkId, Machine, Moment, Slot, SlotSet};
use config::{LogLevel, Settings};
use engine::pubsub::{ChannelKind, Origin};
use engine::replication::Primary;
use engine::slots::bus::Answer;
use engine::state::Engine;
use persistence::disk::Directory;
use store::random::Random;

use self::executor::{Task, WaitingClient};
use self::facts::ServerFacts;
use self::link::{BusLink, Received};
use self::mailbox::{BusMail, BusMailbox};
use self::queue::Class;
use self::saver::{OpenedState, StateFile};
use self::socket::BusSocket;
use self::tasks::TaskQueue;
use crate::heartbeats::Heartbeats;
use crate::listener::{self, Listener};
use crate::log;
use crate::poller::{Epoll, Poller, Ready, WakeFd};
use crate::process;
use crate::threads;
use crate::time::now_us;
use crate::tls::handshakes::Handshakes;

/// The token of the first listener. Links have the tokens behind the listeners'.
const LISTENERS: u64 = 0;
/// The most listeners.
const LISTENERS_MAX: u64 = 1 << 16;
/// The most inbound links: far more than a cluster has nodes.
const INBOUND_MAX: usize = 10_000;
/// Connections accepted from a listener before other work has its turn.
const ACCEPTS_AT_ONCE: usize = 1000;
/// Bytes of published messages in a link's queue, without a configured limit.
const PUBLISHED_BYTES_MAX: usize = 64 << 20;
/// The longest time for which a transaction holds up the bus.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Interval between looks for the next command of a transaction.
const HELD_LOOK: Duration = Duration::from_micros(20);
/// A pause after a failed wait.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(1);
/// Shortest time for which a tick lets this node serve. It is longer than the distance of two ticks.
const VIEW_MIN: Duration = Duration::from_millis(300);
/// Longest time for which messages about gained slots wait for the workers.
const WORKERS_MAX: Duration = Duration::from_millis(300);
/// Longest time for which an answer waits until the workers see gained slots. Ticks check it.
const ANSWER_MAX: Duration = Duration::from_millis(100);

/// The bus before the server has loaded its data.
pub struct NewBus {
    machine: Machine,
    file: StateFile<Directory>,
    listeners: Vec<TcpListener>,
    began: Instant,
    /// The machine's first actions.
    first: Vec<Action>,
}

impl NewBus {
    /// The primary of this node, if it was a replica. The data continue its history.
    #[must_use]
    pub fn primary(&self) -> Option<(&str, u16)> {
        self.first.iter().find_map(|action| match action {
            Action::Follow { ip, port, .. } => Some((ip.as_str(), *port)),
            _ => None,
        })
    }
}

/// Reads the cluster's state, and listens on the port of the bus.
///
/// # Errors
/// Names the file or the address, and the remedy.
pub fn open(settings: &Settings) -> Result<NewBus, String> {
    let OpenedState { file, nodes } = saver::open(settings)?;
    let config = settings.cluster_config();
    let mut machine = match nodes {
        Some(nodes) => Machine::load(config, &nodes, process::random_seed),
        None => Machine::new(config, process::random_seed),
    };
    let began = Instant::now();
    let facts = Facts { loading: true, ..Facts::default() };
    let first = machine.handle(now_since(began), process::random_seed(), Input::Facts(facts));
    Ok(NewBus { machine, file, listeners: listen(settings)?, began, first })
}

fn listen(settings: &Settings) -> Result<Vec<TcpListener>, String> {
    let port = settings.cluster_bus_port().unwrap_or_default();
    let opened = listener::open_addresses(&settings.bind.get(), i64::from(port), settings);
    let opened = opened.map_err(|error| format!("Cluster bus: {}", error.text.replace("--port", "--cluster-port")))?;
    let tcp = opened.into_iter().filter_map(|listener| match listener {
        Listener::Tcp(listener) => Some(listener),
        Listener::Tls(_) | Listener::Unix(..) => None,
    });
    Ok(tcp.collect())
}

/// The bus's thread.
struct Bus {
    engine: &'static Engine,
    mailbox: Arc<BusMailbox>,
    handshakes: Arc<Handshakes>,
    machine: Machine,
    poller: Epoll,
    listeners: Vec<TcpListener>,
    first: Vec<Action>,
    /// True if a transaction has held up the bus for too long, until its end.
    was_held_too_long: bool,
    /// The port of the bus at the start. It stays the same when the clients' port changes.
    bus_port: u16,
    links: BTreeMap<u64, BusLink>,
    tokens: BTreeMap<LinkId, u64>,
    next_token: u64,
    accepted: u64,
    /// Links with more input than one turn reads.
    unread: BTreeSet<u64>,
    /// Links with messages that have not been given to the socket.
    unsent: BTreeSet<u64>,
    /// Links that are lost, unknown to the machine.
    lost: Vec<LinkId>,
    /// The receivers of commands' answers.
    waiting_commands: BTreeMap<CommandId, Answer>,
    /// Answers that wait until the workers see gained slots, and the times at which they were given.
    early_answers: Vec<(Instant, Action)>,
    commands: u64,
    saves: Sender<(Generation, String)>,
    tasks: Arc<TaskQueue>,
    facts: ServerFacts,
    deadline: ViewDeadline,
    random: Random,
    began: Instant,
    /// The memory for reads.
    room: Vec<u8>,
}

/// Starts the bus's threads.
///
/// # Errors
/// If no other thread or poller can be created.
pub fn start(
    engine: &'static Engine,
    new: NewBus,
    mailbox: Arc<BusMailbox>,
    handshakes: Arc<Handshakes>,
    heartbeats: Arc<Heartbeats>,
) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("can't start the cluster bus: {error}");
    let wake = WakeFd::new().map_err(cannot)?;
    mailbox.set_wake(wake.try_clone().map_err(cannot)?);
    for address in new.listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
        log::notice(format!("Listening on {address} (cluster bus)"));
    }
    let told = mailbox.clone();
    let NewBus { machine, file, listeners, began, mut first } = new;
    // At once, because a replica names itself to its primary by the view, and connects as soon as the data are loaded.
    for action in first.extract_if(.., |action| matches!(action, Action::View(_))) {
        if let Action::View(view) = action {
            engine.replace_slots(view);
        }
    }
    let saves = saver::start(file, move |(generation, saved)| {
        told.leave(BusMail::Saved(generation, saved.err().map(|error| error.to_string())));
    })?;
    let roles = Arc::<AtomicU64>::default();
    let tasks = executor::start(engine, mailbox.clone(), roles.clone())?;
    let bus_port = engine.settings.cluster_bus_port().unwrap_or_default();
    let run = move || match Epoll::new(wake) {
        Ok(poller) => {
            let bus = Bus {
                engine,
                mailbox,
                handshakes,
                machine,
                poller,
                listeners,
                first,
                was_held_too_long: false,
                bus_port,
                links: BTreeMap::new(),
                tokens: BTreeMap::new(),
                next_token: LISTENERS_MAX,
                accepted: 0,
                unread: BTreeSet::new(),
                unsent: BTreeSet::new(),
                lost: Vec::new(),
                waiting_commands: BTreeMap::new(),
                early_answers: Vec::new(),
                commands: 0,
                saves,
                tasks,
                facts: ServerFacts::new(engine, heartbeats, roles),
                deadline: ViewDeadline::default(),
                random: Random::new(process::random_seed()),
                began,
                room: Vec::new(),
            };
            bus.run();
        }
        Err(error) => log::warning(format!("This node can't reach the others: {}", cannot(error))),
    };
    threads::spawn(&threads::BUS, run).map_err(cannot)?;
    Ok(())
}

impl Bus {
    fn run(mut self) {
        for (at, listener) in self.listeners.iter().enumerate() {
            if let Err(error) = self.poller.add(listener.as_fd(), LISTENERS + at as u64) {
                log::warning(format!("can't watch a listener of the cluster bus: {error}"));
            }
        }
        std::mem::take(&mut self.first).into_iter().for_each(|action| self.act(action));
        let mut ready = Vec::new();
        loop {
            self.wait(&mut ready);
            self.take_mail();
            for event in &ready {
                self.serve(event);
            }
            for token in std::mem::take(&mut self.unread) {
                self.read(token);
            }
            if self.poller.take_tick() {
                self.tick();
            }
            self.note_lost();
            self.send_all();
        }
    }

    fn wait(&mut self, ready: &mut Vec<Ready>) {
        let is_busy = !self.unread.is_empty() || !self.lost.is_empty();
        if let Err(error) = self.poller.wait(is_busy.then_some(Duration::ZERO), ready) {
            log::warning(format!("epoll failed: {error}"));
            std::thread::sleep(PAUSE_AFTER_ERROR);
        }
        self.poller.take_wake();
    }

    fn handle(&mut self, input: Input<'_>) -> Vec<Action> {
        let (now, random) = (now_since(self.began), self.random.next());
        let mut actions = self.machine.handle(now, random, input);
        // Before votes are asked for. An elected replica without its data would make its primary lose them, too.
        if self.facts.keep_data(&self.machine) {
            let facts = self.facts.gather(Duration::from_millis(self.machine.config().node_timeout_ms));
            actions.extend(self.machine.handle(now, random, Input::Facts(facts)));
        }
        actions
    }

    /// Gives the machine an input, and carries out its actions. Answers are last: they follow the views of the same input.
    fn input(&mut self, input: Input<'_>) {
        let awaited_view = self.machine.awaits_view();
        let (began_ms, was_down) = (now_us() / 1000, self.machine.state() != ClusterState::Ok);
        let mut actions = self.handle(input);
        if was_down && self.machine.state() == ClusterState::Ok {
            // Without this, the node would refuse commands until the next tick.
            let timeout = Duration::from_millis(self.machine.config().node_timeout_ms);
            let until_ms = self.deadline_after(began_ms, timeout, self.facts.are_stalled(timeout));
            until_ms.into_iter().for_each(|until_ms| self.deadline.extend_next(until_ms));
        }
        let is_answer = |action: &mut Action| matches!(action, Action::Answer(..));
        let answers: Vec<Action> = actions.extract_if(.., is_answer).collect();
        let has_gained = awaited_view && !self.machine.awaits_view();
        let is_message = |action: &mut Action| has_gained && matches!(action, Action::Send { .. });
        let messages: Vec<Action> = actions.extract_if(.., is_message).collect();
        actions.into_iter().for_each(|action| self.act(action));
        // Other nodes redirect clients to this node as soon as they hear that it has gained slots. Its workers serve them by then.
        if !messages.is_empty() {
            self.tasks.wait_until_done(WORKERS_MAX);
        }
        messages.into_iter().for_each(|action| self.act(action));
        self.answer(answers);
    }

    /// Answers commands. A client that reads of gained slots in an answer may use them at once, so the answer waits until the workers see
    /// them. A thread in a transaction keeps the workers from it and gets its answer at once.
    fn answer(&mut self, answers: Vec<Action>) {
        let awaits_view = self.machine.awaits_view();
        if !awaits_view {
            std::mem::take(&mut self.early_answers).into_iter().for_each(|(_, answer)| self.act(answer));
        }
        for answer in answers {
            match awaits_view && self.is_for_client(&answer) {
                true => self.early_answers.push((Instant::now(), answer)),
                false => self.act(answer),
            }
        }
    }

    fn is_for_client(&self, answer: &Action) -> bool {
        let Action::Answer(id, _) = answer else { return false };
        matches!(self.waiting_commands.get(id), Some(Answer::Client { .. }))
    }

    /// Gives the answers that have waited for too long. A slow disk must not hide the cluster's state.
    fn give_late_answers(&mut self) {
        let late: Vec<_> = self.early_answers.extract_if(.., |(given, _)| given.elapsed() > ANSWER_MAX).collect();
        late.into_iter().for_each(|(_, answer)| self.act(answer));
    }

    fn tick(&mut self) {
        let began_ms = now_us() / 1000;
        let timeout = Duration::from_millis(self.machine.config().node_timeout_ms);
        let facts = self.facts.gather(timeout);
        self.input(Input::Facts(facts));
        self.input(Input::Tick);
        let until_ms = self.deadline_after(began_ms, timeout, facts.stalled);
        until_ms.into_iter().for_each(|until_ms| self.deadline.extend(until_ms));
        self.note_replicas();
        self.give_late_answers();
        let late = self.links.iter().filter(|(_, link)| link.is_late()).map(|(token, _)| *token);
        late.collect::<Vec<_>>().into_iter().for_each(|token| self.lose(token));
        let dropped = self.mailbox.take_dropped();
        if dropped > 0 {
            log::warning(format!("{dropped} published messages were dropped: the other nodes take them too slowly."));
        }
    }

    /// Returns the Unix time in milliseconds until which this node may serve; `None` if it may not serve any longer than before. The time
    /// is counted from the beginning of the tick, because the process may have been stopped within the tick. Ticks that are later than
    /// this mean that the process was stopped: see `Machine::tick`, which then waits for answers of a majority.
    fn deadline_after(&self, began_ms: u64, timeout: Duration, is_stalled: bool) -> Option<u64> {
        let span = (timeout / 2).max(VIEW_MIN);
        (self.machine.state() == ClusterState::Ok && !is_stalled).then(|| began_ms + span.as_millis() as u64)
    }

    /// Notes whether this node's replicas take changes of slots from the stream.
    fn note_replicas(&self) {
        self.engine.slots.replicas_take_slots.store(self.machine.replicas_take_slots(), Ordering::Relaxed);
    }

    fn refresh_facts(&mut self) {
        let timeout = Duration::from_millis(self.machine.config().node_timeout_ms);
        let facts = self.facts.gather(timeout);
        self.input(Input::Facts(facts));
    }

    /// Takes the mail. While a transaction gives commands, messages of other nodes wait for its end, but not longer than [`HELD_MAX`].
    fn take_mail(&mut self) {
        self.take_all_mail();
        let began = Instant::now();
        while self.engine.slots.hold_the_bus() && !self.was_held_too_long {
            std::thread::sleep(HELD_LOOK);
            self.take_all_mail();
            self.was_held_too_long = began.elapsed() > HELD_MAX;
        }
        self.was_held_too_long &= self.engine.slots.hold_the_bus();
    }

    fn take_all_mail(&mut self) {
        for mail in self.mailbox.take() {
            match mail {
                BusMail::Command(request) => {
                    self.commands += 1;
                    let (id, concerns_data) = (CommandId(self.commands), request.command.concerns_data());
                    let input = match &request.answer {
                        Answer::Thread(_) => Input::CommandAtOnce(id, request.command),
                        Answer::Client { .. } | Answer::Machine(_) | Answer::Nobody => {
                            Input::Command(id, request.command)
                        }
                    };
                    if concerns_data {
                        self.refresh_facts();
                    }
                    self.waiting_commands.insert(id, request.answer);
                    self.input(input);
                }
                BusMail::Publish { channel, message, sharded } => {
                    self.mailbox.note_published(&channel, &message);
                    self.input(Input::Publish { channel: channel.into(), message: message.into(), sharded });
                }
                BusMail::Saved(generation, None) => self.input(Input::Saved(generation)),
                BusMail::Saved(generation, Some(error)) => self.input(Input::SaveFailed { generation, error }),
                BusMail::Paused(offset) => self.input(Input::Paused { offset }),
                BusMail::Configured => {
                    let config = self.engine.settings.cluster_config_at(self.bus_port);
                    self.input(Input::Configured(Box::new(config)));
                }
                BusMail::Loaded(slots) => {
                    self.refresh_facts();
                    self.input(Input::Loaded(slots));
                }
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect { link, ip, port } => self.connect(link, &ip, port),
            Action::Close(link) => self.close(link),
            Action::Send { link, message } => self.queue(link, &message),
            Action::Save { generation, text } => self.save(generation, text),
            Action::Follow { ip, port, full, .. } => {
                self.facts.note_follows(full);
                self.carry_out(Task::Follow(Primary { host: ip, port }));
            }
            Action::Lead => {
                self.facts.note_leads();
                self.carry_out(Task::Lead);
            }
            Action::Empty => self.carry_out(Task::Empty),
            Action::Pause { until_ms } => {
                let until = self.began + Duration::from_millis(until_ms);
                self.carry_out(Task::Pause { until });
            }
            Action::Resume => self.carry_out(Task::Resume),
            Action::View(view) => {
                self.deadline.follow(&view);
                self.carry_out(Task::View(view));
            }
            Action::DropSlots(slots) => self.carry_out(Task::DropSlots(slots)),
            Action::TellReplicas { slots, source } => self.carry_out(Task::TellReplicas(slots, source)),
            Action::Deliver { channel, message, sharded } => self.deliver(&channel, &message, sharded),
            Action::Answer(id, reply) => {
                match self.waiting_commands.remove(&id) {
                    Some(Answer::Client { client, worker, wait }) => {
                        self.carry_out(Task::Answer(WaitingClient { client, worker, wait }, Box::new(reply)));
                    }
                    // The thread may have given up.
                    Some(Answer::Thread(thread) | Answer::Machine(thread)) => _ = thread.try_send(reply),
                    Some(Answer::Nobody) | None => {}
                }
            }
            Action::Log(level, text) => log::write(log_level(level), &text),
            Action::Exit(why) => {
                log::warning(format!("Fatal: {why}. Exiting."));
                std::process::exit(1);
            }
        }
    }

    fn carry_out(&self, task: Task) {
        self.tasks.push(task);
    }

    fn save(&mut self, generation: Generation, text: String) {
        if self.saves.send((generation, text)).is_err() {
            self.mailbox.leave(BusMail::Saved(generation, Some("the thread that saves has ended".into())));
        }
    }

    /// Gives a message of another node to this node's subscribers.
    fn deliver(&self, channel: &[u8], message: &[u8], sharded: bool) {
        let kind = if sharded { ChannelKind::Shard } else { ChannelKind::Channel };
        let inboxes = &self.engine.inboxes;
        // No worker: the inboxes' own limit bounds the messages of the bus.
        let mut origin = Origin { worker: usize::MAX, own: None, may_be_dropped: false, overfilled: None };
        self.engine.pubsub.publish(inboxes, kind, channel, message, &mut origin);
    }

    fn serve(&mut self, event: &Ready) {
        match usize::try_from(event.token).ok().filter(|at| *at < self.listeners.len()) {
            Some(at) => self.accept(at),
            None => self.serve_link(event),
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let Ok((tcp, peer)) = self.listeners[at].accept() else { return };
            if self.links.len() >= INBOUND_MAX {
                log::warning(format!("A connection of {peer} to the cluster bus was closed: there are too many."));
                continue;
            }
            let ready = tcp.set_nonblocking(true).and_then(|()| tcp.set_nodelay(true));
            if ready.is_err() {
                continue;
            }
            let socket = match self.machine.config().tls_bus {
                false => Ok(BusSocket::Plain(tcp)),
                true => match self.handshakes.setup() {
                    Some(setup) => BusSocket::encrypt_inbound(tcp, setup.config.clone()),
                    None => Err("there is no certificate".into()),
                },
            };
            self.accepted += 1;
            match socket {
                Ok(socket) => _ = self.add(BusLink::inbound(LinkId::Inbound(self.accepted), socket)),
                Err(why) => log::warning(format!("A connection to the cluster bus can't be encrypted: {why}")),
            }
        }
    }

    fn connect(&mut self, id: LinkId, ip: &str, port: u16) {
        let settings = &self.engine.settings;
        let tcp = BusSocket::connect(ip, port, &settings.bind_source_addr.get());
        let socket = tcp.map_err(|error| error.to_string()).and_then(|tcp| match self.machine.config().tls_bus {
            true => BusSocket::encrypt_outbound(tcp, ip, settings),
            false => Ok(BusSocket::Plain(tcp)),
        });
        match socket {
            Ok(socket) => {
                if !self.add(BusLink::outbound(id, socket)) {
                    self.lost.push(id);
                }
            }
            Err(why) => {
                log::write(LogLevel::Verbose, &format!("No connection to the cluster bus at {ip}:{port}: {why}"));
                self.lost.push(id);
            }
        }
    }

    fn add(&mut self, link: BusLink) -> bool {
        let token = self.next_token;
        self.next_token += 1;
        let watched = self.poller.add(link.socket().as_fd(), token).and_then(|()| match link.watches_write {
            true => self.poller.watch(link.socket().as_fd(), token, true, true),
            false => Ok(()),
        });
        if let Err(error) = watched {
            log::warning(format!("can't watch a connection of the cluster bus: {error}"));
            return false;
        }
        let opens = link.id.is_inbound();
        self.tokens.insert(link.id, token);
        self.links.insert(token, link);
        if opens {
            self.open_link(token);
        }
        true
    }

    fn serve_link(&mut self, event: &Ready) {
        let token = event.token;
        let Some(link) = self.links.get(&token) else { return };
        if !link.is_open() {
            self.open_link(token);
        }
        if event.write {
            self.unsent.insert(token);
        }
        if event.read {
            self.read(token);
        }
    }

    /// Continues to open a link, and tells the machine once it is open.
    fn open_link(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let id = link.id;
        match link.open() {
            Ok(true) => {
                let [peer_ip, local_ip] = link.ips.clone();
                self.unsent.insert(token);
                match id.is_inbound() {
                    true => self.input(Input::Accepted { link: id, peer_ip: &peer_ip, local_ip: &local_ip }),
                    false => self.input(Input::Linked { link: id, local_ip: &local_ip }),
                }
            }
            Ok(false) => self.watch(token),
            Err(_) => self.lose(token),
        }
    }

    fn read(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token).filter(|link| link.is_open()) else { return };
        let received = link.receive(&mut self.room);
        let (id, input) = (link.id, link.take_input());
        let (taken, is_broken) = self.take_messages(id, &input);
        // A message may have closed the link.
        let Some(link) = self.links.get_mut(&token) else { return };
        link.put_back(input, taken);
        match received {
            _ if is_broken => self.lose(token),
            Received::Ended => self.lose(token),
            Received::Some => _ = self.unread.insert(token),
            Received::All => {}
        }
    }

    /// Gives the machine the whole messages in a link's input. Returns the length of these messages, and whether the rest is none of the
    /// bus.
    fn take_messages(&mut self, id: LinkId, input: &[u8]) -> (usize, bool) {
        let bytes_max = self.machine.config().message_bytes_max;
        let mut taken = 0;
        loop {
            match frame(&input[taken..], bytes_max) {
                Frame::Whole(bytes) => {
                    self.input(Input::Received { link: id, bytes: &input[taken..taken + bytes] });
                    taken += bytes;
                }
                Frame::Needs(_) => return (taken, false),
                Frame::Broken => return (taken, true),
            }
        }
    }

    fn queue(&mut self, id: LinkId, message: &Message) {
        let Some(&token) = self.tokens.get(&id) else { return };
        let class = match message.kind() {
            Kind::Publish | Kind::PublishShard => Class::Published,
            _ => Class::Cluster,
        };
        let limit = usize::try_from(self.machine.config().link_buffer_bytes_max).unwrap_or(usize::MAX);
        let published_max = if limit == 0 { PUBLISHED_BYTES_MAX } else { limit.min(PUBLISHED_BYTES_MAX) };
        self.unsent.insert(token);
        if let Some(link) = self.links.get_mut(&token) {
            let bytes = message.to_bytes();
            let len = bytes.len();
            match link.queue(class, bytes, published_max) {
                true => self.machine.note_sent_bytes(message.kind(), len),
                false => self.mailbox.note_dropped(),
            }
        }
    }

    /// Gives the sockets everything that they take.
    fn send_all(&mut self) {
        let sends = !self.unsent.is_empty();
        for token in std::mem::take(&mut self.unsent) {
            let Some(link) = self.links.get_mut(&token) else { continue };
            if link.send().is_err() {
                self.lose(token);
                continue;
            }
            let (id, bytes) = (link.id, link.queued_bytes() as u64);
            let told = std::mem::replace(&mut link.told_bytes, bytes);
            self.watch(token);
            if told != bytes {
                self.input(Input::Queued { link: id, bytes });
            }
        }
        if sends {
            self.mailbox.note_link_bytes(self.links.values().map(BusLink::memory).sum());
        }
    }

    /// Watches for room to write, if the link has something to write.
    fn watch(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let write = link.wants_write();
        if write == link.watches_write {
            return;
        }
        link.watches_write = write;
        if self.poller.watch(link.socket().as_fd(), token, true, write).is_err() {
            self.lose(token);
        }
    }

    /// Closes a link for the machine.
    fn close(&mut self, id: LinkId) {
        let Some(token) = self.tokens.remove(&id) else { return };
        if let Some(link) = self.links.remove(&token) {
            self.poller.remove(link.socket().as_fd());
        }
    }

    /// Closes a link that is lost.
    fn lose(&mut self, token: u64) {
        let Some(link) = self.links.remove(&token) else { return };
        self.poller.remove(link.socket().as_fd());
        self.tokens.remove(&link.id);
        self.lost.push(link.id);
    }

    fn note_lost(&mut self) {
        while let Some(id) = self.lost.pop() {
            self.input(Input::Lost(id));
        }
    }
}

/// The present moment, on the machine's clocks. The steady one begins behind 0.
fn now_since(began: Instant) -> Moment {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { ms: began.elapsed().as_millis() as u64 + 1, unix_ms: unix.as_millis() as u64 }
}

fn log_level(level: Level) -> LogLevel {
    match level {
        Level::Verbose => LogLevel::Verbose,
        Level::Notice => LogLevel::Notice,
        Level::Warning => LogLevel::Warning,
    }
}

/// The slots that this server has keys of.
pub fn slots_with_keys(engine: &Engine) -> SlotSet {
    let keyspace = &engine.keyspace;
    let mut slots = SlotSet::EMPTY;
    for database in 0..keyspace.databases() {
        let mut at = 0;
        while let Some(slot) = keyspace.next_occupied_by(database, at, 1) {
            Slot::new(slot as u64).into_iter().for_each(|slot| _ = slots.insert(slot));
            at = slot + 1;
        }
    }
    slots
}
