//! nodes.conf from text.

use std::collections::BTreeMap;
use std::fmt;

use super::FLAG_NAMES;
use crate::dialect::{is_hostname, is_ipv4, is_ipv6, is_plain};
use crate::id::{NodeId, ShardId};
use crate::imported::SavedImport;
use crate::machine::OpenSlot;
use crate::node::{Health, Node, PeerRole};
use crate::slots::{Slot, SlotRange, SlotSet};
use crate::table::Table;
use crate::view::{Endpoints, Ports};
use crate::wire::NodeFlags;

/// The distance of the bus's port in files of old servers, which don't name it.
const BUS_PORT_OFFSET: u16 = 10_000;

/// The reason to refuse a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// The number of the line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => to.write_str(&self.reason),
            line => write!(to, "line {line}: {}", self.reason),
        }
    }
}

/// A slot of this node that is open, and the other node.
#[derive(Clone, Debug)]
struct OpenMark {
    slot: Slot,
    is_import: bool,
    peer: NodeId,
}

#[derive(Clone, Debug)]
struct NodeLine {
    id: NodeId,
    endpoints: Endpoints,
    bus_port: u16,
    node_name: String,
    zone: String,
    shard: Option<ShardId>,
    flags: NodeFlags,
    primary: Option<NodeId>,
    config_epoch: u64,
    slots: SlotSet,
    open: Vec<OpenMark>,
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct NodesFile {
    lines: Vec<NodeLine>,
    /// The greatest epoch that the node knew.
    pub current_epoch: u64,
    /// The epoch of its last vote.
    pub last_vote_epoch: u64,
    /// Slots that their owners did not claim.
    pub(crate) unclaimed: SlotSet,
    /// Slots that the node had imported shortly before.
    pub(crate) imports: Vec<SavedImport>,
    /// Contradictions that were resolved.
    pub repairs: Vec<String>,
}

/// The table and the open slots of a file.
pub(crate) struct Loaded {
    pub(crate) table: Table,
    pub(crate) open: BTreeMap<Slot, OpenSlot>,
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, String> {
    Err(reason.into())
}

impl NodesFile {
    /// Reads a file; `None` if it is empty: the node is a new one.
    pub fn parse(text: &str) -> Result<Option<NodesFile>, FileError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let mut file = NodesFile {
            lines: Vec::new(),
            current_epoch: 0,
            last_vote_epoch: 0,
            unclaimed: SlotSet::EMPTY,
            imports: Vec::new(),
            repairs: Vec::new(),
        };
        let mut has_vars = false;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let done = match words.first() {
                Some(&"vars") => {
                    has_vars = true;
                    file.read_vars(&words[1..])
                }
                _ => node_line(&words).map(|line| file.lines.push(line)),
            };
            done.map_err(|reason| FileError { line: at + 1, reason })?;
        }
        if !text.ends_with('\n') {
            let last = text.lines().last().unwrap_or_default();
            file.accept_last(last).map_err(|reason| FileError { line: text.lines().count(), reason })?;
        }
        file.check(has_vars).map_err(|reason| FileError { line: 0, reason })?;
        file.repair();
        Ok(Some(file))
    }

