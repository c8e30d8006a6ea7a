//! Random numbers for keys: fast and repeatable from a seed, and not suitable for secrets.

/// Increment of the state for each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub struct Random(u64);

impl Random {
    /// Creates a generator. Equal seeds give equal numbers.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Creates a generator in its state after `drawn` numbers, in constant time, because the state grows linearly.
    #[must_use]
    pub fn after(seed: u64, drawn: u64) -> Random {
        Random(seed.wrapping_add(STEP.wrapping_mul(drawn)))
    }

    /// Returns the next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, or 0 if the limit is 0. The bias is below limit / 2^64.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number from 0 to below 1, with the 53 bits of an `f64`.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns printable bytes. Equal seeds give equal bytes.
    #[must_use]
    pub fn letters(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| b'A' + self.below(26) as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_repeatable_and_reach_the_whole_range() {
        let draw = |seed| (0..1000).scan(Random::new(seed), |r, _| Some(r.below(10))).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!((0..10).all(|n| draw(1).contains(&n)));
        assert!(draw(1).iter().all(|&n| n < 10));
        for drawn in [0, 1, 7, 1000] {
            let mut drawing = Random::new(1);
            for _ in 0..drawn {
                drawing.next();
            }
            assert_eq!(Random::after(1, drawn).next(), drawing.next());
        }
        assert_eq!(Random::new(1).below(0), 0);
        assert!(Random::new(1).letters(100).iter().all(u8::is_ascii_uppercase));
    }
}
