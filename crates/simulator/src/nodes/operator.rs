//! An operator's program: it moves slots key by key, hands slots over by DELSLOTS and ADDSLOTS, and has replicas take over.
//!
//! A step is a command to one process. The next one follows its reply. The program may end at any step, as a killed one does.

use std::collections::VecDeque;

use engine::testing::request;

use crate::network::{Network, WireId};
use crate::reply::{SimReply, parse_reply};
use crate::setup::{ADDRESS, PORTS};

/// Longest wait for a reply, in microseconds.
const PATIENCE_US: u64 = 4_000_000;
/// Most keys of a MIGRATE.
const KEYS_AT_ONCE: &str = "2";

/// A command to a process.
#[derive(Clone, Debug)]
pub struct Command {
    process: usize,
    words: Vec<String>,
    /// True if the job goes on after an error.
    may_fail: bool,
}

fn command(process: usize, words: &[&str]) -> Command {
    Command { process, words: words.iter().map(|word| (*word).to_owned()).collect(), may_fail: false }
}

/// A move of a slot between two nodes.
#[derive(Clone, Debug)]
pub struct Move {
    /// The slot.
    pub slot: usize,
    /// The source.
    pub from: usize,
    /// The target.
    pub to: usize,
    /// The source's and the target's ids.
    pub ids: [String; 2],
    /// True if the source gives the slot up before the target takes it, which is the wrong order.
    pub source_first: bool,
}

impl Move {
    fn set(&self, process: usize, change: &[&str]) -> Command {
        let slot = self.slot.to_string();
        command(process, &[&["CLUSTER", "SETSLOT", &slot], change].concat())
    }

    /// The commands before the keys move.
    fn begin(&self) -> VecDeque<Command> {
        let [source, target] = &self.ids;
        [self.set(self.to, &["IMPORTING", source]), self.set(self.from, &["MIGRATING", target])].into()
    }

    /// The command that lists keys to move.
    fn list(&self) -> Command {
        command(self.from, &["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), KEYS_AT_ONCE])
    }

    fn migrate(&self, keys: &[&str]) -> Command {
        let port = (PORTS + self.to as u16).to_string();
        let words = ["MIGRATE", ADDRESS, &port, "", "0", "2000", "REPLACE", "KEYS"];
        command(self.from, &[&words, keys].concat())
    }

    /// The commands once all keys are at the target.
    fn end(&self) -> VecDeque<Command> {
        let target = &*self.ids[1];
        let mut ends = [self.to, self.from].map(|process| self.set(process, &["NODE", target]));
        if self.source_first {
            ends.reverse();
        }
        ends.into()
    }
}

/// A job.
struct Job {
    name: String,
    commands: VecDeque<Command>,
    /// The move whose keys are on their way; none for other jobs.
    moves: Option<Move>,
    /// True if the keys of the move must be listed once the commands are done.
    lists: bool,
}

/// The command in flight.
struct Flight {
    wire: WireId,
    read: Vec<u8>,
    due_us: u64,
    lists: bool,
    may_fail: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Operator {
    job: Option<Job>,
    flight: Option<Flight>,
    /// The process of the last command, until [`Operator::take_sent`] is called, and true if the command gives a slot another owner.
    sent: Option<(usize, bool)>,
}

impl Operator {
    /// Takes the process to which a command has been sent since the last call. The flag is true if the command gives a slot another owner.
    pub fn take_sent(&mut self) -> Option<(usize, bool)> {
        self.sent.take()
    }

    /// The source and the target of the move under way.
    #[must_use]
    pub fn parties(&self) -> Option<[usize; 2]> {
        let moves = self.job.as_ref()?.moves.as_ref()?;
        Some([moves.from, moves.to])
    }

    /// Returns true if there is no job.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Begins to move a slot.
    pub fn move_slot(&mut self, of: Move) {
        let name = format!("slot {} moves from {} to {}", of.slot, of.from, of.to);
        self.job = Some(Job { name, commands: of.begin(), moves: Some(of), lists: true });
    }

    /// Begins to give commands one after another. The first ones may fail.
    pub fn give(&mut self, name: String, may_fail: usize, commands: &[(usize, &[&str])]) {
        let commands = commands
            .iter()
            .enumerate()
            .map(|(at, (process, words))| Command { may_fail: at < may_fail, ..command(*process, words) });
        let commands = commands.collect();
        self.job = Some(Job { name, commands, moves: None, lists: false });
    }

    /// Ends at any step.
    pub fn be_killed(&mut self, network: &mut Network) {
        if let Some(flight) = self.flight.take() {
            network.close(flight.wire, 0);
        }
        self.job = None;
    }

    /// Runs a step. Returns the end of the job, as text.
    pub fn step(&mut self, network: &mut Network, now_us: u64) -> Option<String> {
        if let Some(flight) = self.flight.take() {
            return self.read(flight, network, now_us);
        }
        let job = self.job.as_mut()?;
        let lists = job.commands.is_empty() && job.lists;
        let next = match (&job.moves, lists) {
            (Some(of), true) => Some(of.list()),
            _ => job.commands.pop_front(),
        };
        let Some(next) = next else { return self.end("done") };
        let Some(wire) = network.open([None, Some(next.process)]) else { return self.end("no connection") };
        network.send(wire, 0, &request(&next.words), now_us);
        self.sent = Some((next.process, next.words.iter().any(|word| word == "NODE")));
        let due_us = now_us + PATIENCE_US;
        self.flight = Some(Flight { wire, read: Vec::new(), due_us, lists, may_fail: next.may_fail });
        None
    }

    fn read(&mut self, mut flight: Flight, network: &mut Network, now_us: u64) -> Option<String> {
        let (bytes, has_ended) = network.receive(flight.wire, 0, now_us);
        flight.read.extend_from_slice(&bytes);
        let Some((reply, _)) = parse_reply(&flight.read) else {
            if has_ended || now_us > flight.due_us {
                network.close(flight.wire, 0);
                return self.end("no answer");
            }
            self.flight = Some(flight);
            return None;
        };
        network.close(flight.wire, 0);
        match &reply {
            SimReply::Error(why) if !flight.may_fail => return self.end(why),
            reply if flight.lists => self.take_keys(reply),
            _ => {}
        }
        None
    }

    fn take_keys(&mut self, reply: &SimReply) {
        let Some(job) = &mut self.job else { return };
        let Some(of) = &job.moves else { return };
        let keys: Vec<&str> = reply.items().iter().map(SimReply::text).collect();
        if keys.is_empty() {
            (job.lists, job.commands) = (false, of.end());
        } else {
            job.commands = [of.migrate(&keys)].into();
        }
    }

    fn end(&mut self, how: &str) -> Option<String> {
        self.job.take().map(|job| format!("{}: {how}", job.name))
    }
}
