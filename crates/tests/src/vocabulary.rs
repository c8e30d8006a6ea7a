//! Values for the slots of templates: a small pool of keys, so that commands often use the same ones, and edge cases
//! that servers handle wrongly.

use crate::bytes::Command;
use crate::rng::Rng;

/// Keys for a type: usually used for this type, sometimes for another one, so that commands meet a wrong type.
const STRING_KEYS: &[&[u8]] = &[b"s1", b"s2", b"s3", b"s\r\n\x00\xff", b""];
const NUMBER_KEYS: &[&[u8]] = &[b"n1", b"n2", b"n3"];
const LCS_KEYS: &[&[u8]] = &[b"lcs1", b"lcs2"];
const LIST_KEYS: &[&[u8]] = &[b"l1", b"l2", b"l3"];
const HASH_KEYS: &[&[u8]] = &[b"h1", b"h2", b"h3"];
const SET_KEYS: &[&[u8]] = &[b"t1", b"t2", b"t3", b"t4"];
const ZSET_KEYS: &[&[u8]] = &[b"z1", b"z2", b"z3", b"z4"];
/// Keys of sorted sets with equal scores, so that lexical ranges are defined.
pub const LEX_KEYS: &[&[u8]] = &[b"x1", b"x2"];
/// Keys that match `SORT`'s BY and GET patterns.
const WEIGHT_KEYS: &[&[u8]] = &[b"w_1", b"w_2", b"w_3", b"w_5", b"w_10", b"w_a"];
const STREAM_KEYS: &[&[u8]] = &[b"e1", b"e2", b"e3"];
const BITS_KEYS: &[&[u8]] = &[b"b1", b"b2", b"b3", b"b4"];
/// Keys of HyperLogLogs. Commands on other types don't change them: PFADD on a corrupt one adds some of its elements in
/// Redis, and none in Penstock.
const HLL_KEYS: &[&[u8]] = &[b"p1", b"p2", b"p3", b"p4"];
/// Keys of suggestions: the oracles must get no command on them.
const SUG_KEYS: &[&[u8]] = &[b"a1", b"a2", b"a3"];
const GEO_KEYS: &[&[u8]] = &[b"g1", b"g2", b"g3"];
const MISSING_KEYS: &[&[u8]] = &[b"nokey", b"nokey2"];

const POOLS: &[(&str, &[&[u8]])] = &[
    ("str", STRING_KEYS),
    ("num", NUMBER_KEYS),
    ("lcs", LCS_KEYS),
    ("list", LIST_KEYS),
    ("hash", HASH_KEYS),
    ("set", SET_KEYS),
    ("zset", ZSET_KEYS),
    ("lex", LEX_KEYS),
    ("weight", WEIGHT_KEYS),
    ("stream", STREAM_KEYS),
    ("bits", BITS_KEYS),
    ("geo", GEO_KEYS),
    ("missing", MISSING_KEYS),
];

/// Probability of a key from another type's pool, in percent.
const STRANGER_PERCENT: usize = 6;

const VALUES: &[&[u8]] = &[
    b"",
    b"a",
    b"hello world",
    b"\r\n",
    b"$5\r\nhello\r\n",
    b"\x00\x01\xfe\xff",
    b"10",
    b"-7",
    b"0",
    b"007",
    b"+5",
    b" 5",
    b"3.25",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"12345678901234567890123456789012345678901234567890",
    b"caf\xc3\xa9 \xe2\x82\xac",
];

/// Lengths around the limits of Redis's encodings: 44 | 45 (embedded strings), 64 | 65 (packed hashes, sets and sorted
/// sets).
const LENGTHS: &[usize] = &[20, 43, 44, 45, 63, 64, 65, 100, 200, 5000];

const MEMBERS: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"aa",
    b"ab",
    b"B",
    b"",
    b"\r\n",
    b"\xff\x00",
    b"foo bar",
    b"1.5",
    b"-0",
    b"12345678901234567890",
    b"-9223372036854775808",
    b"9223372036854775807",
];

const INTS: &[&[u8]] = &[
    b"1",
    b"-1",
    b"10",
    b"100",
    b"4611686018427387904",
    b"9223372036854775807",
    b"9223372036854775806",
    b"-9223372036854775808",
    b"-9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
];

