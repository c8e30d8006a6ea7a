//! `add-node`, `del-node`, `call` and `set-timeout`.

use super::node::{Node, text_of};
use super::{Manager, Outcome, Stop};
use crate::format::{ReplyFormat, Style};
use client::Value;
use std::thread::sleep;
use std::time::Duration;

/// Time for a new node to hear of the others.
const JOIN_START: Duration = Duration::from_secs(1);

/// A shorter node timeout would make nodes suspect each other all the time.
const TIMEOUT_MS_MIN: u64 = 100;

/// `add-node`.
pub fn add(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    let (known_host, known_port) = manager.address(&args[1..])?;
    let (host, port) = manager.address(&args[..1])?;
    manager.info(format!(">>> Adding node {host}:{port} to cluster {known_host}:{known_port}\n"))?;
    manager.load_from(known_host, known_port)?;
    if !manager.check(true)? {
        return Err(Stop::Reported);
    }
    let master = manager.chosen_master()?;
    let mut node = Node::new(host.clone(), port);
    if let Err(stop) = manager.connect(&mut node) {
        manager.error(format!("[ERR] Sorry, can't connect to node {host}:{port}\n"))?;
        return Err(stop);
    }
    manager.check_cluster_mode(&mut node)?;
    manager.read_nodes(&mut node)?;
    manager.check_empty(&mut node)?;
    manager.nodes.push(node);
    let node = manager.nodes.len() - 1;
    if master.is_none() {
        // A replica gets the functions from its primary.
        manager.copy_functions(node)?;
    }
    manager.info(format!(">>> Send CLUSTER MEET to node {host}:{port} to make it join the cluster.\n"))?;
    manager.meet(node, 0)?;
    if let Some(master) = master {
        manager.output.flush()?;
        sleep(JOIN_START);
        manager.wait_for_join()?;
        let (place, id) = (manager.nodes[master].place(), manager.nodes[master].id.clone());
        manager.info(format!(">>> Configure node as replica of {place}.\n"))?;
        manager.must(node, &["CLUSTER", "REPLICATE", &id])?;
    }
    manager.ok("[OK] New node added correctly.\n")
}

impl Manager<'_> {
    /// Returns the primary of a new replica, or `None` if the new node is a primary.
    fn chosen_master(&mut self) -> Outcome<Option<usize>> {
        if !self.choices.is_slave {
            return Ok(None);
        }
        if let Some(id) = self.choices.master_id.clone() {
            return match self.node_by_id(&id) {
                Some(node) => Ok(Some(node)),
                None => self.stop(format!("[ERR] No such master ID {id}\n")),
            };
        }
        let master = self.with_fewest_replicas(None);
        if let Some(master) = master {
            let place = self.nodes[master].place();
            self.say(format!("Automatically selected master {place}\n"))?;
        }
        Ok(master)
    }

    fn with_fewest_replicas(&self, except: Option<usize>) -> Option<usize> {
        let masters = self.masters().into_iter().filter(|node| Some(*node) != except);
        masters.min_by_key(|&node| self.nodes[node].replicas)
    }

    /// Copies the functions of the first node to a new one.
    fn copy_functions(&mut self, node: usize) -> Outcome {
        let place = self.nodes[node].place();
        self.info(">>> Getting functions from cluster\n")?;
        let dump = match self.request(0, &["FUNCTION", "DUMP"]) {
            Ok(dump) => dump.bytes().unwrap_or_default().to_vec(),
            Err(error) => {
                return self.info(format!(
                    ">>> Failed retrieving Functions from the cluster, skip this step as Redis version do not support \
                     function command (error = '{error}')\n"
                ));
            }
        };
        self.info(format!(">>> Send FUNCTION LIST to {place} to verify there is no functions in it\n"))?;
        match self.request(node, &["FUNCTION", "LIST"]) {
            Ok(Value::Array(functions)) if functions.is_empty() => {}
            Ok(_) => {
                return self.stop(
                    ">>> New node already contains functions and can not be added to the cluster. Use FUNCTION FLUSH \
                     and try again.\r\n",
                );
            }
            Err(error) => return self.stop(format!(">>> Failed on CLUSTER LIST (error = '{error}')\r\n")),
        }
        self.info(format!(">>> Send FUNCTION RESTORE to {place}\n"))?;
        match self.request(node, &[&b"FUNCTION"[..], b"RESTORE", &dump]) {
            Ok(_) => Ok(()),
            Err(error) => self.stop(format!(">>> Failed loading functions to the new node (error = '{error}')\r\n")),
        }
    }
}

