//! The calls of commands in the client libraries: the arguments, and method names that differ from the command's name.
//!
//! A command without a method in some library is sent by its name and its arguments in the order of the protocol, which
//! every library can do.

use super::library::{Hole, Library, Naming, fill, find as find_in};
use crate::catalogue::{Catalogue, Class, SET_WITH_OPTIONS};

/// A command's call.
struct Call {
    /// The command.
    name: &'static str,
    /// The arguments in the order of the protocol: `KEY` is the key, a word of small letters a variable, anything else a
    /// literal.
    arguments: &'static str,
    /// The name of the method in go-redis and in Jedis; empty if the command is sent by its name there. redis-rb,
    /// redis-py and ioredis use the command's name in small letters, unless `is_plain` is false.
    go: &'static str,
    java: &'static str,
    /// True if redis-rb, redis-py and ioredis have a method with the arguments in the order of the protocol.
    is_plain: bool,
}

impl Call {
    /// True for a known command with no other arguments than the key and variables.
    fn is_of_words(&self) -> bool {
        let is_word = |word: &str| word.is_empty() || word == "KEY" || is_variable(word);
        !self.name.is_empty() && !self.name.contains([' ', '.']) && self.arguments.split(' ').all(is_word)
    }
}

const fn typed(name: &'static str, arguments: &'static str, go: &'static str, java: &'static str) -> Call {
    Call { name, arguments, go, java, is_plain: true }
}

const fn raw(name: &'static str, arguments: &'static str) -> Call {
    Call { name, arguments, go: "", java: "", is_plain: false }
}

