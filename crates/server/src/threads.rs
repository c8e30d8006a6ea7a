//! Every thread of a running server. A thread of this crate is started by [`spawn`] or [`spawn_numbered`] only; the
//! table also lists the threads of the crates below, which start theirs themselves.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::time_slice;

/// A kind of thread.
#[derive(Debug)]
pub struct Thread {
    /// The thread's name in `top -H` and in core dumps. Numbered threads have a dash and their number behind it.
    pub name: &'static str,
    /// The names as ARCHITECTURE.md shows them.
    pub shown: &'static str,
    /// The module or crate that starts it, and the occasion.
    pub started_by: &'static str,
    /// The state that only this thread changes.
    pub owns: &'static str,
    /// The events that wake it.
    pub waits_for: &'static str,
    /// The end of the thread.
    pub ends: &'static str,
}

/// The thread `main`.
pub const MAIN: Thread = Thread {
    name: "main",
    shown: "main",
    started_by: "the process",
    owns: "signals, the shutdown",
    waits_for: "signals",
    ends: "with the process",
};

/// The thread `worker`.
pub const WORKER: Thread = Thread {
    name: "worker",
    shown: "`worker-N`",
    started_by: "`server::run`",
    owns: "its connections, buffers, Lua machine, advisor",
    waits_for: "its poller; polls briefly first",
    ends: "with the process",
};

/// The thread `aof`.
pub const AOF: Thread = Thread {
    name: "aof",
    shown: "`aof`",
    started_by: "`append_only`, while `appendonly` is on",
    owns: "the append-only file",
    waits_for: "lanes of the journal; unparked by workers",
    ends: "when the file is turned off, and at the shutdown",
};

/// The thread `aof-sync`.
pub const AOF_SYNC: Thread = Thread {
    name: "aof-sync",
    shown: "`aof-sync`",
    started_by: "`append_only::syncer`",
    owns: "nothing; receives file handles",
    waits_for: "sync jobs of `aof`",
    ends: "with `aof`",
};

/// The thread `aof-open`.
pub const AOF_OPEN: Thread = Thread {
    name: "aof-open",
    shown: "`aof-open`",
    started_by: "`append_only`, when the file is turned on again before it is closed",
    owns: "nothing",
    waits_for: "the end of the former `aof`",
    ends: "when the file is on",
};

/// The thread `aof-retry`.
pub const AOF_RETRY: Thread = Thread {
    name: "aof-retry",
    shown: "`aof-retry`",
    started_by: "`append_only`, after a failed start of the file on a replica",
    owns: "nothing",
    waits_for: "a timer of five seconds",
    ends: "when the file is on, or no longer wanted",
};

/// The thread `snapshot`.
pub const SNAPSHOT: Thread = Thread {
    name: "snapshot",
    shown: "`snapshot`",
    started_by: "`saving`, one per snapshot",
    owns: "the file of the snapshot",
    waits_for: "pieces from the workers",
    ends: "with the snapshot",
};

/// The thread `loader`.
pub const LOADER: Thread = Thread {
    name: "loader",
    shown: "`loader`",
    started_by: "`loading`, at the start and at DEBUG LOADAOF",
    owns: "a worker without clients",
    waits_for: "the files",
    ends: "when the data are loaded",
};

/// The thread `load-reader`.
pub const LOAD_READER: Thread = Thread {
    name: "load-reader",
    shown: "`load-reader`",
    started_by: "`engine::snapshots::reading`, with two or more threads",
    owns: "the decoder of a snapshot",
    waits_for: "room in the queue to the loader",
    ends: "with the snapshot",
};

/// The thread `replica`.
pub const REPLICA: Thread = Thread {
    name: "replica",
    shown: "`replica`",
    started_by: "`replica`, after loading",
    owns: "the link to the primary",
    waits_for: "the link; a change of REPLICAOF",
    ends: "with the process",
};

/// The thread `replicas`.
pub const REPLICAS: Thread = Thread {
    name: "replicas",
    shown: "`replicas`",
    started_by: "`primary`",
    owns: "connections of replicas, the backlog",
    waits_for: "its poller; dozes one millisecond while units arrive",
    ends: "with the process",
};

/// The thread `bus`.
pub const BUS: Thread = Thread {
    name: "bus",
    shown: "`bus`",
    started_by: "`bus`, with `cluster-enabled yes`",
    owns: "the state of the cluster, the links to other nodes",
    waits_for: "its poller; a tick of 100 ms",
    ends: "with the process",
};

/// The thread `cluster-file`.
pub const CLUSTER_FILE: Thread = Thread {
    name: "cluster-file",
    shown: "`cluster-file`",
    started_by: "`bus::saver`",
    owns: "nodes.conf and its lock",
    waits_for: "saves that `bus` asks for",
    ends: "with the process",
};

