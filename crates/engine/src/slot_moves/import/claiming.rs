//! The end of an import: the replicas get all changes and the end of the import, then this node claims the slots.

use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cluster::commands::{ClusterCommand, ClusterReply};
use journal::order::Position;

use super::{CLAIM_TIME_MAX, Ended, Import};
use crate::slot_moves::awaited::Awaited;
use crate::slot_moves::records::Recording;
use crate::slot_moves::{MoveWait, SourceLink, in_ms};
use crate::slots::bus::{Answer, BusRequest};
use crate::slots::jobs::{JobState, Operation};

/// Interval between checks of a condition that other threads fulfil.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// The longest wait for the bus and for the view. Then the bus is asked again.
const BUS_TIME_MAX: Duration = Duration::from_secs(5);

/// The stages of a claim.
enum Stage {
    /// DEBUG may forbid the claim.
    MayBegin,
    /// The bus asks the other primaries for their votes for the epoch of the claim.
    AsksForEpoch { answer: Awaited<ClusterReply>, until: Duration },
    /// The bus is asked for the epoch again at this time.
    AsksForEpochLater(Duration),
    /// The replicas, and the disk if it is awaited, get all changes up to this position.
    SavesChanges(Position),
    /// The end of the import is being recorded.
    RecordsEnd(Recording),
    /// The replicas, and the disk if it is awaited, get the end of the import. After a failure from here on, the replicas believe that this
    /// node has the slots, until they learn the end of the job.
    SavesEnd(Position),
    /// The bus claims the slots, and saves the claim.
    AsksBus { answer: Awaited<ClusterReply>, until: Duration },
    /// The bus is asked again at this time.
    AsksLater(Duration),
    /// The workers begin to serve the slots.
    AwaitsView { until: Duration },
}

/// A claim under way.
pub(super) struct Claim {
    stage: Stage,
    granted: Duration,
    /// The time at which replicas and the disk had all changes and the end.
    safe: Duration,
}

/// The result of a step.
pub(super) enum Claimed {
    /// The claim goes on.
    NotYet(Claim, MoveWait),
    /// This node serves the slots.
    All,
}

impl Claim {
    pub(super) fn begin(now: Duration) -> Claim {
        Claim { stage: Stage::MayBegin, granted: now, safe: now }
    }

    /// Waits for the result of another thread, at most for this time.
    pub(super) fn block(&mut self, longest: Duration) {
        match &mut self.stage {
            Stage::RecordsEnd(recording) => recording.block(longest),
            Stage::AsksBus { answer, .. } | Stage::AsksForEpoch { answer, .. } => answer.block(longest),
            Stage::MayBegin
            | Stage::AsksForEpochLater(_)
            | Stage::SavesChanges(_)
            | Stage::SavesEnd(_)
            | Stage::AsksLater(_)
            | Stage::AwaitsView { .. } => {}
        }
    }
}

impl Import {
    /// Takes a step of the claim.
    pub(super) fn claim(&mut self, mut claim: Claim, link: &dyn SourceLink) -> Result<Claimed, Ended> {
        let now = link.now();
        let (stage, wait) = match claim.stage {
            Stage::MayBegin => {
                self.check_time(now)?;
                match self.must_wait() {
                    true => (Stage::MayBegin, MoveWait::Time(WAIT_STEP)),
                    false => {
                        claim.granted = now;
                        (self.ask_for_epoch(now)?, MoveWait::Nothing)
                    }
                }
            }
            Stage::AsksForEpoch { mut answer, until } => match answer.take() {
                None if now < until => (Stage::AsksForEpoch { answer, until }, MoveWait::Thread),
                Some(Ok(ClusterReply::Error(why))) => return Err(Ended::Failed(why)),
                Some(Ok(ClusterReply::Later)) => (Stage::AsksForEpochLater(now + WAIT_STEP), MoveWait::Time(WAIT_STEP)),
                _ => (Stage::SavesChanges(self.ask_replicas()), MoveWait::Nothing),
            },
            Stage::AsksForEpochLater(at) => {
                self.check_time(now)?;
                match now < at {
                    true => (Stage::AsksForEpochLater(at), MoveWait::Time(at - now)),
                    false => (self.ask_for_epoch(now)?, MoveWait::Nothing),
                }
            }
            Stage::SavesChanges(position) => {
                self.check_time(now)?;
                match self.engine.is_safe(position) {
                    false => (Stage::SavesChanges(position), MoveWait::Time(WAIT_STEP)),
                    true => {
                        let recording = Recording::begin(self.engine, &self.job, "success", "");
                        (Stage::RecordsEnd(recording), MoveWait::Nothing)
                    }
                }
            }
            Stage::RecordsEnd(mut recording) => match recording.step(now) {
                MoveWait::Over => (Stage::SavesEnd(self.ask_replicas()), MoveWait::Nothing),
                wait => (Stage::RecordsEnd(recording), wait),
            },
            Stage::SavesEnd(position) => {
                self.check_time(now)?;
                match self.engine.is_safe(position) {
                    false => (Stage::SavesEnd(position), MoveWait::Time(WAIT_STEP)),
                    true => {
                        claim.safe = now;
                        self.check_owner()?;
                        self.job.claim().map_err(Ended::Failed)?;
                        (self.ask_bus(now)?, MoveWait::Nothing)
                    }
                }
            }
            Stage::AsksBus { mut answer, until } => match answer.take() {
                None if now < until => (Stage::AsksBus { answer, until }, MoveWait::Thread),
                Some(Ok(ClusterReply::Error(why))) => return Err(Ended::Failed(why)),
                Some(Ok(ClusterReply::Later)) => (Stage::AsksLater(now + WAIT_STEP), MoveWait::Time(WAIT_STEP)),
                // The bus answers late at most: the claim is made, and its view will come.
                _ => (Stage::AwaitsView { until: now + BUS_TIME_MAX }, MoveWait::Nothing),
            },
            Stage::AsksLater(at) => {
                self.check_time(now)?;
                match now < at {
                    true => (Stage::AsksLater(at), MoveWait::Time(at - now)),
                    false => (self.ask_bus(now)?, MoveWait::Nothing),
                }
            }
            Stage::AwaitsView { until } => {
                if self.serves() {
                    self.note_claimed(&claim, now);
                    return Ok(Claimed::All);
                }
                if self.engine.is_replica() {
                    return Err(Ended::Demoted);
                }
                match now < until {
                    true => (Stage::AwaitsView { until }, MoveWait::Time(WAIT_STEP)),
                    // Another claim may have won.
                    false => (self.ask_bus(now)?, MoveWait::Nothing),
                }
            }
        };
        claim.stage = stage;
        Ok(Claimed::NotYet(claim, wait))
    }

