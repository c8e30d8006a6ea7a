//! Tests of the count, its moment, and the connections that may count.

use resp::reply::{Output, Proto};

use super::*;
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::inbox::Message;
use crate::pipelines::abort::{AbortOn, AbortState};
use crate::pipelines::nodes::ForwardState;
use crate::pipelines::{ERROR_BYTES_MAX, FAILURES_MAX, Failure};
use crate::testing::{Bench, check, request};
use config::{Loader, Settings};

const UNKNOWN_TOKEN: &str = "-NOTOKEN There is no such pipeline token, or it has expired";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Returns a reply of STATUS in RESP2, with database 0 selected.
fn counted(executed: u64, failures: &[(u64, &str)]) -> String {
    counted_in(0, executed, failures)
}

/// Returns a reply of STATUS in RESP2, with this database selected.
fn counted_in(database: usize, executed: u64, failures: &[(u64, &str)]) -> String {
    let mut text = format!("*8|$8|executed|:{executed}|$6|failed|:{}|$8|failures|*{}", failures.len(), failures.len());
    for (position, error) in failures {
        text += &format!("|*2|:{position}|${}|{error}", error.len());
    }
    text + &format!("|$8|database|:{database}")
}

/// Opens a connection that counts for a new token.
fn started(bench: &mut Bench, token: &str) -> Session {
    let mut session = bench.open();
    bench.check(&mut session, &[(&format!("pipeline start {token}"), "+OK")]);
    session
}

fn executed(bench: &mut Bench, token: &str) -> u64 {
    bench.worker.engine.pipelines.get(token.as_bytes(), bench.now_us / 1000).unwrap().executed()
}

/// Lets time pass like the server's clock.
fn wait(bench: &mut Bench, seconds: u64) {
    bench.now_us += seconds * 1_000_000;
    bench.worker.begin_turn(bench.now_us);
    bench.worker.engine.sample(bench.now_us / 1000, bench.now_us / 1000);
}

/// Returns the connections that the thread was told to close since the last call.
pub(super) fn told_to_close(bench: &Bench) -> Vec<u64> {
    let closed = |m: Message| if let Message::Close { client } = m { Some(client) } else { None };
    bench.worker.engine.inboxes[0].take().into_iter().filter_map(closed).collect()
}

#[test]
fn executed_and_refused_commands_count_but_pipeline_commands_do_not() {
    check(&[
        ("set before v", "+OK"),
        ("pipeline start t", "+OK"),
        ("pipeline status t", &counted(0, &[])),
        ("set k v", "+OK"),
        ("lpush k x", &format!("-{WRONG_TYPE}")),
        ("pipeline nosuch", "-ERR unknown subcommand 'nosuch'. Try PIPELINE HELP."),
        ("pipeline status", "-ERR wrong number of arguments for 'pipeline|status' command"),
        ("pipeline", "-ERR wrong number of arguments for 'pipeline' command"),
        ("pipeline status other", UNKNOWN_TOKEN),
        ("get", "-ERR wrong number of arguments for 'get' command"),
        ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
        ("keys none", "*0"),
        ("mget k none", "*2|$1|v|$-1"),
        (
            "PIPELINE STATUS t",
            &counted(
                6,
                &[
                    (2, WRONG_TYPE),
                    (3, "ERR wrong number of arguments for 'get' command"),
                    (4, "ERR unknown command 'nosuch', with args beginning with: "),
                ],
            ),
        ),
        ("pipeline end t", "+OK"),
        ("pipeline end t", UNKNOWN_TOKEN),
        ("pipeline status t", UNKNOWN_TOKEN),
        ("set k v", "+OK"),
        ("pipeline resume t", UNKNOWN_TOKEN),
    ]);
}

#[test]
fn a_pipeline_begins_and_ends_within_a_batch() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    let (reply, _) = bench.run(
        &mut session,
        b"INCR k\r\nPIPELINE START t\r\nINCR k\r\nINCR k\r\nPIPELINE STATUS t\r\nINCR k\r\nPIPELINE END t\r\nINCR k\r\n",
    );
    let text = String::from_utf8(reply).unwrap().replace("\r\n", "|");
    assert_eq!(text, format!(":1|+OK|:2|:3|{}|:4|+OK|:5|", counted(2, &[])));
}

