//! The cluster node as a state machine.
//!
//! The caller passes one input at a time: a tick, a message, a link event, a command, the result of a save. [`Machine::handle`] updates the
//! node's tables and returns the actions for the caller: connect, send, save, answer. The machine itself does no I/O and reads no clock, so
//! tests and the simulator replay any run from its seed.

use std::collections::{BTreeMap, BTreeSet};

use crate::commands::ClusterCommand;
use crate::config::Config;
use crate::debugging::Faults;
use crate::dialect;
use crate::election::Election;
use crate::file::NodesFile;
use crate::id::{NodeId, ShardId};
use crate::imported::Imports;
use crate::io::{Action, CommandId, Facts, Input, Level, Moment};
use crate::links::{LinkId, Links};
use crate::manual::Handover;
use crate::node::{Health, Node, NodeKey};
use crate::random::Random;
use crate::reservation::Reservation;
use crate::rules::Rules;
use crate::saves::Saves;
use crate::slots::{Slot, SlotSet};
use crate::state::StateClock;
use crate::stats::Stats;
use crate::table::Table;
use crate::view::ClusterState;
use crate::wire::NodeFlags;

/// An open slot of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenSlot {
    /// The slot goes to another node.
    Migrating(NodeKey),
    /// The slot comes from another node.
    Importing(NodeKey),
}

impl OpenSlot {
    /// The other node.
    pub(crate) fn peer(self) -> NodeKey {
        match self {
            OpenSlot::Migrating(to) => to,
            OpenSlot::Importing(from) => from,
        }
    }
}

/// Work that an input has requested. It is done once, at the end of the input, however often it was requested.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Todo {
    /// Evaluate the cluster's state.
    pub(crate) state: bool,
    /// Send this node's role, slots and announcements to all nodes.
    pub(crate) broadcast: bool,
    /// Give the workers a new map of slots.
    pub(crate) view: bool,
    /// Continue the election or the manual failover.
    pub(crate) failover: bool,
}

/// A node of a cluster: this server's own state, and its view of all other nodes.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) config: Config,
    pub(crate) table: Table,
    pub(crate) links: Links,
    pub(crate) now: Moment,
    pub(crate) random: Random,
    pub(crate) actions: Vec<Action>,
    pub(crate) facts: Facts,
    pub(crate) current_epoch: u64,
    pub(crate) last_vote_epoch: u64,
    pub(crate) open: BTreeMap<Slot, OpenSlot>,
    /// Open slots whose other end has been replaced by a failover.
    pub(crate) redirected: BTreeSet<Slot>,
    pub(crate) state: ClusterState,
    pub(crate) clock: StateClock,
    pub(crate) saves: Saves,
    pub(crate) todo: Todo,
    pub(crate) stats: Stats,
    pub(crate) election: Election,
    pub(crate) handover: Handover,
    /// True if this primary holds back writes because a replica of it asks for votes.
    pub(crate) holds_writes: bool,
    /// On a replica: a primary that took an epoch without votes, and the epoch that its headers showed until then.
    pub(crate) unseen_bump: Option<(NodeKey, u64)>,
    /// On a replica: slots whose import its primary has finished by command, before the primary's headers claim them. The greatest epoch that was
    /// known then, and the time.
    pub(crate) finished: BTreeMap<Slot, (u64, u64)>,
    /// The slots that this shard has imported a moment ago.
    pub(crate) imported: Imports,
    /// On a primary: slots that it imports without a command of an operator, and the time at which it tells its replicas once more.
    pub(crate) reopened: BTreeMap<Slot, u64>,
    /// On a replica: the time of the last promise of slots to its primary.
    pub(crate) promised_ms: u64,
    /// On a primary: slots that it has granted to the target of a move, and the target.
    pub(crate) granted: Option<(NodeKey, Box<SlotSet>)>,
    /// On the target of a move: an epoch for its claim.
    pub(crate) reservation: Option<Reservation>,
    /// Commands that wait for an epoch, and their deadlines.
    pub(crate) delayed: Vec<(CommandId, ClusterCommand, u64)>,
    /// On a primary: slots that it imports and that nobody claims, and the time since which this is so.
    pub(crate) abandoned: BTreeMap<Slot, u64>,
    /// The slots among these that a node with an old epoch claims.
    pub(crate) contested: BTreeSet<Slot>,
    pub(crate) edition: u64,
    pub(crate) ticks: u64,
    pub(crate) last_tick_ms: Option<u64>,
    /// The slots of this node in the last view.
    pub(crate) viewed: SlotSet,
    pub(crate) rules: Rules,
    pub(crate) faults: Faults,
}

