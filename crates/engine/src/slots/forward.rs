//! The commands of one run of a connection that other nodes must run. The server sends them and puts the replies into their places.

use std::sync::Arc;

use cluster::NodeId;
use resp::parse::encode_request;
use resp::request::Args;

/// The greatest number of commands that one run forwards. The run ends after its present window then.
pub const FORWARDED_MAX: usize = 1024;

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
    /// The end of its requests in [`Forwarded::requests`]. They begin at the end of the previous command's.
    pub end: usize,
}

/// The forwarded commands of one run, in order.
#[derive(Default, Debug)]
pub struct Forwarded {
    /// The nodes.
    pub targets: Vec<Target>,
    /// The commands.
    pub commands: Vec<ForwardedCommand>,
    /// The requests of all commands.
    pub requests: Vec<u8>,
    /// The ids of the nodes of `targets`, with the form of their replies.
    ids: Vec<(NodeId, bool)>,
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

    /// Returns the index of a node, which is added at its first command.
    pub(crate) fn target<'h>(&mut self, id: NodeId, address: impl FnOnce() -> (&'h str, u16), resp3: bool) -> usize {
        if let Some(index) = self.ids.iter().position(|known| *known == (id, resp3)) {
            return index;
        }
        let (host, port) = address();
        self.ids.push((id, resp3));
        self.targets.push(Target { host: host.to_owned(), port, resp3, counter: self.counter.clone() });
        self.targets.len() - 1
    }

    /// Appends a request.
    pub(crate) fn push_request(&mut self, args: &Args<'_>) {
        match args.canonical() {
            Some(request) => self.requests.extend_from_slice(request),
            None => encode_request(&args.from(0).collect::<Vec<_>>(), &mut self.requests),
        }
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
        id: NodeId,
        address: impl FnOnce() -> (&'h str, u16),
        resp3: bool,
        at: usize,
    ) {
        let target = self.target(id, address, resp3);
        let end = self.requests.len();
        let (asks, only_reads, skipped, counted, attaches) = (false, true, 0, None, true);
        self.commands.push(ForwardedCommand { at, target, asks, only_reads, counted, attaches, skipped, end });
    }

    /// Returns the indexes of a node's commands.
    pub fn indexes_of(&self, target: usize) -> impl Iterator<Item = usize> {
        self.commands.iter().enumerate().filter(move |(_, command)| command.target == target).map(|(index, _)| index)
    }

    /// Returns a command's requests.
    #[must_use]
    pub fn requests_of(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|before| self.commands.get(before)).map_or(0, |before| before.end);
        let end = self.commands.get(index).map_or(start, |command| command.end);
        self.requests.get(start..end).unwrap_or_default()
    }
}
