//! PIPELINE INFO: the limits that the connection's pipelines meet, and their present use.

use std::sync::atomic::Ordering::Relaxed;

use commands::error::Outcome;

use crate::worker::turn::Turn;

pub(super) fn info(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    let pipeline = turn.session.tally().map(|tally| tally.pipeline().clone());
    let token = pipeline.as_ref().filter(|pipeline| pipeline.has_token()).map(|pipeline| pipeline.token());
    let abort = pipeline.as_ref().and_then(|pipeline| pipeline.abort());
    let failed = abort.as_ref().and_then(|abort| abort.failure.as_ref()).map_or(0, |failure| failure.position);
    let (engine, client) = (turn.engine(), &turn.session.client);
    let settings = &engine.settings;
    let numbers = [
        ("failed", failed),
        ("reply-memory-limit", engine.replies.share(settings).memory),
        ("reply-memory-used", client.output_memory.load(Relaxed)),
        ("reply-spill-limit", settings.reply_spill_limit.get()),
        ("reply-spill-used", client.spill_bytes.load(Relaxed)),
        ("reply-stall-timeout", settings.reply_stall_timeout_s.get() as u64),
    ];
    turn.reply.map(2 + numbers.len());
    turn.reply.bulk("token");
    match token {
        Some(token) => turn.reply.bulk(token),
        None => turn.reply.null(),
    }
    turn.reply.bulk("abort");
    turn.reply.bulk(abort.map_or("off", |abort| abort.on.name()));
    for (field, number) in numbers {
        turn.reply.bulk(field);
        turn.reply.int(number as i64);
    }
    Ok(())
}
