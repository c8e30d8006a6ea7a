//! SORT's ordering. One word per element decides nearly all comparisons, so the elements themselves are rarely
//! compared.

use std::cmp::Ordering;
use std::ops::Range;

use resp::num;
use store::types::packed::Item;

use super::items::Items;

/// Parses a number as SORT does with C's `strtod`: leading space is allowed, an empty text is zero, and the text ends
/// at its first zero byte.
pub fn number(item: Item<'_>) -> Option<f64> {
    match item {
        // The conversion rounds like `strtod`.
        Item::Int(value) => Some(value as f64),
        Item::Str(text) => num::parse_f64(text).or_else(|| lenient_number(text)),
    }
}

#[cold]
fn lenient_number(text: &[u8]) -> Option<f64> {
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let start = text.iter().position(|b| !matches!(b, b' ' | b'\t'..=b'\r'))?;
    num::parse_f64(&text[start..])
}

/// Comparison of elements with equal keys.
pub enum Ties<'t> {
    /// Compare the elements themselves: they may be texts with equal beginnings, or have equal numbers, for which the
    /// order must be deterministic.
    Elements(&'t Items),
    /// Compare the texts of other keys, one for each element. Elements without a text come first.
    Texts(&'t Items),
}

impl Ties<'_> {
    pub fn items(&self) -> &Items {
        match self {
            Ties::Elements(items) | Ties::Texts(items) => items,
        }
    }

    #[inline(never)]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        match self {
            Ties::Elements(elements) => compare_texts(elements.get(a), elements.get(b)),
            Ties::Texts(texts) => match (texts.get_or_none(a), texts.get_or_none(b)) {
                (Some(a), Some(b)) => compare_texts(a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
        }
    }
}

fn compare_texts(a: Item<'_>, b: Item<'_>) -> Ordering {
    match (a, b) {
        (Item::Str(a), Item::Str(b)) => a.cmp(b),
        (Item::Int(a), Item::Int(b)) if a == b => Ordering::Equal,
        _ => a.with_bytes(|a| b.with_bytes(|b| a.cmp(b))),
    }
}

/// An element's index and its key.
struct Row {
    key: u64,
    element: usize,
}

/// The elements' keys, to be sorted.
pub struct Order {
    rows: Vec<Row>,
    descending: bool,
}

impl Order {
    pub fn new(len: usize, descending: bool) -> Order {
        Order { rows: Vec::with_capacity(len), descending }
    }

    /// Appends the key of the next element.
    #[inline]
    pub fn push(&mut self, key: u64) {
        let key = if self.descending { !key } else { key };
        self.rows.push(Row { key, element: self.rows.len() });
    }

    /// Returns the elements at these ranks in order. Completely equal elements keep the order in which they were added.
    pub fn sorted(mut self, ties: &Ties<'_>, ranks: Range<usize>) -> Vec<usize> {
        let Order { rows, descending } = &mut self;
        let compare = |a: &Row, b: &Row| {
            a.key.cmp(&b.key).then_with(|| {
                let order = ties.compare(a.element, b.element);
                let order = if *descending { order.reverse() } else { order };
                order.then(a.element.cmp(&b.element))
            })
        };
        if (1..rows.len()).contains(&ranks.end) {
            // Only the first few are needed, so the others stay unsorted.
            rows.select_nth_unstable_by(ranks.end, compare);
            rows.truncate(ranks.end);
        }
        rows.sort_unstable_by(compare);
        rows.get(ranks).unwrap_or_default().iter().map(|row| row.element).collect()
    }
}

#[cfg(test)]
mod tests {
    use store::byte_order::number_word;
    use store::random::Random;

    use super::*;

    /// Random texts, many of which are equal or have equal beginnings.
    fn drawn(random: &mut Random) -> Items {
        let mut items = Items::default();
        for _ in 0..random.below(60) {
            let text = match random.below(4) {
                0 => random.below(12).to_string(),
                1 => format!("{}.0", random.below(12)),
                2 => format!("-{}", random.below(3)),
                _ => format!("1000000000{}", random.below(9)),
            };
            items.push(Item::from(&text));
        }
        items
    }

    fn check(
        items: &Items,
        keys: impl Iterator<Item = u64>,
        compare: impl Fn(&[u8], &[u8]) -> Ordering,
        descending: bool,
    ) {
        let mut order = Order::new(items.len(), descending);
        keys.for_each(|key| order.push(key));
        let texts: Vec<_> = items.iter().map(Item::to_vec).collect();
        let mut expected: Vec<_> = (0..texts.len()).collect();
        expected.sort_by(|&a, &b| {
            let order = compare(&texts[a], &texts[b]).then(texts[a].cmp(&texts[b]));
            if descending { order.reverse() } else { order }
        });
        assert_eq!(order.sorted(&Ties::Elements(items), 0..texts.len()), expected, "{texts:?}");
    }

    #[test]
    fn keys_and_ties_together_determine_the_order() {
        let mut random = Random::new(7);
        let parse = |text: &[u8]| number(Item::Str(text)).unwrap();
        for round in 0..300 {
            let (items, descending) = (drawn(&mut random), round % 2 == 0);
            let numbers = items.iter().map(|item| number_word(number(item).unwrap()));
            check(&items, numbers, |a, b| parse(a).total_cmp(&parse(b)), descending);
            check(&items, items.order_words(), |a, b| a.cmp(b), descending);
            let mut named = Items::default();
            items.iter().for_each(|item| named.push(Item::Str(&[b"name:", &*item.text()].concat())));
            check(&named, named.order_words(), |a, b| a.cmp(b), descending);
        }
    }

    #[test]
    fn a_range_of_ranks_equals_that_part_of_the_whole_order() {
        let mut random = Random::new(8);
        for _ in 0..300 {
            let items = drawn(&mut random);
            let sorted = |ranks| {
                let mut order = Order::new(items.len(), false);
                items.iter().for_each(|item| order.push(number_word(number(item).unwrap())));
                order.sorted(&Ties::Elements(&items), ranks)
            };
            let start = random.below(items.len() + 1);
            let end = start + random.below(items.len() - start + 1);
            assert_eq!(sorted(start..end), sorted(0..items.len())[start..end]);
        }
    }
}
