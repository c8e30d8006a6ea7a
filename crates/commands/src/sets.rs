//! Sets: unordered members, and unions, intersections and differences of sets.
//!
//! Source of the semantics: Redis's command pages of the group "set", and a Redis server's replies for details that the
//! pages omit.

mod change;
mod combine;
mod random;
mod read;
#[cfg(test)]
mod tests;

use resp::reply::Reply;
use store::types::set::Set;
use store::value::Type;

use crate::Handler;
use crate::spec::flag::{DENYOOM, FAST, MOVABLEKEYS, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, INSERT, OW, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, On, Spec};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::Set).entries([
    Spec::new("sadd", -3, WRITE | DENYOOM | FAST, change::sadd as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .items(2, 1)
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members in the arguments",
            "Adds members to a set, which is created if it doesn't exist.",
            "key member [member ...]",
        )
        .history(&[("2.4.0", "Several members.")]),
    Spec::new("scard", 2, READONLY | FAST, read::scard as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::Set,
        "1.0.0",
        "O(1)",
        "Returns the number of members of a set.",
        "key",
    ),
    Spec::new("sdiff", -2, READONLY, combine::sdiff as Handler)
        .keys(&[KeySpec::range(1, -1, 1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Returns the members of the first set that the other sets don't have.",
            "key [key ...]",
        )
        .tips(&["nondeterministic_output_order"]),
    Spec::new("sdiffcard", -3, READONLY | MOVABLEKEYS, combine::sdiffcard as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::Set,
            "8.10.0",
            "O(N*M) where N is the size of the first set and M the number of sets",
            "Counts the members of the first set that the other sets don't have.",
            "numkeys:integer key [key ...] [LIMIT limit:integer]",
        ),
    Spec::new("sdiffstore", -3, WRITE | DENYOOM, combine::sdiffstore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::range(2, -1, 1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Stores the members of the first set that the other sets don't have.",
            "destination key [key ...]",
        ),
    Spec::new("sinter", -2, READONLY, combine::sinter as Handler)
        .keys(&[KeySpec::range(1, -1, 1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N*M) where N is the size of the smallest set and M the number of sets",
            "Returns the members that several sets have in common.",
            "key [key ...]",
        )
        .tips(&["nondeterministic_output_order"]),
    Spec::new("sintercard", -3, READONLY | MOVABLEKEYS, combine::sintercard as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::Set,
            "7.0.0",
            "O(N*M) where N is the size of the smallest set and M the number of sets",
            "Counts the members that several sets have in common.",
            "numkeys:integer key [key ...] [LIMIT limit:integer]",
        ),
    Spec::new("sinterstore", -3, WRITE | DENYOOM, combine::sinterstore as Handler)
        .keys(&[KeySpec::at(1, RW | UPDATE), KeySpec::range(2, -1, 1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N*M) where N is the size of the smallest set and M the number of sets",
            "Stores the members that several sets have in common.",
            "destination key [key ...]",
        ),
    Spec::new("sismember", 3, READONLY | FAST, read::sismember as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO)])
        .items(2, 1)
        .docs(Group::Set, "1.0.0", "O(1)", "Checks if a set has a member.", "key member"),
    Spec::new("smembers", 2, READONLY, read::smembers as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Set, "1.0.0", "O(N) in the size of the set", "Returns all members of a set.", "key")
        .tips(&["nondeterministic_output_order"]),
    Spec::new("smismember", -3, READONLY | FAST, read::smismember as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 1)
        .docs(
            Group::Set,
            "6.2.0",
            "O(N) where N is the number of members in the arguments",
            "Checks for each of several members if a set has it.",
            "key member [member ...]",
        ),
    Spec::new("smove", 4, WRITE | FAST, change::smove as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(Group::Set, "1.0.0", "O(1)", "Moves a member from a set to another.", "source destination member"),
    Spec::new("spop", -2, WRITE | FAST, random::spop as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members returned",
            "Removes and returns random members of a set.",
            "key [count:integer@3.2.0]",
        )
        .history(&[("3.2.0", "`count`.")])
        .tips(&["nondeterministic_output"]),
    Spec::new("srandmember", -2, READONLY, random::srandmember as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members returned",
            "Returns random members of a set.",
            "key [count:integer@2.6.0]",
        )
        .history(&[("2.6.0", "`count`.")])
        .tips(&["nondeterministic_output"]),
    Spec::new("srem", -3, WRITE | FAST, change::srem as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .items(2, 1)
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members in the arguments",
            "Removes members from a set, and deletes the key of an emptied set.",
            "key member [member ...]",
        )
        .history(&[("2.4.0", "Several members.")]),
    Spec::new("sscan", -3, READONLY, read::sscan as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Set,
            "2.8.0",
            "O(1) for every call, O(N) in the size of the set for a whole iteration",
            "Iterates over the members of a set with a cursor.",
            "key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("sunion", -2, READONLY, combine::sunion as Handler)
        .keys(&[KeySpec::range(1, -1, 1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Returns the members that at least one of several sets has.",
            "key [key ...]",
        )
        .tips(&["nondeterministic_output_order"]),
    Spec::new("sunioncard", -3, READONLY | MOVABLEKEYS, combine::sunioncard as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::Set,
            "8.10.0",
            "O(N) where N is the number of members of all sets",
            "Counts the members of the union of sets. The count is exact even with APPROX.",
            "numkeys:integer key [key ...] [APPROX] [LIMIT limit:integer]",
        ),
    Spec::new("sunionstore", -3, WRITE | DENYOOM, combine::sunionstore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::range(2, -1, 1, RO | ACCESS)])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N) where N is the number of members of all sets",
            "Stores the members that at least one of several sets has.",
            "destination key [key ...]",
        ),
]);

/// Replies with all members.
fn reply_set(reply: &mut Reply<'_>, set: &Set) {
    reply.set(set.len());
    set.for_each(|member| reply.bulk(member));
}