impl Machine {
    /// Returns a new node that knows no other node. Its names are made of numbers from `random`.
    pub fn new(config: Config, mut random: impl FnMut() -> u64) -> Machine {
        let id = NodeId::random(&mut random);
        let shard = ShardId::random(&mut random);
        let mut machine = Machine::of(config, Table::new(Node::new(id, shard, 0)), random());
        machine.saves.dirty = true;
        machine
    }

    /// Returns a node that has run before, with the state from its nodes.conf.
    pub fn load(config: Config, file: &NodesFile, mut random: impl FnMut() -> u64) -> Machine {
        let loaded = file.table();
        let mut machine = Machine::of(config, loaded.table, random());
        machine.open = loaded.open;
        machine.last_vote_epoch = file.last_vote_epoch;
        machine.current_epoch = file.current_epoch.max(file.last_vote_epoch).max(machine.table.greatest_epoch());
        machine.table.restore_unclaimed(&file.unclaimed);
        machine.restore_imports(&file.imports);
        machine.tell_of_loaded_imports();
        machine.saves.loaded(machine.current_claims());
        machine.saves.dirty = !file.repairs.is_empty();
        for repair in &file.repairs {
            machine.log(Level::Warning, format!("nodes.conf was repaired: {repair}"));
        }
        if let Some(primary) = machine.table.myself().primary() {
            machine.follow_at_address(primary, false);
        }
        machine
    }

    fn of(config: Config, table: Table, random: u64) -> Machine {
        let mut machine = Machine {
            config,
            table,
            links: Links::default(),
            now: Moment::default(),
            random: Random::default(),
            actions: Vec::new(),
            facts: Facts::default(),
            current_epoch: 0,
            last_vote_epoch: 0,
            open: BTreeMap::new(),
            redirected: BTreeSet::new(),
            state: ClusterState::Down(crate::view::DownReason::Starting),
            clock: StateClock::default(),
            saves: Saves::default(),
            todo: Todo { state: true, view: true, ..Todo::default() },
            stats: Stats::default(),
            election: Election::default(),
            handover: Handover::default(),
            holds_writes: false,
            unseen_bump: None,
            finished: BTreeMap::new(),
            imported: Imports::new(),
            reopened: BTreeMap::new(),
            promised_ms: 0,
            granted: None,
            reservation: None,
            delayed: Vec::new(),
            abandoned: BTreeMap::new(),
            contested: BTreeSet::new(),
            edition: 0,
            ticks: 0,
            last_tick_ms: None,
            viewed: SlotSet::EMPTY,
            rules: Rules::default(),
            faults: Faults::default(),
        };
        machine.random.add(random);
        machine.announce_myself();
        machine
    }

