//! Pipelines that survive their connections (PIPELINE): the table of tokens, and what is counted for each.
//!
//! A token's count is exact because it changes with the command that it counts, before the thread that has run the
//! command leaves the gate, and because a token changes hands behind the closed gate (RESUME): at that moment no
//! command has run without being counted. A thread that has left the gate looks whether its connection still has the
//! token before it runs anything more for it (`Session::begin_counted`, `Worker::alone`). The command of a parked
//! connection counts when it is answered, by the thread that answers it, not when the reply is delivered.
//!
//! A token's state is plain data, [`TokenState`]: what a snapshot made behind the closed gate would keep beside the
//! keyspace. In the journal, the count is part of the unit that it counts (`Session::record_count`), so that count and
//! data never part; commands that change nothing are counted there by their batch. A token is recorded as
//!
//! ```text
//! PIPELINE KEEP token ttl_ms executed failed database [position error ...] [user]     from PIPELINE START
//! PIPELINE COUNT token executed failed database [position error ...]           the failures since the last record
//! PIPELINE END token
//! ```
//!
//! A token belongs to the user who started it; the default user, where a record names none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::record::{self, Kind, Record};
use resp::request::{Batch, Framer, Limits};

/// Bytes of a token: far more than a random identifier or a file's name takes.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Failures that a token keeps: enough to see what is wrong with a pipeline, few enough to be read.
pub const FAILURES_MAX: usize = 32;
/// Bytes of an error that are kept with a failure; the messages that quote nothing long are shorter.
pub const ERROR_BYTES_MAX: usize = 128;

/// The user of tokens whose records name none.
pub(crate) const DEFAULT_USER: &[u8] = b"default";
/// No connection has this number: the one that had the token is gone.
const NO_HOLDER: u64 = 0;
/// No connection has this number, either: the token itself is gone.
const ENDED: u64 = u64::MAX;
/// Stands for a command that is not in the table.
const UNKNOWN: usize = usize::MAX;

/// A command that answered an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its place among the commands of the pipeline, from 1.
    pub position: u64,
    /// The beginning of the error, without its "-".
    pub error: Box<[u8]>,
}

/// How far a pipeline has got.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PipelineProgress {
    /// Commands that have run or were refused.
    pub executed: u64,
    /// Those of them that answered an error.
    pub failed: u64,
    /// The first of these.
    pub failures: Vec<Failure>,
    /// The database that is selected behind them.
    pub database: usize,
}

impl PipelineProgress {
    /// Reads `executed failed database [position error ...]`.
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

/// All that there is to know of a token, apart from the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenState {
    /// The token.
    pub token: Box<[u8]>,
    /// The user who started it.
    pub user: Box<[u8]>,
    /// How long it is kept once no connection has it, in milliseconds.
    pub ttl_ms: u64,
    /// The connection that has it.
    pub holder: Option<u64>,
    /// When it expires, in milliseconds of Unix time; none while a connection has it.
    pub expires_ms: Option<u64>,
    /// How far its pipeline has got.
    pub progress: PipelineProgress,
}

impl TokenState {
    /// The record that makes a token what it is (see the module's documentation), as an array of bulk strings.
    #[must_use]
    pub fn record(&self) -> Vec<u8> {
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

/// The user in the record of a token: the last word, if there is one, so that the number of words behind the counts is odd.
pub(crate) fn word_of_user(user: &[u8]) -> Option<&[u8]> {
    (user != DEFAULT_USER).then_some(user)
}

#[derive(Default)]
struct Failures {
    failed: u64,
    first: Vec<Failure>,
    /// Failures that the journal knows: those of `first`, and of those that are about to be added.
    recorded: usize,
}

/// Whether a connection has the token that it counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// It has.
    Has,
    /// The token is gone (PIPELINE END), perhaps after another connection has taken it over.
    Ended,
    /// Another connection has taken it over, and may be gone already.
    Lost,
}

/// A pipeline that is counted. One connection at a time counts for it.
pub struct Pipeline {
    token: Box<[u8]>,
    user: Box<[u8]>,
    ttl_ms: u64,
    /// The connection that has the token, [`NO_HOLDER`] or [`ENDED`]. Changes under the table's lock.
    holder: AtomicU64,
    /// 0 while a connection has the token. Changes under the table's lock.
    expires_ms: AtomicU64,
    /// Written by the thread that runs the holder's commands: one thread at a time, and inside the gate.
    executed: AtomicU64,
    /// The database that the holder has selected behind those commands. Written with their number.
    database: AtomicUsize,
    /// Commands that the journal knows of, and the database behind them.
    recorded: AtomicU64,
    failures: Mutex<Failures>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipeline {
    /// Commands that have run or were refused.
    #[inline]
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Acquire)
    }

