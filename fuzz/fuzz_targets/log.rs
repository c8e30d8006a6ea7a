//! Append-only files: any file is read, refused or found torn, within the memory that its bytes justify. The intact
//! part of a torn file is then read to its end, and a manifest that was read is equal after it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fuzz::memory;
use persistence::manifest::Manifest;
use persistence::recovery::{Apply, Extent, Place, read_file};

/// Counts the contents of a file.
#[derive(Default)]
struct Counts {
    bytes: usize,
    records: usize,
}

impl Apply for Counts {
    fn commands(&mut self, commands: &[u8], _place: &Place) -> Result<(), (usize, String)> {
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
        let again = Manifest::parse(manifest.text().as_bytes()).map(|again| again.parts);
        assert_eq!(again, Ok(manifest.parts));
    }
}

fuzz_target!(|data: &[u8]| {
    check_manifest(data);
    let mut counts = Counts::default();
    let read = memory::bounded(data.len(), || read_file(&mut &*data, &mut counts));
    let Ok(extent) = read else { return };
    let Extent { whole, torn, .. } = extent;
    assert_eq!(whole + torn, data.len() as u64);
    let mut again = Counts::default();
    let whole = &data[..whole as usize];
    // A part that ends at a checkpoint still lacks the rest of its block.
    assert!(matches!(read_file(&mut &*whole, &mut again), Ok(part) if part == Extent { torn: 0, ..extent }));
    assert!(again.bytes <= counts.bytes && again.records <= counts.records);
});
