//! The commands of each family as templates. Options of newer releases, which no available oracle knows, are in the
//! families' own tests; `known_differences` names the commands that only other tests can compare.

/// A family of commands: its name and the table of its templates.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name in reports.
    pub name: &'static str,
    /// One template in each line; see the `template` module.
    pub table: &'static str,
    /// True if the replay test uses it: its commands change keys, and need no connection of their own.
    pub is_replayed: bool,
}

impl Family {
    /// The commands' names in upper case, each with its second word if this is a subcommand.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
        self.table.lines().filter_map(|line| {
            let line = line.trim();
            let line =
                line.split_once(": ").filter(|(weight, _)| weight.parse::<usize>().is_ok()).map_or(line, |l| l.1);
            let mut words = line.split(' ');
            Some((words.next().filter(|name| !name.is_empty())?, words.next()))
        })
    }
}

/// True if one of these families has the command. (Streams also contain some commands of other families.)
#[must_use]
pub fn have(families: &[Family], command: &[Vec<u8>]) -> bool {
    let is = |name: &str| command.first().is_some_and(|given| given.eq_ignore_ascii_case(name.as_bytes()));
    families.iter().flat_map(Family::names).any(|(name, _)| is(name))
}

/// Commands on strings.
pub const STRINGS: Family = Family {
    name: "strings",
    is_replayed: true,
    table: "
    3: APPEND <str> <val>
    DECR <num>
    DECRBY <num> <int>
    4: GET <str>
    2: GET <num>
    GETDEL <str>
    2: GETEX <str> [(EX <far>|PX <farms>|EXAT <farat>|PXAT <farmsat>|PERSIST|EX <past>|PX <past>|EXAT <pastat>)]
    2: GETRANGE <str> <index> <index>
    GETSET <str> <val>
    2: INCR <num>
    2: INCRBY <num> <int>
    INCRBY <num> <smallint>
    2: INCRBYFLOAT <num> <float>
    SET <lcs> <word>
    3: LCS <lcs> <lcs> [(LEN|IDX)] [MINMATCHLEN <count>] [WITHMATCHLEN]
    LCS <lcs> <lcs> IDX [WITHMATCHLEN] [MINMATCHLEN <smallint>]
    2: MGET {<str>} {<num>}
    2: MSET {<str> <val>}
    MSET {<num> <int>}
    MSETNX {<str> <val>}
    PSETEX <str> (<farms>|<past>) <val>
    SETEX <str> (<far>|<past>) <val>
    6: SET <str> <val> [(EX <far>|PX <farms>|EXAT <farat>|PXAT <farmsat>|KEEPTTL)] [(NX|XX)] [GET]
    SET <str> <val> (EX <past>|PX <past>|EXAT <past>|PXAT <past>)
    SET <num> <int>
    2: SET <num> <val> [(NX|XX)] [GET]
    SETNX <str> <val>
    2: SETRANGE <str> <offset> <val>
    STRLEN <str>
    SUBSTR <str> <index> <index>
    DEL <str> <num>
    2: OBJECT ENCODING <str>
    OBJECT ENCODING <num>
    ",
};

/// Commands on keys of any type, and on databases.
pub const KEYS: Family = Family {
    name: "keys",
    is_replayed: true,
    table: "
    4: COPY <key> <key> [DB <db>] [REPLACE]
    2: DEL {<key>}
    DUMP <str>
    DUMP <num>
    DUMP <missing>
    UNLINK {<key>}
    2: EXISTS {<key>}
    2: EXPIRE <key> (<far>|<past>) [(NX|XX|GT|LT)]
    2: PEXPIRE <key> (<farms>|<past>) [(NX|XX|GT|LT)]
    2: EXPIREAT <key> (<farat>|<pastat>) [(NX|XX|GT|LT)]
    2: PEXPIREAT <key> (<farmsat>|<pastat>) [(NX|XX|GT|LT)]
    EXPIRE <key> <far> (NX|XX|GT|LT) (NX|XX|GT|LT)
    EXPIRETIME <key>
    PEXPIRETIME <key>
    2: TTL <key>
    PTTL <key>
    2: PERSIST <key>
    KEYS <pattern>
    2: MOVE <key> <db>
    2: OBJECT ENCODING <key>
    OBJECT REFCOUNT <key>
    OBJECT FREQ <key>
    OBJECT IDLETIME <key>
    OBJECT HELP
    RANDOMKEY
    3: RESTORE <key> (0|<farms>|<past>) <payload> [REPLACE]
    RESTORE <key> (0|<farmsat>|<past>) <payload> [REPLACE] ABSTTL [(IDLETIME 5|FREQ 9|IDLETIME -1|FREQ 256)]
    RESTORE <key> (0|<farms>|x) <payload> REPLACE [IDLETIME 5] [FREQ 9]
    RESTORE-ASKING <key> (0|<farms>|<past>) <payload> [REPLACE]
    3: RENAME <key> <key>
    2: RENAMENX <key> <key>
    TOUCH {<key>}
    3: TYPE <key>
    DBSIZE
    FLUSHDB [(SYNC|ASYNC)]
    FLUSHALL (SYNC|ASYNC|BOGUS)
    3: SELECT <db>
    SWAPDB <db> <db>
    2: SET <str> <val> [EX <far>]
    SADD <set> {<member>}
    ZADD <zset> {<score> <member>}
    HSET <hash> {<field> <val>}
    RPUSH <list> {<elem>}
    SET <num> <int>
    ",
};

