//! Pipelines whose commands run at several nodes of a cluster (`cluster-forward`).
//!
//! The *home* of a token is the node that its client is connected to. The home has other nodes, the *owners* of the keys,
//! run some of the pipeline's commands. Each owner counts these under a token of its own, whose name the home has made
//! ([`ForwardState::name`]). Positions are those of the whole pipeline: an owner's count is the position of the last command
//! that the owner ran, and each owner records it together with the changes of that command, like any token's count.
//!
//! A command counts if and only if it has run, because of these rules:
//!
//! 1. *One command at a time.* The home runs or forwards a command only after all commands before it are answered (one
//!    transaction counts as one command here). Therefore the executed commands are the first ones of the pipeline at any time,
//!    and the greatest count of all nodes is the pipeline's count. `PIPELINE AT` tells the owner the position of the next
//!    command, and with it that all earlier ones are finished.
//! 2. *Safe before sent.* If replies of the home wait for the disk or for replicas, a command is sent only after the home's
//!    own count is safe to the same degree. Otherwise the home could lose an earlier command of the pipeline and keep a later one.
//! 3. *One connection at a time.* A home's client has its own link to each owner. The link holds the owner's token
//!    (`PIPELINE ATTACH`), and an owner closes the link that loses its token. The new client of a resumed token has a greater
//!    *generation*, and an owner refuses lesser ones. RESUME attaches to the token of each owner. An owner that has answered runs
//!    no more commands of the old client, neither delayed ones nor those of links that arrive late, and its answer has the
//!    count of the last one that ran. RESUME fails if an owner can't be asked.
//! 4. *Redirects run nothing.* A command that an owner redirects is not counted there. The home sends it to the other node, if it
//!    knows that node, so that RESUME asks it. Otherwise the client gets the redirect.
//! 5. *No guesses.* If a link breaks with a command on its way, the home closes the client's connection instead of counting.
//!    RESUME then finds out. A command that was not sent, or was refused, counts as executed and failed: it never runs.
//!    No owner has counted such a command. Its error therefore waits until the home's record of the count is safe.
//!    The client of an old generation sends nothing, because its home checks the token's holder first.
//!
//! During a planned failover of the home, no record may follow the replica's offset. The home closes a client whose command is
//! answered then, and counts nothing: the owner has counted, and RESUME at the new home asks it.
//!
//! `PIPELINE AT` without a token closes the link, so that the command behind it can't run uncounted.
//!
//! An owner's list of failures has those of the last command only: by rule 1 the home has counted all earlier failures.
//!
//! Names are never used twice: they contain the random id of the home's process. Therefore START needs no answer of an owner.
//! An owner's token outlives the home's by [`KEPT_LONGER_S`], unless the home ends it.

use std::sync::atomic::Ordering;

use journal::record::{self, Kind, Record};

use super::{Failure, Ownership, Pipeline, Pipelines, lock};

/// Seconds that an owner keeps a token longer than the home does: the time that the home may be down. The lifetime of the
/// home's token begins anew when the home starts.
pub const KEPT_LONGER_S: u64 = 86_400;

/// The state of a pipeline that several nodes count for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardState {
    /// A number that grows with each connection that takes the pipeline over.
    pub generation: u64,
    /// The name of the owners' tokens; empty for a token of an owner.
    pub name: Box<[u8]>,
}

impl ForwardState {
    /// Returns the record that gives a token this state.
    pub(crate) fn record(&self, token: &[u8]) -> Vec<u8> {
        let generation = self.generation.to_string();
        let words = [&b"PIPELINE"[..], b"FORWARD", token, generation.as_bytes(), &self.name];
        let mut record = Record::default();
        record.push(0, Kind::Own, words.into_iter());
        record::entries(record.bytes()).flat_map(|entry| entry.command).copied().collect()
    }

    /// Parses `generation name`.
    pub(super) fn of_record(words: &[&[u8]]) -> Option<ForwardState> {
        let &[generation, name] = words else { return None };
        let generation = resp::num::parse_i64(generation).and_then(|number| u64::try_from(number).ok())?;
        Some(ForwardState { generation, name: name.into() })
    }
}