const INDEXES: &[&[u8]] = &[
    b"0",
    b"1",
    b"2",
    b"3",
    b"5",
    b"10",
    b"127",
    b"128",
    b"-1",
    b"-2",
    b"-3",
    b"-5",
    b"-100",
    b"1000000",
    b"2147483648",
    b"-2147483649",
    b"9223372036854775807",
    b"-9223372036854775808",
];

const COUNTS: &[&[u8]] = &[b"0", b"1", b"2", b"3", b"5", b"10", b"100", b"1000"];

const FLOATS: &[&[u8]] = &[
    b"0",
    b"1",
    b"-1",
    b"2.5",
    b"-0.5",
    b"0.1",
    b"0.2",
    b"3.0e3",
    b"1e-7",
    b"5.0e3",
    b"100000000000000000000",
    b"1e17",
    b"-1e15",
    b"1.7976931348623157e308",
    b"3.0",
    b"0.30000000000000004",
    b"123456789.123456789",
    b"1e-300",
];

/// No denormal numbers: Redis keeps small sorted sets as text, and parsing the text of a denormal score sets an errno
/// that SORT misinterprets.
const SCORES: &[&[u8]] = &[
    b"0",
    b"1",
    b"2",
    b"3",
    b"-1",
    b"1.5",
    b"0.1",
    b"2.5",
    b"-0",
    b"10",
    b"100",
    b"1e10",
    b"3.3333333333333335",
    b"1e20",
    b"1e-7",
    b"inf",
    b"-inf",
    b"+inf",
    b"Infinity",
    b"4611686018427387904",
    b"9007199254740993",
    b"1.7976931348623157e308",
    b"0x10",
];

/// DUMP payloads of redis-server 7.0 for values of each type, and invalid payloads.
const PAYLOADS: &[&[u8]] = &[
    b"\x00\x05hello\x0a\x00cr\xdfve4 \x0a",
    b"\x00\xc190\x0a\x00\x9d\x94\xea'\x93\xfc\x08\xb9",
    b"\x00\xc3\x0d@\x96\x05word w\xe0\x85\x04\x01d \x0a\x00\x9a\x95\xf6\x883r\x1b/",
    b"\x12\x01\x02\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x01\x01\xff\x0a\x00\xe0\x1b\xabJG\xceY\x22",
    b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02\x00,\x01\x0a\x00\xe5\x10\xb2\x8e{\x95)\xaa",
    b"\x02\x02\x01b\x01a\x0a\x00u\xd9\x9d\x83^\xf8_e",
    b"\x10\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81n\x02\x01\x01\xff\x0a\x00\xfc\xe4\x08\xf1y\x22\xe0\x16",
    b"\x11\x14\x14\x00\x00\x00\x04\x00\x81a\x02\x01\x01\x81b\x02\x832.5\x04\xff\x0a\x00\xd4Ln\xa4\xf6D\xd9\xd7",
    b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x1d\x1d\x00\x00\x00\x0a\x00\x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x05\x01\x05\x01\x00\x00\x01\x01\x01g\x00\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x0a\x00\x00\x9bJK;\x16Ml",
    // A set with a duplicate member.
    b"\x02\x02\x01a\x01a\x0a\x00W\xbev/\xc2\xd6R:",
    // An unknown type.
    b"c\x01a\x0a\x00S\xc0\xfb\xdf\xba\xb5\xae\x06",
    // An unknown version.
    b"\x00\x01ac\x00.\xb6\xfbv5\xf9:\xeb",
    b"",
    b"short",
    // A wrong checksum.
    b"\x00\x05hello\x0a\x00cr\xdfve4 !",
];

/// Strings that are HyperLogLogs, nearly valid, or corrupt.
const HLL_VALUES: &[&[u8]] = &[
    // Sparse: empty, with a few registers, and with equal values that Redis would have merged.
    b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff",
    b"HYLL\x01\0\0\0\x06\0\0\0\0\0\0\0E%\x80e`\x84C\x0d\x84A\x03\x84N\xb9\x84@\xf4\x84A\xb1",
    b"HYLL\x01xyz\0\0\0\0\0\0\0\0\x80\x80\x80\x84\x84\x84\x7f\xf9",
    // Zeros in short opcodes, and a short run in a long opcode.
    b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x3f\x00\x40\x05\x00\x8b\x7f\xb3",
    // Without registers.
    b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80",
    b"HYLL\x01\0\0\0\0\0\0\0\0\0\0",
    b"HYLL\x00\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff",
    b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff",
    b"hyll\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff",
    b"17",
];

