//! `import`: moves the keys of a server without cluster mode into the cluster.

use super::members::scanned;
use super::node::{Node, connection_text, info_field, number_of, text_of};
use super::{Manager, Outcome, Stop, parse_address};
use crate::password;
use client::Connection;
use client::cluster::key_slot;

/// COUNT of a SCAN.
const SCAN_COUNT: &str = "1000";

/// `import`.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    let (host, port) = manager.address(args)?;
    let (source_host, source_port) = manager.source_address()?;
    manager.info(format!(">>> Importing data from {source_host}:{source_port} to cluster {host}:{port}\n"))?;
    manager.load_from(host, port)?;
    if !manager.check(true)? {
        return Err(Stop::Reported);
    }
    let mut source = manager.connect_to_source(source_host, source_port)?;
    let info = manager.ask_source(&mut source, &["INFO"])?;
    if info_field(&text_of(&info), "cluster_enabled") == Some(1) {
        return manager.stop("[ERR] The source node should not be a cluster node.\n");
    }
    let size = manager.ask_source(&mut source, &["DBSIZE"])?;
    manager.warn(format!("*** Importing {} keys from DB 0\n", number_of(&size).unwrap_or(0)))?;
    let mut cursor = "0".to_owned();
    loop {
        let reply = manager.ask_source(&mut source, &["SCAN", &cursor, "COUNT", SCAN_COUNT])?;
        let Some((next, keys)) = scanned(&reply) else {
            return manager.stop(format!("Source {} replied with error:\nno cursor\n", source.place()));
        };
        for key in keys {
            manager.import_key(&mut source, &key)?;
        }
        cursor = next;
        if cursor == "0" {
            return Ok(());
        }
    }
}

impl Manager<'_> {
    /// Returns the address in `--cluster-from`.
    fn source_address(&mut self) -> Outcome<(String, u16)> {
        let problem = match self.choices.from.as_deref().map(parse_address) {
            Some(Some(address)) => return Ok(address),
            Some(None) => "[ERR] Invalid --cluster-from host. You need to pass a valid address (ie. 120.0.0.1:7000).",
            None => "[ERR] Option '--cluster-from' is required for subcommand 'import'.",
        };
        self.complain(problem)?;
        Err(Stop::Reported)
    }

    fn connect_to_source(&mut self, host: String, port: u16) -> Outcome<Node> {
        let mut config = self.config_without_login(&host, port);
        config.user = self.choices.from_user.clone();
        config.password = match self.choices.asks_from_password {
            true => Some(password::ask()?),
            false => self.choices.from_password.clone(),
        };
        let mut node = Node::new(host, port);
        match Connection::connect(&config) {
            Ok(connection) => {
                node.set_connection(connection);
                Ok(node)
            }
            Err(error) => {
                let text = format!("Could not connect to Redis at {}: {}.", node.place(), connection_text(&error));
                self.complain(&text)?;
                Err(Stop::Reported)
            }
        }
    }

    fn ask_source(&mut self, source: &mut Node, request: &[impl AsRef<[u8]>]) -> Outcome<client::Value> {
        match source.request(request) {
            Ok(reply) => Ok(reply),
            Err(error) => self.stop(format!("Source {} replied with error:\n{error}\n", source.place())),
        }
    }

    /// Moves a key to the owner of its slot.
    fn import_key(&mut self, source: &mut Node, key: &[u8]) -> Outcome {
        let slot = key_slot(key);
        let Some(target) = self.masters().into_iter().find(|&node| self.nodes[node].slots.contains(slot)) else {
            return self.stop(format!("[ERR] Slot {slot} has no owner.\n"));
        };
        let (host, port) = (self.nodes[target].host.clone(), self.nodes[target].port.to_string());
        self.say([b"Migrating ", key, format!(" to {host}:{port}: ").as_bytes()].concat())?;
        let timeout = self.choices.timeout_ms.to_string();
        let words: [&[u8]; 6] = [b"MIGRATE", host.as_bytes(), port.as_bytes(), key, b"0", timeout.as_bytes()];
        let mut request: Vec<Vec<u8>> = words.map(<[u8]>::to_vec).into();
        request.extend(self.migrate_login());
        request.extend(self.choices.copies.then(|| b"COPY".to_vec()));
        request.extend(self.choices.replaces.then(|| b"REPLACE".to_vec()));
        self.ask_source(source, &request)?;
        self.ok("OK\n")
    }
}
