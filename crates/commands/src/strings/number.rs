//! Strings that hold numbers: INCR and similar commands.

use resp::longdouble::F80;
use store::db::Ttl;
use store::entry::View;
use store::keyspace::Key;
use store::value::Value;

use super::text;
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

pub(super) fn incr(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, 1)
}

pub(super) fn decr(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, -1)
}

pub(super) fn incrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, call.int(2)?)
}

pub(super) fn decrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    let decrement = call.int(2)?;
    add(call, decrement.checked_neg().ok_or(Error::new("ERR decrement would overflow"))?)
}

#[inline]
fn add(call: &mut Call<'_, '_, '_>, increment: i64) -> Outcome {
    let key = call.key(1);
    let Some(mut entry) = call.db.get_mut(key) else {
        call.db.set_int(key, increment, Ttl::Clear);
        return added(call, key, increment);
    };
    let value = integer(entry.view())?.checked_add(increment).ok_or(Error::OVERFLOW)?;
    entry.set_int(value);
    drop(entry);
    added(call, key, value)
}

#[inline]
fn added(call: &mut Call<'_, '_, '_>, key: Key<'_>, value: i64) -> Outcome {
    call.changed(key, Class::String, "incrby");
    call.reply.int(value);
    Ok(())
}

#[inline]
fn integer(view: View<'_>) -> Result<i64, Error> {
    match view {
        View::Int(int) => Ok(int),
        View::Bytes(bytes) => resp::num::parse_i64(bytes).ok_or(Error::NOT_INTEGER),
        View::Object(Value::Str(_)) => Err(Error::NOT_INTEGER),
        View::Object(_) => Err(Error::WRONG_TYPE),
    }
}

pub(super) fn incrbyfloat(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let current = match call.db.get_mut(key) {
        // Errors about the value come before errors about the increment.
        Some(entry) => F80::parse(&text(entry.view())?).ok_or(Error::NOT_FLOAT)?,
        None => F80::ZERO,
    };
    let increment = F80::parse(call.arg(2)).ok_or(Error::NOT_FLOAT)?;
    let sum = current.add(increment);
    if sum.is_nan_or_inf() {
        return Err(Error::NAN_OR_INFINITY);
    }
    let mut printed = Vec::new();
    sum.format_human(&mut printed);
    if call.db.peek(key).is_none() {
        call.db.set_string(key, b"", Ttl::Clear);
    }
    if let Some(mut entry) = call.db.get_mut(key) {
        // As in Redis, OBJECT ENCODING never shows the result as an integer.
        entry.set_plain(&printed);
    }
    call.changed(key, Class::String, "incrbyfloat");
    // Record the result, since another machine's arithmetic may round differently.
    call.record_set(key, &printed, Ttl::Keep);
    call.reply.bulk(&printed);
    Ok(())
}