const SCORE_BOUNDS: &[&[u8]] = &[
    b"-inf", b"+inf", b"inf", b"0", b"1", b"2", b"3", b"(1", b"(2", b"(3", b"1.5", b"(1.5", b"-1", b"(-inf", b"(+inf",
    b"10", b"100", b"1e10", b"(0.1",
];

const LEX_BOUNDS: &[&[u8]] =
    &[b"-", b"+", b"[a", b"(a", b"[b", b"(c", b"[", b"(", b"[aa", b"(foo", b"[z", b"[\xff", b"(m:10", b"[m:5", b"a"];

/// Special IDs of streams, in addition to IDs of entries.
const IDS: &[&[u8]] = &[
    b"0",
    b"0-0",
    b"0-1",
    b"1-",
    b"-1",
    b"05",
    b"+7",
    b"3--2",
    b"1-*",
    b"abc",
    b"-",
    b"+",
    b"$",
    b">",
    b"18446744073709551615",
    b"18446744073709551615-18446744073709551614",
    b"18446744073709551616-1",
];

const PATTERNS: &[&[u8]] = &[
    b"*",
    b"?",
    b"s*",
    b"[a-f]",
    b"*1*",
    b"h?",
    b"[^a]",
    b"\\*",
    b"m:*",
    b"*[0-9]",
    b"",
    b"[z",
    b"nothing*",
    b"**a**",
];

const SORT_PATTERNS: &[&[u8]] =
    &[b"w_*", b"h1->*", b"wh_*->f", b"nosuch_*", b"#", b"w_*->", b"nopattern", b"w_*_*", b"h*->a"];

const BAD_NUMBERS: &[&[u8]] = &[
    b"",
    b"abc",
    b" 1",
    b"1 ",
    b"+1",
    b"-0",
    b"01",
    b"1.0",
    b"1e3",
    b"nan",
    b"-nan",
    b"inf",
    b"0x1A",
    b"--1",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"99999999999999999999999999",
    b"2147483648",
    b"-1",
    b"1e400",
];

const JUNK: &[&[u8]] =
    &[b"BOGUS", b"", b"NX", b"XX", b"GET", b"COUNT", b"LIMIT", b"WITHSCORES", b"EX", b"MATCH", b"STORE"];

/// Expiries so far away that the duration of a test doesn't matter, in seconds.
const FAR_SECONDS: usize = 100_000;

/// Absolute times of such expiries: from the year 2100 on.
const FAR_UNIX_SECONDS: usize = 4_102_444_800;

/// Generates arguments.
#[derive(Debug, Default)]
pub struct Vocabulary {
    /// Number of keys in the last `<keys:...>`, for WEIGHTS.
    keys: usize,
    /// The time of the last ID from `<newid>`.
    last_ms: usize,
}

impl Vocabulary {
    /// Appends the arguments of `slot`. An unknown slot panics: it is a mistake in this crate.
    pub fn fill(&mut self, slot: &str, rng: &mut Rng, out: &mut Command) {
        match slot.split_once(':') {
            Some(("keys", pool)) => self.fill_counted_keys(pool, rng, out),
            Some(("many", kind)) => fill_many(kind, rng, out),
            _ if slot == "weights" => {
                out.push(b"WEIGHTS".to_vec());
                (0..self.keys).for_each(|_| out.push(pick(rng, FLOATS)));
            }
            _ if slot == "place" => out.extend(place(rng)),
            _ if slot == "reach" => out.extend(reach(rng)),
            _ if slot == "newid" => out.push(self.new_id(rng)),
            _ => out.push(self.one(slot, rng)),
        }
    }

    /// Returns an ID that is very likely higher than all earlier ones.
    fn new_id(&mut self, rng: &mut Rng) -> Vec<u8> {
        if rng.chance(5) {
            return self.one("id", rng);
        }
        self.last_ms += rng.below(3);
        let ms = self.last_ms;
        match rng.below(4) {
            0 => ms.to_string(),
            1 => format!("{ms}-*"),
            _ => format!("{ms}-{}", rng.below(5)),
        }
        .into_bytes()
    }

