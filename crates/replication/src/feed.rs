//! Turns units into the stream that a primary sends to its replicas.
//!
//! A unit of several commands is a transaction. The count of a pipeline token, known only to Penstock, is the argument of a PING. Other
//! servers ignore it: all replicas get the same bytes, and offsets mean the same everywhere.

use journal::record::{Entry, Kind};
use resp::num::write_u64;

/// A sign of life in the stream.
pub const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Asks replicas for their offsets, for an immediate reply.
pub const ASK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// Turns units into the stream's bytes.
#[derive(Debug, Default)]
pub struct Feed {
    /// The database selected in the stream.
    database: Option<usize>,
}

impl Feed {
    /// Makes the next command select its database: a new reader of the stream has no selected database.
    pub fn forget_database(&mut self) {
        self.database = None;
    }

    /// Appends a unit to `out`.
    pub fn unit<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>> + Clone, out: &mut Vec<u8>) {
        let entries = entries.filter(|entry| entry.kind.is_for_replicas());
        let is_transaction = entries.clone().nth(1).is_some();
        if is_transaction {
            // Selected before the transaction, and valid for later commands even if the transaction is refused.
            if let Some(first) = entries.clone().find(|entry| entry.kind.is_command()) {
                self.select(first.database, out);
            }
            out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        }
        for entry in entries {
            match entry.kind {
                Kind::Command | Kind::FileCommand | Kind::ReplicaCommand => {
                    self.select(entry.database, out);
                    out.extend_from_slice(entry.command);
                }
                Kind::Message => out.extend_from_slice(entry.command),
                Kind::Own => {
                    out.extend_from_slice(b"*2\r\n$4\r\nPING\r\n");
                    bulk(entry.command, out);
                }
            }
        }
        if is_transaction {
            out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
        }
    }

    fn select(&mut self, database: usize, out: &mut Vec<u8>) {
        if self.database == Some(database) {
            return;
        }
        self.database = Some(database);
        let mut digits = Vec::new();
        write_u64(&mut digits, database as u64);
        out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n");
        bulk(&digits, out);
    }
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'$');
    write_u64(out, bytes.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use journal::record::{Record, entries};

    use super::*;

    fn fed(feed: &mut Feed, unit: &[(usize, Kind, &str)]) -> String {
        let mut record = Record::default();
        for (database, kind, words) in unit {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            record.push(*database, *kind, words.into_iter());
        }
        let mut out = Vec::new();
        feed.unit(entries(record.bytes()), &mut out);
        let text = String::from_utf8(out).unwrap();
        let words = text.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with('$'));
        words.map(|word| if word.starts_with('*') { ";" } else { word }).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn databases_are_selected_where_they_change() {
        let feed = &mut Feed::default();
        assert_eq!(fed(feed, &[(0, Kind::Command, "DEL a")]), "; SELECT 0 ; DEL a");
        assert_eq!(fed(feed, &[(0, Kind::Command, "DEL a")]), "; DEL a");
        let both = [(0, Kind::Command, "DEL a"), (12, Kind::Command, "DEL b")];
        assert_eq!(fed(feed, &both), "; MULTI ; DEL a ; SELECT 12 ; DEL b ; EXEC");
        assert_eq!(fed(feed, &[(0, Kind::Command, "DEL a")]), "; SELECT 0 ; DEL a");
        feed.forget_database();
        assert_eq!(fed(feed, &both), "; SELECT 0 ; MULTI ; DEL a ; SELECT 12 ; DEL b ; EXEC");
    }

    #[test]
    fn the_count_of_a_token_is_in_the_transaction_of_its_commands() {
        let feed = &mut Feed::default();
        let unit = [(0, Kind::Command, "DEL a"), (0, Kind::Own, "PIPELINE COUNT")];
        assert_eq!(fed(feed, &unit), "; SELECT 0 ; MULTI ; DEL a ; PING ; PIPELINE COUNT ; EXEC");
        assert_eq!(fed(feed, &[(0, Kind::Own, "PIPELINE END")]), "; PING ; PIPELINE END");
    }

    #[test]
    fn commands_for_the_file_alone_are_left_out() {
        let feed = &mut Feed::default();
        assert_eq!(fed(feed, &[(3, Kind::FileCommand, "DEL a")]), "");
        let unit = [(3, Kind::FileCommand, "DEL a"), (0, Kind::ReplicaCommand, "DEL b")];
        assert_eq!(fed(feed, &unit), "; SELECT 0 ; DEL b");
        let unit = [(0, Kind::Command, "DEL a"), (3, Kind::FileCommand, "DEL b"), (0, Kind::ReplicaCommand, "DEL c")];
        assert_eq!(fed(feed, &unit), "; MULTI ; DEL a ; DEL c ; EXEC");
    }

    #[test]
    fn messages_need_no_database() {
        let feed = &mut Feed::default();
        assert_eq!(fed(feed, &[(3, Kind::Message, "PUBLISH c m")]), "; PUBLISH c m");
        let unit = [(3, Kind::Message, "PUBLISH c m"), (0, Kind::Command, "DEL a")];
        assert_eq!(fed(feed, &unit), "; SELECT 0 ; MULTI ; PUBLISH c m ; DEL a ; EXEC");
    }
}
