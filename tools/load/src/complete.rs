//! A complete load: what it leaves in its state, and what a further run of the same command line makes of that.
//!
//! A loader may be killed between its last reply and its exit, before it could report that the load is complete. So
//! the state stays. A further run of the command line tells how the load ended, by a line and by the exit status that
//! its loader had or would have had, and sends nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::Config;
use indicatif::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::progress::{count, grouped, say};
use crate::session::end_token;
use crate::source::Streamed;
use crate::state::{Phase, StateFile};

/// How a load ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOutcome {
    /// Commands that ran.
    pub executed: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Whether they are so many at least: of merged commands with lost replies, it is unknown how many failed.
    #[serde(default)]
    pub failed_at_least: bool,
    /// Lines that were no commands.
    pub rejected: u64,
    /// What came from pipes, which have no date by which to know them again.
    pub streamed: Streamed,
    /// When: seconds of Unix time.
    pub ended_s: u64,
}

impl LoadOutcome {
    /// The exit status.
    pub fn exit(&self) -> Exit {
        if self.failed + self.rejected > 0 { Exit::SomeFailed } else { Exit::Complete }
    }

    /// The figures of the summary.
    pub fn figures(&self) -> String {
        let at_least = if self.failed_at_least { "at least " } else { "" };
        let (executed, failed) = (count(self.executed, "command"), grouped(self.failed));
        format!("{executed} executed, {at_least}{failed} failed, {} rejected", count(self.rejected, "line"))
    }
}

/// Seconds of Unix time.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Says that the load was complete already, and how it ended.
///
/// # Errors
/// What comes from a pipe is not what was loaded; the state can't be written.
pub fn say_again(plan: &Plan, config: &Config, file: &mut StateFile, outcome: &LoadOutcome) -> Result<Exit, Failure> {
    if !plan.is_streamed_again(&outcome.streamed)? {
        let text = format!(
            "standard input is not what the load was of that {} knows as complete: nothing was sent; name another file \
             for this one's state with --state, or --restart to forget that one",
            file.path().display()
        );
        return Err(Failure::new(Exit::Resume, text));
    }
    if file.state.progress.phase == Phase::Finished && end_token(config, &file.state.name.token) {
        file.enter(Phase::Complete)?;
    }
    let ago = HumanDuration(Duration::from_secs(now_s().saturating_sub(outcome.ended_s)));
    say(&format!(
        "this load was complete already, {ago} ago: {}; nothing was sent, --restart loads it again",
        outcome.figures()
    ));
    Ok(outcome.exit())
}
