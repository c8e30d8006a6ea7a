//! The contents of a snapshot as lines of text, in the format in which `interop/rdb_fixtures.py` writes servers'
//! replies.

use penstock_format::Limits;
use penstock_format::rdb::{Error, Event, Reader};
use store::entry::{Entry, View};
use store::types::stream::{Group, Stream};
use store::value::Value;

/// Formats bytes as a word: unchanged if they are lower-case letters, digits and a few signs, otherwise as hexadecimal
/// digits after a plus sign.
fn text(bytes: &[u8]) -> String {
    let plain = bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b':' | b'-'));
    if plain && !bytes.is_empty() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    bytes.iter().fold("+".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Returns a line for each key and each function library, sorted.
pub fn lines(bytes: &[u8]) -> Result<Vec<String>, Error> {
    let mut reader = Reader::new(bytes, Limits::default());
    let (mut database, mut lines) = (0, Vec::new());
    loop {
        match reader.read_event()? {
            Event::Select(number) => database = number,
            Event::Entry { entry, .. } => lines.push(format!("{database} {}", line(&entry))),
            Event::Function(code) => lines.push(format!("function {}", text(&code))),
            Event::End(_) => break,
            _ => {}
        }
    }
    lines.sort();
    Ok(lines)
}

fn line(entry: &Entry) -> String {
    let expiry = entry.expiry().map_or("-".to_owned(), |ms| ms.to_string());
    let parts = parts(entry).join(" ");
    format!("{} {} {expiry} {parts}", text(entry.key()), entry.kind().name()).trim_end().to_owned()
}

fn parts(entry: &Entry) -> Vec<String> {
    let mut parts: Vec<String> = match entry.view() {
        View::Bytes(bytes) => return vec![text(bytes)],
        View::Int(int) => return vec![text(int.to_string().as_bytes())],
        View::Object(Value::Str(bytes)) => return vec![text(bytes)],
        View::Object(Value::List(list)) => return list.iter().map(|item| text(&item.text())).collect(),
        View::Object(Value::Set(set)) => set.iter().map(|member| text(&member)).collect(),
        View::Object(Value::Hash(hash)) => {
            hash.iter().map(|(field, value)| format!("{}={}", text(&field), text(&value))).collect()
        }
        View::Object(Value::TimedHash(hash)) => {
            let mut parts = Vec::new();
            hash.for_each(|field, value, expiry| {
                let time = expiry.map_or(String::new(), |at| format!("@{at}"));
                parts.push(format!("{}={}{time}", text(field), text(value)));
            });
            parts
        }
        View::Object(Value::ZSet(zset)) => {
            zset.iter().map(|(member, score)| format!("{}={:016x}", text(&member), score.to_bits())).collect()
        }
        View::Object(Value::Stream(stream)) => return stream_parts(stream),
        View::Object(Value::Suggestions(suggestions)) => {
            let mut parts = Vec::new();
            suggestions.for_each(|found| {
                let payload = found.payload.map_or(String::new(), |payload| format!("@{}", text(payload)));
                parts.push(format!("{}={:08x}{payload}", text(found.text), found.score.to_bits()));
            });
            parts
        }
    };
    parts.sort();
    parts
}

fn stream_parts(stream: &Stream) -> Vec<String> {
    let entries = &stream.entries;
    let state = [entries.last_id.to_string(), entries.max_deleted_id.to_string(), entries.entries_added.to_string()];
    let mut parts = state.to_vec();
    for block in entries.blocks() {
        for entry in block.entries {
            let pairs: Vec<_> = entry.map(|(field, value)| format!("{}={}", text(field), text(value))).collect();
            parts.push(format!("{}:{}", entry.id, pairs.join(",")));
        }
    }
    parts.extend(stream.groups.iter().map(|(name, group)| group_part(name, group)));
    parts
}

fn group_part(name: &[u8], group: &Group) -> String {
    let read = group.entries_read.map_or("-".to_owned(), |read| read.to_string());
    let consumers: Vec<_> = group.consumers().map(|consumer| text(consumer.name())).collect();
    let pending = group.pending().iter().map(|(id, pending)| {
        format!("{id}@{}*{}>{}", pending.delivered_ms, pending.deliveries, text(&pending.consumer))
    });
    let pending: Vec<_> = pending.collect();
    format!("group:{}:{}:{read}:{}:{}", text(name), group.last_id, consumers.join(","), pending.join(","))
}
