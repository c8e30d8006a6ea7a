//! The documents' experiments as lists of commands. Measurement and output are in other modules.

use client::Command;

use super::args::{PipeliningArgs, Topic};
use super::movies;
use super::way::{Runner, Way, Work};
use crate::failure::Failure;
use crate::report::grouped;

/// Prefix of all keys that are written. Other keys are never touched.
pub const PREFIX: &str = "penstock-bench:";

/// An experiment before it is run.
pub struct Plan<'a> {
    /// Name for `--only`.
    pub id: &'static str,
    /// Title.
    pub title: String,
    /// Source and remarks.
    pub note: String,
    /// The variants.
    pub ways: Vec<Way<'a>>,
    /// All keys that the variants write.
    pub keys: Vec<String>,
}

/// Returns the selected experiments.
#[must_use]
pub fn plans(args: &PipeliningArgs) -> Vec<Plan<'static>> {
    let wanted = TOPICS.iter().filter(|topic| args.wants(**topic));
    let plans = wanted.filter_map(|topic| plan(*topic, args));
    if args.is_full_size() { plans.collect() } else { plans.map(without_document).collect() }
}

/// Removes the document's times from a plan with another number of commands, because they aren't comparable.
fn without_document(mut plan: Plan<'static>) -> Plan<'static> {
    let had_seconds = plan.ways.iter_mut().filter_map(|way| way.document_s.take()).count() > 0;
    if had_seconds {
        plan.note += " Its times are for the full number of commands (--scale 1), not for this one.";
    }
    plan
}

const TOPICS: [Topic; 5] = [Topic::Pings, Topic::Keys, Topic::Sets, Topic::Movies, Topic::Incr];

/// Returns the plan of a topic. The sweep over depths has none, because it is measured differently.
fn plan(topic: Topic, args: &PipeliningArgs) -> Option<Plan<'static>> {
    match topic {
        Topic::Pings => Some(pings(args.scaled(10_000))),
        Topic::Keys => Some(keys(args.scaled(10_000))),
        Topic::Sets => Some(sets(args.scaled(100_000))),
        Topic::Movies => Some(movies::plan(args.scaled(10_000))),
        Topic::Incr => Some(incr()),
        Topic::Depths => None,
    }
}

/// Labels of [`keys`] for comparable variants.
const WRITE: &str = "write";
const READ: &str = "read";

fn way(label: impl Into<String>, parts: u64, document_s: Option<f64>, work: Work<'static>) -> Way<'static> {
    Way { label: label.into(), parts, document_s, keeps_keys: false, does: "", work }
}

fn pings(count: u64) -> Plan<'static> {
    let one_by_one = |runner: &mut Runner<'_>| {
        while runner.next_part().is_some() {
            runner.step(&["PING"])?;
        }
        Ok(())
    };
    let pipelined = |runner: &mut Runner<'_>| {
        let count = runner.all_parts();
        runner.pipeline((0..count).map(|_| ["PING"]))
    };
    Plan {
        id: "pings",
        title: format!("{} PINGs", grouped(count)),
        note: "Redis's manual, \"Request/Response protocols and RTT\", 2010: 10,000 PINGs in 1.185238 seconds without and \
               0.250783 with a pipeline, over the loopback interface."
            .to_owned(),
        ways: vec![
            way("without pipelining", count, Some(1.185_238), Box::new(one_by_one)),
            way("with pipelining", count, Some(0.250_783), Box::new(pipelined)),
        ],
        keys: Vec::new(),
    }
}

/// A variant with MSET or MGET instead of several SETs or GETs.
struct Calls {
    /// Number of calls for all keys.
    calls: u64,
    /// Prefix of the keys. Each row of the document has its own.
    word: &'static str,
    mset_s: f64,
    mget_s: f64,
}

/// The document's rows for 10,000 keys.
const CALLS: [Calls; 4] = [
    Calls { calls: 1000, word: "yek", mset_s: 0.148_474, mget_s: 0.142_837 },
    Calls { calls: 100, word: "eky", mset_s: 0.067_859, mget_s: 0.063_040 },
    Calls { calls: 10, word: "eyk", mset_s: 0.060_200, mget_s: 0.057_818 },
    Calls { calls: 1, word: "kye", mset_s: 0.062_318, mget_s: 0.057_483 },
];

fn key(word: &str, number: u64) -> String {
    format!("{PREFIX}{word}{number}")
}

fn keys(count: u64) -> Plan<'static> {
    let set = |runner: &mut Runner<'_>| {
        while let Some(i) = runner.next_part() {
            runner.step(&Command::new("SET").arg(key("key", i)).arg(format!("value{i}")))?;
        }
        Ok(())
    };
    let get = |runner: &mut Runner<'_>| {
        while let Some(i) = runner.next_part() {
            runner.step(&Command::new("GET").arg(key("key", i)))?;
        }
        Ok(())
    };
    let mut ways = vec![
        Way { does: WRITE, ..way("redis set", count, Some(0.809_112), Box::new(set)) },
        Way { keeps_keys: true, does: READ, ..way("redis get", count, Some(0.806_711), Box::new(get)) },
    ];
    for calls in CALLS.iter().filter(|calls| calls.calls <= count) {
        ways.extend(multi_key_ways(calls, count));
    }
    let words = CALLS.iter().filter(|calls| calls.calls <= count).map(|calls| calls.word).chain(["key"]);
    Plan {
        id: "keys",
        title: format!("SET and GET of {} keys against MSET and MGET", grouped(count)),
        note: "\"redis mget/mset vs get/set\", an article of 2012: Ruby's benchmark with user, system, total and real time. \
               \"redis mset with 100\" makes 100 calls. Calls that read are compared with GET, those that write with SET."
            .to_owned(),
        ways,
        keys: words.flat_map(|word| (0..count).map(move |i| key(word, i))).collect(),
    }
}

