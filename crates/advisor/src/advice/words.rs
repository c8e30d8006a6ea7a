//! The advice in sentences.

use super::Remedy;
use crate::findings::{Finding, FindingStep, Kind};
use crate::report::{bytes, count, duration};

/// Describes the observed traffic.
pub fn seen(finding: &Finding) -> String {
    let steps: Vec<String> = finding.steps.iter().map(ToString::to_string).collect();
    let (all, sums) = (steps.join(", "), &finding.sums);
    let (made, needed) = (count(finding.made()), count(sums.needed));
    let of_one_key = finding.steps.first().is_some_and(|step| step.one_key);
    match finding.kind {
        Kind::Loop => format!("{all}, one by one: {made} round trips where {needed} would do"),
        Kind::InterleavedLoop => {
            let after = finding.after.as_ref().filter(|_| finding.is_followed());
            let after = after.map_or(String::new(), |step| format!(", then {step}"));
            format!("{all} in turn{after}, one by one: {made} round trips where {needed} would do")
        }
        Kind::ReadComputeWrite => {
            format!(
                "{} then {}: the client reads a key, then changes it in a second round trip",
                steps.first().map_or("", |step| step),
                steps.last().map_or("", |step| step)
            )
        }
        Kind::RepeatedRead => {
            let what =
                if of_one_key { "the same read again and again" } else { "the same read from one key after the other" };
            let answers = if sums.without_replies > 0 { "if the answers agree" } else { "always with the same answer" };
            let wasted = count(sums.wasted());
            format!("{all}: {what}, {answers}: {made} reads where {needed} would do, {wasted} too many")
        }
        Kind::Polling => {
            let found = if sums.without_replies > 0 { String::new() } else { format!("; new answers: {needed}") };
            format!("{all} was sent {made} times{found}")
        }
        Kind::TransactionInSlices => {
            format!("MULTI, {all} ... EXEC, one by one: {made} round trips where {needed} would do")
        }
        Kind::SmallPipelines => {
            format!(
                "{all} at the start of small pipelines, one after the other: {made} pipelines where {needed} would do"
            )
        }
        Kind::ChangingScript => {
            format!(
                "{all} with scripts that differ only in the values in their texts: {} texts, {} in all",
                count(sums.count),
                bytes(sums.bytes)
            )
        }
        Kind::ScriptInFull => {
            format!(
                "{all} with the same script: its text was sent {} times, {} in all",
                count(sums.count),
                bytes(sums.bytes)
            )
        }
        Kind::ConnectionPerCommand => {
            format!(
                "{} connections with one or two commands each, for example {all}: {made} round trips where {needed} would do",
                count(sums.count)
            )
        }
        Kind::TooLongPipeline => format!(
            "pipelines of up to {} commands, for example {all}: {} of replies were spilled to disk",
            count(sums.made),
            bytes(sums.bytes)
        ),
        Kind::RedirectedCommands => format!(
            "{} % of the commands went to a node that does not have their slot: {} of {made} were answered with MOVED",
            (sums.wasted() * 100).div_ceil(sums.made.max(1)),
            count(sums.wasted()),
        ),
        Kind::HeavyCommand => format!(
            "{all}, {} times: {} of replies; other clients waited {} meanwhile",
            count(sums.count),
            bytes(sums.bytes),
            duration(sums.busy_ns)
        ),
    }
}

/// True if an element of one list goes to another, so that it is lost if the client stops in between.
fn moves(steps: &[FindingStep]) -> bool {
    let is_move = |pop: &str, push: &str| matches!((pop, push), ("LPOP" | "RPOP", "LPUSH" | "RPUSH"));
    matches!(steps, [pop, push] if push.depends && pop.one_key && push.one_key && is_move(&pop.command, &push.command))
}

