//! A client of a cluster: commands go to the node that has their key's slot.
//!
//! The client reads the slot map from any node, follows redirections, and reads the map again after a redirection or
//! the loss of a node. The servers' own table of commands tells where a command's first key is.

mod fields;
mod flight;
mod keys;
mod map;
mod redirect;
mod tags;
mod transactions;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use ::cluster::{SLOTS, Slot, SlotSet, key_slot};
use resp::parse::Value;

use crate::command::Request;
use crate::config::{Address, Config};
use crate::connection::Connection;
use crate::error::{Error, ServerError};
use crate::pipeline::Pipeline;
use crate::unshareable::{Args, Sharing, kind_of};
use crate::window::Window;
use flight::{Flight, Task};
use keys::KeyTable;
pub use map::SlotMap;
pub use redirect::{NodeAddress, Redirection};
pub use tags::{TAG_BYTES, slot_tag};
pub use transactions::{SlotTransaction, Transacted};

/// Default limit for the attempts to run a command.
const ATTEMPTS_MAX: u32 = 16;

/// Default pause before the second attempt of a command that no node could run. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Limit for the pauses. All default attempts together take about five seconds.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Settings of a [`Cluster`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Limit for the attempts to run a command: redirections, TRYAGAIN, CLUSTERDOWN, and nodes that can't be reached.
    pub attempts_max: u32,
    /// Pause before the second attempt of a command after TRYAGAIN, CLUSTERDOWN or an unreachable node. Each further
    /// pause is twice as long, up to half a second.
    pub pause: Duration,
    /// Sends a command only after the earlier ones of its slot were answered. Otherwise a command can run before an
    /// earlier one of its slot with another key, if that one is redirected while the slot moves between nodes.
    pub strict_order: bool,
    /// Limits on the unanswered commands and unsent bytes for each node.
    pub window: Window,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { attempts_max: ATTEMPTS_MAX, pause: PAUSE_MIN, strict_order: false, window: Window::default() }
    }
}

/// Connections to all nodes of a cluster, for one thread.
///
/// Commands of one pipeline that belong to one slot run in their order. Commands of different slots may run in any
/// order, because their nodes work at the same time. A command that was sent over a connection that broke isn't sent
/// again: its error has [`Error::fate`] `MayHaveRun`, and later commands of its slot fail with `NotRun`.
#[derive(Debug)]
pub struct Cluster {
    /// Settings of all connections; each gets the address of its node.
    config: Config,
    options: ClusterOptions,
    seed: NodeAddress,
    map: SlotMap,
    keys: Arc<KeyTable>,
    connections: HashMap<NodeAddress, Connection>,
}

