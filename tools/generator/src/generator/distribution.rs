//! Distributions of random numbers over a range.

use super::random::Random;

/// Distribution of the random numbers in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// All numbers are equally frequent.
    #[default]
    Uniform,
    /// The frequency of the number `n` falls with `(n + 1)` to the power of the exponent, which is between 0 and 1.
    Zipf {
        /// The exponent.
        exponent: f64,
    },
}

/// A range of numbers with a distribution. Each draw takes exactly one number of the generator.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// Numbers below the limit.
    Uniform {
        /// The limit, exclusive.
        limit: u64,
    },
    /// Numbers with the frequencies of Zipf's law.
    Zipf(Zipf),
}

impl Numbers {
    /// Returns the numbers below `limit`; only 0 if the limit is 0.
    #[must_use]
    pub fn new(limit: u64, distribution: Distribution) -> Numbers {
        match distribution {
            Distribution::Zipf { exponent } if limit > 1 => Numbers::Zipf(Zipf::new(limit, exponent)),
            _ => Numbers::Uniform { limit },
        }
    }

    /// Draws a number.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Numbers::Uniform { limit } => random.below(*limit),
            Numbers::Zipf(zipf) => zipf.number(random.fraction()),
        }
    }
}

/// Zipf's law. The method is that of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (1994), which
/// YCSB uses, too: the first two numbers are exact, and the others follow a continuous approximation.
#[derive(Clone, Debug)]
pub struct Zipf {
    limit: u64,
    /// Sum of the frequencies of all numbers, relative to the frequency of 0.
    total: f64,
    /// The relative frequency of 1.
    second: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(limit: u64, exponent: f64) -> Zipf {
        let total = harmonic(limit, exponent);
        let second = 0.5_f64.powf(exponent);
        let eta = (1.0 - (2.0 / limit as f64).powf(1.0 - exponent)) / (1.0 - (1.0 + second) / total);
        Zipf { limit, total, second, alpha: 1.0 / (1.0 - exponent), eta }
    }

    /// Returns the number at a fraction of the cumulative frequencies.
    fn number(&self, fraction: f64) -> u64 {
        let position = fraction * self.total;
        if position < 1.0 {
            return 0;
        }
        if position < 1.0 + self.second || self.limit == 2 {
            return 1;
        }
        let number = self.limit as f64 * (self.eta * fraction - self.eta + 1.0).powf(self.alpha);
        (number as u64).min(self.limit - 1)
    }
}

/// Number of terms of a sum that are added one by one.
const EXACT_TERMS: u64 = 10_000;

/// Returns the sum of `i` to the power of `-exponent` for all `i` up to `limit`. Beyond the first terms, the
/// Euler-Maclaurin formula replaces the sum by an integral. Its error is below the precision of an `f64` there.
fn harmonic(limit: u64, exponent: f64) -> f64 {
    let exact = limit.min(EXACT_TERMS);
    let sum: f64 = (1..=exact).map(|i| (i as f64).powf(-exponent)).sum();
    let (from, to) = (exact as f64, limit as f64);
    let integral = (to.powf(1.0 - exponent) - from.powf(1.0 - exponent)) / (1.0 - exponent);
    sum + integral + (to.powf(-exponent) - from.powf(-exponent)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(limit: u64, exponent: f64, draws: usize) -> Vec<usize> {
        let numbers = Numbers::new(limit, Distribution::Zipf { exponent });
        let mut random = Random::new(1);
        let mut counts = vec![0; limit as usize];
        (0..draws).for_each(|_| counts[numbers.draw(&mut random) as usize] += 1);
        counts
    }

    #[test]
    fn frequencies_follow_the_law() {
        const DRAWS: usize = 400_000;
        for exponent in [0.5, 0.99] {
            let counts = counts(1000, exponent, DRAWS);
            let total = harmonic(1000, exponent);
            let share = |numbers: std::ops::Range<usize>| counts[numbers].iter().sum::<usize>() as f64 / DRAWS as f64;
            let expected = |numbers: std::ops::Range<usize>| -> f64 {
                numbers.map(|number| (number as f64 + 1.0).powf(-exponent) / total).sum()
            };
            for numbers in [0..1, 1..2, 2..10, 10..100, 100..1000] {
                let (found, expected) = (share(numbers.clone()), expected(numbers.clone()));
                assert!((found / expected - 1.0).abs() < 0.15, "{exponent} {numbers:?}: {found} {expected}");
            }
        }
    }

    #[test]
    fn sums_by_an_integral_are_exact() {
        for exponent in [0.1, 0.5, 0.99] {
            let exact: f64 = (1..=1_000_000).map(|i| f64::from(i).powf(-exponent)).sum();
            assert!((harmonic(1_000_000, exponent) / exact - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        for limit in [0, 1, 2, 3, 1 << 62] {
            for distribution in [Distribution::Uniform, Distribution::Zipf { exponent: 0.999 }] {
                let numbers = Numbers::new(limit, distribution);
                assert!((0..1000).all(|_| numbers.draw(&mut random) < limit.max(1)), "{limit} {distribution:?}");
            }
        }
        let Numbers::Zipf(zipf) = Numbers::new(10, Distribution::Zipf { exponent: 0.5 }) else { panic!() };
        assert_eq!((zipf.number(0.0), zipf.number(1.0)), (0, 9));
    }
}
