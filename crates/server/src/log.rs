//! The log: a line per event, in the form that Redis's log has, since people's tools read it, or in Valkey's `logfmt`.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use engine::config::{LogFormat, LogLevel, LogTimestamp, Settings};

use crate::syslog::Syslog;

/// Lines of a lower level than this are left out.
static LEVEL: AtomicU8 = AtomicU8::new(2);
/// Where lines go, and in which form.
static OUTLET: Mutex<Outlet> = Mutex::new(Outlet { file: None, syslog: None, form: LineFormat::REDIS });

struct Outlet {
    /// Standard output, if there is none.
    file: Option<PathBuf>,
    /// The system's log, beside the file.
    syslog: Option<Syslog>,
    form: LineFormat,
}

/// How a line looks.
#[derive(Clone, Copy)]
struct LineFormat {
    format: LogFormat,
    timestamp: LogTimestamp,
}

impl LineFormat {
    const REDIS: LineFormat = LineFormat { format: LogFormat::Legacy, timestamp: LogTimestamp::Legacy };

    fn line(self, level: LogLevel, time: &jiff::Zoned, text: &str) -> String {
        let (pid, time) = (std::process::id(), self.time(time));
        match self.format {
            LogFormat::Legacy => format!("{pid}:M {time} {} {text}\n", rank(level).1),
            LogFormat::Logfmt => {
                let (level, text) = (level.word(), within_quotes(text));
                format!("pid={pid} role=primary timestamp=\"{time}\" level={level} message=\"{text}\"\n")
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

/// A text that stays on its line and within its quotes.
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

/// Takes level and form of lines from the settings.
pub fn follow(settings: &Settings) {
    LEVEL.store(rank(settings.loglevel.get()).0, Ordering::Relaxed);
    let form = LineFormat { format: settings.log_format.get(), timestamp: settings.log_timestamp_format.get() };
    OUTLET.lock().unwrap_or_else(PoisonError::into_inner).form = form;
}

/// Has lines go to the system's log as well, if the settings ask for it.
pub fn begin_syslog(settings: &Settings) {
    OUTLET.lock().unwrap_or_else(PoisonError::into_inner).syslog = Syslog::of(settings);
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
    OUTLET.lock().unwrap_or_else(PoisonError::into_inner).file = Some(file);
    Ok(())
}

/// Opens the file anew for each line: after log rotation has moved it away, the next line begins a new file.
fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(file)
}

/// Writes a line. A log that can't be written is no reason to stop serving.
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

/// Something that operators want to know.
pub fn notice(text: impl AsRef<str>) {
    write(LogLevel::Notice, text.as_ref());
}

/// Something that operators should look at.
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
        let milliseconds = line(LogFormat::Legacy, LogTimestamp::Milliseconds);
        assert_eq!(milliseconds, format!("{pid}:M 1772580967089 # a \"b\"\nc\n"));
    }
}
