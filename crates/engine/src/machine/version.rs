//! What the server says that it is.

/// The release of Redis that the server has the commands, replies and errors of; clients decide by it what they may
/// use.
pub const REDIS_VERSION: &str = "7.4.0";
/// The same, a byte for each part.
pub const REDIS_VERSION_NUMBER: u32 = 0x0007_0400;
/// The release of Penstock.
pub const PENSTOCK_VERSION: &str = env!("CARGO_PKG_VERSION");
