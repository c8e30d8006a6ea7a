use std::collections::BTreeSet;

use super::*;
use crate::keyspace::Keyspace;

/// Keys of a test: fewer under Miri, which is slow.
const COUNT: u64 = if cfg!(miri) { 10 } else { 1000 };

pub(super) fn clock(now_ms: u64) -> Clock {
    Clock { now_ms, due_ms: now_ms, uptime_s: 1, access: Access::Noted, frequency: None, keeps_due: false }
}

fn with<T>(keyspace: &Keyspace, now_ms: u64, run: impl FnOnce(&mut Db<'_, '_>) -> T) -> T {
    with_clock(keyspace, clock(now_ms), run)
}

pub(super) fn with_clock<T>(keyspace: &Keyspace, clock: Clock, run: impl FnOnce(&mut Db<'_, '_>) -> T) -> T {
    let alone = keyspace.gate().close();
    let mut locked = keyspace.all(&alone);
    let mut observed = SideEffects::default();
    run(&mut Db::new(&mut locked, 0, &clock, &mut observed))
}

fn text(db: &mut Db<'_, '_>, key: &str) -> Option<String> {
    match db.view(Key::new(key.as_bytes()))? {
        View::Int(int) => Some(int.to_string()),
        View::Bytes(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        View::Object(_) => None,
    }
}

#[test]
fn an_expired_key_is_never_seen() {
    let keyspace = Keyspace::new(16, 1);
    let key = Key::new(b"k");
    with(&keyspace, 100, |db| {
        db.set_string(key, b"v", Ttl::At(200));
        assert_eq!(text(db, "k").as_deref(), Some("v"));
    });
    with(&keyspace, 200, |db| assert!(db.exists(key)));
    with(&keyspace, 201, |db| {
        assert!(db.peek(key).is_none());
        assert!(!db.remove(key));
        assert_eq!(db.sizes(), (0, 0));
        db.set_string(key, b"again", Ttl::Keep);
        assert!(db.peek(key).unwrap().expiry().is_none());
    });
}

#[test]
fn a_clock_that_keeps_due_keys_hides_them_and_only_a_write_removes_them() {
    let keyspace = Keyspace::new(16, 1);
    let key = Key::new(b"k");
    let keep = Clock { keeps_due: true, ..clock(201) };
    with(&keyspace, 100, |db| db.set_string(key, b"v", Ttl::At(200)));
    with_clock(&keyspace, keep, |db| {
        assert!(db.get(key).is_none() && db.look(key).is_none() && db.look_quietly(key).is_none());
        assert_eq!((db.sizes(), db.observed.misses, db.observed.expired), ((1, 1), 3, 0));
        assert!(!db.remove(key));
        assert_eq!((db.sizes(), db.observed.expired), ((0, 0), 1));
    });
}

#[test]
#[cfg_attr(miri, ignore = "takes many keys")]
fn room_that_is_made_for_keys_is_no_more_than_they_take() {
    let keyspace = Keyspace::new(1, 1);
    let tables = |db: &mut Db<'_, '_>| {
        (0..keyspace.shard_count()).map(|shard| db.locked.shard(db.first, shard).table.memory_bytes()).sum::<usize>()
    };
    let fill = |db: &mut Db<'_, '_>| {
        for i in 0..50 * COUNT {
            let entry = Entry::int(format!("key:{i}").as_bytes(), 1, None);
            assert!(db.restore(KeyHash::of(entry.key()), entry).is_ok());
        }
        tables(db)
    };
    let grown = with(&keyspace, 100, fill);
    with(&keyspace, 100, |db| {
        db.expect(1 << 20);
        assert_eq!((tables(db), db.flush(false)), (grown, 50 * COUNT as usize), "the database has keys already");
        db.expect(50 * COUNT as usize);
        let made = tables(db);
        let filled = fill(db);
        assert!(made > filled * 9 / 10 && filled < grown * 11 / 10, "{made} {filled} {grown}");
    });
}

#[test]
fn a_survey_counts_keys_and_estimates_their_time() {
    let keyspace = Keyspace::new(2, 1);
    with(&keyspace, 1000, |db| {
        assert_eq!(db.survey(), Survey::default());
        for i in 0..100u64 {
            let ttl = if i % 2 == 0 { Ttl::At(3000) } else { Ttl::Clear };
            db.set_string(Key::new(format!("{i}").as_bytes()), b"v", ttl);
        }
        let survey = db.survey();
        assert_eq!((survey.keys, survey.volatile, survey.ttl_ms_mean), (100, 50, 2000));
        assert!(survey.overhead_bytes > 800, "{survey:?}");
    });
}

#[test]
fn expired_keys_are_reclaimed_without_an_access() {
    let keyspace = Keyspace::new(2, if cfg!(miri) { 1 } else { 4 });
    with(&keyspace, 0, |db| {
        for i in 0..COUNT {
            let name = format!("{i}");
            db.set_string(Key::new(name.as_bytes()), b"v", Ttl::At(10 + i));
            // Some expiries are later and some earlier than the first ones.
            if i % 3 == 0 {
                db.set_expiry(Key::new(name.as_bytes()), Some(5000));
            }
            if i % 3 == 1 {
                db.set_expiry(Key::new(name.as_bytes()), Some(5));
            }
        }
    });
    let reclaim = |now| {
        with(&keyspace, now, |db| {
            (0..keyspace.shard_count()).for_each(|s| while db.reclaim(s, 3) {});
            db.sizes()
        })
    };
    let with_rest = |rests: &[u64]| (0..COUNT).filter(|i| rests.contains(&(i % 3))).count();
    let (longer, not_shorter) = (with_rest(&[0]), with_rest(&[0, 2]));
    assert_eq!(reclaim(9), (not_shorter, not_shorter));
    assert_eq!(reclaim(2000), (longer, longer));
    assert_eq!(reclaim(5001), (0, 0));
}

#[test]
fn a_scan_sees_every_key_once_the_cursor_is_back() {
    let keyspace = Keyspace::new(1, if cfg!(miri) { 1 } else { 2 });
    let names: BTreeSet<String> = (0..COUNT).map(|i| format!("key{i}")).collect();
    with(&keyspace, 0, |db| {
        names.iter().for_each(|n| db.set_string(Key::new(n.as_bytes()), b"", Ttl::Clear));
    });
    for count in [1, 10, 1000] {
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = with(&keyspace, 0, |db| {
                db.scan(cursor, count, |e| {
                    seen.insert(String::from_utf8_lossy(e.key()).into_owned());
                })
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen, names);
    }
}

#[test]
fn refreshing_an_expiry_for_ever_takes_bounded_memory() {
    let keyspace = Keyspace::new(1, 1);
    with(&keyspace, 0, |db| {
        let key = Key::new(b"session");
        for i in (0..COUNT * 10).rev() {
            db.set_string(key, b"x", Ttl::At(1000 + i));
        }
        assert!(db.shard(key.hash).queue_bytes() < 8192);
    });
}

/// Returns a hash with the fields f0, f1, ..., which expire at these times.
fn timed(expiries: &[u64]) -> Value {
    let mut hash = crate::types::timed_hash::TimedHash::new();
    for (i, &at) in expiries.iter().enumerate() {
        hash.set(format!("f{i}").as_bytes(), b"v", Ttl::At(at), &crate::types::hash::HashLimits::default());
    }
    Value::TimedHash(hash)
}

/// Removes expired fields and returns their number and the events.
fn reclaim_fields(keyspace: &Keyspace, now_ms: u64, limit: usize) -> (u64, Vec<(Event, String, usize)>) {
    with(keyspace, now_ms, |db| {
        db.observed.list = u8::MAX;
        (0..keyspace.shard_count()).for_each(|shard| while db.reclaim(shard, limit) {});
        let seen = db.observed.seen.iter();
        let events = seen.map(|s| (s.event, String::from_utf8_lossy(&s.key).into_owned(), s.fields.len()));
        (db.observed.expired_fields, events.collect())
    })
}

#[test]
fn fields_are_removed_after_their_time_and_their_key_with_the_last() {
    let keyspace = Keyspace::new(16, 1);
    assert!(!keyspace.had_timed_fields());
    with(&keyspace, 100, |db| db.set_object(Key::new(b"h"), timed(&[200, 200, 300]), Ttl::At(1_000_000)));
    assert!(keyspace.had_timed_fields() && keyspace.had_expiries(0));
    assert_eq!(with(&keyspace, 100, |db| db.survey().timed_hashes), 1);
    assert_eq!(reclaim_fields(&keyspace, 200, 16), (0, vec![]));
    let expired = |count| (Event::FieldsExpired, "h".to_string(), count);
    assert_eq!(reclaim_fields(&keyspace, 201, 16), (2, vec![expired(2)]));
    with(&keyspace, 201, |db| {
        // An earlier expiry is found earlier, and a later one not too early.
        db.change_timed(Key::new(b"h"), |hash| hash.set_expiry(b"f2", Some(250))).unwrap();
    });
    assert_eq!(reclaim_fields(&keyspace, 250, 16), (0, vec![]));
    with(&keyspace, 250, |db| {
        db.change_timed(Key::new(b"h"), |hash| hash.set_expiry(b"f2", Some(400))).unwrap();
    });
    assert_eq!(reclaim_fields(&keyspace, 301, 16), (0, vec![]));
    assert_eq!(reclaim_fields(&keyspace, 401, 16), (1, vec![expired(1), (Event::Drained, "h".to_string(), 0)]));
    assert_eq!(with(&keyspace, 401, |db| (db.sizes(), db.survey().timed_hashes)), ((0, 0), 0));
    assert!(with(&keyspace, 401, |db| db.flush(false)) == 0 && !keyspace.had_timed_fields());
}

#[test]
fn many_fields_that_expire_at_once_are_removed_in_steps() {
    let keyspace = Keyspace::new(16, 1);
    let count = if cfg!(miri) { 40 } else { 1000 };
    with(&keyspace, 1, |db| {
        for key in ["a", "b", "c"] {
            db.set_object(Key::new(key.as_bytes()), timed(&vec![200; count]), Ttl::Clear);
        }
    });
    let (fields, events) = reclaim_fields(&keyspace, 201, 16);
    assert_eq!(fields, 3 * count as u64);
    assert!(events.iter().all(|(_, _, fields)| *fields <= 16));
    assert_eq!(events.iter().filter(|(event, ..)| *event == Event::Drained).count(), 3);
    assert_eq!(with(&keyspace, 201, |db| db.sizes().0), 0);
}

#[test]
fn fields_expire_in_copied_moved_and_renamed_hashes() {
    let keyspace = Keyspace::new(16, 1);
    with(&keyspace, 1, |db| {
        db.set_object(Key::new(b"old"), timed(&[200]), Ttl::Clear);
        let copy = db.peek(Key::new(b"old")).unwrap().copy_as(b"copy");
        db.other(3).put(Key::new(b"copy"), copy);
        let entry = db.take(Key::new(b"old")).unwrap().with_key(b"new");
        db.put(Key::new(b"new"), entry);
        let loaded = Entry::object(b"loaded", timed(&[200]), None);
        assert!(db.restore(KeyHash::of(b"loaded"), loaded).is_ok());
    });
    let mut names: Vec<_> = reclaim_fields(&keyspace, 201, 16).1.into_iter().map(|(_, key, _)| key).collect();
    names.sort();
    names.dedup();
    assert_eq!(names, ["loaded", "new"]);
    with(&keyspace, 201, |db| {
        let mut other = db.other(3);
        (0..keyspace.shard_count()).for_each(|shard| while other.reclaim(shard, 1) {});
        assert_eq!(other.sizes().0, 0);
    });
}

#[test]
fn a_write_removes_the_fields_that_it_names_and_that_are_due() {
    let keyspace = Keyspace::new(16, 1);
    let key = Key::new(b"h");
    with(&keyspace, 1, |db| db.set_object(key, timed(&[200, 200, 300]), Ttl::Clear));
    with(&keyspace, 201, |db| {
        db.observed.list = u8::MAX;
        db.expire_fields(key, [&b"f1"[..], b"f2", b"f1", b"none"].into_iter());
        let names: Vec<_> = db.observed.seen.iter().flat_map(|seen| seen.fields.clone()).collect();
        assert_eq!((db.observed.expired_fields, names), (1, vec![Box::from(*b"f1")]));
        let hash = db.peek(key).unwrap().timed_hash().unwrap().len();
        assert_eq!(hash, 2);
    });
}

#[test]
fn notes_of_hashes_whose_times_change_often_take_little_memory() {
    let keyspace = Keyspace::new(1, 1);
    with(&keyspace, 1, |db| {
        db.set_object(Key::new(b"h"), timed(&[1_000_000]), Ttl::Clear);
        for i in 0..if cfg!(miri) { 200 } else { 10_000 } {
            db.change_timed(Key::new(b"h"), |hash| hash.set_expiry(b"f0", Some(900_000 - i))).unwrap();
        }
        assert!(db.survey().overhead_bytes < 20_000);
    });
}
