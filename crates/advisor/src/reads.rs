//! Redundant reads: the same read again with no write between, or the same member or field read from one key after the
//! other, always with the same answer.
//!
//! Without replies, the second form counts only if the member changes from time to time: this shows that the code asks
//! about the member, and does not read one field of many keys. Answers that say little (nil, 0, a small number) are equal
//! by chance. They count only if the client itself writes each key right after it asks, so that it knows the answers.
//!
//! Repetition is a matter of order, not of time: a pause does not end the reads of a member. If pauses come before half of
//! the reads, the client asks anew on purpose. Some clients ask about one member after the other, and write each key right
//! after the question. They do not wait for a change, however long their pauses are: on a busy machine most gaps are
//! long. Several members show this, so the reads of the first ones are held back until then.
//!
//! One repetition of an empty answer is no waste: a client looks again once it has a lock, because another one may have written
//! the value. After the client has taken a lock in the server, it may read anything again for this reason.
//!
//! A read that repeats an earlier one over a short pause counts if pauses are rare among its repetitions: the client did
//! not choose them. Otherwise the first read after each pause was needed.

/// Number of commands that are followed at the same time.
const TRACKS: usize = 4;
/// Number of single reads that are remembered.
const REMEMBERED: usize = 8;
/// Number of repetitions of a single read that are reported together.
const TOLD_TOGETHER: u32 = 64;
/// Number of different members with the same answer that proves one owner. Fewer may share a common value by chance.
const MEMBERS_MIN: u32 = 8;

/// A group of reads that one read could replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The shape of the last read.
    pub shape: u64,
    /// True if all reads used one and the same key.
    pub one_key: bool,
    /// Reads made.
    pub made: u64,
    /// Reads that would have been enough: 1, or 0 if an earlier report counted the first read.
    pub needed: u64,
    /// The gaps before the redundant reads.
    pub gaps_ns: u64,
    /// True if the replies are known to be equal.
    pub is_known: bool,
    /// True if the answers can't be equal by chance, and nobody waits for a change.
    pub is_certain: bool,
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
    /// The reply's hash; 0 if unknown.
    pub reply: u64,
    /// True if the reply is known to be empty.
    pub is_empty: bool,
    /// True if the reply carries little information.
    pub is_trivial: bool,
    /// The gap before the read; 0 if it is not a round trip.
    pub gap_ns: u64,
    /// True if the client paused before the read.
    pub is_paced: bool,
}

/// The current reads of one member.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// The command; 0 for a free entry.
    command: u64,
    member: u64,
    reply: u64,
    shape: u64,
    /// Reads that were not reported yet, and the gaps before the redundant ones.
    made: u32,
    gaps_ns: u64,
    /// Number of reads in all.
    total: u32,
    /// True if the first read was reported.
    is_first_told: bool,
    is_trivial: bool,
    /// True if all answers were the same.
    agrees: bool,
    /// Number of other members that were read before.
    members: u32,
    /// The key of the last read.
    key: u64,
    /// Reads that a write of their key followed, and reads after a pause.
    written: u32,
    paced: u32,
    /// The reads of earlier members of a client that pauses and writes.
    held: Held,
}

/// Reads that are reported if more members show that the client does not wait for a change.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    made: u64,
    needed: u64,
    gaps_ns: u64,
}

/// Pauses before fewer than one of so many repetitions are rare.
const PACED_SHARE: u32 = 4;
/// With fewer reads of one member, equal answers may be chance.
const READS_MIN: u32 = 3;

impl Track {
    /// Takes the unreported reads if they are repetitions. `pauses` tells that the client often pauses before reads.
    fn told(&mut self, pauses: bool) -> Option<Repeated> {
        let has_members = self.members >= MEMBERS_MIN;
        if !self.repeats() || self.made == 0 || self.is_paced(pauses) && !(self.is_written() && has_members) {
            return None;
        }
        let held = if self.is_written() && has_members { std::mem::take(&mut self.held) } else { Held::default() };
        let is_known = self.reply != 0;
        let repeated = Repeated {
            shape: self.shape,
            one_key: false,
            made: held.made + u64::from(self.made),
            needed: held.needed + u64::from(!self.is_first_told),
            gaps_ns: held.gaps_ns + self.gaps_ns,
            is_known,
            is_certain: is_known && !self.is_trivial && has_members,
        };
        (self.made, self.gaps_ns, self.is_first_told) = (0, 0, true);
        Some(repeated)
    }

