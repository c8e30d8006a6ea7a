//! Reads back random snapshots, and checks that damaged ones are refused.

use std::io;

use store::entry::View;
use store::expiry::Ttl;
use store::random::Random;
use store::types::hash::{Hash, HashLimits};
use store::types::list::{End, List, ListLimits};
use store::types::set::{Set, SetLimits};
use store::types::stream::{Delivery, Group, Stream, StreamId, StreamLimits};
use store::types::suggestions::Suggestions;
use store::types::timed_hash::TimedHash;
use store::types::zset::{ZSet, ZSetLimits};
use store::unaligned_box::TightBox;
use store::value::Value;

use super::*;
use crate::crc64::Crc64;
use crate::rdb::{Collection, Options, Target, Writer, trailer};

/// Returns few bytes at a time.
struct Drip<'b> {
    bytes: &'b [u8],
    random: Random,
    most: usize,
}

impl Read for Drip<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = (1 + self.random.below(self.most)).min(room.len()).min(self.bytes.len());
        room[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

/// Generates random keys and values.
struct Draw(Random);

impl Draw {
    fn text(&mut self) -> Vec<u8> {
        let random = &mut self.0;
        match random.below(12) {
            0 => Vec::new(),
            1..=4 => (random.next() as i64 >> random.below(64)).to_string().into_bytes(),
            5 => vec![b'a' + random.below(3) as u8; random.below(3000)],
            6 => (0..random.below(200)).map(|_| random.next() as u8).collect(),
            _ => (0..1 + random.below(8)).map(|_| b'a' + random.below(4) as u8).collect(),
        }
    }

    /// Mostly few elements, sometimes more than compact encodings hold.
    fn count(&mut self) -> usize {
        let most = [4, 30, 200, 700][self.0.below(4)];
        1 + self.0.below(most)
    }

    fn score(&mut self) -> f64 {
        match self.0.below(6) {
            0 => [f64::INFINITY, f64::NEG_INFINITY, 0.0, 1e300, -5e-324, 1e19][self.0.below(6)],
            1..=3 => self.0.below(1000) as f64 - 500.0,
            _ => self.0.next() as i64 as f64 / self.0.next() as f64,
        }
    }

    fn stream(&mut self) -> Stream {
        let mut stream = Stream::default();
        let (mut ids, mut id) = (Vec::new(), StreamId::new(self.0.next() >> self.0.below(64), 0));
        for _ in 0..self.count() {
            id = StreamId::new(id.ms.saturating_add(self.0.below(3) as u64), id.seq + 1 + self.0.below(300) as u64);
            let names = [&[b"a".to_vec(), b"b".to_vec()][..], &[self.text()]][self.0.below(2)].to_vec();
            let texts: Vec<_> = names.into_iter().flat_map(|name| [name, self.text()]).collect();
            stream.entries.push(id, texts.iter().map(|text| &text[..]), StreamLimits::new(4096, 20));
            ids.push(id);
        }
        for _ in 0..self.0.below(3) {
            stream.entries.remove(ids[self.0.below(ids.len())]);
        }
        for _ in 0..self.0.below(3) {
            let mut group = Group::new(id, [None, Some(3)][self.0.below(2)]);
            for consumer in [&b"c1"[..], b"c2"] {
                group.add_consumer(consumer, 1000 + self.0.below(1000) as u64);
                if let Some(consumer) = group.consumer_mut(consumer) {
                    consumer.active_ms = [None, Some(77)][self.0.below(2)];
                }
                for _ in 0..self.0.below(5) {
                    let delivery = Delivery { at_ms: self.0.next() >> 8, deliveries: self.0.below(100) as u64 };
                    group.deliver(ids[self.0.below(ids.len())], consumer, delivery);
                }
            }
            stream.groups.insert(self.text().into_boxed_slice(), group);
        }
        stream
    }

    fn value(&mut self) -> Option<Value> {
        let count = self.count();
        Some(match self.0.below(8) {
            0 => return None,
            1 => {
                let mut list = List::new();
                (0..count).for_each(|_| list.push(End::Right, &self.text(), ListLimits::default()));
                Value::List(list)
            }
            2 => {
                let (mut set, ints) = (Set::new(), self.0.below(2) == 0);
                for at in 0..count {
                    let int = (at as i64 * 3 - 9) << self.0.below(40);
                    let member = if ints { int.to_string().into_bytes() } else { self.text() };
                    set.insert(&member, &SetLimits::default());
                }
                Value::Set(set)
            }
            3 => {
                let mut hash = Hash::new();
                (0..count).for_each(|_| _ = hash.insert(&self.text(), &self.text(), &HashLimits::default()));
                Value::Hash(hash)
            }
            4 => {
                let mut hash = TimedHash::new();
                for _ in 0..count {
                    let ttl = [Ttl::Clear, Ttl::At(1 + self.0.below(1 << 40) as u64), Ttl::At(7)][self.0.below(3)];
                    hash.set(&self.text(), &self.text(), ttl, &HashLimits::default());
                }
                if hash.timed_count() == 0 {
                    hash.set(b"timed", b"v", Ttl::At(9), &HashLimits::default());
                }
                Value::TimedHash(hash)
            }
            5 => {
                let mut zset = ZSet::new();
                (0..count).for_each(|_| _ = zset.insert(&self.text(), self.score(), ZSetLimits::default()));
                Value::ZSet(zset)
            }
            6 => {
                let mut suggestions = Suggestions::default();
                for _ in 0..count {
                    let (text, payload) = (self.text(), self.text());
                    let payload = Some(&*payload).filter(|payload| !payload.is_empty());
                    suggestions.set(&text, self.score() as f32, payload);
                }
                suggestions.set(b"one at least", 1.0, None);
                Value::Suggestions(TightBox::new(suggestions))
            }
            _ => Value::Stream(TightBox::new(self.stream())),
        })
    }

    fn entry(&mut self) -> Entry {
        let expiry = [None, Some(self.0.next() >> 2)][self.0.below(2)];
        let key = self.text();
        match self.value() {
            Some(value) => Entry::object(&key, value, expiry),
            None => Entry::string(&key, &self.text(), expiry),
        }
    }

    fn access(&mut self) -> Access {
        [Access::Unknown, Access::Frequency(200), Access::IdleSeconds(70)][self.0.below(3)]
    }
}

/// Describes a key with its contents and encoding as text.
fn described(entry: &Entry) -> String {
    let escaped = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut parts: Vec<String> = match entry.view() {
        View::Bytes(bytes) => vec![escaped(bytes)],
        View::Int(int) => vec![int.to_string()],
        View::Object(Value::Str(bytes)) => vec![escaped(bytes)],
        View::Object(Value::List(list)) => list.iter().map(|item| escaped(&item.text())).collect(),
        View::Object(Value::Set(set)) => set.iter().map(|member| escaped(&member)).collect(),
        View::Object(Value::Hash(hash)) => {
            hash.iter().map(|(field, value)| format!("{}={}", escaped(&field), escaped(&value))).collect()
        }
        View::Object(Value::TimedHash(hash)) => {
            let mut parts = Vec::new();
            hash.for_each(|field, value, expiry| {
                let time = expiry.map_or(String::new(), |at| format!("@{at}"));
                parts.push(format!("{}={}{time}", escaped(field), escaped(value)));
            });
            parts
        }
        View::Object(Value::ZSet(zset)) => {
            zset.iter().map(|(member, score)| format!("{}={}", escaped(&member), score.to_bits())).collect()
        }
        View::Object(Value::Stream(stream)) => described_stream(stream),
        View::Object(Value::Suggestions(suggestions)) => {
            let mut parts = Vec::new();
            suggestions.for_each(|found| parts.push(format!("{found:?}")));
            parts
        }
    };
    let is_block = matches!(entry.view(), View::Object(Value::TimedHash(hash)) if hash.packed().is_some());
    if matches!(
        entry.view(),
        View::Object(Value::Set(_) | Value::Hash(_) | Value::TimedHash(_) | Value::Suggestions(_))
    ) && !is_block
    {
        parts.sort();
    }
    format!("{} {:?} {} {}", escaped(entry.key()), entry.expiry(), entry.encoding(), parts.join(" "))
}

fn described_stream(stream: &Stream) -> Vec<String> {
    let entries = &stream.entries;
    let mut parts =
        vec![format!("{:?}", (entries.len(), entries.last_id, entries.max_deleted_id, entries.entries_added))];
    for block in entries.blocks() {
        parts.push("block".into());
        parts.extend(block.entries.map(|entry| format!("{} {:?}", entry.id, entry.collect::<Vec<_>>())));
    }
    for (name, group) in &stream.groups {
        parts.push(format!("{name:?} {} {:?} {:?}", group.last_id, group.entries_read, group.pending()));
        let consumers = group.consumers();
        parts
            .extend(consumers.map(|one| format!("{:?} {:?}", (one.name(), one.seen_ms, one.active_ms), one.pending())));
    }
    parts
}

/// Writes a file of these keys.
fn file(entries: &[(Entry, Access)], options: Options, counts: bool) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(options), Vec::new());
    writer.header(&mut out, false);
    writer.select(&mut out, 0);
    entries.iter().for_each(|(entry, access)| writer.entry(&mut out, entry, *access));
    ended(&writer, out, counts)
}

