//! The owner of each slot, as the nodes report it.

use cluster::{SLOTS, Slot};
use resp::parse::Value;

use super::fields::{array, field, int, text};
use super::redirect::NodeAddress;

/// Index of no node. A map has fewer nodes than this.
const NOBODY: u16 = u16::MAX;

/// The owner of each slot.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotMap {
    primaries: Vec<NodeAddress>,
    replicas: Vec<NodeAddress>,
    /// For each slot an index into `primaries`, or [`NOBODY`].
    owners: Vec<u16>,
}

impl SlotMap {
    /// Returns a map without nodes.
    pub(crate) fn empty() -> Self {
        Self { primaries: Vec::new(), replicas: Vec::new(), owners: vec![NOBODY; SLOTS] }
    }

    /// Parses the reply to CLUSTER SLOTS: `[first, last, [host, port, ...], replica...]` for each range. A node that
    /// doesn't know its own host, or hides it, is reached at the host of `answerer`.
    #[must_use]
    pub fn from_slots(reply: &Value, answerer: &NodeAddress) -> Option<Self> {
        let mut map = Self::empty();
        for range in array(reply)? {
            let [first, last, nodes @ ..] = array(range)? else { return None };
            let (first, last) = (slot(int(first)?)?, slot(int(last)?)?);
            for (at, node) in nodes.iter().enumerate() {
                let [host, port, ..] = array(node)? else { return None };
                let address = address(host, int(port)?, answerer)?;
                map.add(address, (at == 0).then_some((first, last)))?;
            }
        }
        Some(map)
    }

    /// Parses the reply to CLUSTER SHARDS. With `tls`, the map has the nodes' TLS ports.
    #[must_use]
    pub fn from_shards(reply: &Value, answerer: &NodeAddress, tls: bool) -> Option<Self> {
        let mut map = Self::empty();
        for shard in array(reply)? {
            let slots: Option<Vec<_>> = array(field(shard, "slots")?)?.iter().map(|end| slot(int(end)?)).collect();
            let slots = slots?;
            for node in array(field(shard, "nodes")?)? {
                let port = [if tls { "tls-port" } else { "port" }, "port", "tls-port"];
                let Some(port) = port.iter().find_map(|name| int(field(node, name)?)) else { continue };
                let address = address(field(node, "endpoint")?, port, answerer)?;
                match text(field(node, "role")?)? {
                    "master" => {
                        map.add(address.clone(), None)?;
                        for ends in slots.chunks_exact(2) {
                            map.add(address.clone(), Some((ends[0], ends[1])))?;
                        }
                    }
                    _ if field(node, "health").and_then(text) == Some("online") => map.add_replica(address),
                    _ => {}
                }
            }
        }
        Some(map)
    }

    /// Adds a primary with its slots, or a replica if there are none.
    fn add(&mut self, node: NodeAddress, slots: Option<(Slot, Slot)>) -> Option<()> {
        match slots {
            Some((first, last)) if first <= last => {
                let index = self.primary(node)?;
                self.owners.get_mut(first.index()..=last.index())?.fill(index);
            }
            Some(_) => return None,
            None => self.add_replica(node),
        }
        Some(())
    }

    fn add_replica(&mut self, node: NodeAddress) {
        if !self.replicas.contains(&node) {
            self.replicas.push(node);
        }
    }

    /// Returns the index of a primary. Adds it if it is unknown.
    fn primary(&mut self, node: NodeAddress) -> Option<u16> {
        let index = self.primaries.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.primaries.push(node);
            self.primaries.len() - 1
        });
        u16::try_from(index).ok().filter(|index| *index != NOBODY)
    }

    /// Returns the owner of a slot.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<&NodeAddress> {
        self.primaries.get(usize::from(self.owners[slot.index()]))
    }

    /// Notes that a node has a slot.
    pub(crate) fn assign(&mut self, slot: Slot, node: NodeAddress) {
        if let Some(index) = self.primary(node) {
            self.owners[slot.index()] = index;
        }
    }

    /// Returns the primaries in the order of their first slots.
    #[must_use]
    pub fn primaries(&self) -> &[NodeAddress] {
        &self.primaries
    }

    /// Returns the replicas.
    #[must_use]
    pub fn replicas(&self) -> &[NodeAddress] {
        &self.replicas
    }

    /// Returns the number of slots with an owner.
    #[must_use]
    pub fn covered(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }
}

