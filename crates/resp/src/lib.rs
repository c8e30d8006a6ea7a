//! The Redis protocol (RESP2 and RESP3): parsing and encoding of requests and replies, in both directions.
//!
//! This crate knows no socket, no clock and no store. It works on byte slices and buffers that the caller fills and
//! drains. Source of the formats: Redis's "protocol spec" and "RESP3" documentation pages.

#![forbid(unsafe_code)]

pub mod longdouble;
pub mod num;
pub mod output;
pub mod parse;
pub mod reply;
pub mod request;
pub mod skim;
pub mod splitargs;
