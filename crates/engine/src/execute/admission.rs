//! The admission of commands, and the errors of refused ones.

use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use commands::error::{Error, SHOWN_BYTES, shown};
use commands::spec::{acl, fact, flag};
use resp::reply::{Output, Reply};
use resp::request::Args;

use super::Invocation;
use super::forward::Destination;
use super::transaction::runs_within_multi;
use crate::clients::client::client_flag;
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::registry::table;
use crate::services::users;
use crate::slow_path::{AWAITS_PROMOTION, CUT_OFF, FEW_REPLICAS, LOADING, REFUSES_WRITES, REPLICA};
use crate::state::Engine;
use crate::worker::Worker;
use crate::worker::requirements::Requirement;
use access::Context;
use commands::table::Command;
use config::LogLevel;

/// The error that is noted for a counted pipeline. The client does not receive it.
pub(super) const SENT_HTTP: &[u8] = b"ERR the connection was closed because the client sent HTTP (POST or Host:)";

/// The shortest time between two warnings about HTTP, in milliseconds.
const HTTP_WARNING_MS: u64 = 60_000;

/// The error for a connection that exceeds `maxclients`.
pub const TOO_MANY_CLIENTS: &str = "ERR max number of clients reached";

/// The time at which an admitted command runs.
pub(super) enum Admission {
    /// At once.
    Now(&'static Command),
    /// Later: the batch ends with this step.
    Later(Progress),
    /// Never: a failure has stopped the pipeline.
    Skipped(Option<&'static Command>, Error),
    /// Not here: the redirect to another node of the cluster, or another error about its slots.
    Elsewhere(&'static Command, Error),
    /// Not here: another node of the cluster runs it in the client's place.
    Forwarded(&'static Command, Destination),
}

impl Worker {
    /// Checks whether a command may run, and when. The checks are in Redis's order, because the order decides which
    /// error is answered.
    pub(super) fn admit(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        keys: &[KeyRef],
    ) -> Result<Admission, Error> {
        if session.skips() && !runs_when_stopped(command, args) {
            return Ok(self.skip(session, command));
        }
        if session.is_on_reserve() {
            self.admit_on_reserve(session, command)?;
        }
        // Authentication is checked first, as in Valkey: unauthenticated clients can't probe for the names of commands.
        if self.engine.must_authenticate(session) && !command.is_some_and(|command| command.info.has(flag::NO_AUTH)) {
            return Err(Error::new("NOAUTH Authentication required."));
        }
        let Some(command) = command else { return Err(unknown(args)) };
        if !command.info.accepts(args.len()) {
            return Err(Error::arity(&command.name));
        }
        if session.multi.is_some() && command.info.has(flag::NO_MULTI) {
            return Err(Error::new("ERR Command not allowed inside a transaction"));
        }
        let context = if session.multi.is_some() { Context::Multi } else { Context::TopLevel };
        self.allow(session, command, *args, context).map_err(|denial| users::error(session, command, denial))?;
        if session.is_clustered()
            && let Some(admission) = self.admit_elsewhere(session, Invocation { command, args, keys })
        {
            return Ok(admission);
        }
        let engine = self.engine;
        if engine.slow_path.has(AWAITS_PROMOTION) && engine.holds_for_takeover(session, command) {
            return Ok(Admission::Later(Progress::Paused));
        }
        if self.memory.full && self.binds(Requirement::Memory) && needs_memory(engine, session, command, args) {
            return Err(Error::OUT_OF_MEMORY);
        }
        let writes = || any_has(engine, session, command, args, flag::WRITE);
        let slow_path = engine.slow_path.get();
        if slow_path & REFUSES_WRITES != 0
            && self.binds(Requirement::Disk)
            && (writes() || tells_health(session, command))
        {
            return Err(engine.unsaved());
        }
        if slow_path & FEW_REPLICAS != 0 && self.binds(Requirement::Replicas) && !engine.is_replica() && writes() {
            return Err(Error::FEW_REPLICAS);
        }
        if slow_path & REPLICA != 0 && self.binds(Requirement::Writable) && engine.is_read_only() && writes() {
            if session.client.has(client_flag::CAME_BY_MOVE) {
                // The client was told of the present primary, and tries again there.
                return Ok(Admission::Later(Progress::Gone));
            }
            return Err(Error::READ_ONLY);
        }
        if session.is_subscriber() && !is_allowed_for_subscribers(command) {
            return Err(Error::new(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )));
        }
        if slow_path & CUT_OFF != 0
            && self.binds(Requirement::Fresh)
            && any_lacks(engine, session, command, args, flag::STALE)
        {
            return Err(Error::STALE);
        }
        if slow_path & LOADING != 0
            && self.binds(Requirement::Loaded)
            && any_lacks(engine, session, command, args, flag::LOADING)
        {
            return Err(Error::new("LOADING Redis is loading the dataset in memory"));
        }
        // While a script holds up this thread, only commands without keys run.
        if self.scripts.busy_turn && !(command.info.has(flag::ALLOW_BUSY) && command.info.keys.is_empty()) {
            return Err(self.engine.busy.error());
        }
        if session.is_monitoring() && command.info.has(flag::READONLY | flag::WRITE | flag::MAY_REPLICATE) {
            return Err(Error::new("ERR Replica can't interact with the keyspace"));
        }
        if self.full_inboxes.any() && self.must_wait_for_room(session, command, args) {
            return Ok(Admission::Later(Progress::AwaitsRoom));
        }
        let is_paused =
            self.binds(Requirement::Running) && self.engine.holds_up(session, command, args, self.clock.now_ms);
        Ok(if is_paused { Admission::Later(Progress::Paused) } else { Admission::Now(command) })
    }

    /// Skips a command behind the failure that has stopped the pipeline. A skipped EXEC releases the watched keys, like
    /// any other EXEC.
    #[cold]
    fn skip(&mut self, session: &mut Session, command: Option<&'static Command>) -> Admission {
        if command.is_some_and(is_exec) {
            session.unwatch(&self.engine.watchers);
        }
        if let Some(command) = command {
            self.stats().commands[command.id].rejected.add(1);
        }
        let text = session.tally().and_then(|tally| tally.pipeline().skipped()).unwrap_or_default();
        Admission::Skipped(command, Error::quoting(text))
    }

    /// Checks whether a connection beyond `maxclients` may run this command. A refused connection gets the error of
    /// `maxclients` and is closed. Client libraries send some commands on connecting, so these don't prove an operator;
    /// an administrative command does.
    #[cold]
    fn admit_on_reserve(&self, session: &mut Session, command: Option<&'static Command>) -> Result<(), Error> {
        if self.engine.clients.len() as i64 <= self.engine.settings.maxclients.get() {
            session.leave_reserve();
            return Ok(());
        }
        if !command.is_some_and(is_for_operators) {
            session.closing = true;
            self.stats().rejected_connections.add(1);
            return Err(Error::new(TOO_MANY_CLIENTS));
        }
        if command.is_some_and(|command| command.info.has(flag::ADMIN)) && !self.engine.must_authenticate(session) {
            session.client.set(client_flag::ON_RESERVE, false);
        }
        Ok(())
    }

    /// Answers a command that does not run. Within a transaction, EXEC then refuses everything. A refused EXEC ends any
    /// transaction.
    pub(super) fn refuse(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        error: &Error,
        out: &mut Output,
    ) {
        if let Some(command) = command {
            self.stats().commands[command.id].rejected.add(1);
        }
        let mut error = error.clone();
        if let Some(multi) = &mut session.multi {
            multi.aborted = true;
        }
        if command.is_some_and(is_exec) {
            error = session.abort(&self.engine.watchers, &error);
        }
        self.answer_refused(session, command, args, &error, out);
    }

    /// Replies to a command that does not run with an error, and counts the error.
    pub(super) fn answer_refused(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        error: &Error,
        out: &mut Output,
    ) {
        self.stats().count_error(error.text());
        if is_of_pipeline(args.get(0)) {
            session.count_not();
        }
        session.count_failure(command, error.text());
        Reply::new(out, session.proto).error(error.text());
    }

    /// Logs the client that has sent HTTP, once a minute at most.
    pub(super) fn warn_of_http(&self, session: &Session) {
        let (engine, now_ms) = (self.engine, self.clock.now_ms);
        let warned_ms = &engine.http_warned_ms;
        let before_ms = warned_ms.load(Ordering::Relaxed);
        // The clock may have been set back since; the interval is unknown then.
        if (now_ms < before_ms || now_ms - before_ms >= HTTP_WARNING_MS)
            && warned_ms.compare_exchange(before_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let text = format!(
                "Possible SECURITY ATTACK detected: {} has sent POST or Host:, which belong to HTTP. An attacker may have made \
                 a browser or another program connect to this port; the connection was closed.",
                session.client.addr
            );
            engine.host.log(LogLevel::Warning, &text);
        }
    }
}

/// Returns whether a command concerns the connection, the server or its clients. Health checks are excluded, because
/// connection pools send them all the time.
fn is_for_operators(command: &Command) -> bool {
    let categories = acl::CONNECTION | acl::ADMIN | acl::DANGEROUS;
    command.info.all_categories() & categories != 0
        && !command.info.has(flag::READONLY | flag::WRITE)
        && !command.info.is(fact::TELLS_HEALTH)
}

/// Returns whether a command is refused above the memory limit: it needs memory itself, or its place in the queue does.
fn needs_memory(engine: &Engine, session: &Session, command: &Command, args: &Args<'_>) -> bool {
    match &session.multi {
        Some(_) if !is_exec(command) => !runs_within_multi(command),
        _ => any_has(engine, session, command, args, flag::DENYOOM),
    }
}

/// Returns whether a command, or one in EXEC's queue, is refused during disk errors although it writes nothing. PING is
/// such a command, so that monitoring notices the error, as in Redis.
fn tells_health(session: &Session, command: &Command) -> bool {
    let tells = |c: &Command| c.info.is(fact::TELLS_HEALTH);
    match &session.multi {
        Some(multi) if is_exec(command) => multi.queue.iter().any(|q| tells(q.command)),
        _ => tells(command),
    }
}

/// Returns whether a command has a flag. EXEC has the flags of its whole queue. A script has the flags that it
/// declares; a script without declared flags is checked at each of its commands.
fn any_has(engine: &Engine, session: &Session, command: &Command, args: &Args<'_>, flag: u32) -> bool {
    any(engine, session, command, args, |flags| flags & flag != 0)
}

/// Like [`any_has`], for the absence of a flag.
fn any_lacks(engine: &Engine, session: &Session, command: &Command, args: &Args<'_>, flag: u32) -> bool {
    any(engine, session, command, args, |flags| flags & flag == 0)
}

fn any(engine: &Engine, session: &Session, command: &Command, args: &Args<'_>, is_so: impl Fn(u32) -> bool) -> bool {
    match &session.multi {
        Some(multi) if is_exec(command) => {
            multi.queue.iter().any(|queued| is_so(engine.flags_of(queued.command, &queued.args.args())))
        }
        _ => is_so(engine.flags_of(command, args)),
    }
}

/// Returns whether a command's name begins an HTTP request or is its host header. An attacker can make a browser send a
/// request to the server's port with commands in its body. The connection is closed therefore, as in Redis.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Returns whether a RESP2 connection with subscriptions may run this command.
fn is_allowed_for_subscribers(command: &Command) -> bool {
    command.info.is(fact::FOR_SUBSCRIBERS)
}

/// Returns whether a request runs although a failure has stopped the pipeline.
fn runs_when_stopped(command: Option<&Command>, args: &Args<'_>) -> bool {
    command.is_some_and(|command| command.info.is(fact::RUNS_WHEN_STOPPED)) || is_of_pipeline(args.get(0))
}

/// Returns whether a request belongs to PIPELINE, even a refused one; these are never counted.
pub(super) fn is_of_pipeline(name: &[u8]) -> bool {
    table().find(name).is_some_and(|command| command.info.is(fact::UNCOUNTED))
}

/// Returns Redis's error for an unknown command, with the first arguments.
fn unknown(args: &Args<'_>) -> Error {
    let name = args.get(0);
    if table().find(name).is_some() {
        return Error::unknown_subcommand(name, args.get(1));
    }
    let mut rest = Vec::new();
    for arg in args.from(1) {
        if rest.len() >= SHOWN_BYTES {
            break;
        }
        rest.extend([b"'", shown(arg, SHOWN_BYTES - rest.len()), b"' "].concat());
    }
    let name = shown(name, SHOWN_BYTES);
    Error::quoting([b"ERR unknown command '", name, b"', with args beginning with: ", rest.as_slice()].concat())
}
