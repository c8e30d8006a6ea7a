//! One suite for both forms and the conversion between them: compares all operations with a sorted vector.

use super::*;

/// The model that a set must equal: scores and members, ascending.
#[derive(Default, Clone)]
struct Model(Vec<(f64, Vec<u8>)>);

impl Model {
    fn rank(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|(_, other)| other == member)
    }

    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        self.rank(member).map(|rank| self.0.remove(rank).0)
    }

    fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let old = self.rank(member).map(|rank| self.0[rank].0);
        if old == Some(score) {
            return old;
        }
        self.remove(member);
        let at = self.0.partition_point(|(s, m)| (*s, &**m) < (score, member));
        self.0.insert(at, (score, member.to_vec()));
        old
    }

    /// Returns the ranks of the entries for which `inside` returns true.
    fn ranks(&self, inside: impl Fn(f64, &[u8]) -> bool) -> Vec<usize> {
        (0..self.0.len()).filter(|&rank| inside(self.0[rank].0, &self.0[rank].1)).collect()
    }
}

/// A case: the source of the random members and scores.
#[derive(Clone, Copy)]
struct Case {
    limits: ZSetLimits,
    members: usize,
    scores: usize,
    steps: usize,
}

/// Returns limits; they may keep all sets small, none, or some.
fn limits(entries_max: usize, member_bytes_max: usize) -> ZSetLimits {
    ZSetLimits { entries_max, member_bytes_max }
}

impl Case {
    /// Returns members of all kinds: integers, text, empty, long.
    fn member(&self, random: &mut Random) -> Vec<u8> {
        let n = random.below(self.members);
        match n % 5 {
            0 => n.to_string().into_bytes(),
            1 => format!("-{n}").into_bytes(),
            2 => format!("member:{n}").into_bytes(),
            3 => vec![b'x'; n % 90],
            _ => format!("{n}\0\u{fffd}").into_bytes(),
        }
    }

    /// Returns scores of all kinds, some of them equal; always the same one if `scores` is 1.
    fn score(&self, random: &mut Random) -> f64 {
        if self.scores == 1 {
            return 1.0;
        }
        match random.below(12) {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            2 => -0.0,
            3 => random.below(self.scores) as f64 / 3.0,
            _ => random.below(self.scores) as f64 - self.scores as f64 / 2.0,
        }
    }
}

fn entries(iter: Iter<'_>) -> Vec<(f64, Vec<u8>)> {
    let len = iter.len();
    let entries: Vec<_> = iter.map(|(member, score)| (score, member.to_vec())).collect();
    assert_eq!(entries.len(), len);
    entries
}

/// Checks all entries, in order and bit for bit.
fn check(set: &ZSet, model: &Model) {
    // The small form drops the sign of minus zero.
    let bits =
        |entries: &[(f64, Vec<u8>)]| entries.iter().map(|(s, m)| ((s + 0.0).to_bits(), m.clone())).collect::<Vec<_>>();
    assert_eq!(bits(&entries(set.iter())), bits(&model.0));
    assert_eq!((set.len(), set.is_empty()), (model.0.len(), model.0.is_empty()));
    let mut scanned = Vec::new();
    let mut cursor = 0;
    loop {
        cursor = set.scan(cursor, |member, score| scanned.push((score, member.to_vec())));
        if cursor == 0 {
            break;
        }
    }
    scanned.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(scanned, model.0);
}

fn check_member(set: &ZSet, model: &Model, member: &[u8]) {
    let rank = model.rank(member);
    assert_eq!(set.score(member), rank.map(|rank| model.0[rank].0));
    assert_eq!(set.rank(member, false), rank.map(|rank| (rank, model.0[rank].0)));
    assert_eq!(set.rank(member, true), rank.map(|rank| (model.0.len() - 1 - rank, model.0[rank].0)));
}

fn score_range(case: Case, random: &mut Random) -> ScoreRange {
    let (min, max) = (case.score(random), case.score(random));
    ScoreRange { min, max, min_excluded: random.below(2) == 0, max_excluded: random.below(2) == 0 }
}

fn in_scores(range: &ScoreRange, score: f64) -> bool {
    let above = if range.min_excluded { score > range.min } else { score >= range.min };
    above && if range.max_excluded { score < range.max } else { score <= range.max }
}

