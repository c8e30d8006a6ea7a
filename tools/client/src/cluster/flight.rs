//! The flight of a pipeline over many nodes, in rounds.
//!
//! A round sends the pending commands to their nodes and takes the replies. Commands that a node didn't run are pending
//! again. After the first such reply of a slot, no further commands of that slot are sent in the round, so that they
//! stay behind it. Each round answers at least one command, or uses up one of its attempts.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use cluster::Slot;
use resp::parse::Value;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::redirect::{Answer, NodeAddress};
use super::{Cluster, PAUSE_MAX};
use crate::connection::Connection;
use crate::error::{Error, Fate, Lost};
use crate::script::Script;
use crate::window::Window;

/// A command of the pipeline, or a transaction.
pub(super) struct Task<'r> {
    request: &'r [u8],
    /// Number of replies: more than one for a transaction.
    replies: usize,
    /// The replies of the last attempt so far, if there are several.
    parts: Vec<Value>,
    slot: Option<Slot>,
    attempts: u32,
    /// The node that ASK named, for the next attempt.
    asked: Option<NodeAddress>,
    result: Option<Result<Value, Error>>,
}

impl<'r> Task<'r> {
    pub(super) fn new(request: &'r [u8], slot: Option<Slot>) -> Self {
        Self { request, replies: 1, parts: Vec::new(), slot, attempts: 0, asked: None, result: None }
    }

    /// Returns a transaction. Its result is an array of all replies.
    pub(super) fn transaction(requests: &'r [u8], replies: usize, slot: Slot) -> Self {
        Self { replies, ..Self::new(requests, Some(slot)) }
    }

    /// Returns a command that isn't sent.
    pub(super) fn refused(request: &'r [u8], error: Error) -> Self {
        Self { result: Some(Err(error)), ..Self::new(request, None) }
    }
}

/// The target of a command.
#[derive(Clone, PartialEq, Eq)]
struct Target {
    node: NodeAddress,
    asking: bool,
}

/// A request on its way, in the order of the replies.
enum Sent {
    Asking,
    Task {
        index: usize,
        /// Start in the connection's count of sent bytes.
        start: u64,
        /// Number of replies to come.
        left: usize,
    },
}

/// The commands of a round for one node.
struct Lane {
    node: NodeAddress,
    connection: Connection,
    queue: VecDeque<(usize, bool)>,
    in_flight: VecDeque<Sent>,
    /// Time of the last transfer.
    since: Instant,
}

/// The outcome of a round.
#[derive(Default)]
struct Round {
    /// Commands for the next round.
    pending: Vec<usize>,
    /// Slots with a command for the next round.
    held: HashSet<Slot>,
    /// A node that was named by MOVED.
    moved_to: Option<NodeAddress>,
    /// True if the map may be wrong.
    is_map_stale: bool,
    /// True if the next round should start after a pause.
    needs_pause: bool,
}

pub(super) struct Flight<'a, 'r> {
    cluster: &'a mut Cluster,
    tasks: Vec<Task<'r>>,
    scripts: &'a [Script],
    /// Slots with a command of unknown fate. Later commands of these slots don't run.
    broken: HashMap<Slot, Lost>,
}

impl<'a, 'r> Flight<'a, 'r> {
    pub(super) fn new(cluster: &'a mut Cluster, tasks: Vec<Task<'r>>, scripts: &'a [Script]) -> Self {
        Self { cluster, tasks, scripts, broken: HashMap::new() }
    }