/// Commands on hashes.
pub const HASHES: Family = Family {
    name: "hashes",
    is_replayed: true,
    table: "
    2: HDEL <hash> {<field>}
    HEXISTS <hash> <field>
    3: HGET <hash> <field>
    2: HGETALL <hash>
    3: HINCRBY <hash> <field> <int>
    3: HINCRBYFLOAT <hash> <field> <float>
    HKEYS <hash>
    2: HLEN <hash>
    2: HMGET <hash> {<field>}
    HMSET <hash> {<field> <val>}
    2: HRANDFIELD <hash> [<smallint> [WITHVALUES]]
    2: HSCAN <hash> 0 [MATCH <pattern>] [COUNT <count>]
    6: HSET <hash> {<field> <val>}
    HSET <hash> <many:pairs>
    HSETNX <hash> <field> <val>
    HSTRLEN <hash> <field>
    HVALS <hash>
    DEL <hash>
    OBJECT ENCODING <hash>
    ",
};

/// Commands on fields that expire, and on hashes with such fields. Only servers newer than the oracle know them; no
/// field expires during a test, except immediately.
pub const FIELDS: Family = Family {
    name: "fields",
    is_replayed: true,
    table: "
    6: HSET <hash> {<field> <val>}
    HSET <hash> <many:pairs>
    3: HEXPIRE <hash> <far> [(NX|XX|GT|LT)] FIELDS 2 <field> <field>
    2: HPEXPIRE <hash> <farms> [(NX|XX|GT|LT|nx)] fields 1 <field>
    2: HEXPIREAT <hash> <farat> FIELDS 1 <field> [(NX|XX|GT|LT)]
    6: HPEXPIREAT <hash> <farmsat> [(NX|XX|GT|LT)] FIELDS 3 <field> <field> <field>
    2: HPEXPIREAT <hash> 4102444800000 FIELDS 2 <field> <field>
    HEXPIRE <hash> (0|-1|abc|99999999999999) FIELDS 1 <field>
    HPEXPIREAT <hash> (0|1|70368744177663|70368744177664) [(XX|GT|LT)] FIELDS 1 <field>
    HEXPIRE <key> <far> (NX|FIELDS|BOGUS) (NX|XX|FIELDS|1) (1|2|x) <field> [<field>]
    HEXPIRE <hash> <far> FIELDS (0|1|2|3|x|2147483648) <field> [<field>] [(GT|FIELDS|BOGUS)]
    HEXPIRE <hash> <far> [NX] (NX|GT) FIELDS 1 <field>
    2: HTTL <hash> FIELDS 2 <field> <field>
    HPTTL <hash> FIELDS 1 <field>
    3: HEXPIRETIME <hash> FIELDS 3 <field> <field> <field>
    4: HPEXPIRETIME <hash> FIELDS 3 <field> <field> <field>
    HTTL <key> (FIELDS|BOGUS) (0|1|2|x) <field> [<field>]
    3: HPERSIST <hash> FIELDS 2 <field> <field>
    HPERSIST <key> (FIELDS|BOGUS) (0|1|2|x) <field> [<field>]
    3: HGETEX <hash> [(EX <far>|PX <farms>|EXAT <farat>|PXAT <farmsat>|PERSIST)] FIELDS 2 <field> <field>
    HGETEX <hash> (EX 0|PXAT 1|EX -1|EX abc|PX 9223372036854775807) FIELDS 1 <field>
    HGETEX <key> [(EX <far>|PERSIST|KEEPTTL|FXX|BOGUS)] [(EX <far>|PERSIST|FIELDS)] FIELDS (1|2|0|x) <field> [(EX|PERSIST|EX 5)]
    4: HSETEX <hash> [(FNX|FXX)] [(EX <far>|PX <farms>|EXAT <farat>|PXAT <farmsat>|KEEPTTL)] FIELDS 2 <field> <val> <field> <val>
    HSETEX <hash> [(FNX|FXX)] (EX 0|PXAT 1|EX -1|EX abc) FIELDS 1 <field> <val>
    HSETEX <key> [(EX <far>|PERSIST|KEEPTTL|FXX|BOGUS)] [(EX <far>|FNX|FIELDS)] FIELDS (1|2|0|x) <field> <val> [(EX|KEEPTTL|EX 5)]
    2: HGETDEL <hash> FIELDS 2 <field> <field>
    HGETDEL <key> (FIELDS|BOGUS) (0|1|2|x) <field> [<field>]
    2: HDEL <hash> {<field>}
    HEXISTS <hash> <field>
    3: HGET <hash> <field>
    3: HGETALL <hash>
    2: HINCRBY <hash> <field> <int>
    2: HINCRBYFLOAT <hash> <field> <float>
    HKEYS <hash>
    2: HLEN <hash>
    2: HMGET <hash> {<field>}
    HRANDFIELD <hash> [<smallint> [WITHVALUES]]
    2: HSCAN <hash> 0 [COUNT <count>]
    HSETNX <hash> <field> <val>
    HSTRLEN <hash> <field>
    HVALS <hash>
    2: OBJECT ENCODING <hash>
    2: COPY <hash> <hash> REPLACE
    RENAME <hash> <hash>
    DEL <hash>
    SET <str> <val>
    RPUSH <list> {<elem>}
    SORT <list> BY nosort GET h1->*
    ",
};