#[test]
fn tokens_are_bounded_in_size_and_number() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"pipeline-tokens-max".to_vec(), b"2".to_vec()]).unwrap();
    let mut bench = Bench::with(settings);
    let mut session = bench.open();
    let too_long = "x".repeat(TOKEN_BYTES_MAX + 1);
    let bad_size = "-ERR A pipeline token has 1 to 256 bytes";
    let bad_ttl = "-ERR invalid expire time in 'pipeline|start' command";
    bench.check(
        &mut session,
        &[
            (&format!("pipeline start {too_long}"), bad_size),
            ("pipeline start \"\"", bad_size),
            ("pipeline start t ttl", "-ERR syntax error"),
            ("pipeline start t px 1", "-ERR syntax error"),
            ("pipeline start t ttl x", "-ERR value is not an integer or out of range"),
            ("pipeline start t ttl 0", bad_ttl),
            ("pipeline start t ttl -1", bad_ttl),
            ("pipeline start t ttl 4294967296", bad_ttl),
            (&format!("pipeline start {} ttl 4294967295", &too_long[1..]), "+OK"),
            (&format!("pipeline start {}", &too_long[1..]), &text_of(&OTHER_TOKEN)),
        ],
    );
    let mut other = bench.open();
    bench.check(
        &mut other,
        &[
            (&format!("pipeline start {}", &too_long[1..]), &text_of(&EXISTS)),
            ("pipeline start t", "+OK"),
            ("pipeline start u", &text_of(&OTHER_TOKEN)),
            (&format!("pipeline resume {}", &too_long[1..]), &text_of(&OTHER_TOKEN)),
            ("pipeline end t", "+OK"),
            ("pipeline start u", "+OK"),
        ],
    );
    let mut third = bench.open();
    assert!(bench.line(&mut third, "pipeline start v").starts_with("-ERR There are 2 pipeline tokens already"));
    assert!(bench.line(&mut third, "info clients").contains("|pipeline_tokens:2|"));
    wait(&mut bench, 3601);
    assert!(bench.line(&mut third, "pipeline start v").starts_with('-'), "both are in use");
    bench.worker.close(&mut other);
    wait(&mut bench, 3601);
    bench.check(&mut third, &[("pipeline start v", "+OK")]);
}

fn text_of(error: &Error) -> String {
    format!("-{}", String::from_utf8_lossy(error.text()))
}

#[test]
fn resume_returns_the_count_and_closes_the_old_connection() {
    let mut bench = Bench::default();
    let mut old = started(&mut bench, "t");
    bench.check(&mut old, &[("incr k", ":1"), ("incr k", ":2")]);
    let mut new = bench.open();
    bench.check(&mut new, &[("pipeline resume t", &counted(2, &[]))]);
    assert_eq!(told_to_close(&bench), [old.client.id]);
    assert!(bench.worker.engine.clients.get(old.client.id).is_none());
    assert_eq!(bench.run(&mut old, b"INCR k\r\n"), (Vec::new(), Progress::Closing));
    bench.worker.close(&mut old);
    bench.check(&mut new, &[("incr k", ":3"), ("pipeline status t", &counted(3, &[]))]);
}

#[test]
fn a_thread_checks_the_token_again_after_it_left_the_gate() {
    let mut bench = Bench::default();
    let mut old = started(&mut bench, "t");
    bench.check(&mut old, &[("incr k", ":1")]);
    // RESUME takes the token in the middle of a window, without a later check for killed connections.
    let engine = bench.worker.engine;
    let new = bench.open();
    let (_, before) = engine.pipelines.hand_over(b"t", new.client.id, bench.now_us / 1000).unwrap();
    assert_eq!(before, Some(old.client.id));
    for input in [&b"INCR k\r\nINCR k\r\n"[..], b"KEYS *\r\n", b"MULTI\r\n", b"BLPOP l 0\r\n"] {
        assert_eq!(bench.run(&mut old, input), (Vec::new(), Progress::Closing));
    }
    assert_eq!(executed(&mut bench, "t"), 1);
}

