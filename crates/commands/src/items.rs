//! The members and fields that one command names, and the memory that looking for them reads.

use resp::request::Args;
use store::prefetch::Ahead;

/// A command that names more members or fields prefetches them while it runs; one with fewer is prefetched with its
/// batch.
pub const ITEMS_IN_BATCH: usize = 16;

/// How many items are prefetched together. Each takes two cache lines, which must stay in the first-level cache until
/// they are used.
const WINDOW: usize = 32;

/// Asks for the memory of a command's items, a window before the first of them is looked for, if there are many. The
/// items are every `STEP`th argument from some place on.
pub(crate) struct ItemsAhead<const STEP: usize> {
    /// The first argument that was not asked for.
    next: usize,
    /// Items of the window that are still to be looked for.
    left: usize,
}

impl<const STEP: usize> ItemsAhead<STEP> {
    /// For a command with `args` arguments; its items begin at `first`.
    #[inline]
    pub fn new(args: usize, first: usize) -> Self {
        let is_wide = args > first + ITEMS_IN_BATCH * STEP;
        Self { next: first, left: if is_wide { 0 } else { usize::MAX } }
    }

    /// To be called before each item is looked for, with what asks the collection, and says whether it has a table.
    #[inline]
    pub fn before_next<'a>(&mut self, args: &Args<'a>, ask: impl Fn(Ahead<'a>) -> bool) {
        if self.left == 0 {
            self.enter(args, ask);
        }
        self.left -= 1;
    }

    /// Prefetches a window: all buckets first, then the records, since a record's address is in its bucket.
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

    /// What is asked for before each item of a command, as "b3" or "r3" for the third's bucket and record.
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
    fn every_item_of_a_wide_command_is_asked_for_once_before_it_is_looked_for() {
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
    fn few_items_and_small_forms_are_not_asked_for() {
        assert!(asked::<1>(16, true).concat().is_empty());
        assert!(asked::<2>(16, true).concat().is_empty());
        assert!(asked::<1>(40, false).concat().iter().all(|asked| asked.starts_with('b')));
    }
}
