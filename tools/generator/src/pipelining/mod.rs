//! `penstock bench pipelining`: runs the documents' experiments on one server, or on two in alternation.

mod args;
mod depths;
mod experiments;
mod html;
mod movies;
mod results;
mod svg;
mod table;
mod target;
mod way;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::Config;

pub use args::PipeliningArgs;

use crate::embedded::Embedded;
use crate::failure::{self, Failure};
use crate::host;
use crate::interrupt::Interrupt;
use crate::output_file::OutputFile;
use args::Topic;
use experiments::Plan;
use results::{Cell, Depth, DepthCell, Experiment, Results, Row, Sweep, TranscriptLine};
use target::Target;
use way::Way;

/// Remarks on the sweep for the report.
const SWEEP_NOTE: &str = "Redis's manual, \"Request/Response protocols and RTT\", 2010: send commands up to a reasonable number, for \
                          instance 10,000, read the replies, and send again; the speed will be nearly the same, and the memory that the server \
                          needs to queue the replies is bounded. \"replies\" is the size of a pipeline's replies, \"queued\" \
                          the part that the server keeps while they are unread (the kernel's buffers hold the rest), \"memory\" \
                          the growth of the server's memory.";

/// Erases from the cursor to the end of the line (ECMA-48, EL).
const ERASE_TO_END: &str = "\x1b[K";

/// Runs the selected experiments.
pub fn run(args: &PipeliningArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let result = run_to_end(args, interrupt);
    // After Ctrl-C, later failures aren't reported.
    match result {
        Err(failure) if interrupt.is_pressed() => {
            let is_report = args.json || args.html.is_some();
            Err(failure.because(if is_report { Failure::InterruptedReport } else { Failure::Interrupted }))
        }
        Err(failure) => Err(failure),
        Ok(()) => Ok(()),
    }
}

fn run_to_end(args: &PipeliningArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    if args.wants(Topic::Depths) {
        args.check_depths().map_err(Failure::Usage)?;
    }
    let embedded = match args.url {
        None => {
            // A server that was started must also be stopped after Ctrl-C.
            interrupt.end_in_order();
            Some(Embedded::start(interrupt)?)
        }
        Some(_) => None,
    };
    let first = match (&args.url, &embedded) {
        (Some(url), _) => config(url)?,
        (None, Some(embedded)) => embedded.config(),
        (None, None) => unreachable!("a server was started where none was named"),
    };
    let mut configs = vec![first];
    configs.extend(args.against.as_deref().map(config).transpose()?);
    let targets = configs.iter().map(|config| Target::new(config, args.rtt, interrupt));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    // From here on, Ctrl-C ends the run in order, because there are results to print and keys to remove.
    interrupt.end_in_order();
    // An unwritable file must be reported before the measurements, which may take minutes.
    let page = args.html.as_deref().map(OutputFile::open).transpose()?;
    let mut session = ExperimentSession { args, interrupt, targets, out: io::stdout() };
    let results = session.measure()?;
    if let Some(page) = page {
        page.write(&html::page(&results))?;
    }
    if args.json {
        serde_json::to_writer(&mut session.out, &results).map_err(io::Error::from)?;
        writeln!(session.out)?;
    }
    Ok(())
}

fn config(url: &str) -> Result<Config, Failure> {
    let config = Config::parse(url)?;
    if config.tls {
        return Err(Failure::Usage("the experiments don't encrypt: use a redis:// URL".to_owned()));
    }
    Ok(config)
}

/// A run of the tool.
struct ExperimentSession<'a> {
    args: &'a PipeliningArgs,
    interrupt: &'a Interrupt,
    targets: Vec<Target>,
    out: io::Stdout,
}

