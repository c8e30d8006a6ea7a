//! Searches: each of their commands needs an earlier reply, although no reply contains its key.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use super::traffic::{Traffic, steps};
use crate::findings::Kind;

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

/// A chain of records. The key of each one is the hexadecimal form of a number in the record before.
#[test]
fn hexadecimal_keys_of_decimal_numbers() {
    let mut random = Random(19);
    let mut traffic = Traffic::logged_in();
    let mut block = 1_u64 << 24;
    for _ in 0..200 {
        let next = random.below(1 << 31);
        traffic.send(&format!("GET blk:{block:08x}"), &format!("{{\"next\":{next}}}"));
        block = next;
    }
    traffic.assert_clean();
}

/// The digests of two replicas are compared from the root. The key is the way from the root, or level and index.
#[test]
fn the_nodes_of_a_hash_tree() {
    const LEVELS: u32 = 10;
    let by_way = |level: u32, index: u64| format!("GET tree:{index:0width$b}", width = level as usize);
    let by_index = |level: u32, index: u64| format!("GET tree:{level}:{index}");
    let by_number = |level: u32, index: u64| format!("GET tree:{}", (1 << level) + index);
    for form in [&by_way as &dyn Fn(u32, u64) -> String, &by_index, &by_number] {
        let mut random = Random(23);
        let mut traffic = Traffic::logged_in();
        let differing: HashSet<u64> = (0..7).map(|_| random.below(1 << LEVELS)).collect();
        let mut open = vec![(0, 0_u64)];
        while let Some((level, index)) = open.pop() {
            traffic.send(&form(level, index), &format!("{:020x}{:020x}", random.below(1 << 30), random.below(1 << 30)));
            let below = LEVELS - level;
            if level < LEVELS && differing.iter().any(|leaf| leaf >> below == index) {
                open.extend([(level + 1, 2 * index), (level + 1, 2 * index + 1)]);
            }
        }
        traffic.assert_clean();
    }
}

/// The client follows the links of a skip list, on each level as far as possible.
#[test]
fn the_links_of_a_skip_list() {
    let mut random = Random(29);
    let mut nodes: Vec<u64> = (0..300).map(|_| 1000 + random.below(90_000)).collect();
    nodes.sort_unstable();
    let levels: Vec<u32> = nodes.iter().map(|_| random.below(1 << 20).trailing_zeros().min(8)).collect();
    let after = |place: usize, level: u32| (place..nodes.len()).find(|&other| levels[other] >= level);
    let mut traffic = Traffic::logged_in();
    for _ in 0..15 {
        let target = nodes[random.below(300) as usize];
        // The links of the place before a node are those of the node before it.
        let (mut place, mut level) = (0, 8);
        loop {
            let node = if place == 0 { "head".to_owned() } else { nodes[place - 1].to_string() };
            let next = after(place, level);
            let reply = next.map_or("nil".to_owned(), |next| nodes[next].to_string());
            traffic.send(&format!("HGET skip:{node} l{level}"), &reply);
            match next.filter(|&next| nodes[next] < target) {
                Some(next) => place = next + 1,
                None if level == 0 => break,
                None => level -= 1,
            }
        }
    }
    traffic.assert_clean();
}

/// The client completes a word: of the likely next letters it takes one.
#[test]
fn the_prefixes_of_a_word() {
    let mut random = Random(31);
    let mut traffic = Traffic::logged_in();
    let mut letters = || ["e", "t", "a", "o", "i", "n", "s", "h", "r"][random.below(9) as usize].to_owned();
    for _ in 0..10 {
        let mut prefix = letters();
        for _ in 0..16 {
            let likely = [letters(), letters(), letters()];
            let key = format!("trie:{prefix}");
            traffic.send_words(&[b"ZREVRANGE", key.as_bytes(), b"0", b"2"], 1, &array(&likely));
            prefix += &likely[1];
        }
    }
    traffic.assert_clean();
}

/// A search in breadth: the friends of each person are asked for long after a reply has named the person.
#[test]
fn the_friends_of_friends() {
    for first in [1, 5000] {
        let mut random = Random(37);
        let mut friends: Vec<HashSet<u64>> = vec![HashSet::new(); 160];
        for person in 0..160 {
            for other in [(person + 1) % 160, random.below(160), random.below(160)] {
                friends[person as usize].insert(other);
                friends[other as usize].insert(person);
            }
        }
        let mut traffic = Traffic::logged_in();
        let (mut queue, mut seen) = (std::collections::VecDeque::from([0]), HashSet::from([0]));
        while let Some(person) = queue.pop_front() {
            let mut near: Vec<u64> = friends[person as usize].iter().copied().collect();
            near.sort_unstable();
            let names: Vec<_> = near.iter().map(|friend| (first + friend * 7 % 160).to_string()).collect();
            let key = format!("friends:{}", first + person * 7 % 160);
            traffic.send_words(&[b"SMEMBERS", key.as_bytes()], 1, &array(&names));
            queue.extend(near.into_iter().filter(|friend| seen.insert(*friend)));
        }
        traffic.assert_clean();
    }
}

