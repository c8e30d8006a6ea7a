//! Natural numbers of any size, with the few operations that parsing and printing long doubles need.
//!
//! Numbers stay below some 35,000 bits here, so the simple quadratic algorithms take microseconds.

/// Number of decimal digits that are printed or parsed as one group: the most that fit in 64 bits.
const GROUP_DIGITS: usize = 19;
const GROUP: u64 = 10_000_000_000_000_000_000;
/// The largest power of five that fits in 64 bits, and its exponent.
const FIVES: (u64, u32) = (7_450_580_596_923_828_125, 27);
/// Number of bits of a quotient: 64 for a significand, and more for rounding and the sticky bit.
const QUOTIENT_BITS: usize = 68;

/// Limbs of 64 bits, the least significant first; the last one isn't zero.
pub(super) struct Natural {
    limbs: Vec<u64>,
}

impl Natural {
    pub(super) fn one() -> Self {
        Self { limbs: vec![1] }
    }

    /// `value × 2^shift`.
    pub(super) fn shifted(value: u64, shift: u32) -> Self {
        let mut number = Self { limbs: vec![value] };
        number.trim();
        number.shift_left(shift as usize);
        number
    }

    /// Converts ASCII decimal digits.
    pub(super) fn from_decimal(digits: &[u8]) -> Self {
        let mut number = Self { limbs: Vec::with_capacity(digits.len() / GROUP_DIGITS + 1) };
        for group in digits.chunks(GROUP_DIGITS) {
            let value = group.iter().fold(0u64, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0') % 10));
            let factor = if group.len() == GROUP_DIGITS { GROUP } else { 10u64.pow(group.len() as u32) };
            number.multiply_add(factor, value);
        }
        number
    }

    /// Appends the number in decimal.
    pub(super) fn write_decimal(mut self, out: &mut Vec<u8>) {
        let mut groups = Vec::new();
        while !self.limbs.is_empty() {
            groups.push(self.divide_by_group());
        }
        let first = groups.pop().unwrap_or(0);
        out.extend_from_slice(crate::num::IntText::new().u64(first));
        for group in groups.into_iter().rev() {
            let start = out.len();
            out.resize(start + GROUP_DIGITS, b'0');
            let mut rest = group;
            for digit in out[start..].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }

    /// Multiplies by 5^exponent.
    pub(super) fn multiply_by_power_of_five(&mut self, exponent: u32) {
        for _ in 0..exponent / FIVES.1 {
            self.multiply_add(FIVES.0, 0);
        }
        self.multiply_add(5u64.pow(exponent % FIVES.1), 0);
    }

    /// Returns the highest 128 bits and their binary exponent. The lowest bit is set if any dropped bit was set.
    pub(super) fn leading_bits(&self) -> (u128, i64) {
        let shift = self.bits().saturating_sub(128);
        let (limb, bit) = (shift / 64, shift % 64);
        let at = |index: usize| u128::from(self.limbs.get(limb + index).copied().unwrap_or(0));
        let low = at(0) | at(1) << 64;
        let high = at(2);
        let value = if bit == 0 { low } else { low >> bit | high << (128 - bit) };
        let cut_off = self.limbs.iter().take(limb).any(|limb| *limb != 0) || at(0) & ((1 << bit) - 1) != 0;
        (value | u128::from(cut_off), shift as i64)
    }

    /// Returns the highest 67 or 68 bits of the quotient by a non-zero divisor, and their binary exponent. The lowest
    /// bit is set if any dropped bit was set.
    pub(super) fn divide_leading_bits(mut self, mut divisor: Self) -> (u128, i64) {
        // First scale so that the quotient is one or two; its bits, taken one by one, then number at most 68.
        let exponent = self.bits() as i64 - divisor.bits() as i64;
        if exponent >= 0 {
            divisor.shift_left(exponent.unsigned_abs() as usize);
        } else {
            self.shift_left(exponent.unsigned_abs() as usize);
        }
        let mut quotient = 0u128;
        for _ in 0..QUOTIENT_BITS {
            quotient <<= 1;
            if self.at_least(&divisor) {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.shift_left(1);
        }
        (quotient | u128::from(!self.limbs.is_empty()), exponent - (QUOTIENT_BITS as i64 - 1))
    }

    /// Number of bits; zero has none.
    fn bits(&self) -> usize {
        self.limbs.last().map_or(0, |top| self.limbs.len() * 64 - top.leading_zeros() as usize)
    }

    fn trim(&mut self) {
        let used = self.limbs.iter().rposition(|limb| *limb != 0).map_or(0, |last| last + 1);
        self.limbs.truncate(used);
    }

    fn multiply_add(&mut self, factor: u64, addend: u64) {
        let mut carry = addend;
        for limb in &mut self.limbs {
            let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
            *limb = product as u64;
            carry = (product >> 64) as u64;
        }
        if carry != 0 {
            self.limbs.push(carry);
        }
    }

    /// Divides by 10^19 and returns the remainder.
    fn divide_by_group(&mut self) -> u64 {
        let mut remainder = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            let value = u128::from(remainder) << 64 | u128::from(*limb);
            *limb = (value / u128::from(GROUP)) as u64;
            remainder = (value % u128::from(GROUP)) as u64;
        }
        self.trim();
        remainder
    }

    fn shift_left(&mut self, distance: usize) {
        let (limbs, bits) = (distance / 64, distance % 64);
        if bits != 0 {
            self.multiply_add(1 << bits, 0);
        }
        if limbs != 0 && !self.limbs.is_empty() {
            self.limbs.splice(0..0, std::iter::repeat_n(0, limbs));
        }
    }

    fn at_least(&self, other: &Self) -> bool {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev())).is_ge()
    }

    /// Subtracts a number that isn't larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (index, limb) in self.limbs.iter_mut().enumerate() {
            let taken = other.limbs.get(index).copied().unwrap_or(0);
            let (difference, under) = limb.overflowing_sub(taken);
            let (difference, under_again) = difference.overflowing_sub(u64::from(borrow));
            *limb = difference;
            borrow = under || under_again;
        }
        self.trim();
    }
}
