//! Loops over keys with few different words in one place, for example the queues of four depots. Each word makes a shape of
//! its own, until enough words have shown that the place varies. In any order, these shapes make no loop.
//!
//! Shapes with one *frame* have the same command, and keys of the same structure and first word. A round may be a sequence of
//! frames instead of shapes, if the shapes of a frame take turns: two loops one after the other, each over one shape, stay
//! separate. A loop of shapes is preferred, so a loop of frames needs more trips.

use super::{LoopTrip, Loops, PERIOD_MAX, REMEMBERED, ROUNDS_MIN, RoundStep, Rounds};

/// Number of trips after which a loop of frames is looked for again.
pub(super) const LOOKED_EVERY: u32 = 8;
/// Number of trips that make a loop of frames.
const TRIPS_MIN: u32 = 16;
/// Number of trips in it whose shape differs from the one of the previous round.
const CHANGES_MIN: u32 = 4;
/// Number of those changes that lead back to an earlier shape.
const RETURNS_MIN: u32 = 2;
/// After so many trips of a loop of shapes, the next trips decide whether it becomes one.
const EXACT_MIN: u32 = PERIOD_MAX as u32;
const _: () = assert!(TRIPS_MIN + LOOKED_EVERY <= REMEMBERED as u32);

/// With fewer compared rounds, a read of a loop of frames may walk through the replies.
const COMPARED_MIN: u32 = 16;

impl Rounds {
    /// True if the run is one of frames, and the client may walk through its replies. An automaton, for example, has few states, and the record
    /// of each one names the next. A reply often names the state that the client is in, so half of the rounds show a walk.
    pub(super) fn may_walk_in_frames(&self) -> bool {
        let walks = |step: &RoundStep| {
            let compared = step.evidence.compared;
            step.asks() && (compared < COMPARED_MIN || step.traced * 2 > compared)
        };
        self.is_merged && self.steps().iter().any(walks)
    }
}

impl Loops {
    /// Begins a run of frames if the last trips make one.
    pub(super) fn begin_merged(&mut self) -> bool {
        // A multiple of the shortest period repeats the frames, too.
        let mut periods = (1..=PERIOD_MAX as u32).filter_map(|period| Some((period, self.frames(period)?)));
        let Some((period, trips)) = periods.next().filter(|(period, trips)| self.take_turns(*period, *trips)) else {
            return false;
        };
        // Trips of a reported loop do not count twice.
        let trips = trips.min(self.next.wrapping_sub(self.told));
        if trips < period * ROUNDS_MIN {
            return false;
        }
        self.run = Rounds { period: period as u8, is_merged: true, ..Rounds::default() };
        self.add_last(trips);
        self.len = self.len.max(trips);
        true
    }

    /// True if a broken run of shapes was a part of a loop of frames, which now continues it.
    pub(super) fn continues_merged(&mut self, before: &Rounds) -> bool {
        let is_remembered = !before.is_merged && before.made < REMEMBERED as u32;
        is_remembered && self.begin_merged()
    }

    /// Returns the trip this many trips ago, even if short pauses came between. Pauses are frequent on a busy machine; a run with too many
    /// of them is no loop.
    fn near(&self, trips: u32) -> Option<&LoopTrip> {
        self.among(self.near, trips)
    }

    /// Returns the trip this many trips ago, and the one a period before it.
    fn pair(&self, ago: u32, period: u32) -> Option<(&LoopTrip, &LoopTrip)> {
        Some((self.near(ago)?, self.near(ago + period)?))
    }

    /// Returns the number of the last trips if enough of them repeat a sequence of so many frames.
    fn frames(&self, period: u32) -> Option<u32> {
        let fits = |ago: &u32| self.pair(*ago, period).is_some_and(|(after, before)| after.frame == before.frame);
        let matches = (1..=REMEMBERED as u32).take_while(fits).count() as u32;
        let trips = matches + period;
        (trips >= TRIPS_MIN.max(period * ROUNDS_MIN)).then_some(trips)
    }

    /// True if shapes take turns in the last trips, which repeat a sequence of so many frames.
    fn take_turns(&self, period: u32, trips: u32) -> bool {
        let may_be_exact = trips < REMEMBERED as u32 && self.matches.iter().any(|matches| *matches >= EXACT_MIN);
        let is_change = |ago: &u32| self.pair(*ago, period).is_some_and(|(after, before)| after.shape != before.shape);
        let changes = (1..=trips - period).filter(is_change).count() as u32;
        let returns = (changes + period).saturating_sub(self.shapes(trips));
        !may_be_exact && changes >= CHANGES_MIN && returns >= RETURNS_MIN
    }

    /// Number of different shapes of the last trips.
    fn shapes(&self, trips: u32) -> u32 {
        let shape = |ago: u32| self.near(ago).map(|trip| trip.shape);
        let is_new = |ago: &u32| (1..*ago).all(|later| shape(later) != shape(*ago));
        (1..=trips).filter(is_new).count() as u32
    }

    /// True if the steps of the current run are frames.
    #[inline]
    pub fn is_merged(&self) -> bool {
        self.run.is_merged
    }

    /// Returns the frames of the steps of a run that has just begun, with the shapes that each has had; nothing once the steps have
    /// names.
    pub fn unnamed(&self) -> Vec<(u32, Vec<u64>)> {
        let period = u32::from(self.run.period);
        if self.run.is_named || period == 0 {
            return Vec::new();
        }
        // The next trip belongs to the step at `position`, as does the trip one period ago.
        let ago = |step: u32| period - (step + period - u32::from(self.run.position)) % period;
        let trips =
            |step: u32| (ago(step)..=REMEMBERED as u32).step_by(period as usize).filter_map(|ago| self.near(ago));
        let of_run = |step: u32| {
            trips(step).take_while(move |trip: &&LoopTrip| trip.frame == self.run.steps[step as usize].frame)
        };
        let shapes = |step: u32| {
            let mut shapes: Vec<u64> = of_run(step).map(|trip| trip.shape).collect();
            shapes.sort_unstable();
            shapes.dedup();
            shapes
        };
        (0..period).map(|step| (self.run.steps[step as usize].frame, shapes(step))).collect()
    }

    /// Sets the shapes of the steps of a run of frames.
    pub fn name(&mut self, shapes: &[u64]) {
        for (step, shape) in self.run.steps.iter_mut().zip(shapes) {
            step.shape = *shape;
        }
        self.run.is_named = true;
    }

    /// The shape of the step that the last trip belongs to.
    pub fn last_step(&self) -> u64 {
        let before = (self.run.position + self.run.period).saturating_sub(1) % self.run.period.max(1);
        self.run.steps[usize::from(before) % PERIOD_MAX].shape
    }
}
