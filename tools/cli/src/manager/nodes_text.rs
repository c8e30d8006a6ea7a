//! Parses the reply to CLUSTER NODES.

use client::cluster::{Slot, SlotSet};

/// A line of CLUSTER NODES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLine {
    pub id: String,
    /// Address as it stands in the line.
    pub address: String,
    pub host: String,
    pub port: u16,
    /// Bus port, or 0 if the line has none.
    pub bus_port: u16,
    /// True for the node that answered.
    pub is_myself: bool,
    /// The other flags.
    pub flags: Vec<String>,
    /// Id of the primary, for a replica.
    pub primary: Option<String>,
    pub epoch: u64,
    pub is_connected: bool,
    pub slots: SlotSet,
    /// The words for owned slots, as they stand in the line.
    pub slot_words: Vec<String>,
    pub migrating: Vec<(u16, String)>,
    pub importing: Vec<(u16, String)>,
}

/// Parses all lines. Returns `None` if one is invalid.
pub fn parse(text: &str) -> Option<Vec<NodeLine>> {
    text.lines().filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<NodeLine> {
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let (id, address, flags, primary) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (_ping, _pong, epoch, link) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (host, port, bus_port) = parse_node_address(address)?;
    let flags: Vec<&str> = flags.split(',').collect();
    let is_replica = flags.contains(&"slave");
    let mut parsed = NodeLine {
        id: id.to_owned(),
        address: address.to_owned(),
        host,
        port,
        bus_port,
        is_myself: flags.contains(&"myself"),
        flags: flags.into_iter().filter(|flag| *flag != "myself").map(str::to_owned).collect(),
        primary: is_replica.then(|| primary.to_owned()),
        epoch: epoch.parse().ok()?,
        is_connected: link == "connected",
        slots: SlotSet::EMPTY,
        slot_words: Vec::new(),
        migrating: Vec::new(),
        importing: Vec::new(),
    };
    words.try_for_each(|word| parsed.add_slots(word))?;
    Some(parsed)
}

/// Parses `host:port@bus-port,hostname`. Only host and port are always there.
pub fn parse_node_address(address: &str) -> Option<(String, u16, u16)> {
    let (address, bus) = address.split_once('@').unwrap_or((address, "0"));
    let bus = bus.split(',').next().unwrap_or("0");
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?, bus.parse().ok()?))
}

impl NodeLine {
    /// Adds a word of slots: `5`, `0-99`, `[7->-target]` or `[8-<-source]`.
    fn add_slots(&mut self, word: &str) -> Option<()> {
        let slot = |text: &str| Slot::new(text.parse().ok()?);
        if let Some(open) = word.strip_prefix('[') {
            let open = open.trim_end_matches(']');
            if let Some((number, target)) = open.split_once("->-") {
                self.migrating.push((slot(number)?.number(), target.to_owned()));
            } else if let Some((number, source)) = open.split_once("-<-") {
                self.importing.push((slot(number)?.number(), source.to_owned()));
            }
            return Some(());
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        for number in slot(first)?.number()..=slot(last)?.number() {
            self.slots.insert(Slot::new(u64::from(number))?);
        }
        self.slot_words.push(word.to_owned());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let text = "aa 127.0.0.1:7000@17000,host,shard-id=x myself,master - 0 0 3 connected 0-2 5 [7->-bb] [8-<-cc]\n\
                    bb ::1:7001@17001 slave,fail aa 0 5 2 disconnected\n";
        let lines = parse(text).unwrap();
        let first = &lines[0];
        assert_eq!((first.host.as_str(), first.port, first.bus_port, first.epoch), ("127.0.0.1", 7000, 17000, 3));
        assert_eq!(first.slots.iter().map(Slot::number).collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!((&first.migrating, &first.importing), (&vec![(7, "bb".into())], &vec![(8, "cc".into())]));
        assert_eq!((first.is_myself, first.flags.join(","), first.is_connected), (true, "master".into(), true));
        let second = &lines[1];
        assert_eq!((second.host.as_str(), second.primary.as_deref()), ("::1", Some("aa")));
        assert_eq!((second.flags.join(","), second.is_connected), ("slave,fail".into(), false));
    }

    #[test]
    fn old_and_unknown_addresses() {
        assert_eq!(parse_node_address("h:1"), Some(("h".into(), 1, 0)));
        assert_eq!(parse_node_address(":0@0"), Some((String::new(), 0, 0)));
        assert_eq!(parse_node_address("h"), None);
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in [
            "aa",
            "aa h:1@2 master - 0 0 x connected",
            "aa h:x@2 master - 0 0 1 connected",
            "aa h:1@2 master - 0 0 1 connected 16384",
            "aa h:1@2 master - 0 0 1 connected x-5",
            "aa h:1@2 master - 0 0 1 connected [99999->-bb]",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert_eq!(parse(""), Some(vec![]));
    }
}
