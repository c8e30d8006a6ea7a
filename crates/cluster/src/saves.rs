//! Saves of nodes.conf, and everything that waits for them.
//!
//! A message that shows a new vote, epoch or slot of this node is sent only after the save with that vote, epoch or slot is on disk.
//! PINGs don't wait: their headers show the claims of the last durable save.

use crate::claims::Claims;
use crate::commands::ClusterReply;
use crate::config::SaveFailure;
use crate::id::NodeId;
use crate::io::{Action, CommandId, Generation, Level};
use crate::machine::Machine;
use crate::rules::Rule;

/// The time between two attempts to save, after one has failed.
const RETRY_MS: u64 = 1000;

/// Something that waits for a save.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    /// The answer of a command.
    Answer(CommandId, ClusterReply),
    /// The reply to SAVECONFIG, which also reports a failed save.
    SaveConfig(CommandId),
    /// A PONG for all nodes.
    TellAll,
    /// A view for the workers.
    View,
    /// A vote.
    Vote {
        /// The candidate.
        candidate: NodeId,
        /// The epoch of the election.
        epoch: u64,
    },
    /// A request for votes for an epoch of a primary.
    AskForEpoch {
        /// The epoch.
        epoch: u64,
    },
    /// A request for votes.
    AskForVotes {
        /// The epoch of the election.
        epoch: u64,
    },
}

/// Saves of nodes.conf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saves {
    /// True if the file's text has changed since the last save began.
    pub(crate) dirty: bool,
    /// The number of the last save that began.
    begun: u64,
    /// The claims of the save under way.
    under_way: Option<Claims>,
    /// The claims on disk.
    durable: Option<Claims>,
    /// The time at which a failed save is repeated; `None` if the last save succeeded.
    retry_ms: Option<u64>,
    waiting: Vec<(Generation, Waiting)>,
}

impl Saves {
    /// Notes the claims that a start has read from disk.
    pub(crate) fn loaded(&mut self, claims: Claims) {
        self.durable = Some(claims);
    }

    /// Regards claims as durable without a save. After a reset the node claims nothing, so nothing can be claimed twice.
    pub(crate) fn reset(&mut self, claims: Claims) {
        // The end of a save from before the reset must not bring the old claims back.
        self.under_way = self.under_way.as_ref().map(|_| claims.clone());
        self.durable = Some(claims);
    }

    /// The claims on disk.
    pub(crate) fn durable(&self) -> Option<&Claims> {
        self.durable.as_ref()
    }

    /// Has messages show the present durable claims until the next save, although another one is under way.
    pub(crate) fn hide_save_under_way(&mut self) {
        if self.under_way.is_some() {
            self.under_way.clone_from(&self.durable);
        }
    }

    /// True after a save has failed, until one succeeds.
    pub(crate) fn have_failed(&self) -> bool {
        self.retry_ms.is_some()
    }

    /// True if something waits.
    pub(crate) fn awaits(&self, matches: impl Fn(&Waiting) -> bool) -> bool {
        self.waiting.iter().any(|(_, waiting)| matches(waiting))
    }
}

impl Machine {
    /// True while the workers do not see a gained slot because the claim is not on disk.
    pub fn awaits_view(&self) -> bool {
        self.saves.awaits(|waiting| matches!(waiting, Waiting::View))
    }

    /// Defers an action until the present state is on disk.
    pub(crate) fn after_save(&mut self, waiting: Waiting) {
        self.saves.dirty = true;
        if !self.rules.hold(Rule::SaveBeforeSend) {
            return self.release(waiting);
        }
        let generation = Generation(self.saves.begun + 1);
        self.saves.waiting.push((generation, waiting));
    }

    /// Begins a save if the text has changed and none is under way.
    pub(crate) fn save_if_dirty(&mut self) {
        let is_early = self.saves.retry_ms.is_some_and(|retry_ms| self.now.ms < retry_ms);
        if !self.saves.dirty || self.saves.under_way.is_some() || is_early {
            return;
        }
        let claims = self.current_claims();
        let text = self.file_text();
        self.saves.dirty = false;
        self.saves.begun += 1;
        self.saves.under_way = Some(claims);
        self.actions.push(Action::Save { generation: Generation(self.saves.begun), text });
    }

    /// Notes that a save is on disk, and releases the messages, views and replies that waited for it.
    pub(crate) fn saved(&mut self, generation: Generation) {
        if generation.0 != self.saves.begun {
            return;
        }
        if let Some(claims) = self.saves.under_way.take() {
            self.saves.durable = Some(claims);
        }
        self.saves.retry_ms = None;
        self.release_until(generation);
    }

    /// Notes that a save has failed.
    pub(crate) fn save_failed(&mut self, generation: Generation, error: &str) {
        if generation.0 != self.saves.begun {
            return;
        }
        self.log(Level::Warning, format!("nodes.conf could not be saved: {error}"));
        if self.config.save_failure == SaveFailure::Exit {
            self.actions.push(Action::Exit("can't update cluster config file".into()));
            return;
        }
        // Further failures in a row are the same state.
        if !self.saves.have_failed() {
            let text = "Cluster config updated even though writing the cluster config file to disk failed.";
            self.log(Level::Warning, text.into());
        }
        let claims = self.saves.under_way.take();
        self.saves.durable = claims;
        self.saves.dirty = true;
        self.saves.retry_ms = Some(self.now.ms + RETRY_MS);
        // A vote is never sent without a durable record, so the waiting votes are dropped.
        let is_vote = |waiting: &Waiting| {
            matches!(waiting, Waiting::Vote { .. } | Waiting::AskForVotes { .. } | Waiting::AskForEpoch { .. })
        };
        self.saves.waiting.retain(|(_, waiting)| !is_vote(waiting));
        self.fail_save_commands(error);
        self.release_until(generation);
    }

    fn fail_save_commands(&mut self, error: &str) {
        let is_save = |waiting: &Waiting| matches!(waiting, Waiting::SaveConfig(_));
        let waiting = std::mem::take(&mut self.saves.waiting);
        let (failed, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, waiting)| is_save(waiting));
        self.saves.waiting = rest;
        for (_, waiting) in failed {
            if let Waiting::SaveConfig(id) = waiting {
                let text = format!("error saving the cluster node config: {error}");
                self.actions.push(Action::Answer(id, ClusterReply::Error(text)));
            }
        }
    }

    fn release_until(&mut self, generation: Generation) {
        let waiting = std::mem::take(&mut self.saves.waiting);
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(needed, _)| *needed <= generation);
        self.saves.waiting = rest;
        ready.into_iter().for_each(|(_, waiting)| self.release(waiting));
    }

    fn release(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::Answer(id, reply) => self.actions.push(Action::Answer(id, reply)),
            Waiting::SaveConfig(id) => self.actions.push(Action::Answer(id, ClusterReply::Ok)),
            Waiting::TellAll => self.pong_all(),
            Waiting::View => self.todo.view = true,
            Waiting::Vote { candidate, epoch } => self.send_vote(candidate, epoch),
            Waiting::AskForVotes { epoch } => self.send_vote_requests(epoch),
            Waiting::AskForEpoch { epoch } => self.send_epoch_requests(epoch),
        }
    }

    /// Tells all nodes this node's role, slots and announcements, as soon as they are on disk.
    pub(crate) fn tell_all(&mut self) {
        match self.shows_all_claims() {
            true => self.pong_all(),
            false if self.saves.awaits(|waiting| matches!(waiting, Waiting::TellAll)) => self.saves.dirty = true,
            false => self.after_save(Waiting::TellAll),
        }
    }
}