const CALLS: &[Call] = &[
    typed("GET", "KEY", "Get", "get"),
    typed("STRLEN", "KEY", "StrLen", "strlen"),
    typed("EXISTS", "KEY", "Exists", "exists"),
    typed("TOUCH", "KEY", "Touch", "touch"),
    typed("TTL", "KEY", "TTL", "ttl"),
    typed("PTTL", "KEY", "PTTL", "pttl"),
    typed("TYPE", "KEY", "Type", "type"),
    typed("DUMP", "KEY", "Dump", "dump"),
    typed("GETBIT", "KEY offset", "GetBit", "getbit"),
    typed("GETRANGE", "KEY start stop", "GetRange", "getrange"),
    typed("HGET", "KEY field", "HGet", "hget"),
    typed("HEXISTS", "KEY field", "HExists", "hexists"),
    typed("HLEN", "KEY", "HLen", "hlen"),
    typed("HGETALL", "KEY", "HGetAll", "hgetAll"),
    typed("HKEYS", "KEY", "HKeys", "hkeys"),
    typed("HVALS", "KEY", "HVals", "hvals"),
    typed("HMGET", "KEY fields", "HMGet", "hmget"),
    typed("LLEN", "KEY", "LLen", "llen"),
    typed("LINDEX", "KEY index", "LIndex", "lindex"),
    typed("LRANGE", "KEY start stop", "LRange", "lrange"),
    typed("SISMEMBER", "KEY member", "SIsMember", "sismember"),
    typed("SMEMBERS", "KEY", "SMembers", "smembers"),
    typed("SCARD", "KEY", "SCard", "scard"),
    typed("ZSCORE", "KEY member", "ZScore", "zscore"),
    typed("ZRANK", "KEY member", "ZRank", "zrank"),
    typed("ZREVRANK", "KEY member", "ZRevRank", "zrevrank"),
    typed("ZCARD", "KEY", "ZCard", "zcard"),
    typed("ZCOUNT", "KEY min max", "ZCount", "zcount"),
    typed("ZRANGE", "KEY start stop", "ZRange", "zrange"),
    typed("ZREVRANGE", "KEY start stop", "ZRevRange", "zrevrange"),
    typed("XLEN", "KEY", "XLen", "xlen"),
    typed("SET", "KEY value", "Set", "set"),
    typed(SET_WITH_OPTIONS, "KEY value", "SetArgs", "set"),
    typed("SETEX", "KEY seconds value", "SetEx", "setex"),
    typed("SETNX", "KEY value", "SetNX", "setnx"),
    typed("APPEND", "KEY value", "Append", "append"),
    typed("SETBIT", "KEY offset bit", "SetBit", ""),
    typed("INCR", "KEY", "Incr", "incr"),
    typed("DECR", "KEY", "Decr", "decr"),
    typed("INCRBY", "KEY amount", "IncrBy", "incrBy"),
    typed("DECRBY", "KEY amount", "DecrBy", "decrBy"),
    typed("INCRBYFLOAT", "KEY amount", "", "incrByFloat"),
    typed("GETDEL", "KEY", "GetDel", "getDel"),
    typed("DEL", "KEY", "Del", "del"),
    typed("UNLINK", "KEY", "Unlink", "unlink"),
    typed("EXPIRE", "KEY seconds", "Expire", "expire"),
    typed("PERSIST", "KEY", "Persist", "persist"),
    typed("HSET", "KEY field value", "HSet", "hset"),
    typed("HSETNX", "KEY field value", "HSetNX", "hsetnx"),
    typed("HDEL", "KEY field", "HDel", "hdel"),
    typed("HINCRBY", "KEY field amount", "HIncrBy", "hincrBy"),
    typed("LPUSH", "KEY value", "LPush", "lpush"),
    typed("RPUSH", "KEY value", "RPush", "rpush"),
    typed("LPOP", "KEY", "LPop", "lpop"),
    typed("RPOP", "KEY", "RPop", "rpop"),
    typed("LREM", "KEY count value", "LRem", "lrem"),
    typed("LSET", "KEY index value", "LSet", "lset"),
    typed("LTRIM", "KEY start stop", "LTrim", "ltrim"),
    typed("SADD", "KEY member", "SAdd", "sadd"),
    typed("SREM", "KEY member", "SRem", "srem"),
    typed("SPOP", "KEY", "SPop", "spop"),
    typed("ZADD", "KEY score member", "ZAdd", "zadd"),
    typed("ZREM", "KEY member", "ZRem", "zrem"),
    typed("ZINCRBY", "KEY amount member", "ZIncrBy", "zincrby"),
    typed("ZPOPMIN", "KEY", "ZPopMin", "zpopmin"),
    typed("ZPOPMAX", "KEY", "ZPopMax", "zpopmax"),
    typed("PFADD", "KEY element", "PFAdd", "pfadd"),
    typed("PUBLISH", "KEY message", "Publish", "publish"),
    // The pipelines of Jedis have no method for it.
    typed("SPUBLISH", "KEY message", "SPublish", ""),
    raw("SMISMEMBER", "KEY member"),
    raw("ZMSCORE", "KEY member"),
    raw("PING", ""),
    raw("TIME", ""),
    raw("DBSIZE", ""),
    raw("RANDOMKEY", ""),
    raw("ECHO", "message"),
    raw("KEYS", "pattern"),
    raw("SCAN", "cursor"),
    raw("MGET", "KEY"),
    raw("MSET", "KEY value"),
    raw("MSETNX", "KEY value"),
    raw("SUBSTR", "KEY start stop"),
    raw("BITCOUNT", "KEY"),
    raw("BITPOS", "KEY bit"),
    raw("BITFIELD_RO", "KEY GET u8 offset"),
    raw("BITFIELD", "KEY INCRBY u8 offset amount"),
    raw("BITOP", "OR destination KEY"),
    raw("PSETEX", "KEY milliseconds value"),
    raw("GETSET", "KEY value"),
    raw("GETEX", "KEY EX seconds"),
    raw("SETRANGE", "KEY offset value"),
    raw("PFCOUNT", "KEY"),
    raw("PFMERGE", "KEY source"),
    raw("EXPIRETIME", "KEY"),
    raw("PEXPIRETIME", "KEY"),
    raw("PEXPIRE", "KEY milliseconds"),
    raw("EXPIREAT", "KEY timestamp"),
    raw("PEXPIREAT", "KEY timestamp"),
    raw("OBJECT", "ENCODING KEY"),
    raw("MEMORY", "USAGE KEY"),
    raw("RENAME", "KEY target"),
    raw("RENAMENX", "KEY target"),
    raw("COPY", "KEY target"),
    raw("MOVE", "KEY database"),
    raw("RESTORE", "KEY 0 value"),
    raw("SORT", "KEY ALPHA"),
    raw("SORT_RO", "KEY ALPHA"),
    raw("HSTRLEN", "KEY field"),
    raw("HSCAN", "KEY cursor"),
    raw("HRANDFIELD", "KEY"),
    raw("HMSET", "KEY field value"),
    raw("HINCRBYFLOAT", "KEY field amount"),
    raw("LPOS", "KEY value"),
    raw("LPUSHX", "KEY value"),
    raw("RPUSHX", "KEY value"),
    raw("LMPOP", "1 KEY LEFT"),
    raw("RPOPLPUSH", "KEY destination"),
    raw("LMOVE", "KEY destination RIGHT LEFT"),
    raw("LINSERT", "KEY BEFORE pivot value"),
    raw("SSCAN", "KEY cursor"),
    raw("SRANDMEMBER", "KEY"),
    raw("SINTER", "KEY other"),
    raw("SUNION", "KEY other"),
    raw("SDIFF", "KEY other"),
    raw("SINTERCARD", "2 KEY other"),
    raw("SMOVE", "KEY destination member"),
    raw("SINTERSTORE", "KEY source"),
    raw("SUNIONSTORE", "KEY source"),
    raw("SDIFFSTORE", "KEY source"),
    raw("ZLEXCOUNT", "KEY - +"),
    raw("ZRANGEBYSCORE", "KEY min max"),
    raw("ZREVRANGEBYSCORE", "KEY max min"),
    raw("ZRANGEBYLEX", "KEY - +"),
    raw("ZSCAN", "KEY cursor"),
    raw("ZMPOP", "1 KEY MIN"),
    raw("ZREMRANGEBYSCORE", "KEY min max"),
    raw("ZREMRANGEBYRANK", "KEY start stop"),
    raw("ZUNIONSTORE", "KEY 1 source"),
    raw("ZINTERSTORE", "KEY 1 source"),
    raw("GEOADD", "KEY longitude latitude member"),
    raw("GEOPOS", "KEY member"),
    raw("GEODIST", "KEY member other"),
    raw("GEOSEARCH", "KEY FROMMEMBER member BYRADIUS radius km"),
    raw("XADD", "KEY * field value"),
    raw("XRANGE", "KEY - +"),
    raw("XREVRANGE", "KEY + -"),
    raw("XACK", "KEY group entry"),
    raw("XDEL", "KEY entry"),
    raw("XTRIM", "KEY MAXLEN count"),
    raw("XPENDING", "KEY group"),
    raw("XINFO", "STREAM KEY"),
    raw("XREAD", "COUNT 1000 STREAMS KEY entry"),
    raw("EVAL", "script 1 KEY argument"),
    raw("EVAL_RO", "script 1 KEY argument"),
    raw("EVALSHA", "sha 1 KEY argument"),
    raw("EVALSHA_RO", "sha 1 KEY argument"),
    raw("FCALL", "procedure 1 KEY argument"),
    raw("FCALL_RO", "procedure 1 KEY argument"),
    raw("WATCH", "KEY"),
    raw("JSON.GET", "KEY"),
    raw("JSON.SET", "KEY $ value"),
];

