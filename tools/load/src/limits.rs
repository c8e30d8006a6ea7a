//! What bounds the loader's memory, whatever its input.

/// Commands that are sent together: the advice of the Redis manual's page on pipelining.
pub const CHUNK_COMMANDS: u64 = 10_000;
/// Chunks that may be unanswered: while the server works on one, the replies of the one before arrive.
pub const CHUNKS_IN_FLIGHT: u64 = 2;
/// Bytes that one read asks of an input.
pub const READ_BYTES: usize = 128 << 10;
/// A block takes no further command once it holds so many bytes of requests.
pub const BLOCK_BYTES: usize = 128 << 10;
/// A block takes no further command once it holds so many.
pub const BLOCK_COMMANDS: usize = 16_384;
/// A block takes no further command once so many lines of it were rejected.
pub const BLOCK_REJECTED: usize = 1_000;
/// Bytes of all blocks that are ready to be sent or unanswered; a single larger block is let through alone.
pub const BLOCKS_BYTES: usize = 8 << 20;
/// Commands that are merged into one. Redis 7.0 takes 825 ns for a SET in runs of 10, 776 in runs of 32 and 753 in runs
/// of 100 (1,060 for one alone); with 32, its other clients wait for some 25 microseconds.
pub const MERGED_COMMANDS: u16 = 32;
/// Commands that are put into the order of their scores together, at most. Into a sorted set of half a million, Redis
/// 8.0 takes 2.3 µs for a ZADD in the input's order, 2.1 of 3,000 put into order, 1.65 of 10,000 and 1.3 of 30,000:
/// neighbours find the nodes that they pass in the cache. With 120,000 a server needs less again, but waits for them.
pub const ORDERED_COMMANDS: u32 = 60_000;
/// The same in chunks: small ones are chosen to keep little in flight.
pub const ORDERED_CHUNKS: u64 = 6;
/// Fewer are left as they are: they would hardly pass the same nodes. Unit tests do with few.
pub const ORDERED_COMMANDS_MIN: usize = if cfg!(test) { 2 } else { 100 };
/// So many are put into order first, and then twice as many each time, since a server needn't wait for many while its
/// sorted set is small.
pub const ORDERED_COMMANDS_FIRST: u32 = 2_500;
/// Bytes of a block that ends with such commands.
pub const ORDERED_BYTES: usize = 2 << 20;
/// Bytes of a merged command: what is larger has more to copy than to look up.
pub const MERGED_BYTES: usize = 8 << 10;
/// Longest transaction with `--resume`, roughly: it stays in memory until its end is answered.
pub const TRANSACTION_BYTES: usize = 2 << 20;
/// An input's buffer that grew beyond this is given back to the allocator.
pub const BUFFER_BYTES_KEPT: usize = 2 * BLOCK_BYTES;
/// A block's buffer that grew beyond this is given back to the allocator.
pub const BLOCK_BYTES_KEPT: usize = 2 * ORDERED_BYTES;
/// Bytes of all blocks that wait to be filled again: as many as may be on their way, or else memory is asked of the
/// system anew with each turn.
pub const SPARE_BYTES: usize = BLOCKS_BYTES;
/// Largest command, line or record, in bytes, unless `--max-command` says otherwise.
pub const COMMAND_BYTES: usize = 64 << 20;
/// Largest value of `--max-command`: what a block holds is addressed with 32 bits.
pub const COMMAND_BYTES_MOST: usize = 2 << 30;
/// Arguments of a command: what Penstock, Redis since 7.0 and Valkey take.
pub const ARGS_MAX: u64 = i32::MAX as u64;
/// The same of Redis before 7.0.
pub const ARGS_MAX_BEFORE: u64 = 1024 * 1024;
/// Fields of one CSV record.
pub const CSV_FIELDS: usize = 1 << 20;
/// Bytes of a command or line that an error report shows.
pub const SHOWN_BYTES: usize = 1_000;

const _: () = assert!(COMMAND_BYTES <= COMMAND_BYTES_MOST);
const _: () = assert!(COMMAND_BYTES_MOST + BLOCK_BYTES < u32::MAX as usize);
const _: () = assert!(BLOCKS_BYTES >= 4 * ORDERED_BYTES && ORDERED_BYTES > BLOCK_BYTES);
const _: () = assert!(ORDERED_COMMANDS_FIRST <= ORDERED_COMMANDS && TRANSACTION_BYTES <= BLOCKS_BYTES / 2);
const _: () = assert!(ORDERED_COMMANDS as u64 == ORDERED_CHUNKS * CHUNK_COMMANDS);
