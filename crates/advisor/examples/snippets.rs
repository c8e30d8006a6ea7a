//! Prints the code of every remedy, for every command in every language, as lines of JSON, so that it can be run.

use std::sync::Arc;

use advisor::advice::{all_code, arguments};
use advisor::client::Client;
use advisor::findings::{Finding, FindingStep, Kind, Sums};
use advisor::waits::Waits;

/// The key patterns: one key, one hole, a hole alone, several holes, special characters.
const PATTERNS: &[&str] = &["board", "user:<n>", "<uuid>", "a:<n>:<word>:<n>", "{q:<n>}\\\"%$"];

fn step(command: &str, pattern: &str, one_key: bool, depends: bool) -> FindingStep {
    FindingStep { command: command.into(), pattern: pattern.into(), one_key, depends }
}

fn finding(kind: Kind, steps: Vec<FindingStep>) -> Finding {
    Finding {
        id: 1,
        kind,
        steps: steps.into(),
        after: None,
        client: Arc::new(Client::default()),
        sums: Sums { count: 2, made: 200, needed: 2, ..Sums::default() },
        samples: Vec::new(),
        waits: Waits::default(),
    }
}

fn text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// A step as an object of JSON, with the form of its arguments.
fn object(step: &FindingStep) -> String {
    let form = arguments(&step.command, !step.pattern.is_empty());
    let (command, pattern) = (text(&step.command), text(&step.pattern));
    format!("{{\"command\":{command},\"pattern\":{pattern},\"arguments\":{}}}", text(form))
}

fn print(finding: &Finding) {
    let commands: Vec<String> = finding.steps.iter().map(|step| text(&step.command)).collect();
    let steps: Vec<String> = finding.steps.iter().map(object).collect();
    for (language, code) in all_code(finding) {
        println!(
            "{{\"kind\":{},\"commands\":[{}],\"steps\":[{}],\"language\":{},\"code\":{}}}",
            text(finding.kind.name()),
            commands.join(","),
            steps.join(","),
            text(language),
            text(&code)
        );
    }
}

/// The commands whose findings have steps of this kind.
fn commands(kind: Kind) -> Vec<&'static str> {
    let of = |names: &[&'static str]| names.to_vec();
    match kind {
        Kind::Polling => {
            let lists = of(&["LPOP", "RPOP", "LMOVE", "LMPOP", "LLEN", "ZPOPMIN", "ZPOPMAX", "ZMPOP"]);
            [lists, of(&["SET WITH OPTIONS", "XLEN", "XREAD", "XREADGROUP", "GET", "EXISTS"])].concat()
        }
        Kind::HeavyCommand => of(&["KEYS", "HGETALL", "HKEYS", "HVALS", "SMEMBERS", "SINTER", "LRANGE", "ZRANGE"]),
        Kind::ScriptInFull | Kind::ChangingScript => of(&["EVAL"]),
        Kind::RedirectedCommands => of(&["GET"]),
        Kind::Loop | Kind::InterleavedLoop => [advisor::advice::commands(), of(&["XREADGROUP"])].concat(),
        Kind::RepeatedRead => of(&["GET", "HGET", "ZSCORE", "SISMEMBER", "HGETALL"]),
        Kind::ReadComputeWrite => of(&["GET", "HGET", "ZSCORE", "LRANGE", "EXISTS"]),
        _ => of(&["GET", "SET", "HSET", "ZADD", "XADD", "PUBLISH"]),
    }
}

/// The key patterns to print with a command: all of them for some commands.
fn patterns(kind: Kind, command: &str) -> &'static [&'static str] {
    match command {
        _ if kind == Kind::RedirectedCommands => &[""],
        "XREADGROUP" if kind == Kind::Polling => &PATTERNS[1..2],
        // A command without a key has no pattern.
        "PING" | "XREADGROUP" | "TIME" | "DBSIZE" | "RANDOMKEY" | "KEYS" | "SCAN" | "ECHO" => &[""],
        "GET" | "SET" | "HSET" | "DEL" => PATTERNS,
        _ if kind == Kind::Loop => &PATTERNS[..2],
        _ => &PATTERNS[1..2],
    }
}

/// Prints the code for findings that show a framework.
fn frameworks() {
    let of = |kind, command, pattern| print(&finding(kind, vec![step(command, pattern, false, false)]));
    for command in ["GET", "SET", "SET WITH OPTIONS", "DEL"] {
        of(Kind::Loop, command, ":<n>:page:<n>");
    }
    of(Kind::RepeatedRead, "GET", ":<n>:flag");
    of(Kind::SmallPipelines, "SADD", "queues");
}

fn main() {
    frameworks();
    for kind in Kind::ALL {
        for command in commands(kind) {
            for pattern in patterns(kind, command) {
                let first = step(command, pattern, *pattern == "board", false);
                print(&finding(
                    kind,
                    match kind {
                        Kind::InterleavedLoop => vec![first, step("HSET", "data:<n>", false, true)],
                        Kind::ReadComputeWrite => {
                            ["SET", "DEL", "HSET", "ZADD", "LTRIM", "EXPIRE"].iter().for_each(|write| {
                                print(&finding(kind, vec![first.clone(), step(write, pattern, false, false)]));
                            });
                            continue;
                        }
                        _ => vec![first],
                    },
                ));
            }
        }
    }
}
