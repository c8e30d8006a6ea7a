//! The family's entries.

use resp::request::Args;

use super::{
    copy, dbsize, del, exists, expire, flushall, flushdb, move_to, object, payload, rename, renamenx, scan, sort,
    touch, type_of, unlink,
};
use crate::Handler;
use crate::spec::flag::{ASKING, DENYOOM, FAST, LOADING, MOVABLEKEYS, READONLY, STALE, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, INSERT, OW, RM, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, Scope, Spec, acl, fact};

/// Tips for commands that count any number of keys.
const COUNTING: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

/// Visits COPY's arguments that name a database.
fn named_by_copy(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    let is_option = |index: &usize| args.get(*index).eq_ignore_ascii_case(b"db");
    (3..args.len().saturating_sub(1)).filter(is_option).for_each(|index| visit(index + 1));
}

/// Visits MOVE's argument that names a database.
fn named_by_move(_: Args<'_>, visit: &mut dyn FnMut(usize)) {
    visit(2);
}

/// Entries of commands on keys of any type.
pub const COMMANDS: &[Spec<Handler>] = &[
    Spec::new("copy", -3, WRITE | DENYOOM, copy as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS), KeySpec::at(2, OW | UPDATE)])
        .databases(named_by_copy)
        .docs(
            Group::Generic,
            "6.2.0",
            "O(N) in the size of the value",
            "Copies the value of a key to another key.",
            "source destination [DB destination-db:integer] [REPLACE]",
        ),
    Spec::new("dbsize", 1, READONLY | FAST, dbsize as Handler)
        .scope(Scope::Whole)
        .categories(acl::KEYSPACE)
        .docs(Group::Server, "1.0.0", "O(1)", "Counts the keys of the database.", "")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    Spec::new("del", -2, WRITE, del as Handler)
        .facts(fact::BRIEF_IF_LAZY)
        .keys(&[KeySpec::range(1, -1, 1, RM | DELETE)])
        .docs(
            Group::Generic,
            "1.0.0",
            "O(N) in the number of keys and in the sizes of their values",
            "Deletes keys.",
            "key [key ...]",
        )
        .tips(COUNTING),
    Spec::new("dump", 2, READONLY, payload::dump as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Generic,
            "2.6.0",
            "O(N) in the size of the value",
            "Returns the value of a key in a serialized form for RESTORE.",
            "key",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("exists", -2, READONLY | FAST, exists as Handler)
        .brief()
        .keys(&[KeySpec::range(1, -1, 1, RO)])
        .docs(Group::Generic, "1.0.0", "O(N) in the number of keys", "Counts the keys that exist.", "key [key ...]")
        .history(&[("3.0.3", "Several keys.")])
        .tips(COUNTING),
    Spec::new("expire", -3, WRITE | FAST, expire::expire as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Generic,
            "1.0.0",
            "O(1)",
            "Sets the expiry of a key, in seconds from now.",
            "key seconds:integer [NX | XX | GT | LT]:condition@7.0.0",
        )
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")]),
    Spec::new("expireat", -3, WRITE | FAST, expire::expireat as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Generic,
            "1.2.0",
            "O(1)",
            "Sets the expiry of a key, in seconds of Unix time.",
            "key unix-time-seconds:unix-time [NX | XX | GT | LT]:condition@7.0.0",
        )
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")]),
    Spec::new("expiretime", 2, READONLY | FAST, expire::expiretime as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Generic, "7.0.0", "O(1)", "Returns the expiry of a key, in seconds of Unix time.", "key"),
    Spec::new("flushall", -1, WRITE, flushall as Handler)
        .scope(Scope::Whole)
        .facts(fact::ALL_DATABASES)
        .categories(acl::KEYSPACE | acl::DANGEROUS)
        .docs(
            Group::Server,
            "1.0.0",
            "O(N) in the number of keys of all databases",
            "Removes all keys of all databases.",
            "[ASYNC@4.0.0 | SYNC@6.2.0]:flush-type",
        )
        .history(&[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Spec::new("flushdb", -1, WRITE, flushdb as Handler)
        .scope(Scope::Whole)
        .categories(acl::KEYSPACE | acl::DANGEROUS)
        .docs(
            Group::Server,
            "1.0.0",
            "O(N) in the number of keys of the database",
            "Removes all keys of the selected database.",
            "[ASYNC@4.0.0 | SYNC@6.2.0]:flush-type",
        )
        .history(&[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    Spec::new("keys", 2, READONLY, scan::keys as Handler)
        .scope(Scope::Whole)
        .categories(acl::DANGEROUS)
        .docs(
            Group::Generic,
            "1.0.0",
            "O(N) in the number of keys of the database",
            "Returns all keys that match a pattern.",
            "pattern:pattern",
        )
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    Spec::new("move", 3, WRITE | FAST, move_to as Handler)
        .brief()
        .databases(named_by_move)
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .docs(Group::Generic, "1.0.0", "O(1)", "Moves a key to another database.", "key db:integer"),
    Spec::new("object", -2, 0, object::object as Handler)
        .not_in_group_category()
        .docs(Group::Generic, "2.2.3", "Depends on the subcommand", "Inspects the representation and use of a key.", "")
        .subcommands(OBJECT),
    Spec::new("persist", 2, WRITE | FAST, expire::persist as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(Group::Generic, "2.2.0", "O(1)", "Removes the expiry of a key.", "key"),
    Spec::new("pexpire", -3, WRITE | FAST, expire::pexpire as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Generic,
            "2.6.0",
            "O(1)",
            "Sets the expiry of a key, in milliseconds from now.",
            "key milliseconds:integer [NX | XX | GT | LT]:condition@7.0.0",
        )
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")]),
    Spec::new("pexpireat", -3, WRITE | FAST, expire::pexpireat as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Generic,
            "2.6.0",
            "O(1)",
            "Sets the expiry of a key, in milliseconds of Unix time.",
            "key unix-time-milliseconds:unix-time [NX | XX | GT | LT]:condition@7.0.0",
        )
        .history(&[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")]),
    Spec::new("pexpiretime", 2, READONLY | FAST, expire::pexpiretime as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Generic, "7.0.0", "O(1)", "Returns the expiry of a key, in milliseconds of Unix time.", "key"),
    Spec::new("pttl", 2, READONLY | FAST, expire::pttl as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Generic, "2.6.0", "O(1)", "Returns the remaining time to live of a key, in milliseconds.", "key")
        .history(&[("2.8.0", "Returns -2 for a missing key.")])
        .tips(&["nondeterministic_output"]),
    Spec::new("randomkey", 1, READONLY, scan::randomkey as Handler)
        .scope(Scope::Each)
        .docs(Group::Generic, "1.0.0", "O(1)", "Returns a random key of the database.", "")
        .tips(&["request_policy:all_shards", "response_policy:special", "nondeterministic_output"]),
    Spec::new("rename", 3, WRITE, rename as Handler)
        .facts(fact::BRIEF_IF_LAZY)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, OW | UPDATE)])
        .docs(
            Group::Generic,
            "1.0.0",
            "O(1), plus the time to free an overwritten value",
            "Renames a key, replacing an existing key with the new name.",
            "key newkey",
        ),
    Spec::new("renamenx", 3, WRITE | FAST, renamenx as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, OW | INSERT)])
        .docs(Group::Generic, "1.0.0", "O(1)", "Renames a key if the new name is free.", "key newkey")
        .history(&[("3.2.0", "No error if both names are the same.")]),
    Spec::new("restore", -4, WRITE | DENYOOM, payload::restore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE)])
        .categories(acl::DANGEROUS)
        .docs(
            Group::Generic,
            "2.6.0",
            "O(N) in the size of the value, O(N*log(N)) for sorted sets",
            "Creates a key from a value that DUMP serialized.",
            "key ttl:integer serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME@5.0.0 seconds:integer] \
             [FREQ@5.0.0 frequency:integer]",
        )
        .history(&[("3.0.0", "`REPLACE`."), ("5.0.0", "`ABSTTL`, `IDLETIME` and `FREQ`.")]),
    Spec::new("restore-asking", -4, WRITE | DENYOOM | ASKING, payload::restore as Handler)
        .system()
        .keys(&[KeySpec::at(1, OW | UPDATE)])
        .categories(acl::KEYSPACE | acl::DANGEROUS)
        .docs(
            Group::Server,
            "3.0.0",
            "O(N) in the size of the value, O(N*log(N)) for sorted sets",
            "Works like RESTORE, for servers that move keys within a cluster.",
            "key ttl:integer serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME@5.0.0 seconds:integer] \
             [FREQ@5.0.0 frequency:integer]",
        )
        .history(&[("3.0.0", "`REPLACE`."), ("5.0.0", "`ABSTTL`, `IDLETIME` and `FREQ`.")]),
    Spec::new("scan", -2, READONLY, scan::scan as Handler)
        .scope(Scope::Each)
        .docs(
            Group::Generic,
            "2.8.0",
            "O(1) for every call, O(N) in the number of keys for a complete iteration",
            "Iterates over the keys of the database with a cursor.",
            "cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE@6.0.0 type]",
        )
        .history(&[("6.0.0", "`TYPE`.")])
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
    Spec::new("sort", -2, WRITE | DENYOOM | MOVABLEKEYS, sort::sort as Handler)
        .facts(fact::LOOKS_UP)
        .keys(&[
            KeySpec::at(1, RO | ACCESS),
            KeySpec::unknown(RO | ACCESS, no_key).notes(SORT_NOTES),
            KeySpec::unknown(OW | UPDATE, sort::store_key).notes("STORE may be anywhere among the options"),
        ])
        .scope(Scope::ByArgs(sort::scope))
        .not_in_group_category()
        .categories(SORT_CATEGORIES)
        .docs(
            Group::Generic,
            "1.0.0",
            SORT_COMPLEXITY,
            "Sorts the elements of a list, a set or a sorted set, and returns or stores the result.",
            "key [BY pattern:pattern] [LIMIT offset:integer count:integer] [GET pattern:pattern [GET \
             pattern:pattern ...]] [ASC | DESC]:order [ALPHA:sorting] [STORE destination:key]",
        ),
    Spec::new("sort_ro", -2, READONLY | MOVABLEKEYS, sort::sort_ro as Handler)
        .facts(fact::LOOKS_UP)
        .keys(&[KeySpec::at(1, RO | ACCESS), KeySpec::unknown(RO | ACCESS, no_key).notes(SORT_NOTES)])
        .scope(Scope::ByArgs(sort::scope))
        .not_in_group_category()
        .categories(SORT_CATEGORIES)
        .docs(
            Group::Generic,
            "7.0.0",
            SORT_COMPLEXITY,
            "Sorts the elements of a list, a set or a sorted set, and returns the result.",
            "key [BY pattern:pattern] [LIMIT offset:integer count:integer] [GET pattern:pattern [GET \
             pattern:pattern ...]] [ASC | DESC]:order [ALPHA:sorting]",
        ),
    Spec::new("touch", -2, READONLY | FAST, touch as Handler)
        .brief()
        .keys(&[KeySpec::range(1, -1, 1, RO)])
        .docs(
            Group::Generic,
            "3.2.1",
            "O(N) in the number of keys",
            "Counts the keys that exist, and marks them as just used.",
            "key [key ...]",
        )
        .tips(COUNTING),
    Spec::new("ttl", 2, READONLY | FAST, expire::ttl as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(Group::Generic, "1.0.0", "O(1)", "Returns the remaining time to live of a key, in seconds.", "key")
        .history(&[("2.8.0", "Returns -2 for a missing key.")])
        .tips(&["nondeterministic_output"]),
    Spec::new("type", 2, READONLY | FAST, type_of as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::Generic,
        "1.0.0",
        "O(1)",
        "Returns the type of a key's value.",
        "key",
    ),
    Spec::new("unlink", -2, WRITE | FAST, unlink as Handler)
        .brief()
        .keys(&[KeySpec::range(1, -1, 1, RM | DELETE)])
        .docs(
            Group::Generic,
            "4.0.0",
            "O(N) in the number of keys; large values are freed in the background",
            "Deletes keys and frees their values in the background.",
            "key [key ...]",
        )
        .tips(COUNTING),
];

const SORT_CATEGORIES: u32 = acl::SET | acl::SORTEDSET | acl::LIST | acl::DANGEROUS;
const SORT_COMPLEXITY: &str = "O(N+M*log(M)), where N is the number of elements and M the number of returned elements";
const SORT_NOTES: &str = "BY and GET derive names of keys from the elements";

/// The keys of BY and GET depend on data, so none can be known in advance.
fn no_key(_: resp::request::Args<'_>) -> Option<usize> {
    None
}

const OBJECT: &[Spec<Handler>] = &[
    Spec::new("encoding", 3, READONLY, object::encoding as Handler)
        .keys(&[KeySpec::at(2, RO)])
        .docs(Group::Generic, "2.2.3", "O(1)", "Returns the encoding of a key's value.", "key")
        .tips(&["nondeterministic_output"]),
    Spec::new("freq", 3, READONLY, object::freq as Handler)
        .keys(&[KeySpec::at(2, RO)])
        .docs(Group::Generic, "4.0.0", "O(1)", "Returns the frequency of a key's use, on a logarithmic scale.", "key")
        .tips(&["nondeterministic_output"]),
    Spec::new("help", 2, LOADING | STALE, object::help as Handler).docs(
        Group::Generic,
        "6.2.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
    Spec::new("idletime", 3, READONLY, object::idletime as Handler)
        .keys(&[KeySpec::at(2, RO)])
        .docs(Group::Generic, "2.2.3", "O(1)", "Returns the seconds since a key was last used.", "key")
        .tips(&["nondeterministic_output"]),
    Spec::new("refcount", 3, READONLY, object::refcount as Handler)
        .keys(&[KeySpec::at(2, RO)])
        .docs(Group::Generic, "2.2.3", "O(1)", "Returns the reference count of a key's value.", "key")
        .tips(&["nondeterministic_output"]),
];
