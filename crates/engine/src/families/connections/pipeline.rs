//! PIPELINE: counts a connection's commands under a token. A client that loses its connection learns from the count how
//! many commands ran, and continues with the next. PIPELINE ABORT stops a pipeline at its first failure: see `abort.rs`.
//!
//! `pipelines.rs` describes the count and its exactness. The family is Penstock's own.

mod abort;
mod attach;
mod info;
mod resume;

pub use self::resume::end_resume;

use std::sync::Arc;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, DENYOOM, FAST, MAY_REPLICATE, NO_MULTI, NOSCRIPT};
use commands::spec::{Group, Scope, Spec, fact};
use resp::num;
use resp::reply::Reply;

use crate::families::help::help;
use crate::machine::version::PENSTOCK_VERSION;
use crate::pipelines::nodes::ForwardState;
use crate::pipelines::{
    DEFAULT_USER, Pipeline, PipelineProgress, Refused, TOKEN_BYTES_MAX, Tally, TokenState, word_of_user,
};
use crate::worker::turn::{Run, Turn};
use config::PIPELINE_TOKEN_TTL_S_MAX;

const NO_TOKEN: Error = Error::fixed("NOTOKEN There is no such pipeline token, or it has expired");
const NOT_OWN: Error = Error::fixed(
    "NOPERM This pipeline token is another user's; only that user and those who may run every command on every key can use it",
);
const EXISTS: Error =
    Error::fixed("BUSYTOKEN This pipeline token exists; PIPELINE RESUME goes on with it, PIPELINE END ends it");
const OTHER_TOKEN: Error = Error::fixed(
    "ERR This connection counts for another pipeline token; PIPELINE END ends that, or use another connection",
);

const IS_REPLICA: Error = Error::fixed(
    "READONLY This server is a replica, and only its primary changes pipeline tokens; PIPELINE STATUS shows their \
     progress",
);

/// These commands don't count, and are refused within a transaction, whose commands count at its end.
const ALL: u32 = NOSCRIPT | NO_MULTI;
/// The flags of commands that change tokens. CLIENT PAUSE WRITE holds them: during a failover, the replica waits until it has all records.
const CHANGES: u32 = ALL | MAY_REPLICATE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("pipeline", -2, ALL, Run::Session(container))
    .facts(fact::UNCOUNTED)
    .not_in_group_category()
    .subcommands(SUBCOMMANDS)
    .docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "Depends on the subcommand",
        "Counts commands under a token that survives the connection.",
        "",
    )];

const SUBCOMMANDS: &[Spec<Run>] = &[
    Spec::new("abort", -3, ALL | FAST, Run::Session(abort::abort)).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(1)",
        "Chooses whether commands behind a failing one are skipped until PIPELINE SYNC.",
        "<ON [ERRORS] [REDIRECTS] | OFF>:mode",
    ),
    Spec::new("at", -3, CHANGES | FAST, Run::Session(attach::at)).brief().docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(1)",
        "An internal command for nodes of a cluster. Names the position of the next command in its pipeline.",
        "position:integer [ASKING]",
    ),
    // Runs alone, like RESUME.
    Spec::new("attach", 5, CHANGES, Run::Session(attach::attach)).scope(Scope::Whole).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "An internal command for nodes of a cluster. Counts the next commands for another node's token.",
        "token generation:integer seconds:integer",
    ),
    Spec::new("end", 3, CHANGES | FAST, Run::Session(end)).brief().docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Deletes a token and its count.",
        "token",
    ),
    Spec::new("help", 2, ALL, Run::Session(pipeline_help)).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(1)",
        "Explains the subcommands.",
        "",
    ),
    Spec::new("info", 2, ALL | FAST, Run::Session(info::info)).tips(&["nondeterministic_output"]).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(1)",
        "Shows the token, the abort mode, and the reply limits of the connection with their present use.",
        "",
    ),
    Spec::new("list", 2, ALL | ADMIN, Run::Session(list)).tips(&["nondeterministic_output"]).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(N) where N is the number of tokens",
        "Lists all tokens with their progress and remaining lifetime.",
        "",
    ),
    // Runs alone: no thread is within a batch, so every executed command has been counted.
    Spec::new("resume", 3, ALL, Run::Session(resume::resume)).scope(Scope::Whole).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Takes a token over from a broken connection, and returns the progress of its pipeline.",
        "token",
    ),
    Spec::new("start", -3, CHANGES | DENYOOM, Run::Session(start)).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Creates a token, and counts the connection's next commands under it.",
        "token [TTL seconds:integer]",
    ),
    Spec::new("status", 3, ALL | FAST, Run::Session(status)).brief().tips(&["nondeterministic_output"]).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Returns the progress of a token's pipeline.",
        "token",
    ),
    Spec::new("sync", 2, ALL | FAST, Run::Session(abort::sync)).facts(fact::FOR_SUBSCRIBERS).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(1)",
        "Ends a part of a pipeline that stops at failures, and tells how many commands ran and which one failed.",
        "",
    ),
];

