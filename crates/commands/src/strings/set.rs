//! SET with its options, and other commands that set a value with an expiry.

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

/// Flags of SET's key: it is only overwritten, unless an option reads the old value.
pub(super) fn flags_of_key(args: Args<'_>) -> u32 {
    let is = |option: &[u8], word: &str| option.eq_ignore_ascii_case(word.as_bytes());
    let reads = |option: &[u8]| is(option, "get") || condition::WORDS.iter().any(|word| is(option, word));
    if args.from(3).any(reads) { RW | ACCESS | UPDATE } else { OW | UPDATE }
}

/// Condition of SET or MSETEX.
#[derive(Clone, Copy)]
pub(super) enum SetCondition<'c> {
    Always,
    IfAbsent,
    IfExists,
    If(Comparison<'c>),
}

/// Unit and origin of a time argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds of Unix time.
    UnixSeconds,
    /// Milliseconds of Unix time.
    UnixMillis,
}

impl TimeUnit {
    pub(crate) fn of(word: &[u8]) -> Option<TimeUnit> {
        let words = [
            ("ex", TimeUnit::Seconds),
            ("px", TimeUnit::Millis),
            ("exat", TimeUnit::UnixSeconds),
            ("pxat", TimeUnit::UnixMillis),
        ];
        words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|&(_, unit)| unit)
    }

    /// Converts a time to milliseconds of Unix time; none on overflow of 63 bits.
    pub(crate) fn to_unix_ms(self, time: i64, now_ms: u64) -> Option<i64> {
        let millis = match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => time.checked_mul(1000)?,
            TimeUnit::Millis | TimeUnit::UnixMillis => time,
        };
        match self {
            TimeUnit::Seconds | TimeUnit::Millis => millis.checked_add_unsigned(now_ms),
            TimeUnit::UnixSeconds | TimeUnit::UnixMillis => Some(millis),
        }
    }
}

/// Effect on the expiry.
#[derive(Clone, Copy)]
pub(super) enum ExpiryOption {
    Unsaid,
    Keep,
    Persist,
    /// Set to the time in this argument.
    Set(TimeUnit, usize),
}

pub(super) struct SetOptions<'c> {
    pub condition: SetCondition<'c>,
    get: bool,
    pub expiry: ExpiryOption,
}

/// The string command that the options belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StringCommand {
    Set,
    GetEx,
    MSetEx,
}

/// Parses MSETEX's options, from the argument at `index` on.
pub(super) fn options_of_msetex<'c>(call: &Call<'c, '_, '_>, index: usize) -> Result<SetOptions<'c>, Error> {
    options(call, index, StringCommand::MSetEx)
}

/// Parses the options from the argument at `index` on. Repeated options work as in Redis: the last one counts, unless
/// they exclude each other.
fn options<'c>(call: &Call<'c, '_, '_>, mut index: usize, of: StringCommand) -> Result<SetOptions<'c>, Error> {
    let mut options = SetOptions { condition: SetCondition::Always, get: false, expiry: ExpiryOption::Unsaid };
    while index < call.len() {
        let word = call.arg(index);
        let has_next = index + 1 < call.len();
        if let Some(unit) = TimeUnit::of(word) {
            match options.expiry {
                _ if !has_next => return Err(Error::SYNTAX),
                ExpiryOption::Unsaid => {}
                ExpiryOption::Set(before, _) if before == unit => {}
                _ => return Err(Error::SYNTAX),
            }
            options.expiry = ExpiryOption::Set(unit, index + 1);
            index += 2;
        } else if of == StringCommand::GetEx {
            options.persist(word)?;
            index += 1;
        } else if of == StringCommand::Set
            && has_next
            && matches!(options.condition, SetCondition::Always)
            && let Some(comparison) = Comparison::of(word, call.arg(index + 1))
        {
            options.condition = SetCondition::If(comparison);
            index += 2;
        } else {
            options.word_alone(word, of)?;
            index += 1;
        }
    }
    Ok(options)
}

