//! The conversion of entries to commands that recreate them, for a base of the append-only file with
//! `aof-use-rdb-preamble no`.
//!
//! The pieces are the entries of a record ([`journal::record`]). A value becomes commands of up to 64 items, as in
//! Redis, so a large collection's commands mix with others and take little memory. A stream is restored from its
//! payload, because its groups and pending entries would take a command each. In a snapshot of slots, short strings of
//! a slot share commands, too, which saves both sides half of the work.

use std::sync::Arc;

use format::payload::with_dumper;
use journal::record::{Kind, Record};
use resp::num::{IntText, write_f64, write_u64};
use store::entry::{Entry, View};
use store::snapshot::{Element, ElementSink, Sink};
use store::types::packed::Item;
use store::types::suggestions::SuggestionOf;
use store::value::Value;

use super::Outlet;

/// The greatest number of items in a command: Redis's figure.
const ITEMS: usize = 64;
/// Bytes of a large collection's piece, and the most of another one.
const PIECE_BYTES: usize = 32 * 1024;
/// The fewest bytes of a piece: a piece costs a message between threads.
const PIECE_BYTES_MIN: usize = 4 * 1024;
/// Bytes of the unfinished pieces of all shards. Each shard may have one, since commands save the entries that they change.
const UNFINISHED_BYTES: usize = 8 << 20;

/// Returns the bytes from which a shard's piece is handed over, in a snapshot of `shards` shards.
pub(crate) fn piece_bytes(shards: usize) -> usize {
    (UNFINISHED_BYTES / shards.max(1)).clamp(PIECE_BYTES_MIN, PIECE_BYTES)
}

/// The greatest length of a string that shares a command.
const SHORT_BYTES: usize = 256;

/// Takes one shard's entries.
pub(crate) struct CommandSink {
    outlet: Arc<Outlet>,
    record: Record,
    piece_bytes: usize,
    /// The short strings of the next command; None if each string has a command of its own.
    strings: Option<Strings>,
}

impl CommandSink {
    /// Returns a sink that hands over pieces of this number of bytes ([`piece_bytes`]).
    pub(crate) fn new(outlet: Arc<Outlet>, piece_bytes: usize) -> CommandSink {
        CommandSink { outlet, record: Record::default(), piece_bytes, strings: None }
    }

    /// Like [`CommandSink::new`], for a shard that is a slot: short strings share commands.
    pub(crate) fn of_slot(outlet: Arc<Outlet>, piece_bytes: usize) -> CommandSink {
        CommandSink { strings: Some(Strings::default()), ..CommandSink::new(outlet, piece_bytes) }
    }

    /// Adds a short string to the next command. Returns false for another entry.
    fn add_short(&mut self, database: usize, entry: &Entry) -> bool {
        let Some(strings) = &mut self.strings else { return false };
        let mut digits = IntText::new();
        let value = match entry.view() {
            View::Bytes(bytes) => bytes,
            View::Int(int) => digits.i64(int),
            View::Object(_) => return false,
        };
        if entry.expiry().is_some() || value.len() > SHORT_BYTES || entry.key().len() > SHORT_BYTES {
            return false;
        }
        strings.add(&mut self.record, database, entry.key(), value);
        true
    }

    fn bytes(&self) -> usize {
        self.record.bytes().len() + self.strings.as_ref().map_or(0, |strings| strings.args.len())
    }

    fn flush(&mut self) {
        if let Some(strings) = &mut self.strings {
            strings.write(&mut self.record);
        }
        flush(&self.outlet, &mut self.record);
    }
}

/// Short strings that share a command.
#[derive(Default)]
struct Strings {
    database: usize,
    /// The keys and values, each as a bulk string.
    args: Vec<u8>,
    count: usize,
}

impl Strings {
    fn add(&mut self, record: &mut Record, database: usize, key: &[u8], value: &[u8]) {
        if self.count == ITEMS || self.database != database {
            self.write(record);
        }
        self.database = database;
        bulk(&mut self.args, key);
        bulk(&mut self.args, value);
        self.count += 1;
    }

