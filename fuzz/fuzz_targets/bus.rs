//! Messages of the cluster bus: no bytes make the reader panic or read beyond a message, and each message that is read comes back from
//! the bytes that it is written as.
#![no_main]

use cluster::dialect::{self, Dialect, Reader};
use cluster::wire::{Body, Frame, Message, frame, read};
use libfuzzer_sys::fuzz_target;

const BYTES_MAX: usize = 1 << 16;

/// Reads the messages of a stream, as a link does.
fn stream(mut bytes: &[u8]) {
    while let Frame::Whole(length) = frame(bytes, BYTES_MAX) {
        assert!((16..=bytes.len()).contains(&length));
        let (message, rest) = bytes.split_at(length);
        one(message);
        bytes = rest;
    }
}

fn one(bytes: &[u8]) {
    let Ok(message) = read(bytes) else { return };
    if let Message::Full(header, Body::Ping { extensions, .. }) = &message {
        let learned = Dialect::Unknown.learned(header.flags, extensions);
        for dialect in [learned, Dialect::Valkey, Dialect::Redis] {
            let found = dialect::read(extensions, dialect);
            let again = dialect::read(&dialect::write(&found, Reader::All(dialect)), dialect);
            assert_eq!(again, found);
        }
    }
    let written = message.to_bytes();
    assert_eq!(read(&written).as_ref(), Ok(&message));
}

/// A stream of one message: the signature, length, version and type are given, since the fuzzer would hardly find them.
fn dressed(kind: u8, data: &[u8]) -> Vec<u8> {
    let (kind, light) = (kind % 11, kind & 0x40 != 0);
    let head: &[u8] = if light { &[0; 16] } else { &[b'0'; 2256] };
    let mut bytes = [head, data].concat();
    let total = bytes.len() as u32;
    bytes[..4].copy_from_slice(b"RCmb");
    bytes[4..8].copy_from_slice(&total.to_be_bytes());
    bytes[8..14].copy_from_slice(&[0, 1, 0, 0, if light { 0x80 } else { 0 }, kind]);
    if !light {
        let counts = [data.first().copied().unwrap_or(0) % 3, data.get(1).copied().unwrap_or(0) % 4];
        bytes[14..16].copy_from_slice(&[0, counts[0]]);
        bytes[2128..2168].fill(0);
        bytes[2214..2216].copy_from_slice(&[0, counts[1]]);
        bytes[2250..2256].copy_from_slice(&[0, 1, 0, 4, 0, 0]);
        bytes[2252..2254].copy_from_slice(&[0, 4]);
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    stream(data);
    if let Some((kind, rest)) = data.split_first() {
        stream(&dressed(*kind, rest));
    }
});
