//! Active defragmentation: moves blocks out of sparsely used pages of the allocator, so that whole pages become free
//! and return to the system.
//!
//! After many deletions, or changes of lengths, the pages for blocks of one size may be partly empty while no more
//! blocks of that size are allocated: the process holds memory that it does not use. Only the allocator knows these
//! pages; the caller passes this knowledge on ([`Mover`]). Each move allocates a new block of the same size, which the
//! allocator places in a fuller page.
//!
//! These blocks move: entries, long strings that are not being sent, packed blocks, the members and fields of large
//! sets and hashes, and blocks of suggestions. Others stay: large sorted sets have pointers into them from elsewhere,
//! and lists, streams and the tables themselves use larger blocks anyway.

/// Decides which blocks move, and counts them.
pub struct Mover<'a> {
    is_sparse: &'a dyn Fn(*const u8) -> bool,
    /// Maximum number of elements of a value that is processed in one step.
    pub at_once_max: usize,
    /// Number of inspected blocks.
    pub seen: u64,
    /// Number of blocks selected to move.
    pub moved: u64,
}

impl<'a> Mover<'a> {
    /// Returns a mover that selects the blocks for which `is_sparse` returns true: their page should be emptied.
    pub fn new(is_sparse: &'a dyn Fn(*const u8) -> bool, at_once_max: usize) -> Mover<'a> {
        Mover { is_sparse, at_once_max, seen: 0, moved: 0 }
    }

    /// Returns true if a block should move.
    pub fn wants(&mut self, block: *const u8) -> bool {
        let wanted = (self.is_sparse)(block);
        self.seen += 1;
        self.moved += u64::from(wanted);
        wanted
    }
}

/// Says if a value has been processed completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Compacted {
    /// All of it.
    Wholly,
    /// Not yet: it is too large for one step, see [`crate::db::Db::compact_large`].
    InSteps,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Access, Clock, Db, SideEffects, Ttl};
    use crate::entry::{Entry, View};
    use crate::keyspace::{Key, Keyspace};
    use crate::types::hash::{Hash, HashLimits};
    use crate::types::list::{End, List, ListLimits};
    use crate::types::set::{Set, SetLimits};
    use crate::types::suggestions::Suggestions;
    use crate::types::timed_hash::TimedHash;
    use crate::types::zset::{ZSet, ZSetLimits};
    use crate::value::Value;

    /// Elements of a large collection, more than fit into one step. Miri is slow, so it gets fewer.
    const MANY: usize = if cfg!(miri) { 40 } else { 5000 };
    const AT_ONCE_MAX: usize = if cfg!(miri) { 30 } else { 550 };
    /// Limits of small collections.
    const HASH: HashLimits = HashLimits { listpack_entries: 8, listpack_value: 64 };
    const SET: SetLimits = SetLimits { intset_entries: 8, listpack_entries: 8, listpack_value: 64 };
    const ZSET: ZSetLimits = ZSetLimits { entries_max: 8, member_bytes_max: 64 };

    fn with<T>(keyspace: &Keyspace, run: impl FnOnce(&mut Db<'_, '_>) -> T) -> T {
        let alone = keyspace.gate().close();
        let mut locked = keyspace.all(&alone);
        let clock =
            Clock { now_ms: 1, due_ms: 1, uptime_s: 1, access: Access::Noted, frequency: None, keeps_due: false };
        run(&mut Db::new(&mut locked, 0, &clock, &mut SideEffects::default()))
    }

    fn number(i: usize) -> Vec<u8> {
        format!("element number {i}").into_bytes()
    }

    /// Adds keys of every form.
    fn fill(db: &mut Db<'_, '_>) {
        for i in 0..20 {
            db.set_string(
                Key::new(&number(i)),
                &vec![b'x'; i * i * 5],
                if i % 2 == 0 { Ttl::At(9999) } else { Ttl::Clear },
            );
            db.set_int(Key::new(format!("int {i}").as_bytes()), i as i64, Ttl::Clear);
        }
        for (prefix, count) in [("small", 5), ("middle", AT_ONCE_MAX - 10), ("large", MANY)] {
            let key = |kind: &str| format!("{prefix} {kind}").into_bytes();
            let hash = key("hash");
            let timed = key("timed hash");
            let set = key("set");
            let ints = key("ints");
            let zset = key("zset");
            let list = key("list");
            let suggestions = key("suggestions");
            for i in 0..count {
                let element = number(i);
                db.object_or_new::<Hash>(Key::new(&hash)).ok().unwrap().insert(&element, b"v", &HASH);
                let ttl = if i % 2 == 0 { Ttl::At(9999) } else { Ttl::Clear };
                db.object_or_new::<TimedHash>(Key::new(&timed)).ok().unwrap().set(&element, b"v", ttl, &HASH);
                db.object_or_new::<Set>(Key::new(&set)).ok().unwrap().insert(&element, &SET);
                let digits = i.to_string().into_bytes();
                db.object_or_new::<Set>(Key::new(&ints)).ok().unwrap().insert(&digits, &SET);
                db.object_or_new::<ZSet>(Key::new(&zset)).ok().unwrap().insert(&element, i as f64, ZSET);
                let elements = db.object_or_new::<List>(Key::new(&list)).ok().unwrap();
                elements.push(End::Right, &element, ListLimits::default());
                db.object_or_new::<Suggestions>(Key::new(&suggestions)).ok().unwrap().set(&element, i as f32, None);
            }
        }
    }

    /// Serialises an entry completely, as bytes, because Miri is slow at formatting text.
    fn shown(entry: &Entry) -> Vec<u8> {
        let joined = |parts: &[&[u8]]| parts.join(&b'=');
        let mut parts: Vec<Vec<u8>> = match entry.view() {
            View::Int(int) => vec![int.to_le_bytes().to_vec()],
            View::Bytes(bytes) => vec![bytes.to_vec()],
            View::Object(Value::Str(long)) => vec![long.to_vec()],
            View::Object(Value::Hash(hash)) => hash.iter().map(|(field, value)| joined(&[&field, &value])).collect(),
            View::Object(Value::TimedHash(hash)) => {
                let mut parts = Vec::new();
                hash.for_each(|field, value, expiry| {
                    parts.push(joined(&[field, value, &expiry.unwrap_or_default().to_le_bytes()]));
                });
                parts
            }
            View::Object(Value::Set(set)) => set.iter().map(|member| member.to_vec()).collect(),
            View::Object(Value::ZSet(zset)) => {
                zset.iter().map(|(member, score)| joined(&[&score.to_le_bytes(), &member])).collect()
            }
            View::Object(Value::List(list)) => list.iter().map(|element| format!("{element:?}").into()).collect(),
            View::Object(Value::Stream(_)) => Vec::new(),
            View::Object(Value::Suggestions(suggestions)) => {
                let mut parts = Vec::new();
                suggestions.for_each(|found| parts.push(joined(&[found.text, &found.score.to_le_bytes()])));
                parts
            }
        };
        if !matches!(entry.view(), View::Object(Value::List(_) | Value::ZSet(_))) {
            parts.sort();
        }
        let expiry = entry.expiry().unwrap_or_default().to_le_bytes();
        joined(&[entry.key(), &expiry, entry.encoding().as_bytes(), &parts.join(&b' ')])
    }

    fn everything(db: &mut Db<'_, '_>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = db.scan(cursor, 100, |entry| all.push(shown(entry)));
            if cursor == 0 {
                break;
            }
        }
        all.sort();
        all
    }

    /// Runs one pass over all shards.
    fn pass(keyspace: &Keyspace, mover: &mut Mover<'_>) -> usize {
        let mut large = Vec::new();
        for shard in 0..keyspace.shard_count() {
            let mut cursor = 0;
            loop {
                cursor = with(keyspace, |db| db.compact(shard, cursor, mover, &mut large));
                if cursor == 0 {
                    break;
                }
            }
        }
        for name in &large {
            let mut cursor = 0;
            loop {
                cursor = with(keyspace, |db| db.compact_large(Key::new(name), cursor, mover));
                if cursor == 0 {
                    break;
                }
            }
        }
        large.len()
    }

    #[test]
    fn moved_values_stay_the_same() {
        let keyspace = Keyspace::new(1, 1);
        with(&keyspace, fill);
        let before = with(&keyspace, everything);
        let mut mover = Mover::new(&|_| true, AT_ONCE_MAX);
        assert_eq!(pass(&keyspace, &mut mover), 5, "the large hashes, the large sets, and the suggestions");
        assert_eq!(with(&keyspace, everything), before);
        // One block per key for its entry, and one per element of the tables.
        let elements = (3 * (AT_ONCE_MAX - 10) + 3 * MANY) as u64;
        assert!(mover.moved == mover.seen && mover.moved > elements + 55, "{} {elements}", mover.moved);
    }

    #[test]
    fn unselected_blocks_stay_in_place() {
        let keyspace = Keyspace::new(1, 1);
        with(&keyspace, fill);
        let mut mover = Mover::new(&|_| false, AT_ONCE_MAX);
        pass(&keyspace, &mut mover);
        assert!(mover.seen > MANY as u64);
        assert_eq!(mover.moved, 0);
    }

    #[test]
    fn a_string_that_is_being_sent_stays() {
        let keyspace = Keyspace::new(1, 1);
        let key = Key::new(b"key");
        let sent = with(&keyspace, |db| {
            db.set_string(key, &[b'x'; 5000], Ttl::Clear);
            let Some(View::Object(Value::Str(long))) = db.view(key) else { panic!("no long string") };
            crate::shared_bytes::Long::clone(long)
        });
        pass(&keyspace, &mut Mover::new(&|_| true, AT_ONCE_MAX));
        with(&keyspace, |db| {
            let Some(View::Object(Value::Str(long))) = db.view(key) else { panic!("no long string") };
            assert_eq!(long.as_ptr(), sent.as_ptr());
        });
    }
}