/// Fields that expire while other commands run, and the effects of this in the journal.
pub const FIELD_EFFECTS: Family = Family {
    name: "field effects",
    is_replayed: true,
    table: "
    4: XADD <stream> IDMP (p|q) (a|b|c|d) * <field> <val>
    2: XADD <stream> NOMKSTREAM IDMPAUTO (p|q) MAXLEN 5 * <field> <smallint>
    XCFGSET <stream> IDMP-MAXSIZE (1|2|3) [IDMP-DURATION (1|100)]
    XIDMPRECORD <stream> (p|q) (a|b|e) <id>
    6: HSET <hash> {<field> <val>}
    HSET <hash> <many:pairs>
    6: HPEXPIRE <hash> (1|3|100|2000|500000) [(NX|XX|GT|LT)] FIELDS 3 <field> <field> <field>
    HEXPIRE <hash> (0|1|100) FIELDS 2 <field> <field>
    3: HSETEX <hash> (PX 3|PX 100|PX 2000|EX 5|EX 0|KEEPTTL) FIELDS 2 <field> <val> <field> <val>
    HSETEX <hash> [(FNX|FXX)] [(KEEPTTL|PX 3|EX 100)] FIELDS 1 <field> <val>
    2: HPERSIST <hash> FIELDS 2 <field> <field>
    2: HGETEX <hash> (PX 3|PX 2000|EX 100|EX 0|PERSIST) FIELDS 2 <field> <field>
    2: HGETDEL <hash> FIELDS 2 <field> <field>
    2: HDEL <hash> {<field>}
    2: HSETNX <hash> <field> <val>
    2: HINCRBY <hash> <field> <smallint>
    2: HINCRBYFLOAT <hash> <field> (0.1|1e5|3.0)
    HGETALL <hash>
    HLEN <hash>
    2: COPY <hash> <hash> [DB (0|1)] REPLACE
    2: RENAME <hash> <hash>
    RENAMENX <hash> <hash>
    MOVE <hash> (0|1)
    SELECT (0|1)
    SWAPDB 0 1
    DEL <hash>
    PEXPIRE <hash> (3|2000)
    SET <str> <val>
    MULTI
    2: EXEC
    EVAL redis.call('HSETEX',KEYS[1],'PX',300,'FIELDS',1,'f',ARGV[1]);return,redis.call('HGETALL',KEYS[1]) 1 <hash> <val>
    ",
};

/// Commands on lists.
pub const LISTS: Family = Family {
    name: "lists",
    is_replayed: true,
    table: "
    2: LINDEX <list> <index>
    2: LINSERT <list> (BEFORE|AFTER|before) <elem> <elem>
    LLEN <list>
    3: LMOVE <list> <list> (LEFT|RIGHT) (LEFT|RIGHT)
    2: LMPOP <keys:list> (LEFT|RIGHT) [COUNT <count>]
    2: LPOP <list> [<count>]
    3: LPOS <list> <elem> [RANK <smallint>] [COUNT <count>] [MAXLEN <count>]
    LPOS <list> <elem> [RANK <index>] [COUNT <smallint>] [MAXLEN <smallint>]
    4: LPUSH <list> {<elem>}
    4: RPUSH <list> {<elem>}
    RPUSH <list> <many:members>
    LPUSH <list> <many:ints>
    LPUSHX <list> {<elem>}
    RPUSHX <list> {<elem>}
    3: LRANGE <list> <index> <index>
    2: LREM <list> <smallint> <elem>
    LREM <list> <index> <elem>
    2: LSET <list> <index> <elem>
    LTRIM <list> <index> <index>
    2: RPOP <list> [<count>]
    RPOPLPUSH <list> <list>
    BLMOVE <list> <list> (LEFT|RIGHT) (LEFT|RIGHT) <blocktime>
    BLMPOP <blocktime> <keys:list> (LEFT|RIGHT) [COUNT <count>]
    BLPOP <list> <list> <blocktime>
    BRPOP <list> <list> <blocktime>
    BRPOPLPUSH <list> <list> <blocktime>
    DEL <list>
    OBJECT ENCODING <list>
    ",
};

/// Commands on sets.
pub const SETS: Family = Family {
    name: "sets",
    is_replayed: true,
    table: "
    6: SADD <set> {<member>}
    SADD <set> <many:ints>
    SADD <set> <many:members>
    2: SCARD <set>
    2: SDIFF <set> [<set>] [<set>]
    2: SDIFFSTORE <set> <set> [<set>] [<set>]
    2: SINTER <set> [<set>] [<set>]
    2: SINTERCARD <keys:set> [LIMIT <smallint>]
    2: SINTERSTORE <set> <set> [<set>] [<set>]
    SISMEMBER <set> <member>
    2: SMEMBERS <set>
    SMISMEMBER <set> {<member>}
    3: SMOVE <set> <set> <member>
    3: SPOP <set> [<count>]
    3: SRANDMEMBER <set> [<smallint>]
    3: SREM <set> {<member>}
    2: SSCAN <set> 0 [MATCH <pattern>] [COUNT <count>]
    2: SUNION <set> [<set>] [<set>]
    2: SUNIONSTORE <set> <set> [<set>] [<set>]
    DEL <set>
    OBJECT ENCODING <set>
    ",
};

