//! What was seen and what to do, in sentences.

use super::Remedy;
use crate::findings::{Finding, Kind};
use crate::report::{bytes, count, duration};

/// What was seen.
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
                "{} then {}: the client writes what it has just read",
                steps.first().map_or("", |step| step),
                steps.last().map_or("", |step| step)
            )
        }
        Kind::RepeatedRead => {
            let what = if of_one_key { "the same read" } else { "the same question of one key after the other" };
            let answers = if sums.without_replies > 0 { "if the answers agree" } else { "always the same answer" };
            let wasted = count(sums.wasted());
            format!("{all}: {what}, {answers}: {needed} of {made} would do, {wasted} commands less")
        }
        Kind::Polling => {
            let found =
                if sums.without_replies > 0 { String::new() } else { format!(" and found something {needed} times") };
            format!("{all} was asked {made} times{found}")
        }
        Kind::TransactionInSlices => {
            format!("MULTI, {all} ... EXEC, each waited for: {made} round trips where {needed} would do")
        }
        Kind::ScriptInFull => {
            format!("{all} with the same script, {} times in full: {} sent", count(sums.count), bytes(sums.bytes))
        }
        Kind::ConnectionPerCommand => {
            format!(
                "{} connections for a command or two each, as {all}: {made} round trips where {needed} would do",
                count(sums.count)
            )
        }
        Kind::TooLongPipeline => format!(
            "pipelines of up to {} commands, as {all}: {} of replies went to disk",
            count(sums.made),
            bytes(sums.bytes)
        ),
        Kind::HeavyCommand => format!(
            "{all}, {} times: {} of replies, during {} of which others waited",
            count(sums.count),
            bytes(sums.bytes),
            duration(sums.busy_ns)
        ),
    }
}

/// What to do.
pub fn remedy(remedy: Remedy, finding: &Finding) -> String {
    let chunks = if finding.sums.made > 10_000 { ", at most 1,000 at a time" } else { "" };
    match remedy {
        Remedy::ManyKeys(command) => format!("one {command} of all keys{chunks}"),
        Remedy::ManyMembers(command) => format!("one {command} with all members, fields or values{chunks}"),
        Remedy::Sum(command) => format!("one {command} by the sum"),
        Remedy::Several(command) => format!("{command} with a count"),
        Remedy::Pipeline => format!("one pipeline{chunks}"),
        Remedy::Stages => "a pipeline for each stage: first all reads, then all writes".to_owned(),
        Remedy::AskOnce => "ask once and keep the answer".to_owned(),
        Remedy::OneCommand("GETDEL") => "GETDEL takes and deletes it at once".to_owned(),
        Remedy::OneCommand("GETEX") => "GETEX reads it and sets its time to live at once".to_owned(),
        Remedy::OneCommand(command) => {
            format!(
                "{command}, if it is a number that grows; otherwise a script. Another client may write between the two"
            )
        }
        Remedy::Script => "one script, which no other client can come between".to_owned(),
        Remedy::Wait(command) => format!("{command} waits until there is something"),
        Remedy::BeTold => "notifications, or client-side caching, tell of changes".to_owned(),
        Remedy::Transaction => "send MULTI, the commands and EXEC as one pipeline".to_owned(),
        Remedy::ScriptHash => "load the script once, and call it by its hash with EVALSHA".to_owned(),
        Remedy::KeepConnection => "keep the connection, or have a pool".to_owned(),
        Remedy::Chunks => "pipelines of at most 1,000 commands, and read the replies of each".to_owned(),
        Remedy::Scan("LRANGE") => "ranges of 1,000 elements".to_owned(),
        Remedy::Scan(command) => format!("{command}, a part at a time"),
    }
}
