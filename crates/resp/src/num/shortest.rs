//! Conversion of doubles to short decimal text that reads back as the same double.
//!
//! The digits come from the Grisu2 algorithm (Florian Loitsch, "Printing Floating-Point Numbers Quickly and Accurately
//! with Integers", PLDI 2010), which Redis 7.2 uses. In about one of a thousand cases they are not the shortest or not
//! the nearest, so an algorithm for the shortest digits would not produce Redis's bytes.

use super::IntText;

/// Size of the longest text: a sign, 17 digits, and 7 zeros, a point or an exponent; rounded up.
const TEXT_BYTES_MAX: usize = 32;
/// Largest number of digits that Grisu2 generates for a double, plus one.
const DIGITS_MAX: usize = 18;
/// Doubles without a fraction between minus and plus this limit are printed as integers (half of the range of `i64`).
const INTEGER_LIMIT: f64 = (i64::MAX / 2) as f64;

/// The text of one double on the stack, as in replies of Redis 7.2.
#[derive(Clone)]
pub struct FloatText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl FloatText {
    /// Formats a double: integers without a point, `inf`, `-inf`, `nan`, and all others with the digits that identify
    /// them.
    pub fn new(value: f64) -> Self {
        let mut text = Self { bytes: [0; TEXT_BYTES_MAX], len: 0 };
        if value.is_nan() {
            text.push_all(b"nan");
        } else if (-INTEGER_LIMIT..=INTEGER_LIMIT).contains(&value) && value.trunc() == value {
            text.push_integer(value);
        } else {
            if value < 0.0 {
                text.push(b'-');
            }
            if value.is_infinite() { text.push_all(b"inf") } else { text.push_decimal(&Decimal::new(value.abs())) }
        }
        text
    }

    /// The text.
    #[inline]
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

    fn push_zeros(&mut self, count: usize) {
        (0..count).for_each(|_| self.push(b'0'));
    }

    fn push_integer(&mut self, value: f64) {
        if value == 0.0 && value.is_sign_negative() {
            self.push(b'-');
        }
        self.push_all(IntText::new().i64(value as i64));
    }

    /// Chooses between three layouts as fpconv does: a plain integer if it needs few zeros, a plain fraction if it is
    /// near one or has few places, and an exponent otherwise.
    fn push_decimal(&mut self, decimal: &Decimal) {
        let digits = decimal.digits();
        let scientific_exponent = decimal.exponent + digits.len() as i32 - 1;
        let distance = scientific_exponent.unsigned_abs() as usize;
        match usize::try_from(decimal.exponent) {
            Ok(zeros) if distance < digits.len() + 7 => {
                self.push_all(digits);
                self.push_zeros(zeros);
            }
            Err(_) if decimal.exponent > -7 || distance < 4 => {
                self.push_fraction(digits, decimal.exponent.unsigned_abs() as usize);
            }
            _ => self.push_scientific(digits, scientific_exponent),
        }
    }

    fn push_fraction(&mut self, digits: &[u8], places: usize) {
        let integer_digits = digits.len().saturating_sub(places);
        let (integer, fraction) = digits.split_at(integer_digits);
        if integer.is_empty() {
            self.push(b'0')
        } else {
            self.push_all(integer)
        }
        self.push(b'.');
        self.push_zeros(places - fraction.len());
        self.push_all(fraction);
    }

    fn push_scientific(&mut self, digits: &[u8], exponent: i32) {
        let (first, rest) = digits.split_at(1);
        self.push_all(first);
        if !rest.is_empty() {
            self.push(b'.');
            self.push_all(rest);
        }
        self.push(b'e');
        self.push(if exponent < 0 { b'-' } else { b'+' });
        self.push_all(IntText::new().u64(u64::from(exponent.unsigned_abs())));
    }
}

/// Appends the text of a double in the form of [`FloatText`].
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(FloatText::new(value).as_bytes());
}

/// `significand × 2^exponent`.
#[derive(Clone, Copy)]
struct Scaled {
    significand: u64,
    exponent: i32,
}