fn ended(writer: &Writer, mut out: Vec<u8>, counts: bool) -> Vec<u8> {
    writer.end(&mut out);
    let mut sum = Crc64::new();
    sum.update(&out);
    out.extend_from_slice(&trailer(counts.then_some(&sum)));
    out
}

/// Returns the keys of a file, and the result of its checksum.
fn read(bytes: impl Read) -> Result<(Vec<(Entry, Access)>, Checksum), Error> {
    let mut reader = Reader::new(bytes, Limits::default());
    let mut entries = Vec::new();
    loop {
        match reader.read_event()? {
            Event::Entry { entry, access } => entries.push((entry, access)),
            Event::End(checksum) => return Ok((entries, checksum)),
            _ => {}
        }
    }
}

/// Claims of more than a terabyte must not allocate memory.
#[test]
fn claimed_sizes_are_trusted_up_to_the_length_of_the_file() {
    let (writer, mut bytes) = (Writer::new(Options::default()), Vec::new());
    writer.header(&mut bytes, false);
    writer.select(&mut bytes, 0);
    writer.resize(&mut bytes, 1 << 60, 0);
    let start = bytes.len();
    // A sorted set, a set and a hash that claim that many elements.
    for kind in [5, 2, 4] {
        bytes.truncate(start);
        bytes.extend([&[kind][..], b"\x01k\x81", &(1u64 << 40).to_be_bytes(), &[1; 4000]].concat());
        for len in [0, bytes.len() as u64] {
            let mut reader = Reader::new(&*bytes, Limits::default()).with_len(len);
            let credible = loop {
                if let Event::Resize { credible, .. } = reader.read_event().unwrap() {
                    break credible;
                }
            };
            assert_eq!(credible, len.saturating_sub(start as u64) as usize / 16);
            assert!(reader.read_event().is_err());
        }
    }
}

