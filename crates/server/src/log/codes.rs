//! Codes of warnings. An operator finds a code in docs/troubleshooting.md, with the cause and the remedy.
//!
//! A code belongs to a fragment of the line. The crates below this one write some of the lines and know no codes.

/// Each code with the fragment that identifies its line. A code keeps its meaning for ever; the number of a removed one is not used again.
const CODES: &[(&str, &str)] = &[
    // Connections.
    ("PS101", "Could not create server TCP listening socket"),
    ("PS102", "Accepting client connection: "),
    ("PS103", "Can't go on listening on "),
    ("PS104", "scheduled to be closed ASAP for overcoming of output buffer limits"),
    ("PS105", "closed: it has yet to authenticate, and doesn't read its replies"),
    ("PS106", "closed: it has read none of its replies for "),
    ("PS107", "Closing client that reached max query buffer length"),
    ("PS108", "Closing client that has not authenticated"),
    ("PS109", "Possible SECURITY ATTACK detected"),
    ("PS110", "Unread replies can't be "),
    ("PS111", "TLS: a changed file can't be used"),
    ("PS112", "but the limit on open files leaves room for "),
    // The disk.
    ("PS201", "Failed saving the DB: "),
    ("PS202", "Can't begin to save: "),
    ("PS203", "Error trying to save the DB, can't exit."),
    ("PS204", "Error writing to the append-only file: "),
    ("PS205", "Syncing the append-only file takes longer than "),
    ("PS206", "Error syncing the append-only file: "),
    ("PS207", "The append-only file could not be written: the server ends"),
    ("PS208", "The disk of the append-only file doesn't answer: the server ends"),
    ("PS209", "Can't write the append-only file, can't exit"),
    ("PS210", "Writing initial AOF, can't exit"),
    ("PS211", "Can't begin another append-only file: "),
    ("PS212", "were not written whole when the server ended, and are cut off"),
    ("PS213", "== CRITICAL == This AOF-loading-client"),
    ("PS214", "exists and is not read, since appendonly is off"),
    ("PS215", "The primary's data are not in the append-only file."),
    ("PS216", "Commands that write are refused until it answers"),
    ("PS217", "Writing ACL file for ACL SAVE: "),
    ("PS218", "PID file: "),
    // Replication.
    ("PS301", "The link to the primary "),
    ("PS302", "The failover is given up: no replica has had all data in time."),
    ("PS303", "The failover is given up: this server goes on as a primary."),
    ("PS304", "commands of the primary's could not be applied"),
    ("PS305", "Replicas lack some of the data "),
    ("PS306", "The stream for slow replicas can't be kept on disk"),
    ("PS307", "it has closed the connection without loading the snapshot"),
    ("PS308", "MIGRATE can't connect to "),
    // The cluster.
    ("PS401", "Cluster state changed: fail"),
    ("PS402", "Cluster is currently down: "),
    ("PS403", "nodes.conf could not be saved: "),
    ("PS404", "This process was stopped, or all of its workers hung"),
    ("PS405", "Manual failover timed out."),
    ("PS406", "Failover auth denied to "),
    ("PS407", "Deleting keys in dirty slot "),
    ("PS408", "A link's queue exceeds cluster-link-sendbuf-limit"),
    ("PS409", "published messages were dropped"),
    ("PS410", "A connection to the cluster bus can't be encrypted"),
    ("PS411", "to the cluster bus was closed: there are too many."),
    ("PS412", "nodes.conf was repaired: "),
    ("PS413", "Can't exit: a primary that shuts down leaves its slots"),
    // Memory, scripts and the system.
    ("PS501", "is smaller than the current memory"),
    ("PS502", "The control group of this process may use "),
    ("PS503", "Slow script detected: "),
    ("PS504", "systemd supervision error: "),
];

/// Returns the code of a warning, if it has one.
pub(super) fn of(text: &str) -> Option<&'static str> {
    CODES.iter().find(|(_, fragment)| text.contains(fragment)).map(|(code, _)| *code)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Returns the text of all source files below a directory, but for this one.
    fn sources(directory: &Path) -> String {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: std::path::PathBuf| match path.is_dir() {
            true => sources(&path),
            false if path.ends_with("log/codes.rs") => String::new(),
            false => fs::read_to_string(path).unwrap(),
        };
        entries.map(text).collect()
    }

    #[test]
    fn each_fragment_is_part_of_a_message() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text: String = ["server", "engine", "cluster"].map(|name| sources(&crates.join(name).join("src"))).concat();
        for (code, fragment) in CODES {
            assert!(text.contains(fragment), "{code}: no message contains {fragment:?}");
        }
    }

    #[test]
    fn the_page_explains_each_code_once() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/troubleshooting.md");
        let page = fs::read_to_string(page).unwrap();
        for (code, _) in CODES {
            assert_eq!(page.matches(&format!("| `{code}` |")).count(), 1, "{code}");
        }
        let explained = page.matches("| `PS").count();
        assert_eq!(explained, CODES.len(), "the page has a code that no line of the log has");
    }

    #[test]
    fn codes_are_unique_and_belong_to_their_lines() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        assert_eq!(of("Failed saving the DB: No space left on device"), Some("PS201"));
        assert_eq!(of("Ready to accept connections"), None);
    }
}
