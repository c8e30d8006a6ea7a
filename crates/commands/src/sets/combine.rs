//! Operations on several sets: SINTER, SUNION, SDIFF, and their variants that store or count the result.

use resp::num::{self, IntText};
use resp::reply::Reply;
use store::db::{Db, Ttl};
use store::keyspace::Key;
use store::types::intset::IntSet;
use store::types::set::{Lookup, Set, SetLimits};
use store::value::Value;

use super::reply_set;
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

/// Number of sets up to which a union's members are looked up in the sets before. The lookups grow with the square of the number.
const LOOKED_UP_MAX: usize = 5;

/// Returns the sets at the keys in order; none for a missing key. Fails if a key holds another type.
fn sets_at<'d, 'k>(
    db: &'d mut Db<'_, '_>,
    keys: impl Iterator<Item = Key<'k>> + Clone,
) -> Result<Vec<Option<&'d Set>>, Error> {
    for key in keys.clone() {
        db.object::<Set>(key)?;
    }
    let db = &*db;
    keys.map(|key| Ok(db.peek_object::<Set>(key)?)).collect()
}

/// Replies with the members that `walk` visits. The reply's length is filled in afterwards.
fn reply_members(reply: &mut Reply<'_>, walk: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool)) {
    let (mark, mut len) = (reply.deferred(), 0);
    walk(&mut |member| {
        reply.bulk(member);
        len += 1;
        true
    });
    reply.fill_set(mark, len);
}

/// Counts the members that `walk` visits, up to a limit of at least 1.
fn count_members(limit: usize, walk: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool)) -> usize {
    let mut count = 0;
    walk(&mut |_| {
        count += 1;
        count < limit
    });
    count
}

/// Stores a result at the key in the first argument, replacing its value, and replies with the result's size.
fn store(call: &mut Call<'_, '_, '_>, result: Set, event: &'static str) -> Outcome {
    let (key, len) = (call.key(1), result.len());
    call.overwrite(key);
    if len > 0 {
        call.db.set_object(key, Value::Set(result), Ttl::Clear);
        call.changed(key, Class::Set, event);
    } else {
        call.store_nothing(key);
    }
    call.reply.count(len);
    Ok(())
}

/// Sorts the sets to intersect by size; the members of the smallest are then looked up in the others. Returns no sets
/// if one is missing, because the intersection is empty.
fn smallest_first(sets: Vec<Option<&Set>>) -> Vec<&Set> {
    let mut sets: Vec<&Set> = sets.into_iter().collect::<Option<_>>().unwrap_or_default();
    sets.sort_by_key(|set| set.len());
    sets
}

/// Sets in which another set's members are looked up. Usually there is only one, which needs no allocation.
struct Lookups<'s> {
    first: Option<Lookup<'s>>,
    more: Vec<Lookup<'s>>,
}

impl<'s> Lookups<'s> {
    fn new(members: &Set, sets: &[&'s Set]) -> Self {
        let mut lookups = sets.iter().map(|set| Lookup::of(set, members.len()));
        Self { first: lookups.next(), more: lookups.collect() }
    }

    fn iter(&self) -> impl Iterator<Item = &Lookup<'s>> {
        self.first.iter().chain(&self.more)
    }
}

/// Returns the integers of the first set that all others have, or that none of them has; none if a set has another form. Sorted
/// integers need neither lookups nor their texts.
fn filtered_ints(first: &Set, others: &[&Set], keeps_present: bool) -> Option<Vec<i64>> {
    let others = others.iter().map(|other| other.ints()).collect::<Option<Vec<_>>>()?;
    let mut ints: Vec<i64> = first.ints()?.iter().collect();
    others.iter().for_each(|other| other.filter(&mut ints, keeps_present));
    Some(ints)
}

/// Visits the texts of integers until `visit` returns false.
fn visit_ints(ints: &[i64], mut visit: impl FnMut(&[u8]) -> bool) {
    let mut text = IntText::new();
    ints.iter().all(|&int| visit(text.i64(int)));
}

/// Visits the members that all sets have, in the order of the first, until `visit` returns false. A callback gets
/// members by reference; moving them out of an iterator would cost as much as the lookup.
fn visit_common(sets: &[&Set], mut visit: impl FnMut(&[u8]) -> bool) {
    if let Some((first, others)) = sets.split_first() {
        if let Some(ints) = filtered_ints(first, others, true) {
            return visit_ints(&ints, visit);
        }
        let others = Lookups::new(first, others);
        first.visit_while(|member| !others.iter().all(|other| other.contains(member)) || visit(member));
    }
}

