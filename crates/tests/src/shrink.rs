//! Shortens a failing list: Zeller and Hildebrandt's ddmin (Simplifying and Isolating Failure-Inducing Input, IEEE TSE
//! 2002), with a time limit.

use std::time::{Duration, Instant};

/// Time limit of shrinking: a late report is worse than a long one.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Returns a shorter list for which `fails` still holds. `fails` must hold for `items`.
pub fn shrink<T: Clone>(items: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let start = Instant::now();
    let mut best = items.to_vec();
    let mut chunk = best.len().div_ceil(2);
    while chunk > 0 && start.elapsed() < TIME_MAX {
        let before = best.len();
        let mut at = 0;
        while at < best.len() && start.elapsed() < TIME_MAX {
            let end = (at + chunk).min(best.len());
            let without = [&best[..at], &best[end..]].concat();
            if fails(&without) {
                best = without;
            } else {
                at = end;
            }
        }
        // Repeats the same chunk size while it still removes something: one removal may make others possible.
        if best.len() == before {
            chunk /= 2;
        }
        chunk = chunk.min(best.len());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_necessary_items_are_left() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(shrink(&items, |part| part.contains(&17) && part.contains(&80)), [17, 80]);
        assert_eq!(shrink(&items, |_| true), []);
    }
}
