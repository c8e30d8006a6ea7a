//! The 80-bit extended floats of x86-64, with the operations that INCRBYFLOAT and HINCRBYFLOAT need: parse, add, print.
//!
//! Redis computes both commands in C's `long double` and stores the printed result, so its bytes depend on that format:
//! a sign, a significand of 64 bits without a hidden bit, and an exponent of 15 bits. This module computes the same
//! results with integer arithmetic on any machine. It knows no command and no stored value.

mod bignum;

use self::bignum::Natural;
use crate::num::{HexText, IntText, parse_exponent, round_to_precision, split_sign};

/// Number of bits of a significand.
const PRECISION: u32 = 64;
/// Exponent of the smallest numbers with the significand taken as an integer: 1 − 16383 − 63.
const EXPONENT_MIN: i64 = -16445;
/// Exponent of the largest numbers with the significand taken as an integer: 16383 − 63.
const EXPONENT_MAX: i64 = 16383 - 63;
/// Limit for texts that Redis parses as a long double (`MAX_LONG_DOUBLE_CHARS`); they must be shorter.
const TEXT_BYTES_LIMIT: usize = 5 * 1024;
/// A number of at least 10^this overflows; the largest is about 1.19 × 10^4932.
const DECIMAL_EXPONENT_MAX: i64 = 4933;
/// A number below 10^this becomes zero; the smallest is about 3.65 × 10^-4951.
const DECIMAL_EXPONENT_MIN: i64 = -4952;
/// Largest number of digits that Redis prints after the point.
const PLACES: usize = 17;
const TEN_TO_PLACES: u64 = 100_000_000_000_000_000;

/// An 80-bit extended float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct F80(FloatClass);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloatClass {
    /// `significand × 2^exponent`; the significand's highest bit is set unless the exponent is the smallest.
    Finite {
        negative: bool,
        significand: u64,
        exponent: i32,
    },
    Infinite {
        negative: bool,
    },
    NotANumber,
}

impl From<i64> for F80 {
    fn from(value: i64) -> Self {
        Self::round(value < 0, u128::from(value.unsigned_abs()), 0)
    }
}

impl F80 {
    /// Positive zero: the value of a missing key or field.
    pub const ZERO: Self = Self(FloatClass::Finite { negative: false, significand: 0, exponent: EXPONENT_MIN as i32 });

