//! The connections of a load: the first one, and with `--resume` those that replace a broken one.

use std::time::{Duration, Instant};

use client::{Config, Connection, Error, Lost, Stream};

use crate::complete::LoadOutcome;
use crate::exit::{Exit, Failure};
use crate::flight::Remembered;
use crate::interrupt::interrupted;
use crate::limits::ARGS_MAX;
use crate::merge::Merging;
use crate::probe;
use crate::progress::{count, grouped, say};
use crate::state::{Phase, Reported, StateFile};
use crate::token::{self, Answer, TokenProgress};
use crate::transfer::{Ended, Load, Transfer};

/// First pause between attempts to connect. It doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Maximum pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Minimum interval between updates of the state file.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// State for `--resume`.
pub struct Resumable {
    /// The state file.
    pub file: StateFile,
    /// Time that the server keeps the token while no loader is connected, in seconds.
    pub ttl_s: u64,
    /// Time limit for reconnecting without any progress.
    pub retry: Duration,
    /// Time of the last update of the state file.
    pub written: Instant,
    /// Number of failed requests that earlier runs have reported, without those that the server has sent again.
    pub failed_before: u64,
}

impl Resumable {
    /// Returns the settings for merging: those of the load's beginning, or for a new load the possible ones, in chunks
    /// of `chunk` commands.
    ///
    /// # Errors
    /// Returns an error if the load began with settings that aren't possible any more.
    pub fn merging(&mut self, possible: Merging, chunk: u64) -> Result<Merging, Failure> {
        let progress = &mut self.file.state.progress;
        if progress.phase == Phase::New {
            // They are written with the next change of the phase, before anything is sent.
            progress.merging = possible.in_chunks(chunk);
        } else if !progress.merging.can_go_on(possible) {
            return Err(Failure::new(
                Exit::Resume,
                "the load began with merged commands, which the server, this version or --no-merge doesn't allow \
                 now. Without the same merging, the executed commands can't be identified; use --restart to start again",
            ));
        }
        Ok(progress.merging)
    }

    /// Writes the number of answered commands into the state from time to time, as information for the user if the
    /// server loses the token. New failures are written at once, so that a later loader knows that they are in the
    /// report.
    fn note(&mut self, load: &Load<'_>, now: Instant) -> Result<(), Failure> {
        let noted = &self.file.state.progress;
        let (reported, before) = (self.reported(load), noted.reported);
        let has_news = reported.failed_requests > before.failed_requests
            || reported.rejected > before.rejected
            || now.duration_since(self.written) >= STATE_EVERY && load.flight.answered() != noted.answered;
        if !has_news {
            return Ok(());
        }
        self.written = now;
        self.note_now(load, false)
    }

    /// Writes the progress at once, unless it would go backwards. `is_all` tells that no further errors will be
    /// reported.
    fn note_now(&mut self, load: &Load<'_>, is_all: bool) -> Result<(), Failure> {
        let (noted, reported) = (self.file.state.progress, self.reported(load));
        if reported.requests < noted.reported.requests {
            return Ok(());
        }
        self.file.note(load.flight.answered().max(noted.answered), Reported { is_all, ..reported })
    }

    /// Returns the numbers of reported errors. The report must be flushed.
    fn reported(&self, load: &Load<'_>) -> Reported {
        Reported {
            requests: load.flight.done_requests(),
            failed_requests: self.failed_before + load.flight.failed_requests(),
            failed: load.report.failures(),
            // Rejected lines near the end of the earlier run may not have been read again yet.
            rejected: load.report.rejected_lines().max(self.file.state.progress.reported.rejected),
            is_all: false,
        }
    }
}

/// A load with its connection to the server.
pub struct LoadSession<'s, 'l> {
    /// Configuration of the server.
    pub config: &'s Config,
    /// The load.
    pub load: Load<'l>,
    /// State for `--resume`.
    pub resumable: Option<Resumable>,
    /// Number of failed requests that the server counted and doesn't list.
    pub unlisted: u64,
    /// True if some of them may be in the report, because an earlier loader was killed after its last update of the
    /// state.
    pub may_be_reported: bool,
    /// Number of executed commands at the last broken connection that had made progress, and its time.
    pub advanced: (u64, Instant),
}

/// A new connection with the token's progress, or the reason for another attempt.
enum Attempt {
    Connected(Box<dyn Stream>, TokenProgress),
    Again(String),
}

