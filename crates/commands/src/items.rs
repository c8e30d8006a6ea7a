//! Prefetching for commands that name many members or fields of one collection.

use resp::request::Args;
use store::prefetch::Ahead;

/// Limit for prefetching items with the batch. A command with more members or fields prefetches them while it runs.
pub const ITEMS_IN_BATCH: usize = 16;

/// Number of items that are prefetched together. Each takes two cache lines, which must stay in the first-level cache
/// until they are used.
const WINDOW: usize = 32;

/// Prefetches the items of a command that has many of them, one window ahead of their lookups. The items are every
/// `STEP`th argument from a starting position on.
pub(crate) struct ItemsAhead<const STEP: usize> {
    /// The first argument that was not prefetched.
    next: usize,
    /// Items of the window that have not been looked up.
    left: usize,
}

impl<const STEP: usize> ItemsAhead<STEP> {
    /// Creates the state for a command with `args` arguments, the first item being at `first`.
    #[inline]
    pub fn new(args: usize, first: usize) -> Self {
        let is_wide = args > first + ITEMS_IN_BATCH * STEP;
        Self { next: first, left: if is_wide { 0 } else { usize::MAX } }
    }

    /// Prefetches the next window when it is due; call this before each lookup. `ask` passes a request to the
    /// collection and returns true if the collection has a hash table.
    #[inline]
    pub fn before_next<'a>(&mut self, args: &Args<'a>, ask: impl Fn(Ahead<'a>) -> bool) {
        if self.left == 0 {
            self.enter(args, ask);
        }
        self.left -= 1;
    }

    /// Prefetches a window: all buckets first, then the records, since a bucket holds its record's address.
    #[cold]
    fn enter<'a>(&mut self, args: &Args<'a>, ask: impl Fn(Ahead<'a>) -> bool) {
        let window = (self.next..args.len()).step_by(STEP).take(WINDOW);
        let has_table = window.clone().fold(false, |_, at| ask(Ahead::Bucket(args.get(at))));
        if has_table {
            window.for_each(|at| _ = ask(Ahead::Record(args.get(at))));
        }
        self.next += WINDOW * STEP;
        self.left = WINDOW;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use resp::request::OwnedArgs;

    use super::*;

    /// Lists the prefetch requests before each item of a command: "b3" and "r3" are the third item's bucket and record.
    fn asked<const STEP: usize>(items: usize, has_table: bool) -> Vec<Vec<String>> {
        let words: Vec<String> = (0..2 + items * STEP).map(|n| n.to_string()).collect();
        let owned = OwnedArgs::new(words.iter().map(String::as_bytes));
        let mut ahead = ItemsAhead::<STEP>::new(owned.args().len(), 2);
        let all = (0..items).map(|_| {
            let asked: RefCell<Vec<String>> = RefCell::default();
            ahead.before_next(&owned.args(), |what| {
                let (kind, item) = match what {
                    Ahead::Bucket(item) => ("b", item),
                    Ahead::Record(item) => ("r", item),
                    Ahead::Value => ("v", &b""[..]),
                };
                asked.borrow_mut().push(format!("{kind}{}", String::from_utf8_lossy(item)));
                has_table
            });
            asked.into_inner()
        });
        all.collect()
    }

    #[test]
    fn every_item_of_a_wide_command_is_prefetched_once_before_its_lookup() {
        for (items, step) in [(17, 1), (32, 1), (33, 2), (100, 1), (100, 2)] {
            let all = if step == 1 { asked::<1>(items, true) } else { asked::<2>(items, true) };
            let mut seen = Vec::new();
            for (item, asked) in all.iter().enumerate() {
                seen.extend(asked.iter().cloned());
                let at = 2 + item * step;
                assert!(seen.contains(&format!("b{at}")) && seen.contains(&format!("r{at}")), "{items} {step} {item}");
            }
            assert_eq!(seen.len(), 2 * items, "{items} {step}");
        }
    }

    #[test]
    fn few_items_and_compact_encodings_are_not_prefetched() {
        assert!(asked::<1>(16, true).concat().is_empty());
        assert!(asked::<2>(16, true).concat().is_empty());
        assert!(asked::<1>(40, false).concat().iter().all(|asked| asked.starts_with('b')));
    }
}
