//! Tests of the owners' side: the commands that one node runs for the pipeline of another.

use super::super::tests::told_to_close;
use super::*;
use crate::clients::progress::Progress;
use crate::testing::{Bench, request};

const FENCED: &str = "-FENCED 8 is the generation of another connection with this pipeline token";

/// Returns a link that has attached to the token `t`, which has this count.
fn attached(bench: &mut Bench, generation: u64, count: &str) -> crate::clients::session::Session {
    let mut link = bench.open();
    bench.check(&mut link, &[(&format!("pipeline attach t {generation} 60"), count)]);
    link
}

fn executed(bench: &Bench) -> u64 {
    bench.worker.engine.pipelines.get(b"t", bench.now_us / 1000).unwrap().executed()
}

#[test]
fn commands_count_at_the_positions_of_the_home() {
    let mut bench = Bench::default();
    let mut link = attached(&mut bench, 7, "*2|:0|:0");
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    bench.check(
        &mut link,
        &[
            ("pipeline at 3", "+OK"),
            ("set k 1", "+OK"),
            ("pipeline at 9", "+OK"),
            ("lpush k x", wrong_type),
            (
                "pipeline status t",
                &format!("*8|$8|executed|:9|$6|failed|:1|$8|failures|*1|*2|:9|$65|{}|$8|database|:0", &wrong_type[1..]),
            ),
            ("pipeline at 10", "+OK"),
            ("multi", "+OK"),
            ("incr k", "+QUEUED"),
            ("lpush k x", "+QUEUED"),
            ("exec", &format!("*2|:2|{wrong_type}")),
        ],
    );
    // The home knows the failure of the command before.
    attached(&mut bench, 8, &format!("*4|:13|:1|:12|$65|{}", &wrong_type[1..]));
}

#[test]
fn a_later_generation_ends_the_earlier_one() {
    let mut bench = Bench::default();
    let mut old = attached(&mut bench, 7, "*2|:0|:0");
    bench.check(&mut old, &[("pipeline at 1", "+OK"), ("incr k", ":1")]);
    let mut new = attached(&mut bench, 8, "*2|:1|:0");
    assert_eq!(told_to_close(&bench), [old.client.id]);
    assert_eq!(bench.run(&mut old, b"PIPELINE AT 2\r\nINCR k\r\n"), (Vec::new(), Progress::Closing));
    let mut late = bench.open();
    let (reply, progress) = bench.run(&mut late, b"PIPELINE ATTACH t 7 60\r\nPIPELINE AT 2\r\nINCR k\r\n");
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with(FENCED) && reply.contains("PIPELINE AT needs"), "{reply}");
    assert_eq!((reply.matches('-').count(), progress), (2, Progress::Closing));
    bench.check(&mut new, &[("pipeline at 2", "+OK"), ("incr k", ":2")]);
    // Another link of the same client.
    let mut other = attached(&mut bench, 8, "*2|:2|:0");
    assert_eq!(told_to_close(&bench), [new.client.id]);
    bench.check(&mut other, &[("pipeline at 3", "+OK"), ("incr k", ":3")]);
    assert_eq!(executed(&bench), 3);
}

#[test]
fn positions_that_are_counted_close_the_link() {
    for bad in
        ["pipeline at 2", "pipeline at 0", "pipeline at x", "pipeline at -9223372036854775808", "pipeline at 3 x"]
    {
        let mut bench = Bench::default();
        let mut link = attached(&mut bench, 1, "*2|:0|:0");
        bench.check(&mut link, &[("pipeline at 2", "+OK"), ("incr k", ":1")]);
        let words: Vec<&str> = bad.split(' ').collect();
        let (_, progress) = bench.run(&mut link, &[request(&words), request(&["incr", "k"])].concat());
        assert_eq!(progress, Progress::Closing, "{bad}");
        let mut other = bench.open();
        bench.check(&mut other, &[("get k", "$1|1")]);
    }
}

#[test]
fn tokens_of_clients_and_of_nodes_are_apart() {
    let mut bench = Bench::default();
    let mut client = bench.open();
    bench.check(&mut client, &[("pipeline start own", "+OK")]);
    let mut link = attached(&mut bench, 1, "*2|:0|:0");
    let exists = String::from_utf8(EXISTS.text().to_vec()).unwrap();
    let mut other = bench.open();
    assert_eq!(bench.line(&mut other, "pipeline attach own 1 60"), format!("-{exists}"));
    assert!(bench.line(&mut link, "pipeline attach u 1 60").starts_with("-ERR This connection counts for another"));
    assert!(bench.line(&mut other, "pipeline attach t x 60").starts_with("-ERR value is not an integer"));
    let (_, progress) = bench.run(&mut client, b"PIPELINE AT 5\r\nSET k v\r\n");
    assert_eq!(progress, Progress::Closing);
    bench.check(&mut other, &[("exists k", ":0")]);
}
