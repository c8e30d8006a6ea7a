//! A client that writes under a pipeline token, resumes after a broken connection, and records the promises that it
//! gets.
//!
//! Each write pushes an element to the client's list, in order. So the list shows which writes exist: each exactly
//! once, or, after a failover, a prefix of them.

use std::collections::VecDeque;

use engine::pipelines::FAILURES_MAX;
use engine::testing::request;
use store::random::Random;

use crate::Wrong;
use crate::network::{Network, WireId};
use crate::reply::{SimReply, parse_reply};

/// True if a replica that becomes the primary knows the tokens of its predecessor.
pub const TOKENS_REACH_REPLICAS: bool = true;
/// Most writes in flight.
const UNANSWERED_MAX: usize = 12;
/// The script that pushes and counts.
const SCRIPT: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])";

/// The kind of an operation, which consists of one or several requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OpKind {
    Push,
    Transaction,
    Script,
    Noise,
    /// Waits until all replicas have the previous writes.
    Wait,
    /// Reads the list.
    Look,
}

struct Op {
    kind: OpKind,
    bytes: Vec<u8>,
    requests: usize,
    elements: Vec<String>,
    /// True if the operation was refused, so that it has no effect.
    is_refused: bool,
    /// The times, in microseconds, since when the operation must exist while the timeline is the same (`kept`), and in
    /// any case (`promised`).
    kept_us: u64,
    promised_us: u64,
}

impl Op {
    /// The elements that the operation has pushed.
    fn pushed(&self) -> &[String] {
        if self.is_refused { &[] } else { &self.elements }
    }
}

/// The connection of a client.
#[derive(Clone, Copy, Debug)]
struct Attachment {
    wire: WireId,
    process: usize,
    line: u64,
    losses: u64,
}

/// The state of a writer's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriterStage {
    Away,
    /// RESUME was sent.
    Resumes,
    /// The list is being read, since no token tells the writer's progress.
    Reads,
    /// START was sent.
    Starts,
    Writes,
}

/// A client's view of the world.
pub struct ClientTurn<'t> {
    /// The links.
    pub network: &'t mut Network,
    /// The simulated time, in microseconds.
    pub now_us: u64,
    /// The primary, if it is running.
    pub primary: Option<usize>,
    /// The number of the timeline: changes whenever writes that were acknowledged without WAIT may be lost.
    pub line: u64,
    /// Changes whenever writes that WAIT has acknowledged may be lost, because the primary restarts from an older file.
    pub losses: u64,
    /// True while a failover is in progress, so that the primary may be a replica by now.
    pub hands_over: bool,
    /// True if clients begin no new operations.
    pub finishes: bool,
    /// True if a reply is only sent once all replicas have the write.
    pub promises_all: bool,
}

impl ClientTurn<'_> {
    /// Returns true if the client's process is certainly the primary, and has been since the client connected.
    fn is_primary(&self, attachment: Attachment) -> bool {
        self.line == attachment.line
            && self.primary.is_none_or(|primary| primary == attachment.process)
            && !self.hands_over
    }
}

/// See the module's documentation.
pub struct WriterClient {
    number: usize,
    random: Random,
    stage: WriterStage,
    attachment: Option<Attachment>,
    history: Vec<Op>,
    token: Option<String>,
    /// The position in the history at which the token begins to count.
    token_base: usize,
    /// The timeline in which the token was last known.
    token_line: u64,
    tokens: u64,
    epoch: u64,
    /// The position in the history up to which WAIT on this connection covers nothing.
    attachment_base: usize,
    /// Positions in the history: sent on this connection, and answered.
    sent: usize,
    answered: usize,
    /// True if a promise was made since the last call of [`WriterClient::take_promise`].
    has_promise: bool,
    /// True if the primary has answered since the last call of [`WriterClient::take_answer`].
    has_answer: bool,
    /// Positions in the history up to which operations must exist in any case, and while the timeline is the same.
    promised: usize,
    kept: usize,
    kept_line: u64,
    /// Replies of the first operation without all its replies.
    replies: Vec<SimReply>,
    /// True if one of these replies was an error, and true if the connection is given up after an error.
    is_refused: bool,
    leaves: bool,
    read: Vec<u8>,
    retry_us: u64,
    /// True if the last read covered the whole history.
    has_looked: bool,
    /// All elements that the writer has ever pushed.
    pub ever: std::collections::BTreeSet<String>,
    trace: VecDeque<String>,
}