impl SetOptions<'_> {
    /// Parses PERSIST, the only option of GETEX without an argument.
    fn persist(&mut self, word: &[u8]) -> Outcome {
        match self.expiry {
            ExpiryOption::Unsaid | ExpiryOption::Persist if word.eq_ignore_ascii_case(b"persist") => {
                self.expiry = ExpiryOption::Persist
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }

    /// Parses the options of SET and MSETEX that have no argument.
    fn word_alone(&mut self, word: &[u8], of: StringCommand) -> Outcome {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match (self.condition, self.expiry) {
            (SetCondition::Always | SetCondition::IfAbsent, _) if is("nx") => self.condition = SetCondition::IfAbsent,
            (SetCondition::Always | SetCondition::IfExists, _) if is("xx") => self.condition = SetCondition::IfExists,
            (_, ExpiryOption::Unsaid | ExpiryOption::Keep) if is("keepttl") => self.expiry = ExpiryOption::Keep,
            _ if is("get") && of == StringCommand::Set => self.get = true,
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }
}

/// Parses the expiry in the argument at `index` and returns milliseconds of Unix time. `name` is the command's name,
/// for the error.
pub(super) fn expiry(call: &Call<'_, '_, '_>, unit: TimeUnit, index: usize, name: &str) -> Result<u64, Error> {
    let time = call.int(index)?;
    let at = if time <= 0 { None } else { unit.to_unix_ms(time, call.db.now_ms()) };
    at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| Error::invalid_expire(name))
}

/// Sets a key and records the change.
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
    let options = options(call, 3, StringCommand::Set)?;
    let ttl = match options.expiry {
        ExpiryOption::Keep => Ttl::Keep,
        ExpiryOption::Set(unit, index) => Ttl::At(expiry(call, unit, index, "set")?),
        ExpiryOption::Unsaid | ExpiryOption::Persist => Ttl::Clear,
    };
    let key = call.key(1);
    // Must come before the reply begins, since it may fail.
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

fn holds(call: &Call<'_, '_, '_>, key: Key<'_>, condition: SetCondition<'_>) -> Result<bool, Error> {
    if matches!(condition, SetCondition::Always) {
        return Ok(true);
    }
    let entry = call.db.peek(key);
    Ok(match (condition, &entry) {
        (SetCondition::If(comparison), Some(entry)) => comparison.holds_for(entry.view())?,
        (SetCondition::If(comparison), None) => comparison.holds_without_value(),
        (SetCondition::IfAbsent, entry) => entry.is_none(),
        (_, entry) => entry.is_some(),
    })
}

pub(super) fn setex(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiring(call, TimeUnit::Seconds, "setex")
}

pub(super) fn psetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_expiring(call, TimeUnit::Millis, "psetex")
}

fn set_expiring(call: &mut Call<'_, '_, '_>, unit: TimeUnit, name: &str) -> Outcome {
    let ttl = Ttl::At(expiry(call, unit, 2, name)?);
    store(call, call.key(1), call.arg(3), ttl);
    call.record_set(call.key(1), call.arg(3), ttl);
    call.reply.ok();
    Ok(())
}

pub(super) fn getex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, 2, StringCommand::GetEx)?;
    let key = call.key(1);
    // A key that is missing or has another type is reported before the time is parsed.
    match call.db.get(key) {
        None => {
            call.reply.null();
            return Ok(());
        }
        Some(entry) if !entry.is_string() => return Err(Error::WRONG_TYPE),
        Some(_) => {}
    }
    match options.expiry {
        ExpiryOption::Set(unit, index) => {
            let at = expiry(call, unit, index, "getex")?;
            reply_current(call, key)?;
            expire_at(call, key, at);
        }
        ExpiryOption::Persist => {
            reply_current(call, key)?;
            if call.db.peek(key).is_some_and(|entry| entry.expiry().is_some()) {
                call.db.set_expiry(key, None);
                call.changed(key, Class::Generic, "persist");
                call.record_as(&[b"PERSIST", key.bytes]);
            }
        }
        ExpiryOption::Unsaid | ExpiryOption::Keep => reply_current(call, key)?,
    }
    Ok(())
}

/// Replies with the value without counting an access.
fn reply_current(call: &mut Call<'_, '_, '_>, key: Key<'_>) -> Outcome {
    reply_view(&mut call.reply, call.db.peek(key).map(Ref::into_view))
}

/// Sets the key's expiry; deletes the key if the time is in the past.
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
