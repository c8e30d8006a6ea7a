//! Tests of pipelines that stop at their first failure.

use resp::reply::{Output, Proto};

use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::inbox::Message;
use crate::testing::{Bench, check, request};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

/// Returns a reply of PIPELINE SYNC in RESP2.
fn synced(executed: u64, skipped: u64, failure: Option<(u64, &str)>) -> String {
    let (failed, error) =
        failure.map_or((0, "$-1".into()), |(position, error)| (position, format!("${}|{error}", error.len())));
    format!("*8|$8|executed|:{executed}|$6|failed|:{failed}|$5|error|{error}|$7|skipped|:{skipped}")
}

fn skipped(position: u64, error: &str) -> String {
    format!("-ABORTED after command {position}: {error}")
}

/// Opens a connection that stops at failures, with a string at `k` and a list at `l`.
fn aborting() -> (Bench, Session) {
    let mut bench = Bench::default();
    let mut session = bench.open();
    bench.check(&mut session, &[("set k v", "+OK"), ("rpush l x", ":1"), ("pipeline abort on", "+OK")]);
    (bench, session)
}

/// Checks replies of a connection that stops at failures.
fn check_aborting(script: &[(&str, &str)]) {
    let (mut bench, mut session) = aborting();
    bench.check(&mut session, script);
}

#[test]
fn commands_behind_a_failure_are_skipped_until_the_sync() {
    check_aborting(&[
        ("set a 1", "+OK"),
        ("get l", &format!("-{WRONG_TYPE}")),
        ("set a 2", &skipped(2, WRONG_TYPE)),
        ("nosuch", &skipped(2, WRONG_TYPE)),
        ("ping", &skipped(2, WRONG_TYPE)),
        ("pipeline sync", &synced(2, 3, Some((2, WRONG_TYPE)))),
        ("get a", "$1|1"),
        ("pipeline sync", &synced(1, 0, None)),
        ("pipeline sync", &synced(0, 0, None)),
        ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
        ("get a", &skipped(1, "ERR unknown command 'nosuch', with args beginning with: ")),
        ("pipeline abort off", "+OK"),
        ("get a", "$1|1"),
        (
            "pipeline sync",
            "-ERR PIPELINE SYNC needs PIPELINE ABORT ON; without it, commands behind a failing one are executed",
        ),
    ]);
}

#[test]
fn the_mode_is_off_at_first_and_after_reset() {
    check(&[("get", "-ERR wrong number of arguments for 'get' command"), ("ping", "+PONG")]);
    check_aborting(&[
        ("incr k", &format!("-{NOT_INTEGER}")),
        ("ping", &skipped(1, NOT_INTEGER)),
        ("reset", "+RESET"),
        ("incr k", &format!("-{NOT_INTEGER}")),
        ("ping", "+PONG"),
    ]);
}

#[test]
fn the_words_choose_the_errors() {
    check_aborting(&[
        ("pipeline abort on redirects", "+OK"),
        ("incr k", &format!("-{NOT_INTEGER}")),
        ("ping", "+PONG"),
        ("eval \"return redis.error_reply('MOVED 1 h:1')\" 0", "-MOVED 1 h:1"),
        ("ping", &skipped(3, "MOVED 1 h:1")),
        ("pipeline abort on errors", "+OK"),
        ("ping", &skipped(3, "MOVED 1 h:1")),
        ("pipeline sync", &synced(3, 2, Some((3, "MOVED 1 h:1")))),
        ("eval \"return redis.error_reply('ASK 1 h:1')\" 0", "-ASK 1 h:1"),
        ("ping", "+PONG"),
        ("pipeline abort on REDIRECTS ERRORS", "+OK"),
        ("pipeline abort on errors errors", "-ERR syntax error"),
        ("pipeline abort on nosuch", "-ERR syntax error"),
        ("pipeline abort nosuch", "-ERR syntax error"),
        ("pipeline abort off errors", "-ERR syntax error"),
        ("pipeline abort", "-ERR wrong number of arguments for 'pipeline|abort' command"),
        ("eval \"return redis.error_reply('CLUSTERDOWN x')\" 0", "-CLUSTERDOWN x"),
        ("ping", &skipped(3, "CLUSTERDOWN x")),
    ]);
}

