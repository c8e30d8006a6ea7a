//! PIPELINE ATTACH and PIPELINE AT, which nodes of a cluster send to each other: see `pipelines::nodes`.

use commands::error::{Error, Outcome};
use journal::record::Kind;
use resp::num;

use super::{EXISTS, OTHER_TOKEN, add, check_cluster, check_primary, check_token_size, find};
use crate::pipelines::nodes::ForwardState;
use crate::pipelines::{Pipeline, PipelineProgress, Tally, TokenState};
use crate::services::closing::close_client;
use crate::worker::turn::Turn;

const NOT_ATTACHED: Error =
    Error::fixed("ERR PIPELINE AT needs PIPELINE ATTACH, and a position behind the counted ones");

/// Takes a token over for another node's client, and returns the count. Creates the token if it doesn't exist.
pub(super) fn attach(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    check_primary(turn)?;
    check_cluster(turn)?;
    check_token_size(turn.arg(2))?;
    let number = |at: usize| num::parse_i64(turn.arg(at)).and_then(|number| u64::try_from(number).ok());
    let (Some(generation), Some(ttl_s)) = (number(3), number(4)) else { return Err(Error::NOT_INTEGER) };
    let (engine, now_ms, me) = (turn.engine(), turn.now_ms(), turn.session.client.id);
    if turn.session.tally().is_some_and(|tally| tally.pipeline().token() != turn.arg(2)) {
        return Err(OTHER_TOKEN);
    }
    let pipeline = if engine.pipelines.get(turn.arg(2), now_ms).is_some() {
        let pipeline = find(turn)?;
        if !pipeline.is_of_owner() {
            return Err(EXISTS);
        }
        if let Some(known) = pipeline.forward().map(|forward| forward.generation).filter(|&known| known > generation) {
            return Err(Error::new(format!(
                "FENCED {known} is the generation of another connection with this pipeline token"
            )));
        }
        pipeline.raise_generation(generation);
        let before = engine.pipelines.hand_over(turn.arg(2), me, now_ms).and_then(|(_, before)| before);
        if let Some(client) = before.filter(|&before| before != me).and_then(|before| engine.clients.get(before)) {
            close_client(engine, &client);
        }
        pipeline
    } else {
        let forward = Some(ForwardState { generation, name: Box::default() });
        add(
            turn,
            TokenState {
                token: turn.arg(2).into(),
                user: super::user_of(turn).into(),
                ttl_ms: ttl_s.saturating_mul(1000),
                holder: Some(me),
                expires_ms: None,
                progress: PipelineProgress::default(),
                abort: None,
                forward,
            },
        )?
    };
    record_state(turn, &pipeline);
    turn.session.set_tally(Some(Box::new(Tally::new(pipeline.clone()))));
    // The commands of the client follow in database 0.
    turn.worker.depend_on_all();
    let progress = pipeline.progress();
    turn.reply.array(2 + 2 * progress.failures.len());
    turn.reply.int(progress.executed as i64);
    turn.reply.int(progress.failed as i64);
    for failure in &progress.failures {
        turn.reply.int(failure.position as i64);
        turn.reply.bulk(&failure.error);
    }
    Ok(())
}

/// Says that the next command, or transaction, begins at this position, and that all commands before it are finished.
pub(super) fn at(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    let finished = num::parse_i64(turn.arg(2)).and_then(|position| u64::try_from(position.checked_sub(1)?).ok());
    let pipeline = turn.session.tally().map(|tally| tally.pipeline().clone()).filter(|pipeline| pipeline.is_of_owner());
    let advanced = pipeline.as_ref().zip(finished).and_then(|(pipeline, finished)| pipeline.advance(finished));
    let asks = turn.len() == 4 && turn.is(3, "asking");
    let (Some(pipeline), Some(must_record), true) = (pipeline, advanced, asks || turn.len() == 3) else {
        // The command behind this one must not run uncounted.
        turn.session.closing = true;
        return Err(NOT_ATTACHED);
    };
    if must_record {
        record_state(turn, &pipeline);
    }
    if asks {
        turn.session.set_asking(true);
    }
    turn.reply.ok();
    Ok(())
}

/// Records the whole state of a token.
fn record_state(turn: &mut Turn<'_, '_>, pipeline: &Pipeline) {
    if turn.worker.effects.recording {
        let state = pipeline.recorded_state();
        state.records().iter().for_each(|record| turn.worker.unit.record.push_written(0, Kind::Own, record));
    }
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
