//! Expected replies are RediSearch's; most come from its tests.

use journal::record::Record;

use crate::testing::{Bench, check, check_resp3};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn texts_are_added_found_and_removed() {
    check(&[
        ("ft.sugadd ac 'hello world' 1", ":1"),
        ("ft.sugadd ac 'hello world' 1 incr", ":1"),
        ("ft.sugget ac hello", "*1|$11|hello world"),
        ("ft.sugadd ac 'hello werld' 1", ":2"),
        ("ft.sugadd ac 'hallo world' 2", ":3"),
        ("ft.sugadd ac 'yellow world' 3", ":4"),
        ("ft.sugadd ac wazzup 4", ":5"),
        ("ft.sugadd ac herp 5", ":6"),
        ("ft.sugadd ac derp 6", ":7"),
        ("ft.suglen ac", ":7"),
        ("ft.sugget ac hello", "*2|$11|hello world|$11|hello werld"),
        ("ft.sugget ac HELLO max 1", "*1|$11|hello world"),
        ("ft.sugget ac hello fuzzy", "*4|$11|hello world|$11|hello werld|$12|yellow world|$11|hallo world"),
        ("ft.sugget ac hello FUZZY MAX 1", "*1|$11|hello world"),
        ("ft.sugdel ac 'hello world'", ":1"),
        ("ft.sugdel ac world", ":0"),
        ("ft.sugget ac hello", "*1|$11|hello werld"),
        ("type ac", "+trietype0"),
        ("object encoding ac", "$3|raw"),
    ]);
}

#[test]
fn scores_determine_the_order() {
    let script = [("ft.sugadd s test0 1", ":1"), ("ft.sugadd s test9 10", ":2"), ("ft.sugadd s zero 0", ":3")];
    let mut bench = Bench::default();
    bench.check(&script);
    bench.check(&[
        ("ft.sugget s test withscores", "*4|$5|test9|$17|7.071067810058594|$5|test0|$18|0.7071067690849304"),
        ("ft.sugget s zer withscores", "*2|$4|zero|$1|0"),
        ("ft.sugget s test0 withscores", "*2|$5|test0|$10|2147483648"),
        ("ft.sugget s test trim", "*2|$5|test9|$5|test0"),
        ("ft.sugadd s test9 100.1", ":3"),
        ("ft.sugget s test trim optimize", "*1|$5|test9"),
        ("ft.sugadd s zero -2 incr", ":3"),
        ("ft.sugget s zer withscores", "*2|$4|zero|$19|-1.4142135381698608"),
    ]);
    let script3 =
        [("ft.sugadd s test 4", ":1"), ("ft.sugget s tes withscores withpayloads", "*3|$4|test|,2.8284270763397217|_")];
    check_resp3(&script3);
}

#[test]
fn payloads_are_kept_until_there_is_another() {
    check(&[
        ("ft.sugadd ac 'hello world' 2 PAYLOAD foo", ":1"),
        ("ft.sugadd ac 'hello no' 3 PAYLOAD ''", ":2"),
        ("ft.sugget ac hello WITHPAYLOADS", "*4|$8|hello no|$-1|$11|hello world|$3|foo"),
        ("ft.sugadd ac 'hello world' 1 INCR", ":2"),
        ("ft.sugget ac 'hello w' WITHPAYLOADS", "*2|$11|hello world|$3|foo"),
        ("ft.sugadd ac 'hello world' 1 INCR PAYLOAD bar", ":2"),
        ("ft.sugget ac 'hello w' WITHPAYLOADS", "*2|$11|hello world|$3|bar"),
        ("ft.sugadd ac 'hello world' 9", ":2"),
        ("ft.sugget ac 'hello w' WITHPAYLOADS", "*2|$11|hello world|$3|bar"),
        ("ft.sugdel ac 'hello world'", ":1"),
        ("ft.sugadd ac 'hello world' 9", ":2"),
        ("ft.sugget ac 'hello w' WITHPAYLOADS", "*2|$11|hello world|$-1"),
    ]);
}