fn check_same(read: &[(Entry, Access)], written: &[(Entry, Access)]) {
    assert_eq!(read.len(), written.len());
    for ((read, read_access), (written, access)) in read.iter().zip(written) {
        assert_eq!(described(read), described(written));
        assert_eq!(read_access, access);
    }
}

#[test]
fn snapshots_are_read_back_in_pieces_of_any_size() {
    for seed in 0..30 {
        let mut draw = Draw(Random::new(seed));
        let entries: Vec<_> = (0..8).map(|_| (draw.entry(), draw.access())).collect();
        let target = [Target::Redis70, Target::Redis72][seed as usize % 2];
        let bytes = file(&entries, Options { target, compress: seed % 3 > 0, ..Options::default() }, true);
        for most in [1, 7, 100_000] {
            let drip = Drip { bytes: &bytes, random: Random::new(seed), most };
            let (read, checksum) = read(drip).unwrap();
            check_same(&read, &entries);
            assert_eq!(checksum, Checksum::Right);
        }
    }
}

#[test]
fn writing_in_parts_equals_writing_at_once() {
    for seed in 0..30 {
        let mut draw = Draw(Random::new(seed));
        let entries: Vec<_> = (0..8).map(|_| (draw.entry(), draw.access())).collect();
        let (mut writer, mut out) = (Writer::new(Options::default()), Vec::new());
        writer.header(&mut out, false);
        entries.iter().for_each(|(entry, access)| write_in_parts(&mut writer, &mut out, entry, *access));
        let (read, _) = read(&*ended(&writer, out, false)).unwrap();
        check_same(&read, &entries);
    }
}

fn write_in_parts(writer: &mut Writer, out: &mut Vec<u8>, entry: &Entry, access: Access) {
    let View::Object(value) = entry.view() else { return writer.entry(out, entry, access) };
    let mut begin =
        |writer: &mut Writer, collection| writer.begin(out, entry.key(), entry.expiry(), access, collection);
    match value {
        Value::Str(_) => writer.entry(out, entry, access),
        Value::List(list) => {
            begin(writer, Collection::List(list.node_count() as u64));
            list.blocks().for_each(|(items, count)| writer.list_block(out, items, count));
        }
        Value::Set(set) => {
            begin(writer, Collection::Set(set.len() as u64));
            set.for_each(|member| writer.element(out, member));
        }
        Value::Hash(hash) => {
            begin(writer, Collection::Hash(hash.len() as u64));
            hash.for_each(|field, value| writer.field(out, field, value));
        }
        // Only large ones are written in parts.
        Value::TimedHash(hash) if hash.packed().is_some() => writer.entry(out, entry, access),
        Value::TimedHash(hash) => {
            let first_ms = hash.next_expiry().unwrap_or(0);
            begin(writer, Collection::TimedHash(hash.len() as u64, first_ms));
            hash.for_each(|field, value, expiry| writer.timed_field(out, first_ms, field, value, expiry));
        }
        Value::ZSet(zset) => {
            begin(writer, Collection::ZSet(zset.len() as u64));
            zset.visit_ranks(0..zset.len(), true, |member, score| writer.member(out, member, score));
        }
        Value::Stream(stream) => {
            writer.active_times(out, stream);
            writer.begin(
                out,
                entry.key(),
                entry.expiry(),
                access,
                Collection::Stream(stream.entries.block_count() as u64, stream.producers.is_some()),
            );
            stream.entries.blocks().for_each(|block| writer.stream_block(out, block));
            writer.stream_rest(out, stream);
        }
        Value::Suggestions(suggestions) => {
            begin(writer, Collection::Suggestions(suggestions.len() as u64));
            suggestions.for_each(|found| writer.suggestion(out, found.text, found.score, found.payload));
            writer.suggestions_end(out);
        }
    }
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let mut draw = Draw(Random::new(3));
    let entries: Vec<_> = (0..6).map(|_| (draw.entry(), Access::Unknown)).collect();
    let bytes = file(&entries, Options::default(), true);
    for cut in (0..bytes.len()).step_by(1 + bytes.len() / 3000) {
        let Err(error) = read(&bytes[..cut]) else { panic!("{cut} of {}", bytes.len()) };
        assert!(matches!(error.flaw, Flaw::Cut), "{error}");
        assert_eq!(error.offset, cut as u64);
    }
}

