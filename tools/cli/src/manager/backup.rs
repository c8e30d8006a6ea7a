//! `backup`: saves a snapshot of each primary, and a description of the nodes.

use super::report::json;
use super::{Manager, Outcome, Stop};
use crate::replica_stream::{Length, ReplicaStream, copy_to_file};
use std::fs;
use std::path::{Path, PathBuf};

/// `backup`.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.load_cluster(&args[..1])?;
    let is_fine = manager.check(true)?;
    let errors = if is_fine { 0 } else { manager.errors.len() };
    let shown = String::from_utf8_lossy(&args[1]).into_owned();
    let directory = PathBuf::from(&shown);
    let mut nodes = Vec::new();
    for node in 0..manager.nodes.len() {
        nodes.push(json(&manager.nodes[node], errors));
        if manager.nodes[node].primary.is_none() {
            manager.save_snapshot(node, &directory)?;
        }
    }
    let path = directory.join("nodes.json");
    manager.info(format!("Saving cluster configuration to: {}\n", path.display()))?;
    if fs::write(&path, format!("[\n{}\n]", nodes.join(",\n"))).is_err() {
        manager.error(format!("Could not save nodes to: {}\n", path.display()))?;
        manager.ok("[ERR] Failed to back cluster!\n")?;
        return Err(Stop::Reported);
    }
    if !is_fine {
        manager.warn(
            "*** Cluster seems to have some problems, please be aware of it if you're going to restore this backup.\n",
        )?;
    }
    manager.ok(format!("[OK] Backup created into: {shown}\n"))
}

impl Manager<'_> {
    /// Saves the snapshot of a node, which sends it as to a replica.
    fn save_snapshot(&mut self, node: usize, directory: &Path) -> Outcome {
        let (host, port, id) = (&self.nodes[node].host, self.nodes[node].port, &self.nodes[node].id);
        let path = directory.join(format!("redis-node-{host}-{port}-{id}.rdb"));
        let place = self.nodes[node].place();
        self.info(format!(">>> Node {place} -> Saving RDB...\n"))?;
        self.output.flush()?;
        let Some(connection) = self.nodes[node].take_connection() else { return Err(Stop::Reported) };
        let saved = receive(ReplicaStream::new(connection), &path, |text| self.complain(text));
        match saved {
            Ok(()) => Ok(()),
            Err(Problem::Stop(stop)) => Err(stop),
            Err(Problem::Text(text)) => {
                self.complain(&text)?;
                Err(Stop::Reported)
            }
        }
    }
}

/// The reason for a missing snapshot.
enum Problem {
    Stop(Stop),
    Text(String),
}

impl From<Stop> for Problem {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Requests a snapshot and writes it into a file.
fn receive(mut source: ReplicaStream, path: &Path, mut report: impl FnMut(&str) -> Outcome) -> Result<(), Problem> {
    let length = source.begin().map_err(Problem::Text)?;
    let shown = path.display();
    match &length {
        Length::Bytes(bytes) => report(&format!("SYNC sent to master, writing {bytes} bytes to '{shown}'"))?,
        Length::Until(_) => {
            report(&format!("SYNC sent to master, writing bytes of bulk transfer until EOF marker to '{shown}'"))?
        }
    }
    match copy_to_file(&mut source, &length, path).map_err(Problem::Text)? {
        Some(bytes) => Ok(report(&format!("Transfer finished with success after {bytes} bytes"))?),
        None => Ok(report("Transfer finished with success.")?),
    }
}
