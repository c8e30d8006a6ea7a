//! What a script's commands have left beside the keyspace while it may still start over: counts, and lines for
//! monitors.
//!
//! A script that starts over runs its commands again, and each of them is to be counted and shown once. So what is
//! counted is noted, to be taken back, and lines are held back until the script has changed something or has ended.

use store::db::Observed;

use super::LocalScripts;
use crate::statistics::stats::WorkerStats;

/// Counts that are noted. Of a script that runs more commands before it starts over, the rest stays counted.
const COUNTED_MAX: usize = 100_000;
/// Bytes of lines that are held back; those beyond are shown at once.
const SHOWN_BYTES_MAX: usize = 1024 * 1024;

/// Something that was counted, and may be taken back.
#[derive(Debug)]
enum TentativeCount {
    /// A command ran, for so many ticks.
    Ran(usize, u64),
    /// It answered an error.
    Failed(usize),
    /// It was refused.
    Rejected(usize),
    /// An error reply, by its text's first word.
    Error(Box<[u8]>),
}

/// A line for monitors, and which of them it is for.
#[derive(Debug, Default)]
pub(crate) struct MonitorLine {
    /// The command.
    pub text: String,
    /// What stands behind it for those that want replies; empty: it isn't known.
    pub reply: String,
    /// Where the batch begins, for those that want to know.
    pub batch: String,
    /// True if it is for those that are shown all.
    pub to_all: bool,
    /// The numbers of those that have chosen it.
    pub to: Vec<u64>,
    /// Those among them that are told of the batch.
    pub begins: Vec<u64>,
}

impl MonitorLine {
    /// Bytes of memory.
    fn bytes(&self) -> usize {
        let numbers = (self.to.len() + self.begins.len()) * size_of::<u64>();
        size_of::<MonitorLine>() + self.text.len() + self.reply.len() + self.batch.len() + numbers
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Tentative {
    counted: Vec<TentativeCount>,
    lines: Vec<MonitorLine>,
    lines_bytes: usize,
    hits: u64,
    misses: u64,
}

impl Tentative {
    fn note(&mut self, counted: TentativeCount) {
        if self.counted.len() < COUNTED_MAX {
            self.counted.push(counted);
        }
    }

    /// A command has run.
    #[cold]
    pub fn ran(&mut self, command: usize, ticks: u64) {
        self.note(TentativeCount::Ran(command, ticks));
    }

    /// A command has answered an error.
    pub fn failed(&mut self, command: usize) {
        self.note(TentativeCount::Failed(command));
    }

    /// A command was refused.
    pub fn rejected(&mut self, command: usize) {
        self.note(TentativeCount::Rejected(command));
    }

    /// An error was answered.
    pub fn error(&mut self, text: &[u8]) {
        let code = text.split(u8::is_ascii_whitespace).next().unwrap_or(b"");
        self.note(TentativeCount::Error(code.into()));
    }

    /// Holds a monitor's line back. Returns it if there is no room.
    pub fn hold_back(&mut self, line: MonitorLine) -> Option<MonitorLine> {
        if self.lines_bytes + line.bytes() > SHOWN_BYTES_MAX {
            return Some(line);
        }
        self.lines_bytes += line.bytes();
        self.lines.push(line);
        None
    }

    fn take_back(&mut self, stats: &WorkerStats) {
        for counted in self.counted.drain(..) {
            match counted {
                TentativeCount::Ran(command, ticks) => stats.executed_not(command, ticks),
                TentativeCount::Failed(command) => stats.commands[command].failed.take_back(1),
                TentativeCount::Rejected(command) => stats.commands[command].rejected.take_back(1),
                TentativeCount::Error(code) => stats.count_error_not(&code),
            }
        }
    }
}

impl LocalScripts {
    /// Where what the running command leaves is noted, if a script runs it that may start over.
    #[inline]
    pub(crate) fn noting(&mut self) -> Option<&mut Tentative> {
        if self.may_start_over { Some(&mut self.tentative) } else { None }
    }

    /// A script begins that may start over.
    pub(crate) fn begin_tentatively(&mut self, observed: &Observed) {
        (self.tentative.hits, self.tentative.misses) = (observed.hits, observed.misses);
        self.may_start_over = true;
    }

    /// The script that runs won't start over any more: what is noted counts. Returns the lines that are to be shown.
    pub(crate) fn settle_tentative(&mut self) -> Vec<MonitorLine> {
        self.may_start_over = false;
        self.tentative.counted.clear();
        self.tentative.lines_bytes = 0;
        std::mem::take(&mut self.tentative.lines)
    }

    /// The script starts over: nothing of what is noted has been.
    pub(crate) fn forget_tentative(&mut self, stats: &WorkerStats, observed: &mut Observed) {
        self.may_start_over = false;
        let tentative = &mut self.tentative;
        tentative.take_back(stats);
        tentative.lines.clear();
        tentative.lines_bytes = 0;
        (observed.hits, observed.misses) = (tentative.hits, tentative.misses);
    }
}
