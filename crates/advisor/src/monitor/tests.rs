use super::*;
use crate::Config;
use crate::findings::{Confidence, Kind};

fn check(line: &[u8], time_ns: u64, source: &[u8], arguments: &[&[u8]]) {
    let mut texts = Texts::default();
    let expected = Line { time_ns, source, batch: None, reply_bytes: None };
    assert_eq!(parse(line, &mut texts), Some(expected), "{}", line.escape_ascii());
    assert_eq!(texts.args.args().from(0).collect::<Vec<_>>(), arguments, "{}", line.escape_ascii());
}

#[test]
fn lines_of_all_versions_are_read() {
    let time_ns = 1_341_173_848_796_741_000;
    check(b"1341173848.796741 [0 127.0.0.1:60866] \"keys\" \"*\"", time_ns, b"127.0.0.1:60866", &[b"keys", b"*"]);
    check(b"+1341173848.796741 [15 [::1]:60866] \"PING\"", time_ns, b"[::1]:60866", &[b"PING"]);
    check(b"1341173848.796741 [0 unix:/tmp/a b.sock] \"PING\"", time_ns, b"unix:/tmp/a b.sock", &[b"PING"]);
    check(b"1341173848.796741 \"zadd\" \"a\" \"10\"", time_ns, b"", &[b"zadd", b"a", b"10"]);
    check(b"1341173848.796741 (db 5) \"get\" \"a\"", time_ns, b"", &[b"get", b"a"]);
    check(b"1341173848.000001 \"get\" \"\"", 1_341_173_848_000_001_000, b"", &[b"get", b""]);
}

#[test]
fn escapes_are_undone() {
    let line = br#"1.000000 [0 a:1] "set" "\"\\\n\r\t\a\b\x00\xff] \"" "x""#;
    check(line, 1_000_000_000, b"a:1", &[b"set", b"\"\\\n\r\t\x07\x08\x00\xff] \"", b"x"]);
}

#[test]
fn lines_without_a_command_are_skipped() {
    for line in [
        "",
        "OK",
        "+OK",
        "1.5 \"get\"",
        "1.000000 [0 lua] \"get\" \"a\"",
        "x.000000 \"get\"",
        "1.000000 ",
        "1.000000 [0 a:1] batch",
        "1.000000 [0 a:1] batch 0",
        "1.000000 [0 a:1] batch -1",
        "1.000000 [0 a:1] batch x",
    ] {
        assert_eq!(parse(line.as_bytes(), &mut Texts::default()), None, "{line}");
    }
}

/// A log of a client that gets keys one by one, and sets them in pipelines.
fn log() -> String {
    let mut log = String::from("OK\n");
    for number in 0..100 {
        let us = 1_000_000 + number * 80;
        log += &format!("1600000000.{us:06} [0 10.0.0.5:5000] \"GET\" \"user:{number}\"\n", us = us % 1_000_000);
        log += &format!("1600000000.{us:06} [0 10.0.0.6:6000] \"SET\" \"x:{number}\" \"1\"\n", us = us % 1_000_000 + 7);
        log += &format!("1600000000.{us:06} [0 10.0.0.6:6000] \"SET\" \"x:{number}\" \"1\"\n", us = us % 1_000_000 + 9);
    }
    log
}

fn read(log: &[u8], piece: usize) -> (Advisor, LogCounts) {
    let (mut reader, mut advisor) = (MonitorReader::new(), Advisor::new(Config::default()));
    log.chunks(piece).for_each(|bytes| reader.feed(bytes, &mut advisor));
    let counts = reader.counts();
    reader.end(&mut advisor);
    (advisor, counts)
}

#[test]
fn a_loop_in_a_log_is_found() {
    let (advisor, counts) = read(log().as_bytes(), usize::MAX);
    assert_eq!((counts.commands, counts.skipped, counts.is_without_sources), (300, 1, false));
    let groups = advisor.findings().groups();
    let of_kind = |kind| &groups.iter().find(|group| group.total.kind == kind).unwrap().total;
    let small = of_kind(Kind::SmallPipelines);
    assert_eq!((groups.len(), small.sums.made, small.sums.needed), (2, 100, 1), "{groups:#?}");
    let finding = of_kind(Kind::Loop);
    assert_eq!((finding.kind, finding.sums.made, finding.sums.needed), (Kind::Loop, 100, 1));
    assert_eq!((&*finding.client.address, finding.sums.lost_ns), ("10.0.0.5", 99 * 80_000));
    assert_eq!(finding.sums.confidence(), Confidence::Medium);
}

#[test]
fn pieces_of_any_size_give_the_same() {
    let log = log();
    let expected = crate::report::json(&read(log.as_bytes(), usize::MAX).0.findings());
    for piece in [1, 2, 3, 7, 64, 1000] {
        assert_eq!(crate::report::json(&read(log.as_bytes(), piece).0.findings()), expected, "{piece}");
    }
}

