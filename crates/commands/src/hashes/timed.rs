//! HSET, HGET and the other commands for hashes that have fields with an expiry (`TimedHash`).
//!
//! A handler first looks for a plain [`Hash`](store::types::hash::Hash) and calls this module if the key holds another
//! type, so plain hashes need no test for expiries. Expired fields are never shown. A command that writes fields first
//! removes the expired ones among them.

use store::db::{Db, Ttl};
use store::keyspace::Key;
use store::types::hash::HashLimits;
use store::types::packed::ItemText;
use store::types::timed_hash::{Living, TimedHash};

use super::{change, read};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;
use crate::sample::Sampled;

/// Returns the live fields of the hash at a key.
///
/// # Errors
/// The key doesn't hold a hash.
pub(super) fn living<'d>(db: &'d Db<'_, '_>, key: Key<'_>) -> Result<Living<'d>, Error> {
    let now = db.due_ms();
    db.peek_object::<TimedHash>(key)?.map(|hash| hash.living(now)).ok_or(Error::WRONG_TYPE)
}

/// True if a field of the hash at a key has an expiry.
#[cold]
pub(super) fn expires(db: &Db<'_, '_>, key: Key<'_>, field: &[u8]) -> bool {
    living(db, key).is_ok_and(|hash| matches!(hash.expiry(field), Some(Some(_))))
}

#[cold]
pub(super) fn hget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = living(&call.db, call.key(1))?;
    call.reply.bulk_or_null(hash.get(call.args.get(2)));
    Ok(())
}

#[cold]
pub(super) fn hmget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = living(&call.db, call.key(1))?;
    let fields = call.args.from(2);
    call.reply.array(fields.len());
    fields.for_each(|field| call.reply.bulk_or_null(hash.get(field)));
    Ok(())
}

#[cold]
pub(super) fn hexists(call: &mut Call<'_, '_, '_>) -> Outcome {
    let exists = living(&call.db, call.key(1))?.contains(call.args.get(2));
    call.reply.int(i64::from(exists));
    Ok(())
}

#[cold]
pub(super) fn hlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = living(&call.db, call.key(1))?.len();
    call.reply.count(len);
    Ok(())
}

#[cold]
pub(super) fn hstrlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = living(&call.db, call.key(1))?.value_len(call.args.get(2));
    call.reply.count(len.unwrap_or(0));
    Ok(())
}

#[cold]
pub(super) fn hgetall(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = living(&call.db, call.key(1))?;
    call.reply.map(hash.len());
    hash.for_each(|field, value| {
        call.reply.bulk(field);
        call.reply.bulk(value);
    });
    Ok(())
}

/// Replies with the field or the value of each entry.
#[cold]
pub(super) fn reply_each(call: &mut Call<'_, '_, '_>, choose: for<'t> fn(&'t [u8], &'t [u8]) -> &'t [u8]) -> Outcome {
    let hash = living(&call.db, call.key(1))?;
    call.reply.array(hash.len());
    hash.for_each(|field, value| call.reply.bulk(choose(field, value)));
    Ok(())
}

impl Sampled for Living<'_> {
    type Member<'a>
        = (ItemText<'a>, ItemText<'a>)
    where
        Self: 'a;

    fn size(&self) -> usize {
        self.len()
    }

    fn members(&self) -> impl Iterator<Item = Self::Member<'_>> {
        self.iter()
    }

    fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Self::Member<'_>> {
        Living::pick(self, random)
    }

    fn name<'m>(member: &'m (ItemText<'_>, ItemText<'_>)) -> &'m [u8] {
        &member.0
    }
}

#[cold]
pub(super) fn hrandfield(call: &mut Call<'_, '_, '_>) -> Outcome {
    let hash = living(&call.db, call.key(1))?;
    let random = &mut *call.random;
    let picked = hash.pick(&mut || random.next());
    call.reply.bulk_or_null(picked.map(|(field, _)| field));
    Ok(())
}

