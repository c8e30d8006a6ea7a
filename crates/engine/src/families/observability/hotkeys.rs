//! HOTKEYS: finds the keys with the most processor time and traffic.
//!
//! Source of the semantics: see `statistics::hot_keys`.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, fact};
use resp::num;

use crate::families::help::help;
use crate::worker::turn::{Run, Turn};
use statistics::hot_keys::HotKeysPlan;

const FLAGS: u32 = ADMIN | NOSCRIPT;
const ONE_NODE: &[&str] = &["request_policy:special"];

/// Default and maximum number of reported keys.
const SHOWN: (i64, i64) = (10, 64);
/// Maximum duration of a measurement in seconds.
const DURATION_S_MAX: i64 = 1_000_000;
/// Number of metrics.
const METRICS_MAX: i64 = 2;
/// The range of cluster slots; all of them are counted.
const SLOTS: [i64; 2] = [0, 16383];

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("hotkeys", -2, 0, Run::Session(hotkeys_help))
    .docs(Group::Server, "8.6.0", "Depends on subcommand.", "Finds the keys that take most of the time and the traffic.", "")
    .subcommands(&[
        Spec::new("get", 2, FLAGS, Run::Session(get)).facts(fact::TELLS)
            .docs(
                Group::Server,
                "8.6.0",
                "O(K) where K is the number of hotkeys returned.",
                "Returns the keys with the greatest counts, and the totals.",
                "",
            )
            .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
        Spec::new("help", 2, LOADING | STALE, Run::Session(hotkeys_help)).docs(
            Group::Server,
            "8.6.1",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("reset", 2, FLAGS, Run::Session(reset))
            .docs(Group::Server, "8.6.0", "O(1)", "Drops the counts.", "")
            .tips(ONE_NODE),
        Spec::new("start", -2, FLAGS, Run::Session(start))
            .docs(
                Group::Server,
                "8.6.0",
                "O(1)",
                "Begins to count time or bytes by key.",
                "[METRICS count:integer [CPU] [NET]] [COUNT k:integer] [DURATION seconds:integer] [SAMPLE ratio:integer] \
                 [SLOTS count:integer slot:integer [slot:integer ...]]",
            )
            .tips(ONE_NODE),
        Spec::new("stop", 2, FLAGS, Run::Session(stop))
            .docs(Group::Server, "8.6.0", "O(1)", "Ends counting, and keeps the counts.", "")
            .tips(ONE_NODE),
    ])];

