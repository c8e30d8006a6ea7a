//! CRC16/XMODEM (polynomial 0x1021, initial value 0), eight bytes a step.

const POLYNOMIAL: u16 = 0x1021;

/// `TABLES[k][b]` is the checksum of the byte `b` followed by `k` zero bytes.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut table = 0;
        while table < 8 {
            crc = eight_bits(crc);
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// Shifts eight zero bits into a checksum.
const fn eight_bits(mut crc: u16) -> u16 {
    let mut bit = 0;
    while bit < 8 {
        crc = if crc & 0x8000 != 0 { crc << 1 ^ POLYNOMIAL } else { crc << 1 };
        bit += 1;
    }
    crc
}

/// The checksum of some bytes.
#[inline]
pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<8>();
    let crc = blocks.iter().fold(0, |crc, block| eight_bytes(crc, *block));
    rest.iter().fold(crc, |crc, &byte| crc << 8 ^ TABLES[0][usize::from((crc >> 8) as u8 ^ byte)])
}

#[inline]
fn eight_bytes(crc: u16, block: [u8; 8]) -> u16 {
    let [high, low] = crc.to_be_bytes();
    let at = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
    let first = at(7, block[0] ^ high) ^ at(6, block[1] ^ low) ^ at(5, block[2]) ^ at(4, block[3]);
    first ^ at(3, block[4]) ^ at(2, block[5]) ^ at(1, block[6]) ^ at(0, block[7])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit_by_bit(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| eight_bits(crc ^ u16::from(byte) << 8))
    }

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn all_lengths_equal_the_definition() {
        let bytes: Vec<u8> = (0..100u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        for start in 0..9 {
            for end in start..bytes.len() {
                assert_eq!(crc16(&bytes[start..end]), bit_by_bit(&bytes[start..end]), "{start}..{end}");
            }
        }
    }
}
