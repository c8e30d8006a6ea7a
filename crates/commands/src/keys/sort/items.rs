//! Storage for copies of SORT's elements and of the values to sort by.

use store::byte_order::{common_prefix, order_word};
use store::types::packed::Item;

/// A sequence of items. Integers stay integers; the bytes of all others share one allocation.
#[derive(Default)]
pub struct Items {
    places: Vec<Place>,
    bytes: Vec<u8>,
}

/// Location of an item.
#[derive(Clone, Copy)]
enum Place {
    /// A missing item.
    None,
    Int(i64),
    /// The bytes between two offsets.
    Bytes(usize, usize),
}

impl Items {
    pub fn reserve(&mut self, count: usize) {
        self.places.reserve(count);
    }

    #[inline]
    pub fn push(&mut self, item: Item<'_>) {
        let place = match item {
            Item::Int(value) => Place::Int(value),
            Item::Str(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Place::Bytes(start, self.bytes.len())
            }
        };
        self.places.push(place);
    }

    pub fn push_or_none(&mut self, item: Option<Item<'_>>) {
        match item {
            Some(item) => self.push(item),
            None => self.places.push(Place::None),
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    fn at(&self, place: Place) -> Option<Item<'_>> {
        match place {
            Place::None => None,
            Place::Int(value) => Some(Item::Int(value)),
            Place::Bytes(start, end) => Some(Item::Str(&self.bytes[start..end])),
        }
    }

    /// The item at an index, if there is one.
    #[inline]
    pub fn get_or_none(&self, index: usize) -> Option<Item<'_>> {
        self.at(self.places[index])
    }

    /// The item at an index; an empty one in place of a missing item.
    #[inline]
    pub fn get(&self, index: usize) -> Item<'_> {
        self.get_or_none(index).unwrap_or(Item::Str(b""))
    }

    /// All items except missing ones.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        self.places.iter().filter_map(|&place| self.at(place))
    }

    /// Returns one word per item that preserves the order of the items' bytes; see [`order_word`]. A missing item
    /// yields 0.
    pub fn order_words(&self) -> impl Iterator<Item = u64> {
        let has_int = self.places.iter().any(|place| matches!(place, Place::Int(_)));
        let texts = self.places.iter().filter_map(|place| match *place {
            Place::Bytes(start, end) => Some(&self.bytes[start..end]),
            _ => None,
        });
        let common = if has_int { 0 } else { common_prefix(texts) };
        let word = move |item: Item<'_>| item.with_bytes(|bytes| order_word(&bytes[common..]));
        self.places.iter().map(move |&place| self.at(place).map_or(0, word))
    }
}
