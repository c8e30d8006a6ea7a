//! The sections with a line for each command or kind of error.

use crate::families::observability::latency::distribution;
use statistics::stats::{CommandStats, errors_by_code};
use statistics::ticks::to_microseconds;

use super::{Gathered, InfoText, Microseconds};

pub(super) fn calls(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let engine = gathered.turn.engine();
    for command in gathered.turn.engine().table.all() {
        let sum = |figure: fn(&CommandStats) -> u64| -> u64 {
            engine.stats.iter().filter_map(|s| s.commands.get(command.id)).map(figure).sum()
        };
        let (calls, rejected, failed) = (sum(|c| c.calls.get()), sum(|c| c.rejected.get()), sum(|c| c.failed.get()));
        if calls == 0 && rejected == 0 && failed == 0 {
            continue;
        }
        let usec = to_microseconds(sum(|c| c.ticks.get()));
        let per_call = if calls == 0 { 0.0 } else { usec / calls as f64 };
        text.field(
            &format!("cmdstat_{}", command.name),
            format_args!(
                "calls={calls},usec={usec:.0},usec_per_call={per_call:.2},\
                 rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

pub(super) fn errors(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    for (code, count) in errors_by_code(&gathered.turn.engine().stats) {
        text.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

pub(super) fn latencies(gathered: &mut Gathered<'_, '_, '_>, text: &mut InfoText) {
    let worker = &*gathered.turn.worker;
    let percentiles = worker.engine.settings.latency_tracking_info_percentiles.get();
    for command in gathered.turn.engine().table.all() {
        let distribution = distribution(worker, command);
        if distribution.count() == 0 {
            continue;
        }
        let shown = percentiles.split_whitespace().filter_map(|p| Some((p, p.parse().ok()?)));
        text.parts(&["latency_percentiles_usec_", &command.name]);
        for (index, (p, percent)) in shown.enumerate() {
            text.parts(&[if index == 0 { ":p" } else { ",p" }, p, "="]);
            text.add(Microseconds(to_microseconds(distribution.percentile(percent))));
        }
        text.last("");
    }
}
