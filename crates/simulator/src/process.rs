//! A server: its engine and worker, its connections, its replicas, its link and its disk. Each part takes its own
//! steps, like the server's threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::clients::progress::Progress;
use engine::clients::session::Session;
use engine::durability::DurabilityTarget;
use engine::inbox::Message;
use engine::migrations::Migration;
use engine::pause::PausePurpose;
use engine::replication::failover::{FailoverStage, FailoverVerdict};
use engine::replication::peer::{Ended, Peer, ToSend};
use engine::replication::replicas::{ReplicaIntroduction, Wanted};
use engine::replication::serving::{Admitted, Served, Serving, ServingRules};
use engine::slots::bus::BusRequest;
use engine::slots::jobs::SlotJob;
use engine::snapshots::{Outcome, Purpose};
use engine::state::Engine;
use engine::testing::{Bench, request};
use engine::worker::Worker;
use journal::order::Position;
use persistence::fake::FakeDisk;
use replication::id::HistoryId;
use replication::transfer::MARK_BYTES;
use resp::reply::Output;
use store::random::Random;

use crate::Wrong;
use crate::host::{HostMailbox, SimHost};
use crate::link::{LinkEvent, LinkTurn, SimLink};
use crate::log::{self, SimLog};
use crate::moves::{MovesTurn, SimMoves};
use crate::network::{Network, WireId};
use crate::reply::{SimReply, parse_reply};
use crate::saving::{MemorySpool, SimSaving};
use crate::setup::{Keeps, Setup, settings};

/// Start of the simulation, in microseconds of Unix time.
const STARTED_US: u64 = 1_700_000_000_000_000;
/// Interval of the periodic work of the thread that serves replicas, in microseconds.
const LOOK_US: u64 = 100_000;
/// Time before the next try to begin the append-only file, after the disk has failed, in microseconds.
const TURN_ON_AGAIN_US: u64 = 500_000;
/// Most parts of a deletion of slots in a step: all, because a part takes a real time, and a history must not depend on it.
const PARTS_MAX: usize = 10_000;
/// A time in which a snapshot's walk ends.
const WALK_LONG: Duration = Duration::from_secs(3600);
/// Longest time that a failover may pause a client, in microseconds: longer than the faults of a history.
const PAUSE_MAX_US: u64 = 8_000_000;

/// The server's end of a client's connection.
struct ServerEnd {
    session: Session,
    /// The worker of the connection.
    thread: usize,
    input: Vec<u8>,
    /// Replies that wait for durability, with the position that must be durable.
    unsettled: VecDeque<(Position, Vec<u8>)>,
    is_parked: bool,
    /// The time at which the last bytes of the client arrived.
    began_us: u64,
    /// The time since when a pause blocks the connection.
    paused_us: Option<u64>,
    deadline_us: Option<u64>,
    is_closing: bool,
}

/// The environment of a step.
pub struct Surroundings<'s> {
    /// The links.
    pub network: &'s mut Network,
    /// The source of random decisions.
    pub random: &'s mut Random,
    /// The simulated time, in microseconds.
    pub now_us: u64,
}

/// The parts of a process that take steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessPart {
    /// The worker, which runs clients' commands.
    Worker,
    /// The second worker, if there are two.
    SecondWorker,
    /// The thread that writes the append-only file.
    Log,
    /// The thread that writes a snapshot.
    Saving,
    /// The thread that serves replicas.
    Replicas,
    /// The thread that follows a primary.
    Link,
    /// The threads that move whole slots. A server outside of a cluster has none.
    Moves,
}

impl ProcessPart {
    /// All parts of a server outside of a cluster.
    pub const ALL: [ProcessPart; 6] = [
        ProcessPart::Worker,
        ProcessPart::SecondWorker,
        ProcessPart::Log,
        ProcessPart::Saving,
        ProcessPart::Replicas,
        ProcessPart::Link,
    ];
}

/// See the module's documentation.
pub struct SimProcess {
    /// The process's number, which is also its port.
    pub number: usize,
    /// A number that changes with each start.
    pub incarnation: u64,
    /// The configuration.
    pub setup: Setup,
    /// The difference of its clock from the simulated time, in microseconds.
    pub clock_skew_us: i64,
    /// Number of times that older or different data replaced its data.
    pub rewinds: u64,
    workers: Vec<Worker>,
    engine: &'static Engine,
    mailbox: Arc<HostMailbox>,
    disk: FakeDisk,
    ends: BTreeMap<WireId, ServerEnd>,
    arrivals: Vec<(WireId, u64, ReplicaIntroduction, Wanted)>,
    spools: Vec<Arc<MemorySpool>>,
    serving: Serving<MemorySpool, WireId>,
    looked_us: u64,
    link: SimLink,
    moves: SimMoves,
    saving: Option<SimSaving>,
    /// The time at which the process tries again to begin an append-only file, after the disk has failed.
    file_again_us: Option<u64>,
    /// For each worker, the last state of the replies that were given up, because they could not reach enough replicas.
    given_up_seen: Vec<u64>,
    admin: Session,
}

