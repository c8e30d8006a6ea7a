//! The connections of earlier runs.
//!
//! A node goes on executing the transactions that a killed loader has sent. A marker is final only once that connection
//! has ended, so each load has a name of its own for its connections, and the next run waits until it alone has it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use client::cluster::{Cluster, NodeAddress};
use client::{Config, Value};

/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A connection that has executed nothing for so long, in seconds, has nothing left to execute. The network to its loader is cut.
const IDLE_S: u64 = 5;

/// A pause in place of the look, if a node refuses CLIENT LIST.
const UNSEEN_PAUSE: Duration = Duration::from_secs(1);

/// Gives the connections of a load a name of their own, and returns it.
pub fn name_connections(config: &mut Config, token: &str) -> Vec<u8> {
    let is_chosen = config.client_name.is_some();
    let chosen = config.client_name.take().unwrap_or_else(|| b"penstock".to_vec());
    let name = [&chosen[..], b"-", token.as_bytes()].concat();
    // A server may refuse a name that the user has not chosen.
    let place = if is_chosen { &mut config.client_name } else { &mut config.fallback_name };
    *place = Some(name.clone());
    name
}

/// Waits until other connections with the name of this load's connections have ended, at most for `max`.
///
/// # Errors
/// Returns a node that still has such a connection.
pub fn wait_for_end(cluster: &mut Cluster, name: &[u8], max: Duration) -> Result<(), NodeAddress> {
    let began = Instant::now();
    loop {
        let Some(node) = find(cluster, name) else { return Ok(()) };
        if began.elapsed() >= max {
            return Err(node);
        }
        sleep(LOOK_PAUSE);
    }
}

/// Returns a node with another connection of this name that may execute commands.
fn find(cluster: &mut Cluster, name: &[u8]) -> Option<NodeAddress> {
    let ids = cluster.on_each_primary(&["CLIENT", "ID"]);
    let lists = cluster.on_each_primary(&["CLIENT", "LIST"]);
    let mut is_unseen = false;
    let mut found = None;
    for ((node, list), (_, id)) in lists.into_iter().zip(ids) {
        // A node that does not answer is asked for its markers later.
        let (Ok(list), Ok(id)) = (list, id) else { continue };
        is_unseen |= list.error().is_some();
        let (Some(list), Value::Int(id)) = (list.bytes(), id) else { continue };
        let list = String::from_utf8_lossy(list);
        let name = String::from_utf8_lossy(name);
        if list.lines().any(|line| is_other(line, &name, &id.to_string())) {
            found = Some(node);
        }
    }
    if is_unseen {
        sleep(UNSEEN_PAUSE);
    }
    found
}

/// True if a line of CLIENT LIST is of another connection with this name that is not idle.
fn is_other(line: &str, name: &str, own_id: &str) -> bool {
    let field = |wanted: &str| line.split(' ').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='));
    let idle_s = field("idle").and_then(|idle| idle.parse::<u64>().ok()).unwrap_or(0);
    field("name") == Some(name) && field("id") != Some(own_id) && idle_s < IDLE_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_connection_of_the_load_is_told_from_its_own() {
        let line = |id: u64, name: &str, idle_s: u64| {
            format!("id={id} addr=1.2.3.4:5 name={name} age=9 idle={idle_s} flags=N")
        };
        assert!(is_other(&line(7, "penstock-x", 0), "penstock-x", "8"));
        assert!(!is_other(&line(8, "penstock-x", 0), "penstock-x", "8"));
        assert!(!is_other(&line(7, "penstock-y", 0), "penstock-x", "8"));
        assert!(!is_other(&line(7, "penstock-x", IDLE_S), "penstock-x", "8"));
    }

    #[test]
    fn a_load_keeps_the_name_that_the_user_gave() {
        let mut config = Config::parse("redis://localhost?client_name=import").unwrap();
        assert_eq!(name_connections(&mut config, "load-1"), b"import-load-1");
        assert_eq!(config.client_name.as_deref(), Some(&b"import-load-1"[..]));
        let mut config = Config::tcp("localhost", 1);
        assert_eq!(name_connections(&mut config, "load-1"), b"penstock-load-1");
        assert_eq!((config.client_name, config.fallback_name.as_deref()), (None, Some(&b"penstock-load-1"[..])));
    }
}
