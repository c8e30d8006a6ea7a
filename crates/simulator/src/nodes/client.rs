//! A client of the cluster: it pipelines writes to the node that it believes to have the slots, follows redirects, and calls WAIT.
//!
//! Each write pushes an element of its own to a list. An element is never sent twice, so a list shows which writes exist.

use engine::testing::request;
use store::random::Random;

use crate::network::{Network, WireId};
use crate::reply::{SimReply, parse_reply};
use crate::setup::PORTS;

/// Most writes of a pipeline.
const WRITES_MAX: usize = 6;
/// Longest wait for replies, in microseconds.
const PATIENCE_US: u64 = 1_500_000;
/// Longest pause between two pipelines, in microseconds.
const PAUSE_US: usize = 40_000;
/// Timeout of WAIT, in milliseconds.
const WAIT_MS: &str = "60";

/// The number of a write, in the order of all clients' writes.
pub type WriteId = usize;

/// The end of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteEnd {
    /// The node has executed it.
    Acknowledged,
    /// The node has refused it.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// News of a client for the world.
pub enum ClientNews {
    /// A write has ended.
    Ended {
        /// The write.
        write: WriteId,
        /// Its end.
        end: WriteEnd,
        /// The connection.
        wire: WireId,
    },
    /// WAIT has counted replicas with all these writes.
    Confirmed {
        /// The writes of this pipeline.
        writes: Vec<WriteId>,
        /// The number of replicas.
        replicas: usize,
        /// The time at which the pipeline was sent.
        sent_us: u64,
    },
    /// A reply that no node may give.
    Wrong(String),
}

/// A request of the present pipeline.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Asking,
    Push(WriteId, usize),
    Wait,
}

/// The present pipeline.
struct Pipeline {
    process: usize,
    wire: WireId,
    asked: Vec<Asked>,
    answered: usize,
    acknowledged: Vec<WriteId>,
    sent_us: u64,
}

/// The surroundings of a step.
pub struct ClientTurn<'t> {
    /// The links.
    pub network: &'t mut Network,
    /// The simulated time, in microseconds.
    pub now_us: u64,
    /// The number of processes.
    pub processes: usize,
    /// The names of all lists.
    pub keys: &'t [String],
    /// True if clients begin no new pipelines.
    pub finishes: bool,
    /// Makes a write of a client to a process and a list, and returns its number, which is also its element.
    pub write: &'t mut dyn FnMut(usize, usize) -> WriteId,
    /// The news so far.
    pub news: &'t mut Vec<ClientNews>,
}

/// See the module's documentation.
pub struct ClusterClient {
    random: Random,
    /// The process that the client believes to have each list.
    map: Vec<usize>,
    /// The process to ask once for a list, after ASK.
    asks: Vec<Option<usize>>,
    wires: Vec<Option<WireId>>,
    read: Vec<u8>,
    pipeline: Option<Pipeline>,
    next_us: u64,
}

impl ClusterClient {
    /// Returns a client that does not know the cluster.
    #[must_use]
    pub fn new(seed: u64, processes: usize, keys: usize) -> ClusterClient {
        let mut random = Random::new(seed);
        let map = (0..keys).map(|_| random.below(processes)).collect();
        let (asks, wires) = (vec![None; keys], vec![None; processes]);
        ClusterClient { random, map, asks, wires, read: Vec::new(), pipeline: None, next_us: 0 }
    }