/// Runs without a subcommand, which is an error.
fn container(_: &mut Turn<'_, '_>) -> Outcome {
    Err(Error::arity("pipeline"))
}

fn start(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    check_primary(turn)?;
    check_token_size(turn.arg(2))?;
    if turn.session.forwarding.is_open() {
        check_cluster(turn)?;
    }
    let state = TokenState {
        token: turn.arg(2).into(),
        user: user_of(turn).into(),
        ttl_ms: ttl_ms(turn)?,
        holder: Some(turn.session.client.id),
        expires_ms: None,
        progress: PipelineProgress { database: turn.session.database, ..PipelineProgress::default() },
        abort: None,
        forward: turn.session.forwarding.is_open().then(|| new_forward_state(turn)),
    };
    if turn.session.tally().is_some_and(|tally| tally.pipeline().has_token()) {
        return Err(OTHER_TOKEN);
    }
    let pipeline = add(turn, state)?;
    let numbers = [pipeline.state().ttl_ms, 0, 0, turn.session.database as u64].map(|number| number.to_string());
    let words = [&b"PIPELINE"[..], b"KEEP", turn.arg(2)].into_iter().chain(numbers.iter().map(|n| n.as_bytes()));
    let words = words.chain(word_of_user(pipeline.user()));
    turn.worker.effects.record_own(words.collect::<Vec<_>>().into_iter());
    if let Some(forward) = pipeline.forward() {
        record_forward(turn, &pipeline, &forward);
    }
    if let Some(before) = turn.session.tally() {
        pipeline.take_abort(before.pipeline());
    }
    turn.session.set_tally(Some(Box::new(Tally::new(pipeline.clone()))));
    turn.reply.ok();
    Ok(())
}

/// Returns the state of a new token whose commands other nodes may run, too.
fn new_forward_state(turn: &Turn<'_, '_>) -> ForwardState {
    let engine = turn.engine();
    let number = engine.pipelines.next_number();
    let name = format!("forwarded:{}:{number}", engine.machine.run_id).into_bytes().into();
    ForwardState { generation: turn.now_ms(), name }
}

/// Records the state of a token whose commands other nodes may run, too.
fn record_forward(turn: &mut Turn<'_, '_>, pipeline: &Pipeline, forward: &ForwardState) {
    let generation = forward.generation.to_string();
    let words = [&b"PIPELINE"[..], b"FORWARD", pipeline.token(), generation.as_bytes(), &forward.name];
    turn.worker.effects.record_own(words.into_iter());
}

/// Adds a token.
fn add(turn: &Turn<'_, '_>, state: TokenState) -> Result<Arc<Pipeline>, Error> {
    let max = turn.engine().settings.pipeline_tokens_max.get_usize();
    turn.engine().pipelines.add(state, max, turn.now_ms()).map_err(|refused| match refused {
        Refused::Exists => EXISTS,
        Refused::Full => Error::new(format!(
            "ERR There are {max} pipeline tokens already (pipeline-tokens-max); delete some with PIPELINE END, or \
             wait until some expire"
        )),
    })
}

/// Tokens of a replica change only with its primary's stream.
fn check_primary(turn: &Turn<'_, '_>) -> Outcome {
    if turn.engine().is_replica() { Err(IS_REPLICA) } else { Ok(()) }
}

/// Refuses while this node can't know if a replica has taken its place, for example after the process was stopped or has started again. The
/// replica may have counted further, and a token that starts here would be lost.
fn check_cluster(turn: &Turn<'_, '_>) -> Outcome {
    match turn.worker.slots.view() {
        Some(view) if !view.is_up() => Err(Error::fixed("CLUSTERDOWN The cluster is down")),
        _ => Ok(()),
    }
}

fn check_token_size(token: &[u8]) -> Outcome {
    if (1..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Ok(());
    }
    Err(Error::new(format!("ERR A pipeline token has 1 to {TOKEN_BYTES_MAX} bytes")))
}

fn ttl_ms(turn: &Turn<'_, '_>) -> Result<u64, Error> {
    let seconds = match turn.len() {
        3 => turn.engine().settings.pipeline_token_ttl_s.get(),
        5 if turn.is(3, "ttl") => num::parse_i64(turn.arg(4)).ok_or(Error::NOT_INTEGER)?,
        _ => return Err(Error::SYNTAX),
    };
    if !(1..=PIPELINE_TOKEN_TTL_S_MAX).contains(&seconds) {
        return Err(Error::invalid_expire("pipeline|start"));
    }
    Ok(seconds as u64 * 1000)
}

