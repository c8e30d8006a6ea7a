//! Extensions of PINGs, and the two families of peers that number them differently.
//!
//! Redis 8 uses number 4 for a secret, Valkey for an address. A node's family is told by its flags and by the form of its
//! extension 4. Extensions from number 4 on are read and written in the peer's dialect only. The secret is read, and never written.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::id::{NodeId, ShardId};
use crate::view::Ports;
use crate::wire::{NodeFlags, RawExtension};

/// The family of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// The peer has shown no sign of its family.
    #[default]
    Unknown,
    /// Valkey, or this server.
    Valkey,
    /// Redis 8.
    Redis,
}

/// Numbers of extensions.
mod number {
    pub(super) const HOSTNAME: u16 = 0;
    pub(super) const NODE_NAME: u16 = 1;
    pub(super) const FORGOTTEN: u16 = 2;
    pub(super) const SHARD: u16 = 3;
    pub(super) const CLIENT_IPV4: u16 = 4;
    pub(super) const SECRET: u16 = 4;
    pub(super) const CLIENT_IPV6: u16 = 5;
    pub(super) const CLIENT_PORT: u16 = 6;
    pub(super) const CLIENT_TLS_PORT: u16 = 7;
    pub(super) const ZONE: u16 = 8;
}

/// The bytes of Redis's secret.
const SECRET_LEN: usize = 40;

/// The secret of a Redis node: whoever knows it may act as another node of the cluster on the node's port for clients. Its text is never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeSecret([u8; SECRET_LEN]);

impl NodeSecret {
    /// Returns the secret of 40 hexadecimal digits; `None` for other bytes.
    #[must_use]
    pub fn new(digits: &[u8]) -> Option<NodeSecret> {
        let digits = <[u8; SECRET_LEN]>::try_from(digits).ok()?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(NodeSecret(digits))
    }

    /// Returns the digits.
    #[must_use]
    pub fn digits(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for NodeSecret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("NodeSecret")
    }
}

/// The longest host name, node name or zone that is taken from a peer.
const NAME_MAX: usize = 255;

/// Everything that the extensions of a message say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extensions {
    /// The host name; empty if there is none.
    pub hostname: String,
    /// The name for people; empty if there is none.
    pub node_name: String,
    /// Nodes that the sender has forgotten, and the seconds for which they stay so.
    pub forgotten: Vec<(NodeId, u64)>,
    /// The shard.
    pub shard: Option<ShardId>,
    /// The address for clients with IPv4; empty if there is none.
    pub client_ipv4: String,
    /// The address for clients with IPv6; empty if there is none.
    pub client_ipv6: String,
    /// The ports for clients; 0 if there are none.
    pub client_ports: Ports,
    /// The availability zone; empty if there is none.
    pub zone: String,
    /// The secret of a Redis node.
    pub secret: Option<NodeSecret>,
}

impl Dialect {
    /// The dialect of a peer, after a message of it. A flag that only Valkey has outweighs everything else.
    pub fn learned(self, flags: NodeFlags, extensions: &[RawExtension]) -> Dialect {
        let is_valkey = flags.0 & (NodeFlags::LIGHT_PUBLISH.0 | NodeFlags::LIGHT_MODULE.0) != 0;
        match is_valkey {
            true => Dialect::Valkey,
            false if extensions.iter().any(|extension| secret(extension).is_some()) => Dialect::Redis,
            false => self,
        }
    }
}

fn secret(extension: &RawExtension) -> Option<NodeSecret> {
    NodeSecret::new(&extension.data).filter(|_| extension.kind == number::SECRET)
}

/// Reads the extensions of a peer. Unknown and invalid ones are skipped.
pub fn read(raw: &[RawExtension], dialect: Dialect) -> Extensions {
    let mut found = Extensions::default();
    for extension in raw {
        read_common(&mut found, extension);
        match dialect {
            Dialect::Valkey => read_valkey(&mut found, extension),
            Dialect::Redis => found.secret = found.secret.or(secret(extension)),
            Dialect::Unknown => {}
        }
    }
    found
}

