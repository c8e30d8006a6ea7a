//! The changes that keyspace notifications publish (notify-keyspace-events).

use commands::effects::Class;
use store::db::Event;

use config::keyspace_events::{EVICTED, EXPIRED, GENERIC, HASH, KEY_MISS, LIST, NEW, SET, STREAM, STRING, ZSET};

/// Returns the bit of a class in notify-keyspace-events.
pub(crate) fn bit(class: Class) -> u32 {
    match class {
        Class::Generic => GENERIC,
        Class::String => STRING,
        Class::List => LIST,
        Class::Set => SET,
        Class::Hash => HASH,
        Class::ZSet => ZSET,
        Class::Stream => STREAM,
        Class::Expired => EXPIRED,
        Class::Evicted => EVICTED,
        Class::New => NEW,
        Class::Emptied | Class::Unpublished => 0,
    }
}

/// Returns the bits of commands' changes ([`Class::bit`]) and of the keyspace's own events for these classes.
pub(crate) fn published(classes: u32) -> (u32, u8) {
    use Class::{Evicted, Generic, Hash, List, Set, Stream, String, ZSet};
    let changes = [Generic, String, List, Set, Hash, ZSet, Stream, Evicted];
    let changes = changes.into_iter().filter(|&class| classes & bit(class) != 0).map(Class::bit);
    let wanted = |bit: u32, event: Event| if classes & bit != 0 { event as u8 } else { 0 };
    let events = wanted(EXPIRED, Event::Expired) | wanted(KEY_MISS, Event::Missed) | wanted(NEW, Event::Created);
    let events = events | wanted(HASH, Event::FieldsExpired) | wanted(GENERIC, Event::Drained);
    (changes.fold(0, |all, bit| all | bit), events)
}
