//! Clusters of fake nodes, which redirect, refuse and break connections as the tests ask.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use ::tests::ports::free_port;
use resp::parse::{ReplyLimits, parse};

use super::*;
use crate::error::{Fate, Lost};

/// Fast enough for tests that use up all attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// A fake node's answer to a command.
#[derive(Clone, Debug, PartialEq)]
enum Reaction {
    /// Runs the command if the node has the slot or was asked, and redirects it otherwise.
    Default,
    Reply(String),
    /// Closes the connection without a reply.
    Close,
}

/// A command as a fake node sees it.
struct Seen<'a> {
    node: usize,
    /// Number of the earlier commands at all nodes, including redirected ones.
    number: usize,
    key: &'a str,
    value: &'a str,
}

type Script = Box<dyn FnMut(&Seen<'_>, &mut Vec<(u16, u16, usize)>) -> Reaction + Send>;

struct State {
    /// The first slot, last slot and node of each range.
    owners: Vec<(u16, u16, usize)>,
    addresses: Vec<NodeAddress>,
    script: Script,
    seen: usize,
    /// Node, key and value of each command that ran, in the order of running.
    ran: Vec<(usize, String, String)>,
    maps_read: usize,
}

impl State {
    fn owner(&self, slot: u16) -> Option<usize> {
        self.owners.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(_, _, node)| *node)
    }

    fn slots_reply(&self) -> String {
        let mut reply = format!("*{}\r\n", self.owners.len());
        for (first, last, node) in &self.owners {
            let NodeAddress { host, port } = &self.addresses[*node];
            reply += &format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n${}\r\n{host}\r\n:{port}\r\n$1\r\nx\r\n", host.len());
        }
        reply
    }

    fn run(&mut self, node: usize, key: &str, value: &str, asked: bool) -> Reaction {
        let slot = key_slot(key.as_bytes()).number();
        let seen = Seen { node, number: self.seen, key, value };
        self.seen += 1;
        let reaction = (self.script)(&seen, &mut self.owners);
        if reaction != Reaction::Default {
            return reaction;
        }
        match self.owner(slot) {
            Some(owner) if owner == node || asked => {
                self.ran.push((node, key.to_owned(), value.to_owned()));
                Reaction::Reply(format!("+{key}={value}@{node}"))
            }
            Some(owner) => Reaction::Reply(format!("-MOVED {slot} {}", self.addresses[owner])),
            None => Reaction::Reply("-CLUSTERDOWN Hash slot not served".to_owned()),
        }
    }
}

/// An open transaction of a connection.
#[derive(Default)]
struct Queue {
    commands: Vec<Vec<String>>,
    is_spoilt: bool,
}

impl Queue {
    /// Queues a command, or refuses it like a real node.
    fn add(&mut self, state: &State, node: usize, words: Vec<String>, asked: bool) -> Reaction {
        let slot = key_slot(words[1].as_bytes()).number();
        let reply = match state.owner(slot) {
            _ if words[0] == "WRONG" => "-ERR unknown command".to_owned(),
            Some(owner) if owner == node || asked => "+QUEUED".to_owned(),
            Some(owner) => format!("-MOVED {slot} {}", state.addresses[owner]),
            None => "-CLUSTERDOWN Hash slot not served".to_owned(),
        };
        self.is_spoilt |= reply.starts_with('-');
        self.commands.push(words);
        Reaction::Reply(reply)
    }

    fn execute(self, state: &mut State, node: usize) -> Reaction {
        if self.is_spoilt {
            return Reaction::Reply("-EXECABORT Transaction discarded".to_owned());
        }
        let mut replies = vec![format!("*{}", self.commands.len())];
        for words in self.commands {
            match state.run(node, &words[1], &words[2], true) {
                Reaction::Reply(reply) => replies.push(reply),
                other => return other,
            }
        }
        Reaction::Reply(replies.join("\r\n"))
    }
}

/// Fake nodes. Their threads end with the test's process.
struct Nodes {
    state: Arc<Mutex<State>>,
}