impl ExperimentSession<'_> {
    /// Measures everything and prints each table at its end. If a failure ends the measurements, the finished rows are
    /// printed.
    fn measure(&mut self) -> Result<Results, Failure> {
        let mut results = self.empty_results();
        if !self.args.json {
            table::write_head(&mut self.out, &results)?;
        }
        for plan in experiments::plans(self.args) {
            let (experiment, ended) = self.experiment(&plan);
            let write = |out: &mut io::Stdout| table::write_experiment(out, &experiment, &results.servers);
            failure::both(self.print(experiment.rows.len(), plan.ways.len(), write), ended)?;
            results.experiments.push(experiment);
        }
        if self.args.wants(Topic::Depths) {
            let (sweep, ended) = self.sweep();
            let write = |out: &mut io::Stdout| table::write_sweep(out, &sweep, &results.servers);
            failure::both(self.print(sweep.rows.len(), self.args.depths().len(), write), ended)?;
            results.sweep = Some(sweep);
        }
        if !self.args.json {
            table::write_result(&mut self.out, &results)?;
        }
        Ok(results)
    }

    /// Prints a table with `rows` of `of` rows, with a remark if some are missing. JSON is only printed as a whole,
    /// because an incomplete document would look complete.
    fn print(
        &mut self,
        rows: usize,
        of: usize,
        write: impl FnOnce(&mut io::Stdout) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.show_progress("");
        if self.args.json || rows == 0 {
            return Ok(());
        }
        write(&mut self.out)?;
        if rows < of {
            table::write_unfinished(&mut self.out, rows, of)?;
        }
        Ok(())
    }

    fn empty_results(&mut self) -> Results {
        let uname = rustix::system::uname();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Results {
            program: "penstock bench pipelining",
            version: env!("CARGO_PKG_VERSION"),
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: format!(
                "{} {}, {cores} cores",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy(),
            ),
            load_average: host::load_average(),
            cores,
            added_rtt_ms: self.args.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            servers: self.targets.iter().map(|target| target.server.clone()).collect(),
            experiments: Vec::new(),
            sweep: None,
        }
    }

    /// Runs an experiment. Returns its finished rows and the result.
    fn experiment(&mut self, plan: &Plan<'_>) -> (Experiment, Result<(), Failure>) {
        let mut experiment = Experiment {
            id: plan.id,
            title: plan.title.clone(),
            note: plan.note.clone(),
            rows: Vec::new(),
            transcript: Vec::new(),
        };
        let measured = self.remove(plan).and_then(|()| {
            let measured = self.rows(plan, &mut experiment).map_err(Failure::reason);
            failure::both(measured, self.remove(plan))
        });
        set_times(&mut experiment.rows);
        (experiment, measured)
    }

    fn rows(&mut self, plan: &Plan<'_>, experiment: &mut Experiment) -> Result<(), Failure> {
        plan.ways.iter().try_for_each(|way| {
            if !way.keeps_keys {
                self.remove(plan)?;
            }
            let (row, transcript) = self.row(plan, way)?;
            experiment.rows.push(row);
            experiment.transcript.extend(transcript);
            Ok(())
        })
    }

    fn remove(&mut self, plan: &Plan<'_>) -> Result<(), Failure> {
        // The keys of each server are removed, even if another server fails.
        let mut removed = Ok(());
        for target in &mut self.targets {
            removed = failure::both(removed, target.remove(&plan.keys));
        }
        removed
    }

    /// Measures one variant on all servers in alternation. The first server alternates, too.
    fn row(&mut self, plan: &Plan<'_>, way: &Way<'_>) -> Result<(Row, Vec<TranscriptLine>), Failure> {
        let mut rounds: Vec<Vec<Cell>> = vec![Vec::new(); self.targets.len()];
        let (mut transcript, mut longest, mut round) = (Vec::new(), Duration::ZERO, 0);
        while self.args.wants_round(round, longest) {
            if round > 0 && !way.keeps_keys {
                self.remove(plan)?;
            }
            for turn in 0..self.targets.len() {
                let index = (turn + round as usize) % self.targets.len();
                self.show_progress(&format!("{}: {}", plan.title, way.label));
                let began = Instant::now();
                let (cell, lines) = self.cell(way, index)?;
                longest = longest.max(began.elapsed());
                rounds[index].push(cell);
                if round == 0 {
                    transcript.extend(lines.into_iter().map(|line| TranscriptLine { server: index, ..line }));
                }
            }
            round += 1;
        }
        let servers = rounds.into_iter().map(median).collect();
        Ok((Row { label: way.label.clone(), does: way.does, document_s: way.document_s, servers }, transcript))
    }

    fn cell(&mut self, way: &Way<'_>, index: usize) -> Result<(Cell, Vec<TranscriptLine>), Failure> {
        let ran = way::run(way, &mut self.targets[index], self.args.limit(), self.interrupt.flag());
        if self.interrupt.is_pressed() {
            return Err(Failure::Interrupted);
        }
        match ran {
            Err(Failure::Server(text)) if text.contains("unknown command") => {
                let impossible = Some(why_impossible(&text));
                Ok((Cell { impossible, of: way.parts, ..Cell::default() }, Vec::new()))
            }
            other => other,
        }
    }

    /// Runs the sweep. Returns its finished rows and the result.
    fn sweep(&mut self) -> (Sweep, Result<(), Failure>) {
        let mut rows = Vec::new();
        let measured = self.args.depths().into_iter().try_for_each(|depth| {
            rows.push(Depth { depth, servers: self.depth(depth)? });
            Ok(())
        });
        set_times_of_depths(&mut rows);
        (Sweep { value_bytes: self.args.value_bytes, rows }, measured)
    }

    fn depth(&mut self, depth: u64) -> Result<Vec<DepthCell>, Failure> {
        let mut servers = Vec::new();
        for index in 0..self.targets.len() {
            self.show_progress(&format!("pipelines {depth} deep"));
            let target = &mut self.targets[index];
            servers.push(depths::measure(target, depth, self.args.value_bytes, self.interrupt)?);
            if self.interrupt.is_pressed() {
                return Err(Failure::Interrupted);
            }
        }
        Ok(servers)
    }

    /// Shows the current step on the terminal, if there is one.
    fn show_progress(&self, text: &str) {
        if io::stderr().is_terminal() {
            // A closed terminal is no reason to stop measuring.
            let _ = write!(io::stderr(), "\r{text}{ERASE_TO_END}");
        }
    }
}

