//! RESTORE's payloads: any payload with a correct checksum is read or refused, within the memory that its bytes
//! justify. A value that was read can be dumped and read again.
#![no_main]

use format::Limits;
use format::crc64::crc64;
use format::payload::{Dumper, read_functions, read_value};
use libfuzzer_sys::fuzz_target;
use penstock_fuzz::memory;

fuzz_target!(|data: &[u8]| {
    let Some((&version, body)) = data.split_first() else { return };
    let mut payload = [body, &u16::from(version).to_le_bytes()].concat();
    let sum = crc64(&payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    let _ = read_functions(&payload);
    let read = memory::bounded(payload.len(), || read_value(&payload, b"key", None, &Limits::default()));
    let Ok(entry) = read else { return };
    let dumped = Dumper::new().value(&entry.view());
    let Ok(again) = read_value(&dumped, b"key", None, &Limits::default()) else { panic!("what was dumped is refused") };
    assert_eq!(entry.kind(), again.kind());
});
