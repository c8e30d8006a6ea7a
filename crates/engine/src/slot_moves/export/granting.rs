//! The grant: the bus notes that the slots may go, then the target learns it.
//!
//! The target claims the slots with the next epoch that it knows. The bus grants them once that epoch is above this node's, and takes no
//! epoch until the claim comes. Otherwise two nodes could claim the slots in one epoch.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cluster::commands::{ClusterCommand, ClusterReply};

use super::{Export, NOT_PAUSED, UNEXPECTED};
use crate::slot_moves::TargetLink;
use crate::slot_moves::awaited::{Awaited, Gone};
use crate::slots::bus::{Answer, BusRequest};

/// Interval between two questions to the bus. Each sends the target a PING.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The question to the bus.
pub(super) enum Granting {
    Asks(Awaited<ClusterReply>),
    /// The bus is asked again at this time.
    AsksLater(Duration),
    /// The bus has noted the grant.
    Noted,
}

impl Granting {
    /// Waits for the bus, at most for this time.
    pub(super) fn block(&mut self, longest: Duration) {
        if let Granting::Asks(answer) = self {
            answer.block(longest);
        }
    }
}

impl Export {
    /// Begins to grant the slots to the target.
    pub(super) fn begin_grant(&mut self, link: &dyn TargetLink) -> Result<(), String> {
        if self.hold_is_over() {
            return Err(NOT_PAUSED.into());
        }
        if !self.hold.as_ref().is_some_and(|hold| hold.is_told) {
            return Err(UNEXPECTED.into());
        }
        self.check_owner(link)?;
        self.ask_for_grant()
    }

    fn ask_for_grant(&mut self) -> Result<(), String> {
        let target = self.job.nodes.as_ref().map(|nodes| nodes.target.clone()).unwrap_or_default();
        let (sender, answer) = sync_channel(1);
        let command = ClusterCommand::GrantSlots { slots: Box::new(self.job.slots.clone()), target };
        self.engine.host.cluster(BusRequest { command, answer: Answer::Machine(sender) })?;
        self.granting = Some(Granting::Asks(Awaited::new(answer)));
        Ok(())
    }

    /// Takes a step of the grant, if there is one.
    pub(super) fn step_grant(&mut self, link: &dyn TargetLink) -> Result<(), String> {
        match &mut self.granting {
            None | Some(Granting::Noted) => Ok(()),
            Some(Granting::AsksLater(at)) => match self.now < *at {
                true => Ok(()),
                false => self.ask_for_grant(),
            },
            Some(Granting::Asks(answer)) => match answer.take() {
                None => Ok(()),
                Some(Ok(ClusterReply::Ok)) => {
                    self.granting = Some(Granting::Noted);
                    self.grant(link)
                }
                Some(Ok(ClusterReply::Error(why))) => Err(why),
                Some(Ok(_)) => {
                    self.granting = Some(Granting::AsksLater(self.now + ASK_EVERY));
                    Ok(())
                }
                Some(Err(Gone)) => Err("The server ends".into()),
            },
        }
    }

    /// Grants the slots to the target.
    fn grant(&mut self, link: &dyn TargetLink) -> Result<(), String> {
        self.take_changes(link)?;
        self.check_owner(link)?;
        self.job.grant(link.unix_s())?;
        self.granted = Some(self.now);
        self.tell("FAILOVER-GRANTED");
        Ok(())
    }

    /// Has the bus forget the grant, if it may have noted one.
    pub(super) fn end_grant(&mut self) {
        if self.granting.take().is_some() {
            let request = BusRequest { command: ClusterCommand::EndGrant, answer: Answer::Nobody };
            // Without a bus there is no grant.
            _ = self.engine.host.cluster(request);
        }
    }
}
