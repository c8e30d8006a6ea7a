//! The commands in flight: read from the input, and not yet answered. The flight determines the bytes to send next, and
//! the command that each reply belongs to.
//!
//! Commands are numbered from 0 over the whole input. The commands `0..answered` are answered, and those up to the
//! limit of two chunks may be sent. Blocks stay here until their last command is done, so that an error can be shown
//! with its command, and a broken connection loses nothing.
//!
//! A merged request stands for several commands. The server counts requests and users count commands, so both numbers
//! are known for every position. Sorted commands are numbered in sorted order; their failures are reported in input
//! order when the whole run is answered.
//!
//! An answered command is done, except within an open transaction: if the connection breaks, none of its commands has
//! run. This module has no access to sockets.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use crate::block::{Block, Rejected};
use crate::limits::CHUNKS_IN_FLIGHT;
use crate::transaction::{self, Open, Unended};

/// Receives error reports in input order.
pub trait Witness {
    /// A command got an error reply.
    fn failed(&mut self, place: CommandPlace<'_>, error: &[u8]);
    /// A line was rejected, or an EXEC became a DISCARD.
    fn rejected(&mut self, input: usize, rejected: &Rejected);
    /// The server couldn't parse a command. It executed neither this command nor any later one.
    fn unreadable(&mut self, place: CommandPlace<'_>, error: &[u8]);
    /// The input ended within a transaction.
    fn unended(&mut self, transaction: &Unended);
}

/// Position of a command in the input.
#[derive(Clone, Debug)]
pub struct CommandPlace<'b> {
    /// Index of the input.
    pub input: usize,
    /// Line where the command begins.
    pub line: u64,
    /// The command in wire format, before merging.
    pub command: Cow<'b, [u8]>,
}

/// An error that the server recorded for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Number of the request.
    pub request: u64,
    /// Text of the error.
    pub error: Vec<u8>,
}

/// A position between two requests: the numbers of commands and requests before it.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    command: u64,
    request: u64,
}

/// The position where a load with `--stop-on-error` ends because of a rejected line. No command behind that line is
/// sent, because the line is rejected before they are.
#[derive(Clone, Copy, Debug)]
struct Barrier {
    /// Number of rejected lines that an earlier run of this load has reported.
    reported: u64,
    /// Number of rejected lines so far.
    met: u64,
    /// Number of the first command after the first new rejected line.
    at: Option<u64>,
}

impl Barrier {
    /// Examines a block's rejected lines. The requests before `executed` ran in an earlier run.
    fn meet(&mut self, block: &Block, executed: u64) {
        for rejected in block.rejected() {
            let is_new = if rejected.spoilt_by.is_none() {
                self.met += 1;
                self.met > self.reported
            } else {
                block.first_request + block.requests_of(rejected.before) as u64 > executed
            };
            if is_new {
                self.at.get_or_insert(block.first + rejected.before as u64);
            }
        }
    }
}

/// The commands between the input and their replies.
pub struct Flight {
    /// Number of commands in a chunk.
    chunk: u64,
    blocks: VecDeque<Block>,
    /// All commands before this position are answered.
    answered: Position,
    /// The open transaction.
    open: Option<Open>,
    /// True if the open transaction may have to be sent again.
    keeps_transactions: bool,
    /// The transaction that will never end, because no further command is sent.
    unended: Option<Unended>,
    /// Number of the first block's rejected lines that were reported.
    rejected_reported: usize,
    /// Position of the next byte to send: index of the block, and offset in its bytes.
    block: usize,
    offset: usize,
    /// No command from this number on is sent.
    stop_at: Option<u64>,
    /// The rejected lines at which the load ends; `None` continues after each.
    barrier: Option<Barrier>,
    /// The requests before this number were executed in an earlier run of this load.
    executed: u64,
    /// Known failures that aren't reported yet: requests before `executed`, in an open transaction, and in a sorted
    /// run.
    remembered: VecDeque<Remembered>,
    /// Number of failed requests that were reported.
    failed_requests: u64,
    input_bytes: u64,
    /// Input and line of the last command of the last finished block.
    last: Option<(usize, u64)>,
}

impl Flight {
    /// Creates an empty flight with chunks of `chunk` commands. `keeps_transactions` is true if an open transaction may
    /// have to be sent again.
    pub fn new(chunk: u64, keeps_transactions: bool) -> Flight {
        Flight {
            chunk: chunk.max(1),
            blocks: VecDeque::new(),
            answered: Position::default(),
            open: None,
            keeps_transactions,
            unended: None,
            rejected_reported: 0,
            block: 0,
            offset: 0,
            stop_at: None,
            barrier: None,
            executed: 0,
            remembered: VecDeque::new(),
            failed_requests: 0,
            input_bytes: 0,
            last: None,
        }
    }

