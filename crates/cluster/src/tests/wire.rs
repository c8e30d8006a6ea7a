//! Messages: bytes of real peers, all their truncations and damages, and round trips.

use std::sync::Arc;

use crate::dialect::{self, Dialect, Extensions, Reader};
use crate::id::{NodeId, ShardId};
use crate::slots::{Slot, SlotSet};
use crate::view::Ports;
use crate::wire::*;

/// Bytes as text: hexadecimal digits, and `00*8` for eight zero bytes.
fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
    let part = |word: &str| match word.split_once('*') {
        Some((digits, times)) => vec![byte(digits); times.parse().unwrap()],
        None => (0..word.len()).step_by(2).map(|at| byte(&word[at..at + 2])).collect(),
    };
    text.split_whitespace().flat_map(part).collect()
}

/// Messages that real peers have sent: Valkey 9.1.2, Redis 8.6.3 and Redis 7.0.15.
macro_rules! captures {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("captures/", $name, ".hex"))),)*]
    };
}

const CAPTURES: &[(&str, &str)] = captures![
    "valkey91-authack",
    "valkey91-authrequest",
    "valkey91-fail",
    "valkey91-light-publish",
    "valkey91-meet",
    "valkey91-mfstart",
    "valkey91-ping",
    "valkey91-pong",
    "valkey91-update",
    "redis86-authack",
    "redis86-authrequest",
    "redis86-fail",
    "redis86-meet",
    "redis86-mfstart",
    "redis86-ping",
    "redis86-pong",
    "redis86-publish",
    "redis86-update",
    "redis70-authack",
    "redis70-authrequest",
    "redis70-fail",
    "redis70-meet",
    "redis70-mfstart",
    "redis70-ping",
    "redis70-pong",
    "redis70-publish",
    "redis70-update",
];

fn capture(name: &str) -> Vec<u8> {
    bytes_of(CAPTURES.iter().find(|(known, _)| *known == name).unwrap().1)
}

#[test]
fn messages_of_peers_are_read_and_written_alike() {
    for (name, text) in CAPTURES {
        let bytes = bytes_of(text);
        assert_eq!(frame(&bytes, 1 << 20), Frame::Whole(bytes.len()), "{name}");
        let message = read(&bytes).unwrap_or_else(|dropped| panic!("{name}: {dropped:?}"));
        assert_eq!(message.to_bytes(), bytes, "{name}");
        let kind = format!("{:?}", message.kind()).to_lowercase();
        assert!(name.ends_with(&kind), "{name} is a {kind}");
    }
}

