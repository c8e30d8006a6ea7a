//! Cases that the differential test doesn't cover: times, blocking, features of Redis 7.2, and settings.

use store::types::stream::StreamLimits;

use crate::call::{TimeoutReply, Wait};
use crate::testing::{Bench, check, check_resp3};

#[test]
fn ids_are_made_from_the_time() {
    let mut bench = Bench::default();
    bench.now_ms = 1000;
    bench.check(&[("XADD s * a 1", "$6|1000-0"), ("XADD s * a 1", "$6|1000-1")]);
    bench.now_ms = 999;
    bench.check(&[
        ("XADD s * a 1", "$6|1000-2"),
        ("XADD s 1000-* a 1", "$6|1000-3"),
        ("XADD s 1001-* a 1", "$6|1001-0"),
        ("XADD s 1001-18446744073709551615 a 1", "$25|1001-18446744073709551615"),
        ("XADD s * a 1", "$6|1002-0"),
    ]);
}

#[test]
fn a_refused_entry_creates_no_stream() {
    let exhausted = "-ERR The stream has exhausted the last possible ID, unable to add more items";
    let too_small = "-ERR The ID specified in XADD is equal or smaller than the target stream top item";
    check(&[
        ("XADD s 0-0 a 1", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD s 1-1 a", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD s MAXLEN 5 1-1", "-ERR wrong number of arguments for 'xadd' command"),
        ("XADD s NOMKSTREAM 1-1 a 1", "$-1"),
        ("EXISTS s", ":0"),
        ("XADD s 0-* a 1", "$3|0-1"),
        ("XADD s 7-18446744073709551615 a 1", "$22|7-18446744073709551615"),
        ("XADD s 7-* a 1", too_small),
        ("XADD s 7 a 1", too_small),
        ("XADD s 18446744073709551615-18446744073709551615 a 1", "$41|18446744073709551615-18446744073709551615"),
        ("XADD s * a 1", exhausted),
        ("XLEN s", ":3"),
    ]);
}

#[test]
fn an_empty_stream_keeps_its_key() {
    check(&[
        ("XADD s 5-5 a 1", "$3|5-5"),
        ("XDEL s 5-5 5-5 9-9", ":1"),
        ("EXISTS s", ":1"),
        ("TYPE s", "+stream"),
        ("XADD s 5-5 a 1", "-ERR The ID specified in XADD is equal or smaller than the target stream top item"),
        ("XADD s 5-6 a 1", "$3|5-6"),
        ("COPY s t", ":1"),
        ("XTRIM t MAXLEN 0", ":1"),
        ("XLEN s", ":1"),
        ("OBJECT ENCODING t", "$6|stream"),
    ]);
}

#[test]
fn the_last_id_is_not_set_back() {
    let start = "-ERR The ID specified in XSETID is smaller than";
    let below_deleted = format!("{start} current max_deleted_entry_id");
    let below_last = format!("{start} the target stream top item");
    let provided = format!("{start} the provided max_deleted_entry_id");
    check(&[
        ("XSETID s 5", "-ERR no such key"),
        ("XADD s 4-1 a 1", "$3|4-1"),
        ("XADD s 9-1 a 1", "$3|9-1"),
        ("XDEL s 9-1", ":1"),
        ("XSETID s 9-0", &below_deleted),
        (
            "XSETID s 9-1 ENTRIESADDED 0",
            "-ERR The entries_added specified in XSETID is smaller than the target stream length",
        ),
        ("XSETID s 9-1 ENTRIESADDED -1", "-ERR entries_added must be positive"),
        ("XSETID s 9-1 MAXDELETEDID 9-2", &provided),
        ("XSETID s 9-1 MAXDELETEDID 1-0", "+OK"),
        ("XSETID s 4-0", &below_last),
        ("XSETID s 4-1", "+OK"),
        ("XADD s 4-2 a 2", "$3|4-2"),
        ("XRANGE s 4-2 4-9", "*1|*2|$3|4-2|*2|$1|a|$1|2"),
        ("XGROUP CREATE s g -", "-ERR Invalid stream ID specified as stream command argument"),
        ("XGROUP CREATE s g $", "+OK"),
        ("XGROUP SETID s g -", "+OK"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", "*1|*2|$1|s|*1|*2|$3|4-1|*2|$1|a|$1|1"),
        ("XGROUP SETID s g +", "+OK"),
        ("XREADGROUP GROUP g c STREAMS s >", "*-1"),
    ]);
}

#[test]
fn replies_of_both_versions() {
    let lines = |start: &'static str, streams: [&'static str; 2]| {
        [
            ("XADD s 1-1 a 1", "$3|1-1"),
            ("XADD t 2-2 b 2", "$3|2-2"),
            ("XREAD STREAMS s t 0 0", streams[0]),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XREADGROUP GROUP g c STREAMS s >", streams[1]),
            ("XINFO GROUPS s", start),
        ]
    };
    check(&lines(
        "*1|*12|$4|name|$1|g|$9|consumers|:1|$7|pending|:1|$17|last-delivered-id|$3|1-1|$12|entries-read|:1|$3|lag|:0",
        [
            "*2|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1|*2|$1|t|*1|*2|$3|2-2|*2|$1|b|$1|2",
            "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1",
        ],
    ));
    check_resp3(&lines(
        "*1|%6|$4|name|$1|g|$9|consumers|:1|$7|pending|:1|$17|last-delivered-id|$3|1-1|$12|entries-read|:1|$3|lag|:0",
        ["%2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1|$1|t|*1|*2|$3|2-2|*2|$1|b|$1|2", "%1|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1"],
    ));
}

