//! The advice on a finding: the remedy in words, and code for each client library with the finding's own commands and
//! key patterns.

mod calls;
mod code;
mod language;
mod libraries;
mod library;
mod plain;
mod syntax;
mod words;

pub use language::Language;

use crate::findings::{Finding, FindingStep, Kind};

/// The advice on a finding.
#[derive(Clone, Debug)]
pub struct Advice {
    /// A sentence about the observed traffic.
    pub seen: String,
    /// The remedy, in a sentence.
    pub remedy: String,
}

/// The remedies.
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
    /// One range of a list.
    Range,
    /// No command at all.
    Omit,
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
    /// A blocking command.
    Wait(&'static str),
    /// Notifications of changes.
    BeTold,
    /// A transaction that is sent as one.
    Transaction,
    /// One pipeline in place of many small ones.
    LargerPipelines,
    /// A script that is called by its hash.
    ScriptHash,
    /// A script whose values are arguments.
    ScriptArguments,
    /// A lock that waits.
    WaitForLock,
    /// The loop without its PINGs.
    WithoutPing,
    /// A connection that is kept open.
    KeepConnection,
    /// Pipelines of at most a thousand commands.
    Chunks,
    /// The SCAN family, or ranges.
    Scan(&'static str),
    /// A client that follows the slots of a cluster.
    ClusterClient,
}

/// The pattern of Sidekiq's set of queues.
const SIDEKIQ_QUEUES: &str = "queues";

/// True if the commands of a finding fill the queues of Sidekiq.
fn is_of_sidekiq(finding: &Finding) -> bool {
    finding.steps.iter().any(|step| &*step.pattern == SIDEKIQ_QUEUES && &*step.command == "SADD")
}

/// Returns the advice on a finding.
#[must_use]
pub fn advice(finding: &Finding) -> Advice {
    Advice { seen: words::seen(finding), remedy: words::remedy(remedy(finding), finding) }
}

/// Returns the code to write instead. It ends with a line end.
#[must_use]
pub fn code(finding: &Finding, language: Language) -> String {
    code::code(language, remedy(finding), finding)
}

/// The name of the commands without a library, among the names of the languages.
pub const PLAIN: &str = "redis-cli";

/// Returns the commands to send instead, as one types them in redis-cli, for a client whose library has no code here. It ends with a
/// line end.
#[must_use]
pub fn plain(finding: &Finding) -> String {
    plain::commands(remedy(finding), finding)
}

/// The name of the HTTP port among libraries. Its clients may be written in any language.
const HTTP: &str = "penstock-http";

/// True if the client names a library that has no code here. The code of another library would not run.
#[must_use]
pub fn has_other_library(finding: &Finding) -> bool {
    let library = &finding.client.library;
    !library.is_empty() && !library.starts_with(HTTP) && Language::of_library(library).is_none()
}

/// Returns all code for a finding, each with the name of its language: the commands alone if the client names a library without code.
#[must_use]
pub fn all_code(finding: &Finding) -> Vec<(&'static str, String)> {
    let languages: &[Language] = if has_other_library(finding) { &[] } else { &Language::ALL };
    let codes = languages.iter().map(|language| (language.name(), code(finding, *language)));
    codes.chain([(PLAIN, plain(finding))]).collect()
}

/// Returns the commands with known arguments, for tests of the code.
#[must_use]
pub fn commands() -> Vec<&'static str> {
    calls::names().collect()
}

/// Returns a command's arguments in the order of the protocol, for tests of the code. `KEY` is the key, a word of small letters
/// a variable, and anything else a literal.
#[must_use]
pub fn arguments(command: &str, has_key: bool) -> &'static str {
    calls::form(command, has_key)
}

/// Returns the first step's command, and whether it always uses one key; an empty command if there are no steps.
fn first(finding: &Finding) -> (&str, bool) {
    finding.steps.first().map_or(("", false), |step| (&step.command, step.one_key))
}

/// True if a step of the finding is this command.
fn has(finding: &Finding, command: &str) -> bool {
    finding.steps.iter().any(|step| &*step.command == command)
}

/// Returns the remedy for a finding.
pub(crate) fn remedy(finding: &Finding) -> Remedy {
    let (command, one_key) = first(finding);
    match finding.kind {
        Kind::Loop | Kind::InterleavedLoop if has(finding, "XREADGROUP") => Remedy::Several("XREADGROUP"),
        Kind::Loop => match of_loop(command, one_key) {
            // The keys have several slots, and only a pipeline may use them together.
            Remedy::ManyKeys(_) if finding.client.in_cluster => Remedy::Pipeline,
            remedy => remedy,
        },
        Kind::InterleavedLoop if has(finding, "PING") => Remedy::WithoutPing,
        Kind::InterleavedLoop if stages(&finding.steps).len() > 1 => Remedy::Stages,
        Kind::InterleavedLoop => Remedy::Pipeline,
        Kind::RepeatedRead => Remedy::AskOnce,
        Kind::ReadComputeWrite => of_pair(command, finding.steps.get(1).map_or("", |step| &step.command)),
        Kind::Polling => of_polling(command),
        Kind::TransactionInSlices => Remedy::Transaction,
        Kind::SmallPipelines => Remedy::LargerPipelines,
        Kind::ScriptInFull => Remedy::ScriptHash,
        Kind::ChangingScript => Remedy::ScriptArguments,
        Kind::ConnectionPerCommand => Remedy::KeepConnection,
        Kind::TooLongPipeline => Remedy::Chunks,
        Kind::HeavyCommand => Remedy::Scan(of_heavy(command)),
        Kind::RedirectedCommands => Remedy::ClusterClient,
    }
}

