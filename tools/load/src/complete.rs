//! The end of a complete load: its record in the state file, and the effect of another run of the same command line.
//!
//! A loader may be killed between its last reply and its exit, before it could report the end. The state file therefore
//! stays. Another run of the command line sends nothing, prints how the load ended, and returns the exit status of the
//! original loader.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::progress::{count, grouped, say};
use crate::source::Streamed;
use crate::state::{Phase, StateFile};

/// Result of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOutcome {
    /// Number of executed commands.
    pub executed: u64,
    /// Number of failed commands.
    pub failed: u64,
    /// True if `failed` is a lower bound, because the replies to merged commands were lost.
    #[serde(default)]
    pub failed_at_least: bool,
    /// Number of rejected lines.
    pub rejected: u64,
    /// Checksum of the data from pipes. Pipes have no modification time that could identify them.
    pub streamed: Streamed,
    /// Time of the end, in seconds of Unix time.
    pub ended_s: u64,
}

impl LoadOutcome {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        if self.failed + self.rejected > 0 { Exit::SomeFailed } else { Exit::Complete }
    }

    /// Formats the counts for the summary.
    pub fn figures(&self) -> String {
        let at_least = if self.failed_at_least { "at least " } else { "" };
        let (executed, failed) = (count(self.executed, "command"), grouped(self.failed));
        format!("{executed} executed, {at_least}{failed} failed, {} rejected", count(self.rejected, "line"))
    }
}

/// Returns the current Unix time in seconds.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Reports that the load was complete already, and its result.
///
/// A loader may have been killed before it removed its progress from the server. `clean_up` receives the token of the
/// load, removes the progress, and returns true if nothing is left.
///
/// # Errors
/// Returns an error if the data from a pipe differs from the loaded data, or if the state can't be written.
pub fn say_again(
    plan: &Plan,
    file: &mut StateFile,
    outcome: &LoadOutcome,
    clean_up: impl FnOnce(&str) -> bool,
) -> Result<Exit, Failure> {
    if !plan.is_streamed_again(&outcome.streamed)? {
        let text = format!(
            "standard input differs from the complete load in {}; nothing was sent: name another state file \
             with --state, or use --restart to replace this state",
            file.path().display()
        );
        return Err(Failure::new(Exit::Resume, text));
    }
    if file.state.progress.phase == Phase::Finished && clean_up(&file.state.name.token) {
        file.enter(Phase::Complete)?;
    }
    let ago = HumanDuration(Duration::from_secs(now_s().saturating_sub(outcome.ended_s)));
    say(&format!(
        "this load was completed {ago} ago: {}; nothing was sent, --restart loads it again",
        outcome.figures()
    ));
    Ok(outcome.exit())
}
