//! Fields with an expiry: HEXPIRE and HTTL with their variants, HPERSIST, HGETEX, HSETEX, HGETDEL.
//!
//! The journal records absolute times: HPEXPIREAT, or HDEL for a time in the past. Redis 7.4 knows all recorded
//! commands.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use resp::num::IntText;
use store::db::{Db, Ttl};
use store::entry::View;
use store::keyspace::Key;
use store::table::Ref;
use store::types::hash::{Hash, HashLimits};
use store::types::packed::ItemText;
use store::types::timed_hash::{ExpiryChange, Living};
use store::value::{Type, Value};

use super::change::note_removed;
use super::options::{HashCommand, HashOptions, Requires, TtlCondition, only_fields, time};
use super::timed;
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::strings::TimeUnit;

/// The field or the key is missing.
const NO_FIELD: i64 = -2;
/// The field has no expiry.
const NO_TIME: i64 = -1;
/// The condition is not met.
const NOT_SET: i64 = 0;
const SET: i64 = 1;
/// The field was removed because the given time is in the past.
const REMOVED: i64 = 2;

/// Returns true if the key holds a hash; for commands that write.
///
/// # Errors
/// The key holds another type.
fn is_hash(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Result<bool, Error> {
    match call.db.get_mut(key).map(|entry| entry.kind()) {
        None => Ok(false),
        Some(Type::Hash) => Ok(true),
        Some(_) => Err(Error::WRONG_TYPE),
    }
}

/// Replies with one number, repeated for each field.
fn reply_all(call: &mut Call<'_, '_, '_>, fields: &Range<usize>, figure: i64) {
    call.reply.array(fields.len());
    fields.clone().for_each(|_| call.reply.int(figure));
}

/// Makes the journal reproduce the call by a command on these fields. `before` has the command's name, the key and the
/// arguments before FIELDS.
fn record_on(call: &mut Call<'_, '_, '_>, before: &[&[u8]], fields: &[&[u8]]) {
    if call.is_recorded() {
        let mut count = IntText::new();
        let words = [before, &[b"FIELDS", count.u64(fields.len() as u64)], fields].concat();
        call.record_as(&words);
    }
}

/// Makes the journal reproduce the call by HDEL.
fn record_removed(call: &mut Call<'_, '_, '_>, key: Key<'_>, fields: &[&[u8]]) {
    if call.is_recorded() {
        call.record_as(&[&[b"HDEL", key.bytes], fields].concat());
    }
}

/// Records that fields got an expiry, or were removed because it is in the past. `is_empty` is true if the hash has no
/// other fields.
fn note_expiry(call: &mut Call<'_, '_, '_>, key: Key<'_>, at_ms: u64, fields: &[&[u8]], is_empty: bool) {
    if fields.is_empty() {
        return;
    }
    if at_ms <= call.db.due_ms() {
        note_removed(call, key, fields.len(), is_empty);
        record_removed(call, key, fields);
    } else {
        call.changed_by(fields.len(), key, Class::Hash, "hexpire");
        record_on(call, &[b"HPEXPIREAT", key.bytes, IntText::new().u64(at_ms)], fields);
    }
}

pub(super) fn hexpire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::Seconds, "hexpire")
}

pub(super) fn hpexpire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::Millis, "hpexpire")
}

pub(super) fn hexpireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::UnixSeconds, "hexpireat")
}

pub(super) fn hpexpireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::UnixMillis, "hpexpireat")
}

fn set_expiry(call: &mut Call<'_, '_, '_>, unit: TimeUnit, name: &str) -> Outcome {
    let key = call.key(1);
    let exists = is_hash(call, key)?;
    let at = time(call, unit, 2, name)?;
    let (condition, fields) = TtlCondition::and_fields(call, 3)?;
    if !exists {
        reply_all(call, &fields, NO_FIELD);
        return Ok(());
    }
    let (now, args, reply) = (call.db.due_ms(), call.args, &mut call.reply);
    reply.array(fields.len());
    let mut set = Vec::new();
    let is_empty = call.db.change_timed(key, |hash| {
        for field in fields.map(|at| args.get(at)) {
            let mut figure = NO_FIELD;
            hash.change_expiry(field, now, |_, current| {
                let (change, figure_of_change) = match at > now {
                    _ if !condition.allows(at, current) => (ExpiryChange::Keep, NOT_SET),
                    true => (ExpiryChange::Set(at), SET),
                    // The time is in the past.
                    false => (ExpiryChange::Remove, REMOVED),
                };
                figure = figure_of_change;
                if change != ExpiryChange::Keep {
                    set.push(field);
                }
                change
            });
            reply.int(figure);
        }
        hash.is_empty()
    })?;
    note_expiry(call, key, at, &set, is_empty.unwrap_or(false));
    Ok(())
}

