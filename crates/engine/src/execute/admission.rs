//! Whether a command may run at all, and what is answered where it may not.

use std::sync::atomic::Ordering;

use commands::error::{Error, SHOWN_BYTES, shown};
use commands::spec::{acl, fact, flag};
use resp::reply::{Output, Reply};
use resp::request::Args;

use super::transaction::runs_within_multi;
use crate::access::Context;
use crate::clients::client::client_flag;
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::command_table::Command;
use crate::config::LogLevel;
use crate::reasons::{CUT_OFF, FEW_REPLICAS, LOADING, REFUSES_WRITES, REPLICA};
use crate::registry::table;
use crate::services::access;
use crate::worker::{Step, Worker};

/// What is noted of it for a counted pipeline. No client is told.
pub(super) const SENT_HTTP: &[u8] = b"ERR the connection was closed, since POST and Host: are HTTP's";

/// How often the log says so, in milliseconds.
const HTTP_WARNING_MS: u64 = 60_000;

/// What a connection is told that finds `maxclients` others.
pub const TOO_MANY_CLIENTS: &str = "ERR max number of clients reached";

/// When an admitted command runs.
pub(super) enum Admission {
    /// At once.
    Now(&'static Command),
    /// Not yet; this is how its batch ends.
    Later(Step),
}

impl Worker {
    /// Whether a command may run, and when. The checks are in Redis's order, since their
    /// errors show it.
    pub(super) fn admit(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
    ) -> Result<Admission, Error> {
        if session.is_on_reserve() {
            self.admit_on_reserve(session, command)?;
        }
        // First, as in Valkey: which commands there are is nothing for those that have no business here.
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
        self.allow(session, command, *args, context).map_err(|denial| access::error(session, command, denial))?;
        // What a primary sends or the append-only file has was accepted before, and is applied whatever stands against it here.
        let replays = self.clock.replays;
        if self.memory.full && !replays && needs_memory(session, command) {
            return Err(Error::OUT_OF_MEMORY);
        }
        if self.engine.reasons.has(REFUSES_WRITES) && !replays && is_refused_unsaved(session, command) {
            return Err(self.engine.unsaved());
        }
        if self.engine.reasons.has(FEW_REPLICAS) && !replays && !self.engine.is_replica() && writes(session, command) {
            return Err(Error::new("NOREPLICAS Not enough good replicas to write."));
        }
        if self.engine.reasons.has(REPLICA) && !replays && self.engine.is_read_only() && writes(session, command) {
            return Err(Error::READ_ONLY);
        }
        if session.is_subscriber() && !is_allowed_for_subscribers(command) {
            return Err(Error::new(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )));
        }
        if self.engine.reasons.has(CUT_OFF) && !replays && !command.info.has(flag::STALE) {
            return Err(Error::new("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."));
        }
        if self.engine.reasons.has(LOADING) && !replays && is_refused_while_loading(session, command) {
            return Err(Error::new("LOADING Redis is loading the dataset in memory"));
        }
        // As long as this thread is held up by a script, only what touches no key runs.
        if self.scripts.busy_turn && !(command.info.has(flag::ALLOW_BUSY) && command.info.keys.is_empty()) {
            return Err(self.engine.busy.error());
        }
        if session.is_monitoring() && command.info.has(flag::READONLY | flag::WRITE | flag::MAY_REPLICATE) {
            return Err(Error::new("ERR Replica can't interact with the keyspace"));
        }
        if self.overfilled.any() && self.must_wait_for_room(session, command, args) {
            return Ok(Admission::Later(Step::AwaitRoom));
        }
        let is_paused = !replays && self.engine.holds_up(session, command, args, self.clock.now_ms);
        Ok(if is_paused { Admission::Later(Step::Pause) } else { Admission::Now(command) })
    }

    /// Whether a connection beyond `maxclients` may give this command. Else it is told what it would have been told when it came, and
    /// closed. What programs send as soon as they are connected proves no operator; a command of administration does.
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

