//! What a cluster's node answers when another one has the key: MOVED for good, ASK for this once.
//!
//! Source: the "Redis cluster specification", "MOVED Redirection" and "ASK Redirection".

use client::Value;

/// Where a command is to be sent instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    /// The key's slot, as the server wrote it.
    pub slot: String,
    /// The other node's name or address; empty: the one that answered.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The node has the slot only for clients that send ASKING before the command.
    pub asking: bool,
}

impl Redirection {
    /// The redirection that a reply is, if it is one.
    pub fn of(reply: &Value) -> Option<Redirection> {
        let text = std::str::from_utf8(reply.error()?).ok()?;
        let mut words = text.split(' ');
        let asking = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.to_owned();
        // An IPv6 address has colons of its own, and no brackets.
        let (host, port) = words.next()?.rsplit_once(':')?;
        let port = port.parse().ok()?;
        Some(Redirection { slot, host: host.to_owned(), port, asking })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::parse::{ReplyLimits, parse};

    #[test]
    fn redirections_are_told_from_other_errors() {
        let check = |text: &str, expected: Option<(&str, &str, u16, bool)>| {
            let (reply, _) = parse(format!("-{text}\r\n").as_bytes(), &ReplyLimits::default()).unwrap().unwrap();
            let expected = expected.map(|(slot, host, port, asking)| Redirection {
                slot: slot.to_owned(),
                host: host.to_owned(),
                port,
                asking,
            });
            assert_eq!(Redirection::of(&reply), expected, "{text}");
        };
        check("MOVED 3999 127.0.0.1:6381", Some(("3999", "127.0.0.1", 6381, false)));
        check("ASK 3999 ::1:6381", Some(("3999", "::1", 6381, true)));
        check("MOVED 1 :7000", Some(("1", "", 7000, false)));
        for other in
            ["ERR x", "MOVED", "MOVED 1", "MOVED 1 host", "MOVED 1 host:x", "MOVED 1 host:70000", "MOVEDX 1 h:1"]
        {
            check(other, None);
        }
    }
}
