//! Redis's intset: integers of one width, ascending.
//!
//! ```text
//! | width: 2, 4 or 8, u32 | count, u32 | integers of that width, two's complement |     all little endian
//! ```

/// Size of the header, in bytes.
const HEADER_BYTES: usize = 8;

/// Appends a block with the integers in `ints`, each of `width` bytes.
pub fn write(out: &mut Vec<u8>, width: usize, ints: &[u8]) {
    out.extend_from_slice(&(width as u32).to_le_bytes());
    out.extend_from_slice(&((ints.len() / width.max(1)) as u32).to_le_bytes());
    out.extend_from_slice(ints);
}

/// Returns the integers of a block; none if it is invalid or they don't ascend.
#[must_use]
pub fn parse(block: &[u8]) -> Option<impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone> {
    let (header, ints) = block.split_at_checked(HEADER_BYTES)?;
    let width = u32::from_le_bytes(*header.first_chunk()?) as usize;
    let count = u32::from_le_bytes(*header.last_chunk()?) as usize;
    if !matches!(width, 2 | 4 | 8) || ints.len() % width != 0 || ints.len() / width != count {
        return None;
    }
    let all = ints.chunks_exact(width).map(int);
    let ascend = all.clone().zip(all.clone().skip(1)).all(|(before, after)| before < after);
    ascend.then_some(all)
}

fn int(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_written() {
        for (width, ints) in [(2, vec![-3, 7]), (4, vec![-40_000, 0, 40_000]), (8, vec![i64::MIN, 5, i64::MAX])] {
            let mut block = Vec::new();
            let bytes: Vec<u8> = ints.iter().flat_map(|int: &i64| int.to_le_bytes()[..width].to_vec()).collect();
            write(&mut block, width, &bytes);
            assert!(parse(&block).unwrap().eq(ints));
            for cut in 0..block.len() {
                assert!(parse(&block[..cut]).is_none());
            }
        }
    }

    #[test]
    fn integers_out_of_order_are_refused() {
        for ints in [[1u8, 0, 1, 0], [2, 0, 1, 0]] {
            let mut block = Vec::new();
            write(&mut block, 2, &ints);
            assert!(parse(&block).is_none());
        }
        assert!(parse(b"\x03\0\0\0\x01\0\0\0abc").is_none());
    }
}
