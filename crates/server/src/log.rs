//! The log: a line per event, in the form that Redis's log has, since people's tools read it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use engine::config::LogLevel;

/// Lines of a lower level than this are left out.
static LEVEL: AtomicU8 = AtomicU8::new(2);
/// The log file; standard output, if there is none.
static FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

fn rank(level: LogLevel) -> (u8, char) {
    match level {
        LogLevel::Debug => (0, '.'),
        LogLevel::Verbose => (1, '-'),
        LogLevel::Notice => (2, '*'),
        LogLevel::Warning => (3, '#'),
    }
}

/// Sets which lines are left out.
pub fn set_level(level: LogLevel) {
    LEVEL.store(rank(level).0, Ordering::Relaxed);
}

/// Sets where lines go from now on.
///
/// # Errors
/// The file can't be opened. Lines go where they went before then.
pub fn set_file(file: PathBuf) -> io::Result<()> {
    // As C's fopen does: what can't be written to may open all the same, and says so here. A pipe has no end to go to.
    open(&file)?.seek(SeekFrom::End(0)).map(drop).or_else(|error| match error.kind() {
        io::ErrorKind::NotSeekable => Ok(()),
        _ => Err(error),
    })?;
    if let Ok(mut current) = FILE.lock() {
        *current = Some(file);
    }
    Ok(())
}

/// Opens the file anew for each line: after log rotation has moved it away, the next line begins a new file.
fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(file)
}

/// Writes a line. A log that can't be written is no reason to stop serving.
pub fn write(level: LogLevel, text: &str) {
    let (rank, mark) = rank(level);
    if rank < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let time = jiff::Zoned::now().strftime("%d %b %Y %H:%M:%S%.3f").to_string();
    let line = format!("{}:M {time} {mark} {text}\n", std::process::id());
    let Ok(file) = FILE.lock() else { return };
    let _ = match &*file {
        None => io::stdout().write_all(line.as_bytes()),
        Some(file) => open(file).and_then(|mut file| file.write_all(line.as_bytes())),
    };
}

/// Something that operators want to know.
pub fn notice(text: impl AsRef<str>) {
    write(LogLevel::Notice, text.as_ref());
}

/// Something that operators should look at.
pub fn warning(text: impl AsRef<str>) {
    write(LogLevel::Warning, text.as_ref());
}
