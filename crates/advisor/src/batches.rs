//! Small batches in a row: a loop that sends a pipeline or a transaction in each of its rounds, and waits for it.
//!
//! A connection's last batches are counted by the frame of their first command, and by their size. A pause or a command outside the batches ends the
//! counts, because the next batch may depend on it.
//!
//! Some libraries write the commands of a pipeline one by one, and a fast server answers the first part before the next one comes. Parts are
//! known by whole batches of the same frame that came before.

use crate::loops::CHUNK;

/// Most commands of a small batch.
const SMALL_MAX: u32 = 16;
/// Number of kinds of batches that are counted at the same time.
const KINDS: usize = 4;
/// With fewer batches, there is no loop.
const BATCHES_MIN: u32 = 4;

/// Number of batches of one size that shows the size of whole batches.
const WHOLE_MIN: u32 = 2;

/// Batches of one frame and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Batch {
    /// The shape of the first command; 0 for a free entry.
    shape: u64,
    /// Another shape with this frame; 0 if there is none.
    other: u64,
    frame: u32,
    /// Number of commands.
    depth: u32,
    /// Number of batches.
    made: u32,
    /// Number of round trips, and the gaps before them.
    trips: u32,
    gaps_ns: u64,
}

/// Small batches that one pipeline could replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBatches {
    /// The shape of the first command.
    pub shape: u64,
    /// Another shape of first commands with the same frame; 0 if there is none.
    pub other: u64,
    pub frame: u32,
    /// Round trips made, and round trips that would have been enough.
    pub made: u64,
    pub needed: u64,
    /// The gaps before the needless batches.
    pub lost_ns: u64,
}

impl Batch {
    fn told(self) -> Option<SmallBatches> {
        let needed = (self.made * self.depth).div_ceil(CHUNK);
        let wasted = u64::from(self.trips.saturating_sub(needed));
        let is_loop = self.made >= BATCHES_MIN && wasted > 0;
        is_loop.then(|| SmallBatches {
            shape: self.shape,
            other: self.other,
            frame: self.frame,
            made: self.trips.into(),
            needed: needed.into(),
            lost_ns: (u128::from(self.gaps_ns) * u128::from(wasted) / u128::from(self.trips)) as u64,
        })
    }
}

/// The last batches of a connection.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    kinds: [Batch; KINDS],
    next: u8,
    /// The current batch. More of it may follow.
    current: Batch,
    /// True if the current batch began with a part of a usual one.
    is_part: bool,
    /// The frame of pipelines whose commands are all alike and come in parts: their parts have no usual size. 0 if there is none.
    alike: u32,
}

/// The role of commands that may be a part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    First,
    Rest,
}

impl Batches {
    /// Returns the role of a few commands that begin with this frame. None if they are no part of the batches so far.
    pub fn part(&self, frame: u32, depth: u32) -> Option<Part> {
        if self.alike != 0 && self.alike == frame {
            return None;
        }
        let missing = self.usual_depth(self.current.frame).unwrap_or_default().saturating_sub(self.current.depth);
        match self.current.shape != 0 && missing > 0 {
            true => (depth <= missing && frame != self.current.frame).then_some(Part::Rest),
            false => self.usual_depth(frame).filter(|usual| depth < *usual).map(|_| Part::First),
        }
    }

    /// The size of whole batches of a frame, if some were seen.
    fn usual_depth(&self, frame: u32) -> Option<u32> {
        let is_whole = |kind: &&Batch| kind.frame == frame && kind.made >= WHOLE_MIN;
        self.kinds.iter().filter(is_whole).map(|kind| kind.depth).max()
    }

    /// Begins a batch that the client sent after the replies to the previous one.
    pub fn begin(&mut self, (shape, frame): (u64, u32), depth: u32, gap_ns: u64, tell: &mut dyn FnMut(SmallBatches)) {
        self.count(tell);
        self.current = Batch { shape, frame, depth, other: 0, made: 1, trips: 1, gaps_ns: gap_ns };
    }

    /// Notes if the current batch has just begun with a part of a usual one.
    pub fn note_part(&mut self, begins: bool) {
        self.is_part |= begins;
    }

    /// Gives the current batch another shape: behind MULTI, the first command says more.
    pub fn rename(&mut self, (shape, frame): (u64, u32)) {
        if self.current.shape != 0 {
            (self.current.shape, self.current.frame) = (shape, frame);
        }
    }

    /// Adds commands that the client sent without waiting for the replies to the current batch.
    pub fn extend(&mut self, commands: u32) {
        self.current.depth = self.current.depth.saturating_add(commands);
    }

    /// Adds the EXEC of the current batch's transaction. The client sent it after the replies to the batch.
    pub fn execute(&mut self, gap_ns: u64) {
        self.extend(1);
        self.current.trips += 1;
        self.current.gaps_ns += gap_ns;
    }

