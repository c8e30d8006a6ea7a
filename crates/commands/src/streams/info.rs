//! XINFO: information about a stream, its groups and their consumers.

use resp::reply::Reply;
use store::types::stream::{Consumer, Entries, Group, Producers, Stream, StreamId};

use super::pending::idle_ms;
use super::{no_such_group, write_entries, write_entry, write_id, wrong_subcommand};
use crate::Call;
use crate::error::{Error, Outcome};

/// Default number of entries and deliveries of each kind in XINFO STREAM FULL.
const FULL_COUNT_DEFAULT: usize = 10;

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
    "    Prints this help.",
];

/// Rejects XINFO without a subcommand.
pub(super) fn xinfo(_call: &mut Call<'_, '_, '_>) -> Outcome {
    Err(Error::arity("xinfo"))
}

pub(super) fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.simple(line));
    Ok(())
}

pub(super) fn stream(call: &mut Call<'_, '_, '_>) -> Outcome {
    let now_ms = call.db.now_ms();
    let stream = call.db.object::<Stream>(call.key(2))?.ok_or(Error::NO_SUCH_KEY)?;
    let count = match call.args.len() {
        3 => None,
        4 | 6 if call.args.get(3).eq_ignore_ascii_case(b"full") => Some(FULL_COUNT_DEFAULT),
        _ => return Err(wrong_subcommand(call, "XINFO")),
    };
    if call.args.len() == 6 {
        return full_with_count(call);
    }
    match count {
        None => brief(&mut call.reply, stream, now_ms),
        Some(count) => full(&mut call.reply, stream, now_ms, count),
    }
    Ok(())
}

fn full_with_count(call: &mut Call<'_, '_, '_>) -> Outcome {
    if !call.is(4, "count") {
        return Err(wrong_subcommand(call, "XINFO"));
    }
    let count = usize::try_from(call.int(5)?).unwrap_or(FULL_COUNT_DEFAULT);
    let now_ms = call.db.now_ms();
    if let Some(stream) = call.db.peek_object::<Stream>(call.key(2))? {
        full(&mut call.reply, stream, now_ms, count);
    }
    Ok(())
}

/// Number of pairs that both forms begin with.
const FIGURES: usize = 13;

/// The first [`FIGURES`] pairs. `now_ms` is in milliseconds of Unix time.
fn figures(reply: &mut Reply<'_>, stream: &Stream, now_ms: u64) {
    let entries = &stream.entries;
    reply.bulk("length");
    reply.int(entries.len() as i64);
    // Redis keeps blocks in a radix tree; here a single node is reported.
    reply.bulk("radix-tree-keys");
    reply.count(entries.block_count());
    reply.bulk("radix-tree-nodes");
    reply.count(entries.block_count() + 1);
    let ids = [("last-generated-id", entries.last_id), ("max-deleted-entry-id", entries.max_deleted_id)];
    for (name, id) in ids {
        reply.bulk(name);
        write_id(reply, id);
    }
    reply.bulk("entries-added");
    reply.int(entries.entries_added as i64);
    reply.bulk("recorded-first-entry-id");
    write_id(reply, entries.first_id());
    producers(reply, stream.producers.as_deref().unwrap_or(&Producers::default()), now_ms);
}

/// Writes six pairs about the producers' messages.
fn producers(reply: &mut Reply<'_>, producers: &Producers, now_ms: u64) {
    let limits = producers.limits();
    let (count, identities) = producers.count(now_ms);
    let figures = [
        ("idmp-duration", i64::from(limits.seconds)),
        ("idmp-maxsize", i64::from(limits.count)),
        ("pids-tracked", count as i64),
        ("iids-tracked", identities as i64),
        ("iids-added", producers.added as i64),
        ("iids-duplicates", producers.duplicates as i64),
    ];
    for (name, figure) in figures {
        reply.bulk(name);
        reply.int(figure);
    }
}

