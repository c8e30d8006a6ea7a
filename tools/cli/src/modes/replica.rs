//! `--rdb` and `--replica`: read the stream that a server sends to a replica.

use crate::failure::Failure;
use crate::format::{ReplyFormat, Style};
use crate::output::complain;
use crate::replica_stream::{Length, ReplicaStream, copy, copy_to_file};
use crate::session::CliSession;
use client::Value;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Maximum length of an argument in the stream: Redis's limit for strings.
const ARGUMENT_BYTES_MAX: u64 = 512 << 20;

/// Writes a snapshot of the server into a file; `-` is standard output.
///
/// # Errors
/// Returns [`Failure`] if the server refuses, or the file can't be written.
pub fn save(session: &mut CliSession<'_>, path: &Path) -> Result<(), Failure> {
    let (mut source, length) = begin(session)?;
    let shown = path.display();
    match &length {
        Length::Bytes(bytes) => complain!("SYNC sent to master, writing {bytes} bytes to '{shown}'"),
        Length::Until(_) => {
            complain!("SYNC sent to master, writing bytes of bulk transfer until EOF marker to '{shown}'");
        }
    }
    let copied = if path == Path::new("-") {
        copy(&mut source, &length, &mut io::stdout().lock())
    } else {
        copy_to_file(&mut source, &length, path)
    };
    match copied.map_err(Failure::Other)? {
        Some(bytes) => complain!("Transfer finished with success after {bytes} bytes"),
        None => complain!("Transfer finished with success."),
    }
    Ok(())
}

/// Prints the commands that the server sends to its replicas, one a line, until the connection ends.
///
/// # Errors
/// Returns [`Failure`] at the end of the stream.
pub fn show(session: &mut CliSession<'_>) -> Result<(), Failure> {
    let (mut source, length) = begin(session)?;
    match &length {
        Length::Bytes(bytes) => complain!("SYNC with master, discarding {bytes} bytes of bulk transfer..."),
        Length::Until(_) => complain!("SYNC with master, discarding bytes of bulk transfer until EOF marker..."),
    }
    copy(&mut source, &length, &mut io::sink()).map_err(Failure::Other)?;
    complain!("SYNC done. Logging commands from master.");
    let style = Style { form: ReplyFormat::Csv, ..session.options.style.clone() };
    let mut stream = BufReader::new(source);
    loop {
        let command = command(&mut stream).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Failure::Other("Error: Server closed the connection".to_owned()),
            _ => Failure::Other(format!("Error: {error}")),
        })?;
        let arguments = Value::Array(command.into_iter().map(Value::Bulk).collect());
        session.output.print_with(|out| style.push_reply(&arguments, false, out))?;
        if stream.buffer().is_empty() {
            session.output.flush()?;
        }
    }
}

fn begin(session: &mut CliSession<'_>) -> Result<(ReplicaStream, Length), Failure> {
    session.ensure_connected()?;
    let connection = session.take_connection().ok_or(Failure::NotConnected)?;
    let mut source = ReplicaStream::new(connection);
    let length = source.begin().map_err(Failure::Other)?;
    Ok((source, length))
}

/// Reads a command: an array of strings, or an inline command. Empty lines keep the connection alive.
fn command(stream: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the stream is malformed");
    let first = loop {
        let line = line(stream)?;
        if !line.is_empty() {
            break line;
        }
    };
    let Some(count) = first.strip_prefix(b"*") else {
        return Ok(first.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect());
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let mut words = Vec::new();
    for _ in 0..number(count).ok_or_else(malformed)? {
        let head = line(stream)?;
        let length = head.strip_prefix(b"$").and_then(number).filter(|length| *length <= ARGUMENT_BYTES_MAX);
        let length = length.ok_or_else(malformed)?;
        let mut word = Vec::new();
        stream.by_ref().take(length).read_to_end(&mut word)?;
        let end = line(stream)?;
        if word.len() as u64 != length || !end.is_empty() {
            return Err(malformed());
        }
        words.push(word);
    }
    Ok(words)
}

/// Reads a line without its end.
fn line(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    /// No line of the stream is longer, as arguments have their own lengths.
    const LINE_BYTES_MAX: u64 = 64 << 10;
    let mut line = Vec::new();
    stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stream: &str, expected: &[&str]) {
        let mut bytes = stream.as_bytes();
        let mut found = Vec::new();
        while let Ok(words) = command(&mut bytes) {
            let words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            found.push(words.join("|"));
        }
        assert_eq!(found, expected, "{stream:?}");
    }

    #[test]
    fn commands_are_read_from_the_stream() {
        check("*1\r\n$4\r\nPING\r\n\n*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n", &["PING", "GET|a\r\nb"]);
        check("PING x\r\n*0\r\n*1\r\n$0\r\n\r\n", &["PING|x", "", ""]);
        for malformed in
            ["*x\r\n", "*1\r\n$9\r\nPING\r\n", "*1\r\n$1\r\nPING\r\n", "*1\r\n$-1\r\n", "*1", "*1\r\n:1\r\n"]
        {
            check(malformed, &[]);
        }
    }
}
