//! The text of INFO, field by field.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::Write as _;

use resp::num::{write_i64, write_u64};

/// Capacity for the text of the default sections.
const TEXT_BYTES_USUAL: usize = 12 << 10;

/// The text so far.
pub(super) struct InfoText(Vec<u8>);

impl InfoText {
    /// Returns an empty text.
    pub(super) fn new() -> Self {
        InfoText(Vec::with_capacity(TEXT_BYTES_USUAL))
    }

    /// Returns the text.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Begins a section.
    pub(super) fn begin_section(&mut self, title: &str) {
        self.parts(&[if self.0.is_empty() { "# " } else { "\r\n# " }, title, "\r\n"]);
    }

    /// Writes a field.
    pub(super) fn field(&mut self, name: &str, value: impl Figure) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b':');
        self.last(value);
    }

    /// Writes parts of a field.
    pub(super) fn parts(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.0.extend_from_slice(part.as_bytes()));
    }

    /// Writes a part of a field.
    pub(super) fn add(&mut self, part: impl Figure) {
        part.write(&mut self.0);
    }

    /// Writes the last part of a field.
    pub(super) fn last(&mut self, part: impl Figure) {
        part.write(&mut self.0);
        self.end_field();
    }

    /// Ends a line. Pushing bytes takes less time than copying them.
    fn end_field(&mut self) {
        self.0.push(b'\r');
        self.0.push(b'\n');
    }

    /// Writes a number of bytes, for programs and for people.
    pub(super) fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.parts(&[name]);
        self.field("_human", HumanBytes(bytes));
    }

    /// Writes constant fields, in Redis's words.
    pub(super) fn constants(&mut self, fields: &[(&str, &str)]) {
        fields.iter().for_each(|(name, value)| self.field(name, *value));
    }
}

/// A value of a field. Numbers and texts are written without formatting, which would take several times as long.
pub(super) trait Figure {
    /// Appends the value.
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($kind:ty as $wide:ty, $write:ident;)*) => {
        $(impl Figure for $kind {
            fn write(&self, out: &mut Vec<u8>) {
                $write(out, *self as $wide);
            }
        })*
    };
}

integers! {
    u8 as u64, write_u64;
    u16 as u64, write_u64;
    u32 as u64, write_u64;
    u64 as u64, write_u64;
    usize as u64, write_u64;
    i32 as i64, write_i64;
    i64 as i64, write_i64;
}

macro_rules! texts {
    ($($kind:ty)*) => {
        $(impl Figure for $kind {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
        })*
    };
}

texts! { &str String &String Cow<'_, str> }

impl Figure for Arguments<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        // Writing to a vector can't fail.
        let _ = out.write_fmt(*self);
    }
}

/// A time in microseconds with three decimals.
pub(super) struct Microseconds(pub(super) f64);

impl Figure for Microseconds {
    fn write(&self, out: &mut Vec<u8>) {
        let ns = (self.0 * 1000.0).round() as u64;
        write_u64(out, ns / 1000);
        let digit = |divisor: u64| b'0' + (ns / divisor % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    }
}

/// A number of bytes for people, in Redis's form: with two decimals of the largest fitting unit, ties to even.
struct HumanBytes(u64);

impl Figure for HumanBytes {
    fn write(&self, out: &mut Vec<u8>) {
        const UNITS: &[u8; 5] = b"KMGTP";
        let unit = (self.0.max(1).ilog2() / 10) as usize;
        let Some(letter) = unit.checked_sub(1).map(|unit| UNITS[unit.min(UNITS.len() - 1)]) else {
            write_u64(out, self.0);
            return out.push(b'B');
        };
        let hundredths = rounded_shift(u128::from(self.0) * 100, 10 * unit.min(UNITS.len()) as u32);
        write_u64(out, hundredths / 100);
        out.extend_from_slice(&[b'.', b'0' + (hundredths / 10 % 10) as u8, b'0' + (hundredths % 10) as u8, letter]);
    }
}

/// Divides by a power of two and rounds to the nearest, ties to even. `bits` is at least 1.
fn rounded_shift(number: u128, bits: u32) -> u64 {
    let (quotient, rest) = (number >> bits, number & ((1 << bits) - 1));
    let half = 1 << (bits - 1);
    (quotient + u128::from(rest > half || rest == half && quotient % 2 == 1)) as u64
}

/// Formats a part in percent; 0 if the whole is 0.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn human_bytes(bytes: u64) -> String {
        let mut out = Vec::new();
        HumanBytes(bytes).write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bytes_are_shown_as_redis_does() {
        for (bytes, shown) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1 << 20, "1.00M"),
            (3 << 29, "1.50G"),
            (1 << 40, "1.00T"),
            (u64::MAX, "16384.00P"),
        ] {
            assert_eq!(human_bytes(bytes), shown);
        }
    }

    #[test]
    fn bytes_are_rounded_as_the_formatter_rounds_them() {
        let mut bytes = 1 << 10;
        while bytes < 1 << 20 {
            assert_eq!(human_bytes(bytes), format!("{:.2}K", bytes as f64 / 1024.0), "{bytes}");
            assert_eq!(human_bytes(bytes << 20), format!("{:.2}G", bytes as f64 / 1024.0), "{bytes} MB");
            bytes += 1;
        }
    }

    #[test]
    fn microseconds_have_three_decimals() {
        for (us, shown) in [
            (0.0, "0.000"),
            (0.0004, "0.000"),
            (0.0006, "0.001"),
            (12.0, "12.000"),
            (3456.789, "3456.789"),
            (0.0996, "0.100"),
        ] {
            let mut out = Vec::new();
            Microseconds(us).write(&mut out);
            assert_eq!(out, shown.as_bytes());
        }
    }
}
