//! One node of the cluster, with its connection.

use super::nodes_text::NodeLine;
use client::cluster::SlotSet;
use client::{Connection, Error, Value, system_text};

/// The bus port is this much above the client port, unless it is configured.
const BUS_PORT_OFFSET: u16 = 10_000;

/// Returns the bus port of a node that doesn't configure one.
pub fn default_bus_port(port: u16) -> u16 {
    port.wrapping_add(BUS_PORT_OFFSET)
}

/// A node.
pub struct Node {
    pub host: String,
    pub port: u16,
    pub bus_port: u16,
    pub id: String,
    /// Flags as in CLUSTER NODES, without `myself`.
    pub flags: Vec<String>,
    /// Id of the primary, for a replica.
    pub primary: Option<String>,
    pub epoch: u64,
    pub slots: SlotSet,
    /// Slots that leave, with the id of the target.
    pub migrating: Vec<(u16, String)>,
    /// Slots that arrive, with the id of the source.
    pub importing: Vec<(u16, String)>,
    /// Number of its replicas.
    pub replicas: usize,
    /// True if slots or primary were assigned but not sent.
    pub is_dirty: bool,
    pub weight: f32,
    connection: Option<Connection>,
}

impl Node {
    pub fn new(host: String, port: u16) -> Self {
        Self {
            bus_port: default_bus_port(port),
            host,
            port,
            id: String::new(),
            flags: Vec::new(),
            primary: None,
            epoch: 0,
            slots: SlotSet::EMPTY,
            migrating: Vec::new(),
            importing: Vec::new(),
            replicas: 0,
            is_dirty: false,
            weight: 1.0,
            connection: None,
        }
    }

    pub fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    pub fn is_replica(&self) -> bool {
        self.has_flag("slave")
    }

    pub fn set_connection(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    pub fn take_connection(&mut self) -> Option<Connection> {
        self.connection.take()
    }

    /// Takes over the node's own line of CLUSTER NODES.
    pub fn set_line(&mut self, line: NodeLine) {
        self.bus_port = if line.bus_port == 0 { default_bus_port(self.port) } else { line.bus_port };
        self.id = line.id;
        self.flags = line.flags;
        self.primary = line.primary;
        self.epoch = line.epoch;
        self.slots = line.slots;
        self.migrating = line.migrating;
        self.importing = line.importing;
        self.is_dirty = false;
    }

    /// Sends a request. Returns the text of an error reply or of a broken connection as the error.
    pub fn request(&mut self, request: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        let Some(connection) = &mut self.connection else { return Err("not connected".to_owned()) };
        reply_of(connection.exchange(request))
    }

    /// Sends a request without waiting for its reply: [`Node::finish`] returns it. Several nodes work at the same time then.
    pub fn begin(&mut self, request: &[impl AsRef<[u8]>]) -> Result<(), String> {
        let Some(connection) = &mut self.connection else { return Err("not connected".to_owned()) };
        connection.send(request);
        connection.flush().map_err(|error| connection_text(&error))
    }

    /// Returns the reply of the request that [`Node::begin`] has sent, with the errors of [`Node::request`].
    pub fn finish(&mut self) -> Result<Value, String> {
        let Some(connection) = &mut self.connection else { return Err("not connected".to_owned()) };
        reply_of(connection.read_reply())
    }

    /// Sends a request. Returns its reply, even if it is an error reply, or `None` if the connection broke.
    pub fn exchange(&mut self, request: &[impl AsRef<[u8]>]) -> Option<Value> {
        self.connection.as_mut()?.exchange(request).ok()
    }
}

/// Returns a reply, and an error reply or a broken connection as the error.
fn reply_of(reply: Result<Value, Error>) -> Result<Value, String> {
    let reply = reply.map_err(|error| connection_text(&error))?;
    match reply.error() {
        Some(text) => Err(String::from_utf8_lossy(text).into_owned()),
        None => Ok(reply),
    }
}

/// Formats the error of a connection like hiredis.
pub fn connection_text(error: &Error) -> String {
    match error {
        Error::Connect { cause, .. } => system_text(cause),
        Error::Lost { cause: client::Lost::Closed, .. } => "Server closed the connection".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the text of a string reply.
pub fn text_of(reply: &Value) -> String {
    String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned()
}

/// Returns the number of an integer reply.
pub fn number_of(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Returns the value of a field of INFO or CLUSTER INFO.
pub fn info_field(info: &str, name: &str) -> Option<i64> {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_info() {
        let info = "# Cluster\r\ncluster_enabled:1\r\ncluster_enabled_too:2\r\nrole:master\r\n";
        assert_eq!(info_field(info, "cluster_enabled"), Some(1));
        assert_eq!(info_field(info, "cluster_enabled_too"), Some(2));
        assert_eq!(info_field(info, "role"), None);
        assert_eq!(info_field(info, "cluster"), None);
    }
}
