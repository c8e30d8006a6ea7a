//! A node of a cluster without a server behind it, to try the machine against real peers.
//!
//! `bus_node PORT BUS_PORT FILE [SECONDS]` listens on 127.0.0.1 and keeps nodes.conf in FILE. A line of its standard input
//! is `meet PORT [BUS_PORT]`, `nodes`, `info`, `addslots FIRST LAST`, `replicate ID`, `failover`, or `forget ID`.

use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use cluster::commands::{ClusterCommand, ClusterReply};
use cluster::config::Announce;
use cluster::file::NodesFile;
use cluster::view::{ClientPath, Ports};
use cluster::wire::{Frame, frame};
use cluster::{Action, CommandId, Config, Facts, FailoverMode, Input, LinkId, Machine, Moment, Slot};

/// An event of a thread.
enum Event {
    Linked(LinkId, TcpStream),
    Accepted(TcpStream),
    Bytes(LinkId, Vec<u8>),
    Lost(LinkId),
    Line(String),
}

struct Node {
    machine: Machine,
    streams: BTreeMap<LinkId, (TcpStream, Vec<u8>)>,
    events: Sender<Event>,
    file: String,
    started: Instant,
    random: u64,
    accepted: u64,
}

impl Node {
    fn input(&mut self, input: Input<'_>) {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Moment { ms: self.started.elapsed().as_millis() as u64 + 1, unix_ms: unix.as_millis() as u64 };
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(unix.as_nanos() as u64 | 1);
        for action in self.machine.handle(now, self.random, input) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect { link, ip, port } => {
                let events = self.events.clone();
                std::thread::spawn(move || {
                    let event = TcpStream::connect((ip.as_str(), port))
                        .map_or(Event::Lost(link), |stream| Event::Linked(link, stream));
                    let _ = events.send(event);
                });
            }
            Action::Close(link) => {
                if let Some((stream, _)) = self.streams.remove(&link) {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
            }
            Action::Send { link, message } => {
                if let Some((stream, _)) = self.streams.get_mut(&link) {
                    let _ = stream.write_all(&message.to_bytes());
                }
            }
            Action::Save { generation, text } => {
                let saved = std::fs::write(&self.file, text);
                match saved {
                    Ok(()) => self.input(Input::Saved(generation)),
                    Err(error) => self.input(Input::SaveFailed { generation, error: error.to_string() }),
                }
            }
            Action::Pause { .. } => self.input(Input::Paused { offset: 1 }),
            Action::Answer(_, ClusterReply::Verbatim(text) | ClusterReply::Bulk(text)) => println!("{text}"),
            Action::View(view) => println!("view {}: {:?}, mine {}", view.edition, view.state, view.mine),
            Action::Log(level, text) => println!("{level:?}: {text}"),
            other => println!("{other:?}"),
        }
    }

    fn adopt(&mut self, link: LinkId, stream: TcpStream) {
        let events = self.events.clone();
        if let Ok(mut reader) = stream.try_clone() {
            std::thread::spawn(move || {
                let mut buffer = [0; 65536];
                while let Ok(length @ 1..) = reader.read(&mut buffer) {
                    let _ = events.send(Event::Bytes(link, buffer[..length].to_vec()));
                }
                let _ = events.send(Event::Lost(link));
            });
        }
        self.streams.insert(link, (stream, Vec::new()));
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Linked(link, stream) => {
                self.adopt(link, stream);
                self.input(Input::Linked { link, local_ip: "127.0.0.1" });
            }
            Event::Accepted(stream) => {
                self.accepted += 1;
                let link = LinkId::Inbound(self.accepted);
                self.adopt(link, stream);
                self.input(Input::Accepted { link, peer_ip: "127.0.0.1", local_ip: "127.0.0.1" });
            }
            Event::Bytes(link, bytes) => self.received(link, &bytes),
            Event::Lost(link) => {
                self.streams.remove(&link);
                self.input(Input::Lost(link));
            }
            Event::Line(line) => self.line(&line),
        }
    }

    fn received(&mut self, link: LinkId, bytes: &[u8]) {
        let Some((_, buffer)) = self.streams.get_mut(&link) else { return };
        buffer.extend(bytes);
        let mut pending = std::mem::take(buffer);
        while let Frame::Whole(length) = frame(&pending, 1 << 26) {
            let rest = pending.split_off(length);
            self.input(Input::Received { link, bytes: &pending });
            pending = rest;
        }
        if let Some((_, buffer)) = self.streams.get_mut(&link) {
            *buffer = pending;
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let text = |at: usize| words.get(at).copied().unwrap_or_default().to_owned();
        let command = match words.first().copied() {
            Some("meet") => ClusterCommand::Meet {
                ip: "127.0.0.1".into(),
                port: number(1).unwrap_or_default() as i64,
                bus_port: number(2).map(|port| port as i64),
            },
            Some("nodes") => ClusterCommand::Nodes(ClientPath::default()),
            Some("info") => ClusterCommand::Info,
            Some("addslots") => {
                let Some((first, last)) = number(1).and_then(Slot::new).zip(number(2).and_then(Slot::new)) else {
                    return;
                };
                ClusterCommand::AddSlotsRange(vec![(first, last)])
            }
            Some("replicate") => ClusterCommand::Replicate { node: text(1), has_keys: false },
            Some("failover") => ClusterCommand::Failover(FailoverMode::Force),
            Some("forget") => ClusterCommand::Forget(text(1)),
            _ => return println!("unknown: {line}"),
        };
        self.input(Input::Command(CommandId(0), command));
    }

    fn run(&mut self, events: &Receiver<Event>, seconds: u64) {
        let mut tick = Instant::now();
        while self.started.elapsed() < Duration::from_secs(seconds) {
            let left = Duration::from_millis(100).saturating_sub(tick.elapsed());
            if let Ok(event) = events.recv_timeout(left) {
                self.take(event);
            }
            if tick.elapsed() >= Duration::from_millis(100) {
                tick = Instant::now();
                self.input(Input::Facts(Facts { offset: 1, data_age_ms: Some(0), ..Facts::default() }));
                self.input(Input::Tick);
            }
        }
    }
}

fn spawn_sources(events: &Sender<Event>, bus_port: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", bus_port))?;
    let sender = events.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = sender.send(Event::Accepted(stream));
        }
    });
    let sender = events.clone();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(Event::Line(line));
        }
    });
    Ok(())
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|arg: &String| arg.parse::<u64>().ok());
    let (port, bus_port) = (number(0).unwrap_or(24_800) as u16, number(1).unwrap_or(24_801) as u16);
    let file = args.get(2).cloned().unwrap_or("nodes.conf".into());
    let announce = Announce {
        ports: Ports { plain: port, tls: 0 },
        bus_port,
        hostname: "penstock.example".into(),
        ..Announce::default()
    };
    let config = Config { node_timeout_ms: 2000, announce, ..Config::default() };
    let mut random = u64::from(std::process::id()) << 32 | u64::from(bus_port);
    let mut dice = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random ^ random >> 29
    };
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let machine = match NodesFile::parse(&text) {
        Ok(Some(file)) => Machine::load(config, &file, &mut dice),
        Ok(None) => Machine::new(config, &mut dice),
        Err(error) => return Err(std::io::Error::other(error.to_string())),
    };
    let (events, receiver) = channel();
    spawn_sources(&events, bus_port)?;
    let random = dice();
    let mut node =
        Node { machine, streams: BTreeMap::new(), events, file, started: Instant::now(), random, accepted: 0 };
    node.run(&receiver, number(3).unwrap_or(3600));
    Ok(())
}