    fn write(&mut self, record: &mut Record) {
        if self.count > 0 {
            let name = if self.count == 1 { "SET" } else { "MSET" };
            write_command(record, self.database, name, 2 * self.count, &self.args);
        }
        self.args.clear();
        self.count = 0;
    }
}

/// Hands over the present record.
fn flush(outlet: &Outlet, record: &mut Record) {
    outlet.send(record.bytes().to_vec());
    record.clear();
}

impl Sink for CommandSink {
    fn entry(&mut self, database: usize, entry: &Entry) {
        if self.outlet.is_broken() {
            return;
        }
        if !self.add_short(database, entry) {
            write_entry(&mut self.record, database, entry);
        }
        if self.bytes() >= self.piece_bytes {
            self.flush();
        }
    }

    fn begin(&mut self, database: usize, entry: &Entry) -> Box<dyn ElementSink> {
        let items = ItemWriter::new(command_of(entry), database, entry.key());
        Box::new(ItemSink { outlet: self.outlet.clone(), record: Record::default(), items, expiry: entry.expiry() })
    }

    fn is_full(&self) -> bool {
        self.outlet.is_full()
    }

    fn finish(&mut self) {
        self.flush();
        // The sink lives until the end of the snapshot.
        self.record = Record::default();
        self.strings = None;
    }
}

/// Takes the elements of one large collection.
struct ItemSink {
    outlet: Arc<Outlet>,
    record: Record,
    items: ItemWriter,
    expiry: Option<u64>,
}

impl ElementSink for ItemSink {
    fn element(&mut self, element: Element<'_>) {
        if self.outlet.is_broken() {
            return self.record.clear();
        }
        let (items, record) = (&mut self.items, &mut self.record);
        match element {
            Element::Member(member) | Element::Item(Item::Str(member)) => items.item(record, [member]),
            Element::Field(field, value, expiry) => {
                items.field(record, field, value, expiry);
            }
            Element::Scored(member, score) => items.scored(record, member, score),
            Element::Item(Item::Int(int)) => items.item(record, [IntText::new().i64(int)]),
            Element::Suggestion(text, score, payload) => items.suggestion(record, text, score, payload),
        }
        if record.bytes().len() >= PIECE_BYTES {
            flush(&self.outlet, record);
        }
    }

    fn is_full(&self) -> bool {
        self.outlet.is_full()
    }

    fn end(mut self: Box<Self>) {
        self.items.end(&mut self.record, self.expiry);
        flush(&self.outlet, &mut self.record);
    }
}

/// Returns the command that adds items to a collection of an entry's type.
fn command_of(entry: &Entry) -> &'static str {
    match entry.view() {
        View::Object(Value::Hash(_) | Value::TimedHash(_)) => "HSET",
        View::Object(Value::Set(_)) => "SADD",
        View::Object(Value::ZSet(_)) => "ZADD",
        View::Object(Value::Suggestions(_)) => "FT.SUGADD",
        _ => "RPUSH",
    }
}

fn write_entry(record: &mut Record, database: usize, entry: &Entry) {
    let (key, expiry, view) = (entry.key(), entry.expiry(), entry.view());
    let mut items = ItemWriter::new(command_of(entry), database, key);
    match &view {
        View::Bytes(bytes) => return write_string(record, database, key, bytes, expiry),
        View::Int(int) => return write_string(record, database, key, IntText::new().i64(*int), expiry),
        View::Object(value) => match value {
            Value::Str(bytes) => return write_string(record, database, key, bytes, expiry),
            Value::Stream(_) => return write_payload(record, database, key, &view, expiry),
            Value::Hash(hash) => hash.for_each(|field, value| items.item(record, [field, value])),
            Value::TimedHash(hash) => hash.for_each(|field, value, expiry| {
                items.field(record, field, value, expiry);
            }),
            Value::Set(set) => set.for_each(|member| items.item(record, [member])),
            Value::ZSet(zset) => {
                zset.visit_ranks(0..zset.len(), false, |member, score| items.scored(record, member, score));
            }
            Value::Suggestions(suggestions) => suggestions.for_each(|SuggestionOf { text, score, payload }| {
                items.suggestion(record, text, score, payload);
            }),
            Value::List(list) => list.iter().for_each(|item| match item {
                Item::Str(element) => items.item(record, [element]),
                Item::Int(int) => items.item(record, [IntText::new().i64(int)]),
            }),
        },
    }
    items.end(record, expiry);
}

