//! Lists, sets, sorted sets and hashes, from single elements or from blocks of them.

use std::io::Read;

use resp::num::parse_f64;
use store::expiry::Ttl;
use store::hash::{ItemHash, hash as hash_of_bytes};
use store::prefetch::Ahead;
use store::types::hash::Hash;
use store::types::intset::IntSet;
use store::types::list::{End, List};
use store::types::packed::{ITEM_BYTES_MAX, Item, ItemText, append_item};
use store::types::set::Set;
use store::types::timed_hash::TimedHash;
use store::types::zset::{ZSet, ZSetBuilder};
use store::value::Value;

use super::error::{Error, Flaw};
use super::source::Source;
use crate::items::Items;
use crate::rdb::{NODE_PACKED, NODE_PLAIN, RESERVED_MAX};
use crate::{Limits, listpack, ziplist};

const TOO_LONG: Flaw = Flaw::Damaged("an element of over 4 GB");
const TWICE: Flaw = Flaw::Damaged("a collection with a duplicate element");
const ODD: Flaw = Flaw::Damaged("a block with an odd number of items");
const NO_SCORE: Flaw = Flaw::Damaged("a score");
/// Largest number of elements that are compared pairwise to find duplicates; for more, their hashes are sorted.
const COMPARED_MAX: usize = 12;

/// Largest magnitude up to which a score stores all integers exactly.
const INT_SCORE_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

/// Values in place of the length of a score's text, for scores that are not finite numbers.
const SCORE_NAN: u8 = 253;
const SCORE_INFINITE: u8 = 254;
const SCORE_NEGATIVE_INFINITE: u8 = 255;

/// Reads a number of elements, which must be at least one.
fn count<R: Read>(source: &mut Source<R>) -> Result<u64, Error> {
    match source.length()? {
        0 => Err(source.flaw(Flaw::Empty)),
        count => Ok(count),
    }
}

/// Number of elements for choosing an encoding and reserving memory. The number is a claim and is trusted only as far
/// as the source's length permits. If the encoding turns out to be too small, it changes as elements are added.
fn reserved<R: Read>(count: u64, source: &Source<R>) -> usize {
    source.credible(count).max(reserved_in_memory(count))
}

/// Like [`reserved`], for compactly encoded elements in memory.
fn reserved_in_memory(count: u64) -> usize {
    usize::try_from(count).map_or(RESERVED_MAX, |count| count.min(RESERVED_MAX))
}

fn checked(element: &[u8]) -> Result<&[u8], Flaw> {
    if element.len() <= ITEM_BYTES_MAX { Ok(element) } else { Err(TOO_LONG) }
}

/// Number of elements that are read before the first one is added, so that their memory accesses overlap.
const AT_ONCE: usize = 32;

/// Largest number of members of a set that are packed together.
const PACKED_MAX: u64 = 1024;

/// Elements that were read but not added.
#[derive(Default)]
struct ElementGroup {
    bytes: Vec<u8>,
    /// For each element, its end in `bytes` and its offset in the source.
    ends: Vec<(usize, u64)>,
}

impl ElementGroup {
    /// Reads an element.
    fn read<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Error> {
        source.string()?.write_to(&mut self.bytes);
        self.ends.push((self.bytes.len(), source.mark()));
        Ok(())
    }

