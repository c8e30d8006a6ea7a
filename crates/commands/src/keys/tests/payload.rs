//! DUMP and RESTORE, compared with redis-server 7.0's payloads and replies.

use journal::record::{Entry, Record, entries};

use crate::testing::Bench;

const HELLO: &str = r#""\x00\x05hello\x0a\x00cr\xdfve4 \x0a""#;
const LIST: &str =
    r#""\x12\x01\x02\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x01\x01\xff\x0a\x00\xe0\x1b\xabJG\xceY\x22""#;
/// A set with a duplicate member.
const TWICE: &str = r#""\x02\x02\x01a\x01a\x0a\x00W\xbev/\xc2\xd6R:""#;
/// A list that has a block without bytes.
const EMPTY_BLOCK: &str = r#""\x12\x01\x01\x00\x0a\x00\x8f\xc6\xc0\x57\x1c\x0a\xb3\x3c""#;
const WRONG_CHECKSUM: &str = r#""\x00\x05hello\x0a\x00cr\xdfve4 !""#;
const TAKEN: &str = "-BUSYKEY Target key name already exists.";

/// Formats a RESTORE command from a key, a time to live, a payload and options.
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
fn errors_come_in_redis_order() {
    let mut bench = Bench::default();
    bench.check(&[("set taken x", "+OK")]);
    let (range, syntax) = ("-ERR value is not an integer or out of range", "-ERR syntax error");
    check_all(
        &mut bench,
        &[
            (restore("a", "0", WRONG_CHECKSUM, ""), "-ERR DUMP payload version or checksum are wrong"),
            (restore("a", "0", "short", ""), "-ERR DUMP payload version or checksum are wrong"),
            (restore("a", "0", TWICE, ""), "-ERR Bad data format"),
            (restore("a", "0", EMPTY_BLOCK, ""), "-ERR Bad data format"),
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
fn restoring_an_expired_key_creates_nothing() {
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
            // Longer than the server's uptime.
            (restore("a", "0", HELLO, "idletime 4000 replace"), "+OK"),
            ("object idletime a".into(), ":4000"),
            // Ignored without that policy.
            (restore("b", "0", HELLO, "freq 7"), "+OK"),
            ("object idletime b".into(), ":0"),
        ],
    );
}

/// The reply of Valkey 9.1.2 to DUMP of a list with one element, `v`.
const LIST_OF_VALKEY: &str =
    r#""\x12\x01\x02\x0a\x0a\x00\x00\x00\x01\x00\x81v\x02\xffP\x00\xc1\xe4\x81\xf5\xf4\x06\x05\xc7""#;
/// The reply of Redis 8.6.3 to DUMP of a hash with an expiring field `a` of value 1.
const TIMED_HASH: &str = r#""\x19{\xb4\xc5\xda\xb8\x01\x00\x00\x16\x16\x00\x00\x00\x03\x00\x81a\x02\x01\x01\xf4{\xb4\xc5\xda\xb8\x01\x00\x00\x09\xff\x0d\x00C$\x99 \x8d\xe6\x16\x1d""#;

#[test]
fn the_record_has_a_payload_that_all_replicas_read() {
    let mut bench = Bench::default();
    bench.effects.recording = true;
    for (key, ttl, rest) in [("a", "0", ""), ("b", "5000", "replace")] {
        let record = recorded(&mut bench, &restore(key, ttl, LIST_OF_VALKEY, rest));
        let [command] = &record[..] else { panic!("{record:?}") };
        assert!(command.contains("\u{fffd}\n\0"), "{command:?}");
    }
}

#[test]
fn the_record_has_the_times_of_fields_as_commands() {
    let mut bench = Bench::default();
    bench.effects.recording = true;
    let record = recorded(&mut bench, &restore("h", "0", TIMED_HASH, ""));
    let [payload, time] = &record[..] else { panic!("{record:?}") };
    assert!(payload.starts_with("*4 $7 restore $1 h $1 0 "), "{payload:?}");
    assert_eq!(time, "*6 $10 HPEXPIREAT $1 h $13 1893456000123 $6 FIELDS $1 1 $1 a ");
    assert_eq!(bench.run("hpexpiretime h fields 1 a"), "*1|:1893456000123");
}

/// Returns the commands that the journal records for this command, each as its words.
fn recorded(bench: &mut Bench, line: &str) -> Vec<String> {
    let mut record = Record::default();
    bench.effects.begin();
    bench.check(&[(line, "+OK")]);
    bench.effects.record(0, None, &mut record);
    let command = |entry: Entry<'_>| String::from_utf8_lossy(entry.command).replace("\r\n", " ");
    entries(record.bytes()).map(command).collect()
}

#[test]
fn restore_is_recorded_with_an_absolute_expiry() {
    let mut bench = Bench::default();
    bench.effects.recording = true;
    let record = recorded(&mut bench, &restore("a", "5000", HELLO, "replace"));
    assert!(matches!(&record[..], [one] if one.starts_with("*6 $7 restore $1 a $13 1700000005000 $17 ")), "{record:?}");
    assert!(record[0].ends_with(" $7 replace $6 ABSTTL "), "{record:?}");
    // Recorded as the client sent them.
    assert_eq!(recorded(&mut bench, &restore("b", "0", HELLO, "")), [""; 0]);
    assert_eq!(recorded(&mut bench, &restore("c", "1700000005000", HELLO, "absttl")), [""; 0]);
    // The replaced key is deleted.
    assert_eq!(recorded(&mut bench, &restore("a", "1", HELLO, "absttl replace")), ["*2 $3 DEL $1 a "]);
}
