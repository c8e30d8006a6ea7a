//! Counters of CLUSTER INFO.

use crate::wire::Kind;

/// The messages and bytes of one direction, by kind of message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    messages: [u64; Kind::ALL.len()],
    bytes: [u64; Kind::ALL.len()],
}

impl Traffic {
    pub(crate) fn note(&mut self, kind: Kind, bytes: usize) {
        self.note_message(kind);
        self.note_bytes(kind, bytes);
    }

    pub(crate) fn note_message(&mut self, kind: Kind) {
        self.messages[kind as usize] += 1;
    }

    pub(crate) fn note_bytes(&mut self, kind: Kind, bytes: usize) {
        self.bytes[kind as usize] += bytes as u64;
    }

    /// The lines about messages: each kind that was seen, then the sum.
    fn message_lines(&self, direction: &str, lines: &mut Vec<(String, u64)>) {
        let seen = Kind::ALL.iter().zip(&self.messages).filter(|(_, count)| **count > 0);
        lines.extend(seen.map(|(kind, count)| (format!("cluster_stats_messages_{}_{direction}", kind.name()), *count)));
        lines.push((format!("cluster_stats_messages_{direction}"), self.messages.iter().sum()));
    }

    fn bytes_of(&self, kinds: &[Kind]) -> u64 {
        kinds.iter().map(|kind| self.bytes[*kind as usize]).sum()
    }
}

/// Counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    /// Links that were closed for a long queue.
    pub(crate) links_over_limit: u64,
}

impl Stats {
    /// The lines of CLUSTER INFO.
    pub(crate) fn lines(&self) -> Vec<(String, u64)> {
        const CLASSES: [(&str, &[Kind]); 3] =
            [("", &Kind::ALL), ("pubsub_", &[Kind::Publish, Kind::PublishShard]), ("module_", &[Kind::Module])];
        let both = [(&self.sent, "sent"), (&self.received, "received")];
        let mut lines = Vec::new();
        both.iter().for_each(|(traffic, direction)| traffic.message_lines(direction, &mut lines));
        for (class, kinds) in CLASSES {
            let line = |(traffic, direction): &(&Traffic, &str)| {
                (format!("cluster_stats_{class}bytes_{direction}"), traffic.bytes_of(kinds))
            };
            lines.extend(both.iter().map(line));
        }
        lines.push(("total_cluster_links_buffer_limit_exceeded".into(), self.links_over_limit));
        lines
    }
}