    /// The elements with their offsets in the source.
    fn elements(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut start = 0;
        self.ends.iter().map(move |&(end, offset)| (&self.bytes[std::mem::replace(&mut start, end)..end], offset))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

// --- lists ------------------------------------------------------------------------------------------------------------

pub(super) fn list<R: Read>(source: &mut Source<R>, limits: &Limits) -> Result<List, Error> {
    let mut list = List::new();
    for _ in 0..count(source)? {
        push(source, &mut list, limits)?;
    }
    Ok(list)
}

/// Reads and adds an element.
fn push<R: Read>(source: &mut Source<R>, list: &mut List, limits: &Limits) -> Result<(), Error> {
    let text = source.string()?.text();
    let flaw = checked(&text).map(|element| list.push(End::Right, element, limits.list));
    flaw.map_err(|flaw| source.flaw(flaw))
}

/// An element with a block of its own, which servers give to long ones. As in Redis, an empty one is damage.
fn push_plain<R: Read>(source: &mut Source<R>, list: &mut List, limits: &Limits) -> Result<(), Error> {
    let text = source.string()?.text();
    let checked = if text.is_empty() { Err(Flaw::Damaged("a block of a list")) } else { checked(&text) };
    checked.map(|element| list.push(End::Right, element, limits.list)).map_err(|flaw| source.flaw(flaw))
}

/// Reads a list of blocks. Old blocks are ziplists, new ones listpacks or single elements.
pub(super) fn quicklist<R: Read>(source: &mut Source<R>, is_old: bool, limits: &Limits) -> Result<List, Error> {
    let mut list = List::new();
    for _ in 0..count(source)? {
        match if is_old { NODE_PACKED } else { source.length()? } {
            NODE_PLAIN => push_plain(source, &mut list, limits)?,
            NODE_PACKED => {
                let block = source.string_owned()?;
                let appended = if is_old {
                    ziplist::parse(&block).map(|items| append(&mut list, items, limits))
                } else {
                    listpack::parse(&block).map(|items| append(&mut list, items, limits))
                };
                appended.unwrap_or(Err(Flaw::Damaged("a block of a list"))).map_err(|flaw| source.flaw(flaw))?;
            }
            _ => return Err(source.damaged("the kind of a list's block")),
        }
    }
    if list.is_empty() { Err(source.flaw(Flaw::Empty)) } else { Ok(list) }
}

/// Adds the items of a block.
pub(super) fn append(list: &mut List, items: Items<'_>, limits: &Limits) -> Result<(), Flaw> {
    if items.encoded().is_some_and(|bytes| list.push_block(bytes, items.len(), limits.list)) {
        return Ok(());
    }
    for item in items {
        list.push(End::Right, checked(&item.text())?, limits.list);
    }
    Ok(())
}

// --- sets -------------------------------------------------------------------------------------------------------------

pub(super) fn set<R: Read>(source: &mut Source<R>, limits: &Limits) -> Result<Set, Error> {
    let count = count(source)?;
    if count <= PACKED_MAX.min(limits.set.listpack_entries as u64) {
        return small_set(source, count as usize, limits);
    }
    let (mut set, mut group, mut left) = (Set::new(), ElementGroup::default(), count);
    while left > 0 {
        group.clear();
        for _ in 0..left.min(AT_ONCE as u64) {
            group.read(source)?;
        }
        if left == count
            && let Some((first, _)) = group.elements().next()
        {
            set.prepare(first, reserved(count, source), &limits.set);
        }
        left -= group.ends.len() as u64;
        group.elements().for_each(|(member, _)| _ = set.prefetch(Ahead::Bucket(member)));
        for (member, offset) in group.elements() {
            insert(&mut set, member, limits).map_err(|flaw| Error { offset, flaw })?;
        }
    }
    Ok(set)
}

fn insert(set: &mut Set, member: &[u8], limits: &Limits) -> Result<(), Flaw> {
    if set.insert(checked(member)?, &limits.set) { Ok(()) } else { Err(TWICE) }
}

/// Room for each member of a small set, in bytes. Larger members make the buffer grow.
const MEMBER_BYTES_USUAL: usize = 16;

/// Reads a set that is so small that its members are packed, which is faster than adding one at a time. Sets of integers, and those with
/// a long member, have other forms.
fn small_set<R: Read>(source: &mut Source<R>, count: usize, limits: &Limits) -> Result<Set, Error> {
    let (mut members, mut longest) = (Vec::with_capacity(count * MEMBER_BYTES_USUAL), 0);
    let (mut hashes, mut offsets) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let text = source.string()?;
        let member = if let Item::Str(text) = text { checked(text).map(Item::from) } else { Ok(text) };
        match member {
            Ok(member) => {
                longest = longest.max(member.text_len());
                hashes.push(member.with_bytes(hash_of_bytes));
                append_item(&mut members, member);
            }
            Err(flaw) => return Err(source.flaw(flaw)),
        }
        offsets.push(source.mark());
    }
    let members = Items::shortest(&members, count);
    let is_text = matches!(members.clone().next(), Some(Item::Str(_)));
    if is_text && longest <= limits.set.listpack_value && differ_by(members.clone(), &hashes) {
        return Ok(Set::from_packed(members.packed()));
    }
    let mut set = Set::new();
    for (member, offset) in members.zip(offsets) {
        let text = member.text();
        if set.is_empty() {
            set.prepare(&text, count, &limits.set);
        }
        insert(&mut set, &text, limits).map_err(|flaw| Error { offset, flaw })?;
    }
    Ok(set)
}

/// Returns the set of ascending integers.
pub(super) fn set_of_ints(
    ints: impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone,
    limits: &Limits,
) -> Result<Value, Flaw> {
    if ints.len() == 0 {
        return Err(Flaw::Empty);
    }
    if ints.len() <= limits.set.ints_max() {
        return Ok(Value::Set(Set::from_ints(IntSet::of_ascending(ints))));
    }
    let mut set = Set::new();
    for (at, int) in ints.enumerate() {
        let text = Item::Int(int).text();
        if at == 0 {
            set.prepare(&text, limits.set.ints_max() + 1, &limits.set);
        }
        set.insert(&text, &limits.set);
    }
    Ok(Value::Set(set))
}

pub(super) fn set_of(members: Items<'_>, limits: &Limits) -> Result<Set, Flaw> {
    let (count, longest) = (members.len(), limits.set.listpack_value);
    if count == 0 {
        return Err(Flaw::Empty);
    }
    if count <= limits.set.listpack_entries && members.all_fit(longest) {
        differ(members.clone())?;
        return Ok(Set::from_packed(members.packed()));
    }
    let mut set = Set::new();
    for (at, member) in members.enumerate() {
        let text = member.text();
        if at == 0 {
            set.prepare(&text, count, &limits.set);
        }
        if !set.insert(checked(&text)?, &limits.set) {
            return Err(TWICE);
        }
    }
    Ok(set)
}

/// Checks that all items are different.
fn differ<'b>(items: impl ExactSizeIterator<Item = Item<'b>> + Clone) -> Result<(), Flaw> {
    let mut rest = items.clone();
    if items.len() <= COMPARED_MAX {
        while let Some(item) = rest.next() {
            if rest.clone().any(|other| other == item) {
                return Err(TWICE);
            }
        }
        return Ok(());
    }
    let hashes: Vec<u64> = items.clone().map(|item| item.with_bytes(hash_of_bytes)).collect();
    if differ_by(items, &hashes) { Ok(()) } else { Err(TWICE) }
}

