//! Reading members: ZCARD, ZSCORE, ZMSCORE, ZRANK, ZRANDMEMBER, ZSCAN.

use resp::reply::Reply;
use store::types::packed::ItemText;
use store::types::zset::ZSet;

use super::PairForm;
use crate::Call;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;
use crate::sample::{self, Sampled};
use crate::scan_options::{self, ScanOptions};

pub(super) fn zcard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = call.db.object::<ZSet>(call.key(1))?.map_or(0, ZSet::len);
    call.reply.count(count);
    Ok(())
}

pub(super) fn zscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let score = call.db.object::<ZSet>(call.key(1))?.and_then(|zset| zset.score(call.args.get(2)));
    reply_score(call, score);
    Ok(())
}

fn reply_score(call: &mut Call<'_, '_, '_>, score: Option<f64>) {
    match score {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
}

pub(super) fn zmscore(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_each_score(call, |reply, score| match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    })
}

/// Replies with an array that has one element for each member in the arguments. `write` writes it from the member's
/// score, or from none for a missing member.
pub(crate) fn reply_each_score(call: &mut Call<'_, '_, '_>, write: fn(&mut Reply<'_>, Option<f64>)) -> Outcome {
    let zset = call.db.object::<ZSet>(call.key(1))?;
    call.reply.array(call.args.len() - 2);
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    for member in call.args.from(2) {
        let score = zset.and_then(|zset| {
            ahead.before_next(call.args, |item| zset.prefetch(item));
            zset.score(member)
        });
        write(&mut call.reply, score);
    }
    Ok(())
}

fn reply_rank(call: &mut Call<'_, '_, '_>, name: &str, reverse: bool) -> Outcome {
    if call.len() > 4 {
        return Err(Error::arity(name));
    }
    let with_score = call.len() == 4;
    if with_score && !call.is(3, "withscore") {
        return Err(Error::SYNTAX);
    }
    let found = call.db.object::<ZSet>(call.key(1))?.and_then(|zset| zset.rank(call.args.get(2), reverse));
    match found {
        None if with_score => call.reply.null_array(),
        None => call.reply.null(),
        Some((rank, score)) if with_score => {
            call.reply.array(2);
            call.reply.count(rank);
            call.reply.double(score);
        }
        Some((rank, _)) => call.reply.count(rank),
    }
    Ok(())
}

pub(super) fn zrank(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_rank(call, "zrank", false)
}

pub(super) fn zrevrank(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_rank(call, "zrevrank", true)
}

impl Sampled for ZSet {
    type Member<'m> = (ItemText<'m>, f64);

    fn size(&self) -> usize {
        self.len()
    }

    fn members(&self) -> impl Iterator<Item = Self::Member<'_>> {
        self.iter()
    }

    fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Self::Member<'_>> {
        let rank = ((u128::from(random()) * self.len() as u128) >> 64) as usize;
        self.get(rank)
    }

    fn name<'m>(member: &'m Self::Member<'_>) -> &'m [u8] {
        &member.0
    }
}

pub(super) fn zrandmember(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    if call.len() == 2 {
        let random = &mut *call.random;
        let picked = call.db.object::<ZSet>(key)?.and_then(|zset| Sampled::pick(zset, &mut || random.next()));
        call.reply.bulk_or_null(picked.map(|(member, _)| member));
        return Ok(());
    }
    let (count, with_scores) = sample::count_and_word(call, 2, "withscores")?;
    let Some(zset) = call.db.object::<ZSet>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let form = PairForm::with_scores(with_scores);
    let texts = if with_scores && !call.reply.is_resp3() { 2 } else { 1 };
    let bytes_max = call.rules.string_bytes_max;
    sample::reply_members(zset, count, texts, bytes_max, call.random, &mut call.reply, |reply, (member, score)| {
        form.write(reply, &member, score);
    })
}

pub(super) fn zscan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, cursor) = (call.key(1), scan_options::cursor(call, 2)?);
    call.db.get(key);
    let Some(zset) = call.db.peek_object::<ZSet>(key)? else {
        // Redis doesn't check the options of a missing sorted set.
        scan_options::reply_nothing(&mut call.reply);
        return Ok(());
    };
    let mut with_scores = true;
    let options = ScanOptions::parse(call, 3, |index| {
        if !call.is(index, "noscores") {
            return Err(Error::SYNTAX);
        }
        with_scores = false;
        Ok(1)
    })?;
    let is_big = zset.encoding() == "skiplist";
    options.run(cursor, &mut call.reply, |cursor, found| {
        zset.scan(cursor, |member, score| {
            if found.wants(member) {
                found.show(member);
                // Here Redis prints scores differently for its two encodings.
                match is_big {
                    _ if !with_scores => {}
                    true => found.show(resp::num::SeventeenDigits::new(score).as_bytes()),
                    false => found.show(resp::num::FloatText::new(score).as_bytes()),
                }
            }
        })
    })
}
