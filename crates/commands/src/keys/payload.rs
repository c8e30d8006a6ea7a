//! DUMP and RESTORE: serialized values in Redis's format.

use std::cell::RefCell;
use std::sync::Arc;

use format::payload::{BadPayload, Dumper, is_common, read_value, resealed, with_dumper};
use resp::num::IntText;
use store::entry::View;
use store::keyspace::Key;
use store::value::Value;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

thread_local! {
    /// Serializes payloads that all replicas read.
    static COMMON_DUMPER: RefCell<Dumper> = RefCell::new(Dumper::common());
}

pub(super) fn dump(call: &mut Call<'_, '_, '_>) -> Outcome {
    let payload = call.db.view(call.key(1)).map(|view| with_dumper(|dumper| dumper.value(&view)));
    match payload {
        // The reply takes the payload over.
        Some(payload) if payload.len() >= resp::output::SHARED_BYTES_MIN => call.reply.bulk_shared(&Arc::new(payload)),
        payload => call.reply.bulk_or_null(payload),
    }
    Ok(())
}

/// Recent use of the restored key.
#[derive(Clone, Copy)]
enum Use {
    Unknown,
    IdleSeconds(u64),
    Frequency(u8),
}

/// Options of RESTORE.
struct RestoreOptions {
    replace: bool,
    /// True if the time to live is an absolute time.
    absolute: bool,
    usage: Use,
}

impl RestoreOptions {
    fn parse(call: &Call<'_, '_, '_>) -> Result<RestoreOptions, Error> {
        let mut options = RestoreOptions { replace: false, absolute: false, usage: Use::Unknown };
        let mut index = 4;
        while index < call.len() {
            let has_value = index + 1 < call.len();
            if call.is(index, "replace") {
                options.replace = true;
            } else if call.is(index, "absttl") {
                options.absolute = true;
            } else if call.is(index, "idletime") && has_value && !matches!(options.usage, Use::Frequency(_)) {
                index += 1;
                options.usage = Use::IdleSeconds(idle_seconds(call, index)?);
            } else if call.is(index, "freq") && has_value && !matches!(options.usage, Use::IdleSeconds(_)) {
                index += 1;
                options.usage = Use::Frequency(frequency(call, index)?);
            } else {
                return Err(Error::SYNTAX);
            }
            index += 1;
        }
        Ok(options)
    }
}

fn idle_seconds(call: &Call<'_, '_, '_>, index: usize) -> Result<u64, Error> {
    u64::try_from(call.int(index)?).map_err(|_| Error::fixed("ERR Invalid IDLETIME value, must be >= 0"))
}

fn frequency(call: &Call<'_, '_, '_>, index: usize) -> Result<u8, Error> {
    u8::try_from(call.int(index)?).map_err(|_| Error::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255"))
}

/// Expiry of a restored key.
#[derive(Clone, Copy)]
enum RestoredExpiry {
    Never,
    /// A time in the future, in milliseconds of Unix time.
    At(u64),
    Past,
}

impl RestoredExpiry {
    /// Parses RESTORE's time to live or time of expiry.
    fn parse(call: &Call<'_, '_, '_>, absolute: bool) -> Result<RestoredExpiry, Error> {
        let ms = call.int(2)?;
        let ms = u64::try_from(ms).map_err(|_| Error::fixed("ERR Invalid TTL value, must be >= 0"))?;
        let at = if absolute { ms } else { ms.saturating_add(call.db.now_ms()) };
        Ok(match ms {
            0 => RestoredExpiry::Never,
            // As in Redis, a time beyond 63 bits counts as past.
            _ if at > call.db.due_ms() && i64::try_from(at).is_ok() => RestoredExpiry::At(at),
            _ => RestoredExpiry::Past,
        })
    }
}

pub(super) fn restore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let options = RestoreOptions::parse(call)?;
    if !options.replace && call.db.get_mut(key).is_some() {
        return Err(Error::fixed("BUSYKEY Target key name already exists."));
    }
    let expiry = RestoredExpiry::parse(call, options.absolute)?;
    let at = if let RestoredExpiry::At(at) = expiry { Some(at) } else { None };
    let resealed = call.rules.skips_checksums.then(|| resealed(call.arg(3)));
    let payload = resealed.as_deref().unwrap_or(call.arg(3));
    let entry = read_value(payload, key.bytes, at, &call.rules.limits()).map_err(|bad| match bad {
        BadPayload::Footer => Error::fixed("ERR DUMP payload version or checksum are wrong"),
        BadPayload::Contents(_) => Error::fixed("ERR Bad data format"),
    })?;
    if matches!(expiry, RestoredExpiry::Past) {
        remove_replaced(call, key);
    } else {
        call.overwrite(key);
        call.db.put(key, entry);
        note_use(call, key, options.usage);
        call.changed(key, Class::Generic, "restore");
        record_restore(call, key, at.filter(|_| !options.absolute));
    }
    call.reply.ok();
    Ok(())
}

/// Handles a restored key that is already expired: deletes the key that it would replace.
fn remove_replaced(call: &mut Call<'_, '_, '_>, key: Key<'_>) {
    if call.db.get_mut(key).is_some() && call.db.remove(key) {
        call.changed(key, Class::Generic, "del");
        call.record_as(&[b"DEL", key.bytes]);
    }
}

fn note_use(call: &mut Call<'_, '_, '_>, key: Key<'_>, usage: Use) {
    let clock = call.db.clock();
    let access = match (usage, clock.frequency) {
        (Use::Frequency(count), Some(frequency)) => frequency.word(count),
        (Use::IdleSeconds(idle), None) => clock.word_of_idle(idle),
        _ => return,
    };
    if let Some(mut entry) = call.db.get_mut(key) {
        entry.set_access(access);
    }
}

/// Makes the journal reproduce the call with an absolute time of expiry and a payload that every kind of replica reads. HPEXPIREAT follows
/// for fields that expire, because Redis and Valkey have no common encoding for them.
fn record_restore(call: &mut Call<'_, '_, '_>, key: Key<'_>, at: Option<u64>) {
    if !call.is_recorded() {
        return;
    }
    let payload = if is_common(call.arg(3)) { None } else { common_payload(call, key) };
    if payload.is_none() && at.is_none() {
        return;
    }
    let mut text = IntText::new();
    let mut words: Vec<&[u8]> = call.args.from(0).collect();
    if let Some(common) = &payload {
        words[3] = &common.bytes;
    }
    if let Some(at) = at {
        words[2] = text.u64(at);
        words.push(b"ABSTTL");
    }
    call.record_as(&words);
    for (at, field) in payload.iter().flat_map(|common| &common.field_times) {
        call.record_as(&[b"HPEXPIREAT", key.bytes, text.u64(*at), b"FIELDS", b"1", field]);
    }
}

/// A value in the form that every kind of replica reads.
struct CommonPayload {
    /// The payload, which lacks the expiry times of fields.
    bytes: Vec<u8>,
    /// Fields that expire, each with its time in milliseconds of Unix time.
    field_times: Vec<(u64, Vec<u8>)>,
}

/// Serializes the key's value for replicas of every kind; none if the key is missing.
fn common_payload(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Option<CommonPayload> {
    let view = call.db.view(key)?;
    let mut field_times = Vec::new();
    if let View::Object(Value::TimedHash(hash)) = &view {
        hash.for_each(|field, _, at| field_times.extend(at.map(|at| (at, field.to_vec()))));
    }
    Some(CommonPayload { bytes: COMMON_DUMPER.with_borrow_mut(|dumper| dumper.value(&view)), field_times })
}