    /// True if all answers are equal, and not by chance.
    fn repeats(&self) -> bool {
        let is_known = self.reply != 0;
        let has_owner = if is_known { !self.is_trivial || self.is_written() } else { self.members > 0 };
        self.agrees && has_owner && self.total >= READS_MIN
    }

    /// True if the client writes the keys that it has read.
    fn is_written(&self) -> bool {
        self.written * 2 >= self.total
    }

    /// True if the client may ask anew on purpose.
    fn is_paced(&self, pauses: bool) -> bool {
        pauses && self.paced * 2 >= self.total
    }

    /// Returns the reads that count once more members follow, and the reads of earlier members.
    fn held(&self) -> Held {
        if !(self.repeats() && self.is_written()) {
            return self.held;
        }
        Held {
            made: self.held.made + u64::from(self.made),
            needed: self.held.needed + u64::from(self.made > 0 && !self.is_first_told),
            gaps_ns: self.held.gaps_ns + self.gaps_ns,
        }
    }
}

/// A read and how often it was repeated.
#[derive(Clone, Copy, Debug, Default)]
struct Single {
    /// The hash of command, key and arguments; 0 for a free entry.
    read: u64,
    key: u64,
    reply: u64,
    shape: u64,
    /// Repetitions that were not reported yet, and the gaps before them.
    repeated: u32,
    gaps_ns: u64,
    /// Unreported repetitions after a pause, and number of the connection's pauses at the last read.
    paced: u32,
    pauses: u32,
    /// Number of the last repetitions, reported ones too, and of those after a pause.
    lately: u32,
    lately_paced: u32,
    /// Repetitions with no other command in between: the client may wait for a change.
    at_once: u32,
    is_first_told: bool,
    is_empty: bool,
    is_trivial: bool,
}

impl Single {
    /// True if the client may have looked again because it got a lock in the meantime.
    fn is_second_look(&self) -> bool {
        self.is_empty && self.repeated == 1 && !self.is_first_told
    }

    /// Counts a pause before a repetition, or its absence.
    fn count(&mut self, is_paced: bool) {
        if self.lately >= ASKED_MAX {
            (self.lately, self.lately_paced) = (self.lately / 2, self.lately_paced / 2);
        }
        self.lately += 1;
        self.lately_paced += u32::from(is_paced);
        self.paced += u32::from(is_paced);
    }

    fn told(&mut self) -> Option<Repeated> {
        if self.is_second_look() {
            return None;
        }
        let is_rarely_paced = self.lately_paced * PACED_SHARE <= self.lately;
        let paced = if is_rarely_paced { 0 } else { self.paced };
        let wasted = self.repeated - paced;
        if wasted == 0 {
            (self.repeated, self.paced, self.gaps_ns, self.at_once) = (0, 0, 0, 0);
            return None;
        }
        let needed = u64::from(!self.is_first_told) + u64::from(paced);
        let repeated = Repeated {
            shape: self.shape,
            one_key: true,
            made: u64::from(wasted) + needed,
            needed,
            gaps_ns: (u128::from(self.gaps_ns) * u128::from(wasted) / u128::from(self.repeated)) as u64,
            is_known: self.reply != 0,
            is_certain: self.reply != 0 && !self.is_trivial && self.at_once * 2 <= self.repeated,
        };
        (self.repeated, self.paced, self.gaps_ns, self.at_once, self.is_first_told) = (0, 0, 0, 0, true);
        Some(repeated)
    }
}

/// The relation of a read to the earlier reads of the same member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// The read is not one of a member, so repetitions are not tracked.
    None,
    /// The first read of the member.
    First,
    /// The answer is the same as before.
    Repeats,
    /// The answer differs.
    Differs,
}