#[test]
fn a_read_that_finds_nothing_may_wait() {
    let mut bench = Bench::default();
    let unbalanced = "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.";
    bench.check(&[
        ("XREAD STREAMS s 0", "*-1"),
        ("XREAD BLOCK -1 STREAMS s 0", "-ERR timeout is negative"),
        ("XREAD BLOCK 9223372036854775807 STREAMS s 0", "-ERR timeout is out of range"),
        ("XREAD BLOCK 0.5 STREAMS s 0", "-ERR timeout is not an integer or out of range"),
        ("XREAD STREAMS s 0 t", unbalanced),
    ]);
    let waits = [("0", None), ("25", Some(25))];
    for (block, timeout_ms) in waits {
        assert_eq!(bench.run(&format!("XREAD BLOCK {block} STREAMS s t $ 3")), "");
        assert_eq!(bench.wait, Some(Wait { timeout_ms, reply: TimeoutReply::NullArray, again_ms: None }));
        let again = bench.effects.again.take().unwrap();
        let ids: Vec<&[u8]> = again.args().from(6).collect();
        assert_eq!(ids, [&b"0-0"[..], b"3-0"]);
    }
    bench.run("XADD t 9-9 a 1");
    assert_eq!(bench.run("XREAD BLOCK 0 STREAMS s t 0 $"), "");
    let again = bench.effects.again.take().unwrap();
    assert_eq!(again.args().from(7).collect::<Vec<_>>(), [b"9-9"]);
    // Without `$`, the retry uses the original arguments.
    bench.run("XREAD BLOCK 0 STREAMS s 0");
    assert!(bench.wait.is_some() && bench.effects.again.is_none());
}

#[test]
fn a_read_may_ask_for_the_last_entry() {
    let mut bench = Bench::default();
    let of = |id: &str| format!("*1|*2|$1|s|*1|*2|$3|{id}|*2|$1|a|$1|1");
    bench.check(&[
        ("XADD s 0-1 a 1", "$3|0-1"),
        ("XREAD STREAMS s +", &of("0-1")),
        ("XADD s 1-1 a 1", "$3|1-1"),
        ("XADD s 2-0 a 1", "$3|2-0"),
        ("XREAD COUNT 5 STREAMS s none + +", &of("2-0")),
        ("XDEL s 2-0", ":1"),
        ("XREAD STREAMS s +", &of("1-1")),
        ("XTRIM s MAXLEN 0", ":2"),
        ("XREAD STREAMS s +", "*-1"),
    ]);
    // The retry returns the next entries, however many there are.
    assert_eq!(bench.run("XREAD BLOCK 0 STREAMS s none + +"), "");
    let again = bench.effects.again.take().unwrap();
    assert_eq!(again.args().from(6).collect::<Vec<_>>(), [&b"2-0"[..], b"0-0"]);
    bench.run("XGROUP CREATE s g $");
    assert!(bench.run("XREADGROUP GROUP g c STREAMS s +").starts_with("-ERR The + ID is meaningless"));
}

