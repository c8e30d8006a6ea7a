//! A block contains some hundred kilobytes of requests, ready to send, with the details of each for error reports.
//!
//! Blocks are the unit of memory. Readers fill them, and the window sends parts of them and keeps them until their last
//! command is answered. They have no access to sockets or input formats.
//!
//! A command is an item of the input, and a request is an item for the server. A request stands for one command, or for
//! a run of merged commands. Both are numbered from 0 over the whole load, in sending order. If commands were sorted,
//! their lines are in sorted order as well.

use std::borrow::Cow;
use std::ops::Range;

use resp::num::write_u64;
use resp::parse::encode_request;

use crate::admission::{Admission, admit};
use crate::limits::{
    BLOCK_BYTES, BLOCK_BYTES_KEPT, BLOCK_COMMANDS, BLOCK_REJECTED, MERGED_BYTES, ORDERED_BYTES, ORDERED_COMMANDS_FIRST,
    SHOWN_BYTES,
};
use crate::merge::{Family, MergeRun, Merger, split_argument};

/// End of a command in its block, and the line of the input where it began.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: u32,
    /// In a sorted run, the command's position in input order. A line may contain several commands.
    place: u32,
    line: u64,
}

/// Description of an invalid line.
pub type Reason = Cow<'static, str>;

/// An invalid line or record, or an EXEC that is sent as a DISCARD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Number of the block's commands before it, including the DISCARD.
    pub before: usize,
    /// Line of the input where it begins, from 1.
    pub line: u64,
    /// Description of the problem.
    pub reason: Reason,
    /// Beginning of its text.
    pub text: Vec<u8>,
    /// Set for an EXEC: input and line of the first rejected line in its transaction. No server would execute this
    /// transaction.
    pub spoilt_by: Option<(usize, u64)>,
}

/// Sent instead of an EXEC.
const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";

/// Range of commands that became one request.
#[derive(Clone, Copy, Debug)]
struct Merged {
    from: u32,
    to: u32,
    /// Number of commands minus number of requests before it in the block.
    excess: u32,
    family: Family,
}

impl Merged {
    fn request(self) -> usize {
        (self.from - self.excess) as usize
    }

    fn excess_after(self) -> usize {
        (self.excess + self.to - self.from - 1) as usize
    }
}

/// Commands in wire format.
#[derive(Debug, Default)]
pub struct Block {
    /// Index of the input.
    pub input: usize,
    /// Number of the first command, from 0, over all inputs. Rejected lines have no number.
    pub first: u64,
    /// Number of the first request.
    pub first_request: u64,
    /// Decides which commands are merged. The reader passes it from one block to the next.
    pub merger: Merger,
    /// Number of bytes read from all inputs when the block was complete, before decompression.
    pub input_bytes: u64,
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    merged: Vec<Merged>,
    /// Command ranges of runs that were sorted.
    reordered: Vec<Range<usize>>,
    rejected: Vec<Rejected>,
    /// Memory of the rejected lines.
    rejected_bytes: usize,
    /// Indexes of the commands that begin (true) or end a transaction.
    transactions: Vec<(usize, bool)>,
}

