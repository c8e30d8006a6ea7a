//! Reads whose answer the client has already: the same read again with no write between, or the same member or field asked
//! of one key after the other, always with the same answer.
//!
//! Where replies aren't known, the second is only taken for one if the member changes from time to time: then the code asks for
//! something of the member, and not for one field of many keys.

/// Commands that are followed at the same time.
const TRACKS: usize = 4;
/// Single reads that are remembered.
const REMEMBERED: usize = 8;
/// Repetitions of a single read that are told together.
const TOLD_TOGETHER: u32 = 64;

/// Reads that could be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The shape of the last one.
    pub shape: u64,
    /// True if it was one key all the time.
    pub one_key: bool,
    /// Reads that were made, and those of them that were needed.
    pub made: u64,
    /// The first of them, unless it was told before.
    pub needed: u64,
    /// The gaps before the others.
    pub gaps_ns: u64,
    /// True if the replies are known, and equal.
    pub is_known: bool,
    /// True if the answer says little: nothing, or a number of one or two digits.
    pub is_trivial: bool,
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The hash of the command's name.
    pub command: u64,
    /// The shape.
    pub shape: u64,
    /// The key's hash.
    pub key: u64,
    /// The hash of the arguments behind the key.
    pub arguments: u64,
    /// The reply's hash; 0: not known.
    pub reply: u64,
    /// True if the reply says little.
    pub is_trivial: bool,
    /// The gap before it; 0 where it counts as no round trip.
    pub gap_ns: u64,
}

/// Reads of one member, as they go on.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// The command; 0: free.
    command: u64,
    member: u64,
    reply: u64,
    shape: u64,
    /// Reads that weren't told yet, and the gaps before those that weren't needed.
    made: u32,
    gaps_ns: u64,
    /// Reads in all.
    total: u32,
    /// True if the first one was told.
    is_first_told: bool,
    is_trivial: bool,
    /// True if all answers were the same.
    agrees: bool,
    /// True if other members were asked for before.
    has_changed: bool,
}

/// Fewer reads of one member may be equal by chance.
const READS_MIN: u32 = 3;

impl Track {
    /// The reads that weren't told yet, if they are repetitions.
    fn told(&mut self) -> Option<Repeated> {
        let is_known = self.reply != 0;
        let is_repetition = self.agrees && (is_known || self.has_changed) && self.total >= READS_MIN;
        if !is_repetition || self.made == 0 {
            return None;
        }
        let repeated = Repeated {
            shape: self.shape,
            one_key: false,
            made: self.made.into(),
            needed: u64::from(!self.is_first_told),
            gaps_ns: self.gaps_ns,
            is_known,
            is_trivial: self.is_trivial,
        };
        (self.made, self.gaps_ns, self.is_first_told) = (0, 0, true);
        Some(repeated)
    }
}

/// A read and how often it was repeated.
#[derive(Clone, Copy, Debug, Default)]
struct Single {
    /// The hash of command, key and arguments; 0: free.
    read: u64,
    key: u64,
    reply: u64,
    shape: u64,
    /// Repetitions that weren't told yet, and the gaps before them.
    repeated: u32,
    gaps_ns: u64,
    is_first_told: bool,
    is_trivial: bool,
}

impl Single {
    fn told(&mut self) -> Option<Repeated> {
        if self.repeated == 0 {
            return None;
        }
        let first = u64::from(!self.is_first_told);
        let repeated = Repeated {
            shape: self.shape,
            one_key: true,
            made: u64::from(self.repeated) + first,
            needed: first,
            gaps_ns: self.gaps_ns,
            is_known: self.reply != 0,
            is_trivial: self.is_trivial,
        };
        (self.repeated, self.gaps_ns, self.is_first_told) = (0, 0, true);
        Some(repeated)
    }
}

/// What a read was to the reads of the same member before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// There is no other, nor will there be: it isn't one of a member.
    None,
    /// It is the first one.
    First,
    /// Its answer is the same.
    Repeats,
    /// Its answer is another one.
    Differs,
}

/// The reads of a connection since its last pause.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    tracks: [Track; TRACKS],
    next_track: u8,
    singles: [Single; REMEMBERED],
    next_single: u8,
}

impl Reads {
    /// Adds a read of a member or field. What it ends is told.
    pub fn member(&mut self, asked: &Asked, tell: &mut dyn FnMut(Repeated)) {
        let Some(track) = self.tracks.iter_mut().find(|track| track.command == asked.command) else {
            let track = &mut self.tracks[usize::from(self.next_track) % TRACKS];
            self.next_track = self.next_track.wrapping_add(1);
            track.told().map(&mut *tell);
            *track = begun(asked, false);
            return;
        };
        if track.member != asked.arguments {
            track.has_changed = true;
            track.told().map(&mut *tell);
            *track = begun(asked, true);
            return;
        }
        track.agrees &= track.reply == asked.reply;
        track.shape = asked.shape;
        track.made += 1;
        track.total += 1;
        track.gaps_ns += asked.gap_ns;
    }

    /// What the last read of this shape was.
    pub fn repetition(&self, shape: u64) -> Repetition {
        match self.tracks.iter().find(|track| track.shape == shape && track.total > 0) {
            None => Repetition::None,
            Some(track) if !track.agrees => Repetition::Differs,
            Some(track) if track.total == 1 => Repetition::First,
            Some(_) => Repetition::Repeats,
        }
    }

