//! The best below a fork, kept up as they change, so that a search that ends there has its results at once.
//!
//! A rank depends on the length of what is searched for, so that the best ten of one length aren't those of another. What is kept is enough for all
//! lengths that end at the fork or before it: a suggestion **dominates** another if it is ahead of it for all of these, and those are kept that
//! fewer than [`KEPT_FOR`] dominate. With one length more, the quotient of two ranks only grows or only falls, so that the first
//! and the last length decide. The lengths go as far as the path to the fork is ASCII, by which no text is shorter than what is searched for.
//!
//! Where too many suggestions would have to be kept, since their scores differ by less than a millionth, or where those take too many bytes, none
//! are: a search walks there.

use super::bucket::{Stored, TrieBucket};
use super::query::root;

/// Results for which what is kept is enough.
pub(super) const KEPT_FOR: usize = if cfg!(test) { 3 } else { 10 };
/// Suggestions that may be kept at a fork: mostly eleven to thirteen are.
const KEPT_MAX: usize = KEPT_FOR + 14;
/// Bytes that these may have: as much as some twenty titles.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 200 } else { 1024 };

/// By how much of the greater one a rank must exceed another to be ahead of it whatever the rounding of either.
const MARGIN: f64 = 1e-6;
/// Ranks nearer to 0 are rounded more.
const RANK_MIN: f64 = 1e-30;

/// How far the path to a place is ASCII, from the root on.
#[derive(Clone, Copy, Default)]
pub(super) struct AsciiPrefix {
    /// Bytes before the first one that isn't.
    ascii: usize,
    has_others: bool,
}

impl AsciiPrefix {
    /// That of the path that goes on with these bytes.
    pub fn and(mut self, bytes: &[u8]) -> AsciiPrefix {
        if !self.has_others {
            let ascii = bytes.iter().take_while(|byte| byte.is_ascii()).count();
            self.ascii += ascii;
            self.has_others = ascii < bytes.len();
        }
        self
    }
}

/// The ranks of a suggestion for the shortest query and for the longest.
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

/// Whether one suggestion comes before another for each length.
fn dominates((one, ranks): &(Stored<'_>, Ranks), (other, others): &(Stored<'_>, Ranks)) -> bool {
    ranks.are_ahead(*others, MARGIN) || (ranks.are_equal(*others) && one.rest < other.rest)
}

/// What is kept at a fork. See the module's documentation.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// What follows the fork's label of each text. Instead of a payload they have an empty one. Empty if nothing is kept.
    records: TrieBucket,
    /// Ranks that enough of them have for the shortest query, and for the longest.
    floors: Option<[f32; 2]>,
}

impl Kept {
    /// The suggestions, if they are enough.
    pub fn records(&self) -> Option<&TrieBucket> {
        Some(&self.records).filter(|records| !records.is_empty())
    }

    pub fn records_mut(&mut self) -> &mut TrieBucket {
        &mut self.records
    }

    pub fn allocated_bytes(&self) -> usize {
        self.records.allocated_bytes()
    }

    /// A text is new below the fork, or its score has risen, or it has a payload now.
    pub fn raise(&mut self, stored: &Stored<'_>, prefix: AsciiPrefix) {
        if self.records.is_empty() || self.is_far_behind(stored, prefix) {
            return;
        }
        self.records.remove(stored.rest);
        self.admit(stored, prefix);
        self.set_floors(prefix);
    }

    /// Whether something is kept of which this text is a part.
    pub fn has(&self, rest: &[u8]) -> bool {
        self.records.find(rest).is_some()
    }

    /// Keeps the best of all that `each` gives.
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

    /// A quick look: true if enough others dominate this one.
    fn is_far_behind(&self, stored: &Stored<'_>, prefix: AsciiPrefix) -> bool {
        /// What the rounding of the floors may make out comes on top.
        const FLOOR_MARGIN: f64 = 2.0 * MARGIN;
        self.floors.is_some_and(|[near, far]| {
            Ranks { near: near.into(), far: far.into() }.are_ahead(Ranks::of(stored, prefix), FLOOR_MARGIN)
        })
    }

    /// Adds a suggestion that isn't there, unless enough others dominate it, and leaves out those of which that is true now.
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
