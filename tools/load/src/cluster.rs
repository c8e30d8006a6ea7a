//! Loads into a cluster: a chunk of commands at a time, to all nodes at once.
//!
//! Each command goes to the node with its key's slot. The commands of a slot are executed in input order.
//!
//! With `--resume`, the commands of a chunk that belong to one slot are a transaction, which also writes the number of
//! its last command into a marker key of that slot. A marker moves with its slot and survives a failover together with
//! the data. A later run, or a later attempt after a broken connection, waits for the end of the earlier connections
//! ([`earlier`]), reads the markers and omits the executed commands.
//! Markers need nothing from the server but MULTI, SET and GET.

mod chunk;
mod earlier;
mod markers;

use std::time::Instant;

use client::cluster::{Cluster, Slot};

use crate::args::LoadOptions;
use crate::block_channel::{BlockChannel, Taken};
use crate::complete::{LoadOutcome, now_s, say_again};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::limits::{ARGS_MAX, BLOCKS_BYTES};
use crate::merge::Merging;
use crate::progress::{Figures, ProgressDisplay, count};
use crate::report::Report;
use crate::run::{last_reported, open_state_file, say_unshown, seconds, sink, start_progress, start_reading, summary};
use crate::session::server_failure;
use crate::source::Tally;
use crate::state::{Phase, Reported};
use chunk::Chunk;
use markers::Markers;

/// Maximum size of a chunk. The reader fills the rest of the queue meanwhile.
const CHUNK_BYTES_MAX: usize = BLOCKS_BYTES / 2;

/// A load into a cluster.
struct ClusterLoad<'l> {
    options: &'l LoadOptions,
    cluster: Cluster,
    block_channel: &'l BlockChannel,
    report: Report,
    progress: ProgressDisplay,
    interrupt: Interrupt,
    /// Present with `--resume`.
    markers: Option<Markers>,
    /// All commands before this number are done.
    done: u64,
    /// Number of commands that were executed, also unsuccessfully, by this run or an earlier one.
    executed: u64,
    /// Number of commands that were executed by an earlier run and have unknown replies.
    unknown: u64,
    input_bytes: u64,
}

/// The reason for the end of a load.
enum End {
    /// All inputs were loaded, or as much as could be read.
    Input(Result<(), Failure>),
    Interrupted,
    AtError,
}

/// Loads into a cluster.
pub fn load(options: &LoadOptions) -> Result<Exit, Failure> {
    options.plan.check()?;
    let server = format!("cluster {}/{}", options.config.address, options.config.db);
    let resume = options.resume.as_ref();
    let mut file = resume.map(|resume| open_state_file(options, resume, &server)).transpose()?;
    if let Some(file) = &mut file
        && let Some(outcome) = file.state.outcome.clone()
    {
        let clean_up = |token: &str| {
            Cluster::connect(&options.config).is_ok_and(|mut cluster| markers::remove(&mut cluster, token, Slot::all()))
        };
        return say_again(&options.plan, file, &outcome, clean_up);
    }
    let mut config = options.config.clone();
    let markers = file.zip(resume).map(|(file, resume)| Markers::new(file, resume, &mut config));
    let goes_on = markers.as_ref().is_some_and(Markers::goes_on);
    let progress = start_progress(options);
    let mut report = Report::new(sink(options, &progress, goes_on)?, options.plan.names());
    if let Some(markers) = &markers {
        // Rejected lines are found again. Failed commands aren't sent again.
        report.expect_earlier(0, markers.reported_before().rejected);
    }
    if goes_on && let Some(written) = options.errors.as_deref().and_then(|path| last_reported(path, &options.plan)) {
        report.skip_until(written);
    }
    let interrupt = Interrupt::listen();
    let cluster = interrupt.wait_for(move || Cluster::connect(&config))?;
    let cluster = cluster.map_err(|error| server_failure(&error))?;
    let (block_channel, tally) = start_reading(&options.plan, Merging::default(), ARGS_MAX, options.resume.is_some())?;
    let mut load = ClusterLoad {
        options,
        cluster,
        block_channel: &block_channel,
        report,
        progress,
        interrupt,
        markers,
        done: 0,
        executed: 0,
        unknown: 0,
        input_bytes: 0,
    };
    let ran = load.run();
    block_channel.stop();
    load.progress.finish();
    load.conclude(&tally, ran)
}