/// Runs the input of a connection. Returns the number of bytes taken, the replies, and the outcome.
fn run_all(worker: &mut Worker, session: &mut Session, input: &[u8]) -> (usize, Vec<u8>, Progress) {
    let (mut out, mut at) = (Output::default(), 0);
    loop {
        let (next, ran) = worker.run(session, input.into(), at, &mut out);
        at = next;
        if ran != Progress::Yielded {
            return (at, out.slices().collect::<Vec<_>>().concat(), ran);
        }
    }
}

impl SimProcess {
    /// Starts a process on a disk that may contain an append-only file.
    ///
    /// # Errors
    /// The data on the disk can't be read.
    pub fn start(
        number: usize,
        incarnation: u64,
        setup: Setup,
        disk: FakeDisk,
        around: &mut Surroundings<'_>,
    ) -> Result<SimProcess, Wrong> {
        disk.fail(0, 0);
        let mailbox = Arc::<HostMailbox>::default();
        let name: [u8; HistoryId::LEN / 2] = std::array::from_fn(|_| around.random.next() as u8);
        let host = SimHost { mailbox: mailbox.clone(), replication_id: HistoryId::new(name).to_string() };
        let unix_us = STARTED_US + around.now_us;
        let (seed, seeds) = (around.random.next(), [around.random.next()]);
        let mut bench = Bench::with_host(settings(number, setup)?, setup.workers, Box::new(host), unix_us, seed);
        bench.never_yield();
        let engine: &'static Engine = bench.worker.engine;
        let _ = mailbox.engine.set(engine);
        bench.worker.begin_turn(unix_us);
        if setup.keeps != Keeps::Nothing {
            let opened = log::recover(engine, &mut bench.worker, &disk, unix_us)?;
            let merge = log::read_journal(engine).ok_or("the journal has a reader already")?;
            mailbox.state().log = Some(SimLog::begin(engine, opened, merge));
        }
        // No reply waits for the data that was read from the file.
        let _ = bench.worker.take_durable_after();
        let admin = bench.open();
        let others: Vec<Worker> =
            (1..setup.workers).zip(seeds).map(|(id, seed)| bench.another_worker(id, seed)).collect();
        let workers = std::iter::once(bench.worker).chain(others).collect();
        let serving = Serving::new(&engine.replication, Duration::from_micros(around.now_us));
        Ok(SimProcess {
            number,
            incarnation,
            setup,
            clock_skew_us: 0,
            rewinds: 0,
            workers,
            engine,
            mailbox,
            disk,
            ends: BTreeMap::new(),
            arrivals: Vec::new(),
            spools: Vec::new(),
            serving,
            looked_us: around.now_us,
            link: SimLink::default(),
            moves: SimMoves::default(),
            saving: None,
            file_again_us: None,
            given_up_seen: vec![0; setup.workers],
            admin,
        })
    }

    /// Returns the disk as it is after the process was killed, or after the power was lost.
    #[must_use]
    pub fn be_killed(self, with_power: bool, seed: u64) -> FakeDisk {
        if with_power {
            return self.disk.crash(seed);
        }
        if let Some(log) = &mut self.mailbox.state().log {
            log.be_killed();
        }
        self.disk.clone()
    }

    /// The engine, with its replication state.
    #[must_use]
    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// Returns true if the link to the primary is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Takes the commands for the bus since the last call.
    pub fn take_requests(&mut self) -> VecDeque<BusRequest> {
        std::mem::take(&mut self.mailbox.state().requests)
    }

    /// Takes the migrations of keys that have begun since the last call.
    pub fn take_migrations(&mut self) -> VecDeque<Box<Migration>> {
        std::mem::take(&mut self.mailbox.state().migrations)
    }

    /// Deletes the keys of lost slots, as the first worker does. Returns true if there are more.
    pub fn drop_slots(&mut self, now_us: u64) -> bool {
        let unix_us = self.unix_us(now_us);
        let Some(worker) = self.workers.first_mut() else { return false };
        worker.begin_turn(unix_us);
        let has_more = worker.drop_slots();
        // The deletions wait for no client's reply.
        let _ = worker.take_durable_after();
        worker.end_turn();
        has_more
    }

