//! Pipelines that survive their connections (PIPELINE): the table of tokens, and the count for each.
//!
//! A token's count is exact for two reasons: it changes together with the counted command, before the thread leaves the
//! gate, and a token changes hands behind the closed gate (RESUME), when no command has run without being counted. A
//! thread that has left the gate checks that its connection still has the token before it runs more commands for it
//! (`Session::begin_counted`, `Worker::alone`). The command of a parked connection counts when a thread answers it, not
//! when the reply is delivered.
//!
//! A token's state is plain data, [`TokenState`]; a snapshot made behind the closed gate stores it beside the keyspace.
//! In the journal, the count is part of the counted unit (`Session::record_count`), so that count and data always agree;
//! the batch records the count of commands without changes. A token is recorded as
//!
//! ```text
//! PIPELINE KEEP token ttl_ms executed failed database [position error ...] [user]     from PIPELINE START
//! PIPELINE COUNT token executed failed database [position error ...]           the failures since the last record
//! PIPELINE ABORT token (OFF | on synced position error)                        see `pipelines::abort`
//! PIPELINE FORWARD token generation name                                       see `pipelines::nodes`
//! PIPELINE END token
//! ```
//!
//! A connection without a token that stops at failures (PIPELINE ABORT) has a pipeline outside of the table, with an
//! empty token. It is never recorded.
//!
//! A token belongs to the user who started it; the default user, if the record names no user.

pub mod abort;
pub mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::record::{self, Kind, Record};
use resp::request::{Batch, Framer, Limits};

use self::abort::{AbortOn, AbortState, SyncOutcome};
use self::nodes::ForwardState;

/// Maximum size of a token in bytes: far more than a random identifier or a file name needs.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Maximum number of failures that a token keeps: enough to diagnose a pipeline, and few enough to read.
pub const FAILURES_MAX: usize = 32;
/// Maximum size of an error kept with a failure, in bytes; most messages are shorter.
pub const ERROR_BYTES_MAX: usize = 128;

/// The user of tokens without a user in their records.
pub(crate) const DEFAULT_USER: &[u8] = b"default";
/// Holder of a token without a connection. No connection has this number.
const NO_HOLDER: u64 = 0;
/// Holder of a removed token. No connection has this number.
const ENDED: u64 = u64::MAX;
/// Stands for an unknown command.
const UNKNOWN: usize = usize::MAX;

/// A command with an error reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The command's position in the pipeline, from 1.
    pub position: u64,
    /// The beginning of the error, without its "-".
    pub error: Box<[u8]>,
}

/// The progress of a pipeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PipelineProgress {
    /// Number of commands that have run or were refused.
    pub executed: u64,
    /// Number of commands with an error reply.
    pub failed: u64,
    /// The first failures.
    pub failures: Vec<Failure>,
    /// The selected database after these commands.
    pub database: usize,
}

impl PipelineProgress {
    /// Parses `executed failed database [position error ...]`.
    fn of_record(words: &[&[u8]]) -> Option<PipelineProgress> {
        let number = |word: &[u8]| resp::num::parse_i64(word).and_then(|number| u64::try_from(number).ok());
        let (&[executed, failed, database], failures) = words.split_first_chunk::<3>()?;
        let failures = failures.chunks(2).map(|pair| match pair {
            [position, error] => Some(Failure { position: number(position)?, error: (*error).into() }),
            _ => None,
        });
        Some(PipelineProgress {
            executed: number(executed)?,
            failed: number(failed)?,
            failures: failures.collect::<Option<_>>()?,
            database: number(database)? as usize,
        })
    }
}

/// The complete state of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenState {
    /// The token.
    pub token: Box<[u8]>,
    /// The user who started it.
    pub user: Box<[u8]>,
    /// Lifetime without a connection, in milliseconds.
    pub ttl_ms: u64,
    /// The connection that has the token.
    pub holder: Option<u64>,
    /// The expiry, in milliseconds of Unix time; `None` while a connection has the token.
    pub expires_ms: Option<u64>,
    /// The progress of its pipeline.
    pub progress: PipelineProgress,
    /// Present if it stops at its first failure.
    pub abort: Option<AbortState>,
    /// Present if several nodes of a cluster count for it.
    pub forward: Option<ForwardState>,
}