#[test]
fn a_log_may_be_cut_anywhere() {
    let log = log();
    for len in (0..400).chain(log.len() - 200..log.len()) {
        read(&log.as_bytes()[..len], usize::MAX);
        read(&log.as_bytes()[len..], usize::MAX);
    }
}

#[test]
fn lines_without_an_end_take_no_memory() {
    let (mut reader, mut advisor) = (MonitorReader::new(), Advisor::new(Config::default()));
    reader.feed(b"1.000000 \"set\" \"a\" \"", &mut advisor);
    for _ in 0..64 {
        reader.feed(&vec![b'x'; 1 << 20], &mut advisor);
    }
    assert!(reader.line.capacity() <= 2 * LINE_BYTES_MAX, "{}", reader.line.capacity());
    reader.feed(b"\"\n1.000001 \"get\" \"a\"\n", &mut advisor);
    assert_eq!(reader.counts().commands, 2);
}

#[test]
fn clients_tell_their_names() {
    let log = "1.000000 [0 a:1] \"CLIENT\" \"SETNAME\" \"importer\"\n\
               1.000100 [0 a:1] \"client\" \"setinfo\" \"LIB-NAME\" \"redis-py\"\n\
               1.000200 [0 a:1] \"client\" \"setinfo\" \"LIB-VER\" \"5.0\"\n";
    let gets: String =
        (0..100).map(|number| format!("1.{:06} [0 a:1] \"GET\" \"k{number}\"\n", 300 + number * 100)).collect();
    let (advisor, _) = read((log.to_owned() + &gets).as_bytes(), usize::MAX);
    let groups = advisor.findings().groups();
    assert_eq!(groups[0].total.client.to_string(), "importer (redis-py 5.0) at a");
}

/// The trips of connections with a command each, after a list of `before` of them, and with a list of `open` ones at the end.
fn short_lives(before: usize, open: Option<usize>) -> Option<u64> {
    let (mut reader, mut advisor) = (MonitorReader::new(), Advisor::new(Config::default()));
    let source = |number: usize| format!("10.0.0.5:{}", 5000 + number);
    (0..before).for_each(|number| reader.introduce(source(number).as_bytes(), Client::default()));
    reader.note_list();
    for number in 0..100 {
        let seconds = number + 1;
        let log = format!(
            "{seconds}.000000 [0 {from}] \"client\" \"setinfo\" \"LIB-NAME\" \"x\"\n\
             {seconds}.000100 [0 {from}] \"GET\" \"key:{number}\"\n",
            from = source(number)
        );
        reader.feed(log.as_bytes(), &mut advisor);
    }
    if let Some(open) = open {
        (0..open).for_each(|number| reader.introduce(source(99 - number).as_bytes(), Client::default()));
        reader.note_list();
    }
    reader.end(&mut advisor);
    let groups = advisor.findings().groups();
    assert!(groups.iter().all(|group| group.total.kind == Kind::ConnectionPerCommand), "{groups:#?}");
    assert!(groups.iter().all(|group| group.total.sums.confidence() == Confidence::Medium), "{groups:#?}");
    groups.first().map(|group| group.total.sums.count)
}

/// Only lists of the open connections show that a connection opens and closes.
#[test]
fn connections_for_one_command_are_found_between_lists() {
    assert_eq!(short_lives(0, Some(0)), Some(100));
    assert_eq!(short_lives(20, Some(30)), Some(50));
    assert_eq!(short_lives(0, Some(100)), None, "a pool");
    assert_eq!(short_lives(0, None), None);
}

/// Checks the reply of a line: its beginning and its length.
fn check_reply(line: &str, expected: Option<(&[u8], u64)>) {
    let mut texts = Texts::default();
    let line_read = parse(line.as_bytes(), &mut texts).unwrap();
    assert_eq!(texts.args.args().from(0).collect::<Vec<_>>(), [b"get".as_slice(), b"a"], "{line}");
    assert_eq!(line_read.reply_bytes.map(|bytes| (texts.reply.as_slice(), bytes)), expected, "{line}");
}