/// The thread `cluster-roles`.
pub const CLUSTER_ROLES: Thread = Thread {
    name: "cluster-roles",
    shown: "`cluster-roles`",
    started_by: "`bus::executor`",
    owns: "nothing; changes the engine for `bus`",
    waits_for: "decisions of `bus`; the gate",
    ends: "with the process",
};

/// The thread `spill`.
pub const SPILL: Thread = Thread {
    name: "spill",
    shown: "`spill-0`, `spill-1`",
    started_by: "`spill`",
    owns: "files of unread replies",
    waits_for: "requests of the workers",
    ends: "with the process",
};

/// The thread `handshakes`.
pub const HANDSHAKES: Thread = Thread {
    name: "handshakes",
    shown: "`handshakes-N`",
    started_by: "`tls::handshakes`, half as many as cores, four at most",
    owns: "connections during their TLS handshake",
    waits_for: "its poller",
    ends: "with the process",
};

/// The thread `migration`.
pub const MIGRATION: Thread = Thread {
    name: "migration",
    shown: "`migration`",
    started_by: "`migrating`, on demand, 16 at most",
    owns: "a connection to another server",
    waits_for: "migrations in its queue",
    ends: "after ten idle seconds",
};

/// The thread `slot-export`.
pub const SLOT_EXPORT: Thread = Thread {
    name: "slot-export",
    shown: "`slot-export`",
    started_by: "`slot_moves`, at the first export of slots",
    owns: "the connection to the slots' target; a reader of the journal",
    waits_for: "the connection; units of the journal",
    ends: "with the last export",
};

/// The thread `slot-import`.
pub const SLOT_IMPORT: Thread = Thread {
    name: "slot-import",
    shown: "`slot-import`",
    started_by: "`slot_moves`, one per import of slots",
    owns: "the connection of the slots' source, two if it is Redis",
    waits_for: "the connection; the worker that applies the commands",
    ends: "with the import",
};

/// The thread `http`.
pub const HTTP: Thread = Thread {
    name: "http",
    shown: "`http`",
    started_by: "`front`",
    owns: "all HTTP connections",
    waits_for: "its own runtime",
    ends: "with the process",
};

/// The thread `penstock-heap`.
pub const HEAP: Thread = Thread {
    name: "penstock-heap",
    shown: "`penstock-heap`",
    started_by: "`huge_pages`",
    owns: "the memory that becomes the next huge page",
    waits_for: "growth of the heap",
    ends: "with the process",
};

/// The thread `penstock-reaper`.
pub const REAPER: Thread = Thread {
    name: "penstock-reaper",
    shown: "`penstock-reaper`",
    started_by: "`store::reaper`, at the first large value",
    owns: "values that left the keyspace",
    waits_for: "its bounded queue",
    ends: "with the process",
};

/// All kinds of threads, in the order of ARCHITECTURE.md.
pub const ALL: &[Thread] = &[
    MAIN,
    WORKER,
    AOF,
    AOF_SYNC,
    AOF_OPEN,
    AOF_RETRY,
    SNAPSHOT,
    LOADER,
    LOAD_READER,
    REPLICA,
    REPLICAS,
    BUS,
    CLUSTER_FILE,
    CLUSTER_ROLES,
    SPILL,
    HANDSHAKES,
    MIGRATION,
    SLOT_EXPORT,
    SLOT_IMPORT,
    HTTP,
    HEAP,
    REAPER,
];

/// Starts a thread. It has the default time slice, also if a worker starts it.
///
/// # Errors
/// Returns the system's error if it can start no other thread; [`cannot_start`] describes it.
pub fn spawn<T: Send + 'static>(
    thread: &Thread,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start(thread.name.to_owned(), run)
}

/// Like [`spawn`], for one of several threads of a kind.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_numbered<T: Send + 'static>(
    thread: &Thread,
    number: usize,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start(thread.numbered(number), run)
}

fn start<T: Send + 'static>(name: String, run: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name).spawn(|| {
        time_slice::reset();
        run()
    })
}

impl Thread {
    /// Returns the name of one of several threads of this kind.
    #[must_use]
    pub fn numbered(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

/// Returns the message for a thread that could not be started.
#[expect(clippy::needless_pass_by_value, reason = "the function is passed to `map_err`")]
#[must_use]
pub fn cannot_start(error: io::Error) -> String {
    format!("can't start a thread: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_page_shows_the_same_table() {
        let page = include_str!("../../../ARCHITECTURE.md");
        let expected: Vec<String> = ALL
            .iter()
            .map(|t| format!("| {} | {} | {} | {} | {} |", t.shown, t.started_by, t.owns, t.waits_for, t.ends))
            .collect();
        let rows = page.lines().skip_while(|line| !line.starts_with("| thread | started by |")).skip(2);
        let found: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_name_fits_into_the_kernels_fifteen_bytes() {
        for thread in ALL {
            assert!(thread.name.len() <= 15, "{}", thread.name);
        }
    }
}
