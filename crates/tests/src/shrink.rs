//! Makes a failing list shorter while it still fails: Zeller and Hildebrandt's ddmin (Simplifying and Isolating
//! Failure-Inducing Input, IEEE TSE 2002), with a limit on time.

use std::time::{Duration, Instant};

/// How long shrinking may take: a report that comes late is worse than one that is long.
const TIME_MAX: Duration = Duration::from_secs(30);

/// A shorter list for which `fails` still holds; `items` itself must fail.
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
        // The same size again while it still removes something: what one pass removes may free what it kept.
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
    fn only_what_matters_is_left() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(shrink(&items, |part| part.contains(&17) && part.contains(&80)), [17, 80]);
        assert_eq!(shrink(&items, |_| true), []);
    }
}
