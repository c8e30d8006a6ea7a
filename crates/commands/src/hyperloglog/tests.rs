//! The replies are those of Redis 7.