impl LoadSession<'_, '_> {
    /// Loads everything.
    ///
    /// # Errors
    /// Returns the reason for an early end.
    pub fn run(&mut self, connection: Connection) -> Result<(), Failure> {
        let ran = self.load_all(connection);
        // Noted before the load is closed: closing reports failures in an unfinished transaction, which runs again if
        // the load continues.
        let noted = self.note_end();
        ran.and(noted).and_then(|()| self.load.close()).and_then(|()| self.note_rejected())
    }

    /// Notes lines that were rejected within an unfinished transaction. They were reported at the end of the load, and
    /// will be rejected again when the transaction is sent again.
    fn note_rejected(&mut self) -> Result<(), Failure> {
        let Some(resumable) = &mut self.resumable else { return Ok(()) };
        let (noted, rejected) = (resumable.file.state.progress, self.load.report.rejected_lines());
        if rejected <= noted.reported.rejected {
            return Ok(());
        }
        resumable.file.note(noted.answered, Reported { rejected, ..noted.reported })
    }

    /// Notes the reported errors, and that no more will be reported.
    fn note_end(&mut self) -> Result<(), Failure> {
        self.load.report.flush()?;
        self.resumable.as_mut().map_or(Ok(()), |resumable| resumable.note_now(&self.load, true))
    }

    fn load_all(&mut self, connection: Connection) -> Result<(), Failure> {
        let mut stream = self.begin(connection)?;
        loop {
            let resumable = &mut self.resumable;
            let note = |load: &Load<'_>, now| resumable.as_mut().map_or(Ok(()), |resumable| resumable.note(load, now));
            match Transfer::new(&mut self.load, &mut *stream).run(note) {
                Ok(()) => return Ok(()),
                Err(Ended::Failed(failure)) => return Err(failure),
                Err(Ended::Broken(reason)) => stream = self.go_on(&reason)?,
            }
        }
    }

    /// Starts over the first connection or a replacement, at the first command that must be sent.
    fn begin(&mut self, connection: Connection) -> Result<Box<dyn Stream>, Failure> {
        let Some(resumable) = &self.resumable else { return Ok(connection.into_stream().0) };
        let reported = resumable.file.state.progress.reported;
        let (stream, progress) = self.enter(Some(connection), None)?;
        if let Some(resumable) = &mut self.resumable {
            resumable.file.enter(Phase::Started)?;
        }
        let goes_on = progress.executed > 0;
        self.take_up(progress)?;
        self.may_be_reported = self.unlisted > 0 && !reported.is_all;
        if let Some(resumable) = &mut self.resumable {
            // From here on, a killed loader may have reported more errors than are noted.
            resumable.note_now(&self.load, false)?;
        }
        if goes_on {
            let done = count(self.load.flight.done(), "command");
            let (failed, at_least) = self.failed();
            let at_least = if at_least { "at least " } else { "" };
            let failed = grouped(failed);
            let text = format!("{done} executed in an earlier run, {at_least}{failed} of them failed; continuing");
            self.load.progress.say(&text);
        }
        Ok(stream)
    }

    /// Returns the number of failed commands, and true if it is a lower bound.
    pub fn failed(&self) -> (u64, bool) {
        (self.load.report.failures() + self.unlisted, self.unlisted > 0 && self.request_commands() > 1)
    }

    /// Returns the maximum number of commands in a request.
    fn request_commands(&self) -> u64 {
        self.resumable.as_ref().map_or(1, |resumable| resumable.file.state.progress.merging.most().max(1))
    }

    /// Prints how many errors are missing in the report, if any.
    pub fn say_unlisted(&self) {
        let errors = |number| count(number, "error") + " of commands whose replies were lost";
        match (self.unlisted, self.request_commands()) {
            (0, _) => {}
            (requests, each) if self.may_be_reported => {
                say(&format!("the report may lack up to {}", errors(requests.saturating_mul(each))));
            }
            (requests, 1) => say(&format!("{} could not be listed", errors(requests))),
            (requests, _) => say(&format!("at least {} could not be listed", errors(requests))),
        }
    }

