//! The revocable effects of a script that may still start over, outside of the keyspace: counts, and lines for
//! monitors.
//!
//! A script that starts over runs its commands again, but each must be counted and shown once. Counts are therefore
//! noted for revocation, and lines are held back until the script has changed data or has ended.

use store::db::SideEffects;

use super::LocalScripts;
use statistics::stats::WorkerStats;

/// The greatest number of noted counts. A script that exceeds it before it starts over leaves the rest counted.
const COUNTED_MAX: usize = 100_000;
/// The greatest number of bytes of held lines; later lines are shown at once.
const SHOWN_BYTES_MAX: usize = 1024 * 1024;

/// A count that may be revoked.
#[derive(Debug)]
enum TentativeCount {
    /// A command ran, for this number of ticks.
    Ran(usize, u64),
    /// A command answered an error.
    Failed(usize),
    /// A command was refused.
    Rejected(usize),
    /// An error reply, by its text's first word.
    Error(Box<[u8]>),
}

/// A line for monitors, and its receivers.
#[derive(Debug, Default)]
pub(crate) struct MonitorLine {
    /// The command.
    pub text: String,
    /// The text after it for monitors that want replies; empty if the reply is unknown.
    pub reply: String,
    /// The description of the batch, for monitors that want it.
    pub batch: String,
    /// True if monitors without filters receive it.
    pub to_all: bool,
    /// The numbers of other monitors that receive it.
    pub to: Vec<u64>,
    /// The monitors among them that receive the description of the batch.
    pub begins: Vec<u64>,
}

impl MonitorLine {
    /// Returns the bytes of memory.
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

    /// Notes that a command has run.
    #[cold]
    pub fn ran(&mut self, command: usize, ticks: u64) {
        self.note(TentativeCount::Ran(command, ticks));
    }

    /// Notes that a command has answered an error.
    pub fn failed(&mut self, command: usize) {
        self.note(TentativeCount::Failed(command));
    }

    /// Notes that a command was refused.
    pub fn rejected(&mut self, command: usize) {
        self.note(TentativeCount::Rejected(command));
    }

    /// Notes an error reply.
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
    /// Returns the place for the running command's revocable effects, if its script may start over.
    #[inline]
    pub(crate) fn noting(&mut self) -> Option<&mut Tentative> {
        if self.may_start_over { Some(&mut self.tentative) } else { None }
    }

    /// Begins a script that may start over.
    pub(crate) fn begin_tentatively(&mut self, observed: &SideEffects) {
        (self.tentative.hits, self.tentative.misses) = (observed.hits, observed.misses);
        self.may_start_over = true;
    }

    /// Makes the noted effects permanent, because the script won't start over any more. Returns the lines to show.
    pub(crate) fn settle_tentative(&mut self) -> Vec<MonitorLine> {
        self.may_start_over = false;
        self.tentative.counted.clear();
        self.tentative.lines_bytes = 0;
        std::mem::take(&mut self.tentative.lines)
    }

    /// Revokes the noted effects, because the script starts over.
    pub(crate) fn forget_tentative(&mut self, stats: &WorkerStats, observed: &mut SideEffects) {
        self.may_start_over = false;
        let tentative = &mut self.tentative;
        tentative.take_back(stats);
        tentative.lines.clear();
        tentative.lines_bytes = 0;
        (observed.hits, observed.misses) = (tentative.hits, tentative.misses);
    }
}