#[test]
fn damage_anywhere_is_refused_or_found_by_the_checksum() {
    for seed in 0..6 {
        let mut draw = Draw(Random::new(seed));
        let entries: Vec<_> = (0..4).map(|_| (draw.entry(), Access::Unknown)).collect();
        let bytes = file(&entries, Options::default(), true);
        for _ in 0..300 {
            let mut damaged = bytes.clone();
            // The checksum itself may become 0, which means that there is none.
            let at = draw.0.below(bytes.len() - 8);
            damaged[at] ^= 1 << draw.0.below(8);
            // A changed byte may also end the file early; the bytes after it are then not its checksum.
            assert!(!matches!(read(&*damaged), Ok((_, Checksum::Right))), "seed {seed} byte {at}");
        }
    }
}

#[test]
fn duplicate_elements_are_found_among_many() {
    for count in [12, 13, 60, 128, 129] {
        let texts: Vec<String> = (0..count).map(|at| format!("{at}")).collect();
        let mut items: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let block =
            |items: &[&[u8]]| [b"REDIS0011\x14\x01k", &text(&listpack_of(items))[..], b"\xFF", &[0; 8]].concat();
        assert!(read(&*block(&items)).is_ok());
        items[count / 2] = items[count - 1];
        assert!(
            read(&*block(&items))
                .map(|_| ())
                .unwrap_err()
                .to_string()
                .contains("a collection with a duplicate element")
        );
    }
}

#[test]
fn headers_distinguish_servers() {
    let check = |header: &[u8], expected: Result<Format, &str>| {
        let event = Reader::new(header, Limits::default()).read_event();
        match (event, expected) {
            (Ok(Event::Header(format)), expected) => assert_eq!(Ok(format), expected),
            (Err(error), expected) => assert_eq!(Err(&*error.to_string()), expected),
            _ => panic!("no header"),
        }
    };
    check(b"REDIS0001", Ok(Format::Redis(1)));
    check(b"REDIS0015", Ok(Format::Redis(15)));
    check(b"VALKEY080", Ok(Format::Valkey(80)));
    check(b"VALKEY081", Ok(Format::Valkey(81)));
    check(b"REDIS0016", Err("its version, REDIS0016, is not known"));
    check(b"REDIS0080", Err("its version, REDIS0080, is not known"));
    check(b"REDIS0000", Err("its version, REDIS0000, is not known"));
    check(b"VALKEY082", Err("its version, VALKEY082, is not known"));
    check(b"VALKEY011", Err("its version, VALKEY011, is not known"));
    let nothing = "it is not a snapshot: it begins with neither REDIS nor VALKEY and a version";
    check(b"REDIS00+1", Err(nothing));
    check(b"*3\r\n$3\r\nSET", Err(nothing));
    check(b"REDIS00", Err("it is cut off at byte 7"));
}