    /// Processes an input and returns the resulting actions in order. `random` is a fresh random number.
    pub fn handle(&mut self, now: Moment, random: u64, input: Input<'_>) -> Vec<Action> {
        self.now = now;
        self.random.add(random);
        match input {
            Input::Tick => self.tick(),
            Input::Linked { link, local_ip } => self.linked(link, local_ip),
            Input::Lost(link) => self.lost(link),
            Input::Accepted { link, peer_ip, local_ip } => self.accepted(link, peer_ip, local_ip),
            Input::Received { link, bytes } => self.received(link, bytes),
            Input::Queued { link, bytes } => self.queued(link, bytes),
            Input::Command(id, command) => self.command(id, command),
            Input::CommandAtOnce(id, command) => self.command_at_once(id, command),
            Input::Facts(facts) => self.take_facts(facts),
            Input::Paused { offset } => self.paused(offset),
            Input::Saved(generation) => self.saved(generation),
            Input::SaveFailed { generation, error } => self.save_failed(generation, &error),
            Input::Loaded(slots) => self.loaded(&slots),
            Input::Configured(config) => self.configured(*config),
            Input::Publish { channel, message, sharded } => self.publish(channel, message, sharded),
        }
        self.settle();
        std::mem::take(&mut self.actions)
    }

    /// Does the requested work at the end of an input. The cluster's state is evaluated first, because views show it. The save comes last,
    /// because messages and views may wait for it.
    fn settle(&mut self) {
        if std::mem::take(&mut self.todo.failover) {
            self.step_failover();
        }
        self.run_delayed();
        self.follow_peers_of_open_slots();
        if std::mem::take(&mut self.todo.state) {
            self.evaluate_state();
        }
        if std::mem::take(&mut self.todo.broadcast) {
            self.tell_all();
        }
        if std::mem::take(&mut self.todo.view) {
            self.show_view();
        }
        self.save_if_dirty();
    }

    /// The known nodes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The cluster's state.
    pub fn state(&self) -> ClusterState {
        self.state
    }

    /// The greatest epoch that this node knows.
    pub fn current_epoch(&self) -> u64 {
        self.current_epoch
    }

