//! The configuration of a process.

use config::{Loader, Settings};

use crate::Wrong;

/// The use and the policy of the append-only file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// No append-only file.
    Nothing,
    /// The file is synced every second.
    EverySecond,
    /// The file is synced before a reply is sent.
    Always,
}

/// The configuration of a process, the same after restarts.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The append-only file.
    pub keeps: Keeps,
    /// True to send snapshots to replicas while they are made.
    pub sends_early: bool,
    /// Number of replicas that must have a write before its reply is sent.
    pub durability_replicas: u64,
    /// Number of workers. They take turns one after the other.
    pub workers: usize,
    /// A sync completes in one of this many steps of the log.
    pub sync_odds: usize,
    /// The directives of a node of a cluster; None for a server outside of one.
    pub node: Option<NodeSetup>,
}

/// The directives of a node of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct NodeSetup {
    /// `cluster-node-timeout`.
    pub timeout_ms: u64,
    /// True if the node goes on when nodes.conf can't be saved.
    pub goes_on: bool,
    /// `cluster-manual-failover-timeout`.
    pub handover_ms: u64,
}

/// The port of the first process of a cluster. The ports of the bus are [`BUS_PORTS`] higher.
pub const PORTS: u16 = 7000;
/// The distance between a port and the port of its bus.
pub const BUS_PORTS: u16 = 10_000;
/// The address of all processes. Their ports differ.
pub const ADDRESS: &str = "10.0.0.1";

/// Returns the directives of a process.
///
/// # Errors
/// A directive is refused, which never happens here.
pub(crate) fn settings(number: usize, setup: Setup) -> Result<Settings, Wrong> {
    let settings = Settings::new();
    let mut loader = Loader::new(&settings);
    let (appendonly, appendfsync) = match setup.keeps {
        Keeps::Nothing => ("no", "everysec"),
        Keeps::EverySecond => ("yes", "everysec"),
        Keeps::Always => ("yes", "always"),
    };
    let replicas = setup.durability_replicas.to_string();
    for (name, value) in [
        ("databases", "2"),
        ("durability-replicas", &*replicas),
        ("durability-timeout", "0"),
        ("enable-debug-command", "yes"),
        ("rdbchecksum", "no"),
        ("save", ""),
        ("appendonly", appendonly),
        ("appendfsync", appendfsync),
        ("repl-diskless-sync", if setup.sends_early { "yes" } else { "no" }),
        ("repl-ping-replica-period", "1"),
        ("repl-timeout", "3"),
    ] {
        loader.directive(&[name.into(), value.into()])?;
    }
    if let Some(node) = setup.node {
        let port = PORTS + number as u16;
        for (name, value) in [
            ("cluster-enabled", "yes"),
            ("cluster-announce-ip", ADDRESS),
            ("port", &port.to_string()),
            ("cluster-port", &(port + BUS_PORTS).to_string()),
            ("cluster-node-timeout", &node.timeout_ms.to_string()),
            ("cluster-manual-failover-timeout", &node.handover_ms.to_string()),
            ("cluster-config-save-behavior", if node.goes_on { "best-effort" } else { "sync" }),
        ] {
            loader.directive(&[name.into(), value.into()])?;
        }
    }
    Ok(settings)
}
