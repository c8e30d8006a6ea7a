//! The commands of one run of a connection that other nodes must run. The server sends them and puts the replies into their places.

use std::sync::Arc;

use cluster::view::NodeIndex;
use resp::parse::encode_request;
use resp::request::Args;

/// The greatest number of commands that one run forwards. The run ends after its present window then.
pub const FORWARDED_MAX: usize = 1024;

/// The first memory for the commands of a run, and for the bytes of the requests for one node: those of a usual pipeline.
const COMMANDS_AT_FIRST: usize = 64;
const REQUEST_BYTES_AT_FIRST: usize = 2048;

/// A node that runs forwarded commands, and the form of its replies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// Its address.
    pub host: String,
    /// Its port for clients.
    pub port: u16,
    /// True if the client has chosen RESP3.
    pub resp3: bool,
    /// Present if the commands count for a pipeline token. Its link is the client's own.
    pub counter: Option<Arc<Counter>>,
}

/// The token of the nodes that run commands of a pipeline, as `PIPELINE ATTACH` names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Counter {
    /// The token.
    pub name: Box<[u8]>,
    /// The generation of the client.
    pub generation: u64,
    /// The seconds that a node keeps the token without a link.
    pub ttl_s: u64,
}

/// The positions of a command, or of a transaction, in its pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The first one.
    pub position: u64,
    /// Their number.
    pub commands: u64,
}

/// One forwarded command, or one transaction.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedCommand {
    /// The number of bytes of the run's own replies before its reply.
    pub at: usize,
    /// The index of its node in [`Forwarded::targets`].
    pub target: usize,
    /// True if ASKING must precede it.
    pub asks: bool,
    /// True if it changes nothing.
    pub only_reads: bool,
    /// Its positions in the pipeline, if it counts for a token.
    pub counted: Option<Counted>,
    /// True if the reply is that of `PIPELINE ATTACH`, and there is no other request.
    pub attaches: bool,
    /// The number of replies before its own that the client does not get: those of a transaction's queued commands.
    pub skipped: usize,
    /// The end of its requests among those for its node. They begin at the end of the node's previous command.
    pub end: usize,
}

impl ForwardedCommand {
    /// Returns true if its request is sent as it is and has one reply, which is the client's.
    fn is_plain(&self) -> bool {
        !self.asks && self.counted.is_none() && !self.attaches && self.skipped == 0
    }
}

/// The requests of a run for one node.
#[derive(Debug)]
pub struct Share {
    /// The requests.
    pub requests: Vec<u8>,
    /// The number of commands.
    pub commands: usize,
    /// True if the requests can be sent in one piece, and each has one reply, which is the client's.
    pub is_plain: bool,
}

impl Share {
    /// Returns a share without commands.
    #[must_use]
    pub fn empty() -> Share {
        Share { requests: Vec::with_capacity(REQUEST_BYTES_AT_FIRST), commands: 0, is_plain: true }
    }
}

/// The forwarded commands of one run, in order.
#[derive(Default, Debug)]
pub struct Forwarded {
    /// The nodes.
    pub targets: Vec<Target>,
    /// The commands.
    pub commands: Vec<ForwardedCommand>,
    /// The requests for each of the nodes.
    pub shares: Vec<Share>,
    /// The nodes of `targets` in the view of this edition, with the form of their replies.
    nodes: Vec<(u64, NodeIndex, bool)>,
    /// The token that the commands of the run count for. All or none of them count.
    pub(crate) counter: Option<Arc<Counter>>,
}

impl Forwarded {
    /// Returns true if there are no commands.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns true if the run must end.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.commands.len() >= FORWARDED_MAX
    }

    /// Returns the index of a node in the view of this edition. The node is added at its first command.
    #[inline]
    pub(crate) fn target<'h>(
        &mut self,
        (edition, node): (u64, NodeIndex),
        address: impl FnOnce() -> (&'h str, u16),
        resp3: bool,
    ) -> usize {
        let node = (edition, node, resp3);
        if let Some(index) = self.nodes.iter().position(|known| *known == node) {
            return index;
        }
        let (host, port) = address();
        self.nodes.push(node);
        self.targets.push(Target { host: host.to_owned(), port, resp3, counter: self.counter.clone() });
        self.shares.push(Share::empty());
        self.targets.len() - 1
    }

    /// Appends a command, whose requests `push` writes.
    #[inline]
    pub(crate) fn push(&mut self, mut command: ForwardedCommand, push: impl FnOnce(&mut Vec<u8>)) {
        let Some(share) = self.shares.get_mut(command.target) else { return };
        push(&mut share.requests);
        command.end = share.requests.len();
        share.commands += 1;
        share.is_plain &= command.is_plain();
        if self.commands.is_empty() {
            self.commands.reserve(COMMANDS_AT_FIRST);
        }
        self.commands.push(command);
    }

    /// Returns true if the commands count for a pipeline token. There is only one command or transaction then, or one question for each
    /// node.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.counter.is_some()
    }

    /// Appends the question for a node's count of the pipeline. The reply comes behind `at` bytes of the run's own replies.
    pub(crate) fn push_attach<'h>(
        &mut self,
        node: (u64, NodeIndex),
        address: impl FnOnce() -> (&'h str, u16),
        resp3: bool,
        at: usize,
    ) {
        let target = self.target(node, address, resp3);
        let (asks, only_reads, skipped, counted, attaches, end) = (false, true, 0, None, true, 0);
        self.push(ForwardedCommand { at, target, asks, only_reads, counted, attaches, skipped, end }, |_| ());
    }

    /// Returns the indexes of a node's commands.
    pub fn indexes_of(&self, target: usize) -> impl Iterator<Item = usize> {
        self.commands.iter().enumerate().filter(move |(_, command)| command.target == target).map(|(index, _)| index)
    }

    /// Returns a command's requests.
    #[must_use]
    pub fn requests_of(&self, index: usize) -> &[u8] {
        let Some(command) = self.commands.get(index) else { return &[] };
        let Some(share) = self.shares.get(command.target) else { return &[] };
        share.requests.get(self.start_of(index)..command.end).unwrap_or_default()
    }

    /// Returns the start of a command's requests among those for its node.
    #[must_use]
    pub fn start_of(&self, index: usize) -> usize {
        let before = self.commands.get(..index).unwrap_or_default();
        let target = self.commands.get(index).map(|command| command.target);
        before.iter().rev().find(|command| Some(command.target) == target).map_or(0, |command| command.end)
    }
}

/// Appends a request.
pub(crate) fn push_request(args: &Args<'_>, requests: &mut Vec<u8>) {
    match args.canonical() {
        Some(request) => requests.extend_from_slice(request),
        None => encode_request(&args.from(0).collect::<Vec<_>>(), requests),
    }
}
