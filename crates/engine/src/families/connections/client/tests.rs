//! Tests of CLIENT.

use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::inbox::Message;
use crate::testing::{Bench, check};

/// Delivers the messages in the thread's inbox, like the server's loop; returns the numbers of connections to close.
fn deliver(bench: &mut Bench, session: &mut Session) -> (String, Vec<u64>) {
    let (mut shown, mut closed) = (String::new(), Vec::new());
    for message in bench.worker.engine.inboxes[0].take() {
        match message {
            Message::Unpark { client, mut output, .. } => {
                assert_eq!(client, session.client.id);
                let mut out = resp::reply::Output::default();
                bench.worker.resume(session, &mut output, &mut out);
                shown += &String::from_utf8_lossy(&out.slices().collect::<Vec<_>>().concat());
            }
            Message::Close { client } => closed.push(client),
            Message::Dropped { .. }
            | Message::Apply { .. }
            | Message::Lanes
            | Message::Acknowledged
            | Message::Migrated
            | Message::Look
            | Message::SlotsChanged
            | Message::ClusterAnswered { .. }
            | Message::DropSlots
            | Message::TellReplicas
            | Message::SlotImports
            | Message::ClientsMoved
            | Message::Room { .. } => {}
        }
    }
    (shown.replace("\r\n", "|"), closed)
}

#[test]
fn names_are_kept_and_checked() {
    check(&[
        ("client getname", "$-1"),
        ("client setname me", "+OK"),
        ("client getname", "$2|me"),
        ("client setname \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters."),
        ("client setname \"\"", "+OK"),
        ("client getname", "$-1"),
        ("client setinfo lib-name x", "+OK"),
        ("client setinfo LIB-VER \"1 2\"", "-ERR LIB-VER cannot contain spaces, newlines or special characters."),
        ("client setinfo nosuch x", "-ERR Unrecognized option 'nosuch'"),
        ("client setinfo \"no\\x00such\" x", "-ERR Unrecognized option 'no'"),
        ("client id", ":1"),
        ("client getredir", ":-1"),
        ("client nosuch", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
    ]);
}

#[test]
fn touch_counts_as_use_despite_no_touch() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    bench.check(&mut session, &[("set k v", "+OK"), ("client no-touch on", "+OK")]);
    bench.now_us += 100_000_000;
    bench.check(&mut session, &[("get k", "$1|v"), ("object idletime k", ":100")]);
    bench.check(&mut session, &[("touch k none", ":1"), ("object idletime k", ":0")]);
    bench.now_us += 100_000_000;
    let script = "EVAL \"return redis.call('touch', KEYS[1])\" 1 k";
    bench.check(&mut session, &[("get k", "$1|v"), (script, ":1"), ("object idletime k", ":0")]);
}

#[test]
fn client_reply_suppresses_replies() {
    check(&[
        ("client reply skip", ""),
        ("ping", ""),
        ("ping", "+PONG"),
        ("client reply skip", ""),
        ("client reply on", "+OK"),
        ("client reply off", ""),
        ("client reply skip", ""),
        ("ping", ""),
        ("nosuch", ""),
        ("client reply on", "+OK"),
        ("multi", "+OK"),
        ("ping", "+QUEUED"),
        ("client reply off", "+QUEUED"),
        ("ping", "+QUEUED"),
        ("exec", "*3|+PONG"),
        ("multi", ""),
        ("ping", ""),
        ("client reply on", ""),
        ("ping", ""),
        ("exec", "+OK|+PONG"),
        ("multi", "+OK"),
        ("client reply skip", "+QUEUED"),
        ("ping", "+QUEUED"),
        ("exec", "*2|+PONG"),
        ("ping", ""),
        ("ping", "+PONG"),
        ("client reply nosuch", "-ERR syntax error"),
    ]);
}