    /// The time at which the last bytes on a client's connection arrived.
    #[must_use]
    pub fn began_us(&self, wire: WireId) -> Option<u64> {
        self.ends.get(&wire).map(|end| end.began_us)
    }

    /// Returns the list of a key as it is in this process, whichever node has its slot. Empty while the data are being loaded.
    pub fn list(&mut self, key: &str, now_us: u64) -> Vec<String> {
        let unix_us = self.unix_us(now_us);
        let Some(worker) = self.workers.first_mut() else { return Vec::new() };
        worker.begin_turn(unix_us);
        let bytes = engine::testing::run_here(worker, &mut self.admin, &request(&["LRANGE", key, "0", "-1"]));
        worker.end_turn();
        let reply = parse_reply(&bytes).map(|(reply, _)| reply);
        reply.iter().flat_map(SimReply::items).map(|item| item.text().to_owned()).collect()
    }

    /// Returns the process's clock, in microseconds of Unix time.
    #[must_use]
    pub fn unix_us(&self, now_us: u64) -> u64 {
        (STARTED_US + now_us).saturating_add_signed(self.clock_skew_us)
    }

    /// Runs a command at once, like an operator's program.
    pub fn admin(&mut self, words: &[&str], now_us: u64) -> String {
        let unix_us = self.unix_us(now_us);
        let Some(worker) = self.workers.first_mut() else { return String::new() };
        worker.begin_turn(unix_us);
        let (_, out, _) = run_all(worker, &mut self.admin, &request(words));
        // An operator's command does not wait for durability.
        let _ = worker.take_durable_after();
        worker.end_turn();
        String::from_utf8_lossy(&out).trim_end().to_owned()
    }

    /// Returns a digest of all data.
    pub fn digest(&mut self, now_us: u64) -> String {
        self.admin(&["DEBUG", "DIGEST"], now_us)
    }

    /// Accepts a client's connection.
    pub fn accept(&mut self, wire: WireId, now_us: u64) {
        let (unix_us, thread) = (self.unix_us(now_us), wire as usize % self.workers.len());
        let worker = &mut self.workers[thread];
        worker.begin_turn(unix_us);
        let session = worker.open("127.0.0.1:1".into(), "127.0.0.1:6379".into(), 8, 0, true);
        let end = ServerEnd {
            session,
            thread,
            input: Vec::new(),
            unsettled: VecDeque::new(),
            is_parked: false,
            began_us: now_us,
            paused_us: None,
            deadline_us: None,
            is_closing: false,
        };
        self.ends.insert(wire, end);
    }

    /// Runs a step of one part.
    ///
    /// # Errors
    /// A broken promise.
    pub fn step(&mut self, part: ProcessPart, around: &mut Surroundings<'_>) -> Result<LinkEvent, Wrong> {
        match part {
            ProcessPart::Worker => self.work(0, around)?,
            ProcessPart::SecondWorker if self.workers.len() < 2 => {}
            ProcessPart::SecondWorker => self.work(1, around)?,
            ProcessPart::Log => {
                self.turn_on_again(around.now_us);
                let odds = self.setup.sync_odds;
                let (stops_early, ends_sync) = (around.random.below(odds) > 0, around.random.below(odds) == 0);
                if let Some(log) = &mut self.mailbox.state().log {
                    log.step(self.engine, around.now_us, stops_early, ends_sync);
                }
            }
            ProcessPart::Saving => self.save(around),
            ProcessPart::Replicas => self.serve_replicas(around),
            ProcessPart::Link => return self.follow(around),
            ProcessPart::Moves => self.move_slots(around),
        }
        Ok(LinkEvent::None)
    }

    fn work(&mut self, thread: usize, around: &mut Surroundings<'_>) -> Result<(), Wrong> {
        let unix_us = self.unix_us(around.now_us);
        self.workers[thread].begin_turn(unix_us);
        self.release_settled(thread, around);
        for wire in self.wires_of(thread, |_| true) {
            self.read(wire, around);
        }
        self.take_inbox(thread, around);
        self.time_out(thread, around);
        for wire in self.wires_of(thread, |end| end.is_closing && end.unsettled.is_empty()) {
            self.close(wire, around);
        }
        if around.random.below(4) == 0 {
            self.tick(thread, around);
        }
        self.workers[thread].end_turn();
        self.check_pauses(around.now_us)
    }

