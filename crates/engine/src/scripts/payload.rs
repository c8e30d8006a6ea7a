//! Libraries in the form that FUNCTION DUMP gives and FUNCTION RESTORE takes, which is Redis's own.
//!
//! For each library a byte 0xF5 and its text as a string of Redis's snapshot format; then the format's version, two
//! bytes, the lower first; then a checksum of all that, eight bytes, the lowest first. Source: the description of the
//! format in Redis's documentation of DUMP and in "Redis RDB Dump File Format" (rdb.fnordig.de), and Rocksoft's model
//! of CRC-64-Jones: polynomial 0xad93d23594c935a9, reflected, beginning with 0.

/// What a library begins with.
const LIBRARY: u8 = 0xF5;
/// The version of the format that Redis 7.0 reads and writes.
const VERSION: u16 = 10;
/// The highest version that is known to have the same strings.
const VERSION_MAX: u16 = 12;
/// Bytes of the version and the checksum.
const FOOTER_BYTES: usize = 10;
/// Bytes that a string may claim to have.
const TEXT_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A checksum that has been begun with `crc`.
fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    /// The polynomial's bits in reverse.
    const REVERSED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    bytes.iter().fold(crc, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ REVERSED })
    })
}

/// Texts of libraries as one payload.
#[must_use]
pub(crate) fn encode<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Vec<u8> {
    let mut payload = Vec::new();
    for text in texts {
        payload.push(LIBRARY);
        match text.len() {
            len @ 0..64 => payload.push(len as u8),
            len @ 64..16384 => payload.extend([0x40 | (len >> 8) as u8, len as u8]),
            len => {
                payload.push(0x80);
                payload.extend((len as u32).to_be_bytes());
            }
        }
        payload.extend_from_slice(text);
    }
    payload.extend(VERSION.to_le_bytes());
    payload.extend(crc64(0, &payload).to_le_bytes());
    payload
}

/// Why a payload is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadPayload {
    /// The version is unknown or the checksum wrong.
    Footer,
    /// It holds something else than libraries.
    Contents,
}

/// The texts of libraries in a payload.
pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Vec<u8>>, BadPayload> {
    let (mut rest, footer) = payload
        .len()
        .checked_sub(FOOTER_BYTES)
        .and_then(|at| payload.split_at_checked(at))
        .ok_or(BadPayload::Footer)?;
    let (summed, sum) = payload.split_at(payload.len() - 8);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    if version > VERSION_MAX || crc64(0, summed).to_le_bytes() != sum {
        return Err(BadPayload::Footer);
    }
    let mut texts = Vec::new();
    while let Some((&LIBRARY, after)) = rest.split_first() {
        let (text, after) = string(after).ok_or(BadPayload::Contents)?;
        texts.push(text);
        rest = after;
    }
    if rest.is_empty() { Ok(texts) } else { Err(BadPayload::Contents) }
}

/// A length, or the kind of a string that is stored in a special way; and what comes after.
fn length(bytes: &[u8]) -> Option<(Result<usize, u8>, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    match first >> 6 {
        0 => Some((Ok(usize::from(first & 63)), rest)),
        1 => {
            let (&second, rest) = rest.split_first()?;
            Some((Ok(usize::from(first & 63) << 8 | usize::from(second)), rest))
        }
        2 if first == 0x80 => {
            let (len, rest) = rest.split_first_chunk::<4>()?;
            Some((Ok(u32::from_be_bytes(*len) as usize), rest))
        }
        2 if first == 0x81 => {
            let (len, rest) = rest.split_first_chunk::<8>()?;
            Some((Ok(usize::try_from(u64::from_be_bytes(*len)).ok()?), rest))
        }
        3 => Some((Err(first & 63), rest)),
        _ => None,
    }
}

fn string(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    /// A string that is compressed.
    const COMPRESSED: u8 = 3;
    let (len, rest) = length(bytes)?;
    match len {
        Ok(len) => {
            let (text, rest) = rest.split_at_checked(len)?;
            Some((text.to_vec(), rest))
        }
        Err(COMPRESSED) => {
            let (packed, rest) = length(rest)?;
            let (unpacked, rest) = length(rest)?;
            let (packed, rest) = rest.split_at_checked(packed.ok()?)?;
            Some((unpack(packed, unpacked.ok()?)?, rest))
        }
        // An integer is no library.
        Err(_) => None,
    }
}

/// Unpacks LZF: runs of up to 32 bytes as they are, and copies of what came before.
fn unpack(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > TEXT_BYTES_MAX {
        return None;
    }
    let mut text = Vec::new();
    while let Some((&control, rest)) = packed.split_first() {
        if control < 32 {
            let (run, rest) = rest.split_at_checked(usize::from(control) + 1)?;
            text.extend_from_slice(run);
            packed = rest;
            continue;
        }
        let mut count = usize::from(control >> 5);
        let mut rest = rest;
        if count == 7 {
            let (&more, after) = rest.split_first()?;
            count += usize::from(more);
            rest = after;
        }
        let (&low, rest) = rest.split_first()?;
        let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
        let from = text.len().checked_sub(back)?;
        if text.len() + count + 2 > len {
            return None;
        }
        // Byte by byte: the copy may reach into itself.
        for i in from..from + count + 2 {
            text.push(text[i]);
        }
        packed = rest;
    }
    (text.len() == len).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_redis_s() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let texts: Vec<Vec<u8>> = [0, 1, 63, 64, 16383, 16384, 70000].iter().map(|&n| vec![b'x'; n]).collect();
        let payload = encode(texts.iter().map(Vec::as_slice));
        assert_eq!(decode(&payload).unwrap(), texts);
        for cut in 0..payload.len().min(200) {
            assert_eq!(decode(&payload[..cut]), Err(BadPayload::Footer));
        }
        let sealed = |body: &[u8]| {
            let mut payload = [body, &VERSION.to_le_bytes()].concat();
            payload.extend(crc64(0, &payload).to_le_bytes());
            payload
        };
        for bad in [&b"\xf6\x01x"[..], b"\xf5\x02x", b"\xf5\xc0\x01", b"\xf5\xc3\x02\x05\x20\x00", b"\xf5\x82", b"\xf5"]
        {
            assert_eq!(decode(&sealed(bad)), Err(BadPayload::Contents), "{bad:?}");
        }
        // Ten times "ab": two bytes as they are, and a copy of eighteen from two before.
        assert_eq!(decode(&sealed(b"\xf5\xc3\x06\x14\x01ab\xe0\x09\x01")).unwrap(), [b"ab".repeat(10)]);
    }
}
