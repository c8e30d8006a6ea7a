//! The advisor's knowledge of commands: the position of the key, and whether a command reads, writes or takes from a
//! queue.
//!
//! A command outside the table counts as one that may write, with its key at the first argument.

use crate::hash;

/// The effect of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing.
    Read,
    /// Changes its key.
    Write,
    /// Takes an element from its key, if there is one.
    Pop,
    /// Belongs to the start of a connection.
    Setup,
    /// Begins a transaction.
    Multi,
    /// Ends a transaction: EXEC or DISCARD.
    Exec,
    /// Sends a script's text.
    ScriptText,
    /// Waits for other clients: its time says nothing about the connection.
    Wait,
    /// Anything else.
    #[default]
    Other,
}

/// A command's entry.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// The name, in capitals.
    pub name: &'static str,
    /// The effect.
    pub class: Class,
    /// Index of the first key among the arguments (0 is the name); 0 if the command has no key.
    pub key: u8,
    /// More properties: [`MEMBER`], [`POLLED`], [`HEAVY`], [`ALL_KEYS`], [`STREAMS`], [`KEYS`], [`RANGE`].
    pub traits: u8,
}

/// Reads one member or field of a collection; the member follows the key.
pub const MEMBER: u8 = 1;
/// Clients often repeat the command to find out whether data has arrived.
pub const POLLED: u8 = 2;
/// Replies with a whole value of any size.
pub const HEAVY: u8 = 4;
/// Goes through all keys.
pub const ALL_KEYS: u8 = 8;
/// Has its keys behind the word STREAMS.
pub const STREAMS: u8 = 16;
/// Reads any number of keys.
pub const KEYS: u8 = 32;
/// Reads a range between two values, and not between two places. A next page begins at the last value of the one before.
pub const RANGE: u8 = 64;

const fn verb(name: &'static str, class: Class, key: u8, traits: u8) -> Verb {
    Verb { name, class, key, traits }
}

use Class::{Exec, Multi, Other, Pop, Read, ScriptText, Setup, Wait, Write};

