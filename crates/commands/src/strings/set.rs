//! SET with its options, and its relatives that set an expiry.

use resp::request::Args;
use store::db::Ttl;
use store::keyspace::Key;
use store::table::Ref;

use super::condition::{self, Comparison};
use super::{reply_string, reply_view};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::spec::key_flag::{ACCESS, OW, RW, UPDATE};

/// The flags of SET's key, which it only overwrites unless an option has it look at the value that it replaces.
pub(super) fn flags_of_key(args: Args<'_>) -> u32 {
    let is = |option: &[u8], word: &str| option.eq_ignore_ascii_case(word.as_bytes());
    let reads = |option: &[u8]| is(option, "get") || condition::WORDS.iter().any(|word| is(option, word));
    if args.from(3).any(reads) { RW | ACCESS | UPDATE } else { OW | UPDATE }
}

/// When SET or MSETEX sets.
#[derive(Clone, Copy)]
pub(super) enum Condition<'c> {
    Always,
    IfAbsent,
    IfExists,
    If(Comparison<'c>),
}

/// A unit of time, and what it counts from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds of Unix time.
    UnixSeconds,
    /// Milliseconds of Unix time.
    UnixMillis,
}

impl Unit {
    pub(crate) fn of(word: &[u8]) -> Option<Unit> {
        let words =
            [("ex", Unit::Seconds), ("px", Unit::Millis), ("exat", Unit::UnixSeconds), ("pxat", Unit::UnixMillis)];
        words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|&(_, unit)| unit)
    }

    /// Milliseconds of Unix time; none if that is too far away to be written in 63 bits.
    pub(crate) fn to_unix_ms(self, time: i64, now_ms: u64) -> Option<i64> {
        let millis = match self {
            Unit::Seconds | Unit::UnixSeconds => time.checked_mul(1000)?,
            Unit::Millis | Unit::UnixMillis => time,
        };
        match self {
            Unit::Seconds | Unit::Millis => millis.checked_add_unsigned(now_ms),
            Unit::UnixSeconds | Unit::UnixMillis => Some(millis),
        }
    }
}

/// What is to become of the expiry.
#[derive(Clone, Copy)]
pub(super) enum Expiry {
    Unsaid,
    Keep,
    Persist,
    /// The time is in this argument.
    Set(Unit, usize),
}

pub(super) struct SetOptions<'c> {
    pub condition: Condition<'c>,
    get: bool,
    pub expiry: Expiry,
}

/// Which command's options are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionsOf {
    Set,
    GetEx,
    MSetEx,
}

/// Reads MSETEX's options, from the argument at `index` on.
pub(super) fn options_of_msetex<'c>(call: &Call<'c, '_, '_>, index: usize) -> Result<SetOptions<'c>, Error> {
    options(call, index, OptionsOf::MSetEx)
}

/// Reads the options from the argument at `index` on. A repeated option is taken as Redis takes it: the last counts,
/// where the two don't exclude each other.
fn options<'c>(call: &Call<'c, '_, '_>, mut index: usize, of: OptionsOf) -> Result<SetOptions<'c>, Error> {
    let mut options = SetOptions { condition: Condition::Always, get: false, expiry: Expiry::Unsaid };
    while index < call.len() {
        let word = call.arg(index);
        let has_next = index + 1 < call.len();
        if let Some(unit) = Unit::of(word) {
            match options.expiry {
                _ if !has_next => return Err(Error::SYNTAX),
                Expiry::Unsaid => {}
                Expiry::Set(before, _) if before == unit => {}
                _ => return Err(Error::SYNTAX),
            }
            options.expiry = Expiry::Set(unit, index + 1);
            index += 2;
        } else if of == OptionsOf::GetEx {
            options.persist(word)?;
            index += 1;
        } else if of == OptionsOf::Set
            && has_next
            && matches!(options.condition, Condition::Always)
            && let Some(comparison) = Comparison::of(word, call.arg(index + 1))
        {
            options.condition = Condition::If(comparison);
            index += 2;
        } else {
            options.word_alone(word, of)?;
            index += 1;
        }
    }
    Ok(options)
}