impl ClusterLoad<'_> {
    fn run(&mut self) -> Result<End, Failure> {
        if let Some(markers) = &mut self.markers {
            markers.start(&mut self.cluster)?;
        }
        loop {
            let (chunk, end) = self.next_chunk();
            let loaded = self.load_chunk(&chunk);
            chunk.into_blocks().for_each(|block| self.block_channel.give_back(block));
            loaded?;
            self.report.flush()?;
            let figures = Figures { commands: self.done, errors: self.report.errors(), input_bytes: self.input_bytes };
            self.progress.show(Instant::now(), figures);
            if let Some(end) = end {
                return Ok(End::Input(end));
            }
            if self.interrupt.was_asked() {
                return Ok(End::Interrupted);
            }
            if self.options.stop_on_error && self.report.has_news() {
                return Ok(End::AtError);
            }
        }
    }

    /// Waits for blocks, and returns those that have arrived, up to the size of a chunk.
    fn next_chunk(&mut self) -> (Chunk, Option<Result<(), Failure>>) {
        let mut chunk = Chunk::default();
        loop {
            match self.block_channel.take() {
                Taken::Block(block) => {
                    chunk.push(block);
                    if chunk.len() as u64 >= self.options.chunk || chunk.bytes() >= CHUNK_BYTES_MAX {
                        return (chunk, None);
                    }
                }
                Taken::End(end) => return (chunk, Some(end)),
                Taken::Nothing if chunk.is_empty() && !self.interrupt.was_asked() => self.block_channel.wait(),
                Taken::Nothing => return (chunk, None),
            }
        }
    }

    /// Loads a chunk, and reports its errors in input order.
    fn load_chunk(&mut self, chunk: &Chunk) -> Result<(), Failure> {
        let Some(end) = chunk.end() else { return Ok(()) };
        chunk.refuse_transactions(&self.report)?;
        let mut results = chunk.results(&self.cluster);
        let loaded = match &mut self.markers {
            Some(markers) => markers.load(&mut self.cluster, chunk, &mut results, &self.interrupt),
            None => chunk.load(&mut self.cluster, &mut results, &self.report),
        };
        self.executed += results.executed();
        self.unknown += results.unknown();
        chunk.report(&results, &mut self.report);
        loaded?;
        self.done = end;
        self.input_bytes = chunk.input_bytes();
        let reported = self.reported();
        match &mut self.markers {
            Some(markers) => markers.note(self.done, reported),
            None => Ok(()),
        }
    }

    /// Returns the number of failed commands of this run and the earlier ones.
    fn failed(&self) -> u64 {
        self.report.failures() + self.markers.as_ref().map_or(0, |markers| markers.reported_before().failed)
    }

    fn reported(&self) -> Reported {
        Reported {
            requests: self.done,
            failed_requests: self.failed(),
            failed: self.failed(),
            rejected: self.report.rejected_lines(),
            is_all: true,
        }
    }

    /// Prints the result of the load, and records it if it is complete.
    fn conclude(mut self, tally: &Tally, ran: Result<End, Failure>) -> Result<Exit, Failure> {
        self.report.flush()?;
        say_unshown(&self.report);
        let outcome = LoadOutcome {
            executed: self.executed,
            failed: self.failed(),
            failed_at_least: self.unknown > 0,
            rejected: self.report.rejections(),
            streamed: tally.streamed(),
            ended_s: now_s(),
        };
        if self.executed > 0 || ran.is_ok() {
            summary(self.options.quiet, &outcome.figures());
            let rate = self.progress.rate(self.executed);
            let elapsed = seconds(self.progress.elapsed());
            summary(self.options.quiet, &format!("{elapsed}, {} a second", count(rate as u64, "command")));
        }
        match ran? {
            End::Interrupted => Err(Failure::new(
                Exit::Interrupted,
                format!("interrupted after {}; all were answered", count(self.done, "command")),
            )),
            End::AtError => Err(Failure::new(
                Exit::SomeFailed,
                format!(
                    "stopped after {}, because of an error at {}",
                    count(self.done, "command"),
                    self.report.first_place()
                ),
            )),
            End::Input(end) => {
                end?;
                let exit = outcome.exit();
                if let Some(markers) = &mut self.markers {
                    markers.finish(&mut self.cluster, outcome)?;
                }
                Ok(exit)
            }
        }
    }
}

impl Markers {
    /// Returns true if an earlier run of this load has begun.
    fn goes_on(&self) -> bool {
        self.phase() != Phase::New
    }
}
