//! The conversion of entries to Redis's format, one piece at a time.

use std::cell::RefCell;
use std::sync::Arc;

use format::rdb::{Access, Collection, Options, Writer};
use resp::num::IntText;
use store::db::Clock;
use store::entry::{Entry, View};
use store::frequency::Frequency;
use store::snapshot::{Element, ElementSink, Sink};
use store::types::packed::Item;
use store::value::Value;

use super::Outlet;

/// Bytes of a piece. Each shard may have an unfinished one.
const PIECE_BYTES: usize = 32 * 1024;

/// The saved fact about a key's use, which depends on the eviction policy.
#[derive(Clone, Copy, Debug)]
pub enum AccessKind {
    /// Nothing.
    None,
    /// The idle time.
    Idle(Clock),
    /// The frequency of use.
    Frequency(Frequency),
}

/// The options of writing entries.
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// The form.
    pub options: Options,
    /// The saved facts about the use of keys.
    pub access: AccessKind,
}

/// Takes one shard's entries.
pub(crate) struct ShardSink {
    outlet: Arc<Outlet>,
    options: SinkOptions,
    piece: Vec<u8>,
    /// The database that the piece has selected last.
    database: Option<usize>,
}

thread_local! {
    /// One writer for all shards of a thread, because it has a table of 256 KB.
    static WRITER: RefCell<Option<(Options, Writer)>> = const { RefCell::new(None) };
}

/// Calls `write` with the thread's writer.
pub(crate) fn with_writer<T>(options: Options, write: impl FnOnce(&mut Writer) -> T) -> T {
    WRITER.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(known, _)| *known != options) {
            *kept = Some((options, Writer::new(options)));
        }
        match kept {
            Some((_, writer)) => write(writer),
            None => write(&mut Writer::new(options)),
        }
    })
}

impl ShardSink {
    pub(crate) fn new(outlet: Arc<Outlet>, options: SinkOptions) -> ShardSink {
        ShardSink { outlet, options, piece: Vec::new(), database: None }
    }

    fn access_of(&self, entry: &Entry) -> Access {
        match self.options.access {
            AccessKind::None => Access::Unknown,
            AccessKind::Idle(clock) => Access::IdleSeconds(u64::from(clock.idle_s(entry.access()))),
            AccessKind::Frequency(frequency) => Access::Frequency(frequency.count(entry.access()) as u8),
        }
    }

    fn flush(&mut self) {
        // The next piece in the file may come from a shard with another database.
        self.database = None;
        self.outlet.send(std::mem::take(&mut self.piece));
    }
}

impl Sink for ShardSink {
    fn entry(&mut self, database: usize, entry: &Entry) {
        if self.outlet.is_broken() {
            return;
        }
        let access = self.access_of(entry);
        with_writer(self.options.options, |writer| {
            if self.database != Some(database) {
                self.database = Some(database);
                writer.select(&mut self.piece, database as u64);
            }
            writer.entry(&mut self.piece, entry, access);
        });
        if self.piece.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    fn begin(&mut self, database: usize, entry: &Entry) -> Box<dyn ElementSink> {
        let (access, options) = (self.access_of(entry), self.options.options);
        let mut record = Vec::new();
        let collection = collection_of(entry);
        if let (false, Some(collection)) = (self.outlet.is_broken(), collection) {
            with_writer(options, |writer| {
                writer.select(&mut record, database as u64);
                writer.begin(&mut record, entry.key(), entry.expiry(), access, collection);
            });
        }
        let outlet = self.outlet.clone();
        let first_ms = if let Some(Collection::TimedHash(_, first_ms)) = collection { Some(first_ms) } else { None };
        let has_end = matches!(collection, Some(Collection::Suggestions(_)));
        Box::new(RecordSink { record: outlet.begin_record(), outlet, options, part: record, first_ms, has_end })
    }

    fn is_full(&self) -> bool {
        self.outlet.is_full()
    }

    fn finish(&mut self) {
        self.flush();
    }
}

/// Returns the form of a collection that is written in parts.
fn collection_of(entry: &Entry) -> Option<Collection> {
    let View::Object(value) = entry.view() else { return None };
    match value {
        Value::Hash(hash) => Some(Collection::Hash(hash.len() as u64)),
        Value::TimedHash(hash) => Some(match hash.next_expiry() {
            Some(first_ms) => Collection::TimedHash(hash.len() as u64, first_ms),
            None => Collection::Hash(hash.len() as u64),
        }),
        Value::Set(set) => Some(Collection::Set(set.len() as u64)),
        Value::ZSet(zset) => Some(Collection::ZSet(zset.len() as u64)),
        Value::List(list) => Some(Collection::Elements(list.len() as u64)),
        Value::Suggestions(suggestions) => Some(Collection::Suggestions(suggestions.len() as u64)),
        Value::Str(_) | Value::Stream(_) => None,
    }
}

/// Bytes of a part of a record.
const PART_BYTES: usize = 256 * 1024;

/// Takes the elements of one large collection, and hands them over in parts. Other keys' records come between the
/// parts.
struct RecordSink {
    outlet: Arc<Outlet>,
    options: Options,
    record: u64,
    part: Vec<u8>,
    /// The base time in the record of a hash with expiring fields.
    first_ms: Option<u64>,
    /// True for suggestions, which end with a mark.
    has_end: bool,
}

impl ElementSink for RecordSink {
    fn element(&mut self, element: Element<'_>) {
        if self.outlet.is_broken() {
            self.part = Vec::new();
            return;
        }
        let (part, first_ms) = (&mut self.part, self.first_ms);
        with_writer(self.options, |writer| match element {
            Element::Member(member) | Element::Item(Item::Str(member)) => writer.element(part, member),
            Element::Field(field, value, expiry) => match first_ms {
                Some(first_ms) => writer.timed_field(part, first_ms, field, value, expiry),
                // No field expired at the cut.
                None => writer.field(part, field, value),
            },
            Element::Scored(member, score) => writer.member(part, member, score),
            Element::Item(Item::Int(int)) => writer.element(part, IntText::new().i64(int)),
            Element::Suggestion(text, score, payload) => writer.suggestion(part, text, score, payload),
        });
        if self.part.len() >= PART_BYTES {
            self.outlet.send_part(self.record, std::mem::take(&mut self.part));
        }
    }

    fn is_full(&self) -> bool {
        self.outlet.is_full()
    }

    fn end(mut self: Box<Self>) {
        if self.has_end {
            with_writer(self.options, |writer| writer.suggestions_end(&mut self.part));
        }
        self.outlet.send_part(self.record, self.part);
        self.outlet.end_record(self.record);
    }
}