    /// Returns an ID that an entry may have.
    fn id(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(10) {
            0 => pick(rng, IDS),
            1..4 => rng.below(self.last_ms + 2).to_string().into_bytes(),
            _ => format!("{}-{}", rng.below(self.last_ms + 2), rng.below(6)).into_bytes(),
        }
    }

    fn one(&self, slot: &str, rng: &mut Rng) -> Vec<u8> {
        if matches!(slot, "key" | "hll" | "sug") || POOLS.iter().any(|(name, _)| *name == slot) {
            return key(slot, rng);
        }
        match slot {
            "val" => value(rng),
            "member" | "field" | "elem" => member(rng),
            "int" => number(rng, INTS),
            "smallint" => (rng.below(41) as i64 - 20).to_string().into_bytes(),
            "index" => number(rng, INDEXES),
            "count" => number(rng, COUNTS),
            "offset" => {
                pick(rng, &[b"0", b"1", b"5", b"44", b"100", b"5000", b"-1", b"536870912", b"9223372036854775807"])
            }
            "float" => pick(rng, FLOATS),
            "score" => score(rng),
            "payload" => pick(rng, PAYLOADS),
            "bound" => pick(rng, SCORE_BOUNDS),
            "id" => self.id(rng),
            "idbound" => match rng.below(6) {
                0 => b"-".to_vec(),
                1 => b"+".to_vec(),
                2 => [b"(".to_vec(), self.id(rng)].concat(),
                _ => self.id(rng),
            },
            "group" => pick(rng, &[b"g1", b"g1", b"g2", b"nogroup"]),
            "consumer" => pick(rng, &[b"alice", b"bob", b"carol"]),
            // No entry is idle for the longest time, and all are idle for the shorter ones.
            "idle" => pick(rng, &[b"0", b"0", b"100000000", b"-5"]),
            "lexbound" => pick(rng, LEX_BOUNDS),
            "pattern" => pick(rng, PATTERNS),
            "sortpattern" => pick(rng, SORT_PATTERNS),
            "bitoffset" => {
                number(rng, &[b"7", b"8", b"63", b"64", b"100", b"8191", b"8200", b"-1", b"4294967296", b"x"])
            }
            "bitindex" => bit_index(rng),
            "fieldtype" => field_type(rng),
            "fieldoffset" => field_offset(rng),
            "fieldvalue" => field_value(rng),
            "element" => element(rng),
            "hllbytes" => hyperloglog(rng),
            "far" => (FAR_SECONDS + rng.below(FAR_SECONDS)).to_string().into_bytes(),
            "farms" => ((FAR_SECONDS + rng.below(FAR_SECONDS)) * 1000).to_string().into_bytes(),
            "farat" => (FAR_UNIX_SECONDS + rng.below(FAR_SECONDS)).to_string().into_bytes(),
            "farmsat" => ((FAR_UNIX_SECONDS + rng.below(FAR_SECONDS)) * 1000).to_string().into_bytes(),
            "past" => pick(rng, &[b"-1", b"0", b"-1000", b"-9223372036854775808", b"9223372036854775807"]),
            "pastat" => pick(rng, &[b"1", b"1000", b"0", b"-5", b"9223372036854775807", b"9223372036854775"]),
            "db" => pick(rng, &[b"0", b"0", b"1", b"2", b"15", b"16", b"-1", b"abc"]),
            "blocktime" => pick(rng, &[b"0.001", b"0.001", b"0.001", b"-1", b"abc", b"1e100"]),
            "word" => pick(rng, &[b"a", b"ohmytext", b"mynewtext", b"aaaaaaaa", b"abcabcabc", b"", b"xbxcxdxe"]),
            "title" => title(rng),
            _ => panic!("no such slot: <{slot}>"),
        }
    }

    /// Appends a number of keys and the keys; sometimes the number is wrong.
    fn fill_counted_keys(&mut self, pool: &str, rng: &mut Rng, out: &mut Command) {
        self.keys = 1 + rng.below(4);
        let said = if rng.chance(4) { rng.below(7) } else { self.keys };
        out.push(said.to_string().into_bytes());
        (0..self.keys).for_each(|_| out.push(key(pool, rng)));
    }
}