pub(super) fn sinter(call: &mut Call<'_, '_, '_>) -> Outcome {
    let keys = call.each_key();
    let sets = smallest_first(sets_at(&mut call.db, keys)?);
    reply_members(&mut call.reply, |visit| visit_common(&sets, visit));
    Ok(())
}

pub(super) fn sinterstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let limits = &call.rules.set;
    let keys = call.each_key().skip(1);
    let sets = smallest_first(sets_at(&mut call.db, keys)?);
    let ints = sets.split_first().and_then(|(first, others)| filtered_ints(first, others, true));
    if let Some(ints) = ints.filter(|ints| ints.len() <= limits.ints_max()) {
        return store(call, Set::from_ints(IntSet::of_ascending(ints.iter().copied())), "sinterstore");
    }
    let mut result = Set::new();
    if sets.first().is_some_and(|set| set.ints().is_none()) {
        // The result is built as a packed block, which is faster than sorted integers. Its final encoding is chosen at
        // the end.
        result.prepare(b"", 1, limits);
    }
    visit_common(&sets, |member| {
        result.insert(member, limits);
        true
    });
    result.compact_ints(limits);
    store(call, result, "sinterstore")
}

pub(super) fn sintercard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let limit = count_limit(call, false)?;
    let keys = call.each_key();
    let sets = smallest_first(sets_at(&mut call.db, keys)?);
    let count = count_members(limit, |visit| visit_common(&sets, visit));
    call.reply.count(count);
    Ok(())
}

/// Parses the arguments of a counting command and returns its limit. `may_estimate` allows the option APPROX.
fn count_limit(call: &Call<'_, '_, '_>, may_estimate: bool) -> Result<usize, Error> {
    let at_least = |min: i64, index: usize| num::parse_i64(call.arg(index)).filter(|number| *number >= min);
    let keys = at_least(1, 1).ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    let keys = usize::try_from(keys).ok().filter(|keys| *keys <= call.len() - 2);
    let keys = keys.ok_or(Error::new("ERR Number of keys can't be greater than number of args"))?;
    let mut limit = 0;
    let mut index = 2 + keys;
    while index < call.len() {
        if may_estimate && call.is(index, "approx") {
            index += 1;
        } else if call.is(index, "limit") && index + 1 < call.len() {
            limit = at_least(0, index + 1).ok_or(Error::new("ERR LIMIT can't be negative"))?;
            index += 2;
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX))
}

/// Returns the union if all members are integers and few enough for the integer encoding.
fn union_of_ints(sets: &[&Set], limits: &SetLimits) -> Option<Set> {
    let few = |ints: usize| ints <= 2 * limits.ints_max();
    let parts = sets.iter().map(|set| set.ints()).collect::<Option<Vec<_>>>()?;
    let mut all = Vec::with_capacity(Some(parts.iter().map(|ints| ints.len()).sum()).filter(|sum| few(*sum))?);
    parts.iter().for_each(|ints| all.extend(ints.iter()));
    // Each part is ascending; this sort is fast for such input.
    all.sort();
    all.dedup();
    (all.len() <= limits.ints_max()).then(|| Set::from_ints(IntSet::of_ascending(all.iter().copied())))
}

/// Returns the union of all sets.
fn union(sets: &[&Set], limits: &SetLimits) -> Set {
    if let Some(ints) = union_of_ints(sets, limits) {
        return ints;
    }
    let mut result = Set::new();
    for set in sets {
        set.for_each(|member| {
            result.insert(member, limits);
        });
    }
    result
}

/// Replies with the union of several sets, without making a set if lookups cost less.
fn reply_union(reply: &mut Reply<'_>, sets: &[&Set], limits: &SetLimits) {
    if let Some(ints) = union_of_ints(sets, limits) {
        reply_set(reply, &ints);
    } else if sets.len() <= LOOKED_UP_MAX {
        reply_members(reply, |visit| visit_all(sets, visit));
    } else {
        reply_set(reply, &union(sets, limits));
    }
}

/// Visits each member of the union once, until `visit` returns false.
fn visit_all(sets: &[&Set], mut visit: impl FnMut(&[u8]) -> bool) {
    for (at, set) in sets.iter().enumerate() {
        let earlier = Lookups::new(set, &sets[..at]);
        set.visit_while(|member| earlier.iter().any(|other| other.contains(member)) || visit(member));
    }
}

pub(super) fn sunion(call: &mut Call<'_, '_, '_>) -> Outcome {
    let keys = call.each_key();
    let sets = sets_at(&mut call.db, keys)?;
    let sets: Vec<&Set> = sets.into_iter().flatten().collect();
    match &*sets {
        [] => call.reply.set(0),
        [only] => reply_set(&mut call.reply, only),
        several => reply_union(&mut call.reply, several, &call.rules.set),
    }
    Ok(())
}

