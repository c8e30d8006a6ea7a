//! Append-only files: whatever a file holds, it is read, refused, or found torn, and memory stays within what its bytes justify.
//! What is whole of a torn file is read again to its end, and a manifest that is read is the same after it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fuzz::memory;
use persistence::manifest::Manifest;
use persistence::recovery::{Apply, Extent, read_file};

/// Counts what a file has.
#[derive(Default)]
struct Counts {
    bytes: usize,
    records: usize,
}

impl Apply for Counts {
    fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        self.bytes += commands.len();
        Ok(())
    }

    fn own(&mut self, _record: &[u8]) -> Result<(), String> {
        self.records += 1;
        Ok(())
    }
}

fn check_manifest(text: &[u8]) {
    if let Ok(manifest) = Manifest::parse(text) {
        assert_eq!(Manifest::parse(manifest.text().as_bytes()), Ok(manifest));
    }
}

fuzz_target!(|data: &[u8]| {
    check_manifest(data);
    let mut counts = Counts::default();
    let read = memory::bounded(data.len(), || read_file(&mut &*data, &mut counts));
    let Ok(Extent { whole, torn }) = read else { return };
    assert_eq!(whole + torn, data.len() as u64);
    let mut again = Counts::default();
    let whole = &data[..whole as usize];
    assert!(matches!(read_file(&mut &*whole, &mut again), Ok(extent) if extent == Extent { whole: whole.len() as u64, torn: 0 }));
    assert!(again.bytes <= counts.bytes && again.records <= counts.records);
});
