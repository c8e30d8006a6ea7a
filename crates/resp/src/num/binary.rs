//! Hexadecimal floating-point text, and rounding of an exact binary value to a format's precision.

/// Smallest exponent of a double with its 53-bit significand taken as an integer: the unit of subnormal numbers.
const F64_EXPONENT_MIN: i64 = -1074;
/// Largest exponent of a double with its 53-bit significand taken as an integer.
const F64_EXPONENT_MAX: i64 = 1023 - 52;
/// Number of bits of a double's significand, including the implicit one.
const F64_PRECISION: u32 = 53;

/// Rounds `significand × 2^exponent` to at most `precision` bits and an exponent of at least `exponent_min`.
///
/// Ties go to the even neighbour, the default of IEEE 754. The lowest bit of `significand` may be sticky, representing
/// all lower bits, if there are at least two bits more than `precision`. The result has exactly `precision` bits,
/// unless it is subnormal (with the exponent `exponent_min`) or zero.
pub(crate) fn round_to_precision(significand: u128, exponent: i64, precision: u32, exponent_min: i64) -> (u64, i64) {
    if significand == 0 {
        return (0, exponent_min);
    }
    let bits = 128 - significand.leading_zeros();
    let shift = (i64::from(bits) - i64::from(precision)).max(exponent_min.saturating_sub(exponent));
    let exponent = exponent.saturating_add(shift);
    if shift <= 0 {
        // The value is exact and needs zeros appended: the result has at most `precision` bits.
        return ((significand as u64) << shift.unsigned_abs(), exponent);
    }
    if shift > i64::from(bits) {
        // The value is less than half of the smallest number.
        return (0, exponent);
    }
    // Here 0 < shift <= bits <= 128; halving keeps both shifts below 128.
    let quotient = (significand >> (shift - 1)) >> 1;
    let half = 1u128 << (shift - 1);
    let remainder = significand & (half | (half - 1));
    let round_up = remainder > half || (remainder == half && quotient & 1 == 1);
    let rounded = quotient + u128::from(round_up);
    if rounded >> precision == 0 { (rounded as u64, exponent) } else { ((rounded >> 1) as u64, exponent + 1) }
}

/// A hexadecimal floating-point number without its sign: `significand × 2^exponent`, exact unless `sticky` is set.
pub(crate) struct HexText {
    significand: u128,
    /// True if non-zero digits follow below the significand, which then has more than 120 bits.
    sticky: bool,
    exponent: i64,
}

impl HexText {
    /// Parses `0x`, digits with an optional point, and an optional `p` exponent, in C's syntax.
    pub(crate) fn scan(text: &[u8]) -> Option<Self> {
        let [b'0', b'x' | b'X', rest @ ..] = text else { return None };
        let split = rest.iter().position(|byte| byte.eq_ignore_ascii_case(&b'p'));
        let (digits, exponent) = match split {
            Some(at) => (&rest[..at], parse_exponent(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let mut number = Self { significand: 0, sticky: false, exponent };
        let mut digits_seen = false;
        let mut point_seen = false;
        for byte in digits {
            if *byte == b'.' && !point_seen {
                point_seen = true;
                continue;
            }
            let digit = char::from(*byte).to_digit(16)?;
            digits_seen = true;
            number.push_digit(u128::from(digit), point_seen);
        }
        digits_seen.then_some(number)
    }

    fn push_digit(&mut self, digit: u128, after_point: bool) {
        let room = self.significand >> 120 == 0;
        if room {
            self.significand = (self.significand << 4) | digit;
        } else {
            self.sticky |= digit != 0;
        }
        // A stored digit moves the point one digit to the right; a dropped digit before the point does not.
        let step = i64::from(!room) - i64::from(after_point);
        self.exponent = self.exponent.saturating_add(4 * step);
    }

    /// Converts to the input of [`round_to_precision`]: a significand with a sticky lowest bit, and its exponent.
    pub(crate) fn to_exact(&self) -> (u128, i64) {
        (self.significand | u128::from(self.sticky), self.exponent)
    }

    /// Rounds to the nearest double, which is infinite if the number is too large.
    pub(crate) fn to_f64(&self) -> f64 {
        let (significand, exponent) = self.to_exact();
        let (significand, exponent) = round_to_precision(significand, exponent, F64_PRECISION, F64_EXPONENT_MIN);
        if significand == 0 {
            return 0.0;
        }
        if exponent > F64_EXPONENT_MAX {
            return f64::INFINITY;
        }
        // The implicit bit, if present, adds one to the exponent field.
        let field = (exponent - F64_EXPONENT_MIN) as u64;
        f64::from_bits((field << (F64_PRECISION - 1)) + significand)
    }
}

/// Parses a decimal exponent with an optional sign; values beyond every format's range saturate.
pub(crate) fn parse_exponent(text: &[u8]) -> Option<i64> {
    /// Beyond the range of any format and any text that fits in memory, but safe to add to.
    const EXPONENT_LIMIT: i64 = 1 << 48;
    let (negative, digits) = super::split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0i64, |value, byte| {
        byte.is_ascii_digit().then(|| (value * 10 + i64::from(byte - b'0')).min(EXPONENT_LIMIT))
    })?;
    Some(if negative { -magnitude } else { magnitude })
}
