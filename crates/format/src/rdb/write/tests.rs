//! Compares written bytes with the bytes that redis-server 7.0 writes for the same keys.

use store::entry::Entry;
use store::types::set::SetLimits;

use super::*;

fn written(options: Options, write: impl FnOnce(&mut Writer, &mut Vec<u8>)) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(options), Vec::new());
    write(&mut writer, &mut out);
    out
}

fn string(bytes: &[u8]) -> Vec<u8> {
    written(Options::default(), |writer, out| writer.string(out, bytes))
}

#[test]
fn lengths_take_as_few_bytes_as_possible() {
    for (value, expected) in [
        (0, &b"\0"[..]),
        (63, b"\x3F"),
        (64, b"\x40\x40"),
        (16_383, b"\x7F\xFF"),
        (16_384, b"\x80\0\0\x40\0"),
        (u64::from(u32::MAX), b"\x80\xFF\xFF\xFF\xFF"),
        (1 << 32, b"\x81\0\0\0\x01\0\0\0\0"),
    ] {
        let mut out = Vec::new();
        length(&mut out, value);
        assert_eq!(out, expected, "{value}");
    }
}

#[test]
fn strings_are_written_as_integers_or_compressed_or_plain() {
    for (bytes, expected) in [
        (&b""[..], &b"\0"[..]),
        (b"abc", b"\x03abc"),
        (b"-128", b"\xC0\x80"),
        (b"128", b"\xC1\x80\0"),
        (b"-32769", b"\xC2\xFF\x7F\xFF\xFF"),
        (b"2147483648", b"\x0A2147483648"),
        (b"007", b"\x03007"),
        (&[b'x'; 20], b"\x14xxxxxxxxxxxxxxxxxxxx"),
        (&[b'x'; 21], b"\xC3\x06\x15\x01xx\xE0\x0A\x00"),
    ] {
        assert_eq!(string(bytes), expected, "{:?}", bytes.escape_ascii().to_string());
    }
    let plain = written(Options { compress: false, ..Options::default() }, |writer, out| {
        writer.string(out, &[b'x'; 21]);
    });
    assert_eq!(plain[..3], *b"\x15xx");
}

#[test]
fn valkey_has_its_own_form_of_fields_that_expire() {
    // A reply of valkey-server 9.1.2 to DUMP.
    let payload = b"\x16\x02\x01a\xc0\x01{\xb4\xc5\xda\xb8\x01\x00\x00\x01b\xc0\x02\xff\xff\xff\xff\xff\xff\xff\xffP\x00\xe0\rl\xb1\xa5K\xa9s";
    let mut limits = crate::Limits::default();
    for entries in [512, 0] {
        limits.hash.listpack_entries = entries;
        let entry = crate::payload::read_value(payload, b"k", None, &limits).unwrap();
        let options = Options { target: Target::Valkey90, ..Options::default() };
        let written = written(options, |writer, out| writer.entry(out, &entry, Access::Unknown));
        let (body, _) = payload.split_at(payload.len() - 10);
        assert_eq!(written, [b"\x16\x01k", &body[1..]].concat(), "{}", entry.encoding());
    }
}

#[test]
fn a_file_of_valkey_says_so() {
    let options = Options { target: Target::Valkey90, ..Options::default() };
    for has_timed_fields in [true, false] {
        assert_eq!(written(options, |writer, out| writer.header(out, has_timed_fields)), b"VALKEY080");
    }
}

#[test]
fn a_file_has_its_parts_in_order() {
    let file = written(Options::default(), |writer, out| {
        writer.header(out, false);
        writer.aux(out, b"redis-ver", b"7.0");
        writer.select(out, 3);
        writer.resize(out, 70, 1);
        writer.entry(out, &Entry::string(b"k", b"12", Some(258)), Access::Frequency(9));
        writer.entry(out, &Entry::string(b"l", b"v", None), Access::IdleSeconds(64));
        writer.function(out, b"lib");
        writer.end(out);
    });
    let parts: [&[u8]; 8] = [
        b"REDIS0010",
        b"\xFA\x09redis-ver\x037.0",
        b"\xFE\x03",
        b"\xFB\x40\x46\x01",
        b"\xFC\x02\x01\0\0\0\0\0\0\xF9\x09\0\x01k\xC0\x0C",
        b"\xF8\x40\x40\0\x01l\x01v",
        b"\xF5\x03lib",
        b"\xFF",
    ];
    assert_eq!(file, parts.concat());
    let mut sum = Crc64::new();
    sum.update(&file);
    assert_eq!(trailer(Some(&sum)), crate::crc64::crc64(&file).to_le_bytes());
    assert_eq!(trailer(None), [0; 8]);
}

#[test]
fn a_small_set_is_a_listpack_only_for_newer_servers() {
    let mut set = Set::new();
    for member in [&b"a"[..], b"b"] {
        set.insert(member, &SetLimits::default());
    }
    let entry = Entry::object(b"s", Value::Set(set), None);
    for (target, expected) in [
        (Target::Redis70, &b"\x02\x01s\x02\x01a\x01b"[..]),
        (Target::Redis72, b"\x14\x01s\x0D\x0D\0\0\0\x02\0\x81a\x02\x81b\x02\xFF"),
    ] {
        let options = Options { target, ..Options::default() };
        assert_eq!(written(options, |writer, out| writer.entry(out, &entry, Access::Unknown)), expected);
    }
}