#[test]
fn reading_creates_a_consumer() {
    let mut bench = Bench::default();
    bench.check(&[("XADD s 1-1 a 1", "$3|1-1"), ("XGROUP CREATE s g $", "+OK")]);
    bench.events();
    bench.check(&[
        ("XREADGROUP GROUP g reader STREAMS s >", "*-1"),
        ("XCLAIM s g claimer 0 9-9", "*0"),
        ("XAUTOCLAIM s g sweeper 0 0", "*3|$3|0-0|*0|*0"),
    ]);
    assert_eq!(bench.events(), ["xgroup-createconsumer s"; 3]);
    bench.now_ms += 7;
    bench.check(&[("XCLAIM s g claimer 0 1-1 FORCE JUSTID", "*1|$3|1-1")]);
    bench.now_ms += 5;
    bench.check(&[
        (
            "XINFO CONSUMERS s g",
            "*3|*8|$4|name|$7|claimer|$7|pending|:1|$4|idle|:5|$8|inactive|:5\
             |*8|$4|name|$6|reader|$7|pending|:0|$4|idle|:12|$8|inactive|:-1\
             |*8|$4|name|$7|sweeper|$7|pending|:0|$4|idle|:12|$8|inactive|:-1",
        ),
        ("XPENDING s g - + 5", "*1|*4|$3|1-1|$7|claimer|:5|:1"),
        ("XPENDING s g IDLE 6 - + 5", "*0"),
        ("XCLAIM s g reader 6 1-1", "*0"),
        ("XCLAIM s g reader 5 1-1 RETRYCOUNT 9 IDLE 3", "*1|*2|$3|1-1|*2|$1|a|$1|1"),
        ("XPENDING s g - + 5 reader", "*1|*4|$3|1-1|$6|reader|:3|:9"),
        ("XPENDING s g - + 5 missing", "*0"),
    ]);
    assert_eq!(bench.events(), Vec::<String>::new());
}

#[test]
fn deliveries_without_acknowledgement_dont_make_a_consumer_active() {
    check(&[
        ("XADD s 1-1 a 1", "$3|1-1"),
        ("XGROUP CREATE s g 0", "+OK"),
        ("XREADGROUP GROUP g c NOACK STREAMS s >", "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1"),
        ("XINFO CONSUMERS s g", "*1|*8|$4|name|$1|c|$7|pending|:0|$4|idle|:0|$8|inactive|:-1"),
        ("XADD s 2-1 a 1", "$3|2-1"),
        ("XREADGROUP GROUP g c STREAMS s >", "*1|*2|$1|s|*1|*2|$3|2-1|*2|$1|a|$1|1"),
        ("XINFO CONSUMERS s g", "*1|*8|$4|name|$1|c|$7|pending|:1|$4|idle|:0|$8|inactive|:0"),
        ("XACK s g 2-1 2-1 1-1", ":1"),
        ("XACK s nogroup bad", ":0"),
        ("XPENDING s g", "*4|:0|$-1|$-1|*-1"),
    ]);
}

/// Expected values come from Redis 8; 7.0 counts trimmed entries as unread.
#[test]
fn the_lag_of_a_group_counts_unread_entries() {
    let mut bench = Bench::default();
    let figures = |bench: &mut Bench| {
        let groups = bench.run("XINFO GROUPS s");
        let mut words = groups.split('|').skip_while(|word| *word != "entries-read").skip(1).step_by(3);
        [words.next().unwrap().to_string(), words.next().unwrap().to_string()]
    };
    bench.run("XGROUP CREATE s g 0 MKSTREAM");
    let read = "XREADGROUP GROUP g c COUNT 1 STREAMS s >";
    let rows = [
        (vec![], ["$-1", ":0"]),
        (vec!["XADD s 1 f v", "XADD s 2 f v", "XADD s 3 f v"], ["$-1", ":3"]),
        (vec![read, read], [":2", ":1"]),
        (vec!["XADD s 4 f v", "XTRIM s MINID 4", "XADD s 5 f v"], [":2", ":2"]),
        (vec![read], [":4", ":1"]),
        (vec!["XADD s 6 f v", "XDEL s 5"], [":4", "$-1"]),
        (vec!["XTRIM s MINID 6"], [":4", ":1"]),
        (vec!["XDEL s 6"], [":4", ":0"]),
        (vec!["XGROUP SETID s g 0 ENTRIESREAD 3"], [":3", ":0"]),
    ];
    for (lines, expected) in rows {
        lines.iter().for_each(|line| drop(bench.run(line)));
        assert_eq!(figures(&mut bench), expected, "after {lines:?}");
    }
}

