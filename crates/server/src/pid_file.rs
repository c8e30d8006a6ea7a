//! `pidfile`: the process's id, for supervisors that read it.

use std::fs;
use std::path::{Path, PathBuf};

use engine::config::Settings;

use crate::{daemon, log};

/// The file of a server in the background for which none is configured: Redis's.
const BACKGROUND: &str = "/var/run/redis.pid";

/// The file with this process's id, which is there as long as this value is.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file that the configuration asks for. The server runs as well without it: a failure is only logged.
    #[must_use]
    pub fn write(settings: &Settings) -> Option<PidFile> {
        let name = match &*settings.pidfile.get() {
            "" if daemon::is_wanted(settings) => BACKGROUND.to_owned(),
            "" => return None,
            name => name.to_owned(),
        };
        // Absolute, since `dir` may change before the file is removed.
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

/// Whether the file still is what this process wrote: another server may have been given the same path since.
fn is_own(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found == content())
}
