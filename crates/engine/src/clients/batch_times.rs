//! The time that a connection's present batch has taken, by parts.
//!
//! A batch begins with the arrival of its first complete request. It ends when the first byte of its last replies is on
//! the socket; in a batch that takes several turns, these are the replies of the last turn. The time between two
//! readings belongs to the part that the batch waits for, so the parts add up to the whole. All readings are of clocks
//! that are read anyway: at the start of a turn, around a connection's run, before a send.

use std::collections::VecDeque;

use journal::order::Position;
use statistics::batch_times::{Part, PartTicks};
use statistics::ticks::Ticks;

/// Batches of a connection with unsent replies that are remembered. More of them are not recorded.
const UNSENT_MAX: usize = 64;

/// One batch: its time so far, and the figures that the log of slow batches shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchTimes {
    /// The time of each part, in ticks.
    pub parts: PartTicks,
    /// Number of its commands.
    pub depth: u32,
    /// Bytes of its requests.
    pub bytes: u64,
    /// The command that took longest, with its ticks, among those that are long enough to be noted.
    pub longest: Option<(usize, u64)>,
    /// Its last command.
    pub last: u32,
    /// The part that the time after `since` belongs to.
    waits_for: Part,
    since: Ticks,
    /// Position in the log that releases its replies; 0 if they are not held.
    until: Position,
    /// Bytes of unsent replies before its own.
    ahead: u64,
    /// True if the server has placed its replies.
    is_placed: bool,
}

impl BatchTimes {
    /// Ends the present part, and begins another.
    #[inline]
    fn go_on(&mut self, now: Ticks, next: Part) {
        self.parts[self.waits_for as usize] += now.since(self.since);
        (self.since, self.waits_for) = (now, next);
    }

    /// Returns the whole time, in ticks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.parts.iter().sum()
    }
}

/// The progress of the present batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// None of its commands has run.
    #[default]
    Arriving,
    /// Some of its commands have run, or wait for a reason of their own.
    Running,
    /// All its commands have run. Its replies are unsent.
    Unsent,
}

/// One run of a connection's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchPart {
    pub began: Ticks,
    pub ended: Ticks,
    pub commands: u32,
    pub bytes: u64,
    pub longest: Option<(usize, u64)>,
    /// The connection's last command.
    pub last: u32,
    /// Unsent bytes of replies at its beginning.
    pub ahead: u64,
    /// True if it has added replies.
    pub has_replies: bool,
    /// The reason why the batch is not complete. `None` if it is.
    pub waits_for: Option<Part>,
}

/// The batches of a connection that are not answered yet.
#[derive(Debug, Default)]
pub struct UnansweredBatches {
    present: BatchTimes,
    phase: Phase,
    /// Arrival of the present batch, or of input behind it.
    arrived: Option<Ticks>,
    /// True while a command waits for an event that is not a part of the batch's time: new data, for example.
    is_blocked: bool,
    /// True if the present batch ends with the reply to a command that waits for acknowledgements.
    is_acknowledged: bool,
    /// Earlier batches with unsent replies, in order.
    earlier: VecDeque<BatchTimes>,
}

impl UnansweredBatches {
    /// Notes the arrival of input. `runs_at_once` is true if no earlier input is held back.
    #[inline]
    pub fn note_arrival(&mut self, now: Ticks, runs_at_once: bool) {
        if self.arrived.is_none() || runs_at_once {
            self.arrived = Some(now);
        }
    }

    /// Notes that a command blocks for a reason that is not a part of the batch's time.
    pub(crate) fn note_blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Notes that the present batch ends with a command that waits for acknowledgements.
    pub(crate) fn note_acknowledged(&mut self) {
        self.is_acknowledged = true;
    }

    /// Notes one run of the connection's requests.
    #[inline]
    pub(crate) fn note_run(&mut self, part: &BatchPart) {
        if self.phase != Phase::Running {
            if part.commands == 0 && part.waits_for.is_none() {
                // The first request is incomplete.
                return;
            }
            self.begin(part);
        }
        let times = &mut self.present;
        times.go_on(part.began, Part::Execution);
        times.go_on(part.ended, part.waits_for.unwrap_or(Part::Turn));
        times.depth = times.depth.saturating_add(part.commands);
        times.bytes += part.bytes;
        times.last = part.last;
        if part.longest.is_some_and(|(_, ticks)| times.longest.is_none_or(|(_, longest)| longest < ticks)) {
            times.longest = part.longest;
        }
        if part.waits_for.is_some() {
            return;
        }
        // The reply to the last command may have been written before this run.
        let has_replies = std::mem::take(&mut self.is_acknowledged) || part.has_replies;
        times.ahead = part.ahead.saturating_sub(u64::from(!part.has_replies));
        self.phase = if has_replies && times.depth > 0 { Phase::Unsent } else { Phase::Arriving };
        self.arrived = None;
    }