pub(super) fn httl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, |at, now| seconds(at.saturating_sub(now)))
}

pub(super) fn hpttl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, u64::saturating_sub)
}

pub(super) fn hexpiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, |at, _| seconds(at))
}

pub(super) fn hpexpiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, |at, _| at)
}

/// Converts to seconds, rounded up.
fn seconds(millis: u64) -> u64 {
    millis.div_ceil(1000)
}

/// A key's value, for commands that only read a hash of either kind.
enum PeekedHash<'d> {
    Nothing,
    Plain(&'d Hash),
    Timed(Living<'d>),
}

impl<'d> PeekedHash<'d> {
    /// Returns the key's value without counting an access.
    ///
    /// # Errors
    /// The key holds another type.
    fn peek(db: &'d Db<'_, '_>, key: Key<'_>) -> Result<PeekedHash<'d>, Error> {
        match db.peek(key).map(Ref::into_view) {
            None => Ok(PeekedHash::Nothing),
            Some(View::Object(Value::Hash(hash))) => Ok(PeekedHash::Plain(hash)),
            Some(View::Object(Value::TimedHash(hash))) => Ok(PeekedHash::Timed(hash.living(db.due_ms()))),
            Some(_) => Err(Error::WRONG_TYPE),
        }
    }

    fn get(&self, field: &[u8]) -> Option<ItemText<'d>> {
        match self {
            PeekedHash::Nothing => None,
            PeekedHash::Plain(hash) => hash.get(field),
            PeekedHash::Timed(hash) => hash.get(field),
        }
    }

    fn contains(&self, field: &[u8]) -> bool {
        match self {
            PeekedHash::Nothing => false,
            PeekedHash::Plain(hash) => hash.contains(field),
            PeekedHash::Timed(hash) => hash.contains(field),
        }
    }

    /// Returns a field's expiry, if it has one; none for a missing field.
    fn expiry(&self, field: &[u8]) -> Option<Option<u64>> {
        match self {
            PeekedHash::Nothing => None,
            PeekedHash::Plain(hash) => hash.contains(field).then_some(None),
            PeekedHash::Timed(hash) => hash.expiry(field),
        }
    }
}

/// Replies with a number for each field that is computed from its expiry and the current time.
fn reply_expiry(call: &mut Call<'_, '_, '_>, figure: fn(u64, u64) -> u64) -> Outcome {
    let (key, now, fields) = (call.key(1), call.db.now_ms(), only_fields(call, 2));
    call.db.get(key);
    let found = PeekedHash::peek(&call.db, key)?;
    let fields = fields?;
    call.reply.array(fields.len());
    for field in fields.map(|at| call.args.get(at)) {
        call.reply.int(match found.expiry(field) {
            None => NO_FIELD,
            Some(None) => NO_TIME,
            Some(Some(at)) => figure(at, now).cast_signed(),
        });
    }
    Ok(())
}

pub(super) fn hpersist(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, fields, args) = (call.key(1), only_fields(call, 2), call.args);
    is_hash(call, key)?;
    let found = PeekedHash::peek(&call.db, key)?;
    let fields = fields?;
    call.reply.array(fields.len());
    let mut persisted = Vec::new();
    for field in fields.map(|at| args.get(at)) {
        call.reply.int(match found.expiry(field) {
            None => NO_FIELD,
            // A repeated field has no expiry any more.
            Some(Some(_)) if !persisted.contains(&field) => {
                persisted.push(field);
                SET
            }
            Some(_) => NO_TIME,
        });
    }
    persist(call, key, &persisted, 1)
}