/// Returns the keys of call number `call` of `calls` calls that together have `count` keys.
fn share(call: u64, calls: u64, count: u64) -> std::ops::Range<u64> {
    call * count / calls..(call + 1) * count / calls
}

fn multi_key_ways(row: &'static Calls, count: u64) -> [Way<'static>; 2] {
    let calls = row.calls;
    let mset = move |runner: &mut Runner<'_>| {
        while let Some(call) = runner.next_part() {
            let pairs = share(call, calls, count).flat_map(|i| [key(row.word, i), format!("value{i}")]);
            runner.step(&Command::new("MSET").args(pairs))?;
        }
        Ok(())
    };
    let mget = move |runner: &mut Runner<'_>| {
        while let Some(call) = runner.next_part() {
            runner.step(&Command::new("MGET").args(share(call, calls, count).map(|i| key(row.word, i))))?;
        }
        Ok(())
    };
    [
        Way { does: WRITE, ..way(format!("redis mset with {calls}"), calls, Some(row.mset_s), Box::new(mset)) },
        Way {
            keeps_keys: true,
            does: READ,
            ..way(format!("redis mget with {calls}"), calls, Some(row.mget_s), Box::new(mget))
        },
    ]
}

fn sets(count: u64) -> Plan<'static> {
    fn set(n: u64) -> Command {
        Command::new("SET").arg(key("key_", n)).arg(format!("value_{n}"))
    }
    let one_by_one = |runner: &mut Runner<'_>| {
        while let Some(n) = runner.next_part() {
            runner.step(&set(n))?;
        }
        Ok(())
    };
    let pipelined = |runner: &mut Runner<'_>| {
        let count = runner.all_parts();
        runner.pipeline((0..count).map(set))
    };
    Plan {
        id: "sets",
        title: format!("{} SETs", grouped(count)),
        note: "\"pipelining でコマンド実行を速くしよう with Ruby\" (Let's speed up commands by pipelining), an article of 2019: \
               100,000 SETs in 5.038 seconds without and 1.857 with a pipeline. The pipeline here keeps at most \
               10,000 commands unanswered, as the manual advises."
            .to_owned(),
        ways: vec![
            way("without pipelining", count, Some(5.038), Box::new(one_by_one)),
            way("with pipelining", count, Some(1.857), Box::new(pipelined)),
        ],
        keys: (0..count).map(|n| key("key_", n)).collect(),
    }
}

/// Number of increments in the manual.
const INCREMENTS: u64 = 4;

fn incr() -> Plan<'static> {
    let one_by_one = |runner: &mut Runner<'_>| {
        while runner.next_part().is_some() {
            runner.note("one by one", "Client", "INCR X".to_owned());
            let reply = runner.step(&["INCR", &key("X", 0)])?;
            runner.note("one by one", "Server", shown(&reply));
        }
        Ok(())
    };
    Plan {
        id: "incr",
        title: "INCR four times".to_owned(),
        note: "Redis's manual, \"Request/Response protocols and RTT\", 2010: a client that waits for each reply pays a round \
               trip for each; at 250 milliseconds that makes four requests a second, however fast the server is."
            .to_owned(),
        ways: vec![
            way("one by one", INCREMENTS, None, Box::new(one_by_one)),
            way("in a pipeline", INCREMENTS, None, Box::new(incr_pipelined)),
        ],
        keys: vec![key("X", 0)],
    }
}

fn incr_pipelined(runner: &mut Runner<'_>) -> Result<(), Failure> {
    let count = runner.all_parts();
    for _ in 0..count {
        runner.note("in a pipeline", "Client", "INCR X".to_owned());
        runner.connection(1).send(&["INCR", &key("X", 0)]);
    }
    for _ in 0..count {
        let reply = runner.connection(0).read_reply()?;
        runner.note("in a pipeline", "Server", shown(&reply));
    }
    Ok(())
}

fn shown(reply: &client::Value) -> String {
    match reply {
        client::Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_in_threes() {
        let check = |number, text| assert_eq!(grouped(number), text);
        check(0, "0");
        check(999, "999");
        check(108_894, "108,894");
        check(1_000_000, "1,000,000");
    }

    #[test]
    fn seconds_of_another_number_of_commands_are_not_shown() {
        let scaled = without_document(pings(10));
        assert!(scaled.ways.iter().all(|way| way.document_s.is_none()) && scaled.note.ends_with("not for this one."));
        // A plan without times gets no remark on them.
        assert_eq!(without_document(incr()).note, incr().note);
    }

    #[test]
    fn calls_share_all_keys() {
        for calls in [1, 3, 10, 1000] {
            let all: Vec<u64> = (0..calls).flat_map(|call| share(call, calls, 1234)).collect();
            assert_eq!(all, (0..1234).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_key_has_the_prefix() {
        for plan in [pings(10), keys(10), sets(10), movies::plan(10), incr()] {
            assert!(plan.keys.iter().all(|key| key.starts_with(PREFIX)), "{}", plan.id);
        }
    }
}