/// Parses the metrics, and returns the index of the next option.
fn parse_metrics(turn: &Turn<'_, '_>) -> Result<(bool, bool, usize), Error> {
    let count = (turn.len() > 3 && turn.is(2, "metrics")).then(|| num::parse_i64(turn.arg(3)));
    let Some(count) = count else { return Err(Error::fixed("ERR METRICS parameter is required")) };
    let count = count.filter(|count| (1..=METRICS_MAX).contains(count));
    let count = count.ok_or(Error::fixed("ERR METRICS count must be > 0 and <= 2"))?;
    let (mut cpu, mut net, mut at) = (false, false, 4);
    let end = turn.len().min(4 + count as usize);
    while at < end {
        let (metric, twice) = if turn.is(at, "cpu") {
            (&mut cpu, "ERR METRICS CPU defined more than once!")
        } else if turn.is(at, "net") {
            (&mut net, "ERR METRICS NET defined more than once!")
        } else {
            break;
        };
        if std::mem::replace(metric, true) {
            return Err(Error::fixed(twice));
        }
        at += 1;
    }
    if at == 4 && turn.len() > 4 {
        return Err(Error::fixed("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    if at < 4 + count as usize {
        return Err(Error::fixed("ERR METRICS count does not match number of metric types provided"));
    }
    Ok((cpu, net, at))
}

fn parse(turn: &Turn<'_, '_>) -> Result<HotKeysPlan, Error> {
    let (cpu, net, mut at) = parse_metrics(turn)?;
    let mut plan = HotKeysPlan { cpu, net, shown: SHOWN.0 as usize, duration_ms: 0, ratio: 1 };
    while at < turn.len() {
        if at + 1 >= turn.len() {
            return Err(Error::SYNTAX);
        }
        let number = num::parse_i64(turn.arg(at + 1));
        let within = |min: i64, max: i64, error: &'static str| {
            number.filter(|number| (min..=max).contains(number)).ok_or(Error::fixed(error))
        };
        if turn.is(at, "count") {
            plan.shown = within(1, SHOWN.1, "ERR COUNT must be between 1 and 64")? as usize;
        } else if turn.is(at, "duration") {
            let seconds = within(1, DURATION_S_MAX, "ERR DURATION must be between 1 and 1000000")?;
            plan.duration_ms = seconds.unsigned_abs() * 1000;
        } else if turn.is(at, "sample") {
            plan.ratio = within(1, i64::MAX, "ERR SAMPLE ratio must be positive")?.unsigned_abs();
        } else if turn.is(at, "slots") {
            return Err(Error::fixed("ERR SLOTS parameter cannot be used in non-cluster mode"));
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    Ok(plan)
}

fn start(turn: &mut Turn<'_, '_>) -> Outcome {
    let plan = parse(turn)?;
    let (engine, now_ms) = (turn.engine(), turn.now_ms());
    engine.hot_keys.look(now_ms, || engine.figures(now_ms));
    if !engine.hot_keys.start(plan, engine.figures(now_ms)) {
        return Err(Error::fixed("ERR hotkey tracking session already in progress"));
    }
    turn.reply.ok();
    Ok(())
}

fn stop(turn: &mut Turn<'_, '_>) -> Outcome {
    let (engine, now_ms) = (turn.engine(), turn.now_ms());
    engine.hot_keys.look(now_ms, || engine.figures(now_ms));
    if engine.hot_keys.stop(engine.figures(now_ms)) {
        turn.reply.ok();
    } else {
        turn.reply.null();
    }
    Ok(())
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    let (engine, now_ms) = (turn.engine(), turn.now_ms());
    engine.hot_keys.look(now_ms, || engine.figures(now_ms));
    if !engine.hot_keys.reset() {
        return Err(Error::fixed("ERR hotkey tracking session in progress, stop tracking first"));
    }
    turn.reply.ok();
    Ok(())
}

fn get(turn: &mut Turn<'_, '_>) -> Outcome {
    let (engine, now_ms) = (turn.engine(), turn.now_ms());
    engine.hot_keys.look(now_ms, || engine.figures(now_ms));
    let Some(report) = engine.hot_keys.report(engine.figures(now_ms)) else {
        turn.reply.null();
        return Ok(());
    };
    let plan = report.plan;
    let grown = report.grown;
    let mut fields = vec![
        ("all-commands-all-slots-us", report.us),
        ("net-bytes-all-commands-all-slots", report.bytes),
        ("collection-start-time-unix-ms", report.began_ms),
        ("collection-duration-ms", grown.at_ms),
    ];
    if plan.cpu {
        fields.push(("total-cpu-time-user-ms", grown.user_us / 1000));
        fields.push(("total-cpu-time-sys-ms", grown.system_us / 1000));
    }
    if plan.net {
        fields.push(("total-net-bytes", grown.net_bytes));
    }
    let tops = [(plan.cpu, "by-cpu-time-us", &report.by_time), (plan.net, "by-net-bytes", &report.by_bytes)];
    let tops: Vec<_> = tops.into_iter().filter(|(is_counted, ..)| *is_counted).collect();
    let reply = &mut turn.reply;
    reply.array(1);
    reply.map(3 + fields.len() + tops.len());
    reply.bulk("tracking-active");
    reply.int(i64::from(report.is_active));
    reply.bulk("sample-ratio");
    reply.int(plan.ratio as i64);
    reply.bulk("selected-slots");
    reply.array(1);
    reply.array(SLOTS.len());
    SLOTS.into_iter().for_each(|slot| reply.int(slot));
    for (name, figure) in fields {
        reply.bulk(name);
        reply.int(figure as i64);
    }
    for (_, name, keys) in tops {
        reply.bulk(name);
        reply.array(2 * keys.len());
        for (key, count) in keys {
            reply.bulk(key);
            reply.int(*count as i64);
        }
    }
    Ok(())
}

fn hotkeys_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
        "    Begin to count by key: microseconds of commands (CPU), bytes of requests and",
        "    replies (NET). GET answers k keys (default: 10). One command of <ratio> is",
        "    counted, chosen at random (default: all).",
        "STOP",
        "    End counting. GET still answers.",
        "GET",
        "    Return the counts.",
        "RESET",
        "    Drop the counts.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Bench, check, request};

    #[test]
    fn options_are_checked() {
        check(&[
            ("hotkeys get", "$-1"),
            ("hotkeys stop", "$-1"),
            ("hotkeys reset", "+OK"),
            ("hotkeys start", "-ERR METRICS parameter is required"),
            ("hotkeys start metrics", "-ERR METRICS parameter is required"),
            ("hotkeys start metrics 0", "-ERR METRICS count must be > 0 and <= 2"),
            ("hotkeys start metrics x cpu", "-ERR METRICS count must be > 0 and <= 2"),
            ("hotkeys start metrics 1", "-ERR METRICS count does not match number of metric types provided"),
            ("hotkeys start metrics 2 cpu", "-ERR METRICS count does not match number of metric types provided"),
            ("hotkeys start metrics 1 bogus", "-ERR METRICS no valid metrics passed. Supported: CPU|NET"),
            ("hotkeys start metrics 2 cpu cpu", "-ERR METRICS CPU defined more than once!"),
            ("hotkeys start metrics 1 cpu count 65", "-ERR COUNT must be between 1 and 64"),
            ("hotkeys start metrics 1 cpu duration -1", "-ERR DURATION must be between 1 and 1000000"),
            ("hotkeys start metrics 1 cpu sample 0", "-ERR SAMPLE ratio must be positive"),
            ("hotkeys start metrics 1 cpu slots 1 5", "-ERR SLOTS parameter cannot be used in non-cluster mode"),
            ("hotkeys start metrics 1 cpu bogus", "-ERR syntax error"),
            ("hotkeys start metrics 1 cpu", "+OK"),
            ("hotkeys start metrics 1 cpu", "-ERR hotkey tracking session already in progress"),
            ("hotkeys reset", "-ERR hotkey tracking session in progress, stop tracking first"),
            ("hotkeys stop", "+OK"),
            ("hotkeys stop", "$-1"),
            ("hotkeys reset", "+OK"),
            ("hotkeys get", "$-1"),
        ]);
    }

    #[test]
    fn bytes_are_counted_by_key_and_end_with_the_time() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[("hotkeys start metrics 1 net count 2 duration 10", "+OK")]);
        let all = [
            request(&["SET", "a", "12345678901234567890"]),
            request(&["GET", "b"]),
            request(&["MULTI"]),
            request(&["GET", "a"]),
            request(&["EXEC"]),
            request(&["MGET", "a", "b"]),
            request(&["PING"]),
        ];
        bench.run(&mut session, &all.concat());
        bench.now_us += 11_000_000;
        let told = bench.line(&mut session, "hotkeys get");
        // 47 + 5 of SET, 20 + 27 of GET within the transaction, half of 28 + 36 of MGET; 20 + 5 of GET and half of
        // MGET.
        assert!(told.contains("|$12|by-net-bytes|*4|$1|a|:131|$1|b|:57"), "{told}");
        assert!(told.starts_with("*1|*18|$15|tracking-active|:0|$12|sample-ratio|:1|"), "{told}");
        bench.check(&mut session, &[("get a", "$20|12345678901234567890"), ("hotkeys stop", "$-1")]);
        assert_eq!(bench.line(&mut session, "hotkeys get"), told);
    }
}