/// Commands on sorted sets.
pub const SORTED_SETS: Family = Family {
    name: "sorted sets",
    is_replayed: true,
    table: "
    8: ZADD <zset> [(NX|XX)] [(GT|LT)] [CH] {<score> <member>}
    2: ZADD <zset> [(NX|XX)] [(GT|LT)] [CH] INCR <score> <member>
    2: ZADD <zset> <many:scored>
    2: ZADD <lex> 0 <member> 0 <member> 0 <member>
    ZADD <lex> <many:lex>
    ZCARD <zset>
    2: ZCOUNT <zset> <bound> <bound>
    ZDIFF <keys:zset> [WITHSCORES]
    ZDIFFSTORE <zset> <keys:zset>
    2: ZINCRBY <zset> <score> <member>
    2: ZINTER <keys:zset> [<weights>] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
    ZINTERCARD <keys:zset> [LIMIT <smallint>]
    2: ZINTERSTORE <zset> <keys:zset> [<weights>] [AGGREGATE (SUM|MIN|MAX)]
    2: ZLEXCOUNT <lex> <lexbound> <lexbound>
    2: ZMPOP <keys:zset> (MIN|MAX) [COUNT <count>]
    ZMSCORE <zset> {<member>}
    ZPOPMAX <zset> [<count>]
    ZPOPMIN <zset> [<count>]
    2: ZRANDMEMBER <zset> [<smallint> [WITHSCORES]]
    3: ZRANGE <zset> <index> <index> [REV] [WITHSCORES]
    3: ZRANGE <zset> <bound> <bound> BYSCORE [REV] [LIMIT <count> <smallint>] [WITHSCORES]
    3: ZRANGE <lex> <lexbound> <lexbound> BYLEX [REV] [LIMIT <count> <smallint>]
    ZRANGE <zset> <index> <index> [(BYSCORE|BYLEX)] [REV] [LIMIT <count> <smallint>] [WITHSCORES]
    2: ZRANGEBYLEX <lex> <lexbound> <lexbound> [LIMIT <smallint> <smallint>]
    2: ZRANGEBYSCORE <zset> <bound> <bound> [WITHSCORES] [LIMIT <smallint> <smallint>]
    ZRANGESTORE <zset> <zset> <index> <index> [REV]
    ZRANGESTORE <zset> <zset> <bound> <bound> BYSCORE [REV] [LIMIT <count> <smallint>]
    ZRANGESTORE <lex> <lex> <lexbound> <lexbound> BYLEX [REV] [LIMIT <count> <smallint>]
    2: ZRANK <zset> <member>
    2: ZREVRANK <zset> <member>
    2: ZREM <zset> {<member>}
    ZREMRANGEBYLEX <lex> <lexbound> <lexbound>
    ZREMRANGEBYRANK <zset> <index> <index>
    ZREMRANGEBYSCORE <zset> <bound> <bound>
    2: ZREVRANGE <zset> <index> <index> [WITHSCORES]
    ZREVRANGEBYLEX <lex> <lexbound> <lexbound> [LIMIT <smallint> <smallint>]
    2: ZREVRANGEBYSCORE <zset> <bound> <bound> [WITHSCORES] [LIMIT <smallint> <smallint>]
    2: ZSCAN <zset> 0 [MATCH <pattern>] [COUNT <count>]
    2: ZSCORE <zset> <member>
    2: ZUNION <keys:zset> [<weights>] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]
    2: ZUNIONSTORE <zset> <keys:zset> [<weights>] [AGGREGATE (SUM|MIN|MAX)]
    ZUNIONSTORE <zset> 2 <zset> <set>
    BZMPOP <blocktime> <keys:zset> (MIN|MAX) [COUNT <count>]
    BZPOPMAX <zset> <zset> <blocktime>
    BZPOPMIN <zset> <zset> <blocktime>
    SADD <set> {<member>}
    DEL <zset>
    OBJECT ENCODING <zset>
    ",
};

/// Commands on streams. Only waits that end at once are here; others have tests of their own.
pub const STREAMS: Family = Family {
    name: "streams",
    is_replayed: true,
    table: "
    20: XADD <stream> <newid> {<field> <val>}
    8: XADD <stream> <newid> a <smallint> b <smallint>
    2: XADD <stream> * a <val>
    3: XADD <stream> [NOMKSTREAM] [(MAXLEN|MINID) [(=|~)] (0|1|3|7|10|20) [LIMIT (0|3|10|100)]] <newid> a <val>
    XADD <stream> MINID [(=|~)] <id> <newid> {<field> <val>}
    XADD <stream> [LIMIT (0|3)] [NOMKSTREAM] [MAXLEN (=|~) 5] [LIMIT (0|3)] <newid> a <val>
    2: XLEN <stream>
    4: XRANGE <stream> <idbound> <idbound> [COUNT <count>]
    2: XRANGE <stream> - + [COUNT <smallint>]
    4: XREVRANGE <stream> <idbound> <idbound> [COUNT <count>]
    2: XREVRANGE <stream> + - [COUNT <smallint>]
    4: XDEL <stream> {<id>}
    2: XTRIM <stream> MAXLEN [(=|~)] (0|3|10|12|30) [LIMIT (0|3|10)]
    2: XTRIM <stream> MINID [(=|~)] <id> [LIMIT (0|3|10)]
    XTRIM <stream> [LIMIT (0|3)] [MAXLEN ~ 5] [LIMIT (0|3)]
    4: XREAD [COUNT <count>] [BLOCK 1] STREAMS <stream> <id>
    2: XREAD [COUNT <count>] STREAMS <stream> <stream> <id> (0|$|<id>)
    4: XGROUP CREATE <stream> <group> (0|$|<id>) [MKSTREAM] [ENTRIESREAD <smallint>]
    XGROUP SETID <stream> <group> (0|$|<id>) [ENTRIESREAD <smallint>]
    XGROUP DESTROY <stream> <group>
    XGROUP CREATECONSUMER <stream> <group> <consumer>
    XGROUP DELCONSUMER <stream> <group> <consumer>
    XGROUP (HELP|BOGUS)
    10: XREADGROUP GROUP <group> <consumer> [COUNT <count>] [NOACK] STREAMS <stream> >
    3: XREADGROUP GROUP <group> <consumer> [COUNT <count>] [BLOCK 1] STREAMS <stream> (0|<id>|>)
    XREADGROUP GROUP <group> <consumer> STREAMS <stream> <stream> > (0|>|$)
    4: XACK <stream> <group> {<id>}
    2: XPENDING <stream> <group>
    4: XPENDING <stream> <group> [IDLE <idle>] <idbound> <idbound> <count> [<consumer>]
    2: XPENDING <stream> <group> - + 100
    4: XCLAIM <stream> <group> <consumer> <idle> {<id>} [FORCE] [JUSTID] [RETRYCOUNT <smallint>]
    2: XCLAIM <stream> <group> <consumer> 0 <id> <id> [(IDLE|TIME) <smallint>] [LASTID <id>] [FORCE]
    4: XAUTOCLAIM <stream> <group> <consumer> <idle> <idbound> [COUNT <count>] [JUSTID]
    2: XAUTOCLAIM <stream> <group> <consumer> 0 0 [COUNT (1|2|3)]
    4: XINFO STREAM <stream> [FULL [COUNT (0|1|3|-1)]]
    2: XINFO GROUPS <stream>
    2: XINFO CONSUMERS <stream> <group>
    XINFO (HELP|BOGUS)
    XSETID <stream> 100000-0 [ENTRIESADDED <count>] [MAXDELETEDID <id>]
    COPY <stream> <stream> [REPLACE]
    RENAME <stream> <stream>
    TYPE <stream>
    OBJECT ENCODING <stream>
    COMMAND GETKEYS XREAD COUNT 1 STREAMS <stream> <stream> 0 0
    COMMAND GETKEYS XREADGROUP GROUP <group> <consumer> STREAMS <stream> >
    DEL <stream>
    ",
};