#[test]
fn blocks_are_as_large_as_the_settings_say() {
    let mut bench = Bench::default();
    bench.rules.stream = StreamLimits::new(4096, 3);
    bench.rules.stream_block_entries = 3;
    (1..=10).for_each(|ms| drop(bench.run(&format!("XADD s {ms} a 1"))));
    bench.check(&[
        ("XTRIM s MAXLEN ~ 8", ":0"),
        ("XTRIM s MAXLEN ~ 7", ":3"),
        ("XTRIM s MAXLEN = 6", ":1"),
        ("XTRIM s MINID ~ 9 LIMIT 1", ":0"),
        ("XTRIM s MINID ~ 9 LIMIT 2", ":2"),
    ]);
}

/// Expected replies come from Redis 8.6.
#[test]
fn xdelex_and_xackdel_respect_groups() {
    let number = "-ERR Number of IDs must be a positive integer";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut bench = streams_of_two_groups();
    bench.check(&[
        ("xdelex s ids 3 1-1 9-9 1-1", "*3|:1|:-1|:-1"),
        ("xlen s", ":5"),
        ("xdelex s acked ids 4 1-1 1-2 1-3 1-4", "*4|:2|:2|:2|:2"),
        ("xackdel s g acked ids 5 1-1 1-2 1-3 1-4 9-9", "*5|:2|:2|:2|:-1|:-1"),
        ("xackdel s g ids 1 1-1", "*1|:-1"),
        ("xdelex s delref ids 2 1-1 1-2", "*2|:-1|:1"),
        ("xpending s h", "*4|:0|$-1|$-1|*-1"),
        ("xdelex s acked ids 1 0-1", "*1|:-1"),
        ("xdelex s acked ids 1 9-9", "*1|:2"),
        ("xlen s", ":4"),
        ("xdelex s ids 1 1-9 ids 2 1-4 1-3", "*2|:1|:1"),
        ("xackdel s none ids 2 1-1 x", "*2|:-1|:-1"),
        ("xackdel nokey g ids 1 x", "*1|:-1"),
        ("xdelex nokey ids 2 1-1 x", "*2|:-1|:-1"),
        ("xdelex s ids 1 x", "-ERR Invalid stream ID specified as stream command argument"),
        ("xackdel s g ids 1 x", "-ERR Invalid stream ID specified as stream command argument"),
        ("xdelex s ids 2 1-1", "-ERR The `numids` parameter must match the number of arguments"),
        ("xdelex s ids 0 1-1", number),
        ("xdelex s ids x 1-1", number),
        ("xdelex s ids 99999999999999999999 1-1", number),
        ("xdelex s keepref delref ids 1 1-1", "-ERR syntax error"),
        ("xdelex s ids 1 1-1 1-2", "-ERR syntax error"),
        ("xdelex s acked delref x", "-ERR syntax error"),
        ("set str x", "+OK"),
        ("xdelex str ids 1 x", wrong_type),
        ("xackdel str g ids 1 1-1", wrong_type),
        ("xdelex str ids 0 x", wrong_type),
        ("xdelex str nonsense", "-ERR wrong number of arguments for 'xdelex' command"),
        ("xdelex str a b c", wrong_type),
        ("xackdel str g a b c", wrong_type),
    ]);
}

/// Expected replies come from Redis 8.6.
#[test]
fn trims_respect_groups() {
    let mut bench = streams_of_two_groups();
    bench.check(&[
        ("xtrim s maxlen 1 acked", ":0"),
        ("xack s g 1-1 1-2 1-3", ":3"),
        ("xack s h 1-2", ":1"),
        ("xtrim s maxlen 1 acked", ":1"),
        ("xrange s - + count 2", "*2|*2|$3|1-1|*2|$1|a|$1|1|*2|$3|1-3|*2|$1|a|$1|1"),
        ("xtrim s minid 1-2 acked", ":0"),
        ("xadd s maxlen 1 acked 2-1 a 1", "$3|2-1"),
        ("xlen s", ":6"),
        ("xpending s h - + 9", "*1|*4|$3|1-1|$1|c|:0|:1"),
        ("xtrim s maxlen = 3 delref", ":3"),
        ("xpending s h", "*4|:0|$-1|$-1|*-1"),
        ("xreadgroup group g c count 2 streams s >", "*1|*2|$1|s|*2|*2|$3|1-5|*2|$1|a|$1|1|*2|$3|1-6|*2|$1|a|$1|1"),
        ("xadd s delref maxlen 2 2-2 a 1", "$3|2-2"),
        ("xpending s g", "*4|:0|$-1|$-1|*-1"),
        ("xtrim s keepref maxlen 0", ":2"),
        ("xtrim s maxlen 0 keepref delref", "-ERR syntax error"),
        ("xadd s keepref acked * a 1", "-ERR Invalid stream ID specified as stream command argument"),
        ("xadd new maxlen 1 acked 1-1 a 1", "$3|1-1"),
        ("xadd new maxlen 1 acked 1-2 a 1", "$3|1-2"),
        ("xlen new", ":1"),
    ]);
}

