//! Conversion of doubles to decimal text of up to 17 digits, which reads back as the same double.

/// Number of printed digits, before trailing zeros are dropped.
const DIGITS: usize = 17;
/// The smallest number with 18 digits.
const LIMIT: u128 = 10u128.pow(DIGITS as u32);

/// Smallest exponent that is printed without exponent notation.
const PLAIN_EXPONENT_MIN: i32 = -4;
/// Exponents of the doubles that 128 bits can scale to 17 digits without loss.
const EXACT_EXPONENTS: std::ops::Range<i32> = -6..DIGITS as i32;

/// Powers of ten, up to that which scales the least of these doubles.
const POWERS: [u128; 23] = {
    let mut powers = [1; 23];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};
/// The doubles nearest to the powers of ten of [`EXACT_EXPONENTS`].
const NEAREST_POWERS: [f64; 23] = [
    1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
    1e15, 1e16,
];

/// Size of the longest text, as in `-2.2250738585072014e-308`.
const TEXT_BYTES_MAX: usize = 24;
/// Digits of a [`Decimal`] before the last one.
const LEADING_DIGITS: u32 = DIGITS as u32 - 1;

/// The text of one double on the stack, formatted like `%.17g`. Redis 7.2 prints only the scores of large sorted sets in ZSCAN like this.
#[derive(Clone)]
pub struct SeventeenDigits {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl SeventeenDigits {
    /// Formats a double.
    #[must_use]
    #[inline]
    pub fn new(value: f64) -> Self {
        let text = if value.is_nan() {
            return Words::of(b"nan").text();
        } else if value.is_infinite() {
            Words::of(b"inf")
        } else if value == 0.0 {
            Words::of(b"0")
        } else {
            let decimal = Decimal::new(value.abs());
            decimal.plain().unwrap_or_else(|| decimal.with_exponent())
        };
        if value.is_sign_negative() { text.behind(b'-'.into(), 1).text() } else { text.text() }
    }

    /// The text.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text with zeros behind it, for copies of constant length, which are faster.
    #[must_use]
    #[inline]
    pub fn padded(&self) -> (&[u8; TEXT_BYTES_MAX], usize) {
        (&self.bytes, self.len)
    }
}

/// A text in registers, its first byte in the lowest bits: loads of bytes that were just stored with another width take a dozen cycles. Bytes
/// behind the text are arbitrary.
struct Words {
    low: u128,
    high: u64,
    len: usize,
}

impl Words {
    fn of(text: &[u8]) -> Self {
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..text.len()].copy_from_slice(text);
        let (low, high) = bytes.split_at(16);
        let low = low.first_chunk().copied().unwrap_or_default();
        let high = high.first_chunk().copied().unwrap_or_default();
        Self { low: u128::from_le_bytes(low), high: u64::from_le_bytes(high), len: text.len() }
    }

    /// Puts up to seven bytes before the text.
    #[inline(always)]
    fn behind(self, prefix: u64, len: u32) -> Self {
        let (bits, rest) = (8 * len, 128 - 8 * len);
        Self {
            low: self.low << bits | u128::from(prefix),
            high: self.high << bits | (self.low >> rest) as u64,
            len: self.len + len as usize,
        }
    }

    #[inline(always)]
    fn text(&self) -> SeventeenDigits {
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..16].copy_from_slice(&self.low.to_le_bytes());
        bytes[16..].copy_from_slice(&self.high.to_le_bytes());
        SeventeenDigits { bytes, len: self.len }
    }
}

/// Seventeen digits, the first before the decimal point, and a power of ten.
struct Decimal {
    /// All digits but the last one, the first one in the lowest byte.
    leading: u128,
    last: u8,
    exponent: i32,
}

impl Decimal {
    /// Rounds a positive finite double to 17 digits, ties to even.
    #[inline]
    fn new(value: f64) -> Self {
        let exponent = exponent_of(value);
        if EXACT_EXPONENTS.contains(&exponent) && EXACT_EXPONENTS.contains(&(exponent + 1)) {
            if let Some(exact) = Self::exact(value, exponent) {
                return exact;
            }
            return Self::next_to_power(value, exponent);
        }
        Self::printed(value)
    }