/// Shortens a server's error for an unknown command, because its text repeats all arguments.
fn why_impossible(text: &str) -> String {
    let what = text.split(", with args").next().unwrap_or(text).trim_start_matches("Error from server: ERR ");
    if what.contains("'SCRIPT'") || what.contains("'EVALSHA'") {
        return format!("not possible: this server has no scripting ({what})");
    }
    format!("not possible: {what}")
}

/// Returns the measurement with the median time (the slower one of the middle two for an even number), with the minimum
/// and maximum of all.
fn median(mut cells: Vec<Cell>) -> Cell {
    cells.sort_by(|a, b| a.real_s.total_cmp(&b.real_s));
    let real_s = |cell: Option<&Cell>| cell.map_or(0.0, |cell| cell.real_s);
    let (rounds, real_min_s, real_max_s) = (cells.len() as u64, real_s(cells.first()), real_s(cells.last()));
    let middle = cells.len() / 2;
    Cell { rounds, real_min_s, real_max_s, ..cells.swap_remove(middle) }
}

/// Sets the speedup of each row over the first comparable row on the same server.
fn set_times(rows: &mut [Row]) {
    let mut firsts: Vec<(&'static str, Vec<f64>)> = Vec::new();
    for row in rows {
        if firsts.iter().all(|(does, _)| *does != row.does) {
            firsts.push((row.does, row.servers.iter().map(|cell| cell.real_s).collect()));
        }
        let first = firsts.iter().find(|(does, _)| *does == row.does).map(|(_, first)| first.as_slice());
        for (cell, first) in row.servers.iter_mut().zip(first.unwrap_or_default()) {
            cell.times = first / cell.real_s.max(f64::MIN_POSITIVE);
        }
    }
}

fn set_times_of_depths(rows: &mut [Depth]) {
    let Some(first) = rows.first().map(|row| row.servers.clone()) else { return };
    for row in rows {
        for (cell, first) in row.servers.iter_mut().zip(&first) {
            let DepthCell { per_second, .. } = *first;
            cell.times = cell.per_second / per_second.max(f64::MIN_POSITIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(real_s: f64) -> Cell {
        Cell { real_s, ..Cell::default() }
    }

    #[test]
    fn times_compare_with_the_first_row_of_the_same_server() {
        let row = |does, a, b| Row { label: String::new(), does, document_s: None, servers: vec![cell(a), cell(b)] };
        let mut rows = [row("write", 4.0, 9.0), row("read", 1.0, 8.0), row("write", 2.0, 3.0), row("read", 0.5, 4.0)];
        set_times(&mut rows);
        let times: Vec<f64> = rows.iter().flat_map(|row| row.servers.iter().map(|cell| cell.times)).collect();
        assert_eq!(times, [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 2.0, 2.0]);
    }

    #[test]
    fn a_server_without_scripting_is_said_to_have_none() {
        let text = "Error from server: ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 'return 1'";
        assert_eq!(why_impossible(text), "not possible: this server has no scripting (unknown command 'SCRIPT')");
        let text = "Error from server: ERR unknown command 'ZADD', with args beginning with: 'a'";
        assert_eq!(why_impossible(text), "not possible: unknown command 'ZADD'");
    }

    #[test]
    fn the_median_is_one_of_the_runs() {
        let shown = median(vec![cell(3.0), cell(1.0), cell(2.0)]);
        assert_eq!((shown.real_s, shown.rounds, shown.real_min_s, shown.real_max_s), (2.0, 3, 1.0, 3.0));
        assert_eq!(median(vec![cell(3.0)]).real_s, 3.0);
    }
}
