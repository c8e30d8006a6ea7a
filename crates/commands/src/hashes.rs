//! Hashes: fields with values.
//!
//! Source of the semantics: Redis's command pages of the group "hash", and a Redis server's replies for details that
//! the pages omit. HSCAN's NOVALUES follows Redis 7.6.
//!
//! Fields with an expiry follow Redis 8.6, which more clients support than Valkey 9. The two differ in error texts, in
//! out-of-range times, in HTTL's rounding, and in the events of expired fields. Two features come from Valkey: HSETEX
//! has NX and XX, and no command sees an expired field. HLEN and HDEL don't count expired fields; in Redis they count
//! until they are removed.

mod change;
mod expire;
mod options;
mod read;
#[cfg(test)]
mod tests;
mod timed;

use store::value::Type;

use crate::Handler;
use crate::spec::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, INSERT, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, On, Spec};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::Hash).entries([
    Spec::new("hdel", -3, WRITE | FAST, change::hdel as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .items(2, 1)
        .docs(
            Group::Hash,
            "2.0.0",
            "O(N) where N is the number of fields",
            "Removes fields and their values from a hash, and deletes the key of an emptied hash.",
            "key field [field ...]",
        )
        .history(&[("2.4.0", "Several fields.")]),
    Spec::new("hexists", 3, READONLY | FAST, read::hexists as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO)])
        .items(2, 1)
        .docs(Group::Hash, "2.0.0", "O(1)", "Checks if a hash has a field.", "key field"),
    Spec::new("hexpire", -6, WRITE | FAST, expire::hexpire as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(5, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Sets the expiry of fields of a hash, in seconds from now.",
            "key seconds:integer [NX | XX | GT | LT]:condition FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hexpireat", -6, WRITE | FAST, expire::hexpireat as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(5, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Sets the expiry of fields of a hash, in seconds of Unix time.",
            "key unix-time-seconds:unix-time [NX | XX | GT | LT]:condition FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hexpiretime", -5, READONLY | FAST, expire::hexpiretime as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(4, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Returns the expiry of fields of a hash, in seconds of Unix time.",
            "key FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hget", 3, READONLY | FAST, read::hget as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 1)
        .docs(Group::Hash, "2.0.0", "O(1)", "Returns the value of a field of a hash.", "key field"),
    Spec::new("hgetall", 2, READONLY, read::hgetall as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Hash,
            "2.0.0",
            "O(N) in the size of the hash",
            "Returns all fields of a hash with their values.",
            "key",
        )
        .tips(&["nondeterministic_output_order"]),
    Spec::new("hgetdel", -5, WRITE | FAST, expire::hgetdel as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE)])
        .items(4, 1)
        .docs(
            Group::Hash,
            "8.0.0",
            "O(N) where N is the number of fields",
            "Returns the values of fields of a hash and removes them. Deletes the key of an emptied hash.",
            "key FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hgetex", -5, WRITE | FAST, expire::hgetex as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .items(6, 1)
        .docs(
            Group::Hash,
            "8.0.0",
            "O(N) where N is the number of fields",
            "Returns the values of fields of a hash, and sets or removes the fields' expiry.",
            "key [EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | PERSIST]:expiration FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hincrby", 4, WRITE | DENYOOM | FAST, change::hincrby as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .items(2, 2)
        .docs(
            Group::Hash,
            "2.0.0",
            "O(1)",
            "Adds to the integer value of a field of a hash, which counts as 0 if it doesn't exist.",
            "key field increment:integer",
        ),
    Spec::new("hincrbyfloat", 4, WRITE | DENYOOM | FAST, change::hincrbyfloat as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .items(2, 2)
        .docs(
            Group::Hash,
            "2.6.0",
            "O(1)",
            "Adds to the floating point value of a field of a hash, which counts as 0 if it doesn't exist.",
            "key field increment:double",
        ),
    Spec::new("hkeys", 2, READONLY, read::hkeys as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Hash, "2.0.0", "O(N) in the size of the hash", "Returns all fields of a hash.", "key")
        .tips(&["nondeterministic_output_order"]),
    Spec::new("hlen", 2, READONLY | FAST, read::hlen as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::Hash,
        "2.0.0",
        "O(1)",
        "Returns the number of fields of a hash.",
        "key",
    ),
    Spec::new("hmget", -3, READONLY | FAST, read::hmget as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 1)
        .docs(
            Group::Hash,
            "2.0.0",
            "O(N) where N is the number of fields",
            "Returns the values of fields of a hash.",
            "key field [field ...]",
        ),
    Spec::new("hmset", -4, WRITE | DENYOOM | FAST, change::hmset as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(2, 2)
        .docs(
            Group::Hash,
            "2.0.0",
            "O(N) where N is the number of fields",
            "Sets the values of fields of a hash. HSET is the newer name.",
            "key field value [field value ...]",
        )
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs"),
    Spec::new("hpersist", -5, WRITE | FAST, expire::hpersist as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(4, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Removes the expiry of fields of a hash.",
            "key FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hpexpire", -6, WRITE | FAST, expire::hpexpire as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(5, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Sets the expiry of fields of a hash, in milliseconds from now.",
            "key milliseconds:integer [NX | XX | GT | LT]:condition FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hpexpireat", -6, WRITE | FAST, expire::hpexpireat as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(5, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Sets the expiry of fields of a hash, in milliseconds of Unix time.",
            "key unix-time-milliseconds:unix-time [NX | XX | GT | LT]:condition FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hpexpiretime", -5, READONLY | FAST, expire::hpexpiretime as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(4, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Returns the expiry of fields of a hash, in milliseconds of Unix time.",
            "key FIELDS numfields:integer field [field ...]",
        ),
    Spec::new("hpttl", -5, READONLY | FAST, expire::hpttl as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(4, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Returns the remaining time to live of fields of a hash, in milliseconds.",
            "key FIELDS numfields:integer field [field ...]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("hrandfield", -2, READONLY, read::hrandfield as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Hash,
            "6.2.0",
            "O(N) where N is the number of fields returned",
            "Returns random fields of a hash.",
            "key [count:integer [WITHVALUES]]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("hscan", -3, READONLY, read::hscan as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Hash,
            "2.8.0",
            "O(1) for every call, O(N) in the size of the hash for a whole iteration",
            "Iterates over the fields and values of a hash with a cursor.",
            "key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOVALUES]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("hset", -4, WRITE | DENYOOM | FAST, change::hset as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(2, 2)
        .docs(
            Group::Hash,
            "2.0.0",
            "O(N) where N is the number of fields",
            "Sets the values of fields of a hash, which is created if it doesn't exist.",
            "key field value [field value ...]",
        )
        .history(&[("4.0.0", "Several fields.")]),
    Spec::new("hsetex", -6, WRITE | DENYOOM | FAST, expire::hsetex as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(6, 2)
        .docs(
            Group::Hash,
            "8.0.0",
            "O(N) where N is the number of fields",
            "Sets the values and the expiry of fields of a hash.",
            "key [NX | XX]:key-condition [FNX | FXX]:condition [EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT unix-time-milliseconds:unix-time | KEEPTTL]:expiration FIELDS numfields:integer field value [field value ...]",
        ),
    Spec::new("hsetnx", 4, WRITE | DENYOOM | FAST, change::hsetnx as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .items(2, 2)
        .docs(
            Group::Hash,
            "2.0.0",
            "O(1)",
            "Sets the value of a field of a hash if the field doesn't exist.",
            "key field value",
        ),
    Spec::new("hstrlen", 3, READONLY | FAST, read::hstrlen as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO)])
        .items(2, 1)
        .docs(Group::Hash, "3.2.0", "O(1)", "Returns the length of the value of a field of a hash.", "key field"),
    Spec::new("httl", -5, READONLY | FAST, expire::httl as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(4, 1)
        .docs(
            Group::Hash,
            "7.4.0",
            "O(N) where N is the number of fields",
            "Returns the remaining time to live of fields of a hash, in seconds.",
            "key FIELDS numfields:integer field [field ...]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("hvals", 2, READONLY, read::hvals as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Hash, "2.0.0", "O(N) in the size of the hash", "Returns all values of a hash.", "key")
        .tips(&["nondeterministic_output_order"]),
]);