    /// The directives.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn me(&self) -> NodeKey {
        self.table.me()
    }

    pub(crate) fn log(&mut self, level: Level, text: String) {
        self.actions.push(Action::Log(level, text));
    }

    /// Notes a change that concerns both nodes.conf and the workers' map.
    pub(crate) fn changed(&mut self) {
        self.saves.dirty = true;
        self.todo.state = true;
        self.todo.view = true;
    }

    /// A node's name for the log: its id, and its name for people or else its address.
    pub(crate) fn name(&self, key: NodeKey) -> String {
        let node = &self.table[key];
        if !node.node_name.is_empty() {
            return format!("{} ({})", node.id, node.node_name);
        }
        let (ip, ports) = (&node.endpoints.ip, node.endpoints.ports);
        let port = if self.config.tls_bus { ports.tls } else { ports.plain };
        let brackets = if ip.contains(':') { ("[", "]") } else { ("", "") };
        format!("{} ({}{ip}{}:{port})", node.id, brackets.0, brackets.1)
    }

    fn configured(&mut self, config: Config) {
        self.config = config;
        self.announce_myself();
        self.changed();
        self.todo.broadcast = true;
    }

    /// Copies the announced addresses and flags from the directives to this node's own entry.
    pub(crate) fn announce_myself(&mut self) {
        let announce = &self.config.announce;
        let known = self.table.myself().endpoints.ip.clone();
        let ip = if announce.ip.is_empty() { known } else { announce.ip.clone() };
        let (endpoints, bus_port) = (announce.endpoints(&ip), announce.bus_port);
        let (node_name, zone) = (announce.node_name.clone(), announce.zone.clone());
        let no_failover = self.config.replica_no_failover;
        let me = self.table.myself_mut();
        (me.endpoints, me.bus_port, me.node_name, me.zone) = (endpoints, bus_port, node_name, zone);
        me.dialect = dialect::Dialect::Valkey;
        me.announced = NodeFlags::EXTENSIONS
            .with(NodeFlags::LIGHT_PUBLISH, true)
            .with(NodeFlags::LIGHT_MODULE, true)
            .with(NodeFlags::NO_FAILOVER, no_failover);
    }

    fn take_facts(&mut self, facts: Facts) {
        self.todo.failover |= self.facts.offset != facts.offset && self.handover.is_under_way();
        self.facts = facts;
    }

    /// Compares the loaded data with the map of slots. This node takes unbound slots that have keys. Keys in slots of other nodes are
    /// deleted, unless this node is importing the slot.
    fn loaded(&mut self, slots: &SlotSet) {
        if !self.table.myself().is_primary() {
            return;
        }
        let mut foreign = SlotSet::EMPTY;
        for slot in slots.iter() {
            match self.table.owner(slot) {
                None => self.table.bind(slot, self.me()),
                Some(owner) if owner == self.me() => {}
                Some(_) if matches!(self.open.get(&slot), Some(OpenSlot::Importing(_))) => {}
                Some(_) => _ = foreign.insert(slot),
            }
        }
        if !foreign.is_empty() {
            self.log(Level::Warning, format!("Deleting keys in dirty slot {foreign}, which other nodes have"));
            self.actions.push(Action::DropSlots(Box::new(foreign)));
        }
        self.changed();
    }

    /// Removes a node and everything that refers to it.
    pub(crate) fn remove_node(&mut self, key: NodeKey) {
        let node = &self.table[key];
        for link in [node.outbound, node.inbound].into_iter().flatten() {
            self.close(link);
        }
        self.open.retain(|_, open| open.peer() != key);
        self.granted.take_if(|(target, _)| *target == key);
        self.table.remove(key);
        self.changed();
    }

    /// Closes a link, and removes it from the entry of the node at its other end.
    pub(crate) fn close(&mut self, id: LinkId) {
        self.actions.push(Action::Close(id));
        self.unlink(id);
    }

    fn unlink(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(id) else { return };
        let Some(key) = link.node else { return };
        let now_ms = self.now.ms;
        let node = &mut self.table[key];
        if node.outbound == Some(id) {
            node.outbound = None;
        }
        if node.inbound == Some(id) {
            node.inbound = None;
            node.no_inbound_since_ms = now_ms;
        }
    }

    fn lost(&mut self, id: LinkId) {
        self.unlink(id);
    }

    fn accepted(&mut self, id: LinkId, peer_ip: &str, local_ip: &str) {
        // A primary can't serve while it loads its data. Without links, the other nodes regard it as failed until then.
        if self.facts.loading && self.table.myself().is_primary() {
            self.actions.push(Action::Close(id));
            return;
        }
        self.links.accept(id, peer_ip, local_ip, self.now.ms);
    }

    fn queued(&mut self, id: LinkId, bytes: u64) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.queued_bytes = bytes;
        self.close_overfull_link(id);
    }

    /// Closes the links of known nodes whose queues exceed the limit. A lower limit also concerns queues that don't change.
    pub(crate) fn close_overfull_links(&mut self) {
        if self.config.link_buffer_bytes_max != 0 {
            let ids: Vec<LinkId> =
                self.links.iter().filter(|(_, link)| link.node.is_some()).map(|(id, _)| id).collect();
            ids.into_iter().for_each(|id| self.close_overfull_link(id));
        }
    }

    fn close_overfull_link(&mut self, id: LinkId) {
        let limit = self.config.link_buffer_bytes_max;
        let Some(link) = self.links.get(id) else { return };
        let bytes = link.queue_memory();
        if limit != 0 && bytes > limit {
            self.stats.links_over_limit += 1;
            self.log(Level::Warning, format!("A link's queue exceeds cluster-link-sendbuf-limit: {bytes} bytes"));
            self.close(id);
        }
    }

    /// The link to send a node's messages on.
    pub(crate) fn link_to(&self, key: NodeKey) -> Option<LinkId> {
        let id = self.table[key].outbound?;
        self.links.get(id).filter(|link| link.is_up).map(|_| id)
    }

    /// True if a node is suspected or failed.
    pub(crate) fn is_unwell(&self, key: NodeKey) -> bool {
        self.table[key].health != Health::Well
    }
}
