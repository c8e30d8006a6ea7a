//! Strings: GET, SET and their relatives.
//!
//! Source of the semantics: Redis's command pages of the group "string".

use store::db::{Db, Ttl};
use store::entry::View;
use store::keyspace::Key;
use store::value::Value;

use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::spec::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, OW, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, Spec};
use crate::{Call, Handler};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &[
    Spec::new("get", 2, READONLY | FAST, get as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::String, "1.0.0", "O(1)", "Returns the string value of a key.", "key"),
    Spec::new("set", -3, WRITE | DENYOOM, set as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE | crate::spec::key_flag::VARIABLE_FLAGS)])
        .docs(
            Group::String,
            "1.0.0",
            "O(1)",
            "Sets the string value of a key, whatever it held.",
            "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        ),
    Spec::new("incr", 2, WRITE | DENYOOM | FAST, incr as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "1.0.0", "O(1)", "Adds one to the integer value of a key.", "key"),
    Spec::new("mget", -2, READONLY | FAST, mget as Handler)
        .keys(&[KeySpec::range(1, -1, 1, RO | ACCESS)])
        .docs(Group::String, "1.0.0", "O(N)", "Returns the string values of keys.", "key [key ...]")
        .tips(&["request_policy:multi_shard"]),
    Spec::new("mset", -3, WRITE | DENYOOM, mset as Handler)
        .keys(&[KeySpec::range(1, -1, 2, OW | UPDATE)])
        .docs(Group::String, "1.0.1", "O(N)", "Sets the string values of keys.", "key value [key value ...]")
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
];

/// Replies with the string that a key holds.
pub(crate) fn reply_string(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Outcome {
    match call.db.view(key) {
        None => call.reply.null(),
        Some(View::Bytes(bytes)) => call.reply.bulk(bytes),
        Some(View::Int(int)) => call.reply.bulk_int(int),
        Some(View::Object(Value::Str(bytes))) => call.reply.bulk_shared(bytes),
        Some(View::Object(_)) => return Err(Error::WRONG_TYPE),
    }
    Ok(())
}

/// The integer that a key holds, 0 if it doesn't exist.
fn integer(db: &mut Db<'_, '_>, key: Key<'_>) -> Result<i64, Error> {
    match db.get_mut(key).as_deref().map(store::entry::Entry::view) {
        None => Ok(0),
        Some(View::Int(int)) => Ok(int),
        Some(View::Bytes(bytes)) => resp::num::parse_i64(bytes).ok_or(Error::NOT_INTEGER),
        Some(View::Object(Value::Str(_))) => Err(Error::NOT_INTEGER),
        Some(View::Object(_)) => Err(Error::WRONG_TYPE),
    }
}

fn get(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_string(call, call.key(1))
}

fn set(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.len() != 3 {
        return Err(Error::SYNTAX);
    }
    let key = call.key(1);
    call.db.set_string(key, call.arg(2), Ttl::Clear);
    call.changed(key, Class::String, "set");
    call.reply.ok();
    Ok(())
}

fn incr(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, 1)
}

fn add(call: &mut Call<'_, '_, '_>, increment: i64) -> Outcome {
    let key = call.key(1);
    let value = integer(&mut call.db, key)?.checked_add(increment).ok_or(Error::OVERFLOW)?;
    call.db.set_int(key, value, Ttl::Keep);
    call.changed(key, Class::String, "incrby");
    call.reply.int(value);
    Ok(())
}

fn mget(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.array(call.len() - 1);
    for key in call.each_key() {
        // A key of another type is answered like one that doesn't exist.
        if reply_string(call, key).is_err() {
            call.reply.null();
        }
    }
    Ok(())
}

fn mset(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.len().is_multiple_of(2) {
        return Err(Error::arity("mset"));
    }
    for index in (1..call.len()).step_by(2) {
        let key = call.key(index);
        call.db.set_string(key, call.arg(index + 1), Ttl::Clear);
        call.changed(key, Class::String, "set");
    }
    call.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn get_and_set() {
        check(&[
            ("get a", "$-1"),
            ("set a hello", "+OK"),
            ("get a", "$5|hello"),
            ("set a 12", "+OK"),
            ("incr a", ":13"),
            ("get a", "$2|13"),
            ("set a 9223372036854775807", "+OK"),
            ("incr a", "-ERR increment or decrement would overflow"),
            ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("mset a 1 b x", "+OK"),
            ("mget a b c", "*3|$1|1|$1|x|$-1"),
            ("incr b", "-ERR value is not an integer or out of range"),
        ]);
    }
}
