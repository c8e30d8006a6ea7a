//! Reading entries: XLEN, XRANGE, XREVRANGE.

use store::types::stream::Stream;

use super::options::{end, start};
use super::write_entries;
use crate::Call;
use crate::error::{Error, Outcome};

pub(super) fn xlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.db.object::<Stream>(call.key(1))?.map_or(0, |stream| stream.entries.len());
    call.reply.int(len as i64);
    Ok(())
}

pub(super) fn xrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    range(call, 2, 3)
}

pub(super) fn xrevrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    range(call, 3, 2)
}

/// Replies with the entries between two IDs, whose indexes are `from` and `to`; in descending order if `from` comes
/// second.
fn range(call: &mut Call<'_, '_, '_>, from: usize, to: usize) -> Outcome {
    let (from_id, to_id) = (start(call.arg(from))?, end(call.arg(to))?);
    let mut count = None;
    let mut at = 4;
    while at < call.len() {
        if at + 1 == call.len() || !call.is(at, "count") {
            return Err(Error::SYNTAX);
        }
        count = Some(call.int(at + 1)?.max(0) as usize);
        at += 2;
    }
    let Some(stream) = call.db.object::<Stream>(call.key(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        call.reply.null_array();
        return Ok(());
    }
    let entries = stream.entries.range(from_id, to_id);
    let (count, reply) = (count.unwrap_or(0), &mut call.reply);
    match from < to {
        true => write_entries(reply, entries, count, |_| ()),
        false => write_entries(reply, entries.rev(), count, |_| ()),
    }
    Ok(())
}
