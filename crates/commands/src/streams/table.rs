//! The family's entries.

use store::value::Type;

use super::{add, claim, delete, group, idempotence, info, pending, range, read};
use crate::Handler;
use crate::spec::flag::{BLOCKING, DENYOOM, FAST, LOADING, MOVABLEKEYS, READONLY, STALE, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, INSERT, RO, RW, UPDATE};
use crate::spec::{Begin, Find, Group, KeySpec, On, Spec, fact};

/// The keys after the word STREAMS, which is searched from this argument on. They are the first half of the remaining
/// arguments.
const fn streams(from: i32) -> KeySpec {
    let find = Find::Range { last: -1, step: 1, limit: 2 };
    KeySpec { flags: RO | ACCESS, begin: Begin::Keyword("STREAMS", from), find, notes: "" }
}

const UNPREDICTABLE: &[&str] = &["nondeterministic_output"];

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::Stream).entries([
    Spec::new("xadd", -5, WRITE | DENYOOM | FAST, add::xadd as Handler)
        .keys(&[KeySpec::at(1, RW | UPDATE).notes("UPDATE instead of INSERT because of the optional trimming feature")])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(1) for the entry; O(N) for trimming, where N is the number of removed entries",
            "Adds an entry to a stream.",
            "key [NOMKSTREAM@6.2.0] [KEEPREF | DELREF | ACKED]:condition [IDMPAUTO producer-id | IDMP producer-id \
             idempotent-id]:idmp [<MAXLEN | MINID@6.2.0>:strategy [=:equal | ~:approximately]:operator threshold \
             [LIMIT@6.2.0 count:integer]]:trim <*:auto-id | id>:id-selector field value [field value ...]",
        )
        .history(&[
            ("6.2.0", "`NOMKSTREAM`, `MINID` and `LIMIT`."),
            ("7.0.0", "IDs of the form `<ms>-*`."),
            ("8.2.0", "`KEEPREF`, `DELREF` and `ACKED`."),
            ("8.6.0", "`IDMP` and `IDMPAUTO`."),
        ])
        .tips(UNPREDICTABLE),
    Spec::new("xcfgset", -2, WRITE | FAST, idempotence::xcfgset as Handler).keys(&[KeySpec::at(1, RW | UPDATE)]).docs(
        Group::Stream,
        "8.6.0",
        "O(1)",
        "Sets limits for the age and the number of a producer's messages that are remembered to detect duplicates.",
        "key [IDMP-DURATION seconds:integer] [IDMP-MAXSIZE count:integer]",
    ),
    Spec::new("xidmprecord", 5, WRITE | DENYOOM | FAST, idempotence::xidmprecord as Handler)
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Stream,
            "8.6.2",
            "O(log(N)), where N is the number of entries",
            "Adds the identity of a producer's message to an entry. Used in append-only files.",
            "key producer-id idempotent-id stream-id",
        ),
    Spec::new("xlen", 2, READONLY | FAST, range::xlen as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Returns the number of entries.",
        "key",
    ),
    Spec::new("xrange", -4, READONLY, range::xrange as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(log(N)+M), where N is the number of entries and M the number returned",
            "Returns the entries between two IDs.",
            "key start end [COUNT count:integer]",
        )
        .history(&[("6.2.0", "Exclusive bounds.")]),
    Spec::new("xrevrange", -4, READONLY, range::xrevrange as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(log(N)+M), where N is the number of entries and M the number returned",
            "Returns the entries between two IDs, the last first.",
            "key end start [COUNT count:integer]",
        )
        .history(&[("6.2.0", "Exclusive bounds.")]),
    Spec::new("xdel", -3, WRITE | FAST, add::xdel as Handler).brief().keys(&[KeySpec::at(1, RW | DELETE)]).docs(
        Group::Stream,
        "5.0.0",
        "O(log(N)) for each entry, where N is the number of entries",
        "Deletes entries.",
        "key id [id ...]",
    ),
    Spec::new("xdelex", -5, WRITE | FAST, delete::xdelex as Handler).keys(&[KeySpec::at(1, RW | DELETE)]).docs(
        Group::Stream,
        "8.2.0",
        "O(log(N)) for each entry and group, where N is the number of entries",
        "Deletes entries, optionally with their pending deliveries, or only if no group needs them.",
        "key [KEEPREF | DELREF | ACKED]:condition IDS numids:integer id [id ...]",
    ),
    Spec::new("xackdel", -6, WRITE | FAST, delete::xackdel as Handler)
        .keys(&[KeySpec::at(1, RW | UPDATE | DELETE)])
        .docs(
            Group::Stream,
            "8.2.0",
            "O(log(N)) for each ID and group, where N is the number of entries",
            "Acknowledges entries that were delivered to a consumer, and deletes them.",
            "key group [KEEPREF | DELREF | ACKED]:condition IDS numids:integer id [id ...]",
        ),
    Spec::new("xtrim", -4, WRITE, add::xtrim as Handler)
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(N), where N is the number of entries removed",
            "Removes entries from the beginning of a stream.",
            "key <<MAXLEN | MINID@6.2.0>:strategy [=:equal | ~:approximately]:operator threshold [LIMIT@6.2.0 \
             count:integer] [KEEPREF | DELREF | ACKED]:condition>:trim",
        )
        .history(&[("6.2.0", "`MINID` and `LIMIT`."), ("8.2.0", "`KEEPREF`, `DELREF` and `ACKED`.")])
        .tips(UNPREDICTABLE),
    Spec::new("xread", -4, READONLY | BLOCKING | MOVABLEKEYS, read::xread as Handler)
        .waits_for(Type::Stream)
        .facts(fact::WAITS_BY_OPTION)
        .keys(&[streams(1)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(log(N)+M) for each stream, where N is the number of entries and M the number returned",
            "Returns entries of streams after the given IDs, and optionally blocks until there are any.",
            "[COUNT count:integer] [BLOCK milliseconds:integer] STREAMS key [key ...] id [id ...]",
        ),
    Spec::new("xgroup", -2, 0, group::xgroup as Handler)
        .not_in_group_category()
        .docs(Group::Stream, "5.0.0", "Depends on the subcommand", "Manages consumer groups.", "")
        .subcommands(XGROUP),
    Spec::new("xreadgroup", -7, WRITE | BLOCKING | MOVABLEKEYS, read::xreadgroup as Handler)
        .waits_while_there_is(Type::Stream)
        .facts(fact::WAITS_BY_OPTION)
        .keys(&[streams(4)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(M) for each stream, where M is the number of entries returned",
            "Returns entries of streams for a consumer of a group, and optionally blocks until there are any.",
            "<GROUP:group-block group consumer> [COUNT count:integer] [BLOCK milliseconds:integer] [CLAIM \
             min-idle-time:integer] [NOACK] STREAMS key [key ...] id [id ...]",
        )
        .history(&[("8.4.0", "`CLAIM`.")]),
    Spec::new("xack", -4, WRITE | FAST, pending::xack as Handler).brief().keys(&[KeySpec::at(1, RW | UPDATE)]).docs(
        Group::Stream,
        "5.0.0",
        "O(log(N)) for each ID, where N is the number of pending entries",
        "Acknowledges entries that were delivered to a consumer.",
        "key group id [id ...]",
    ),
    Spec::new("xpending", -3, READONLY, pending::xpending as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(log(N)+M), where N is the number of pending entries and M the number of examined entries",
            "Returns deliveries that were not acknowledged.",
            "key group [[IDLE@6.2.0 min-idle-time:integer] start end count:integer [consumer]]:filters",
        )
        .history(&[("6.2.0", "`IDLE` and exclusive bounds.")])
        .tips(UNPREDICTABLE),
    Spec::new("xclaim", -6, WRITE | FAST, claim::xclaim as Handler)
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(log(N)) for each ID, where N is the number of pending entries",
            "Takes over entries that are pending for other consumers.",
            "key group consumer min-idle-time id [id ...] [IDLE ms:integer] [TIME unix-time-milliseconds:unix-time] \
             [RETRYCOUNT count:integer] [FORCE] [JUSTID] [LASTID lastid]",
        )
        .tips(UNPREDICTABLE),
    Spec::new("xautoclaim", -6, WRITE | FAST, claim::xautoclaim as Handler)
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .docs(
            Group::Stream,
            "6.2.0",
            "O(log(N)+M), where N is the number of pending entries and M the number of examined entries",
            "Takes over entries that have been pending for a minimum time, from an ID on.",
            "key group consumer min-idle-time start [COUNT count:integer] [JUSTID]",
        )
        .history(&[("7.0.0", "Also returns the IDs of deleted entries.")])
        .tips(UNPREDICTABLE),
    Spec::new("xinfo", -2, 0, info::xinfo as Handler)
        .not_in_group_category()
        .docs(Group::Stream, "5.0.0", "Depends on the subcommand", "Inspects streams, groups and consumers.", "")
        .subcommands(XINFO),
    Spec::new("xsetid", -3, WRITE | DENYOOM | FAST, add::xsetid as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(1)",
            "Sets the last ID of a stream. Used in replication.",
            "key last-id [ENTRIESADDED@7.0.0 entries-added:integer] [MAXDELETEDID@7.0.0 max-deleted-id]",
        )
        .history(&[("7.0.0", "`ENTRIESADDED` and `MAXDELETEDID`.")]),
]);