    /// Connects again after a broken connection.
    fn go_on(&mut self, reason: &str) -> Result<Box<dyn Stream>, Failure> {
        if self.resumable.is_none() || self.load.interrupt.was_asked() {
            return Err(self.broken(reason));
        }
        let (stream, progress) = self.enter(None, Some(reason))?;
        self.take_up(progress)?;
        // If a command makes the server close the connection, it must not be sent forever.
        let (answered, now) = (self.load.flight.done(), Instant::now());
        if answered > self.advanced.0 {
            self.advanced = (answered, now);
        }
        let retry = self.resumable.as_ref().map_or(Duration::ZERO, |resumable| resumable.retry);
        if now.duration_since(self.advanced.1) > retry { Err(self.broken(reason)) } else { Ok(stream) }
    }

    /// Passes the executed requests to the flight, and reads the input up to them.
    fn take_up(&mut self, progress: TokenProgress) -> Result<(), Failure> {
        if progress.executed < self.load.flight.done_requests() {
            return Err(forgotten(self.load.flight.done()));
        }
        self.hear_again(&progress)?;
        let done = self.load.flight.done_requests();
        let before = self.resumable.as_ref().map_or(0, |resumable| resumable.failed_before);
        let known = before + self.load.flight.failed_requests();
        let listed = progress.failures.iter().filter(|failure| failure.request >= done).count() as u64;
        self.unlisted = progress.failed.saturating_sub(known + listed);
        self.skip(progress.executed, progress.failures)?;
        self.load.progress.begin_at(self.load.flight.done());
        Ok(())
    }

    /// Skips the requests that an earlier run has reported. The first failures among them are read again.
    fn hear_again(&mut self, progress: &TokenProgress) -> Result<(), Failure> {
        let noted = self.resumable.as_ref().map_or(Reported::default(), |it| it.file.state.progress.reported);
        if self.load.flight.done_requests() >= noted.requests {
            return Ok(());
        }
        let again = progress.failures.iter().filter(|failure| failure.request < noted.requests);
        self.skip(noted.requests.min(progress.executed), again.cloned().collect())?;
        self.load.report.add_earlier(noted.failed);
        if let Some(resumable) = &mut self.resumable {
            resumable.failed_before = noted.failed_requests.saturating_sub(self.load.flight.failed_requests());
        }
        Ok(())
    }

    /// Passes the number of executed requests and the failed ones to the flight, and reads the input up to them.
    fn skip(&mut self, executed: u64, failures: Vec<Remembered>) -> Result<(), Failure> {
        let load = &mut self.load;
        load.flight.resume(executed, failures, &mut load.report, |block| load.block_channel.give_back(block));
        while load.flight.is_skipping() {
            load.tick(Instant::now())?;
            if load.interrupt.was_asked() {
                return Err(interrupted());
            }
            if load.input_end.is_some() {
                return Err(Failure::new(
                    Exit::Resume,
                    format!(
                        "the server has executed more commands of this load than the input has ({}): it is another \
                         input",
                        count(load.flight.answered(), "command"),
                    ),
                ));
            }
            if !load.refill() {
                load.block_channel.wait();
            }
        }
        Ok(())
    }

    /// Resumes the token over this connection, or over a new one if there is none or it breaks. `reason` describes the
    /// earlier broken connection of a running load.
    fn enter(
        &mut self,
        mut connection: Option<Connection>,
        reason: Option<&str>,
    ) -> Result<(Box<dyn Stream>, TokenProgress), Failure> {
        let retry = self.resumable.as_ref().map_or(Duration::ZERO, |resumable| resumable.retry);
        let mut pauses = Pauses::new(retry);
        loop {
            let trouble = match self.attempt(connection.take())? {
                Attempt::Connected(stream, progress) => return Ok((stream, progress)),
                Attempt::Again(trouble) => trouble,
            };
            if self.load.interrupt.was_asked() || !pauses.pause() {
                return Err(match reason {
                    Some(reason) => self.broken(&format!("{reason}; {trouble}")),
                    None if self.load.interrupt.was_asked() => interrupted(),
                    None => Failure::new(Exit::Server, format!("{trouble}; nothing was sent")),
                });
            }
            self.load.tick(Instant::now())?;
        }
    }

