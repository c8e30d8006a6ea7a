//! DEBUG OBJECT: a line about a key's value, in the form that test suites parse.

use commands::error::{Error, Outcome};
use store::entry::{Entry, View};
use store::keyspace::Key;
use store::value::Value;

use crate::worker::turn::Turn;

/// Bits of Redis's eviction clock, in seconds.
const LRU_CLOCK_MASK: u64 = (1 << 24) - 1;

pub(super) fn object(turn: &mut Turn<'_, '_>) -> Outcome {
    let key = Key::new(turn.arg(2));
    let clock = *turn.worker.clock;
    let list_size = turn.engine().settings.list_max_listpack_size.get();
    let db = turn.db();
    let entry = db.peek(key).ok_or(Error::NO_SUCH_KEY)?;
    let idle_s = clock.idle_s(entry.access());
    let line = format!(
        "Value at:{:p} refcount:1 encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{idle_s}{}",
        entry.key().as_ptr(),
        entry.encoding(),
        serialized_bytes(&entry),
        (clock.now_ms / 1000).saturating_sub(u64::from(idle_s)) & LRU_CLOCK_MASK,
        list_figures(&entry, list_size),
    );
    turn.reply.simple(&line);
    Ok(())
}

/// Returns Redis's additional figures for a list in its large form.
fn list_figures(entry: &Entry, list_size: i64) -> String {
    let View::Object(Value::List(list)) = entry.view() else { return String::new() };
    if list.encoding() != "quicklist" {
        return String::new();
    }
    let nodes = list.node_count().max(1);
    format!(
        " ql_nodes:{nodes} ql_avg_node:{:.2} ql_listpack_max:{list_size} ql_compressed:0 ql_uncompressed_size:{}",
        list.len() as f64 / nodes as f64,
        list.memory_bytes()
    )
}

/// Returns the size of the value in an uncompressed snapshot: exact for strings, approximate for other types.
fn serialized_bytes(entry: &Entry) -> usize {
    match entry.view() {
        View::Int(int) => int_bytes(int),
        View::Bytes(bytes) => string_bytes(bytes.len()),
        View::Object(Value::Str(bytes)) => string_bytes(bytes.len()),
        View::Object(value) => value.memory_bytes(),
    }
}

/// Returns the size of an integer: a mark with up to four bytes, or its text if that isn't enough.
fn int_bytes(int: i64) -> usize {
    match int {
        -0x80..=0x7f => 2,
        -0x8000..=0x7fff => 3,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => string_bytes(int.to_string().len()),
    }
}

/// Returns the size of a string: its length in one to nine bytes, and its bytes.
fn string_bytes(len: usize) -> usize {
    len + match len {
        0..64 => 1,
        64..16384 => 2,
        16384..=0xffff_ffff => 5,
        _ => 9,
    }
}