/// Any other command, with and without a key.
const OTHER: Call = raw("", "KEY argument");
const KEYLESS: Call = raw("", "argument");

/// Variables that are the same for the whole loop.
const CONSTANTS: &[&str] = &["fields", "group", "script", "sha", "procedure", "radius"];

/// Returns the command's name in the protocol.
pub fn name(command: &str) -> &str {
    if command == SET_WITH_OPTIONS { "SET" } else { command }
}

/// Returns the names of the commands in the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|call| call.name)
}

fn find(command: &str, has_key: bool) -> &'static Call {
    let other = if has_key { &OTHER } else { &KEYLESS };
    CALLS.iter().find(|call| call.name == command).unwrap_or(other)
}

/// Returns a command's arguments as in the table.
pub fn form(command: &str, has_key: bool) -> &'static str {
    find(command, has_key).arguments
}

/// True if the command is known to change nothing.
pub fn is_read(command: &str) -> bool {
    Catalogue::new().find(name(command).as_bytes()).verb.class == Class::Read
}

/// True if a word of a form is the name of a variable.
pub fn is_variable(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase()) && word != "km"
}

/// Returns the names of the arguments that change in a loop.
pub fn arguments(command: &str) -> impl Iterator<Item = &'static str> {
    let words = find(command, true).arguments.split(' ');
    words.filter(|word| is_variable(word) && !CONSTANTS.contains(word))
}