fn brief(reply: &mut Reply<'_>, stream: &Stream, now_ms: u64) {
    reply.map(FIGURES + 3);
    figures(reply, stream, now_ms);
    reply.bulk("groups");
    reply.count(stream.groups.len());
    for (name, entry) in [("first-entry", stream.entries.first()), ("last-entry", stream.entries.last())] {
        reply.bulk(name);
        match entry {
            Some(entry) => write_entry(reply, entry),
            None => reply.null(),
        }
    }
}

/// Writes all information, with at most `count` entries and `count` pending entries each; 0 means no limit.
fn full(reply: &mut Reply<'_>, stream: &Stream, now_ms: u64, count: usize) {
    reply.map(FIGURES + 2);
    figures(reply, stream, now_ms);
    reply.bulk("entries");
    write_entries(reply, stream.entries.range(StreamId::MIN, StreamId::MAX), count, |_| ());
    reply.bulk("groups");
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(7);
        reply.bulk("name");
        reply.bulk(name);
        progress(reply, &stream.entries, group);
        full_group(reply, group, if count == 0 { usize::MAX } else { count });
    }
}

/// Writes three pairs about a group's progress.
fn progress(reply: &mut Reply<'_>, entries: &Entries, group: &Group) {
    reply.bulk("last-delivered-id");
    write_id(reply, group.last_id);
    let figures = [("entries-read", group.entries_read.map(|read| read as i64)), ("lag", entries.lag(group))];
    for (name, figure) in figures {
        reply.bulk(name);
        match figure {
            Some(figure) => reply.int(figure),
            None => reply.null(),
        }
    }
}

fn full_group(reply: &mut Reply<'_>, group: &Group, count: usize) {
    reply.bulk("pel-count");
    reply.count(group.pending().len());
    reply.bulk("pending");
    reply.array(group.pending().len().min(count));
    for (id, pending) in group.pending().iter().take(count) {
        reply.array(4);
        write_id(reply, *id);
        reply.bulk(&pending.consumer);
        reply.int(pending.delivered_ms as i64);
        reply.int(pending.deliveries as i64);
    }
    reply.bulk("consumers");
    reply.array(group.consumers().len());
    group.consumers().for_each(|consumer| full_consumer(reply, group, consumer, count));
}

fn full_consumer(reply: &mut Reply<'_>, group: &Group, consumer: &Consumer, count: usize) {
    reply.map(5);
    reply.bulk("name");
    reply.bulk(consumer.name());
    reply.bulk("seen-time");
    reply.int(consumer.seen_ms as i64);
    reply.bulk("active-time");
    reply.int(consumer.active_ms.map_or(-1, |ms| ms as i64));
    reply.bulk("pel-count");
    reply.count(consumer.pending().len());
    reply.bulk("pending");
    reply.array(consumer.pending().len().min(count));
    for id in consumer.pending().iter().take(count) {
        let Some(pending) = group.pending().get(id) else { continue };
        reply.array(3);
        write_id(reply, *id);
        reply.int(pending.delivered_ms as i64);
        reply.int(pending.deliveries as i64);
    }
}

pub(super) fn groups(call: &mut Call<'_, '_, '_>) -> Outcome {
    let stream = call.db.object::<Stream>(call.key(2))?.ok_or(Error::NO_SUCH_KEY)?;
    let reply = &mut call.reply;
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(6);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("consumers");
        reply.count(group.consumers().len());
        reply.bulk("pending");
        reply.count(group.pending().len());
        progress(reply, &stream.entries, group);
    }
    Ok(())
}

pub(super) fn consumers(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, name, now_ms) = (call.key(2), call.arg(3), call.db.now_ms());
    let stream = call.db.object::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    let group = stream.groups.get(name).ok_or_else(|| no_such_group(key.bytes, name))?;
    let reply = &mut call.reply;
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        reply.map(4);
        reply.bulk("name");
        reply.bulk(consumer.name());
        reply.bulk("pending");
        reply.count(consumer.pending().len());
        reply.bulk("idle");
        reply.int(idle_ms(now_ms, consumer.seen_ms).max(0));
        reply.bulk("inactive");
        reply.int(consumer.active_ms.map_or(-1, |ms| idle_ms(now_ms, ms).max(0)));
    }
    Ok(())
}