/// Returns the error for a file of version 11 with this body.
fn refusal(body: &[u8]) -> String {
    let bytes = [b"REDIS0011", body].concat();
    read(&*bytes).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn errors_name_the_element_and_its_position() {
    for (body, expected) in [
        (
            &b"\x07\x01k\x81\x00\x00\x00\x00\x00\x00\x00\x01"[..],
            "a value of the module 'AAAAAAAAA' at byte 12 is not supported",
        ),
        (b"\x1C\x01k", "an array (type 28) at byte 10 is not supported"),
        (b"\x1E\x01k", "a hash with a template (type 30) at byte 10 is not supported"),
        (b"\xF6", "a function of a release candidate of Redis 7.0 at byte 9 is not supported"),
        (b"\xF3\x01", "the module metadata of a key at byte 9 is not supported"),
        (
            b"\x18\x01k\x02\0\0\0\0\0\0\0\x01\x81\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01f\x01v",
            "the time of a field at byte 21 is damaged",
        ),
        (
            b"\x18\x01k\x02\0\0\0\0\0\0\0\x02\x01\x01f\x01v\0\x01f\x01w",
            "a collection with a duplicate element at byte 29 is damaged",
        ),
        (
            b"\x19\x01k\0\0\0\0\0\0\0\0\x10\x10\0\0\0\x03\0\x81f\x02\x81v\x02\x81x\x02\xFF",
            "the time of a field at byte 20 is damaged",
        ),
        (b"\x02\x01k\x02\x01a\x01a", "a collection with a duplicate element at byte 15 is damaged"),
        (b"\x04\x01k\x02\x01a\x01x\x01a\x01y", "a collection with a duplicate element at byte 19 is damaged"),
        (
            b"\x05\x01k\x02\x01a\0\0\0\0\0\0\0\0\x01a\0\0\0\0\0\0\0\0",
            "a collection with a duplicate element at byte 23 is damaged",
        ),
        (
            b"\x10\x01k\x0F\x0F\0\0\0\x04\0\x01\x01\x02\x01\x01\x01\x02\x01\xFF",
            "a collection with a duplicate element at byte 12 is damaged",
        ),
        (
            b"\x11\x01k\x0F\x0F\0\0\0\x04\0\x01\x01\x02\x01\x01\x01\x02\x01\xFF",
            "a collection with a duplicate element at byte 12 is damaged",
        ),
        (
            b"\x14\x01k\x0B\x0B\0\0\0\x02\0\x01\x01\x01\x01\xFF",
            "a collection with a duplicate element at byte 12 is damaged",
        ),
        (b"\x10\x01k\x05abcde", "a listpack at byte 12 is damaged"),
        (b"\x0D\x01k\x05abcde", "a ziplist at byte 12 is damaged"),
        (b"\x0B\x01k\x05abcde", "an intset at byte 12 is damaged"),
        (b"\x05\x01k\x01\x01m\0\0\0\0\0\0\xF8\x7F", "a score at byte 13 is damaged"),
        (b"\x12\x01k\x01\x03\0", "the kind of a list's block at byte 13 is damaged"),
        (b"\0\x01k\xC3\x02\x05\x20\0", "a compressed string at byte 12 is damaged"),
        (b"\0\x01k\xC4", "a string at byte 12 is damaged"),
        (b"\xFE\x82", "a length at byte 10 is damaged"),
    ] {
        assert_eq!(refusal(body), expected);
    }
}

#[test]
fn claimed_sizes_allocate_no_memory() {
    // A string, a set, a list of blocks, a stream and a sorted set that claim to be very large.
    for body in [
        &b"\0\x01k\x81\x7F\0\0\0\0\0\0\0"[..],
        b"\0\x01k\x80\x7F\xFF\xFF\xFF",
        b"\x02\x01k\x81\x7F\0\0\0\0\0\0\0\x01a",
        b"\x05\x01k\x81\x7F\0\0\0\0\0\0\0\x01a",
        b"\x12\x01k\x81\x7F\0\0\0\0\0\0\0\x02",
        b"\x0F\x01k\x81\x7F\0\0\0\0\0\0\0",
        b"\xFB\x81\x7F\0\0\0\0\0\0\0\x81\x7F\0\0\0\0\0\0\0",
    ] {
        assert!(refusal(body).contains("it is cut off"), "{}", refusal(body));
    }
    assert!(refusal(b"\0\x01k\xC3\x02\x81\x7F\0\0\0\0\0\0\0\0a").contains("damaged"));
}

#[test]
fn large_strings_arrive_whole() {
    for len in [64 * 1024, 64 * 1024 + 1, 300_000, 3_000_000] {
        let random = &mut Random::new(len as u64);
        let long: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let entries = [
            (Entry::string(b"a", &long, None), Access::Unknown),
            (Entry::string(b"b", b"x", Some(5)), Access::Unknown),
        ];
        let bytes = file(&entries, Options::default(), true);
        for most in [5000, 10_000_000] {
            let (read, checksum) = read(Drip { bytes: &bytes, random: Random::new(1), most }).unwrap();
            check_same(&read, &entries);
            assert_eq!(checksum, Checksum::Right);
        }
    }
}

#[test]
fn empty_collections_are_skipped() {
    for body in
        [&b"\x02\x01k\0"[..], b"\x04\x01k\0", b"\x01\x01k\0", b"\x05\x01k\0", b"\x10\x01k\x07\x07\0\0\0\0\0\xFF"]
    {
        let bytes = [b"REDIS0011", body, b"\0\x01l\x01v\xFF", &[0; 8]].concat();
        let mut reader = Reader::new(&*bytes, Limits::default());
        assert!(matches!(reader.read_event(), Ok(Event::Header(Format::Redis(11)))));
        assert!(matches!(reader.read_event(), Ok(Event::EmptyKey(key)) if key == b"k"));
        assert!(matches!(reader.read_event(), Ok(Event::Entry { entry, .. }) if entry.key() == b"l"));
        assert!(matches!(reader.read_event(), Ok(Event::End(Checksum::Absent))));
    }
}

#[test]
fn bytes_after_the_end_are_left() {
    let bytes = [&file(&[], Options::default(), true)[..], b"*1\r\n$4\r\nPING\r\n"].concat();
    let mut reader = Reader::new(&*bytes, Limits::default());
    while !matches!(reader.read_event().unwrap(), Event::End(_)) {}
    assert_eq!(reader.offset(), bytes.len() as u64 - 14);
    let (rest, source) = reader.into_rest();
    assert_eq!([&rest, source].concat(), b"*1\r\n$4\r\nPING\r\n");
}

#[test]
fn hints_are_skipped() {
    let body = b"\xF4\x05\x02\0\xFD\x05\0\0\0\0\x01k\x01v\xFF\0\0\0\0\0\0\0\0";
    let (entries, _) = read(&*[b"REDIS0012", &body[..]].concat()).unwrap();
    assert_eq!(entries[0].0.expiry(), Some(5000));
}

/// Describes the only key of a file with this header and body.
fn only(header: &[u8], body: &[u8]) -> String {
    let (entries, _) = read(&*[header, body, b"\xFF\0\0\0\0\0\0\0\0"].concat()).unwrap();
    let [(entry, _)] = &entries[..] else { panic!("{} keys", entries.len()) };
    described(entry)
}

/// Encodes a string without compression.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::rdb::write::length(&mut out, bytes.len() as u64);
    [&out, bytes].concat()
}

