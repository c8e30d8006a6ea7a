//! Parts of strings: APPEND, GETRANGE, SETRANGE.

use store::db::Ttl;
use store::keyspace::Key;

use super::{len, text};
use crate::Call;
use crate::effects::{Class, MUCH_BYTES};
use crate::error::{Error, Outcome};

pub(super) fn append(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let suffix = call.arg(2);
    let Some(mut entry) = call.db.get_mut(key) else {
        call.db.set_string(key, suffix, Ttl::Clear);
        return changed(call, key, "append", suffix.len());
    };
    let before = len(&entry.view())?;
    let total = before.saturating_add(suffix.len());
    check_len(total, call.rules.string_bytes_max)?;
    entry.string_part_mut(total, before..total).ok_or(Error::WRONG_TYPE)?.copy_from_slice(suffix);
    drop(entry);
    changed(call, key, "append", total)
}

/// Records the change and replies with the string's new length.
fn changed(call: &mut Call<'_, '_, '_>, key: Key<'_>, event: &'static str, len: usize) -> Outcome {
    call.changed(key, Class::String, event);
    call.reply.count(len);
    Ok(())
}

fn check_len(len: usize, bytes_max: usize) -> Outcome {
    if len > bytes_max { Err(Error::STRING_TOO_LONG) } else { Ok(()) }
}

pub(super) fn setrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let offset = usize::try_from(call.int(2)?).map_err(|_| Error::OFFSET_OUT_OF_RANGE)?;
    let part = call.arg(3);
    let before = call.db.get_mut(key).map(|entry| len(&entry.view())).transpose()?;
    if part.is_empty() {
        // An empty string changes nothing: no key is created and no value is padded.
        call.reply.count(before.unwrap_or(0));
        return Ok(());
    }
    let end = offset.saturating_add(part.len());
    check_len(end, call.rules.string_bytes_max)?;
    if before.is_none() {
        call.db.set_string(key, b"", Ttl::Clear);
    }
    let total = end.max(before.unwrap_or(0));
    call.effects.took_much |= total - before.unwrap_or(0) > part.len() + MUCH_BYTES;
    overwrite(call, key, total, offset, part)?;
    changed(call, key, "setrange", total)
}

fn overwrite(call: &mut Call<'_, '_, '_>, key: Key<'_>, total: usize, offset: usize, part: &[u8]) -> Outcome {
    let Some(mut entry) = call.db.get_mut(key) else { return Ok(()) };
    let range = offset..offset + part.len();
    entry.string_part_mut(total, range).ok_or(Error::WRONG_TYPE)?.copy_from_slice(part);
    Ok(())
}

pub(super) fn getrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (start, end) = (call.int(2)?, call.int(3)?);
    match call.db.view(call.key(1)) {
        Some(view) => call.reply.bulk(slice(&text(view)?, start, end)),
        None => call.reply.bulk(b""),
    }
    Ok(())
}

/// Returns the bytes from `start` to `end`, both included; a negative index counts from the end. If both indexes are
/// negative, `start` must not be greater than `end`. Otherwise an index before the beginning, even for `end`, means the
/// first byte.
fn slice(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let len = bytes.len() as i64;
    let from_start = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end { b"" } else { &bytes[start as usize..=end as usize] }
}