#[test]
fn an_empty_collection_leaves_no_key() {
    check(&[
        ("ft.suglen none", ":0"),
        ("ft.sugget none hello", "*0"),
        ("ft.sugdel none hello", ":0"),
        ("ft.sugadd sug 'hello world' 1", ":1"),
        ("ft.sugdel sug 'hello world'", ":1"),
        ("exists sug", ":0"),
        // Ignored, without creating a key.
        ("ft.sugadd sug '' 1", ":0"),
        ("exists sug", ":0"),
        ("ft.sugadd sug a 1", ":1"),
        ("ft.sugadd sug '' 1", ":1"),
        ("ft.sugget sug ''", "*1|$1|a"),
    ]);
    let mut bench = Bench::default();
    assert_eq!(bench.run_args(&["ft.sugadd", "sug", &"é".repeat(256), "1"]), ":0");
    assert_eq!(bench.run_args(&["ft.sugadd", "sug", &"é".repeat(255), "1"]), ":1");
}

#[test]
fn invalid_arguments_are_refused() {
    check(&[
        ("set string v", "+OK"),
        ("ft.sugadd string a 1", WRONG_TYPE),
        ("ft.sugget string a", WRONG_TYPE),
        ("ft.sugdel string a", WRONG_TYPE),
        ("ft.suglen string", WRONG_TYPE),
        ("ft.sugadd ac missing", "-ERR wrong number of arguments for 'ft.sugadd' command"),
        ("ft.sugadd ac a 1 INCR INCR INCR INCR", "-ERR wrong number of arguments for 'ft.sugadd' command"),
        ("ft.sugadd ac olah not_a_number", "-ERR invalid score"),
        ("ft.sugadd ac olah nan", "-ERR invalid score"),
        ("ft.sugadd ac olah 1 PAYLOAD", "-Invalid payload: Expected an argument, but none provided"),
        ("ft.sugadd ac olah 1 REDIS PAYLOAD payload", "-Unknown argument `REDIS`"),
        ("exists ac", ":0"),
        ("ft.sugadd ac inf inf", ":1"),
        ("ft.sugadd ac inf -inf INCR", "-ERR resulting score is not a number (NaN)"),
        ("ft.sugget ac inf FUZZ", "-SEARCH_PARSE_ARGS Unrecognized argument: FUZZ"),
        ("ft.sugget ac inf MAX", "-SEARCH_PARSE_ARGS MAX: Expected an argument, but none provided"),
        ("ft.sugget ac inf MAX x", "-SEARCH_PARSE_ARGS MAX: Could not convert argument to expected type"),
        ("ft.sugget ac inf MAX 0", "-SEARCH_PARSE_ARGS MAX: Value is outside acceptable bounds"),
        ("ft.sugget ac inf MAX 1.5", "*1|$3|inf"),
    ]);
    let mut bench = Bench::default();
    bench.check(&[("ft.sugadd ac a 1", ":1")]);
    assert_eq!(bench.run_args(&["ft.sugget", "ac", &"a".repeat(101)]), "-Invalid query");
    assert_eq!(bench.run_args(&["ft.sugget", "none", &"a".repeat(101)]), "*0");
    assert_eq!(bench.run_args(&["ft.sugget", "none", &"a".repeat(201)]), "-Invalid query length");
}

#[test]
fn generic_commands_work_on_suggestions() {
    let mut bench = Bench::default();
    bench.check(&[
        ("ft.sugadd s one 1 PAYLOAD p", ":1"),
        ("ft.sugadd s two 2", ":2"),
        ("copy s copy", ":1"),
        ("ft.sugdel s one", ":1"),
        ("ft.sugget copy o WITHPAYLOADS", "*2|$3|one|$1|p"),
        ("rename copy moved", "+OK"),
        ("ft.suglen moved", ":2"),
        ("get moved", WRONG_TYPE),
        ("scan 0 type trietype0 count 1000", "*2|$1|0|*2|$5|moved|$1|s"),
        ("expire moved 10", ":1"),
        ("set s v", "+OK"),
        ("unlink moved", ":1"),
    ]);
}

#[test]
fn increments_are_recorded_as_their_result() {
    let mut bench = Bench::default();
    bench.effects.recording = true;
    let mut recorded = |line: &str| {
        bench.effects.begin();
        bench.run(line);
        let mut unit = Record::default();
        bench.effects.record(0, None, &mut unit);
        String::from_utf8_lossy(unit.bytes()).replace("\r\n", " ")
    };
    assert!(recorded("ft.sugadd s a 0.1 INCR").contains("$9 FT.SUGADD $1 s $1 a $19 0.10000000149011612 "));
    let second = recorded("ft.sugadd s a 0.2 INCR PAYLOAD p");
    assert!(second.contains("$1 a $19 0.30000001192092896 $7 PAYLOAD $1 p "), "{second}");
}