    /// Begins a batch with its first run.
    #[inline]
    fn begin(&mut self, part: &BatchPart) {
        if self.phase == Phase::Unsent {
            self.keep_unsent();
        }
        let was_blocked = std::mem::take(&mut self.is_blocked);
        let arrived = self.arrived.filter(|_| !was_blocked).unwrap_or(part.began);
        self.present = BatchTimes { since: arrived, ..BatchTimes::default() };
        self.phase = Phase::Running;
    }

    /// Puts a complete batch behind the earlier ones.
    #[cold]
    fn keep_unsent(&mut self) {
        if self.earlier.len() < UNSENT_MAX {
            self.earlier.push_back(self.present);
        }
    }

    /// Ends the observation of the present batch without a record.
    pub fn drop_present(&mut self) {
        (self.phase, self.arrived, self.is_acknowledged) = (Phase::Arriving, None, false);
    }

    /// Notes that the server holds the rest of the present batch back.
    pub fn note_hold(&mut self, part: Part) {
        if self.phase == Phase::Running {
            self.present.waits_for = part;
        }
    }

    /// Places the replies of a batch that has just become complete: behind `more` bytes of unsent replies than it knows,
    /// or held until the log is safe up to `until`.
    pub fn place(&mut self, more: u64, until: Option<Position>, socket_is_full: bool) {
        let times = &mut self.present;
        if self.phase != Phase::Unsent || std::mem::replace(&mut times.is_placed, true) {
            return;
        }
        times.ahead += more;
        if let Some(until) = until {
            (times.until, times.waits_for) = (until, Part::Disk);
        } else if socket_is_full {
            times.waits_for = Part::Client;
        }
    }

    fn unsent(&mut self) -> impl Iterator<Item = &mut BatchTimes> {
        let present = (self.phase == Phase::Unsent).then_some(&mut self.present);
        self.earlier.iter_mut().chain(present)
    }

    /// Notes that the replies which depend on the log up to `safe` are released, behind `ahead` bytes of unsent
    /// replies. `on_disk` returns the time at which the log became safe up to a position, if replicas were waited for
    /// after that.
    pub fn release(&mut self, safe: Position, now: Ticks, ahead: u64, on_disk: impl Fn(Position) -> Option<Ticks>) {
        for times in self.unsent().filter(|times| times.until > 0 && times.until <= safe) {
            if let Some(on_disk) = on_disk(times.until) {
                times.go_on(on_disk.clamp(times.since, now.max(times.since)), Part::Replicas);
            }
            times.go_on(now, Part::Turn);
            (times.until, times.ahead) = (0, ahead);
        }
    }

    /// Notes that `bytes` of replies are sent, or none because the socket is full; `began` is the start of the send.
    /// Calls `answered` for each batch whose last replies have begun to leave.
    #[inline]
    pub fn note_sent(&mut self, bytes: u64, began: Ticks, mut answered: impl FnMut(&BatchTimes)) {
        if !self.earlier.is_empty() {
            self.earlier.retain_mut(|times| !advance(times, bytes, began, &mut answered));
            self.earlier.shrink_to_fit();
        }
        if self.phase == Phase::Unsent && advance(&mut self.present, bytes, began, answered) {
            self.phase = Phase::Arriving;
        }
    }
}

