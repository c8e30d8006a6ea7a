//! Links between processes and clients: each delivers bytes in order, with varying delays, and may break at any byte.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use store::random::Random;

/// Most bytes in flight in one direction.
const WINDOW_BYTES: usize = 32 << 10;
/// Longest delay of bytes on a link that is not blocked, in microseconds.
const DELAY_US: usize = 3_000;
/// Longest additional delay of a late message, in microseconds.
const LATE_US: usize = 350_000;

/// The number of a link.
pub type WireId = u64;

/// An end of a link: 0 is the side that opened it.
pub type Side = usize;

/// The bytes in flight in one direction.
#[derive(Default)]
struct Flight {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// Arrival time of the last bytes.
    last_us: u64,
    /// True if no bytes follow.
    is_ended: bool,
}

struct Wire {
    /// The processes at the ends; None for a client.
    ends: [Option<usize>; 2],
    /// The bytes in flight, by the sending side.
    flights: [Flight; 2],
}

/// See the module's documentation.
pub struct Network {
    wires: BTreeMap<WireId, Wire>,
    next: WireId,
    random: Random,
    /// Blocked ways from one process to another: no bytes arrive, and no link can be opened.
    blocked: BTreeSet<(usize, usize)>,
    /// One of so many messages is late; 0 if none is.
    late_odds: usize,
    /// The processes that bytes are on their way to, with the time of arrival.
    arrivals: Vec<(u64, usize)>,
    /// New links, with the process that has not accepted them yet.
    opened: Vec<(usize, WireId)>,
}

impl Network {
    /// Returns a network without links.
    #[must_use]
    pub fn new(seed: u64) -> Network {
        Network {
            wires: BTreeMap::new(),
            next: 1,
            random: Random::new(seed),
            blocked: BTreeSet::new(),
            late_odds: 0,
            arrivals: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// Blocks or unblocks the links between two processes.
    pub fn block(&mut self, a: usize, b: usize, is_blocked: bool) {
        self.block_way(a, b, is_blocked);
        self.block_way(b, a, is_blocked);
    }

    /// Blocks or unblocks the way from one process to another. Bytes that were sent meanwhile arrive afterwards.
    pub fn block_way(&mut self, from: usize, to: usize, is_blocked: bool) {
        if is_blocked {
            self.blocked.insert((from, to))
        } else {
            self.blocked.remove(&(from, to))
        };
    }

    /// Unblocks all links.
    pub fn unblock_all(&mut self) {
        self.blocked.clear();
    }

    /// Makes one of `odds` messages late, by some hundred milliseconds.
    pub fn be_late(&mut self, odds: usize) {
        self.late_odds = odds;
    }

    /// Returns true if bytes pass from one process to another.
    #[must_use]
    pub fn passes(&self, from: usize, to: usize) -> bool {
        !self.blocked.contains(&(from, to))
    }

    /// Returns true if bytes pass from one end to the other. Nothing blocks the links of clients.
    fn passes_between(&self, from: Option<usize>, to: Option<usize>) -> bool {
        from.zip(to).is_none_or(|(from, to)| self.passes(from, to))
    }

    /// Takes the arrivals at processes since the last call, each with its time.
    pub fn take_arrivals(&mut self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.arrivals)
    }

    /// Opens a link, unless it is blocked.
    pub fn open(&mut self, ends: [Option<usize>; 2]) -> Option<WireId> {
        if !self.passes_between(ends[0], ends[1]) || !self.passes_between(ends[1], ends[0]) {
            return None;
        }
        let wire = self.next;
        self.next += 1;
        self.wires.insert(wire, Wire { ends, flights: Default::default() });
        self.opened.extend(ends[1].map(|process| (process, wire)));
        Some(wire)
    }

    /// Takes the links that were opened since the last call, each with its destination process.
    #[must_use]
    pub fn take_opened(&mut self) -> Vec<(usize, WireId)> {
        std::mem::take(&mut self.opened)
    }

    /// Returns how many bytes the link accepts from this side now.
    #[must_use]
    pub fn room(&self, wire: WireId, side: Side) -> usize {
        self.wires.get(&wire).map_or(0, |wire| WINDOW_BYTES.saturating_sub(wire.flights[side].bytes))
    }

    /// Sends bytes. They are lost if the link is gone.
    pub fn send(&mut self, wire: WireId, side: Side, bytes: &[u8], now_us: u64) {
        let mut delay = 20 + self.random.below(DELAY_US) as u64;
        if self.late_odds > 0 && self.random.below(self.late_odds) == 0 {
            delay += self.random.below(LATE_US) as u64;
        }
        let Some(wire) = self.wires.get_mut(&wire) else { return };
        let flight = &mut wire.flights[side];
        if flight.is_ended || bytes.is_empty() {
            return;
        }
        flight.last_us = flight.last_us.max(now_us + delay);
        flight.bytes += bytes.len();
        flight.pieces.push_back((flight.last_us, bytes.to_vec()));
        self.arrivals.extend(wire.ends[1 - side].map(|process| (flight.last_us, process)));
    }

    /// Receives the bytes that have arrived at this side, or some of them. The flag is true if no more bytes follow.
    pub fn receive(&mut self, id: WireId, side: Side, now_us: u64) -> (Vec<u8>, bool) {
        let Some(wire) = self.wires.get(&id) else { return (Vec::new(), true) };
        if !self.passes_between(wire.ends[1 - side], wire.ends[side]) {
            return (Vec::new(), false);
        }
        let splits = self.random.below(8) == 0;
        let part = self.random.next();
        let Some(wire) = self.wires.get_mut(&id) else { return (Vec::new(), true) };
        let flight = &mut wire.flights[1 - side];
        let mut arrived = Vec::new();
        while let Some((at_us, _)) = flight.pieces.front()
            && *at_us <= now_us
        {
            let Some((at_us, mut bytes)) = flight.pieces.pop_front() else { break };
            if splits && bytes.len() > 1 {
                let later = bytes.split_off(1 + part as usize % (bytes.len() - 1));
                flight.pieces.push_front((at_us, later));
                arrived.extend(bytes);
                break;
            }
            arrived.extend(bytes);
        }
        flight.bytes -= arrived.len();
        (arrived, flight.is_ended && flight.pieces.is_empty())
    }

    /// Closes a link from this side: bytes in flight still arrive.
    pub fn close(&mut self, id: WireId, side: Side) {
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.flights[side].is_ended = true;
            // Bytes for the closed side are lost.
            wire.flights[1 - side] = Flight { is_ended: true, ..Flight::default() };
        }
    }