/// The commands, by type of value.
const VERBS: &[Verb] = &[
    verb("GET", Read, 1, POLLED),
    verb("MGET", Read, 1, KEYS),
    verb("STRLEN", Read, 1, 0),
    verb("GETRANGE", Read, 1, 0),
    verb("SUBSTR", Read, 1, 0),
    verb("GETBIT", Read, 1, 0),
    verb("BITCOUNT", Read, 1, 0),
    verb("BITPOS", Read, 1, 0),
    verb("BITFIELD_RO", Read, 1, 0),
    verb("SET", Write, 1, 0),
    verb("SETNX", Write, 1, 0),
    verb("SETEX", Write, 1, 0),
    verb("PSETEX", Write, 1, 0),
    verb("GETSET", Write, 1, 0),
    verb("GETEX", Write, 1, 0),
    verb("GETDEL", Write, 1, 0),
    verb("MSET", Write, 1, 0),
    verb("MSETNX", Write, 1, 0),
    verb("APPEND", Write, 1, 0),
    verb("INCR", Write, 1, 0),
    verb("DECR", Write, 1, 0),
    verb("INCRBY", Write, 1, 0),
    verb("DECRBY", Write, 1, 0),
    verb("INCRBYFLOAT", Write, 1, 0),
    verb("SETRANGE", Write, 1, 0),
    verb("SETBIT", Write, 1, 0),
    verb("BITFIELD", Write, 1, 0),
    verb("BITOP", Write, 2, 0),
    verb("PFADD", Write, 1, 0),
    verb("PFCOUNT", Read, 1, KEYS),
    verb("PFMERGE", Write, 1, 0),
    verb("EXISTS", Read, 1, POLLED | KEYS),
    verb("TYPE", Read, 1, 0),
    verb("TTL", Read, 1, 0),
    verb("PTTL", Read, 1, 0),
    verb("EXPIRETIME", Read, 1, 0),
    verb("PEXPIRETIME", Read, 1, 0),
    verb("OBJECT", Read, 2, 0),
    verb("DUMP", Read, 1, 0),
    verb("KEYS", Read, 0, ALL_KEYS),
    verb("SCAN", Read, 0, 0),
    verb("DBSIZE", Read, 0, 0),
    verb("RANDOMKEY", Read, 0, 0),
    verb("DEL", Write, 1, 0),
    verb("UNLINK", Write, 1, 0),
    verb("TOUCH", Read, 1, 0),
    verb("EXPIRE", Write, 1, 0),
    verb("PEXPIRE", Write, 1, 0),
    verb("EXPIREAT", Write, 1, 0),
    verb("PEXPIREAT", Write, 1, 0),
    verb("PERSIST", Write, 1, 0),
    verb("RENAME", Write, 1, 0),
    verb("RENAMENX", Write, 1, 0),
    verb("COPY", Write, 1, 0),
    verb("MOVE", Write, 1, 0),
    verb("RESTORE", Write, 1, 0),
    verb("SORT", Other, 1, 0),
    verb("SORT_RO", Read, 1, 0),
    verb("HGET", Read, 1, MEMBER | POLLED),
    verb("HMGET", Read, 1, MEMBER),
    verb("HEXISTS", Read, 1, MEMBER),
    verb("HSTRLEN", Read, 1, MEMBER),
    verb("HLEN", Read, 1, POLLED),
    verb("HGETALL", Read, 1, HEAVY),
    verb("HKEYS", Read, 1, HEAVY),
    verb("HVALS", Read, 1, HEAVY),
    verb("HSCAN", Read, 1, 0),
    verb("HRANDFIELD", Read, 1, 0),
    verb("HSET", Write, 1, 0),
    verb("HMSET", Write, 1, 0),
    verb("HSETNX", Write, 1, 0),
    verb("HDEL", Write, 1, 0),
    verb("HINCRBY", Write, 1, 0),
    verb("HINCRBYFLOAT", Write, 1, 0),
    verb("LLEN", Read, 1, POLLED),
    verb("LINDEX", Read, 1, POLLED),
    verb("LRANGE", Read, 1, POLLED | HEAVY),
    verb("LPOS", Read, 1, 0),
    verb("LPUSH", Write, 1, 0),
    verb("RPUSH", Write, 1, 0),
    verb("LPUSHX", Write, 1, 0),
    verb("RPUSHX", Write, 1, 0),
    verb("LPOP", Pop, 1, POLLED),
    verb("RPOP", Pop, 1, POLLED),
    verb("LMPOP", Pop, 2, POLLED),
    verb("RPOPLPUSH", Pop, 1, POLLED),
    verb("LMOVE", Pop, 1, POLLED),
    verb("LREM", Write, 1, 0),
    verb("LSET", Write, 1, 0),
    verb("LTRIM", Write, 1, 0),
    verb("LINSERT", Write, 1, 0),
    verb("SISMEMBER", Read, 1, MEMBER),
    verb("SMISMEMBER", Read, 1, MEMBER),
    verb("SMEMBERS", Read, 1, HEAVY),
    verb("SCARD", Read, 1, POLLED),
    verb("SSCAN", Read, 1, 0),
    verb("SRANDMEMBER", Read, 1, 0),
    verb("SINTER", Read, 1, HEAVY | KEYS),
    verb("SUNION", Read, 1, HEAVY | KEYS),
    verb("SDIFF", Read, 1, HEAVY | KEYS),
    verb("SINTERCARD", Read, 2, 0),
    verb("SADD", Write, 1, 0),
    verb("SREM", Write, 1, 0),
    verb("SMOVE", Write, 1, 0),
    verb("SPOP", Pop, 1, POLLED),
    verb("SINTERSTORE", Write, 1, 0),
    verb("SUNIONSTORE", Write, 1, 0),
    verb("SDIFFSTORE", Write, 1, 0),
    verb("ZSCORE", Read, 1, MEMBER),
    verb("ZMSCORE", Read, 1, MEMBER),
    verb("ZRANK", Read, 1, MEMBER),
    verb("ZREVRANK", Read, 1, MEMBER),
    verb("ZCARD", Read, 1, POLLED),
    verb("ZCOUNT", Read, 1, POLLED),
    verb("ZLEXCOUNT", Read, 1, 0),
    verb("ZRANGE", Read, 1, POLLED | HEAVY),
    verb("ZREVRANGE", Read, 1, POLLED | HEAVY),
    verb("ZRANGEBYSCORE", Read, 1, POLLED | RANGE),
    verb("ZREVRANGEBYSCORE", Read, 1, POLLED | RANGE),
    verb("ZRANGEBYLEX", Read, 1, RANGE),
    verb("ZSCAN", Read, 1, 0),
    verb("ZADD", Write, 1, 0),
    verb("ZREM", Write, 1, 0),
    verb("ZINCRBY", Write, 1, 0),
    verb("ZPOPMIN", Pop, 1, POLLED),
    verb("ZPOPMAX", Pop, 1, POLLED),
    verb("ZMPOP", Pop, 2, POLLED),
    verb("ZREMRANGEBYSCORE", Write, 1, 0),
    verb("ZREMRANGEBYRANK", Write, 1, 0),
    verb("ZUNIONSTORE", Write, 1, 0),
    verb("ZINTERSTORE", Write, 1, 0),
    verb("GEOADD", Write, 1, 0),
    verb("GEOPOS", Read, 1, MEMBER),
    verb("GEODIST", Read, 1, 0),
    verb("GEOSEARCH", Read, 1, 0),
    verb("XADD", Write, 1, 0),
    verb("XLEN", Read, 1, POLLED),
    verb("XRANGE", Read, 1, POLLED | RANGE),
    verb("XREVRANGE", Read, 1, POLLED | RANGE),
    verb("XACK", Write, 1, 0),
    verb("XDEL", Write, 1, 0),
    verb("XTRIM", Write, 1, 0),
    verb("XPENDING", Read, 1, 0),
    verb("XINFO", Read, 2, 0),
    verb("XREAD", Wait, 0, STREAMS),
    verb("XREADGROUP", Wait, 0, STREAMS),
    verb("BLPOP", Wait, 1, 0),
    verb("BRPOP", Wait, 1, 0),
    verb("BLMOVE", Wait, 1, 0),
    verb("BRPOPLPUSH", Wait, 1, 0),
    verb("BLMPOP", Wait, 0, 0),
    verb("BZPOPMIN", Wait, 1, 0),
    verb("BZPOPMAX", Wait, 1, 0),
    verb("BZMPOP", Wait, 0, 0),
    verb("WAIT", Wait, 0, 0),
    verb("WAITAOF", Wait, 0, 0),
    verb("SUBSCRIBE", Wait, 0, 0),
    verb("PSUBSCRIBE", Wait, 0, 0),
    verb("SSUBSCRIBE", Wait, 0, 0),
    verb("UNSUBSCRIBE", Wait, 0, 0),
    verb("PUNSUBSCRIBE", Wait, 0, 0),
    verb("SUNSUBSCRIBE", Wait, 0, 0),
    verb("MONITOR", Wait, 0, 0),
    verb("PUBLISH", Write, 1, 0),
    verb("SPUBLISH", Write, 1, 0),
    verb("MULTI", Multi, 0, 0),
    verb("EXEC", Exec, 0, 0),
    verb("DISCARD", Exec, 0, 0),
    verb("WATCH", Read, 1, 0),
    verb("UNWATCH", Read, 0, 0),
    verb("EVAL", ScriptText, 3, 0),
    verb("EVAL_RO", ScriptText, 3, 0),
    verb("EVALSHA", Other, 3, 0),
    verb("EVALSHA_RO", Other, 3, 0),
    verb("FCALL", Other, 3, 0),
    verb("FCALL_RO", Other, 3, 0),
    verb("SCRIPT", Other, 0, 0),
    verb("FUNCTION", Other, 0, 0),
    verb("PING", Read, 0, 0),
    verb("ECHO", Read, 0, 0),
    verb("TIME", Read, 0, 0),
    verb("AUTH", Setup, 0, 0),
    verb("HELLO", Setup, 0, 0),
    verb("CLIENT", Setup, 0, 0),
    verb("SELECT", Setup, 0, 0),
    verb("READONLY", Setup, 0, 0),
    verb("COMMAND", Setup, 0, 0),
    verb("INFO", Setup, 0, 0),
    verb("CLUSTER", Setup, 0, 0),
    verb("QUIT", Setup, 0, 0),
    verb("RESET", Setup, 0, 0),
    verb("CONFIG", Other, 0, 0),
    verb("FLUSHALL", Other, 0, 0),
    verb("FLUSHDB", Other, 0, 0),
];