impl SetOptions<'_> {
    /// The one word that GETEX has beside the units.
    fn persist(&mut self, word: &[u8]) -> Outcome {
        match self.expiry {
            Expiry::Unsaid | Expiry::Persist if word.eq_ignore_ascii_case(b"persist") => self.expiry = Expiry::Persist,
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }

    /// The words of SET and MSETEX that stand alone.
    fn word_alone(&mut self, word: &[u8], of: OptionsOf) -> Outcome {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match (self.condition, self.expiry) {
            (Condition::Always | Condition::IfAbsent, _) if is("nx") => self.condition = Condition::IfAbsent,
            (Condition::Always | Condition::IfExists, _) if is("xx") => self.condition = Condition::IfExists,
            (_, Expiry::Unsaid | Expiry::Keep) if is("keepttl") => self.expiry = Expiry::Keep,
            _ if is("get") && of == OptionsOf::Set => self.get = true,
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }
}

/// The expiry in the argument at `index`, in milliseconds of Unix time. `name` is the command's, for the error.
pub(super) fn expiry(call: &Call<'_, '_, '_>, unit: Unit, index: usize, name: &str) -> Result<u64, Error> {
    let time = call.int(index)?;
    let at = if time <= 0 { None } else { unit.to_unix_ms(time, call.db.now_ms()) };
    at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| Error::invalid_expire(name))
}

/// Sets a key and notes it.
#[inline]
fn store(call: &mut Call<'_, '_, '_>, key: Key<'_>, value: &[u8], ttl: Ttl) {
    call.set_string(key, value, ttl);
    call.changed(key, Class::String, "set");
    if matches!(ttl, Ttl::At(_)) {
        call.event(key, Class::Generic, "expire");
    }
}

#[inline]
pub(super) fn set(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.len() > 3 {
        return set_with_options(call);
    }
    store(call, call.key(1), call.arg(2), Ttl::Clear);
    call.reply.ok();
    Ok(())
}

fn set_with_options(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, 3, OptionsOf::Set)?;
    let ttl = match options.expiry {
        Expiry::Keep => Ttl::Keep,
        Expiry::Set(unit, index) => Ttl::At(expiry(call, unit, index, "set")?),
        Expiry::Unsaid | Expiry::Persist => Ttl::Clear,
    };
    let key = call.key(1);
    // Before the reply is begun, since it may be an error.
    let holds = holds(call, key, options.condition)?;
    if options.get {
        reply_string(call, key)?;
    }
    if holds {
        store(call, key, call.arg(2), ttl);
        call.record_set(key, call.arg(2), ttl);
        if !options.get {
            call.reply.ok();
        }
    } else if !options.get {
        call.reply.null();
    }
    Ok(())
}

fn holds(call: &Call<'_, '_, '_>, key: Key<'_>, condition: Condition<'_>) -> Result<bool, Error> {
    if matches!(condition, Condition::Always) {
        return Ok(true);
    }
    let entry = call.db.peek(key);
    Ok(match (condition, &entry) {
        (Condition::If(comparison), Some(entry)) => comparison.holds_for(entry.view())?,
        (Condition::If(comparison), None) => comparison.holds_without_value(),
        (Condition::IfAbsent, entry) => entry.is_none(),
        (_, entry) => entry.is_some(),
    })
}

pub(super) fn setex(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiring(call, Unit::Seconds, "setex")
}

pub(super) fn psetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiring(call, Unit::Millis, "psetex")
}

fn set_expiring(call: &mut Call<'_, '_, '_>, unit: Unit, name: &str) -> Outcome {
    let ttl = Ttl::At(expiry(call, unit, 2, name)?);
    store(call, call.key(1), call.arg(3), ttl);
    call.record_set(call.key(1), call.arg(3), ttl);
    call.reply.ok();
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, 2, OptionsOf::GetEx)?;
    let key = call.key(1);
    // A key that doesn't exist or has another type is answered before the time is looked at.
    match call.db.get(key) {
        None => {
            call.reply.null();
            return Ok(());
        }
        Some(entry) if !entry.is_string() => return Err(Error::WRONG_TYPE),
        Some(_) => {}
    }
    match options.expiry {
        Expiry::Set(unit, index) => {
            let at = expiry(call, unit, index, "getex")?;
            reply_current(call, key)?;
            expire_at(call, key, at);
        }
        Expiry::Persist => {
            reply_current(call, key)?;
            if call.db.peek(key).is_some_and(|entry| entry.expiry().is_some()) {
                call.db.set_expiry(key, None);
                call.changed(key, Class::Generic, "persist");
                call.record_as(&[b"PERSIST", key.bytes]);
            }
        }
        Expiry::Unsaid | Expiry::Keep => reply_current(call, key)?,
    }
    Ok(())
}

/// Replies with the value, without another access.
fn reply_current(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Outcome {
    reply_view(&mut call.reply, call.db.peek(key).map(Ref::into_view))
}

/// Sets the key's expiry; a key whose time has come already is deleted.
fn expire_at(call: &mut Call<'_, '_, '_>, key: Key<'_>, at: u64) {
    if at <= call.db.due_ms() {
        call.db.remove(key);
        call.changed(key, Class::Generic, "del");
        call.record_as(&[b"DEL", key.bytes]);
    } else {
        call.db.set_expiry(key, Some(at));
        call.changed(key, Class::Generic, "expire");
        call.record_expiry(key, at);
    }
}
