//! A file reader that shows its progress on a terminal if reading takes long.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Reading shows no progress before this time has passed.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval of clock reads, in bytes.
const STEP_BYTES: u64 = 1 << 20;

/// A file that is being read.
pub struct Input {
    file: File,
    bytes: u64,
    read: u64,
    /// Bytes read at the last clock read.
    noted: u64,
    began: Instant,
    progress: ReadProgress,
}

enum ReadProgress {
    /// Progress is off.
    Never,
    /// Reading isn't slow yet. The string is the name for the progress bar.
    Later(String),
    Bar(ProgressBar),
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn open(path: &Path, quiet: bool) -> io::Result<Input> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let progress = if quiet || !io::stderr().is_terminal() {
            ReadProgress::Never
        } else {
            ReadProgress::Later(path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
        };
        Ok(Input { file, bytes, read: 0, noted: 0, began: Instant::now(), progress })
    }

    /// Returns the size at the time of opening, in bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    fn show(&mut self) {
        if self.read - self.noted < STEP_BYTES {
            return;
        }
        self.noted = self.read;
        match &self.progress {
            ReadProgress::Later(name) if self.began.elapsed() >= PATIENCE => {
                self.progress = ReadProgress::Bar(bar(name, self.bytes));
            }
            ReadProgress::Bar(bar) => {
                bar.set_position(self.read);
                bar.set_message(left(self.began.elapsed(), self.read, self.bytes));
            }
            _ => {}
        }
    }
}

impl Read for Input {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(room)?;
        self.read += count as u64;
        self.show();
        Ok(count)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let ReadProgress::Bar(bar) = &self.progress {
            bar.finish_and_clear();
        }
    }
}

fn bar(name: &str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes).with_prefix(name.to_owned());
    match ProgressStyle::with_template("{bar:30} {percent:>3} % of {prefix} {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Formats the rate and the remaining time at this rate: `(250 MB/s, 3 s left)`.
fn left(elapsed: Duration, read: u64, bytes: u64) -> String {
    let rate = read as f64 / elapsed.as_secs_f64().max(1e-6);
    format!("({:.0} MB/s, {:.0} s left)", rate / 1e6, bytes.saturating_sub(read) as f64 / rate.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_by_the_rate_so_far() {
        assert_eq!(left(Duration::from_secs(2), 500_000_000, 1_000_000_000), "(250 MB/s, 2 s left)");
        assert_eq!(left(Duration::ZERO, 0, 0), "(0 MB/s, 0 s left)");
    }
}