/// Removes the expiry of fields; counts `changes` changes.
fn persist(call: &mut Call<'_, '_, '_>, key: Key<'_>, fields: &[&[u8]], changes: usize) -> Outcome {
    if !fields.is_empty() {
        call.db.change_timed(key, |hash| fields.iter().for_each(|field| hash.set_expiry(field, None)))?;
        call.changed_by(changes, key, Class::Hash, "hpersist");
        record_on(call, &[b"HPERSIST", key.bytes], fields);
    }
    Ok(())
}

pub(super) fn hgetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, options, args) = (call.key(1), HashOptions::parse(call, HashCommand::HGetEx), call.args);
    call.db.get(key);
    let found = PeekedHash::peek(&call.db, key)?;
    let HashOptions { ttl, fields, .. } = options?;
    let fields = fields.map(|at| args.get(at));
    let (Some(Ttl::At(at)), false) = (ttl, matches!(found, PeekedHash::Nothing)) else {
        call.reply.array(fields.len());
        fields.clone().for_each(|field| call.reply.bulk_or_null(found.get(field)));
        let expires = |field: &&[u8]| matches!(found.expiry(field), Some(Some(_)));
        let mut persisted: Vec<_> = fields.filter(|field| ttl == Some(Ttl::Clear) && expires(field)).collect();
        // A field may be repeated.
        persisted.sort_unstable();
        persisted.dedup();
        let (changes, is_plain) = (persisted.len(), matches!(found, PeekedHash::Plain(_)));
        if ttl == Some(Ttl::Clear) && is_plain {
            // As in Redis, the command changes OBJECT ENCODING even without an effect.
            call.db.change_timed(key, |_| ())?;
        }
        return persist(call, key, &persisted, changes);
    };
    let (now, reply) = (call.db.due_ms(), &mut call.reply);
    reply.array(fields.len());
    let mut set = Vec::with_capacity(fields.len());
    let is_empty = call.db.change_timed(key, |hash| {
        for field in fields {
            let exists = hash.change_expiry(field, now, |value, _| {
                reply.bulk_or_null(Some(value.text()));
                set.push(field);
                if at > now { ExpiryChange::Set(at) } else { ExpiryChange::Remove }
            });
            if !exists {
                reply.null();
            }
        }
        hash.is_empty()
    })?;
    note_expiry(call, key, at, &set, is_empty.unwrap_or(false));
    Ok(())
}

pub(super) fn hgetdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, fields, args) = (call.key(1), only_fields(call, 2), call.args);
    is_hash(call, key)?;
    let fields = fields?.map(|at| args.get(at));
    // The journal records HDEL for removed fields. Expired fields are removed first.
    let had_due = call.db.expire_fields(key, fields.clone());
    let reply = &mut call.reply;
    reply.array(fields.len());
    let mut removed = Vec::new();
    let mut remove = |field, value: Option<ItemText<'_>>| {
        if value.is_some() {
            removed.push(field);
        }
        reply.bulk_or_null(value);
    };
    let mut is_empty = false;
    match call.db.object_mut::<Hash>(key) {
        Ok(None) => fields.for_each(|field| remove(field, None)),
        Ok(Some(hash)) => {
            for field in fields {
                remove(field, hash.get(field));
                hash.remove(field);
            }
            is_empty = hash.is_empty();
        }
        Err(_) => {
            let emptied = call.db.change_timed(key, |hash| {
                for field in fields {
                    remove(field, hash.living(0).get(field));
                    hash.remove(field);
                }
                hash.is_empty()
            });
            is_empty = emptied?.unwrap_or(false);
        }
    }
    note_removed(call, key, removed.len(), is_empty);
    timed::remove_drained(call, key, had_due && removed.is_empty() && is_empty);
    if !removed.is_empty() {
        record_removed(call, key, &removed);
    }
    Ok(())
}

pub(super) fn hsetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = HashOptions::parse(call, HashCommand::HSetEx)?;
    let key = call.key(1);
    let exists = is_hash(call, key)?;
    let args = call.args;
    let pairs = options.fields.clone().map(|at| args.get(at));
    let holds = {
        let found = PeekedHash::peek(&call.db, key)?;
        let mut fields = pairs.clone().step_by(2);
        options.key_exists.is_none_or(|wanted| wanted == exists)
            && match options.requires {
                Requires::Nothing => true,
                Requires::AllFields => fields.all(|field| found.contains(field)),
                Requires::NoField => !fields.any(|field| found.contains(field)),
            }
    };
    call.reply.int(i64::from(holds));
    if !holds {
        return Ok(());
    }
    match options.ttl {
        Some(Ttl::At(at)) if at <= call.db.due_ms() => remove_instead(call, key, exists, pairs),
        ttl => set_pairs(call, key, &options.fields, ttl.unwrap_or(Ttl::Clear)),
    }
}

