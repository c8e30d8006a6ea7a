//! Hashes: fields with values.
//!
//! Source of the semantics: Redis's command pages of the group "hash", and the answers of a Redis server where they are
//! silent; HSCAN's NOVALUES is that of Redis 7.6.

mod change;
mod read;
#[cfg(test)]
mod tests;

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
            "Removes fields and their values from a hash, and the key when none is left.",
            "key field [field ...]",
        ),
    Spec::new("hexists", 3, READONLY | FAST, read::hexists as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO)])
        .items(2, 1)
        .docs(Group::Hash, "2.0.0", "O(1)", "Says whether a hash has a field.", "key field"),
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
            "Sets the values of fields of a hash: an older name of HSET.",
            "key field value [field value ...]",
        )
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs"),
    Spec::new("hrandfield", -2, READONLY, read::hrandfield as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Hash,
            "6.2.0",
            "O(N) where N is the number of fields returned",
            "Returns fields of a hash that are picked at random.",
            "key [count:integer [WITHVALUES]]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("hscan", -3, READONLY, read::hscan as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Hash,
            "2.8.0",
            "O(1) for every call, O(N) in the size of the hash for a whole iteration",
            "Returns some of the fields of a hash with their values, and a cursor to go on with.",
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
    Spec::new("hvals", 2, READONLY, read::hvals as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Hash, "2.0.0", "O(N) in the size of the hash", "Returns all values of a hash.", "key")
        .tips(&["nondeterministic_output_order"]),
]);
