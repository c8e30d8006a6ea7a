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
    let mut observed = Observed::default();
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
fn what_has_expired_is_reclaimed_without_being_met() {
    let keyspace = Keyspace::new(2, 4);
    with(&keyspace, 0, |db| {
        for i in 0..COUNT {
            let name = format!("{i}");
            db.set_string(Key::new(name.as_bytes()), b"v", Ttl::At(10 + i));
            // Longer and shorter lives than first noted.
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
    let keyspace = Keyspace::new(1, 2);
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
        assert!(db.shard(key.hash).queue.memory_bytes() < 8192);
    });
}