    /// Parses a long double as Redis does; `None` corresponds to Redis's "value is not a valid float".
    ///
    /// The syntax is that of C's `strtold`: decimal with or without an exponent, hexadecimal, `inf` and `infinity` in
    /// any case. NaN, leading space, trailing bytes, 5120 bytes and more, and out-of-range values (too large, or so
    /// small that they round to zero) are refused.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_BYTES_LIMIT {
            return None;
        }
        let (negative, unsigned) = split_sign(text);
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Some(Self(FloatClass::Infinite { negative }));
        }
        if let Some(hex) = HexText::scan(unsigned) {
            let (significand, exponent) = hex.to_exact();
            return Self::round(negative, significand, exponent).in_range(significand == 0);
        }
        let decimal = DecimalText::scan(unsigned)?;
        decimal.round(negative).in_range(decimal.is_zero())
    }

    /// Returns the number, unless it overflowed or was rounded to zero unexpectedly.
    fn in_range(self, zero_meant: bool) -> Option<Self> {
        match self.0 {
            FloatClass::Finite { significand, .. } => (zero_meant || significand != 0).then_some(self),
            _ => None,
        }
    }

    /// Rounds `significand × 2^exponent` to the nearest long double, under the conditions of [`round_to_precision`].
    fn round(negative: bool, significand: u128, exponent: i64) -> Self {
        let (significand, exponent) = round_to_precision(significand, exponent, PRECISION, EXPONENT_MIN);
        if significand == 0 {
            Self(FloatClass::Finite { negative, significand, exponent: EXPONENT_MIN as i32 })
        } else if exponent > EXPONENT_MAX {
            Self(FloatClass::Infinite { negative })
        } else {
            Self(FloatClass::Finite { negative, significand, exponent: exponent as i32 })
        }
    }

    /// The sum, rounded to the nearest; opposite infinities yield NaN.
    #[allow(clippy::should_implement_trait, reason = "nothing else of a number's operators is offered")]
    pub fn add(self, other: Self) -> Self {
        match (self.0, other.0) {
            (FloatClass::NotANumber, _) | (_, FloatClass::NotANumber) => Self(FloatClass::NotANumber),
            (FloatClass::Infinite { negative: a }, FloatClass::Infinite { negative: b }) if a != b => {
                Self(FloatClass::NotANumber)
            }
            (FloatClass::Infinite { .. }, _) => self,
            (_, FloatClass::Infinite { .. }) => other,
            (
                FloatClass::Finite { negative, significand, exponent },
                FloatClass::Finite {
                    negative: other_negative,
                    significand: other_significand,
                    exponent: other_exponent,
                },
            ) => {
                let a = Term { negative, significand, exponent };
                let b = Term { negative: other_negative, significand: other_significand, exponent: other_exponent };
                if a.exponent >= b.exponent { a.add_smaller(b) } else { b.add_smaller(a) }
            }
        }
    }

    /// The product with an integer, rounded to the nearest.
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        match self.0 {
            FloatClass::Finite { negative, significand, exponent } => {
                Self::round(negative, u128::from(significand) * u128::from(factor), i64::from(exponent))
            }
            _ => self,
        }
    }

    /// The smallest integer that is not less than the number, clamped to 64 bits. 0 for NaN.
    #[must_use]
    pub fn ceil(self) -> i64 {
        let (negative, magnitude) = match self.0 {
            FloatClass::NotANumber => return 0,
            FloatClass::Infinite { negative } => (negative, u64::MAX),
            FloatClass::Finite { negative, significand, exponent: exponent @ ..0 } => {
                let point = exponent.unsigned_abs();
                let integral = significand.checked_shr(point).unwrap_or(0);
                let has_fraction = integral.checked_shl(point).unwrap_or(0) != significand;
                (negative, integral + u64::from(has_fraction && !negative))
            }
            // A significand with its highest bit set that is shifted left is far out of range; others are never shifted
            // left.
            FloatClass::Finite { negative, significand, .. } => (negative, significand),
        };
        match i64::try_from(magnitude) {
            Ok(value) => {
                if negative {
                    -value
                } else {
                    value
                }
            }
            Err(_) => {
                if negative {
                    i64::MIN
                } else {
                    i64::MAX
                }
            }
        }
    }

    /// True for results that INCRBYFLOAT refuses: "increment would produce NaN or Infinity".
    pub fn is_nan_or_inf(self) -> bool {
        !matches!(self.0, FloatClass::Finite { .. })
    }

    /// Appends the text that Redis stores and replies: at most 17 digits after the point, without trailing zeros, never
    /// an exponent, and never a negative zero. Infinities are `inf` and `-inf`, NaN is `nan`.
    pub fn format_human(self, out: &mut Vec<u8>) {
        match self.0 {
            FloatClass::NotANumber => out.extend_from_slice(b"nan"),
            FloatClass::Infinite { negative } => out.extend_from_slice(if negative { b"-inf" } else { b"inf" }),
            FloatClass::Finite { negative, significand, exponent } => {
                let start = out.len();
                if negative {
                    out.push(b'-');
                }
                if exponent > 0 {
                    Natural::shifted(significand, exponent.unsigned_abs()).write_decimal(out);
                } else {
                    write_fixed(significand, exponent.unsigned_abs(), out);
                }
                if &out[start..] == b"-0" {
                    out.remove(start);
                }
            }
        }
    }

    /// Significand and exponent of a finite number.
    #[cfg(test)]
    pub(crate) fn parts(self) -> Option<(u64, i32)> {
        match self.0 {
            FloatClass::Finite { significand, exponent, .. } => Some((significand, exponent)),
            _ => None,
        }
    }
}

/// A finite operand of an addition.
struct Term {
    negative: bool,
    significand: u64,
    exponent: i32,
}

impl Term {
    /// Returns the sum with a term whose exponent is not larger.
    fn add_smaller(self, smaller: Self) -> F80 {
        /// Bits of room below the larger significand; two bits above stay free for the carry.
        const ROOM: u32 = 62;
        let distance = self.exponent.abs_diff(smaller.exponent);
        let a = u128::from(self.significand) << ROOM;
        let b = shift_right_sticky(u128::from(smaller.significand) << ROOM, distance);
        let exponent = i64::from(self.exponent) - i64::from(ROOM);
        if self.negative == smaller.negative {
            return F80::round(self.negative, a + b, exponent);
        }
        match a.checked_sub(b) {
            Some(0) => F80::ZERO,
            Some(difference) => F80::round(self.negative, difference, exponent),
            None => F80::round(smaller.negative, b - a, exponent),
        }
    }
}

/// Shifts right; the lowest bit is set if any dropped bit was set.
fn shift_right_sticky(value: u128, distance: u32) -> u128 {
    match value.checked_shr(distance) {
        Some(shifted) => shifted | u128::from(shifted << distance != value),
        None => u128::from(value != 0),
    }
}

/// Appends `significand / 2^point` rounded to 17 places, without trailing zeros and a trailing point.
fn write_fixed(significand: u64, point: u32, out: &mut Vec<u8>) {
    let integral = significand.checked_shr(point).unwrap_or(0);
    let fraction = significand - integral.checked_shl(point).unwrap_or(0);
    // A fraction below 2^64 times 10^17 is below 2^121, so the product is exact; rounding to the nearest even is exact,
    // too.
    let scaled = u128::from(fraction) * u128::from(TEN_TO_PLACES);
    let places = shift_right_rounded(scaled, point);
    // Rounding can carry into the integral part, which is below 2^63 because the fraction takes at least one of the 64
    // bits.
    let carried = places == TEN_TO_PLACES;
    out.extend_from_slice(IntText::new().u64(integral + u64::from(carried)));
    if !carried && places != 0 {
        write_places(places, out);
    }
}

