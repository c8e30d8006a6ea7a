//! Equality of replies: byte for byte, unless the command leaves an order, a choice or a time open.

use crate::reply::Reply;

/// The guarantee that a command gives about its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// Exactly these bytes.
    Exact,
    /// These groups of elements, in any order. The number is the size of a group.
    Unordered(usize),
    /// This many elements.
    Length,
    /// Elements of this number and these types.
    Shape,
    /// A reply of this type.
    Kind,
    /// A number that depends on the clock, within [`CLOCK_TOLERANCE_S`] seconds.
    Seconds,
    /// Like `Seconds`, in milliseconds.
    Milliseconds,
    /// A map or list of pairs in which the values of some keys differ by server.
    Greeting,
    /// A payload of DUMP: the members of a hash table are in any order.
    Payload,
    /// Figures of a stream, in which times and the size of Redis's radix tree differ.
    StreamFigures,
}

/// Largest difference in time between two servers that get the same command, in seconds: the machine may be busy.
const CLOCK_TOLERANCE_S: i64 = 10;

/// HELLO's fields that differ between servers and connections.
const PERSONAL_FIELDS: &[&[u8]] = &[b"server", b"version", b"id", b"modules"];

/// Types of payloads, by their first byte, with elements in the order of a hash table: sets and hashes.
const HASHED: &[u8] = &[2, 4];

/// Returns true if two payloads have the same type and size, as they do for hash tables with different orders. Each
/// element is compressed separately, so its position does not matter.
fn same_payload(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.first() == b.first() && a.first().is_some_and(|first| HASHED.contains(first))
}

/// Returns true if `a` and `b` are equivalent replies to `command`. EXEC's replies are compared one by one elsewhere.
pub fn same(command: &[Vec<u8>], a: &Reply, b: &Reply) -> bool {
    if a == b {
        return true;
    }
    if a.is_error() || b.is_error() {
        return false;
    }
    match promise(command) {
        Promise::Exact => false,
        Promise::Unordered(group) => a.tag() == b.tag() && sorted(a, group) == sorted(b, group),
        Promise::Length => a.tag() == b.tag() && a.items().len() == b.items().len(),
        Promise::Shape => same_shape(a, b),
        Promise::Kind => a.tag() == b.tag(),
        Promise::Seconds => near(a, b, CLOCK_TOLERANCE_S),
        Promise::Milliseconds => near(a, b, CLOCK_TOLERANCE_S * 1000),
        Promise::Payload => same_payload(a.text(), b.text()),
        Promise::StreamFigures => timeless(a) == timeless(b),
        Promise::Greeting => a.tag() == b.tag() && impersonal(a) == impersonal(b),
    }
}

fn promise(command: &[Vec<u8>]) -> Promise {
    let name = command[0].to_ascii_uppercase();
    let sub = command.get(1).map(|arg| arg.to_ascii_uppercase()).unwrap_or_default();
    match (name.as_slice(), sub.as_slice()) {
        (b"DUMP", _) => Promise::Payload,
        (b"SMEMBERS" | b"SUNION" | b"SINTER" | b"SDIFF" | b"KEYS" | b"HKEYS" | b"HVALS", _) => Promise::Unordered(1),
        (b"HGETALL", _) => Promise::Unordered(2),
        (b"SRANDMEMBER" | b"HRANDFIELD" | b"ZRANDMEMBER" | b"RANDOMKEY" | b"TIME", _) => Promise::Shape,
        (b"TTL" | b"EXPIRETIME" | b"HTTL" | b"HEXPIRETIME", _) | (b"OBJECT", b"IDLETIME") => Promise::Seconds,
        (b"PTTL" | b"PEXPIRETIME" | b"HPTTL" | b"HPEXPIRETIME", _) => Promise::Milliseconds,
        (b"CLIENT", b"ID" | b"INFO" | b"LIST") | (b"OBJECT", b"REFCOUNT") => Promise::Kind,
        (b"COMMAND", b"" | b"COUNT" | b"DOCS" | b"INFO" | b"LIST") => Promise::Kind,
        (b"SCAN" | b"SSCAN" | b"HSCAN" | b"ZSCAN" | b"SPOP", _) => Promise::Kind,
        (b"XPENDING" | b"XINFO", _) => Promise::StreamFigures,
        (b"HELLO", _) => Promise::Greeting,
        (b"SORT" | b"SORT_RO", _) => sort_promise(command),
        _ => Promise::Exact,
    }
}