impl Block {
    /// Empties the block for reuse.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BLOCK_BYTES_KEPT);
        self.marks.clear();
        self.merged.clear();
        self.reordered.clear();
        self.merger = Merger::default();
        self.rejected.clear();
        self.rejected_bytes = 0;
        self.transactions.clear();
    }

    /// Returns true if the block should take no more commands. The limit is higher while a run for sorting is open,
    /// because longer runs save more.
    pub fn is_full(&self) -> bool {
        let is_full = match self.merger.ordered_run() {
            Some(is_complete) => {
                self.bytes.len() >= ORDERED_BYTES || is_complete && self.marks.len() >= ORDERED_COMMANDS_FIRST as usize
            }
            None => self.bytes.len() >= BLOCK_BYTES || self.marks.len() >= BLOCK_COMMANDS,
        };
        is_full || self.rejected.len() >= BLOCK_REJECTED
    }

    /// Returns true if the block ends with a run for sorting, which benefits from more commands.
    pub fn gains_from_more(&self) -> bool {
        self.merger.ordered_run().is_some()
    }

    /// Returns true if the block has neither commands nor rejected lines.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.rejected.is_empty()
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Returns the number of the command after the last one.
    pub fn end(&self) -> u64 {
        self.first + self.marks.len() as u64
    }

    /// Returns the number of requests.
    fn request_count(&self) -> usize {
        self.marks.len() - self.merged.last().map_or(0, |last| last.excess_after())
    }

    /// Returns the number of the request after the last one.
    pub fn end_request(&self) -> u64 {
        self.first_request + self.request_count() as u64
    }

    /// Returns true if the block contains the request with this number.
    pub fn has_request(&self, request: u64) -> bool {
        (self.first_request..self.end_request()).contains(&request)
    }

    /// Returns the approximate memory of the contents, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.marks.len() * size_of::<Mark>() + self.rejected_bytes
    }

    /// Returns the approximate memory that stays allocated for reuse, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let marks_bytes = self.marks.capacity() * size_of::<Mark>();
        size_of::<Block>() + self.bytes.capacity() + marks_bytes + self.rejected.capacity() * size_of::<Rejected>()
    }

    /// Takes a command that `write` appends in wire format, or rejects the line with `write`'s reason.
    ///
    /// `write` returns the ranges of the command's name and first argument within its output.
    pub fn command<'t>(
        &mut self,
        line: u64,
        text: impl Fn() -> &'t [u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<Head, Reason>,
    ) {
        let start = self.bytes.len();
        let rejected = match write(&mut self.bytes) {
            Ok(head) => {
                let request = &self.bytes[start..];
                match admit(&request[head.name.clone()], &request[head.argument.clone()]) {
                    Admission::Plain => {
                        self.join(start, &head);
                        None
                    }
                    admission @ (Admission::Begins | Admission::Executes | Admission::Discards) => {
                        self.end_run();
                        self.begin_or_end(admission, line, text());
                        None
                    }
                    Admission::Permits => {
                        self.end_run();
                        self.merger.rights_may_differ = true;
                        None
                    }
                    Admission::Refused(reason) => Some(reason.into()),
                }
            }
            Err(reason) => Some(reason),
        };
        match rejected {
            None => self.marks.push(Mark { end: self.bytes.len() as u32, place: 0, line }),
            Some(reason) => {
                self.bytes.truncate(start);
                self.reject(line, reason, text());
            }
        }
    }

    /// Notes that the request at the block's end begins or ends a transaction. A transaction with a rejected line isn't
    /// executed, because a server that had received the line would refuse it.
    fn begin_or_end(&mut self, admission: Admission, line: u64, text: &[u8]) {
        let begins = admission == Admission::Begins;
        self.transactions.push((self.marks.len(), begins));
        self.merger.in_transaction = begins;
        // A MULTI within a transaction has no effect.
        let Some(spoilt_by) = self.merger.spoilt_by.take_if(|_| !begins) else { return };
        if admission == Admission::Executes {
            self.bytes.truncate(self.offset(self.marks.len()));
            self.bytes.extend_from_slice(DISCARD);
            // Reported at the position of its reply, after the DISCARD.
            self.push_rejected(Rejected {
                before: self.marks.len() + 1,
                line,
                reason: Reason::default(),
                text: beginning(text),
                spoilt_by: Some(spoilt_by),
            });
        }
    }

    /// Adds the request that begins at `start` to the current run, or begins another run with it.
    #[inline]
    fn join(&mut self, start: usize, head: &Head) {
        let Some(candidate) = self.merger.candidate(&self.bytes[start..], head) else {
            return self.end_run();
        };
        if self.merger.continues(&self.bytes, start, &candidate, head) {
            self.bytes.copy_within(start + candidate.adds_from.., start);
            self.bytes.truncate(self.bytes.len() - candidate.adds_from);
            if let Some(run) = &mut self.merger.run {
                run.commands += 1;
                run.args += candidate.adds;
            }
            return;
        }
        let length = self.bytes.len() - start;
        self.end_run();
        self.merger.run = Some(MergeRun {
            name: head.name.clone(),
            key: head.argument.clone(),
            start: self.bytes.len() - length,
            from: self.marks.len(),
            commands: 1,
            args: candidate.adds,
            is_ordered: self.merger.orders(&candidate),
            candidate,
        });
    }

    /// Ends the current run, if there is one. The next command isn't merged with it. A request after the run is moved
    /// accordingly.
    pub fn end_run(&mut self) {
        match self.merger.take_run() {
            Some(run) if run.is_ordered && !self.is_one_request(&run) => self.put_into_order(&run),
            Some(run) => self.merge(&run),
            None => {}
        }
    }

    /// Returns true if a run fits into one request.
    fn is_one_request(&self, run: &MergeRun) -> bool {
        run.commands <= self.merger.merging.most() && self.bytes.len() - run.start <= MERGED_BYTES
    }

    /// Converts a run to one request.
    fn merge(&mut self, run: &MergeRun) {
        let has_one_key = run.candidate.family.has_one_key();
        // MSET keeps the spelling of the SET.
        let name = run.start + run.name.start..run.start + run.name.end;
        let mut head = Vec::with_capacity(32);
        head.push(b'*');
        write_u64(&mut head, (run.args + if has_one_key { 2 } else { 1 }) as u64);
        head.extend_from_slice(b"\r\n");
        let old_end = if has_one_key {
            run.start + first_line_bytes(&self.bytes[run.start..])
        } else {
            head.push(b'$');
            write_u64(&mut head, name.len() as u64 + 1);
            head.extend_from_slice(b"\r\nM");
            head.extend_from_slice(&self.bytes[name.clone()]);
            head.extend_from_slice(b"\r\n");
            name.end + 2
        };
        // Names and counts only become longer.
        let more = head.len().saturating_sub(old_end - run.start);
        let end = self.bytes.len();
        self.bytes.resize(end + more, 0);
        self.bytes.copy_within(old_end..end, old_end + more);
        self.bytes[run.start..old_end + more].copy_from_slice(&head);
        self.marks[run.from..].iter_mut().for_each(|mark| mark.end += more as u32);
        self.note_merged(run.from..self.marks.len(), run.candidate.family);
    }

    /// Notes that these commands are one request.
    fn note_merged(&mut self, commands: Range<usize>, family: Family) {
        let excess = self.merged.last().map_or(0, |last| last.excess_after()) as u32;
        self.merged.push(Merged { from: commands.start as u32, to: commands.end as u32, excess, family });
    }

    /// Sorts a run and converts it to requests.
    fn put_into_order(&mut self, run: &MergeRun) {
        let mut sorter = std::mem::take(&mut self.merger.sorter);
        let behind = self.bytes.split_off(self.offset(self.marks.len()));
        // The arguments that the commands add follow the first command's name and key without gaps.
        let marks = self.marks[run.from..].iter().map(|mark| (mark.end as usize - run.start, mark.line));
        sorter.take(&self.bytes[run.start..], run.candidate.adds_from, marks);
        if sorter.sort() {
            self.reordered.push(run.from..self.marks.len());
        }
        self.bytes.truncate(run.start);
        self.marks.truncate(run.from);
        self.append_requests(run, sorter.bytes(), sorter.commands());
        self.bytes.extend_from_slice(&behind);
        self.merger.sorter = sorter;
    }

    /// Converts a run to requests. Each command has a range of added bytes in `old`, a position in input order, and a
    /// line.
    fn append_requests(
        &mut self,
        run: &MergeRun,
        old: &[u8],
        mut commands: impl ExactSizeIterator<Item = (Range<usize>, u32, u64)> + Clone,
    ) {
        let name_and_key = first_line_bytes(old)..run.candidate.adds_from;
        while commands.len() > 0 {
            let count = self.fitting(name_and_key.len(), commands.clone().map(|(adds, ..)| adds.len()));
            let from = self.marks.len();
            self.bytes.push(b'*');
            // A name, a key, and a score and a member for each command.
            write_u64(&mut self.bytes, 2 + 2 * count as u64);
            self.bytes.extend_from_slice(b"\r\n");
            self.bytes.extend_from_slice(&old[name_and_key.clone()]);
            for (adds, place, line) in commands.by_ref().take(count) {
                self.bytes.extend_from_slice(&old[adds]);
                self.marks.push(Mark { end: self.bytes.len() as u32, place, line });
            }
            if count > 1 {
                self.note_merged(from..from + count, run.candidate.family);
            }
        }
    }

    /// Returns how many of these commands, given by their sizes in bytes, fit into one request after its name and key;
    /// at least one.
    fn fitting(&self, name_and_key: usize, pieces: impl Iterator<Item = usize>) -> usize {
        let mut bytes = name_and_key;
        let fits = |size: &usize| {
            bytes += size;
            bytes <= MERGED_BYTES
        };
        pieces.take(self.merger.merging.most() as usize).take_while(fits).count().max(1)
    }

    /// Returns the sorted run that contains the command with this index.
    pub fn reordered(&self, index: usize) -> Option<Range<usize>> {
        let after = self.reordered.partition_point(|run| run.start <= index);
        self.reordered[..after].last().filter(|run| index < run.end).cloned()
    }

    /// Returns the sorted run that has some of its commands among the first `count` commands, and some after them.
    pub fn reordered_around(&self, count: usize) -> Option<Range<usize>> {
        self.reordered(count).filter(|run| run.start < count)
    }

    /// Removes the open run, because its final length isn't known. Returns the number of its commands.
    pub fn drop_run(&mut self) -> usize {
        let Some(run) = self.merger.run.take() else { return 0 };
        let count = self.marks.len() - run.from;
        self.bytes.truncate(run.start);
        self.marks.truncate(run.from);
        count
    }

    /// Notes an invalid line.
    pub fn reject(&mut self, line: u64, reason: impl Into<Reason>, text: &[u8]) {
        self.end_run();
        if self.merger.in_transaction {
            self.merger.spoilt_by.get_or_insert((self.input, line));
        }
        let (before, reason, text) = (self.marks.len(), reason.into(), beginning(text));
        self.push_rejected(Rejected { before, line, reason, text, spoilt_by: None });
    }

    fn push_rejected(&mut self, rejected: Rejected) {
        let reason_bytes = if let Cow::Owned(reason) = &rejected.reason { reason.capacity() } else { 0 };
        self.rejected_bytes += size_of::<Rejected>() + rejected.text.capacity() + reason_bytes;
        self.rejected.push(rejected);
    }

    /// Returns the rejected lines, in order.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// Returns the requests of a range of commands.
    pub fn requests(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.offset(from)..self.offset(to)]
    }

    /// Returns a command of the input in wire format, as it was before merging.
    pub fn command_at(&self, index: usize) -> Cow<'_, [u8]> {
        let Some(merged) = self.merged_at(index) else { return self.requests(index, index + 1).into() };
        let request = self.requests(merged.from as usize, merged.to as usize);
        let args = &request[first_line_bytes(request)..];
        let Some((name, after_name)) = split_argument(args) else { return request.into() };
        let (name, key, first) = match split_argument(after_name) {
            Some((key, after_key)) if merged.family.has_one_key() => (name, Some(key), after_key),
            // Removes the M that was added to SET.
            _ => (name.get(1..).unwrap_or(name), None, after_name),
        };
        let start = if index == merged.from as usize {
            self.offset(merged.to as usize) - first.len()
        } else {
            self.offset(index)
        };
        let mut added = &self.bytes[start..self.offset(index + 1)];
        let mut words: Vec<&[u8]> = std::iter::once(name).chain(key).collect();
        while let Some((arg, rest)) = split_argument(added) {
            words.push(arg);
            added = rest;
        }
        let mut command = Vec::new();
        encode_request(&words, &mut command);
        command.into()
    }

    /// Returns the merged request that contains a command.
    fn merged_at(&self, index: usize) -> Option<Merged> {
        let after = self.merged.partition_point(|merged| merged.from as usize <= index);
        let last = self.merged[..after].last().copied();
        last.filter(|merged| index < merged.to as usize)
    }

    /// Returns the commands of the request with this index. After the last request the range is empty.
    pub fn commands_of(&self, request: usize) -> Range<usize> {
        let after = self.merged.partition_point(|merged| merged.request() <= request);
        match self.merged[..after].last() {
            Some(merged) if merged.request() == request => merged.from as usize..merged.to as usize,
            Some(merged) => request + merged.excess_after()..request + merged.excess_after() + 1,
            None => request..request + 1,
        }
    }

    /// Returns the number of requests for the first `count` commands. The range must end at the end of a request.
    pub fn requests_of(&self, count: usize) -> usize {
        let after = self.merged.partition_point(|merged| merged.to as usize <= count);
        count - self.merged[..after].last().map_or(0, |merged| merged.excess_after())
    }

    /// Returns the largest number of commands up to `count` that consists of whole requests.
    pub fn whole_requests(&self, count: usize) -> usize {
        self.merged_at(count).map_or(count, |merged| merged.from as usize)
    }

    /// Returns a command's position in input order, within its sorted run.
    pub fn place_in_run(&self, index: usize) -> u32 {
        self.marks.get(index).map_or(0, |mark| mark.place)
    }

    /// Returns the line of the input where a command began.
    pub fn line(&self, index: usize) -> u64 {
        self.marks.get(index).map_or(0, |mark| mark.line)
    }

    /// Returns the line of the last of the first `count` commands. A sorted run at the end must be complete.
    pub fn last_line(&self, count: usize) -> Option<u64> {
        let last = count.checked_sub(1)?;
        let lines = self.reordered(last).unwrap_or(last..count).map(|index| self.line(index));
        lines.max()
    }

    /// Returns the commands in a range that begin (true) or end a transaction.
    pub fn transactions(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, bool)> {
        let from = self.transactions.partition_point(|(index, _)| *index < from);
        self.transactions[from..].iter().copied().take_while(move |(index, _)| *index < to)
    }

    /// Removes the note that the command at `index` begins or discards a transaction, because the server refused it.
    /// EXEC ends a transaction even if it is refused.
    pub fn forget_effect(&mut self, index: usize) {
        self.transactions.retain(|(at, begins)| *at != index || !begins);
        self.rejected.retain(|line| line.spoilt_by.is_none() || line.before != index + 1);
    }

    /// Returns the number of commands with requests that begin within the first `bytes` bytes.
    pub fn begun_by(&self, bytes: usize) -> usize {
        let ended_before = self.marks.partition_point(|mark| (mark.end as usize) < bytes);
        let begun = if bytes == 0 { 0 } else { (ended_before + 1).min(self.marks.len()) };
        let last = begun.checked_sub(1).and_then(|last| self.merged_at(last));
        last.map_or(begun, |merged| merged.to as usize)
    }

    fn offset(&self, index: usize) -> usize {
        let before = index.checked_sub(1).and_then(|last| self.marks.get(last));
        before.map_or(0, |mark| mark.end as usize)
    }
}

