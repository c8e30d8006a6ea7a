//! Searches: each of their commands needs an earlier reply, although no reply contains its key.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::traffic::Traffic;

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn array(values: &[String]) -> Vec<u8> {
    let mut reply = format!("*{}\r\n", values.len());
    values.iter().for_each(|value| reply += &format!("${}\r\n{value}\r\n", value.len()));
    reply.into_bytes()
}

fn mget(traffic: &mut Traffic, keys: &[String], values: &[String]) {
    let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(keys.iter().map(String::as_bytes)).collect();
    traffic.send_words(&words, 1, &array(values));
}

/// The client knows the graph, and reads the current lengths of its edges.
#[test]
fn the_lengths_of_edges() {
    const NODES: u64 = 200;
    let mut random = Random(7);
    let edges: Vec<Vec<u64>> = (0..NODES).map(|_| (0..4).map(|_| random.below(NODES)).collect()).collect();
    let mut traffic = Traffic::logged_in();
    let (mut open, mut seen) = (BinaryHeap::from([Reverse((0, 0_u64))]), HashSet::new());
    while let Some(Reverse((way, node))) = open.pop() {
        if !seen.insert(node) {
            continue;
        }
        let near = &edges[node as usize];
        let keys: Vec<_> = near.iter().map(|other| format!("w:{node}:{other}")).collect();
        let lengths: Vec<_> = near.iter().map(|_| 1 + random.below(500)).collect();
        mget(&mut traffic, &keys, &lengths.iter().map(u64::to_string).collect::<Vec<_>>());
        near.iter().zip(lengths).for_each(|(other, length)| open.push(Reverse((way + length, *other))));
    }
    traffic.assert_clean();
}

/// The client looks for a way through a grid, and reads the costs of the cells around the best one.
#[test]
fn the_cells_of_a_grid() {
    const SIZE: u64 = 40;
    let mut random = Random(5);
    let costs: Vec<u64> = (0..SIZE * SIZE).map(|_| 1 + random.below(9)).collect();
    let mut traffic = Traffic::logged_in();
    let (mut open, mut seen, mut known) =
        (BinaryHeap::from([Reverse((0, (0_u64, 0_u64)))]), HashSet::new(), HashMap::from([((0, 0), 0)]));
    while let Some(Reverse((_, (x, y)))) = open.pop() {
        if seen.len() > 200 || !seen.insert((x, y)) {
            continue;
        }
        let around = [(x + 1, y), (x.wrapping_sub(1), y), (x, y + 1), (x, y.wrapping_sub(1))];
        let near: Vec<_> = around.into_iter().filter(|(x, y)| *x < SIZE && *y < SIZE).collect();
        let cost = |(x, y): &(u64, u64)| costs[(x * SIZE + y) as usize];
        let keys: Vec<_> = near.iter().map(|(x, y)| format!("cell:{x}:{y}")).collect();
        mget(&mut traffic, &keys, &near.iter().map(|cell| cost(cell).to_string()).collect::<Vec<_>>());
        for cell in near {
            let way = known[&(x, y)] + cost(&cell);
            if known.get(&cell).is_none_or(|other| way < *other) {
                known.insert(cell, way);
                open.push(Reverse((way + 2 * SIZE - cell.0 - cell.1, cell)));
            }
        }
    }
    traffic.assert_clean();
}

/// Each node of a decision tree names a feature and a limit. The number of the next node follows from both.
#[test]
fn the_nodes_of_a_decision_tree() {
    let mut random = Random(13);
    let mut traffic = Traffic::logged_in();
    let limits: Vec<u64> = (0..1024).map(|_| 10 + random.below(80)).collect();
    for _ in 0..20 {
        let mut node = 1_usize;
        while node < 512 {
            let words = format!("HMGET tree:{node} feature below");
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let feature = ["age", "income", "visits"][node % 3].to_owned();
            traffic.send_words(&words, 1, &array(&[feature, limits[node].to_string()]));
            node = 2 * node + usize::from(random.below(100) >= limits[node]);
        }
    }
    traffic.assert_clean();
}

/// The client looks for the first line of a day in a list that is ordered by time: it doubles the index until the line is too late, and then
/// halves the distance.
#[test]
fn the_first_line_of_a_day() {
    let mut random = Random(17);
    let mut times = vec![0];
    (0..5000).for_each(|_| times.push(times.last().unwrap() + 1 + random.below(40)));
    let mut traffic = Traffic::logged_in();
    for target in [9000, 31_000, 52_000, 77_000, 90_000] {
        let mut is_before = |index: usize| {
            let reply = times.get(index).map_or("nil".to_owned(), |time| format!("{{\"t\": {time}}}"));
            traffic.send(&format!("LINDEX log {index}"), &reply);
            times.get(index).is_some_and(|time| *time < target)
        };
        let mut high = 1;
        while is_before(high) {
            high *= 2;
        }
        let mut low = high / 2;
        while low < high {
            let middle = (low + high) / 2;
            (low, high) = if is_before(middle) { (middle + 1, high) } else { (low, middle) };
        }
    }
    traffic.assert_clean();
}
