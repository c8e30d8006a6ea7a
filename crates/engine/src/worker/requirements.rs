//! Limits, permissions and modes that may refuse or delay a command, and the sources of commands that each one binds.
//!
//! All of them bind clients' commands. Commands from a loaded file or from the primary's stream were accepted before:
//! refusing them here would make the data differ silently from their source. The payload of RESTORE, which MIGRATE
//! sends as a client of the other server, is part of a client's command; the table also has whether the requirement
//! binds the value within.
//!
//! Only requirements that depend on this server's settings or state are here. Unknown commands, wrong numbers of
//! arguments and wrong types are errors for every sender. Framing has limits of its own (`resp::request::Limits`).

use super::Worker;
use crate::state::STRING_BYTES_MAX;
use statistics::ticks::Ticks;

/// A limit, a permission or a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requirement {
    /// The client has authenticated (`requirepass`, AUTH).
    Authentication,
    /// The user may run the command (ACL SETUSER).
    Permission,
    /// There is memory for the command's additions (`maxmemory`).
    Memory,
    /// The disk accepts changes (`stop-writes-on-bgsave-error`, the append-only file).
    Disk,
    /// Enough replicas keep up (`min-replicas-to-write`).
    Replicas,
    /// The keys of a replica belong to its primary (`replica-read-only`).
    Writable,
    /// The data are up to date (`replica-serve-stale-data`).
    Fresh,
    /// All data are loaded (LOADING).
    Loaded,
    /// CLIENT PAUSE, FAILOVER and MIGRATE don't delay the command.
    Running,
    /// The string stays below `proto-max-bulk-len`.
    StringBytes,
}

/// The sources beside clients that a requirement binds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// The requirement.
    pub requirement: Requirement,
    /// A loaded file.
    pub file: bool,
    /// The stream of a primary.
    pub stream: bool,
    /// The values within payloads of RESTORE.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no reader of payloads checks a requirement; the test walks the table")
    )]
    pub payload: bool,
}

const fn clients_only(requirement: Requirement) -> Binding {
    Binding { requirement, file: false, stream: false, payload: false }
}

/// Every requirement, in the order of [`Requirement`].
pub(crate) const BINDINGS: &[Binding] = &[
    clients_only(Requirement::Authentication),
    clients_only(Requirement::Permission),
    clients_only(Requirement::Memory),
    clients_only(Requirement::Disk),
    clients_only(Requirement::Replicas),
    clients_only(Requirement::Writable),
    clients_only(Requirement::Fresh),
    clients_only(Requirement::Loaded),
    clients_only(Requirement::Running),
    clients_only(Requirement::StringBytes),
];

// One flag stands for the application of both files and streams. The table is indexed by the requirement's number.
const _: () = {
    let mut i = 0;
    while i < BINDINGS.len() {
        assert!(BINDINGS[i].file == BINDINGS[i].stream && BINDINGS[i].requirement as usize == i);
        i += 1;
    }
    assert!(Requirement::StringBytes as usize + 1 == BINDINGS.len());
};

impl Worker {
    /// Returns whether a requirement binds the present commands: those of clients, or of an applied file or stream.
    #[inline]
    pub(crate) fn binds(&self, requirement: Requirement) -> bool {
        !self.clock.replays || BINDINGS[requirement as usize].file
    }

    /// Switches between commands of a file or a stream, and commands of clients.
    pub(crate) fn set_replays(&mut self, replays: bool) {
        self.clock.replays = replays;
        self.clock.set(Ticks::now());
        self.rules.string_bytes_max = self.string_bytes_max();
    }

    /// Returns the greatest length of a string in bytes. Without a configured limit, it is the greatest value of the
    /// directive.
    pub(super) fn string_bytes_max(&self) -> usize {
        match self.binds(Requirement::StringBytes) {
            true => self.engine.settings.proto_max_bulk_len.get_usize(),
            false => usize::try_from(STRING_BYTES_MAX).unwrap_or(usize::MAX),
        }
    }
}