impl Nodes {
    /// Starts nodes with equal ranges of slots.
    fn start(
        count: usize,
        script: impl FnMut(&Seen<'_>, &mut Vec<(u16, u16, usize)>) -> Reaction + Send + 'static,
    ) -> Self {
        let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |listener: &TcpListener| NodeAddress {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        let share = SLOTS / count;
        let ends = |node: usize| if node + 1 == count { SLOTS - 1 } else { (node + 1) * share - 1 };
        let state = Arc::new(Mutex::new(State {
            owners: (0..count).map(|node| ((node * share) as u16, ends(node) as u16, node)).collect(),
            addresses: listeners.iter().map(address).collect(),
            script: Box::new(script),
            seen: 0,
            ran: Vec::new(),
            maps_read: 0,
        }));
        for (node, listener) in listeners.into_iter().enumerate() {
            let state = state.clone();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let state = state.clone();
                    thread::spawn(move || serve(node, stream.unwrap(), &state));
                }
            });
        }
        Self { state }
    }

    /// Connects a client to the first node.
    fn connect(&self) -> Cluster {
        self.connect_with(ClusterOptions { pause: PAUSE, ..ClusterOptions::default() })
    }

    fn connect_with(&self, options: ClusterOptions) -> Cluster {
        let NodeAddress { host, port } = self.state.lock().unwrap().addresses[0].clone();
        Cluster::connect_with(&Config::tcp(host, port), options).unwrap()
    }

    fn set_owners(&self, owners: &[(u16, u16, usize)]) {
        self.state.lock().unwrap().owners = owners.to_vec();
    }

    /// Returns the values of the commands that ran, for each slot in the order of running.
    fn ran_by_slot(&self) -> HashMap<u16, Vec<usize>> {
        let mut by_slot: HashMap<u16, Vec<usize>> = HashMap::new();
        for (_, key, value) in &self.state.lock().unwrap().ran {
            by_slot.entry(key_slot(key.as_bytes()).number()).or_default().push(value.parse().unwrap());
        }
        by_slot
    }
}

fn serve(node: usize, mut stream: TcpStream, state: &Mutex<State>) {
    let (mut bytes, mut piece, mut asking) = (Vec::new(), [0; 4096], false);
    let mut queue: Option<Queue> = None;
    while let Ok(n @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..n]);
        while let Some((Value::Array(words), used)) = parse(&bytes, &ReplyLimits::default()).unwrap() {
            bytes.drain(..used);
            let words: Vec<String> =
                words.iter().map(|word| String::from_utf8(word.bytes().unwrap().to_vec()).unwrap()).collect();
            // Like in Redis, the flag lasts as long as a transaction.
            let asked = asking;
            asking = words[0] == "ASKING" || (asking && (words[0] == "MULTI" || queue.is_some()));
            let mut state = state.lock().unwrap();
            let reaction = match words[0].as_str() {
                "MULTI" => {
                    queue = Some(Queue::default());
                    Reaction::Reply("+OK".into())
                }
                "EXEC" => queue.take().unwrap_or_default().execute(&mut state, node),
                _ if queue.is_some() => queue.as_mut().unwrap().add(&state, node, words, asked),
                "ASKING" => Reaction::Reply("+OK".into()),
                // Without a table of commands, the first argument is the key.
                "COMMAND" => Reaction::Reply("-NOPERM no".into()),
                "CLUSTER" => {
                    state.maps_read += 1;
                    let reply = state.slots_reply();
                    Reaction::Reply(reply.trim_end().to_owned())
                }
                _ => state.run(node, &words[1], words.get(2).map_or("0", String::as_str), asked),
            };
            drop(state);
            match reaction {
                Reaction::Reply(reply) if stream.write_all(format!("{reply}\r\n").as_bytes()).is_ok() => {}
                _ => return,
            }
        }
    }
}

/// Returns a pipeline of SETs with these keys. The values are the numbers of the commands.
fn sets<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for (number, key) in keys.into_iter().enumerate() {
        pipeline.add(&["SET", key.as_ref(), &number.to_string()]);
    }
    pipeline
}

fn many_keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key:{}", number % 50)).collect()
}

fn text(result: &Result<Value, Error>) -> String {
    match result {
        Ok(Value::Simple(text) | Value::Error(text)) => String::from_utf8(text.clone()).unwrap(),
        other => format!("{other:?}"),
    }
}

/// Checks that each command has the result of its own key and value.
fn check_results(keys: &[String], results: &[Result<Value, Error>]) {
    assert_eq!(keys.len(), results.len());
    for (number, (key, result)) in keys.iter().zip(results).enumerate() {
        assert!(text(result).starts_with(&format!("{key}={number}@")), "{number}: {}", text(result));
    }
}