    pub(super) fn run(mut self) -> Vec<Result<Value, Error>> {
        let mut pending: Vec<usize> = (0..self.tasks.len()).filter(|&at| self.tasks[at].result.is_none()).collect();
        let mut pause = self.cluster.options.pause;
        while !pending.is_empty() {
            let mut round = Round::default();
            let lanes = self.plan(&pending, &mut round);
            self.fly(lanes, &mut round);
            if round.needs_pause {
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            if round.is_map_stale {
                // If no node answers, the next round reports it.
                let _ = self.cluster.refresh_from(round.moved_to.take());
            }
            pending = round.pending;
            pending.retain(|&index| self.tasks[index].result.is_none());
            pending.sort_unstable();
        }
        let lost = || Err(Error::Config("a command of a pipeline was lost".to_owned()));
        self.tasks.into_iter().map(|task| task.result.unwrap_or_else(lost)).collect()
    }

    // --- before a round ---

    /// Distributes the pending commands. A slot's commands join a round only while they have one target.
    fn plan(&mut self, pending: &[usize], round: &mut Round) -> Vec<Lane> {
        let mut queues: Vec<(NodeAddress, VecDeque<(usize, bool)>)> = Vec::new();
        let mut targets: HashMap<Slot, Target> = HashMap::new();
        for &index in pending {
            let slot = self.tasks[index].slot;
            if let Some(cause) = slot.and_then(|slot| self.broken.get(&slot)) {
                self.tasks[index].result = Some(Err(Error::Lost { cause: cause.clone(), fate: Fate::NotRun }));
                continue;
            }
            let target = self.target(index);
            if let Some(slot) = slot
                && let Some(earlier) = targets.insert(slot, target.clone())
                && (earlier != target || self.cluster.options.strict_order)
            {
                targets.insert(slot, earlier);
                round.pending.push(index);
                // Later commands of the slot must not overtake this one.
                round.held.insert(slot);
                continue;
            }
            if slot.is_some_and(|slot| round.held.contains(&slot)) {
                round.pending.push(index);
                continue;
            }
            match queues.iter_mut().find(|(node, _)| *node == target.node) {
                Some((_, queue)) => queue.push_back((index, target.asking)),
                None => queues.push((target.node, VecDeque::from([(index, target.asking)]))),
            }
        }
        round.held.clear();
        queues.into_iter().filter_map(|(node, queue)| self.open_lane(node, queue, round)).collect()
    }

    fn target(&self, index: usize) -> Target {
        let task = &self.tasks[index];
        if let Some(node) = &task.asked {
            return Target { node: node.clone(), asking: true };
        }
        let primaries = self.cluster.map.primaries();
        // Any node can answer, also that nobody serves the slot. After a failure another node is tried.
        let any = || primaries.get(task.attempts as usize % primaries.len().max(1));
        let owner = task.slot.and_then(|slot| self.cluster.map.owner(slot));
        Target { node: owner.or_else(any).unwrap_or(&self.cluster.seed).clone(), asking: false }
    }

    /// Takes the node's connection for a round. If the node can't be reached, its commands wait for the next round.
    fn open_lane(&mut self, node: NodeAddress, queue: VecDeque<(usize, bool)>, round: &mut Round) -> Option<Lane> {
        let scripts = self.scripts;
        let ready = self
            .cluster
            .node(&node)
            .and_then(|connection| connection.know_scripts(scripts).map_err(|interrupted| interrupted.error));
        match ready.map(|()| self.cluster.connections.remove(&node)) {
            Ok(connection) => {
                let connection = connection?;
                Some(Lane { node, connection, queue, in_flight: VecDeque::new(), since: Instant::now() })
            }
            Err(error) => {
                let is_lost = error.is_connection_lost();
                (round.is_map_stale, round.needs_pause) = (true, true);
                for (index, _) in queue {
                    self.fail_attempt(index, round, || Err(error.clone()), is_lost);
                }
                None
            }
        }
    }

    /// Counts an attempt. The command is pending again, or has its last failure as its result.
    fn fail_attempt(
        &mut self,
        index: usize,
        round: &mut Round,
        failure: impl FnOnce() -> Result<Value, Error>,
        may_retry: bool,
    ) {
        let task = &mut self.tasks[index];
        task.attempts += 1;
        round.held.extend(task.slot);
        if may_retry && task.attempts < self.cluster.options.attempts_max.max(1) {
            round.pending.push(index);
        } else {
            task.result = Some(failure());
        }
    }

    // --- a round ---

    fn fly(&mut self, mut lanes: Vec<Lane>, round: &mut Round) {
        while !lanes.is_empty() {
            let mut moved = false;
            let mut at = 0;
            while at < lanes.len() {
                match self.advance(&mut lanes[at], round) {
                    Ok(progress) => {
                        moved |= progress;
                        at += 1;
                    }
                    Err(cause) => {
                        self.lose(lanes.swap_remove(at), &cause, round);
                        moved = true;
                    }
                }
            }
            for lane in lanes.extract_if(.., |lane| lane.queue.is_empty() && lane.in_flight.is_empty()) {
                self.cluster.connections.insert(lane.node, lane.connection);
            }
            if !moved && !lanes.is_empty() {
                self.wait(&lanes);
            }
        }
    }

    /// Sends and receives without waiting. Returns true if anything happened.
    fn advance(&mut self, lane: &mut Lane, round: &mut Round) -> Result<bool, Lost> {
        let mut moved = self.fill(lane, round);
        let before = lane.connection.output().total_sent();
        lane.connection.try_write();
        moved |= lane.connection.output().total_sent() > before;
        loop {
            match lane.connection.buffered_reply().map_err(cause_of)? {
                Some(reply) => self.take(lane, reply, round),
                None if lane.connection.try_read().map_err(cause_of)? => {}
                None => break,
            }
            moved = true;
        }
        if moved {
            lane.since = Instant::now();
        } else if let Some(limit) = self.cluster.config.read_timeout
            && lane.since.elapsed() >= limit
        {
            return Err(if lane.connection.has_unsent() { Lost::Stuck(limit) } else { Lost::Silent(limit) });
        }
        Ok(moved)
    }

    /// Queues requests within the window. Commands of held slots go to the next round.
    fn fill(&mut self, lane: &mut Lane, round: &mut Round) -> bool {
        let Window { commands, bytes } = self.cluster.options.window;
        let mut moved = false;
        while lane.in_flight.len() < commands.max(1)
            && lane.connection.output().unsent().len() < bytes.max(1)
            && let Some((index, asking)) = lane.queue.pop_front()
        {
            moved = true;
            let task = &self.tasks[index];
            if task.slot.is_some_and(|slot| round.held.contains(&slot)) {
                round.pending.push(index);
                continue;
            }
            let start = lane.connection.output().total_end();
            if asking {
                lane.connection.send(&["ASKING"]);
                lane.in_flight.push_back(Sent::Asking);
            }
            lane.connection.send_packed(task.request, task.replies as u64);
            lane.in_flight.push_back(Sent::Task { index, start, left: task.replies });
        }
        moved
    }

    fn take(&mut self, lane: &mut Lane, reply: Value, round: &mut Round) {
        let (index, is_last) = match lane.in_flight.front_mut() {
            Some(Sent::Task { index, left, .. }) => {
                *left -= 1;
                (*index, *left == 0)
            }
            // A refused ASKING is followed by the command's own redirection.
            Some(Sent::Asking) | None => {
                lane.in_flight.pop_front();
                return;
            }
        };
        let reply = reply.without_attribute();
        let task = &mut self.tasks[index];
        if task.replies == 1 {
            lane.in_flight.pop_front();
            return self.conclude(index, &lane.node, Answer::of(&reply), reply, round);
        }
        task.parts.push(reply);
        if is_last {
            lane.in_flight.pop_front();
            let parts = std::mem::take(&mut task.parts);
            // A redirected command makes EXEC fail, so that nothing has run.
            let is_unanswered = |answer: &Answer| *answer != Answer::Final;
            let answer = parts.iter().map(Answer::of).find(is_unanswered).unwrap_or(Answer::Final);
            self.conclude(index, &lane.node, answer, Value::Array(parts), round);
        }
    }

    /// Settles a command that was answered, or notes its next attempt.
    fn conclude(&mut self, index: usize, answerer: &NodeAddress, answer: Answer, reply: Value, round: &mut Round) {
        self.tasks[index].asked = None;
        match answer {
            Answer::Final => {
                self.tasks[index].result = Some(Ok(reply));
                return;
            }
            Answer::Elsewhere(redirection) => {
                let node = redirection.node.completed_by(answerer);
                self.tasks[index].slot = Some(redirection.slot);
                if redirection.asking {
                    self.tasks[index].asked = Some(node);
                } else {
                    self.cluster.map.assign(redirection.slot, node.clone());
                    round.moved_to = Some(node);
                    round.is_map_stale = true;
                }
            }
            Answer::TryAgain => round.needs_pause = true,
            Answer::Down => (round.needs_pause, round.is_map_stale) = (true, true),
        }
        self.fail_attempt(index, round, || Ok(reply), true);
    }

    /// Settles the commands of a broken connection: those that were sent have an unknown fate.
    fn lose(&mut self, mut lane: Lane, cause: &Lost, round: &mut Round) {
        let total_sent = lane.connection.output().total_sent();
        (round.is_map_stale, round.needs_pause) = (true, true);
        let lost = |fate| Err(Error::Lost { cause: cause.clone(), fate });
        for sent in lane.in_flight {
            let Sent::Task { index, start, .. } = sent else { continue };
            self.tasks[index].parts.clear();
            if start < total_sent {
                self.tasks[index].result = Some(lost(Fate::MayHaveRun));
                if let Some(slot) = self.tasks[index].slot {
                    self.broken.insert(slot, cause.clone());
                }
            } else {
                self.fail_attempt(index, round, || lost(Fate::NotRun), true);
            }
        }
        for (index, _) in lane.queue {
            self.fail_attempt(index, round, || lost(Fate::NotRun), true);
        }
    }

    /// Waits until a connection can transfer bytes, or until the first one has been silent for too long.
    fn wait(&self, lanes: &[Lane]) {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let mut interest = PollFlags::IN;
            interest.set(PollFlags::OUT, lane.connection.has_unsent());
            fds.push(PollFd::from_borrowed_fd(lane.connection.fd(), interest));
        }
        let rest = |limit: Duration| lanes.iter().map(|lane| limit.saturating_sub(lane.since.elapsed())).min();
        let timeout = self.cluster.config.read_timeout.and_then(rest);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // After an error or a signal, the loop tries each connection.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

fn cause_of(error: Error) -> Lost {
    match error {
        Error::Lost { cause, .. } => cause,
        _ => Lost::Closed,
    }
}