/// Returns the name of the method that does the work of many calls, or that waits.
pub fn method(library: &Library, command: &str) -> String {
    match library.naming {
        Naming::Go => go_name(command).to_owned(),
        Naming::Camel => node_name(go_name(command)),
        _ => command.to_lowercase(),
    }
}

/// Returns go-redis's name of a command.
fn go_name(command: &str) -> &'static str {
    const NAMES: &[(&str, &str)] = &[
        ("DEL", "Del"),
        ("UNLINK", "Unlink"),
        ("TOUCH", "Touch"),
        ("XACK", "XAck"),
        ("XDEL", "XDel"),
        ("GEOPOS", "GeoPos"),
        ("HMGET", "HMGet"),
        ("HDEL", "HDel"),
        ("SADD", "SAdd"),
        ("SREM", "SRem"),
        ("SMISMEMBER", "SMIsMember"),
        ("ZREM", "ZRem"),
        ("ZMSCORE", "ZMScore"),
        ("RPUSH", "RPush"),
        ("LPUSH", "LPush"),
        ("PFADD", "PFAdd"),
        ("LPOP", "LPop"),
        ("RPOP", "RPop"),
        ("SPOP", "SPop"),
        ("ZPOPMIN", "ZPopMin"),
        ("ZPOPMAX", "ZPopMax"),
        ("BLPOP", "BLPop"),
        ("BRPOP", "BRPop"),
        ("BZPOPMIN", "BZPopMin"),
        ("BZPOPMAX", "BZPopMax"),
        ("SCAN", "Scan"),
        ("HSCAN", "HScan"),
        ("SSCAN", "SScan"),
        ("ZSCAN", "ZScan"),
    ];
    NAMES.iter().find(|(name, _)| *name == command).map_or("Do", |(_, go)| go)
}

/// Returns node-redis's name of a method of go-redis. The two differ in the first letters.
fn node_name(go: &str) -> String {
    match go {
        "BLPop" => "blPop".to_owned(),
        "BRPop" => "brPop".to_owned(),
        "BZPopMin" => "bzPopMin".to_owned(),
        "BZPopMax" => "bzPopMax".to_owned(),
        "TTL" => "ttl".to_owned(),
        "HMGet" => "hmGet".to_owned(),
        "PFAdd" => "pfAdd".to_owned(),
        "SMIsMember" => "smIsMember".to_owned(),
        "ZMScore" => "zmScore".to_owned(),
        // node-redis has ZRANGE with REV only.
        "ZRevRange" => String::new(),
        _ => {
            let (first, rest) = go.split_at(go.len().min(1));
            first.to_lowercase() + rest
        }
    }
}

/// The code around a call.
pub struct Site<'s> {
    /// The client library.
    pub library: &'s Library,
    /// True in a pipeline.
    pub is_queued: bool,
    /// The prefix and suffix of a variable: languages without tuples use fields of a record.
    pub variable: &'s dyn Fn(&str) -> String,
}

