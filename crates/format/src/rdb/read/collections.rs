//! Lists, sets, sorted sets and hashes, from elements that arrive one by one and from blocks of them.

use std::io::Read;

use resp::num::parse_f64;
use store::expiry::Ttl;
use store::hash::{ItemHash, hash as hash_of_bytes};
use store::prefetch::Ahead;
use store::types::hash::Hash;
use store::types::intset::IntSet;
use store::types::list::{End, List};
use store::types::packed::{ITEM_BYTES_MAX, Item, Packed};
use store::types::set::Set;
use store::types::timed_hash::TimedHash;
use store::types::zset::{ZSet, ZSetBuilder};
use store::value::Value;

use super::error::{Error, Flaw};
use super::source::Source;
use crate::rdb::{NODE_PACKED, NODE_PLAIN, RESERVED_MAX};
use crate::{Limits, listpack, ziplist};

const TOO_LONG: Flaw = Flaw::Damaged("an element of over 4 GB");
const TWICE: Flaw = Flaw::Damaged("a collection that has an element twice");
const ODD: Flaw = Flaw::Damaged("a block without pairs");
const NO_SCORE: Flaw = Flaw::Damaged("a score");
/// Up to so many elements are compared with each other to see whether they differ; with more, their hashes are sorted.
const COMPARED_MAX: usize = 12;

/// What replaces the length of a score's text where it is no finite number.
const SCORE_NAN: u8 = 253;
const SCORE_INFINITE: u8 = 254;
const SCORE_NEGATIVE_INFINITE: u8 = 255;

/// How many elements follow: at least one.
fn count<R: Read>(source: &mut Source<R>) -> Result<u64, Error> {
    match source.length()? {
        0 => Err(source.flaw(Flaw::Empty)),
        count => Ok(count),
    }
}

/// The number of elements by which a collection chooses its form and makes room: a claim, and trusted only so far as the source's length
/// bears it out. A form that turns out to be too small is left as elements come.
fn reserved<R: Read>(count: u64, source: &Source<R>) -> usize {
    source.credible(count).max(reserved_in_memory(count))
}

/// The same for elements that are in memory already, in few bytes.
fn reserved_in_memory(count: u64) -> usize {
    usize::try_from(count).map_or(RESERVED_MAX, |count| count.min(RESERVED_MAX))
}

fn checked(element: &[u8]) -> Result<&[u8], Flaw> {
    if element.len() <= ITEM_BYTES_MAX { Ok(element) } else { Err(TOO_LONG) }
}

/// Elements that are read before the first of them is added, so that the waits for memory of all of them overlap.
const AT_ONCE: usize = 32;

/// Elements that have been read and are yet to be added.
#[derive(Default)]
struct ElementGroup {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, and where it began in the source.
    ends: Vec<(usize, u64)>,
}

impl ElementGroup {
    /// Reads an element.
    fn read<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Error> {
        source.string()?.write_to(&mut self.bytes);
        self.ends.push((self.bytes.len(), source.mark()));
        Ok(())
    }

