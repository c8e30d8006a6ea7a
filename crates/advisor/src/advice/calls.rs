//! How the five client libraries call a command: its arguments behind the key, and its name where that isn't the command's.

use super::Language;
use crate::catalogue::SET_WITH_OPTIONS;

/// A command's call.
pub struct Call {
    /// The command.
    name: &'static str,
    /// Names of the arguments behind the key.
    arguments: &'static [&'static str],
    /// The method's name in go-redis and in Jedis. redis-rb, redis-py and ioredis use the command's, in small letters.
    go: &'static str,
    java: &'static str,
    /// True if it changes nothing.
    is_read: bool,
}

const fn read(name: &'static str, arguments: &'static [&'static str], go: &'static str, java: &'static str) -> Call {
    Call { name, arguments, go, java, is_read: true }
}

const fn write(name: &'static str, arguments: &'static [&'static str], go: &'static str, java: &'static str) -> Call {
    Call { name, arguments, go, java, is_read: false }
}

const CALLS: &[Call] = &[
    read("GET", &[], "Get", "get"),
    read("STRLEN", &[], "StrLen", "strlen"),
    read("EXISTS", &[], "Exists", "exists"),
    read("TTL", &[], "TTL", "ttl"),
    read("PTTL", &[], "PTTL", "pttl"),
    read("TYPE", &[], "Type", "type"),
    read("GETBIT", &["offset"], "GetBit", "getbit"),
    read("GETRANGE", &["start", "stop"], "GetRange", "getrange"),
    read("HGET", &["field"], "HGet", "hget"),
    read("HEXISTS", &["field"], "HExists", "hexists"),
    read("HLEN", &[], "HLen", "hlen"),
    read("HGETALL", &[], "HGetAll", "hgetAll"),
    read("HKEYS", &[], "HKeys", "hkeys"),
    read("HVALS", &[], "HVals", "hvals"),
    read("HMGET", &["fields"], "HMGet", "hmget"),
    read("LLEN", &[], "LLen", "llen"),
    read("LINDEX", &["index"], "LIndex", "lindex"),
    read("LRANGE", &["start", "stop"], "LRange", "lrange"),
    read("SISMEMBER", &["member"], "SIsMember", "sismember"),
    read("SMEMBERS", &[], "SMembers", "smembers"),
    read("SCARD", &[], "SCard", "scard"),
    read("ZSCORE", &["member"], "ZScore", "zscore"),
    read("ZRANK", &["member"], "ZRank", "zrank"),
    read("ZREVRANK", &["member"], "ZRevRank", "zrevrank"),
    read("ZCARD", &[], "ZCard", "zcard"),
    read("ZRANGE", &["start", "stop"], "ZRange", "zrange"),
    read("ZREVRANGE", &["start", "stop"], "ZRevRange", "zrevrange"),
    read("XLEN", &[], "XLen", "xlen"),
    write("SET", &["value"], "Set", "set"),
    write(SET_WITH_OPTIONS, &["value", "options"], "SetArgs", "set"),
    write("SETEX", &["seconds", "value"], "SetEx", "setex"),
    write("SETNX", &["value"], "SetNX", "setnx"),
    write("APPEND", &["value"], "Append", "append"),
    write("SETBIT", &["offset", "value"], "SetBit", "setbit"),
    write("INCR", &[], "Incr", "incr"),
    write("DECR", &[], "Decr", "decr"),
    write("INCRBY", &["amount"], "IncrBy", "incrBy"),
    write("DECRBY", &["amount"], "DecrBy", "decrBy"),
    write("INCRBYFLOAT", &["amount"], "IncrByFloat", "incrByFloat"),
    write("GETDEL", &[], "GetDel", "getDel"),
    write("DEL", &[], "Del", "del"),
    write("UNLINK", &[], "Unlink", "unlink"),
    write("EXPIRE", &["seconds"], "Expire", "expire"),
    write("PERSIST", &[], "Persist", "persist"),
    write("HSET", &["field", "value"], "HSet", "hset"),
    write("HSETNX", &["field", "value"], "HSetNX", "hsetnx"),
    write("HDEL", &["field"], "HDel", "hdel"),
    write("HINCRBY", &["field", "amount"], "HIncrBy", "hincrBy"),
    write("LPUSH", &["value"], "LPush", "lpush"),
    write("RPUSH", &["value"], "RPush", "rpush"),
    write("LPOP", &[], "LPop", "lpop"),
    write("RPOP", &[], "RPop", "rpop"),
    write("LREM", &["count", "value"], "LRem", "lrem"),
    write("LTRIM", &["start", "stop"], "LTrim", "ltrim"),
    write("SADD", &["member"], "SAdd", "sadd"),
    write("SREM", &["member"], "SRem", "srem"),
    write("SPOP", &[], "SPop", "spop"),
    write("ZADD", &["score", "member"], "ZAdd", "zadd"),
    write("ZREM", &["member"], "ZRem", "zrem"),
    write("ZINCRBY", &["amount", "member"], "ZIncrBy", "zincrby"),
    write("ZPOPMIN", &[], "ZPopMin", "zpopmin"),
    write("ZPOPMAX", &[], "ZPopMax", "zpopmax"),
    write("PFADD", &["element"], "PFAdd", "pfadd"),
    write("PUBLISH", &["message"], "Publish", "publish"),
];

/// The command's name as it is sent.
pub fn name(command: &str) -> &str {
    if command == SET_WITH_OPTIONS { "SET" } else { command }
}

fn find(command: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.name == command)
}

/// True if a command is known to change nothing.
pub fn is_read(command: &str) -> bool {
    match find(command) {
        Some(call) => call.is_read,
        None => crate::catalogue::Catalogue::new().find(command.as_bytes()).verb.class == crate::catalogue::Class::Read,
    }
}

/// Names of the arguments behind the key.
pub fn arguments(command: &str) -> &'static [&'static str] {
    find(command).map_or(&["arguments"], |call| call.arguments)
}