    /// Returns a worker's connections that satisfy a condition.
    fn wires_of(&self, thread: usize, is_meant: impl Fn(&ServerEnd) -> bool) -> Vec<WireId> {
        let ends = self.ends.iter().filter(|(_, end)| end.thread == thread && is_meant(end));
        ends.map(|(wire, _)| *wire).collect()
    }

    /// Checks that a paused client is answered once the failover has ended or was aborted.
    fn check_pauses(&self, now_us: u64) -> Result<(), Wrong> {
        let is_late = |end: &ServerEnd| end.paused_us.is_some_and(|since_us| now_us - since_us > PAUSE_MAX_US);
        match self.ends.iter().find(|(_, end)| is_late(end)) {
            Some((wire, _)) => Err(format!("client {wire} has been paused for {PAUSE_MAX_US} us")),
            None => Ok(()),
        }
    }

    /// Does the periodic work.
    fn tick(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        let worker = &mut self.workers[thread];
        worker.serve_late();
        worker.look_for_expired(Duration::from_secs(3600));
        worker.end_migrations();
        worker.answer_late_for_bus();
        worker.continue_slot_changes();
        worker.tell_replicas();
        worker.begin_wanted_snapshot();
        // A node of a cluster has a shard for each slot, nearly all of them empty.
        let is_long = self.setup.node.is_some() && around.random.below(4) == 0;
        worker.walk_snapshot(if is_long { WALK_LONG } else { Duration::ZERO });
        let now_ms = worker.clock.now_ms;
        self.engine.pause.end_if_due(now_ms);
        if !self.engine.is_held_up() {
            self.run_paused(thread, around);
        }
        if thread == 0 {
            self.engine.sample(now_ms, around.now_us / 1000);
        }
    }

    /// Continues the connections that were paused.
    fn run_paused(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        for wire in self.wires_of(thread, |end| end.paused_us.is_some()) {
            let Some(end) = self.ends.get_mut(&wire) else { continue };
            let since_us = end.paused_us.take();
            self.run(wire, around);
            if let Some(end) = self.ends.get_mut(&wire)
                && end.paused_us.is_some()
            {
                end.paused_us = since_us;
            }
        }
    }

    fn release_settled(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        let safe = self.engine.durability.safe();
        self.give_up_where_replaced(thread, around);
        for (wire, end) in self.ends.iter_mut().filter(|(_, end)| end.thread == thread) {
            while end.unsettled.front().is_some_and(|(until, _)| *until <= safe) {
                if let Some((_, bytes)) = end.unsettled.pop_front() {
                    around.network.send(*wire, 1, &bytes, around.now_us);
                }
            }
        }
    }

    /// Closes the connections with replies that wait for replicas if this process has become a replica itself; the
    /// server sends errors in this case.
    fn give_up_where_replaced(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        let seen = &mut self.given_up_seen[thread];
        let Some(given_up) = self.engine.durability.take_given_up(seen) else { return };
        let over = self.wires_of(thread, |end| end.unsettled.iter().any(|(until, _)| given_up.concerns(*until)));
        over.into_iter().for_each(|wire| self.close(wire, around));
    }

    fn read(&mut self, wire: WireId, around: &mut Surroundings<'_>) {
        let (bytes, has_ended) = around.network.receive(wire, 1, around.now_us);
        let Some(end) = self.ends.get_mut(&wire) else { return };
        if !bytes.is_empty() {
            end.began_us = around.now_us;
        }
        end.input.extend_from_slice(&bytes);
        if has_ended && bytes.is_empty() {
            return self.close(wire, around);
        }
        self.run(wire, around);
    }

    fn close(&mut self, wire: WireId, around: &mut Surroundings<'_>) {
        if let Some(mut end) = self.ends.remove(&wire) {
            self.workers[end.thread].close(&mut end.session);
            around.network.close(wire, 1);
        }
    }

    /// Runs the input of a connection.
    fn run(&mut self, wire: WireId, around: &mut Surroundings<'_>) {
        let Some(end) = self.ends.get_mut(&wire) else { return };
        if end.is_parked || end.paused_us.is_some() || end.is_closing || end.input.is_empty() {
            return;
        }
        let (at, out, ran) = run_all(&mut self.workers[end.thread], &mut end.session, &end.input);
        end.input.drain(..at);
        self.answer(wire, out, around);
        let Some(end) = self.ends.get_mut(&wire) else { return };
        if let Some(wanted) = end.session.departs.take() {
            return self.depart(wire, wanted);
        }
        if let Some(job) = end.session.imports.take() {
            return self.hand_to_import(wire, job, around);
        }
        end.paused_us = (ran == Progress::Paused).then_some(around.now_us);
        end.is_closing = ran == Progress::Closing;
        if ran == Progress::Parked {
            end.is_parked = true;
            let timeout_ms = end.session.client.waiter().and_then(|waiter| waiter.wait.timeout_ms);
            end.deadline_us = timeout_ms.map(|timeout_ms| around.now_us + timeout_ms * 1000);
            if self.workers[end.thread].awaits_acknowledgement(&end.session) {
                self.engine.replication.replicas.note_awaited(end.thread, true);
                self.engine.inboxes[end.thread].send(Message::Acknowledged);
            }
        }
    }

