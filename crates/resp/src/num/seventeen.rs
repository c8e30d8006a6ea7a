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

/// Size of the longest text, as in `-2.2250738585072014e-308`, rounded up.
const TEXT_BYTES_MAX: usize = 32;

/// The text of one double on the stack, formatted like `%.17g`. Redis 7.2 prints only the scores of large sorted sets in ZSCAN like this.
#[derive(Clone)]
pub struct SeventeenDigits {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl SeventeenDigits {
    /// Formats a double.
    #[must_use]
    pub fn new(value: f64) -> Self {
        let mut text = Self { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        if value.is_nan() {
            text.push_all(b"nan");
            return text;
        }
        if value.is_sign_negative() {
            text.push(b'-');
        }
        if value.is_infinite() {
            text.push_all(b"inf");
        } else if value == 0.0 {
            text.push(b'0');
        } else {
            text.push_decimal(&Decimal::new(value.abs()));
        }
        text
    }

    /// The text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn push_all(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_decimal(&mut self, decimal: &Decimal) {
        let Decimal { digits, exponent } = decimal;
        let significant = DIGITS - digits.iter().rev().take_while(|&&digit| digit == b'0').count();
        match usize::try_from(*exponent) {
            Ok(point) if point < DIGITS => self.push_with_point(digits, point + 1, significant),
            Err(_) if *exponent >= PLAIN_EXPONENT_MIN => {
                self.push_all(b"0.");
                (*exponent..-1).for_each(|_| self.push(b'0'));
                self.push_all(&digits[..significant]);
            }
            _ => {
                self.push_with_point(digits, 1, significant);
                self.push_exponent(*exponent);
            }
        }
    }

    /// Writes at least `before` digits, with a point behind these if significant ones follow.
    fn push_with_point(&mut self, digits: &[u8; DIGITS], before: usize, significant: usize) {
        self.push_all(&digits[..before]);
        if before < significant {
            self.push(b'.');
            self.push_all(&digits[before..significant]);
        }
    }

    /// Writes an exponent with at least two digits.
    fn push_exponent(&mut self, exponent: i32) {
        self.push_all(if exponent < 0 { b"e-" } else { b"e+" });
        let distance = exponent.unsigned_abs();
        if distance >= 100 {
            self.push(b'0' + (distance / 100) as u8);
        }
        self.push(b'0' + (distance / 10 % 10) as u8);
        self.push(b'0' + (distance % 10) as u8);
    }
}

/// Seventeen digits, the first before the decimal point, and a power of ten.
struct Decimal {
    digits: [u8; DIGITS],
    exponent: i32,
}

impl Decimal {
    /// Rounds a positive finite double to 17 digits, ties to even.
    fn new(value: f64) -> Self {
        let exponent = exponent_of(value);
        if EXACT_EXPONENTS.contains(&exponent) && EXACT_EXPONENTS.contains(&(exponent + 1)) {
            // A number just below a power of ten has 17 digits with the lower exponent, unless it is rounded to that power.
            let exact = Self::exact(value, exponent).or_else(|| Self::exact(value, exponent + 1));
            return exact.unwrap_or_else(|| Self::printed(value));
        }
        Self::printed(value)
    }

    /// Rounds a double with this decimal exponent, one of [`EXACT_EXPONENTS`]; none if it has another one.
    fn exact(value: f64, exponent: i32) -> Option<Self> {
        let bits = value.to_bits();
        let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let shift = (bits >> 52) as i32 - 1075;
        // At most 53 bits and 22 digits, which have 74 bits.
        let scaled = mantissa * POWERS.get((DIGITS as i32 - 1 - exponent) as usize)?;
        let rounded = if shift >= 0 { scaled << shift } else { shifted_to_nearest(scaled, shift.unsigned_abs()) };
        (LIMIT / 10..LIMIT).contains(&rounded).then(|| Self { digits: digits(rounded as u64), exponent })
    }

    /// Does this for all doubles, and takes several times as long.
    fn printed(value: f64) -> Self {
        let text = format!("{value:.0$e}", DIGITS - 1);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mut digits = [b'0'; DIGITS];
        mantissa.bytes().filter(u8::is_ascii_digit).zip(&mut digits).for_each(|(digit, place)| *place = digit);
        Self { digits, exponent: exponent.parse().unwrap_or(0) }
    }
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

/// Returns the digits of a number with as many.
fn digits(number: u64) -> [u8; DIGITS] {
    itoa::Buffer::new().format(number).as_bytes().first_chunk().copied().unwrap_or([b'0'; DIGITS])
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
                    let mut expected = SeventeenDigits { bytes: [0; TEXT_BYTES_MAX], len: 0 };
                    expected.push_decimal(&printed);
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