    /// A number just below a power of ten has 17 digits with the lower exponent, unless it is rounded to that power.
    #[cold]
    fn next_to_power(value: f64, exponent: i32) -> Self {
        Self::exact(value, exponent + 1).unwrap_or_else(|| Self::printed(value))
    }

    /// Rounds a double with this decimal exponent, one of [`EXACT_EXPONENTS`]; none if it has another one.
    #[inline(always)]
    fn exact(value: f64, exponent: i32) -> Option<Self> {
        let bits = value.to_bits();
        let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let shift = (bits >> 52) as i32 - 1075;
        // At most 53 bits and 22 digits, which have 74 bits.
        let scaled = mantissa * POWERS.get((DIGITS as i32 - 1 - exponent) as usize)?;
        let rounded = if shift >= 0 { scaled << shift } else { shifted_to_nearest(scaled, shift.unsigned_abs()) };
        (LIMIT / 10..LIMIT).contains(&rounded).then(|| Self::of(rounded as u64, exponent))
    }

    /// A number with 17 digits.
    #[inline(always)]
    fn of(number: u64, exponent: i32) -> Self {
        let sixteen = number / 10;
        let halves = [sixteen / 100_000_000, sixteen % 100_000_000].map(|half| u128::from(eight_digits(half)));
        Self { leading: halves[0] | halves[1] << 64, last: (number % 10) as u8, exponent }
    }

    /// Number of digits without trailing zeros.
    #[inline]
    fn significant(&self) -> usize {
        if self.last > 0 { DIGITS } else { DIGITS - 1 - self.leading.leading_zeros() as usize / 8 }
    }

    /// All digits as text.
    #[inline]
    fn digits(&self) -> Words {
        Words { low: self.leading | ZEROS, high: (b'0' | self.last).into(), len: DIGITS }
    }

    /// The text without exponent notation; none if it needs that, or if the point is among the last digits.
    #[inline]
    fn plain(&self) -> Option<Words> {
        let (significant, digits) = (self.significant(), self.digits());
        if (PLAIN_EXPONENT_MIN..0).contains(&self.exponent) {
            // The point and zeros before the first digit.
            let prefix = u64::from_le_bytes(*b"0.000000");
            let text = Words { len: significant, ..digits };
            let len = 1 + self.exponent.unsigned_abs();
            return Some(text.behind(prefix & ((1 << (8 * len)) - 1), len));
        }
        let before = u32::try_from(self.exponent).ok()? + 1;
        if before >= LEADING_DIGITS {
            return None;
        }
        if before as usize >= significant {
            return Some(Words { len: before as usize, ..digits });
        }
        let (mask, point) = ((1 << (8 * before)) - 1, u128::from(b'.') << (8 * before));
        Some(Words {
            low: digits.low & mask | point | (digits.low & !mask) << 8,
            high: digits.high << 8 | (digits.low >> 120) as u64,
            len: significant + 1,
        })
    }

    /// The text of any number that isn't below one without exponent notation.
    #[inline(never)]
    fn with_exponent(&self) -> Words {
        let (digits, significant) = (self.digits().text(), self.significant());
        let digits = digits.as_bytes();
        let before = usize::try_from(self.exponent).ok().filter(|&point| point < DIGITS).map(|point| point + 1);
        let (integral, fraction) = digits.split_at(before.unwrap_or(1));
        let fraction = &fraction[..significant.saturating_sub(integral.len())];
        let mut text = integral.to_vec();
        if !fraction.is_empty() {
            text.push(b'.');
            text.extend_from_slice(fraction);
        }
        if before.is_none() {
            // At least two digits.
            let sign = if self.exponent < 0 { '-' } else { '+' };
            text.extend_from_slice(format!("e{sign}{:02}", self.exponent.unsigned_abs()).as_bytes());
        }
        Words::of(&text)
    }

    /// Does this for all doubles, and takes several times as long.
    #[inline(never)]
    fn printed(value: f64) -> Self {
        let text = format!("{value:.0$e}", DIGITS - 1);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = mantissa.bytes().filter(u8::is_ascii_digit);
        let number = digits.fold(0, |number, digit| 10 * number + u64::from(digit - b'0'));
        Self::of(number, exponent.parse().unwrap_or(0))
    }
}