/// The name of SET with options in shapes and steps.
pub const SET_WITH_OPTIONS: &str = "SET WITH OPTIONS";

/// Longest known name.
const NAME_BYTES_MAX: usize = 16;
/// Slots of the index: a power of two, at least twice the number of commands.
const SLOTS: usize = 512;
const _: () = assert!(VERBS.len() * 2 < SLOTS);

/// Clears the bit that distinguishes capitals from small letters.
const FOLD: u128 = 0xdfdf_dfdf_dfdf_dfdf_dfdf_dfdf_dfdf_dfdf;

/// A name of up to 16 bytes as a word, letters folded; 0 for a longer one.
#[inline]
fn folded(name: &[u8]) -> u128 {
    let mut word = [0; NAME_BYTES_MAX];
    match word.get_mut(..name.len()) {
        Some(start) => start.copy_from_slice(name),
        None => return 0,
    }
    u128::from_le_bytes(word) & FOLD
}

/// Finds a command's entry by its name.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Folded names; 0 for a free slot.
    names: Box<[u128; SLOTS]>,
    /// Indexes into [`VERBS`].
    verbs: Box<[u16; SLOTS]>,
}

/// A command's identity: the index in the table, or the hash of the name for an unknown command.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The entry. An unknown command has [`UNKNOWN`].
    pub verb: &'static Verb,
    /// Equal for the same name in any case.
    pub hash: u64,
}