#[test]
fn replies_of_penstock_are_read() {
    let command = r#"1.000000 [0 a:1] "get" "a""#;
    check_reply(command, None);
    check_reply(&format!(r#"{command} => "$2\r\n\x00\"\r\n""#), Some((b"$2\r\n\0\"\r\n", 8)));
    check_reply(&format!(r#"{command} => "$100000\r\n" +100002"#), Some((b"$100000\r\n", 100_011)));
    check_reply(&format!(r#"{command} => "" +x"#), None);
    check_reply(&format!("{command} =>"), None);
}

/// Batch lines show the commands that were sent together, whatever the times.
#[test]
fn a_log_with_batches_and_replies_gives_medium_confidence() {
    let mut log = String::new();
    let mut us = 0;
    let mut line = |text: String, later_us: u64| {
        us += later_us;
        log += &format!("{}.{:06} [0 a:1] {text}\n", 1 + us / 1_000_000, us % 1_000_000);
    };
    for movie in 0..20 {
        line(format!("batch {}", 50), 80);
        (0..50).for_each(|n| line(format!(r#""SET" "bulk:{movie}:{n}" "x" => "+OK\r\n""#), 30));
        for prefix in ["the", "num", "numb", "number"] {
            line("batch 1".to_owned(), 80);
            line(format!(r#""ZSCORE" "index:{prefix}" "movie {movie}" => "$3\r\n{}\r\n""#, 100 + movie), 3);
        }
    }
    for piece in [usize::MAX, 7] {
        let (advisor, counts) = read(log.as_bytes(), piece);
        assert_eq!((counts.commands, counts.skipped, counts.connections), (20 * 54, 0, 1));
        let groups = advisor.findings().groups();
        assert_eq!(groups.len(), 1, "{groups:#?}");
        let finding = &groups[0].total;
        assert_eq!((finding.kind, finding.sums.made, finding.sums.needed), (Kind::RepeatedRead, 80, 20));
        assert_eq!((finding.sums.confidence(), finding.sums.without_replies), (Confidence::Medium, 0));
    }
}

/// Lines of MONITOR BATCHES of one client.
#[derive(Default)]
struct Lines {
    log: String,
    us: u64,
}

impl Lines {
    fn add(&mut self, passes_us: u64, text: &str) {
        self.us += passes_us;
        self.log += &format!("1600000000.{:06} [0 10.0.0.5:5000] {text}\n", self.us);
    }

    /// Returns the kinds and the trips of the findings, after a loop of 100 trips.
    fn find_before_loop(mut self) -> Vec<(Kind, u64)> {
        for number in 0..100 {
            self.add(100, "batch 1");
            self.add(1, &format!("\"GET\" \"user:{number}\" => \"$1\\r\\nx\\r\\n\""));
        }
        let (advisor, _) = read(self.log.as_bytes(), usize::MAX);
        advisor.findings().groups().iter().map(|group| (group.total.kind, group.total.sums.made)).collect()
    }
}

/// Penstock shows queued commands when EXEC runs, and one batch line for them and EXEC.
#[test]
fn transactions_in_slices_are_found_and_later_loops_too() {
    let mut lines = Lines::default();
    for number in 0..60 {
        lines.add(100, "batch 1");
        lines.add(1, "\"MULTI\" => \"+OK\\r\\n\"");
        lines.add(200, "batch 1");
        lines.add(1, &format!("\"INCRBY\" \"account:{number}\" \"5\" => \":5\\r\\n\""));
        lines.add(1, "\"EXEC\" => \"*1\\r\\n:5\\r\\n\"");
    }
    let found = lines.find_before_loop();
    assert!(found.contains(&(Kind::Loop, 100)) && found.contains(&(Kind::TransactionInSlices, 60 * 3)), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}

/// A client that sends MULTI and the commands at once, and then EXEC. Penstock shows the commands when EXEC runs.
#[test]
fn transactions_with_a_late_exec_are_small_pipelines() {
    let mut lines = Lines::default();
    for number in 0..60 {
        lines.add(100, "batch 3");
        lines.add(1, "\"MULTI\" => \"+OK\\r\\n\"");
        lines.add(80, "batch 1");
        lines.add(1, &format!("\"HSET\" \"seat:{number}\" \"state\" \"sold\" => \":1\\r\\n\""));
        lines.add(1, "\"INCR\" \"sold\" => \":7\\r\\n\"");
        lines.add(1, "\"EXEC\" => \"*2\\r\\n:1\\r\\n:7\\r\\n\"");
    }
    let found = lines.find_before_loop();
    assert!(found.contains(&(Kind::Loop, 100)) && found.contains(&(Kind::SmallPipelines, 60 * 2)), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}

/// A client that writes the commands of a transaction one by one: the batches have any sizes.
#[test]
fn transactions_in_parts_are_small_pipelines() {
    let mut lines = Lines::default();
    for number in 0..60 {
        let first = [4, 2, 1, 2][number % 4];
        lines.add(100, &format!("batch {first}"));
        lines.add(1, "\"MULTI\" => \"+OK\\r\\n\"");
        if first < 4 {
            lines.add(60, &format!("batch {}", 4 - first));
        }
        lines.add(1, &format!("\"HSET\" \"seat:{number}\" \"state\" \"sold\" => \":1\\r\\n\""));
        lines.add(1, "\"INCR\" \"sold\" => \":7\\r\\n\"");
        lines.add(1, "\"EXEC\" => \"*2\\r\\n:1\\r\\n:7\\r\\n\"");
    }
    let found = lines.find_before_loop();
    assert!(found.contains(&(Kind::SmallPipelines, 60)), "{found:?}");
}