fn listpack_of(items: &[&[u8]]) -> Vec<u8> {
    let mut packed = store::types::packed::Packed::new();
    packed.extend(items.iter().copied());
    let mut block = vec![0; crate::listpack::HEADER_BYTES];
    block.extend_from_slice(packed.items());
    crate::listpack::finish(&mut block, packed.len());
    block
}

#[test]
fn encodings_of_older_servers_are_read() {
    let ziplist = text(&crate::ziplist::tests::ziplist(&[b"\x01a", b"\xF2", b"\x01b", b"\x031.5"]));
    let check = |code: u8, value: &[u8], expected: &str| {
        assert_eq!(only(b"REDIS0006", &[&[code, 1, b'k'], value].concat()), expected);
    };
    check(1, b"\x03\x01a\xC0\x05\x01b", "k None listpack a 5 b");
    check(10, &ziplist, "k None listpack a 1 b 1.5");
    check(13, &ziplist, "k None listpack a=1 b=1.5");
    check(12, &ziplist, &format!("k None listpack a={} b={}", 1f64.to_bits(), 1.5f64.to_bits()));
    check(14, &[&b"\x02"[..], &ziplist, &ziplist].concat(), "k None listpack a 1 b 1.5 a 1 b 1.5");
    check(9, &text(b"\x02\x01a\x01\x001\x01b\x02\x01xy!\xFF"), "k None listpack a=1 b=xy");
    check(3, b"\x03\x01a\x032.5\x01b\xFE\x01c\xFF", &{
        let scores = [f64::NEG_INFINITY, 2.5, f64::INFINITY].map(f64::to_bits);
        format!("k None listpack c={} a={} b={}", scores[0], scores[1], scores[2])
    });
}

#[test]
fn packed_sorted_sets_with_integer_scores_are_read_in_any_order() {
    let exact = 1i64 << 53;
    let expected: [(&[u8], i64); 6] = [(b"e", -exact), (b"", -7), (b"7", 0), (b"a", 5), (b"b", 5), (b"d", exact)];
    let texts: Vec<Vec<u8>> = expected.iter().map(|(_, score)| score.to_string().into_bytes()).collect();
    let pairs: Vec<[&[u8]; 2]> =
        expected.iter().zip(&texts).map(|((member, _), score)| [*member, &score[..]]).collect();
    let found = |pairs: &[[&[u8]; 2]]| {
        let block = text(&listpack_of(&pairs.concat()));
        only(b"REDIS0011", &[b"\x11\x01k", &block[..]].concat())
    };
    let named = expected.map(|(member, score)| format!("{}={}", member.escape_ascii(), (score as f64).to_bits()));
    let ascending = format!("k None listpack {}", named.join(" "));
    assert_eq!(found(&pairs), ascending);
    for other in 1..pairs.len() {
        let mut pairs = pairs.clone();
        pairs.swap(other - 1, other);
        assert_eq!(found(&pairs), ascending, "{other}");
    }
    // An integer that the score rounds.
    let beyond = format!("k None listpack m={}", (exact as f64).to_bits());
    assert_eq!(found(&[[b"m", b"9007199254740993"]]), beyond);
    let twice = text(&listpack_of(&[b"a", b"1", b"a", b"2"]));
    assert!(refusal(&[b"\x11\x01k", &twice[..]].concat()).contains("a collection with a duplicate element"));
}