impl WriterClient {
    /// Returns a client that has not written yet.
    #[must_use]
    pub fn new(number: usize, seed: u64) -> WriterClient {
        WriterClient {
            number,
            random: Random::new(seed),
            stage: WriterStage::Away,
            attachment: None,
            history: Vec::new(),
            token: None,
            token_base: 0,
            token_line: 0,
            tokens: 0,
            epoch: 0,
            attachment_base: 0,
            sent: 0,
            answered: 0,
            has_promise: false,
            has_answer: false,
            promised: 0,
            kept: 0,
            kept_line: 0,
            replies: Vec::new(),
            is_refused: false,
            leaves: false,
            read: Vec::new(),
            retry_us: 0,
            has_looked: false,
            ever: std::collections::BTreeSet::new(),
            trace: VecDeque::new(),
        }
    }

    /// Returns true if all writes are answered and the list was checked.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.has_looked && self.stage == WriterStage::Writes && self.answered == self.history.len()
    }

    /// Number of answered operations.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// Returns true if WAIT has acknowledged writes since the last call.
    pub fn take_promise(&mut self) -> bool {
        std::mem::take(&mut self.has_promise)
    }

    /// Returns true if the primary has answered since the last call.
    pub fn take_answer(&mut self) -> bool {
        std::mem::take(&mut self.has_answer)
    }

    /// Records that the primary was killed and restarts by itself. Only operations that were promised, or answered in
    /// timeline `line`, before `until_us` must exist.
    pub fn lose_all_since(&mut self, until_us: u64, line: u64) {
        let kept = if self.kept_line == line { self.kept } else { 0 };
        let is_there = |(index, op): &(usize, &Op)| {
            (*index < kept && op.kept_us < until_us) || (*index < self.promised && op.promised_us < until_us)
        };
        self.promised = self.history.iter().enumerate().take_while(is_there).count();
        self.kept = self.promised;
    }

    /// Records that the answered operations must exist while the timeline is the same.
    fn keep(&mut self, line: u64, now_us: u64) {
        let before = if self.kept_line == line { self.kept } else { 0 };
        (self.kept, self.kept_line) = (self.written(), line);
        self.history[..self.kept].iter_mut().skip(before).for_each(|op| op.kept_us = now_us);
    }

    /// Records that the answered operations must exist in any case.
    fn promise(&mut self, now_us: u64) {
        let written = self.written();
        let before = std::mem::replace(&mut self.promised, written);
        self.history[..self.promised].iter_mut().skip(before).for_each(|op| op.promised_us = now_us);
        self.has_promise = true;
    }

    /// Describes the last steps, for the report of a failure.
    #[must_use]
    pub fn story(&self) -> String {
        let lines: Vec<&str> = self.trace.iter().map(String::as_str).collect();
        format!("writer {}: {}", self.number, lines.join("; "))
    }

    fn note(&mut self, text: String) {
        if self.trace.len() >= 12 {
            self.trace.pop_front();
        }
        self.trace.push_back(text);
    }

    /// Runs a step: reads replies, and sends more.
    ///
    /// # Errors
    /// A broken promise.
    pub fn step(&mut self, turn: &mut ClientTurn<'_>) -> Result<(), Wrong> {
        let Some(attachment) = self.attachment else {
            self.connect(turn);
            return Ok(());
        };
        let (bytes, has_ended) = turn.network.receive(attachment.wire, 0, turn.now_us);
        self.read.extend_from_slice(&bytes);
        while let Some((reply, len)) = parse_reply(&self.read) {
            self.read.drain(..len);
            self.take(reply, attachment, turn)?;
            if self.attachment.is_none() {
                return Ok(());
            }
        }
        let is_old = turn.primary != Some(attachment.process) || (turn.line != attachment.line && turn.finishes);
        let is_elsewhere = is_old && (turn.finishes || self.random.below(40) == 0);
        if has_ended || is_elsewhere || (self.leaves && self.answered == self.sent) {
            self.leave(turn);
        } else if self.stage == WriterStage::Writes && !self.leaves {
            self.write(attachment, turn);
        }
        Ok(())
    }

    fn connect(&mut self, turn: &mut ClientTurn<'_>) {
        let Some(process) = turn.primary.filter(|_| turn.now_us >= self.retry_us) else { return };
        let Some(wire) = turn.network.open([None, Some(process)]) else { return };
        self.attachment = Some(Attachment { wire, process, line: turn.line, losses: turn.losses });
        self.read.clear();
        self.replies.clear();
        (self.is_refused, self.leaves) = (false, false);
        if self.token_line != turn.line && !TOKENS_REACH_REPLICAS {
            self.token = None;
        }
        let first = match &self.token {
            Some(token) => {
                self.stage = WriterStage::Resumes;
                request(&["PIPELINE", "RESUME", token])
            }
            None => self.look_anew(),
        };
        turn.network.send(wire, 0, &first, turn.now_us);
    }

    fn look_anew(&mut self) -> Vec<u8> {
        self.stage = WriterStage::Reads;
        request(&["LRANGE", &self.list(), "0", "-1"])
    }

    fn leave(&mut self, turn: &mut ClientTurn<'_>) {
        if let Some(attachment) = self.attachment.take() {
            turn.network.close(attachment.wire, 0);
        }
        self.stage = WriterStage::Away;
        self.retry_us = turn.now_us + self.random.below(30_000) as u64;
        self.has_looked = false;
    }

    /// Returns the position behind the last answered operation that writes. Later reads need no promise.
    fn written(&self) -> usize {
        let answered = self.history.get(..self.answered).unwrap_or_default();
        answered.iter().rposition(|op| !op.elements.is_empty()).map_or(0, |last| last + 1)
    }

    fn list(&self) -> String {
        format!("list:{}", self.number)
    }

    fn take(&mut self, reply: SimReply, attachment: Attachment, turn: &mut ClientTurn<'_>) -> Result<(), Wrong> {
        match self.stage {
            WriterStage::Away => Ok(()),
            WriterStage::Resumes => self.resumed(&reply, attachment, turn),
            WriterStage::Reads => self.has_read(&reply, attachment, turn),
            WriterStage::Starts => {
                if let SimReply::Error(why) = &reply {
                    return self.refused(&why.clone(), attachment, turn);
                }
                (self.token_base, self.token_line) = (self.history.len(), attachment.line);
                self.attachment_base = self.history.len();
                (self.sent, self.answered) = (self.history.len(), self.history.len());
                self.stage = WriterStage::Writes;
                Ok(())
            }
            WriterStage::Writes => self.answer(reply, attachment, turn),
        }
    }

    /// Handles a refusal. It is an error unless the process may not be the primary any more, or its disk fails.
    fn refused(&mut self, why: &str, attachment: Attachment, turn: &mut ClientTurn<'_>) -> Result<(), Wrong> {
        if turn.is_primary(attachment) && !is_of_disk(why) {
            return Err(format!("writer {}: process {} refuses: {why}", self.number, attachment.process));
        }
        self.note(format!("refused: {why}"));
        self.token = None;
        self.leave(turn);
        Ok(())
    }

    fn resumed(&mut self, reply: &SimReply, attachment: Attachment, turn: &mut ClientTurn<'_>) -> Result<(), Wrong> {
        if let SimReply::Error(why) = reply {
            if self.token_line == turn.line && turn.is_primary(attachment) {
                return Err(format!("writer {}: its token is lost: {why}", self.number));
            }
            if why.starts_with("READONLY") || why.starts_with("LOADING") {
                self.leave(turn);
                return Ok(());
            }
            self.token = None;
            let look = self.look_anew();
            turn.network.send(attachment.wire, 0, &look, turn.now_us);
            return Ok(());
        }
        let executed = reply.items().get(1).map_or(-1, SimReply::number);
        let (mut at, mut counted) = (self.token_base, 0);
        while at < self.history.len() && counted < executed {
            counted += self.history[at].requests as i64;
            at += 1;
        }
        self.note(format!("resumed at {at} of {} answered, {} sent", self.answered, self.sent));
        // The operations that were sent to an earlier primary may be more than those of the last connection.
        if counted != executed || (at > self.sent && self.token_line == turn.line) {
            return Err(format!(
                "writer {}: its token counts {executed} commands, which is not the end of an operation that was sent: {counted} at {at} of {}, \
                 behind {:?}",
                self.number,
                self.sent,
                at.checked_sub(1).and_then(|last| self.history.get(last)).map(|op| (
                    op.kind,
                    op.requests,
                    op.is_refused
                ))
            ));
        }
        let least = if self.kept_line == turn.line { self.kept } else { self.promised };
        if at < least.max(self.promised) {
            return Err(format!("writer {}: {least} operations were acknowledged, the token counts {at}", self.number));
        }
        if reply.items().get(3).map_or(0, SimReply::number) > FAILURES_MAX as i64 {
            // RESUME does not list the failed commands if there are too many, usually because the disk fails.
            self.token = None;
            self.leave(turn);
            return Ok(());
        }
        self.token_line = attachment.line;
        self.note_failures(reply)?;
        (self.attachment_base, self.sent, self.answered) = (0, at, at);
        self.stage = WriterStage::Writes;
        // Operations behind this position are sent again.
        self.write(attachment, turn);
        Ok(())
    }

    /// Marks the operations that the reply to RESUME lists as refused.
    fn note_failures(&mut self, reply: &SimReply) -> Result<(), Wrong> {
        let failed = reply.items().get(3).map_or(0, SimReply::number);
        let positions = reply.items().get(5).map_or(&[][..], SimReply::items);
        let positions: Vec<i64> =
            positions.iter().filter_map(|one| one.items().first()).map(SimReply::number).collect();
        if failed != positions.len() as i64 {
            return Err(format!("writer {}: {failed} of its commands have failed, at {positions:?}", self.number));
        }
        let mut position = 0;
        for op in &mut self.history[self.token_base..] {
            let own = position + 1..=position + op.requests as i64;
            op.is_refused = positions.iter().any(|position| own.contains(position));
            position += op.requests as i64;
        }
        Ok(())
    }

    /// Replaces the history by the operations that the list shows.
    fn has_read(&mut self, reply: &SimReply, attachment: Attachment, turn: &mut ClientTurn<'_>) -> Result<(), Wrong> {
        if let SimReply::Error(why) = reply {
            return self.refused(&why.clone(), attachment, turn);
        }
        let found: Vec<&str> = reply.items().iter().map(SimReply::text).collect();
        let least = if self.kept_line == turn.line { self.kept.max(self.promised) } else { self.promised };
        let (mut at, mut elements) = (0, 0);
        for (index, op) in self.history.iter_mut().enumerate() {
            let rest = found.get(elements..).unwrap_or_default();
            let is_there =
                rest.len() >= op.elements.len() && op.elements.iter().zip(rest).all(|(own, found)| own == found);
            if is_there && !op.elements.is_empty() {
                elements += op.elements.len();
                (at, op.is_refused) = (index + 1, false);
            } else if !op.elements.is_empty() {
                if index < least && !op.is_refused {
                    return Err(format!(
                        "writer {}: process {} lacks operation {index} ({:?}), though {least} were acknowledged ({} by WAIT): {found:?}",
                        self.number, attachment.process, op.elements, self.promised
                    ));
                }
                // The operation is missing and was not promised: it was refused, or lost with the former primary.
                op.is_refused = true;
            }
        }
        if elements != found.len() {
            return Err(format!(
                "writer {}: process {} has elements that were not written in this order: {found:?}; the first {elements} agree",
                self.number, attachment.process
            ));
        }
        at = at.max(least);
        self.note(format!("read {} elements, {at} operations of {least}", found.len()));
        self.history.truncate(at);
        (self.promised, self.kept) = (self.promised.min(at), self.kept.min(at));
        self.epoch += 1;
        self.tokens += 1;
        let token = format!("token:{}:{}", self.number, self.tokens);
        turn.network.send(attachment.wire, 0, &request(&["PIPELINE", "START", &token]), turn.now_us);
        self.token = Some(token);
        // The START may have been executed although the reply is lost. Until the reply arrives, the token need not
        // exist.
        (self.token_base, self.token_line) = (self.history.len(), u64::MAX);
        (self.sent, self.answered) = (self.history.len(), self.history.len());
        self.stage = WriterStage::Starts;
        Ok(())
    }

    fn write(&mut self, attachment: Attachment, turn: &mut ClientTurn<'_>) {
        let mut bytes = Vec::new();
        while self.sent < self.history.len() && self.sent - self.answered < UNANSWERED_MAX {
            bytes.extend_from_slice(&self.history[self.sent].bytes);
            self.sent += 1;
        }
        let is_caught_up = self.sent == self.history.len();
        if is_caught_up && turn.finishes && self.answered == self.sent && !self.has_looked {
            let op = self.operation(OpKind::Look);
            bytes.extend_from_slice(&op.bytes);
            self.history.push(op);
            self.sent += 1;
        }
        if is_caught_up && !turn.finishes && self.random.below(3) == 0 {
            for _ in 0..1 + self.random.below(5) {
                if self.sent - self.answered >= UNANSWERED_MAX {
                    break;
                }
                let kind = self.kind();
                let op = self.operation(kind);
                bytes.extend_from_slice(&op.bytes);
                self.history.push(op);
                self.sent += 1;
            }
        }
        turn.network.send(attachment.wire, 0, &bytes, turn.now_us);
    }

    fn kind(&mut self) -> OpKind {
        match self.random.below(16) {
            0..=3 => OpKind::Push,
            4..=6 => OpKind::Transaction,
            7 => OpKind::Script,
            8 => OpKind::Wait,
            9 => OpKind::Look,
            _ => OpKind::Noise,
        }
    }

    fn element(&mut self, suffix: &str) -> String {
        let number = self.history.iter().map(|op| op.elements.len()).sum::<usize>();
        let element = format!("{number}-{}-{}{suffix}", self.epoch, self.random.below(1000));
        self.ever.insert(element.clone());
        element
    }

    fn operation(&mut self, kind: OpKind) -> Op {
        let (list, count) = (self.list(), format!("count:{}", self.number));
        let mut op = Op {
            kind,
            bytes: Vec::new(),
            requests: 0,
            elements: Vec::new(),
            is_refused: false,
            kept_us: 0,
            promised_us: 0,
        };
        let say = |words: &[&str], requests: &mut usize| {
            *requests += 1;
            request(words)
        };
        match kind {
            OpKind::Push => {
                let element = self.element("");
                op.bytes = say(&["RPUSH", &list, &element], &mut op.requests);
                op.elements.push(element);
            }
            OpKind::Transaction => {
                let first = self.element("+");
                let second = format!("{first}'+");
                self.ever.insert(second.clone());
                let commands: [&[&str]; 5] = [
                    &["MULTI"],
                    &["RPUSH", &list, &first],
                    &["RPUSH", &list, &second],
                    &["INCRBY", &count, "2"],
                    &["EXEC"],
                ];
                for words in commands {
                    op.bytes.extend(say(words, &mut op.requests));
                }
                op.elements = vec![first, second];
            }
            OpKind::Script => {
                let element = self.element("+");
                op.bytes = say(&["EVAL", SCRIPT, "2", &list, &count, &element], &mut op.requests);
                op.elements.push(element);
            }
            OpKind::Wait => op.bytes = say(&["WAIT", "2", "60"], &mut op.requests),
            OpKind::Look => {
                let commands: [&[&str]; 4] = [&["MULTI"], &["LRANGE", &list, "0", "-1"], &["GET", &count], &["EXEC"]];
                for words in commands {
                    op.bytes.extend(say(words, &mut op.requests));
                }
            }
            OpKind::Noise => {
                let elsewhere = self.random.below(4) == 0;
                // The transaction counts as one operation, and the next operation runs in its own database.
                if elsewhere {
                    op.bytes.extend(say(&["MULTI"], &mut op.requests));
                    op.bytes.extend(say(&["SELECT", "1"], &mut op.requests));
                }
                let words = noise(&mut self.random);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                op.bytes.extend(say(&words, &mut op.requests));
                if elsewhere {
                    op.bytes.extend(say(&["SELECT", "0"], &mut op.requests));
                    op.bytes.extend(say(&["EXEC"], &mut op.requests));
                }
            }
        }
        op
    }

    fn answer(&mut self, reply: SimReply, attachment: Attachment, turn: &mut ClientTurn<'_>) -> Result<(), Wrong> {
        let Some(op) = self.history.get(self.answered) else {
            return Err(format!("writer {}: a reply without a request: {reply:?}", self.number));
        };
        let error = std::iter::once(&reply).chain(reply.items()).find_map(|reply| match reply {
            SimReply::Error(why) => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = error {
            if turn.is_primary(attachment) && !is_of_disk(&why) {
                return Err(format!("writer {}: process {} refuses: {why}", self.number, attachment.process));
            }
            self.is_refused = true;
        }
        self.replies.push(reply);
        if self.replies.len() < op.requests {
            return Ok(());
        }
        let replies = std::mem::take(&mut self.replies);
        let kind = op.kind;
        if std::mem::take(&mut self.is_refused) {
            // A transaction with a refused command has no effects.
            self.history[self.answered].is_refused = true;
            self.answered += 1;
            self.leaves = true;
            self.note("refused".into());
            return Ok(());
        }
        self.answered += 1;
        if turn.line == attachment.line {
            self.keep(turn.line, turn.now_us);
            self.has_answer = true;
            if turn.promises_all && self.kept > self.promised.max(self.attachment_base) {
                self.promise(turn.now_us);
            }
        }
        match kind {
            // WAIT covers the writes of this connection and the state at its RESUME, but not data that it has only
            // read.
            OpKind::Wait if attachment.losses != turn.losses => {}
            OpKind::Wait
                if self.written() > self.attachment_base && replies.iter().any(|reply| reply.number() >= 2) =>
            {
                self.promise(turn.now_us);
                self.note(format!("WAIT has acknowledged {}", self.promised));
            }
            // Otherwise another process may be the primary by now, and this one may have its data, or none.
            OpKind::Look if turn.is_primary(attachment) => {
                let at = self.answered;
                self.check_look(&replies, at, attachment)?;
                self.has_looked = at == self.history.len();
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares the list with the operations so far.
    fn check_look(&self, replies: &[SimReply], until: usize, attachment: Attachment) -> Result<(), Wrong> {
        let empty = SimReply::Text(None);
        let items = replies.last().map_or(&[][..], SimReply::items);
        let (list, count) = (items.first().unwrap_or(&empty), items.get(1).unwrap_or(&empty));
        let found: Vec<&str> = list.items().iter().map(SimReply::text).collect();
        let written = self.history.iter().take(until).flat_map(|op| op.pushed().iter().map(String::as_str));
        let written: Vec<&str> = written.collect();
        if found != written {
            let same = found.iter().zip(&written).take_while(|(found, written)| found == written).count();
            return Err(format!(
                "writer {}: process {} has {} elements, {} were written, the first {same} agree: {:?} instead of {:?}",
                self.number,
                attachment.process,
                found.len(),
                written.len(),
                found.get(same..).unwrap_or_default(),
                written.get(same..).unwrap_or_default()
            ));
        }
        check_count(&found, count).map_err(|why| format!("writer {}: {why}", self.number))
    }
}

/// Returns true if the error means that the disk fails: for a single command, or for its transaction.
fn is_of_disk(why: &str) -> bool {
    why.starts_with("MISCONF") || why.starts_with("EXECABORT")
}

/// Compares a counter with the elements that it counts.
///
/// # Errors
/// Only half of a transaction or a script was executed.
pub fn check_count(elements: &[&str], count: &SimReply) -> Result<(), Wrong> {
    let counted = elements.iter().filter(|element| element.ends_with('+')).count() as i64;
    if counted == count.number() {
        return Ok(());
    }
    Err(format!("{counted} elements were pushed with the count, which is {}: half of a transaction", count.number()))
}

/// Returns a command with effects that may depend on time or chance.
fn noise(random: &mut Random) -> Vec<String> {
    let number = random.below(4);
    let text = |words: &str| words.split(' ').map(str::to_owned).collect();
    let below = |random: &mut Random, end: usize| random.below(end) + 1;
    match random.below(15) {
        0 => text(&format!("SET string:{number} {} PX {}", random.below(100), below(random, 400))),
        1 => text(&format!("SET string:{number} {}", random.below(100))),
        2 => text(&format!("PEXPIRE string:{number} {}", below(random, 300))),
        3 => text(&format!("SADD set:{number} {} {}", random.below(50), random.below(50))),
        4 => text(&format!("SPOP set:{number} {}", below(random, 3))),
        5 => text(&format!("HINCRBYFLOAT hash:{number} {} 0.5", random.below(5))),
        6 => text(&format!("ZADD zset:{number} {} {}", random.below(9), random.below(9))),
        7 => text(&format!("ZPOPMIN zset:{number}")),
        8 => text(&format!("LPUSH queue:{number} {}", random.below(99))),
        9 => text(&format!("RPOP queue:{number}")),
        10 => text(&format!("DEL string:{number} set:{number}")),
        11 => text(&format!("XADD stream:{number} MAXLEN 10 * field {}", random.below(99))),
        12 => text(&format!("GETEX string:{number} PX {}", below(random, 100))),
        // Large values, so that the stream needs several reads.
        13 => {
            let bytes = if random.below(20) == 0 { 100_000 } else { 400 };
            vec!["SET".into(), format!("large:{number}"), "y".repeat(below(random, bytes))]
        }
        _ => vec![
            "SETRANGE".into(),
            format!("long:{number}"),
            below(random, 3000).to_string(),
            "x".repeat(below(random, 300)),
        ],
    }
}