fn read_common(found: &mut Extensions, extension: &RawExtension) {
    let data = &extension.data;
    match extension.kind {
        number::HOSTNAME => found.hostname = text(data).filter(|name| is_hostname(name)).unwrap_or_default(),
        number::NODE_NAME => found.node_name = text(data).filter(|name| is_plain(name)).unwrap_or_default(),
        number::FORGOTTEN => found.forgotten.extend(forgotten(data)),
        number::SHARD => found.shard = data.get(..40).and_then(ShardId::new),
        _ => {}
    }
}

fn read_valkey(found: &mut Extensions, extension: &RawExtension) {
    let data = &extension.data;
    match extension.kind {
        number::CLIENT_IPV4 => found.client_ipv4 = text(data).filter(|ip| is_ipv4(ip)).unwrap_or_default(),
        number::CLIENT_IPV6 => found.client_ipv6 = text(data).filter(|ip| is_ipv6(ip)).unwrap_or_default(),
        number::CLIENT_PORT => found.client_ports.plain = port(data),
        number::CLIENT_TLS_PORT => found.client_ports.tls = port(data),
        number::ZONE => found.zone = text(data).filter(|name| is_plain(name)).unwrap_or_default(),
        _ => {}
    }
}

fn forgotten(data: &[u8]) -> Option<(NodeId, u64)> {
    let seconds = data.get(40..)?.first_chunk::<8>()?;
    Some((NodeId::new(data.get(..40)?)?, u64::from_be_bytes(*seconds)))
}

fn port(data: &[u8]) -> u16 {
    data.first_chunk::<2>().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// The text in front of the first NUL; `None` without a NUL.
fn text(data: &[u8]) -> Option<String> {
    let end = data.iter().position(|byte| *byte == 0)?;
    String::from_utf8(data[..end].to_vec()).ok().filter(|text| text.len() <= NAME_MAX)
}

/// True if a text is a host name: letters, digits, hyphens and dots.
pub fn is_hostname(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
}

/// True if a text can stand in an auxiliary field of nodes.conf. The peers refuse a file with other characters.
pub fn is_plain(text: &str) -> bool {
    let is_refused = |byte| b"!#$%&()*+;<>?@[]^{|}~,=\"'\\".contains(&byte);
    text.bytes().all(|byte| byte.is_ascii_graphic() && !is_refused(byte))
}

/// True if a text is an IPv4 address.
pub fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

/// True if a text is an IPv6 address.
pub fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

/// The extensions that a peer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// Only the host name. Redis 7.0 logs a warning for every other extension.
    HostnameOnly,
    /// The extensions that Redis 7.2 and all later peers share, and the additional ones of this dialect.
    All(Dialect),
}

/// Writes extensions for a peer.
pub fn write(extensions: &Extensions, reader: Reader) -> Vec<RawExtension> {
    let mut out = Vec::new();
    push_text(&mut out, number::HOSTNAME, &extensions.hostname);
    let Reader::All(dialect) = reader else { return out };
    push_text(&mut out, number::NODE_NAME, &extensions.node_name);
    if dialect == Dialect::Valkey {
        write_valkey(&mut out, extensions);
    }
    for (node, seconds) in &extensions.forgotten {
        let data = [&node.bytes()[..], &seconds.to_be_bytes()].concat();
        out.push(RawExtension { kind: number::FORGOTTEN, data });
    }
    out.extend(extensions.shard.map(|shard| RawExtension { kind: number::SHARD, data: shard.bytes().to_vec() }));
    out
}

fn write_valkey(out: &mut Vec<RawExtension>, extensions: &Extensions) {
    push_text(out, number::CLIENT_IPV4, &extensions.client_ipv4);
    push_text(out, number::CLIENT_IPV6, &extensions.client_ipv6);
    push_port(out, number::CLIENT_PORT, extensions.client_ports.plain);
    push_port(out, number::CLIENT_TLS_PORT, extensions.client_ports.tls);
    push_text(out, number::ZONE, &extensions.zone);
}

fn push_text(out: &mut Vec<RawExtension>, kind: u16, text: &str) {
    if !text.is_empty() {
        let mut data = text.as_bytes().to_vec();
        data.push(0);
        data.resize(data.len().next_multiple_of(8), 0);
        out.push(RawExtension { kind, data });
    }
}

fn push_port(out: &mut Vec<RawExtension>, kind: u16, port: u16) {
    if port != 0 {
        let [high, low] = port.to_be_bytes();
        out.push(RawExtension { kind, data: vec![high, low, 0, 0, 0, 0, 0, 0] });
    }
}