/// Commands on bits.
pub const BITS: Family = Family {
    name: "bits",
    is_replayed: true,
    table: "
    6: SETBIT <bits> <bitoffset> (0|1)
    3: GETBIT <bits> <bitoffset>
    2: BITCOUNT <bits>
    5: BITCOUNT <bits> <bitindex> <bitindex> [(BYTE|BIT|bit|BOGUS)]
    2: BITPOS <bits> (0|1)
    2: BITPOS <bits> (0|1) <bitindex>
    8: BITPOS <bits> (0|1) <bitindex> <bitindex> [(BYTE|BIT|bit|BOGUS)]
    4: BITOP (AND|OR|XOR|and) <bits> {<bits>}
    2: BITOP NOT <bits> <bits>
    BITOP (NOT|NAND) <bits> {<bits>}
    20: BITFIELD <bits> {(GET <fieldtype> <fieldoffset>|[OVERFLOW (WRAP|SAT|FAIL)] (SET|INCRBY) <fieldtype> <fieldoffset> <fieldvalue>)}
    2: BITFIELD <bits> [OVERFLOW (WRAP|SAT|FAIL|BOGUS)] {GET <fieldtype> <fieldoffset>}
    3: BITFIELD_RO <bits> {GET <fieldtype> <fieldoffset>}
    BITFIELD_RO <bits> [OVERFLOW FAIL] (SET|INCRBY) <fieldtype> <fieldoffset> <fieldvalue>
    COMMAND GETKEYSANDFLAGS BITFIELD <bits> [GET u8 0] [OVERFLOW WRAP] [SET u8 0 1]
    3: SET <bits> <val>
    SET <bits> <int>
    2: SETRANGE <bits> <offset> <val>
    APPEND <bits> <val>
    2: GET <bits>
    2: OBJECT ENCODING <bits>
    EXPIRE <bits> <far>
    TTL <bits>
    DEL <bits>
    ",
};

/// Commands on HyperLogLogs. PFSELFTEST takes the oracle seconds.
pub const HYPERLOGLOGS: Family = Family {
    name: "hyperloglogs",
    is_replayed: true,
    table: "
    8: PFADD <hll> {<element>}
    4: PFADD <hll> <many:elements>
    PFADD <hll>
    5: PFCOUNT <hll>
    3: PFCOUNT {<hll>}
    4: PFMERGE <hll> {<hll>}
    PFMERGE <hll>
    PFDEBUG (ENCODING|DECODE|encoding|BOGUS) <hll>
    PFDEBUG (TODENSE|GETREG) <hll>
    4: GET <hll>
    2: SET <hll> <hllbytes>
    STRLEN <hll>
    DUMP <hll>
    COPY <hll> <hll> REPLACE
    2: OBJECT ENCODING <hll>
    2: DEL <hll>
    ",
};