    /// Stops before commands after a rejected line, except for the first `reported` ones.
    #[must_use]
    pub fn ending_at_rejected(mut self, reported: u64) -> Flight {
        self.barrier = Some(Barrier { reported, met: 0, at: None });
        self
    }

    /// Returns the number of answered commands.
    pub fn answered(&self) -> u64 {
        self.answered.command
    }

    /// Returns the number of answered requests.
    pub fn answered_requests(&self) -> u64 {
        self.answered.request
    }

    /// Returns the number of commands that are done: they have run, or never will.
    pub fn done(&self) -> u64 {
        self.done_position().command
    }

    /// Returns the number of requests that are done.
    pub fn done_requests(&self) -> u64 {
        self.done_position().request
    }

    fn done_position(&self) -> Position {
        self.kept().map_or(self.answered, |open| Position { command: open.command, request: open.request })
    }

    /// Returns the open transaction if it may have to be sent again.
    fn kept(&self) -> Option<Open> {
        self.open.filter(|_| self.keeps_transactions)
    }

    /// Returns the transaction that won't be executed because the load ended within it. It is known after `close`.
    pub fn unended(&self) -> Option<Unended> {
        self.unended
    }

    /// Returns the number of failed requests that were reported.
    pub fn failed_requests(&self) -> u64 {
        self.failed_requests
    }

    /// Returns the approximate size of the answered part of the open transaction. Whole blocks count.
    pub fn open_bytes(&self) -> usize {
        let is_kept = self.kept().is_some();
        let answered = self.blocks.iter().take_while(|block| is_kept && block.end() <= self.answered.command);
        answered.map(Block::memory_bytes).sum()
    }

    /// Returns the approximate number of input bytes that are done. A block counts when all of it is done.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// Returns the number of the first command that may not be sent now.
    fn limit(&self) -> u64 {
        let window = (self.answered.command / self.chunk + CHUNKS_IN_FLIGHT).saturating_mul(self.chunk);
        self.end_at().map_or(window, |stop| stop.min(window))
    }

    /// Returns the number of the command where the load ends, if it ends before its input.
    fn end_at(&self) -> Option<u64> {
        let barrier = self.barrier.and_then(|barrier| barrier.at);
        self.stop_at.into_iter().chain(barrier).min()
    }

    /// Returns true if another block is useful now, because all sendable commands have been sent.
    pub fn wants_block(&self) -> bool {
        let is_of_use = self.end() < self.limit() || self.end_request() <= self.executed;
        self.stop_at.is_none() && self.block == self.blocks.len() && is_of_use
    }

    /// Returns the number of the command after the last one present.
    fn end(&self) -> u64 {
        self.blocks.back().map_or(self.answered.command, Block::end)
    }

    /// Returns the number of the request after the last one present.
    fn end_request(&self) -> u64 {
        self.blocks.back().map_or(self.answered.request, Block::end_request)
    }

    /// Takes a block. Blocks that are done are passed to `done`, here and below.
    pub fn push(&mut self, block: Block, witness: &mut impl Witness, done: impl FnMut(Block)) {
        let was_skipping = self.is_skipping();
        if let Some(barrier) = &mut self.barrier {
            barrier.meet(&block, self.executed);
        }
        self.blocks.push_back(block);
        if was_skipping {
            self.forget_effects();
        }
        let reached = self.end_request().min(self.executed).max(self.answered.request);
        self.pass(reached, witness, done);
        if was_skipping && !self.is_skipping() {
            self.seek();
        }
        self.mark_sent(0);
    }

    /// Returns the bytes that may be sent now.
    pub fn sendable(&self) -> &[u8] {
        let Some(block) = self.blocks.get(self.block).filter(|_| !self.is_skipping()) else { return b"" };
        let allowed = self.limit().saturating_sub(block.first).min(block.len() as u64);
        block.requests(0, block.whole_requests(allowed as usize)).get(self.offset..).unwrap_or(b"")
    }

    /// Notes that this number of bytes of [`sendable`](Self::sendable) was sent.
    pub fn mark_sent(&mut self, bytes: usize) {
        self.offset += bytes;
        while let Some(block) = self.blocks.get(self.block)
            && self.offset >= block.requests(0, block.len()).len()
        {
            self.offset = 0;
            self.block += 1;
        }
    }

    /// Returns the number of commands that were sent; the last one perhaps in part.
    pub fn sent(&self) -> u64 {
        match self.blocks.get(self.block) {
            Some(block) if self.offset > 0 => block.first + block.begun_by(self.offset) as u64,
            Some(block) => block.first.max(self.answered.command),
            None => self.end(),
        }
    }