#[test]
fn a_lost_token_never_returns_to_the_old_connection() {
    let mut bench = Bench::default();
    let (mut old, mut new) = (started(&mut bench, "t"), bench.open());
    let engine = bench.worker.engine;
    let _ = engine.pipelines.hand_over(b"t", new.client.id, bench.now_us / 1000);
    new.set_tally(Some(Box::new(Tally::new(engine.pipelines.get(b"t", bench.now_us / 1000).unwrap()))));
    assert!(old.has_lost_token() && new.begin_counted(None));
    bench.worker.close(&mut new);
    assert!(!old.begin_counted(None), "the other is gone");
    let mut third = bench.open();
    bench.check(&mut third, &[("pipeline resume t", &counted(0, &[])), ("pipeline end t", "+OK")]);
    old.client.pending_signals.kill();
    assert!(!old.begin_counted(None), "the token is gone");
    assert!(third.begin_counted(None) && third.tally().is_none());
}

#[test]
fn a_command_that_runs_alone_is_counted_before_the_gate_opens() {
    let mut bench = Bench::default();
    let mut old = started(&mut bench, "t");
    let engine = bench.worker.engine;
    let mut inside = Some(engine.keyspace.gate().enter(0));
    assert!(old.begin_counted(None));
    let progress = bench.worker.alone(&mut old, &mut inside, |_, _, _| Progress::Ready).unwrap();
    assert_eq!((progress, executed(&mut bench, "t")), (Progress::Ready, 1));
    // The token is taken over while the thread waits for the others to leave the gate.
    assert!(old.begin_counted(None));
    let other = bench.open();
    let _ = engine.pipelines.hand_over(b"t", other.client.id, bench.now_us / 1000);
    let progress = bench.worker.alone(&mut old, &mut inside, |_, _, _| unreachable!("it must not run")).unwrap();
    old.count(progress, &bench.worker.engine.watchers);
    assert_eq!((progress, executed(&mut bench, "t")), (Progress::Gone, 1));
}

#[test]
fn a_connection_may_resume_its_own_token_and_the_last_of_several_has_it() {
    let mut bench = Bench::default();
    let mut first = started(&mut bench, "t");
    let mut second = bench.open();
    bench.check(&mut first, &[("incr k", ":1"), ("pipeline resume t", &counted(1, &[])), ("incr k", ":2")]);
    assert_eq!(told_to_close(&bench), [] as [u64; 0]);
    let mut third = bench.open();
    bench.check(&mut second, &[("pipeline resume t", &counted(2, &[]))]);
    bench.check(&mut third, &[("pipeline resume t", &counted(2, &[])), ("incr k", ":3")]);
    assert_eq!(told_to_close(&bench), [first.client.id, second.client.id]);
    assert_eq!(bench.run(&mut second, b"INCR k\r\n"), (Vec::new(), Progress::Closing));
    assert_eq!(executed(&mut bench, "t"), 3);
}

#[test]
fn a_transaction_counts_when_exec_or_discard_has_run() {
    let mut bench = Bench::default();
    let mut old = started(&mut bench, "t");
    let mut other = bench.open();
    bench.check(
        &mut old,
        &[
            ("multi", "+OK"),
            ("incr k", "+QUEUED"),
            ("lpush k x", "+QUEUED"),
            ("multi", "-ERR MULTI calls can not be nested"),
            ("incr k", "+QUEUED"),
        ],
    );
    assert_eq!(executed(&mut bench, "t"), 0);
    bench.check(&mut old, &[("exec", &format!("*3|:1|-{WRONG_TYPE}|:2"))]);
    let failures = [(3, WRONG_TYPE), (4, "ERR MULTI calls can not be nested")];
    bench.check(&mut old, &[("pipeline status t", &counted(6, &failures))]);
    bench.check(&mut old, &[("multi", "+OK"), ("incr k", "+QUEUED"), ("discard", "+OK"), ("multi", "+OK")]);
    bench.check(&mut old, &[("flushall", "+QUEUED"), ("set k 5", "+QUEUED")]);
    assert_eq!(executed(&mut bench, "t"), 9);
    bench.check(&mut old, &[("exec", "*2|+OK|+OK"), ("multi", "+OK"), ("incr k", "+QUEUED")]);
    assert_eq!(executed(&mut bench, "t"), 13);
    // The connection breaks before EXEC: nothing of the transaction has run.
    bench.check(&mut other, &[("pipeline resume t", &counted(13, &failures)), ("get k", "$1|5")]);
    assert_eq!(bench.run(&mut old, b"EXEC\r\n"), (Vec::new(), Progress::Closing));
    assert_eq!(executed(&mut bench, "t"), 14);
}

