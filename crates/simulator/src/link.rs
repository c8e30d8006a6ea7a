//! The link of a process to its primary: the steps of the server's thread for it, without waiting for bytes.

use std::io::Read;

use cluster::commands::ClusterCommand;
use engine::replay::{Replay, runs_by_itself};
use engine::replication::LinkState;
use engine::replication::failover::{HandOver, HandOvers};
use engine::slots::bus::{Answer, BusRequest};
use engine::snapshots::reading::{ExpiredKeys, LoadOptions, Loaded};
use engine::state::Engine;
use engine::worker::Worker;
use replication::answers::acknowledgement;
use replication::handshake::{Beginning, Handshake, HandshakeStep, Introduction};
use replication::id::{HistoryId, HistoryPoint};
use replication::stream::{ArrivedStream, Splitter, StreamTask};
use replication::transfer::{End, Transfer};

use crate::Wrong;
use crate::network::{Network, WireId};

/// Interval of acknowledgements to the primary, in microseconds.
const ACKNOWLEDGE_US: u64 = 100_000;
/// Time before a failed link is tried again, in microseconds.
const RETRY_US: u64 = 20_000;

/// The state of a link to a primary.
enum LinkStage {
    Down { until_us: u64 },
    Handshake { handshake: Handshake, read: Vec<u8> },
    AwaitsSnapshot { history: HistoryId, offset: u64, read: Vec<u8> },
    Receives { history: HistoryId, offset: u64, end: End, read: Vec<u8> },
    Streams { arrived: ArrivedStream, acknowledged_us: u64 },
}

/// A request of the link to its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// No request.
    None,
    /// A primary's snapshot begins to arrive: the append-only file ends.
    LoadingBegins,
    /// The snapshot was loaded, or failed to load: a new append-only file begins.
    LoadingEnds,
    /// The stream begins.
    Up,
    /// Commands have been applied.
    Applied,
}

/// See the module's documentation.
pub struct SimLink {
    stage: LinkStage,
    wire: Option<WireId>,
    version: u64,
    stream_number: u64,
    /// True while a snapshot is being received and loaded.
    is_loading: bool,
    hand_overs: HandOvers,
    hand_over: HandOver,
}

impl Default for SimLink {
    fn default() -> SimLink {
        SimLink {
            stage: LinkStage::Down { until_us: 0 },
            wire: None,
            version: 0,
            stream_number: 0,
            is_loading: false,
            hand_overs: HandOvers::default(),
            hand_over: HandOver::None,
        }
    }
}

/// The environment of a step.
pub struct LinkTurn<'t> {
    /// The process's number.
    pub process: usize,
    /// Its engine.
    pub engine: &'static Engine,
    /// Its worker.
    pub worker: &'t mut Worker,
    /// The links.
    pub network: &'t mut Network,
    /// The time of the simulation.
    pub now_us: u64,
    /// The process's clock, in microseconds of Unix time.
    pub unix_us: u64,
}

