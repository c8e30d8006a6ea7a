//! The best suggestions below a fork, updated with each change, so that a search that ends at the fork has its results
//! at once.
//!
//! A rank depends on the length of the query, so the best ten for one length differ from those for another. The kept
//! suggestions are enough for all lengths that end at the fork or before it. A suggestion **dominates** another if it
//! ranks higher for all these lengths; each suggestion is kept that is dominated by fewer than [`KEPT_FOR`] others.
//! With each additional character the quotient of two ranks changes monotonically, so the shortest and the longest
//! length decide. The lengths extend as far as the path to the fork is ASCII, because there no text is shorter than the
//! query.
//!
//! If too many suggestions would have to be kept, because their scores differ by less than a millionth, or if they
//! would take too many bytes, none are kept, and a search descends below the fork.

use super::bucket::{Stored, TrieBucket};
use super::query::root;

/// Number of results for which the kept suggestions are enough.
pub(super) const KEPT_FOR: usize = if cfg!(test) { 3 } else { 10 };
/// Maximum number of kept suggestions per fork; eleven to thirteen are usual.
const KEPT_MAX: usize = KEPT_FOR + 14;
/// Their maximum size in bytes: enough for some twenty titles.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 200 } else { 1024 };

/// Minimum relative difference by which a rank is higher than another regardless of rounding.
const MARGIN: f64 = 1e-6;
/// Ranks nearer to 0 have larger rounding errors.
const RANK_MIN: f64 = 1e-30;

/// The part of the path to a node, from the root on, that is ASCII.
#[derive(Clone, Copy, Default)]
pub(super) struct AsciiPrefix {
    /// Number of bytes before the first other byte.
    ascii: usize,
    has_others: bool,
}

impl AsciiPrefix {
    /// Extends the path by these bytes.
    pub fn and(mut self, bytes: &[u8]) -> AsciiPrefix {
        if !self.has_others {
            let ascii = bytes.iter().take_while(|byte| byte.is_ascii()).count();
            self.ascii += ascii;
            self.has_others = ascii < bytes.len();
        }
        self
    }
}

/// The ranks of a suggestion for the shortest and for the longest query.
#[derive(Clone, Copy)]
struct Ranks {
    near: f64,
    far: f64,
}

impl Ranks {
    fn of(stored: &Stored<'_>, prefix: AsciiPrefix) -> Ranks {
        let (score, characters) = (f64::from(stored.score), usize::from(stored.characters));
        Ranks { near: score / root(characters), far: score / root(characters.saturating_sub(prefix.ascii)) }
    }

    fn are_ahead(self, other: Ranks, margin: f64) -> bool {
        let is_ahead = |one: f64, other: f64| {
            let greater = one.abs().max(other.abs());
            one > other && greater >= RANK_MIN && one - other >= greater * margin
        };
        is_ahead(self.near, other.near) && is_ahead(self.far, other.far)
    }

    fn are_equal(self, other: Ranks) -> bool {
        self.near == other.near && self.far == other.far
    }
}

/// Returns true if one suggestion is before another for each length.
fn dominates((one, ranks): &(Stored<'_>, Ranks), (other, others): &(Stored<'_>, Ranks)) -> bool {
    ranks.are_ahead(*others, MARGIN) || (ranks.are_equal(*others) && one.rest < other.rest)
}

/// The suggestions that a fork keeps. See the module's documentation.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// The rest of each text behind the fork's label. An empty payload stands for any payload. Empty if nothing is
    /// kept.
    records: TrieBucket,
    /// Ranks that enough of them have, for the shortest and for the longest query.
    floors: Option<[f32; 2]>,
}

impl Kept {
    /// Returns the suggestions, if they are enough.
    pub fn records(&self) -> Option<&TrieBucket> {
        Some(&self.records).filter(|records| !records.is_empty())
    }

    pub fn records_mut(&mut self) -> &mut TrieBucket {
        &mut self.records
    }

    pub fn allocated_bytes(&self) -> usize {
        self.records.allocated_bytes()
    }

    /// Updates the kept suggestions after a text below the fork was added, or its score was raised, or it got a
    /// payload.
    pub fn raise(&mut self, stored: &Stored<'_>, prefix: AsciiPrefix) {
        if self.records.is_empty() || self.is_far_behind(stored, prefix) {
            return;
        }
        self.records.remove(stored.rest);
        self.admit(stored, prefix);
        self.set_floors(prefix);
    }

    /// Returns true if this text is among the kept suggestions.
    pub fn has(&self, rest: &[u8]) -> bool {
        self.records.find(rest).is_some()
    }

    /// Keeps the best of all suggestions that `each` passes on.
    pub fn make(&mut self, prefix: AsciiPrefix, each: impl FnOnce(&mut dyn FnMut(&Stored<'_>))) {
        *self = Kept::default();
        let mut is_enough = true;
        each(&mut |stored| {
            if is_enough && !self.is_far_behind(stored, prefix) {
                self.admit(stored, prefix);
                is_enough = !self.records.is_empty();
                self.set_floors(prefix);
            }
        });
    }

    /// A quick check: true if enough others dominate this one.
    fn is_far_behind(&self, stored: &Stored<'_>, prefix: AsciiPrefix) -> bool {
        /// Includes the rounding of the floors.
        const FLOOR_MARGIN: f64 = 2.0 * MARGIN;
        self.floors.is_some_and(|[near, far]| {
            Ranks { near: near.into(), far: far.into() }.are_ahead(Ranks::of(stored, prefix), FLOOR_MARGIN)
        })
    }

    /// Adds a suggestion that is not kept, unless enough others dominate it, and removes those that are now dominated
    /// by enough others.
    fn admit(&mut self, stored: &Stored<'_>, prefix: AsciiPrefix) {
        let new = (Stored { payload: stored.payload.map(|_| &b""[..]), ..*stored }, Ranks::of(stored, prefix));
        let mut kept = [(new.0, new.1); KEPT_MAX];
        let mut count = 0;
        for (to, stored) in kept.iter_mut().zip(self.records.records()) {
            *to = (stored, Ranks::of(&stored, prefix));
            count += 1;
        }
        let kept = &kept[..count];
        if kept.iter().filter(|one| dominates(one, &new)).count() >= KEPT_FOR {
            return;
        }
        let is_left = |one: &&(Stored<'_>, Ranks)| {
            let others = kept.iter().filter(|other| dominates(other, one)).count();
            dominates(&new, one) && others + 1 >= KEPT_FOR
        };
        let left: Vec<Box<[u8]>> = kept.iter().filter(is_left).map(|(stored, _)| stored.rest.into()).collect();
        for rest in left {
            self.records.remove(&rest);
        }
        self.records.insert(&new.0);
        if self.records.len() > KEPT_MAX || self.records.stored_bytes() > KEPT_BYTES_MAX {
            *self = Kept::default();
        }
    }

    fn set_floors(&mut self, prefix: AsciiPrefix) {
        let mut ranks = self.records.records().take(KEPT_FOR).map(|stored| Ranks::of(&stored, prefix));
        let Some(first) = ranks.next() else { return self.floors = None };
        let lower = |one: Ranks, other: Ranks| Ranks { near: one.near.min(other.near), far: one.far.min(other.far) };
        let Ranks { near, far } = ranks.fold(first, lower);
        self.floors = (self.records.len() >= KEPT_FOR).then_some([near as f32, far as f32]);
    }
}