#[test]
fn pipeline_commands_neither_count_nor_stop_the_pipeline() {
    check_aborting(&[
        ("pipeline status nosuch", "-NOTOKEN There is no such pipeline token, or it has expired"),
        ("pipeline nosuch", "-ERR unknown subcommand 'nosuch'. Try PIPELINE HELP."),
        ("pipeline sync now", "-ERR wrong number of arguments for 'pipeline|sync' command"),
        ("incr k", &format!("-{NOT_INTEGER}")),
        ("pipeline nosuch", "-ERR unknown subcommand 'nosuch'. Try PIPELINE HELP."),
        ("ping", &skipped(1, NOT_INTEGER)),
        ("pipeline sync", &synced(1, 1, Some((1, NOT_INTEGER)))),
    ]);
}

#[test]
fn a_failure_while_queueing_discards_the_transaction() {
    check_aborting(&[
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("set a 2", &skipped(3, "ERR wrong number of arguments for 'get' command")),
        ("exec", &skipped(3, "ERR wrong number of arguments for 'get' command")),
        ("pipeline sync", &synced(3, 2, Some((3, "ERR wrong number of arguments for 'get' command")))),
        ("exec", "-ERR EXEC without MULTI"),
        ("pipeline sync", &synced(1, 0, Some((1, "ERR EXEC without MULTI")))),
        ("exists a", ":0"),
        ("multi", "+OK"),
        ("multi", "-ERR MULTI calls can not be nested"),
        ("exec", &skipped(3, "ERR MULTI calls can not be nested")),
    ]);
}

#[test]
fn an_error_among_the_replies_of_exec_fails_exec() {
    check_aborting(&[
        ("multi", "+OK"),
        ("incr k", "+QUEUED"),
        ("set a 1", "+QUEUED"),
        ("exec", &format!("*2|-{NOT_INTEGER}|+OK")),
        ("get a", &skipped(4, NOT_INTEGER)),
        ("pipeline sync", &synced(4, 1, Some((4, NOT_INTEGER)))),
        ("get a", "$1|1"),
    ]);
}

#[test]
fn a_sync_within_a_transaction_is_refused_and_spoils_it() {
    check_aborting(&[
        ("multi", "+OK"),
        ("pipeline sync", "-ERR Command not allowed inside a transaction"),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ("ping", &skipped(2, "EXECABORT Transaction discarded because of previous errors.")),
        ("pipeline sync", &synced(2, 1, Some((2, "EXECABORT Transaction discarded because of previous errors.")))),
        ("ping", "+PONG"),
    ]);
}

#[test]
fn a_transaction_that_a_watched_key_prevents_is_a_failure() {
    let (mut bench, mut session) = aborting();
    let mut other = bench.open();
    bench.check(&mut session, &[("watch a", "+OK"), ("multi", "+OK"), ("set a 1", "+QUEUED")]);
    bench.check(&mut other, &[("set a 2", "+OK")]);
    let error = "EXECABORT Transaction discarded because a watched key has changed";
    bench.check(
        &mut session,
        &[("exec", "*-1"), ("ping", &skipped(4, error)), ("pipeline sync", &synced(4, 1, Some((4, error))))],
    );
}

#[test]
fn watched_keys_stay_watched_until_an_exec_even_if_skipped() {
    for ends in [false, true] {
        let (mut bench, mut session) = aborting();
        let mut other = bench.open();
        bench.check(&mut session, &[("watch a", "+OK"), ("incr k", &format!("-{NOT_INTEGER}"))]);
        if ends {
            bench.check(&mut session, &[("exec", &skipped(2, NOT_INTEGER))]);
        }
        bench.line(&mut session, "pipeline sync");
        bench.check(&mut other, &[("set a 2", "+OK")]);
        bench.check(&mut session, &[("multi", "+OK"), ("ping", "+QUEUED")]);
        bench.check(&mut session, &[("exec", if ends { "*1|+PONG" } else { "*-1" })]);
    }
}

#[test]
fn scripts_fail_by_their_reply() {
    check_aborting(&[
        ("eval \"redis.pcall('incr', 'k') return 1\" 1 k", ":1"),
        ("ping", "+PONG"),
        ("eval \"redis.call('set', KEYS[1], 1) return redis.error_reply('MY error')\" 1 a", "-MY error"),
        ("get a", &skipped(3, "MY error")),
        ("pipeline sync", &synced(3, 1, Some((3, "MY error")))),
        ("get a", "$1|1"),
    ]);
}

