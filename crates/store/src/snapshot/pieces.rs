//! Saving a large collection in pieces, while commands go on to change it.
//!
//! # Tables
//! The walk through a large hash, set or sorted set follows its table with a cursor of SCAN. Such a cursor is a place in
//! the order of the bit-reversed hashes: whatever the table's size is, elements before that place have been walked and
//! those after it have not ([`has_passed`]). So elements need no marks, and the table may grow and shrink.
//! What changes or removes an element that has not been walked gives its old form to the target first. The element's
//! name is noted, as is that of an element that is added there, and the walk passes over it. The notes take memory for
//! what is written to this one key while it is walked, and go with the walk.
//!
//! # Lists
//! Their order must be kept, so what is about to change is copied and put aside, a node at a time: see `list::walk`.
//!
//! # Suggestions
//! The walk goes through the texts in their order: see `suggestions::walk`.
//!
//! A walk belongs to the value: it goes with it when the key is renamed, moved, or removed.

use super::{BUCKET_BYTES, Budget, Step};
use crate::hash::{ItemHash, TableHash};
use crate::table::{Record, Table};
use crate::types::packed::Item;
use crate::types::thin::SetMember;

/// Elements that a collection may have to be saved whole, which takes some tens of microseconds. Fewer in tests, whose
/// collections are small.
pub(crate) const WHOLE_ELEMENTS_MAX: usize = if cfg!(test) { 6 } else { 1000 };
/// Bytes that an element is charged for besides its own: what else is read of it.
const ELEMENT_BYTES: usize = 32;

/// Takes the elements of one collection, as many as it had at the cut, each once; those of a list in their order, others
/// in none. Called with the shard's lock held, so it must not wait.
///
/// Elements of several collections may come in turn, and other entries of the shard between them. A collection may be
/// renamed into another shard meanwhile, which then goes on: what counts is that [`ElementSink::end`] comes before the
/// snapshot is complete. Dropped without that, the snapshot was cancelled.
pub trait ElementSink: Send {
    /// Saves an element.
    fn element(&mut self, element: Element<'_>);

    /// Whether the walk should pause. Writers don't ask.
    fn is_full(&self) -> bool;

    /// All elements have been saved.
    fn end(self: Box<Self>);
}

/// An element of a collection.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A member of a set.
    Member(&'a [u8]),
    /// A field of a hash, its value, and when it expires, in milliseconds of Unix time.
    Field(&'a [u8], &'a [u8], Option<u64>),
    /// A member of a sorted set, and its score.
    Scored(&'a [u8], f64),
    /// An element of a list.
    Item(Item<'a>),
    /// A suggestion's text, its score, and what was added to it.
    Suggestion(&'a [u8], f32, Option<&'a [u8]>),
}

impl<'a> Element<'a> {
    /// What tells it from the others of its collection; nothing does so in a list.
    fn name(&self) -> &'a [u8] {
        match *self {
            Element::Member(name)
            | Element::Field(name, ..)
            | Element::Scored(name, _)
            | Element::Suggestion(name, ..) => name,
            Element::Item(_) => b"",
        }
    }

    /// Bytes of memory that are read of it, about.
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

/// Where the elements of a collection go, and at what expense.
pub(crate) struct ElementTarget(Box<dyn ElementSink>);

impl ElementTarget {
    pub fn new(elements: Box<dyn ElementSink>) -> ElementTarget {
        ElementTarget(elements)
    }

    pub fn save(&mut self, element: Element<'_>, budget: &mut Budget) {
        budget.charge(element.bytes());
        self.0.element(element);
    }

    /// Why the walk must stop, if it must.
    pub fn stops(&self, budget: &Budget) -> Option<Step> {
        if self.0.is_full() { Some(Step::Full) } else { budget.is_used_up().then_some(Step::More) }
    }

    pub fn end(self) {
        self.0.end();
    }
}

/// The walk through the table of a large collection, while there is one.
pub(crate) type OnTable = Option<Box<TableWalk>>;

/// See the module's documentation.
pub(crate) struct TableWalk {
    target: ElementTarget,
    /// The cursor of the next step; 0 before the first.
    cursor: u64,
    /// Elements before which the walk is, and which are not to be saved when it comes to them: their old form has been,
    /// or they are new.
    settled: Table<SetMember>,
}

/// Whether a cursor has passed the place of this hash.
fn has_passed(cursor: u64, hash: ItemHash) -> bool {
    hash.bits().reverse_bits() < cursor.reverse_bits()
}

impl TableWalk {
    pub fn begin(elements: Box<dyn ElementSink>) -> Box<TableWalk> {
        Box::new(TableWalk { target: ElementTarget::new(elements), cursor: 0, settled: Table::new() })
    }

    /// An element with this name is about to be changed or removed, and is `old` as yet; or it is being added.
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

    /// Saves what the budget allows. Says why it has stopped before the end.
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
                // In a table that has become smaller, a step begins before the cursor.
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

/// Goes on with a walk, and ends it if nothing is left. Says why it has stopped before the end.
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