/// The count of one owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OwnersCount {
    /// The position of the last command that it ran.
    pub executed: u64,
    /// The number of failures of the last command, or transaction, that it ran.
    pub failed: u64,
    /// The first of these failures.
    pub failures: Vec<Failure>,
}

impl Pipeline {
    /// Returns its state, if several nodes count for it.
    #[must_use]
    pub fn forward(&self) -> Option<ForwardState> {
        lock(&self.forward).clone()
    }

    /// Returns true if this node is an owner, and counts for the home of the pipeline.
    pub(crate) fn is_of_owner(&self) -> bool {
        lock(&self.forward).as_ref().is_some_and(|forward| forward.name.is_empty())
    }

    /// Returns true if this node is the home of a pipeline that other nodes may count for, and that doesn't stop at failures.
    pub(crate) fn is_of_home(&self) -> bool {
        lock(&self.forward).as_ref().is_some_and(|forward| !forward.name.is_empty()) && self.abort().is_none()
    }

    /// At home: begins the next generation, and returns it.
    pub(crate) fn next_generation(&self, now_ms: u64) -> Option<ForwardState> {
        let mut forward = lock(&self.forward);
        let forward = forward.as_mut()?;
        // The time, because the journal does not have the last generation.
        forward.generation = now_ms.max(forward.generation.saturating_add(1));
        Some(forward.clone())
    }

    /// Raises the generation to this one.
    pub(crate) fn raise_generation(&self, generation: u64) {
        if let Some(forward) = lock(&self.forward).as_mut() {
            forward.generation = forward.generation.max(generation);
        }
    }

    /// At an owner: notes that all commands up to this position are finished. Returns `None` if the count is greater already,
    /// and otherwise true if failures were forgotten, so that the state must be recorded. The caller is the holder's thread.
    pub(crate) fn advance(&self, executed: u64) -> Option<bool> {
        if executed < self.executed() {
            return None;
        }
        self.executed.store(executed, Ordering::Release);
        let mut failures = lock(&self.failures);
        let had_any = failures.failed > 0;
        if had_any {
            (failures.failed, failures.recorded) = (0, 0);
            failures.first.clear();
        }
        Some(had_any)
    }
}

impl Pipelines {
    /// At home: counts commands that another node has answered, if the client has the token still. Returns false otherwise.
    pub(crate) fn count_answered(
        &self,
        pipeline: &Pipeline,
        client: u64,
        commands: u64,
        failures: Vec<Failure>,
        failed: u64,
    ) -> bool {
        self.if_held(pipeline, client, || {
            pipeline.add(commands);
            if failed > 0 {
                pipeline.add_failures(failed, failures);
            }
        })
    }

    /// At home: adds commands that owners have run and the home has not counted. Returns false if the client has lost the token.
    pub(crate) fn add_owners(&self, pipeline: &Pipeline, client: u64, counts: &[OwnersCount]) -> bool {
        self.if_held(pipeline, client, || {
            let known = pipeline.executed();
            let executed = counts.iter().map(|count| count.executed).max().unwrap_or(0);
            pipeline.add(executed.saturating_sub(known));
            let (mut failed, mut failures) = (0, Vec::new());
            for count in counts.iter().filter(|count| count.executed > known) {
                failed += count.failed;
                failures.extend_from_slice(&count.failures);
            }
            if failed > 0 {
                pipeline.add_failures(failed, failures);
            }
        })
    }

    /// Calls `change` if the client has the token. RESUME can't take the token meanwhile, so that the caller may be outside of
    /// the gate.
    fn if_held(&self, pipeline: &Pipeline, client: u64, change: impl FnOnce()) -> bool {
        let _table = lock(&self.table);
        let is_held = pipeline.ownership_of(client) == Ownership::Held;
        if is_held {
            change();
        }
        is_held
    }
}