    /// Returns the number of requests that were sent; the last one perhaps in part.
    pub fn sent_requests(&self) -> u64 {
        match self.blocks.get(self.block) {
            Some(block) if self.offset > 0 => {
                block.first_request + block.requests_of(block.begun_by(self.offset)) as u64
            }
            Some(block) => block.first_request.max(self.answered.request),
            None => self.end_request(),
        }
    }

    /// Notes that all requests before `request` were answered.
    pub fn answer(&mut self, request: u64, witness: &mut impl Witness, done: impl FnMut(Block)) {
        self.pass(request, witness, done);
    }

    /// Notes that all requests before `request` were answered, and this one with an error. [`answer`](Self::answer)
    /// must still count its reply.
    pub fn fail(&mut self, request: u64, error: &[u8], witness: &mut impl Witness, done: impl FnMut(Block)) {
        self.pass(request, witness, done);
        let is_kept = self.kept().is_some();
        if let Some(open) = &mut self.open {
            open.refused += 1;
        }
        let Some(block) = self.blocks.iter_mut().find(|block| request < block.end_request()) else { return };
        let commands = block.commands_of(request.saturating_sub(block.first_request) as usize);
        block.forget_effect(commands.start);
        if is_kept || block.reordered(commands.start).is_some() {
            self.remembered.push_back(Remembered { request, error: error.to_vec() });
        } else {
            self.failed_requests += 1;
            commands.for_each(|index| witness.failed(place(block, index), error));
        }
    }

    /// Reports a request that the server couldn't parse. It counts as unanswered. Returns the input and line where it
    /// begins.
    pub fn unreadable(&self, request: u64, error: &[u8], witness: &mut impl Witness) -> Option<(usize, u64)> {
        let block = self.blocks.iter().find(|block| block.has_request(request))?;
        let commands = block.commands_of((request - block.first_request) as usize);
        commands.clone().for_each(|index| witness.unreadable(place(block, index), error));
        Some((block.input, block.line(commands.start)))
    }

    /// Ends the flight: answered commands are done, even in an open transaction. `ended` is true if the whole input was
    /// read. Only then is an open transaction an error of the input.
    pub fn close(&mut self, ended: bool, witness: &mut impl Witness, done: impl FnMut(Block)) {
        self.unended = self.open.take().map(|open| open.given_up(self.answered.command));
        if let Some(unended) = self.unended.as_ref().filter(|_| ended && self.answered.command >= self.end()) {
            // Reported before the failures within the transaction.
            witness.unended(unended);
        }
        self.pass(self.answered.request, witness, done);
    }

    /// Sends no further command, except the rest of a partly sent request and of a sorted run. All commands before some
    /// line are then done, and none after it.
    pub fn stop(&mut self) {
        if self.stop_at.is_none() {
            let sent = self.sent();
            self.stop_at = Some(self.reordered_around(sent).map_or(sent, |run| run.end));
        }
    }

    /// Returns the numbers of the commands in the sorted run around `number`, if the run begins before it.
    fn reordered_around(&self, number: u64) -> Option<Range<u64>> {
        let block = self.blocks.iter().find(|block| number < block.end())?;
        let run = block.reordered_around(number.checked_sub(block.first)? as usize)?;
        Some(block.first + run.start as u64..block.first + run.end as u64)
    }

    /// Ends the flight although replies are missing. Reports failures in a sorted run.
    pub fn give_up(&mut self, witness: &mut impl Witness) {
        if let Some(run) = self.reordered_around(self.answered.command) {
            self.report_first(run.end, witness);
        }
    }

    /// Returns true if all sent commands are answered and no more will be sent. `ended` is true if no more blocks will
    /// come.
    pub fn has_landed(&self, ended: bool) -> bool {
        match self.end_at() {
            Some(stop) => self.answered.command >= stop,
            None => ended && self.answered.command >= self.end(),
        }
    }

    /// Continues on a new connection. The server has executed the requests before `executed`, with these errors among
    /// them. They are not sent again; all others are, even if they were sent before.
    pub fn resume(
        &mut self,
        executed: u64,
        remembered: impl IntoIterator<Item = Remembered>,
        witness: &mut impl Witness,
        done: impl FnMut(Block),
    ) {
        let known = self.done_position();
        self.executed = executed.max(known.request);
        self.open = None;
        self.answered = known;
        self.remembered = remembered.into_iter().filter(|failure| failure.request >= known.request).collect();
        self.forget_effects();
        self.pass(self.end_request().min(self.executed).max(known.request), witness, done);
        self.seek();
        self.mark_sent(0);
    }

