//! Streams: XADD, XREAD, consumer groups and other commands.
//!
//! A stream without entries stays, because its last ID and its groups are still needed. Source of the semantics: Redis
//! 7.2's command pages of the group "stream", and a Redis server's replies for details that the pages omit; `delete`
//! follows Redis 8.2, `idempotence` 8.6.

mod add;
mod claim;
mod delete;
mod group;
mod idempotence;
mod info;
mod options;
mod pending;
mod range;
mod read;
mod record;
mod table;
#[cfg(test)]
mod tests;

pub use table::COMMANDS;

use resp::num::IntText;
use resp::reply::Reply;
use store::types::stream::{StreamEntry, StreamId};

use crate::Call;
use crate::error::{Error, SHOWN_BYTES, shown};

/// Two 64-bit numbers in decimal, and the sign between them.
const ID_TEXT_BYTES_MAX: usize = 41;

/// An ID as text.
struct IdText {
    bytes: [u8; ID_TEXT_BYTES_MAX],
    len: usize,
}

impl IdText {
    fn new(id: StreamId) -> IdText {
        let mut text = IdText { bytes: [0; ID_TEXT_BYTES_MAX], len: 0 };
        text.push(IntText::new().u64(id.ms));
        text.push(b"-");
        text.push(IntText::new().u64(id.seq));
        text
    }

    fn push(&mut self, part: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + part.len()) {
            to.copy_from_slice(part);
            self.len += part.len();
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Writes an ID.
fn write_id(reply: &mut Reply<'_>, id: StreamId) {
    reply.bulk(IdText::new(id).as_bytes());
}

/// Writes an entry: its ID, and its fields and values.
fn write_entry(reply: &mut Reply<'_>, entry: StreamEntry<'_>) {
    reply.array(2);
    write_id_and_fields(reply, entry);
}

fn write_id_and_fields(reply: &mut Reply<'_>, entry: StreamEntry<'_>) {
    write_id(reply, entry.id);
    reply.array(entry.len * 2);
    for (field, value) in entry {
        reply.bulk(field);
        reply.bulk(value);
    }
}

/// Writes an entry with its previous idle time and number of deliveries.
fn write_entry_with_delivery(reply: &mut Reply<'_>, entry: StreamEntry<'_>, idle_ms: i64, deliveries: u64) {
    reply.array(4);
    write_id_and_fields(reply, entry);
    reply.int(idle_ms);
    reply.int(i64::try_from(deliveries).unwrap_or(i64::MAX));
}

/// Writes at most `count` entries; 0 means no limit. `each` gets the ID of each written entry.
fn write_entries<'s>(
    reply: &mut Reply<'_>,
    entries: impl Iterator<Item = StreamEntry<'s>>,
    count: usize,
    mut each: impl FnMut(StreamId),
) {
    let mark = reply.deferred();
    let mut written = 0;
    for entry in entries.take(if count == 0 { usize::MAX } else { count }) {
        each(entry.id);
        write_entry(reply, entry);
        written += 1;
    }
    reply.fill_array(mark, written);
}

/// The error for a missing key or group. `rest` follows the group's name.
fn no_group(key: &[u8], group: &[u8], rest: &str) -> Error {
    let texts: [&[u8]; 3] = [b"NOGROUP No such key '", b"' or consumer group '", b"'"];
    Error::quoting([texts[0], quoted(key), texts[1], quoted(group), texts[2], rest.as_bytes()].concat())
}

/// Begins the reply for one of several streams: a pair in RESP2, an element of a map in RESP3.
fn begin_stream(reply: &mut Reply<'_>, key: &[u8]) {
    if !reply.is_resp3() {
        reply.array(2);
    }
    reply.bulk(key);
}

/// The error for a missing group, for commands that report a missing key separately.
fn no_such_group(key: &[u8], group: &[u8]) -> Error {
    let texts: [&[u8]; 3] = [b"NOGROUP No such consumer group '", b"' for key name '", b"'"];
    Error::quoting([texts[0], quoted(group), texts[1], quoted(key), texts[2]].concat())
}

/// The part of a name that errors quote. Redis prints names as C strings.
fn quoted(name: &[u8]) -> &[u8] {
    shown(name, usize::MAX)
}

/// The error for an unknown subcommand or a wrong number of arguments.
fn wrong_subcommand(call: &Call<'_, '_, '_>, container: &str) -> Error {
    let start = b"ERR unknown subcommand or wrong number of arguments for '";
    let end = format!("'. Try {container} HELP.");
    Error::quoting([start, shown(call.arg(1), SHOWN_BYTES), end.as_bytes()].concat())
}
