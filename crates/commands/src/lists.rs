//! Lists: adding, removing and reading elements, and blocking until there are some.
//!
//! Source of the semantics: Redis's command pages of the group "list", and a Redis server's replies for details that
//! the pages omit.

mod blocking;
mod change;
mod move_many;
mod pop;
mod read;
#[cfg(test)]
mod tests;

use std::ops::Range;

use resp::reply::Reply;
use store::types::list::End;
use store::types::packed::Item;
use store::value::Type;

use crate::error::Error;
use crate::spec::flag::{BLOCKING, DENYOOM, FAST, MOVABLEKEYS, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, INSERT, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, On, Spec};
use crate::{Call, Handler};

/// The family's entries. A blocking command waits for its keys with the flag `DELETE`, from which it takes elements.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::List).entries([
    Spec::new("blmove", 6, WRITE | DENYOOM | BLOCKING, blocking::blmove as Handler)
        .waits_for(Type::List)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::List,
            "6.2.0",
            "O(1)",
            "Moves an element from an end of a list to an end of another and returns it. Blocks until there is one.",
            "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto timeout:double",
        ),
    Spec::new("blmovem", -6, WRITE | DENYOOM | BLOCKING, move_many::blmovem as Handler)
        .waits_for(Type::List)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::List,
            "8.10.0",
            "O(N), where N is the number of elements moved",
            "Moves elements from an end of a list to an end of another and returns them. Blocks until there are enough.",
            "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto timeout:double [<COUNT count:integer \
             | EXACTLY exactly:integer>:selector <OBO | BULK>:ordering]:how-many",
        ),
    Spec::new("blmpop", -5, WRITE | BLOCKING | MOVABLEKEYS, blocking::blmpop as Handler)
        .waits_for(Type::List)
        .keys(&[KeySpec::counted(2, RW | ACCESS | DELETE)])
        .docs(
            Group::List,
            "7.0.0",
            "O(N+M) where N is the number of keys and M the number of elements returned",
            "Removes and returns elements of the first list that has any. Blocks until one has.",
            "timeout:double numkeys:integer key [key ...] <LEFT | RIGHT>:where [COUNT count:integer]",
        ),
    Spec::new("blpop", -3, WRITE | BLOCKING, blocking::blpop as Handler)
        .waits_for(Type::List)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .docs(
            Group::List,
            "2.0.0",
            "O(N) where N is the number of keys",
            "Removes and returns the first element of the first list that has any. Blocks until one has.",
            "key [key ...] timeout:double",
        )
        .history(&[("6.0.0", "Timeouts with fractions of a second.")]),
    Spec::new("brpop", -3, WRITE | BLOCKING, blocking::brpop as Handler)
        .waits_for(Type::List)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .docs(
            Group::List,
            "2.0.0",
            "O(N) where N is the number of keys",
            "Removes and returns the last element of the first list that has any. Blocks until one has.",
            "key [key ...] timeout:double",
        )
        .history(&[("6.0.0", "Timeouts with fractions of a second.")]),
    Spec::new("brpoplpush", 4, WRITE | DENYOOM | BLOCKING, blocking::brpoplpush as Handler)
        .waits_for(Type::List)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::List,
            "2.2.0",
            "O(1)",
            "Moves the last element of a list to the head of another and returns it. Blocks until there is one.",
            "source destination timeout:double",
        )
        .history(&[("6.0.0", "Timeouts with fractions of a second.")])
        .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments"),
    Spec::new("lindex", 3, READONLY, read::lindex as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::List,
        "1.0.0",
        "O(N) where N is the distance from the nearer end",
        "Returns the element at an index of a list.",
        "key index:integer",
    ),
    Spec::new("linsert", 5, WRITE | DENYOOM, change::linsert as Handler).keys(&[KeySpec::at(1, RW | INSERT)]).docs(
        Group::List,
        "2.2.0",
        "O(N) where N is the number of elements before the pivot",
        "Inserts an element before or after another element of a list.",
        "key <BEFORE | AFTER>:where pivot element",
    ),
    Spec::new("llen", 2, READONLY | FAST, read::llen as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::List,
        "1.0.0",
        "O(1)",
        "Returns the length of a list.",
        "key",
    ),
    Spec::new("lmove", 5, WRITE | DENYOOM, pop::lmove as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::List,
            "6.2.0",
            "O(1)",
            "Moves an element from an end of a list to an end of another and returns it.",
            "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto",
        ),
    Spec::new("lmovem", -5, WRITE | DENYOOM, move_many::lmovem as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::List,
            "8.10.0",
            "O(N), where N is the number of elements moved",
            "Moves several elements from an end of a list to an end of another and returns them. With EXACTLY, moves all or nothing.",
            "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto [<COUNT count:integer | EXACTLY \
             exactly:integer>:selector <OBO | BULK>:ordering]:how-many",
        ),
    Spec::new("lmpop", -4, WRITE | MOVABLEKEYS, pop::lmpop as Handler)
        .keys(&[KeySpec::counted(1, RW | ACCESS | DELETE)])
        .docs(
            Group::List,
            "7.0.0",
            "O(N+M) where N is the number of keys and M the number of elements returned",
            "Removes and returns elements of the first list that has any.",
            "numkeys:integer key [key ...] <LEFT | RIGHT>:where [COUNT count:integer]",
        ),
    Spec::new("lpop", -2, WRITE | FAST, pop::lpop as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE)])
        .docs(
            Group::List,
            "1.0.0",
            "O(N) where N is the number of elements returned",
            "Removes and returns the first elements of a list.",
            "key [count:integer@6.2.0]",
        )
        .history(&[("6.2.0", "`count`.")]),
    Spec::new("lpos", -3, READONLY, read::lpos as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::List,
        "6.0.6",
        "O(N) where N is the number of elements compared",
        "Returns the indexes of the elements of a list that equal a value.",
        "key element [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN len:integer]",
    ),
    Spec::new("lpush", -3, WRITE | DENYOOM | FAST, change::lpush as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .docs(
            Group::List,
            "1.0.0",
            "O(N) where N is the number of elements added",
            "Adds elements at the head of a list.",
            "key element [element ...]",
        )
        .history(&[("2.4.0", "Several elements.")]),
    Spec::new("lpushx", -3, WRITE | DENYOOM | FAST, change::lpushx as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .docs(
            Group::List,
            "2.2.0",
            "O(N) where N is the number of elements added",
            "Adds elements at the head of a list if it exists.",
            "key element [element ...]",
        )
        .history(&[("4.0.0", "Several elements.")]),
    Spec::new("lrange", 4, READONLY, read::lrange as Handler).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::List,
        "1.0.0",
        "O(S+N) where S is the distance of the range from the nearer end and N its length",
        "Returns a range of the elements of a list.",
        "key start:integer stop:integer",
    ),
    Spec::new("lrem", 4, WRITE, change::lrem as Handler).keys(&[KeySpec::at(1, RW | DELETE)]).docs(
        Group::List,
        "1.0.0",
        "O(N+M) where N is the length of the list and M the number of elements removed",
        "Removes the elements of a list that equal a value.",
        "key count:integer element",
    ),
    Spec::new("lset", 4, WRITE | DENYOOM, change::lset as Handler).keys(&[KeySpec::at(1, RW | UPDATE)]).docs(
        Group::List,
        "1.0.0",
        "O(N) where N is the distance from the nearer end",
        "Replaces the element at an index of a list.",
        "key index:integer element",
    ),
    Spec::new("ltrim", 4, WRITE, change::ltrim as Handler).keys(&[KeySpec::at(1, RW | DELETE)]).docs(
        Group::List,
        "1.0.0",
        "O(N) where N is the number of elements removed",
        "Removes all but a range of the elements of a list.",
        "key start:integer stop:integer",
    ),
    Spec::new("rpop", -2, WRITE | FAST, pop::rpop as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE)])
        .docs(
            Group::List,
            "1.0.0",
            "O(N) where N is the number of elements returned",
            "Removes and returns the last elements of a list.",
            "key [count:integer@6.2.0]",
        )
        .history(&[("6.2.0", "`count`.")]),
    Spec::new("rpoplpush", 3, WRITE | DENYOOM, pop::rpoplpush as Handler)
        .keys(&[KeySpec::at(1, RW | ACCESS | DELETE), KeySpec::at(2, RW | INSERT)])
        .docs(
            Group::List,
            "1.2.0",
            "O(1)",
            "Moves the last element of a list to the head of another and returns it.",
            "source destination",
        )
        .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments"),
    Spec::new("rpush", -3, WRITE | DENYOOM | FAST, change::rpush as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .docs(
            Group::List,
            "1.0.0",
            "O(N) where N is the number of elements added",
            "Adds elements at the tail of a list.",
            "key element [element ...]",
        )
        .history(&[("2.4.0", "Several elements.")]),
    Spec::new("rpushx", -3, WRITE | DENYOOM | FAST, change::rpushx as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | INSERT)])
        .docs(
            Group::List,
            "2.2.0",
            "O(N) where N is the number of elements added",
            "Adds elements at the tail of a list if it exists.",
            "key element [element ...]",
        )
        .history(&[("4.0.0", "Several elements.")]),
]);

/// Writes an element as a bulk string.
#[inline]
pub(crate) fn reply_item(reply: &mut Reply<'_>, item: Item<'_>) {
    match item {
        Item::Str(bytes) => reply.bulk(bytes),
        Item::Int(value) => reply.bulk_int(value),
    }
}

/// Parses the argument at `index` as LEFT or RIGHT.
fn end_at(call: &Call<'_, '_, '_>, index: usize) -> Result<End, Error> {
    if call.is(index, "left") {
        Ok(End::Left)
    } else if call.is(index, "right") {
        Ok(End::Right)
    } else {
        Err(Error::SYNTAX)
    }
}

/// Converts a client's index, which counts from the end if negative, to an index from the head. An index before the
/// head becomes one beyond the end, so both refer to no element.
fn from_head(index: i64, len: usize) -> usize {
    match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => len.checked_sub(index.unsigned_abs() as usize).unwrap_or(usize::MAX),
    }
}

/// Converts a client's range to one within the list. Both ends are inclusive; negative ones count from the list's end.
fn span(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_head = |index: i64| if index < 0 { (index + len).max(-1) } else { index };
    let (start, stop) = (from_head(start).max(0), from_head(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}