fn check_order(nodes: &Nodes, count: usize) {
    let by_slot = nodes.ran_by_slot();
    assert_eq!(by_slot.values().map(Vec::len).sum::<usize>(), count);
    for (slot, values) in by_slot {
        assert!(values.is_sorted(), "slot {slot}: {values:?}");
    }
}

#[test]
fn commands_go_to_the_owners_of_their_slots() {
    let nodes = Nodes::start(3, |_, _| Reaction::Default);
    let mut cluster = nodes.connect();
    let keys = many_keys(1000);
    check_results(&keys, &cluster.run(&sets(&keys)));
    check_order(&nodes, 1000);
    // The map was right: no command was redirected, and the map was read once.
    let state = nodes.state.lock().unwrap();
    assert_eq!((state.seen, state.maps_read), (1000, 1));
    drop(state);
    assert_eq!(text(&cluster.exchange(&["SET", "foo", "1"])), "foo=1@2");
    assert_eq!(cluster.slot_of(&["SET", "foo"]).map(Slot::number), Some(12182));
    assert_eq!(cluster.map().primaries().len(), 3);
}

#[test]
fn moved_slots_are_found_and_the_map_is_read_again() {
    let nodes = Nodes::start(2, |_, _| Reaction::Default);
    let mut cluster = nodes.connect();
    nodes.set_owners(&[(0, 16383, 1)]);
    let keys = many_keys(300);
    check_results(&keys, &cluster.run(&sets(&keys)));
    check_order(&nodes, 300);
    assert_eq!(nodes.state.lock().unwrap().maps_read, 2);
    let seen = nodes.state.lock().unwrap().seen;
    check_results(&keys, &cluster.run(&sets(&keys)));
    assert_eq!(nodes.state.lock().unwrap().seen, seen + 300, "the second run is not redirected");
}

/// Slots move while a pipeline is on its way, back and forth.
#[test]
fn a_map_that_changes_within_a_pipeline_keeps_the_order_of_each_slot() {
    let nodes = Nodes::start(3, |seen, owners| {
        if seen.number % 97 == 96 {
            for (_, _, node) in owners.iter_mut() {
                *node = (*node + 1) % 3;
            }
        }
        Reaction::Default
    });
    let options = ClusterOptions {
        pause: PAUSE,
        window: Window::of(16),
        strict_order: true,
        attempts_max: 100,
        ..ClusterOptions::default()
    };
    let mut cluster = nodes.connect_with(options);
    let keys = many_keys(500);
    check_results(&keys, &cluster.run(&sets(&keys)));
    check_order(&nodes, 500);
}

/// The first node gives its slots away after some commands. Later ones in flight are redirected as well, so that the
/// order of each slot holds without strict order.
#[test]
fn a_slot_that_leaves_for_good_keeps_its_order() {
    let nodes = Nodes::start(2, |seen, owners| {
        if seen.number == 40 {
            *owners = vec![(0, 16383, 1)];
        }
        Reaction::Default
    });
    let mut cluster = nodes.connect();
    let keys = many_keys(400);
    check_results(&keys, &cluster.run(&sets(&keys)));
    check_order(&nodes, 400);
}

#[test]
fn asked_commands_go_to_the_other_node_once() {
    let port = Arc::new(Mutex::new(0));
    let target = port.clone();
    // Keys of the first node with an odd last digit have left already.
    let nodes = Nodes::start(2, move |seen, _| {
        let slot = key_slot(seen.key.as_bytes()).number();
        let has_left = seen.key.ends_with(['1', '3', '5', '7', '9']);
        match seen.node {
            0 if slot < 8192 && has_left => {
                Reaction::Reply(format!("-ASK {slot} 127.0.0.1:{}", target.lock().unwrap()))
            }
            _ => Reaction::Default,
        }
    });
    *port.lock().unwrap() = nodes.state.lock().unwrap().addresses[1].port;
    let mut cluster = nodes.connect();
    let keys = many_keys(200);
    let results = cluster.run(&sets(&keys));
    check_results(&keys, &results);
    check_order(&nodes, 200);
    let state = nodes.state.lock().unwrap();
    let (mut asked, mut kept) = (0, 0);
    for (node, key, _) in state.ran.iter().filter(|(_, key, _)| key_slot(key.as_bytes()).number() < 8192) {
        let has_left = key.ends_with(['1', '3', '5', '7', '9']);
        assert_eq!(*node, usize::from(has_left), "{key}");
        *if has_left { &mut asked } else { &mut kept } += 1;
    }
    assert!(asked > 0 && kept > 0);
    assert_eq!(state.maps_read, 1, "ASK doesn't change the map");
}

