//! Reading fields: HGET and similar commands, HRANDFIELD, HSCAN.

use resp::reply::Reply;
use store::random::Random;
use store::types::hash::Hash;
use store::types::packed::ItemText;
use store::types::timed_hash::Living;

use super::timed;
use crate::Call;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;
use crate::sample::{self, Sampled};
use crate::scan_options::{self, ScanOptions};

pub(super) fn hget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::hget(call) };
    call.reply.bulk_or_null(hash.and_then(|hash| hash.get(call.args.get(2))));
    Ok(())
}

pub(super) fn hmget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let fields = call.args.from(2);
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::hmget(call) };
    call.reply.array(fields.len());
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    for field in fields {
        let value = hash.and_then(|hash| {
            ahead.before_next(call.args, |item| hash.prefetch(item));
            hash.get(field)
        });
        call.reply.bulk_or_null(value);
    }
    Ok(())
}

pub(super) fn hexists(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::hexists(call) };
    let exists = hash.is_some_and(|hash| hash.contains(call.args.get(2)));
    call.reply.int(i64::from(exists));
    Ok(())
}

pub(super) fn hlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::hlen(call) };
    call.reply.count(hash.map_or(0, Hash::len));
    Ok(())
}

pub(super) fn hstrlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::hstrlen(call) };
    let len = hash.and_then(|hash| hash.value_len(call.args.get(2)));
    call.reply.count(len.unwrap_or(0));
    Ok(())
}

pub(super) fn hgetall(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::hgetall(call) };
    call.reply.map(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.for_each(|field, value| {
            call.reply.bulk(field);
            call.reply.bulk(value);
        });
    }
    Ok(())
}

pub(super) fn hkeys(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_each(call, |field, _| field)
}

pub(super) fn hvals(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_each(call, |_, value| value)
}

/// Replies with the field or the value of each entry.
fn reply_each(call: &mut Call<'_, '_, '_>, choose: for<'t> fn(&'t [u8], &'t [u8]) -> &'t [u8]) -> Outcome {
    let Ok(hash) = call.db.object::<Hash>(call.key(1)) else { return timed::reply_each(call, choose) };
    call.reply.array(hash.map_or(0, Hash::len));
    if let Some(hash) = hash {
        hash.for_each(|field, value| call.reply.bulk(choose(field, value)));
    }
    Ok(())
}

impl Sampled for Hash {
    type Member<'a> = (ItemText<'a>, ItemText<'a>);

    fn size(&self) -> usize {
        self.len()
    }

    fn members(&self) -> impl Iterator<Item = Self::Member<'_>> {
        self.iter()
    }

    fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Self::Member<'_>> {
        self.pick(random)
    }

    fn name<'m>(member: &'m Self::Member<'_>) -> &'m [u8] {
        &member.0
    }
}

pub(super) fn hrandfield(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    if call.len() == 2 {
        let Ok(hash) = call.db.object::<Hash>(key) else { return timed::hrandfield(call) };
        let random = &mut *call.random;
        let picked = hash.and_then(|hash| hash.pick(&mut || random.next()));
        call.reply.bulk_or_null(picked.map(|(field, _)| field));
        return Ok(());
    }
    let wanted = sample::count_and_word(call, 2, "withvalues")?;
    match call.db.object::<Hash>(key) {
        Err(_) => timed::hrandfield_count(call, wanted),
        Ok(Some(hash)) => reply_sample(hash, wanted, call.rules.string_bytes_max, call.random, &mut call.reply),
        Ok(None) => {
            call.reply.array(0);
            Ok(())
        }
    }
}

/// Replies with this number of random fields.
pub(super) fn reply_sample<'h, H: Sampled<Member<'h> = (ItemText<'h>, ItemText<'h>)>>(
    hash: &'h H,
    (count, with_values): (i64, bool),
    bytes_max: usize,
    random: &mut Random,
    reply: &mut Reply<'_>,
) -> Outcome {
    let nested = with_values && reply.is_resp3();
    let texts = if with_values && !nested { 2 } else { 1 };
    sample::reply_members(hash, count, texts, bytes_max, random, reply, |reply, (field, value)| {
        if nested {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    })
}

pub(super) fn hscan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, cursor) = (call.key(1), scan_options::cursor(call, 2)?);
    call.db.get(key);
    let hash = match call.db.peek_object::<Hash>(key) {
        Ok(Some(hash)) => Scanned::Plain(hash),
        Err(_) => Scanned::Timed(timed::living(&call.db, key)?),
        Ok(None) => {
            // Redis doesn't check the options of a missing hash.
            scan_options::reply_nothing(&mut call.reply);
            return Ok(());
        }
    };
    let mut with_values = true;
    let options = ScanOptions::parse(call, 3, |index| {
        if !call.is(index, "novalues") {
            return Err(Error::SYNTAX);
        }
        with_values = false;
        Ok(1)
    })?;
    options.run(cursor, &mut call.reply, |cursor, found| {
        let visit = |field: &[u8], value: &[u8]| {
            if found.wants(field) {
                found.show(field);
                if with_values {
                    found.show(value);
                }
            }
        };
        match hash {
            Scanned::Plain(hash) => hash.scan(cursor, visit),
            Scanned::Timed(hash) => hash.scan(cursor, visit),
        }
    })
}

/// A hash that HSCAN iterates over.
#[derive(Clone, Copy)]
enum Scanned<'h> {
    Plain(&'h Hash),
    Timed(Living<'h>),
}
