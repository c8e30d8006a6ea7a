//! Saving a large collection in pieces while commands continue to change it.
//!
//! # Tables
//! The walk through a large hash, set or sorted set follows its table with a cursor of SCAN. This cursor is a position
//! in the order of the bit-reversed hashes: at any table size, elements before the position have been walked and later
//! ones have not ([`has_passed`]). Therefore elements need no marks, and the table may grow and shrink. Before an
//! element that has not been walked is changed or removed, its old form goes to the target, and its name is noted. The
//! name of an element that is added beyond the cursor is noted, too. The walk skips noted names. The notes take memory
//! for writes to this one key during its walk, and are freed with the walk.
//!
//! # Lists
//! Lists must keep their order, so a change first copies the affected node and puts the copy aside: see `list::walk`.
//!
//! # Suggestions
//! The walk visits the texts in their order: see `suggestions::walk`.
//!
//! A walk belongs to the value, and stays with it when the key is renamed, moved or removed.

use super::{BUCKET_BYTES, Budget, Step};
use crate::hash::{ItemHash, TableHash};
use crate::table::{Record, Table};
use crate::types::packed::Item;
use crate::types::packed_record::SetMember;

/// Maximum number of elements of a collection that is saved whole, which takes some tens of microseconds. Collections
/// in tests are small, so the limit is lower there.
pub(crate) const WHOLE_ELEMENTS_MAX: usize = if cfg!(test) { 6 } else { 1000 };
/// Bytes charged for an element in addition to its own: the other memory that is read for it.
const ELEMENT_BYTES: usize = 32;

/// Receives the elements that one collection had at the cut, each once; those of a list in order, others in no
/// particular order. Called under the shard's lock, so it must not wait.
///
/// Elements of several collections may alternate, with other entries of the shard between them. Meanwhile a collection
/// may be renamed into another shard, which then continues. [`ElementSink::end`] is called before the snapshot is
/// complete. A drop without that call means that the snapshot was cancelled.
pub trait ElementSink: Send {
    /// Saves an element.
    fn element(&mut self, element: Element<'_>);

    /// Returns true if the walk should pause. Writers ignore it.
    fn is_full(&self) -> bool;

    /// Called when all elements have been saved.
    fn end(self: Box<Self>);
}

/// An element of a collection.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A member of a set.
    Member(&'a [u8]),
    /// A field of a hash, its value, and its expiry in milliseconds of Unix time.
    Field(&'a [u8], &'a [u8], Option<u64>),
    /// A member of a sorted set, and its score.
    Scored(&'a [u8], f64),
    /// An element of a list.
    Item(Item<'a>),
    /// A suggestion's text, its score and its payload.
    Suggestion(&'a [u8], f32, Option<&'a [u8]>),
}

impl<'a> Element<'a> {
    /// Returns the name, which is unique in the collection; empty for elements of a list.
    fn name(&self) -> &'a [u8] {
        match *self {
            Element::Member(name)
            | Element::Field(name, ..)
            | Element::Scored(name, _)
            | Element::Suggestion(name, ..) => name,
            Element::Item(_) => b"",
        }
    }

    /// Estimates the bytes of memory that are read for it.
    fn bytes(&self) -> usize {
        let own = match *self {
            Element::Member(name) | Element::Scored(name, _) => name.len(),
            Element::Field(name, value, _) => name.len() + value.len(),
            Element::Item(item) => item.text_len(),
            Element::Suggestion(text, _, payload) => text.len() + payload.map_or(0, <[u8]>::len),
        };
        own + ELEMENT_BYTES
    }
}

/// The target of a collection's elements, with their cost.
pub(crate) struct ElementTarget(Box<dyn ElementSink>);

impl ElementTarget {
    pub fn new(elements: Box<dyn ElementSink>) -> ElementTarget {
        ElementTarget(elements)
    }

    pub fn save(&mut self, element: Element<'_>, budget: &mut Budget) {
        budget.charge(element.bytes());
        self.0.element(element);
    }

    /// Returns the reason if the walk must stop.
    pub fn stops(&self, budget: &Budget) -> Option<Step> {
        if self.0.is_full() { Some(Step::Full) } else { budget.is_used_up().then_some(Step::More) }
    }

    pub fn end(self) {
        self.0.end();
    }
}

/// The walk through the table of a large collection, if there is one.
pub(crate) type OnTable = Option<Box<TableWalk>>;

/// See the module's documentation.
pub(crate) struct TableWalk {
    target: ElementTarget,
    /// The cursor of the next step; 0 before the first.
    cursor: u64,
    /// Elements beyond the cursor that the walk must skip: either their old form has been saved, or they are new.
    settled: Table<SetMember>,
}

/// Returns true if a cursor has passed the position of this hash.
fn has_passed(cursor: u64, hash: ItemHash) -> bool {
    hash.bits().reverse_bits() < cursor.reverse_bits()
}

impl TableWalk {
    pub fn begin(elements: Box<dyn ElementSink>) -> Box<TableWalk> {
        Box::new(TableWalk { target: ElementTarget::new(elements), cursor: 0, settled: Table::new() })
    }

    /// Call when the element `name` is changed or removed, with its old form, or when it is added, with None.
    #[cold]
    pub fn settle(&mut self, hash: ItemHash, name: &[u8], old: Option<Element<'_>>) {
        if has_passed(self.cursor, hash) || self.settled.find(hash, name).is_some() {
            return;
        }
        self.settled.insert(hash, SetMember::new(name));
        if let Some(old) = old {
            self.target.save(old, &mut Budget::unlimited());
        }
    }

    /// Saves elements until the budget is used up. Returns the reason if it stopped before the end.
    fn step<R: Record<Hash = ItemHash>>(
        &mut self,
        table: &Table<R>,
        budget: &mut Budget,
        element: impl Fn(&R) -> Element<'_>,
    ) -> Option<Step> {
        let TableWalk { target, cursor, settled } = self;
        loop {
            let stopped = target.stops(budget);
            if stopped.is_some() {
                return stopped;
            }
            budget.charge(BUCKET_BYTES);
            let from = *cursor;
            *cursor = table.scan(from, |record| {
                let element = element(record);
                let hash = ItemHash::of(element.name());
                // In a table that has shrunk, a step begins before the cursor.
                if !has_passed(from, hash) && settled.find(hash, element.name()).is_none() {
                    target.save(element, budget);
                }
            });
            if *cursor == 0 {
                return None;
            }
        }
    }
}

/// Continues a walk, and ends it after the last element. Returns the reason if it stopped before the end.
pub(crate) fn step_on_table<R: Record<Hash = ItemHash>>(
    walk: &mut OnTable,
    table: &Table<R>,
    budget: &mut Budget,
    element: impl Fn(&R) -> Element<'_>,
) -> Option<Step> {
    let stopped = walk.as_mut()?.step(table, budget, element);
    if stopped.is_none()
        && let Some(walk) = walk.take()
    {
        walk.target.end();
    }
    stopped
}