#[test]
fn the_list_shows_every_connection_in_redis_form() {
    let mut bench = Bench::default();
    let (mut a, mut b) = (bench.open(), bench.open());
    bench.line(&mut b, "client setname other");
    bench.line(&mut b, "subscribe x y");
    bench.now_us += 61_000_000;
    let line = |id: u32, name: &str, flags: &str, sub: u32, cmd: &str| {
        let input = if id == 1 { "OWN" } else { "0" };
        format!(
            "id={id} addr=127.0.0.1:1 laddr=127.0.0.1:6379 fd=8 name={name} age=61 idle=61 flags={flags} db=0 \
             sub={sub} psub=0 ssub=0 multi=-1 watch=0 qbuf={input} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=SIZE events=r cmd={cmd} user=default redir=-1 resp=2 lib-name= lib-ver= \
             tot-net-in=0 tot-net-out=0 tot-cmds=N avg-pipeline-len-sum=N avg-pipeline-len-cnt=N"
        )
    };
    let fixed = |shown: String| {
        let fixed_word = |word: &str| match word.split_once('=') {
            Some(("tot-mem", _)) => "tot-mem=SIZE".to_string(),
            Some((name @ ("tot-cmds" | "avg-pipeline-len-sum" | "avg-pipeline-len-cnt"), _)) => format!("{name}=N"),
            _ => word.to_string(),
        };
        let fixed_line = |line: &str| line.split(' ').map(fixed_word).collect::<Vec<_>>().join(" ") + "\n";
        let text = shown.split_once('|').map_or("", |(_, text)| text).to_string();
        text.lines().map(fixed_line).collect::<String>()
    };
    let (own, other) = (line(1, "", "N", 0, "client|list"), line(2, "other", "P", 2, "subscribe"));
    for (command, expected) in [
        ("client list", format!("{own}\n{other}\n")),
        ("client list type pubsub", format!("{other}\n")),
        ("client list type replica", String::new()),
        ("client list id 2 1 77", format!("{other}\n{own}\n")),
        ("client info", format!("{}\n", line(1, "", "N", 0, "client|info"))),
    ] {
        let sent = crate::testing::request(&command.split(' ').collect::<Vec<_>>()).len();
        let expected = expected.replace("qbuf=OWN", &format!("qbuf={sent}"));
        assert_eq!(fixed(bench.line(&mut a, command)), expected, "{command}");
    }
    bench.check(
        &mut a,
        &[
            ("client list type nosuch", "-ERR Unknown client type 'nosuch'"),
            ("client list id x", "-ERR Invalid client ID"),
            ("client list id", "-ERR syntax error"),
        ],
    );
}

#[test]
fn kill_applies_all_filters() {
    let mut bench = Bench::default();
    let mut a = bench.open();
    let mut b = bench.open();
    bench.line(&mut b, "subscribe x");
    bench.check(
        &mut a,
        &[
            ("client kill 1.2.3.4:5", "-ERR No such client"),
            ("client kill id 0", "-ERR client-id should be greater than 0"),
            ("client kill maxage 0", "-ERR maxage should be greater than 0"),
            ("client kill maxage 1", ":0"),
            ("client kill user nosuch", "-ERR No such user 'nosuch'"),
            ("client kill user \"no\\x00such\"", "-ERR No such user 'no'"),
            ("client kill type \"no\\x00such\"", "-ERR Unknown client type 'no'"),
            ("client kill type nosuch", "-ERR Unknown client type 'nosuch'"),
            ("client kill skipme maybe", "-ERR syntax error"),
            ("client kill id 2 type", "-ERR syntax error"),
            ("client kill id 2 type normal", ":0"),
            ("client kill id 1", ":0"),
            ("client kill id 2 type pubsub user default laddr 127.0.0.1:6379", ":1"),
            ("client kill id 2", ":0"),
        ],
    );
    assert_eq!(deliver(&mut bench, &mut b).1, [2]);
    assert_eq!(bench.run(&mut b, b"PING\r\n"), (Vec::new(), Progress::Closing));
    assert_eq!(
        bench.run(&mut a, b"client kill addr 127.0.0.1:1 skipme no\r\nPING\r\n"),
        (b":1\r\n".to_vec(), Progress::Closing)
    );
}

#[test]
fn a_killed_waiter_receives_nothing() {
    let mut bench = Bench::default();
    let (mut a, mut b) = (bench.open(), bench.open());
    assert_eq!(bench.run(&mut b, b"BLPOP l 0\r\n").1, Progress::Parked);
    bench.check(&mut a, &[("client kill id 2", ":1"), ("rpush l x", ":1"), ("llen l", ":1")]);
    bench.worker.close(&mut b);
    assert!(bench.worker.engine.waiters.is_empty());
}

/// Like in Valkey: changes by others are told before the reply, and changes by the client's own command after it.
#[test]
fn a_served_client_is_told_of_its_own_changes_behind_its_reply() {
    for (tracking, pushed, replied) in [
        ("client tracking on", ">2|$10|invalidate|*1|$1|l", "$1|x|>2|$10|invalidate|*1|$1|m|"),
        ("client tracking on noloop", ">2|$10|invalidate|*1|$1|l", "$1|x|"),
    ] {
        let mut bench = Bench::default();
        let (mut a, mut b) = (bench.open(), bench.open_with(resp::reply::Proto::Resp3));
        bench.check(&mut b, &[(tracking, "+OK"), ("lrange l 0 -1", "*0"), ("lrange m 0 -1", "*0")]);
        assert_eq!(bench.line(&mut b, "blmove l m left left 0"), "");
        bench.check(&mut a, &[("rpush l x", ":1")]);
        assert_eq!(bench.arrived(&mut b), pushed, "{tracking}");
        assert_eq!(deliver(&mut bench, &mut b).0, replied, "{tracking}");
    }
}