impl SimLink {
    /// Returns true if the stream runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.stage, LinkStage::Streams { .. })
    }

    /// Runs a step: processes the bytes that have arrived.
    ///
    /// # Errors
    /// The primary's data is invalid, which never happens here.
    pub fn step(&mut self, turn: &mut LinkTurn<'_>) -> Result<LinkEvent, Wrong> {
        let (primary, version) = turn.engine.replication.primary();
        if version != self.version {
            if let Some(event) = self.end(turn) {
                return Ok(event);
            }
            self.version = version;
            self.stage = LinkStage::Down { until_us: turn.now_us };
        }
        let Some(primary) = primary else { return Ok(LinkEvent::None) };
        if let LinkStage::Down { until_us } = self.stage {
            if turn.now_us >= until_us {
                self.open(turn, usize::from(primary.port));
            }
            return Ok(LinkEvent::None);
        }
        let Some(wire) = self.wire else { return Ok(LinkEvent::None) };
        let (bytes, has_ended) = turn.network.receive(wire, 0, turn.now_us);
        if !bytes.is_empty() {
            let stale = turn.engine.settings.replica_serve_stale_data.get();
            turn.engine.replication.note_link(self.version, stale, |link| link.heard_s = turn.unix_us / 1_000_000);
        }
        let event = self.take(turn, wire, &bytes)?;
        if has_ended && event == LinkEvent::None {
            return Ok(self.end(turn).unwrap_or(LinkEvent::None));
        }
        Ok(event)
    }

    fn note(&self, turn: &LinkTurn<'_>, state: LinkState) {
        let stale = turn.engine.settings.replica_serve_stale_data.get();
        turn.engine.replication.note_link(self.version, stale, |link| link.state = state);
    }

    fn open(&mut self, turn: &mut LinkTurn<'_>, primary: usize) {
        let ends = [Some(turn.process), Some(primary)];
        let Some(wire) = turn.network.open(ends) else {
            self.stage = LinkStage::Down { until_us: turn.now_us + RETRY_US };
            return;
        };
        self.note(turn, LinkState::Handshake);
        self.hand_over = self.hand_overs.next(&turn.engine.replication);
        let introduction = Introduction {
            hands_over: self.hand_over == HandOver::Asks,
            port: turn.process as u16,
            version: engine::machine::version::VALKEY_VERSION.to_owned(),
            node: turn.engine.slots.view().and_then(|view| view.node(view.me).map(|me| me.id.to_string())),
            known: turn.engine.continues_from(),
            ..Introduction::default()
        };
        let (handshake, first) = Handshake::begin(introduction);
        turn.network.send(wire, 0, &first, turn.now_us);
        self.wire = Some(wire);
        self.stage = LinkStage::Handshake { handshake, read: Vec::new() };
    }

    /// Ends the link. A partly loaded snapshot is useless.
    fn end(&mut self, turn: &mut LinkTurn<'_>) -> Option<LinkEvent> {
        if let Some(wire) = self.wire.take() {
            turn.network.close(wire, 0);
        }
        let stage = std::mem::replace(&mut self.stage, LinkStage::Down { until_us: turn.now_us + RETRY_US });
        self.note(turn, LinkState::Down);
        let LinkStage::Receives { end, read, .. } = stage else { return None };
        // The end of the link shows only after the received bytes were read.
        let _ = self.load(turn, end, &read);
        self.end_loading(turn, None);
        Some(LinkEvent::LoadingEnds)
    }

    fn take(&mut self, turn: &mut LinkTurn<'_>, wire: WireId, bytes: &[u8]) -> Result<LinkEvent, Wrong> {
        match &mut self.stage {
            LinkStage::Down { .. } => Ok(LinkEvent::None),
            LinkStage::Handshake { read, .. } => {
                read.extend_from_slice(bytes);
                self.introduce(turn, wire)
            }
            LinkStage::AwaitsSnapshot { read, .. } => {
                read.extend_from_slice(bytes);
                self.await_snapshot(turn)
            }
            LinkStage::Receives { read, .. } => {
                read.extend_from_slice(bytes);
                self.receive(turn, wire)
            }
            LinkStage::Streams { arrived, .. } => {
                arrived.add(bytes);
                self.stream(turn, wire)
            }
        }
    }

    fn introduce(&mut self, turn: &mut LinkTurn<'_>, wire: WireId) -> Result<LinkEvent, Wrong> {
        while let LinkStage::Handshake { handshake, read } = &mut self.stage {
            let Some(line) = take_line(read) else { return Ok(LinkEvent::None) };
            match handshake.line(&line) {
                Ok(HandshakeStep::Send(bytes)) => turn.network.send(wire, 0, &bytes, turn.now_us),
                Ok(HandshakeStep::Wait) => {}
                Ok(HandshakeStep::Begin(Beginning::Snapshot { .. })) if self.hand_over == HandOver::Verifies => {
                    self.abort_failover(turn);
                    return Ok(self.end(turn).unwrap_or(LinkEvent::None));
                }
                Ok(HandshakeStep::Begin(Beginning::GoesOn { history })) => {
                    let rest = std::mem::take(read);
                    turn.engine.end_failover(self.version);
                    turn.engine.replication.go_on(history);
                    return Ok(self.begin_stream(turn, wire, rest));
                }
                Ok(HandshakeStep::Begin(Beginning::Snapshot { history, offset })) => {
                    let read = std::mem::take(read);
                    turn.engine.end_failover(self.version);
                    self.stage = LinkStage::AwaitsSnapshot { history, offset, read };
                    return self.await_snapshot(turn);
                }
                // The primary is loading its data or has no link to its own primary, or the replica refuses to replace
                // this process.
                Err(refused) => {
                    if refused.is_primary {
                        self.hand_overs.note_follows_none();
                    } else if !refused.is_for_now && self.hand_over != HandOver::None {
                        self.abort_failover(turn);
                    }
                    return Ok(self.end(turn).unwrap_or(LinkEvent::None));
                }
            }
        }
        Ok(LinkEvent::None)
    }

    fn abort_failover(&self, turn: &LinkTurn<'_>) {
        let _alone = turn.engine.keyspace.gate().close();
        turn.engine.abort_failover(turn.unix_us / 1000);
    }

    fn await_snapshot(&mut self, turn: &mut LinkTurn<'_>) -> Result<LinkEvent, Wrong> {
        while let LinkStage::AwaitsSnapshot { history, offset, read } = &mut self.stage {
            let Some(line) = take_line(read) else { return Ok(LinkEvent::None) };
            if line.is_empty() {
                continue;
            }
            let end = End::parse(&line).ok_or_else(|| format!("expected a snapshot, got {}", line.escape_ascii()))?;
            let engine = turn.engine;
            // A node that has asked for votes keeps its data until the election is over.
            if !engine.replication.lose_history() {
                return Ok(self.end(turn).unwrap_or(LinkEvent::None));
            }
            engine::slot_moves::forget_followed(engine, turn.unix_us / 1_000_000);
            self.stage = LinkStage::Receives { history: *history, offset: *offset, end, read: std::mem::take(read) };
            self.note(turn, LinkState::Receiving);
            engine.begin_loading(turn.unix_us / 1_000_000);
            drop(engine.keyspace.gate().close());
            self.is_loading = true;
            return Ok(LinkEvent::LoadingBegins);
        }
        Ok(LinkEvent::None)
    }

    fn receive(&mut self, turn: &mut LinkTurn<'_>, wire: WireId) -> Result<LinkEvent, Wrong> {
        let LinkStage::Receives { history, offset, end, read } = &mut self.stage else { return Ok(LinkEvent::None) };
        if !is_whole(end, read) {
            return Ok(LinkEvent::None);
        }
        let (history, offset, end, read) = (*history, *offset, *end, std::mem::take(read));
        let (database, rest) = self.load(turn, end, &read).map_err(|why| format!("a primary's snapshot: {why}"))?;
        self.stream_number += 1;
        self.end_loading(turn, Some(HistoryPoint { id: history, offset, database }));
        self.begin_stream(turn, wire, rest);
        Ok(LinkEvent::LoadingEnds)
    }

    /// Loads the received part of a snapshot. Returns the database selected at its end and the bytes behind it.
    fn load(&mut self, turn: &mut LinkTurn<'_>, end: End, read: &[u8]) -> Result<(usize, Vec<u8>), String> {
        // As in the server: the process may be a primary by now, and no reader gets the units of a worker without a lane.
        turn.engine.journal.suspend(true);
        let loaded = self.load_unrecorded(turn, end, read);
        turn.engine.journal.suspend(false);
        loaded
    }

    fn load_unrecorded(&mut self, turn: &mut LinkTurn<'_>, end: End, read: &[u8]) -> Result<(usize, Vec<u8>), String> {
        let mut worker = Worker::new(turn.engine.inboxes.len(), turn.engine, 1);
        Replay::begin(&mut worker, turn.unix_us).empty()?;
        let options = LoadOptions { expired: ExpiredKeys::Kept, checks: false, replaces: false, bytes: None };
        let mut transfer = Transfer::new(std::io::empty(), end, read);
        let loaded = Replay::begin(&mut worker, turn.unix_us).snapshot(&mut transfer as &mut dyn Read, options, |_| {});
        let loaded = loaded.and_then(|loaded| {
            transfer.skip_to_end().map_err(|error| error.to_string())?;
            Ok(loaded)
        });
        match loaded {
            Ok(loaded) => {
                take_slot_states(turn.engine, &loaded);
                Ok((loaded.stream_database.unwrap_or(0), transfer.into_rest()))
            }
            Err(why) => {
                Replay::begin(&mut worker, turn.unix_us).empty()?;
                Err(why)
            }
        }
    }

    fn end_loading(&mut self, turn: &LinkTurn<'_>, loaded: Option<HistoryPoint>) {
        if let Some(point) = loaded {
            turn.engine.replication.begin_history(self.version, point);
        }
        self.is_loading = false;
    }

    fn begin_stream(&mut self, turn: &mut LinkTurn<'_>, wire: WireId, rest: Vec<u8>) -> LinkEvent {
        let stale = turn.engine.settings.replica_serve_stale_data.get();
        turn.engine.replication.note_link(self.version, stale, |link| {
            (link.state, link.ups) = (LinkState::Up, link.ups + 1);
        });
        let splitter = Splitter::new(turn.engine.keyspace.databases(), runs_by_itself);
        let arrived = ArrivedStream::begin(splitter, rest);
        self.stage = LinkStage::Streams { arrived, acknowledged_us: turn.now_us };
        acknowledge(turn, wire);
        LinkEvent::Up
    }

    fn stream(&mut self, turn: &mut LinkTurn<'_>, wire: WireId) -> Result<LinkEvent, Wrong> {
        let LinkStage::Streams { arrived, acknowledged_us } = &mut self.stage else { return Ok(LinkEvent::None) };
        let mut event = LinkEvent::None;
        while let Some(task) = arrived.next_task().map_err(|why| format!("the stream is unusable: {why:?}"))? {
            event = LinkEvent::Applied;
            match task {
                StreamTask::Apply { commands, cuts } => {
                    apply(turn, (self.stream_number, self.version), &commands, &cuts)?;
                }
                StreamTask::Answer { question } => {
                    acknowledge(turn, wire);
                    turn.engine.replication.pass_question(self.version, &question, turn.engine.journal.position());
                }
            }
        }
        if turn.now_us - *acknowledged_us >= ACKNOWLEDGE_US {
            *acknowledged_us = turn.now_us;
            acknowledge(turn, wire);
        }
        Ok(event)
    }
}