#[test]
fn a_transaction_that_does_not_run_is_a_failure_of_exec() {
    let mut bench = Bench::default();
    let mut session = started(&mut bench, "t");
    let mut other = bench.open();
    bench.check(&mut session, &[("watch k", "+OK"), ("multi", "+OK"), ("incr k", "+QUEUED")]);
    bench.check(&mut other, &[("set k 1", "+OK")]);
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    let within = "ERR Command not allowed inside a transaction";
    bench.check(
        &mut session,
        &[
            ("exec", "*-1"),
            ("multi", "+OK"),
            ("pipeline resume t", &format!("-{within}")),
            ("exec", &format!("-{aborted}")),
            ("multi", "+OK"),
            ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
            ("exec", &format!("-{aborted}")),
            ("get k", "$1|1"),
            (
                "pipeline status t",
                &counted(
                    10,
                    &[
                        (4, "EXECABORT Transaction discarded because a watched key has changed"),
                        (6, aborted),
                        (8, "ERR unknown command 'nosuch', with args beginning with: "),
                        (9, aborted),
                    ],
                ),
            ),
        ],
    );
}

#[test]
fn a_blocking_command_counts_when_it_is_served_not_when_its_reply_arrives() {
    let mut bench = Bench::default();
    let (mut old, mut other) = (started(&mut bench, "t"), bench.open());
    assert_eq!(bench.run(&mut old, b"INCR k\r\nBLPOP l 0\r\nINCR k\r\n"), (b":1\r\n".to_vec(), Progress::Parked));
    assert_eq!(executed(&mut bench, "t"), 1);
    bench.check(&mut other, &[("rpush l a b", ":2"), ("pipeline resume t", &counted(2, &[]))]);
    // The reply comes later, and the connection then has nothing to run.
    let mut message = bench.worker.engine.inboxes[0].take();
    let Some(Message::Unpark { mut output, .. }) = message.pop_front() else { unreachable!("it was served") };
    bench.worker.resume(&mut old, &mut output, &mut Output::default());
    assert_eq!(bench.run(&mut old, b"INCR k\r\n"), (Vec::new(), Progress::Closing));
    bench.check(&mut other, &[("lrange l 0 -1", "*1|$1|b"), ("get k", "$1|1")]);
}

#[test]
fn a_blocking_command_that_was_not_served_has_not_run() {
    let mut bench = Bench::default();
    let (mut old, mut other) = (started(&mut bench, "t"), bench.open());
    assert_eq!(bench.run(&mut old, b"BLPOP l 0\r\n"), (Vec::new(), Progress::Parked));
    bench.check(&mut other, &[("pipeline resume t", &counted(0, &[])), ("rpush l a", ":1"), ("llen l", ":1")]);
    assert!(!bench.worker.time_out(&mut old, &mut Output::default()), "no thread answers it any more");
    bench.worker.close(&mut old);
    assert_eq!(executed(&mut bench, "t"), 2);
    // Closing the connection first has this effect, too, by itself or by CLIENT KILL.
    assert_eq!(bench.run(&mut other, b"BLPOP l2 0\r\n"), (Vec::new(), Progress::Parked));
    let mut third = bench.open();
    bench.check(&mut third, &[(&format!("client kill id {}", other.client.id), ":1"), ("rpush l2 a", ":1")]);
    bench.check(&mut third, &[("pipeline resume t", &counted(2, &[]))]);
    assert_eq!(bench.run(&mut third, b"BLPOP l3 0\r\n"), (Vec::new(), Progress::Parked));
    bench.worker.close(&mut third);
    bench.worker.close(&mut other);
    let mut fourth = bench.open();
    bench.check(&mut fourth, &[("rpush l3 a", ":1"), ("pipeline resume t", &counted(2, &[]))]);
}