impl TokenState {
    /// Returns the records that recreate the token (see the module's documentation), each an array of bulk strings.
    #[must_use]
    pub fn records(&self) -> Vec<Vec<u8>> {
        let mut records = vec![self.record()];
        if self.abort.is_some() {
            let mut record = Record::default();
            push_abort(&self.token, self.abort.as_ref(), &mut record);
            records.extend(record::entries(record.bytes()).map(|entry| entry.command.to_vec()));
        }
        records.extend(self.forward.as_ref().map(|forward| forward.record(&self.token)));
        records
    }

    fn record(&self) -> Vec<u8> {
        let PipelineProgress { executed, failed, failures, database } = &self.progress;
        let numbers = [self.ttl_ms, *executed, *failed, *database as u64].map(|number| number.to_string());
        let positions: Vec<String> = failures.iter().map(|failure| failure.position.to_string()).collect();
        let mut words = vec![&b"PIPELINE"[..], b"KEEP", &self.token];
        words.extend(numbers.iter().map(|number| number.as_bytes()));
        words.extend(failures.iter().zip(&positions).flat_map(|(f, position)| [position.as_bytes(), &*f.error]));
        words.extend(word_of_user(&self.user));
        let mut record = Record::default();
        record.push(0, Kind::Own, words.into_iter());
        record::entries(record.bytes()).flat_map(|entry| entry.command).copied().collect()
    }
}

/// Returns the user for the record of a token. The word comes last, if present, so the number of words after the counts
/// is then odd.
pub(crate) fn word_of_user(user: &[u8]) -> Option<&[u8]> {
    (user != DEFAULT_USER).then_some(user)
}

/// Records whether a token's pipeline stops at failures, and the failure that has stopped it.
fn push_abort(token: &[u8], abort: Option<&AbortState>, record: &mut Record) {
    let words = abort.map_or_else(|| vec![b"OFF".to_vec()], AbortState::words);
    let head = [&b"PIPELINE"[..], b"ABORT", token];
    let words: Vec<&[u8]> = head.into_iter().chain(words.iter().map(|word| &word[..])).collect();
    record.push(0, Kind::Own, words.into_iter());
}

#[derive(Default)]
struct Failures {
    failed: u64,
    first: Vec<Failure>,
    /// Number of failures in the journal: from `first`, and from those about to be added.
    recorded: usize,
    /// Present if the pipeline stops at its first failure.
    abort: Option<AbortState>,
    /// The state in the journal.
    recorded_abort: Option<AbortState>,
}

/// The relation of a connection to the token that it counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ownership {
    /// The connection has the token.
    Held,
    /// The token was removed (PIPELINE END), perhaps after another connection took it over.
    Ended,
    /// Another connection took the token over, and may be closed already.
    Lost,
}

