//! The small form: fields, values and times in sequence, in one packed block, in order of times. Fields without an
//! expiry have the time 0 and are at the end.
//!
//! The order is Redis's (`listpackex`), so that a snapshot in its format contains the block unchanged: a field that
//! gets an expiry goes before others with the same time, and a field that loses it goes to the end.

use super::super::packed::{self, Item, ItemText, Packed, Pos};
use super::super::set::below;
use super::{EXPIRY_MS_MAX, ExpiryChange, after, is_due, kept};
use crate::compact::Mover;
use crate::expiry::Ttl;

/// Items of the block per field.
const STRIDE: usize = 3;
/// The time of a field without an expiry.
const NEVER: i64 = 0;
/// The maximum time.
const TIME_MAX: i64 = EXPIRY_MS_MAX as i64;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedTimedFields(Packed);

/// The positions of a field in the block.
#[derive(Clone, Copy)]
struct FieldPositions {
    field: Pos,
    value: Pos,
    time: Pos,
    end: Pos,
}

fn item_of(expiry: Option<u64>) -> Item<'static> {
    Item::Int(expiry.map_or(NEVER, u64::cast_signed))
}

fn expiry_of(time: Item<'_>) -> Option<u64> {
    match time {
        Item::Int(at) if at > NEVER => Some(at.cast_unsigned()),
        _ => None,
    }
}

/// Returns true if a field with this expiry goes before one with the time `other`.
fn goes_before(expiry: u64, other: Option<u64>) -> bool {
    other.is_none_or(|other| other >= expiry)
}

impl PackedTimedFields {
    /// Returns a block of these fields and values, without expiries.
    pub fn of_pairs(pairs: &Packed) -> PackedTimedFields {
        let mut items = Packed::new();
        let never = [Item::Int(NEVER)];
        // Collects the items first, because `extend` iterates twice.
        let all: Vec<Item<'_>> = pairs.iter().collect();
        items.extend(all.chunks(2).flat_map(|pair| pair.iter().chain(&never).copied()));
        PackedTimedFields(items)
    }

    /// Returns a block of these items, if they are valid.
    pub fn of_items(items: Packed) -> Option<PackedTimedFields> {
        let times = items.iter().skip(2).step_by(STRIDE);
        let is_time = |time: &Item<'_>| matches!(time, Item::Int(NEVER..=TIME_MAX));
        let rank = |time: Item<'_>| expiry_of(time).unwrap_or(u64::MAX);
        let fits = items.len().is_multiple_of(STRIDE) && times.clone().all(|time| is_time(&time));
        (fits && times.is_sorted_by_key(rank)).then_some(PackedTimedFields(items))
    }

