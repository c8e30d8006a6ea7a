//! DIGEST and DIGEST-VALUE: a hash of all data, or of some values, that doesn't depend on their order in memory.
//!
//! The algorithm is Redis's (`debug.c`): SHA-1 sums that are combined by exclusive or where there is no order, and
//! mixed where there is. Different servers with the same data therefore return the same digest. As in Redis, consumer
//! groups don't count, and a key counts until it is removed.

use commands::error::Outcome;
use resp::num::SeventeenDigits;
use sha1_smol::Sha1;
use store::db::Db;
use store::entry::{Entry, View};
use store::keyspace::Key;
use store::types::stream::StreamId;
use store::types::suggestions::SuggestionOf;
use store::value::{Type, Value};

use crate::worker::turn::Turn;

/// A digest of data: 20 bytes.
#[derive(Clone, Copy, Default)]
struct DataDigest([u8; 20]);

impl DataDigest {
    /// Adds bytes without order.
    fn add(&mut self, bytes: &[u8]) {
        let sum = Sha1::from(bytes).digest().bytes();
        self.0.iter_mut().zip(sum).for_each(|(mine, other)| *mine ^= other);
    }

    /// Adds bytes after the previous ones.
    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    fn hex(self) -> String {
        let mut text = String::with_capacity(40);
        self.0.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        text
    }
}

/// Returns Redis's number of a type.
fn number_of(kind: Type) -> u32 {
    match kind {
        Type::String => 0,
        Type::List => 1,
        Type::Set => 2,
        Type::ZSet => 3,
        Type::Hash => 4,
        Type::Stream => 6,
        // Redis's number of modules' types.
        Type::Suggestions => 5,
    }
}

/// Mixes a key's value and expiry into a digest.
fn mix_entry(digest: &mut DataDigest, entry: &Entry) {
    digest.mix(&number_of(entry.kind()).to_be_bytes());
    match entry.view() {
        View::Int(int) => digest.mix(int.to_string().as_bytes()),
        View::Bytes(bytes) => digest.mix(bytes),
        View::Object(value) => mix_value(digest, value),
    }
    if entry.expiry().is_some() {
        digest.add(b"!!expire!!");
    }
}

fn mix_value(digest: &mut DataDigest, value: &Value) {
    let pair = |first: &[u8], second: &[u8]| {
        let mut pair = DataDigest::default();
        pair.mix(first);
        pair.mix(second);
        pair.0
    };
    match value {
        Value::Str(long) => digest.mix(long),
        Value::List(list) => list.iter().for_each(|element| digest.mix(&element.to_vec())),
        Value::Set(set) => set.for_each(|member| digest.add(member)),
        Value::ZSet(zset) => {
            zset.visit_ranks(0..zset.len(), false, |member, score| {
                digest.add(&pair(member, SeventeenDigits::new(score).as_bytes()));
            });
        }
        Value::Hash(hash) => hash.for_each(|field, value| digest.add(&pair(field, value))),
        Value::TimedHash(hash) => hash.for_each(|field, value, expiry| {
            let mut sum = DataDigest(pair(field, value));
            if expiry.is_some() {
                sum.add(b"!!hexpire!!");
            }
            digest.add(&sum.0);
        }),
        // For a module's value without a digest function, as RediSearch's, Redis adds only the type.
        Value::Suggestions(suggestions) => suggestions.for_each(|SuggestionOf { text, score, payload }| {
            let mut sum = DataDigest(pair(text, SeventeenDigits::new(f64::from(score)).as_bytes()));
            if let Some(payload) = payload {
                sum.mix(payload);
            }
            digest.add(&sum.0);
        }),
        Value::Stream(stream) => {
            for entry in stream.entries.range(StreamId::MIN, StreamId::MAX) {
                digest.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (field, value) in entry {
                    digest.mix(field.as_ref());
                    digest.mix(value.as_ref());
                }
            }
        }
    }
}

/// DIGEST: the digest of all databases.
pub(super) fn digest(turn: &mut Turn<'_, '_>) -> Outcome {
    let (clock, mut all) = (*turn.worker.clock, DataDigest::default());
    for database in 0..turn.engine().keyspace.databases() {
        let mut db = Db::new(turn.locked, database, &clock, &mut turn.worker.observed);
        if db.sizes().0 == 0 {
            continue;
        }
        all.mix(&(database as u32).to_be_bytes());
        db.scan(0, usize::MAX, |entry| {
            let mut digest = DataDigest::default();
            digest.mix(entry.key());
            mix_entry(&mut digest, entry);
            all.add(&digest.0);
        });
    }
    turn.reply.simple(&all.hex());
    Ok(())
}

/// DIGEST-VALUE key ...: the digest of each key's value; zeros for a missing key.
pub(super) fn digest_value(turn: &mut Turn<'_, '_>) -> Outcome {
    let (clock, database) = (*turn.worker.clock, turn.session.database);
    turn.reply.array(turn.len() - 2);
    for name in turn.args.from(2) {
        let mut digest = DataDigest::default();
        let db = Db::new(turn.locked, database, &clock, &mut turn.worker.observed);
        if let Some(entry) = db.peek(Key::new(name)) {
            mix_entry(&mut digest, &entry);
        }
        turn.reply.simple(&digest.hex());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;
    use config::{Loader, Settings};

    #[test]
    fn the_order_in_memory_does_not_count() {
        let bench = || {
            let settings = Settings::new();
            Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"yes".to_vec()]).unwrap();
            Bench::with(settings)
        };
        let (mut one, mut other) = (bench(), bench());
        let (mut first, mut second) = (one.open(), other.open());
        one.check(&mut first, &[("debug digest", &format!("+{}", "0".repeat(40)))]);
        let lines = ["set s v", "set n 12", "rpush l a b", "sadd t 1 2 x", "hset h f v g w", "zadd z 1.5 a 2 b"];
        lines.iter().for_each(|line| drop(one.line(&mut first, line)));
        lines.iter().rev().for_each(|line| drop(other.line(&mut second, line)));
        let digest = one.line(&mut first, "debug digest");
        assert_eq!(other.line(&mut second, "debug digest"), digest);
        // Reply of redis-server 7.0.15 for the same data.
        assert_eq!(digest, "+045337f8ab61a963f19318b3e153697c69dfdb0c");
        for change in ["pexpire s 100000", "rpush l c", "lset l 0 z", "sadd t y", "hset h f w", "zadd z 1 a", "del n"] {
            let before = one.line(&mut first, "debug digest");
            one.line(&mut first, change);
            assert_ne!(one.line(&mut first, "debug digest"), before, "{change}");
        }
        let values = one.line(&mut first, "debug digest-value s none");
        assert!(values.starts_with("*2|+") && values.ends_with(&format!("+{}", "0".repeat(40))), "{values}");
    }
}