/// Returns the part of a line that is kept for reports.
fn beginning(text: &[u8]) -> Vec<u8> {
    text[..text.len().min(SHOWN_BYTES + 1)].to_vec()
}

/// Returns the length of a request's first line, which contains the number of arguments.
fn first_line_bytes(request: &[u8]) -> usize {
    memchr::memchr(b'\n', request).map_or(request.len(), |end| end + 1)
}

/// Ranges of a request's name and first argument, relative to its start. A missing argument is an empty range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The command's name.
    pub name: Range<usize>,
    /// The argument after it.
    pub argument: Range<usize>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::format::{commands::Commands, fill, testing::Pieces};
    use crate::input::Input;
    use crate::limits::ORDERED_CHUNKS;
    use crate::merge::Merging;
    use proptest::prelude::*;

    /// Returns the blocks of `text`, read in pieces of `size` bytes.
    fn blocks(text: &str, merging: Merging, size: usize, full: bool) -> Vec<Block> {
        let mut input = Input::new(Box::new(Pieces { rest: text.as_bytes().to_vec().into(), size }));
        let mut format = Commands::new(100_000);
        let (mut blocks, mut merger): (Vec<Block>, _) = (Vec::new(), Merger::new(merging));
        loop {
            let mut block = Block::default();
            let last = blocks.last();
            (block.first, block.first_request) = (last.map_or(0, Block::end), last.map_or(0, Block::end_request));
            block.merger = merger;
            let more = fill(&mut format, &mut input, &mut block, full).unwrap();
            block.end_run();
            merger = std::mem::take(&mut block.merger);
            if !more {
                return blocks;
            }
            blocks.push(block);
        }
    }

    fn all(most: u64) -> Merging {
        Merging::of(Family::ALL).in_chunks(most).in_order()
    }

    /// Returns the requests in readable form.
    fn sent(block: &Block) -> Vec<String> {
        let count = block.request_count();
        let requests = (0..count).map(|request| {
            let commands = block.commands_of(request);
            crate::shown::command(block.requests(commands.start, commands.end))
        });
        requests.collect()
    }

    fn check(text: &str, most: u64, expected: &[&str]) {
        let blocks = blocks(text, all(most), 1 << 20, false);
        assert_eq!(blocks.iter().flat_map(sent).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn rejected_lines_count_as_memory() {
        let mut block = Block::default();
        for line in 1..=1_000 {
            block.reject(line, "fixed", &[b'x'; 100]);
            block.reject(line, format!("{line:50}"), b"");
        }
        assert!(block.memory_bytes() >= 1_000 * (100 + 50), "{}", block.memory_bytes());
        block.clear();
        assert_eq!(block.memory_bytes(), 0);
        assert!(block.kept_bytes() >= 2_000 * size_of::<Rejected>());
    }

    #[test]
    fn runs_become_one() {
        check("SET a 1\nSET b 2\nSET a 3\n", 10, &["MSET a 1 b 2 a 3"]);
        check("set a 1\nset b 2\nSET c 3\nSET d 4\n", 10, &["Mset a 1 b 2", "MSET c 3 d 4"]);
        check("SET a 1\nSET b 2\nSET c 3\n", 2, &["MSET a 1 b 2", "SET c 3"]);
        check("HSET h f 1\nHSET h g 2 f 3\nHSET i f 1\n", 10, &["HSET h f 1 g 2 f 3", "HSET i f 1"]);
        check("ZADD z 1 a\n# a remark\n\nZADD z -2.5 b 3 c\n", 10, &["ZADD z 1 a -2.5 b 3 c"]);
        check("RPUSH l a\nRPUSH l b c\nLPUSH l a\nLPUSH l b\n", 10, &["RPUSH l a b c", "LPUSH l a b"]);
        check("SADD s a\n*3\r\n$4\r\nSADD\r\n$1\r\ns\r\n$1\r\nb\r\nSADD s \"c d\"\n", 10, &["SADD s a b \"c d\""]);
    }

    #[test]
    fn commands_are_not_merged_if_the_effect_may_differ() {
        for text in [
            "SET a 1 EX 9\nSET b 2 NX\n",
            "SET a\nSET b\n",
            "ZADD z NX 1 a\nZADD z NX 2 b\n",
            "ZADD z 1e3 a\nZADD z inf b\n",
            "ZADD z 1 a b\nZADD z 2 b c\n",
            "HSET h f\nHSET h g\n",
            "SADD s\nSADD s\n",
            "GET a\nGET b\n",
            "SET a 1\nSELECT 2\nSET b 2\n",
            "SET a 1\nselect x\nSET b 2\n",
            "ZADD z 2 a\nSELECT 2 x\nZADD z 1 b\n",
            "HSET h f 1\nSELECT 99\nHSET h g 1\n",
            "MULTI\nSET a 1\nSET b 2\nEXEC\n",
            "SET a 1\nINCR n\nSET b 1\n",
            "MSET a 1\nMSET b 2\n",
            "SET a 1\nACL SETUSER w ~a\nSET b 2\nSET c 3\n",
            "MULTI\nacl setuser w ~a\nEXEC\nSET b 2\nSET c 3\n",
        ] {
            check(text, 10, &text.lines().collect::<Vec<_>>());
        }
        check("ACL LOAD\nSET a 1\nSADD s a\nSADD s b\n", 10, &["ACL LOAD", "SET a 1", "SADD s a b"]);
        check(
            "SET a 1\n\"\nSET b 2\nMULTI\nEXEC\nSET c 1\nSET d 1\n",
            10,
            &["SET a 1", "SET b 2", "MULTI", "EXEC", "MSET c 1 d 1"],
        );
        let large = "x".repeat(crate::limits::MERGED_BYTES / 2);
        check(&format!("SET a {large}\nSET b {large}\n").replace(&large, "v"), 10, &["MSET a v b v"]);
        let blocks = blocks(&format!("SET a {large}\nSET b {large}\nSET c 1\n"), all(10), 1 << 20, false);
        assert_eq!((blocks[0].len(), blocks[0].request_count()), (3, 2));
    }

    fn check_ordered(text: &str, chunk: u64, expected: &[&str]) {
        let blocks = blocks(text, Merging::of(Family::ALL).in_chunks(chunk), 1 << 20, false);
        assert_eq!(blocks.iter().flat_map(sent).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn zadds_are_sorted() {
        check_ordered("ZADD z 3 a\nZADD z 1 b\nZADD z 2 c\n", 2, &["ZADD z 1 b 2 c", "ZADD z 3 a"]);
        check_ordered("zadd z 3 a\nzadd z 1 b\nzadd z 2 c\nGET z\n", 2, &["zadd z 1 b 2 c", "zadd z 3 a", "GET z"]);
        // At most six chunks are sorted together.
        let text: String = (0..13).map(|n| format!("ZADD z {} m{n}\n", 20 - n)).collect();
        let pairs = (0..6).map(|n| format!("ZADD z {} m{} {} m{}", 9 + 2 * n, 11 - 2 * n, 10 + 2 * n, 10 - 2 * n));
        let expected: Vec<String> = pairs.chain(["ZADD z 8 m12".to_owned()]).collect();
        check_ordered(&text, 2, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        // Within one request the server is fast in any order.
        check_ordered("ZADD z 3 a\nZADD z 1 b\nZADD z 2 c\n", 10, &["ZADD z 3 a 1 b 2 c"]);
    }

    #[test]
    fn zadds_with_order_dependent_effects_are_not_sorted() {
        check_ordered("ZADD z 3 a\nZADD z 1 b\nZADD z 2 a\nZADD z 0 c\n", 2, &["ZADD z 1 b 3 a", "ZADD z 0 c 2 a"]);
        check_ordered("ZADD z 3 a\nZADD y 1 a\nZADD z 2 b\n", 2, &["ZADD z 3 a", "ZADD y 1 a", "ZADD z 2 b"]);
        check_ordered(
            "ZADD z 3 a\nZADD z 1 b\nZADD z 2 d\nINCR n\nZADD z 0 c\n",
            2,
            &["ZADD z 1 b 2 d", "ZADD z 3 a", "INCR n", "ZADD z 0 c"],
        );
        check_ordered("ZADD z 3 a\nSELECT 1\nZADD z 1 b\n", 2, &["ZADD z 3 a", "SELECT 1", "ZADD z 1 b"]);
        // Commands with several members are merged in input order.
        check_ordered("ZADD z 3 a 2 b\nZADD z 1 c\n", 10, &["ZADD z 3 a 2 b 1 c"]);
        check_ordered("ZADD z 3 a\nZADD z 1 c\nZADD z 2 d 0 e\n", 10, &["ZADD z 3 a 1 c", "ZADD z 2 d 0 e"]);
        check_ordered("HSET z 3 a\nHSET z 1 b\nHSET z 0 b\n", 2, &["HSET z 3 a 1 b", "HSET z 0 b"]);
        check_ordered("ZADD z 3 a\nZADD z GT 1 b\n", 2, &["ZADD z 3 a", "ZADD z GT 1 b"]);
    }

    #[test]
    fn a_long_run_is_several_requests_in_bounded_memory() {
        let lines = |count: usize, width: usize| -> String {
            (0..count).map(|n| format!("ZADD z {} {n:0width$}\n", n * 7919 % count)).collect()
        };
        let all = Merging::of(Family::ALL);
        let blocks = blocks(&lines(200_000, 6), all, 1 << 20, true);
        let lengths: Vec<usize> = blocks.iter().map(Block::len).collect();
        assert_eq!(lengths, [2_500, 5_000, 10_000, 20_000, 40_000, 60_000, 60_000, 2_500]);
        assert!(blocks[0].commands_of(0).len() == usize::from(crate::limits::MERGED_COMMANDS));
        for large in [1_000, 5_000] {
            let blocks = self::blocks(&lines(3_000, large), all, 1 << 20, true);
            for block in &blocks {
                let largest = (0..block.request_count()).map(|request| block.commands_of(request));
                let largest = largest.map(|commands| block.requests(commands.start, commands.end).len()).max();
                assert!(largest.unwrap() <= MERGED_BYTES + 50, "{largest:?}");
                assert!(block.requests(0, block.len()).len() <= ORDERED_BYTES + 2 * MERGED_BYTES);
            }
        }
    }

    /// Lines with many similarities.
    fn lines() -> impl Strategy<Value = Vec<String>> {
        let key = || prop_oneof![Just("a"), Just("b")];
        let line = prop_oneof![
            6 => (key(), 0..100).prop_map(|(key, value)| format!("SET {key} {value}")),
            1 => (key(), 0..100).prop_map(|(key, value)| format!("SET {key} \"{value} x\"")),
            6 => (0..100, key()).prop_map(|(score, member)| format!("ZADD z {score} {member}")),
            2 => (0..10).prop_map(|element| format!("RPUSH l {element} x")),
            1 => Just("SELECT 1".to_owned()),
            1 => Just("MULTI".to_owned()),
            1 => Just("EXEC".to_owned()),
            1 => Just("\"".to_owned()),
            1 => Just("INCR n".to_owned()),
        ];
        proptest::collection::vec(line, 1..200)
    }

    /// Returns the valid lines with their numbers, and the text that is sent for each.
    fn good(lines: &[String]) -> Vec<(u64, &str)> {
        let (mut in_transaction, mut is_spoilt, mut good) = (false, false, Vec::new());
        for (number, line) in (1..).zip(lines) {
            let sent = if line == "EXEC" && is_spoilt { "DISCARD" } else { line };
            match &**line {
                "MULTI" => in_transaction = true,
                "EXEC" => (in_transaction, is_spoilt) = (false, false),
                "\"" => is_spoilt |= in_transaction,
                _ => {}
            }
            if line != "\"" {
                good.push((number, sent));
            }
        }
        good
    }

    /// Returns the effect of the lines: the sorted set of the ZADDs, and the other lines in order.
    fn effect<'l>(lines: impl Iterator<Item = &'l str>) -> (BTreeMap<String, String>, Vec<String>) {
        let (mut members, mut others) = (BTreeMap::new(), Vec::new());
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["ZADD", _, ref pairs @ ..] => {
                    members.extend(pairs.chunks(2).map(|pair| (pair[1].to_owned(), pair[0].to_owned())));
                }
                _ => others.push(format!("{line} {members:?}")),
            }
        }
        (members, others)
    }

    proptest! {
        #[test]
        fn sorting_changes_nothing_outside_a_run(
            lines in proptest::collection::vec(
                prop_oneof![
                    20 => (-9..9, 0..30).prop_map(|(score, member)| format!("ZADD z {score} {member}")),
                    1 => (0..9, 0..9).prop_map(|(score, member)| format!("ZADD z 7 {score} {score} {member}")),
                    1 => Just("GET a".to_owned()),
                    1 => Just("\"".to_owned()),
                ],
                1..200,
            ),
            size in 1_usize..3_000,
            chunk in 2_u64..40,
        ) {
            let text = lines.join("\n");
            let merging = Merging::of(Family::ALL).in_chunks(chunk);
            let good: Vec<&String> = lines.iter().filter(|line| *line != "\"").collect();
            for full in [false, true] {
                let blocks = blocks(&text, merging, size, full);
                let sent: Vec<String> = blocks.iter().flat_map(sent).collect();
                prop_assert_eq!(effect(sent.iter().map(String::as_str)), effect(good.iter().map(|line| line.as_str())));
                let mut place = 0;
                for block in &blocks {
                    let mut index = 0;
                    while index < block.len() {
                        let run = block.reordered(index).unwrap_or(index..index + 1);
                        prop_assert!(run.start == index && run.len() as u64 <= ORDERED_CHUNKS * chunk);
                        prop_assert_eq!(block.reordered_around(run.start), None);
                        prop_assert_eq!(block.reordered_around(run.end), None);
                        let mut said: Vec<_> = run.clone().map(|at| (block.line(at), at)).collect();
                        said.sort();
                        for (line, at) in said {
                            prop_assert_eq!(&crate::shown::command(&block.command_at(at)), good[place]);
                            prop_assert_eq!(&lines[line as usize - 1], good[place]);
                            place += 1;
                        }
                        prop_assert_eq!(block.last_line(run.end), run.clone().map(|at| block.line(at)).max());
                        index = run.end;
                    }
                }
                prop_assert_eq!(place, good.len());
                if full {
                    let other = self::blocks(&text, merging, 1 << 20, full);
                    prop_assert_eq!(sent, other.iter().flat_map(self::sent).collect::<Vec<_>>());
                }
            }
        }

        #[test]
        fn commands_keep_their_places(lines in lines(), size in 1_usize..3_000, most in 2_u64..9) {
            let text = lines.join("\n");
            let good = good(&lines);
            for full in [false, true] {
                let blocks = blocks(&text, all(most), size, full);
                let mut place = 0;
                for block in &blocks {
                    prop_assert_eq!(block.first, place as u64);
                    for index in 0..block.len() {
                        let (number, line) = good[place];
                        prop_assert_eq!(crate::shown::command(&block.command_at(index)), line);
                        prop_assert_eq!(block.line(index), number);
                        place += 1;
                    }
                    // Requests partition the commands.
                    let mut next = 0;
                    for request in 0..block.request_count() {
                        let commands = block.commands_of(request);
                        prop_assert_eq!((commands.start, block.requests_of(commands.start)), (next, request));
                        prop_assert_eq!(block.whole_requests(commands.end - 1), commands.start);
                        next = commands.end;
                        let bytes = block.requests(0, commands.start).len();
                        prop_assert_eq!(block.begun_by(bytes), commands.start);
                        prop_assert_eq!(block.begun_by(bytes + 1), commands.end);
                    }
                    prop_assert_eq!((next, block.whole_requests(next)), (block.len(), next));
                }
                prop_assert_eq!(place, good.len());
                if full {
                    // Independent of the sizes of reads.
                    let other = self::blocks(&text, all(most), 1 << 20, full);
                    let other: Vec<_> = other.iter().flat_map(sent).collect();
                    prop_assert_eq!(blocks.iter().flat_map(sent).collect::<Vec<_>>(), other);
                }
            }
        }
    }
}
