//! The log: one line per event, in the form of Redis's log for existing tools, or in Valkey's `logfmt`.

mod codes;

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use config::{LogFormat, LogLevel, LogTimestamp, Settings};

use crate::syslog::Syslog;

/// Lines below this level are left out.
static LEVEL: AtomicU8 = AtomicU8::new(2);
/// The destination and the form of lines.
static OUTLET: Mutex<Outlet> = Mutex::new(Outlet { file: None, syslog: None, form: LineFormat::REDIS });

struct Outlet {
    /// Standard output, if `None`.
    file: Option<PathBuf>,
    /// The system's log, in addition to the file.
    syslog: Option<Syslog>,
    form: LineFormat,
}

/// The form of a line.
#[derive(Clone, Copy)]
struct LineFormat {
    format: LogFormat,
    timestamp: LogTimestamp,
}

impl LineFormat {
    const REDIS: LineFormat = LineFormat { format: LogFormat::Legacy, timestamp: LogTimestamp::Legacy };

    fn line(self, level: LogLevel, time: &jiff::Zoned, text: &str) -> String {
        let (pid, time) = (std::process::id(), self.time(time));
        let code = if level == LogLevel::Warning { codes::of(text) } else { None };
        match self.format {
            LogFormat::Legacy => {
                let code = code.map(|code| format!(" [{code}]")).unwrap_or_default();
                format!("{pid}:M {time} {} {text}{code}\n", rank(level).1)
            }
            LogFormat::Logfmt => {
                let (level, text) = (level.word(), within_quotes(text));
                let code = code.map(|code| format!(" code={code}")).unwrap_or_default();
                format!("pid={pid} role=primary timestamp=\"{time}\" level={level}{code} message=\"{text}\"\n")
            }
        }
    }

    fn time(self, time: &jiff::Zoned) -> String {
        match self.timestamp {
            LogTimestamp::Legacy => time.strftime("%d %b %Y %H:%M:%S%.3f").to_string(),
            LogTimestamp::Iso8601 => time.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
            LogTimestamp::Milliseconds => time.timestamp().as_millisecond().to_string(),
        }
    }
}

/// Returns a text without line ends and double quotes.
fn within_quotes(text: &str) -> String {
    let safe = |c| match c {
        '"' => '\'',
        '\r' | '\n' => ' ',
        c => c,
    };
    text.chars().map(safe).collect()
}

fn rank(level: LogLevel) -> (u8, char) {
    match level {
        LogLevel::Debug => (0, '.'),
        LogLevel::Verbose => (1, '-'),
        LogLevel::Notice => (2, '*'),
        LogLevel::Warning => (3, '#'),
        LogLevel::Nothing => (4, ' '),
    }
}

/// Applies the level and form of lines from the settings.
pub fn follow(settings: &Settings) {
    LEVEL.store(rank(settings.loglevel.get()).0, Ordering::Relaxed);
    let form = LineFormat { format: settings.log_format.get(), timestamp: settings.log_timestamp_format.get() };
    OUTLET.lock().unwrap_or_else(PoisonError::into_inner).form = form;
}

/// Sends lines to the system's log as well, if the settings ask for it.
pub fn begin_syslog(settings: &Settings) {
    OUTLET.lock().unwrap_or_else(PoisonError::into_inner).syslog = Syslog::of(settings);
}

/// Sets the file for further lines.
///
/// # Errors
/// If the file can't be opened. The destination is unchanged then.
pub fn set_file(file: PathBuf) -> io::Result<()> {
    // The seek of C's fopen: some files can be opened but not written, and fail here. A pipe has no end to seek.
    open(&file)?.seek(SeekFrom::End(0)).map(drop).or_else(|error| match error.kind() {
        io::ErrorKind::NotSeekable => Ok(()),
        _ => Err(error),
    })?;
    OUTLET.lock().unwrap_or_else(PoisonError::into_inner).file = Some(file);
    Ok(())
}

/// Opens the file anew for each line: after log rotation has moved it away, the next line begins a new file.
fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(file)
}

/// Writes a line. The server keeps running without a writable log.
pub fn write(level: LogLevel, text: &str) {
    if rank(level).0 < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let time = jiff::Zoned::now();
    let mut outlet = OUTLET.lock().unwrap_or_else(PoisonError::into_inner);
    let line = outlet.form.line(level, &time, text);
    let _ = match &outlet.file {
        None => io::stdout().write_all(line.as_bytes()),
        Some(file) => open(file).and_then(|mut file| file.write_all(line.as_bytes())),
    };
    if let Some(syslog) = &mut outlet.syslog {
        syslog.send(level, &time, text);
    }
}

/// Logs an event of interest to operators.
pub fn notice(text: impl AsRef<str>) {
    write(LogLevel::Notice, text.as_ref());
}

/// Logs an event that needs an operator's attention.
pub fn warning(text: impl AsRef<str>) {
    write(LogLevel::Warning, text.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_form_that_is_asked_for() {
        let time: jiff::Zoned = "2026-03-04T05:06:07.0899+05:30[+05:30]".parse().unwrap();
        let pid = std::process::id();
        let line = |format, timestamp| LineFormat { format, timestamp }.line(LogLevel::Warning, &time, "a \"b\"\nc");
        assert_eq!(
            line(LogFormat::Legacy, LogTimestamp::Legacy),
            format!("{pid}:M 04 Mar 2026 05:06:07.089 # a \"b\"\nc\n")
        );
        assert_eq!(
            line(LogFormat::Logfmt, LogTimestamp::Iso8601),
            format!(
                "pid={pid} role=primary timestamp=\"2026-03-04T05:06:07.089+05:30\" level=warning message=\"a 'b' c\"\n"
            )
        );
        let coded = |format| {
            let line = LineFormat { format, timestamp: LogTimestamp::Milliseconds };
            line.line(LogLevel::Warning, &time, "Can't begin to save: full")
        };
        assert_eq!(coded(LogFormat::Legacy), format!("{pid}:M 1772580967089 # Can't begin to save: full [PS202]\n"));
        assert_eq!(
            coded(LogFormat::Logfmt),
            format!(
                "pid={pid} role=primary timestamp=\"1772580967089\" level=warning code=PS202 message=\"Can't begin to save: full\"\n"
            )
        );
        let milliseconds = line(LogFormat::Legacy, LogTimestamp::Milliseconds);
        assert_eq!(milliseconds, format!("{pid}:M 1772580967089 # a \"b\"\nc\n"));
    }
}
