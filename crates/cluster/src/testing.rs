//! For simulations: rules that can be left out, the invariants of messages, and the state of a machine as text.

use std::collections::BTreeMap;

use crate::file::NodesFile;
use crate::id::{NodeId, ShardId};
use crate::machine::Machine;
use crate::node::NodeKey;
use crate::slots::SlotSet;
use crate::wire::{Body, Header, Message};

pub use crate::rules::Rule;

impl Machine {
    /// Switches a rule of the protocol off.
    pub fn leave_out(&mut self, rule: Option<Rule>) {
        self.rules.without = rule;
    }

    /// The epoch of the last vote. The winner of an election has voted for itself.
    pub fn last_vote_epoch(&self) -> u64 {
        self.last_vote_epoch
    }
}

/// The content of a nodes.conf. Messages may show nothing beyond it.
#[derive(Clone, Default, Debug)]
pub struct OnDisk {
    config_epoch: u64,
    slots: SlotSet,
    vote: u64,
    current_epoch: u64,
    is_primary: bool,
}

impl OnDisk {
    /// Notes that the save of a text has failed, and that the node goes on (`cluster-config-save-behavior best-effort`). Like Valkey, it shows
    /// the text's claims from now on. It neither votes nor asks for votes in an epoch that is not on the disk.
    pub fn go_on_with(&mut self, text: &str) {
        if let Some(failed) = OnDisk::of(text) {
            *self = OnDisk { vote: self.vote, current_epoch: self.current_epoch, ..failed };
        }
    }

    /// Reads the text of a nodes.conf. `None` if it can't be read.
    pub fn of(text: &str) -> Option<OnDisk> {
        let file = NodesFile::parse(text).ok()??;
        let loaded = file.table();
        let me = loaded.table.myself();
        Some(OnDisk {
            config_epoch: me.config_epoch,
            slots: (*me.slots).clone(),
            vote: file.last_vote_epoch,
            current_epoch: file.current_epoch,
            is_primary: me.is_primary(),
        })
    }
}

/// The votes and the claims of all messages so far, and the invariants between them.
#[derive(Default, Debug)]
pub struct Observed {
    /// The number of each vote's messages, by voter and epoch.
    votes: BTreeMap<(NodeId, u64), usize>,
    /// The claims of each epoch.
    claims: BTreeMap<u64, BTreeMap<NodeId, SlotSet>>,
    /// The winners of elections, by their epochs.
    winners: BTreeMap<u64, (NodeId, ShardId)>,
    /// The nodes that took an epoch without votes, and showed it only after another node had won it.
    late: BTreeMap<NodeId, Late>,
}

/// A late claim.
#[derive(Debug)]
struct Late {
    epoch: u64,
    /// The slots that the winner has as well.
    disputed: SlotSet,
    /// True if the winner is of the same shard. Otherwise the slots have moved to the late node from the winner's shard, with their keys: a
    /// node that has ended an import may keep them.
    is_replaced: bool,
}

impl Observed {
    /// Checks a message that leaves a node with this disk: a node votes once in an epoch (S1), two nodes don't claim the same slot in one
    /// epoch (S2), and no message shows a vote, an epoch or a slot that is not on the sender's disk (S3). Returns the violations. `shard`: the
    /// node's shard.
    pub fn check(&mut self, disk: &OnDisk, shard: ShardId, message: &Message) -> Vec<String> {
        let Message::Full(header, body) = message else { return Vec::new() };
        let mut found: Vec<String> = unsaved(disk, header, body).into_iter().collect();
        found.extend(match body {
            Body::AuthAck => self.check_vote(header),
            _ => self.check_claim(header, shard),
        });
        found
    }

    /// The number of nodes that have voted in an epoch.
    pub fn voters(&self, epoch: u64) -> usize {
        self.votes.keys().filter(|(_, voted)| *voted == epoch).count()
    }

    /// Notes the winner of an election.
    pub fn note_winner(&mut self, epoch: u64, winner: NodeId, shard: ShardId) {
        self.winners.insert(epoch, (winner, shard));
        self.late.remove(&winner);
    }

    fn check_vote(&mut self, header: &Header) -> Option<String> {
        let (voter, epoch) = (header.sender, header.current_epoch);
        let count = self.votes.entry((voter, epoch)).or_default();
        *count += 1;
        (*count > 1).then(|| format!("S1: {voter} votes twice in epoch {epoch}"))
    }

