//! DUMP and RESTORE against redis-server 7.0's payloads and replies.

use journal::record::{Entry, Record, entries};

use crate::testing::Bench;

const HELLO: &str = r#""\x00\x05hello\x0a\x00cr\xdfve4 \x0a""#;
const LIST: &str =
    r#""\x12\x01\x02\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x01\x01\xff\x0a\x00\xe0\x1b\xabJG\xceY\x22""#;
/// A set that has a member twice.
const TWICE: &str = r#""\x02\x02\x01a\x01a\x0a\x00W\xbev/\xc2\xd6R:""#;
const WRONG_CHECKSUM: &str = r#""\x00\x05hello\x0a\x00cr\xdfve4 !""#;
const TAKEN: &str = "-BUSYKEY Target key name already exists.";

/// RESTORE of a payload as this key, with a time to live and options.
fn restore(key: &str, ttl: &str, payload: &str, options: &str) -> String {
    format!("restore {key} {ttl} {payload} {options}")
}

fn check_all(bench: &mut Bench, script: &[(String, &str)]) {
    script.iter().for_each(|(line, expected)| bench.check(&[(line, expected)]));
}

#[test]
fn values_are_restored() {
    let mut bench = Bench::default();
    check_all(
        &mut bench,
        &[
            (restore("a", "0", HELLO, ""), "+OK"),
            ("get a".into(), "$5|hello"),
            ("ttl a".into(), ":-1"),
            (restore("a", "0", HELLO, ""), TAKEN),
            (restore("a", "5000", LIST, "replace"), "+OK"),
            ("lrange a 0 -1".into(), "*3|$1|a|$1|b|$1|1"),
            ("pttl a".into(), ":5000"),
            (restore("b", "1700000000500", HELLO, "absttl"), "+OK"),
            ("pttl b".into(), ":500"),
        ],
    );
    assert_eq!(bench.events()[..2], ["restore a", "restore a"]);
    assert!(bench.run("dump b").starts_with("$17|\u{0}\u{5}hello\n\u{0}"));
    assert_eq!(bench.run("dump none"), "$-1");
}

#[test]
fn what_is_wrong_is_told_in_redis_s_order() {
    let mut bench = Bench::default();
    bench.check(&[("set taken x", "+OK")]);
    let (range, syntax) = ("-ERR value is not an integer or out of range", "-ERR syntax error");
    check_all(
        &mut bench,
        &[
            (restore("a", "0", WRONG_CHECKSUM, ""), "-ERR DUMP payload version or checksum are wrong"),
            (restore("a", "0", "short", ""), "-ERR DUMP payload version or checksum are wrong"),
            (restore("a", "0", TWICE, ""), "-ERR Bad data format"),
            (restore("a", "-1", WRONG_CHECKSUM, ""), "-ERR Invalid TTL value, must be >= 0"),
            (restore("a", "x", WRONG_CHECKSUM, ""), range),
            (restore("taken", "x", WRONG_CHECKSUM, ""), TAKEN),
            (restore("taken", "x", WRONG_CHECKSUM, "foo"), syntax),
            (restore("a", "0", HELLO, "idletime"), syntax),
            (restore("a", "0", HELLO, "idletime x"), range),
            (restore("a", "0", HELLO, "idletime -1"), "-ERR Invalid IDLETIME value, must be >= 0"),
            (restore("a", "0", HELLO, "freq 256"), "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
            (restore("a", "0", HELLO, "freq 1 idletime 1"), syntax),
            (restore("a", "0", HELLO, "idletime 1 freq 1"), syntax),
            ("exists a".into(), ":0"),
        ],
    );
}

#[test]
fn what_has_expired_already_is_not_there() {
    let mut bench = Bench::default();
    check_all(
        &mut bench,
        &[
            (restore("a", "1", HELLO, "absttl"), "+OK"),
            ("exists a".into(), ":0"),
            ("set a x".into(), "+OK"),
            (restore("a", "1", HELLO, "absttl replace"), "+OK"),
            ("exists a".into(), ":0"),
            (restore("a", "9223372036854775807", HELLO, ""), "+OK"),
            ("exists a".into(), ":0"),
        ],
    );
    assert_eq!(bench.events(), ["set a", "del a"]);
}

#[test]
fn idle_time_is_restored() {
    let mut bench = Bench::default();
    bench.now_ms += 100_000;
    check_all(
        &mut bench,
        &[
            (restore("a", "0", HELLO, "idletime 40"), "+OK"),
            ("object idletime a".into(), ":40"),
            // Longer than the server runs.
            (restore("a", "0", HELLO, "idletime 4000 replace"), "+OK"),
            ("object idletime a".into(), ":4000"),
            // Without that policy it is of no account.
            (restore("b", "0", HELLO, "freq 7"), "+OK"),
            ("object idletime b".into(), ":0"),
        ],
    );
}

/// The commands that the journal has for this one, each as words.
fn recorded(bench: &mut Bench, line: &str) -> Vec<String> {
    let mut record = Record::default();
    bench.effects.begin();
    bench.check(&[(line, "+OK")]);
    bench.effects.record(0, None, &mut record);
    let command = |entry: Entry<'_>| String::from_utf8_lossy(entry.command).replace("\r\n", " ");
    entries(record.bytes()).map(command).collect()
}

#[test]
fn the_record_has_the_time_of_expiry() {
    let mut bench = Bench::default();
    bench.effects.recording = true;
    let record = recorded(&mut bench, &restore("a", "5000", HELLO, "replace"));
    assert!(matches!(&record[..], [one] if one.starts_with("*6 $7 restore $1 a $13 1700000005000 $17 ")), "{record:?}");
    assert!(record[0].ends_with(" $7 replace $6 ABSTTL "), "{record:?}");
    // As they came.
    assert_eq!(recorded(&mut bench, &restore("b", "0", HELLO, "")), [""; 0]);
    assert_eq!(recorded(&mut bench, &restore("c", "1700000005000", HELLO, "absttl")), [""; 0]);
    // What was replaced is gone.
    assert_eq!(recorded(&mut bench, &restore("a", "1", HELLO, "absttl replace")), ["*2 $3 DEL $1 a "]);
}