#[test]
fn unblock_ends_a_wait() {
    let mut bench = Bench::default();
    let (mut a, mut b) = (bench.open(), bench.open());
    for (command, skip, expected) in [
        ("client unblock 2", "", "*-1|"),
        ("client unblock 2 timeout", "", "*-1|"),
        ("client unblock 2 error", "", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"),
        ("client unblock 2", "CLIENT REPLY SKIP\r\n", ""),
    ] {
        let blocked = bench.run(&mut b, format!("{skip}BLMOVE l m LEFT LEFT 0\r\n").as_bytes());
        assert_eq!(blocked, (Vec::new(), Progress::Parked), "{command}");
        bench.check(&mut a, &[(command, ":1"), (command, ":0"), ("rpush l x", ":1"), ("del l", ":1")]);
        assert_eq!(deliver(&mut bench, &mut b).0, expected, "{command}");
        assert_eq!(bench.line(&mut b, "ping"), "+PONG");
    }
    bench.check(
        &mut a,
        &[
            ("client unblock 77", ":0"),
            ("client unblock x", "-ERR value is not an integer or out of range"),
            ("client unblock 2 nosuch", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ],
    );
}

#[test]
fn a_wait_that_ends_with_an_error_has_failed() {
    let mut bench = Bench::default();
    let (mut a, mut b) = (bench.open(), bench.open());
    let waits = [
        ("BLMOVE l m LEFT LEFT 0", "client unblock 2 error", ":1", "-UNBLOCKED client"),
        ("BLMOVE l m LEFT LEFT 0", "client unblock 2 timeout", ":1", "*-1|"),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS st >", "xgroup destroy st g", ":1", "-NOGROUP No such key"),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS st >", "del st", ":1", "-NOGROUP No such key"),
    ];
    for (wait, end, reply, expected) in waits {
        bench.line(&mut a, "DEL st");
        bench.line(&mut a, "XGROUP CREATE st g $ MKSTREAM");
        assert_eq!(bench.run(&mut b, format!("{wait}\r\n").as_bytes()), (Vec::new(), Progress::Parked));
        bench.check(&mut a, &[(end, reply)]);
        let answered = deliver(&mut bench, &mut b).0;
        assert!(answered.starts_with(expected), "{end}: {answered}");
    }
    let info = bench.line(&mut a, "INFO everything");
    let field = |name: &str| info.split('|').find_map(|line| line.strip_prefix(name)).unwrap_or("missing");
    for (name, calls, failed) in [("blmove", 2, 1), ("xreadgroup", 2, 2)] {
        let counts = field(&format!("cmdstat_{name}:"));
        assert!(counts.starts_with(&format!("calls={calls},")), "{name} {counts}");
        assert!(counts.ends_with(&format!("rejected_calls=0,failed_calls={failed}")), "{name} {counts}");
    }
    assert_eq!((field("errorstat_UNBLOCKED:"), field("errorstat_NOGROUP:")), ("count=1", "count=2"));
    assert_eq!(field("total_error_replies:"), "3");
}

#[test]
fn the_list_shows_blocked_commands() {
    let mut bench = Bench::default();
    let (mut a, mut b) = (bench.open(), bench.open());
    bench.line(&mut b, "ping");
    assert_eq!(bench.run(&mut b, b"BLPOP l 0\r\n").1, Progress::Parked);
    let list = bench.line(&mut a, "CLIENT LIST");
    let waiting = list.split('|').find(|line| line.contains("id=2 ")).unwrap_or_default();
    assert!(waiting.contains(" cmd=blpop "), "{waiting}");
}

#[test]
fn a_pause_holds_back_the_requested_commands() {
    let mut bench = Bench::default();
    let (mut a, mut b) = (bench.open(), bench.open());
    let held = (Vec::new(), Progress::Paused);
    bench.check(
        &mut a,
        &[
            ("client pause -1", "-ERR timeout is negative"),
            ("client pause x", "-ERR timeout is not an integer or out of range"),
            ("client pause 1 nosuch", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
            ("client pause 0", "+OK"),
            ("set k 1", "+OK"),
            ("client pause 1000 write", "+OK"),
            ("get k", "$1|1"),
        ],
    );
    assert_eq!(bench.run(&mut a, b"SET k 2\r\n"), held);
    assert_eq!(bench.run(&mut a, b"PUBLISH k 2\r\n"), held);
    assert_eq!(bench.run(&mut b, b"MULTI\r\nGET k\r\nSET k 2\r\n"), (b"+OK\r\n+QUEUED\r\n".to_vec(), Progress::Paused));
    bench.check(&mut a, &[("client unpause", "+OK"), ("set k 3", "+OK"), ("client pause 1000", "+OK")]);
    assert_eq!(bench.run(&mut a, b"PING\r\n"), held);
    bench.now_us += 999_000;
    assert_eq!(bench.run(&mut a, b"PING\r\n"), held);
    // The pause begins at the moment of the command, which the bench's clock doesn't show.
    bench.now_us += 60_000_000;
    bench.check(&mut a, &[("ping", "+PONG")]);
}

#[test]
fn a_pause_keeps_and_hides_expired_keys() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    let script = "return redis.call('GET', KEYS[1])";
    let reads = [
        ("get e", "$-1"),
        ("mget e e", "*2|$-1|$-1"),
        ("exists e", ":0"),
        ("ttl e", ":-2"),
        ("keys *", "*0"),
        ("randomkey", "$-1"),
        (&format!("eval_ro \"{script}\" 1 e"), "$-1"),
        ("multi", "+OK"),
        ("get e", "+QUEUED"),
        ("exec", "*1|$-1"),
        ("dbsize", ":1"),
    ];
    bench.check(&mut session, &[("set e v px 200", "+OK"), ("client pause 1500 write", "+OK")]);
    bench.now_us += 600_000;
    bench.check(&mut session, &reads);
    // After the pause, a command that finds the key removes it.
    bench.now_us += 1_000_000;
    bench.check(&mut session, &[("get e", "$-1"), ("dbsize", ":0")]);
}

#[test]
fn a_pause_within_a_transaction_keeps_expired_keys() {
    let due = |bench: &mut Bench, session: &mut Session| {
        bench.check(session, &[("set e v px 200", "+OK")]);
        bench.now_us += 600_000;
    };
    let mut bench = Bench::default();
    let mut session = bench.open();
    for (lines, replies) in [
        (["client pause 1500 write", "get e", "dbsize"], "*3|+OK|$-1|:1"),
        // A write applies to the existing value.
        (["client pause 1500 write", "append e w", "get e"], "*3|+OK|:1|$1|w"),
        (["client unpause", "get e", "dbsize"], "*3|+OK|$-1|:0"),
    ] {
        due(&mut bench, &mut session);
        bench.check(&mut session, &[("multi", "+OK")]);
        lines.iter().for_each(|line| bench.check(&mut session, &[(line, "+QUEUED")]));
        bench.check(&mut session, &[("exec", replies), ("client unpause", "+OK")]);
    }
}

#[test]
fn nothing_expires_while_data_are_imported() {
    let mut bench = Bench::default();
    let [mut importer, mut other] = [bench.open(), bench.open()];
    const REFUSED: &str = "-ERR Server is not in import mode";
    bench.check(&mut importer, &[("client import-source on", REFUSED), ("config set import-mode yes", "+OK")]);
    bench.check(
        &mut importer,
        &[("client import-source maybe", "-ERR syntax error"), ("client import-source on", "+OK")],
    );
    bench.check(&mut importer, &[("mset k v l w", "+OK"), ("pexpire k 10", ":1"), ("pexpire l 10", ":1")]);
    bench.now_us += 1_000_000;
    assert!(!bench.worker.look_for_expired(std::time::Duration::from_millis(100)));
    bench.check(&mut other, &[("get k", "$-1"), ("exists k", ":0"), ("dbsize", ":2"), ("keys *", "*0")]);
    bench.check(
        &mut importer,
        &[
            ("get k", "$1|v"),
            ("pttl k", ":0"),
            ("append k x", ":2"),
            ("eval \"return redis.call('get', 'k')\" 1 k", "$2|vx"),
        ],
    );
    assert!(bench.line(&mut importer, "client info").contains(" flags=I "));
    // A write by a client that doesn't import removes the expired key first.
    bench.check(&mut other, &[("append l y", ":1"), ("get l", "$1|y")]);
    bench.check(&mut importer, &[("reset", "+RESET"), ("get k", "$-1"), ("config set import-mode no", "+OK")]);
    bench.worker.look_for_expired(std::time::Duration::from_millis(100));
    bench.check(&mut other, &[("dbsize", ":1"), ("client import-source off", "+OK")]);
}