/// Shifts right by any distance, rounding to the nearest, ties to even. The result must fit in 64 bits.
fn shift_right_rounded(value: u128, distance: u32) -> u64 {
    // One bit for rounding, and a sticky bit for everything below it.
    let quarters = shift_right_sticky(value << 2, distance);
    let round_up = matches!(quarters & 7, 3 | 6 | 7);
    ((quarters >> 2) + u128::from(round_up)) as u64
}

/// Appends a point and the 17 digits of `places`, without trailing zeros.
fn write_places(places: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; PLACES];
    let mut rest = places;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let used = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    out.push(b'.');
    out.extend_from_slice(&digits[..used]);
}

/// A decimal number without its sign: the digits before and after the point, and the exponent.
struct DecimalText<'a> {
    integral: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> DecimalText<'a> {
    /// Parses digits with an optional point, and an optional exponent.
    fn scan(text: &'a [u8]) -> Option<Self> {
        let mark = text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e'));
        let (digits, exponent) = match mark {
            Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let point = digits.iter().position(|byte| *byte == b'.');
        let (integral, fraction) = match point {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &[][..]),
        };
        let all_digits = integral.iter().chain(fraction).all(u8::is_ascii_digit);
        let some_digit = !integral.is_empty() || !fraction.is_empty();
        (all_digits && some_digit).then_some(Self { integral, fraction, exponent })
    }

    fn is_zero(&self) -> bool {
        self.integral.iter().chain(self.fraction).all(|byte| *byte == b'0')
    }

    /// Returns the digits without leading and trailing zeros, and the power of ten to multiply them by.
    fn significant(&self) -> (Vec<u8>, i64) {
        let all = [self.integral, self.fraction].concat();
        let first = all.iter().position(|byte| *byte != b'0').unwrap_or(all.len());
        let end = all.iter().rposition(|byte| *byte != b'0').map_or(first, |last| last + 1);
        // The text is short, so its lengths can't overflow together with the limited exponent.
        let exponent = self.exponent - self.fraction.len() as i64 + (all.len() - end) as i64;
        (all[first..end].to_vec(), exponent)
    }

    /// Rounds to the nearest long double.
    fn round(&self, negative: bool) -> F80 {
        let (digits, exponent) = self.significant();
        let magnitude = exponent + digits.len() as i64;
        if digits.is_empty() || magnitude < DECIMAL_EXPONENT_MIN {
            return F80::round(negative, 0, 0);
        }
        if magnitude > DECIMAL_EXPONENT_MAX {
            return F80(FloatClass::Infinite { negative });
        }
        let (significand, binary_exponent) =
            scale_small(&digits, exponent).unwrap_or_else(|| scale_large(&digits, exponent));
        F80::round(negative, significand, binary_exponent)
    }
}

/// Computes `digits × 10^exponent` for [`F80::round`] with 128-bit arithmetic, if that suffices, which is nearly always
/// the case.
fn scale_small(digits: &[u8], exponent: i64) -> Option<(u128, i64)> {
    /// 19 digits always fit in 64 bits.
    const DIGITS_MAX: usize = 19;
    /// 5^26 is below 2^61, so a quotient by it keeps 67 bits, and a product with it fits in 128.
    const EXPONENT_LIMIT: u64 = 26;
    if digits.len() > DIGITS_MAX || exponent.unsigned_abs() > EXPONENT_LIMIT {
        return None;
    }
    let integer = digits.iter().fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0'));
    let power = 5u128.pow(exponent.unsigned_abs() as u32);
    if exponent >= 0 {
        return Some((u128::from(integer) * power, exponent));
    }
    let shift = u128::from(integer).leading_zeros();
    let numerator = u128::from(integer) << shift;
    let sticky = u128::from(numerator % power != 0);
    Some(((numerator / power) | sticky, exponent - i64::from(shift)))
}

/// Computes `digits × 10^exponent` for any number of digits and any exponent within the limits of
/// [`DecimalText::round`].
fn scale_large(digits: &[u8], exponent: i64) -> (u128, i64) {
    let mut integer = Natural::from_decimal(digits);
    let power = exponent.unsigned_abs() as u32;
    let (significand, shift) = if exponent >= 0 {
        integer.multiply_by_power_of_five(power);
        integer.leading_bits()
    } else {
        let mut divisor = Natural::one();
        divisor.multiply_by_power_of_five(power);
        integer.divide_leading_bits(divisor)
    };
    // 10^e is 5^e × 2^e: the second factor only moves the binary point.
    (significand, shift + exponent)
}

#[cfg(test)]
mod tests;
