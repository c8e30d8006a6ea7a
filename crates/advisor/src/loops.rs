//! Loops: trips of one command each whose shapes repeat with a period of one to eight.
//!
//! For each period the number of trips is counted that in a row had the shape of the trip one period before. With a
//! period of one, four equal trips are a loop; otherwise three rounds are. A run ends with the first trip that doesn't fit, or with a pause.

use crate::catalogue::Class;

/// Longest period that is looked for.
pub const PERIOD_MAX: usize = 8;
/// Trips that are remembered: three rounds of the longest period.
const REMEMBERED: usize = 32;
const _: () = assert!(REMEMBERED >= 3 * PERIOD_MAX && REMEMBERED.is_power_of_two());
/// Rounds that make a loop.
const ROUNDS_MIN: u32 = 3;
/// Trips of one shape that make a loop.
const TRIPS_MIN: u32 = 4;
/// Commands that one pipeline, or one command of many keys, has at most in what the advisor advises.
pub const CHUNK: u32 = 1000;

/// A trip as a loop sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopTrip {
    /// Command and key pattern.
    pub shape: u64,
    /// The key's hash.
    pub key: u64,
    /// The gap before it, if it looked like a round trip.
    pub gap_ns: u64,
    /// What the command does.
    pub class: Class,
    /// How many trips ago the reply was that one of its arguments repeats; 0: none.
    pub origin: u8,
    /// True if its reply is known.
    pub is_known: bool,
    /// True if the reply was empty.
    pub is_empty: bool,
    /// True if it is the second of a read and a write that belong together.
    pub is_paired: bool,
}

/// Which steps a loop consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The shapes, in the order of the round in which the loop began.
    pub shapes: [u64; PERIOD_MAX],
    /// How many.
    pub len: u8,
    /// A bit for each step that had the same key all the time.
    pub one_key: u8,
}

impl Steps {
    /// One step.
    pub fn one(shape: u64, one_key: bool) -> Steps {
        let mut steps = Steps { len: 1, one_key: u8::from(one_key), ..Steps::default() };
        steps.shapes[0] = shape;
        steps
    }

    /// Two steps on one key.
    pub fn pair(first: u64, second: u64) -> Steps {
        let mut steps = Steps { len: 2, ..Steps::default() };
        (steps.shapes[0], steps.shapes[1]) = (first, second);
        steps
    }

    /// The steps: shape, and whether the key was the same all the time.
    pub fn iter(&self) -> impl Iterator<Item = (u64, bool)> {
        let one_key = self.one_key;
        let shapes = self.shapes.iter().take(usize::from(self.len));
        shapes.enumerate().map(move |(index, shape)| (*shape, one_key >> index & 1 != 0))
    }
}

/// A loop that has ended, or a thousand trips of one that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The steps of a round.
    pub steps: Steps,
    /// Trips that were made.
    pub made: u64,
    /// Trips that were needed.
    pub needed: u64,
    /// Time that the rest took.
    pub lost_ns: u64,
    /// True if all replies were known.
    pub is_known: bool,
    /// True if a step may depend on a reply in a way that can't be seen: it writes behind a read.
    pub may_depend: bool,
    /// The shape of the trip that followed at once, and the gap before it.
    pub after: Option<(u64, u64)>,
}

/// A run of rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// Steps of a round; 0: there is no run.
    period: u8,
    /// The step that comes next.
    position: u8,
    /// Trips.
    made: u32,
    /// Gaps within it, and their sum.
    gaps: u32,
    gaps_ns: u64,
    /// Trips that another finding has accounted for, and their gaps.
    spared: u32,
    spared_ns: u64,
    /// Trips whose reply isn't known, and whose reply was empty.
    unknown: u32,
    empty: u32,
    /// Trips that are the second of a read and a write that belong together.
    paired: u32,
    steps: [RoundStep; PERIOD_MAX],
}

/// What is known of one step of a round.
#[derive(Clone, Copy, Debug, Default)]
struct RoundStep {
    shape: u64,
    key: u64,
    class: Class,
    /// How often it was made, and how often with the key of the round before.
    made: u32,
    same_key: u32,
    /// How often an argument repeated a reply of the same round, and how often of an earlier one.
    from_round: u32,
    from_before: u32,
}

impl RoundStep {
    /// True if more than half of the times one of its arguments came from this round.
    fn depends(&self) -> bool {
        self.from_round * 2 > self.made
    }

    /// True if what follows may need its reply.
    fn asks(&self) -> bool {
        matches!(self.class, Class::Read | Class::Pop | Class::Other)
    }

    fn has_one_key(&self) -> bool {
        self.made > 1 && self.same_key * 10 >= (self.made - 1) * 9
    }
}

