//! The partition of a primary's stream for several threads. The stream is cut into rounds, and each round into lanes,
//! by the shards of the keys.
//!
//! Units of different lanes have no shard in common, so their relative order is irrelevant. A lane keeps the order of
//! its own units. A unit, which is a command or a whole transaction, goes into a lane if all its commands are brief and
//! all its keys belong to the lane's shards. Every other unit is applied alone, between the rounds and in order: units
//! with keys of several lanes or without keys (FLUSHALL, PUBLISH, a pipeline token), slow commands, scripts and
//! functions. A round is small, because all other work waits until it has been applied.
//!
//! The cutter reads units one by one. The units since the last section form the *stretch*. It becomes a round at the
//! next single unit, or at its greatest size, if it has enough units and enough of them are outside of the largest
//! lane.
//!
//! Cutting is pure: bytes in, sections out.

use commands::spec::{fact, flag};
use resp::num::parse_i64;
use resp::request::{Args, Framer, Input, Limits, Stop};
use store::hash::KeyHash;
use store::keyspace::Keyspace;

use crate::execute::windows::plan;
use crate::replication::rounds::{Lane, RoundBounds};
use crate::worker::tables::{Planned, Tables};

/// The number of requests that are framed together.
const WINDOW: usize = 64;
/// The map from keys to lanes, by their shards. The numbers of shards and of lanes are powers of two, and there are no
/// more lanes than shards.
#[derive(Clone, Copy)]
pub(super) struct LaneMap<'k> {
    keyspace: &'k Keyspace,
    pub(super) lanes: usize,
}

impl<'k> LaneMap<'k> {
    /// The map for this number of threads; `None` if a single lane is enough.
    pub(super) fn of(keyspace: &'k Keyspace, threads: usize) -> Option<LaneMap<'k>> {
        let lanes = threads.next_power_of_two().min(keyspace.shard_count());
        (lanes > 1).then_some(LaneMap { keyspace, lanes })
    }

    fn lane_of(self, hash: KeyHash) -> usize {
        self.keyspace.shard_of(hash) & (self.lanes - 1)
    }
}

/// A lane under construction.
#[derive(Clone, Debug, Default)]
struct Draft {
    lane: Lane,
    /// The database that is selected after its commands.
    selected: usize,
    units: usize,
}

impl Draft {
    /// Adds a unit for a database.
    fn add(&mut self, unit: &[u8], database: usize) {
        if self.units == 0 {
            self.lane.database = database;
        } else if self.selected != database {
            let number = database.to_string();
            self.lane
                .commands
                .extend_from_slice(format!("*2\r\n$6\r\nSELECT\r\n${}\r\n{number}\r\n", number.len()).as_bytes());
        }
        self.selected = database;
        self.lane.commands.extend_from_slice(unit);
        self.units += 1;
    }
}

/// A section of the stream, and the way to apply it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamSection {
    /// The bytes before `end` are applied in order.
    InOrder { end: usize },
    /// The bytes before `end` are applied in lanes. `databases` are the stream's selected databases before and after
    /// them.
    Lanes { end: usize, lanes: Vec<Lane>, databases: [usize; 2] },
}

/// The way to apply a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitRoute {
    /// The unit can be applied in this lane.
    Lane(usize),
    /// The unit only selects a database.
    Selects(usize),
    /// The unit is applied alone.
    Single,
}

/// See the module's documentation.
pub(super) struct Cutter<'c> {
    map: LaneMap<'c>,
    limits: Limits,
    bounds: RoundBounds,
    commands: &'c [u8],
    window: Tables,
    /// The end of the window, and the number of its requests that have been taken.
    window_end: usize,
    taken: usize,
    /// True if the bytes after the window are no request.
    is_over: bool,
    /// The start of the first unit that has not been read.
    at: usize,
    /// The start of the next section, and the start of the stretch within it.
    section: usize,
    stretch: usize,
    /// The units of the stretch, by lane.
    lanes: Vec<Draft>,
    units: usize,
    /// The selected databases at the start of the stretch and at `at`.
    before: usize,
    database: usize,
}

