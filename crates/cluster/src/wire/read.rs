//! Messages from bytes.

use std::sync::Arc;

use super::*;

/// The bytes that tell a message's length.
const PREFIX: usize = 8;

/// The head of an extension: length, type and two unused bytes.
const EXTENSION_HEAD: usize = 8;

/// The first message of a stream of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// The message has so many bytes, and all of them are there.
    Whole(usize),
    /// At least so many bytes are needed.
    Needs(usize),
    /// The bytes are no message of the bus, or the message is too long. The caller closes the link.
    Broken,
}

/// Finds the end of the first message in a stream. A message is at most `bytes_max` long.
pub fn frame(bytes: &[u8], bytes_max: usize) -> Frame {
    let start = bytes.len().min(SIGNATURE.len());
    if bytes[..start] != SIGNATURE[..start] {
        return Frame::Broken;
    }
    let Some(total) = u32_at(bytes, at::TOTAL) else { return Frame::Needs(PREFIX) };
    match total as usize {
        total if total < LIGHT_LEN || total > bytes_max => Frame::Broken,
        total if total > bytes.len() => Frame::Needs(total),
        total => Frame::Whole(total),
    }
}

/// The reason to drop a message. The link stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The message has another version.
    Version(u16),
    /// The message's type is unknown.
    Type(u16),
    /// The type has no light header.
    LightType(u16),
    /// The length isn't the type's.
    Length(Kind),
    /// An extension is damaged.
    Extension(Kind),
    /// A node's name has characters that no name has.
    Name(Kind),
}

/// Reads a message of exactly these bytes, as [`frame`] has found them.
pub fn read(bytes: &[u8]) -> Result<Message, Dropped> {
    let version = u16_at(bytes, at::VERSION).unwrap_or_default();
    if version != VERSION {
        return Err(Dropped::Version(version));
    }
    let number = u16_at(bytes, at::TYPE).unwrap_or_default();
    if number & LIGHT != 0 {
        return light(bytes, number & !LIGHT).map(Message::Light);
    }
    let kind = Kind::of(number).ok_or(Dropped::Type(number))?;
    let (head, data) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Dropped::Length(kind))?;
    let header = header(head).ok_or(Dropped::Name(kind))?;
    let body = body(kind, head, data, header.message_flags)?;
    Ok(Message::Full(Box::new(header), body))
}

/// Returns the kind that a message has by its header, even if its data are wrong.
pub(crate) fn kind_of(bytes: &[u8]) -> Option<Kind> {
    u16_at(bytes, at::TYPE).and_then(|number| Kind::of(number & !LIGHT))
}

fn light(bytes: &[u8], number: u16) -> Result<LightBody, Dropped> {
    let data = bytes.get(LIGHT_LEN..).unwrap_or_default();
    match Kind::of(number) {
        Some(kind @ (Kind::Publish | Kind::PublishShard)) => published(kind, data).map(LightBody::Publish),
        Some(Kind::Module) => module(data).map(LightBody::Module),
        _ => Err(Dropped::LightType(number)),
    }
}

fn header(head: &[u8; HEADER_LEN]) -> Option<Header> {
    let number = |at| u16_at(head, at);
    let primary = &head[at::PRIMARY..at::PRIMARY + 40];
    let primary = match primary.iter().all(|byte| *byte == 0) {
        true => None,
        false => Some(NodeId::new(primary)?),
    };
    Some(Header {
        port: number(at::PORT)?,
        other_port: number(at::OTHER_PORT)?,
        bus_port: number(at::BUS_PORT)?,
        current_epoch: u64_at(head, at::CURRENT_EPOCH)?,
        config_epoch: u64_at(head, at::CONFIG_EPOCH)?,
        offset: u64_at(head, at::OFFSET)?,
        sender: NodeId::new(&head[at::SENDER..at::SENDER + 40])?,
        slots: slots(&head[at::SLOTS..at::PRIMARY])?,
        primary,
        ip: address(&head[at::IP..at::IP + IP_LEN]),
        flags: NodeFlags(number(at::FLAGS)?),
        is_down: head[at::STATE] != 0,
        message_flags: MessageFlags(head[at::MESSAGE_FLAGS]),
    })
}

fn slots(bytes: &[u8]) -> Option<Arc<SlotSet>> {
    Some(Arc::new(SlotSet::from_bytes(bytes.try_into().ok()?)))
}

/// Returns the text before the first NUL if it can be an address, otherwise an empty text. The check protects nodes.conf and replies from
/// other characters.
fn address(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or_default();
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b".:-_%".contains(byte);
    match bytes[..end].iter().all(is_valid) {
        true => String::from_utf8_lossy(&bytes[..end]).into_owned(),
        false => String::new(),
    }
}