    /// Returns the items.
    pub fn items(&self) -> &Packed {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len() / STRIDE
    }

    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.0.has_room_for(bytes)
    }

    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        self.0.compact(mover);
    }

    /// Iterates over fields, values and times.
    pub fn iter(&self) -> Triples<'_> {
        Triples(self.0.iter())
    }

    pub fn timed_count(&self) -> usize {
        self.iter().take_while(|(_, _, expiry)| expiry.is_some()).count()
    }

    /// Number of due fields, which are the first ones.
    pub fn due_count(&self, now_ms: u64) -> usize {
        self.iter().take_while(|(_, _, expiry)| is_due(*expiry, now_ms)).count()
    }

    #[inline]
    pub fn next_expiry(&self) -> Option<u64> {
        self.iter().next().and_then(|(_, _, expiry)| expiry)
    }

    #[inline]
    fn positions(&self, field: Pos) -> Option<FieldPositions> {
        let (_, value) = self.0.read(field)?;
        let (_, time) = self.0.read(value)?;
        let (_, end) = self.0.read(time)?;
        Some(FieldPositions { field, value, time, end })
    }

    #[inline]
    fn positions_of(&self, field: &[u8]) -> Option<FieldPositions> {
        self.0.find(field, STRIDE).and_then(|pos| self.positions(pos))
    }

    #[inline]
    pub fn find(&self, field: &[u8]) -> Option<(Item<'_>, Option<u64>)> {
        let positions = self.positions_of(field)?;
        Some((self.0.item_at(positions.value), expiry_of(self.0.item_at(positions.time))))
    }

    /// Sets a field to a value; returns false if the field existed.
    pub fn set(&mut self, field: &[u8], value: &[u8], ttl: Ttl) -> bool {
        let Some(positions) = self.positions_of(field) else {
            let expiry = after(ttl, None);
            let at = expiry.map_or(self.0.end_pos(), |at| self.pos_for(at, Pos::default(), None));
            self.0.insert_all_at(at, [field.into(), value.into(), item_of(expiry)]);
            return true;
        };
        self.0.replace_at(positions.value, value);
        if let Some(positions) = self.positions(positions.field) {
            let before = expiry_of(self.0.item_at(positions.time));
            self.set_time(positions, before, after(ttl, before), ttl != Ttl::Keep);
        }
        false
    }

    pub fn set_expiry(&mut self, field: &[u8], expiry: Option<u64>) {
        if let Some(positions) = self.positions_of(field) {
            let before = expiry_of(self.0.item_at(positions.time));
            self.set_time(positions, before, expiry, true);
        }
    }

    /// See [`super::TimedHash::change_expiry`].
    pub fn change_expiry(
        &mut self,
        field: &[u8],
        now_ms: u64,
        decide: impl FnOnce(Item<'_>, Option<u64>) -> ExpiryChange,
    ) -> bool {
        let Some(positions) = self.positions_of(field) else { return false };
        let before = expiry_of(self.0.item_at(positions.time));
        if is_due(before, now_ms) {
            return false;
        }
        match decide(self.0.item_at(positions.value), before) {
            ExpiryChange::Keep => {}
            ExpiryChange::Set(at_ms) => self.set_time(positions, before, Some(kept(at_ms)), true),
            ExpiryChange::Remove => self.0.remove_at(positions.field, STRIDE),
        }
        true
    }

    /// Returns the position for a field with this expiry among the fields from `start` on, without its `own` present position.
    fn pos_for(&self, expiry: u64, start: Pos, own: Option<Pos>) -> Pos {
        let (items, mut at) = (self.0.items(), start.at());
        while at < items.len() {
            let value_at = at + packed::size(&items[at..]);
            let time_at = value_at + packed::size(&items[value_at..]);
            let (time, time_bytes) = packed::decode(&items[time_at..]);
            if own != Some(Pos::new(at)) && goes_before(expiry, expiry_of(time)) {
                return Pos::new(at);
            }
            at = time_at + time_bytes;
        }
        self.0.end_pos()
    }

    /// Sets a field's time and moves the field to its new place. With `moves` false, which means that the time is
    /// merely kept, it does nothing.
    fn set_time(&mut self, positions: FieldPositions, before: Option<u64>, expiry: Option<u64>, moves: bool) {
        if !moves || before.is_none() && expiry.is_none() {
            return;
        }
        if before != expiry {
            self.0.replace_at(positions.time, item_of(expiry));
        }
        let Some(positions) = self.positions(positions.field) else { return };
        let to = match expiry {
            None => self.0.end_pos(),
            // The fields before it have the same time or an earlier one.
            Some(at) if before.is_some_and(|before| before < at) => self.pos_for(at, positions.end, None),
            Some(at) => self.pos_for(at, Pos::default(), Some(positions.field)),
        };
        self.0.move_items(positions.field, positions.end, to);
    }

    pub fn remove(&mut self, field: &[u8]) -> bool {
        let found = self.0.find(field, STRIDE);
        found.inspect(|&pos| self.0.remove_at(pos, STRIDE)).is_some()
    }

    /// See [`super::TimedHash::take_due`].
    pub fn take_due(&mut self, now_ms: u64, limit: usize, mut visit: impl FnMut(&[u8])) -> usize {
        let due = self.due_count(now_ms).min(limit);
        self.iter().take(due).for_each(|(field, ..)| field.with_bytes(&mut visit));
        self.0.remove_at(Pos::default(), due * STRIDE);
        due
    }

    /// Picks one of the fields that are not due; `due` fields precede them.
    pub fn pick(&self, due: usize, random: &mut dyn FnMut() -> u64) -> Option<(ItemText<'_>, ItemText<'_>)> {
        let living = self.len().checked_sub(due).filter(|living| *living > 0)?;
        let positions = self.positions(self.0.pos_of((due + below(living, random)) * STRIDE)?)?;
        Some((self.0.item_at(positions.field).text(), self.0.item_at(positions.value).text()))
    }
}

/// See [`PackedTimedFields::iter`].
pub(super) struct Triples<'a>(packed::Iter<'a>);

impl<'a> Iterator for Triples<'a> {
    type Item = (Item<'a>, Item<'a>, Option<u64>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?, expiry_of(self.0.next()?)))
    }
}