/// A call of a command on an object; `key` is an expression, empty for a command without a key.
pub fn call(language: Language, receiver: &str, command: &str, key: &str) -> String {
    let Some(call) = find(command) else { return unknown(language, receiver, command, key) };
    let special = special(language, receiver, command, key);
    special.unwrap_or_else(|| {
        let key = (!key.is_empty()).then_some(key);
        let arguments: Vec<&str> = key.into_iter().chain(call.arguments.iter().copied()).collect();
        let arguments = arguments.join(", ");
        match language {
            Language::Go => format!("{receiver}.{}(ctx, {arguments})", call.go),
            Language::Java => format!("{receiver}.{}({arguments})", call.java),
            _ => format!("{receiver}.{}({arguments})", name(command).to_lowercase()),
        }
    })
}

/// The call of a command for which the library has arguments in another form than the command, if it is one of those.
fn special(language: Language, receiver: &str, command: &str, key: &str) -> Option<String> {
    let text = match (language, command) {
        (Language::Python, "ZADD") => format!("{receiver}.zadd({key}, {{member: score}})"),
        (Language::Go, "ZADD") => format!("{receiver}.ZAdd(ctx, {key}, redis.Z{{Score: score, Member: member}})"),
        (Language::Go, "SET") => format!("{receiver}.Set(ctx, {key}, value, 0)"),
        (Language::Ruby | Language::Python, SET_WITH_OPTIONS) => format!("{receiver}.set({key}, value, **options)"),
        (Language::JavaScript, SET_WITH_OPTIONS) => format!("{receiver}.set({key}, value, ...options)"),
        (Language::Go, "SETNX") => format!("{receiver}.SetNX(ctx, {key}, value, 0)"),
        (Language::Go, "SETEX") => format!("{receiver}.SetEx(ctx, {key}, value, seconds*time.Second)"),
        (Language::Go, "EXPIRE") => format!("{receiver}.Expire(ctx, {key}, seconds*time.Second)"),
        (Language::Go, "HMGET") => format!("{receiver}.HMGet(ctx, {key}, fields...)"),
        (Language::Ruby, "HMGET") => format!("{receiver}.hmget({key}, *fields)"),
        (Language::Ruby, "HSET") => format!("{receiver}.hset({key}, field, value)"),
        _ => return None,
    };
    Some(text)
}

/// A command that the libraries may not have.
fn unknown(language: Language, receiver: &str, command: &str, key: &str) -> String {
    let key = if key.is_empty() { String::new() } else { format!(", {key}") };
    match language {
        Language::Ruby => format!("{receiver}.call(\"{command}\"{key}, *arguments)"),
        Language::Python => format!("{receiver}.execute_command(\"{command}\"{key}, *arguments)"),
        Language::JavaScript => format!("{receiver}.call(\"{command}\"{key}, ...args)"),
        Language::Go => format!("{receiver}.Do(ctx, \"{command}\"{key} /* arguments */)"),
        Language::Java => format!("{receiver}.sendCommand(() -> \"{command}\".getBytes(){key} /* arguments */)"),
    }
}
