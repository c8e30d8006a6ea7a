//! The end of a cluster's primary (SHUTDOWN FAILOVER): the last command of its stream names the replica that takes over.

use cluster::id::NodeId;

use super::Replication;
use super::replicas::{ReplicaFigures, ReplicaStage};

/// The replica that takes over from this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Its connection.
    client: u64,
    /// Its name in the cluster.
    pub node: NodeId,
    /// The offset behind the command that names it.
    end: u64,
}

impl Replication {
    /// Ends the stopped stream with a command for a replica that has all data: the replica takes over.
    ///
    /// # Errors
    /// The reason, in Valkey's words.
    pub fn name_successor(&self) -> Result<Successor, &'static str> {
        let replicas = self.replicas.all();
        if replicas.iter().any(|replica| !replica.takes_over) {
            return Err("Unable to perform auto failover on shutdown since there are legacy replicas.");
        }
        let end = self.stream.units_end();
        let has_all = |replica: &ReplicaFigures| replica.stage == ReplicaStage::Online && replica.offset >= end;
        let chosen =
            replicas.iter().filter(|replica| has_all(replica)).find_map(|replica| Some((replica, replica.node?)));
        let Some((replica, node)) = chosen.filter(|_| self.has_stopped_stream()) else {
            return Err("Unable to find a replica to perform the auto failover on shutdown.");
        };
        let command = format!(
            "*5\r\n$7\r\nCLUSTER\r\n$8\r\nFAILOVER\r\n$5\r\nFORCE\r\n$9\r\nREPLICAID\r\n${}\r\n{node}\r\n",
            node.as_str().len()
        );
        let end = self.stream.add_last(command.as_bytes());
        self.stream.wake();
        Ok(Successor { client: replica.client, node, end })
    }

    /// Returns true if a successor has received its command, or has gone: a replica that takes over leaves its primary.
    #[must_use]
    pub fn has_been_told(&self, successor: &Successor) -> bool {
        let lacks_it = |replica: &ReplicaFigures| replica.client == successor.client && replica.offset < successor.end;
        !self.replicas.all().iter().any(lacks_it)
    }
}
