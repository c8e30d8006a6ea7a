//! Ranges of a sorted set by rank, score or name: reading, storing, counting and removing them.

use std::ops::Range;

use resp::num;
use store::db::Ttl;
use store::keyspace::Key;
use store::types::zset::{LexBound, LexRange, ScoreRange, ZSet, limit_ranks};
use store::value::Value;

use super::{PairForm, removed};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

const LIMIT_NEEDS_BY: Error =
    Error::fixed("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
const NO_SCORES_BY_LEX: Error = Error::fixed("ERR syntax error, WITHSCORES not supported in combination with BYLEX");

/// Meaning of a range's bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A range as given in the arguments.
enum Bounds<'c> {
    Rank(i64, i64),
    Score(ScoreRange),
    Lex(LexRange<'c>),
}

fn score_range(min: &[u8], max: &[u8]) -> Result<ScoreRange, Error> {
    let bound = |text| num::parse_score_bound(text).ok_or(Error::MIN_MAX_NOT_FLOAT);
    let ((min, min_excluded), (max, max_excluded)) = (bound(min)?, bound(max)?);
    Ok(ScoreRange { min, max, min_excluded, max_excluded })
}

fn lex_range<'c>(min: &'c [u8], max: &'c [u8]) -> Result<LexRange<'c>, Error> {
    let bound = |text: &'c [u8]| match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', rest @ ..] => Ok(LexBound::Included(rest)),
        [b'(', rest @ ..] => Ok(LexBound::Excluded(rest)),
        _ => Err(Error::MIN_MAX_NOT_STRING),
    };
    Ok(LexRange { min: bound(min)?, max: bound(max)? })
}

impl<'c> Bounds<'c> {
    /// Parses the two arguments from `index` on; if `swapped`, the higher bound comes first.
    fn read(call: &Call<'c, '_, '_>, by: By, index: usize, swapped: bool) -> Result<Bounds<'c>, Error> {
        let (min, max) = if swapped { (index + 1, index) } else { (index, index + 1) };
        Ok(match by {
            By::Rank => Bounds::Rank(call.int(index)?, call.int(index + 1)?),
            By::Score => Bounds::Score(score_range(call.arg(min), call.arg(max))?),
            By::Lex => Bounds::Lex(lex_range(call.arg(min), call.arg(max))?),
        })
    }

    /// The range as ranks. Ranks of a reversed range count from the highest score.
    fn ranks(&self, zset: &ZSet, reverse: bool) -> Range<usize> {
        match self {
            Bounds::Rank(start, stop) => {
                let ranks = rank_window(*start, *stop, zset.len());
                if reverse { zset.len() - ranks.end..zset.len() - ranks.start } else { ranks }
            }
            Bounds::Score(range) => zset.ranks_by_score(range),
            Bounds::Lex(range) => zset.ranks_by_lex(range),
        }
    }
}

/// Converts Redis's indexes (negative ones count from the end, both ends are included) to a range within `len`.
fn rank_window(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// Parsed arguments of a command of the ZRANGE family.
struct RangeQuery<'c> {
    bounds: Bounds<'c>,
    reverse: bool,
    limit: Option<(i64, i64)>,
    form: PairForm,
}

/// Options that a command's name implies; ZRANGE has them as arguments.
#[derive(Clone, Copy)]
struct Fixed {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

impl<'c> RangeQuery<'c> {
    /// Parses the arguments from the first bound on, which is at `index`.
    fn read(call: &Call<'c, '_, '_>, index: usize, fixed: Fixed) -> Result<RangeQuery<'c>, Error> {
        let (mut by, mut reverse, mut limit, mut scores) = (fixed.by, fixed.reverse, None, false);
        let mut at = index + 2;
        while at < call.len() {
            if !fixed.stores && call.is(at, "withscores") {
                scores = true;
            } else if call.is(at, "limit") && at + 2 < call.len() {
                limit = Some((call.int(at + 1)?, call.int(at + 2)?));
                at += 2;
            } else if reverse.is_none() && call.is(at, "rev") {
                reverse = Some(true);
            } else if by.is_none() && call.is(at, "bylex") {
                by = Some(By::Lex);
            } else if by.is_none() && call.is(at, "byscore") {
                by = Some(By::Score);
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if by == By::Rank {
            // A count of -1 is accepted as no limit.
            if limit.take().is_some_and(|(_, count)| count != -1) {
                return Err(LIMIT_NEEDS_BY);
            }
        }
        if scores && by == By::Lex {
            return Err(NO_SCORES_BY_LEX);
        }
        let bounds = Bounds::read(call, by, index, reverse && by != By::Rank)?;
        Ok(RangeQuery { bounds, reverse, limit, form: PairForm::with_scores(scores) })
    }

    fn ranks(&self, zset: &ZSet) -> Range<usize> {
        let ranks = self.bounds.ranks(zset, self.reverse);
        match self.limit {
            None => ranks,
            // As in Redis, a negative offset yields nothing and a negative count everything.
            Some((offset, count)) => match usize::try_from(offset) {
                Ok(offset) => limit_ranks(ranks, self.reverse, offset, usize::try_from(count).ok()),
                Err(_) => 0..0,
            },
        }
    }
}

fn reply_range(call: &mut Call<'_, '_, '_>, fixed: Fixed) -> Outcome {
    let query = RangeQuery::read(call, 2, fixed)?;
    let Some(zset) = call.db.object::<ZSet>(call.key(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let ranks = query.ranks(zset);
    query.form.header(&mut call.reply, ranks.len());
    let (form, reply) = (query.form, &mut call.reply);
    // The common case has its own loop.
    if form == PairForm::Members {
        zset.visit_ranks(ranks, query.reverse, |member, _| reply.bulk(member));
    } else {
        zset.visit_ranks(ranks, query.reverse, |member, score| form.write(reply, member, score));
    }
    Ok(())
}

pub(super) fn zrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Fixed { by: None, reverse: None, stores: false })
}

pub(super) fn zrevrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Fixed { by: Some(By::Rank), reverse: Some(true), stores: false })
}

pub(super) fn zrangebyscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Fixed { by: Some(By::Score), reverse: Some(false), stores: false })
}

pub(super) fn zrevrangebyscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Fixed { by: Some(By::Score), reverse: Some(true), stores: false })
}

