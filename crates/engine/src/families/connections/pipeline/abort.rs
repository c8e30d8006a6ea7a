//! PIPELINE ABORT and PIPELINE SYNC: a pipeline that stops at its first failure.
//!
//! `pipelines::abort` has the rule. Admission skips the commands behind the failure (`execute::admission`).

use std::sync::Arc;

use commands::error::{Error, Outcome};

use crate::pipelines::abort::{AbortOn, AbortState, SyncOutcome};
use crate::pipelines::{Pipeline, Tally};
use crate::worker::turn::Turn;

const IS_OFF: Error =
    Error::fixed("ERR PIPELINE SYNC needs PIPELINE ABORT ON; without it, commands behind a failing one are executed");

pub(super) fn abort(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    if turn.is(2, "off") && turn.len() == 3 {
        turn.session.abort_off();
    } else {
        let on = chosen(turn)?;
        if let Some(tally) = turn.session.tally() {
            tally.pipeline().abort_on(on);
        } else {
            let pipeline = Pipeline::without_token(turn.session.client.id, AbortState::new(on, 0));
            turn.session.set_tally(Some(Box::new(Tally::new(Arc::new(pipeline)))));
        }
    }
    turn.reply.ok();
    Ok(())
}

/// Parses `ON [ERRORS] [REDIRECTS]`, with the words in any order.
fn chosen(turn: &Turn<'_, '_>) -> Result<AbortOn, Error> {
    let (mut errors, mut redirects) = (false, false);
    if !turn.is(2, "on") {
        return Err(Error::SYNTAX);
    }
    for index in 3..turn.len() {
        let word = if turn.is(index, "errors") {
            &mut errors
        } else if turn.is(index, "redirects") {
            &mut redirects
        } else {
            return Err(Error::SYNTAX);
        };
        if std::mem::replace(word, true) {
            return Err(Error::SYNTAX);
        }
    }
    Ok(AbortOn::of(errors, redirects))
}

pub(super) fn sync(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    let outcome = turn.session.tally().and_then(|tally| tally.pipeline().sync()).ok_or(IS_OFF)?;
    // The reply confirms the commands before it, so it waits until they are as durable as their own replies require.
    turn.worker.depend_on_all();
    let SyncOutcome { executed, skipped, failure } = outcome;
    turn.reply.map(4);
    turn.reply.bulk("executed");
    turn.reply.int(executed as i64);
    turn.reply.bulk("failed");
    turn.reply.int(failure.as_ref().map_or(0, |failure| failure.position as i64));
    turn.reply.bulk("error");
    match &failure {
        Some(failure) => turn.reply.bulk(&failure.error),
        None => turn.reply.null(),
    }
    turn.reply.bulk("skipped");
    turn.reply.int(skipped as i64);
    Ok(())
}

#[cfg(test)]
#[path = "abort_tests.rs"]
mod tests;
