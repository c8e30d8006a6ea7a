//! Expected replies and estimates come from Redis 7. A comparison with a running Redis server checks that the bytes
//! are equal, too.

use store::entry::View;
use store::random::Random;

use super::dense::{self, REGISTERS, REGISTERS_BYTES, Registers};
use super::hash::Mark;
use super::sparse::{self, Opcodes};
use super::value::{DENSE_BYTES, Draft, HEADER_BYTES, HyperLogLog};
use crate::testing::{Bench, check, int};

const CORRUPT: &str = "-INVALIDOBJ Corrupted HLL object detected";
const NOT_ONE: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SPARSE_BYTES_MAX: usize = 3000;

/// Adds elements with the names e0, e1 and so on.
fn add(bench: &mut Bench, key: &str, elements: std::ops::Range<usize>) -> String {
    let words = ["pfadd".into(), key.into()].into_iter().chain(elements.map(|i| format!("e{i}")));
    bench.run_args(&words.collect::<Vec<String>>())
}

#[test]
fn elements_are_added_and_counted() {
    check(&[
        ("pfadd h", ":1"),
        ("pfadd h", ":0"),
        ("pfdebug decode h", "$7|Z:16384"),
        ("pfcount h", ":0"),
        ("pfadd h a", ":1"),
        ("pfadd h a", ":0"),
        ("pfdebug decode h", "$20|Z:12711 v:2,1 Z:3672"),
        ("pfcount h", ":1"),
        ("del h", ":1"),
        ("pfadd h e0 e1 e2 e3 e4 e5", ":1"),
        ("pfdebug decode h", "$80|Z:1318 v:1,1 Z:9569 v:2,1 Z:782 v:2,1 Z:260 v:2,1 Z:3770 v:2,1 Z:245 v:2,1 Z:434"),
        ("strlen h", ":36"),
        ("pfcount h", ":6"),
        ("pfcount h none", ":6"),
        ("pfadd i e5 e6", ":1"),
        ("pfcount h i", ":7"),
        ("pfmerge h i", "+OK"),
        ("pfcount h", ":7"),
        ("pfmerge empty", "+OK"),
        ("pfcount empty", ":0"),
        ("object encoding h", "$3|raw"),
        ("pfselftest", "+OK"),
    ]);
}

#[test]
fn values_that_are_not_hyperloglogs_are_refused() {
    let script = [
        ("rpush l x", ":1"),
        ("mset n 123 s foobar", "+OK"),
        ("pfadd l a", WRONG_TYPE),
        ("pfadd n a", NOT_ONE),
        ("pfadd s a", NOT_ONE),
        ("pfcount l", WRONG_TYPE),
        ("pfcount none l", WRONG_TYPE),
        ("pfcount n", NOT_ONE),
        ("pfmerge none s", NOT_ONE),
        ("pfmerge s", NOT_ONE),
        ("exists none", ":0"),
        ("pfdebug encoding none", "-ERR The specified key does not exist"),
        ("pfdebug nosuch none", "-ERR The specified key does not exist"),
        ("pfdebug nosuch s", NOT_ONE),
        ("pfadd h a", ":1"),
        ("pfdebug nosuch h", "-ERR Unknown PFDEBUG subcommand 'nosuch'"),
        ("pfdebug encoding h", "+sparse"),
        ("pfdebug todense h", ":1"),
        ("pfdebug todense h", ":0"),
        ("pfdebug encoding h", "+dense"),
        ("pfdebug decode h", "-ERR HLL encoding is not sparse"),
        ("pfcount h", ":1"),
    ];
    check(&script);
}

