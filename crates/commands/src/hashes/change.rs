//! Setting and removing fields: HSET, HMSET, HSETNX, HDEL, HINCRBY, HINCRBYFLOAT.

use resp::longdouble::F80;
use resp::num;
use resp::request::Args;
use store::keyspace::Key;
use store::types::hash::{Hash, HashLimits};

use super::{expire, timed};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;

pub(super) fn hset(call: &mut Call<'_, '_, '_>) -> Outcome {
    let added = set_fields(call, "hset")?;
    call.reply.count(added);
    Ok(())
}

pub(super) fn hmset(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_fields(call, "hmset")?;
    call.reply.ok();
    Ok(())
}

/// Sets the fields in the arguments and returns the number of new ones.
#[inline]
fn set_fields(call: &mut Call<'_, '_, '_>, command: &str) -> Result<usize, Error> {
    if !call.len().is_multiple_of(2) {
        return Err(Error::arity(command));
    }
    let (key, limits) = (call.key(1), &call.rules.hash);
    let added = match (call.db.object_or_new::<Hash>(key), call.args.len()) {
        (Ok(hash), 4) => usize::from(hash.insert(call.args.get(2), call.args.get(3), limits)),
        (Ok(hash), _) => insert_all(hash, call.args, limits),
        (Err(_), _) => timed::set_fields(call)?,
    };
    call.changed_by((call.len() - 2) / 2, key, Class::Hash, "hset");
    Ok(added)
}

/// Sets several fields and returns the number of new ones.
fn insert_all(hash: &mut Hash, args: &Args<'_>, limits: &HashLimits) -> usize {
    let mut texts = args.from(2);
    let longest = texts.clone().map(<[u8]>::len).max().unwrap_or(0);
    hash.prepare(texts.len() / 2, longest, limits);
    let mut added = 0;
    let mut ahead = ItemsAhead::<2>::new(args.len(), 2);
    while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
        ahead.before_next(args, |item| hash.prefetch(item));
        added += usize::from(hash.insert(field, value, limits));
    }
    added
}

pub(super) fn hsetnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, field) = (call.key(1), call.arg(2));
    let Ok(hash) = call.db.object_or_new::<Hash>(key) else { return timed::hsetnx(call) };
    // A hash that was just created doesn't have the field, so it won't stay empty.
    let absent = !hash.contains(field);
    if absent {
        hash.insert(field, call.args.get(3), &call.rules.hash);
        call.changed(key, Class::Hash, "hset");
    }
    call.reply.int(i64::from(absent));
    Ok(())
}

pub(super) fn hdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, fields) = (call.key(1), call.args.from(2));
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    let (removed, is_empty) = match call.db.object_mut::<Hash>(key) {
        Err(_) => return timed::hdel(call),
        Ok(None) => (0, false),
        Ok(Some(hash)) => {
            let remove = |field: &&[u8]| {
                ahead.before_next(call.args, |item| hash.prefetch(item));
                hash.remove(field)
            };
            (fields.filter(remove).count(), hash.is_empty())
        }
    };
    note_removed(call, key, removed, is_empty);
    call.reply.count(removed);
    Ok(())
}

/// Records that `removed` fields were removed, and deletes the key of a hash that became empty.
#[inline]
pub(super) fn note_removed(call: &mut Call<'_, '_, '_>, key: Key<'_>, removed: usize, is_empty: bool) {
    if removed > 0 {
        call.changed_by(removed, key, Class::Hash, "hdel");
        if is_empty {
            call.db.remove(key);
            call.event(key, Class::Generic, "del");
        }
    }
}

/// Sets the field in the arguments to the result of `next` for its old value, and returns the result. `next` must
/// accept a missing field; an error would leave an empty hash behind.
fn update<T: AsRef<[u8]>>(
    call: &mut Call<'_, '_, '_>,
    key: Key<'_>,
    next: impl FnOnce(Option<&[u8]>) -> Result<T, Error>,
) -> Result<T, Error> {
    let field = call.arg(2);
    let Ok(hash) = call.db.object_or_new::<Hash>(key) else { return timed::update(call, key, next) };
    let value = next(hash.get(field).as_deref())?;
    hash.insert(field, value.as_ref(), &call.rules.hash);
    Ok(value)
}

pub(super) fn hincrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, increment) = (call.key(1), call.int(3)?);
    let mut sum = increment;
    let mut digits = num::IntText::new();
    let digits = &mut digits;
    update(call, key, |value| {
        if let Some(value) = value {
            let value = num::parse_i64(value).ok_or(Error::new("ERR hash value is not an integer"))?;
            sum = value.checked_add(increment).ok_or(Error::OVERFLOW)?;
        }
        Ok(digits.i64(sum))
    })?;
    call.changed(key, Class::Hash, "hincrby");
    call.reply.int(sum);
    Ok(())
}

pub(super) fn hincrbyfloat(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, increment) = (call.key(1), F80::parse(call.arg(3)).ok_or(Error::NOT_FLOAT)?);
    if increment.is_nan_or_inf() {
        return Err(Error::new("ERR value is NaN or Infinity"));
    }
    let printed = update(call, key, |value| {
        let value = value.map_or(Some(F80::ZERO), F80::parse).ok_or(Error::new("ERR hash value is not a float"))?;
        let sum = value.add(increment);
        if sum.is_nan_or_inf() {
            return Err(Error::NAN_OR_INFINITY);
        }
        let mut printed = Vec::new();
        sum.format_human(&mut printed);
        Ok(printed)
    })?;
    call.changed(key, Class::Hash, "hincrbyfloat");
    // Record the result, since another machine's arithmetic may round differently. HSET alone would remove the field's expiry.
    if call.is_recorded() && timed::expires(&call.db, key, call.arg(2)) {
        expire::record_with_times(call, key, &[[call.args.get(2), &printed]]);
    } else {
        call.record_as(&[b"HSET", key.bytes, call.arg(2), &printed]);
    }
    call.reply.bulk(&printed);
    Ok(())
}