    fn read_vars(&mut self, words: &[&str]) -> Result<(), String> {
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return refuse("a variable has no value");
        }
        for [name, value] in pairs {
            let number = || value.parse::<u64>().map_err(|_| format!("{value} is no epoch"));
            match *name {
                "currentEpoch" => self.current_epoch = number()?,
                "lastVoteEpoch" => self.last_vote_epoch = number()?,
                "unclaimedSlots" => self.unclaimed = slot_ranges(value)?,
                "importedSlots" => self.imports = value.split(';').map(import).collect::<Result<_, _>>()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Accepts a last line without a line end, as the peers do and editors write it, if only the number of the last vote may be cut off.
    /// The node then counts as having voted in the present epoch, so that it never votes twice in one.
    fn accept_last(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (["vars", "unclaimedSlots", _, epochs @ ..] | ["vars", epochs @ ..]) = &words[..] else {
            return refuse("the line is cut off");
        };
        match epochs {
            ["currentEpoch", _, "lastVoteEpoch", _] => {
                self.last_vote_epoch = self.last_vote_epoch.max(self.current_epoch);
                Ok(())
            }
            // The names at the end of the line have their full length, so no number before them is cut off.
            ["currentEpoch", _, "lastVoteEpoch", _, "importedSlots", _] => Ok(()),
            _ => refuse("the line is cut off"),
        }
    }

    fn check(&self, has_vars: bool) -> Result<(), String> {
        if !has_vars {
            return refuse("the line of variables is missing: the file is cut off");
        }
        let mine = self.lines.iter().filter(|line| line.flags.has(NodeFlags::MYSELF)).count();
        if mine != 1 {
            return refuse(format!("{mine} lines say `myself`, instead of one"));
        }
        let ids: std::collections::BTreeSet<NodeId> = self.lines.iter().map(|line| line.id).collect();
        if ids.len() != self.lines.len() {
            return refuse("a node has several lines");
        }
        Ok(())
    }

    /// Resolves contradictions that older servers leave: the shard of a primary holds for its replicas.
    fn repair(&mut self) {
        let shards: BTreeMap<NodeId, ShardId> =
            self.lines.iter().filter_map(|line| Some((line.id, line.shard?))).collect();
        for line in &mut self.lines {
            let expected = line.primary.and_then(|primary| shards.get(&primary)).copied();
            if let (Some(expected), Some(shard)) = (expected, line.shard)
                && expected != shard
            {
                self.repairs.push(format!("node {} has another shard than its primary", line.id));
            }
            line.shard = expected.or(line.shard);
        }
    }

    /// The table of the file.
    pub(crate) fn table(&self) -> Loaded {
        let mut lines = self.lines.iter();
        let me = lines.clone().find(|line| line.flags.has(NodeFlags::MYSELF));
        let blank = || Node::new(NodeId::random(|| 0), ShardId::random(|| 0), 0);
        let mut table = Table::new(me.map_or_else(blank, NodeLine::node));
        lines.by_ref().filter(|line| !line.flags.has(NodeFlags::MYSELF)).for_each(|line| {
            table.add(line.node());
        });
        for line in &self.lines {
            line.connect(&mut table);
        }
        let mut open = BTreeMap::new();
        for mark in me.into_iter().flat_map(|me| &me.open) {
            if let Some(peer) = table.known(mark.peer) {
                let state = if mark.is_import { OpenSlot::Importing(peer) } else { OpenSlot::Migrating(peer) };
                open.insert(mark.slot, state);
            }
        }
        Loaded { table, open }
    }
}

impl NodeLine {
    fn node(&self) -> Node {
        let shard = self.shard.or_else(|| ShardId::new(self.id.bytes()));
        let mut node = Node::new(self.id, shard.unwrap_or_else(|| ShardId::random(|| 0)), 0);
        node.endpoints = self.endpoints.clone();
        node.bus_port = self.bus_port;
        node.node_name.clone_from(&self.node_name);
        node.zone.clone_from(&self.zone);
        node.no_address = self.flags.has(NodeFlags::NO_ADDRESS);
        if self.flags.has(NodeFlags::FAILED) {
            node.health = Health::Failed { since_ms: 0 };
        }
        if self.flags.has(NodeFlags::REPLICA) {
            node.role = PeerRole::Replica(None);
        } else {
            // A replica's line has the epoch of its primary.
            node.config_epoch = self.config_epoch;
        }
        node.announce(self.flags, false);
        node
    }

    /// Binds the line's slots, and the replica to its primary.
    fn connect(&self, table: &mut Table) {
        let Some(key) = table.find(&self.id) else { return };
        table.bind_all(&self.slots, key);
        let primary = self.primary.and_then(|primary| table.known(primary));
        if let Some(primary) = primary.filter(|primary| !table.closes_cycle(key, *primary)) {
            table.demote(key, Some(primary));
        }
    }
}

/// Reads a node's line: name, address, flags, primary, two times, epoch, state of the link, slots.
fn node_line(words: &[&str]) -> Result<NodeLine, String> {
    let [id, address, flags, primary, _, _, epoch, _, slots @ ..] = words else {
        return refuse("the line is cut off: a node has at least eight fields");
    };
    let name = |text: &str| NodeId::new(text.as_bytes()).ok_or_else(|| format!("{text} is no name of a node"));
    let config_epoch = epoch.parse().map_err(|_| format!("{epoch} is no epoch"))?;
    let mut line = NodeLine {
        id: name(id)?,
        endpoints: Endpoints::default(),
        bus_port: 0,
        node_name: String::new(),
        zone: String::new(),
        shard: None,
        flags: read_flags(flags)?,
        primary: if *primary == "-" { None } else { Some(name(primary)?) },
        config_epoch,
        slots: SlotSet::EMPTY,
        open: Vec::new(),
    };
    line.read_address(address)?;
    slots.iter().try_for_each(|word| line.read_slots(word))?;
    Ok(line)
}

fn read_flags(text: &str) -> Result<NodeFlags, String> {
    let mut flags = NodeFlags::default();
    for name in text.split(',').filter(|name| *name != "noflags") {
        let name = match name {
            "primary" => "master",
            "replica" => "slave",
            other => other,
        };
        let known = FLAG_NAMES.iter().find(|(_, known)| *known == name);
        flags = flags.with(known.ok_or_else(|| format!("{name} is no flag"))?.0, true);
    }
    Ok(flags)
}

/// Reads `SLOTS:SOURCE:SHARD`.
fn import(text: &str) -> Result<SavedImport, String> {
    let bad = || format!("{text} is no import");
    let parts: Vec<&str> = text.split(':').collect();
    let [ranges, source, shard] = parts[..] else { return Err(bad()) };
    let (source, shard) = (NodeId::new(source.as_bytes()), ShardId::new(shard.as_bytes()));
    let (source, shard) = source.zip(shard).ok_or_else(bad)?;
    Ok(SavedImport { slots: slot_ranges(ranges)?, source, shard })
}

/// Reads `5,7-99`.
fn slot_ranges(text: &str) -> Result<SlotSet, String> {
    let mut slots = SlotSet::EMPTY;
    for range in text.split(',') {
        slot_range(range)?.slots().for_each(|slot| _ = slots.insert(slot));
    }
    Ok(slots)
}

/// Reads `5` or `0-99`.
fn slot_range(word: &str) -> Result<SlotRange, String> {
    let bad = || format!("{word} is no slot");
    let slot = |text: &str| text.parse().ok().and_then(Slot::new).ok_or_else(bad);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    SlotRange::new(slot(first)?, slot(last)?).ok_or_else(bad)
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text} is no port"))
}

impl NodeLine {
    /// Reads `ip:port@busport[,hostname][,field=value]...`.
    fn read_address(&mut self, text: &str) -> Result<(), String> {
        let mut parts = text.split(',');
        let address = parts.next().unwrap_or_default();
        let (ip, ports) = address.rsplit_once(':').ok_or("the address has no port")?;
        let (port, bus_port) = match ports.split_once('@') {
            Some((port, bus_port)) => (number(port)?, number(bus_port)?),
            None => (number(ports)?, number(ports)?.wrapping_add(BUS_PORT_OFFSET)),
        };
        self.endpoints.ip = ip.to_owned();
        self.bus_port = bus_port;
        let hostname = parts.next().unwrap_or_default();
        if !is_hostname(hostname) {
            return refuse(format!("{hostname} is no host name"));
        }
        self.endpoints.hostname = hostname.to_owned();
        let mut named = Ports::default();
        let mut has_plain = false;
        for field in parts {
            let (name, value) = field.split_once('=').ok_or_else(|| format!("{field} has no value"))?;
            has_plain |= name == "tcp-port";
            self.read_field(name, value, &mut named)?;
        }
        // A field names one of the two ports. The address itself has the other one.
        self.endpoints.ports = match has_plain {
            true => Ports { plain: named.plain, tls: port },
            false => Ports { plain: port, tls: named.tls },
        };
        Ok(())
    }

