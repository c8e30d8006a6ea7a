//! The versions that the server reports.

/// The Redis release with the same commands, replies and errors; clients use it to choose features.
pub const REDIS_VERSION: &str = "7.4.0";
/// The Redis release as a number, one byte for each part.
pub const REDIS_VERSION_NUMBER: u32 = 0x0007_0400;
/// The version that this server, as a replica, announces to a Valkey primary. A primary sends the expiry times of hash fields to version
/// 9.0 and later. With an older version it would close the link at the first such field.
pub const VALKEY_VERSION: &str = "9.0.0";
/// The release of Penstock.
pub const PENSTOCK_VERSION: &str = env!("CARGO_PKG_VERSION");
