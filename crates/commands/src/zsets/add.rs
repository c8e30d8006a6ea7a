//! Adding and removing members: ZADD, ZINCRBY, ZREM.

use resp::num;
use store::types::zset::ZSet;

use super::removed;
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;

const NOT_COMPATIBLE_XX_NX: Error = Error::fixed("ERR XX and NX options at the same time are not compatible");
const NOT_COMPATIBLE_GT_LT_NX: Error =
    Error::fixed("ERR GT, LT, and/or NX options at the same time are not compatible");
const ONE_PAIR: Error = Error::fixed("ERR INCR option supports a single increment-element pair");
const NAN: Error = Error::fixed("ERR resulting score is not a number (NaN)");

/// Options of ZADD.
#[derive(Clone, Copy, Default)]
pub(crate) struct Flags {
    pub nx: bool,
    pub xx: bool,
    gt: bool,
    lt: bool,
    pub changed: bool,
    increment: bool,
}

/// Parses ZADD's options and returns them with the index of the first score.
fn flags(call: &Call<'_, '_, '_>) -> Result<(Flags, usize), Error> {
    let mut flags = Flags::default();
    let mut index = 2;
    while index < call.len() {
        let option = match call.arg(index) {
            [b'0'..=b'9', ..] => break,
            word if word.eq_ignore_ascii_case(b"nx") => &mut flags.nx,
            word if word.eq_ignore_ascii_case(b"xx") => &mut flags.xx,
            word if word.eq_ignore_ascii_case(b"gt") => &mut flags.gt,
            word if word.eq_ignore_ascii_case(b"lt") => &mut flags.lt,
            word if word.eq_ignore_ascii_case(b"ch") => &mut flags.changed,
            word if word.eq_ignore_ascii_case(b"incr") => &mut flags.increment,
            _ => break,
        };
        *option = true;
        index += 1;
    }
    let left = call.len() - index;
    if left == 0 || !left.is_multiple_of(2) {
        return Err(Error::SYNTAX);
    }
    if flags.nx && flags.xx {
        return Err(NOT_COMPATIBLE_XX_NX);
    }
    if usize::from(flags.gt) + usize::from(flags.lt) + usize::from(flags.nx) > 1 {
        return Err(NOT_COMPATIBLE_GT_LT_NX);
    }
    if flags.increment && left > 2 {
        return Err(ONE_PAIR);
    }
    Ok((flags, index))
}

/// Result of adding one member.
pub(crate) enum Added {
    New(f64),
    Updated(f64),
    Same(f64),
    /// An option prevented the change.
    Refused,
}

/// Adds a member, or changes its score, if the options permit it.
pub(crate) fn add_one(
    zset: &mut ZSet,
    member: &[u8],
    score: f64,
    flags: Flags,
    limits: store::types::zset::ZSetLimits,
) -> Result<Added, Error> {
    // Without options that depend on the current score, one lookup is enough.
    let looks = flags.nx || flags.xx || flags.gt || flags.lt || flags.increment;
    if !looks {
        return Ok(match zset.insert(member, score, limits) {
            None => Added::New(score),
            Some(before) if before != score => Added::Updated(score),
            Some(_) => Added::Same(score),
        });
    }
    let Some(before) = zset.score(member) else {
        if flags.xx {
            return Ok(Added::Refused);
        }
        zset.insert(member, score, limits);
        return Ok(Added::New(score));
    };
    if flags.nx {
        return Ok(Added::Refused);
    }
    let score = if flags.increment { before + score } else { score };
    if score.is_nan() {
        return Err(NAN);
    }
    if (flags.lt && score >= before) || (flags.gt && score <= before) {
        return Ok(Added::Refused);
    }
    if score == before {
        return Ok(Added::Same(score));
    }
    zset.insert(member, score, limits);
    Ok(Added::Updated(score))
}

pub(super) fn zadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (flags, first) = flags(call)?;
    add(call, flags, first)
}

pub(super) fn zincrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    // Redis parses this word as an option of ZADD and then finds no score.
    if ["nx", "xx", "gt", "lt", "ch", "incr"].iter().any(|option| call.is(2, option)) {
        return Err(Error::SYNTAX);
    }
    add(call, Flags { increment: true, ..Flags::default() }, 2)
}

fn add(call: &mut Call<'_, '_, '_>, flags: Flags, first: usize) -> Outcome {
    // All scores are checked before any change. The first one is kept, since usually it is the only one.
    let first_score = call.float(first)?;
    for index in (first + 2..call.len()).step_by(2) {
        call.float(index)?;
    }
    let key = call.key(1);
    if flags.xx && call.db.object_mut::<ZSet>(key)?.is_none() {
        if flags.increment {
            call.reply.null()
        } else {
            call.reply.int(0)
        }
        return Ok(());
    }
    let limits = call.rules.zset;
    let pairs = (call.len() - first) / 2;
    let longest_first = call.arg(first + 1).len();
    let zset = call.db.object_or_new::<ZSet>(key)?;
    if zset.is_empty() {
        zset.prepare(pairs, longest_first, limits);
    }
    let (mut added, mut updated) = (0, 0);
    let mut result = None;
    let (mut texts, mut first_score) = (call.args.from(first), Some(first_score));
    let mut ahead = ItemsAhead::<2>::new(call.args.len(), first + 1);
    while let (Some(score), Some(member)) = (texts.next(), texts.next()) {
        ahead.before_next(call.args, |item| zset.prefetch(item));
        let score = first_score.take().unwrap_or_else(|| num::parse_f64(score).unwrap_or_default());
        match add_one(zset, member, score, flags, limits)? {
            Added::New(score) => (added, result) = (added + 1, Some(score)),
            Added::Updated(score) => (updated, result) = (updated + 1, Some(score)),
            Added::Same(score) => result = Some(score),
            Added::Refused => result = None,
        }
    }
    if added + updated > 0 {
        call.changed_by(added + updated, key, Class::ZSet, if flags.increment { "zincr" } else { "zadd" });
    }
    match result {
        Some(score) if flags.increment => call.reply.double(score),
        None if flags.increment => call.reply.null(),
        _ => call.reply.count(if flags.changed { added + updated } else { added }),
    }
    Ok(())
}

pub(super) fn zrem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let Some(zset) = call.db.object_mut::<ZSet>(key)? else {
        call.reply.int(0);
        return Ok(());
    };
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    let remove = |member: &&[u8]| {
        ahead.before_next(call.args, |item| zset.prefetch(item));
        zset.remove(member)
    };
    let count = call.args.from(2).filter(remove).count();
    let is_empty = zset.is_empty();
    if count > 0 {
        removed(call, key, "zrem", count, is_empty);
    }
    call.reply.count(count);
    Ok(())
}
