//! Connects to nodes, and reads their view of the cluster.

use super::node::{Node, connection_text, info_field, text_of};
use super::nodes_text::{self, NodeLine};
use super::{Manager, Outcome, Stop};
use client::{Config, Connection, Error};

impl Manager<'_> {
    /// Loads all nodes of the cluster, starting from the node in the arguments.
    pub(super) fn load_cluster(&mut self, args: &[Vec<u8>]) -> Outcome {
        let (host, port) = self.address(args)?;
        self.load_from(host, port)
    }

    /// Loads all nodes of the cluster, starting from one node. It is the first in the list.
    pub(super) fn load_from(&mut self, host: String, port: u16) -> Outcome {
        let mut first = Node::new(host, port);
        self.connect(&mut first)?;
        self.check_cluster_mode(&mut first)?;
        let friends = self.read_nodes(&mut first)?;
        self.nodes = vec![first];
        for line in friends {
            let is_replica = line.primary.is_some();
            match self.load_friend(line)? {
                Some(node) => self.nodes.push(node),
                None => self.unreachable_masters += usize::from(!is_replica),
            }
        }
        self.count_replicas()
    }

    /// Connects to another node. Returns `None` if it can't be used.
    fn load_friend(&mut self, line: NodeLine) -> Outcome<Option<Node>> {
        let mut node = Node::new(line.host, line.port);
        if node.host.is_empty() || node.port == 0 {
            return Ok(None);
        }
        match self.connect(&mut node) {
            Ok(()) => {}
            Err(Stop::Reported) => return Ok(None),
            Err(stop) => return Err(stop),
        }
        match self.read_nodes(&mut node) {
            Ok(_) => {}
            Err(Stop::Reported) => {
                self.error(format!("[ERR] Unable to load info for node {}\n", node.place()))?;
                return Ok(None);
            }
            Err(stop) => return Err(stop),
        }
        let is_unusable = ["noaddr", "disconnected", "fail"].iter().any(|flag| node.has_flag(flag));
        Ok(Some(node).filter(|_| !is_unusable))
    }

    fn count_replicas(&mut self) -> Outcome {
        for at in 0..self.nodes.len() {
            let Some(primary) = self.nodes[at].primary.clone() else { continue };
            match self.node_by_id(&primary) {
                Some(primary) => self.nodes[primary].replicas += 1,
                None => {
                    let place = self.nodes[at].place();
                    self.warn(format!("*** WARNING: {place} claims to be slave of unknown node ID {primary}.\n"))?;
                }
            }
        }
        Ok(())
    }

    // --- one node ---

    /// Connects to a node and logs in. Failures are reported.
    pub(super) fn connect(&mut self, node: &mut Node) -> Outcome {
        match Connection::connect(&self.config(&node.host, node.port)) {
            Ok(connection) => {
                node.set_connection(connection);
                Ok(())
            }
            Err(Error::Server(refusal)) => {
                self.error(format!("Node {} replied with error:\n{refusal}\n", node.place()))?;
                Err(Stop::Reported)
            }
            Err(error) => {
                let text = format!("Could not connect to Redis at {}: {}", node.place(), connection_text(&error));
                self.complain(&text)?;
                Err(Stop::Reported)
            }
        }
    }

    /// Returns the settings of a connection with the password of the command line.
    fn config(&self, host: &str, port: u16) -> Config {
        let mut config = self.config_without_login(host, port);
        config.password = self.password.clone();
        config.user = self.options.user.clone().filter(|_| config.password.is_some());
        config
    }

    pub(super) fn config_without_login(&self, host: &str, port: u16) -> Config {
        let mut config = Config::tcp(host, port);
        if let Some(tls) = &self.options.tls {
            config.tls = true;
            config.tls_options = tls.clone();
        }
        config.connect_timeout = self.options.connect_timeout.unwrap_or(config.connect_timeout);
        // The transfer of a large key takes long.
        config.read_timeout = None;
        config.write_timeout = None;
        config
    }

    /// Reports a node that isn't in cluster mode.
    pub(super) fn check_cluster_mode(&mut self, node: &mut Node) -> Outcome {
        let text = match node.request(&["INFO"]) {
            Ok(info) if info_field(&text_of(&info), "cluster_enabled") == Some(1) => return Ok(()),
            Ok(_) => "is not configured as a cluster node.".to_owned(),
            Err(error) => error,
        };
        self.stop(format!("[ERR] Node {} {text}\n", node.place()))
    }

    /// Reports a node that has keys or knows other nodes.
    pub(super) fn check_empty(&mut self, node: &mut Node) -> Outcome {
        let has_keys = node.request(&["INFO"]).map(|info| text_of(&info).contains("db0:"));
        let knows_nodes = node
            .request(&["CLUSTER", "INFO"])
            .map(|info| info_field(&text_of(&info), "cluster_known_nodes") != Some(1));
        let text = match (has_keys, knows_nodes) {
            (Ok(false), Ok(false)) => return Ok(()),
            (Ok(_), Ok(_)) => "is not empty. Either the node already knows other nodes (check with CLUSTER NODES) or \
                               contains some key in database 0."
                .to_owned(),
            (Err(error), _) | (_, Err(error)) => error,
        };
        self.stop(format!("[ERR] Node {} {text}\n", node.place()))
    }

    /// Reads CLUSTER NODES, and takes over the node's own line. Returns the others.
    pub(super) fn read_nodes(&mut self, node: &mut Node) -> Outcome<Vec<NodeLine>> {
        let reply = match node.request(&["CLUSTER", "NODES"]) {
            Ok(reply) => reply,
            Err(error) => return self.stop(format!("Node {} replied with error:\n{error}\n", node.place())),
        };
        let lines = nodes_text::parse(&text_of(&reply)).unwrap_or_default();
        let (own, others): (Vec<NodeLine>, Vec<NodeLine>) = lines.into_iter().partition(|line| line.is_myself);
        match own.into_iter().next() {
            Some(line) => {
                node.set_line(line);
                Ok(others)
            }
            None => {
                self.complain("Error: invalid CLUSTER NODES reply")?;
                Err(Stop::Reported)
            }
        }
    }
}