/// Counts exactly, even with APPROX.
pub(super) fn sunioncard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let limit = count_limit(call, true)?;
    let keys = call.each_key();
    let mut sets: Vec<&Set> = sets_at(&mut call.db, keys)?.into_iter().flatten().collect();
    // The largest set needs no copy: count its members, and the others' members that it doesn't have.
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let Some((largest, others)) = sets.split_first() else {
        call.reply.int(0);
        return Ok(());
    };
    let (mut beyond, mut missing) = (Set::new(), limit.saturating_sub(largest.len()));
    for other in others {
        if missing == 0 {
            break;
        }
        other.visit_while(|member| {
            if !largest.contains(member) && beyond.insert(member, &call.rules.set) {
                missing -= 1;
            }
            missing > 0
        });
    }
    call.reply.count((largest.len() + beyond.len()).min(limit));
    Ok(())
}

pub(super) fn sdiffcard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let limit = count_limit(call, false)?;
    let keys = call.each_key();
    let sets = sets_at(&mut call.db, keys)?;
    let count = Difference::new(&sets).map_or(0, |left| count_members(limit, |visit| left.visit(visit)));
    call.reply.count(count);
    Ok(())
}

pub(super) fn sunionstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let keys = call.each_key().skip(1);
    let sets = sets_at(&mut call.db, keys)?;
    let sets: Vec<&Set> = sets.into_iter().flatten().collect();
    let result = union(&sets, &call.rules.set);
    store(call, result, "sunionstore")
}

/// A set, and the sets to subtract from it.
struct Difference<'s> {
    first: &'s Set,
    others: Vec<&'s Set>,
}

impl<'s> Difference<'s> {
    /// Returns none if the result is empty: the first set is missing, or is subtracted from itself.
    fn new(sets: &[Option<&'s Set>]) -> Option<Self> {
        let (first, others) = sets.split_first()?;
        let first = (*first)?;
        let mut others: Vec<&Set> = others.iter().copied().flatten().collect();
        // The largest set is the most likely one to contain a member.
        others.sort_by_key(|set| std::cmp::Reverse(set.len()));
        others.iter().all(|other| !std::ptr::eq(*other, first)).then_some(Difference { first, others })
    }

    /// True if looking up each member of the first set in all others costs less than removing the others' members from
    /// a copy. One lookup is estimated as half a removal; most members need fewer lookups than there are sets.
    fn looks_up(&self) -> bool {
        let lookups = self.first.len().saturating_mul(self.others.len() + 1);
        let removals = self.others.iter().fold(self.first.len(), |sum, other| sum.saturating_add(other.len()));
        lookups / 2 <= removals
    }

    /// Visits the members of the difference by lookups, until `visit` returns false.
    fn visit(&self, mut visit: impl FnMut(&[u8]) -> bool) {
        if let Some(ints) = filtered_ints(self.first, &self.others, false) {
            return visit_ints(&ints, visit);
        }
        let others = Lookups::new(self.first, &self.others);
        self.first.visit_while(|member| others.iter().any(|other| other.contains(member)) || visit(member));
    }

    /// Computes the difference in the way that costs least.
    fn to_set(&self, limits: &SetLimits) -> Set {
        let ints = filtered_ints(self.first, &self.others, false);
        if let Some(ints) = ints.filter(|ints| ints.len() <= limits.ints_max()) {
            return Set::from_ints(IntSet::of_ascending(ints.iter().copied()));
        }
        if !self.looks_up() {
            return self.without_others(limits);
        }
        let mut result = Set::new();
        self.visit(|member| {
            result.insert(member, limits);
            true
        });
        result
    }

    /// Computes the difference by removals.
    fn without_others(&self, limits: &SetLimits) -> Set {
        let mut result = union(&[self.first], limits);
        for other in &self.others {
            if result.is_empty() {
                break;
            }
            other.for_each(|member| {
                result.remove(member);
            });
        }
        result
    }
}

pub(super) fn sdiff(call: &mut Call<'_, '_, '_>) -> Outcome {
    let keys = call.each_key();
    let sets = sets_at(&mut call.db, keys)?;
    match Difference::new(&sets) {
        None => call.reply.set(0),
        Some(difference) if difference.looks_up() => reply_members(&mut call.reply, |visit| difference.visit(visit)),
        Some(difference) => reply_set(&mut call.reply, &difference.without_others(&call.rules.set)),
    }
    Ok(())
}

pub(super) fn sdiffstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let limits = &call.rules.set;
    let keys = call.each_key().skip(1);
    let sets = sets_at(&mut call.db, keys)?;
    let result = Difference::new(&sets).map_or_else(Set::new, |difference| difference.to_set(limits));
    store(call, result, "sdiffstore")
}
