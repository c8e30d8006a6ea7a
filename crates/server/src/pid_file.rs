//! `pidfile`: the process's id, for supervisors that read it.

use std::fs;
use std::path::{Path, PathBuf};

use config::Settings;

use crate::{daemon, log};

/// The file of a server in the background without a configured name: Redis's default.
const BACKGROUND: &str = "/var/run/redis.pid";

/// The file with this process's id. It is removed when this value is dropped.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the configured file. A failure is only logged, because the server runs without it.
    #[must_use]
    pub fn write(settings: &Settings) -> Option<PidFile> {
        let name = match &*settings.pidfile.get() {
            "" if daemon::is_wanted(settings) => BACKGROUND.to_owned(),
            "" => return None,
            name => name.to_owned(),
        };
        // Absolute, because `dir` may change before the file is removed.
        let path = settings.in_dir(&name);
        match fs::write(&path, content()) {
            Ok(()) => Some(PidFile(path)),
            Err(error) => {
                log::warning(format!("Failed to write PID file: {}: {error}", path.display()));
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if is_own(&self.0) {
            log::notice("Removing the pid file.");
            if let Err(error) = fs::remove_file(&self.0) {
                log::warning(format!("Failed to remove PID file: {}: {error}", self.0.display()));
            }
        }
    }
}

fn content() -> String {
    format!("{}\n", std::process::id())
}

/// Returns true if the file still has this process's id: another server may use the path by now.
fn is_own(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found == content())
}
