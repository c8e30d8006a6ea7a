//! XGROUP: consumer groups.

use std::collections::btree_map;

use store::types::stream::{Group, Stream, StreamId};

use super::idempotence;
use super::options::id;
use super::{no_such_group, wrong_subcommand};
use crate::Call;
use crate::effects::{Class, Concerns};
use crate::error::{Error, Outcome};

const NO_KEY: Error = Error::fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
    "    Prints this help.",
];

/// Rejects XGROUP without a subcommand.
pub(super) fn xgroup(_call: &mut Call<'_, '_, '_>) -> Outcome {
    Err(Error::arity("xgroup"))
}

pub(super) fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.simple(line));
    Ok(())
}

/// Options of CREATE and SETID.
#[derive(Default)]
struct GroupOptions {
    make_stream: bool,
    entries_read: Option<u64>,
}

fn options(call: &Call<'_, '_, '_>, is_create: bool) -> Result<GroupOptions, Error> {
    let mut options = GroupOptions::default();
    let mut at = 5;
    while at < call.len() {
        if is_create && call.is(at, "mkstream") {
            options.make_stream = true;
            at += 1;
        } else if call.is(at, "entriesread") && at + 1 < call.len() {
            options.entries_read = match call.int(at + 1)? {
                -1 => None,
                read @ 0.. => Some(read as u64),
                _ => return Err(Error::fixed("ERR value for ENTRIESREAD must be positive or -1")),
            };
            at += 2;
        } else {
            return Err(wrong_subcommand(call, "XGROUP"));
        }
    }
    Ok(options)
}

/// Parses the argument at 4, the ID after which a group reads; `$` is the last ID.
fn first_id(call: &Call<'_, '_, '_>, last: StreamId) -> Result<StreamId, Error> {
    if call.arg(4) == b"$" { Ok(last) } else { id(call.arg(4)) }
}

pub(super) fn create(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, true)?;
    let key = call.key(2);
    let last = call.db.object_mut::<Stream>(key)?.map(|stream| stream.entries.last_id);
    if last.is_none() && !options.make_stream {
        return Err(NO_KEY);
    }
    // MKSTREAM may be given at most twice.
    if call.len() > 8 {
        return Err(wrong_subcommand(call, "XGROUP"));
    }
    let from = first_id(call, last.unwrap_or_default())?;
    let stream = call.db.object_or_new::<Stream>(key)?;
    let btree_map::Entry::Vacant(vacant) = stream.groups.entry(call.args.get(3).into()) else {
        return Err(Error::fixed("BUSYGROUP Consumer Group name already exists"));
    };
    vacant.insert(Group::new(from, options.entries_read));
    if last.is_none() && idempotence::must_configure(call) {
        if call.is_recorded() {
            let words: Vec<&[u8]> = call.args.from(0).collect();
            call.record_as(&words);
        }
        idempotence::configure_new(call, key)?;
    }
    // Only a new stream changes the key's value.
    let concerns = if last.is_none() { Concerns::All } else { Concerns::Neither };
    call.changed_for(concerns, key, Class::Stream, "xgroup-create");
    call.reply.ok();
    Ok(())
}

/// Calls `run` with the group in the arguments.
fn with_group<T>(call: &mut Call<'_, '_, '_>, run: impl FnOnce(&mut Group, StreamId) -> T) -> Result<T, Error> {
    let (key, name) = (call.key(2), call.arg(3));
    let stream = call.db.object_mut::<Stream>(key)?.ok_or(NO_KEY)?;
    let last = stream.entries.last_id;
    let group = stream.groups.get_mut(name).ok_or_else(|| no_such_group(key.bytes, name))?;
    Ok(run(group, last))
}

pub(super) fn setid(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = options(call, false)?;
    let last = with_group(call, |_, last| last)?;
    if call.len() > 7 {
        return Err(wrong_subcommand(call, "XGROUP"));
    }
    // Unlike CREATE, SETID accepts the signs for a range's ends.
    let from = match call.arg(4) {
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        _ => first_id(call, last)?,
    };
    with_group(call, |group, _| {
        group.last_id = from;
        group.entries_read = options.entries_read;
    })?;
    call.changed_for(Concerns::Neither, call.key(2), Class::Stream, "xgroup-setid");
    call.reply.ok();
    Ok(())
}

pub(super) fn destroy(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(2);
    let stream = call.db.object_mut::<Stream>(key)?.ok_or(NO_KEY)?;
    let existed = stream.groups.remove(call.args.get(3)).is_some();
    if existed {
        call.changed_for(Concerns::Waiters, key, Class::Stream, "xgroup-destroy");
    }
    call.reply.int(i64::from(existed));
    Ok(())
}

pub(super) fn createconsumer(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (name, now_ms) = (call.arg(4), call.db.now_ms());
    let is_new = with_group(call, |group, _| group.add_consumer(name, now_ms))?;
    if is_new {
        call.changed_for(Concerns::Neither, call.key(2), Class::Stream, "xgroup-createconsumer");
    }
    call.reply.int(i64::from(is_new));
    Ok(())
}

pub(super) fn delconsumer(call: &mut Call<'_, '_, '_>) -> Outcome {
    let name = call.arg(4);
    let pending = with_group(call, |group, _| group.remove_consumer(name))?;
    if pending.is_some() {
        call.changed_for(Concerns::Neither, call.key(2), Class::Stream, "xgroup-delconsumer");
    }
    call.reply.count(pending.unwrap_or(0));
    Ok(())
}
