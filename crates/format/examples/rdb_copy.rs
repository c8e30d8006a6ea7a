//! Reads a snapshot and writes it again: `rdb_copy IN OUT [7.2]`. For manual comparisons: a server returns the same
//! digest after loading either file.

use std::fs::File;
use std::io::Write;

use penstock_format::Limits;
use penstock_format::crc64::Crc64;
use penstock_format::rdb::{Event, Format, Options, Reader, Target, Writer, trailer};

/// Number of bytes that are written at a time.
const PIECE_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, from, to, rest @ ..] = &words[..] else { return Err("rdb_copy IN OUT [7.2]".into()) };
    let target = if rest.is_empty() { Target::Redis70 } else { Target::Redis72 };
    let mut reader = Reader::new(File::open(from)?, Limits::default());
    let mut writer = Writer::new(Options { target, ..Options::default() });
    let (mut file, mut sum, mut out) = (File::create(to)?, Crc64::new(), Vec::new());
    let mut more = true;
    while more {
        match reader.read_event()? {
            Event::Header(format) => {
                println!("{format:?}");
                writer.header(&mut out, !matches!(format, Format::Redis(..12)));
            }
            Event::Aux { name, text } => writer.aux(&mut out, &name, &text),
            Event::Select(number) => writer.select(&mut out, number),
            Event::Resize { keys, expiring, .. } => writer.resize(&mut out, keys, expiring),
            Event::Function(text) => writer.function(&mut out, &text),
            Event::Entry { entry, access } => writer.entry(&mut out, &entry, access),
            Event::EmptyKey(key) => println!("empty: {}", key.escape_ascii()),
            Event::End(checksum) => {
                println!("{checksum:?} checksum, {} bytes", reader.offset());
                writer.end(&mut out);
                more = false;
            }
        }
        if out.len() > PIECE_BYTES || !more {
            sum.update(&out);
            file.write_all(&out)?;
            out.clear();
        }
    }
    file.write_all(&trailer(Some(&sum)))?;
    Ok(())
}
