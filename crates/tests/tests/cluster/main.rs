//! Penstock as a node of a real cluster, beside Debian's Redis 7.0 and, where they are found, Valkey 9 and Redis 8.

mod advising;
mod announcing;
mod counting;
mod crossing;
mod debugging;
mod exporting;
mod failover;
mod files;
mod forwarding;
mod importing;
mod joining;
mod messages;
mod moving;
mod partitions;
mod pulling;
mod rolling;
mod shutdown;