#[test]
fn a_wait_that_times_out_counts() {
    let mut bench = Bench::default();
    let (mut session, mut other) = (started(&mut bench, "t"), bench.open());
    assert_eq!(bench.run(&mut session, b"BLPOP l 1\r\n"), (Vec::new(), Progress::Parked));
    wait(&mut bench, 2);
    assert!(bench.worker.time_out(&mut session, &mut Output::default()));
    assert_eq!(executed(&mut bench, "t"), 1);
    let unblock = format!("client unblock {} error", session.client.id);
    assert_eq!(bench.run(&mut session, b"BLPOP l 0\r\n"), (Vec::new(), Progress::Parked));
    bench.check(&mut other, &[(&unblock, ":1")]);
    let unblocked = (2, "UNBLOCKED client unblocked via CLIENT UNBLOCK");
    bench.check(&mut other, &[("pipeline status t", &counted(2, &[unblocked]))]);
    // The command fails once it is served.
    bench.worker.resume(&mut session, &mut Output::default(), &mut Output::default());
    assert_eq!(bench.run(&mut session, b"BLMOVE l m LEFT LEFT 0\r\n"), (Vec::new(), Progress::Parked));
    bench.check(&mut other, &[("set m 1", "+OK"), ("rpush l a", ":1")]);
    bench.check(&mut other, &[("pipeline status t", &counted(3, &[unblocked, (3, WRONG_TYPE)]))]);
}

#[test]
fn a_command_held_by_client_pause_has_not_run() {
    let mut bench = Bench::default();
    let (mut old, mut other) = (started(&mut bench, "t"), bench.open());
    bench.check(&mut other, &[("client pause 100000 write", "+OK")]);
    assert_eq!(bench.run(&mut old, b"GET k\r\nINCR k\r\n"), (b"$-1\r\n".to_vec(), Progress::Paused));
    bench.check(&mut other, &[("pipeline resume t", &counted(1, &[])), ("client unpause", "+OK")]);
    assert_eq!(bench.run(&mut old, b"INCR k\r\n"), (Vec::new(), Progress::Closing));
    bench.check(&mut other, &[("get k", "$-1"), ("incr k", ":1"), ("pipeline status t", &counted(4, &[]))]);
}

#[test]
fn a_command_that_awaits_the_next_turn_has_not_run() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"yes".to_vec()]).unwrap();
    let mut bench = Bench::with(settings);
    let (mut old, mut other) = (started(&mut bench, "t"), bench.open());
    let slow = request(&["debug", "sleep", "0.005"]);
    let input = [&slow, &b"INCR k\r\n"[..]].concat();
    let mut out = Output::default();
    let (at, ran) = bench.worker.run(&mut old, input[..].into(), 0, &mut out);
    assert_eq!((at, ran), (slow.len(), Progress::Yielded));
    bench.check(&mut other, &[("pipeline resume t", &counted(1, &[])), ("get k", "$-1")]);
    assert_eq!(bench.worker.run(&mut old, input[..].into(), at, &mut out).1, Progress::Closing);
    bench.check(&mut other, &[("get k", "$-1")]);
}

#[test]
fn reset_counts_and_releases_the_token() {
    let mut bench = Bench::default();
    let mut session = started(&mut bench, "t");
    bench.check(&mut session, &[("multi", "+OK"), ("incr k", "+QUEUED"), ("reset", "+RESET"), ("incr k", ":1")]);
    let mut other = bench.open();
    bench.check(&mut other, &[("select 2", "+OK"), ("pipeline resume t", &counted(3, &[]))]);
    assert_eq!(told_to_close(&bench), [] as [u64; 0]);
    // RESET selects database 0, where its connection would have continued.
    bench.check(&mut other, &[("select 5", "+OK"), ("reset", "+RESET"), ("pipeline resume t", &counted(5, &[]))]);
    // QUIT counts like any other command.
    assert_eq!(bench.run(&mut other, b"QUIT\r\nINCR k\r\n"), (b"+OK\r\n".to_vec(), Progress::Closing));
    assert_eq!(executed(&mut bench, "t"), 6);
}

/// Commands with their replies after a START in database 3, and the resulting database, count and failures.
type Case<'c> = (&'c [(&'c str, &'c str)], usize, u64, &'c [(u64, &'c str)]);