    fn read_field(&mut self, name: &str, value: &str, ports: &mut Ports) -> Result<(), String> {
        let text = |is_valid: bool| is_valid.then(|| value.to_owned()).ok_or_else(|| format!("{value} is no {name}"));
        let endpoints = &mut self.endpoints;
        match name {
            "shard-id" => {
                self.shard = Some(ShardId::new(value.as_bytes()).ok_or_else(|| format!("{value} is no shard"))?);
            }
            "nodename" => self.node_name = text(is_plain(value))?,
            "tcp-port" => ports.plain = number(value)?,
            "tls-port" => ports.tls = number(value)?,
            "client-ipv4" => endpoints.client_ipv4 = text(is_ipv4(value))?,
            "client-ipv6" => endpoints.client_ipv6 = text(is_ipv6(value))?,
            "client-tcp-port" => endpoints.client_ports.plain = number(value)?,
            "client-tls-port" => endpoints.client_ports.tls = number(value)?,
            "availability-zone" => self.zone = text(is_plain(value))?,
            _ => return refuse(format!("{name} is no field")),
        }
        Ok(())
    }

    /// Reads `5`, `0-99`, `[7->-target]` or `[8-<-source]`.
    fn read_slots(&mut self, word: &str) -> Result<(), String> {
        let bad = || format!("{word} is no slot");
        let slot = |text: &str| text.parse().ok().and_then(Slot::new).ok_or_else(bad);
        if let Some(mark) = word.strip_prefix('[') {
            let mark = mark.strip_suffix(']').ok_or_else(bad)?;
            let (is_import, (first, peer)) = match mark.split_once("->-") {
                Some(parts) => (false, parts),
                None => (true, mark.split_once("-<-").ok_or_else(bad)?),
            };
            let peer = NodeId::new(peer.as_bytes()).ok_or_else(bad)?;
            self.open.push(OpenMark { slot: slot(first)?, is_import, peer });
            return Ok(());
        }
        slot_range(word)?.slots().for_each(|slot| _ = self.slots.insert(slot));
        Ok(())
    }
}