/// Returns true if all items are different, given their hashes.
fn differ_by<'b>(items: impl Iterator<Item = Item<'b>> + Clone, hashes: &[u64]) -> bool {
    // Equal items have equal hashes. Unequal items rarely do, so items with equal hashes are compared.
    alike(hashes).into_iter().all(|hash| {
        let mut suspects: Vec<_> = items.clone().filter(|item| item.with_bytes(hash_of_bytes) == hash).collect();
        while let Some(suspect) = suspects.pop() {
            if suspects.contains(&suspect) {
                return false;
            }
        }
        true
    })
}

/// Returns the hashes that occur before.
fn alike(hashes: &[u64]) -> Vec<u64> {
    // An open table of numbers of hashes, counted from 1. At least half of it is empty, and the hashes are seeded.
    let mut table = vec![0u32; (2 * hashes.len()).next_power_of_two()];
    let mask = table.len() - 1;
    let mut alike = Vec::new();
    for (&hash, number) in hashes.iter().zip(1..) {
        let mut place = hash as usize & mask;
        while table[place] != 0 {
            if hashes[table[place] as usize - 1] == hash {
                alike.push(hash);
                break;
            }
            place = (place + 1) & mask;
        }
        if table[place] == 0 {
            table[place] = number;
        }
    }
    alike
}

// --- sorted sets ------------------------------------------------------------------------------------------------------