fn pick(rng: &mut Rng, pool: &[&[u8]]) -> Vec<u8> {
    rng.pick(pool).to_vec()
}

fn key(pool: &str, rng: &mut Rng) -> Vec<u8> {
    let own = match pool {
        "hll" => Some(HLL_KEYS),
        "sug" => Some(SUG_KEYS),
        _ => POOLS.iter().find(|(name, _)| *name == pool).map(|(_, keys)| *keys),
    };
    match own {
        Some(keys) if !rng.chance(STRANGER_PERCENT) => pick(rng, keys),
        _ => {
            let (_, keys) = *rng.pick(POOLS);
            pick(rng, keys)
        }
    }
}

/// Returns a text of a few words with common beginnings, accents and capitals; sometimes arbitrary bytes.
fn title(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(5) {
        return value(rng);
    }
    let words = ["the ", "The ", "they", "th\u{e9}", "star ", "Star", "st\u{e4}r ", "a", "b", "\u{1f600}", " of "];
    (0..1 + rng.below(4)).map(|_| *rng.pick(&words)).collect::<String>().into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0..5 => pick(rng, VALUES),
        5..7 => rng.below(100).to_string().into_bytes(),
        7 => pick(rng, INTS),
        _ => long(rng),
    }
}

fn member(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..9 => pick(rng, MEMBERS),
        9..17 => (rng.below(12) as i64 - 1).to_string().into_bytes(),
        17 => (rng.next_u64() as i64 >> rng.below(60)).to_string().into_bytes(),
        18 => format!("m:{}", rng.below(40)).into_bytes(),
        _ => long(rng),
    }
}

fn score(rng: &mut Rng) -> Vec<u8> {
    match rng.below(10) {
        0..5 => rng.below(6).to_string().into_bytes(),
        5..8 => pick(rng, SCORES),
        8 => format!("{:e}", f64::from_bits(rng.next_u64() & !(1 << 62) | 1 << 53)).into_bytes(),
        _ => format!("{}", rng.below(1_000_000) as f64 / 1000.0).into_bytes(),
    }
}

/// Returns a long value; there are few different ones for each length, so that equal members occur. No NUL: Redis's
/// SORT ALPHA reads only up to it.
fn long(rng: &mut Rng) -> Vec<u8> {
    let len = *rng.pick(LENGTHS);
    vec![*rng.pick(b"xyz\xfe"); len]
}

fn bit_index(rng: &mut Rng) -> Vec<u8> {
    match rng.below(4) {
        0 => pick(rng, INDEXES),
        1 => (rng.below(400) as i64 - 200).to_string().into_bytes(),
        _ => (rng.below(60) as i64 - 30).to_string().into_bytes(),
    }
}

/// Returns a type of BITFIELD: any valid one, or sometimes an invalid one.
fn field_type(rng: &mut Rng) -> Vec<u8> {
    match rng.below(40) {
        0 => pick(rng, &[b"u64", b"i65", b"i0", b"u", b"x8", b"8", b"", b"i08", b"I8"]),
        n if n % 2 == 0 => format!("u{}", 1 + rng.below(63)).into_bytes(),
        _ => format!("i{}", 1 + rng.below(64)).into_bytes(),
    }
}

fn field_offset(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0 => pick(rng, &[b"#", b"#x", b"-1", b"#-1", b"4294967296", b"x", b"5000", b"#80"]),
        1..6 => format!("#{}", rng.below(6)).into_bytes(),
        _ => rng.below(130).to_string().into_bytes(),
    }
}

/// Returns a number at or near the limits of a width.
fn field_value(rng: &mut Rng) -> Vec<u8> {
    let edge = 1i64.checked_shl(rng.below(64) as u32).unwrap_or(0);
    let near = edge.wrapping_add(rng.below(5) as i64 - 2);
    match rng.below(8) {
        0 => pick(rng, INTS),
        1 => (rng.next_u64() as i64 >> rng.below(64)).to_string().into_bytes(),
        2..5 => near.wrapping_neg().to_string().into_bytes(),
        _ => near.to_string().into_bytes(),
    }
}

/// Returns an element of a HyperLogLog: one of few, or a new one.
fn element(rng: &mut Rng) -> Vec<u8> {
    match rng.below(4) {
        0 => member(rng),
        1 => rng.below(20).to_string().into_bytes(),
        _ => rng.next_u64().to_string().into_bytes(),
    }
}