    /// Returns true if no pipeline is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pipeline.is_none()
    }

    /// Runs a step: reads replies, or sends a pipeline.
    pub fn step(&mut self, turn: &mut ClientTurn<'_>) {
        if self.pipeline.is_some() {
            self.read(turn);
        } else if turn.now_us >= self.next_us && !turn.finishes {
            self.send(turn);
        }
    }

    fn send(&mut self, turn: &mut ClientTurn<'_>) {
        let first = self.random.below(turn.keys.len());
        let asks = self.asks[first].take();
        let process = asks.unwrap_or(self.map[first]);
        let wire = match self.wires[process] {
            Some(wire) => wire,
            None => {
                let Some(wire) = turn.network.open([None, Some(process)]) else { return };
                self.wires[process] = Some(wire);
                wire
            }
        };
        let (mut asked, mut bytes) = (Vec::new(), Vec::new());
        for at in 0..1 + self.random.below(WRITES_MAX) {
            let key = if at == 0 || asks.is_some() { first } else { self.another_of(process, first) };
            if asks.is_some() {
                asked.push(Asked::Asking);
                bytes.extend(request(&["ASKING"]));
            }
            let write = (turn.write)(process, key);
            asked.push(Asked::Push(write, key));
            bytes.extend(request(&["RPUSH", &turn.keys[key], &write.to_string()]));
        }
        if self.random.below(3) == 0 {
            asked.push(Asked::Wait);
            bytes.extend(request(&["WAIT", ["1", "2"][self.random.below(2)], WAIT_MS]));
        }
        turn.network.send(wire, 0, &bytes, turn.now_us);
        self.read.clear();
        let sent_us = turn.now_us;
        self.pipeline = Some(Pipeline { process, wire, asked, answered: 0, acknowledged: Vec::new(), sent_us });
    }

    /// A list that the client believes to be at the same process.
    fn another_of(&mut self, process: usize, first: usize) -> usize {
        let same: Vec<usize> = (0..self.map.len()).filter(|key| self.map[*key] == process).collect();
        same.get(self.random.below(same.len().max(1))).copied().unwrap_or(first)
    }

    fn read(&mut self, turn: &mut ClientTurn<'_>) {
        let Some(mut pipeline) = self.pipeline.take() else { return };
        let (bytes, has_ended) = turn.network.receive(pipeline.wire, 0, turn.now_us);
        self.read.extend_from_slice(&bytes);
        while let Some(asked) = pipeline.asked.get(pipeline.answered).copied() {
            let Some((reply, len)) = parse_reply(&self.read) else { break };
            self.read.drain(..len);
            pipeline.answered += 1;
            self.take(&reply, asked, &mut pipeline, turn);
        }
        let is_over = pipeline.answered == pipeline.asked.len();
        if !is_over && !has_ended && turn.now_us < pipeline.sent_us + PATIENCE_US {
            self.pipeline = Some(pipeline);
            return;
        }
        if !is_over {
            self.give_up(&pipeline, turn);
        }
        self.next_us = turn.now_us + 1 + self.random.below(PAUSE_US) as u64;
    }

    /// Gives a connection up. The open writes may or may not be executed.
    fn give_up(&mut self, pipeline: &Pipeline, turn: &mut ClientTurn<'_>) {
        turn.network.close(pipeline.wire, 0);
        self.wires[pipeline.process] = None;
        for asked in &pipeline.asked[pipeline.answered..] {
            if let Asked::Push(write, key) = *asked {
                turn.news.push(ClientNews::Ended { write, end: WriteEnd::Unknown, wire: pipeline.wire });
                self.map[key] = self.random.below(turn.processes);
            }
        }
    }

    fn take(&mut self, reply: &SimReply, asked: Asked, pipeline: &mut Pipeline, turn: &mut ClientTurn<'_>) {
        match (asked, reply) {
            (Asked::Push(write, _), SimReply::Number(_)) => {
                pipeline.acknowledged.push(write);
                let end = WriteEnd::Acknowledged;
                turn.news.push(ClientNews::Ended { write, end, wire: pipeline.wire });
            }
            (Asked::Push(write, key), SimReply::Error(why)) => {
                // The replies before the loss of a role are the last ones of a connection.
                let end = if why.starts_with("UNBLOCKED") { WriteEnd::Unknown } else { WriteEnd::Refused };
                turn.news.push(ClientNews::Ended { write, end, wire: pipeline.wire });
                let asks = pipeline.asked.iter().any(|asked| matches!(asked, Asked::Asking));
                if asks && why.starts_with("READONLY") {
                    // A failover has replaced the target of the move. Valkey has the same reply.
                    return;
                }
                self.refused(why, (pipeline.process, key), turn);
            }
            (Asked::Wait, SimReply::Number(replicas)) if *replicas > 0 && !pipeline.acknowledged.is_empty() => {
                let (writes, replicas) = (pipeline.acknowledged.clone(), *replicas as usize);
                turn.news.push(ClientNews::Confirmed { writes, replicas, sent_us: pipeline.sent_us });
            }
            _ => {}
        }
    }

    fn refused(&mut self, why: &str, (asked, key): (usize, usize), turn: &mut ClientTurn<'_>) {
        let mut words = why.split(' ');
        let kind = words.next().unwrap_or_default();
        let port = words.nth(1).and_then(|address| address.rsplit_once(':')).and_then(|(_, port)| port.parse().ok());
        let process = port.map(|port: u16| usize::from(port.saturating_sub(PORTS))).filter(|at| *at < turn.processes);
        match (kind, process) {
            ("MOVED", Some(process)) => self.map[key] = process,
            ("ASK", Some(process)) => self.asks[key] = Some(process),
            ("CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "NOREPLICAS", _) => {
                if self.random.below(2) == 0 {
                    self.map[key] = self.random.below(turn.processes);
                }
            }
            ("TRYAGAIN" | "MISCONF" | "UNBLOCKED", _) => {}
            _ => turn.news.push(ClientNews::Wrong(format!("process {asked} refuses a write of list {key}: {why}"))),
        }
    }
}
