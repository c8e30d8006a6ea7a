//! A chunk of commands, and the results of its commands.

use client::cluster::{Cluster, Slot};
use client::{Error, Pipeline, Request, Value};

use crate::block::Block;
use crate::exit::{Exit, Failure};
use crate::flight::{CommandPlace, Witness};
use crate::progress::count;
use crate::report::Report;

/// The error of a command that isn't sent.
const NO_KEY: &[u8] = b"the command has no key, so that no node is its target; it was not sent";

/// A command in wire format.
pub struct Wire<'b>(pub &'b [u8]);

impl Request for Wire<'_> {
    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// Consecutive blocks.
#[derive(Debug, Default)]
pub struct Chunk {
    blocks: Vec<Block>,
    commands: usize,
    bytes: usize,
}

/// The state of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandState {
    /// The command is to be sent.
    Pending,
    /// The command was executed; the text of an error reply.
    Executed(Option<Vec<u8>>),
    /// An earlier run or attempt executed the command. The reply is unknown.
    Earlier,
    /// The command was not executed, for this reason.
    Refused(Vec<u8>),
}

/// The results of a chunk's commands.
pub struct Results {
    /// The slot of each command.
    pub slots: Vec<Option<Slot>>,
    /// The state of each command.
    pub states: Vec<CommandState>,
}

impl Chunk {
    pub fn push(&mut self, block: Block) {
        self.commands += block.len();
        self.bytes += block.memory_bytes();
        self.blocks.push(block);
    }

    pub fn len(&self) -> usize {
        self.commands
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn into_blocks(self) -> impl Iterator<Item = Block> {
        self.blocks.into_iter()
    }

    /// Returns the number of the first command.
    pub fn first(&self) -> u64 {
        self.blocks.first().map_or(0, |block| block.first)
    }

    /// Returns the number of the command after the last one.
    pub fn end(&self) -> Option<u64> {
        self.blocks.last().map(Block::end)
    }

    pub fn input_bytes(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.input_bytes)
    }

    /// Returns the block with a command, and the command's index in it.
    fn place(&self, mut index: usize) -> Option<(&Block, usize)> {
        self.blocks.iter().find_map(|block| match index.checked_sub(block.len()) {
            Some(rest) => {
                index = rest;
                None
            }
            None => Some((block, index)),
        })
    }

    /// Returns a command in wire format.
    pub fn command(&self, index: usize) -> &[u8] {
        self.place(index).map_or(b"", |(block, index)| block.requests(index, index + 1))
    }

    /// Stops a load with transactions. Their commands may belong to several nodes.
    pub fn refuse_transactions(&self, report: &Report) -> Result<(), Failure> {
        for block in &self.blocks {
            if let Some((index, _)) = block.transactions(0, block.len()).next() {
                let place = format!("{}:{}", report.name(block.input), block.line(index));
                let text = format!("{place}: a transaction can't be loaded into a cluster; the load ends before it");
                return Err(Failure::new(Exit::Usage, text));
            }
        }
        Ok(())
    }

    /// Returns the slots of all commands. Commands without keys are refused.
    pub fn results(&self, cluster: &Cluster) -> Results {
        let requests = self.blocks.iter().flat_map(|block| (0..block.len()).map(|at| block.requests(at, at + 1)));
        Results::of(requests.map(|request| cluster.slot_of_packed(request)).collect())
    }

    /// Sends all commands, without `--resume`.
    pub fn load(&self, cluster: &mut Cluster, results: &mut Results, report: &Report) -> Result<(), Failure> {
        let pending = results.pending();
        let mut pipeline = Pipeline::new();
        for &index in &pending {
            pipeline.add(&Wire(self.command(index)));
        }
        let mut lost: Option<(usize, Error)> = None;
        let mut lost_count = 0;
        for (index, result) in pending.into_iter().zip(cluster.run(&pipeline)) {
            match result {
                Ok(reply) => results.states[index] = executed(&reply),
                Err(Error::NotShareable(name)) => {
                    let text = format!("{name} affects its connection, so it can't be loaded into a cluster");
                    results.states[index] = CommandState::Refused(text.into_bytes());
                }
                Err(error) => {
                    lost_count += 1;
                    lost.get_or_insert((index, error));
                }
            }
        }
        let Some((index, error)) = lost else { return Ok(()) };
        let place =
            self.place(index).map(|(block, index)| format!("{}:{}", report.name(block.input), block.line(index)));
        let text = format!(
            "{error}; {} may have been executed or not, the first one at {}",
            count(lost_count, "command"),
            place.unwrap_or_default()
        );
        Err(Failure::new(Exit::Server, text))
    }

    /// Reports the errors and the rejected lines in input order.
    pub fn report(&self, results: &Results, report: &mut Report) {
        let mut states = results.states.iter();
        for block in &self.blocks {
            let mut rejected = block.rejected().iter().peekable();
            for index in 0..block.len() {
                while let Some(line) = rejected.next_if(|line| line.before <= index) {
                    report.rejected(block.input, line);
                }
                let error = match states.next() {
                    Some(CommandState::Executed(Some(error)) | CommandState::Refused(error)) => error,
                    _ => continue,
                };
                let place =
                    CommandPlace { input: block.input, line: block.line(index), command: block.command_at(index) };
                report.failed(place, error);
            }
            rejected.for_each(|line| report.rejected(block.input, line));
        }
    }
}

impl Results {
    /// Returns the results before anything was sent.
    pub fn of(slots: Vec<Option<Slot>>) -> Self {
        let state = |slot: &Option<Slot>| match slot {
            Some(_) => CommandState::Pending,
            None => CommandState::Refused(NO_KEY.to_vec()),
        };
        Self { states: slots.iter().map(state).collect(), slots }
    }

    /// Returns the indexes of the commands to send.
    pub fn pending(&self) -> Vec<usize> {
        (0..self.states.len()).filter(|&index| self.states[index] == CommandState::Pending).collect()
    }

    /// Notes that the first commands were done, and their errors reported, before this run.
    pub fn skip(&mut self, count: usize) {
        let count = count.min(self.states.len());
        self.states[..count].fill(CommandState::Executed(None));
    }

    /// Returns the number of commands that were executed, by any run.
    pub fn executed(&self) -> u64 {
        let is_executed = |state: &&CommandState| matches!(state, CommandState::Executed(_) | CommandState::Earlier);
        self.states.iter().filter(is_executed).count() as u64
    }

    /// Returns the number of commands with unknown replies.
    pub fn unknown(&self) -> u64 {
        self.states.iter().filter(|state| **state == CommandState::Earlier).count() as u64
    }
}

/// Returns the state of a command with this reply.
pub fn executed(reply: &Value) -> CommandState {
    CommandState::Executed(reply.error().map(<[u8]>::to_vec))
}
