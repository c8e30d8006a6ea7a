//! Operations on one slot of a cluster. In [`Layout::Slots`] each slot is a shard, so the time depends only on the slot's own keys.

use super::{Db, saving};
use crate::entry::Entry;
use crate::keyspace::Layout;

impl Db<'_, '_> {
    /// Returns true on a node of a cluster, where each slot is a shard.
    #[must_use]
    pub fn is_by_slot(&self) -> bool {
        self.locked.keyspace().layout() == Layout::Slots
    }

    /// Returns the shard of a slot.
    fn shard_of_slot(&self, slot: u16) -> usize {
        let keyspace = self.locked.keyspace();
        assert!(keyspace.layout() == Layout::Slots, "shards are no slots");
        usize::from(slot) & (keyspace.shard_count() - 1)
    }

    /// Returns the number of a slot's keys, including expired ones that aren't removed yet.
    pub fn slot_len(&mut self, slot: u16) -> usize {
        let shard = self.shard_of_slot(slot);
        self.locked.visit(self.database, shard, |s| s.table.len()).unwrap_or(0)
    }

    /// Visits up to `limit` entries of a slot, including expired ones.
    pub fn visit_slot(&mut self, slot: u16, limit: usize, visit: impl FnMut(&Entry)) {
        let shard = self.shard_of_slot(slot);
        let mut visit = visit;
        self.locked.visit(self.database, shard, |s| s.table.iter().take(limit).for_each(|entry| visit(&entry)));
    }

    /// Like [`Db::scan`], within one slot. The cursor does not contain the slot.
    pub fn scan_slot(&mut self, slot: u16, cursor: u64, count: usize, mut visit: impl FnMut(&Entry)) -> u64 {
        let shard = self.shard_of_slot(slot);
        if self.locked.keyspace().is_staged(shard) {
            return 0;
        }
        let (mut at, mut seen) = (cursor, 0);
        for _ in 0..count.saturating_mul(10).max(1) {
            let next = self.locked.visit(self.database, shard, |s| {
                s.table.scan(at, |entry| {
                    seen += 1;
                    visit(entry);
                })
            });
            let Some(next) = next else { break };
            at = next;
            if at == 0 || seen >= count {
                break;
            }
        }
        at
    }

    /// Like [`Db::scan_living`], within one slot.
    pub fn scan_slot_living(
        &mut self,
        slot: u16,
        cursor: u64,
        count: usize,
        meets: impl Fn(&Entry) -> bool,
        visit: impl FnMut(&Entry),
    ) -> u64 {
        self.living(meets, visit, |db, visit| db.scan_slot(slot, cursor, count, visit))
    }

