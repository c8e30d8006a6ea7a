//! Output of monitors, with and without options.

use resp::request::OwnedArgs;

use super::*;
use crate::registry::table;
use crate::testing::Bench;

fn check(words: &[&[u8]], expected: &str) {
    let args = OwnedArgs::new(words.iter().copied());
    let command = table().find(words[0]).and_then(|c| table().resolve(c, args.args())).unwrap();
    let line = timed(1_700_000_000_000_123, &text(3, "127.0.0.1:5", command, args.args()));
    assert_eq!(line, format!("1700000000.000123 [3 127.0.0.1:5] {expected}"));
}

#[test]
fn arguments_are_quoted() {
    check(&[b"GET", b"a b"], r#""GET" "a b""#);
    check(&[b"set", b"", b"\"\\\n\r\t\x07\x08\0\x7f\xff"], r#""set" "" "\"\\\n\r\t\a\b\x00\x7f\xff""#);
}

#[test]
fn monitors_see_commands_except_administration() {
    let mut bench = Bench::default();
    let (mut monitor, mut other) = (bench.open(), bench.open());
    let shown =
        |text: &str| text.split('|').map(|l| l.split_once(' ').map_or("", |(_, l)| l).to_string()).collect::<Vec<_>>();
    bench.check(&mut monitor, &[("monitor", "+OK"), ("monitor", "")]);
    let lines = ["set k 1", "nosuch", "get", "multi", "incr k", "exec", "config get port", "select 2", "auth x"];
    lines.iter().for_each(|line| drop(bench.line(&mut other, line)));
    let expected = [
        r#"[0 127.0.0.1:1] "set" "k" "1""#,
        r#"[0 127.0.0.1:1] "multi""#,
        r#"[0 127.0.0.1:1] "incr" "k""#,
        r#"[0 127.0.0.1:1] "exec""#,
        r#"[2 127.0.0.1:1] "select" "2""#,
        r#"[2 127.0.0.1:1] "auth" "(redacted)""#,
    ];
    assert_eq!(shown(&bench.arrived(&mut monitor)), expected);
    let own = bench.line(&mut monitor, "ping");
    assert_eq!(
        own.split_once('|').map(|(reply, line)| (reply, shown(line))),
        Some(("+PONG", vec![r#"[0 127.0.0.1:1] "ping""#.to_string()]))
    );
    bench.check(
        &mut monitor,
        &[("get k", "-ERR Replica can't interact with the keyspace"), ("reset", "+RESET"), ("get k", "$1|2")],
    );
    bench.line(&mut other, "ping");
    assert_eq!(bench.arrived(&mut monitor), "");
}

#[test]
fn dropped_lines_are_reported_in_the_form_of_a_command() {
    let expected = "+1700000000.000123 [0 0.0.0.0:0] \"monitor\" \"dropped\" \"7\"\r\n";
    assert_eq!(String::from_utf8_lossy(&dropped_line(1_700_000_000_000_123, 7)), expected);
}

#[test]
fn passwords_are_hidden() {
    check(&[b"auth", b"p"], r#""auth" "(redacted)""#);
    check(&[b"auth", b"u", b"p"], r#""auth" "(redacted)" "(redacted)""#);
    check(&[b"acl", b"setuser", b"al", b">p"], r#""acl" "setuser" "(redacted)" "(redacted)""#);
    check(&[b"acl", b"whoami"], r#""acl" "whoami""#);
    check(&[b"auth", b"u", b"p", b"x"], r#""auth" "u" "p" "x""#);
    check(&[b"hello", b"3", b"auth", b"u", b"p"], r#""hello" "3" "auth" "(redacted)" "(redacted)""#);
    check(
        &[b"hello", b"3", b"setname", b"auth", b"AUTH", b"u", b"p", b"x"],
        r#""hello" "3" "setname" "auth" "AUTH" "(redacted)" "(redacted)" "x""#,
    );
    check(&[b"hello", b"3", b"auth", b"u"], r#""hello" "3" "auth" "u""#);
}

/// Returns the lines that a monitor with these options shows of these batches, without times. A batch is a connection's
/// name, `>`, and its commands separated by `;`.
fn shown(options: &str, batches: &[&str]) -> Vec<String> {
    let mut bench = Bench::default();
    let mut monitor = bench.open();
    let mut others: Vec<(&str, Session)> = Vec::new();
    for name in ["a", "b"] {
        let mut session = bench.open();
        bench.line(&mut session, &format!("client setname {name}"));
        others.push((name, session));
    }
    assert_eq!(bench.line(&mut monitor, &format!("monitor {options}")), "+OK", "{options}");
    let mut lines = Vec::new();
    for batch in batches {
        let (name, commands) = batch.split_once('>').unwrap();
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let bytes = commands.split(';').flat_map(|line| crate::testing::request(&words(line))).collect::<Vec<u8>>();
        let session = others.iter_mut().find(|(other, _)| *other == name).map(|(_, session)| session).unwrap();
        bench.run(session, &bytes);
        let text = bench.arrived(&mut monitor);
        let texts = text.split('|').filter(|line| !line.is_empty());
        lines.extend(texts.map(|line| line.split_once("] ").unwrap().1.to_string()));
    }
    lines
}

fn check_options(options: &str, batches: &[&str], expected: &[&str]) {
    assert_eq!(shown(options, batches), expected, "{options}");
}

#[test]
fn options_choose_commands_keys_and_connections() {
    let sent = ["a>set k:1 v;get k:1;get other", "b>get k:2;mget x k:3;client list;ping"];
    check_options("command GET", &sent, &[r#""get" "k:1""#, r#""get" "other""#, r#""get" "k:2""#]);
    check_options("command set ping", &sent, &[r#""set" "k:1" "v""#, r#""ping""#]);
    check_options("match k:*", &sent[1..], &[r#""get" "k:2""#, r#""mget" "x" "k:3""#]);
    check_options("match x match other", &sent, &[r#""get" "other""#, r#""mget" "x" "k:3""#]);
    check_options("client name a command get", &sent, &[r#""get" "k:1""#, r#""get" "other""#]);
    check_options("client name nobody", &sent, &[]);
    check_options("client user default client addr 127.0.0.1:1 match other", &sent, &[r#""get" "other""#]);
    check_options("client id 2 client id 3 match other", &sent, &[r#""get" "other""#]);
    check_options("client id 3 match other", &sent, &[]);
    check_options("client laddr 127.0.0.1:7 match other", &sent, &[]);
    check_options("command client|setname", &["a>client setname a;client getname"], &[r#""client" "setname" "a""#]);
}

#[test]
fn a_batch_line_precedes_its_first_shown_command() {
    check_options(
        "batches",
        &["a>ping", "b>ping;set k 1;ping"],
        &["batch 1", r#""ping""#, "batch 3", r#""ping""#, r#""set" "k" "1""#, r#""ping""#],
    );
    check_options(
        "batches command set",
        &["a>ping", "b>ping;set k 1;set k 2"],
        &["batch 3", r#""set" "k" "1""#, r#""set" "k" "2""#],
    );
    let deep = format!("a>{}", vec!["get k"; 300].join(";"));
    let lines = shown("batches", &[&deep]);
    assert_eq!((lines[0].as_str(), lines.len()), ("batch 300", 301));
}

#[test]
fn replies_follow_their_commands() {
    let long = format!("a>set long {}", "x".repeat(1000));
    check_options(
        "replies command get set incr eval exec",
        &["a>set k 5", "a>get k", "a>incr no:1;get nothing", "a>set k x;incr k", "a>multi;get k;exec"],
        &[
            r#""set" "k" "5" => "+OK\r\n""#,
            r#""get" "k" => "$1\r\n5\r\n""#,
            r#""incr" "no:1" => ":1\r\n""#,
            r#""get" "nothing" => "$-1\r\n""#,
            r#""set" "k" "x" => "+OK\r\n""#,
            r#""incr" "k" => "-ERR value is not an integer or out of range\r\n""#,
            r#""get" "k" => "$1\r\nx\r\n""#,
            r#""exec" => "*1\r\n$1\r\nx\r\n""#,
        ],
    );
    let lines = shown("replies command get", &[&long, "a>get long"]);
    let (shown_bytes, more) = lines[0].split_once(" => ").unwrap().1.rsplit_once(" +").unwrap();
    // Two quotes, and a line end that is two bytes but four characters.
    assert_eq!((shown_bytes.len(), more), (512 + 2 + 2, "497"), "{} bytes in all", "$1000\r\n".len() + 1000 + 2);
}

/// A script's line precedes those of its commands, except if its reply is shown.
#[test]
fn scripts_are_shown_with_what_they_run() {
    let script = ["a>eval return(redis.call('get',KEYS[1])) 1 k"];
    let (eval, get) = (r#""eval" "return(redis.call('get',KEYS[1]))" "1" "k""#, r#""get" "k""#);
    check_options("match *", &script, &[eval, get]);
    let null = r#" => "$-1\r\n""#;
    check_options("replies", &script, &[&format!("{get}{null}"), &format!("{eval}{null}")]);
}

#[test]
fn sample_shows_one_command_in_n() {
    let batch = format!("a>{}", vec!["get k"; 1000].join(";"));
    let batches: Vec<&str> = vec![batch.as_str(); 20];
    let lines = shown("sample 100", &batches);
    assert!((120..300).contains(&lines.len()), "{}", lines.len());
    assert_eq!(shown("sample 1", &batches[..1]).len(), 1000);
}

#[test]
fn wrong_options_are_refused() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    for options in ["x", "sample", "match", "command", "client", "client id", "command batches", "client foo 1"] {
        assert_eq!(bench.line(&mut session, &format!("monitor {options}")), "-ERR syntax error", "{options}");
    }
    for options in ["sample 0", "sample x", "sample 1000000001", "command nosuch", "client id 0"] {
        assert!(bench.line(&mut session, &format!("monitor {options}")).starts_with("-ERR "), "{options}");
    }
    bench.check(&mut session, &[("monitor replies", "+OK"), ("monitor", "")]);
    assert!(bench.line(&mut session, "monitor batches").starts_with("-ERR this connection runs MONITOR already"));
    bench.check(&mut session, &[("reset", "+RESET"), ("ping", "+PONG")]);
}

/// A monitor without options sees everything in the usual form, regardless of the options of others.
#[test]
fn monitors_do_not_disturb_each_other() {
    let mut bench = Bench::default();
    let (mut all, mut some, mut other) = (bench.open(), bench.open(), bench.open());
    bench.check(&mut some, &[("monitor sample 1000 replies batches", "+OK")]);
    bench.check(&mut all, &[("monitor", "+OK")]);
    (0..100).for_each(|_| drop(bench.line(&mut other, "ping")));
    let text = bench.arrived(&mut all);
    assert_eq!(text.matches(r#"[0 127.0.0.1:1] "ping""#).count(), 100, "{text}");
    assert!(!text.contains("batch") && !text.contains("=>"), "{text}");
    bench.check(&mut all, &[("reset", "+RESET")]);
    bench.arrived(&mut some);
    (0..5).for_each(|_| drop(bench.line(&mut other, "ping")));
    bench.check(&mut some, &[("reset", "+RESET")]);
    (0..3000).for_each(|_| drop(bench.line(&mut other, "ping")));
    assert_eq!(bench.arrived(&mut some), "");
}