/// Returns the command that does a loop's work at once.
fn of_loop(command: &str, one_key: bool) -> Remedy {
    match (command, one_key) {
        ("GET", false) => Remedy::ManyKeys("MGET"),
        ("SET", false) => Remedy::ManyKeys("MSET"),
        ("DEL", false) => Remedy::ManyKeys("DEL"),
        ("UNLINK", false) => Remedy::ManyKeys("UNLINK"),
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
        ("GEOADD", true) => Remedy::ManyMembers("GEOADD"),
        ("GEOPOS", true) => Remedy::ManyMembers("GEOPOS"),
        ("XACK", true) => Remedy::ManyMembers("XACK"),
        ("XDEL", true) => Remedy::ManyMembers("XDEL"),
        ("TOUCH", false) => Remedy::ManyKeys("TOUCH"),
        ("LINDEX" | "LPOS", true) => Remedy::Range,
        ("LRANGE", true) => Remedy::Scan("LRANGE"),
        ("ZRANGE", true) => Remedy::Scan("ZRANGE"),
        ("ZREVRANGE", true) => Remedy::Scan("ZREVRANGE"),
        ("PING", _) => Remedy::Omit,
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

/// Returns one command that reads and writes, or a script.
fn of_pair(read: &str, write: &str) -> Remedy {
    match (read, write) {
        ("GET", "SET" | "SETEX") => Remedy::OneCommand("INCRBY"),
        ("EXISTS", "DEL") => Remedy::OneCommand("DEL"),
        ("EXISTS", "UNLINK") => Remedy::OneCommand("UNLINK"),
        ("GET", "DEL" | "UNLINK") => Remedy::OneCommand("GETDEL"),
        ("GET", "EXPIRE" | "PEXPIRE") => Remedy::OneCommand("GETEX"),
        ("HGET", "HSET" | "HMSET") => Remedy::OneCommand("HINCRBY"),
        ("ZSCORE", "ZADD") => Remedy::OneCommand("ZINCRBY"),
        _ => Remedy::Script,
    }
}

/// Returns the blocking form of a polled command.
fn of_polling(command: &str) -> Remedy {
    match command {
        "LPOP" => Remedy::Wait("BLPOP"),
        "RPOP" => Remedy::Wait("BRPOP"),
        "RPOPLPUSH" | "LMOVE" => Remedy::Wait("BLMOVE"),
        "ZPOPMIN" | "ZRANGEBYSCORE" | "ZRANGE" => Remedy::Wait("BZPOPMIN"),
        "ZPOPMAX" | "ZREVRANGEBYSCORE" | "ZREVRANGE" => Remedy::Wait("BZPOPMAX"),
        "LLEN" | "LINDEX" | "LRANGE" => Remedy::Wait("BLPOP"),
        "LMPOP" => Remedy::Wait("BLMPOP"),
        "ZMPOP" => Remedy::Wait("BZMPOP"),
        "XLEN" | "XRANGE" | "XREVRANGE" | "XREAD" => Remedy::Wait("XREAD"),
        "XREADGROUP" => Remedy::Wait("XREADGROUP"),
        crate::catalogue::SET_WITH_OPTIONS => Remedy::WaitForLock,
        _ => Remedy::BeTold,
    }
}

/// Returns the command that reads a large value in parts.
fn of_heavy(command: &str) -> &'static str {
    match command {
        "KEYS" => "SCAN",
        "HGETALL" | "HKEYS" | "HVALS" => "HSCAN",
        "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" => "SSCAN",
        "LRANGE" => "LRANGE",
        _ => "ZSCAN",
    }
}

/// Cuts the steps of a round into stages: before a step that needs a reply, and before a write that follows a read,
/// because it may need the reply.
pub(crate) fn stages(steps: &[FindingStep]) -> Vec<&[FindingStep]> {
    let is_read = |step: &FindingStep| calls::is_read(&step.command);
    let mut stages = Vec::new();
    let mut rest = steps;
    let waits = |pair: &[FindingStep]| pair[1].depends || is_read(&pair[0]) && !is_read(&pair[1]);
    let cut = |steps: &[FindingStep]| steps.windows(2).position(waits);
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