fn in_lex(range: &LexRange<'_>, member: &[u8]) -> bool {
    let above = match range.min {
        LexBound::Lowest => true,
        LexBound::Highest => false,
        LexBound::Included(bytes) => member >= bytes,
        LexBound::Excluded(bytes) => member > bytes,
    };
    above
        && match range.max {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::Included(bytes) => member <= bytes,
            LexBound::Excluded(bytes) => member < bytes,
        }
}

fn lex_bound<'a>(bytes: &'a [u8], random: &mut Random) -> LexBound<'a> {
    match random.below(6) {
        0 => LexBound::Lowest,
        1 => LexBound::Highest,
        2 | 3 => LexBound::Included(bytes),
        _ => LexBound::Excluded(bytes),
    }
}

/// Checks that the ranks found are those wanted, and that iterators return their members in both directions.
fn check_ranks(set: &ZSet, model: &Model, found: Range<usize>, wanted: Vec<usize>) {
    assert_eq!(found.clone().collect::<Vec<_>>(), wanted);
    let mut wanted: Vec<_> = wanted.into_iter().map(|rank| model.0[rank].clone()).collect();
    assert_eq!(entries(set.range_by_rank(found.clone(), false)), wanted);
    wanted.reverse();
    assert_eq!(entries(set.range_by_rank(found.clone(), true)), wanted);
    // Also without single steps of the iterator.
    let mut all = Vec::new();
    set.range_by_rank(found, true).for_each(|(member, score)| all.push((score, member.to_vec())));
    assert_eq!(all, wanted);
}

fn check_ranges(set: &ZSet, model: &Model, case: Case, random: &mut Random) {
    let range = score_range(case, random);
    check_ranks(set, model, set.ranks_by_score(&range), model.ranks(|score, _| in_scores(&range, score)));
    if case.scores == 1 {
        let (min, max) = (case.member(random), case.member(random));
        let range = LexRange { min: lex_bound(&min, random), max: lex_bound(&max, random) };
        check_ranks(set, model, set.ranks_by_lex(&range), model.ranks(|_, member| in_lex(&range, member)));
    }
    let (start, end) = (random.below(set.len() + 2), random.below(set.len() + 2));
    let wanted = (start..end.min(set.len())).collect();
    check_ranks(set, model, start..end.min(set.len()).max(start), wanted);
    assert_eq!(set.range_by_rank(start..usize::MAX, false).len(), set.len().saturating_sub(start));
    assert_eq!(set.get(start).map(|(m, s)| (s, m.to_vec())), model.0.get(start).cloned());
}

/// Removes some range or pops, from both.
fn shrink(set: &mut ZSet, model: &mut Model, case: Case, random: &mut Random) {
    let len = model.0.len();
    let count = random.below(len / 2 + 2);
    match random.below(4) {
        0 => {
            let start = random.below(len + 1);
            let end = len.min(start + count);
            assert_eq!(set.remove_range_by_rank(start..start + count), model.0.drain(start..end).len());
        }
        1 => {
            let range = score_range(case, random);
            let ranks = model.ranks(|score, _| in_scores(&range, score));
            model.0.retain(|(score, _)| !in_scores(&range, *score));
            assert_eq!(set.remove_range_by_score(&range), ranks.len());
        }
        2 => {
            let mut popped = Vec::new();
            assert_eq!(set.pop_min(count, |member, score| popped.push((score, member.to_vec()))), count.min(len));
            assert!(model.0.drain(..count.min(len)).eq(popped));
        }
        _ => {
            let mut popped = Vec::new();
            assert_eq!(set.pop_max(count, |member, score| popped.push((score, member.to_vec()))), count.min(len));
            assert!(model.0.drain(len - count.min(len)..).rev().eq(popped));
        }
    }
}

fn run(case: Case, seed: u64) {
    let (mut set, mut model, mut random) = (ZSet::new(), Model::default(), Random::new(seed));
    for step in 0..case.steps {
        let member = case.member(&mut random);
        match random.below(40) {
            0 => shrink(&mut set, &mut model, case, &mut random),
            1..8 => assert_eq!(set.remove(&member), model.remove(&member).is_some()),
            _ => {
                let score = case.score(&mut random);
                assert_eq!(set.insert(&member, score, case.limits), model.insert(&member, score));
            }
        }
        check_member(&set, &model, &case.member(&mut random));
        check_member(&set, &model, &member);
        check_ranges(&set, &model, case, &mut random);
        if step % 32 == 0 {
            check(&set, &model);
            check(&set.clone(), &model);
            let mut shuffled: Vec<_> = model.0.iter().map(|(score, member)| (member, *score)).collect();
            shuffled.sort_by_cached_key(|_| random.next());
            check(&ZSet::from_pairs(shuffled, case.limits), &model);
        }
    }
}