/// `del-node`.
pub fn delete(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    let (host, port) = manager.address(&args[..1])?;
    let id = String::from_utf8_lossy(&args[1]).into_owned();
    manager.info(format!(">>> Removing node {id} from cluster {host}:{port}\n"))?;
    manager.load_from(host, port)?;
    let Some(node) = manager.node_by_id(&id) else {
        return manager.stop(format!("[ERR] No such node ID {id}\n"));
    };
    if !manager.nodes[node].slots.is_empty() {
        let place = manager.nodes[node].place();
        return manager.stop(format!("[ERR] Node {place} is not empty! Reshard data away and try again.\n"));
    }
    manager.info(">>> Sending CLUSTER FORGET messages to the cluster...\n")?;
    let id = manager.nodes[node].id.clone();
    for other in (0..manager.nodes.len()).filter(|other| *other != node) {
        if manager.nodes[other].primary.as_ref() == Some(&id) {
            manager.replace_master(other, node)?;
        }
        manager.must(other, &["CLUSTER", "FORGET", &id])?;
    }
    manager.info(">>> Sending CLUSTER RESET SOFT to the deleted node.\n")?;
    manager.must(node, &["CLUSTER", "RESET", "SOFT"]).map(drop)
}

impl Manager<'_> {
    /// Gives a replica another primary than the deleted one.
    fn replace_master(&mut self, replica: usize, deleted: usize) -> Outcome {
        let Some(master) = self.with_fewest_replicas(Some(deleted)) else { return Err(Stop::Reported) };
        let (ours, theirs) = (self.nodes[replica].place(), self.nodes[master].place());
        self.info(format!(">>> {ours} as replica of {theirs}\n"))?;
        let id = self.nodes[master].id.clone();
        self.must(replica, &["CLUSTER", "REPLICATE", &id])?;
        self.nodes[master].replicas += 1;
        Ok(())
    }
}

/// `call`: sends a command to all nodes.
pub fn call(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    let (address, command) = args.split_at(1);
    manager.load_cluster(address)?;
    manager.info(">>> Calling")?;
    let words: Vec<u8> = command.iter().flat_map(|word| [&b" "[..], word].concat()).collect();
    manager.say([&words, &b"\n"[..]].concat())?;
    let style = Style { form: ReplyFormat::Raw, reply_delimiter: Vec::new(), ..manager.options.style.clone() };
    for node in 0..manager.nodes.len() {
        let is_replica = manager.nodes[node].primary.is_some();
        let is_left_out = if is_replica { manager.choices.only_masters } else { manager.choices.only_replicas };
        if is_left_out {
            continue;
        }
        let mut line = format!("{}: ", manager.nodes[node].place()).into_bytes();
        match manager.nodes[node].exchange(command) {
            Some(reply) => style.push_reply(&reply, false, &mut line),
            None => line.extend_from_slice(b"Failed!"),
        }
        line.push(b'\n');
        manager.say(line)?;
    }
    Ok(())
}

/// `set-timeout`: changes the node timeout of all nodes, in memory and in their configuration files.
pub fn set_timeout(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    let (host, port) = manager.address(&args[..1])?;
    let timeout_ms: u64 = String::from_utf8_lossy(&args[1]).parse().unwrap_or(0);
    if timeout_ms < TIMEOUT_MS_MIN {
        manager.complain("Setting a node timeout of less than 100 milliseconds is a bad idea.")?;
        return Err(Stop::Reported);
    }
    manager.load_from(host, port)?;
    manager.info(">>> Reconfiguring node timeout in every cluster node...\n")?;
    let (mut done, mut failed) = (0, 0);
    for node in 0..manager.nodes.len() {
        let place = manager.nodes[node].place();
        let set = manager.request(node, &["CONFIG", "SET", "cluster-node-timeout", &timeout_ms.to_string()]);
        match set.and_then(|_| manager.request(node, &["CONFIG", "REWRITE"])) {
            Ok(_) => {
                manager.warn(format!("*** New timeout set for {place}\n"))?;
                done += 1;
            }
            Err(error) => {
                manager.error(format!("ERR setting node-timeout for {place}: {error}\n"))?;
                failed += 1;
            }
        }
    }
    manager.info(format!(">>> New node timeout set. {done} OK, {failed} ERR.\n"))
}

/// Returns the cursor and keys of a reply to SCAN.
pub fn scanned(reply: &Value) -> Option<(String, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else { return None };
    let [cursor, Value::Array(keys)] = parts.as_slice() else { return None };
    Some((text_of(cursor), keys.iter().filter_map(Value::bytes).map(<[u8]>::to_vec).collect()))
}