    /// Removes all keys of a slot, and returns their number. The slot's shard must be held. With `lazily`, the memory is freed in the
    /// background.
    pub fn flush_slot(&mut self, slot: u16, lazily: bool) -> usize {
        let shard = self.shard_of_slot(slot);
        assert!(self.locked.holds(shard), "a slot is emptied under its lock");
        let flushed = self.locked.visit_with_saver(self.database, shard, |s, saving| {
            let count = s.table.len();
            (count, saving::unless_unsaved(std::mem::take(s), saving))
        });
        let Some((count, shard)) = flushed else { return 0 };
        if let Some(shard) = shard.filter(|_| lazily && count > 0) {
            self.locked.keyspace().reaper().free(shard, count);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::{clock, with_clock};
    use super::super::{Db, SideEffects, Ttl};
    use crate::keyspace::{Key, Keyspace, Layout, Shards, never};
    use crate::random::Random;
    use crate::snapshot::Ended;

    /// Returns `each` names for each of a few slots.
    fn names(slots: usize, each: usize) -> Vec<(u16, Vec<String>)> {
        let mut found = std::collections::BTreeMap::<u16, Vec<String>>::new();
        for name in (0..).map(|i| format!("key:{i}")) {
            let slot = Key::new(name.as_bytes()).hash.slot();
            if usize::from(slot) < slots {
                found.entry(slot).or_default().push(name);
            }
            if found.len() == slots && found.values().all(|names| names.len() >= each) {
                break;
            }
        }
        found.into_iter().map(|(slot, names)| (slot, names.into_iter().take(each).collect())).collect()
    }

    fn put(db: &mut Db<'_, '_>, name: &str, ttl: Ttl) {
        db.set_string(Key::new(name.as_bytes()), b"v", ttl);
    }

    fn occupied(keyspace: &Keyspace) -> Vec<usize> {
        keyspace.occupied_from(0).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are thousands of slots")]
    fn a_slot_is_counted_listed_scanned_and_emptied_by_itself() {
        let keyspace = Keyspace::with_layout(2, 1, Layout::Slots);
        let all = names(3, 100);
        let (slot, mine) = &all[1];
        with_clock(&keyspace, clock(0), |db| {
            all.iter().flat_map(|(_, names)| names).for_each(|name| put(db, name, Ttl::Clear));
            put(&mut db.other(1), &mine[0], Ttl::Clear);
            assert_eq!((db.slot_len(*slot), db.sizes().0, db.slot_len(100)), (100, 300, 0));

            let mut listed = BTreeSet::new();
            db.visit_slot(*slot, 1000, |entry| assert!(listed.insert(entry.key().to_vec())));
            let expected: BTreeSet<_> = mine.iter().map(|name| name.clone().into_bytes()).collect();
            assert_eq!(listed, expected);
            let mut few = 0;
            db.visit_slot(*slot, 7, |_| few += 1);
            assert_eq!(few, 7);

            let (mut scanned, mut cursor, mut calls) = (BTreeSet::new(), 0, 0);
            loop {
                cursor =
                    db.scan_slot_living(*slot, cursor, 10, |_| true, |entry| _ = scanned.insert(entry.key().to_vec()));
                calls += 1;
                if cursor == 0 {
                    break;
                }
            }
            assert!(scanned == expected && (2..20).contains(&calls), "{calls}");
        });
        assert_eq!(occupied(&keyspace), [0, 1, 2]);
        with_clock(&keyspace, clock(0), |db| {
            assert_eq!(db.flush_slot(*slot, true), 100);
            assert_eq!((db.slot_len(*slot), db.sizes().0, db.other(1).sizes().0), (0, 200, 1));
            // The other database has a key there.
            assert_eq!((db.flush_slot(*slot, false), db.other(1).flush_slot(*slot, false)), (0, 1));
        });
        assert_eq!(occupied(&keyspace), [0, 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are thousands of slots")]
    fn a_walk_finds_all_keys_and_forgets_shards_that_have_become_empty() {
        let keyspace = Keyspace::with_layout(1, 1, Layout::Slots);
        let names: Vec<_> = (0..50).map(|i| format!("key:{i}")).collect();
        let slots: BTreeSet<_> = names.iter().map(|name| usize::from(Key::new(name.as_bytes()).hash.slot())).collect();
        with_clock(&keyspace, clock(0), |db| {
            names.iter().for_each(|name| put(db, name, Ttl::At(1000)));
            let (mut seen, mut cursor, mut calls) = (BTreeSet::new(), 0, 0);
            loop {
                cursor = db.scan(cursor, 10, |entry| _ = seen.insert(entry.key().to_vec()));
                calls += 1;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((seen.len(), calls), (names.len(), names.len() / 10));
            assert_eq!((db.survey().keys, db.sizes()), (50, (50, 50)));
            let mut random = Random::new(1);
            let picked = db.pick(&mut || random.next()).unwrap();
            assert!(names.iter().any(|name| name.as_bytes() == &*picked));
        });
        assert_eq!(occupied(&keyspace).into_iter().collect::<BTreeSet<_>>(), slots);
        with_clock(&keyspace, clock(2000), |db| {
            for shard in occupied(&keyspace) {
                assert!(!db.reclaim(shard, 100));
            }
            assert_eq!(db.sizes(), (0, 0));
        });
        assert_eq!(occupied(&keyspace), []);
        with_clock(&keyspace, clock(2000), |db| {
            names.iter().for_each(|name| put(db, name, Ttl::Clear));
            assert_eq!(db.flush(false), 50);
        });
        assert_eq!(occupied(&keyspace), []);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are thousands of slots")]
    fn a_slot_that_is_emptied_while_a_snapshot_runs_is_in_it() {
        let keyspace = Keyspace::with_layout(3, 1, Layout::Slots);
        let all = names(2, 10);
        with_clock(&keyspace, clock(0), |db| all[0].1.iter().for_each(|name| put(db, name, Ttl::Clear)));
        let run = crate::snapshot::tests::begin(&keyspace);
        with_clock(&keyspace, clock(0), |db| {
            assert_eq!(db.flush_slot(all[0].0, true), 10);
            // New keys, also in a slot that had none.
            all.iter().flat_map(|(_, names)| names).for_each(|name| put(db, name, Ttl::Clear));
        });
        run.check(&keyspace);
        assert_eq!(keyspace.end_snapshot(&keyspace.gate().close()), None::<Ended>);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there are thousands of slots")]
    fn a_slot_is_emptied_under_its_own_lock_beside_others() {
        let keyspace = Keyspace::with_layout(1, 2, Layout::Slots);
        let all = names(2, 10);
        with_clock(&keyspace, clock(0), |db| {
            all.iter().flat_map(|(_, names)| names).for_each(|name| put(db, name, Ttl::Clear));
        });
        let _other = keyspace.lock(Shards::One(all[1].0.into()), never).unwrap();
        let mut locked = keyspace.lock(Shards::One(all[0].0.into()), never).unwrap();
        let (clock, mut observed) = (clock(0), SideEffects::default());
        assert_eq!(Db::new(&mut locked, 0, &clock, &mut observed).flush_slot(all[0].0, false), 10);
    }
}
