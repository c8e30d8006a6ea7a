//! Estimation of the number of elements from the registers.
//!
//! Source of the algorithm: Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches",
//! arXiv:1702.01284, section 4. The order of operations is Redis's, so results are equal to the last bit.

use super::dense::{Histogram, INDEX_BITS, REGISTERS};

/// Number of hash bits beside the register's number.
const HASH_BITS: usize = (u64::BITS - INDEX_BITS) as usize;
/// 1 / (2 ln 2).
const ALPHA_INFINITY: f64 = 0.721_347_520_444_481_7;

/// Returns the rounded estimate.
pub(super) fn estimate(histogram: &Histogram) -> u64 {
    let registers = REGISTERS as f64;
    let mut z = registers * tau((registers - f64::from(histogram[HASH_BITS + 1])) / registers);
    for count in histogram[1..=HASH_BITS].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += registers * sigma(f64::from(histogram[0]) / registers);
    (ALPHA_INFINITY * registers * registers / z).round() as u64
}

/// Corrects for registers that are zero.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

/// Corrects for registers that have the largest value.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}
