//! CLUSTER's subcommands that concern the bus: typed commands, and typed replies that the engine writes in the client's
//! protocol.

mod claiming;
mod setslot;
mod show;

use crate::debugging::Debug;
use crate::id::{NodeId, ShardId};
use crate::io::{Action, CommandId, Level};
use crate::machine::Machine;
use crate::manual::FailoverMode;
use crate::node::NodeKey;
use crate::saves::Waiting;
use crate::slots::{Slot, SlotRange, SlotSet};
use crate::stats::Stats;
use crate::view::{ClientPath, Ports};

/// The distance of the bus's port from the client's, unless another one is given.
pub const BUS_PORT_OFFSET: i64 = 10_000;

/// A change of a slot by CLUSTER SETSLOT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetSlot {
    /// The slot goes to another node.
    Migrating(String),
    /// The slot comes from another node.
    Importing(String),
    /// The slot goes nowhere.
    Stable,
    /// The slot belongs to a node.
    Node(String),
}

/// A subcommand of CLUSTER. Names of nodes are as the client has sent them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterCommand {
    /// INFO.
    Info,
    /// MYID.
    MyId,
    /// MYSHARDID.
    MyShardId,
    /// NODES.
    Nodes(ClientPath),
    /// SLOTS.
    Slots(ClientPath),
    /// SHARDS.
    Shards(ClientPath),
    /// LINKS.
    Links,
    /// REPLICAS and SLAVES.
    Replicas(String, ClientPath),
    /// COUNT-FAILURE-REPORTS.
    CountFailureReports(String),
    /// MEET.
    Meet {
        /// The address.
        ip: String,
        /// The port for clients.
        port: i64,
        /// The port of the bus, if one is given.
        bus_port: Option<i64>,
    },
    /// FORGET.
    Forget(String),
    /// RESET.
    Reset {
        /// HARD.
        hard: bool,
        /// True if this server has keys.
        has_keys: bool,
    },
    /// ADDSLOTS.
    AddSlots(Vec<Slot>),
    /// ADDSLOTSRANGE.
    AddSlotsRange(Vec<(Slot, Slot)>),
    /// DELSLOTS.
    DelSlots(Vec<Slot>),
    /// DELSLOTSRANGE.
    DelSlotsRange(Vec<(Slot, Slot)>),
    /// FLUSHSLOTS.
    FlushSlots {
        /// True if this server has keys.
        has_keys: bool,
    },
    /// SETSLOT.
    SetSlot {
        /// The slot.
        slot: Slot,
        /// The change.
        change: SetSlot,
        /// True if this server has keys of the slot.
        has_keys: bool,
        /// True if the command comes from this replica's primary.
        from_primary: bool,
    },
    /// The checks of SETSLOT alone: nothing changes.
    CheckSetSlot {
        /// The slot.
        slot: Slot,
        /// The change.
        change: SetSlot,
        /// True if this server has keys of the slot.
        has_keys: bool,
    },
    /// This primary asks the others for an epoch for its claim. The reply is [`ClusterReply::Later`] until a majority has voted.
    PrepareClaim,
    /// This primary takes the slots of a source that has handed them over with all their keys.
    ClaimSlots {
        /// The slots.
        slots: Box<SlotSet>,
        /// The name of the source.
        source: String,
    },
    /// This primary grants slots to the target of a move, and holds writes to them. The reply is [`ClusterReply::Later`] while the target's
    /// claim could have no greater epoch than this node's.
    GrantSlots {
        /// The slots.
        slots: Box<SlotSet>,
        /// The name of the target.
        target: String,
    },
    /// This primary keeps slots that it has granted to a target, which has not claimed them. No late claim counts any more.
    KeepSlots {
        /// The slots.
        slots: Box<SlotSet>,
    },
    /// The move of slots that this primary has granted is over.
    EndGrant,
    /// The stream of this replica's primary has told the owner of slots.
    NoteOwner {
        /// The slots.
        slots: Box<SlotSet>,
        /// The owner's name; `None` for this replica's primary.
        owner: Option<String>,
    },
    /// REPLICATE.
    Replicate {
        /// The primary.
        node: String,
        /// True if this server has keys.
        has_keys: bool,
    },
    /// REPLICATE NO ONE.
    ReplicateNoOne,
    /// SET-CONFIG-EPOCH.
    SetConfigEpoch(i64),
    /// BUMPEPOCH.
    BumpEpoch,
    /// SAVECONFIG.
    SaveConfig,
    /// FAILOVER.
    Failover(FailoverMode),
    /// FAILOVER FORCE REPLICAID in the stream of a primary that shuts down: the replica of this name takes its place.
    FailoverAtShutdown(String),
    /// The open slots of this replica's primary, from its snapshot.
    TakeSlotStates(Box<[u8]>),
    /// Sets the counters of INFO back to zero.
    ResetStatistics,
    /// A subcommand of DEBUG.
    Debug(Debug),
}