    /// Counts the current batch.
    fn count(&mut self, tell: &mut dyn FnMut(SmallBatches)) {
        let is_part = std::mem::take(&mut self.is_part);
        if is_part && self.usual_depth(self.current.frame).is_some_and(|usual| self.current.depth < usual) {
            self.alike = self.current.frame;
        }
        let batch = std::mem::take(&mut self.current);
        if self.alike != 0 && batch.frame == self.alike {
            self.kinds.iter_mut().filter(|kind| kind.frame == batch.frame).for_each(|kind| *kind = Batch::default());
            return;
        }
        if batch.shape == 0 || !(2..=SMALL_MAX).contains(&batch.depth) {
            return;
        }
        let known = self.kinds.iter_mut().find(|known| (known.frame, known.depth) == (batch.frame, batch.depth));
        if let Some(known) = known {
            known.other = if known.shape == batch.shape { known.other } else { batch.shape };
            known.made += 1;
            known.trips += batch.trips;
            known.gaps_ns += batch.gaps_ns;
            if known.made >= CHUNK {
                std::mem::take(known).told().map(&mut *tell);
            }
            return;
        }
        self.next = self.next.wrapping_add(1);
        let place = &mut self.kinds[usize::from(self.next) % KINDS];
        std::mem::replace(place, batch).told().map(tell);
    }

    /// Reports and forgets all batches.
    pub fn end(&mut self, tell: &mut dyn FnMut(SmallBatches)) {
        self.count(tell);
        for batch in &mut self.kinds {
            std::mem::take(batch).told().map(&mut *tell);
        }
        (self.next, self.alike) = (0, 0);
    }

    /// True if nothing is counted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.current.shape == 0 && self.next == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reported batches for batches given as shape and depth; a depth of 0 ends all.
    fn told(batches: impl IntoIterator<Item = (u64, u32)>) -> Vec<(u64, u64, u64)> {
        let (mut state, mut all) = (Batches::default(), Vec::new());
        let mut tell = |batches: SmallBatches| all.push((batches.shape, batches.made, batches.needed));
        for (shape, depth) in batches {
            if depth == 0 {
                state.end(&mut tell);
            } else {
                state.begin((shape, shape as u32 / 10), depth, 10, &mut tell);
            }
        }
        state.end(&mut tell);
        all
    }

    #[test]
    fn small_batches_in_a_row_are_counted_by_shape_and_size() {
        assert_eq!(told((0..100).map(|_| (10, 3))), [(10, 100, 1)]);
        let mixed = (0..100).map(|turn| if turn % 2 == 0 { (10, 3) } else { (20, 4) });
        let mut found = told(mixed);
        found.sort_unstable();
        assert_eq!(found, [(10, 50, 1), (20, 50, 1)]);
        let words = (0..100).map(|turn| (10 + turn % 6, 3));
        assert_eq!(told(words), [(10, 100, 1)], "shapes of one frame");
        assert_eq!(told((0..1000).map(|_| (1, 4))), [(1, 1000, 4)]);
    }

    #[test]
    fn large_or_few_batches_are_no_loop() {
        assert_eq!(told((0..100).map(|_| (1, 200))), []);
        assert_eq!(told((0..3).map(|_| (1, 3))), []);
        assert_eq!(told((0..100).map(|turn| (1, if turn % 3 == 0 { 0 } else { 3 }))), []);
    }

    /// Two whole batches show the size. Of the others, the first command comes alone, or the first two.
    #[test]
    fn parts_of_usual_batches_are_known() {
        let (mut state, mut made) = (Batches::default(), Vec::new());
        let mut tell = |batches: SmallBatches| made.push(batches.made);
        for turn in 0..20 {
            let first = if turn < 2 { 5 } else { 1 + turn % 2 };
            assert_eq!(state.part(1, first), (turn > 2).then_some(Part::First), "{turn}");
            state.begin((10, 1), first, 10, &mut tell);
            state.note_part(first < 5 && turn > 2);
            if first < 5 && turn > 2 {
                assert_eq!((state.part(2, 5 - first), state.part(1, 1)), (Some(Part::Rest), None));
                assert_eq!(state.part(2, 5), None);
            }
            state.extend(5 - first);
        }
        state.end(&mut tell);
        assert_eq!(made, [20]);
    }

    /// A library writes the commands of a pipeline one by one, and all are alike: two or one of them come together.
    #[test]
    fn parts_of_pipelines_of_one_command_are_no_small_batches() {
        let (mut state, mut told) = (Batches::default(), Vec::new());
        let mut tell = |batches: SmallBatches| told.push(batches.made);
        for turn in 0..300 {
            let depth = 1 + turn * turn % 3;
            match state.part(1, depth) {
                Some(Part::First) => {
                    state.begin((10, 1), depth, 10, &mut tell);
                    state.note_part(true);
                }
                Some(Part::Rest) => state.extend(depth),
                None => state.begin((10, 1), depth, 10, &mut tell),
            }
        }
        state.end(&mut tell);
        assert_eq!(told, [0; 0]);
    }

    #[test]
    fn a_batch_that_comes_in_parts_is_one() {
        let (mut state, mut made) = (Batches::default(), 0);
        for _ in 0..10 {
            state.begin((1, 1), 1, 10, &mut |_| ());
            state.extend(2);
        }
        state.end(&mut |batches| made = batches.made);
        assert_eq!(made, 10);
    }
}
