//! The history file: one line per entry, oldest first. redis-cli uses the same format, and can share the file.

use crate::quote::quoted;
use resp::splitargs::split_args;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Maximum size in bytes. A larger file is cut to the wanted lines when it is read.
const SIZE_MAX: usize = 1 << 20;

/// The history file; without a path it stores nothing.
pub struct HistoryFile {
    path: Option<PathBuf>,
    /// The last line of the file.
    last: Vec<u8>,
}

impl HistoryFile {
    /// Returns the history file at a path.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, last: Vec::new() }
    }

    /// Reads the last `lines_max` lines. An unreadable file has no lines.
    pub fn load(&mut self, lines_max: usize) -> Vec<String> {
        let Some(path) = &self.path else { return Vec::new() };
        // Devices and pipes may be endless.
        let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        let bytes = if is_file { fs::read(path).unwrap_or_default() } else { Vec::new() };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let lines = lines[lines.len().saturating_sub(lines_max)..].to_vec();
        self.last = lines.last().cloned().unwrap_or_default().into_bytes();
        if bytes.len() > SIZE_MAX {
            // If writing fails, the file only stays long.
            let _ = fs::write(path, lines.join("\n") + "\n");
        }
        lines
    }

    /// Appends a line, unless it repeats the last one. On failure the line is only kept in memory.
    pub fn append(&mut self, line: &str) {
        let Some(path) = &self.path else { return };
        let line = one_line(line);
        if line == self.last {
            return;
        }
        // Only the user may read the file.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let _ = file.and_then(|mut file| file.write_all(&[&line[..], b"\n"].concat()));
        self.last = line;
    }
}

/// Returns the line with line breaks inside quotes escaped.
fn one_line(line: &str) -> Vec<u8> {
    let line = line.trim_end();
    if !line.contains(['\n', '\r']) {
        return line.as_bytes().to_vec();
    }
    let args = split_args(line.as_bytes()).unwrap_or_default();
    args.iter().map(|arg| if is_plain(arg) { arg.clone() } else { quoted(arg) }).collect::<Vec<_>>().join(&b' ')
}

/// Returns true if the argument needs no quotes.
pub fn is_plain(arg: &[u8]) -> bool {
    !arg.is_empty() && arg.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_and_read_again() {
        let path = std::env::temp_dir().join(format!("penstock-cli-history-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut file = HistoryFile::new(Some(path.clone()));
        assert!(file.load(10).is_empty());
        file.append("get a");
        file.append("set a \"b\nc\" ''");
        file.append("get b");
        assert_eq!(file.load(10), ["get a", "set a \"b\\nc\" \"\"", "get b"]);
        assert_eq!(file.load(1), ["get b"]);
        file.append("get b");
        let mut again = HistoryFile::new(Some(path.clone()));
        assert_eq!(again.load(10).len(), 3);
        again.append("get b");
        again.append("get a");
        assert_eq!(again.load(10), ["get a", "set a \"b\\nc\" \"\"", "get b", "get a"]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn devices_and_pipes_are_not_read() {
        let path = std::env::temp_dir().join(format!("penstock-cli-fifo-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(HistoryFile::new(Some(path.clone())).load(10).is_empty());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_history_without_file_stores_nothing() {
        let mut file = HistoryFile::new(None);
        file.append("get a");
        assert!(file.load(10).is_empty());
    }
}