/// A node in the reply of SLOTS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotsNode {
    /// The endpoint; `None` if the client keeps its host.
    pub endpoint: Option<String>,
    /// The port.
    pub port: u16,
    /// The name.
    pub id: NodeId,
    /// Names and values of further fields.
    pub metadata: Vec<(&'static str, String)>,
}

/// An entry in the reply of SLOTS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotsEntry {
    /// The slots.
    pub range: SlotRange,
    /// The owner, then its replicas.
    pub nodes: Vec<SlotsNode>,
}

/// A value in the reply of SHARDS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Field {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

/// A shard in the reply of SHARDS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardEntry {
    /// Its slots.
    pub slots: Vec<SlotRange>,
    /// Its nodes, each a map.
    pub nodes: Vec<Vec<(&'static str, Field)>>,
    /// Its name.
    pub id: ShardId,
}

/// A link in the reply of LINKS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkEntry {
    /// True if the other node has made it.
    pub inbound: bool,
    /// The other node.
    pub node: NodeId,
    /// When it was made, in Unix milliseconds.
    pub create_time: u64,
    /// True if bytes wait to be sent.
    pub is_writing: bool,
    /// The bytes that wait to be sent.
    pub queued_bytes: u64,
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterReply {
    /// `+OK`.
    Ok,
    /// An error; `ERR ` goes in front.
    Error(String),
    /// The error of a change that the replicas have not acknowledged in time. The machine itself never returns it.
    NotReplicated,
    /// The command must come again in a moment. No client gets this reply.
    Later,
    /// A status.
    Status(String),
    /// A text.
    Bulk(String),
    /// A text that RESP3 sends verbatim.
    Verbatim(String),
    /// A number.
    Integer(i64),
    /// An array of texts.
    Lines(Vec<String>),
    /// The reply of SLOTS.
    Slots(Vec<SlotsEntry>),
    /// The reply of SHARDS.
    Shards(Vec<ShardEntry>),
    /// The reply of LINKS.
    Links(Vec<LinkEntry>),
}

pub(crate) fn error(text: &str) -> ClusterReply {
    ClusterReply::Error(text.to_owned())
}

pub(crate) fn unknown(node: &str) -> ClusterReply {
    ClusterReply::Error(format!("Unknown node {node}"))
}

impl ClusterCommand {
    /// Returns true if the command depends on this node's data. It needs fresh facts.
    pub fn concerns_data(&self) -> bool {
        matches!(self, ClusterCommand::Failover(_) | ClusterCommand::FailoverAtShutdown(_))
    }
}

impl Machine {
    /// Executes a command. If the command changes nodes.conf, its reply waits until the change is on disk.
    pub(crate) fn command(&mut self, id: CommandId, command: ClusterCommand) {
        if command == ClusterCommand::SaveConfig {
            return self.after_save(Waiting::SaveConfig(id));
        }
        match self.awaits_epoch(&command) {
            true => self.delay(id, command),
            false => self.execute(id, command),
        }
    }

    /// Executes a command that waits for nothing.
    pub(crate) fn execute(&mut self, id: CommandId, command: ClusterCommand) {
        let was_dirty = std::mem::take(&mut self.saves.dirty);
        let reply = self.run(command);
        match self.saves.dirty {
            true => self.after_save(Waiting::Answer(id, reply)),
            false => self.actions.push(Action::Answer(id, reply)),
        }
        self.saves.dirty |= was_dirty;
    }

    /// Executes a command of a transaction. A change is saved behind its answer, and other nodes see it after the save.
    pub(crate) fn command_at_once(&mut self, id: CommandId, command: ClusterCommand) {
        let reply = self.run(command);
        self.actions.push(Action::Answer(id, reply));
    }