    /// Removes the effect of commands that failed in an earlier run on the open transaction: a failed MULTI, for
    /// example, began none.
    fn forget_effects(&mut self) {
        for failure in &self.remembered {
            let block = self.blocks.iter_mut().find(|block| block.has_request(failure.request));
            if let Some(block) = block {
                block.forget_effect(block.commands_of((failure.request - block.first_request) as usize).start);
            }
        }
    }

    /// Returns true if no block is left.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the number of commands that are done together with all commands before them in input order.
    pub fn done_in_order(&self) -> u64 {
        let done = self.done();
        self.reordered_around(done).map_or(done, |run| run.start)
    }

    /// Returns the input and line of the last command counted by [`done_in_order`](Self::done_in_order).
    pub fn last_done(&self) -> Option<(usize, u64)> {
        let here = self.blocks.front().and_then(|block| {
            let count = self.done_in_order().checked_sub(block.first)? as usize;
            Some((block.input, block.last_line(count)?))
        });
        here.or(self.last)
    }

    /// Returns true while commands that were executed earlier must be skipped in the input.
    pub fn is_skipping(&self) -> bool {
        self.answered.request < self.executed
    }

    /// Moves the sending position to the first command that isn't done.
    fn seek(&mut self) {
        self.block = 0;
        self.offset = match self.blocks.front() {
            Some(block) => block.requests(0, self.answered.command.saturating_sub(block.first) as usize).len(),
            None => 0,
        };
    }

    /// Returns the position of the request with this number.
    fn position(&self, request: u64) -> Position {
        let block = self.blocks.iter().find(|block| request < block.end_request());
        let command = match block {
            Some(block) => {
                block.first + block.commands_of(request.saturating_sub(block.first_request) as usize).start as u64
            }
            None => self.end(),
        };
        Position { command, request }
    }

    /// Notes that the requests before `request` are answered. Reports failures of finished commands, and gives blocks
    /// back.
    fn pass(&mut self, request: u64, witness: &mut impl Witness, mut done: impl FnMut(Block)) {
        let position = self.position(request);
        self.watch_transactions(position);
        self.answered = position;
        let number = self.done();
        while let Some(block) = self.blocks.front() {
            let reached = number.min(block.end());
            self.report_first(reached, witness);
            if self.blocks.front().is_none_or(|block| block.end() > number) {
                break;
            }
            let Some(block) = self.blocks.pop_front() else { break };
            if self.block == 0 {
                self.offset = 0;
            }
            self.block = self.block.saturating_sub(1);
            self.rejected_reported = 0;
            self.input_bytes = block.input_bytes;
            self.last = block.last_line(block.len()).map(|line| (block.input, line)).or(self.last);
            done(block);
        }
    }

    /// Updates the open transaction for the commands up to `position`. Requests of an earlier run are skipped, because
    /// the server's count ends at the end of a transaction.
    fn watch_transactions(&mut self, position: Position) {
        if position.request <= self.executed {
            return;
        }
        for block in self.blocks.iter().take_while(|block| block.first < position.command) {
            let index = |number: u64| number.saturating_sub(block.first) as usize;
            self.open = transaction::follow(self.open, block, index(self.answered.command), index(position.command));
        }
    }

    /// Reports the rejected lines and known failures of the first block before command `number`, in order.
    fn report_first(&mut self, number: u64, witness: &mut impl Witness) {
        let Some(block) = self.blocks.front() else { return };
        let rejected = &block.rejected()[self.rejected_reported..];
        let mut rejected = rejected.iter().take_while(|line| block.first + line.before as u64 <= number).peekable();
        loop {
            let line = rejected.peek().map(|line| line.before);
            let failure = self.remembered.front().filter(|failure| failure.request < block.end_request());
            let failed = failure.map(|failure| reported_with(block, failure.request));
            let failed = failed.filter(|commands| block.first + commands.end as u64 <= number);
            match (line, failed) {
                (Some(line), failed) if failed.as_ref().is_none_or(|commands| line <= commands.start) => {
                    if let Some(line) = rejected.next() {
                        self.rejected_reported += 1;
                        witness.rejected(block.input, line);
                    }
                }
                (_, Some(commands)) => {
                    let end = block.first_request + block.requests_of(commands.end) as u64;
                    let count = self.remembered.iter().take_while(|failure| failure.request < end).count();
                    self.failed_requests += count as u64;
                    report_failures(block, self.remembered.drain(..count), witness);
                }
                _ => return,
            }
        }
    }
}

/// Returns the commands that are reported together with a failed request.
fn reported_with(block: &Block, request: u64) -> Range<usize> {
    let commands = block.commands_of(request.saturating_sub(block.first_request) as usize);
    block.reordered(commands.start).unwrap_or(commands)
}