#[test]
fn a_set_is_in_order_for_any_order_of_insertion() {
    let mut random = Random::new(5);
    let mut cases = vec![(15, 1000), (15, 1), (30, 1000), (30, 4)];
    if !cfg!(miri) {
        cases.extend([(3000, 100_000), (3000, 7)]);
    }
    for (count, scores) in cases {
        let mut sorted: Vec<(f64, Vec<u8>)> =
            (0..count).map(|n| (random.below(scores) as f64, format!("member:{n}").into_bytes())).collect();
        sorted.sort_by(|a, b| (a.0, &a.1).partial_cmp(&(b.0, &b.1)).unwrap());
        let reversed: Vec<_> = sorted.iter().rev().cloned().collect();
        let mut shuffled = sorted.clone();
        (0..count).for_each(|at| shuffled.swap(at, random.below(count)));
        for arriving in [&sorted, &reversed, &shuffled] {
            let mut builder = ZSetBuilder::new();
            for (score, member) in arriving {
                let hash = builder.prefetch(member);
                assert!(builder.insert_new(hash, member, *score) && !builder.insert_new(hash, member, 1.0));
            }
            let set = builder.finish(limits(20, 64));
            let got: Vec<_> = set.iter().map(|(member, score)| (score, member.to_vec())).collect();
            assert!(got == sorted, "{count} members of {scores} scores");
            assert!(
                sorted
                    .iter()
                    .enumerate()
                    .all(|(rank, (score, member))| set.rank(member, false) == Some((rank, *score)))
            );
        }
    }
}

#[test]
fn every_form_agrees_with_a_sorted_vector() {
    let forms = [limits(usize::MAX, usize::MAX), limits(0, 0), limits(12, 64), limits(128, 40)];
    let sizes = [(30, 5), (400, 40), (400, 1)];
    // Miri is slow, and looks for other errors than wrong results.
    let (steps, sizes) = if cfg!(miri) { (20, &sizes[..1]) } else { (3000, &sizes[..]) };
    for (seed, limits) in forms.into_iter().enumerate() {
        for &(members, scores) in sizes {
            run(Case { limits, members, scores, steps }, seed as u64);
        }
    }
}

/// Returns a set of the members 0 to `len`, with their numbers as scores.
fn numbers(len: usize, limits: ZSetLimits) -> ZSet {
    let mut set = ZSet::new();
    for n in 0..len {
        set.insert(n.to_string().as_bytes(), n as f64, limits);
    }
    set
}

#[test]
fn a_set_beyond_its_limits_is_in_the_big_form() {
    let limits = limits(3, 4);
    let check = |members: &[&str], encoding: &str| {
        let mut set = ZSet::new();
        for member in members {
            set.insert(member.as_bytes(), 1.0, limits);
        }
        assert_eq!(set.encoding(), encoding, "{members:?}");
        let pairs = members.iter().map(|member| (member, 1.0));
        assert_eq!(ZSet::from_pairs(pairs, limits).encoding(), encoding, "{members:?} built at once");
    };
    check(&[], "listpack");
    check(&["a", "b", "c"], "listpack");
    check(&["a", "b", "c", "c"], "listpack");
    check(&["a", "b", "c", "d"], "skiplist");
    check(&["abcd"], "listpack");
    check(&["abcde"], "skiplist");
}

#[test]
fn preparing_uses_the_announced_number_and_length() {
    let check = |len: usize, count: usize, first_bytes: usize, encoding: &str| {
        let mut set = numbers(len, limits(3, 4));
        set.prepare(count, first_bytes, limits(3, 4));
        assert_eq!((set.encoding(), set.len()), (encoding, len));
    };
    check(0, 3, 4, "listpack");
    check(0, 4, 4, "skiplist");
    check(0, 1, 5, "skiplist");
    check(2, 1, 5, "listpack");
    check(2, 3, 1, "listpack");
    check(2, 4, 1, "skiplist");
    check(2, usize::MAX, 1, "skiplist");
}

#[test]
fn a_big_set_stays_big() {
    let mut set = numbers(5, limits(3, 4));
    assert_eq!(set.pop_max(5, |_, _| {}), 5);
    set.insert(b"1", 1.0, limits(3, 4));
    assert_eq!((set.encoding(), set.len()), ("skiplist", 1));
}

