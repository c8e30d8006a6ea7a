//! Snapshots in Redis's format (RDB).
//!
//! ```text
//! | "REDIS" and four digits, or "VALKEY" and three: the version | parts | 0xFF | CRC-64 of all before, or 0: not counted |
//!
//! a part:
//! 0xFA name, text             a fact about the file              0xFE number    the database of what follows
//! 0xFB keys, keys that expire the size of the database           0xF5 text      a library of functions
//! [0xFC ms, i64] [0xF8 seconds idle | 0xF9 frequency, u8] type, key, value      a key
//!
//! a length:                                        a string: a length and so many bytes, or
//! 00llllll                                         11000000 i8, 11000001 i16, 11000010 i32    an integer's digits
//! 01llllll llllllll                                11000011 length, length, bytes             LZF: shorter, whole, bytes
//! 10000000 l l l l            big endian
//! 10000001 l l l l l l l l    big endian
//! ```
//!
//! The code that writes ([`Writer`]) and reads a value shows its layout. Sources: Redis's `rdb.h`, `rdb.c` and Valkey's
//! `rdb.h` for numbers, and files of these servers.

mod read;
mod suggestions;
mod write;

pub use read::error::{Error, Flaw};
pub(crate) use read::source::Source;
pub(crate) use read::values::{context, read_entry};
pub use read::{Checksum, Event, Format, Reader};
pub use write::{Access, Collection, Options, Target, Writer, trailer};

/// The first byte of a part of a file.
pub(crate) mod opcode {
    /// Valkey: a slot that is being imported. Redis: module metadata of a key.
    pub(crate) const SLOT_IMPORT_OR_KEY_META: u8 = 0xF3;
    pub(crate) const SLOT_INFO: u8 = 0xF4;
    pub(crate) const FUNCTION: u8 = 0xF5;
    pub(crate) const FUNCTION_BEFORE_RELEASE: u8 = 0xF6;
    pub(crate) const MODULE_AUX: u8 = 0xF7;
    pub(crate) const IDLE: u8 = 0xF8;
    pub(crate) const FREQUENCY: u8 = 0xF9;
    pub(crate) const AUX: u8 = 0xFA;
    pub(crate) const RESIZE: u8 = 0xFB;
    pub(crate) const EXPIRY_MS: u8 = 0xFC;
    pub(crate) const EXPIRY_S: u8 = 0xFD;
    pub(crate) const SELECT: u8 = 0xFE;
    pub(crate) const END: u8 = 0xFF;
}

/// The type byte of a key: its type and encoding.
pub(crate) mod code {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    /// A sorted set with binary scores.
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const MODULE_BEFORE_RELEASE: u8 = 6;
    pub(crate) const MODULE: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const STREAM: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    /// A stream with information about deleted entries.
    pub(crate) const STREAM_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    /// A stream with the times when consumers were active.
    pub(crate) const STREAM_3: u8 = 21;
    /// Redis: expiring fields, before the release of 7.4.
    pub(crate) const HASH_EXPIRING_BEFORE_RELEASE: u8 = 22;
    /// Valkey: fields that expire. The number is the same.
    pub(crate) const HASH_EXPIRING_OF_VALKEY: u8 = 22;
    pub(crate) const HASH_LISTPACK_EXPIRING_BEFORE_RELEASE: u8 = 23;
    pub(crate) const HASH_EXPIRING: u8 = 24;
    pub(crate) const HASH_LISTPACK_EXPIRING: u8 = 25;
    /// A stream with identities of producers' messages.
    pub(crate) const STREAM_4: u8 = 26;
    /// A stream with deliveries that consumers returned.
    pub(crate) const STREAM_5: u8 = 27;
    pub(crate) const ARRAY: u8 = 28;
    pub(crate) const HASH_TEMPLATE_FIRST: u8 = 29;
    pub(crate) const HASH_TEMPLATE_LAST: u8 = 32;
    pub(crate) const RATE_LIMIT: u8 = 33;
}

/// The first byte of a length or string.
pub(crate) mod head {
    pub(crate) const LENGTH_14: u8 = 0x40;
    pub(crate) const LENGTH_32: u8 = 0x80;
    pub(crate) const LENGTH_64: u8 = 0x81;
    pub(crate) const INT_8: u8 = 0xC0;
    pub(crate) const INT_16: u8 = 0xC1;
    pub(crate) const INT_32: u8 = 0xC2;
    pub(crate) const LZF: u8 = 0xC3;
}

/// A node of a list with one plain element.
pub(crate) const NODE_PLAIN: u64 = 1;
/// A node of a list with a listpack.
pub(crate) const NODE_PACKED: u64 = 2;
/// Size of a stream's binary ID: milliseconds and number, big endian.
pub(crate) const ID_BYTES: usize = 16;
/// Flag of a deleted entry in a stream's listpack.
pub(crate) const ENTRY_DELETED: i64 = 1;
/// Flag of an entry in a stream's listpack that has the fields of the block's first entry.
pub(crate) const ENTRY_SAME_FIELDS: i64 = 2;
/// Name of the fact with which [`Writer`] stores the times when the next stream's consumers were active, which version
/// 10 can't store. The times are ordered by group and consumer as in the stream, as i64 of eight bytes, little endian,
/// -1 for never. Other servers ignore unknown names.
pub(crate) const AUX_ACTIVE: &[u8] = b"penstock-consumers-active";

/// Largest number of elements for which memory is reserved because of a claimed length.
pub(crate) const RESERVED_MAX: usize = 1024;
