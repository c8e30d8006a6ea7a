//! Inputs of the machine, and the actions that it returns.

use std::sync::Arc;

use crate::commands::{ClusterCommand, ClusterReply};
use crate::config::Config;
use crate::id::NodeId;
use crate::links::LinkId;
use crate::slots::SlotSet;
use crate::view::SlotView;
use crate::wire::Message;

/// A moment, on two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// Milliseconds of a clock that never goes back.
    pub ms: u64,
    /// Unix milliseconds. They appear in gossip and in replies, and no decision depends on them.
    pub unix_ms: u64,
}

impl Moment {
    /// The Unix time of an earlier moment.
    pub(crate) fn unix_of(self, ms: u64) -> u64 {
        self.unix_ms.saturating_sub(self.ms.saturating_sub(ms))
    }
}

/// The number of a save of nodes.conf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// The caller's name for a command that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub u64);

/// The state of this server beside the bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The replication offset: of the last write on a primary, of the last applied change on a replica. A replica without data of its
    /// present primary has 0.
    pub offset: u64,
    /// True if data is being loaded.
    pub loading: bool,
    /// The time since this replica last heard from its present primary; `None` if it has never been in sync with that primary. Its data may
    /// then belong to another shard.
    pub data_age_ms: Option<u64>,
    /// True while a primary's snapshot replaces the data of this replica, and after the load of one has failed: a part of the data is missing,
    /// or all of them.
    pub incomplete: bool,
    /// True if the workers are stuck. The bus is silent then, so that the other nodes regard this node as failed.
    pub stalled: bool,
}

/// An input.
#[derive(Debug)]
pub enum Input<'i> {
    /// 100 ms have passed.
    Tick,
    /// A connection that [`Action::Connect`] requested is established.
    Linked {
        /// The link.
        link: LinkId,
        /// The address of this end.
        local_ip: &'i str,
    },
    /// A connection is lost, or can't be made.
    Lost(LinkId),
    /// A connection was accepted.
    Accepted {
        /// The link, which the caller numbers.
        link: LinkId,
        /// The address of the other end.
        peer_ip: &'i str,
        /// The address of this end.
        local_ip: &'i str,
    },
    /// A message has arrived: the bytes that [`crate::wire::frame`] has delimited.
    Received {
        /// The link.
        link: LinkId,
        /// The message.
        bytes: &'i [u8],
    },
    /// The bytes that wait to be sent on a link.
    Queued {
        /// The link.
        link: LinkId,
        /// The bytes.
        bytes: u64,
    },
    /// A command of a client.
    Command(CommandId, ClusterCommand),
    /// A command of a transaction. Its answer doesn't wait for the disk, so that no message comes between the commands of a transaction.
    CommandAtOnce(CommandId, ClusterCommand),
    /// The state of this server beside the bus.
    Facts(Facts),
    /// Writes are held back, as [`Action::Pause`] has asked.
    Paused {
        /// The replication offset behind the last write.
        offset: u64,
    },
    /// A save is on disk.
    Saved(Generation),
    /// A save has failed.
    SaveFailed {
        /// The save.
        generation: Generation,
        /// The operating system's words.
        error: String,
    },
    /// Data was loaded, which has keys in these slots.
    Loaded(Box<SlotSet>),
    /// Directives have changed.
    Configured(Box<Config>),
    /// A message for subscribers of other nodes.
    Publish {
        /// The channel.
        channel: Arc<[u8]>,
        /// The message.
        message: Arc<[u8]>,
        /// True if the channel is a sharded one.
        sharded: bool,
    },
}

/// The importance of a line of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Interesting to developers.
    Verbose,
    /// Interesting to operators.
    Notice,
    /// Operators should look.
    Warning,
}

/// An action that the caller takes.
#[derive(Clone, Debug)]
pub enum Action {
    /// Connect to a node.
    Connect {
        /// The link's name from now on.
        link: LinkId,
        /// The address.
        ip: String,
        /// The port.
        port: u16,
    },
    /// Close a link. No further input mentions it.
    Close(LinkId),
    /// Send a message.
    Send {
        /// The link.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Write nodes.conf, and sync it.
    Save {
        /// The save's number, for [`Input::Saved`].
        generation: Generation,
        /// The file's text.
        text: String,
    },
    /// Replicate a primary.
    Follow {
        /// The primary.
        node: NodeId,
        /// Its address.
        ip: String,
        /// Its port for replication.
        port: u16,
        /// True if the history differs, and all data must be copied.
        full: bool,
    },
    /// Stop replicating: this node is a primary.
    Lead,
    /// Delete all data: a replica was reset.
    Empty,
    /// Hold back writes until a time, or until [`Action::Resume`].
    Pause {
        /// The end, on the clock that never goes back.
        until_ms: u64,
    },
    /// Let writes go on.
    Resume,
    /// Show a map of slots to the workers.
    View(Arc<SlotView>),
    /// Delete the keys of slots that this node has lost.
    DropSlots(Box<SlotSet>),
    /// Tell the replicas by the stream that this primary imports slots. It does so without a command of an operator.
    TellReplicas {
        /// The slots.
        slots: Box<SlotSet>,
        /// The source.
        source: NodeId,
    },
    /// Deliver a message to this node's subscribers.
    Deliver {
        /// The channel.
        channel: Arc<[u8]>,
        /// The message.
        message: Arc<[u8]>,
        /// True if the channel is a sharded one.
        sharded: bool,
    },
    /// Answer a command.
    Answer(CommandId, ClusterReply),
    /// Write a line of the log.
    Log(Level, String),
    /// Exit: nodes.conf can't be written.
    Exit(String),
}