/// Commands on geographical indexes.
pub const GEO: Family = Family {
    name: "geo",
    is_replayed: true,
    table: "
    8: GEOADD <geo> [(NX|XX)] [CH] {<place> <member>}
    2: GEOADD <geo> <many:places>
    3: GEODIST <geo> <member> <member> [(M|KM|FT|MI|km)]
    2: GEOHASH <geo> {<member>}
    2: GEOPOS <geo> {<member>}
    4: GEORADIUS <geo> <place> <reach> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT <count> [ANY]] [(ASC|DESC)]
    GEORADIUS <geo> <place> <reach> [COUNT <count>] [(ASC|DESC)] (STORE|STOREDIST) <geo> [STORE <geo>]
    2: GEORADIUS_RO <geo> <place> <reach> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT <count> [ANY]] [(ASC|DESC)]
    4: GEORADIUSBYMEMBER <geo> <member> <reach> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT <count> [ANY]] [(ASC|DESC)]
    GEORADIUSBYMEMBER <geo> <member> <reach> [COUNT <count>] [(ASC|DESC)] (STORE|STOREDIST) <geo> [STOREDIST <geo>]
    2: GEORADIUSBYMEMBER_RO <geo> <member> <reach> [WITHDIST] [COUNT <count> [ANY]] [(ASC|DESC)]
    4: GEOSEARCH <geo> (FROMMEMBER <member>|FROMLONLAT <place>) BYRADIUS <reach> [(ASC|DESC)] [WITHDIST] [WITHCOORD]
    4: GEOSEARCH <geo> (FROMMEMBER <member>|FROMLONLAT <place>) BYBOX <score> <reach> [(ASC|DESC)] [WITHDIST] [WITHHASH]
    2: GEOSEARCH <geo> FROMLONLAT <place> (BYRADIUS <reach>|BYBOX 500 <reach>) COUNT <count> [ANY] [(ASC|DESC)]
    GEOSEARCH <geo> [FROMMEMBER <member>] [FROMLONLAT <place>] [BYRADIUS <reach>] [BYBOX 1 <reach>] [ANY] [STOREDIST]
    3: GEOSEARCHSTORE <geo> <geo> (FROMMEMBER <member>|FROMLONLAT <place>) BYRADIUS <reach> [COUNT <count>] [STOREDIST]
    2: GEOSEARCHSTORE <geo> <geo> FROMLONLAT <place> BYBOX 900 <reach> [COUNT <count> ANY] [STOREDIST] [WITHDIST]
    2: ZADD <geo> <score> <member>
    ZREM <geo> {<member>}
    ZRANGE <geo> 0 -1 WITHSCORES
    COMMAND GETKEYS GEORADIUS <geo> 1 1 1 km STORE <geo> [STOREDIST <geo>]
    DEL <geo>
    OBJECT ENCODING <geo>
    ",
};

/// Commands on suggestions, and other commands on their keys.
pub const SUGGESTIONS: Family = Family {
    name: "suggestions",
    is_replayed: true,
    table: "
    12: FT.SUGADD <sug> <title> <score> [INCR] [PAYLOAD <val>]
    8: FT.SUGADD <sug> <title> <smallint> [INCR]
    FT.SUGADD <sug> <title> <score> [(BOGUS|PAYLOAD)]
    6: FT.SUGGET <sug> <title> [FUZZY] [WITHSCORES] [WITHPAYLOADS] [MAX <count>] [TRIM]
    3: FT.SUGGET <sug> (t|T|st|s|the|%) [FUZZY] [WITHSCORES] [MAX <smallint>]
    6: FT.SUGDEL <sug> <title>
    FT.SUGLEN <sug>
    COPY <sug> <sug> [REPLACE]
    RENAME <sug> <sug>
    PEXPIRE <sug> (1|3|100000)
    TYPE <sug>
    DUMP <sug>
    OBJECT ENCODING <sug>
    GET <sug>
    SCAN 0 TYPE trietype0
    SET <sug> <val>
    2: DEL <sug>
    ",
};

/// The iterating commands, over collections of every size.
pub const SCANS: Family = Family {
    name: "scans",
    is_replayed: false,
    table: "
    6: SCAN 0 [MATCH <pattern>] [COUNT <count>] [TYPE (string|list|set|zset|hash|stream|bogus|STRING)]
    SCAN <int> [MATCH <pattern>] [COUNT <smallint>]
    3: HSCAN <hash> 0 [MATCH <pattern>] [COUNT <count>]
    3: SSCAN <set> 0 [MATCH <pattern>] [COUNT <count>]
    3: ZSCAN <zset> 0 [MATCH <pattern>] [COUNT <count>]
    SSCAN <key> 0 [COUNT <smallint>]
    2: KEYS <pattern>
    3: SET <str> <val>
    MSET <many:pairs>
    DEL m:10 m:20 m:30 m:40
    HSET <hash> <many:pairs>
    HSET <hash> {<field> <val>}
    SADD <set> <many:members>
    SADD <set> <many:ints>
    SADD <set> {<member>}
    ZADD <zset> <many:scored>
    ZADD <zset> {<score> <member>}
    SELECT (0|1)
    FLUSHDB
    ",
};

/// SORT and the commands that prepare its data.
pub const SORT: Family = Family {
    name: "sort",
    is_replayed: true,
    table: "
    4: SORT <list> [LIMIT <smallint> <smallint>] [(ASC|DESC)] [ALPHA]
    4: SORT <list> [BY <sortpattern>] [LIMIT <count> <count>] {GET <sortpattern>} [(ASC|DESC)]
    2: SORT <set> [BY <sortpattern>] [LIMIT <count> <count>] [GET <sortpattern>] [(ASC|DESC)]
    2: SORT <zset> [BY nosort] [LIMIT <smallint> <smallint>] [GET <sortpattern>] [(ASC|DESC)] [ALPHA]
    3: SORT <list> [BY <sortpattern>] [GET <sortpattern>] [(ASC|DESC)] [ALPHA] STORE <list>
    SORT <set> [ALPHA] STORE <list>
    2: SORT_RO <list> [BY <sortpattern>] [LIMIT <count> <count>] [GET <sortpattern>] [(ASC|DESC)] [ALPHA]
    2: SORT <set> ALPHA [(ASC|DESC)]
    6: RPUSH <list> {<smallint>}
    2: RPUSH <list> {<elem>}
    2: RPUSH <list> {<float>}
    4: SADD <set> {<smallint>}
    SADD <set> {<member>}
    4: ZADD <zset> {<score> <smallint>}
    4: SET <weight> <smallint>
    SET <weight> <val>
    2: HSET (wh_1|wh_2|wh_3|wh_5) f <smallint>
    2: HSET h1 {<smallint> <float>}
    DEL <list> <set>
    LRANGE <list> 0 -1
    ",
};

