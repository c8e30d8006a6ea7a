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
    /// Processes that ran or waited to run on that machine in the minute before (proc(5), loadavg).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// And its cores.
    pub cores: usize,
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
    pub transcript: Vec<TranscriptLine>,
}

/// One way to do it.
#[derive(Serialize)]
pub struct Row {
    /// What it is called.
    pub label: String,
    /// What it does: the times are those of the first row that does the same.
    pub does: &'static str,
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
    /// How often it was measured; the figures are those of the round with the median time.
    pub rounds: u64,
    /// The time of the shortest round.
    pub real_min_s: f64,
    /// And of the longest.
    pub real_max_s: f64,
    /// Times faster than the first row that does the same.
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

/// Rounds that differ by more than so much from the median, up and down, tell little.
const SPREAD_MAX: f64 = 0.2;
/// Cores that other programs may keep busy before the machine is called so: half of them are left for what is measured.
const BUSY_SHARE: f64 = 0.5;

impl Results {
    /// What other programs take of the machine, where that is so much that figures suffer.
    #[must_use]
    pub fn disturbance(&self) -> Option<String> {
        let load = self.load_average.filter(|load| *load > self.cores as f64 * BUSY_SHARE)?;
        Some(format!(
            "this machine is busy with other things (a load of {load:.1} on {} cores): times are longer than on a quiet one, and less certain",
            self.cores
        ))
    }
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

impl Row {
    /// The least and the largest ratio that rounds of both servers have.
    #[must_use]
    pub fn ratio_range(&self) -> Option<(f64, f64)> {
        let (_, [a, b]) = (self.ratio()?, self.servers.as_slice()) else { return None };
        let is_measured = a.rounds > 1 && b.rounds > 1 && a.real_min_s > 0.0;
        is_measured.then(|| (b.real_min_s / a.real_max_s, b.real_max_s / a.real_min_s))
    }
}

impl Experiment {
    /// Whether the document's seconds stand beside some rows.
    #[must_use]
    pub fn has_document(&self) -> bool {
        self.rows.iter().any(|row| row.document_s.is_some())
    }

    /// Whether some figures are only rough, since rounds differ.
    #[must_use]
    pub fn is_rough(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.servers).any(Cell::is_rough)
    }

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

    /// How far rounds differ from the median, up or down, as a part of it; `None` of a single one.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let half = (self.real_max_s - self.real_min_s) / 2.0;
        (self.rounds > 1 && self.real_s > 0.0).then(|| half / self.real_s)
    }

    /// Whether rounds differ so far that the figures are only rough.
    #[must_use]
    pub fn is_rough(&self) -> bool {
        self.spread().is_some_and(|spread| spread > SPREAD_MAX)
    }

    /// How often the server runs a command for the whole, by estimate where the row was cut off.
    #[must_use]
    pub fn count(&self, command: &str) -> u64 {
        let counted = self.counted.get(command).copied().unwrap_or(0);
        if !self.is_cut_off() {
            return counted;
        }
        (counted as f64 * self.of as f64 / self.done.max(1) as f64).round() as u64
    }

    /// How many ZSCOREs fewer than in another way there are.
    #[must_use]
    pub fn fewer(&self, than: &Cell) -> Option<u64> {
        than.count("zscore").checked_sub(self.count("zscore")).filter(|&fewer| fewer > 0)
    }
}

/// One line of a transcript.
#[derive(Serialize)]
pub struct TranscriptLine {
    /// The server's number, from 0.
    pub server: usize,
    /// Milliseconds since the way began.
    pub at_ms: f64,
    /// The way's name.
    pub way: String,
    /// `Client` or `Server`.
    #[serde(rename = "who")]
    pub speaker: &'static str,
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
    /// Bytes that the server keeps for them while the client doesn't read (`omem` of CLIENT LIST); the kernel keeps the
    /// rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_bytes: Option<u64>,
    /// Growth of all the server's memory meanwhile (`used_memory` of INFO).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_bytes: Option<u64>,
    /// What else there is to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(real_s: f64, min: f64, max: f64) -> Cell {
        Cell { real_s, rounds: 3, real_min_s: min, real_max_s: max, ..Cell::default() }
    }

    #[test]
    fn the_spread_is_half_the_range() {
        assert_eq!(cell(2.0, 1.5, 2.5).spread(), Some(0.25));
        assert!(cell(2.0, 1.5, 2.5).is_rough() && !cell(2.0, 1.9, 2.1).is_rough());
        assert_eq!(Cell { rounds: 1, ..cell(2.0, 2.0, 2.0) }.spread(), None);
    }

    #[test]
    fn a_ratio_has_a_range() {
        let row = |rounds| Row {
            label: String::new(),
            does: "",
            document_s: None,
            servers: vec![cell(2.0, 1.0, 4.0), Cell { rounds, ..cell(3.0, 2.0, 4.0) }],
        };
        assert_eq!((row(3).ratio(), row(3).ratio_range()), (Some(1.5), Some((0.5, 4.0))));
        assert_eq!(row(1).ratio_range(), None);
    }

    #[test]
    fn counts_of_a_part_are_those_of_the_whole() {
        let counts = |zscores| Counts::from([("zscore".to_owned(), zscores)]);
        let first = Cell { done: 10, of: 1000, counted: counts(108), ..Cell::default() };
        let second = Cell { done: 1000, of: 1000, counted: counts(1000), ..Cell::default() };
        assert_eq!((first.count("zscore"), second.count("zscore")), (10_800, 1000));
        assert_eq!((second.fewer(&first), first.fewer(&second)), (Some(9_800), None));
    }

    #[test]
    fn a_busy_machine_is_told() {
        let results = |load_average, cores| Results {
            program: "",
            version: "",
            unix_time: 0,
            machine: String::new(),
            load_average,
            cores,
            added_rtt_ms: None,
            servers: Vec::new(),
            experiments: Vec::new(),
            sweep: None,
        };
        assert!(results(Some(13.5), 2).disturbance().unwrap().contains("(a load of 13.5 on 2 cores)"));
        assert_eq!(results(Some(0.5), 2).disturbance(), None);
        assert_eq!(results(None, 2).disturbance(), None);
    }
}
