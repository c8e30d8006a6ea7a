//! The names of histories, and places in them.

use std::fmt;

/// Forty hexadecimal digits that name a history: the changes of one primary, in one order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HistoryId([u8; HistoryId::LEN]);

impl HistoryId {
    /// Number of digits of a name.
    pub const LEN: usize = 40;
    /// The name for no history.
    pub const NONE: HistoryId = HistoryId([b'0'; HistoryId::LEN]);

    /// Returns the name with these bits.
    #[must_use]
    pub fn new(random: [u8; HistoryId::LEN / 2]) -> HistoryId {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |index: usize| {
            let byte = random[index / 2];
            DIGITS[usize::from(if index.is_multiple_of(2) { byte >> 4 } else { byte & 15 })]
        };
        HistoryId(std::array::from_fn(digit))
    }

    /// Parses a name sent by another server. Returns `None` for an invalid one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<HistoryId> {
        let digits: [u8; HistoryId::LEN] = text.try_into().ok()?;
        digits.iter().all(u8::is_ascii_alphanumeric).then_some(HistoryId(digits))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // ASCII by construction.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The state of a data set: a history up to an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPoint {
    /// The history's name.
    pub id: HistoryId,
    /// Bytes of the history.
    pub offset: u64,
    /// The database selected in the stream at this offset.
    pub database: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_forty_digits() {
        let id = HistoryId::new(std::array::from_fn(|index| index as u8 * 13));
        assert_eq!(id.as_str(), "000d1a2734414e5b6875828f9ca9b6c3d0ddeaf7");
        assert_eq!(HistoryId::parse(id.as_str().as_bytes()), Some(id));
        assert_eq!(HistoryId::parse(b"?"), None);
        assert_eq!(HistoryId::parse(&[b' '; 40]), None);
        assert_eq!(HistoryId::parse(&[b'0'; 40]), Some(HistoryId::NONE));
    }
}