/// A counted pipeline. One connection at a time counts for it.
pub struct Pipeline {
    token: Box<[u8]>,
    user: Box<[u8]>,
    ttl_ms: u64,
    /// The connection that has the token, [`NO_HOLDER`] or [`ENDED`]. Changes under the table's lock.
    holder: AtomicU64,
    /// 0 while a connection has the token. Changes under the table's lock.
    expires_ms: AtomicU64,
    /// Written by the thread that runs the holder's commands: one thread at a time, inside the gate.
    executed: AtomicU64,
    /// The holder's selected database after those commands. Written together with their number.
    database: AtomicUsize,
    /// Number of commands in the journal, and the database after them.
    recorded: AtomicU64,
    failures: Mutex<Failures>,
    /// Present if several nodes of a cluster count for it.
    forward: Mutex<Option<ForwardState>>,
    /// True if a failure has stopped it. Follows `failures`.
    is_stopped: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave this data inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipeline {
    /// Creates the pipeline of a connection that stops at failures and has no token.
    #[must_use]
    pub(crate) fn without_token(client: u64, abort: AbortState) -> Pipeline {
        Pipeline::from(TokenState {
            token: Box::default(),
            user: DEFAULT_USER.into(),
            ttl_ms: 0,
            holder: Some(client),
            expires_ms: None,
            progress: PipelineProgress::default(),
            abort: Some(abort),
            forward: None,
        })
    }

    /// Returns false for the pipeline of a connection without a token.
    #[must_use]
    pub fn has_token(&self) -> bool {
        !self.token.is_empty()
    }

    /// Returns the token; empty without one.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// Returns true if a failure has stopped it.
    #[inline]
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the state of a pipeline that stops at failures.
    #[must_use]
    pub fn abort(&self) -> Option<AbortState> {
        lock(&self.failures).abort.clone()
    }

    /// Changes the state of a pipeline that stops at failures. The caller has the right to count.
    fn change_abort<T>(&self, change: impl FnOnce(&mut Option<AbortState>, u64) -> T) -> T {
        let mut failures = lock(&self.failures);
        let result = change(&mut failures.abort, self.executed());
        let is_stopped = failures.abort.as_ref().is_some_and(|abort| abort.failure.is_some());
        self.is_stopped.store(is_stopped, Ordering::Relaxed);
        result
    }

    /// Makes it stop at failures of these kinds. A failure that has stopped it already stays.
    pub(crate) fn abort_on(&self, on: AbortOn) {
        self.change_abort(|abort, executed| match abort {
            Some(abort) => abort.on = on,
            None => *abort = Some(AbortState::new(on, executed)),
        });
    }

    /// Makes it continue after failures.
    pub(crate) fn abort_off(&self) {
        self.change_abort(|abort, _| *abort = None);
    }

    /// Takes over the state of another pipeline of the same connection.
    pub(crate) fn take_abort(&self, before: &Pipeline) {
        let state = before.abort().map(|state| (state, before.executed()));
        self.change_abort(|abort, executed| *abort = state.map(|(state, from)| state.moved(from, executed)));
    }

    /// Ends a part of the pipeline, and returns its outcome; `None` if the pipeline doesn't stop at failures.
    pub(crate) fn sync(&self) -> Option<SyncOutcome> {
        self.change_abort(|abort, executed| abort.as_mut().map(|abort| abort.sync(executed)))
    }

    /// Returns the error for the next command if a failure has stopped the pipeline.
    #[cold]
    pub(crate) fn skipped(&self) -> Option<Vec<u8>> {
        lock(&self.failures).abort.as_ref()?.failure.as_ref().map(abort::skipped)
    }

    /// Returns whether one of these errors stops the pipeline.
    fn stops_at(&self, errors: &[Failure]) -> bool {
        let failures = lock(&self.failures);
        failures.abort.as_ref().is_some_and(|abort| errors.iter().any(|failure| abort.on.concerns(&failure.error)))
    }

    /// Returns the number of commands that have run or were refused.
    #[inline]
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Acquire)
    }

    /// Returns the selected database after those commands.
    #[must_use]
    pub fn database(&self) -> usize {
        self.database.load(Ordering::Relaxed)
    }

    /// Counts one command that has been answered, with its error if there was one. The caller is inside the gate and
    /// has the right to answer the command.
    pub fn count_one(&self, error: Option<&[u8]>) {
        // The database can't change while the connection waits.
        self.add(1);
        if let Some(error) = error {
            self.add_failures(1, vec![Failure::new(self.executed(), error)]);
        }
    }

    #[inline]
    fn add(&self, commands: u64) {
        // There is one writer at a time, so a plain load and store suffice. Must precede the failures, so that no
        // reader sees more failures than commands.
        let executed = self.executed.load(Ordering::Relaxed).wrapping_add(commands);
        self.executed.store(executed, Ordering::Release);
    }

    #[cold]
    fn add_failures(&self, failed: u64, mut first: Vec<Failure>) {
        // A transaction's commands fail in EXEC, after refusals at the time of queueing.
        first.sort_by_key(|failure| failure.position);
        self.change_abort(|abort, executed| abort.iter_mut().for_each(|abort| abort.note(executed, &first)));
        let mut failures = lock(&self.failures);
        failures.failed += failed;
        let room = FAILURES_MAX.saturating_sub(failures.first.len());
        failures.first.extend(first.into_iter().take(room));
    }

    /// Returns the progress.
    #[must_use]
    pub fn progress(&self) -> PipelineProgress {
        let failures = lock(&self.failures);
        let (failed, first) = (failures.failed, failures.first.clone());
        drop(failures);
        let executed = self.executed();
        PipelineProgress { executed, failed, failures: first, database: self.database() }
    }

    /// Records the progress, with the failures that are not in the journal. `open` commands with `failed` failures are
    /// about to be added; `failures` are the first of these.
    pub(crate) fn record(&self, open: u64, failed: u64, failures: &[Failure], database: usize, record: &mut Record) {
        if !self.has_token() {
            return;
        }
        let mut known = lock(&self.failures);
        let executed = self.executed() + open;
        let counts = [executed, known.failed + failed, database as u64].map(|number| number.to_string());
        let mut new: Vec<&Failure> = failures.iter().collect();
        // In the order of `add_failures`.
        new.sort_by_key(|failure| failure.position);
        let all = known.first.iter().chain(new).take(FAILURES_MAX);
        let new: Vec<(String, &[u8])> = all.skip(known.recorded).map(|f| (f.position.to_string(), &*f.error)).collect();
        let mut words = vec![&b"PIPELINE"[..], b"COUNT", &self.token];
        words.extend(counts.iter().map(|number| number.as_bytes()));
        words.extend(new.iter().flat_map(|(position, error)| [position.as_bytes(), error]));
        record.push(0, Kind::Own, words.into_iter());
        let added = new.len();
        known.recorded += added;
        self.recorded.store(executed, Ordering::Relaxed);
        let mut abort = known.abort.clone();
        abort.iter_mut().for_each(|abort| abort.note(executed, failures));
        if abort != known.recorded_abort {
            push_abort(&self.token, abort.as_ref(), record);
            known.recorded_abort = abort;
        }
    }

    /// Marks everything as recorded, and returns it: a snapshot or a record with this state precedes the next units. No
    /// other thread counts meanwhile.
    pub(crate) fn recorded_state(&self) -> TokenState {
        let mut known = lock(&self.failures);
        known.recorded = known.first.len();
        known.recorded_abort = known.abort.clone();
        self.recorded.store(self.executed(), Ordering::Relaxed);
        drop(known);
        self.state()
    }

    /// Returns the relation of a connection to the token.
    #[inline]
    pub(crate) fn ownership_of(&self, client: u64) -> Ownership {
        match self.holder.load(Ordering::Relaxed) {
            holder if holder == client => Ownership::Held,
            ENDED => Ownership::Ended,
            _ => Ownership::Lost,
        }
    }

    /// Returns its lifetime without a connection, in milliseconds.
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// Returns the user who started it.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// Returns true if it has progressed beyond the journal.
    pub(crate) fn is_unrecorded(&self) -> bool {
        let is_abort_unrecorded = || {
            let failures = lock(&self.failures);
            failures.abort != failures.recorded_abort
        };
        self.has_token() && (self.executed() != self.recorded.load(Ordering::Relaxed) || is_abort_unrecorded())
    }

    /// Returns the complete state.
    #[must_use]
    pub fn state(&self) -> TokenState {
        let known = |number: &AtomicU64| Some(number.load(Ordering::Relaxed)).filter(|&number| number != 0);
        TokenState {
            token: self.token.clone(),
            user: self.user.clone(),
            ttl_ms: self.ttl_ms,
            holder: known(&self.holder),
            expires_ms: known(&self.expires_ms),
            progress: self.progress(),
            abort: self.abort(),
            forward: self.forward(),
        }
    }
}

