//! `syslog-enabled`: sends lines to the system's log, by the local protocol of syslog(3).
//!
//! A line is a datagram to `/dev/log`: the priority, the local time, the name and process id, the text. Sources: RFC 3164 and syslog(3),
//! which has no host name between time and name.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use config::{LogLevel, Settings, SyslogFacility};

/// The socket of the system's log.
const SOCKET: &str = "/dev/log";

/// A connection to the system's log.
#[derive(Debug)]
pub struct Syslog {
    path: PathBuf,
    /// The name of this server in the system's log.
    ident: String,
    facility: u8,
    /// `None` until a connection succeeds.
    socket: Option<UnixDatagram>,
}

impl Syslog {
    /// Returns the configured connection, or `None` if it is off.
    #[must_use]
    pub fn of(settings: &Settings) -> Option<Syslog> {
        let ident = settings.syslog_ident.get();
        let facility = facility_number(settings.syslog_facility.get());
        settings.syslog_enabled.get().then(|| Syslog::at(Path::new(SOCKET), &ident, facility))
    }

    fn at(path: &Path, ident: &str, facility: u8) -> Syslog {
        Syslog { path: path.to_owned(), ident: ident.to_owned(), facility, socket: None }
    }

    /// Sends a line. A line that the system doesn't take at once is dropped, and no client is delayed by a system's log that hangs. A lost
    /// connection is reopened for the next try.
    pub fn send(&mut self, level: LogLevel, time: &jiff::Zoned, text: &str) {
        let line = self.line(level, time, text);
        for _ in 0..2 {
            let Some(socket) = self.connected() else { return };
            match socket.send(line.as_bytes()) {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => self.socket = None,
                _ => return,
            }
        }
    }

    fn line(&self, level: LogLevel, time: &jiff::Zoned, text: &str) -> String {
        let priority = self.facility * 8 + severity(level);
        let time = time.strftime("%b %e %H:%M:%S");
        format!("<{priority}>{time} {}[{}]: {text}", self.ident, std::process::id())
    }

    fn connected(&mut self) -> Option<&UnixDatagram> {
        if self.socket.is_none() {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            socket.connect(&self.path).ok()?;
            self.socket = Some(socket);
        }
        self.socket.as_ref()
    }
}

/// The number of a facility in RFC 3164.
fn facility_number(facility: SyslogFacility) -> u8 {
    match facility {
        SyslogFacility::User => 1,
        SyslogFacility::Local0 => 16,
        SyslogFacility::Local1 => 17,
        SyslogFacility::Local2 => 18,
        SyslogFacility::Local3 => 19,
        SyslogFacility::Local4 => 20,
        SyslogFacility::Local5 => 21,
        SyslogFacility::Local6 => 22,
        SyslogFacility::Local7 => 23,
    }
}

/// The severity in RFC 3164, by Redis's mapping of levels.
fn severity(level: LogLevel) -> u8 {
    match level {
        LogLevel::Debug => 7,
        LogLevel::Verbose => 6,
        LogLevel::Notice => 5,
        LogLevel::Warning | LogLevel::Nothing => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn lines_reach_the_systems_log_again_after_it_was_started_anew() {
        let path = std::env::temp_dir().join(format!("penstock-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut syslog = Syslog::at(&path, "name", facility_number(SyslogFacility::Local3));
        let time: jiff::Zoned = "2026-03-04T05:06:07+00:00[UTC]".parse().unwrap();
        syslog.send(LogLevel::Warning, &time, "there is no socket yet");
        for text in ["first", "second"] {
            let system = UnixDatagram::bind(&path).unwrap();
            syslog.send(LogLevel::Notice, &time, text);
            let pid = std::process::id();
            assert_eq!(receive(&system), format!("<157>Mar  4 05:06:07 name[{pid}]: {text}"));
            // A full socket doesn't block the sender.
            (0..10_000).for_each(|_| syslog.send(LogLevel::Debug, &time, "x"));
            drop(system);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
