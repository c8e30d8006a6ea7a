//! The distribution of slots: pure functions.

use client::cluster::{SLOTS, Slot, SlotSet};

/// Returns the ranges of slots of each primary of a new cluster, first and last included.
///
/// The sums are single-precision like redis-cli's, so that both tools give the same ranges.
pub fn ranges(masters: usize) -> Vec<(u64, u64)> {
    let share = SLOTS as f32 / masters as f32;
    let (mut first, mut cursor) = (0, 0.0_f32);
    let mut ranges = Vec::with_capacity(masters);
    for index in 0..masters {
        let mut last = (cursor + share - 1.0).round() as u64;
        if last > SLOTS as u64 || index + 1 == masters {
            last = SLOTS as u64 - 1;
        }
        last = last.max(first);
        ranges.push((first, last));
        first = last + 1;
        cursor += share;
    }
    ranges
}

/// Chooses slots to move away from sources, in proportion to their numbers of slots. Returns the index of a source in
/// `sources` with each slot.
pub fn reshard(sources: &[&SlotSet], count: usize) -> Vec<(usize, Slot)> {
    let total: usize = sources.iter().map(|slots| slots.len()).sum();
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|&source| std::cmp::Reverse(sources[source].len()));
    let mut moves = Vec::new();
    for (place, &source) in order.iter().enumerate() {
        let share = count as f32 / total as f32 * sources[source].len() as f32;
        // The largest source rounds up, so that the shares reach the number.
        let share = if place == 0 { share.ceil() } else { share.floor() } as usize;
        let rest = count - moves.len();
        moves.extend(sources[source].iter().take(share.min(rest)).map(|slot| (source, slot)));
    }
    moves
}

/// A primary that takes part in a rebalancing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub slots: usize,
    pub weight: f32,
}

/// The result of weighing the primaries.
#[derive(Debug, PartialEq)]
pub struct Balance {
    /// Number of slots that each primary has above its share.
    pub surplus: Vec<i64>,
    /// True if a primary is further from its share than the threshold.
    pub is_needed: bool,
}

/// Weighs the primaries.
pub fn balance(shares: &[Share], threshold_percent: f32) -> Balance {
    let total: f32 = shares.iter().map(|share| share.weight).sum();
    let mut is_needed = false;
    let mut surplus: Vec<i64> = Vec::with_capacity(shares.len());
    for share in shares {
        let expected = (SLOTS as f32 / total * share.weight) as i64;
        let off_percent = (100.0 - 100.0 * expected as f64 / share.slots as f64).abs() as f32;
        is_needed |=
            threshold_percent > 0.0 && if share.slots > 0 { off_percent > threshold_percent } else { expected > 1 };
        surplus.push(share.slots as i64 - expected);
    }
    // Because of rounding, the sum may be above 0. Each slot that one primary gives needs a receiver.
    let mut rest: i64 = surplus.iter().sum();
    while rest > 0 && surplus.iter().any(|surplus| *surplus <= 0) {
        for surplus in surplus.iter_mut().filter(|surplus| **surplus <= 0) {
            if rest > 0 {
                *surplus -= 1;
                rest -= 1;
            }
        }
    }
    Balance { surplus, is_needed }
}

/// Returns the moves that balance the primaries: source, target and number of slots.
pub fn transfers(surplus: &[i64]) -> Vec<(usize, usize, usize)> {
    let mut surplus = surplus.to_vec();
    let mut order: Vec<usize> = (0..surplus.len()).collect();
    order.sort_by_key(|&node| surplus[node]);
    let (mut to, mut from) = (0, order.len().saturating_sub(1));
    let mut moves = Vec::new();
    while to < from {
        let (target, source) = (order[to], order[from]);
        let count = surplus[target].abs().min(surplus[source].abs());
        if count > 0 {
            moves.push((source, target, count as usize));
        }
        surplus[target] += count;
        surplus[source] -= count;
        to += usize::from(surplus[target] == 0);
        from -= usize::from(surplus[source] == 0);
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(first: u64, count: u64) -> SlotSet {
        (first..first + count).map(|slot| Slot::new(slot).unwrap()).collect()
    }

    #[test]
    fn new_clusters_have_redis_clis_ranges() {
        assert_eq!(ranges(3), [(0, 5460), (5461, 10922), (10923, 16383)]);
        assert_eq!(ranges(4), [(0, 4095), (4096, 8191), (8192, 12287), (12288, 16383)]);
        assert_eq!(ranges(1), [(0, 16383)]);
        for masters in 1..300 {
            let ranges = ranges(masters);
            assert_eq!((ranges[0].0, ranges[masters - 1].1), (0, 16383));
            assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0 && pair[0].0 <= pair[0].1));
        }
    }

    #[test]
    fn slots_come_from_all_sources() {
        let sources = [slots(0, 100), slots(200, 300), slots(1000, 50)];
        let sources: Vec<&SlotSet> = sources.iter().collect();
        let moves = reshard(&sources, 100);
        let from = |source: usize| moves.iter().filter(|(from, _)| *from == source).count();
        assert_eq!([from(0), from(1), from(2)], [22, 67, 11]);
        assert_eq!(moves[0], (1, Slot::new(200).unwrap()));
        assert_eq!(reshard(&sources, 10_000).len(), 450);
        assert_eq!(reshard(&[&SlotSet::EMPTY], 5), []);
    }

    #[test]
    fn primaries_are_balanced() {
        let share = |slots, weight| Share { slots, weight };
        let even = [share(5461, 1.0), share(5462, 1.0), share(5461, 1.0)];
        assert!(!balance(&even, 2.0).is_needed);
        let uneven = [share(16384, 1.0), share(0, 1.0), share(0, 1.0)];
        let Balance { surplus, is_needed } = balance(&uneven, 2.0);
        assert!(is_needed);
        assert_eq!(surplus.iter().sum::<i64>(), 0);
        assert_eq!(transfers(&surplus), [(0, 1, 5462), (0, 2, 5461)]);
        let weighted = [share(8192, 3.0), share(8192, 1.0)];
        assert_eq!(transfers(&balance(&weighted, 2.0).surplus), [(1, 0, 4096)]);
        assert_eq!(transfers(&[]), []);
        // Nobody can receive the slots of a weight of zero.
        assert_eq!(transfers(&balance(&[share(16384, 0.0)], 2.0).surplus), []);
    }
}