/// Applies whole commands and transactions: in one call, or in one call for each run of them, between which other
/// connections may read the data.
fn apply(turn: &mut LinkTurn<'_>, (stream, version): (u64, u64), commands: &[u8], cuts: &[usize]) -> Result<(), Wrong> {
    let (before, by_runs) = (turn.engine.replication.link().applied, commands.len().is_multiple_of(2));
    let mut at = 0;
    while at < commands.len() {
        let later = cuts.iter().filter_map(|cut| cut.checked_sub(at)).collect::<Vec<_>>();
        let end = later.iter().copied().find(|&cut| by_runs && cut > 0).unwrap_or(commands.len() - at);
        turn.worker.begin_turn(turn.unix_us);
        let part = commands.get(at..at + end).unwrap_or_default();
        let applied = turn.worker.apply_stream(stream, version, part, if by_runs { &[] } else { &later });
        turn.worker.end_turn();
        let _ = turn.worker.take_durable_after();
        if let Some(failure) = applied.failure {
            return Err(format!("a command of the primary's could not be applied: {failure}"));
        }
        if applied.taken == 0 {
            return Err("no command of the stream could be applied".into());
        }
        at += applied.taken;
        let counted = turn.engine.replication.link().applied - before;
        let whole = whole_bytes(turn.engine, commands.get(..at).unwrap_or_default());
        if counted != whole {
            return Err(format!("{counted} bytes of the stream count, of {at}, where {whole} are whole"));
        }
    }
    Ok(())
}

