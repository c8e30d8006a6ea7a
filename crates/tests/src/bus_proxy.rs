//! The network between the buses of a cluster's nodes: a proxy before each node, at the port that the node announces.
//!
//! A connection's sender is known by the name in the header of its first message. Each direction between two nodes can
//! be cut or delayed. A cut holds the bytes back and leaves the connection open, as a lost route does.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::nodes::{Make, Node, node_with};

/// Position of the sender's name in the header of a message, and its length.
const NAME_AT: usize = 40;
const NAME_BYTES: usize = 40;

/// The distance of two looks at a cut.
const LOOK: Duration = Duration::from_millis(5);

/// The cuts and the delay, shared by all proxies.
#[derive(Default)]
struct Rules {
    /// Pairs of names: nothing passes from the first node to the second one.
    cuts: Mutex<BTreeSet<(String, String)>>,
    delay_ms: AtomicU64,
}

impl Rules {
    /// Waits while a direction is cut.
    fn pass(&self, from: &str, to: &str) {
        let cut = (from.to_owned(), to.to_owned());
        while self.cuts.lock().is_ok_and(|cuts| cuts.contains(&cut)) {
            thread::sleep(LOOK);
        }
        thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::Relaxed)));
    }
}

/// The network between the nodes that it starts.
#[derive(Default)]
pub struct BusNetwork {
    rules: Arc<Rules>,
}

impl BusNetwork {
    /// A network without faults.
    pub fn new() -> BusNetwork {
        BusNetwork::default()
    }

    /// Starts a node with other nodes that reach it through this network only.
    pub fn node_with(&self, make: Make, more: &[&str]) -> Node {
        self.start(|port| node_with(make, &[&["--cluster-announce-bus-port", port], more].concat()))
    }

    /// Starts a node.
    pub fn node(&self, make: Make) -> Node {
        self.node_with(make, &[])
    }

    /// Starts a node by a function of the port to announce.
    pub fn start(&self, start: impl FnOnce(&str) -> Node) -> Node {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut node = start(&port.to_string());
        let (rules, name, target) = (Arc::clone(&self.rules), node.id(), node.bus_port);
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let (rules, name) = (Arc::clone(&rules), name.clone());
                thread::spawn(move || relay(from, target, &name, &rules));
            }
        });
        node.bus_port = port;
        node
    }

    /// Lets nothing pass from one node to another.
    pub fn cut_one_way(&self, from: &Node, to: &Node) {
        self.rules.cuts.lock().unwrap().insert((from.id(), to.id()));
    }

    /// Lets everything pass from one node to another.
    pub fn mend_one_way(&self, from: &Node, to: &Node) {
        self.rules.cuts.lock().unwrap().remove(&(from.id(), to.id()));
    }

    /// Lets nothing pass between nodes of two groups.
    pub fn cut(&self, some: &[&Node], others: &[&Node]) {
        for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other))) {
            self.cut_one_way(one, other);
            self.cut_one_way(other, one);
        }
    }

    /// Lets everything pass again.
    pub fn mend(&self) {
        self.rules.cuts.lock().unwrap().clear();
    }

    /// Delays everything.
    pub fn delay_ms(&self, ms: u64) {
        self.rules.delay_ms.store(ms, Ordering::Relaxed);
    }
}

/// Passes the bytes of a connection to a node.
fn relay(mut from: TcpStream, port: u16, to_name: &str, rules: &Arc<Rules>) {
    let mut head = [0; NAME_AT + NAME_BYTES];
    let Ok(mut to) = TcpStream::connect(("127.0.0.1", port)) else { return };
    if from.read_exact(&mut head).is_err() {
        return;
    }
    let from_name = String::from_utf8_lossy(&head[NAME_AT..]).into_owned();
    let (Ok(back_from), Ok(back_to)) = (to.try_clone(), from.try_clone()) else { return };
    let (rules_back, names_back) = (Arc::clone(rules), (to_name.to_owned(), from_name.clone()));
    thread::spawn(move || pass(back_from, back_to, &rules_back, &names_back.0, &names_back.1));
    rules.pass(&from_name, to_name);
    if to.write_all(&head).is_ok() {
        pass(from, to, rules, &from_name, to_name);
    }
}

/// Passes one direction until either end closes.
fn pass(mut from: TcpStream, mut to: TcpStream, rules: &Rules, from_name: &str, to_name: &str) {
    let mut chunk = [0; 1 << 14];
    while let Ok(count) = from.read(&mut chunk) {
        rules.pass(from_name, to_name);
        if count == 0 || to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