#[test]
fn a_batch_is_answered_in_order_and_a_failure_ends_its_effects() {
    for count in [3, 64, 65, 200] {
        let (mut bench, mut session) = aborting();
        let mut bytes = request(&["incr", "n"]).repeat(count);
        bytes.extend(request(&["incr", "k"]));
        bytes.extend(request(&["incr", "n"]).repeat(count));
        bytes.extend(request(&["pipeline", "sync"]));
        bytes.extend(request(&["get", "n"]));
        let (out, _) = bench.run(&mut session, &bytes);
        let mut expected: String = (1..=count).map(|n| format!(":{n}|")).collect();
        expected += &format!("-{NOT_INTEGER}|");
        expected += &format!("{}|", skipped(count as u64 + 1, NOT_INTEGER)).repeat(count);
        expected += &synced(count as u64 + 1, count as u64, Some((count as u64 + 1, NOT_INTEGER)));
        expected += &format!("|${}|{count}|", count.to_string().len());
        assert_eq!(String::from_utf8(out).unwrap().replace("\r\n", "|"), expected);
    }
}

#[test]
fn suppressed_replies_fail_too() {
    check_aborting(&[
        ("client reply off", ""),
        ("incr k", ""),
        ("set a 1", ""),
        ("client reply on", ""),
        ("pipeline sync", ""),
        ("client reply on", "+OK"),
        ("exists a", ":0"),
        ("client reply skip", ""),
        ("incr k", ""),
        ("ping", &skipped(4, NOT_INTEGER)),
    ]);
}

#[test]
fn quit_runs_and_other_commands_about_the_connection_are_skipped() {
    check_aborting(&[
        ("incr k", &format!("-{NOT_INTEGER}")),
        ("hello 3", &skipped(1, NOT_INTEGER)),
        ("auth x", &skipped(1, NOT_INTEGER)),
        ("subscribe c", &skipped(1, NOT_INTEGER)),
        ("select 1", &skipped(1, NOT_INTEGER)),
        ("monitor", &skipped(1, NOT_INTEGER)),
        ("quit", "+OK"),
    ]);
}

#[test]
fn a_subscriber_may_sync() {
    let error = "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    check_aborting(&[
        ("subscribe c", "*3|$9|subscribe|$1|c|:1"),
        ("get a", &format!("-{error}")),
        ("unsubscribe c", &skipped(2, error)),
        ("pipeline sync", &synced(2, 1, Some((2, error)))),
        ("unsubscribe c", "*3|$11|unsubscribe|$1|c|:0"),
    ]);
}

#[test]
fn the_sync_is_a_map_in_resp3() {
    let (mut bench, mut session) = aborting();
    session.set_proto(Proto::Resp3);
    bench.check(&mut session, &[("pipeline sync", "%4|$8|executed|:0|$6|failed|:0|$5|error|_|$7|skipped|:0")]);
}

#[test]
fn a_monitor_sees_executed_commands_only() {
    let (mut bench, mut session) = aborting();
    let mut monitor = bench.open();
    bench.check(&mut monitor, &[("monitor", "+OK")]);
    bench.line(&mut session, "incr k");
    bench.line(&mut session, "set unseen 1");
    let seen = bench.arrived(&mut monitor);
    assert!(seen.contains("\"incr\"") && !seen.contains("unseen"), "{seen}");
}

/// Makes the connection wait for `b`, answers it by another one, and returns the reply.
fn served(bench: &mut Bench, session: &mut Session, line: &str) -> String {
    let mut other = bench.open();
    assert_eq!(bench.run(session, b"blmpop 0 1 b left\r\n").1, Progress::Parked);
    bench.line(&mut other, &line.replace("<id>", &session.client.id.to_string()));
    let mut out = Output::default();
    for message in bench.worker.engine.inboxes[0].take() {
        if let Message::Unpark { mut output, .. } = message {
            bench.worker.resume(session, &mut output, &mut out);
        }
    }
    String::from_utf8(out.slices().collect::<Vec<_>>().concat()).unwrap().replace("\r\n", "|")
}