    /// Answers a command that does not run. Within a transaction, that makes EXEC refuse all of it; when it is EXEC
    /// itself, any transaction ends here.
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
        self.stats().count_error(error.text());
        if is_of_pipeline(args.get(0)) {
            session.count_not();
        }
        session.count_failure(command, error.text());
        Reply::new(out, session.proto).error(error.text());
    }

    /// Says in the log which client has sent HTTP, once a minute at most.
    pub(super) fn warn_of_http(&self, session: &Session) {
        let (engine, now_ms) = (self.engine, self.clock.now_ms);
        let warned_ms = &engine.http_warned_ms;
        let before_ms = warned_ms.load(Ordering::Relaxed);
        // Of a clock that was set back since, it can't be told how long ago it was.
        if (now_ms < before_ms || now_ms - before_ms >= HTTP_WARNING_MS)
            && warned_ms.compare_exchange(before_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let text = format!(
                "Possible SECURITY ATTACK detected: {} has sent POST or Host:, as HTTP has it. Perhaps an attacker has had a \
                 browser or another program connect to this port; the connection was closed.",
                session.client.addr
            );
            engine.host.log(LogLevel::Warning, &text);
        }
    }
}

/// Whether a command is about the connection itself, the server or its clients, and none by which programs see whether the server is
/// well, as pools of connections do all the time.
fn is_for_operators(command: &Command) -> bool {
    let categories = acl::CONNECTION | acl::ADMIN | acl::DANGEROUS;
    command.info.all_categories() & categories != 0
        && !command.info.has(flag::READONLY | flag::WRITE)
        && !command.info.is(fact::TELLS_HEALTH)
}

/// Whether a command is refused when memory is over its limit: it takes more, or stands in a queue that does.
fn needs_memory(session: &Session, command: &Command) -> bool {
    let denied = |c: &Command| c.info.has(flag::DENYOOM);
    match &session.multi {
        None => denied(command),
        Some(multi) if is_exec(command) => multi.queue.iter().any(|q| denied(q.command)),
        Some(_) => !runs_within_multi(command),
    }
}

/// Whether a command is refused while changes can't be written to disk: one that changes something, and PING, so that what
/// watches over the server gets to know of it, as in Redis. EXEC answers for its whole queue, scripts for each of their
/// commands.
fn is_refused_unsaved(session: &Session, command: &Command) -> bool {
    let refused = |c: &Command| c.info.has(flag::WRITE) || c.info.is(fact::TELLS_HEALTH);
    match &session.multi {
        Some(multi) if is_exec(command) => multi.queue.iter().any(|q| refused(q.command)),
        _ => refused(command),
    }
}

/// Whether a command changes keys. EXEC answers for its whole queue, scripts for each of their commands.
fn writes(session: &Session, command: &Command) -> bool {
    let writes = |c: &Command| c.info.has(flag::WRITE);
    match &session.multi {
        Some(multi) if is_exec(command) => multi.queue.iter().any(|q| writes(q.command)),
        _ => writes(command),
    }
}

/// Whether a command is refused while data are loaded. EXEC answers for its whole queue.
fn is_refused_while_loading(session: &Session, command: &Command) -> bool {
    let refused = |c: &Command| !c.info.has(flag::LOADING);
    match &session.multi {
        Some(multi) if is_exec(command) => multi.queue.iter().any(|q| refused(q.command)),
        _ => refused(command),
    }
}

/// Whether a command's name is what an HTTP request begins with, or its header of the host. An attacker that has a browser or another
/// program send one to the server's port could have commands in its body run; so the connection ends there, as in Redis.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Whether a connection that speaks RESP2 and has subscribed to something may give this command.
fn is_allowed_for_subscribers(command: &Command) -> bool {
    command.info.is(fact::FOR_SUBSCRIBERS)
}

/// Whether a request is one of PIPELINE, even one that is refused; none of them counts.
fn is_of_pipeline(name: &[u8]) -> bool {
    table().find(name).is_some_and(|command| command.info.is(fact::UNCOUNTED))
}

/// The error for a name that no command has, with the beginning of what was given, as Redis words it.
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
