//! The format of COMMAND INFO.

use commands::spec::{Begin, Find, KeySpec, acl, flag, key_flag};
use resp::reply::Reply;

use super::subcommands;
use commands::table::{Command, Table};

/// Writes the description of a command with its subcommands: ten replies in an array.
pub(super) fn write(reply: &mut Reply<'_>, table: &Table, command: &Command) {
    let info = command.info;
    let positions = Positions::of(info.keys);
    reply.array(10);
    reply.bulk(&command.name);
    reply.int(info.arity.into());
    // Redis hides this flag of non-write commands with effects.
    write_names(reply, info.flags & !flag::MAY_REPLICATE, flag::NAMES);
    reply.int(positions.first as i64);
    reply.int(positions.last.into());
    reply.int(positions.step.into());
    write_names(reply, info.all_categories(), acl::NAMES);
    reply.set(info.tips.len());
    info.tips.iter().for_each(|tip| reply.bulk(tip));
    reply.set(info.keys.len());
    info.keys.iter().for_each(|keys| write_key_spec(reply, keys));
    reply.array(command.subcommands.len());
    subcommands(table, command).for_each(|sub| write(reply, table, sub));
}

/// Writes the flags of a key, as a set.
pub(super) fn write_key_flags(reply: &mut Reply<'_>, flags: u32) {
    write_names(reply, flags, key_flag::NAMES);
}

/// Writes the names of the set bits, as a set of simple strings.
fn write_names(reply: &mut Reply<'_>, bits: u32, names: &[(u32, &str)]) {
    reply.set(names.iter().filter(|(bit, _)| bits & bit != 0).count());
    names.iter().filter(|(bit, _)| bits & bit != 0).for_each(|(_, name)| reply.simple(name));
}

/// Writes a key specification, as a map.
pub(super) fn write_key_spec(reply: &mut Reply<'_>, keys: &KeySpec) {
    reply.map(3 + usize::from(!keys.notes.is_empty()));
    if !keys.notes.is_empty() {
        reply.bulk("notes");
        reply.bulk(keys.notes);
    }
    reply.bulk("flags");
    write_key_flags(reply, keys.flags);
    reply.bulk("begin_search");
    match keys.begin {
        Begin::Index(index) | Begin::UnlessEmpty(index) => {
            begin_spec(reply, "index", 1);
            field(reply, "index", index as i64);
        }
        Begin::Keyword(word, from) | Begin::Option(word, from, _) => {
            begin_spec(reply, "keyword", 2);
            reply.bulk("keyword");
            reply.bulk(word);
            field(reply, "startfrom", from.into());
        }
        Begin::Unknown(_) => begin_spec(reply, "unknown", 0),
    }
    reply.bulk("find_keys");
    match keys.find {
        _ if matches!(keys.begin, Begin::Unknown(_)) => begin_spec(reply, "unknown", 0),
        Find::Range { last, step, limit } => {
            begin_spec(reply, "range", 3);
            field(reply, "lastkey", last.into());
            field(reply, "keystep", step.into());
            field(reply, "limit", limit.into());
        }
        Find::Count { count, first, step } => {
            begin_spec(reply, "keynum", 3);
            field(reply, "keynumidx", count as i64);
            field(reply, "firstkey", first as i64);
            field(reply, "keystep", step as i64);
        }
    }
}

/// Begins a map of a type and its `fields` figures.
fn begin_spec(reply: &mut Reply<'_>, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk("type");
    reply.bulk(kind);
    reply.bulk("spec");
    reply.map(fields);
}

fn field(reply: &mut Reply<'_>, name: &str, value: i64) {
    reply.bulk(name);
    reply.int(value);
}

/// The positions of a command's keys as three numbers, for clients older than key specifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Positions {
    /// The first key; 0 if there is none.
    pub first: usize,
    /// The last key; negative numbers count from the end.
    pub last: i32,
    /// Distance from one key to the next.
    pub step: i32,
    /// True if there may be other keys, as in the flag "movablekeys".
    pub are_incomplete: bool,
}

impl Positions {
    /// Combines a command's key specifications by the rules of the page "Command key specifications": a single range is
    /// kept, and adjacent ranges are joined.
    pub(super) fn of(keys: &[KeySpec]) -> Positions {
        let ranges: Vec<_> = keys.iter().filter_map(range).collect();
        let mut positions = Positions::default();
        if let ([(first, last, step)], 1) = (&*ranges, keys.len()) {
            positions = Positions { first: *first, last: *last, step: *step, are_incomplete: false };
        } else {
            positions.are_incomplete = ranges.len() < keys.len();
            ranges.into_iter().for_each(|range| positions.add(range));
        }
        positions.are_incomplete |= keys.iter().any(|k| k.flags & key_flag::INCOMPLETE != 0);
        positions
    }

    fn add(&mut self, (first, last, step): (usize, i32, i32)) {
        let is_next = self.first == 0 || usize::try_from(self.last).is_ok_and(|last| last + 1 == first);
        if step != 1 || !is_next {
            self.are_incomplete = true;
            return;
        }
        *self = Positions { first: if self.first == 0 { first } else { self.first }, last, step, ..*self };
    }
}

/// Returns a range's first key, last key (negative: from the end) and step.
fn range(keys: &KeySpec) -> Option<(usize, i32, i32)> {
    match (keys.begin, keys.find) {
        (Begin::Index(first) | Begin::UnlessEmpty(first), Find::Range { last, step, .. }) => {
            Some((first, if last < 0 { last } else { first as i32 + last }, step))
        }
        _ => None,
    }
}