impl std::fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotMap")
            .field("primaries", &self.primaries)
            .field("replicas", &self.replicas)
            .field("covered", &self.covered())
            .finish()
    }
}

fn slot(number: i64) -> Option<Slot> {
    Slot::new(u64::try_from(number).ok()?)
}

fn address(host: &Value, port: i64, answerer: &NodeAddress) -> Option<NodeAddress> {
    let host = if host.is_null() { "" } else { text(host)? };
    let port = u16::try_from(port).ok()?;
    Some(NodeAddress { host: host.to_owned(), port }.completed_by(answerer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes fields with their names.
    type Shape<'s> = &'s dyn Fn(Vec<(&str, Value)>) -> Value;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(vec![])])
    }

    fn answerer() -> NodeAddress {
        NodeAddress { host: "h".into(), port: 9 }
    }

    fn owner(map: &SlotMap, number: u64) -> Option<String> {
        map.owner(Slot::new(number).unwrap()).map(NodeAddress::to_string)
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    #[test]
    fn slots_are_parsed() {
        let reply = Value::Array(vec![
            range(0, 9, vec![node(bulk("a"), 1), node(bulk("b"), 2)]),
            range(11, 16383, vec![node(bulk(""), 3)]),
            range(10, 10, vec![node(Value::NullBulk, 1)]),
        ]);
        let map = SlotMap::from_slots(&reply, &answerer()).unwrap();
        let owners = [0, 9, 10, 11, 16383].map(|slot| owner(&map, slot).unwrap());
        assert_eq!(owners, ["a:1", "a:1", "h:1", "h:3", "h:3"]);
        assert_eq!(map.replicas().iter().map(NodeAddress::to_string).collect::<Vec<_>>(), ["b:2"]);
        assert_eq!((map.covered(), map.primaries().len()), (SLOTS, 3));
    }

    #[test]
    fn wrong_replies_are_no_maps() {
        let wrong = [
            Value::Int(1),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16384, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(-1, 5, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(5, 4, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(0, 5, vec![node(bulk("a"), 70000)])]),
            Value::Array(vec![range(0, 5, vec![Value::Int(1)])]),
        ];
        for reply in wrong {
            assert!(SlotMap::from_slots(&reply, &answerer()).is_none(), "{reply:?}");
            assert!(SlotMap::from_shards(&reply, &answerer(), false).is_none(), "{reply:?}");
        }
    }

    #[test]
    fn shards_are_parsed_in_both_protocols() {
        let member = |host: &str, role: &str, health: &str| {
            [("id", bulk("x")), ("port", Value::Int(1)), ("tls-port", Value::Int(2)), ("endpoint", bulk(host))]
                .into_iter()
                .chain([("role", bulk(role)), ("health", bulk(health))])
                .collect::<Vec<_>>()
        };
        let as_map = |fields: Vec<(&str, Value)>| Value::Map(fields.into_iter().map(|(n, v)| (bulk(n), v)).collect());
        let as_array =
            |fields: Vec<(&str, Value)>| Value::Array(fields.into_iter().flat_map(|(n, v)| [bulk(n), v]).collect());
        let shapes: [Shape<'_>; 2] = [&as_map, &as_array];
        for shape in shapes {
            let nodes = vec![
                shape(member("b", "replica", "online")),
                shape(member("a", "master", "online")),
                shape(member("c", "replica", "fail")),
            ];
            let ends = [0, 5, 7, 7].map(Value::Int).to_vec();
            let shard = shape(vec![("slots", Value::Array(ends)), ("nodes", Value::Array(nodes))]);
            let map = SlotMap::from_shards(&Value::Array(vec![shard]), &answerer(), true).unwrap();
            assert_eq!(
                [0, 5, 6, 7].map(|slot| owner(&map, slot)),
                [Some("a:2".into()), Some("a:2".into()), None, Some("a:2".into())]
            );
            assert_eq!(map.replicas().len(), 2);
        }
    }

    #[test]
    fn a_moved_slot_has_its_new_owner() {
        let mut map = SlotMap::empty();
        assert_eq!(owner(&map, 5), None);
        map.assign(Slot::new(5).unwrap(), NodeAddress { host: "n".into(), port: 1 });
        assert_eq!((owner(&map, 5), map.covered()), (Some("n:1".into()), 1));
    }
}
