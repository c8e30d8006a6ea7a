//! A key's frequency of use, in the 24 bits of its access word that Redis's policy "least frequently used" defines.
//!
//! ```text
//! ┌─────────────────────────────┬──────────────────┐
//! │ minute of the last change 16│ counter 8        │
//! └─────────────────────────────┴──────────────────┘
//! ```
//!
//! The counter is logarithmic: the greater it is, the less likely a use increments it. It decays with time. Source:
//! Redis's page "Key eviction", "The new LFU mode".

/// Initial counter of a new key, so that it is not evicted before its first uses: Redis's figure.
const INITIAL: u32 = 5;
/// Minutes are counted modulo this.
const MINUTES: u32 = 1 << 16;

/// Parameters for counting uses during a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frequency {
    /// Minutes since the server started.
    pub minutes: u32,
    /// Determines how many uses saturate the counter: the higher, the more (lfu-log-factor).
    pub log_factor: u32,
    /// Minutes after which the counter falls by one (lfu-decay-time); 0 disables the decay.
    pub decay_minutes: u32,
    /// Randomness of the call.
    pub seed: u64,
}

impl Frequency {
    /// Returns the counter of an access word, with the decay until now.
    #[must_use]
    pub fn count(&self, word: u32) -> u32 {
        let since = (word >> 8) % MINUTES;
        let passed = (self.minutes.wrapping_sub(since)) % MINUTES;
        (word & 0xff).saturating_sub(passed.checked_div(self.decay_minutes).unwrap_or(0))
    }

    /// Returns the access word of a key with this counter, as of now.
    #[must_use]
    pub fn word(&self, count: u8) -> u32 {
        (self.minutes % MINUTES) << 8 | u32::from(count)
    }

    /// Returns the access word after a use; `salt` distinguishes the uses within a call. A new key's word is 0.
    #[must_use]
    pub fn used(&self, word: u32, salt: u64) -> u32 {
        let count = if word == 0 { INITIAL } else { self.raised(self.count(word), salt) };
        (self.minutes % MINUTES) << 8 | count
    }

    fn raised(&self, count: u32, salt: u64) -> u32 {
        if count >= 0xff {
            return count;
        }
        // The counter is incremented with probability 1 / `against`; a mix of the call's randomness decides.
        let against = u64::from(count.saturating_sub(INITIAL)) * u64::from(self.log_factor) + 1;
        let mixed = (self.seed ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let chance = ((u128::from(mixed ^ mixed >> 32) * u128::from(against)) >> 64) as u64;
        count + u32::from(chance == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn at(minutes: u32) -> Frequency {
        Frequency { minutes, log_factor: 10, decay_minutes: 1, seed: 0 }
    }

    #[test]
    fn the_counter_falls_with_time_and_never_below_zero() {
        let word = at(100).used(0, 0);
        for (minutes, count) in [(100, 5), (101, 4), (104, 1), (105, 0), (1000, 0)] {
            assert_eq!(at(minutes).count(word), count, "{minutes}");
        }
        assert_eq!(Frequency { decay_minutes: 0, ..at(1000) }.count(word), 5);
        let late = at(MINUTES - 1).used(0, 0);
        assert_eq!(at(MINUTES + 1).count(late), 3, "the minutes wrap around");
    }

    /// Source: the table in Redis's documentation. With factor 10, 1,000 hits make about 18, a million 255.
    #[test]
    fn the_counter_grows_ever_more_slowly() {
        let mut random = Random::new(1);
        let mut word = at(0).used(0, 0);
        let mut hits = 0;
        for (until, from, to) in [(100, 8, 13), (1000, 14, 23), (100_000, 120, 165), (1_000_000, 255, 255)] {
            while hits < until {
                word = Frequency { seed: random.next(), ..at(0) }.used(word, 0);
                hits += 1;
            }
            assert!((from..=to).contains(&(word & 0xff)), "{hits}: {}", word & 0xff);
        }
    }
}