impl Rounds {
    fn add(&mut self, trip: &LoopTrip, is_first: bool) {
        let position = self.position;
        let step = &mut self.steps[usize::from(position) % PERIOD_MAX];
        step.same_key += u32::from(step.made > 0 && step.key == trip.key);
        (step.shape, step.key, step.class) = (trip.shape, trip.key, trip.class);
        step.made += 1;
        match trip.origin {
            0 => {}
            distance if distance <= position => step.from_round += 1,
            _ => step.from_before += 1,
        }
        self.position = if position + 1 == self.period { 0 } else { position + 1 };
        self.made += 1;
        if !is_first {
            self.gaps += 1;
            self.gaps_ns += trip.gap_ns;
        }
        self.unknown += u32::from(!trip.is_known);
        self.empty += u32::from(trip.is_empty);
        self.paired += u32::from(trip.is_paired);
    }

    fn steps(&self) -> &[RoundStep] {
        self.steps.get(..usize::from(self.period)).unwrap_or_default()
    }

    /// The steps in the order in which they belong together. The run may have begun in the midst of a round: one that ends with a read
    /// of the very key that the next one begins to write is turned, so that the write follows its read.
    fn round(&self) -> ([RoundStep; PERIOD_MAX], usize) {
        let (mut steps, period) = (self.steps, usize::from(self.period));
        if let ([first, .., last], Some(round)) = (self.steps(), steps.get_mut(..period))
            && last.asks()
            && matches!(first.class, Class::Write)
            && first.has_one_key()
            && last.has_one_key()
            && first.key == last.key
        {
            round.rotate_right(1);
        }
        (steps, period)
    }

    /// Trips one after the other that a round needs, and whether that is no more than a guess: a step that repeats a reply of its round
    /// must wait for it. So may a write behind a read, or, where replies aren't known, any step behind a read.
    fn stages(&self) -> (u32, bool) {
        let (mut stages, mut is_guess) = (1, false);
        let (round, period) = self.round();
        for pair in round.get(..period).unwrap_or_default().windows(2) {
            let (before, step) = (&pair[0], &pair[1]);
            let asks = before.asks();
            let acts = matches!(step.class, Class::Write | Class::Other) || self.unknown > 0;
            if step.depends() {
                stages += 1;
            } else if asks && acts {
                stages += 1;
                is_guess = true;
            }
        }
        (stages, is_guess)
    }

    /// True if no rewriting by stages helps: each round waits for the one before, or it is accounted for otherwise.
    fn is_no_loop(&self) -> bool {
        let rounds = self.made / u32::from(self.period.max(1));
        let is_chain = self.steps().iter().any(|step| step.from_before * 2 > step.made);
        let is_pairs = self.paired * 2 >= rounds;
        let polls = self.period == 1 && self.steps[0].class == Class::Pop && self.empty * 10 >= self.made * 7;
        is_chain || is_pairs || polls
    }

    fn ended(&self, after: Option<(u64, u64)>) -> Option<Ended> {
        if self.is_no_loop() {
            return None;
        }
        let (stages, may_depend) = self.stages();
        let made = self.made.saturating_sub(self.spared);
        let needed = stages * made.div_ceil(CHUNK);
        let wasted = made.checked_sub(needed).filter(|wasted| *wasted > 0)?;
        let gaps = u64::from(self.gaps.saturating_sub(self.spared).max(1));
        let gaps_ns = self.gaps_ns.saturating_sub(self.spared_ns);
        let mut steps = Steps { len: self.period, ..Steps::default() };
        let (round, period) = self.round();
        for (index, step) in round.iter().take(period).enumerate() {
            steps.shapes[index] = step.shape;
            steps.one_key |= u8::from(step.has_one_key()) << index;
        }
        Some(Ended {
            steps,
            made: made.into(),
            needed: needed.into(),
            lost_ns: (u128::from(gaps_ns) * u128::from(wasted) / u128::from(gaps)) as u64,
            is_known: self.unknown == 0,
            may_depend,
            after,
        })
    }
}

/// The last trips of a connection and the loop that it is in.
#[derive(Clone, Debug)]
pub struct Loops {
    trips: [LoopTrip; REMEMBERED],
    /// Trips since the last pause.
    len: u32,
    /// For each period: trips in a row with the shape of one period before.
    matches: [u32; PERIOD_MAX],
    run: Rounds,
}

impl Default for Loops {
    fn default() -> Loops {
        Loops { trips: [LoopTrip::default(); REMEMBERED], len: 0, matches: [0; PERIOD_MAX], run: Rounds::default() }
    }
}

impl Loops {
    /// The trip so many trips ago: 1 is the last one.
    #[inline]
    pub fn ago(&self, trips: u32) -> Option<&LoopTrip> {
        let index = self.len.checked_sub(trips)?;
        (trips as usize <= REMEMBERED).then(|| &self.trips[index as usize % REMEMBERED])
    }