pub(super) fn zset<R: Read>(source: &mut Source<R>, is_binary: bool, limits: &Limits) -> Result<ZSet, Error> {
    let count = count(source)?;
    let mut builder = ZSetBuilder::with_capacity(reserved(count, source));
    let (mut group, mut scores, mut left) = (ElementGroup::default(), Vec::with_capacity(AT_ONCE), count);
    let mut hashes = Vec::with_capacity(AT_ONCE);
    while left > 0 {
        group.clear();
        scores.clear();
        for _ in 0..left.min(AT_ONCE as u64) {
            group.read(source)?;
            scores.push(if is_binary { f64::from_le_bytes(source.array()?) } else { text_score(source)? });
        }
        left -= scores.len() as u64;
        hashes.clear();
        hashes.extend(group.elements().map(|(member, _)| builder.prefetch(member)));
        for (((member, offset), score), hash) in group.elements().zip(&scores).zip(&hashes) {
            add(&mut builder, *hash, member, *score).map_err(|flaw| Error { offset, flaw })?;
        }
    }
    Ok(builder.finish(limits.zset))
}

fn add(builder: &mut ZSetBuilder, hash: ItemHash, member: &[u8], score: f64) -> Result<(), Flaw> {
    if score.is_nan() {
        return Err(NO_SCORE);
    }
    if builder.insert_new(hash, member, score) { Ok(()) } else { Err(TWICE) }
}

/// Reads a score in the text format of versions before 8.
fn text_score<R: Read>(source: &mut Source<R>) -> Result<f64, Error> {
    source.begin();
    match source.byte()? {
        SCORE_NAN => Err(source.flaw(NO_SCORE)),
        SCORE_INFINITE => Ok(f64::INFINITY),
        SCORE_NEGATIVE_INFINITE => Ok(f64::NEG_INFINITY),
        len => {
            let score = parse_f64(source.take(len.into())?);
            score.ok_or_else(|| source.flaw(NO_SCORE))
        }
    }
}

pub(super) fn zset_of(items: Items<'_>, limits: &Limits) -> Result<ZSet, Flaw> {
    let pairs = pairs(items.clone())?;
    if let Some(block) = items.encoded().filter(|_| integers_ascend(pairs.clone()))
        && let Some(set) = ZSet::from_packed(block, pairs.len(), items.longest(), limits.zset)
    {
        differ(pairs.map(|(member, _)| member))?;
        return Ok(set);
    }
    let mut scored = Vec::with_capacity(reserved_in_memory(pairs.len() as u64));
    for (member, score) in pairs.clone() {
        let score = match score {
            Item::Int(score) => score as f64,
            Item::Str(text) => parse_f64(text).ok_or(NO_SCORE)?,
        };
        if score.is_nan() {
            return Err(NO_SCORE);
        }
        scored.push((member.text(), score));
    }
    let ascend = |one: &(ItemText<'_>, f64), other: &(ItemText<'_>, f64)| {
        one.1 < other.1 || one.1 == other.1 && *one.0 < *other.0
    };
    if scored.is_sorted_by(ascend) {
        differ(pairs.map(|(member, _)| member))?;
        let (longest, bytes) =
            scored.iter().fold((0, 0), |(longest, sum), (m, _)| (m.len().max(longest), sum + m.len()));
        let sorted = scored.iter().map(|(member, score)| (&**member, *score));
        return Ok(ZSet::from_sorted(sorted, longest, bytes, limits.zset));
    }
    let mut builder = ZSetBuilder::with_capacity(scored.len());
    for (member, score) in &scored {
        add(&mut builder, ItemHash::of(member), member, *score)?;
    }
    Ok(builder.finish(limits.zset))
}

/// Returns true if all scores are integers of up to 53 bits, and the pairs ascend: the block of a small sorted set has the same items.
fn integers_ascend<'b>(pairs: impl Iterator<Item = (Item<'b>, Item<'b>)>) -> bool {
    let mut before: Option<(i64, Item<'b>)> = None;
    for (member, score) in pairs {
        let Item::Int(score) = score else { return false };
        let ascends =
            before.is_none_or(|(lower, other)| lower < score || lower == score && *other.text() < *member.text());
        if !ascends || score.unsigned_abs() > INT_SCORE_MAX {
            return false;
        }
        before = Some((score, member));
    }
    true
}

// --- hashes -----------------------------------------------------------------------------------------------------------

