//! Changes of slots that wait for this primary's replicas: see `execute/slot_changes.rs`.

use cluster::commands::ClusterCommand;

use crate::replication::replicas::Acknowledgement;

/// A change of a slot on its way to the replicas.
pub(crate) struct SlotChange {
    /// The connection that waits for it.
    pub(crate) client: u64,
    /// The number of its wait.
    pub(crate) wait: u64,
    /// The command.
    pub(crate) command: ClusterCommand,
    /// The time that the replicas have, in milliseconds.
    pub(crate) timeout_ms: u64,
    /// The replicas' acknowledgement, and the deadline; none while the bus checks the command.
    pub(crate) awaited: Option<(Acknowledgement, u64)>,
}