/// The articles of each order are in the order's row of another database. No key comes back, so this is no search.
#[test]
fn articles_of_orders_are_no_search() {
    let mut random = Random(41);
    let mut traffic = Traffic::logged_in();
    for _ in 0..60 {
        let keys: Vec<_> = (0..4).map(|_| format!("article:{}", random.below(90_000))).collect();
        let titles: Vec<_> = keys.iter().map(|key| format!("title of {key}")).collect();
        mget(&mut traffic, &keys, &titles);
    }
    assert_eq!(traffic.only().total.kind, Kind::Loop);
}

/// The articles of each order are known from the order.
#[test]
fn articles_that_a_reply_names_are_no_search() {
    let mut random = Random(43);
    let mut traffic = Traffic::logged_in();
    for order in 0..40 {
        let ids: Vec<_> = (0..4).map(|_| (1000 + random.below(60)).to_string()).collect();
        let key = format!("order:{}:articles", 5000 + order * 17 % 91);
        traffic.send_words(&[b"LRANGE", key.as_bytes(), b"0", b"-1"], 1, &array(&ids));
        let keys: Vec<_> = ids.iter().map(|id| format!("article:{id}")).collect();
        let titles: Vec<_> = ids.iter().map(|_| format!("title {}", random.below(90_000))).collect();
        mget(&mut traffic, &keys, &titles);
    }
    assert_eq!(traffic.only().total.kind, Kind::InterleavedLoop);
}

/// The keys of the second loop stand in the replies to the first one, which the client had before.
#[test]
fn a_loop_over_the_replies_to_another_loop_is_no_walk() {
    let mut random = Random(47);
    let mut traffic = Traffic::logged_in();
    let users: Vec<_> = (0..100).map(|_| 1000 + random.below(90_000)).collect();
    for (place, user) in users.iter().enumerate() {
        traffic.send(&format!("HGET order:{} user", 3000 + place * 37 % 101), &user.to_string());
    }
    for user in users {
        traffic.send(&format!("GET user:{user}"), &format!("name {}", random.below(90_000)));
    }
    let steps: Vec<_> = traffic.groups().iter().flat_map(steps).collect();
    assert!(steps.contains(&"GET user:<n>".to_owned()), "{steps:?}");
}

/// Shuffled numbers: half of each one, and the number without its last digit, were asked for before by chance.
#[test]
fn numbers_in_any_order_are_no_tree() {
    let mut random = Random(53);
    let mut numbers: Vec<u64> = (1..300).collect();
    for place in 1..numbers.len() {
        numbers.swap(place, random.below(place as u64 + 1) as usize);
    }
    let mut traffic = Traffic::logged_in();
    for number in numbers {
        traffic.send(&format!("GET seat:{number}"), &format!("guest {}", 10_000 + random.below(80_000)));
    }
    assert_eq!(steps(&traffic.only()), ["GET seat:<n>"]);
}

/// Sends reads, each with its key and its reply.
fn assert_chain(reads: impl Iterator<Item = (String, String)>) {
    let mut traffic = Traffic::new();
    reads.for_each(|(key, text)| traffic.send(&format!("GET {key}"), &text));
    traffic.assert_clean();
}

fn amount(n: u64) -> u64 {
    n * n * 31 % 57 + 2
}

/// The key lies as far behind the last one as a number of the reply tells.
#[test]
fn keys_at_a_distance_from_the_reply_are_a_chain() {
    assert_chain((1..100).scan(9000, |place, n| {
        let key = format!("backup:{place}");
        *place -= amount(n);
        Some((key, format!("{{\"kind\":\"part\",\"back\":{}}}", amount(n))))
    }));
}

#[test]
fn segments_behind_values_of_any_length_are_a_chain() {
    assert_chain((1..100).scan(0, |place, n| {
        let key = format!("segment:{place}");
        *place += amount(n);
        Some((key, "x".repeat(amount(n) as usize)))
    }));
}

#[test]
fn a_walk_from_cell_to_cell_is_clean() {
    assert_chain((1..100).scan((0, 0), |(x, y), n: u64| {
        let key = format!("cell:{x}:{y}");
        let goes_east = amount(n).is_multiple_of(2);
        *if goes_east { x } else { y } += 1;
        Some((key, if goes_east { "E" } else { "N" }.to_owned()))
    }));
}

#[test]
fn keys_of_times_and_of_tokens_in_replies_are_a_chain() {
    use base64::Engine;
    assert_chain((1..100).scan(1_750_000_000, |time, n| {
        let [_, hour] = crate::dates::of_time(*time).unwrap();
        *time += amount(n) * 4000;
        Some((format!("hour:{hour}"), format!("{{\"next\":{time},\"errors\":{}}}", amount(n) % 9)))
    }));
    let token = |n: u64| base64::engine::general_purpose::STANDARD.encode(format!("v1|{}", n * n * 7919 % 100_003));
    let page = |n: u64| (format!("page:{}", n * n * 7919 % 100_003), format!("{{\"token\":\"{}\"}}", token(n + 1)));
    assert_chain((1..100).map(page));
}

/// The key is the digest of a link in the page before.
#[test]
fn digests_of_links_are_a_chain() {
    let link = |n: u64| format!("https://site{}.example/{n}", n * 7919 % 97);
    let key = |n: u64| format!("page:{}", crate::digest::digest(link(n).as_bytes(), 40));
    assert_chain((1..100).map(|n| (key(n), format!("<a href=\"{}\">next</a>", link(n + 1)))));
}
