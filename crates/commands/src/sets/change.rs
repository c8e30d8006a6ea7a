//! Adding, removing and moving members: SADD, SREM, SMOVE.

use store::keyspace::Key;
use store::types::set::Set;

use crate::Call;
use crate::effects::Class;
use crate::error::Outcome;
use crate::items::ItemsAhead;

/// Records that `count` members were removed from the set, and deletes the key if the set is empty.
pub(super) fn taken(call: &mut Call<'_, '_, '_>, key: Key<'_>, event: &'static str, count: usize, is_empty: bool) {
    call.changed_by(count, key, Class::Set, event);
    if is_empty {
        call.db.remove(key);
        call.event(key, Class::Generic, "del");
    }
}

pub(super) fn sadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, limits, members) = (call.key(1), &call.rules.set, call.args.from(2));
    let set = call.db.object_or_new::<Set>(key)?;
    set.prepare(call.args.get(2), members.len(), limits);
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    let insert = |member: &&[u8]| {
        ahead.before_next(call.args, |item| set.prefetch(item));
        set.insert(member, limits)
    };
    let added = members.filter(insert).count();
    if added > 0 {
        call.changed_by(added, key, Class::Set, "sadd");
    }
    call.reply.count(added);
    Ok(())
}

pub(super) fn srem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, members) = (call.key(1), call.args.from(2));
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    let (removed, is_empty) = match call.db.object_mut::<Set>(key)? {
        None => (0, false),
        Some(set) => {
            let remove = |member: &&[u8]| {
                ahead.before_next(call.args, |item| set.prefetch(item));
                set.remove(member)
            };
            (members.filter(remove).count(), set.is_empty())
        }
    };
    if removed > 0 {
        taken(call, key, "srem", removed, is_empty);
    }
    call.reply.count(removed);
    Ok(())
}

pub(super) fn smove(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (source, destination, member) = (call.key(1), call.key(2), call.arg(3));
    let destination_type = call.db.object_mut::<Set>(destination).map(|_| ());
    let Some(set) = call.db.object_mut::<Set>(source)? else {
        call.reply.int(0);
        return Ok(());
    };
    destination_type?;
    if source.bytes == destination.bytes {
        call.reply.int(i64::from(set.contains(member)));
        return Ok(());
    }
    let moved = set.remove(member);
    if moved {
        let is_empty = set.is_empty();
        taken(call, source, "srem", 1, is_empty);
        if call.db.object_or_new::<Set>(destination)?.insert(member, &call.rules.set) {
            call.changed(destination, Class::Set, "sadd");
        }
    }
    call.reply.int(i64::from(moved));
    Ok(())
}