    fn attempt(&mut self, connection: Option<Connection>) -> Result<Attempt, Failure> {
        let Some(resumable) = &self.resumable else { return Ok(Attempt::Again(String::new())) };
        let state = &resumable.file.state;
        let (config, token, answered) = (self.config.clone(), state.name.token.clone(), state.progress.answered);
        let is_new = state.progress.phase == Phase::New;
        let new_ttl_s = is_new.then_some(resumable.ttl_s);
        let asked = self.load.interrupt.wait_for(move || {
            let mut connection = connection.map_or_else(|| Connection::connect(&config), Ok)?;
            let answer = token::enter(&mut connection, &token, new_ttl_s)?;
            Ok((connection.into_stream().0, answer))
        });
        // The process was asked to stop. The caller checks this before it tries again.
        let Ok(asked) = asked else { return Ok(Attempt::Again("interrupted".to_owned())) };
        match asked {
            Ok((stream, Answer::Is(progress))) => Ok(Attempt::Connected(stream, progress)),
            Ok((_, Answer::NoToken)) => Err(forgotten(self.load.flight.done().max(answered))),
            Ok((_, Answer::Unsupported)) => {
                if is_new {
                    self.forget();
                }
                Err(unsupported())
            }
            Err(error) if is_passing(&error) => Ok(Attempt::Again(shown(&error))),
            Err(error) => Err(server_failure(&error)),
        }
    }

    /// Returns the failure for a broken connection, with the known state of the commands.
    fn broken(&self, reason: &str) -> Failure {
        let flight = &self.load.flight;
        let (answered, open) = (flight.done(), flight.sent().saturating_sub(flight.done()));
        let is_in_order = flight.done_in_order() == answered;
        let place = match flight.last_done() {
            Some((input, line)) => {
                let what = if is_in_order { "the last of them at" } else { "among them all up to" };
                format!(", {what} {}:{line}", self.load.report.name(input))
            }
            None if is_in_order => String::new(),
            None => ", in the order of their scores".to_owned(),
        };
        let mut text = format!("{reason}; {} answered{place}", was(answered));
        if self.resumable.is_some() {
            text += "; the same command line continues from there";
        } else if open > 0 {
            let open = grouped(open);
            text += &format!(", and {open} more may have been executed or not");
        }
        let exit = if self.load.interrupt.was_asked() { Exit::Interrupted } else { Exit::Server };
        Failure::new(exit, text)
    }

    /// Ends a complete load: removes the token, and writes the result into the state.
    ///
    /// # Errors
    /// Returns an error if the state can't be written.
    pub fn finish(&mut self, outcome: LoadOutcome) -> Result<(), Failure> {
        let Some(mut resumable) = self.resumable.take() else { return Ok(()) };
        resumable.file.finish(outcome)?;
        if self.end_token(&resumable) { resumable.file.enter(Phase::Complete) } else { Ok(()) }
    }

    /// Removes the token from the server, unless the user interrupts.
    fn end_token(&self, resumable: &Resumable) -> bool {
        let (config, token) = (self.config.clone(), resumable.file.state.name.token.clone());
        self.load.interrupt.wait_for(move || end_token(&config, &token)).unwrap_or(false)
    }

    /// Ends a load without executed commands: removes the token and the state file.
    pub fn forget(&mut self) {
        if let Some(resumable) = self.resumable.take() {
            self.end_token(&resumable);
            resumable.file.forget();
        }
    }
}

/// Pauses between attempts to connect, with a time limit.
struct Pauses {
    until: Option<Instant>,
    next: Duration,
}

impl Pauses {
    fn new(retry: Duration) -> Pauses {
        Pauses { until: Instant::now().checked_add(retry), next: PAUSE_MIN }
    }

    /// Returns true if there is no time for another pause.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() + self.next > until)
    }

    /// Pauses. Returns false if there is no time left.
    fn pause(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        std::thread::sleep(self.next);
        self.next = (2 * self.next).min(PAUSE_MAX);
        true
    }
}

/// Removes the token from the server if it is reachable. Otherwise the token expires.
pub fn end_token(config: &Config, token: &str) -> bool {
    /// A connection may break. After several failures the server counts as unreachable.
    const TRIES: usize = 3;
    let end = || Connection::connect(config).and_then(|mut it| token::end(&mut it, token));
    (0..TRIES).any(|_| end().is_ok())
}

fn was(commands: u64) -> String {
    format!("{} {}", count(commands, "command"), if commands == 1 { "was" } else { "were" })
}

/// Limits of a server.
pub struct Terms {
    /// Possible merging.
    pub merging: Merging,
    /// Maximum number of arguments of a command.
    pub args_max: u64,
}

