//! BITCOUNT, and counting bits at the memory's speed.

use super::range::{BitRange, Bounds};
use crate::Call;
use crate::error::Outcome;
use crate::strings::text;

pub(super) fn bitcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let bounds = Bounds::of_count(call, 2);
    let Some(view) = call.db.view(call.key(1)) else {
        // As in Redis 7, whatever the other arguments are.
        call.reply.int(0);
        return Ok(());
    };
    let bytes = text(view)?;
    let range = bounds?.and_then(|bounds| bounds.within(&bytes));
    let count = range.map_or(0, |range| count_within(&bytes, range));
    call.reply.int(count.cast_signed());
    Ok(())
}

fn count_within(bytes: &[u8], range: BitRange) -> u64 {
    let (first, last) = range.bytes();
    let outside = (bytes[first] & !range.first_mask()).count_ones() + (bytes[last] & !range.last_mask()).count_ones();
    count_ones(&bytes[first..=last]) - u64::from(outside)
}

/// Words that are counted beside each other: as many as a vector register has.
const LANES: usize = 2;
/// Groups of words that are added up before their bits are counted.
const GROUPS: usize = 16;
/// Bytes of a group.
const GROUP_BYTES: usize = LANES * size_of::<u64>();

/// As many words as a vector register has. What is done with each alike becomes vector instructions.
type Lanes = [u64; LANES];

#[inline(always)]
fn each(a: Lanes, b: Lanes, with: impl Fn(u64, u64) -> u64) -> Lanes {
    // Not by a function over arrays, which isn't inlined in every build.
    [with(a[0], b[0]), with(a[1], b[1])]
}

/// Adds three bits at each place: the high and the low bits of the sums.
#[inline(always)]
fn add(a: Lanes, b: Lanes, c: Lanes) -> (Lanes, Lanes) {
    let half = each(a, b, |a, b| a ^ b);
    let both = each(a, b, |a, b| a & b);
    let carried = each(half, c, |half, c| half & c);
    (each(both, carried, |both, carried| both | carried), each(half, c, |half, c| half ^ c))
}

#[inline(always)]
fn ones(lanes: Lanes) -> u64 {
    u64::from(lanes[0].count_ones() + lanes[1].count_ones())
}

/// How many bits are set.
///
/// By the method of Harley and Seal: a carry-save adder adds sixteen groups of words, each bit position by itself. Only the groups
/// that carry 16 then go through a population count. Where vectors have no such instruction, this takes fewer instructions for a
/// word than counting each word's bits.
fn count_ones(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<{ GROUPS * GROUP_BYTES }>();
    let mut counter = Counter::default();
    for block in blocks {
        counter.add_block(block);
    }
    let (words, tail) = rest.as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    let tail: u32 = tail.iter().map(|byte| byte.count_ones()).sum();
    counter.total() + words + u64::from(tail)
}

/// What blocks have added up to: the bits of the sums that are below sixteen, at each place, and how often sixteen bits
/// were full.
#[derive(Default)]
struct Counter {
    ones: Lanes,
    twos: Lanes,
    fours: Lanes,
    eights: Lanes,
    sixteens: u64,
}

impl Counter {
    #[inline(always)]
    fn add_block(&mut self, block: &[u8; GROUPS * GROUP_BYTES]) {
        let (groups, _) = block.as_chunks::<GROUP_BYTES>();
        let load = |group: usize| -> Lanes {
            let (words, _) = groups[group].as_chunks::<8>();
            [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
        };
        let mut eights = [Lanes::default(); 2];
        for (half, eight) in eights.iter_mut().enumerate() {
            let mut fours = [Lanes::default(); 2];
            for (quarter, four) in fours.iter_mut().enumerate() {
                let mut twos = [Lanes::default(); 2];
                for (eighth, two) in twos.iter_mut().enumerate() {
                    let at = half * 8 + quarter * 4 + eighth * 2;
                    (*two, self.ones) = add(self.ones, load(at), load(at + 1));
                }
                (*four, self.twos) = add(self.twos, twos[0], twos[1]);
            }
            (*eight, self.fours) = add(self.fours, fours[0], fours[1]);
        }
        let (sixteens, eights) = add(self.eights, eights[0], eights[1]);
        self.eights = eights;
        self.sixteens += ones(sixteens);
    }

    fn total(&self) -> u64 {
        16 * self.sixteens + 8 * ones(self.eights) + 4 * ones(self.fours) + 2 * ones(self.twos) + ones(self.ones)
    }
}
