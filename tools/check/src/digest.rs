//! A hash of a key's value. It doesn't depend on the order of unordered elements or on their encoding, so two servers
//! with the same data have the same hash. Consumer groups of streams don't count.

use std::hash::{DefaultHasher, Hash, Hasher};

use store::entry::{Entry, View};
use store::types::stream::StreamId;
use store::types::suggestions::SuggestionOf;
use store::value::Value;

/// Returns the hash of an entry's type and value, without its key and expiry.
pub fn of(entry: &Entry) -> u64 {
    let value = match entry.view() {
        View::Int(int) => sum(int.to_string().as_bytes()),
        View::Bytes(bytes) => sum(bytes),
        View::Object(value) => of_value(value),
    };
    sum((entry.kind().name(), value))
}

/// Returns the hash of any parts.
pub fn sum(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

fn of_value(value: &Value) -> u64 {
    let mut all = 0_u64;
    // Additions have no order.
    let mut add = |part: u64| all = all.wrapping_add(part);
    match value {
        Value::Str(text) => {
            let text: &[u8] = text;
            return sum(text);
        }
        Value::List(list) => return list.iter().fold(0, |before, element| sum((before, element.to_vec()))),
        Value::Set(set) => set.for_each(|member| add(sum(member))),
        Value::ZSet(zset) => {
            zset.visit_ranks(0..zset.len(), false, |member, score| add(sum((member, bits(score)))));
        }
        Value::Hash(hash) => hash.for_each(|field, value| add(sum((field, value, None::<u64>)))),
        Value::TimedHash(hash) => hash.for_each(|field, value, expiry| add(sum((field, value, expiry)))),
        Value::Suggestions(suggestions) => suggestions.for_each(|SuggestionOf { text, score, payload }| {
            add(sum((text, bits(f64::from(score)), payload)));
        }),
        Value::Stream(stream) => {
            for entry in stream.entries.range(StreamId::MIN, StreamId::MAX) {
                all = sum((all, entry.id.ms, entry.id.seq));
                for (field, value) in entry {
                    let (field, value): (&[u8], &[u8]) = (field, value);
                    all = sum((all, field, value));
                }
            }
        }
    }
    all
}

/// Returns the bits of a score. Both zeros are equal.
fn bits(score: f64) -> u64 {
    (score + 0.0).to_bits()
}