fn ping_parts(name: &str) -> (Box<Header>, Vec<Gossip>, Vec<RawExtension>) {
    match read(&capture(name)).unwrap() {
        Message::Full(header, Body::Ping { gossip, extensions, .. }) => (header, gossip, extensions),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pong_of_valkey_has_what_it_was_started_with() {
    let (header, gossip, extensions) = ping_parts("valkey91-pong");
    assert_eq!((header.port, header.bus_port, header.other_port), (24100, 24140, 0));
    assert_eq!((header.current_epoch, header.config_epoch), (3, 1));
    assert_eq!(header.slots.to_string(), "0-5000");
    assert_eq!((header.primary, header.is_down, &*header.ip), (None, true, ""));
    assert!(header.flags.has(NodeFlags::PRIMARY) && header.flags.has(NodeFlags::LIGHT_MODULE));
    assert!(header.message_flags.has(MessageFlags::EXTENSIONS));
    assert_eq!(gossip.len(), 2);
    let ports = gossip.iter().map(|entry| (entry.ip.as_str(), entry.port, entry.bus_port)).collect::<Vec<_>>();
    assert_eq!(ports, [("127.0.0.1", 24103, 24143), ("127.0.0.1", 24101, 24141)]);
    let dialect = Dialect::Unknown.learned(header.flags, &extensions);
    assert_eq!(dialect, Dialect::Valkey);
    let read = dialect::read(&extensions, dialect);
    assert_eq!((&*read.hostname, &*read.node_name, &*read.zone), ("host-0.example", "node0", "zone0"));
    assert_eq!((&*read.client_ipv4, &*read.client_ipv6), ("192.0.2.1", "2001:db8::1"));
    assert_eq!(read.client_ports, Ports { plain: 7000, tls: 0 });
    assert_eq!(read.shard.unwrap().as_str(), "b2258307efb149f2bd5653da1d7024a5613d20f0");
    assert_eq!(dialect::write(&read, Reader::All(Dialect::Valkey)).len(), extensions.len());
}

#[test]
fn the_secret_of_redis_is_no_address() {
    let (header, _, extensions) = ping_parts("redis86-ping");
    let dialect = Dialect::Unknown.learned(header.flags, &extensions);
    assert_eq!(dialect, Dialect::Redis);
    assert!(extensions.iter().any(|extension| extension.kind == 4 && extension.data.len() == 40));
    let found = dialect::read(&extensions, dialect);
    assert_eq!((&*found.client_ipv4, found.shard.is_some(), &*found.node_name), ("", true, "node2"));
    let secret = found.secret.unwrap();
    assert!(extensions.iter().any(|extension| extension.data == secret.digits()));
    assert_eq!(format!("{secret:?}"), "NodeSecret", "it is never shown");
    assert_eq!(dialect::read(&extensions, Dialect::Valkey).secret, None);
    let written =
        [Dialect::Unknown, Dialect::Redis, Dialect::Valkey].map(|peer| dialect::write(&found, Reader::All(peer)));
    assert!(written.iter().flatten().all(|extension| extension.data != secret.digits()));
    // A peer that takes Redis for Valkey still takes no secret for an address.
    assert_eq!(dialect::read(&extensions, Dialect::Valkey).client_ipv4, "");
}

#[test]
fn redis_7_0_sends_a_hostname_alone() {
    let (header, _, extensions) = ping_parts("redis70-ping");
    assert_eq!(Dialect::Unknown.learned(header.flags, &extensions), Dialect::Unknown);
    assert_eq!(extensions.iter().map(|extension| extension.kind).collect::<Vec<_>>(), [0]);
}

#[test]
fn every_cut_is_dropped() {
    for (name, text) in CAPTURES {
        let bytes = bytes_of(text);
        for length in 0..bytes.len() {
            let cut = &bytes[..length];
            assert!(matches!(frame(cut, 1 << 20), Frame::Needs(needed) if needed > length), "{name} {length}");
            assert!(read(cut).is_err(), "{name} {length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(read(&longer).is_err(), "{name} and a byte");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let mut damaged_and_read = 0;
    for (name, text) in CAPTURES {
        let bytes = bytes_of(text);
        for at in (0..bytes.len()).filter(|at| !(100..2100).contains(at)) {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let _ = frame(&damaged, 1 << 20);
                if let Ok(message) = read(&damaged) {
                    damaged_and_read += 1;
                    let again = read(&message.to_bytes());
                    assert_eq!(again, Ok(message), "{name} {at}");
                }
            }
        }
    }
    assert!(damaged_and_read > 1000);
}

fn id(letter: char) -> NodeId {
    NodeId::new(letter.to_string().repeat(40).as_bytes()).unwrap()
}

fn header() -> Box<Header> {
    let slots: SlotSet = (7..900).filter_map(Slot::new).collect();
    Box::new(Header {
        port: 6379,
        other_port: 6380,
        bus_port: 16379,
        current_epoch: 9,
        config_epoch: 8,
        offset: 1 << 40,
        sender: id('a'),
        slots: Arc::new(slots),
        primary: Some(id('b')),
        ip: "2001:db8::1".into(),
        flags: NodeFlags::REPLICA.with(NodeFlags::NO_FAILOVER, true),
        is_down: true,
        message_flags: MessageFlags::EXTENSIONS.with(MessageFlags::FORCE_VOTE, true),
    })
}

fn bodies() -> Vec<Body> {
    let entry = Gossip {
        id: id('c'),
        ping_sent: 1,
        pong_received: 2,
        ip: "10.0.0.1".into(),
        port: 3,
        other_port: 4,
        bus_port: 5,
        flags: NodeFlags::PRIMARY,
    };
    let extensions = Extensions {
        hostname: "host".into(),
        forgotten: vec![(id('d'), 60)],
        shard: ShardId::new(&[b'e'; 40]),
        zone: "zone-a".into(),
        ..Extensions::default()
    };
    let extensions = dialect::write(&extensions, Reader::All(Dialect::Valkey));
    let published = |sharded| Published { channel: (*b"news").into(), message: (*b"hello").into(), sharded };
    let module = ModuleData { module: *b"abcdefgh", kind: 3, payload: vec![1, 2, 3] };
    let pings = [Kind::Ping, Kind::Pong, Kind::Meet].map(|kind| Body::Ping {
        kind,
        gossip: vec![entry.clone(), entry.clone()],
        extensions: extensions.clone(),
    });
    let others = [
        Body::Fail(id('f')),
        Body::Publish(published(false)),
        Body::Publish(published(true)),
        Body::AuthRequest,
        Body::AuthAck,
        Body::Update { config_epoch: 77, node: id('g'), slots: Arc::new(SlotSet::FULL) },
        Body::MfStart,
        Body::Module(module),
    ];
    pings.into_iter().chain(others).collect()
}

#[test]
fn messages_come_back_as_they_were() {
    let mut kinds = Vec::new();
    for body in bodies() {
        kinds.push(body.kind());
        let light = match &body {
            Body::Publish(published) => Some(LightBody::Publish(published.clone())),
            Body::Module(module) => Some(LightBody::Module(module.clone())),
            _ => None,
        };
        for message in [Some(Message::Full(header(), body)), light.map(Message::Light)].into_iter().flatten() {
            assert_eq!(read(&message.to_bytes()), Ok(message));
        }
    }
    kinds.sort();
    assert_eq!(kinds, Kind::ALL);
}

#[test]
fn lengths_are_those_of_the_peers() {
    let check = |kind: Kind, length: usize| {
        let body = bodies().into_iter().find(|body| body.kind() == kind).unwrap();
        assert_eq!(Message::Full(header(), body).to_bytes().len(), length, "{kind:?}");
    };
    check(Kind::Fail, 2296);
    check(Kind::Publish, 2264 + 9);
    check(Kind::PublishShard, 2264 + 9);
    check(Kind::AuthRequest, 2256);
    check(Kind::AuthAck, 2256);
    check(Kind::Update, 4352);
    check(Kind::MfStart, 2256);
    check(Kind::Module, 2269 + 3);
    check(Kind::Ping, 2256 + 2 * 104 + (8 + 8) + (8 + 48) + (8 + 40) + (8 + 8));
}

#[test]
fn a_message_is_dropped_for_a_reason() {
    let good = Message::Full(header(), bodies().remove(0)).to_bytes();
    let check = |at: usize, bytes: &[u8], expected: Dropped| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(read(&bad), Err(expected));
    };
    check(8, &[0, 2], Dropped::Version(2));
    check(12, &[0, 11], Dropped::Type(11));
    check(12, &[0x80, 0], Dropped::LightType(0));
    check(12, &[0, 3], Dropped::Length(Kind::Fail));
    check(40, b"A", Dropped::Name(Kind::Ping));
    check(14, &[0xff, 0xff], Dropped::Length(Kind::Ping));
    let extensions = 2256 + 2 * 104;
    for length in [0, 4, 7, 9, 12, 4000, u32::MAX] {
        check(extensions, &length.to_be_bytes(), Dropped::Extension(Kind::Ping));
    }
    check(2214, &[0, 3], Dropped::Length(Kind::Ping));
    check(2214, &[0, 5], Dropped::Extension(Kind::Ping));
    check(2253, &[0], Dropped::Length(Kind::Ping));
}

#[test]
fn a_stream_without_messages_is_closed() {
    let check = |bytes: &[u8], expected: Frame| assert_eq!(frame(bytes, 5000), expected);
    check(b"", Frame::Needs(8));
    check(b"RC", Frame::Needs(8));
    check(b"GET / HTTP", Frame::Broken);
    check(b"RX", Frame::Broken);
    check(b"RCmb\0\0\0\x0f", Frame::Broken);
    check(b"RCmb\0\0\0\x10", Frame::Needs(16));
    check(b"RCmb\0\0\x13\x88", Frame::Needs(5000));
    check(b"RCmb\0\0\x13\x89", Frame::Broken);
    check(b"RCmb\xff\xff\xff\xff", Frame::Broken);
}

#[test]
fn texts_that_would_break_files_and_replies_are_refused() {
    let raw = |kind, text: &[u8]| RawExtension { kind, data: text.to_vec() };
    let check = |kind, text: &[u8], expected: &str| {
        let found = dialect::read(&[raw(kind, text)], Dialect::Valkey);
        let fields = [found.hostname, found.node_name, found.client_ipv4, found.client_ipv6, found.zone];
        assert_eq!(fields.concat(), expected, "{}", String::from_utf8_lossy(text));
    };
    check(0, b"a.b-c\0\0\0", "a.b-c");
    check(0, b"a b\0", "");
    check(0, b"no-end!!", "");
    check(1, b"name_1\0\0", "name_1");
    check(1, b"a,b\0", "");
    check(1, b"a\nb\0", "");
    check(4, b"192.0.2.1\0", "192.0.2.1");
    check(4, b"192.0.2\0", "");
    check(5, b"::1\0", "::1");
    check(5, b"192.0.2.1\0", "");
    check(8, b"eu-west\0", "eu-west");
    check(8, &[&[b'a'; 300][..], &[0]].concat(), "");
    let mut bytes = Message::Full(header(), Body::AuthAck).to_bytes();
    bytes[2168..2171].copy_from_slice(b"a b");
    let ip = |bytes: &[u8]| match read(bytes).unwrap() {
        Message::Full(header, _) => header.ip,
        Message::Light(_) => panic!(),
    };
    assert_eq!(ip(&bytes), "");
    bytes[2168..2214].fill(b'1');
    assert_eq!(ip(&bytes), "", "an address without an end");
}