/// Sixteen ASCII zeros.
const ZEROS: u128 = u128::from_le_bytes([b'0'; 16]);

/// Returns the digits of a number below 10^8, the first one in the lowest byte.
///
/// The number is split into fours, the fours into pairs and the pairs into digits, all of a kind at once. The factors are rounded reciprocals,
/// exact for numbers of this size.
#[inline]
fn eight_digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - 10 * tens) << 8)
}

/// Returns the decimal exponent of a double in the range of [`EXACT_EXPONENTS`], or one less if the double is the nearest to a power of ten.
/// Returns an exponent outside of that range for all others.
fn exponent_of(value: f64) -> i32 {
    // The binary exponent times the logarithm of 2, rounded down, is exact or one too low.
    let binary = (value.to_bits() >> 52) as i32 - 1023;
    let low = (binary * 1233) >> 12;
    let next = usize::try_from(low + 1 - EXACT_EXPONENTS.start).ok().and_then(|place| NEAREST_POWERS.get(place));
    low + i32::from(next.is_some_and(|power| value > *power))
}

/// Divides by a power of two and rounds to the nearest integer, ties to even.
fn shifted_to_nearest(value: u128, shift: u32) -> u128 {
    if shift >= u128::BITS {
        return 0;
    }
    let (whole, rest, half) = (value >> shift, value & ((1 << shift) - 1), (1 << shift) >> 1);
    let is_up = rest > half || rest == half && half > 0 && whole % 2 == 1;
    whole + u128::from(is_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts come from C's printf.
    #[test]
    fn like_printf() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (5.0, "5"),
            (0.1, "0.10000000000000001"),
            (961.243, "961.24300000000005"),
            (-2.5, "-2.5"),
            (100000.0, "100000"),
            (4611686018427387904.0, "4.6116860184273879e+18"),
            (12345678901234567.0, "12345678901234568"),
            (1e17, "1e+17"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (-961.243, "-961.24300000000005"),
            (-0.05, "-0.050000000000000003"),
            (0.0625, "0.0625"),
            (0.000123, "0.00012300000000000001"),
            (123456789012345.67, "123456789012345.67"),
            (1234567890123456.7, "1234567890123456.8"),
            (-1234567890123456.5, "-1234567890123456.5"),
            (-2.2250738585072014e-308, "-2.2250738585072014e-308"),
            (1e-7, "9.9999999999999995e-08"),
            (1e300, "1.0000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(SeventeenDigits::new(value).as_bytes(), text.as_bytes());
        }
    }

    #[test]
    fn eight_digits_are_those_of_the_number() {
        for number in (0..100_000_000).step_by(997).chain([99_999_999, 10_000, 9999, 90_909_090]) {
            let digits = eight_digits(number).to_le_bytes().map(|digit| char::from(b'0' + digit));
            assert_eq!(digits.iter().collect::<String>(), format!("{number:08}"));
        }
    }

    /// Every double in 10,000 of each range, and those that lie between two texts of 17 digits.
    #[test]
    fn both_ways_agree() {
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..20_000 {
            let anything = f64::from_bits(next() & !(1 << 63));
            let usual = (next() % 100_000_000) as f64 / [1.0, 8.0, 10.0, 1000.0, 1e9, 7.0][round % 6] + 1e-9;
            // Twenty binary places have up to eighteen digits, and the last one is 5.
            let tied = ((next() % (1 << (1 + round % 53))) | 1) as f64 / f64::from(1 << 20);
            let near_power = f64::from_bits(10f64.powi(round as i32 % 40 - 15).to_bits() + next() % 5 - 2);
            for value in [anything, usual, tied, near_power] {
                if value.is_finite() {
                    let (text, printed) = (SeventeenDigits::new(value), Decimal::printed(value));
                    let expected = printed.plain().unwrap_or_else(|| printed.with_exponent()).text();
                    assert_eq!(
                        text.as_bytes().escape_ascii().to_string(),
                        expected.as_bytes().escape_ascii().to_string()
                    );
                    assert_eq!(str::from_utf8(text.as_bytes()).unwrap().parse(), Ok(value));
                }
            }
        }
    }
}