/// Reports failures of a block's requests in input order.
fn report_failures(block: &Block, failures: impl Iterator<Item = Remembered>, witness: &mut impl Witness) {
    let failures: Vec<_> = failures.collect();
    let mut failed = Vec::new();
    for Remembered { request, error } in &failures {
        let commands = block.commands_of(request.saturating_sub(block.first_request) as usize);
        failed.extend(commands.map(|index| (index, error)));
    }
    failed.sort_by_key(|(index, _)| block.place_in_run(*index));
    failed.iter().for_each(|(index, error)| witness.failed(place(block, *index), error));
}

fn place(block: &Block, index: usize) -> CommandPlace<'_> {
    CommandPlace { input: block.input, line: block.line(index), command: block.command_at(index) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{commands::Commands, fill};
    use crate::input::Input;
    use crate::merge::{Family, Merger, Merging};

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Witness for Heard {
        fn failed(&mut self, place: CommandPlace<'_>, error: &[u8]) {
            let (command, error) = (crate::shown::command(&place.command), String::from_utf8_lossy(error));
            self.0.push(format!("{}:{} {command}: {error}", place.input, place.line));
        }

        fn rejected(&mut self, input: usize, rejected: &Rejected) {
            let what = match rejected.spoilt_by {
                None => "rejected".to_owned(),
                Some((input, line)) => format!("discarded for {input}:{line}"),
            };
            self.0.push(format!("{input}:{} {what}", rejected.line));
        }

        fn unreadable(&mut self, place: CommandPlace<'_>, error: &[u8]) {
            self.failed(place, error);
        }

        fn unended(&mut self, transaction: &Unended) {
            self.0.push(format!("{}:{} unended, {} queued", transaction.input, transaction.line, transaction.queued));
        }
    }

    /// Returns the blocks of `text`, read in pieces of `size` bytes.
    fn blocks(text: &str, size: usize) -> Vec<Block> {
        let pieces = crate::format::testing::Pieces { rest: text.as_bytes().to_vec().into(), size };
        let mut input = Input::new(Box::new(pieces));
        let mut format = Commands::new(1000);
        let (mut blocks, mut first, mut first_request) = (Vec::new(), 0, 0);
        let mut merger = Merger::default();
        loop {
            let mut block = Block::default();
            block.merger = merger;
            (block.first, block.first_request) = (first, first_request);
            if !fill(&mut format, &mut input, &mut block, false).unwrap() {
                return blocks;
            }
            block.end_run();
            merger = std::mem::take(&mut block.merger);
            (first, first_request) = (block.end(), block.end_request());
            blocks.push(block);
        }
    }

    /// Ten commands; `n` is the argument of command number n. Lines 2, 5 and the last one are invalid.
    const TEXT: &str = "E 0\n\"\nE 1\nE 2\n\"\nE 3\nSELECT 4\nE 5\nE 6\nE 7\nE 8\nE 9\n\"\n";

    /// Runs `TEXT` through a flight, sending `step` bytes at a time and taking one reply at a time. Command 3 fails.
    fn fly(size: usize, chunk: u64, step: usize) -> (String, Vec<String>) {
        let (mut flight, mut heard, mut sent) = (Flight::new(chunk, true), Heard::default(), Vec::new());
        let mut blocks = blocks(TEXT, size).into_iter().peekable();
        while !flight.has_landed(blocks.peek().is_none()) {
            while flight.wants_block()
                && let Some(block) = blocks.next()
            {
                flight.push(block, &mut heard, drop);
            }
            let piece = flight.sendable();
            let piece = piece[..piece.len().min(step)].to_vec();
            flight.mark_sent(piece.len());
            sent.extend(piece);
            assert!(flight.sent() - flight.answered() <= 2 * chunk, "{} of {}", flight.sent(), flight.answered());
            let whole = count_requests(&sent);
            if flight.answered() < whole {
                if flight.answered() == 3 {
                    flight.fail(3, b"ERR", &mut heard, drop);
                }
                flight.answer(flight.answered() + 1, &mut heard, drop);
            }
        }
        (commands(&sent), heard.0)
    }

    fn count_requests(sent: &[u8]) -> u64 {
        let mut framer = resp::request::Framer::default();
        let mut batch = resp::request::Batch::default();
        framer.frame(sent.into(), 0, &resp::request::Limits::default(), 100, &mut batch);
        batch.requests().len() as u64
    }

    fn commands(mut sent: &[u8]) -> String {
        let mut shown = Vec::new();
        while !sent.is_empty() {
            let next = sent[1..].windows(3).position(|bytes| bytes == b"\n*2").map_or(sent.len(), |at| at + 2);
            shown.push(crate::shown::command(&sent[..next]));
            sent = &sent[next..];
        }
        shown.join(", ")
    }

    const ALL: &str = "E 0, E 1, E 2, E 3, SELECT 4, E 5, E 6, E 7, E 8, E 9";

    #[test]
    fn everything_is_sent_once_and_reported_in_order() {
        for size in [1, 5, 9, 30, 1000] {
            for chunk in [1, 2, 3, 100] {
                for step in [1, 10, 1000] {
                    let (sent, heard) = fly(size, chunk, step);
                    assert_eq!(sent, ALL, "size {size}, chunk {chunk}, step {step}");
                    assert_eq!(heard, ["0:2 rejected", "0:5 rejected", "0:6 E 3: ERR", "0:13 rejected"]);
                }
            }
        }
    }

    #[test]
    fn nothing_is_sent_after_a_rejected_line_that_ends_the_load() {
        let firsts = [(0, 1), (1, 3), (2, 10), (3, 10)];
        for (size, (reported, first)) in [1, 9, 30, 1000].into_iter().flat_map(|size| firsts.map(|it| (size, it))) {
            for executed in 0..=first {
                let mut flight = Flight::new(100, true).ending_at_rejected(reported);
                let (mut heard, mut sent) = (Heard::default(), Vec::new());
                flight.resume(executed, None, &mut heard, drop);
                for block in blocks(TEXT, size) {
                    if flight.wants_block() {
                        flight.push(block, &mut heard, drop);
                    }
                    sent.extend(flight.sendable());
                    flight.mark_sent(flight.sendable().len());
                }
                let expected: Vec<_> = ALL.split(", ").take(first as usize).skip(executed as usize).collect();
                assert_eq!(commands(&sent), expected.join(", "), "size {size}, {reported} reported, {executed} ran");
                flight.answer(first, &mut heard, drop);
                assert!(flight.has_landed(reported == 3), "size {size}, {reported} reported");
            }
        }
    }

    #[test]
    fn executed_commands_are_not_sent_again_after_a_break() {
        for size in [1, 9, 30, 1000] {
            for executed in 0..=10 {
                for known in [0, 3, 10] {
                    let (mut flight, mut heard) = (Flight::new(100, true), Heard::default());
                    let mut blocks = blocks(TEXT, size).into_iter();
                    // `known` blocks were read before the connection broke, and all their commands were sent.
                    for block in blocks.by_ref().take(known) {
                        flight.push(block, &mut heard, drop);
                    }
                    flight.mark_sent(flight.sendable().len());
                    let failed = Remembered { request: 3, error: b"ERR".to_vec() };
                    flight.resume(executed, (executed > 3).then_some(failed), &mut heard, drop);
                    let mut sent = Vec::new();
                    loop {
                        sent.extend(flight.sendable());
                        flight.mark_sent(flight.sendable().len());
                        if !flight.sendable().is_empty() {
                            continue;
                        }
                        let Some(block) = blocks.next() else { break };
                        flight.push(block, &mut heard, drop);
                        assert!(flight.is_skipping() || flight.answered() == executed);
                    }
                    let expected: Vec<_> = ALL.split(", ").skip(executed as usize).collect();
                    assert_eq!(commands(&sent), expected.join(", "), "size {size}, executed {executed}, known {known}");
                    flight.answer(10, &mut heard, drop);
                    let errors = heard.0.iter().filter(|line| line.ends_with("E 3: ERR")).count();
                    assert_eq!((heard.0.len(), errors), (3 + errors, usize::from(executed > 3)), "{:?}", heard.0);
                    assert!(flight.has_landed(true));
                }
            }
        }
    }

    #[test]
    fn a_transaction_that_has_not_ended_is_sent_again() {
        let text = "E 0\nMULTI\nE 2\nE 3\nEXEC\nE 5\n";
        for size in [3, 1000] {
            for answered in 0..=6 {
                let (mut flight, mut heard) = (Flight::new(100, true), Heard::default());
                for block in blocks(text, size) {
                    flight.push(block, &mut heard, drop);
                }
                let mut whole: Vec<u8> = Vec::new();
                while !flight.sendable().is_empty() {
                    whole.extend(flight.sendable());
                    flight.mark_sent(flight.sendable().len());
                }
                flight.answer(answered.min(2), &mut heard, drop);
                if answered > 2 {
                    flight.fail(2, b"ERR", &mut heard, drop);
                }
                flight.answer(answered, &mut heard, drop);
                let done = if (2..5).contains(&answered) { 1 } else { answered };
                assert_eq!((flight.answered(), flight.done()), (answered, done));
                // Reports on an open transaction aren't final.
                assert_eq!(heard.0.len(), usize::from(answered >= 5), "{answered}");
                flight.resume(done, [], &mut heard, drop);
                let mut sent: Vec<u8> = Vec::new();
                while !flight.sendable().is_empty() {
                    sent.extend(flight.sendable());
                    flight.mark_sent(flight.sendable().len());
                }
                let skipped = blocks(text, 1000)[0].requests(0, done as usize).len();
                assert_eq!(sent, &whole[skipped..], "{answered} answered");
                flight.answer(6, &mut heard, drop);
                assert!(flight.has_landed(true) && flight.is_empty());
            }
        }
    }

    #[test]
    fn a_transaction_that_never_ends_ends_with_the_load() {
        for (resumes, ended) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut flight, mut heard) = (Flight::new(100, resumes), Heard::default());
            for block in blocks("E 0\nMULTI\nE 2\n\"\nE 3\n", 3) {
                flight.push(block, &mut heard, drop);
            }
            flight.mark_sent(0);
            flight.fail(3, b"ERR", &mut heard, drop);
            flight.answer(4, &mut heard, drop);
            assert!(flight.has_landed(true) && flight.done() == if resumes { 1 } else { 4 });
            // Nothing is final while the transaction may be sent again.
            assert_eq!((heard.0.is_empty(), flight.open_bytes() > 0), (resumes, resumes));
            flight.close(ended, &mut heard, drop);
            assert!(flight.done() == 4 && flight.is_empty());
            assert_eq!(flight.unended(), Some(Unended { input: 0, line: 2, queued: 1 }));
            let unended = heard.0.iter().position(|line| line == "0:2 unended, 1 queued");
            let place = if resumes { 0 } else { 2 };
            assert_eq!(unended, ended.then_some(place));
            heard.0.retain(|line| !line.contains("unended"));
            assert_eq!(heard.0, ["0:4 rejected", "0:5 E 3: ERR"]);
        }
    }

    const SPOILT: &str = "MULTI\nE 1\n\"\nE 2\n'\nexec\nMULTI\nE 5\nEXEC\n";

    #[test]
    fn a_transaction_with_a_rejected_line_is_discarded() {
        for size in [1, 9, 1000] {
            for executed in [0, 4, 7] {
                let (mut flight, mut heard) = (Flight::new(100, true), Heard::default());
                flight.resume(executed, [], &mut heard, drop);
                for block in blocks(SPOILT, size) {
                    flight.push(block, &mut heard, drop);
                }
                let mut sent = Vec::new();
                while !flight.sendable().is_empty() {
                    sent.extend(flight.sendable());
                    flight.mark_sent(flight.sendable().len());
                }
                let ends = [b"*1\r\n$7\r\nDISCARD\r\n", &b"*1\r\n$4\r\nEXEC\r\n"[..], b"*1\r\n$4\r\nexec\r\n"];
                let found = ends.map(|end| memchr::memmem::find(&sent, end).is_some());
                assert_eq!(found, [executed < 4, executed < 7, false], "size {size}, {executed} executed");
                flight.answer(7, &mut heard, drop);
                assert_eq!(heard.0, ["0:3 rejected", "0:5 rejected", "0:6 discarded for 0:3"]);
            }
        }
    }

    #[test]
    fn an_exec_without_a_transaction_is_not_discarded() {
        let (multi, discard) = (Remembered { request: 0, error: b"NOPERM".to_vec() }, b"ERR DISCARD without MULTI");
        let expected = ["0:1 MULTI: NOPERM", "0:3 rejected", "0:5 rejected", "0:6 DISCARD: ERR DISCARD without MULTI"];
        for size in [1, 9, 1000] {
            let (mut flight, mut heard) = (Flight::new(100, true), Heard::default());
            for block in blocks(SPOILT, size) {
                flight.push(block, &mut heard, drop);
            }
            flight.mark_sent(flight.sendable().len());
            flight.fail(0, b"NOPERM", &mut heard, drop);
            flight.answer(3, &mut heard, drop);
            flight.fail(3, discard, &mut heard, drop);
            flight.answer(4, &mut heard, drop);
            assert_eq!(heard.0, expected, "size {size}");
            // A later run gets the failures from the server.
            let (mut flight, mut heard) = (Flight::new(100, true), Heard::default());
            let failures = [multi.clone(), Remembered { request: 3, error: discard.to_vec() }];
            flight.resume(4, failures, &mut heard, drop);
            for block in blocks(SPOILT, size) {
                flight.push(block, &mut heard, drop);
            }
            assert_eq!(heard.0, expected, "size {size}");
        }
    }

    #[test]
    fn a_transaction_that_the_server_refused_is_none() {
        let (mut flight, mut heard) = (Flight::new(100, false), Heard::default());
        for block in blocks("MULTI\nE 1\n", 1000) {
            flight.push(block, &mut heard, drop);
        }
        flight.fail(0, b"NOPERM", &mut heard, drop);
        flight.answer(2, &mut heard, drop);
        flight.close(true, &mut heard, drop);
        assert_eq!((flight.unended(), heard.0), (None, vec!["0:1 MULTI: NOPERM".to_owned()]));
    }

    /// ZADDs on lines 2 to 9 are sent in the order 9, 8 ... 2, in requests of three. Other commands are on lines 1, 10
    /// and 11; line 12 is rejected.
    fn reordered() -> Block {
        let zadds: String = (2..10).map(|line| format!("ZADD z {} {line}\n", 10 - line)).collect();
        let text = format!("E 1\n{zadds}E 10\nE 11\n\"\n");
        let mut input = Input::new(Box::new(std::io::Cursor::new(text)));
        let mut block = Block::default();
        block.merger = Merger::new(Merging::of([Family::Zadd]).in_chunks(3).in_groups(6));
        fill(&mut Commands::new(1000), &mut input, &mut block, true).unwrap();
        block.end_run();
        block
    }

    #[test]
    fn failures_in_a_sorted_run_are_reported_in_input_order() {
        let (mut flight, mut heard) = (Flight::new(100, false), Heard::default());
        flight.push(reordered(), &mut heard, drop);
        // Six ZADDs are sorted together, and two after them.
        flight.fail(1, b"ERR one", &mut heard, drop);
        assert_eq!((flight.done(), flight.done_in_order(), flight.last_done()), (1, 1, Some((0, 1))));
        flight.answer(2, &mut heard, drop);
        assert_eq!((flight.done(), flight.done_in_order(), flight.last_done()), (4, 1, Some((0, 1))));
        flight.fail(2, b"ERR two", &mut heard, drop);
        assert!(heard.0.is_empty());
        flight.answer(3, &mut heard, drop);
        assert_eq!((flight.done_in_order(), flight.last_done()), (7, Some((0, 7))));
        let lines = |from: u32, to: u32, error: &str| -> Vec<String> {
            (from..=to).map(|line| format!("0:{line} ZADD z {} {line}: ERR {error}", 10 - line)).collect()
        };
        assert_eq!(heard.0, [lines(2, 4, "two"), lines(5, 7, "one")].concat());
        flight.answer(6, &mut heard, drop);
        assert_eq!((heard.0.len(), flight.failed_requests(), flight.is_empty()), (7, 2, true));
        assert_eq!((&*heard.0[6], flight.last_done()), ("0:12 rejected", Some((0, 11))));
    }

    #[test]
    fn failures_in_a_sorted_run_are_reported_on_an_early_end() {
        let (mut flight, mut heard) = (Flight::new(100, false), Heard::default());
        flight.push(reordered(), &mut heard, drop);
        flight.fail(1, b"ERR one", &mut heard, drop);
        flight.answer(2, &mut heard, drop);
        assert!(heard.0.is_empty());
        flight.give_up(&mut heard);
        assert_eq!(heard.0.len(), 3);
    }

    #[test]
    fn a_stop_completes_a_sorted_run() {
        for (sent_requests, expected) in [(1, 1), (2, 7), (3, 7), (4, 9)] {
            let (mut flight, mut heard) = (Flight::new(100, false), Heard::default());
            let block = reordered();
            let bytes = block.requests(0, block.commands_of(sent_requests - 1).end).len();
            flight.push(block, &mut heard, drop);
            flight.mark_sent(bytes - 1);
            flight.stop();
            flight.mark_sent(flight.sendable().len());
            assert_eq!(flight.sent(), expected, "{sent_requests}");
        }
    }

    #[test]
    fn a_stop_completes_a_partly_sent_request() {
        let (mut flight, mut heard) = (Flight::new(100, true), Heard::default());
        for block in blocks(TEXT, 1000) {
            flight.push(block, &mut heard, drop);
        }
        let one = b"*2\r\n$1\r\nE\r\n$1\r\n0\r\n".len();
        flight.mark_sent(one + 1);
        assert_eq!(flight.sent(), 2);
        flight.stop();
        assert_eq!(flight.sendable().len(), one - 1);
        flight.mark_sent(one - 1);
        assert!(flight.sendable().is_empty() && !flight.has_landed(true) && !flight.wants_block());
        flight.answer(2, &mut heard, drop);
        assert!(flight.has_landed(false));
    }
}
