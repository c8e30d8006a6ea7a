//! Reading members: SCARD, SISMEMBER, SMISMEMBER, SMEMBERS, SSCAN.

use store::types::set::Set;

use super::reply_set;
use crate::Call;
use crate::error::{Error, Outcome};
use crate::items::ItemsAhead;
use crate::scan_options::{self, ScanOptions};

pub(super) fn scard(call: &mut Call<'_, '_, '_>) -> Outcome {
    let len = call.db.object::<Set>(call.key(1))?.map_or(0, Set::len);
    call.reply.count(len);
    Ok(())
}

pub(super) fn sismember(call: &mut Call<'_, '_, '_>) -> Outcome {
    let set = call.db.object::<Set>(call.key(1))?;
    let is_member = set.is_some_and(|set| set.contains(call.args.get(2)));
    call.reply.int(i64::from(is_member));
    Ok(())
}

pub(super) fn smismember(call: &mut Call<'_, '_, '_>) -> Outcome {
    let members = call.args.from(2);
    let set = call.db.object::<Set>(call.key(1))?;
    call.reply.array(members.len());
    let mut ahead = ItemsAhead::<1>::new(call.args.len(), 2);
    for member in members {
        let is_member = set.is_some_and(|set| {
            ahead.before_next(call.args, |item| set.prefetch(item));
            set.contains(member)
        });
        call.reply.int(i64::from(is_member));
    }
    Ok(())
}

pub(super) fn smembers(call: &mut Call<'_, '_, '_>) -> Outcome {
    match call.db.object::<Set>(call.key(1))? {
        Some(set) => reply_set(&mut call.reply, set),
        None => call.reply.set(0),
    }
    Ok(())
}

pub(super) fn sscan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, cursor) = (call.key(1), scan_options::cursor(call, 2)?);
    call.db.get(key);
    let Some(set) = call.db.peek_object::<Set>(key)? else {
        // Redis doesn't check the options of a missing set.
        scan_options::reply_nothing(&mut call.reply);
        return Ok(());
    };
    let options = ScanOptions::parse(call, 3, |_| Err(Error::SYNTAX))?;
    options.run(cursor, &mut call.reply, |cursor, found| {
        set.scan(cursor, |member| {
            if found.wants(member) {
                found.show(member);
            }
        })
    })
}
