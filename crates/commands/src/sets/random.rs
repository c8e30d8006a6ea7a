//! Random members: SPOP, SRANDMEMBER.

use resp::num;
use resp::reply::Reply;
use store::random::Random;
use store::types::packed::ItemText;
use store::types::set::{Set, SetLimits};

use super::change::taken;
use super::reply_set;
use crate::Call;
use crate::error::{Error, Outcome};
use crate::sample::{self, Choice, Sampled};

impl Sampled for Set {
    type Member<'a> = ItemText<'a>;

    fn size(&self) -> usize {
        self.len()
    }

    fn members(&self) -> impl Iterator<Item = Self::Member<'_>> {
        self.iter()
    }

    fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<Self::Member<'_>> {
        self.pick(random)
    }

    fn name<'m>(member: &'m Self::Member<'_>) -> &'m [u8] {
        member
    }
}

pub(super) fn srandmember(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let count = match call.len() {
        2 => None,
        3 => Some(sample::count(call, 2)?),
        _ => return Err(Error::SYNTAX),
    };
    let Some(set) = call.db.object::<Set>(key)? else {
        if count.is_some() {
            call.reply.array(0)
        } else {
            call.reply.null()
        }
        return Ok(());
    };
    let Some(count) = count else {
        call.reply.bulk_or_null(set.pick(&mut || call.random.next()));
        return Ok(());
    };
    let bytes_max = call.rules.string_bytes_max;
    sample::reply_members(set, count, 1, bytes_max, call.random, &mut call.reply, |reply, member| reply.bulk(member))
}

pub(super) fn spop(call: &mut Call<'_, '_, '_>) -> Outcome {
    match call.len() {
        2 => pop_one(call),
        3 => pop_several(call),
        _ => Err(Error::SYNTAX),
    }
}

fn pop_one(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, random) = (call.key(1), &mut *call.random);
    let Some(set) = call.db.object_mut::<Set>(key)? else {
        call.reply.null();
        return Ok(());
    };
    let member = set.pop(&mut || random.next());
    call.reply.bulk_or_null(member.as_ref());
    let is_empty = set.is_empty();
    if let Some(member) = member.filter(|_| call.effects.recording) {
        call.effects.record_as(call.db.index(), [&b"SREM"[..], key.bytes, member.as_ref()].into_iter());
    }
    taken(call, key, "spop", 1, is_empty);
    Ok(())
}

fn pop_several(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let count = num::parse_i64(call.arg(2)).and_then(|count| usize::try_from(count).ok()).ok_or(Error::NOT_POSITIVE)?;
    let set = call.db.object_mut::<Set>(key)?.filter(|_| count > 0);
    let Some(set) = set else {
        call.reply.set(0);
        return Ok(());
    };
    let (takes_all, taken_count) = (count >= set.len(), count.min(set.len()));
    if takes_all {
        // Redis reads the set here, which counts as a hit.
        if let Some(set) = call.db.object::<Set>(key)? {
            reply_set(&mut call.reply, set);
        }
        // The old value may be large.
        call.overwrite(key);
        call.record_as(&[b"DEL", key.bytes]);
    } else {
        let mut popped = call.effects.recording.then(Vec::new);
        pop_to_reply(set, count, &call.rules.set, call.random, &mut call.reply, popped.as_mut());
        if let Some(popped) = popped {
            let words = [&b"SREM"[..], key.bytes].into_iter().chain(popped.iter().map(|member| &**member));
            call.effects.record_as(call.db.index(), words.collect::<Vec<_>>().into_iter());
        }
    }
    taken(call, key, "spop", taken_count, takes_all);
    Ok(())
}

/// Ratio of removed to remaining members from which selecting the remaining ones is faster.
const TAKEN_PER_LEFT_MIN: usize = 5;

/// Moves `count` members to the reply and lists them in `popped`. `count` is less than the number of members.
fn pop_to_reply(
    set: &mut Set,
    count: usize,
    limits: &SetLimits,
    random: &mut Random,
    reply: &mut Reply<'_>,
    mut popped: Option<&mut Vec<Box<[u8]>>>,
) {
    reply.set(count);
    let mut note = |member: &[u8]| {
        if let Some(popped) = &mut popped {
            popped.push(member.into());
        }
    };
    let left = set.len() - count;
    // A snapshot in progress notices removals from the set, but not a replacement of the set.
    if left * TAKEN_PER_LEFT_MIN > count || set.has_walk() {
        for _ in 0..count {
            let member = set.pop(&mut || random.next());
            member.iter().for_each(|member| note(member.as_ref()));
            reply.bulk_or_null(member);
        }
        return;
    }
    // As in Redis, the remaining members return to a compact encoding.
    let mut kept = Set::new();
    kept.prepare(if set.ints().is_some() { b"0" } else { b"" }, left, limits);
    let mut choice = Choice::new(left, set.len());
    set.for_each(|member| {
        if choice.choose(random) {
            kept.insert(member, limits);
        } else {
            note(member);
            reply.bulk(member);
        }
    });
    *set = kept;
}