/// Transactions; the stream itself also wraps commands of every family into MULTI and EXEC.
pub const TRANSACTIONS: Family = Family {
    name: "transactions",
    is_replayed: true,
    table: "
    4: MULTI
    4: EXEC
    DISCARD
    2: WATCH {<key>}
    UNWATCH
    3: SET <str> <val>
    2: GET <str>
    3: INCR <num>
    2: INCR <str>
    2: LPUSH <list> {<elem>}
    SADD <set> {<member>}
    ZADD <zset> {<score> <member>}
    HSET <hash> {<field> <val>}
    HGETALL <hash>
    SMEMBERS <set>
    ZRANGE <zset> 0 -1 WITHSCORES
    SELECT <db>
    NOSUCHCOMMAND <val>
    BLPOP <list> <blocktime>
    DEL <key>
    RENAME <key> <key>
    EXPIRE <key> <pastat>
    HELLO (2|3)
    RESET
    PING
    FLUSHALL
    ",
};

/// Commands about the connection itself.
pub const CONNECTION: Family = Family {
    name: "connection",
    is_replayed: false,
    table: "
    2: PING [<val>]
    2: ECHO <val>
    4: HELLO [(2|3|4|1|abc)] [AUTH default (x|nopass)] [SETNAME <member>]
    2: SELECT <db>
    RESET
    2: AUTH <val> [<val>]
    2: CLIENT GETNAME
    2: CLIENT SETNAME <member>
    CLIENT ID
    CLIENT INFO
    CLIENT LIST [(TYPE (normal|master|replica|pubsub|bogus)|ID <smallint>)]
    CLIENT KILL (ID 123456789|ADDR 127.0.0.1:1|127.0.0.1:1|TYPE bogus|USER missing|SKIPME maybe)
    CLIENT GETREDIR
    CLIENT TRACKING (off|bogus) [(NOLOOP|BCAST|OPTIN|OPTOUT|BOGUS)]
    CLIENT TRACKING on (OPTIN OPTOUT|PREFIX <member>|REDIRECT 123456789|REDIRECT bogus|BOGUS)
    CLIENT CACHING (yes|no|bogus)
    CLIENT TRACKINGINFO
    CLIENT UNBLOCK <smallint> [(TIMEOUT|ERROR|bogus)]
    CLIENT NO-EVICT (on|off|bogus)
    CLIENT REPLY bogus
    CLIENT PAUSE (abc|-1)
    CLIENT UNPAUSE
    CLIENT BOGUS <val>
    CLIENT HELP
    2: PUBLISH <member> <val>
    SPUBLISH <member> <val>
    PUBSUB CHANNELS [<pattern>]
    PUBSUB NUMSUB {<member>}
    PUBSUB NUMPAT
    PUBSUB SHARDCHANNELS
    PUBSUB SHARDNUMSUB {<member>}
    PUBSUB HELP
    COMMAND COUNT <val>
    COMMAND BOGUS
    COMMAND GETKEYS SET <key> <val>
    COMMAND GETKEYS MSET {<key> <val>}
    COMMAND GETKEYS ZUNIONSTORE <zset> <keys:zset>
    COMMAND GETKEYS ZINTER <keys:key>
    COMMAND GETKEYS ECHO <val>
    COMMAND GETKEYS SORT <list> BY <sortpattern> STORE <list>
    COMMAND GETKEYSANDFLAGS (LMOVE|SMOVE|COPY) <key> <key> x y
    TIME
    NOSUCHCOMMAND {<val>}
    GET <str>
    SET <str> <val>
    ",
};