pub(super) fn zrangebylex(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Fixed { by: Some(By::Lex), reverse: Some(false), stores: false })
}

pub(super) fn zrevrangebylex(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_range(call, Fixed { by: Some(By::Lex), reverse: Some(true), stores: false })
}

pub(super) fn zrangestore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let query = RangeQuery::read(call, 3, Fixed { by: None, reverse: None, stores: true })?;
    let limits = call.rules.zset;
    let stored = call.db.object::<ZSet>(call.key(2))?.map(|zset| {
        let ranks = query.ranks(zset);
        ZSet::from_pairs(zset.range_by_rank(ranks, false), limits)
    });
    let destination = call.key(1);
    let count = store(call, destination, stored.unwrap_or_default(), "zrangestore");
    call.reply.count(count);
    Ok(())
}

/// Replaces a key's value by a result; an empty result deletes the key. Returns the number of members.
pub(super) fn store(call: &mut Call<'_, '_, '_>, key: Key<'_>, zset: ZSet, event: &'static str) -> usize {
    let count = zset.len();
    call.overwrite(key);
    if count > 0 {
        call.db.set_object(key, Value::ZSet(zset), Ttl::Clear);
        call.changed(key, Class::ZSet, event);
    } else {
        call.store_nothing(key);
    }
    count
}

/// Like [`store`], but counts `changes` changes and records the result instead of the command.
pub(crate) fn store_recorded(
    call: &mut Call<'_, '_, '_>,
    key: Key<'_>,
    zset: ZSet,
    changes: usize,
    event: &'static str,
) -> usize {
    let count = zset.len();
    call.overwrite(key);
    if count > 0 {
        record_members(call, key, &zset);
        call.db.set_object(key, Value::ZSet(zset), Ttl::Clear);
        call.changed_by(changes, key, Class::ZSet, event);
    } else {
        let revision = call.effects.revision();
        call.store_nothing(key);
        if call.effects.revision() != revision {
            call.record_as(&[b"DEL", key.bytes]);
        }
    }
    count
}

/// Makes the journal reproduce the call by replacing the key's value with these members, of which there is at least
/// one.
fn record_members(call: &mut Call<'_, '_, '_>, key: Key<'_>, zset: &ZSet) {
    if !call.is_recorded() {
        return;
    }
    call.record_as(&[b"DEL", key.bytes]);
    let texts: Vec<_> = zset.iter().map(|(member, score)| (num::FloatText::new(score), member)).collect();
    let pairs = texts.iter().flat_map(|(score, member)| [score.as_bytes(), member]);
    let words: Vec<&[u8]> = [&b"ZADD"[..], key.bytes].into_iter().chain(pairs).collect();
    call.record_as(&words);
}

fn reply_count(call: &mut Call<'_, '_, '_>, by: By) -> Outcome {
    let bounds = Bounds::read(call, by, 2, false)?;
    let zset = call.db.object::<ZSet>(call.key(1))?;
    let count = zset.map_or(0, |zset| bounds.ranks(zset, false).len());
    call.reply.count(count);
    Ok(())
}

pub(super) fn zcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_count(call, By::Score)
}

pub(super) fn zlexcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_count(call, By::Lex)
}

fn remove_range(call: &mut Call<'_, '_, '_>, by: By, event: &'static str) -> Outcome {
    let bounds = Bounds::read(call, by, 2, false)?;
    let key = call.key(1);
    let Some(zset) = call.db.object_mut::<ZSet>(key)? else {
        call.reply.int(0);
        return Ok(());
    };
    let ranks = bounds.ranks(zset, false);
    let count = zset.remove_range_by_rank(ranks);
    let is_empty = zset.is_empty();
    if count > 0 {
        removed(call, key, event, count, is_empty);
    }
    call.reply.count(count);
    Ok(())
}

pub(super) fn zremrangebyrank(call: &mut Call<'_, '_, '_>) -> Outcome {
    remove_range(call, By::Rank, "zremrangebyrank")
}

pub(super) fn zremrangebyscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    remove_range(call, By::Score, "zremrangebyscore")
}

pub(super) fn zremrangebylex(call: &mut Call<'_, '_, '_>) -> Outcome {
    remove_range(call, By::Lex, "zremrangebylex")
}
