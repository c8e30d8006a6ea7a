//! Runs histories: `penstock-simulator <first seed> <count>`. Reports a failing history with the seed that repeats it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use penstock_simulator::world::{HistoryFigures, run_history};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (Some(first), count) = (numbers.next(), numbers.next().unwrap_or(1)) else {
        eprintln!("usage: penstock-simulator <first seed> [<count>]");
        return ExitCode::from(2);
    };
    let (mut failed, mut sum) = (0, HistoryFigures::default());
    for seed in first..first.saturating_add(count) {
        match run_history(seed) {
            Ok(figures) => sum.add(&figures),
            Err(why) => {
                eprintln!("{why}\n");
                failed += 1;
            }
        }
    }
    println!("{count} histories, {failed} failed: {sum:?}");
    // A history without events would keep every promise, so a minimum of events is required.
    let is_idle =
        count >= 100 && (sum.operations < 20 * count || sum.compared < 10 * count || sum.failovers < count / 2);
    if is_idle {
        eprintln!("the histories have too few operations, comparisons or failovers to prove anything");
    }
    if failed == 0 && !is_idle { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
