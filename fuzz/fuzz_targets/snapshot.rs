//! Snapshots: any file is read or refused, within the memory that its bytes justify. Entries that were read are equal
//! after they were written and read again.
#![no_main]

use format::Limits;
use format::rdb::{Access, Event, Options, Reader, Target, Writer, trailer};
use libfuzzer_sys::fuzz_target;
use penstock_fuzz::memory;
use store::entry::{Entry, View};
use store::value::Value;

/// Returns the keys of a file up to its end or to the first error.
fn keys(bytes: &[u8]) -> Vec<Entry> {
    let mut reader = Reader::new(bytes, Limits::default());
    let mut keys = Vec::new();
    while let Ok(event) = reader.read_event() {
        match event {
            Event::Entry { entry, .. } => keys.push(entry),
            Event::End(_) => break,
            _ => {}
        }
    }
    keys
}

/// Returns the fields that expire, and their times.
fn times(key: &Entry) -> Vec<(Vec<u8>, u64)> {
    let mut times = Vec::new();
    if let Some(hash) = key.timed_hash() {
        hash.for_each(|field, _, expiry| times.extend(expiry.map(|at| (field.to_vec(), at))));
    }
    times.sort();
    times
}

/// Returns the suggestions with scores and payloads.
fn suggestions(key: &Entry) -> Vec<String> {
    let mut all = Vec::new();
    if let View::Object(Value::Suggestions(suggestions)) = key.view() {
        suggestions.for_each(|found| all.push(format!("{found:?}")));
    }
    all.sort();
    all
}

fn written(keys: &[Entry]) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(Options { target: Target::Redis72, compress: false, ..Options::default() }), Vec::new());
    writer.header(&mut out, true);
    keys.iter().for_each(|key| writer.entry(&mut out, key, Access::Unknown));
    writer.end(&mut out);
    out.extend_from_slice(&trailer(None));
    out
}

fuzz_target!(|data: &[u8]| {
    // The target adds the header, so that the fuzzer reaches the entries at once; one bit selects the format.
    let Some((&first, body)) = data.split_first() else { return };
    let header: &[u8] = if first & 1 == 0 { b"REDIS0015" } else { b"VALKEY080" };
    let file = [header, body].concat();
    let keys = memory::bounded(file.len(), || keys(&file));
    let again = self::keys(&written(&keys));
    assert_eq!(again.len(), keys.len());
    for (key, again) in keys.iter().zip(&again) {
        assert_eq!((key.key(), key.expiry(), key.encoding()), (again.key(), again.expiry(), again.encoding()));
        assert_eq!(times(key), times(again));
        assert_eq!(suggestions(key), suggestions(again));
    }
});
