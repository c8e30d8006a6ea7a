//! Links between processes and clients: bytes arrive in order on each, later on some than on others, and each may break at any byte.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use store::random::Random;

/// Bytes on their way in one direction beyond which a link takes no more.
const WINDOW_BYTES: usize = 32 << 10;
/// The longest that bytes are on their way, in microseconds, on a link that is not blocked.
const DELAY_US: usize = 3_000;

/// The number of a link.
pub type WireId = u64;

/// Which end of a link: 0 is the one that has opened it.
pub type Side = usize;

/// What is on its way in one direction.
#[derive(Default)]
struct Flight {
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// When the last of them arrives.
    last_us: u64,
    /// Nothing comes behind them.
    is_ended: bool,
}

struct Wire {
    /// The processes at its ends; none for a client.
    ends: [Option<usize>; 2],
    /// By the side that sends.
    flights: [Flight; 2],
}

/// See the module's documentation.
pub struct Network {
    wires: BTreeMap<WireId, Wire>,
    next: WireId,
    random: Random,
    /// Pairs of processes whose links are blocked: nothing arrives, and no link can be opened.
    blocked: BTreeSet<(usize, usize)>,
    /// Links that were opened to a process, which has yet to learn of them.
    opened: Vec<(usize, WireId)>,
}

impl Network {
    /// No links yet.
    #[must_use]
    pub fn new(seed: u64) -> Network {
        Network {
            wires: BTreeMap::new(),
            next: 1,
            random: Random::new(seed),
            blocked: BTreeSet::new(),
            opened: Vec::new(),
        }
    }

    fn pair(a: usize, b: usize) -> (usize, usize) {
        (a.min(b), a.max(b))
    }

    /// Blocks the links between two processes, or no longer.
    pub fn block(&mut self, a: usize, b: usize, is_blocked: bool) {
        let pair = Network::pair(a, b);
        if is_blocked {
            self.blocked.insert(pair)
        } else {
            self.blocked.remove(&pair)
        };
    }

    fn is_blocked(&self, ends: [Option<usize>; 2]) -> bool {
        let [Some(a), Some(b)] = ends else { return false };
        self.blocked.contains(&Network::pair(a, b))
    }

    /// Opens a link, unless it is blocked.
    pub fn open(&mut self, ends: [Option<usize>; 2]) -> Option<WireId> {
        if self.is_blocked(ends) {
            return None;
        }
        let wire = self.next;
        self.next += 1;
        self.wires.insert(wire, Wire { ends, flights: Default::default() });
        self.opened.extend(ends[1].map(|process| (process, wire)));
        Some(wire)
    }

    /// The links that were opened since the last call, each with the process that it leads to.
    #[must_use]
    pub fn take_opened(&mut self) -> Vec<(usize, WireId)> {
        std::mem::take(&mut self.opened)
    }

    /// How many bytes a link takes from this side now.
    #[must_use]
    pub fn room(&self, wire: WireId, side: Side) -> usize {
        self.wires.get(&wire).map_or(0, |wire| WINDOW_BYTES.saturating_sub(wire.flights[side].bytes))
    }

    /// Sends bytes. They are lost if the link is gone.
    pub fn send(&mut self, wire: WireId, side: Side, bytes: &[u8], now_us: u64) {
        let delay = 20 + self.random.below(DELAY_US) as u64;
        let Some(wire) = self.wires.get_mut(&wire) else { return };
        let flight = &mut wire.flights[side];
        if flight.is_ended || bytes.is_empty() {
            return;
        }
        flight.last_us = flight.last_us.max(now_us + delay);
        flight.bytes += bytes.len();
        flight.pieces.push_back((flight.last_us, bytes.to_vec()));
    }

    /// What has arrived at this side, perhaps only some of it, and whether nothing comes any more.
    pub fn receive(&mut self, id: WireId, side: Side, now_us: u64) -> (Vec<u8>, bool) {
        let Some(wire) = self.wires.get(&id) else { return (Vec::new(), true) };
        if self.is_blocked(wire.ends) {
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

    /// Closes a link from this side: what was sent still arrives.
    pub fn close(&mut self, id: WireId, side: Side) {
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.flights[side].is_ended = true;
            // What comes for a closed end is lost.
            wire.flights[1 - side] = Flight { is_ended: true, ..Flight::default() };
        }
    }

    /// Breaks a link: of what is on its way some bytes arrive, the others never.
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

    /// The same, and nothing arrives of what is on its way.
    pub fn sever_all_of(&mut self, process: usize) {
        for id in self.all_of(process) {
            if let Some(wire) = self.wires.get_mut(&id) {
                wire.flights = [(); 2].map(|()| Flight { is_ended: true, ..Flight::default() });
            }
        }
    }

    /// A link that there is, if any: any of them.
    pub fn any(&mut self) -> Option<WireId> {
        self.wires.retain(|_, wire| !wire.flights.iter().all(|flight| flight.is_ended && flight.pieces.is_empty()));
        let at = self.random.below(self.wires.len());
        self.wires.keys().nth(at).copied()
    }
}