/// The interval of numbers that read back as one double, from `lower` to `upper`; all three share one exponent.
struct Interval {
    upper: u64,
    value: u64,
    lower: u64,
    exponent: i32,
}

impl Interval {
    /// Returns the interval around a positive finite double, shifted so that the highest bit of `upper` and `value` is
    /// set.
    fn around(value: f64) -> Self {
        const HIDDEN_BIT: u64 = 1 << 52;
        let bits = value.to_bits();
        let fraction = bits & (HIDDEN_BIT - 1);
        let (significand, exponent) = match (bits >> 52) as i32 & 0x7ff {
            0 => (fraction, -1074),
            biased => (fraction | HIDDEN_BIT, biased - 1075),
        };
        let shift = significand.leading_zeros();
        let upper = (2 * significand + 1) << (shift - 1);
        // The gap below a power of two is half as wide as the one above it.
        let lower = if significand == HIDDEN_BIT {
            (4 * significand - 1) << (shift - 2)
        } else {
            (2 * significand - 1) << (shift - 1)
        };
        Self { upper, value: significand << shift, lower, exponent: exponent - shift as i32 }
    }

    /// Multiplies the interval by a power of ten and narrows it by one unit on each side, since each product may be off
    /// by one.
    fn scale(&self, power: Scaled) -> Self {
        Self {
            upper: multiply_high(self.upper, power.significand) - 1,
            value: multiply_high(self.value, power.significand),
            lower: multiply_high(self.lower, power.significand) + 1,
            exponent: self.exponent + power.exponent + 64,
        }
    }
}

/// The upper half of a product, rounded to the nearest.
fn multiply_high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b) + (1 << 63)) >> 64) as u64
}

/// Decimal digits times a power of ten.
struct Decimal {
    buffer: [u8; DIGITS_MAX],
    len: usize,
    exponent: i32,
}

impl Decimal {
    /// Computes the digits of a positive finite double.
    fn new(value: f64) -> Self {
        let interval = Interval::around(value);
        let (power, decimal_exponent) = power_for(interval.exponent);
        let mut decimal = Self { buffer: [0; DIGITS_MAX], len: 0, exponent: -decimal_exponent };
        decimal.generate(&interval.scale(power));
        decimal
    }