    /// The database that is selected behind those.
    #[must_use]
    pub fn database(&self) -> usize {
        self.database.load(Ordering::Relaxed)
    }

    /// Counts one command that has been answered, with its error if that is what it answered. The caller is inside the
    /// gate and has the right to answer the command.
    pub fn count_one(&self, error: Option<&[u8]>) {
        // A connection that waits selects nothing meanwhile.
        self.add(1);
        if let Some(error) = error {
            self.add_failures(1, vec![Failure::new(self.executed(), error)]);
        }
    }

    #[inline]
    fn add(&self, commands: u64) {
        // One writer at a time: a plain load and store do. Before the failures are added, so that no reader sees more
        // failures than commands.
        let executed = self.executed.load(Ordering::Relaxed).wrapping_add(commands);
        self.executed.store(executed, Ordering::Release);
    }

    #[cold]
    fn add_failures(&self, failed: u64, mut first: Vec<Failure>) {
        // What a transaction's commands answer is known after what was refused while they were queued.
        first.sort_by_key(|failure| failure.position);
        let mut failures = lock(&self.failures);
        failures.failed += failed;
        let room = FAILURES_MAX.saturating_sub(failures.first.len());
        failures.first.extend(first.into_iter().take(room));
    }

    /// How far it has got.
    #[must_use]
    pub fn progress(&self) -> PipelineProgress {
        let failures = lock(&self.failures);
        let (failed, first) = (failures.failed, failures.first.clone());
        drop(failures);
        let executed = self.executed();
        PipelineProgress { executed, failed, failures: first, database: self.database() }
    }

    /// Records how far it has got, with the failures that the journal doesn't know. `open` commands, of which `failed`
    /// have failed, are about to be added; `failures` are the first of these.
    pub(crate) fn record(&self, open: u64, failed: u64, failures: &[Failure], database: usize, record: &mut Record) {
        let mut known = lock(&self.failures);
        let executed = self.executed() + open;
        let counts = [executed, known.failed + failed, database as u64].map(|number| number.to_string());
        let mut new: Vec<&Failure> = failures.iter().collect();
        // As they will be added.
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
    }

    /// The journal knows all of it from now on: a snapshot that its units follow has its state. The caller is alone behind the gate.
    fn note_recorded(&self) {
        let mut known = lock(&self.failures);
        known.recorded = known.first.len();
        self.recorded.store(self.executed(), Ordering::Relaxed);
    }

    /// Whether a connection that counts for it still has the token.
    #[inline]
    pub(crate) fn hold_of(&self, client: u64) -> Hold {
        match self.holder.load(Ordering::Relaxed) {
            holder if holder == client => Hold::Has,
            ENDED => Hold::Ended,
            _ => Hold::Lost,
        }
    }

    /// The user who started it.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// True if it has got further than the journal knows.
    pub(crate) fn is_unrecorded(&self) -> bool {
        self.executed() != self.recorded.load(Ordering::Relaxed)
    }

    /// All that there is to know of it.
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
        }
    }
}

impl Failure {
    fn new(position: u64, error: &[u8]) -> Failure {
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
            failures: Mutex::new(Failures { failed, recorded: failures.len(), first: failures }),
        }
    }
}

