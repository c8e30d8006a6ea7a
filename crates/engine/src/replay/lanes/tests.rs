use resp::request::Batch;
use store::random::Random;

use super::*;
use crate::testing::request as encoded;

const LANES: usize = 4;

fn words(line: &str) -> Vec<u8> {
    encoded(&line.split(' ').collect::<Vec<_>>())
}

fn stream(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| words(line)).collect()
}

/// A source of keys by lane.
struct Keys {
    keyspace: Keyspace,
}

impl Keys {
    fn new() -> Keys {
        Keys { keyspace: Keyspace::new(16, LANES) }
    }

    fn map(&self) -> LaneMap<'_> {
        LaneMap::of(&self.keyspace, LANES).unwrap()
    }

    fn lane_of(&self, key: &[u8]) -> usize {
        self.map().lane_of(KeyHash::of(key))
    }

    /// Returns a key of a lane.
    fn of(&self, lane: usize, number: usize) -> String {
        (0..).map(|i| format!("{number}:{i}")).find(|key| self.lane_of(key.as_bytes()) == lane).unwrap()
    }

    fn cut(&self, commands: &[u8], bounds: RoundBounds) -> Vec<StreamSection> {
        let mut cutter = Cutter::new(self.map(), (Limits::default(), bounds), commands, 3);
        std::iter::from_fn(|| cutter.next_section()).collect()
    }
}

/// Returns the units of some commands, each with the database that is selected before it. `database` is the one before
/// the first unit.
fn units(commands: &[u8], database: &mut usize) -> Vec<(usize, Vec<u8>)> {
    let (mut batch, input) = (Batch::default(), Input::from(commands));
    let (end, _) = Framer::default().frame(input, 0, &Limits::default(), usize::MAX, &mut batch);
    assert_eq!(end, commands.len());
    let (mut all, mut begins, mut at) = (Vec::new(), None, 0);
    let mut before = *database;
    for request in batch.requests() {
        let args = batch.args(request, input);
        let start = std::mem::replace(&mut at, request.end as usize);
        match args.get(0) {
            b"SELECT" => *database = parse_i64(args.get(1)).unwrap() as usize,
            b"MULTI" => (begins, before) = (Some(start), *database),
            b"EXEC" => all.push((before, commands[begins.take().unwrap()..at].to_vec())),
            _ if begins.is_none() => all.push((*database, commands[start..at].to_vec())),
            _ => {}
        }
    }
    all
}