impl<'c> Cutter<'c> {
    /// Cuts whole commands and transactions. The stream has selected `database` before them.
    pub(super) fn new(
        map: LaneMap<'c>,
        (limits, bounds): (Limits, RoundBounds),
        commands: &'c [u8],
        database: usize,
    ) -> Cutter<'c> {
        Cutter {
            map,
            limits,
            bounds,
            commands,
            window: Tables::default(),
            window_end: 0,
            taken: 0,
            is_over: false,
            at: 0,
            section: 0,
            stretch: 0,
            lanes: vec![Draft::default(); map.lanes],
            units: 0,
            before: database,
            database,
        }
    }

    /// Returns the next section, or `None` after the last one.
    pub(super) fn next_section(&mut self) -> Option<StreamSection> {
        loop {
            if self.units >= self.bounds.units_max || self.at - self.stretch >= self.bounds.bytes_max {
                return self.end_stretch(self.at, self.at, self.database);
            }
            let (start, selected) = (self.at, self.database);
            let Some(kind) = self.next_unit() else {
                // Unreadable bytes after a round form a section of their own, which one thread applies in order.
                let end = if self.is_worth_it() { start } else { self.commands.len() };
                return self.end_stretch(end, self.at, selected);
            };
            match kind {
                UnitRoute::Selects(database) => self.database = database,
                UnitRoute::Lane(lane) => {
                    let unit = self.commands.get(start..self.at).unwrap_or_default();
                    if let Some(lane) = self.lanes.get_mut(lane) {
                        lane.add(unit, self.database);
                        self.units += 1;
                    }
                    if self.stretch > self.section && self.is_worth_it() {
                        let end = self.stretch;
                        self.section = end;
                        return Some(StreamSection::InOrder { end });
                    }
                }
                UnitRoute::Single => {
                    if self.is_worth_it() {
                        return self.end_stretch(start, self.at, selected);
                    }
                    self.begin_stretch(self.at);
                }
            }
        }
    }

    fn is_worth_it(&self) -> bool {
        let largest = self.lanes.iter().map(|lane| lane.units).max().unwrap_or(0);
        self.units >= self.bounds.units_min && self.units - largest >= self.bounds.shared_min
    }

    /// Ends the stretch at `end` and begins the next one at `next`. Returns the section up to `end`.
    fn end_stretch(&mut self, end: usize, next: usize, database: usize) -> Option<StreamSection> {
        let is_worth_it = self.is_worth_it();
        let begins = std::mem::replace(&mut self.section, end);
        let before = self.before;
        let lanes = self.begin_stretch(next);
        match () {
            () if begins >= end => None,
            () if is_worth_it => Some(StreamSection::Lanes { end, lanes, databases: [before, database] }),
            () => Some(StreamSection::InOrder { end }),
        }
    }

    fn begin_stretch(&mut self, at: usize) -> Vec<Lane> {
        (self.stretch, self.units, self.before) = (at, 0, self.database);
        let drafts = std::mem::replace(&mut self.lanes, vec![Draft::default(); self.map.lanes]);
        drafts.into_iter().map(|draft| draft.lane).collect()
    }

    /// Reads the next unit, and moves `at` to its end. Returns `None` if the rest is empty or unreadable.
    fn next_unit(&mut self) -> Option<UnitRoute> {
        let start = self.at;
        let kind = match self.next_request()? {
            StreamRequest::Begins => self.rest_of_transaction()?,
            StreamRequest::Ends => UnitRoute::Single,
            StreamRequest::Selects(database) => return Some(UnitRoute::Selects(database)),
            StreamRequest::Command(lane) => lane.map_or(UnitRoute::Single, UnitRoute::Lane),
        };
        Some(if self.at - start > self.bounds.unit_bytes_max { UnitRoute::Single } else { kind })
    }

    /// Takes a transaction up to its end.
    fn rest_of_transaction(&mut self) -> Option<UnitRoute> {
        let mut kind = None;
        loop {
            let request = self.next_request()?;
            if let StreamRequest::Selects(database) = request {
                self.database = database;
            }
            kind = match (request, kind) {
                (StreamRequest::Ends, _) => return Some(kind.unwrap_or(UnitRoute::Single)),
                (StreamRequest::Command(Some(lane)), None) => Some(UnitRoute::Lane(lane)),
                (StreamRequest::Command(Some(lane)), Some(UnitRoute::Lane(one))) if one == lane => kind,
                _ => Some(UnitRoute::Single),
            }
        }
    }

    /// Takes the next request.
    fn next_request(&mut self) -> Option<StreamRequest> {
        if self.taken == self.window.batch.requests().len() && !self.fill_window() {
            return None;
        }
        let request = self.window.batch.requests().get(self.taken)?;
        let plan = self.window.planned.get(self.taken)?;
        let args = self.window.batch.args(request, Input::from(self.commands));
        self.taken += 1;
        self.at = request.end as usize;
        Some(self.look_at(args, plan))
    }

    /// Frames and plans the next requests. Returns false if there are none.
    fn fill_window(&mut self) -> bool {
        let Tables { batch, planned, keys } = &mut self.window;
        if self.is_over {
            return false;
        }
        batch.clear();
        self.taken = 0;
        let input = Input::from(self.commands);
        let (end, stop) = Framer::default().frame(input, self.window_end, &self.limits, WINDOW, batch);
        plan(batch, input, planned, keys);
        self.window_end = end;
        self.is_over = matches!(stop, Stop::Error(_));
        !batch.requests().is_empty()
    }

    fn look_at(&self, args: Args<'_>, plan: &Planned) -> StreamRequest {
        if is_short(plan, args) {
            return StreamRequest::Command(self.lane_of(plan));
        }
        let is = |word: &[u8]| args.get(0).eq_ignore_ascii_case(word);
        match args.len() {
            1 if is(b"MULTI") => StreamRequest::Begins,
            1 if is(b"EXEC") => StreamRequest::Ends,
            2 if is(b"SELECT") => {
                let number = parse_i64(args.get(1)).and_then(|number| usize::try_from(number).ok());
                number.map_or(StreamRequest::Command(None), StreamRequest::Selects)
            }
            _ => StreamRequest::Command(None),
        }
    }

    /// Returns the lane of all keys of a command, if they have one in common.
    fn lane_of(&self, plan: &Planned) -> Option<usize> {
        let keys = self.window.keys.get(plan.keys_start as usize..plan.keys_end as usize)?;
        let lane = self.map.lane_of(keys.first()?.hash);
        keys.iter().all(|key| self.map.lane_of(key.hash) == lane).then_some(lane)
    }
}

/// Returns true if a command surely takes little time, because other threads wait for it. Removed values are freed in
/// the background here, so commands that are slow only because of that count as short. A fast command that can take
/// long with optional arguments counts only without them.
fn is_short(plan: &Planned, args: Args<'_>) -> bool {
    let Some(command) = plan.command.filter(|command| plan.fits && command.keys_handler.is_some()) else {
        return false;
    };
    let is_fast = || command.info.has(flag::FAST) && !command.info.has(flag::BLOCKING);
    plan.is_brief || command.info.is(fact::BRIEF_IF_LAZY) || is_fast() && command.needs_all(args.len())
}

/// The kinds of requests that the cutter distinguishes.
#[derive(Clone, Copy, Debug)]
enum StreamRequest {
    /// The start of a transaction.
    Begins,
    /// The end of a transaction.
    Ends,
    /// The selection of a database.
    Selects(usize),
    /// A command, with the lane that it can be applied in.
    Command(Option<usize>),
}

#[cfg(test)]
mod tests;
