//! What the experiments have found: the one source of the tables, the page and the JSON document.

use std::collections::BTreeMap;

use serde::Serialize;

/// Commands by kind.
pub type Counts = BTreeMap<String, u64>;

/// Everything of one run.
#[derive(Serialize)]
pub struct Results {
    /// The program's name.
    pub program: &'static str,
    /// And version.
    pub version: &'static str,
    /// When, in seconds since 1970.
    pub unix_time: u64,
    /// The machine that asked.
    pub machine: String,
    /// What was added to every round trip, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_rtt_ms: Option<f64>,
    /// The servers, the first being what the others are compared with.
    pub servers: Vec<Server>,
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
    /// Depths of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

/// One server.
#[derive(Clone, Serialize)]
pub struct Server {
    /// Program and version, as it says itself.
    pub name: String,
    /// Where it is.
    pub address: String,
    /// Median time of one PING, in milliseconds, the added round trip included.
    pub rtt_ms: f64,
    /// The same without what was added.
    pub direct_rtt_ms: f64,
    /// Its process was found on this machine.
    pub is_local: bool,
}

/// One experiment: several ways to do the same.
#[derive(Serialize)]
pub struct Experiment {
    /// Short name, as `--only` takes it.
    pub id: &'static str,
    /// What is done.
    pub title: String,
    /// Where it comes from, and what the reader should know.
    pub note: String,
    /// The ways.
    pub rows: Vec<Row>,
    /// What was said, for the one that shows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<Line>,
}

/// One way to do it.
#[derive(Serialize)]
pub struct Row {
    /// What it is called.
    pub label: String,
    /// Seconds that the document measured, on its author's machine of its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_s: Option<f64>,
    /// The figures of each server, in the order of the servers.
    pub servers: Vec<Cell>,
}

/// How one way went on one server.
#[derive(Serialize, Clone, Default)]
pub struct Cell {
    /// Processor time of the client in user mode, in seconds; of what was done.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
    /// Time on the clock, in seconds; of the whole, by estimate where it was cut off.
    pub real_s: f64,
    /// Times faster than the first row.
    pub times: f64,
    /// What was done: so many of `of` parts (movies, say).
    pub done: u64,
    /// The whole.
    pub of: u64,
    /// Commands that were sent.
    pub commands: u64,
    /// CPU time of the server's process for each of them, in nanoseconds, where it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_ns_per_command: Option<f64>,
    /// Resident memory of the server's process afterwards, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_bytes: Option<u64>,
    /// Commands by kind, as the server counted them (INFO commandstats).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: Counts,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<String>,
}

impl Row {
    /// How many times as long the second server took, where there are two and both could.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match self.servers.as_slice() {
            [a, b] if a.impossible.is_none() && b.impossible.is_none() && a.real_s > 0.0 => Some(b.real_s / a.real_s),
            _ => None,
        }
    }
}

impl Experiment {
    /// Whether a server, by its number, has told how often its commands ran.
    #[must_use]
    pub fn is_counted(&self, server: usize) -> bool {
        self.rows.iter().filter_map(|row| row.servers.get(server)).any(|cell| !cell.counted.is_empty())
    }
}

impl Depth {
    /// The second server's rate as a multiple of the first one's, where there are two.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match self.servers.as_slice() {
            [a, b] if a.per_second > 0.0 => Some(b.per_second / a.per_second),
            _ => None,
        }
    }
}

impl Cell {
    /// Whether only a part was done, so that the time is an estimate.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.impossible.is_none() && self.done < self.of
    }

    /// How often the server ran a command.
    #[must_use]
    pub fn count(&self, command: &str) -> u64 {
        self.counted.get(command).copied().unwrap_or(0)
    }

    /// How many ZSCOREs fewer than in another way there were, where both did the whole.
    #[must_use]
    pub fn fewer(&self, than: &Cell) -> Option<u64> {
        let comparable = !self.is_cut_off() && !than.is_cut_off();
        comparable.then(|| than.count("zscore").checked_sub(self.count("zscore"))).flatten().filter(|&fewer| fewer > 0)
    }
}

/// One line of a transcript.
#[derive(Serialize)]
pub struct Line {
    /// Milliseconds since the way began.
    pub at_ms: f64,
    /// The way's name.
    pub way: String,
    /// `Client` or `Server`.
    pub who: &'static str,
    /// What was said.
    pub text: String,
}

/// What the pipeline's depth does.
#[derive(Serialize)]
pub struct Sweep {
    /// Bytes of the values that are read.
    pub value_bytes: u64,
    /// A row for each depth.
    pub rows: Vec<Depth>,
}

/// One depth.
#[derive(Serialize)]
pub struct Depth {
    /// Commands without a reply.
    pub depth: u64,
    /// The figures of each server.
    pub servers: Vec<DepthCell>,
}

/// One depth at one server.
#[derive(Serialize, Clone, Default)]
pub struct DepthCell {
    /// Commands a second over one connection.
    pub per_second: f64,
    /// Times the first depth's rate.
    pub times: f64,
    /// CPU time of the server's process for a command, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_ns_per_command: Option<f64>,
    /// Bytes of the replies of so many commands.
    pub reply_bytes: u64,
    /// Bytes that the server keeps for them while nobody reads (`omem` of CLIENT LIST); the kernel keeps the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_bytes: Option<u64>,
    /// Growth of all the server's memory meanwhile (`used_memory` of INFO).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_bytes: Option<u64>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}
