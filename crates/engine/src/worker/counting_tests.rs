//! Tests of the counters of commands.

use crate::registry::table;
use crate::testing::Bench;
use statistics::timings::KEPT;

/// Returns a command's number of executions from its counter and from its histogram.
fn counted(bench: &Bench, command: &str) -> (u64, u64) {
    let id = table().find(command.as_bytes()).unwrap().id;
    let counters = &bench.worker.stats().commands[id];
    (counters.calls.get(), statistics::histogram::Distribution::of([&counters.histogram].into_iter()).count())
}

#[test]
fn all_of_a_batch_is_counted_when_it_ends() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    let (get, ping) = ("get k\r\n".repeat(2 * KEPT + 3), "ping\r\n".repeat(KEPT));
    bench.run(&mut session, format!("{get}set k v\r\n{ping}get k\r\nget k").as_bytes());
    assert_eq!(counted(&bench, "get"), (2 * KEPT as u64 + 4, 2 * KEPT as u64 + 4));
    assert_eq!((counted(&bench, "set"), counted(&bench, "ping")), ((1, 1), (KEPT as u64, KEPT as u64)));
    assert_eq!(bench.worker.stats().executed.get(), 3 * KEPT as u64 + 5);
}

#[test]
fn readers_of_the_counters_flush_them_first() {
    let readers = ["info", "latency", "config", "client", "command", "memory", "debug", "slowlog", "pipeline", "exec"];
    let reads = |name: &&str| readers.contains(&name.split('|').next().unwrap_or_default());
    let keyless = table().all().iter().filter(|command| command.is_keyless).map(|command| &*command.name);
    // These commands only begin and end the count under a token.
    let found: Vec<_> = keyless.filter(reads).filter(|name| !name.starts_with("pipeline|")).collect();
    assert_eq!(found, [""; 0]);
}

#[test]
fn readers_within_a_batch_see_the_commands_before_it() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    let lines = [
        "get k",
        "get k",
        "ping",
        "info commandstats",
        "info commandstats",
        "eval 'redis.call(\"get\", \"k\") return redis.call(\"info\", \"commandstats\")' 1 k",
        "get k",
        "config resetstat",
        "get k",
        "info commandstats",
    ];
    let input = lines.map(|line| format!("{line}\r\n")).concat();
    let (replies, _) = bench.run(&mut session, input.as_bytes());
    let replies = String::from_utf8(replies).unwrap();
    let calls = |command: &str| {
        let before = format!("cmdstat_{command}:calls=");
        let counts = replies.split(&*before).skip(1).filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok());
        counts.collect::<Vec<_>>()
    };
    assert_eq!(calls("get"), [2, 2, 3, 1]);
    assert_eq!(calls("ping"), [1, 1, 1]);
    assert_eq!(calls("info"), [1, 2]);
}