#[test]
fn resume_selects_the_database_after_the_last_counted_command() {
    const RANGE: &str = "ERR DB index is out of range";
    const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
    let arity = "ERR wrong number of arguments for 'select' command";
    let cases: &[Case<'_>] = &[
        (&[], 3, 0, &[]),
        (&[("select 4", "+OK")], 4, 1, &[]),
        (&[("select 4", "+OK"), ("get k", "$-1")], 4, 2, &[]),
        (&[("select 99", &format!("-{RANGE}"))], 3, 1, &[(1, RANGE)]),
        (&[("select 4 x", &format!("-{arity}"))], 3, 1, &[(1, arity)]),
        (&[("multi", "+OK"), ("select 4", "+QUEUED"), ("exec", "*1|+OK")], 4, 3, &[]),
        (&[("multi", "+OK"), ("select 99", "+QUEUED"), ("exec", &format!("*1|-{RANGE}"))], 3, 3, &[(2, RANGE)]),
        (&[("multi", "+OK"), ("select 4", "+QUEUED"), ("discard", "+OK")], 3, 3, &[]),
        (&[("multi", "+OK"), ("select 4", "+QUEUED")], 3, 0, &[]),
        (&[("select 5", "+OK"), ("multi", "+OK"), ("select 4", "+QUEUED")], 5, 1, &[]),
        (
            &[
                ("multi", "+OK"),
                ("select 4", "+QUEUED"),
                ("select 4 x", &format!("-{arity}")),
                ("exec", &format!("-{ABORTED}")),
            ],
            3,
            4,
            &[(3, arity), (4, ABORTED)],
        ),
        // A script's selection ends with the script.
        (&[("eval \"return redis.call('select', 4)\" 0", "+OK")], 3, 1, &[]),
        // The selection is the database's number, regardless of its contents.
        (&[("select 4", "+OK"), ("swapdb 4 5", "+OK")], 4, 2, &[]),
        (&[("pipeline resume t", &counted_in(3, 0, &[])), ("select 6", "+OK")], 6, 1, &[]),
    ];
    for (commands, database, executed, failures) in cases {
        let mut bench = Bench::default();
        let (mut old, mut new) = (bench.open(), bench.open());
        bench.check(&mut old, &[("select 3", "+OK"), ("pipeline start t", "+OK")]);
        bench.check(&mut old, commands);
        let counted = counted_in(*database, *executed, failures);
        bench.check(&mut new, &[("select 7", "+OK"), ("pipeline status t", &counted), ("set k v", "+OK")]);
        bench.check(&mut new, &[("pipeline resume t", &counted), ("get k", "$-1"), ("set here 1", "+OK")]);
        let shown = format!(" db={database} ");
        assert!(bench.line(&mut new, "client info").contains(&shown), "{commands:?}");
        let mut third = bench.open();
        bench.check(&mut third, &[(&format!("select {database}"), "+OK"), ("exists here", ":1")]);
    }
}

#[test]
fn a_wait_keeps_the_selected_database() {
    let mut bench = Bench::default();
    let (mut old, mut other) = (started(&mut bench, "t"), bench.open());
    assert_eq!(bench.run(&mut old, b"SELECT 2\r\nBLPOP l 0\r\n"), (b"+OK\r\n".to_vec(), Progress::Parked));
    bench.check(&mut other, &[("select 2", "+OK"), ("rpush l a", ":1"), ("select 0", "+OK")]);
    bench.check(&mut other, &[("pipeline resume t", &counted_in(2, 2, &[]))]);
}

#[test]
fn the_holder_of_a_removed_token_continues_uncounted() {
    let mut bench = Bench::default();
    let (mut session, mut other) = (started(&mut bench, "t"), bench.open());
    bench.check(&mut session, &[("incr k", ":1")]);
    bench.check(&mut other, &[("pipeline end t", "+OK"), ("pipeline start t", "+OK"), ("incr k", ":2")]);
    bench.check(&mut session, &[("incr k", ":3"), ("pipeline status t", &counted(1, &[]))]);
    bench.check(&mut session, &[("pipeline start u", "+OK"), ("incr k", ":4"), ("pipeline end u", "+OK")]);
    bench.check(&mut session, &[("pipeline start u", "+OK"), ("pipeline status u", &counted(0, &[]))]);
    assert_eq!(told_to_close(&bench), [] as [u64; 0]);
}

