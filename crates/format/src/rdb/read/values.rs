//! Reading of values in all encodings that servers have ever written.

use std::io::Read;

use store::entry::{EMBEDDED_BYTES_MAX, Entry};
use store::shared_bytes::Long;
use store::types::list::List;
use store::types::packed::Item;
use store::value::Value;

use super::error::{Error, Flaw};
use super::source::Source;
use super::{Format, collections, stream};
use crate::items::Items;
use crate::rdb::{code, suggestions};
use crate::{Limits, intset, listpack, ziplist, zipmap};

/// Settings and state for reading a value.
pub(crate) struct Context<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) format: Format,
    /// Times when a stream's consumers were active, if the format can't store them with the stream.
    pub(crate) active_times: &'a [u8],
}

/// The context of a payload.
pub(crate) fn context(limits: &Limits, format: Format) -> Context<'_> {
    Context { limits, format, active_times: &[] }
}

/// Reads a key's value and returns the key's entry.
#[inline]
pub(crate) fn read_entry<R: Read>(
    source: &mut Source<R>,
    code: u8,
    key: &[u8],
    expiry: Option<u64>,
    context: &Context<'_>,
) -> Result<Entry, Error> {
    if code != code::STRING {
        let value = read_object(source, code, context)?;
        return Ok(Entry::object(key, value, expiry));
    }
    if source.string_is_long()? {
        let bytes = source.string_owned()?;
        // A string that is short enough to be stored beside its key may be encoded with a long length.
        return Ok(if bytes.len() > EMBEDDED_BYTES_MAX {
            Entry::object(key, Value::long(Long::from(bytes)), expiry)
        } else {
            Entry::string(key, &bytes, expiry)
        });
    }
    Ok(match source.string()? {
        Item::Str(bytes) => Entry::string(key, bytes, expiry),
        Item::Int(int) => Entry::int(key, int, expiry),
    })
}

/// Reads a collection.
fn read_object<R: Read>(source: &mut Source<R>, code: u8, context: &Context<'_>) -> Result<Value, Error> {
    let limits = context.limits;
    Ok(match code {
        code::LIST => Value::List(collections::list(source, limits)?),
        code::LIST_QUICKLIST | code::LIST_QUICKLIST_2 => {
            Value::List(collections::quicklist(source, code == code::LIST_QUICKLIST, limits)?)
        }
        code::SET => Value::Set(collections::set(source, limits)?),
        code::ZSET | code::ZSET_2 => Value::ZSet(collections::zset(source, code == code::ZSET_2, limits)?),
        code::HASH => Value::Hash(collections::hash(source, limits)?),
        code::HASH_ZIPMAP..=code::HASH_ZIPLIST | code::HASH_LISTPACK | code::ZSET_LISTPACK | code::SET_LISTPACK => {
            return read_block(source, code, limits);
        }
        code::STREAM | code::STREAM_2 | code::STREAM_3 | code::STREAM_4 | code::STREAM_5 => {
            stream::read(source, code, context.active_times)?
        }
        code::MODULE => suggestions::read(source)?,
        code::HASH_EXPIRING_OF_VALKEY if matches!(context.format, Format::Valkey(_)) => {
            collections::hash_of_valkey(source, limits)?
        }
        code::HASH_EXPIRING | code::HASH_EXPIRING_BEFORE_RELEASE => {
            collections::hash_expiring(source, code == code::HASH_EXPIRING, limits)?
        }
        code::HASH_LISTPACK_EXPIRING | code::HASH_LISTPACK_EXPIRING_BEFORE_RELEASE => {
            collections::listpack_expiring(source, code == code::HASH_LISTPACK_EXPIRING, limits)?
        }
        _ => return Err(unsupported(source, code)),
    })
}

/// Reads a collection that is stored as one block in a string.
fn read_block<R: Read>(source: &mut Source<R>, code: u8, limits: &Limits) -> Result<Value, Error> {
    let block = source.string_owned()?;
    let flaw = match code {
        code::SET_INTSET => match intset::parse(&block) {
            Some(ints) => return collections::set_of_ints(ints, limits).map_err(|flaw| source.flaw(flaw)),
            None => "an intset",
        },
        code::HASH_ZIPMAP => match zipmap::parse(&block) {
            Some(items) => return built(source, collections::hash_of(items, limits).map(Value::Hash)),
            None => "a zipmap",
        },
        code::LIST_ZIPLIST | code::ZSET_ZIPLIST | code::HASH_ZIPLIST => match ziplist::parse(&block) {
            Some(items) => return built(source, of_items(code, items, limits)),
            None => "a ziplist",
        },
        _ => match listpack::parse(&block) {
            Some(items) => return built(source, of_items(code, items, limits)),
            None => "a listpack",
        },
    };
    Err(source.damaged(flaw))
}

fn built<R>(source: &Source<R>, value: Result<Value, Flaw>) -> Result<Value, Error> {
    value.map_err(|flaw| source.flaw(flaw))
}

/// Creates a collection from the items of one block.
fn of_items(code: u8, items: Items<'_>, limits: &Limits) -> Result<Value, Flaw> {
    match code {
        code::LIST_ZIPLIST => {
            let mut list = List::new();
            collections::append(&mut list, items, limits)?;
            if list.is_empty() { Err(Flaw::Empty) } else { Ok(Value::List(list)) }
        }
        code::SET_LISTPACK => collections::set_of(items, limits).map(Value::Set),
        code::ZSET_ZIPLIST | code::ZSET_LISTPACK => collections::zset_of(items, limits).map(Value::ZSet),
        _ => collections::hash_of(items, limits).map(Value::Hash),
    }
}

/// The error for an unsupported type.
#[cold]
fn unsupported<R>(source: &Source<R>, code: u8) -> Error {
    let what = match code {
        code::MODULE_BEFORE_RELEASE => "a value of a module from before Redis 4.0".into(),
        code::ARRAY => "an array (type 28)".into(),
        code::HASH_TEMPLATE_FIRST..=code::HASH_TEMPLATE_LAST => format!("a hash with a template (type {code})"),
        code::RATE_LIMIT => "a rate limit (type 33)".into(),
        _ => format!("a value of type {code}"),
    };
    source.flaw(Flaw::Unsupported(what))
}