    fn run(&mut self, command: ClusterCommand) -> ClusterReply {
        match command {
            ClusterCommand::Info => self.show_info(),
            ClusterCommand::MyId => ClusterReply::Bulk(self.table.myself().id.to_string()),
            ClusterCommand::MyShardId => ClusterReply::Bulk(self.table.myself().shard.to_string()),
            ClusterCommand::Nodes(path) => self.show_nodes(path),
            ClusterCommand::Slots(path) => self.show_slots(path),
            ClusterCommand::Shards(path) => self.show_shards(path),
            ClusterCommand::Links => self.show_links(),
            ClusterCommand::Replicas(node, path) => self.show_replicas(&node, path),
            ClusterCommand::CountFailureReports(node) => self.show_reports(&node),
            ClusterCommand::Meet { ip, port, bus_port } => self.meet(&ip, port, bus_port),
            ClusterCommand::Forget(node) => self.forget(&node),
            ClusterCommand::Reset { hard, has_keys } => self.reset(hard, has_keys),
            ClusterCommand::AddSlots(slots) => self.assign(slots.into_iter().map(|slot| (slot, slot)), true),
            ClusterCommand::AddSlotsRange(ranges) => self.assign(ranges.into_iter(), true),
            ClusterCommand::DelSlots(slots) => self.assign(slots.into_iter().map(|slot| (slot, slot)), false),
            ClusterCommand::DelSlotsRange(ranges) => self.assign(ranges.into_iter(), false),
            ClusterCommand::FlushSlots { has_keys } => self.flush_slots(has_keys),
            ClusterCommand::SetSlot { slot, change, has_keys, from_primary } => {
                self.set_slot(slot, &change, has_keys, from_primary)
            }
            ClusterCommand::CheckSetSlot { slot, change, has_keys } => self.check_set_slot(slot, &change, has_keys),
            ClusterCommand::PrepareClaim => self.prepare_claim(),
            ClusterCommand::ClaimSlots { slots, source } => self.claim_slots(&slots, &source),
            ClusterCommand::GrantSlots { slots, target } => self.grant_slots(&slots, &target),
            ClusterCommand::KeepSlots { slots } => self.keep_slots(&slots),
            ClusterCommand::EndGrant => self.end_grant(),
            ClusterCommand::NoteOwner { slots, owner } => self.note_owner(&slots, owner.as_deref()),
            ClusterCommand::Replicate { node, has_keys } => self.replicate(&node, has_keys),
            ClusterCommand::ReplicateNoOne => self.replicate_no_one(),
            ClusterCommand::SetConfigEpoch(epoch) => self.set_config_epoch(epoch),
            ClusterCommand::BumpEpoch => self.bump(),
            ClusterCommand::SaveConfig => ClusterReply::Ok,
            ClusterCommand::Failover(mode) => self.failover(mode),
            ClusterCommand::FailoverAtShutdown(replica) => self.failover_at_shutdown(&replica),
            ClusterCommand::TakeSlotStates(text) => self.take_slot_states(&text),
            ClusterCommand::ResetStatistics => {
                self.stats = Stats::default();
                ClusterReply::Ok
            }
            ClusterCommand::Debug(debug) => self.debug(debug),
        }
    }

    /// The node of a name that a client has sent.
    pub(crate) fn named(&self, node: &str) -> Option<NodeKey> {
        NodeId::new(node.as_bytes()).and_then(|id| self.table.find(&id))
    }

    fn meet(&mut self, ip: &str, port: i64, bus_port: Option<i64>) -> ClusterReply {
        let Some(client_port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
            return error("Port number is out of range");
        };
        let bus_port = bus_port.unwrap_or(port + BUS_PORT_OFFSET);
        let Some(bus_port) = u16::try_from(bus_port).ok().filter(|port| *port > 0) else {
            return error("Cluster bus port number is out of range");
        };
        if ip.parse::<core::net::IpAddr>().is_err() {
            return ClusterReply::Error(format!("Invalid node address specified: {ip}:{port}"));
        }
        let ports = match self.config.tls_bus {
            true => Ports { plain: 0, tls: client_port },
            false => Ports { plain: client_port, tls: 0 },
        };
        self.start_handshake(ip, ports, bus_port, true);
        ClusterReply::Ok
    }

    fn forget(&mut self, node: &str) -> ClusterReply {
        let Some(key) = self.named(node) else {
            let id = NodeId::new(node.as_bytes());
            let is_forgotten = id.is_some_and(|id| self.table.is_forgotten(&id, self.now.ms));
            return if is_forgotten { ClusterReply::Ok } else { unknown(node) };
        };
        if key == self.me() {
            return error("I tried hard but I can't forget myself...");
        }
        if self.table.myself().primary() == Some(key) {
            return error("Can't forget my master!");
        }
        let until_ms = self.now.ms + self.config.blacklist_ttl_ms;
        self.table.forget(self.table[key].id, until_ms);
        self.remove_node(key);
        ClusterReply::Ok
    }

    fn reset(&mut self, hard: bool, has_keys: bool) -> ClusterReply {
        let was_replica = !self.table.myself().is_primary();
        if has_keys && !was_replica {
            return error("CLUSTER RESET can't be called with master nodes containing keys");
        }
        self.table.promote(self.me());
        if was_replica {
            self.actions.extend([Action::Lead, Action::Empty]);
        }
        self.open.clear();
        self.imported.clear();
        self.reservation = None;
        self.end_handover();
        self.forget_election();
        self.table.others().into_iter().for_each(|key| self.remove_node(key));
        self.unbind_all(self.me());
        self.table.unclaimed = SlotSet::EMPTY;
        self.table.forget_forgotten(u64::MAX);
        if hard {
            self.reset_hard();
        }
        // A former replica has its primary's shard.
        let shard = self.random_shard();
        self.table.set_shard(self.me(), shard);
        self.saves.reset(self.current_claims());
        self.changed();
        ClusterReply::Ok
    }

