//! The messages for a link's socket, in two classes.
//!
//! Messages about the cluster overtake published ones, so that a flood of published messages delays no PING. Published messages are
//! delivered at most once anyway: those that the queue has no room for are dropped.

use std::collections::VecDeque;

/// Bytes given to the socket at once. Nothing overtakes these any more.
const PART_BYTES: usize = 64 << 10;

/// The class of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// About the cluster.
    Cluster,
    /// For subscribers.
    Published,
}

/// The messages for a link's socket.
#[derive(Default)]
pub struct SendQueue {
    cluster: VecDeque<Vec<u8>>,
    published: VecDeque<Vec<u8>>,
    /// The bytes that leave now, and how many of them have left.
    part: Vec<u8>,
    part_sent: usize,
    bytes: usize,
}

impl SendQueue {
    /// Adds a message. A published one is dropped if the queue has more than `published_max` bytes with it, unless the queue is empty.
    /// Returns false for a dropped one.
    pub fn push(&mut self, class: Class, message: Vec<u8>, published_max: usize) -> bool {
        let bytes = self.bytes + message.len();
        if class == Class::Published && self.bytes > 0 && bytes > published_max {
            return false;
        }
        self.bytes = bytes;
        match class {
            Class::Cluster => self.cluster.push_back(message),
            Class::Published => self.published.push_back(message),
        }
        true
    }

    /// The bytes that have not left.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next bytes to send; empty if there are none.
    pub fn part(&mut self) -> &[u8] {
        if self.part_sent == self.part.len() {
            self.begin_part();
        }
        &self.part[self.part_sent..]
    }

    fn begin_part(&mut self) {
        self.part.clear();
        self.part_sent = 0;
        while self.part.len() < PART_BYTES
            && let Some(message) = self.cluster.pop_front().or_else(|| self.published.pop_front())
        {
            if self.part.is_empty() {
                self.part = message;
            } else {
                self.part.extend(message);
            }
        }
    }

    /// Notes that the socket has taken some of [`SendQueue::part`].
    pub fn note_sent(&mut self, bytes: usize) {
        self.part_sent += bytes;
        self.bytes -= bytes;
        if self.bytes == 0 {
            (self.part, self.part_sent) = (Vec::new(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes everything, in parts of this many bytes.
    fn drain(queue: &mut SendQueue, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !queue.part().is_empty() {
            let part = queue.part();
            let taken = part.len().min(step);
            all.extend_from_slice(&part[..taken]);
            queue.note_sent(taken);
        }
        assert_eq!(queue.bytes(), 0);
        all
    }

    #[test]
    fn messages_about_the_cluster_overtake_published_ones_that_have_not_begun_to_leave() {
        let mut queue = SendQueue::default();
        let big = vec![b'1'; PART_BYTES];
        for (class, message) in
            [(Class::Published, &big[..]), (Class::Published, b"2"), (Class::Cluster, b"a"), (Class::Cluster, b"b")]
        {
            assert!(queue.push(class, message.to_vec(), usize::MAX));
        }
        assert!(queue.part().starts_with(b"ab1"));
        queue.note_sent(1);
        assert!(queue.push(Class::Cluster, b"c".to_vec(), usize::MAX));
        let left = drain(&mut queue, 7);
        assert!(left.starts_with(b"b1") && left.ends_with(b"1c2"));
    }

    #[test]
    fn published_messages_without_room_are_dropped_and_others_are_not() {
        let mut queue = SendQueue::default();
        // A single one may exceed the limit.
        assert!(queue.push(Class::Published, vec![0; 20], 10));
        assert!(!queue.push(Class::Published, vec![0; 1], 10));
        assert!(queue.push(Class::Cluster, vec![0; 20], 10));
        assert_eq!(queue.bytes(), 40);
        drain(&mut queue, 3);
        assert!(queue.push(Class::Published, vec![0; 5], 10) && queue.push(Class::Published, vec![0; 5], 10));
        assert!(!queue.push(Class::Published, vec![0; 1], 10));
        assert_eq!(drain(&mut queue, 100).len(), 10);
    }
}
