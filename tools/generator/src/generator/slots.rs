//! The nodes of a cluster, and the changes of owners during a run.

use client::cluster::{NodeAddress, Redirection, Slot};
use client::{Encryption, Value};

use super::socket::Address;

/// A node that the load goes to.
#[derive(Clone, Debug)]
pub struct NodeLoad {
    /// Address of the node.
    pub address: Address,
    /// TLS settings, if connections are encrypted.
    pub encryption: Option<Encryption>,
    /// The node's name in redirections, in a cluster.
    pub name: Option<NodeAddress>,
    /// The node's slots at the start, in a cluster.
    pub slots: Vec<Slot>,
}

/// The effect of an error reply in a cluster.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// The slot has another owner.
    To(Slot, NodeAddress),
    /// The slot is on its way, or the cluster is down for a moment.
    Temporarily,
}

/// Returns the effect of an error reply, if the cluster's state is its reason.
pub fn moved(text: &[u8]) -> Option<Moved> {
    match text.split(|&byte| byte == b' ').next()? {
        b"TRYAGAIN" | b"CLUSTERDOWN" | b"ASK" => Some(Moved::Temporarily),
        _ => Redirection::of(&Value::Error(text.to_vec())).map(|moved| Moved::To(moved.slot, moved.node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_moving_cluster() {
        let node = NodeAddress { host: "h".into(), port: 1 };
        assert_eq!(moved(b"MOVED 5 h:1"), Some(Moved::To(Slot::new(5).unwrap(), node)));
        for text in ["ASK 5 h:1", "TRYAGAIN Multiple keys", "CLUSTERDOWN The cluster is down"] {
            assert_eq!(moved(text.as_bytes()), Some(Moved::Temporarily), "{text}");
        }
        assert_eq!(moved(b"WRONGTYPE Operation"), None);
    }
}
