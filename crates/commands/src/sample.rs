//! Random members of collections, for SRANDMEMBER and similar commands: a given number of members, distinct or with
//! repetitions.
//!
//! This module knows nothing of keys or of the reply's format.

use resp::reply::Reply;
use store::random::Random;
use store::types::set::{Set, SetLimits};

use crate::Call;
use crate::error::{Error, Outcome};

/// Smallest valid count, as in Redis.
const COUNT_MIN: i64 = -i64::MAX;

/// Smallest size of a member in a reply, in bytes: an empty bulk string.
const MEMBER_BYTES_MIN: usize = "$0\r\n\r\n".len();

/// Largest collection that is gathered into a vector before repeated picks. A pick from a packed block would walk the
/// block each time.
const GATHERED_MAX: usize = 1024;

/// Picks from a small collection cost more than one walk if there is more than one for so many members.
const WALKED_PART: usize = 16;

/// A collection that supports random picks of members.
pub trait Sampled {
    /// A member with its value or score.
    type Member<'a>: Copy
    where
        Self: 'a;

    /// Number of members.
    fn size(&self) -> usize;
    /// All members.
    fn members(&self) -> impl Iterator<Item = Self::Member<'_>>;
    /// Picks one member with equal probability; none, if the collection is empty.
    fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Self::Member<'_>>;
    /// The unique name of a member.
    fn name<'m>(member: &'m Self::Member<'_>) -> &'m [u8];
}

/// Parses the argument at `index` as a count: positive for distinct members, negative for members with repetitions.
pub fn count(call: &Call<'_, '_, '_>, index: usize) -> Result<i64, Error> {
    let count = call.int(index)?;
    if count < COUNT_MIN {
        return Err(Error::NOT_NEGATABLE);
    }
    Ok(count)
}

/// Parses the last arguments of HRANDFIELD and ZRANDMEMBER, from `index` on: a count, and an optional `word` that asks
/// for a value or score with every member.
pub fn count_and_word(call: &Call<'_, '_, '_>, index: usize, word: &str) -> Result<(i64, bool), Error> {
    let count = count(call, index)?;
    if call.len() == index + 1 {
        return Ok((count, false));
    }
    if call.len() > index + 2 || !call.is(index + 1, word) {
        return Err(Error::SYNTAX);
    }
    // Redis rejects a count that would overflow when doubled.
    if count.unsigned_abs() > i64::MAX as u64 / 2 { Err(Error::VALUE_OUT_OF_RANGE) } else { Ok((count, true)) }
}

/// Replies with an array of random members. `write` writes one member as `texts` replies. A negative `count` allows
/// repetitions.
///
/// A reply with repetitions has no natural limit, and it is built in memory before it is sent. Replies beyond
/// `bytes_max` (`proto-max-bulk-len`) are refused; Redis would grow until it runs out of memory.
pub fn reply_members<'s, S: Sampled>(
    collection: &'s S,
    count: i64,
    texts: usize,
    bytes_max: usize,
    random: &mut Random,
    reply: &mut Reply<'_>,
    mut write: impl FnMut(&mut Reply<'_>, S::Member<'s>),
) -> Outcome {
    if let Ok(count) = usize::try_from(count) {
        let count = count.min(collection.size());
        reply.array(count * texts);
        visit_distinct(collection, count, random, |member| write(reply, member));
        return Ok(());
    }
    let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count > bytes_max / MEMBER_BYTES_MIN {
        return Err(too_long(bytes_max));
    }
    let (mark, before) = (reply.deferred(), reply.output().len());
    reply.array(count * texts);
    let mut fits = true;
    visit_repeated(collection, count, random, |member| {
        write(reply, member);
        fits = reply.output().len() - before <= bytes_max;
        fits
    });
    if !fits {
        reply.output().truncate(mark);
        return Err(too_long(bytes_max));
    }
    Ok(())
}

/// The error for a reply with repetitions that would be too long.
pub fn too_long(bytes_max: usize) -> Error {
    Error::new(format!(
        "ERR the reply would be longer than proto-max-bulk-len ({bytes_max} bytes): ask for fewer members at a time, \
         or raise it with CONFIG SET"
    ))
}

/// Passes `count` random members to `visit`, until it returns false.
fn visit_repeated<'s, S: Sampled>(
    collection: &'s S,
    count: usize,
    random: &mut Random,
    mut visit: impl FnMut(S::Member<'s>) -> bool,
) {
    let gathered: Vec<_> =
        if collection.size() <= count.min(GATHERED_MAX) { collection.members().collect() } else { Vec::new() };
    for _ in 0..count {
        let member = if gathered.is_empty() {
            collection.pick(&mut || random.next())
        } else {
            gathered.get(random.below(gathered.len())).copied()
        };
        if !member.is_some_and(&mut visit) {
            return;
        }
    }
}