#[cold]
pub(super) fn hrandfield_count(call: &mut Call<'_, '_, '_>, wanted: (i64, bool)) -> Outcome {
    let hash = living(&call.db, call.key(1))?;
    if hash.is_empty() {
        call.reply.array(0);
        return Ok(());
    }
    read::reply_sample(&hash, wanted, call.rules.string_bytes_max, call.random, &mut call.reply)
}

/// Sets the fields in the arguments, from the third on, and returns the number of new ones.
#[cold]
pub(super) fn set_fields(call: &mut Call<'_, '_, '_>) -> Result<usize, Error> {
    let args = call.args;
    set_pairs(call, args.from(2), Ttl::Clear)
}

/// Sets alternating fields and values, and returns the number of new fields.
///
/// # Errors
/// The key doesn't hold a hash.
pub(super) fn set_pairs<'a>(
    call: &mut Call<'a, '_, '_>,
    pairs: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ttl: Ttl,
) -> Result<usize, Error> {
    let (key, limits) = (call.key(1), call.rules.hash);
    call.db.expire_fields(key, pairs.clone().step_by(2));
    let added = call.db.change_timed(key, |hash| insert_all(hash, pairs, ttl, &limits))?;
    Ok(added.unwrap_or(0))
}

fn insert_all<'a>(
    hash: &mut TimedHash,
    mut texts: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ttl: Ttl,
    limits: &HashLimits,
) -> usize {
    if texts.len() > 2 {
        let longest = texts.clone().map(<[u8]>::len).max().unwrap_or(0);
        hash.prepare(texts.len() / 2, longest, limits);
    }
    let mut added = 0;
    while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
        added += usize::from(hash.set(field, value, ttl, limits));
    }
    added
}

#[cold]
pub(super) fn hsetnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, field) = (call.key(1), call.arg(2));
    let absent = !living(&call.db, key)?.contains(field);
    if absent {
        let args = call.args;
        set_pairs(call, args.from(2), Ttl::Clear)?;
        call.changed(key, Class::Hash, "hset");
    }
    call.reply.int(i64::from(absent));
    Ok(())
}

#[cold]
pub(super) fn hdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    // The journal records the command as sent, so its fields must be removed even if they are expired.
    let had_due = call.db.expire_fields(key, call.args.from(2));
    let changed = call.db.change_timed(key, |hash| {
        let remove = |field: &&[u8]| {
            ahead.before_next(call.args, |item| hash.prefetch(item));
            hash.remove(field)
        };
        (call.args.from(2).filter(remove).count(), hash.is_empty())
    });
    let (removed, is_empty) = changed?.unwrap_or_default();
    change::note_removed(call, key, removed, is_empty);
    remove_drained(call, key, had_due && removed == 0 && is_empty);
    call.reply.count(removed);
    Ok(())
}

/// Deletes the key of a hash that became empty by removing expired fields.
pub(super) fn remove_drained(call: &mut Call<'_, '_, '_>, key: Key<'_>, is_drained: bool) {
    if is_drained && call.db.remove(key) {
        call.event(key, Class::Generic, "del");
    }
}

/// Sets the field in the arguments to the result of `next` for its old value, and returns the result. The field keeps
/// its expiry.
#[cold]
pub(super) fn update<T: AsRef<[u8]>>(
    call: &mut Call<'_, '_, '_>,
    key: Key<'_>,
    next: impl FnOnce(Option<&[u8]>) -> Result<T, Error>,
) -> Result<T, Error> {
    let (field, limits) = (call.arg(2), call.rules.hash);
    let value = next(living(&call.db, key)?.get(field).as_deref())?;
    call.db.expire_fields(key, [field].into_iter());
    call.db.change_timed(key, |hash| hash.set(field, value.as_ref(), Ttl::Keep, &limits))?;
    Ok(value)
}