fn hyperloglog(rng: &mut Rng) -> Vec<u8> {
    /// Length of a dense HyperLogLog.
    const DENSE_BYTES: usize = 12304;
    if rng.chance(80) {
        return pick(rng, HLL_VALUES);
    }
    // A dense HyperLogLog with random registers, sometimes one byte too long.
    let mut bytes = b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    bytes.resize_with(DENSE_BYTES + usize::from(rng.chance(10)), || rng.next_u64() as u8);
    bytes
}

/// Returns a longitude and a latitude: usually within one region, so that areas contain members, sometimes at an edge
/// of the grid. Hardly ever the same twice, because the order of members at equal distance is undefined.
fn place(rng: &mut Rng) -> [Vec<u8>; 2] {
    let within =
        |rng: &mut Rng, low: f64, high: f64| low + (high - low) * (rng.next_u64() >> 11) as f64 / 2f64.powi(53);
    let (longitude, latitude) = match rng.below(10) {
        0..6 => (within(rng, 10.0, 20.0), within(rng, 35.0, 45.0)),
        6 => (within(rng, 179.0, 180.0) * *rng.pick(&[1.0, -1.0]), within(rng, -60.0, 60.0)),
        7 => (within(rng, -180.0, 180.0), within(rng, 80.0, 85.05) * *rng.pick(&[1.0, -1.0])),
        _ => (within(rng, -180.0, 180.0), within(rng, -85.05, 85.05)),
    };
    let (mut longitude, mut latitude) = (longitude.to_string().into_bytes(), latitude.to_string().into_bytes());
    match rng.below(40) {
        0 => longitude = pick(rng, &[b"180", b"-180", b"181", b"0x10", b"1e1000", b"-inf"]),
        1 => latitude = pick(rng, &[b"85.05112878", b"-85.05112878", b"85.0512", b"-90", b"1e-5", b"x"]),
        _ => {}
    }
    [longitude, latitude]
}

/// Returns a distance and its unit.
fn reach(rng: &mut Rng) -> [Vec<u8>; 2] {
    let (unit, metres) = *rng.pick(&[("m", 1.0), ("M", 1.0), ("km", 1000.0), ("mi", 1609.34), ("FT", 0.3048)]);
    let length = 10f64.powf(rng.below(80) as f64 / 10.0) / metres;
    let length =
        if rng.chance(5) { pick(rng, &[b"0", b"-1", b"1e300", b"inf", b"x"]) } else { length.to_string().into() };
    [length, unit.into()]
}

fn number(rng: &mut Rng, edges: &[&[u8]]) -> Vec<u8> {
    if rng.chance(60) { rng.below(12).to_string().into_bytes() } else { pick(rng, edges) }
}

/// Appends enough elements to convert a small encoding to a large one.
fn fill_many(kind: &str, rng: &mut Rng, out: &mut Command) {
    let n = *rng.pick(&[20, 127, 128, 129, 130, 300, 600]);
    let start = rng.below(50);
    for i in start..start + n {
        match kind {
            "ints" => out.push(i.to_string().into_bytes()),
            "members" => out.push(format!("m:{i}").into_bytes()),
            "pairs" => out.extend([format!("m:{i}").into_bytes(), i.to_string().into_bytes()]),
            "scored" => out.extend([(i / 3).to_string().into_bytes(), format!("m:{i}").into_bytes()]),
            "elements" => out.push(rng.next_u64().to_string().into_bytes()),
            "places" => {
                out.extend(place(rng));
                out.push(format!("m:{i}").into_bytes());
            }
            "lex" => out.extend([b"0".to_vec(), format!("m:{i}").into_bytes()]),
            _ => panic!("no such slot: <many:{kind}>"),
        }
    }
}

/// Returns text that is not a number, or a number out of range.
pub fn bad_number(rng: &mut Rng) -> Vec<u8> {
    pick(rng, BAD_NUMBERS)
}

/// Returns a word that belongs to other commands, or to none.
pub fn junk(rng: &mut Rng) -> Vec<u8> {
    pick(rng, JUNK)
}

/// Returns any key of any type.
pub fn any_key(rng: &mut Rng) -> Vec<u8> {
    key("key", rng)
}
