//! Files of real servers, created by `interop/rdb_fixtures.py`, contain the data that those servers reported, also
//! after reading and rewriting them.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod canonical;

use std::path::PathBuf;

use penstock_format::Limits;
use penstock_format::rdb::{Access, Checksum, Event, Format, Options, Reader, Target, Writer, trailer};

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads a file and writes its contents again.
fn copied(bytes: &[u8], target: Target) -> Vec<u8> {
    let mut reader = Reader::new(bytes, Limits::default());
    let (mut writer, mut out) = (Writer::new(Options { target, ..Options::default() }), Vec::new());
    writer.header(&mut out, false);
    loop {
        match reader.read_event().unwrap() {
            Event::Select(number) => writer.select(&mut out, number),
            Event::Function(text) => writer.function(&mut out, &text),
            Event::Entry { entry, access } => writer.entry(&mut out, &entry, access),
            Event::End(_) => break,
            _ => {}
        }
    }
    writer.end(&mut out);
    out.extend_from_slice(&trailer(None));
    out
}

fn check(name: &str, format: Format) {
    let bytes = fixture(&format!("{name}.rdb"));
    let expected = String::from_utf8(fixture(&format!("{name}.txt"))).unwrap();
    let expected: Vec<_> = expected.lines().collect();
    assert!(expected.len() > 10);
    assert_eq!(canonical::lines(&bytes).unwrap(), expected, "{name}");
    for target in [Target::Redis70, Target::Redis72] {
        assert_eq!(canonical::lines(&copied(&bytes, target)).unwrap(), expected, "{name} written for {target:?}");
    }
    let mut reader = Reader::new(&*bytes, Limits::default());
    assert!(matches!(reader.read_event().unwrap(), Event::Header(read) if read == format));
    loop {
        match reader.read_event().unwrap() {
            Event::End(checksum) => return assert_eq!(checksum, Checksum::Right),
            Event::Entry { access, .. } => assert!(matches!(access, Access::IdleSeconds(_) | Access::Unknown)),
            _ => {}
        }
    }
}

#[test]
fn redis_7_0() {
    check("redis-7.0", Format::Redis(10));
}

#[test]
fn redis_8_6() {
    check("redis-8.6", Format::Redis(13));
}

#[test]
fn valkey_9_1() {
    check("valkey-9.1", Format::Valkey(80));
}

#[test]
fn redis_8_6_with_fields_that_expire() {
    check("redis-8.6-fields", Format::Redis(13));
}

#[test]
fn valkey_9_1_with_fields_that_expire() {
    check("valkey-9.1-fields", Format::Valkey(80));
}
