//! Keys of any type: DEL, EXPIRE, RENAME, SCAN, SORT and others.
//!
//! Source of the semantics: Redis's command pages of the group "generic", and of the group "server" for commands that
//! empty or count a database. SELECT and SWAPDB concern sessions and belong to the engine.

mod expire;
mod object;
mod payload;
mod scan;
mod sort;
mod table;
#[cfg(test)]
mod tests;

use store::keyspace::Key;
use store::table::Ref;
pub use table::COMMANDS;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

fn del(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = call.each_key().filter(|&key| call.delete(key)).count();
    call.reply.count(count);
    Ok(())
}

fn unlink(call: &mut Call<'_, '_, '_>) -> Outcome {
    let mut count = 0;
    for key in call.each_key() {
        if call.db.unlink(key) {
            call.changed(key, Class::Generic, "del");
            count += 1;
        }
    }
    call.reply.count(count);
    Ok(())
}

fn exists(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = call.each_key().filter(|&key| call.db.exists(key)).count();
    call.reply.count(count);
    Ok(())
}

fn touch(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = call.each_key().filter(|&key| call.db.touch(key)).count();
    call.reply.count(count);
    Ok(())
}

fn type_of(call: &mut Call<'_, '_, '_>) -> Outcome {
    let kind = call.db.look(call.key(1)).map(|entry| entry.kind());
    call.reply.simple(kind.map_or("none", store::value::Type::name));
    Ok(())
}

fn rename(call: &mut Call<'_, '_, '_>) -> Outcome {
    rename_unless(call, false)?;
    call.reply.ok();
    Ok(())
}

fn renamenx(call: &mut Call<'_, '_, '_>) -> Outcome {
    let renamed = rename_unless(call, true)?;
    call.reply.int(i64::from(renamed));
    Ok(())
}

/// Renames the first key to the second. Returns false without renaming if `taken_counts` and the new name exists.
fn rename_unless(call: &mut Call<'_, '_, '_>, taken_counts: bool) -> Result<bool, Error> {
    let (from, to) = (call.key(1), call.key(2));
    if call.db.get_mut(from).is_none() {
        return Err(Error::NO_SUCH_KEY);
    }
    if from.bytes == to.bytes {
        return Ok(false);
    }
    if call.db.get_mut(to).is_some() {
        if taken_counts {
            return Ok(false);
        }
        call.overwrite(to);
    }
    if let Some(entry) = call.db.take(from) {
        call.db.put(to, entry.with_key(to.bytes));
    }
    call.moved_from(from, Class::Generic, "rename_from");
    call.changed(to, Class::Generic, "rename_to");
    Ok(true)
}

/// Parses the argument at `index` as a database number.
fn database(call: &Call<'_, '_, '_>, index: usize) -> Result<usize, Error> {
    let number = call.int(index)?;
    if i32::try_from(number).is_err() {
        let (min, max) = (i32::MIN, i32::MAX);
        return Err(Error::new(format!("ERR value is out of range, value must between {min} and {max}")));
    }
    usize::try_from(number).ok().filter(|&n| n < call.db.databases()).ok_or(Error::DB_OUT_OF_RANGE)
}

fn same_object() -> Error {
    Error::new("ERR source and destination objects are the same")
}

fn move_to(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let to = database(call, 2)?;
    if to == call.db.index() {
        return Err(same_object());
    }
    let movable = call.db.get_mut(key).is_some() && call.db.other(to).get_mut(key).is_none();
    if movable && let Some(entry) = call.db.take(key) {
        call.db.other(to).put(key, entry);
        call.moved_from(key, Class::Generic, "move_from");
        call.effects.changed(to, key.bytes, Class::Generic, "move_to");
    }
    call.reply.int(i64::from(movable));
    Ok(())
}

/// Parses COPY's options: the destination database, and true to replace an existing key.
fn copy_options(call: &Call<'_, '_, '_>) -> Result<(usize, bool), Error> {
    let (mut to, mut replace) = (call.db.index(), false);
    let mut index = 3;
    while index < call.len() {
        if call.is(index, "replace") {
            replace = true;
        } else if call.is(index, "db") && index + 1 < call.len() {
            index += 1;
            to = database(call, index)?;
        } else {
            return Err(Error::SYNTAX);
        }
        index += 1;
    }
    Ok((to, replace))
}

fn copy(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (from, into) = (call.key(1), call.key(2));
    let (to, replace) = copy_options(call)?;
    if to == call.db.index() && from.bytes == into.bytes {
        return Err(same_object());
    }
    let copied = copy_unless_taken(call, from, to, into, replace);
    if copied {
        call.effects.changed(to, into.bytes, Class::Generic, "copy_to");
    }
    call.reply.int(i64::from(copied));
    Ok(())
}

fn copy_unless_taken(call: &mut Call<'_, '_, '_>, from: Key<'_>, to: usize, into: Key<'_>, replace: bool) -> bool {
    if call.db.get(from).is_none() {
        return false;
    }
    let taken = call.db.other(to).get_mut(into).is_some();
    if taken && !replace {
        return false;
    }
    if taken && call.rules.lazy_free.server_del {
        call.db.other(to).empty(into);
    }
    let Some(entry) = call.db.peek(from).map(|entry| entry.copy_as(into.bytes)) else { return false };
    call.db.other(to).put(into, entry);
    true
}

fn dbsize(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (keys, _) = call.db.sizes();
    call.reply.count(keys);
    Ok(())
}

/// True if FLUSHALL or FLUSHDB should free memory in the background.
fn flush_lazily(call: &Call<'_, '_, '_>) -> Result<bool, Error> {
    match call.len() {
        1 => Ok(call.rules.lazy_free.user_flush),
        2 if call.is(1, "async") => Ok(true),
        2 if call.is(1, "sync") => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

fn flushdb(call: &mut Call<'_, '_, '_>) -> Outcome {
    let lazily = flush_lazily(call)?;
    let removed = call.db.flush(lazily);
    call.effects.emptied(call.db.index());
    call.effects.count(removed as u64);
    record_flush(call);
    call.reply.ok();
    Ok(())
}

/// Records the call in the journal even if there were no keys, because a writable replica may have keys of its own.
fn record_flush(call: &mut Call<'_, '_, '_>) {
    if call.is_recorded() {
        let words: Vec<&[u8]> = call.args.from(0).collect();
        call.record_as(&words);
    }
}

fn flushall(call: &mut Call<'_, '_, '_>) -> Outcome {
    let lazily = flush_lazily(call)?;
    let mut removed = 0;
    for database in 0..call.db.databases() {
        removed += call.db.other(database).flush(lazily);
        call.effects.emptied(database);
    }
    call.effects.count(removed as u64);
    record_flush(call);
    call.reply.ok();
    Ok(())
}

/// Reads an entry without affecting its use or the statistics, and returns a copy of the needed data.
fn peeked<T>(call: &Call<'_, '_, '_>, key: Key<'_>, read: impl FnOnce(Ref<'_, store::entry::Entry>) -> T) -> Option<T> {
    call.db.peek(key).map(read)
}