#[test]
fn a_token_expires_some_time_after_its_connection_has_gone() {
    let mut bench = Bench::default();
    let mut first = bench.open();
    bench.check(&mut first, &[("pipeline start t ttl 10", "+OK")]);
    wait(&mut bench, 1000);
    bench.check(&mut first, &[("incr k", ":1")]);
    bench.worker.close(&mut first);
    wait(&mut bench, 9);
    let mut second = bench.open();
    bench.check(&mut second, &[("pipeline resume t", &counted(1, &[]))]);
    wait(&mut bench, 1000);
    bench.check(&mut second, &[("pipeline status t", &counted(1, &[]))]);
    bench.worker.close(&mut second);
    assert_eq!(bench.worker.engine.pipelines.count(), 1);
    wait(&mut bench, 10);
    assert_eq!(bench.worker.engine.pipelines.count(), 0);
    let mut third = bench.open();
    bench.check(&mut third, &[("pipeline resume t", UNKNOWN_TOKEN), ("pipeline list", "*0")]);
}

#[test]
fn suppressed_replies_count() {
    let mut bench = Bench::default();
    let mut session = started(&mut bench, "t");
    bench.check(&mut session, &[("client reply off", ""), ("set k v", ""), ("lpush k x", ""), ("nosuch", "")]);
    bench.check(&mut session, &[("client reply on", "+OK")]);
    let unknown = "ERR unknown command 'nosuch', with args beginning with: ";
    bench.check(&mut session, &[("pipeline status t", &counted(5, &[(3, WRONG_TYPE), (4, unknown)]))]);
}

#[test]
fn a_command_refused_for_lack_of_memory_counts_as_failed() {
    let mut bench = Bench::default();
    let mut session = started(&mut bench, "t");
    bench.check(&mut session, &[("config set maxmemory 1mb", "+OK")]);
    bench.used_memory.store(2 << 20, std::sync::atomic::Ordering::Relaxed);
    let text = "OOM command not allowed when used memory > 'maxmemory'.";
    let refused = format!("-{text}");
    bench.check(&mut session, &[("set k v", &refused), ("pipeline status t", &counted(2, &[(2, text)]))]);
    bench.check(&mut session, &[("pipeline end t", "+OK"), ("pipeline start t", &refused)]);
}

#[test]
fn failures_are_bounded() {
    let mut bench = Bench::default();
    let mut session = started(&mut bench, "t");
    let long = "x".repeat(200);
    bench.line(&mut session, "multi");
    for _ in 0..FAILURES_MAX {
        bench.line(&mut session, &long);
    }
    bench.line(&mut session, &long);
    bench.line(&mut session, "exec");
    bench.line(&mut session, &long);
    let progress = bench.worker.engine.pipelines.get(b"t", 0).unwrap().progress();
    let (executed, failed) = (FAILURES_MAX as u64 + 4, FAILURES_MAX as u64 + 3);
    assert_eq!((progress.executed, progress.failed, progress.failures.len()), (executed, failed, FAILURES_MAX));
    assert!(progress.failures.iter().all(|f| f.error.len() == ERROR_BYTES_MAX));
    assert!(progress.failures.iter().map(|f| f.position).eq(2..FAILURES_MAX as u64 + 2));
}

#[test]
fn a_token_can_be_recreated_from_its_state() {
    let failures = vec![Failure { position: 3, error: b"ERR x"[..].into() }];
    let state = TokenState {
        token: b"t"[..].into(),
        user: b"al"[..].into(),
        ttl_ms: 1000,
        holder: None,
        expires_ms: Some(5),
        abort: Some(AbortState { on: AbortOn::Errors, synced: -2, failure: failures.first().cloned() }),
        progress: PipelineProgress { executed: 7, failed: 2, failures, database: 3 },
        forward: Some(ForwardState { generation: 9, name: b"n"[..].into() }),
    };
    assert_eq!(Pipeline::from(state.clone()).state(), state);
}

