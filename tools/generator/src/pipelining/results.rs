//! Results of the experiments: the source of the tables, the page and the JSON document.

use std::collections::BTreeMap;

use serde::Serialize;

/// Number of commands by kind.
pub type Counts = BTreeMap<String, u64>;

/// All results of a run.
#[derive(Serialize)]
pub struct Results {
    /// Name of the program.
    pub program: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Time of the run, in seconds since 1970.
    pub unix_time: u64,
    /// The client's machine.
    pub machine: String,
    /// Number of running and waiting processes on this machine, averaged over the minute before the run (proc(5),
    /// loadavg).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// Number of its cores.
    pub cores: usize,
    /// Delay added to every round trip, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_rtt_ms: Option<f64>,
    /// The servers. Others are compared with the first.
    pub servers: Vec<Server>,
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
    /// The sweep over pipeline depths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

/// A server.
#[derive(Clone, Serialize)]
pub struct Server {
    /// Program and version, as reported by the server.
    pub name: String,
    /// Address of the server.
    pub address: String,
    /// Median time of a PING, in milliseconds, including the added delay.
    pub rtt_ms: f64,
    /// Median time of a PING without the added delay.
    pub direct_rtt_ms: f64,
    /// True if the server's process was found on this machine.
    pub is_local: bool,
}

/// An experiment: several variants of the same work.
#[derive(Serialize)]
pub struct Experiment {
    /// Short name for `--only`.
    pub id: &'static str,
    /// Title.
    pub title: String,
    /// Source and remarks for the reader.
    pub note: String,
    /// The variants.
    pub rows: Vec<Row>,
    /// Conversation of client and server, for the experiment that shows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<TranscriptLine>,
}

/// A variant.
#[derive(Serialize)]
pub struct Row {
    /// Name of the variant.
    pub label: String,
    /// Kind of work. A row is compared with the first row of the same kind.
    pub does: &'static str,
    /// Time in the document, in seconds, on its author's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_s: Option<f64>,
    /// Results for each server, in the order of the servers.
    pub servers: Vec<Cell>,
}

/// Result of one variant on one server.
#[derive(Serialize, Clone, Default)]
pub struct Cell {
    /// The client's CPU time in user mode, in seconds, for the part that was done.
    pub user_s: f64,
    /// The client's CPU time in the kernel.
    pub system_s: f64,
    /// Elapsed time in seconds; an estimate of the whole if the row was cut off.
    pub real_s: f64,
    /// Number of measurements. The figures belong to the one with the median time.
    pub rounds: u64,
    /// Shortest time of all measurements.
    pub real_min_s: f64,
    /// Longest time of all measurements.
    pub real_max_s: f64,
    /// Speedup over the first row of the same kind.
    pub times: f64,
    /// Number of parts that were done, of `of` parts (for example movies).
    pub done: u64,
    /// Total number of parts.
    pub of: u64,
    /// Number of commands sent.
    pub commands: u64,
    /// CPU time of the server's process per command, in nanoseconds, if it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_ns_per_command: Option<f64>,
    /// Resident memory of the server's process afterwards, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_bytes: Option<u64>,
    /// Commands by kind, as counted by the server (INFO commandstats).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: Counts,
    /// Reason for missing figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<String>,
}

/// Rows with a larger relative spread around the median are marked as rough.
const SPREAD_MAX: f64 = 0.2;
/// Share of the cores that other programs may use before the machine counts as busy. The rest is left for the
/// measurement.
const BUSY_SHARE: f64 = 0.5;

impl Results {
    /// Returns a warning if other programs use so much of the machine that the figures are unreliable.
    #[must_use]
    pub fn disturbance(&self) -> Option<String> {
        let load = self.load_average.filter(|load| *load > self.cores as f64 * BUSY_SHARE)?;
        Some(format!(
            "this machine is busy with other programs (a load of {load:.1} on {} cores): times are longer and less reliable than on a quiet one",
            self.cores
        ))
    }
}

impl Row {
    /// Returns the ratio of the second server's time to the first one's, if there are two valid results.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match self.servers.as_slice() {
            [a, b] if a.impossible.is_none() && b.impossible.is_none() && a.real_s > 0.0 => Some(b.real_s / a.real_s),
            _ => None,
        }
    }
}