    /// Returns true while no claim may begin: DEBUG forbids it, or this node has granted other slots, and takes no epoch until their target
    /// has claimed them.
    fn must_wait(&self) -> bool {
        let jobs = &self.engine.slots.jobs;
        let has_granted = || {
            let exports = jobs.under_way_as(Operation::Export);
            exports.iter().any(|job| job.state() == JobState::FailoverGranted)
        };
        jobs.prevents_failover.load(Ordering::Relaxed) || has_granted()
    }

    /// Asks the replicas for their offsets. Returns the position that they must reach.
    fn ask_replicas(&self) -> Position {
        let position = self.engine.journal.position();
        self.engine.replication.request_answers();
        position
    }

    /// Checks that the source still holds writes.
    fn check_time(&self, now: Duration) -> Result<(), Ended> {
        self.check_asked()?;
        match self.asked.is_some_and(|asked| now.saturating_sub(asked) < CLAIM_TIME_MAX) {
            true => Ok(()),
            false => Err("The slots could not be claimed in time".into()),
        }
    }

    /// Has the bus ask for an epoch in advance, while the source holds back its writes.
    pub(super) fn prepare_claim(&self) -> Result<(), Ended> {
        let request = BusRequest { command: ClusterCommand::PrepareClaim, answer: Answer::Nobody };
        self.engine.host.cluster(request).map_err(Ended::Failed)
    }

    fn ask_for_epoch(&self, now: Duration) -> Result<Stage, Ended> {
        let answer = self.ask(ClusterCommand::PrepareClaim)?;
        Ok(Stage::AsksForEpoch { answer, until: now + BUS_TIME_MAX })
    }

    fn ask_bus(&self, now: Duration) -> Result<Stage, Ended> {
        let (slots, source) = (Box::new(self.job.slots.clone()), self.nodes()?.source.clone());
        let answer = self.ask(ClusterCommand::ClaimSlots { slots, source })?;
        Ok(Stage::AsksBus { answer, until: now + BUS_TIME_MAX })
    }

    fn ask(&self, command: ClusterCommand) -> Result<Awaited<ClusterReply>, Ended> {
        let (sender, answer) = sync_channel(1);
        self.engine.host.cluster(BusRequest { command, answer: Answer::Machine(sender) }).map_err(Ended::Failed)?;
        Ok(Awaited::new(answer))
    }

    /// Returns true once the workers serve the slots, which is after the claim is on disk.
    fn serves(&self) -> bool {
        let view = self.engine.slots.view();
        view.is_some_and(|view| self.job.slots.iter().all(|slot| view.owner(slot) == Some(view.me)))
    }

    fn note_claimed(&self, claim: &Claim, now: Duration) {
        let asked = self.asked.unwrap_or(claim.granted);
        self.job.note_hold(now.saturating_sub(asked));
        self.log(format!(
            "The slots of {} were granted {:.3} ms after the request, replicas and the append-only file had all changes {:.3} ms later, \
             and {} was saved and workers served them another {:.3} ms later",
            self.job.name,
            in_ms(claim.granted.saturating_sub(asked)),
            in_ms(claim.safe.saturating_sub(claim.granted)),
            self.engine.settings.cluster_config_file.get(),
            in_ms(now.saturating_sub(claim.safe))
        ));
    }
}
