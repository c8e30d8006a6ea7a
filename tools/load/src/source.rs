//! Sources of inputs: files or standard input, possibly compressed with gzip or zstd, detected by their first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::limits::READ_BYTES;

/// RFC 1952, section 2.3.1.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// RFC 8878, section 3.1.1.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Counts of the bytes read from the inputs.
#[derive(Debug, Default)]
pub struct Tally {
    bytes: AtomicU64,
    streamed: Mutex<crc32fast::Hasher>,
    streamed_bytes: AtomicU64,
}

/// Checksum of the inputs that aren't regular files, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streamed {
    /// Number of bytes.
    pub bytes: u64,
    /// CRC-32 of the bytes. It detects mistakes, not forgery.
    pub crc32: u32,
}

impl Tally {
    /// Returns the number of bytes of all inputs.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the checksum of the inputs that aren't regular files.
    pub fn streamed(&self) -> Streamed {
        let hasher = self.streamed.lock().unwrap_or_else(PoisonError::into_inner);
        Streamed { bytes: self.streamed_bytes.load(Ordering::Relaxed), crc32: hasher.clone().finalize() }
    }

    fn add(&self, bytes: &[u8], is_stream: bool) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if is_stream {
            self.streamed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.streamed.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        }
    }
}

/// Returns true if two paths lead to the same file, or would do so if it existed.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    match (identity(one), identity(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => absent(one).is_some_and(|one| Some(one) == absent(other)),
        _ => false,
    }
}

/// Returns the absolute path of a file that doesn't exist. Its directory may exist.
fn absent(path: &Path) -> Option<PathBuf> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let directory = directory.canonicalize().or_else(|_| std::path::absolute(directory));
    Some(directory.ok()?.join(path.file_name()?))
}

/// Location of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Standard input.
    Stdin,
    /// A file, which may be a pipe.
    File(PathBuf),
}

impl Origin {
    /// Returns the name for messages.
    pub fn name(&self) -> String {
        match self {
            Origin::Stdin => "stdin".to_owned(),
            Origin::File(path) => path.display().to_string(),
        }
    }

    /// Returns the size, if the input is a regular file.
    pub fn size(&self) -> Option<u64> {
        self.regular_file().map(|file| file.len())
    }

    /// Returns true if the input is the regular file at `path`, under any name.
    pub fn is_file_at(&self, path: &Path) -> bool {
        let identity = |file: std::fs::Metadata| (file.dev(), file.ino());
        path.metadata().ok().map(identity).is_some_and(|other| self.regular_file().map(identity) == Some(other))
    }

    fn regular_file(&self) -> Option<std::fs::Metadata> {
        let metadata = match self {
            Origin::Stdin => File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata(),
            Origin::File(path) => path.metadata(),
        };
        metadata.ok().filter(std::fs::Metadata::is_file)
    }

    /// Checks that a file can be opened. Pipes aren't opened, because this would have side effects.
    ///
    /// # Errors
    /// Returns an error if the file can't be opened.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Origin::Stdin => Ok(()),
            Origin::File(path) => {
                let metadata = path.metadata().map_err(|error| self.failure(&error))?;
                if metadata.is_dir() {
                    return Err(self.failure(&io::Error::other("it is a directory")));
                }
                if metadata.is_file() { self.open_file(path).map(drop) } else { Ok(()) }
            }
        }
    }

    fn open_file(&self, path: &Path) -> Result<File, Failure> {
        File::open(path).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let name = self.name();
        // A template without an option before it was meant for the input before it.
        let hint = match error.kind() {
            io::ErrorKind::NotFound if name.contains('{') => {
                "; a template needs --csv, --json-lines or --json with its file before it"
            }
            _ => "",
        };
        Failure::new(Exit::Input, format!("can't read {name}: {error}{hint}"))
    }

    /// Opens the input for reading, with decompression. `tally` counts the stored bytes.
    ///
    /// # Errors
    /// Returns an error if the input can't be opened, or its first bytes can't be read.
    pub fn open(&self, tally: Arc<Tally>) -> Result<Input, Failure> {
        let stored = self.open_stored(tally)?;
        let descriptor = stored.inner.as_fd().try_clone_to_owned().map_err(|error| self.failure(&error))?;
        let (source, is_as_stored) = decompressed(stored).map_err(|error| self.failure(&error))?;
        let input = Input::new(source);
        // A few available bytes of a compressed pipe may be too few for any output, so readiness isn't reported there.
        Ok(if is_as_stored || self.size().is_some() { input.with_descriptor(descriptor) } else { input })
    }

    /// Reads an input that isn't a regular file, without decompression, to its end or until `tally` has counted more
    /// than `bytes_max` bytes of such inputs.
    ///
    /// # Errors
    /// Returns an error if the input can't be read.
    pub fn skim(&self, tally: &Arc<Tally>, bytes_max: u64) -> Result<(), Failure> {
        if !self.is_stream() {
            return Ok(());
        }
        let left = bytes_max.saturating_sub(tally.streamed().bytes).saturating_add(1);
        let mut stored = self.open_stored(tally.clone())?.take(left);
        io::copy(&mut stored, &mut io::sink()).map(drop).map_err(|error| self.failure(&error))
    }

    /// Returns true if only the contents show that the input is the same as before: standard input of any kind, and
    /// pipes.
    pub fn is_stream(&self) -> bool {
        match self {
            Origin::Stdin => true,
            Origin::File(path) => !path.metadata().is_ok_and(|file| file.is_file()),
        }
    }

    fn open_stored(&self, tally: Arc<Tally>) -> Result<Counting<File>, Failure> {
        let file = match self {
            Origin::Stdin => {
                io::stdin().as_fd().try_clone_to_owned().map(File::from).map_err(|error| self.failure(&error))?
            }
            Origin::File(path) => self.open_file(path)?,
        };
        Ok(Counting { inner: file, tally, is_stream: self.is_stream() })
    }
}