fn write_string(record: &mut Record, database: usize, key: &[u8], value: &[u8], expiry: Option<u64>) {
    record.push(database, Kind::Command, [&b"SET"[..], key, value].into_iter());
    write_expiry(record, database, key, expiry);
}

/// `expiry` is in milliseconds of Unix time.
fn write_expiry(record: &mut Record, database: usize, key: &[u8], expiry: Option<u64>) {
    if let Some(expiry) = expiry {
        record.push(database, Kind::Command, [&b"PEXPIREAT"[..], key, IntText::new().u64(expiry)].into_iter());
    }
}

fn write_payload(record: &mut Record, database: usize, key: &[u8], view: &View<'_>, expiry: Option<u64>) {
    let payload = with_dumper(|dumper| dumper.value(view));
    let mut digits = IntText::new();
    let expiry = digits.u64(expiry.unwrap_or(0));
    record.push(database, Kind::Command, [&b"RESTORE"[..], key, expiry, &payload, b"ABSTTL"].into_iter());
}

/// Puts the items of a collection into commands.
struct ItemWriter {
    command: &'static str,
    database: usize,
    key: Vec<u8>,
    /// The arguments of the present command, each as a bulk string, and their number.
    args: Vec<u8>,
    count: usize,
    items: usize,
    /// The fields with an expiry, in milliseconds of Unix time.
    times: Vec<(Vec<u8>, u64)>,
}

impl ItemWriter {
    fn new(command: &'static str, database: usize, key: &[u8]) -> ItemWriter {
        ItemWriter { command, database, key: key.to_vec(), args: Vec::new(), count: 0, items: 0, times: Vec::new() }
    }

    fn item<const N: usize>(&mut self, record: &mut Record, args: [&[u8]; N]) {
        for arg in args {
            bulk(&mut self.args, arg);
        }
        self.count += N;
        self.items += 1;
        if self.items == ITEMS {
            self.write(record);
        }
    }

    /// Adds a field of a hash. `expiry` is in milliseconds of Unix time.
    fn field(&mut self, record: &mut Record, field: &[u8], value: &[u8], expiry: Option<u64>) {
        self.times.extend(expiry.map(|at| (field.to_vec(), at)));
        self.item(record, [field, value]);
    }

    fn scored(&mut self, record: &mut Record, member: &[u8], score: f64) {
        let mut text = Vec::new();
        write_f64(&mut text, score);
        self.item(record, [&text, member]);
    }

    /// Adds a suggestion, which has a command of its own.
    fn suggestion(&mut self, record: &mut Record, text: &[u8], score: f32, payload: Option<&[u8]>) {
        let mut digits = Vec::new();
        write_f64(&mut digits, f64::from(score));
        let words = [self.command.as_bytes(), &self.key, text, &digits, b"PAYLOAD", payload.unwrap_or_default()];
        let count = if payload.is_some() { words.len() } else { words.len() - 2 };
        record.push(self.database, Kind::Command, words[..count].iter().copied());
    }

    /// Ends the collection, which expires at this time in milliseconds of Unix time.
    fn end(&mut self, record: &mut Record, expiry: Option<u64>) {
        if self.items > 0 {
            self.write(record);
        }
        write_expiry(record, self.database, &self.key, expiry);
    }

    fn write(&mut self, record: &mut Record) {
        let mut args = Vec::with_capacity(self.args.len() + self.key.len() + 16);
        bulk(&mut args, &self.key);
        args.extend_from_slice(&self.args);
        write_command(record, self.database, self.command, self.count + 1, &args);
        self.args.clear();
        (self.count, self.items) = (0, 0);
        // The expiries follow the command that sets the fields.
        for (field, at) in self.times.drain(..) {
            let mut digits = IntText::new();
            let words = [&b"HPEXPIREAT"[..], &self.key, digits.u64(at), b"FIELDS", b"1", &field];
            record.push(self.database, Kind::Command, words.into_iter());
        }
    }
}

