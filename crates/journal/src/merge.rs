//! The merge: the units of all lanes in the order of their positions.

use crate::lane::Reader;
use crate::order::Position;
use crate::record::{self, Entry};

/// A unit as the journal's reader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'m> {
    /// Its place in the order.
    pub position: Position,
    record: &'m [u8],
}

impl<'m> Unit<'m> {
    /// Returns the commands that reproduce it, in order. A reader must apply all of them at once.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'m>> + Clone {
        record::entries(self.record)
    }
}

/// The reading end of all lanes.
pub struct Merge {
    lanes: Vec<Reader>,
    /// The position of the next unit.
    next: Position,
    /// The lane of the last unit, tried first, because a batch commits many units in a row.
    at: usize,
}

impl Merge {
    /// Reads these lanes, beginning with the unit after `last`.
    #[must_use]
    pub fn new(lanes: Vec<Reader>, last: Position) -> Merge {
        Merge { lanes, next: last + 1, at: 0 }
    }

    /// Returns the position of the last unit that was taken, or of the last one before the reading began.
    #[must_use]
    pub fn position(&self) -> Position {
        self.next - 1
    }

    /// Returns true if the next unit has arrived.
    pub fn has_unit(&mut self) -> bool {
        let next = self.next;
        self.lanes.iter_mut().any(|lane| lane.head() == Some(next))
    }

    /// Returns the next unit. None means that it has not arrived; a worker may be committing it right now.
    pub fn next_unit(&mut self) -> Option<Unit<'_>> {
        self.next_unit_up_to(|| Position::MAX)
    }

    /// Returns the next unit, unless its position is greater than the result of `last`. `last` is called only after a
    /// unit is found, so that it sees every limit that was set before the unit's commit.
    pub fn next_unit_up_to(&mut self, last: impl FnOnce() -> Position) -> Option<Unit<'_>> {
        let (next, count) = (self.next, self.lanes.len());
        let found = (0..count).map(|i| (self.at + i) % count).find(|&lane| self.lanes[lane].head() == Some(next))?;
        if next > last() {
            return None;
        }
        self.at = found;
        self.next += 1;
        Some(Unit { position: next, record: self.lanes[found].take() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::lane::{Audience, lane};
    use crate::order::Order;

    #[test]
    fn units_of_several_threads_are_read_in_the_order_of_their_positions() {
        const UNITS: u64 = if cfg!(miri) { 100 } else { 50_000 };
        let (order, done) = (Order::new(3), AtomicBool::new(false));
        let (writers, lanes): (Vec<_>, Vec<_>) = (0..3).map(|_| lane()).unzip();
        let readers = lanes.iter().filter_map(|lane| lane.join(Audience::File)).collect();
        let mut merge = Merge::new(readers, 0);
        std::thread::scope(|scope| {
            for mut writer in writers {
                let order = &order;
                scope.spawn(move || {
                    for _ in 0..UNITS {
                        let position = order.next();
                        writer.append(position, &position.to_le_bytes());
                    }
                });
            }
            let mut expected = 1;
            while expected <= 3 * UNITS {
                match merge.next_unit() {
                    None => std::thread::yield_now(),
                    Some(unit) => {
                        assert_eq!((unit.position, unit.record), (expected, &expected.to_le_bytes()[..]));
                        expected += 1;
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(merge.next_unit().is_none() && done.into_inner());
    }
}
