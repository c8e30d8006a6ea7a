//! Where a primary's stream can be applied by several threads: it is cut into rounds, and each round into lanes by its keys' shards.
//!
//! Units of different lanes have no shard in common, so their order among each other changes nothing, and a lane keeps the order of its
//! own. A unit goes into a lane if all of it is brief and all its keys' shards are the lane's: a command, or a transaction as a whole. All
//! else is applied by itself, between the rounds and in order: what has keys of several lanes, or none (FLUSHALL, PUBLISH, a pipeline
//! token), what may take long, scripts and functions. What is applied in a round is few enough to be applied while other threads wait.
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

/// Requests that are looked at together.
const WINDOW: usize = 64;
/// How keys are divided into lanes: by their shards. There is a power of two of both, and no more lanes than shards.
#[derive(Clone, Copy)]
pub(super) struct LaneMap<'k> {
    keyspace: &'k Keyspace,
    pub(super) lanes: usize,
}

impl<'k> LaneMap<'k> {
    /// Lanes for so many threads; none if one is enough.
    pub(super) fn of(keyspace: &'k Keyspace, threads: usize) -> Option<LaneMap<'k>> {
        let lanes = threads.next_power_of_two().min(keyspace.shard_count());
        (lanes > 1).then_some(LaneMap { keyspace, lanes })
    }

    fn lane_of(self, hash: KeyHash) -> usize {
        self.keyspace.shard_of(hash) & (self.lanes - 1)
    }
}

/// A lane that is put together.
#[derive(Clone, Debug, Default)]
struct Draft {
    lane: Lane,
    /// The database that is selected behind its commands.
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

/// A section of the stream, and how it is applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamSection {
    /// What is before `end` is applied in order.
    InOrder { end: usize },
    /// What is before `end` is applied in lanes. The stream has selected these databases before and behind it.
    Lanes { end: usize, lanes: Vec<Lane>, databases: [usize; 2] },
}

/// How the cutter can apply a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitRoute {
    /// It can be applied in this lane.
    Lane(usize),
    /// It is no change, but selects a database.
    Selects(usize),
    /// It is to be applied by itself.
    Single,
}

/// See the module's documentation.
pub(super) struct Cutter<'c> {
    map: LaneMap<'c>,
    limits: Limits,
    bounds: RoundBounds,
    commands: &'c [u8],
    window: Tables,
    /// Where the window ends, and how many of its requests have been taken.
    window_end: usize,
    taken: usize,
    /// True if what is behind the window is no request.
    is_over: bool,
    /// Where the first unit begins that has not been looked at.
    at: usize,
    /// Where the next section begins, and from where on it could be a round.
    section: usize,
    stretch: usize,
    /// The units from there on.
    lanes: Vec<Draft>,
    units: usize,
    /// What the stream has selected before them, and behind what has been looked at.
    before: usize,
    database: usize,
}

impl<'c> Cutter<'c> {
    /// Cuts whole commands and transactions, before which the stream has selected `database`.
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

    /// The next section; none behind the last one.
    pub(super) fn next_section(&mut self) -> Option<StreamSection> {
        loop {
            if self.units >= self.bounds.units_max || self.at - self.stretch >= self.bounds.bytes_max {
                return self.end_stretch(self.at, self.at, self.database);
            }
            let (start, selected) = (self.at, self.database);
            let Some(kind) = self.next_unit() else {
                // Behind a round, what can't be understood is left to the thread that applies the rest in order.
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

    /// Ends the units that could be a round at `end`; the next begin at `next`.
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

    /// Takes the next unit, up to `at`. None if there is no more, or nothing that can be understood.
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

    /// Frames and plans the next requests. False if there are none.
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

    /// The lane that all keys of a command are in, if there is one.
    fn lane_of(&self, plan: &Planned) -> Option<usize> {
        let keys = self.window.keys.get(plan.keys_start as usize..plan.keys_end as usize)?;
        let lane = self.map.lane_of(keys.first()?.hash);
        keys.iter().all(|key| self.map.lane_of(key.hash) == lane).then_some(lane)
    }
}

/// Whether a command is done in a moment, if what it removes is freed in the background: other threads wait for it. Of the fast ones
/// that are not always brief, the arguments that may make them long are optional.
fn is_short(plan: &Planned, args: Args<'_>) -> bool {
    let Some(command) = plan.command.filter(|command| plan.fits && command.quick.is_some()) else { return false };
    let is_fast = || command.info.has(flag::FAST) && !command.info.has(flag::BLOCKING);
    plan.is_brief || command.info.is(fact::BRIEF_IF_LAZY) || is_fast() && command.needs_all(args.len())
}

/// What the cutter sees in a request.
#[derive(Clone, Copy, Debug)]
enum StreamRequest {
    /// A transaction begins.
    Begins,
    /// It ends.
    Ends,
    /// A database is selected.
    Selects(usize),
    /// A command, and the lane that it can be applied in.
    Command(Option<usize>),
}

#[cfg(test)]
mod tests;