/// Returns the length of the whole commands and transactions at the beginning of some bytes.
fn whole_bytes(engine: &Engine, commands: &[u8]) -> u64 {
    let portion = Splitter::new(engine.keyspace.databases(), |_| false).portion(commands);
    portion.map_or(0, |portion| portion.commands as u64)
}

/// Takes over the open slots of a cluster's primary.
fn take_slot_states(engine: &Engine, loaded: &Loaded) {
    if engine.slots.are_on() {
        let states = loaded.slot_states.as_deref().unwrap_or_default();
        let command = ClusterCommand::TakeSlotStates(states.into());
        let _ = engine.host.cluster(BusRequest { command, answer: Answer::Nobody });
    }
}

fn acknowledge(turn: &mut LinkTurn<'_>, wire: WireId) {
    let applied = turn.engine.replication.link().applied;
    turn.network.send(wire, 0, &acknowledgement(applied, turn.engine.synced_offset()), turn.now_us);
}

/// Takes the first line, without its end, if it is complete.
fn take_line(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = read.iter().position(|&byte| byte == b'\n')?;
    let line: Vec<u8> = read.drain(..=end).collect();
    Some(line.trim_ascii_end().to_vec())
}

/// Returns true if the whole snapshot has arrived.
fn is_whole(end: &End, read: &[u8]) -> bool {
    match end {
        End::After(bytes) => read.len() as u64 >= *bytes,
        End::At(mark) => read.windows(mark.len()).any(|window| window == mark),
    }
}
