//! The server's figures for the HTTP port: samples for the history, and readiness for orchestrators.

use engine::replication::LinkState;
use engine::state::Engine;
use front::history::FigureKind::{Counter, Gauge};
use front::history::{CommandFigures, Figure, Sample};
use statistics::batch_times::{self, BatchHistograms, DEPTH_CLASSES, PARTS};
use statistics::histogram::Distribution;
use statistics::stats::{CommandStats, Totals, WorkerStats};
use statistics::ticks::to_microseconds;

/// The names of the figures of a class of depth: the number of its batches, then the time of each part.
macro_rules! class_names {
    ($depth:literal) => {
        (
            concat!("batches_", $depth),
            [
                concat!("batches_", $depth, "_turn_us"),
                concat!("batches_", $depth, "_execution_us"),
                concat!("batches_", $depth, "_disk_us"),
                concat!("batches_", $depth, "_replicas_us"),
                concat!("batches_", $depth, "_client_us"),
            ],
        )
    };
}

/// Figures have static names, so the classes and parts are repeated here; a test compares them.
const CLASS_NAMES: [(&str, [&str; PARTS]); DEPTH_CLASSES] =
    [class_names!("1"), class_names!("2-15"), class_names!("16-127"), class_names!("128+")];

/// Reads the figures.
pub fn sample(engine: &'static Engine, connected: usize) -> Sample {
    let totals = Totals::of(&engine.stats);
    let counter = |name, value: u64| Figure { name, kind: Counter, value: value as f64 };
    let gauge = |name, value: u64| Figure { name, kind: Gauge, value: value as f64 };
    let us = |name, ticks| Figure { name, kind: Counter, value: to_microseconds(ticks) };
    let mut figures = vec![
        counter("commands", totals.executed),
        counter("batches", totals.round_trips),
        us("command_us", totals.command_ticks),
        us("turn_us", totals.turn_ticks),
        counter("hits", totals.hits),
        counter("misses", totals.misses),
        counter("expired", totals.expired),
        counter("evicted", totals.evicted),
        counter("errors", totals.errors),
        counter("connections", totals.connections),
        counter("input", totals.net_in),
        counter("output", totals.net_out),
        counter("reads", totals.reads),
        counter("writes", totals.writes),
        gauge("memory", engine.host.used_memory()),
        gauge("resident", engine.host.resident_memory()),
        gauge("clients", connected as u64),
        gauge("unread", engine.replies.memory.get() + engine.replies.spill_bytes.get()),
    ];
    figures.extend(batches(&engine.stats));
    Sample { figures, commands: commands(engine), durations: durations(&engine.stats) }
}

/// Returns the number of batches of each class of depth, and the time of each part.
fn batches(stats: &[WorkerStats]) -> Vec<Figure> {
    let all: Vec<&BatchHistograms> = stats.iter().map(|stats| &stats.batch_times).collect();
    let counter = |name, value| Figure { name, kind: Counter, value };
    let classes = batch_times::sums(&all).into_iter().zip(CLASS_NAMES);
    let figures = classes.flat_map(|(class, (batches, parts))| {
        let parts = parts.into_iter().zip(class.parts_us).map(|(name, us)| counter(name, us));
        std::iter::once(counter(batches, class.batches as f64)).chain(parts.collect::<Vec<_>>())
    });
    figures.collect()
}

fn commands(engine: &'static Engine) -> Vec<CommandFigures> {
    let all = engine.table.all().iter().filter_map(|command| {
        let sum = |figure: fn(&CommandStats) -> u64| -> u64 {
            engine.stats.iter().filter_map(|stats| stats.commands.get(command.id)).map(figure).sum()
        };
        let calls = sum(|stats| stats.calls.get());
        let total_us = to_microseconds(sum(|stats| stats.ticks.get()));
        (calls > 0).then_some(CommandFigures { name: &command.name, calls, total_us })
    });
    all.collect()
}

fn durations(stats: &[WorkerStats]) -> Vec<(f64, u64)> {
    let all = stats.iter().flat_map(|stats| stats.commands.iter()).map(|command| &command.histogram);
    Distribution::of(all).counts().map(|(ticks, count)| (to_microseconds(ticks), count)).collect()
}

/// Checks that clients can use the server.
///
/// # Errors
/// The reason against it, for people.
pub fn readiness(engine: &Engine) -> Result<(), &'static str> {
    if engine.is_loading() {
        return Err("the server is loading its data");
    }
    if engine.replication.primary().0.is_some() && engine.replication.link().state != LinkState::Up {
        return Err("the replica has no link to its primary");
    }
    if engine.refuses_writes() {
        return Err("the disk is failing, so commands that write are refused");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use statistics::batch_times::Part;

    use super::*;

    #[test]
    fn figures_of_batches_are_named_by_class_and_part() {
        for (class, (batches, parts)) in batch_times::sums(&[]).iter().zip(CLASS_NAMES) {
            assert_eq!(batches, format!("batches_{}", class.depth));
            assert_eq!(parts.to_vec(), Part::ALL.map(|part| format!("{batches}_{}_us", part.name())).to_vec());
        }
    }
}