/// Creates a stream "s" of six entries. Group "g" has read three of them, group "h" two.
fn streams_of_two_groups() -> Bench {
    let mut bench = Bench::default();
    for sequence in 1..=6 {
        bench.run(&format!("xadd s 1-{sequence} a 1"));
    }
    for (group, count) in [("g", 3), ("h", 2)] {
        bench.run(&format!("xgroup create s {group} 0"));
        bench.run(&format!("xreadgroup group {group} c count {count} streams s >"));
    }
    bench
}

#[test]
fn deletions_and_releases_are_recorded_once() {
    let mut bench = streams_of_two_groups();
    bench.events();
    let before = bench.effects.dirty;
    bench.run("xackdel s g ids 2 1-1 1-2");
    bench.run("xackdel s g acked ids 2 1-3 1-9");
    bench.run("xdelex s delref ids 2 1-1 1-3");
    bench.run("xdelex s delref ids 1 1-2");
    bench.run("xdelex s acked ids 1 1-4");
    assert_eq!(bench.events(), ["xdel s", "xdel s"]);
    assert_eq!(bench.effects.dirty - before, 2 + 1 + 1);
}

/// Creates a stream "s". Consumers of group "g" have four pending entries: 3-1 for 60 ms, 1-1 for 50 ms, 2-1 for 10 ms,
/// and 4-1, which was deleted.
fn stream_with_overdue_entries() -> Bench {
    let mut bench = Bench::default();
    (1..=6).for_each(|ms| drop(bench.run(&format!("xadd s {ms}-1 f {ms}"))));
    bench.run("xgroup create s g 0");
    bench.run("xreadgroup group g a count 4 streams s >");
    bench.now_ms += 100;
    for (id, idle_ms, deliveries) in [("3-1", 60, 7), ("1-1", 50, 2), ("2-1", 10, 1), ("4-1", 70, 1)] {
        bench.run(&format!("xclaim s g a 0 {id} idle {idle_ms} retrycount {deliveries} justid"));
    }
    bench.run("xdel s 4-1");
    bench
}

/// Formats an entry as in replies to XREADGROUP with CLAIM.
fn claimed(number: u64, idle_ms: u64, deliveries: u64) -> String {
    format!("*4|$3|{number}-1|*2|$1|f|$1|{number}|:{idle_ms}|:{deliveries}")
}

/// Expected replies come from Redis 8.6.
#[test]
fn overdue_entries_are_claimed_before_new_entries_are_read() {
    let mut bench = stream_with_overdue_entries();
    let of = |entries: &[String]| format!("*1|*2|$1|s|*{}|{}", entries.len(), entries.join("|"));
    bench.check(&[
        ("xreadgroup group g b count 1 claim 50 streams s >", &of(&[claimed(3, 60, 7)])),
        ("xreadgroup group g b claim 50 count 2 streams s >", &of(&[claimed(1, 50, 2), claimed(5, 0, 0)])),
        (
            "xpending s g - + 9",
            "*5|*4|$3|1-1|$1|b|:0|:3|*4|$3|2-1|$1|a|:10|:1|*4|$3|3-1|$1|b|:0|:8|*4|$3|4-1|$1|a|:70|:1|*4|$3|5-1|$1|b|:0|:1",
        ),
        ("xreadgroup group g b claim 50 streams s >", &of(&[claimed(6, 0, 0)])),
        ("xreadgroup group g b claim 50 streams s >", "*-1"),
        // The longest pending entries come first; ties are ordered by ID.
        (
            "xreadgroup group g c claim 0 count 3 streams s 18446744073709551615-18446744073709551615",
            &of(&[claimed(2, 10, 1), claimed(1, 0, 3), claimed(3, 0, 8)]),
        ),
        ("xack s g 1-1 2-1 3-1 4-1 5-1 6-1", ":6"),
        ("xreadgroup group g c claim 0 streams s >", "*-1"),
        ("xadd s 7-1 f 7", "$3|7-1"),
        ("xreadgroup group g c streams s >", "*1|*2|$1|s|*1|*2|$3|7-1|*2|$1|f|$1|7"),
        ("xgroup delconsumer s g c", ":1"),
        ("xreadgroup group g d claim 0 streams s >", "*-1"),
    ]);
}