#[test]
fn commands_wait_for_keys_that_are_on_their_way() {
    let mut refusals = 3;
    let nodes = Nodes::start(1, move |seen, _| {
        if seen.key == "b" && refusals > 0 {
            refusals -= 1;
            return Reaction::Reply("-TRYAGAIN Multiple keys request during rehashing of slot".into());
        }
        Reaction::Default
    });
    let mut cluster = nodes.connect();
    let results = cluster.run(&sets(["a", "b", "c"]));
    assert_eq!(results.iter().map(text).collect::<Vec<_>>(), ["a=0@0", "b=1@0", "c=2@0"]);
}

#[test]
fn attempts_are_bounded() {
    let check = |reply: &'static str, attempts: usize| {
        let nodes = Nodes::start(1, move |_, _| Reaction::Reply(reply.into()));
        let mut cluster =
            nodes.connect_with(ClusterOptions { pause: PAUSE, attempts_max: 4, ..ClusterOptions::default() });
        assert_eq!(text(&cluster.exchange(&["SET", "k", "1"])), reply[1..]);
        assert_eq!(nodes.state.lock().unwrap().seen, attempts, "{reply}");
    };
    check("-TRYAGAIN later", 4);
    check("-CLUSTERDOWN The cluster is down", 4);
    check("-CROSSSLOT Keys in request don't hash to the same slot", 1);
    check("-ERR other", 1);
}

/// Two nodes that send a command to each other for ever.
#[test]
fn nodes_that_disagree_are_given_up() {
    let ports = Arc::new(Mutex::new(Vec::new()));
    let known = ports.clone();
    let nodes = Nodes::start(2, move |seen, _| {
        let known: std::sync::MutexGuard<'_, Vec<u16>> = known.lock().unwrap();
        Reaction::Reply(format!("-MOVED 1 127.0.0.1:{}", known[1 - seen.node]))
    });
    *ports.lock().unwrap() = nodes.state.lock().unwrap().addresses.iter().map(|node| node.port).collect();
    let mut cluster = nodes.connect();
    assert!(text(&cluster.exchange(&["SET", "k", "1"])).starts_with("MOVED 1 "));
    assert_eq!(nodes.state.lock().unwrap().seen, ATTEMPTS_MAX as usize);
}

#[test]
fn a_cluster_that_is_down_for_a_moment_is_waited_for() {
    let mut left = 5;
    let nodes = Nodes::start(2, move |_, _| {
        if left > 0 {
            left -= 1;
            return Reaction::Reply("-CLUSTERDOWN The cluster is down".into());
        }
        Reaction::Default
    });
    let mut cluster = nodes.connect();
    let keys = many_keys(100);
    check_results(&keys, &cluster.run(&sets(&keys)));
}

/// A command whose connection broke isn't sent again; other slots go on.
#[test]
fn a_broken_connection_leaves_fates() {
    let nodes = Nodes::start(2, |seen, _| match seen.node {
        0 if seen.value == "2" => Reaction::Close,
        _ => Reaction::Default,
    });
    // "a" has a slot of the second node; "b" and "f" have slots of the first.
    assert!(key_slot(b"a").number() > 8191 && key_slot(b"b").number() < 8192 && key_slot(b"f").number() < 8192);
    let options = ClusterOptions { pause: PAUSE, window: Window::of(1), ..ClusterOptions::default() };
    let mut cluster = nodes.connect_with(options);
    let results = cluster.run(&sets(["b", "a", "b", "b", "f", "a"]));
    assert_eq!(text(&results[0]), "b=0@0");
    assert_eq!([1, 4, 5].map(|at: usize| text(&results[at])), ["a=1@1", "f=4@0", "a=5@1"]);
    let fate = |result: &Result<Value, Error>| match result {
        Err(error @ Error::Lost { cause: Lost::Closed | Lost::Io(_), .. }) => error.fate(),
        other => panic!("{other:?}"),
    };
    assert_eq!((fate(&results[2]), fate(&results[3])), (Fate::MayHaveRun, Fate::NotRun));
    let ran = &nodes.state.lock().unwrap().ran;
    assert!(ran.iter().all(|(_, _, value)| value != "2" && value != "3"), "{ran:?}");
}

