//! The stream that a server sends to a replica, read by a program that only wants its snapshot or its commands.

use client::{Connection, Stream};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// Length of the mark that ends a snapshot of unknown length.
const MARK_BYTES: usize = 40;

/// Maximum length of the line before a snapshot.
const LINE_BYTES_MAX: usize = 4096;

/// Size of a piece of a snapshot.
const PIECE_BYTES: usize = 64 << 10;

/// The announced end of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Number of bytes.
    Bytes(u64),
    /// The snapshot ends with these bytes.
    Until(Vec<u8>),
}

impl Length {
    fn parse(line: &[u8]) -> Option<Self> {
        let announced = line.strip_prefix(b"$")?;
        match announced.strip_prefix(b"EOF:") {
            Some(mark) => (mark.len() == MARK_BYTES).then(|| Self::Until(mark.to_vec())),
            None => std::str::from_utf8(announced).ok()?.parse().ok().map(Self::Bytes),
        }
    }
}

/// Copies a snapshot. Returns the number of bytes if the server didn't announce it.
///
/// # Errors
/// Returns a message if the stream ends early or `out` fails.
pub fn copy(source: &mut ReplicaStream, length: &Length, out: &mut dyn Write) -> Result<Option<u64>, String> {
    let cannot_write = |error: io::Error| format!("Error writing data to file: {error}");
    let mut written = 0;
    let mut piece = vec![0; PIECE_BYTES];
    // The last bytes may be the mark, so they are held back.
    let mut held: Vec<u8> = Vec::new();
    loop {
        let wanted = match length {
            Length::Bytes(total) => usize::try_from(total - written).unwrap_or(usize::MAX).min(piece.len()),
            Length::Until(_) => piece.len(),
        };
        if wanted == 0 {
            return Ok(None);
        }
        let count = source.read(&mut piece[..wanted]).unwrap_or(0);
        if count == 0 {
            return Err("I/O Error reading RDB payload from socket".to_owned());
        }
        held.extend_from_slice(&piece[..count]);
        let mark = if let Length::Until(mark) = length { mark.as_slice() } else { &[] };
        let is_end = !mark.is_empty() && held.ends_with(mark);
        let keep = if is_end { mark.len() } else { mark.len().min(held.len()) };
        let ready = held.len() - keep;
        out.write_all(&held[..ready]).map_err(cannot_write)?;
        written += ready as u64;
        held.drain(..ready);
        if is_end {
            return Ok(Some(written));
        }
    }
}

/// Copies a snapshot into a file, a device or a pipe. Returns the number of bytes if the server didn't announce it.
///
/// # Errors
/// Returns the errors of [`copy`], and of creating the file.
pub fn copy_to_file(source: &mut ReplicaStream, length: &Length, path: &Path) -> Result<Option<u64>, String> {
    let shown = path.display();
    // A rename would replace a device, a pipe or a link by a file.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        let mut file = File::create(path).map_err(|error| format!("Error opening '{shown}': {error}"))?;
        return copy(source, length, &mut file);
    }
    // A file under its final name is complete.
    let partial = path.with_extension("rdb.part");
    let create = || File::create(&partial).map_err(|error| format!("Error opening '{}': {error}", partial.display()));
    let mut save = || -> Result<Option<u64>, String> {
        let mut file = create()?;
        let bytes = copy(source, length, &mut file)?;
        file.sync_all().map_err(|error| format!("Error writing data to file: {error}"))?;
        fs::rename(&partial, path).map_err(|error| format!("Error opening '{shown}': {error}"))?;
        Ok(bytes)
    };
    let saved = save();
    if saved.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&partial);
    }
    saved
}

/// The connection to a server, read as bytes.
pub struct ReplicaStream {
    stream: Box<dyn Stream>,
    /// Bytes that were read with the last reply.
    bytes: Vec<u8>,
    at: usize,
}

impl ReplicaStream {
    /// Takes a connection over.
    pub fn new(connection: Connection) -> Self {
        let (stream, bytes) = connection.into_stream();
        Self { stream, bytes, at: 0 }
    }

    /// Requests a snapshot, followed by commands. Returns the snapshot's length.
    ///
    /// # Errors
    /// Returns a message if the server refuses.
    pub fn begin(&mut self) -> Result<Length, String> {
        self.send(b"SYNC\r\n").map_err(|_| "Error writing to master".to_owned())?;
        let line = self.line().map_err(|_| "Error reading bulk length while SYNCing".to_owned())?;
        let refusal = || format!("SYNC with master failed: {}", String::from_utf8_lossy(&line));
        Length::parse(&line).ok_or_else(refusal)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(true)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while self.stream.wants_write() {
            match self.stream.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(true)?,
                flushed => flushed?,
            }
        }
        Ok(())
    }

    /// Reads a line. The node sends empty lines while it prepares the snapshot.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < LINE_BYTES_MAX {
            if self.read(&mut byte)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match byte[0] {
                b'\n' if line.is_empty() => {}
                b'\n' => return Ok(line.trim_ascii_end().to_vec()),
                byte => line.push(byte),
            }
        }
        Err(ErrorKind::InvalidData.into())
    }

    fn wait(&self, writes: bool) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, poll};
        let interest = if writes { PollFlags::OUT } else { PollFlags::IN };
        match poll(&mut [PollFd::from_borrowed_fd(self.stream.fd(), interest)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for ReplicaStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at < self.bytes.len() {
            let count = (&self.bytes[self.at..]).read(into)?;
            self.at += count;
            return Ok(count);
        }
        loop {
            match self.stream.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(false)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_ends() {
        let mark = [b'm'; MARK_BYTES];
        assert_eq!(Length::parse(b"$12"), Some(Length::Bytes(12)));
        assert_eq!(Length::parse(&[b"$EOF:", &mark[..]].concat()), Some(Length::Until(mark.to_vec())));
        for wrong in [&b"-ERR no"[..], b"$x", b"$-1", b"$EOF:short", b""] {
            assert_eq!(Length::parse(wrong), None, "{wrong:?}");
        }
    }
}