    fn check_claim(&mut self, header: &Header, shard: ShardId) -> Option<String> {
        let (claimer, epoch) = (header.sender, header.config_epoch);
        if header.primary.is_some() || header.slots.is_empty() || epoch == 0 {
            return None;
        }
        match self.late.get(&claimer) {
            Some(late) if epoch <= late.epoch => return None,
            Some(late) if late.is_replaced && header.slots.is_superset(&late.disputed) => {
                return Some(format!("S2: {claimer} takes slots back from the winner of epoch {}", late.epoch));
            }
            _ => {}
        }
        let winner = self.winners.get(&epoch);
        let claims = self.claims.entry(epoch).or_default();
        let is_late = |id: &NodeId| self.late.get(id).is_some_and(|late| late.epoch == epoch);
        let mut others = claims.iter().filter(|(id, _)| **id != claimer && !is_late(id));
        let clash = others.find(|(_, slots)| slots.intersects(&header.slots));
        // An epoch without votes that its node has saved, and shown to nobody before it was killed. Nobody knows better until the node hears
        // from the winner, and it must yield then.
        let is_new = !claims.contains_key(&claimer);
        let by_winner = clash.zip(winner).filter(|((other, _), (id, _))| is_new && *other == id);
        if let Some(((_, slots), (_, winners_shard))) = by_winner {
            let mut disputed = slots.clone();
            disputed.intersect(&header.slots);
            self.late.insert(claimer, Late { epoch, disputed, is_replaced: shard == *winners_shard });
            return None;
        }
        let text = clash.map(|(other, _)| format!("S2: {claimer} and {other} claim slots in epoch {epoch}"));
        claims.entry(claimer).or_default().add(&header.slots);
        text
    }
}

/// The primaries with slots in a machine's table after the last input, with their epochs and shards.
#[derive(Default, Debug)]
pub struct SeenPrimaries(BTreeMap<NodeId, (u64, ShardId)>);

impl SeenPrimaries {
    /// Compares the table with the one before the last input. A primary with slots becomes a replica only of a node of its shard that has at
    /// least its epoch: stale headers put the new primary below the old one, and two nodes may end as replicas of each other (S6). A node
    /// that has moved to another shard may follow any epoch.
    pub fn check(&mut self, machine: &Machine) -> Option<String> {
        let table = machine.table();
        let found = table.keys().find_map(|key| {
            let (node, primary) = (&table[key], table[key].primary()?);
            let (epoch, shard) = self.0.get(&node.id)?;
            let above = table[primary].config_epoch;
            let is_stale = table[primary].shard == *shard && above < *epoch;
            let text =
                || format!("S6: {} of epoch {epoch} is put below {} of epoch {above}", node.id, table[primary].id);
            is_stale.then(text)
        });
        let voting = table.keys().map(|key| &table[key]).filter(|node| node.is_voting());
        self.0 = voting.map(|node| (node.id, (node.config_epoch, node.shard))).collect();
        found
    }
}

/// Returns the violation of S3 by a message, if there is one.
fn unsaved(disk: &OnDisk, header: &Header, body: &Body) -> Option<String> {
    let epoch = header.current_epoch;
    match body {
        Body::AuthAck if disk.vote < epoch => return Some(format!("S3: the unsaved vote {epoch} is shown")),
        Body::AuthRequest if disk.current_epoch < epoch => {
            return Some(format!("S3: votes are requested in the unsaved epoch {epoch}"));
        }
        Body::Update { node, config_epoch, .. } if *node == header.sender && disk.config_epoch < *config_epoch => {
            return Some(format!("S3: an UPDATE shows the unsaved epoch {config_epoch}"));
        }
        _ => {}
    }
    if header.primary.is_some() || header.slots.is_empty() {
        return None;
    }
    if !disk.is_primary || header.config_epoch > disk.config_epoch {
        return Some(format!("S3: the unsaved epoch {} is shown", header.config_epoch));
    }
    let is_unsaved = header.config_epoch == disk.config_epoch && !disk.slots.is_superset(&header.slots);
    is_unsaved.then(|| "S3: unsaved slots are shown".into())
}

/// Returns a cycle of primaries in a machine's table (S6), if there is one.
pub fn cycle(machine: &Machine) -> Option<String> {
    let table = machine.table();
    for start in table.keys() {
        let mut at: NodeKey = start;
        for _ in 0..=table.count() {
            match table[at].primary() {
                Some(primary) => at = primary,
                None => break,
            }
        }
        if table[at].primary().is_some() {
            return Some(format!("{} is in a cycle", table[start].id));
        }
    }
    None
}

/// Returns a machine's picture of the cluster: each node with its shard, role, epoch and slots. All nodes agree in the end (L1).
pub fn picture(machine: &Machine) -> BTreeMap<NodeId, String> {
    let table = machine.table();
    let line = |key: NodeKey| {
        let node = &table[key];
        let primary = node.primary().map(|primary| table[primary].id);
        let slots = &node.slots;
        let epoch = table.epoch(key);
        (node.id, format!("{} {primary:?} epoch {epoch} [{slots}] {}", node.shard, node.has_failed()))
    };
    table.keys().map(line).collect()
}

/// Returns the temporary states of a machine that have not ended (L3).
pub fn leftovers(machine: &Machine) -> Vec<String> {
    let table = machine.table();
    let mut found = Vec::new();
    found.extend(table.keys().filter(|key| table[*key].in_handshake()).map(|_| "a handshake".to_owned()));
    if machine.handover.is_under_way() {
        found.push("a manual failover".into());
    }
    let links = table.keys().filter(|key| *key != table.me());
    let unlinked = links.filter(|key| table[*key].outbound.is_none() || table[*key].inbound.is_none());
    found.extend(unlinked.map(|key| format!("no link with {}", table[key].id)));
    found
}