/// The reads of a connection since its last pause.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    tracks: [Track; TRACKS],
    next_track: u8,
    singles: [Single; REMEMBERED],
    next_single: u8,
    /// The last command if it was a read, as in [`Single::read`].
    last: u64,
    /// Number of the last reads of members, and of those after a pause.
    asked: u32,
    paced: u32,
    /// Number of short pauses, which wraps around.
    pauses: u32,
}

/// Number of reads after which older ones count half.
const ASKED_MAX: u32 = 256;

impl Reads {
    /// Adds a read of a member or field. Reports the reads that it ends.
    pub fn member(&mut self, asked: &Asked, tell: &mut dyn FnMut(Repeated)) {
        let pauses = self.count(asked.is_paced);
        let Some(track) = self.tracks.iter_mut().find(|track| track.command == asked.command) else {
            let track = &mut self.tracks[usize::from(self.next_track) % TRACKS];
            self.next_track = self.next_track.wrapping_add(1);
            track.told(pauses).map(&mut *tell);
            *track = begun(asked, 0);
            return;
        };
        if track.member != asked.arguments {
            track.members = track.members.saturating_add(1);
            track.told(pauses).map(&mut *tell);
            *track = Track { held: track.held(), ..begun(asked, track.members) };
            return;
        }
        track.agrees &= track.reply == asked.reply;
        track.shape = asked.shape;
        track.key = asked.key;
        track.paced += u32::from(asked.is_paced);
        track.made += 1;
        track.total += 1;
        track.gaps_ns += asked.gap_ns;
    }

    /// Counts a read of a member. Returns true if the client often pauses before such reads. A busy machine delays a few
    /// reads; a client that asks anew on purpose pauses before many.
    fn count(&mut self, is_paced: bool) -> bool {
        if self.asked >= ASKED_MAX {
            (self.asked, self.paced) = (self.asked / 2, self.paced / 2);
        }
        self.asked += 1;
        self.paced += u32::from(is_paced);
        self.pauses()
    }

    fn pauses(&self) -> bool {
        self.paced * 4 >= self.asked
    }

    /// Returns the relation of the last read of this shape to the earlier ones.
    pub fn repetition(&self, shape: u64) -> Repetition {
        match self.tracks.iter().find(|track| track.shape == shape && track.total > 0) {
            None => Repetition::None,
            Some(track) if !track.agrees => Repetition::Differs,
            Some(track) if track.total == 1 => Repetition::First,
            Some(_) => Repetition::Repeats,
        }
    }

    /// Adds any read. Returns true if it repeats an earlier one with the same answer.
    pub fn single(&mut self, asked: &Asked, tell: &mut dyn FnMut(Repeated)) -> bool {
        let read = crate::hash::mix(asked.command ^ asked.key, asked.arguments) | 1;
        let is_at_once = std::mem::replace(&mut self.last, read) == read;
        if let Some(single) = self.singles.iter_mut().find(|single| single.read == read) {
            if single.reply != asked.reply {
                single.told().map(&mut *tell);
                let reply = asked.reply;
                let (is_empty, is_trivial, pauses) = (asked.is_empty, asked.is_trivial, self.pauses);
                (single.repeated, single.paced, single.gaps_ns, single.at_once) = (0, 0, 0, 0);
                *single = Single { reply, is_first_told: false, is_empty, is_trivial, pauses, ..*single };
                return false;
            }
            single.repeated += 1;
            let is_paced = std::mem::replace(&mut single.pauses, self.pauses) != self.pauses;
            single.count(is_paced);
            single.at_once += u32::from(is_at_once);
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
            is_empty: asked.is_empty,
            is_trivial: asked.is_trivial,
            pauses: self.pauses,
            ..Single::default()
        };
        false
    }

    /// Forgets the reads of a key that is written.
    #[inline]
    pub fn written(&mut self, key: u64, tell: &mut dyn FnMut(Repeated)) {
        self.last = 0;
        for track in self.tracks.iter_mut().filter(|track| track.key == key) {
            track.written += 1;
        }
        for single in self.singles.iter_mut().filter(|single| single.key == key && single.read != 0) {
            single.told().map(&mut *tell);
            *single = Single::default();
        }
    }

