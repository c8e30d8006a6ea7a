//! LATENCY: samples of slow events, and distributions of the durations of all commands and batches.
//!
//! Source of the semantics: Redis's pages of LATENCY DOCTOR, GRAPH, HISTOGRAM, HISTORY, LATEST and RESET. The texts for
//! people (DOCTOR, GRAPH) are Penstock's own, and so is BATCHES.

pub(crate) mod batches;
mod text;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, fact};

use crate::families::help::help;
use crate::machine::version::PENSTOCK_VERSION;
use crate::worker::Worker;
use crate::worker::turn::{Run, Turn};
use commands::table::{Command, Table};
use statistics::histogram::Distribution;
use statistics::latency_monitor::Sample;
use statistics::ticks::per_microsecond;

const FLAGS: u32 = ADMIN | NOSCRIPT | LOADING | STALE;
const LOOK_TIPS: &[&str] = &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];
/// The first step of HISTOGRAM, in nanoseconds; each next one is twice as large.
const FIRST_STEP_NS: u64 = 1024;
/// Number of steps; the last one is a little more than an hour.
const STEPS: u32 = 32;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("latency", -2, 0, Run::Session(latency_help))
    .docs(Group::Server, "2.8.13", "Depends on subcommand.", "Shows slow events and commands' durations.", "")
    .subcommands(&[
        Spec::new("batches", -2, FLAGS, Run::Session(batches::batches))
            .docs(
                Group::Server,
                PENSTOCK_VERSION,
                "O(1)",
                "Answers how long batches take and wait, by depth, as cumulative distributions.",
                "[RESET]",
            )
            .tips(LOOK_TIPS),
        Spec::new("doctor", 2, FLAGS, Run::Session(doctor))
            .facts(fact::TELLS)
            .docs(Group::Server, "2.8.13", "O(1)", "Returns a report on slow events, for people.", "")
            .tips(LOOK_TIPS),
        Spec::new("graph", 3, FLAGS, Run::Session(graph))
            .facts(fact::TELLS)
            .docs(Group::Server, "2.8.13", "O(1)", "Draws the latest slow moments of an event.", "event")
            .tips(LOOK_TIPS),
        Spec::new("help", 2, LOADING | STALE, Run::Session(latency_help)).docs(
            Group::Server,
            "2.8.13",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("histogram", -2, FLAGS, Run::Session(histogram))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                "7.0.0",
                "O(N) where N is the number of commands with latency information being retrieved.",
                "Answers how long commands take, as cumulative distributions.",
                "[command [command ...]]",
            )
            .tips(LOOK_TIPS),
        Spec::new("history", 3, FLAGS, Run::Session(history))
            .facts(fact::TELLS)
            .docs(Group::Server, "2.8.13", "O(1)", "Answers the latest slow moments of an event.", "event")
            .tips(LOOK_TIPS),
        Spec::new("latest", 2, FLAGS, Run::Session(latest))
            .facts(fact::TELLS)
            .docs(Group::Server, "2.8.13", "O(1)", "Answers the last slow moment of every event.", "")
            .tips(LOOK_TIPS),
        Spec::new("reset", -2, FLAGS, Run::Session(reset))
            .docs(
                Group::Server,
                "2.8.13",
                "O(1)",
                "Forgets the slow moments of some events or all.",
                "[event [event ...]]",
            )
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ])];

fn latest(turn: &mut Turn<'_, '_>) -> Outcome {
    let all = turn.engine().latency.all();
    turn.reply.array(all.len());
    for (event, series) in all {
        let last = series.samples.back().copied().unwrap_or(Sample { time_s: 0, took_ms: 0 });
        turn.reply.array(4);
        turn.reply.bulk(event);
        turn.reply.int(last.time_s as i64);
        turn.reply.int(last.took_ms as i64);
        turn.reply.int(series.max_ms as i64);
    }
    Ok(())
}

fn history(turn: &mut Turn<'_, '_>) -> Outcome {
    let series = turn.engine().latency.series(turn.arg(2)).unwrap_or_default();
    turn.reply.array(series.samples.len());
    for sample in series.samples {
        turn.reply.array(2);
        turn.reply.int(sample.time_s as i64);
        turn.reply.int(sample.took_ms as i64);
    }
    Ok(())
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    let monitor = &turn.engine().latency;
    let count = match turn.len() {
        2 => monitor.reset_all(),
        _ => turn.args.from(2).filter(|event| monitor.reset(event)).count(),
    };
    turn.reply.count(count);
    Ok(())
}

fn graph(turn: &mut Turn<'_, '_>) -> Outcome {
    let Some(series) = turn.engine().latency.series(turn.arg(2)) else {
        return Err(Error::naming("ERR No samples available for event '", turn.arg(2), "'"));
    };
    let now_s = turn.now_ms() / 1000;
    let name = String::from_utf8_lossy(turn.arg(2));
    turn.reply.verbatim("txt", text::graph(&name, &series, now_s));
    Ok(())
}

fn doctor(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let report = text::report(engine.settings.latency_monitor_threshold_ms.get(), &engine.latency.all());
    turn.reply.verbatim("txt", report);
    Ok(())
}