/// Returns the lanes of a unit's keys. This function knows only the commands of these tests.
fn lanes_of(keys: &Keys, unit: &[u8]) -> Vec<usize> {
    let (mut batch, input) = (Batch::default(), Input::from(unit));
    Framer::default().frame(input, 0, &Limits::default(), usize::MAX, &mut batch);
    let mut lanes = Vec::new();
    for request in batch.requests() {
        let args = batch.args(request, input);
        let found: Vec<&[u8]> = match args.get(0) {
            b"MULTI" | b"EXEC" | b"SELECT" => continue,
            b"SET" | b"HSET" | b"RPUSH" => vec![args.get(1)],
            b"MSET" => (1..args.len()).step_by(2).map(|i| args.get(i)).collect(),
            b"DEL" => args.from(1).collect(),
            // No lane has this command.
            _ => return vec![0, 1],
        };
        lanes.extend(found.into_iter().map(|key| keys.lane_of(key)));
    }
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

#[test]
fn a_round_has_each_unit_once_and_lanes_keep_the_order() {
    let keys = Keys::new();
    let mut random = Random::new(7);
    let mut rounds = 0;
    for history in 0..200 {
        let mut below = |end: usize| random.below(end);
        let mut commands = Vec::new();
        let key = |below: &mut dyn FnMut(usize) -> usize| keys.of(below(LANES), below(3));
        for number in 0..below(100) {
            let one = |below: &mut dyn FnMut(usize) -> usize| match below(30) {
                0 => "FLUSHALL".to_owned(),
                1 => "PING".to_owned(),
                2 => format!("MSET {} {number} {} x", key(below), key(below)),
                3 => format!("DEL {} {}", key(below), key(below)),
                4 => format!("LTRIM {} 0 9", key(below)),
                5 | 6 => format!("RPUSH {} {number}", key(below)),
                _ => format!("SET {} {number}", key(below)),
            };
            match below(12) {
                0 => commands.extend(words(&format!("SELECT {}", below(3)))),
                1 => {
                    let lane = below(LANES);
                    commands.extend(words("MULTI"));
                    for _ in 0..below(3) {
                        commands.extend(words(&format!("HSET {} f {number}", keys.of(lane, number))));
                        if below(3) == 0 {
                            commands.extend(words(&format!("SELECT {}", below(3))));
                        }
                    }
                    if below(3) == 0 {
                        commands.extend(words(&one(&mut below)));
                    }
                    commands.extend(words("EXEC"));
                }
                _ => commands.extend(words(&one(&mut below))),
            }
        }
        let bounds = RoundBounds { units_max: 1 + below(20), units_min: 1 + below(4), ..RoundBounds::least() };
        let (mut start, mut database) = (0, 3);
        for section in keys.cut(&commands, bounds) {
            let (StreamSection::InOrder { end } | StreamSection::Lanes { end, .. }) = section;
            assert!(end > start, "{history}");
            let before = database;
            let expected = units(&commands[start..end], &mut database);
            start = end;
            let StreamSection::Lanes { lanes, databases, .. } = section else { continue };
            rounds += 1;
            assert_eq!(databases, [before, database], "{history}");
            assert!(expected.len() >= bounds.units_min && expected.len() <= bounds.units_max, "{history}");
            for (number, lane) in lanes.iter().enumerate() {
                let mut database = lane.database;
                let of_lane = expected.iter().filter(|(_, unit)| lanes_of(&keys, unit) == [number]).cloned();
                assert_eq!(units(&lane.commands, &mut database), of_lane.collect::<Vec<_>>(), "{history}");
            }
            assert!(expected.iter().all(|(_, unit)| lanes_of(&keys, unit).len() == 1), "{history}");
        }
        assert_eq!(start, commands.len(), "{history}");
    }
    assert!(rounds > 200, "{rounds}");
}

/// Returns whether commands of two lanes form a round with these bytes between them.
fn is_within_round(keys: &Keys, between: &[u8]) -> bool {
    let [first, second] = [0, 1].map(|lane| words(&format!("SET {} v", keys.of(lane, 0))));
    let commands = [&first[..], between, &second].concat();
    let bounds = RoundBounds { unit_bytes_max: 100, ..RoundBounds::least() };
    let sections = keys.cut(&commands, bounds);
    match &sections[..] {
        [StreamSection::Lanes { end, .. }] => *end == commands.len(),
        sections => {
            assert!(sections.iter().all(|section| matches!(section, StreamSection::InOrder { .. })), "{sections:?}");
            false
        }
    }
}

#[test]
fn units_of_several_lanes_or_of_none_are_applied_alone() {
    let keys = Keys::new();
    let [zero, one] = [0, 1].map(|lane| keys.of(lane, 1));
    let long = "v".repeat(100);
    let within = [
        vec![format!("SET {zero} v")],
        vec![format!("DEL {zero} {}", keys.of(0, 2))],
        vec!["SELECT 2".into()],
        vec![format!("LPOP {zero}"), format!("XADD {one} 1-1 f v"), format!("RENAME {one} {}", keys.of(1, 2))],
        vec!["MULTI".into(), format!("SET {one} v"), format!("DEL {one}"), "EXEC".into()],
    ];
    let between = [
        vec![format!("DEL {zero} {one}")],
        vec!["FLUSHALL".into()],
        vec!["SWAPDB 0 1".into()],
        vec!["PUBLISH c m".into()],
        vec!["PING".into()],
        vec!["PING token".into()],
        vec!["SCRIPT LOAD return".into()],
        vec!["FUNCTION FLUSH".into()],
        vec![format!("EVAL return 1 {zero}")],
        vec![format!("FCALL f 1 {zero}")],
        vec![format!("LTRIM {zero} 0 1")],
        vec![format!("LPOP {zero} 100000")],
        vec![format!("XADD {zero} MAXLEN 1 1-1 f v")],
        vec![format!("BZPOPMIN {zero} 0")],
        vec![format!("RENAME {zero} {one}")],
        vec![format!("ZUNIONSTORE {zero} 1 {zero}")],
        vec![format!("SET {zero}")],
        vec![format!("NONSENSE {zero}")],
        vec!["SELECT x".into()],
        vec!["EXEC".into()],
        vec!["MULTI".into(), "EXEC".into()],
        vec!["MULTI".into(), format!("SET {zero} v"), format!("SET {one} v"), "EXEC".into()],
        vec!["MULTI".into(), format!("SET {zero} v"), "SELECT 1".into(), "EXEC".into()],
        vec!["MULTI".into(), format!("SET {zero} v"), "PING token".into(), "EXEC".into()],
        vec!["MULTI".into(), "MULTI".into(), format!("SET {zero} v"), "EXEC".into()],
        vec!["MULTI".into(), format!("SET {zero} v")],
        vec![format!("SET {zero} {long}")],
        vec!["MULTI".into(), format!("SET {zero} v"), format!("SET {zero} v"), format!("SET {zero} v"), "EXEC".into()],
    ];
    let stream = |lines: &[String]| lines.iter().flat_map(|line| words(line)).collect::<Vec<_>>();
    within.iter().for_each(|lines| assert!(is_within_round(&keys, &stream(lines)), "{lines:?}"));
    between.iter().for_each(|lines| assert!(!is_within_round(&keys, &stream(lines)), "{lines:?}"));
    assert!(!is_within_round(&keys, b"*x\r\n") && !is_within_round(&keys, b"*1\r\n$4\r\nPI"));
}

#[test]
fn incomplete_requests_are_left_after_a_round() {
    let keys = Keys::new();
    let round = stream(&[&*format!("SET {} v", keys.of(0, 0)), &*format!("SET {} v", keys.of(1, 0))]);
    for rest in [&b"*x\r\n"[..], b"*1\r\n$4\r\nPI", b"*1\r\n$5\r\nMULTI\r\n"] {
        let commands = [&round[..], rest].concat();
        let sections = keys.cut(&commands, RoundBounds::least());
        let ends: Vec<_> = sections
            .iter()
            .map(|section| match section {
                StreamSection::Lanes { end, .. } => (true, *end),
                StreamSection::InOrder { end } => (false, *end),
            })
            .collect();
        assert_eq!(ends, [(true, round.len()), (false, commands.len())], "{}", rest.escape_ascii());
    }
}

/// A transaction that is applied alone may select another database.
#[test]
fn a_round_knows_the_database_selected_before_it() {
    let keys = Keys::new();
    let [zero, one] = [0, 1].map(|lane| format!("SET {} v", keys.of(lane, 0)));
    let commands = stream(&["MULTI", "SELECT 7", &zero, "EXEC", &zero, &one, "SELECT 8", &one]);
    let sections = keys.cut(&commands, RoundBounds::least());
    let [StreamSection::InOrder { .. }, StreamSection::Lanes { databases: [7, 8], lanes, .. }] = &sections[..] else {
        panic!("{sections:?}");
    };
    assert_eq!(lanes[0], Lane { commands: words(&zero), database: 7 });
    assert_eq!(lanes[1], Lane { commands: stream(&[&one, "SELECT 8", &one]), database: 7 });
}

#[test]
fn a_round_has_enough_for_several_threads() {
    let keys = Keys::new();
    let bounds = RoundBounds::default();
    let of_lanes = |lanes: &[usize]| {
        lanes.iter().flat_map(|&lane| words(&format!("SET {} v", keys.of(lane, 0)))).collect::<Vec<_>>()
    };
    let has_round =
        |commands: &[u8]| keys.cut(commands, bounds).iter().any(|s| matches!(s, StreamSection::Lanes { .. }));
    assert!(has_round(&of_lanes(&[0, 1].repeat(bounds.units_min / 2))));
    assert!(!has_round(&of_lanes(&[0, 1].repeat(bounds.units_min / 2 - 1))));
    assert!(!has_round(&of_lanes(&[2].repeat(bounds.units_min * 30))));
    let few = bounds.shared_min;
    let hot = |others: usize| of_lanes(&[&[2].repeat(bounds.units_min)[..], &[1].repeat(others)].concat());
    assert!(has_round(&hot(few)) && !has_round(&hot(few - 1)));
    // The stream is cut into parts; no part exceeds the time that readers may wait.
    let commands = of_lanes(&[0, 1, 2, 3].repeat(bounds.units_max));
    let sections = keys.cut(&commands, bounds);
    assert_eq!(sections.len(), 4);
    let large = encoded(&["SET", &keys.of(0, 0), &"v".repeat(8 << 10)]).repeat(10);
    let commands = [&large[..], &of_lanes(&[1].repeat(100))].concat().repeat(4);
    let sections = keys.cut(&commands, bounds);
    assert!(sections.len() > 2, "{}", sections.len());
    let mut start = 0;
    for section in sections {
        let (StreamSection::InOrder { end } | StreamSection::Lanes { end, .. }) = section;
        assert!(end - start <= bounds.bytes_max + bounds.unit_bytes_max);
        start = end;
    }
}
