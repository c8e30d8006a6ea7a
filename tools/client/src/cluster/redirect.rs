//! Error replies that a cluster's node sends instead of running a command.
//!
//! Source: the "Redis cluster specification", "MOVED Redirection", "ASK Redirection" and "Multiple keys operations".

use std::fmt;

use cluster::Slot;
use resp::parse::Value;

/// Host and port of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    /// Name or address; an IPv6 address has no brackets.
    pub host: String,
    /// Port for clients.
    pub port: u16,
}

impl NodeAddress {
    /// Parses `host:port`. An IPv6 address contains colons and has no brackets, as in the replies of nodes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// Returns this address, with the host of `answerer` in place of an empty or unknown one.
    pub(super) fn completed_by(mut self, answerer: &NodeAddress) -> Self {
        if self.host.is_empty() || self.host == "?" {
            self.host.clone_from(&answerer.host);
        }
        self
    }
}

/// Formats the address like redis-cli, without brackets.
impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The target of a redirected command: MOVED is permanent, ASK is valid for one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The key's slot.
    pub slot: Slot,
    /// The other node. An empty host stands for the host of the node that answered.
    pub node: NodeAddress,
    /// True for ASK: the node serves the slot only to clients that send ASKING before the command.
    pub asking: bool,
}

impl Redirection {
    /// Returns the redirection in a reply, if it is one.
    #[must_use]
    pub fn of(reply: &Value) -> Option<Redirection> {
        let text = std::str::from_utf8(reply.error()?).ok()?;
        let mut words = text.split(' ');
        let asking = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = Slot::new(words.next()?.parse().ok()?)?;
        Some(Redirection { slot, node: NodeAddress::parse(words.next()?)?, asking })
    }
}

/// The client's next step after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The reply is the command's result.
    Final,
    /// Another node has the slot, for good or for this command.
    Elsewhere(Redirection),
    /// The keys are on their way between two nodes.
    TryAgain,
    /// The cluster doesn't serve the slot at the moment.
    Down,
}

impl Answer {
    pub(super) fn of(reply: &Value) -> Answer {
        let Some(text) = reply.error() else { return Answer::Final };
        match text.split(|&byte| byte == b' ').next() {
            Some(b"TRYAGAIN") => Answer::TryAgain,
            Some(b"CLUSTERDOWN") => Answer::Down,
            _ => Redirection::of(reply).map_or(Answer::Final, Answer::Elsewhere),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_distinguished_from_other_errors() {
        let check = |text: &str, expected: Option<(u64, &str, u16, bool)>| {
            let expected = expected.map(|(slot, host, port, asking)| Redirection {
                slot: Slot::new(slot).unwrap(),
                node: NodeAddress { host: host.to_owned(), port },
                asking,
            });
            assert_eq!(Redirection::of(&Value::Error(text.into())), expected, "{text}");
        };
        check("MOVED 3999 127.0.0.1:6381", Some((3999, "127.0.0.1", 6381, false)));
        check("ASK 3999 ::1:6381", Some((3999, "::1", 6381, true)));
        check("MOVED 1 :7000", Some((1, "", 7000, false)));
        for other in [
            "ERR x",
            "MOVED",
            "MOVED 1",
            "MOVED 1 host",
            "MOVED 1 host:x",
            "MOVED 1 host:70000",
            "MOVEDX 1 h:1",
            "MOVED x h:1",
            "MOVED 16384 h:1",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn temporary_refusals_are_no_results() {
        let check = |text: &str, expected| assert_eq!(Answer::of(&Value::Error(text.into())), expected, "{text}");
        check("TRYAGAIN Multiple keys request during rehashing of slot", Answer::TryAgain);
        check("CLUSTERDOWN The cluster is down", Answer::Down);
        check("CROSSSLOT Keys in request don't hash to the same slot", Answer::Final);
        check("TRYAGAINST x", Answer::Final);
        assert_eq!(Answer::of(&Value::Int(1)), Answer::Final);
    }

    #[test]
    fn an_unknown_host_is_that_of_the_answering_node() {
        let answerer = NodeAddress { host: "a".into(), port: 1 };
        for (text, expected) in [(":2", "a:2"), ("?:2", "a:2"), ("b:2", "b:2")] {
            assert_eq!(NodeAddress::parse(text).unwrap().completed_by(&answerer).to_string(), expected);
        }
    }
}
