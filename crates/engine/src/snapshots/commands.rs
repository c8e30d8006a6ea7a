//! The conversion of entries to commands that recreate them, for a base of the append-only file with
//! `aof-use-rdb-preamble no`.
//!
//! The pieces are the entries of a record ([`journal::record`]). A value becomes commands of up to 64 items, as in
//! Redis, so a large collection's commands mix with others and take little memory. A stream is restored from its
//! payload, because its groups and pending entries would take a command each.

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
/// Bytes of a piece. Each shard may have an unfinished one.
const PIECE_BYTES: usize = 32 * 1024;

/// Takes one shard's entries.
pub(crate) struct CommandSink {
    outlet: Arc<Outlet>,
    record: Record,
}

impl CommandSink {
    pub(crate) fn new(outlet: Arc<Outlet>) -> CommandSink {
        CommandSink { outlet, record: Record::default() }
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
        write_entry(&mut self.record, database, entry);
        if self.record.bytes().len() >= PIECE_BYTES {
            flush(&self.outlet, &mut self.record);
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
        flush(&self.outlet, &mut self.record);
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
        let mut command = Vec::with_capacity(self.args.len() + self.key.len() + 64);
        command.push(b'*');
        write_u64(&mut command, self.count as u64 + 2);
        command.extend_from_slice(b"\r\n");
        bulk(&mut command, self.command.as_bytes());
        bulk(&mut command, &self.key);
        command.extend_from_slice(&self.args);
        record.push_written(self.database, Kind::Command, &command);
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

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    write_u64(out, bytes.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
