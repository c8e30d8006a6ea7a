//! Pipelines that stop at their first failing command (PIPELINE ABORT).
//!
//! Commands behind the failure are refused until PIPELINE SYNC. The state belongs to the pipeline, not to the
//! connection, so that a connection that resumes the token refuses the same commands. Source of the semantics:
//! PostgreSQL's pipeline mode (<https://www.postgresql.org/docs/current/libpq-pipeline-mode.html>).

use super::Failure;

/// The first words of errors that send a command to another node of the cluster, or tell that no node serves it now.
const REDIRECTS: [&[u8]; 4] = [b"MOVED", b"ASK", b"TRYAGAIN", b"CLUSTERDOWN"];

/// The errors that stop a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbortOn {
    /// All errors except redirects.
    Errors,
    /// Redirects only: MOVED, ASK, TRYAGAIN, CLUSTERDOWN.
    Redirects,
    /// All errors.
    All,
}

impl AbortOn {
    const ALL: [AbortOn; 3] = [AbortOn::Errors, AbortOn::Redirects, AbortOn::All];

    /// Returns the choice for these words of a command.
    #[must_use]
    pub fn of(errors: bool, redirects: bool) -> AbortOn {
        match (errors, redirects) {
            (true, false) => AbortOn::Errors,
            (false, true) => AbortOn::Redirects,
            _ => AbortOn::All,
        }
    }

    /// Returns the word in records and in replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AbortOn::Errors => "errors",
            AbortOn::Redirects => "redirects",
            AbortOn::All => "all",
        }
    }

    fn named(name: &[u8]) -> Option<AbortOn> {
        AbortOn::ALL.into_iter().find(|on| on.name().as_bytes() == name)
    }

    /// Returns whether an error stops the pipeline.
    #[must_use]
    pub fn concerns(self, error: &[u8]) -> bool {
        let code = error.split(|&b| b == b' ').next().unwrap_or_default();
        let is_redirect = REDIRECTS.contains(&code);
        self == AbortOn::All || is_redirect == (self == AbortOn::Redirects)
    }
}

/// The state of a pipeline that stops at its first failure. Numbers of commands since the last sync follow from the
/// pipeline's count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AbortState {
    /// The errors that stop it.
    pub on: AbortOn,
    /// The pipeline's count at the last PIPELINE SYNC. Negative if commands between the sync and the beginning of the
    /// count belong to the same part.
    pub synced: i64,
    /// The failure that has stopped the pipeline. Its position counts from the last sync.
    pub failure: Option<Failure>,
}

impl AbortState {
    /// Begins at this count.
    #[must_use]
    pub fn new(on: AbortOn, executed: u64) -> AbortState {
        AbortState { on, synced: executed as i64, failure: None }
    }

    /// Returns the number of commands since the last sync.
    #[must_use]
    pub fn commands(&self, executed: u64) -> u64 {
        u64::try_from((executed as i64).saturating_sub(self.synced)).unwrap_or(0)
    }

    /// Moves the state from a pipeline with the count `from` to one with the count `to`.
    #[must_use]
    pub fn moved(mut self, from: u64, to: u64) -> AbortState {
        self.synced = self.synced.saturating_sub(from as i64).saturating_add(to as i64);
        self
    }

    /// Notes the failures of the command that makes the count `executed`.
    pub fn note(&mut self, executed: u64, failures: &[Failure]) {
        if self.failure.is_none()
            && let Some(failure) = failures.iter().find(|failure| self.on.concerns(&failure.error))
        {
            self.failure = Some(Failure { position: self.commands(executed), error: failure.error.clone() });
        }
    }

    /// Ends the part before a sync at this count, and returns its outcome.
    pub fn sync(&mut self, executed: u64) -> SyncOutcome {
        let commands = self.commands(executed);
        self.synced = executed as i64;
        let failure = self.failure.take();
        let ran = failure.as_ref().map_or(commands, |failure| failure.position);
        SyncOutcome { executed: ran, skipped: commands.saturating_sub(ran), failure }
    }

    /// Returns the words of the record behind the token; see [`AbortState::of_record`].
    pub(super) fn words(&self) -> Vec<Vec<u8>> {
        let (position, error) = self.failure.as_ref().map_or((0, &b""[..]), |f| (f.position, &*f.error));
        vec![
            self.on.name().into(),
            self.synced.to_string().into_bytes(),
            position.to_string().into_bytes(),
            error.to_vec(),
        ]
    }

    /// Parses `on synced position error`, in which the position is 0 without a failure.
    pub(super) fn of_record(words: &[&[u8]]) -> Option<AbortState> {
        let &[on, synced, position, error] = words else { return None };
        let position = resp::num::parse_i64(position).and_then(|number| u64::try_from(number).ok())?;
        let failure = (position > 0).then(|| Failure { position, error: error.into() });
        Some(AbortState { on: AbortOn::named(on)?, synced: resp::num::parse_i64(synced)?, failure })
    }
}

/// The reply of PIPELINE SYNC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncOutcome {
    /// Number of commands since the last sync, up to the failing one.
    pub executed: u64,
    /// Number of commands behind the failing one, which did not run.
    pub skipped: u64,
    /// The failing command.
    pub failure: Option<Failure>,
}

/// Returns the error in place of the reply of a command behind this failure.
pub(super) fn skipped(failure: &Failure) -> Vec<u8> {
    [format!("ABORTED after command {}: ", failure.position).as_bytes(), &failure.error].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(position: u64, error: &str) -> Failure {
        Failure { position, error: error.as_bytes().into() }
    }

    #[test]
    fn redirects_are_no_errors_unless_both_stop() {
        for (error, on_errors, on_redirects) in [
            ("MOVED 1 h:1", false, true),
            ("ASK 1 h:1", false, true),
            ("TRYAGAIN Multiple keys", false, true),
            ("CLUSTERDOWN Hash slot not served", false, true),
            ("MOVED", false, true),
            ("CROSSSLOT Keys", true, false),
            ("ASKED x", true, false),
            ("", true, false),
        ] {
            let concerns = AbortOn::ALL.map(|on| on.concerns(error.as_bytes()));
            assert_eq!(concerns, [on_errors, on_redirects, true], "{error}");
        }
    }

    #[test]
    fn the_first_failure_stays_until_the_sync() {
        let mut state = AbortState::new(AbortOn::Errors, 10);
        state.note(11, &[failure(11, "MOVED 1 h:1")]);
        assert_eq!(state.failure, None);
        state.note(13, &[failure(12, "MOVED 1 h:1"), failure(13, "ERR a")]);
        state.note(14, &[failure(14, "ERR b")]);
        assert_eq!(state.failure, Some(failure(3, "ERR a")));
        assert_eq!(state.sync(20), SyncOutcome { executed: 3, skipped: 7, failure: Some(failure(3, "ERR a")) });
        assert_eq!(state.sync(22), SyncOutcome { executed: 2, skipped: 0, failure: None });
    }

    #[test]
    fn a_state_moves_between_pipelines() {
        let mut state = AbortState::new(AbortOn::All, 7).moved(9, 0);
        assert_eq!((state.synced, state.commands(3)), (-2, 5));
        state.note(3, &[failure(3, "ERR a b")]);
        let words = state.words();
        let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        assert_eq!(AbortState::of_record(&words), Some(state));
        assert_eq!(AbortState::of_record(&words[1..]), None);
    }
}
