//! Expiry of keys: EXPIRE, TTL, their variants, and PERSIST.

use super::peeked;
use crate::Call;
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome, shown};
use crate::strings::TimeUnit;

/// Conditions for setting an expiry.
#[derive(Default)]
struct Conditions {
    /// Only if the key has no expiry.
    nx: bool,
    /// Only if the key has an expiry.
    xx: bool,
    /// Only if the new expiry is later; no expiry counts as infinitely late.
    gt: bool,
    /// Only if the new expiry is earlier.
    lt: bool,
}

impl Conditions {
    fn parse(call: &Call<'_, '_, '_>) -> Result<Conditions, Error> {
        let mut all = Conditions::default();
        for word in call.args.from(3) {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            match () {
                () if is("nx") => all.nx = true,
                () if is("xx") => all.xx = true,
                () if is("gt") => all.gt = true,
                () if is("lt") => all.lt = true,
                () => {
                    let word = shown(word, usize::MAX);
                    return Err(Error::quoting([b"ERR Unsupported option ", word].concat()));
                }
            }
        }
        if all.nx && (all.xx || all.gt || all.lt) {
            return Err(Error::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if all.gt && all.lt {
            return Err(Error::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(all)
    }

    fn allow(&self, new_ms: i64, current_ms: Option<i64>) -> bool {
        !(self.nx && current_ms.is_some()
            || self.xx && current_ms.is_none()
            || self.gt && current_ms.is_none_or(|current| new_ms <= current)
            || self.lt && current_ms.is_some_and(|current| new_ms >= current))
    }
}

/// Converts an expiry to Redis's type: signed milliseconds of Unix time.
fn signed(at_ms: u64) -> i64 {
    i64::try_from(at_ms).unwrap_or(i64::MAX)
}

pub(super) fn expire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::Seconds, "expire")
}

pub(super) fn pexpire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::Millis, "pexpire")
}

pub(super) fn expireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::UnixSeconds, "expireat")
}

pub(super) fn pexpireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiry(call, TimeUnit::UnixMillis, "pexpireat")
}

fn set_expiry(call: &mut Call<'_, '_, '_>, unit: TimeUnit, name: &str) -> Outcome {
    let key = call.key(1);
    let conditions = Conditions::parse(call)?;
    // Any time in the past is valid and deletes the key.
    let at = unit.to_unix_ms(call.int(2)?, call.db.now_ms()).ok_or_else(|| Error::invalid_expire(name))?;
    let current = call.db.get_mut(key).map(|entry| entry.expiry().map(signed));
    let sets = current.is_some_and(|current| conditions.allow(at, current));
    if sets {
        expire_at(call, key, at);
    }
    call.reply.int(i64::from(sets));
    Ok(())
}

/// Sets the expiry of an existing key, or deletes the key if the time is in the past.
fn expire_at(call: &mut Call<'_, '_, '_>, key: store::keyspace::Key<'_>, at_ms: i64) {
    match u64::try_from(at_ms) {
        Ok(at) if at > call.db.due_ms() => {
            call.db.set_expiry(key, Some(at));
            call.changed_for(Concerns::Watchers, key, Class::Generic, "expire");
            call.record_expiry(key, at);
        }
        _ => {
            call.db.unlink(key);
            call.changed(key, Class::Generic, "del");
            call.record_as(&[b"DEL", key.bytes]);
        }
    }
}

pub(super) fn persist(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let expires = call.db.get_mut(key).is_some_and(|entry| entry.expiry().is_some());
    if expires {
        call.db.set_expiry(key, None);
        call.changed_for(Concerns::Watchers, key, Class::Generic, "persist");
    }
    call.reply.int(i64::from(expires));
    Ok(())
}

pub(super) fn ttl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, |at, now| rounded_seconds(at.saturating_sub(now)))
}

pub(super) fn pttl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, u64::saturating_sub)
}

pub(super) fn expiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, |at, _| rounded_seconds(at))
}

pub(super) fn pexpiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_expiry(call, |at, _| at)
}

fn rounded_seconds(millis: u64) -> u64 {
    millis.saturating_add(500) / 1000
}

/// Replies with a number computed from the key's expiry and the current time: -2 for a missing key, -1 without an
/// expiry.
fn reply_expiry(call: &mut Call<'_, '_, '_>, figure: fn(u64, u64) -> u64) -> Outcome {
    let key = call.key(1);
    let exists = call.db.exists(key);
    let expiry = peeked(call, key, |entry| entry.expiry()).flatten();
    let now = call.db.now_ms();
    call.reply.int(match expiry {
        Some(at) => signed(figure(at, now)),
        None if exists => -1,
        None => -2,
    });
    Ok(())
}