#[test]
fn a_blocked_command_counts_and_fails_when_it_is_answered() {
    let (mut bench, mut session) = aborting();
    assert_eq!(served(&mut bench, &mut session, "rpush b x"), "*2|$1|b|*1|$1|x|");
    bench.check(&mut session, &[("ping", "+PONG")]);
    let unblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    assert_eq!(served(&mut bench, &mut session, "client unblock <id> error"), format!("-{unblocked}|"));
    bench.check(
        &mut session,
        &[("ping", &skipped(3, unblocked)), ("pipeline sync", &synced(3, 1, Some((3, unblocked))))],
    );
}

#[test]
fn a_resumed_pipeline_skips_what_the_old_connection_would_have_skipped() {
    let (mut bench, mut old) = aborting();
    bench.check(
        &mut old,
        &[
            ("ping", "+PONG"),
            ("pipeline start t", "+OK"),
            ("incr k", &format!("-{NOT_INTEGER}")),
            ("set a 1", &skipped(2, NOT_INTEGER)),
        ],
    );
    let mut new = bench.open();
    let aborted = skipped(2, NOT_INTEGER);
    let progress = format!(
        "*8|$8|executed|:2|$6|failed|:2|$8|failures|*2|*2|:1|${}|{NOT_INTEGER}|*2|:2|${}|{}|$8|database|:0",
        NOT_INTEGER.len(),
        aborted.len() - 1,
        &aborted[1..]
    );
    bench.check(
        &mut new,
        &[
            ("pipeline resume t", &progress),
            ("set a 1", &aborted),
            ("pipeline sync", &synced(2, 2, Some((2, NOT_INTEGER)))),
            ("set a 1", "+OK"),
            ("incr k", &format!("-{NOT_INTEGER}")),
            ("ping", &skipped(2, NOT_INTEGER)),
            // Without its token, the connection keeps the mode and the failure.
            ("pipeline end t", "+OK"),
            ("ping", &skipped(2, NOT_INTEGER)),
            ("pipeline sync", &synced(2, 2, Some((2, NOT_INTEGER)))),
            ("incr k", &format!("-{NOT_INTEGER}")),
            ("ping", &skipped(1, NOT_INTEGER)),
        ],
    );
}

#[test]
fn a_connection_with_the_mode_takes_it_to_a_token_without_it() {
    let (mut bench, mut old) = aborting();
    bench.check(&mut old, &[("pipeline abort off", "+OK"), ("pipeline start t", "+OK"), ("ping", "+PONG")]);
    let mut new = bench.open();
    bench.check(&mut new, &[("pipeline abort on", "+OK"), ("ping", "+PONG")]);
    bench.line(&mut new, "pipeline resume t");
    bench.check(
        &mut new,
        &[
            ("incr k", &format!("-{NOT_INTEGER}")),
            ("ping", &skipped(2, NOT_INTEGER)),
            // RESET ends the mode of the token as well.
            ("reset", "+RESET"),
        ],
    );
    let mut third = bench.open();
    bench.line(&mut third, "pipeline resume t");
    bench.check(&mut third, &[("incr k", &format!("-{NOT_INTEGER}")), ("ping", "+PONG")]);
}

#[test]
fn info_shows_the_limits_and_the_mode() {
    let (mut bench, mut session) = aborting();
    let shown = |abort: &str, token: &str, failed: u64| {
        format!(
            "*16|$5|token|{token}|$5|abort|${}|{abort}|$6|failed|:{failed}|$18|reply-memory-limit|:1048576|$17|reply-memory-used|:0|\
             $17|reply-spill-limit|:4294967296|$16|reply-spill-used|:0|$19|reply-stall-timeout|:60",
            abort.len()
        )
    };
    bench.check(
        &mut session,
        &[
            ("pipeline info", &shown("all", "$-1", 0)),
            ("incr k", &format!("-{NOT_INTEGER}")),
            ("pipeline start t", "+OK"),
            ("pipeline abort on redirects", "+OK"),
            ("pipeline info", &shown("redirects", "$1|t", 1)),
            ("pipeline abort off", "+OK"),
            ("pipeline info", &shown("off", "$1|t", 0)),
            ("pipeline end t", "+OK"),
            ("pipeline info", &shown("off", "$-1", 0)),
        ],
    );
}