/// Notes that `bytes` of replies are sent. Returns true if some of the batch's own are among them, and ends its time
/// then.
#[inline]
fn advance(times: &mut BatchTimes, bytes: u64, began: Ticks, answered: impl FnOnce(&BatchTimes)) -> bool {
    if times.until > 0 {
        return false;
    }
    // Bytes that follow wait for the client: the socket has taken only some of the replies.
    times.go_on(began, Part::Client);
    let is_answered = bytes > times.ahead;
    if is_answered {
        answered(times);
    }
    times.ahead = times.ahead.saturating_sub(bytes);
    is_answered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ticks: u64) -> Ticks {
        Ticks::default().after(ticks)
    }

    /// A run of two commands that adds replies.
    fn run(began: u64, ended: u64, waits_for: Option<Part>) -> BatchPart {
        BatchPart {
            began: at(began),
            ended: at(ended),
            commands: 2,
            bytes: 30,
            longest: None,
            last: 0,
            ahead: 0,
            has_replies: true,
            waits_for,
        }
    }

    /// Returns the depth and the parts of the batches that a send answers.
    fn sent(batches: &mut UnansweredBatches, bytes: u64, began: u64) -> Vec<(u32, PartTicks)> {
        let mut answered = Vec::new();
        batches.note_sent(bytes, at(began), |times| answered.push((times.depth, times.parts)));
        answered
    }

    #[test]
    fn a_batch_in_one_turn_waits_runs_and_is_sent() {
        let mut batches = UnansweredBatches::default();
        batches.note_arrival(at(100), true);
        batches.note_run(&run(110, 140, None));
        assert_eq!(sent(&mut batches, 10, 145), [(2, [15, 30, 0, 0, 0])]);
        assert!(sent(&mut batches, 10, 150).is_empty(), "a push, for example");
    }

    #[test]
    fn an_incomplete_request_has_not_arrived() {
        let mut batches = UnansweredBatches::default();
        batches.note_arrival(at(100), true);
        batches.note_run(&BatchPart { commands: 0, has_replies: false, ..run(105, 105, None) });
        batches.note_arrival(at(900), true);
        batches.note_run(&run(910, 920, None));
        assert_eq!(sent(&mut batches, 1, 920), [(2, [10, 10, 0, 0, 0])]);
    }

    #[test]
    fn a_batch_in_several_turns_is_one_batch() {
        let mut batches = UnansweredBatches::default();
        batches.note_arrival(at(100), true);
        batches.note_run(&run(100, 200, Some(Part::Turn)));
        assert!(sent(&mut batches, 50, 210).is_empty(), "the first turn's replies");
        // Input that arrives meanwhile runs with the rest.
        batches.note_arrival(at(220), false);
        batches.note_run(&run(250, 300, Some(Part::Turn)));
        batches.note_hold(Part::Client);
        batches.note_run(&run(1300, 1310, None));
        assert_eq!(sent(&mut batches, 50, 1310), [(6, [50, 160, 0, 0, 1000])]);
        batches.note_arrival(at(2000), true);
        batches.note_run(&run(2000, 2001, None));
        assert_eq!(sent(&mut batches, 50, 2001), [(2, [0, 1, 0, 0, 0])]);
    }

    #[test]
    fn held_replies_wait_for_the_disk_then_for_replicas() {
        let mut batches = UnansweredBatches::default();
        batches.note_arrival(at(0), true);
        batches.note_run(&run(0, 10, None));
        batches.place(0, Some(7), false);
        assert!(sent(&mut batches, 5, 11).is_empty(), "replies of earlier batches");
        batches.note_arrival(at(20), true);
        batches.note_run(&run(20, 30, None));
        batches.place(0, Some(8), false);
        batches.release(6, at(40), 0, |_| None);
        assert!(sent(&mut batches, 5, 50).is_empty());
        batches.release(7, at(60), 0, |_| None);
        assert_eq!(sent(&mut batches, 5, 61), [(2, [1, 10, 50, 0, 0])]);
        batches.release(8, at(130), 0, |position| Some(at(position * 10)));
        assert_eq!(sent(&mut batches, 5, 130), [(2, [0, 10, 50, 50, 0])]);
    }

    #[test]
    fn replies_behind_unread_ones_wait_for_the_client() {
        let mut batches = UnansweredBatches::default();
        batches.note_run(&run(0, 10, None));
        batches.place(100, None, true);
        batches.note_arrival(at(20), true);
        batches.note_run(&run(20, 30, None));
        batches.place(200, None, true);
        assert!(sent(&mut batches, 100, 110).is_empty());
        assert_eq!(sent(&mut batches, 150, 210), [(2, [0, 10, 0, 0, 200]), (2, [0, 10, 0, 0, 180])]);
        for _ in 0..UNSENT_MAX + 9 {
            batches.note_run(&run(300, 310, None));
        }
        assert_eq!(sent(&mut batches, 1, 400).len(), UNSENT_MAX + 1);
    }

    #[test]
    fn acknowledgements_are_part_of_a_batch_and_other_waits_are_not() {
        let mut batches = UnansweredBatches::default();
        batches.note_run(&run(0, 10, Some(Part::Replicas)));
        batches.note_acknowledged();
        assert!(sent(&mut batches, 5, 11).is_empty());
        batches.note_run(&BatchPart { commands: 0, ahead: 4, has_replies: false, ..run(510, 510, None) });
        assert_eq!(sent(&mut batches, 4, 512), [(2, [2, 10, 0, 500, 0])]);
        // A blocked command without replies before it.
        batches.note_run(&BatchPart { has_replies: false, ..run(600, 601, None) });
        batches.note_blocked();
        batches.note_arrival(at(610), false);
        assert!(sent(&mut batches, 4, 900).is_empty(), "its own reply");
        batches.note_run(&run(950, 960, None));
        assert_eq!(sent(&mut batches, 4, 960), [(2, [0, 10, 0, 0, 0])]);
    }

    #[test]
    fn replies_that_the_client_does_not_want_leave_no_record() {
        let mut batches = UnansweredBatches::default();
        batches.note_run(&BatchPart { has_replies: false, ..run(0, 10, None) });
        assert!(sent(&mut batches, 9, 20).is_empty());
        batches.note_run(&run(30, 40, Some(Part::Turn)));
        batches.drop_present();
        batches.note_run(&run(50, 60, None));
        assert_eq!(sent(&mut batches, 9, 60), [(2, [0, 10, 0, 0, 0])]);
    }
}
