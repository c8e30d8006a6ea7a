//! The Redis protocol (RESP2 and RESP3): bytes to requests and replies to bytes, in both directions.
//!
//! This room knows no socket, no clock and no store. It works on byte slices and buffers that others fill and drain.
//! Source of the formats: Redis's "protocol spec" and "RESP3" documentation pages.

#![forbid(unsafe_code)]

pub mod longdouble;
pub mod num;
pub mod output;
pub mod parse;
pub mod reply;
pub mod request;
pub mod skim;
pub mod splitargs;