/// SORT leaves the order open if it does not sort (a set has no order), and if it compares equal weights as text. Then
/// the elements selected by LIMIT are open, too.
fn sort_promise(command: &[Vec<u8>]) -> Promise {
    let at = |word: &[u8]| command.iter().position(|arg| arg.eq_ignore_ascii_case(word));
    let Some(by) = at(b"BY") else { return Promise::Exact };
    let unsorted = command.get(by + 1).is_some_and(|pattern| !pattern.contains(&b'*'));
    let gets = command.iter().filter(|arg| arg.eq_ignore_ascii_case(b"GET")).count();
    match (unsorted || at(b"ALPHA").is_some(), at(b"LIMIT").is_some()) {
        (false, _) => Promise::Exact,
        (true, false) => Promise::Unordered(gets.max(1)),
        (true, true) => Promise::Length,
    }
}

/// The elements in sorted order, in groups of `group`.
pub fn sorted(reply: &Reply, group: usize) -> Vec<Vec<Reply>> {
    let mut groups: Vec<Vec<Reply>> = reply.items().chunks(group).map(<[Reply]>::to_vec).collect();
    groups.sort();
    groups
}

/// Returns true if both have elements of the same number and types, whatever their values.
pub fn same_shape(a: &Reply, b: &Reply) -> bool {
    a.tag() == b.tag()
        && a.is_null() == b.is_null()
        && a.items().len() == b.items().len()
        && a.items().iter().zip(b.items()).all(|(a, b)| same_shape(a, b))
}

fn near(a: &Reply, b: &Reply, tolerance: i64) -> bool {
    if a.tag() == b'*' && b.tag() == b'*' && a.items().len() == b.items().len() {
        // A reply with figures of several fields.
        return a.items().iter().zip(b.items()).all(|(a, b)| a == b || near(a, b, tolerance));
    }
    match (a.integer(), b.integer()) {
        // Negative numbers are codes, not times.
        (Some(a), Some(b)) => a >= 0 && b >= 0 && (a - b).abs() <= tolerance,
        _ => false,
    }
}

/// Fields of XINFO that depend on the clock, on the representation of streams or on the release: "active-time" and
/// "inactive" are new in 7.2, the fields of producers' messages in 8.6. Newer servers also leave trimmed entries out of
/// "entries-read" and "lag".
const MOMENTARY_FIELDS: &[&[u8]] = &[
    b"radix-tree-nodes",
    b"seen-time",
    b"active-time",
    b"idle",
    b"inactive",
    b"entries-read",
    b"lag",
    b"idmp-duration",
    b"idmp-maxsize",
    b"pids-tracked",
    b"iids-tracked",
    b"iids-added",
    b"iids-duplicates",
];

/// The replies of XPENDING and XINFO without times. A delivery's time stands before its count, at the end of an array.
pub fn timeless(reply: &Reply) -> Reply {
    let Reply::Many(tag, items) = reply else { return reply.clone() };
    let mut kept: Vec<Reply> = Vec::new();
    let mut rest = items.iter();
    while let Some(item) = rest.next() {
        match MOMENTARY_FIELDS.contains(&item.text()) {
            true => drop(rest.next()),
            false => kept.push(timeless(item)),
        }
    }
    if let [.., moment, count] = kept.as_mut_slice()
        && moment.integer().is_some()
        && count.integer().is_some()
    {
        *moment = count.clone();
    }
    Reply::Many(*tag, kept)
}

fn impersonal(hello: &Reply) -> Vec<Reply> {
    let pairs = hello.items().chunks(2);
    pairs.filter(|pair| !PERSONAL_FIELDS.contains(&pair[0].text())).flatten().cloned().collect()
}
