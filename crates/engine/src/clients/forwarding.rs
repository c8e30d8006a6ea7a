//! A connection's commands that other nodes of the cluster run for it (`cluster-forward`).

use cluster::NodeId;

/// The state of a connection whose commands may be forwarded.
#[derive(Default, Debug)]
pub struct Forwarding {
    /// True if the server can put replies of other nodes into the replies of the present run.
    pub is_possible: bool,
    /// True if the client has shown that it knows clusters. It gets redirects, because it would never learn the map otherwise.
    is_declined: bool,
    /// The edition of the slots' map under which the unanswered commands were forwarded; 0 if none are unanswered.
    edition: u64,
    /// The node that runs the last forwarded command.
    node: Option<NodeId>,
    /// The name of other nodes' tokens that the client's PIPELINE END makes useless.
    ended: Option<Box<[u8]>>,
}

impl Forwarding {
    /// Notes that the client knows clusters, or is a node that forwards commands itself.
    pub(crate) fn decline(&mut self) {
        self.is_declined = true;
    }

    /// Returns true if commands may be forwarded.
    pub(crate) fn is_open(&self) -> bool {
        self.is_possible && !self.is_declined
    }

    /// Notes the name of other nodes' tokens that have become useless.
    pub(crate) fn note_ended(&mut self, name: Box<[u8]>) {
        self.ended = Some(name);
    }

    /// Takes the name of other nodes' tokens that have become useless.
    pub fn take_ended(&mut self) -> Option<Box<[u8]>> {
        self.ended.take()
    }

    /// Notes a forwarded command.
    pub(crate) fn note(&mut self, edition: u64, node: NodeId) {
        (self.edition, self.node) = (edition, Some(node));
    }

    /// Notes that all forwarded commands are answered.
    pub(crate) fn end(&mut self) {
        (self.edition, self.node) = (0, None);
    }

    /// Returns true if forwarded commands are unanswered.
    pub(crate) fn is_waiting(&self) -> bool {
        self.edition != 0
    }

    /// Returns true if a command may run under this edition of the map: a slot with unanswered commands has the same owner. Otherwise the
    /// command could run before them.
    pub(crate) fn allows(&self, edition: u64) -> bool {
        self.edition == 0 || self.edition == edition
    }

    /// Returns true if the unanswered commands run at this node.
    pub(crate) fn is_at(&self, node: &NodeId) -> bool {
        self.node.as_ref() == Some(node)
    }
}