    fn digits(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Appends a digit, except for a leading zero.
    fn push(&mut self, digit: u64) {
        if digit != 0 || self.len != 0 {
            self.buffer[self.len] = b'0' + digit as u8;
            self.len += 1;
        }
    }

    /// Generates digits of the upper end of the interval until the rest is within the interval.
    fn generate(&mut self, scaled: &Interval) {
        // [`power_for`] puts the binary point between bits 32 and 60, so the integral part fits in 32 bits.
        let point = scaled.exponent.unsigned_abs();
        let one = 1u64 << point;
        let mut integral = scaled.upper >> point;
        let mut fraction = scaled.upper & (one - 1);
        let mut width = scaled.upper - scaled.lower;
        let mut distance = scaled.upper - scaled.value;

        let mut unit = 1_000_000_000u64;
        for digits_left in (0..10).rev() {
            self.push(integral / unit);
            integral %= unit;
            let rest = (integral << point) + fraction;
            if rest <= width {
                self.exponent += digits_left;
                return self.approach(width, rest, unit << point, distance);
            }
            unit /= 10;
        }
        // No product overflows: `fraction` is below 2^60, and `width` and `distance` do not exceed it.
        loop {
            fraction *= 10;
            width *= 10;
            distance *= 10;
            self.exponent -= 1;
            self.push(fraction >> point);
            fraction &= one - 1;
            if fraction < width {
                return self.approach(width, fraction, one, distance);
            }
        }
    }

    /// Lowers the last digit while that brings the number nearer to the value and keeps it within the interval.
    ///
    /// `width`, `rest` and `distance` are distances from the upper end: to the lower end, to the current number, and to
    /// the value. `unit` is the weight of the last digit.
    fn approach(&mut self, width: u64, mut rest: u64, unit: u64, distance: u64) {
        while rest < distance
            && width - rest >= unit
            && (rest + unit < distance || distance - rest > rest + unit - distance)
        {
            self.buffer[self.len - 1] -= 1;
            rest += unit;
        }
    }
}

/// Decimal exponent of the first entry of [`POWERS`].
const POWER_FIRST: i32 = -348;
/// Difference between decimal exponents of neighbouring entries of [`POWERS`].
const POWER_STEP: i32 = 8;

/// Returns the smallest cached power of ten that scales a number of this binary exponent to an exponent between -60 and
/// -32, with its decimal exponent.
fn power_for(exponent: i32) -> (Scaled, i32) {
    // Both factors are log10(2) and log2(10) in fixed point, exact enough for every exponent of a double.
    let decimal_min = -((-(-124 - exponent + 63) * 315_653) >> 20);
    let index = (decimal_min - POWER_FIRST + POWER_STEP - 1) / POWER_STEP;
    let decimal = POWER_FIRST + index * POWER_STEP;
    let power = Scaled { significand: POWERS[index as usize], exponent: power_exponent(decimal) };
    (power, decimal)
}

/// The binary exponent of a power of ten with a 64-bit significand: the floor of its logarithm, minus 63.
const fn power_exponent(decimal: i32) -> i32 {
    ((decimal * 1_741_647) >> 19) - 63
}

/// Significands of the powers of ten from 10^-348 in steps of 10^8, each rounded to 64 bits.
#[rustfmt::skip]
pub(super) const POWERS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288, 0xbaae_e17f_a23e_bf76, 0x8b16_fb20_3055_ac76, 0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d, 0xe61a_cf03_3d1a_45df, 0xab70_fe17_c79a_c6ca, 0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c, 0x8dd0_1fad_907f_fc3c, 0xd351_5c28_3155_9a83, 0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb, 0xaecc_4991_4078_536d, 0x823c_1279_5db6_ce57, 0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f, 0xd774_85cb_2582_3ac7, 0xa086_cfcd_97bf_97f4, 0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e, 0x84c8_d4df_d2c6_3f3b, 0xc5dd_4427_1ad3_cdba, 0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584, 0xa3ab_6658_0d5f_daf6, 0xf3e2_f893_dec3_f126, 0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b, 0xc9bc_ff60_34c1_3053, 0x964e_858c_91ba_2655, 0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f, 0xf8a9_5fcf_8874_7d94, 0xb944_7093_8fa8_9bcf, 0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6, 0x993f_e2c6_d07b_7fac, 0xe45c_10c4_2a2b_3b06, 0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e, 0xbce5_0864_9211_1aeb, 0x8cbc_cc09_6f50_88cc, 0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000, 0xe8d4_a510_0000_0000, 0xad78_ebc5_ac62_0000, 0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3, 0x8f7e_32ce_7bea_5c70, 0xd5d2_38a4_abe9_8068, 0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27, 0xb0de_6538_8cc8_ada8, 0x83c7_088e_1aab_65db, 0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758, 0xda01_ee64_1a70_8dea, 0xa26d_a399_9aef_774a, 0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877, 0x865b_8692_5b9b_c5c2, 0xc835_53c5_c896_5d3d, 0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3, 0xa59b_c234_db39_8c25, 0xf6c6_9a72_a398_9f5c, 0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2, 0xcc20_ce9b_d35c_78a5, 0x9816_5af3_7b21_53df, 0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396, 0xfb9b_7cd9_a4a7_443c, 0xbb76_4c4c_a7a4_4410, 0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c, 0x9b10_a4e5_e991_3129, 0xe710_9bfb_a19c_0c9d, 0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85, 0xbf21_e440_03ac_dd2d, 0x8e67_9c2f_5e44_ff8f, 0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9, 0xeb96_bf6e_badf_77d9, 0xaf87_023b_9bf0_ee6b,
];
