//! What to write instead: for each finding what to do, in words, and code in five languages with the finding's own commands
//! and key patterns.

mod calls;
mod code;
mod language;
mod words;

pub use language::Language;

use crate::findings::{Finding, FindingStep, Kind};

/// What to write instead of what was found.
#[derive(Clone, Debug)]
pub struct Advice {
    /// What was seen, in a sentence.
    pub seen: String,
    /// What to do, in a sentence.
    pub remedy: String,
    /// The code, by language.
    pub code: Vec<(Language, String)>,
}

/// What to do about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// One command with many keys: MGET, MSET, DEL.
    ManyKeys(&'static str),
    /// One command with many members, fields or values of a key: SADD, HMGET, ZMSCORE.
    ManyMembers(&'static str),
    /// One increment by the sum.
    Sum(&'static str),
    /// One command that takes several elements from a key.
    Several(&'static str),
    /// One pipeline.
    Pipeline,
    /// A pipeline for each stage.
    Stages,
    /// Ask once and keep the answer.
    AskOnce,
    /// One command that reads and writes.
    OneCommand(&'static str),
    /// One script that reads and writes.
    Script,
    /// A command that waits.
    Wait(&'static str),
    /// Be told of changes.
    BeTold,
    /// A transaction that is sent as one.
    Transaction,
    /// The script's hash.
    ScriptHash,
    /// A connection that is kept.
    KeepConnection,
    /// Pipelines of a thousand.
    Chunks,
    /// The SCAN family, or a range.
    Scan(&'static str),
}

/// The advice on a finding.
#[must_use]
pub fn advice(finding: &Finding) -> Advice {
    let remedy = remedy(finding);
    let code = |language| (language, code::code(language, remedy, finding));
    Advice {
        seen: words::seen(finding),
        remedy: words::remedy(remedy, finding),
        code: Language::ALL.into_iter().map(code).collect(),
    }
}

/// The first step; an empty one if there is none.
fn first(finding: &Finding) -> (&str, bool) {
    finding.steps.first().map_or(("", false), |step| (&step.command, step.one_key))
}

/// What to do about a finding.
pub(crate) fn remedy(finding: &Finding) -> Remedy {
    let (command, one_key) = first(finding);
    match finding.kind {
        Kind::Loop => of_loop(command, one_key),
        Kind::InterleavedLoop if stages(&finding.steps).len() > 1 => Remedy::Stages,
        Kind::InterleavedLoop => Remedy::Pipeline,
        Kind::RepeatedRead => Remedy::AskOnce,
        Kind::ReadComputeWrite => of_pair(command, finding.steps.get(1).map_or("", |step| &step.command)),
        Kind::Polling => of_polling(command),
        Kind::TransactionInSlices => Remedy::Transaction,
        Kind::ScriptInFull => Remedy::ScriptHash,
        Kind::ConnectionPerCommand => Remedy::KeepConnection,
        Kind::TooLongPipeline => Remedy::Chunks,
        Kind::HeavyCommand => Remedy::Scan(of_heavy(command)),
    }
}

/// The command that does a loop's work at once.
fn of_loop(command: &str, one_key: bool) -> Remedy {
    match (command, one_key) {
        ("GET", false) => Remedy::ManyKeys("MGET"),
        ("SET", false) => Remedy::ManyKeys("MSET"),
        ("DEL", false) => Remedy::ManyKeys("DEL"),
        ("UNLINK", false) => Remedy::ManyKeys("UNLINK"),
        ("EXISTS", false) => Remedy::ManyKeys("EXISTS"),
        ("HGET", true) => Remedy::ManyMembers("HMGET"),
        ("HSET" | "HMSET", true) => Remedy::ManyMembers("HSET"),
        ("HDEL", true) => Remedy::ManyMembers("HDEL"),
        ("SADD", true) => Remedy::ManyMembers("SADD"),
        ("SREM", true) => Remedy::ManyMembers("SREM"),
        ("SISMEMBER", true) => Remedy::ManyMembers("SMISMEMBER"),
        ("ZADD", true) => Remedy::ManyMembers("ZADD"),
        ("ZREM", true) => Remedy::ManyMembers("ZREM"),
        ("ZSCORE", true) => Remedy::ManyMembers("ZMSCORE"),
        ("RPUSH", true) => Remedy::ManyMembers("RPUSH"),
        ("LPUSH", true) => Remedy::ManyMembers("LPUSH"),
        ("PFADD", true) => Remedy::ManyMembers("PFADD"),
        ("INCR" | "INCRBY", true) => Remedy::Sum("INCRBY"),
        ("DECR" | "DECRBY", true) => Remedy::Sum("DECRBY"),
        ("LPOP", true) => Remedy::Several("LPOP"),
        ("RPOP", true) => Remedy::Several("RPOP"),
        ("SPOP", true) => Remedy::Several("SPOP"),
        ("ZPOPMIN", true) => Remedy::Several("ZPOPMIN"),
        ("ZPOPMAX", true) => Remedy::Several("ZPOPMAX"),
        _ => Remedy::Pipeline,
    }
}

/// The command that reads and writes, or a script.
fn of_pair(read: &str, write: &str) -> Remedy {
    match (read, write) {
        ("GET", "SET" | "SETEX") => Remedy::OneCommand("INCRBY"),
        ("GET", "DEL" | "UNLINK") => Remedy::OneCommand("GETDEL"),
        ("GET", "EXPIRE" | "PEXPIRE") => Remedy::OneCommand("GETEX"),
        ("HGET", "HSET" | "HMSET") => Remedy::OneCommand("HINCRBY"),
        ("ZSCORE", "ZADD") => Remedy::OneCommand("ZINCRBY"),
        _ => Remedy::Script,
    }
}

/// The command that waits for what is polled.
fn of_polling(command: &str) -> Remedy {
    match command {
        "LPOP" => Remedy::Wait("BLPOP"),
        "RPOP" => Remedy::Wait("BRPOP"),
        "RPOPLPUSH" | "LMOVE" => Remedy::Wait("BLMOVE"),
        "ZPOPMIN" | "ZRANGEBYSCORE" | "ZRANGE" => Remedy::Wait("BZPOPMIN"),
        "ZPOPMAX" => Remedy::Wait("BZPOPMAX"),
        "LLEN" | "LINDEX" | "LRANGE" => Remedy::Wait("BLPOP"),
        "XLEN" | "XRANGE" => Remedy::Wait("XREAD"),
        _ => Remedy::BeTold,
    }
}

/// What reads a large value in parts.
fn of_heavy(command: &str) -> &'static str {
    match command {
        "KEYS" => "SCAN",
        "HGETALL" | "HKEYS" | "HVALS" => "HSCAN",
        "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" => "SSCAN",
        "LRANGE" => "LRANGE",
        _ => "ZSCAN",
    }
}

/// The steps of a round, cut where one may need the replies of those before: where a write follows a read.
pub(crate) fn stages(steps: &[FindingStep]) -> Vec<&[FindingStep]> {
    let is_read = |step: &FindingStep| calls::is_read(&step.command);
    let mut stages = Vec::new();
    let mut rest = steps;
    let cut = |steps: &[FindingStep]| steps.windows(2).position(|pair| is_read(&pair[0]) && !is_read(&pair[1]));
    while let Some(last) = cut(rest) {
        let (stage, after) = rest.split_at(last + 1);
        stages.push(stage);
        rest = after;
    }
    stages.push(rest);
    stages
}

#[cfg(test)]
mod tests;
