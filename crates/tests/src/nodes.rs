//! Nodes of clusters: their start, their introduction, and questions about their view.

use std::collections::BTreeMap;

use crate::conn::Conn;
use crate::hanging_disk::HangingDisk;
use crate::ports::free_port;
use crate::reply::Reply;
use crate::server::{Server, comes_true};

/// The number of slots.
pub const SLOTS: u64 = 16384;

/// The node timeout of the tests, in milliseconds.
pub const TIMEOUT_MS: u64 = 2000;

/// A program that nodes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Make {
    /// The server under test.
    Penstock,
    /// Debian's Redis 7.0.
    Redis7,
    /// Valkey 9.
    Valkey9,
    /// Redis 8.
    Redis8,
}

impl Make {
    /// The peers that are installed.
    pub fn peers() -> Vec<Make> {
        let installed = |make: &Make| make.start(&[]).is_some();
        [Make::Redis7, Make::Valkey9, Make::Redis8].into_iter().filter(installed).collect()
    }

    /// The program's path or name.
    ///
    /// # Panics
    /// The program isn't installed.
    pub fn program(self) -> std::path::PathBuf {
        let server = self.start(&[]).expect("the program is installed");
        server.program().to_path_buf()
    }

    /// Starts a server. Returns None if the program isn't installed.
    pub fn start(self, args: &[&str]) -> Option<Server> {
        match self {
            Make::Penstock => Some(Server::penstock(args)),
            Make::Redis7 => Some(Server::oracle(args)),
            Make::Valkey9 => Server::valkey9(args),
            Make::Redis8 => Server::redis8(args),
        }
    }
}

/// A node.
pub struct Node {
    /// Its process.
    pub server: Server,
    /// The program that it runs.
    pub make: Make,
    /// Its port for other nodes.
    pub bus_port: u16,
}

/// Starts a node that knows nobody.
pub fn node_with(make: Make, more: &[&str]) -> Node {
    started_by(make, more, |args| make.start(args).expect("the program is installed"))
}

/// Starts a node of Penstock on a disk that a test can make hang.
pub fn node_on(disk: &HangingDisk) -> Node {
    node_on_with(disk, &[])
}

/// Like [`node_on`], with more directives.
pub fn node_on_with(disk: &HangingDisk, more: &[&str]) -> Node {
    started_by(Make::Penstock, more, |args| Server::penstock_on(args, disk))
}

/// Starts a node of Penstock on a disk that takes files of so many blocks of 512 bytes.
pub fn node_with_small_files(more: &[&str], blocks: u32) -> Node {
    started_by(Make::Penstock, more, |args| Server::penstock_with_small_files(args, blocks))
}

fn started_by(make: Make, more: &[&str], start: impl Fn(&[&str]) -> Server) -> Node {
    let (bus_port, timeout) = (free_port().unwrap(), TIMEOUT_MS.to_string());
    let port = bus_port.to_string();
    let args = ["--cluster-enabled", "yes", "--cluster-port", &port, "--cluster-node-timeout", &timeout];
    let args = [&args[..], &["--repl-diskless-sync-delay", "0", "--loglevel", "notice"], more].concat();
    Node { server: start(&args), make, bus_port }
}

/// Starts a node that knows nobody.
pub fn node(make: Make) -> Node {
    node_with(make, &[])
}

impl Node {
    /// The reply of a command on a connection of its own.
    pub fn reply(&self, command: &str) -> Reply {
        self.server.connect().cmd(command).unwrap_or_else(|error| panic!("{command}: {error}\n{}", self.server.log()))
    }

    /// The reply of a command with quoted arguments.
    pub fn quoted(&self, command: &str) -> Reply {
        let mut conn = self.server.connect();
        conn.send(format!("{command}\r\n").as_bytes()).and_then(|()| conn.read()).unwrap()
    }

    /// The reply of a command as text.
    pub fn text(&self, command: &str) -> String {
        String::from_utf8_lossy(self.reply(command).text()).into_owned()
    }

    /// Runs a command that must be accepted.
    pub fn ok(&self, command: &str) {
        assert_eq!(self.text(command), "OK", "{command} at a node of {:?}", self.make);
    }

    /// Its name.
    pub fn id(&self) -> String {
        self.text("CLUSTER MYID")
    }

    /// The fields of CLUSTER INFO.
    pub fn info(&self, name: &str) -> String {
        let info = self.text("CLUSTER INFO");
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_default().trim().to_owned()
    }

    /// Introduces it to another node.
    pub fn meet(&self, other: &Node) {
        self.ok(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.server.port(), other.bus_port));
    }

    /// The lines of CLUSTER NODES, by the nodes' names.
    pub fn nodes(&self) -> BTreeMap<String, Line> {
        self.text("CLUSTER NODES").lines().map(Line::of).map(|line| (line.id.clone(), line)).collect()
    }

    /// Its own line.
    pub fn own(&self) -> Line {
        self.nodes().remove(&self.id()).unwrap()
    }

    /// Sends a signal to its process, such as `STOP`. Returns after all threads have stopped in that case: on a busy machine, a thread may
    /// run on for a while.
    pub fn signal(&self, name: &str) {
        let pid = self.server.pid().to_string();
        let status = std::process::Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{name}");
        assert!(name != "STOP" || comes_true(|| self.has_stopped()), "the process runs on");
    }

    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.server.pid())).unwrap();
        threads.into_iter().all(|thread| {
            let state = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
            state.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 'Z']))
        })
    }

    /// Waits until its replication link is up.
    pub fn wait_until_linked(&self) {
        self.wait_until("its link is up", |node| node.text("INFO replication").contains("master_link_status:up"));
    }

    /// True if it serves.
    pub fn is_ok(&self) -> bool {
        self.info("cluster_state") == "ok"
    }

    /// True if it leads, and serves the slot of this key. The bus knows of an election before the workers do: they serve the slots once
    /// nodes.conf is saved.
    pub fn leads(&self, key: &str) -> bool {
        self.own().is("master") && self.is_ok() && !self.reply(&format!("TYPE {key}")).is_error()
    }

    /// Waits for a condition.
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Node) -> bool) {
        let holds = || holds(self);
        assert!(
            comes_true(holds),
            "{:?} on port {} waited in vain until {what}\n{}\n{}",
            self.make,
            self.server.port(),
            self.text("CLUSTER NODES"),
            self.server.log()
        );
    }
}