#[test]
fn a_dead_node_is_replaced_by_the_slots_new_owner() {
    let nodes = Nodes::start(2, |_, _| Reaction::Default);
    // The second node's slots belong to a port without a listener.
    let dead = free_port().unwrap();
    {
        let mut state = nodes.state.lock().unwrap();
        state.addresses.push(NodeAddress { host: "127.0.0.1".into(), port: dead });
        state.owners = vec![(0, 8191, 0), (8192, 16383, 2)];
    }
    let options = ClusterOptions { pause: Duration::from_millis(50), ..ClusterOptions::default() };
    let mut cluster = nodes.connect_with(options);
    let state = nodes.state.clone();
    let failover = thread::spawn(move || {
        thread::sleep(Duration::from_millis(150));
        state.lock().unwrap().owners = vec![(0, 8191, 0), (8192, 16383, 1)];
    });
    let keys = many_keys(100);
    check_results(&keys, &cluster.run(&sets(&keys)));
    check_order(&nodes, 100);
    failover.join().unwrap();
}

#[test]
fn a_node_that_stays_dead_costs_only_its_own_commands() {
    let nodes = Nodes::start(2, |_, _| Reaction::Default);
    let dead = free_port().unwrap();
    nodes.state.lock().unwrap().addresses[1].port = dead;
    let mut cluster = nodes.connect();
    let results = cluster.run(&sets(["b", "a"]));
    assert_eq!(text(&results[0]), "b=0@0");
    let error = results[1].as_ref().unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.fate() == Fate::NotRun, "{error:?}");
}

#[test]
fn commands_of_the_connection_are_refused() {
    let nodes = Nodes::start(1, |_, _| Reaction::Default);
    let mut cluster = nodes.connect();
    let mut pipeline = Pipeline::new();
    pipeline.add(&["MULTI"]).add(&["SET", "a", "1"]).add(&["BLPOP", "a", "0"]).add(&["ASKING"]);
    let results = cluster.run(&pipeline);
    for (at, name) in [(0, "MULTI"), (2, "BLPOP"), (3, "ASKING")] {
        assert!(matches!(&results[at], Err(Error::NotShareable(refused)) if refused == name), "{:?}", results[at]);
    }
    assert_eq!(text(&results[1]), "a=1@0");
}

#[test]
fn transactions_follow_their_slots() {
    let nodes = Nodes::start(2, |_, _| Reaction::Default);
    let mut cluster = nodes.connect();
    nodes.set_owners(&[(0, 16383, 1)]);
    let mut transactions = Vec::new();
    for (number, key) in ["b", "a", "b"].into_iter().enumerate() {
        let mut transaction = SlotTransaction::new(key_slot(key.as_bytes()));
        transaction.add(&["SET", key, &number.to_string()]).add(&["SET", key, &(number + 10).to_string()]);
        transactions.push(transaction);
    }
    let results = cluster.run_transactions(&transactions);
    let expected = |key: &str, number: usize| {
        let reply = |value: usize| Value::Simple(format!("{key}={value}@1").into_bytes());
        Transacted::Executed(vec![reply(number), reply(number + 10)])
    };
    for (number, (key, result)) in ["b", "a", "b"].into_iter().zip(results).enumerate() {
        assert_eq!(result.unwrap(), expected(key, number));
    }
    assert_eq!(nodes.ran_by_slot()[&key_slot(b"b").number()], [0, 10, 2, 12]);
    transactions[0].add(&["WRONG", "b", "1"]);
    let refused = cluster.run_transactions(&transactions[..1]).remove(0).unwrap();
    assert_eq!(refused, Transacted::Refused(vec![(2, Value::Error(b"ERR unknown command".to_vec()))]));
}

#[test]
fn a_server_without_cluster_support_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = [0; 4096];
        while let Ok(1..) = stream.read(&mut piece) {
            let _ = stream.write_all(b"-ERR This instance has cluster support disabled\r\n");
        }
    });
    let error = Cluster::connect(&Config::tcp("127.0.0.1", port)).unwrap_err();
    assert_eq!(error.server().unwrap().to_string(), "ERR This instance has cluster support disabled");
    let error = Cluster::connect(&Config::unix("/nowhere")).unwrap_err();
    assert!(matches!(error, Error::Config(_)));
}
