//! Values of other keys that the patterns of BY and GET refer to.

use resp::num;
use store::db::Db;
use store::entry::View;
use store::hash::KeyHash;
use store::keyspace::Key;
use store::types::packed::Item;
use store::value::Value;

use super::Pattern;

/// Number of keys that are prefetched together. Each takes two cache lines, which must stay in the first-level cache
/// until they are used.
const KEYS_AHEAD: usize = 32;

/// Names of keys and their hashes.
#[derive(Default)]
struct Names {
    bytes: Vec<u8>,
    /// End of each name, with its hash.
    keys: Vec<(usize, KeyHash)>,
}

impl Names {
    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
    }

    fn push(&mut self, prefix: &[u8], element: Item<'_>, suffix: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(prefix);
        match element {
            Item::Int(value) => num::write_i64(&mut self.bytes, value),
            Item::Str(bytes) => self.bytes.extend_from_slice(bytes),
        }
        self.bytes.extend_from_slice(suffix);
        self.keys.push((self.bytes.len(), KeyHash::of(&self.bytes[start..])));
    }

    fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        let mut start = 0;
        self.keys.iter().map(move |&(end, hash)| {
            let bytes = &self.bytes[start..end];
            start = end;
            Key { bytes, hash }
        })
    }
}

/// Visits the value of each pattern for each of `count` elements, in this order; none for a missing value. Keys are
/// prefetched in groups ahead of their lookups.
pub fn each_value<'e>(
    db: &mut Db<'_, '_>,
    patterns: &[Pattern<'_>],
    count: usize,
    element: impl Fn(usize) -> Item<'e>,
    mut visit: impl FnMut(Option<Item<'_>>),
) {
    let mut names = Names::default();
    let step = (KEYS_AHEAD / patterns.len().max(1)).max(1);
    for start in (0..count).step_by(step) {
        let window = || (start..count.min(start + step)).map(&element);
        names.clear();
        for element in window() {
            for pattern in patterns {
                if let Pattern::Key { prefix, suffix, .. } = pattern {
                    names.push(prefix, element, suffix);
                }
            }
        }
        db.prefetch(names.keys.iter().map(|(_, hash)| *hash));
        let mut keys = names.iter();
        for element in window() {
            for pattern in patterns {
                match pattern {
                    Pattern::Element => visit(Some(element)),
                    Pattern::Nothing => visit(None),
                    Pattern::Key { field, .. } => match keys.next() {
                        Some(key) => with_value(db, key, *field, &mut visit),
                        None => visit(None),
                    },
                }
            }
        }
    }
}

/// Passes a key's value, or a field of its hash, to `visit`.
fn with_value(db: &mut Db<'_, '_>, key: Key<'_>, field: Option<&[u8]>, visit: &mut impl FnMut(Option<Item<'_>>)) {
    let now = db.due_ms();
    match (db.view(key), field) {
        (Some(View::Object(Value::Hash(hash))), Some(field)) => visit(hash.get(field).as_deref().map(Item::Str)),
        (Some(View::Object(Value::TimedHash(hash))), Some(field)) => {
            visit(hash.living(now).get(field).as_deref().map(Item::Str));
        }
        (Some(View::Bytes(bytes)), None) => visit(Some(Item::Str(bytes))),
        (Some(View::Int(int)), None) => visit(Some(Item::Int(int))),
        (Some(View::Object(Value::Str(bytes))), None) => visit(Some(Item::Str(bytes))),
        _ => visit(None),
    }
}