/// Expected replies come from Redis 8.6.
#[test]
fn claimed_entries_stay_pending_and_claim_needs_new_entries() {
    let mut bench = stream_with_overdue_entries();
    let entry = |number| format!("*2|$3|{number}-1|*2|$1|f|$1|{number}");
    bench.check(&[
        (
            "xreadgroup group g n noack claim 60 count 2 streams s >",
            &format!("*1|*2|$1|s|*2|{}|{}", claimed(3, 60, 7), claimed(5, 0, 0)),
        ),
        ("xpending s g - + 9 n", "*1|*4|$3|3-1|$1|n|:0|:8"),
        ("xgroup create s h 0", "+OK"),
        ("xreadgroup group h n noack claim 0 count 1 streams s >", &format!("*1|*2|$1|s|*1|{}", claimed(1, 0, 0))),
        ("xinfo consumers s h", "*1|*8|$4|name|$1|n|$7|pending|:0|$4|idle|:0|$8|inactive|:-1"),
        ("xreadgroup group g n claim 0 streams s 0", &format!("*1|*2|$1|s|*1|{}", entry(3))),
        ("xadd t 1-1 f 1", "$3|1-1"),
        ("xgroup create t g 0", "+OK"),
        // An explicit ID disables CLAIM, for the streams after it, too.
        (
            "xreadgroup group g n claim 0 streams s t 0 >",
            &format!("*2|*2|$1|s|*1|{}|*2|$1|t|*1|{}", entry(3), entry(1)),
        ),
        ("xreadgroup group g m claim 0 streams t s > 0", &format!("*2|*2|$1|t|*1|{}|*2|$1|s|*0", claimed(1, 0, 1))),
    ]);
}

/// Error texts come from Redis 8.6.
#[test]
fn invalid_idle_times_of_claim_are_refused() {
    let not_a_number = "-ERR min-idle-time is not an integer or out of range";
    let only_in_group = "-ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.";
    let mut bench = stream_with_overdue_entries();
    bench.check(&[
        ("xreadgroup group g c claim streams s >", not_a_number),
        ("xreadgroup claim x group none c streams s >", not_a_number),
        ("xreadgroup group g c claim 9223372036854775808 streams s >", not_a_number),
        ("xreadgroup group g c claim -1 streams s >", "-ERR min-idle-time must be a positive integer"),
        ("xreadgroup group g c block -1 claim -1 streams s >", "-ERR timeout is negative"),
        ("xreadgroup group g c count 1 claim", "-ERR syntax error"),
        ("xread claim x streams s 0", only_in_group),
        ("xread count 1 claim", "-ERR syntax error"),
        (
            "xreadgroup group none c claim 1 streams s >",
            "-NOGROUP No such key 's' or consumer group 'none' in XREADGROUP with GROUP option",
        ),
    ]);
}

#[test]
fn a_blocked_read_with_claim_is_retried_when_an_entry_is_overdue() {
    let mut bench = stream_with_overdue_entries();
    bench.run("xgroup setid s g 6-1");
    bench.run("xgroup create t g $ mkstream");
    let mut again_ms = |line: &str| {
        assert_eq!(bench.run(line), "", "{line}");
        bench.wait.unwrap().again_ms.map(|ms| ms - bench.now_ms)
    };
    assert_eq!(again_ms("xreadgroup group g b block 0 streams s >"), None);
    assert_eq!(again_ms("xreadgroup group g b block 0 claim 61 streams s >"), Some(1), "3-1 is the first that exists");
    assert_eq!(again_ms("xreadgroup group g b block 0 claim 61 streams t >"), Some(61), "nothing is pending");
    assert_eq!(again_ms("xreadgroup group g b block 0 claim 61 streams t s > >"), Some(1));
    let far_ms = again_ms("xreadgroup group g b block 0 claim 9223372036854775807 streams s >");
    assert!(far_ms > Some(1 << 60), "{far_ms:?}");
}
