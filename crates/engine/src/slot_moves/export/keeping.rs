//! The wait for the target's claim, and the end of an export whose target has not claimed the slots.
//!
//! The target may have saved its claim and have ended before it told anybody, or its replicas may know of the claim alone. One of them
//! could claim the slots much later, and the writes of clients in between would be lost. This node therefore takes an epoch above the one
//! of that claim, and lets writes go on once its own claim is on disk.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cluster::commands::{ClusterCommand, ClusterReply};
use config::LogLevel;

use super::{CLAIM_TIME_MIN, Export, NOT_CLAIMED, NOT_MINE};
use crate::slot_moves::awaited::Awaited;
use crate::slots::bus::{Answer, BusRequest};

/// The new claim of this node.
pub(super) struct Keeping {
    answer: Awaited<ClusterReply>,
    began: Duration,
}

impl Keeping {
    /// Waits for the bus, at most for this time.
    pub(super) fn block(&mut self, longest: Duration) {
        self.answer.block(longest);
    }
}

impl Export {
    /// The time after the grant in which the target must claim the slots.
    fn claim_time(&self) -> Duration {
        self.hold_time().max(CLAIM_TIME_MIN)
    }

    /// Takes a step after the grant. Returns true once the target has claimed the slots.
    pub(super) fn await_claim(&mut self) -> Result<bool, String> {
        if self.is_claimed() {
            return Ok(true);
        }
        // A replica of the target may have won an election, and have them.
        if self.is_lost() {
            return Err(NOT_MINE.into());
        }
        if self.keeping.is_some() {
            return self.keep();
        }
        let is_late = |granted| self.now.saturating_sub(granted) > self.claim_time();
        if self.granted.is_none_or(is_late) {
            let (sender, answer) = sync_channel(1);
            let command = ClusterCommand::KeepSlots { slots: Box::new(self.job.slots.clone()) };
            self.engine.host.cluster(BusRequest { command, answer: Answer::Machine(sender) })?;
            self.keeping = Some(Keeping { answer: Awaited::new(answer), began: self.now });
        }
        Ok(false)
    }

    /// Waits for the claim of this node.
    fn keep(&mut self) -> Result<bool, String> {
        let longest = self.claim_time();
        let Some(keeping) = &mut self.keeping else { return Ok(false) };
        match keeping.answer.take() {
            None if self.now.saturating_sub(keeping.began) <= longest => Ok(false),
            Some(Ok(ClusterReply::Ok)) => {
                let text = format!(
                    "The target of the export {} has not claimed the slots: this node keeps them",
                    self.job.name
                );
                self.log(LogLevel::Warning, &text);
                Err(NOT_CLAIMED.into())
            }
            _ => {
                let text = format!(
                    "The target of the export {} was granted the slots and has not claimed them. If it does so later, \
                     writes of clients from now on are lost",
                    self.job.name
                );
                self.log(LogLevel::Warning, &text);
                Err(NOT_CLAIMED.into())
            }
        }
    }

    /// Returns true if this node has lost one of the slots.
    fn is_lost(&self) -> bool {
        self.engine.slots.view().is_none_or(|view| !view.is_primary() || !self.owner_is(&view, None))
    }
}