impl Failure {
    pub(crate) fn new(position: u64, error: &[u8]) -> Failure {
        Failure { position, error: error[..error.len().min(ERROR_BYTES_MAX)].into() }
    }
}

impl From<TokenState> for Pipeline {
    fn from(state: TokenState) -> Pipeline {
        let PipelineProgress { executed, failed, failures, database } = state.progress;
        Pipeline {
            token: state.token,
            user: state.user,
            ttl_ms: state.ttl_ms,
            holder: AtomicU64::new(state.holder.unwrap_or(NO_HOLDER)),
            expires_ms: AtomicU64::new(state.expires_ms.unwrap_or(0)),
            executed: AtomicU64::new(executed),
            database: AtomicUsize::new(database),
            recorded: AtomicU64::new(executed),
            is_stopped: AtomicBool::new(state.abort.as_ref().is_some_and(|abort| abort.failure.is_some())),
            failures: Mutex::new(Failures {
                failed,
                recorded: failures.len(),
                first: failures,
                recorded_abort: state.abort.clone(),
                abort: state.abort,
            }),
            forward: Mutex::new(state.forward),
        }
    }
}

/// The pipelines by token.
#[derive(Default)]
struct PipelineTable {
    by_token: BTreeMap<Box<[u8]>, Arc<Pipeline>>,
    /// Tokens without a connection by expiry, in milliseconds of Unix time.
    expiring: BTreeSet<(u64, Box<[u8]>)>,
}

