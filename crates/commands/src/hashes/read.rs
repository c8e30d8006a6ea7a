//! Looking at fields: HGET and its relatives, HRANDFIELD, HSCAN.

use store::types::hash::Hash;
use store::types::packed::ItemText;

use crate::Call;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;
use crate::sample::{self, Sampled};
use crate::scan_options::{self, ScanOptions};

pub(super) fn hget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = call.db.object::<Hash>(call.key(1))?;
    call.reply.bulk_or_null(hash.and_then(|hash| hash.get(call.args.get(2))));
    Ok(())
}

pub(super) fn hmget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let fields = call.args.from(2);
    let hash = call.db.object::<Hash>(call.key(1))?;
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
    let hash = call.db.object::<Hash>(call.key(1))?;
    let exists = hash.is_some_and(|hash| hash.contains(call.args.get(2)));
    call.reply.int(i64::from(exists));
    Ok(())
}

pub(super) fn hlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.db.object::<Hash>(call.key(1))?.map_or(0, Hash::len);
    call.reply.count(len);
    Ok(())
}

pub(super) fn hstrlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = call.db.object::<Hash>(call.key(1))?;
    let len = hash.and_then(|hash| hash.value_len(call.args.get(2)));
    call.reply.count(len.unwrap_or(0));
    Ok(())
}

pub(super) fn hgetall(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = call.db.object::<Hash>(call.key(1))?;
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

/// Replies with one text of each field and its value.
fn reply_each(call: &mut Call<'_, '_, '_>, choose: for<'t> fn(&'t [u8], &'t [u8]) -> &'t [u8]) -> Outcome {
    let hash = call.db.object::<Hash>(call.key(1))?;
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
        let random = &mut *call.random;
        let picked = call.db.object::<Hash>(key)?.and_then(|hash| hash.pick(&mut || random.next()));
        call.reply.bulk_or_null(picked.map(|(field, _)| field));
        return Ok(());
    }
    let (count, with_values) = sample::count_and_word(call, 2, "withvalues")?;
    let Some(hash) = call.db.object::<Hash>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let nested = with_values && call.reply.is_resp3();
    let texts = if with_values && !nested { 2 } else { 1 };
    let bytes_max = call.rules.string_bytes_max;
    sample::reply_members(hash, count, texts, bytes_max, call.random, &mut call.reply, |reply, (field, value)| {
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
    let Some(hash) = call.db.peek_object::<Hash>(key)? else {
        // Without a hash, Redis doesn't look at the options.
        scan_options::reply_nothing(&mut call.reply);
        return Ok(());
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
        hash.scan(cursor, |field, value| {
            if found.wants(field) {
                found.show(field);
                if with_values {
                    found.show(value);
                }
            }
        })
    })
}