/// The pipelines by their tokens.
#[derive(Default)]
struct PipelineTable {
    by_token: BTreeMap<Box<[u8]>, Arc<Pipeline>>,
    /// Those that no connection has, by the time at which they expire, in milliseconds of Unix time.
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

/// Why a token can't be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is such a token.
    Exists,
    /// There are as many as there may be.
    Full,
}

/// All tokens.
#[derive(Default)]
pub struct Pipelines {
    table: Mutex<PipelineTable>,
    count: AtomicUsize,
}

impl Pipelines {
    /// Does something with all tokens that have not expired by now.
    fn with<T>(&self, now_ms: u64, run: impl FnOnce(&mut PipelineTable) -> T) -> T {
        let mut table = lock(&self.table);
        table.remove_expired(now_ms);
        let result = run(&mut table);
        self.count.store(table.by_token.len(), Ordering::Relaxed);
        result
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

    /// Gives a token to a connection, and says which one had it before. The caller is alone behind the gate.
    #[must_use]
    pub fn hand_over(&self, token: &[u8], to: u64, now_ms: u64) -> Option<(Arc<Pipeline>, Option<u64>)> {
        self.with(now_ms, |table| {
            let pipeline = table.by_token.get(token)?.clone();
            let before = pipeline.holder.swap(to, Ordering::Relaxed);
            table.keep(&pipeline);
            Some((pipeline, Some(before).filter(|&holder| holder != NO_HOLDER)))
        })
    }

    /// A token's pipeline.
    #[must_use]
    pub fn get(&self, token: &[u8], now_ms: u64) -> Option<Arc<Pipeline>> {
        self.with(now_ms, |table| table.by_token.get(token).cloned())
    }

    /// Removes a token. The connection that has it goes on without being counted. False if there is none.
    pub fn remove(&self, token: &[u8], now_ms: u64) -> bool {
        self.with(now_ms, |table| {
            let Some(pipeline) = table.by_token.remove(token) else { return false };
            table.keep(&pipeline);
            pipeline.holder.store(ENDED, Ordering::Relaxed);
            true
        })
    }

    /// A connection has no more use for a token, which expires from now on. Nothing happens if it has it no longer.
    pub(crate) fn let_go(&self, pipeline: &Pipeline, client: u64, now_ms: u64) {
        self.with(now_ms, |table| {
            let change = pipeline.holder.compare_exchange(client, NO_HOLDER, Ordering::Relaxed, Ordering::Relaxed);
            if change.is_ok() {
                let expires_ms = now_ms.saturating_add(pipeline.ttl_ms);
                pipeline.expires_ms.store(expires_ms, Ordering::Relaxed);
                table.expiring.insert((expires_ms, pipeline.token.clone()));
            }
        });
    }

    /// Takes all tokens from the connections that have them, which are closed at their next command: the counts are another server's to
    /// change from now on. The caller is alone behind the gate.
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

    /// Does what a record of a token says (see the module's documentation), which is an array of bulk strings. A token that no connection
    /// has expires from now on. False if it is no such record.
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
                // Three counts and pairs.
                let (words, user) = match words.get(4..).and_then(<[_]>::split_last) {
                    Some((user, words)) if words.len() % 2 == 1 => (words, *user),
                    _ => (words.get(4..).unwrap_or_default(), DEFAULT_USER),
                };
                let (Some(ttl_ms), Some(progress)) = (number(3), PipelineProgress::of_record(words)) else {
                    return false;
                };
                let (token, user) = ((*token).into(), user.into());
                let expires_ms = Some(now_ms.saturating_add(ttl_ms));
                self.keep(TokenState { token, user, ttl_ms, holder: None, expires_ms, progress }, now_ms);
                true
            }
            [b"PIPELINE", b"COUNT", token, ..] => {
                let Some(mut progress) = PipelineProgress::of_record(&words[3..]) else { return false };
                // Its count may come after its end: a connection goes on uncounted then.
                let Some(pipeline) = self.get(token, now_ms) else { return true };
                let TokenState { user, ttl_ms, progress: before, .. } = pipeline.state();
                progress.failures.splice(0..0, before.failures);
                progress.failures.truncate(FAILURES_MAX);
                let expires_ms = Some(now_ms.saturating_add(ttl_ms));
                let token = (*token).into();
                self.keep(TokenState { token, user, ttl_ms, holder: None, expires_ms, progress }, now_ms);
                true
            }
            _ => false,
        }
    }

    /// Adds a token that no connection has, in place of what there was.
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

    /// Removes the tokens that have expired. Cheap while there are none.
    pub fn remove_expired(&self, now_ms: u64) {
        if self.count() > 0 {
            self.with(now_ms, |_| ());
        }
    }

    /// How many tokens there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The state of every token, in their order. Counts and data fit each other if the caller is alone behind the gate.
    #[must_use]
    pub fn states(&self, now_ms: u64) -> Vec<TokenState> {
        self.with(now_ms, |table| table.by_token.values().map(|pipeline| pipeline.state()).collect())
    }

    /// The same for a snapshot that the units from now on follow: they tell what is new to it. The caller is alone behind the gate.
    #[must_use]
    pub fn states_before_units(&self, now_ms: u64) -> Vec<TokenState> {
        self.with(now_ms, |table| table.by_token.values().for_each(|pipeline| pipeline.note_recorded()));
        self.states(now_ms)
    }
}