/// A hash that is being read.
struct HashBuilder<'l> {
    hash: Hash,
    limits: &'l Limits,
}

impl<'l> HashBuilder<'l> {
    /// Starts a hash of about this many fields.
    fn new(count: usize, limits: &'l Limits) -> Self {
        let mut hash = Hash::new();
        hash.prepare(count, 0, &limits.hash);
        HashBuilder { hash, limits }
    }

    fn add(&mut self, field: &[u8], value: &[u8]) -> Result<(), Flaw> {
        let (field, value) = (checked(field)?, checked(value)?);
        if self.hash.insert(field, value, &self.limits.hash) { Ok(()) } else { Err(TWICE) }
    }

    /// Reads and adds a field and its value.
    fn read<R: Read>(&mut self, source: &mut Source<R>, field: &mut Vec<u8>) -> Result<(), Error> {
        source.string_into(field)?;
        let value = source.string()?.text();
        let added = self.add(field, &value);
        added.map_err(|flaw| source.flaw(flaw))
    }
}

pub(super) fn hash<R: Read>(source: &mut Source<R>, limits: &Limits) -> Result<Hash, Error> {
    let count = count(source)?;
    let (mut builder, mut field) = (HashBuilder::new(reserved(count, source), limits), Vec::new());
    for _ in 0..count {
        builder.read(source, &mut field)?;
    }
    Ok(builder.hash)
}

/// A hash that is being read and may have fields with an expiry.
struct TimedHashBuilder<'l> {
    /// Used until the first field with an expiry.
    plain: HashBuilder<'l>,
    timed: Option<TimedHash>,
}

impl<'l> TimedHashBuilder<'l> {
    /// Starts a hash of about this many fields.
    fn new(count: usize, limits: &'l Limits) -> Self {
        TimedHashBuilder { plain: HashBuilder::new(count, limits), timed: None }
    }

    /// Adds a field. `expiry` is in milliseconds of Unix time.
    fn add(&mut self, field: &[u8], value: &[u8], expiry: Option<u64>) -> Result<(), Flaw> {
        if let (None, None) = (&self.timed, expiry) {
            return self.plain.add(field, value);
        }
        let timed = self.timed.get_or_insert_with(|| std::mem::take(&mut self.plain.hash).into());
        let ttl = expiry.map_or(Ttl::Clear, Ttl::At);
        let is_new = timed.set(checked(field)?, checked(value)?, ttl, &self.plain.limits.hash);
        if is_new { Ok(()) } else { Err(TWICE) }
    }

    fn finish(self) -> Value {
        self.timed.map_or(Value::Hash(self.plain.hash), Value::TimedHash)
    }
}

/// Converts a stored expiry: none if it is `never`; a time before 1970 counts as 0.
fn expiry_or(never: i64, at: i64) -> Option<u64> {
    (at != never).then(|| u64::try_from(at).unwrap_or(0))
}

/// Reads Valkey's hash with expiring fields: a time in milliseconds follows each value, -1 for never.
pub(super) fn hash_of_valkey<R: Read>(source: &mut Source<R>, limits: &Limits) -> Result<Value, Error> {
    let count = count(source)?;
    let (mut builder, mut field, mut value) =
        (TimedHashBuilder::new(reserved(count, source), limits), Vec::new(), Vec::new());
    for _ in 0..count {
        source.string_into(&mut field)?;
        source.string_into(&mut value)?;
        let expiry = expiry_or(-1, i64::from_le_bytes(source.array()?));
        builder.add(&field, &value, expiry).map_err(|flaw| source.flaw(flaw))?;
    }
    Ok(builder.finish())
}

/// Reads Redis's hash with expiring fields: a base time comes first. Before each field there is 0 for never, or one
/// plus the difference between its expiry and the base time. Before the release of 7.4, it was the time itself.
pub(super) fn hash_expiring<R: Read>(source: &mut Source<R>, has_first: bool, limits: &Limits) -> Result<Value, Error> {
    let first_ms = if has_first { u64::from_le_bytes(source.array()?).checked_sub(1) } else { Some(0) };
    let count = count(source)?;
    let (mut builder, mut field, mut value) =
        (TimedHashBuilder::new(reserved(count, source), limits), Vec::new(), Vec::new());
    for _ in 0..count {
        let expiry = match source.length()? {
            0 => None,
            later => {
                let at = first_ms.unwrap_or(0).checked_add(later);
                Some(at.ok_or_else(|| source.damaged("the time of a field"))?)
            }
        };
        source.string_into(&mut field)?;
        source.string_into(&mut value)?;
        builder.add(&field, &value, expiry).map_err(|flaw| source.flaw(flaw))?;
    }
    Ok(builder.finish())
}