fn body(kind: Kind, head: &[u8; HEADER_LEN], data: &[u8], flags: MessageFlags) -> Result<Body, Dropped> {
    let exactly = |length: usize| (data.len() == length - HEADER_LEN).then_some(()).ok_or(Dropped::Length(kind));
    match kind {
        Kind::Ping | Kind::Pong | Kind::Meet => ping(kind, head, data, flags),
        Kind::Fail => exactly(FAIL_LEN).and_then(|()| name(kind, data)).map(Body::Fail),
        Kind::Publish | Kind::PublishShard => published(kind, data).map(Body::Publish),
        Kind::AuthRequest => exactly(HEADER_LEN).map(|()| Body::AuthRequest),
        Kind::AuthAck => exactly(HEADER_LEN).map(|()| Body::AuthAck),
        Kind::MfStart => exactly(HEADER_LEN).map(|()| Body::MfStart),
        Kind::Update => exactly(UPDATE_LEN).and_then(|()| update(data)),
        Kind::Module => module(data).map(Body::Module),
    }
}

fn name(kind: Kind, bytes: &[u8]) -> Result<NodeId, Dropped> {
    bytes.get(..40).and_then(NodeId::new).ok_or(Dropped::Name(kind))
}

fn update(data: &[u8]) -> Result<Body, Dropped> {
    let length = Dropped::Length(Kind::Update);
    let config_epoch = u64_at(data, 0).ok_or(length)?;
    let slots = data.get(48..).and_then(slots).ok_or(length)?;
    Ok(Body::Update { config_epoch, node: name(Kind::Update, &data[8..])?, slots })
}

fn published(kind: Kind, data: &[u8]) -> Result<Published, Dropped> {
    let lengths = u32_at(data, 0).zip(u32_at(data, 4)).map(|(one, other)| (one as usize, other as usize));
    let (channel, message) = lengths.ok_or(Dropped::Length(kind))?;
    if data.len() - 8 != channel.saturating_add(message) {
        return Err(Dropped::Length(kind));
    }
    let (channel, message) = data[8..].split_at(channel);
    Ok(Published { channel: channel.into(), message: message.into(), sharded: kind == Kind::PublishShard })
}

fn module(data: &[u8]) -> Result<ModuleData, Dropped> {
    let length = Dropped::Length(Kind::Module);
    let (module, rest) = data.split_first_chunk::<8>().ok_or(length)?;
    let payload_len = u32_at(rest, 0).ok_or(length)? as usize;
    let (kind, payload) = rest[4..].split_first().ok_or(length)?;
    match payload.len() == payload_len {
        true => Ok(ModuleData { module: *module, kind: *kind, payload: payload.to_vec() }),
        false => Err(length),
    }
}

fn ping(kind: Kind, head: &[u8; HEADER_LEN], data: &[u8], flags: MessageFlags) -> Result<Body, Dropped> {
    let count = usize::from(u16_at(head, at::COUNT).unwrap_or_default());
    let (entries, rest) = data.split_at_checked(count * GOSSIP_LEN).ok_or(Dropped::Length(kind))?;
    let extensions = match flags.has(MessageFlags::EXTENSIONS) {
        true => extensions(kind, u16_at(head, at::EXTENSIONS).unwrap_or_default(), rest)?,
        false if rest.is_empty() => Vec::new(),
        false => return Err(Dropped::Length(kind)),
    };
    // A damaged name indicates damaged memory at the sender, so the whole gossip is ignored.
    let entries: Option<Vec<Gossip>> = entries.as_chunks::<GOSSIP_LEN>().0.iter().map(gossip).collect();
    Ok(Body::Ping { kind, gossip: entries.unwrap_or_default(), extensions })
}

fn gossip(entry: &[u8; GOSSIP_LEN]) -> Option<Gossip> {
    Some(Gossip {
        id: NodeId::new(&entry[..40])?,
        ping_sent: u32_at(entry, 40)?,
        pong_received: u32_at(entry, 44)?,
        ip: address(&entry[48..94]),
        port: u16_at(entry, 94)?,
        bus_port: u16_at(entry, 96)?,
        flags: NodeFlags(u16_at(entry, 98)?),
        other_port: u16_at(entry, 100)?,
    })
}

fn extensions(kind: Kind, count: u16, mut rest: &[u8]) -> Result<Vec<RawExtension>, Dropped> {
    let mut found = Vec::new();
    for _ in 0..count {
        let length = u32_at(rest, 0).ok_or(Dropped::Extension(kind))? as usize;
        let whole = rest.get(..length).filter(|whole| whole.len() >= EXTENSION_HEAD && length.is_multiple_of(8));
        let whole = whole.ok_or(Dropped::Extension(kind))?;
        let number = u16_at(whole, 4).unwrap_or_default();
        found.push(RawExtension { kind: number, data: whole[EXTENSION_HEAD..].to_vec() });
        rest = &rest[length..];
    }
    match rest.is_empty() {
        true => Ok(found),
        false => Err(Dropped::Length(kind)),
    }
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(u16::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    chunk(bytes, at).map(u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    chunk(bytes, at).map(u64::from_be_bytes)
}