impl Terms {
    /// Returns the limits of a server that wasn't queried.
    fn unknown() -> Terms {
        Terms { merging: Merging::default(), args_max: ARGS_MAX }
    }

    fn ask(connection: &mut Connection) -> Result<Terms, Error> {
        let args_max = probe::args_max(connection)?;
        Ok(Terms { merging: Merging::of(probe::mergeable(connection)?), args_max })
    }
}

/// Connects, and queries the server's limits unless merging is off. `retry` is given for a load that may have begun
/// with merging: a connection that breaks is then tried again for this time. If the first attempt to connect fails, it
/// isn't repeated, because there may be no server.
///
/// # Errors
/// Returns an error if the server is unreachable or refuses the login.
pub fn connect(config: &Config, merge: bool, retry: Option<Duration>) -> Result<(Connection, Terms), Failure> {
    let (mut pauses, mut was_there) = (retry.map(Pauses::new), false);
    loop {
        let error = match connect_once(config, merge, retry.is_some()) {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        let has_broken = matches!(&error, Error::Lost { cause, .. } if !matches!(cause, Lost::Protocol(_)));
        let may_pass = has_broken || was_there && is_passing(&error);
        let Some(pauses) = pauses.as_mut().filter(|pauses| may_pass && !pauses.is_over()) else {
            return Err(server_failure(&error));
        };
        if !was_there {
            // The address may belong to another kind of server, or to one that expects TLS.
            say(&format!("{}; trying again", shown(&error)));
        }
        was_there = true;
        pauses.pause();
    }
}

fn connect_once(config: &Config, merge: bool, resumes: bool) -> Result<(Connection, Terms), Error> {
    let mut connection = connect_and_ping(config)?;
    if !merge {
        return Ok((connection, Terms::unknown()));
    }
    match Terms::ask(&mut connection) {
        Ok(terms) => Ok((connection, terms)),
        // A failed query doesn't prove that merging is impossible. A load that began with merging must not be abandoned
        // for this reason.
        Err(error) if resumes => Err(error),
        // If the server refuses the queries, only the input is sent.
        Err(_) => Ok((connect_and_ping(config)?, Terms::unknown())),
    }
}

/// Connects, and checks with PING that the server takes commands.
fn connect_and_ping(config: &Config) -> Result<Connection, Error> {
    let mut connection = Connection::connect(config)?;
    match connection.command(&["PING"]) {
        Ok(_) => Ok(connection),
        // A user without permission for PING may be allowed to load.
        Err(Error::Server(error)) if error.code() == b"NOPERM" => Ok(connection),
        Err(error) => Err(error),
    }
}

/// Returns true if another attempt may succeed.
fn is_passing(error: &Error) -> bool {
    let busy = |text: &[u8]| text.starts_with(b"LOADING") || text.starts_with(b"ERR max number of clients");
    error.is_connection_lost() || error.server().is_some_and(|error| busy(error.text()))
}

/// Formats an error of a command of the loader's own, without the command's fate.
fn shown(error: &Error) -> String {
    if let Error::Lost { cause, .. } = error { cause.to_string() } else { error.to_string() }
}

pub(crate) fn server_failure(error: &Error) -> Failure {
    let refused = error.server().map(|error| error.code().to_vec());
    let hint = match refused.as_deref() {
        Some(b"NOAUTH") => "; give a password with -a, or in the environment variable REDISCLI_AUTH",
        _ => "",
    };
    let exit = if matches!(error, Error::Config(_)) { Exit::Usage } else { Exit::Server };
    let text = shown(error);
    let text = if hint.is_empty() { &text } else { text.trim_end_matches('.') };
    Failure::new(exit, format!("{text}{hint}"))
}

fn unsupported() -> Failure {
    Failure::new(
        Exit::Resume,
        "the server has no PIPELINE command that reports the executed lines and the selected database after a broken \
         connection: nothing was sent; load without --resume, or into an up-to-date Penstock",
    )
}

fn forgotten(answered: u64) -> Failure {
    Failure::new(
        Exit::Resume,
        format!(
            "the server has forgotten the progress of this load (it was restarted, or the token has expired): at least {} \
         answered, the next ones may have been executed or not; use --restart to start again",
            was(answered)
        ),
    )
}
