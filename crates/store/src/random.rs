//! Random numbers for picks and samples: fast, seeded by the server, not for secrets.

/// A generator of random numbers (wyrand, by Wang Yi).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator that produces the same numbers for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "it has no end, and a seed is not a sequence")]
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xA076_1D64_78BD_642F);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xE703_7ED1_A0B4_28DB);
        (product >> 64) as u64 ^ product as u64
    }

    /// Returns an evenly distributed number below `end`; 0 if `end` is 0.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}