    /// Forgets the last command if it was a read. The client takes a lock now, and may read the same value again, because another client may
    /// have written it before.
    pub fn locks(&mut self, tell: &mut dyn FnMut(Repeated)) {
        let last = self.last;
        for single in self.singles.iter_mut().filter(|single| last != 0 && single.read == last) {
            single.told().map(&mut *tell);
            *single = Single::default();
        }
    }

    /// Forgets all single reads, because a command may have written any key.
    pub fn written_all(&mut self, tell: &mut dyn FnMut(Repeated)) {
        self.last = 0;
        for single in &mut self.singles {
            single.told().map(&mut *tell);
            *single = Single::default();
        }
    }

    /// Reports the reads so far. Reads of members continue.
    pub fn settle(&mut self, tell: &mut dyn FnMut(Repeated)) {
        let pauses = self.pauses();
        for track in &mut self.tracks {
            track.told(pauses).map(&mut *tell);
        }
        for single in &mut self.singles {
            single.told().map(&mut *tell);
        }
    }

    /// Counts a short pause.
    pub fn pause(&mut self) {
        self.last = 0;
        self.pauses = self.pauses.wrapping_add(1);
    }

    /// Reports all reads and forgets the single ones, because of a long pause. Reads of members continue.
    pub fn rest(&mut self, tell: &mut dyn FnMut(Repeated)) {
        self.settle(tell);
        self.written_all(tell);
    }

    /// Reports and forgets all reads, because the client did something else.
    pub fn end(&mut self, tell: &mut dyn FnMut(Repeated)) {
        self.settle(tell);
        self.last = 0;
        // The other fields of a free entry are never read, so they are not cleared.
        for track in &mut self.tracks {
            (track.command, track.total) = (0, 0);
        }
        for single in &mut self.singles {
            single.read = 0;
        }
    }
}

