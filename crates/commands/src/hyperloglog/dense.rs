//! The dense form: 16384 registers of six bits.
//!
//! ```text
//!   byte 0     byte 1     byte 2     byte 3
//! ┌──────────┬──────────┬──────────┬──────────┐
//! │ 11000000 │ 22221111 │ 33333322 │ 55444444 │ ...   a digit is the register that the bit belongs to
//! └──────────┴──────────┴──────────┴──────────┘
//! ```
//!
//! Each register's lowest bit comes first. Eight registers are six bytes, of which a little-endian word is made: register
//! `i` of the eight is its bits from `6 * i` on.

/// Bits of a hash that say which register an element is counted in.
pub(super) const INDEX_BITS: u32 = 14;
/// Registers of a HyperLogLog.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a register.
const REGISTER_BITS: usize = 6;
/// The greatest value of a register of the dense form.
const VALUE_MAX: usize = (1 << REGISTER_BITS) - 1;
/// Bytes of all registers.
pub(super) const REGISTERS_BYTES: usize = REGISTERS * REGISTER_BITS / 8;

/// Registers with a byte each, as they are merged and counted.
pub(super) type Registers = [u8; REGISTERS];

/// How many registers have each value.
pub(super) type Histogram = [u32; VALUE_MAX + 1];

/// The two bytes that a register is in, of which the second may be missing, and its lowest bit.
#[inline]
fn place(register: usize) -> (usize, usize) {
    (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8)
}

/// The value of a register.
#[inline]
pub(super) fn get(packed: &[u8], register: usize) -> u8 {
    let (byte, bit) = place(register);
    let at = |byte: usize| u16::from(packed.get(byte).copied().unwrap_or(0));
    ((at(byte) | at(byte + 1) << 8) >> bit) as u8 & VALUE_MAX as u8
}

/// Sets a register to a value that is 63 at most.
#[inline]
pub(super) fn set(packed: &mut [u8], register: usize, value: u8) {
    let (byte, bit) = place(register);
    let (clear, set) = (!((VALUE_MAX as u16) << bit), u16::from(value) << bit);
    let changed = |old: u8, shift: u32| old & (clear >> shift) as u8 | (set >> shift) as u8;
    if let Some(low) = packed.get_mut(byte) {
        *low = changed(*low, 0);
    }
    // The last register ends with the last byte.
    if let Some(high) = packed.get_mut(byte + 1) {
        *high = changed(*high, 8);
    }
}

/// Raises a register to a value. Says whether it was below.
#[inline]
pub(super) fn raise(packed: &mut [u8], register: usize, value: u8) -> bool {
    let is_below = get(packed, register) < value;
    if is_below {
        set(packed, register, value);
    }
    is_below
}

/// Four registers of three bytes, a byte each.
#[inline(always)]
fn spread(three: u32) -> u32 {
    let twelve = three & 0xfff | (three & 0xff_f000) << 4;
    twelve & 0x3f_003f | (twelve & 0xfc0_0fc0) << 2
}

/// Raises registers to those of a dense HyperLogLog.
pub(super) fn merge(registers: &mut Registers, packed: &[u8; REGISTERS_BYTES]) {
    // Sixteen registers at a time, which vector instructions spread and compare.
    let (sixteens, _) = registers.as_chunks_mut::<16>();
    let (twelves, _) = packed.as_chunks::<12>();
    for (sixteen, twelve) in sixteens.iter_mut().zip(twelves) {
        let word = |at: usize| u32::from_le_bytes([twelve[at], twelve[at + 1], twelve[at + 2], 0]);
        let words = [0, 3, 6, 9].map(|at| spread(word(at)));
        let (fours, _) = sixteen.as_chunks_mut::<4>();
        for (four, word) in fours.iter_mut().zip(words) {
            *four = std::array::from_fn(|i| four[i].max(word.to_le_bytes()[i]));
        }
    }
}

/// Writes registers in the dense form.
pub(super) fn pack(registers: &Registers, packed: &mut [u8]) {
    let (eights, _) = registers.as_chunks::<8>();
    let (sixes, _) = packed.as_chunks_mut::<6>();
    for (six, eight) in sixes.iter_mut().zip(eights) {
        let bytes = u64::from_le_bytes(*eight);
        let twelve = bytes & 0x003f_003f_003f_003f | (bytes & 0x3f00_3f00_3f00_3f00) >> 2;
        let twenty_four = twelve & 0x0fff_0000_0fff | (twelve & 0x0fff_0000_0fff_0000) >> 4;
        let packed = twenty_four & 0xff_ffff | (twenty_four & 0x00ff_ffff_0000_0000) >> 8;
        six.copy_from_slice(&packed.to_le_bytes()[..6]);
    }
}

/// Counts pairs of neighbours first: that takes half as many steps that wait for each other as counting registers.
struct Pairs([u16; 1 << (2 * REGISTER_BITS)]);

impl Pairs {
    #[inline(always)]
    fn count(&mut self, pair: usize) {
        self.0[pair % (1 << (2 * REGISTER_BITS))] += 1;
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = [0; VALUE_MAX + 1];
        let (rows, _) = self.0.as_chunks::<{ VALUE_MAX + 1 }>();
        for (value, row) in rows.iter().enumerate() {
            // Most values don't occur.
            if row.iter().fold(0, |any, count| any | count) != 0 {
                histogram.iter_mut().zip(row).for_each(|(sum, count)| *sum += u32::from(*count));
                histogram[value] += row.iter().map(|count| u32::from(*count)).sum::<u32>();
            }
        }
        histogram
    }
}

/// How many registers of a dense HyperLogLog have each value.
pub(super) fn histogram(packed: &[u8; REGISTERS_BYTES]) -> Histogram {
    let mut pairs = Pairs([0; _]);
    let (sixes, _) = packed.as_chunks::<6>();
    for six in sixes {
        let [a, b, c, d, e, f] = *six;
        let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) as usize;
        pairs.count(word);
        pairs.count(word >> 12);
        pairs.count(word >> 24);
        pairs.count(word >> 36);
    }
    pairs.histogram()
}

/// How many registers have each value. Values are 63 at most.
pub(super) fn histogram_of(registers: &Registers) -> Histogram {
    let mut pairs = Pairs([0; _]);
    let (twos, _) = registers.as_chunks::<2>();
    for [low, high] in twos {
        pairs.count(usize::from(*low) | usize::from(*high) << REGISTER_BITS);
    }
    pairs.histogram()
}