impl Row {
    /// Returns the range of ratios between single measurements of both servers.
    #[must_use]
    pub fn ratio_range(&self) -> Option<(f64, f64)> {
        let (_, [a, b]) = (self.ratio()?, self.servers.as_slice()) else { return None };
        let is_measured = a.rounds > 1 && b.rounds > 1 && a.real_min_s > 0.0;
        is_measured.then(|| (b.real_min_s / a.real_max_s, b.real_max_s / a.real_min_s))
    }
}

impl Experiment {
    /// Returns true if some rows have the document's time.
    #[must_use]
    pub fn has_document(&self) -> bool {
        self.rows.iter().any(|row| row.document_s.is_some())
    }

    /// Returns true if some figures are only rough.
    #[must_use]
    pub fn is_rough(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.servers).any(Cell::is_rough)
    }

    /// Returns true if a server, given by its number, has counted its commands.
    #[must_use]
    pub fn is_counted(&self, server: usize) -> bool {
        self.rows.iter().filter_map(|row| row.servers.get(server)).any(|cell| !cell.counted.is_empty())
    }
}

impl Depth {
    /// Returns the ratio of the second server's rate to the first one's, if there are two.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        match self.servers.as_slice() {
            [a, b] if a.per_second > 0.0 => Some(b.per_second / a.per_second),
            _ => None,
        }
    }
}

impl Cell {
    /// Returns true if only a part was done and the time is an estimate.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.impossible.is_none() && self.done < self.of
    }

    /// Returns half of the range of times, relative to the median; `None` for a single measurement.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let half = (self.real_max_s - self.real_min_s) / 2.0;
        (self.rounds > 1 && self.real_s > 0.0).then(|| half / self.real_s)
    }

    /// Returns true if the times differ so much that the figures are only rough.
    #[must_use]
    pub fn is_rough(&self) -> bool {
        self.spread().is_some_and(|spread| spread > SPREAD_MAX)
    }

    /// Returns the number of times that the server runs a command for the whole work; an estimate if the row was cut
    /// off.
    #[must_use]
    pub fn count(&self, command: &str) -> u64 {
        let counted = self.counted.get(command).copied().unwrap_or(0);
        if !self.is_cut_off() {
            return counted;
        }
        (counted as f64 * self.of as f64 / self.done.max(1) as f64).round() as u64
    }

    /// Returns the number of ZSCOREs saved compared with another variant.
    #[must_use]
    pub fn fewer(&self, than: &Cell) -> Option<u64> {
        than.count("zscore").checked_sub(self.count("zscore")).filter(|&fewer| fewer > 0)
    }
}

/// One line of a transcript.
#[derive(Serialize)]
pub struct TranscriptLine {
    /// Number of the server, from 0.
    pub server: usize,
    /// Time since the start of the variant, in milliseconds.
    pub at_ms: f64,
    /// Name of the variant.
    pub way: String,
    /// `Client` or `Server`.
    #[serde(rename = "who")]
    pub speaker: &'static str,
    /// The text.
    pub text: String,
}

/// Results of the sweep over pipeline depths.
#[derive(Serialize)]
pub struct Sweep {
    /// Size of the values that are read, in bytes.
    pub value_bytes: u64,
    /// One row for each depth.
    pub rows: Vec<Depth>,
}

/// Results of one depth.
#[derive(Serialize)]
pub struct Depth {
    /// Number of unanswered commands.
    pub depth: u64,
    /// Results for each server.
    pub servers: Vec<DepthCell>,
}

/// Result of one depth on one server.
#[derive(Serialize, Clone, Default)]
pub struct DepthCell {
    /// Commands per second over one connection.
    pub per_second: f64,
    /// Rate relative to the first depth.
    pub times: f64,
    /// CPU time of the server's process per command, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_ns_per_command: Option<f64>,
    /// Size of the replies to a pipeline of this depth, in bytes.
    pub reply_bytes: u64,
    /// Bytes of replies that the server keeps while the client doesn't read (`omem` of CLIENT LIST). The kernel buffers
    /// the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_bytes: Option<u64>,
    /// Growth of the server's memory during this time (`used_memory` of INFO).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_growth_bytes: Option<u64>,
    /// A remark.
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
    fn a_busy_machine_causes_a_warning() {
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