impl PipelineTable {
    fn remove_expired(&mut self, now_ms: u64) {
        while self.expiring.first().is_some_and(|(expires_ms, _)| *expires_ms <= now_ms) {
            let Some((_, token)) = self.expiring.pop_first() else { return };
            self.by_token.remove(&token);
        }
    }

    fn keep(&mut self, pipeline: &Pipeline) {
        let expires_ms = pipeline.expires_ms.swap(0, Ordering::Relaxed);
        if expires_ms != 0 {
            self.expiring.remove(&(expires_ms, pipeline.token.clone()));
        }
    }
}

/// The reason why a token can't be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The token exists.
    Exists,
    /// The number of tokens is at its limit.
    Full,
}

/// All tokens.
#[derive(Default)]
pub struct Pipelines {
    table: Mutex<PipelineTable>,
    count: AtomicUsize,
    /// The number of names for other nodes' tokens that this process has made.
    names: AtomicU64,
}

impl Pipelines {
    /// Calls `run` with all unexpired tokens.
    fn with<T>(&self, now_ms: u64, run: impl FnOnce(&mut PipelineTable) -> T) -> T {
        let mut table = lock(&self.table);
        table.remove_expired(now_ms);
        let result = run(&mut table);
        self.count.store(table.by_token.len(), Ordering::Relaxed);
        result
    }