    /// Breaks a link: some bytes in flight still arrive, the others are lost.
    pub fn cut(&mut self, id: WireId) {
        let kept = [self.random.next(), self.random.next()];
        let Some(wire) = self.wires.get_mut(&id) else { return };
        for (flight, kept) in wire.flights.iter_mut().zip(kept) {
            flight.is_ended = true;
            let mut left = kept as usize % (flight.bytes + 1);
            for (_, bytes) in &mut flight.pieces {
                bytes.truncate(left);
                left -= bytes.len();
            }
            flight.pieces.retain(|(_, bytes)| !bytes.is_empty());
            flight.bytes = flight.pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        }
    }

    fn all_of(&self, process: usize) -> Vec<WireId> {
        let of_process = |wire: &Wire| wire.ends.contains(&Some(process));
        self.wires.iter().filter(|(_, wire)| of_process(wire)).map(|(id, _)| *id).collect()
    }

    /// Breaks all links of a process.
    pub fn cut_all_of(&mut self, process: usize) {
        self.all_of(process).into_iter().for_each(|id| self.cut(id));
    }

    /// Like [`Network::cut_all_of`], but no bytes in flight arrive.
    pub fn sever_all_of(&mut self, process: usize) {
        for id in self.all_of(process) {
            if let Some(wire) = self.wires.get_mut(&id) {
                wire.flights = [(); 2].map(|()| Flight { is_ended: true, ..Flight::default() });
            }
        }
    }

    /// Returns a random link, if there is one.
    pub fn any(&mut self) -> Option<WireId> {
        self.wires.retain(|_, wire| !wire.flights.iter().all(|flight| flight.is_ended && flight.pieces.is_empty()));
        let at = self.random.below(self.wires.len());
        self.wires.keys().nth(at).copied()
    }
}