impl Site<'_> {
    /// Returns a call of a command; `key` is an expression, that of an empty text for a command without a key.
    pub fn call(&self, command: &str, key: &str) -> String {
        let call = find(command, has_key(key));
        let library = self.library;
        let client_calls = library.client_calls.filter(|_| !self.is_queued);
        let text = if let Some(template) = find_in(client_calls.unwrap_or(library.calls), command) {
            let words = call.arguments.split(' ').filter(|word| is_variable(word));
            let mut holes: Vec<Hole<'_>> = words.map(|word| (word, self.variable(word))).collect();
            holes.push(("mode", self.mode()));
            holes.extend(self.in_script(name(command), key));
            fill(template, &holes)
        } else if let Some(method) = self.method(call).filter(|_| client_calls.is_none()) {
            let arguments = self.arguments(call, key, false).join(", ");
            format!("{method}({}{arguments})", library.context)
        } else {
            self.by_name(name(command), call, key)
        };
        format!("{}{text}", if self.is_queued { library.pipe } else { library.client })
    }

    /// Returns the library's method for a command.
    fn method(&self, call: &Call) -> Option<String> {
        let method = match self.library.naming {
            Naming::Lower if call.is_plain => name(call.name).to_lowercase(),
            Naming::Lower => String::new(),
            Naming::Go => call.go.to_owned(),
            Naming::Camel => node_name(call.go),
            Naming::Java => call.java.to_owned(),
            Naming::Words(except) if call.is_of_words() && !except.contains(&call.name) => call.name.to_lowercase(),
            Naming::Words(_) | Naming::None => String::new(),
        };
        (!method.is_empty()).then_some(method)
    }

    fn mode(&self) -> String {
        self.library.modes[usize::from(self.is_queued)].to_owned()
    }

    fn variable(&self, name: &str) -> String {
        if CONSTANTS.contains(&name) { self.library.syntax.variable(name, true) } else { (self.variable)(name) }
    }

    /// Returns the arguments as expressions. `are_texts` quotes numbers and turns variables into text.
    fn arguments(&self, call: &Call, key: &str, are_texts: bool) -> Vec<String> {
        let words = call.arguments.split(' ').filter(|word| !word.is_empty());
        let text = |word: &str| match word {
            "KEY" => key.to_owned(),
            word if is_variable(word) && are_texts => text_of(self.library, &self.variable(word)),
            word if is_variable(word) => self.variable(word),
            literal => format!("\"{literal}\""),
        };
        words.map(text).collect()
    }

    /// Returns the call of a command that the library may have no method for.
    fn by_name(&self, command: &str, call: &Call, key: &str) -> String {
        let all = self.arguments(call, key, true);
        let arguments: String = all.iter().map(|text| format!(", {text}")).collect();
        let added = all.iter().map(|text| format!(".add({text})")).collect();
        let form = if self.is_queued { 1 + usize::from(all.is_empty()) } else { 0 };
        let mut holes =
            vec![("mode", self.mode()), ("command", command.to_owned()), ("arguments", arguments), ("added", added)];
        holes.extend(self.in_script(command, key));
        fill(self.library.by_name[form], &holes)
    }

    /// Returns the holes of a call in a script.
    fn in_script(&self, command: &str, key: &str) -> [Hole<'static>; 3] {
        let (lua, passed) = in_script(command, has_key(key), 0, None);
        let passed = passed.iter().map(|name| format!(", {}", text_of(self.library, &self.variable(name)))).collect();
        let key = if lua.contains("KEYS") { key.to_owned() } else { String::new() };
        [("key", key), ("lua", lua), ("passed", passed)]
    }
}

/// True if the expression of a key is not an empty text.
fn has_key(key: &str) -> bool {
    key != "\"\""
}

/// Returns a variable's value as text.
pub fn text_of(library: &Library, variable: &str) -> String {
    fill(library.text, &[("variable", variable.to_owned())])
}

/// Returns the arguments of a command inside a script, and the expressions to pass as ARGV. `taken` expressions precede
/// them; `computed` stands for the command's value.
pub fn in_script(command: &str, has_key: bool, taken: usize, computed: Option<&str>) -> (String, Vec<&'static str>) {
    let (mut text, mut passed) = (format!("'{}'", name(command)), Vec::new());
    for word in find(command, has_key).arguments.split(' ').filter(|word| !word.is_empty()) {
        text += ", ";
        match (word, computed) {
            ("KEY", _) => text += "KEYS[1]",
            ("value" | "message", Some(computed)) => text += computed,
            (word, _) if is_variable(word) => {
                passed.push(word);
                text += &format!("ARGV[{}]", taken + passed.len());
            }
            (literal, _) => text += &format!("'{literal}'"),
        }
    }
    (text, passed)
}
