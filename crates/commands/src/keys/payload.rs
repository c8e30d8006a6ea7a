//! DUMP and RESTORE: a value as bytes, in Redis's form.

use std::cell::RefCell;

use format::payload::{BadPayload, Dumper, read_value};
use resp::num::IntText;
use store::keyspace::Key;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

thread_local! {
    /// Made by the thread's first DUMP: it has a table of 256 KB.
    static DUMPER: RefCell<Dumper> = RefCell::new(Dumper::new());
}

pub(super) fn dump(call: &mut Call<'_, '_, '_>) -> Outcome {
    let payload = call.db.view(call.key(1)).map(|view| DUMPER.with_borrow_mut(|dumper| dumper.value(&view)));
    call.reply.bulk_or_null(payload);
    Ok(())
}

/// What is known of the use of the key that is restored.
#[derive(Clone, Copy)]
enum Use {
    Unknown,
    IdleSeconds(u64),
    Frequency(u8),
}

/// RESTORE's options.
struct RestoreOptions {
    replace: bool,
    /// The time to live is a time of expiry.
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

/// When a restored key expires.
#[derive(Clone, Copy)]
enum RestoredExpiry {
    Never,
    /// At a time to come, in milliseconds of Unix time.
    At(u64),
    Past,
}

impl RestoredExpiry {
    /// What RESTORE's time to live says, or its time of expiry.
    fn parse(call: &Call<'_, '_, '_>, absolute: bool) -> Result<RestoredExpiry, Error> {
        let ms = call.int(2)?;
        let ms = u64::try_from(ms).map_err(|_| Error::fixed("ERR Invalid TTL value, must be >= 0"))?;
        let at = if absolute { ms } else { ms.saturating_add(call.db.now_ms()) };
        Ok(match ms {
            0 => RestoredExpiry::Never,
            // As in Redis, where a time beyond 63 bits is one in the past.
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
    let entry = read_value(call.arg(3), key.bytes, at, &call.rules.limits()).map_err(|bad| match bad {
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
        if let Some(at) = at.filter(|_| !options.absolute) {
            record_absolute(call, at);
        }
    }
    call.reply.ok();
    Ok(())
}

/// What is restored has expired already: there is nothing in its place.
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

/// Has the journal reproduce the call with the time at which the key expires.
fn record_absolute(call: &mut Call<'_, '_, '_>, at: u64) {
    if !call.is_recorded() {
        return;
    }
    let mut text = IntText::new();
    let mut words: Vec<&[u8]> = call.args.from(0).collect();
    words[2] = text.u64(at);
    words.push(b"ABSTTL");
    call.record_as(&words);
}
