//! Doubles with a fixed number of digits after the point, as Redis prints coordinates and distances.

use super::IntText;

/// Number of digits after the point of a coordinate, as in C's `%.17Lf`.
const PLACES_MAX: usize = 17;
/// Ten to the power of [`PLACES_MAX`].
const SCALE: u128 = 100_000_000_000_000_000;
/// A sign, the digits of 64 bits, a point and the places.
const TEXT_BYTES_MAX: usize = 1 + 20 + 1 + PLACES_MAX;
/// Number of bits of a double's significand after the highest one.
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
/// A fraction with its last bit below this position, counted from the point, has only zeros in the printed places.
const SHIFT_MAX: u32 = FRACTION_BITS + 68;

/// The text of a double, on the stack.
pub struct FixedText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl FixedText {
    /// Formats a value with at most 17 digits after the point, rounded to the nearest and without trailing zeros, like
    /// Redis's "human" form of a long double. `value` must be less than 2^63 in magnitude; larger values are printed as
    /// 2^63.
    #[must_use]
    pub fn human(value: f64) -> FixedText {
        let magnitude = value.abs();
        let integral = magnitude as u64;
        let places = rounded_places(magnitude - integral as f64);
        let carry = u64::from(u128::from(places) == SCALE);
        let (integral, places) = (integral + carry, if carry == 1 { 0 } else { places });
        let mut text = FixedText::new(value < 0.0 && (integral, places) != (0, 0), integral);
        if places != 0 {
            text.push_places(places, PLACES_MAX);
            let zeros = text.as_bytes().iter().rev().take_while(|&&byte| byte == b'0').count();
            text.len -= zeros;
        }
        text
    }

    /// Formats a value with exactly four digits after the point, as Redis prints distances: scales the value first,
    /// then rounds to the nearest, ties to even. The value must not be negative; values beyond 64 bits are clamped.
    #[must_use]
    pub fn four_places(value: f64) -> FixedText {
        let scaled = (value * 10_000.0).round_ties_even() as u64;
        let mut text = FixedText::new(false, scaled / 10_000);
        text.push_places(scaled % 10_000, 4);
        text
    }

    fn new(negative: bool, integral: u64) -> FixedText {
        let mut text = FixedText { bytes: [b'-'; TEXT_BYTES_MAX], len: usize::from(negative) };
        let mut digits = IntText::new();
        let digits = digits.u64(integral);
        text.bytes[text.len..text.len + digits.len()].copy_from_slice(digits);
        text.len += digits.len();
        text
    }

    /// Appends a point and a number with this many digits.
    fn push_places(&mut self, mut number: u64, places: usize) {
        let digits = &mut self.bytes[self.len..=self.len + places];
        digits[0] = b'.';
        for digit in digits[1..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.len += 1 + places;
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the first 17 places of a fraction as an integer, rounded to the nearest, ties to even.
fn rounded_places(fraction: f64) -> u64 {
    if fraction == 0.0 {
        return 0;
    }
    let bits = fraction.to_bits();
    let exponent = (bits >> FRACTION_BITS) as u32;
    let shift = 1023 + FRACTION_BITS - exponent.min(1022);
    // The fraction is below about 2^-68, and therefore below half of the last place.
    if shift > SHIFT_MAX {
        return 0;
    }
    let significand = bits & ((1 << FRACTION_BITS) - 1) | 1 << FRACTION_BITS;
    // The product of 53 bits and 57 bits doesn't overflow, and the quotient is at most `SCALE`.
    let scaled = u128::from(significand) * SCALE;
    let (quotient, rest) = (scaled >> shift, scaled & ((1 << shift) - 1));
    let half = 1u128 << (shift - 1);
    let up = rest > half || (rest == half && quotient & 1 == 1);
    quotient as u64 + u64::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts come from C's `printf("%.17Lf")`, without trailing zeros.
    #[test]
    fn like_printf() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (5.0, "5"),
            (-180.0, "-180"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (13.361389338970184, "13.36138933897018433"),
            (38.1155563954963, "38.11555639549629859"),
            (1e-17, "0.00000000000000001"),
            (4e-18, "0"),
            (-4e-18, "0"),
            (5e-324, "0"),
            (0.9999999999999999, "0.99999999999999989"),
            (180.000_002_682_209_01, "180.00000268220901489"),
        ] {
            assert_eq!(FixedText::human(value).as_bytes(), text.as_bytes(), "{value}");
        }
    }

    /// Rust's formatting rounds exactly, too.
    #[test]
    fn like_exact_formatting() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let magnitude = (state >> 11) as f64 / (1u64 << 53) as f64;
            let value = magnitude * [1e-12, 1e-3, 1.0, 360.0, 1e9][(state % 5) as usize] - magnitude * 3.0;
            let exact = format!("{value:.17}");
            let exact = exact.trim_end_matches('0').trim_end_matches('.');
            let exact = if exact == "-0" { "0" } else { exact };
            assert_eq!(FixedText::human(value).as_bytes(), exact.as_bytes(), "{value:e}");
        }
    }

    #[test]
    fn distances() {
        for (value, text) in [
            (0.0, "0.0000"),
            (166274.15156960033, "166274.1516"),
            (0.00004, "0.0000"),
            (0.00006, "0.0001"),
            (1.23455, "1.2346"),
            (20015086.796, "20015086.7960"),
            (f64::MAX, "1844674407370955.1615"),
        ] {
            assert_eq!(FixedText::four_places(value).as_bytes(), text.as_bytes(), "{value}");
        }
    }
}
