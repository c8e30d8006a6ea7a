//! HyperLogLogs: estimates of the number of distinct elements in 12 KB.
//!
//! A HyperLogLog is a string. The same commands produce the same bytes as in Redis. Source of the semantics: Redis's
//! command pages of the group "hyperloglog".

mod debug;
mod dense;
mod estimate;
mod hash;
mod sparse;
#[cfg(test)]
mod tests;
mod value;

use std::iter;

use store::db::Ttl;
use store::entry::{EMBEDDED_BYTES_MAX, Entry};
use store::keyspace::Key;
use store::shared_bytes::Long;
use store::value::{Type, Value};

use self::dense::{REGISTERS, Registers};
use self::hash::Mark;
use self::value::{DENSE_BYTES, Draft, Encoding, HEADER_BYTES, HyperLogLog};
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome};
use crate::spec::flag::{ADMIN, DENYOOM, FAST, MAY_REPLICATE, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, INSERT, RO, RW};
use crate::spec::{Group, KeySpec, On, Spec};
use crate::{Call, Handler};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::String).entries([
    Spec::new("pfadd", -2, WRITE | DENYOOM | FAST, pfadd as Handler).brief().keys(&[KeySpec::at(1, RW | INSERT)]).docs(
        Group::HyperLogLog,
        "2.8.9",
        "O(1) for each element",
        "Adds elements to a HyperLogLog, which is created if it doesn't exist.",
        "key [element [element ...]]",
    ),
    Spec::new("pfcount", -2, READONLY | MAY_REPLICATE, pfcount as Handler)
        .keys(&[KeySpec::range(1, -1, 1, RW | ACCESS)
            .notes("RW because it may change the internal representation of the key, and propagate to replicas")])
        .docs(
            Group::HyperLogLog,
            "2.8.9",
            "O(1) for one key, which caches the result; O(N) in the number of keys",
            "Estimates how many different elements HyperLogLogs have together.",
            "key [key ...]",
        ),
    Spec::new("pfdebug", 3, WRITE | DENYOOM | ADMIN, debug::pfdebug as Handler)
        .system()
        .keys(&[KeySpec::at(2, RW | ACCESS)])
        .docs(
            Group::HyperLogLog,
            "2.8.9",
            "O(N) in the number of bytes of the value",
            "Shows a HyperLogLog's registers (GETREG), opcodes (DECODE) or form (ENCODING), or makes it dense (TODENSE). SIMD ON and SIMD OFF \
             have the server use the processor's vectors, or not.",
            "subcommand key",
        ),
    Spec::new("pfmerge", -2, WRITE | DENYOOM, pfmerge as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | INSERT), KeySpec::range(2, -1, 1, RO | ACCESS)])
        .docs(
            Group::HyperLogLog,
            "2.8.9",
            "O(N) in the number of keys",
            "Adds the elements of HyperLogLogs to another one, which is created if it doesn't exist.",
            "destkey [sourcekey [sourcekey ...]]",
        ),
    Spec::new("pfselftest", 1, ADMIN, debug::pfselftest as Handler).system().docs(
        Group::HyperLogLog,
        "2.8.9",
        "O(1)",
        "Tests the registers and the estimates of HyperLogLogs.",
        "",
    ),
]);

fn pfadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let changes = add_or_create(call, key)?;
    if changes > 0 {
        call.changed_by(changes, key, Class::String, "pfadd");
    }
    call.reply.int(i64::from(changes > 0));
    Ok(())
}

/// Adds the call's elements and returns the number of changes. Creating the key counts as one change.
fn add_or_create(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Result<usize, Error> {
    let marks = call.args.from(2).map(Mark::of);
    let sparse_bytes_max = call.rules.hll_sparse_bytes_max;
    if let Some(mut entry) = call.db.get_mut(key) {
        return add(&mut entry, marks, sparse_bytes_max);
    }
    let mut draft = Draft::empty();
    let changes = add_all(&mut draft, marks, sparse_bytes_max)?;
    value::forget_cached(&mut draft.bytes);
    store(call, key, draft.bytes);
    Ok(1 + changes)
}

/// Adds elements to an entry's value and returns the number of elements that changed it. A corrupt value isn't changed.
fn add(entry: &mut Entry, mut marks: impl Iterator<Item = Mark>, sparse_bytes_max: usize) -> Result<usize, Error> {
    mark_raw(entry);
    let found = HyperLogLog::of(entry.view())?;
    if let Encoding::Dense(registers) = found.encoding {
        let is_changed = |mark: &Mark| dense::get(registers, mark.register) < mark.value;
        return match marks.find(is_changed) {
            Some(first) => add_dense(entry, iter::once(first).chain(marks)),
            None => Ok(0),
        };
    }
    let (first, finger) = loop {
        let Some(mark) = marks.next() else { return Ok(0) };
        if let Some(finger) = found.changed_by(mark)? {
            break (mark, finger);
        }
    };
    let marks = iter::once(first).chain(marks);
    let mut draft = Draft::at(found.bytes.to_vec(), finger);
    let changes = add_all(&mut draft, marks, sparse_bytes_max)?;
    value::forget_cached(&mut draft.bytes);
    overwrite(entry, &draft.bytes);
    Ok(changes)
}

/// Adds elements to an entry's dense value and returns the number of elements that changed it.
fn add_dense(entry: &mut Entry, marks: impl Iterator<Item = Mark>) -> Result<usize, Error> {
    let bytes = entry.string_mut(DENSE_BYTES).ok_or(Error::WRONG_TYPE)?;
    value::forget_cached(bytes);
    let registers = &mut bytes[HEADER_BYTES..];
    Ok(marks.filter(|mark| dense::raise(registers, mark.register, mark.value)).count())
}

fn add_all(draft: &mut Draft, marks: impl Iterator<Item = Mark>, sparse_bytes_max: usize) -> Result<usize, Error> {
    let mut changes = 0;
    for mark in marks {
        changes += usize::from(draft.raise(mark, sparse_bytes_max)?);
    }
    Ok(changes)
}

/// OBJECT ENCODING of a short string that was never changed in place.
const EMBSTR: &str = "embstr";

/// Makes OBJECT ENCODING return "raw" for a string that Redis would have converted for a change in place.
fn mark_raw(entry: &mut Entry) {
    if entry.encoding() == EMBSTR
        && let Ok(found) = HyperLogLog::of(entry.view())
    {
        let len = found.bytes.len();
        entry.string_mut(len);
    }
}

/// Replaces an entry's string.
fn overwrite(entry: &mut Entry, bytes: &[u8]) {
    if let Some(target) = entry.string_mut(bytes.len()) {
        target.copy_from_slice(bytes);
    }
}

/// Creates a missing key.
fn store(call: &mut Call<'_, '_, '_>, key: Key<'_>, bytes: Vec<u8>) {
    if bytes.len() > EMBEDDED_BYTES_MAX {
        // A copy, because insertions have doubled the capacity. Allocators don't move a block that shrinks by less than half.
        call.db.set_object(key, Value::long(Long::from(bytes.as_slice().to_vec())), Ttl::Clear);
        return;
    }
    call.set_raw(key, &bytes, Ttl::Clear);
}

fn pfcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = if call.len() == 2 { count_one(call)? } else { count_together(call)? };
    call.reply.int(count.cast_signed());
    Ok(())
}