/// The entry of commands outside the table.
pub static UNKNOWN: Verb = verb("", Other, 1, 0);

/// XREADGROUP and XREAD with a COUNT of 1, which take one entry after the other.
pub static TAKES_ONE: Verb = verb("XREADGROUP", Pop, 0, STREAMS);
/// XREADGROUP and XREAD that do not wait for new entries, and those of them with a COUNT of 1.
pub static ASKS_FOR_NEW: Verb = verb("XREADGROUP", Pop, 0, STREAMS | POLLED);

/// The slot at which the search for a name begins.
#[inline]
fn hash_of(name: u128) -> u64 {
    hash::mix(name as u64, (name >> 64) as u64)
}

impl Catalogue {
    /// Returns the index of all entries.
    pub fn new() -> Catalogue {
        let mut catalogue = Catalogue { names: Box::new([0; SLOTS]), verbs: Box::new([0; SLOTS]) };
        for (index, entry) in VERBS.iter().enumerate() {
            let name = folded(entry.name.as_bytes());
            let mut slot = hash_of(name) as usize % SLOTS;
            while catalogue.names[slot] != 0 {
                slot = (slot + 1) % SLOTS;
            }
            catalogue.names[slot] = name;
            catalogue.verbs[slot] = index as u16;
        }
        catalogue
    }

    /// Returns the entry of a command.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Found {
        let word = folded(name);
        let hash = hash_of(word);
        if word == 0 {
            return Found { verb: &UNKNOWN, hash: hash::argument(hash, name) };
        }
        let mut slot = hash as usize % SLOTS;
        while self.names[slot] != 0 {
            if self.names[slot] == word {
                let verb = VERBS.get(usize::from(self.verbs[slot])).unwrap_or(&UNKNOWN);
                return Found { verb, hash };
            }
            slot = (slot + 1) % SLOTS;
        }
        Found { verb: &UNKNOWN, hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        let catalogue = Catalogue::new();
        for entry in VERBS {
            assert!(entry.name.len() <= NAME_BYTES_MAX, "{}", entry.name);
            let lower = entry.name.to_lowercase();
            assert_eq!(catalogue.find(lower.as_bytes()).verb.name, entry.name);
            assert_eq!(catalogue.find(entry.name.as_bytes()).hash, catalogue.find(lower.as_bytes()).hash);
        }
    }

    #[test]
    fn an_unknown_command_has_a_hash_of_its_own() {
        let catalogue = Catalogue::new();
        let find = |name: &[u8]| catalogue.find(name);
        assert_eq!(find(b"json.get").verb.name, "");
        assert_ne!(find(b"json.get").hash, find(b"json.set").hash);
        assert_ne!(find(b"a-name-of-more-than-16-bytes").hash, find(b"b-name-of-more-than-16-bytes").hash);
        assert_eq!(find(b"").verb.name, "");
    }
}
