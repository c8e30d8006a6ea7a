//! Reading lists: LLEN, LINDEX, LRANGE, LPOS.

use resp::num;
use store::types::list::{End, List, Search};

use super::{from_head, reply_item, span};
use crate::Call;
use crate::error::{Error, Outcome};

pub(super) fn llen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.db.object::<List>(call.key(1))?.map_or(0, List::len);
    call.reply.count(len);
    Ok(())
}

pub(super) fn lindex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let index = call.int(2);
    match call.db.object::<List>(call.key(1))? {
        // Redis doesn't check the index of a missing list.
        None => call.reply.null(),
        Some(list) => match list.get(from_head(index?, list.len())) {
            None => call.reply.null(),
            Some(item) => reply_item(&mut call.reply, item),
        },
    }
    Ok(())
}

pub(super) fn lrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (start, stop) = (call.int(2)?, call.int(3)?);
    let Some(list) = call.db.object::<List>(call.key(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let span = span(start, stop, list.len());
    call.reply.array(span.len());
    for item in list.range(span) {
        reply_item(&mut call.reply, item);
    }
    Ok(())
}

/// Options of LPOS.
struct Positions {
    search: Search,
    /// True if COUNT was given; the reply is then an array.
    many: bool,
}

pub(super) fn lpos(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Positions { search, many } = positions(call)?;
    let list = call.db.object::<List>(call.key(1))?;
    let needle = call.args.get(2);
    if many {
        let start = call.reply.deferred();
        let mut count = 0;
        if let Some(list) = list {
            list.positions(needle, search, |index| {
                call.reply.count(index);
                count += 1;
            });
        }
        call.reply.fill_array(start, count);
        return Ok(());
    }
    let mut first = None;
    if let Some(list) = list {
        list.positions(needle, search, |index| first = Some(index));
    }
    match first {
        Some(index) => call.reply.count(index),
        None => call.reply.null(),
    }
    Ok(())
}

fn positions(call: &Call<'_, '_, '_>) -> Result<Positions, Error> {
    let mut positions = Positions { search: Search::default(), many: false };
    for index in (3..call.len()).step_by(2) {
        if index + 1 == call.len() {
            return Err(Error::SYNTAX);
        }
        if call.is(index, "rank") {
            let rank = rank(call.int(index + 1)?)?;
            (positions.search.from, positions.search.skip) = rank;
        } else if call.is(index, "count") {
            positions.search.matches_max = limit(call, index + 1, "ERR COUNT can't be negative")?;
            positions.many = true;
        } else if call.is(index, "maxlen") {
            positions.search.compared_max = limit(call, index + 1, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(positions)
}

/// Converts a rank to the end to search from and the number of matches to skip.
fn rank(rank: i64) -> Result<(End, usize), Error> {
    match rank {
        0 => Err(Error::new(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
             start from the end of the list",
        )),
        i64::MIN => Err(Error::NOT_NEGATABLE),
        _ => Ok((if rank < 0 { End::Right } else { End::Left }, rank.unsigned_abs() as usize - 1)),
    }
}

/// Parses the argument at `index` as a limit; 0 means no limit.
fn limit(call: &Call<'_, '_, '_>, index: usize, complaint: &'static str) -> Result<usize, Error> {
    match num::parse_i64(call.arg(index)) {
        Some(0) => Ok(usize::MAX),
        Some(count @ 1..) => Ok(count as usize),
        _ => Err(Error::new(complaint)),
    }
}