/// Reads Redis's hash with expiring fields in a listpack, as alternating fields, values and times.
pub(super) fn listpack_expiring<R: Read>(
    source: &mut Source<R>,
    has_first: bool,
    limits: &Limits,
) -> Result<Value, Error> {
    if has_first {
        source.array::<8>()?;
    }
    let block = source.string_owned()?;
    let Some(mut items) = listpack::parse(&block) else { return Err(source.damaged("a listpack")) };
    if items.len() == 0 {
        return Err(source.flaw(Flaw::Empty));
    }
    if let Some(hash) = small_timed_hash(items.clone(), limits).map_err(|flaw| source.flaw(flaw))? {
        return Ok(Value::TimedHash(hash));
    }
    let mut builder = TimedHashBuilder::new(reserved_in_memory(items.len() as u64 / 3), limits);
    while let Some(field) = items.next() {
        let (Some(value), Some(time)) = (items.next(), items.next()) else { return Err(source.flaw(ODD)) };
        let Item::Int(at) = time else { return Err(source.damaged("the time of a field")) };
        builder.add(&field.text(), &value.text(), expiry_or(0, at)).map_err(|flaw| source.flaw(flaw))?;
    }
    Ok(builder.finish())
}

/// Keeps the items of a small hash as they are, if they have times, are ordered, and are few enough.
fn small_timed_hash(items: Items<'_>, limits: &Limits) -> Result<Option<TimedHash>, Flaw> {
    let (count, longest) = (items.len() / 3, limits.hash.listpack_value);
    if count > limits.hash.listpack_entries || !items.all_fit(longest) {
        return Ok(None);
    }
    let Some(hash) = TimedHash::from_packed(items.clone().packed()).filter(|hash| hash.timed_count() > 0) else {
        return Ok(None);
    };
    differ(Fields(items, count))?;
    Ok(Some(hash))
}

/// Iterator over the fields among fields, values and times; the second value is the number of fields.
#[derive(Clone)]
struct Fields<I>(I, usize);

impl<I: Iterator> Iterator for Fields<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let field = self.0.next()?;
        self.0.nth(1);
        self.1 -= 1;
        Some(field)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1, Some(self.1))
    }
}

impl<I: Iterator> ExactSizeIterator for Fields<I> {}

pub(super) fn hash_of(items: Items<'_>, limits: &Limits) -> Result<Hash, Flaw> {
    let pairs = pairs(items.clone())?;
    let longest = limits.hash.listpack_value;
    if pairs.len() <= limits.hash.listpack_entries && items.all_fit(longest) {
        differ(pairs.map(|(field, _)| field))?;
        return Ok(Hash::from_packed(items.packed()));
    }
    let mut builder = HashBuilder::new(reserved_in_memory(pairs.len() as u64), limits);
    for (field, value) in pairs {
        builder.add(&field.text(), &value.text())?;
    }
    Ok(builder.hash)
}

/// Groups items into pairs, of which there must be at least one.
fn pairs<'b, I: ExactSizeIterator<Item = Item<'b>> + Clone>(items: I) -> Result<Pairs<I>, Flaw> {
    match items.len() {
        0 => Err(Flaw::Empty),
        count if count % 2 != 0 => Err(ODD),
        _ => Ok(Pairs(items)),
    }
}

#[derive(Clone)]
struct Pairs<I>(I);

impl<'b, I: ExactSizeIterator<Item = Item<'b>>> Iterator for Pairs<I> {
    type Item = (Item<'b>, Item<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len() / 2, Some(self.0.len() / 2))
    }
}

impl<'b, I: ExactSizeIterator<Item = Item<'b>>> ExactSizeIterator for Pairs<I> {}