/// The command that is running.
#[derive(Clone, Copy)]
struct RunningCommand {
    /// Its place in the table.
    command: usize,
    position: u64,
}

/// What a connection counts.
pub struct Tally {
    pipeline: Arc<Pipeline>,
    /// Commands of a transaction that has begun. They count when it ends: until then, nothing has happened.
    open: u64,
    /// Errors of the transaction, or of the command that is running.
    failed: u64,
    /// The first of these.
    failures: Vec<Failure>,
    /// None if it doesn't count, or has been counted.
    running: Option<RunningCommand>,
}

impl Tally {
    /// Counts for this pipeline from the next command on.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline>) -> Tally {
        Tally { pipeline, open: 0, failed: 0, failures: Vec::new(), running: None }
    }

    /// What it counts for.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    /// The command with this place in the table begins to run; none if there is no such command.
    #[inline]
    pub(crate) fn begin(&mut self, command: Option<usize>) {
        let position = self.pipeline.executed() + self.open + 1;
        self.running = Some(RunningCommand { command: command.unwrap_or(UNKNOWN), position });
    }

    /// The command that is running is none of the pipeline's, or has not run.
    pub(crate) fn begin_not(&mut self) {
        self.running = None;
    }

    /// Within a transaction, the command with this place in the table begins, which was queued at this position.
    pub(crate) fn begin_queued(&mut self, command: usize, position: u64) {
        if self.running.is_some() {
            self.running = Some(RunningCommand { command, position });
        }
    }

    /// The place of the command that is running among those of the pipeline; 0 if it is none of them.
    pub(crate) fn position(&self) -> u64 {
        self.running.map_or(0, |running| running.position)
    }

    /// The command that is running has been answered, and this database is selected behind it. Within a transaction, it
    /// waits for the end of that to count.
    #[inline]
    pub(crate) fn end(&mut self, in_transaction: bool, database: usize) {
        if self.running.take().is_none() {
            return;
        }
        self.open += 1;
        if in_transaction {
            return;
        }
        self.pipeline.database.store(database, Ordering::Relaxed);
        self.pipeline.add(std::mem::take(&mut self.open));
        if self.failed > 0 {
            self.pipeline.add_failures(std::mem::take(&mut self.failed), std::mem::take(&mut self.failures));
        }
    }

    /// The command with this place in the table has answered an error. It counts if that is the one that is running.
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

    /// Records how far the pipeline has got, the running command included if it `counts`. `database` is selected
    /// behind that.
    pub(crate) fn record(&self, counts: bool, database: usize, record: &mut Record) {
        let runs = counts && self.running.is_some();
        let open = if runs { self.open + 1 } else { 0 };
        let (failed, failures) = if runs { (self.failed, &*self.failures) } else { (0, &[][..]) };
        let database = if runs { database } else { self.pipeline.database() };
        self.pipeline.record(open, failed, failures, database, record);
    }
}
