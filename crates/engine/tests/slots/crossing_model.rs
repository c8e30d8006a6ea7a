//! Random commands and transactions over several slots of a node, compared with the same commands on keys of one slot. The
//! replies are equal, because the slots of the keys decide nothing else.

use config::{Loader, Settings};
use engine::clients::session::Session;
use engine::testing::request;

use crate::world::*;

/// Keys per type. Few keys make commands meet the results of others.
const KEYS: u64 = 4;
const ROUNDS: u64 = 3000;

/// Commands, most of them with several keys. A random key of the same type replaces each word of a letter and a digit. `s` stands
/// for strings, `l` lists, `e` sets, `z` sorted sets, `h` HyperLogLogs.
const COMMANDS: &[&str] = &[
    "mset s1 1 s2 2 s3 3",
    "mget s1 s2 s3",
    "msetnx s1 4 s2 5",
    "set s1 6",
    "append s1 x",
    "del s1 s2",
    "unlink l1 e1 z1",
    "exists s1 l1 e1 z1 h1",
    "touch s1 s2 s3",
    "rename s1 s2",
    "renamenx e1 e2",
    "copy z1 z2",
    "copy s1 s2 replace",
    "bitop and s1 s2 s3",
    "bitop xor s1 s2 s3",
    "lcs s1 s2",
    "rpush l1 a b c",
    "lmove l1 l2 left right",
    "rpoplpush l1 l2",
    "lmpop 2 l1 l2 left",
    "sort l1 alpha store l2",
    "sadd e1 1 2 3",
    "sadd e1 3 4 5",
    "smove e1 e2 3",
    "sinter e1 e2",
    "sunionstore e1 e2 e3",
    "sdiffstore e1 e2 e3",
    "sintercard 2 e1 e2",
    "zadd z1 1 a 2 b",
    "zadd z1 3 b 4 c",
    "zunionstore z1 2 z2 z3",
    "zinterstore z1 2 z2 z3 weights 2 3",
    "zdiff 2 z1 z2 withscores",
    "zrangestore z1 z2 0 1",
    "zmpop 2 z1 z2 min",
    "pfadd h1 a b",
    "pfadd h1 c",
    "pfmerge h1 h2 h3",
    "pfcount h1 h2 h3",
    "sinter s1 e1",
    "mget s1",
];

/// A script with two declared keys.
const SCRIPT: &str = "redis.call('incr', KEYS[1]) return redis.call('mget', KEYS[1], KEYS[2])";

/// A source of numbers from one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Returns the key's tag for a placeholder, for example `e2`.
    fn key(&mut self, word: &str) -> Option<String> {
        let [kind @ (b's' | b'l' | b'e' | b'z' | b'h'), b'1'..=b'9'] = word.as_bytes() else { return None };
        Some(format!("{}{}", char::from(*kind), self.below(KEYS)))
    }

    /// Returns a command's words. Keys have the form `{TAG}k`.
    fn command(&mut self) -> Vec<String> {
        if self.below(20) == 0 {
            let keys = ["s1", "s2"].map(|word| format!("{{{}}}k", self.key(word).unwrap()));
            return [&["eval", SCRIPT, "2"].map(str::to_owned)[..], &keys].concat();
        }
        let line = COMMANDS[self.below(COMMANDS.len() as u64) as usize];
        line.split(' ')
            .map(|word| self.key(word).map_or_else(|| word.to_owned(), |tag| format!("{{{tag}}}k")))
            .collect()
    }

    /// Returns a pipeline: some commands, a transaction, or a transaction that watches keys.
    fn pipeline(&mut self) -> Vec<Vec<String>> {
        let count = 1 + self.below(12);
        let mut commands: Vec<_> = (0..count).map(|_| self.command()).collect();
        let word = |word: &str| vec![word.to_owned()];
        if self.below(4) == 0 {
            commands.insert(0, word("multi"));
            commands.push(word("exec"));
        }
        if self.below(8) == 0 {
            commands.insert(0, "watch {s0}k {e0}k {z0}k".split(' ').map(str::to_owned).collect());
            commands.push(word("unwatch"));
        }
        commands
    }
}

/// Sends a pipeline, and returns its replies.
fn run(node: &mut Node, session: &mut Session, commands: &[Vec<String>]) -> String {
    let bytes: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
    String::from_utf8_lossy(&node.bench.run(session, &bytes).0).into_owned()
}

#[test]
fn keys_in_several_slots_answer_as_keys_in_one() {
    let mut everything = parts();
    everything.bound = vec![(A, cluster::SlotSet::FULL)];
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"cluster-cross-slot".to_vec(), b"local".to_vec()]).unwrap();
    let (mut several, mut one) = (Node::with(settings, 1, everything.clone()), Node::new(everything));
    let (mut sessions, mut numbers) = ([several.open(), one.open()], Numbers(0x5eed_1234_abcd));
    let to_one = |text: &str| {
        let mut text = text.to_owned();
        for tag in ["s", "l", "e", "z", "h"].iter().flat_map(|kind| (0..KEYS).map(move |at| format!("{kind}{at}"))) {
            text = text.replace(&format!("{{{tag}}}k"), &format!("{{k}}{tag}"));
        }
        text
    };
    for round in 0..ROUNDS {
        let commands = numbers.pipeline();
        let in_one: Vec<Vec<String>> =
            commands.iter().map(|words| words.iter().map(|word| to_one(word)).collect()).collect();
        let replies = run(&mut several, &mut sessions[0], &commands);
        let expected = run(&mut one, &mut sessions[1], &in_one);
        assert_eq!(to_one(&replies), expected, "round {round}: {commands:?}");
        assert!(!expected.contains("CROSSSLOT"), "round {round}: {commands:?}");
    }
}
