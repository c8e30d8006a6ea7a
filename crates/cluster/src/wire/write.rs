//! Messages to bytes.

use super::*;

/// Writes a message.
pub(super) fn to_bytes(message: &Message) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + 256);
    match message {
        Message::Full(head, body) => {
            header(&mut out, head, body);
            data(&mut out, body);
        }
        Message::Light(body) => light(&mut out, body),
    }
    let total = u32::try_from(out.len()).unwrap_or(u32::MAX);
    out[at::TOTAL..at::VERSION].copy_from_slice(&total.to_be_bytes());
    out
}

/// The first 16 bytes, which both headers share. The total length is filled in at the end.
fn start(out: &mut Vec<u8>, port: u16, kind: u16, count: u16) {
    out.extend(SIGNATURE);
    out.extend([0; 4]);
    out.extend([VERSION, port, kind, count].into_iter().flat_map(u16::to_be_bytes));
}

fn header(out: &mut Vec<u8>, header: &Header, body: &Body) {
    let (gossip_count, extension_count) = match body {
        Body::Ping { gossip, extensions, .. } => (short(gossip.len()), short(extensions.len())),
        _ => (0, 0),
    };
    start(out, header.port, body.kind() as u16, gossip_count);
    out.extend([header.current_epoch, header.config_epoch, header.offset].into_iter().flat_map(u64::to_be_bytes));
    out.extend(header.sender.bytes());
    header.slots.write_to(out);
    out.extend(header.primary.map_or([0; 40], |primary| *primary.bytes()));
    address(out, &header.ip);
    out.extend(extension_count.to_be_bytes());
    out.resize(at::OTHER_PORT, 0);
    out.extend([header.other_port, header.bus_port, header.flags.0].into_iter().flat_map(u16::to_be_bytes));
    out.extend([u8::from(header.is_down), header.message_flags.0, 0, 0]);
}

/// Returns the length of a list as 16 bits. Senders bound their lists far below that limit.
fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// An address with NULs behind it, at least one.
fn address(out: &mut Vec<u8>, ip: &str) {
    let start = out.len();
    out.extend(ip.bytes().take(IP_LEN - 1));
    out.resize(start + IP_LEN, 0);
}

fn data(out: &mut Vec<u8>, body: &Body) {
    match body {
        Body::Ping { gossip: entries, extensions, .. } => {
            entries.iter().take(usize::from(u16::MAX)).for_each(|entry| gossip(out, entry));
            extensions.iter().take(usize::from(u16::MAX)).for_each(|part| extension(out, part));
        }
        Body::Fail(node) => out.extend(node.bytes()),
        Body::Publish(part) => published(out, part),
        Body::AuthRequest | Body::AuthAck | Body::MfStart => {}
        Body::Update { config_epoch, node, slots } => {
            out.extend(config_epoch.to_be_bytes());
            out.extend(node.bytes());
            slots.write_to(out);
        }
        Body::Module(part) => module(out, part),
    }
}

fn light(out: &mut Vec<u8>, body: &LightBody) {
    match body {
        LightBody::Publish(part) => {
            start(out, 0, part.kind() as u16 | LIGHT, 0);
            published(out, part);
        }
        LightBody::Module(part) => {
            start(out, 0, Kind::Module as u16 | LIGHT, 0);
            module(out, part);
        }
    }
}

fn gossip(out: &mut Vec<u8>, entry: &Gossip) {
    out.extend(entry.id.bytes());
    out.extend([entry.ping_sent, entry.pong_received].into_iter().flat_map(u32::to_be_bytes));
    address(out, &entry.ip);
    let numbers = [entry.port, entry.bus_port, entry.flags.0, entry.other_port, 0];
    out.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
}

/// An extension, padded to a multiple of eight bytes.
fn extension(out: &mut Vec<u8>, part: &RawExtension) {
    let padded = part.data.len().next_multiple_of(8);
    let start = out.len();
    out.extend(u32::try_from(8 + padded).unwrap_or(u32::MAX).to_be_bytes());
    out.extend([part.kind, 0].into_iter().flat_map(u16::to_be_bytes));
    out.extend(&part.data);
    out.resize(start + 8 + padded, 0);
}

fn lengths(out: &mut Vec<u8>, lengths: &[usize]) {
    out.extend(lengths.iter().flat_map(|length| u32::try_from(*length).unwrap_or(u32::MAX).to_be_bytes()));
}

fn published(out: &mut Vec<u8>, part: &Published) {
    lengths(out, &[part.channel.len(), part.message.len()]);
    out.extend(&*part.channel);
    out.extend(&*part.message);
}

fn module(out: &mut Vec<u8>, part: &ModuleData) {
    out.extend(part.module);
    lengths(out, &[part.payload.len()]);
    out.push(part.kind);
    out.extend(&part.payload);
}