#[test]
fn limits_of_ranges_count_from_their_beginning() {
    for (reverse, offset, count, wanted) in [
        (false, 0, None, 10..20),
        (false, 3, None, 13..20),
        (false, 3, Some(2), 13..15),
        (false, 10, Some(2), 20..20),
        (false, usize::MAX, None, 20..20),
        (true, 0, Some(usize::MAX), 10..20),
        (true, 3, Some(2), 15..17),
        (true, 9, Some(5), 10..11),
        (true, 12, Some(5), 10..10),
    ] {
        assert_eq!(limit_ranks(10..20, reverse, offset, count), wanted, "{reverse} {offset} {count:?}");
    }
}

#[test]
fn a_score_map_combines_scores() {
    let mut map = ScoreMap::default();
    assert_eq!((map.len(), map.is_empty()), (0, true));
    for (member, score) in [("b", 1.0), ("a", 5.0), ("b", 3.5), ("c", -1.0)] {
        map.begin_source(1);
        map.add(member.as_bytes(), score, |before, score| before + score);
    }
    assert_eq!((map.len(), map.is_empty()), (3, false));
    let wanted = [(-1.0, b"c".to_vec()), (4.5, b"b".to_vec()), (5.0, b"a".to_vec())];
    assert_eq!(entries(map.finish(ZSetLimits::default()).iter()), wanted);
}

#[test]
fn random_members_are_equally_likely() {
    for limits in [limits(usize::MAX, 64), limits(0, 0)] {
        let (set, mut random) = (numbers(10, limits), Random::new(3));
        let mut seen = [0; 10];
        let rounds = if cfg!(miri) { 200 } else { 10_000 };
        for _ in 0..rounds {
            let (_, score) = set.random(&mut random).unwrap();
            seen[score as usize] += 1;
        }
        assert!(seen.iter().all(|&times| times > rounds / 20 && times < rounds / 5), "{seen:?}");
        assert!(ZSet::new().random(&mut random).is_none());
    }
}

#[test]
fn scan_survives_growth() {
    let limits = limits(0, 0);
    let (first, last) = if cfg!(miri) { (30, 120) } else { (200, 2000) };
    let mut set = numbers(first, limits);
    let (mut seen, mut cursor, mut more) = (Vec::new(), 0, first);
    loop {
        cursor = set.scan(cursor, |_, score| seen.push(score as usize));
        if cursor == 0 {
            break;
        }
        for n in more..more + 20 {
            set.insert(n.to_string().as_bytes(), n as f64, limits);
        }
        more = (more + 20).min(last);
    }
    assert!((0..first).all(|n| seen.contains(&n)));
}

#[test]
fn memory_is_counted() {
    assert_eq!(ZSet::new().memory_bytes(), 0);
    let len = if cfg!(miri) { 130 } else { 20_000 };
    let big = numbers(len, limits(0, 0));
    assert!((30..80).contains(&(big.memory_bytes() / len)), "{}", big.memory_bytes() / len);
    let mut emptied = big.clone();
    emptied.remove_range_by_rank(1..usize::MAX);
    assert!(emptied.memory_bytes() < 3000, "{}", emptied.memory_bytes());
}

#[test]
fn collected_members_are_sorted() {
    const SCORES: [f64; 11] =
        [0.0, -0.0, 1.0, -1.0, 1.5, -1.5, 1e300, -1e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY];
    for (seed, len) in [(1, 1), (2, 2), (3, 40), (4, if cfg!(miri) { 200 } else { 5000 })] {
        let random = &mut Random::new(seed);
        let (mut gathered, mut wanted) = (ScoreMap::default(), Vec::new());
        for number in 0..len {
            // Numbers of different lengths, which have another order as texts.
            let member = (number * 7919 % 100_000).to_string().into_bytes();
            let score = SCORES[random.below(SCORES.len())];
            gathered.push(&member, score);
            wanted.push((member, score));
        }
        wanted.sort_by(|(one, score), (other, others)| score.partial_cmp(others).unwrap().then_with(|| one.cmp(other)));
        let same = gathered.sorted().zip(&wanted).all(|(one, other)| (one.0, one.1) == (&*other.0, other.1));
        assert!(same, "{seed}");
        let set = gathered.finish(limits(0, 0));
        assert!(set.iter().zip(&wanted).all(|((member, score), other)| *member == *other.0 && score == other.1));
        assert_eq!(set.len(), len);
    }
}