/// Returns the first read of a member.
fn begun(asked: &Asked, members: u32) -> Track {
    Track {
        command: asked.command,
        member: asked.arguments,
        reply: asked.reply,
        shape: asked.shape,
        made: 1,
        total: 1,
        is_trivial: asked.is_trivial,
        agrees: true,
        members,
        key: asked.key,
        ..Track::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(key: u64, member: u64, reply: u64) -> Asked {
        Asked {
            command: 1,
            shape: 9,
            key,
            arguments: member,
            reply,
            is_empty: false,
            is_trivial: false,
            gap_ns: 10,
            is_paced: false,
        }
    }

    /// The reported reads of members for reads given as (key, member, reply): trips made, trips needed, and gaps.
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

    /// The reported reads of one member after another, each of three keys, with this answer.
    fn answered(is_trivial: bool, is_written: bool, is_paced: bool) -> Vec<bool> {
        let (mut state, mut told) = (Reads::default(), Vec::new());
        let mut tell = |repeated: Repeated| told.push(repeated.is_certain);
        for member in 0..20 {
            for key in 0..3 {
                state.member(&Asked { is_trivial, is_paced, ..asked(key, member, 7) }, &mut tell);
                if is_written {
                    state.written(key, &mut tell);
                }
            }
        }
        state.end(&mut tell);
        told
    }

    #[test]
    fn answers_that_say_little_need_an_owner() {
        assert_eq!(answered(true, false, false), []);
        assert_eq!(answered(true, true, false), [false; 20]);
        let certain = answered(false, false, false);
        assert_eq!(certain.len(), 20);
        assert!(!certain[0] && certain[19], "an answer that few members share may be a common one");
    }

    #[test]
    fn reads_after_pauses_are_made_anew_on_purpose() {
        assert_eq!(answered(false, false, true), []);
        assert_eq!(answered(true, false, true), []);
        // A client that writes each key at once does not wait for a change.
        assert_eq!(answered(false, true, true).len(), 21 - MEMBERS_MIN as usize);
    }

    /// The reads of the first members are held back, not lost.
    #[test]
    fn all_reads_of_a_client_that_pauses_and_writes_are_counted() {
        for (members, expected) in [(u64::from(MEMBERS_MIN), (0, 0)), (10, (30, 10)), (100, (300, 100))] {
            let (mut state, mut told) = (Reads::default(), (0, 0));
            let mut tell = |repeated: Repeated| told = (told.0 + repeated.made, told.1 + repeated.needed);
            for member in 0..members {
                for key in 0..3 {
                    state.member(&Asked { is_paced: true, ..asked(key, member, 7) }, &mut tell);
                    state.written(key, &mut tell);
                    state.pause();
                    state.settle(&mut tell);
                }
            }
            state.end(&mut tell);
            assert_eq!(told, expected, "{members}");
        }
    }

    /// The reported repetitions of a read with a pause before one of so many: trips made, trips needed.
    fn paced(one_of: u32) -> (u64, u64) {
        let (mut state, mut told) = (Reads::default(), (0, 0));
        let mut tell = |repeated: Repeated| told = (told.0 + repeated.made, told.1 + repeated.needed);
        for number in 1..=1000 {
            if number % one_of == 0 {
                state.pause();
            }
            state.single(&asked(1, 0, 7), &mut tell);
            state.written(2, &mut tell);
        }
        state.end(&mut tell);
        told
    }

    #[test]
    fn a_read_is_repeated_over_rare_pauses() {
        assert_eq!(paced(100), (1000, 1));
        assert_eq!(paced(5), (1000, 1));
        assert_eq!(paced(2), (1000, 501), "the first read after each pause is needed");
        assert_eq!(paced(1), (0, 0));
    }

    #[test]
    fn reads_of_a_member_go_on_after_a_long_pause() {
        let (mut state, mut told) = (Reads::default(), Vec::new());
        let mut tell = |repeated: Repeated| told.push((repeated.made, repeated.needed));
        for key in 0..10 {
            state.member(&asked(key, 5, 7), &mut tell);
            if key % 4 == 3 {
                state.rest(&mut tell);
            }
        }
        state.end(&mut tell);
        assert_eq!(told, [(4, 1), (4, 0), (2, 0)]);
    }

    #[test]
    fn a_client_that_only_repeats_a_read_may_wait_for_a_change() {
        for is_alone in [true, false] {
            let (mut state, mut told) = (Reads::default(), Vec::new());
            let mut tell = |repeated: Repeated| told.push(repeated.is_certain);
            for _ in 0..10 {
                state.single(&asked(1, 0, 7), &mut tell);
                if !is_alone {
                    state.written(2, &mut tell);
                }
            }
            state.end(&mut tell);
            assert_eq!(told, [!is_alone]);
        }
    }

    #[test]
    fn a_second_look_for_a_missing_value_is_no_waste() {
        for (looks, expected) in [(1, (0, 0)), (2, (0, 0)), (3, (30, 10))] {
            let (mut state, mut told) = (Reads::default(), (0, 0));
            let mut tell = |repeated: Repeated| told = (told.0 + repeated.made, told.1 + repeated.needed);
            for key in 0..10 {
                for _ in 0..looks {
                    state.single(&Asked { is_empty: true, is_trivial: true, ..asked(key, 0, 7) }, &mut tell);
                    state.settle(&mut tell);
                }
                state.written(key, &mut tell);
            }
            state.end(&mut tell);
            assert_eq!(told, expected, "{looks}");
        }
    }

    #[test]
    fn a_read_after_a_lock_is_no_repetition() {
        for locks in [true, false] {
            let (mut state, mut told) = (Reads::default(), 0);
            let mut tell = |repeated: Repeated| told += repeated.made - repeated.needed;
            for key in 0..10 {
                state.single(&asked(key, 0, 7), &mut tell);
                if locks {
                    state.locks(&mut tell);
                }
                state.written(100 + key, &mut tell);
                state.single(&asked(key, 0, 7), &mut tell);
                state.written(key, &mut tell);
            }
            state.end(&mut tell);
            assert_eq!(told, if locks { 0 } else { 10 });
        }
    }
}