/// Passes `count` distinct random members to `visit`; all subsets are equally likely. `count` is at most the number of
/// members.
fn visit_distinct<'s, S: Sampled>(
    collection: &'s S,
    count: usize,
    random: &mut Random,
    mut visit: impl FnMut(S::Member<'s>),
) {
    let len = collection.size();
    if count == 1 {
        collection.pick(&mut || random.next()).into_iter().for_each(visit);
    } else if count > len / 3 || len <= GATHERED_MAX && count > len / WALKED_PART {
        let mut choice = Choice::new(count, len);
        collection.members().filter(|_| choice.choose(random)).take(count).for_each(visit);
    } else {
        // At least two of three picks are new members.
        let (mut seen, limits) = (Set::new(), SetLimits::default());
        seen.prepare(b"", count, &limits);
        while seen.len() < count {
            let Some(member) = collection.pick(&mut || random.next()) else { return };
            if seen.insert(S::name(&member), &limits) {
                visit(member);
            }
        }
    }
}

/// Selects `wanted` of `left` things, one decision after the other, with equal probability for each subset (Knuth's
/// selection sampling, The Art of Computer Programming, volume 2, 3.4.2, algorithm S).
pub struct Choice {
    wanted: usize,
    left: usize,
}

impl Choice {
    /// Creates a selection of `wanted` out of `total` things.
    #[must_use]
    pub fn new(wanted: usize, total: usize) -> Choice {
        Choice { wanted, left: total }
    }

    /// Decides about the next thing: true if it is selected.
    #[inline]
    pub fn choose(&mut self, random: &mut Random) -> bool {
        let chosen = self.wanted > 0 && random.below(self.left) < self.wanted;
        self.wanted -= usize::from(chosen);
        self.left = self.left.saturating_sub(1);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl Sampled for Vec<Vec<u8>> {
        type Member<'a> = &'a [u8];
        fn size(&self) -> usize {
            self.len()
        }
        fn members(&self) -> impl Iterator<Item = &[u8]> {
            self.iter().map(Vec::as_slice)
        }
        fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<&[u8]> {
            self.get((random() % self.len() as u64) as usize).map(Vec::as_slice)
        }
        fn name<'m>(member: &'m &[u8]) -> &'m [u8] {
            member
        }
    }

    #[test]
    fn huge_counts_are_accepted_if_the_reply_is_short() {
        let mut bench = crate::testing::Bench::default();
        bench.rules.string_bytes_max = 1000;
        let refused = format!("-{}", String::from_utf8_lossy(too_long(1000).text()));
        let out_of_range =
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        bench.check(&[("sadd s a b", ":2"), ("hset h f v", ":1"), ("zadd z 1 a", ":1")]);
        for (command, key) in [("srandmember", "s"), ("hrandfield", "h"), ("zrandmember", "z")] {
            for count in ["-1000000000", "-9223372036854775807"] {
                assert_eq!(bench.run(&format!("{command} nokey {count}")), "*0", "{command}");
                assert_eq!(bench.run(&format!("{command} {key} {count}")), refused, "{command}");
            }
            assert_eq!(bench.run(&format!("{command} {key} -9223372036854775808")), out_of_range, "{command}");
            assert!(bench.run(&format!("{command} {key} -100")).starts_with("*100|"), "{command}");
            assert_eq!(bench.run(&format!("{command} {key} -150")), refused, "{command}");
        }
    }

    #[test]
    fn distinct_members_are_chosen_evenly() {
        let mut random = Random::new(7);
        for (len, count, rounds) in
            [(10, 1, 2000), (10, 3, 1000), (200, 5, 3000), (10, 9, 1000), (10, 10, 3), (3000, 500, 200)]
        {
            let all: Vec<_> = (0..len).map(|i| i.to_string().into_bytes()).collect();
            let mut chosen = BTreeMap::<Vec<u8>, usize>::new();
            for _ in 0..rounds {
                let mut names = Vec::new();
                visit_distinct(&all, count, &mut random, |name| names.push(name));
                assert_eq!(names.len(), count);
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), count);
                names.into_iter().for_each(|name| *chosen.entry(name.to_vec()).or_default() += 1);
            }
            // The tolerance is about five standard deviations.
            let mean = (rounds * count) as f64 / len as f64;
            let off = 5.0 * (mean * (1.0 - count as f64 / len as f64)).sqrt();
            for times in chosen.values() {
                assert!((*times as f64 - mean).abs() <= off, "{times} times, {mean} expected: {count} of {len}");
            }
            assert_eq!(chosen.len(), len);
        }
    }
}