    /// Sends replies, or queues them until they are durable.
    fn answer(&mut self, wire: WireId, bytes: Vec<u8>, around: &mut Surroundings<'_>) {
        let Some(thread) = self.ends.get(&wire).map(|end| end.thread) else { return };
        let durable_after = self.workers[thread].take_durable_after();
        self.give_up_where_replaced(thread, around);
        let Some(end) = self.ends.get_mut(&wire) else { return };
        if durable_after > self.engine.durability.safe() || !end.unsettled.is_empty() {
            let until = end.unsettled.back().map_or(durable_after, |(last, _)| durable_after.max(*last));
            end.unsettled.push_back((until, bytes));
        } else {
            around.network.send(wire, 1, &bytes, around.now_us);
        }
    }

    /// Hands a connection over to the part that serves replicas.
    fn depart(&mut self, wire: WireId, wanted: Wanted) {
        let Some(mut end) = self.ends.remove(&wire) else { return };
        let introduction = end.session.replica.take().map(|known| *known).unwrap_or_default();
        self.workers[end.thread].close(&mut end.session);
        self.arrivals.push((wire, end.session.client.id, introduction, wanted));
    }

    /// Hands a connection over to the part that imports slots. A source awaits each reply before it begins.
    fn hand_to_import(&mut self, wire: WireId, job: Arc<SlotJob>, around: &mut Surroundings<'_>) {
        let Some(mut end) = self.ends.remove(&wire) else { return };
        self.workers[end.thread].close(&mut end.session);
        if end.unsettled.iter().all(|(_, bytes)| bytes.is_empty()) {
            return self.moves.begin_import(Some(wire), job);
        }
        around.network.close(wire, 1);
        self.moves.begin_import(None, job);
    }

    fn move_slots(&mut self, around: &mut Surroundings<'_>) {
        if std::mem::take(&mut self.mailbox.state().exports) {
            self.moves.begin_exports();
        }
        let unix_us = self.unix_us(around.now_us);
        let (process, engine, now_us) = (self.number, self.engine, around.now_us);
        self.moves.step(&mut MovesTurn { process, engine, network: &mut *around.network, now_us, unix_us });
    }

    /// Begins to end the imports that this process only followed, now that it is a primary.
    pub fn end_followed(&mut self, message: &str) {
        self.moves.end_followed(self.engine, message);
    }

    /// Returns true if no import that this process only followed is being ended.
    #[must_use]
    pub fn has_ended_followed(&self) -> bool {
        self.moves.have_ended_followed()
    }

