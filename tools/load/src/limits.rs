//! Limits on the loader's memory, for any input.

/// Default number of commands that are sent together, as advised in the Redis manual's page on pipelining.
pub const CHUNK_COMMANDS: u64 = 10_000;
/// Maximum number of unanswered chunks. While the server works on one, the replies to the previous one arrive.
pub const CHUNKS_IN_FLIGHT: u64 = 2;
/// Bytes per read of an input.
pub const READ_BYTES: usize = 128 << 10;
/// Maximum size of a block's requests in bytes, before another command.
pub const BLOCK_BYTES: usize = 128 << 10;
/// Maximum number of commands in a block.
pub const BLOCK_COMMANDS: usize = 16_384;
/// Maximum number of rejected lines in a block.
pub const BLOCK_REJECTED: usize = 1_000;
/// Maximum size of all blocks that are ready or unanswered, in bytes. A single larger block passes alone.
pub const BLOCKS_BYTES: usize = 8 << 20;
/// Maximum number of merged commands. Redis 7.0 takes 825 ns for a SET in runs of 10, 776 in runs of 32 and 753 in runs
/// of 100 (1,060 for a single one). With 32, its other clients wait for about 25 microseconds.
pub const MERGED_COMMANDS: u16 = 32;
/// Maximum number of commands that are sorted together. With a sorted set of half a million, Redis 8.0 takes 2.3 µs for
/// a ZADD in input order, 2.1 in sorted groups of 3,000, 1.65 in groups of 10,000 and 1.3 in groups of 30,000, because
/// neighbouring commands find their nodes in the cache. With 120,000 the server needs even less time, but waits for the
/// loader.
pub const ORDERED_COMMANDS: u32 = 60_000;
/// The same limit in chunks: a small chunk size is chosen to keep little in flight.
pub const ORDERED_CHUNKS: u64 = 6;
/// Smaller groups are not sorted, because they would hardly visit the same nodes. Unit tests use a small limit.
pub const ORDERED_COMMANDS_MIN: usize = if cfg!(test) { 2 } else { 100 };
/// Size of the first sorted group. It doubles each time, so that the server doesn't wait for a large group while its
/// sorted set is small.
pub const ORDERED_COMMANDS_FIRST: u32 = 2_500;
/// Maximum size of a block that ends with a run for sorting, in bytes.
pub const ORDERED_BYTES: usize = 2 << 20;
/// Maximum size of a merged command in bytes. For larger ones, copying outweighs the saved lookups.
pub const MERGED_BYTES: usize = 8 << 10;
/// Approximate maximum size of a transaction with `--resume`, in bytes. It stays in memory until its end is answered.
pub const TRANSACTION_BYTES: usize = 2 << 20;
/// An input's buffer that grew beyond this size is freed.
pub const BUFFER_BYTES_KEPT: usize = 2 * BLOCK_BYTES;
/// A block's buffer that grew beyond this size is freed.
pub const BLOCK_BYTES_KEPT: usize = 2 * ORDERED_BYTES;
/// Maximum memory of spare blocks in bytes. It equals the limit of blocks in use, because a lower one would cause new
/// allocations all the time.
pub const SPARE_BYTES: usize = BLOCKS_BYTES;
/// Default maximum size of a command, line or record, in bytes.
pub const COMMAND_BYTES: usize = 64 << 20;
/// Largest value of `--max-command`. Positions in a block have 32 bits.
pub const COMMAND_BYTES_MOST: usize = 2 << 30;
/// Maximum number of arguments of a command in Penstock, Redis since 7.0 and Valkey.
pub const ARGS_MAX: u64 = i32::MAX as u64;
/// Maximum number of arguments in Redis before 7.0.
pub const ARGS_MAX_BEFORE: u64 = 1024 * 1024;
/// Maximum number of fields of a CSV record.
pub const CSV_FIELDS: usize = 1 << 20;
/// Maximum number of bytes that an error report shows of a command or line.
pub const SHOWN_BYTES: usize = 1_000;

const _: () = assert!(COMMAND_BYTES <= COMMAND_BYTES_MOST);
const _: () = assert!(COMMAND_BYTES_MOST + BLOCK_BYTES < u32::MAX as usize);
const _: () = assert!(BLOCKS_BYTES >= 4 * ORDERED_BYTES && ORDERED_BYTES > BLOCK_BYTES);
const _: () = assert!(ORDERED_COMMANDS_FIRST <= ORDERED_COMMANDS && TRANSACTION_BYTES <= BLOCKS_BYTES / 2);
const _: () = assert!(ORDERED_COMMANDS as u64 == ORDERED_CHUNKS * CHUNK_COMMANDS);
