//! Tests of a cluster's node, with views of the slots that the tests make. The whole process hashes keys by slot.

// Clippy allows `unwrap` in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

extern crate penstock_engine as engine;

mod announcing;
mod changes;
mod commands;
mod crossing;
mod crossing_model;
mod moving;
mod routing;
mod walking;
mod world;