/// Adds a command with `count` arguments, which `args` has as bulk strings.
fn write_command(record: &mut Record, database: usize, name: &str, count: usize, args: &[u8]) {
    let mut command = Vec::with_capacity(args.len() + name.len() + 24);
    command.push(b'*');
    write_u64(&mut command, count as u64 + 1);
    command.extend_from_slice(b"\r\n");
    bulk(&mut command, name.as_bytes());
    command.extend_from_slice(args);
    record.push_written(database, Kind::Command, &command);
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    write_u64(out, bytes.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use journal::record::entries;

    use super::*;
    use crate::snapshots::Piece;

    /// Every shard of a cluster's node has a sink until the end of the snapshot.
    #[test]
    fn a_walked_shard_holds_no_memory() {
        let (outlet, pieces) = Outlet::new();
        for mut sink in [CommandSink::new(outlet.clone(), PIECE_BYTES), CommandSink::of_slot(outlet, PIECE_BYTES)] {
            for number in 0..1000 {
                sink.entry(0, &Entry::string(format!("key{number}").as_bytes(), &[b'x'; 100], None));
            }
            sink.finish();
            assert_eq!(sink.record.memory_bytes() + sink.strings.map_or(0, |strings| strings.args.capacity()), 0);
            let lens: Vec<_> = taken(&pieces).map(|piece| piece.len()).collect();
            let (last, full) = lens.split_last().unwrap();
            let is_full = |len: &usize| (PIECE_BYTES..PIECE_BYTES + 200).contains(len);
            assert!(full.len() > 2 && *last > 0 && full.iter().all(is_full), "{lens:?}");
        }
    }

    fn taken(pieces: &Receiver<Piece>) -> impl Iterator<Item = Vec<u8>> {
        pieces.try_iter().filter_map(|piece| if let Piece::Bytes(bytes) = piece { Some(bytes) } else { None })
    }

    #[test]
    fn unfinished_pieces_take_little_memory_with_many_shards() {
        assert_eq!((piece_bytes(0), piece_bytes(64), piece_bytes(1000)), (PIECE_BYTES, PIECE_BYTES, 8388));
        assert_eq!(piece_bytes(16384), PIECE_BYTES_MIN);
    }

    #[test]
    fn short_strings_of_a_slot_share_commands() {
        let (outlet, pieces) = Outlet::new();
        let mut sink = CommandSink::of_slot(outlet, PIECE_BYTES);
        let long = "v".repeat(SHORT_BYTES + 1);
        for number in 0..ITEMS + 2 {
            sink.entry(0, &Entry::string(format!("{{a}}{number}").as_bytes(), b"value", None));
        }
        sink.entry(0, &Entry::string(b"{a}long", long.as_bytes(), None));
        sink.entry(0, &Entry::string(b"{a}expires", b"1", Some(1_700_000_000_000)));
        sink.entry(3, &Entry::int(b"{a}1", 17, None));
        sink.finish();
        let pieces: Vec<_> = taken(&pieces).collect();
        let commands = entries(&pieces[0]).map(|entry| {
            let text = String::from_utf8_lossy(entry.command).into_owned();
            let words: Vec<_> = text.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect();
            (entry.database, words.len(), words[..2].join(" "))
        });
        let commands: Vec<_> = commands.collect();
        assert_eq!(commands[0], (0, 1 + 2 * ITEMS, "MSET {a}0".to_owned()));
        let rest = [(0, 3, "SET {a}long"), (0, 3, "SET {a}expires"), (0, 3, "PEXPIREAT {a}expires")];
        assert_eq!(commands[1..4], rest.map(|(database, words, text)| (database, words, text.to_owned())));
        assert_eq!(commands[4], (0, 5, format!("MSET {{a}}{ITEMS}")));
        assert_eq!(commands[5..], [(3, 3, "SET {a}1".to_owned())]);
    }
}