#[test]
fn members_decide_at_their_exact_length_whether_a_block_stays() {
    let kinds: [(u8, &[&[u8]]); 3] = [(b'\x10', &[b"v"]), (b'\x11', &[b"1"]), (b'\x14', &[])];
    for (code, values) in kinds {
        for len in 58..70 {
            let member = vec![b'm'; len];
            let block = text(&listpack_of(&[&[&member[..]], values].concat()));
            let read = only(b"REDIS0011", &[&[code][..], b"\x01k", &block].concat());
            assert_eq!(read.starts_with("k None listpack "), len <= 64, "{code} {len}: {read}");
        }
    }
}

#[test]
fn hashes_whose_fields_may_expire_are_read() {
    let pairs = b"\x02\x01f\x01v\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01g\x01w\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF";
    assert_eq!(only(b"VALKEY080", &[b"\x16\x01k", &pairs[..]].concat()), "k None listpack f=v g=w");
    assert_eq!(only(b"REDIS0012", b"\x16\x01k\x02\0\x01f\x01v\0\x01g\x01w"), "k None listpack f=v g=w");
    assert_eq!(only(b"REDIS0012", b"\x18\x01k\0\0\0\0\0\0\0\0\x02\0\x01f\x01v\0\x01g\x01w"), "k None listpack f=v g=w");
    let block = text(&listpack_of(&[b"f", b"v", b"0", b"g", b"w", b"0"]));
    assert_eq!(only(b"REDIS0012", &[b"\x17\x01k", &block[..]].concat()), "k None listpack f=v g=w");
    assert_eq!(only(b"REDIS0012", &[b"\x19\x01k\0\0\0\0\0\0\0\0", &block[..]].concat()), "k None listpack f=v g=w");
    // Items with expiries are in the order of these.
    let pairs = b"\x02\x01f\x01v\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01g\x01w\x09\0\0\0\0\0\0\0";
    assert_eq!(only(b"VALKEY080", &[b"\x16\x01k", &pairs[..]].concat()), "k None listpackex g=w@9 f=v");
    assert_eq!(only(b"REDIS0012", b"\x16\x01k\x02\0\x01f\x01v\x09\x01g\x01w"), "k None listpackex g=w@9 f=v");
    let relative = b"\x18\x01k\x64\0\0\0\0\0\0\0\x03\0\x01f\x01v\x02\x01g\x01w\x01\x01h\x01x";
    assert_eq!(only(b"REDIS0012", relative), "k None listpackex h=x@100 g=w@101 f=v");
    let block = text(&listpack_of(&[b"f", b"v", b"98", b"h", b"x", b"98", b"g", b"w", b"0"]));
    for head in [&b"\x17\x01k"[..], b"\x19\x01k\0\0\0\0\0\0\0\0"] {
        assert_eq!(only(b"REDIS0012", &[head, &block].concat()), "k None listpackex f=v@98 h=x@98 g=w");
    }
    let unordered = text(&listpack_of(&[b"f", b"v", b"0", b"h", b"x", b"98", b"g", b"w", b"97"]));
    assert_eq!(only(b"REDIS0012", &[b"\x17\x01k", &unordered[..]].concat()), "k None listpackex g=w@97 h=x@98 f=v");
    let twice = text(&listpack_of(&[b"f", b"v", b"98", b"f", b"x", b"98"]));
    assert!(refusal(&[b"\x17\x01k", &twice[..]].concat()).contains("a collection with a duplicate element"));
    let odd = text(&listpack_of(&[b"f", b"v", b"98", b"f"]));
    assert!(refusal(&[b"\x17\x01k", &odd[..]].concat()).contains("an odd number of items"));
}

/// Encodes a stream of one block with these items, in the first version of the format.
fn stream_of(items: &[&[u8]], len: u8, last: u8) -> Vec<u8> {
    let first = text(&[&[0; 7][..], &[5], &[0; 7], &[1]].concat());
    let block = text(&listpack_of(items));
    [&b"\x0F\x01k\x01"[..], &first, &block, &[len, last, 1, 0]].concat()
}

