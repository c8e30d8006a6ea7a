//! Cuts off the torn end of a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Truncates a file to its first `whole` bytes and writes `closing` there. The file must still have the size that it had when it was
/// checked (`checked_bytes`). The rest is copied to a file beside it, and synced to disk, before the truncation. Returns the path of the
/// copy.
///
/// # Errors
/// Returns a message for the user if the file stays unchanged.
pub fn cut(path: &Path, whole: u64, closing: &[u8], checked_bytes: u64) -> Result<PathBuf, String> {
    let cant = |error: io::Error| format!("can't cut {}: {error}", path.display());
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(cant)?;
    if let Some(pid) = writer_of(&file) {
        return Err(format!("{} is open in process {pid}: stop that server first", path.display()));
    }
    if file.metadata().map_err(cant)?.len() != checked_bytes {
        return Err(format!(
            "{} has changed since it was checked: stop the server that writes to it first",
            path.display()
        ));
    }
    let kept = kept_path(path, whole);
    keep(&mut file, whole, &kept)
        .map_err(|error| format!("can't save the cut-off bytes to {}: {error}", kept.display()))?;
    file.set_len(whole).map_err(cant)?;
    file.sync_all().map_err(cant)?;
    if !closing.is_empty() {
        file.write_all_at(closing, whole).and_then(|()| file.sync_all()).map_err(cant)?;
    }
    Ok(kept)
}

/// Returns the path for the bytes from `whole` on: `FILE.cut-WHOLE`.
fn kept_path(path: &Path, whole: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".cut-{whole}"));
    PathBuf::from(name)
}

fn keep(file: &mut File, whole: u64, kept: &Path) -> io::Result<()> {
    file.seek(SeekFrom::Start(whole))?;
    // An earlier copy must not be overwritten.
    let mut copy = OpenOptions::new().write(true).create_new(true).open(kept)?;
    let copied = io::copy(&mut file.by_ref().take(u64::MAX), &mut copy).and_then(|_| copy.sync_all());
    if copied.is_err() {
        let _ = fs::remove_file(kept);
        return copied;
    }
    let directory = kept.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Returns another process that has the file open, as far as the system shows it: Linux shows processes of the same
/// user, and all processes to root.
fn writer_of(file: &File) -> Option<u32> {
    let file = file.metadata().ok()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|&pid| pid != std::process::id() && has_open(pid, (file.dev(), file.ino())))
}

fn has_open(pid: u32, file: (u64, u64)) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut files = descriptors.filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
    files.any(|metadata| (metadata.dev(), metadata.ino()) == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("penstock-check-{}-{name}", std::process::id()));
        let _ = fs::remove_file(kept_path(&path, 4));
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn cut_off_bytes_are_kept() {
        let path = written("cut", b"wholetorn");
        assert_eq!(cut(&path, 5, b"", 9), Ok(kept_path(&path, 5)));
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read(kept_path(&path, 5)).unwrap(), b"torn");
        // A second cut at the same offset fails: the first copy and the file stay unchanged.
        fs::write(&path, b"wholeagain").unwrap();
        let refused = cut(&path, 5, b"", 10).unwrap_err();
        assert!(refused.contains("can't save"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"wholeagain");
        fs::remove_file(kept_path(&path, 5)).unwrap();
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_has_changed_stays_as_it_is() {
        let path = written("changed", b"wholetorn");
        assert!(cut(&path, 5, b"", 8).unwrap_err().contains("has changed"));
        assert_eq!(fs::read(&path).unwrap(), b"wholetorn");
        fs::remove_file(&path).unwrap();
    }
}