    /// Returns a number that no earlier call has returned.
    pub(crate) fn next_number(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a token, unless there are `max` already.
    pub fn add(&self, state: TokenState, max: usize, now_ms: u64) -> Result<Arc<Pipeline>, Refused> {
        self.with(now_ms, |table| {
            if table.by_token.contains_key(&state.token) {
                return Err(Refused::Exists);
            }
            if table.by_token.len() >= max {
                return Err(Refused::Full);
            }
            let pipeline = Arc::new(Pipeline::from(state));
            table.by_token.insert(pipeline.token.clone(), pipeline.clone());
            Ok(pipeline)
        })
    }

    /// Gives a token to a connection, and returns the previous holder. The caller is alone behind the gate.
    #[must_use]
    pub fn hand_over(&self, token: &[u8], to: u64, now_ms: u64) -> Option<(Arc<Pipeline>, Option<u64>)> {
        self.with(now_ms, |table| {
            let pipeline = table.by_token.get(token)?.clone();
            let before = pipeline.holder.swap(to, Ordering::Relaxed);
            table.keep(&pipeline);
            Some((pipeline, Some(before).filter(|&holder| holder != NO_HOLDER)))
        })
    }

    /// Returns a token's pipeline.
    #[must_use]
    pub fn get(&self, token: &[u8], now_ms: u64) -> Option<Arc<Pipeline>> {
        self.with(now_ms, |table| table.by_token.get(token).cloned())
    }

    /// Removes a token. The connection that has it continues without a count. Returns false if there is no such token.
    pub fn remove(&self, token: &[u8], now_ms: u64) -> bool {
        self.with(now_ms, |table| {
            let Some(pipeline) = table.by_token.remove(token) else { return false };
            table.keep(&pipeline);
            pipeline.holder.store(ENDED, Ordering::Relaxed);
            true
        })
    }

    /// Releases a token from a connection; its lifetime begins. Does nothing if the connection has lost it.
    pub(crate) fn let_go(&self, pipeline: &Pipeline, client: u64, now_ms: u64) {
        if !pipeline.has_token() {
            return;
        }
        self.with(now_ms, |table| {
            let change = pipeline.holder.compare_exchange(client, NO_HOLDER, Ordering::Relaxed, Ordering::Relaxed);
            if change.is_ok() {
                let expires_ms = now_ms.saturating_add(pipeline.ttl_ms);
                pipeline.expires_ms.store(expires_ms, Ordering::Relaxed);
                table.expiring.insert((expires_ms, pipeline.token.clone()));
            }
        });
    }

    /// Takes all tokens from their connections, which are closed at their next command: from now on another server
    /// changes the counts. The caller is alone behind the gate.
    pub(crate) fn take_back_all(&self, now_ms: u64) {
        self.with(now_ms, |table| {
            for (token, pipeline) in &table.by_token {
                if pipeline.holder.swap(NO_HOLDER, Ordering::Relaxed) != NO_HOLDER {
                    let expires_ms = now_ms.saturating_add(pipeline.ttl_ms);
                    pipeline.expires_ms.store(expires_ms, Ordering::Relaxed);
                    table.expiring.insert((expires_ms, token.clone()));
                }
            }
        });
    }

    /// Applies a token's record (see the module's documentation), an array of bulk strings. The lifetime of a token
    /// without a connection begins now. Returns false for any other record.
    pub fn replay_record(&self, record: &[u8], now_ms: u64) -> bool {
        let mut batch = Batch::default();
        Framer::default().frame(record.into(), 0, &Limits::default(), 1, &mut batch);
        let words = batch.requests().first().map(|request| batch.args(request, record.into()));
        let words: Vec<&[u8]> = words.iter().flat_map(|args| args.from(0)).collect();
        self.replay(&words, now_ms)
    }

    fn replay(&self, words: &[&[u8]], now_ms: u64) -> bool {
        let number =
            |at: usize| words.get(at).and_then(|word| resp::num::parse_i64(word)).and_then(|n| u64::try_from(n).ok());
        match words {
            [b"PIPELINE", b"END", token] => {
                self.remove(token, now_ms);
                true
            }
            [b"PIPELINE", b"KEEP", token, ..] => {
                // Three counts, then pairs.
                let (words, user) = match words.get(4..).and_then(<[_]>::split_last) {
                    Some((user, words)) if words.len() % 2 == 1 => (words, *user),
                    _ => (words.get(4..).unwrap_or_default(), DEFAULT_USER),
                };
                let (Some(ttl_ms), Some(progress)) = (number(3), PipelineProgress::of_record(words)) else {
                    return false;
                };
                let (token, user) = ((*token).into(), user.into());
                let expires_ms = Some(now_ms.saturating_add(ttl_ms));
                let (abort, forward) = (None, None);
                let state = TokenState { token, user, ttl_ms, holder: None, expires_ms, progress, abort, forward };
                self.keep(state, now_ms);
                true
            }
            [b"PIPELINE", b"ABORT", token, words @ ..] => {
                let abort = match words {
                    [b"OFF"] => None,
                    words => match AbortState::of_record(words) {
                        Some(abort) => Some(abort),
                        None => return false,
                    },
                };
                self.replay_change(token, now_ms, |state| state.abort = abort);
                true
            }
            [b"PIPELINE", b"FORWARD", token, words @ ..] => {
                let Some(forward) = ForwardState::of_record(words) else { return false };
                self.replay_change(token, now_ms, |state| state.forward = Some(forward));
                true
            }
            [b"PIPELINE", b"COUNT", token, ..] => {
                let Some(mut progress) = PipelineProgress::of_record(&words[3..]) else { return false };
                self.replay_change(token, now_ms, |state| {
                    progress.failures.splice(0..0, std::mem::take(&mut state.progress.failures));
                    progress.failures.truncate(FAILURES_MAX);
                    state.progress = progress;
                });
                true
            }
            _ => false,
        }
    }

    /// Applies a record to a token, if it exists. A record may follow the token's end, because the connection continues
    /// uncounted.
    fn replay_change(&self, token: &[u8], now_ms: u64, change: impl FnOnce(&mut TokenState)) {
        let Some(pipeline) = self.get(token, now_ms) else { return };
        let expires_ms = Some(now_ms.saturating_add(pipeline.ttl_ms));
        let mut state = TokenState { holder: None, expires_ms, ..pipeline.state() };
        change(&mut state);
        self.keep(state, now_ms);
    }

    /// Adds or replaces a token, without a connection.
    fn keep(&self, state: TokenState, now_ms: u64) {
        self.with(now_ms, |table| {
            if let Some(before) = table.by_token.get(&state.token).cloned() {
                table.keep(&before);
            }
            if let Some(expires_ms) = state.expires_ms {
                table.expiring.insert((expires_ms, state.token.clone()));
            }
            table.by_token.insert(state.token.clone(), Arc::new(Pipeline::from(state)));
        });
    }

    /// Removes expired tokens. Cheap if there are no tokens.
    pub fn remove_expired(&self, now_ms: u64) {
        if self.count() > 0 {
            self.with(now_ms, |_| ());
        }
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the states of all tokens, sorted. Counts and data agree if the caller is alone behind the gate.
    #[must_use]
    pub fn states(&self, now_ms: u64) -> Vec<TokenState> {
        self.with(now_ms, |table| table.by_token.values().map(|pipeline| pipeline.state()).collect())
    }

    /// Returns the states for a snapshot that precedes the next units, which then record only later progress. The
    /// caller is alone behind the gate.
    #[must_use]
    pub fn states_before_units(&self, now_ms: u64) -> Vec<TokenState> {
        // In one piece: replies of other nodes are counted outside of the gate, under the table's lock.
        self.with(now_ms, |table| table.by_token.values().map(|pipeline| pipeline.recorded_state()).collect())
    }
}

/// The running command.
#[derive(Clone, Copy)]
struct RunningCommand {
    /// Index in the command table.
    command: usize,
    position: u64,
}

/// A connection's count for its pipeline.
pub struct Tally {
    pipeline: Arc<Pipeline>,
    /// Number of commands in an open transaction. They count at its end, because nothing happens before.
    open: u64,
    /// Number of errors in the transaction or the running command.
    failed: u64,
    /// The first of these errors.
    failures: Vec<Failure>,
    /// `None` if the running command doesn't count, or has been counted.
    running: Option<RunningCommand>,
    /// True if a command of the open transaction belongs to another node of the cluster.
    is_redirected: bool,
}

impl Tally {
    /// Starts to count for this pipeline with the next command.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline>) -> Tally {
        Tally { pipeline, open: 0, failed: 0, failures: Vec::new(), running: None, is_redirected: false }
    }

    /// Returns the pipeline.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// Continues without the token, which was removed. Returns `None` if nothing is left to count for, because the
    /// pipeline doesn't stop at failures.
    pub(crate) fn without_token(&self, client: u64) -> Option<Tally> {
        let state = self.pipeline.abort()?.moved(self.pipeline.executed(), 0);
        let pipeline = Arc::new(Pipeline::without_token(client, state));
        Some(Tally { open: self.open, ..Tally::new(pipeline) })
    }

    /// Returns true if the running command has failed with an error that stops the pipeline.
    #[inline]
    pub(crate) fn stops(&self) -> bool {
        self.failed > 0 && self.running.is_some() && self.pipeline.stops_at(&self.failures)
    }

    /// Begins the command with this index in the table; `None` for an unknown command.
    #[inline]
    pub(crate) fn begin(&mut self, command: Option<usize>) {
        let position = self.pipeline.executed() + self.open + 1;
        self.running = Some(RunningCommand { command: command.unwrap_or(UNKNOWN), position });
    }

    /// Excludes the running command from the count, also if it did not run.
    pub(crate) fn begin_not(&mut self) {
        self.running = None;
    }

    /// Within a transaction, begins the command with this index in the table that was queued at this position.
    pub(crate) fn begin_queued(&mut self, command: usize, position: u64) {
        if self.running.is_some() {
            self.running = Some(RunningCommand { command, position });
        }
    }

    /// Returns the running command's position in the pipeline; 0 if it is outside of the pipeline.
    pub(crate) fn position(&self) -> u64 {
        self.running.map_or(0, |running| running.position)
    }

    /// Ends the running command, with this database selected after it. Within a transaction, the command counts at the
    /// transaction's end.
    #[inline]
    pub(crate) fn end(&mut self, in_transaction: bool, database: usize) {
        if self.running.take().is_none() {
            return;
        }
        self.open += 1;
        if in_transaction {
            return;
        }
        if self.is_redirected {
            return self.forget_open();
        }
        self.pipeline.database.store(database, Ordering::Relaxed);
        self.pipeline.add(std::mem::take(&mut self.open));
        if self.failed > 0 {
            self.pipeline.add_failures(std::mem::take(&mut self.failed), std::mem::take(&mut self.failures));
        }
    }

    /// Notes that the command with this index in the table replied with an error. Only the running command's error
    /// counts.
    #[cold]
    pub(crate) fn fail(&mut self, command: Option<usize>, error: &[u8]) {
        let Some(RunningCommand { command: running, position }) = self.running else { return };
        if running != command.unwrap_or(UNKNOWN) {
            return;
        }
        self.failed += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(Failure::new(position, error));
        }
    }

