//! Strings: GET, SET and the other commands of the family.
//!
//! Source of the semantics: Redis's command pages of the group "string"; DELIFEQ comes from Valkey.

mod condition;
mod lcs;
mod msetex;
mod number;
mod range;
mod set;
#[cfg(test)]
mod tests;

pub(crate) use set::TimeUnit;

use std::borrow::Cow;

use resp::reply::Reply;
use store::db::Ttl;
use store::entry::View;
use store::keyspace::Key;
use store::value::{Type, Value};

use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::spec::flag::{DENYOOM, FAST, MOVABLEKEYS, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, INSERT, OW, RO, RW, UPDATE, VARIABLE_FLAGS};
use crate::spec::{Begin, Find, Group, KeySpec, On, Spec};
use crate::{Call, Handler};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::String).entries([
    Spec::new("append", 3, WRITE | DENYOOM | FAST, range::append as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .docs(
            Group::String,
            "2.0.0",
            "O(1) amortized for each appended byte",
            "Appends to the string value of a key, which is created if it doesn't exist.",
            "key value",
        ),
    Spec::new("decr", 2, WRITE | DENYOOM | FAST, number::decr as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "1.0.0", "O(1)", "Subtracts one from the integer value of a key.", "key"),
    Spec::new("decrby", 3, WRITE | DENYOOM | FAST, number::decrby as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "1.0.0", "O(1)", "Subtracts from the integer value of a key.", "key decrement:integer"),
    Spec::new("delex", -2, WRITE | FAST, condition::delex as Handler)
        .flags_of_key(condition::flags_of_key)
        .keys(&[KeySpec::at(1, RW | DELETE | VARIABLE_FLAGS).notes("the key is only removed if there is no condition")])
        .docs(
            Group::String,
            "8.4.0",
            "O(1); O(N) with IFDEQ and IFDNE, where N is the length of the value",
            "Deletes a key if its value or its value's digest matches, or doesn't match, the argument.",
            "key [IFEQ comparison-value | IFNE comparison-value | IFDEQ comparison-digest | IFDNE \
             comparison-digest]:condition",
        ),
    Spec::new("delifeq", 3, WRITE | FAST, condition::delifeq as Handler).brief().keys(&[KeySpec::at(1, RM_IF)]).docs(
        Group::String,
        "9.0.0",
        "O(1)",
        "Deletes a key if its value is the given string.",
        "key value",
    ),
    Spec::new("digest", 2, READONLY | FAST, condition::digest as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::String,
        "8.4.0",
        "O(N) in the length of the value",
        "Returns the XXH3 digest of the string value of a key, in hexadecimal.",
        "key",
    ),
    Spec::new("get", 2, READONLY | FAST, get as Handler).brief().keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::String,
        "1.0.0",
        "O(1)",
        "Returns the string value of a key.",
        "key",
    ),
    Spec::new("getdel", 2, WRITE | FAST, getdel as Handler).brief().keys(&[KeySpec::at(1, RW | ACCESS | DELETE)]).docs(
        Group::String,
        "6.2.0",
        "O(1)",
        "Returns the string value of a key and deletes the key.",
        "key",
    ),
    Spec::new("getex", -2, WRITE | FAST, set::getex as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE).notes("RW and UPDATE because of the expiry")])
        .docs(
            Group::String,
            "6.2.0",
            "O(1)",
            "Returns the string value of a key and sets or removes its expiry.",
            "key [EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT \
             unix-time-milliseconds:unix-time | PERSIST]:expiration",
        ),
    Spec::new("getrange", 4, READONLY, range::getrange as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::String,
        "2.4.0",
        "O(N) in the length of the reply",
        "Returns a part of the string value of a key.",
        "key start:integer end:integer",
    ),
    Spec::new("getset", 3, WRITE | DENYOOM | FAST, getset as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "1.0.0", "O(1)", "Sets the string value of a key and returns the old value.", "key value")
        .deprecated("6.2.0", "`SET` with the `GET` argument"),
    Spec::new("incr", 2, WRITE | DENYOOM | FAST, number::incr as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "1.0.0", "O(1)", "Adds one to the integer value of a key.", "key"),
    Spec::new("incrby", 3, WRITE | DENYOOM | FAST, number::incrby as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "1.0.0", "O(1)", "Adds to the integer value of a key.", "key increment:integer"),
    Spec::new("incrbyfloat", 3, WRITE | DENYOOM | FAST, number::incrbyfloat as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::String, "2.6.0", "O(1)", "Adds to the floating point value of a key.", "key increment:double"),
    Spec::new("lcs", -3, READONLY, lcs::lcs as Handler).keys(&[KeySpec::range(1, 1, 1, RO | ACCESS)]).docs(
        Group::String,
        "7.0.0",
        "O(N*M) in the lengths of both values",
        "Finds the longest common subsequence of the string values of two keys.",
        "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len:integer] [WITHMATCHLEN]",
    ),
    Spec::new("mget", -2, READONLY | FAST, mget as Handler)
        .brief()
        .keys(&[KeySpec::range(1, -1, 1, RO | ACCESS)])
        .docs(
            Group::String,
            "1.0.0",
            "O(N) in the number of keys",
            "Returns the string values of keys.",
            "key [key ...]",
        )
        .tips(&["request_policy:multi_shard"]),
    Spec::new("mset", -3, WRITE | DENYOOM, mset as Handler)
        .brief()
        .keys(&[KeySpec::range(1, -1, 2, OW | UPDATE)])
        .docs(
            Group::String,
            "1.0.1",
            "O(N) in the number of keys",
            "Sets the string values of keys.",
            "key value [key value ...]",
        )
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    Spec::new("msetex", -4, WRITE | DENYOOM | MOVABLEKEYS, msetex::msetex as Handler)
        .keys(&[KeySpec {
            flags: OW | UPDATE,
            begin: Begin::Index(1),
            find: Find::Count { count: 0, first: 1, step: 2 },
            notes: "",
        }])
        .docs(
            Group::String,
            "8.4.0",
            "O(N) in the number of keys",
            "Sets the string values of keys and their expiry, optionally only if all or none of them exist.",
            "numkeys:integer key value [key value ...] [NX | XX]:condition [EX seconds:integer | PX \
             milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | \
             KEEPTTL]:expiration",
        )
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    Spec::new("msetnx", -3, WRITE | DENYOOM, msetnx as Handler)
        .brief()
        .keys(&[KeySpec::range(1, -1, 2, OW | INSERT)])
        .docs(
            Group::String,
            "1.0.1",
            "O(N) in the number of keys",
            "Sets the string values of keys if none of them exists.",
            "key value [key value ...]",
        ),
    Spec::new("psetex", 4, WRITE | DENYOOM, set::psetex as Handler)
        .brief()
        .keys(&[KeySpec::at(1, OW | UPDATE)])
        .docs(
            Group::String,
            "2.6.0",
            "O(1)",
            "Sets the string value of a key and its expiry in milliseconds.",
            "key milliseconds:integer value",
        )
        .deprecated("2.6.12", "`SET` with the `PX` argument"),
    Spec::new("set", -3, WRITE | DENYOOM, set::set as Handler)
        .flags_of_key(set::flags_of_key)
        .brief()
        .keys(&[
            KeySpec::at(1, RW | ACCESS | UPDATE | VARIABLE_FLAGS).notes("RW and ACCESS because of the optional `GET`")
        ])
        .docs(
            Group::String,
            "1.0.0",
            "O(1)",
            "Sets a key to a string, replacing a value of any type.",
            "key value [NX | XX | IFEQ@8.4.0 comparison-value | IFNE@8.4.0 comparison-value | IFDEQ@8.4.0 \
             comparison-digest | IFDNE@8.4.0 comparison-digest]:condition@2.6.12 [GET@6.2.0] [EX@2.6.12 \
             seconds:integer | PX@2.6.12 milliseconds:integer | EXAT@6.2.0 unix-time-seconds:unix-time | PXAT@6.2.0 \
             unix-time-milliseconds:unix-time | KEEPTTL@6.0.0]:expiration",
        )
        .history(&[
            ("2.6.12", "`EX`, `PX`, `NX` and `XX`."),
            ("6.0.0", "`KEEPTTL`."),
            ("6.2.0", "`GET`, `EXAT` and `PXAT`."),
            ("7.0.0", "`NX` and `GET` together."),
            ("8.4.0", "`IFEQ`, `IFNE`, `IFDEQ` and `IFDNE`."),
        ]),
    Spec::new("setex", 4, WRITE | DENYOOM, set::setex as Handler)
        .brief()
        .keys(&[KeySpec::at(1, OW | UPDATE)])
        .docs(
            Group::String,
            "2.0.0",
            "O(1)",
            "Sets the string value of a key and its expiry in seconds.",
            "key seconds:integer value",
        )
        .deprecated("2.6.12", "`SET` with the `EX` argument"),
    Spec::new("setnx", 3, WRITE | DENYOOM | FAST, setnx as Handler)
        .brief()
        .keys(&[KeySpec::at(1, OW | INSERT)])
        .docs(Group::String, "1.0.0", "O(1)", "Sets the string value of a key if the key doesn't exist.", "key value")
        .deprecated("2.6.12", "`SET` with the `NX` argument"),
    Spec::new("setrange", 4, WRITE | DENYOOM, range::setrange as Handler).keys(&[KeySpec::at(1, RW | UPDATE)]).docs(
        Group::String,
        "2.2.0",
        "O(N) in the length of the written string and of the zeros before it",
        "Overwrites a part of the string value of a key, which is created if it doesn't exist.",
        "key offset:integer value",
    ),
    Spec::new("strlen", 2, READONLY | FAST, strlen as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::String,
        "2.2.0",
        "O(1)",
        "Returns the length of the string value of a key.",
        "key",
    ),
    Spec::new("substr", 4, READONLY, range::getrange as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::String,
            "1.0.0",
            "O(N) in the length of the reply",
            "Returns a part of the string value of a key. GETRANGE is the newer name.",
            "key start:integer end:integer",
        )
        .deprecated("2.0.0", "`GETRANGE`"),
]);

