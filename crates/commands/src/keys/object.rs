//! OBJECT: representation and use of a key.

use store::entry::{Entry, View};

use crate::Call;
use crate::error::{Error, Outcome};

/// Redis shares the objects of integers below this, and reports the largest integer as their reference count.
const SHARED_INTEGERS: i64 = 10_000;

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];

/// Rejects OBJECT without a subcommand.
pub(super) fn object(_call: &mut Call<'_, '_, '_>) -> Outcome {
    Err(Error::arity("object"))
}

pub(super) fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.simple(line));
    Ok(())
}

pub(super) fn encoding(call: &mut Call<'_, '_, '_>) -> Outcome {
    let encoding = call.db.look_quietly(call.key(2)).map(|entry| entry.encoding());
    call.reply.bulk_or_null(encoding);
    Ok(())
}

/// Replies with a number about the key, or null if the key is missing.
fn reply_figure(call: &mut Call<'_, '_, '_>, figure: impl FnOnce(&Entry) -> i64) -> Outcome {
    match call.db.look_quietly(call.key(2)).map(|entry| figure(&entry)) {
        Some(figure) => call.reply.int(figure),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn refcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let shares = call.rules.shares_integers;
    reply_figure(call, |entry| match entry.view() {
        View::Int(0..SHARED_INTEGERS) if shares => i64::from(i32::MAX),
        _ => 1,
    })
}

pub(super) fn idletime(call: &mut Call<'_, '_, '_>) -> Outcome {
    let clock = call.db.clock();
    if clock.frequency.is_some() {
        return not_tracked(call, "ERR An LFU maxmemory policy is selected, idle time not tracked.");
    }
    reply_figure(call, |entry| i64::from(clock.idle_s(entry.access())))
}

pub(super) fn freq(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(frequency) = call.db.clock().frequency else {
        return not_tracked(call, "ERR An LFU maxmemory policy is not selected, access frequency not tracked.");
    };
    reply_figure(call, |entry| i64::from(frequency.count(entry.access())))
}

/// Replies with the error that this number isn't tracked, or null if the key is missing.
fn not_tracked(call: &mut Call<'_, '_, '_>, text: &str) -> Outcome {
    if call.db.look_quietly(call.key(2)).is_none() {
        call.reply.null();
        return Ok(());
    }
    Err(Error::new(format!(
        "{text} Please note that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust."
    )))
}