#[test]
fn blocks_of_streams_are_checked_item_by_item() {
    let good: [&[u8]; 20] = [
        b"2", b"1", b"1", b"f", b"0", b"2", b"0", b"0", b"v", b"4", b"3", b"1", b"0", b"x", b"4", b"0", b"2", b"0",
        b"0", b"4",
    ];
    let described = only(b"REDIS0009", &stream_of(&good, 2, 7));
    assert!(described.contains("block 5-1 [([102], [118])] 7-1 []"), "{described}");
    let bad = |at: usize, item: &'static [u8]| {
        let mut items = good;
        items[at] = item;
        refusal(&stream_of(&items, 2, 7))
    };
    for at in 0..good.len() {
        // Texts may have any value.
        if !matches!(at, 3 | 8 | 13) {
            assert!(bad(at, b"x").contains("a block of a stream at byte"), "{at}");
            assert!(bad(at, b"100").contains("stream at byte") || [7, 11, 12].contains(&at), "{at}");
        }
    }
    // The number of entries and the last ID must not be too small for the entries.
    assert!(refusal(&stream_of(&good, 1, 7)).contains("a stream at byte"));
    assert!(refusal(&stream_of(&good, 2, 6)).contains("a stream at byte"));
    assert!(refusal(&stream_of(&good[..19], 2, 7)).contains("a block of a stream"));
}

#[test]
fn groups_of_streams_are_consistent() {
    let state = b"\x13\x01k\0\0\x05\x01\0\0\0\0\x01";
    let group = |pending: &[u8], consumers: &[u8]| {
        let body = [&state[..], b"\x01\x01g\x05\x01", b"\x02", pending, consumers, b"\xFF\0\0\0\0\0\0\0\0"].concat();
        read(&*[b"REDIS0010", &body[..]].concat())
            .map(|(entries, _)| described(&entries[0].0))
            .map_err(|e| e.to_string())
    };
    let id = [&[0; 7][..], &[5], &[0; 7], &[1]].concat();
    let delivered = [&id[..], &[9, 0, 0, 0, 0, 0, 0, 0, 3]].concat();
    let one = [&[1], &delivered[..]].concat();
    let consumer =
        |name: u8, ids: &[&[u8]]| [&[1, name, 8, 0, 0, 0, 0, 0, 0, 0, ids.len() as u8], &ids.concat()[..]].concat();
    let check = |pending: &[u8], consumers: &[Vec<u8>], expected: Option<&str>| {
        let all = [&[consumers.len() as u8], &consumers.concat()[..]].concat();
        match (group(pending, &all), expected) {
            (Ok(text), Some(expected)) => assert!(text.contains(expected), "{text}"),
            (Err(error), None) => assert!(error.contains("a stream's group"), "{error}"),
            (other, _) => panic!("{other:?}"),
        }
    };
    check(&one, &[consumer(b'c', &[&id])], Some("consumer: [99], delivered_ms: 9, deliveries: 3"));
    check(&[0], &[consumer(b'c', &[])], Some("([99], 8, Some(8)) {}"));
    // Pending for no consumer, for two consumers, twice for one, and not pending at all; and two consumers of one name.
    check(&one, &[], None);
    check(&one, &[consumer(b'c', &[&id]), consumer(b'd', &[&id])], None);
    check(&one, &[consumer(b'c', &[&id, &id])], None);
    check(&[0], &[consumer(b'c', &[&id])], None);
    check(&[0], &[consumer(b'c', &[]), consumer(b'c', &[])], None);
    check(&[&[2], &delivered[..], &delivered].concat(), &[consumer(b'c', &[&id])], None);
}

#[test]
fn limits_determine_the_encodings_of_collections() {
    let small = Limits {
        hash: HashLimits { listpack_entries: 1, listpack_value: 64 },
        set: SetLimits { intset_entries: 1, listpack_entries: 1, listpack_value: 64 },
        zset: ZSetLimits { entries_max: 1, member_bytes_max: 64 },
        list: ListLimits::new(1),
    };
    let block = text(&listpack_of(&[b"1", b"2", b"3", b"4"]));
    let ints = text(b"\x02\0\0\0\x02\0\0\0\x01\0\x02\0");
    for (code, value, forms) in [
        (16, &block, ["listpack", "hashtable"]),
        (17, &block, ["listpack", "skiplist"]),
        (20, &block, ["listpack", "hashtable"]),
        (11, &ints, ["intset", "hashtable"]),
        (18, &[b"\x01\x02", &block[..]].concat(), ["listpack", "quicklist"]),
        (1, &b"\x02\x01a\x01b".to_vec(), ["listpack", "quicklist"]),
        (2, &b"\x02\x01a\x01b".to_vec(), ["listpack", "hashtable"]),
        (4, &b"\x02\x01a\x01b\x01c\x01d".to_vec(), ["listpack", "hashtable"]),
    ] {
        for (limits, form) in [Limits::default(), small].into_iter().zip(forms) {
            let bytes = [b"REDIS0011", &[code, 1, b'k'][..], value].concat();
            let mut reader = Reader::new(&*bytes, limits);
            reader.read_event().unwrap();
            let Event::Entry { entry, .. } = reader.read_event().unwrap() else { panic!("no key") };
            assert_eq!(entry.encoding(), form, "{code}");
        }
    }
}