/// Key flags of a command that reads a value to decide whether to delete it.
const RM_IF: u32 = crate::spec::key_flag::RM | ACCESS | DELETE;

/// Replies with the string at a key.
#[inline]
pub(crate) fn reply_string(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Outcome {
    reply_view(&mut call.reply, call.db.view(key))
}

/// Replies with a string, or null; an error for other types.
#[inline]
fn reply_view(reply: &mut Reply<'_>, view: Option<View<'_>>) -> Outcome {
    match view {
        None => reply.null(),
        Some(View::Bytes(bytes)) => reply.bulk(bytes),
        Some(View::Int(int)) => reply.bulk_int(int),
        Some(View::Object(Value::Str(bytes))) => reply.bulk_shared(bytes.shared()),
        Some(View::Object(_)) => return Err(Error::WRONG_TYPE),
    }
    Ok(())
}

/// Returns a string's bytes; an error for other types.
pub(crate) fn text(view: View<'_>) -> Result<Cow<'_, [u8]>, Error> {
    match view {
        View::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
        View::Int(int) => Ok(Cow::Owned(resp::num::IntText::new().i64(int).to_vec())),
        View::Object(Value::Str(bytes)) => Ok(Cow::Borrowed(bytes)),
        View::Object(_) => Err(Error::WRONG_TYPE),
    }
}

/// Returns the length of a string in bytes; an error for other types.
pub(crate) fn len(view: &View<'_>) -> Result<usize, Error> {
    match view {
        View::Bytes(bytes) => Ok(bytes.len()),
        View::Int(int) => Ok(resp::num::IntText::new().i64(*int).len()),
        View::Object(Value::Str(bytes)) => Ok(bytes.len()),
        View::Object(_) => Err(Error::WRONG_TYPE),
    }
}

fn get(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_string(call, call.key(1))
}

fn getset(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    reply_string(call, key)?;
    call.set_string(key, call.arg(2), Ttl::Clear);
    call.changed(key, Class::String, "set");
    // As in Redis: a replica needs no reply.
    call.record_set(key, call.arg(2), Ttl::Clear);
    Ok(())
}

fn getdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    reply_string(call, key)?;
    call.delete(key);
    Ok(())
}

fn setnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let absent = call.db.peek(key).is_none();
    if absent {
        call.db.set_string(key, call.arg(2), Ttl::Clear);
        call.changed(key, Class::String, "set");
    }
    call.reply.int(i64::from(absent));
    Ok(())
}

fn strlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.db.view(call.key(1)).map_or(Ok(0), |view| len(&view))?;
    call.reply.count(len);
    Ok(())
}

fn mget(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.array(call.len() - 1);
    for window in call.windows() {
        call.enter(window);
        for key in window {
            // A key of another type is reported as missing.
            if reply_string(call, call.key_of(key)).is_err() {
                call.reply.null();
            }
        }
    }
    Ok(())
}

fn set_pairs(call: &mut Call<'_, '_, '_>) {
    for window in call.windows() {
        call.enter(window);
        for key in window {
            let (value, key) = (call.arg(key.arg as usize + 1), call.key_of(key));
            call.set_string(key, value, Ttl::Clear);
            call.changed(key, Class::String, "set");
        }
    }
}

fn mset(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.len().is_multiple_of(2) {
        return Err(Error::arity("mset"));
    }
    set_pairs(call);
    call.reply.ok();
    Ok(())
}

fn msetnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.len().is_multiple_of(2) {
        return Err(Error::arity("msetnx"));
    }
    let free = !call.each_key().any(|key| call.db.exists_for_write(key));
    if free {
        set_pairs(call);
    }
    call.reply.int(i64::from(free));
    Ok(())
}