    /// True if a trip of this shape ends the loop.
    #[inline]
    pub fn breaks(&self, shape: u64) -> bool {
        self.run.period != 0 && self.run.steps[usize::from(self.run.position) % PERIOD_MAX].shape != shape
    }

    /// True if there is a loop that a trip of this shape goes on with.
    #[inline]
    pub fn goes_on_with(&self, shape: u64) -> bool {
        self.run.period != 0 && !self.breaks(shape)
    }

    /// Another finding accounts for so many of the loop's trips.
    pub fn spare(&mut self, trips: u64, gaps_ns: u64) {
        if self.run.period != 0 {
            self.run.spared = self.run.spared.saturating_add(trips as u32);
            self.run.spared_ns += gaps_ns;
        }
    }

    /// Adds a trip. Returns the loop that it ends, or a thousand trips of the one that goes on.
    #[inline]
    pub fn push(&mut self, trip: LoopTrip) -> Option<Ended> {
        if self.run.period == 0 {
            self.count_matches(&trip);
            self.remember(&trip);
            self.begin();
            return None;
        }
        let fits = self.ago(self.run.period.into()).is_some_and(|before| before.shape == trip.shape);
        self.remember(&trip);
        if !fits {
            return self.broken(&trip);
        }
        self.run.add(&trip, false);
        let is_full = self.run.made + u32::from(self.run.period) > CHUNK && self.run.position == 0;
        if is_full { self.cut() } else { None }
    }

    #[inline]
    fn remember(&mut self, trip: &LoopTrip) {
        self.trips[self.len as usize % REMEMBERED] = *trip;
        self.len += 1;
    }

    /// Counts for each period whether the trip fits.
    #[inline]
    fn count_matches(&mut self, trip: &LoopTrip) {
        for period in 1..=PERIOD_MAX as u32 {
            let fits = self.ago(period).is_some_and(|before| before.shape == trip.shape);
            let matches = &mut self.matches[period as usize - 1];
            *matches = if fits { *matches + 1 } else { 0 };
        }
    }

    /// The last trip doesn't fit the loop. Within a loop only its own period was looked at: the others are counted now.
    fn broken(&mut self, trip: &LoopTrip) -> Option<Ended> {
        let ended = self.run.ended(Some((trip.shape, trip.gap_ns)));
        self.run = Rounds::default();
        for period in 1..=PERIOD_MAX as u32 {
            let fits = |ago: &u32| match (self.ago(*ago), self.ago(ago + period)) {
                (Some(after), Some(before)) => after.shape == before.shape,
                _ => false,
            };
            self.matches[period as usize - 1] = (1..=REMEMBERED as u32).take_while(fits).count() as u32;
        }
        self.begin();
        ended
    }

    /// Begins a run if the last trips make one.
    #[inline]
    fn begin(&mut self) {
        if self.matches == [0; PERIOD_MAX] {
            return;
        }
        for period in 1..=PERIOD_MAX as u32 {
            let trips_min = (period * ROUNDS_MIN).max(TRIPS_MIN);
            let trips = self.matches[period as usize - 1] + period;
            if trips >= trips_min {
                let trips = trips.min(REMEMBERED as u32);
                return self.begin_run(period as u8, trips);
            }
        }
    }

    fn begin_run(&mut self, period: u8, trips: u32) {
        self.run = Rounds { period, ..Rounds::default() };
        for ago in (1..=trips).rev() {
            let Some(trip) = self.ago(ago).copied() else { continue };
            self.run.add(&trip, ago == trips);
        }
    }

    /// What has been counted so far; the loop goes on.
    fn cut(&mut self) -> Option<Ended> {
        let ended = self.run.ended(None);
        let mut next = Rounds { period: self.run.period, ..Rounds::default() };
        for (step, old) in next.steps.iter_mut().zip(&self.run.steps) {
            (step.shape, step.key, step.class) = (old.shape, old.key, old.class);
        }
        self.run = next;
        ended
    }