    /// The elements, and where each began in the source.
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

/// Reads an element, and adds it.
fn push<R: Read>(source: &mut Source<R>, list: &mut List, limits: &Limits) -> Result<(), Error> {
    let text = source.string()?.text();
    let flaw = checked(&text).map(|element| list.push(End::Right, element, limits.list));
    flaw.map_err(|flaw| source.flaw(flaw))
}

/// A list of blocks. Old ones are ziplists, new ones listpacks or single elements.
pub(super) fn quicklist<R: Read>(source: &mut Source<R>, is_old: bool, limits: &Limits) -> Result<List, Error> {
    let mut list = List::new();
    for _ in 0..count(source)? {
        match if is_old { NODE_PACKED } else { source.length()? } {
            NODE_PLAIN => push(source, &mut list, limits)?,
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
pub(super) fn append<'b>(list: &mut List, items: impl Iterator<Item = Item<'b>>, limits: &Limits) -> Result<(), Flaw> {
    for item in items {
        list.push(End::Right, checked(&item.text())?, limits.list);
    }
    Ok(())
}

// --- sets -------------------------------------------------------------------------------------------------------------

pub(super) fn set<R: Read>(source: &mut Source<R>, limits: &Limits) -> Result<Set, Error> {
    let count = count(source)?;
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
            match checked(member).map(|member| set.insert(member, &limits.set)) {
                Ok(true) => {}
                Ok(false) => return Err(Error { offset, flaw: TWICE }),
                Err(flaw) => return Err(Error { offset, flaw }),
            }
        }
    }
    Ok(set)
}

pub(super) fn set_of_ints(ints: impl ExactSizeIterator<Item = i64>, limits: &Limits) -> Result<Value, Flaw> {
    if ints.len() == 0 {
        return Err(Flaw::Empty);
    }
    if ints.len() <= limits.set.ints_max() {
        return Ok(Value::Set(Set::from_ints(ints.collect::<IntSet>())));
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

pub(super) fn set_of<'b>(
    members: impl ExactSizeIterator<Item = Item<'b>> + Clone,
    limits: &Limits,
) -> Result<Set, Flaw> {
    let (count, longest) = (members.len(), limits.set.listpack_value);
    if count == 0 {
        return Err(Flaw::Empty);
    }
    if count <= limits.set.listpack_entries && members.clone().all(|member| member.text_len() <= longest) {
        differ(members.clone())?;
        let mut packed = Packed::new();
        packed.extend(members);
        return Ok(Set::from_packed(packed));
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

/// Says whether all of these differ from each other.
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
    let mut hashes: Vec<u64> = items.clone().map(|item| item.with_bytes(hash_of_bytes)).collect();
    hashes.sort_unstable();
    // Two that are alike have the same hash; two that have the same hash are as good as never unlike, and then are compared.
    let alike = hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    for hash in alike {
        let mut suspects: Vec<_> = items.clone().filter(|item| item.with_bytes(hash_of_bytes) == hash).collect();
        while let Some(suspect) = suspects.pop() {
            if suspects.contains(&suspect) {
                return Err(TWICE);
            }
        }
    }
    Ok(())
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

/// A score as versions before 8 wrote it.
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

pub(super) fn zset_of<'b>(
    items: impl ExactSizeIterator<Item = Item<'b>> + Clone,
    limits: &Limits,
) -> Result<ZSet, Flaw> {
    let pairs = pairs(items)?;
    let mut builder = ZSetBuilder::with_capacity(reserved_in_memory(pairs.len() as u64));
    for (member, score) in pairs {
        let score = match score {
            Item::Int(score) => score as f64,
            Item::Str(text) => parse_f64(text).ok_or(NO_SCORE)?,
        };
        member.with_bytes(|member| add(&mut builder, ItemHash::of(member), member, score))?;
    }
    Ok(builder.finish(limits.zset))
}

// --- hashes -----------------------------------------------------------------------------------------------------------

/// A hash on its way.
struct HashBuilder<'l> {
    hash: Hash,
    limits: &'l Limits,
}

impl<'l> HashBuilder<'l> {
    /// One of about so many fields.
    fn new(count: usize, limits: &'l Limits) -> Self {
        let mut hash = Hash::new();
        hash.prepare(count, 0, &limits.hash);
        HashBuilder { hash, limits }
    }

    fn add(&mut self, field: &[u8], value: &[u8]) -> Result<(), Flaw> {
        let (field, value) = (checked(field)?, checked(value)?);
        if self.hash.insert(field, value, &self.limits.hash) { Ok(()) } else { Err(TWICE) }
    }

    /// Reads a field and its value, and adds them.
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

/// A hash on its way, whose fields may expire.
struct TimedHashBuilder<'l> {
    /// As long as none does.
    plain: HashBuilder<'l>,
    timed: Option<TimedHash>,
}

impl<'l> TimedHashBuilder<'l> {
    /// One of about so many fields.
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

/// The expiry that a number stands for: none if it is `never`; what is before 1970 is long ago.
fn expiry_or(never: i64, at: i64) -> Option<u64> {
    (at != never).then(|| u64::try_from(at).unwrap_or(0))
}

/// Valkey's hash whose fields may expire: after each value a time in milliseconds, -1 for never.
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

/// Redis's hash whose fields may expire: a time at first, and before each field 0 for never, or by how much it expires later, and 1.
/// Before the release, it was the time itself.
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

/// The same in a listpack, as fields, values and times in turn.
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

/// A hash of these items as they are, if they have times, are in order and few enough.
fn small_timed_hash<'b>(
    items: impl ExactSizeIterator<Item = Item<'b>> + Clone,
    limits: &Limits,
) -> Result<Option<TimedHash>, Flaw> {
    let (count, longest) = (items.len() / 3, limits.hash.listpack_value);
    if count > limits.hash.listpack_entries || items.clone().any(|item| item.text_len() > longest) {
        return Ok(None);
    }
    let mut packed = Packed::new();
    packed.extend(items.clone());
    let Some(hash) = TimedHash::from_packed(packed).filter(|hash| hash.timed_count() > 0) else { return Ok(None) };
    differ(Fields(items, count))?;
    Ok(Some(hash))
}

/// The fields among fields, values and times, of which there are so many.
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

pub(super) fn hash_of<'b>(
    items: impl ExactSizeIterator<Item = Item<'b>> + Clone,
    limits: &Limits,
) -> Result<Hash, Flaw> {
    let pairs = pairs(items.clone())?;
    let longest = limits.hash.listpack_value;
    if pairs.len() <= limits.hash.listpack_entries && items.clone().all(|item| item.text_len() <= longest) {
        differ(pairs.map(|(field, _)| field))?;
        let mut packed = Packed::new();
        packed.extend(items);
        return Ok(Hash::from_packed(packed));
    }
    let mut builder = HashBuilder::new(reserved_in_memory(pairs.len() as u64), limits);
    for (field, value) in pairs {
        builder.add(&field.text(), &value.text())?;
    }
    Ok(builder.hash)
}

/// Items two by two: at least one pair.
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
