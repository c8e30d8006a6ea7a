//! Penstock against redis-server, against its own journal, and against itself with its input cut elsewhere.

mod access;
mod chains;
mod claims;
mod coverage;
mod differential;
mod fields;
mod function_differential;
mod lanes;
mod links;
mod matrix;
mod messages;
mod migrate;
mod primary;
mod replay;
mod replication;
mod restarts;
mod roles;
mod script_differential;
mod sentinel;
mod snapshots;
mod split;
mod streams;
mod suggestions;
mod tokens;
mod tracking;
mod unusable;