/// Decompresses a source if its first bytes are those of a compressed file. The flag is true for an uncompressed
/// source.
fn decompressed(mut source: impl Read + Send + 'static) -> io::Result<(Box<dyn Read + Send>, bool)> {
    let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
    source.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(&GZIP_MAGIC);
    let is_zstd = magic.starts_with(&ZSTD_MAGIC);
    let whole = Cursor::new(magic).chain(source);
    Ok(if is_gzip {
        (Box::new(Gzip::new(whole)), false)
    } else if is_zstd {
        (Box::new(zstd::stream::read::Decoder::new(whole)?), false)
    } else {
        (Box::new(whole), true)
    })
}

/// Decompresses concatenated gzip files. No other data may follow them.
struct Gzip<R> {
    /// The current file; `None` after the last.
    file: Option<GzDecoder<BufReader<R>>>,
}

impl<R: Read> Gzip<R> {
    fn new(source: R) -> Gzip<R> {
        Gzip { file: Some(GzDecoder::new(BufReader::with_capacity(READ_BYTES, source))) }
    }

    /// Continues with the next file after the end of one.
    fn next_file(&mut self) -> io::Result<()> {
        let Some(ended) = &mut self.file else { return Ok(()) };
        match ended.get_mut().fill_buf()?.first() {
            None => self.file = None,
            Some(byte) if *byte == GZIP_MAGIC[0] => {
                self.file = self.file.take().map(|ended| GzDecoder::new(ended.into_inner()));
            }
            // The decoder would report a truncated file.
            Some(_) => return Err(io::Error::other("bytes that are not gzip follow the end of the compressed data")),
        }
        Ok(())
    }
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(file) = &mut self.file {
            let read = file.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.next_file()?;
        }
        Ok(0)
    }
}

/// Counts the bytes read.
struct Counting<R> {
    inner: R,
    tally: Arc<Tally>,
    is_stream: bool,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.tally.add(&buffer[..read], self.is_stream);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn check(stored: Vec<u8>, expected: &[u8]) {
        let mut text = Vec::new();
        decompressed(Cursor::new(stored)).unwrap().0.read_to_end(&mut text).unwrap();
        assert_eq!(text, expected);
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compression_is_recognised() {
        for text in [&b""[..], b"x", b"PING", b"PING\nSET a b\n"] {
            check(text.to_vec(), text);
            check(gzip(text), text);
            check(zstd::encode_all(text, 3).unwrap(), text);
        }
        // Concatenated compressed files.
        check([gzip(b"a"), gzip(b"b")].concat(), b"ab");
        check([zstd::encode_all(&b"a"[..], 3).unwrap(), zstd::encode_all(&b"b"[..], 3).unwrap()].concat(), b"ab");
    }

    #[test]
    fn truncated_input_is_an_error() {
        for mut stored in [gzip(b"PING and so on"), zstd::encode_all(&b"PING and so on"[..], 3).unwrap()] {
            stored.truncate(stored.len() - 5);
            assert!(decompressed(Cursor::new(stored)).unwrap().0.read_to_end(&mut Vec::new()).is_err());
        }
    }

    #[test]
    fn trailing_data_is_distinguished_from_truncation() {
        for (behind, expected) in [
            (&b"x"[..], "bytes that are not gzip follow the end of the compressed data"),
            (&[0; 512], "bytes that are not gzip follow the end of the compressed data"),
            (
                b"no gzip at all, and more than a header",
                "bytes that are not gzip follow the end of the compressed data",
            ),
            (&gzip(b"b")[..5], "unexpected end of file"),
        ] {
            let mut text = Vec::new();
            let stored = [&gzip(b"a")[..], behind].concat();
            let error = decompressed(Cursor::new(stored)).unwrap().0.read_to_end(&mut text).unwrap_err();
            assert_eq!((&*text, &*error.to_string()), (&b"a"[..], expected));
        }
    }

    #[test]
    fn a_file_is_known_by_any_of_its_names() {
        let directory = std::env::temp_dir().join(format!("penstock-load-names-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = |name: &str| directory.join(name);
        std::fs::write(at("a"), "").unwrap();
        std::fs::hard_link(at("a"), at("link")).unwrap();
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "link", true),
            ("a", "missing", false),
            ("missing", "missing", true),
            ("missing", "./missing", true),
            ("missing", "absent", false),
            ("new/x", "new/x", true),
            ("new/x", "new/y", false),
        ] {
            assert_eq!(is_same_file(&at(one), &at(other)), expected, "{one} {other}");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