    /// Adds any read. True if it repeats one that was made before, with the same answer.
    pub fn single(&mut self, asked: &Asked, tell: &mut dyn FnMut(Repeated)) -> bool {
        let read = crate::hash::mix(asked.command ^ asked.key, asked.arguments) | 1;
        if let Some(single) = self.singles.iter_mut().find(|single| single.read == read) {
            if single.reply != asked.reply {
                single.told().map(&mut *tell);
                *single = Single { repeated: 0, reply: asked.reply, is_first_told: false, ..*single };
                return false;
            }
            single.repeated += 1;
            single.gaps_ns += asked.gap_ns;
            single.shape = asked.shape;
            if single.repeated >= TOLD_TOGETHER {
                single.told().map(&mut *tell);
            }
            return true;
        }
        let single = &mut self.singles[usize::from(self.next_single) % REMEMBERED];
        self.next_single = self.next_single.wrapping_add(1);
        single.told().map(&mut *tell);
        *single = Single {
            read,
            key: asked.key,
            reply: asked.reply,
            shape: asked.shape,
            is_trivial: asked.is_trivial,
            ..Single::default()
        };
        false
    }

    /// A write of a key: what was read of it is forgotten.
    #[inline]
    pub fn written(&mut self, key: u64, tell: &mut dyn FnMut(Repeated)) {
        for single in self.singles.iter_mut().filter(|single| single.key == key && single.read != 0) {
            single.told().map(&mut *tell);
            *single = Single::default();
        }
    }

    /// A command that may have written any key.
    pub fn written_all(&mut self, tell: &mut dyn FnMut(Repeated)) {
        for single in &mut self.singles {
            single.told().map(&mut *tell);
            *single = Single::default();
        }
    }

    /// Tells what is known so far; members may be asked for again.
    pub fn settle(&mut self, tell: &mut dyn FnMut(Repeated)) {
        for track in &mut self.tracks {
            track.told().map(&mut *tell);
        }
        for single in &mut self.singles {
            single.told().map(&mut *tell);
        }
    }

    /// A pause: tells all and forgets it.
    pub fn end(&mut self, tell: &mut dyn FnMut(Repeated)) {
        self.settle(tell);
        // What else a free place holds is never looked at, and to clear it all would take longer.
        for track in &mut self.tracks {
            (track.command, track.total) = (0, 0);
        }
        for single in &mut self.singles {
            single.read = 0;
        }
    }
}

/// The first read of a member.
fn begun(asked: &Asked, has_changed: bool) -> Track {
    Track {
        command: asked.command,
        member: asked.arguments,
        reply: asked.reply,
        shape: asked.shape,
        made: 1,
        total: 1,
        is_trivial: asked.is_trivial,
        agrees: true,
        has_changed,
        ..Track::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(key: u64, member: u64, reply: u64) -> Asked {
        Asked { command: 1, shape: 9, key, arguments: member, reply, is_trivial: false, gap_ns: 10 }
    }

    /// What is told of reads of members, each (key, member, reply): trips made and needed, and their gaps.
    fn members(reads: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
        let (mut state, mut told) = (Reads::default(), Vec::new());
        let mut tell = |repeated: Repeated| told.push((repeated.made, repeated.needed, repeated.gaps_ns));
        for &(key, member, reply) in reads {
            state.member(&asked(key, member, reply), &mut tell);
        }
        state.end(&mut tell);
        told
    }

    #[test]
    fn a_member_with_the_same_answer_everywhere_is_asked_for_once() {
        assert_eq!(members(&[(1, 5, 7), (2, 5, 7), (3, 5, 7), (1, 6, 8), (2, 6, 8), (3, 6, 8)]), [(3, 1, 20); 2]);
        assert_eq!(members(&[(1, 5, 7), (2, 5, 7), (3, 5, 8)]), [], "the answers differ");
        assert_eq!(members(&[(1, 5, 7), (2, 5, 7), (1, 6, 8), (2, 6, 8)]), [], "two are too few");
    }

    #[test]
    fn without_replies_the_member_must_change() {
        assert_eq!(members(&[(1, 5, 0), (2, 5, 0), (3, 5, 0), (4, 5, 0)]), []);
        assert_eq!(members(&[(1, 5, 0), (2, 5, 0), (3, 5, 0), (1, 6, 0), (2, 6, 0), (3, 6, 0)]), [(3, 1, 20); 2]);
    }

    #[test]
    fn a_read_is_repeated_until_its_key_is_written() {
        let (mut state, mut told) = (Reads::default(), Vec::new());
        let mut tell = |repeated: Repeated| told.push((repeated.made, repeated.needed));
        assert!(!state.single(&asked(1, 0, 7), &mut tell));
        assert!(state.single(&asked(1, 0, 7), &mut tell));
        assert!(!state.single(&asked(2, 0, 7), &mut tell));
        assert!(state.single(&asked(1, 0, 7), &mut tell));
        state.written(1, &mut tell);
        assert!(!state.single(&asked(1, 0, 7), &mut tell));
        assert!(!state.single(&asked(1, 0, 8), &mut tell), "another client has written it");
        state.written_all(&mut tell);
        assert!(!state.single(&asked(2, 0, 7), &mut tell));
        state.end(&mut tell);
        assert_eq!(told, [(3, 1)]);
    }
}