const XGROUP: &[Spec<Handler>] = &On(Type::Stream).entries([
    Spec::new("create", -5, WRITE | DENYOOM, group::create as Handler)
        .keys(&[KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(1)",
            "Creates a group of consumers.",
            "key group <id | $:new-id>:id-selector [MKSTREAM] [ENTRIESREAD entries-read:integer]",
        )
        .history(&[("7.0.0", "`ENTRIESREAD`.")]),
    Spec::new("setid", -5, WRITE, group::setid as Handler)
        .keys(&[KeySpec::at(2, RW | UPDATE)])
        .docs(
            Group::Stream,
            "5.0.0",
            "O(1)",
            "Sets the ID after which a group reads.",
            "key group <id | $:new-id>:id-selector [ENTRIESREAD entries-read:integer]",
        )
        .history(&[("7.0.0", "`ENTRIESREAD`.")]),
    Spec::new("destroy", 4, WRITE, group::destroy as Handler).keys(&[KeySpec::at(2, RW | DELETE)]).docs(
        Group::Stream,
        "5.0.0",
        "O(N), where N is the number of entries pending in the group",
        "Removes a group of consumers.",
        "key group",
    ),
    Spec::new("createconsumer", 5, WRITE | DENYOOM, group::createconsumer as Handler)
        .keys(&[KeySpec::at(2, RW | INSERT)])
        .docs(Group::Stream, "6.2.0", "O(1)", "Creates a consumer in a group.", "key group consumer"),
    Spec::new("delconsumer", 5, WRITE, group::delconsumer as Handler).keys(&[KeySpec::at(2, RW | DELETE)]).docs(
        Group::Stream,
        "5.0.0",
        "O(N), where N is the number of entries pending for the consumer",
        "Removes a consumer from a group.",
        "key group consumer",
    ),
    Spec::new("help", 2, LOADING | STALE, group::help as Handler).docs(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
]);

const XINFO: &[Spec<Handler>] = &On(Type::Stream).entries([
    Spec::new("stream", -3, READONLY, info::stream as Handler).keys(&[KeySpec::at(2, RO | ACCESS)]).docs(
        Group::Stream,
        "5.0.0",
        "O(1); with FULL, O(N), where N is the number of returned entries and deliveries",
        "Returns information about a stream.",
        "key [FULL:full-block [COUNT count:integer]]",
    ).history(&[("6.0.0", "`FULL`."), ("7.0.0", "The fields `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag`."), ("7.2.0", "The field `active-time`; `seen-time` counts attempts, too."), ("8.6.0", "The fields about producers' messages.")]),
    Spec::new("groups", 3, READONLY, info::groups as Handler).keys(&[KeySpec::at(2, RO | ACCESS)]).docs(
        Group::Stream,
        "5.0.0",
        "O(1) for each group",
        "Returns information about the groups of a stream.",
        "key",
    ).history(&[("7.0.0", "The fields `entries-read` and `lag`.")]),
    Spec::new("consumers", 4, READONLY, info::consumers as Handler)
        .keys(&[KeySpec::at(2, RO | ACCESS)])
        .docs(Group::Stream, "5.0.0", "O(1) for each consumer", "Returns information about the consumers of a group.", "key group").history(&[("7.2.0", "The field `inactive`; `idle` counts attempts, too.")])
        .tips(UNPREDICTABLE),
    Spec::new("help", 2, LOADING | STALE, info::help as Handler).docs(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
]);