fn status(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    let progress = find(turn)?.progress();
    turn.worker.depend_on_all();
    write_progress(&mut turn.reply, &progress);
    Ok(())
}

fn user_of<'s>(turn: &'s Turn<'_, '_>) -> &'s [u8] {
    turn.session.user().map_or(DEFAULT_USER, |user| user.name())
}

/// Returns a token's pipeline, if the session's user may use it: the owner, or a user with all permissions.
fn find(turn: &Turn<'_, '_>) -> Result<Arc<Pipeline>, Error> {
    let pipeline = turn.engine().pipelines.get(turn.arg(2), turn.now_ms()).ok_or(NO_TOKEN)?;
    let runs_all = turn.session.permissions().is_none_or(|permissions| permissions.runs_all_on_all_keys());
    let may_use = runs_all || pipeline.user() == user_of(turn);
    if may_use { Ok(pipeline) } else { Err(NOT_OWN) }
}

fn write_progress(reply: &mut Reply<'_>, progress: &PipelineProgress) {
    reply.map(4);
    for (field, number) in [("executed", progress.executed), ("failed", progress.failed)] {
        reply.bulk(field);
        reply.int(number as i64);
    }
    reply.bulk("failures");
    reply.array(progress.failures.len());
    for failure in &progress.failures {
        reply.array(2);
        reply.int(failure.position as i64);
        reply.bulk(&failure.error);
    }
    reply.bulk("database");
    reply.int(progress.database as i64);
}

fn end(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    check_primary(turn)?;
    let pipeline = find(turn)?;
    if !turn.engine().pipelines.remove(turn.arg(2), turn.now_ms()) {
        return Err(NO_TOKEN);
    }
    // The session's links end the tokens of other nodes. Without them, those expire.
    let is_own = turn.session.tally().is_some_and(|tally| Arc::ptr_eq(tally.pipeline(), &pipeline));
    if let Some(forward) = pipeline.forward().filter(|_| is_own) {
        turn.session.forwarding.note_ended(forward.name);
    }
    turn.worker.effects.record_own([&b"PIPELINE"[..], b"END", turn.arg(2)].into_iter());
    turn.reply.ok();
    Ok(())
}

fn list(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    let now_ms = turn.now_ms();
    let states = turn.engine().pipelines.states(now_ms);
    turn.reply.array(states.len());
    for state in &states {
        write_state(&mut turn.reply, state, now_ms);
    }
    Ok(())
}

/// Writes a token's line of the list: `client` is 0 without a connection, `ttl` is -1 with one.
fn write_state(reply: &mut Reply<'_>, state: &TokenState, now_ms: u64) {
    let left_s = state.expires_ms.map_or(-1, |ms| ms.saturating_sub(now_ms).div_ceil(1000) as i64);
    reply.map(5);
    reply.bulk("token");
    reply.bulk(&state.token);
    for (field, number) in [
        ("client", state.holder.unwrap_or(0) as i64),
        ("ttl", left_s),
        ("executed", state.progress.executed as i64),
        ("failed", state.progress.failed as i64),
    ] {
        reply.bulk(field);
        reply.int(number);
    }
}

fn pipeline_help(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    help(
        turn,
        &[
            "ABORT ON [ERRORS] [REDIRECTS]",
            "    Skip the commands behind the first one that fails, until PIPELINE SYNC. A failure is an error",
            "    reply (ERRORS), a redirect to another node of the cluster (REDIRECTS), or either (default).",
            "ABORT OFF",
            "    Continue after failures.",
            "END <token>",
            "    Delete the token; the connection that has it continues without a count.",
            "INFO",
            "    Return the token of this connection, its abort mode, and its limits of unread replies.",
            "LIST",
            "    List every token with its connection (0: none), its remaining lifetime in seconds (-1: as",
            "    long as the connection lasts), and its count.",
            "RESUME <token>",
            "    Close the connection that has the token, select its database, return its progress, and continue",
            "    the count.",
            "START <token> [TTL <seconds>]",
            "    Count the commands that this connection executes from here on. The token is kept for this many \
             seconds",
            "    after the connection is gone.",
            "STATUS <token>",
            "    Return the number of executed commands, the number of failed ones, and the first failures: the \
             position",
            "    (the first command after START is 1) and the error. Return the selected database after them.",
            "SYNC",
            "    End the part of the pipeline since the last SYNC. Return the number of executed commands, the",
            "    number of the failing one (0: none), its error, and the number of skipped commands.",
        ],
    )
}

#[cfg(test)]
mod tests;