/// Builds a sparse value with these opcodes.
fn value_of(opcodes: &[u8]) -> Vec<u8> {
    [b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80", opcodes].concat()
}

#[test]
fn corrupt_values_are_refused() {
    let mut bench = Bench::default();
    let xzero = [0x7f, 0xff];
    // Runs with lengths that add up to 16384 only modulo 2^16, and runs that overflow 32 bits.
    let around = xzero.repeat(5);
    for opcodes in
        [&b""[..], &xzero[..1], b"\x7f\xfe", b"\x7f\xff\x00", b"\x7f\xff\x84", &around, &[0; 100], &[0xff; 40]]
    {
        bench.run_args(&[&b"set"[..], b"h", &value_of(opcodes)]);
        for line in ["pfcount h", "pfcount h none", "pfmerge d h", "pfmerge h", "pfdebug todense h", "pfdebug getreg h"]
        {
            assert_eq!(bench.run(line), CORRUPT, "{line} with {opcodes:?}");
        }
        assert_eq!(bench.run("exists d"), ":0");
        bench.run("pfdebug decode h");
        // PFADD to the intact part either changes it as in Redis or not at all.
        for line in ["pfadd h a", "pfadd h a b c d e f g h i j"] {
            let before = bench.run("get h");
            let reply = bench.run(line);
            assert!(reply != CORRUPT || bench.run("get h") == before, "{line} with {opcodes:?}: {reply}");
        }
    }
    // Values that are too long for the sparse form, then a valid one.
    bench.run_args(&[&b"set"[..], b"h", &value_of(&xzero.repeat(40_000))]);
    bench.check(&[("pfadd h a", CORRUPT), ("pfcount h", CORRUPT), ("pfmerge d h", CORRUPT)]);
    bench.run_args(&[&b"set"[..], b"h", &value_of(&xzero)]);
    bench.check(&[("pfcount h", ":0"), ("pfadd h a", ":1"), ("pfmerge d h", "+OK")]);
    for bytes in
        [&b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\x7f\xff"[..], b"HYLX\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff", b"HYLL\x01\0"]
    {
        bench.run_args(&[&b"set"[..], b"h", bytes]);
        bench.check(&[("pfadd h a", NOT_ONE), ("pfcount h", NOT_ONE), ("pfdebug decode h", NOT_ONE)]);
    }
    bench.run_args(&[&b"set"[..], b"h", &[b"HYLL\0\0\0\0", &[0; DENSE_BYTES][9..]].concat()]);
    bench.check(&[("pfadd h a", NOT_ONE), ("pfcount h", NOT_ONE)]);
}

/// Strings with a sparse header and random opcodes, sometimes of the right total length.
#[test]
fn random_opcodes_are_read_or_refused() {
    let mut random = Random::new(23);
    let mut accepted = 0;
    for round in 0..3000 {
        let mut bench = Bench::default();
        bench.rules.hll_sparse_bytes_max = random.below(60);
        let mut opcodes: Vec<u8> = (0..random.below(12)).map(|_| random.below(256) as u8).collect();
        if round % 2 == 0 {
            let given: usize = sparse::runs(&opcodes).flatten().map(|run| run.len).sum();
            let mut rest = Opcodes::default();
            rest.push_zeros(REGISTERS.saturating_sub(given));
            opcodes.extend_from_slice(rest.bytes());
        }
        bench.run_args(&[&b"set"[..], b"h", &value_of(&opcodes)]);
        for line in ["pfdebug decode h", "pfcount h", "pfcount h none", "pfadd h a b c d e f g"] {
            bench.run(line);
        }
        if bench.run("pfmerge e h") == "+OK" {
            accepted += 1;
            assert_eq!(bench.run("pfcount e"), bench.run("pfcount h none"), "{opcodes:?}");
            assert_eq!(bench.run("pfadd e h i j k l"), bench.run("pfadd h h i j k l"), "{opcodes:?}");
            assert_eq!(bench.run("pfcount e"), bench.run("pfcount e h"), "{opcodes:?}");
        }
    }
    assert!(accepted > 1000, "{accepted}");
}

#[test]
fn estimates_are_those_of_redis() {
    let mut bench = Bench::default();
    let mut added = 0;
    for (elements, estimate, encoding) in [
        (10, 10, "sparse"),
        (100, 100, "sparse"),
        (1000, 1008, "sparse"),
        (1500, 1509, "sparse"),
        (2000, 2000, "dense"),
        (10_000, 9973, "dense"),
        (100_000, 100_853, "dense"),
    ] {
        add(&mut bench, "h", added..elements);
        added = elements;
        assert_eq!(bench.run("pfdebug encoding h"), format!("+{encoding}"), "{elements} elements");
        assert_eq!(int(&bench.run("pfcount h none")), estimate, "{elements} elements");
        assert_eq!(int(&bench.run("pfcount h")), estimate, "{elements} elements");
        assert_eq!(int(&bench.run("pfcount h")), estimate, "the kept estimate of {elements} elements");
    }
}

/// Computes the estimate of a draft.
fn estimate(draft: &Draft) -> u64 {
    HyperLogLog::of(View::Bytes(&draft.bytes)).unwrap().count().unwrap()
}

#[test]
fn estimates_are_within_three_standard_errors() {
    let mut random = Random::new(17);
    for elements in [20u64, 300, 5000, 50_000, 500_000] {
        let mut draft = Draft::empty();
        for _ in 0..elements {
            draft.raise(Mark::of(&random.next().to_le_bytes()), SPARSE_BYTES_MAX).unwrap();
        }
        let error = (estimate(&draft) as f64 - elements as f64) / elements as f64;
        assert!(error.abs() < 3.0 * 1.04 / (REGISTERS as f64).sqrt(), "{elements} elements: {error}");
    }
}

#[test]
fn the_hash_is_that_of_redis() {
    // Registers and values are from PFDEBUG GETREG after PFADD.
    for (element, register, value) in [("", 5938, 2), ("a", 12711, 2), ("e0", 1318, 1), ("hello world", 9399, 4)] {
        let mark = Mark::of(element.as_bytes());
        assert_eq!((mark.register, mark.value), (register, value), "{element}");
    }
}

fn random_registers(random: &mut Random, values: usize) -> Registers {
    std::array::from_fn(|_| random.below(values) as u8)
}

#[test]
fn dense_registers_are_independent() {
    let mut random = Random::new(1);
    let (mut packed, mut model) = ([0; REGISTERS_BYTES], [0; REGISTERS]);
    for _ in 0..50_000 {
        let (register, value) = (random.below(REGISTERS), random.below(64) as u8);
        dense::set(&mut packed, register, value);
        model[register] = value;
    }
    assert!((0..REGISTERS).all(|register| dense::get(&packed, register) == model[register]));
    let mut again = [0xff; REGISTERS_BYTES];
    dense::pack(&model, &mut again);
    assert_eq!(again, packed);
    let mut histogram = [0; 64];
    model.iter().for_each(|value| histogram[usize::from(*value)] += 1);
    assert_eq!(dense::histogram(&packed), histogram);
    assert_eq!(dense::histogram_of(&model), histogram);
    let other = random_registers(&mut random, 64);
    let mut merged = other;
    dense::merge(&mut merged, &packed);
    assert!((0..REGISTERS).all(|register| merged[register] == model[register].max(other[register])));
}

/// Returns the registers of a draft.
fn registers_of(draft: &Draft) -> Registers {
    let mut registers = [0; REGISTERS];
    HyperLogLog::of(View::Bytes(&draft.bytes)).unwrap().merge_into(&mut registers).unwrap();
    registers
}

#[test]
fn sparse_and_dense_forms_have_the_same_registers() {
    let mut random = Random::new(2);
    for (raises, values, near) in
        [(30, 40, REGISTERS), (1000, 3, REGISTERS), (3000, 3, 700), (3000, 5, 100), (20_000, 52, REGISTERS)]
    {
        let mut draft = Draft::empty();
        let mut model = [0; REGISTERS];
        for _ in 0..raises {
            let mark = Mark { register: random.below(near), value: 1 + random.below(values) as u8 };
            let is_below = model[mark.register] < mark.value;
            assert_eq!(draft.raise(mark, SPARSE_BYTES_MAX).unwrap(), is_below);
            model[mark.register] = mark.value.max(model[mark.register]);
        }
        assert_eq!(registers_of(&draft), model);
        let dense_estimate = super::estimate::estimate(&dense::histogram_of(&model));
        assert_eq!(estimate(&draft), dense_estimate);
        draft.make_dense().unwrap();
        assert_eq!(registers_of(&draft), model);
    }
}

/// Remembering the position of the last register must not change the result.
#[test]
fn registers_raised_in_order_equal_registers_raised_one_by_one() {
    let mut random = Random::new(3);
    for round in 0..40 {
        let mut before = Draft::empty();
        for _ in 0..random.below(400) {
            let mark = Mark { register: random.below(2000), value: 1 + random.below(3) as u8 };
            before.raise(mark, SPARSE_BYTES_MAX).unwrap();
        }
        let mut at_once = Draft::of(before.bytes.clone());
        let mut bytes = before.bytes;
        let mut register = 0;
        while register < 2000 {
            let mark = Mark { register, value: 1 + random.below(4) as u8 };
            let mut alone = Draft::of(bytes);
            assert_eq!(at_once.raise(mark, 900).unwrap(), alone.raise(mark, 900).unwrap());
            assert_eq!(at_once.bytes, alone.bytes, "round {round}, register {register}");
            bytes = alone.bytes;
            // Some registers are out of order.
            register = if random.below(50) == 0 { register / 2 } else { register + 1 + random.below(6) };
            if random.below(400) == 0 {
                break;
            }
        }
    }
}

#[test]
fn a_value_becomes_dense_beyond_the_sparse_limits() {
    let mut draft = Draft::empty();
    assert!(draft.raise(Mark { register: 5, value: 33 }, SPARSE_BYTES_MAX).unwrap());
    assert!(draft.is_dense() && draft.bytes.len() == DENSE_BYTES);
    // Zeros, the value and more zeros, exactly up to the limit.
    for (limit, is_dense) in [(HEADER_BYTES + 4, false), (HEADER_BYTES + 3, true), (0, true)] {
        let mut draft = Draft::empty();
        assert!(draft.raise(Mark { register: 5, value: 32 }, limit).unwrap());
        assert_eq!(draft.is_dense(), is_dense, "{limit}");
        assert_eq!(registers_of(&draft)[5], 32);
    }
    let mut bench = Bench::default();
    bench.rules.hll_sparse_bytes_max = 100;
    add(&mut bench, "h", 0..100);
    bench.check(&[("pfdebug encoding h", "+dense"), ("pfcount h", ":100"), ("strlen h", ":12304")]);
    // Merging a dense one makes a sparse one dense, too.
    bench.check(&[
        ("pfadd i a", ":1"),
        ("pfmerge i h", "+OK"),
        ("pfdebug encoding i", "+dense"),
        ("pfcount i", ":101"),
    ]);
    bench.check(&[("pfmerge j h", "+OK"), ("pfcount j", ":100"), ("pfcount h i j", ":101")]);
}

#[test]
fn vectors_can_be_turned_off_and_on() {
    let mut bench = Bench::default();
    add(&mut bench, "h", 0..5000);
    add(&mut bench, "i", 4000..9000);
    let mut answers = Vec::new();
    for (word, reply) in [("OFF", "+disabled"), ("on", "+enabled"), ("Off", "+disabled"), ("ON", "+enabled")] {
        bench.check(&[(&format!("pfdebug simd {word}"), reply), ("pfmerge d h i", "+OK")]);
        answers.push(["pfcount h i", "pfdebug getreg d", "get d"].map(|line| bench.run(line)));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    for line in ["pfdebug simd h", "pfdebug SIMD none", "pfdebug simd yes"] {
        bench.check(&[(line, "-ERR Argument must be ON or OFF")]);
    }
    bench.check(&[("exists ON OFF", ":0")]);
}

#[test]
fn events_and_counts_of_changes_match_redis() {
    let mut bench = Bench::default();
    for (line, events, changes) in [
        ("pfadd h a b", "pfadd h", 3),
        ("pfadd h a b", "", 0),
        ("pfadd h c a d", "pfadd h", 2),
        // Watchers learn about the cached estimate, but no event is published.
        ("pfcount h", " h", 1),
        ("pfcount h", "", 0),
        ("pfcount h h", "", 0),
        ("pfmerge h", "pfadd h", 1),
        ("pfmerge d h none", "pfadd d", 1),
        ("pfdebug todense d", "", 1),
        ("pfdebug todense d", "", 0),
        ("pfdebug getreg h", "", 1),
        ("pfcount d", " d", 1),
        ("pfadd d a", "", 0),
        ("pfadd d zz", "pfadd d", 1),
    ] {
        bench.run(line);
        assert_eq!(bench.events().join(","), events, "{line}");
        assert_eq!(std::mem::take(&mut bench.effects.dirty), changes, "{line}");
    }
}