    /// Takes the running command, or the transaction that it ends, out of the count, because another node runs it. Returns
    /// its first position and the number of commands. [`Pipelines::count_answered`] counts them.
    pub(crate) fn defer(&mut self) -> Option<(u64, u64)> {
        self.running.take()?;
        let commands = self.open + 1;
        self.forget_open();
        Some((self.pipeline.executed() + 1, commands))
    }

    /// Notes that the running command, or the open transaction, belongs to another node of the cluster, which will run and
    /// count it.
    pub(crate) fn redirect(&mut self, in_transaction: bool) {
        self.running = None;
        self.is_redirected = in_transaction;
        if !in_transaction {
            self.forget_open();
        }
    }

    /// Forgets the open transaction.
    fn forget_open(&mut self) {
        (self.open, self.failed, self.is_redirected) = (0, 0, false);
        self.failures.clear();
    }

    /// Records the progress of the pipeline, including the running command if it `counts`. `database` is selected after
    /// it.
    pub(crate) fn record(&self, counts: bool, database: usize, record: &mut Record) {
        let runs = counts && self.running.is_some();
        let open = if runs { self.open + 1 } else { 0 };
        let (failed, failures) = if runs { (self.failed, &*self.failures) } else { (0, &[][..]) };
        let database = if runs { database } else { self.pipeline.database() };
        self.pipeline.record(open, failed, failures, database, record);
    }
}