impl Cluster {
    /// Connects to the node that `config` names, and reads the slot map and the table of commands.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`] and [`Connection::command`]. A server without cluster support
    /// answers with an error.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        Self::connect_with(config, ClusterOptions::default())
    }

    /// Connects with other options.
    ///
    /// # Errors
    /// Returns the errors of [`Self::connect`].
    pub fn connect_with(config: &Config, options: ClusterOptions) -> Result<Self, Error> {
        let Address::Tcp { host, port } = &config.address else {
            return Err(Error::Config("the nodes of a cluster are reached by TCP".to_owned()));
        };
        let seed = NodeAddress { host: host.clone(), port: *port };
        let mut cluster = Self {
            config: config.clone(),
            options,
            seed: seed.clone(),
            map: SlotMap::empty(),
            keys: Arc::default(),
            connections: HashMap::new(),
        };
        cluster.load_from(&seed)?;
        cluster.keys = Arc::new(KeyTable::parse(&cluster.node(&seed)?.exchange(&["COMMAND"])?));
        Ok(cluster)
    }

    /// Returns the slot map.
    #[must_use]
    pub fn map(&self) -> &SlotMap {
        &self.map
    }

    /// Reads the slot map again, from the first node that answers.
    ///
    /// # Errors
    /// Returns the last node's error if no node answered.
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.refresh_from(None)
    }

    /// Reads the slot map again, from `first` if possible. The node that MOVED names knows the change already.
    fn refresh_from(&mut self, first: Option<NodeAddress>) -> Result<(), Error> {
        let (connected, others): (Vec<&NodeAddress>, Vec<&NodeAddress>) =
            self.map.primaries().iter().partition(|node| self.connections.contains_key(*node));
        let known = connected.into_iter().chain(others).chain(self.map.replicas()).chain([&self.seed]);
        let candidates: Vec<NodeAddress> = first.into_iter().chain(known.cloned()).collect();
        let mut last = None;
        for node in &candidates {
            match self.load_from(node) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Reads the slot map from a node, and closes the connections to nodes that aren't in it.
    fn load_from(&mut self, node: &NodeAddress) -> Result<(), Error> {
        let tls = self.config.tls;
        let loaded = self.node(node).and_then(|connection| load_map(connection, node, tls));
        let map = loaded.inspect_err(|error| {
            if error.is_connection_lost() {
                self.connections.remove(node);
            }
        })?;
        let is_known = |address: &NodeAddress| map.primaries().contains(address) || map.replicas().contains(address);
        self.connections.retain(|address, _| address == node || is_known(address));
        self.map = map;
        Ok(())
    }

    /// Returns the connection to a node. It connects if there is none.
    ///
    /// A redirection that arrives on it is an error reply like others.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`].
    pub fn node(&mut self, node: &NodeAddress) -> Result<&mut Connection, Error> {
        let usable = self.connections.get(node).is_some_and(|known| !known.has_ended() && known.owed() == 0);
        if !usable {
            let connection = Connection::connect(&self.config_of(node))?;
            self.connections.insert(node.clone(), connection);
        }
        self.connections.get_mut(node).ok_or_else(|| Error::Config(format!("no connection to {node}")))
    }

    /// Returns the connection to the node that has a key's slot: for transactions, blocking commands and others that
    /// pipelines refuse.
    ///
    /// # Errors
    /// Returns the errors of [`Self::node`].
    pub fn node_of(&mut self, key: &[u8]) -> Result<&mut Connection, Error> {
        let node = self.map.owner(key_slot(key)).unwrap_or(&self.seed).clone();
        self.node(&node)
    }

    fn config_of(&self, node: &NodeAddress) -> Config {
        let mut config = self.config.clone();
        config.address = Address::Tcp { host: node.host.clone(), port: node.port };
        config
    }

    /// Returns the slot of a command: its first key's. Commands without keys have none.
    pub fn slot_of(&self, request: &(impl Request + ?Sized)) -> Option<Slot> {
        let mut bytes = Vec::new();
        request.pack(&mut bytes);
        self.slot_of_packed(&bytes)
    }

    /// Returns the slot of a command in wire format.
    #[must_use]
    pub fn slot_of_packed(&self, request: &[u8]) -> Option<Slot> {
        let args: Vec<&[u8]> = Args(request).collect();
        self.keys.first_key(&args).map(key_slot)
    }

    /// Sends a command to the node that has its slot, or to any node if it has no key, and reads its reply.
    ///
    /// # Errors
    /// Returns [`Error::Server`] for an error reply, and the errors of [`Self::run`].
    pub fn command(&mut self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        ServerError::check(self.exchange(request)?)
    }

    /// Sends a command and returns its reply, even if it is an error reply.
    ///
    /// # Errors
    /// Returns the errors of [`Self::command`] except [`Error::Server`].
    pub fn exchange(&mut self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        let mut pipeline = Pipeline::new();
        pipeline.add(request);
        let mut results = self.run(&pipeline);
        results.pop().unwrap_or_else(|| Err(Error::Config("an empty request".to_owned())))
    }

    /// Sends the commands of a pipeline to their nodes, all nodes at once, and returns the result of each in the order
    /// of the pipeline. An error reply is a result, also MOVED and others after the last attempt.
    ///
    /// A result is an error if the node couldn't be reached, if the connection broke, or if the command can't be part
    /// of a pipeline over many nodes: transactions, blocking commands, and changes of the connection itself.
    pub fn run(&mut self, pipeline: &Pipeline) -> Vec<Result<Value, Error>> {
        let tasks = pipeline.requests().map(|request| self.task(request)).collect();
        Flight::new(self, tasks, pipeline.scripts()).run()
    }

    fn task<'r>(&self, request: &'r [u8]) -> Task<'r> {
        match kind_of(request) {
            Sharing::Shareable => Task::new(request, self.slot_of_packed(request)),
            Sharing::Unshareable(name) => Task::refused(request, Error::NotShareable(name)),
            Sharing::Blocking(_) => {
                let name = Args(request).next().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase());
                Task::refused(request, Error::NotShareable(name.unwrap_or_default()))
            }
        }
    }

    /// Sends each transaction to the node that has its slot, all nodes at once, and returns the result of each.
    ///
    /// Transactions of one slot run in their order. The errors are those of [`Self::run`].
    pub fn run_transactions(&mut self, transactions: &[SlotTransaction]) -> Vec<Result<Transacted, Error>> {
        let packed: Vec<Vec<u8>> = transactions.iter().map(SlotTransaction::pack).collect();
        let tasks = packed.iter().zip(transactions).map(|(bytes, transaction)| {
            // MULTI and EXEC have replies, too.
            Task::transaction(bytes, transaction.len() + 2, transaction.slot)
        });
        let results = Flight::new(self, tasks.collect(), &[]).run();
        results.into_iter().map(|result| result.map(Transacted::of)).collect()
    }

    /// Sends a command to each primary, and returns the reply of each.
    pub fn on_each_primary(&mut self, request: &(impl Request + ?Sized)) -> Vec<(NodeAddress, Result<Value, Error>)> {
        let nodes = self.map.primaries().to_vec();
        let ask = |node: NodeAddress| {
            let reply = self.node(&node).and_then(|connection| connection.exchange(request));
            (node, reply)
        };
        nodes.into_iter().map(ask).collect()
    }
}

/// Reads the slot map of a node: CLUSTER SLOTS, which all versions have, or CLUSTER SHARDS where that is refused.
fn load_map(connection: &mut Connection, node: &NodeAddress, tls: bool) -> Result<SlotMap, Error> {
    let unexpected = |reply: &Value| Error::Unexpected { command: "CLUSTER SLOTS", reply: format!("{reply:?}") };
    let slots = connection.exchange(&["CLUSTER", "SLOTS"])?.without_attribute();
    let Some(refusal) = slots.error() else {
        return SlotMap::from_slots(&slots, node).ok_or_else(|| unexpected(&slots));
    };
    let shards = connection.exchange(&["CLUSTER", "SHARDS"])?.without_attribute();
    match shards.error() {
        Some(_) => Err(Error::Server(ServerError::new(refusal))),
        None => SlotMap::from_shards(&shards, node, tls).ok_or_else(|| unexpected(&shards)),
    }
}
