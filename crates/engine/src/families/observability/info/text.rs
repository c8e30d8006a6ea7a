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
        self.parts(&[name, ":"]);
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
        self.0.extend_from_slice(b"\r\n");
    }

    /// Writes a number of bytes, for programs and for people.
    pub(super) fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.parts(&[name]);
        self.field("_human", human_bytes(bytes));
    }

    /// Writes constant fields, in Redis's words.
    pub(super) fn constants(&mut self, fields: &[(&str, &str)]) {
        fields.iter().for_each(|(name, value)| self.parts(&[name, ":", value, "\r\n"]));
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

/// Formats a number of bytes for people, in Redis's form.
fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", UNITS[unit])
}

/// Formats a part in percent; 0 if the whole is 0.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

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