/// Describes the remedy.
pub fn remedy(remedy: Remedy, finding: &Finding) -> String {
    let chunks = if finding.sums.made > 10_000 { ", at most 1,000 at a time" } else { "" };
    match remedy {
        Remedy::ManyKeys(command) => format!("one {command} of all keys{chunks}"),
        Remedy::ManyMembers(command) => format!("one {command} with all members, fields or values{chunks}"),
        Remedy::Sum(command) => format!("one {command} by the sum"),
        Remedy::Several("XREADGROUP") => {
            "XREADGROUP with a larger COUNT, and one XACK of all its entries".to_owned()
        }
        Remedy::LargerPipelines | Remedy::Pipeline if super::is_of_sidekiq(finding) => {
            format!("one pipeline of all commands{chunks}; perform_bulk in Sidekiq")
        }
        Remedy::LargerPipelines => format!("one pipeline of all commands{chunks}"),
        Remedy::ScriptArguments => "pass the values as ARGV: then there is one script, which EVALSHA calls".to_owned(),
        Remedy::WaitForLock => {
            "a lock that waits: BLPOP on a list to which the owner pushes when it is done, or a lock library that does so".to_owned()
        }
        Remedy::WithoutPing => {
            "leave PING out: a command on a broken connection fails as well; then one pipeline of the others".to_owned()
        }
        Remedy::Several(command) => format!("{command} with a count"),
        Remedy::Range => "one LRANGE of the elements".to_owned(),
        Remedy::Omit => "leave the command out: the next one shows that the connection works".to_owned(),
        Remedy::Pipeline if super::has(finding, "EVALSHA") => {
            format!("one pipeline{chunks}, or one script that does the work of all calls")
        }
        Remedy::Pipeline if finding.kind == Kind::Loop && super::has(finding, "EXISTS") => {
            format!("one pipeline{chunks}; or one EXISTS of all keys if their number is enough")
        }
        Remedy::Pipeline => format!("one pipeline{chunks}"),
        Remedy::Stages if moves(&finding.steps) => {
            "a pipeline of LMOVE, which moves an element from one list to the other in one command; or a pipeline for each stage".to_owned()
        }
        Remedy::Stages if finding.steps.iter().any(|step| step.depends) => {
            "a pipeline for each stage: the replies to the first one are arguments of the next".to_owned()
        }
        Remedy::Stages => "a pipeline for each stage: first all reads, then all writes".to_owned(),
        Remedy::AskOnce => "ask once and keep the answer".to_owned(),
        Remedy::OneCommand("GETDEL") => {
            "GETDEL, which reads and deletes the key in one command; if the value decides: first all reads, then one DEL".to_owned()
        }
        Remedy::OneCommand(command @ ("DEL" | "UNLINK")) => {
            format!("{command} alone: it skips keys that do not exist, and its reply is the number of the others")
        }
        Remedy::OneCommand("GETEX") => "GETEX, which reads the key and sets its time to live in one command".to_owned(),
        Remedy::OneCommand(command) => {
            format!(
                "{command} if the value is a counter, otherwise a script: another client may write between the read and the write"
            )
        }
        Remedy::Script => "one script: no other client can write between its read and its write".to_owned(),
        Remedy::Wait(command @ ("XREAD" | "XREADGROUP")) => {
            format!("{command} with BLOCK, which waits until there is an entry; one {command} can wait for several streams")
        }
        Remedy::Wait(command @ ("BLPOP" | "BRPOP" | "BZPOPMIN" | "BZPOPMAX" | "BLMPOP" | "BZMPOP")) => {
            format!("{command}, which waits until there is an element; one {command} can wait for several keys")
        }
        Remedy::Wait(command) => format!("{command}, which waits until there is an element"),
        Remedy::BeTold => "keyspace notifications or client-side caching, which report changes".to_owned(),
        Remedy::Transaction => "send MULTI, the commands and EXEC as one pipeline".to_owned(),
        Remedy::ScriptHash => "load the script once, and call it by its hash with EVALSHA".to_owned(),
        Remedy::KeepConnection => "keep the connection open, or use a connection pool".to_owned(),
        Remedy::Chunks => {
            "pipelines of at most 1,000 commands; read the replies to each before sending the next".to_owned()
        }
        Remedy::ClusterClient => {
            "a cluster client, which asks for the map of the slots again when a command is redirected".to_owned()
        }
        Remedy::Scan("LRANGE" | "ZRANGE" | "ZREVRANGE") => "ranges of 1,000 elements".to_owned(),
        Remedy::Scan(command) => format!("{command}, which reads a part at a time"),
    }
}