/// Returns the estimate of the only key's value and caches it in the value's header.
fn count_one(call: &mut Call<'_, '_, '_>) -> Result<u64, Error> {
    let key = call.key(1);
    let Some(entry) = call.db.get(key) else { return Ok(0) };
    let found = HyperLogLog::of(entry.view())?;
    let (cached, len) = (found.cached(), found.bytes.len());
    let count = cached.map_or_else(|| found.count(), Ok);
    if entry.encoding() == EMBSTR
        && let Some(mut entry) = call.db.get_mut(key)
    {
        mark_raw(&mut entry);
    }
    let count = count?;
    if cached.is_some() {
        return Ok(count);
    }
    if let Some(bytes) = call.db.get_mut(key).as_mut().and_then(|entry| entry.string_mut(len)) {
        value::set_cached(bytes, count);
    }
    // The value's bytes changed, but clients see the same value. Redis publishes no event for that.
    call.changed_for(Concerns::Watchers, key, Class::Unpublished, "");
    Ok(count)
}

fn count_together(call: &mut Call<'_, '_, '_>) -> Result<u64, Error> {
    let mut registers = [0; REGISTERS];
    for key in call.each_key() {
        if let Some(view) = call.db.view(key) {
            HyperLogLog::of(view)?.merge_into(&mut registers)?;
        }
    }
    Ok(estimate::estimate(&dense::histogram_of(&registers)))
}

fn pfmerge(call: &mut Call<'_, '_, '_>) -> Outcome {
    let mut registers = [0; REGISTERS];
    let mut has_dense = false;
    for key in call.each_key() {
        if let Some(view) = call.db.view(key) {
            let source = HyperLogLog::of(view)?;
            has_dense |= matches!(source.encoding, Encoding::Dense(_));
            source.merge_into(&mut registers)?;
        }
    }
    let key = call.key(1);
    store_merged(call, key, &registers, has_dense)?;
    call.changed(key, Class::String, "pfadd");
    call.reply.ok();
    Ok(())
}

/// Stores merged registers at a key. They are at least as large as the key's own registers.
fn store_merged(call: &mut Call<'_, '_, '_>, key: Key<'_>, registers: &Registers, dense: bool) -> Outcome {
    let sparse_bytes_max = call.rules.hll_sparse_bytes_max;
    let Some(mut entry) = call.db.get_mut(key) else {
        let mut draft = Draft::empty();
        if dense {
            draft.bytes.resize(DENSE_BYTES, 0);
            value::set_registers(&mut draft.bytes, registers);
        }
        let merged = raise_all(draft, registers, sparse_bytes_max)?;
        store(call, key, merged);
        return Ok(());
    };
    if dense {
        let bytes = entry.string_mut(DENSE_BYTES).ok_or(Error::WRONG_TYPE)?;
        value::set_registers(bytes, registers);
        value::forget_cached(bytes);
    } else {
        let before = HyperLogLog::of(entry.view())?.bytes.to_vec();
        overwrite(&mut entry, &raise_all(Draft::of(before), registers, sparse_bytes_max)?);
    }
    Ok(())
}

/// Raises the registers one by one as Redis does. The order determines the bytes of the sparse form, and when it
/// becomes dense.
fn raise_all(mut draft: Draft, registers: &Registers, sparse_bytes_max: usize) -> Result<Vec<u8>, Error> {
    for (register, &value) in registers.iter().enumerate().filter(|(_, value)| **value != 0) {
        if draft.is_dense() {
            // `registers` includes all values that are left to raise.
            value::set_registers(&mut draft.bytes, registers);
            break;
        }
        draft.raise(Mark { register, value }, sparse_bytes_max)?;
    }
    value::forget_cached(&mut draft.bytes);
    Ok(draft.bytes)
}