/// Removes the fields instead of setting them, since their expiry is in the past.
fn remove_instead<'a>(
    call: &mut Call<'a, '_, '_>,
    key: Key<'_>,
    exists: bool,
    pairs: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
) -> Outcome {
    let fields: Vec<&[u8]> = pairs.step_by(2).collect();
    // As in Redis, an event says that they were set.
    call.event(key, Class::Hash, "hset");
    let is_empty = call.db.change_timed(key, |hash| {
        fields.iter().for_each(|field| _ = hash.remove(field));
        hash.is_empty()
    })?;
    note_removed(call, key, fields.len(), is_empty.unwrap_or(false));
    if !exists {
        call.event(key, Class::Generic, "del");
    }
    record_removed(call, key, &fields);
    Ok(())
}

/// Sets the fields in these arguments to the values that follow them.
fn set_pairs(call: &mut Call<'_, '_, '_>, key: Key<'_>, fields: &Range<usize>, ttl: Ttl) -> Outcome {
    let (args, limits) = (call.args, call.rules.hash);
    let pairs = fields.clone().map(|at| args.get(at));
    match call.db.object_or_new::<Hash>(key) {
        Ok(hash) if !matches!(ttl, Ttl::At(_)) => insert_pairs(hash, pairs, &limits),
        _ => _ = timed::set_pairs(call, pairs, ttl)?,
    }
    let count = fields.len() / 2;
    call.changed_by(count, key, Class::Hash, "hset");
    if matches!(ttl, Ttl::At(_)) {
        call.event(key, Class::Hash, "hexpire");
    }
    record_pairs(call, key, fields, ttl);
    Ok(())
}

/// Sets fields of a hash without expiries.
fn insert_pairs<'a>(hash: &mut Hash, mut pairs: impl ExactSizeIterator<Item = &'a [u8]> + Clone, limits: &HashLimits) {
    let longest = pairs.clone().map(<[u8]>::len).max().unwrap_or(0);
    hash.prepare(pairs.len() / 2, longest, limits);
    while let (Some(field), Some(value)) = (pairs.next(), pairs.next()) {
        hash.insert(field, value, limits);
    }
}

/// Makes the journal reproduce the call by the pairs' values and times. A repeated field is recorded once, because Redis
/// 8.6 crashes on some commands with repeated fields.
fn record_pairs(call: &mut Call<'_, '_, '_>, key: Key<'_>, fields: &Range<usize>, ttl: Ttl) {
    if !call.is_recorded() {
        return;
    }
    let mut pairs: Vec<[&[u8]; 2]> =
        fields.clone().step_by(2).map(|at| [call.args.get(at), call.args.get(at + 1)]).collect();
    if pairs.len() > 1 {
        let mut seen = HashSet::new();
        pairs.reverse();
        pairs.retain(|[field, _]| seen.insert(*field));
        pairs.reverse();
    }
    match ttl {
        Ttl::Clear => call.record_as(&[&[b"HSET", key.bytes], pairs.as_flattened()].concat()),
        Ttl::Keep | Ttl::At(_) => record_with_times(call, key, &pairs),
    }
}

/// Makes the journal reproduce fields of a hash with their values and present times: HSET, which removes the times, then
/// HPEXPIREAT. HSETEX would do both, but Redis 7.4 does not know it.
pub(super) fn record_with_times(call: &mut Call<'_, '_, '_>, key: Key<'_>, pairs: &[[&[u8]; 2]]) {
    if !call.is_recorded() {
        return;
    }
    call.record_as(&[&[b"HSET", key.bytes], pairs.as_flattened()].concat());
    let mut timed: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    if let Ok(hash) = timed::living(&call.db, key) {
        for [field, _] in pairs {
            if let Some(Some(at)) = hash.expiry(field) {
                timed.entry(at).or_default().push(field);
            }
        }
    }
    for (at, fields) in timed {
        record_on(call, &[b"HPEXPIREAT", key.bytes, IntText::new().u64(at)], &fields);
    }
}

#[cfg(test)]
mod tests;