/// A line of CLUSTER NODES.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The node's name.
    pub id: String,
    /// Its address, with the port of the bus and the names.
    pub address: String,
    /// Its flags, without `myself`.
    pub flags: Vec<String>,
    /// The name of its primary, or `-`.
    pub primary: String,
    /// Its configuration epoch.
    pub epoch: u64,
    /// True if the link to it is up.
    pub is_connected: bool,
    /// Its ranges of slots, and markers of open slots.
    pub slots: Vec<String>,
}

impl Line {
    fn of(line: &str) -> Line {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.len() >= 8, "{line}");
        Line {
            id: words[0].to_owned(),
            address: words[1].to_owned(),
            flags: words[2].split(',').filter(|flag| *flag != "myself").map(str::to_owned).collect(),
            primary: words[3].to_owned(),
            epoch: words[6].parse().unwrap(),
            is_connected: words[7] == "connected",
            slots: words[8..].iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    /// True if it has this flag.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

/// The owners of slots, and the roles, as a node sees them.
fn map_of(node: &Node) -> BTreeMap<String, (bool, String, Vec<String>)> {
    let entry = |(id, line): (String, Line)| (id, (line.is("master"), line.primary, line.slots));
    node.nodes().into_iter().map(entry).collect()
}

/// Waits until all nodes serve, see the same map, and know each other by both links.
pub fn settle(nodes: &[&Node]) {
    for node in nodes {
        node.wait_until("it knows all and serves", |node| {
            let lines = node.nodes();
            let is_good =
                |line: &Line| line.is_connected && line.flags.iter().all(|flag| flag == "master" || flag == "slave");
            node.is_ok() && lines.len() == nodes.len() && lines.values().all(is_good)
        });
    }
    let agree = || nodes.iter().all(|node| map_of(node) == map_of(nodes[0]));
    let maps = || nodes.iter().map(|node| node.text("CLUSTER NODES")).collect::<Vec<_>>().join("\n");
    assert!(comes_true(agree), "the nodes never agree:\n{}", maps());
}

/// Introduces nodes to each other, and divides the slots among them.
pub fn join(nodes: &[&Node]) {
    let share = |at: usize| at as u64 * SLOTS / nodes.len() as u64;
    for (at, node) in nodes.iter().enumerate() {
        node.ok(&format!("CLUSTER ADDSLOTSRANGE {} {}", share(at), share(at + 1) - 1));
        node.ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
    }
    nodes[1..].iter().for_each(|node| node.meet(nodes[0]));
    settle(nodes);
}

/// Makes a node a replica of a primary that it knows, and waits until it has the primary's data.
pub fn replicate(replica: &Node, primary: &Node) {
    let id = primary.id();
    replica.wait_until("it knows its primary", |replica| replica.nodes().contains_key(&id));
    replica.ok(&format!("CLUSTER REPLICATE {id}"));
    replica.wait_until("it has the primary's data", |replica| {
        replica.text("INFO replication").contains("master_link_status:up")
    });
}

/// A client that follows redirections.
pub struct Client {
    conns: BTreeMap<u16, Conn>,
    port: u16,
}

impl Client {
    /// A client that knows one node.
    pub fn new(node: &Node) -> Client {
        Client { conns: BTreeMap::new(), port: node.server.port() }
    }

    /// The reply of a command. It follows MOVED and ASK, and tries again where nobody serves for a moment.
    pub fn run(&mut self, command: &str) -> Reply {
        let mut last = String::new();
        let (mut port, mut asks) = (self.port, false);
        for _ in 0..2000 {
            match self.try_at(port, asks, command) {
                Ok(reply) if !is_passing(&reply) => return reply,
                Ok(reply) => {
                    last = String::from_utf8_lossy(reply.text()).into_owned();
                    let words: Vec<&str> = last.split(' ').collect();
                    asks = words[0] == "ASK";
                    if asks || words[0] == "MOVED" {
                        port = words[2].rsplit_once(':').unwrap().1.parse().unwrap();
                        self.port = port;
                        continue;
                    }
                }
                Err(error) => {
                    last = error.to_string();
                    self.conns.remove(&port);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{command}: {last}");
    }

    fn try_at(&mut self, port: u16, asks: bool, command: &str) -> std::io::Result<Reply> {
        let conn = match self.conns.entry(port) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(Conn::open(port)?),
        };
        if asks {
            conn.cmd("ASKING")?;
        }
        conn.cmd(command)
    }
}

/// True for an error that another try may not have.
fn is_passing(reply: &Reply) -> bool {
    let text = String::from_utf8_lossy(reply.text()).into_owned();
    reply.is_error() && ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING"].iter().any(|word| text.starts_with(word))
}
