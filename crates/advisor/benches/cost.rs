//! The cost of a look at a trip: `cargo bench -p penstock-advisor`; `TRIPS=N` sets the number of measured trips.

use advisor::client::Client;
use advisor::{Advisor, Config, Connection, Reply, Trip};
use resp::request::OwnedArgs;

/// Connections that take turns, as they do in a server.
const CONNECTIONS: usize = 50;

/// Number of measured trips; fewer are enough under an instruction counter.
fn trips() -> usize {
    std::env::var("TRIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000_000)
}

/// Returns the CPU time of this thread in nanoseconds, from the kernel, or 0 where the system doesn't provide it. Other
/// processes may use the machine meanwhile, so wall time is not used.
fn thread_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Nanoseconds a trip, for these commands, each with a number in it.
fn cost(commands: &[(&str, &[u8])], depth: u32) -> f64 {
    let mut advisor = Advisor::new(Config::default());
    let connect = |id| Connection::new(id as u64, Client::default());
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(connect).collect();
    let requests: Vec<(OwnedArgs, &[u8])> = (0..4096)
        .map(|number| {
            let (command, reply) = commands[number / CONNECTIONS % commands.len()];
            let command = command.replace('#', &(number * 7919 % 100_000).to_string());
            (OwnedArgs::new(command.split(' ').map(str::as_bytes)), reply)
        })
        .collect();
    let trips = trips();
    let begin = thread_ns();
    for turn in 0..trips {
        let (request, reply) = &requests[turn % requests.len()];
        let now_ns = (turn / CONNECTIONS) as u64 * 60_000;
        let trip = Trip {
            command: request.args(),
            key: None,
            depth,
            overlaps: false,
            arrived_ns: now_ns + 50_000,
            replied_ns: now_ns + 52_000,
            reply: Some(Reply::whole(reply)),
            redirected: 0,
        };
        advisor.trip(&mut connections[turn % CONNECTIONS], &trip);
    }
    (thread_ns() - begin) as f64 / trips as f64
}

fn main() {
    let value = b"$16\r\nxxxxxxxxxxxxxxxx\r\n";
    let report = |name: &str, ns: f64| println!("{name}: {ns:.0} ns a trip");
    report("GET key:#", cost(&[("GET key:#", value)], 1));
    report("SET key:# value", cost(&[("SET key:# xxxxxxxxxxxxxxxx", b"+OK\r\n")], 1));
    report("INCR counter:#", cost(&[("INCR counter:#", b":12345\r\n")], 1));
    report("HGET user:#:profile name", cost(&[("HGET user:#:profile name", value)], 1));
    let mixed: &[(&str, &[u8])] =
        &[("GET session:#", value), ("HGETALL user:#:profile", b"*0\r\n"), ("ZADD index:# 5 x", b":1\r\n")];
    report("three in turn", cost(mixed, 1));
    report("batches of several", cost(&[("GET key:#", value)], 16));
}