/// Returns the distribution of a command's durations so far, on all threads.
pub(crate) fn distribution(worker: &Worker, command: &Command) -> Distribution {
    Distribution::of(worker.engine.stats.iter().filter_map(|s| s.commands.get(command.id)).map(|c| &c.histogram))
}

fn histogram(turn: &mut Turn<'_, '_>) -> Outcome {
    let table = turn.engine().table;
    let asked: Vec<&Command> = match turn.len() {
        2 => table.all().iter().collect(),
        _ => turn
            .args
            .from(2)
            .filter_map(|name| table.find_full(name))
            .flat_map(|c| with_subcommands(table, c))
            .collect(),
    };
    let all = asked.into_iter().map(|command| (command, distribution(turn.worker, command)));
    let used: Vec<_> = all.filter(|(_, distribution)| distribution.count() > 0).collect();
    turn.reply.map(used.len());
    for (command, distribution) in used {
        turn.reply.bulk(&command.name);
        turn.reply.map(2);
        turn.reply.bulk("calls");
        turn.reply.int(distribution.count() as i64);
        turn.reply.bulk("histogram_usec");
        let steps = steps(&distribution);
        turn.reply.map(steps.len());
        for (us, count) in steps {
            turn.reply.int(us as i64);
            turn.reply.int(count as i64);
        }
    }
    Ok(())
}

/// Returns a command with its subcommands, for HISTOGRAM.
fn with_subcommands(table: &'static Table, command: &'static Command) -> impl Iterator<Item = &'static Command> {
    let subcommands = command.subcommands.iter().filter_map(|&id| table.all().get(id));
    std::iter::once(command).chain(subcommands)
}

/// Returns the steps at which a cumulative distribution grows: microseconds, and the number of calls up to that
/// duration.
fn steps(distribution: &Distribution) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for doubling in 0..STEPS {
        // The end of the bucket in Redis's histogram, with buckets a 128th as wide as their values.
        let start_ns = FIRST_STEP_NS << doubling;
        let end_ns = start_ns + start_ns / 128 - 1;
        let count = distribution.count_up_to((end_ns as f64 / 1000.0 * per_microsecond()) as u64);
        if count > steps.last().map_or(0, |&(_, count)| count) {
            steps.push((end_ns / 1000, count));
        }
    }
    steps
}

fn latency_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "BATCHES [RESET]",
        "    Return the times of batches by depth, with the parts that they consist of. RESET removes them.",
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "GRAPH <event>",
        "    Return an ASCII latency graph for the <event> class.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
        "    If no commands are specified then all histograms are replied.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::slow;
    use crate::testing::{Bench, check};
    use statistics::histogram::Histogram;

    #[test]
    fn slow_events_are_shown_and_reset() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.line(&mut session, "CONFIG SET latency-monitor-threshold 10");
        let ticks = |ms: f64| (ms * 1000.0 * per_microsecond()) as u64;
        for ms in [9.0, 12.5, 11.5] {
            slow::note_moment(&bench.worker, "command", ticks(ms));
        }
        bench.check(
            &mut session,
            &[
                ("LATENCY LATEST", "*1|*4|$7|command|:1700000000|:12|:12"),
                ("LATENCY HISTORY command", "*1|*2|:1700000000|:12"),
                ("LATENCY HISTORY nosuch", "*0"),
                ("LATENCY GRAPH \"no\\x00such\"", "-ERR No samples available for event 'no'"),
                ("LATENCY GRAPH nosuch", "-ERR No samples available for event 'nosuch'"),
                ("LATENCY RESET nosuch command", ":1"),
                ("LATENCY LATEST", "*0"),
                ("LATENCY RESET", ":0"),
            ],
        );
    }

    #[test]
    fn histograms_show_executed_commands() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for line in ["GET k", "GET k", "CONFIG GET port"] {
            bench.line(&mut session, line);
        }
        let reply = bench.line(&mut session, "LATENCY HISTOGRAM get config set nosuch");
        assert!(reply.starts_with("*4|$3|get|*4|$5|calls|:2|$14|histogram_usec|*"), "{reply}");
        assert!(reply.contains("|$10|config|get|*4|$5|calls|:1|$14|histogram_usec|*2|:"), "{reply}");
        bench.check(
            &mut session,
            &[
                ("CONFIG SET latency-tracking no", "+OK"),
                ("GET k", "$-1"),
                ("LATENCY HISTOGRAM get", "*0"),
                ("CONFIG SET latency-tracking yes", "+OK"),
                ("LATENCY HISTOGRAM get", "*0"),
            ],
        );
        check(&[("LATENCY HISTOGRAM", "*0")]);
    }

    #[test]
    fn steps_double_and_are_named_as_in_redis() {
        let histogram = Histogram::default();
        let us = |us: f64| (us * per_microsecond()) as u64;
        [0.5, 1.5, 30.0, 30.0, 1000.0].iter().for_each(|&v| histogram.record(&[us(v)]));
        let steps = steps(&Distribution::of([&histogram].into_iter()));
        assert_eq!(steps, [(1, 1), (2, 2), (33, 4), (1056, 5)]);
    }
}