    /// Takes the lines of the log since the last call.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.mailbox.state().lines)
    }

    fn take_inbox(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        for message in self.engine.inboxes[thread].take() {
            match message {
                Message::Close { client } => {
                    let wires = self.wires_of(thread, |end| end.session.client.id == client);
                    wires.into_iter().for_each(|wire| self.close(wire, around));
                }
                Message::Unpark { client, mut output, .. } => {
                    let wires = self.wires_of(thread, |end| end.is_parked && end.session.client.id == client);
                    wires.into_iter().for_each(|wire| self.unpark(wire, &mut output, around));
                }
                Message::Acknowledged => self.answer_acknowledged(thread, around),
                Message::Look => self.run_paused(thread, around),
                Message::Lanes => self.workers[thread].apply_lanes(),
                Message::Migrated => self.workers[thread].end_migrations(),
                Message::SlotImports => self.workers[thread].import_slots(),
                Message::DropSlots => _ = (0..PARTS_MAX).all(|_| self.workers[thread].drop_slots()),
                Message::TellReplicas => self.workers[thread].tell_replicas(),
                Message::ClusterAnswered { client, wait, reply } => {
                    self.workers[thread].answer_for_bus(client, wait, reply);
                }
                _ => {}
            }
        }
    }

    fn answer_acknowledged(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        self.workers[thread].continue_slot_changes();
        let worker = &self.workers[thread];
        for wire in self.wires_of(thread, |end| end.is_parked && worker.has_acknowledged(&end.session)) {
            self.end_wait(wire, around);
        }
        let worker = &self.workers[thread];
        let is_awaited = worker.awaits_slot_changes()
            || !self.wires_of(thread, |end| worker.awaits_acknowledgement(&end.session)).is_empty();
        self.engine.replication.replicas.note_awaited(thread, is_awaited);
    }

    fn end_wait(&mut self, wire: WireId, around: &mut Surroundings<'_>) {
        let Some(end) = self.ends.get_mut(&wire) else { return };
        let mut out = Output::default();
        if self.workers[end.thread].time_out(&mut end.session, &mut out) {
            self.go_on(wire, &out, around);
        }
    }

    /// Ends the blocking of a connection, on behalf of any thread. The reply is the last one if this process has become
    /// a replica.
    fn unpark(&mut self, wire: WireId, reply: &mut Output, around: &mut Surroundings<'_>) {
        let Some(end) = self.ends.get_mut(&wire) else { return };
        let (worker, mut out) = (&mut self.workers[end.thread], Output::default());
        worker.resume(&mut end.session, reply, &mut out);
        self.go_on(wire, &out, around);
    }

    /// Continues a connection that was blocked, unless the reply is its last one.
    fn go_on(&mut self, wire: WireId, out: &Output, around: &mut Surroundings<'_>) {
        let Some(end) = self.ends.get_mut(&wire) else { return };
        (end.is_parked, end.deadline_us, end.is_closing) = (false, None, end.session.closing);
        self.answer(wire, out.slices().collect::<Vec<_>>().concat(), around);
        self.run(wire, around);
    }

    fn time_out(&mut self, thread: usize, around: &mut Surroundings<'_>) {
        let now_us = around.now_us;
        for wire in self.wires_of(thread, |end| end.deadline_us.is_some_and(|due| due <= now_us)) {
            self.end_wait(wire, around);
        }
    }

    fn save(&mut self, around: &mut Surroundings<'_>) {
        let mut state = self.mailbox.state();
        if self.saving.is_none()
            && let Some(begun) = state.begun.pop_front()
        {
            let mark: [u8; MARK_BYTES] = std::array::from_fn(|_| b'a' + (around.random.next() % 26) as u8);
            let (saving, spool) = SimSaving::begin(self.engine, begun, &self.disk, mark);
            self.saving = Some(saving);
            self.spools.extend(spool);
        }
        let Some(saving) = &mut self.saving else { return };
        let count = 1 + around.random.below(10);
        let logs = state.logs;
        let log = state.log.as_mut().map(|log| (log, logs));
        let outcome: Option<Outcome> = saving.step(self.engine, log, count);
        drop(state);
        if let Some(outcome) = outcome
            && let Some(saving) = self.saving.take()
        {
            saving.end(self.engine, outcome, self.unix_us(around.now_us) / 1_000_000);
        }
    }

    /// Returns true while a replica takes this primary's place in a cluster. It waits for the offset of the last write exactly.
    fn hands_over(&self, now_us: u64) -> bool {
        self.engine.pause.holds_for(PausePurpose::ManualFailover, self.unix_us(now_us) / 1000)
    }

    fn rules(&self, now_us: u64) -> ServingRules {
        let ping_period = if self.hands_over(now_us) { Duration::MAX } else { Duration::from_secs(1) };
        ServingRules {
            timeout: Duration::from_secs(3),
            waiting_bytes_max: 0,
            ping_period,
            backlog_ttl: Duration::ZERO,
            backlog_bytes: self.engine.settings.repl_backlog_size.get(),
            sends_early: self.setup.sends_early,
            good_wanted: 0,
            good_lag: Duration::ZERO,
        }
    }

    fn serve_replicas(&mut self, around: &mut Surroundings<'_>) {
        let (engine, now) = (self.engine, Duration::from_micros(around.now_us));
        let replication = &engine.replication;
        let ended = self.serving.follow_history(replication);
        self.forget(ended, around);
        self.take_arrivals(now);
        for spool in std::mem::take(&mut self.spools) {
            self.serving.begin_sending(replication, spool, self.setup.sends_early, now);
        }
        self.hear(around, now);
        // Like the server's thread, takes some chunks, and the rest the next time.
        let has_units = (0..8).take_while(|_| replication.stream.take()).count() > 0;
        let is_awaited = has_units && engine.durability.is_awaited(DurabilityTarget::Replicas);
        if (replication.take_request() || is_awaited) && !self.hands_over(around.now_us) {
            replication.stream.ask();
        }
        self.send(around, now);
        self.serving.trim(replication, engine.settings.repl_backlog_size.get(), now);
        if around.now_us - self.looked_us >= LOOK_US {
            self.looked_us = around.now_us;
            let chores = self.serving.cron(replication, &self.rules(around.now_us), now);
            self.forget(chores.ended, around);
            if chores.wants_snapshot {
                engine.snapshots.want(Purpose::Replicas);
            }
            self.check_failover(around);
        }
        self.note_figures();
    }

    /// Lets a replica with all data replace this process, if a failover was requested.
    fn check_failover(&mut self, around: &Surroundings<'_>) {
        let (engine, now_ms) = (self.engine, self.unix_us(around.now_us) / 1000);
        let replication = &engine.replication;
        if self.serving.judge_failover(replication, now_ms) == FailoverVerdict::Waits {
            if replication.failover().is_some_and(|failover| failover.stage == FailoverStage::AwaitsReplica) {
                replication.request_answers();
            }
            return;
        }
        let _alone = engine.keyspace.gate().close();
        while replication.stream.take() {}
        match self.serving.judge_failover(replication, now_ms) {
            FailoverVerdict::HandsOver { to, acknowledged } => {
                self.note_figures();
                replication.note_failover_follows(acknowledged);
                engine.follow(Some(to), now_ms);
            }
            FailoverVerdict::IsGivenUp => _ = engine.abort_failover(now_ms),
            FailoverVerdict::Waits => {}
        }
    }

    /// Tells the engine the replicas' offsets, and wakes clients that wait for them.
    fn note_figures(&mut self) {
        let engine = self.engine;
        let Some(is_awaited) = self.serving.note_figures(&engine.replication) else { return };
        if self.setup.durability_replicas > 0
            && engine.durability.is_awaited(DurabilityTarget::Replicas)
            && let Some(position) = self.serving.safe_position(self.setup.durability_replicas)
        {
            engine.durability.note_safe(DurabilityTarget::Replicas, position, |_| {});
        }
        if is_awaited {
            engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
        }
    }

    fn take_arrivals(&mut self, now: Duration) {
        let replication = &self.engine.replication;
        for (wire, client, introduction, wanted) in std::mem::take(&mut self.arrivals) {
            let peer = Peer::new(client, "10.0.0.1".into(), introduction, wanted, now);
            let admitted = self.serving.admit(replication, Served { peer, link: wire }, wanted, now);
            if admitted == Admitted::AwaitsSnapshot
                && self.serving.provide_snapshot(replication, self.setup.sends_early, now)
            {
                self.engine.snapshots.want(Purpose::Replicas);
            }
        }
    }

    fn hear(&mut self, around: &mut Surroundings<'_>, now: Duration) {
        let (end, now_ms) = (self.engine.replication.stream.end(), self.unix_us(around.now_us) / 1000);
        let mut over = BTreeMap::new();
        for served in &mut self.serving.all {
            let (bytes, has_ended) = around.network.receive(served.link, 1, around.now_us);
            if !bytes.is_empty()
                && let Err(why) = served.peer.hear(&bytes, now, now_ms, end)
            {
                over.insert(served.link, why);
            }
            if has_ended {
                over.insert(served.link, Ended::Closed);
            }
        }
        self.end_those(&over, around);
    }

    fn send(&mut self, around: &mut Surroundings<'_>, now: Duration) {
        let stream = &self.engine.replication.stream;
        let mut over = BTreeMap::new();
        for served in &mut self.serving.all {
            let (mut room, mut sent, mut budget) = (around.network.room(served.link, 1), 0, around.random.below(6));
            while room > 0 && budget > 0 {
                budget -= 1;
                let bytes = match served.peer.next(now) {
                    Err(why) => {
                        over.insert(served.link, why);
                        break;
                    }
                    Ok(ToSend::Nothing) => break,
                    Ok(ToSend::Lines) => served.peer.lines().slices().next().unwrap_or_default().to_vec(),
                    Ok(ToSend::Snapshot { of, at }) => of.read(at, room),
                    Ok(ToSend::Stream { from }) => {
                        let mut scratch = Vec::new();
                        let piece = stream.with_backlog(|backlog| {
                            backlog.piece(from, &mut scratch).ok().flatten().map(<[u8]>::to_vec)
                        });
                        match piece {
                            Some(Some(piece)) => piece,
                            Some(None) => {
                                over.insert(
                                    served.link,
                                    Ended::Io("the missing part of the stream is not kept any more".into()),
                                );
                                break;
                            }
                            None => Vec::new(),
                        }
                    }
                };
                let taken = bytes.len().min(1 + around.random.below(room));
                if taken == 0 {
                    break;
                }
                around.network.send(served.link, 1, bytes.get(..taken).unwrap_or_default(), around.now_us);
                served.peer.note_sent(taken);
                (room, sent) = (room - taken, sent + taken);
            }
            served.peer.note_turn(sent > 0, room == 0, stream.end(), now);
        }
        self.end_those(&over, around);
    }

    fn end_those(&mut self, over: &BTreeMap<WireId, Ended>, around: &mut Surroundings<'_>) {
        if !over.is_empty() {
            let ended = self.serving.end_where(|served| over.get(&served.link).cloned());
            self.forget(ended, around);
        }
    }

    fn forget(&self, ended: Vec<(Served<MemorySpool, WireId>, Ended)>, around: &mut Surroundings<'_>) {
        for (served, _) in ended {
            around.network.close(served.link, 1);
        }
    }

    fn follow(&mut self, around: &mut Surroundings<'_>) -> Result<LinkEvent, Wrong> {
        let unix_us = self.unix_us(around.now_us);
        let Some(worker) = self.workers.first_mut() else { return Ok(LinkEvent::None) };
        let mut turn = LinkTurn {
            process: self.number,
            engine: self.engine,
            worker,
            network: &mut *around.network,
            now_us: around.now_us,
            unix_us,
        };
        let event = self.link.step(&mut turn)?;
        match event {
            LinkEvent::LoadingBegins => {
                self.rewinds += 1;
                self.turn_off();
            }
            LinkEvent::LoadingEnds => {
                self.turn_on(around.now_us);
                self.engine.end_loading();
            }
            LinkEvent::None | LinkEvent::Up | LinkEvent::Applied => {}
        }
        Ok(event)
    }

    fn turn_off(&mut self) {
        let mut state = self.mailbox.state();
        state.opened = None;
        let log = state.log.take();
        drop(state);
        self.file_again_us = None;
        if let Some(log) = log {
            log.end(self.engine);
        }
    }

    /// Begins a new append-only file. If the disk fails, the process tries again later.
    fn turn_on(&mut self, now_us: u64) {
        if self.setup.keeps == Keeps::Nothing {
            return;
        }
        match log::open_anew(self.engine, &self.disk) {
            Ok(opened) => {
                self.mailbox.state().opened = Some(opened);
                self.engine.snapshots.want(Purpose::Base);
            }
            Err(_) => self.file_again_us = Some(now_us + TURN_ON_AGAIN_US),
        }
    }

    /// Tries again to begin the append-only file. While data are being loaded, the end of the load does it.
    fn turn_on_again(&mut self, now_us: u64) {
        if self.file_again_us.is_some_and(|again_us| now_us >= again_us) && !self.engine.is_loading() {
            self.file_again_us = None;
            self.turn_on(now_us);
        }
    }

    /// Returns the time before which all answered writes survive a kill at this moment, for policies under which
    /// replies don't wait for the disk. None if unknown.
    #[must_use]
    pub fn kept_until_us(&self, now_us: u64, with_power: bool) -> Option<u64> {
        let state = self.mailbox.state();
        state.log.as_ref()?.kept_until_us(self.engine, now_us, with_power)
    }

    /// Makes some calls of the disk fail, after `after` successful ones.
    pub fn spoil_disk(&self, after: u64, count: u64) {
        self.disk.fail(after, count);
    }

    /// Describes the state of the snapshots, for the report of a failure.
    #[must_use]
    pub fn story(&self) -> String {
        let (engine, state) = (self.engine, self.mailbox.state());
        format!(
            "(loading {}, snapshot {:?}, wanted {:?}, saving {}, begun {}, cut {}, log {}, opened {})",
            engine.is_loading(),
            engine.snapshots.purpose(),
            engine.snapshots.wanted(),
            self.saving.is_some(),
            state.begun.len(),
            engine.durability.is_cut(),
            state.log.is_some(),
            state.opened.is_some()
        )
    }

    /// Returns the history and the offset of the data, if both are known and no received data waits to be applied.
    #[must_use]
    pub fn place(&self) -> Option<(HistoryId, u64)> {
        let replication = &self.engine.replication;
        let history = replication.history();
        let is_settled = history.is_known && replication.stream.is_active() && !replication.stream.has_units();
        (is_settled && !self.engine.is_loading()).then(|| (history.id, replication.offset()))
    }
}