#[test]
fn lists_and_maps() {
    let mut bench = Bench::default();
    let (mut first, mut second) = (started(&mut bench, "b"), bench.open_with(Proto::Resp3));
    bench.check(&mut second, &[("pipeline start a ttl 5", "+OK"), ("nosuch", &text_of(&unknown("nosuch")))]);
    bench.worker.close(&mut second);
    wait(&mut bench, 1);
    bench.check(
        &mut first,
        &[(
            "pipeline list",
            "*2|*10|$5|token|$1|a|$6|client|:0|$3|ttl|:4|$8|executed|:1|$6|failed|:1\
             |*10|$5|token|$1|b|$6|client|:1|$3|ttl|:-1|$8|executed|:0|$6|failed|:0",
        )],
    );
    let mut third = bench.open_with(Proto::Resp3);
    let failures = "*1|*2|:1|$56|ERR unknown command 'nosuch', with args beginning with: ";
    let expected = format!("%4|$8|executed|:1|$6|failed|:1|$8|failures|{failures}|$8|database|:0");
    bench.check(&mut third, &[("pipeline resume a", &expected)]);
    assert!(bench.line(&mut third, "pipeline help").starts_with("*27|+PIPELINE <subcommand>"));
}

fn unknown(name: &str) -> Error {
    Error::new(format!("ERR unknown command '{name}', with args beginning with: "))
}

#[test]
fn a_token_belongs_to_its_user_and_to_unrestricted_users() {
    let mut bench = Bench::default();
    let mut admin = bench.open();
    for user in ["al", "bo"] {
        bench.check(&mut admin, &[(&format!("acl setuser {user} on nopass ~* &* +@all -flushall"), "+OK")]);
    }
    let open_as = |bench: &mut Bench, user: &str| {
        let mut session = bench.open();
        bench.check(&mut session, &[(&format!("auth {user} x"), "+OK")]);
        session
    };
    let (mut al, mut bo) = (open_as(&mut bench, "al"), open_as(&mut bench, "bo"));
    bench.check(&mut al, &[("pipeline start t", "+OK"), ("set k v", "+OK")]);
    let refused = text_of(&NOT_OWN);
    bench.check(
        &mut bo,
        &[
            ("pipeline resume t", &refused),
            ("pipeline status t", &refused),
            ("pipeline end t", &refused),
            ("pipeline resume u", UNKNOWN_TOKEN),
        ],
    );
    bench.check(&mut al, &[("pipeline status t", &counted(1, &[]))]);
    for (rules, reply) in [
        ("~* +@all", &*counted(1, &[])),
        ("(~* +@all) ~k", &counted(1, &[])),
        ("~* +@all db=0", &refused),
        ("~k* +@all", &refused),
        ("~* &* +@all -get", &refused),
    ] {
        bench.check(&mut admin, &[(&format!("acl setuser cy reset on nopass {rules}"), "+OK")]);
        let mut other = open_as(&mut bench, "cy");
        bench.check(&mut other, &[("pipeline status t", reply)]);
    }
    bench.check(&mut admin, &[("pipeline status t", &counted(1, &[])), ("pipeline resume t", &counted(1, &[]))]);
    let mut again = open_as(&mut bench, "al");
    bench.check(&mut again, &[("pipeline resume t", &counted(1, &[])), ("pipeline end t", "+OK")]);
}

#[test]
fn a_token_is_in_its_records() {
    let bench = Bench::default();
    let failures = vec![Failure { position: 3, error: b"ERR x"[..].into() }];
    let stopped = AbortState { on: AbortOn::All, synced: 4, failure: failures.first().cloned() };
    let aborts = [None, Some(AbortState::new(AbortOn::Redirects, 7)), Some(stopped)];
    for (user, failures) in [("default", vec![]), ("al", vec![]), ("default", failures.clone()), ("al", failures)] {
        for abort in aborts.clone() {
            let forward = abort.as_ref().map(|_| ForwardState { generation: 9, name: user.as_bytes().into() });
            let (failed, failures) = (failures.len() as u64, failures.clone());
            let progress = PipelineProgress { executed: 7, failed, failures, database: 3 };
            let (token, user) = (b"t"[..].into(), user.as_bytes().into());
            let (ttl_ms, holder, expires_ms) = (1000, None, Some(1005));
            let state = TokenState { token, user, ttl_ms, holder, expires_ms, progress, abort, forward };
            let pipelines = &bench.worker.engine.pipelines;
            assert!(state.records().iter().all(|record| pipelines.replay_record(record, 5)));
            assert_eq!(pipelines.states(6), [state]);
        }
    }
}