/// Commands for replay tests only: effects that depend on time, chance and other clients.
pub const EFFECTS: Family = Family {
    name: "effects",
    is_replayed: true,
    table: "
    4: SET <str> <val> PX (1|2|5|50)
    2: SET <str> <val> EX (1|100) GET
    2: SET <str> <val> (IFEQ|IFNE) <val> [GET] [EX 100]
    SET <str> <val> (IFDEQ|IFDNE) (9555e8555c62dcfd|2d06800538d394c2|x)
    DELIFEQ <str> <val>
    2: DELEX <str> [(IFEQ|IFNE) <val>]
    DELEX <key> [(IFDEQ|IFDNE) 2d06800538d394c2]
    3: MSETEX 2 <str> <val> <str> <val> [(NX|XX)] [(EX 100|PX 3|KEEPTTL)]
    SETEX <str> (1|100) <val>
    GETEX <str> (PX 3|EX 100|PERSIST)
    4: PEXPIRE <key> (1|3|10|100)
    EXPIRE <key> (1|100)
    3: INCRBYFLOAT <num> (0.1|1e5|3.0)
    2: HINCRBYFLOAT <hash> <field> (0.1|1e5|3.0)
    4: SPOP <set> [(1|2|3|100)]
    4: SADD <set> {<member>}
    4: XADD <stream> [MAXLEN (~|=) (3|10)] * <field> <val>
    3: XADD <stream> MAXLEN ~ 4 LIMIT 10 * {<field> <val>}
    2: XADD <stream> NOMKSTREAM MINID ~ <id> * <field> <val>
    XTRIM <stream> MAXLEN ~ 5
    2: XGROUP CREATE <stream> (g1|g2) (0|$) MKSTREAM
    6: XREADGROUP GROUP (g1|g2) <consumer> COUNT (1|3) STREAMS <stream> >
    2: XREADGROUP GROUP (g1|g2) <consumer> NOACK STREAMS <stream> >
    2: XREADGROUP GROUP (g1|g2) <consumer> STREAMS <stream> 0
    2: XREADGROUP GROUP (g1|g2) <consumer> BLOCK 50 STREAMS <stream> >
    4: XREADGROUP GROUP (g1|g2) <consumer> [COUNT (1|3)] [NOACK] CLAIM (0|20|200) STREAMS <stream> >
    2: XREADGROUP GROUP (g1|g2) <consumer> BLOCK 500 CLAIM (20|200) STREAMS <stream> >
    XREADGROUP GROUP (g1|g2) <consumer> CLAIM 0 STREAMS <stream> <stream> (0|>) >
    2: XREADGROUP GROUP (g1|g2) <consumer> CLAIM 0 STREAMS <stream> 0
    2: XCLAIM <stream> (g1|g2) <consumer> 0 <id> <id> [FORCE] [JUSTID]
    XCLAIM <stream> (g1|g2) <consumer> 0 <id> LASTID <id>
    3: XAUTOCLAIM <stream> (g1|g2) <consumer> 0 0 COUNT 3
    2: XACK <stream> (g1|g2) <id>
    XDEL <stream> <id>
    2: XDELEX <stream> [(KEEPREF|DELREF|ACKED)] IDS 2 <id> <id>
    3: XACKDEL <stream> (g1|g2) [(KEEPREF|DELREF|ACKED)] IDS 1 <id>
    XTRIM <stream> (MAXLEN|MINID) (2|5) (DELREF|ACKED)
    2: XADD <stream> (DELREF|ACKED) MAXLEN [~] 4 * <field> <val>
    LMOVEM <list> <list> (LEFT|RIGHT) (LEFT|RIGHT) [(COUNT|EXACTLY) (1|2|3) (OBO|BULK)]
    2: BLMOVEM <list> <list> (LEFT|RIGHT) (LEFT|RIGHT) (0|0.05) (COUNT|EXACTLY) (1|2|3) (OBO|BULK)
    4: BLPOP <list> <list> (0|0.05)
    2: BRPOP <list> (0|0.05)
    2: BLMOVE <list> <list> (LEFT|RIGHT) (LEFT|RIGHT) (0|0.05)
    BRPOPLPUSH <list> <list> 0
    2: BLMPOP 0 2 <list> <list> (LEFT|RIGHT) COUNT 2
    3: BZPOPMIN <zset> <zset> (0|0.05)
    BZPOPMAX <zset> 0
    2: BZMPOP 0 2 <zset> <zset> (MIN|MAX) COUNT 2
    6: RPUSH <list> {<elem>}
    6: ZADD <zset> {<score> <member>}
    4: GEOADD <geo> {<place> <member>}
    2: GEOSEARCHSTORE <geo> <geo> FROMLONLAT <place> BYRADIUS <reach> [COUNT 2 ANY] [STOREDIST]
    2: GEOSEARCHSTORE <geo> <geo> BYPOLYGON 4 0 0 30 0 30 60 0 60 [STOREDIST]
    GEORADIUS <geo> <place> <reach> (STORE|STOREDIST) <geo>
    2: (ZUNIONSTORE|ZINTERSTORE) <zset> 2 <zset> <zset> [WEIGHTS 2 3] AGGREGATE COUNT
    SORT <list> ALPHA STORE <list>
    SORT <set> BY nosort STORE <list>
    COPY <key> <key> DB (0|1) REPLACE
    RESTORE <key> (0|<farms>|<past>) <payload> REPLACE
    MOVE <key> (0|1)
    SELECT (0|1)
    SWAPDB 0 1
    SCAN 0 COUNT 100
    RANDOMKEY
    2: MULTI
    2: EXEC
    EVAL local,m=redis.call('SPOP',KEYS[1]);if,m,then,redis.call('RPUSH',KEYS[2],m),end;return,m 2 <set> <list>
    EVAL redis.call('SET',KEYS[1],ARGV[1],'PX',3);return,redis.call('LPUSH',KEYS[1],1) 1 <str> <val>
    EVAL return,redis.call('INCR',KEYS[1])+redis.call('INCR',KEYS[2]) 2 <num> <num>
    EVAL redis.call('XADD',KEYS[1],'*','f',redis.call('TIME')[2]) 1 <stream>
    SCRIPT LOAD return,1
    ",
};

/// All families that are compared with the oracle.
pub const ALL: &[Family] = &[
    STRINGS,
    KEYS,
    HASHES,
    LISTS,
    SETS,
    SORTED_SETS,
    STREAMS,
    BITS,
    HYPERLOGLOGS,
    GEO,
    SCANS,
    SORT,
    TRANSACTIONS,
    CONNECTION,
];

/// Families that are compared with servers newer than the oracle, if these are installed.
pub const NEWER: &[Family] = &[FIELDS];

/// Families that other servers have only with a module (RediSearch).
pub const OWN: &[Family] = &[SUGGESTIONS];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::template::Templates;
    use crate::vocabulary::Vocabulary;

    #[test]
    fn every_template_parses_and_fills() {
        for family in ALL.iter().chain(NEWER).chain(OWN).chain(&[EFFECTS, FIELD_EFFECTS]) {
            let templates = Templates::parse(family.table);
            for seed in 0..2000 {
                let command = templates.generate(&mut Rng::new(seed), &mut Vocabulary::default());
                assert!(!command.is_empty(), "{}", family.name);
            }
        }
    }
}