    /// Takes a new name, and resets all epochs.
    fn reset_hard(&mut self) {
        (self.current_epoch, self.last_vote_epoch) = (0, 0);
        let id = NodeId::random(|| self.random.next());
        self.table.rename(self.me(), id);
        self.table.myself_mut().config_epoch = 0;
        self.log(Level::Notice, format!("Node hard reset, now I'm {id}"));
    }

    /// Adds free slots to this node, or deletes slots from their owners: all of them or none.
    fn assign(&mut self, ranges: impl Iterator<Item = (Slot, Slot)>, adds: bool) -> ClusterReply {
        // Redis and Valkey accept it. The replica's table then names the replica as the owner for ever, and no other node knows of it.
        if adds && !self.table.myself().is_primary() {
            return error("Please use ADDSLOTS only with masters.");
        }
        let mut slots = SlotSet::EMPTY;
        for (first, last) in ranges {
            let Some(range) = SlotRange::new(first, last) else {
                return ClusterReply::Error(format!(
                    "start slot number {first} is greater than end slot number {last}"
                ));
            };
            for slot in range.slots() {
                if let Some(error) = self.assignment_error(slot, adds) {
                    return error;
                }
                if !slots.insert(slot) {
                    return ClusterReply::Error(format!("Slot {slot} specified multiple times"));
                }
            }
        }
        self.forget_imports(&slots);
        for slot in slots.iter() {
            if matches!(self.open.get(&slot), Some(crate::machine::OpenSlot::Importing(_))) {
                self.open.remove(&slot);
            }
            match adds {
                true => self.table.bind(slot, self.me()),
                false => self.table.unbind(slot),
            }
        }
        self.changed();
        ClusterReply::Ok
    }

    fn assignment_error(&self, slot: Slot, adds: bool) -> Option<ClusterReply> {
        match (self.table.owner(slot), adds) {
            (Some(_), true) => Some(ClusterReply::Error(format!("Slot {slot} is already busy"))),
            (None, false) => Some(ClusterReply::Error(format!("Slot {slot} is already unassigned"))),
            _ => None,
        }
    }

    fn flush_slots(&mut self, has_keys: bool) -> ClusterReply {
        if has_keys {
            return error("DB must be empty to perform CLUSTER FLUSHSLOTS.");
        }
        self.unbind_all(self.me());
        self.imported.clear();
        self.changed();
        ClusterReply::Ok
    }

    fn replicate(&mut self, node: &str, has_keys: bool) -> ClusterReply {
        let Some(key) = self.named(node) else { return unknown(node) };
        let me = self.table.myself();
        if key == self.me() {
            return error("Can't replicate myself");
        }
        if !self.table[key].is_primary() {
            return error("I can only replicate a master, not a replica.");
        }
        if me.is_primary() && (me.slot_count > 0 || has_keys) {
            return error("To set a master the node must be empty and without assigned slots.");
        }
        if me.primary() != Some(key) {
            self.follow(key, true, true);
        }
        ClusterReply::Ok
    }

    /// Makes this replica an empty primary of a shard of its own.
    fn replicate_no_one(&mut self) -> ClusterReply {
        if self.table.myself().is_primary() {
            return ClusterReply::Ok;
        }
        self.log(Level::Notice, "Stop replication and turning myself into empty primary.".into());
        let shard = self.random_shard();
        self.table.promote(self.me());
        self.table.myself_mut().shard = shard;
        self.open.clear();
        self.imported.clear();
        self.end_handover();
        self.forget_election();
        self.actions.extend([Action::Lead, Action::Empty]);
        self.bump_epoch();
        self.changed();
        self.todo.broadcast = true;
        ClusterReply::Ok
    }

    fn set_config_epoch(&mut self, epoch: i64) -> ClusterReply {
        let Ok(epoch) = u64::try_from(epoch) else {
            return ClusterReply::Error(format!("Invalid config epoch specified: {epoch}"));
        };
        if self.table.count() > 1 {
            return error("The user can assign a config epoch only when the node does not know any other node.");
        }
        if self.table.myself().config_epoch != 0 {
            return error("Node config epoch is already non-zero");
        }
        self.table.myself_mut().config_epoch = epoch;
        self.current_epoch = self.current_epoch.max(epoch);
        self.changed();
        ClusterReply::Ok
    }

    fn bump(&mut self) -> ClusterReply {
        if self.granted.is_some() {
            return error("Slots are being handed over to another node. Try again in a moment");
        }
        let word = if self.bump_epoch() { "BUMPED" } else { "STILL" };
        ClusterReply::Status(format!("{word} {}", self.table.myself().config_epoch))
    }
}
