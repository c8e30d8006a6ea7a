//! PIPELINE: counts a connection's commands under a token, so that a client with a connection that breaks learns how
//! many of them ran, and goes on with the next.
//!
//! What is counted, and why the count is exact, stands in `pipelines.rs`. The family is Penstock's own.

use std::sync::Arc;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, DENYOOM, FAST, NO_MULTI, NOSCRIPT};
use commands::spec::{Group, Scope, Spec, fact};
use resp::num;
use resp::reply::Reply;

use crate::config::PIPELINE_TOKEN_TTL_S_MAX;
use crate::families::help::help;
use crate::machine::version::PENSTOCK_VERSION;
use crate::pipelines::{
    DEFAULT_USER, Pipeline, PipelineProgress, Refused, TOKEN_BYTES_MAX, Tally, TokenState, word_of_user,
};
use crate::services::closing::close_client;
use crate::worker::turn::{Run, Turn};

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
    "READONLY This server is a replica, whose pipeline tokens are its primary's: ask the primary, or PIPELINE STATUS how far one is",
);

/// None of these count, and none makes sense within a transaction: commands count when that ends.
const ALL: u32 = NOSCRIPT | NO_MULTI;

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
    Spec::new("end", 3, ALL | FAST, Run::Session(end)).brief().docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Forgets a token and what was counted under it.",
        "token",
    ),
    Spec::new("help", 2, ALL, Run::Session(pipeline_help)).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(1)",
        "Explains the subcommands.",
        "",
    ),
    Spec::new("list", 2, ALL | ADMIN, Run::Session(list)).tips(&["nondeterministic_output"]).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(N) where N is the number of tokens",
        "Tells all tokens, how far they have got, and how long they are kept.",
        "",
    ),
    // Alone: no thread is in the midst of a batch, so everything that has run has been counted.
    Spec::new("resume", 3, ALL, Run::Session(resume)).scope(Scope::Whole).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Takes a token over from a connection that broke, and tells how far its pipeline got.",
        "token",
    ),
    Spec::new("start", -3, ALL | DENYOOM, Run::Session(start)).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Makes a token and counts under it what the connection executes from here on.",
        "token [TTL seconds:integer]",
    ),
    Spec::new("status", 3, ALL | FAST, Run::Session(status)).brief().tips(&["nondeterministic_output"]).docs(
        Group::Connection,
        PENSTOCK_VERSION,
        "O(log N) where N is the number of tokens",
        "Tells how far the pipeline of a token has got.",
        "token",
    ),
];

/// Runs when no subcommand is given, which is too few arguments.
fn container(_: &mut Turn<'_, '_>) -> Outcome {
    Err(Error::arity("pipeline"))
}

fn start(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    check_primary(turn)?;
    let state = TokenState {
        token: checked_token(turn)?.into(),
        user: user_of(turn).into(),
        ttl_ms: ttl_ms(turn)?,
        holder: Some(turn.session.client.id),
        expires_ms: None,
        progress: PipelineProgress { database: turn.session.database, ..PipelineProgress::default() },
    };
    if turn.session.tally().is_some() {
        return Err(OTHER_TOKEN);
    }
    let (engine, now_ms) = (turn.engine(), turn.now_ms());
    let max = engine.settings.pipeline_tokens_max.get_usize();
    let pipeline = engine.pipelines.add(state, max, now_ms).map_err(|refused| match refused {
        Refused::Exists => EXISTS,
        Refused::Full => Error::new(format!(
            "ERR There may be {max} pipeline tokens (pipeline-tokens-max), and there are; PIPELINE END those that are \
             done, or wait until some expire"
        )),
    })?;
    let numbers = [pipeline.state().ttl_ms, 0, 0, turn.session.database as u64].map(|number| number.to_string());
    let words = [&b"PIPELINE"[..], b"KEEP", turn.arg(2)].into_iter().chain(numbers.iter().map(|n| n.as_bytes()));
    let words = words.chain(word_of_user(pipeline.user()));
    turn.worker.effects.record_own(words.collect::<Vec<_>>().into_iter());
    turn.session.set_tally(Some(Box::new(Tally::new(pipeline.clone()))));
    turn.reply.ok();
    Ok(())
}

/// A replica's tokens change with its primary's stream only.
fn check_primary(turn: &Turn<'_, '_>) -> Outcome {
    if turn.engine().is_replica() { Err(IS_REPLICA) } else { Ok(()) }
}

fn checked_token<'t>(turn: &Turn<'t, '_>) -> Result<&'t [u8], Error> {
    let token = turn.arg(2);
    if (1..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Ok(token);
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

fn resume(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    check_primary(turn)?;
    let (engine, now_ms, me) = (turn.engine(), turn.now_ms(), turn.session.client.id);
    let pipeline = find(turn)?;
    if turn.session.tally().is_some_and(|tally| !Arc::ptr_eq(tally.pipeline(), &pipeline)) {
        return Err(OTHER_TOKEN);
    }
    let Some((pipeline, before)) = engine.pipelines.hand_over(turn.arg(2), me, now_ms) else { return Err(NO_TOKEN) };
    if let Some(client) = before.filter(|&before| before != me).and_then(|before| engine.clients.get(before)) {
        close_client(engine, &client);
    }
    if turn.session.tally().is_none() {
        turn.session.set_tally(Some(Box::new(Tally::new(pipeline.clone()))));
    }
    // What follows is meant for the database that it would have found over the old connection.
    turn.session.select(pipeline.database());
    turn.worker.depend_on_all();
    // What the old connection has written is this one's to wait for (WAIT).
    turn.worker.wrote = turn.engine().journal.position();
    write_progress(&mut turn.reply, &pipeline.progress());
    Ok(())
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

/// The pipeline of a token that the session's user may use: its own, or any if it may do everything.
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
    find(turn)?;
    if !turn.engine().pipelines.remove(turn.arg(2), turn.now_ms()) {
        return Err(NO_TOKEN);
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

/// A token's line of the list: `client` is 0 when no connection has it, `ttl` -1 while one does.
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
            "END <token>",
            "    Forget the token; the connection that has it goes on uncounted.",
            "LIST",
            "    Tell every token, the connection that has it (0: none), the seconds for which it is kept (-1: as",
            "    long as the connection lasts), and what was counted.",
            "RESUME <token>",
            "    Close the connection that has the token, select its database, tell what it executed, and count on",
            "    from there.",
            "START <token> [TTL <seconds>]",
            "    Count the commands that this connection executes from here on. The token is kept for so many seconds",
            "    after the connection is gone.",
            "STATUS <token>",
            "    Tell how many commands were executed, how many of them failed, and the first failures: the position",
            "    (the first command after START is 1) and the error. Tell the database that is selected behind them.",
        ],
    )
}

#[cfg(test)]
mod tests;