    /// A pause, or a batch of several: ends the loop and forgets the last trips.
    pub fn end(&mut self) -> Option<Ended> {
        let ended = if self.run.period == 0 { None } else { self.run.ended(None) };
        self.run = Rounds::default();
        self.len = 0;
        self.matches = [0; PERIOD_MAX];
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(shape: u8) -> LoopTrip {
        LoopTrip { shape: shape.into(), gap_ns: 10, class: Class::Write, is_known: true, ..LoopTrip::default() }
    }

    /// The loops in a text in which each letter is a trip's shape and a blank is a pause: steps, trips made, trips needed.
    fn loops(text: &str) -> Vec<(String, u64, u64)> {
        let mut loops = Loops::default();
        let mut found = Vec::new();
        for byte in text.bytes() {
            found.extend(if byte == b' ' { loops.end() } else { loops.push(trip(byte)) });
        }
        found.extend(loops.end());
        let shown = |ended: &Ended| {
            let steps = ended.steps.iter().map(|(shape, _)| shape as u8 as char).collect();
            (steps, ended.made, ended.needed)
        };
        found.iter().map(shown).collect()
    }

    fn check(text: &str, expected: &[(&str, u64, u64)]) {
        let expected: Vec<_> =
            expected.iter().map(|(steps, made, needed)| (steps.to_string(), *made, *needed)).collect();
        assert_eq!(loops(text), expected, "{text}");
    }

    #[test]
    fn the_shortest_period_is_found() {
        check("aaaaaaaa", &[("a", 8, 1)]);
        check("abababab", &[("ab", 8, 1)]);
        check("abcabcabcabc", &[("abc", 12, 1)]);
        check("abcdefghabcdefghabcdefgh", &[("abcdefgh", 24, 1)]);
        check("abcdefghiabcdefghiabcdefghi", &[]);
        check("aaabaaabaaab", &[("aaab", 12, 1)]);
    }

    #[test]
    fn too_few_rounds_are_no_loop() {
        check("aaa", &[]);
        check("abab", &[]);
        check("aaa aaa aaa", &[]);
        check("abcabcab", &[]);
    }

    #[test]
    fn loops_that_follow_each_other_are_apart() {
        check("xaaaaabbbbbbcdcdcd", &[("a", 5, 1), ("b", 6, 1), ("cd", 6, 1)]);
        check("aaaa aaaa", &[("a", 4, 1), ("a", 4, 1)]);
        check("abababhabababh", &[("ab", 6, 1), ("ab", 6, 1)]);
    }

    #[test]
    fn a_long_loop_is_told_in_parts() {
        let found = loops(&"ab".repeat(2600));
        assert_eq!(found.iter().map(|(_, made, _)| made).sum::<u64>(), 5200);
        assert_eq!(found.len(), 6, "{found:?}");
    }

    #[test]
    fn gaps_are_those_between_the_trips_that_fall_away() {
        let mut loops = Loops::default();
        for _ in 0..5 {
            assert!(loops.push(trip(b'a')).is_none());
        }
        let after = LoopTrip { gap_ns: 7, ..trip(b'b') };
        let ended = loops.push(after).unwrap();
        assert_eq!((ended.lost_ns, ended.after), (40, Some((u64::from(b'b'), 7))));
    }

    #[test]
    fn what_is_accounted_for_elsewhere_is_not_counted_twice() {
        let mut loops = Loops::default();
        for _ in 0..10 {
            loops.push(trip(b'a'));
        }
        loops.spare(4, 40);
        let ended = loops.end().unwrap();
        assert_eq!((ended.made, ended.needed, ended.lost_ns), (6, 1, 50));
    }

    #[test]
    fn a_chain_is_no_loop() {
        let mut loops = Loops::default();
        for _ in 0..10 {
            loops.push(LoopTrip { origin: 1, class: Class::Read, ..trip(b'a') });
        }
        assert!(loops.end().is_none());
    }

    #[test]
    fn a_step_that_needs_its_round_is_a_stage_of_its_own() {
        let mut loops = Loops::default();
        for _ in 0..10 {
            loops.push(LoopTrip { class: Class::Read, ..trip(b'a') });
            loops.push(LoopTrip { origin: 1, class: Class::Read, ..trip(b'b') });
        }
        let ended = loops.end().unwrap();
        assert_eq!((ended.made, ended.needed, ended.may_depend), (20, 2, false));
    }

    /// A loop that is met in its midst is the same loop.
    #[test]
    fn a_write_follows_the_read_of_its_key() {
        for one_key in [true, false] {
            let mut loops = Loops::default();
            for key in 0..10 {
                let key = if one_key { 5 } else { key };
                loops.push(LoopTrip { key, ..trip(b'w') });
                loops.push(LoopTrip { key, class: Class::Read, ..trip(b'r') });
            }
            let ended = loops.end().unwrap();
            let shapes = (ended.steps.shapes[0] as u8, ended.steps.shapes[1] as u8);
            let expected = if one_key { ((b'r', b'w'), 2, true) } else { ((b'w', b'r'), 1, false) };
            assert_eq!((shapes, ended.needed, ended.may_depend), expected);
        }
    }

    #[test]
    fn a_step_with_one_key_is_told_from_one_with_many() {
        let mut loops = Loops::default();
        for key in 0..10 {
            loops.push(LoopTrip { key: 5, ..trip(b'a') });
            loops.push(LoopTrip { key, ..trip(b'b') });
        }
        let one_key: Vec<bool> = loops.end().unwrap().steps.iter().map(|(_, one_key)| one_key).collect();
        assert_eq!(one_key, [true, false]);
    }
}
